/*
 * bitmap_path.c
 *		What the planner is told of index scans that are restricted to a bitmap (bitmap_scan.c).
 *
 * For a table with a gpugraph index whose distance the query orders by, and with conditions that
 * other indexes can answer, there is one more path: ask those indexes for a bitmap of rows, and the
 * gpugraph index for the nearest of them.
 *
 * Both halves are paths that core makes.  By the time that extensions are asked, core has dropped
 * paths that cost more than others, such as a bitmap heap scan beside a cheaper index scan.  So
 * core is asked again, with copies of the table that have no paths so far and only some of its
 * indexes (PathsOf): those that make bitmaps, as if they did nothing else, and each gpugraph index.
 * What core knows about matching conditions to indexes (ORs, ANDs, IN lists, partial indexes,
 * support functions, conditions that leak and must not be evaluated before those of row-level
 * security) then holds for us, too.
 */
#include "exec/nodes.h"
#include "plan/planner.h"
#include "engine/rules/search_plan.h"
#include "service/shared/service.h"
#include "storage/codes.h"
#include "storage/directory.h"
#include "storage/type.h"

#include <math.h>

#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"

/* ---- cost --------------------------------------------------------------- */

/*
 * Times in microseconds, as in cost.c: a row of the index whose TID is looked up in the bitmap's, a
 * TID of the bitmap, a vector that is measured, and the fetch of a row from the table.
 */
#define LOOK_TIME				0.001
#define TID_TIME				0.05
#define MATCH_TIME(pages)		(0.2 + 2.5 * (pages))
#define FETCH_ROW_TIME			0.3

/* A device looks at all TIDs of the index once for each GG_MAX_FILTER_TIDS of the bitmap. */
static double
DeviceTime(double tuples, double matches, double row_bytes)
{
	double		requests = ceil(matches / GG_MAX_FILTER_TIDS);

	return requests * GgDeviceExactTime(tuples, 1, matches / requests, row_bytes);
}

/* DeviceTime() by codes alone, with the rows that the backend measures.  limit 0: not known. */
static double
RowlessTime(const GgMetaPageData *meta, double tuples, double matches, double limit)
{
	const gg_codes codes = GG_DEVICE_CODES((gg_metric) meta->metric);
	double		measured = limit > 0 ? Min(matches, GG_BOUNDED_TIMES * limit) : matches;

	return DeviceTime(tuples, matches, gg_code_record_bytes(codes, meta->dimensions)) +
		measured * MATCH_TIME((double) GgRowBytes(meta) / GG_TIMED_PAGE);
}

/* How many rows the bitmap will have. */
static double
BitmapRows(const RelOptInfo *rel, const BitmapHeapPath *bitmap, Cost *cost)
{
	Selectivity selectivity;

	cost_bitmap_tree_node(bitmap->bitmapqual, cost, &selectivity);
	return clamp_row_est(selectivity * rel->tuples);
}

/*
 * The plan that competes has the same bitmap, fetches each of its rows from the table, computes the
 * distance and sorts.  This one looks at all TIDs of the index, measures the index's vectors of
 * those rows, and fetches what it returns.  So it pays where many rows match, and where the table's
 * vectors are out of line.  Core's charge for the other plan goes by pages read from disk, ours by
 * times with everything in memory (cost.c).  The cheaper of the two must be the faster one.  So a
 * microsecond of ours costs no more than one of that plan where ours is faster, and no less where
 * it is slower.
 *
 * Measured, in ms, with B-trees, LIMIT 10, both in turns, least of 25 on a busy machine:
 *
 *	rows that match		200,000 x 128			40,000 x 768, out of line
 *						this	the other		this	the other
 *	1 in 10,000			0.18	0.03			0.05	0.03
 *	1 in 1,000			0.26	0.11			0.08	0.12
 *	1 in 250			0.57	0.47			0.16	0.43
 *	1 in 100			1.8		2.3				0.46	1.7
 *	1 in 50				3.5		6.2				0.81	3.7
 *	1 in 25										1.5		9.3
 *
 * These times are the CPU's.
 */
static void
CostPath(PlannerInfo *root, const RelOptInfo *rel, Path *path, const IndexPath *ordered,
		 const BitmapHeapPath *bitmap)
{
	Relation	index = index_open(ordered->indexinfo->indexoid, NoLock);
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	gg_element	element = GgIndexOpclass(index)->element;
	uint32		limit = root->limit_tuples > 0 ? (uint32) Min(root->limit_tuples, GG_MAX_ROWS) : 0;
	Cost		bitmap_cost;
	uint32		missing,
				rowless;
	Selectivity within = GgWithinDistance(root, ordered->indexinfo,
										  linitial(ordered->indexorderbys));
	double		measured = rel->rows / within;	/* by the plan that competes */
	double		matches,
				fetched,
				column_pages,
				time,
				with_rows,
				other_time;
	Cost		unit,
				other_unit;

	GgReadMeta(index, meta);
	index_close(index, NoLock);
	column_pages = (double) meta->dimensions * gg_element_size(element) / BLCKSZ;
	matches = fetched = BitmapRows(rel, bitmap, &bitmap_cost);
	if (root->limit_tuples > 0 && root->limit_tuples < rel->rows)
		fetched *= root->limit_tuples / measured;
	else
		fetched *= within;

	if (GgDeviceAnswers(ordered->indexinfo->indexoid, meta, GG_DEVICE_FILTER_NODES, &missing,
						&rowless) && missing == 0 &&
		(rowless == 0 || GgHasBoundedList(meta, gg_iterative_scan, limit)))
		time = matches * TID_TIME + (rowless != 0 ?
			RowlessTime(meta, ordered->indexinfo->tuples, matches, limit) :
			DeviceTime(ordered->indexinfo->tuples, matches, GgRowBytes(meta)));
	else
		time = ordered->indexinfo->tuples * LOOK_TIME +
			matches * (TID_TIME + MATCH_TIME((double) GgRowBytes(meta) / GG_TIMED_PAGE));
	other_time = matches * FETCH_ROW_TIME + measured * GgSortedRowTime(rel, column_pages);
	unit = GgMicrosecondCost(rel, column_pages, rel->rows, within, limit);
	other_unit = (bitmap->path.total_cost - bitmap_cost +
				  rel->rows * GG_SORTED_ROW_COST * cpu_operator_cost) / other_time;
	with_rows = time + fetched * FETCH_ROW_TIME;
	if ((with_rows < other_time) != (with_rows * unit < other_time * other_unit))
		unit = other_unit;
	path->startup_cost = bitmap_cost + time * unit;
	path->total_cost = path->startup_cost + matches * within * FETCH_ROW_TIME * unit;
	pfree(meta);
}

/* ---- paths -------------------------------------------------------------- */

/* The paths that core finds for the table with these indexes. */
static List *
PathsOf(PlannerInfo *root, const RelOptInfo *rel, List *indexes)
{
	RelOptInfo *copy = palloc(sizeof(RelOptInfo));

	memcpy(copy, rel, sizeof(RelOptInfo));
	copy->indexlist = indexes;
	copy->pathlist = NIL;
	copy->partial_pathlist = NIL;
	copy->consider_parallel = false;
	/* paths for the inner side of a join bring no order that anybody sees */
	copy->joininfo = NIL;
	copy->has_eclass_joins = false;
	create_index_paths(root, copy);
	return copy->pathlist;
}

/* The scan of an index in the order that the query wants, if it is among these paths. */
static IndexPath *
OrderedPathIn(List *paths, const IndexOptInfo *index)
{
	IndexPath  *path;
	int			place = 0;

	do
		path = GgNextOrderedPath(paths, index, &place);
	while (path != NULL && path->path.param_info != NULL);
	return path;
}

/*
 * The scans of our indexes in the order that the query wants.  Mostly core has them among its
 * paths.
 */
static List *
OrderedPaths(PlannerInfo *root, const RelOptInfo *rel)
{
	List	   *ordered = NIL;
	ListCell   *cell;

	foreach(cell, rel->indexlist)
	{
		IndexOptInfo *index = lfirst_node(IndexOptInfo, cell);
		IndexPath  *path;

		if (!GgTakesPaths(index) || index->hypothetical)
			continue;
		path = OrderedPathIn(rel->pathlist, index);
		if (path == NULL)
			path = OrderedPathIn(PathsOf(root, rel, list_make1(index)), index);
		if (path != NULL && !GgPathIsRefused(&path->path))
			ordered = lappend(ordered, path);
	}
	return ordered;
}

/*
 * The best bitmap for the table's conditions.  NULL when no index can make one, or when the scan
 * would leave it out (bitmap_scan.c): then it would be made for nothing.
 */
static BitmapHeapPath *
BitmapPath(PlannerInfo *root, const RelOptInfo *rel)
{
	List	   *indexes = NIL;
	ListCell   *cell;
	Cost		cost;

	foreach(cell, rel->indexlist)
	{
		const IndexOptInfo *index = lfirst_node(IndexOptInfo, cell);
		IndexOptInfo *copy;

		if (!index->amhasgetbitmap)
			continue;
		copy = palloc(sizeof(IndexOptInfo));
		memcpy(copy, index, sizeof(IndexOptInfo));
		copy->amhasgettuple = false;
		copy->amcanorderbyop = false;
		indexes = lappend(indexes, copy);
	}
	foreach(cell, PathsOf(root, rel, indexes))
	{
		Path	   *path = (Path *) lfirst(cell);

		if (IsA(path, BitmapHeapPath) && path->param_info == NULL)
			return BitmapRows(rel, (BitmapHeapPath *) path, &cost) <= GgMostBitmapTids() ?
				(BitmapHeapPath *) path : NULL;
	}
	return NULL;
}

/* ---- from the path to the plan ------------------------------------------ */

/* The plan below a Result that checks conditions without columns: one above us does so, too. */
static Plan *
BelowGate(Plan *plan)
{
	return IsA(plan, Result) ? plan->lefttree : plan;
}

/*
 * Core made plans of both paths.  The index scan has the query's conditions as its filter, so
 * nothing is left for this node to check.  What it returns is the table's row (bitmap_scan.c), so
 * it has no target list.  Of the bitmap heap scan only the bitmap is used.
 */
static Plan *
PlanBitmapPath(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
			   List *children)
{
	CustomScan *scan = makeNode(CustomScan);
	Plan	   *index = BelowGate(linitial(children));
	Plan	   *heap = BelowGate(lsecond(children));

	castNode(IndexScan, index)->scan.plan.targetlist = NIL;
	scan->scan.plan.targetlist = tlist;
	scan->scan.scanrelid = rel->relid;
	scan->flags = path->flags;
	scan->custom_plans = list_make2(index, castNode(BitmapHeapScan, heap)->scan.plan.lefttree);
	scan->methods = &gg_bitmap_scan.plan;
	return &scan->scan.plan;
}

static const CustomPathMethods path_methods = {
	.CustomName = "GpugraphBitmapScan",
	.PlanCustomPath = PlanBitmapPath
};

static Path *
MakePath(PlannerInfo *root, RelOptInfo *rel, const IndexPath *ordered, BitmapHeapPath *bitmap)
{
	CustomPath *path = makeNode(CustomPath);
	IndexPath  *index = palloc(sizeof(IndexPath));

	path->path.pathtype = T_CustomScan;
	path->path.parent = rel;
	path->path.pathtarget = rel->reltarget;
	path->path.rows = rel->rows;
	path->path.pathkeys = ordered->path.pathkeys;
	CostPath(root, rel, &path->path, ordered, bitmap);

	/* EXPLAIN shows what the index scan costs now */
	memcpy(index, ordered, sizeof(IndexPath));
	index->path.startup_cost = path->path.startup_cost;
	index->path.total_cost = path->path.total_cost;

	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	path->custom_paths = list_make2(index, bitmap);
	path->methods = &path_methods;
	return &path->path;
}

void
GgAddBitmapPaths(PlannerInfo *root, RelOptInfo *rel, const RangeTblEntry *rte)
{
	List	   *ordered;
	BitmapHeapPath *bitmap;
	ListCell   *cell;

	if (!GgIsEnabled(GG_BITMAP_FILTER) || !enable_indexscan || !enable_bitmapscan ||
		!GgTakesIndexPaths(rel, rte) || root->query_pathkeys == NIL ||
		rel->baserestrictinfo == NIL || rel->lateral_relids != NULL)
		return;
	ordered = OrderedPaths(root, rel);
	bitmap = ordered != NIL ? BitmapPath(root, rel) : NULL;
	if (bitmap == NULL)
		return;
	foreach(cell, ordered)
		add_path(rel, MakePath(root, rel, (IndexPath *) lfirst(cell), bitmap));
}
