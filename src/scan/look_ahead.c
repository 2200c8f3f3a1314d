/*
 * look_ahead.c
 *		Fetches into the processor's cache what the next rows of a list need.
 *
 * Rows of a list lie all over the table and the index's pages of TIDs, so most of the time
 * goes into waiting for memory: for the rows, and for the page tables, since each row's pages are
 * others.  A processor executes a fetch ahead only after it has found the page in the page tables.
 * So fetching row by row would wait for one page table after the other.  GgLookAhead() takes many
 * rows at once, in three loops: their TIDs, their line pointers, and the first and last cache lines
 * of their tuples.  Within a loop nothing depends on the row before, so the processor waits for
 * several rows at a time.  The executor's filter reads columns before the vector, or behind it.
 * GgLookAhead() looks at pages without a pin, so what it reads there may be wrong, which a hint can
 * afford.
 *
 * GgPinRow() pins the page of the row that is returned, and puts the pin where the executor's fetch
 * (heapam_index_fetch_tuple) keeps that of its last row, to use it again for a row on the same
 * page.  Without it the fetch would look the page up in the buffer table, and once all else is in
 * the cache that takes longest.  source.c remembers in which buffer the page was.
 *
 * Measured: 100,000 rows of 128 dimensions, none of which passes the executor's filter, take 230 ms
 * without both, 133 with hints, 97 with pins (2-core machine under other load, least of 12 in
 * turns; medians 299, 155, 111).  The tuple's last line: 200,000 such rows, whose filter reads a
 * column behind the vector, take 75 ms of processor time without it, 53 with it (least of 7 in
 * turns; medians 86, 62).  Those were hints row by row.  1M x 128, after other work has emptied the
 * caches: a query that is handed 1,000 rows takes 1.47 ms of processor time with hints row by row,
 * 1.17 in batches of 32 (1.25 of 16, 1.20 of 64); one that is handed 10,000 takes 5.1 and 3.7.
 *
 * Short lists of a walk on a device, where LIMIT is known: 80,000 rows of 128 dimensions, LIMIT 10,
 * the CPU engine as device.  From the list to the end of the scan it takes 58 us without both, 36
 * with them (medians of 2,050 queries each, in turns within one session, 2-core machine under other
 * load; least 24, 9).  LIMIT 1: 9.7 and 10.0.
 *
 * Rows of the table that are read before they are returned (table_order.c) are looked at likewise:
 * 400,000 x 128, storage = int4, LIMIT 10: a query takes 520 us, and 628 without (p50, medians of
 * five turns, one client, 2-core machine under other load).
 *
 * Walks by codes on the CPU: a query takes .96 and .98 of the time (200,000 x 768 and 1M x 128,
 * int8, itopk 16; 150 turns of 50 queries within one run).
 *
 * Tried: the same for walks by rows.  Pins alone gain nothing (30.0 and 30.1 us), both gain 7 us of
 * some 300 that the query takes, and want the walk's list from the engine.
 *
 * This serves heap tables, whose page layout is known, and segments whose nodes have one row each.
 */
#include "scan/scan.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "catalog/pg_am_d.h"

#include "engine/keys.h"

void
GgBeginAhead(GgScanOpaque *so, GgStream *stream)
{
	if (stream->heap_blocks > 0 || stream->segment == NULL || stream->offsets.nextents > 0 ||
		so->heap->rd_rel->relam != HEAP_TABLE_AM_OID)
		return;
	GgNeedSource(so, stream);
	stream->heap_blocks = RelationGetNumberOfBlocks(so->heap);
}

/* Where the TID of a node was last; NULL: not known. */
static inline const ItemPointerData *
PeekTid(const GgStream *stream, uint32 node)
{
	const char *page;

	if (node >= stream->nodes)
		return NULL;
	page = GgSourcePeek(&stream->source, &stream->tids, node / GG_TIDS_PER_PAGE);
	if (page == NULL)
		return NULL;
	return &((const GgTidEntry *) PageGetContents((Page) page))[node % GG_TIDS_PER_PAGE].tid;
}

/* Where the line pointer of a row was last; *page is its page.  NULL: not known. */
static inline ItemId
PeekLinePointer(Relation heap, BlockNumber heap_blocks, const ItemPointerData *tid,
				const char **page)
{
	BlockNumber blkno = ItemPointerGetBlockNumberNoCheck(tid);
	OffsetNumber offset = ItemPointerGetOffsetNumberNoCheck(tid);

	/* PrefetchBuffer() fails outside the table */
	if (blkno >= heap_blocks || offset < FirstOffsetNumber || offset > MaxHeapTuplesPerPage)
		return NULL;
	*page = GgSourcePeekHeap(heap, blkno);
	return *page != NULL ? PageGetItemId((Page) *page, offset) : NULL;
}

void
GgLookAtRows(Relation heap, BlockNumber heap_blocks, const ItemPointerData *const *tids,
			 uint32 count)
{
	const char *pages[GG_AHEAD_ROWS];
	ItemId		line_pointers[GG_AHEAD_ROWS];

	for (uint32 i = 0; i < count; i++)
	{
		line_pointers[i] = tids[i] != NULL ?
			PeekLinePointer(heap, heap_blocks, tids[i], &pages[i]) : NULL;
		if (line_pointers[i] != NULL)
		{
			__builtin_prefetch(pages[i]);
			__builtin_prefetch(line_pointers[i]);
		}
	}
	for (uint32 i = 0; i < count; i++)
		if (line_pointers[i] != NULL)
		{
			uint32		first = ItemIdGetOffset(line_pointers[i]);
			uint32		last = first + ItemIdGetLength(line_pointers[i]) - 1;

			__builtin_prefetch(pages[i] + first % BLCKSZ);
			__builtin_prefetch(pages[i] + (first + SizeofHeapTupleHeader) % BLCKSZ);
			__builtin_prefetch(pages[i] + last % BLCKSZ);
		}
}

void
GgLookAhead(GgScanOpaque *so, const GgStream *stream, const uint64 *keys, uint32 count, int shift)
{
	const ItemPointerData *tids[GG_AHEAD_ROWS];

	count = Min(count, GG_AHEAD_ROWS);
	/* of what LIMIT leaves, each stream has a part */
	if (so->limit > so->nrows)
		count = Min(count, (so->limit - so->nrows - 1) / so->nstreams + 1);
	for (uint32 i = 0; i < count; i++)
	{
		tids[i] = PeekTid(stream, key_node(keys[i] << shift));
		if (tids[i] != NULL)
			__builtin_prefetch(tids[i]);
	}
	GgLookAtRows(so->heap, stream->heap_blocks, tids, count);
}

void
GgPinRow(Relation heap, IndexFetchTableData *fetch_data, const ItemPointerData *tid)
{
	IndexFetchHeapData *fetch = (IndexFetchHeapData *) fetch_data;
	BlockNumber blkno = ItemPointerGetBlockNumber(tid);

	if (fetch == NULL ||
		(BufferIsValid(fetch->xs_cbuf) && BufferGetBlockNumber(fetch->xs_cbuf) == blkno))
		return;
	if (BufferIsValid(fetch->xs_cbuf))
		ReleaseBuffer(fetch->xs_cbuf);
	GgFetchHolds(fetch, InvalidBuffer, blkno);
	GgFetchHolds(fetch, GgSourcePinHeap(heap, blkno), blkno);
	/* as the fetch does for a page that it had not pinned */
	GgPruneHeld(heap, fetch);
}
