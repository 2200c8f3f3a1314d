/*
 * serve_bulk.h
 *		Many queries of one caller: answers are those of the engine's searches whose caller waits,
 *		nothing beside them is written, and what is out of place is refused.  For all engines.
 */
#ifndef SERVE_BULK_H
#define SERVE_BULK_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "serve_requests.h"

#define BULK_SLOT 4096			/* bytes of the region before queries and answers */
#define BULK_FILLER 0xABu
#define BULK_TICKET 77u

/* Slots of slot_bytes, in a region of so many at least. */
static inline bool
bulk_open_slots(bulk_region *r, const gg_engine *engine, size_t bytes, uint32_t nslots,
				size_t slot_bytes)
{
	memset(r, 0, sizeof(*r));
	r->engine = engine;
	r->bytes = (bytes + 4095) / 4096 * 4096;
	r->memory = aligned_alloc(4096, r->bytes);
	memset(r->memory, BULK_FILLER, r->bytes);
	r->layout = (gg_serve_layout) {.slots = r->memory,.slot_bytes = slot_bytes,
								   .nslots = nslots,.done = 0};
	r->keys = 192;
	r->query = 320;
	return CHECK_OK(engine->serve_open(0, r->memory, r->bytes, &r->layout, &r->server),
					"serve_open");
}

/* Slots for queries of 32 elements, and bytes for what comes after BULK_SLOT. */
static inline bool
bulk_open(bulk_region *r, const gg_engine *engine, size_t bytes)
{
	return bulk_open_slots(r, engine, BULK_SLOT + bytes, 2, 448);
}

static inline void
bulk_close(bulk_region *r)
{
	r->engine->serve_close(r->server);
	free(r->memory);
}

static inline uint32_t
bulk_done(const bulk_region *r, uint32_t slot, uint32_t list)
{
	const volatile uint32_t *done = (const uint32_t *) (r->memory + slot * r->layout.slot_bytes +
														r->layout.done);

	return done[list];
}

/* Wait for a ticket; what the engine says of the queue meanwhile. */
static inline void
bulk_wait(bulk_region *r, uint32_t queue, uint32_t slot, uint32_t list, uint32_t ticket)
{
	double		until = harness_now() + (harness_small() ? 400 : 20);
	gg_status	status = {.code = GG_OK};
	bool		idle = false;

	while (bulk_done(r, slot, list) != ticket && status.code == GG_OK && harness_now() < until)
		status = r->engine->serve_check(r->server, queue, &idle);
	CHECK_OK(status, "serve_check");
	CHECK(bulk_done(r, slot, list) == ticket, "ticket %u, not %u", bulk_done(r, slot, list),
		  ticket);
}

/* Bytes of the region that are not what they were, but for those of the request. */
static inline size_t
bulk_stray(const bulk_region *r, const size_t (*written)[2], int nwritten)
{
	size_t		stray = 0;

	for (size_t i = 0; i < r->bytes; i++)
	{
		bool		own = false;

		for (int w = 0; w < nwritten; w++)
			own = own || (i >= written[w][0] && i < written[w][0] + written[w][1]);
		stray += !own && (unsigned char) r->memory[i] != BULK_FILLER;
	}
	return stray;
}

/*
 * count queries against what the waiting search of the same engine says; least: share of nodes that
 * must be the same.
 */
static inline void
bulk_answers(const gg_engine *engine, gg_index *index, bool exact, gg_search_mode mode,
			 uint32_t dim, const float *queries, uint32_t count, uint32_t k, uint32_t itopk,
			 double least)
{
	const size_t query_bytes = ((size_t) count * dim * 4 + 63) / 64 * 64;
	const uint32_t list = 5;
	const gg_search_params params = {.k = k,.itopk_size = itopk,.mode = mode};
	gg_request	request = request_for(list, exact, count, dim, &params);
	uint64_t   *keys = malloc((size_t) count * k * 8);
	uint32_t	same = 0;
	uint32_t	far = 0;
	bulk_region r;

	request.queries = BULK_SLOT;
	request.keys = BULK_SLOT + query_bytes;
	if (!bulk_open(&r, engine, query_bytes + (size_t) count * k * 8))
		return;
	{
		const size_t written[3][2] = {
			{r.layout.slot_bytes + r.layout.done + list * 4, 4},
			{request.queries, (size_t) count * dim * 4},
			{request.keys, (size_t) count * k * 8}
		};
		const uint64_t *found = (const uint64_t *) (r.memory + request.keys);

		memcpy(r.memory + request.queries, queries, (size_t) count * dim * 4);
		if (exact)
			CHECK_OK(engine->index_exact(index, k, NULL, queries, count, NULL, keys),
					 "index_exact");
		else
			CHECK_OK(engine->index_search(index, &params, queries, count, NULL, keys),
					 "index_search");
		CHECK_OK(submit_one(&r, index, 2, 1, BULK_TICKET, list, &request), "serve_submit");
		bulk_wait(&r, 2, 1, list, BULK_TICKET);
		for (size_t i = 0; i < (size_t) count * k; i++)
		{
			same += key_node(found[i]) == key_node(keys[i]);
			far += key_node(found[i]) == key_node(keys[i]) && found[i] != keys[i];
		}
		CHECK(same >= least * count * k && far == 0,
			  "%u queries, k %u, exact %d, mode %d: %u of %zu nodes are the same, %u distances "
			  "differ", count, k, exact, (int) mode, same, (size_t) count * k, far);
		CHECK(memcmp(r.memory + request.queries, queries, (size_t) count * dim * 4) == 0 &&
			  bulk_stray(&r, written, 3) == 0, "nothing else is written");
	}
	bulk_close(&r);
	free(keys);
}

/* A request of several queries, and what is beside it. */
typedef struct bulk_call
{
	gg_request	request;
	uint32_t	slot;
	uint32_t	list;
	uint32_t	queue;
} bulk_call;

/* What call number i of bulk_refusals() has wrong; false: there are no more. */
static inline bool
bulk_spoil(int i, size_t region, bulk_call *call)
{
	gg_request *request = &call->request;
	gg_search_params *params = &request->params;

	switch (i)
	{
		case 0: request->count = 0; break;
		case 1: request->count = GG_SERVE_MAX_BULK + 1; break;
		case 2: call->slot = 2; break;
		case 3: call->list = GG_SERVE_MAX_LISTS; break;
		case 4: call->queue = GG_SERVE_QUEUES; break;
		case 5: params->k = 0; break;
		case 6: params->k = 5; break;
		case 7: request->measured = 1, params->k = GG_MAX_ITOPK + 1; break;
		case 8: params->itopk_size = GG_MAX_ITOPK + 1; break;
		case 9: request->dim = 15; break;
		case 10: request->queries = region - 128; break;	/* three take 192 bytes */
		case 11: request->queries = 4100; break;
		case 12: request->queries = UINT64_MAX - 63; break;
		case 13: request->keys = region; break;
		case 14: request->keys = 4356; break;
		case 15: request->keys = region + 64; break;
		case 16: request->keys = UINT64_MAX / 64 * 64; break;
		case 17: request->count = GG_SERVE_MAX_BULK; break;	/* more than the region holds */
		case 18: params->mode = (gg_search_mode) 5; break;
		case 19: params->delta = -1; break;
		case 20: request->nsegments = 33; break;
		case 21: request->nsegments = 0; break;	/* it has no such list */
		case 22: call->list = 1; break;	/* not asked for */
		case 23: request->lists = 0; break;
		case 24: request->after = 1; break;
		case 25: request->measured = 1, request->count = 1, request->after = 1; break;
		case 26: request->measured = 1, request->after = 1, request->matches = 4096; break;
		case 27: request->dim = 0; break;
		case 28: request->dim = GG_MAX_DIM + 1; break;
		case 29: request->count = 1, request->matches = 4096; break;
		default: return false;
	}
	return true;
}

/* index: finished, of 16 dimensions, with a graph.  rows: without one. */
static inline void
bulk_refusals(const gg_engine *engine, gg_index *index, gg_index *rows)
{
	const gg_search_params params = {.k = 2,.itopk_size = 4};
	bulk_call	good = {.request = request_for(0, false, 3, 16, &params)};
	const size_t written[1][2] = {{0, 0}};
	bulk_region r;

	good.request.queries = 4096;
	good.request.keys = 4352;
	if (!bulk_open(&r, engine, 4096))
		return;
	for (int i = 0;; i++)
	{
		bulk_call	bad = good;

		if (!bulk_spoil(i, r.bytes, &bad))
			break;
		CHECK(submit_one(&r, index, bad.queue, bad.slot, BULK_TICKET, bad.list,
						 &bad.request).code == GG_EINVAL, "request %d", i);
	}
	CHECK(submit_one(&r, rows, 0, 0, BULK_TICKET, 0, &good.request).code == GG_EINVAL, "no graph");
	CHECK(bulk_stray(&r, written, 1) == 0, "refused requests write nothing");
	memset(r.memory + good.request.queries, 0, 192);
	CHECK_OK(submit_one(&r, index, 0, 0, BULK_TICKET, 0, &good.request), "a good one");
	bulk_wait(&r, 0, 0, 0, BULK_TICKET);
	bulk_close(&r);
}

#endif							/* SERVE_BULK_H */
