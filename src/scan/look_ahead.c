/*
 * look_ahead.c
 *		Fetches into the processor's cache what the next rows of a long list need.
 *
 * In a long list rows lie all over the table and the index's pages of TIDs, so most of the time
 * goes into waiting for memory.  GgLookAhead() is called for each row.  It fetches first a TID,
 * some rows later the line pointer, then the tuple's first and last cache lines.  The executor's
 * filter reads columns before the vector, or behind it.  GgLookAhead() looks at pages without a
 * pin, so what it reads there may be wrong, which a hint can afford.
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
 * turns; medians 86, 62).
 *
 * What an address within a page means is known for heap tables only, and for rows that are nodes.
 */
#include "scan/scan.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "catalog/pg_am_d.h"

void
GgBeginAhead(GgScanOpaque *so, GgStream *stream, GgAhead *ahead)
{
	if (ahead->heap_blocks > 0 || stream->segment == NULL || stream->offsets.nextents > 0 ||
		so->heap->rd_rel->relam != HEAP_TABLE_AM_OID)
		return;
	GgNeedSource(so, stream);
	ahead->heap_blocks = RelationGetNumberOfBlocks(so->heap);
	stream->pins_rows = true;
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

void
GgLookAhead(GgScanOpaque *so, const GgStream *stream, GgAhead *ahead, uint32 tid_node,
			uint32 page_node)
{
	const ItemPointerData *tid = PeekTid(stream, tid_node);
	GgRowAhead *slot = &ahead->rows[(ahead->turn + GG_AHEAD_PAGE) % GG_AHEAD_SLOTS];

	if (tid != NULL)
		__builtin_prefetch(tid);

	tid = PeekTid(stream, page_node);
	slot->page = NULL;
	if (tid != NULL)
	{
		BlockNumber blkno = ItemPointerGetBlockNumberNoCheck(tid);
		OffsetNumber offset = ItemPointerGetOffsetNumberNoCheck(tid);

		/* PrefetchBuffer() fails outside the table */
		if (blkno < ahead->heap_blocks &&
			offset >= FirstOffsetNumber && offset <= MaxHeapTuplesPerPage)
			slot->page = GgSourcePeekHeap(so->heap, blkno);
		if (slot->page != NULL)
		{
			slot->line_pointer = PageGetItemId((Page) slot->page, offset);
			__builtin_prefetch(slot->page);
			__builtin_prefetch(slot->line_pointer);
		}
	}

	slot = &ahead->rows[(ahead->turn + GG_AHEAD_TUPLE) % GG_AHEAD_SLOTS];
	if (slot->page != NULL)
	{
		uint32		first = ItemIdGetOffset(slot->line_pointer);
		uint32		last = first + ItemIdGetLength(slot->line_pointer) - 1;

		__builtin_prefetch(slot->page + first % BLCKSZ);
		__builtin_prefetch(slot->page + last % BLCKSZ);
	}
	ahead->turn++;
}

void
GgPinRow(IndexScanDesc scan)
{
	IndexFetchHeapData *fetch = (IndexFetchHeapData *) scan->xs_heapfetch;
	BlockNumber blkno = ItemPointerGetBlockNumber(&scan->xs_heaptid);

	if (fetch == NULL ||
		(BufferIsValid(fetch->xs_cbuf) && BufferGetBlockNumber(fetch->xs_cbuf) == blkno))
		return;
	if (BufferIsValid(fetch->xs_cbuf))
		ReleaseBuffer(fetch->xs_cbuf);
	fetch->xs_cbuf = InvalidBuffer;
	fetch->xs_cbuf = GgSourcePinHeap(scan->heapRelation, blkno);
	/* as the fetch does for a page that it had not pinned */
	heap_page_prune_opt(scan->heapRelation, fetch->xs_cbuf);
}
