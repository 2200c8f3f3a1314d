/*
 * test_build.c
 *		k-NN graphs against exact neighbours, built graphs against their invariants, and how a build
 *		ends early: cancelled, out of memory, wrong arguments.
 */
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../src/engine/rules/pivots.h"
#include "../../src/engine/cpu/common/tile.h"
#include "graph_cases.h"

static const char *const element_names[] = {"?", "f32", "f16"};

static gg_control
threads(int count)
{
	gg_control	control = {.threads = count};

	return control;
}

/* ---- k-NN lists ------------------------------------------------------------ */

/* intermediate_graph_degree is set here. */
static void
knn_case_of(const harness_spec *spec, uint32_t k, gg_build_params params, double recall10,
			double recall, const char *what)
{
	gg_dataset	data;
	gg_control	control = threads(2);
	gg_build_stats stats;
	uint32_t   *ids;
	float	   *distances;
	double		recalls[2];

	params.intermediate_graph_degree = k;
	harness_data(spec, &data, NULL, 0);
	ids = malloc(sizeof(uint32_t) * data.n * k + 1);
	distances = malloc(sizeof(float) * data.n * k + 1);
	CHECK_OK(gg_cpu_knn_graph(&data, &params, &control, ids, distances, &stats), what);
	harness_lists_check(&data, ids, distances, k, 2e-5, 1e-5, what);
	harness_knn_recalls(&data, ids, k, (uint32_t[2]) {k < 10 ? k : 10, k}, harness_size(100, 4),
						1e-6, recalls);
	CHECK(recalls[0] >= recall10 && recalls[1] >= recall,
		  "%s: %s %s, n %u, dim %u, %u iterations: recall %.4f, all %u %.4f", what,
		  harness_metrics[data.metric], element_names[data.element], data.n, data.dim,
		  stats.iterations, recalls[0], k, recalls[1]);
	free(ids);
	free(distances);
	harness_free(&data, NULL);
}

static void
knn_case(const harness_spec *spec, uint32_t k, gg_init init, double recall10, double recall,
		 const char *what)
{
	gg_build_params params = {.graph_degree = 16, .seed = 5, .init = init};

	knn_case_of(spec, k, params, recall10, recall, what);
}

/* p of GNND: in as few iterations many samples find nearly all, and few do not. */
static void
test_samples(void)
{
	harness_spec spec = {.n = harness_size(1500, harness_fewer() ? 5 : 3), .dim = 32, .latent = 12,
		.seed = 8};
	gg_build_params params = {.graph_degree = 16, .seed = 5, .init = GG_INIT_RANDOM,
							  .max_iterations = 3};

	params.samples = 4;
	knn_case_of(&spec, 64, params, 0.3, 0.2, "p = 4");
	params.samples = 32;
	if (!harness_fewer())
		knn_case_of(&spec, 64, params, 0.95, 0.9, "p = 32");
	params.samples = GG_MAX_SAMPLES;
	knn_case_of(&spec, 64, params, 0.99, 0.98, "p = 64");
}

static void
test_metrics(void)
{
	for (gg_metric metric = GG_METRIC_L2; metric <= GG_METRIC_L1; metric++)
		for (gg_element element = GG_ELEMENT_F32; element <= GG_ELEMENT_F16; element++)
		{
			harness_spec small = {.n = harness_size(1500, harness_fewer() ? 6 : 3), .dim = 48,
				.metric = metric, .element = element, .seed = 1};
			harness_spec cells = {.n = harness_fewer() ? 6500 : 9000,
				.dim = harness_fewer() ? 16 : 40, .latent = harness_fewer() ? 8 : 12,
				.metric = metric, .element = element, .seed = 2};

			knn_case(&small, 32, GG_INIT_PIVOT_CELLS, 0.9999, 0.9999, "exact");
			if (harness_fewer() ? metric == GG_METRIC_COSINE && element == GG_ELEMENT_F16 :
				!harness_small() || element == GG_ELEMENT_F16)
				knn_case(&cells, harness_fewer() ? 32 : 64, GG_INIT_PIVOT_CELLS,
						 metric == GG_METRIC_IP ? 0.97 : 0.985, 0.96,
						 "cells");
		}
}

static void
test_dimensions(void)
{
	static const uint32_t dims[] = {1, 2, 3, 15, 16, 17, 31, 33, 97, 960, 2000, 4097};

	for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
		for (int metric = GG_METRIC_L2; metric <= GG_METRIC_L1;
			 metric += GG_METRIC_L1 - GG_METRIC_L2)
		{
			/* in one dimension, cells are crowded and ties many, but neighbours are neighbours */
			harness_spec spec = {.n = harness_fewer() ? 100 : harness_size(700, 3), .dim = dims[i],
				.metric = metric, .element = i % 2 ? GG_ELEMENT_F16 : GG_ELEMENT_F32, .seed = i};

			if (!harness_fewer() || dims[i] < 900)
				knn_case(&spec, 16, GG_INIT_PIVOT_CELLS, 0.9999, 0.9999, "dimensions");
		}
	{
		harness_spec long_rows = {.n = 6500, .dim = harness_small() ? 40 : 1100, .seed = 3};
		harness_spec short_rows = {.n = 7000, .dim = 1, .seed = 3};
		harness_spec longest = {.n = 40, .dim = 16000, .element = GG_ELEMENT_F16, .seed = 3};

		if (!harness_fewer())
		{
			knn_case(&long_rows, 64, GG_INIT_PIVOT_CELLS, 0.985, 0.96, "rows in pieces");
			knn_case(&short_rows, 24, GG_INIT_PIVOT_CELLS, 0.98, 0.95, "one dimension");
		}
		knn_case(&longest, 16, GG_INIT_PIVOT_CELLS, 0.9999, 0.9999, "longest rows");
	}
}

static void
test_lengths(void)
{
	static const uint32_t lengths[] = {1, 4, 15, 17, 100, 200, 512};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
	{
		harness_spec spec = {
			.n = !harness_fewer() ? harness_size(1200, 2) : lengths[i] > 200 ? 520 : 250, .dim = 24,
			.seed = i};

		knn_case(&spec, lengths[i], GG_INIT_PIVOT_CELLS, 0.9999, 0.9999, "list lengths");
	}
	if (!harness_fewer())
	{
		harness_spec spec = {.n = 8000, .dim = 24, .seed = 9};

		knn_case(&spec, 200, GG_INIT_PIVOT_CELLS, 0.985, 0.95, "long lists from cells");
		knn_case(&spec, 20, GG_INIT_PIVOT_CELLS, 0.97, 0.95, "short lists from cells");
	}
}

static void
test_random_start(void)
{
	/* a multiple of the list length, where a periodic start would fall apart */
	harness_spec spec = {.n = harness_fewer() ? 1600 : 6400, .dim = 32, .latent = 10, .seed = 4};

	knn_case(&spec, harness_fewer() ? 32 : 64, GG_INIT_RANDOM, 0.97, 0.93, "random start");
}

/* Tight clusters, copies, equal rows, far from the origin: where float32 loses differences. */
static void
test_hard_data(void)
{
	const uint32_t most = harness_fewer() ? 700 : 9000;

	for (uint32_t n = harness_fewer() ? 700 : 2000; n <= most; n += 7000)
	{
		harness_spec tight = {.shape = SHAPE_TIGHT, .n = n, .dim = 32, .clusters = 20, .seed = 6};
		harness_spec far_away = {.n = n, .dim = 32, .offset = 1000, .seed = 7};
		harness_spec copies = {.shape = SHAPE_COPIES, .n = n, .dim = 32, .seed = 8};
		harness_spec equal = {.shape = SHAPE_EQUAL, .n = n, .dim = 32, .seed = 8};

		knn_case(&tight, 32, GG_INIT_PIVOT_CELLS, 0.97, 0.95, "tight clusters");
		knn_case(&far_away, 32, GG_INIT_PIVOT_CELLS, 0.97, 0.95, "far from the origin");
		knn_case(&copies, 32, GG_INIT_PIVOT_CELLS, 0.97, 0.95, "20 copies");
		knn_case(&equal, 32, GG_INIT_PIVOT_CELLS, 1, 1, "equal rows");
		equal.metric = GG_METRIC_COSINE;
		knn_case(&equal, 32, GG_INIT_PIVOT_CELLS, 1, 1, "equal rows");
	}
}

/* Rows whose distances overflow have the distance +infinity, and still full lists. */
static void
test_overflow(void)
{
	harness_spec spec = {.n = 7000, .dim = 8, .seed = 4};
	gg_build_params params = {.graph_degree = 16, .intermediate_graph_degree = 32, .seed = 5};
	gg_control	control = threads(2);
	gg_dataset	data;
	uint32_t   *ids;
	float	   *distances;

	harness_data(&spec, &data, NULL, 0);
	for (uint32_t row = 0; row < data.n; row += 7)
		for (uint32_t e = 0; e < data.dim; e++)
			((float *) data.rows)[row * data.dim + e] *= row % 2 ? 1e30f : -1e30f;
	ids = malloc(sizeof(uint32_t) * data.n * 32);
	distances = malloc(sizeof(float) * data.n * 32);
	for (data.metric = GG_METRIC_L2; data.metric <= GG_METRIC_L1; data.metric++)
	{
		if (data.metric == GG_METRIC_COSINE)
			continue;			/* unit rows do not overflow */
		CHECK_OK(gg_cpu_knn_graph(&data, &params, &control, ids, distances, NULL), "overflow");
		harness_lists_check(&data, ids, distances, 32, 2e-5, 1e-5, harness_metrics[data.metric]);
	}
	free(ids);
	free(distances);
	harness_free(&data, NULL);
}

/* Each instruction set finds the same neighbours. */
static void
test_instruction_sets(void)
{
	static const char *const sets[] = {"amx", "avx512_bf16", "avx512", "avx2", "neon", "plain"};
	int			tested = 0;

	for (size_t s = 0; s < sizeof(sets) / sizeof(sets[0]); s++)
	{
		if (!gg_simd_force(sets[s]))
			continue;
		tested++;
		for (gg_metric metric = GG_METRIC_L2; metric <= GG_METRIC_L1; metric++)
		{
			harness_spec exact = {.n = 700, .dim = 37, .metric = metric, .seed = 1};
			harness_spec cells = {.n = 6500, .dim = 21, .latent = 10, .metric = metric, .seed = 2};
			/* these are rounded to bfloat16; the last in two pieces */
			harness_spec rounded = {.n = harness_fewer() ? 500 : 3000, .dim = 77, .latent = 10,
				.metric = metric, .element = GG_ELEMENT_F16, .seed = 3};
			harness_spec pieces = {.n = harness_fewer() ? 150 : 900, .dim = 1090, .latent = 10,
				.metric = metric, .seed = 4};

			knn_case(&exact, 30, GG_INIT_PIVOT_CELLS, 0.9999, 0.9999, sets[s]);
			if (!harness_small() && (metric == GG_METRIC_L2 || metric == GG_METRIC_L1))
				knn_case(&cells, 64, GG_INIT_PIVOT_CELLS, 0.985, 0.96, sets[s]);
			knn_case(&rounded, 32, GG_INIT_PIVOT_CELLS, 0.985, 0.96, sets[s]);
			knn_case(&pieces, 30, GG_INIT_PIVOT_CELLS, 0.998, 0.99, sets[s]);
		}
	}
	gg_simd_force(NULL);
	CHECK(tested > 0 && !gg_simd_force("mmx"), "%d instruction sets", tested);
}

/* ---- built graphs ------------------------------------------------------------ */

static const gg_build_params short_lists = {.graph_degree = 4,.intermediate_graph_degree = 4,
	.seed = 3};
static const gg_build_params usual = {.graph_degree = 16,.intermediate_graph_degree = 32,
	.seed = 3};

static void
test_tiny(void)
{
	const gg_build_params params[] = {usual, short_lists};

	tiny_cases(params, 2, 1);
}

static void
test_connected(void)
{
	static const gg_build_params degree_4 = {.graph_degree = 4,.intermediate_graph_degree = 8,
		.seed = 3};
	static const struct
	{
		harness_shape shape;
		uint32_t	n;
		uint32_t	clusters;
		const char *what;
	}			cases[] = {
		{SHAPE_UNIFORM, 3000, 1, "uniform"},
		{SHAPE_UNIFORM, 8192, 1, "multiple of the degree"},
		{SHAPE_MANIFOLD, 10000, 500, "500 clusters"},
		{SHAPE_TIGHT, 10000, 500, "500 tight clusters"},
		{SHAPE_TIGHT, 2000, 100, "100 tight clusters, exact"},
		{SHAPE_COPIES, 9000, 20, "20 copies of each row"},
		{SHAPE_EQUAL, 3000, 1, "equal rows, exact"},
		{SHAPE_EQUAL, 20000, 1, "equal rows"}
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		uint32_t	n = cases[i].n <= 6500 ? harness_size(cases[i].n, 2) : cases[i].n;
		harness_spec spec = {.shape = cases[i].shape, .n = n, .dim = 16,
			.clusters = cases[i].clusters, .seed = i};

		if (harness_small() && i % 2)
			continue;
		/* valgrind: cells are in other tests */
		if (harness_fewer() && cases[i].n > 6500)
			continue;
		graph_case(&spec, &usual, cases[i].what);
		if (!harness_fewer())
			graph_case(&spec, &degree_4, cases[i].what);
	}
}

/*
 * The bug: elements so small that every squared distance is 0.  All lists name the same few rows,
 * whose edges are soon in use, and almost half of the others became pivots.  The fix: there are
 * only so many, the rest is linked one after the other (gg_pivots_most).
 */
static void
test_vanishing(void)
{
	const uint32_t n = harness_fewer() ? 1500 : harness_size(20000, 4);
	harness_spec spec = {.shape = SHAPE_UNIFORM, .n = n, .dim = 32, .seed = 5};
	gg_build_params params = usual;
	gg_control	control = threads(2);
	gg_dataset	data;
	gg_build_stats stats;
	gg_graph	graph;

	harness_data(&spec, &data, NULL, 0);
	for (size_t i = 0; i < (size_t) data.n * data.dim; i++)
		((float *) data.rows)[i] *= 1e-30f;
	if (CHECK_OK(gg_cpu_build(&data, &params, &control, &graph, &stats), "vanishing distances"))
	{
		harness_graph_check(&graph, data.n, 16, true, "vanishing distances");
		CHECK(graph.npivots <= gg_pivots_most(data.n), "%u pivots of %u rows", graph.npivots,
			  data.n);
	}
	gg_graph_free(&graph);
	harness_free(&data, NULL);
}

static void
test_determinism(void)
{
	harness_spec spec = {.n = harness_fewer() ? 1000 : 9000, .dim = 24, .seed = 3};
	gg_build_params params = usual;
	gg_control	control = threads(1);
	gg_dataset	data;
	gg_graph	graphs[3];

	harness_data(&spec, &data, NULL, 0);
	for (int i = 0; i < 3; i++)
	{
		params.seed = i < 2 ? 3 : 4;
		CHECK_OK(gg_cpu_build(&data, &params, &control, &graphs[i], NULL), "determinism");
	}
	CHECK(harness_graphs_equal(&graphs[0], &graphs[1]), "same seed");
	CHECK(!harness_graphs_equal(&graphs[0], &graphs[2]), "another seed");
	for (int i = 0; i < 3; i++)
		gg_graph_free(&graphs[i]);
	harness_free(&data, NULL);
}

/* ---- ends ---------------------------------------------------------------------- */

typedef struct cancel_state
{
	gg_phase	phase;			/* cancel in this phase, */
	uint64_t	done;			/* at this count, */
	double		after;			/* or so many processor seconds after the start */
	double		start;
	double		when;			/* it was, 0: not yet */
	uint64_t	asked;
	double		last;
	double		longest;		/* processor seconds between two questions */
	pthread_t	caller;
	bool		elsewhere;		/* a callback came from another thread */
	uint64_t	phases[4];		/* largest done of each phase */
	bool		backwards;
} cancel_state;

static cancel_state
begin_cancel(gg_phase phase, uint64_t done)
{
	double		now = harness_processor_seconds();

	return (cancel_state) {.phase = phase, .done = done, .start = now, .last = now,
		.caller = pthread_self()};
}

static bool
cancel_now(void *arg)
{
	cancel_state *state = arg;
	double		now = harness_processor_seconds();

	state->elsewhere = state->elsewhere || !pthread_equal(state->caller, pthread_self());
	state->asked++;
	if (now - state->last > state->longest)
		state->longest = now - state->last;
	state->last = now;
	if (state->when == 0 && state->after > 0 && now - state->start > state->after)
		state->when = now;
	return state->when > 0;
}

static void
cancel_progress(void *arg, gg_phase phase, uint64_t done, uint64_t total)
{
	cancel_state *state = arg;

	state->elsewhere = state->elsewhere || !pthread_equal(state->caller, pthread_self()) ||
		done > total;
	state->backwards = state->backwards || done < state->phases[phase];
	state->phases[phase] = done;
	if (state->when == 0 && phase == state->phase && done >= state->done)
		state->when = harness_processor_seconds();
}

static size_t
heap_bytes(void)
{
	return mallinfo2().uordblks + mallinfo2().hblkhd;
}

static void
test_cancel(void)
{
	/* slow checkers take longer to compute, not to notice */
	double		limit = harness_small() ? 20 : 1;
	harness_spec spec = {.n = harness_fewer() ? 6500 : harness_size(30000, 4),
		.dim = harness_fewer() ? 16 : 64, .seed = 3};
	gg_build_params params = {.graph_degree = harness_fewer() ? 16 : 32,
							  .intermediate_graph_degree = harness_fewer() ? 32 : 64, .seed = 3};
	gg_dataset	data;

	harness_data(&spec, &data, NULL, 0);
	for (int i = 0; i < 16; i += harness_fewer() ? 5 : 1)
	{
		cancel_state state = begin_cancel((gg_phase) (i % 4), i < 4 ? 0 : data.n / 3);
		gg_control	control = {.cancelled = cancel_now, .progress = cancel_progress, .ctx = &state,
							   .threads = 1 + i % 3};
		gg_graph	graph;
		size_t		before = heap_bytes();
		gg_status	status;
		double		since;

		/* phases 8 and up: at some time instead */
		if (i >= 8)
		{
			state.after = 0.03 * (i - 7);
			state.done = UINT64_MAX;
		}
		status = gg_cpu_build(&data, &params, &control, &graph, NULL);
		since = harness_processor_seconds() - state.when;
		CHECK(!state.elsewhere, "callbacks come from the calling thread");
		if (state.when > 0 && status.code != GG_OK)
		{
			CHECK(status.code == GG_ECANCELED, "case %d: code %d", i, (int) status.code);
			CHECK(since < limit, "case %d: %.2f s to the end", i, since);
			CHECK(graph.adjacency == NULL && graph.pivots == NULL, "case %d: no graph is left", i);
		}
		else
			/* a stage can be done before the next question */
			CHECK(status.code == GG_OK, "case %d: code %d %s", i, (int) status.code,
				  status.message);
		gg_graph_free(&graph);
		if (!harness_small())
			CHECK(heap_bytes() <= before + 4096, "case %d: %zu bytes are left", i,
				  heap_bytes() - before);
	}
	if (!harness_fewer())
	{
		cancel_state state = begin_cancel(GG_PHASE_CONNECT, UINT64_MAX);
		gg_control	control = {.cancelled = cancel_now, .progress = cancel_progress, .ctx = &state,
							   .threads = 2};
		gg_graph	graph;

		CHECK_OK(gg_cpu_build(&data, &params, &control, &graph, NULL), "not cancelled");
		CHECK(!state.backwards, "progress goes forwards");
		CHECK(state.longest < 0.1 * 10 * limit, "%.3f s without a question", state.longest);
		gg_graph_free(&graph);
	}
	harness_free(&data, NULL);
}

/* The longest rows there are: the unit of work is a tile, not a cell. */
static void
test_cancel_long_rows(void)
{
	uint32_t	n = harness_size(1500, 8);
	uint16_t   *rows = malloc(sizeof(uint16_t) * n * 16000);
	gg_dataset	data = {rows, n, 16000, GG_ELEMENT_F16, GG_METRIC_L2};
	gg_build_params params = {.graph_degree = 32, .intermediate_graph_degree = 64, .seed = 3};
	cancel_state state;
	gg_control	control = {.cancelled = cancel_now, .progress = cancel_progress, .ctx = &state,
						   .threads = 2};
	harness_random random = {1};
	gg_graph	graph;
	gg_status	status;
	double		since;

	for (size_t i = 0; i < (size_t) n * 16000; i++)
		rows[i] = (uint16_t) (0x3000 + (i < 64000 ? harness_unit(&random) * 0x800 :
										rows[i % 64000] ^ (i / 64000 & 0xFF)));
	state = begin_cancel(GG_PHASE_CONNECT, UINT64_MAX);
	state.after = 0.2;
	status = gg_cpu_build(&data, &params, &control, &graph, NULL);
	since = harness_processor_seconds() - state.when;
	if (status.code == GG_OK)
		CHECK(state.when == 0 || since < 0.2, "a cancelled build went on");
	else
	{
		CHECK(status.code == GG_ECANCELED, "code %d", (int) status.code);
		CHECK(since < (harness_small() ? 20 : 1), "%.2f s to the end", since);
	}
	gg_graph_free(&graph);
	free(rows);
}

typedef struct many_state
{
	bool		over;			/* the lists are begun */
	/* this thread's processor time, for others may be using the machine */
	double		last;
	double		longest;
} many_state;

static double
thread_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}

static bool
many_cancelled(void *arg)
{
	many_state *state = arg;
	double		now = thread_now();

	if (now - state->last > state->longest)
		state->longest = now - state->last;
	state->last = now;
	return state->over;
}

static void
many_progress(void *arg, gg_phase phase, uint64_t done, uint64_t total)
{
	(void) done;
	(void) total;
	((many_state *) arg)->over = phase != GG_PHASE_KNN_INIT;
}

/*
 * Rows so many that even what is done once a row, by one thread, takes longer than the time between
 * two questions.
 */
static void
test_cancel_many_rows(void)
{
	uint32_t	n = 1000000;
	float	   *rows;
	gg_dataset	data = {NULL, n, 1, GG_ELEMENT_F32, GG_METRIC_L2};
	gg_build_params params = {.graph_degree = 8, .intermediate_graph_degree = 16, .seed = 3};
	many_state	state = {.last = thread_now()};
	gg_control	control = {.cancelled = many_cancelled, .progress = many_progress, .ctx = &state,
						   .threads = 1};
	harness_random random = {1};
	gg_graph	graph;

	/* small sizes say nothing here, and slow checkers have no time for others */
	if (harness_small())
		return;
	data.rows = rows = malloc(sizeof(float) * n);
	for (uint32_t i = 0; i < n; i++)
		rows[i] = harness_unit(&random);
	CHECK(gg_cpu_build(&data, &params, &control, &graph, NULL).code == GG_ECANCELED, "cancelled");
	CHECK(state.longest < 0.1, "%.3f s without a question", state.longest);
	gg_graph_free(&graph);
	free(rows);
}

/* The engine's threads take no signals: a process's timer must interrupt its own code. */
static pthread_t main_thread;
static volatile sig_atomic_t signals_elsewhere;
static volatile sig_atomic_t signals_seen;

static void
on_alarm(int number)
{
	(void) number;
	signals_seen++;
	if (!pthread_equal(pthread_self(), main_thread))
		signals_elsewhere++;
}

static void
test_signals(void)
{
	harness_spec spec = {.n = 12000, .dim = 64, .seed = 3};
	gg_build_params params = {.graph_degree = 32, .intermediate_graph_degree = 64, .seed = 3};
	gg_control	control = threads(4);
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct sigaction saved;
	timer_t		timer;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	struct itimerspec every = {{0, 2000000}, {0, 2000000}};
	gg_dataset	data;
	gg_graph	graph;

	harness_data(&spec, &data, NULL, 0);
	main_thread = pthread_self();
	sigaction(SIGALRM, &action, &saved);
	timer_create(CLOCK_MONOTONIC, &event, &timer);
	timer_settime(timer, 0, &every, NULL);
	CHECK_OK(gg_cpu_build(&data, &params, &control, &graph, NULL), "with signals");
	timer_delete(timer);
	sigaction(SIGALRM, &saved, NULL);
	CHECK(signals_seen > 0 && signals_elsewhere == 0, "%d signals, %d of them elsewhere",
		  (int) signals_seen, (int) signals_elsewhere);
	gg_graph_free(&graph);
	harness_free(&data, NULL);
}

/*
 * build_bytes() against the resident size of a process that does nothing else.  The rows are few
 * elements long and many, so that what grows with them is most of it.
 */
static void
bytes_case(gg_algorithm algorithm, const harness_spec *spec, uint32_t degree, uint32_t k,
		   gg_init init, const char *what)
{
	gg_build_params params = {.algorithm = algorithm, .graph_degree = degree,
							  .intermediate_graph_degree = k, .seed = 3, .init = init,
							  .max_iterations = 2};
	gg_control	control = threads(2);
	gg_dataset	data;
	gg_bytes	bytes = {0};
	pid_t		child;
	int			status = 0;
	int			channel[2];
	double		used = 0;

	harness_data(spec, &data, NULL, 0);
	CHECK_OK(gg_cpu_build_bytes(&data, &params, &control, &bytes), what);
	if (!CHECK(pipe(channel) == 0, "pipe"))
		return;
	child = fork();
	if (child == 0)
	{
		struct rusage before,
					after;
		gg_graph	graph;

		/* huge pages would count what is next to memory that is used */
		prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
		malloc_trim(0);
		/* else malloc() keeps what was given back */
		mallopt(M_MMAP_THRESHOLD, 64 * 1024);
		getrusage(RUSAGE_SELF, &before);
		if (gg_cpu_build(&data, &params, &control, &graph, NULL).code != GG_OK)
			_exit(1);
		getrusage(RUSAGE_SELF, &after);
		used = 1024.0 * (double) (after.ru_maxrss - before.ru_maxrss);
		_exit(write(channel[1], &used, sizeof(used)) != sizeof(used));
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0 && read(channel[0], &used,
																	 sizeof(used)) == sizeof(used),
		  "%s: child ended with %d", what, status);
	close(channel[0]);
	close(channel[1]);
	/* short joins leave most of the tiles' memory untouched */
	CHECK((double) bytes.host <= 1.3 * used + 2 * (double) gg_tile_memory_bytes(data.dim + 1) &&
		  used <= 1.1 * (double) bytes.host,
		  "%s: %.1f MB estimated, %.1f MB used", what, (double) bytes.host / 1e6, used / 1e6);
	CHECK(bytes.device == 0, "%s: no device", what);
	harness_free(&data, NULL);
}

static void
test_bytes(void)
{
	harness_spec rows = {.n = 16000, .dim = 8, .seed = 3};
	/* beside what a build takes in any case */
	harness_spec more = rows;
	harness_spec most = rows;
	harness_spec exact = {.n = 2500, .dim = 8, .seed = 3};
	harness_spec product = {.n = 16000, .dim = 8, .metric = GG_METRIC_IP, .element = GG_ELEMENT_F16,
		.seed = 3};
	harness_spec wide = {.n = 8000, .dim = 2000, .element = GG_ELEMENT_F16, .seed = 3};

	/* checkers keep books of their own in the same memory */
	if (harness_small())
		return;
	more.n = 30000;
	most.n = 60000;
	bytes_case(GG_ALGORITHM_CAGRA, &rows, 32, 64, GG_INIT_PIVOT_CELLS, "cells");
	bytes_case(GG_ALGORITHM_CAGRA, &rows, 16, 17, GG_INIT_PIVOT_CELLS, "short lists");
	bytes_case(GG_ALGORITHM_CAGRA, &rows, 32, 64, GG_INIT_RANDOM, "random start");
	bytes_case(GG_ALGORITHM_CAGRA, &exact, 64, 512, GG_INIT_PIVOT_CELLS, "exact, long lists");
	bytes_case(GG_ALGORITHM_CAGRA, &product, 32, 64, GG_INIT_PIVOT_CELLS, "inner product");
	bytes_case(GG_ALGORITHM_CAGRA, &wide, 32, 64, GG_INIT_PIVOT_CELLS, "wide rows");
	bytes_case(GG_ALGORITHM_TSDG, &most, 32, 64, GG_INIT_PIVOT_CELLS, "tsdg");
	bytes_case(GG_ALGORITHM_GRNND, &more, 32, 64, GG_INIT_PIVOT_CELLS, "grnnd");
	bytes_case(GG_ALGORITHM_GRNND, &product, 32, 64, GG_INIT_RANDOM, "grnnd, random pools");
}

static void
test_arguments(void)
{
	float		rows[8] = {0};
	gg_dataset	data = {rows, 2, 4, GG_ELEMENT_F32, GG_METRIC_L2};
	gg_build_params good = {.graph_degree = 16, .intermediate_graph_degree = 32};
	gg_build_params params = good;
	gg_bytes	bytes;
	gg_graph	graph;

	params.graph_degree = 3;
	CHECK(gg_cpu_build(&data, &params, NULL, &graph, NULL).code == GG_EINVAL, "degree 3");
	params.graph_degree = GG_MAX_DEGREE / 2 + 1;
	params.intermediate_graph_degree = GG_MAX_DEGREE;
	CHECK(gg_cpu_build(&data, &params, NULL, &graph, NULL).code == GG_EINVAL, "degree too large");
	params = good;
	params.intermediate_graph_degree = 15;
	CHECK(gg_cpu_build(&data, &params, NULL, &graph, NULL).code == GG_EINVAL,
		  "lists shorter than the degree");
	params.intermediate_graph_degree = GG_MAX_DEGREE + 1;
	CHECK(gg_cpu_build_bytes(&data, &params, NULL, &bytes).code == GG_EINVAL, "lists too long");
	params = good;
	params.samples = GG_MAX_SAMPLES + 1;
	CHECK(gg_cpu_build(&data, &params, NULL, &graph, NULL).code == GG_EINVAL, "too many samples");
	data.dim = 0;
	CHECK(gg_cpu_build(&data, &good, NULL, &graph, NULL).code == GG_EINVAL, "dimension 0");
	data.dim = GG_MAX_DIM + 1;
	CHECK(gg_cpu_build(&data, &good, NULL, &graph, NULL).code == GG_EINVAL, "dimension too large");
	data.dim = 4;
	data.metric = (gg_metric) 9;
	CHECK(gg_cpu_build(&data, &good, NULL, &graph, NULL).code == GG_EINVAL, "metric 9");
}

int
main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	harness_run("bytes", test_bytes);				/* first: the process is small */
	harness_run("arguments", test_arguments);
	harness_run("tiny", test_tiny);
	harness_run("samples", test_samples);
	harness_run("metrics", test_metrics);
	harness_run("dimensions", test_dimensions);
	harness_run("lengths", test_lengths);
	harness_run("random start", test_random_start);
	harness_run("hard data", test_hard_data);
	harness_run("overflow", test_overflow);
	harness_run("instruction sets", test_instruction_sets);
	harness_run("connected", test_connected);
	harness_run("vanishing", test_vanishing);
	harness_run("determinism", test_determinism);
	harness_run("cancel", test_cancel);
	harness_run("cancel long rows", test_cancel_long_rows);
	harness_run("cancel many rows", test_cancel_many_rows);
	/* valgrind hands signals on itself */
	if (!harness_fewer())
		harness_run("signals", test_signals);
	return harness_finish();
}
