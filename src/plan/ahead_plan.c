/*
 * ahead_plan.c
 *		Finished plans: a node that reads outer rows ahead (exec/read_ahead.c) comes between a
 *		nested loop and its outer side.
 *
 * It does so where the inner side has a scan of ours that is ordered by the distance from a column
 * of the outer row, as that of LATERAL (... ORDER BY v <-> outer.v LIMIT k).  The planner's choice
 * stands: a device answers many queries in little more time than one, which the planner does not
 * know.
 *
 * What is read ahead is evaluated earlier than it would have been, or for nothing.  So there is no
 * such node in a query that calls volatile functions, locks rows of subqueries, or writes in WITH.
 */
#include "exec/nodes.h"
#include "plan/planner.h"
#include "service/shared/service.h"

#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"

/* Numbers of plan nodes are below this. */
#define MOST_NODES			(1 << 24)

static void Visit(Plan *plan);

/* Does a query or one of its subqueries have a LATERAL item?  *locks: does a subquery lock rows? */
static bool
HasLateral(const Query *query, bool *locks)
{
	bool		has = false;
	ListCell   *cell;

	check_stack_depth();
	foreach(cell, query->rtable)
	{
		const RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

		has = has || rte->lateral;
		if (rte->rtekind != RTE_SUBQUERY)
			continue;
		has = HasLateral(rte->subquery, locks) || has;
		*locks = *locks || rte->subquery->rowMarks != NIL;
	}
	foreach(cell, query->cteList)
		has = HasLateral((Query *) lfirst_node(CommonTableExpr, cell)->ctequery, locks) || has;
	return has;
}

bool
GgMayReadAhead(const Query *query)
{
	bool		locks = false;

	return gg_service != NULL && gg_engine_setting != GG_ENGINE_CPU && GgIsEnabled(GG_READ_AHEAD) &&
		query->utilityStmt == NULL && HasLateral(query, &locks) && !locks &&
		!query->hasModifyingCTE && !contain_volatile_functions((Node *) query);
}

/* The parameter of a nested loop that is the query of a scan of ours below the plan; or NULL. */
static const NestLoopParam *
QueryOf(const Plan *plan, List *params)
{
	const NestLoopParam *found = NULL;
	const IndexScan *scan = GgOrderedScan(plan);
	ListCell   *cell;

	if (plan == NULL)
		return NULL;
	check_stack_depth();
	foreach(cell, params)
	{
		const NestLoopParam *param = lfirst(cell);

		if (scan != NULL && IsA(param->paramval, Var) && GgIsOrderedBy(scan, param->paramno))
			return param;
	}
	if (IsA(plan, SubqueryScan))
		found = QueryOf(((const SubqueryScan *) plan)->subplan, params);
	if (found == NULL)
		found = QueryOf(plan->lefttree, params);
	return found != NULL ? found : QueryOf(plan->righttree, params);
}

/* The node's rows are those of the plan. */
static Plan *
MakeNode(Plan *outer, const NestLoopParam *query)
{
	CustomScan *node = makeNode(CustomScan);
	ListCell   *cell;

	node->scan.plan = *outer;
	node->scan.plan.type = T_CustomScan;
	node->scan.plan.plan_node_id = MOST_NODES + outer->plan_node_id;
	node->scan.plan.parallel_aware = false;
	node->scan.plan.async_capable = false;
	node->scan.plan.targetlist = node->scan.plan.qual = node->scan.plan.initPlan = NIL;
	node->scan.plan.lefttree = outer;
	node->scan.plan.righttree = NULL;
	foreach(cell, outer->targetlist)
	{
		TargetEntry *column = flatCopyTargetEntry(lfirst_node(TargetEntry, cell));
		TargetEntry *input = flatCopyTargetEntry(column);

		input->expr = (Expr *) makeVarFromTargetEntry(OUTER_VAR, column);
		column->expr = (Expr *) makeVarFromTargetEntry(INDEX_VAR, column);
		node->custom_scan_tlist = lappend(node->custom_scan_tlist, input);
		node->scan.plan.targetlist = lappend(node->scan.plan.targetlist, column);
	}
	node->custom_private = list_make2_int(query->paramval->varattno, query->paramno);
	node->methods = &gg_read_ahead.plan;
	return &node->scan.plan;
}

static void
VisitAll(List *plans)
{
	ListCell   *cell;

	foreach(cell, plans)
		Visit(lfirst(cell));
}

static void
Visit(Plan *plan)
{
	const NestLoopParam *query = NULL;

	if (plan == NULL)
		return;
	check_stack_depth();
	switch (nodeTag(plan))
	{
		case T_SubqueryScan:
			Visit(((SubqueryScan *) plan)->subplan);
			break;
		case T_Append:
			VisitAll(((Append *) plan)->appendplans);
			break;
		case T_MergeAppend:
			VisitAll(((MergeAppend *) plan)->mergeplans);
			break;
		case T_NestLoop:
			if (plan->lefttree->plan_rows > 1)
				query = QueryOf(plan->righttree, ((const NestLoop *) plan)->nestParams);
			break;
		default:
			break;
	}
	Visit(plan->lefttree);
	Visit(plan->righttree);
	if (query != NULL)
		plan->lefttree = MakeNode(plan->lefttree, query);
}

void
GgReadOuterRowsAhead(PlannedStmt *stmt)
{
	Visit(stmt->planTree);
	VisitAll(stmt->subplans);
}
