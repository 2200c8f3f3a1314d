/*
 * compat.h
 *		All differences between PostgreSQL 15 and 19 that this extension meets.
 */
#ifndef GG_COMPAT_H
#define GG_COMPAT_H

#include <fcntl.h>

#include "access/amapi.h"
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/nbtxlog.h"
#include "access/relscan.h"
#include "access/rmgr.h"
#include "access/xloginsert.h"
#include "catalog/index.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "commands/explain.h"
#include "commands/vacuum.h"
#include "common/relpath.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "nodes/tidbitmap.h"
#include "optimizer/paths.h"
#include "port/pg_iovec.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "storage/lmgr.h"
#include "storage/smgr.h"
#include "storage/sync.h"
#include "utils/acl.h"
#include "utils/date.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif

#if PG_VERSION_NUM >= 190000
#include "access/tableam.h"
#include "nodes/miscnodes.h"
#endif

#if PG_VERSION_NUM < 150000
#error "gpugraph needs PostgreSQL 15 or newer"
#endif

/* In 18 pg_noreturn stands before a declaration.  The older attribute stood behind one. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn				pg_attribute_noreturn()
#endif

#if PG_VERSION_NUM >= 160000
#define GgLocator(rel)			((rel)->rd_locator)
#define GgFirstLocatorSubid(rel) ((rel)->rd_firstRelfilelocatorSubid)
typedef RelFileLocator GgRelFileLocator;
#define GgFileOf(tablespace, file) \
	((RelFileLocator) {.spcOid = OidIsValid(tablespace) ? (tablespace) : MyDatabaseTableSpace, \
	 .dbOid = MyDatabaseId, .relNumber = (file)})
#define GgOwnerCheck(classid, objectid, roleid) object_ownercheck(classid, objectid, roleid)
#define GgMayExecute(function, roleid) \
	(object_aclcheck(ProcedureRelationId, function, roleid, ACL_EXECUTE) == ACLCHECK_OK)
#else
#define GgLocator(rel)			((rel)->rd_node)
#define GgFirstLocatorSubid(rel) ((rel)->rd_firstRelfilenodeSubid)
typedef RelFileNode GgRelFileLocator;
#define GgFileOf(tablespace, file) \
	((RelFileNode) {.spcNode = OidIsValid(tablespace) ? (tablespace) : MyDatabaseTableSpace, \
	 .dbNode = MyDatabaseId, .relNode = (file)})
#define GgOwnerCheck(classid, objectid, roleid) \
	((classid) == RelationRelationId ? pg_class_ownercheck(objectid, roleid) : false)
#define GgMayExecute(function, roleid) \
	(pg_proc_aclcheck(function, roleid, ACL_EXECUTE) == ACLCHECK_OK)
#endif

/*
 * May a role maintain a table, and all tables?  17 brought the privilege MAINTAIN and the role
 * pg_maintain.  Before 17 the owner may maintain a table, and superusers all of them.
 */
#if PG_VERSION_NUM >= 170000
#define GgMayMaintain(relid, roleid) \
	(GgOwnerCheck(RelationRelationId, relid, roleid) || \
	 pg_class_aclcheck(relid, roleid, ACL_MAINTAIN) == ACLCHECK_OK)
#define GgMayMaintainAll(roleid) has_privs_of_role(roleid, ROLE_PG_MAINTAIN)
#else
#define GgMayMaintain(relid, roleid) GgOwnerCheck(RelationRelationId, relid, roleid)
#define GgMayMaintainAll(roleid) superuser_arg(roleid)
#endif

/* May VACUUM give back the end of a table's file?  18 brought a setting for all tables. */
static inline bool
GgMayTruncate(Relation heap)
{
	const StdRdOptions *options = (const StdRdOptions *) heap->rd_options;

#if PG_VERSION_NUM >= 190000
	if (options == NULL || options->vacuum_truncate == PG_TERNARY_UNSET)
		return vacuum_truncate;
	return options->vacuum_truncate == PG_TERNARY_TRUE;
#else
#if PG_VERSION_NUM >= 180000
	if (options == NULL || !options->vacuum_truncate_set)
		return vacuum_truncate;
#endif
	return options == NULL || options->vacuum_truncate;
#endif
}

#if PG_VERSION_NUM >= 180000
#define GgVacuumDelayPoint()	vacuum_delay_point(false)
#else
#define GgVacuumDelayPoint()	vacuum_delay_point()
#endif

/* Mark a path as disabled; is it?  Before 18 there is no such mark, and costs alone say it. */
#if PG_VERSION_NUM >= 180000
#define GgDisablePath(path)		((path)->disabled_nodes = 2)
#define GgIsDisabled(path)		((path)->disabled_nodes > 0)
#else
#define GgDisablePath(path)		((void) 0)
#define GgIsDisabled(path)		false
#endif

/* Is a sort key ascending? */
#if PG_VERSION_NUM >= 180000
#define GgKeyAscends(key)		((key)->pk_cmptype == COMPARE_LT)
#define GgSetKeyAscends(key)	((key)->pk_cmptype = COMPARE_LT)
#else
#define GgKeyAscends(key)		((key)->pk_strategy == BTLessStrategyNumber)
#define GgSetKeyAscends(key)	((key)->pk_strategy = BTLessStrategyNumber)
#endif

/* Iterate over the members of an equivalence class, those for child tables among them. */
#if PG_VERSION_NUM >= 180000
typedef EquivalenceMemberIterator GgMemberIterator;
#define GgBeginMembers(it, ec, relids)	setup_eclass_member_iterator(it, ec, relids)
#define GgNextMember(it)		eclass_member_iterator_next(it)
#else
typedef struct GgMemberIterator
{
	const List *members;
	int			next;
} GgMemberIterator;

static inline void
GgBeginMembers(GgMemberIterator *it, const EquivalenceClass *ec, Relids relids)
{
	it->members = ec->ec_members;
	it->next = 0;
}

static inline EquivalenceMember *
GgNextMember(GgMemberIterator *it)
{
	return it->next < list_length(it->members) ?
		list_nth_node(EquivalenceMember, it->members, it->next++) : NULL;
}
#endif

/* Is a column of the table declared NOT NULL?  Expressions, which have number 0, are not. */
static inline bool
GgIsDeclaredNotNull(Oid relid, AttrNumber column)
{
	HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid), Int16GetDatum(column));
	bool		not_null = HeapTupleIsValid(tuple) &&
		((Form_pg_attribute) GETSTRUCT(tuple))->attnotnull;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return not_null;
}

/*
 * Is a column of the table NOT NULL, so that no row has a NULL there?  From 18 on a column may be
 * declared NOT NULL though its rows were not checked; rel->notnullattnums has no such column.
 */
static inline bool
GgColumnIsNotNull(const RelOptInfo *rel, Oid relid, AttrNumber column)
{
#if PG_VERSION_NUM >= 180000
	return bms_is_member(column, rel->notnullattnums);
#else
	return GgIsDeclaredNotNull(relid, column);
#endif
}

/*
 * From 17 on core takes IN lists on any column into paths that are ordered by an operator, and bare
 * booleans for the families of extensions.
 */
#define GG_CORE_KEEPS_CONDITIONS (PG_VERSION_NUM >= 170000)

/* From 18 on EXPLAIN ANALYZE counts searches. */
#if PG_VERSION_NUM >= 180000
#define GgCountSearch(scan) \
	do { if ((scan)->instrument != NULL) (scan)->instrument->nsearches++; } while (0)
#else
#define GgCountSearch(scan)		((void) 0)
#endif

/*
 * From 18 on, have EXPLAIN call a function that prints fields of a plan's nodes.  Returns the
 * function that was there before, which the new one has to call; NULL: there was none.
 */
#if PG_VERSION_NUM >= 180000
typedef explain_per_node_hook_type GgExplainNodeHook;
#else
typedef void (*GgExplainNodeHook) (PlanState *planstate, List *ancestors, const char *relationship,
								   const char *plan_name, struct ExplainState *es);
#endif

static inline GgExplainNodeHook
GgHookExplain(GgExplainNodeHook hook)
{
#if PG_VERSION_NUM >= 180000
	GgExplainNodeHook previous = explain_per_node_hook;

	explain_per_node_hook = hook;
	return previous;
#else
	return NULL;
#endif
}

/*
 * What a handler of an index access method returns.  Up to 18 the relcache copies the routine and
 * frees it; from 19 on it keeps the pointer, and the routine must stay.
 */
static inline void *
GgReturnRoutine(const IndexAmRoutine *routine)
{
#if PG_VERSION_NUM >= 190000
	return unconstify(IndexAmRoutine *, routine);
#else
	IndexAmRoutine *copy = makeNode(IndexAmRoutine);

	*copy = *routine;
	return copy;
#endif
}

/* Make `entry` of `from` the only one of `to`, with its rights, which are apart from 16 on. */
static inline void
GgCopyEntry(Query *to, const Query *from, const RangeTblEntry *entry)
{
	RangeTblEntry *copy = (RangeTblEntry *) copyObjectImpl(entry);

	to->rtable = list_make1(copy);
#if PG_VERSION_NUM >= 160000
	if (copy->perminfoindex > 0)
	{
		to->rteperminfos = list_make1(copyObject(list_nth(from->rteperminfos,
														  copy->perminfoindex - 1)));
		copy->perminfoindex = 1;
	}
#endif
}

/* From 19 on the planner is told of the EXPLAIN that it plans for. */
#if PG_VERSION_NUM >= 190000
#define GG_PLANNER_PARAMETERS \
	Query *parse, const char *query_string, int cursor_options, ParamListInfo params, \
	struct ExplainState *es
#define GG_PLANNER_ARGUMENTS	parse, query_string, cursor_options, params, es
#else
#define GG_PLANNER_PARAMETERS \
	Query *parse, const char *query_string, int cursor_options, ParamListInfo params
#define GG_PLANNER_ARGUMENTS	parse, query_string, cursor_options, params
#endif

/* Parameters of ExecutorRun().  Up to 17 the last one says whether it is called only once. */
#if PG_VERSION_NUM >= 180000
#define GG_RUN_PARAMETERS \
	QueryDesc *query, ScanDirection direction, uint64 count
#define GG_RUN_ARGUMENTS		query, direction, count
#else
#define GG_RUN_PARAMETERS \
	QueryDesc *query, ScanDirection direction, uint64 count, bool once
#define GG_RUN_ARGUMENTS		query, direction, count, once
#endif

/* The hook that is called for each table of a query before its conditions are looked at. */
#if PG_VERSION_NUM >= 190000
#define GgTableHook				build_simple_rel_hook_type
#define gg_table_hook			build_simple_rel_hook
#define GG_TABLE_PARAMETERS		PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *table_entry
#define GG_TABLE_ARGUMENTS		root, rel, table_entry
#else
#define GgTableHook				get_relation_info_hook_type
#define gg_table_hook			get_relation_info_hook
#define GG_TABLE_PARAMETERS		PlannerInfo *root, Oid table_oid, bool inhparent, RelOptInfo *rel
#define GG_TABLE_ARGUMENTS		root, table_oid, inhparent, rel
#endif

/* A table's scan, a worker's part of a parallel one, and fetches of rows that an index names. */
#if PG_VERSION_NUM >= 190000
#define GgBeginTableScan(heap, snapshot)	table_beginscan(heap, snapshot, 0, NULL, SO_NONE)
#define GgBeginParallelScan(heap, shared)	table_beginscan_parallel(heap, shared, SO_NONE)
#define GgBeginFetch(heap)		table_index_fetch_begin(heap, SO_NONE)
#else
#define GgBeginTableScan(heap, snapshot)	table_beginscan(heap, snapshot, 0, NULL)
#define GgBeginParallelScan(heap, shared)	table_beginscan_parallel(heap, shared)
#define GgBeginFetch(heap)		table_index_fetch_begin(heap)
#endif

/*
 * Have a heap's fetch hold a pinned buffer, of block blkno, or none.  From 19 on the fetch knows
 * its page by the block's number.
 */
#if PG_VERSION_NUM >= 190000
#define GgFetchHolds(fetch, buffer, blkno) \
	((fetch)->xs_cbuf = (buffer), \
	 (fetch)->xs_blk = BufferIsValid((fetch)->xs_cbuf) ? (blkno) : InvalidBlockNumber)
#define GgPruneHeld(heap, fetch) \
	heap_page_prune_opt(heap, (fetch)->xs_cbuf, &(fetch)->xs_vmbuffer, false)
#else
#define GgFetchHolds(fetch, buffer, blkno) ((fetch)->xs_cbuf = (buffer))
#define GgPruneHeld(heap, fetch) heap_page_prune_opt(heap, (fetch)->xs_cbuf)
#endif

/* Make the slot of a scan node. */
#if PG_VERSION_NUM >= 190000
#define GgInitScanSlot(estate, node, desc, ops) ExecInitScanTupleSlot(estate, node, desc, ops, 0)
#else
#define GgInitScanSlot(estate, node, desc, ops) ExecInitScanTupleSlot(estate, node, desc, ops)
#endif

/* The elements of an array, one after the other. */
#if PG_VERSION_NUM >= 190000
#define GgSetUpArray(next, array, length, by_value, align) \
	array_iter_setup(next, array, length, by_value, align)
#define GgNextOfArray(next, isnull, i, length, by_value, align) array_iter_next(next, isnull, i)
#else
#define GgSetUpArray(next, array, length, by_value, align) array_iter_setup(next, array)
#define GgNextOfArray(next, isnull, i, length, by_value, align) \
	array_iter_next(next, isnull, i, length, by_value, align)
#endif

/* Local time to timestamptz, by the session's zone.  *overflow: -1 too early, 1 too late, or 0. */
#if PG_VERSION_NUM >= 190000
static inline TimestampTz
GgDateToLocal(DateADT date, int *overflow)
{
	ErrorSaveContext context = {T_ErrorSaveContext};
	TimestampTz result = date2timestamptz_safe(date, (Node *) &context);

	*overflow = !context.error_occurred ? 0 : date < 0 ? -1 : 1;
	return result;
}

static inline TimestampTz
GgTimestampToLocal(Timestamp timestamp, int *overflow)
{
	ErrorSaveContext context = {T_ErrorSaveContext};
	TimestampTz result = timestamp2timestamptz_safe(timestamp, (Node *) &context);

	*overflow = !context.error_occurred ? 0 : timestamp < 0 ? -1 : 1;
	return result;
}
#else
#define GgDateToLocal(date, overflow)		date2timestamptz_opt_overflow(date, overflow)
#define GgTimestampToLocal(timestamp, overflow) \
	timestamp2timestamptz_opt_overflow(timestamp, overflow)
#endif

#if PG_VERSION_NUM >= 190000
#define GgSetChecksum(page, blkno)	PageSetChecksum(page, blkno)
#else
#define GgSetChecksum(page, blkno)	PageSetChecksumInplace(page, blkno)
#endif

/* Begin an index scan as an IndexScan node does. */
#if PG_VERSION_NUM >= 190000
#define GgBeginIndexScan(node) \
	index_beginscan((node)->ss.ss_currentRelation, (node)->iss_RelationDesc, \
					(node)->ss.ps.state->es_snapshot, (node)->iss_Instrument, \
					(node)->iss_NumScanKeys, (node)->iss_NumOrderByKeys, SO_NONE)
#elif PG_VERSION_NUM >= 180000
#define GgBeginIndexScan(node) \
	index_beginscan((node)->ss.ss_currentRelation, (node)->iss_RelationDesc, \
					(node)->ss.ps.state->es_snapshot, &(node)->iss_Instrument, \
					(node)->iss_NumScanKeys, (node)->iss_NumOrderByKeys)
#else
#define GgBeginIndexScan(node) \
	index_beginscan((node)->ss.ss_currentRelation, (node)->iss_RelationDesc, \
					(node)->ss.ps.state->es_snapshot, \
					(node)->iss_NumScanKeys, (node)->iss_NumOrderByKeys)
#endif

/* The subplans that are left after run-time pruning. */
#if PG_VERSION_NUM >= 180000
#define GgMatchingSubplans(prune)	ExecFindMatchingSubPlans(prune, false, NULL)
#else
#define GgMatchingSubplans(prune)	ExecFindMatchingSubPlans(prune, false)
#endif

/* Does a MergeAppend prune at run time?  Begin the pruning of its n subplans. */
#if PG_VERSION_NUM >= 180000
#define GgPrunes(merge)			((merge)->part_prune_index >= 0)
#define GgBeginPruning(node, merge, n, valid) \
	ExecInitPartitionExecPruning(node, n, (merge)->part_prune_index, (merge)->apprelids, \
								 valid)
#else
#define GgPrunes(merge)			((merge)->part_prune_info != NULL)
#define GgBeginPruning(node, merge, n, valid) \
	ExecInitPartitionPruning(node, n, (merge)->part_prune_info, valid)
#endif

/* May a scan fail because VACUUM has removed what its old snapshot still sees? */
#if PG_VERSION_NUM >= 170000
#define GG_SNAPSHOTS_GROW_OLD	false
#else
#define GG_SNAPSHOTS_GROW_OLD	(old_snapshot_threshold >= 0)
#endif

/* The tuple of an entry of a hash table of the executor's. */
#if PG_VERSION_NUM >= 180000
#define GgHashedTuple(entry)	TupleHashEntryGetTuple(entry)
#else
#define GgHashedTuple(entry)	((entry)->firstTuple)
#endif

/*
 * A hash table of the executor's for groups of rows in virtual slots, with a number for each.  It
 * lies in the context, and is gone when that is reset.
 */
#if PG_VERSION_NUM >= 180000
#define GgMakeGroups(parent, desc, n, columns, equal, hash, collations, context, per_row) \
	BuildTupleHashTable(parent, desc, &TTSOpsVirtual, n, columns, equal, hash, collations, 256, \
						sizeof(uint64), context, context, per_row, false)
#define GgNumberOfGroup(table, entry)	((uint64 *) TupleHashEntryGetAdditional(table, entry))
#else
#define GgMakeGroups(parent, desc, n, columns, equal, hash, collations, context, per_row) \
	BuildTupleHashTable(parent, desc, n, columns, equal, hash, collations, 256, 0, context, \
						per_row, false)
#define GgNumberOfGroup(table, entry)	((uint64 *) &(entry)->additional)
#endif

/* A condition by whose failure a WindowAgg's run ends: number op operand, or operand op number. */
typedef struct GgRunCondition
{
	Oid			opno;
	bool		number_first;
	Node	   *operand;
} GgRunCondition;

#if PG_VERSION_NUM >= 170000
#define GgRunConditions(function, window)	((function)->runCondition)

static inline GgRunCondition
GgReadRunCondition(const void *condition)
{
	const WindowFuncRunCondition *run = condition;

	return (GgRunCondition) {run->opno, run->wfunc_left, (Node *) run->arg};
}
#else
#define GgRunConditions(function, window)	((window)->runCondition)

static inline GgRunCondition
GgReadRunCondition(const void *condition)
{
	const OpExpr *run = condition;
	const bool	first = IsA(linitial(run->args), WindowFunc);

	return (GgRunCondition) {run->opno, first, first ? lsecond(run->args) : linitial(run->args)};
}
#endif

/* A page of a bitmap.  GgBitmapNext() brings them in order; false: there is no other. */
typedef struct GgBitmapPage
{
	BlockNumber block;
	bool		lossy;			/* the bitmap knows the page alone, and no offsets */
	int			ntuples;		/* of offsets; 0 where it is lossy */
	OffsetNumber offsets[MaxHeapTuplesPerPage];
} GgBitmapPage;

#if PG_VERSION_NUM >= 180000
typedef TBMPrivateIterator GgBitmapIterator;
#define GgBitmapBegin(bitmap)	tbm_begin_private_iterate(bitmap)
#define GgBitmapEnd(iterator)	tbm_end_private_iterate(iterator)
#else
typedef TBMIterator GgBitmapIterator;
#define GgBitmapBegin(bitmap)	tbm_begin_iterate(bitmap)
#define GgBitmapEnd(iterator)	tbm_end_iterate(iterator)
#endif

static inline bool
GgBitmapNext(GgBitmapIterator *iterator, GgBitmapPage *page)
{
#if PG_VERSION_NUM >= 180000
	TBMIterateResult result;

	if (!tbm_private_iterate(iterator, &result))
		return false;
	page->block = result.blockno;
	page->lossy = result.lossy;
	page->ntuples = result.lossy ? 0 :
		tbm_extract_page_tuple(&result, page->offsets, MaxHeapTuplesPerPage);
#else
	const TBMIterateResult *result = tbm_iterate(iterator);

	if (result == NULL)
		return false;
	page->block = result->blockno;
	page->lossy = result->ntuples < 0;
	page->ntuples = Max(result->ntuples, 0);
	memcpy(page->offsets, result->offsets, page->ntuples * sizeof(OffsetNumber));
#endif
	return true;
}

/* Begin a scan of an index by so many conditions, in the order of so many distances. */
#if PG_VERSION_NUM >= 190000
#define GgBeginScan(heap, index, snapshot, nkeys, norders) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, norders, SO_NONE)
#elif PG_VERSION_NUM >= 180000
#define GgBeginScan(heap, index, snapshot, nkeys, norders) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, norders)
#else
#define GgBeginScan(heap, index, snapshot, nkeys, norders) \
	index_beginscan(heap, index, snapshot, nkeys, norders)
#endif

/* The snapshot that sees chunks of a TOAST table; before 18 it is made in *own. */
#if PG_VERSION_NUM >= 180000
#define GgToastSnapshot(own)	((void) (own), get_toast_snapshot())
#else
#define GgToastSnapshot(own)	(init_toast_snapshot(own), (own))
#endif

/* The next datum of a tuplesort; one that is passed by reference is the caller's to free. */
#if PG_VERSION_NUM >= 160000
#define GgTuplesortGetDatum(state, value, isnull) \
	tuplesort_getdatum(state, true, true, value, isnull, NULL)
#else
#define GgTuplesortGetDatum(state, value, isnull) \
	tuplesort_getdatum(state, true, value, isnull, NULL)
#endif

/*
 * The number of this process's PGPROC.  Those of backends and background workers are below
 * MaxBackends.
 */
#if PG_VERSION_NUM >= 170000
#define GgMyProcNumber()		((uint32) MyProcNumber)
#else
#define GgMyProcNumber()		((uint32) MyProc->pgprocno)
#endif

/* Process the messages that parallel workers sent.  Throws when one is an error. */
#if PG_VERSION_NUM >= 180000
#define GgProcessParallelMessages() ProcessParallelMessages()
#else
#define GgProcessParallelMessages() HandleParallelMessages()
#endif

/*
 * The table whose place a table is to take, or the table itself.  From 19 on REPACK (CONCURRENTLY)
 * builds the indexes on a new table, named after the OID of the old one, whose lock it holds.  A
 * user may name a table so, too.  It counts only where both have one owner, who sees no more by it.
 */
static inline Oid
GgTableInPlace(Relation heap)
{
#if PG_VERSION_NUM >= 190000
	Oid			relid;
	HeapTuple	tuple;
	bool		same_owner = false;

	if (sscanf(RelationGetRelationName(heap), "pg_temp_%u", &relid) == 1 &&
		CheckRelationOidLockedByMe(relid, ShareUpdateExclusiveLock, true) &&
		HeapTupleIsValid(tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid))))
	{
		same_owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner == heap->rd_rel->relowner;
		ReleaseSysCache(tuple);
	}
	if (same_owner)
		return relid;
#endif
	return RelationGetRelid(heap);
}

/* Does the next CHECK_FOR_INTERRUPTS() end the statement or the session? */
static inline bool
GgInterruptEnds(void)
{
#if PG_VERSION_NUM >= 170000
	if (TransactionTimeoutPending)
		return true;
#endif
	return QueryCancelPending || ProcDiePending || ClientConnectionLost;
}

/*
 * A wait event of ours.  It has a name from 17 on, where extensions have named ones.  event is a
 * static uint32, 0 at first.
 */
#if PG_VERSION_NUM >= 170000
#define GgWaitEvent(event, name) \
	((event) != 0 ? (event) : ((event) = WaitEventExtensionNew(name)))
#else
#define GgWaitEvent(event, name) ((void) (event), PG_WAIT_EXTENSION)
#endif

/* Path of the first file of a relation's main fork, relative to the data directory. */
static inline void
GgMainForkPath(GgRelFileLocator locator, char *path, Size size)
{
#if PG_VERSION_NUM >= 180000
	strlcpy(path, relpathperm(locator, MAIN_FORKNUM).str, size);
#else
	char	   *allocated = relpathperm(locator, MAIN_FORKNUM);

	strlcpy(path, allocated, size);
	pfree(allocated);
#endif
}

/*
 * Before 17 VACUUM may remove what snapshots older than old_snapshot_threshold still see.  Scans
 * must then fail where a page has changed since, or they would miss these rows.
 */
#if PG_VERSION_NUM >= 170000
#define GgTestForOldSnapshot(snapshot, rel, page) ((void) 0)
#else
#define GgTestForOldSnapshot(snapshot, rel, page) TestForOldSnapshot(snapshot, rel, page)
#endif

/* Add a page at the end of the relation.  It is returned locked exclusively. */
static inline Buffer
GgExtendOne(Relation rel, ForkNumber forknum)
{
#if PG_VERSION_NUM >= 160000
	return ExtendBufferedRel(BMR_REL(rel), forknum, NULL, EB_LOCK_FIRST);
#else
	Buffer		buffer;

	if (!RELATION_IS_LOCAL(rel))
		LockRelationForExtension(rel, ExclusiveLock);
	buffer = ReadBufferExtended(rel, forknum, P_NEW, RBM_NORMAL, NULL);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	if (!RELATION_IS_LOCAL(rel))
		UnlockRelationForExtension(rel, ExclusiveLock);
	return buffer;
#endif
}

/* Make a relation nblocks long, past the buffer manager.  New blocks are zero. */
static inline void
GgExtendTo(Relation rel, BlockNumber nblocks)
{
	BlockNumber now = smgrnblocks(RelationGetSmgr(rel), MAIN_FORKNUM);

	if (nblocks <= now)
		return;
#if PG_VERSION_NUM >= 160000
	while (now < nblocks)
	{
		/* 64 MB at a time, so that it can be canceled */
		int			count = (int) Min(nblocks - now, 8192);

		CHECK_FOR_INTERRUPTS();
		smgrzeroextend(RelationGetSmgr(rel), MAIN_FORKNUM, now, count, true);
		now += count;
	}
#else
	{
		/*
		 * Write the last block alone.  md.c brings the files before it to their full length, and
		 * what was never written reads as zero.
		 */
		PGAlignedBlock zero;

		memset(zero.data, 0, BLCKSZ);
		smgrextend(RelationGetSmgr(rel), MAIN_FORKNUM, nblocks - 1, zero.data, true);
	}
#endif
}

/* Locators of relations have no padding. */
static inline bool
GgSameLocator(const GgRelFileLocator *a, const GgRelFileLocator *b)
{
	return memcmp(a, b, sizeof(GgRelFileLocator)) == 0;
}

/* Does a BufferTag name this block of the main fork? */
#if PG_VERSION_NUM >= 160000
#define GgTagNames(tag, locator, blkno) \
	((tag)->blockNum == (blkno) && (tag)->forkNum == MAIN_FORKNUM && \
	 BufTagMatchesRelFileLocator(tag, locator))
#else
#define GgTagNames(tag, locator, blkno) \
	((tag)->blockNum == (blkno) && (tag)->forkNum == MAIN_FORKNUM && \
	 GgSameLocator(&(tag)->rnode, locator))
#endif

/*
 * Make a relation that others use nblocks long.  New blocks are zero and have their place on disk:
 * that a disk is full is known here, and not when a checkpoint writes them.
 */
static inline void
GgAppendZeros(Relation rel, BlockNumber nblocks)
{
	BlockNumber now = smgrnblocks(RelationGetSmgr(rel), MAIN_FORKNUM);
#if PG_VERSION_NUM >= 160000
	if (now < nblocks)
		smgrzeroextend(RelationGetSmgr(rel), MAIN_FORKNUM, now, (int) (nblocks - now), false);
#else
	PGAlignedBlock zero;

	memset(zero.data, 0, BLCKSZ);
	for (; now < nblocks; now++)
		smgrextend(RelationGetSmgr(rel), MAIN_FORKNUM, now, zero.data, false);
#endif
}

/* Drop a relation's pages from shared buffers unwritten.  Waits for those who read one just now. */
static inline void
GgDropBuffers(Relation rel)
{
	ForkNumber	fork = MAIN_FORKNUM;
	BlockNumber first = 0;

#if PG_VERSION_NUM >= 160000
	DropRelationBuffers(RelationGetSmgr(rel), &fork, 1, &first);
#else
	DropRelFileNodeBuffers(RelationGetSmgr(rel), &fork, 1, &first);
#endif
}

/*
 * Write npages existing blocks, which lie one after the other in memory, past the buffer manager.
 * No checkpoint learns of it.
 *
 * Before 17 smgr writes one block per call.  That takes three times as long as 32 blocks per call,
 * and makes writers of one file wait for each other: however many processes wrote, the page cache
 * on ext4 took 1.2 GB/s, against 3.5 GB/s with 256 kB per call.  So before 17 this function opens
 * the file itself, and keeps it open in *file.
 */
typedef struct GgRunFile
{
	bool		open;
	File		file;
	uint32		segno;			/* of the relation's files of RELSEG_SIZE blocks */
} GgRunFile;

static inline void
GgCloseRunFile(GgRunFile *file)
{
	if (file->open)
		FileClose(file->file);
	file->open = false;
}

static inline void
GgWriteRun(Relation rel, BlockNumber start, Page *pages, int npages,
		   GgRunFile *file)
{
	while (npages > 0)
	{
		/* a call does not go across files */
		int			count = (int) Min(npages, RELSEG_SIZE - start % RELSEG_SIZE);

#if PG_VERSION_NUM >= 170000
		/* smgr fails with more than PG_IOV_MAX (16 on some systems), as for a write across files */
		count = Min(count, PG_IOV_MAX);
		smgrwritev(RelationGetSmgr(rel), MAIN_FORKNUM, start, (const void **) pages, count, true);
#else
		uint32		segno = start / RELSEG_SIZE;
		int			bytes = count * BLCKSZ;
		int			written;

		if (!file->open || file->segno != segno)
		{
#if PG_VERSION_NUM >= 160000
			char	   *base = relpath(RelationGetSmgr(rel)->smgr_rlocator, MAIN_FORKNUM);
#else
			char	   *base = relpath(RelationGetSmgr(rel)->smgr_rnode, MAIN_FORKNUM);
#endif
			char	   *path = segno == 0 ? base : psprintf("%s.%u", base, segno);

			GgCloseRunFile(file);
			file->file = PathNameOpenFile(path, O_RDWR | PG_BINARY);
			if (file->file < 0)
				ereport(ERROR,
						(errcode_for_file_access(),
						 errmsg("could not open file \"%s\": %m", path)));
			file->open = true;
			file->segno = segno;
			if (path != base)
				pfree(path);
			pfree(base);
		}
		errno = 0;
		written = FileWrite(file->file, pages[0], bytes, (off_t) (start % RELSEG_SIZE) * BLCKSZ,
							WAIT_EVENT_DATA_FILE_WRITE);
		if (written != bytes)
		{
			/* a short write means a full disk, as in md.c */
			if (written >= 0 || errno == 0)
				errno = ENOSPC;
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not write blocks %u..%u in file \"%s\": %m",
							start, start + count - 1, FilePathName(file->file)),
					 errhint("Check free disk space.")));
		}
#endif
		start += count;
		pages += count;
		npages -= count;
	}
}

/*
 * Have the next checkpoint sync a relation of nblocks blocks.  False when the checkpointer's queue
 * has no room.  The caller keeps the checkpoint from beginning, so it must not wait for room: minor
 * releases before July 2025 do not empty the queue while they wait for such callers, and the two
 * would wait for each other for ever.  From 17 on smgr itself syncs what finds no room.
 */
static inline bool
GgRegisterSync(Relation rel, BlockNumber nblocks)
{
#if PG_VERSION_NUM >= 170000
	smgrregistersync(RelationGetSmgr(rel), MAIN_FORKNUM);
	return true;
#else
	for (uint32 segno = 0; segno <= (nblocks - 1) / RELSEG_SIZE; segno++)
	{
		FileTag		tag;

		memset(&tag, 0, sizeof(tag));
		tag.handler = SYNC_HANDLER_MD;
		tag.forknum = MAIN_FORKNUM;
#if PG_VERSION_NUM >= 160000
		tag.rlocator = GgLocator(rel);
#else
		tag.rnode = GgLocator(rel);
#endif
		tag.segno = segno;
		if (!RegisterSyncRequest(&tag, SYNC_REQUEST, false))
			return false;
	}
	return true;
#endif
}

/*
 * Tell standbys that blocks from blkno on, parked under xid, are reused, so that they cancel
 * queries that may still need them.  The record is nbtree's, which has nothing of nbtree but its
 * name.  An extension has a resource manager of its own only when it is preloaded.
 */
static inline void
GgLogReuse(Relation rel, Relation heap, BlockNumber blkno, FullTransactionId xid)
{
	xl_btree_reuse_page xlrec;

	memset(&xlrec, 0, sizeof(xlrec));
#if PG_VERSION_NUM >= 160000
	xlrec.locator = rel->rd_locator;
	xlrec.block = blkno;
	xlrec.snapshotConflictHorizon = xid;
	xlrec.isCatalogRel = heap != NULL && RelationIsAccessibleInLogicalDecoding(heap);
#else
	xlrec.node = rel->rd_node;
	xlrec.block = blkno;
	xlrec.latestRemovedFullXid = xid;
#endif
	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfBtreeReusePage);
	(void) XLogInsert(RM_BTREE_ID, XLOG_BTREE_REUSE_PAGE);
}

#endif							/* GG_COMPAT_H */
