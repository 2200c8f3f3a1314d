/*
 * check_heap.c
 *		gpugraph_check(): the rows of an index against those of its table.
 */
#include "storage/check.h"
#include "storage/row_hash.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "catalog/pg_am_d.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* Suspects that are looked for at a time.  Each time reads all TIDs of the index. */
#define MAX_SUSPECTS	65536

typedef struct HeapRows
{
	Tuplesortstate *sort;
	GgCheck	   *check;
	void	   *row;
	GgFilterColumns columns;
	MemoryContext context;		/* reset with every row */
} HeapRows;

/* ---- rows of the table --------------------------------------------------- */

static void
CollectHeapRow(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool tupleIsAlive,
			   void *state)
{
	HeapRows   *rows = state;
	const GgOpclass *opclass = rows->check->opclass;
	const GgMetaPageData *meta = rows->check->meta;
	uint32		dimensions;
	Datum		value;
	MemoryContext old;

	(void) index;
	(void) tupleIsAlive;		/* every row visible to the snapshot counts */
	if (isnull[0])
		return;

	old = MemoryContextSwitchTo(rows->context);
	value = PointerGetDatum(PG_DETOAST_DATUM(values[0]));
	dimensions = GgValueDimensions(opclass, value);
	if (GgValueToRow(opclass, meta->element, value, dimensions, rows->row))
	{
		int64		words[GG_MAX_FILTER_WORDS];
		uint16		nulls = GgEncodeFilters(&rows->columns, values + 1, isnull + 1, words);
		GgCheckRow	row = {.key = GgTidKey(tid)};
		uint64		digest = 0;

		for (int w = 0; w < rows->columns.nwords; w++)
			digest = GgMixWord(digest, (uint64) words[w]);
		row.filters = GgDigestFilters(digest, nulls);
		if (dimensions == meta->dimensions)
			GgDigestVector(rows->check, rows->row, &row);
		GgPutCheckRow(rows->sort, &row);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(rows->context);
}

/* ---- rows of the index ---------------------------------------------------- */

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
 * Raise an error if the index still has one of the suspects, which VACUUM may have cleared since.
 * False: another generation is in use by now.
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
 * VACUUM clears the merged TIDs alone, so TIDs of the old generation may name a line pointer that
 * has a new row.
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

static void
ReportMissing(GgCheck *check, int64 key)
{
	GgReportCorruption(check->index, GG_META_BLKNO, "it lacks row (%u,%u) of table \"%s\"",
					   (BlockNumber) (key >> 16), (OffsetNumber) (key & 0xFFFF),
					   RelationGetRelationName(check->heap));
}

/* The table has other values in a row that both have.  It is looked for once more, as above. */
static void
ReportOther(GgCheck *check, const char *what, int64 key)
{
	check->suspects[0] = key;
	check->nsuspects = 1;
	check->differs = what;
	(void) CheckSuspects(check);
	GgReportCorruption(check->index, GG_META_BLKNO,
					   "the table has %s in the row of the TID (%u,%u)", what,
					   (BlockNumber) (key >> 16), (OffsetNumber) (key & 0xFFFF));
}

/* Compare the rows of the index with the table's visible ones, both sorted. */
static void
CompareRows(GgCheck *check, Tuplesortstate *heap_rows)
{
	HeapPage	current = {InvalidBuffer, RelationGetNumberOfBlocks(check->heap)};
	Tuplesortstate *index_rows = check->rows;
	GgCheckRow	in_index = {-1},
				in_heap = {-1};
	int64		before = -1;
	bool		more_index = GgNextCheckRow(index_rows, &in_index);
	bool		more_heap = GgNextCheckRow(heap_rows, &in_heap);

	while (more_index || more_heap)
	{
		if (!more_index || (more_heap && in_heap.key < in_index.key))
			ReportMissing(check, in_heap.key);

		if (in_index.key == before)
			ReportTwice(check, in_index.key);
		if (!LinePointerIsUsed(check, &current, in_index.key))
		{
			check->suspects[check->nsuspects++] = in_index.key;
			if (check->nsuspects == MAX_SUSPECTS)
				(void) CheckSuspects(check);
		}
		before = in_index.key;
		if (more_heap && in_heap.key == in_index.key)
		{
			if (in_heap.filters != in_index.filters)
				ReportOther(check, "other values of filter columns", in_heap.key);
			if (!GgVectorsAgree(&in_index, &in_heap))
				ReportOther(check, "another vector", in_heap.key);
			more_heap = GgNextCheckRow(heap_rows, &in_heap);
		}
		more_index = GgNextCheckRow(index_rows, &in_index);
	}
	(void) CheckSuspects(check);
	if (BufferIsValid(current.buffer))
		ReleaseBuffer(current.buffer);
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

	rows.sort = GgBeginCheckRows();
	rows.check = check;
	rows.row = palloc(GG_MAX_DIM * sizeof(float));
	GgGetFilterColumns(check->index, &rows.columns);
	rows.context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph check row",
										 ALLOCSET_DEFAULT_SIZES);
	scan = table_beginscan_strat(check->heap, snapshot, 0, NULL, true, true);
	table_index_build_scan(check->heap, check->index, info, true, false, CollectHeapRow, &rows,
						   scan);

	check->suspects = palloc(MAX_SUSPECTS * sizeof(int64));
	tuplesort_performsort(check->rows);
	tuplesort_performsort(rows.sort);
	CompareRows(check, rows.sort);
	tuplesort_end(rows.sort);
	MemoryContextDelete(rows.context);
	pfree(check->suspects);
	pfree(rows.row);
}
