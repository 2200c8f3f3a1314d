/*
 * measure_merge.c
 *		Graphs merged as graphs beside one built anew: seconds and recall, on made data.
 *
 *	measure_merge [-a ALGORITHM] N DIM LATENT CLUSTERS METRIC PARTS REPEATS [VARIANT ...]
 *
 * ALGORITHM and its parameters: algorithm_option.h.  PARTS is the percentages of the rows that the
 * parts have, as 50,50 or 90,10; what is missing to 100 is in no part.  Each part is built alone
 * first.  VARIANT, by default all of them:
 *
 *	rebuild		one graph of all rows
 *	search		merged by searches of the largest part's graph, with the edges of the parts' graphs
 *	holes		merged as the engine chooses, but a tenth of the edges is missing, as where nodes
 *				died
 *	chain		the first two parts are merged as the engine chooses, the result and the third, and
 *				so on; seconds are those of the last merge
 *
 * Seconds are processor time of one thread, the least of the repeats, which take turns.
 * Not a test: it asserts nothing.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithm_option.h"
#include "harness.h"
#include "measure.h"

#define K 10
#define QUERIES 1000
#define DEGREE 32
#define INTERMEDIATE 64
#define MOST_PARTS 16

enum variant
{
	REBUILD, SEARCH, HOLES, CHAIN, VARIANTS
};

static const char *const variant_names[VARIANTS] = {
	"rebuild", "search", "holes", "chain"
};

typedef struct measured
{
	double		seconds;
	gg_build_stats stats;
	double		recall[3];
} measured;

/* of all builds and merges, but for the seed and where to start from */
static gg_build_params common = {.graph_degree = DEGREE,.intermediate_graph_degree = INTERMEDIATE};

static gg_dataset data;
static float *queries;
static float *truth_distances;
static uint8_t *parts;
static uint32_t *edges;			/* n x DEGREE */

static gg_dataset
rows_of(uint32_t first, uint32_t end)
{
	gg_dataset	some = data;

	some.rows = (const char *) data.rows + (size_t) first * data.dim *
		gg_element_size(data.element);
	some.n = end - first;
	return some;
}

/* Build the rows [first, end) alone, and keep edges of them. */
static double
build_part(uint32_t first, uint32_t end, uint8_t part)
{
	gg_dataset	some = rows_of(first, end);
	gg_build_params params = common;
	gg_graph	graph;
	double		seconds = cpu_seconds();

	params.seed = part;
	need_ok(gg_cpu_engine.build(&some, &params, NULL, &graph, NULL));
	seconds = cpu_seconds() - seconds;
	memcpy(edges + (size_t) first * DEGREE, graph.adjacency,
		   sizeof(uint32_t) * some.n * DEGREE);
	for (size_t i = (size_t) first * DEGREE; i < (size_t) end * DEGREE; i++)
		edges[i] += edges[i] == GG_NO_NODE ? 0 : first;
	memset(parts + first, part, some.n);
	gg_graph_free(&graph);
	return seconds;
}

static void
search(const gg_graph *graph, measured *m)
{
	static const uint32_t widths[3] = {16, 32, 64};
	gg_index   *index;
	uint32_t   *nodes = malloc(sizeof(uint32_t) * QUERIES * K);
	float	   *distances = malloc(sizeof(float) * QUERIES * K);

	need_ok(gg_cpu_engine.index_open(&data, graph, NULL, &index));
	for (int w = 0; w < 3; w++)
	{
		gg_search_params params = {.k = K,.itopk_size = widths[w]};
		double		hits = 0;

		need_ok(harness_search(&gg_cpu_engine, index, &params, queries, QUERIES, NULL, nodes,
							   distances));
		for (uint32_t i = 0; i < QUERIES * K; i++)
			hits += distances[i] <= truth_distances[i / K * K + K - 1];
		m->recall[w] = hits / (QUERIES * K);
	}
	gg_cpu_engine.index_close(index);
	free(nodes);
	free(distances);
}

static void
run(enum variant variant, bool first, measured *m)
{
	gg_build_params params = common;
	gg_merge_input input = {parts, edges, DEGREE, GG_MERGE_AUTO};
	gg_build_stats stats;
	gg_graph	graph;
	double		seconds;

	params.seed = 7;
	if (variant == SEARCH)
		input.way = GG_MERGE_SEARCH;
	if (variant == HOLES)
	{
		uint32_t   *fewer = malloc(sizeof(uint32_t) * data.n * DEGREE);

		for (size_t i = 0; i < (size_t) data.n * DEGREE; i++)
			fewer[i] = (uint32_t) (i * 2654435761u) % 10 == 0 ? GG_NO_NODE : edges[i];
		input.lists = fewer;
	}
	seconds = cpu_seconds();
	need_ok(variant == REBUILD ? gg_cpu_engine.build(&data, &params, NULL, &graph, &stats) :
			gg_cpu_engine.merge(&data, &input, &params, NULL, &graph, &stats));
	seconds = cpu_seconds() - seconds;
	if (first || seconds < m->seconds)
	{
		m->seconds = seconds;
		m->stats = stats;
	}
	if (first)
		search(&graph, m);
	if (variant == HOLES)
		free((void *) input.lists);
	gg_graph_free(&graph);
}

/* The first parts become one, part by part; all but the last, which is part 2 afterwards. */
static void
merge_chain(void)
{
	uint32_t	end = 0;

	for (uint8_t part = 1;; part++)
	{
		uint32_t	first = end;
		gg_dataset	some;
		gg_build_params params = common;
		gg_merge_input input = {parts, edges, DEGREE, GG_MERGE_AUTO};
		gg_graph	graph;

		params.seed = part;
		while (end < data.n && parts[end] == part)
			end++;
		memset(parts + first, part == 1 ? 1 : 2, end - first);
		if (end == data.n)
			return;
		if (part == 1)
			continue;
		some = rows_of(0, end);
		need_ok(gg_cpu_engine.merge(&some, &input, &params, NULL, &graph, NULL));
		memcpy(edges, graph.adjacency, sizeof(uint32_t) * end * DEGREE);
		memset(parts, 1, end);
		gg_graph_free(&graph);
	}
}

static void
read_parts(char *text)
{
	uint32_t	first = 0;
	uint8_t		part = 1;

	for (char *word = strtok(text, ","); word != NULL; word = strtok(NULL, ","))
	{
		uint32_t	end = first + (uint32_t) ((uint64_t) data.n * (uint32_t) atoi(word) / 100);

		printf("part %u: rows %u .. %u, built in %.2f s\n", part, first, end - 1,
			   build_part(first, end, part));
		part++;
		first = end;
	}
}

int
main(int argc, char **argv)
{
	measured	results[VARIANTS] = {0};
	bool		wanted[VARIANTS] = {0};
	uint32_t   *nodes = malloc(sizeof(uint32_t) * QUERIES * K);
	gg_index   *index;

	if (argc > 2 && strcmp(argv[1], "-a") == 0)
	{
		parse_algorithm(argv[2], &common);
		argc -= 2;
		argv += 2;
	}
	if (argc < 8)
	{
		fprintf(stderr, "usage: see the head of measure_merge.c\n");
		return 2;
	}
	harness_data(&(harness_spec) {.shape = SHAPE_MANIFOLD,.n = (uint32_t) atoi(argv[1]),
		.dim = (uint32_t) atoi(argv[2]),.latent = (uint32_t) atoi(argv[3]),
		.clusters = (uint32_t) atoi(argv[4]),.metric = parse_metric(argv[5]),
	.element = GG_ELEMENT_F32,.seed = 1}, &data, &queries, QUERIES);
	truth_distances = malloc(sizeof(float) * QUERIES * K);
	need_ok(gg_cpu_engine.index_open(&data, NULL, NULL, &index));
	need_ok(harness_exact(&gg_cpu_engine, index, K, NULL, queries, QUERIES, NULL, nodes,
						  truth_distances));
	gg_cpu_engine.index_close(index);
	parts = calloc(data.n, 1);
	edges = malloc(sizeof(uint32_t) * data.n * DEGREE);
	memset(edges, 0xFF, sizeof(uint32_t) * data.n * DEGREE);
	for (int v = 0; v < VARIANTS; v++)
	{
		wanted[v] = argc == 8;
		for (int i = 8; i < argc; i++)
			wanted[v] |= strcmp(argv[i], variant_names[v]) == 0;
	}
	read_parts(argv[6]);
	for (int repeat = 0; repeat < atoi(argv[7]); repeat++)
		for (int v = 0; v < CHAIN; v++)
			if (wanted[v])
				run((enum variant) v, repeat == 0, &results[v]);
	if (wanted[CHAIN])
	{
		merge_chain();
		for (int repeat = 0; repeat < atoi(argv[7]); repeat++)
			run(CHAIN, repeat == 0, &results[CHAIN]);
	}
	printf("%-10s %7s %6s %4s %7s %8s %7s   recall@10 at itopk 16, 32, 64\n", "", "seconds",
		   "init", "its", "descent", "optimize", "connect");
	for (int v = 0; v < VARIANTS; v++)
		if (wanted[v])
			printf("%-10s %7.2f %6.2f %4u %7.2f %8.2f %7.2f   %.4f %.4f %.4f\n", variant_names[v],
				   results[v].seconds, results[v].stats.init_s, results[v].stats.iterations,
				   results[v].stats.descent_s, results[v].stats.optimize_s,
				   results[v].stats.connect_s, results[v].recall[0], results[v].recall[1],
				   results[v].recall[2]);
	free(nodes);
	free(truth_distances);
	free(parts);
	free(edges);
	harness_free(&data, queries);
	return 0;
}
