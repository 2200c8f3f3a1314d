/*
 * grnnd.c
 *		Relative NN-descent in parallel: pools of neighbours that are pruned and passed on at once.
 *
 * Li, Li, Chang, Miyazaki: "GRNND: A GPU-Parallel Relative NN-Descent Algorithm for Efficient
 * Approximate Nearest Neighbor Graph Construction", 2025, section 3.
 *
 * Contract.  d is that of tsdg.c.  A pool is a set of nodes with their distances from the pool's
 * own; it keeps the R nearest, by (d, id), of all nodes that it is offered.  So the order of offers
 * does not matter.
 *
 *	(a) Start.  The pool of V is offered S distinct nodes other than V: random ones, or V's k-NN
 *		list of length S from pivot cells and GNND (knn_graph.c): one iteration where rows have
 *		clusters, and as many as GNND's rule has where they have not.
 *	(b) A round, T1 x T2 times.  The round before's pools are read, and new ones are filled.  For
 *		each node of V's pool a few pairs (X, Y) of the pool are drawn, by hash of seed, round, V
 *		and the pair's number; X is before Y by (d, id).  By the first of its pairs in which
 *		d(X, Y) < d(V, Y), Y leaves the pool, and the pool of X is offered it.  At the end V's new
 *		pool is offered what is left.
 *	(c) After each T2 rounds but the last, every node among the first ceil(rho x length) of V's
 *		pool, by (d, id), is offered V.
 *	(d) The pools are k-NN lists to rank-based reordering (optimize.c), which chooses the edges.
 *
 * With random pools, or with one thread, the result is a function of rows and parameters.  k-NN
 * lists from several threads differ in which of two equally distant rows they keep.
 *
 * Measured on 2 CPU cores, 100,000 x 128 in 200 clusters (LID 15.2), degree 32, 1,000 queries:
 * recall@10 less that of CAGRA's graph after as many distances as that takes at itopk 24, 32, 48
 * and 64, mean degree, and seconds of one processor (CAGRA 4.7):
 *
 *	the nearest of a pool, 2 x 1			-0.0032 -0.0022 -0.0009 -0.0005	24.9	5.3
 *	by (occlusions in the pool, d), 2 x 1	-0.0018 -0.0026 -0.0019 -0.0009	24.9	7.2
 *	the same, two pairs a node				-0.0002 -0.0007 +0.0002 +0.0001	21.1	7.4
 *	(d), 2 x 1								+0.0006 -0.0002 +0.0002 +0.0001	26.8	5.8
 *	(d), 1 x 1 (default)					+0.0002 -0.0003 -0.0001 +0.0000	28.4	4.2
 *	(d), 1 x 1, S = 48						+0.0001 -0.0002 +0.0000 +0.0001	31.5	5.4
 *	(d), 1 x 1, half a pair a node			+0.0007 -0.0000 +0.0001 +0.0000	30.1	3.9
 *	CAGRA from lists of 32					-0.0002 -0.0006 -0.0001 +0.0000	32.0	3.6
 *
 * Without clusters (LID 17.1), from lists of one iteration, of four, which end by GNND's rule, and
 * CAGRA's seconds of the same hour:
 *
 *	one										-0.0305 -0.0229 -0.0121 -0.0083	30.2	3.7 of 9.2
 *	four									-0.0086 -0.0058 -0.0030 -0.0012	30.4	6.7
 *
 * The first iteration changes 0.11 to 0.23 of the places there, and 0.03 with clusters, where a
 * second one gains nothing and takes a quarter of the build: GRNND_FIRST_TERMINATION.
 *
 * So what a graph of the pools lacked was the choice of its edges; what the rounds add to (d) is
 * little.  Tried for the pools alone: as many pairs for each farther node, whatever its place,
 * prunes near edges, too; reverse edges after the last round, S of 48 and 64, R = 96, three rounds:
 * no gain.
 *
 * Tried: to start from cells alone, without GNND.  At itopk 16, 24, 32 and 64, with clusters (LID
 * 14.2), -0.0025 -0.0016 -0.0006 -0.0004 in 2.1 s, where one iteration has -0.0018 -0.0010 -0.0004
 * -0.0001 in 2.3.  Without clusters -0.0633 -0.0488 -0.0339 -0.0128 in 2.2 s, and in two rounds
 * -0.0503 -0.0364 -0.0254 -0.0104 in 3.1, where four have -0.0052 -0.0063 -0.0017 -0.0011 in 4.5.
 *
 * Departures from the paper.  Its graph is the pools.  A pair leaves one node and not both at a
 * time, as in its algorithm 4.  It draws pairs, and does not say how many; nor does it say whether
 * who has left still takes others.  Here it does, for then pairs can be judged side by side.  Pools
 * keep the nearest of all offers; there a race decides.
 */
#include "engine/rules/algorithms.h"
#include "engine/rules/random.h"
#include "row_view.h"
#include "engine/cpu/graph/stages.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry
{
	float		distance;
	uint32_t	id;
} entry;

typedef struct grnnd_state
{
	gg_row_view view;
	uint32_t	n;
	uint64_t	seed;
	gg_grnnd	params;
	uint32_t	round;
	const uint32_t *start;		/* n x S: k-NN lists to start from, or NULL: random ones */
	entry	   *pools[2];		/* n x R: read, written; the first counts[] of each, by (d, id) */
	uint16_t   *counts[2];		/* n */
	unsigned char *locks;		/* n: of the pools that are written */
	uint32_t   *lists;			/* n x R */
} grnnd_state;

static inline bool
entry_before(entry a, entry b)
{
	return a.distance < b.distance || (a.distance == b.distance && a.id < b.id);
}

/* Offer a node to the pool of `to` that is written. */
static void
offer(grnnd_state *state, uint32_t to, entry candidate)
{
	uint32_t	capacity = state->params.capacity;
	entry	   *pool = state->pools[1] + (size_t) to * capacity;
	uint32_t	count,
				at;

	for (int spins = 1; __atomic_exchange_n(&state->locks[to], 1, __ATOMIC_ACQUIRE); spins++)
		if (spins % 256 == 0)
			sched_yield();		/* its holder may wait for this processor */
	count = at = state->counts[1][to];
	while (at > 0 && entry_before(candidate, pool[at - 1]))
		at--;
	/* a node has one distance, so an equal entry can stand only here */
	if (at < capacity && !(at > 0 && pool[at - 1].id == candidate.id))
	{
		if (count < capacity)
			state->counts[1][to] = (uint16_t) ++count;
		memmove(pool + at + 1, pool + at, sizeof(entry) * (count - 1 - at));
		pool[at] = candidate;
	}
	__atomic_store_n(&state->locks[to], 0, __ATOMIC_RELEASE);
}

/* What was written is read from now on, and nothing is written yet. */
static void
swap_pools(grnnd_state *state)
{
	entry	   *pool = state->pools[0];
	uint16_t   *counts = state->counts[0];

	state->pools[0] = state->pools[1];
	state->counts[0] = state->counts[1];
	state->pools[1] = pool;
	state->counts[1] = counts;
	memset(counts, 0, sizeof(*counts) * state->n);
}

/* Draw distinct nodes for node's pool to start with, S or all others; returns how many. */
static uint32_t
draw(const grnnd_state *state, uint32_t node, uint32_t *ids)
{
	uint32_t	wanted = state->params.start < state->n - 1 ? state->params.start : state->n - 1;
	uint64_t	counter = (uint64_t) node << 20;
	uint32_t	count = 0;

	while (count < wanted)
	{
		/* counting on from the node where few are free to take */
		uint32_t	id = wanted <= state->n / 2 ?
			gg_random_below(state->seed, counter++, state->n) : (node + 1 + count) % state->n;

		if (id != node && !gg_has_id(ids, count, id))
			ids[count++] = id;
	}
	return count;
}

/* (a) */
static void
start_run(gg_worker *worker, void *arg, uint64_t node)
{
	grnnd_state *state = arg;
	const float *own = gg_row_view_at(&state->view, worker->id, 0, (uint32_t) node);
	uint32_t	drawn[GG_MAX_DEGREE];
	const uint32_t *ids = drawn;
	uint32_t	count = 0;

	if (state->start)
	{
		ids = state->start + node * state->params.start;
		while (count < state->params.start && ids[count] != GG_NO_NODE)
			count++;
	}
	else
		count = draw(state, (uint32_t) node, drawn);
	for (uint32_t i = 0; i < count; i++)
	{
		const float *other = gg_row_view_at(&state->view, worker->id, 1, ids[i]);
		entry		candidate = {gg_row_view_distance(&state->view, own, other), ids[i]};

		offer(state, (uint32_t) node, candidate);
	}
	gg_worker_progress(worker, 1);
}

/* (b) */
static void
round_run(gg_worker *worker, void *arg, uint64_t node)
{
	grnnd_state *state = arg;
	bool		gone[GG_MAX_DEGREE];
	const entry *pool = state->pools[0] + node * state->params.capacity;
	uint64_t	seed = gg_grnnd_seed(state->seed, state->round, (uint32_t) node);
	uint32_t	count = state->counts[0][node];
	uint32_t	pairs = count > 1 ? state->params.pairs * count : 0;

	memset(gone, 0, sizeof(bool) * count);
	for (uint32_t pair = 0; pair < pairs; pair++)
	{
		uint32_t	near,
					far;
		float		d;

		gg_grnnd_pair(seed, pair, count, &near, &far);
		if (gone[far])
			continue;
		d = gg_row_view_distance(&state->view,
								 gg_row_view_at(&state->view, worker->id, 0, pool[near].id),
								 gg_row_view_at(&state->view, worker->id, 1, pool[far].id));
		if (d < pool[far].distance)
		{
			entry		candidate = {d, pool[far].id};

			offer(state, pool[near].id, candidate);
			gone[far] = true;
		}
	}
	for (uint32_t i = 0; i < count; i++)
		if (!gone[i])
			offer(state, (uint32_t) node, pool[i]);
	gg_worker_progress(worker, 1);
}

/* (c), into the pools that are written, to which those that are read were copied */
static void
reverse_run(gg_worker *worker, void *arg, uint64_t node)
{
	grnnd_state *state = arg;
	const entry *pool = state->pools[0] + node * state->params.capacity;
	float		share = state->params.rho * (float) state->counts[0][node];

	(void) worker;
	for (uint32_t i = 0; (float) i < share; i++)
	{
		entry		candidate = {pool[i].distance, (uint32_t) node};

		offer(state, pool[i].id, candidate);
	}
}

static void
copy_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	grnnd_state *state = arg;
	size_t		capacity = state->params.capacity;

	(void) worker;
	memcpy(state->pools[1] + begin * capacity, state->pools[0] + begin * capacity,
		   sizeof(entry) * capacity * (end - begin));
	memcpy(state->counts[1] + begin, state->counts[0] + begin, sizeof(uint16_t) * (end - begin));
}

/* Make the list of a node's pool, from which (d) chooses. */
static void
list_run(gg_worker *worker, void *arg, uint64_t node)
{
	grnnd_state *state = arg;

	(void) worker;
	const entry *pool = state->pools[0] + node * state->params.capacity;
	uint32_t   *list = state->lists + node * state->params.capacity;

	for (uint32_t i = 0; i < state->params.capacity; i++)
		list[i] = i < state->counts[0][node] ? pool[i].id : GG_NO_NODE;
}

/* Small pieces where rows are long. */
static uint64_t
chunk_nodes(const grnnd_state *state)
{
	uint32_t	nodes = 32 * 128 / state->view.rows.dim;

	return nodes > 32 ? 32 : nodes > 0 ? nodes : 1;
}

/* (b) and (c) */
static gg_status
descend(grnnd_state *state, gg_pool *pool)
{
	const gg_grnnd *params = &state->params;
	gg_status	status = gg_ok();

	for (uint32_t outer = 0; outer < params->outer && status.code == GG_OK; outer++)
	{
		if (outer > 0)
		{
			status = gg_pool_run(pool, copy_run, state, state->n, 4096);
			if (status.code == GG_OK)
				status = gg_pool_each(pool, reverse_run, state, state->n, 256);
			swap_pools(state);
		}
		for (uint32_t inner = 0; inner < params->inner && status.code == GG_OK; inner++)
		{
			state->round++;
			status = gg_pool_each(pool, round_run, state, state->n, chunk_nodes(state));
			swap_pools(state);
		}
	}
	return status;
}

/* Make the lists to start from; ids: n x S. */
static gg_status
cells_start(gg_pool *pool, const gg_dataset *data, const gg_build_params *params, uint32_t length,
			uint32_t *ids, gg_build_stats *stats)
{
	gg_build_params lists = *params;

	lists.intermediate_graph_degree = length;
	return gg_cpu_knn_graph_run(pool, data, &lists, ids, NULL, NULL, stats);
}

uint64_t
gg_cpu_grnnd_bytes(const gg_dataset *data, const gg_build_params *params, int threads)
{
	gg_grnnd	grnnd = gg_grnnd_params(params);
	uint64_t	n = data->n;
	uint64_t	first = 0,
				second = n * (2 * (sizeof(entry) * grnnd.capacity + sizeof(uint16_t)) + 1) +
		gg_row_view_bytes(data, 2, threads);

	if (params->init != GG_INIT_RANDOM)
	{
		gg_build_params lists = *params;

		lists.intermediate_graph_degree = grnnd.start;
		first = n * sizeof(uint32_t) * grnnd.start;
		second += first;
		first += gg_cpu_knn_graph_bytes(data, &lists, threads, false);
	}
	return first > second ? first : second;
}

static gg_status
make_pools(grnnd_state *state)
{
	size_t		capacity = state->params.capacity;

	for (int i = 0; i < 2; i++)
	{
		state->pools[i] = malloc(sizeof(entry) * capacity * state->n);
		state->counts[i] = calloc(state->n, sizeof(uint16_t));
	}
	state->locks = calloc(state->n, 1);
	if (!state->pools[0] || !state->pools[1] || !state->counts[0] || !state->counts[1] ||
		!state->locks)
		return gg_fail(GG_ENOMEM, "gg_cpu_grnnd", "out of memory for pools of %u nodes, %zu each",
					   state->n, capacity);
	return gg_ok();
}

gg_status
gg_cpu_grnnd_run(gg_pool *pool, const gg_dataset *data, const gg_build_params *params,
				 uint32_t *lists, gg_build_stats *stats)
{
	grnnd_state state = {.n = data->n, .seed = params->seed, .params = gg_grnnd_params(params),
		.lists = lists};
	uint32_t   *starts = NULL;
	double		start;
	gg_status	status = gg_ok();

	if (data->n == 0)
		return status;
	if (params->init != GG_INIT_RANDOM)
	{
		starts = malloc(sizeof(uint32_t) * data->n * state.params.start);
		status = starts ? cells_start(pool, data, params, state.params.start, starts, stats) :
			gg_fail(GG_ENOMEM, "gg_cpu_grnnd", "out of memory for the lists of %u nodes", data->n);
	}
	start = gg_now();
	gg_pool_phase(pool, GG_PHASE_KNN_DESCENT,
				  (uint64_t) data->n * (1 + state.params.outer * state.params.inner));
	if (status.code == GG_OK)
		status = gg_row_view_create(&state.view, data, 2, pool);
	if (status.code == GG_OK)
		status = make_pools(&state);
	state.start = starts;
	if (status.code == GG_OK)
		status = gg_pool_each(pool, start_run, &state, state.n, chunk_nodes(&state));
	if (status.code == GG_OK)
	{
		swap_pools(&state);
		status = descend(&state, pool);
	}
	if (status.code == GG_OK)
		status = gg_pool_each(pool, list_run, &state, state.n, 4096);
	stats->descent_s += gg_now() - start;

	for (int i = 0; i < 2; i++)
	{
		free(state.pools[i]);
		free(state.counts[i]);
	}
	free(state.locks);
	free(starts);
	gg_row_view_free(&state.view);
	return status;
}
