/*
 * cost.c
 *		What the planner is told a scan costs.
 *
 * The price of a scan that returns a share of the index's rows follows the scan (src/scan): every segment is
 * walked with a list of gpugraph.itopk_size, which is doubled until half of it covers the rows; where that would
 * be longer than a share of the segment, an exact pass over all its vectors takes the walk's place, and a second one
 * sorts what the first did not keep.  The delta has exact passes only.
 *
 * The planner knows two costs, before the first row and after the last, and takes a straight line in between.  The
 * price is no straight line: it rises most at the beginning, where a filter makes a LIMIT read.  So the
 * line is drawn through the price of the rows that LIMIT and filter together will take, and that of all rows.
 *
 * Distances are priced in the currency of the plan that competes, a sequential scan with a sort: by the time that
 * they take compared with it.  That plan has to fetch vectors that lie out of line, and core charges nothing
 * for this.  So our price is reduced to the share that core charges of the other plan's true price (PricedShare).
 *
 * A page is charged the same wherever it lies: what core charges for a table's page says nothing of whether it is in memory
 * either.  Nor does the price know of GPUs, which answer queries for less.
 */
#include "am/am.h"
#include "storage/pages.h"
#include "storage/type.h"

#include <float.h>
#include <math.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "executor/tuptable.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/float.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"
#include "utils/spccache.h"

/*
 * Distances a walk computes for each entry of its candidate list, measured at degree 32 over the
 * data sets of test/bench: 16 to 26.
 */
#define DISTANCES_PER_ENTRY		20.0

/*
 * What a row costs, measured beside sequential scans that take 4 to 5 ns for a thousandth of a unit.  A row of a walk takes
 * 0.1 us at 3 dimensions, 0.25 at 128 (0.06 pages), 0.9 at 768 (0.38) and 1.5 at 1,536 (0.75); a row of an exact pass
 * 0.12, 0.19, 0.5 and 0.65.
 */
#define ROW_COST			12.0	/* of cpu_operator_cost, at any length */
#define WALK_PAGE_COST		0.4		/* of seq_page_cost, for a page of vector */
#define EXACT_PAGE_COST		0.16

/*
 * What the executor takes to fetch a vector that lies out of line: 3.7 us at 768 dimensions, 4.9 at 1,536.
 */
#define FETCH_COST			220.0	/* of cpu_operator_cost */
#define FETCH_PAGE_COST		0.75	/* of seq_page_cost, for a page of vector */

/* What core charges for the sort of a row with a small LIMIT: comparisons and the distance. */
#define SORTED_ROW_COST		10.0	/* of cpu_operator_cost */

/* As in scan_cpu.c: the longest list that is walked, as a share of the nodes, and the least first batch of an exact pass. */
#define EXACT_SHARE			32
#define EXACT_MIN_BATCH		64

/* What is known of an index when it is planned. */
typedef struct IndexShape
{
	const GgMetaPageData *meta;
	bool		rounded;		/* rows are not what the column has */
	Size		column_bytes;	/* of a vector in the table */
	double		nodes;			/* of all segments and the delta */
	double		delta_nodes;
	Cost		walk_row;
	Cost		exact_row;
} IndexShape;

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

/* The metapage, or for an index that does not exist what can be told from the column. */
static void
ReadShape(PlannerInfo *root, const IndexOptInfo *info, IndexShape *shape)
{
	GgMetaPageData *meta = palloc0(sizeof(GgMetaPageData));
	double		row_pages,
				page_cost;

	memset(shape, 0, sizeof(IndexShape));
	shape->meta = meta;
	if (info->hypothetical)
	{
		Oid			type,
					collation;
		int32		typmod;

		meta->nsegments = 1;
		meta->segments[0].nodes = meta->segments[0].rows = (uint32) Min(info->tuples, PG_INT32_MAX);
		if (info->indexkeys[0] != 0)
		{
			get_atttypetypmodcoll(planner_rt_fetch(info->rel->relid, root)->relid, info->indexkeys[0],
								  &type, &typmod, &collation);
			meta->dimensions = Max(0, typmod);
		}
		shape->column_bytes = GgRowBytes(meta);
	}
	else
	{
		Relation	index = index_open(info->indexoid, NoLock);
		gg_element	element = GgIndexOpclass(index)->element;

		GgReadMeta(index, meta);
		shape->rounded = element != meta->element;
		shape->column_bytes = meta->dimensions * gg_element_size(element);
		index_close(index, NoLock);
	}

	for (int i = 0; i < meta->nsegments; i++)
		shape->nodes += meta->segments[i].nodes;
	if (meta->delta_pages > 0)
		shape->delta_nodes = (double) meta->delta_pages / GgDeltaPagesPerRow(meta) * GgDeltaRowsPerPage(meta);
	shape->nodes += shape->delta_nodes;

	get_tablespace_page_costs(info->reltablespace, NULL, &page_cost);
	row_pages = (double) GgRowBytes(meta) / GG_PAGE_PAYLOAD;
	shape->walk_row = ROW_COST * cpu_operator_cost + row_pages * WALK_PAGE_COST * page_cost;
	shape->exact_row = ROW_COST * cpu_operator_cost + row_pages * EXACT_PAGE_COST * page_cost;
}

/* The first so many nodes of a segment or, without a graph, of the delta. */
static Cost
StreamPrice(const IndexShape *shape, double nodes, bool has_graph, double wanted)
{
	double		longest = has_graph ? floor(nodes / EXACT_SHARE) : 0;
	double		list = gg_itopk_size;
	double		handed = 0;
	Cost		price = 0;

	if (list <= longest)
	{
		while (wanted > list / 2 && list * 2 <= longest && list / 2 < gg_max_scan_tuples)
			list *= 2;
		price = Min(list * DISTANCES_PER_ENTRY, nodes) * shape->walk_row;
		handed = list / 2;
		if (wanted <= handed)
			return price;
	}
	price += nodes * shape->exact_row;
	if (wanted > Min(Max(gg_itopk_size, EXACT_MIN_BATCH) + 2 * handed, nodes))
		price += nodes * (shape->exact_row + log2(nodes) * cpu_operator_cost);
	return price;
}

/* The first rows, given as a share of all. */
static Cost
ScanPrice(const IndexShape *shape, double share)
{
	Cost		price = share * shape->nodes * cpu_index_tuple_cost;

	for (int i = 0; i < shape->meta->nsegments; i++)
	{
		const GgSegment *segment = &shape->meta->segments[i];

		if (segment->nodes > 0 && (segment->dead < segment->rows))
			price += StreamPrice(shape, segment->nodes, true, share * segment->nodes);
	}
	if (shape->delta_nodes > 0)
		price += StreamPrice(shape, shape->delta_nodes, false, share * shape->delta_nodes);
	return price;
}

/*
 * The share that core charges of what a sequential scan takes whose rows, after its filter, are sorted by distance.  Vectors
 * lie out of line where a row of the table takes less room than they do.
 */
static double
PricedShare(const RelOptInfo *rel, const IndexShape *shape, double filtered)
{
	double		page_cost;
	Cost		charged,
				fetches;

	if ((double) rel->pages * BLCKSZ >= rel->tuples * shape->column_bytes)
		return 1;
	get_tablespace_page_costs(rel->reltablespace, NULL, &page_cost);
	charged = rel->pages * page_cost + rel->tuples * (cpu_tuple_cost + rel->baserestrictcost.per_tuple) +
		filtered * SORTED_ROW_COST * cpu_operator_cost;
	fetches = filtered * (FETCH_COST * cpu_operator_cost +
						  (double) shape->column_bytes / BLCKSZ * FETCH_PAGE_COST * page_cost);
	return charged / Max(charged + fetches, DBL_MIN);
}

void
ggcostestimate(PlannerInfo *root, IndexPath *path, double loop_count, Cost *indexStartupCost,
			   Cost *indexTotalCost, Selectivity *indexSelectivity, double *indexCorrelation,
			   double *indexPages)
{
	const RelOptInfo *rel = path->path.parent;
	double		filtered = path->path.param_info != NULL ? path->path.param_info->ppi_rows : rel->rows;
	double		share = 1;
	GenericCosts costs;
	IndexShape	shape;
	Cost		first,
				some,
				all;

	/* by one distance, no more and no less, this index can put rows in order, and nothing else */
	if (list_length(path->indexorderbys) != 1)
	{
		RefusePath(path, indexStartupCost, indexTotalCost, indexSelectivity, indexCorrelation, indexPages);
		return;
	}
	ReadShape(root, path->indexinfo, &shape);
	if (shape.rounded && ReadsCtid(path) && !QueueKeepsCtid())
	{
		RefusePath(path, indexStartupCost, indexTotalCost, indexSelectivity, indexCorrelation, indexPages);
		return;
	}

	memset(&costs, 0, sizeof(costs));
	genericcostestimate(root, path, loop_count, &costs);

	first = ScanPrice(&shape, 0);
	all = ScanPrice(&shape, 1);
	if (root->limit_tuples > 0 && root->limit_tuples < filtered)
	{
		share = root->limit_tuples / filtered;
		some = ScanPrice(&shape, share);
		first = Max(first, some - (all - some) * share / (1 - share));
	}

	share = PricedShare(rel, &shape, filtered);
	*indexStartupCost = first * share;
	*indexTotalCost = all * share;
	*indexSelectivity = costs.indexSelectivity;
	*indexCorrelation = 0;
	*indexPages = costs.numIndexPages;
	pfree(unconstify(GgMetaPageData *, shape.meta));
}
