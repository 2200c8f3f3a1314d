/*
 * cost.c
 *		What the planner is told a scan costs.
 */
#include "am/am.h"
#include "storage/pages.h"
#include "storage/type.h"

#include <math.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "executor/tuptable.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "utils/float.h"
#include "utils/selfuncs.h"
#include "utils/spccache.h"

/*
 * Distances a walk computes for each entry of its candidate list, measured at degree 32 over the
 * data sets of test/bench: 16 to 26.
 */
#define DISTANCES_PER_ENTRY		20.0

/*
 * A distance in units of cpu_operator_cost.  The operator itself is charged one unit in a sequential
 * scan, whatever its length, plus the executor's work around it and cpu_tuple_cost; the
 * index computes the same distance without any of these.
 */
#define DISTANCE_COST			0.5

/*
 * Share of random_page_cost for a page of the graph.  Pages are read at random, but every query
 * reads from the same few, near the entry nodes first, and an index that serves queries lives in memory.
 */
#define CACHED_PAGE_SHARE		0.02

/*
 * Rows that are stored rounded pass the executor's reorder queue.  In some minor releases (15.18, 17.11, 18.6; no more in
 * 15.20) what comes out of it has no ctid: to lock such a row, or to read its ctid, goes wrong.  Asked of the server
 * that runs, not of the headers.
 */
static bool
QueueKeepsCtid(void)
{
	static int	keeps = -1;

	if (keeps < 0)
	{
		TupleDesc	desc = CreateTemplateTupleDesc(1);
		TupleTableSlot *slot;
		HeapTuple	tuple;
		Datum		value = Int32GetDatum(0);
		bool		isnull = false;

		TupleDescInitEntry(desc, 1, "id", INT4OID, -1, 0);
		slot = MakeSingleTupleTableSlot(desc, &TTSOpsBufferHeapTuple);
		tuple = heap_form_tuple(desc, &value, &isnull);
		ItemPointerSet(&tuple->t_self, 1, 1);
		ExecForceStoreHeapTuple(tuple, slot, false);
		keeps = ItemPointerIsValid(&slot->tts_tid);
		ExecDropSingleTupleTableSlot(slot);
		heap_freetuple(tuple);
		FreeTupleDesc(desc);
	}
	return keeps != 0;
}

/* Whether the query wants to know where the rows lie; to lock them it does. */
static bool
ReadsCtid(const IndexPath *path)
{
	const RelOptInfo *rel = path->path.parent;
	List	   *clauses = list_copy(rel->baserestrictinfo);
	Bitmapset  *columns = NULL;
	ListCell   *cell;

	if (path->path.param_info != NULL)
		clauses = list_concat(clauses, path->path.param_info->ppi_clauses);
	pull_varattnos((Node *) rel->reltarget->exprs, rel->relid, &columns);
	foreach(cell, clauses)
		pull_varattnos((Node *) lfirst_node(RestrictInfo, cell)->clause, rel->relid, &columns);
	return bms_is_member(SelfItemPointerAttributeNumber - FirstLowInvalidHeapAttributeNumber, columns);
}

/* Such a scan is not to be chosen whatever else there is. */
static void
RefusePath(IndexPath *path, Cost *indexStartupCost, Cost *indexTotalCost, Selectivity *indexSelectivity,
		   double *indexCorrelation, double *indexPages)
{
	*indexStartupCost = get_float8_infinity();
	*indexTotalCost = get_float8_infinity();
	*indexSelectivity = 0;
	*indexCorrelation = 0;
	*indexPages = 0;
	GgDisablePath(&path->path);
}

/*
 * Startup is the first walk (or exact scan of a small index) and the delta's exact scan: nothing
 * can be returned before.  Rows after the first itopk_size / 2 cost further walks, at the same
 * price a row, up to an exact scan of everything.  With LIMIT the planner takes its share of the
 * difference; a filter raises that share, a join repeats it.
 */
void
ggcostestimate(PlannerInfo *root, IndexPath *path, double loop_count, Cost *indexStartupCost,
			   Cost *indexTotalCost, Selectivity *indexSelectivity, double *indexCorrelation,
			   double *indexPages)
{
	GenericCosts costs;
	GgMetaPageData *meta;
	Relation	index;
	bool		rounded = false;
	double		rows = 0,
				delta_rows,
				row_pages,
				walk_distances,
				walk_cost,
				exact_cost,
				delta_cost;
	Cost		distance_cost = DISTANCE_COST * cpu_operator_cost;
	double		spc_random_page_cost,
				spc_seq_page_cost;

	memset(&costs, 0, sizeof(costs));

	/* by one distance, no more and no less, this index can put rows in order, and nothing else */
	if (list_length(path->indexorderbys) != 1)
	{
		RefusePath(path, indexStartupCost, indexTotalCost, indexSelectivity, indexCorrelation, indexPages);
		return;
	}

	genericcostestimate(root, path, loop_count, &costs);
	get_tablespace_page_costs(path->indexinfo->reltablespace, &spc_random_page_cost, &spc_seq_page_cost);

	meta = palloc0(sizeof(GgMetaPageData));
	if (path->indexinfo->hypothetical)
		rows = path->indexinfo->tuples;
	else
	{
		index = index_open(path->indexinfo->indexoid, NoLock);
		GgReadMeta(index, meta);
		rounded = GgIndexOpclass(index)->element != meta->element;
		index_close(index, NoLock);
		for (int i = 0; i < meta->nsegments; i++)
			rows += meta->segments[i].nodes;
	}
	if (rounded && ReadsCtid(path) && !QueueKeepsCtid())
	{
		RefusePath(path, indexStartupCost, indexTotalCost, indexSelectivity, indexCorrelation, indexPages);
		return;
	}

	row_pages = Max(1.0, (double) GgRowBytes(meta) / GG_PAGE_PAYLOAD);
	delta_rows = meta->delta_pages == 0 ? 0 :
		(double) meta->delta_pages / GgDeltaPagesPerRow(meta) * GgDeltaRowsPerPage(meta);

	exact_cost = rows * distance_cost +
		rows * GgRowBytes(meta) / GG_PAGE_PAYLOAD * spc_seq_page_cost;
	walk_distances = gg_itopk_size * DISTANCES_PER_ENTRY * Max(meta->nsegments, 1);
	walk_cost = walk_distances * (distance_cost + row_pages * CACHED_PAGE_SHARE * spc_random_page_cost);
	walk_cost = Min(walk_cost, exact_cost);
	delta_cost = delta_rows * distance_cost + meta->delta_pages * CACHED_PAGE_SHARE * spc_seq_page_cost;
	pfree(meta);

	*indexStartupCost = walk_cost + delta_cost;
	*indexTotalCost = *indexStartupCost +
		Min((rows + delta_rows) / Max(1.0, gg_itopk_size / 2.0) * walk_cost, exact_cost + delta_cost) +
		(rows + delta_rows) * cpu_index_tuple_cost;
	*indexSelectivity = costs.indexSelectivity;
	*indexCorrelation = 0;
	*indexPages = costs.numIndexPages;
}
