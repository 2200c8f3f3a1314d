/*
 * expected_rows.c
 *		How many rows the executor will ask for, told to scans.
 *
 * The access method is not told LIMIT, nor of conditions that no index has, which the executor
 * evaluates.  Without either, a scan's lists grow step by step, and each step is a question to the
 * device.  So this hook looks at the index scans of a plan that begins.
 *
 * Where a LIMIT stands above a scan, with nothing between them that drops or adds rows, the scan
 * hands out so many.  Where the executor filters the scan's rows, the hook estimates from the
 * planner's row count how many the scan will hand out (tell_scan.c).  A walk on the CPU does not
 * trust the estimate, unless gpugraph.target_recall gives it a list.  It looks at how many of its
 * rows have come to the LIMIT when its first list is used up (GgRowsUntilLimit()).
 *
 * The number is a hint.  A scan that gets none, as in EvalPlanQual, has lists that grow step by
 * step, and so has one that is asked for more: dead rows, rows that are locked by others, ties.
 */
#include "scan/scan.h"

#include "exec/nodes.h"

#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"

/* Rows that an incremental sort reads before it looks for the end of a group. */
#define SORTED_AHEAD		32

static ExecutorStart_hook_type prev_hook = NULL;

/* Is there anything in the expression that is not known before the plan runs? */
static bool
IsUnknown(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) || IsA(node, SubPlan) || IsA(node, AlternativeSubPlan) ||
		(IsA(node, Param) && ((Param *) node)->paramkind != PARAM_EXTERN))
		return true;
	return expression_tree_walker(node, IsUnknown, context);
}

/* The value of a LIMIT or an OFFSET; `missing` where there is none, -1 where it is not known. */
static int64
LimitValue(ExprState *expression, ExprContext *context, int64 missing)
{
	bool		isnull;
	Datum		value;

	if (expression == NULL)
		return missing;
	if (IsUnknown((Node *) expression->expr, NULL) ||
		contain_mutable_functions((Node *) expression->expr))
		return -1;
	value = ExecEvalExprSwitchContext(expression, context, &isnull);
	return isnull ? missing : DatumGetInt64(value);
}

/* Rows that a LIMIT takes of its input; 0: not known. */
static uint32
RowsOfLimit(const LimitState *limit)
{
	int64		count = LimitValue(limit->limitCount, limit->ps.ps_ExprContext, -1);
	int64		offset = LimitValue(limit->limitOffset, limit->ps.ps_ExprContext, 0);

	if (count < 0 || offset < 0)
		return 0;
	count = Min(Max(count, 1), GG_MOST_EXPECTED);
	return (uint32) Min(count + Min(offset, GG_MOST_EXPECTED), GG_MOST_EXPECTED);
}

/* Rows that this node will ask of those below it, where so many are asked of it; 0: not known. */
static uint32
RowsOfInput(const PlanState *node, uint32 rows)
{
	switch (nodeTag(node))
	{
		case T_LimitState:
			{
				uint32		own = RowsOfLimit((const LimitState *) node);

				return own == 0 || (rows > 0 && rows < own) ? rows : own;
			}
		case T_IncrementalSortState:
			/* it looks for where a group of equal rows ends */
			return rows == 0 ? 0 : Min(rows + SORTED_AHEAD, GG_MOST_EXPECTED);
		case T_AppendState:
		case T_LockRowsState:
		case T_MergeAppendState:
			return rows;
		case T_ResultState:
		case T_SubqueryScanState:
			return node->qual == NULL ? rows : 0;
		case T_CustomScanState:
			return GgIsNode(node, &gg_read_ahead) ? rows : 0;
		default:
			return 0;
	}
}

/* Does this node pass rows of its first child on, in order, one by one, but for those it drops? */
static bool
PassesOn(const PlanState *node)
{
	switch (nodeTag(node))
	{
		case T_LockRowsState:
		case T_NestLoopState:
		case T_ResultState:
		case T_SubqueryScanState:
			return true;
		case T_CustomScanState:
			return GgIsNode(node, &gg_bitmap_scan) || GgIsNode(node, &gg_first_of_group) ||
				GgIsNode(node, &gg_read_ahead);
		default:
			return false;
	}
}

static bool
TellScans(PlanState *planstate, void *context)
{
	const GgAsked *asked = context;
	GgAsked		input = {.of_many = asked->of_many};

	if (planstate == NULL)
		return false;
	if (IsA(planstate, IndexScanState))
		GgTellScan((IndexScanState *) planstate, asked);
	if (!GgTellPartitions(planstate, asked->rows))
		input.rows = RowsOfInput(planstate, asked->rows);
	if (IsA(planstate, LimitState))
	{
		input.limit = (const LimitState *) planstate;
		input.of_many = false;
	}
	else if (PassesOn(planstate))
		input.limit = asked->limit;
	if (IsA(planstate, AppendState) || IsA(planstate, MergeAppendState))
		input.of_many = true;
	/* behind a sort LIMIT does not count row by row: go by how many the join is believed to drop */
	if (IsA(planstate, NestLoopState) && input.limit == NULL)
		input.rows = (uint32) Min(asked->rows * outerPlan(planstate->plan)->plan_rows /
								  Max(planstate->plan->plan_rows, 1), GG_MOST_EXPECTED);
	if (!IsA(planstate, NestLoopState))
		return planstate_tree_walker(planstate, TellScans, &input);
	GgTellReadAhead(planstate);
	/* the outer side is told here, too, and then again */
	(void) planstate_tree_walker(planstate, TellScans, &(GgAsked) {0});
	return TellScans(outerPlanState(planstate), &input);
}

static void
StartExecutor(QueryDesc *query, int eflags)
{
	GgAsked		asked = {0};

	if (prev_hook != NULL)
		prev_hook(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0)
		(void) TellScans(query->planstate, &asked);
}

void
GgInitExpectedRows(void)
{
	prev_hook = ExecutorStart_hook;
	ExecutorStart_hook = StartExecutor;
}
