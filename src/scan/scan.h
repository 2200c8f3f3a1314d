/*
 * scan.h
 *		What the files of a scan share: scan.c (the callbacks, the merge of the streams, the rows of a node),
 *		scan_cpu.c (streams read here: walks and exact passes), scan_device.c (streams from a GPU).  The head of
 *		scan.c tells how they work together.
 */
#ifndef GG_SCAN_H
#define GG_SCAN_H

#include "scan/bound.h"
#include "storage/source.h"

#include "utils/snapshot.h"
#include "utils/tuplesort.h"

#include "service/service.h"

typedef enum GgStreamPhase
{
	GG_STREAM_DEVICE,
	GG_STREAM_WALK,
	GG_STREAM_EXACT,
	GG_STREAM_LATE,				/* exact, the rows that strict order kept back */
	GG_STREAM_DONE
} GgStreamPhase;

typedef struct GgStream
{
	GgStreamPhase phase;
	bool		has_head;
	gg_candidate head;

	uint32		nodes;			/* of the delta: slots on its pages */
	uint32		itopk;
	uint64		handed;			/* nodes that left the walk or the device's lists */
	uint8	   *returned;		/* bitmap of nodes that left this stream; NULL before the first */

	/* segments only */
	const GgSegment *segment;	/* NULL for the delta */
	GgPageSource source;		/* index NULL: not needed so far */
	GgArray		tids;
	GgArray		offsets;		/* no extents when every node has one row */
	gg_walk    *walk;
	bool		resumed;		/* the walk hands out nodes that a device's lists had, too */

	/* delta only: its pages [first_page, end_page) */
	uint32		first_page;
	uint32		end_page;

	/* on a device */
	int			list;			/* -1: not there */
	gg_candidate *answers;
	uint32		asked;			/* length of the list asked for */
	uint32		nanswers;
	uint32		next_answer;
	uint32		kept_back;		/* of handed: those of this list that strict order kept back */
	bool		ended;			/* the list is shorter than asked for: there is no more */

	/* exact passes, see RankOf() */
	uint64		bound;			/* strict order: rows with lower keys come late */
	uint64		next_rank;		/* this one and those above it are still to come */
	uint64	   *batch;			/* ascending ranks */
	uint32		batch_len;
	uint32		batch_pos;
	uint32		batch_cap;
	bool		batch_bounded;	/* there may be more than batch_cap: a heap while it is filled */
	bool		batch_last;		/* nothing lies behind the batch */
	Tuplesortstate *sort;		/* all ranks that are still to come; NULL: they are in the batch */
} GgStream;

/* Where a row a few places ahead lies, as a hint: see LookAhead(). */
#define AHEAD_SLOTS		16

typedef struct GgAhead
{
	const char *page;			/* of the table; NULL: not known */
	ItemId		line_pointer;
} GgAhead;

typedef struct GgScanOpaque
{
	Relation	index;
	Relation	heap;
	BlockNumber heap_blocks;	/* 0: nobody reads so much that looking ahead pays */
	MemoryContext context;		/* everything of one rescan */
	bool		started;
	GgIterativeScan mode;
	Snapshot	snapshot;
	GgMetaPageData *meta;
	float	   *query;			/* prepared; NULL for a NULL query */
	GgArray		delta;
	GgReason	reason;			/* which engine answers, and why */
	GgResidentRef ref;			/* where, when that is a device */
	uint64		nrows;			/* returned */
	int			nstreams;
	GgStream   *streams;
	float		last_distance;
	GgBound		bound;

	/* the node whose rows are being returned */
	GgStream   *current;
	float		distance;
	uint32		row_next,
				row_end;

	/* iterative_scan = off */
	uint32		allowed;		/* rows that may still be returned */
	uint32		nreturned;
	ItemPointerData *returned;
	uint32		returned_cap;

	GgAhead		ahead[AHEAD_SLOTS];

	int			nwalks;
	gg_walk    *walks[GG_MAX_SEGMENTS];
} GgScanOpaque;

static inline bool
GgWasReturned(const GgStream *stream, uint32 node)
{
	return stream->returned != NULL && (stream->returned[node / 8] & (1 << (node % 8))) != 0;
}

static inline void
GgMarkReturned(GgScanOpaque *so, GgStream *stream, uint32 node)
{
	if (stream->returned == NULL)
		stream->returned = MemoryContextAllocExtended(so->context, stream->nodes / 8 + 1,
													  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	stream->returned[node / 8] |= 1 << (node % 8);
}

/* ---- scan.c ------------------------------------------------------------ */

/* The stream of the delta's pages [first_page, end_page), of exact passes unless the caller says otherwise. */
extern void GgInitDelta(GgScanOpaque *so, GgStream *stream, uint32 first_page, uint32 end_page);

/* ---- scan_cpu.c -------------------------------------------------------- */

/* Memory context callback: also runs when the scan ends by an error. */
extern void GgReturnWalks(void *arg);

/* Is a walk with a list of this length better than measuring every row?  Of a segment: the delta has no graph. */
extern bool GgWalkIsWorthwhile(const GgStream *stream, uint32 itopk);

/* Search a segment, or the device's part of the delta, here: from the start, or from where a device's lists end. */
extern void GgStartOnCpu(GgScanOpaque *so, GgStream *stream);

/* Make the walk's list longer.  True when the walk goes on, false when it was left. */
extern bool GgWiden(GgScanOpaque *so, GgStream *stream);

/* From the walk to exact passes over what it did not return. */
extern void GgLeaveWalk(GgScanOpaque *so, GgStream *stream);

/* Make stream->head an exact stream's next row; false at its end.  Those kept back come last. */
extern bool GgNextExact(GgScanOpaque *so, GgStream *stream);

/* Ends what lives longer than memory does: temporary files. */
extern void GgEndSorts(GgScanOpaque *so);

/* ---- scan_device.c ----------------------------------------------------- */

/*
 * Ask the device that holds the index for all first lists at once.  False: the CPU answers, so->reason says why.
 * delta_pages: how many pages of the delta the device answered for.
 */
extern bool GgAskDevice(GgScanOpaque *so, uint32 *delta_pages);

/* Ask for longer lists; or leave the device, where it has no longer ones or fails. */
extern void GgWidenOnDevice(GgScanOpaque *so, GgStream *stream);

/* ---- access method callbacks ------------------------------------------- */

extern IndexScanDesc ggbeginscan(Relation index, int nkeys, int norderbys);
extern void ggrescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys, int norderbys);
extern bool gggettuple(IndexScanDesc scan, ScanDirection dir);
extern void ggendscan(IndexScanDesc scan);

#endif							/* GG_SCAN_H */
