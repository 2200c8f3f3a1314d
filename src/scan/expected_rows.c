/*
 * expected_rows.c
 *		How many rows the executor will ask for, told to scans whose rows it filters.
 *
 * Conditions that no index has are evaluated by the executor, and the access method is not told of
 * them.  Where few rows pass, the scan's lists would grow step by step, and each step is a question
 * to the device.  So this hook looks at the index scans of a plan that begins.  It estimates from
 * the planner's row count how many rows the scan will hand out, and puts that into the scan key of
 * the order.  The upper bits of sk_flags are the access method's own (access/skey.h).  ggrescan()
 * receives them with the key.
 *
 * The number is a hint.  A scan that gets none, as in EvalPlanQual, has lists that grow step by
 * step.  LIMIT is not looked at: it may be a parameter, or stand above a join.
 */
#include "scan/scan.h"

#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"

static ExecutorStart_hook_type prev_hook = NULL;

static void
TellScan(IndexScanState *scan)
{
	const Plan *plan = scan->ss.ps.plan;
	double		rows;
	uint32		expected;

	if (scan->iss_NumOrderByKeys != 1 || plan->qual == NIL || !GgIsGpugraph(scan->iss_RelationDesc))
		return;
	rows = scan->ss.ss_currentRelation->rd_rel->reltuples;
	expected = GgRowsToExpect(rows, plan->plan_rows);
	scan->iss_OrderByKeys[0].sk_flags |= expected << GG_EXPECTED_SHIFT;
}

static bool
TellScans(PlanState *planstate, void *context)
{
	if (planstate == NULL)
		return false;
	if (IsA(planstate, IndexScanState))
		TellScan((IndexScanState *) planstate);
	return planstate_tree_walker(planstate, TellScans, context);
}

static void
StartExecutor(QueryDesc *query, int eflags)
{
	if (prev_hook != NULL)
		prev_hook(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0)
		(void) TellScans(query->planstate, NULL);
}

void
GgInitExpectedRows(void)
{
	prev_hook = ExecutorStart_hook;
	ExecutorStart_hook = StartExecutor;
}
