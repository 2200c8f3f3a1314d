/*
 * test_code_search.c
 *		Searches of an index that has codes: by walks, which measure by codes and then some nodes
 *		by row, and exact ones, which do not look at codes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/engine/cpu/serve/index.h"
#include "code_cases.h"
#include "serve_requests.h"

static const gg_control one_thread = {.threads = 1};

/* Answers that are missing or out of order, or whose distance is not the row's. */
static uint32_t
count_wrong(const rows *r, const uint64_t *keys, uint32_t k)
{
	return (keys[r->nq * k - 1] == GG_NO_KEY) +
		harness_wrong(&r->data, r->queries, r->nq, keys, k, 0);
}

/* ---- walks --------------------------------------------------------------- */

static void
check_walks(const rows *r, gg_codes codes, double bar, const char *what)
{
	gg_search_params params = {.k = K,.itopk_size = ITOPK};
	gg_index   *index = index_make(r, codes, GG_ROWS_DEVICE, &one_thread);
	gg_index   *hosted = index_make(r, codes, GG_ROWS_HOST, &three_threads);
	size_t		bytes = (size_t) r->nq * K * sizeof(uint64_t);
	uint64_t   *one = search(index, r, &params, &one_thread);
	uint64_t   *three = search(hosted, r, &params, &three_threads);
	uint64_t   *all;
	uint64_t   *few;
	uint32_t	worse = 0;

	CHECK(memcmp(one, three, bytes) == 0, "%s: three threads answer something else", what);
	CHECK(count_wrong(r, one, K) == 0, "%s: wrong answers", what);
	CHECK(recall(r, one) >= bar, "%s: recall@10 %.4f", what, recall(r, one));
	check_no_rows(r, codes, one, what);

	/* the more rows are measured, the nearer is each answer */
	params.rerank = ITOPK;
	all = search(index, r, &params, &three_threads);
	params.rerank = 1;
	few = search(index, r, &params, &three_threads);
	for (uint32_t i = 0; i < r->nq * K; i++)
		worse += all[i] > one[i] || one[i] > few[i];
	CHECK(worse == 0, "%s: %u answers farther with more rows measured", what, worse);
	CHECK(count_wrong(r, few, K) == 0, "%s: wrong answers if as many rows are measured", what);

	/* no more than are in the list */
	params.k = ITOPK;
	free(three);
	three = search(index, r, &params, &three_threads);
	CHECK(count_wrong(r, three, ITOPK) == 0, "%s: wrong lists", what);
	for (uint32_t q = 0; q < r->nq; q++)
		CHECK(memcmp(three + (size_t) q * ITOPK, all + q * K, K * sizeof(uint64_t)) == 0,
			  "%s: query %u: the list of all begins otherwise", what, q);
	engine->index_close(index);
	engine->index_close(hosted);
	free(one);
	free(three);
	free(all);
	free(few);
}

static void
test_walks(void)
{
	for (int m = 0; m < 4; m++)
		for (int k = 0; k < 2; k++)
		{
			harness_spec spec = {.n = harness_size(6000, 20), .dim = 100, .metric = metrics[m],
				.seed = 21 + m, .element = k == 1 ? GG_ELEMENT_F16 : GG_ELEMENT_F32};
			char		what[80];
			rows		r;

			/* one of them each is enough for a slow checker */
			if (harness_fewer() && k != m % 3)
				continue;
			rows_make(&r, &spec, harness_size(100, 10));
			snprintf(what, sizeof(what), "metric %d codes %d", (int) metrics[m], (int) kinds[k]);
			check_walks(&r, kinds[k], 0.97, what);
			rows_free(&r);
		}
}

/* The procedures of TSDG measure by codes, too; and few rows are all found. */
static void
test_modes(void)
{
	static const gg_search_mode modes[] = {GG_SEARCH_TSDG_SMALL, GG_SEARCH_TSDG_LARGE};
	harness_spec spec = {.n = harness_size(4000, 20), .dim = 64, .seed = 31};
	rows		r;

	rows_make(&r, &spec, harness_size(100, 10));
	for (int m = 0; m < 2; m++)
	{
		gg_search_params params = {.k = K,.itopk_size = ITOPK,.mode = modes[m]};
		gg_index   *index = index_make(&r, GG_CODES_INT4, GG_ROWS_DEVICE, NULL);
		uint64_t   *keys = search(index, &r, &params, &three_threads);

		CHECK(count_wrong(&r, keys, K) == 0, "mode %d: wrong answers", (int) modes[m]);
		CHECK(recall(&r, keys) >= 0.95, "mode %d: recall@10 %.4f", (int) modes[m],
			  recall(&r, keys));
		engine->index_close(index);
		free(keys);
	}
	rows_free(&r);

	spec.n = K + 3;
	rows_make(&r, &spec, 5);
	for (int k = 0; k < 2; k++)
	{
		gg_search_params params = {.k = K,.itopk_size = ITOPK};
		gg_index   *index = index_make(&r, kinds[k], GG_ROWS_DEVICE, NULL);
		uint64_t   *keys = search(index, &r, &params, NULL);

		CHECK(memcmp(keys, r.truth, r.nq * K * sizeof(uint64_t)) == 0, "few rows, codes %d",
			  (int) kinds[k]);
		engine->index_close(index);
		free(keys);
	}
	rows_free(&r);
}

/* ---- exact --------------------------------------------------------------- */

/* Filters, dead rows, lists behind a key: the answer is that of an index without codes. */
static void
test_exact(void)
{
	static const uint64_t tids[] = {7 << 16 | 1, 10 << 16 | 1, 11 << 16 | 1, 12 << 16 | 1,
									300 << 16 | 1};
	harness_spec spec = {.n = 500, .dim = 40, .seed = 41};
	gg_filter  *filter = calloc(1, sizeof(gg_filter));
	rows		r;

	rows_make(&r, &spec, 6);
	for (int k = 0; k < 2; k++)
	{
		gg_index   *plain = index_make(&r, GG_CODES_NONE, GG_ROWS_DEVICE, NULL);
		gg_index   *coded = index_make(&r, kinds[k], GG_ROWS_DEVICE, NULL);
		uint64_t	a[6 * K];
		uint64_t	b[6 * K];

		CHECK_OK(engine->index_exact(coded, K, NULL, r.queries, r.nq, NULL, a), "index_exact");
		CHECK(memcmp(a, r.truth, sizeof(a)) == 0, "codes %d: exact", (int) kinds[k]);
		for (int pass = 0; pass < 3; pass++)
			for (uint32_t q = 0; q < r.nq; q++)
			{
				uint64_t	matches[2];
				gg_deep_search search = {.k = K,.after = pass == 1 ? r.truth[q * K + 4] : 0,
										 .query = r.queries + (size_t) q * r.data.dim,
										 .keys = a,.matches = &matches[0]};

				filter->tids = pass == 2 ? tids : NULL;
				filter->ntids = 5;
				CHECK_OK(gg_cpu_index_deep(coded, filter, &search, 1), "deep");
				search.keys = b;
				search.matches = &matches[1];
				CHECK_OK(gg_cpu_index_deep(plain, filter, &search, 1), "deep");
				CHECK(memcmp(a, b, K * sizeof(uint64_t)) == 0 && matches[0] == matches[1],
					  "codes %d pass %d query %u", (int) kinds[k], pass, q);
				CHECK(matches[0] == (pass == 2 ? 3 : 400), "%llu rows match",
					  (unsigned long long) matches[0]);
			}
		engine->index_close(plain);
		engine->index_close(coded);
	}
	rows_free(&r);
	free(filter);
}

/*
 * A server answers walks by codes as index_search() does.  What reads rows it refuses where there
 * are none, so that somebody else answers it.
 */
static void
test_server(void)
{
	static const gg_row_place places[] = {GG_ROWS_DEVICE, GG_ROWS_HOST, GG_ROWS_NONE};
	harness_spec spec = {.n = 300, .dim = 16, .seed = 51};
	bulk_region region = {.engine = engine,.bytes = 1024,.query = 320,.keys = 192,
						  .layout = {.slot_bytes = 384,.nslots = 1}};
	rows		r;

	rows_make(&r, &spec, 1);
	region.memory = aligned_alloc(64, region.bytes);
	memset(region.memory, 0, region.bytes);
	region.layout.slots = region.memory;
	CHECK_OK(engine->serve_open(0, region.memory, region.bytes, &region.layout, &region.server),
			 "serve_open");
	memcpy(slot_query(&region, 0), r.queries, 16 * sizeof(float));
	for (uint32_t p = 0; p < 3; p++)
	{
		gg_index   *index = index_make(&r, GG_CODES_INT8, places[p], NULL);
		gg_search_params params = {.k = K,.itopk_size = ITOPK};
		uint64_t   *keys = search(index, &r, &params, NULL);
		slot_batch	batch = {.count = 1,.k = K,.itopk_size = ITOPK,.tickets = {2 * p + 1}};
		gg_code		code;

		CHECK_OK(submit_slots(&region, index, 0, 16, &batch), "serve_submit");
		CHECK(memcmp(slot_keys(&region, 0, 0, K), keys, K * sizeof(uint64_t)) == 0,
			  "rows in place %u: a walk", p);
		batch.exact = true;
		batch.tickets[0]++;
		code = submit_slots(&region, index, 0, 16, &batch).code;
		CHECK(code == (places[p] == GG_ROWS_NONE ? GG_EUNSUPPORTED : GG_OK),
			  "rows in place %u: all rows measured: %d", p, (int) code);
		CHECK(code != GG_OK ||
			  memcmp(slot_keys(&region, 0, 0, K), r.truth, K * sizeof(uint64_t)) == 0,
			  "rows in place %u: all rows measured", p);
		engine->index_close(index);
		free(keys);
	}
	engine->serve_close(region.server);
	free(region.memory);
	rows_free(&r);
}

/* ---- shapes -------------------------------------------------------------- */

static void
test_refusals(void)
{
	gg_shape	good = {.capacity = 4,.dim = 5,.element = GG_ELEMENT_F32,.metric = GG_METRIC_L2,
						.degree = 4,.npivots = 1,.codes = GG_CODES_INT4};
	gg_shape	shape = good;
	gg_index   *index;

	shape.codes = (gg_codes) 4;
	CHECK(engine->index_create(&shape, &index).code == GG_EINVAL, "codes of no kind");
	shape = good;
	shape.row_place = (gg_row_place) 3;
	CHECK(engine->index_create(&shape, &index).code == GG_EINVAL, "rows in no place");
	shape = good;
	shape.codes = GG_CODES_NONE;
	shape.row_place = GG_ROWS_NONE;
	CHECK(engine->index_create(&shape, &index).code == GG_EINVAL, "neither rows nor codes");
	shape = good;
	shape.degree = shape.npivots = 0;
	CHECK(engine->index_create(&shape, &index).code == GG_EINVAL, "codes without a graph");

	shape = good;
	shape.row_place = GG_ROWS_NONE;
	CHECK(engine->shape_bytes(&shape) + 4 * 5 * sizeof(float) == engine->shape_bytes(&good),
		  "rows take memory");
	check_whole_rows();
}

int
main(void)
{
	harness_run("walks", test_walks);
	harness_run("modes", test_modes);
	harness_run("exact", test_exact);
	harness_run("server", test_server);
	harness_run("brought", test_brought);
	harness_run("refusals", test_refusals);
	return harness_finish();
}
