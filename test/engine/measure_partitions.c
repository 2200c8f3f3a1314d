/*
 * measure_partitions.c
 *		What to do with rows that memory does not hold: one graph over overlapping groups, or
 *		several segments?
 *
 *	measure_partitions N DIM LATENT CLUSTERS [QUERIES]
 *
 * Builds one graph in memory; k segments of consecutive rows, each searched and the answers merged;
 * and one graph by groups (src/engine/cpu/build/groups.c) in the memory of one of k segments.
 * Prints the time of each build, what it holds in memory, and recall@10 and time of searches at
 * several widths.  One thread; processor time, because the machine may have other things to do. 
 * Not a test: it asserts nothing.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "measure.h"

#define K				10
#define MOST_PARTS		64

static const uint32_t widths[] = {10, 16, 24, 32, 48, 64, 128};

#define WIDTHS			(sizeof(widths) / sizeof(widths[0]))

static const gg_control one = {.threads = 1};
static const gg_build_params params = {
	.algorithm = GG_ALGORITHM_CAGRA, .graph_degree = 32, .intermediate_graph_degree = 64, .seed = 1
};

static void *
need_memory(size_t bytes)
{
	void	   *memory = malloc(bytes + 1);

	if (memory == NULL)
	{
		fprintf(stderr, "out of memory\n");
		exit(1);
	}
	return memory;
}

static const float *
row_of(const gg_dataset *data, uint32_t row)
{
	return (const float *) data->rows + (size_t) row * data->dim;
}

static gg_dataset
part_of(const gg_dataset *data, uint32_t first, uint32_t n)
{
	gg_dataset	part = *data;

	part.rows = row_of(data, first);
	part.n = n;
	return part;
}

/* MB at the peak of a build of n of these rows, the rows included. */
static double
build_megabytes(const gg_dataset *data, uint32_t n)
{
	gg_dataset	part = part_of(data, 0, n);
	gg_bytes	bytes;

	need_ok(gg_cpu_engine.build_bytes(&part, &params, &one, &bytes));
	return (double) (bytes.host + (uint64_t) n * data->dim * sizeof(float)) / (1024 * 1024);
}

/* ---- searches ---------------------------------------------------------------- */

typedef struct queries
{
	const float *rows;
	uint32_t	n;
	float	   *truth;			/* distance of the K-th */
} queries;

static int
compare_floats(const void *a, const void *b)
{
	float		x = *(const float *) a,
				y = *(const float *) b;

	return (x > y) - (x < y);
}

/* Graphs over consecutive rows, all searched at one width; the nearest K of all their answers. */
static void
measure(const gg_dataset *data, const gg_graph *graphs, uint32_t count, const queries *asked)
{
	gg_index   *indexes[MOST_PARTS];
	uint32_t   *nodes = need_memory((size_t) asked->n * K * sizeof(uint32_t));
	float	   *distances = need_memory((size_t) count * asked->n * K * sizeof(float));
	uint32_t	first = 0;

	for (uint32_t i = 0; i < count; i++)
	{
		gg_dataset	part = part_of(data, first, graphs[i].n);

		need_ok(gg_cpu_engine.index_open(&part, &graphs[i], &one, &indexes[i]));
		first += part.n;
	}
	for (size_t w = 0; w < WIDTHS; w++)
	{
		gg_search_params search = {.k = K, .itopk_size = widths[w]};
		double		best = INFINITY;
		uint64_t	hits = 0;

		for (int repeat = 0; repeat < 5; repeat++)
		{
			double		began = cpu_seconds();

			for (uint32_t i = 0; i < count; i++)
				need_ok(harness_search(&gg_cpu_engine, indexes[i], &search, asked->rows, asked->n,
									   &one, nodes, distances + (size_t) i * asked->n * K));
			best = fmin(best, cpu_seconds() - began);
		}
		for (uint32_t q = 0; q < asked->n; q++)
		{
			float		all[MOST_PARTS * K];

			for (uint32_t i = 0; i < count; i++)
				memcpy(all + i * K, distances + ((size_t) i * asked->n + q) * K,
					   K * sizeof(float));
			qsort(all, (size_t) count * K, sizeof(float), compare_floats);
			for (uint32_t i = 0; i < K; i++)
				hits += all[i] <= asked->truth[q];
		}
		printf("    itopk %3u  recall@10 %.4f  %8.1f us/query\n", widths[w],
			   (double) hits / asked->n / K, best / asked->n * 1e6);
	}
	fflush(stdout);
	for (uint32_t i = 0; i < count; i++)
		gg_cpu_engine.index_close(indexes[i]);
	free(nodes);
	free(distances);
}

/* ---- segments ------------------------------------------------------------------ */

static void
measure_segments(const gg_dataset *data, uint32_t count, const queries *asked)
{
	gg_graph	graphs[MOST_PARTS];
	uint32_t	size = (data->n + count - 1) / count;
	double		began = cpu_seconds();

	for (uint32_t i = 0, first = 0; i < count; i++, first += size)
	{
		gg_dataset	part = part_of(data, first, first + size < data->n ? size : data->n - first);

		need_ok(gg_cpu_engine.build(&part, &params, &one, &graphs[i], NULL));
	}
	printf("%u segment(s): built in %.2f s, %.0f MB\n", count, cpu_seconds() - began,
		   build_megabytes(data, size));
	measure(data, graphs, count, asked);
	for (uint32_t i = 0; i < count; i++)
		gg_graph_free(&graphs[i]);
}

/* ---- groups ---------------------------------------------------------------------- */

static void *scratches[2];
static int	nscratches;

static void *
take_scratch(void *ctx, uint64_t bytes)
{
	(void) ctx;
	return scratches[nscratches++] = need_memory(bytes);
}

/* One graph in as much memory as one of so many segments takes, its rows included. */
static void
measure_groups(const gg_dataset *data, uint32_t count, const queries *asked)
{
	gg_control	control = {.threads = 1, .scratch = take_scratch};
	gg_build_stats stats;
	gg_graph	graph;
	gg_bytes	bytes;
	double		began = cpu_seconds();

	control.memory = (uint64_t) (build_megabytes(data, (data->n + count - 1) / count) *
								 1024 * 1024);
	need_ok(gg_cpu_engine.build_bytes(data, &params, &control, &bytes));
	need_ok(gg_cpu_engine.build(data, &params, &control, &graph, &stats));
	printf("one graph by groups, memory of %u segments: built in %.2f s (lists %.2f), %.0f MB of "
		   "%.0f MB, %u repaired\n", count, cpu_seconds() - began, stats.init_s + stats.descent_s,
		   (double) bytes.host / (1024 * 1024), (double) control.memory / (1024 * 1024),
		   stats.repaired);
	measure(data, &graph, 1, asked);
	gg_graph_free(&graph);
	while (nscratches > 0)
		free(scratches[--nscratches]);
}

/* ---- all ------------------------------------------------------------------------ */

int
main(int argc, char **argv)
{
	static const uint32_t counts[] = {4, 8};
	harness_spec spec = {.shape = SHAPE_MANIFOLD, .metric = GG_METRIC_L2,
	.element = GG_ELEMENT_F32, .seed = 1};
	gg_dataset	data;
	float	   *rows;
	queries		asked = {.n = 1000};
	uint32_t   *truth;
	float	   *distances;
	gg_index   *index;

	if (argc < 5)
	{
		fprintf(stderr, "usage: see the head of measure_partitions.c\n");
		return 2;
	}
	spec.n = (uint32_t) atoi(argv[1]);
	spec.dim = (uint32_t) atoi(argv[2]);
	spec.latent = (uint32_t) atoi(argv[3]);
	spec.clusters = (uint32_t) atoi(argv[4]);
	if (argc > 5)
		asked.n = (uint32_t) atoi(argv[5]);
	harness_data(&spec, &data, &rows, asked.n);
	asked.rows = rows;
	truth = need_memory((size_t) asked.n * K * sizeof(uint32_t));
	distances = need_memory((size_t) asked.n * K * sizeof(float));
	need_ok(gg_cpu_engine.index_open(&data, NULL, &one, &index));
	need_ok(harness_exact(&gg_cpu_engine, index, K, NULL, rows, asked.n, &one, truth, distances));
	gg_cpu_engine.index_close(index);
	asked.truth = need_memory(asked.n * sizeof(float));
	for (uint32_t q = 0; q < asked.n; q++)
		asked.truth[q] = distances[(size_t) q * K + K - 1];

	measure_segments(&data, 1, &asked);
	for (int i = 0; i < 2; i++)
		measure_segments(&data, counts[i], &asked);
	for (int i = 0; i < 2; i++)
		measure_groups(&data, counts[i], &asked);
	free(truth);
	free(distances);
	free(asked.truth);
	harness_free(&data, rows);
	return 0;
}
