/*
 * batch.h
 *		Functions that search for many queries in one call, and what they have in common.
 */
#ifndef GG_BATCH_H
#define GG_BATCH_H

#include "scan/scan.h"

#include "access/htup.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "utils/array.h"

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
 * Open an index and its table for a search.  Errors are those of GgOpenInspected(), and: 42501
 * SELECT is not granted on the table, nor on all columns that the index uses; 0A000 row-level
 * security applies to the user; 55000 the index is not valid, or not for snapshots as old as the
 * one in use, or the materialized view that it is on has not been populated.
 */
extern void GgOpenTarget(Oid indexoid, GgTarget *target);

/*
 * Open a target once more under the same snapshot, valid or not: REINDEX CONCURRENTLY may have
 * replaced the index, but it is kept up to date until the locks that GgOpenTarget() took are gone.
 */
extern void GgReopenTarget(Oid indexoid, GgTarget *target);

/* Close both relations.  Locks are kept until the transaction ends, as a query's are. */
extern void GgCloseTarget(GgTarget *target);

/* ereport(ERROR) with 22023 unless k is positive. */
extern void GgCheckK(int32 k);

/* ---- query_array.c ----------------------------------------------------- */

typedef struct GgQueryArray
{
	Datum	   *values;			/* detoasted */
	int			count;
	uint32		dimensions;		/* of the index, 0 where it has none yet */
} GgQueryArray;

/*
 * Read an array of queries, and check all before the first one is used.  The values stay in the
 * array.  Errors: 42804 the queries are of another type than the column; 22004 one is NULL; 22000
 * one has other dimensions than the index, or an element that is not finite.
 */
extern void GgReadQueryArray(const GgTarget *target, AnyArrayType *array, GgQueryArray *queries);

/* ---- finder.c ---------------------------------------------------------- */

typedef struct GgFoundRow
{
	ItemPointerData ctid;		/* of the version that the snapshot sees */
	double		distance;		/* the operator's value */
} GgFoundRow;

/*
 * Finds rows by scans of the index under the active snapshot, one per query, as ORDER BY with a
 * LIMIT does.  Of rows that it reads from the table it evaluates the indexed value alone, which may
 * call functions of the table's owner.  So callers act as the owner (GgActAsOwner) all the while.
 */
typedef struct GgFinder
{
	const GgTarget *target;
	MemoryContext context;
	IndexScanDesc scan;
	ScanKeyData key;
	TupleTableSlot *slot;
	EState	   *estate;
	GgQueries  *queries;		/* set by GgSetQueries(), for GgFindQuery() */
	ExprState  *expression;		/* of the indexed value; NULL until one is needed */
	GgScanNote	note;			/* of all scans; set by GgCloseFinder() */

	/* what the last query found, nearest first */
	GgFoundRow *rows;
	uint64		nrows;
	uint64		capacity;
} GgFinder;

/* Begin and end a finder.  exact: its scans measure every row of the index. */
extern void GgOpenFinder(GgFinder *finder, const GgTarget *target, bool exact);
extern void GgCloseFinder(GgFinder *finder);

/* Find the k nearest visible rows, or all where there are fewer.  query is detoasted. */
extern void GgFind(GgFinder *finder, Datum query, uint64 k);

/*
 * From now on searches are as if this node's rows were not there, for a query that is one of these
 * rows.  Walks on a device go through the node all the same.
 */
extern void GgLeaveRowOut(GgFinder *finder, const GgNode *node);

/*
 * Find the k nearest visible rows of several queries: GgSetQueries(), then GgFindQuery() for one
 * after the other.  The queries share a pass over the delta.  The values stay the caller's.  More
 * queries than GG_QUERIES_TOGETHER are no faster.
 */
#define GG_QUERIES_TOGETHER		64
extern void GgSetQueries(GgFinder *finder, const Datum *values, uint32 count, uint64 k);
extern void GgFindQuery(GgFinder *finder, uint32 number, uint64 k);

/* Fetch a row version that the active snapshot sees into the finder's slot. */
extern void GgFetchRow(GgFinder *finder, ItemPointer ctid);

/* The operator's value for a row version that the active snapshot sees, by the table's vector. */
extern double GgTrueDistance(GgFinder *finder, Datum query, ItemPointer ctid);

/*
 * The operator's value, from the engine's distance.  A zero vector under cosine, for which the
 * operator has NaN, is left to the caller.
 */
extern double GgOperatorDistance(gg_metric metric, float distance);

/* The engine's distance, from the operator's value. */
extern float GgEngineDistance(gg_metric metric, double value);

/*
 * The indexed value of the row in a slot of the table.  ereport(ERROR) with 22004 where it is NULL:
 * rows whose value is NULL are not indexed, so the index's expression is not immutable.
 */
extern Datum GgIndexedValue(GgFinder *finder, TupleTableSlot *slot);

/* ---- recall.c ---------------------------------------------------------- */

/* Rows as queries. */
typedef struct GgRowSample
{
	int			count;
	Datum	   *queries;		/* values of the column */
	GgNode	   *nodes;			/* that have them */
} GgRowSample;

/* Take at most `most` visible rows of an index at random, or all where there are few. */
extern void GgTakeRowSample(GgFinder *finder, uint64 seed, int most, GgRowSample *rows);

/* Set a setting until AtEOXact_GUC() ends the nest level. */
extern void GgSetSetting(const char *name, const char *value);

/*
 * The distance up to which rows count as found; farthest: that of the exact answer's last row.  It
 * is somewhat more: two engines differ in float32, and a cosine is a difference of numbers near 1.
 */
extern double GgFarthestFound(gg_metric metric, double farthest);

/* ---- calibrate.c ------------------------------------------------------- */

/* From _PG_init: have the merge worker, and gpugraph_calibrate(), measure recall by this file. */
extern void GgInitCalibration(void);

/* ---- knn_lists.c ------------------------------------------------------- */

/* The k-NN lists of all visible rows of an index, made by GNND. */
typedef struct GgKnnLists
{
	uint32		n;				/* rows */
	uint32		length;			/* of each list */
	gg_metric	metric;
	ItemPointerData *ctids;		/* n */
	uint32	   *ids;			/* n x length, nearest first; GG_NO_NODE at the end */
	float	   *distances;		/* the engine's */
} GgKnnLists;

/*
 * Make lists with room for k rows or more, in the current context.  The caller acts as the table's
 * owner (GgActAsOwner).  ereport(ERROR): 0A000 the metric is inner product; 22023 k is too large;
 * 53400 rows and lists do not fit into maintenance_work_mem; 54000 there are too many rows.
 */
extern GgKnnLists *GgMakeKnnLists(const GgTarget *target, int32 k);

/* ---- result_row.c ------------------------------------------------------ */

/*
 * The tuple of a result's row, none of whose columns is NULL.  *data: its columns, `bytes` in all,
 * which the caller overwrites for each row.  To form a tuple anew takes as long as to store it.
 */
extern HeapTuple GgFormRow(TupleDesc desc, Size bytes, void **data);

#endif							/* GG_BATCH_H */
