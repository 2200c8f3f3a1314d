/*
 * knn_graph.c
 *		Approximate k-NN lists: GNND started from pivot cells.
 *
 * Wang, Zhao, Zeng, Yang: "Fast k-NN Graph Construction by GPU based NN-Descent", 2021, sections 3
 * and 4.
 *
 * Start.  A set of up to BRUTE_ROWS rows is compared with itself completely.  Otherwise each row is
 * assigned to the CELLS_OF_ROW nearest of some random rows, the pivots.  All rows assigned to the
 * same pivot, a cell, are compared with each other.  Assignment is in two levels.  Some pivots, the
 * regions, are compared with all rows.  A row is then compared with the pivots that have the row's
 * nearest region among their PIVOT_REGIONS nearest.  GG_INIT_RANDOM takes k random rows instead.
 *
 * Descent, as in the paper.  The samples of a row are the SAMPLES nearest new and nearest old
 * entries of its list, and the rows that sampled it, up to 2 x SAMPLES in all.  Around every row
 * the new samples are compared with each other and with the old ones, until few entries are made.
 *
 * Departures from the paper
 *	1. The start above; the paper starts from random lists (see shares of true neighbours below).
 *	2. No selective update.  The paper enters only a sample's nearest partner, to save locked
 *	   updates on a GPU.  Here vectors of distances are compared with the worst entries, and the few
 *	   pairs that pass are all entered.
 *	3. Distances at the end are measured again, term by term, and lists are sorted by them: tiles
 *	   compute |a|^2 + |b|^2 - 2ab, which orders near ties wrongly.
 *
 * With one thread the result depends on data, parameters and seed alone.  With more, the order of
 * entries differs, and with it which of two equally distant rows is kept.
 */
#include "stages.h"
#include "random.h"
#include "threads.h"
#include "tile.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Exact up to here: n^2 / 2 distances are no more than cells and descent would take. */
#define BRUTE_ROWS		6000u

#define CELLS_OF_ROW	8u
#define CELL_ROWS		110u	/* mean, for lists of up to 64 */
#define PIVOT_REGIONS	6u
#define SAMPLES			12u

/*
 * Iterations stop when fewer than this share of all list places changed.  How many that takes is
 * the data's: 2 for 200,000 x 128 of intrinsic dimension 16, 3 for MNIST, 7 for hashed TF-IDF
 * vectors of 62,666 package descriptions, where stopping after 2 cost 4 points of recall (0.939 for
 * 0.976 at itopk 64).  Half the share adds an iteration and 0.001 to 0.002 of recall there.  One
 * iteration is never enough to tell: it tries only a sample of each list.  From random lists the
 * first changes say little, and the paper's smaller share is used.
 */
#define DEFAULT_ITERATIONS			12u
#define DEFAULT_TERMINATION			0.03f
#define DEFAULT_RANDOM_ITERATIONS	30u
#define DEFAULT_RANDOM_TERMINATION	0.002f

/* A join of two blocks of this many rows fills GG_TILE_ROWS. */
#define BLOCK_ROWS		(GG_TILE_ROWS / 2)

/*
 * A cell of more rows is cut into parts of this many that are not compared with each other: rows
 * that are all equal are all assigned to the same pivots, and the work must not become quadratic.
 */
#define CELL_LIMIT		4096u

/*
 * How often serial loops look at the clock, in rows: under 1 ms where each of a row's entries is a
 * cache miss.
 */
#define POLL_ROWS		1024u

typedef struct knn_state
{
	const gg_build_params *params;
	gg_pool    *pool;
	gg_rows		rows;
	uint32_t	n;
	uint32_t	k;
	gg_tile_memory **memory;	/* one a thread */
	float	  **row;			/* 2 x rows.dim a thread: a centre, a row to measure */
	gg_lists	lists;
	uint32_t	npivots;		/* 0 without cells */
	uint32_t   *cells_of;		/* n x CELLS_OF_ROW: a row's cells; npivots: none */
	uint8_t   **cell_bits;		/* npivots + 1 a thread, all 0 between nodes */
	uint32_t   *order;			/* n: rows near each other stand near each other, or NULL */
	atomic_uint_fast64_t entered;

	/* cross-matching; counts may pass 2 x SAMPLES, what does not fit was not stored */
	uint32_t   *samples[2];		/* n x 2 SAMPLES: old, new */
	atomic_uint *counts[2];		/* n */
} knn_state;

static inline uint32_t
min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint32_t
max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static inline uint32_t
state_at(const knn_state *state, uint64_t i)
{
	return state->order ? state->order[i] : (uint32_t) i;
}

static void *
array(uint64_t count, size_t size)
{
	return malloc((size_t) (count > 0 ? count : 1) * size);
}

static gg_status
no_memory(const knn_state *state)
{
	return gg_fail(GG_ENOMEM, "gg_cpu_knn_graph",
				   "out of memory for the k-NN graph of %u rows, k = %u", state->n, state->k);
}

/* In a serial loop of the calling thread: is it time to end it?  Then gg_pool_poll() says why. */
static inline bool
stopping_at(const knn_state *state, uint32_t row)
{
	return row % POLL_ROWS == 0 && gg_worker_stopping(gg_pool_caller(state->pool));
}

/* Rows of a piece of work so that it takes well under a poll interval at any dimension. */
static uint64_t
chunk_rows(const knn_state *state, uint64_t at_128)
{
	uint64_t	rows = at_128 * 128 / state->rows.dim;

	return rows > at_128 ? at_128 : rows > 1 ? rows : 1;
}

/* ---- exact start ----------------------------------------------------------- */

/* Item i of the blocks x blocks triangle, by rows: a <= b. */
static void
triangle_at(uint64_t i, uint32_t blocks, uint32_t *a, uint32_t *b)
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

/* Compare block a of the ids with block b of them, or with itself. */
static uint64_t
join_blocks(knn_state *state, gg_worker *worker, const uint32_t *ids, uint32_t count,
			uint32_t a, uint32_t b, uint32_t block, const float *centre, bool exact)
{
	uint32_t	pair[GG_TILE_ROWS];
	uint32_t	a_count = min_u32(count - a * block, block),
				b_count = a == b ? 0 : min_u32(count - b * block, block);
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
		.lists = &state->lists
	};

	for (uint32_t i = 0; i < a_count; i++)
		pair[i] = ids ? ids[a * block + i] : a * block + i;
	for (uint32_t i = 0; i < b_count; i++)
		pair[a_count + i] = ids ? ids[b * block + i] : b * block + i;
	return gg_tile_join(state->memory[worker->id], &join, worker);
}

/* Small blocks, so that even two thousand rows are work for several threads. */
#define BRUTE_BLOCK		256u

static void
brute_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	knn_state  *state = arg;
	uint32_t	blocks = (state->n + BRUTE_BLOCK - 1) / BRUTE_BLOCK;

	for (uint64_t i = begin; i < end; i++)
	{
		uint32_t	a,
					b;

		triangle_at(i, blocks, &a, &b);
		join_blocks(state, worker, NULL, state->n, a, b, BRUTE_BLOCK, NULL, true);
		if (a == b)
			gg_worker_progress(worker, min_u32(state->n - a * BRUTE_BLOCK, BRUTE_BLOCK));
	}
}

/* ---- random start ----------------------------------------------------------- */

/* Fill what is free of a list with rows that it does not have; distances are measured later. */
static void
list_fill(knn_state *state, uint32_t row, uint64_t seed)
{
	uint32_t   *ids = state->lists.ids + (size_t) row * state->lists.stride;
	float	   *distances = state->lists.distances + (size_t) row * state->lists.stride;
	uint32_t	have = min_u32(state->k, state->n - 1);
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

		/* drawing while most rows are free to take, counting on from the row where few are */
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

/* Measure one list term by term. */
static void
list_measure(knn_state *state, uint32_t row, int thread)
{
	const gg_dataset *data = state->rows.data;
	bool		as_is = data->element == GG_ELEMENT_F32 && !state->rows.scale && !state->rows.extra;
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

/* The largest distance of each list, from its entries. */
static void
list_refresh(knn_state *state, uint32_t row)
{
	const float *distances = state->lists.distances + (size_t) row * state->lists.stride;
	float		worst = -INFINITY;

	for (uint32_t i = 0; i < state->k; i++)
		worst = distances[i] > worst ? distances[i] : worst;
	state->lists.worst[row] = worst;
}

static void
random_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	knn_state  *state = arg;

	for (uint64_t row = begin; row < end && !gg_worker_stopping(worker); row++)
	{
		list_fill(state, (uint32_t) row, state->params->seed);
		list_measure(state, (uint32_t) row, worker->id);
		list_refresh(state, (uint32_t) row);
		gg_worker_progress(worker, 1);
	}
}

/* ---- pivot cells ------------------------------------------------------------- */

typedef struct cells_state
{
	knn_state  *knn;
	uint32_t	npivots;
	uint32_t	nregions;		/* the first so many pivots */
	uint32_t   *pivots;			/* npivots node ids */
	uint32_t   *numbers;		/* 0 .. npivots - 1 */
	float	   *centres;		/* nregions x dim, then their mean */

	gg_lists	rows_regions;	/* of each row, its nearest region */
	gg_lists	pivots_regions; /* of each pivot (list of its node), its nearest regions */
	uint64_t   *region_rows_at; /* nregions + 1: rows by nearest region */
	uint32_t   *region_rows;
	uint64_t   *region_pivots_at;	/* nregions + 1: pivots by near regions */
	uint32_t   *region_pivots;

	gg_lists	rows_cells;		/* of each row, its nearest pivots */
	uint64_t   *cells_at;		/* npivots + 1 */
	uint32_t   *cells;			/* rows by cell, ascending */
	uint64_t   *tasks_at;		/* of regions or cells: first task */
} cells_state;

/* The part of items that owns task i, by the running sums at. */
static uint32_t
owner_of(const uint64_t *at, uint32_t count, uint64_t i)
{
	uint32_t	low = 0,
				high = count;

	while (high - low > 1)
	{
		uint32_t	middle = low + (high - low) / 2;

		if (at[middle] <= i)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Rows count x candidates: enter the candidates' labels into the rows' lists. */
static void
assign_block(cells_state *cells, gg_worker *worker, gg_lists *lists, const uint32_t *rows,
			 uint32_t count, const uint32_t *candidates, uint32_t ncandidates, const float *centre)
{
	uint32_t	ids[GG_TILE_ROWS],
				labels[GG_TILE_ROWS];
	uint32_t	room = GG_TILE_ROWS - count;

	memcpy(ids, rows, sizeof(uint32_t) * count);
	memset(labels, 0, sizeof(uint32_t) * count);
	for (uint32_t from = 0; from < ncandidates; from += room)
	{
		uint32_t	m = min_u32(ncandidates - from, room);
		gg_join		join = {
			.rows = &cells->knn->rows,
			.ids = ids,
			.labels = labels,
			.m = count + m,
			.left = count,
			.right = count,
			.mutual = false,
			.centre = centre,
			.exact = false,
			.lists = lists
		};

		for (uint32_t i = 0; i < m; i++)
		{
			labels[count + i] = candidates[from + i];
			ids[count + i] = cells->pivots[candidates[from + i]];
		}
		gg_tile_join(cells->knn->memory[worker->id], &join, worker);
	}
}

static const float *
region_centre(const cells_state *cells, uint32_t region)
{
	return cells->centres ? cells->centres + (size_t) region * cells->knn->rows.dim : NULL;
}

/* of one block: its packing is 1 / 256 of what it is compared with */
#define ASSIGN_ROWS		256u

static void
rows_to_regions_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	cells_state *cells = arg;

	for (uint64_t i = begin; i < end && !gg_worker_stopping(worker); i++)
	{
		uint32_t	rows[ASSIGN_ROWS];
		uint32_t	first = (uint32_t) i * ASSIGN_ROWS;
		uint32_t	count = min_u32(cells->knn->n - first, ASSIGN_ROWS);

		for (uint32_t r = 0; r < count; r++)
			rows[r] = first + r;
		assign_block(cells, worker, &cells->rows_regions, rows, count, cells->numbers,
					 cells->nregions, region_centre(cells, cells->nregions));
	}
}

static void
pivots_to_regions_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	cells_state *cells = arg;

	for (uint64_t i = begin; i < end && !gg_worker_stopping(worker); i++)
	{
		uint32_t	first = (uint32_t) i * ASSIGN_ROWS;

		assign_block(cells, worker, &cells->pivots_regions, cells->pivots + first,
					 min_u32(cells->npivots - first, ASSIGN_ROWS), cells->numbers, cells->nregions,
					 region_centre(cells, cells->nregions));
	}
}

static void
rows_to_cells_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	cells_state *cells = arg;

	for (uint64_t i = begin; i < end && !gg_worker_stopping(worker); i++)
	{
		uint32_t	region = owner_of(cells->tasks_at, cells->nregions, i);
		uint64_t	first = cells->region_rows_at[region] +
			(i - cells->tasks_at[region]) * ASSIGN_ROWS;
		uint64_t	rest = cells->region_rows_at[region + 1] - first;
		uint32_t	count = rest < ASSIGN_ROWS ? (uint32_t) rest : ASSIGN_ROWS;

		assign_block(cells, worker, &cells->rows_cells, cells->region_rows + first, count,
					 cells->region_pivots + cells->region_pivots_at[region],
					 (uint32_t) (cells->region_pivots_at[region + 1] -
								 cells->region_pivots_at[region]), region_centre(cells, region));
		gg_worker_progress(worker, count / 4);
	}
}

/*
 * Turn lists around: of each value 0 .. count - 1, the members (or their positions, when members is
 * NULL) whose list has it, in the order given.
 */
static gg_status
invert(const knn_state *state, const gg_lists *lists, const uint32_t *members, uint32_t nmembers,
	   uint32_t count, uint64_t **at_result, uint32_t **values_result, bool positions)
{
	uint64_t   *at = calloc((size_t) count + 2, sizeof(uint64_t));
	uint32_t   *values;

	*at_result = at;
	if (!at)
		return no_memory(state);
	for (int pass = 0; pass < 2; pass++)
	{
		if (pass == 1)
		{
			/*
			 * at[v + 1] counts v; make it the place of the next one of v, which ends as at[v + 1]
			 */
			uint64_t	sum = 0;

			for (uint32_t v = 0; v < count; v++)
			{
				uint64_t	of_v = at[v + 1];

				at[v + 1] = sum;
				sum += of_v;
			}
			*values_result = values = array(sum, sizeof(uint32_t));
			if (!values)
				return no_memory(state);
		}
		for (uint32_t m = 0; m < nmembers; m++)
		{
			uint32_t	node = members ? members[m] : m;
			const uint32_t *ids = lists->ids + (size_t) node * lists->stride;

			if (stopping_at(state, m))
				return gg_pool_poll(state->pool);
			for (uint32_t i = 0; i < lists->k; i++)
				if (ids[i] != GG_NO_NODE)
				{
					uint64_t   *next = &at[GG_ENTRY_ID(ids[i]) + 1];

					if (pass == 1)
						(*values_result)[*next] = positions ? m : node;
					++*next;
				}
		}
	}
	return gg_ok();
}

/* Rows of a cell that are compared with each other: all, or a part of an outsized cell. */
static void
cell_part(const cells_state *cells, uint32_t cell, uint32_t part, const uint32_t **ids,
		  uint32_t *count)
{
	uint64_t	first = cells->cells_at[cell] + (uint64_t) part * CELL_LIMIT;
	uint64_t	rest = cells->cells_at[cell + 1] - first;

	*ids = cells->cells + first;
	*count = rest < CELL_LIMIT ? (uint32_t) rest : CELL_LIMIT;
}

/* Joins that some rows take: one when they fit, else one for each pair of blocks. */
static uint64_t
joins_of(uint32_t count)
{
	uint64_t	blocks = (count + BLOCK_ROWS - 1) / BLOCK_ROWS;

	return count < 2 ? 0 : count <= GG_TILE_ROWS ? 1 : blocks * (blocks + 1) / 2;
}

static void
cells_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	cells_state *cells = arg;
	knn_state  *state = cells->knn;
	float	   *centre = state->rows.data->metric == GG_METRIC_L1 ? NULL : state->row[worker->id];

	for (uint64_t i = begin; i < end && !gg_worker_stopping(worker); i++)
	{
		uint32_t	cell = owner_of(cells->tasks_at, cells->npivots, i);
		uint64_t	task = i - cells->tasks_at[cell];
		const uint32_t *ids;
		uint32_t	count,
					a = 0,
					b = 0,
					part = 0;

		for (;; part++)
		{
			cell_part(cells, cell, part, &ids, &count);
			if (task < joins_of(count))
				break;
			task -= joins_of(count);
		}
		if (count > GG_TILE_ROWS)
			triangle_at(task, (count + BLOCK_ROWS - 1) / BLOCK_ROWS, &a, &b);
		if (centre)
			gg_rows_load(&state->rows, cells->pivots[cell], 0, state->rows.dim, centre);
		join_blocks(state, worker, ids, count, a, b, count > GG_TILE_ROWS ? BLOCK_ROWS :
					GG_TILE_ROWS, centre, false);
		if (task == 0)
			gg_worker_progress(worker, count * 3 / 4 / CELLS_OF_ROW);
	}
}

/* Distinct random rows. */
static gg_status
draw_pivots(cells_state *cells)
{
	uint32_t	n = cells->knn->n;
	uint32_t	taken = 0;

	/* selection sampling: row i is taken with probability wanted / rows left */
	for (uint32_t i = 0; i < n && taken < cells->npivots; i++)
	{
		if (stopping_at(cells->knn, i))
			return gg_pool_poll(cells->knn->pool);
		if (gg_random_below(cells->knn->params->seed, i, n - i) < cells->npivots - taken)
			cells->pivots[taken++] = i;
	}
	/* ascending now: the regions are the first ones, and must be a random part of them */
	for (uint32_t i = 0; i < cells->npivots; i++)
	{
		uint32_t	j = i + gg_random_below(~cells->knn->params->seed, i, cells->npivots - i);
		uint32_t	swap = cells->pivots[i];

		cells->pivots[i] = cells->pivots[j];
		cells->pivots[j] = swap;
		cells->numbers[i] = i;
	}
	return gg_ok();
}

/* Where distances are measured from while assigning: each region, and the mean of them. */
static void
make_centres(cells_state *cells)
{
	uint32_t	dim = cells->knn->rows.dim;
	float	   *mean = cells->centres + (size_t) cells->nregions * dim;

	memset(mean, 0, sizeof(float) * dim);
	for (uint32_t r = 0; r < cells->nregions; r++)
	{
		float	   *centre = cells->centres + (size_t) r * dim;

		gg_rows_load(&cells->knn->rows, cells->pivots[r], 0, dim, centre);
		for (uint32_t k = 0; k < dim; k++)
			mean[k] += centre[k] / (float) cells->nregions;
	}
}

static void
cells_sizes(const knn_state *state, uint32_t *npivots, uint32_t *nregions)
{
	uint64_t	rows = (uint64_t) CELL_ROWS * max_u32(state->k, 64) / 64;
	uint64_t	pivots = (uint64_t) CELLS_OF_ROW * state->n / rows;

	*npivots = (uint32_t) (pivots < 2 * CELLS_OF_ROW ? 2 * CELLS_OF_ROW : pivots);
	/* regions + PIVOT_REGIONS / regions of the pivots is least at the root; cells are uneven */
	*nregions = max_u32((uint32_t) (1.2 * sqrt((double) PIVOT_REGIONS * *npivots)),
						2 * PIVOT_REGIONS);
	*nregions = min_u32(*nregions, *npivots);
}

static gg_status
cells_assign(cells_state *cells)
{
	knn_state  *state = cells->knn;
	gg_pool    *pool = state->pool;
	uint64_t	blocks = (state->n + ASSIGN_ROWS - 1) / ASSIGN_ROWS;
	gg_status	status;

	status = gg_lists_create(&cells->rows_regions, state->n, 1, false, NULL, NULL, pool);
	if (status.code == GG_OK)
		status = gg_pool_run(pool, rows_to_regions_run, cells, blocks, 1);
	if (status.code == GG_OK)
	{
		/* where distances overflow no region is near, but every row has to have a place */
		for (uint32_t row = 0; row < state->n; row++)
		{
			uint32_t   *region = cells->rows_regions.ids +
				(size_t) row * cells->rows_regions.stride;

			if (stopping_at(state, row))
				break;			/* and so does what follows */
			if (*region == GG_NO_NODE)
				*region = row % cells->nregions;
		}
		status = invert(state, &cells->rows_regions, NULL, state->n, cells->nregions,
						&cells->region_rows_at, &cells->region_rows, false);
	}
	gg_lists_free(&cells->rows_regions, NULL, NULL);
	if (status.code != GG_OK)
		return status;

	status = gg_lists_create(&cells->pivots_regions, state->n, min_u32(PIVOT_REGIONS,
																	   cells->nregions), false,
							 NULL, NULL, pool);
	if (status.code == GG_OK)
		status = gg_pool_run(pool, pivots_to_regions_run, cells,
							 (cells->npivots + ASSIGN_ROWS - 1) / ASSIGN_ROWS, 1);
	if (status.code == GG_OK)
		status = invert(state, &cells->pivots_regions, cells->pivots, cells->npivots,
						cells->nregions, &cells->region_pivots_at, &cells->region_pivots, true);
	gg_lists_free(&cells->pivots_regions, NULL, NULL);
	if (status.code != GG_OK)
		return status;

	cells->tasks_at[0] = 0;
	for (uint32_t r = 0; r < cells->nregions; r++)
		cells->tasks_at[r + 1] = cells->tasks_at[r] + (cells->region_rows_at[r + 1] -
													   cells->region_rows_at[r] + ASSIGN_ROWS - 1) /
			ASSIGN_ROWS;
	status = gg_lists_create(&cells->rows_cells, state->n, min_u32(CELLS_OF_ROW, cells->npivots),
							 false, NULL, NULL, pool);
	if (status.code == GG_OK)
		status = gg_pool_run(pool, rows_to_cells_run, cells, cells->tasks_at[cells->nregions], 1);
	if (status.code == GG_OK)
		status = invert(state, &cells->rows_cells, NULL, state->n, cells->npivots,
						&cells->cells_at, &cells->cells, false);
	if (status.code == GG_OK)
	{
		state->npivots = cells->npivots;
		state->cells_of = array((uint64_t) state->n * CELLS_OF_ROW, sizeof(uint32_t));
		if (!state->cells_of)
			status = no_memory(state);
	}
	for (uint32_t row = 0; status.code == GG_OK && row < state->n; row++)
	{
		if (stopping_at(state, row))
			status = gg_pool_poll(pool);
		for (uint32_t i = 0; i < CELLS_OF_ROW; i++)
		{
			uint32_t	cell = cells->rows_cells.ids[(size_t) row * cells->rows_cells.stride + i];

			state->cells_of[(size_t) row * CELLS_OF_ROW + i] = cell == GG_NO_NODE ? cells->npivots :
				GG_ENTRY_ID(cell);
		}
	}
	gg_lists_free(&cells->rows_cells, NULL, NULL);
	return status;
}

static gg_status
cells_start(knn_state *state)
{
	cells_state cells = {.knn = state};
	gg_status	status = gg_ok();

	cells_sizes(state, &cells.npivots, &cells.nregions);
	cells.pivots = array(cells.npivots, sizeof(uint32_t));
	cells.numbers = array(cells.npivots, sizeof(uint32_t));
	cells.tasks_at = array((uint64_t) cells.npivots + 1, sizeof(uint64_t));
	if (state->rows.data->metric != GG_METRIC_L1)
		cells.centres = array(((uint64_t) cells.nregions + 1) * state->rows.dim, sizeof(float));
	if (!cells.pivots || !cells.numbers || !cells.tasks_at ||
		(!cells.centres && state->rows.data->metric != GG_METRIC_L1))
		status = no_memory(state);
	if (status.code == GG_OK)
	{
		status = draw_pivots(&cells);
		if (status.code == GG_OK && cells.centres)
			make_centres(&cells);
		if (status.code == GG_OK)
			status = cells_assign(&cells);
	}
	if (status.code == GG_OK)
	{
		cells.tasks_at[0] = 0;
		for (uint32_t c = 0; c < cells.npivots; c++)
		{
			uint64_t	count = cells.cells_at[c + 1] - cells.cells_at[c];

			cells.tasks_at[c + 1] = cells.tasks_at[c] + count / CELL_LIMIT * joins_of(CELL_LIMIT) +
				joins_of((uint32_t) (count % CELL_LIMIT));
		}
		state->order = cells.region_rows;
		cells.region_rows = NULL;
		status = gg_pool_run(state->pool, cells_run, &cells, cells.tasks_at[cells.npivots], 1);
	}
	free(cells.pivots);
	free(cells.numbers);
	free(cells.centres);
	free(cells.region_rows_at);
	free(cells.region_rows);
	free(cells.region_pivots_at);
	free(cells.region_pivots);
	free(cells.cells_at);
	free(cells.cells);
	free(cells.tasks_at);
	return status;
}

/* ---- descent ------------------------------------------------------------------ */

/* Sort each list and take its samples. */
static void
sample_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	knn_state  *state = arg;

	for (uint64_t i = begin; i < end && !gg_worker_stopping(worker); i++)
	{
		uint32_t	row = state_at(state, i);
		uint32_t   *ids = state->lists.ids + (size_t) row * state->lists.stride;
		uint32_t	taken[2] = {0, 0};

		gg_lists_sort(&state->lists, row);
		for (uint32_t j = 0; j < state->k && ids[j] != GG_NO_NODE; j++)
		{
			int			is_new = (ids[j] & GG_ENTRY_NEW) != 0;

			if (taken[is_new] == SAMPLES)
				continue;
			state->samples[is_new][(size_t) row * 2 * SAMPLES + taken[is_new]++] =
				GG_ENTRY_ID(ids[j]);
			ids[j] = GG_ENTRY_ID(ids[j]);
		}
		atomic_store_explicit(&state->counts[0][row], taken[0], memory_order_relaxed);
		atomic_store_explicit(&state->counts[1][row], taken[1], memory_order_relaxed);
	}
}

/*
 * Enter each offer at its other end.  How many of a node's samples are its own is in the low bits
 * of its count, how many came from others above them.
 */
#define COUNT_OTHER		(1u << 8)
#define COUNT_OWN(c)	((c) & (COUNT_OTHER - 1))
#define COUNT_ALL(c)	(COUNT_OWN(c) + (c) / COUNT_OTHER)

static void
reverse_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	knn_state  *state = arg;

	for (uint64_t i = begin; i < end && !gg_worker_stopping(worker); i++)
	{
		uint32_t	row = state_at(state, i);

		for (int kind = 0; kind < 2; kind++)
		{
			uint32_t	own = COUNT_OWN(atomic_load_explicit(&state->counts[kind][row],
															 memory_order_relaxed));

			for (uint32_t j = 0; j < own; j++)
			{
				uint32_t	other = state->samples[kind][(size_t) row * 2 * SAMPLES + j];
				atomic_uint *count = &state->counts[kind][other];
				uint32_t	seen = atomic_load_explicit(count, memory_order_relaxed);

				while (COUNT_ALL(seen) < 2 * SAMPLES)
					if (atomic_compare_exchange_weak_explicit(count, &seen, seen + COUNT_OTHER,
															  memory_order_relaxed,
															  memory_order_relaxed))
					{
						state->samples[kind][(size_t) other * 2 * SAMPLES + COUNT_ALL(seen)] = row;
						break;
					}
			}
		}
	}
}

/* Append what is not there yet. */
static uint32_t
join_add(uint32_t *ids, uint32_t count, const uint32_t *more, uint32_t nmore)
{
	uint32_t	had = count;

	/* the offers of one kind from one side are distinct already, but cheap to test with the rest */
	for (uint32_t i = 0; i < nmore; i++)
	{
		uint32_t	found = 0;

		for (uint32_t j = 0; j < count; j++)
			found |= (uint32_t) (ids[j] == more[i]);
		if (!found)
			ids[count++] = more[i];
	}
	return count - had;
}

/*
 * For each of m rows, in which of node's cells it is.  Two rows with a common bit have been
 * compared already, in that cell, and that is most of the pairs around a node.
 */
static void
shared_cells(const knn_state *state, uint8_t *bits, uint32_t node, const uint32_t *ids, uint32_t m,
			 uint8_t *shared)
{
	const uint32_t *own = state->cells_of + (size_t) node * CELLS_OF_ROW;

	for (uint32_t i = 0; i < CELLS_OF_ROW; i++)
		bits[own[i]] = (uint8_t) (1u << i);
	bits[state->npivots] = 0;
	for (uint32_t j = 0; j < m; j++)
	{
		const uint32_t *cells = state->cells_of + (size_t) ids[j] * CELLS_OF_ROW;

		shared[j] = 0;
		for (uint32_t i = 0; i < CELLS_OF_ROW; i++)
			shared[j] |= bits[cells[i]];
	}
	for (uint32_t i = 0; i < CELLS_OF_ROW; i++)
		bits[own[i]] = 0;
}

static void
match_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	knn_state  *state = arg;
	float	   *centre = state->rows.data->metric == GG_METRIC_L1 ? NULL : state->row[worker->id];
	uint64_t	entered = 0;

	for (uint64_t i = begin; i < end && !gg_worker_stopping(worker); i++)
	{
		uint32_t	row = state_at(state, i);
		uint32_t	ids[4 * SAMPLES];
		uint8_t		shared[4 * SAMPLES];
		uint32_t	m,
					fresh;
		size_t		at = (size_t) row * 2 * SAMPLES;

		m = fresh = join_add(ids, 0, state->samples[1] + at, COUNT_ALL(state->counts[1][row]));
		if (fresh > 0)
		{
			gg_join		join = {
				.rows = &state->rows,
				.ids = ids,
				.left = fresh,
				.mutual = true,
				.centre = centre,
				.lists = &state->lists
			};

			m += join_add(ids, m, state->samples[0] + at, COUNT_ALL(state->counts[0][row]));
			join.m = m;
			if (state->cells_of)
			{
				shared_cells(state, state->cell_bits[worker->id], row, ids, m, shared);
				join.shared = shared;
			}
			if (centre)
				gg_rows_load(&state->rows, row, 0, state->rows.dim, centre);
			entered += gg_tile_join(state->memory[worker->id], &join, worker);
		}
		gg_worker_progress(worker, 1);
	}
	atomic_fetch_add_explicit(&state->entered, entered, memory_order_relaxed);
}

static gg_status
descend(knn_state *state, gg_build_stats *stats)
{
	uint32_t	limit = state->params->max_iterations;
	float		termination = state->params->termination_threshold;
	bool		random = state->params->init == GG_INIT_RANDOM;
	gg_status	status = gg_ok();

	if (limit == 0)
		limit = random ? DEFAULT_RANDOM_ITERATIONS : DEFAULT_ITERATIONS;
	if (!(termination > 0))
		termination = random ? DEFAULT_RANDOM_TERMINATION : DEFAULT_TERMINATION;
	for (int kind = 0; kind < 2; kind++)
	{
		state->samples[kind] = array((uint64_t) state->n * 2 * SAMPLES, sizeof(uint32_t));
		state->counts[kind] = array(state->n, sizeof(atomic_uint));
		if (!state->samples[kind] || !state->counts[kind])
			return no_memory(state);
	}
	state->cell_bits = calloc((size_t) gg_pool_threads(state->pool), sizeof(*state->cell_bits));
	if (!state->cell_bits)
		return no_memory(state);
	for (int t = 0; t < gg_pool_threads(state->pool); t++)
	{
		state->cell_bits[t] = calloc((size_t) state->npivots + 1, 1);
		if (!state->cell_bits[t])
			return no_memory(state);
	}
	gg_pool_phase(state->pool, GG_PHASE_KNN_DESCENT, (uint64_t) state->n * limit);
	for (uint32_t iteration = 0; iteration < limit; iteration++)
	{
		atomic_store(&state->entered, 0);
		status = gg_pool_run(state->pool, sample_run, state, state->n, 256);
		if (status.code == GG_OK)
			status = gg_pool_run(state->pool, reverse_run, state, state->n, 1024);
		if (status.code == GG_OK)
			status = gg_pool_run(state->pool, match_run, state, state->n, chunk_rows(state, 64));
		if (status.code != GG_OK)
			return status;
		stats->iterations++;
		if (iteration > 0 &&
			(double) atomic_load(&state->entered) < (double) termination * state->n * state->k)
			break;
	}
	return status;
}

/* ---- the end ------------------------------------------------------------------ */

typedef struct finish_state
{
	knn_state  *knn;
	uint32_t   *ids;			/* n x k */
	float	   *distances;		/* n x k, or NULL */
} finish_state;

static void
finish_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	finish_state *finish = arg;
	knn_state  *state = finish->knn;
	uint32_t	k = state->k;

	for (uint64_t i = begin; i < end && !gg_worker_stopping(worker); i++)
	{
		uint32_t	row = state_at(state, i);
		uint32_t   *ids = state->lists.ids + (size_t) row * state->lists.stride;
		float	   *distances = state->lists.distances + (size_t) row * state->lists.stride;

		/* lists stay short in cells of few rows and where distances overflow */
		list_fill(state, row, ~state->params->seed);
		for (uint32_t j = 0; j < k && ids[j] != GG_NO_NODE; j++)
			ids[j] = GG_ENTRY_ID(ids[j]);
		list_measure(state, row, worker->id);
		gg_lists_sort(&state->lists, row);
		if (state->rows.data->metric == GG_METRIC_COSINE && finish->distances)
			for (uint32_t j = 0; j < k; j++)
				distances[j] *= 0.5f;
		if (ids != finish->ids + (size_t) row * k)
			memcpy(finish->ids + (size_t) row * k, ids, sizeof(uint32_t) * k);
		if (finish->distances && distances != finish->distances + (size_t) row * k)
			memcpy(finish->distances + (size_t) row * k, distances, sizeof(float) * k);
	}
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
	knn_state	state = {.params = params, .n = data->n, .k = params->intermediate_graph_degree};
	uint64_t	n = data->n;
	uint64_t	stride = GG_LIST_STRIDE(state.k);
	uint32_t	dim = data->dim + (data->metric == GG_METRIC_IP);
	uint32_t	npivots,
				nregions;
	uint64_t	all,
				cells,
				descent;

	all = (uint64_t) threads * (gg_tile_memory_bytes(dim) + sizeof(float) * 2 * dim);
	all += n * (sizeof(float) + 1);	/* worst, locks */
	if (stride != state.k)
		all += n * stride * (sizeof(uint32_t) + sizeof(float));
	else if (!distances)
		all += n * stride * sizeof(float);
	if (data->metric == GG_METRIC_IP || data->metric == GG_METRIC_COSINE)
		all += n * sizeof(float);
	if (params->init == GG_INIT_PIVOT_CELLS && state.n <= BRUTE_ROWS)
		return all;

	cells_sizes(&state, &npivots, &nregions);
	cells = npivots * (2 * sizeof(uint32_t) + 2 * sizeof(uint64_t) +
					   PIVOT_REGIONS * sizeof(uint32_t));
	cells += sizeof(float) * dim * ((uint64_t) nregions + 1);
	cells += n * sizeof(uint32_t) * (1 + CELLS_OF_ROW);	/* order, cells */
	cells += n * (sizeof(float) + GG_LIST_STRIDE(CELLS_OF_ROW) * (sizeof(uint32_t) +
																  sizeof(float)));
	descent = n * 2 * sizeof(uint32_t) * (2 * SAMPLES + 1);
	if (params->init == GG_INIT_RANDOM)
		cells = 0;
	else
	{
		cells += n * sizeof(uint32_t) * CELLS_OF_ROW;
		descent += n * sizeof(uint32_t) * (1 + CELLS_OF_ROW) + (uint64_t) threads * npivots;
	}
	return all + (cells > descent ? cells : descent);
}

gg_status
gg_cpu_knn_graph_run(gg_pool *pool, const gg_dataset *data, const gg_build_params *params,
					 uint32_t *ids, float *distances, uint32_t **order, gg_build_stats *stats)
{
	knn_state	state = {.params = params, .pool = pool, .n = data->n,
						 .k = params->intermediate_graph_degree};
	finish_state finish = {&state, ids, distances};
	int			threads = gg_pool_threads(pool);
	/* lists that need no padding are worked on where they are to be returned */
	bool		in_place = state.k == GG_LIST_STRIDE(state.k);
	uint32_t   *list_ids = in_place ? ids : NULL;
	float	   *list_distances = in_place ? distances : NULL;
	gg_status	status = knn_check(data, params);
	double		start = gg_now();

	if (order)
		*order = NULL;
	if (status.code != GG_OK || state.n == 0)
		return status;
	gg_pool_phase(pool, GG_PHASE_KNN_INIT, state.n);
	status = gg_rows_prepare(&state.rows, data, pool);
	if (status.code != GG_OK)
		return status;
	state.memory = calloc((size_t) threads, sizeof(*state.memory));
	state.row = calloc((size_t) threads, sizeof(*state.row));
	if (!state.memory || !state.row)
		status = no_memory(&state);
	for (int t = 0; t < threads && status.code == GG_OK; t++)
	{
		status = gg_tile_memory_create(&state.memory[t], state.rows.dim);
		state.row[t] = malloc(sizeof(float) * 2 * (size_t) state.rows.dim);
		if (!state.row[t])
			status = no_memory(&state);
	}
	if (status.code == GG_OK)
		status = gg_lists_create(&state.lists, state.n, state.k, threads > 1, list_ids,
								 list_distances, pool);

	if (status.code == GG_OK)
	{
		uint64_t	blocks = (state.n + BRUTE_BLOCK - 1) / BRUTE_BLOCK;
		bool		brute = false;

		if (params->init == GG_INIT_RANDOM)
			status = gg_pool_run(pool, random_run, &state, state.n, chunk_rows(&state, 256));
		else if (state.n <= BRUTE_ROWS)
		{
			brute = true;
			status = gg_pool_run(pool, brute_run, &state, blocks * (blocks + 1) / 2, 1);
		}
		else
			status = cells_start(&state);
		stats->init_s += gg_now() - start;
		start = gg_now();
		if (status.code == GG_OK && !brute)
			status = descend(&state, stats);
		if (status.code == GG_OK)
			status = gg_pool_run(pool, finish_run, &finish, state.n, chunk_rows(&state, 256));
		stats->descent_s += gg_now() - start;
	}

	for (int kind = 0; kind < 2; kind++)
	{
		free(state.samples[kind]);
		free(state.counts[kind]);
	}
	if (order && status.code == GG_OK)
		*order = state.order;
	else
		free(state.order);
	gg_lists_free(&state.lists, ids, distances);
	for (int t = 0; t < threads; t++)
	{
		if (state.memory)
			gg_tile_memory_free(state.memory[t]);
		if (state.row)
			free(state.row[t]);
		if (state.cell_bits)
			free(state.cell_bits[t]);
	}
	free(state.cell_bits);
	free(state.cells_of);
	free(state.memory);
	free(state.row);
	gg_rows_free(&state.rows);
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
