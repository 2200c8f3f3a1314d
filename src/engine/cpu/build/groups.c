/*
 * groups.c
 *		k-NN lists of more rows than memory holds: group by group, each with rows near each other.
 *
 * Some random rows, the pivots, are cut into groups of pivots near each other.  A row belongs to
 * the two groups whose nearest pivots are nearest to it.  The rows of one group at a time are
 * copied into memory and get k-NN lists among themselves (knn_graph.c).  Then each row has two
 * lists, and the nearest of both are its list.  Two groups per row make one graph of all rows: rows
 * near a border between two groups meet on both sides.  The work is linear in rows.
 *
 * The lists lie in scratch memory, which the caller gives (gg_control): a mapped file, say.  They
 * are written and read in passes over one group.
 *
 * No group is larger than memory allows.  A row whose group is full belongs to the next one that
 * has room: many equal rows have to be somewhere.  With several threads, which rows these are
 * depends on a race.
 *
 * Rows are copied as tiles see them (tile.h), as float32.
 */
#include "groups.h"
#include "engine/rules/group_pivots.h"
#include "engine/rules/random.h"
#include "engine/cpu/common/tile.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct groups_state
{
	const gg_build_params *params;
	gg_pool    *pool;
	gg_rows		rows;
	gg_distance_fn distance;
	uint32_t	n;
	uint32_t	k;
	uint32_t	ngroups;
	uint32_t	room;			/* rows that a group may have */
	uint32_t	npivots;
	float	   *pivots;			/* npivots x rows.dim */
	uint32_t   *group;			/* of each pivot */
	uint32_t   *weight;			/* of each pivot */
	atomic_uint *size;			/* of each group */
	float	  **near;			/* a thread: ngroups distances, then a row */
	uint16_t   *groups_of;		/* n x 2, the nearer one first */
	uint64_t   *members_at;		/* ngroups + 1 */
	uint32_t   *members;		/* 2 x n rows by group, ascending */

	/* of the group in work */
	uint32_t	current;
	uint32_t	count;
	const uint32_t *current_members;
	float	   *copy;			/* count x rows.dim */
	uint32_t   *ids;			/* count x k, numbers within the group */
	float	   *distances;

	gg_list_room lists;			/* of all rows */
} groups_state;

static gg_status
no_memory(const groups_state *state)
{
	return gg_fail(GG_ENOMEM, "gg_cpu_groups", "out of memory for groups of %u rows, k = %u",
				   state->n, state->k);
}

/* ---- sizes ---------------------------------------------------------------------- */

/* A group as a data set of its own. */
static gg_dataset
group_data(const gg_dataset *data, uint32_t count, const float *copy)
{
	gg_dataset	group = {
		.rows = copy, .n = count, .dim = data->dim, .element = GG_ELEMENT_F32,
		.metric = data->metric == GG_METRIC_COSINE ? GG_METRIC_L2 : data->metric
	};

	return group;
}

static uint64_t
group_bytes(const gg_dataset *data, const gg_build_params *params, int threads, uint32_t count)
{
	gg_dataset	group = group_data(data, count, NULL);

	return (uint64_t) count * (sizeof(float) * group.dim +
							   (sizeof(uint32_t) + sizeof(float)) *
							   params->intermediate_graph_degree) +
		gg_cpu_knn_graph_bytes(&group, params, threads, true);
}

/* Bytes of what lives as long as there are groups. */
static uint64_t
fixed_bytes(const gg_dataset *data, int threads)
{
	uint64_t	dim = data->dim;
	uint64_t	bytes = (uint64_t) data->n *
		(2 * sizeof(uint16_t) + 2 * sizeof(uint32_t) + sizeof(uint32_t));

	if (data->metric == GG_METRIC_IP || data->metric == GG_METRIC_COSINE)
		bytes += sizeof(float) * (uint64_t) data->n;
	return bytes + sizeof(float) * (uint64_t) (threads + 1) * (2 * GG_MOST_GROUP_PIVOTS + dim) +
		sizeof(float) * GG_MOST_GROUP_PIVOTS * dim;
}

/* The most rows, up to all, of a group that memory holds; no less than gg_least_group_room(). */
static uint32_t
find_room(const gg_dataset *data, const gg_build_params *params, uint64_t memory, int threads)
{
	uint64_t	fixed = fixed_bytes(data, threads);
	uint32_t	low = gg_least_group_room(data->n),
				high = data->n;

	while (low < high)
	{
		uint32_t	middle = low + (high - low + 1) / 2;

		if (fixed + group_bytes(data, params, threads, middle) <= memory)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

bool
gg_cpu_groups_possible(const gg_dataset *data)
{
	return data->n >= 2 * GG_GROUP_LEAST_ROOM;
}

uint64_t
gg_cpu_groups_bytes(const gg_dataset *data, const gg_build_params *params, uint64_t memory,
					int threads)
{
	return fixed_bytes(data, threads) +
		group_bytes(data, params, threads, find_room(data, params, memory, threads));
}

/* ---- groups of pivots -------------------------------------------------------------- */

static const float *
pivot_at(const groups_state *state, uint32_t pivot)
{
	return state->pivots + (size_t) pivot * state->rows.dim;
}

static const float *
load_row(groups_state *state, gg_worker *worker, uint32_t row)
{
	float	   *out = state->near[worker->id] + 2 * GG_MOST_GROUP_PIVOTS;

	gg_rows_load(&state->rows, row, 0, state->rows.dim, out);
	return out;
}

/* Estimate from random rows how many rows are near each pivot. */
static void
weigh_run(gg_worker *worker, void *arg, uint64_t i)
{
	groups_state *state = arg;
	const float *row = load_row(state, worker,
								gg_random_below(state->params->seed, GG_MOST_GROUP_PIVOTS + i,
												state->n));
	uint32_t	best = 0;
	float		least = INFINITY;

	for (uint32_t p = 0; p < state->npivots; p++)
	{
		float		d = state->distance(pivot_at(state, p), row, state->rows.dim);

		if (d < least)
		{
			least = d;
			best = p;
		}
	}
	(void) __atomic_fetch_add(&state->weight[best], 1, __ATOMIC_RELAXED);
}

static gg_status
make_groups(groups_state *state)
{
	gg_group_pivots pivots = {
		.rows = state->pivots, .n = state->npivots, .dim = state->rows.dim,
		.distance = state->distance, .weights = state->weight
	};
	gg_status	status;

	for (uint32_t p = 0; p < state->npivots; p++)
		gg_rows_load(&state->rows, gg_random_below(state->params->seed, p, state->n), 0,
					 state->rows.dim, state->pivots + (size_t) p * state->rows.dim);
	status = gg_pool_each(state->pool, weigh_run, state,
						 (uint64_t) state->npivots * GG_GROUP_WEIGHT_ROWS, 16);
	return status.code == GG_OK ? gg_cut_groups(&pivots, state->ngroups, state->group) : status;
}

/* ---- rows to groups ------------------------------------------------------------------ */

/*
 * Take a place in the nearest group that has one, other than group `but`.  least: distance of each
 * group, infinity where it is full.  All groups but one have room for both places of all rows
 * (gg_count_groups()).
 */
static uint32_t
take_place(groups_state *state, float *least, uint32_t but)
{
	for (;;)
	{
		uint32_t	best = GG_NO_NODE;

		for (uint32_t g = 0; g < state->ngroups; g++)
			if (g != but && least[g] < (best == GG_NO_NODE ? INFINITY : least[best]))
				best = g;
		/* without a distance, or where all near ones are full: any */
		for (uint32_t g = 0; g < state->ngroups && best == GG_NO_NODE; g++)
			if (g != but &&
				atomic_load_explicit(&state->size[g], memory_order_relaxed) < state->room)
				best = g;
		if (best == GG_NO_NODE)
			continue;			/* other threads are between the two steps below */
		if (atomic_fetch_add_explicit(&state->size[best], 1, memory_order_relaxed) < state->room)
			return best;
		atomic_fetch_sub_explicit(&state->size[best], 1, memory_order_relaxed);
		least[best] = INFINITY;
	}
}

static void
assign_run(gg_worker *worker, void *arg, uint64_t i)
{
	groups_state *state = arg;
	const float *row = load_row(state, worker, (uint32_t) i);
	float	   *least = state->near[worker->id];

	for (uint32_t g = 0; g < state->ngroups; g++)
		least[g] = INFINITY;
	for (uint32_t p = 0; p < state->npivots; p++)
	{
		float		d = state->distance(pivot_at(state, p), row, state->rows.dim);

		if (d < least[state->group[p]])
			least[state->group[p]] = d;
	}
	state->groups_of[2 * i] = (uint16_t) take_place(state, least, GG_NO_NODE);
	state->groups_of[2 * i + 1] =
		(uint16_t) take_place(state, least, state->groups_of[2 * i]);
}

/* List rows by group as members, and by their first groups in order. */
static gg_status
list_members(groups_state *state, uint32_t *order)
{
	uint64_t   *next = malloc(sizeof(uint64_t) * 2 * ((size_t) state->ngroups + 1));
	uint64_t   *first = next + state->ngroups + 1;
	gg_worker  *caller = gg_pool_caller(state->pool);

	if (!next)
		return no_memory(state);
	memset(next, 0, sizeof(uint64_t) * 2 * ((size_t) state->ngroups + 1));
	for (uint64_t i = 0; i < 2 * (uint64_t) state->n; i++)
	{
		next[state->groups_of[i] + 1]++;
		if (i % 2 == 0)
			first[state->groups_of[i] + 1]++;
	}
	for (uint32_t g = 0; g < state->ngroups; g++)
	{
		next[g + 1] += next[g];
		first[g + 1] += first[g];
	}
	memcpy(state->members_at, next, sizeof(uint64_t) * ((size_t) state->ngroups + 1));
	for (uint32_t row = 0; row < state->n; row++)
	{
		const uint16_t *groups = state->groups_of + 2 * (size_t) row;

		if (row % 4096 == 0 && gg_worker_stopping(caller))
			break;
		state->members[next[groups[0]]++] = row;
		state->members[next[groups[1]]++] = row;
		order[first[groups[0]]++] = row;
	}
	free(next);
	return gg_pool_poll(state->pool);
}

/* ---- one group ------------------------------------------------------------------------ */

static void
copy_run(gg_worker *worker, void *arg, uint64_t i)
{
	groups_state *state = arg;
	uint32_t	dim = state->rows.dim;

	(void) worker;
	gg_rows_load(&state->rows, state->current_members[i], 0, dim, state->copy + i * dim);
}

/*
 * Merge a row's list of this group into its list of all, which is empty before the first.  Both are
 * in the order of (distance, id): members ascend, so their numbers are ordered as the rows are.  A
 * pair of rows has the same distance in every group, so an entry that both lists have comes twice
 * in a row.
 */
static void
unite_lists(groups_state *state, uint32_t i, bool first)
{
	uint32_t	k = state->k;
	uint32_t	row = state->current_members[i];
	uint32_t   *ids = state->lists.ids + (size_t) row * k;
	float	   *distances = state->lists.distances + (size_t) row * k;
	const uint32_t *other_ids = state->ids + (size_t) i * k;
	const float *other_distances = state->distances + (size_t) i * k;
	uint32_t	merged[GG_MAX_DEGREE];
	float		merged_distances[GG_MAX_DEGREE];
	uint32_t	n = 0,
				a = first ? k : 0,
				b = 0;

	while (n < k)
	{
		bool		have_a = a < k && ids[a] != GG_NO_NODE;
		bool		have_b = b < k && other_ids[b] != GG_NO_NODE;
		uint32_t	id = have_b ? state->current_members[other_ids[b]] : 0;

		if (!have_a && !have_b)
			break;
		if (have_a && (!have_b || distances[a] < other_distances[b] ||
					   (distances[a] == other_distances[b] && ids[a] <= id)))
		{
			merged[n] = ids[a];
			merged_distances[n] = distances[a++];
			if (have_b && id == merged[n])
				b++;
		}
		else
		{
			merged[n] = id;
			merged_distances[n] = other_distances[b++];
		}
		n++;
	}
	memcpy(ids, merged, sizeof(uint32_t) * n);
	memcpy(distances, merged_distances, sizeof(float) * n);
	for (; n < k; n++)
	{
		ids[n] = GG_NO_NODE;
		distances[n] = INFINITY;
	}
}

static void
unite_run(gg_worker *worker, void *arg, uint64_t i)
{
	groups_state *state = arg;
	const uint16_t *groups = state->groups_of + 2 * (size_t) state->current_members[i];

	(void) worker;
	unite_lists(state, (uint32_t) i,
				state->current == (groups[0] < groups[1] ? groups[0] : groups[1]));
}

static gg_status
do_group(groups_state *state, uint32_t g, gg_build_stats *stats)
{
	gg_dataset	data;
	gg_status	status;

	state->current = g;
	state->current_members = state->members + state->members_at[g];
	state->count = (uint32_t) (state->members_at[g + 1] - state->members_at[g]);
	if (state->count == 0)
		return gg_ok();
	state->copy = malloc(sizeof(float) * state->count * (size_t) state->rows.dim);
	state->ids = malloc(sizeof(uint32_t) * state->count * (size_t) state->k);
	state->distances = malloc(sizeof(float) * state->count * (size_t) state->k);
	if (!state->copy || !state->ids || !state->distances)
		status = no_memory(state);
	else
		status = gg_pool_each(state->pool, copy_run, state, state->count, 256);
	data = group_data(state->rows.data, state->count, state->copy);
	if (status.code == GG_OK)
		status = gg_cpu_knn_graph_run(state->pool, &data, state->params, state->ids,
									  state->distances, NULL, stats);
	if (status.code == GG_OK)
		status = gg_pool_each(state->pool, unite_run, state, state->count, 256);
	free(state->copy);
	free(state->ids);
	free(state->distances);
	return status;
}

/* ---- all ---------------------------------------------------------------------------------- */

static gg_status
take_memory(groups_state *state, uint32_t **order)
{
	size_t		n = state->n;
	int			threads = gg_pool_threads(state->pool);

	state->pivots = malloc(sizeof(float) * state->npivots * (size_t) state->rows.dim);
	state->group = calloc(state->npivots, sizeof(uint32_t));
	state->weight = calloc(state->npivots, sizeof(uint32_t));
	state->size = calloc(state->ngroups, sizeof(atomic_uint));
	state->near = calloc((size_t) threads, sizeof(float *));
	state->groups_of = malloc(sizeof(uint16_t) * 2 * n);
	state->members_at = malloc(sizeof(uint64_t) * ((size_t) state->ngroups + 1));
	state->members = malloc(sizeof(uint32_t) * 2 * n);
	*order = malloc(sizeof(uint32_t) * n);
	if (!state->pivots || !state->group || !state->weight || !state->size || !state->near ||
		!state->groups_of || !state->members_at || !state->members || !*order)
		return no_memory(state);
	for (int t = 0; t < threads; t++)
	{
		state->near[t] = malloc(sizeof(float) *
								(2 * GG_MOST_GROUP_PIVOTS + (size_t) state->rows.dim));
		if (!state->near[t])
			return no_memory(state);
	}
	return gg_ok();
}

static void
give_memory(groups_state *state)
{
	for (int t = 0; state->near && t < gg_pool_threads(state->pool); t++)
		free(state->near[t]);
	free(state->near);
	free(state->pivots);
	free(state->group);
	free(state->weight);
	free(state->size);
	free(state->groups_of);
	free(state->members_at);
	free(state->members);
	gg_rows_free(&state->rows);
}

gg_status
gg_cpu_groups_run(gg_pool *pool, const gg_dataset *data, const gg_build_params *params,
				  uint64_t memory, gg_list_room lists, uint32_t **order, gg_build_stats *stats)
{
	groups_state state = {.params = params, .pool = pool, .n = data->n,
						  .k = params->intermediate_graph_degree, .lists = lists};
	int			threads = gg_pool_threads(pool);
	double		start = gg_now();
	gg_status	status;

	*order = NULL;
	state.room = find_room(data, params, memory, threads);
	state.ngroups = gg_count_groups(state.n, state.room);
	state.npivots = gg_count_group_pivots(state.ngroups);
	gg_pool_phase(pool, GG_PHASE_KNN_INIT, 2 * (uint64_t) state.n);
	gg_pool_mute(pool, true);
	status = gg_rows_prepare(&state.rows, data, pool);
	state.distance = gg_distance_function(data->metric == GG_METRIC_L1 ? GG_METRIC_L1 :
										  GG_METRIC_L2, GG_ELEMENT_F32);
	if (status.code == GG_OK)
		status = take_memory(&state, order);
	if (status.code == GG_OK)
		status = make_groups(&state);
	if (status.code == GG_OK)
		status = gg_pool_each(pool, assign_run, &state, state.n, 64);
	if (status.code == GG_OK)
		status = list_members(&state, *order);
	stats->init_s += gg_now() - start;
	for (uint32_t g = 0; g < state.ngroups && status.code == GG_OK; g++)
	{
		status = do_group(&state, g, stats);
		gg_pool_mute(pool, false);
		gg_worker_progress(gg_pool_caller(pool), state.count);
		gg_pool_mute(pool, true);
	}
	gg_pool_mute(pool, false);
	give_memory(&state);
	if (status.code != GG_OK)
	{
		free(*order);
		*order = NULL;
	}
	return status;
}
