/*
 * merge_cases.h
 *		What an engine's merge() is tested by: graphs of several parts merged into one.  Recall
 *		beside a graph built anew, determinism, ends.
 */
#ifndef GG_TEST_MERGE_CASES_H
#define GG_TEST_MERGE_CASES_H

#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whose merge() is tested, and how many times the CPU engine's rows it needs for cells. */
static const gg_engine *merge_engine = &gg_cpu_engine;
static uint32_t merge_scale = 1;

/* Slow checkers run every second case. */
static size_t
case_step(void)
{
	return harness_small() ? 2 : 1;
}

static const gg_build_params params_32 = {.graph_degree = 32,.intermediate_graph_degree = 64,
.seed = 5};

/* Sizes of data sets: rows for the CPU engine, fewer under slow checkers. */
static uint32_t
merge_size(uint32_t rows)
{
	return harness_size(rows * merge_scale, harness_fewest() ? 15 : 6);
}

/* Parts of a data set: which row is of which, and the edges of the graphs built of each alone. */
typedef struct sides
{
	uint8_t    *parts;			/* n */
	uint32_t   *lists;			/* n x degree */
	uint32_t	degree;
} sides;

/* Build each part [ends[p - 1], ends[p]) alone; rows behind the last are of no part. */
static void
make_sides(sides *s, const gg_dataset *data, const uint32_t *ends, uint8_t nparts,
		   const gg_build_params *params)
{
	gg_control	control = {.threads = 2};
	uint32_t	first = 0;

	s->degree = params->graph_degree;
	s->parts = calloc(data->n + 1, 1);
	s->lists = malloc(sizeof(uint32_t) * ((size_t) data->n * s->degree + 1));
	memset(s->lists, 0xFF, sizeof(uint32_t) * data->n * s->degree);
	for (uint8_t p = 0; p < nparts; first = ends[p++])
	{
		gg_dataset	some = *data;
		gg_graph	graph;

		some.rows = (const char *) data->rows + (size_t) first * data->dim *
			gg_element_size(data->element);
		some.n = ends[p] - first;
		if (!CHECK_OK(gg_cpu_build(&some, params, &control, &graph, NULL), "part"))
			continue;
		memset(s->parts + first, p + 1, some.n);
		for (size_t i = 0; i < (size_t) some.n * s->degree; i++)
			s->lists[(size_t) first * s->degree + i] = graph.adjacency[i] == GG_NO_NODE ?
				GG_NO_NODE : (graph.adjacency[i] & ~GG_EDGE_MARK) + first;
		gg_graph_free(&graph);
	}
}

/* The same for parts that end at these shares of the rows; 0: there are no more. */
static void
make_parts(sides *s, const gg_dataset *data, const uint32_t *percent, uint8_t most,
		   const gg_build_params *params)
{
	uint32_t	ends[4];
	uint8_t		nparts = 0;

	for (; nparts < most && percent[nparts] > 0; nparts++)
		ends[nparts] = (uint32_t) ((uint64_t) data->n * percent[nparts] / 100);
	make_sides(s, data, ends, nparts, params);
}

/* And of the data set, and its queries if there are some. */
static void
free_sides(sides *s, gg_dataset *data, float *queries)
{
	free(s->parts);
	free(s->lists);
	harness_free(data, queries);
}

static gg_status
merge_by(const gg_dataset *data, const sides *s, const gg_build_params *params, gg_merge_way way,
		 int threads, gg_graph *graph)
{
	gg_control	control = {.threads = threads};
	gg_merge_input input = {s->parts, s->lists, s->degree, way};

	return merge_engine->merge(data, &input, params, &control, graph, NULL);
}

/* Merge in a way; false: it failed. */
static bool
merge_way(const gg_dataset *data, const sides *s, const gg_build_params *params, gg_merge_way way,
		  gg_graph *graph, const char *what)
{
	if (!CHECK_OK(merge_by(data, s, params, way, 2, graph), what))
		return false;
	harness_graph_check(graph, data->n, params->graph_degree, false, what);
	return true;
}

/*
 * recall@10 at itopk 64.  entries: NULL, or the graph through whose pivots all enter: where engines
 * are compared, their draws of pivots are not.
 */
static double
recall_of(const gg_dataset *data, const gg_graph *graph, const gg_graph *entries,
		  const float *queries, uint32_t nq)
{
	gg_graph	walked = entries != NULL ? *entries : *graph;

	walked.adjacency = graph->adjacency;
	return harness_walk(data, &walked, queries, nq, 64, "recall").recall;
}

/* ---- recall --------------------------------------------------------------------- */

typedef struct recall_case
{
	const char *what;
	harness_spec spec;
	uint32_t	percent[4];		/* ends of the parts; 0: no more */
	double		least;			/* recall */
} recall_case;

/* A graph of so many rows, from cells and, with random, from random rows. */
static void
run_recall(const recall_case *c, uint32_t rows, bool random)
{
	const uint32_t nq = 200;
	gg_control	control = {.threads = 2};
	gg_build_params params = params_32;
	harness_spec spec = c->spec;
	gg_dataset	data;
	gg_graph	graph,
				other;
	float	   *queries;
	sides		s;
	double		anew,
				merged[2] = {0, 0};

	spec.n = rows;
	harness_data(&spec, &data, &queries, nq);
	make_parts(&s, &data, c->percent, 4, &params);
	CHECK_OK(gg_cpu_build(&data, &params, &control, &other, NULL), c->what);
	anew = recall_of(&data, &other, NULL, queries, nq);
	for (int init = 0; init < (random ? 2 : 1); init++)
	{
		params.init = init == 0 ? GG_INIT_PIVOT_CELLS : GG_INIT_RANDOM;
		if (!merge_way(&data, &s, &params, GG_MERGE_AUTO, &graph, c->what))
			continue;
		merged[init] = recall_of(&data, &graph, merge_engine == &gg_cpu_engine ? NULL : &other,
								 queries, nq);
		gg_graph_free(&graph);
		CHECK(merged[init] >= c->least && merged[init] >= anew - 0.01,
			  "%s: recall %.4f, built anew %.4f, %s", c->what, merged[init], anew,
			  init == 0 ? "from cells" : "from random rows");
	}
	gg_graph_free(&other);
	free_sides(&s, &data, queries);
}

#define F32		GG_ELEMENT_F32
#define F16		GG_ELEMENT_F16
#define SPEC(count, kind, type, number, ...) \
	{.n = count, .metric = GG_METRIC_##kind, .element = type, .seed = number, __VA_ARGS__}

static const recall_case recall_cases[] = {
	{"halves", SPEC(7000, L2, F32, 1,.dim = 32), {50, 100}, 0.98},
	{"a tenth into the rest", SPEC(7000, L2, F32, 2,.dim = 32), {90, 100}, 0.98},
	{"a hundredth first", SPEC(7000, L2, F32, 3,.dim = 32), {1, 100}, 0.98},
	{"three parts", SPEC(7000, L2, F32, 4,.dim = 32), {20, 50, 100}, 0.98},
	{"loose rows", SPEC(7000, L2, F32, 5,.dim = 32), {80}, 0.98},
	{"two parts and loose rows", SPEC(7000, L2, F32, 6,.dim = 32), {40, 80}, 0.98},
	{"all rows at once", SPEC(4000, L2, F32, 7,.dim = 32), {50, 100}, 0.98},
	/* at 21,000 rows the CPU engine finds 0.9695 from either start, built anew 0.9540 */
	{"inner product", SPEC(7000, IP, F32, 8,.dim = 32), {60, 100}, 0.96},
	{"cosine, float16", SPEC(7000, COSINE, F16, 9,.dim = 32), {90, 100}, 0.97},
	{"cosine", SPEC(7000, COSINE, F32, 10,.dim = 32), {50, 100}, 0.98},
	{"l1", SPEC(7000, L1, F32, 11,.dim = 32), {50, 100}, 0.98},
	{"l1, float16", SPEC(7000, L1, F16, 12,.dim = 32), {85, 100}, 0.98},
	{"inner product, float16", SPEC(7000, IP, F16, 13,.dim = 32), {85, 100}, 0.97},
	{"float16", SPEC(7000, L2, F16, 13,.dim = 32), {85, 100}, 0.98},
	{"uniform", SPEC(7000, L2, F32, 14,.dim = 8,.shape = SHAPE_UNIFORM), {50, 100}, 0.98},
	{"tight clusters", SPEC(7000, L2, F32, 15,.dim = 32,.shape = SHAPE_TIGHT,.clusters = 100),
	{50, 100}, 0.97},
	{"copies", SPEC(7000, L2, F32, 16,.dim = 32,.shape = SHAPE_COPIES), {50, 100}, 0.97},
	{"far from the origin", SPEC(7000, L2, F32, 17,.dim = 32,.offset = 1000), {70, 100}, 0.95}
};

static void
test_recall(void)
{
	for (size_t i = 0; i < sizeof(recall_cases) / sizeof(recall_cases[0]); i += case_step())
		run_recall(&recall_cases[i], merge_size(recall_cases[i].spec.n),
				   i % (harness_fewest() ? 4 : 3) == 0);
}

static void
test_dimensions(void)
{
	static const recall_case cases[] = {
		{"1,500 dimensions", SPEC(6100, L2, F32, 18,.dim = 1500), {80, 100}, 0.97},
		{"one dimension", SPEC(6600, L2, F32, 19,.dim = 1), {50, 100}, 0.9}
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		run_recall(&cases[i], merge_size(cases[i].spec.n), true);
}

/* ---- few rows into a large graph ------------------------------------------------ */

typedef struct search_case
{
	const char *what;
	harness_spec spec;
	uint32_t	percent[3];		/* ends of the parts, the largest part first; 0: no more */
	gg_algorithm algorithm;
	double		within;
	uint32_t	degree;			/* of lists of twice as many */
} search_case;

#define WITHIN	0.003

static const search_case search_cases[] = {
	{"a tenth", SPEC(7000, L2, F32, 61,.dim = 32), {90, 100}, GG_ALGORITHM_CAGRA, WITHIN, 32},
	{"a tenth of no part", SPEC(7000, L2, F32, 62,.dim = 32), {90}, GG_ALGORITHM_CAGRA, WITHIN, 32},
	{"a hundredth", SPEC(7000, COSINE, F16, 63,.dim = 40), {99, 100}, GG_ALGORITHM_CAGRA,
	WITHIN, 32},
	{"many clusters", SPEC(7000, L2, F32, 68,.dim = 32,.clusters = 300), {90, 100},
	GG_ALGORITHM_CAGRA, WITHIN, 32},
	{"two parts and loose rows", SPEC(7000, COSINE, F32, 64,.dim = 20), {80, 88, 96},
	GG_ALGORITHM_CAGRA, WITHIN, 32},
	{"inner product", SPEC(7000, IP, F32, 65,.dim = 32), {90, 100}, GG_ALGORITHM_CAGRA, WITHIN, 32},
	{"l1", SPEC(7000, L1, F16, 66,.dim = 24), {85, 100}, GG_ALGORITHM_CAGRA, WITHIN, 32},
	{"few dimensions", SPEC(7000, L2, F32, 67,.dim = 6,.shape = SHAPE_UNIFORM), {80, 100},
	GG_ALGORITHM_CAGRA, WITHIN, 32},
	{"tsdg", SPEC(7000, L2, F16, 70,.dim = 32), {90, 100}, GG_ALGORITHM_TSDG, WITHIN, 32},
	{"tight clusters", SPEC(7000, L2, F32, 69,.dim = 32,.shape = SHAPE_TIGHT,.clusters = 100),
	{90, 100}, GG_ALGORITHM_CAGRA, WITHIN, 32},
	{"wide", SPEC(6100, L2, F32, 71,.dim = 500), {90, 100}, GG_ALGORITHM_CAGRA, WITHIN, 32},
	{"copies", SPEC(7000, L2, F32, 72,.dim = 32,.shape = SHAPE_COPIES), {90, 100},
	GG_ALGORITHM_CAGRA, 0.01, 32},
	{"half the degree", SPEC(9000, COSINE, F32, 73,.dim = 32,.shape = SHAPE_UNIFORM), {90, 100},
	GG_ALGORITHM_CAGRA, WITHIN, 16},
	{"grnnd", SPEC(7000, COSINE, F32, 74,.dim = 32), {90, 100}, GG_ALGORITHM_GRNND, WITHIN, 32}
};

/*
 * The engine's own choice is to search.  Of few rows the CPU engine compares all pairs where that
 * takes less memory.
 */
static gg_merge_way
auto_or_search(void)
{
	return merge_engine == &gg_cpu_engine && harness_small() ? GG_MERGE_SEARCH : GG_MERGE_AUTO;
}

static void
run_search_case(const search_case *c)
{
	const uint32_t nq = 400;
	gg_control	control = {.threads = 2};
	gg_build_params params = params_32;
	harness_spec spec = c->spec;
	gg_dataset	data;
	gg_graph	anew,
				graph,
				again;
	float	   *queries;
	sides		s;

	params.algorithm = c->algorithm;
	params.graph_degree = c->degree;
	params.intermediate_graph_degree = 2 * c->degree;
	spec.n = harness_size(spec.n, harness_fewer() ? 7 : 2);
	harness_data(&spec, &data, &queries, nq);
	make_parts(&s, &data, c->percent, 3, &params);
	/* what takes the emulated device longest */
	CHECK_OK((harness_fewest() ? &gg_cpu_engine : merge_engine)->build(&data, &params, &control,
																	   &anew, NULL), c->what);
	if (merge_way(&data, &s, &params, auto_or_search(), &graph, c->what) &&
		merge_way(&data, &s, &params, GG_MERGE_SEARCH, &again, c->what))
	{
		const double had = recall_of(&data, &anew, NULL, queries, nq);
		const double has = recall_of(&data, &graph, NULL, queries, nq);

		CHECK(has >= had - c->within, "%s: recall %.4f, built anew %.4f", c->what, has, had);
		/* so it was by search, and in both runs the same */
		CHECK(harness_graphs_equal(&graph, &again), "%s: two runs differ", c->what);
		gg_graph_free(&again);
	}
	gg_graph_free(&graph);
	gg_graph_free(&anew);
	free_sides(&s, &data, queries);
}

static void
test_by_search(void)
{
	for (size_t i = 0; i < sizeof(search_cases) / sizeof(search_cases[0]); i += case_step())
		run_search_case(&search_cases[i]);
}

/* Parts of so many rows, numbers a and b of some sizes, and rows of no part. */
static void
tiny_case(const uint32_t *sizes, int a, int b, uint32_t loose, gg_build_params params,
		  gg_merge_way way)
{
	const harness_spec spec = {.shape = (a + b) % 3 == 0 ? SHAPE_EQUAL : SHAPE_MANIFOLD,
		.n = sizes[a] + sizes[b] + loose,.dim = 5,.metric = (gg_metric) (1 + (a + b) % 4),
		.element = b % 2 ? GG_ELEMENT_F16 : GG_ELEMENT_F32,.seed = (uint64_t) a};
	const uint32_t ends[2] = {sizes[a], sizes[a] + sizes[b]};
	gg_dataset	data;
	gg_graph	graph;
	sides		s;

	params.graph_degree = a % 2 ? 32 : 4;
	harness_data(&spec, &data, NULL, 0);
	make_sides(&s, &data, ends, 2, &params);
	(void) merge_way(&data, &s, &params, way, &graph, "tiny");
	gg_graph_free(&graph);
	free_sides(&s, &data, NULL);
}

/* Few and many of either, one part that has all rows, and none that has any. */
static void
test_by_search_tiny(void)
{
	static const uint32_t sizes[] = {0, 1, 2, 9, 40};

	for (int a = 0; a < 5; a++)
		for (int b = 0; b < 5; b++)
		{
			gg_build_params params = params_32;

			params.algorithm = b == 3 ? GG_ALGORITHM_TSDG : b == 4 ? GG_ALGORITHM_GRNND :
				GG_ALGORITHM_CAGRA;
			tiny_case(sizes, a, b, (uint32_t) (a % 2), params, GG_MERGE_SEARCH);
		}
}

/*
 * New rows that are of no cluster of the base: all that searches find is far, and the same for all
 * of them.  They have each other, and are found.
 */
static void
test_by_search_apart(void)
{
	harness_spec spec = {.n = harness_size(7000, 4), .dim = 24, .seed = 81};
	const uint32_t nq = spec.n >= 1000 ? 100 : spec.n / 10;

	/* of one part, of none */
	for (int loose = harness_fewer(); loose < 2; loose++)
	{
		uint32_t	ends[2] = {spec.n / 10 * 9, spec.n};
		gg_dataset	data;
		gg_graph	graph;
		float	   *rows;
		float	   *queries;
		sides		s;

		harness_data(&spec, &data, NULL, 0);
		rows = (float *) data.rows;
		for (size_t i = (size_t) ends[0] * data.dim; i < (size_t) data.n * data.dim; i++)
			rows[i] += 50;
		queries = rows + (size_t) ends[0] * data.dim;
		make_sides(&s, &data, ends, loose ? 1 : 2, &params_32);
		if (merge_way(&data, &s, &params_32, GG_MERGE_SEARCH, &graph, "apart"))
		{
			const double recall = recall_of(&data, &graph, NULL, queries, nq);

			CHECK(recall >= 0.98, "rows apart from the base, %s: recall %.4f",
				  loose ? "of no part" : "of one part", recall);
		}
		gg_graph_free(&graph);
		free_sides(&s, &data, NULL);
	}
}

/* ---- shapes --------------------------------------------------------------------- */

static void
test_tiny(void)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 5, 17, 40, 130};

	for (int a = 0; a < 8; a++)
		for (int b = 0; b < 8; b += harness_fewer() ? 3 : 1)
			for (uint32_t loose = 0; loose < 3; loose += 2)
			{
				gg_build_params params = params_32;

				params.intermediate_graph_degree = b % 2 ? 64 : 33;
				params.init = loose ? GG_INIT_RANDOM : GG_INIT_PIVOT_CELLS;
				tiny_case(sizes, a, b, loose, params, GG_MERGE_AUTO);
			}
}

/* A row of the small side is its own nearest neighbour, and must be found from anywhere. */
static void
test_small_side(void)
{
	harness_spec spec = {.n = merge_size(7000), .dim = 16, .seed = 4};

	for (uint32_t small = 1; small <= 9; small += 4)
	{
		uint32_t	ends[2] = {spec.n - small, spec.n};
		gg_control	control = {.threads = 2};
		gg_search_params search = {.k = 1,.itopk_size = 32};
		gg_index   *index;
		gg_dataset	data;
		gg_graph	graph;
		sides		s;

		harness_data(&spec, &data, NULL, 0);
		make_sides(&s, &data, ends, 2, &params_32);
		CHECK_OK(merge_by(&data, &s, &params_32, GG_MERGE_AUTO, 2, &graph), "small side");
		CHECK_OK(gg_cpu_engine.index_open(&data, &graph, &control, &index), "small side");
		for (uint32_t row = data.n - small; row < data.n; row++)
		{
			uint64_t	key;

			CHECK_OK(gg_cpu_engine.index_search(index, &search,
												(const float *) data.rows + (size_t) row * 16, 1,
												&control, &key), "small side");
			CHECK(key_node(key) == row, "row %u of a side of %u: found %u", row, small,
				  key_node(key));
		}
		gg_cpu_engine.index_close(index);
		gg_graph_free(&graph);
		free_sides(&s, &data, NULL);
	}
}

/* Enough for cells: this is what slow checkers see of them. */
static uint32_t
untidy_rows(void)
{
	if (merge_engine == &gg_cpu_engine)
		return harness_small() ? 6100 : 7000;
	return 16500;
}

/* What stands in a list besides near rows of the same part does no harm. */
static void
test_untidy_lists(void)
{
	harness_spec spec = {.n = untidy_rows(), .dim = harness_fewer() ? 3 : 16, .seed = 6};
	uint32_t	ends[2] = {spec.n / 2, spec.n};
	gg_build_params base = params_32;
	harness_random random = {1};
	gg_dataset	data;
	gg_graph	graph;
	sides		s;

	if (harness_fewer())
		base.graph_degree = base.intermediate_graph_degree = 16;
	harness_data(&spec, &data, NULL, 0);
	make_sides(&s, &data, ends, 2, &base);
	for (uint32_t row = 0; row < data.n; row++)
	{
		uint32_t   *list = s.lists + (size_t) row * s.degree;

		switch (row % 6)
		{
			case 0:
				list[1] = row;
				list[2] = list[0];
				break;
			case 1:
				list[0] = GG_NO_NODE;
				break;
			case 2:
				list[3] = (uint32_t) (harness_unit(&random) * data.n);
				break;
			case 3:
				memset(list, 0xFF, sizeof(uint32_t) * s.degree);
				break;
			case 4:
				s.parts[row] = 200;
				break;
			default:
				break;
		}
	}
	for (int init = 0; init < 2; init++)
	{
		gg_build_params params = base;

		params.init = init == 0 ? GG_INIT_PIVOT_CELLS : GG_INIT_RANDOM;
		(void) merge_way(&data, &s, &params, GG_MERGE_AUTO, &graph, "untidy");
		gg_graph_free(&graph);
	}
	free_sides(&s, &data, NULL);
}

/* ---- determinism ---------------------------------------------------------------- */

static void
same_graphs(const recall_case *c)
{
	harness_spec spec = c->spec;
	gg_dataset	data;
	gg_graph	graphs[2] = {{0}, {0}};
	sides		s;

	spec.n = harness_size(spec.n, 15);
	harness_data(&spec, &data, NULL, 0);
	make_parts(&s, &data, c->percent, 4, &params_32);
	/* by one thread and by three */
	if (CHECK_OK(merge_by(&data, &s, &params_32, GG_MERGE_SEARCH, 1, &graphs[0]), c->what) &&
		CHECK_OK(merge_by(&data, &s, &params_32, GG_MERGE_SEARCH, 3, &graphs[1]), c->what))
		CHECK(harness_graphs_equal(&graphs[0], &graphs[1]),
			  "%s, %s: three threads make another graph", c->what, harness_metrics[data.metric]);
	gg_graph_free(&graphs[0]);
	gg_graph_free(&graphs[1]);
	free_sides(&s, &data, NULL);
}

static void
test_determinism(void)
{
	static const recall_case cases[] = {
		{"few others", SPEC(7000, IP, F32, 30,.dim = 24), {70, 95}, 0},
		{"copies", SPEC(7000, COSINE, F16, 31,.dim = 24,.shape = SHAPE_COPIES), {70, 95}, 0},
		{"equal", SPEC(3000, L1, F32, 32,.dim = 8,.shape = SHAPE_EQUAL), {70, 95}, 0},
		/* more of them than are compared pair by pair, and as few of the base as do for that */
		{"many others", SPEC(9100, L2, F32, 33,.dim = 24), {30, 95}, 0},
		{"copies, many others", SPEC(9100, COSINE, F16, 34,.dim = 24,.shape = SHAPE_COPIES),
		{30, 95}, 0},
		{"tight, many others", SPEC(9100, IP, F32, 35,.dim = 24,.shape = SHAPE_TIGHT), {30, 95}, 0},
		{"many others", SPEC(9100, L1, F32, 36,.dim = 8), {30, 95}, 0},
		{"wide, many others", SPEC(9100, L2, F32, 37,.dim = 1100), {30, 95}, 0}
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		same_graphs(&cases[i]);
}

/* ---- ends ----------------------------------------------------------------------- */

static void
test_cancel(void)
{
	harness_spec spec = {.n = merge_size(7000), .dim = harness_fewest() ? 60 : 300, .seed = 3};
	uint32_t	ends[2] = {spec.n / 2, spec.n};
	gg_dataset	data;
	sides		s;

	harness_data(&spec, &data, NULL, 0);
	make_sides(&s, &data, ends, 2, &params_32);
	/* anew, by search */
	for (int way = 0; way < 2; way++)
	{
		harness_watch w = {0};
		gg_control	control = {.cancelled = harness_cancelled,.ctx = &w,.threads = 2};
		gg_merge_input input = {s.parts, s.lists, s.degree,
		way == 1 ? GG_MERGE_SEARCH : GG_MERGE_AUTO};
		gg_build_params params = params_32;
		gg_graph	graph;
		uint64_t	asked;

		CHECK_OK(merge_engine->merge(&data, &input, &params, &control, &graph, NULL),
				 "not cancelled");
		gg_graph_free(&graph);
		asked = w.asked;
		for (uint64_t at = 1; at <= asked; at += 1 + asked / (harness_fewest() ? 3 : 7))
		{
			gg_status	status;

			w.asked = 0;
			w.cancel_at = at;
			status = merge_engine->merge(&data, &input, &params, &control, &graph, NULL);
			/* another run may ask fewer questions */
			CHECK(status.code == GG_ECANCELED ? graph.adjacency == NULL :
				  status.code == GG_OK && w.asked < at, "question %lu of %lu: code %d",
				  (unsigned long) at, (unsigned long) asked, (int) status.code);
			gg_graph_free(&graph);
		}
	}
	free_sides(&s, &data, NULL);
}

static bool
refused(const gg_merge_input *input, const gg_build_params *params, gg_code code,
		const char *part)
{
	static const float rows[8] = {0};
	gg_dataset	data = {rows, 2, 4, GG_ELEMENT_F32, GG_METRIC_L2};
	gg_graph	graph;
	gg_status	status = merge_engine->merge(&data, input, params, NULL, &graph, NULL);

	return status.code == code && strstr(status.message, part) != NULL &&
		graph.adjacency == NULL;
}

static void
test_arguments(void)
{
	static const uint8_t parts[2] = {1, 2};
	static const uint32_t good[2] = {GG_NO_NODE, 0};
	static const uint32_t bad[2] = {0, 2};
	gg_merge_input input = {parts, good, 1, GG_MERGE_AUTO};
	gg_build_params params = params_32;

	params.graph_degree = 3;
	CHECK(refused(&input, &params, GG_EINVAL, "3"), "params are checked");
	params = params_32;
	input.length = 0;
	CHECK(refused(&input, &params, GG_EINVAL, "0"), "no lists");
	input.length = GG_MAX_DEGREE + 1;
	CHECK(refused(&input, &params, GG_EINVAL, "513"), "lists too long");
	input.length = 1;
	input.lists = bad;
	CHECK(refused(&input, &params, GG_EINVAL, "row 1 names row 2"), "a list that names no row");
}

#endif							/* GG_TEST_MERGE_CASES_H */
