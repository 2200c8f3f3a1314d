/*
 * exact_stream.c
 *		Nodes of a segment, or of the delta, by measuring every row.
 *
 * A pass measures every row, and sorts some of the nearest, since most scans stop soon.  A scan
 * that wants more probably wants everything that is left.  Where work_mem has room, the pass has
 * kept the distances of the other rows, which are sorted then.  Where it has not, a second pass
 * measures them anew, for tuplesort.
 *
 * Rows that strict order kept back, whether another implementation did or this one would, come
 * behind all others, marked late.
 */
#include "scan/row_filter.h"

#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"

#include "keys.h"

/* The first pass keeps at least this share of all rows: a heap of them costs little beside it. */
#define FIRST_SHARE		64

/* Nodes measured in one call of GgSourceSweep(). */
#define SWEEP_CHUNK		256

/* Ranks read from a sort at a time. */
#define SORT_CHUNK		256

typedef struct ExactStream
{
	uint64		bound;			/* strict order: rows with lower keys come late */
	uint64		next_rank;		/* this one and those above it are still to come */
	uint64	   *batch;			/* ascending ranks */
	uint32		batch_len;
	uint32		batch_pos;
	uint32		batch_cap;
	bool		batch_bounded;	/* there may be more than batch_cap: a heap while it is filled */
	bool		batch_last;		/* nothing lies behind the batch */
	uint64	   *rest;			/* ranks behind the batch, in no order; NULL: not kept */
	uint32		rest_len;
	Tuplesortstate *sort;		/* all ranks that are still to come; NULL: they are in the batch */
} ExactStream;

/* ---- ranks ------------------------------------------------------------- */

/*
 * Ranks order what a stream hands out: by key, but late rows behind all others.  The lowest bit of
 * a key is a flag that is not used here, so there is room above.
 */
#define RANK_LATE			(UINT64CONST(1) << 63)

static inline uint64
RankOf(const ExactStream *state, uint64 key)
{
	return key >> 1 | (key < state->bound ? RANK_LATE : 0);
}

/* tuplesort compares signed integers */
static inline Datum
RankGetDatum(uint64 rank)
{
	return Int64GetDatum((int64) (rank ^ RANK_LATE));
}

static inline uint64
DatumGetRank(Datum datum)
{
	return (uint64) DatumGetInt64(datum) ^ RANK_LATE;
}

#define ST_SORT sort_ranks
#define ST_ELEMENT_TYPE uint64
#define ST_COMPARE(a, b) (*(a) < *(b) ? -1 : *(a) > *(b))
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* Offer a node to the pass. */
static inline void
OfferKey(ExactStream *state, uint64 key)
{
	uint64		rank = RankOf(state, key);

	if (rank < state->next_rank)
		return;
	if (state->sort != NULL)
		tuplesort_putdatum(state->sort, RankGetDatum(rank), false);
	else if (!state->batch_bounded)
	{
		Assert(state->batch_len < state->batch_cap);
		state->batch[state->batch_len++] = rank;
	}
	else if (state->batch_len < state->batch_cap)
		heap_push(state->batch, state->batch_len++, rank);
	else
	{
		uint64		last = Max(rank, state->batch[0]);

		state->batch_last = false;
		if (rank < last)
			heap_replace(state->batch, state->batch_cap, rank);
		if (state->rest != NULL)
			state->rest[state->rest_len++] = last;
	}
}

/* ---- passes ------------------------------------------------------------ */

/* Measure the nodes that match, and offer them. */
static void
MatchingPass(GgScanOpaque *so, GgStream *stream)
{
	ExactStream *state = stream->state;
	uint32		n = stream->nodes;
	uint32		nodes[SWEEP_CHUNK + 64];
	float		distances[SWEEP_CHUNK + 64];
	uint32		count = 0;

	memset(distances, 0, sizeof(distances));
	for (uint32 base = 0; base < n; base += 64)
	{
		for (uint64 bits = stream->matching[base / 64]; bits != 0; bits &= bits - 1)
		{
			uint32		node = base + pg_rightmost_one_pos64(bits);

			if (!GgWasReturned(stream, node))
				nodes[count++] = node;
		}
		if (count < SWEEP_CHUNK && base + 64 < n)
			continue;
		CHECK_FOR_INTERRUPTS();
		if (so->query != NULL)
			GgSourceDistances(&stream->source, nodes, count, distances);
		for (uint32 i = 0; i < count; i++)
			OfferKey(state, key_of(distances[i], nodes[i]));
		count = 0;
	}
}

static void
SegmentPass(GgScanOpaque *so, GgStream *stream)
{
	ExactStream *state = stream->state;
	uint32		n = stream->nodes;

	GgNeedSource(so, stream);
	if (so->filter != NULL)
	{
		MatchingPass(so, stream);
		return;
	}
	for (uint32 base = 0; base < n; base += SWEEP_CHUNK)
	{
		float		distances[SWEEP_CHUNK];
		uint32		count = Min(SWEEP_CHUNK, n - base);

		CHECK_FOR_INTERRUPTS();
		if (so->query != NULL)
			GgSourceSweep(&stream->source, base, count, distances);
		else
			memset(distances, 0, sizeof(distances));
		for (uint32 i = 0; i < count; i++)
			if (!GgWasReturned(stream, base + i))
				OfferKey(state, key_of(distances[i], base + i));
	}
}

/*
 * Copy the row of a delta whose rows are longer than a page: the head from its first page, which
 * is locked, the rest from the pages that follow.
 */
static void
CopyLongRow(GgScanOpaque *so, uint32 number, const GgDeltaRow *row, char *copy)
{
	const GgMetaPageData *meta = so->meta;
	Size		here = GgDeltaVectorHere(meta);

	memcpy(copy, GgDeltaVector(meta, row), here);
	GgReadArray(so->index, meta->instance, &so->delta, (uint64) (number + 1) * GG_PAGE_PAYLOAD,
				copy + here, GgRowBytes(meta) - here);
}

/*
 * Delta pages change while we read (rows are appended, TIDs cleared), so they are locked in share
 * mode.  The node of a delta row counts slots from the delta's first page as of this scan.  Keys
 * are offered when the page is unlocked, since a sort may write to disk.
 */
static void
DeltaPass(GgScanOpaque *so, GgStream *stream)
{
	ExactStream *state = stream->state;
	const GgMetaPageData *meta = so->meta;
	uint32		npages = GgDeltaPagesPerRow(meta);
	uint32		per_page = GgDeltaRowsPerPage(meta);
	Size		row_bytes = GgDeltaRowBytes(meta);
	gg_distance_fn distance = gg_distance_function(meta->metric, meta->element);
	char	   *whole = npages > 1 ? palloc(npages * GG_PAGE_PAYLOAD) : NULL;
	uint64	   *keys = palloc(per_page * sizeof(uint64));
	uint64		matches = 0;

	for (uint32 i = stream->first_page; i < stream->end_page; i += npages)
	{
		uint32		number = meta->delta_first + i;
		uint32		first = i / npages * per_page;
		uint32		nkeys = 0;
		uint32		count;
		Buffer		buffer;
		Page		page;

		if (GgArrayBlock(&so->delta, number) == InvalidBlockNumber)
			continue;			/* VACUUM has given it back */
		buffer = GgReadPage(so->index, meta->instance, &so->delta, number, BUFFER_LOCK_SHARE);
		page = BufferGetPage(buffer);
		count = GgDeltaRowCount(so->index, meta, buffer);
		GgTestForOldSnapshot(so->snapshot, so->index, page);
		for (uint32 slot = 0; slot < count; slot++)
		{
			GgDeltaRow *row = (GgDeltaRow *) (PageGetContents(page) + slot * row_bytes);
			const void *vector = GgDeltaVector(meta, row);
			float		d = 0;

			if (!ItemPointerIsValid(&row->tid) || GgWasReturned(stream, first + slot) ||
				!GgRowMatches(so, row))
				continue;
			if (whole != NULL)
			{
				CopyLongRow(so, number, row, whole);
				vector = whole;
			}
			if (so->query != NULL)
				d = distance(vector, so->query, meta->dimensions);
			keys[nkeys++] = key_of(d, first + slot);
		}
		UnlockReleaseBuffer(buffer);
		for (uint32 k = 0; k < nkeys; k++)
			OfferKey(state, keys[k]);
		matches += nkeys;
		CHECK_FOR_INTERRUPTS();
	}
	/* by the first pass: those that follow leave out what was returned */
	if (so->filter != NULL && stream->matches == 0)
		stream->matches = matches;
	pfree(keys);
	if (whole != NULL)
		pfree(whole);
}

static void
Pass(GgScanOpaque *so, GgStream *stream)
{
	so->distances += GgNodesToHandOut(so, stream);
	if (stream->segment != NULL)
		SegmentPass(so, stream);
	else
		DeltaPass(so, stream);
}

/*
 * A pass that sorts all that is left.  The executor runs under one resource owner from a scan's
 * start to its end (for a cursor its portal's), so temporary files live as long as the scan.
 */
static void
PassIntoSort(GgScanOpaque *so, GgStream *stream)
{
	ExactStream *state = stream->state;

	pfree(state->batch);
	state->batch = NULL;
	state->batch_len = state->batch_pos = 0;
	state->batch_last = true;
	state->sort = tuplesort_begin_datum(INT8OID, Int8LessOperator, InvalidOid, false,
										Max(64, work_mem / so->nstreams), NULL, TUPLESORT_NONE);
	Pass(so, stream);
	tuplesort_performsort(state->sort);
}

static void
FirstPass(GgScanOpaque *so, GgStream *stream)
{
	ExactStream *state = stream->state;
	uint32		all = GgNodesToHandOut(so, stream);
	/* the delta's last rows may be the first stream of all */
	uint64		room = (uint64) GgExactRoom(work_mem, so->nstreams);
	uint64		some = Max(gg_itopk_size, GG_EXACT_MIN_BATCH) + stream->handed;

	some = Min(Max(some, all / FIRST_SHARE), Min(room, all));
	state->batch = MemoryContextAllocHuge(so->context, Max(some, 1) * sizeof(uint64));
	state->batch_cap = (uint32) some;
	if (some < all && all <= room)
		state->rest = MemoryContextAllocHuge(so->context, (all - some) * sizeof(uint64));
	state->batch_bounded = some < all;
	state->batch_last = true;
	Pass(so, stream);
	sort_ranks(state->batch, state->batch_len);
}

/* All that is left. */
static void
NextBatch(GgScanOpaque *so, GgStream *stream)
{
	ExactStream *state = stream->state;

	GgBeginAhead(so, stream);
	if (state->rest == NULL)
	{
		state->next_rank = state->batch[state->batch_len - 1] + 1;
		PassIntoSort(so, stream);
		return;
	}
	pfree(state->batch);
	state->batch = state->rest;
	state->batch_len = state->rest_len;
	state->batch_pos = 0;
	state->batch_last = true;
	state->rest = NULL;
	sort_ranks(state->batch, state->batch_len);
}

/* Read into the batch, which PassIntoSort() has freed. */
static void
ReadSort(GgScanOpaque *so, ExactStream *state)
{
	Datum		value;
	bool		isnull;

	if (state->batch == NULL)
		state->batch = MemoryContextAlloc(so->context, SORT_CHUNK * sizeof(uint64));
	state->batch_len = state->batch_pos = 0;
	while (state->batch_len < SORT_CHUNK && GgTuplesortGetDatum(state->sort, &value, &isnull))
		state->batch[state->batch_len++] = DatumGetRank(value);
}

/* ---- the stream -------------------------------------------------------- */

static GgListState
ExactFirstList(GgScanOpaque *so, GgStream *stream)
{
	ExactStream *state = MemoryContextAllocZero(so->context, sizeof(ExactStream));

	stream->state = state;
	GgFindMatching(so, stream);
	if (so->mode == GG_ITERATIVE_STRICT && so->last_distance > -get_float4_infinity())
		state->bound = key_of(so->last_distance, 0);
	FirstPass(so, stream);
	return state->batch_len > 0 ? GG_LIST_READY : GG_LIST_COMPLETE;
}

static GgListState
ExactNextList(GgScanOpaque *so, GgStream *stream)
{
	ExactStream *state = stream->state;

	if (!state->batch_last)
		NextBatch(so, stream);
	if (state->sort != NULL)
		ReadSort(so, state);
	return state->batch_pos < state->batch_len ? GG_LIST_READY : GG_LIST_COMPLETE;
}

static bool
ExactNext(GgScanOpaque *so, GgStream *stream)
{
	ExactStream *state = stream->state;
	uint64		rank;

	if (state->batch_pos == state->batch_len)
		return false;
	if (stream->heap_blocks > 0 && state->batch_pos % GG_AHEAD_ROWS == 0)
		GgLookAhead(so, stream, state->batch + state->batch_pos,
					state->batch_len - state->batch_pos, 1);
	rank = state->batch[state->batch_pos++];
	stream->late = rank >= RANK_LATE;
	stream->head.distance = key_distance(rank << 1);
	stream->head.node = key_node(rank << 1);
	return true;
}

/* End the sort, which may have temporary files. */
static void
ExactDone(GgStream *stream)
{
	ExactStream *state = stream->state;

	if (state->sort != NULL)
		tuplesort_end(state->sort);
	state->sort = NULL;
}

const GgStreamOps gg_exact_stream = {
	.first_list = ExactFirstList,
	.next_list = ExactNextList,
	.next = ExactNext,
	.done = ExactDone
};
