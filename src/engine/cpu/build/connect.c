/*
 * connect.c
 *		Pivots, and a graph in which every node is reachable from them.
 *
 * A graph made of near neighbours alone falls apart where data is clustered, and a walk that starts
 * far from its query stays where it started.  So every walk enters through the pivots: random rows
 * in a small graph of their own, to which rows are added where no pivot is near (cover_nodes).
 * Reachability is made in three steps (reach.h):
 *
 *	1. A breadth-first search goes from all pivots along the adjacency.  The edge by which a node is
 *	   reached first is its tree edge.
 *	2. A node that was not reached, an orphan, is linked from a reached node of its k-NN list, in
 *	   place of the last edge of that node that is no tree edge.  The search goes on from the
 *	   orphan, and may reach others.
 *	3. An orphan without such a neighbour becomes a pivot.  Where there are too many pivots
 *	   (gg_pivots_most), it is linked from the node reached last, which is a leaf of the tree and
 *	   always has an edge to give.
 *
 * The CUDA engine does the same (kernels/build/cover.cu, connect.cu) with another rule in step 2,
 * since it has no k-NN lists on the host, and without gg_unite_ratio() where rows are not in its
 * memory.
 *
 * The graph over the pivots is built like the main one, of exact lists where they are few enough
 * (knn_graph.c), but in levels.  The first quarter of the pivots, the first sixteenth and so on
 * have graphs of their own, whose edges are longer, and a pivot's list interleaves the levels that
 * it belongs to.  Near neighbours alone leave tight clusters islands among the pivots, too, and a
 * walk then finds only those where it starts.  The pivots, those added included, are in random
 * order, so that every prefix is a random sample of them all.
 *
 * The pivots are made reachable from pivot 0 in the same way as the nodes, except that no orphan
 * becomes a root: step 3 links it from the pivot reached last.
 */
#include "engine/rules/pivots.h"
#include "engine/rules/reach.h"
#include "engine/cpu/graph/stages.h"

#include <stdlib.h>
#include <string.h>

/* How often serial loops look at the clock, in nodes. */
#define POLL_NODES		1024u

/* A graph that is being made reachable, on the pool of the build. */
typedef struct pool_reach
{
	gg_reach	reach;
	gg_pool    *pool;
	uint32_t	reported;		/* how many expanded nodes were reported */
} pool_reach;

/* Report progress.  True: the caller wants the build to stop. */
static bool
reach_stop(void *ctx)
{
	pool_reach *on = ctx;
	gg_worker  *worker = gg_pool_caller(on->pool);

	gg_worker_progress(worker, on->reach.expanded - on->reported);
	on->reported = on->reach.expanded;
	return gg_worker_stopping(worker);
}

static gg_status
reach_begin(pool_reach *on, gg_pool *pool, uint32_t *adjacency, uint32_t n, uint32_t degree)
{
	gg_status	status = gg_reach_create(&on->reach, "gg_cpu_connect", adjacency, n, degree,
										 reach_stop, on);

	on->pool = pool;
	on->reported = 0;
	if (status.code == GG_OK)
		memset(on->reach.parent, 0xFF, sizeof(uint32_t) * n);
	return status;
}

/* Report progress after a stretch of work; an error: the build is to stop. */
static gg_status
reach_status(pool_reach *on)
{
	return reach_stop(on) || on->reach.stopped ? gg_pool_poll(on->pool) : gg_ok();
}

typedef struct knn_lists
{
	const uint32_t *ids;		/* n x k, nearest first */
	uint32_t	k;
	gg_metric	metric;
	const gg_dataset *data;
} knn_lists;

/*
 * gg_reach_rule: from the nearest reached node of the orphan's k-NN list that has an edge to give.
 */
static bool
link_by_knn(gg_reach *reach, uint32_t orphan, const void *arg)
{
	const knn_lists *knn = arg;
	const uint32_t *near = knn->ids + (size_t) orphan * knn->k;

	for (uint32_t i = 0; i < knn->k && near[i] != GG_NO_NODE; i++)
		if (gg_reach_has(reach, near[i]) && gg_reach_link(reach, near[i], orphan))
			return true;
	return false;
}

/* Search from the roots, then link what can be linked by the k-NN lists. */
static gg_status
reach_by_knn(pool_reach *on, const uint32_t *ids, uint32_t k)
{
	knn_lists	knn = {.ids = ids,.k = k};

	gg_reach_spread(&on->reach);
	if (on->reach.queued < on->reach.n && !gg_reach_link_all(&on->reach, link_by_knn, &knn))
		return gg_fail(GG_ENOMEM, "gg_cpu_connect", "out of memory to connect %u nodes",
					   on->reach.n);
	return reach_status(on);
}

/* Draw distinct random nodes. */
static gg_status
draw_pivots(gg_pool *pool, uint32_t *pivots, uint32_t wanted, uint32_t n, uint64_t seed)
{
	uint32_t	taken = 0;

	/* selection sampling: a node is taken with probability wanted / nodes left */
	for (uint32_t i = 0; i < n && taken < wanted; i++)
	{
		if (i % POLL_NODES == 0 && gg_worker_stopping(gg_pool_caller(pool)))
			return gg_pool_poll(pool);
		if (gg_random_below(seed ^ UINT64_C(0xA0761D6478BD642F), i, n - i) < wanted - taken)
			pivots[taken++] = i;
	}
	return gg_ok();
}

/* Have room for one more pivot. */
static gg_status
grow_pivots(gg_graph *graph, uint32_t *room)
{
	uint32_t   *more;

	if (graph->npivots < *room)
		return gg_ok();
	more = realloc(graph->pivots, sizeof(uint32_t) * (*room + *room / 2 + 16));
	if (!more)
		return gg_fail(GG_ENOMEM, "gg_cpu_connect", "out of memory for %u pivots",
					   *room + *room / 2 + 16);
	graph->pivots = more;
	*room += *room / 2 + 16;
	return gg_ok();
}

/*
 * hops[i] becomes the number of steps from node i to a pivot along the GG_COVER_LIST nearest
 * neighbours of each node; it stays as it is where that takes more than GG_COVER_HOPS.
 */
static gg_status
count_hops(gg_pool *pool, const uint32_t *knn, uint32_t n, uint32_t k, uint8_t *hops)
{
	uint32_t	length = k < GG_COVER_LIST ? k : GG_COVER_LIST;
	bool		changed = true;

	for (uint32_t hop = 1; hop <= GG_COVER_HOPS && changed; hop++)
	{
		changed = false;
		for (uint32_t node = 0; node < n; node++)
		{
			const uint32_t *near = knn + (size_t) node * k;

			if (node % POLL_NODES == 0 && gg_worker_stopping(gg_pool_caller(pool)))
				return gg_pool_poll(pool);
			for (uint32_t i = 0; hops[node] > hop && i < length && near[i] != GG_NO_NODE; i++)
				if (hops[near[i]] == hop - 1)
				{
					hops[node] = hop;
					changed = true;
				}
		}
	}
	return gg_ok();
}

/* Lower the hops of node to at most GG_COVER_HOPS. */
static inline void
lower_hops(uint8_t *hops, uint32_t node)
{
	if (hops[node] > GG_COVER_HOPS)
		hops[node] = GG_COVER_HOPS;
}

/*
 * Make rows pivots until every row reaches a pivot within GG_COVER_HOPS steps, or there are
 * most_pivots.  In each round some of the rows that reach none become pivots.  Rows within two
 * steps from a new pivot then count as near enough.
 */
static gg_status
cover_within(gg_pool *pool, const uint32_t *knn, uint32_t k, uint32_t most_pivots, uint8_t *hops,
			 gg_graph *graph, uint32_t *room)
{
	uint32_t	n = graph->n;
	uint32_t	length = k < GG_COVER_LIST ? k : GG_COVER_LIST;
	uint32_t	added;
	gg_status	status;

	memset(hops, GG_COVER_HOPS + 1, n);
	for (uint32_t i = 0; i < graph->npivots; i++)
		hops[graph->pivots[i]] = 0;
	do
	{
		added = 0;
		status = count_hops(pool, knn, n, k, hops);
		for (uint32_t node = 0; status.code == GG_OK && node < n && graph->npivots < most_pivots;
			 node++)
		{
			const uint32_t *near = knn + (size_t) node * k;

			if (node % POLL_NODES == 0 && gg_worker_stopping(gg_pool_caller(pool)))
				return gg_pool_poll(pool);
			if (hops[node] <= GG_COVER_HOPS)
				continue;
			status = grow_pivots(graph, room);
			if (status.code != GG_OK)
				break;
			graph->pivots[graph->npivots++] = node;
			added++;
			hops[node] = 0;
			for (uint32_t i = 0; i < length && near[i] != GG_NO_NODE; i++)
			{
				const uint32_t *next = knn + (size_t) near[i] * k;

				lower_hops(hops, near[i]);
				for (uint32_t j = 0; j < length && next[j] != GG_NO_NODE; j++)
					lower_hops(hops, next[j]);
			}
		}
	} while (status.code == GG_OK && added > 0 && graph->npivots < most_pivots);
	return status;
}

/* The root of a node's component, with path halving. */
static uint32_t
component(uint32_t *parent, uint32_t node)
{
	while (parent[node] != node)
		node = parent[node] = parent[parent[node]];
	return node;
}

/* Is node among the first `length` of the k neighbours of other? */
static inline bool
has_neighbour(const knn_lists *knn, uint32_t length, uint32_t other, uint32_t node)
{
	const uint32_t *near = knn->ids + (size_t) other * knn->k;

	for (uint32_t i = 0; i < length && near[i] != GG_NO_NODE; i++)
		if (near[i] == node)
			return true;
	return false;
}

/* Rows that list each other. */
typedef struct components
{
	uint32_t   *parent;			/* see component() */
	bool	   *united;			/* by row: was it united with another one? */
} components;

/* How far apart rows of one group may be, and what that is measured with. */
typedef struct unite_measure
{
	gg_distance_fn distance;
	float		ratio;			/* gg_unite_ratio() */
	float	   *query;			/* room for a row of halves as floats */
} unite_measure;

/* Is the neighbour at that place near enough to be of the row's own group? */
static bool
is_of_group(const knn_lists *knn, const unite_measure *measure, uint32_t node, uint32_t place)
{
	const uint32_t *near = knn->ids + (size_t) node * knn->k;
	const gg_dataset *data = knn->data;
	const size_t bytes = gg_element_size(data->element) * data->dim;
	const char *rows = data->rows;
	const float *query = (const float *) (rows + node * bytes);

	if (place < GG_UNITE_ALWAYS || measure->ratio == 0)
		return true;
	if (data->element == GG_ELEMENT_F16)
	{
		gg_halves_to_floats((const uint16_t *) query, measure->query, data->dim);
		query = measure->query;
	}
	return measure->distance(rows + near[place] * bytes, query, data->dim) <= measure->ratio *
		measure->distance(rows + near[GG_UNITE_ALWAYS - 1] * bytes, query, data->dim);
}

/* Unite each node with neighbours of its group, at places first .. end - 1, that list it, too. */
static gg_status
unite_places(gg_pool *pool, const knn_lists *knn, const unite_measure *measure, uint32_t first,
			 uint32_t end, const components *of)
{
	const uint32_t k = knn->k;
	const uint32_t mutual = GG_UNITE_LENGTH(k, knn->metric);
	uint32_t   *parent = of->parent;

	for (uint32_t node = 0; node < knn->data->n; node++)
	{
		const uint32_t *near = knn->ids + (size_t) node * k;

		if (node % POLL_NODES == 0 && gg_worker_stopping(gg_pool_caller(pool)))
			return gg_pool_poll(pool);
		for (uint32_t i = first; i < end && near[i] != GG_NO_NODE; i++)
			/* nearly all are in one already, and lists lie anywhere in memory */
			if (component(parent, near[i]) != component(parent, node) &&
				has_neighbour(knn, mutual, near[i], node) && is_of_group(knn, measure, node, i))
			{
				parent[component(parent, near[i])] = component(parent, node);
				of->united[near[i]] = of->united[node] = true;
			}
	}
	return gg_ok();
}

/*
 * Unite each node with those of its nearest neighbours that list it, too: otherwise one wrong list,
 * of a node that GNND has not brought home, would make two clusters one.  A node that is united
 * with none goes with its nearest neighbour, but not under inner product (pivots.h).
 */
static gg_status
unite_neighbours(gg_pool *pool, const knn_lists *knn, const components *of)
{
	const gg_dataset *data = knn->data;
	const uint32_t k = knn->k;
	const uint32_t end = k < GG_COVER_LIST ? k : GG_COVER_LIST;
	const uint32_t always = end < GG_UNITE_ALWAYS ? end : GG_UNITE_ALWAYS;
	/* of rows of unit length L2 tells near copies apart, where 1 - cos is rounding */
	const unite_measure measure = {
		gg_distance_function(knn->metric == GG_METRIC_COSINE ? GG_METRIC_L2 : knn->metric,
							 data->element),
		gg_unite_ratio(knn->metric), malloc(sizeof(float) * data->dim)
	};
	uint32_t   *parent = of->parent;
	gg_status	status;

	if (!measure.query)
		return gg_fail(GG_ENOMEM, "gg_cpu_connect", "out of memory for a row");
	for (uint32_t node = 0; node < data->n; node++)
		parent[node] = node;
	/* most are in one after the first places, which take no distances */
	status = unite_places(pool, knn, &measure, 0, always, of);
	if (status.code == GG_OK)
		status = unite_places(pool, knn, &measure, always, end, of);
	free(measure.query);
	for (uint32_t node = 0; status.code == GG_OK && knn->metric != GG_METRIC_IP &&
		 node < data->n; node++)
		if (!of->united[node] && knn->ids[(size_t) node * k] != GG_NO_NODE)
			parent[component(parent, knn->ids[(size_t) node * k])] = component(parent, node);
	return status;
}

/* Under inner product: are too few of the nearest rows of node in its own component? */
static bool
is_among_others(const knn_lists *knn, const components *of, uint32_t node)
{
	const uint32_t *near = knn->ids + (size_t) node * knn->k;
	uint32_t	own = 0;

	for (uint32_t i = 0; i < GG_COVER_LIST && i < knn->k && near[i] != GG_NO_NODE; i++)
		own += component(of->parent, near[i]) == component(of->parent, node);
	return own < GG_PIVOT_OWN;
}

/*
 * Does node's list name more than GG_PIVOTS_APART() components beside its own, root's, and is it in
 * a list there, too?  A node that GNND has not brought home names many, and is in none of theirs.
 */
static bool
is_linked(const knn_lists *knn, const components *of, uint32_t node, uint32_t root)
{
	const uint32_t k = knn->k;
	const uint32_t *near = knn->ids + (size_t) node * k;
	uint32_t	others[GG_MAX_DEGREE];
	uint32_t	count = 0;
	bool		listed = false;

	for (uint32_t i = 0; i < k && near[i] != GG_NO_NODE; i++)
	{
		/* a row that was not united counts as its nearest row */
		uint32_t	home = of->united[near[i]] ? near[i] : knn->ids[(size_t) near[i] * k];
		uint32_t	other = component(of->parent, home == GG_NO_NODE ? near[i] : home);

		if (other == root)
			continue;
		listed = listed || has_neighbour(knn, k, near[i], node);
		if (!gg_has_id(others, count, other))
			others[count++] = other;
		if (listed && count > GG_PIVOTS_APART(k))
			return true;
	}
	return false;
}

/*
 * Add a pivot for each component apart that has none (unite_neighbours()), up to gg_pivots_most().
 */
static gg_status
cover_components(gg_pool *pool, const knn_lists *knn, gg_graph *graph, uint32_t *room)
{
	uint32_t	n = graph->n;
	const components of = {malloc(sizeof(uint32_t) * n), calloc(n, sizeof(bool))};
	bool	   *covered = calloc(n, sizeof(bool));	/* by root: is its component done? */
	gg_status	status = gg_ok();

	if (!of.parent || !of.united || !covered)
		status = gg_fail(GG_ENOMEM, "gg_cpu_connect", "out of memory to cover %u nodes", n);
	if (status.code == GG_OK)
		status = unite_neighbours(pool, knn, &of);
	if (status.code == GG_OK)
		for (uint32_t i = 0; i < graph->npivots; i++)
			covered[component(of.parent, graph->pivots[i])] = true;
	for (uint32_t node = 0; status.code == GG_OK && node < n; node++)
	{
		uint32_t	root = component(of.parent, node);

		if (node % POLL_NODES == 0 && gg_worker_stopping(gg_pool_caller(pool)))
		{
			status = gg_pool_poll(pool);
			break;
		}
		if (covered[root] || graph->npivots >= gg_pivots_most(n))
			continue;
		covered[root] = true;
		if ((knn->metric == GG_METRIC_IP && is_among_others(knn, &of, node)) ||
			is_linked(knn, &of, node, root))
			continue;
		status = grow_pivots(graph, room);
		if (status.code == GG_OK)
			graph->pivots[graph->npivots++] = node;
	}
	free(of.parent);
	free(of.united);
	free(covered);
	return status;
}

/*
 * Add pivots where none is near.  A cluster of 150 rows among 200,000 draws no pivot with
 * probability 0.27, and no walk then finds it: the lists of its rows stay within it, and few edges
 * lead in.  First one for each component apart without any, up to gg_pivots_most(): of 40,000 rows
 * in clusters of 12 a twelfth, and with no more than twice the pivots drawn recall is 0.938 instead
 * of 0.9995, 61 of 1,000 queries get no right answer.  Then, up to twice as many pivots as were
 * drawn, rows from which it takes more than GG_COVER_HOPS steps to one.  More pivots would not
 * help: a walk is less sure to find the nearest of many pivots.
 */
static gg_status
cover_nodes(gg_pool *pool, const knn_lists *knn, gg_graph *graph, uint32_t *room)
{
	uint32_t	most = 2 * graph->npivots;
	uint8_t    *hops;
	gg_status	status = cover_components(pool, knn, graph, room);

	if (status.code != GG_OK)
		return status;
	hops = malloc(graph->n);
	if (!hops)
		return gg_fail(GG_ENOMEM, "gg_cpu_connect", "out of memory to cover %u nodes", graph->n);
	status = cover_within(pool, knn->ids, knn->k, most, hops, graph, room);
	free(hops);
	return status;
}

/* Steps 1 to 3 for the main graph, whose pivots are chosen. */
static gg_status
reach_nodes(gg_pool *pool, const uint32_t *knn, uint32_t k, gg_graph *graph, uint32_t *room,
			gg_build_stats *stats)
{
	pool_reach	on;
	gg_reach   *reach = &on.reach;
	uint32_t	most = gg_pivots_most(graph->n);
	gg_status	status = reach_begin(&on, pool, graph->adjacency, graph->n, graph->degree);

	if (status.code == GG_OK)
	{
		for (uint32_t i = 0; i < graph->npivots; i++)
			gg_reach_root(reach, graph->pivots[i]);
		status = reach_by_knn(&on, knn, k);
	}
	if (status.code == GG_OK)
	{
		gg_reach_root_left(reach, most > graph->npivots ? most - graph->npivots : 0);
		status = reach_status(&on);
	}
	for (uint32_t i = 0; status.code == GG_OK && i < reach->nleft; i++)
	{
		status = grow_pivots(graph, room);
		if (status.code == GG_OK)
			graph->pivots[graph->npivots++] = reach->left[i];
	}
	stats->repaired += reach->links + reach->nleft;
	gg_reach_free(reach);
	return status;
}

/* Draw pivots, and add more where none is near.  *room: places of graph->pivots. */
static gg_status
choose_pivots(gg_pool *pool, const knn_lists *knn, uint64_t seed, gg_graph *graph, uint32_t *room)
{
	gg_status	status;

	*room = gg_pivots_wanted(graph->n);
	graph->pivots = malloc(sizeof(uint32_t) * *room);
	if (!graph->pivots)
		return gg_fail(GG_ENOMEM, "gg_cpu_connect", "out of memory for %u pivots", *room);
	status = draw_pivots(pool, graph->pivots, *room, graph->n, seed);
	graph->npivots = *room;
	return status.code == GG_OK ? cover_nodes(pool, knn, graph, room) : status;
}

/* Choose the pivots, and make every node reachable from them. */
static gg_status
connect_nodes(gg_pool *pool, const knn_lists *knn, uint64_t seed, gg_graph *graph,
			  gg_build_stats *stats)
{
	uint32_t	room;
	gg_status	status = choose_pivots(pool, knn, seed, graph, &room);

	if (status.code == GG_OK)
		status = reach_nodes(pool, knn->ids, knn->k, graph, &room, stats);
	if (status.code == GG_OK)
		gg_pivots_shuffle(graph->pivots, graph->npivots, seed);
	return status;
}

/*
 * Make the graph over some pivots, of indices into them: k-NN lists (n x GG_PIVOT_LIST), adjacency.
 */
static gg_status
link_pivots(gg_pool *pool, const gg_dataset *pivots, uint64_t seed, uint32_t *knn,
			uint32_t *adjacency)
{
	gg_build_params params = {.intermediate_graph_degree = GG_PIVOT_LIST, .seed = seed};
	const gg_near_lists lists = {knn, pivots->n, GG_PIVOT_LIST};
	gg_build_stats unwanted = {0};
	gg_status	status = gg_cpu_knn_graph_run(pool, pivots, &params, knn, NULL, NULL, &unwanted);

	if (status.code == GG_OK)
		status = gg_cpu_optimize_run(pool, &lists, GG_PIVOT_DEGREE, GG_PIVOT_DEGREE, NULL,
									 adjacency);
	return status;
}

/*
 * Build the levels above that of all pivots, and interleave the lists of the pivots in them.
 */
static gg_status
link_levels(gg_pool *pool, const gg_dataset *pivots, uint64_t seed, uint32_t *adjacency)
{
	uint32_t	sizes[GG_LEVELS_MAX];
	uint32_t   *levels[GG_LEVELS_MAX] = {adjacency};
	uint32_t	nlevels = gg_pivot_levels(pivots->n, sizes);
	size_t		entries = GG_PIVOT_LIST * (size_t) (pivots->n / GG_LEVEL_RATIO);
	uint32_t   *knn = malloc(sizeof(uint32_t) * entries + 1);
	gg_dataset	prefix = *pivots;
	gg_status	status = gg_ok();

	if (!knn)
		status = gg_fail(GG_ENOMEM, "gg_cpu_connect", "out of memory for the levels of %u pivots",
						 pivots->n);
	for (uint32_t level = 1; status.code == GG_OK && level < nlevels; level++)
	{
		prefix.n = sizes[level];
		levels[level] = malloc(sizeof(uint32_t) * GG_PIVOT_DEGREE * (size_t) prefix.n);
		if (levels[level])
			status = link_pivots(pool, &prefix, seed, knn, levels[level]);
		else
			status = gg_fail(GG_ENOMEM, "gg_cpu_connect", "out of memory for a level of %u pivots",
							 prefix.n);
	}
	free(knn);
	if (status.code == GG_OK)
		gg_pivot_join_levels(levels, sizes, nlevels);
	while (nlevels-- > 1)
		free(levels[nlevels]);
	return status;
}

/* Make every pivot reachable from pivot 0; knn: the pivots' lists. */
static gg_status
reach_pivots(gg_pool *pool, const uint32_t *knn, gg_graph *graph)
{
	pool_reach	on;
	gg_reach   *reach = &on.reach;
	gg_status	status = reach_begin(&on, pool, graph->pivot_adjacency, graph->npivots,
									 GG_PIVOT_DEGREE);

	if (status.code == GG_OK)
	{
		gg_reach_root(reach, 0);
		status = reach_by_knn(&on, knn, GG_PIVOT_LIST);
	}
	if (status.code == GG_OK)
	{
		/* no pivot may be a root beside pivot 0 */
		gg_reach_root_left(reach, 0);
		status = reach_status(&on);
	}
	gg_reach_free(reach);
	return status;
}

/* Make the graph over the pivots, all of it reachable from pivot 0. */
static gg_status
connect_pivots(gg_pool *pool, const gg_dataset *data, uint64_t seed, gg_graph *graph)
{
	uint32_t	n = graph->npivots;
	size_t		row_bytes = gg_element_size(data->element) * data->dim;
	char	   *rows = malloc(row_bytes * n);
	uint32_t   *knn = malloc(sizeof(uint32_t) * GG_PIVOT_LIST * (size_t) n);
	gg_dataset	pivots = *data;
	gg_status	status = gg_ok();

	graph->pivot_adjacency = malloc(sizeof(uint32_t) * GG_PIVOT_DEGREE * (size_t) n);
	if (!rows || !knn || !graph->pivot_adjacency)
		status = gg_fail(GG_ENOMEM, "gg_cpu_connect", "out of memory for the graph of %u pivots",
						 n);
	if (status.code == GG_OK)
	{
		for (uint32_t i = 0; i < n; i++)
			memcpy(rows + i * row_bytes, (const char *) data->rows + graph->pivots[i] * row_bytes,
				   row_bytes);
		pivots.rows = rows;
		pivots.n = n;
		status = link_pivots(pool, &pivots, seed, knn, graph->pivot_adjacency);
	}
	if (status.code == GG_OK)
		status = link_levels(pool, &pivots, seed, graph->pivot_adjacency);
	free(rows);
	if (status.code == GG_OK)
		status = reach_pivots(pool, knn, graph);
	free(knn);
	return status;
}

/*
 * The larger of reachability and the pivots' graph, counted with as many rows added to the pivots
 * as are drawn.  More are added only where that many parts of the data are cut off from all pivots.
 */
uint64_t
gg_cpu_connect_bytes(const gg_dataset *data, int threads)
{
	uint64_t	npivots = 2 * (uint64_t) gg_pivots_wanted(data->n);
	gg_dataset	pivots = *data;
	gg_build_params params = {.intermediate_graph_degree = GG_PIVOT_LIST};
	/* parents, queue and orphans; or, earlier, the components */
	uint64_t	first = (3 * sizeof(uint32_t) + sizeof(bool)) * (uint64_t) data->n;
	uint64_t	second;

	if (npivots > data->n)
		npivots = data->n;
	second = (gg_element_size(data->element) * data->dim + sizeof(uint32_t) * GG_PIVOT_LIST) *
		npivots;
	/* the levels: lists of the first one, and the edges of all, a third as many as the pivots' */
	second += sizeof(uint32_t) * (GG_PIVOT_LIST * (npivots / GG_LEVEL_RATIO) +
								  GG_PIVOT_DEGREE * npivots / (GG_LEVEL_RATIO - 1));
	pivots.n = (uint32_t) npivots;
	second += gg_cpu_knn_graph_bytes(&pivots, &params, threads, false);
	return (first > second ? first : second) + sizeof(uint32_t) * (1 + GG_PIVOT_DEGREE) * npivots;
}

gg_status
gg_cpu_entries_run(gg_pool *pool, const gg_dataset *data, const gg_entries *entries, uint64_t seed,
				   gg_graph *graph)
{
	uint32_t	room;
	uint32_t	kept = 0;
	const knn_lists knn = {entries->knn, entries->k, data->metric, data};
	gg_status	status = choose_pivots(pool, &knn, seed, graph, &room);

	if (status.code != GG_OK)
		return status;
	gg_pivots_shuffle(graph->pivots, graph->npivots, seed);
	for (uint32_t i = 0; i < graph->npivots; i++)
		if (entries->parts[graph->pivots[i]] == entries->part)
			graph->pivots[kept++] = graph->pivots[i];
	for (uint32_t row = 0; kept == 0; row++)
		if (entries->parts[row] == entries->part)
			graph->pivots[kept++] = row;
	graph->npivots = kept;
	return connect_pivots(pool, data, seed, graph);
}

gg_status
gg_cpu_connect_run(gg_pool *pool, const gg_dataset *data, const uint32_t *knn, uint32_t k,
				   uint64_t seed, gg_graph *graph, gg_build_stats *stats)
{
	const knn_lists lists = {knn, k, data->metric, data};
	gg_status	status;

	if (graph->n == 0)
		return gg_ok();
	gg_pool_phase(pool, GG_PHASE_CONNECT, graph->n);
	status = connect_nodes(pool, &lists, seed, graph, stats);
	gg_pool_mute(pool, true);
	if (status.code == GG_OK)
		status = connect_pivots(pool, data, seed, graph);
	gg_pool_mute(pool, false);
	return status;
}
