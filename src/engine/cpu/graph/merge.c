/*
 * merge.c
 *		Graphs merged as graphs: GGM.
 *
 * Wang, Zhao, Zeng, Yang: "Fast k-NN Graph Construction by GPU based NN-Descent", 2021, section 5
 * and algorithm 3.
 *
 * Contract.  The rows are of parts, each of which was a graph.  k is intermediate_graph_degree, d
 * the distance by which k-NN lists are made (gg_rows).
 *
 *	(a) The list of V starts with the first half of k of what is stored of V, and the rest is saved.
 *		Of other parts it takes the nearest few, and what is nearer than half of these (BOUNDED).
 *	(b) It gets as many random rows of other parts (GG_INIT_RANDOM, as in the paper), or the nearest
 *		rows of other parts in V's pivot cells (cells.c).  Instead of the latter, up to
 *		GG_BRUTE_ROWS rows are all compared with those of other parts, and (c) is left out.
 *	(c) GNND, as in knn_graph.c, from these lists, in which what is stored is old and the rest is
 *		new.  Rows of the same part are never compared, but those of part 0 are.
 *	(d) What was saved is merged in, distances are measured term by term, and the lists are sorted.
 *		A list can be shorter than k.
 *
 * Edges, pivots and reachability are then made as in a build.
 *
 * Where one part has most of the rows, searches find what is new in less time (extend.c).  Then
 * only the others are compared here, and where that takes too much memory all rows.
 *
 * The result depends on rows, parts, lists and parameters alone, whatever the threads (but for the
 * graph of more than GG_BRUTE_ROWS pivots, which is made as in a build).  For that a pair has one
 * distance: all tiles measure from one centre, or exactly where many rows are much nearer to their
 * neighbours than to it (TIGHT_SHARE).  Lists keep the nearest by (d, id) of all that they are
 * offered, and reverse samples come by (rank, id).
 *
 * Departures from the paper
 *	1. The cells of (b), and the bound of (a).
 *	2. A graph is its edges, chosen from k-NN lists that are not kept.  What that loses, and what
 *		each start takes, is in test/bench/RESULTS.md.
 */
#include "engine/rules/algorithms.h"
#include "knn.h"
#include "engine/rules/random.h"
#include "stages.h"

#include <math.h>
#include <string.h>

/*
 * Iterations end when fewer than this share of the places that other parts' rows can expect in
 * lists are new.
 */
#define DEFAULT_ITERATIONS			12u
#define DEFAULT_TERMINATION			0.03f
#define DEFAULT_RANDOM_ITERATIONS	30u
#define DEFAULT_RANDOM_TERMINATION	0.002f

/* The centre is the mean of this many rows at most. */
#define CENTRE_ROWS		4096u

/*
 * A row is tight where its farthest stored neighbour is nearer than TIGHT times the squared
 * distance to the centre: there tiles lose most digits (tile.c).  Where more than TIGHT_SHARE of
 * the rows are tight, distances are measured exactly.
 */
#define TIGHT			(1.0f / 128)
#define TIGHT_SHARE		0.001

/*
 * A list of BOUNDED rows of its own part takes no others that are farther than half of these, but
 * for NEAREST.  Edges that were chosen by rank, and reverse edges, lie farther than as many nearest
 * neighbours, and without a bound the free places fill with whatever is in the same cells.  With
 * nothing beyond the bound the graph loses the edges that lead from cluster to cluster.  Degree 32
 * of 64, 30,000 x 128, a graph of half of the rows that gets a tenth five times: seconds of the
 * last merge and recall@10 at itopk 16, 32 and 64:
 *
 *	built anew							1.34	0.9951	0.9981	0.9986
 *	bound at half, 0 beyond it			0.96	0.9936	0.9966	0.9969
 *					4					0.98	0.9961	0.9979	0.9981
 *					8					1.00	0.9978	0.9997	0.9998
 *	bound at three quarters, 0			0.98	0.9936	0.9966	0.9979
 *	bound at the farthest, 0			1.31	0.9972	0.9998	0.9999
 */
#define BOUNDED			8u
#define NEAREST			8u

typedef struct merge_state
{
	gg_knn		knn;
	const gg_merge_input *input;
	float	   *centre;			/* rows.dim, or NULL: L1 and products have none */
	uint32_t	sizes[UINT8_MAX + 1];	/* of the parts */
	uint32_t	parts_at[UINT8_MAX + 2];
	uint32_t   *by_part;		/* n rows by part; for random starts */
	atomic_uint_fast64_t tight; /* rows, see TIGHT */

	atomic_uint_fast64_t fresh; /* new entries of all lists, those left over last time included */
	atomic_uint_fast64_t left;	/* those that were not sampled */
	uint32_t	p;				/* gg_knn_samples() */
	uint32_t   *samples[2];		/* n x 2p: old, new */
	uint8_t    *own[2];			/* n: how many of a row's samples are from its list */
	uint8_t    *counts[2];		/* n: of all its samples */
	uint32_t	shares;			/* of the rows, for reverse samples */

	uint32_t   *ids;			/* n x k: the result */
} merge_state;

/* ---- (a) what is stored ------------------------------------------------------ */

/* Measure d of row and another, both loaded by the thread: 0 is its own. */
static float
distance_to(const gg_knn *state, int thread, uint32_t other)
{
	const gg_dataset *data = state->rows.data;
	uint32_t	dim = state->rows.dim;
	float	   *own = state->row[thread],
			   *copy = own + dim;
	const float *x = copy;

	if (data->element == GG_ELEMENT_F32 && !state->rows.scale)
		x = (const float *) data->rows + (size_t) other * dim;
	else
		gg_rows_load(&state->rows, other, 0, dim, copy);
	return gg_tile_distance(data->metric, own, x, dim);
}

/*
 * The entries of a stored list that count, up to half of k: those of V's own part, or the others.
 * In a row of part 0 all are others.
 */
static uint32_t
stored_half(const merge_state *merge, uint32_t row, bool own, uint32_t *out)
{
	const uint32_t *stored = merge->input->lists + (size_t) row * merge->input->length;
	uint8_t		part = merge->input->parts[row];
	uint32_t	length = gg_min_u32(merge->input->length, (merge->knn.k + 1) / 2),
				count = 0;

	for (uint32_t i = 0; i < length; i++)
	{
		bool		of_own;

		if (stored[i] == row || stored[i] == GG_NO_NODE || gg_has_id(stored, i, stored[i]))
			continue;
		of_own = part != 0 && merge->input->parts[stored[i]] == part;
		if (of_own == own)
			out[count++] = stored[i];
	}
	return count;
}

/*
 * What is stored of the row's own part becomes its list, sorted.  Such pairs are not compared
 * again.  But for NEAREST, free places are for what is nearer than the bound.
 */
static uint32_t
take_stored(merge_state *merge, uint32_t row, int thread)
{
	gg_knn	   *state = &merge->knn;
	uint32_t   *ids = state->lists.ids + (size_t) row * state->lists.stride;
	float	   *distances = state->lists.distances + (size_t) row * state->lists.stride;
	uint32_t	count = stored_half(merge, row, true, ids);

	gg_rows_load(&state->rows, row, 0, state->rows.dim, state->row[thread]);
	for (uint32_t i = 0; i < count; i++)
		distances[i] = distance_to(state, thread, ids[i]);
	gg_lists_sort(&state->lists, row);
	if (count >= BOUNDED)
		for (uint32_t i = count + NEAREST; i < state->k; i++)
			distances[i] = distances[(count - 1) / 2];
	gg_knn_refresh(state, row);
	return count;
}

/* Is the farthest of count neighbours much nearer than the centre? */
static bool
is_tight(const merge_state *merge, uint32_t row, uint32_t count, int thread)
{
	const gg_knn *state = &merge->knn;
	const float *distances = state->lists.distances + (size_t) row * state->lists.stride;

	return count > 0 && merge->centre != NULL &&
		distances[count - 1] < TIGHT * gg_tile_distance(GG_METRIC_L2, state->row[thread],
														merge->centre, state->rows.dim);
}

static void
stored_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	merge_state *merge = arg;
	uint64_t	tight = 0;

	for (uint64_t row = begin; row < end && !gg_worker_stopping(worker); row++)
	{
		uint32_t	count = take_stored(merge, (uint32_t) row, worker->id);

		tight += is_tight(merge, (uint32_t) row, count, worker->id);
	}
	atomic_fetch_add_explicit(&merge->tight, tight, memory_order_relaxed);
}

/* The mean of some rows, in their order. */
static gg_status
make_centre(merge_state *merge)
{
	gg_knn	   *state = &merge->knn;
	uint32_t	dim = state->rows.dim;
	uint32_t	count = gg_min_u32(state->n, CENTRE_ROWS);

	merge->centre = calloc(dim, sizeof(float));
	if (!merge->centre)
		return gg_knn_no_memory(state);
	for (uint32_t i = 0; i < count; i++)
	{
		uint32_t	row = (uint32_t) ((uint64_t) i * state->n / count);

		if (gg_pool_stopping(state->pool, i % 64 == 0 ? 0 : 1))
			return gg_pool_poll(state->pool);
		gg_rows_load(&state->rows, row, 0, dim, state->row[0]);
		for (uint32_t k = 0; k < dim; k++)
			merge->centre[k] += state->row[0][k] / (float) count;
	}
	/* rows that are not finite have no distance from any centre */
	for (uint32_t k = 0; k < dim; k++)
		if (!isfinite(merge->centre[k]))
			merge->centre[k] = 0;
	return gg_ok();
}

/* ---- (b) new entries --------------------------------------------------------- */

/* Row number i of those that are not of the part. */
static uint32_t
other_row(const merge_state *merge, uint8_t part, uint32_t i)
{
	if (part != 0 && i >= merge->parts_at[part])
		i += merge->sizes[part];
	return merge->by_part[i];
}

/* Append random rows of other parts that are not there yet; all of them where there are few. */
static uint32_t
draw_others(const merge_state *merge, uint32_t row, uint32_t *ids, uint32_t count)
{
	uint8_t		part = merge->input->parts[row];
	uint32_t	others = merge->knn.n - (part == 0 ? 0 : merge->sizes[part]),
				wanted = count + merge->knn.k / 2;
	bool		all = others <= merge->knn.k;
	uint32_t	tries = all ? others : 4 * wanted;

	for (uint32_t t = 0; t < tries && count < wanted; t++)
	{
		uint32_t	i = all ? t : gg_random_below(merge->knn.params->seed,
												  ((uint64_t) row << 20) + t, others);
		uint32_t	id = other_row(merge, part, i);

		if (id != row && !gg_has_id(ids, count, id))
			ids[count++] = id;
	}
	return count;
}

/*
 * What is stored of other parts, and random rows.  These may be met again in joins, where they must
 * have the same distance.
 */
static void
others_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	merge_state *merge = arg;
	gg_knn	   *state = &merge->knn;
	uint32_t	ids[1 + 2 * GG_MAX_DEGREE];

	for (uint64_t row = begin; row < end && !gg_worker_stopping(worker); row++)
	{
		uint32_t	count = stored_half(merge, (uint32_t) row, false, ids + 1);

		if (merge->by_part)
			count = draw_others(merge, (uint32_t) row, ids + 1, count);
		ids[0] = (uint32_t) row;
		if (count > 0)
		{
			gg_join		join = {
				.rows = &state->rows,
				.ids = ids,
				.m = count + 1,
				.left = 1,
				.right = 1,
				.centre = state->centre,
				.exact = state->exact,
				.ordered = true,
				.lists = &state->lists
			};

			gg_tile_join(state->memory[worker->id], &join, worker);
		}
		gg_worker_progress(worker, 1);
	}
}

static gg_status
sort_by_part(merge_state *merge)
{
	gg_knn	   *state = &merge->knn;
	uint32_t	next[UINT8_MAX + 1];

	merge->by_part = gg_array(state->n, sizeof(uint32_t));
	if (!merge->by_part)
		return gg_knn_no_memory(state);
	memcpy(next, merge->parts_at, sizeof(next));
	for (uint32_t row = 0; row < state->n; row++)
		merge->by_part[next[merge->input->parts[row]]++] = row;
	return gg_ok();
}

/* ---- (c) iterations ---------------------------------------------------------- */

/* Sort each list and take its samples. */
static void
sample_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	merge_state *merge = arg;
	gg_knn	   *state = &merge->knn;
	uint64_t	fresh = 0,
				left = 0;

	for (uint64_t i = begin; i < end && !gg_worker_stopping(worker); i++)
	{
		uint32_t	row = gg_knn_at(state, i);
		uint32_t	taken[2];
		uint32_t	over = gg_knn_sample(state, row, merge->p, merge->samples, taken);

		left += over;
		fresh += taken[1] + over;
		for (int kind = 0; kind < 2; kind++)
			merge->own[kind][row] = merge->counts[kind][row] = (uint8_t) taken[kind];
	}
	atomic_fetch_add_explicit(&merge->fresh, fresh, memory_order_relaxed);
	atomic_fetch_add_explicit(&merge->left, left, memory_order_relaxed);
}

/* The rows that sampled each row of a share, by (rank, id), as far as there is room. */
static void
reverse_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	merge_state *merge = arg;
	uint32_t	n = merge->knn.n;

	for (uint64_t share = begin; share < end; share++)
	{
		uint32_t	first = (uint32_t) (share * n / merge->shares),
					last = (uint32_t) ((share + 1) * n / merge->shares);

		for (uint32_t j = 0; j < 2 * merge->p; j++)
		{
			uint32_t   *samples = merge->samples[j % 2];
			uint8_t    *own = merge->own[j % 2],
					   *counts = merge->counts[j % 2];

			for (uint32_t row = 0; row < n; row++)
			{
				uint32_t	other;

				if (row % 65536 == 0 && gg_worker_stopping(worker))
					return;
				if (j / 2 >= own[row])
					continue;
				other = samples[(size_t) row * 2 * merge->p + j / 2];
				if (other >= first && other < last && counts[other] < 2 * merge->p)
					samples[(size_t) other * 2 * merge->p + counts[other]++] = row;
			}
		}
	}
}

static void
match_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	merge_state *merge = arg;
	gg_knn	   *state = &merge->knn;

	for (uint64_t i = begin; i < end && !gg_worker_stopping(worker); i++)
	{
		uint32_t	row = gg_knn_at(state, i);
		size_t		at = (size_t) row * 2 * merge->p;
		uint32_t	ids[4 * GG_MAX_SAMPLES];
		uint8_t		parts[4 * GG_MAX_SAMPLES],
					shared[4 * GG_MAX_SAMPLES];
		gg_join		join = {
			.rows = &state->rows,
			.ids = ids,
			.mutual = true,
			.parts = parts,
			.centre = state->centre,
			.exact = state->exact,
			.ordered = true,
			.lists = &state->lists
		};

		join.m = join.left = gg_join_add(ids, 0, merge->samples[1] + at, merge->counts[1][row]);
		if (join.left > 0)
		{
			join.m += gg_join_add(ids, join.m, merge->samples[0] + at, merge->counts[0][row]);
			for (uint32_t j = 0; j < join.m; j++)
				parts[j] = merge->input->parts[ids[j]];
			if (state->cells_of)
			{
				gg_knn_shared(state, worker->id, row, ids, join.m, shared);
				join.shared = shared;
			}
			gg_tile_join(state->memory[worker->id], &join, worker);
		}
		gg_worker_progress(worker, 1);
	}
}

/* Of all places in lists, the share that is not of the row's own part where parts are mixed. */
static double
other_share(const merge_state *merge)
{
	double		share = 1;

	for (int part = 1; part <= UINT8_MAX; part++)
	{
		double		x = (double) merge->sizes[part] / merge->knn.n;

		share -= x * x;
	}
	return share;
}

static gg_status
iterate(merge_state *merge, gg_build_stats *stats)
{
	gg_knn	   *state = &merge->knn;
	const gg_build_params *params = state->params;
	bool		random = params->init == GG_INIT_RANDOM;
	uint32_t	limit = params->max_iterations;
	double		termination = params->termination_threshold;
	uint64_t	left = 0;
	gg_status	status = gg_ok();

	if (limit == 0)
		limit = random ? DEFAULT_RANDOM_ITERATIONS : DEFAULT_ITERATIONS;
	if (!(termination > 0))
		termination = random ? DEFAULT_RANDOM_TERMINATION : DEFAULT_TERMINATION;
	termination *= other_share(merge) * state->n * state->k;
	gg_pool_phase(state->pool, GG_PHASE_KNN_DESCENT, (uint64_t) state->n * limit);
	for (uint32_t iteration = 0; iteration < limit && status.code == GG_OK; iteration++)
	{
		atomic_store(&merge->fresh, 0);
		atomic_store(&merge->left, 0);
		status = gg_pool_run(state->pool, sample_run, merge, state->n, 256);
		/* new entries of the iteration before, but those that it left over */
		if (status.code != GG_OK ||
			(iteration > 1 && (double) atomic_load(&merge->fresh) < (double) left + termination))
			break;
		left = atomic_load(&merge->left);
		status = gg_pool_run(state->pool, reverse_run, merge, merge->shares, 1);
		if (status.code == GG_OK)
			status = gg_pool_run(state->pool, match_run, merge, state->n,
								 gg_knn_chunk(state, 64));
		stats->iterations++;
	}
	return status;
}

static gg_status
descend(merge_state *merge, gg_build_stats *stats)
{
	gg_status	status = gg_ok();

	merge->p = gg_knn_samples(merge->knn.params);
	merge->shares = (uint32_t) gg_pool_threads(merge->knn.pool);
	for (int kind = 0; kind < 2; kind++)
	{
		merge->samples[kind] = gg_array((uint64_t) merge->knn.n * 2 * merge->p, sizeof(uint32_t));
		merge->own[kind] = gg_array(merge->knn.n, 1);
		merge->counts[kind] = gg_array(merge->knn.n, 1);
		if (!merge->samples[kind] || !merge->own[kind] || !merge->counts[kind])
			status = gg_knn_no_memory(&merge->knn);
	}
	if (status.code == GG_OK)
		status = iterate(merge, stats);
	for (int kind = 0; kind < 2; kind++)
	{
		free(merge->samples[kind]);
		free(merge->own[kind]);
		free(merge->counts[kind]);
	}
	return status;
}

/* ---- (d) the end ------------------------------------------------------------- */

/* Merge the saved entries of a list and what it has to the nearest k. */
static void
merge_saved(merge_state *merge, uint32_t row, int thread)
{
	gg_knn	   *state = &merge->knn;
	const uint32_t *stored = merge->input->lists + (size_t) row * merge->input->length;
	uint32_t   *ids = state->lists.ids + (size_t) row * state->lists.stride;
	float	   *distances = state->lists.distances + (size_t) row * state->lists.stride;
	uint32_t	count = 0;

	/* what is there is sorted, with the free places at the end */
	while (count < state->k && ids[count] != GG_NO_NODE)
		count++;
	for (uint32_t i = (state->k + 1) / 2; i < merge->input->length; i++)
	{
		uint32_t	id = stored[i];
		uint32_t	at;
		float		d;

		if (id == row || id == GG_NO_NODE || gg_has_id(ids, count, id))
			continue;
		d = distance_to(state, thread, id);
		if (count == state->k &&
			!(d < distances[count - 1] || (d == distances[count - 1] && id < ids[count - 1])))
			continue;
		at = count < state->k ? count++ : count - 1;
		for (; at > 0 && (d < distances[at - 1] || (d == distances[at - 1] && id < ids[at - 1]));
			 at--)
		{
			ids[at] = ids[at - 1];
			distances[at] = distances[at - 1];
		}
		ids[at] = id;
		distances[at] = d;
	}
}

/* Measure term by term what joins have measured: entries of other parts. */
static void
measure_others(merge_state *merge, uint32_t row, uint32_t count, int thread)
{
	gg_knn	   *state = &merge->knn;
	const uint32_t *ids = state->lists.ids + (size_t) row * state->lists.stride;
	float	   *distances = state->lists.distances + (size_t) row * state->lists.stride;
	uint8_t		part = merge->input->parts[row];

	gg_rows_load(&state->rows, row, 0, state->rows.dim, state->row[thread]);
	for (uint32_t i = 0; i < count; i++)
		if (part == 0 || merge->input->parts[ids[i]] != part)
			distances[i] = distance_to(state, thread, ids[i]);
}

static void
finish_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	merge_state *merge = arg;
	gg_knn	   *state = &merge->knn;
	uint32_t	k = state->k;

	for (uint64_t i = begin; i < end && !gg_worker_stopping(worker); i++)
	{
		uint32_t	row = gg_knn_at(state, i);
		uint32_t   *ids = state->lists.ids + (size_t) row * state->lists.stride;
		float	   *distances = state->lists.distances + (size_t) row * state->lists.stride;
		uint32_t	used = 0;

		/* free places may be anywhere in a list that was never sorted */
		for (uint32_t j = 0; j < k; j++)
			if (ids[j] != GG_NO_NODE)
			{
				ids[used] = GG_ENTRY_ID(ids[j]);
				distances[used++] = distances[j];
			}
		for (uint32_t j = used; j < k; j++)
		{
			ids[j] = GG_NO_NODE;
			distances[j] = INFINITY;
		}
		measure_others(merge, row, used, worker->id);
		gg_lists_sort(&state->lists, row);
		merge_saved(merge, row, worker->id);
		memmove(merge->ids + (size_t) row * k, ids, sizeof(uint32_t) * k);
	}
}

/* ---- lists ------------------------------------------------------------------- */

static gg_status
merge_lists(merge_state *merge, gg_build_stats *stats)
{
	gg_knn	   *state = &merge->knn;
	bool		random = state->params->init == GG_INIT_RANDOM;
	double		start = gg_now();
	gg_status	status = gg_ok();

	for (uint32_t row = 0; row < state->n; row++)
		merge->sizes[merge->input->parts[row]]++;
	for (int part = 0; part <= UINT8_MAX; part++)
		merge->parts_at[part + 1] = merge->parts_at[part] + merge->sizes[part];
	if (state->rows.data->metric == GG_METRIC_L2 || state->rows.data->metric == GG_METRIC_COSINE)
		status = make_centre(merge);
	if (status.code == GG_OK)
		status = gg_pool_run(state->pool, stored_run, merge, state->n, gg_knn_chunk(state, 256));
	if (status.code != GG_OK)
		return status;
	state->parts = merge->input->parts;
	state->centre = merge->centre;
	state->ordered = true;
	state->exact = state->rows.dim > GG_ONE_PIECE ||
		(double) atomic_load(&merge->tight) > TIGHT_SHARE * state->n;
	if (random)
		status = sort_by_part(merge);
	if (status.code == GG_OK)
		status = gg_pool_run(state->pool, others_run, merge, state->n, gg_knn_chunk(state, 256));
	if (status.code == GG_OK && !random)
		status = state->n <= GG_BRUTE_ROWS ? gg_knn_brute(state) : gg_knn_cells(state);
	if (status.code == GG_OK && state->n > GG_BRUTE_ROWS)
		status = gg_knn_longest(state);
	stats->init_s += gg_now() - start;
	start = gg_now();
	if (status.code == GG_OK && (random || state->n > GG_BRUTE_ROWS))
		status = descend(merge, stats);
	if (status.code == GG_OK)
		status = gg_pool_run(state->pool, finish_run, merge, state->n, gg_knn_chunk(state, 256));
	stats->descent_s += gg_now() - start;
	return status;
}

gg_status
gg_cpu_merge_lists_run(gg_pool *pool, const gg_dataset *data, const gg_merge_input *input,
					   const gg_build_params *params, uint32_t *ids, uint32_t **order,
					   gg_build_stats *stats)
{
	merge_state merge = {.knn = {.params = params, .pool = pool}, .input = input, .ids = ids};
	bool		in_place = params->intermediate_graph_degree ==
		GG_LIST_STRIDE(params->intermediate_graph_degree);
	gg_status	status;

	*order = NULL;
	if (data->n == 0)
		return gg_ok();
	gg_pool_phase(pool, GG_PHASE_KNN_INIT, data->n);
	status = gg_knn_open(&merge.knn, data, in_place ? ids : NULL, NULL);
	if (status.code == GG_OK)
		status = merge_lists(&merge, stats);
	if (status.code == GG_OK)
	{
		*order = merge.knn.order;
		merge.knn.order = NULL;
	}
	gg_knn_close(&merge.knn, ids, NULL);
	free(merge.centre);
	free(merge.by_part);
	return status;
}
