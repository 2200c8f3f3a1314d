/*
 * row_filter.c
 *		Which nodes of a stream match the filter of a scan.
 *
 * A node matches when one of its rows does.  The filter is evaluated over the pages that have TIDs
 * and the values of filter columns: for all rows of a segment, one page after the other, or for the
 * rows of one node.  A million rows take some milliseconds, much longer than a walk.  So for a walk
 * the share of rows that match is estimated from a sample, and only the nodes that it hands out are
 * evaluated.  Rows of the delta are evaluated where they are measured.
 */
#include "scan/row_filter.h"
#include "storage/filter_keys.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"

/* Rows looked at together are those whose TIDs are on one page, at most. */
#define CHUNK_ROWS			GG_TIDS_PER_PAGE
#define CHUNK_WORDS			((CHUNK_ROWS + 63) / 64)

/* Offsets read at a time. */
#define OFFSETS_CHUNK		2048

/*
 * A sample has this many adjacent rows at each of its places.  Two cache lines have the TIDs of 16
 * rows.  The estimate need not be good: where it decides wrongly, both ways take about as long.
 */
#define SAMPLE_ROWS			16

/* What the filter of a scan looks at, of some rows. */
struct GgFilterRows
{
	uint32		nwords;
	uint32		used[GG_MAX_FILTER_WORDS];	/* numbers of words, nwords of them */
	Buffer		pins[GG_MAX_FILTER_WORDS];	/* of pages that have them, or invalid */
	int64	   *copies[GG_MAX_FILTER_WORDS];	/* of words that are on two pages */
	const int64 *words[GG_MAX_FILTER_WORDS];	/* by number */
};

static void
MakeFilterRows(GgScanOpaque *so)
{
	GgFilterRows *rows = MemoryContextAllocZero(so->context, sizeof(GgFilterRows));
	const gg_filter *filter = so->filter;
	uint64		used = 0;

	for (uint32 c = 0; c < filter->nconditions; c++)
		used |= ((UINT64CONST(1) << gg_condition_words(&filter->conditions[c])) - 1) <<
			filter->conditions[c].word;
	for (; used != 0; used &= used - 1)
	{
		rows->used[rows->nwords] = pg_rightmost_one_pos64(used);
		rows->copies[rows->nwords++] = MemoryContextAlloc(so->context,
														  CHUNK_ROWS * sizeof(int64));
	}
	so->filter_rows = rows;
}

/*
 * Which of the segment's rows from first on match: count rows, whose TIDs are on one page.  Words
 * are read where they lie, unless a page ends among them.  The page of TIDs is locked, since VACUUM
 * clears them, and last, since other pages may have to be read from disk.
 */
static uint32
MatchRows(GgScanOpaque *so, GgStream *stream, uint32 first, uint32 count, uint64 *bits)
{
	GgFilterRows *rows = so->filter_rows;
	GgPageSource *source = &stream->source;
	uint32		matches;
	Buffer		buffer;
	Page		page;

	for (uint32 i = 0; i < rows->nwords; i++)
	{
		uint64		word = (uint64) rows->used[i] * stream->segment->rows + first;
		Size		skip = word * sizeof(int64) % GG_PAGE_PAYLOAD;
		const void *at = rows->copies[i];

		rows->pins[i] = InvalidBuffer;
		if (skip + count * sizeof(int64) <= GG_PAGE_PAYLOAD)
		{
			rows->pins[i] = GgSourcePin(source, &stream->filters,
										word * sizeof(int64) / GG_PAGE_PAYLOAD);
			at = PageGetContents(BufferGetPage(rows->pins[i])) + skip;
		}
		else
			GgSourceRead(source, &stream->filters, word * sizeof(int64), rows->copies[i],
						 count * sizeof(int64));
		rows->words[rows->used[i]] = at;
	}
	buffer = GgSourcePin(source, &stream->tids, first / GG_TIDS_PER_PAGE);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	GgTestForOldSnapshot(so->snapshot, so->index, page);
	matches = gg_filter_rows(so->filter, (const uint64 *) PageGetContents(page) +
							 first % GG_TIDS_PER_PAGE, rows->words, count, bits);
	UnlockReleaseBuffer(buffer);
	for (uint32 i = 0; i < rows->nwords; i++)
		if (BufferIsValid(rows->pins[i]))
			ReleaseBuffer(rows->pins[i]);
	return matches;
}

/* ---- all rows ------------------------------------------------------------ */

/* Rows of the segment that match: a bitmap, and how many there are. */
static uint64 *
MatchingRows(GgScanOpaque *so, GgStream *stream, uint32 *nmatching)
{
	uint32		rows = stream->segment->rows;
	uint64	   *bits = MemoryContextAllocExtended(so->context,
												  (rows / 64 + 1) * sizeof(uint64),
												  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	uint64		found[CHUNK_WORDS];

	*nmatching = 0;
	for (uint32 first = 0; first < rows; first += CHUNK_ROWS)
	{
		uint32		count = Min(CHUNK_ROWS, rows - first);
		uint32		matches;

		CHECK_FOR_INTERRUPTS();
		matches = MatchRows(so, stream, first, count, found);
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
	return bits;
}

/* Is any of the bits [from, to) set? */
static bool
AnyBit(const uint64 *bits, uint32 from, uint32 to)
{
	uint32		first = from / 64;
	uint32		last = to / 64;
	uint64		head = PG_UINT64_MAX << (from % 64);
	uint64		tail = (UINT64CONST(1) << (to % 64)) - 1;

	if (first == last)
		return (bits[first] & head & tail) != 0;
	if ((bits[first] & head) != 0 || (bits[last] & tail) != 0)
		return true;
	for (uint32 i = first + 1; i < last; i++)
		if (bits[i] != 0)
			return true;
	return false;
}

/* Which of up to 64 nodes have one of these rows.  offsets: of the nodes, and of the one behind. */
static uint64
NodesOfBlock(const uint64 *rows, const uint32 *offsets, uint32 count)
{
	uint64		bits = 0;

	if (!AnyBit(rows, offsets[0], offsets[count]))
		return 0;
	for (uint32 i = 0; i < count; i++)
	{
		uint32		from = offsets[i];
		/* most nodes have one row */
		bool		match = likely(offsets[i + 1] - from == 1) ?
			(rows[from / 64] >> (from % 64) & 1) != 0 : AnyBit(rows, from, offsets[i + 1]);

		bits |= (uint64) match << i;
	}
	return bits;
}

/* Offsets of count nodes from first on, and of the one behind: they ascend. */
static void
ReadOffsets(GgScanOpaque *so, GgStream *stream, uint32 first, uint32 count, uint32 *offsets)
{
	uint32		descents = 0;

	GgSourceRead(&stream->source, &stream->offsets, (uint64) first * sizeof(uint32), offsets,
				 (count + 1) * sizeof(uint32));
	for (uint32 i = 0; i < count; i++)
		descents += offsets[i] > offsets[i + 1];
	if (descents > 0 || offsets[count] > stream->segment->rows)
		GgReportCorruption(so->index,
						   GgArrayBlock(&stream->offsets,
										(uint64) first * sizeof(uint32) / GG_PAGE_PAYLOAD),
						   "rows %u to %u of nodes %u to %u are out of range",
						   offsets[0], offsets[count], first, first + count - 1);
}

/* The nodes that have these rows. */
static uint64 *
NodesOfRows(GgScanOpaque *so, GgStream *stream, const uint64 *rows, uint32 *nmatching)
{
	uint32		n = stream->nodes;
	uint64	   *bits = MemoryContextAllocHuge(so->context, (n / 64 + 1) * sizeof(uint64));
	uint32	   *offsets = palloc((OFFSETS_CHUNK + 1) * sizeof(uint32));

	*nmatching = 0;
	for (uint32 first = 0; first < n; first += OFFSETS_CHUNK)
	{
		uint32		count = Min(OFFSETS_CHUNK, n - first);

		CHECK_FOR_INTERRUPTS();
		ReadOffsets(so, stream, first, count, offsets);
		for (uint32 i = 0; i < count; i += 64)
		{
			uint64		block = NodesOfBlock(rows, offsets + i, Min(64, count - i));

			bits[(first + i) / 64] = block;
			*nmatching += pg_popcount64(block);
		}
	}
	pfree(offsets);
	return bits;
}

/* Make so->filter_rows for the functions above.  False: no row need be evaluated. */
static bool
NeedFilterRows(GgScanOpaque *so, GgStream *stream)
{
	if (so->filter == NULL || stream->matching != NULL)
		return false;
	if (stream->segment == NULL)
	{
		stream->nmatching = stream->nodes;
		return false;
	}
	if (so->filter_rows == NULL)
		MakeFilterRows(so);
	GgNeedSource(so, stream);
	return true;
}

void
GgFindMatching(GgScanOpaque *so, GgStream *stream)
{
	MemoryContext old = MemoryContextSwitchTo(so->context);

	if (NeedFilterRows(so, stream))
	{
		stream->matching = MatchingRows(so, stream, &stream->nmatching);
		stream->matches = stream->nmatching;
		if (stream->offsets.nextents > 0)
		{
			stream->matching_rows = stream->matching;
			stream->matching = NodesOfRows(so, stream, stream->matching_rows, &stream->nmatching);
		}
	}
	MemoryContextSwitchTo(old);
}

/* ---- some rows ----------------------------------------------------------- */

/*
 * Places are spread by multiples of the golden ratio: evenly, but not in step with values that
 * recur.  They are the same each time, so that the same scan has the same answer.
 */
void
GgEstimateMatching(GgScanOpaque *so, GgStream *stream, uint32 places)
{
	MemoryContext old = MemoryContextSwitchTo(so->context);

	if (!NeedFilterRows(so, stream))
		;
	else if (stream->segment->rows < GG_SAMPLED_FROM)
		GgFindMatching(so, stream);
	else
	{
		uint64		rows = stream->segment->rows;
		uint64		matches = 0;

		for (uint32 i = 0; i < places; i++)
		{
			uint32		place = i * 0x9E3779B9;
			uint32		first = (uint32) (place * (rows - SAMPLE_ROWS) >> 32);
			uint64		bits;

			if (first % CHUNK_ROWS > CHUNK_ROWS - SAMPLE_ROWS)
				first -= SAMPLE_ROWS;
			matches += MatchRows(so, stream, first, SAMPLE_ROWS, &bits);
		}
		stream->matches = rows * matches / (places * SAMPLE_ROWS);
		/* as if all rows of a node matched, or none; otherwise more nodes match */
		stream->nmatching = (uint32) (stream->nodes * matches / (places * SAMPLE_ROWS));
	}
	MemoryContextSwitchTo(old);
}

/*
 * Of the rows that LIMIT takes each stream has its share.  How many rows that match are dropped by
 * the executor is not known.
 */
static double
NodesWanted(const GgScanOpaque *so, const GgStream *stream)
{
	const double limit = so->one_of_many ? 0 : GgRowsOfLimit(so);
	double		nodes = 0;

	for (int i = 0; i < so->nstreams; i++)
		nodes += so->streams[i].nodes;
	return GgNodesWanted(limit * stream->nodes / nodes, so->params.itopk_size);
}

double
GgLongestList(const GgScanOpaque *so, const GgStream *stream)
{
	const gg_filter *filter = so->filter;
	const gg_codes codes = stream->source.codes;
	GgFilteredNodes of;

	if (filter == NULL)
		return GgLongestWalkList(stream->nodes);
	of = (GgFilteredNodes) {
		.nodes = stream->nodes,
		.matching = stream->nmatching,
		.conditions = stream->matching != NULL ? 0 :
			filter->nconditions + (filter->tids != NULL),
		.walk_pages = (double) (codes != GG_CODES_NONE ? GgCodeBytes(so->meta, codes) :
								GgRowBytes(so->meta)) / GG_TIMED_PAGE,
		.exact_pages = (double) (so->by_table ? GgCodeBytes(so->meta, codes) :
								 GgRowBytes(so->meta)) / GG_TIMED_PAGE,
		.wanted = NodesWanted(so, stream)
	};
	return GgLongestFilteredList(&of);
}

/* Does one of the segment's rows [first, end) match? */
static bool
AnyRowMatches(GgScanOpaque *so, GgStream *stream, uint32 first, uint32 end)
{
	uint64		bits[CHUNK_WORDS];

	while (first < end)
	{
		uint32		count = Min(end - first, CHUNK_ROWS - first % CHUNK_ROWS);

		CHECK_FOR_INTERRUPTS();
		if (MatchRows(so, stream, first, count, bits) > 0)
			return true;
		first += count;
	}
	return false;
}

bool
GgEvaluateNode(GgScanOpaque *so, GgStream *stream, uint32 node)
{
	uint32		rows[2] = {node, node + 1};

	if (stream->offsets.nextents > 0)
		ReadOffsets(so, stream, node, 1, rows);
	return AnyRowMatches(so, stream, rows[0], rows[1]);
}

bool
GgEvaluateRow(GgScanOpaque *so, GgStream *stream, uint32 row)
{
	MemoryContext old = MemoryContextSwitchTo(so->context);
	bool		match = NeedFilterRows(so, stream) && AnyRowMatches(so, stream, row, row + 1);

	MemoryContextSwitchTo(old);
	return match;
}

/* ---- the filter ---------------------------------------------------------- */

void
GgMakeFilter(GgScanOpaque *so, const ScanKeyData *keys, int nkeys)
{
	MemoryContext old;
	GgFilterColumns columns;
	gg_filter  *filter;

	so->filter = NULL;
	so->filter_rows = NULL;
	so->impossible = so->recheck = false;
	if (nkeys == 0)
		return;
	old = MemoryContextSwitchTo(so->context);
	GgGetFilterColumns(so->index, &columns);
	filter = palloc(sizeof(gg_filter));
	if (!GgFilterFromKeys(&columns, keys, nkeys, filter, &so->recheck))
		so->impossible = true;
	else if (filter->nconditions > 0)
		so->filter = filter;
	MemoryContextSwitchTo(old);
}

/* Heads and words of a page's rows are put together, as those of a segment lie, for one call. */
void
GgMatchDeltaRows(GgScanOpaque *so, const char *rows, uint32 count, uint64 *bits)
{
	Size		row_bytes = GgDeltaRowBytes(so->meta);
	uint64		heads[CHUNK_ROWS];
	GgFilterRows *of;

	if (so->filter_rows == NULL)
		MakeFilterRows(so);
	of = so->filter_rows;
	for (uint32 i = 0; i < count; i++)
		memcpy(&heads[i], rows + i * row_bytes, sizeof(uint64));
	for (uint32 w = 0; w < of->nwords; w++)
	{
		for (uint32 i = 0; i < count; i++)
			of->copies[w][i] = GgDeltaWords((const GgDeltaRow *) (rows + i * row_bytes))
				[of->used[w]];
		of->words[of->used[w]] = of->copies[w];
	}
	(void) gg_filter_rows(so->filter, heads, of->words, count, bits);
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
