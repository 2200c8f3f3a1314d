/*
 * knn.c
 *		k-NN lists under way: their memory, joins of blocks, and what is done to one list.
 */
#include "knn.h"
#include "engine/keys.h"
#include "engine/rules/algorithms.h"
#include "engine/rules/random.h"

#include <math.h>
#include <string.h>

gg_status
gg_knn_no_memory(const gg_knn *state)
{
	return gg_fail(GG_ENOMEM, "gg_cpu_knn_graph",
				   "out of memory for the k-NN graph of %u rows, k = %u", state->n, state->k);
}

gg_status
gg_knn_open(gg_knn *state, const gg_dataset *data, uint32_t *ids, float *distances)
{
	int			threads = gg_pool_threads(state->pool);
	gg_status	status;

	state->n = data->n;
	state->k = state->params->intermediate_graph_degree;
	status = gg_rows_prepare(&state->rows, data, state->pool);
	if (status.code != GG_OK)
		return status;
	state->memory = calloc((size_t) threads, sizeof(*state->memory));
	state->row = calloc((size_t) threads, sizeof(*state->row));
	if (!state->memory || !state->row)
		status = gg_knn_no_memory(state);
	for (int t = 0; t < threads && status.code == GG_OK; t++)
	{
		status = gg_tile_memory_create(&state->memory[t], state->rows.dim);
		state->row[t] = malloc(sizeof(float) * 2 * (size_t) state->rows.dim);
		if (!state->row[t])
			status = gg_knn_no_memory(state);
	}
	if (status.code == GG_OK)
		status = gg_lists_create(&state->lists, state->n, state->k, threads > 1, ids, distances,
								 state->pool);
	return status;
}

void
gg_knn_close(gg_knn *state, const uint32_t *ids, const float *distances)
{
	int			threads = gg_pool_threads(state->pool);

	gg_lists_free(&state->lists, ids, distances);
	for (int t = 0; t < threads; t++)
	{
		if (state->memory)
			gg_tile_memory_free(state->memory[t]);
		if (state->row)
			free(state->row[t]);
		if (state->cell_bits)
			free(state->cell_bits[t]);
	}
	free(state->memory);
	free(state->row);
	free(state->cell_bits);
	free(state->cells_of);
	free(state->order);
	gg_rows_free(&state->rows);
}

uint64_t
gg_knn_bytes(const gg_dataset *data, uint32_t k, int threads, bool ids, bool distances)
{
	uint64_t	n = data->n;
	uint64_t	stride = GG_LIST_STRIDE(k);
	uint32_t	dim = data->dim;
	uint64_t	bytes = (uint64_t) threads * (gg_tile_memory_bytes(dim) + sizeof(float) * 2 * dim);

	bytes += n * (sizeof(float) + 1);	/* worst, locks */
	if (!ids)
		bytes += n * stride * sizeof(uint32_t);
	if (!distances)
		bytes += n * stride * sizeof(float);
	if (data->metric == GG_METRIC_IP || data->metric == GG_METRIC_COSINE)
		bytes += n * sizeof(float);
	return bytes;
}

uint32_t
gg_knn_sample(gg_knn *state, uint32_t row, uint32_t p, uint32_t *const *samples, uint32_t *taken)
{
	uint32_t   *ids = state->lists.ids + (size_t) row * state->lists.stride;
	uint32_t	left = 0;

	taken[0] = taken[1] = 0;
	gg_lists_sort(&state->lists, row);
	for (uint32_t j = 0; j < state->k && ids[j] != GG_NO_NODE; j++)
	{
		int			is_new = (ids[j] & GG_ENTRY_NEW) != 0;

		if (taken[is_new] == p)
		{
			left += (uint32_t) is_new;
			continue;
		}
		samples[is_new][(size_t) row * 2 * p + taken[is_new]++] = GG_ENTRY_ID(ids[j]);
		ids[j] = GG_ENTRY_ID(ids[j]);
	}
	return left;
}

uint64_t
gg_knn_chunk(const gg_knn *state, uint64_t at_128)
{
	uint64_t	rows = at_128 * 128 / state->rows.dim;

	return rows > at_128 ? at_128 : rows > 1 ? rows : 1;
}

void
gg_triangle_at(uint64_t i, uint32_t blocks, uint32_t *a, uint32_t *b)
{
	uint32_t	row = 0;

	while (i >= blocks - row)
	{
		i -= blocks - row;
		row++;
	}
	*a = row;
	*b = row + (uint32_t) i;
}

uint64_t
gg_knn_join(gg_knn *state, gg_worker *worker, const gg_blocks *blocks, uint32_t a, uint32_t b,
			const float *centre, bool exact)
{
	const uint32_t *ids = blocks->ids;
	uint32_t	a_first = a * blocks->rows,
				b_first = b * blocks->rows;
	uint32_t	a_count = gg_min_u32(blocks->count - a_first, blocks->rows),
				b_count = a == b ? 0 : gg_min_u32(blocks->count - b_first, blocks->rows);
	uint32_t	pair[GG_TILE_ROWS];
	gg_join		join = {
		.rows = &state->rows,
		.ids = pair,
		.m = a_count + b_count,
		.left = a_count,
		.right = a == b ? 0 : a_count,
		.mutual = true,
		.known = !exact,
		.centre = centre,
		.exact = exact,
		.ordered = state->ordered,
		.lists = &state->lists
	};

	for (uint32_t i = 0; i < a_count; i++)
		pair[i] = ids ? ids[a_first + i] : a_first + i;
	for (uint32_t i = 0; i < b_count; i++)
		pair[a_count + i] = ids ? ids[b_first + i] : b_first + i;
	return gg_tile_join(state->memory[worker->id], &join, worker);
}

/* Small blocks, so that even two thousand rows are work for several threads. */
#define BRUTE_BLOCK		256u

static void
brute_run(gg_worker *worker, void *arg, uint64_t i)
{
	gg_knn	   *state = arg;
	gg_blocks	all = {.count = state->n, .rows = BRUTE_BLOCK};
	uint32_t	blocks = (state->n + BRUTE_BLOCK - 1) / BRUTE_BLOCK;
	uint32_t	a,
				b;

	gg_triangle_at(i, blocks, &a, &b);
	gg_knn_join(state, worker, &all, a, b, NULL, true);
	if (a == b)
		gg_worker_progress(worker, gg_min_u32(state->n - a * BRUTE_BLOCK, BRUTE_BLOCK));
}

gg_status
gg_knn_brute(gg_knn *state)
{
	uint64_t	blocks = (state->n + BRUTE_BLOCK - 1) / BRUTE_BLOCK;

	return gg_pool_each(state->pool, brute_run, state, blocks * (blocks + 1) / 2, 1);
}

typedef struct longest_rows
{
	gg_knn	   *knn;
	uint64_t   *heaps;			/* of each thread: its longest rows, as keys */
	uint32_t   *counts;			/* of each thread */
	uint32_t	ids[GG_LONGEST_ROWS];
	uint32_t	count;
} longest_rows;

static void
lengths_run(gg_worker *worker, void *arg, uint64_t i)
{
	longest_rows *longest = arg;
	const gg_rows *rows = &longest->knn->rows;
	float	   *row = longest->knn->row[worker->id];
	uint64_t   *heap = longest->heaps + (size_t) worker->id * GG_LONGEST_ROWS;
	uint32_t   *count = &longest->counts[worker->id];

	gg_rows_load(rows, (uint32_t) i, 0, rows->dim, row);
	*count = heap_offer(heap, *count, GG_LONGEST_ROWS,
						key_of(gg_tile_distance(GG_METRIC_IP, row, row, rows->dim),
							   (uint32_t) i));
}

/* Choose the longest rows, which have the least keys, of all threads' heaps. */
static void
choose_longest(longest_rows *longest, int threads)
{
	uint64_t	heap[GG_LONGEST_ROWS];

	for (int t = 0; t < threads; t++)
		for (uint32_t i = 0; i < longest->counts[t]; i++)
			longest->count = heap_offer(heap, longest->count, GG_LONGEST_ROWS,
										longest->heaps[(size_t) t * GG_LONGEST_ROWS + i]);
	for (uint32_t i = 0; i < longest->count; i++)
		longest->ids[i] = key_node(heap[i]);
}

static void
longest_run(gg_worker *worker, void *arg, uint64_t i)
{
	const longest_rows *longest = arg;
	gg_knn	   *state = longest->knn;
	const uint32_t rows = GG_TILE_ROWS - GG_LONGEST_ROWS;
	uint32_t	ids[GG_TILE_ROWS];
	const uint64_t last = (i + 1) * rows < state->n ? (i + 1) * rows : state->n;
	gg_join		join = {
		.rows = &state->rows,
		.ids = ids,
		.mutual = true,
		.known = true,
		.ordered = state->ordered,
		.lists = &state->lists
	};

	for (uint64_t row = i * rows; row < last; row++)
	{
		uint32_t	is_long = 0;

		for (uint32_t l = 0; l < longest->count; l++)
			is_long |= (uint32_t) (longest->ids[l] == row);
		if (!is_long)
			ids[join.left++] = (uint32_t) row;
	}
	join.m = join.left + longest->count;
	memcpy(ids + join.left, longest->ids, sizeof(uint32_t) * longest->count);
	/* in the first piece the longest rows are compared with each other, too */
	join.right = i == 0 ? 0 : join.left;
	if (i == 0)
		join.left = join.m;
	gg_tile_join(state->memory[worker->id], &join, worker);
}

gg_status
gg_knn_longest(gg_knn *state)
{
	const int	threads = gg_pool_threads(state->pool);
	const uint32_t rows = GG_TILE_ROWS - GG_LONGEST_ROWS;
	longest_rows longest = {.knn = state};
	gg_status	status;

	if (state->rows.data->metric != GG_METRIC_IP)
		return gg_ok();
	longest.heaps = gg_array((uint64_t) threads * GG_LONGEST_ROWS, sizeof(uint64_t));
	longest.counts = calloc((size_t) threads, sizeof(uint32_t));
	status = longest.heaps && longest.counts ?
		gg_pool_each(state->pool, lengths_run, &longest, state->n, gg_knn_chunk(state, 1024)) :
		gg_knn_no_memory(state);
	if (status.code == GG_OK)
	{
		choose_longest(&longest, threads);
		status = gg_pool_each(state->pool, longest_run, &longest, (state->n + rows - 1) / rows, 1);
	}
	free(longest.heaps);
	free(longest.counts);
	return status;
}

/* ---- one list --------------------------------------------------------------- */

void
gg_knn_fill(gg_knn *state, uint32_t row, uint64_t seed)
{
	uint32_t   *ids = state->lists.ids + (size_t) row * state->lists.stride;
	float	   *distances = state->lists.distances + (size_t) row * state->lists.stride;
	uint32_t	have = gg_min_u32(state->k, state->n - 1);
	uint32_t	used = 0;
	uint64_t	counter = (uint64_t) row << 20;
	uint32_t	step = 0;

	/* the free slots may be anywhere: bring them to the end */
	for (uint32_t i = 0; i < state->k; i++)
		if (ids[i] != GG_NO_NODE)
		{
			uint32_t	id = ids[i];
			float		d = distances[i];

			ids[i] = GG_NO_NODE;
			distances[i] = INFINITY;
			ids[used] = id;
			distances[used++] = d;
		}
	while (used < have)
	{
		uint32_t	id;
		bool		known = false;

		/* draw at random while most rows are free; where few are free, count on from the row */
		if (have <= state->n / 2)
			id = gg_random_below(seed, counter++, state->n);
		else
			id = (uint32_t) (((uint64_t) row + 1 + step++) % state->n);
		for (uint32_t i = 0; i < used && !known; i++)
			known = GG_ENTRY_ID(ids[i]) == id;
		if (id == row || known)
			continue;
		ids[used] = id | GG_ENTRY_NEW;
		distances[used++] = INFINITY;
	}
}

void
gg_knn_measure(gg_knn *state, uint32_t row, int thread)
{
	const gg_dataset *data = state->rows.data;
	bool		as_is = data->element == GG_ELEMENT_F32 && !state->rows.scale;
	uint32_t	dim = state->rows.dim;
	uint32_t   *ids = state->lists.ids + (size_t) row * state->lists.stride;
	float	   *distances = state->lists.distances + (size_t) row * state->lists.stride;
	float	   *own = state->row[thread],
			   *other = own + dim;

	gg_rows_load(&state->rows, row, 0, dim, own);
	for (uint32_t i = 0; i < state->k && ids[i] != GG_NO_NODE; i++)
	{
		const float *x = other;

		if (as_is)
			x = (const float *) data->rows + (size_t) GG_ENTRY_ID(ids[i]) * dim;
		else
			gg_rows_load(&state->rows, GG_ENTRY_ID(ids[i]), 0, dim, other);
		distances[i] = gg_tile_distance(data->metric, own, x, dim);
	}
}

void
gg_knn_refresh(gg_knn *state, uint32_t row)
{
	const float *distances = state->lists.distances + (size_t) row * state->lists.stride;
	float		worst = -INFINITY;

	for (uint32_t i = 0; i < state->k; i++)
		worst = distances[i] > worst ? distances[i] : worst;
	state->lists.worst[row] = worst;
}
