/*
 * bulk.c
 *		A backend's requests that do not fit a slot: many queries at once, long lists, filters.
 *
 * Queries, filters and answers lie in a chunk of the pool of long answers (pool.h).  From taking
 * the chunk to giving it back nothing here can throw but the wait, which then gives up the slot and
 * with it the chunk.
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

StaticAssertDecl(GG_SERVE_MAX_LISTS * GG_MAX_ITOPK * sizeof(uint64) < GG_CHUNK_BODY,
				 "there is room for TIDs beside all lists");

/* Copy only the parts in use: most filters are small. */
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

/* One request. */
static bool
AskDeep(const GgResidentRef *ref, const GgServiceDeepQuery *query, uint64 *keys, uint64 *matches,
		GgReason *reason)
{
	uint32		nlists = pg_popcount32(query->lists) + query->delta;
	const gg_filter *filter = query->filter;
	GgAsked		asked;
	GgSlot	   *slot;
	GgChunk    *chunk;

	*reason = GG_REASON_TOO_LARGE;
	if (query->dim > GG_MAX_DIM || !GgDeepFits(query->k, nlists, CountTids(filter)) ||
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

/* The k smallest of two ascending lists of k keys, in `keys`; equal keys are of one node. */
static void
MergeKeys(uint64 *keys, const uint64 *others, uint32 k, uint64 *merged)
{
	uint32		i = 0;
	uint32		j = 0;

	for (uint32 n = 0; n < k; n++)
	{
		uint64		key = Min(keys[i], others[j]);

		merged[n] = key;
		i += keys[i] == key;
		j += others[j] == key;
	}
	memcpy(keys, merged, k * sizeof(uint64));
}

/*
 * For more TIDs than one request takes: ask for one part of them after the other.  What is nearest
 * among all of them is among the nearest of its part.  A device gives a node the same key each
 * time, so a node with rows in several parts is recognized by its key.
 */
static bool
AskInParts(const GgResidentRef *ref, const GgServiceDeepQuery *query, uint32 most, uint64 *keys,
		   uint64 *matches, GgReason *reason)
{
	const gg_filter *filter = query->filter;
	uint32		nlists = pg_popcount32(query->lists) + query->delta;
	Size		nkeys = (Size) nlists * query->k;
	GgServiceDeepQuery part = *query;
	gg_filter  *some = palloc(sizeof(gg_filter));
	uint64	   *others = palloc((nkeys + query->k) * sizeof(uint64));
	uint64		other_matches[GG_SERVE_MAX_LISTS];
	bool		answered;

	memcpy(some, filter, sizeof(gg_filter));
	part.filter = some;
	some->ntids = most;
	answered = AskDeep(ref, &part, keys, matches, reason);
	part.meanwhile.run = NULL;
	for (uint32 first = most; answered && first < filter->ntids; first += most)
	{
		some->tids = filter->tids + first;
		some->ntids = Min(most, filter->ntids - first);
		answered = AskDeep(ref, &part, others, other_matches, reason);
		for (uint32 i = 0; answered && i < nlists; i++)
		{
			MergeKeys(keys + (Size) i * query->k, others + (Size) i * query->k, query->k,
					  others + nkeys);
			matches[i] += other_matches[i];
		}
	}
	pfree(others);
	pfree(some);
	return answered;
}

uint32
GgServiceDeepRoom(uint32 nlists)
{
	/* each list is rounded up to 64 bytes */
	return GG_MAX_DEEP / nlists / 8 * 8;
}

bool
GgServiceDeep(const GgResidentRef *ref, const GgServiceDeepQuery *query, uint64 *keys,
			  uint64 *matches, GgReason *reason)
{
	uint32		most = GgDeepMostTids(query->k, pg_popcount32(query->lists) + query->delta);

	if (CountTids(query->filter) > most && most > 0)
		return AskInParts(ref, query, most, keys, matches, reason);
	return AskDeep(ref, query, keys, matches, reason);
}
