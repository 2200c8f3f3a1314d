/*
 * extend.c
 *		Few rows into a large graph, by searching it: GGM's incremental case.
 *
 * Wang, Zhao, Zeng, Yang: "Fast k-NN Graph Construction by GPU based NN-Descent", 2021, section 5
 * has a merge compare all rows again.  Where one part, the base, has most of the rows, what is new
 * of their neighbours follows from those of the few others.  Other merges build anew.
 *
 * Contract.  k is intermediate_graph_degree, d the distance by which k-NN lists are made (gg_rows).
 *
 *	(a) Where the others are not of one part, lists among them are made anew (ordered ones, see
 *		knn_graph.c), and what is stored of them does not count.
 *	(b) Each of the others is searched for in the base's graph: best-first search over what is
 *		stored, by d, from pivots of the base.  It finds WIDTH neighbours, or graph_degree where
 *		that is more, but no more than k.
 *	(c) The list of one of the others is the nearest k of (a), or of what is stored of it, and (b).
 *	(d) Each row of the base that (b) found is offered the one that it was found for.  The list of a
 *		row of the base is the nearest k of what is stored of it and its nearest OFFERS offers.
 *
 * Edges, pivots and reachability are then made as in a build.  The result does not depend on
 * threads, but for the graph of more than GG_BRUTE_ROWS pivots, which is made as in a build.
 *
 * Pivots do not come with a merge.  Those of (b) are chosen by a build's rules (connect.c), over
 * the first stored edges of each row in place of its nearest neighbours.
 *
 * Rows are gone through in an order in which neighbours stand near each other: depth first along
 * stored edges.  Then much of what a search reads is in the cache from the one before.  10,000 rows
 * into 90,000 x 128: 0.77 s of searches instead of 1.11.
 *
 * Tried there, degree 32 of 64, distances of a search and recall@10 at itopk 16 and 32:
 *
 *	as it is								785		0.9939	0.9984
 *	entered at what the row before found	581		0.9923	0.9973
 *	WIDTH 48								719		0.9928	0.9984
 *	WIDTH 32								638		0.9925	0.9984
 */
#include "engine/rules/algorithms.h"
#include "engine/cpu/serve/index.h"
#include "engine/cpu/graph/knn.h"
#include "engine/cpu/graph/stages.h"
#include "engine/keys.h"

#include <string.h>

/*
 * The others are at most one in this many rows; src/maintain/graphs.c has the rule for merges of
 * indexes.
 */
#define OTHERS_SHARE	4

#define WIDTH			64u

/*
 * A search goes on until it has followed so many edges of the nearest rows that it knows: 64 lists
 * of 32.  9,000 x 32, uniform, cosine, a tenth new, degree 16 of 32: recall@10 at itopk 64 of new
 * rows is 0.948 with 32 candidates, 0.992 with the 128 that this asks for, and 0.993 built anew.
 * 30,000 x 64, in clusters: 0.28 s instead of 0.21, and 0.75 built anew.
 */
#define EDGES			2048u
#define OFFERS			32u

/* How many of a row's first edges the order of rows follows. */
#define ORDER_EDGES		8u

typedef struct extend_plan
{
	uint8_t		base;
	uint32_t	others;			/* how many */
	uint32_t	first;			/* the first of the others */
	bool		run;			/* the others stand side by side */
	bool		together;		/* the others are of one part */
} extend_plan;

typedef struct extend_thread
{
	gg_walk    *walk;
	float	   *query;
} extend_thread;

typedef struct extend_state
{
	gg_pool    *pool;
	const gg_dataset *data;
	const gg_merge_input *input;
	const gg_build_params *params;
	extend_plan plan;
	uint32_t	n;
	uint32_t	k;
	uint32_t	width;
	gg_rows		rows;
	gg_graph	graph;			/* what is stored, and pivots of the base */
	gg_index   *index;			/* over graph */
	extend_thread *threads;
	uint32_t   *others;			/* rows that are not of the base */
	uint64_t   *found;			/* others x width keys of (b); UINT64_MAX behind the last */
	uint64_t   *starts;			/* n + 2: where each row's offers begin */
	uint64_t   *offers;			/* keys of (d) */
	uint32_t   *ids;			/* n x k: the result */
	uint32_t   *order;			/* n */
} extend_state;

static gg_status
no_memory(const extend_state *e)
{
	return gg_fail(GG_ENOMEM, "gg_cpu_merge", "out of memory for %u rows that go into %u",
				   e->plan.others, e->n - e->plan.others);
}

/* ---- the plan --------------------------------------------------------------- */

/* Find the base and the others.  False: there is no base. */
static bool
make_plan(const gg_dataset *data, const gg_merge_input *input, extend_plan *plan)
{
	const uint8_t *parts = input->parts;
	uint32_t	sizes[UINT8_MAX + 1] = {0};
	uint32_t	last = 0;

	memset(plan, 0, sizeof(*plan));
	for (uint32_t row = 0; row < data->n; row++)
		sizes[parts[row]]++;
	for (uint32_t part = 1; part <= UINT8_MAX; part++)
		if (sizes[part] > (plan->base == 0 ? 0 : sizes[plan->base]))
			plan->base = (uint8_t) part;
	if (plan->base == 0)
		return false;
	plan->others = data->n - sizes[plan->base];
	for (uint32_t part = 1; part <= UINT8_MAX; part++)
		plan->together |= part != plan->base && sizes[part] == plan->others;
	if (plan->others == 0)
		return true;
	while (parts[plan->first] == plan->base)
		plan->first++;
	for (last = data->n - 1; parts[last] == plan->base;)
		last--;
	plan->run = last - plan->first + 1 == plan->others;
	return true;
}

static uint32_t
width_of(const gg_build_params *params)
{
	return gg_min_u32(params->intermediate_graph_degree, gg_max_u32(WIDTH, params->graph_degree));
}

/* Peak memory beyond ids. */
static uint64_t
extend_bytes(const gg_dataset *data, const gg_build_params *params, const extend_plan *plan,
			 int threads)
{
	uint64_t	n = data->n,
				others = plan->others,
				first = 0,
				second;

	if (!plan->together && others > 0)
	{
		gg_dataset	some = *data;

		some.n = plan->others;
		first = others * sizeof(uint32_t) * params->intermediate_graph_degree +
			gg_cpu_knn_graph_bytes(&some, params, threads, false);
		if (!plan->run)
			first += others * data->dim * gg_element_size(data->element);
	}
	/* order, starts; found, offers; pivots */
	second = n * (sizeof(uint32_t) + sizeof(uint64_t)) +
		others * 2 * sizeof(uint64_t) * width_of(params) + gg_cpu_connect_bytes(data, threads);
	return n * sizeof(float) + others * sizeof(uint32_t) + (first > second ? first : second);
}

bool
gg_cpu_extends(const gg_dataset *data, const gg_merge_input *input, const gg_build_params *params,
			   int threads)
{
	extend_plan plan;

	if (params->init == GG_INIT_RANDOM || !make_plan(data, input, &plan))
		return false;
	return input->way == GG_MERGE_SEARCH ||
		(data->n > GG_BRUTE_ROWS && plan.others <= data->n / OTHERS_SHARE &&
		 extend_bytes(data, params, &plan, threads) <=
		 gg_cpu_knn_graph_bytes(data, params, threads, false));
}

/* ---- what is stored ----------------------------------------------------------- */

/* Copy a row's stored list to its ids, without the row itself and what is there already. */
static void
stored_run(gg_worker *worker, void *arg, uint64_t row)
{
	extend_state *e = arg;
	uint32_t	length = e->input->length;
	const uint32_t *stored = e->input->lists + row * length;
	uint32_t   *ids = e->ids + row * e->k;
	uint32_t	count = 0;

	(void) worker;
	for (uint32_t i = 0; i < length && count < e->k; i++)
		if (stored[i] != row && stored[i] != GG_NO_NODE && !gg_has_id(ids, count, stored[i]))
			ids[count++] = stored[i];
	while (count < e->k)
		ids[count++] = GG_NO_NODE;
}

static gg_status
list_others(extend_state *e)
{
	uint32_t	count = 0;

	for (uint32_t row = 0; row < e->n; row++)
	{
		if (gg_pool_stopping(e->pool, row))
			return gg_pool_poll(e->pool);
		if (e->input->parts[row] != e->plan.base)
			e->others[count++] = row;
	}
	return gg_ok();
}

/* ---- (a) ------------------------------------------------------------------------ */

/* Make a data set of the others; *copy is set where their rows had to be copied. */
static gg_status
gather_others(const extend_state *e, gg_dataset *some, char **copy)
{
	size_t		row_bytes = e->data->dim * gg_element_size(e->data->element);

	*some = *e->data;
	some->n = e->plan.others;
	some->rows = (const char *) e->data->rows + e->plan.first * row_bytes;
	if (e->plan.run)
		return gg_ok();
	*copy = gg_array(some->n, row_bytes);
	if (!*copy)
		return no_memory(e);
	for (uint32_t i = 0; i < some->n; i++)
	{
		if (gg_pool_stopping(e->pool, i))
			return gg_pool_poll(e->pool);
		memcpy(*copy + i * row_bytes, (const char *) e->data->rows + e->others[i] * row_bytes,
			   row_bytes);
	}
	some->rows = *copy;
	return gg_ok();
}

/* Put lists of the others into ids; rows in these lists are numbered among the others. */
static gg_status
place_lists(extend_state *e, const uint32_t *lists)
{
	for (uint32_t i = 0; i < e->plan.others; i++)
	{
		uint32_t   *ids = e->ids + (size_t) e->others[i] * e->k;
		const uint32_t *list = lists + (size_t) i * e->k;

		if (gg_pool_stopping(e->pool, i))
			return gg_pool_poll(e->pool);
		for (uint32_t j = 0; j < e->k; j++)
			ids[j] = list[j] == GG_NO_NODE ? GG_NO_NODE : e->others[list[j]];
	}
	return gg_ok();
}

static gg_status
compare_others(extend_state *e)
{
	uint32_t	count = e->plan.others;
	uint32_t   *lists = gg_array((uint64_t) count * e->k, sizeof(uint32_t));
	char	   *copy = NULL;
	gg_dataset	some;
	gg_status	status = lists ? gather_others(e, &some, &copy) : no_memory(e);

	gg_pool_mute(e->pool, true);
	if (status.code == GG_OK)
		status = gg_cpu_ordered_lists_run(e->pool, &some, e->params, lists);
	gg_pool_mute(e->pool, false);
	if (status.code == GG_OK)
		status = place_lists(e, lists);
	free(lists);
	free(copy);
	return status;
}

/* ---- the order -------------------------------------------------------------------- */

/* Put all rows into order, depth first along the first edges of each. */
static gg_status
walk_depth_first(extend_state *e, uint32_t *stack, bool *seen)
{
	uint32_t	length = gg_min_u32(e->k, ORDER_EDGES),
				count = 0;

	for (uint32_t row = 0; row < e->n; row++)
	{
		uint32_t	depth = 0;

		if (gg_pool_stopping(e->pool, row))
			return gg_pool_poll(e->pool);
		if (seen[row])
			continue;
		seen[row] = true;
		stack[depth++] = row;
		while (depth > 0)
		{
			uint32_t	node = stack[--depth];
			const uint32_t *ids = e->ids + (size_t) node * e->k;

			if (gg_pool_stopping(e->pool, count))
				return gg_pool_poll(e->pool);
			e->order[count++] = node;
			/* the first edge last, to be taken next */
			for (uint32_t i = length; i-- > 0;)
				if (ids[i] != GG_NO_NODE && !seen[ids[i]])
				{
					seen[ids[i]] = true;
					stack[depth++] = ids[i];
				}
		}
	}
	return gg_ok();
}

static gg_status
make_order(extend_state *e)
{
	uint32_t   *stack = gg_array(e->n, sizeof(uint32_t));
	bool	   *seen = calloc((size_t) e->n + 1, sizeof(bool));
	uint32_t	count = 0;
	gg_status	status = gg_ok();

	e->order = gg_array(e->n, sizeof(uint32_t));
	if (!stack || !seen || !e->order)
		status = no_memory(e);
	if (status.code == GG_OK)
		status = walk_depth_first(e, stack, seen);
	for (uint32_t i = 0; i < e->n && status.code == GG_OK; i++)
	{
		if (gg_pool_stopping(e->pool, i))
			status = gg_pool_poll(e->pool);
		else if (e->input->parts[e->order[i]] != e->plan.base)
			e->others[count++] = e->order[i];
	}
	free(stack);
	free(seen);
	return status;
}

/* ---- (b) ------------------------------------------------------------------------ */

static void
search_run(gg_worker *worker, void *arg, uint64_t i)
{
	extend_state *e = arg;
	extend_thread *thread = &e->threads[worker->id];
	gg_memory_source own = {e->index, thread->query, NULL};
	gg_source	source = gg_cpu_source(&own);
	uint32_t	itopk = gg_max_u32(e->width, EDGES / e->graph.degree);
	uint64_t   *found = e->found + i * e->width;
	uint32_t	count = 0;
	gg_candidate candidate;
	gg_status	status;

	gg_rows_load(&e->rows, e->others[i], 0, e->rows.dim, thread->query);
	status = gg_walk_start(thread->walk, &source, itopk);
	if (status.code != GG_OK)
	{
		gg_worker_fail(worker, status);
		return;
	}
	/* a search may find the row itself where the base has an edge to it */
	while (count < e->width && gg_walk_next(thread->walk, &candidate))
		if (candidate.node != e->others[i])
			found[count++] = key_of(candidate.distance, candidate.node);
	while (count < e->width)
		found[count++] = UINT64_MAX;
	gg_worker_progress(worker, 1);
}

/* Make everything that searches need, and search. */
static gg_status
search_others(extend_state *e)
{
	gg_entries	entries = {e->ids, e->k, e->input->parts, e->plan.base};
	gg_status	status;

	e->graph.n = e->n;
	e->graph.degree = e->input->length;
	gg_pool_mute(e->pool, true);
	status = gg_cpu_entries_run(e->pool, e->data, &entries, e->params->seed, &e->graph);
	gg_pool_mute(e->pool, false);
	if (status.code != GG_OK)
		return status;
	/* adjacency is only read */
	e->graph.adjacency = (uint32_t *) e->input->lists;
	status = gg_cpu_index_open(e->data, &e->graph, NULL, &e->index);
	e->found = gg_array((uint64_t) e->plan.others * e->width, sizeof(uint64_t));
	if (status.code == GG_OK && !e->found)
		status = no_memory(e);
	for (int t = 0; t < gg_pool_threads(e->pool) && status.code == GG_OK; t++)
	{
		status = gg_walk_create(&e->threads[t].walk);
		e->threads[t].query = gg_array(e->rows.dim, sizeof(float));
		if (status.code == GG_OK && !e->threads[t].query)
			status = no_memory(e);
	}
	return status.code == GG_OK ?
		gg_pool_each(e->pool, search_run, e, e->plan.others, 16) : status;
}

/* ---- (c), (d) --------------------------------------------------------------------- */

/* The row of the base that an entry of found names; GG_NO_NODE: it names none of the base. */
static inline uint32_t
offered_row(const extend_state *e, uint64_t entry)
{
	uint32_t	row = key_node(e->found[entry]);

	return e->found[entry] != UINT64_MAX && e->input->parts[row] == e->plan.base ? row :
		GG_NO_NODE;
}

/* Turn round what was found: each row of the base is offered the rows that it was found for. */
static gg_status
make_offers(extend_state *e)
{
	uint64_t	entries = (uint64_t) e->plan.others * e->width;

	e->starts = calloc((size_t) e->n + 2, sizeof(uint64_t));
	e->offers = gg_array(entries, sizeof(uint64_t));
	if (!e->starts || !e->offers)
		return no_memory(e);
	for (uint64_t i = 0; i < entries; i++)
	{
		uint32_t	row = offered_row(e, i);

		if (gg_pool_stopping(e->pool, i))
			return gg_pool_poll(e->pool);
		if (row != GG_NO_NODE)
			e->starts[row + 2]++;
	}
	for (uint32_t row = 0; row < e->n; row++)
		e->starts[row + 2] += e->starts[row + 1];
	/* what is at row + 1 comes to be the end of the row's */
	for (uint64_t i = 0; i < entries; i++)
	{
		uint32_t	row = offered_row(e, i);

		if (gg_pool_stopping(e->pool, i))
			return gg_pool_poll(e->pool);
		if (row != GG_NO_NODE)
			e->offers[e->starts[row + 1]++] = key_of(key_distance(e->found[i]),
													 e->others[i / e->width]);
	}
	return gg_ok();
}

/* Put the row's nearest offers into ids, in any order; returns how many. */
static uint32_t
nearest_offers(const extend_state *e, uint32_t row, uint32_t *ids)
{
	uint64_t	heap[OFFERS];
	uint32_t	count = 0;

	for (uint64_t i = e->starts[row]; i < e->starts[row + 1]; i++)
		count = heap_offer(heap, count, OFFERS, e->offers[i]);
	for (uint32_t i = 0; i < count; i++)
		ids[i] = key_node(heap[i]);
	return count;
}

/* The nearest k of what the row has and count more become its list. */
static void
settle(const extend_state *e, float *query, uint32_t row, uint32_t *more, uint32_t count)
{
	uint32_t   *ids = e->ids + (size_t) row * e->k;
	float		distances[2 * GG_MAX_DEGREE];
	uint64_t	keys[2 * GG_MAX_DEGREE],
				buffer[2 * GG_MAX_DEGREE];
	uint32_t	have = 0;

	for (; have < e->k && ids[have] != GG_NO_NODE; have++)
		more[count++] = ids[have];
	gg_rows_load(&e->rows, row, 0, e->rows.dim, query);
	gg_cpu_distances(e->index, query, more, count, distances);
	for (uint32_t i = 0; i < count; i++)
		keys[i] = key_of(distances[i], more[i]);
	gg_sort_keys(keys, buffer, count);
	have = 0;
	for (uint32_t i = 0; i < count && have < e->k; i++)
		if (i == 0 || keys[i] != keys[i - 1])
			ids[have++] = key_node(keys[i]);
	while (have < e->k)
		ids[have++] = GG_NO_NODE;
}

static void
base_run(gg_worker *worker, void *arg, uint64_t i)
{
	extend_state *e = arg;
	uint32_t	more[GG_MAX_DEGREE + OFFERS];

	if (e->input->parts[e->order[i]] == e->plan.base)
		settle(e, e->threads[worker->id].query, e->order[i], more,
			   nearest_offers(e, e->order[i], more));
}

static void
others_run(gg_worker *worker, void *arg, uint64_t i)
{
	extend_state *e = arg;
	uint32_t	more[2 * GG_MAX_DEGREE];
	const uint64_t *found = e->found + i * e->width;
	uint32_t	count = 0;

	for (; count < e->width && found[count] != UINT64_MAX; count++)
		more[count] = key_node(found[count]);
	settle(e, e->threads[worker->id].query, e->others[i], more, count);
}

/* ---- lists ---------------------------------------------------------------------- */

static gg_status
extend_lists(extend_state *e, gg_build_stats *stats)
{
	double		start = gg_now();
	gg_status	status = gg_rows_prepare(&e->rows, e->data, e->pool);

	e->threads = calloc((size_t) gg_pool_threads(e->pool), sizeof(*e->threads));
	e->others = gg_array(e->plan.others, sizeof(uint32_t));
	if (status.code == GG_OK && (!e->threads || !e->others))
		status = no_memory(e);
	if (status.code == GG_OK)
		status = gg_pool_each(e->pool, stored_run, e, e->n, 256);
	if (status.code == GG_OK)
		status = list_others(e);
	if (status.code == GG_OK && !e->plan.together && e->plan.others > 0)
		status = compare_others(e);
	if (status.code == GG_OK)
		status = make_order(e);
	if (status.code == GG_OK)
		status = search_others(e);
	stats->init_s += gg_now() - start;

	start = gg_now();
	if (status.code == GG_OK)
		status = make_offers(e);
	if (status.code == GG_OK)
		status = gg_pool_each(e->pool, base_run, e, e->n, 64);
	if (status.code == GG_OK)
		status = gg_pool_each(e->pool, others_run, e, e->plan.others, 64);
	stats->descent_s += gg_now() - start;
	return status;
}

gg_status
gg_cpu_extend_lists_run(gg_pool *pool, const gg_dataset *data, const gg_merge_input *input,
						const gg_build_params *params, uint32_t *ids, uint32_t **order,
						gg_build_stats *stats)
{
	extend_state e = {.pool = pool, .data = data, .input = input, .params = params,
		.n = data->n, .k = params->intermediate_graph_degree, .width = width_of(params),
	.ids = ids};
	gg_status	status;

	make_plan(data, input, &e.plan);
	gg_pool_phase(pool, GG_PHASE_KNN_INIT, e.plan.others);
	status = extend_lists(&e, stats);
	*order = status.code == GG_OK ? e.order : NULL;
	if (status.code != GG_OK)
		free(e.order);
	for (int t = 0; e.threads && t < gg_pool_threads(pool); t++)
	{
		gg_walk_free(e.threads[t].walk);
		free(e.threads[t].query);
	}
	free(e.threads);
	free(e.others);
	free(e.found);
	free(e.starts);
	free(e.offers);
	gg_cpu_index_close(e.index);
	free(e.graph.pivots);
	free(e.graph.pivot_adjacency);
	gg_rows_free(&e.rows);
	return status;
}
