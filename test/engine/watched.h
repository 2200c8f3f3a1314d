/*
 * watched.h
 *		A source in memory for walks that watches what is asked of it.
 */
#ifndef GG_TEST_WATCHED_H
#define GG_TEST_WATCHED_H

#include <string.h>

#include "../../src/engine/walk.h"
#include "harness.h"

#define WATCHED_MOST 4000		/* nodes */

typedef struct watched
{
	gg_dataset	rows;			/* where data points, if nobody else has them */
	const gg_dataset *data;
	const gg_graph *graph;
	const float *query;			/* prepared */
	uint64_t	distances;		/* measured */
	uint8_t		measured[WATCHED_MOST]; /* by node: how often since watch_query() */
	uint32_t	repeated;		/* nodes measured twice since then, or ids that are none */
	uint32_t	largest;		/* batch */
	long		calls_left;		/* -1: no limit; at 0 every callback fails */
} watched;

static inline bool
watch_call(watched *watch)
{
	if (watch->calls_left == 0)
		return false;
	if (watch->calls_left > 0)
		watch->calls_left--;
	return true;
}

static inline float
watched_distance(const watched *watch, uint32_t node)
{
	const gg_dataset *data = watch->data;
	const size_t row_bytes = data->dim * gg_element_size(data->element);

	return gg_distance_function(data->metric, data->element)
		((const char *) data->rows + node * row_bytes, watch->query, data->dim);
}

static inline bool
watched_distances(void *ctx, const uint32_t *nodes, uint32_t count, float *out)
{
	watched    *watch = ctx;

	if (!watch_call(watch))
		return false;
	if (count > watch->largest)
		watch->largest = count;
	watch->distances += count;
	for (uint32_t i = 0; i < count; i++)
	{
		const bool	is_node = nodes[i] < watch->graph->n;

		watch->repeated += !is_node || watch->measured[nodes[i]]++ != 0;
		out[i] = is_node ? watched_distance(watch, nodes[i]) : 0;
	}
	return true;
}

static inline bool
watched_neighbors(void *ctx, const uint32_t *nodes, uint32_t count, uint32_t *out)
{
	watched    *watch = ctx;

	if (!watch_call(watch))
		return false;
	for (uint32_t i = 0; i < count; i++)
		memcpy(out + i * watch->graph->degree,
			   watch->graph->adjacency + (size_t) nodes[i] * watch->graph->degree,
			   watch->graph->degree * sizeof(uint32_t));
	return true;
}

static inline bool
watched_pivots(void *ctx, const uint32_t *pivots, uint32_t count, uint32_t *nodes,
			   uint32_t *neighbors)
{
	watched    *watch = ctx;

	if (!watch_call(watch))
		return false;
	for (uint32_t i = 0; i < count; i++)
	{
		nodes[i] = watch->graph->pivots[pivots[i]];
		memcpy(neighbors + (size_t) i * GG_PIVOT_DEGREE,
			   watch->graph->pivot_adjacency + (size_t) pivots[i] * GG_PIVOT_DEGREE,
			   GG_PIVOT_DEGREE * sizeof(uint32_t));
	}
	return true;
}

/* Before each start. */
static inline void
watch_query(watched *watch, const float *query)
{
	watch->query = query;
	memset(watch->measured, 0, sizeof(watch->measured));
}

static inline gg_source
watch_make(watched *watch, const gg_dataset *data, const gg_graph *graph)
{
	memset(watch, 0, sizeof(*watch));
	watch->data = data;
	watch->graph = graph;
	watch->calls_left = -1;
	return (gg_source) {graph->n, graph->degree, graph->npivots, watch,
		watched_distances, watched_neighbors, watched_pivots, NULL};
}

#endif							/* GG_TEST_WATCHED_H */
