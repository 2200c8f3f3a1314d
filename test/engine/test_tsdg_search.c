/*
 * test_tsdg_search.c
 *		TSDG's searches (src/engine/cpu/papers/tsdg_search.c): against their contract, written down
 *		anew in the slowest way, and against exact answers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "opened.h"
#include "small_graph.h"
#include "watched.h"

static const gg_engine *const engine = &gg_cpu_engine;
static const gg_search_mode modes[] = {GG_SEARCH_TSDG_SMALL, GG_SEARCH_TSDG_LARGE};
static const char *const mode_names[] = {"small", "large"};

/* ---- the contract, slowly ------------------------------------------------------ */

/* Keys of distinct nodes, ascending. */
typedef struct key_list
{
	uint64_t   *keys;
	uint32_t	count;
} key_list;

/* False where the node is there. */
static bool
put(key_list *list, uint64_t key)
{
	uint32_t	at = list->count;

	for (uint32_t i = 0; i < list->count; i++)
		if (list->keys[i] == key)
			return false;
	for (; at > 0 && list->keys[at - 1] > key; at--)
		list->keys[at] = list->keys[at - 1];
	list->keys[at] = key;
	list->count++;
	return true;
}

static uint64_t
key_to(watched *m, uint32_t node)
{
	return key_of(watched_distance(m, node), node);
}

/* Small batches: everything that all walks measure. */
static void
naive_small(watched *m, uint32_t walks, key_list *all)
{
	const gg_graph *graph = m->graph;
	uint32_t	nseeds = (graph->npivots + walks - 1) / walks;

	for (uint32_t w = 0; w < walks; w++)
	{
		uint64_t	keys[1024];
		key_list	list = {keys, 0};	/* R */
		uint64_t	expanded[64];
		uint64_t	next = GG_NO_KEY;
		bool		went_on = false;

		for (uint32_t i = w * nseeds; i < (w + 1) * nseeds && i < graph->npivots; i++)
		{
			put(all, key_to(m, graph->pivots[i]));
			put(&list, key_to(m, graph->pivots[i]));
		}
		if (list.count > 32)
			list.count = 32;
		if (list.count > 0)
			next = list.keys[0];
		for (int step = 0; step < 64 && next != GG_NO_KEY; step++)
		{
			const uint32_t *edges = graph->adjacency + (size_t) key_node(next) * graph->degree;
			uint64_t	before[32];
			uint32_t	nbefore = list.count;

			expanded[step] = next;
			memcpy(before, list.keys, nbefore * sizeof(uint64_t));
			for (uint32_t i = 0; i < graph->degree && edges[i] != GG_NO_NODE; i++)
			{
				put(all, key_to(m, edges[i] & ~GG_EDGE_MARK));
				put(&list, key_to(m, edges[i] & ~GG_EDGE_MARK));
			}
			if (list.count > 32)
				list.count = 32;
			/* the first one that was not there before */
			next = GG_NO_KEY;
			for (uint32_t i = 0; i < list.count && next == GG_NO_KEY; i++)
			{
				bool		was_there = false;

				for (uint32_t j = 0; j < nbefore; j++)
					was_there |= before[j] == list.keys[i];
				if (!was_there)
					next = list.keys[i];
			}
			/* once, the first one whose neighbours were not measured */
			for (uint32_t i = 0; i < list.count && next == GG_NO_KEY && !went_on; i++)
			{
				bool		was_expanded = false;

				for (int j = 0; j <= step; j++)
					was_expanded |= expanded[j] == list.keys[i];
				if (!was_expanded)
				{
					next = list.keys[i];
					went_on = true;
				}
			}
		}
	}
}

/*
 * Large batches, of a graph with so few pivots that a walk enters through all: without the bound of
 * segments, which these searches do not reach.
 */
static void
naive_large(watched *m, uint32_t itopk, float delta, key_list *all)
{
	const gg_graph *graph = m->graph;
	key_list	queue = {malloc((graph->n + 1) * sizeof(uint64_t)), 0};

	for (uint32_t i = 0; i < graph->npivots; i++)
		put(all, key_to(m, graph->pivots[i]));
	for (uint32_t i = 0; i < all->count && i < itopk; i++)
		put(&queue, all->keys[i]);
	while (queue.count > 0)
	{
		uint64_t	key = queue.keys[0];
		const uint32_t *edges = graph->adjacency + (size_t) key_node(key) * graph->degree;
		key_list	fresh = {(uint64_t[GG_MAX_DEGREE]) {0}, 0};

		memmove(queue.keys, queue.keys + 1, --queue.count * sizeof(uint64_t));
		if (all->count >= itopk)
		{
			float		first = key_distance(all->keys[0]),
						last = key_distance(all->keys[itopk - 1]);

			if (key > all->keys[itopk - 1] &&
				(delta == 0 || key_distance(key) > last + delta * (last - first)))
				break;
		}
		for (uint32_t i = 0; i < graph->degree && edges[i] != GG_NO_NODE; i++)
			if ((edges[i] & GG_EDGE_MARK) == 0 && put(all, key_to(m, edges[i])))
				put(&fresh, key_to(m, edges[i]));
		for (uint32_t i = 0; i < fresh.count; i++)
			if (all->count <= itopk || fresh.keys[i] <= all->keys[itopk - 1])
				put(&queue, fresh.keys[i]);
	}
	free(queue.keys);
}

/* Random marks behind the first edge, a ring. */
static void
mark_some(small_random *random, gg_graph *graph, uint32_t share)
{
	for (size_t i = 0; i < (size_t) graph->n * graph->degree; i++)
		if (i % graph->degree != 0 && graph->adjacency[i] != GG_NO_NODE &&
			small_random_bits(random) % 10 < share)
			graph->adjacency[i] |= GG_EDGE_MARK;
}

static void
compare(watched *m, gg_walk *walk, const gg_search_params *params)
{
	const float *query = m->query;
	gg_source	source = watch_make(m, m->data, m->graph);
	key_list	all = {malloc((m->graph->n + 1) * sizeof(uint64_t)), 0};
	gg_candidate candidate;
	uint32_t	different = 0;
	uint32_t	wanted = params->itopk_size;
	uint32_t	count = 0;

	watch_query(m, query);
	if (params->mode == GG_SEARCH_TSDG_SMALL)
		naive_small(m, params->walks ? params->walks : (params->itopk_size + 1) / 2, &all);
	else
		naive_large(m, params->itopk_size, params->delta, &all);
	CHECK_OK(gg_walk_search(walk, &source, params, INFINITY), "search");
	while (gg_walk_next(walk, &candidate))
	{
		if (count < wanted && count < all.count)
			different += key_of(candidate.distance, candidate.node) != all.keys[count];
		count++;
	}
	/* where less is known, best-first search goes on */
	if (all.count >= wanted)
		CHECK(different == 0 && count == wanted, "mode %d, itopk %u, walks %u, delta %g, n %u, "
			  "degree %u: %u of %u nodes differ", params->mode, wanted, params->walks,
			  (double) params->delta, m->graph->n, m->graph->degree, different, count);
	CHECK(gg_walk_distances(walk) == m->distances,
		  "%llu distances counted of %llu", (unsigned long long) gg_walk_distances(walk),
		  (unsigned long long) m->distances);
	free(all.keys);
}

static void
test_contract(void)
{
	static const uint32_t sizes[][3] = {{40, 4, 8}, {300, 8, 30}, {700, 16, 64}, {700, 40, 64}};
	static const uint32_t lengths[] = {1, 2, 7, 16, 33, 64};
	uint32_t	dim = 12;
	small_random random = {5};
	float	   *rows = malloc(700 * dim * sizeof(float));
	gg_walk    *walk;

	CHECK_OK(gg_walk_create(&walk), "create");
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
	{
		gg_dataset	data = {rows, sizes[s][0], dim, GG_ELEMENT_F32, GG_METRIC_L2};
		gg_graph	graph;

		small_clusters(&random, rows, data.n, dim, 8, 10, 0.3f, false);
		small_graph_make(&random, rows, data.n, dim, data.metric, sizes[s][1], sizes[s][2],
						 &graph);
		mark_some(&random, &graph, s % 3 * 4);
		for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]) * 20; i++)
		{
			float		query[12];
			watched		m = {.data = &data,.graph = &graph,.query = query};
			gg_search_params params = {.k = 1,.itopk_size = lengths[i / 20],
				.mode = modes[i % 2],.walks = i / 2 % 4 == 3 ? 100 : i / 2 % 4,
			.delta = i % 5 == 0 ? 0.5f : 0};

			for (uint32_t d = 0; d < dim; d++)
				query[d] = rows[small_random_bits(&random) % data.n * dim + d] +
					0.1f * small_random_normal(&random);
			compare(&m, walk, &params);
		}
		small_graph_free(&graph);
	}
	gg_walk_free(walk);
	free(rows);
}

/* ---- marks ----------------------------------------------------------------------- */

/* How many of these nodes were measured? */
static uint32_t
measured(const watched *m, uint32_t first, uint32_t end)
{
	uint32_t	count = 0;

	for (uint32_t i = first; i < end; i++)
		count += m->measured[i] != 0;
	return count;
}

/* Two halves that only marked edges connect: large-batch search stays where its pivots are. */
static void
test_marks(void)
{
	enum
	{
		N = 400, DIM = 6, DEGREE = 6
	};
	small_random random = {11};
	float	   *rows = malloc(N * DIM * sizeof(float));
	gg_dataset	data = {rows, N, DIM, GG_ELEMENT_F32, GG_METRIC_L2};
	gg_graph	graph;
	gg_walk    *walk;

	for (uint32_t i = 0; i < N * DIM; i++)
		rows[i] = small_random_normal(&random);
	small_graph_make(&random, rows, N, DIM, data.metric, DEGREE, 20, &graph);
	for (uint32_t i = 0; i < N; i++)
	{
		for (uint32_t j = 0; j < DEGREE; j++)
		{
			uint32_t   *edge = &graph.adjacency[i * DEGREE + j];

			if (*edge != GG_NO_NODE && (*edge < N / 2) != (i < N / 2))
				*edge |= GG_EDGE_MARK;
		}
	}
	for (uint32_t i = 0; i < 20; i++)
		graph.pivots[i] = i * 7;
	CHECK_OK(gg_walk_create(&walk), "create");
	for (uint32_t q = 0; q < 20; q++)
	{
		watched		m;
		gg_source	source = watch_make(&m, &data, &graph);
		gg_search_params params = {.k = 1,.itopk_size = 30,.mode = GG_SEARCH_TSDG_LARGE};
		gg_candidate candidate;

		watch_query(&m, rows + (size_t) (N - 1 - q) * DIM);
		CHECK_OK(gg_walk_search(walk, &source, &params, INFINITY), "large");
		CHECK_OK(gg_walk_widen(walk, 200), "widen");
		CHECK(measured(&m, N / 2, N) == 0, "%u nodes behind marked edges",
			  measured(&m, N / 2, N));
		params.mode = GG_SEARCH_TSDG_SMALL;
		CHECK_OK(gg_walk_search(walk, &source, &params, INFINITY), "small");
		CHECK(measured(&m, N / 2, N) > 0 && gg_walk_next(walk, &candidate) &&
			  candidate.node == N - 1 - q, "small-batch search goes along marked edges");
		CHECK_OK(gg_walk_start(walk, &source, 30), "start");
		CHECK(gg_walk_next(walk, &candidate) && candidate.node == N - 1 - q,
			  "best-first search does");
	}
	gg_walk_free(walk);
	small_graph_free(&graph);
	free(rows);
}

/* ---- widening ---------------------------------------------------------------------- */

/* A search that is widened as far as it goes hands out every node, and each once. */
static void
test_widening(void)
{
	harness_spec spec = {.n = harness_size(4000, 8), .dim = 20, .seed = 3};
	gg_build_params params = {.algorithm = GG_ALGORITHM_TSDG,.graph_degree = 12,
	.intermediate_graph_degree = 24};
	gg_control	control = {.threads = 2};
	gg_dataset	data;
	gg_graph	graph;
	gg_walk    *walk;
	float	   *queries;

	harness_data(&spec, &data, &queries, 4);
	CHECK_OK(engine->build(&data, &params, &control, &graph, NULL), "build");
	CHECK_OK(gg_walk_create(&walk), "create");
	for (uint32_t i = 0; i < 8; i++)
	{
		watched		m;
		gg_source	source = watch_make(&m, &data, &graph);
		gg_search_params search = {.k = 1,.itopk_size = 20,.mode = modes[i % 2]};
		uint8_t    *handed = calloc(data.n, 1);
		uint32_t	length = search.itopk_size;
		uint32_t	count = 0;
		uint32_t	wrong = 0;

		watch_query(&m, queries + i / 2 * data.dim);
		CHECK_OK(gg_walk_search(walk, &source, &search, INFINITY), "search");
		for (;;)
		{
			gg_candidate candidate;

			while (gg_walk_next(walk, &candidate))
			{
				wrong += handed[candidate.node]++ != 0 ||
					candidate.distance != watched_distance(&m, candidate.node);
				count++;
			}
			if (gg_walk_exhausted(walk))
				break;
			length *= 3;
			CHECK_OK(gg_walk_widen(walk, length), "widen");
		}
		CHECK(count == data.n && wrong == 0, "%s: %u of %u nodes, %u wrong", mode_names[i % 2],
			  count, data.n, wrong);
		free(handed);
	}
	gg_walk_free(walk);
	gg_graph_free(&graph);
	harness_free(&data, queries);
}

/* ---- recall --------------------------------------------------------------------------- */

#define K 10
/* slow checkers: how many times fewer rows */
#define FEWER (harness_fewer() ? 20 : 8)

/* Answers of 1 and 3 threads are the same, sorted, distinct, and mostly right. */
static void
search_case(const harness_spec *spec, gg_algorithm algorithm, uint32_t itopk, double least)
{
	const gg_build_params params = {.algorithm = algorithm,.graph_degree = 32,
	.intermediate_graph_degree = 64,.seed = 1};
	const uint32_t k = spec->n < K ? spec->n : K;
	opened		o = {.nq = harness_fewer() ? 20 : 200};
	uint64_t   *truth;

	harness_data(spec, &o.data, &o.queries, o.nq);
	open_data(&o, engine, &params);
	truth = opened_nearest(&o, k, NULL, 3);
	for (int mode = 0; mode < 2; mode++)
	{
		const gg_search_params search = {.k = k,.itopk_size = itopk,.mode = modes[mode]};
		uint64_t   *one = opened_found(&o, &search, 1);
		uint64_t   *three = opened_found(&o, &search, 3);
		const uint32_t wrong = harness_wrong(&o.data, o.queries, o.nq, one, k, 0);
		const double found = (double) harness_hits(one, truth, o.nq, k) / (o.nq * k);

		CHECK(opened_same(&o, one, three, k), "threads");
		CHECK(wrong == 0 && one[o.nq * k - 1] != GG_NO_KEY && found >= least,
			  "%s, algorithm %d, shape %d, n %u, dim %u, metric %d, element %d: recall %.4f, %u "
			  "wrong", mode_names[mode], algorithm, spec->shape, o.data.n, o.data.dim,
			  o.data.metric, o.data.element, found, wrong);
		free(one);
		free(three);
	}
	free(truth);
	close_opened(&o);
}

static void
test_recall(void)
{
	for (gg_metric metric = GG_METRIC_L2; metric <= GG_METRIC_L1; metric++)
		for (gg_element element = GG_ELEMENT_F32; element <= GG_ELEMENT_F16; element++)
		{
			harness_spec spec = {.n = harness_size(6000, FEWER), .dim = 40, .metric = metric,
				.element = element, .seed = metric};

			/* slow checkers: each metric once, and both elements */
			if (harness_small() && (metric + element) % 2 == 1)
				continue;
			search_case(&spec, GG_ALGORITHM_TSDG, 64, 0.99);
		}
	for (harness_shape shape = SHAPE_UNIFORM; shape <= SHAPE_TIGHT; shape++)
	{
		harness_spec spec = {.shape = shape, .n = harness_size(3000, FEWER), .dim = 8, .seed = 7};

		search_case(&spec, GG_ALGORITHM_TSDG, 64, 0.99);
	}
	for (gg_algorithm algorithm = GG_ALGORITHM_CAGRA; algorithm <= GG_ALGORITHM_GRNND; algorithm++)
	{
		harness_spec spec = {.n = harness_size(6000, FEWER), .dim = 40, .metric = GG_METRIC_COSINE,
			.seed = 9};

		search_case(&spec, algorithm, 64, 0.99);
		/* as many candidates as an index of an engine may ask for */
		if (algorithm == GG_ALGORITHM_CAGRA)
			search_case(&spec, algorithm, GG_MAX_ITOPK, 0.999);
	}
}

/* Few walks do for rows in many clusters, as one begins at the nearest of all pivots. */
static void
test_clusters(void)
{
	const harness_spec spec = {.shape = SHAPE_TIGHT, .n = 6000, .dim = 24, .latent = 8,
		.clusters = 150, .seed = 4};
	const gg_build_params params = {.algorithm = GG_ALGORITHM_TSDG,.graph_degree = 16,
	.intermediate_graph_degree = 32,.seed = 1};
	const gg_search_params search = {.k = K,.itopk_size = 32,.mode = GG_SEARCH_TSDG_SMALL,
	.walks = 5};
	opened		o = {.nq = 100};
	uint64_t   *truth,
			   *found;

	harness_data(&spec, &o.data, &o.queries, o.nq);
	open_data(&o, engine, &params);
	truth = opened_nearest(&o, K, NULL, 2);
	found = opened_found(&o, &search, 2);
	CHECK(harness_hits(found, truth, 100, K) >= 0.98 * 100 * K, "5 walks: recall %.4f",
		  harness_hits(found, truth, 100, K) / (100.0 * K));
	free(truth);
	free(found);
	close_opened(&o);
}

/* Of few rows every one is found. */
static void
test_tiny(void)
{
	static const uint32_t sizes[] = {1, 2, 3, 5, 9, 31, 33, 64, 65};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (harness_shape shape = SHAPE_MANIFOLD; shape <= SHAPE_TIGHT; shape++)
		{
			harness_spec spec = {.shape = shape, .n = sizes[i], .dim = 5, .seed = i};

			search_case(&spec, GG_ALGORITHM_TSDG, 100, 1.0);
			search_case(&spec, GG_ALGORITHM_CAGRA, 10, sizes[i] <= 10 ? 1.0 : 0.8);
		}
}

/* ---- what can go wrong ------------------------------------------------------------------ */

/* Damaged lists are passed over and counted; a source that fails ends the search. */
static void
test_damage(void)
{
	enum
	{
		N = 500, DIM = 8, DEGREE = 10
	};
	small_random random = {23};
	float	   *rows = malloc(N * DIM * sizeof(float));
	gg_dataset	data = {rows, N, DIM, GG_ELEMENT_F32, GG_METRIC_L2};
	gg_graph	graph;
	gg_walk    *walk;

	for (uint32_t i = 0; i < N * DIM; i++)
		rows[i] = small_random_normal(&random);
	small_graph_make(&random, rows, N, DIM, data.metric, DEGREE, 60, &graph);
	for (uint32_t i = 0; i < N; i++)
	{
		graph.adjacency[i * DEGREE + 2] = N;
		graph.adjacency[i * DEGREE + 4] = i;
		graph.adjacency[i * DEGREE + 5] = N | GG_EDGE_MARK;
		graph.adjacency[i * DEGREE + 6] = graph.adjacency[i * DEGREE + 7];
	}
	graph.pivots[3] = N;
	graph.pivots[4] = 0xFFFFFFFE;
	graph.pivots[5] = graph.pivots[6];
	CHECK_OK(gg_walk_create(&walk), "create");
	for (int mode = 0; mode < 2; mode++)
	{
		watched		m;
		gg_source	source = watch_make(&m, &data, &graph);
		gg_search_params params = {.k = 1,.itopk_size = 40,.mode = modes[mode]};
		gg_candidate candidate;
		gg_status	status;

		watch_query(&m, rows);
		CHECK_OK(gg_walk_search(walk, &source, &params, INFINITY), "damaged");
		CHECK(gg_walk_next(walk, &candidate) && candidate.node == 0, "%s", mode_names[mode]);
		for (long calls = 0;; calls++)
		{
			m.calls_left = calls;
			status = gg_walk_search(walk, &source, &params, INFINITY);
			if (status.code == GG_OK)
				break;
			CHECK(status.code == GG_ECALLBACK && !gg_walk_next(walk, &candidate),
				  "%s, %ld calls: %s", mode_names[mode], calls, status.message);
		}
	}
	gg_walk_free(walk);
	small_graph_free(&graph);
	free(rows);
}

static void
test_refusals(void)
{
	const harness_spec spec = {.n = 50, .dim = 4};
	const gg_search_params wrong[] = {
		{.k = 1,.itopk_size = 8,.mode = 5},
		{.k = 1,.itopk_size = 8,.mode = GG_SEARCH_TSDG_LARGE,.delta = -1},
		{.k = 1,.itopk_size = 8,.mode = GG_SEARCH_TSDG_LARGE,.delta = NAN}
	};
	uint64_t	key;
	opened		o;

	open_spec(&o, engine, &spec, 1);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(engine->index_search(o.index, &wrong[i], o.queries, 1, NULL, &key).code == GG_EINVAL,
			  "params %zu", i);
	close_opened(&o);
}

int
main(void)
{
	harness_run("contract", test_contract);
	harness_run("marks", test_marks);
	harness_run("widening", test_widening);
	harness_run("recall", test_recall);
	/* valgrind: of recall alone, and of rows that cannot be few */
	if (!harness_fewer())
		harness_run("clusters", test_clusters);
	harness_run("tiny", test_tiny);
	harness_run("damage", test_damage);
	harness_run("refusals", test_refusals);
	return harness_finish();
}
