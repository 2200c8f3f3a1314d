/*
 * test_search.c
 *		Searches of an index in memory: exact ones against sums in double precision, walks
 *		against exact ones.
 */
#include <math.h>

#include "foreign.h"
#include "search_cases.h"

static const gg_engine *const engine = &gg_cpu_engine;

/* ---- exact ------------------------------------------------------------- */

static bool
has_bit(const uint32_t *filter, uint32_t node)
{
	return filter == NULL || (filter[node / 32] >> node % 32 & 1) != 0;
}

/*
 * The exact answer for one query: no row that was left out may be nearer than one that is in, but
 * for rounding.
 */
static uint32_t
exact_misses(const opened *o, const uint64_t *keys, uint32_t k, uint32_t q, const uint32_t *filter)
{
	const float *query = o->queries + (size_t) q * o->data.dim;
	uint8_t    *in = calloc(o->data.n + 1, 1);
	double		farthest = -INFINITY;
	uint32_t	misses = 0;
	uint32_t	count = 0;

	for (; count < k && keys[count] != GG_NO_KEY; count++)
	{
		const uint32_t node = key_node(keys[count]);

		in[node] = 1;
		misses += !has_bit(filter, node);
		farthest = fmax(farthest, harness_query_distance(&o->data, node, query, NULL));
	}
	for (uint32_t i = 0; i < o->data.n; i++)
		misses += !in[i] && has_bit(filter, i) &&
			(count < k || harness_query_distance(&o->data, i, query, NULL) <
			 farthest - 1e-4 * fabs(farthest) - 1e-5);
	free(in);
	return misses;
}

static void
check_exact(const opened *o, uint32_t k, const uint32_t *filter, int share)
{
	uint64_t   *one = opened_nearest(o, k, filter, 1);
	uint64_t   *three = opened_nearest(o, k, filter, 3);
	uint32_t	misses = 0;

	CHECK(opened_same(o, one, three, k), "metric %d element %d k %u: three threads differ",
		  (int) o->data.metric, (int) o->data.element, k);
	CHECK(harness_wrong(&o->data, o->queries, o->nq, one, k, 0) == 0,
		  "metric %d element %d k %u: wrong answers", (int) o->data.metric, (int) o->data.element,
		  k);
	for (uint32_t q = 0; q < o->nq; q += 7)
		misses += exact_misses(o, one + (size_t) q * k, k, q, filter);
	CHECK(misses == 0, "metric %d element %d k %u share %d: %u misses", (int) o->data.metric,
		  (int) o->data.element, k, share, misses);
	free(one);
	free(three);
}

static void
test_exact(void)
{
	const uint32_t n = harness_fewer() ? 250 : 700;
	const uint32_t ks[] = {1, 10, n, n + 300};
	static const int shares[] = {0, 1, 50, 100};

	for (gg_metric metric = GG_METRIC_L2; metric <= GG_METRIC_L1; metric++)
		for (gg_element element = GG_ELEMENT_F32; element <= GG_ELEMENT_F16; element++)
		{
			const harness_spec spec = {.n = n, .dim = 37, .metric = metric, .element = element,
				.seed = 5};
			harness_random random = {9};
			opened		o;

			/* more queries than a round, than two */
			open_spec(&o, engine, &spec, harness_fewer() ? 35 : 75);
			for (int k = 0; k < 4; k++)
				for (int s = 0; s < 4; s++)
				{
					uint32_t	filter[(700 + 31) / 32] = {0};

					for (uint32_t i = 0; i < n; i++)
						if (harness_unit(&random) * 100 < shares[s])
							filter[i / 32] |= 1u << i % 32;
					check_exact(&o, ks[k], shares[s] == 100 ? NULL : filter, shares[s]);
				}
			close_opened(&o);
		}
}

/* ---- walks ------------------------------------------------------------- */

static double
search_recall(opened *o, uint32_t itopk, const char *what)
{
	const uint32_t k = 10;
	gg_search_params params = {.k = itopk,.itopk_size = itopk};
	uint64_t   *truth = opened_nearest(o, k, NULL, 3);
	uint64_t   *one = opened_found(o, &params, 1);
	uint64_t   *three = opened_found(o, &params, 3);
	uint64_t   *first;
	double		recall;

	CHECK(opened_same(o, one, three, itopk), "%s: three threads differ", what);
	CHECK(harness_wrong(&o->data, o->queries, o->nq, one, itopk, 0) == 0, "%s: wrong answers",
		  what);

	/* fewer asked for: the first of those */
	params.k = k;
	first = opened_found(o, &params, 1);
	for (uint32_t q = 0; q < o->nq; q++)
		CHECK(memcmp(first + (size_t) q * k, one + (size_t) q * itopk, k * sizeof(uint64_t)) == 0,
			  "%s: k %u of itopk %u", what, k, itopk);
	recall = (double) harness_hits(first, truth, o->nq, k) / ((double) o->nq * k);
	free(truth);
	free(one);
	free(three);
	free(first);
	return recall;
}

static void
test_recall(void)
{
	static const struct
	{
		const char *what;
		harness_spec spec;
		double		bar;
	}			cases[] = {
		{"20 clusters", {.n = 20000,.dim = 128,.seed = 1}, 0.985},
		{"100 tight clusters", {.shape = SHAPE_TIGHT,.n = 20000,.dim = 768,.clusters = 100,
		.metric = GG_METRIC_COSINE,.seed = 2}, 0.985},
		{"cosine of halves", {.n = 8000,.dim = 96,.metric = GG_METRIC_COSINE,
		.element = GG_ELEMENT_F16,.seed = 3}, 0.985},
		{"inner product", {.n = 8000,.dim = 64,.metric = GG_METRIC_IP,.seed = 4}, 0.985},
		{"L1", {.n = 8000,.dim = 48,.metric = GG_METRIC_L1,.seed = 5}, 0.985},
		{"halves", {.n = 8000,.dim = 200,.element = GG_ELEMENT_F16,.seed = 6}, 0.985},
		/* a list of 64 is three rows and their copies: a walk as narrow as that */
		{"20 copies of each", {.shape = SHAPE_COPIES,.n = 10000,.dim = 32,.seed = 7}, 0.85},
		{"50 tight clusters", {.shape = SHAPE_TIGHT,.n = 20000,.dim = 64,.clusters = 50,.seed = 4},
		0.9},
		{"all equal", {.shape = SHAPE_EQUAL,.n = 3000,.dim = 8,.seed = 8}, 1},
	};

	/* valgrind: every other case, which are all metrics but the inner product */
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c += harness_fewer() ? 2 : 1)
	{
		harness_spec spec = cases[c].spec;
		double		recall;
		opened		o;

		spec.n = harness_size(spec.n, harness_fewer() ? 50 : 20);
		open_spec(&o, engine, &spec, harness_size(300, 10));
		recall = search_recall(&o, 64, cases[c].what);
		CHECK(recall >= cases[c].bar, "%s: recall@10 %.4f at itopk 64", cases[c].what, recall);
		close_opened(&o);
	}
}

/*
 * Queries from clusters without rows: answers lie around several pivots, and a walk that goes on
 * from the nearest two alone misses more (WALK_ENTRIES).  With seeds 1 to 5 recall is 0.873 to
 * 0.903, and 0.832 to 0.868 with no entries or two; seed 1 has 0.888 and 0.843.
 */
static void
test_queries_unlike_rows(void)
{
	static const foreign_kind without_rows = {FOREIGN_CLUSTERS / 2, FOREIGN_CLUSTERS, 0};
	const gg_build_params params = {.graph_degree = 16,.intermediate_graph_degree = 32,.seed = 1};
	const uint32_t n = harness_size(12000, harness_fewer() ? 50 : 20);
	opened		o = {.nq = harness_size(600, 10)};
	foreign    *made = foreign_create(48, 1);
	double		recall;

	o.data = (gg_dataset) {foreign_draw(made, foreign_rows, n, 2), n, 48, GG_ELEMENT_F32,
						   GG_METRIC_IP};
	o.queries = foreign_draw(made, without_rows, o.nq, 4);
	open_data(&o, engine, &params);
	recall = search_recall(&o, 32, "queries unlike the rows");
	CHECK(recall > 0.866, "queries unlike the rows: recall@10 %.4f at itopk 32", recall);
	close_opened(&o);
	foreign_free(made);
}

int
main(void)
{
	CHECK(strcmp(engine->name, "cpu") == 0, "name");
	CHECK_OK(engine->probe(GG_USE_SEARCH), "probe");
	test_exact();
	test_recall();
	test_queries_unlike_rows();
	search_few_rows(engine, 0);
	search_no_graph(engine);
	search_cancel(engine);
	search_refusals(engine);
	return harness_finish();
}
