/*
 * scan_cpu.c
 *		A scan's streams on the CPU: walks and exact passes.
 *
 * This file owns the walks, which are kept from scan to scan: it starts one on a segment, also after a device's lists,
 * widens it, and leaves it for exact passes where the graph has nothing more to say or a longer list would not pay.
 * It owns the exact passes too, over a segment or the delta.  When one of these is due, scan.c says.
 */
#include "scan/scan.h"

#include "access/htup_details.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/float.h"
#include "utils/memutils.h"

#include "keys.h"

/*
 * A walk measures some 20 to 35 rows for each entry of its list, at random places; a sequential pass
 * is at least as fast a row.  So the walk ends where its list would be longer than nodes / 32.
 */
#define EXACT_SHARE			32

/*
 * The first pass of an exact stream keeps so many rows at least, and this share of all.  To keep
 * them in a heap takes little beside measuring all.
 */
#define EXACT_MIN_BATCH		64
#define EXACT_FIRST_SHARE	64

/* Nodes measured in one call of GgSourceSweep. */
#define EXACT_CHUNK			256

/* Ranks read from a sort at a time. */
#define SORT_CHUNK			256

/* How far ahead of its turn what a row needs is fetched. */
#define AHEAD_TID			16
#define AHEAD_PAGE			12
#define AHEAD_TUPLE			6

/* ---- walks are kept between scans -------------------------------------- */

#define MAX_SPARE_WALKS 4

static gg_walk *spare_walks[MAX_SPARE_WALKS];
static int	nspare_walks = 0;

static gg_walk *
GetWalk(void)
{
	gg_walk    *walk;
	gg_status	status;

	if (nspare_walks > 0)
		return spare_walks[--nspare_walks];
	status = gg_walk_create(&walk);
	if (status.code != GG_OK)
		GgReportStatus(&status, "starting a search");
	return walk;
}

void
GgReturnWalks(void *arg)
{
	GgScanOpaque *so = arg;

	for (int i = 0; i < so->nwalks; i++)
	{
		if (nspare_walks < MAX_SPARE_WALKS)
			spare_walks[nspare_walks++] = so->walks[i];
		else
			gg_walk_free(so->walks[i]);
	}
	so->nwalks = 0;
}

/* ---- exact passes ------------------------------------------------------ */

/*
 * Ranks order what an exact stream hands out: by key, but rows that strict order kept back behind
 * all others.  The lowest bit of a key is a flag that is not used here, so there is room above.
 */
#define RANK_LATE			(UINT64CONST(1) << 63)

static inline uint64
RankOf(const GgStream *stream, uint64 key)
{
	return key >> 1 | (key < stream->bound ? RANK_LATE : 0);
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
OfferKey(GgStream *stream, uint64 key)
{
	uint64		rank = RankOf(stream, key);

	if (rank < stream->next_rank)
		return;
	if (stream->sort != NULL)
		tuplesort_putdatum(stream->sort, RankGetDatum(rank), false);
	else if (!stream->batch_bounded)
	{
		Assert(stream->batch_len < stream->batch_cap);
		stream->batch[stream->batch_len++] = rank;
	}
	else if (stream->batch_len < stream->batch_cap)
		heap_push(stream->batch, stream->batch_len++, rank);
	else
	{
		stream->batch_last = false;
		if (rank < stream->batch[0])
			heap_replace(stream->batch, stream->batch_cap, rank);
	}
}

static void
NeedSource(GgScanOpaque *so, GgStream *stream)
{
	if (stream->source.index == NULL)
		GgSourceInit(&stream->source, so->index, so->meta, stream->segment, so->query);
}

static void
SegmentPass(GgScanOpaque *so, GgStream *stream)
{
	uint32		n = stream->nodes;

	NeedSource(so, stream);
	for (uint32 base = 0; base < n; base += EXACT_CHUNK)
	{
		float		distances[EXACT_CHUNK];
		uint32		count = Min(EXACT_CHUNK, n - base);

		CHECK_FOR_INTERRUPTS();
		if (so->query != NULL)
			GgSourceSweep(&stream->source, base, count, distances);
		else
			memset(distances, 0, sizeof(distances));
		for (uint32 i = 0; i < count; i++)
			if (!GgWasReturned(stream, base + i))
				OfferKey(stream, key_of(distances[i], base + i));
	}
}

/*
 * Delta pages change while we read (rows are appended, TIDs cleared), so they are locked in share
 * mode.  The "node" of a delta row counts slots from the delta's first page as of this scan.  Keys
 * are offered when the page is unlocked, since a sort may write to disk.
 */
static void
DeltaPass(GgScanOpaque *so, GgStream *stream)
{
	const GgMetaPageData *meta = so->meta;
	uint32		npages = GgDeltaPagesPerRow(meta);
	uint32		per_page = GgDeltaRowsPerPage(meta);
	Size		row_bytes = GgRowBytes(meta);
	gg_distance_fn distance = gg_distance_function(meta->metric, meta->element);
	char	   *whole = npages > 1 ? palloc(npages * GG_PAGE_PAYLOAD) : NULL;
	uint64	   *keys = palloc(per_page * sizeof(uint64));

	for (uint32 i = stream->first_page; i < stream->end_page; i += npages)
	{
		Buffer		buffer = GgReadPage(so->index, meta->instance, &so->delta,
										meta->delta_first + i, BUFFER_LOCK_SHARE);
		Page		page = BufferGetPage(buffer);
		uint32		count = GgDeltaRowCount(so->index, meta, buffer);
		uint32		nkeys = 0;

		GgTestForOldSnapshot(so->snapshot, so->index, page);
		for (uint32 slot = 0; slot < count; slot++)
		{
			GgDeltaRow *row = (GgDeltaRow *) (PageGetContents(page) + slot * GgDeltaRowBytes(meta));
			const void *vector = row + 1;
			float		d = 0;

			if (!ItemPointerIsValid(&row->tid) || GgWasReturned(stream, (i / npages) * per_page + slot))
				continue;
			if (whole != NULL)
			{
				Size		here = GG_PAGE_PAYLOAD - sizeof(GgDeltaRow);

				memcpy(whole, row + 1, here);
				GgReadArray(so->index, meta->instance, &so->delta,
							(uint64) (meta->delta_first + i + 1) * GG_PAGE_PAYLOAD, whole + here, row_bytes - here);
				vector = whole;
			}
			if (so->query != NULL)
				d = distance(vector, so->query, meta->dimensions);
			keys[nkeys++] = key_of(d, (i / npages) * per_page + slot);
		}
		UnlockReleaseBuffer(buffer);
		for (uint32 k = 0; k < nkeys; k++)
			OfferKey(stream, keys[k]);
		CHECK_FOR_INTERRUPTS();
	}
	pfree(keys);
	if (whole != NULL)
		pfree(whole);
}

static void
Pass(GgScanOpaque *so, GgStream *stream)
{
	if (stream->segment != NULL)
		SegmentPass(so, stream);
	else
		DeltaPass(so, stream);
}

/* A pass that keeps at most cap ranks, the lowest, or all where there cannot be more. */
static void
PassIntoBatch(GgScanOpaque *so, GgStream *stream, uint32 cap)
{
	if (cap > stream->batch_cap)
	{
		if (stream->batch != NULL)
			pfree(stream->batch);
		stream->batch = MemoryContextAllocHuge(so->context, cap * sizeof(uint64));
		stream->batch_cap = cap;
	}
	stream->batch_len = 0;
	stream->batch_pos = 0;
	stream->batch_last = true;
	stream->batch_bounded = cap < stream->nodes;
	Pass(so, stream);
	sort_ranks(stream->batch, stream->batch_len);
}

/*
 * A pass that sorts all that is left.  The executor runs under one resource owner from a scan's
 * start to its end (for a cursor its portal's), so temporary files live as long as the scan.
 */
static void
PassIntoSort(GgScanOpaque *so, GgStream *stream)
{
	pfree(stream->batch);
	stream->batch = NULL;
	stream->batch_len = stream->batch_pos = 0;
	stream->batch_last = true;
	stream->sort = tuplesort_begin_datum(INT8OID, Int8LessOperator, InvalidOid, false,
										 Max(64, work_mem / so->nstreams), NULL, TUPLESORT_NONE);
	Pass(so, stream);
	tuplesort_performsort(stream->sort);
}

/*
 * The first pass keeps some of the nearest rows, since most scans stop soon.  One that wants more
 * is taken to want everything: the second pass keeps all, sorted in memory where there is room,
 * else by tuplesort.  There is no third.
 */
static void
NextPass(GgScanOpaque *so, GgStream *stream)
{
	uint64		room = (uint64) work_mem * 1024 / sizeof(uint64) / so->nstreams;
	uint32		most = Max(EXACT_MIN_BATCH, (uint32) Min(room, PG_INT32_MAX));
	uint32		all = Max(stream->nodes, 1);

	if (stream->batch == NULL)
	{
		uint64		first = Max(gg_itopk_size, EXACT_MIN_BATCH) + stream->handed;

		first = Max(first, all / EXACT_FIRST_SHARE);
		PassIntoBatch(so, stream, (uint32) Min(Min(first, most), all));
		return;
	}
	so->heap_blocks = RelationGetNumberOfBlocks(so->heap);
	stream->next_rank = stream->batch[stream->batch_len - 1] + 1;
	if (all <= most)
		PassIntoBatch(so, stream, all);
	else
		PassIntoSort(so, stream);
}

/* Into the batch, which PassIntoSort() has freed. */
static void
ReadSort(GgScanOpaque *so, GgStream *stream)
{
	Datum		value;
	bool		isnull;

	if (stream->batch == NULL)
		stream->batch = MemoryContextAlloc(so->context, SORT_CHUNK * sizeof(uint64));
	stream->batch_len = stream->batch_pos = 0;
	while (stream->batch_len < SORT_CHUNK && GgTuplesortGetDatum(stream->sort, &value, &isnull))
		stream->batch[stream->batch_len++] = DatumGetRank(value);
}

/* The TID of the rank that comes so many places later, where it was seen last; NULL: not known. */
static inline const ItemPointerData *
PeekTid(const GgStream *stream, uint32 places)
{
	uint32		row;
	const char *page;

	if (stream->batch_pos + places >= stream->batch_len)
		return NULL;
	row = key_node(stream->batch[stream->batch_pos + places] << 1);
	page = GgSourcePeek(&stream->source, &stream->tids, row / GG_TIDS_PER_PAGE);
	if (page == NULL)
		return NULL;
	return &((const GgTidEntry *) PageGetContents((Page) page))[row % GG_TIDS_PER_PAGE].tid;
}

/*
 * Rows come from the table in an order that no cache foresees, and waiting for memory takes most of
 * the time of a full read.  So what rows need that come a few places later is fetched: first TIDs,
 * then line pointers, then tuples.  Pages are looked at without a pin: what is read there may be
 * wrong, which a hint can afford.  But it must stay inside the table, or PrefetchBuffer() fails.
 */
static void
LookAhead(GgScanOpaque *so, GgStream *stream)
{
	const ItemPointerData *tid = PeekTid(stream, AHEAD_TID);
	GgAhead    *slot = &so->ahead[(stream->batch_pos + AHEAD_PAGE) % AHEAD_SLOTS];

	if (tid != NULL)
		__builtin_prefetch(tid);

	tid = PeekTid(stream, AHEAD_PAGE);
	slot->page = NULL;
	if (tid != NULL)
	{
		BlockNumber blkno = ItemPointerGetBlockNumberNoCheck(tid);
		OffsetNumber offset = ItemPointerGetOffsetNumberNoCheck(tid);

		if (blkno < so->heap_blocks &&
			offset >= FirstOffsetNumber && offset <= MaxHeapTuplesPerPage)
			slot->page = GgSourcePeekHeap(so->heap, blkno);
		if (slot->page != NULL)
		{
			slot->line_pointer = PageGetItemId((Page) slot->page, offset);
			__builtin_prefetch(slot->page);
			__builtin_prefetch(slot->line_pointer);
		}
	}

	slot = &so->ahead[(stream->batch_pos + AHEAD_TUPLE) % AHEAD_SLOTS];
	if (slot->page != NULL)
		__builtin_prefetch(slot->page + ItemIdGetOffset(slot->line_pointer) % BLCKSZ);
}

bool
GgNextExact(GgScanOpaque *so, GgStream *stream)
{
	uint64		rank;

	if (stream->batch_pos == stream->batch_len)
	{
		if (stream->sort == NULL && (stream->batch == NULL || !stream->batch_last))
			NextPass(so, stream);
		if (stream->sort != NULL)
			ReadSort(so, stream);
		if (stream->batch_pos == stream->batch_len)
			return false;
	}
	if (so->heap_blocks > 0 && stream->segment != NULL && stream->offsets.nextents == 0)
		LookAhead(so, stream);
	rank = stream->batch[stream->batch_pos++];
	if (rank >= RANK_LATE)
		stream->phase = GG_STREAM_LATE;
	stream->head.distance = key_distance(rank << 1);
	stream->head.node = key_node(rank << 1);
	return true;
}

void
GgEndSorts(GgScanOpaque *so)
{
	for (int i = 0; i < so->nstreams; i++)
	{
		if (so->streams[i].sort != NULL)
			tuplesort_end(so->streams[i].sort);
		so->streams[i].sort = NULL;
	}
}

/* ---- walks ------------------------------------------------------------- */

static void
ReportWalk(const gg_status *status)
{
	/* a callback left its error on the stack */
	if (status->code == GG_ECALLBACK)
		PG_RE_THROW();
	GgReportStatus(status, "searching a gpugraph index");
}

void
GgLeaveWalk(GgScanOpaque *so, GgStream *stream)
{
	stream->phase = GG_STREAM_EXACT;
	if (so->mode == GG_ITERATIVE_STRICT && so->last_distance > -get_float4_infinity())
		stream->bound = key_of(so->last_distance, 0);
}

bool
GgWalkIsWorthwhile(const GgStream *stream, uint32 itopk)
{
	return itopk <= stream->segment->nodes / EXACT_SHARE;
}

static void
StartWalk(GgScanOpaque *so, GgStream *stream)
{
	gg_status	status;

	stream->phase = GG_STREAM_WALK;
	NeedSource(so, stream);
	stream->walk = GetWalk();
	so->walks[so->nwalks++] = stream->walk;
	status = gg_walk_start(stream->walk, &stream->source.source, stream->itopk);
	if (status.code != GG_OK)
		ReportWalk(&status);
}

void
GgStartOnCpu(GgScanOpaque *so, GgStream *stream)
{
	if (stream->segment != NULL && so->query != NULL && GgWalkIsWorthwhile(stream, stream->itopk))
		StartWalk(so, stream);
	else
		GgLeaveWalk(so, stream);
}

bool
GgWiden(GgScanOpaque *so, GgStream *stream)
{
	gg_status	status;
	uint64		itopk = Max((uint64) stream->itopk * 2, (uint64) stream->itopk + 16);

	if (gg_walk_exhausted(stream->walk) || stream->handed >= (uint64) gg_max_scan_tuples ||
		itopk > PG_INT32_MAX || !GgWalkIsWorthwhile(stream, (uint32) itopk))
	{
		GgLeaveWalk(so, stream);
		return false;
	}
	stream->itopk = (uint32) itopk;
	status = gg_walk_widen(stream->walk, stream->itopk);
	if (status.code != GG_OK)
		ReportWalk(&status);
	return true;
}
