/*
 * group_path.c
 *		The planner's paths for the first rows of each group in the order of a distance.
 *
 * In the order of d, the first row of a group has its least distance, and the n-th one the number
 * n.  So the scan of an index in that order is read until LIMIT has its rows
 * (exec/first_of_group.c), and the table is not.  Core makes no such path.
 *
 *	SELECT g, min(d) FROM t GROUP BY g ORDER BY 2 LIMIT k
 *	SELECT ... FROM (SELECT ..., row_number() OVER (PARTITION BY g ORDER BY d) AS n FROM t) s
 *		WHERE n <= 3 ORDER BY d LIMIT k
 *	SELECT ... FROM (SELECT DISTINCT ON (g) ... FROM t ORDER BY g, d) s ORDER BY d LIMIT k
 *
 * The path of such a subquery has its rows in the order of d.  It is there only where the query
 * around it has nothing but this subquery, and wants that order and a LIMIT.
 *
 * The answer is as good as a search.  Rows without a vector, whose d is NULL and comes last, are
 * left out, and so are groups that have no others.
 */
#include "exec/nodes.h"
#include "plan/planner.h"
#include "scan/monotone.h"
#include "scan/sort_key.h"

#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"
#include "utils/typcache.h"

/* Rows that are near have more often the same group than rows at random. */
#define NEAR_ROWS_PER_GROUP		2.0

/* A LIMIT that is not known when the query is planned. */
#define GUESSED_LIMIT			10.0

/* What such a path is made of. */
typedef struct FirstRows
{
	List	   *groups;			/* SortGroupClauses */
	Node	   *distance;
	PathTarget *target;			/* what is wanted of a row */
	PathTarget *rows;			/* what the scan's rows have: first what they are grouped by */
	List	   *columns;		/* rows' columns with min(d) for d; then row_number() if any */
	int			most;			/* rows of a group */
	List	   *pathkeys;
	double		ngroups;
	double		wanted;			/* rows */
} FirstRows;

static create_upper_paths_hook_type prev_hook = NULL;

/* min() of something, in whose order alone the query wants its groups; or NULL. */
static Aggref *
LeadingMin(PlannerInfo *root)
{
	const Query *parse = root->parse;
	const PathKey *key;
	Aggref	   *min;

	if (parse->groupClause == NIL || parse->groupingSets != NIL || parse->havingQual != NULL ||
		parse->hasWindowFuncs || parse->hasTargetSRFs || parse->distinctClause != NIL ||
		parse->limitCount == NULL || parse->limitOption != LIMIT_OPTION_COUNT ||
		list_length(parse->sortClause) != 1 || list_length(root->sort_pathkeys) != 1)
		return NULL;
	key = linitial(root->sort_pathkeys);
	min = (Aggref *) get_sortgroupclause_expr(linitial(parse->sortClause),
											  root->processed_tlist);
	if (!IsA(min, Aggref) || min->aggfnoid != F_MIN_FLOAT8 || min->aggfilter != NULL ||
		min->aggdistinct != NIL || min->aggorder != NIL || !GgKeyAscends(key) ||
		key->pk_nulls_first ||
		key->pk_opfamily != lookup_type_cache(FLOAT8OID, TYPECACHE_BTREE_OPFAMILY)->btree_opf)
		return NULL;
	return min;
}

/* Does an expression need a column or an aggregate that is in none of these expressions? */
static bool
NeedsMore(Node *node, void *columns)
{
	if (node == NULL || list_member((List *) columns, node))
		return false;
	if (IsA(node, Var) || IsA(node, Aggref) || IsA(node, PlaceHolderVar))
		return true;
	return expression_tree_walker(node, NeedsMore, columns);
}

/* The scan's rows begin with that by which they are grouped.  False: it cannot be hashed. */
static bool
BeginRows(PlannerInfo *root, FirstRows *first)
{
	ListCell   *cell;

	first->rows = create_empty_pathtarget();
	foreach(cell, first->groups)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, cell);

		if (!clause->hashable)
			return false;
		add_column_to_pathtarget(first->rows, (Expr *)
								 get_sortgroupclause_expr(clause, root->processed_tlist), 0);
	}
	return true;
}

/* Operators and collations of the columns that make a group. */
static List *
GroupKeys(const List *clauses, const List *columns)
{
	List	   *operators = NIL,
			   *collations = NIL;
	ListCell   *cell;

	foreach(cell, clauses)
	{
		operators = lappend_oid(operators, lfirst_node(SortGroupClause, cell)->eqop);
		collations = lappend_oid(collations,
								 exprCollation(list_nth(columns, foreach_current_index(cell))));
	}
	return list_make2(operators, collations);
}

/* Rows of LIMIT and OFFSET, as far as they are known. */
static double
GroupsWanted(const Query *parse)
{
	const Const *count = (const Const *) parse->limitCount;
	const Const *offset = (const Const *) parse->limitOffset;
	double		wanted = GUESSED_LIMIT;

	if (IsA(count, Const) && !count->constisnull)
		wanted = (double) DatumGetInt64(count->constvalue);
	if (offset != NULL && IsA(offset, Const) && !offset->constisnull)
		wanted += (double) DatumGetInt64(offset->constvalue);
	return Max(wanted, 1);
}

/* custom_scan_tlist has an entry for each column of the node, by which setrefs.c finds it. */
static Plan *
PlanGroupPath(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
			  List *children)
{
	CustomScan *scan = makeNode(CustomScan);
	ListCell   *cell;

	foreach(cell, (List *) lsecond(path->custom_private))
		scan->custom_scan_tlist = lappend(scan->custom_scan_tlist,
										  makeTargetEntry(copyObject(lfirst(cell)),
														  foreach_current_index(cell) + 1, NULL,
														  false));
	scan->scan.plan.targetlist = tlist;
	scan->custom_plans = children;
	scan->custom_private = linitial(path->custom_private);
	scan->methods = &gg_first_of_group.plan;
	return &scan->scan.plan;
}

static const CustomPathMethods path_methods = {
	.CustomName = "GpugraphFirstOfGroup",
	.PlanCustomPath = PlanGroupPath
};

static void
AddFirstRows(PlannerInfo *root, IndexOptInfo *index, RelOptInfo *output, const FirstRows *first)
{
	const double limit = root->limit_tuples;
	RelOptInfo *rel = index->rel;
	OpExpr	   *order = GgDistanceOf(index, first->distance);
	CustomPath *path = makeNode(CustomPath);
	IndexPath  *scan;
	bool		dropped;

	if (order == NULL || !op_strict(order->opno))
		return;
	/* the plan wants strict order whatever the settings are when it runs */
	order = copyObject(order);
	order->inputcollid = GG_KEY_OTHER;
	/* the scan is priced for as many rows as are likely to be read */
	root->limit_tuples = clamp_row_est(first->wanted * NEAR_ROWS_PER_GROUP * rel->rows /
									   (first->ngroups * first->most));
	scan = create_index_path(root, index, GgMatchClauses(root, index, &dropped),
							 list_make1(order), list_make1_int(0), GgNoOrder(),
							 ForwardScanDirection, false, NULL, 1.0, false);
	root->limit_tuples = limit;
	if (GgPathIsRefused(&scan->path))
		return;
	path->path.pathtype = T_CustomScan;
	path->path.parent = output;
	path->path.pathtarget = first->target;
	path->path.rows = clamp_row_est(Min(first->ngroups * first->most, rel->rows));
	path->path.startup_cost = scan->path.startup_cost;
	path->path.total_cost = scan->path.total_cost + rel->rows * cpu_operator_cost;
	path->path.pathkeys = first->pathkeys;
	path->custom_paths = list_make1(create_projection_path(root, rel, &scan->path,
														   set_pathtarget_cost_width(root,
																					 first->rows)));
	path->custom_private = list_make2(lappend(GroupKeys(first->groups, first->columns),
											  list_make1_int(first->most)), first->columns);
	path->methods = &path_methods;
	add_path(output, &path->path);
}

/* ---- min() of each group -------------------------------------------------- */

static bool
FirstOfGroups(PlannerInfo *root, RelOptInfo *output, FirstRows *first)
{
	Aggref	   *min = LeadingMin(root);

	if (min == NULL || output->pathlist == NIL)
		return false;
	first->groups = root->parse->groupClause;
	if (!BeginRows(root, first))
		return false;
	first->distance = (Node *) linitial_node(TargetEntry, min->args)->expr;
	first->columns = lappend(list_copy(first->rows->exprs), min);
	add_column_to_pathtarget(first->rows, (Expr *) first->distance, 0);
	first->target = output->reltarget;
	first->most = 1;
	first->pathkeys = root->sort_pathkeys;
	first->ngroups = Max(((Path *) linitial(output->pathlist))->rows, 1);
	first->wanted = GroupsWanted(root->parse);
	return !NeedsMore((Node *) first->target->exprs, first->columns);
}

/* ---- subqueries ----------------------------------------------------------- */

/* Does the query hand on rows of its FROM, without aggregates, groups, locks and the like? */
static bool
IsPlain(const Query *query)
{
	return !query->hasAggs && query->groupClause == NIL && query->groupingSets == NIL &&
		query->havingQual == NULL && !query->hasTargetSRFs && query->rowMarks == NIL &&
		query->setOperations == NULL;
}

static bool
AscendsAsDistance(const SortGroupClause *clause)
{
	return clause->sortop == Float8LessOperator && !clause->nulls_first;
}

/* Do conditions on rows of the subquery ask for nothing but their numbers? */
static bool
AskForNumbersAlone(const PlannerInfo *root, const RelOptInfo *subquery)
{
	ListCell   *cell;

	foreach(cell, subquery->baserestrictinfo)
	{
		List	   *vars = pull_var_clause((Node *) lfirst_node(RestrictInfo, cell)->clause,
										   PVC_RECURSE_PLACEHOLDERS);
		ListCell   *var;

		foreach(var, vars)
			if (lfirst_node(Var, var)->varattno <= 0 ||
				!IsA(get_tle_by_resno(root->processed_tlist,
									  lfirst_node(Var, var)->varattno)->expr, WindowFunc))
				return false;
	}
	return true;
}

/*
 * The expression of a subquery in whose order the query around it wants rows, up to a LIMIT; or
 * NULL.  Nothing else may be in FROM, and no condition may drop rows: the scan does not know how
 * many.  Where the subquery is one of WITH or of an expression, the query around it has no tables
 * yet.
 */
static Node *
WantedOrder(const PlannerInfo *root)
{
	const PlannerInfo *parent = root->parent_root;
	const Query *query;
	const RelOptInfo *subquery;
	const RangeTblRef *from;
	const Var  *key;

	if (parent == NULL || parent->simple_rel_array == NULL)
		return NULL;
	query = parent->parse;
	if (!IsPlain(query) || query->hasWindowFuncs || query->distinctClause != NIL ||
		query->limitCount == NULL || query->limitOption != LIMIT_OPTION_COUNT ||
		query->sortClause == NIL || list_length(query->jointree->fromlist) != 1 ||
		!AscendsAsDistance(linitial(query->sortClause)))
		return NULL;
	from = linitial(query->jointree->fromlist);
	key = (const Var *) get_sortgroupclause_expr(linitial(query->sortClause), query->targetList);
	if (!IsA(from, RangeTblRef) || !IsA(key, Var) || key->varno != from->rtindex ||
		key->varattno <= 0)
		return NULL;
	subquery = parent->simple_rel_array[from->rtindex];
	if (subquery->rtekind != RTE_SUBQUERY || subquery->subroot != NULL ||
		!AskForNumbersAlone(root, subquery))
		return NULL;
	return (Node *) get_tle_by_resno(root->processed_tlist, key->varattno)->expr;
}

/* The largest number that passes the run conditions of core's WindowAgg; 0: none, or not known. */
static int
MostByConditions(const WindowFunc *number, const WindowClause *window)
{
	int64		most = PG_INT32_MAX;
	ListCell   *cell;

	if (GgRunConditions(number, window) == NIL)
		return 0;
	foreach(cell, GgRunConditions(number, window))
	{
		GgRunCondition condition = GgReadRunCondition(lfirst(cell));
		const Const *value = (const Const *) condition.operand;
		int			strategy = get_op_opfamily_strategy(condition.opno, INTEGER_BTREE_FAM_OID);
		int64		number_of;

		if (!IsA(value, Const) || value->constisnull ||
			(value->consttype != INT4OID && value->consttype != INT8OID))
			return 0;
		if (!condition.number_first)
			strategy = BTMaxStrategyNumber + 1 - strategy;
		number_of = value->consttype == INT4OID ? DatumGetInt32(value->constvalue) :
			DatumGetInt64(value->constvalue);
		if (strategy == BTLessStrategyNumber)
			most = Min(most, number_of - 1);
		else if (strategy == BTLessEqualStrategyNumber)
			most = Min(most, number_of);
		else
			return 0;
	}
	return (int) Max(most, 0);
}

/* Add what else is wanted of a row.  False: that has a window function beside the row's number. */
static bool
AddColumns(FirstRows *first, const WindowFunc *number)
{
	ListCell   *cell;

	foreach(cell, first->target->exprs)
	{
		if (number != NULL && equal(lfirst(cell), number))
			continue;
		if (contain_window_function(lfirst(cell)))
			return false;
		if (!list_member(first->rows->exprs, lfirst(cell)))
			add_column_to_pathtarget(first->rows, lfirst(cell), 0);
	}
	first->columns = list_copy(first->rows->exprs);
	if (number != NULL)
		first->columns = lappend(first->columns, (void *) number);
	return true;
}

/* SELECT DISTINCT ON (g) ... ORDER BY g, d */
static bool
FirstByDistinct(PlannerInfo *root, FirstRows *first)
{
	const Query *query = root->parse;

	if (!query->hasDistinctOn || query->hasWindowFuncs ||
		list_length(query->sortClause) != list_length(query->distinctClause) + 1)
		return false;
	first->groups = query->distinctClause;
	first->pathkeys = list_make1(llast(query->sortClause));
	first->most = 1;
	return BeginRows(root, first) && AddColumns(first, NULL);
}

/* SELECT ..., row_number() OVER (PARTITION BY g ORDER BY d) */
static bool
FirstByNumber(PlannerInfo *root, FirstRows *first)
{
	const Query *query = root->parse;
	const WindowFunc *number = NULL;
	const WindowClause *window;
	ListCell   *cell;

	if (!query->hasWindowFuncs || list_length(query->windowClause) != 1 ||
		query->distinctClause != NIL || query->sortClause != NIL)
		return false;
	window = linitial_node(WindowClause, query->windowClause);
	foreach(cell, first->target->exprs)
		if (IsA(lfirst(cell), WindowFunc))
			number = lfirst(cell);
	if (number == NULL || number->winfnoid != F_ROW_NUMBER || number->aggfilter != NULL ||
		window->partitionClause == NIL || list_length(window->orderClause) != 1)
		return false;
	first->groups = window->partitionClause;
	first->pathkeys = list_copy(window->orderClause);
	first->most = MostByConditions(number, window);
	return first->most > 0 && BeginRows(root, first) && AddColumns(first, number);
}

static bool
FirstOfSubquery(PlannerInfo *root, FirstRows *first)
{
	const Query *query = root->parse;
	SortGroupClause *order;

	first->distance = WantedOrder(root);
	if (first->distance == NULL || !IsPlain(query) || query->limitCount != NULL ||
		query->limitOffset != NULL)
		return false;
	first->target = root->upper_targets[UPPERREL_FINAL];
	if (contain_volatile_functions((Node *) first->target->exprs) ||
		(!FirstByDistinct(root, first) && !FirstByNumber(root, first)))
		return false;
	order = linitial_node(SortGroupClause, first->pathkeys);
	if (!AscendsAsDistance(order) ||
		!equal(get_sortgroupclause_expr(order, root->processed_tlist), first->distance))
		return false;
	first->pathkeys = make_pathkeys_for_sortclauses(root, first->pathkeys, root->processed_tlist);
	first->wanted = GroupsWanted(root->parent_root->parse);
	return true;
}

static void
AddGroupPaths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input, RelOptInfo *output,
			  void *extra)
{
	FirstRows	first = {0};
	RelOptInfo *rel;
	ListCell   *cell;
	int			relid;

	if (prev_hook != NULL)
		prev_hook(root, stage, input, output, extra);
	if ((stage != UPPERREL_GROUP_AGG && (stage != UPPERREL_FINAL || root->parent_root == NULL)) ||
		gg_iterative_scan != GG_ITERATIVE_STRICT || !enable_indexscan ||
		!GgIsEnabled(GG_SORT_KEYS) || !GgIsPlanning() ||
		!bms_get_singleton_member(root->all_baserels, &relid))
		return;
	rel = root->simple_rel_array[relid];
	if (rel->rtekind != RTE_RELATION || rel->lateral_relids != NULL ||
		!GgTakesIndexPaths(rel, planner_rt_fetch(relid, root)) ||
		!(stage == UPPERREL_FINAL ? FirstOfSubquery(root, &first) :
		  FirstOfGroups(root, output, &first)))
		return;
	if (stage == UPPERREL_FINAL)
		first.ngroups = Max(estimate_num_groups(root, list_truncate(list_copy(first.rows->exprs),
																	list_length(first.groups)),
												rel->rows, NULL, NULL), 1);
	foreach(cell, rel->indexlist)
	{
		IndexOptInfo *index = lfirst_node(IndexOptInfo, cell);

		if (GgTakesPaths(index) && !index->hypothetical)
			AddFirstRows(root, index, output, &first);
	}
}

void
GgInitGroupPaths(void)
{
	prev_hook = create_upper_paths_hook;
	create_upper_paths_hook = AddGroupPaths;
}
