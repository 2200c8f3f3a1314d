/*
 * connect.c
 *		Pivots, and a graph in which every node is reachable from them.
 *
 * A graph made of near neighbours alone falls apart where data is clustered, and a walk that starts
 * far from its query stays where it started.  So every walk enters through the pivots, random rows
 * in a small graph of their own, and reachability is made, not hoped for:
 *
 *	1. A breadth-first search goes from all pivots along the adjacency; the edge by which a node is
 *	   reached first is its tree edge.
 *	2. A node not reached, an orphan, is linked from a reached node among its k-NN list: the last edge
 *	   there that is nobody's tree edge gives way.  Tree edges stay, so whatever was reached remains
 *	   so.  The search goes on from the orphan, and may reach others.
 *	3. An orphan without such a neighbour becomes a pivot itself.
 *
 * The graph over the pivots is built like the main one, of exact lists where they are few enough
 * (knn_graph.c), and its nodes are made reachable from pivot 0 in the same way; an orphan that
 * finds no neighbour there is linked from the last pivot reached that has an edge to give.
 */
#include "random.h"
#include "stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Lists that the pivots' graph is made of: twice its degree, as for the main graph. */
#define PIVOT_LIST		(2 * GG_PIVOT_DEGREE)

/* How often serial loops look at the clock, in nodes. */
#define POLL_NODES		1024u

typedef struct reach_state
{
	gg_pool    *pool;
	uint32_t   *adjacency;		/* n x degree */
	uint32_t	n;
	uint32_t	degree;
	uint32_t   *parent;			/* n: who reached it; itself: a root; GG_NO_NODE: not reached */
	uint32_t   *queue;			/* n: nodes in the order of being reached */
	uint32_t	queued;
	uint32_t	expanded;
} reach_state;

static gg_status
reach_create(reach_state *reach, gg_pool *pool, uint32_t *adjacency, uint32_t n, uint32_t degree)
{
	memset(reach, 0, sizeof(*reach));
	reach->pool = pool;
	reach->adjacency = adjacency;
	reach->n = n;
	reach->degree = degree;
	reach->parent = malloc(sizeof(uint32_t) * n);
	reach->queue = malloc(sizeof(uint32_t) * n);
	if (!reach->parent || !reach->queue)
		return gg_cpu_fail(GG_ENOMEM, "gg_cpu_connect", "out of memory to connect %u nodes", n);
	memset(reach->parent, 0xFF, sizeof(uint32_t) * n);
	return gg_cpu_ok();
}

static void
reach_free(reach_state *reach)
{
	free(reach->parent);
	free(reach->queue);
}

static void
reach_add(reach_state *reach, uint32_t node, uint32_t parent)
{
	reach->parent[node] = parent;
	reach->queue[reach->queued++] = node;
}

/* Go on with the breadth-first search as far as it leads. */
static gg_status
reach_expand(reach_state *reach)
{
	while (reach->expanded < reach->queued)
	{
		uint32_t	node = reach->queue[reach->expanded++];
		const uint32_t *list = reach->adjacency + (size_t) node * reach->degree;

		if (reach->expanded % POLL_NODES == 0 && gg_worker_stopping(gg_pool_caller(reach->pool)))
			return gg_pool_poll(reach->pool);
		for (uint32_t i = 0; i < reach->degree && list[i] != GG_NO_NODE; i++)
			if (reach->parent[list[i]] == GG_NO_NODE)
				reach_add(reach, list[i], node);
		gg_worker_progress(gg_pool_caller(reach->pool), 1);
	}
	return gg_cpu_ok();
}

/* Make orphan a neighbour of node, if node has an edge to give or a free slot. */
static bool
reach_link(reach_state *reach, uint32_t node, uint32_t orphan)
{
	uint32_t   *list = reach->adjacency + (size_t) node * reach->degree;

	for (uint32_t i = reach->degree; i-- > 0;)
	{
		/* free slots are at the end, and only the first of them may be filled */
		if (list[i] == GG_NO_NODE && i > 0 && list[i - 1] == GG_NO_NODE)
			continue;
		if (list[i] != GG_NO_NODE && reach->parent[list[i]] == node)
			continue;
		list[i] = orphan;
		reach_add(reach, orphan, node);
		return true;
	}
	return false;
}

/*
 * Link what can be linked through the k-NN lists.  Linking one orphan may make its neighbours
 * reachable, so go round until a round links nothing.
 */
static gg_status
reach_repair(reach_state *reach, const uint32_t *knn, uint32_t k, uint32_t *repaired)
{
	uint32_t	linked;

	do
	{
		linked = 0;
		for (uint32_t node = 0; node < reach->n && reach->queued < reach->n; node++)
		{
			const uint32_t *near = knn + (size_t) node * k;

			if (node % POLL_NODES == 0 && gg_worker_stopping(gg_pool_caller(reach->pool)))
				return gg_pool_poll(reach->pool);
			if (reach->parent[node] != GG_NO_NODE)
				continue;
			for (uint32_t i = 0; i < k && near[i] != GG_NO_NODE; i++)
				if (reach->parent[near[i]] != GG_NO_NODE && reach_link(reach, near[i], node))
				{
					gg_status	status = reach_expand(reach);

					if (status.code != GG_OK)
						return status;
					linked++;
					break;
				}
		}
		*repaired += linked;
	} while (linked > 0 && reach->queued < reach->n);
	return gg_cpu_ok();
}

/*
 * How many pivots to draw: 4 sqrt(n), so that a walk over their graph and one over the main graph
 * are of one order, but one for 64 nodes at most, and never fewer than 32 (or n).
 */
static uint32_t
pivots_wanted(uint32_t n)
{
	double		count = 4 * sqrt((double) n);

	if (count > n / 64)
		count = n / 64;
	if (count < 32)
		count = 32;
	return count < n ? (uint32_t) count : n;
}

/* Distinct random nodes, in random order. */
static void
draw_pivots(uint32_t *pivots, uint32_t wanted, uint32_t n, uint64_t seed)
{
	uint32_t	taken = 0;

	/* selection sampling: a node is taken with probability wanted / nodes left */
	for (uint32_t i = 0; i < n && taken < wanted; i++)
		if (gg_random_below(seed ^ UINT64_C(0xA0761D6478BD642F), i, n - i) < wanted - taken)
			pivots[taken++] = i;
	for (uint32_t i = 0; i < wanted; i++)
	{
		uint32_t	j = i + gg_random_below(seed ^ UINT64_C(0xE7037ED1A0B428DB), i, wanted - i);
		uint32_t	swap = pivots[i];

		pivots[i] = pivots[j];
		pivots[j] = swap;
	}
}

/* Steps 1 to 3 for the main graph. */
static gg_status
connect_nodes(gg_pool *pool, const uint32_t *knn, uint32_t k, uint64_t seed, gg_graph *graph, gg_build_stats *stats)
{
	reach_state reach;
	uint32_t	room = pivots_wanted(graph->n);
	gg_status	status = reach_create(&reach, pool, graph->adjacency, graph->n, graph->degree);

	graph->pivots = malloc(sizeof(uint32_t) * room);
	if (status.code == GG_OK && !graph->pivots)
		status = gg_cpu_fail(GG_ENOMEM, "gg_cpu_connect", "out of memory for %u pivots", room);
	if (status.code == GG_OK)
	{
		draw_pivots(graph->pivots, room, graph->n, seed);
		graph->npivots = room;
		for (uint32_t i = 0; i < room; i++)
			reach_add(&reach, graph->pivots[i], graph->pivots[i]);
		status = reach_expand(&reach);
	}
	if (status.code == GG_OK)
		status = reach_repair(&reach, knn, k, &stats->repaired);
	for (uint32_t node = 0; status.code == GG_OK && node < graph->n && reach.queued < graph->n; node++)
	{
		if (reach.parent[node] != GG_NO_NODE)
			continue;
		if (graph->npivots == room)
		{
			uint32_t   *more;

			room += room / 2 + 16;
			more = realloc(graph->pivots, sizeof(uint32_t) * room);
			if (!more)
			{
				status = gg_cpu_fail(GG_ENOMEM, "gg_cpu_connect", "out of memory for %u pivots", room);
				break;
			}
			graph->pivots = more;
		}
		graph->pivots[graph->npivots++] = node;
		stats->repaired++;
		reach_add(&reach, node, node);
		status = reach_expand(&reach);
	}
	reach_free(&reach);
	return status;
}

/* The graph over the pivots, all of it reachable from pivot 0. */
static gg_status
connect_pivots(gg_pool *pool, const gg_dataset *data, uint64_t seed, gg_graph *graph)
{
	uint32_t	n = graph->npivots;
	size_t		row_bytes = gg_element_size(data->element) * data->dim;
	char	   *rows = malloc(row_bytes * n);
	uint32_t   *knn = malloc(sizeof(uint32_t) * PIVOT_LIST * (size_t) n);
	gg_dataset	pivots = *data;
	gg_build_params params = {.intermediate_graph_degree = PIVOT_LIST, .seed = seed};
	gg_build_stats unwanted = {0};
	reach_state reach = {0};
	uint32_t	last = 0;
	gg_status	status = gg_cpu_ok();

	graph->pivot_adjacency = malloc(sizeof(uint32_t) * GG_PIVOT_DEGREE * (size_t) n);
	if (!rows || !knn || !graph->pivot_adjacency)
		status = gg_cpu_fail(GG_ENOMEM, "gg_cpu_connect", "out of memory for the graph of %u pivots", n);
	if (status.code == GG_OK)
	{
		for (uint32_t i = 0; i < n; i++)
			memcpy(rows + i * row_bytes, (const char *) data->rows + graph->pivots[i] * row_bytes, row_bytes);
		pivots.rows = rows;
		pivots.n = n;
		status = gg_cpu_knn_graph_run(pool, &pivots, &params, knn, NULL, &unwanted);
	}
	free(rows);
	if (status.code == GG_OK)
		status = gg_cpu_optimize_run(pool, knn, n, PIVOT_LIST, GG_PIVOT_DEGREE, graph->pivot_adjacency);
	if (status.code == GG_OK)
		status = reach_create(&reach, pool, graph->pivot_adjacency, n, GG_PIVOT_DEGREE);
	if (status.code == GG_OK)
	{
		reach_add(&reach, 0, 0);
		status = reach_expand(&reach);
	}
	if (status.code == GG_OK)
		status = reach_repair(&reach, knn, PIVOT_LIST, &unwanted.repaired);

	/*
	 * A tree of n nodes has n - 1 edges and the nodes reached have GG_PIVOT_DEGREE times as many
	 * slots: some node has one to give, and the one reached last, a leaf, always has.
	 */
	for (uint32_t i = 0; status.code == GG_OK && i < n && reach.queued < n; i++)
	{
		if (reach.parent[i] != GG_NO_NODE)
			continue;
		last = reach.queue[reach.queued - 1];
		if (reach_link(&reach, last, i))
			status = reach_expand(&reach);
	}
	reach_free(&reach);
	free(knn);
	return status;
}

uint64_t
gg_cpu_connect_bytes(const gg_dataset *data, int threads)
{
	uint64_t	npivots = pivots_wanted(data->n);
	gg_dataset	pivots = *data;
	gg_build_params params = {.intermediate_graph_degree = PIVOT_LIST};
	uint64_t	first = 2 * sizeof(uint32_t) * (uint64_t) data->n;
	uint64_t	second = (gg_element_size(data->element) * data->dim + sizeof(uint32_t) * PIVOT_LIST) * npivots;

	pivots.n = (uint32_t) npivots;
	second += gg_cpu_knn_graph_bytes(&pivots, &params, threads, false);
	return (first > second ? first : second) + sizeof(uint32_t) * (1 + GG_PIVOT_DEGREE) * npivots;
}

gg_status
gg_cpu_connect_run(gg_pool *pool, const gg_dataset *data, const uint32_t *knn, uint32_t k, uint64_t seed,
				   gg_graph *graph, gg_build_stats *stats)
{
	gg_status	status;

	if (graph->n == 0)
		return gg_cpu_ok();
	gg_pool_phase(pool, GG_PHASE_CONNECT, graph->n);
	status = connect_nodes(pool, knn, k, seed, graph, stats);
	gg_pool_mute(pool, true);
	if (status.code == GG_OK)
		status = connect_pivots(pool, data, seed, graph);
	gg_pool_mute(pool, false);
	return status;
}
