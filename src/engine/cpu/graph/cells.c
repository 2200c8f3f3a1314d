/*
 * cells.c
 *		The start of k-NN lists: pivot cells.
 *
 * Each row is assigned to the GG_CELLS_OF_ROW nearest of some random rows, the pivots.  All rows
 * assigned to the same pivot, a cell, are compared with each other.  Assignment is in two levels.
 * Some pivots, the regions, are compared with all rows.  A row is then compared with the pivots
 * that have the row's nearest region among their PIVOT_REGIONS nearest.  Under inner product cells
 * are of rows of one direction: the longest rows of a cell are the best for its other rows.
 *
 * Which rows are compared is a function of data, parameters and seed, whatever the threads.
 */
#include "knn.h"
#include "engine/rules/random.h"

#include <math.h>
#include <string.h>

#define CELL_ROWS		110u	/* mean, for lists of up to 64 */

/*
 * The regions of a pivot.  With fewer, rows at the edge of a cluster without a region meet pivots
 * of other clusters alone, and GNND does not bring them home.  So many fill a list
 * (GG_LIST_STEP).  At 6 / 12 / 24, degree 32 of 64: rows without an edge within their cluster,
 * and seconds of a build by one thread:
 *	100,000 x 128 in 1,000 clusters		132 / 31 / -		2.97 / 2.86 / -
 *	60,000 x 128 in 500					55 / 19 / 2			1.75 / 1.60 / 1.57
 *	60,000 x 16 in 300					19 / 4 / 1			1.11 / 1.14 / 1.12
 *	300,000 x 64, no clusters			0					28.1 / 27.3 / 27.2
 */
#define PIVOT_REGIONS	16u

/* A join of two blocks of this many rows fills GG_TILE_ROWS. */
#define BLOCK_ROWS		(GG_TILE_ROWS / 2)

/*
 * A cell of more rows is cut into parts of this many that are not compared with each other: rows
 * that are all equal are all assigned to the same pivots, and the work must not become quadratic.
 */
#define CELL_LIMIT		4096u

typedef struct cells_state
{
	gg_knn	   *knn;
	/* what is assigned: under inner product the rows at unit length */
	gg_dataset	data;
	gg_rows		rows;
	uint32_t	npivots;
	uint32_t	nregions;		/* how many pivots, the first ones, are regions */
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

typedef struct id_array
{
	const uint32_t *ids;
	uint32_t	count;
} id_array;

/* Which of count items (regions, cells) owns task i; at: the first task of each item. */
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

/* Compare the rows with each candidate, and enter candidates as labels into the rows' lists. */
static void
assign_block(cells_state *cells, gg_worker *worker, gg_lists *lists, const uint32_t *rows,
			 uint32_t count, id_array candidates, const float *centre)
{
	uint32_t	ids[GG_TILE_ROWS],
				labels[GG_TILE_ROWS];
	uint32_t	room = GG_TILE_ROWS - count;

	memcpy(ids, rows, sizeof(uint32_t) * count);
	memset(labels, 0, sizeof(uint32_t) * count);
	for (uint32_t from = 0; from < candidates.count; from += room)
	{
		uint32_t	m = gg_min_u32(candidates.count - from, room);
		gg_join		join = {
			.rows = &cells->rows,
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
			labels[count + i] = candidates.ids[from + i];
			ids[count + i] = cells->pivots[candidates.ids[from + i]];
		}
		gg_tile_join(cells->knn->memory[worker->id], &join, worker);
	}
}

static id_array
all_regions(const cells_state *cells)
{
	return (id_array) {cells->numbers, cells->nregions};
}

static const float *
region_centre(const cells_state *cells, uint32_t region)
{
	return cells->centres ? cells->centres + (size_t) region * cells->knn->rows.dim : NULL;
}

/* rows of one block: to pack it is 1 / 256 of the work of comparing it */
#define ASSIGN_ROWS		256u

static void
rows_to_regions_run(gg_worker *worker, void *arg, uint64_t i)
{
	cells_state *cells = arg;
	uint32_t	rows[ASSIGN_ROWS];
	uint32_t	first = (uint32_t) i * ASSIGN_ROWS;
	uint32_t	count = gg_min_u32(cells->knn->n - first, ASSIGN_ROWS);

	for (uint32_t r = 0; r < count; r++)
		rows[r] = first + r;
	assign_block(cells, worker, &cells->rows_regions, rows, count, all_regions(cells),
				 region_centre(cells, cells->nregions));
}

static void
pivots_to_regions_run(gg_worker *worker, void *arg, uint64_t i)
{
	cells_state *cells = arg;
	uint32_t	first = (uint32_t) i * ASSIGN_ROWS;

	assign_block(cells, worker, &cells->pivots_regions, cells->pivots + first,
				 gg_min_u32(cells->npivots - first, ASSIGN_ROWS), all_regions(cells),
				 region_centre(cells, cells->nregions));
}

static void
rows_to_cells_run(gg_worker *worker, void *arg, uint64_t i)
{
	cells_state *cells = arg;
	uint32_t	region = owner_of(cells->tasks_at, cells->nregions, i);
	uint64_t	first = cells->region_rows_at[region] +
		(i - cells->tasks_at[region]) * ASSIGN_ROWS;
	uint64_t	rest = cells->region_rows_at[region + 1] - first;
	uint32_t	count = rest < ASSIGN_ROWS ? (uint32_t) rest : ASSIGN_ROWS;
	const uint64_t *pivots_at = cells->region_pivots_at + region;
	id_array	near = {
		.ids = cells->region_pivots + pivots_at[0],
		.count = (uint32_t) (pivots_at[1] - pivots_at[0])
	};

	assign_block(cells, worker, &cells->rows_cells, cells->region_rows + first, count, near,
				 region_centre(cells, region));
	gg_worker_progress(worker, count / 4);
}

/*
 * Turn lists around: of each value 0 .. count - 1, the members whose list has it, in the order
 * given.  Members without ids are 0, 1 and so on.  positions: members by their place, not their id.
 */
static gg_status
invert(const gg_knn *state, const gg_lists *lists, id_array members, uint32_t count,
	   uint64_t **at_result, uint32_t **values_result, bool positions)
{
	uint64_t   *at = calloc((size_t) count + 2, sizeof(uint64_t));
	uint32_t   *values;

	*at_result = at;
	if (!at)
		return gg_knn_no_memory(state);
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
			*values_result = values = gg_array(sum, sizeof(uint32_t));
			if (!values)
				return gg_knn_no_memory(state);
		}
		for (uint32_t m = 0; m < members.count; m++)
		{
			uint32_t	node = members.ids ? members.ids[m] : m;
			const uint32_t *ids = lists->ids + (size_t) node * lists->stride;

			if (gg_pool_stopping(state->pool, m))
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
static gg_blocks
cell_part(const cells_state *cells, uint32_t cell, uint32_t part)
{
	uint64_t	first = cells->cells_at[cell] + (uint64_t) part * CELL_LIMIT;
	uint64_t	rest = cells->cells_at[cell + 1] - first;
	uint32_t	count = rest < CELL_LIMIT ? (uint32_t) rest : CELL_LIMIT;

	return (gg_blocks) {
		.ids = cells->cells + first,
		.count = count,
		.rows = count > GG_TILE_ROWS ? BLOCK_ROWS : GG_TILE_ROWS
	};
}

/* Joins that some rows take: one when they fit, else one for each pair of blocks. */
static uint64_t
joins_of(uint32_t count)
{
	uint64_t	blocks = (count + BLOCK_ROWS - 1) / BLOCK_ROWS;

	return count < 2 ? 0 : count <= GG_TILE_ROWS ? 1 : blocks * (blocks + 1) / 2;
}

static void
cells_run(gg_worker *worker, void *arg, uint64_t i)
{
	cells_state *cells = arg;
	gg_knn	   *state = cells->knn;
	const gg_metric metric = state->rows.data->metric;
	bool		own = metric != GG_METRIC_L1 && metric != GG_METRIC_IP && !state->centre;
	const float *centre = own ? state->row[worker->id] : state->centre;
	uint32_t	cell = owner_of(cells->tasks_at, cells->npivots, i);
	uint64_t	task = i - cells->tasks_at[cell];
	gg_blocks	rows;
	uint32_t	a = 0,
				b = 0,
				part = 0;

	for (;; part++)
	{
		rows = cell_part(cells, cell, part);
		if (task < joins_of(rows.count))
			break;
		task -= joins_of(rows.count);
	}
	if (rows.count > GG_TILE_ROWS)
		gg_triangle_at(task, (rows.count + BLOCK_ROWS - 1) / BLOCK_ROWS, &a, &b);
	if (own)
		gg_rows_load(&state->rows, cells->pivots[cell], 0, state->rows.dim,
					 state->row[worker->id]);
	gg_knn_join(state, worker, &rows, a, b, centre, state->exact);
	if (task == 0)
		gg_worker_progress(worker, rows.count * 3 / 4 / GG_CELLS_OF_ROW);
}

/* Draw distinct random rows. */
static gg_status
draw_pivots(cells_state *cells)
{
	uint32_t	n = cells->knn->n;
	uint32_t	taken = 0;

	/* selection sampling: row i is taken with probability wanted / rows left */
	for (uint32_t i = 0; i < n && taken < cells->npivots; i++)
	{
		if (gg_pool_stopping(cells->knn->pool, i))
			return gg_pool_poll(cells->knn->pool);
		if (gg_random_below(cells->knn->params->seed, i, n - i) < cells->npivots - taken)
			cells->pivots[taken++] = i;
	}
	/* they ascend: the regions are the first ones, and must be a random part of all */
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

/*
 * The centres from which distances are measured while assigning: each region, and the mean of
 * regions.
 */
static void
make_centres(cells_state *cells)
{
	uint32_t	dim = cells->knn->rows.dim;
	float	   *mean = cells->centres + (size_t) cells->nregions * dim;

	memset(mean, 0, sizeof(float) * dim);
	for (uint32_t r = 0; r < cells->nregions; r++)
	{
		float	   *centre = cells->centres + (size_t) r * dim;

		gg_rows_load(&cells->rows, cells->pivots[r], 0, dim, centre);
		for (uint32_t k = 0; k < dim; k++)
			mean[k] += centre[k] / (float) cells->nregions;
	}
}

static void
cells_sizes(const gg_knn *state, uint32_t *npivots, uint32_t *nregions)
{
	uint64_t	rows = (uint64_t) CELL_ROWS * gg_max_u32(state->k, 64) / 64;
	uint64_t	pivots = (uint64_t) GG_CELLS_OF_ROW * state->n / rows;

	*npivots = (uint32_t) (pivots < 2 * GG_CELLS_OF_ROW ? 2 * GG_CELLS_OF_ROW : pivots);
	/* nregions + npivots * PIVOT_REGIONS / nregions is least at the root; cells are uneven */
	*nregions = gg_max_u32((uint32_t) (1.2 * sqrt((double) PIVOT_REGIONS * *npivots)),
						2 * PIVOT_REGIONS);
	*nregions = gg_min_u32(*nregions, *npivots);
}

static gg_status
cells_assign(cells_state *cells)
{
	gg_knn	   *state = cells->knn;
	gg_pool    *pool = state->pool;
	uint64_t	blocks = (state->n + ASSIGN_ROWS - 1) / ASSIGN_ROWS;
	id_array	all = {NULL, state->n};
	gg_status	status;

	status = gg_lists_create(&cells->rows_regions, state->n, 1, false, NULL, NULL, pool);
	if (status.code == GG_OK)
		status = gg_pool_each(pool, rows_to_regions_run, cells, blocks, 1);
	if (status.code == GG_OK)
	{
		/* where distances overflow no region is near, but every row has to have a place */
		for (uint32_t row = 0; row < state->n; row++)
		{
			uint32_t   *region = cells->rows_regions.ids +
				(size_t) row * cells->rows_regions.stride;

			if (gg_pool_stopping(state->pool, row))
				break;			/* and so does what follows */
			if (*region == GG_NO_NODE)
				*region = row % cells->nregions;
		}
		status = invert(state, &cells->rows_regions, all, cells->nregions,
						&cells->region_rows_at, &cells->region_rows, false);
	}
	gg_lists_free(&cells->rows_regions, NULL, NULL);
	if (status.code != GG_OK)
		return status;

	status = gg_lists_create(&cells->pivots_regions, state->n,
							 gg_min_u32(PIVOT_REGIONS, cells->nregions), false, NULL, NULL, pool);
	if (status.code == GG_OK)
		status = gg_pool_each(pool, pivots_to_regions_run, cells,
							 (cells->npivots + ASSIGN_ROWS - 1) / ASSIGN_ROWS, 1);
	if (status.code == GG_OK)
		status = invert(state, &cells->pivots_regions,
						(id_array) {cells->pivots, cells->npivots}, cells->nregions,
						&cells->region_pivots_at, &cells->region_pivots, true);
	gg_lists_free(&cells->pivots_regions, NULL, NULL);
	if (status.code != GG_OK)
		return status;

	cells->tasks_at[0] = 0;
	for (uint32_t r = 0; r < cells->nregions; r++)
		cells->tasks_at[r + 1] = cells->tasks_at[r] + (cells->region_rows_at[r + 1] -
													   cells->region_rows_at[r] + ASSIGN_ROWS - 1) /
			ASSIGN_ROWS;
	status = gg_lists_create(&cells->rows_cells, state->n,
							 gg_min_u32(GG_CELLS_OF_ROW, cells->npivots), false, NULL, NULL, pool);
	if (status.code == GG_OK)
		status = gg_pool_each(pool, rows_to_cells_run, cells, cells->tasks_at[cells->nregions], 1);
	if (status.code == GG_OK)
		status = invert(state, &cells->rows_cells, all, cells->npivots, &cells->cells_at,
						&cells->cells, false);
	if (status.code == GG_OK)
	{
		state->npivots = cells->npivots;
		state->cells_of = gg_array((uint64_t) state->n * GG_CELLS_OF_ROW, sizeof(uint32_t));
		state->cell_bits = calloc((size_t) gg_pool_threads(pool), sizeof(*state->cell_bits));
		if (!state->cells_of || !state->cell_bits)
			status = gg_knn_no_memory(state);
		for (int t = 0; status.code == GG_OK && t < gg_pool_threads(pool); t++)
		{
			state->cell_bits[t] = calloc((size_t) state->npivots + 1, 1);
			if (!state->cell_bits[t])
				status = gg_knn_no_memory(state);
		}
	}
	for (uint32_t row = 0; status.code == GG_OK && row < state->n; row++)
	{
		if (gg_pool_stopping(state->pool, row))
			status = gg_pool_poll(pool);
		for (uint32_t i = 0; i < GG_CELLS_OF_ROW; i++)
		{
			uint32_t	cell = cells->rows_cells.ids[(size_t) row * cells->rows_cells.stride + i];

			state->cells_of[(size_t) row * GG_CELLS_OF_ROW + i] =
				cell == GG_NO_NODE ? cells->npivots : GG_ENTRY_ID(cell);
		}
	}
	gg_lists_free(&cells->rows_cells, NULL, NULL);
	return status;
}

gg_status
gg_knn_cells(gg_knn *state)
{
	cells_state cells = {.knn = state, .data = *state->rows.data, .rows = state->rows};
	gg_status	status = gg_ok();

	if (state->rows.directions)
	{
		cells.data.metric = GG_METRIC_COSINE;
		cells.rows.data = &cells.data;
		cells.rows.scale = state->rows.directions;
	}
	cells_sizes(state, &cells.npivots, &cells.nregions);
	cells.pivots = gg_array(cells.npivots, sizeof(uint32_t));
	cells.numbers = gg_array(cells.npivots, sizeof(uint32_t));
	cells.tasks_at = gg_array((uint64_t) cells.npivots + 1, sizeof(uint64_t));
	if (state->rows.data->metric != GG_METRIC_L1)
		cells.centres = gg_array(((uint64_t) cells.nregions + 1) * state->rows.dim, sizeof(float));
	if (!cells.pivots || !cells.numbers || !cells.tasks_at ||
		(!cells.centres && state->rows.data->metric != GG_METRIC_L1))
		status = gg_knn_no_memory(state);
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
		status = gg_pool_each(state->pool, cells_run, &cells, cells.tasks_at[cells.npivots], 1);
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

/* What gg_knn_cells() and cells_assign() allocate: assigned rows, then cells and lists. */
void
gg_knn_cells_bytes(const gg_knn *state, const gg_dataset *data, int threads, uint64_t *peak,
				   uint64_t *left)
{
	uint64_t	n = state->n;
	uint32_t	dim = data->dim;
	uint32_t	npivots,
				nregions;

	cells_sizes(state, &npivots, &nregions);
	*left = n * sizeof(uint32_t) * (1 + GG_CELLS_OF_ROW) + (uint64_t) threads * npivots;
	*peak = *left + n * sizeof(uint32_t) * GG_CELLS_OF_ROW;
	*peak += npivots * (2 * sizeof(uint32_t) + 2 * sizeof(uint64_t) +
						PIVOT_REGIONS * sizeof(uint32_t));
	*peak += sizeof(float) * dim * ((uint64_t) nregions + 1);
	*peak += n * (sizeof(float) + GG_LIST_STRIDE(GG_CELLS_OF_ROW) * (sizeof(uint32_t) +
																	 sizeof(float)));
}

void
gg_knn_shared(const gg_knn *state, int thread, uint32_t node, const uint32_t *ids, uint32_t m,
			  uint8_t *shared)
{
	uint8_t    *bits = state->cell_bits[thread];
	const uint32_t *own = state->cells_of + (size_t) node * GG_CELLS_OF_ROW;

	for (uint32_t i = 0; i < GG_CELLS_OF_ROW; i++)
		bits[own[i]] = (uint8_t) (1u << i);
	bits[state->npivots] = 0;
	for (uint32_t j = 0; j < m; j++)
	{
		const uint32_t *cells = state->cells_of + (size_t) ids[j] * GG_CELLS_OF_ROW;

		shared[j] = 0;
		for (uint32_t i = 0; i < GG_CELLS_OF_ROW; i++)
			shared[j] |= bits[cells[i]];
	}
	for (uint32_t i = 0; i < GG_CELLS_OF_ROW; i++)
		bits[own[i]] = 0;
}
