/*
 * row_filter.c
 *		Which nodes of a stream match the filter of a scan.
 *
 * The filter is evaluated once per query and segment, over the pages that have TIDs and the values
 * of filter columns.  They are read one after the other, so a million rows take some milliseconds.
 * A node matches when one of its rows does.  Rows of the delta are evaluated where they are
 * measured.
 */
#include "scan/scan.h"
#include "storage/filter_keys.h"

#include "miscadmin.h"
#include "utils/memutils.h"

/* Rows looked at together: those whose TIDs are on one page. */
#define CHUNK_ROWS			GG_TIDS_PER_PAGE
#define CHUNK_WORDS			((CHUNK_ROWS + 63) / 64)

/* Offsets read at a time. */
#define OFFSETS_CHUNK		2048

/* Copies of what a filter looks at, of the rows of one chunk. */
typedef struct RowsChunk
{
	uint64		heads[CHUNK_ROWS];
	const int64 *words[GG_MAX_FILTER_WORDS];
	int64	   *copies[GG_MAX_FILTER_WORDS];	/* NULL: no condition looks at the word */
} RowsChunk;

static RowsChunk *
MakeChunk(const gg_filter *filter)
{
	RowsChunk  *chunk = palloc0(sizeof(RowsChunk));

	for (uint32 c = 0; c < filter->nconditions; c++)
	{
		const gg_condition *condition = &filter->conditions[c];
		uint32		nwords = gg_condition_words(condition);

		for (uint32 w = condition->word; w < condition->word + nwords; w++)
			if (chunk->copies[w] == NULL)
				chunk->words[w] = chunk->copies[w] = palloc(CHUNK_ROWS * sizeof(int64));
	}
	return chunk;
}

static void
FreeChunk(RowsChunk *chunk)
{
	for (int w = 0; w < GG_MAX_FILTER_WORDS; w++)
		if (chunk->copies[w] != NULL)
			pfree(chunk->copies[w]);
	pfree(chunk);
}

/* Copy what the filter looks at of the segment's rows from first on, which begin a page of TIDs. */
static void
ReadChunk(GgScanOpaque *so, GgStream *stream, uint32 first, uint32 count, RowsChunk *chunk)
{
	uint64		rows = stream->segment->rows;
	Buffer		buffer = GgReadPage(so->index, so->meta->instance, &stream->tids,
									first / GG_TIDS_PER_PAGE, BUFFER_LOCK_SHARE);
	Page		page = BufferGetPage(buffer);

	GgTestForOldSnapshot(so->snapshot, so->index, page);
	memcpy(chunk->heads, PageGetContents(page), count * sizeof(uint64));
	UnlockReleaseBuffer(buffer);
	for (int w = 0; w < GG_MAX_FILTER_WORDS; w++)
		if (chunk->copies[w] != NULL)
			GgReadArray(so->index, so->meta->instance, &stream->filters,
						((uint64) w * rows + first) * sizeof(int64), chunk->copies[w],
						count * sizeof(int64));
}

/* Rows of the segment that match: a bitmap, and how many there are. */
static uint64 *
MatchingRows(GgScanOpaque *so, GgStream *stream, uint32 *nmatching)
{
	uint32		rows = stream->segment->rows;
	uint64	   *bits = MemoryContextAllocExtended(so->context,
												  (rows / 64 + 1) * sizeof(uint64),
												  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	RowsChunk  *chunk = MakeChunk(so->filter);
	uint64		found[CHUNK_WORDS];

	*nmatching = 0;
	for (uint32 first = 0; first < rows; first += CHUNK_ROWS)
	{
		uint32		count = Min(CHUNK_ROWS, rows - first);
		uint32		matches;

		CHECK_FOR_INTERRUPTS();
		ReadChunk(so, stream, first, count, chunk);
		matches = gg_filter_rows(so->filter, chunk->heads, chunk->words, count, found);
		*nmatching += matches;
		for (uint32 w = 0; w < CHUNK_WORDS && w * 64 < count && matches > 0; w++)
		{
			uint32		at = (first + w * 64) / 64;
			uint32		shift = first % 64;

			bits[at] |= found[w] << shift;
			if (shift > 0 && found[w] >> (64 - shift) != 0)
				bits[at + 1] |= found[w] >> (64 - shift);
		}
	}
	FreeChunk(chunk);
	return bits;
}

static bool
AnyBit(const uint64 *bits, uint32 from, uint32 to)
{
	for (uint32 i = from; i < to; i++)
		if ((bits[i / 64] >> (i % 64) & 1) != 0)
			return true;
	return false;
}

/* The nodes that have these rows. */
static uint64 *
NodesOfRows(GgScanOpaque *so, GgStream *stream, const uint64 *rows, uint32 *nmatching)
{
	uint32		n = stream->nodes;
	uint64	   *bits = MemoryContextAllocExtended(so->context, (n / 64 + 1) * sizeof(uint64),
												  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	uint32	   *offsets = palloc((OFFSETS_CHUNK + 1) * sizeof(uint32));

	*nmatching = 0;
	for (uint32 first = 0; first < n; first += OFFSETS_CHUNK)
	{
		uint32		count = Min(OFFSETS_CHUNK, n - first);

		GgReadArray(so->index, so->meta->instance, &stream->offsets,
					(uint64) first * sizeof(uint32), offsets, (count + 1) * sizeof(uint32));
		for (uint32 i = 0; i < count; i++)
		{
			if (offsets[i] > offsets[i + 1] || offsets[i + 1] > stream->segment->rows)
				GgReportCorruption(so->index,
								   GgArrayBlock(&stream->offsets,
												(uint64) (first + i) * sizeof(uint32) /
												GG_PAGE_PAYLOAD),
								   "rows %u to %u of node %u are out of range",
								   offsets[i], offsets[i + 1], first + i);
			if (!AnyBit(rows, offsets[i], offsets[i + 1]))
				continue;
			bits[(first + i) / 64] |= UINT64CONST(1) << ((first + i) % 64);
			(*nmatching)++;
		}
	}
	pfree(offsets);
	return bits;
}

void
GgMakeFilter(GgScanOpaque *so, IndexScanDesc scan)
{
	MemoryContext old;
	GgFilterColumns columns;
	gg_filter  *filter;

	so->filter = NULL;
	so->impossible = so->recheck = false;
	if (scan->numberOfKeys == 0)
		return;
	old = MemoryContextSwitchTo(so->context);
	GgGetFilterColumns(so->index, &columns);
	filter = palloc(sizeof(gg_filter));
	if (!GgFilterFromKeys(&columns, scan->keyData, scan->numberOfKeys, filter, &so->recheck))
		so->impossible = true;
	else if (filter->nconditions > 0)
		so->filter = filter;
	MemoryContextSwitchTo(old);
}

void
GgFindMatching(GgScanOpaque *so, GgStream *stream)
{
	MemoryContext old;

	if (so->filter == NULL || stream->matching != NULL)
		return;
	if (stream->segment == NULL)
	{
		stream->nmatching = stream->nodes;
		return;
	}
	old = MemoryContextSwitchTo(so->context);
	stream->matching = MatchingRows(so, stream, &stream->nmatching);
	stream->matches = stream->nmatching;
	if (stream->offsets.nextents > 0)
	{
		stream->matching_rows = stream->matching;
		stream->matching = NodesOfRows(so, stream, stream->matching_rows, &stream->nmatching);
	}
	MemoryContextSwitchTo(old);
}

bool
GgRowMatches(const GgScanOpaque *so, const GgDeltaRow *row)
{
	const int64 *words[GG_MAX_FILTER_WORDS];
	uint64		head;
	uint64		bit;

	if (so->filter == NULL)
		return true;
	for (int w = 0; w < so->meta->filter_words; w++)
		words[w] = GgDeltaWords(row) + w;
	memcpy(&head, row, sizeof(head));
	return gg_filter_rows(so->filter, &head, words, 1, &bit) == 1;
}

bool
GgTidMatches(const GgScanOpaque *so, const ItemPointerData *tid)
{
	const gg_filter *filter = so->filter;
	uint64		key;
	uint32		at;

	if (filter == NULL || filter->tids == NULL)
		return true;
	key = (uint64) ItemPointerGetBlockNumberNoCheck(tid) << 16 |
		ItemPointerGetOffsetNumberNoCheck(tid);
	at = gg_first_tid(filter->tids, 0, filter->ntids, key);
	return at < filter->ntids && filter->tids[at] == key;
}

void
GgScanSetTids(IndexScanDesc scan, const uint64 *tids, uint32 ntids)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;

	if (so->filter == NULL)
		so->filter = MemoryContextAllocZero(so->context, sizeof(gg_filter));
	so->filter->tids = tids;
	so->filter->ntids = ntids;
}
