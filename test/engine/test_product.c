/*
 * test_product.c
 *		Inner product: rows that are no neighbours of each other, and long rows.
 *
 * Recall is that of the exact answers of queries like the rows.
 */
#include "../../src/cpu/index.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define K			10
#define ITOPK		64
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

static const gg_build_params params = {
	.graph_degree = DEGREE, .intermediate_graph_degree = 2 * DEGREE, .seed = 1
};
static const gg_control two_threads = {.threads = 2};

/* n rows, free(); as halves where `element` says so */
static void *
draw(const lengths *of, gg_element element, uint32_t n, bool stretched, uint64_t seed)
{
	harness_random random = {seed};
	void	   *rows = malloc((size_t) n * of->dim * gg_element_size(element));

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t d = 0; d < of->dim; d++)
		{
			const bool	is_long = stretched && of->one_in > 0 && i % of->one_in == 7;
			const float x = (float) harness_normal(&random) * (is_long ? of->by : 1);
			const size_t at = (size_t) i * of->dim + d;

			if (element == GG_ELEMENT_F16)
				((uint16_t *) rows)[at] = gg_float_to_half(x);
			else
				((float *) rows)[at] = x;
		}
	return rows;
}

static double
recall(const gg_dataset *data, const gg_graph *graph, const float *queries, uint32_t nq)
{
	const gg_search_params search = {.k = K, .itopk_size = ITOPK};
	uint64_t   *keys = malloc(sizeof(uint64_t) * nq * K);
	uint64_t   *exact = malloc(sizeof(uint64_t) * nq * K);
	uint64_t	hits = 0;
	gg_index   *index;

	CHECK_OK(gg_cpu_engine.index_open(data, graph, &two_threads, &index), "open");
	CHECK_OK(gg_cpu_engine.index_search(index, &search, queries, nq, &two_threads, keys),
			 "search");
	CHECK_OK(gg_cpu_engine.index_exact(index, K, NULL, queries, nq, &two_threads, exact),
			 "exact search");
	for (uint32_t q = 0; q < nq; q++)
		for (uint32_t i = 0; i < K; i++)
			hits += keys[q * K + i] <= exact[q * K + K - 1];
	gg_cpu_engine.index_close(index);
	free(keys);
	free(exact);
	return (double) hits / (nq * K);
}

/* The last quarter of the rows into the graph of the others. */
static void
merge(const gg_dataset *data, gg_graph *graph)
{
	const uint32_t first = data->n / 4 * 3;
	gg_dataset	some = *data;
	uint8_t    *parts = malloc(data->n);
	uint32_t   *lists = malloc(sizeof(uint32_t) * data->n * DEGREE);
	gg_merge_input input = {parts, lists, DEGREE, GG_MERGE_AUTO};

	memset(parts, 0, data->n);
	memset(parts, 1, first);
	memset(lists, 0xFF, sizeof(uint32_t) * data->n * DEGREE);
	some.n = first;
	CHECK_OK(gg_cpu_engine.build(&some, &params, &two_threads, graph, NULL), "build");
	memcpy(lists, graph->adjacency, sizeof(uint32_t) * first * DEGREE);
	gg_graph_free(graph);
	CHECK_OK(gg_cpu_engine.merge(data, &input, &params, &two_threads, graph, NULL), "merge");
	free(parts);
	free(lists);
}

static void
test_case(const lengths *of)
{
	const uint32_t n = harness_size(8000, 8);
	const uint32_t nq = harness_size(300, 10);
	void	   *rows = draw(of, of->element, n, true, 11);
	float	   *queries = draw(of, GG_ELEMENT_F32, nq, false, 12);
	gg_dataset	data = {rows, n, of->dim, of->element, GG_METRIC_IP};
	gg_graph	graph;
	double		found;

	CHECK_OK(gg_cpu_engine.build(&data, &params, &two_threads, &graph, NULL), of->what);
	harness_graph_check(&graph, n, DEGREE, true, of->what);
	found = recall(&data, &graph, queries, nq);
	CHECK(found >= of->built, "%s: recall %.4f", of->what, found);
	gg_graph_free(&graph);
	merge(&data, &graph);
	harness_graph_check(&graph, n, DEGREE, true, of->what);
	found = recall(&data, &graph, queries, nq);
	CHECK(found >= of->merged, "%s: recall after a merge %.4f", of->what, found);
	gg_graph_free(&graph);
	free(rows);
	free(queries);
}

static void
test_lengths(void)
{
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
		if (c % 2 == 0 || !harness_fewer())
			test_case(&cases[c]);
}

int
main(void)
{
	harness_run("lengths", test_lengths);
	return harness_finish();
}
