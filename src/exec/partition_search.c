/*
 * partition_search.c
 *		The executor's node that searches the indexes of several partitions together.
 *
 * ORDER BY a distance LIMIT k over partitions is planned as a MergeAppend of index scans.  That
 * node begins every scan, fetches a row of every partition before it returns the first, and
 * searches every index as if all of the k nearest rows might come from there.  This node takes its
 * place (partition_plan.c):
 *
 *	closed		The scan of a partition begins when its first row has its turn.  Until then the
 *				index is searched without being opened, where it is known what to ask a device for
 *				(known_lists.c).  A query of a thousand partitions opens ten of them.
 *
 *	nearest		The first lists of the other scans, which begin together, share the distances of the
 *				nearest rows so far (GgNearest).  A walk goes less deep where it finds nothing near
 *				enough, and an exact pass keeps no row that is farther.  This is done where a LIMIT
 *				is known, which says how many of the nearest matter (expected_rows.c).
 *
 *	rows		No row of a partition is fetched before it is its turn, the next one no more than
 *				the first.  Until then the partition has the place in the heap that the least
 *				distance of its lists gives it.
 *
 * The children are core's nodes, and pruning at run time is core's.  EvalPlanQual, and who has
 * turned partition_search off since the plan was made, get core's MergeAppend.
 *
 * A child that is no index scan (a sort, a foreign table's) begins with the node.  It, and a scan
 * of another index, is fetched from at first, as core does.
 *
 * Rows come in the order in which core's node returns them, with three exceptions.  Rows at equal
 * distance may change places.  Under relaxed_order a partition's row may come later whose distance
 * is less than its lists said.  Rows that are found late under strict_order come after the others
 * of all partitions.
 */
#include "exec/nodes.h"
#include "exec/together.h"
#include "scan/scan.h"
#include "scan/ready_scan.h"

#include "base/base.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "commands/explain.h"
#include "executor/execPartition.h"
#include "lib/binaryheap.h"
#include "miscadmin.h"
#include "nodes/extensible.h"
#include "utils/float.h"
#include "utils/inval.h"

/* More than so many distances are not kept in order while indexes are searched. */
#define MOST_NEAREST		1024

typedef struct Partition
{
	Plan	   *plan;
	PlanState  *state;			/* NULL: the node has not begun */
	bool		ours;			/* the node has begun, and scans a gpugraph index */
	bool		searched;		/* its scan has begun */
	bool		fetched;		/* its next row is fetched, and in the slot */
	bool		late;			/* it has only rows left that were found late */
	double		least;			/* where not fetched: the next row has this distance at least */
	TupleTableSlot *slot;
	GgKnown    *known;			/* of its index, where it may stay closed; or NULL */
	GgClosedSearch *closed;		/* whose answer the scan is to take over; or NULL */
} Partition;

typedef struct PartitionsState
{
	CustomScanState css;
	PlanState  *core;			/* core's MergeAppend, which does all; or NULL */
	int			eflags;
	uint32		limit;			/* rows that the executor will ask for; 0: not known */
	int			npartitions;
	Partition  *partitions;
	PartitionPruneState *pruning;
	Bitmapset  *valid;			/* the partitions that are left; NULL: not known yet */
	bool		begun;
	AttrNumber	distance;		/* the column that the order is by */
	ExprState  *query;
	binaryheap *heap;			/* numbers of partitions */
	GgNearest  *nearest;		/* NULL: how many matter is not known, or too many do */
	IndexScanDesc *scans;		/* those that begin */
	MemoryContext context;		/* of closed searches */

	/* for EXPLAIN, of all searches */
	uint64		searched;		/* partitions, of which ... */
	uint64		opened;			/* ... so many scans were begun */
} PartitionsState;

/* ---- the heap ------------------------------------------------------------ */

/* The distance by which a partition has its place; one that is NULL or no number comes last. */
static double
Place(const PartitionsState *node, int i)
{
	const Partition *partition = &node->partitions[i];
	bool		isnull;
	Datum		value;

	if (!partition->fetched)
		return partition->least;
	value = slot_getattr(partition->slot, node->distance, &isnull);
	return isnull ? get_float8_nan() : DatumGetFloat8(value);
}

/* The first of a binaryheap is the greatest. */
static int
Compare(Datum a, Datum b, void *arg)
{
	const PartitionsState *node = arg;
	const int	left = DatumGetInt32(a);
	const int	right = DatumGetInt32(b);
	const Partition *one = &node->partitions[left];
	const Partition *other = &node->partitions[right];
	int			order = (int) other->late - (int) one->late;

	if (order == 0)
		order = float8_cmp_internal(Place(node, right), Place(node, left));
	return order != 0 ? order : (int) one->fetched - (int) other->fetched;
}

/* ---- partitions begin ---------------------------------------------------- */

static bool
IsOurs(const PlanState *state)
{
	const IndexScanState *scan = (const IndexScanState *) state;

	return IsA(state, IndexScanState) && scan->iss_NumOrderByKeys == 1 &&
		GgIsGpugraph(scan->iss_RelationDesc);
}

/* Begin the partition's node. */
static void
Open(PartitionsState *node, Partition *partition)
{
	EState	   *estate = node->css.ss.ps.state;
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);

	partition->state = ExecInitNode(partition->plan, estate, node->eflags);
	partition->ours = IsOurs(partition->state);
	node->css.custom_ps = lappend(node->css.custom_ps, partition->state);
	if (partition->ours)
	{
		const GgAsked asked = {.rows = node->limit, .of_many = true};

		GgTellScan((IndexScanState *) partition->state, &asked);
	}
	MemoryContextSwitchTo(old);
}

/* Make the scan ready for its first row, as far as it needs no device. */
static IndexScanDesc
Prepare(PartitionsState *node, Partition *partition, GgNearest *nearest)
{
	IndexScanState *scan = (IndexScanState *) partition->state;
	MemoryContext old = MemoryContextSwitchTo(scan->ss.ps.state->es_query_cxt);

	GgReadyScan(scan);
	GgPrepareSearch(scan->iss_ScanDesc, nearest);
	partition->searched = true;
	node->opened++;
	MemoryContextSwitchTo(old);
	return scan->iss_ScanDesc;
}

/* Could the partition be searched without its node? */
static bool
MayStayClosed(const Partition *partition)
{
	const IndexScan *scan = (const IndexScan *) partition->plan;

	return partition->state == NULL && IsA(scan, IndexScan) && scan->scan.plan.qual == NIL &&
		scan->indexqual == NIL && list_length(scan->indexorderby) == 1;
}

/*
 * Do the nearest rows of one of our indexes say how far the others need to look?  Not where the
 * executor drops some of them, nor where distances are of different kinds.
 */
static bool
ShareNearest(const PartitionsState *node)
{
	const GgOpclass *first = NULL;

	for (int i = 0; i < node->npartitions; i++)
	{
		const Partition *partition = &node->partitions[i];
		const GgOpclass *opclass;

		if (!partition->ours)
			continue;
		if (partition->plan->qual != NIL)
			return false;
		opclass = GgIndexOpclass(((IndexScanState *) partition->state)->iss_RelationDesc);
		if (first != NULL && opclass->metric != first->metric)
			return false;
		first = opclass;
	}
	return true;
}

/* The query as devices take it; NULL where it is NULL. */
static const float *
EvaluateQuery(PartitionsState *node, const GgClosedSearch *search)
{
	ExprContext *context = node->css.ss.ps.ps_ExprContext;
	bool		isnull;
	Datum		value;

	ResetExprContext(context);
	value = ExecEvalExprSwitchContext(node->query, context, &isnull);
	return isnull ? NULL : GgQueryOfClosed(search, value);
}

/* What is known of the partitions that could stay closed. */
static void
FindKnown(PartitionsState *node)
{
	/* a scan takes the predicate lock of its index where it begins */
	const bool	locks = IsolationIsSerializable();

	for (int i = -1; (i = bms_next_member(node->valid, i)) >= 0;)
	{
		Partition  *partition = &node->partitions[i];

		partition->known = NULL;
		if (!locks && MayStayClosed(partition))
			partition->known = GgFindKnown(((const IndexScan *) partition->plan)->indexid);
	}
}

/*
 * Find the partitions that stay closed, of which it is known what to ask for.  All of them have the
 * query in one form.
 */
static int
FindClosed(PartitionsState *node, GgClosedSearch **searches, const float **query)
{
	int			n = 0;

	FindKnown(node);
	for (int i = -1; (i = bms_next_member(node->valid, i)) >= 0;)
	{
		Partition  *partition = &node->partitions[i];
		GgClosedSearch *search;

		if (partition->known == NULL)
			continue;
		search = GgBeginClosed(partition->known, node->limit, n > 0 ? searches[0] : NULL);
		if (search == NULL)
			continue;
		if (n == 0 && (*query = EvaluateQuery(node, search)) == NULL)
			break;
		partition->closed = searches[n++] = search;
	}
	return n;
}

/* Begin the scans of the partitions that do not stay closed.  Returns how many. */
static int
PrepareOthers(PartitionsState *node)
{
	GgNearest  *nearest = NULL;
	int			n = 0;

	for (int i = -1; (i = bms_next_member(node->valid, i)) >= 0;)
		if (node->partitions[i].closed == NULL && node->partitions[i].state == NULL)
			Open(node, &node->partitions[i]);
	if (node->nearest != NULL && ShareNearest(node))
		nearest = node->nearest;
	for (int i = -1; (i = bms_next_member(node->valid, i)) >= 0;)
	{
		Partition  *partition = &node->partitions[i];

		if (partition->closed == NULL && partition->ours && !partition->searched)
			node->scans[n++] = Prepare(node, partition, nearest);
	}
	return n;
}

/* Give up closed searches that no device has answered.  Returns how many. */
static int
CountUnanswered(PartitionsState *node)
{
	int			n = 0;

	for (int i = -1; (i = bms_next_member(node->valid, i)) >= 0;)
	{
		Partition  *partition = &node->partitions[i];

		if (partition->closed == NULL || GgIsAnswered(partition->closed))
			continue;
		partition->closed = NULL;
		n++;
	}
	return n;
}

/*
 * With gpugraph.target_recall each index has a list of its own length.  All share as many distances
 * as the longest of these has, or a walk for LIMIT if that has more.
 */
static void
AimTogether(PartitionsState *node, int nscans)
{
	uint32		most = (uint32) GG_LIMITED_WALK(node->limit);

	if (gg_target_recall == 0 || node->nearest == NULL)
		return;
	for (int i = 0; i < nscans; i++)
		most = Max(most, ((GgScanOpaque *) node->scans[i]->opaque)->params.itopk_size);
	GgAimNearest(node->nearest, most);
}

/* Begin the searches of all partitions that are left after pruning. */
static void
Search(PartitionsState *node)
{
	MemoryContext old = MemoryContextSwitchTo(node->context);
	GgClosedSearch **searches = palloc(node->npartitions * sizeof(GgClosedSearch *));
	const float *query = NULL;
	int			nclosed;
	int			nscans;

	AcceptInvalidationMessages();
	if (node->nearest != NULL)
		GgForgetNearest(node->nearest);
	nclosed = FindClosed(node, searches, &query);
	do
	{
		nscans = PrepareOthers(node);
		AimTogether(node, nscans);
		GgAskTogether(node->scans, nscans, searches, nclosed, query);
		for (int i = 0; i < nscans; i++)
			GgOpenSearch(node->scans[i]);
		/* once more for those that were closed, and were not answered */
		nclosed = 0;
	} while (CountUnanswered(node) > 0);
	node->searched += bms_num_members(node->valid);
	MemoryContextSwitchTo(old);
}

/* The scan of a closed partition begins, with the answer that there is. */
static void
OpenClosed(PartitionsState *node, Partition *partition)
{
	GgClosedSearch *closed = partition->closed;
	IndexScanDesc scan;

	partition->closed = NULL;
	Open(node, partition);
	scan = Prepare(node, partition, NULL);
	GgTakeClosed(scan, closed);
	GgOpenSearch(scan);
}

/* ---- rows ---------------------------------------------------------------- */

static bool
IsLate(const IndexScanState *scan)
{
	return ((const GgScanOpaque *) scan->iss_ScanDesc->opaque)->late;
}

/* The partition's next row is fetched later, unless nothing is known of its distance. */
static void
Leave(Partition *partition)
{
	const IndexScanState *scan = (const IndexScanState *) partition->state;

	partition->fetched = false;
	partition->least = -get_float8_infinity();
	if (partition->closed != NULL)
		partition->least = GgLeastOfClosed(partition->closed);
	/* rows in the executor's queue are nearer than what the index has next */
	else if (partition->ours && pairingheap_is_empty(scan->iss_ReorderQueue))
		partition->least = GgLeastDistance(scan->iss_ScanDesc);
}

/* All partitions begin. */
static void
BeginAll(PartitionsState *node)
{
	/* half of a list is handed out before walks go on; see GgHandedReach() */
	const uint64 most = Max((uint64) (gg_target_recall > 0 ? MOST_NEAREST : gg_itopk_size),
							GG_LIMITED_WALK(node->limit));

	if (node->valid == NULL)
		node->valid = GgMatchingSubplans(node->pruning);
	/* settings may change between rescans, which AimTogether() follows, too */
	if (node->limit > 0 && most <= MOST_NEAREST && node->nearest == NULL)
		node->nearest = GgMakeNearest(node->css.ss.ps.state->es_query_cxt, MOST_NEAREST);
	if (node->nearest != NULL)
		GgAimNearest(node->nearest, (uint32) Min(most, MOST_NEAREST));
	Search(node);
	for (int i = -1; (i = bms_next_member(node->valid, i)) >= 0;)
	{
		Leave(&node->partitions[i]);
		node->partitions[i].late = false;
		binaryheap_add_unordered(node->heap, Int32GetDatum(i));
	}
	binaryheap_build(node->heap);
	node->begun = true;
}

/* Fetch the next row of the first partition; a closed one is opened, and may get another place. */
static void
FetchFirst(PartitionsState *node)
{
	int			i = DatumGetInt32(binaryheap_first(node->heap));
	Partition  *partition = &node->partitions[i];

	if (partition->closed != NULL)
	{
		OpenClosed(node, partition);
		Leave(partition);
	}
	else
	{
		partition->slot = ExecProcNode(partition->state);
		partition->fetched = !TupIsNull(partition->slot);
		if (!partition->fetched)
		{
			(void) binaryheap_remove_first(node->heap);
			return;
		}
		if (partition->ours)
			partition->late = IsLate((IndexScanState *) partition->state);
	}
	binaryheap_replace_first(node->heap, Int32GetDatum(i));
}

static TupleTableSlot *
ExecPartitions(CustomScanState *css)
{
	PartitionsState *node = (PartitionsState *) css;

	CHECK_FOR_INTERRUPTS();
	if (node->core != NULL)
		return ExecProcNode(node->core);
	if (node->npartitions == 0)
		return ExecClearTuple(css->ss.ps.ps_ResultTupleSlot);
	if (!node->begun)
		BeginAll(node);
	else if (!binaryheap_empty(node->heap))
	{
		Datum		last = binaryheap_first(node->heap);

		Leave(&node->partitions[DatumGetInt32(last)]);
		binaryheap_replace_first(node->heap, last);
	}
	while (!binaryheap_empty(node->heap))
	{
		Partition  *first = &node->partitions[DatumGetInt32(binaryheap_first(node->heap))];

		if (first->fetched)
			return first->slot;
		FetchFirst(node);
	}
	return ExecClearTuple(css->ss.ps.ps_ResultTupleSlot);
}

/* ---- the node ------------------------------------------------------------ */

/* Core's node, with the children that it had. */
static PlanState *
BeginCore(const MergeAppend *plan, List *children, EState *estate, int eflags)
{
	MergeAppend *merge = palloc(sizeof(MergeAppend));

	memcpy(merge, plan, sizeof(MergeAppend));
	merge->mergeplans = children;
	return ExecInitNode((Plan *) merge, estate, eflags);
}

/* List the partitions that are left when the plan begins.  All are valid if no pruning follows. */
static void
ListPartitions(PartitionsState *node, const MergeAppend *merge, List *children)
{
	Bitmapset  *left = NULL;
	int			n = 0;

	if (GgPrunes(merge))
	{
		node->pruning = GgBeginPruning(&node->css.ss.ps, merge, list_length(children), &left);
		n = bms_num_members(left);
	}
	else
	{
		n = list_length(children);
		left = bms_add_range(NULL, 0, n - 1);
	}
	/* where no partition is left there is nothing to find out */
	if (n > 0 && (node->pruning == NULL || !node->pruning->do_exec_prune))
		node->valid = bms_add_range(NULL, 0, n - 1);
	node->partitions = palloc0(Max(n, 1) * sizeof(Partition));
	for (int i = -1; (i = bms_next_member(left, i)) >= 0;)
		node->partitions[node->npartitions++].plan = list_nth(children, i);
}

/* The query, which all scans share; NULL: no partition may stay closed. */
static ExprState *
InitQuery(PartitionsState *node)
{
	for (int i = 0; i < node->npartitions; i++)
	{
		const IndexScan *scan = (const IndexScan *) node->partitions[i].plan;

		if (MayStayClosed(&node->partitions[i]))
			return ExecInitExpr(lsecond(linitial_node(OpExpr, scan->indexorderby)->args),
								&node->css.ss.ps);
	}
	return NULL;
}

/*
 * Does a parallel plan measure its nodes?  Workers then report on nodes that the leader must have.
 */
static bool
TellsAllNodes(const EState *estate)
{
	return estate->es_instrument != 0 &&
		(IsParallelWorker() || estate->es_plannedstmt->parallelModeNeeded);
}

static void
BeginPartitions(CustomScanState *css, EState *estate, int eflags)
{
	PartitionsState *node = (PartitionsState *) css;
	const CustomScan *plan = (const CustomScan *) css->ss.ps.plan;
	const MergeAppend *merge = linitial_node(MergeAppend, plan->custom_private);
	const bool	all = (eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0 || TellsAllNodes(estate);

	/* rows are in the slots of children, which are of any kind */
	css->ss.ps.resultops = NULL;
	css->ss.ps.resultopsset = true;
	css->ss.ps.resultopsfixed = false;
	if (estate->es_epq_active != NULL || !GgIsEnabled(GG_PARTITION_SEARCH))
	{
		node->core = BeginCore(merge, plan->custom_plans, estate, eflags);
		css->custom_ps = list_make1(node->core);
		return;
	}
	node->eflags = eflags;
	node->distance = merge->sortColIdx[0];
	ListPartitions(node, merge, plan->custom_plans);
	node->query = InitQuery(node);
	node->heap = binaryheap_allocate(Max(node->npartitions, 1), Compare, node);
	node->scans = palloc(Max(node->npartitions, 1) * sizeof(IndexScanDesc));
	node->context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph partitions",
										  ALLOCSET_DEFAULT_SIZES);
	for (int i = 0; i < node->npartitions; i++)
		if (all || !IsA(node->partitions[i].plan, IndexScan))
			Open(node, &node->partitions[i]);
}

bool
GgTellPartitions(PlanState *state, uint32 limit)
{
	PartitionsState *node = (PartitionsState *) state;

	if (!GgIsNode(state, &gg_partitions))
		return false;
	node->limit = limit;
	return true;
}

/* Closed searches end; those that were answered count as queries of their indexes. */
static void
EndClosed(PartitionsState *node)
{
	for (int i = 0; i < node->npartitions; i++)
	{
		Partition  *partition = &node->partitions[i];

		if (partition->closed != NULL && GgIsAnswered(partition->closed))
			GgCountClosed(partition->closed);
		partition->closed = NULL;
		partition->searched = false;
	}
	MemoryContextReset(node->context);
}

static void
EndPartitions(CustomScanState *css)
{
	PartitionsState *node = (PartitionsState *) css;
	ListCell   *cell;

	foreach(cell, css->custom_ps)
		ExecEndNode(lfirst(cell));
	if (node->core == NULL)
		EndClosed(node);
}

static void
ReScanPartitions(CustomScanState *css)
{
	PartitionsState *node = (PartitionsState *) css;

	GgReScanChildren(css);
	if (node->core != NULL)
		return;
	EndClosed(node);
	if (node->pruning != NULL &&
		bms_overlap(css->ss.ps.chgParam, node->pruning->execparamids))
	{
		bms_free(node->valid);
		node->valid = NULL;
	}
	binaryheap_reset(node->heap);
	node->begun = false;
}

static void
ExplainPartitions(CustomScanState *css, List *ancestors, ExplainState *es)
{
	const PartitionsState *node = (const PartitionsState *) css;
	const CustomScan *plan = (const CustomScan *) css->ss.ps.plan;
	const int	removed = list_length(plan->custom_plans) - node->npartitions;

	if (node->core != NULL)
		return;
	if (removed > 0 || es->format != EXPLAIN_FORMAT_TEXT)
		ExplainPropertyInteger("Subplans Removed", NULL, removed, es);
	if (!es->analyze)
		return;
	ExplainPropertyUInteger("Partitions Searched", NULL, node->searched, es);
	ExplainPropertyUInteger("Scans Begun", NULL, node->opened, es);
}

const GgNodeKind gg_partitions = {
	GG_NODE_NAMES("GpugraphPartitions"),
	.exec.BeginCustomScan = BeginPartitions,
	.exec.ExecCustomScan = ExecPartitions,
	.exec.EndCustomScan = EndPartitions,
	.exec.ReScanCustomScan = ReScanPartitions,
	.exec.ExplainCustomScan = ExplainPartitions,
	.state_bytes = sizeof(PartitionsState)
};
