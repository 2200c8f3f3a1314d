/*
 * small_graph.h
 *		Small data sets, and graphs over them made the slow and certain way.
 *
 * For tests of searching that must not depend on how graphs are built: each list holds the
 * nearest rows found by comparing all, then the edges back from rows that hold it, and its last
 * place goes to the next row in a ring, so that everything is reachable from anywhere.
 */
#ifndef SMALL_GRAPH_H
#define SMALL_GRAPH_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/engine/walk.h"

typedef struct small_random
{
	uint64_t	state;
} small_random;

static inline uint32_t
small_random_bits(small_random *random)
{
	random->state = random->state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t) (random->state >> 33);
}

/* In [0, 1). */
static inline float
small_random_unit(small_random *random)
{
	return (float) (small_random_bits(random) & 0xFFFFFF) / 16777216.0f;
}

/* About normal: the sum of twelve uniform ones. */
static inline float
small_random_normal(small_random *random)
{
	float		sum = -6;

	for (int i = 0; i < 12; i++)
		sum += small_random_unit(random);
	return sum;
}

/*
 * n rows around clusters centres, spread as wide as the centres times spread, in a space of
 * latent dimensions that a random map takes to dim; unit length on request.
 */
static inline void
small_clusters(small_random *random, float *rows, uint32_t n, uint32_t dim, uint32_t latent,
			   uint32_t clusters, float spread, bool unit)
{
	float	   *map = malloc((size_t) latent * dim * sizeof(float));
	float	   *centres = malloc((size_t) clusters * latent * sizeof(float));
	float	   *point = malloc(latent * sizeof(float));

	for (size_t i = 0; i < (size_t) latent * dim; i++)
		map[i] = small_random_normal(random) / sqrtf((float) latent);
	for (size_t i = 0; i < (size_t) clusters * latent; i++)
		centres[i] = small_random_normal(random);
	for (uint32_t i = 0; i < n; i++)
	{
		const float *centre = centres + (size_t) (small_random_bits(random) % clusters) * latent;
		float	   *row = rows + (size_t) i * dim;
		double		square = 0;

		for (uint32_t l = 0; l < latent; l++)
			point[l] = centre[l] + spread * small_random_normal(random);
		for (uint32_t d = 0; d < dim; d++)
		{
			row[d] = 0;
			for (uint32_t l = 0; l < latent; l++)
				row[d] += point[l] * map[(size_t) l * dim + d];
			square += (double) row[d] * row[d];
		}
		for (uint32_t d = 0; unit && d < dim; d++)
			row[d] = (float) (row[d] / sqrt(square));
	}
	free(map);
	free(centres);
	free(point);
}

typedef struct small_neighbor
{
	float		distance;
	uint32_t	node;
} small_neighbor;

static inline int
small_neighbor_compare(const void *a, const void *b)
{
	const small_neighbor *x = a;
	const small_neighbor *y = b;

	if (x->distance != y->distance)
		return x->distance < y->distance ? -1 : 1;
	return (x->node > y->node) - (x->node < y->node);
}

/* All rows by (distance, node) from the prepared query; out has room for n. */
static inline void
small_sorted(const float *rows, uint32_t n, uint32_t dim, gg_metric metric, const float *query,
			 small_neighbor *out)
{
	gg_distance_fn distance = gg_distance_function(metric, GG_ELEMENT_F32);

	for (uint32_t i = 0; i < n; i++)
	{
		out[i].distance = distance(rows + (size_t) i * dim, query, dim);
		out[i].node = i;
	}
	qsort(out, n, sizeof(small_neighbor), small_neighbor_compare);
}

/* The k nearest of them, or all n if those are fewer: how many they are. */
static inline uint32_t
small_nearest(const float *rows, uint32_t n, uint32_t dim, gg_metric metric, const float *query,
			  uint32_t k, small_neighbor *out)
{
	gg_distance_fn distance = gg_distance_function(metric, GG_ELEMENT_F32);
	uint32_t	count = 0;

	for (uint32_t i = 0; i < n; i++)
	{
		small_neighbor one = {distance(rows + (size_t) i * dim, query, dim), i};
		uint32_t	at = count < k ? count++ : k;

		for (; at > 0 && small_neighbor_compare(&one, &out[at - 1]) < 0; at--)
			if (at < k)
				out[at] = out[at - 1];
		if (at < k)
			out[at] = one;
	}
	return count;
}

static inline bool
small_list_add(uint32_t *list, uint32_t degree, uint32_t node)
{
	for (uint32_t i = 0; i < degree; i++)
	{
		if (list[i] == node)
			return false;
		if (list[i] == GG_NO_NODE)
		{
			list[i] = node;
			return true;
		}
	}
	return false;
}

/* Lists over n rows as the head of the file says; degree >= 2, adjacency n x degree. */
static inline void
small_lists(const float *rows, uint32_t n, uint32_t dim, gg_metric metric, uint32_t degree,
			uint32_t *adjacency)
{
	small_neighbor *sorted = malloc((degree + 1) * sizeof(small_neighbor));
	uint32_t   *nearest = malloc((size_t) (n + 1) * degree * sizeof(uint32_t));

	memset(nearest, 0xFF, (size_t) n * degree * sizeof(uint32_t));
	memset(adjacency, 0xFF, (size_t) n * degree * sizeof(uint32_t));
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	count = 0;
		uint32_t	have = small_nearest(rows, n, dim, metric, rows + (size_t) i * dim, degree + 1,
										 sorted);

		for (uint32_t j = 0; j < have && count < degree; j++)
		{
			if (sorted[j].node != i)
				nearest[(size_t) i * degree + count++] = sorted[j].node;
		}
		if (n > 1)
			small_list_add(adjacency + (size_t) i * degree, degree, (i + 1) % n);
		for (uint32_t j = 0; j < count && j < degree / 2; j++)
			small_list_add(adjacency + (size_t) i * degree, degree,
						   nearest[(size_t) i * degree + j]);
	}
	for (uint32_t j = 0; j < degree; j++)
	{
		for (uint32_t i = 0; i < n; i++)
		{
			uint32_t	node = nearest[(size_t) i * degree + j];

			if (node != GG_NO_NODE)
				small_list_add(adjacency + (size_t) node * degree, degree, i);
		}
	}
	for (uint32_t i = 0; i < n; i++)
	{
		for (uint32_t j = 0; j < degree; j++)
		{
			if (nearest[(size_t) i * degree + j] != GG_NO_NODE)
				small_list_add(adjacency + (size_t) i * degree, degree,
							   nearest[(size_t) i * degree + j]);
		}
	}
	free(sorted);
	free(nearest);
}

/* The whole graph; npivots random rows.  Free with small_graph_free(). */
static inline void
small_graph_make(small_random *random, const float *rows, uint32_t n, uint32_t dim,
				 gg_metric metric, uint32_t degree, uint32_t npivots, gg_graph *graph)
{
	float	   *pivot_rows = malloc(((size_t) npivots * dim + 1) * sizeof(float));

	graph->n = n;
	graph->degree = degree;
	graph->npivots = npivots;
	graph->adjacency = malloc(((size_t) n * degree + 1) * sizeof(uint32_t));
	graph->pivots = malloc((npivots + 1) * sizeof(uint32_t));
	graph->pivot_adjacency = malloc(((size_t) npivots * GG_PIVOT_DEGREE + 1) * sizeof(uint32_t));
	small_lists(rows, n, dim, metric, degree, graph->adjacency);
	memset(graph->pivots, 0xFF, npivots * sizeof(uint32_t));
	for (uint32_t i = 0; i < npivots; i++)
	{
		while (!small_list_add(graph->pivots, i + 1, small_random_bits(random) % n))
			;
		memcpy(pivot_rows + (size_t) i * dim, rows + (size_t) graph->pivots[i] * dim,
			   dim * sizeof(float));
	}
	small_lists(pivot_rows, npivots, dim, metric, GG_PIVOT_DEGREE, graph->pivot_adjacency);
	free(pivot_rows);
}

static inline void
small_graph_free(gg_graph *graph)
{
	free(graph->adjacency);
	free(graph->pivots);
	free(graph->pivot_adjacency);
}

#endif							/* SMALL_GRAPH_H */
