/*
 * test_tsdg.c
 *		Two-stage diversification against its contract (src/cpu/tsdg.c), written down naively, and
 *		the graphs that are built by it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

static const char *const metric_names[] = {"?", "l2", "ip", "cosine", "l1"};

static const gg_build_params tsdg_32_64 = {.algorithm = GG_ALGORITHM_TSDG, .graph_degree = 32,
										   .intermediate_graph_degree = 64, .seed = 3};

/* ---- the contract ------------------------------------------------------------ */

typedef struct naive
{
	const gg_dataset *data;
	const gg_build_params *params;
	const uint32_t *knn;
	double		max_norm;
	float		factor;
	uint32_t	limit;			/* of F, and of reverse edges */
	uint32_t   *forward;		/* n x limit */
} naive;

static float
naive_distance(const naive *on, uint32_t a, uint32_t b)
{
	return (float) harness_row_distance(on->data, a, b, on->max_norm);
}

static bool
has(const uint32_t *list, uint32_t count, uint32_t id)
{
	for (uint32_t i = 0; i < count; i++)
		if (list[i] == id)
			return true;
	return false;
}

/* (a) */
static void
naive_stage_1(const naive *on, uint32_t a)
{
	uint32_t	k = on->params->intermediate_graph_degree,
				limit = on->limit;
	const uint32_t *list = on->knn + (size_t) a * k;
	uint32_t   *out = on->forward + (size_t) a * limit;
	uint32_t	count = 0;

	for (uint32_t r = 0; r < k && list[r] != GG_NO_NODE && count < limit; r++)
	{
		float		far = naive_distance(on, a, list[r]);
		bool		occluded = false;

		for (uint32_t i = 0; i < count; i++)
			if (on->factor * naive_distance(on, a, out[i]) < far &&
				on->factor * naive_distance(on, out[i], list[r]) < far)
				occluded = true;
		if (!occluded)
			out[count++] = list[r];
	}
	while (count < limit)
		out[count++] = GG_NO_NODE;
}

/* (b); returns how many */
static uint32_t
naive_unite(const naive *on, uint32_t d, uint32_t *united)
{
	uint32_t	limit = on->limit,
				nreverse = 0,
				count = 0;
	const uint32_t *forward = on->forward + (size_t) d * limit;
	uint32_t	reverse[GG_MAX_DEGREE];

	for (uint32_t i = 0; i < limit; i++)
		for (uint32_t a = 0; a < on->data->n && nreverse < limit; a++)
			if (on->forward[(size_t) a * limit + i] == d)
				reverse[nreverse++] = a;
	for (uint32_t i = 0; i < limit && forward[i] != GG_NO_NODE; i++)
		united[count++] = forward[i];
	for (uint32_t i = 0; i < nreverse; i++)
		if (!has(united, count, reverse[i]))
			united[count++] = reverse[i];
	return count;
}

static uint32_t
naive_lambda(const naive *on, uint32_t a, const uint32_t *united, uint32_t count, uint32_t d)
{
	float		far = naive_distance(on, a, d);
	uint32_t	lambda = 0;

	for (uint32_t i = 0; i < count; i++)
		lambda += united[i] != d && naive_distance(on, a, united[i]) < far &&
			naive_distance(on, united[i], d) < far;
	return lambda;
}

/* (c) */
static void
naive_stage_2(const naive *on, uint32_t a, uint32_t *out)
{
	uint32_t	degree = on->params->graph_degree;
	uint32_t	lambda0 = on->params->lambda0 ? on->params->lambda0 : 10;
	uint32_t	united[GG_MAX_DEGREE];
	uint32_t	lambdas[GG_MAX_DEGREE];
	bool		taken[GG_MAX_DEGREE] = {false};
	uint32_t	count = naive_unite(on, a, united);

	for (uint32_t i = 0; i < count; i++)
		lambdas[i] = naive_lambda(on, a, united, count, united[i]);
	for (uint32_t at = 0; at < degree; at++)
	{
		uint32_t	best = count;

		for (uint32_t i = 0; i < count; i++)
		{
			float		d = naive_distance(on, a, united[i]),
						least = best < count ? naive_distance(on, a, united[best]) : 0;

			if (!taken[i] && lambdas[i] <= lambda0 &&
				(best == count || lambdas[i] < lambdas[best] ||
				 (lambdas[i] == lambdas[best] &&
				  (d < least || (d == least && united[i] < united[best])))))
				best = i;
		}
		out[at] = GG_NO_NODE;
		if (best == count)
			continue;
		out[at] = united[best] | (lambdas[best] > 5 ? GG_EDGE_MARK : 0);
		taken[best] = true;
	}
}

static void
naive_diversify(const gg_dataset *data, const gg_build_params *params, const uint32_t *knn,
				uint32_t *graph)
{
	float		alpha = params->alpha != 0 ? params->alpha : 1.1f;
	naive		on = {data, params, knn, harness_max_norm(data),
	data->metric == GG_METRIC_L1 ? alpha : alpha * alpha, 2 * params->graph_degree, NULL};

	if (on.limit > params->intermediate_graph_degree)
		on.limit = params->intermediate_graph_degree;
	if (on.limit > GG_MAX_DEGREE / 2)
		on.limit = GG_MAX_DEGREE / 2;
	on.forward = malloc(sizeof(uint32_t) * data->n * on.limit + 1);
	for (uint32_t a = 0; a < data->n; a++)
		naive_stage_1(&on, a);
	for (uint32_t a = 0; a < data->n; a++)
		naive_stage_2(&on, a, graph + (size_t) a * params->graph_degree);
	free(on.forward);
}

/*
 * Lists of the engine and those of the contract, on k-NN lists of the engine.  least: share of
 * lists that are equal, below 1 where distances are rounded in different ways.
 */
static void
contract_case(const gg_dataset *data, const gg_build_params *params, double least)
{
	size_t		entries = (size_t) data->n * params->graph_degree;
	uint32_t   *knn = malloc(sizeof(uint32_t) * data->n * params->intermediate_graph_degree + 1);
	uint32_t   *expected = malloc(sizeof(uint32_t) * entries + 1);
	uint32_t   *first = malloc(sizeof(uint32_t) * entries + 1);

	CHECK_OK(gg_cpu_knn_graph(data, params, NULL, knn, NULL, NULL), "knn");
	/* some lists end early */
	for (uint32_t a = 0; a < data->n; a += 5)
		for (uint32_t r = a % params->intermediate_graph_degree;
			 r < params->intermediate_graph_degree; r++)
			knn[(size_t) a * params->intermediate_graph_degree + r] = GG_NO_NODE;
	naive_diversify(data, params, knn, expected);
	for (int threads = 1; threads <= 3; threads++)
	{
		gg_control	control = {.threads = threads};
		uint32_t   *graph = malloc(sizeof(uint32_t) * entries + 1);
		uint32_t	equal = 0;

		memset(graph, 0x5A, sizeof(uint32_t) * entries);
		CHECK_OK(gg_cpu_diversify(data, params, knn, &control, graph), "diversify");
		for (uint32_t a = 0; a < data->n; a++)
			equal += memcmp(graph + (size_t) a * params->graph_degree,
							expected + (size_t) a * params->graph_degree,
							sizeof(uint32_t) * params->graph_degree) == 0;
		CHECK(equal >= least * data->n,
			  "%s, n %u, dim %u, %u of %u, alpha %g, lambda0 %u: %u lists as they should be",
			  metric_names[data->metric], data->n, data->dim, params->graph_degree,
			  params->intermediate_graph_degree, params->alpha, params->lambda0, equal);
		if (threads == 1)
			memcpy(first, graph, sizeof(uint32_t) * entries);
		else
			CHECK(memcmp(first, graph, sizeof(uint32_t) * entries) == 0, "%d threads", threads);
		free(graph);
	}
	free(first);
	free(expected);
	free(knn);
}

/* Small whole numbers: every distance is exact, and many are equal. */
static void
test_ties(void)
{
	harness_random random = {7};
	float	   *rows = malloc(sizeof(float) * 900 * 6);
	gg_dataset	data = {rows, 0, 6, GG_ELEMENT_F32, GG_METRIC_L2};

	for (uint32_t i = 0; i < 900 * 6; i++)
		rows[i] = (float) (int) (harness_unit(&random) * 8);
	for (data.n = 0; data.n <= (harness_fewer() ? 40 : harness_size(900, 3));
		 data.n += 1 + data.n / 2)
		for (uint32_t variant = 0; variant < 12; variant++)
		{
			gg_build_params params = {.algorithm = GG_ALGORITHM_TSDG,
									  .graph_degree = variant % 2 ? 16 : 5,
									  .intermediate_graph_degree = variant % 3 ? 24 : 16};

			data.metric = variant % 2 ? GG_METRIC_L1 : GG_METRIC_L2;
			params.alpha = variant / 3 == 0 ? 0 : variant / 3 == 1 ? 1 : variant / 3 == 2 ? 1.5f :
				GG_MAX_ALPHA;
			params.lambda0 = variant % 4 == 0 ? 0 : variant % 4 == 1 ? 1 : variant % 4 == 2 ? 3 :
				GG_MAX_LAMBDA;
			contract_case(&data, &params, 1);
		}
	free(rows);
}

static void
test_metrics(void)
{
	for (gg_metric metric = GG_METRIC_L2; metric <= GG_METRIC_L1; metric++)
		for (gg_element element = GG_ELEMENT_F32; element <= GG_ELEMENT_F16; element++)
		{
			harness_spec spec = {.n = harness_size(400, 3), .dim = 19, .latent = 8,
								 .metric = metric, .element = element, .seed = 2};
			gg_build_params params = {.algorithm = GG_ALGORITHM_TSDG, .graph_degree = 16,
									  .intermediate_graph_degree = 40};
			gg_dataset	data;

			harness_data(&spec, &data, NULL, 0);
			contract_case(&data, &params, 0.97);
			harness_free(&data, NULL);
		}
}

/*
 * The paper's figure 2, on a line: 0 at 0, then 1, 2, 3 at 10, 12, 21.  Node 1 occludes 2 and 3
 * from 0, and 2 does not occlude 3 in stage 1, which does not keep it.
 */
static void
test_by_hand(void)
{
	float		rows[] = {0, 10, 12, 21};
	gg_dataset	data = {rows, 4, 1, GG_ELEMENT_F32, GG_METRIC_L2};
	gg_build_params params = {.algorithm = GG_ALGORITHM_TSDG, .graph_degree = 4,
							  .intermediate_graph_degree = 4, .alpha = 1};
	const uint32_t knn[] = {
		1, 2, 3, GG_NO_NODE,
		2, 0, 3, GG_NO_NODE,
		1, 3, 0, GG_NO_NODE,
		2, 1, 0, GG_NO_NODE
	};

	/*
	 * F: 0 -> 1; 1 -> 2, 0; 2 -> 1, 3; 3 -> 2.  Reverse edges add none: 1 and 2 have each other, 0
	 * has 1, and 3 has 2.
	 */
	const uint32_t strict[] = {
		1, GG_NO_NODE, GG_NO_NODE, GG_NO_NODE,
		2, 0, GG_NO_NODE, GG_NO_NODE,
		1, 3, GG_NO_NODE, GG_NO_NODE,
		2, GG_NO_NODE, GG_NO_NODE, GG_NO_NODE
	};

	/* all edges pass stage 1; lambda of 0 -> 2 is 1, of 0 -> 3 2, 1 -> 3 1, 3 -> 1 1, 3 -> 0 2 */
	const uint32_t relaxed[] = {
		1, 2, GG_NO_NODE, GG_NO_NODE,
		2, 0, 3, GG_NO_NODE,
		1, 3, 0, GG_NO_NODE,
		2, 1, GG_NO_NODE, GG_NO_NODE
	};
	uint32_t	graph[16];

	CHECK_OK(gg_cpu_diversify(&data, &params, knn, NULL, graph), "by hand");
	CHECK(memcmp(graph, strict, sizeof(strict)) == 0, "alpha 1");
	params.alpha = GG_MAX_ALPHA;
	params.lambda0 = 1;
	CHECK_OK(gg_cpu_diversify(&data, &params, knn, NULL, graph), "by hand");
	CHECK(memcmp(graph, relaxed, sizeof(relaxed)) == 0, "alpha %g, lambda0 1", GG_MAX_ALPHA);
}

/* ---- built graphs -------------------------------------------------------------- */

static uint64_t
edges_of(const gg_graph *graph)
{
	uint64_t	edges = 0;

	for (size_t i = 0; i < (size_t) graph->n * graph->degree; i++)
		edges += graph->adjacency[i] != GG_NO_NODE;
	return edges;
}

static void
build_case(const harness_spec *spec, const gg_build_params *params, const char *what)
{
	gg_dataset	data;
	gg_control	control = {.threads = 2};
	gg_graph	graph;

	harness_data(spec, &data, NULL, 0);
	if (CHECK_OK(gg_cpu_build(&data, params, &control, &graph, NULL), what))
		harness_graph_check(&graph, data.n, params->graph_degree, false, what);
	gg_graph_free(&graph);
	harness_free(&data, NULL);
}

static void
test_tiny(void)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 17, 31, 33, 65, 66, 320};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i += harness_fewer() ? 4 : 1)
		for (harness_shape shape = SHAPE_MANIFOLD; shape <= SHAPE_TIGHT; shape++)
			for (int extreme = 0; extreme < 3; extreme++)
			{
				harness_spec spec = {.shape = shape, .n = sizes[i], .dim = 5,
									 .metric = (gg_metric) (1 + i % 4),
									 .element = GG_ELEMENT_F32, .seed = i};
				gg_build_params params = tsdg_32_64;

				params.graph_degree = extreme == 2 ? 4 : 16;
				params.intermediate_graph_degree = extreme == 2 ? 4 : 32;
				params.alpha = extreme == 0 ? 0 : extreme == 1 ? 1 : GG_MAX_ALPHA;
				params.lambda0 = extreme == 0 ? 0 : 1;
				build_case(&spec, &params, "tiny");
			}
}

static void
test_connected(void)
{
	static const struct
	{
		harness_shape shape;
		uint32_t	n;
		uint32_t	clusters;
		const char *what;
	}			cases[] = {
		{SHAPE_UNIFORM, 3000, 1, "uniform"},
		{SHAPE_MANIFOLD, 10000, 500, "500 clusters"},
		{SHAPE_TIGHT, 10000, 500, "500 tight clusters"},
		{SHAPE_COPIES, 9000, 20, "20 copies of each row"},
		{SHAPE_EQUAL, 9000, 1, "equal rows"}
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		harness_spec spec = {.shape = cases[i].shape, .n = harness_size(cases[i].n, 4), .dim = 16,
							 .clusters = cases[i].clusters, .metric = GG_METRIC_L2,
							 .element = GG_ELEMENT_F32, .seed = i};
		gg_build_params params = tsdg_32_64;

		build_case(&spec, &params, cases[i].what);
		params.alpha = 1;
		params.lambda0 = 1;
		build_case(&spec, &params, cases[i].what);
	}
}

/* The larger alpha and lambda0, the more edges; at their most only the degree limits them. */
static void
test_extremes(void)
{
	static const float alphas[] = {1, 1.1f, 1.3f, GG_MAX_ALPHA};
	static const uint32_t lambdas[] = {1, 5, 10, GG_MAX_LAMBDA};
	harness_spec spec = {.n = harness_size(3000, 3), .dim = 24, .metric = GG_METRIC_L2,
						 .element = GG_ELEMENT_F32, .seed = 4};
	gg_control	control = {.threads = 2};
	gg_dataset	data;
	uint64_t	edges[4][4];

	harness_data(&spec, &data, NULL, 0);
	for (int a = 0; a < 4; a++)
		for (int l = 0; l < 4; l++)
		{
			gg_build_params params = tsdg_32_64;
			gg_graph	graph;

			params.alpha = alphas[a];
			params.lambda0 = lambdas[l];
			edges[a][l] = 0;
			if (CHECK_OK(gg_cpu_build(&data, &params, &control, &graph, NULL), "extremes"))
				edges[a][l] = edges_of(&graph);
			CHECK(l == 0 || edges[a][l] >= edges[a][l - 1], "alpha %g, lambda0 %u: %lu edges",
				  alphas[a], lambdas[l], (unsigned long) edges[a][l]);
			gg_graph_free(&graph);
		}
	CHECK(edges[0][3] < edges[1][3] && edges[1][3] < edges[2][3], "edges by alpha: %lu %lu %lu",
		  (unsigned long) edges[0][3], (unsigned long) edges[1][3], (unsigned long) edges[2][3]);
	CHECK(edges[3][3] == (uint64_t) data.n * 32, "all edges: %lu", (unsigned long) edges[3][3]);
	harness_free(&data, NULL);
}

/* recall@10 of searches over a graph of this algorithm */
static double
recall_of(const gg_dataset *data, const float *queries, uint32_t nq, gg_algorithm algorithm,
		  uint32_t itopk, const float *truth)
{
	gg_build_params params = tsdg_32_64;
	gg_search_params search = {.k = 10, .itopk_size = itopk};
	gg_control	control = {.threads = 2};
	uint32_t   *nodes = malloc(sizeof(uint32_t) * nq * 10);
	float	   *distances = malloc(sizeof(float) * nq * 10);
	gg_index   *index;
	gg_graph	graph;
	uint32_t	hits = 0;

	params.algorithm = algorithm;
	CHECK_OK(gg_cpu_build(data, &params, &control, &graph, NULL), "recall");
	CHECK_OK(gg_cpu_engine.index_open(data, &graph, &control, &index), "recall");
	CHECK_OK(gg_cpu_engine.index_search(index, &search, queries, nq, &control, nodes, distances),
			 "recall");
	for (uint32_t i = 0; i < nq * 10; i++)
		hits += distances[i] <= truth[i / 10 * 10 + 9];
	gg_cpu_engine.index_close(index);
	gg_graph_free(&graph);
	free(nodes);
	free(distances);
	return (double) hits / (nq * 10);
}

/* Searches find what they find over a graph made by rank-based reordering, with fewer edges. */
static void
test_recall(void)
{
	static const struct
	{
		harness_shape shape;
		uint32_t	clusters;
		gg_metric	metric;
		gg_element	element;
	}			cases[] = {
		{SHAPE_MANIFOLD, 20, GG_METRIC_L2, GG_ELEMENT_F32},
		{SHAPE_MANIFOLD, 20, GG_METRIC_IP, GG_ELEMENT_F32},
		{SHAPE_MANIFOLD, 20, GG_METRIC_COSINE, GG_ELEMENT_F16},
		{SHAPE_MANIFOLD, 20, GG_METRIC_L1, GG_ELEMENT_F32},
		{SHAPE_TIGHT, 50, GG_METRIC_L2, GG_ELEMENT_F32},
		{SHAPE_UNIFORM, 1, GG_METRIC_L2, GG_ELEMENT_F16}
	};
	const uint32_t nq = 200;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		harness_spec spec = {.shape = cases[i].shape, .n = harness_size(12000, 6),
							 .dim = cases[i].shape == SHAPE_UNIFORM ? 8 : 32,
							 .clusters = cases[i].clusters, .metric = cases[i].metric,
							 .element = cases[i].element, .seed = 9 + i};
		gg_control	control = {.threads = 2};
		uint32_t   *nodes = malloc(sizeof(uint32_t) * nq * 10);
		float	   *truth = malloc(sizeof(float) * nq * 10);
		gg_index   *index;
		gg_dataset	data;
		float	   *queries;
		double		cagra,
					tsdg;

		harness_data(&spec, &data, &queries, nq);
		CHECK_OK(gg_cpu_engine.index_open(&data, NULL, &control, &index), "recall");
		CHECK_OK(gg_cpu_engine.index_exact(index, 10, NULL, queries, nq, &control, nodes, truth),
				 "recall");
		gg_cpu_engine.index_close(index);
		cagra = recall_of(&data, queries, nq, GG_ALGORITHM_CAGRA, 64, truth);
		tsdg = recall_of(&data, queries, nq, GG_ALGORITHM_TSDG, 64, truth);
		CHECK(tsdg >= 0.97 && tsdg >= cagra - 0.01, "case %zu: recall %.4f, CAGRA %.4f", i, tsdg,
			  cagra);
		free(nodes);
		free(truth);
		harness_free(&data, queries);
	}
}

/* ---- ends ------------------------------------------------------------------------ */

/* The same seed makes the same graph; so does the zero that stands for a default. */
static void
test_determinism(void)
{
	harness_spec spec = {.n = harness_size(7000, 3), .dim = 24, .metric = GG_METRIC_IP,
						 .element = GG_ELEMENT_F32, .seed = 3};
	gg_control	control = {.threads = 1};
	gg_dataset	data;
	gg_graph	graphs[2];

	harness_data(&spec, &data, NULL, 0);
	for (int i = 0; i < 2; i++)
	{
		gg_build_params params = tsdg_32_64;

		params.alpha = i == 0 ? 0 : 1.1f;
		params.lambda0 = i == 0 ? 0 : 10;
		CHECK_OK(gg_cpu_build(&data, &params, &control, &graphs[i], NULL), "determinism");
	}
	CHECK(memcmp(graphs[0].adjacency, graphs[1].adjacency,
				 sizeof(uint32_t) * data.n * graphs[0].degree) == 0, "twice the same");
	gg_graph_free(&graphs[0]);
	gg_graph_free(&graphs[1]);
	harness_free(&data, NULL);
}

typedef struct watch
{
	uint64_t	asked;
	uint64_t	cancel_at;
	double		last;
	double		longest;		/* seconds between two questions */
} watch;

static bool
watch_cancelled(void *ctx)
{
	watch	   *w = ctx;
	double		now = harness_now();

	if (now - w->last > w->longest)
		w->longest = now - w->last;
	w->last = now;
	return ++w->asked == w->cancel_at;
}

/* At whatever question a run is cancelled; and it asks often, however long rows and lists are. */
static void
test_cancel(void)
{
	uint32_t	n = harness_size(600, 6);
	harness_spec spec = {.n = n, .dim = harness_small() ? 500 : 8000, .metric = GG_METRIC_L2,
						 .element = GG_ELEMENT_F16, .seed = 3};
	gg_build_params params = tsdg_32_64;
	gg_dataset	data;
	uint32_t   *knn = malloc(sizeof(uint32_t) * n * 512);
	uint32_t   *graph = malloc(sizeof(uint32_t) * n * 256);
	watch		w = {.last = harness_now()};
	gg_control	control = {.cancelled = watch_cancelled, .ctx = &w, .threads = 2};
	uint64_t	asked;

	params.graph_degree = 64;
	params.intermediate_graph_degree = 128;
	harness_data(&spec, &data, NULL, 0);
	CHECK_OK(gg_cpu_knn_graph(&data, &params, NULL, knn, NULL, NULL), "knn");
	w.last = harness_now();
	CHECK_OK(gg_cpu_diversify(&data, &params, knn, &control, graph), "not cancelled");
	CHECK(w.longest < (harness_small() ? 20 : 1), "%.3f s without a question", w.longest);
	asked = w.asked;
	CHECK(asked > 0, "%lu questions", (unsigned long) asked);
	for (uint64_t at = 1; at <= asked; at += 1 + asked / 7)
	{
		gg_status	status;

		w.asked = 0;
		w.cancel_at = at;
		status = gg_cpu_diversify(&data, &params, knn, &control, graph);
		/* another run may ask fewer questions */
		CHECK(status.code == GG_ECANCELED || (status.code == GG_OK && w.asked < at),
			  "question %lu of %lu: code %d", (unsigned long) at, (unsigned long) asked,
			  (int) status.code);
	}
	free(knn);
	free(graph);
	harness_free(&data, NULL);
}

static bool
refused(const gg_build_params *params, const char *part)
{
	static const float rows[8] = {0};
	gg_dataset	data = {rows, 2, 4, GG_ELEMENT_F32, GG_METRIC_L2};
	uint32_t	knn[2 * 64] = {0},
				edges[2 * 32];
	gg_bytes	bytes;
	gg_graph	graph;
	gg_status	status = gg_cpu_build(&data, params, NULL, &graph, NULL);

	return status.code == GG_EINVAL && strstr(status.message, part) != NULL &&
		gg_cpu_build_bytes(&data, params, NULL, &bytes).code == GG_EINVAL &&
		gg_cpu_diversify(&data, params, knn, NULL, edges).code == GG_EINVAL;
}

static void
test_arguments(void)
{
	gg_build_params params = tsdg_32_64;

	params.algorithm = (gg_algorithm) 77;
	CHECK(refused(&params, "77"), "algorithm 77");
	params = tsdg_32_64;
	params.alpha = 0.99f;
	CHECK(refused(&params, "0.99"), "alpha below 1");
	params.alpha = -1.1f;
	CHECK(refused(&params, "-1.1"), "alpha below 0");
	params.alpha = NAN;
	CHECK(refused(&params, "alpha"), "alpha is no number");
	params.alpha = 101;
	CHECK(refused(&params, "101"), "alpha too large");
	params = tsdg_32_64;
	params.lambda0 = GG_MAX_LAMBDA + 1;
	CHECK(refused(&params, "1025"), "lambda0 too large");
	params = tsdg_32_64;
	params.graph_degree = 65;
	CHECK(refused(&params, "65"), "lists shorter than the degree");
}

int
main(void)
{
	harness_run("arguments", test_arguments);
	harness_run("by hand", test_by_hand);
	harness_run("ties", test_ties);
	harness_run("tiny", test_tiny);
	/* valgrind: every path, at sizes that take seconds */
	if (harness_fewer())
		return harness_finish();
	harness_run("metrics", test_metrics);
	harness_run("connected", test_connected);
	harness_run("extremes", test_extremes);
	harness_run("recall", test_recall);
	harness_run("determinism", test_determinism);
	harness_run("cancel", test_cancel);
	return harness_finish();
}
