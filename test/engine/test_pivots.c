/*
 * test_pivots.c
 *
 * The bug: the pivots' graph was made of near neighbours alone.  Where a cluster has more pivots
 * than one of them has neighbours, they were an island in it, and a walk for a query in a cluster
 * in which it did not start ended in another one: recall 0.91 here.  The fix: levels of the pivots,
 * whose edges are longer (src/engine/cpu/build/connect.c, link_levels).
 */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define DIM			16
#define CLUSTERS	16
#define QUERIES		(10 * CLUSTERS)
#define K			10

/*
 * Rows and queries in turn from each of the clusters, 1000 times as far from each other as they are
 * wide.
 */
static void
make_rows(uint64_t seed, uint32_t n, float *rows, float *queries)
{
	harness_random random = {seed};
	float		centres[CLUSTERS][DIM];

	for (uint32_t i = 0; i < CLUSTERS * DIM; i++)
		centres[i / DIM][i % DIM] = harness_normal(&random);
	for (uint32_t i = 0; i < n * DIM; i++)
		rows[i] = centres[i / DIM % CLUSTERS][i % DIM] + 0.001 * harness_normal(&random);
	for (uint32_t i = 0; i < QUERIES * DIM; i++)
		queries[i] = centres[i / DIM % CLUSTERS][i % DIM] + 0.001 * harness_normal(&random);
}

/* How many of the K nearest rows a search finds, over all queries. */
static uint32_t
hits(const gg_dataset *data, const gg_graph *graph, const float *queries)
{
	gg_search_params search = {.k = K,.itopk_size = 64};
	gg_control	control = {.threads = 2};
	uint32_t   *exact = malloc(sizeof(uint32_t) * QUERIES * K);
	uint32_t   *found = malloc(sizeof(uint32_t) * QUERIES * K);
	float	   *exact_distances = malloc(sizeof(float) * QUERIES * K);
	float	   *distances = malloc(sizeof(float) * QUERIES * K);
	gg_index   *index;
	uint32_t	right = 0;

	CHECK_OK(gg_cpu_engine.index_open(data, graph, &control, &index), "index_open");
	CHECK_OK(harness_exact(&gg_cpu_engine, index, K, NULL, queries, QUERIES, &control, exact,
						   exact_distances), "exact");
	CHECK_OK(harness_search(&gg_cpu_engine, index, &search, queries, QUERIES, &control, found,
							distances), "search");
	for (uint32_t i = 0; i < QUERIES * K; i++)
		right += distances[i] <= exact_distances[i / K * K + K - 1];
	gg_cpu_engine.index_close(index);
	free(exact);
	free(found);
	free(exact_distances);
	free(distances);
	return right;
}

/* Pivots by thirds of their order: each has about as many from each third of the rows. */
static void
check_order(const gg_graph *graph, uint64_t seed)
{
	uint32_t	counts[3][3] = {{0}};

	for (uint32_t i = 0; i < graph->npivots; i++)
		counts[(uint64_t) i * 3 / graph->npivots][(uint64_t) graph->pivots[i] * 3 / graph->n]++;
	for (uint32_t i = 0; i < 9; i++)
		CHECK(counts[i / 3][i % 3] * 18 >= graph->npivots,
			  "seed %d: %u of %u pivots, third %u of rows in third %u", (int) seed,
			  counts[i / 3][i % 3], graph->npivots, i % 3, i / 3);
}

int
main(void)
{
	uint32_t	n = harness_size(40000, 8);
	float	   *rows = malloc(sizeof(float) * n * DIM);
	float	   *queries = malloc(sizeof(float) * QUERIES * DIM);
	uint32_t	seeds = harness_small() ? 1 : 2;
	uint32_t	right = 0;

	for (uint64_t seed = 1; seed <= seeds; seed++)
	{
		gg_build_params params = {.graph_degree = 16,.intermediate_graph_degree = 32,.seed = seed};
		gg_control	control = {.threads = 2};
		gg_dataset	data = {rows, n, DIM, GG_ELEMENT_F32, GG_METRIC_L2};
		gg_graph	graph;

		make_rows(seed, n, rows, queries);
		CHECK_OK(gg_cpu_engine.build(&data, &params, &control, &graph, NULL), "build");
		right += hits(&data, &graph, queries);
		check_order(&graph, seed);
		gg_graph_free(&graph);
	}
	CHECK(right >= 0.98 * seeds * QUERIES * K, "recall %.4f",
		  (double) right / (seeds * QUERIES * K));
	free(rows);
	free(queries);
	return harness_finish();
}
