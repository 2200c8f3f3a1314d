/*
 * serve_refusals.h
 *		Slots and batches that every engine refuses, and that nothing is written or lost by it.
 *
 * One list for all engines: what a device refuses, the one that plays it refuses, else tests
 * against it prove nothing.
 */
#ifndef SERVE_REFUSALS_H
#define SERVE_REFUSALS_H

#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "serve_requests.h"

/* Whole pages, for a device registers it; the slots take the first 768 bytes. */
#define REFUSALS_REGION 4096

/* Two slots, with room for queries of 16 elements and 16 answers behind their words. */
static const gg_serve_layout refusals_layout = {.slot_bytes = 384,.nslots = 2,.done = 0};

static inline void
serve_refuses_layouts(const gg_engine *engine)
{
	char	   *memory = aligned_alloc(REFUSALS_REGION, REFUSALS_REGION);
	gg_server  *server;

	for (int i = 0; i <= 12; i++)
	{
		gg_serve_layout layout = refusals_layout;
		size_t		bytes = 1024;
		void	   *region = memory;

		layout.slots = memory;
		if (i == 0)
			layout.nslots = 3;
		else if (i == 1)
			bytes = 767;
		else if (i == 2)
			layout.slots = memory - 64;
		else if (i == 3)
			layout.slots = memory + 1088;
		else if (i == 4)
			layout.nslots = 0;
		else if (i == 5)
			layout.slot_bytes = 0;
		else if (i == 6)
			layout.slot_bytes = 385;
		else if (i == 7)
			layout.slots = memory + 2;
		else if (i == 8)
			layout.done = 4;
		else if (i == 9)
			layout.done = 384;	/* behind the end */
		else if (i == 10)
			layout.done = 320;	/* fewer words than lists before the end */
		else if (i == 11)
			layout.nslots = 0xFFFFFFFFu;
		else
			region = NULL;
		CHECK(engine->serve_open(0, region, bytes, &layout, &server).code == GG_EINVAL &&
			  server == NULL, "layout %d", i);
	}
	free(memory);
}

/*
 * Five rows, each the neighbour of all others, the first one the pivot; or, degree 0, one row
 * alone.  Not finished.
 */
static inline gg_index *
refusals_index(const gg_engine *engine, uint32_t degree, uint32_t dim)
{
	gg_shape	shape = {.capacity = degree + 1,.dim = dim,.element = GG_ELEMENT_F32,
						 .metric = GG_METRIC_L2, .degree = degree,.npivots = degree > 0};
	uint32_t	pivot[1 + GG_PIVOT_DEGREE] = {0};
	uint32_t	neighbors[5 * 4];
	float		rows[5 * 17];
	gg_index   *index = NULL;

	for (uint32_t i = 0; i < (degree + 1) * dim; i++)
		rows[i] = (float) i;
	for (uint32_t i = 0; i < (degree + 1) * degree; i++)
		neighbors[i] = i % degree + (i % degree >= i / degree);
	memset(pivot + 1, 0xFF, sizeof(pivot) - sizeof(pivot[0]));
	CHECK_OK(engine->index_create(&shape, &index), "index_create");
	CHECK_OK(engine->index_write(index, GG_PART_ROWS, 0, rows, (degree + 1) * dim * sizeof(float)),
			 "index_write");
	if (degree > 0)
	{
		CHECK_OK(engine->index_write(index, GG_PART_ADJACENCY, 0, neighbors,
									 (degree + 1) * degree * sizeof(uint32_t)), "index_write");
		CHECK_OK(engine->index_write(index, GG_PART_PIVOTS, 0, pivot, sizeof(pivot)),
				 "index_write");
	}
	return index;
}

/* Submit what is good and wait for its answer. */
static inline void
refusals_answer(bulk_region *r, gg_index *index, const slot_batch *batch)
{
	double		until = harness_now() + (harness_small() ? 400 : 20);
	gg_status	status = {.code = GG_OK};
	bool		idle = false;

	CHECK_OK(submit_slots(r, index, 0, 16, batch), "serve_submit");
	while (!idle && status.code == GG_OK && harness_now() < until)
		status = r->engine->serve_check(r->server, 0, &idle);
	CHECK_OK(status, "serve_check");
	CHECK(idle, "the queue is idle");
}

/* What batch number i of serve_refuses_batches() has wrong; false: there are no more. */
static inline bool
refusals_spoil(int i, slot_batch *batch, bulk_region *r, uint32_t *queue)
{
	switch (i)
	{
		case 0: batch->count = 0; break;
		case 1: batch->count = GG_SERVE_MAX_BATCH + 1; break;
		case 2: batch->k = 0; break;
		case 3: batch->k = GG_MAX_DEEP + 1; break;
		case 4: batch->exact = false, batch->k = 5; break;
		case 5: batch->exact = false, batch->itopk_size = GG_MAX_ITOPK + 1; break;
		case 6: batch->list = GG_SERVE_MAX_LISTS; break;
		case 7: batch->slots[1] = 2; break;	/* the first query must not be answered either */
		case 8: r->keys = REFUSALS_REGION - 384 - 8; break;	/* past the end of the region */
		case 9: r->query = REFUSALS_REGION - 384; break;	/* so, too */
		case 10: r->query = 324; break;
		case 11: r->keys = 196; break;
		case 12: batch->exact = false, batch->mode = (gg_search_mode) 5; break;
		case 13: *queue = GG_SERVE_QUEUES; break;
		default: return false;
	}
	return true;
}

/* Two requests that are good, each alone, but not in one batch. */
static inline void
refuses_apart(bulk_region *r, gg_index *index)
{
	const gg_search_params params = {.k = 2,.itopk_size = 4};

	for (int i = 0; i <= 10; i++)
	{
		gg_request	a = request_for(0, false, 1, 16, &params);
		gg_request	b;
		gg_serve_batch batch = {.count = 2,.requests = {&a, &b},.slots = {0, 1},.tickets = {7, 8}};

		a.queries = r->query;
		a.keys = r->keys;
		b = a;
		b.queries += r->layout.slot_bytes;
		b.keys += r->layout.slot_bytes;
		switch (i)
		{
			case 0: b.params.k = 1; break;
			case 1: b.params.itopk_size = 5; break;
			case 2: b.params.mode = GG_SEARCH_TSDG_LARGE; break;
			case 3: b.params.delta = 1; break;
			case 4: b.params.walks = 7; break;
			case 5: b.params.search_width = 1; break;
			case 6: b.measured = 1; break;
			case 7: b.queries += 64; break;
			case 8: b.keys += 64; break;
			case 9: b.params.rerank = 3; break;
			default: b.count = 2; break;
		}
		CHECK(r->engine->serve_submit(r->server, index, 0, &batch).code == GG_EINVAL,
			  "requests %d", i);
	}
}

static inline void
serve_refuses_batches(const gg_engine *engine)
{
	int			touched = 0;
	const slot_batch good = {.count = 2,.exact = true,.k = 2,.itopk_size = 4,.slots = {0, 1},
							 .tickets = {7, 8}};
	bulk_region region = {.engine = engine,.bytes = REFUSALS_REGION,.layout = refusals_layout,
						  .query = 320,.keys = 192};
	gg_index   *rows = refusals_index(engine, 0, 16);
	gg_index   *graph = refusals_index(engine, 4, 16);
	gg_index   *wide = refusals_index(engine, 0, 17);
	slot_batch	batch;
	bool		idle = true;

	region.memory = aligned_alloc(REFUSALS_REGION, REFUSALS_REGION);
	memset(region.memory, 0, REFUSALS_REGION);
	region.layout.slots = region.memory;
	CHECK(engine->serve_open(-1, region.memory, REFUSALS_REGION, &region.layout,
							 &region.server).code == GG_ENODEVICE && region.server == NULL,
		  "no device -1");
	if (!CHECK_OK(engine->serve_open(0, region.memory, REFUSALS_REGION, &region.layout,
									 &region.server), "serve_open"))
		return;
	CHECK(submit_slots(&region, rows, 0, 16, &good).code == GG_EINVAL, "not finished");
	CHECK_OK(engine->index_finish(rows, 1, NULL), "index_finish");
	CHECK_OK(engine->index_finish(graph, 5, NULL), "index_finish");
	CHECK_OK(engine->index_finish(wide, 0, NULL), "index_finish");
	for (int i = 0;; i++)
	{
		bulk_region r = region;
		uint32_t	queue = 0;

		batch = good;
		if (!refusals_spoil(i, &batch, &r, &queue))
			break;
		CHECK(submit_slots(&r, graph, queue, 16, &batch).code == GG_EINVAL, "batch %d", i);
	}
	refuses_apart(&region, graph);
	CHECK(submit_slots(&region, wide, 0, 16, &good).code == GG_EINVAL, "rows are wider");
	batch = good;
	batch.exact = false;
	CHECK(submit_slots(&region, rows, 0, 16, &batch).code == GG_EINVAL, "no graph");
	CHECK(engine->serve_check(region.server, GG_SERVE_QUEUES, &idle).code == GG_EINVAL && !idle,
		  "no such queue");
	for (int i = 0; i < REFUSALS_REGION; i++)
		touched += region.memory[i] != 0;
	CHECK(touched == 0, "refused batches wrote %d bytes", touched);

	/* none of that stands in the way */
	refusals_answer(&region, rows, &good);
	batch.list = 7;
	refusals_answer(&region, graph, &batch);
	for (uint32_t slot = 0; slot < 2; slot++)
	{
		const uint32_t *done = (const uint32_t *) (region.memory + slot_at(&region, slot));
		const uint64_t *keys = slot_keys(&region, slot, 0, 2);

		CHECK(done[0] == 7 + slot && done[7] == 7 + slot, "tickets %u and %u", done[0], done[7]);
		CHECK(key_node(keys[0]) == 0 && keys[1] == GG_NO_KEY && key_node(keys[14]) == 0 &&
			  key_node(keys[15]) == 1, "keys %llx, %llx, %llx, %llx", (unsigned long long) keys[0],
			  (unsigned long long) keys[1], (unsigned long long) keys[14],
			  (unsigned long long) keys[15]);
	}
	engine->index_close(wide);
	engine->index_close(graph);
	engine->index_close(rows);
	engine->serve_close(region.server);
	free(region.memory);
}

#endif							/* SERVE_REFUSALS_H */
