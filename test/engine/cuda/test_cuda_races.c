/*
 * test_cuda_races.c
 *		Every kernel of the CUDA engine, in every instance that there is, a few times over few rows:
 *		what compute-sanitizer's racecheck is run on.
 *
 * racecheck follows each access to shared memory, and takes some thousand times as long as the
 * kernel.  A race is in the code of an instance, and another batch, list or row shows no new one,
 * so each section launches some dozens of kernels of few blocks.  test/engine/emulate/launches
 * fails when an instance is not launched here, and counts launches and blocks by section.
 *
 * Answers are checked by the CPU engine: exact ones and distances by what it measures, walks and
 * graphs by recall.  How good they are is what the other programs ask.
 *
 * Slabs of deep lists are not here: they are of 4,194,304 rows, and what differs from one to the
 * next is where the same kernels begin.
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../src/engine/keys.h"
#include "../build_stages.h"
#include "../harness.h"
#include "../serve_bulk.h"
#include "../serve_deep.h"
#include "../serve_group.h"
#include "../small_graph.h"
#include "inside.h"

#define TOLERANCE 1e-4			/* of a distance, or of 1 */
#define K 10u
#define ITOPK 32u
#define WIDTH 16u				/* parents a step: few steps */
#define WALKS 4u				/* greedy ones a query */

static const gg_control control = {.threads = 2};
static uint32_t sms;

/* Rows of these kinds, with each metric, take all ways that a walk and an exact search have. */
static const struct row_kind
{
	const char *name;
	uint32_t	dim;
	gg_element	element;
	bool		huge;			/* one of them beyond fp16: walked as they are */
}			row_kinds[] = {
	{"few dimensions", 3, GG_ELEMENT_F32, false},
	{"float32", 24, GG_ELEMENT_F32, false},
	{"float16", 24, GG_ELEMENT_F16, false},
	{"wide float32", 400, GG_ELEMENT_F32, false},
	{"huge", 400, GG_ELEMENT_F32, true},
	{"wide float16", 600, GG_ELEMENT_F16, false}
};

enum
{
	FEW, FLOATS, HALVES, WIDE_FLOATS, HUGE_ROWS, WIDE_HALVES, ROW_KINDS
};

/* What the section that runs is about. */
static struct
{
	gg_metric	metric;
	int			rows;			/* in row_kinds */
	uint32_t	number;			/* queries of a batch; length of a build's lists */
}			now;

/* ---- scenes -------------------------------------------------------------------- */

typedef struct scene
{
	gg_dataset	data;
	gg_graph	graph;
	float	   *queries;
	gg_index   *cpu;
	gg_index   *cuda;
	char		name[96];
} scene;

/* npivots: so many, over a graph made for searches alone; 0: a graph of TSDG, with marked edges. */
static void
scene_open(scene *s, uint32_t nq, uint32_t npivots)
{
	const struct row_kind *kind = &row_kinds[now.rows];
	const harness_spec spec = {.n = npivots > 0 ? 2 * npivots : 300, .dim = kind->dim, .latent = 8,
		.clusters = 8, .metric = now.metric, .element = kind->element,
		.seed = now.metric * 10 + (uint32_t) now.rows};
	const gg_build_params params = {.algorithm = GG_ALGORITHM_TSDG,.graph_degree = 16,
	.intermediate_graph_degree = 32,.seed = 5};
	small_random random = {5};

	memset(s, 0, sizeof(*s));
	snprintf(s->name, sizeof(s->name), "%s, %s", harness_metrics[now.metric], kind->name);
	harness_data(&spec, &s->data, &s->queries, nq);
	if (kind->huge)
		((float *) s->data.rows)[7] = 1e12f;
	if (npivots > 0)
		small_graph_make(&random, s->data.rows, spec.n, spec.dim, now.metric, 16, npivots,
						 &s->graph);
	else
		CHECK_OK(gg_cpu_build(&s->data, &params, &control, &s->graph, NULL), s->name);
	CHECK_OK(gg_cpu_engine.index_open(&s->data, &s->graph, &control, &s->cpu), s->name);
	CHECK_OK(gg_cuda_engine.index_open(&s->data, &s->graph, &control, &s->cuda), s->name);
}

static void
scene_close(scene *s)
{
	gg_cpu_engine.index_close(s->cpu);
	gg_cuda_engine.index_close(s->cuda);
	gg_graph_free(&s->graph);
	harness_free(&s->data, s->queries);
}

/* Keys of nq lists of K that are no farther than the true last one. */
static uint32_t
right_keys(uint32_t nq, const uint64_t *keys, const uint64_t *truth)
{
	uint32_t	right = 0;

	for (uint32_t i = 0; i < nq * K; i++)
	{
		const float last = key_distance(truth[i / K * K + K - 1]);

		right += key_distance(keys[i]) <= last + TOLERANCE * (fabsf(last) + 1);
	}
	return right;
}

/* Answers to the first nq queries.  params: NULL where they are exact. */
static void
check_answers(const scene *s, const gg_search_params *params, uint32_t nq, const uint64_t *keys)
{
	const char *const modes[] = {"auto", "single", "multi", "small", "large"};
	const char *what = params == NULL ? "exact" : modes[params->mode];
	uint64_t   *truth = harness_nearest(&gg_cpu_engine, s->cpu, K, NULL, s->queries, nq, &control,
										s->name);
	uint64_t   *cpu = params == NULL ? NULL :
		harness_found(&gg_cpu_engine, s->cpu, params, s->queries, nq, &control, s->name);
	uint32_t	missing = 0;
	int			missed;

	for (uint32_t i = 0; i < nq * K; i++)
		missing += keys[i] == GG_NO_KEY;
	CHECK(missing == 0 && harness_wrong(&s->data, s->queries, nq, keys, K, TOLERANCE) == 0,
		  "%s: %s, %u queries: %u answers are wrong", s->name, what, nq,
		  missing + harness_wrong(&s->data, s->queries, nq, keys, K, TOLERANCE));
	missed = (int) right_keys(nq, cpu != NULL ? cpu : truth, truth) -
		(int) right_keys(nq, keys, truth);
	CHECK(missed <= (params == NULL ? 0 : (int) (nq * K / 10)),
		  "%s: %s, %u queries: %d answers of %u missed", s->name, what, nq, missed, nq * K);
	free(truth);
	free(cpu);
}

static gg_search_params
params_of(gg_search_mode mode)
{
	return (gg_search_params) {.k = K,.itopk_size = ITOPK,.search_width = WIDTH,.mode = mode,
		.walks = WALKS};
}

static void
search_by(scene *s, gg_search_params params, uint32_t nq)
{
	uint64_t   *keys = harness_found(&gg_cuda_engine, s->cuda, &params, s->queries, nq, &control,
									 s->name);

	check_answers(s, &params, nq, keys);
	free(keys);
}

static void
search(scene *s, gg_search_mode mode, uint32_t nq)
{
	search_by(s, params_of(mode), nq);
}

static void
search_exactly(scene *s, uint32_t nq)
{
	uint64_t   *keys = harness_nearest(&gg_cuda_engine, s->cuda, K, NULL, s->queries, nq, &control,
									   s->name);

	check_answers(s, NULL, nq, keys);
	free(keys);
}

/* ---- searches ------------------------------------------------------------------- */

/*
 * One query for `count` lists of an index, of which every fourth is measured, where `exact`: a
 * cluster for each, or a block of fewer warps.
 */
static void
search_group(gg_index *index, uint32_t dim, const float *query, bool exact, uint32_t count)
{
	const gg_search_params params = params_of(GG_SEARCH_AUTO);
	gg_index   *indexes[4] = {index, index, index, index};
	const bool	measured[4] = {exact};
	group_lists lists = group_repeat(indexes, measured, 4, count);

	group_answers(&gg_cuda_engine, &lists, dim, query, &params, 0.9);
	group_lists_free(&lists);
}

/* All that is not walked by several blocks a query; nine queries are a batch. */
static void
test_searches(void)
{
	const bool	wide = row_kinds[now.rows].dim > 384;
	const uint32_t many = 8 * sms + 1;	/* for which two warps a query are too many */
	scene		s;

	scene_open(&s, wide ? sms + 1 : many, 0);
	search_exactly(&s, 1);
	search_exactly(&s, 9);
	search(&s, GG_SEARCH_SINGLE_CTA, 3);
	search(&s, GG_SEARCH_TSDG_SMALL, 3);
	search(&s, GG_SEARCH_TSDG_LARGE, 3);
	if (!wide)
		search(&s, GG_SEARCH_TSDG_LARGE, many);
	search_group(s.cuda, s.data.dim, s.queries, true, 2);
	search_group(s.cuda, s.data.dim, s.queries, true, 4 * (sms + 1) / 3 + 1);
	/* blocks of fewer warps, where there are more of them than multiprocessors, and long lists */
	if (wide)
	{
		gg_search_params params = params_of(GG_SEARCH_SINGLE_CTA);

		search_by(&s, params, sms + 1);
		params.itopk_size = 3 * ITOPK;
		search_by(&s, params, sms + 1);
	}
	scene_close(&s);
}

/* Few queries, of which each has several blocks; and so many that each has one. */
static void
test_blocks(void)
{
	scene		s;

	scene_open(&s, now.number, 0);
	search(&s, GG_SEARCH_MULTI_CTA, now.number);
	scene_close(&s);
}

/* More than a tile of pivots for a block that scores them, and a block of fewer warps. */
static void
test_product(void)
{
	scene		s;

	scene_open(&s, sms + 1, 300);
	search(&s, GG_SEARCH_MULTI_CTA, sms + 1);
	search(&s, GG_SEARCH_SINGLE_CTA, sms + 1);
	scene_close(&s);
}

/* ---- serving --------------------------------------------------------------------- */

static void
write_all(gg_index *index, gg_part part, const void *src, size_t bytes)
{
	CHECK_OK(gg_cuda_engine.index_write(index, part, 0, src, bytes), "index_write");
}

/* An index as a segment brings it. */
static gg_index *
fill(const gg_dataset *data, const gg_graph *graph, gg_codes codes)
{
	const gg_shape shape = {.capacity = data->n,.dim = data->dim,.element = data->element,
		.metric = data->metric,.degree = graph->degree,.npivots = graph->npivots,.codes = codes,
		.code_seed = 1};
	uint32_t   *pivots = harness_pivots(graph);
	gg_index   *index = NULL;

	if (CHECK_OK(gg_cuda_engine.index_create(&shape, &index), "index_create"))
	{
		write_all(index, GG_PART_PIVOTS, pivots,
				  graph->npivots * (1 + GG_PIVOT_DEGREE) * sizeof(uint32_t));
		write_all(index, GG_PART_ADJACENCY, graph->adjacency,
				  (size_t) data->n * graph->degree * sizeof(uint32_t));
		write_all(index, GG_PART_ROWS, data->rows,
				  (size_t) data->n * data->dim * gg_element_size(data->element));
		CHECK_OK(gg_cuda_engine.index_finish(index, data->n, &control), "index_finish");
	}
	free(pivots);
	return index;
}

/* A batch in slots; mode -1: exact. */
static void
serve(const scene *s, bulk_region *r, gg_index *index, int mode, uint32_t nq)
{
	const gg_search_params params = {.k = K,.itopk_size = ITOPK,.mode = mode < 0 ? GG_SEARCH_AUTO :
		(gg_search_mode) mode};
	slot_batch	batch = {.count = nq,.exact = mode < 0,.k = K,.itopk_size = ITOPK,
						 .mode = params.mode};
	uint64_t   *keys = malloc(nq * K * sizeof(uint64_t));

	for (uint32_t q = 0; q < nq; q++)
	{
		batch.slots[q] = nq - 1 - q;
		batch.tickets[q] = 100 + (uint32_t) (mode + 1) * 50 + q;
		memcpy(slot_query(r, batch.slots[q]), s->queries + (size_t) q * s->data.dim,
			   s->data.dim * sizeof(float));
	}
	CHECK_OK(submit_slots(r, index, 0, s->data.dim, &batch), s->name);
	for (uint32_t q = 0; q < nq; q++)
	{
		bulk_wait(r, 0, batch.slots[q], 0, batch.tickets[q]);
		memcpy(keys + q * K, slot_keys(r, batch.slots[q], 0, K), K * sizeof(uint64_t));
	}
	check_answers(s, mode < 0 ? NULL : &params, nq, keys);
	free(keys);
}

/* Batches in slots, and bulks, of every kind. */
static void
test_serve(void)
{
	const size_t slot = (320 + row_kinds[now.rows].dim * sizeof(float) + 63) / 64 * 64;
	gg_index   *index;
	bulk_region r;
	scene		s;

	scene_open(&s, 9, 0);
	index = fill(&s.data, &s.graph, GG_CODES_NONE);
	if (index == NULL || !bulk_open_slots(&r, &gg_cuda_engine, 9 * slot, 9, slot))
		return;
	serve(&s, &r, index, -1, 1);
	serve(&s, &r, index, -1, 9);
	for (int mode = GG_SEARCH_AUTO; mode <= GG_SEARCH_TSDG_LARGE; mode++)
		/* what auto chooses is multi */
		if (mode != GG_SEARCH_MULTI_CTA)
			serve(&s, &r, index, mode, 3);
	bulk_close(&r);
	gg_cuda_engine.index_close(index);
	scene_close(&s);
}

static void
test_bulk(void)
{
	scene		s;

	scene_open(&s, 9, 0);
	bulk_answers(&gg_cuda_engine, s.cuda, true, GG_SEARCH_AUTO, s.data.dim, s.queries, 9, K, 0, 1);
	for (int mode = GG_SEARCH_AUTO; mode <= GG_SEARCH_TSDG_LARGE; mode++)
		if (mode != GG_SEARCH_MULTI_CTA)
			bulk_answers(&gg_cuda_engine, s.cuda, false, (gg_search_mode) mode, s.data.dim,
						 s.queries, 3, K, ITOPK, mode < GG_SEARCH_TSDG_SMALL ? 0.9 : 1);
	scene_close(&s);
}

static deep_spec
deep_spec_of(bool offsets)
{
	return (deep_spec) {.n = 300,.dim = row_kinds[now.rows].dim,.metric = now.metric,
		.element = row_kinds[now.rows].element,.offsets = offsets};
}

/* A short list, and a long one with what goes on behind it; by one filter, too. */
static void
test_deep(void)
{
	const deep_spec spec = deep_spec_of(false);
	gg_filter  *filter = malloc(sizeof(gg_filter));
	uint64_t   *tids = malloc(spec.n * sizeof(uint64_t));
	deep_scene	s;

	if (!deep_make(&s, &gg_cuda_engine, &spec, 1e-5) || !deep_open(&s))
		return;
	deep_read(&s, NULL, 10, 1, "short");
	deep_read(&s, NULL, 120, 2, "long");
	deep_read(&s, filter, 120, 1, deep_filter(&s, 0, filter, tids));
	deep_free(&s);
	free(filter);
	free(tids);
}

/* Lists of an index without rows, by each kind of codes. */
static void
test_bounds(void)
{
	for (gg_codes codes = GG_CODES_INT8; codes <= GG_CODES_INT4; codes++)
	{
		const deep_spec spec = {.n = 300,.dim = 40,.graph = true,.codes = codes};
		deep_scene	s;

		if (!deep_make(&s, &gg_cuda_engine, &spec, 0) || !deep_open(&s))
			return;
		deep_read(&s, NULL, 120, 2, "bounds");
		deep_free(&s);
	}
}

/* Every kind of filter, where nodes are rows and where they have some. */
static void
test_filters(void)
{
	gg_filter  *filter = malloc(sizeof(gg_filter));

	for (int offsets = 0; offsets < 2; offsets++)
	{
		const deep_spec spec = deep_spec_of(offsets == 1);
		uint64_t   *tids;
		deep_scene	s;

		if (!deep_make(&s, &gg_cuda_engine, &spec, 1e-5) || !deep_open(&s))
			return;
		tids = malloc((s.rows + 1) * sizeof(uint64_t));
		for (int f = 0; f < DEEP_FILTERS; f++)
		{
			const char *what = deep_filter(&s, f, filter, tids);

			deep_read(&s, filter, 10, 1, what);
		}
		deep_free(&s);
		free(tids);
	}
	free(filter);
}

/* Several requests in a call: with one filter, with small ones, also of TIDs, with all kinds. */
static void
test_several(void)
{
	const deep_spec spec = deep_spec_of(true);
	gg_filter  *kinds = malloc(DEEP_FILTERS * sizeof(gg_filter));
	const gg_filter *filters[SEVERAL_MOST];
	const char *names[DEEP_FILTERS];
	char	   *alone = malloc(SEVERAL_MOST * SEVERAL_BYTES);
	deep_scene	s;
	uint64_t   *tids;

	if (!deep_make(&s, &gg_cuda_engine, &spec, 1e-5) ||
		!deep_open_slots(&s, SEVERAL_MOST, SEVERAL_MOST * SEVERAL_BYTES))
		return;
	tids = deep_filters(&s, kinds, names);
	for (uint32_t i = 0; i < SEVERAL_MOST; i++)
		filters[i] = &kinds[0];
	several_case(&s, 0, 3, filters, alone, "one filter");
	for (uint32_t i = 0; i < SEVERAL_MOST; i++)
		filters[i] = &kinds[i % 2 + 5];
	several_case(&s, 1, 9, filters, alone, "small filters");
	for (uint32_t i = 0; i < SEVERAL_MOST; i++)
		filters[i] = &kinds[i % 4 + 9];
	several_case(&s, 0, 8, filters, alone, "few TIDs");
	for (uint32_t i = 0; i < SEVERAL_MOST; i++)
		filters[i] = i < DEEP_FILTERS ? &kinds[i] : NULL;
	several_case(&s, 2, SEVERAL_MOST, filters, alone, "all kinds of filters");
	deep_free(&s);
	free(tids);
	free(kinds);
	free(alone);
}

/* Long lists of all rows, of more queries than share a pass over them. */
static void
test_long(void)
{
	deep_spec	spec = deep_spec_of(false);
	uint64_t	random = 1;
	char	   *alone = malloc(SEVERAL_MOST * SEVERAL_BYTES);
	deep_scene	s;

	spec.n = 500;
	spec.graph = true;
	if (!deep_make(&s, &gg_cuda_engine, &spec, 1e-5) ||
		!deep_open_slots(&s, SEVERAL_MOST, SEVERAL_MOST * SEVERAL_BYTES))
		return;
	several_long(&s, &random, 5, 9, alone);
	deep_free(&s);
	free(alone);
}

/* The same over as few rows as are worth a rough measure first, by requests for either width. */
static void
test_pruned(void)
{
	static const uint32_t counts[] = {SEVERAL_MOST, 8};
	const deep_spec spec = {.n = 42500,.dim = 13,.element = row_kinds[now.rows].element,
		.graph = true};

	deep_pruned(&gg_cuda_engine, &spec, 1e-5, counts, 2);
}

/* ---- graphs ---------------------------------------------------------------------- */

typedef struct build_scene
{
	gg_dataset	data;
	gg_build_params params;
	float	   *queries;
	char		name[96];
} build_scene;

#define BUILD_NQ 20u

static void
build_open(build_scene *s, const harness_spec *spec, uint32_t length)
{
	s->params = (gg_build_params) {.graph_degree = length / 2,.intermediate_graph_degree = length,
		.seed = 7,.max_iterations = 2,.pool_capacity = length,.initial_neighbors = length / 2,
	.outer_rounds = 2,.inner_rounds = 1};
	harness_data(spec, &s->data, &s->queries, BUILD_NQ);
	snprintf(s->name, sizeof(s->name), "%u x %u %s, lists of %u", spec->n, spec->dim,
			 harness_metrics[s->data.metric], length);
}

static void
build_close(build_scene *s)
{
	harness_free(&s->data, s->queries);
}

/* Searches over the graph find what is near; then it goes. */
static void
check_graph(const build_scene *s, gg_graph *graph, const char *what)
{
	double		recall;

	harness_graph_check(graph, s->data.n, s->params.graph_degree, false, what);
	recall = harness_walk(&s->data, graph, s->queries, BUILD_NQ, 64, what).recall;
	CHECK(recall >= 0.9, "%s, %s: recall %.4f", s->name, what, recall);
	gg_graph_free(graph);
}

static void
build(const build_scene *s, gg_algorithm algorithm, gg_init init, const char *what)
{
	gg_build_params params = s->params;
	gg_graph	graph;

	params.algorithm = algorithm;
	params.init = init;
	if (CHECK_OK(gg_cuda_engine.build(&s->data, &params, &control, &graph, NULL), s->name))
		check_graph(s, &graph, what);
}

/* Lists alone, with distances; least: of their recall. */
static void
build_lists(const build_scene *s, gg_init init, double least)
{
	const uint32_t k = s->params.intermediate_graph_degree;
	gg_build_params params = s->params;
	uint32_t   *ids = malloc((size_t) s->data.n * k * sizeof(uint32_t));
	float	   *distances = malloc((size_t) s->data.n * k * sizeof(float));
	double		recall;

	params.init = init;
	if (CHECK_OK(gg_cuda_engine.knn_graph(&s->data, &params, &control, ids, distances, NULL),
				 s->name))
	{
		recall = harness_knn_recall(&s->data, ids, k, K, 50, 1e-6);
		CHECK(recall >= least, "%s, init %d: recall %.4f", s->name, (int) init, recall);
	}
	free(ids);
	free(distances);
}

/*
 * Of two halves, of which each knows `length` neighbours of its own; and the last row, which knows
 * none.
 */
static void
merge(const build_scene *s, uint32_t length, const char *what)
{
	const uint32_t n = s->data.n;
	const size_t bytes = s->data.dim * gg_element_size(s->data.element);
	gg_build_params params = s->params;
	uint8_t    *parts = calloc(n, 1);
	uint32_t   *lists = malloc((size_t) n * length * sizeof(uint32_t));
	const gg_merge_input input = {parts, lists, length, GG_MERGE_SEARCH};
	gg_graph	graph;

	memset(lists, 0xFF, (size_t) n * length * sizeof(uint32_t));
	params.intermediate_graph_degree = length;
	for (uint32_t p = 0; p < 2; p++)
	{
		const uint32_t first = p * (n / 2);
		gg_dataset	half = s->data;

		half.n = p == 0 ? n / 2 : n - 1 - first;
		half.rows = (const char *) s->data.rows + first * bytes;
		CHECK_OK(gg_cpu_engine.knn_graph(&half, &params, &control, lists + (size_t) first * length,
										 NULL, NULL), s->name);
		memset(parts + first, (int) p + 1, half.n);
		for (size_t i = (size_t) first * length; i < (size_t) (first + half.n) * length; i++)
			lists[i] += lists[i] == GG_NO_NODE ? 0 : first;
	}
	params = s->params;
	if (CHECK_OK(gg_cuda_engine.merge(&s->data, &input, &params, &control, &graph, NULL), s->name))
		check_graph(s, &graph, what);
	free(parts);
	free(lists);
}

static harness_spec
build_spec(uint32_t n)
{
	const struct row_kind *kind = &row_kinds[now.rows];

	return (harness_spec) {.n = n,.dim = kind->dim,.metric = now.metric,.element = kind->element,
		.seed = 3};
}

/* Every algorithm, from cells (which here are all pairs) and from random lists. */
static void
test_builds(void)
{
	/* the longest lists have room for more than all others */
	const harness_spec spec = build_spec(now.number / 2 + 44);
	build_scene s;

	build_open(&s, &spec, now.number);
	build_lists(&s, GG_INIT_RANDOM, 0.5);
	build(&s, GG_ALGORITHM_CAGRA, GG_INIT_PIVOT_CELLS, "cagra");
	/* what compares the entries of a list is the same above 128 of them, and takes the longest */
	if (now.number < GG_MAX_DEGREE)
		build(&s, GG_ALGORITHM_TSDG, GG_INIT_PIVOT_CELLS, "tsdg");
	else
		s.params.outer_rounds = 1;
	build(&s, GG_ALGORITHM_GRNND, GG_INIT_PIVOT_CELLS, "grnnd");
	if (now.number == 32)
		build(&s, GG_ALGORITHM_GRNND, GG_INIT_RANDOM, "grnnd, random");
	merge(&s, now.number / 2, "merge");
	if (now.number == GG_MAX_DEGREE)
		merge(&s, now.number, "merge of the longest lists");
	/* more than one block compares */
	if (now.number == 64)
	{
		s.params.samples = 48;
		build_lists(&s, GG_INIT_RANDOM, 0.5);
	}
	build_close(&s);
}

/* Small components, far from each other: pivots are added, and nodes linked. */
static void
test_components(void)
{
	const harness_spec spec = {.shape = SHAPE_TIGHT, .n = 1000, .dim = 16, .clusters = 30,
		.seed = 4};
	build_scene s;

	build_open(&s, &spec, 32);
	build(&s, GG_ALGORITHM_CAGRA, GG_INIT_PIVOT_CELLS, "components");
	build_close(&s);
}

/*
 * In groups of rows, since the device memory is less than one piece takes; by two devices, which
 * are one.
 */
static void
test_groups(void)
{
	static const int first = 0;
	harness_spec spec = {.n = 9000, .dim = 64, .seed = 6};
	gg_control	less = control;
	gg_device_info info;
	build_scene s;
	gg_dataset	one;
	gg_bytes	all;
	gg_bytes	own;
	gg_graph	graph;

	/* where the device is emulated fewer rows make a group (emulate/Makefile) */
	if (CHECK_OK(gg_cuda_engine.device_info(GG_DEVICE_IN_USE, &info), "device_info") &&
		strcmp(info.name, "emulated device") == 0)
		spec.n = 400;
	build_open(&s, &spec, 32);
	one = s.data;
	one.n = 1;
	if (CHECK_OK(gg_cuda_engine.build_bytes(&s.data, &s.params, &control, &all), s.name) &&
		CHECK_OK(gg_cuda_engine.build_bytes(&one, &s.params, &control, &own), s.name))
	{
		less.device_memory = (all.device - own.device) / 10 * 7;
		less.others = &first;
		less.nothers = 1;
		if (CHECK_OK(gg_cuda_engine.build(&s.data, &s.params, &less, &graph, NULL), s.name))
			check_graph(&s, &graph, "groups");
	}
	build_close(&s);
}

/* As few rows as have cells. */
static void
test_cells(void)
{
	const harness_spec spec = build_spec(harness_fewest() ? 4097 : 16385);
	build_scene s;

	build_open(&s, &spec, 16);
	s.params.max_iterations = 1;
	/* of products a few rows of three dimensions are in all lists, and one iteration finds less */
	build_lists(&s, GG_INIT_PIVOT_CELLS, now.metric == GG_METRIC_IP ? 0.6 : 0.8);
	build_close(&s);
}

/* Edges are a function of lists: all bytes are the CPU engine's. */
static void
test_optimize(void)
{
	enum
	{
		n = 600,
		k = GG_MAX_DEGREE
	};
	uint32_t   *knn = malloc(n * k * sizeof(uint32_t));
	uint32_t   *graphs[2] = {malloc(n * k * sizeof(uint32_t)), malloc(n * k * sizeof(uint32_t))};

	for (uint32_t row = 0; row < n; row++)
		for (uint32_t i = 0; i < k; i++)
			knn[row * k + i] = (row + (i % 2 == 0 ? i / 2 + 1 : n - i / 2 - 1)) % n;
	CHECK_OK(inside_cuda_optimize(knn, n, k, k, &control, graphs[0]), "optimize");
	CHECK_OK(stage_optimize(knn, n, k, k, &control, graphs[1]), "optimize");
	CHECK(memcmp(graphs[0], graphs[1], n * k * sizeof(uint32_t)) == 0, "other edges");
	free(knn);
	free(graphs[0]);
	free(graphs[1]);
}

/* ---- all of it ------------------------------------------------------------------- */

/* An index with codes of the rows, searched by each walk, by few queries and by many. */
static void
search_codes(const gg_dataset *data, const gg_graph *graph, const float *queries, uint32_t nq,
			 gg_codes codes)
{
	static const gg_search_mode modes[] = {GG_SEARCH_SINGLE_CTA, GG_SEARCH_MULTI_CTA};
	uint64_t   *keys = malloc((size_t) nq * K * sizeof(uint64_t));
	gg_index   *index = fill(data, graph, codes);

	if (index == NULL)
		return;
	for (int m = 0; m < 2; m++)
		for (uint32_t count = 2; count <= nq; count += nq - 2)
		{
			gg_search_params params = {.k = K,.itopk_size = ITOPK,.mode = modes[m]};

			CHECK_OK(gg_cuda_engine.index_search(index, &params, queries, count, NULL, keys),
					 "index_search");
			CHECK(keys[0] != GG_NO_KEY, "codes %d mode %d: nothing was found", (int) codes,
				  (int) modes[m]);
		}
	search_group(index, data->dim, queries, false, 2);
	search_group(index, data->dim, queries, false, sms + 1);
	gg_cuda_engine.index_close(index);
	free(keys);
}

/* now.number: dimensions. */
static void
test_codes(void)
{
	const uint32_t nq = 100;
	const harness_spec spec = {.n = 300, .dim = now.number, .metric = now.metric, .seed = 5};
	gg_build_params params = {.graph_degree = 16,.intermediate_graph_degree = 32,.seed = 1};
	gg_dataset	data;
	gg_graph	graph;
	float	   *queries;

	harness_data(&spec, &data, &queries, nq);
	if (CHECK_OK(gg_cpu_engine.build(&data, &params, &control, &graph, NULL), "build"))
	{
		for (gg_codes codes = GG_CODES_INT8; codes <= GG_CODES_INT4; codes++)
			search_codes(&data, &graph, queries, nq, codes);
		gg_graph_free(&graph);
	}
	harness_free(&data, queries);
}

/* A section: name, the queries or entries if there are any, metric, rows. */
static void
run(const char *what, void (*test) (void), gg_metric metric, int rows, uint32_t number)
{
	char		name[128];
	char		digits[16] = "";

	now.metric = metric;
	now.rows = rows;
	now.number = number;
	if (number > 0)
		snprintf(digits, sizeof(digits), " %u", number);
	snprintf(name, sizeof(name), "%s%s, %s, %s", what, digits, harness_metrics[metric],
			 row_kinds[rows].name);
	harness_run(name, test);
}

/* Which walk takes which rows is in the heads of walk.cuh and fill.cu. */
static void
run_searches(void)
{
	for (int metric = GG_METRIC_L2; metric <= GG_METRIC_L1; metric++)
		for (int rows = 0; rows < ROW_KINDS; rows++)
			/* rows of unit length are none */
			if (metric != GG_METRIC_COSINE || rows != HUGE_ROWS)
				run("searches", test_searches, (gg_metric) metric, rows, 0);
	for (int i = 0; i < 2; i++)
	{
		const int	alone = i == 0 ? FEW : HUGE_ROWS;

		run("blocks", test_blocks, GG_METRIC_L2, i == 0 ? FLOATS : WIDE_HALVES, 3);
		run("blocks", test_blocks, GG_METRIC_L1, i == 0 ? HALVES : WIDE_FLOATS, 3);
		for (int metric = GG_METRIC_L2; metric <= GG_METRIC_L1; metric++)
			if (metric != GG_METRIC_COSINE)
				run("blocks", test_blocks, (gg_metric) metric, alone, 3);
	}
	/* about 8, 4, 2 blocks a query and one, of those that run side by side */
	for (uint32_t share = 8; share >= 1; share /= 2)
		run("blocks", test_blocks, GG_METRIC_COSINE, HALVES, sms / share > 0 ? sms / share : 1);
	run("product", test_product, GG_METRIC_L2, FLOATS, 0);
}

static void
run_serving(void)
{
	run("serve", test_serve, GG_METRIC_L2, FLOATS, 0);
	run("serve", test_serve, GG_METRIC_IP, FEW, 0);
	run("serve", test_serve, GG_METRIC_L1, WIDE_HALVES, 0);
	run("bulk", test_bulk, GG_METRIC_COSINE, HALVES, 0);
	for (int metric = GG_METRIC_L2; metric <= GG_METRIC_L1; metric++)
		for (int rows = FLOATS; rows < ROW_KINDS; rows++)
			if (rows != HUGE_ROWS)
			{
				run("deep", test_deep, (gg_metric) metric, rows, 0);
				if (metric != GG_METRIC_L1)
					run("long", test_long, (gg_metric) metric, rows, 0);
			}
	run("filters", test_filters, GG_METRIC_L2, FLOATS, 0);
	run("several", test_several, GG_METRIC_L2, FLOATS, 0);
	run("bounds", test_bounds, GG_METRIC_L2, FLOATS, 0);
	run("pruned", test_pruned, GG_METRIC_L2, FLOATS, 0);
	run("pruned", test_pruned, GG_METRIC_L2, HALVES, 0);
	/* narrow records, and those of more than 1 kB with 2 bits, too */
	for (uint32_t dim = 24; dim <= 4400; dim += 4376)
	{
		run("codes", test_codes, GG_METRIC_L2, FLOATS, dim);
		run("codes", test_codes, GG_METRIC_L1, FLOATS, dim);
	}
}

static void
run_builds(void)
{
	for (uint32_t length = 32; length <= GG_MAX_DEGREE; length *= 2)
	{
		run("builds", test_builds, GG_METRIC_L2, HALVES, length);
		run("builds", test_builds, GG_METRIC_L2, FEW, length);
		run("builds", test_builds, GG_METRIC_IP, HALVES, length);
		run("builds", test_builds, GG_METRIC_L1, FLOATS, length);
	}
	run("builds", test_builds, GG_METRIC_COSINE, HALVES, 32);
	run("components", test_components, GG_METRIC_L2, FLOATS, 0);
	run("optimize", test_optimize, GG_METRIC_L2, FLOATS, 0);
	run("cells", test_cells, GG_METRIC_L2, FEW, 0);
	run("cells", test_cells, GG_METRIC_IP, FEW, 0);
	run("groups", test_groups, GG_METRIC_L2, FLOATS, 0);
}

int
main(void)
{
	int			count = 0;

	/* a host without a GPU proves nothing: say so, and fail */
	if (!CHECK_OK(gg_cuda_engine.probe(GG_USE_SEARCH), "probe") ||
		!CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess,
			   "cudaDeviceGetAttribute"))
		return harness_finish();
	sms = (uint32_t) count;
	run_searches();
	run_serving();
	run_builds();
	return harness_finish();
}
