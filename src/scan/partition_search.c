/*
 * partition_search.c
 *		The indexes of several partitions are searched together.
 *
 * ORDER BY a distance LIMIT k over partitions is a MergeAppend of index scans.  By itself it
 * fetches a row of every partition before it returns the first, and every index is searched as if
 * all of the k nearest rows might come from there.  Here the index scans below a MergeAppend begin
 * together:
 *
 *	nearest		The first lists of all of them share the distances of the nearest rows so far
 *				(GgNearest).  A walk goes less deep where it finds nothing near enough, and an exact
 *				pass keeps no row that is farther.  This is done where a LIMIT is known, which says
 *				how many of the nearest matter (expected_rows.c).
 *
 *	rows		No row of a partition is fetched before it is its turn, the next one no more than
 *				the first.  Until then the partition has the place in the heap that the least
 *				distance of its index scan's lists gives it.
 *
 * The node is core's, and so are pruning at run time, the subplans, and rescans.  This file sets
 * another function for the node's rows (ExecProcNode), which uses core's state, and puts a heap of
 * its own in the place of core's, with the rest of the state behind it.  EvalPlanQual makes nodes
 * of its own, which are core's throughout.
 *
 * A child that is no scan of a gpugraph index (another index's, a sort, a foreign table's) is
 * fetched from at first, as core does.
 *
 * Rows come in the order in which core's function returns them, with two exceptions.  Rows at equal
 * distance may change places.  Under relaxed_order a partition's row may come later whose distance
 * is less than its scan's lists said.
 */
#include "scan/scan.h"
#include "scan/ready_scan.h"

#include "base/base.h"

#include "catalog/pg_type_d.h"
#include "executor/execPartition.h"
#include "lib/binaryheap.h"
#include "miscadmin.h"
#include "utils/float.h"

/* More than so many distances are not kept in order while indexes are searched. */
#define MOST_NEAREST		1024

typedef struct PartitionSearch
{
	MergeAppendState *node;
	bool	   *ours;			/* of each subplan: it scans a gpugraph index */
	IndexScanDesc *scans;		/* those that begin */
	bool	   *fetched;		/* its next row */
	double	   *least;			/* where it was not: that row has this distance at least */
	GgNearest	nearest;		/* most is 0 where it is not known how many matter */
} PartitionSearch;

/* ---- the heap ------------------------------------------------------------ */

/* The distance by which a subplan has its place; one that is NULL or no number comes last. */
static double
Place(const PartitionSearch *search, int i)
{
	TupleTableSlot *slot = search->node->ms_slots[i];
	bool		isnull;
	Datum		value;

	if (!search->fetched[i])
		return search->least[i];
	value = slot_getattr(slot, search->node->ms_sortkeys[0].ssup_attno, &isnull);
	return isnull ? get_float8_nan() : DatumGetFloat8(value);
}

/* The first of a binaryheap is the greatest. */
static int
Compare(Datum a, Datum b, void *arg)
{
	const PartitionSearch *search = arg;
	const int	left = DatumGetInt32(a);
	const int	right = DatumGetInt32(b);
	const int	order = float8_cmp_internal(Place(search, right), Place(search, left));

	if (order != 0)
		return order;
	return (int) search->fetched[right] - (int) search->fetched[left];
}

/* ---- rows ---------------------------------------------------------------- */

/* Begin the searches of all subplans that are left after pruning. */
static void
Search(PartitionSearch *search)
{
	GgNearest  *nearest = search->nearest.most > 0 ? &search->nearest : NULL;
	int			nscans = 0;

	search->nearest.count = 0;
	for (int i = -1; (i = bms_next_member(search->node->ms_valid_subplans, i)) >= 0;)
	{
		IndexScanState *scan = (IndexScanState *) search->node->mergeplans[i];

		if (!search->ours[i])
			continue;
		GgReadyScan(scan);
		GgPrepareSearch(scan->iss_ScanDesc, nearest);
		search->scans[nscans++] = scan->iss_ScanDesc;
	}
	GgAskTogether(search->scans, nscans);
	for (int i = 0; i < nscans; i++)
		GgOpenSearch(search->scans[i]);
}

/* The subplan's next row is fetched later, unless nothing is known of its distance. */
static void
Leave(PartitionSearch *search, int i)
{
	const IndexScanState *scan = (const IndexScanState *) search->node->mergeplans[i];

	search->fetched[i] = false;
	search->least[i] = -get_float8_infinity();
	/* rows in the executor's queue are nearer than what the index has next */
	if (search->ours[i] && pairingheap_is_empty(scan->iss_ReorderQueue))
		search->least[i] = GgLeastDistance(scan->iss_ScanDesc);
}

/* All subplans begin. */
static void
BeginAll(PartitionSearch *search)
{
	MergeAppendState *node = search->node;

	if (node->ms_valid_subplans == NULL)
		node->ms_valid_subplans = GgMatchingSubplans(node->ms_prune_state);
	Search(search);
	for (int i = -1; (i = bms_next_member(node->ms_valid_subplans, i)) >= 0;)
	{
		Leave(search, i);
		binaryheap_add_unordered(node->ms_heap, Int32GetDatum(i));
	}
	binaryheap_build(node->ms_heap);
	node->ms_initialized = true;
}

/* Fetch the next row of the subplan that is first. */
static void
FetchFirst(PartitionSearch *search)
{
	MergeAppendState *node = search->node;
	int			i = DatumGetInt32(binaryheap_first(node->ms_heap));

	node->ms_slots[i] = ExecProcNode(node->mergeplans[i]);
	search->fetched[i] = !TupIsNull(node->ms_slots[i]);
	if (search->fetched[i])
		binaryheap_replace_first(node->ms_heap, Int32GetDatum(i));
	else
		(void) binaryheap_remove_first(node->ms_heap);
}

static TupleTableSlot *
NextRow(PlanState *pstate)
{
	MergeAppendState *node = castNode(MergeAppendState, pstate);
	PartitionSearch *search = node->ms_heap->bh_arg;

	CHECK_FOR_INTERRUPTS();
	if (!node->ms_initialized)
		BeginAll(search);
	else if (!binaryheap_empty(node->ms_heap))
	{
		Datum		last = binaryheap_first(node->ms_heap);

		Leave(search, DatumGetInt32(last));
		binaryheap_replace_first(node->ms_heap, last);
	}
	while (!binaryheap_empty(node->ms_heap))
	{
		int			i = DatumGetInt32(binaryheap_first(node->ms_heap));

		if (search->fetched[i])
			return node->ms_slots[i];
		FetchFirst(search);
	}
	return ExecClearTuple(node->ps.ps_ResultTupleSlot);
}

/* ---- the plan ------------------------------------------------------------ */

static bool
IsOurs(const PlanState *plan)
{
	const IndexScanState *scan = (const IndexScanState *) plan;

	return IsA(plan, IndexScanState) && scan->iss_NumOrderByKeys == 1 &&
		GgIsGpugraph(scan->iss_RelationDesc);
}

/* Is the order that of one distance, ascending? */
static bool
IsByDistance(const MergeAppendState *node)
{
	const SortSupportData *key = node->ms_sortkeys;

	return node->ms_nkeys == 1 && !key->ssup_reverse && !key->ssup_nulls_first &&
		TupleDescAttr(node->ps.ps_ResultTupleDesc, key->ssup_attno - 1)->atttypid == FLOAT8OID;
}

/*
 * Do the nearest rows of one of our indexes say how far the others need to look?  Not where the
 * executor drops some of them, nor where distances are of different kinds.
 */
static bool
ShareNearest(const PartitionSearch *search)
{
	const GgOpclass *first = NULL;

	for (int i = 0; i < search->node->ms_nplans; i++)
	{
		const IndexScanState *scan = (const IndexScanState *) search->node->mergeplans[i];
		const GgOpclass *opclass;

		if (!search->ours[i])
			continue;
		if (scan->ss.ps.plan->qual != NIL)
			return false;
		opclass = GgIndexOpclass(scan->iss_RelationDesc);
		if (first != NULL && opclass->metric != first->metric)
			return false;
		first = opclass;
	}
	return true;
}

void
GgSearchPartitions(MergeAppendState *node, uint32 limit)
{
	/* half of it is handed out before walks go on; see HandedReach() in walk_stream.c */
	const uint64 most = Max((uint64) gg_itopk_size, GG_LIMITED_WALK(limit));
	PartitionSearch *search;
	int			nours = 0;
	MemoryContext old;

	if (!gg_enable_partition_search || node->ms_nplans < 2 || !IsByDistance(node))
		return;
	old = MemoryContextSwitchTo(node->ps.state->es_query_cxt);
	search = palloc0(sizeof(PartitionSearch));
	search->node = node;
	search->ours = palloc(node->ms_nplans * sizeof(bool));
	for (int i = 0; i < node->ms_nplans; i++)
		nours += search->ours[i] = IsOurs(node->mergeplans[i]);
	search->scans = palloc(node->ms_nplans * sizeof(IndexScanDesc));
	search->fetched = palloc(node->ms_nplans * sizeof(bool));
	search->least = palloc(node->ms_nplans * sizeof(double));
	if (limit > 0 && most <= MOST_NEAREST && ShareNearest(search))
	{
		search->nearest.shared = true;
		search->nearest.most = (uint32) most;
		search->nearest.distances = palloc(most * sizeof(float));
	}
	if (nours >= 2)
	{
		binaryheap_free(node->ms_heap);
		node->ms_heap = binaryheap_allocate(node->ms_nplans, Compare, search);
		ExecSetExecProcNode(&node->ps, NextRow);
	}
	MemoryContextSwitchTo(old);
}
