/*
 * search_cases.h
 *		What every engine's searches of an index in memory do: few rows are all found, an index may
 *		have no graph, a search is cancelled, and what is out of range is refused.
 */
#ifndef GG_TEST_SEARCH_CASES_H
#define GG_TEST_SEARCH_CASES_H

#include <stdlib.h>

#include "opened.h"

/* Few rows: every one is found, and the rest is padding. */
static inline void
search_few_rows(const gg_engine *engine, double tolerance)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 5, 31, 32, 33, 64, 65};

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
	{
		const uint32_t n = sizes[s];
		const harness_spec spec = {.shape = SHAPE_UNIFORM, .n = n, .dim = 7, .seed = 11};
		const gg_search_params params = {.k = 100,.itopk_size = 128};
		uint64_t   *found,
				   *truth;
		uint32_t	filled = 0,
					same = 0;
		opened		o;

		open_spec(&o, engine, &spec, 5);
		found = opened_found(&o, &params, 3);
		truth = opened_nearest(&o, 100, NULL, 3);
		for (uint32_t i = 0; i < 5 * 100; i++)
		{
			filled += found[i] != GG_NO_KEY;
			same += tolerance == 0 ? found[i] == truth[i] :
				key_node(found[i]) == key_node(truth[i]);
		}
		CHECK(same == 5 * 100, "n %u: the walk finds what the scan does", n);
		CHECK(filled == 5 * n, "n %u: %u answers to 5 queries", n, filled);
		CHECK(harness_wrong(&o.data, o.queries, 5, found, 100, tolerance) == 0,
			  "n %u: wrong answers", n);
		close_opened(&o);
		free(found);
		free(truth);
	}
}

/*
 * The bug: index_open() read the graph of an index that has none, as rows not yet in a graph are
 * opened on a device.  The fix: it goes without; exact searches work, walks are refused.
 */
static inline void
search_no_graph(const gg_engine *engine)
{
	static const uint32_t sizes[] = {0, 1, 500};

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
	{
		const harness_spec spec = {.shape = SHAPE_UNIFORM, .n = sizes[s], .dim = 7,
			.metric = GG_METRIC_COSINE, .element = GG_ELEMENT_F16, .seed = 11};
		const gg_search_params params = {.k = 10,.itopk_size = 16};
		uint64_t   *found,
				   *truth;
		gg_index   *index = NULL;
		gg_code		code;
		opened		o;

		open_spec(&o, engine, &spec, 5);
		if (!CHECK_OK(engine->index_open(&o.data, NULL, NULL, &index), "index_open"))
			return;
		truth = opened_nearest(&o, 10, NULL, 1);
		found = harness_nearest(engine, index, 10, NULL, o.queries, 5, NULL, "without a graph");
		CHECK(opened_same(&o, found, truth, 10), "n %u: the graph makes a difference", sizes[s]);
		code = engine->index_search(index, &params, o.queries, 5, NULL, found).code;
		CHECK(code == (sizes[s] > 0 ? GG_EINVAL : GG_OK), "a walk over %u rows without a graph: %d",
			  sizes[s], (int) code);
		CHECK(opened_same(&o, found, truth, 10), "n %u: a refused walk wrote answers", sizes[s]);
		/* it is no index to be filled either */
		CHECK(engine != &gg_cpu_engine ||
			  engine->index_write(index, GG_PART_ROWS, 0, o.queries, 1).code == GG_EINVAL, "write");
		CHECK(engine->index_finish(index, 0, NULL).code == GG_EINVAL, "finish");
		engine->index_close(index);
		close_opened(&o);
		free(found);
		free(truth);
	}
}

/* Says yes when so many questions were asked. */
static inline bool
search_cancelled(void *ctx)
{
	return --*(int *) ctx < 0;
}

static inline void
search_cancel(const gg_engine *engine)
{
	const harness_spec spec = {.shape = SHAPE_UNIFORM, .n = 2000, .dim = 64, .seed = 12};
	const gg_search_params params = {.k = 10,.itopk_size = 64};
	uint64_t	keys[200 * 10];
	gg_index   *index;
	opened		o;

	open_spec(&o, engine, &spec, 200);
	for (int threads = 1; threads <= 3; threads += 2)
	{
		int			left = 0;
		const gg_control control = {.cancelled = search_cancelled,.ctx = &left,.threads = threads};

		CHECK(engine->index_search(o.index, &params, o.queries, 200, &control, keys).code ==
			  GG_ECANCELED, "search, %d threads", threads);
		left = 0;
		CHECK(engine->index_exact(o.index, 10, NULL, o.queries, 200, &control, keys).code ==
			  GG_ECANCELED, "exact, %d threads", threads);
		/* in the midst: a later round, where the CPU engine has several */
		left = 2;
		CHECK(engine != &gg_cpu_engine ||
			  engine->index_exact(o.index, 10, NULL, o.queries, 200, &control, keys).code ==
			  GG_ECANCELED, "exact, later, %d threads", threads);
		left = 1000000;
		CHECK_OK(engine->index_search(o.index, &params, o.queries, 200, &control, keys),
				 "not cancelled");
		left = 0;
		CHECK(engine == &gg_cpu_engine ||
			  engine->index_open(&o.data, &o.graph, &control, &index).code == GG_ECANCELED,
			  "index_open, %d threads", threads);
	}
	close_opened(&o);
}

static inline void
search_refusals(const gg_engine *engine)
{
	static const gg_search_params bad[] = {{.k = 0,.itopk_size = 10}, {.k = 11,.itopk_size = 10},
	{.k = 1,.itopk_size = 0}, {.k = 1,.itopk_size = GG_MAX_ITOPK + 1}};
	const harness_spec spec = {.shape = SHAPE_UNIFORM, .n = 100, .dim = 4, .seed = 13};
	const gg_search_params good = {.k = 1,.itopk_size = 1};
	uint64_t	keys[2 * GG_MAX_ITOPK];
	gg_index   *index;
	opened		o;

	open_spec(&o, engine, &spec, 2);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
	{
		gg_status	status = engine->index_search(o.index, &bad[i], o.queries, 2, NULL, keys);

		CHECK(status.code == GG_EINVAL && strpbrk(status.message, "0123456789") != NULL,
			  "search %zu: code %d %s", i, (int) status.code, status.message);
	}
	CHECK(engine->index_exact(o.index, 0, NULL, o.queries, 2, NULL, keys).code == GG_EINVAL,
		  "exact, k 0");
	CHECK(engine->index_exact(o.index, GG_MAX_ITOPK + 1, NULL, o.queries, 2, NULL, keys).code ==
		  GG_EINVAL, "exact, k too large");
	CHECK_OK(engine->index_search(o.index, &good, o.queries, 0, NULL, keys), "no queries");
	CHECK_OK(engine->index_exact(o.index, 1, NULL, o.queries, 0, NULL, keys), "no queries");
	for (int i = 0; i < 6; i++)
	{
		static const char *const names[] = {"no dimensions", "dimensions", "metric", "nodes",
		"pivots", "degree"};
		gg_dataset	data = o.data;
		gg_graph	graph = o.graph;

		switch (i)
		{
			case 0: data.dim = 0; break;
			case 1: data.dim = GG_MAX_DIM + 1; break;
			case 2: data.metric = (gg_metric) 7; break;
			case 3: graph.n--; break;
			case 4: graph.npivots = 0; break;
			default: graph.degree = GG_MAX_DEGREE + 1; break;
		}
		CHECK(engine->index_open(&data, &graph, NULL, &index).code == GG_EINVAL && index == NULL,
			  "%s", names[i]);
	}
	engine->index_close(NULL);
	/* and it still works */
	CHECK_OK(engine->index_search(o.index, &good, o.queries, 2, NULL, keys), "after refusals");
	CHECK(harness_wrong(&o.data, o.queries, 2, keys, 1, 1e-5) == 0, "after refusals");
	close_opened(&o);
}

#endif							/* GG_TEST_SEARCH_CASES_H */
