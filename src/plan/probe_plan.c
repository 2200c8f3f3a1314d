/*
 * probe_plan.c
 *		gpugraph.partition_probes: a query for the nearest rows asks the nearest partitions alone.
 *
 * A table is partitioned by LIST (gpugraph_nearest_centroid(set, column)).  A query that orders its
 * rows by distance to q and has a LIMIT gets one more condition,
 *
 *		gpugraph_nearest_centroid(set, column) = ANY (ARRAY[
 *			gpugraph_planned_probe(table, set, metric, q, 1), ..., (... q, probes)])
 *
 * and core prunes partitions by it: while it plans where q is a constant, as the executor starts
 * where it is a parameter, and anew for each outer row where it comes from there.
 *
 * Whether there is a LIMIT may be known as late, since NULL is none.  Such a query gets
 *
 *		condition OR gpugraph_nearest_centroid(set, column) >=
 *			gpugraph_planned_probe(table, set, metric, NULL, CASE WHEN limit IS NULL THEN 1 END)
 *
 * of which core knows as well that it holds in all partitions, or in none.  Under NULLS FIRST, rows
 * without a vector come first.  They lie in partition 1, so that 1 is in the array, too.
 *
 * The condition is added after the query was preprocessed, since q is a parameter by then if it was
 * a subquery, which is so evaluated once; and before conditions are handed to tables, when core
 * asks for what is known of the table.  In a partition the left side is the number that the
 * partition is for.  The support function says so, and what is left of the condition there has no
 * column.  So it takes no part in estimates and is not evaluated for rows.  Where pruning is done
 * by the executor, it would be evaluated once more for each partition that is left, by a Result
 * above its scan: GgDropProbedConditions() takes it out of the partition.
 *
 * In a partition that has several numbers the condition is evaluated for rows.  There it has
 * gpugraph_planned_nearest() on its left side, so that what the user has not written does not run
 * with the user's rights.  Core knows the partition key by equal(), which does not look at the
 * location of a constant.  So a location that no parser makes tells the support function whose
 * condition it is.
 */
#include "many/probes.h"
#include "plan/planner.h"

#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_class.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_type_d.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/plancat.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "rewrite/rewriteManip.h"
#include "storage/type.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/plancache.h"
#include "utils/syscache.h"

/* The location of the function's constant in a condition that was added here. */
#define OUR_LOCATION	(-1000)

static int	partition_probes = 0;

/* Plans were made that depend on partition_probes. */
static bool made_plans = false;

static GgTableHook prev_table_hook = NULL;

/* A column, or one of a domain as its base type; or NULL. */
static const Var *
AsColumn(const void *node)
{
	if (IsA(node, RelabelType))
		node = ((const RelabelType *) node)->arg;
	return IsA(node, Var) ? node : NULL;
}

/* The column of a call of gpugraph_nearest_centroid(set, column). */
static const Var *
ColumnOf(const FuncExpr *key)
{
	return AsColumn(lsecond(key->args));
}

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
		ColumnOf(expr) == NULL || !GgIsNearestCentroid(expr->funcid))
		return NULL;
	return expr;
}

static Oid
SetOf(const FuncExpr *key)
{
	return DatumGetObjectId(((Const *) linitial(key->args))->constvalue);
}

/* ---- which queries ------------------------------------------------------------- */

/* May there be a limit?  It is evaluated once more, in the condition. */
static bool
IsLimited(Node *limit)
{
	if (limit == NULL)
		return false;
	if (IsA(limit, Const))
		return !((const Const *) limit)->constisnull;
	return !contain_volatile_functions(limit) && !contain_subplans(limit);
}

/* Does the query want rows as they are in the tables, in some order, up to a limit? */
static bool
WantsNearest(const Query *query)
{
	return query->commandType == CMD_SELECT && IsLimited(query->limitCount) &&
		query->sortClause != NIL &&
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

/* A query for the nearest rows of a table that is partitioned by centroid. */
typedef struct Wanted
{
	const GgOwn *own;
	Oid			table;
	const FuncExpr *key;
	Index		varno;			/* the table's */
	Expr	   *query;			/* the distance to it orders the rows */
	gg_metric	metric;
	bool		nulls_first;
	int			probes;
} Wanted;

/* An operator's metric.  False: no family of the access method has the operator for that type. */
static bool
FindMetric(const GgOwn *own, Oid operator, Oid type, gg_metric *metric)
{
	CatCList   *list = SearchSysCacheList1(AMOPOPID, ObjectIdGetDatum(operator));
	Oid			support = InvalidOid;

	for (int i = 0; i < list->n_members; i++)
	{
		const Form_pg_amop form = (Form_pg_amop) GETSTRUCT(&list->members[i]->tuple);

		if (form->amopmethod == own->am && form->amoppurpose == AMOP_ORDER &&
			form->amoplefttype == type && form->amoprighttype == type)
			support = get_opfamily_proc(form->amopfamily, type, type, GG_OPCLASS_PROC);
	}
	ReleaseCatCacheList(list);
	if (!OidIsValid(support))
		return false;
	*metric = ((const GgOpclass *)
			   DatumGetPointer(OidFunctionCall1(support, PointerGetDatum(NULL))))->metric;
	return true;
}

/*
 * Are the rows first ordered by the distance of the key's column, nearest first?  Sets the query,
 * its metric and where NULLs are.
 */
static bool
IsOrdered(const Query *query, Wanted *wanted)
{
	const SortGroupClause *clause = linitial(query->sortClause);
	const OpExpr *distance = (OpExpr *) get_sortgroupclause_expr((SortGroupClause *) clause,
																 query->targetList);
	const Oid	type = wanted->own->types[wanted->key->funcid == wanted->own->nearest[1]];

	if (clause->sortop != Float8LessOperator || !IsA(distance, OpExpr) ||
		list_length(distance->args) != 2 ||
		!FindMetric(wanted->own, distance->opno, type, &wanted->metric))
		return false;
	wanted->nulls_first = clause->nulls_first;
	for (int i = 0; i < 2; i++)
	{
		const Var  *var = AsColumn(list_nth(distance->args, i));
		Node	   *other = list_nth(distance->args, 1 - i);

		if (var == NULL || var->varno != (int) wanted->varno || var->varlevelsup != 0 ||
			var->varattno != ColumnOf(wanted->key)->varattno || contain_var_clause(other) ||
			contain_volatile_functions(other))
			continue;
		wanted->query = (Expr *) other;
		return true;
	}
	return false;
}

/* How many partitions to ask; 0: all.  Where none can be left out, no function is called. */
static int
ProbesOf(Relation table, const Wanted *wanted)
{
	const PartitionBoundInfo bound = RelationGetPartitionDesc(table, false)->boundinfo;
	const int	probes = partition_probes;

	if (probes == 0 || bound == NULL ||
		(probes >= bound->ndatums && !partition_bound_has_default(bound)))
		return 0;
	return (uint32) probes < GgFindCentroids(SetOf(wanted->key), wanted->own->types[0],
											 wanted->table)->count ? probes : 0;
}

/* ---- the condition ---------------------------------------------------------------- */

static Node *
IntConst(int32 value)
{
	return (Node *) makeConst(INT4OID, -1, InvalidOid, sizeof(int32), Int32GetDatum(value), false,
							  true);
}

/* A call of gpugraph_planned_probe(), for the place-th nearest centroid to the query. */
static Node *
ProbeCall(const Wanted *wanted, Node *query, Node *place)
{
	List	   *args = list_make3(makeConst(OIDOID, -1, InvalidOid, sizeof(Oid),
											ObjectIdGetDatum(wanted->table), false, true),
								  copyObject(linitial(wanted->key->args)),
								  IntConst(wanted->metric));

	args = list_concat(args, list_make3(query, place,
										makeNullConst(INTERNALOID, -1, InvalidOid)));
	return (Node *) makeFuncExpr(wanted->own->planned_probe, INT4OID, args, InvalidOid, InvalidOid,
								 COERCE_EXPLICIT_CALL);
}

/* The key, on the query's table, with OUR_LOCATION. */
static Node *
KeyOf(const Wanted *wanted)
{
	FuncExpr   *key = copyObject(unconstify(FuncExpr *, wanted->key));

	ChangeVarNodes((Node *) key, 1, (int) wanted->varno, 0);
	((Const *) linitial(key->args))->location = OUR_LOCATION;
	return (Node *) key;
}

/* The condition that holds in all partitions where the limit is NULL, and else in none. */
static Node *
Unlimited(const Wanted *wanted, Node *limit)
{
	NullTest   *is_null = makeNode(NullTest);
	CaseWhen   *when = makeNode(CaseWhen);
	CaseExpr   *place = makeNode(CaseExpr);
	const Oid	at_least = get_opfamily_member(INTEGER_BTREE_FAM_OID, INT4OID, INT4OID,
											   BTGreaterEqualStrategyNumber);
	Node	   *call;

	is_null->arg = (Expr *) copyObject(limit);
	is_null->nulltesttype = IS_NULL;
	is_null->location = -1;
	when->expr = (Expr *) is_null;
	when->result = (Expr *) IntConst(1);
	when->location = -1;
	place->casetype = INT4OID;
	place->args = list_make1(when);
	place->defresult = (Expr *) makeNullConst(INT4OID, -1, InvalidOid);
	place->location = -1;
	call = ProbeCall(wanted, (Node *) makeNullConst(exprType((Node *) wanted->query), -1,
													InvalidOid), (Node *) place);
	return (Node *) make_opclause(at_least, BOOLOID, false, (Expr *) KeyOf(wanted), (Expr *) call,
								  InvalidOid, InvalidOid);
}

static Node *
Condition(PlannerInfo *root, const Wanted *wanted)
{
	Node	   *limit = root->parse->limitCount;
	ScalarArrayOpExpr *condition = makeNode(ScalarArrayOpExpr);
	ArrayExpr  *array = makeNode(ArrayExpr);
	Node	   *whole = (Node *) condition;

	array->array_typeid = INT4ARRAYOID;
	array->element_typeid = INT4OID;
	array->location = -1;
	for (int i = 1; i <= wanted->probes; i++)
		array->elements = lappend(array->elements,
								  ProbeCall(wanted, (Node *) copyObject(wanted->query),
											IntConst(i)));
	if (wanted->nulls_first)
		array->elements = lappend(array->elements, IntConst(1));
	condition->opno = Int4EqualOperator;
	condition->opfuncid = F_INT4EQ;
	condition->useOr = true;
	condition->args = list_make2(KeyOf(wanted), array);
	condition->location = -1;
	if (!IsA(limit, Const))
		whole = (Node *) make_orclause(list_make2(condition, Unlimited(wanted, limit)));
	return eval_const_expressions(root, whole);
}

/* The condition of a query for rows of a table; NULL: it asks all partitions. */
static Node *
ConditionFor(PlannerInfo *root, Relation table, Index varno)
{
	Wanted		wanted = {
		.table = RelationGetRelid(table), .key = CentroidKey(table), .varno = varno
	};

	if (wanted.key == NULL)
		return NULL;
	wanted.own = GgFindOwn(wanted.key->funcid);
	if (!OidIsValid(wanted.own->planned_probe) || !IsOrdered(root->parse, &wanted))
		return NULL;
	made_plans = true;
	wanted.probes = ProbesOf(table, &wanted);
	return wanted.probes > 0 ? Condition(root, &wanted) : NULL;
}

static void
AddProbes(GG_TABLE_PARAMETERS)
{
	const RangeTblEntry *entry = root->simple_rte_array[rel->relid];
	Relation	table;
	Node	   *condition;

	if (prev_table_hook != NULL)
		prev_table_hook(GG_TABLE_ARGUMENTS);
	if (entry->rtekind != RTE_RELATION || !entry->inh || rel->reloptkind != RELOPT_BASEREL ||
		!WantsNearest(root->parse) || !KeepsRows((Node *) root->parse->jointree, rel->relid))
		return;
	/* the query's lock is held */
	table = table_open(entry->relid, NoLock);
	condition = ConditionFor(root, table, rel->relid);
	if (condition != NULL)
		root->parse->jointree->quals = (Node *)
			lappend((List *) root->parse->jointree->quals, condition);
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
 * The value of gpugraph_nearest_centroid(set, column) in a partition, by its own bound or that of a
 * partition above it.  NULL: it has several, or no table above it is partitioned by that call.
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
		if (key != NULL && (SetOf(key) != set || ColumnOf(key)->varattno != attno))
			key = NULL;
		table_close(table, NoLock);
		if (key != NULL)
			return ValueOfPartition(root->simple_rte_array[varno]->relid);
		varno = info->parent_relid;
	}
	return NULL;
}

/* gpugraph_planned_nearest() for a column; NULL: its table is no partition, or has partitions. */
static Node *
PlannedNearest(PlannerInfo *root, const FuncExpr *call, Index varno)
{
	const GgOwn *own = GgFindOwn(call->funcid);
	List	   *args = list_copy_deep(call->args);

	if (root->append_rel_array == NULL || root->append_rel_array[varno] == NULL ||
		root->simple_rte_array[varno]->relkind == RELKIND_PARTITIONED_TABLE)
		return NULL;
	while (root->append_rel_array[varno] != NULL)
		varno = root->append_rel_array[varno]->parent_relid;
	args = lcons(makeConst(OIDOID, -1, InvalidOid, sizeof(Oid),
						   ObjectIdGetDatum(root->simple_rte_array[varno]->relid), false, true),
				 lappend(args, makeNullConst(INTERNALOID, -1, InvalidOid)));
	return (Node *) makeFuncExpr(own->planned_nearest, INT4OID, args, InvalidOid, InvalidOid,
								 COERCE_EXPLICIT_CALL);
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
	var = ColumnOf(request->fcall);
	if (!IsA(set, Const) || set->constisnull || var == NULL || var->varlevelsup != 0)
		PG_RETURN_POINTER(NULL);
	value = (Node *) ValueInPartition(request->root, (Index) var->varno, var->varattno,
									  DatumGetObjectId(set->constvalue));
	if (value == NULL && set->location == OUR_LOCATION)
		value = PlannedNearest(request->root, request->fcall, (Index) var->varno);
	PG_RETURN_POINTER(value);
}

static bool
HasExecParam(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
		return ((const Param *) node)->paramkind == PARAM_EXEC;
	return expression_tree_walker(node, HasExecParam, context);
}

/*
 * Is this what is left of the condition in a partition: number = ANY (ARRAY[probes]), perhaps with
 * the part for a LIMIT that is NULL, or that part alone?
 *
 * The condition stays where it has a parameter that the partition's plan may not have without it:
 * core would forget to prune anew, or not bring the parameter to parallel workers.  Where there is
 * no other table, the plan certainly has q, by which it is ordered.
 */
static bool
IsLeftover(PlannerInfo *root, const RestrictInfo *rinfo)
{
	Node	   *clause = (Node *) rinfo->clause;
	const FuncExpr *probe = NULL;

	if (!rinfo->pseudoconstant)
		return false;
	if ((!IsA(clause, ScalarArrayOpExpr) || bms_num_members(root->all_baserels) > 1) &&
		HasExecParam(clause, NULL))
		return false;
	if (is_orclause(clause))
		clause = llast(((BoolExpr *) clause)->args);
	if (is_opclause(clause))
		probe = lsecond(((OpExpr *) clause)->args);
	else if (IsA(clause, ScalarArrayOpExpr))
	{
		const ArrayExpr *array = lsecond(((ScalarArrayOpExpr *) clause)->args);

		if (IsA(array, ArrayExpr) && array->elements != NIL)
			probe = linitial(array->elements);
	}
	return probe != NULL && IsA(probe, FuncExpr) && GgIsPlannedProbe(probe->funcid);
}

static List *
WithoutLeftovers(PlannerInfo *root, List *conditions)
{
	List	   *others = NIL;
	ListCell   *cell;

	foreach(cell, conditions)
		if (!IsLeftover(root, lfirst_node(RestrictInfo, cell)))
			others = lappend(others, lfirst(cell));
	return list_length(others) < list_length(conditions) ? others : conditions;
}

void
GgDropProbedConditions(PlannerInfo *root, RelOptInfo *rel)
{
	ListCell   *cell;

	if (partition_probes == 0 || !enable_partition_pruning ||
		rel->reloptkind != RELOPT_OTHER_MEMBER_REL)
		return;
	rel->baserestrictinfo = WithoutLeftovers(root, rel->baserestrictinfo);
	foreach(cell, rel->indexlist)
	{
		IndexOptInfo *index = lfirst(cell);

		index->indrestrictinfo = WithoutLeftovers(root, index->indrestrictinfo);
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
}
