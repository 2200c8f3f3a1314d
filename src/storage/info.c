/*
 * info.c
 *		gpugraph_index_info(): what an index holds, and what its blocks are used for.
 *
 * This file also says how all functions that are given an index open it, and with whose rights.
 */
#include "storage/codes.h"
#include "storage/directory.h"
#include "storage/extents.h"
#include "storage/type.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/index.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/objectaddress.h"
#include "commands/defrem.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "storage/inspect.h"

#define INFO_COLUMNS	40

static bool
IsGpugraphIndex(Oid indexoid)
{
	HeapTuple	tuple;
	bool		result = false;

	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(indexoid));
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		/* a partitioned index has the access method, but no storage */
		result = form->relkind == RELKIND_INDEX &&
			form->relam == get_index_am_oid("gpugraph", true);
		ReleaseSysCache(tuple);
	}
	return result;
}

static void
ReportWrongRelation(Oid indexoid)
{
	char	   *name = get_rel_name(indexoid);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("relation with OID %u does not exist", indexoid)));

	if (get_rel_relkind(indexoid) == RELKIND_PARTITIONED_INDEX)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is a partitioned index", name),
				 errhint("Name the index of one partition.")));
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("\"%s\" is not a gpugraph index", name),
			 errhint("Name an index created with USING gpugraph.")));
}

/*
 * Errors about an index show at most addresses of rows and lengths of vectors.  A comparison with
 * the table reads it, and runs the index's expressions as the table's owner.  Errors of both may
 * quote values of the table.
 */
static void
CheckPrivileges(Oid indexoid, Oid heapoid, GgInspection inspection)
{
	Oid			user = GetUserId();

	if (inspection == GG_SEARCH_TABLE)
	{
		if (pg_class_aclcheck(heapoid, user, ACL_SELECT) != ACLCHECK_OK &&
			pg_attribute_aclcheck_all(heapoid, user, ACL_SELECT, ACLMASK_ANY) != ACLCHECK_OK)
			aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(get_rel_relkind(heapoid)),
						   get_rel_name(heapoid));
		return;
	}
	if (GgMayMaintain(heapoid, user))
		return;
	if (!has_privs_of_role(user, ROLE_PG_STAT_SCAN_TABLES))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX, get_rel_name(indexoid));
	if (inspection == GG_CHANGE_INDEX)
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX, get_rel_name(indexoid));
	if (inspection == GG_READ_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to compare index \"%s\" with its table",
						get_rel_name(indexoid)),
				 errdetail("Membership in pg_stat_scan_tables does not suffice to read the table."),
				 errhint("Call gpugraph_check without heap_check, or as the owner of the table.")));
}

/*
 * Lock the table, as an insert does.  A session that has read it before, as SELECT of the call may
 * have, holds its indexes, too.  It must not wait for somebody who builds one of these, has the
 * table locked, and waits for it.
 */
static void
LockToChange(Oid heapoid)
{
	Relation	heap = RelationIdGetRelation(heapoid);
	bool		held = false;

	if (RelationIsValid(heap))
	{
		held = CheckRelationLockedByMe(heap, AccessShareLock, true);
		RelationClose(heap);
	}
	if (ConditionalLockRelationOid(heapoid, RowExclusiveLock))
		return;
	if (held)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock on relation \"%s\"", get_rel_name(heapoid)),
				 errdetail("Another session has it, and may wait for what this transaction has "
						   "read."),
				 errhint("Call the function once more, or before this transaction reads the "
						 "table.")));
	LockRelationOid(heapoid, RowExclusiveLock);
}

void
GgOpenInspected(Oid indexoid, GgInspection inspection, GgInspected *inspected)
{
	Oid			heapoid;

	if (!IsGpugraphIndex(indexoid))
		ReportWrongRelation(indexoid);

	/*
	 * Check before taking any lock, so that nobody can wait for, or hold up, a table that they may
	 * not inspect.
	 */
	heapoid = IndexGetRelation(indexoid, true);
	if (!OidIsValid(heapoid))
		ReportWrongRelation(indexoid);
	CheckPrivileges(indexoid, heapoid, inspection);

	/* table before index, as everybody does */
	inspected->lockmode = inspection == GG_CHANGE_INDEX ? RowExclusiveLock : AccessShareLock;
	if (inspection == GG_CHANGE_INDEX)
		LockToChange(heapoid);
	else
		LockRelationOid(heapoid, AccessShareLock);
	inspected->heap = try_table_open(heapoid, NoLock);
	inspected->index = NULL;
	if (inspected->heap != NULL)
		inspected->index = try_relation_open(indexoid, inspected->lockmode);

	/* The index may have been dropped, and its OID reused, before we had the locks. */
	if (inspected->index == NULL || !IsGpugraphIndex(indexoid) ||
		IndexGetRelation(indexoid, true) != heapoid)
		ReportWrongRelation(indexoid);

	/* while a build goes on, or after it failed, any of its blocks may still be empty */
	if (!inspected->index->rd_index->indisready)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not ready", RelationGetRelationName(inspected->index)),
				 errdetail("It is being built concurrently, or such a build failed."),
				 errhint("Wait for the build; where it failed, drop the index or REINDEX it.")));

	if (RELATION_IS_OTHER_TEMP(inspected->index))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary tables of other sessions"),
				 errdetail("Index \"%s\" belongs to another session's temporary table.",
						   RelationGetRelationName(inspected->index))));
	if (RecoveryInProgress() && !RelationIsPermanent(inspected->index))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary or unlogged relations during recovery")));
}

void
GgCloseInspected(GgInspected *inspected)
{
	index_close(inspected->index, inspected->lockmode);
	table_close(inspected->heap, inspected->lockmode);
}

void
GgActAsOwner(Relation heap, GgCaller *caller)
{
	GetUserIdAndSecContext(&caller->userid, &caller->sec_context);
	SetUserIdAndSecContext(heap->rd_rel->relowner,
						   caller->sec_context | SECURITY_RESTRICTED_OPERATION);
	caller->nest_level = NewGUCNestLevel();

	/*
	 * What RestrictSearchPath() does, which core has from 17 on.  Here it matters before, too: who
	 * may only read a table calls functions that run its owner's code.
	 */
	(void) set_config_option("search_path", GG_OWNER_PATH, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

void
GgActAsCaller(const GgCaller *caller)
{
	AtEOXact_GUC(false, caller->nest_level);
	SetUserIdAndSecContext(caller->userid, caller->sec_context);
}

static void
TellRights(void *arg)
{
	const GgRights *rights = arg;
	int			code = geterrcode();

	errcontext("expression of index \"%s\", evaluated as role \"%s\" with search_path = %s",
			   rights->index, rights->owner, GG_OWNER_PATH);
	if (code == ERRCODE_UNDEFINED_FUNCTION || code == ERRCODE_AMBIGUOUS_FUNCTION ||
		code == ERRCODE_UNDEFINED_TABLE || code == ERRCODE_UNDEFINED_OBJECT)
		errhint("Qualify the names in the functions that the expression calls, or give these "
				"functions a search_path: ALTER FUNCTION ... SET search_path.");
}

void
GgFindRights(GgRights *rights, Relation index, Relation heap)
{
	rights->callback.callback = TellRights;
	rights->callback.arg = rights;
	rights->index = pstrdup(RelationGetRelationName(index));
	rights->owner = GetUserNameFromId(heap->rd_rel->relowner, false);
}

static const char *const metric_names[] = {
	[GG_METRIC_L2] = "l2", [GG_METRIC_IP] = "ip", [GG_METRIC_COSINE] = "cosine",
	[GG_METRIC_L1] = "l1"
};

static const char *const engine_names[] = {"none", "cpu", "cuda"};

/* The name of a number of the metapage. */
static const char *
NameOf(uint16 number, const char *const *names, int count)
{
	return number < count && names[number] != NULL ? names[number] : "unknown";
}

/* The kind of codes that the pieces have. */
static const char *
CodesOf(const GgMetaPageData *meta)
{
	for (int i = 1; i < meta->npieces; i++)
		if (meta->pieces[i].codes != meta->pieces[0].codes)
			return "several";
	return GgCodesName(meta->npieces > 0 ? meta->pieces[0].codes : GG_CODES_NONE);
}

/* Why the index has these codes, or none. */
static const char *
ReasonOfCodes(Relation index, const GgMetaPageData *meta, int64 rows)
{
	const char *why = GgWhyNoCodes(meta, (double) rows);
	GgOptions	options;

	GgGetOptions(index, &options);
	if (meta->coded != GG_CODES_NONE)
		return "storage";
	if (options.codes != GG_CODES_AUTO)
		return "option";
	if (meta->npieces > 0 && meta->pieces[0].codes != GG_CODES_NONE)
		return "auto";
	return why != NULL ? why : "not asked for";
}

PG_FUNCTION_INFO_V1(gpugraph_index_info);

Datum
gpugraph_index_info(PG_FUNCTION_ARGS)
{
	GgInspected inspected;
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	TupleDesc	tupdesc = GgResultRow(fcinfo, INFO_COLUMNS);
	Datum		values[INFO_COLUMNS];
	bool		nulls[INFO_COLUMNS] = {0};
	int64		blocks[GG_LAST_KIND + 1] = {0};
	int64		rows = 0,
				pivots = 0,
				dead,
				delta_rows;
	int64		total;
	GgArray		sample_array;
	GgSampleHead sample = {0};
	int			c = 0;

	GgOpenInspected(PG_GETARG_OID(0), GG_READ_INDEX, &inspected);
	GgReadMeta(inspected.index, meta);
	delta_rows = GgCountDeltaRows(inspected.index, meta);
	(void) GgFindSample(inspected.index, meta, &sample_array, &sample);

	dead = meta->delta_dead;
	for (int i = 0; i < meta->nsegments; i++)
	{
		rows += meta->segments[i].rows;
		pivots += meta->segments[i].npivots;
		dead += meta->segments[i].dead;
	}
	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->kind <= GG_LAST_KIND)
			blocks[extent->kind] += extent->nblocks;
	}
	total = RelationGetNumberOfBlocks(inspected.index);

	values[c++] = Int32GetDatum(meta->version);
	values[c++] = Int32GetDatum(meta->dimensions);
	values[c++] = CStringGetTextDatum(NameOf(meta->metric, metric_names,
										  lengthof(metric_names)));
	values[c++] = CStringGetTextDatum(GgStorageName(meta));
	values[c++] = CStringGetTextDatum(GgAlgorithmName(meta->algorithm));
	values[c++] = CStringGetTextDatum(NameOf(meta->engine, engine_names,
										  lengthof(engine_names)));
	values[c++] = Int64GetDatum((int64) GgCountNodes(meta));
	values[c++] = Int64GetDatum(rows);
	values[c++] = Int32GetDatum(meta->nsegments);
	values[c++] = Int64GetDatum(pivots);
	values[c++] = Int64GetDatum(delta_rows);
	values[c++] = Int64GetDatum(dead);
	values[c++] = Int32GetDatum(meta->graph_degree);
	values[c++] = Int32GetDatum(meta->intermediate_graph_degree);
	values[c++] = Int32GetDatum(meta->seed);
	values[c++] = Int64GetDatum((int64) meta->generation);
	values[c++] = Int64GetDatum(blocks[GG_KIND_VECTORS] * BLCKSZ);
	values[c++] = Int64GetDatum(blocks[GG_KIND_ADJACENCY] * BLCKSZ);
	values[c++] = Int64GetDatum((blocks[GG_KIND_TIDS] + blocks[GG_KIND_OFFSETS]) * BLCKSZ);
	values[c++] = Int64GetDatum(blocks[GG_KIND_PIVOTS] * BLCKSZ);
	values[c++] = Int64GetDatum(blocks[GG_KIND_DELTA] * BLCKSZ);
	values[c++] = Int64GetDatum(blocks[GG_KIND_FREE] * BLCKSZ);
	values[c++] = Int64GetDatum(total * BLCKSZ);
	values[c++] = Float4GetDatum(meta->times.total_s);
	values[c++] = Float4GetDatum(meta->times.scan_s);
	values[c++] = Float4GetDatum(meta->times.copy_s);
	values[c++] = Float4GetDatum(meta->times.knn_s);
	values[c++] = Float4GetDatum(meta->times.optimize_s);
	values[c++] = Float4GetDatum(meta->times.write_s);
	values[c++] = Float4GetDatum(meta->times.wal_s);
	values[c++] = Int32GetDatum(meta->ncolumns);
	values[c++] = Int64GetDatum(blocks[GG_KIND_FILTERS] * BLCKSZ);
	values[c++] = Int32GetDatum(meta->nextents);
	values[c++] = Int32GetDatum(GG_MAX_EXTENTS);
	values[c++] = Int64GetDatum(GgParkedBlocks(inspected.heap, meta) * BLCKSZ);
	values[c++] = CStringGetTextDatum(CodesOf(meta));
	values[c++] = Int64GetDatum((blocks[GG_KIND_CODES] + blocks[GG_KIND_MEAN]) * BLCKSZ);
	values[c++] = Int32GetDatum((int32) sample.count);
	values[c++] = Int64GetDatum(blocks[GG_KIND_SAMPLE] * BLCKSZ);
	values[c++] = CStringGetTextDatum(ReasonOfCodes(inspected.index, meta, rows));
	Assert(c == INFO_COLUMNS);

	GgCloseInspected(&inspected);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls)));
}
