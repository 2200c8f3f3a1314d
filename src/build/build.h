/*
 * build.h
 *		What the files of CREATE INDEX share: build.c (phases, memory plan, segments), heap_scan.c (the
 *		heap scan in one or several processes), area.c (their memory), deduplicate.c (equal rows), write.c (pages, WAL,
 *		sync).  src/README, Build, tells how they work together.
 */
#ifndef GG_BUILD_H
#define GG_BUILD_H

#include "storage/pages.h"
#include "storage/type.h"

#include "access/parallel.h"
#include "access/xlogdefs.h"
#include "port/atomics.h"
#include "portability/instr_time.h"
#include "storage/condition_variable.h"
#include "storage/spin.h"
#include "utils/snapshot.h"

#include "build/row_upload.h"

/* A build never makes more segments than this, so that merges find room in the directory. */
#define GG_MAX_BUILD_SEGMENTS	16

/*
 * What a participant of a parallel scan claims at a time.  1 MB takes a millisecond to fill: claims are rare, and
 * what is unfilled at the end is soon moved together.
 */
#define GG_CHUNK_BYTES			(1024 * 1024)

/* Pages that a process claims to write at a time: 4 MB, some milliseconds. */
#define GG_RANGE_PAGES			512
#define GG_RANGE_BYTES			((Size) GG_RANGE_PAGES * GG_PAGE_PAYLOAD)

/* Subphases of CREATE INDEX; the engine's gg_phase values follow GRAPH. */
typedef enum GgBuildPhase
{
	GG_BUILD_LOAD = 2,			/* 1 is PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE */
	GG_BUILD_FOLD,
	GG_BUILD_COPY,
	GG_BUILD_WRITE_ROWS,		/* where that does not overlap with the graph */
	GG_BUILD_GRAPH,				/* + gg_phase */
	GG_BUILD_WRITE = GG_BUILD_GRAPH + GG_PHASE_CONNECT + 1,
	GG_BUILD_SYNC,
	GG_BUILD_HAND_OVER
} GgBuildPhase;

/* An array of a segment, to be written as npages pages from block start on. */
typedef struct GgWriteJob
{
	GgKind		kind;
	uint32		segment;
	BlockNumber start;
	uint32		npages;
	uint64		bytes;
} GgWriteJob;

#define GG_MAX_JOBS		3		/* vectors, TIDs, adjacency */

/* Tables of hashes that a segment may have: the first for the rows that are expected, the others where they are more. */
#define GG_FOLD_LEVELS	24

/* A row equal to one that is in the area already. */
typedef struct GgCopy
{
	GgTidEntry	tid;
	uint32		row;			/* that one; GG_NO_ROW in what was claimed and not filled */
} GgCopy;

#define GG_NO_ROW		UINT32_MAX

/*
 * What all processes of a build share: in the parallel context's memory, or the leader's own when it is alone.
 *
 * A build goes in rounds, one for each segment.  Participants fill the area until its limit is
 * reached or the table has no more rows, and write pages of it between two chunks.  When none goes on filling, the leader makes
 * a segment of what is there, the others write pages meanwhile; then the next round begins, or all is done.
 */
typedef struct GgBuildShared
{
	Oid			heap;
	Oid			index;
	bool		concurrent;
	bool		use_wal;
	int			participants;	/* workers asked for, and the leader */
	pid_t		leader_pid;
	int			area_fd;		/* the leader's descriptor of the area */
	uint32		capacity;		/* rows that the area can take, a multiple of chunk_rows */
	uint32		chunk_rows;
	uint32		chunk_copies;	/* what a process claims of copies at a time */
	uint32		fold_buckets;	/* of the first table of hashes */
	GgMetaPageData meta;		/* changed by the leader alone, but for largest_length (mutex); the rest of its
								 * head is fixed before workers start */

	pg_atomic_uint64 rows_done; /* rows of all rounds, counted chunk by chunk */

	ConditionVariable changed;	/* anything below */
	slock_t		mutex;			/* protects what follows */
	uint32		limit;			/* rows of the area that may be used in this round */
	uint32		round;
	bool		done;
	int			nstopped;		/* workers that wait for the next round */
	int			nscanned;		/* workers that have no more rows */
	double		heap_rows;
	bool		broken_hot_chain;

	/*
	 * Pages to be written: ranges [next_range, ready_ranges) of nranges are free to be claimed.  While rows are collected there is one
	 * job without an end.
	 */
	int			njobs;
	GgWriteJob	jobs[GG_MAX_JOBS];
	uint32		nranges;
	uint32		ready_ranges;
	uint32		next_range;
	uint32		done_ranges;
	uint32		striped_from;	/* ranges that are claimed in the order of stripes.h; the others in their own */
	uint32		striped_to;
	uint32		stripes;
	uint32		left_ranges;	/* the leader needs these no more, */
	uint32		next_left;		/* of which those before this one were told so */
	int			writers;		/* processes that write */
	instr_time	write_since;	/* when the first of them began */
	double		write_s;		/* before that, with at least one */
	double		write_busy_s;	/* summed over processes: to write, logging included */
	double		wal_busy_s;		/* to log alone */

	int			fold_levels;	/* tables of hashes used in this round */

	/* what the participants claimed and did not fill in this round: rows [first, end) */
	int			nholes;
	struct
	{
		uint32		first;
		uint32		end;
	}			holes[FLEXIBLE_ARRAY_MEMBER];
} GgBuildShared;

/*
 * The rows of the segment in work, all different.  tids go with the rows, until they are sorted by node with those of copies,
 * the rows that were equal to one there.  fold are the tables of hashes, of one process NULL until used; filled has an entry for each chunk and one more, its
 * number of rows once it is full; users has one for each range to be written, how many still need it;
 * adjacency is where the leader puts the graph for the others to write.  In a build of one process the last five are not there.
 */
typedef struct GgBuildArea
{
	char	   *rows;
	GgTidEntry *tids;
	GgCopy	   *copies;
	pg_atomic_uint64 *fold[GG_FOLD_LEVELS];
	uint32	   *adjacency;
	pg_atomic_uint64 *next_row; /* first row not claimed; beyond the limit once the area is full */
	pg_atomic_uint64 *next_copy;	/* likewise */
	pg_atomic_uint32 *filled;
	pg_atomic_uint32 *users;

	/* of a shared area; base is NULL otherwise */
	char	   *base;
	Size		bytes;
	int			fd;
} GgBuildArea;

/* One process's view of a build. */
typedef struct GgBuild
{
	Relation	heap;
	Relation	index;
	IndexInfo  *indexInfo;
	const GgOpclass *opclass;
	GgBuildShared *shared;
	GgMetaPageData *meta;		/* &shared->meta */
	GgBuildArea area;
	MemoryContext tuple_context;	/* reset with every row */
	bool		leader;

	/* where the next row goes, and the end of the chunk */
	uint32		next;
	uint32		end;
	/* likewise the next copy */
	uint32		next_copy;
	uint32		end_copy;
	uint32		uncounted;		/* rows and copies that are not in shared->rows_done yet */
	int			fold_levels;	/* tables of hashes that are there for this process */

	/* write buffer of GG_WRITE_BATCH pages, see write.c */
	char	   *pages;
	GgRunFile	file;			/* being written to */

	/* ---- the leader's ---- */
	const gg_engine *engine;
	const gg_engine *opened;	/* to be released */
	bool		device;			/* it has memory and processors of its own, or plays that it has (gpugraph.service_engine) */
	gg_build_params params;
	gg_control	control;
	bool		caught;			/* an error beneath the engine, not thrown yet */
	GgOptions	options;
	MemoryContext row_context;	/* what lives as long as the build */
	uint32		most;			/* rows that a segment may have; 0: not known yet */
	bool		announced;
	bool		memory_announced;
	double		expected;		/* rows in the table, as far as is known */
	uint32		n;				/* different rows of the segment in work, once collected */
	uint32		rows;			/* with their copies */
	gg_graph   *graph;			/* its graph, once built */
	GgPivotEntry *pivots;		/* its pivots, as they are written */
	struct GgLoad *load;		/* the hand-over to the GPU service; NULL without one */
	double		heap_s;			/* of times.scan_s, until no process filled chunks */
	double		late_copy_s;	/* from then on, what the leader waited for rows to be on the device */
	double		open_s;			/* to open the device, beside the scan */
	double		hand_over_s;	/* of the leader's time */
	uint32		full_chunks;	/* so many first chunks of the area are full */
	BlockNumber nblocks;		/* blocks given to arrays so far */
	XLogRecPtr	start_redo;
	GgBuildTimes times;
	instr_time	start;			/* of all */
	instr_time	scan_start;		/* of this round */

	/* of a parallel build */
	ParallelContext *pcxt;
	Snapshot	snapshot;
	BufferUsage *buffer_usage;
	WalUsage   *wal_usage;

	/* rows on their way to the device while the scan goes on; NULL: they are not */
	gg_copy    *copy;
	gg_index   *device_index;	/* the copy's until it was stopped */
	uint32		copy_capacity;	/* rows that it can take */
} GgBuild;

/* ---- build.c ----------------------------------------------------------- */

extern void GgEnterPhase(GgBuildPhase phase, int64 total);
extern double GgSecondsSince(instr_time start);

/* Decide how many rows a segment may have; the dimensions are known. */
extern void GgPlanSegments(GgBuild *build);

/* Make a segment of the rows in the area, of which there are build->n; more says that the table goes on. */
extern void GgFlushSegment(GgBuild *build, bool more);

/* ---- heap_scan.c ------------------------------------------------------ */

/* Begin with as many processes as fit; sets build->shared, and for several ones build->pcxt. */
extern void GgBeginScan(GgBuild *build, const GgMetaPageData *meta);

/* Scan the table, and make segments of what is found.  Returns the rows in the table. */
extern double GgScanHeap(GgBuild *build);

/* Wait for the workers' end. */
extern void GgEndScan(GgBuild *build);

/* End the copying of rows to the device, and close the index there; why: the failure that is the cause, or NULL. */
extern void GgAbandonCopy(GgBuild *build, const gg_status *why);

/* ---- area.c ------------------------------------------------------- */

/* The area for shared->capacity rows; false, with the reason told at DEBUG1, when there is to be none. */
extern bool GgCreateArea(GgBuild *build);

/* A worker's view of it; false, with the reason told in the log, when it cannot be had: then others do the work. */
extern bool GgAttachArea(GgBuild *build);
extern void GgUnmapArea(GgBuild *build);	/* if there is one; nobody may be copying from it */

/* Take memory for a part of the area; ereport(ERROR) when there is none.  To be done before it is touched. */
extern void GgReserveArea(GgBuild *build, const void *start, Size bytes);

/* Give back memory of the area that nobody will look at again; all processes lose it. */
extern void GgReleaseArea(GgBuild *build, const void *start, Size bytes);

/* ---- deduplicate.c ------------------------------------------------------ */

/* Bytes that a row takes beside itself and its TID: two slots of the first table of hashes, a quarter of one of the second; a copy. */
#define GG_FOLD_ROW_BYTES	(18 + sizeof(GgCopy))

/* Buckets of a table of hashes; level 0 is the first. */
extern Size GgFoldBuckets(const GgBuildShared *shared, int level);
#define GG_FOLD_BUCKET_SLOTS	8
#define GG_FOLD_BUCKET_BYTES	(GG_FOLD_BUCKET_SLOTS * sizeof(pg_atomic_uint64))

/* How large to make the tables; the segments are planned. */
extern void GgPlanFold(GgBuild *build);

/* The row of the area that this one, which is the newest of its process, is a copy of; itself when it differs from all. */
extern uint32 GgFoldRow(GgBuild *build, uint32 row);

/* Note a copy; false when there is no room for one more in this segment. */
extern bool GgAddCopy(GgBuild *build, ItemPointer tid, uint32 row);

/*
 * Close the gaps that the participants left: the rows are then 0 .. build->n - 1, and with the copies build->rows.  Sort
 * the TIDs by node.  NULL when all rows differ, else n + 1 numbers of first TIDs.
 */
extern void GgCloseGaps(GgBuild *build);
extern uint32 *GgSortTids(GgBuild *build);

/* Empty the tables for another round, or (last) give back their memory. */
extern void GgResetFold(GgBuild *build, bool last);

/* ---- write.c ----------------------------------------------------- */

/* Blocks at the end of the relation for an array, into the directory. */
extern GgWriteJob GgPlanArray(GgBuild *build, uint32 segment, GgKind kind, uint64 bytes);

/* Make the relation long enough for all arrays planned. */
extern void GgExtendRelation(GgBuild *build);

/*
 * What all processes write, in the order of calls: the vectors that are being collected, of which so many bytes will
 * not change any more; then, when their number is known, all of them and further arrays; and one more array, of which the first ranges
 * may be written.
 */
extern void GgStartWriting(GgBuild *build);
extern void GgOfferVectors(GgBuild *build, uint64 bytes);
extern void GgSettleWriting(GgBuild *build, const GgWriteJob *jobs, int njobs);
extern void GgAddJob(GgBuild *build, const GgWriteJob *job);
extern void GgOfferRanges(GgBuild *build, uint32 more);
extern uint32 GgJobRanges(const GgWriteJob *job);

/*
 * The leader needs the ranges before this one no more: the shared memory that they are written from may go as soon as they are.
 * Not for those of a round that is followed by another, which would have to take it again.
 */
extern void GgLeaveRanges(GgBuild *build, uint32 end);

/* Write one range, if there is one to be written and fewer processes than that write; or give back the memory of one. */
extern bool GgWriteRange(GgBuild *build, int writers);

/* Take part in writing, and wait until everything offered is written. */
extern void GgFinishWriting(GgBuild *build);

/* Write an array that only the leader has. */
extern void GgWriteAlone(GgBuild *build, const GgWriteJob *job, const void *data);

/* The metapage, and what makes the relation survive a crash. */
extern void GgFinishRelation(GgBuild *build);

/* ---- access method callbacks ------------------------------------------- */

extern IndexBuildResult *ggbuild(Relation heap, Relation index, IndexInfo *indexInfo);
extern void ggbuildempty(Relation index);
extern char *ggbuildphasename(int64 phase);

#endif							/* GG_BUILD_H */
