/*
 * resolve.c
 *		Rows that a device answered with, as the versions that the snapshot sees.
 *
 * A device answers thousands of queries in a few milliseconds, so looking up their rows one by one
 * would take longest.  Here rows are looked up many at a time: by place in the index, page by page
 * of TIDs, then by TID, page by page of the table, with pages fetched into the processor's cache
 * ahead.  On an all-visible page of a heap a line pointer alone tells the visible version:
 * it is the row itself, or the end of its redirection.
 *
 * The directory must have been copied after the active snapshot was taken.  Where VACUUM clears a
 * TID after it was read here, this snapshot sees neither its row nor the row that then takes its
 * line pointer.
 */
#include "many/resolve.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am_d.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/snapmgr.h"

/* How many rows ahead of its turn a TID is fetched. */
#define TIDS_AHEAD			8

/*
 * Of so many rows the table's pages are fetched at once, in a loop of its own.  Nearly each row has
 * another page, and a processor executes a fetch only after it has found the page in the page
 * tables.  Pins and locks between two fetches would make it wait for one search of these tables
 * after the other.  100,000 rows on 63,000 pages: 36 ms of processor time for all of the call, 37
 * with 32 rows, 40 with each row fetched 8 rows ahead of its turn.
 */
#define ROWS_AHEAD			64

/* Rows that GgMakeRowMap() looks up at a time. */
#define MAP_CHUNK			65536

typedef struct RowItem
{
	uint64		key;			/* place, later block << 16 | line pointer; 0: no TID */
	uint32		number;
} RowItem;

/*
 * Sort by key, digit by digit from the lowest: in a third of the time that comparisons take for
 * some thousand rows.  spare has room for count items.
 */
#define DIGIT_BITS			11

static void
SortItems(RowItem *items, uint32 count, RowItem *spare)
{
	const uint64 mask = (1 << DIGIT_BITS) - 1;
	RowItem    *from = items;
	uint64		any = 0,
				all = PG_UINT64_MAX;

	for (uint32 i = 0; i < count; i++)
	{
		any |= items[i].key;
		all &= items[i].key;
	}
	for (int shift = 0; shift < 64 && (any ^ all) >> shift != 0; shift += DIGIT_BITS)
	{
		RowItem    *to = from == items ? spare : items;
		uint32		starts[1 << DIGIT_BITS] = {0};
		uint32		sum = 0;

		if (((any ^ all) >> shift & mask) == 0)
			continue;			/* the digit is the same in all */
		for (uint32 i = 0; i < count; i++)
			starts[from[i].key >> shift & mask]++;
		for (uint32 d = 0; d <= mask; d++)
		{
			uint32		n = starts[d];

			starts[d] = sum;
			sum += n;
		}
		for (uint32 i = 0; i < count; i++)
			to[starts[from[i].key >> shift & mask]++] = from[i];
		from = to;
	}
	if (from != items)
		memcpy(items, from, count * sizeof(RowItem));
}

/* ---- lists ------------------------------------------------------------------ */

void
GgOpenLists(GgLists *lists, const GgTarget *target, GgMetaPageData *meta)
{
	memset(lists, 0, sizeof(*lists));
	lists->target = target;
	lists->meta = meta;
	lists->nlists = meta->nsegments + 1;
	lists->sources = palloc0(lists->nlists * sizeof(GgPageSource));
	lists->tids = palloc0(lists->nlists * sizeof(GgArray));
	lists->offsets = palloc0(lists->nlists * sizeof(GgArray));
	for (int i = 0; i < meta->nsegments; i++)
	{
		const GgSegment *segment = &meta->segments[i];

		if (segment->nodes == 0 || segment->dead >= segment->rows)
			continue;
		GgSourceInit(&lists->sources[i], target->index, meta, segment, NULL);
		GgFindArray(meta, segment->id, GG_KIND_TIDS, &lists->tids[i]);
		GgFindArray(meta, segment->id, GG_KIND_OFFSETS, &lists->offsets[i]);
	}
	GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_DELTA, &lists->delta);
	lists->heap_blocks = RelationGetNumberOfBlocks(target->heap);
}

/* One of the offsets, which never change while a snapshot can need them. */
static uint32
ReadOffset(GgLists *lists, int list, uint32 i)
{
	uint64		at = (uint64) i * sizeof(uint32);
	Buffer		buffer = GgSourcePin(&lists->sources[list], &lists->offsets[list],
									 at / GG_PAGE_PAYLOAD);
	uint32		offset = *(uint32 *) (PageGetContents(BufferGetPage(buffer)) +
									  at % GG_PAGE_PAYLOAD);

	ReleaseBuffer(buffer);
	return offset;
}

void
GgRowsOfNode(GgLists *lists, int list, uint32 node, uint32 *first, uint32 *end)
{
	*first = node;
	*end = node + 1;
	if (lists->offsets[list].nextents == 0)
		return;
	*first = ReadOffset(lists, list, node);
	*end = ReadOffset(lists, list, node + 1);
	if (*first > *end || *end > lists->meta->segments[list].rows)
		GgReportCorruption(lists->target->index,
						   GgArrayBlock(&lists->offsets[list],
										(uint64) node * sizeof(uint32) / GG_PAGE_PAYLOAD),
						   "rows %u to %u of node %u are out of range", *first, *end, node);
}

uint32
GgNodeOfRow(GgLists *lists, int list, uint32 row)
{
	uint32		low = 0,
				high = lists->meta->segments[list].nodes - 1;

	if (lists->offsets[list].nextents == 0)
		return row;
	while (low < high)
	{
		uint32		middle = low + (high - low + 1) / 2;
		uint32		first,
					end;

		GgRowsOfNode(lists, list, middle, &first, &end);
		if (first <= row)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

/* ---- TIDs --------------------------------------------------------------------- */

/* Pin and lock the page that has the TID of a row; false when VACUUM has given it back. */
static bool
LockTidPage(GgLists *lists, int list, uint32 row, Buffer *buffer)
{
	const GgMetaPageData *meta = lists->meta;
	Relation	index = lists->target->index;

	if (list < meta->nsegments)
	{
		*buffer = GgSourcePin(&lists->sources[list], &lists->tids[list], row / GG_TIDS_PER_PAGE);
		LockBuffer(*buffer, BUFFER_LOCK_SHARE);
	}
	else
	{
		if (!GgReadDeltaPage(index, meta, &lists->delta, GgDeltaPageOf(meta, row), buffer))
			return false;
	}
	GgTestForOldSnapshot(GetActiveSnapshot(), index, BufferGetPage(*buffer));
	return true;
}

static ItemPointerData
TidOnPage(GgLists *lists, int list, uint32 row, Buffer buffer)
{
	const GgMetaPageData *meta = lists->meta;
	Page		page = BufferGetPage(buffer);
	uint32		slot = row % GgDeltaRowsPerPage(meta);
	ItemPointerData none;

	if (list < meta->nsegments)
		return ((GgTidEntry *) PageGetContents(page))[row % GG_TIDS_PER_PAGE].tid;
	if (slot < GgDeltaRowCount(lists->target->index, meta, buffer))
		return GgDeltaRowOf(meta, page, slot)->tid;
	ItemPointerSetInvalid(&none);
	return none;
}

/* Fetch the TID of a row of a segment into the processor's cache. */
static void
LookAheadTid(const GgLists *lists, GgPlace place)
{
	int			list = GgPlaceList(place);
	uint32		row = GgPlaceRow(place);
	const char *page;

	if (list >= lists->meta->nsegments)
		return;
	page = GgSourcePeek(&lists->sources[list], &lists->tids[list], row / GG_TIDS_PER_PAGE);
	if (page != NULL)
		__builtin_prefetch((GgTidEntry *) PageGetContents((Page) page) + row % GG_TIDS_PER_PAGE);
}

/* Turn places, which ascend, into TIDs. */
static void
ReadTids(GgLists *lists, RowItem *items, uint32 count)
{
	uint64		page = PG_UINT64_MAX;	/* the one that is locked, or known to be gone */
	Buffer		buffer = InvalidBuffer;

	for (uint32 i = 0; i < count; i++)
	{
		int			list = GgPlaceList(items[i].key);
		uint32		row = GgPlaceRow(items[i].key);
		uint32		per_page = list < lists->meta->nsegments ? GG_TIDS_PER_PAGE :
			GgDeltaRowsPerPage(lists->meta);
		ItemPointerData tid;

		if (i + TIDS_AHEAD < count)
			LookAheadTid(lists, items[i + TIDS_AHEAD].key);
		if (page != GgPlaceOf(list, row / per_page))
		{
			if (BufferIsValid(buffer))
				UnlockReleaseBuffer(buffer);
			buffer = InvalidBuffer;
			CHECK_FOR_INTERRUPTS();
			page = GgPlaceOf(list, row / per_page);
			if (!LockTidPage(lists, list, row, &buffer))
				buffer = InvalidBuffer;
		}
		items[i].key = 0;
		if (!BufferIsValid(buffer))
			continue;
		tid = TidOnPage(lists, list, row, buffer);
		if (!ItemPointerIsValid(&tid))
			continue;
		GgCheckTid(lists->target->index, lists->target->heap, BufferGetBlockNumber(buffer), &tid,
				   &lists->heap_blocks);
		items[i].key = (uint64) ItemPointerGetBlockNumber(&tid) << 16 |
			ItemPointerGetOffsetNumber(&tid);
	}
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
}

/* How many rows a list has, with those that VACUUM has cleared. */
static uint32
RowsOfList(const GgLists *lists, int list)
{
	const GgMetaPageData *meta = lists->meta;

	return list < meta->nsegments ? meta->segments[list].rows :
		GgRowsOnPages(meta, meta->delta_pages);
}

uint64
GgCountRows(const GgLists *lists)
{
	uint64		rows = 0;

	for (int i = 0; i < lists->nlists; i++)
		rows += RowsOfList(lists, i);
	return rows;
}

uint32
GgReadRows(GgLists *lists, uint64 first, uint32 most, ItemPointerData *tids)
{
	RowItem	   *items;
	uint32		count;
	int			list = 0;

	CHECK_FOR_INTERRUPTS();
	while (list < lists->nlists && first >= RowsOfList(lists, list))
		first -= RowsOfList(lists, list++);
	if (list == lists->nlists)
		return 0;
	count = (uint32) Min(most, RowsOfList(lists, list) - first);
	items = palloc0(count * sizeof(RowItem));
	for (uint32 i = 0; i < count; i++)
		items[i].key = GgPlaceOf(list, first + i);
	/* of a segment whose rows are all dead nothing is read */
	if (list < lists->meta->nsegments && lists->sources[list].index == NULL)
		memset(items, 0, count * sizeof(RowItem));
	else
		ReadTids(lists, items, count);
	for (uint32 i = 0; i < count; i++)
		ItemPointerSet(&tids[i], (BlockNumber) (items[i].key >> 16), (OffsetNumber) items[i].key);
	pfree(items);
	return count;
}

GgNode
GgNodeAt(GgLists *lists, uint64 place)
{
	const GgMetaPageData *meta = lists->meta;

	for (int i = 0; i < meta->nsegments; place -= meta->segments[i++].rows)
		if (place < meta->segments[i].rows)
			return (GgNode) {meta->segments[i].id, GgNodeOfRow(lists, i, (uint32) place)};
	return (GgNode) {GG_NO_SEGMENT};
}

/* ---- the table ------------------------------------------------------------------ */

/* The version that the snapshot sees of a row, whose page is locked; false when there is none. */
static bool
FindVisible(Relation heap, Buffer buffer, bool by_page, ItemPointer tid)
{
	Page		page = BufferGetPage(buffer);
	HeapTupleData tuple;

	if (by_page && PageIsAllVisible(page))
	{
		OffsetNumber offset = ItemPointerGetOffsetNumber(tid);
		ItemId		item;

		if (offset > PageGetMaxOffsetNumber(page))
			return false;
		item = PageGetItemId(page, offset);
		if (ItemIdIsRedirected(item))
			ItemPointerSetOffsetNumber(tid, ItemIdGetRedirect(item));
		return ItemIdIsRedirected(item) || ItemIdIsNormal(item);
	}
	return heap_hot_search_buffer(tid, heap, buffer, GetActiveSnapshot(), &tuple, NULL, true);
}

static void
LookAhead(const GgLists *lists, const RowItem *item)
{
	BlockNumber blkno = (BlockNumber) (item->key >> 16);
	const char *page;

	/* PrefetchBuffer() fails outside the table */
	if (item->key == 0 || blkno >= lists->heap_blocks)
		return;
	page = GgSourcePeekHeap(lists->target->heap, blkno);
	if (page != NULL)
	{
		__builtin_prefetch(page);
		__builtin_prefetch(PageGetItemId((Page) page, (OffsetNumber) item->key));
	}
}

/* Find the visible versions of TIDs, which ascend. */
static void
ReadHeap(GgLists *lists, const RowItem *items, uint32 count, ItemPointerData *ctids)
{
	Relation	heap = lists->target->heap;
	Snapshot	snapshot = GetActiveSnapshot();
	/* as heapgetpage() has it; conflicts with serializable transactions are found tuple by tuple */
	bool		by_page = !snapshot->takenDuringRecovery && !IsolationIsSerializable();
	Buffer		buffer = InvalidBuffer;
	BlockNumber locked = InvalidBlockNumber;

	for (uint32 i = 0; i < count; i++)
	{
		ItemPointer ctid = &ctids[items[i].number];
		BlockNumber blkno = (BlockNumber) (items[i].key >> 16);

		if (i % ROWS_AHEAD == 0)
			for (uint32 j = i; j < Min(i + ROWS_AHEAD, count); j++)
				LookAhead(lists, &items[j]);
		if (i > 0 && items[i].key == items[i - 1].key)
		{
			*ctid = ctids[items[i - 1].number];
			continue;
		}
		ItemPointerSetInvalid(ctid);
		if (items[i].key == 0)
			continue;
		if (blkno != locked)
		{
			if (BufferIsValid(buffer))
				UnlockReleaseBuffer(buffer);
			CHECK_FOR_INTERRUPTS();
			buffer = GgSourcePinHeap(heap, blkno);
			LockBuffer(buffer, BUFFER_LOCK_SHARE);
			GgTestForOldSnapshot(snapshot, heap, BufferGetPage(buffer));
			locked = blkno;
		}
		ItemPointerSet(ctid, blkno, (OffsetNumber) items[i].key);
		if (!FindVisible(heap, buffer, by_page, ctid))
			ItemPointerSetInvalid(ctid);
	}
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
}

/* The same for tables of other access methods. */
static void
ReadTable(GgLists *lists, const RowItem *items, uint32 count, ItemPointerData *ctids)
{
	TupleTableSlot *slot = table_slot_create(lists->target->heap, NULL);
	IndexFetchTableData *fetch = GgBeginFetch(lists->target->heap);

	for (uint32 i = 0; i < count; i++)
	{
		ItemPointer ctid = &ctids[items[i].number];
		bool		call_again = false;

		CHECK_FOR_INTERRUPTS();
		ItemPointerSetInvalid(ctid);
		if (items[i].key == 0)
			continue;
		ItemPointerSet(ctid, (BlockNumber) (items[i].key >> 16), (OffsetNumber) items[i].key);
		if (table_index_fetch_tuple(fetch, ctid, GetActiveSnapshot(), slot, &call_again, NULL))
			*ctid = slot->tts_tid;
		else
			ItemPointerSetInvalid(ctid);
	}
	table_index_fetch_end(fetch);
	ExecDropSingleTupleTableSlot(slot);
}

/* ---- both ------------------------------------------------------------------------ */

/* Look a row up in the map; false when it is of a list that the map has not. */
static bool
LookUp(const GgLists *lists, const GgRowMap *map, GgPlace place, ItemPointer ctid)
{
	int			list = GgPlaceList(place);

	if (map == NULL || list >= lists->meta->nsegments)
		return false;
	for (int i = 0; i < map->nsegments; i++)
		if (map->segments[i].id == lists->meta->segments[list].id)
		{
			*ctid = map->segments[i].ctids[GgPlaceRow(place)];
			return true;
		}
	return false;
}

void
GgResolve(GgLists *lists, const GgRowMap *map, const GgPlace *places, uint32 count,
		  ItemPointerData *ctids)
{
	RowItem    *items = MemoryContextAllocHuge(CurrentMemoryContext,
											   Max(count, 1) * sizeof(RowItem));
	RowItem    *spare;
	uint32		n = 0;

	for (uint32 i = 0; i < count; i++)
	{
		if (LookUp(lists, map, places[i], &ctids[i]))
			continue;
		items[n].key = places[i];
		items[n++].number = i;
	}
	spare = MemoryContextAllocHuge(CurrentMemoryContext, Max(n, 1) * sizeof(RowItem));
	SortItems(items, n, spare);
	ReadTids(lists, items, n);
	SortItems(items, n, spare);
	pfree(spare);
	if (lists->target->heap->rd_rel->relam == HEAP_TABLE_AM_OID)
		ReadHeap(lists, items, n, ctids);
	else
		ReadTable(lists, items, n, ctids);
	pfree(items);
}

GgRowMap *
GgMakeRowMap(GgLists *lists, Size most_bytes)
{
	GgRowMap   *map;
	GgPlace    *places;
	Size		bytes = 0;

	for (int i = 0; i < lists->meta->nsegments; i++)
		bytes += lists->meta->segments[i].rows * sizeof(ItemPointerData);
	if (bytes > most_bytes)
		return NULL;
	map = palloc0(sizeof(GgRowMap));
	places = palloc(MAP_CHUNK * sizeof(GgPlace));
	for (int i = 0; i < lists->meta->nsegments; i++)
	{
		uint32		rows = lists->meta->segments[i].rows;
		ItemPointerData *ctids;

		if (lists->sources[i].index == NULL)
			continue;
		ctids = MemoryContextAllocHuge(CurrentMemoryContext, rows * sizeof(ItemPointerData));
		for (uint32 base = 0; base < rows; base += MAP_CHUNK)
		{
			uint32		count = Min(MAP_CHUNK, rows - base);

			for (uint32 j = 0; j < count; j++)
				places[j] = GgPlaceOf(i, base + j);
			GgResolve(lists, NULL, places, count, ctids + base);
		}
		map->segments[map->nsegments].id = lists->meta->segments[i].id;
		map->segments[map->nsegments].rows = rows;
		map->segments[map->nsegments++].ctids = ctids;
	}
	pfree(places);
	return map;
}

/* ---- the delta -------------------------------------------------------------------- */

/* Append the rows of one page, which is locked. */
static void
TakeDeltaPage(GgLists *lists, Buffer buffer, uint64 number, uint32 first_row, GgDeltaRows *rows)
{
	const GgMetaPageData *meta = lists->meta;
	Relation	index = lists->target->index;
	uint32		count = GgDeltaRowCount(index, meta, buffer);

	for (uint32 slot = 0; slot < count; slot++)
	{
		const GgDeltaRow *row = GgDeltaRowOf(meta, BufferGetPage(buffer), slot);

		if (!ItemPointerIsValid(&row->tid))
			continue;
		GgCopyDeltaVector(index, meta, &lists->delta, number, row,
						  rows->vectors + rows->count * GgRowBytes(meta));
		rows->rows[rows->count++] = first_row + slot;
	}
}

void
GgReadDelta(GgLists *lists, uint32 first_page, uint32 end_page, GgDeltaRows *rows)
{
	const GgMetaPageData *meta = lists->meta;
	Relation	index = lists->target->index;
	uint32		npages = GgDeltaPagesPerRow(meta);
	Size		most = GgRowsOnPages(meta, end_page - first_page);

	rows->count = 0;
	rows->rows = palloc(Max(most, 1) * sizeof(uint32));
	rows->vectors = MemoryContextAllocHuge(CurrentMemoryContext, Max(most, 1) * GgRowBytes(meta));
	for (uint32 page = first_page; page < end_page; page += npages)
	{
		uint64		number = GgDeltaFirst(meta) + page;
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		if (!GgReadDeltaPage(index, meta, &lists->delta, number, &buffer))
			continue;
		GgTestForOldSnapshot(GetActiveSnapshot(), index, BufferGetPage(buffer));
		TakeDeltaPage(lists, buffer, number, GgRowsOnPages(meta, page), rows);
		UnlockReleaseBuffer(buffer);
	}
}
