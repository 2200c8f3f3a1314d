/*
 * graph_cases.h
 *		What the tests of every graph algorithm ask of the CPU engine: tiny sets, hard shapes,
 *		recall, cancellation, refusals.
 */
#ifndef GG_TEST_GRAPH_CASES_H
#define GG_TEST_GRAPH_CASES_H

#include <stdlib.h>
#include <string.h>

#include "build_stages.h"
#include "harness.h"

/* One graph over the rows; what a graph promises is checked. */
static inline void
graph_case(const harness_spec *spec, const gg_build_params *params, const char *what)
{
	gg_dataset	data;
	gg_control	control = {.threads = 2};
	gg_graph	graph;

	harness_data(spec, &data, NULL, 0);
	if (CHECK_OK(gg_cpu_build(&data, params, &control, &graph, NULL), what))
		harness_graph_check(&graph, data.n, params->graph_degree,
							params->algorithm == GG_ALGORITHM_CAGRA &&
							data.n > 4 * params->graph_degree, what);
	gg_graph_free(&graph);
	CHECK(graph.adjacency == NULL && graph.npivots == 0, "%s: freed", what);
	harness_free(&data, NULL);
}

/* Sets of 0 to 320 rows of every shape, with each of some parameters; valgrind: each step-th. */
static inline void
tiny_cases(const gg_build_params *params, size_t count, size_t step)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 66,
									 128, 320};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i += harness_fewer() ? step : 1)
		for (harness_shape shape = SHAPE_MANIFOLD; shape <= SHAPE_TIGHT; shape++)
			for (gg_element element = GG_ELEMENT_F32; element <= GG_ELEMENT_F16; element++)
				for (size_t p = 0; p < count; p++)
				{
					const harness_spec spec = {.shape = shape,.n = sizes[i],.dim = 5,
						.metric = (gg_metric) (1 + i % 4),.element = element,.seed = i};

					graph_case(&spec, &params[p], "tiny");
				}
}

/* Sets whose near neighbours alone make no connected graph, with each of some parameters. */
static inline void
connected_cases(const gg_build_params *params, size_t count)
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
			.clusters = cases[i].clusters, .seed = i};

		for (size_t p = 0; p < count; p++)
			graph_case(&spec, &params[p], cases[i].what);
	}
}

/* ---- recall ------------------------------------------------------------------ */

typedef struct recall_set
{
	gg_dataset	data;
	float	   *queries;
	uint32_t	nq;
} recall_set;

/* recall@10 of searches at itopk 64 over a graph that is built by params. */
static inline double
recall_of(const recall_set *set, const gg_build_params *params)
{
	gg_control	control = {.threads = 2};
	gg_graph	graph;
	double		recall;

	CHECK_OK(gg_cpu_build(&set->data, params, &control, &graph, NULL), "recall");
	recall = harness_walk(&set->data, &graph, set->queries, set->nq, 64, "recall").recall;
	gg_graph_free(&graph);
	return recall;
}

/* judge() is called with sets of every metric, and number i of each. */
static inline void
recall_cases(void (*judge) (const recall_set *set, size_t i))
{
	static const harness_spec cases[] = {
		{.dim = 32},
		{.dim = 32,.metric = GG_METRIC_IP},
		{.dim = 32,.metric = GG_METRIC_COSINE,.element = GG_ELEMENT_F16},
		{.dim = 32,.metric = GG_METRIC_L1},
		{.dim = 32,.shape = SHAPE_TIGHT,.clusters = 50},
		{.dim = 8,.shape = SHAPE_UNIFORM,.element = GG_ELEMENT_F16}
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		harness_spec spec = cases[i];
		recall_set	set = {.nq = 200};

		spec.n = harness_size(8000, 4);
		spec.seed = 9 + i;
		harness_data(&spec, &set.data, &set.queries, set.nq);
		judge(&set, i);
		harness_free(&set.data, set.queries);
	}
}

/* ---- ends -------------------------------------------------------------------- */

typedef struct graph_watch
{
	uint64_t	asked;
	uint64_t	cancel_at;
	double		last;
	double		longest;		/* processor seconds between two questions */
} graph_watch;

static inline bool
graph_watch_cancelled(void *ctx)
{
	graph_watch *w = ctx;
	double		now = harness_processor_seconds();

	if (now - w->last > w->longest)
		w->longest = now - w->last;
	w->last = now;
	return ++w->asked == w->cancel_at;
}

/*
 * Cancel a run at its questions, one run after the other; and it asks often.  run() checks for
 * itself what it leaves when it is cancelled.
 */
static inline void
cancel_cases(gg_status (*run) (const gg_control *control, void *ctx), void *ctx)
{
	graph_watch w = {.last = harness_processor_seconds()};
	gg_control	control = {.cancelled = graph_watch_cancelled, .ctx = &w, .threads = 2};
	uint64_t	asked;

	CHECK_OK(run(&control, ctx), "not cancelled");
	CHECK(w.longest < (harness_small() ? 20 : 1), "%.3f s without a question", w.longest);
	asked = w.asked;
	CHECK(asked > 0, "%lu questions", (unsigned long) asked);
	for (uint64_t at = 1; at <= asked; at += 1 + asked / 7)
	{
		gg_status	status;

		w.asked = 0;
		w.cancel_at = at;
		status = run(&control, ctx);
		/* another run may ask fewer questions */
		CHECK(status.code == GG_ECANCELED || (status.code == GG_OK && w.asked < at),
			  "question %lu of %lu: code %d", (unsigned long) at, (unsigned long) asked,
			  (int) status.code);
	}
}

/* Rows so long that few of them take long. */
static inline harness_spec
cancel_spec(void)
{
	return (harness_spec) {.n = harness_size(600, 6), .dim = harness_small() ? 500 : 8000,
		.metric = GG_METRIC_L2,.element = GG_ELEMENT_F16,.seed = 3};
}

/* Are these parameters refused everywhere, with a message that has this part? */
static inline bool
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
		stage_diversify(&data, params, knn, NULL, edges).code == GG_EINVAL;
}

#endif							/* GG_TEST_GRAPH_CASES_H */
