/*
 * heap_scan.h
 *		The heap scan of CREATE INDEX, by one process or several.
 *
 * A build goes in rounds, one per segment.  Participants fill the area until its limit is reached
 * or the table has no more rows.  When no process fills it any more, the leader makes a segment
 * of what is there.  The others write pages meanwhile.  Then the next round begins, or all is
 * done.  With several areas, which rounds take in turn, the next round begins at once.
 */
#ifndef GG_HEAP_SCAN_H
#define GG_HEAP_SCAN_H

#include "build/area.h"
#include "build/memory.h"
#include "storage/filter_column.h"
#include "storage/inspect.h"
#include "storage/type.h"

#include "access/parallel.h"
#include "access/relscan.h"
#include "nodes/execnodes.h"

/*
 * Does a build evaluate the index's expression as the table's owner?  Where the index has codes
 * alone, scans do so of rows that they read from the table, with the system's search_path
 * (scan/table_order.c).  So the build does it, too, and fails where they would.
 */
static inline bool
GgEvaluatesAsOwner(Relation index, const GgMetaPageData *meta)
{
	return meta->coded != GG_CODES_NONE && GgIsExpression(index);
}

/* What all processes share about the scan. */
typedef struct GgScanShared
{
	int			participants;	/* workers asked for, and the leader; 0: it is alone */
	pg_atomic_uint64 rows_done; /* of all rounds */
	ConditionVariable changed;	/* for the leader: workers stopped */
	slock_t		mutex;			/* protects what follows, and of the metapage
								 * largest_length and features */
	uint32		round;
	bool		done;
	int			nstopped;		/* workers that wait for the next round */
	int			nscanned;		/* workers that have no more rows */
	double		heap_rows;
	bool		broken_hot_chain;
} GgScanShared;

/* One process's part in the scan. */
typedef struct GgScan
{
	Relation	heap;
	Relation	index;
	IndexInfo  *indexInfo;
	const GgOpclass *opclass;
	GgMetaPageData *meta;
	GgScanShared *shared;
	GgArea	   *areas;			/* as many as the writer has queues */
	GgArea	   *area;			/* of this round */
	GgSegmentWriter *writer;
	MemoryContext tuple_context;	/* reset with every row */
	GgFilterColumns columns;
	int64		words[GG_MAX_FILTER_WORDS]; /* of the row at hand */
	uint32		uncounted;		/* rows that are not in shared->rows_done yet */

	/* the leader's; plan is NULL in workers */
	GgMemoryPlan *plan;
	ParallelContext *pcxt;		/* NULL when it is alone */
	uint32		full_chunks;	/* chunks at the area's start that are full */
	void		(*segment_full) (void *arg);	/* a segment is full and the table goes on */
	void		(*look) (void *arg);	/* some rows are read: look after segments in work */
	void	   *arg;
} GgScan;

extern void GgInitScanShared(GgScanShared *shared, int participants);

/* The number of an area, and of the writer's queue for its segment. */
static inline int
GgAreaNumber(const GgScan *scan)
{
	return (int) (scan->area - scan->areas);
}

/*
 * Scan this process's part of the table.  The leader calls segment_full() on the way, which makes a
 * segment, empties the next area and calls GgBeginRound().
 */
extern void GgScanHeap(GgScan *scan, TableScanDesc parallel_scan);

/* The area of the next round. */
extern GgArea *GgNextArea(const GgScan *scan);

/* Begin a round: its area is empty, and workers may go on. */
extern void GgBeginRound(GgScan *scan, bool first);

/* After GgScanHeap() the leader waits for the workers.  True: some have rows for a next round. */
extern bool GgWorkersGoOn(GgScan *scan);

/* This process does not scan (any more); it saw heap_rows.  A worker with areas then helps on. */
extern void GgLeaveScan(GgScan *scan, double heap_rows);
extern void GgHelpToTheEnd(GgScan *scan);

/* All is done: workers may end. */
extern void GgEndScan(GgScan *scan);

/*
 * Write a range, if one is ready and fewer than `writers` processes write; or give up a range's
 * memory for the leader.  False: there was neither to do.
 */
extern bool GgShareWork(GgScan *scan, int writers);

#endif							/* GG_HEAP_SCAN_H */
