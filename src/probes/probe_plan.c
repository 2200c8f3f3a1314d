/*
 * probe_plan.c
 *		gpugraph.partition_probes: a query for the nearest rows asks the nearest partitions alone.
 *
 * A table is partitioned by LIST (gpugraph_nearest_centroid(set, column)).  A query that orders its
 * rows by distance to q and has a LIMIT gets one more condition,
 *
 *		gpugraph_nearest_centroid(set, column) = ANY (ARRAY[
 *			gpugraph_probe(set, '<->', q, 1), ..., gpugraph_probe(set, '<->', q, probes)])
 *
 * and core prunes partitions by it: while it plans where q is a constant, as the executor starts
 * where it is a parameter, and anew for each outer row where it comes from there.
 *
 * The condition is added after the query was preprocessed, since q is a parameter by then if it was
 * a subquery, which is so evaluated once; and before conditions are handed to tables, when core
 * asks for what is known of the table.  In a partition the left side is the number that the
 * partition is for.  The support function says so, and what is left of the condition there has no
 * column.  So it takes no part in estimates and is not evaluated for rows.  Where pruning is done
 * by the executor, it would be evaluated once more for each partition that is left, by a Result
 * above its scan: DropConditions() takes it out of the partition.
 */
#include "probes/probes.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation_d.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/plancat.h"
#include "optimizer/tlist.h"
#include "parser/parse_func.h"
#include "partitioning/partbounds.h"
#include "rewrite/rewriteManip.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/plancache.h"
#include "utils/syscache.h"

static int	partition_probes = 0;

/* Plans were made that depend on it. */
static bool made_plans = false;

static GgTableHook prev_table_hook = NULL;
static set_rel_pathlist_hook_type prev_pathlist_hook = NULL;

/* The key of a table that is partitioned by centroid, with varno 1; or NULL. */
static FuncExpr *
CentroidKey(Relation table)
{
	PartitionKey key = RelationGetPartitionKey(table);
	FuncExpr   *expr;

	if (key == NULL || key->strategy != PARTITION_STRATEGY_LIST || key->partnatts != 1 ||
		key->partattrs[0] != 0)
		return NULL;
	expr = linitial(key->partexprs);
	if (!IsA(expr, FuncExpr) || list_length(expr->args) != 2 ||
		!IsA(linitial(expr->args), Const) || ((Const *) linitial(expr->args))->constisnull ||
		!IsA(lsecond(expr->args), Var) || !GgIsNearestCentroid(expr->funcid))
		return NULL;
	return expr;
}

static Oid
SetOf(const FuncExpr *key)
{
	return DatumGetObjectId(((Const *) linitial(key->args))->constvalue);
}

/* ---- which queries ------------------------------------------------------------- */

/* Rows in the order of an expression, as they are in the tables, up to a limit. */
static bool
WantsNearest(const Query *query)
{
	const Const *limit = (Const *) query->limitCount;

	return query->commandType == CMD_SELECT && limit != NULL &&
		!(IsA(limit, Const) && limit->constisnull) && query->sortClause != NIL &&
		query->setOperations == NULL && !query->hasAggs && query->groupClause == NIL &&
		query->groupingSets == NIL && query->havingQual == NULL && query->distinctClause == NIL &&
		!query->hasWindowFuncs && !query->hasTargetSRFs;
}

/* May a condition on a table be one of the whole query?  Not where the table is outer-joined. */
static bool
KeepsRows(const Node *node, Index varno)
{
	if (IsA(node, RangeTblRef))
		return ((const RangeTblRef *) node)->rtindex == (int) varno;
	if (IsA(node, FromExpr))
	{
		ListCell   *cell;

		foreach(cell, ((const FromExpr *) node)->fromlist)
			if (KeepsRows(lfirst(cell), varno))
				return true;
		return false;
	}
	if (IsA(node, JoinExpr))
	{
		const JoinExpr *join = (const JoinExpr *) node;

		return (join->jointype != JOIN_RIGHT && join->jointype != JOIN_FULL &&
				KeepsRows(join->larg, varno)) ||
			((join->jointype == JOIN_INNER || join->jointype == JOIN_RIGHT) &&
			 KeepsRows(join->rarg, varno));
	}
	return false;
}

/*
 * The query of a distance that the rows are first ordered by, from that column of a table.  NULL
 * where there is none.  *oper: the operator's name.
 */
static Expr *
OrderedBy(const Query *query, Index varno, AttrNumber attno, char **oper)
{
	const SortGroupClause *clause = linitial(query->sortClause);
	const OpExpr *distance = (OpExpr *) get_sortgroupclause_expr((SortGroupClause *) clause,
																 query->targetList);

	if (!IsA(distance, OpExpr) || list_length(distance->args) != 2 ||
		exprType(linitial(distance->args)) != exprType(lsecond(distance->args)))
		return NULL;
	*oper = get_opname(distance->opno);
	if (*oper == NULL || strcmp(format_type_be(distance->opresulttype), "double precision") != 0)
		return NULL;
	for (int i = 0; i < 2; i++)
	{
		const Var  *var = list_nth(distance->args, i);
		Node	   *other = list_nth(distance->args, 1 - i);

		if (IsA(var, Var) && var->varno == (int) varno && var->varattno == attno &&
			var->varlevelsup == 0 && !contain_var_clause(other) &&
			!contain_volatile_functions(other))
			return (Expr *) other;
	}
	return NULL;
}

/* ---- the condition ---------------------------------------------------------------- */

/* The function gpugraph_probe() that lies beside gpugraph_nearest_centroid(), for that type. */
static Oid
ProbeFunction(Oid nearest, Oid type)
{
	Oid			types[] = {REGPROCEDUREOID, TEXTOID, type, INT4OID};
	List	   *name = list_make2(makeString(get_namespace_name(get_func_namespace(nearest))),
								  makeString("gpugraph_probe"));

	return LookupFuncName(name, lengthof(types), types, true);
}

static Node *
Condition(PlannerInfo *root, const FuncExpr *key, Index varno, Expr *query, char *oper)
{
	const Const *set = linitial(key->args);
	Oid			probe = ProbeFunction(key->funcid, exprType((Node *) query));
	ScalarArrayOpExpr *condition = makeNode(ScalarArrayOpExpr);
	ArrayExpr  *array = makeNode(ArrayExpr);
	FuncExpr   *left = copyObject((FuncExpr *) unconstify(FuncExpr *, key));
	Const	   *name = makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1,
								 CStringGetTextDatum(oper), false, false);

	if (!OidIsValid(probe))
		return NULL;
	ChangeVarNodes((Node *) left, 1, (int) varno, 0);
	array->array_typeid = INT4ARRAYOID;
	array->element_typeid = INT4OID;
	array->location = -1;
	for (int i = 1; i <= partition_probes; i++)
	{
		Const	   *place = makeConst(INT4OID, -1, InvalidOid, sizeof(int32), Int32GetDatum(i),
									  false, true);
		List	   *args = list_make4(copyObject(unconstify(Const *, set)), name,
									  copyObject(query), place);

		array->elements = lappend(array->elements,
								  makeFuncExpr(probe, INT4OID, args, InvalidOid, InvalidOid,
											   COERCE_EXPLICIT_CALL));
	}
	condition->opno = Int4EqualOperator;
	condition->opfuncid = F_INT4EQ;
	condition->useOr = true;
	condition->args = list_make2(left, array);
	condition->location = -1;
	return eval_const_expressions(root, (Node *) condition);
}

static void
AddProbes(GG_TABLE_PARAMETERS)
{
	const RangeTblEntry *entry = root->simple_rte_array[rel->relid];
	Relation	table;
	FuncExpr   *key;
	Expr	   *query = NULL;
	char	   *oper;
	Node	   *condition;

	if (prev_table_hook != NULL)
		prev_table_hook(GG_TABLE_ARGUMENTS);
	if (entry->rtekind != RTE_RELATION || !entry->inh || rel->reloptkind != RELOPT_BASEREL ||
		!WantsNearest(root->parse) || !KeepsRows((Node *) root->parse->jointree, rel->relid))
		return;
	/* the query's lock is held */
	table = table_open(entry->relid, NoLock);
	key = CentroidKey(table);
	if (key != NULL)
		query = OrderedBy(root->parse, rel->relid, ((Var *) lsecond(key->args))->varattno, &oper);
	made_plans |= query != NULL;
	if (query != NULL && partition_probes > 0 &&
		(uint32) partition_probes < GgFindCentroids(SetOf(key))->count)
	{
		condition = Condition(root, key, rel->relid, query, oper);
		if (condition != NULL)
			root->parse->jointree->quals = (Node *)
				lappend((List *) root->parse->jointree->quals, condition);
	}
	table_close(table, NoLock);
}

/* ---- in a partition --------------------------------------------------------------- */

/* The one value that a partition is for; NULL: it is for several, or is the default one. */
static Const *
ValueOfPartition(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	PartitionBoundSpec *bound = NULL;
	Datum		stored;
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	stored = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_relpartbound, &isnull);
	if (!isnull)
		bound = stringToNode(TextDatumGetCString(stored));
	ReleaseSysCache(tuple);
	if (bound == NULL || bound->is_default || list_length(bound->listdatums) != 1)
		return NULL;
	return linitial(bound->listdatums);
}

/*
 * The value of gpugraph_nearest_centroid(set, column) in a partition that is planned for its table,
 * or for a table that this is a partition of; NULL: it has several.
 */
static Const *
ValueInPartition(PlannerInfo *root, Index varno, AttrNumber attno, Oid set)
{
	while (attno > 0 && root->append_rel_array != NULL &&
		   varno < (Index) root->simple_rel_array_size && root->append_rel_array[varno] != NULL)
	{
		const AppendRelInfo *info = root->append_rel_array[varno];
		const RangeTblEntry *parent = root->simple_rte_array[info->parent_relid];
		FuncExpr   *key = NULL;
		Relation	table;

		if (parent->rtekind != RTE_RELATION || parent->relkind != RELKIND_PARTITIONED_TABLE ||
			attno > info->num_child_cols)
			return NULL;
		attno = info->parent_colnos[attno - 1];
		table = table_open(parent->relid, NoLock);
		key = CentroidKey(table);
		if (key != NULL && (SetOf(key) != set ||
							((Var *) lsecond(key->args))->varattno != attno))
			key = NULL;
		table_close(table, NoLock);
		if (key != NULL)
			return ValueOfPartition(root->simple_rte_array[varno]->relid);
		varno = info->parent_relid;
	}
	return NULL;
}

PG_FUNCTION_INFO_V1(gpugraph_nearest_centroid_support);

Datum
gpugraph_nearest_centroid_support(PG_FUNCTION_ARGS)
{
	SupportRequestSimplify *request = (SupportRequestSimplify *) PG_GETARG_POINTER(0);
	const Const *set;
	const Var  *var;
	Node	   *value = NULL;

	if (!IsA(request, SupportRequestSimplify) || request->root == NULL)
		PG_RETURN_POINTER(NULL);
	set = linitial(request->fcall->args);
	var = lsecond(request->fcall->args);
	if (IsA(set, Const) && !set->constisnull && IsA(var, Var) && var->varlevelsup == 0)
		value = (Node *) ValueInPartition(request->root, (Index) var->varno, var->varattno,
										  DatumGetObjectId(set->constvalue));
	PG_RETURN_POINTER(value);
}

/* Is this what is left of the condition in a partition: number = ANY (ARRAY[probes])? */
static bool
IsLeftover(const RestrictInfo *rinfo)
{
	const ScalarArrayOpExpr *condition = (ScalarArrayOpExpr *) rinfo->clause;
	const ArrayExpr *array;
	const FuncExpr *probe;

	if (!rinfo->pseudoconstant || !IsA(condition, ScalarArrayOpExpr))
		return false;
	array = lsecond(condition->args);
	if (!IsA(linitial(condition->args), Const) || !IsA(array, ArrayExpr) ||
		array->elements == NIL)
		return false;
	probe = linitial(array->elements);
	return IsA(probe, FuncExpr) && GgIsProbe(probe->funcid);
}

static List *
WithoutLeftovers(List *conditions)
{
	List	   *others = NIL;
	ListCell   *cell;

	foreach(cell, conditions)
		if (!IsLeftover(lfirst_node(RestrictInfo, cell)))
			others = lappend(others, lfirst(cell));
	return list_length(others) < list_length(conditions) ? others : conditions;
}

static void
DropConditions(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	ListCell   *cell;

	if (prev_pathlist_hook != NULL)
		prev_pathlist_hook(root, rel, rti, rte);
	if (partition_probes == 0 || !enable_partition_pruning ||
		rel->reloptkind != RELOPT_OTHER_MEMBER_REL)
		return;
	rel->baserestrictinfo = WithoutLeftovers(rel->baserestrictinfo);
	foreach(cell, rel->indexlist)
	{
		IndexOptInfo *index = lfirst(cell);

		index->indrestrictinfo = WithoutLeftovers(index->indrestrictinfo);
	}
}

/* ---- start ---------------------------------------------------------------------------- */

/* Plans that were kept have the number of probes in them. */
static void
AssignProbes(int probes, void *extra)
{
	if (probes != partition_probes && made_plans)
		ResetPlanCache();
}

void
GgInitProbes(void)
{
	DefineCustomIntVariable("gpugraph.partition_probes",
							"Sets how many partitions, of the nearest centroids, a query asks.",
							"0 means all. Only tables of gpugraph_partition_by_centroid() have "
							"such partitions.",
							&partition_probes,
							0, 0, GG_MAX_CENTROIDS,
							PGC_USERSET, GUC_EXPLAIN, NULL, AssignProbes, NULL);
	prev_table_hook = gg_table_hook;
	gg_table_hook = AddProbes;
	prev_pathlist_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = DropConditions;
}
