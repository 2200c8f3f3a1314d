/*
 * test_serve.c
 *		Indexes filled piece by piece, and those that take rows from another, answer as those
 *		opened over rows in memory do, and so do batches of searches over slots, many queries of
 *		one caller, one query of many indexes, and deep and filtered lists.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve_few_tids.h"
#include "serve_group.h"
#include "serve_refusals.h"
#include "serve_take.h"

#define NQ 40u
#define SLOTS 64u
#define K 20u
#define ITOPK 48u
#define PIVOT_WORDS (1 + GG_PIVOT_DEGREE)

static const gg_engine *const engine = &gg_cpu_engine;

/* In odd pieces, last one first: writes may come in any order and length. */
static void
write_part(gg_index *index, gg_part part, const void *src, uint64_t bytes, uint64_t piece)
{
	for (uint64_t end = bytes; end > 0;)
	{
		uint64_t	begin = end > piece ? end - piece : 0;

		CHECK_OK(engine->index_write(index, part, begin, (const char *) src + begin, end - begin),
				 "index_write");
		end = begin;
	}
}

static gg_index *
fill(const gg_dataset *data, const gg_graph *graph, uint32_t capacity)
{
	gg_shape	shape = {.capacity = capacity,.dim = data->dim,.element = data->element,
						 .metric = data->metric, .degree = graph ? graph->degree : 0,
						 .npivots = graph ? graph->npivots : 0};
	uint64_t	row_bytes = data->dim * gg_element_size(data->element);
	gg_index   *index;
	gg_status	status = engine->index_create(&shape, &index);

	CHECK_OK(status, "index_create");
	CHECK(engine->index_bytes(index) == engine->shape_bytes(&shape) &&
		  engine->index_bytes(index) >= capacity * row_bytes, "%llu bytes",
		  (unsigned long long) engine->index_bytes(index));
	write_part(index, GG_PART_ROWS, data->rows, data->n * row_bytes, 4099);
	if (graph != NULL)
	{
		uint32_t   *pivots = harness_pivots(graph);

		write_part(index, GG_PART_ADJACENCY, graph->adjacency,
				   (uint64_t) graph->n * graph->degree * sizeof(uint32_t), 1001);
		write_part(index, GG_PART_PIVOTS, pivots,
				   (uint64_t) graph->npivots * PIVOT_WORDS * sizeof(uint32_t), 77);
		free(pivots);
	}
	return index;
}

/* ---- a region of slots -------------------------------------------------------- */

static void
open_region(bulk_region *r, uint32_t dim)
{
	memset(r, 0, sizeof(*r));
	r->engine = engine;
	r->layout.nslots = SLOTS;
	r->layout.done = 0;
	r->keys = (GG_SERVE_MAX_LISTS * 4 + 63) / 64 * 64;
	r->query = r->keys + ((size_t) 2 * K * 8 + 63) / 64 * 64;
	r->layout.slot_bytes = r->query + ((size_t) dim * 4 + 63) / 64 * 64;
	r->bytes = r->layout.slot_bytes * SLOTS;
	r->memory = calloc(1, r->bytes);
	r->layout.slots = r->memory;
	CHECK_OK(engine->serve_open(0, r->memory, r->bytes, &r->layout, &r->server), "serve_open");
}

/*
 * Query q in slot 3 q + 1 (mod SLOTS), ticket 100 + q; the answers of one list against the expected
 * ones.
 */
static void
serve(bulk_region *r, gg_index *index, uint32_t list, bool exact, gg_search_mode mode,
	  const float *queries, uint32_t dim, const uint64_t *keys)
{
	slot_batch	batch = {.count = NQ,.exact = exact,.k = K,.itopk_size = ITOPK,.mode = mode,
						 .list = list};
	uint32_t	wrong = 0;
	bool		idle = false;

	for (uint32_t q = 0; q < NQ; q++)
	{
		batch.slots[q] = (3 * q + 1) % SLOTS;
		batch.tickets[q] = 100 + q;
		memcpy(slot_query(r, batch.slots[q]), queries + (size_t) q * dim, dim * sizeof(float));
	}
	CHECK_OK(submit_slots(r, index, list % GG_SERVE_QUEUES, dim, &batch), "serve_submit");
	CHECK_OK(engine->serve_check(r->server, list % GG_SERVE_QUEUES, &idle), "serve_check");
	CHECK(idle, "the queue is idle");
	for (uint32_t q = 0; q < NQ; q++)
		wrong += bulk_done(r, batch.slots[q], list) != 100 + q ||
			memcmp(slot_keys(r, batch.slots[q], list, K), keys + q * K, K * 8) != 0;
	CHECK(wrong == 0, "%u of %u answers of list %u differ", wrong, NQ, list);
}

static void
test_kind(gg_metric metric, gg_element element)
{
	harness_spec spec = {SHAPE_MANIFOLD, harness_size(3000, 4), 24, 0, 0, metric, element, 0, 7};
	gg_build_params build = {.graph_degree = 16,.intermediate_graph_degree = 32,.seed = 1};
	gg_control	control = {.threads = 2};
	gg_search_params params = {.k = K,.itopk_size = ITOPK};
	uint64_t   *keys = malloc(NQ * K * sizeof(uint64_t));
	gg_dataset	data;
	gg_graph	graph,
				again;
	float	   *queries;
	gg_index   *opened,
			   *filled,
			   *rows;
	bulk_region r;
	uint32_t	n;

	harness_data(&spec, &data, &queries, NQ);
	n = data.n;
	CHECK_OK(engine->build(&data, &build, &control, &graph, NULL), "build");
	CHECK_OK(engine->index_open(&data, &graph, NULL, &opened), "index_open");
	filled = fill(&data, &graph, n);
	CHECK_OK(engine->index_finish(filled, n, NULL), "index_finish");
	open_region(&r, data.dim);

	for (params.mode = GG_SEARCH_AUTO; params.mode <= GG_SEARCH_TSDG_LARGE; params.mode++)
	{
		CHECK_OK(engine->index_search(opened, &params, queries, NQ, NULL, keys),
				 "index_search");
		serve(&r, filled, 0, false, params.mode, queries, data.dim, keys);
	}
	CHECK_OK(engine->index_exact(opened, K, NULL, queries, NQ, NULL, keys),
			 "index_exact");
	serve(&r, filled, 1, true, GG_SEARCH_AUTO, queries, data.dim, keys);
	for (uint32_t count = 1; count <= NQ; count += NQ - 1)
	{
		for (int mode = GG_SEARCH_AUTO; mode <= GG_SEARCH_TSDG_LARGE; mode++)
			bulk_answers(engine, filled, false, (gg_search_mode) mode, data.dim, queries, count,
						 K, ITOPK, 1);
		bulk_answers(engine, filled, true, GG_SEARCH_AUTO, data.dim, queries, count, K, 0, 1);
	}

	engine->index_close(opened);
	CHECK_OK(engine->index_open(&data, NULL, NULL, &opened), "index_open without a graph");
	serve(&r, opened, 0, true, GG_SEARCH_AUTO, queries, data.dim, keys);

	/* rows alone, half of what there is room for */
	rows = fill(&data, NULL, n + 10);
	CHECK_OK(engine->index_finish(rows, n / 2, NULL), "index_finish of half");
	data.n = n / 2;
	graph.n = n / 2;
	engine->index_close(opened);
	CHECK_OK(engine->index_open(&data, &graph, NULL, &opened), "index_open of half");
	CHECK_OK(engine->index_exact(opened, K, NULL, queries, NQ, NULL, keys),
			 "index_exact of half");
	serve(&r, rows, 0, true, GG_SEARCH_AUTO, queries, data.dim, keys);
	CHECK(engine->index_search(rows, &params, queries, 1, NULL, keys).code == GG_EINVAL,
		  "no graph, no walk");
	{
		gg_index   *indexes[] = {filled, rows, NULL, filled};
		const bool	measured[] = {false, true, false, true};

		for (uint32_t count = 1; count <= 301; count += 100)
		{
			group_lists lists = group_repeat(indexes, measured, 4, count);

			for (int mode = GG_SEARCH_AUTO; mode <= GG_SEARCH_TSDG_LARGE; mode++)
			{
				params.mode = (gg_search_mode) mode;
				group_answers(engine, &lists, data.dim, queries + count * data.dim / 10, &params,
							  1);
			}
			group_lists_free(&lists);
		}
	}
	engine->index_close(rows);

	/* a build over rows that were written */
	data.n = n;
	control.threads = 1;
	gg_graph_free(&graph);
	CHECK_OK(engine->build(&data, &build, &control, &graph, NULL), "build");
	rows = fill(&data, NULL, n);
	CHECK_OK(engine->build_index(rows, n, &build, &control, &again, NULL), "build_index");
	CHECK(again.n == graph.n && memcmp(again.adjacency, graph.adjacency,
									   (size_t) n * graph.degree * sizeof(uint32_t)) == 0,
		  "the same graph");
	gg_graph_free(&again);
	engine->index_close(rows);

	bulk_close(&r);
	engine->index_close(opened);
	engine->index_close(filled);
	gg_graph_free(&graph);
	harness_free(&data, queries);
	free(keys);
}

static void
test_preconditions(void)
{
	gg_shape	shape = {.capacity = 10,.dim = 4,.element = GG_ELEMENT_F32,.metric = GG_METRIC_L2};
	gg_search_params params = {.k = 1,.itopk_size = 1};
	float		row[4] = {0};
	uint64_t	key;
	gg_index   *index;
	gg_device_info info;
	int			count = 0;

	shape.npivots = 2;
	CHECK(engine->index_create(&shape, &index).code == GG_EINVAL && index == NULL,
		  "pivots without a graph");
	shape.npivots = 0;
	shape.dim = 0;
	CHECK(engine->index_create(&shape, &index).code == GG_EINVAL, "no dimensions");
	shape.dim = 4;
	CHECK_OK(engine->index_create(&shape, &index), "index_create");
	CHECK(engine->index_write(index, GG_PART_ROWS, 145, row, 16).code == GG_EINVAL,
		  "behind the end");
	CHECK(engine->index_write(index, GG_PART_ROWS, UINT64_MAX, row, 16).code == GG_EINVAL,
		  "far behind the end");
	CHECK(engine->index_write(index, GG_PART_PIVOTS, 0, row, 4).code == GG_EINVAL,
		  "a part that is not there");
	CHECK_OK(engine->index_write(index, GG_PART_ROWS, 144, row, 16), "the last row");
	CHECK(engine->index_exact(index, 1, NULL, row, 1, NULL, &key).code == GG_EINVAL,
		  "not finished");
	CHECK(engine->index_search(index, &params, row, 1, NULL, &key).code == GG_EINVAL,
		  "not finished");
	CHECK(engine->index_finish(index, 11, NULL).code == GG_EINVAL, "more rows than memory");
	CHECK_OK(engine->index_finish(index, 0, NULL), "no rows yet");
	CHECK(engine->index_finish(index, 1, NULL).code == GG_EINVAL, "finished once");
	engine->index_close(index);

	CHECK_OK(engine->device_count(&count), "device_count");
	CHECK(count == 1, "%d devices", count);
	CHECK_OK(engine->device_info(0, &info), "device_info");
	CHECK(info.total_bytes > info.free_bytes / 2 && info.name[0] != '\0', "%s", info.name);
}

static void
test_bulk_refusals(void)
{
	gg_index   *graph = refusals_index(engine, 4, 16);
	gg_index   *rows = refusals_index(engine, 0, 16);

	CHECK_OK(engine->index_finish(graph, 5, NULL), "index_finish");
	CHECK_OK(engine->index_finish(rows, 1, NULL), "index_finish");
	bulk_refusals(engine, graph, rows);
	engine->index_close(rows);
	engine->index_close(graph);
}

static void
test_deep(void)
{
	static const deep_spec specs[] = {
		{.n = 6000,.dim = 16},
		{.n = 3000,.dim = 20,.metric = GG_METRIC_COSINE,.offsets = true},
		{.n = 2000,.dim = 33,.metric = GG_METRIC_IP,.element = GG_ELEMENT_F16,.offsets = true},
		{.n = 5000,.dim = 3,.metric = GG_METRIC_L1,.coarse = true},
		{.n = 2000,.dim = 5,.metric = GG_METRIC_COSINE,.element = GG_ELEMENT_F16,.spare = 77},
		{.n = 3000,.dim = 40,.graph = true,.codes = GG_CODES_INT4},
		{.n = 2000,.dim = 100,.metric = GG_METRIC_COSINE,.element = GG_ELEMENT_F16,.offsets = true,
			.graph = true,.codes = GG_CODES_INT8},
		{.n = 2000,.dim = 48,.element = GG_ELEMENT_F16,.graph = true,.codes = GG_CODES_INT4,
			.mean = deep_mean},
		{.n = 2000,.dim = 33,.metric = GG_METRIC_COSINE,.element = GG_ELEMENT_F16,.graph = true,
			.codes = GG_CODES_INT8,.mean = deep_mean},
		{.n = 1,.dim = 4},
		{.n = 0,.dim = 4,.spare = 3}
	};

	for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
	{
		const deep_spec spec = deep_fewer(specs[i]);

		deep_test(engine, &spec, 0);
		deep_several(engine, &spec, 0);
		deep_many(engine, &spec, 0);
		deep_few_tids(engine, &spec, 0);
	}
	deep_bad_offsets(engine);
	deep_refusals(engine);
	deep_without_bounds(engine);
}

int
main(void)
{
	test_kind(GG_METRIC_L2, GG_ELEMENT_F32);
	test_kind(GG_METRIC_COSINE, GG_ELEMENT_F16);
	if (!harness_fewer())
	{
		test_kind(GG_METRIC_IP, GG_ELEMENT_F32);
		test_kind(GG_METRIC_L1, GG_ELEMENT_F16);
	}
	test_preconditions();
	serve_refuses_layouts(engine);
	serve_refuses_batches(engine);
	test_bulk_refusals();
	group_refusals(engine);
	test_deep();
	take_test(engine);
	return harness_finish();
}
