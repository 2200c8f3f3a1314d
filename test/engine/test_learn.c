/*
 * test_learn.c
 *		Edges learned from sample queries (src/engine/rules/learn.h).
 *
 * On drawn rows with queries from clusters where there are no rows: what searches find before and
 * after.  On random graphs: what the rule promises of every list.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/engine/rules/learn.h"
#include "foreign.h"

#define QUERIES		300u
#define DIM			48u
#define EDGES		8u

/* ---- searches ------------------------------------------------------------------------------ */

static uint32_t *
exact_answers(const gg_dataset *data, const float *queries, uint32_t count, uint32_t k,
			  int threads, float *distances)
{
	gg_control	control = {.threads = threads};
	uint32_t   *nodes = malloc(sizeof(uint32_t) * count * k);
	gg_index   *index;

	CHECK_OK(gg_cpu_engine.index_open(data, NULL, &control, &index), "index_open");
	CHECK_OK(harness_exact(&gg_cpu_engine, index, k, NULL, queries, count, &control, nodes,
						   distances), "exact");
	gg_cpu_engine.index_close(index);
	return nodes;
}

/* Recall of QUERIES queries. */
static double
recall(const gg_dataset *data, const gg_graph *graph, const float *queries)
{
	return harness_walk(data, graph, queries, QUERIES, 64, "recall").recall;
}

static gg_learn_input
input_of(const gg_graph *graph, const uint32_t *answers, uint32_t count)
{
	gg_learn_input input = {
		.n = graph->n,.degree = graph->degree,.pivots = graph->pivots,
		.npivots = graph->npivots,.answers = answers,.count = count,.length = GG_LEARN_LIST,
		.edges = EDGES,.seed = 3
	};

	return input;
}

/* A copy of the graph's lists that has learned. */
static uint32_t *
learned_lists(const gg_graph *graph, const uint32_t *answers, uint32_t count,
			  gg_learn_stats *stats)
{
	const size_t bytes = sizeof(uint32_t) * graph->n * graph->degree;
	gg_learn_input input = input_of(graph, answers, count);
	uint32_t   *lists = malloc(bytes);

	memcpy(lists, graph->adjacency, bytes);
	CHECK_OK(gg_learn(&input, NULL, lists, stats), "learn");
	return lists;
}

/* The same sample again, in reverse order, and with answers of another number of threads. */
static void
check_repeatable(const gg_dataset *data, const gg_graph *graph, const gg_graph *learned,
				 const float *sample, uint32_t count)
{
	const size_t bytes = sizeof(uint32_t) * graph->n * graph->degree;
	float	   *reversed = malloc(sizeof(float) * count * DIM);
	float	   *distances = malloc(sizeof(float) * count * GG_LEARN_LIST);
	gg_learn_stats stats;
	uint32_t   *answers;
	uint32_t   *lists;

	for (uint32_t q = 0; q < count; q++)
		memcpy(reversed + q * DIM, sample + (count - 1 - q) * DIM, sizeof(float) * DIM);
	answers = exact_answers(data, reversed, count, GG_LEARN_LIST, 3, distances);
	lists = learned_lists(graph, answers, count, &stats);
	CHECK(memcmp(lists, learned->adjacency, bytes) == 0,
		  "the order of queries and the number of threads do not matter");
	free(lists);
	lists = learned_lists(learned, answers, count, &stats);
	CHECK(memcmp(lists, learned->adjacency, bytes) == 0 && stats.edges == 0,
		  "learning twice is learning once, %u edges are new", (unsigned) stats.edges);
	free(lists);
	free(answers);
	free(reversed);
	free(distances);
}

/* Learned edges have no mark, and no other edge gets or loses one. */
static void
check_marks(const gg_graph *graph, const gg_graph *learned)
{
	uint32_t	wrong = 0;

	for (size_t i = 0; i < (size_t) graph->n * graph->degree; i++)
	{
		const uint32_t *list = graph->adjacency + i / graph->degree * graph->degree;
		const uint32_t edge = learned->adjacency[i];

		for (uint32_t j = 0; edge != GG_NO_NODE && j < graph->degree; j++)
			wrong += list[j] == (edge ^ GG_EDGE_MARK);
		if (edge != GG_NO_NODE && (edge & GG_EDGE_MARK) != 0)
			wrong += list[i % graph->degree] != edge;
	}
	CHECK(wrong == 0, "%u marks are new or gone", wrong);
}

static void
learn_from(gg_metric metric, gg_algorithm algorithm)
{
	static const foreign_kind seen = {FOREIGN_CLUSTERS / 2, FOREIGN_CLUSTERS, 0};
	const uint32_t count = harness_size(1000, harness_fewer() ? 8 : 4);
	foreign    *made = foreign_create(DIM, 1);
	const uint32_t n = harness_size(12000, harness_fewer() ? 16 : 8);
	float	   *rows = foreign_draw(made, foreign_rows, n, 2);
	float	   *sample = foreign_draw(made, seen, count, 3);
	float	   *held_out = foreign_draw(made, seen, QUERIES, 4);
	float	   *own = foreign_draw(made, foreign_rows, QUERIES, 5);
	float	   *distances = malloc(sizeof(float) * count * GG_LEARN_LIST);
	gg_dataset	data = {rows, n, DIM, GG_ELEMENT_F32, metric};
	gg_build_params params = {
		.graph_degree = 24,.intermediate_graph_degree = 48,.seed = 1,.algorithm = algorithm
	};
	gg_control	control = {.threads = 2};
	gg_graph	graph;
	gg_graph	learned;
	gg_learn_stats stats;
	uint32_t   *answers;
	double		before[2],
				after[2];

	for (uint32_t i = 0; i < data.n; i++)
		gg_query_prepare(metric, rows + (size_t) i * DIM, DIM);
	CHECK_OK(gg_cpu_build(&data, &params, &control, &graph, NULL), "build");
	answers = exact_answers(&data, sample, count, GG_LEARN_LIST, 1, distances);
	learned = graph;
	learned.adjacency = learned_lists(&graph, answers, count, &stats);
	CHECK(stats.edges > data.n / 2 && stats.nodes > data.n / 8 && stats.nodes < data.n,
		  "%u edges of %u nodes", (unsigned) stats.edges, stats.nodes);
	harness_graph_check(&learned, data.n, params.graph_degree, false, "learned");
	check_marks(&graph, &learned);
	check_repeatable(&data, &graph, &learned, sample, count);

	before[0] = recall(&data, &graph, held_out);
	after[0] = recall(&data, &learned, held_out);
	before[1] = recall(&data, &graph, own);
	after[1] = recall(&data, &learned, own);
	printf("# metric %d, algorithm %d: %.4f to %.4f, like the rows %.4f to %.4f; %u links\n",
		   (int) metric, (int) algorithm, before[0], after[0], before[1], after[1], stats.links);
	CHECK(harness_small() || 1 - after[0] < 0.7 * (1 - before[0]), "recall was %.4f, is %.4f",
		  before[0], after[0]);
	CHECK(after[0] >= before[0] - 0.002, "recall was %.4f, is %.4f", before[0], after[0]);
	CHECK(after[1] > before[1] - 0.002, "recall of queries like the rows was %.4f, is %.4f",
		  before[1], after[1]);

	free(learned.adjacency);
	gg_graph_free(&graph);
	free(answers);
	free(distances);
	free(own);
	free(held_out);
	free(sample);
	free(rows);
	foreign_free(made);
}

static void
test_inner_product(void)
{
	learn_from(GG_METRIC_IP, GG_ALGORITHM_CAGRA);
}

static void
test_cosine(void)
{
	learn_from(GG_METRIC_COSINE, GG_ALGORITHM_CAGRA);
}

static void
test_tsdg(void)
{
	learn_from(GG_METRIC_IP, GG_ALGORITHM_TSDG);
}

static void
test_grnnd(void)
{
	learn_from(GG_METRIC_L2, GG_ALGORITHM_GRNND);
}

/* ---- lists --------------------------------------------------------------------------------- */

static uint32_t
below(harness_random *random, uint32_t end)
{
	return (uint32_t) (harness_unit(random) * end);
}

/* A ring, whose edges are the last ones, and others, some with marks; lists are full or short. */
static gg_graph
random_graph(harness_random *random, uint32_t n, uint32_t degree)
{
	static uint32_t pivot = 0;
	gg_graph	graph = {n, degree, 1, malloc(sizeof(uint32_t) * n * degree), &pivot, NULL};

	memset(graph.adjacency, 0xFF, sizeof(uint32_t) * n * degree);
	for (uint32_t node = 0; node < n; node++)
	{
		uint32_t   *list = graph.adjacency + (size_t) node * degree;
		uint32_t	length = below(random, 2) ? degree : below(random, degree + 1);
		uint32_t	count = 1;
		uint32_t	to_last;

		list[0] = n > 1 ? (node + 1) % n : GG_NO_NODE;
		for (uint32_t draw = 1; draw < length; draw++)
		{
			uint32_t	to = below(random, n);
			uint32_t	i = 0;

			while (i < count && (list[i] & ~GG_EDGE_MARK) != to)
				i++;
			if (i == count && to != node)
				list[count++] = to | (below(random, 4) ? 0 : GG_EDGE_MARK);
		}
		to_last = list[0];
		list[0] = list[count - 1];
		list[count - 1] = to_last;
	}
	return graph;
}

/* Lists of answers, full or short; at times a node is twice in one. */
static uint32_t *
random_answers(harness_random *random, uint32_t n, uint32_t count)
{
	uint32_t   *answers = malloc(sizeof(uint32_t) * (count * GG_LEARN_LIST + 1));

	memset(answers, 0xFF, sizeof(uint32_t) * count * GG_LEARN_LIST);
	for (uint32_t q = 0; q < count; q++)
	{
		uint32_t	length = below(random, 3) ? GG_LEARN_LIST : below(random, GG_LEARN_LIST);

		for (uint32_t i = 0; i < length; i++)
			answers[q * GG_LEARN_LIST + i] = below(random, n);
	}
	return answers;
}

/*
 * One sample after another changes the last places alone, where no link was needed.  Links spare
 * what was learned.
 */
static void
test_random_graphs(void)
{
	uint32_t	kept = 0;
	uint32_t	linked = 0;

	for (uint64_t seed = 1; seed <= (harness_small() ? 40 : 400); seed++)
	{
		harness_random random = {seed};
		uint32_t	n = 1 + below(&random, 300);
		uint32_t	degree = 2 * EDGES + below(&random, 8);
		gg_graph	graph = random_graph(&random, n, degree);
		gg_graph	learned = graph;
		uint32_t   *built = graph.adjacency;
		uint32_t	changed = 0;
		uint32_t	links = 0;

		for (int round = 0; round < 3; round++)
		{
			uint32_t	count = below(&random, 20);
			uint32_t   *answers = random_answers(&random, n, count);
			gg_learn_stats stats;

			learned.adjacency = learned_lists(&graph, answers, count, &stats);
			links += stats.links;
			if (graph.adjacency != built)
				free(graph.adjacency);
			graph.adjacency = learned.adjacency;
			free(learned_lists(&graph, answers, count, &stats));
			CHECK(stats.edges == 0, "%u edges were not kept, seed %d", (unsigned) stats.edges,
				  (int) seed);
			free(answers);
		}
		for (size_t i = 0; i < (size_t) n * degree; i++)
			changed += i % degree < degree - EDGES && built[i] != GG_NO_NODE &&
				built[i] != learned.adjacency[i];
		CHECK(changed == 0 || links > 0, "%u of the first places changed, seed %d", changed,
			  (int) seed);
		kept += links == 0;
		linked += links > 0;
		learned.pivot_adjacency = malloc(sizeof(uint32_t) * GG_PIVOT_DEGREE);
		memset(learned.pivot_adjacency, 0xFF, sizeof(uint32_t) * GG_PIVOT_DEGREE);
		harness_graph_check(&learned, n, degree, false, "learned three times");
		free(learned.pivot_adjacency);
		free(learned.adjacency);
		free(built);
	}
	CHECK(kept > 0 && (linked > 0 || harness_small()), "%u graphs without links, %u with some",
		  kept, linked);
}

/* Two queries: nearest answers come first, free places are filled, then the last edges go. */
static void
test_small(void)
{
	uint32_t	lists[6 * 4] = {
		1, 2, 3, 4,
		2 | GG_EDGE_MARK, 0, GG_NO_NODE, GG_NO_NODE,
		3, 1, 0, 4,
		4, 2, 1, 0 | GG_EDGE_MARK,
		5, 3, 2, 1,
		0, 4, GG_NO_NODE, GG_NO_NODE
	};
	static const uint32_t learned[6 * 4] = {
		1, 2, 3, 5,
		2 | GG_EDGE_MARK, 0, 5, GG_NO_NODE,
		3, 1, 0, 4,
		4, 2, 1, 0 | GG_EDGE_MARK,
		5, 3, 2, 1,
		0, 4, 1, GG_NO_NODE
	};
	static const uint32_t pivot = 0;
	static const uint32_t answers[2 * 4] = {5, 0, 1, GG_NO_NODE, 1, 2, GG_NO_NODE, GG_NO_NODE};
	gg_learn_input input = {6, 4, &pivot, 1, answers, 2, 4, 2, 2};
	gg_learn_stats stats;

	CHECK_OK(gg_learn(&input, NULL, lists, &stats), "learn");
	for (int i = 0; i < 6 * 4; i++)
		CHECK(lists[i] == learned[i], "place %d of node %d is %u", i % 4, i / 4, lists[i]);
	CHECK(stats.edges == 3 && stats.nodes == 3 && stats.links == 0, "%u edges, %u nodes, %u links",
		  (unsigned) stats.edges, stats.nodes, stats.links);
}

static void
test_refusals(void)
{
	uint32_t	lists[4] = {1, GG_NO_NODE, 0, GG_NO_NODE};
	static const uint32_t pivots[] = {0, 2};
	static const uint32_t answers[] = {0, 1, 2, GG_NO_NODE};
	const gg_learn_input input = {2, 2, pivots, 1, answers, 1, 2, 1, 1};
	const gg_control control = {.cancelled = harness_cancelled_at_once,.threads = 1};
	gg_learn_input bad;
	gg_learn_stats stats;

	CHECK_OK(gg_learn(&input, NULL, lists, &stats), "learn");
	CHECK(gg_learn(&input, &control, lists, &stats).code == GG_ECANCELED, "canceled");
#define REFUSED(change) \
	(bad = input, change, gg_learn(&bad, NULL, lists, &stats).code == GG_EINVAL)
	CHECK(REFUSED(bad.edges = 0), "no edges");
	CHECK(REFUSED(bad.edges = 2), "more than half of the places");
	CHECK(REFUSED(bad.n = 0), "no nodes");
	CHECK(REFUSED(bad.npivots = 0), "no pivots");
	CHECK(REFUSED(bad.npivots = 2), "a pivot out of range");
	CHECK(REFUSED(bad.length = 3), "an answer out of range");
#undef REFUSED
}

int
main(void)
{
	harness_run("small", test_small);
	harness_run("random graphs", test_random_graphs);
	harness_run("refusals", test_refusals);
	harness_run("inner product", test_inner_product);
	harness_run("TSDG", test_tsdg);
	if (!harness_fewer())
	{
		harness_run("cosine", test_cosine);
		harness_run("GRNND", test_grnnd);
	}
	return harness_finish();
}
