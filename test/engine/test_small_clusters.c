/*
 * test_small_clusters.c
 *
 * The bug: pivots were random rows alone.  A cluster that drew none could not be found: the lists
 * of its rows stay within it, few edges lead in, and a query there got not one right answer at any
 * width.  The fix: rows around which no pivot lies become pivots (src/cpu/connect.c, cover_nodes).
 *
 * Clusters of 40 rows have more than a node's degree.  Those of 12 make a twelfth of all rows
 * pivots.
 */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define DIM			24
#define K			10

static void
check_clusters(uint32_t clusters, uint32_t rows_each)
{
	uint32_t	n = clusters * rows_each;
	float	   *rows = malloc(sizeof(float) * n * DIM);
	float	   *queries = malloc(sizeof(float) * clusters * DIM);
	uint32_t   *exact = malloc(sizeof(uint32_t) * clusters * K);
	uint32_t   *found = malloc(sizeof(uint32_t) * clusters * K);
	float	   *distances = malloc(sizeof(float) * clusters * K);
	gg_build_params params = {.graph_degree = 32,.intermediate_graph_degree = 64,.seed = 1};
	gg_search_params search = {.k = K,.itopk_size = 64};
	gg_control	control = {.threads = 1};
	gg_dataset	data = {rows, n, DIM, GG_ELEMENT_F32, GG_METRIC_L2};
	harness_random random = {7};
	gg_graph	graph;
	gg_index   *index;
	uint32_t	hits = 0,
				lost = 0;

	/* centres ten apart, rows around them within one; a query in each */
	for (uint32_t c = 0; c < clusters; c++)
	{
		float		centre[DIM];

		for (uint32_t d = 0; d < DIM; d++)
			centre[d] = 10 * harness_normal(&random);
		for (uint32_t i = 0; i < rows_each * DIM; i++)
			rows[(size_t) c * rows_each * DIM + i] = centre[i % DIM] + 0.2 *
				harness_normal(&random);
		for (uint32_t d = 0; d < DIM; d++)
			queries[(size_t) c * DIM + d] = centre[d] + 0.2 * harness_normal(&random);
	}

	CHECK_OK(gg_cpu_engine.build(&data, &params, &control, &graph, NULL), "build");
	CHECK_OK(gg_cpu_engine.index_open(&data, &graph, &control, &index), "index_open");
	CHECK_OK(harness_exact(&gg_cpu_engine, index, K, NULL, queries, clusters, &control, exact,
						   distances), "exact");
	CHECK_OK(harness_search(&gg_cpu_engine, index, &search, queries, clusters, &control, found,
							distances), "search");
	for (uint32_t q = 0; q < clusters; q++)
	{
		uint32_t	right = 0;

		for (uint32_t i = 0; i < K; i++)
			for (uint32_t j = 0; j < K; j++)
				right += found[q * K + i] == exact[q * K + j];
		hits += right;
		lost += right == 0;
	}
	/*
	 * By one thread the graph is the same each time.  Of 44 graphs by other seeds, or by threads
	 * that took turns in other ways, eight lost one of 4,000 queries; of 194, none lost one of 300.
	 */
	CHECK(lost <= clusters / 1000, "clusters of %u: %u of %u queries got no right answer",
		  rows_each, lost, clusters);
	CHECK(hits >= 0.99 * clusters * K, "clusters of %u: recall %.4f", rows_each,
		  (double) hits / (clusters * K));

	gg_cpu_engine.index_close(index);
	gg_graph_free(&graph);
	free(rows);
	free(queries);
	free(exact);
	free(found);
	free(distances);
}

int
main(void)
{
	check_clusters(harness_size(300, 6), 40);
	check_clusters(harness_size(4000, 100), 12);
	return harness_finish();
}
