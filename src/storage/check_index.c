/*
 * check_index.c
 *		gpugraph_check(): verifies an index, page by page, and on request against its table.
 *
 * The first finding is raised as an error that names the block and the cause.  check_structure.c
 * looks at the index alone, check_heap.c compares it with its table.  In order:
 *	1. the directory: extents inside the relation and disjoint, arrays as long as their contents;
 *	   the sample and the calibration
 *	2. the delta, page by page, the last one first
 *	3. each segment's arrays, every page's stamp and length first: rows finite, adjacency lists
 *	   well-formed, pivots distinct and their graph connected, no fewer TIDs cleared than the
 *	   directory says, no NULL bits but those of filter columns, offsets monotone
 *	4. each segment's graph: every node reachable from the pivots
 *	5. with heap_check, TIDs against the table both ways: no TID twice, none that points at an
 *	   unused line pointer, and no row visible to a snapshot taken at the start without its TID,
 *	   or with another vector, or with other values in its filter columns
 *
 * Locks: AccessShare, as for a query, so inserts and VACUUM go on meanwhile.  A registered snapshot
 * keeps all that the copied directory names, as for a scan.  Changes by inserts and VACUUM are
 * not taken for faults, because
 *
 *	- a TID is cleared once and never set again, so pages have at least as many cleared TIDs as an
 *	  older directory counts
 *	- rows are appended to the delta's last page only, which is read before all other TIDs.  A TID
 *	  met later was there already at that time, so a TID met twice was there twice at one time
 *	- VACUUM clears a TID before its line pointer is free.  A TID whose line pointer is found unused
 *	  is a suspect, and a fault if the index has it when it is read once more (GgCheckTidsAgain)
 *
 * WAL has these changes in the same order, so all this holds on a standby, too.
 *
 * Vectors are compared by digests: of what the value in the table would be stored as, bit by bit.
 *
 * Memory: a bit and 4 bytes for each node of the largest segment, with heap_check 24 bytes more, 8
 * bytes for each of its rows if filter columns are compared, and two sorts within
 * maintenance_work_mem.  The adjacency is kept, too, where it fits there, and read node by node
 * where it does not.
 */
#include "storage/check.h"
#include "storage/codes.h"
#include "storage/inspect.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

/*
 * The usual indcheckxmin rule: an index built over broken HOT chains says nothing about what older
 * snapshots see.
 */
static void
RefuseOldSnapshot(Relation index, Snapshot snapshot)
{
	if (IsolationUsesXactSnapshot() && index->rd_index->indcheckxmin &&
		!TransactionIdPrecedes(HeapTupleHeaderGetXmin(index->rd_indextuple->t_data),
							   snapshot->xmin))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("index \"%s\" cannot be compared with its table "
						"using the snapshot of this transaction",
						RelationGetRelationName(index)),
				 errhint("Call gpugraph_check in a new transaction.")));
}

static void
CheckIndex(GgCheck *check)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	Snapshot	snapshot = RegisterSnapshot(GetTransactionSnapshot());

	if (check->heap_check)
	{
		RefuseOldSnapshot(check->index, snapshot);
		check->rows = GgBeginCheckRows();
	}

	GgReadMeta(check->index, meta);
	check->meta = meta;
	check->mean = GgReadMean(check->index, meta);
	check->opclass = GgIndexOpclass(check->index);
	check->row_bytes = GgRowBytes(meta);
	check->row = palloc(Max(check->row_bytes, 1));
	if (check->heap_check && meta->coded != GG_CODES_NONE && meta->dimensions > 0)
	{
		check->coder = GgMakeCoder(meta, meta->coded, check->mean);
		check->decoded = palloc(check->row_bytes);
	}

	GgCheckStructure(check);

	if (check->heap_check)
	{
		GgCheckAgainstHeap(check, snapshot);
		tuplesort_end(check->rows);
	}
	UnregisterSnapshot(snapshot);
}

PG_FUNCTION_INFO_V1(gpugraph_check);

Datum
gpugraph_check(PG_FUNCTION_ARGS)
{
	GgInspected inspected;
	GgCheck		check = {.heap_check = PG_GETARG_BOOL(1)};
	GgCaller	caller;

	GgOpenInspected(PG_GETARG_OID(0), check.heap_check ? GG_READ_TABLE : GG_READ_INDEX, &inspected);
	check.index = inspected.index;
	check.heap = inspected.heap;
	check.strategy = GetAccessStrategy(BAS_BULKREAD);

	if (check.heap_check && !inspected.index->rd_index->indisvalid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not valid", RelationGetRelationName(inspected.index)),
				 errdetail("Its build did not finish, so rows may be missing."),
				 errhint("REINDEX the index, or check it without heap_check.")));

	GgActAsOwner(inspected.heap, &caller);
	CheckIndex(&check);
	GgActAsCaller(&caller);

	FreeAccessStrategy(check.strategy);
	GgCloseInspected(&inspected);
	PG_RETURN_VOID();
}
