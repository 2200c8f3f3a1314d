/*
 * test_grnnd.c
 *		Relative NN-descent against its contract (src/cpu/grnnd.c), written down naively, and the
 *		graphs that are built by it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/cpu/algorithms.h"
#include "../../src/cpu/random.h"
#include "harness.h"

static const char *const metric_names[] = {"?", "l2", "ip", "cosine", "l1"};

static const gg_build_params grnnd_32 = {.algorithm = GG_ALGORITHM_GRNND, .graph_degree = 32,
										 .intermediate_graph_degree = 32, .seed = 3};

/* ---- the contract, with pools as sets of ids ---------------------------------- */

typedef struct naive
{
	const gg_dataset *data;
	gg_grnnd	params;
	uint64_t	seed;
	double		max_norm;
	bool	   *pool;			/* n x n: whether a node is in a pool */
	bool	   *next;			/* n x n: what is offered to the next one */
} naive;

static float
naive_distance(const naive *on, uint32_t a, uint32_t b)
{
	return (float) harness_row_distance(on->data, a, b, on->max_norm);
}

/* The members of a pool by (d, id); returns how many, at most the capacity. */
static uint32_t
naive_members(const naive *on, const bool *pool, uint32_t v, uint32_t *members)
{
	uint32_t	n = on->data->n,
				count = 0;

	for (uint32_t id = 0; id < n; id++)
	{
		uint32_t	at = count;

		if (!pool[(size_t) v * n + id])
			continue;
		/* ids ascend: equal distances stay in their order */
		for (; at > 0 && naive_distance(on, v, members[at - 1]) > naive_distance(on, v, id); at--)
			members[at] = members[at - 1];
		members[at] = id;
		count++;
	}
	return count < on->params.capacity ? count : on->params.capacity;
}

/* (a) */
static void
naive_start(naive *on)
{
	uint32_t	n = on->data->n,
				wanted = on->params.start < n - 1 ? on->params.start : n - 1;

	for (uint32_t v = 0; v < n; v++)
	{
		uint64_t	counter = (uint64_t) v << 20;
		uint32_t	count = 0;

		while (count < wanted)
		{
			uint32_t	id = wanted <= n / 2 ? gg_random_below(on->seed, counter++, n) :
				(v + 1 + count) % n;

			if (id != v && !on->pool[(size_t) v * n + id])
			{
				on->pool[(size_t) v * n + id] = true;
				count++;
			}
		}
	}
}

/* (b) */
static void
naive_round(naive *on, uint32_t round)
{
	uint32_t	n = on->data->n;

	for (uint32_t v = 0; v < n; v++)
	{
		uint32_t	members[1000],
					order[1000];
		bool		gone[1000] = {false};
		uint32_t	count = naive_members(on, on->pool, v, members);
		uint64_t	seed = on->seed ^ gg_random_at(round, v);

		for (uint32_t i = 0; i < count; i++)
		{
			uint32_t	j = gg_random_below(seed, i, i + 1);

			order[i] = order[j];
			order[j] = i;
		}
		for (uint32_t y = 0; y < count; y++)
			for (uint32_t x = 0; x < y; x++)
			{
				uint32_t	far = order[x] > order[y] ? order[x] : order[y],
							near = order[x] > order[y] ? order[y] : order[x];

				if (gone[far] || gone[near] ||
					!(naive_distance(on, members[near], members[far]) <
					  naive_distance(on, v, members[far])))
					continue;
				gone[far] = true;
				on->next[(size_t) members[near] * n + members[far]] = true;
			}
		for (uint32_t i = 0; i < count; i++)
			if (!gone[i])
				on->next[(size_t) v * n + members[i]] = true;
	}
	memcpy(on->pool, on->next, (size_t) n * n);
	memset(on->next, 0, (size_t) n * n);
}

/* (c) */
static void
naive_reverse(naive *on)
{
	uint32_t	n = on->data->n;

	for (uint32_t v = 0; v < n; v++)
	{
		uint32_t	members[1000];
		uint32_t	count = naive_members(on, on->pool, v, members);

		for (uint32_t i = 0; i < count; i++)
		{
			on->next[(size_t) v * n + members[i]] = true;
			if ((float) i < on->params.rho * (float) count)
				on->next[(size_t) members[i] * n + v] = true;
		}
	}
	memcpy(on->pool, on->next, (size_t) n * n);
	memset(on->next, 0, (size_t) n * n);
}

/*
 * Small whole numbers, so that every distance is exact and many are equal.  Only edges that
 * reachability replaced may differ, of which there is one at most for each that was repaired.
 */
static void
contract_case(uint32_t n, gg_metric metric, const gg_build_params *params)
{
	harness_random random = {n};
	float	   *rows = malloc(sizeof(float) * n * 6);
	gg_dataset	data = {rows, n, 6, GG_ELEMENT_F32, metric};
	naive		on = {&data, gg_grnnd_params(params), params->seed, 0, calloc(n, n), calloc(n, n)};
	uint32_t	round = 0;

	for (uint32_t i = 0; i < n * 6; i++)
		rows[i] = (float) (int) (harness_unit(&random) * 8);
	naive_start(&on);
	for (uint32_t outer = 0; outer < on.params.outer; outer++)
	{
		if (outer > 0)
			naive_reverse(&on);
		for (uint32_t inner = 0; inner < on.params.inner; inner++)
			naive_round(&on, ++round);
	}
	for (int threads = 1; threads <= 3; threads++)
	{
		gg_control	control = {.threads = threads};
		gg_build_stats stats = {0};
		gg_graph	graph;
		uint32_t	wrong = 0;

		if (!CHECK_OK(gg_cpu_build(&data, params, &control, &graph, &stats), "contract"))
			continue;
		for (uint32_t v = 0; v < n; v++)
		{
			uint32_t	members[1000];
			uint32_t	count = naive_members(&on, on.pool, v, members);

			for (uint32_t i = 0; i < graph.degree; i++)
				wrong += graph.adjacency[(size_t) v * graph.degree + i] !=
					(i < count ? members[i] : GG_NO_NODE);
		}
		CHECK(wrong <= stats.repaired, "%s, n %u, S %u, R %u, %u x %u, rho %g, %d threads: "
			  "%u edges are others, %u were repaired", metric_names[metric], n, on.params.start,
			  on.params.capacity, on.params.outer, on.params.inner, on.params.rho, threads, wrong,
			  stats.repaired);
		gg_graph_free(&graph);
	}
	free(on.pool);
	free(on.next);
	free(rows);
}

static void
test_contract(void)
{
	for (uint32_t n = 1; n <= (harness_fewer() ? 30 : harness_size(300, 3)); n += 1 + n / 2)
		for (uint32_t variant = 0; variant < 6; variant++)
		{
			gg_build_params params = {.algorithm = GG_ALGORITHM_GRNND,.graph_degree = 16,
				.intermediate_graph_degree = 16,.seed = variant,.init = GG_INIT_RANDOM,
				.initial_neighbors = variant % 2 ? 5 : 16,
				.pool_capacity = variant % 3 ? 16 : 40,.outer_rounds = 1 + variant % 4,
			.inner_rounds = 1 + variant % 3,.rho = variant % 2 ? 1 : 0.3f};

			contract_case(n, variant % 2 ? GG_METRIC_L1 : GG_METRIC_L2, &params);
		}
}

/* ---- built graphs -------------------------------------------------------------- */

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
									 .element = i % 2 ? GG_ELEMENT_F16 : GG_ELEMENT_F32,
									 .seed = i};
				gg_build_params params = grnnd_32;

				params.graph_degree = extreme == 2 ? 4 : 16;
				params.init = extreme == 0 ? GG_INIT_PIVOT_CELLS : GG_INIT_RANDOM;
				params.initial_neighbors = extreme == 2 ? 1 : 0;
				params.outer_rounds = extreme == 2 ? 1 : 3;
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
		{SHAPE_MANIFOLD, 7000, 350, "350 clusters"},
		{SHAPE_TIGHT, 7000, 350, "350 tight clusters"},
		{SHAPE_COPIES, 7000, 20, "20 copies of each row"},
		{SHAPE_EQUAL, 7000, 1, "equal rows"}
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		harness_spec spec = {.shape = cases[i].shape, .n = harness_size(cases[i].n, 4), .dim = 16,
							 .clusters = cases[i].clusters, .metric = GG_METRIC_L2,
							 .element = GG_ELEMENT_F32, .seed = i};
		gg_build_params params = grnnd_32;

		build_case(&spec, &params, cases[i].what);
		params.init = GG_INIT_RANDOM;
		build_case(&spec, &params, cases[i].what);
	}
}

/* recall@10 of searches at itopk 64 over a graph */
static double
recall_of(const gg_dataset *data, const float *queries, uint32_t nq, const gg_build_params *params,
		  const float *truth)
{
	gg_search_params search = {.k = 10, .itopk_size = 64};
	gg_control	control = {.threads = 2};
	uint32_t   *nodes = malloc(sizeof(uint32_t) * nq * 10);
	float	   *distances = malloc(sizeof(float) * nq * 10);
	gg_index   *index;
	gg_graph	graph;
	uint32_t	hits = 0;

	CHECK_OK(gg_cpu_build(data, params, &control, &graph, NULL), "recall");
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

static void
test_recall(void)
{
	static const struct
	{
		harness_shape shape;
		gg_metric	metric;
		gg_element	element;
	}			cases[] = {
		{SHAPE_MANIFOLD, GG_METRIC_L2, GG_ELEMENT_F32},
		{SHAPE_MANIFOLD, GG_METRIC_IP, GG_ELEMENT_F32},
		{SHAPE_MANIFOLD, GG_METRIC_COSINE, GG_ELEMENT_F16},
		{SHAPE_MANIFOLD, GG_METRIC_L1, GG_ELEMENT_F32},
		{SHAPE_UNIFORM, GG_METRIC_L2, GG_ELEMENT_F16}
	};
	const uint32_t nq = 200;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		harness_spec spec = {.shape = cases[i].shape, .n = harness_size(12000, 6),
							 .dim = cases[i].shape == SHAPE_UNIFORM ? 8 : 32,
							 .metric = cases[i].metric, .element = cases[i].element,
							 .seed = 9 + i};
		gg_control	control = {.threads = 2};
		gg_build_params params = grnnd_32;
		uint32_t   *nodes = malloc(sizeof(uint32_t) * nq * 10);
		float	   *truth = malloc(sizeof(float) * nq * 10);
		gg_index   *index;
		gg_dataset	data;
		float	   *queries;
		double		cells,
					random;

		harness_data(&spec, &data, &queries, nq);
		CHECK_OK(gg_cpu_engine.index_open(&data, NULL, &control, &index), "recall");
		CHECK_OK(gg_cpu_engine.index_exact(index, 10, NULL, queries, nq, &control, nodes, truth),
				 "recall");
		gg_cpu_engine.index_close(index);
		cells = recall_of(&data, queries, nq, &params, truth);
		params.init = GG_INIT_RANDOM;
		random = recall_of(&data, queries, nq, &params, truth);
		CHECK(cells >= 0.95 && random >= 0.95, "case %zu: recall %.4f from cells, %.4f from random "
			  "pools", i, cells, random);
		free(nodes);
		free(truth);
		harness_free(&data, queries);
	}
}

/* ---- ends ------------------------------------------------------------------------ */

/* From random pools threads change nothing; the seed does. */
static void
test_determinism(void)
{
	harness_spec spec = {.n = harness_size(5000, 3), .dim = 24, .metric = GG_METRIC_L2,
						 .element = GG_ELEMENT_F32, .seed = 3};
	gg_dataset	data;
	gg_graph	graphs[4];
	size_t		bytes;

	harness_data(&spec, &data, NULL, 0);
	bytes = sizeof(uint32_t) * data.n * grnnd_32.graph_degree;
	for (int i = 0; i < 4; i++)
	{
		gg_control	control = {.threads = i == 3 ? 1 : i + 1};
		gg_build_params params = grnnd_32;

		params.init = GG_INIT_RANDOM;
		params.seed = i == 3 ? 4 : 3;
		CHECK_OK(gg_cpu_build(&data, &params, &control, &graphs[i], NULL), "determinism");
	}
	CHECK(memcmp(graphs[0].adjacency, graphs[1].adjacency, bytes) == 0 &&
		  memcmp(graphs[0].adjacency, graphs[2].adjacency, bytes) == 0, "1, 2 and 3 threads");
	CHECK(memcmp(graphs[0].adjacency, graphs[3].adjacency, bytes) != 0, "another seed");
	for (int i = 0; i < 4; i++)
		gg_graph_free(&graphs[i]);
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

static void
test_cancel(void)
{
	harness_spec spec = {.n = harness_size(600, 6), .dim = harness_small() ? 500 : 8000,
						 .metric = GG_METRIC_L2, .element = GG_ELEMENT_F16, .seed = 3};
	gg_build_params params = grnnd_32;
	gg_dataset	data;
	watch		w = {0};
	gg_control	control = {.cancelled = watch_cancelled, .ctx = &w, .threads = 2};
	gg_graph	graph;
	uint64_t	asked;

	params.init = GG_INIT_RANDOM;
	harness_data(&spec, &data, NULL, 0);
	w.last = harness_now();
	CHECK_OK(gg_cpu_build(&data, &params, &control, &graph, NULL), "not cancelled");
	CHECK(w.longest < (harness_small() ? 20 : 1), "%.3f s without a question", w.longest);
	gg_graph_free(&graph);
	asked = w.asked;
	for (uint64_t at = 1; at <= asked; at += 1 + asked / 7)
	{
		gg_status	status;

		w.asked = 0;
		w.cancel_at = at;
		status = gg_cpu_build(&data, &params, &control, &graph, NULL);
		/* another run may ask fewer questions */
		CHECK(status.code == GG_ECANCELED ? graph.adjacency == NULL :
			  status.code == GG_OK && w.asked < at, "question %lu of %lu: code %d",
			  (unsigned long) at, (unsigned long) asked, (int) status.code);
		gg_graph_free(&graph);
	}
	harness_free(&data, NULL);
}

static bool
refused(const gg_build_params *params, const char *part)
{
	static const float rows[8] = {0};
	gg_dataset	data = {rows, 2, 4, GG_ELEMENT_F32, GG_METRIC_L2};
	gg_bytes	bytes;
	gg_graph	graph;
	gg_status	status = gg_cpu_build(&data, params, NULL, &graph, NULL);

	return status.code == GG_EINVAL && strstr(status.message, part) != NULL &&
		gg_cpu_build_bytes(&data, params, NULL, &bytes).code == GG_EINVAL;
}

static void
test_arguments(void)
{
	gg_build_params params = grnnd_32;

	params.pool_capacity = 31;
	CHECK(refused(&params, "31"), "pools smaller than the degree");
	params.pool_capacity = GG_MAX_DEGREE + 1;
	CHECK(refused(&params, "513"), "pools too large");
	params = grnnd_32;
	params.initial_neighbors = 65;
	CHECK(refused(&params, "65"), "more initial neighbors than pools take");
	params = grnnd_32;
	params.outer_rounds = GG_MAX_ROUNDS + 1;
	CHECK(refused(&params, "101"), "T1 too large");
	params = grnnd_32;
	params.inner_rounds = GG_MAX_ROUNDS + 1;
	CHECK(refused(&params, "101"), "T2 too large");
	params = grnnd_32;
	params.rho = 1.01f;
	CHECK(refused(&params, "1.01"), "rho too large");
	params.rho = -0.5f;
	CHECK(refused(&params, "-0.5"), "rho below 0");
	params.rho = NAN;
	CHECK(refused(&params, "rho"), "rho is no number");
}

int
main(void)
{
	harness_run("arguments", test_arguments);
	harness_run("contract", test_contract);
	harness_run("tiny", test_tiny);
	/* valgrind: every path, at sizes that take seconds */
	if (harness_fewer())
		return harness_finish();
	harness_run("connected", test_connected);
	harness_run("recall", test_recall);
	harness_run("determinism", test_determinism);
	harness_run("cancel", test_cancel);
	return harness_finish();
}
