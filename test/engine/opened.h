/*
 * opened.h
 *		Made rows and queries, a graph over them by the CPU engine, and an index of any engine.
 */
#ifndef GG_TEST_OPENED_H
#define GG_TEST_OPENED_H

#include <string.h>

#include "harness.h"

typedef struct opened
{
	const gg_engine *engine;
	gg_dataset	data;
	float	   *queries;
	uint32_t	nq;
	gg_graph	graph;
	gg_index   *index;
} opened;

/* The index of o->data, which are there. */
static inline void
open_data(opened *o, const gg_engine *engine, const gg_build_params *params)
{
	const gg_control control = {.threads = 2};

	o->engine = engine;
	CHECK_OK(gg_cpu_engine.build(&o->data, params, &control, &o->graph, NULL), "build");
	CHECK_OK(engine->index_open(&o->data, &o->graph, &control, &o->index), "index_open");
}

static inline void
open_spec(opened *o, const gg_engine *engine, const harness_spec *spec, uint32_t nq)
{
	const gg_build_params params = {.graph_degree = 32,.intermediate_graph_degree = 64,.seed = 1};

	o->nq = nq;
	harness_data(spec, &o->data, &o->queries, nq);
	open_data(o, engine, &params);
}

static inline void
close_opened(opened *o)
{
	o->engine->index_close(o->index);
	gg_graph_free(&o->graph);
	harness_free(&o->data, o->queries);
}

static inline uint64_t *
opened_found(const opened *o, const gg_search_params *params, int threads)
{
	const gg_control control = {.threads = threads};

	return harness_found(o->engine, o->index, params, o->queries, o->nq, &control, "search");
}

static inline uint64_t *
opened_nearest(const opened *o, uint32_t k, const uint32_t *filter, int threads)
{
	const gg_control control = {.threads = threads};

	return harness_nearest(o->engine, o->index, k, filter, o->queries, o->nq, &control, "exact");
}

/* Answers to all queries, k each, that are the same in every bit? */
static inline bool
opened_same(const opened *o, const uint64_t *a, const uint64_t *b, uint32_t k)
{
	return memcmp(a, b, (size_t) o->nq * k * sizeof(uint64_t)) == 0;
}

#endif							/* GG_TEST_OPENED_H */
