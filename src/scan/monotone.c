/*
 * monotone.c
 *		Expressions that rise or fall with the distance that an index orders rows by.
 */
#include "scan/monotone.h"

#include <math.h>

#include "storage/type.h"

#include "catalog/pg_type_d.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

/* How a function depends on the argument that is not fixed. */
typedef enum Dependence
{
	OTHER,
	RISES,						/* with the first argument */
	FALLS,						/* with the first argument */
	SUM,						/* rises with either argument */
	DIFFERENCE,					/* rises with the first argument, falls with the second */
	OPPOSITE,					/* falls with the first argument, rises with the second */
	PRODUCT,
	QUOTIENT
} Dependence;

static Dependence
DependenceOf(Oid function)
{
	switch (function)
	{
		case F_NUMERIC_FLOAT4:
		case F_NUMERIC_FLOAT8:
		case F_FLOAT4_NUMERIC:
		case F_FLOAT8_NUMERIC:
		case F_FLOAT4_FLOAT8:
		case F_FLOAT8_FLOAT4:
		case F_NUMERIC_NUMERIC_INT4:
		case F_FLOAT4UP:
		case F_FLOAT8UP:
		case F_NUMERIC_UPLUS:
		case F_ROUND_FLOAT8:
		case F_ROUND_NUMERIC:
		case F_ROUND_NUMERIC_INT4:
		case F_TRUNC_FLOAT8:
		case F_TRUNC_NUMERIC:
		case F_TRUNC_NUMERIC_INT4:
		case F_CEIL_FLOAT8:
		case F_CEILING_FLOAT8:
		case F_CEIL_NUMERIC:
		case F_CEILING_NUMERIC:
		case F_FLOOR_FLOAT8:
		case F_FLOOR_NUMERIC:
			return RISES;
		case F_FLOAT4UM:
		case F_FLOAT8UM:
		case F_NUMERIC_UMINUS:
			return FALLS;
		case F_FLOAT4PL:
		case F_FLOAT8PL:
		case F_FLOAT48PL:
		case F_FLOAT84PL:
		case F_NUMERIC_ADD:
			return SUM;
		case F_FLOAT4MI:
		case F_FLOAT8MI:
		case F_FLOAT48MI:
		case F_FLOAT84MI:
		case F_NUMERIC_SUB:
		case F_FLOAT4GT:
		case F_FLOAT4GE:
		case F_FLOAT8GT:
		case F_FLOAT8GE:
		case F_FLOAT48GT:
		case F_FLOAT48GE:
		case F_FLOAT84GT:
		case F_FLOAT84GE:
		case F_NUMERIC_GT:
		case F_NUMERIC_GE:
			return DIFFERENCE;
		case F_FLOAT4LT:
		case F_FLOAT4LE:
		case F_FLOAT8LT:
		case F_FLOAT8LE:
		case F_FLOAT48LT:
		case F_FLOAT48LE:
		case F_FLOAT84LT:
		case F_FLOAT84LE:
		case F_NUMERIC_LT:
		case F_NUMERIC_LE:
			return OPPOSITE;
		case F_FLOAT4MUL:
		case F_FLOAT8MUL:
		case F_FLOAT48MUL:
		case F_FLOAT84MUL:
		case F_NUMERIC_MUL:
			return PRODUCT;
		case F_FLOAT4DIV:
		case F_FLOAT8DIV:
		case F_FLOAT48DIV:
		case F_FLOAT84DIV:
			return QUOTIENT;
		default:
			return OTHER;
	}
}

/* ---- what does not change ------------------------------------------------ */

/* Does it change from row to row?  context: the table that is scanned; 0: all columns change. */
static bool
Changes(Node *node, void *context)
{
	const Index relid = *(const Index *) context;

	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Var:
			return relid == 0 || ((Var *) node)->varno == relid;
		case T_PlaceHolderVar:
		case T_CurrentOfExpr:
		case T_Aggref:
		case T_GroupingFunc:
		case T_WindowFunc:
		case T_SubLink:
		case T_SubPlan:
		case T_AlternativeSubPlan:
			return true;
		case T_FuncExpr:
			if (((FuncExpr *) node)->funcretset)
				return true;
			break;
		case T_OpExpr:
			if (((OpExpr *) node)->opretset)
				return true;
			break;
		default:
			break;
	}
	return expression_tree_walker(node, Changes, context);
}

static bool
IsFixedFor(Node *expr, Index relid)
{
	if (IsA(expr, Const) || IsA(expr, Param))
		return true;
	return !Changes(expr, &relid) && !contain_volatile_functions(expr);
}

bool
GgIsFixed(Node *expr)
{
	return IsFixedFor(expr, 0);
}

/* The sign of an operand; 0: not known, or it is no number that keeps or turns the order. */
static int
SignOf(Node *operand)
{
	const Const *constant = (Const *) operand;
	double		value;

	if (!IsA(operand, Const) || constant->constisnull)
		return 0;
	switch (constant->consttype)
	{
		case FLOAT8OID:
			value = DatumGetFloat8(constant->constvalue);
			break;
		case FLOAT4OID:
			value = DatumGetFloat4(constant->constvalue);
			break;
		case NUMERICOID:
			value = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
													   constant->constvalue));
			break;
		default:
			return 0;
	}
	if (value == 0 || !isfinite(value))
		return 0;
	return value > 0 ? 1 : -1;
}

/* ---- chains ---------------------------------------------------------------- */

/* The function of a call or of an operator, and its arguments; invalid: it is neither. */
static Oid
FunctionOf(Node *expr, List **args)
{
	if (IsA(expr, OpExpr))
	{
		*args = ((OpExpr *) expr)->args;
		set_opfuncid((OpExpr *) expr);
		return ((OpExpr *) expr)->opfuncid;
	}
	if (IsA(expr, FuncExpr))
	{
		*args = ((FuncExpr *) expr)->args;
		return ((FuncExpr *) expr)->funcid;
	}
	return InvalidOid;
}

/* Put the outermost step into *step, and return what it is applied to; NULL: there is none. */
static Node *
TakeStep(Node *expr, Index relid, GgStep *step, int *direction)
{
	List	   *args = NIL;
	const Oid	function = FunctionOf(expr, &args);
	const Dependence dependence = DependenceOf(function);
	Node	   *first,
			   *second;

	if (dependence == OTHER)
		return NULL;
	first = linitial(args);
	second = list_length(args) == 2 ? lsecond(args) : NULL;
	*step = (GgStep) {.function = function, .operand = second};
	if (dependence == FALLS || dependence == OPPOSITE)
		*direction = -1;
	if (second == NULL)
		return first;
	if (!IsFixedFor(second, relid))
	{
		if (dependence == RISES || dependence == QUOTIENT || !IsFixedFor(first, relid))
			return NULL;
		*step = (GgStep) {.function = function, .operand = first, .operand_first = true};
		if (dependence == DIFFERENCE || dependence == OPPOSITE)
			*direction = -*direction;
	}
	if (dependence == PRODUCT || dependence == QUOTIENT)
	{
		*direction = SignOf(step->operand);
		/* 0, or not finite: the result does not tell distances apart */
		if (*direction == 0 && IsA(step->operand, Const))
			return NULL;
	}
	return step->operand_first ? second : first;
}

void
GgTakeApart(Node *expr, GgMonotone *monotone)
{
	GgTakeJoinApart(expr, 0, monotone);
}

void
GgTakeJoinApart(Node *expr, Index relid, GgMonotone *monotone)
{
	monotone->inner = expr;
	monotone->direction = monotone->outermost = 1;
	monotone->nsteps = 0;
	for (;;)
	{
		GgStep	   *step = &monotone->steps[monotone->nsteps];
		int			direction = 1;
		Node	   *rest;

		while (IsA(monotone->inner, RelabelType))
			monotone->inner = (Node *) ((RelabelType *) monotone->inner)->arg;
		if (monotone->nsteps == GG_MOST_STEPS)
			return;
		rest = TakeStep(monotone->inner, relid, step, &direction);
		if (rest == NULL)
			return;
		if (monotone->nsteps == 0)
			monotone->outermost = direction;
		monotone->inner = rest;
		monotone->direction *= direction;
		monotone->nsteps++;
	}
}

/* ---- distances ------------------------------------------------------------- */

/* Does a call of the function give the operator's value with its arguments turned round? */
static bool
IsTurnedRound(Oid function, Oid operator)
{
	const Oid	commutator = get_commutator(operator);

	return OidIsValid(commutator) && get_opcode(commutator) == function;
}

OpExpr *
GgDistanceOf(IndexOptInfo *index, Node *expr)
{
	List	   *args = NIL;
	const Oid	function = FunctionOf(expr, &args);
	Oid			operator;
	Node	   *column,
			   *query;
	OpExpr	   *order;

	if (!OidIsValid(function) || list_length(args) != 2)
		return NULL;
	operator = get_opfamily_member(index->opfamily[0], index->opcintype[0], index->opcintype[0],
								   GG_DISTANCE_STRATEGY);
	if (!OidIsValid(operator))
		return NULL;
	column = linitial(args);
	query = lsecond(args);
	if (match_index_to_operand(column, 0, index))
	{
		if (function != get_opcode(operator))
			return NULL;
	}
	else
	{
		column = lsecond(args);
		query = linitial(args);
		if (!match_index_to_operand(column, 0, index) || !IsTurnedRound(function, operator))
			return NULL;
	}
	if (!IsFixedFor(query, index->rel->relid))
		return NULL;
	if (IsA(expr, OpExpr) && ((OpExpr *) expr)->opno == operator && column == linitial(args))
		return (OpExpr *) expr;
	order = (OpExpr *) make_opclause(operator, FLOAT8OID, false, (Expr *) column, (Expr *) query,
									 InvalidOid, exprInputCollation(expr));
	set_opfuncid(order);
	return order;
}

Node *
GgQueryOf(Node *expr, const OpExpr *order)
{
	List	   *args = NIL;
	const Oid	function = FunctionOf(expr, &args);
	const Node *column = linitial(order->args);

	if (!OidIsValid(function) || list_length(args) != 2)
		return NULL;
	if (function == get_opcode(order->opno) && equal(linitial(args), column))
		return lsecond(args);
	if (IsTurnedRound(function, order->opno) && equal(lsecond(args), column))
		return linitial(args);
	return NULL;
}

bool
GgIsDistance(Node *expr, const OpExpr *order)
{
	return equal(GgQueryOf(expr, order), lsecond(order->args));
}
