/*
 * monotone.h
 *		Expressions that rise or fall with the distance that an index orders rows by.
 *
 * 1 - d, d * -1, round(d::numeric, 8): each is a chain of steps, and each step is a built-in
 * function of the step before it and of an operand that does not change.  Steps are known by their
 * functions' OIDs, whatever the operators are called:
 *
 *	+ -			of float4, float8 and numeric
 *	*			of these, by an operand that is neither 0 nor infinite
 *	/			of float4 and float8, by the same operands.  Not of numeric: how many digits a
 *				quotient has depends on it, and so does whether it is rounded up or down
 *	casts		between float4, float8 and numeric, numeric(p, s) included
 *	round, trunc, ceil, floor
 *	< <= > >=	of float4, float8 and numeric.  So a condition is a chain, too: false is less than
 *				true, and a condition that falls is true up to some distance and not beyond it.
 *
 * What holds for every chain:
 *
 *	Rounding	of the function is monotone, too.  It may make unequal distances equal, and never
 *				swaps them.
 *	NULL		All steps are strict.  The result is NULL where the distance or an operand is.
 *	NaN			stays NaN, which PostgreSQL takes for the largest number.  Of a chain that falls,
 *				NaN therefore comes where the least distance does.  An operand that is NaN makes
 *				every result NaN.
 *	Infinity	An infinite distance less infinity is NaN.  Apart from that an infinite operand of
 *				+ and - makes all results equal.
 *	Errors		Overflow and underflow are errors, as ever.
 */
#ifndef GG_MONOTONE_H
#define GG_MONOTONE_H

#include "postgres.h"

#include "nodes/pathnodes.h"
#include "nodes/primnodes.h"

/* A step's function, and its operand: NULL where it has none. */
typedef struct GgStep
{
	Oid			function;
	Node	   *operand;
	bool		operand_first;
} GgStep;

#define GG_MOST_STEPS		8

typedef struct GgMonotone
{
	Node	   *inner;			/* the chain begins with it; the caller finds out what it is */
	int			direction;		/* 1: the expression rises with inner; -1: it falls; 0: that hangs
								 * on the sign of a parameter */
	int			outermost;		/* the direction of the outermost step alone */
	int			nsteps;
	GgStep		steps[GG_MOST_STEPS];	/* the outermost first */
} GgMonotone;

/*
 * Take an expression of a plan, or of a query that is being planned, apart.  No step at all is a
 * chain, too.  Where a part is no such step, or there are too many, that part is inner.
 */
extern void GgTakeApart(Node *expr, GgMonotone *monotone);

/*
 * Take apart a clause that joins the table of this number to others.  Columns of the others are
 * taken not to change.
 */
extern void GgTakeJoinApart(Node *expr, Index relid, GgMonotone *monotone);

/*
 * Is the expression the same in every row of a scan?  It is if it has constants and parameters of
 * every kind alone, and no volatile function.
 */
extern bool GgIsFixed(Node *expr);

/*
 * The order of the index that expr computes, as the planner wants it: the index's own operator, the
 * column on the left, and on the right something fixed, or of other tables.  expr has any operator
 * of the same function, or a call of that function, with its arguments in either order.  NULL: it
 * is something else.
 */
extern OpExpr *GgDistanceOf(IndexOptInfo *index, Node *expr);

/*
 * If an expression of a plan is the distance of the plan's order, from the same column to whatever
 * query: that query.  NULL: the expression is something else.
 */
extern Node *GgQueryOf(Node *expr, const OpExpr *order);

/* Is it the distance of the order, to the same query? */
extern bool GgIsDistance(Node *expr, const OpExpr *order);

#endif							/* GG_MONOTONE_H */
