/*
 * test_grnnd.c
 *		Relative NN-descent against its contract (src/engine/cpu/papers/grnnd.c), written down
 *		naively, and the graphs that are built by it.
 */
#include <math.h>

#include "../../src/engine/rules/algorithms.h"
#include "../../src/engine/rules/random.h"
#include "graph_cases.h"

static const gg_build_params grnnd_32 = {.algorithm = GG_ALGORITHM_GRNND, .graph_degree = 32,
										 .intermediate_graph_degree = 32, .seed = 3};

/* ---- the contract, with pools as sets of ids ---------------------------------- */

typedef struct naive
{
	const gg_dataset *data;
	gg_grnnd	params;
	uint64_t	seed;
	bool	   *pool;			/* n x n: whether a node is in a pool */
	bool	   *next;			/* n x n: what is offered to the next one */
} naive;

static float
naive_distance(const naive *on, uint32_t a, uint32_t b)
{
	return (float) harness_row_distance(on->data, a, b);
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
		uint32_t	members[1000];
		bool		gone[1000] = {false};
		uint32_t	count = naive_members(on, on->pool, v, members);
		uint64_t	seed = on->seed ^ gg_random_at(round, v);

		for (uint32_t pair = 0; count > 1 && pair < on->params.pairs * count; pair++)
		{
			uint32_t	x = gg_random_below(seed, 2 * pair, count),
						y = gg_random_below(seed, 2 * pair + 1, count - 1);

			y += y >= x;

			uint32_t	far = x > y ? x : y,
						near = x > y ? y : x;

			if (gone[far] || !(naive_distance(on, members[near], members[far]) <
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

/* (d): the edges that reordering chooses from the pools, n x degree */
static uint32_t *
naive_edges(const naive *on, uint32_t degree)
{
	const uint32_t n = on->data->n,
				length = on->params.capacity;
	uint32_t   *lists = malloc(sizeof(uint32_t) * n * length);
	uint32_t   *edges = malloc(sizeof(uint32_t) * n * degree);

	memset(lists, 0xFF, sizeof(uint32_t) * n * length);
	for (uint32_t v = 0; v < n; v++)
	{
		uint32_t	members[1000];

		memcpy(lists + (size_t) v * length, members,
			   sizeof(uint32_t) * naive_members(on, on->pool, v, members));
	}
	CHECK_OK(stage_optimize(lists, n, length, degree, NULL, edges), "reordering");
	free(lists);
	return edges;
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
	naive		on = {&data, gg_grnnd_params(params), params->seed, calloc(n, n), calloc(n, n)};
	uint32_t	round = 0;
	uint32_t   *edges;

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
	edges = naive_edges(&on, params->graph_degree);
	for (int threads = 1; threads <= 3; threads++)
	{
		gg_control	control = {.threads = threads};
		gg_build_stats stats = {0};
		gg_graph	graph;
		uint32_t	wrong = 0;

		if (!CHECK_OK(gg_cpu_build(&data, params, &control, &graph, &stats), "contract"))
			continue;
		for (size_t i = 0; i < (size_t) n * graph.degree; i++)
			wrong += graph.adjacency[i] != edges[i];
		CHECK(wrong <= stats.repaired, "%s, n %u, S %u, R %u, %u x %u, rho %g, %d threads: "
			  "%u edges are others, %u were repaired", harness_metrics[metric], n, on.params.start,
			  on.params.capacity, on.params.outer, on.params.inner, on.params.rho, threads, wrong,
			  stats.repaired);
		gg_graph_free(&graph);
	}
	free(edges);
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
test_tiny(void)
{
	gg_build_params params[3] = {grnnd_32, grnnd_32, grnnd_32};

	for (int i = 0; i < 3; i++)
	{
		params[i].graph_degree = 16;
		params[i].outer_rounds = 3;
	}
	params[1].init = params[2].init = GG_INIT_RANDOM;
	params[2].graph_degree = 4;
	params[2].initial_neighbors = 1;
	params[2].outer_rounds = 1;
	tiny_cases(params, 3, 6);
}

static void
test_connected(void)
{
	gg_build_params params[2] = {grnnd_32, grnnd_32};

	params[1].init = GG_INIT_RANDOM;
	connected_cases(params, 2);
}

static void
judge_recall(const recall_set *set, size_t i)
{
	gg_build_params params = grnnd_32;
	double		cells = recall_of(set, &params),
				random;

	params.init = GG_INIT_RANDOM;
	random = recall_of(set, &params);
	CHECK(cells >= 0.95 && random >= 0.95, "case %zu: recall %.4f from cells, %.4f from random "
		  "pools", i, cells, random);
}

static void
test_recall(void)
{
	recall_cases(judge_recall);
}

/* ---- ends ------------------------------------------------------------------------ */

/* From random pools threads change nothing; the seed does. */
static void
test_determinism(void)
{
	harness_spec spec = {.n = harness_size(5000, 3), .dim = 24, .seed = 3};
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

static gg_status
cancelled_build(const gg_control *control, void *ctx)
{
	gg_build_params params = grnnd_32;
	gg_graph	graph;
	gg_status	status;

	params.init = GG_INIT_RANDOM;
	status = gg_cpu_build(ctx, &params, control, &graph, NULL);
	CHECK(status.code == GG_OK || graph.adjacency == NULL, "code %d leaves a graph",
		  (int) status.code);
	gg_graph_free(&graph);
	return status;
}

static void
test_cancel(void)
{
	harness_spec spec = cancel_spec();
	gg_dataset	data;

	harness_data(&spec, &data, NULL, 0);
	cancel_cases(cancelled_build, &data);
	harness_free(&data, NULL);
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
