/*
 * batch.h
 *		Functions that search for many queries in one call, and what they have in common.
 *
 *	search.c		gpugraph_search()
 *	knn_graph.c		gpugraph_knn_graph()
 *	recall.c		gpugraph_recall(), gpugraph_itopk_size()
 *	target.c		an index whose rows a user may see
 *	finder.c		the nearest visible rows of one query, by a scan
 *	index_rows.c	the rows of an index by their place in it
 *	bulk.c			the nearest visible rows of many queries, by a device
 *	missing.c		the lists of segments that a device lacks
 *	resolve.c		rows that a device answered with, as the versions that the snapshot sees
 */
#ifndef GG_BATCH_H
#define GG_BATCH_H

#include "scan/scan.h"

#include "executor/tuptable.h"
#include "nodes/execnodes.h"

#include "storage/inspect.h"

/* ---- target.c ---------------------------------------------------------- */

/* An index, open with its table under AccessShareLock, whose rows the user may read. */
typedef struct GgTarget
{
	GgInspected inspected;
	Relation	heap;
	Relation	index;
	const GgOpclass *opclass;
	Oid			type;			/* of the indexed column; of a domain, its base type */
} GgTarget;

/*
 * Errors are those of GgOpenInspected(), and: 42501 SELECT is not granted on the table, nor on all
 * columns of the index; 0A000 row-level security applies to the user; 55000 the index is not valid,
 * or not for snapshots as old as the one in use.
 */
extern void GgOpenTarget(Oid indexoid, GgTarget *target);

/*
 * Once more under the same snapshot.  REINDEX CONCURRENTLY may have replaced the index, which is
 * then not valid any more, but it is kept up to date until the locks of the first time are gone.
 */
extern void GgReopenTarget(Oid indexoid, GgTarget *target);

/* The locks stay until the transaction ends, as those of a query do: what it has found holds. */
extern void GgCloseTarget(GgTarget *target);

/* How many rows to find: 22023 unless it is positive. */
extern void GgCheckK(int32 k);

/* ---- finder.c ---------------------------------------------------------- */

typedef struct GgFoundRow
{
	ItemPointerData ctid;		/* of the version that the snapshot sees */
	double		distance;		/* the operator's value */
} GgFoundRow;

/*
 * Finds rows by scans of the index under the active snapshot, one per query, as ORDER BY with a
 * LIMIT does.
 */
typedef struct GgFinder
{
	const GgTarget *target;
	MemoryContext context;
	IndexScanDesc scan;
	ScanKeyData key;
	TupleTableSlot *slot;
	IndexInfo  *info;
	EState	   *estate;
	GgScanNote	note;			/* of all scans; set by GgCloseFinder() */

	/* what the last query found, nearest first */
	GgFoundRow *rows;
	uint64		nrows;
	uint64		capacity;
} GgFinder;

/* exact: every row of the index is measured. */
extern void GgOpenFinder(GgFinder *finder, const GgTarget *target, bool exact);
extern void GgCloseFinder(GgFinder *finder);

/* Find the k nearest visible rows, or all where there are fewer.  query is detoasted. */
extern void GgFind(GgFinder *finder, Datum query, uint64 k);

/* The operator's value for a row version that the active snapshot sees, by what the table has. */
extern double GgTrueDistance(GgFinder *finder, Datum query, ItemPointer ctid);

/* The operator's value by the engine's distance; to a zero vector under cosine it is NaN. */
extern double GgOperatorDistance(gg_metric metric, float distance);

/* The indexed value of the row in a slot of the table. */
extern Datum GgIndexedValue(GgFinder *finder, TupleTableSlot *slot);

/* ---- index_rows.c ------------------------------------------------------ */

/*
 * Rows by their place: those of all segments, one after the other, then the delta's slots.  In a
 * segment equal rows are neighbors.
 */
extern uint64 GgCountPlaces(const GgMetaPageData *meta);

/*
 * Read the TIDs of the rows at count places from first on, most at the most.  A place without a row
 * has an invalid one.  Returns count, 0 behind the last place.
 */
extern uint32 GgReadPlaces(Relation index, const GgMetaPageData *meta, uint64 first, uint32 most,
						   ItemPointerData *tids);

#endif							/* GG_BATCH_H */
