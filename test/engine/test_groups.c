/*
 * test_groups.c
 *		Graphs whose k-NN lists are made by groups, in little memory: they are as good as others,
 *		whatever the rows are, and memory is kept to.
 */
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/engine/cpu/build/groups.h"
#include "harness.h"

#define K			10
#define QUERIES		100

/* Below 8,000 rows there are no groups. */
#define ROWS		8200

/* ---- scratch memory --------------------------------------------------------- */

typedef struct scratch_state
{
	void	   *taken[8];
	int			count;
	int			most;			/* fail when so many were taken */
	int			until_cancel;	/* look-ups of cancelled() before it says yes; -1: never */
	uint64_t	done;			/* of progress, most */
	bool		backward;
} scratch_state;

static void *
take_scratch(void *ctx, uint64_t bytes)
{
	scratch_state *state = ctx;

	if (state->count >= state->most)
		return NULL;
	return state->taken[state->count++] = malloc(bytes + 1);
}

static bool
is_cancelled(void *ctx)
{
	scratch_state *state = ctx;

	return state->until_cancel >= 0 && state->until_cancel-- == 0;
}

static void
note_progress(void *ctx, gg_phase phase, uint64_t done, uint64_t total)
{
	scratch_state *state = ctx;

	(void) phase;
	state->backward |= done > total;
	state->done = done > state->done ? done : state->done;
}

static gg_control
small_memory(scratch_state *state, uint64_t memory, int threads)
{
	gg_control	control = {
		.cancelled = is_cancelled, .progress = note_progress, .ctx = state, .threads = threads,
		.memory = memory, .scratch = take_scratch
	};

	*state = (scratch_state) {.most = 8, .until_cancel = -1};
	return control;
}

static void
give_scratch(scratch_state *state)
{
	while (state->count > 0)
		free(state->taken[--state->count]);
}

/* ---- tests ------------------------------------------------------------------------ */

static gg_build_params params = {
	.graph_degree = 32, .intermediate_graph_degree = 64, .seed = 1
};

/* An eighth of what the lists of all rows take in memory. */
static uint64_t
little_memory(const gg_dataset *data, const gg_build_params *wanted)
{
	gg_bytes	bytes;
	gg_control	two = {.threads = 2};

	CHECK_OK(gg_cpu_engine.build_bytes(data, wanted, &two, &bytes), "build_bytes");
	return bytes.host / 8;
}

static void
check_recall(const harness_spec *spec, const gg_build_params *wanted, int threads,
			 double loss, const char *what)
{
	gg_dataset	data;
	float	   *queries;
	gg_control	plain = {.threads = threads};
	scratch_state state;
	gg_control	control;
	gg_graph	one,
				grouped;
	double		expected,
				found;

	harness_data(spec, &data, &queries, QUERIES);
	control = small_memory(&state, little_memory(&data, wanted), threads);
	CHECK_OK(gg_cpu_engine.build(&data, wanted, &plain, &one, NULL), what);
	CHECK_OK(gg_cpu_engine.build(&data, wanted, &control, &grouped, NULL), what);
	CHECK(state.count == 2, "%s: %d pieces of scratch memory", what, state.count);
	CHECK(!state.backward && state.done > 0, "%s: progress", what);
	harness_graph_check(&grouped, data.n, wanted->graph_degree, false, what);
	expected = harness_walk(&data, &one, queries, QUERIES, 32, what).recall;
	found = harness_walk(&data, &grouped, queries, QUERIES, 32, what).recall;
	CHECK(found >= expected - loss, "%s: recall %.4f, of one in memory %.4f", what, found,
		  expected);
	gg_graph_free(&one);
	gg_graph_free(&grouped);
	give_scratch(&state);
	harness_free(&data, queries);
}

static void
test_metrics(void)
{
	for (int metric = GG_METRIC_L2; metric <= GG_METRIC_L1; metric++)
		for (int element = GG_ELEMENT_F32; element <= GG_ELEMENT_F16; element++)
		{
			harness_spec spec = {.n = ROWS, .dim = 40, .metric = (gg_metric) metric,
				.element = (gg_element) element, .seed = 5};
			char		what[64];

			/* each metric once, and both elements: neither asks what the other is */
			if ((metric + element) % 2 == 1)
				continue;
			snprintf(what, sizeof(what), "%s, %s", harness_metrics[metric],
					 element == GG_ELEMENT_F16 ? "f16" : "f32");
			check_recall(&spec, &params, 1 + metric % 2, 0.005, what);
		}
}

static void
test_algorithm(void)
{
	harness_spec spec = {.n = ROWS, .dim = 40, .seed = 5};
	gg_build_params wanted = params;

	wanted.algorithm = GG_ALGORITHM_TSDG;
	check_recall(&spec, &wanted, 2, 0.005, "tsdg");
	wanted.algorithm = GG_ALGORITHM_CAGRA;
	wanted.intermediate_graph_degree = 50;
	wanted.graph_degree = 20;
	check_recall(&spec, &wanted, 2, 0.005, "lists of 50");
}

/* Rows that are hard to cut into groups, and some that have no distance at all. */
static void
test_shapes(void)
{
	static const harness_shape shapes[] = {SHAPE_EQUAL, SHAPE_COPIES, SHAPE_TIGHT, SHAPE_UNIFORM};

	/* slow checkers: equal rows and copies */
	for (int i = 0; i < (harness_small() ? 2 : 4); i++)
	{
		harness_spec spec = {.shape = shapes[i], .n = ROWS, .dim = 16, .seed = 3};
		char		what[32];

		snprintf(what, sizeof(what), "shape %d", (int) shapes[i]);
		/* uniform rows have no groups: each of 4,000 is mostly border */
		check_recall(&spec, &params, 1 + i % 2, shapes[i] == SHAPE_UNIFORM ? 0.02 : 0.005, what);
	}
	for (int threads = 1 + harness_small(); threads <= 2; threads++)
	{
		harness_spec spec = {.n = ROWS, .dim = 16, .seed = 3};
		gg_dataset	data;
		float	   *queries;
		scratch_state state;
		gg_control	control;
		gg_graph	graph;

		harness_data(&spec, &data, &queries, QUERIES);
		for (uint32_t row = 0; row < data.n; row += 3)
			((float *) data.rows)[(size_t) row * data.dim] = row % 2 ? NAN : INFINITY;
		control = small_memory(&state, little_memory(&data, &params), threads);
		CHECK_OK(gg_cpu_engine.build(&data, &params, &control, &graph, NULL), "no distances");
		harness_graph_check(&graph, data.n, params.graph_degree, false, "no distances");
		gg_graph_free(&graph);
		give_scratch(&state);
		harness_free(&data, queries);
	}
}

/* Lists are sorted, hold no row twice, and tell true distances. */
static void
test_lists(void)
{
	harness_spec spec = {.n = ROWS, .dim = harness_fewer() ? 8 : 24, .metric = GG_METRIC_IP,
		.seed = 9};
	gg_dataset	data;
	float	   *queries;
	uint32_t	k = params.intermediate_graph_degree;
	gg_control	one = {.threads = 1};
	gg_build_stats stats = {0};
	uint32_t   *order;
	uint32_t   *ids;
	float	   *distances;
	uint32_t   *again;
	unsigned char *seen;
	gg_pool    *pool;
	uint64_t	broken = 0;
	double		share;

	harness_data(&spec, &data, &queries, QUERIES);
	ids = malloc((size_t) data.n * k * sizeof(uint32_t));
	again = malloc((size_t) data.n * k * sizeof(uint32_t));
	distances = malloc((size_t) data.n * k * sizeof(float));
	seen = calloc(data.n, 1);
	CHECK_OK(gg_pool_create(&pool, &one), "pool");
	CHECK_OK(gg_cpu_groups_run(pool, &data, &params, 1, (gg_list_room) {ids, distances}, &order,
							   &stats), "groups");
	for (uint32_t i = 0; i < data.n; i++)
		seen[order[i]]++;
	for (uint32_t i = 0; i < data.n; i++)
		broken += seen[i] != 1;
	CHECK(broken == 0, "the order has %llu rows not once", (unsigned long long) broken);
	free(order);
	for (uint32_t row = 0; row < data.n; row += harness_fewer() ? 200 : 50)
		for (uint32_t i = 0; i < k; i++)
		{
			size_t		at = (size_t) row * k + i;
			double		d = harness_row_distance(&data, row, ids[at]);

			broken += ids[at] == row || (i > 0 && distances[at] < distances[at - 1]) ||
				fabs(distances[at] - d) > 1e-3 * (1 + fabs(d));
			for (uint32_t j = 0; j < i; j++)
				broken += ids[at - i + j] == ids[at];
		}
	CHECK(broken == 0, "%llu entries", (unsigned long long) broken);
	share = harness_knn_recall(&data, ids, k, K, harness_size(100, 4), 1e-6);
	CHECK(share >= 0.9, "share of true neighbours %.4f", share);
	if (!harness_fewer())
	{
		CHECK_OK(gg_cpu_groups_run(pool, &data, &params, 1, (gg_list_room) {again, distances},
								   &order, &stats), "groups again");
		CHECK(memcmp(ids, again, (size_t) data.n * k * sizeof(uint32_t)) == 0,
			  "not the same again");
		free(order);
	}
	gg_pool_free(pool);
	free(ids);
	free(again);
	free(distances);
	free(seen);
	harness_free(&data, queries);
}

/* build_bytes() says what a build takes, and with more memory it takes no scratch. */
static void
test_memory(void)
{
	harness_spec spec = {.n = harness_size(60000, 4), .dim = 64, .seed = 9};
	gg_dataset	data;
	float	   *queries;
	scratch_state state;
	gg_control	control;
	gg_bytes	all,
				bytes;
	gg_graph	graph;
	uint64_t	budget;

	harness_data(&spec, &data, &queries, QUERIES);
	control = small_memory(&state, 0, 2);
	CHECK_OK(gg_cpu_engine.build_bytes(&data, &params, &control, &all), "build_bytes");
	budget = all.host * 2 / 3;
	control.memory = budget;
	CHECK_OK(gg_cpu_engine.build_bytes(&data, &params, &control, &bytes), "build_bytes");
	CHECK(bytes.host <= budget, "%llu of %llu bytes, %llu for all",
		  (unsigned long long) bytes.host, (unsigned long long) budget,
		  (unsigned long long) all.host);
	/* nothing fits: what is said is more, and no less than the graph */
	control.memory = 1;
	CHECK_OK(gg_cpu_engine.build_bytes(&data, &params, &control, &bytes), "build_bytes");
	CHECK(bytes.host > (uint64_t) data.n * params.graph_degree * 4 && bytes.host < all.host,
		  "%llu bytes", (unsigned long long) bytes.host);
	control.memory = all.host;
	CHECK_OK(gg_cpu_engine.build(&data, &params, &control, &graph, NULL), "with enough memory");
	CHECK(state.count == 0, "scratch memory was taken");
	gg_graph_free(&graph);
	/* many rows in very little memory: groups are larger rather than more than there may be */
	data.n = 100000000;
	CHECK(gg_cpu_groups_bytes(&data, &params, 1, 2) / 1000000 > data.dim * sizeof(float),
		  "%llu bytes", (unsigned long long) gg_cpu_groups_bytes(&data, &params, 1, 2));
	data.n = spec.n;
	harness_free(&data, queries);
}

/* A build that is cancelled, or gets no scratch memory, ends and leaves nothing. */
static void
test_ends(void)
{
	harness_spec spec = {.n = ROWS, .dim = harness_fewer() ? 8 : 32, .metric = GG_METRIC_COSINE,
		.element = GG_ELEMENT_F16, .seed = 9};
	gg_dataset	data;
	float	   *queries;
	scratch_state state;
	gg_control	control;
	gg_graph	graph;
	gg_status	status;
	int			cancelled = 0;

	harness_data(&spec, &data, &queries, QUERIES);
	for (int most = 0; most < 2; most++)
	{
		control = small_memory(&state, little_memory(&data, &params), 2);
		state.most = most;
		status = gg_cpu_engine.build(&data, &params, &control, &graph, NULL);
		CHECK(status.code == GG_ENOMEM && graph.adjacency == NULL, "%d pieces: %s", most,
			  status.message);
		give_scratch(&state);
	}
	for (int until = 0; until < 40; until += 1 + (harness_fewer() ? 3 * until : until / 4))
	{
		control = small_memory(&state, little_memory(&data, &params), 2);
		state.until_cancel = until;
		status = gg_cpu_engine.build(&data, &params, &control, &graph, NULL);
		CHECK(status.code == GG_ECANCELED || status.code == GG_OK, "after %d: %s", until,
			  status.message);
		cancelled += status.code == GG_ECANCELED;
		gg_graph_free(&graph);
		give_scratch(&state);
	}
	CHECK(cancelled > 0, "none was cancelled");
	harness_free(&data, queries);
}

int
main(void)
{
	if (!harness_fewer())
		harness_run("memory", test_memory);
	/* slow checkers: shorter lists */
	if (harness_small())
	{
		params.graph_degree = 16;
		params.intermediate_graph_degree = 32;
	}
	harness_run("lists", test_lists);
	harness_run("ends", test_ends);
	if (!harness_fewer())
	{
		harness_run("metrics", test_metrics);
		harness_run("algorithm", test_algorithm);
		harness_run("shapes", test_shapes);
	}
	return harness_finish();
}
