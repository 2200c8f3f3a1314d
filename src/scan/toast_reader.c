/*
 * toast_reader.c
 *		Values of several rows that lie out of line, read together.
 *
 * PostgreSQL reads such a value by itself: it opens the TOAST table and its index, looks the value
 * up, and reads one chunk after the other.  Here both stay open for a scan.  GgFindToast() looks a
 * value up and asks for the blocks of its chunks; GgReadToast() reads them when all values of a
 * batch have been looked up.  So their blocks come from disk side by side.
 *
 * A row that the scan's snapshot sees keeps its chunks while the snapshot lives, so that their TIDs
 * are as good later.  What is not as expected is left to PostgreSQL, which has the words for it.
 *
 * 1M x 768, storage int4 on a GPU (H200 host), everything in memory: p50 354 and 297 us instead of
 * 405 and 331.  60,000 x 768 from disk, on the CPU: 100 ms instead of 112 (median of 48 by turns).
 *
 * Tried: to ask for no more blocks, nor for the table's, once eight in a row lay in shared buffers.
 * 2% less time where all do: 143 to 149 us instead of 149 to 151 (60,000 x 768, CPU).
 */
#include "scan/toast_reader.h"

#include "base/base.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/tableam.h"
#include "access/table.h"
#include "access/toast_internals.h"
#include "catalog/pg_am.h"
#include "executor/tuptable.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

/* Columns of a TOAST table. */
#define CHUNK_ID			1
#define CHUNK_SEQ			2
#define CHUNK_DATA			3

struct GgToastReader
{
	Relation	toast;
	Relation   *indexes;
	int			nindexes;
	SnapshotData own_snapshot;	/* see GgToastSnapshot() */
	Snapshot	snapshot;
	IndexScanDesc scan;			/* NULL: chunks are not rows of a heap */
	MemoryContext context;
	TupleTableSlot *slot;
	ItemPointerData *tids;		/* of chunks of the values that were looked up */
	uint32		ntids;
	uint32		room;
};

GgToastReader *
GgOpenToast(Relation heap, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	GgToastReader *reader = palloc0(sizeof(GgToastReader));

	reader->toast = table_open(heap->rd_rel->reltoastrelid, AccessShareLock);
	reader->context = context;
	if (reader->toast->rd_rel->relam == HEAP_TABLE_AM_OID)
	{
		int			valid = toast_open_indexes(reader->toast, AccessShareLock, &reader->indexes,
											   &reader->nindexes);

		reader->snapshot = GgToastSnapshot(&reader->own_snapshot);
		reader->scan = GgBeginScan(reader->toast, reader->indexes[valid], reader->snapshot, 1, 0);
		reader->slot = table_slot_create(reader->toast, NULL);
	}
	MemoryContextSwitchTo(old);
	return reader;
}

void
GgCloseToast(GgToastReader *reader)
{
	if (reader->scan != NULL)
	{
		ExecDropSingleTupleTableSlot(reader->slot);
		index_endscan(reader->scan);
		toast_close_indexes(reader->indexes, reader->nindexes, NoLock);
	}
	table_close(reader->toast, NoLock);
}

bool
GgFindToast(GgToastReader *reader, Datum value, GgToastValue *found)
{
	struct varatt_external *pointer = &found->pointer;
	BlockNumber last = InvalidBlockNumber;
	ScanKeyData key;
	ItemPointer tid;

	VARATT_EXTERNAL_GET_POINTER(*pointer, (struct varlena *) DatumGetPointer(value));
	if (reader->scan == NULL || pointer->va_toastrelid != RelationGetRelid(reader->toast))
		return false;
	found->first = reader->ntids;
	ScanKeyInit(&key, CHUNK_ID, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(pointer->va_valueid));
	index_rescan(reader->scan, &key, 1, NULL, 0);
	while ((tid = index_getnext_tid(reader->scan, ForwardScanDirection)) != NULL)
	{
		GgNeedRoom(reader->context, reader->tids, reader->ntids, reader->room);
		reader->tids[reader->ntids++] = *tid;
#ifdef USE_PREFETCH
		if (ItemPointerGetBlockNumber(tid) != last)
			(void) PrefetchBuffer(reader->toast, MAIN_FORKNUM, ItemPointerGetBlockNumber(tid));
		last = ItemPointerGetBlockNumber(tid);
#endif
	}
	found->count = reader->ntids - found->first;
	return true;
}

/* Add the chunk in the slot to a value that has `done` bytes of `size`.  False: not as expected. */
static bool
AddChunk(TupleTableSlot *slot, int32 expected, char *data, uint32 *done, uint32 size)
{
	bool		isnull;
	Datum		chunk;
	uint32		bytes;

	if (DatumGetInt32(slot_getattr(slot, CHUNK_SEQ, &isnull)) != expected || isnull)
		return false;
	chunk = slot_getattr(slot, CHUNK_DATA, &isnull);
	if (isnull || VARATT_IS_EXTERNAL(DatumGetPointer(chunk)) ||
		VARATT_IS_COMPRESSED(DatumGetPointer(chunk)))
		return false;
	bytes = VARSIZE_ANY_EXHDR(DatumGetPointer(chunk));
	if (bytes > size - *done)
		return false;
	memcpy(data + *done, VARDATA_ANY(DatumGetPointer(chunk)), bytes);
	*done += bytes;
	return true;
}

struct varlena *
GgReadToast(GgToastReader *reader, const GgToastValue *found)
{
	const uint32 size = VARATT_EXTERNAL_GET_EXTSIZE(found->pointer);
	struct varlena *value = palloc(size + VARHDRSZ);
	uint32		done = 0;
	int32		nchunks = 0;
	bool		good = true;

	if (VARATT_EXTERNAL_IS_COMPRESSED(found->pointer))
		SET_VARSIZE_COMPRESSED(value, size + VARHDRSZ);
	else
		SET_VARSIZE(value, size + VARHDRSZ);
	for (uint32 i = 0; good && i < found->count; i++)
	{
		ItemPointerData tid = reader->tids[found->first + i];
		bool		call_again = false;
		bool		all_dead = false;

		/* the index may have chunks of a value that is gone */
		if (table_index_fetch_tuple(reader->scan->xs_heapfetch, &tid, reader->snapshot,
									reader->slot, &call_again, &all_dead))
			good = AddChunk(reader->slot, nchunks++, VARDATA(value), &done, size);
		ExecClearTuple(reader->slot);
	}
	return good && done == size ? value : NULL;
}

void
GgForgetToast(GgToastReader *reader)
{
	table_index_fetch_reset(reader->scan->xs_heapfetch);
	reader->ntids = 0;
}
