/*
 * scan_cpu.c
 *		A scan's streams on the CPU: walks and exact passes.
 *
 * This file owns the walks, which are kept from scan to scan: it starts one on a segment, also after a device's lists,
 * widens it, and leaves it for exact passes where the graph has nothing more to say or a longer list would not pay.
 * It owns the exact passes too, over a segment or the delta.  When one of these is due, scan.c says.
 */
#include "scan/scan.h"

#include "miscadmin.h"
#include "utils/float.h"
#include "utils/memutils.h"

#include "keys.h"

/*
 * A walk measures some 20 to 35 rows for each entry of its list, at random places; a sequential pass
 * is at least as fast a row.  So the walk ends where its list would be longer than nodes / 32.
 */
#define EXACT_SHARE			32

/* Smallest first pass of an exact stream, and how much longer each following one is. */
#define EXACT_MIN_BATCH		64
#define EXACT_GROWTH		8

/* Nodes measured in one call of GgSourceDistances by an exact pass. */
#define EXACT_CHUNK			256

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

/* Offer a key to the batch under construction, a max-heap. */
static inline void
OfferKey(GgStream *stream, uint64 key)
{
	if (key < stream->next_key || key >= stream->end_key)
		return;
	if (stream->batch_len < stream->batch_cap)
		heap_push(stream->batch, stream->batch_len++, key);
	else
	{
		stream->batch_last = false;
		if (key < stream->batch[0])
			heap_replace(stream->batch, stream->batch_cap, key);
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
		uint32		nodes[EXACT_CHUNK];
		float		distances[EXACT_CHUNK];
		uint32		count = 0;
		uint32		end = base + Min(EXACT_CHUNK, n - base);

		CHECK_FOR_INTERRUPTS();
		for (uint32 node = base; node < end; node++)
			if (!GgWasReturned(stream, node))
				nodes[count++] = node;
		if (so->query != NULL)
			GgSourceDistances(&stream->source, nodes, count, distances);
		else
			memset(distances, 0, sizeof(distances));
		for (uint32 i = 0; i < count; i++)
			OfferKey(stream, key_of(distances[i], nodes[i]));
	}
}

/*
 * Delta pages change while we read (rows are appended, TIDs cleared), so they are locked in share
 * mode.  The "node" of a delta row counts slots from the delta's first page as of this scan.
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

	for (uint32 i = stream->first_page; i < stream->end_page; i += npages)
	{
		Buffer		buffer = GgReadPage(so->index, meta->instance, &so->delta, meta->delta_first + i,
										BUFFER_LOCK_SHARE);
		Page		page = BufferGetPage(buffer);
		uint32		count = GgDeltaRowCount(so->index, meta, buffer);

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
			OfferKey(stream, key_of(d, (i / npages) * per_page + slot));
		}
		UnlockReleaseBuffer(buffer);
		CHECK_FOR_INTERRUPTS();
	}
	if (whole != NULL)
		pfree(whole);
}

void
GgNextBatch(GgScanOpaque *so, GgStream *stream)
{
	uint32		most = Max(EXACT_MIN_BATCH, (uint32) Min((uint64) work_mem * 1024 / sizeof(uint64), PG_INT32_MAX));
	uint32		all = stream->nodes;
	uint32		cap = (uint32) Min(stream->batch_cap == 0 ?
								   Max(gg_itopk_size, EXACT_MIN_BATCH) + stream->handed :
								   (uint64) stream->batch_cap * EXACT_GROWTH, most);

	/* a heap of everything is a sort */
	cap = Min(cap, all + 1);
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
	if (stream->segment != NULL)
		SegmentPass(so, stream);
	else
		DeltaPass(so, stream);
	heap_sort(stream->batch, stream->batch_len);
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
	stream->next_key = 0;
	stream->end_key = PG_UINT64_MAX;
	if (so->mode == GG_ITERATIVE_STRICT && so->last_distance > -get_float4_infinity())
		stream->next_key = stream->bound = key_of(so->last_distance, 0);
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
