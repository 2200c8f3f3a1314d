/*
 * test_reach.c
 *		The forest of paths that both engines make nodes reachable with (src/engine/rules/reach.h).
 *
 * Graphs are random and fall into groups, with lists that are full, short or empty, and marks on
 * none, some or most of the edges.
 */
#include "harness.h"
#include "../../src/engine/rules/reach.h"

#include <stdlib.h>
#include <string.h>

static bool
never(void *ctx)
{
	(void) ctx;
	return false;
}

/* From a reached node of the orphan's own list. */
static bool
link_by_list(gg_reach *reach, uint32_t orphan, const void *arg)
{
	const uint32_t *list = reach->adjacency + (size_t) orphan * reach->degree;

	(void) arg;
	for (uint32_t i = 0; i < reach->degree && list[i] != GG_NO_NODE; i++)
	{
		uint32_t	near = list[i] & ~GG_EDGE_MARK;

		if (gg_reach_has(reach, near) && gg_reach_link(reach, near, orphan))
			return true;
	}
	return false;
}

static uint32_t
below(harness_random *random, uint32_t end)
{
	return (uint32_t) (harness_unit(random) * end);
}

/* Lists of distinct nodes of the same group, and now and then of any. */
static uint32_t *
random_graph(harness_random *random, uint32_t n, uint32_t degree, uint32_t groups)
{
	uint32_t   *graph = malloc(sizeof(uint32_t) * n * degree);

	memset(graph, 0xFF, sizeof(uint32_t) * n * degree);
	for (uint32_t node = 0; node < n; node++)
	{
		uint32_t   *list = graph + (size_t) node * degree;
		uint32_t	length = below(random, 3) == 0 ? below(random, degree + 1) : degree;
		uint32_t	count = 0;

		for (uint32_t draw = 0; draw < length; draw++)
		{
			uint32_t	to = below(random, n);
			uint32_t	i = 0;

			if (below(random, 30) != 0)
				to = (to - to % groups + node % groups) % n;
			while (i < count && list[i] != to)
				i++;
			if (i == count && to != node)
				list[count++] = to;
		}
	}
	return graph;
}

/* Mark share of ten edges. */
static void
mark_edges(harness_random *random, uint32_t *graph, size_t edges, uint32_t share)
{
	for (size_t i = 0; i < edges; i++)
		if (graph[i] != GG_NO_NODE && below(random, 10) < share)
			graph[i] |= GG_EDGE_MARK;
}

/* Whether the list is as every list must be: no duplicate, no self loop, free slots at the end. */
static bool
list_is_sound(const uint32_t *list, uint32_t degree, uint32_t n, uint32_t node)
{
	for (uint32_t i = 0; i < degree; i++)
	{
		uint32_t	id = list[i] & ~GG_EDGE_MARK;

		if (list[i] == GG_NO_NODE)
			continue;
		if (id >= n || id == node || (i > 0 && list[i - 1] == GG_NO_NODE))
			return false;
		for (uint32_t j = 0; j < i; j++)
			if (id == (list[j] & ~GG_EDGE_MARK))
				return false;
	}
	return true;
}

/* By an edge without a mark. */
static bool
leads_to(const uint32_t *graph, uint32_t degree, uint32_t from, uint32_t to)
{
	for (uint32_t i = 0; i < degree; i++)
		if (graph[(size_t) from * degree + i] == to)
			return true;
	return false;
}

static void
test_random_graphs(void)
{
	uint32_t	roots = 0,
				links = 0;

	for (uint64_t seed = 1; seed <= 500; seed++)
	{
		harness_random random = {seed};
		uint32_t	n = 1 + below(&random, 300);
		uint32_t	degree = 2 + below(&random, 6);
		uint32_t	most = below(&random, 4);
		uint32_t   *graph = random_graph(&random, n, degree, 1 + below(&random, 40));
		uint32_t	unsound = 0,
					unreached = 0,
					own = 0;
		gg_reach	reach;

		mark_edges(&random, graph, (size_t) n * degree, seed % 3 * 4);
		CHECK_OK(gg_reach_create(&reach, "test", graph, n, degree, never, NULL), "create");
		memset(reach.parent, 0xFF, sizeof(uint32_t) * n);
		gg_reach_root(&reach, n / 2);
		gg_reach_spread(&reach);
		CHECK(gg_reach_link_all(&reach, link_by_list, NULL), "memory");
		gg_reach_root_left(&reach, most);
		CHECK(reach.nleft <= most, "%u new roots, at most %u wanted", reach.nleft, most);
		CHECK(reach.queued == n, "%u of %u nodes reached", reach.queued, n);
		for (uint32_t node = 0; node < n; node++)
		{
			uint32_t	parent = reach.parent[node];

			unsound += !list_is_sound(graph + (size_t) node * degree, degree, n, node);
			own += parent == node;
			unreached += parent >= n || (parent != node && !leads_to(graph, degree, parent, node));
		}
		CHECK(unsound == 0, "%u lists of %u are unsound, seed %d", unsound, n, (int) seed);
		CHECK(unreached == 0, "%u parents of %u lead nowhere, seed %d", unreached, n, (int) seed);
		CHECK(own == 1 + reach.nleft, "%u roots, %u were made", own, 1 + reach.nleft);
		roots += reach.nleft;
		links += reach.links;
		gg_reach_free(&reach);
		free(graph);
	}
	CHECK(roots > 0 && links > 0, "%u roots and %u links in all: the graphs are too easy", roots,
		  links);
}

/* Where only a marked edge leads to a node, that edge loses its mark. */
static void
test_marked_path(void)
{
	uint32_t	graph[] = {
		1, 2 | GG_EDGE_MARK, 3,
		0, 3, GG_NO_NODE,
		0, GG_NO_NODE, GG_NO_NODE,
		1 | GG_EDGE_MARK, 0, GG_NO_NODE
	};
	const uint32_t linked[] = {
		1, 2, 3,
		0, 3, GG_NO_NODE,
		0, GG_NO_NODE, GG_NO_NODE,
		1 | GG_EDGE_MARK, 0, GG_NO_NODE
	};
	gg_reach	reach;

	CHECK_OK(gg_reach_create(&reach, "test", graph, 4, 3, never, NULL), "create");
	memset(reach.parent, 0xFF, sizeof(uint32_t) * 4);
	gg_reach_root(&reach, 0);
	gg_reach_spread(&reach);
	CHECK(reach.queued == 3, "%u nodes reached along edges without a mark", reach.queued);
	CHECK(gg_reach_link_all(&reach, link_by_list, NULL), "memory");
	CHECK(reach.queued == 4 && reach.nleft == 0 && reach.links == 1, "%u nodes, %u links",
		  reach.queued, reach.links);
	CHECK(memcmp(graph, linked, sizeof(linked)) == 0, "the mark is gone, and nothing else");
	gg_reach_free(&reach);
}

/* A search that is told to stop ends early, and all calls after it do nothing. */
static void
test_stop(void)
{
	const uint32_t n = 100000;
	uint32_t   *ring = malloc(sizeof(uint32_t) * n);
	gg_reach	reach;

	for (uint32_t i = 0; i < n; i++)
		ring[i] = (i + 1) % n;
	CHECK_OK(gg_reach_create(&reach, "test", ring, n, 1, harness_cancelled_at_once, NULL),
			 "create");
	memset(reach.parent, 0xFF, sizeof(uint32_t) * n);
	gg_reach_root(&reach, 0);
	gg_reach_spread(&reach);
	CHECK(reach.stopped && reach.queued < n / 2, "stopped after %u nodes", reach.queued);
	CHECK(gg_reach_link_all(&reach, link_by_list, NULL) && reach.links == 0, "%u links",
		  reach.links);
	gg_reach_free(&reach);
	free(ring);
}

int
main(void)
{
	harness_run("random graphs", test_random_graphs);
	harness_run("marked path", test_marked_path);
	harness_run("stop", test_stop);
	return harness_finish();
}
