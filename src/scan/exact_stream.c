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
 *
 * Where many queries are searched for together (GgQueries), the delta is measured once for all of
 * them: most of what a pass of one query takes is the pages.  For all rows within a distance a
 * segment is measured for queries that are known before (lists_ahead.c).
 */
#include "scan/row_filter.h"

#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/float.h"
#include "utils/tuplesort.h"

#include "engine/keys.h"

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
	float		cutoff;			/* of the first pass: farther rows are left to the second one */
	uint64		last;			/* no row with a higher key is asked for */
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

	if (rank < state->next_rank || key > state->last)
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

/* ---- rows of a segment --------------------------------------------------- */

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
			if (distances[i] > so->farthest)
				continue;
			else if (distances[i] > state->cutoff)
				state->batch_last = false;
			else if (!GgWasReturned(stream, base + i))
				OfferKey(state, key_of(distances[i], base + i));
	}
}

/* ---- rows of the delta -------------------------------------------------- */

/* Measures rows of the delta, page by page, for some queries. */
typedef struct DeltaReader
{
	gg_distance_fn distance;
	char	   *whole;			/* room for a row that is longer than a page, or NULL */
	const float *const *queries;
	uint32		nqueries;
	uint32		count;			/* rows of the page that were measured */
	uint32	   *nodes;			/* their slots, counted from the delta's first page on */
	float	   *distances;		/* of each of these rows its distances to the queries */
} DeltaReader;

static void
OpenDeltaReader(DeltaReader *reader, const GgMetaPageData *meta, const float *const *queries,
				uint32 nqueries)
{
	uint32		npages = GgDeltaPagesPerRow(meta);
	uint32		per_page = GgDeltaRowsPerPage(meta);

	reader->distance = gg_distance_function(meta->metric, meta->element);
	reader->whole = npages > 1 ? palloc(npages * GG_PAGE_PAYLOAD) : NULL;
	reader->queries = queries;
	reader->nqueries = nqueries;
	reader->nodes = palloc(per_page * sizeof(uint32));
	reader->distances = palloc(per_page * nqueries * sizeof(float));
}

static void
CloseDeltaReader(DeltaReader *reader)
{
	pfree(reader->nodes);
	pfree(reader->distances);
	if (reader->whole != NULL)
		pfree(reader->whole);
}

/* A row's distance to a NULL query is 0. */
static void
MeasureRow(const GgScanOpaque *so, DeltaReader *reader, const void *vector, uint32 node)
{
	float	   *distances = reader->distances + reader->count * reader->nqueries;

	for (uint32 q = 0; q < reader->nqueries; q++)
		distances[q] = reader->queries[q] == NULL ? 0 :
			reader->distance(vector, reader->queries[q], so->meta->dimensions);
	reader->nodes[reader->count++] = node;
}

/*
 * Measure the rows of a page, where rows start, that match and did not leave the stream.
 *
 * Delta pages change while we read (rows are appended, TIDs cleared), so they are locked in share
 * mode.  A row is measured where its head is looked at: to gather rows first took 1.7 times as
 * long.
 */
static void
MeasureDeltaPage(GgScanOpaque *so, GgStream *stream, uint32 page_number, DeltaReader *reader)
{
	const GgMetaPageData *meta = so->meta;
	uint64		number = GgDeltaFirst(meta) + page_number;
	uint32		first = GgRowsOnPages(meta, page_number);
	Size		row_bytes = GgDeltaRowBytes(meta);
	uint64		match[GG_PAGE_PAYLOAD / sizeof(uint64) / 64 + 1];
	const char *rows;
	uint32		count;
	Buffer		buffer;
	Page		page;

	CHECK_FOR_INTERRUPTS();
	reader->count = 0;
	if (!GgReadDeltaPage(so->index, meta, &so->delta, number, &buffer))
		return;
	page = BufferGetPage(buffer);
	rows = PageGetContents(page);
	count = GgDeltaRowCount(so->index, meta, buffer);
	GgTestForOldSnapshot(so->snapshot, so->index, page);
	if (so->filter != NULL)
		GgMatchDeltaRows(so, rows, count, match);
	for (uint32 slot = 0; slot < count; slot++)
	{
		const GgDeltaRow *row = (const GgDeltaRow *) (rows + slot * row_bytes);
		const void *vector = GgDeltaVector(meta, row);

		if ((so->filter != NULL && (match[slot / 64] >> (slot % 64) & 1) == 0) ||
			!ItemPointerIsValid(&row->tid) || GgWasReturned(stream, first + slot))
			continue;
		if (reader->whole != NULL)
		{
			GgCopyDeltaVector(so->index, meta, &so->delta, number, row, reader->whole);
			vector = reader->whole;
		}
		MeasureRow(so, reader, vector, first + slot);
	}
	UnlockReleaseBuffer(buffer);
}

/* Measure the delta.  Keys are offered when a page is unlocked: a sort may write to disk. */
static void
DeltaPass(GgScanOpaque *so, GgStream *stream)
{
	ExactStream *state = stream->state;
	const float *query = so->query;
	uint64		matches = 0;
	DeltaReader reader;

	OpenDeltaReader(&reader, so->meta, &query, 1);
	for (uint32 i = stream->first_page; i < stream->end_page; i += GgDeltaPagesPerRow(so->meta))
	{
		MeasureDeltaPage(so, stream, i, &reader);
		for (uint32 r = 0; r < reader.count; r++)
			if (reader.distances[r] > state->cutoff)
				state->batch_last = false;
			else
				OfferKey(state, key_of(reader.distances[r], reader.nodes[r]));
		matches += reader.count;
	}
	/* by the first pass: those that follow leave out what was returned */
	if (so->filter != NULL && stream->matches == 0)
		stream->matches = matches;
	CloseDeltaReader(&reader);
}

/* ---- the delta, for several queries ------------------------------------- */

struct GgQueries
{
	MemoryContext context;		/* of the keys */
	const Datum *values;
	uint32		count;
	uint32		current;		/* the one that is searched for */
	uint32		most;			/* rows to keep for each, at the most */
	uint64	   *keys;			/* ascending, `stride` places for each; NULL: not measured */
	uint32		stride;
	uint32		nkeys;			/* of each */
	uint64		nrows;			/* measured */
	uint64		generation;		/* of the directory */
};

GgQueries *
GgMakeQueries(void)
{
	GgQueries  *queries = palloc0(sizeof(GgQueries));

	queries->context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph queries",
											 ALLOCSET_DEFAULT_SIZES);
	return queries;
}

void
GgFreeQueries(GgQueries *queries)
{
	MemoryContextDelete(queries->context);
	pfree(queries);
}

void
GgNameQueries(GgQueries *queries, const Datum *values, uint32 count, uint32 most)
{
	MemoryContextReset(queries->context);
	queries->values = values;
	queries->count = count;
	queries->most = most;
	queries->keys = NULL;
}

Datum
GgTakeQuery(GgQueries *queries, uint32 number)
{
	queries->current = number;
	return queries->values[number];
}

/* Offer a page's rows to what is kept of each query: heaps that are equally full. */
static void
KeepNearest(GgQueries *queries, const DeltaReader *reader)
{
	for (uint32 r = 0; r < reader->count; r++)
	{
		const float *distances = reader->distances + r * reader->nqueries;

		for (uint32 q = 0; q < queries->count; q++)
		{
			uint64	   *heap = queries->keys + (Size) q * queries->stride;

			(void) heap_offer(heap, queries->nkeys, queries->stride,
							  key_of(distances[q], reader->nodes[r]));
		}
		queries->nkeys += queries->nkeys < queries->stride;
	}
	queries->nrows += reader->count;
}

/* Measure the delta for all queries that are searched for together. */
static void
MeasureTogether(GgScanOpaque *so, GgStream *stream)
{
	GgQueries  *queries = so->queries;
	MemoryContext old = MemoryContextSwitchTo(queries->context);
	const float **vectors = palloc(queries->count * sizeof(float *));
	DeltaReader reader;

	queries->nkeys = 0;
	queries->nrows = 0;
	queries->generation = so->meta->generation;
	queries->stride = Min(queries->most, stream->nodes);
	queries->keys = MemoryContextAllocHuge(queries->context, (Size) queries->count *
										   queries->stride * sizeof(uint64));
	for (uint32 q = 0; q < queries->count; q++)
		vectors[q] = GgQueryFromValue(GgIndexOpclass(so->index), queries->values[q],
									  so->meta->dimensions);
	OpenDeltaReader(&reader, so->meta, vectors, queries->count);
	for (uint32 i = stream->first_page; i < stream->end_page; i += GgDeltaPagesPerRow(so->meta))
	{
		MeasureDeltaPage(so, stream, i, &reader);
		KeepNearest(queries, &reader);
	}
	for (uint32 q = 0; q < queries->count; q++)
		heap_sort(queries->keys + (Size) q * queries->stride, queries->nkeys);
	CloseDeltaReader(&reader);
	MemoryContextSwitchTo(old);
}

/*
 * Take the scan's first rows of the delta from what was measured for all queries.  False: there are
 * no other queries, the scan does not want the whole delta from its nearest row on, or the
 * directory has another generation.
 *
 * A later scan may find another directory.  While its generation is the same, the delta has the
 * same rows but for new ones, which the queries' snapshot does not see.
 */
static bool
TakeMeasured(GgScanOpaque *so, GgStream *stream)
{
	ExactStream *state = stream->state;
	GgQueries  *queries = so->queries;
	const uint64 *keys;

	if (queries == NULL || queries->count == 1 || stream->segment != NULL ||
		stream->first_page > 0 || stream->returned != NULL || state->bound > 0 ||
		so->filter != NULL)
		return false;
	if (queries->keys == NULL)
		MeasureTogether(so, stream);
	if (queries->generation != so->meta->generation)
		return false;
	so->distances += stream->nodes;
	state->batch_cap = state->batch_len = queries->nkeys;
	state->batch_last = queries->nkeys == queries->nrows;
	state->batch = MemoryContextAllocHuge(so->context, Max(queries->nkeys, 1) * sizeof(uint64));
	keys = queries->keys + (Size) queries->current * queries->stride;
	for (uint32 i = 0; i < queries->nkeys; i++)
		state->batch[i] = RankOf(state, keys[i]);
	return true;
}

/* Take the nodes within a distance from what was measured for several queries; false: none was. */
static bool
TakeWithin(GgScanOpaque *so, GgStream *stream)
{
	ExactStream *state = stream->state;
	const uint64 *keys;
	uint32		count;

	if (!GgFindWithin(so, stream, &keys, &count))
		return false;
	so->distances += stream->nodes;
	state->batch_cap = count;
	state->batch_last = true;
	state->batch = MemoryContextAllocHuge(so->context, Max(count, 1) * sizeof(uint64));
	for (uint32 i = 0; i < count; i++)
		OfferKey(state, keys[i]);
	sort_ranks(state->batch, state->batch_len);
	return true;
}

/* ---- passes -------------------------------------------------------------- */

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
	state->cutoff = get_float4_infinity();
	/* the delta's last rows may be the first stream of all, and are measured before others open */
	state->sort = tuplesort_begin_datum(INT8OID, Int8LessOperator, InvalidOid, false,
										Max(64, work_mem / Max(so->nstreams, 1)), NULL,
										TUPLESORT_NONE);
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
	uint64		some = Max(so->params.itopk_size, GG_EXACT_MIN_BATCH) + stream->handed;

	some = Min(Max(some, all / FIRST_SHARE), Min(room, all));
	state->batch = MemoryContextAllocHuge(so->context, Max(some, 1) * sizeof(uint64));
	state->batch_cap = (uint32) some;
	/* of several indexes the nearest of all so far say how far the others need to look */
	if (so->together)
		state->cutoff = GgReach(so, stream);
	if (some < all && all <= room && isinf(state->cutoff))
		state->rest = MemoryContextAllocHuge(so->context, (all - some) * sizeof(uint64));
	state->batch_bounded = some < all;
	state->batch_last = true;
	Pass(so, stream);
	sort_ranks(state->batch, state->batch_len);
	if (so->together)
		GgAddRanks(so->nearest, state->batch, state->batch_len);
}

/* All that is left. */
static void
NextBatch(GgScanOpaque *so, GgStream *stream)
{
	ExactStream *state = stream->state;

	GgBeginAhead(so, stream);
	if (state->rest == NULL)
	{
		if (state->batch_len > 0)
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
	state->cutoff = get_float4_infinity();
	state->last = isinf(so->farthest) ? PG_UINT64_MAX : key_of(so->farthest, PG_UINT32_MAX);
	GgFindMatching(so, stream);
	if (so->keeps_back && so->last_distance > -get_float4_infinity())
		state->bound = key_of(so->last_distance, 0);
	if (!TakeMeasured(so, stream) && !TakeWithin(so, stream))
		FirstPass(so, stream);
	return state->batch_len > 0 || !state->batch_last ? GG_LIST_READY : GG_LIST_COMPLETE;
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

static float
ExactLeast(GgScanOpaque *so, GgStream *stream)
{
	const ExactStream *state = stream->state;

	if (state->batch_pos < state->batch_len && state->batch[state->batch_pos] < RANK_LATE)
		return key_distance(state->batch[state->batch_pos] << 1);
	return state->batch_len == 0 ? state->cutoff : -get_float4_infinity();
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
	.least = ExactLeast,
	.done = ExactDone
};
