/*
 * test_tsdg.c
 *		Two-stage diversification against its contract (src/engine/cpu/papers/tsdg.c), written down
 *		naively, and the graphs that are built by it.
 */
#include <math.h>

#include "graph_cases.h"

static const gg_build_params tsdg_32_64 = {.algorithm = GG_ALGORITHM_TSDG, .graph_degree = 32,
										   .intermediate_graph_degree = 64, .seed = 3};

/* ---- the contract ------------------------------------------------------------ */

typedef struct naive
{
	const gg_dataset *data;
	const gg_build_params *params;
	const uint32_t *knn;
	float		factor;
	uint32_t	limit;			/* of F, and of reverse edges */
	uint32_t   *forward;		/* n x limit */
} naive;

static float
naive_distance(const naive *on, uint32_t a, uint32_t b)
{
	return (float) harness_row_distance(on->data, a, b);
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
		if (!list_has(united, count, reverse[i]))
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
	uint32_t	lambda0 = on->params->lambda0 ? on->params->lambda0 : 9;
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
		out[at] = united[best] | (lambdas[best] >= 5 ? GG_EDGE_MARK : 0);
		taken[best] = true;
	}
}

static void
naive_diversify(const gg_dataset *data, const gg_build_params *params, const uint32_t *knn,
				uint32_t *graph)
{
	float		alpha = params->alpha != 0 ? params->alpha : 1.1f;
	naive		on = {data, params, knn,
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
		CHECK_OK(stage_diversify(data, params, knn, &control, graph), "diversify");
		for (uint32_t a = 0; a < data->n; a++)
			equal += memcmp(graph + (size_t) a * params->graph_degree,
							expected + (size_t) a * params->graph_degree,
							sizeof(uint32_t) * params->graph_degree) == 0;
		CHECK(equal >= least * data->n,
			  "%s, n %u, dim %u, %u of %u, alpha %g, lambda0 %u: %u lists as they should be",
			  harness_metrics[data->metric], data->n, data->dim, params->graph_degree,
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

	CHECK_OK(stage_diversify(&data, &params, knn, NULL, graph), "by hand");
	CHECK(memcmp(graph, strict, sizeof(strict)) == 0, "alpha 1");
	params.alpha = GG_MAX_ALPHA;
	params.lambda0 = 1;
	CHECK_OK(stage_diversify(&data, &params, knn, NULL, graph), "by hand");
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
test_tiny(void)
{
	gg_build_params params[3] = {tsdg_32_64, tsdg_32_64, tsdg_32_64};

	for (int i = 0; i < 2; i++)
	{
		params[i].graph_degree = 16;
		params[i].intermediate_graph_degree = 32;
	}
	params[1].alpha = 1;
	params[1].lambda0 = 1;
	params[2].graph_degree = params[2].intermediate_graph_degree = 4;
	params[2].alpha = GG_MAX_ALPHA;
	params[2].lambda0 = 1;
	tiny_cases(params, 3, 6);
}

static void
test_connected(void)
{
	gg_build_params params[2] = {tsdg_32_64, tsdg_32_64};

	params[1].alpha = 1;
	params[1].lambda0 = 1;
	connected_cases(params, 2);
}

/* The larger alpha and lambda0, the more edges; at their most only the degree limits them. */
static void
test_extremes(void)
{
	static const float alphas[] = {1, 1.1f, 1.3f, GG_MAX_ALPHA};
	static const uint32_t lambdas[] = {1, 5, 10, GG_MAX_LAMBDA};
	harness_spec spec = {.n = harness_size(3000, 3), .dim = 24, .seed = 4};
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

/* Searches find what they find over a graph made by rank-based reordering, with fewer edges. */
static void
judge_recall(const recall_set *set, size_t i)
{
	gg_build_params params = tsdg_32_64;
	double		tsdg = recall_of(set, &params),
				cagra;

	params.algorithm = GG_ALGORITHM_CAGRA;
	cagra = recall_of(set, &params);
	CHECK(tsdg >= 0.97 && tsdg >= cagra - 0.01, "case %zu: recall %.4f, CAGRA %.4f", i, tsdg,
		  cagra);
}

static void
test_recall(void)
{
	recall_cases(judge_recall);
}

/* ---- ends ------------------------------------------------------------------------ */

/* The same seed makes the same graph; so does the zero that stands for a default. */
static void
test_determinism(void)
{
	harness_spec spec = {.n = harness_size(7000, 3), .dim = 24, .metric = GG_METRIC_IP, .seed = 3};
	gg_control	control = {.threads = 1};
	gg_dataset	data;
	gg_graph	graphs[2];

	harness_data(&spec, &data, NULL, 0);
	for (int i = 0; i < 2; i++)
	{
		gg_build_params params = tsdg_32_64;

		params.alpha = i == 0 ? 0 : 1.1f;
		params.lambda0 = i == 0 ? 0 : 9;
		CHECK_OK(gg_cpu_build(&data, &params, &control, &graphs[i], NULL), "determinism");
	}
	CHECK(memcmp(graphs[0].adjacency, graphs[1].adjacency,
				 sizeof(uint32_t) * data.n * graphs[0].degree) == 0, "twice the same");
	gg_graph_free(&graphs[0]);
	gg_graph_free(&graphs[1]);
	harness_free(&data, NULL);
}

typedef struct diversify_run
{
	const gg_dataset *data;
	gg_build_params params;
	const uint32_t *knn;
	uint32_t   *graph;
} diversify_run;

static gg_status
cancelled_diversify(const gg_control *control, void *ctx)
{
	const diversify_run *run = ctx;

	return stage_diversify(run->data, &run->params, run->knn, control, run->graph);
}

/* At whatever question a run is cancelled; and it asks often, however long rows and lists are. */
static void
test_cancel(void)
{
	harness_spec spec = cancel_spec();
	gg_dataset	data;
	uint32_t   *knn = malloc(sizeof(uint32_t) * spec.n * 128);
	diversify_run run = {.data = &data, .params = tsdg_32_64, .knn = knn};

	run.graph = malloc(sizeof(uint32_t) * spec.n * 64);
	run.params.graph_degree = 64;
	run.params.intermediate_graph_degree = 128;
	harness_data(&spec, &data, NULL, 0);
	CHECK_OK(gg_cpu_knn_graph(&data, &run.params, NULL, knn, NULL, NULL), "knn");
	cancel_cases(cancelled_diversify, &run);
	free(knn);
	free(run.graph);
	harness_free(&data, NULL);
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
