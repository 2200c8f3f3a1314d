/*
 * measure_learn.c
 *		Recall and distances of searches before and after edges were learned (src/rules/learn.h).
 *
 *	measure_learn N DIM METRIC THREADS [EDGES [ITOPK [SAMPLE ...]]]
 *
 * Rows and queries are those of foreign.h: queries with the gaps 0.3 and 0.5, and those of clusters
 * without rows.  Samples are drawn from three quarters of the clusters that the queries have.
 * Other queries are of the same clusters (held out), of the last quarter (unseen), or like the rows
 * (own).  METRIC is ip or cosine.  Not a test: it asserts nothing.  To build it, from the top:
 *
 *	make -C test/engine all NAMES=measure_learn
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/cpu/index.h"
#include "../../src/rules/learn.h"
#include "foreign.h"
#include "measure.h"

#define K			10
#define QUERIES		500
#define DEGREE		32

static gg_control control = {.threads = 1};
static gg_dataset data;
static uint32_t itopk = 64;

/* Queries with the distance of the K-th of their exact answers. */
typedef struct question
{
	float	   *queries;
	float	   *limits;
} question;

static void
exact(const float *queries, uint32_t nq, uint32_t k, uint32_t *nodes, float *distances)
{
	gg_index   *index;

	need_ok(gg_cpu_engine.index_open(&data, NULL, &control, &index));
	need_ok(harness_exact(&gg_cpu_engine, index, k, NULL, queries, nq, &control, nodes,
						  distances));
	gg_cpu_engine.index_close(index);
}

static question
ask(const foreign *made, foreign_kind kind, uint64_t seed)
{
	question	asked = {foreign_draw(made, kind, QUERIES, seed), malloc(sizeof(float) * QUERIES)};
	uint32_t   *nodes = malloc(sizeof(uint32_t) * QUERIES * K);
	float	   *distances = malloc(sizeof(float) * QUERIES * K);

	exact(asked.queries, QUERIES, K, nodes, distances);
	for (uint32_t q = 0; q < QUERIES; q++)
		asked.limits[q] = distances[q * K + K - 1];
	free(nodes);
	free(distances);
	return asked;
}

/* Print recall and distances. */
static void
answer(const gg_graph *graph, const question *asked)
{
	gg_search_params params = {.k = K,.itopk_size = itopk};
	uint32_t   *nodes = malloc(sizeof(uint32_t) * QUERIES * K);
	float	   *distances = malloc(sizeof(float) * QUERIES * K);
	float	   *prepared = malloc(sizeof(float) * data.dim);
	uint64_t	hits = 0,
				measured = 0;
	gg_index   *index;
	gg_walk    *walk;

	need_ok(gg_cpu_engine.index_open(&data, graph, &control, &index));
	need_ok(harness_search(&gg_cpu_engine, index, &params, asked->queries, QUERIES, &control,
						   nodes, distances));
	need_ok(gg_walk_create(&walk));
	for (uint32_t q = 0; q < QUERIES; q++)
	{
		gg_memory_source memory = {index, prepared, NULL};
		gg_source	source = gg_cpu_source(&memory);

		for (uint32_t i = 0; i < K; i++)
			hits += distances[q * K + i] <= asked->limits[q];
		gg_cpu_load_query(index, asked->queries + (size_t) q * data.dim, prepared);
		need_ok(gg_walk_search(walk, &source, &params, INFINITY));
		measured += gg_walk_distances(walk);
	}
	printf("  %.4f %6.0f", (double) hits / QUERIES / K, (double) measured / QUERIES);
	gg_walk_free(walk);
	gg_cpu_engine.index_close(index);
	free(nodes);
	free(distances);
	free(prepared);
}

static void
line(const char *name, const gg_graph *graph, const question *asked)
{
	printf("%-22s", name);
	for (int i = 0; i < 3; i++)
		answer(graph, &asked[i]);
}

/* One distribution of queries: a line for the graph as built, and one for each sample. */
static void
measure(const foreign *made, foreign_kind kind, const gg_graph *graph, uint32_t edges,
		const uint32_t *samples, int nsamples)
{
	const uint32_t part = (kind.end - kind.first) * 3 / 4;
	const foreign_kind seen = {kind.first, kind.first + part, kind.gap};
	const foreign_kind unseen = {kind.first + part, kind.end, kind.gap};
	question	asked[3] = {
		ask(made, seen, 11), ask(made, unseen, 12), ask(made, foreign_rows, 13)
	};
	gg_graph	learned = *graph;

	printf("gap %.1f, clusters %s rows\n", kind.gap,
		   kind.first == foreign_rows.first ? "of the" : "without");
	line("as built", graph, asked);
	printf("\n");
	learned.adjacency = malloc(sizeof(uint32_t) * graph->n * (size_t) graph->degree);
	for (int s = 0; s < nsamples; s++)
	{
		float	   *queries = foreign_draw(made, seen, samples[s], 14);
		uint32_t   *nodes = malloc(sizeof(uint32_t) * samples[s] * GG_LEARN_LIST);
		float	   *distances = malloc(sizeof(float) * samples[s] * GG_LEARN_LIST);
		gg_learn_input input = {
			.n = graph->n,.degree = graph->degree,.pivots = graph->pivots,
			.npivots = graph->npivots,.answers = nodes,.count = samples[s],
			.length = GG_LEARN_LIST,.edges = edges,.seed = 1
		};
		gg_learn_stats stats;
		char		name[40];
		double		began = harness_now();
		double		answered;

		exact(queries, samples[s], GG_LEARN_LIST, nodes, distances);
		answered = harness_now();
		memcpy(learned.adjacency, graph->adjacency,
			   sizeof(uint32_t) * graph->n * (size_t) graph->degree);
		need_ok(gg_learn(&input, &control, learned.adjacency, &stats));
		snprintf(name, sizeof(name), "%u queries", samples[s]);
		line(name, &learned, asked);
		printf("  %.2f edges per node, %u links, exact %.1f s, learn %.1f s\n",
			   (double) stats.edges / graph->n, stats.links, answered - began,
			   harness_now() - answered);
		fflush(stdout);
		free(queries);
		free(nodes);
		free(distances);
	}
	free(learned.adjacency);
	for (int i = 0; i < 3; i++)
	{
		free(asked[i].queries);
		free(asked[i].limits);
	}
}

int
main(int argc, char **argv)
{
	const foreign_kind kinds[] = {
		{0, FOREIGN_CLUSTERS / 2, 0.3f},
		{0, FOREIGN_CLUSTERS / 2, 0.5f},
		{FOREIGN_CLUSTERS / 2, FOREIGN_CLUSTERS, 0},
	};
	gg_build_params params = {
		.graph_degree = DEGREE,.intermediate_graph_degree = 2 * DEGREE,.seed = 1
	};
	uint32_t	samples[8] = {2000, 10000};
	int			nsamples = 2;
	uint32_t	edges = 8;
	foreign    *made;
	float	   *rows;
	gg_graph	graph;
	double		began;

	if (argc < 5 || argc > 7 + 8)
	{
		fprintf(stderr, "usage: see the head of measure_learn.c\n");
		return 2;
	}
	data.n = (uint32_t) atoi(argv[1]);
	data.dim = (uint32_t) atoi(argv[2]);
	data.metric = strcmp(argv[3], "ip") == 0 ? GG_METRIC_IP : GG_METRIC_COSINE;
	data.element = GG_ELEMENT_F32;
	control.threads = atoi(argv[4]);
	if (argc > 5)
		edges = (uint32_t) atoi(argv[5]);
	if (argc > 6)
		itopk = (uint32_t) atoi(argv[6]);
	for (nsamples = argc > 7 ? 0 : 2; 7 + nsamples < argc; nsamples++)
		samples[nsamples] = (uint32_t) atoi(argv[7 + nsamples]);

	made = foreign_create(data.dim, 1);
	data.rows = rows = foreign_draw(made, foreign_rows, data.n, 10);
	for (uint32_t i = 0; i < data.n; i++)
		gg_query_prepare(data.metric, rows + (size_t) i * data.dim, data.dim);
	began = harness_now();
	need_ok(gg_cpu_engine.build(&data, &params, &control, &graph, NULL));
	printf("%u x %u, %s, degree %u, %u edges learned, itopk %u; built in %.1f s\n"
		   "%-22s  %s\n", data.n, data.dim, argv[3], DEGREE, edges, itopk, harness_now() - began,
		   "recall@10, distances", "held out       unseen         own");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		measure(made, kinds[i], &graph, edges, samples, nsamples);
	gg_graph_free(&graph);
	free(rows);
	foreign_free(made);
	return 0;
}
