/*
 * semi_join.c
 *		Semi-joins, and joins that filter, on a filter column: as sets that the scan is told.
 *
 * WHERE doc IN (SELECT doc FROM acl WHERE usr = 7) ORDER BY d LIMIT 10: core makes a join of it.
 * The index brings rows in the order of d, and the join drops those whose document is not in the
 * set, one by one.  Where few rows are of such documents, that goes far.  As a hashed subplan in
 * the filter the same condition is a set that the scan is told before it begins (told_sets.c), and
 * the index leaves out what is not in it.  That pays where few rows match.  Where many do, the join
 * reads few rows, and a filter costs more than it saves.
 *
 * Which of the two it is, the planner's estimates say, and the finished plan has them.  So the
 * query is planned as it is.  If the plan walks far for its LIMIT, or reads and sorts whole tables,
 * the query is planned once more, with such conditions kept from becoming joins (NOT NOT does that,
 * which core then removes), and the better of both plans is taken.  Both are core's, of queries
 * that say the same:
 *
 *	IN (SELECT ...)		stays what it is
 *	EXISTS				whose only correlation is an equality becomes IN
 *	joins				get an IN beside them, of the table that is joined, with the conditions on
 *						that table alone.  The join remains.
 *
 * Left as they are: volatile subqueries, LIMIT or locks inside, NOT IN, EXISTS with aggregates,
 * other correlation, and queries that aggregate or lock rows.
 */
#include "plan/planner.h"
#include "storage/directory.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/*
 * Microseconds for a row that the join looks at, for a unit of cost of the set's plan, for a row of
 * the table whose filter column is looked at, and for a row that matches.  Measured were 8, 2 to 4,
 * .008 and .4 at 50,000 x 128.
 */
#define JOINED_ROW_TIME		8.0
#define COST_TIME			3.0
#define LOOK_TIME			0.01
#define MATCH_TIME			0.4

/*
 * A walk of less than a millisecond is not worth a second plan.  The estimate assumes that the rows
 * which pass are evenly spread.  Those of a document lie together, and a walk that begins elsewhere
 * goes farther than that, at times ten times as far.  A filter's time does not depend on that.
 */
#define LEAST_TIME			1000.0
#define WALK_GOES_FARTHER	2.0

/* ---- the query ------------------------------------------------------------- */

/* Is it a plain column of the query's that some index of ours has as a filter column? */
static bool
IsFilterColumn(const Query *query, const Node *expr)
{
	const Var  *var = (const Var *) expr;
	const RangeTblEntry *entry;
	Relation	table;
	bool		found = false;
	ListCell   *cell;

	if (!IsA(expr, Var) || var->varlevelsup != 0 || var->varattno <= 0)
		return false;
	entry = rt_fetch(var->varno, query->rtable);
	if (entry->rtekind != RTE_RELATION || entry->relkind != RELKIND_RELATION)
		return false;
	table = relation_open(entry->relid, NoLock);
	foreach(cell, RelationGetIndexList(table))
	{
		Relation	index;

		if (found || !GgIsGpugraphIndex(lfirst_oid(cell)))
			continue;
		index = relation_open(lfirst_oid(cell), AccessShareLock);
		for (int i = 1; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
			found = found || index->rd_index->indkey.values[i] == var->varattno;
		relation_close(index, AccessShareLock);
	}
	relation_close(table, NoLock);
	return found;
}

static void *
StripRelabel(void *node)
{
	while (IsA(node, RelabelType))
		node = ((RelabelType *) node)->arg;
	return node;
}

/* Does a query or an expression refer to queries around it? */
static bool
RefersOutward(void *node)
{
	Node	   *copy = copyObjectImpl(node);

	IncrementVarSublevelsUp(copy, 1, 1);
	return !equal(copy, node);
}

/*
 * The clause as a copy with a filter column on the left, if it says column = something and can be
 * hashed; else NULL.  The query is so many levels above the clause.
 */
static OpExpr *
EqualOfColumn(const Query *query, const Node *clause, Index level)
{
	OpExpr	   *equal = (OpExpr *) clause;

	if (!IsA(clause, OpExpr) || list_length(equal->args) != 2 ||
		!op_hashjoinable(equal->opno, exprType(linitial(equal->args))))
		return NULL;
	equal = copyObject(equal);
	for (int side = 0; side < 2; side++)
	{
		Var		   *column = StripRelabel(linitial(equal->args));

		if (IsA(column, Var) && column->varlevelsup == level)
		{
			column->varlevelsup = 0;
			if (IsFilterColumn(query, (Node *) column))
				return equal;
			column->varlevelsup = level;
		}
		if (!OidIsValid(get_commutator(equal->opno)))
			return NULL;
		CommuteOpExpr(equal);
	}
	return NULL;
}

/* NOT NOT column IN (SELECT value ...); equal: column = value. */
static Node *
InSet(OpExpr *equal, Query *set)
{
	SubLink    *link = makeNode(SubLink);
	Node	   *value = lsecond(equal->args);
	Expr	   *test;

	set->targetList = list_make1(makeTargetEntry((Expr *) value, 1, NULL, false));
	lsecond(equal->args) = makeNode(Param);
	*lsecond_node(Param, equal->args) = (Param) {
		.xpr.type = T_Param,
		.paramkind = PARAM_SUBLINK,
		.paramid = 1,
		.paramtype = exprType(value),
		.paramtypmod = exprTypmod(value),
		.paramcollid = exprCollation(value),
		.location = -1
	};
	link->subLinkType = ANY_SUBLINK;
	link->testexpr = (Node *) equal;
	link->subselect = (Node *) set;
	link->location = -1;
	test = makeBoolExpr(NOT_EXPR, list_make1(link), -1);
	return (Node *) makeBoolExpr(NOT_EXPR, list_make1(test), -1);
}

/* Is it a subquery that says the same wherever and however often it is run? */
static bool
IsPlainSet(const Query *set)
{
	return set->commandType == CMD_SELECT && !set->hasModifyingCTE && set->rowMarks == NIL &&
		set->limitCount == NULL && set->limitOffset == NULL && !set->hasTargetSRFs &&
		!contain_volatile_functions((Node *) set);
}

/* EXISTS as a set, or NULL. */
static Node *
FromExists(const Query *query, const SubLink *link)
{
	Query	   *set = copyObject(castNode(Query, link->subselect));
	List	   *others = NIL;
	OpExpr	   *equal = NULL;
	ListCell   *cell;

	if (!IsPlainSet(set) || set->hasAggs || set->groupClause != NIL || set->groupingSets != NIL ||
		set->havingQual != NULL || set->hasWindowFuncs || set->setOperations != NULL ||
		set->cteList != NIL || set->jointree->quals == NULL)
		return NULL;
	foreach(cell, make_ands_implicit((Expr *) set->jointree->quals))
	{
		OpExpr	   *own = equal == NULL ? EqualOfColumn(query, lfirst(cell), 1) : NULL;

		if (own != NULL)
			equal = own;
		else
			others = lappend(others, lfirst(cell));
	}
	if (equal == NULL || RefersOutward(lsecond(equal->args)))
		return NULL;
	set->jointree->quals = (Node *) make_ands_explicit(others);
	set->distinctClause = set->sortClause = NIL;
	set->hasDistinctOn = false;
	set->targetList = NIL;
	return RefersOutward(set) ? NULL : InSet(equal, set);
}

/* The top-level condition as one that stays a condition, or NULL. */
static Node *
FromCondition(const Query *query, Node *clause)
{
	const SubLink *link = (const SubLink *) clause;
	Query	   *set;
	Expr	   *test;

	if (!IsA(clause, SubLink))
		return NULL;
	if (link->subLinkType == EXISTS_SUBLINK)
		return FromExists(query, link);
	set = (Query *) link->subselect;
	if (link->subLinkType != ANY_SUBLINK || !IsA(link->testexpr, OpExpr) || !IsPlainSet(set) ||
		RefersOutward(set) ||
		!IsFilterColumn(query, StripRelabel(linitial(((OpExpr *) link->testexpr)->args))))
		return NULL;
	test = makeBoolExpr(NOT_EXPR, list_make1(clause), -1);
	return (Node *) makeBoolExpr(NOT_EXPR, list_make1(test), -1);
}

/* The conditions that hold for each row of the query: of WHERE, and of inner joins. */
static List *
ConditionsOf(Node *tree)
{
	List	   *parts = NIL;
	List	   *conditions = NIL;
	Node	   *own = NULL;
	ListCell   *cell;

	if (IsA(tree, FromExpr))
	{
		parts = ((FromExpr *) tree)->fromlist;
		own = ((FromExpr *) tree)->quals;
	}
	else if (IsA(tree, JoinExpr) && ((JoinExpr *) tree)->jointype == JOIN_INNER)
	{
		parts = list_make2(((JoinExpr *) tree)->larg, ((JoinExpr *) tree)->rarg);
		own = ((JoinExpr *) tree)->quals;
	}
	foreach(cell, parts)
		conditions = list_concat(conditions, ConditionsOf(lfirst(cell)));
	return list_concat(conditions, list_copy(make_ands_implicit((Expr *) own)));
}

/* The query for a joined table's rows that pass the conditions on it alone; NULL: it has none. */
static Query *
RowsOfTable(const Query *query, int table, const List *conditions)
{
	RangeTblEntry *entry = rt_fetch(table, query->rtable);
	List	   *own = NIL;
	Query	   *set;
	RangeTblRef *from;
	const ListCell *cell;

	if (entry->rtekind != RTE_RELATION || entry->tablesample != NULL)
		return NULL;
	foreach(cell, conditions)
	{
		Relids		tables = pull_varnos(NULL, lfirst(cell));

		if (bms_equal(tables, bms_make_singleton(table)) &&
			!RefersOutward(lfirst(cell)) && !contain_subplans(lfirst(cell)) &&
			!contain_volatile_functions(lfirst(cell)))
			own = lappend(own, copyObject(lfirst(cell)));
	}
	if (own == NIL)
		return NULL;
	set = makeNode(Query);
	from = makeNode(RangeTblRef);
	set->commandType = CMD_SELECT;
	set->canSetTag = true;
	set->hasSubLinks = query->hasSubLinks;
	set->hasRowSecurity = query->hasRowSecurity;
	GgCopyEntry(set, query, entry);
	from->rtindex = 1;
	ChangeVarNodes((Node *) own, table, 1, 0);
	ChangeVarNodes((Node *) linitial_node(RangeTblEntry, set->rtable)->securityQuals, table, 1, 0);
	set->jointree = makeFromExpr(list_make1(from), (Node *) make_ands_explicit(own));
	return set;
}

/* Sets of tables that are joined by an equality with a filter column. */
static List *
FromJoins(const Query *query, List *conditions)
{
	List	   *sets = NIL;
	ListCell   *cell;

	foreach(cell, conditions)
	{
		OpExpr	   *equal = EqualOfColumn(query, lfirst(cell), 0);
		Var		   *value = equal == NULL ? NULL : lsecond(equal->args);
		Query	   *set;

		/* an outer join that may make it NULL counts as a table of its own */
		if (value == NULL || !IsA(value, Var) || value->varlevelsup != 0 ||
			bms_membership(pull_varnos(NULL, (Node *) value)) != BMS_SINGLETON ||
			value->varno == ((Var *) StripRelabel(linitial(equal->args)))->varno)
			continue;
		set = RowsOfTable(query, value->varno, conditions);
		if (set == NULL)
			continue;
		ChangeVarNodes((Node *) value, value->varno, 1, 0);
		sets = lappend(sets, InSet(equal, set));
	}
	return sets;
}

/* May the query end with its LIMIT in the order of a distance? */
static bool
MayEnd(const Query *query)
{
	Oid			type;

	if (query->commandType != CMD_SELECT || query->sortClause == NIL ||
		query->limitCount == NULL || query->rowMarks != NIL || query->setOperations != NULL ||
		query->hasAggs || query->groupClause != NIL || query->distinctClause != NIL ||
		!(query->hasSubLinks || list_length(query->rtable) > 1))
		return false;
	type = exprType(get_sortgroupclause_expr(linitial(query->sortClause), query->targetList));
	return type == FLOAT8OID || type == FLOAT4OID || type == NUMERICOID;
}

bool
GgMayKeepSets(const Query *query)
{
	bool		may = MayEnd(query);
	ListCell   *cell;

	check_stack_depth();
	foreach(cell, query->rtable)
		if (lfirst_node(RangeTblEntry, cell)->rtekind == RTE_SUBQUERY)
			may = may || GgMayKeepSets(lfirst_node(RangeTblEntry, cell)->subquery);
	foreach(cell, query->cteList)
		may = may || GgMayKeepSets((Query *) lfirst_node(CommonTableExpr, cell)->ctequery);
	return may;
}

bool
GgKeepSets(Query *query)
{
	bool		kept = false;
	ListCell   *cell;

	check_stack_depth();
	if (MayEnd(query))
	{
		List	   *quals = NIL;
		List	   *joins = FromJoins(query, ConditionsOf((Node *) query->jointree));

		kept = joins != NIL;
		foreach(cell, make_ands_implicit((Expr *) query->jointree->quals))
		{
			Node	   *as_set = FromCondition(query, lfirst(cell));

			kept = kept || as_set != NULL;
			quals = lappend(quals, as_set != NULL ? as_set : lfirst(cell));
		}
		if (kept)
		{
			query->jointree->quals = (Node *) make_ands_explicit(list_concat(quals, joins));
			query->hasSubLinks = true;
		}
	}
	foreach(cell, query->rtable)
		if (lfirst_node(RangeTblEntry, cell)->rtekind == RTE_SUBQUERY)
			kept = GgKeepSets(lfirst_node(RangeTblEntry, cell)->subquery) || kept;
	foreach(cell, query->cteList)
		kept = GgKeepSets((Query *) lfirst_node(CommonTableExpr, cell)->ctequery) || kept;
	return kept;
}

/* ---- plans ----------------------------------------------------------------- */

/*
 * The time of a LIMIT's plan.  Where an index brings rows in the order of a distance, it is 0
 * without a join, and else goes by how many come until the LIMIT has its own.
 */
static double
TimeOf(const Limit *limit)
{
	const Plan *input = limit->plan.lefttree;
	const Plan *plan = input;
	bool		joined = false;

	while (plan != NULL && (IsA(plan, NestLoop) || IsA(plan, IncrementalSort) || IsA(plan, Result)))
	{
		joined = joined || IsA(plan, NestLoop);
		plan = plan->lefttree;
	}
	if (GgOrderedScan(plan) == NULL)
		return limit->plan.total_cost * COST_TIME;
	return !joined ? 0 : limit->plan.plan_rows * plan->plan_rows / Max(input->plan_rows, 1) *
		JOINED_ROW_TIME * WALK_GOES_FARTHER;
}

static void
FindLimits(const Plan *plan, GgJoinTime *longest)
{
	if (plan == NULL)
		return;
	if (IsA(plan, SubqueryScan))
		FindLimits(((const SubqueryScan *) plan)->subplan, longest);
	if (IsA(plan, Limit) && TimeOf((const Limit *) plan) > longest->time)
	{
		longest->time = TimeOf((const Limit *) plan);
		longest->passing = plan->lefttree->plan_rows;
	}
	FindLimits(plan->lefttree, longest);
	FindLimits(plan->righttree, longest);
}

bool
GgTakesLong(const PlannedStmt *stmt, GgJoinTime *longest)
{
	ListCell   *cell;

	memset(longest, 0, sizeof(*longest));
	FindLimits(stmt->planTree, longest);
	foreach(cell, stmt->subplans)
		FindLimits(lfirst(cell), longest);
	return longest->time > LEAST_TIME;
}

/* The scan that is told a set, and what the cheapest of its sets costs; NULL: there is none. */
static const IndexScan *
FindTold(const PlannedStmt *stmt, const Plan *plan, Cost *cost)
{
	const IndexScan *told = NULL;
	ListCell   *cell;

	if (plan == NULL)
		return NULL;
	if (IsA(plan, SubqueryScan))
		return FindTold(stmt, ((const SubqueryScan *) plan)->subplan, cost);
	if (GgOrderedScan(plan) != NULL)
		foreach(cell, plan->qual)
		{
			const SubPlan *subplan = lfirst(cell);
			const Plan *set = IsA(subplan, SubPlan) && subplan->useHashTable ?
				list_nth(stmt->subplans, subplan->plan_id - 1) : NULL;

			if (set == NULL || set->plan_rows > GG_MAX_FILTER_VALUES ||
				(told != NULL && set->total_cost >= *cost))
				continue;
			told = (const IndexScan *) plan;
			*cost = set->total_cost;
		}
	if (told == NULL)
		told = FindTold(stmt, plan->lefttree, cost);
	return told != NULL ? told : FindTold(stmt, plan->righttree, cost);
}

bool
GgIsBetter(const PlannedStmt *stmt, const GgJoinTime *longest)
{
	Cost		cost = 0;
	const IndexScan *told = FindTold(stmt, stmt->planTree, &cost);
	GgMetaPageData *meta;
	Relation	index;
	double		rows;
	ListCell   *cell;

	foreach(cell, stmt->subplans)
		if (told == NULL)
			told = FindTold(stmt, lfirst(cell), &cost);
	if (told == NULL)
		return false;
	index = relation_open(told->indexid, NoLock);
	meta = GgReadDirectory(index);
	rows = (double) (GgDeltaSlots(meta) + GgCountNodes(meta));
	pfree(meta);
	relation_close(index, NoLock);
	return cost * COST_TIME + rows * LOOK_TIME + longest->passing * MATCH_TIME < longest->time;
}
