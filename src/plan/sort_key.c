/*
 * sort_key.c
 *		Sort keys that an index gives the order of, beside its distance in ascending order.
 */
#include "plan/planner.h"
#include "scan/sort_key.h"
#include "scan/monotone.h"
#include "storage/directory.h"
#include "storage/type.h"

#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

/* Decimals of a key that few rows share, see IsCoarse(). */
#define FINE_DECIMALS		2

/* Does the condition hold for no row whose vector is NULL? */
static bool
RefusesNull(IndexOptInfo *index, Node *clause)
{
	ListCell   *cell;

	if (IsA(clause, NullTest))
	{
		const NullTest *test = (NullTest *) clause;

		return test->nulltesttype == IS_NOT_NULL && !test->argisrow &&
			match_index_to_operand((Node *) test->arg, 0, index);
	}
	if (!IsA(clause, OpExpr) || !op_strict(((OpExpr *) clause)->opno))
		return false;
	foreach(cell, ((OpExpr *) clause)->args)
	{
		GgMonotone	monotone;

		GgTakeApart(lfirst(cell), &monotone);
		if (GgDistanceOf(index, monotone.inner) != NULL)
			return true;
	}
	return false;
}

/* Has the query no row whose vector is NULL? */
static bool
HasNoNullVector(PlannerInfo *root, IndexOptInfo *index)
{
	const RelOptInfo *rel = index->rel;
	ListCell   *cell;

	if (index->indexkeys[0] > 0 &&
		GgColumnIsNotNull(rel, planner_rt_fetch(rel->relid, root)->relid, index->indexkeys[0]))
		return true;
	foreach(cell, rel->baserestrictinfo)
		if (RefusesNull(index, (Node *) lfirst_node(RestrictInfo, cell)->clause))
			return true;
	foreach(cell, index->indpred)
		if (RefusesNull(index, lfirst(cell)))
			return true;
	return false;
}

/* Is the key's order the usual one of a type that monotone.h knows? */
static bool
IsUsualOrder(const PathKey *key, Oid type)
{
	return (type == FLOAT8OID || type == FLOAT4OID || type == NUMERICOID) &&
		lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY)->btree_opf == key->pk_opfamily;
}

/*
 * Does the key take so few values that many rows may have the first one?  With other keys behind it
 * all of these are read.  What has two decimals or more is taken to be fine enough.
 */
static bool
IsCoarse(const GgMonotone *monotone)
{
	for (int i = 0; i < monotone->nsteps; i++)
	{
		const Const *operand = (const Const *) monotone->steps[i].operand;
		const bool	known = operand != NULL && IsA(operand, Const) && !operand->constisnull;

		switch (monotone->steps[i].function)
		{
			case F_ROUND_FLOAT8:
			case F_ROUND_NUMERIC:
			case F_TRUNC_FLOAT8:
			case F_TRUNC_NUMERIC:
			case F_CEIL_FLOAT8:
			case F_CEILING_FLOAT8:
			case F_CEIL_NUMERIC:
			case F_CEILING_NUMERIC:
			case F_FLOOR_FLOAT8:
			case F_FLOOR_NUMERIC:
				return true;
			case F_ROUND_NUMERIC_INT4:
			case F_TRUNC_NUMERIC_INT4:
				if (!known || DatumGetInt32(operand->constvalue) < FINE_DECIMALS)
					return true;
				break;
			case F_NUMERIC_NUMERIC_INT4:
				/* numeric(p, s), with s as numeric.c has it */
				if (!known || (((DatumGetInt32(operand->constvalue) - VARHDRSZ) & 0x7ff) ^ 1024) -
					1024 < FINE_DECIMALS)
					return true;
				break;
			default:
				break;
		}
	}
	return false;
}

/* The marks for a key; 0: the index's order is not that of the key now. */
static uint32
MarksFor(PlannerInfo *root, IndexOptInfo *index, const PathKey *key, bool other)
{
	uint32		marks = GG_KEY_EXACT;
	Relation	relation;

	if (other)
		marks |= GG_KEY_OTHER;
	if (key->pk_nulls_first && !HasNoNullVector(root, index))
		marks |= GG_KEY_NULLS_FIRST;
	if (GgKeyAscends(key) && (marks & GG_KEY_NULLS_FIRST) == 0)
		return marks;

	relation = index_open(index->indexoid, NoLock);
	if (!GgKeyAscends(key) && GgIndexOpclass(relation)->metric == GG_METRIC_COSINE)
		marks |= GG_KEY_NANS_FIRST;
	if ((marks & (GG_KEY_NULLS_FIRST | GG_KEY_NANS_FIRST)) != 0)
	{
		GgMetaPageData *meta;
		Buffer		buffer = GgLockMeta(relation, BUFFER_LOCK_SHARE, &meta);

		if (GgLeavesOutFirst(meta, marks))
			marks = 0;
		UnlockReleaseBuffer(buffer);
	}
	index_close(relation, NoLock);
	return marks;
}

/*
 * The order's type is that of the key for now, since createplan.c looks for the key's operator of
 * that type.
 */
OpExpr *
GgMatchSortKey(PlannerInfo *root, IndexOptInfo *index, const PathKey *key)
{
	const int	direction = GgKeyAscends(key) ? 1 : -1;
	GgMemberIterator members;
	const EquivalenceMember *member;

	if (key->pk_eclass->ec_has_volatile || index->hypothetical)
		return NULL;
	GgBeginMembers(&members, key->pk_eclass, index->rel->relids);
	while ((member = GgNextMember(&members)) != NULL)
	{
		const Oid	type = exprType((Node *) member->em_expr);
		GgMonotone	monotone;
		OpExpr	   *order;
		uint32		marks;

		if (!bms_equal(member->em_relids, index->rel->relids) || !IsUsualOrder(key, type))
			continue;
		GgTakeApart((Node *) member->em_expr, &monotone);
		if (monotone.direction != direction ||
			(list_length(root->query_pathkeys) > 1 && IsCoarse(&monotone)))
			continue;
		order = GgDistanceOf(index, monotone.inner);
		if (order == NULL || !op_strict(order->opno))
			continue;
		marks = MarksFor(root, index, key, monotone.nsteps > 0);
		if (marks == 0)
			return NULL;
		order = copyObject(order);
		order->inputcollid = marks;
		if (type == NUMERICOID)
			order->opresulttype = NUMERICOID;
		return order;
	}
	return NULL;
}

void
GgSettleOrder(IndexScan *scan)
{
	OpExpr	   *order = scan->indexorderby != NIL ? linitial(scan->indexorderby) : NULL;

	if (order == NULL || !IsA(order, OpExpr) || GgKeyMarks(order->inputcollid) == 0)
		return;
	order->opresulttype = FLOAT8OID;
	order = copyObject(linitial_node(OpExpr, scan->indexorderbyorig));
	order->opresulttype = FLOAT8OID;
	order->inputcollid = InvalidOid;
	scan->indexorderbyorig = list_make1(order);
	scan->indexorderbyops = list_make1_oid(Float8LessOperator);
}
