/*
 * within.c
 *		Conditions on the distance that a scan is ordered by: where they end it.
 *
 * WHERE d < r ORDER BY d: once d has reached r, no later row passes the filter.  The same holds of
 * every condition that is monotone in d (scan/monotone.h): 1 - d > s, round(d::numeric, 8) <= r.
 * The condition stays in the plan, and the executor goes on checking it.  The scan is only told
 * what it implies.  So this must never end a scan too early, and may end it too late.
 *
 * No condition is solved for d.  It is computed, step by step and by the functions that the
 * executor would call, with a number in the place of d.  It is true up to some number and false, or
 * NULL, from there on, since the rounding of each step is monotone, too.  Bisection over all floats
 * finds the largest distance of the engine's at which it holds, in 32 steps.  What the condition is
 * computed with is the least value that the operator can have at that distance (bound.c).
 *
 * Only numbers that are no row's come to the condition, and only built-in functions see them.  So
 * nothing is learned of rows that a security barrier hides.  An error of the condition (overflow)
 * says nothing of any row.  Where there is one next to the end, the scan has no such end.
 *
 * Operands are evaluated when a scan begins, as those of index conditions are: parameters may have
 * other values than at the last scan.
 *
 * To check d < r for a row is to read its vector.  At 768 dimensions that lies out of line, and
 * takes longer than all else that the row does.  Nearly all rows that the scan returns are so near
 * that rounding cannot lift the operator's value beyond the end.  For these the executor need not
 * check.  It has a place for that: conditions of an index, which are checked where xs_recheck says
 * so.  So the scan moves conditions there once it knows how far it is sure of them (SureBelow()).
 * Only conditions that the filter begins with are moved, since what hides rows (row level security)
 * stands before the others and is to be checked first.
 */
#include "scan/scan.h"

#include <float.h>
#include <math.h>

#include "scan/monotone.h"

#include "catalog/pg_type_d.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "utils/datum.h"
#include "utils/float.h"
#include "utils/numeric.h"

/* A step of a chain; see GgStep. */
typedef struct Step
{
	FmgrInfo	function;
	ExprState  *operand;		/* NULL: it has none */
	bool		operand_first;
	Oid			type;			/* of the operand */

	/* in the scan under way */
	Datum		value;
} Step;

typedef struct Condition
{
	ExprState  *query;			/* that the distance is measured to; NULL: the scan's */
	bool		falls;			/* false: that hangs on the sign of a parameter */
	bool		used;			/* in the scan under way */
	bool		leads;			/* the filter begins with it and others that lead */
	int			nsteps;
	Step		steps[GG_MOST_STEPS];	/* the innermost first; the last one is the comparison */
} Condition;

struct GgWithin
{
	ExprContext *context;
	List	   *conditions;
	IndexScanState *scan;		/* whose leading conditions may be moved; or NULL */
	int			nleading;
	bool		moved;
};

/* ---- what the executor's filter says -------------------------------------- */

bool
GgEndsScan(Node *clause, const OpExpr *order, GgMonotone *monotone)
{
	Node	   *query;

	GgTakeApart(clause, monotone);
	if (monotone->nsteps == 0 || monotone->direction == 1)
		return false;
	query = GgQueryOf(monotone->inner, order);
	return query != NULL && GgIsFixed(query);
}

/* parent: of the expressions; NULL: it is the planner who asks. */
static Condition *
MakeCondition(PlanState *parent, const GgMonotone *monotone, const OpExpr *order)
{
	Condition  *condition = palloc0(sizeof(Condition));
	Node	   *query = GgQueryOf(monotone->inner, order);

	condition->falls = monotone->direction == -1;
	/* $1 and $2 may have the same value */
	if (!equal(query, lsecond(order->args)))
		condition->query = ExecInitExpr((Expr *) query, parent);
	for (int i = monotone->nsteps - 1; i >= 0; i--)
	{
		const GgStep *step = &monotone->steps[i];
		Step	   *copy = &condition->steps[condition->nsteps++];

		fmgr_info(step->function, &copy->function);
		copy->operand_first = step->operand_first;
		if (step->operand == NULL)
			continue;
		copy->operand = ExecInitExpr((Expr *) step->operand, parent);
		copy->type = exprType(step->operand);
	}
	return condition;
}

GgWithin *
GgMakeWithin(IndexScanState *scan, bool *all)
{
	const IndexScan *plan = (const IndexScan *) scan->ss.ps.plan;
	const OpExpr *order = linitial(plan->indexorderbyorig);
	GgWithin   *within = NULL;
	ListCell   *cell;

	*all = true;
	foreach(cell, plan->scan.plan.qual)
	{
		Condition  *condition;
		GgMonotone	monotone;

		if (!IsA(order, OpExpr) || !GgEndsScan(lfirst(cell), order, &monotone))
		{
			*all = false;
			continue;
		}
		if (within == NULL)
		{
			within = palloc0(sizeof(GgWithin));
			within->context = CreateExprContext(scan->ss.ps.state);
			/* a subplan of the filter has its state, and is not to have another */
			within->scan = scan->ss.ps.subPlan == NIL ? scan : NULL;
		}
		condition = MakeCondition(&scan->ss.ps, &monotone, order);
		condition->leads = *all;
		within->nleading += condition->leads;
		within->conditions = lappend(within->conditions, condition);
	}
	return within;
}

/* Have leading conditions checked where the scan says so. */
static void
MoveLeading(GgWithin *within)
{
	IndexScanState *scan = within->scan;
	const IndexScan *plan = (const IndexScan *) scan->ss.ps.plan;
	MemoryContext old = MemoryContextSwitchTo(scan->ss.ps.state->es_query_cxt);
	List	   *leading = list_truncate(list_copy(plan->scan.plan.qual), within->nleading);

	scan->indexqualorig = ExecInitQual(list_concat_copy(plan->indexqualorig, leading),
									   &scan->ss.ps);
	scan->ss.ps.qual = ExecInitQual(list_copy_tail(plan->scan.plan.qual, within->nleading),
									&scan->ss.ps);
	within->moved = true;
	MemoryContextSwitchTo(old);
}

/* Are all operands constants? */
static bool
HasConstants(const GgMonotone *monotone)
{
	for (int i = 0; i < monotone->nsteps; i++)
		if (monotone->steps[i].operand != NULL && !IsA(monotone->steps[i].operand, Const))
			return false;
	return true;
}

GgWithin *
GgMakePlannedWithin(List *clauses, const OpExpr *order, EState *estate)
{
	GgWithin   *within = palloc0(sizeof(GgWithin));
	ListCell   *cell;

	within->context = GetPerTupleExprContext(estate);
	if (!IsA(lsecond(order->args), Const))
		return NULL;
	foreach(cell, clauses)
	{
		GgMonotone	monotone;

		if (!GgEndsScan(lfirst(cell), order, &monotone))
			continue;
		if (!HasConstants(&monotone) || !IsA(GgQueryOf(monotone.inner, order), Const))
			return NULL;
		within->conditions = lappend(within->conditions, MakeCondition(NULL, &monotone, order));
	}
	return within->conditions == NIL ? NULL : within;
}

/* ---- one scan -------------------------------------------------------------- */

/* May a step be computed with this operand?  Little is said of one that is infinite or NaN. */
static bool
IsSound(const Step *step)
{
	switch (step->type)
	{
		case FLOAT4OID:
			return isfinite(DatumGetFloat4(step->value));
		case FLOAT8OID:
			return isfinite(DatumGetFloat8(step->value));
		case NUMERICOID:
			return !numeric_is_nan(DatumGetNumeric(step->value)) &&
				!numeric_is_inf(DatumGetNumeric(step->value));
		default:
			return true;
	}
}

/*
 * Evaluate operands, and find out whether the distance is the scan's.  False: no row fulfils the
 * condition, since an operand or the distance is NULL.
 */
static bool
Evaluate(Condition *condition, ExprContext *context, const ScanKeyData *key)
{
	const bool	no_query = (key->sk_flags & SK_ISNULL) != 0;
	bool		isnull = no_query;

	condition->used = true;
	if (condition->query != NULL)
	{
		const Datum query = ExecEvalExprSwitchContext(condition->query, context, &isnull);

		condition->used = !isnull && !no_query &&
			datum_image_eq(key->sk_argument, query, false, -1);
	}
	if (isnull)
		return false;
	for (int i = 0; i < condition->nsteps; i++)
	{
		Step	   *step = &condition->steps[i];

		if (step->operand == NULL)
			continue;
		step->value = ExecEvalExprSwitchContext(step->operand, context, &isnull);
		if (isnull)
			return false;
		condition->used = condition->used && IsSound(step);
	}
	return true;
}

static bool
Compute(Condition *condition, double distance)
{
	Datum		value = Float8GetDatum(distance);

	for (int i = 0; i < condition->nsteps; i++)
	{
		Step	   *step = &condition->steps[i];

		if (step->operand == NULL)
			value = FunctionCall1(&step->function, value);
		else if (step->operand_first)
			value = FunctionCall2(&step->function, step->value, value);
		else
			value = FunctionCall2(&step->function, value, step->value);
	}
	return DatumGetBool(value);
}

typedef enum Answer
{
	FAILS,
	HOLDS,
	NO_ANSWER					/* an error: the number is too large for a step, say */
} Answer;

/*
 * Does the condition hold at that value of the operator?  The functions of the steps take no locks
 * and hold no resources, so that an error of theirs can be caught without a subtransaction.
 */
static Answer
AskAt(Condition *condition, double value)
{
	const MemoryContext context = CurrentMemoryContext;
	volatile Answer answer = NO_ANSWER;

	PG_TRY();
	{
		answer = Compute(condition, value) ? HOLDS : FAILS;
	}
	PG_CATCH();
	{
		if (ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
	return answer;
}

/* The same at the least value that the operator can have at this distance. */
static Answer
Ask(Condition *condition, const GgBound *bound, float distance)
{
	return AskAt(condition, GgBoundOf(bound, distance));
}

/* Floats in their order, as integers. */
static int32
PlaceOf(float value)
{
	int32		bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits >= 0 ? bits : bits ^ PG_INT32_MAX;
}

static float
FloatAt(int32 place)
{
	const int32 bits = place >= 0 ? place : place ^ PG_INT32_MAX;
	float		value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Distances of the engine's, in which no row is nearer than least or farther than most. */
typedef struct Range
{
	GgBound		bound;
	float		least;
	float		most;
} Range;

/* The largest distance at which the condition holds; infinity: not known; minus infinity: none. */
static float
Bisect(Condition *condition, const Range *range)
{
	int64		low = PlaceOf(range->least),
				high = PlaceOf(range->most);
	Answer		behind = Ask(condition, &range->bound, range->most);
	const Answer before = Ask(condition, &range->bound, range->least);

	if (behind == HOLDS || before == NO_ANSWER || (before == FAILS && !condition->falls))
		return get_float4_infinity();
	/* under inner product rows that an older library inserted may be nearer than least */
	if (before == FAILS)
		return range->least < 0 ? range->least : -get_float4_infinity();
	while (high - low > 1)
	{
		const int64 middle = low + (high - low) / 2;
		const Answer answer = Ask(condition, &range->bound, FloatAt((int32) middle));

		if (answer == HOLDS)
			low = middle;
		else
		{
			high = middle;
			behind = answer;
		}
	}
	return behind == FAILS ? FloatAt((int32) low) : get_float4_infinity();
}

/* Between what distances are rows?  False: nothing is known of them. */
static bool
FindRange(const GgScanOpaque *so, Range *range)
{
	*range = (Range) {.bound = so->bound, .least = 0, .most = FLT_MAX};
	if (so->query == NULL)
		return false;
	if (so->bound.metric == GG_METRIC_IP)
	{
		range->most = GgBoundInitProduct(&range->bound, so->meta, so->query);
		range->least = -range->most;
	}
	/* the operator has NaN for every row, which is larger than all numbers */
	if (so->bound.metric == GG_METRIC_COSINE &&
		GgIsZeroVector(so->query, so->meta->dimensions))
		return false;
	return range->most > 0;
}

/*
 * The condition holds at the least value that the operator can have at this distance.  So it holds
 * at all distances of the engine's below the least that these can have where the operator has that
 * value: what is known of the two is the same either way, if rows are not rounded.
 */
static double
SureBelow(const GgBound *bound, float distance)
{
	double		value = GgBoundOf(bound, distance);

	if (bound->rounded || isinf(distance) || isinf(value))
		return -get_float8_infinity();
	value = GgBoundOfKey(bound, (float) (bound->metric == GG_METRIC_L2 ? value * value : value));
	/* less what this arithmetic may round */
	return value - fabs(value) * 0x1p-20;
}

float
GgFarthest(GgScanOpaque *so, const ScanKeyData *key)
{
	GgWithin   *within = ((const GgTold *) key->sk_func.fn_extra)->within;
	float		farthest = get_float4_infinity();
	double		sure = get_float8_infinity();
	MemoryContext old = MemoryContextSwitchTo(within->context->ecxt_per_tuple_memory);
	Range		range;
	const bool	known = FindRange(so, &range);
	ListCell   *cell;

	foreach(cell, within->conditions)
	{
		Condition  *condition = lfirst(cell);
		float		own = -get_float4_infinity();

		if (Evaluate(condition, within->context, key))
			own = known && condition->used ? Bisect(condition, &range) :
				get_float4_infinity();
		farthest = Min(farthest, own);
		if (condition->leads)
			sure = Min(sure, SureBelow(&range.bound, own));
	}
	ResetExprContext(within->context);
	MemoryContextSwitchTo(old);
	if (within->scan == NULL || within->nleading == 0 || so->by_table)
		sure = -get_float8_infinity();
	if (!within->moved && !isinf(sure))
		MoveLeading(within);
	/* moved once, they stay where they are: the executor may be about to read its filter */
	so->checks = within->moved;
	so->sure_within = sure;
	return farthest;
}

bool
GgMayHoldAtNaN(const GgScanOpaque *so, const ScanKeyData *key)
{
	const GgTold *told = key->sk_func.fn_extra;
	bool		holds = true;
	MemoryContext old;
	ListCell   *cell;

	if (told == NULL || told->within == NULL)
		return true;
	old = MemoryContextSwitchTo(told->within->context->ecxt_per_tuple_memory);
	foreach(cell, told->within->conditions)
		holds = holds && Evaluate(lfirst(cell), told->within->context, key) &&
			AskAt(lfirst(cell), get_float8_nan()) != FAILS;
	ResetExprContext(told->within->context);
	MemoryContextSwitchTo(old);
	return holds;
}
