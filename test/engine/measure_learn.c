/*
 * measure_learn.c
 *		Recall and distances of searches before and after edges were learned
 *		(src/engine/rules/learn.h).
 *
 *	measure_learn N|DIR DIM METRIC THREADS [EDGES [ITOPK [SAMPLE ...]]]
 *
 * Rows and queries are those of foreign.h: queries with the gaps 0.3 and 0.5, and those of clusters
 * without rows.  Samples are drawn from three quarters of the clusters that the queries have.
 * Other queries are of the same clusters (held out), of the last quarter (unseen), or like the rows
 * (own).  DIR is a set of test/bench/pairs, whose rows and questions are taken instead.  METRIC is
 * ip or cosine.  Not a test: it asserts nothing.  To build it, from the top:
 *
 *	make -C test/engine all NAMES=measure_learn
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/engine/cpu/serve/index.h"
#include "../../src/engine/rules/learn.h"
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
	uint32_t	count;
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
ask(float *queries, uint32_t count)
{
	question	asked = {count, queries, malloc(sizeof(float) * count)};
	uint32_t   *nodes = malloc(sizeof(uint32_t) * count * K);
	float	   *distances = malloc(sizeof(float) * count * K);

	exact(queries, count, K, nodes, distances);
	for (uint32_t q = 0; q < count; q++)
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
	uint32_t   *nodes = malloc(sizeof(uint32_t) * asked->count * K);
	float	   *distances = malloc(sizeof(float) * asked->count * K);
	float	   *prepared = malloc(sizeof(float) * data.dim);
	uint64_t	hits = 0,
				measured = 0;
	gg_index   *index;
	gg_walk    *walk;

	need_ok(gg_cpu_engine.index_open(&data, graph, &control, &index));
	need_ok(harness_search(&gg_cpu_engine, index, &params, asked->queries, asked->count,
						   &control, nodes, distances));
	need_ok(gg_walk_create(&walk));
	for (uint32_t q = 0; q < asked->count; q++)
	{
		gg_memory_source memory = {index, prepared, NULL};
		gg_source	source = gg_cpu_source(&memory);

		for (uint32_t i = 0; i < K; i++)
			hits += distances[q * K + i] <= asked->limits[q];
		gg_cpu_load_query(index, asked->queries + (size_t) q * data.dim, prepared);
		need_ok(gg_walk_search(walk, &source, &params, INFINITY));
		measured += gg_walk_distances(walk);
	}
	printf("  %.4f %6.0f", (double) hits / asked->count / K,
		   (double) measured / asked->count);
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
measure(const gg_graph *graph, question asked[3], float *sample, uint32_t edges,
		const uint32_t *samples, int nsamples)
{
	gg_graph	learned = *graph;

	line("as built", graph, asked);
	printf("\n");
	learned.adjacency = malloc(sizeof(uint32_t) * graph->n * (size_t) graph->degree);
	for (int s = 0; s < nsamples; s++)
	{
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

		exact(sample, samples[s], GG_LEARN_LIST, nodes, distances);
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
		free(nodes);
		free(distances);
	}
	free(learned.adjacency);
	free(sample);
	for (int i = 0; i < 3; i++)
	{
		free(asked[i].queries);
		free(asked[i].limits);
	}
}

static void
measure_drawn(const gg_graph *graph, const foreign *made, uint32_t edges,
			  const uint32_t *samples, int nsamples)
{
	static const foreign_kind kinds[] = {
		{0, FOREIGN_CLUSTERS / 2, 0.3f},
		{0, FOREIGN_CLUSTERS / 2, 0.5f},
		{FOREIGN_CLUSTERS / 2, FOREIGN_CLUSTERS, 0},
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
	{
		const foreign_kind *kind = &kinds[i];
		const uint32_t part = (kind->end - kind->first) * 3 / 4;
		const foreign_kind seen = {kind->first, kind->first + part, kind->gap};
		const foreign_kind unseen = {kind->first + part, kind->end, kind->gap};
		question	asked[3] = {
			ask(foreign_draw(made, seen, QUERIES, 11), QUERIES),
			ask(foreign_draw(made, unseen, QUERIES, 12), QUERIES),
			ask(foreign_draw(made, foreign_rows, QUERIES, 13), QUERIES)
		};

		printf("gap %.1f, clusters %s rows\n", kind->gap,
			   kind->first == foreign_rows.first ? "of the" : "without");
		measure(graph, asked, foreign_draw(made, seen, samples[nsamples - 1], 14), edges, samples,
				nsamples);
	}
}

/* All vectors of DIR/NAME; free() */
static float *
read_vectors(const char *dir, const char *name, uint32_t *count)
{
	const size_t row_bytes = sizeof(float) * data.dim;
	char		path[1024];
	FILE	   *file;
	float	   *vectors;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "rb");
	if (file == NULL || fseek(file, 0, SEEK_END) != 0)
	{
		perror(path);
		exit(1);
	}
	*count = (uint32_t) (ftell(file) / (long) row_bytes);
	rewind(file);
	vectors = malloc(*count * row_bytes);
	if (fread(vectors, row_bytes, *count, file) != *count)
	{
		perror(path);
		exit(1);
	}
	fclose(file);
	return vectors;
}

static question
ask_set(const char *dir, const char *name)
{
	uint32_t	count;
	float	   *queries = read_vectors(dir, name, &count);

	return ask(queries, count);
}

/* Samples grow.  The first that asks for all of the set's, or more, is the last. */
static void
measure_set(const gg_graph *graph, const char *dir, uint32_t edges, uint32_t *samples,
			int nsamples)
{
	uint32_t	most;
	float	   *sample = read_vectors(dir, "sample.f32", &most);
	question	asked[3] = {
		ask_set(dir, "query.f32"), ask_set(dir, "unseen/query.f32"), ask_set(dir, "own/query.f32")
	};

	for (int s = 0; s < nsamples; s++)
	{
		if (samples[s] > most)
			samples[s] = most;
		if (samples[s] == most)
			nsamples = s + 1;
	}
	measure(graph, asked, sample, edges, samples, nsamples);
}

int
main(int argc, char **argv)
{
	gg_build_params params = {
		.graph_degree = DEGREE,.intermediate_graph_degree = 2 * DEGREE,.seed = 1
	};
	uint32_t	samples[8] = {2000, 10000};
	int			nsamples = 2;
	uint32_t	edges = 8;
	foreign    *made = NULL;
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
	/* each has the one before */
	for (nsamples = argc > 7 ? 0 : 2; 7 + nsamples < argc; nsamples++)
		samples[nsamples] = (uint32_t) atoi(argv[7 + nsamples]);

	if (data.n > 0)
	{
		made = foreign_create(data.dim, 1);
		rows = foreign_draw(made, foreign_rows, data.n, 10);
	}
	else
		rows = read_vectors(argv[1], "base.f32", &data.n);
	data.rows = rows;
	for (uint32_t i = 0; i < data.n; i++)
		gg_query_prepare(data.metric, rows + (size_t) i * data.dim, data.dim);
	began = harness_now();
	need_ok(gg_cpu_engine.build(&data, &params, &control, &graph, NULL));
	printf("%u x %u, %s, degree %u, %u edges learned, itopk %u; built in %.1f s\n"
		   "%-22s  %s\n", data.n, data.dim, argv[3], DEGREE, edges, itopk, harness_now() - began,
		   "recall@10, distances", "held out       unseen         own");
	fflush(stdout);
	if (made != NULL)
	{
		measure_drawn(&graph, made, edges, samples, nsamples);
		foreign_free(made);
	}
	else
		measure_set(&graph, argv[1], edges, samples, nsamples);
	gg_graph_free(&graph);
	free(rows);
	return 0;
}
