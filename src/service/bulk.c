/*
 * bulk.c
 *		A backend's requests that do not fit a slot: many queries at once.
 *
 * Queries and answers lie in a chunk of the pool of long answers (pool.h).  From taking the chunk
 * to giving it back nothing is done here that could throw, but for the wait, which gives up the
 * slot and with it the chunk.
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
	slot->count = query->count;
	slot->dim = query->dim;
	if (!TakeChunk(slot))
	{
		*reason = GG_REASON_BUSY;
		return false;
	}
	body = gg_service->chunks[slot->chunk].body;
	memcpy(body, query->vectors, (Size) query->count * query->dim * sizeof(float));
	if (!GgAskAndWait(&asked, reason))
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
