/*
 * rank_order.c
 *		Queries that order by a rank: they are ordered by what the rank is of.
 *
 * SELECT ..., row_number() OVER (ORDER BY d) AS r FROM ... ORDER BY r LIMIT n: rows leave the
 * window in the order of d, and r never falls on the way.  The planner does not know that.  It
 * sorts by r once it has all rows.  Ordered by d instead, the query gives the same rows in the same
 * order, and the window stops with the LIMIT.
 *
 * That holds of row_number, rank and dense_rank over a window without PARTITION BY, if it is the
 * query's only one: where there are several, the last to be computed has the order.  Rows that are
 * equal in d may come in any order within the window, and have ascending numbers as they come.  By
 * rank they may come in any order, too.  It does not hold of WITH TIES, which compares sort keys,
 * nor of DISTINCT, which sorts for itself.
 */
#include "plan/planner.h"

#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/fmgroids.h"

static bool
IsRank(const Expr *expr)
{
	const WindowFunc *function = (const WindowFunc *) expr;

	return IsA(expr, WindowFunc) &&
		(function->winfnoid == F_ROW_NUMBER || function->winfnoid == F_RANK_ ||
		 function->winfnoid == F_DENSE_RANK_);
}

/* Is it an order that some index could have: by numbers, and the same at each evaluation? */
static bool
MayBeDistance(const Query *query, const WindowClause *window)
{
	ListCell   *cell;
	Oid			type;

	if (window->partitionClause != NIL || window->orderClause == NIL)
		return false;
	type = exprType((Node *) get_sortgroupclause_expr(linitial(window->orderClause),
													  query->targetList));
	if (type != FLOAT8OID && type != FLOAT4OID && type != NUMERICOID)
		return false;
	foreach(cell, window->orderClause)
		if (contain_volatile_functions(get_sortgroupclause_expr(lfirst(cell), query->targetList)))
			return false;
	return true;
}

static void
OrderByWindow(Query *query)
{
	const SortGroupClause *sort = linitial(query->sortClause);
	const WindowClause *window = linitial(query->windowClause);
	const TargetEntry *rank = get_sortgroupclause_tle((SortGroupClause *) sort, query->targetList);

	if (sort->sortop == Int8LessOperator && IsRank(rank->expr) && MayBeDistance(query, window))
		query->sortClause = copyObject(window->orderClause);
}

void
GgOrderByWindows(Query *query)
{
	ListCell   *cell;

	check_stack_depth();
	if (query->hasWindowFuncs && query->limitCount != NULL &&
		query->limitOption == LIMIT_OPTION_COUNT && list_length(query->windowClause) == 1 &&
		list_length(query->sortClause) == 1 && query->distinctClause == NIL &&
		!query->hasTargetSRFs)
		OrderByWindow(query);
	foreach(cell, query->cteList)
	{
		CommonTableExpr *cte = lfirst_node(CommonTableExpr, cell);

		if (IsA(cte->ctequery, Query))
			GgOrderByWindows((Query *) cte->ctequery);
	}
	foreach(cell, query->rtable)
	{
		const RangeTblEntry *entry = lfirst_node(RangeTblEntry, cell);

		if (entry->rtekind == RTE_SUBQUERY)
			GgOrderByWindows(entry->subquery);
	}
}
