/*
 * check_heap.c
 *		gpugraph_check(): the TIDs of an index against the rows of its table.
 */
#include "storage/check.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"

/* Suspects that are looked for at a time.  Each time reads all TIDs of the index. */
#define MAX_SUSPECTS	65536

typedef struct HeapRows
{
	Tuplesortstate *tids;
	const GgOpclass *opclass;
	gg_element	stored;			/* in the index */
	void	   *row;
} HeapRows;

static void
CollectHeapRow(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool tupleIsAlive,
			   void *state)
{
	HeapRows   *rows = state;
	struct varlena *value;
	bool		indexed;

	(void) index;
	(void) tupleIsAlive;		/* every row visible to the snapshot counts */
	if (isnull[0])
		return;

	value = PG_DETOAST_DATUM(values[0]);
	indexed = GgValueToRow(rows->opclass, rows->stored, PointerGetDatum(value),
						   GgValueDimensions(rows->opclass, PointerGetDatum(value)), rows->row);
	if ((Pointer) value != DatumGetPointer(values[0]))
		pfree(value);
	if (indexed)
		tuplesort_putdatum(rows->tids, Int64GetDatum(GgTidKey(tid)), false);
}

static bool
NextTid(Tuplesortstate *tids, int64 *key)
{
	Datum		value;
	bool		isnull;

	if (!GgTuplesortGetDatum(tids, &value, &isnull))
		return false;
	*key = DatumGetInt64(value);
	return true;
}

/* Index TIDs come here in the order of the heap, so that each heap page is read once. */
typedef struct HeapPage
{
	Buffer		buffer;
	BlockNumber nblocks;
} HeapPage;

static bool
LinePointerIsUsed(GgCheck *check, HeapPage *current, int64 key)
{
	BlockNumber blkno = (BlockNumber) (key >> 16);
	OffsetNumber offset = (OffsetNumber) (key & 0xFFFF);
	bool		used;
	Page		page;

	if (blkno >= current->nblocks)
	{
		/* the table may have grown since; our lock keeps it from being truncated */
		current->nblocks = RelationGetNumberOfBlocks(check->heap);
		if (blkno >= current->nblocks)
			GgReportCorruption(check->index, GG_META_BLKNO,
							   "the TID (%u,%u) lies behind the end of the table", blkno, offset);
	}

	/* what an address within a page means is known for heap tables only */
	if (check->heap->rd_rel->relam != HEAP_TABLE_AM_OID)
		return true;

	if (!BufferIsValid(current->buffer) || BufferGetBlockNumber(current->buffer) != blkno)
	{
		CHECK_FOR_INTERRUPTS();
		if (BufferIsValid(current->buffer))
			ReleaseBuffer(current->buffer);
		current->buffer = ReadBufferExtended(check->heap, MAIN_FORKNUM, blkno, RBM_NORMAL,
											 check->strategy);
	}
	LockBuffer(current->buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(current->buffer);
	used = offset <= PageGetMaxOffsetNumber(page) && ItemIdIsUsed(PageGetItemId(page, offset));
	LockBuffer(current->buffer, BUFFER_LOCK_UNLOCK);
	return used;
}

static bool
IsUnused(GgCheck *check, int64 key)
{
	HeapPage	page = {InvalidBuffer, RelationGetNumberOfBlocks(check->heap)};
	bool		used = LinePointerIsUsed(check, &page, key);

	if (BufferIsValid(page.buffer))
		ReleaseBuffer(page.buffer);
	return !used;
}

/*
 * Raise an error if the index still has one of the suspects: VACUUM may have cleared them since.
 * False where there is another generation by now.
 */
static bool
CheckSuspects(GgCheck *check)
{
	bool		same;

	if (check->nsuspects == 0)
		return true;
	check->is_unused = IsUnused;
	same = GgCheckTidsAgain(check);
	check->nsuspects = 0;
	return same;
}

/*
 * Look for the TID once more, to name its block.  VACUUM may have cleared it by now.  After a merge
 * it clears the merged TIDs alone, so others may name a line pointer that has a new row.
 */
static void
ReportTwice(GgCheck *check, int64 key)
{
	bool		same;
	int64		kept[1] = {check->nsuspects > 0 ? check->suspects[0] : 0};
	uint32		nkept = check->nsuspects;

	check->suspects[0] = key;
	check->nsuspects = 1;
	check->twice = true;
	same = CheckSuspects(check);
	check->twice = false;
	check->suspects[0] = kept[0];
	check->nsuspects = nkept;
	if (!same)
		return;
	GgReportCorruption(check->index, GG_META_BLKNO, "the TID (%u,%u) was in the index twice",
					   (BlockNumber) (key >> 16), (OffsetNumber) (key & 0xFFFF));
}

/* The TIDs of the index and those of the table's visible rows, both sorted. */
static void
CompareTids(GgCheck *check, Tuplesortstate *heap_tids)
{
	HeapPage	current = {InvalidBuffer, RelationGetNumberOfBlocks(check->heap)};
	Tuplesortstate *index_tids = check->tids;
	int64		in_index = -1,
				in_heap = -1,
				before = -1;
	bool		more_index = NextTid(index_tids, &in_index);
	bool		more_heap = NextTid(heap_tids, &in_heap);

	while (more_index || more_heap)
	{
		if (!more_index || (more_heap && in_heap < in_index))
			ereport(ERROR,
					(errcode(ERRCODE_INDEX_CORRUPTED),
					 errmsg("index \"%s\" lacks row (%u,%u) of table \"%s\"",
							RelationGetRelationName(check->index),
							(BlockNumber) (in_heap >> 16), (OffsetNumber) (in_heap & 0xFFFF),
							RelationGetRelationName(check->heap)),
					 errhint("REINDEX the index.")));

		if (in_index == before)
			ReportTwice(check, in_index);
		if (!LinePointerIsUsed(check, &current, in_index))
		{
			check->suspects[check->nsuspects++] = in_index;
			if (check->nsuspects == MAX_SUSPECTS)
				(void) CheckSuspects(check);
		}
		before = in_index;
		if (more_heap && in_heap == in_index)
			more_heap = NextTid(heap_tids, &in_heap);
		more_index = NextTid(index_tids, &in_index);
	}
	(void) CheckSuspects(check);
	if (BufferIsValid(current.buffer))
		ReleaseBuffer(current.buffer);
}

Tuplesortstate *
GgBeginTids(void)
{
	return tuplesort_begin_datum(INT8OID, Int8LessOperator, InvalidOid, false,
								 maintenance_work_mem / 2, NULL, TUPLESORT_NONE);
}

/*
 * The snapshot is older than the copy of the directory, so whatever it sees was in the index by
 * then.
 */
void
GgCheckAgainstHeap(GgCheck *check, Snapshot snapshot)
{
	IndexInfo  *info = BuildIndexInfo(check->index);
	HeapRows	rows;
	TableScanDesc scan;

	/* Reads with the given snapshot, and reports no uniqueness or exclusion conflicts. */
	info->ii_Concurrent = true;
	info->ii_Unique = false;
	info->ii_ExclusionOps = NULL;
	info->ii_ExclusionProcs = NULL;
	info->ii_ExclusionStrats = NULL;

	rows.tids = GgBeginTids();
	rows.opclass = check->opclass;
	rows.stored = check->meta->element;
	rows.row = palloc(GG_MAX_DIM * sizeof(float));
	scan = table_beginscan_strat(check->heap, snapshot, 0, NULL, true, true);
	table_index_build_scan(check->heap, check->index, info, true, false, CollectHeapRow, &rows,
						   scan);

	check->suspects = palloc(MAX_SUSPECTS * sizeof(int64));
	tuplesort_performsort(check->tids);
	tuplesort_performsort(rows.tids);
	CompareTids(check, rows.tids);
	tuplesort_end(rows.tids);
	pfree(check->suspects);
	pfree(rows.row);
}
