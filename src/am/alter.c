/*
 * alter.c
 *		ALTER INDEX ... SET refuses options that do not fit the index.
 *
 * amoptions is not told the index, so it cannot say what fits the metric or the column's type: only
 * a build could, and TRUNCATE or REINDEX failed long after the ALTER.  The hook is called when the
 * new options are in pg_class, before the command ends.
 */
#include "am/am.h"
#include "storage/type.h"

#include "access/reloptions.h"
#include "access/table.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

static object_access_hook_type prev_hook = NULL;

/* The options that pg_class has by now, which no cache has yet; NULL: none. */
static GgOptions *
NewOptions(Oid indexid)
{
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bytea	   *options = NULL;

	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(indexid));
	scan = systable_beginscan(pg_class, ClassOidIndexId, true, SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		options = extractRelOptions(tuple, RelationGetDescr(pg_class), ggoptions);
	systable_endscan(scan);
	table_close(pg_class, AccessShareLock);
	return (GgOptions *) options;
}

/* Check an index's options if they are new: who has some that do not fit may still RENAME. */
static void
CheckIndex(Relation index)
{
	const GgOptions *old = (const GgOptions *) index->rd_options;
	const GgOptions *new = NewOptions(RelationGetRelid(index));

	if (new == NULL || (old != NULL && memcmp(old, new, sizeof(GgOptions)) == 0))
		return;
	(void) GgStoredElement(GgIndexOpclass(index), new);
}

static bool
MayBeGpugraph(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	bool		may = false;

	if (HeapTupleIsValid(tuple))
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		may = form->relkind == RELKIND_INDEX && form->relam >= FirstNormalObjectId;
		ReleaseSysCache(tuple);
	}
	return may;
}

static void
AfterAlter(ObjectAccessType access, Oid classid, Oid objectid, int subid, void *arg)
{
	Relation	index;

	if (prev_hook != NULL)
		prev_hook(access, classid, objectid, subid, arg);
	if (access != OAT_POST_ALTER || classid != RelationRelationId || subid != 0 ||
		!MayBeGpugraph(objectid))
		return;
	index = RelationIdGetRelation(objectid);
	if (!RelationIsValid(index))
		return;
	if (GgIsGpugraph(index))
		CheckIndex(index);
	RelationClose(index);
}

void
GgInitAlter(void)
{
	prev_hook = object_access_hook;
	object_access_hook = AfterAlter;
}
