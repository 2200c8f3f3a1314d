/*
 * plan.c
 *		Finished plans: a distance that only orders rows is not computed again.
 *
 * ORDER BY embedding <-> $1 puts the distance into the target list of the plan that delivers the rows, as a column that
 * is dropped in the end ("resjunk").  A sort would read it.  Where an index scan delivers the order nobody does,
 * but the executor computes it all the same, for each row: at 768 dimensions, whose vectors lie out of line, that is
 * half the processor time of a query that the GPU answers.  The planner has no way to know that nobody will
 * read the column, so it is replaced by NULL in the finished plan.
 */
#include "am/am.h"
#include "storage/pages.h"
#include "storage/type.h"

#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/clauses.h"
#include "optimizer/planner.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"

static planner_hook_type prev_planner_hook = NULL;

static void SkipInQuery(Plan *top);

static bool
IsOurIndex(Oid indexid)
{
	Relation	index = RelationIdGetRelation(indexid);	/* the planner's lock on it is held still */
	bool		ours = RelationIsValid(index) && GgIsGpugraph(index);

	if (RelationIsValid(index))
		RelationClose(index);
	return ours;
}

/* An index scan's order is kept with the indexed column on the left, the target list has what was written: $1 <-> embedding. */
static bool
IsDistance(const Expr *expr, const Expr *orderby)
{
	OpExpr	   *commuted;

	if (equal(expr, orderby))
		return true;
	if (!IsA(orderby, OpExpr) || !OidIsValid(get_commutator(((const OpExpr *) orderby)->opno)))
		return false;
	commuted = copyObject((OpExpr *) unconstify(Expr *, orderby));
	CommuteOpExpr(commuted);
	return equal(expr, commuted);
}

/*
 * "top" delivers the rows of a query or of a subquery, to somebody who leaves its columns marked resjunk out: NULL for
 * the one that an index scan below is ordered by.  Only nodes that pass rows on without a look at them may lie
 * between: a LIMIT, but not WITH TIES, and what a SCROLL cursor keeps rows in.  Their columns are those of the node below,
 * number by number.
 *
 * The scan's own list must have the mark too.  createplan.c gives both the same marks, as the nodes of a query that
 * pass columns on share one list.  Later setrefs.c may take away an Append with a single child and
 * copy its marks to the list of that child alone: to the LIMIT of a subquery whose column is visible, and read by a sort
 * above, but dropped by the query around both.
 */
static void
SkipBelow(Plan *top)
{
	Plan	   *plan = top;
	IndexScan  *scan;
	List	   *columns = NIL;
	ListCell   *cell;
	bool		skipped = false;

	while (plan != NULL && (IsA(plan, Material) ||
							(IsA(plan, Limit) && ((Limit *) plan)->limitOption == LIMIT_OPTION_COUNT)))
		plan = plan->lefttree;
	if (plan == NULL || !IsA(plan, IndexScan))
		return;
	scan = (IndexScan *) plan;
	if (list_length(scan->indexorderbyorig) != 1 || list_length(plan->targetlist) != list_length(top->targetlist) ||
		!IsOurIndex(scan->indexid))
		return;

	foreach(cell, plan->targetlist)
	{
		TargetEntry *column = lfirst_node(TargetEntry, cell);
		const TargetEntry *seen = list_nth_node(TargetEntry, top->targetlist, foreach_current_index(cell));

		if (seen->resjunk && column->resjunk && IsDistance(column->expr, linitial(scan->indexorderbyorig)))
		{
			column = flatCopyTargetEntry(column);
			column->expr = (Expr *) makeNullConst(exprType((Node *) column->expr), exprTypmod((Node *) column->expr),
												  exprCollation((Node *) column->expr));
			skipped = true;
		}
		columns = lappend(columns, column);
	}
	if (skipped)
		plan->targetlist = columns;
}

/*
 * A subquery is known to the query around it by its visible columns only, whether its rows pass a SubqueryScan or
 * setrefs.c found that to be without effect and took it away.  A LIMIT is the top of a query wherever columns of it are
 * marked; of other nodes that cannot be said, as those below a sort are marked that were added for it.
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

/* The plan of a query or of a subquery, from its top; NULL is a subplan that the planner left out. */
static void
SkipInQuery(Plan *top)
{
	SkipBelow(top);
	SkipInPlan(top);
}

static PlannedStmt *
PlanQuery(Query *parse, const char *query_string, int cursor_options, ParamListInfo params)
{
	PlannedStmt *stmt;
	ListCell   *cell;

	if (prev_planner_hook != NULL)
		stmt = prev_planner_hook(parse, query_string, cursor_options, params);
	else
		stmt = standard_planner(parse, query_string, cursor_options, params);
	if (!gg_skip_unread_distance)
		return stmt;

	SkipInQuery(stmt->planTree);
	foreach(cell, stmt->subplans)
		SkipInQuery((Plan *) lfirst(cell));
	return stmt;
}

void
GgInitPlanner(void)
{
	prev_planner_hook = planner_hook;
	planner_hook = PlanQuery;
}
