/*
 * measure_turns.c
 *		The CPU engine alone, which builds an index in memory and then searches it when it is told.
 *
 *	measure_turns BASE QUERIES DIM METRIC CODES THREADS [GRAPH]
 *
 * BASE and QUERIES are row-major float32, METRIC is l2, ip or cosine, CODES none, int8 or int4.
 * THREADS build; one searches.  The graph is that of the file GRAPH, which is made where it is not
 * there.  When the index is there the program prints "built", the seconds that it took and the
 * threads' processor seconds.  Then it reads lines
 *
 *	ITOPK SECONDS FILE
 *
 * asks all queries, again and again until so many seconds of the processor are gone, writes the
 * ten nodes of each query to FILE (int32), and prints "asked", queries per second of the
 * processor, and distances of a query.  test/bench/libraries asks it and others by turns.
 */
#include <malloc.h>

#include "measure_tools.h"

#define K 10

/* How each part of a graph is read or written: fread() or fwrite(). */
typedef size_t (*transfer) (void *part, size_t size, size_t count, FILE *file);

static size_t
write_part(void *part, size_t size, size_t count, FILE *file)
{
	return fwrite(part, size, count, file);
}

static bool
move_graph(FILE *file, transfer move, gg_graph *graph)
{
	const size_t width = sizeof(uint32_t);

	return move(graph->adjacency, width * graph->degree, graph->n, file) == graph->n &&
		move(graph->pivots, width, graph->npivots, file) == graph->npivots &&
		move(graph->pivot_adjacency, width * GG_PIVOT_DEGREE, graph->npivots,
			 file) == graph->npivots;
}

static bool
read_graph(const char *path, gg_graph *graph)
{
	FILE	   *file = path == NULL ? NULL : fopen(path, "rb");
	bool		whole;

	if (file == NULL || fread(&graph->n, sizeof(uint32_t), 1, file) != 1 ||
		fread(&graph->degree, sizeof(uint32_t), 1, file) != 1 ||
		fread(&graph->npivots, sizeof(uint32_t), 1, file) != 1)
		return false;
	graph->adjacency = malloc((size_t) graph->n * graph->degree * sizeof(uint32_t));
	graph->pivots = malloc(graph->npivots * sizeof(uint32_t));
	graph->pivot_adjacency = malloc((size_t) graph->npivots * GG_PIVOT_DEGREE * sizeof(uint32_t));
	whole = move_graph(file, fread, graph);
	fclose(file);
	return whole;
}

static void
write_graph(const char *path, gg_graph *graph)
{
	FILE	   *file = fopen(path, "wb");

	if (file == NULL || fwrite(&graph->n, sizeof(uint32_t), 1, file) != 1 ||
		fwrite(&graph->degree, sizeof(uint32_t), 1, file) != 1 ||
		fwrite(&graph->npivots, sizeof(uint32_t), 1, file) != 1 ||
		!move_graph(file, write_part, graph) || fclose(file) != 0)
	{
		perror(path);
		exit(1);
	}
}

static gg_index *
build_index(const gg_dataset *data, gg_codes codes, int threads, const char *path)
{
	const gg_build_params params = {.graph_degree = 32,.intermediate_graph_degree = 64,.seed = 1};
	const gg_control control = {.threads = threads};
	const double began = harness_now();
	const double began_cpu = harness_processor_seconds();
	gg_build_stats stats = {0};
	gg_graph	graph;
	gg_index   *index;

	if (!read_graph(path, &graph))
	{
		need_ok(gg_cpu_engine.build(data, &params, &control, &graph, &stats));
		if (path != NULL)
			write_graph(path, &graph);
	}
	index = copied_index(data, &graph, codes);
	gg_graph_free(&graph);
	printf("built %.2f %.2f\n", harness_now() - began, harness_processor_seconds() - began_cpu);
	return index;
}

typedef struct question
{
	gg_search_params params;
	double		seconds;
	char		file[4096];
} question;

static void
answer(gg_index *index, const question *asked, const float *queries, uint32_t nq)
{
	const gg_control one = {.threads = 1};
	const uint32_t dim = index->data.dim;
	uint32_t   *nodes = malloc((size_t) nq * K * sizeof(uint32_t));
	float	   *distances = malloc((size_t) nq * K * sizeof(float));
	uint64_t	measured = 0;
	uint64_t	count = 0;
	double		began = harness_processor_seconds();
	double		took;
	FILE	   *file;

	do
	{
		need_ok(harness_search(&gg_cpu_engine, index, &asked->params, queries, nq, &one, nodes,
							   distances));
		count += nq;
		took = harness_processor_seconds() - began;
	} while (took < asked->seconds);
	file = fopen(asked->file, "wb");
	if (file == NULL || fwrite(nodes, K * sizeof(uint32_t), nq, file) != nq || fclose(file) != 0)
	{
		perror(asked->file);
		exit(1);
	}
	for (uint32_t q = 0; q < nq; q++)
	{
		need_ok(harness_search(&gg_cpu_engine, index, &asked->params, queries + (size_t) q * dim,
							   1, &one, nodes, distances));
		measured += gg_walk_distances(index->states[0].walk);
	}
	printf("asked %.2f %.1f\n", (double) count / took, (double) measured / nq);
	free(nodes);
	free(distances);
}

int
main(int argc, char **argv)
{
	gg_dataset	data;
	gg_index   *index;
	gg_codes	codes = GG_CODES_NONE;
	question	asked = {.params.k = K};
	float	   *queries;
	size_t		count;

	if (argc < 7 || argc > 8)
	{
		fprintf(stderr, "usage: see the head of measure_turns.c\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (strcmp(argv[5], "none") != 0)
		codes = strcmp(argv[5], "int8") == 0 ? GG_CODES_INT8 : GG_CODES_INT4;
	data = read_rows(argv[1], argv[3], argv[4]);
	queries = read_floats(argv[2], &count);
	index = build_index(&data, codes, atoi(argv[6]), argc > 7 ? argv[7] : NULL);
	/* the index has its own */
	free((void *) data.rows);
	malloc_trim(0);
	while (scanf("%u %lf %4095s", &asked.params.itopk_size, &asked.seconds, asked.file) == 3)
		answer(index, &asked, queries, (uint32_t) (count / data.dim));
	gg_cpu_engine.index_close(index);
	free(queries);
	return 0;
}
