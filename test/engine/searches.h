/*
 * searches.h
 *		An engine's searches that wait, whose answers are nodes and distances apart, as tests
 *		compare them.  C and C++.
 */
#ifndef SEARCHES_H
#define SEARCHES_H

#include <math.h>
#include <stdlib.h>

#include "../../src/engine/keys.h"
#include "../../src/engine/request.h"

static inline void
split_keys(const uint64_t *keys, size_t count, uint32_t *nodes, float *distances)
{
	for (size_t i = 0; i < count; i++)
	{
		nodes[i] = keys[i] == GG_NO_KEY ? GG_NO_NODE : key_node(keys[i]);
		distances[i] = keys[i] == GG_NO_KEY ? INFINITY : key_distance(keys[i]);
	}
}

/* index_search(), or index_exact() for k with a filter.  What is out of range gets no memory. */
static inline gg_status
search_split(const gg_engine *engine, gg_index *index, const gg_search_params *params, bool exact,
			 const uint32_t *filter, const float *queries, uint32_t nq, const gg_control *control,
			 uint32_t *nodes, float *distances)
{
	const size_t count = params->k <= GG_MAX_ITOPK ? (size_t) nq * params->k : 0;
	uint64_t   *keys = (uint64_t *) malloc(count * sizeof(uint64_t) + 1);
	gg_status	status = exact ?
		engine->index_exact(index, params->k, filter, queries, nq, control, keys) :
		engine->index_search(index, params, queries, nq, control, keys);

	if (status.code == GG_OK)
		split_keys(keys, count, nodes, distances);
	free(keys);
	return status;
}

static inline gg_status
harness_search(const gg_engine *engine, gg_index *index, const gg_search_params *params,
			   const float *queries, uint32_t nq, const gg_control *control, uint32_t *nodes,
			   float *distances)
{
	return search_split(engine, index, params, false, NULL, queries, nq, control, nodes,
						distances);
}

static inline gg_status
harness_exact(const gg_engine *engine, gg_index *index, uint32_t k, const uint32_t *filter,
			  const float *queries, uint32_t nq, const gg_control *control, uint32_t *nodes,
			  float *distances)
{
	gg_search_params params;

	memset(&params, 0, sizeof(params));
	params.k = k;
	return search_split(engine, index, &params, true, filter, queries, nq, control, nodes,
						distances);
}

#endif							/* SEARCHES_H */
