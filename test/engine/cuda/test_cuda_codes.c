/*
 * test_cuda_codes.c
 *		Codes of the CUDA engine: their bytes and the estimates from them against the CPU engine's,
 *		walks by them, served ones too, and exact searches beside them.
 *
 * Needs a GPU.
 *
 *	bytes		every metric, type, code; wherever rows come from
 *	estimates	an index without rows answers with the CPU engine's numbers for the nodes that it
 *				finds.  Queries under cosine get unit length first, by sums in another order, and
 *				L1 is a sum of float32: there the last bits may differ
 *	walks		recall is the CPU engine's but for 0.01; answers are the nearest of the nodes that
 *				the walk ends with, by row, wherever rows are.  Batches of different sizes choose
 *				pivots by other roundings, so a few nodes may differ
 *	served		what is served is what the waiting searches answer
 *	exact		what an index without codes answers
 *	refusals	exact searches without rows; host memory that cannot be had
 */
#include <math.h>
#include <stdio.h>

#include "../../../src/engine/rules/codes.h"
#include "../code_cases.h"
#include "../serve_bulk.h"
#include "inside.h"

static const gg_element elements[] = {GG_ELEMENT_F32, GG_ELEMENT_F16};
static const gg_row_place places[] = {GG_ROWS_DEVICE, GG_ROWS_HOST, GG_ROWS_NONE};

/* ---- bytes ---------------------------------------------------------------- */

/* A row of its own size each; zeros; what has no size; the largest and the smallest numbers. */
static void
strange_rows(rows *r)
{
	harness_random random = {17};
	const uint32_t dim = r->data.dim;

	for (uint32_t i = 0; i < r->data.n; i++)
		for (uint32_t j = 0; j < dim; j++)
		{
			float		x = (float) harness_normal(&random);

			switch (i)
			{
				case 0:
					x = 0;
					break;
				case 1:
					x *= 0x1p-20f;
					break;
				case 2:
					x = (float) (int) (x * 50);
					break;
				case 3:
					x = j == dim / 2 ? -2.5f : 0;
					break;
				case 4:
					x = j == dim / 2 ? INFINITY : x;
					break;
				case 5:
					x = j == dim / 2 ? NAN : x;
					break;
				case 6:
					x = 0.7f;
					break;
				case 7:
					x = r->data.element == GG_ELEMENT_F16 ? 65504 : 0x1.FFFFFEp127f;
					break;
				case 8:
					x = r->data.element == GG_ELEMENT_F16 ? 0x1p-24f : 0x1p-140f;
					break;
				default:
					x *= 3;
			}
			if (r->data.element == GG_ELEMENT_F16)
				((uint16_t *) r->data.rows)[i * dim + j] = gg_float_to_half(x);
			else
				((float *) r->data.rows)[i * dim + j] = x;
		}
}

/* Rows in a ring, which is a graph. */
static void
ring_make(rows *r, uint32_t n, uint32_t dim, gg_metric metric, gg_element element)
{
	memset(r, 0, sizeof(*r));
	r->data.n = n;
	r->data.dim = dim;
	r->data.metric = metric;
	r->data.element = element;
	r->data.rows = malloc((size_t) n * dim * gg_element_size(element));
	r->graph.n = n;
	r->graph.degree = 4;
	r->graph.npivots = 1;
	r->graph.adjacency = malloc((size_t) n * 4 * sizeof(uint32_t));
	r->graph.pivots = calloc(1, sizeof(uint32_t));
	r->graph.pivot_adjacency = calloc(GG_PIVOT_DEGREE, sizeof(uint32_t));
	for (uint32_t i = 0; i < n * 4; i++)
		r->graph.adjacency[i] = i % 4 == 0 ? (i / 4 + 1) % n : GG_NO_NODE;
	strange_rows(r);
}

static void
ring_free(rows *r)
{
	gg_graph_free(&r->graph);
	free((void *) r->data.rows);
}

static void
check_bytes(gg_metric metric, gg_element element, gg_codes codes, uint32_t dim, gg_row_place place)
{
	rows		r;
	gg_index   *index;
	gg_coder	coder;
	const gg_code_kind kind = {metric, dim, codes, 99, mean_of_test};
	float	   *scratch = malloc(2 * dim * sizeof(float));
	uint8_t    *records;
	uint8_t    *record;
	uint32_t	wrong = 0;

	ring_make(&r, harness_size(40, 2), dim, metric, element);
	index = index_make(&r, codes, place, NULL);
	CHECK_OK(gg_coder_init(&coder, &kind), "gg_coder_init");
	records = malloc((size_t) r.data.n * coder.record_bytes);
	record = malloc(coder.record_bytes);
	CHECK_OK(inside_cuda_codes(index, r.data.n, records), "inside_cuda_codes");
	for (uint32_t i = 0; i < r.data.n; i++)
	{
		gg_code_row(&coder, (const char *) r.data.rows +
					(size_t) i * dim * gg_element_size(element), element, scratch, record);
		wrong += memcmp(record, records + (size_t) i * coder.record_bytes,
						coder.record_bytes) != 0;
	}
	CHECK(wrong == 0, "metric %d element %d bits %u dim %u place %d: %u of %u codes",
		  (int) metric, (int) element, coder.bits, dim, (int) place, wrong, r.data.n);
	engine->index_close(index);
	gg_coder_free(&coder);
	free(scratch);
	free(records);
	free(record);
	ring_free(&r);
}

/* Every other time with a mean. */
static void
test_bytes(void)
{
	static const uint32_t dims[] = {1, 2, 3, 31, 96, 100, 200, 784, 1536, 16000};
	static float mean[16000];
	int			place = 0;

	for (uint32_t i = 0; i < 16000; i++)
		mean[i] = 1.25f - 0.3f * (float) (i % 7);
	for (int m = 0; m < 4; m++)
		for (int e = 0; e < 2; e++)
			for (int k = 0; k < 2; k++)
				for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++)
					for (int centred = 0; centred < (dims[d] < 200 ? 2 : 1); centred++)
					{
						if (harness_fewer() && dims[d] >= 1000 && (m + k) % 3 != 0)
							continue;
						mean_of_test = (m + e + k + d + centred) % 2 ? mean : NULL;
						check_bytes(metrics[m], elements[e], kinds[k], dims[d],
									places[place++ % 3]);
					}
	mean_of_test = NULL;
}

/* ---- estimates ------------------------------------------------------------- */

static gg_search_mode
mode_of(int i)
{
	return i == 0 ? GG_SEARCH_SINGLE_CTA : i == 1 ? GG_SEARCH_MULTI_CTA : GG_SEARCH_AUTO;
}

static void
check_estimates(const rows *r, gg_codes codes, const char *what)
{
	gg_search_params params = {.k = ITOPK,.itopk_size = ITOPK};
	gg_index   *index = index_make(r, codes, GG_ROWS_NONE, NULL);
	const uint32_t dim = r->data.dim;
	const bool	exactly = r->data.metric == GG_METRIC_L2 || r->data.metric == GG_METRIC_IP;
	float	   *query = malloc(3 * dim * sizeof(float));
	const gg_code_kind kind = {r->data.metric, dim, codes, 99, mean_of_test};
	gg_code_query ready;
	gg_coder	coder;
	uint8_t    *records;

	CHECK_OK(gg_coder_init(&coder, &kind), "gg_coder_init");
	CHECK_OK(gg_code_query_init(&coder, &ready), "gg_code_query_init");
	records = malloc((size_t) r->data.n * coder.record_bytes);
	CHECK_OK(inside_cuda_codes(index, r->data.n, records), "inside_cuda_codes");
	for (int m = 0; m < 3; m++)
	{
		uint64_t   *keys;
		uint32_t	wrong = 0;

		params.mode = mode_of(m);
		keys = search(index, r, &params, NULL);
		for (uint32_t q = 0; q < r->nq; q++)
		{
			memcpy(query, r->queries + (size_t) q * dim, dim * sizeof(float));
			gg_query_prepare(r->data.metric, query, dim);
			gg_code_query_set(&coder, query, query + dim, &ready);
			for (uint32_t i = 0; i < ITOPK; i++)
			{
				const uint64_t key = keys[(size_t) q * ITOPK + i];
				const uint32_t node = key_node(key);
				float		value;

				if (key == GG_NO_KEY || node >= r->data.n)
				{
					wrong++;
					continue;
				}
				value = gg_code_distance(&coder, records + (size_t) node * coder.record_bytes,
										 &ready);
				wrong += exactly ? key != key_of(value, node) :
					!(fabsf(key_distance(key) - value) <= 1e-5f * fabsf(value) + 1e-6f);
				wrong += i > 0 && keys[(size_t) q * ITOPK + i - 1] >= key;
			}
		}
		CHECK(wrong == 0, "%s mode %d: %u wrong estimates", what, m, wrong);
		free(keys);
	}
	engine->index_close(index);
	gg_code_query_free(&ready);
	gg_coder_free(&coder);
	free(query);
	free(records);
}

/* ---- walks ------------------------------------------------------------------ */

/* The same through an index of the CPU engine. */
static double
cpu_recall(const rows *r, gg_codes codes)
{
	gg_search_params params = {.k = K,.itopk_size = ITOPK};
	gg_index   *index;
	uint64_t   *keys;
	double		found;

	engine = &gg_cpu_engine;
	index = index_make(r, codes, GG_ROWS_DEVICE, NULL);
	keys = search(index, r, &params, &three_threads);
	found = recall(r, keys);
	engine->index_close(index);
	engine = &gg_cuda_engine;
	free(keys);
	return found;
}

static void
check_walks(const rows *r, gg_codes codes, const char *what)
{
	gg_search_params params = {.k = K,.itopk_size = ITOPK};
	gg_index   *index = index_make(r, codes, GG_ROWS_DEVICE, NULL);
	gg_index   *hosted = index_make(r, codes, GG_ROWS_HOST, NULL);
	const uint32_t count = r->nq * K;
	const double bar = cpu_recall(r, codes) - 0.01;
	uint64_t   *first = NULL;

	for (int m = 0; m < 3; m++)
	{
		uint64_t   *keys;
		uint64_t   *other;

		params.mode = mode_of(m);
		keys = search(index, r, &params, NULL);
		other = search(hosted, r, &params, NULL);
		CHECK(memcmp(keys, other, count * sizeof(uint64_t)) == 0,
			  "%s mode %d: other answers with rows in host memory", what, m);
		CHECK(keys[count - 1] != GG_NO_KEY &&
			  harness_wrong(&r->data, r->queries, r->nq, keys, K, 1e-4) == 0,
			  "%s mode %d: %u answers are wrong", what, m,
			  harness_wrong(&r->data, r->queries, r->nq, keys, K, 1e-4));
		CHECK(recall(r, keys) >= bar, "%s mode %d: recall@10 %.4f, the CPU engine's less 0.01 %.4f",
			  what, m, recall(r, keys), bar);
		if (first == NULL)
			first = keys;
		CHECK(count_same(first, keys, count) >= count * 0.98, "%s mode %d: %u of %u as mode 0",
			  what, m, count_same(first, keys, count), count);
		free(other);
		if (first != keys)
			free(keys);
	}
	/* the mode is the same in both: one choice of pivots */
	params.mode = GG_SEARCH_AUTO;
	free(first);
	first = search(index, r, &params, NULL);
	check_no_rows(r, codes, first, what);
	free(first);
	for (uint32_t n = 1; n < r->nq; n += 7)
	{
		bulk_answers(engine, n % 2 == 0 ? index : hosted, false, GG_SEARCH_AUTO, r->data.dim,
					 r->queries, n, K, ITOPK, 0.98);
		bulk_answers(engine, hosted, true, GG_SEARCH_AUTO, r->data.dim, r->queries, n, K, ITOPK,
					 1);
	}
	engine->index_close(index);
	engine->index_close(hosted);
}

static void
test_walks(void)
{
	static const uint32_t dims[] = {100, 64, 33, 300};

	for (int m = 0; m < 4; m++)
		for (int k = 0; k < 2; k++)
		{
			harness_spec spec = {.n = harness_size(6000, 15), .dim = dims[(m + k) % 4],
				.metric = metrics[m], .seed = 21 + m, .element = elements[k % 2]};
			char		what[80];
			float		mean[300];
			rows		r;

			rows_make(&r, &spec, harness_size(300, 10));
			/* of each metric and of each kind of codes once with a mean, and once without */
			mean_of_test = (m + k) % 2 && gg_code_mean(&r.data, mean) ? mean : NULL;
			snprintf(what, sizeof(what), "metric %d codes %d dim %u%s", (int) metrics[m],
					 (int) kinds[k], spec.dim, mean_of_test != NULL ? " centred" : "");
			check_estimates(&r, kinds[k], what);
			check_walks(&r, kinds[k], what);
			mean_of_test = NULL;
			rows_free(&r);
		}
}

/* ---- exact ------------------------------------------------------------------ */

static void
test_exact(void)
{
	harness_spec spec = {.n = harness_size(3000, 5), .dim = 48, .seed = 41};

	for (int e = 0; e < 2; e++)
	{
		rows		r;
		gg_index   *plain;
		uint64_t   *a;
		uint64_t   *b;

		spec.element = elements[e];
		rows_make(&r, &spec, 20);
		a = malloc(r.nq * K * sizeof(uint64_t));
		b = malloc(r.nq * K * sizeof(uint64_t));
		plain = index_make(&r, GG_CODES_NONE, GG_ROWS_DEVICE, NULL);
		CHECK_OK(engine->index_exact(plain, K, NULL, r.queries, r.nq, NULL, a), "index_exact");
		for (int p = 0; p < 2; p++)
		{
			gg_index   *coded = index_make(&r, GG_CODES_INT4, places[p], NULL);

			CHECK_OK(engine->index_exact(coded, K, NULL, r.queries, r.nq, NULL, b), "index_exact");
			CHECK(memcmp(a, b, r.nq * K * sizeof(uint64_t)) == 0, "element %d place %d: exact",
				  e, p);
			engine->index_close(coded);
		}
		engine->index_close(plain);
		rows_free(&r);
		free(a);
		free(b);
	}
}

/* ---- sizes ------------------------------------------------------------------- */

/* No copy in fp16 beside codes; rows that are elsewhere take no memory of the device. */
static void
test_sizes(void)
{
	gg_shape	shape = {.capacity = 100000,.dim = 768,.element = GG_ELEMENT_F32,
						 .metric = GG_METRIC_L2,.degree = 32,.npivots = 1000};
	const uint64_t full = engine->shape_bytes(&shape);
	uint64_t	beside;

	shape.codes = GG_CODES_INT4;
	beside = engine->shape_bytes(&shape);
	CHECK(full - beside > (uint64_t) shape.capacity * 1100, "%llu bytes, %llu without codes",
		  (unsigned long long) beside, (unsigned long long) full);
	shape.row_place = GG_ROWS_HOST;
	CHECK(engine->shape_bytes(&shape) + (uint64_t) shape.capacity * 3072 == beside,
		  "rows in host memory: %llu bytes", (unsigned long long) engine->shape_bytes(&shape));
	CHECK(engine->shape_bytes(&shape) <= (uint64_t) shape.capacity * 600, "%llu bytes",
		  (unsigned long long) engine->shape_bytes(&shape));
	shape.row_place = GG_ROWS_NONE;
	CHECK(engine->shape_bytes(&shape) + (uint64_t) shape.capacity * 3072 == beside,
		  "no rows: %llu bytes", (unsigned long long) engine->shape_bytes(&shape));
}

int
main(void)
{
	engine = &gg_cuda_engine;
	if (!CHECK_OK(engine->probe(GG_USE_SEARCH), "probe"))
		return harness_finish();
	harness_run("bytes", test_bytes);
	harness_run("walks", test_walks);
	harness_run("exact", test_exact);
	harness_run("brought", test_brought);
	harness_run("sizes", test_sizes);
	harness_run("refusals", check_whole_rows);
	return harness_finish();
}
