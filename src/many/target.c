/*
 * target.c
 *		An index whose rows a user may see.
 *
 * Functions that bring rows by reading an index do what the executor and the planner do for a
 * query: they check the user's privileges, and that the index serves the snapshot.
 */
#include "many/batch.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_index.h"
#include "optimizer/optimizer.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/rls.h"
#include "utils/syscache.h"

/* An expression or predicate as it is stored.  To simplify it might run functions that it calls. */
static Node *
StoredNode(Relation index, AttrNumber attribute)
{
	bool		isnull;
	Datum		stored = SysCacheGetAttr(INDEXRELID, index->rd_indextuple, attribute, &isnull);

	return isnull ? NULL : stringToNode(TextDatumGetCString(stored));
}

/* May the user read all columns that say what the index holds? */
static bool
MayReadColumns(Relation index, Oid heapoid)
{
	Oid			user = GetUserId();
	Bitmapset  *columns = NULL;
	int			column = -1;

	for (int i = 0; i < index->rd_index->indnatts; i++)
		if (index->rd_index->indkey.values[i] != 0)
			columns = bms_add_member(columns, index->rd_index->indkey.values[i] -
									 FirstLowInvalidHeapAttributeNumber);
	pull_varattnos(StoredNode(index, Anum_pg_index_indexprs), 1, &columns);
	pull_varattnos(StoredNode(index, Anum_pg_index_indpred), 1, &columns);
	while ((column = bms_next_member(columns, column)) >= 0)
	{
		AttrNumber	attno = column + FirstLowInvalidHeapAttributeNumber;
		AclResult	result;

		/* an expression over the whole row */
		if (attno == InvalidAttrNumber)
			result = pg_attribute_aclcheck_all(heapoid, user, ACL_SELECT, ACLMASK_ALL);
		else
			result = pg_attribute_aclcheck(heapoid, attno, user, ACL_SELECT);
		if (result != ACLCHECK_OK)
			return false;
	}
	return true;
}

static void
CheckUser(const GgTarget *target)
{
	Oid			heapoid = RelationGetRelid(target->heap);

	if (pg_class_aclcheck(heapoid, GetUserId(), ACL_SELECT) != ACLCHECK_OK &&
		!MayReadColumns(target->index, heapoid))
		aclcheck_error(ACLCHECK_NO_PRIV,
					   get_relkind_objtype(target->heap->rd_rel->relkind),
					   RelationGetRelationName(target->heap));
	if (check_enable_rls(heapoid, InvalidOid, true) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("row-level security applies to table \"%s\"",
						RelationGetRelationName(target->heap)),
				 errdetail("Functions that read a gpugraph index do not apply policies."),
				 errhint("Search by ORDER BY with a distance operator and LIMIT, "
						 "or as a role that bypasses row-level security.")));
}

/* The rules by which the planner leaves out an index, see get_relation_info(). */
static void
CheckUsable(const GgTarget *target)
{
	Form_pg_index form = target->index->rd_index;

	if (!form->indisvalid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not valid", RelationGetRelationName(target->index)),
				 errdetail("It is being built concurrently, or such a build failed."),
				 errhint("Wait for the build; where it failed, drop the index or REINDEX it.")));
	if (form->indcheckxmin &&
		!TransactionIdPrecedes(HeapTupleHeaderGetXmin(target->index->rd_indextuple->t_data),
							   TransactionXmin))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" cannot be used by this transaction yet",
						RelationGetRelationName(target->index)),
				 errdetail("Rows were updated while it was built, and transactions that began "
						   "before may still see the old ones."),
				 errhint("Try again in a new transaction, "
						 "once those that are older than the index have ended.")));
	if (!RelationIsScannable(target->heap))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("materialized view \"%s\" has not been populated",
						RelationGetRelationName(target->heap)),
				 errhint("Use the REFRESH MATERIALIZED VIEW command.")));
}

void
GgOpenTarget(Oid indexoid, GgTarget *target)
{
	GgReopenTarget(indexoid, target);
	CheckUsable(target);
}

void
GgReopenTarget(Oid indexoid, GgTarget *target)
{
	GgOpenInspected(indexoid, GG_SEARCH_TABLE, &target->inspected);
	target->heap = target->inspected.heap;
	target->index = target->inspected.index;
	CheckUser(target);
	target->opclass = GgIndexOpclass(target->index);
	target->type = target->index->rd_opcintype[0];
}

void
GgCloseTarget(GgTarget *target)
{
	index_close(target->index, NoLock);
	table_close(target->heap, NoLock);
}

void
GgCheckK(int32 k)
{
	if (k < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k must be positive, not %d", k),
				 errhint("k is the number of nearest rows to find for each query.")));
}
