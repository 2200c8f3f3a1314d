/*
 * code_cases.h
 *		Rows, queries and a graph; indexes with codes of them, of either engine.
 */
#ifndef CODE_CASES_H
#define CODE_CASES_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/engine/request.h"
#include "harness.h"

/* the one that is tested; graphs and true answers are the CPU engine's */
static const gg_engine *engine = &gg_cpu_engine;
static const gg_control three_threads = {.threads = 3};
static const gg_metric metrics[] = {GG_METRIC_L2, GG_METRIC_IP, GG_METRIC_COSINE, GG_METRIC_L1};
static const gg_codes kinds[] = {GG_CODES_INT8, GG_CODES_INT4};

/* What codes are centred by: dim elements, which are copied, or NULL. */
static const float *mean_of_test;

#define K 10u
#define ITOPK 64u

/* Rows, queries, a graph; keys of the exact answers. */
typedef struct rows
{
	gg_dataset	data;
	float	   *queries;
	uint32_t	nq;
	gg_graph	graph;
	uint64_t   *truth;			/* nq x K */
} rows;

static void
rows_make(rows *r, const harness_spec *spec, uint32_t nq)
{
	gg_build_params params = {.graph_degree = 32,.intermediate_graph_degree = 64,.seed = 1};
	gg_index   *index;

	r->nq = nq;
	harness_data(spec, &r->data, &r->queries, nq);
	CHECK_OK(gg_cpu_engine.build(&r->data, &params, &three_threads, &r->graph, NULL), "build");
	CHECK_OK(gg_cpu_engine.index_open(&r->data, NULL, NULL, &index), "index_open");
	r->truth = harness_nearest(&gg_cpu_engine, index, K, NULL, r->queries, nq, &three_threads,
							   "index_exact");
	gg_cpu_engine.index_close(index);
}

static void
rows_free(rows *r)
{
	gg_graph_free(&r->graph);
	harness_free(&r->data, r->queries);
	free(r->truth);
}

static gg_shape
shape_of(const rows *r, gg_codes codes, gg_row_place place)
{
	gg_shape	shape = {.capacity = r->data.n,.dim = r->data.dim,.element = r->data.element,
						 .metric = r->data.metric,.degree = r->graph.degree,
						 .npivots = r->graph.npivots,.codes = codes,.row_place = place,
						 .code_seed = 99,.code_mean = mean_of_test,.rows = r->data.n};

	return shape;
}

/* Rows are written in pieces of three, from the last to the first. */
static void
write_rows(gg_index *index, const rows *r)
{
	size_t		bytes = r->data.dim * gg_element_size(r->data.element);

	for (uint32_t left = r->data.n; left > 0;)
	{
		uint32_t	count = left < 3 ? left : 3;

		left -= count;
		CHECK_OK(engine->index_write(index, GG_PART_ROWS, left * bytes,
									 (const char *) r->data.rows + left * bytes, count * bytes),
				 "index_write");
	}
}

/* All but rows or codes.  Every fifth row is dead: its TID is invalid. */
static gg_index *
index_begin(const rows *r, gg_codes codes, gg_row_place place)
{
	gg_shape	shape = shape_of(r, codes, place);
	uint64_t	list_bytes = (uint64_t) r->graph.degree * r->data.n * sizeof(uint32_t);
	uint32_t   *pivots;
	gg_index   *index;

	CHECK_OK(engine->index_create(&shape, &index), "index_create");
	CHECK(engine->index_bytes(index) == engine->shape_bytes(&shape), "bytes");
	CHECK_OK(engine->index_write(index, GG_PART_ADJACENCY, 0, r->graph.adjacency, list_bytes),
			 "lists");
	pivots = harness_pivots(&r->graph);
	CHECK_OK(engine->index_write(index, GG_PART_PIVOTS, 0, pivots, r->graph.npivots *
								 (1 + GG_PIVOT_DEGREE) * sizeof(uint32_t)), "pivots");
	free(pivots);
	for (uint32_t i = 0; i < r->data.n; i++)
	{
		uint64_t	head = i % 5 == 0 ? 0 : (uint64_t) i << 16 | UINT64_C(1) << 32;

		CHECK_OK(engine->index_write(index, GG_PART_TIDS, i * sizeof(head), &head, sizeof(head)),
				 "heads");
	}
	return index;
}

static gg_index *
index_make(const rows *r, gg_codes codes, gg_row_place place, const gg_control *control)
{
	gg_index   *index = index_begin(r, codes, place);

	write_rows(index, r);
	CHECK_OK(engine->index_finish(index, r->data.n, control), "index_finish");
	return index;
}

static uint64_t *
search(gg_index *index, const rows *r, const gg_search_params *params, const gg_control *control)
{
	return harness_found(engine, index, params, r->queries, r->nq, control, "index_search");
}

/* Places in which two answers name the same node. */
static uint32_t
count_same(const uint64_t *a, const uint64_t *b, uint32_t count)
{
	uint32_t	same = 0;

	for (uint32_t i = 0; i < count; i++)
		same += key_node(a[i]) == key_node(b[i]);
	return same;
}

static double
recall(const rows *r, const uint64_t *keys)
{
	uint32_t	hits = 0;

	for (uint32_t q = 0; q < r->nq; q++)
	{
		const float last = key_distance(r->truth[q * K + K - 1]);

		/* engines add in different orders */
		for (uint32_t i = 0; i < K; i++)
			hits += key_distance(keys[q * K + i]) <= last + 1e-5f * fabsf(last);
	}
	return (double) hits / (r->nq * K);
}

/*
 * The answer without rows, of as many nodes as are measured by row, and measured here: that of the
 * index with rows.
 */
static void
check_no_rows(const rows *r, gg_codes codes, const uint64_t *expected, const char *what)
{
	gg_search_params params = {.k = K,.itopk_size = ITOPK};
	uint32_t	most = gg_rerank_size(&params, codes, r->data.dim);
	gg_index   *index = index_make(r, codes, GG_ROWS_NONE, NULL);
	gg_index   *exact;
	uint64_t   *estimates;
	uint64_t   *keys = malloc((size_t) r->nq * K * sizeof(uint64_t));
	uint32_t   *filter = calloc(r->data.n / 32 + 1, sizeof(uint32_t));
	uint32_t	unordered = 0;

	params.k = most;
	estimates = search(index, r, &params, &three_threads);
	CHECK_OK(engine->index_open(&r->data, NULL, NULL, &exact), "index_open");
	for (uint32_t q = 0; q < r->nq; q++)
	{
		const uint64_t *list = estimates + (size_t) q * most;

		memset(filter, 0, (r->data.n / 32 + 1) * sizeof(uint32_t));
		for (uint32_t i = 0; i < most; i++)
		{
			filter[key_node(list[i]) / 32] |= 1u << key_node(list[i]) % 32;
			unordered += i > 0 && list[i - 1] >= list[i];
		}
		CHECK_OK(engine->index_exact(exact, K, filter, r->queries + (size_t) q * r->data.dim, 1,
									 NULL, keys + q * K), "index_exact");
	}
	CHECK(unordered == 0, "%s: %u estimates out of order", what, unordered);
	/* exact passes add in another order, which may turn two rows at one distance round */
	CHECK(count_same(keys, expected, r->nq * K) >= r->nq * K * 0.999,
		  "%s: %u of %u answers are of the rows that are measured", what,
		  count_same(keys, expected, r->nq * K), r->nq * K);
	CHECK(engine->index_exact(index, K, NULL, r->queries, 1, NULL, keys).code == GG_EUNSUPPORTED,
		  "%s: exact answers without rows", what);
	engine->index_close(exact);
	engine->index_close(index);
	free(estimates);
	free(keys);
	free(filter);
}

/* Where no rows are kept, pieces of them are whole ones.  engine: the one that is tested. */
static void
check_whole_rows(void)
{
	float		row[10] = {0};
	gg_shape	shape = {.capacity = 4,.dim = 5,.element = GG_ELEMENT_F32,
		.metric = GG_METRIC_L2,.degree = 4,.npivots = 1,.codes = GG_CODES_INT4,
	.row_place = GG_ROWS_NONE};
	gg_index   *index;

	CHECK_OK(engine->index_create(&shape, &index), "index_create");
	CHECK(engine->index_write(index, GG_PART_ROWS, 4, row, 20).code == GG_EINVAL,
		  "from the middle of a row");
	CHECK(engine->index_write(index, GG_PART_ROWS, 20, row, 24).code == GG_EINVAL,
		  "to the middle of a row");
	CHECK(engine->index_write(index, GG_PART_ROWS, 60, row, 40).code == GG_EINVAL,
		  "more rows than there are");
	CHECK_OK(engine->index_write(index, GG_PART_ROWS, 40, row, 40), "whole rows");
	engine->index_close(index);
}

/* ---- codes that are brought ------------------------------------------------- */

/* An index that is given codes in the place of rows answers as one that makes them. */
static void
test_brought(void)
{
	harness_spec spec = {.n = harness_size(2000, 4), .dim = 33, .seed = 52};
	const gg_search_params params = {.k = K,.itopk_size = ITOPK};
	rows		r;
	gg_index   *index;
	gg_coder	coder;
	float		scratch[2 * 33];
	uint8_t    *codes;
	uint64_t    bytes;

	rows_make(&r, &spec, 20);
	for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++)
	{
		uint64_t   *keys[2];

		const gg_code_kind how = {r.data.metric, spec.dim, kinds[kind], 99, mean_of_test};

		CHECK_OK(gg_coder_init(&coder, &how), "gg_coder_init");
		bytes = (uint64_t) r.data.n * coder.record_bytes;
		codes = malloc(bytes);
		for (uint32_t i = 0; i < r.data.n; i++)
			gg_code_row(&coder, (const float *) r.data.rows + (size_t) i * spec.dim, r.data.element,
						scratch, codes + (size_t) i * coder.record_bytes);
		index = index_make(&r, kinds[kind], GG_ROWS_NONE, NULL);
		keys[0] = search(index, &r, &params, NULL);
		engine->index_close(index);

		index = index_begin(&r, kinds[kind], GG_ROWS_NONE);
		CHECK(engine->index_write(index, GG_PART_CODES, 1, codes, bytes).code == GG_EINVAL,
			  "more codes than nodes");
		for (uint64_t at = 0; at < bytes; at += 1000)
			CHECK_OK(engine->index_write(index, GG_PART_CODES, at, codes + at,
										 bytes - at < 1000 ? bytes - at : 1000), "codes");
		CHECK_OK(engine->index_finish(index, r.data.n, NULL), "index_finish");
		keys[1] = search(index, &r, &params, NULL);
		CHECK(memcmp(keys[0], keys[1], (size_t) r.nq * K * sizeof(uint64_t)) == 0,
			  "kind %zu: other answers", kind);
		engine->index_close(index);

		index = index_begin(&r, kinds[kind], GG_ROWS_DEVICE);
		CHECK(engine->index_write(index, GG_PART_CODES, 0, codes, bytes).code == GG_EINVAL,
			  "codes beside rows");
		engine->index_close(index);
		free(keys[0]);
		free(keys[1]);
		free(codes);
		gg_coder_free(&coder);
	}
	rows_free(&r);
}

#endif							/* CODE_CASES_H */
