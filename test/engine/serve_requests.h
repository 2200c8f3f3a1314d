/*
 * serve_requests.h
 *		Requests of tests, in a region with slots of their own: batches of one query per slot, and
 *		deep lists.  C and C++.
 */
#ifndef SERVE_REQUESTS_H
#define SERVE_REQUESTS_H

#include <stdlib.h>
#include <string.h>

#include "harness.h"

typedef struct bulk_region
{
	const gg_engine *engine;
	char	   *memory;
	size_t		bytes;
	gg_serve_layout layout;
	size_t		query;			/* these two from the start of a slot */
	size_t		keys;
	size_t		filters;		/* room for filters, and then their TIDs; 0: none */
	gg_server  *server;
} bulk_region;

/* Where a slot begins in the region. */
static inline size_t
slot_at(const bulk_region *r, uint32_t slot)
{
	return (size_t) (r->layout.slots - r->memory) + slot * r->layout.slot_bytes;
}

static inline float *
slot_query(const bulk_region *r, uint32_t slot)
{
	return (float *) (r->memory + slot_at(r, slot) + r->query);
}

/* Where the answers for a list are, of which each has k keys. */
static inline uint64_t *
slot_keys(const bulk_region *r, uint32_t slot, uint32_t list, uint32_t k)
{
	return (uint64_t *) (r->memory + slot_at(r, slot) + r->keys) + (size_t) list * k;
}

/* A request for one list. */
static inline gg_request
request_for(uint32_t list, bool measured, uint32_t count, uint32_t dim,
			const gg_search_params *params)
{
	const uint32_t bit = list < 32 ? (uint32_t) 1 << list : 0;
	gg_request	request;

	memset(&request, 0, sizeof(request));
	request.nsegments = 32;
	request.lists = bit;
	request.measured = measured ? bit : 0;
	request.delta = list == 32;
	request.count = count;
	request.dim = dim;
	request.params = *params;
	return request;
}

static inline gg_status
submit_one(bulk_region *r, gg_index *index, uint32_t queue, uint32_t slot, uint32_t ticket,
		   uint32_t list, const gg_request *request)
{
	gg_serve_batch batch;

	batch.list = list;
	batch.count = 1;
	batch.requests[0] = request;
	batch.slots[0] = slot;
	batch.tickets[0] = ticket;
	return r->engine->serve_submit(r->server, index, queue, &batch);
}

/* ---- one query per slot ----------------------------------------------------- */

typedef struct slot_batch
{
	uint32_t	count;
	bool		exact;
	uint32_t	k;
	uint32_t	itopk_size;
	gg_search_mode mode;
	uint32_t	list;
	uint32_t	slots[GG_SERVE_MAX_BATCH];
	uint32_t	tickets[GG_SERVE_MAX_BATCH];
} slot_batch;

static inline gg_status
submit_slots(bulk_region *r, gg_index *index, uint32_t queue, uint32_t dim,
			 const slot_batch *batch)
{
	gg_request	requests[GG_SERVE_MAX_BATCH];
	gg_search_params params;
	gg_serve_batch submitted;

	memset(&params, 0, sizeof(params));
	params.k = batch->k;
	params.itopk_size = batch->itopk_size;
	params.mode = batch->mode;
	submitted.list = batch->list;
	submitted.count = batch->count;
	for (uint32_t i = 0; i < GG_SERVE_MAX_BATCH && i < batch->count; i++)
	{
		const size_t slot = slot_at(r, batch->slots[i]);

		requests[i] = request_for(batch->list, batch->exact, 1, dim, &params);
		requests[i].queries = slot + r->query;
		requests[i].keys = slot + r->keys + (uint64_t) batch->list * batch->k * 8;
		submitted.requests[i] = &requests[i];
		submitted.slots[i] = batch->slots[i];
		submitted.tickets[i] = batch->tickets[i];
	}
	return r->engine->serve_submit(r->server, index, queue, &submitted);
}

/* ---- deep lists ------------------------------------------------------------- */

typedef struct deep_request
{
	uint32_t	slot;
	uint32_t	ticket;
	uint32_t	list;
	uint32_t	k;
	uint64_t	after;
	uint64_t	last;
	const gg_filter *filter;	/* anywhere; its TIDs are used in place if they are in the region */
	uint64_t	keys;
	uint64_t	matches;
} deep_request;

#define DEEP_FILTER_BYTES ((sizeof(gg_filter) + 63) / 64 * 64)
/* For one filter with as many TIDs as there may be. */
#define DEEP_FILTER_ROOM (DEEP_FILTER_BYTES + (size_t) GG_MAX_FILTER_TIDS * 8)

static inline bool
is_in_region(const bulk_region *r, const void *pointer)
{
	return (const char *) pointer >= r->memory && (const char *) pointer < r->memory + r->bytes;
}

/* Put the filter of the i-th request into the region, unless it is there. */
static inline void
place_filter(bulk_region *r, uint32_t i, const gg_filter *filter, gg_request *request)
{
	const size_t at = r->filters + i * DEEP_FILTER_ROOM;
	const uint32_t nvalues = filter->nvalues < GG_MAX_FILTER_VALUES ? filter->nvalues :
		GG_MAX_FILTER_VALUES;
	gg_filter  *copy = (gg_filter *) (r->memory + at);

	request->filter = at;
	if (is_in_region(r, filter))
		request->filter = (uint64_t) ((const char *) filter - r->memory);
	else
		memcpy(copy, filter, offsetof(gg_filter, values) + nvalues * sizeof(int64_t));
	if (filter->tids == NULL)
		return;
	request->tids = at + DEEP_FILTER_BYTES;
	if (is_in_region(r, filter->tids))
		request->tids = (uint64_t) ((const char *) filter->tids - r->memory);
	else if (filter->ntids <= GG_MAX_FILTER_TIDS)
		memcpy(r->memory + request->tids, filter->tids, filter->ntids * sizeof(uint64_t));
}

/* count requests of one call; those behind the last that a call takes are the first one again. */
static inline gg_status
submit_deep(bulk_region *r, gg_index *index, uint32_t queue, uint32_t dim,
			const deep_request *deeps, uint32_t count)
{
	gg_request	requests[GG_SERVE_MAX_DEEPS];
	gg_search_params params;
	gg_serve_batch batch;

	memset(&params, 0, sizeof(params));
	batch.list = deeps[0].list;
	batch.count = count;
	for (uint32_t i = 0; i < count; i++)
	{
		const uint32_t own = i < GG_SERVE_MAX_DEEPS ? i : 0;
		const deep_request *deep = &deeps[own];
		gg_request *request = &requests[own];

		batch.requests[i] = request;
		batch.slots[i] = deep->slot;
		batch.tickets[i] = deep->ticket;
		if (own != i)
			continue;
		params.k = deep->k;
		*request = request_for(deep->list, true, 1, dim, &params);
		request->queries = slot_at(r, deep->slot) + r->query;
		request->keys = deep->keys;
		request->matches = deep->matches;
		request->after = deep->after;
		request->last = deep->last;
		if (deep->filter != NULL)
			place_filter(r, i, deep->filter, request);
	}
	return r->engine->serve_submit(r->server, index, queue, &batch);
}

#endif							/* SERVE_REQUESTS_H */
