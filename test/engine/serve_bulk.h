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

#define BULK_SLOT 4096			/* bytes of the region before queries and answers */
#define BULK_FILLER 0xABu
#define BULK_TICKET 77u

typedef struct bulk_region
{
	const gg_engine *engine;
	char	   *memory;
	size_t		bytes;
	gg_serve_layout layout;
	gg_server  *server;
} bulk_region;

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
								   .nslots = nslots,.done = 0,.nodes = 192,.distances = 256,
								   .query = 320};
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
	const size_t answer_bytes = ((size_t) count * k * 4 + 63) / 64 * 64;
	gg_serve_bulk bulk = {.slot = 1,.ticket = BULK_TICKET,.list = 5,.exact = exact,.k = k,
						  .itopk_size = itopk,.mode = mode,.count = count,.dim = dim,
						  .queries = BULK_SLOT,
						  .nodes = BULK_SLOT + query_bytes,
						  .distances = BULK_SLOT + query_bytes + answer_bytes};
	gg_search_params params = {.k = k,.itopk_size = itopk,.mode = mode};
	uint32_t   *nodes = malloc((size_t) count * k * 4);
	float	   *distances = malloc((size_t) count * k * 4);
	uint32_t	same = 0;
	uint32_t	far = 0;
	bulk_region r;

	if (!bulk_open(&r, engine, query_bytes + 2 * answer_bytes))
		return;
	{
		const size_t written[4][2] = {
			{r.layout.slot_bytes + r.layout.done + bulk.list * 4, 4},
			{bulk.queries, (size_t) count * dim * 4},
			{bulk.nodes, (size_t) count * k * 4},
			{bulk.distances, (size_t) count * k * 4}
		};
		const uint32_t *found = (const uint32_t *) (r.memory + bulk.nodes);
		const float *measured = (const float *) (r.memory + bulk.distances);

		memcpy(r.memory + bulk.queries, queries, (size_t) count * dim * 4);
		if (exact)
			CHECK_OK(engine->index_exact(index, k, NULL, queries, count, NULL, nodes, distances),
					 "index_exact");
		else
			CHECK_OK(engine->index_search(index, &params, queries, count, NULL, nodes, distances),
					 "index_search");
		CHECK_OK(engine->serve_bulk(r.server, index, 2, &bulk), "serve_bulk");
		bulk_wait(&r, 2, 1, bulk.list, BULK_TICKET);
		for (size_t i = 0; i < (size_t) count * k; i++)
		{
			same += found[i] == nodes[i];
			far += found[i] == nodes[i] && measured[i] != distances[i];
		}
		CHECK(same >= least * count * k && far == 0,
			  "%u queries, k %u, exact %d, mode %d: %u of %zu nodes are the same, %u distances "
			  "differ", count, k, exact, (int) mode, same, (size_t) count * k, far);
		CHECK(memcmp(r.memory + bulk.queries, queries, (size_t) count * dim * 4) == 0 &&
			  bulk_stray(&r, written, 4) == 0, "nothing else is written");
	}
	bulk_close(&r);
	free(nodes);
	free(distances);
}

/* index: finished, of 16 dimensions, with a graph.  rows: without one. */
static inline void
bulk_refusals(const gg_engine *engine, gg_index *index, gg_index *rows)
{
	const gg_serve_bulk good = {.slot = 0,.ticket = BULK_TICKET,.list = 0,.k = 2,.itopk_size = 4,
								.count = 3,.dim = 16,.queries = 4096,.nodes = 4352,
								.distances = 4416};
	const size_t written[1][2] = {{0, 0}};
	bulk_region r;

	if (!bulk_open(&r, engine, 4096))
		return;
	for (int i = 0; i <= 19; i++)
	{
		gg_serve_bulk bulk = good;
		uint32_t	queue = 0;

		if (i == 0)
			bulk.count = 0;
		else if (i == 1)
			bulk.count = GG_SERVE_MAX_BULK + 1;
		else if (i == 2)
			bulk.slot = 2;
		else if (i == 3)
			bulk.list = GG_SERVE_MAX_LISTS;
		else if (i == 4)
			queue = GG_SERVE_QUEUES;
		else if (i == 5)
			bulk.k = 0;
		else if (i == 6)
			bulk.k = 5;
		else if (i == 7)
			bulk.exact = true, bulk.k = GG_MAX_ITOPK + 1;
		else if (i == 8)
			bulk.itopk_size = GG_MAX_ITOPK + 1;
		else if (i == 9)
			bulk.dim = 15;
		else if (i == 10)
			bulk.queries = r.bytes - 128;	/* three take 192 bytes */
		else if (i == 11)
			bulk.queries = 4100;
		else if (i == 12)
			bulk.queries = UINT64_MAX - 63;
		else if (i == 13)
			bulk.nodes = r.bytes;
		else if (i == 14)
			bulk.nodes = 4356;
		else if (i == 15)
			bulk.distances = r.bytes + 64;
		else if (i == 16)
			bulk.distances = UINT64_MAX / 64 * 64;
		else if (i == 17)
			bulk.count = GG_SERVE_MAX_BULK;	/* more than the region holds */
		else if (i == 18)
			bulk.count = 1;
		else
			bulk.mode = (gg_search_mode) 5;
		CHECK(engine->serve_bulk(r.server, i == 18 ? rows : index, queue, &bulk).code == GG_EINVAL,
			  "request %d", i);
	}
	CHECK(bulk_stray(&r, written, 1) == 0, "refused requests write nothing");
	memset(r.memory + good.queries, 0, 192);
	CHECK_OK(engine->serve_bulk(r.server, index, 0, &good), "a good one");
	bulk_wait(&r, 0, 0, 0, BULK_TICKET);
	bulk_close(&r);
}

#endif							/* SERVE_BULK_H */
