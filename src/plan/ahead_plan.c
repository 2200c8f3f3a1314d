/*
 * ahead_plan.c
 *		Finished plans: a node that reads outer rows ahead (exec/read_ahead.c) comes between a
 *		nested loop and its outer side.
 *
 * It does so where the inner side has a scan of ours whose query is a column of the outer row: in
 * the order of the distance, as in LATERAL (... ORDER BY v <-> outer.v LIMIT k), if a device may
 * answer, or for all rows within a distance.  The planner's choice stands.  It does not know that
 * many queries take little more time than one.
 *
 * What is read ahead is evaluated earlier than it would have been, or for nothing.  So the outer
 * side must not call volatile functions, lock rows, write, or have nodes that are not known here.
 */
#include "exec/nodes.h"
#include "plan/planner.h"
#include "service/shared/service.h"

#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"

/* Numbers of plan nodes are below this. */
#define MOST_NODES			(1 << 24)

static bool IsSteady(const PlannedStmt *stmt, const Plan *plan);

/* Are all of these without effects, and the same whenever they are evaluated? */
static bool
AreSteady(const void *a, const void *b, const void *c)
{
	List	   *all = list_make3((void *) a, (void *) b, (void *) c);

	return !contain_volatile_functions((Node *) all) && !contain_subplans((Node *) all);
}

static bool
PlansAreSteady(const PlannedStmt *stmt, const List *plans)
{
	ListCell   *cell;

	foreach(cell, plans)
		if (!IsSteady(stmt, lfirst(cell)))
			return false;
	return true;
}

/* Is what a node has beside target list, filter and subtrees steady?  Unknown nodes are not. */
static bool
NodeIsSteady(const PlannedStmt *stmt, const Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_BitmapHeapScan:
		case T_BitmapIndexScan:
		case T_Hash:
		case T_Material:
		case T_Sort:
		case T_IncrementalSort:
		case T_Unique:
		case T_Agg:
		case T_Group:
		case T_Gather:
		case T_GatherMerge:
			return true;
		case T_ValuesScan:
			return AreSteady(((const ValuesScan *) plan)->values_lists, NULL, NULL);
		case T_FunctionScan:
			return AreSteady(((const FunctionScan *) plan)->functions, NULL, NULL);
		case T_SubqueryScan:
			return IsSteady(stmt, ((const SubqueryScan *) plan)->subplan);
		case T_CteScan:
			return IsSteady(stmt, list_nth(stmt->subplans,
										   ((const CteScan *) plan)->ctePlanId - 1));
		case T_Limit:
			return AreSteady(((const Limit *) plan)->limitOffset,
							 ((const Limit *) plan)->limitCount, NULL);
		case T_Result:
			return AreSteady(((const Result *) plan)->resconstantqual, NULL, NULL);
		case T_NestLoop:
		case T_HashJoin:
		case T_MergeJoin:
			return AreSteady(((const Join *) plan)->joinqual,
							 IsA(plan, HashJoin) ? ((const HashJoin *) plan)->hashclauses : NIL,
							 IsA(plan, MergeJoin) ? ((const MergeJoin *) plan)->mergeclauses : NIL);
		case T_Append:
			return PlansAreSteady(stmt, ((const Append *) plan)->appendplans);
		case T_MergeAppend:
			return PlansAreSteady(stmt, ((const MergeAppend *) plan)->mergeplans);
		case T_CustomScan:
			return ((const CustomScan *) plan)->methods == &gg_read_ahead.plan;
		default:
			return false;
	}
}

/* May rows of the plan be read earlier than they are wanted, or for nothing? */
static bool
IsSteady(const PlannedStmt *stmt, const Plan *plan)
{
	if (plan == NULL)
		return true;
	check_stack_depth();
	return AreSteady(plan->targetlist, plan->qual, NULL) && NodeIsSteady(stmt, plan) &&
		IsSteady(stmt, plan->lefttree) && IsSteady(stmt, plan->righttree);
}

/* May queries of the scan be answered together? */
static bool
MayBeTogether(const IndexScan *scan)
{
	const uint32 marks = GgKeyMarks(linitial_node(OpExpr, scan->indexorderby)->inputcollid);

	if ((marks & GG_KEY_RANGE) != 0)
		return (marks & GG_KEY_FEW) == 0;
	return gg_service != NULL && gg_engine_setting != GG_ENGINE_CPU;
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

		if (scan != NULL && IsA(param->paramval, Var) && GgIsOrderedBy(scan, param->paramno) &&
			MayBeTogether(scan))
			return param;
	}
	if (IsA(plan, SubqueryScan))
		found = QueryOf(((const SubqueryScan *) plan)->subplan, params);
	if (found == NULL)
		found = QueryOf(plan->lefttree, params);
	return found != NULL ? found : QueryOf(plan->righttree, params);
}

/* Make the node above a plan, whose rows it hands on. */
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

void
GgReadOuterRowsAhead(const PlannedStmt *stmt, Plan *plan)
{
	const NestLoopParam *query;

	if (!IsA(plan, NestLoop) || !GgIsEnabled(GG_READ_AHEAD) || plan->lefttree->plan_rows <= 1)
		return;
	query = QueryOf(plan->righttree, ((const NestLoop *) plan)->nestParams);
	if (query != NULL && IsSteady(stmt, plan->lefttree))
		plan->lefttree = MakeNode(plan->lefttree, query);
}
