/*
 * knn_graph.c
 *		Approximate k-NN lists: GNND started from pivot cells.
 *
 * Wang, Zhao, Zeng, Yang: "Fast k-NN Graph Construction by GPU based NN-Descent", 2021, sections 3
 * and 4.
 *
 * Start.  A set of up to GG_BRUTE_ROWS rows is compared with itself completely.  Otherwise lists
 * start from pivot cells (cells.c), or with GG_INIT_RANDOM from k random rows.
 *
 * Descent, as in the paper.  The samples of a row are the p nearest new and nearest old entries of
 * its list, and the rows that sampled it, up to 2p of either age.  Around every row the new samples
 * are compared with each other and with the old ones, until few entries are made.
 *
 * Departures from the paper
 *	1. The start above; the paper starts from random lists (see shares of true neighbours below).
 *	2. No selective update.  The paper enters only a sample's nearest partner, to save locked
 *	   updates on a GPU.  Here vectors of distances are compared with the worst entries, and the few
 *	   pairs that pass are all entered.
 *	3. Distances at the end are measured again, term by term, and lists are sorted by them: tiles
 *	   compute |a|^2 + |b|^2 - 2ab, which orders near ties wrongly.
 *
 * With one thread, or where all rows are compared with all, the result depends on data, parameters
 * and seed alone.  Else the order of entries differs, and with it which of two equally distant rows
 * is kept.
 *
 * Ordered lists are the same whatever the threads, in a little more time: a merge makes them of the
 * rows that it adds.  A pair has one distance: all tiles measure from one centre, or exactly where
 * rows are longer than a tile's piece.  Lists keep the nearest by (distance, id) of all that they
 * are offered, reverse samples come by (rank, id), and iterations end by how many entries are new.
 */
#include "engine/rules/algorithms.h"
#include "knn.h"
#include "stages.h"

#include <math.h>
#include <string.h>

/*
 * Iterations stop when fewer than this share of all list places changed.  How many iterations that
 * takes depends on the data: 2 for 200,000 x 128 of intrinsic dimension 16, 3 for MNIST, 7 for
 * hashed TF-IDF vectors of 62,666 package descriptions, where stopping after 2 cost 4 points of
 * recall (0.939 for 0.976 at itopk 64).  Half the share adds an iteration and 0.001 to 0.002 of
 * recall there.  One iteration is never enough to tell: it tries only a sample of each list.  From
 * random lists the first changes say little, and the paper's smaller share is used.
 */
#define DEFAULT_ITERATIONS			12u
#define DEFAULT_TERMINATION			0.03f
/* of the first iteration: what GRNND starts from needs no second one with clusters (grnnd.c) */
#define GRNND_FIRST_TERMINATION		0.06f
#define DEFAULT_RANDOM_ITERATIONS	30u
#define DEFAULT_RANDOM_TERMINATION	0.002f

/* The centre of ordered lists is the mean of this many rows at most. */
#define CENTRE_ROWS		4096u

typedef struct descent
{
	gg_knn	   *knn;
	atomic_uint_fast64_t entered;	/* depends on threads, so ordered lists do not end by it */
	atomic_uint_fast64_t fresh; /* new entries of all lists, those left over last time included */
	atomic_uint_fast64_t left;	/* new entries that were not sampled */

	/* cross-matching; a row has 2p samples of a kind at most, and what exceeds that is dropped */
	uint32_t	p;
	uint32_t   *samples[2];		/* n x 2p: old, new */
	atomic_uint *counts[2];		/* n */
} descent;

/* ---- random start ----------------------------------------------------------- */

static void
random_run(gg_worker *worker, void *arg, uint64_t row)
{
	gg_knn	   *state = arg;

	gg_knn_fill(state, (uint32_t) row, state->params->seed);
	gg_knn_measure(state, (uint32_t) row, worker->id);
	gg_knn_refresh(state, (uint32_t) row);
	gg_worker_progress(worker, 1);
}

/* ---- descent ------------------------------------------------------------------ */

/* Sort each list and take its samples. */
static void
sample_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	descent    *d = arg;
	gg_knn	   *state = d->knn;
	uint64_t	fresh = 0,
				all_left = 0;

	for (uint64_t i = begin; i < end && !gg_worker_stopping(worker); i++)
	{
		uint32_t	row = gg_knn_at(state, i);
		uint32_t	taken[2];
		uint32_t	left = gg_knn_sample(state, row, d->p, d->samples, taken);

		all_left += left;
		fresh += taken[1] + left;
		atomic_store_explicit(&d->counts[0][row], taken[0], memory_order_relaxed);
		atomic_store_explicit(&d->counts[1][row], taken[1], memory_order_relaxed);
	}
	atomic_fetch_add_explicit(&d->fresh, fresh, memory_order_relaxed);
	atomic_fetch_add_explicit(&d->left, all_left, memory_order_relaxed);
}

/*
 * Make each row a sample of the rows that it sampled.  The low bits of a row's count say how many
 * samples are of its own list, the bits above how many are rows that sampled it.
 */
#define COUNT_OTHER		(1u << 8)
#define COUNT_OWN(c)	((c) & (COUNT_OTHER - 1))
#define COUNT_ALL(c)	(COUNT_OWN(c) + (c) / COUNT_OTHER)

static void
reverse_run(gg_worker *worker, void *arg, uint64_t i)
{
	descent    *d = arg;
	gg_knn	   *state = d->knn;
	uint32_t	row = gg_knn_at(state, i);

	(void) worker;
	for (int kind = 0; kind < 2; kind++)
	{
		uint32_t	own = COUNT_OWN(atomic_load_explicit(&d->counts[kind][row],
														 memory_order_relaxed));

		for (uint32_t j = 0; j < own; j++)
		{
			uint32_t	other = d->samples[kind][(size_t) row * 2 * d->p + j];
			atomic_uint *count = &d->counts[kind][other];
			uint32_t	seen = atomic_load_explicit(count, memory_order_relaxed);

			while (COUNT_ALL(seen) < 2 * d->p)
				if (atomic_compare_exchange_weak_explicit(count, &seen, seen + COUNT_OTHER,
														  memory_order_relaxed,
														  memory_order_relaxed))
				{
					d->samples[kind][(size_t) other * 2 * d->p + COUNT_ALL(seen)] = row;
					break;
				}
		}
	}
}

/* reverse_run() in a fixed order: a thread goes through all samples, for rows of its own share. */
static void
ordered_reverse_run(gg_worker *worker, void *arg, uint64_t share)
{
	descent    *d = arg;
	const uint32_t n = d->knn->n,
				p = d->p;
	const uint64_t shares = (uint64_t) gg_pool_threads(d->knn->pool);
	uint32_t	first = (uint32_t) (share * n / shares),
				last = (uint32_t) ((share + 1) * n / shares);

	for (uint32_t j = 0; j < 2 * p; j++)
	{
		uint32_t   *samples = d->samples[j % 2];
		atomic_uint *counts = d->counts[j % 2];

		for (uint32_t row = 0; row < n; row++)
		{
			uint32_t	own = COUNT_OWN(atomic_load_explicit(&counts[row],
															 memory_order_relaxed)),
						other,
						count;

			if (row % 65536 == 0 && gg_worker_stopping(worker))
				return;
			if (j / 2 >= own)
				continue;
			other = samples[(size_t) row * 2 * p + j / 2];
			if (other < first || other >= last)
				continue;
			count = atomic_load_explicit(&counts[other], memory_order_relaxed);
			if (COUNT_ALL(count) >= 2 * p)
				continue;
			samples[(size_t) other * 2 * p + COUNT_ALL(count)] = row;
			atomic_store_explicit(&counts[other], count + COUNT_OTHER, memory_order_relaxed);
		}
	}
}

static void
match_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	descent    *d = arg;
	gg_knn	   *state = d->knn;
	const gg_metric metric = state->rows.data->metric;
	float	   *centre = metric == GG_METRIC_L1 || metric == GG_METRIC_IP || state->ordered ? NULL :
		state->row[worker->id];
	uint64_t	entered = 0;

	for (uint64_t i = begin; i < end && !gg_worker_stopping(worker); i++)
	{
		uint32_t	row = gg_knn_at(state, i);
		uint32_t	ids[4 * GG_MAX_SAMPLES];
		uint8_t		shared[4 * GG_MAX_SAMPLES];
		uint32_t	m,
					fresh;
		size_t		at = (size_t) row * 2 * d->p;

		m = fresh = gg_join_add(ids, 0, d->samples[1] + at, COUNT_ALL(d->counts[1][row]));
		if (fresh > 0)
		{
			gg_join		join = {
				.rows = &state->rows,
				.ids = ids,
				.left = fresh,
				.mutual = true,
				.centre = state->ordered ? state->centre : centre,
				.exact = state->exact,
				.ordered = state->ordered,
				.lists = &state->lists
			};

			m += gg_join_add(ids, m, d->samples[0] + at, COUNT_ALL(d->counts[0][row]));
			join.m = m;
			if (state->cells_of)
			{
				gg_knn_shared(state, worker->id, row, ids, m, shared);
				join.shared = shared;
			}
			if (centre)
				gg_rows_load(&state->rows, row, 0, state->rows.dim, centre);
			entered += gg_tile_join(state->memory[worker->id], &join, worker);
		}
		gg_worker_progress(worker, 1);
	}
	atomic_fetch_add_explicit(&d->entered, entered, memory_order_relaxed);
}

static gg_status
iterate(descent *d, gg_build_stats *stats)
{
	gg_knn	   *state = d->knn;
	uint32_t	limit = state->params->max_iterations;
	float		termination = state->params->termination_threshold;
	bool		random = state->params->init == GG_INIT_RANDOM;
	bool		pools = gg_algorithm_of(state->params, state->rows.data->metric) ==
		GG_ALGORITHM_GRNND;
	float		first = pools && !random && !(termination > 0) ? GRNND_FIRST_TERMINATION : 0;
	const double places = (double) state->n * state->k;
	gg_status	status = gg_ok();

	if (limit == 0)
		limit = random ? DEFAULT_RANDOM_ITERATIONS : DEFAULT_ITERATIONS;
	if (!(termination > 0))
		termination = random ? DEFAULT_RANDOM_TERMINATION : DEFAULT_TERMINATION;
	gg_pool_phase(state->pool, GG_PHASE_KNN_DESCENT, (uint64_t) state->n * limit);
	for (uint32_t iteration = 0; iteration < limit; iteration++)
	{
		const uint64_t left = atomic_exchange(&d->left, 0);

		atomic_store(&d->entered, 0);
		atomic_store(&d->fresh, 0);
		status = gg_pool_run(state->pool, sample_run, d, state->n, 256);
		/* new entries that the iteration before made, without those that it left over */
		if (state->ordered && iteration > 1 &&
			(double) atomic_load(&d->fresh) < (double) left + termination * places)
			break;
		if (status.code == GG_OK)
			status = state->ordered ?
				gg_pool_each(state->pool, ordered_reverse_run, d,
							(uint64_t) gg_pool_threads(state->pool), 1) :
				gg_pool_each(state->pool, reverse_run, d, state->n, 1024);
		if (status.code == GG_OK)
			status = gg_pool_run(state->pool, match_run, d, state->n, gg_knn_chunk(state, 64));
		if (status.code != GG_OK)
			return status;
		stats->iterations++;
		stats->changed = (float) ((double) atomic_load(&d->entered) / places);
		if (!state->ordered && (double) atomic_load(&d->entered) <
			(double) (iteration == 0 ? first : termination) * places)
			break;
	}
	return status;
}

static gg_status
descend(gg_knn *state, gg_build_stats *stats)
{
	descent		d = {.knn = state,.p = gg_knn_samples(state->params)};
	gg_status	status = gg_ok();

	for (int kind = 0; kind < 2; kind++)
	{
		d.samples[kind] = gg_array((uint64_t) state->n * 2 * d.p, sizeof(uint32_t));
		d.counts[kind] = gg_array(state->n, sizeof(atomic_uint));
		if (!d.samples[kind] || !d.counts[kind])
			status = gg_knn_no_memory(state);
	}
	if (status.code == GG_OK)
		status = iterate(&d, stats);
	for (int kind = 0; kind < 2; kind++)
	{
		free(d.samples[kind]);
		free(d.counts[kind]);
	}
	return status;
}

/* ---- the end ------------------------------------------------------------------ */

typedef struct finish_state
{
	gg_knn	   *knn;
	uint32_t   *ids;			/* n x k */
	float	   *distances;		/* n x k, or NULL */
} finish_state;

static void
finish_run(gg_worker *worker, void *arg, uint64_t i)
{
	finish_state *finish = arg;
	gg_knn	   *state = finish->knn;
	uint32_t	k = state->k;
	uint32_t	row = gg_knn_at(state, i);
	uint32_t   *ids = state->lists.ids + (size_t) row * state->lists.stride;
	float	   *distances = state->lists.distances + (size_t) row * state->lists.stride;

	/* lists stay short in cells of few rows and where distances overflow */
	gg_knn_fill(state, row, ~state->params->seed);
	for (uint32_t j = 0; j < k && ids[j] != GG_NO_NODE; j++)
		ids[j] = GG_ENTRY_ID(ids[j]);
	gg_knn_measure(state, row, worker->id);
	gg_lists_sort(&state->lists, row);
	if (state->rows.data->metric == GG_METRIC_COSINE && finish->distances)
		for (uint32_t j = 0; j < k; j++)
			distances[j] *= 0.5f;
	if (ids != finish->ids + (size_t) row * k)
		memcpy(finish->ids + (size_t) row * k, ids, sizeof(uint32_t) * k);
	if (finish->distances && distances != finish->distances + (size_t) row * k)
		memcpy(finish->distances + (size_t) row * k, distances, sizeof(float) * k);
}

static gg_status
knn_check(const gg_dataset *data, const gg_build_params *params)
{
	uint32_t	k = params->intermediate_graph_degree;

	if (data->dim < 1 || data->dim > GG_MAX_DIM)
		return gg_fail(GG_EINVAL, "gg_cpu_knn_graph", "dimension %u is not in 1 .. %u", data->dim,
					   GG_MAX_DIM);
	if (data->n > GG_MAX_NODES)
		return gg_fail(GG_EINVAL, "gg_cpu_knn_graph", "%u rows are more than %u", data->n,
					   GG_MAX_NODES);
	if (k < 1 || k > GG_MAX_DEGREE)
		return gg_fail(GG_EINVAL, "gg_cpu_knn_graph", "list length %u is not in 1 .. %u", k,
					   GG_MAX_DEGREE);
	return gg_ok();
}

/*
 * The larger of cells (assigned rows, then cells and lists) and descent (samples and lists);
 * mirrors what those allocate.
 */
uint64_t
gg_cpu_knn_graph_bytes(const gg_dataset *data, const gg_build_params *params, int threads,
					   bool distances)
{
	gg_knn		state = {.params = params, .n = data->n, .k = params->intermediate_graph_degree};
	uint64_t	n = data->n;
	bool		in_place = state.k == GG_LIST_STRIDE(state.k);
	uint64_t	all = gg_knn_bytes(data, state.k, threads, in_place, in_place && distances);
	uint64_t	cells = 0,
				left = 0,
				descent;

	if (params->init == GG_INIT_PIVOT_CELLS && state.n <= GG_BRUTE_ROWS)
		return all;
	if (params->init != GG_INIT_RANDOM)
		gg_knn_cells_bytes(&state, data, threads, &cells, &left);
	descent = left + n * 2 * sizeof(uint32_t) * (2 * gg_knn_samples(params) + 1);
	return all + (cells > descent ? cells : descent);
}

/* Make what all tiles of ordered lists measure from: the mean of some rows, in their order. */
static gg_status
make_centre(gg_knn *state, float *centre)
{
	uint32_t	dim = state->rows.dim;
	uint32_t	count = gg_min_u32(state->n, CENTRE_ROWS);

	for (uint32_t i = 0; i < count; i++)
	{
		if (gg_pool_stopping(state->pool, i % 64 == 0 ? 0 : 1))
			return gg_pool_poll(state->pool);
		gg_rows_load(&state->rows, (uint32_t) ((uint64_t) i * state->n / count), 0, dim,
					 state->row[0]);
		for (uint32_t k = 0; k < dim; k++)
			centre[k] += state->row[0][k] / (float) count;
	}
	/* rows that are not finite have no distance from any centre */
	for (uint32_t k = 0; k < dim; k++)
		if (!isfinite(centre[k]))
			centre[k] = 0;
	state->centre = centre;
	return gg_ok();
}

/* Make the lists of an open state, and put them into finish. */
static gg_status
make_lists(gg_knn *state, finish_state *finish, gg_build_stats *stats)
{
	const gg_build_params *params = state->params;
	bool		random = params->init == GG_INIT_RANDOM && !state->ordered,
				brute = !random && state->n <= GG_BRUTE_ROWS;
	double		start = gg_now();
	gg_status	status;

	/* a brute start is exact: with ordered lists, too, the result does not depend on threads */
	state->ordered |= brute;
	status = random ?
		gg_pool_each(state->pool, random_run, state, state->n, gg_knn_chunk(state, 256)) :
		brute ? gg_knn_brute(state) : gg_knn_cells(state);
	stats->init_s += gg_now() - start;
	start = gg_now();
	if (status.code == GG_OK && !brute)
		status = gg_knn_longest(state);
	if (status.code == GG_OK && !brute)
		status = descend(state, stats);
	if (status.code == GG_OK)
		status = gg_pool_each(state->pool, finish_run, finish, state->n, gg_knn_chunk(state, 256));
	stats->descent_s += gg_now() - start;
	return status;
}

gg_status
gg_cpu_knn_graph_run(gg_pool *pool, const gg_dataset *data, const gg_build_params *params,
					 uint32_t *ids, float *distances, uint32_t **order, gg_build_stats *stats)
{
	gg_knn		state = {.params = params, .pool = pool};
	finish_state finish = {&state, ids, distances};
	/* lists that need no padding are worked on where they are to be returned */
	bool		in_place = params->intermediate_graph_degree ==
		GG_LIST_STRIDE(params->intermediate_graph_degree);
	gg_status	status = knn_check(data, params);

	if (order)
		*order = NULL;
	if (status.code != GG_OK || data->n == 0)
		return status;
	gg_pool_phase(pool, GG_PHASE_KNN_INIT, data->n);
	status = gg_knn_open(&state, data, in_place ? ids : NULL, in_place ? distances : NULL);
	if (status.code == GG_OK)
		status = make_lists(&state, &finish, stats);
	if (order && status.code == GG_OK)
	{
		*order = state.order;
		state.order = NULL;
	}
	gg_knn_close(&state, ids, distances);
	return status;
}

gg_status
gg_cpu_ordered_lists_run(gg_pool *pool, const gg_dataset *data, const gg_build_params *params,
						 uint32_t *ids)
{
	gg_knn		state = {.params = params, .pool = pool, .ordered = true};
	finish_state finish = {&state, ids, NULL};
	gg_build_stats unwanted = {0};
	bool		in_place = params->intermediate_graph_degree ==
		GG_LIST_STRIDE(params->intermediate_graph_degree);
	float	   *centre = calloc(data->dim, sizeof(float));
	gg_status	status = gg_knn_open(&state, data, in_place ? ids : NULL, NULL);

	state.exact = data->dim > GG_ONE_PIECE;
	if (status.code == GG_OK && !centre)
		status = gg_knn_no_memory(&state);
	if (status.code == GG_OK &&
		(data->metric == GG_METRIC_L2 || data->metric == GG_METRIC_COSINE))
		status = make_centre(&state, centre);
	if (status.code == GG_OK)
		status = make_lists(&state, &finish, &unwanted);
	gg_knn_close(&state, ids, NULL);
	free(centre);
	return status;
}

gg_status
gg_cpu_knn_graph(const gg_dataset *data, const gg_build_params *params, const gg_control *control,
				 uint32_t *ids, float *distances, gg_build_stats *stats)
{
	gg_build_stats unwanted;
	gg_pool    *pool;
	gg_status	status = gg_pool_create(&pool, control);

	if (!stats)
		stats = &unwanted;
	memset(stats, 0, sizeof(*stats));
	if (status.code == GG_OK)
		status = gg_cpu_knn_graph_run(pool, data, params, ids, distances, NULL, stats);
	gg_pool_free(pool);
	return status;
}
