/*
 * product_cases.h
 *		Graphs under inner product, of rows that are no neighbours of each other and of long rows:
 *		what test_product.c and test_cuda_product.c test an engine by.
 *
 * Recall is that of the exact answers of queries like the rows, found by walks of the CPU engine.
 */
#ifndef GG_TEST_PRODUCT_CASES_H
#define GG_TEST_PRODUCT_CASES_H

#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEGREE		32

typedef struct lengths
{
	const char *what;
	uint32_t	dim;
	gg_element	element;
	uint32_t	one_in;			/* so many rows is stretched; 0: none */
	float		by;				/* so many times */
	double		built;			/* bars: of a graph that is built, */
	double		merged;			/* and of one that a quarter is merged into */
} lengths;

static const lengths cases[] = {
	{"normal", 32, GG_ELEMENT_F32, 0, 1, 0.98, 0.97},
	{"normal halves", 24, GG_ELEMENT_F16, 0, 1, 0.98, 0.97},
	{"one of 500 a thousand times as long", 32, GG_ELEMENT_F32, 500, 1000, 0.99, 0.98},
	{"one of 100 ten times as long, halves", 32, GG_ELEMENT_F16, 100, 10, 0.99, 0.98},
};

static const gg_build_params usual = {
	.graph_degree = DEGREE, .intermediate_graph_degree = 2 * DEGREE, .seed = 1
};
static const gg_control two_threads = {.threads = 2};

/* n rows, free(); as halves where `element` says so */
static void *
draw(const lengths *of, gg_element element, uint32_t n, bool stretched, uint64_t seed)
{
	harness_random random = {seed};
	const size_t count = (size_t) n * of->dim;
	float	   *values = malloc(sizeof(float) * count);
	void	   *rows;

	for (size_t i = 0; i < count; i++)
		values[i] = (float) harness_normal(&random) *
			(stretched && of->one_in > 0 && i / of->dim % of->one_in == 7 ? of->by : 1);
	rows = harness_stored(values, count, element);
	free(values);
	return rows;
}

/* The last rows, one of so many, into the graph of the others. */
static void
merge(const gg_engine *engine, const gg_dataset *data, const gg_build_params *params,
	  uint32_t one_of, gg_graph *graph)
{
	const uint32_t first = data->n - data->n / one_of;
	gg_dataset	some = *data;
	uint8_t    *parts = malloc(data->n);
	uint32_t   *lists = malloc(sizeof(uint32_t) * data->n * DEGREE);
	gg_merge_input input = {parts, lists, DEGREE, GG_MERGE_AUTO};

	memset(parts, 0, data->n);
	memset(parts, 1, first);
	memset(lists, 0xFF, sizeof(uint32_t) * data->n * DEGREE);
	some.n = first;
	CHECK_OK(engine->build(&some, params, &two_threads, graph, NULL), "build");
	memcpy(lists, graph->adjacency, sizeof(uint32_t) * first * DEGREE);
	gg_graph_free(graph);
	CHECK_OK(engine->merge(data, &input, params, &two_threads, graph, NULL), "merge");
	free(parts);
	free(lists);
}

/* A set of rows, and queries like those that are not stretched. */
typedef struct product_set
{
	gg_dataset	data;
	void	   *rows;
	float	   *queries;
	uint32_t	nq;
} product_set;

static void
open_set(const lengths *of, uint32_t n, uint32_t nq, product_set *set)
{
	set->rows = draw(of, of->element, n, true, 11);
	set->queries = draw(of, GG_ELEMENT_F32, nq, false, 12);
	set->data = (gg_dataset) {set->rows, n, of->dim, of->element, GG_METRIC_IP};
	set->nq = nq;
}

/*
 * Rows of clusters, many of which have near copies, and queries near some of them.
 *
 * The bug: few rows list each other, so the clusters fell into hundreds of components, each of
 * which got a pivot.  A walk's list was full of pivots of other clusters before it had one of the
 * right one, and lost all ten answers.  The fix: gg_pivots_of_components().
 */
#define COPIES_DIM		64
#define COPIES_CLUSTERS	40

static float
cluster_noise(harness_random *random)
{
	return (float) (0.5 * (harness_unit(random) + harness_unit(random) + harness_unit(random) -
						   1.5));
}

static void
open_copies(uint32_t drawn, uint32_t nq, uint64_t seed, product_set *set)
{
	harness_random random = {seed};
	float		centres[COPIES_CLUSTERS * COPIES_DIM];
	float	   *rows = malloc(sizeof(float) * 2 * drawn * COPIES_DIM);
	uint32_t	n = drawn;

	for (uint32_t i = 0; i < COPIES_CLUSTERS * COPIES_DIM; i++)
		centres[i] = (float) harness_unit(&random) * 2 - 1;
	for (uint32_t i = 0; i < drawn * COPIES_DIM; i++)
		rows[i] = centres[i / COPIES_DIM * 7919 % COPIES_CLUSTERS * COPIES_DIM +
						  i % COPIES_DIM] + cluster_noise(&random);
	for (uint32_t time = 1; time <= 10; time++)
		for (uint32_t i = 0; i < drawn; i++)
			for (uint32_t d = 0; i % 7 == time % 7 && i % 8 >= 5 && d < COPIES_DIM; d++)
			{
				rows[n * COPIES_DIM + d] = rows[i * COPIES_DIM + d] + 0.01f * time;
				n += d == COPIES_DIM - 1;
			}
	set->queries = malloc(sizeof(float) * nq * COPIES_DIM);
	for (uint32_t i = 0; i < nq * COPIES_DIM; i++)
		set->queries[i] = rows[i / COPIES_DIM * 48271 % n * COPIES_DIM + i % COPIES_DIM] *
			(0.95f + 0.1f * (float) harness_unit(&random));
	set->rows = rows;
	set->data = (gg_dataset) {rows, n, COPIES_DIM, GG_ELEMENT_F32, GG_METRIC_IP};
	set->nq = nq;
}

static void
close_set(product_set *set)
{
	free(set->rows);
	free(set->queries);
}

/* The recall of a graph, which is checked and freed. */
static double
graph_recall(const product_set *set, gg_graph *graph, const char *what)
{
	double		found;

	harness_graph_check(graph, set->data.n, DEGREE, true, what);
	found = harness_walk(&set->data, graph, set->queries, set->nq, 64, what).recall;
	gg_graph_free(graph);
	return found;
}

/*
 * Builds of rows with near copies lose no more than one query in 500, and one.  Of 9,600 queries of
 * 24 builds two are lost; with a pivot for each pair of copies 37 of 4,800 were.
 */
static void
check_copies(const gg_engine *engine, uint32_t drawn, uint32_t nq, int builds)
{
	double		lost = 0;

	for (int build = 0; build < builds; build++)
	{
		gg_build_params params = usual;
		product_set set;
		gg_graph	graph;

		params.seed += build;
		open_copies(drawn, nq, 100 + build, &set);
		CHECK_OK(engine->build(&set.data, &params, &two_threads, &graph, NULL), "copies");
		lost += (1 - graph_recall(&set, &graph, "copies")) * nq;
		close_set(&set);
	}
	CHECK(lost <= 1 + 0.002 * nq * builds, "rows with copies: %.1f of %d queries", lost,
		  (int) nq * builds);
}

#endif							/* GG_TEST_PRODUCT_CASES_H */
