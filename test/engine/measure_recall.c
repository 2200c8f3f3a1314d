/*
 * measure_recall.c
 *		Recall, distances and time of searches at several widths, on files or made data.
 *
 *	measure_recall file BASE QUERIES DIM METRIC [DEGREE [INTERMEDIATE [THREADS [GRAPH ...]]]]
 *	measure_recall make N DIM LATENT CLUSTERS METRIC [DEGREE [INTERMEDIATE [THREADS [GRAPH ...]]]]
 *
 * BASE and QUERIES are row-major float32; METRIC is l2, ip, cosine or l1 (rows under cosine get
 * unit length here).  GRAPH is an algorithm and its parameters (algorithm_option.h), and behind it
 * maybe @SEARCH[,SEARCH ...]: auto, small[:WALKS], large[:DELTA], or by codes, int8 or
 * int4[:NODES MEASURED BY ROW]; then ns/dist has the time of these, too.
 * Not a test: it asserts nothing.  To build it, from the top:
 *
 *	make -C test/engine all NAMES=measure_recall
 */
#include "algorithm_option.h"
#include "measure_tools.h"

#define K 10
#define LID_K 100
#define MADE_QUERIES 1000

/* What a walk asks its source for, counted on the way. */
typedef struct counted
{
	gg_source	source;
	uint64_t	pivots;
	uint64_t	parents;
} counted;

static bool
counted_distances(void *ctx, const uint32_t *nodes, uint32_t count, float *out)
{
	counted    *c = ctx;

	return c->source.distances(c->source.ctx, nodes, count, out);
}

static bool
counted_neighbors(void *ctx, const uint32_t *nodes, uint32_t count, uint32_t *out)
{
	counted    *c = ctx;

	c->parents += count;
	return c->source.neighbors(c->source.ctx, nodes, count, out);
}

static bool
counted_pivots(void *ctx, const uint32_t *pivots, uint32_t count, uint32_t *nodes,
			   uint32_t *neighbors)
{
	counted    *c = ctx;

	c->pivots += count;
	return c->source.pivots(c->source.ctx, pivots, count, nodes, neighbors);
}

static void
parse_search(const char *text, gg_search_params *params, gg_codes *codes)
{
	int			bits;

	params->walks = 0;
	params->delta = 0;
	*codes = GG_CODES_NONE;
	if (sscanf(text, "int%1d:%u", &bits, &params->rerank) >= 1)
		*codes = bits == 8 ? GG_CODES_INT8 : GG_CODES_INT4;
	else if (strncmp(text, "auto", 4) == 0)
		params->mode = GG_SEARCH_AUTO;
	else if (strncmp(text, "small", 5) == 0)
	{
		params->mode = GG_SEARCH_TSDG_SMALL;
		(void) sscanf(text, "small:%u", &params->walks);
	}
	else if (strncmp(text, "large", 5) == 0)
	{
		params->mode = GG_SEARCH_TSDG_LARGE;
		(void) sscanf(text, "large:%f", &params->delta);
	}
	else
	{
		fprintf(stderr, "no search %s\n", text);
		exit(2);
	}
}

/* Distances that queries take, which the engine does not report: one walk each, again. */
static uint64_t
count_walks(gg_index *index, bool coded, const gg_search_params *params, const float *queries,
			uint32_t nq, counted *count)
{
	const uint32_t dim = index->data.dim;
	float	   *prepared = malloc(3 * dim * sizeof(float));
	gg_code_query code;
	gg_memory_source memory = {index, prepared, coded ? &code : NULL};
	gg_source	source;
	gg_walk    *walk;
	uint64_t	total = 0;

	*count = (counted) {gg_cpu_source(&memory), 0, 0};
	source = count->source;
	source.ctx = count;
	source.distances = counted_distances;
	source.neighbors = counted_neighbors;
	source.pivots = counted_pivots;
	need_ok(gg_walk_create(&walk));
	if (coded)
		need_ok(gg_code_query_init(&index->coder, &code));
	for (uint32_t q = 0; q < nq; q++)
	{
		gg_cpu_load_query(index, queries + (size_t) q * dim, prepared);
		if (coded)
			gg_code_query_set(&index->coder, prepared, prepared + dim, &code);
		need_ok(gg_walk_search(walk, &source, params, INFINITY));
		total += gg_walk_distances(walk);
	}
	if (coded)
		gg_code_query_free(&code);
	gg_walk_free(walk);
	free(prepared);
	return total;
}

static void
measure(const gg_dataset *data, const gg_graph *graph, const char *search, const float *queries,
		uint32_t nq, const float *truth_distances)
{
	static const uint32_t widths[] = {10, 16, 24, 32, 64, 128, 256, 512};
	gg_control	one = {.threads = 1};
	uint32_t   *nodes = malloc((size_t) nq * K * sizeof(uint32_t));
	float	   *distances = malloc((size_t) nq * K * sizeof(float));
	gg_index   *index;
	counted		count;
	gg_codes	codes;
	gg_search_params chosen = {.k = K};

	parse_search(search, &chosen, &codes);
	if (codes != GG_CODES_NONE)
		index = copied_index(data, graph, codes);
	else
		need_ok(gg_cpu_engine.index_open(data, graph, &one, &index));
	printf("%.*s\n", (int) strcspn(search, ","), search);
	printf("%6s %9s %10s %8s %8s %10s %8s\n", "itopk", "recall@10", "distances", "pivots",
		   "parents", "us/query", "ns/dist");
	for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++)
	{
		gg_search_params params = chosen;
		uint64_t	hits = 0;
		uint64_t	total;
		double		best = INFINITY;

		params.itopk_size = widths[w];
		for (int repeat = 0; repeat < 3; repeat++)
		{
			double		began = harness_processor_seconds();

			need_ok(harness_search(&gg_cpu_engine, index, &params, queries, nq, &one, nodes,
								   distances));
			best = fmin(best, harness_processor_seconds() - began);
		}
		for (uint32_t q = 0; q < nq; q++)
			for (uint32_t i = 0; i < K; i++)
				hits += distances[(size_t) q * K + i] <=
					truth_distances[(size_t) q * LID_K + K - 1];
		total = count_walks(index, codes != GG_CODES_NONE, &params, queries, nq, &count);
		printf("%6u %9.4f %10.1f %8.1f %8.1f %10.1f %8.1f\n", widths[w], (double) hits / nq / K,
			   (double) total / nq, (double) count.pivots / nq, (double) count.parents / nq,
			   best / nq * 1e6, best / (double) total * 1e9);
		fflush(stdout);
	}
	gg_cpu_engine.index_close(index);
	free(nodes);
	free(distances);
}

int
main(int argc, char **argv)
{
	bool		made = argc >= 2 && strcmp(argv[1], "make") == 0;
	int			optional = made ? 7 : 6;
	gg_dataset	data;
	float	   *queries;
	uint32_t	nq;
	gg_build_params params = {.graph_degree = 32,.intermediate_graph_degree = 64,.seed = 1};
	gg_control	control = {.threads = 1};
	gg_build_stats stats = {0};
	gg_graph	graph;
	gg_index   *index;
	uint32_t   *truth;
	float	   *truth_distances;
	double		began;
	double		began_cpu;
	double		lid = 0;

	if (argc < optional || (!made && strcmp(argv[1], "file") != 0))
	{
		fprintf(stderr, "usage: see the head of measure_recall.c\n");
		return 2;
	}
	if (made)
	{
		harness_spec spec = {.n = (uint32_t) atoi(argv[2]), .dim = (uint32_t) atoi(argv[3]),
			.latent = (uint32_t) atoi(argv[4]), .clusters = (uint32_t) atoi(argv[5]),
			.metric = parse_metric(argv[6]), .seed = 1};

		nq = MADE_QUERIES;
		harness_data(&spec, &data, &queries, nq);
	}
	else
	{
		size_t		count;

		data = read_rows(argv[2], argv[4], argv[5]);
		queries = read_floats(argv[3], &count);
		nq = (uint32_t) (count / data.dim);
	}
	if (argc > optional)
		params.graph_degree = (uint32_t) atoi(argv[optional]);
	if (argc > optional + 1)
		params.intermediate_graph_degree = (uint32_t) atoi(argv[optional + 1]);
	if (argc > optional + 2)
		control.threads = atoi(argv[optional + 2]);

	truth = malloc((size_t) nq * LID_K * sizeof(uint32_t));
	truth_distances = malloc((size_t) nq * LID_K * sizeof(float));
	need_ok(gg_cpu_engine.index_open(&data, NULL, &control, &index));
	began = harness_now();
	need_ok(harness_exact(&gg_cpu_engine, index, LID_K, NULL, queries, nq, &control, truth,
						  truth_distances));
	printf("exact: %.1f us/query (%s)\n", (harness_now() - began) / nq * 1e6, gg_simd_name());
	gg_cpu_engine.index_close(index);

	/* maximum likelihood, as distances and not their squares; cosine: of unit rows, d = l2 / 2 */
	if (data.metric == GG_METRIC_L2 || data.metric == GG_METRIC_COSINE)
	{
		for (uint32_t q = 0; q < nq; q++)
		{
			const float *d = truth_distances + (size_t) q * LID_K;
			double		sum = 0;

			for (int i = 0; i < LID_K - 1; i++)
				sum += 0.5 * log(fmax(d[i], 1e-20) / fmax(d[LID_K - 1], 1e-20));
			lid -= (LID_K - 1) / sum / nq;
		}
		printf("intrinsic dimension (maximum likelihood, k = %d): %.1f\n", LID_K, lid);
	}
	for (int i = optional + 3; i < argc || i == optional + 3; i++)
	{
		char	   *name = strdup(i < argc ? argv[i] : "cagra");
		const char *search = "auto";

		if (strchr(name, '@') != NULL)
		{
			search = strchr(name, '@') + 1;
			*strchr(name, '@') = '\0';
		}
		parse_algorithm(name, &params);
		began = harness_now();
		began_cpu = harness_processor_seconds();
		need_ok(gg_cpu_engine.build(&data, &params, &control, &graph, &stats));
		printf("%s: n %u dim %u metric %d degree %u of %u: built in %.1f s by %d threads, "
			   "%.1f s of processors (init %.1f, %u iterations %.1f, optimize %.1f, "
			   "connect %.1f), %u pivots, %u repaired, mean degree %.1f\n",
			   name, data.n, data.dim, (int) data.metric, params.graph_degree,
			   params.intermediate_graph_degree, harness_now() - began, control.threads,
			   harness_processor_seconds() - began_cpu, stats.init_s, stats.iterations,
			   stats.descent_s, stats.optimize_s, stats.connect_s, graph.npivots, stats.repaired,
			   mean_degree(&graph));
		fflush(stdout);
		for (; search != NULL; search = strchr(search, ',') ? strchr(search, ',') + 1 : NULL)
			measure(&data, &graph, search, queries, nq, truth_distances);
		gg_graph_free(&graph);
		free(name);
	}

	free(truth);
	free(truth_distances);
	if (made)
		harness_free(&data, queries);
	else
	{
		free((void *) data.rows);
		free(queries);
	}
	return 0;
}
