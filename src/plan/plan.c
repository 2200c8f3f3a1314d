/*
 * plan.c
 *		Finished plans: a distance that only orders rows is not computed again.
 *
 * ORDER BY embedding <-> $1 puts the distance into the target list of the plan that delivers the
 * rows, as a column that is dropped in the end ("resjunk").  A sort reads it.  Where an index scan
 * delivers the order, nothing reads it, but the executor computes it for each row all the same.  At
 * 768 dimensions, whose vectors lie out of line, that is half the processor time of a query that
 * the GPU answers.  The planner cannot know that nobody will read the column, so this hook replaces
 * it by NULL in the finished plan.
 *
 * The same hook sees whether the query is a cursor's, which cost.c asks, has queries that order by
 * ranks changed (rank_order.c), has others planned twice (semi_join.c), settles index scans for
 * other sort keys (sort_key.c), and puts our nodes into plans (partition_plan.c, ahead_plan.c).
 */
#include "exec/nodes.h"
#include "plan/planner.h"
#include "scan/monotone.h"
#include "scan/scan.h"
#include "base/base.h"

#include "miscadmin.h"
#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/planner.h"

static planner_hook_type prev_planner_hook = NULL;

/* A query is being planned; it is a cursor's. */
static bool is_planning = false;
static bool plans_cursor = false;

static void SkipInQuery(Plan *top);

static bool
PassesRowsOn(const Plan *plan)
{
	return IsA(plan, Material) ||
		(IsA(plan, Limit) && ((const Limit *) plan)->limitOption == LIMIT_OPTION_COUNT);
}

/* The index scan whose rows a node delivers in its order, or NULL. */
static const IndexScan *
OrderedScan(const Plan *plan)
{
	if (plan != NULL && IsA(plan, CustomScan) &&
		((const CustomScan *) plan)->methods == &gg_bitmap_scan.plan)
		plan = linitial(((const CustomScan *) plan)->custom_plans);
	return GgOrderedScan(plan);
}

/* Is the column the distance that the scan is ordered by, or a key that rises or falls with it? */
static bool
IsOrder(const TargetEntry *column, const IndexScan *scan)
{
	GgMonotone	monotone;

	GgTakeApart((Node *) column->expr, &monotone);
	return GgIsDistance(monotone.inner, linitial(scan->indexorderbyorig));
}

/*
 * top delivers the rows of a query or of a subquery to somebody who drops its columns that are
 * marked resjunk.  Of these, put NULL in the place of the one that an index scan below is ordered
 * by.  Only nodes that pass rows on without reading them may lie between: a LIMIT, but not WITH
 * TIES, and the node in which a SCROLL cursor keeps rows.  Their columns are those of the node
 * below, number by number.
 *
 * The scan's own list must have the mark, too.  createplan.c gives both the same marks, because the
 * nodes of a query that pass columns on share one list.  Later setrefs.c may remove an Append with
 * a single child and copy its marks to the list of that child alone.  Such a child may be the LIMIT
 * of a subquery whose column is visible, and read by a sort above, but dropped by the query around
 * both.
 */
static void
SkipBelow(Plan *top)
{
	Plan	   *plan = top;
	const IndexScan *scan;
	List	   *columns = NIL;
	ListCell   *cell;
	bool		skipped = false;

	if (!GgIsEnabled(GG_UNREAD_DISTANCE))
		return;
	while (plan != NULL && PassesRowsOn(plan))
		plan = plan->lefttree;
	scan = OrderedScan(plan);
	if (scan == NULL || list_length(plan->targetlist) != list_length(top->targetlist))
		return;

	foreach(cell, plan->targetlist)
	{
		TargetEntry *column = lfirst_node(TargetEntry, cell);
		const TargetEntry *seen = list_nth_node(TargetEntry, top->targetlist,
												foreach_current_index(cell));

		if (seen->resjunk && column->resjunk && IsOrder(column, scan))
		{
			Node	   *distance = (Node *) column->expr;

			column = flatCopyTargetEntry(column);
			column->expr = (Expr *) makeNullConst(exprType(distance), exprTypmod(distance),
												  exprCollation(distance));
			skipped = true;
		}
		columns = lappend(columns, column);
	}
	if (skipped)
		plan->targetlist = columns;
}

/*
 * Find the tops of subqueries in a plan.  The query around a subquery sees its visible columns
 * only, whether its rows pass a SubqueryScan or setrefs.c removed that as having no effect.  A
 * LIMIT is the top of a query wherever columns of it are marked.  Other nodes need not be: below a
 * sort, the columns that were added for it are marked, too.
 */
static void
SkipInPlan(Plan *plan)
{
	List	   *children = NIL;
	ListCell   *cell;

	if (plan == NULL)
		return;
	check_stack_depth();
	switch (nodeTag(plan))
	{
		case T_Limit:
			SkipBelow(plan);
			break;
		case T_IndexScan:
			GgSettleOrder((IndexScan *) plan);
			break;
		case T_SubqueryScan:
			SkipInQuery(((SubqueryScan *) plan)->subplan);
			break;
		case T_Append:
			children = ((Append *) plan)->appendplans;
			break;
		case T_MergeAppend:
			children = ((MergeAppend *) plan)->mergeplans;
			break;
		case T_CustomScan:
			children = ((CustomScan *) plan)->custom_plans;
			break;
		default:
			break;
	}
	foreach(cell, children)
		SkipInPlan((Plan *) lfirst(cell));
	SkipInPlan(plan->lefttree);
	SkipInPlan(plan->righttree);
}

/* The plan of a query or of a subquery, from its top.  NULL is a subplan that was left out. */
static void
SkipInQuery(Plan *top)
{
	SkipBelow(top);
	SkipInPlan(top);
}

static void FinishPlan(const PlannedStmt *stmt, Plan **plan);

static void
FinishPlans(const PlannedStmt *stmt, List *plans)
{
	ListCell   *cell;

	foreach(cell, plans)
		FinishPlan(stmt, (Plan **) &lfirst(cell));
}

/* Put our nodes into a plan.  Children of a custom node stay: its module wants what it planned. */
static void
FinishPlan(const PlannedStmt *stmt, Plan **plan)
{
	if (*plan == NULL)
		return;
	check_stack_depth();
	switch (nodeTag(*plan))
	{
		case T_SubqueryScan:
			FinishPlan(stmt, &((SubqueryScan *) *plan)->subplan);
			break;
		case T_Append:
			FinishPlans(stmt, ((Append *) *plan)->appendplans);
			break;
		case T_MergeAppend:
			FinishPlans(stmt, ((MergeAppend *) *plan)->mergeplans);
			break;
		default:
			break;
	}
	FinishPlan(stmt, &(*plan)->lefttree);
	FinishPlan(stmt, &(*plan)->righttree);
	GgSearchPartitionsTogether(plan);
	GgReadOuterRowsAhead(stmt, *plan);
}

static PlannedStmt *
PlanOnce(GG_PLANNER_PARAMETERS)
{
	/* a function that is evaluated while a query is planned may have others planned */
	const bool	outer = plans_cursor;
	const bool	within = is_planning;
	PlannedStmt *stmt;

	is_planning = true;
	plans_cursor = (cursor_options & CURSOR_OPT_FAST_PLAN) != 0;
	PG_TRY();
	{
		if (prev_planner_hook != NULL)
			stmt = prev_planner_hook(GG_PLANNER_ARGUMENTS);
		else
			stmt = standard_planner(GG_PLANNER_ARGUMENTS);
	}
	PG_FINALLY();
	{
		plans_cursor = outer;
		is_planning = within;
	}
	PG_END_TRY();
	return stmt;
}

static PlannedStmt *
PlanQuery(GG_PLANNER_PARAMETERS)
{
	Query	   *copy = NULL;
	PlannedStmt *stmt;
	GgJoinTime	longest;
	ListCell   *cell;

	if (gg_iterative_scan == GG_ITERATIVE_STRICT && GgIsEnabled(GG_RANK_ORDER))
		GgOrderByWindows(parse);
	if (GgIsEnabled(GG_SEMI_JOINS) && GgIsEnabled(GG_TOLD_SETS) && GgMayKeepSets(parse))
		copy = copyObject(parse);
	stmt = PlanOnce(GG_PLANNER_ARGUMENTS);
	if (copy != NULL && GgTakesLong(stmt, &longest) && GgKeepSets(copy))
	{
		PlannedStmt *told;

		parse = copy;
		told = PlanOnce(GG_PLANNER_ARGUMENTS);
		if (GgIsBetter(told, &longest))
			stmt = told;
	}

	SkipInQuery(stmt->planTree);
	foreach(cell, stmt->subplans)
		SkipInQuery((Plan *) lfirst(cell));
	FinishPlan(stmt, &stmt->planTree);
	FinishPlans(stmt, stmt->subplans);
	return stmt;
}

bool
GgIsPlanning(void)
{
	return is_planning;
}

bool
GgPlansCursor(void)
{
	return plans_cursor;
}

void
GgInitPlanner(void)
{
	prev_planner_hook = planner_hook;
	planner_hook = PlanQuery;
	RegisterCustomScanMethods(&gg_bitmap_scan.plan);
	RegisterCustomScanMethods(&gg_partitions.plan);
	RegisterCustomScanMethods(&gg_first_of_group.plan);
	RegisterCustomScanMethods(&gg_read_ahead.plan);
}
