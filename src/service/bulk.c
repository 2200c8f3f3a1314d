/*
 * bulk.c
 *		A backend's requests that do not fit a slot: many queries at once, long lists, filters.
 *
 * Queries, filters and answers lie in a chunk of the pool of long answers (pool.h).  From taking
 * the chunk to giving it back nothing is done here that could throw, but for the wait, which gives
 * up the slot and with it the chunk.
 */
#include "service/client.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"

/*
 * How long to wait for a chunk: some dozens of answers of a device.  Then the CPU answers, which
 * takes longer.
 */
#define CHUNK_MOST_US		50000
#define CHUNK_SLEEP_US		20

/* Have the slot name a chunk of its own; false when there is none to be had.  Interruptible. */
static bool
TakeChunk(GgSlot *slot)
{
	uint32		number = slot - gg_service->slots;
	uint64		start = GgNowMicros();
	int			chunk;

	while ((chunk = GgPoolTake(gg_service->pool, number)) < 0)
	{
		if (GgNowMicros() - start > CHUNK_MOST_US)
			return false;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(CHUNK_SLEEP_US);
	}
	slot->chunk = chunk;
	return true;
}

/* ---- many queries ------------------------------------------------------------------ */

uint32
GgServiceBulkRoom(uint32 dim, uint32 k, uint32 nlists)
{
	Size		bytes = (Size) dim * sizeof(float) + 2 * (Size) nlists * k * sizeof(float);
	Size		count = Min(GG_CHUNK_BODY / bytes, GG_SERVE_MAX_BULK);

	/* each part is rounded up */
	while (count > 0 && GgBulkBytes(count, dim, k, nlists) > GG_CHUNK_BODY)
		count--;
	return count;
}

bool
GgServiceBulk(const GgResidentRef *ref, const GgServiceBulkQuery *query, uint32 *nodes,
			  float *distances, GgReason *reason)
{
	uint32		nlists = pg_popcount32(query->lists) + query->delta;
	Size		answers = (Size) query->count * query->k;
	GgAsked		asked;
	GgSlot	   *slot;
	char	   *body;

	*reason = GG_REASON_TOO_LARGE;
	if (query->dim < 1 || query->dim > GG_MAX_DIM || query->k < 1 || query->k > GG_MAX_ITOPK ||
		query->itopk_size > GG_MAX_ITOPK || query->count < 1 ||
		query->count > GgServiceBulkRoom(query->dim, query->k, nlists))
		return false;
	if (!GgAskBegin(&asked, ref, GG_REQUEST_BULK, query->lists, query->delta, reason))
		return false;
	slot = asked.slot;
	slot->exact = query->exact;
	slot->k = query->k;
	slot->itopk_size = query->itopk_size;
	slot->mode = query->mode;
	slot->count = query->count;
	slot->dim = query->dim;
	if (!TakeChunk(slot))
	{
		*reason = GG_REASON_BUSY;
		return false;
	}
	body = gg_service->chunks[slot->chunk].body;
	memcpy(body, query->vectors, (Size) query->count * query->dim * sizeof(float));
	if (!GgAskAndWait(&asked, &query->meanwhile, reason))
		return false;

	for (uint32 i = 0; i < nlists; i++)
	{
		const char *at = body + GgBulkNodesAt(query->count, query->dim, query->k, i);

		memcpy(nodes + i * answers, at, answers * sizeof(uint32));
		at += GgBulkPartBytes(query->count, query->k);
		memcpy(distances + i * answers, at, answers * sizeof(float));
	}
	GgSlotGiveChunkBack(slot);
	return true;
}

/* ---- long lists and filters ------------------------------------------------------ */

static uint32
CountTids(const gg_filter *filter)
{
	return filter != NULL && filter->tids != NULL ? filter->ntids : 0;
}

bool
GgServiceDeepFits(const GgServiceDeepQuery *query)
{
	return GgDeepFits(query->k, pg_popcount32(query->lists) + query->delta,
					  CountTids(query->filter));
}

/* Only what is used: most filters are small. */
static void
CopyFilter(GgChunk *chunk, const gg_filter *filter)
{
	gg_filter  *copy = &chunk->filter;

	copy->nconditions = filter->nconditions;
	copy->nvalues = filter->nvalues;
	memcpy(copy->conditions, filter->conditions, filter->nconditions * sizeof(gg_condition));
	memcpy(copy->values, filter->values, filter->nvalues * sizeof(int64));
	copy->tids = NULL;
	copy->ntids = CountTids(filter);
	if (filter->tids == NULL)
		return;
	copy->tids = GgDeepTids(chunk, filter->ntids);
	memcpy(GgDeepTids(chunk, filter->ntids), filter->tids, filter->ntids * sizeof(uint64));
}

bool
GgServiceDeep(const GgResidentRef *ref, const GgServiceDeepQuery *query, uint64 *keys,
			  uint64 *matches, GgReason *reason)
{
	uint32		nlists = pg_popcount32(query->lists) + query->delta;
	const gg_filter *filter = query->filter;
	GgAsked		asked;
	GgSlot	   *slot;
	GgChunk    *chunk;

	*reason = GG_REASON_TOO_LARGE;
	if (query->dim > GG_MAX_DIM || !GgServiceDeepFits(query) ||
		(filter != NULL && (filter->nconditions > GG_MAX_CONDITIONS ||
							filter->nvalues > GG_MAX_FILTER_VALUES)))
		return false;
	if (!GgAskBegin(&asked, ref, GG_REQUEST_DEEP, query->lists, query->delta, reason))
		return false;
	slot = asked.slot;
	slot->k = query->k;
	slot->after = query->after;
	slot->filtered = filter != NULL;
	memcpy(slot->query, query->vector, query->dim * sizeof(float));
	if (!TakeChunk(slot))
	{
		*reason = GG_REASON_BUSY;
		return false;
	}
	chunk = &gg_service->chunks[slot->chunk];
	if (filter != NULL)
		CopyFilter(chunk, filter);
	if (!GgAskAndWait(&asked, &query->meanwhile, reason))
		return false;

	for (uint32 i = 0; i < nlists; i++)
	{
		memcpy(keys + (Size) i * query->k, chunk->body + GgDeepKeysAt(query->k, i),
			   query->k * sizeof(uint64));
		matches[i] = chunk->matches[i];
	}
	GgSlotGiveChunkBack(slot);
	return true;
}
