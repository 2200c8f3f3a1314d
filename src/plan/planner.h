/*
 * planner.h
 *		What the planner asks: costs, paths that hooks add, and sort keys.
 */
#ifndef GG_PLANNER_H
#define GG_PLANNER_H

#include "base/base.h"
#include "scan/sort_key.h"
#include "storage/format.h"

#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "nodes/plannodes.h"

extern void ggcostestimate(PlannerInfo *root, IndexPath *path, double loop_count,
						   Cost *indexStartupCost, Cost *indexTotalCost,
						   Selectivity *indexSelectivity, double *indexCorrelation,
						   double *indexPages);

/* ---- cost.c: what other costs are made of -------------------------------- */

/* What core charges for the sort of a row with a small LIMIT, in units of cpu_operator_cost. */
#define GG_SORTED_ROW_COST		10.0

/*
 * Does a device have the index, and will a scan ask it?  Where no segment has least_nodes, the CPU
 * answers (scan/device_ask.c).  *missing: a bitmap of segments that the device has no room for.
 * *rowless: of those that it only walks.
 */
extern bool GgDeviceAnswers(Oid index, const GgMetaPageData *meta, uint32 least_nodes,
							uint32 *missing, uint32 *rowless);

/*
 * Microseconds that a device takes to look at so many words of 64 bits of each node, and to measure
 * those that match.  words 0: all rows are measured, for a list of many keys.
 */
extern double GgDeviceExactTime(double nodes, double words, double matching, double row_bytes);

/*
 * Conditions that end a scan in this order (scan/within.c): what share of the rows that pass all
 * others is believed to pass them?  1: there are none, or the switch distance_bound is off.
 */
extern Selectivity GgWithinDistance(PlannerInfo *root, IndexOptInfo *index, const Expr *order);

/*
 * Microseconds to measure and sort a row, and core's charge for one.  column_pages: of a vector in
 * the table.  filtered: rows that pass all conditions.  within: as above.  limit: above 0 if known.
 */
extern double GgSortedRowTime(const RelOptInfo *rel, double column_pages);
extern Cost GgMicrosecondCost(const RelOptInfo *rel, double column_pages, double filtered,
							  Selectivity within, double limit);

/*
 * A path that is not to be used has at least this cost.  It is finite: of an infinite cost, core's
 * subtractions make one that is not a number, and comparisons with that are always false.  Core may
 * still multiply it by the 1e100 rows that it takes for the most there can be.
 */
#define GG_REFUSED_COST			1e200

static inline bool
GgPathIsRefused(const Path *path)
{
	return path->total_cost >= GG_REFUSED_COST;
}

/*
 * May rows of a table's index scan pass the executor's reorder queue?  Not where the query reads
 * their ctid, and the queue loses it, as in some minor releases of PostgreSQL.
 */
extern bool GgMayReorder(const RelOptInfo *rel, const ParamPathInfo *param_info);

/*
 * Give a path that reads all rows within a distance its cost.  rows: so many are within, before
 * conditions on filter columns.  False: it asks for NULL vectors, which are not in the index.
 */
extern bool GgCostRange(PlannerInfo *root, IndexPath *path, double rows);

/* ---- filter_path.c -------------------------------------------------------- */

/*
 * May a hook add scans of indexes to a table's paths?  Not where the query reads a sample of the
 * table, or its children, or where no row can match: core makes no index paths then, either.
 */
extern bool GgTakesIndexPaths(RelOptInfo *rel, const RangeTblEntry *rte);

/* May a hook's path be of this index?  A partial one has to have all rows that the query wants. */
static inline bool
GgTakesPaths(const IndexOptInfo *index)
{
	return index->amcostestimate == ggcostestimate && (index->indpred == NIL || index->predOK);
}

/*
 * What the hook of paths.c does to a table: conditions of partition_probes leave it (probe_plan.c),
 * and paths are added (filter_path.c; range_path.c; bitmap_path.c, which restricts the paths that
 * are there).
 */
extern void GgDropProbedConditions(PlannerInfo *root, RelOptInfo *rel);
extern void GgAddFilterPaths(PlannerInfo *root, RelOptInfo *rel, const RangeTblEntry *rte);
extern void GgAddRangePaths(PlannerInfo *root, RelOptInfo *rel, const RangeTblEntry *rte);
extern void GgAddBitmapPaths(PlannerInfo *root, RelOptInfo *rel, const RangeTblEntry *rte);

/* Called by _PG_init.  From then on the planner has these paths for tables. */
extern void GgInitPaths(void);

/*
 * Called for each node of a finished plan, children first: partitions are searched together
 * (partition_plan.c), and outer rows of a nested loop read ahead (ahead_plan.c).
 */
extern void GgSearchPartitionsTogether(Plan **plan);
extern void GgReadOuterRowsAhead(const PlannedStmt *stmt, Plan *plan);

/* The next scan of the index in an order, from that place of the list on; or NULL. */
extern IndexPath *GgNextOrderedPath(List *paths, const IndexOptInfo *index, int *place);

/*
 * All conditions on filter columns, in their order.  *dropped: core before 17 leaves some out.
 */
extern List *GgMatchClauses(PlannerInfo *root, IndexOptInfo *index, bool *dropped);

/* ---- range_path.c --------------------------------------------------------- */

/*
 * The sort keys of a scan without order: createplan.c wants one for each distance.  No other key is
 * equal to this one, so that nothing is believed to be sorted by it.
 */
extern List *GgNoOrder(void);

/* Is it a path of range_path.c?  It has no order, though it has the index's distance. */
static inline bool
GgIsRangePath(const IndexPath *path)
{
	return path->indexorderbys != NIL &&
		(GgKeyMarks(exprInputCollation(linitial(path->indexorderbys))) & GG_KEY_RANGE) != 0;
}

/* ---- group_path.c --------------------------------------------------------- */

/* Called by _PG_init.  From then on queries get the paths of group_path.c. */
extern void GgInitGroupPaths(void);

/* ---- rank_order.c --------------------------------------------------------- */

/* Have a query that orders by a rank, and queries within it, order by what the rank is of. */
extern void GgOrderByWindows(Query *query);

/* ---- semi_join.c ---------------------------------------------------------- */

/* May GgKeepSets() find sets in a query, or in queries within it?  A quick look. */
extern bool GgMayKeepSets(const Query *query);

/*
 * Keep conditions on filter columns by sets (IN, EXISTS) from becoming joins, and add such a
 * condition beside a join that filters.  False: the query has neither.
 */
extern bool GgKeepSets(Query *query);

/* The LIMIT of a plan that takes longest: microseconds, and how many rows there are below it. */
typedef struct GgJoinTime
{
	double		time;
	double		passing;
} GgJoinTime;

/* Does the plan take so long for a LIMIT that another one may be worth it? */
extern bool GgTakesLong(const PlannedStmt *stmt, GgJoinTime *longest);

/* Does the plan of what GgKeepSets() made take less time than `longest`? */
extern bool GgIsBetter(const PlannedStmt *stmt, const GgJoinTime *longest);

/* ---- finished plans --------------------------------------------------------- */

/* The plan where it is a scan of our index by its distance, in order or for a range; else NULL. */
static inline const IndexScan *
GgOrderedScan(const Plan *plan)
{
	const IndexScan *scan = (const IndexScan *) plan;

	return plan != NULL && IsA(plan, IndexScan) && list_length(scan->indexorderby) == 1 &&
		GgIsGpugraphIndex(scan->indexid) ? scan : NULL;
}

/* ---- plan.c --------------------------------------------------------------- */

/*
 * Is the query that is being planned a cursor's?  Then another statement may read the ctid of the
 * row that it stands on (WHERE CURRENT OF).
 */
extern bool GgPlansCursor(void);

/* Will the finished plan pass our hook?  Not where another module plans by itself. */
extern bool GgIsPlanning(void);

/*
 * Called by _PG_init.  From then on the planner knows our paths and nodes, and finished plans
 * compute no distance that only orders rows.
 */
extern void GgInitPlanner(void);

/* ---- sort_key.c ----------------------------------------------------------- */

/*
 * The order of the index that gives the sort key, with marks; NULL: none does, or not now.  The
 * path that is made of it needs GgSettleOrder() in the finished plan.
 */
extern OpExpr *GgMatchSortKey(PlannerInfo *root, IndexOptInfo *index, const PathKey *key);

/* Give the plan of such a path the types and operators that the executor expects. */
extern void GgSettleOrder(IndexScan *scan);

#endif							/* GG_PLANNER_H */
