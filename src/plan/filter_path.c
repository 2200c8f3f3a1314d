/*
 * filter_path.c
 *		Paths that PostgreSQL leaves out: conditions on filter columns beside the order by distance,
 *		and sort keys that are not the distance itself.
 *
 * Before PostgreSQL 17 no path of core's has both an order and an IN list on a column behind the
 * first one.  For B-trees that is right, since such lists break their order.  Here the order comes
 * from the distance, whatever the conditions are.  Core also left out bare booleans (WHERE active)
 * for operator families that are not its own.  Where a query has one of the two, this hook adds the
 * path that core would add today.  The rules for what matches a column are core's (indxpath.c).
 *
 * Core knows the distance as a sort key, and nothing else (sort_key.h).  Before 16 it did not know
 * that either where other keys follow.
 */
#include "plan/planner.h"
#include "scan/monotone.h"

#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "utils/lsyscache.h"

static bool
CollationsFit(const IndexOptInfo *index, int column, Oid collation)
{
	return !OidIsValid(index->indexcollations[column]) ||
		index->indexcollations[column] == collation;
}

/* Is operand something that does not change while the index is scanned? */
static bool
IsFixed(PlannerInfo *root, const IndexOptInfo *index, Node *operand)
{
	return !bms_is_member(index->rel->relid, pull_varnos(root, operand)) &&
		!contain_volatile_functions(operand);
}

/* column = true, and column = false, as the condition of an index. */
static RestrictInfo *
BooleanCondition(PlannerInfo *root, Expr *column, bool value)
{
	Expr	   *equal = make_opclause(BooleanEqualOperator, BOOLOID, false, column,
									  (Expr *) makeBoolConst(value, false), InvalidOid,
									  InvalidOid);

	return make_simple_restrictinfo(root, equal);
}

/* The condition for column, NOT column, column IS TRUE or column IS FALSE; NULL: it is none. */
static RestrictInfo *
MatchBoolean(PlannerInfo *root, IndexOptInfo *index, int column, Expr *clause)
{
	if (match_index_to_operand((Node *) clause, column, index))
		return BooleanCondition(root, clause, true);
	if (is_notclause(clause))
	{
		Expr	   *negated = get_notclausearg(clause);

		if (match_index_to_operand((Node *) negated, column, index))
			return BooleanCondition(root, negated, false);
	}
	else if (IsA(clause, BooleanTest))
	{
		BooleanTest *test = (BooleanTest *) clause;

		if ((test->booltesttype == IS_TRUE || test->booltesttype == IS_FALSE) &&
			match_index_to_operand((Node *) test->arg, column, index))
			return BooleanCondition(root, test->arg, test->booltesttype == IS_TRUE);
	}
	return NULL;
}

static RestrictInfo *
MatchOperator(PlannerInfo *root, IndexOptInfo *index, int column, RestrictInfo *rinfo)
{
	OpExpr	   *clause = (OpExpr *) rinfo->clause;
	Oid			family = index->opfamily[column];
	Node	   *left,
			   *right;
	Oid			commutator;

	if (list_length(clause->args) != 2 || !CollationsFit(index, column, clause->inputcollid))
		return NULL;
	left = linitial(clause->args);
	right = lsecond(clause->args);
	if (match_index_to_operand(left, column, index) && IsFixed(root, index, right))
		return op_in_opfamily(clause->opno, family) ? rinfo : NULL;
	if (!match_index_to_operand(right, column, index) || !IsFixed(root, index, left))
		return NULL;
	commutator = get_commutator(clause->opno);
	if (!OidIsValid(commutator) || !op_in_opfamily(commutator, family))
		return NULL;
	return commute_restrictinfo(rinfo, commutator);
}

static RestrictInfo *
MatchList(PlannerInfo *root, IndexOptInfo *index, int column, RestrictInfo *rinfo)
{
	ScalarArrayOpExpr *clause = (ScalarArrayOpExpr *) rinfo->clause;

	if (clause->useOr && match_index_to_operand(linitial(clause->args), column, index) &&
		IsFixed(root, index, lsecond(clause->args)) &&
		CollationsFit(index, column, clause->inputcollid) &&
		op_in_opfamily(clause->opno, index->opfamily[column]))
		return rinfo;
	return NULL;
}

/*
 * The index condition for a clause; NULL: there is none.  *dropped: core before 17 leaves it out.
 */
static RestrictInfo *
MatchClause(PlannerInfo *root, IndexOptInfo *index, int column, RestrictInfo *rinfo, bool *dropped)
{
	RestrictInfo *condition;

	if (index->opcintype[column] == BOOLOID)
	{
		condition = MatchBoolean(root, index, column, rinfo->clause);
		if (condition != NULL)
		{
			*dropped = true;
			return condition;
		}
	}
	switch (nodeTag(rinfo->clause))
	{
		case T_OpExpr:
			return MatchOperator(root, index, column, rinfo);
		case T_ScalarArrayOpExpr:
			condition = MatchList(root, index, column, rinfo);
			*dropped = *dropped || condition != NULL;
			return condition;
		case T_NullTest:
			{
				NullTest   *test = (NullTest *) rinfo->clause;

				return !test->argisrow &&
					match_index_to_operand((Node *) test->arg, column, index) ? rinfo : NULL;
			}
		default:
			return NULL;
	}
}

List *
GgMatchClauses(PlannerInfo *root, IndexOptInfo *index, bool *dropped)
{
	List	   *clauses = NIL;
	ListCell   *cell;

	*dropped = false;
	for (int column = 1; column < index->nkeycolumns; column++)
		foreach(cell, index->indrestrictinfo)
		{
			RestrictInfo *rinfo = lfirst_node(RestrictInfo, cell);
			RestrictInfo *condition;
			IndexClause *clause;

			if (rinfo->pseudoconstant || !restriction_is_securely_promotable(rinfo, index->rel))
				continue;
			condition = MatchClause(root, index, column, rinfo, dropped);
			if (condition == NULL)
				continue;
			clause = makeNode(IndexClause);
			clause->rinfo = rinfo;
			clause->indexquals = list_make1(condition);
			clause->lossy = false;
			clause->indexcol = column;
			clause->indexcols = NIL;
			clauses = lappend(clauses, clause);
		}
	return clauses;
}

/* Does the query ask for NULL vectors?  They are not in the index. */
static bool
AsksForNullVectors(IndexOptInfo *index)
{
	ListCell   *cell;

	foreach(cell, index->indrestrictinfo)
	{
		Expr	   *clause = lfirst_node(RestrictInfo, cell)->clause;

		if (IsA(clause, NullTest) && ((NullTest *) clause)->nulltesttype == IS_NULL &&
			match_index_to_operand((Node *) ((NullTest *) clause)->arg, 0, index))
			return true;
	}
	return false;
}

/* The distance by which the index can order rows as the query's first sort key has it. */
static Expr *
MatchOrder(IndexOptInfo *index, PathKey *key)
{
	ListCell   *cell;

	if (!GgKeyAscends(key) || key->pk_nulls_first || key->pk_eclass->ec_has_volatile)
		return NULL;
	foreach(cell, key->pk_eclass->ec_members)
	{
		const EquivalenceMember *member = lfirst(cell);
		OpExpr	   *order;

		if (!bms_equal(member->em_relids, index->rel->relids) || !IsA(member->em_expr, OpExpr))
			continue;
		order = GgDistanceOf(index, (Node *) member->em_expr);
		if (order != NULL &&
			get_op_opfamily_sortfamily(order->opno, index->opfamily[0]) == key->pk_opfamily)
			return (Expr *) order;
	}
	return NULL;
}

IndexPath *
GgNextOrderedPath(List *paths, const IndexOptInfo *index, int *place)
{
	while (*place < list_length(paths))
	{
		IndexPath  *path = list_nth(paths, (*place)++);

		if (IsA(path, IndexPath) && path->indexinfo == index && path->indexorderbys != NIL &&
			!GgIsRangePath(path))
			return path;
	}
	return NULL;
}

/*
 * Has core a scan in the order of the distance alone?  Where keys behind it are distances, too,
 * core has the index order by all of them, which cost.c refuses.
 */
static bool
HasCorePath(const RelOptInfo *rel, const IndexOptInfo *index)
{
	const IndexPath *path;
	int			place = 0;

	while ((path = GgNextOrderedPath(rel->pathlist, index, &place)) != NULL)
		if (list_length(path->indexorderbys) == 1)
			return true;
	return false;
}

/*
 * Other keys than the distance, and keys behind it, have the index's order under strict_order
 * alone.  Where core has the path for a distance with keys behind it, that path is marked.
 */
static void
AddFilterPath(PlannerInfo *root, RelOptInfo *rel, IndexOptInfo *index)
{
	PathKey    *key = linitial(root->query_pathkeys);
	Expr	   *order = MatchOrder(index, key);
	const bool	more = list_length(root->query_pathkeys) > 1;
	const bool	by_core = order != NULL && HasCorePath(rel, index);
	OpExpr	   *marked = NULL;
	List	   *clauses;
	IndexPath  *path;
	bool		dropped;
	int			place = 0;

	if (AsksForNullVectors(index))
		return;
	if (gg_iterative_scan == GG_ITERATIVE_STRICT && GgIsEnabled(GG_SORT_KEYS) &&
		GgIsPlanning() && (order == NULL || more) && GgMayReorder(rel, NULL))
		marked = GgMatchSortKey(root, index, key);
	if (marked != NULL)
		order = (Expr *) marked;
	if (order == NULL)
		return;
	while (by_core && marked != NULL &&
		   (path = GgNextOrderedPath(rel->pathlist, index, &place)) != NULL)
		path->indexorderbys = list_make1(order);
	clauses = GgMatchClauses(root, index, &dropped);
	if ((by_core || marked == NULL) && !(dropped && !GG_CORE_KEEPS_CONDITIONS))
		return;
	path = create_index_path(root, index, clauses, list_make1(order), list_make1_int(0),
							 list_make1(key), ForwardScanDirection, false,
							 bms_copy(rel->lateral_relids), 1.0, false);
	if (!GgPathIsRefused(&path->path))
		add_path(rel, &path->path);
}

bool
GgTakesIndexPaths(RelOptInfo *rel, const RangeTblEntry *rte)
{
	return rte->rtekind == RTE_RELATION && !rte->inh && rte->tablesample == NULL &&
		!IS_DUMMY_REL(rel);
}

void
GgAddFilterPaths(PlannerInfo *root, RelOptInfo *rel, const RangeTblEntry *rte)
{
	ListCell   *cell;

	if (root->query_pathkeys == NIL || !GgTakesIndexPaths(rel, rte))
		return;
	foreach(cell, rel->indexlist)
	{
		IndexOptInfo *index = lfirst_node(IndexOptInfo, cell);
		int			place = 0;

		if (!GgTakesPaths(index))
			continue;
		/* the usual query, for which core has the path */
		if (list_length(root->query_pathkeys) == 1 &&
			(GG_CORE_KEEPS_CONDITIONS || index->nkeycolumns == 1) &&
			GgNextOrderedPath(rel->pathlist, index, &place) != NULL)
			continue;
		AddFilterPath(root, rel, index);
	}
}
