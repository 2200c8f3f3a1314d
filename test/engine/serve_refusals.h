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

/* Whole pages, for a device registers it; the slots take the first 768 bytes. */
#define REFUSALS_REGION 4096

/* Two slots with room for queries of 16 elements and 16 answers. */
static const gg_serve_layout refusals_layout = {.slot_bytes = 384,.nslots = 2,.done = 0,
												.nodes = 192,.distances = 256, .query = 320};

static inline void
serve_refuses_layouts(const gg_engine *engine)
{
	char	   *memory = aligned_alloc(REFUSALS_REGION, REFUSALS_REGION);
	gg_server  *server;

	for (int i = 0; i <= 15; i++)
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
			layout.query = 324;
		else if (i == 9)
			layout.query = 384;	/* behind the end */
		else if (i == 10)
			layout.nodes = 128, layout.distances = 192;	/* into what lists are done */
		else if (i == 11)
			layout.done = 320;	/* fewer words than lists before the end */
		else if (i == 12)
			layout.nslots = 0xFFFFFFFFu;
		else if (i == 13)
			layout.nodes = layout.distances;	/* two parts in one place */
		else if (i == 14)
			layout.query = layout.done;
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
refusals_answer(const gg_engine *engine, gg_server *server, gg_index *index,
				const gg_serve_batch *batch)
{
	double		until = harness_now() + (harness_small() ? 400 : 20);
	gg_status	status = {.code = GG_OK};
	bool		idle = false;

	CHECK_OK(engine->serve_submit(server, index, 0, batch), "serve_submit");
	while (!idle && status.code == GG_OK && harness_now() < until)
		status = engine->serve_check(server, 0, &idle);
	CHECK_OK(status, "serve_check");
	CHECK(idle, "the queue is idle");
}

static inline void
serve_refuses_batches(const gg_engine *engine)
{
	int			touched = 0;
	const gg_serve_batch good = {.count = 2,.exact = true,.k = 2,.itopk_size = 4,.slots = {0, 1},
								 .tickets = {7, 8}};
	gg_serve_layout layout = refusals_layout;
	char	   *memory = aligned_alloc(REFUSALS_REGION, REFUSALS_REGION);
	gg_server  *server = NULL;
	gg_index   *rows = refusals_index(engine, 0, 16);
	gg_index   *graph = refusals_index(engine, 4, 16);
	gg_index   *wide = refusals_index(engine, 0, 17);
	gg_serve_batch batch;
	bool		idle = true;

	memset(memory, 0, REFUSALS_REGION);
	layout.slots = memory;
	CHECK(engine->serve_open(-1, memory, REFUSALS_REGION, &layout, &server).code == GG_ENODEVICE &&
		  server == NULL, "no device -1");
	if (!CHECK_OK(engine->serve_open(0, memory, REFUSALS_REGION, &layout, &server), "serve_open"))
		return;
	CHECK(engine->serve_submit(server, rows, 0, &good).code == GG_EINVAL, "not finished");
	CHECK_OK(engine->index_finish(rows, 1, NULL), "index_finish");
	CHECK_OK(engine->index_finish(graph, 5, NULL), "index_finish");
	CHECK_OK(engine->index_finish(wide, 0, NULL), "index_finish");
	for (int i = 0; i <= 13; i++)
	{
		gg_index   *index = graph;
		uint32_t	queue = 0;

		batch = good;
		if (i == 0)
			batch.count = 0;
		else if (i == 1)
			batch.count = GG_SERVE_MAX_BATCH + 1;
		else if (i == 2)
			batch.k = 0;
		else if (i == 3)
			batch.k = GG_MAX_ITOPK + 1;
		else if (i == 4)
			batch.exact = false, batch.k = 5;
		else if (i == 5)
			batch.exact = false, batch.itopk_size = GG_MAX_ITOPK + 1;
		else if (i == 6)
			batch.list = GG_SERVE_MAX_LISTS;
		else if (i == 7)
			batch.slots[1] = 2;	/* the first query must not be answered either */
		else if (i == 8)
			batch.list = 8;		/* past the slot's room */
		else if (i == 9)
			batch.exact = false, batch.k = batch.itopk_size = 17;	/* so, too */
		else if (i == 10)
			batch.exact = false, index = rows;	/* no graph */
		else if (i == 11)
			index = wide;		/* a query takes 64 bytes */
		else if (i == 12)
			batch.exact = false, batch.mode = (gg_search_mode) 5;
		else
			queue = GG_SERVE_QUEUES;
		CHECK(engine->serve_submit(server, index, queue, &batch).code == GG_EINVAL, "batch %d", i);
	}
	CHECK(engine->serve_check(server, GG_SERVE_QUEUES, &idle).code == GG_EINVAL && !idle,
		  "no such queue");
	for (int i = 0; i < REFUSALS_REGION; i++)
		touched += memory[i] != 0;
	CHECK(touched == 0, "refused batches wrote %d bytes", touched);

	/* none of that stands in the way */
	refusals_answer(engine, server, rows, &good);
	batch = good;
	batch.exact = false;
	batch.list = 7;				/* the last that there is room for */
	refusals_answer(engine, server, graph, &batch);
	for (uint32_t slot = 0; slot < 2; slot++)
	{
		const char *at = memory + slot * layout.slot_bytes;
		const uint32_t *done = (const uint32_t *) (at + layout.done);
		const uint32_t *nodes = (const uint32_t *) (at + layout.nodes);

		CHECK(done[0] == 7 + slot && done[7] == 7 + slot, "tickets %u and %u", done[0], done[7]);
		CHECK(nodes[0] == 0 && nodes[1] == GG_NO_NODE && nodes[14] == 0 && nodes[15] == 1,
			  "nodes %u, %u, %u, %u", nodes[0], nodes[1], nodes[14], nodes[15]);
	}
	engine->index_close(wide);
	engine->index_close(graph);
	engine->index_close(rows);
	engine->serve_close(server);
	free(memory);
}

#endif							/* SERVE_REFUSALS_H */
