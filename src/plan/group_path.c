/*
 * group_path.c
 *		The planner's path for the groups that come first in the order of a distance.
 *
 * SELECT g, min(d) FROM t GROUP BY g ORDER BY 2 LIMIT k: in the order of d, the first row of a
 * group has its least distance.  So the scan of an index in that order is read until k groups were
 * seen (exec/first_of_group.c), and the table is not.  Core makes no such path.
 *
 * The answer is as good as a search.  Groups without a vector, whose min(d) is NULL and comes last,
 * are left out, as rows without one are.
 */
#include "exec/nodes.h"
#include "plan/planner.h"
#include "scan/monotone.h"

#include "catalog/pg_type_d.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planner.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

/* Rows that are near have more often the same group than rows at random. */
#define NEAR_ROWS_PER_GROUP		2.0

/* A LIMIT that is not known when the query is planned. */
#define GUESSED_LIMIT			10.0

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

/* Is there anything that is not made of these expressions? */
static bool
NeedsMore(Node *node, void *columns)
{
	if (node == NULL || list_member((List *) columns, node))
		return false;
	if (IsA(node, Var) || IsA(node, Aggref) || IsA(node, PlaceHolderVar))
		return true;
	return expression_tree_walker(node, NeedsMore, columns);
}

/*
 * What rows of the scan have: that by which they are grouped, and the distance.  *columns: the same
 * with min() in the place of the distance.  NULL: the query wants more than that.
 */
static PathTarget *
RowTarget(PlannerInfo *root, const PathTarget *groups, Aggref *min, List **columns)
{
	PathTarget *rows = create_empty_pathtarget();
	ListCell   *cell;

	foreach(cell, root->parse->groupClause)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, cell);

		if (!clause->hashable)
			return NULL;
		add_column_to_pathtarget(rows, (Expr *) get_sortgroupclause_expr(clause,
																		 root->processed_tlist), 0);
	}
	*columns = lappend(list_copy(rows->exprs), min);
	add_column_to_pathtarget(rows, linitial_node(TargetEntry, min->args)->expr, 0);
	if (NeedsMore((Node *) groups->exprs, *columns))
		return NULL;
	return set_pathtarget_cost_width(root, rows);
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

/* One target entry for each column of the child, by which setrefs.c finds them. */
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
AddGroupPath(PlannerInfo *root, IndexOptInfo *index, RelOptInfo *groups, Aggref *min)
{
	const double ngroups = Max(((Path *) linitial(groups->pathlist))->rows, 1);
	const double limit = root->limit_tuples;
	RelOptInfo *rel = index->rel;
	OpExpr	   *order = GgDistanceOf(index, (Node *) linitial_node(TargetEntry, min->args)->expr);
	CustomPath *path = makeNode(CustomPath);
	PathTarget *target;
	IndexPath  *scan;
	List	   *columns;
	bool		dropped;

	if (order == NULL || !op_strict(order->opno))
		return;
	target = RowTarget(root, groups->reltarget, min, &columns);
	if (target == NULL)
		return;
	/* so many rows are read of what is priced */
	root->limit_tuples = clamp_row_est(GroupsWanted(root->parse) * NEAR_ROWS_PER_GROUP *
									   rel->rows / ngroups);
	scan = create_index_path(root, index, GgMatchClauses(root, index, &dropped),
							 list_make1(order), list_make1_int(0), GgNoOrder(),
							 ForwardScanDirection, false, NULL, 1.0, false);
	root->limit_tuples = limit;
	if (GgPathIsRefused(&scan->path))
		return;
	path->path.pathtype = T_CustomScan;
	path->path.parent = groups;
	path->path.pathtarget = groups->reltarget;
	path->path.rows = ngroups;
	path->path.startup_cost = scan->path.startup_cost;
	path->path.total_cost = scan->path.total_cost + rel->rows * cpu_operator_cost;
	path->path.pathkeys = root->sort_pathkeys;
	path->custom_paths = list_make1(create_projection_path(root, rel, &scan->path, target));
	path->custom_private = list_make2(GroupKeys(root->parse->groupClause, columns), columns);
	path->methods = &path_methods;
	add_path(groups, &path->path);
}

static void
AddGroupPaths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input, RelOptInfo *output,
			  void *extra)
{
	Aggref	   *min;
	ListCell   *cell;

	if (prev_hook != NULL)
		prev_hook(root, stage, input, output, extra);
	if (stage != UPPERREL_GROUP_AGG || input->reloptkind != RELOPT_BASEREL ||
		input->rtekind != RTE_RELATION || input->lateral_relids != NULL ||
		gg_iterative_scan != GG_ITERATIVE_STRICT || !enable_indexscan ||
		!GgIsEnabled(GG_SORT_KEYS) || !GgIsPlanning() || output->pathlist == NIL ||
		!GgTakesIndexPaths(input, planner_rt_fetch(input->relid, root)))
		return;
	min = LeadingMin(root);
	if (min == NULL)
		return;
	foreach(cell, input->indexlist)
	{
		IndexOptInfo *index = lfirst_node(IndexOptInfo, cell);

		if (GgTakesPaths(index) && !index->hypothetical)
			AddGroupPath(root, index, output, min);
	}
}

void
GgInitGroupPaths(void)
{
	prev_hook = create_upper_paths_hook;
	create_upper_paths_hook = AddGroupPaths;
}
