/*
 * cells.cu
 *		Pivot cells: each row goes to its nearest pivots, and rows that share a pivot are
 *		compared with each other.
 *
 * One kernel does all of it.  join_kernel takes work items "rows A against rows B" and keeps, for
 * every row of A, the `keep` smallest keys in the row's list:
 *	- assignment: A = rows, B = pivots, keep = slots (GG_SLOTS nearest pivots of each row);
 *	- assignment in two levels: A = rows of a coarse cell, B = pivots of that cell;
 *	- join: A = rows in slot s of a cell, B = all members of the cell, keep = list length;
 *	- a small set whole: A = B = all rows.
 *
 * A row is in A of one item per launch, so its list has one writer: no locks, no atomics on lists.
 * Slots are launched one after the other, nearest pivots first; the later ones then meet full lists
 * with a tight threshold and insert little.
 *
 * Mapping: one block per item, 64 rows of A at a time against 128 of B (tile.cuh), three stages of
 * cp.async.  A sum below its row's threshold goes to the row's buffer in shared memory; once a
 * buffer holds more than 32 of its 64 keys a warp merges it into the list in memory and lowers
 * the threshold, and what found the buffer full tries again.  Shared memory: 3 x 24 KB of stages,
 * 32 KB of buffers: two blocks per multiprocessor.  Where a block has 99 KB, two stages do.
 *
 * Arithmetic for 1M x 128 and 15,625 pivots: assignment in two levels 0.6 TFLOP (4.0 in one), joins
 * 1.7 TFLOP.
 *
 * Tried: thresholds and norms read for each distance, buffers checked after each quarter of a tile:
 * 12% slower for 1M x 128.
 *
 * Under inner product cells are of rows of one direction, whose longest are the best of the others;
 * and the GG_LONGEST_ROWS longest rows are compared with all: A = rows, B = these.  Each warp finds
 * the longest of its rows by their norms, and the host the longest of all warps' lists.
 *
 * Oracle: exact neighbours by recall (test_cuda_build.c); exact for GG_EXACT_MAX_ROWS and fewer.
 */
#include "../../src/engine/rules/algorithms.h"
#include "list.cuh"
#include "tile.cuh"

#include <algorithm>

#define STAGES 3				/* two where shared memory is short */
#define STAGE_BYTES ((GG_TILE_ROWS + GG_TILE_COLUMNS) * GG_TILE_PITCH)
#define BUFFER 64				/* keys per row; merged when half full */
#define TILE_RING 4				/* tiles whose ids and norms are at hand: one more than stages */
#define JOIN_SHARED(stages) ((stages) * STAGE_BYTES + GG_TILE_ROWS * BUFFER * 8)
#define JOIN_STATIC (8 * 1024)	/* more than join_kernel has of static shared memory */

/*
 * Cells: GG_SLOTS nearest pivots per row, CELL_ROWS members per cell in the mean.  Of the true 10
 * nearest neighbours 99.3% share a cell at 8 slots and 490 members, for 6,500 distances per row.
 */
#define GG_SLOTS 8
#define CELL_ROWS 512
/*
 * A cell above this is split by a hash: joins cost its square.  Mean members weighted by size: 900.
 */
#define CELL_MAX_ROWS 4096
/*
 * Above this many pivots (524,000 rows) they get cells of their own, COARSE_PIVOT_SLOTS each, and
 * rows look only at COARSE_SLOTS of these.  At 32,768 / 8,192 / 2,048 on one H200 the start of a
 * build takes 0.11 / 0.08 / 0.08 s (1M x 128) and 0.24 / 0.13 / 0.13 s (1M x 768); recall@10 of
 * searches is 0.9990 / 0.9991 / 0.9991 and 0.9974 each time.
 *
 * At 4, 2 / 4, 4 / 4, 8 / 4, 16 slots (of rows, of pivots) first lists after one iteration have
 * recall@10 0.9926 / 0.9951 / 0.9962 / 0.9969 (1M x 128) and 0.9813 / 0.9875 / 0.9908 / 0.9915
 * (10M x 96), and a build but for its connection takes 0.122 / 0.124 / 0.123 / 0.125 s and 1.23 /
 * 1.26 / 1.29 / 1.36 s.  Walks of 64 lose rows whose cluster has no pivot: 85 / 2 / 0 / 0 of
 * 1M x 128 in 10,000 clusters, 198 / 150 / 56 / 0 of 4M in 40,000.
 */
#define DIRECT_PIVOTS 8192
#define COARSE_SLOTS 4
#define COARSE_PIVOT_SLOTS 16

/* One block's work: positions in the A and B index arrays. */
typedef struct join_item
{
	uint64_t	a_begin;
	uint64_t	b_begin;
	uint32_t	a_count;		/* 1 .. GG_TILE_ROWS */
	uint32_t	b_count;
} join_item;

typedef struct join_args
{
	gg_cuda_rows a;
	gg_cuda_rows b;
	const uint32_t *a_index;	/* row of a at a position; NULL: the position itself */
	const uint32_t *b_index;
	const join_item *items;
	const uint32_t *nitems;		/* in device memory */
	uint64_t   *lists;			/* by row of a */
	uint32_t	keep;			/* entries of a list that count, <= 32 * R */
	/* of each item's rows of B this launch takes `columns`, from first_column on */
	uint32_t	first_column;
	uint32_t	columns;
	bool		same;			/* a is b: a row is not its own neighbour */
	const uint8_t *parts;		/* of a's rows, which are b's, or NULL; see gg_cuda_parts */
	uint32_t	stages;			/* 2 or 3 */
} join_args;

/*
 * A block's shared memory.
 *
 *	dynamic		stages x 24,576		a chunk's 64 rows of A, then 128 of B (tile.cuh)
 *				64 x 64 x 8			buffers: keys that wait, for each row of A
 *	static		64 x 16, 4 x 128 x 8	join_shared
 */
struct join_shared
{
	uint64_t	threshold[GG_TILE_ROWS];	/* only keys below it go into the row's list */
	uint32_t	waiting[GG_TILE_ROWS];	/* keys of the buffer, and those that found it full */
	uint32_t	a_ids[GG_TILE_ROWS];
	uint32_t	b_ids[TILE_RING][GG_TILE_COLUMNS];	/* GG_NO_NODE beyond the last column */
	alignas(8) float b_norms[TILE_RING][GG_TILE_COLUMNS];
};

/* What the threads of a block have in common. */
struct join_block
{
	join_item	item;			/* only the columns of this launch */
	uint32_t	nchunks;		/* of a row, GG_TILE_QUADS quads each */
	uint32_t	ntiles;
	char	   *stages;
	uint64_t   *buffers;
	join_shared *shared;
};

/* What a thread copies: quad tid % 8 of rows tid / 8 + 32 i of A, and of each tile of B. */
struct join_loader
{
	uint32_t	quad;
	uint32_t	row;
	const char *a_source[2];
	const char *b_source[4];
	/* of the tile after the one being loaded: their latency is hidden too */
	uint32_t	next_ids[4];
	/* what is loaded next, and where to */
	uint32_t	tile;
	uint32_t	chunk;
	uint32_t	stage;
};

/* Sets up the rows of A: ids, thresholds, empty buffers. */
template <int R>
static __device__ __forceinline__ void
join_begin(const join_args &args, const join_block &block)
{
	const uint32_t tid = threadIdx.x;

	if (tid < GG_TILE_ROWS)
	{
		const uint64_t at = block.item.a_begin + min(tid, block.item.a_count - 1);
		const uint32_t id = args.a_index != NULL ? args.a_index[at] : (uint32_t) at;

		block.shared->a_ids[tid] = id;
		block.shared->waiting[tid] = 0;
		/* rows beyond the item take nothing */
		block.shared->threshold[tid] = tid < block.item.a_count ?
			args.lists[(uint64_t) id * (32 * R) + args.keep - 1] : 0;
	}
	__syncthreads();
}

static __device__ __forceinline__ void
join_read_ids(const join_args &args, const join_block &block, uint32_t tile, join_loader &loader)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
	{
		const uint32_t column = tile * GG_TILE_COLUMNS + loader.row + 32 * i;
		const uint64_t at = block.item.b_begin + column;

		loader.next_ids[i] = column >= block.item.b_count ? GG_NO_NODE :
			args.b_index != NULL ? args.b_index[at] : (uint32_t) at;
	}
}

/* A tile of B begins: notes where its rows are, and puts its ids and norms into the ring. */
static __device__ __forceinline__ void
join_load_tile(const join_args &args, const join_block &block, join_loader &loader)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
	{
		const uint32_t id = loader.next_ids[i];
		const uint32_t column = loader.row + 32 * i;

		/* beyond the last column: nothing is read, and the id says so */
		loader.b_source[i] = id == GG_NO_NODE ? NULL :
			args.b.rows + (uint64_t) id * args.a.quads * 16 + loader.quad * 16;
		if (loader.quad == 0)
		{
			block.shared->b_ids[loader.tile % TILE_RING][column] = id;
			if (id != GG_NO_NODE)
				gg_copy_async_4(&block.shared->b_norms[loader.tile % TILE_RING][column],
								&args.b.norms[id]);
		}
	}
	join_read_ids(args, block, loader.tile + 1, loader);
}

/* Copies the next chunk to its stage, if there is one. */
static __device__ __forceinline__ void
join_load(const join_args &args, const join_block &block, join_loader &loader)
{
	if (loader.tile < block.ntiles)
	{
		char	   *stage = block.stages + loader.stage * STAGE_BYTES;

		if (loader.chunk == 0)
			join_load_tile(args, block, loader);
		if (loader.chunk * GG_TILE_QUADS + loader.quad < args.a.quads)
		{
			const uint64_t offset = (uint64_t) loader.chunk * GG_TILE_PITCH;

#pragma unroll
			for (int i = 0; i < 2; i++)
				gg_copy_async(stage + gg_tile_offset(loader.row + 32 * i, loader.quad),
							  loader.a_source[i] + offset);
#pragma unroll
			for (int i = 0; i < 4; i++)
				if (loader.b_source[i] != NULL)
					gg_copy_async(stage + gg_tile_offset(GG_TILE_ROWS + loader.row + 32 * i,
														 loader.quad), loader.b_source[i] + offset);
		}
		if (++loader.chunk == block.nchunks)
		{
			loader.chunk = 0;
			loader.tile++;
		}
		loader.stage = loader.stage + 1 == args.stages ? 0 : loader.stage + 1;
	}
	gg_copy_commit();
}

/* Where the thread's copies come from. */
static __device__ __forceinline__ void
join_load_begin(const join_args &args, const join_block &block, join_loader &loader)
{
	loader.quad = threadIdx.x & 7;
	loader.row = threadIdx.x / 8;
	loader.tile = loader.chunk = loader.stage = 0;
	join_read_ids(args, block, 0, loader);
#pragma unroll
	for (int i = 0; i < 2; i++)
		loader.a_source[i] = args.a.rows +
			(uint64_t) block.shared->a_ids[loader.row + 32 * i] * args.a.quads * 16 +
			loader.quad * 16;
#pragma unroll
	for (int i = 0; i < 4; i++)
		loader.b_source[i] = NULL;
}

/* A warp merges a row's buffer into its list. */
template <int R>
static __device__ __forceinline__ void
join_merge_row(const join_args &args, const join_block &block, uint32_t row)
{
	join_shared *shared = block.shared;
	uint64_t   *list = args.lists + (uint64_t) shared->a_ids[row] * (32 * R);

	gg_merge<R>(list, block.buffers + row * BUFFER, min(shared->waiting[row], (uint32_t) BUFFER));
	if ((threadIdx.x & 31) == 0)
	{
		shared->waiting[row] = 0;
		shared->threshold[row] = list[args.keep - 1];
	}
}

/*
 * The sums of a tile that is done become distances.  Returns those that may pass, by the distance
 * alone: thresholds only fall, so one read of each is enough.  Bit 8 ni + 4 j + i is column
 * 8 ni + j and row 8 i of this thread's.
 */
template <gg_cuda_kind KIND>
static __device__ __forceinline__ uint32_t
join_near(const join_block &block, uint32_t tile, const float (&norm_a)[4], gg_tile_sums &sums)
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t wm = threadIdx.x / 32 & 1;
	const uint32_t wn = threadIdx.x / 64;
	uint32_t	pending = 0;
	uint32_t	high[4];

#pragma unroll
	for (int i = 0; i < 4; i++)
		high[i] = (uint32_t) (block.shared->threshold[wm * 32 + i * 8 + lane / 4] >> 32);
#pragma unroll
	for (int ni = 0; ni < 4; ni++)
	{
		const float2 norm_b = *(const float2 *)
			&block.shared->b_norms[tile % TILE_RING][wn * 32 + ni * 8 + lane % 4 * 2];

#pragma unroll
		for (int j = 0; j < 2; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
			{
				float	   &sum = sums[i / 2][ni][i % 2 * 2 + j];

				sum = gg_tile_distance<KIND>(sum, norm_a[i], j == 0 ? norm_b.x : norm_b.y);
				if (__float_as_uint(sum) <= high[i])
					pending |= 1u << (ni * 8 + j * 4 + i);
			}
	}
	return pending;
}

/*
 * Puts pending distances into the buffers of their rows; those that find theirs full stay pending.
 * Returns whether a buffer is to be merged.
 */
static __device__ __forceinline__ bool
join_fill(const join_args &args, const join_block &block, uint32_t tile, const gg_tile_sums &sums,
		  uint32_t &pending)
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t wm = threadIdx.x / 32 & 1;
	const uint32_t wn = threadIdx.x / 64;
	join_shared *shared = block.shared;
	uint32_t	left = 0;
	bool		full = false;

	if (pending == 0)
		return false;
#pragma unroll
	for (int bit = 0; bit < 32; bit++)
		if (pending >> bit & 1)
		{
			const uint32_t row = wm * 32 + bit % 4 * 8 + lane / 4;
			const uint32_t id = shared->b_ids[tile % TILE_RING][wn * 32 + bit / 8 * 8 +
																lane % 4 * 2 + bit / 4 % 2];
			const float sum = sums[bit % 4 / 2][bit / 8][bit % 2 * 2 + bit / 4 % 2];
			const uint64_t key = gg_key(sum, id, 1);

			if (id != GG_NO_NODE && key < shared->threshold[row] &&
				!(args.same && id == shared->a_ids[row]) &&
				!(args.parts != NULL && args.parts[id] != 0 &&
				  args.parts[id] == args.parts[shared->a_ids[row]]))
			{
				const uint32_t slot = atomicAdd(&shared->waiting[row], 1);

				if (slot < BUFFER)
					block.buffers[row * BUFFER + slot] = key;
				else
					left |= 1u << bit;
				full |= slot >= BUFFER / 2;
			}
		}
	pending = left;
	return full;
}

template <gg_cuda_kind KIND, int R>
static __global__ void __launch_bounds__(GG_TILE_THREADS, 2)
join_kernel(join_args args, uint32_t first_item)
{
	extern __shared__ char shared[];
	__shared__ join_shared of_rows;
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t warp = threadIdx.x / 32;
	const uint32_t wm = warp & 1;
	const uint32_t wn = warp / 2;

	if (first_item + blockIdx.x >= *args.nitems)
		return;
	join_item	item = args.items[first_item + blockIdx.x];

	if (args.first_column >= item.b_count)
		return;
	item.b_begin += args.first_column;
	item.b_count = min(item.b_count - args.first_column, args.columns);

	const uint32_t quads = args.a.quads;
	const join_block block = {
		.item = item,
		.nchunks = (quads + GG_TILE_QUADS - 1) / GG_TILE_QUADS,
		.ntiles = (item.b_count + GG_TILE_COLUMNS - 1) / GG_TILE_COLUMNS,
		.stages = shared,
		.buffers = (uint64_t *) (shared + args.stages * STAGE_BYTES),
		.shared = &of_rows,
	};
	const uint64_t steps = (uint64_t) block.ntiles * block.nchunks;
	join_loader loader;
	gg_tile_sums sums;
	float		norm_a[4];
	uint32_t	chunk = 0;
	uint32_t	tile = 0;
	uint32_t	stage = 0;

	join_begin<R>(args, block);
	join_load_begin(args, block, loader);
#pragma unroll
	for (int i = 0; i < 4; i++)
		norm_a[i] = args.a.norms[of_rows.a_ids[wm * 32 + i * 8 + lane / 4]];
	gg_tile_clear(sums);
	for (uint32_t i = 0; i < args.stages - 1; i++)
		join_load(args, block, loader);

	for (uint64_t step = 0; step < steps; step++)
	{
		if (args.stages == STAGES)
			gg_copy_wait<STAGES - 2>();
		else
			gg_copy_wait<0>();
		__syncthreads();
		join_load(args, block, loader);
		gg_tile_add<KIND>(sums, shared + stage * STAGE_BYTES,
						  shared + stage * STAGE_BYTES + GG_TILE_ROWS * GG_TILE_PITCH,
						  min(quads - chunk * GG_TILE_QUADS, (uint32_t) GG_TILE_QUADS), wm, wn);
		stage = stage + 1 == args.stages ? 0 : stage + 1;
		if (++chunk < block.nchunks)
			continue;
		chunk = 0;

		uint32_t	pending = join_near<KIND>(block, tile, norm_a, sums);

		for (;;)
		{
			const bool	full = join_fill(args, block, tile, sums, pending);

			if (!__syncthreads_or(full))
				break;
			for (uint32_t row = warp; row < GG_TILE_ROWS; row += GG_TILE_THREADS / 32)
				if (of_rows.waiting[row] > BUFFER / 2)
					join_merge_row<R>(args, block, row);
			if (!__syncthreads_or(pending != 0))
				break;
		}
		gg_tile_clear(sums);
		tile++;
	}

	gg_copy_wait<0>();
	__syncthreads();
	for (uint32_t row = warp; row < item.a_count; row += GG_TILE_THREADS / 32)
		if (of_rows.waiting[row] > 0)
			join_merge_row<R>(args, block, row);
}

/*
 * Launch items [0, bound) of args, in slices of some 20 ms; no item has more than most_columns rows
 * of B.
 *
 * One block runs from its first column to its last, and two share a multiprocessor, so long rows
 * against many columns are launched in ranges of columns as well: 16,000 dimensions of L1 against
 * 16,384 rows would else take some 0.3 s in which nobody asks whether to stop.  Ordinary shapes are
 * one range.
 *
 * Beside searches a block takes 0.5 ms at most by the same measure.  Searches go first, but only
 * where a block has ended, and one that takes a cluster waits for several.
 */
static gg_status
join(const join_args *whole, uint32_t length, uint32_t bound, uint64_t mean_columns,
	 uint32_t most_columns, cudaStream_t stream, const gg_control *control)
{
	join_args	args = *whole;
	const bool	halves = gg_cuda_halves(args.a.kind);
	const uint32_t elements = args.a.quads * (halves ? 8 : 4);
	/* one item: 64 x columns x dim multiply-adds, at a pessimistic 50 TFLOP/s (fp32: 5) a chip */
	const double rate = halves ? 5e13 : 5e12;
	const double column_s = 2.0 * GG_TILE_ROWS * elements / rate;
	/* seconds of a block, which has 1 / 264 of the chip; but a range has 1,024 columns at least */
	const double block_s = control != NULL && control->background ? 0.0005 : 0.04;
	const double widest = block_s / 264 / column_s;
	const uint32_t range = widest > 1e9 ? 1000000000 : widest < 1024 ? 1024 :
		(uint32_t) widest / GG_TILE_COLUMNS * GG_TILE_COLUMNS;
	const double item_s = column_s * ((mean_columns < range ? (double) mean_columns :
									   range) + GG_TILE_COLUMNS);
	const double fit = 0.02 / item_s;
	const uint32_t slice = (uint32_t) gg_cuda_cut(fit > 1e6 ? 1000000 : fit < 64 ? 64 :
												  (uint64_t) fit, control);
	gg_cuda_limits limits = {};
	gg_cuda_pace pace;
	int			device = 0;
	uint32_t	shared;

	GG_CUDA_TRY(cudaGetDevice(&device));
	GG_TRY(gg_cuda_device_limits(device, &limits));
	args.stages = JOIN_SHARED(STAGES) + JOIN_STATIC <= limits.shared_bytes ? STAGES : STAGES - 1;
	shared = JOIN_SHARED(args.stages);
	GG_TRY(pace.create());
	args.columns = range;
	for (uint32_t first = 0; first < bound; first += slice)
	{
		const uint32_t blocks = gg_cuda_slice(bound, first, slice);

		for (uint64_t column = 0; column < most_columns; column += range)
		{
			args.first_column = (uint32_t) column;
			GG_SWITCH_KIND(args.a.kind, GG_SWITCH_LENGTH(length,
				GG_CUDA_TRY(cudaFuncSetAttribute(join_kernel<KIND, R>,
												 cudaFuncAttributeMaxDynamicSharedMemorySize,
												 shared));
				(join_kernel<KIND, R><<<blocks, GG_TILE_THREADS, shared, stream>>>
				 (args, first))));
			GG_CUDA_LAUNCHED("join_kernel");
			GG_TRY(pace.step(stream, control, __func__));
		}
	}
	return gg_cuda_drain(stream, control, __func__);
}

/* ---- work items ------------------------------------------------------------ */

/* All of a against all of b. */
static __global__ void
whole_items_kernel(uint32_t na, uint32_t nb, join_item *items, uint32_t *nitems)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
	const uint32_t count = (na - 1) / GG_TILE_ROWS + 1;

	if (i == 0)
		*nitems = count;
	if (i < count)
		items[i] = {(uint64_t) i * GG_TILE_ROWS, 0,
					min(na - i * GG_TILE_ROWS, (uint32_t) GG_TILE_ROWS), nb};
}

/* Of gg_cuda_cells, where the members of each cell are. */
typedef struct cell_starts
{
	const uint64_t *at;			/* cells x slots, and the end */
	uint32_t	slots;
} cell_starts;

/*
 * Rows of slot `slot` of each cell against the members of the same cell in b.  The order of items
 * follows the order of threads here, which decides nothing.
 */
static __global__ void
cell_items_kernel(uint32_t ncells, cell_starts a, uint32_t slot, cell_starts b, join_item *items,
				  uint32_t *nitems)
{
	const uint32_t cell = blockIdx.x * blockDim.x + threadIdx.x;

	if (cell >= ncells)
		return;
	const uint64_t a_begin = a.at[(uint64_t) cell * a.slots + slot];
	const uint64_t a_end = a.at[(uint64_t) cell * a.slots + slot + 1];
	const uint64_t b_begin = b.at[(uint64_t) cell * b.slots];
	const uint64_t b_end = b.at[(uint64_t) (cell + 1) * b.slots];

	if (a_begin == a_end || b_begin == b_end)
		return;
	const uint32_t count = (uint32_t) ((a_end - a_begin + GG_TILE_ROWS - 1) / GG_TILE_ROWS);
	const uint32_t base = atomicAdd(nitems, count);

	for (uint32_t i = 0; i < count; i++)
	{
		const uint64_t begin = a_begin + (uint64_t) i * GG_TILE_ROWS;

		items[base + i] = {begin, b_begin, (uint32_t) min(a_end - begin, (uint64_t) GG_TILE_ROWS),
		(uint32_t) (b_end - b_begin)};
	}
}

/* ---- assignment ------------------------------------------------------------------ */

/* One random id of each of count equal ranges of 0 .. n-1: distinct, and spread over the table. */
static __global__ void
random_ids_kernel(uint32_t n, uint32_t count, uint32_t seed, uint32_t *ids)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= count)
		return;
	const uint64_t begin = (uint64_t) i * n / count;
	const uint64_t end = (uint64_t) (i + 1) * n / count;

	ids[i] = (uint32_t) (begin + gg_mix(i ^ seed) % (end - begin));
}

gg_status
gg_cuda_random_ids(uint32_t n, uint32_t count, uint64_t seed, cudaStream_t stream, uint32_t *ids)
{
	random_ids_kernel<<<gg_cuda_blocks(count, 256), 256, 0, stream>>>
		(n, count, gg_mix((uint32_t) seed) ^ (uint32_t) (seed >> 32), ids);
	GG_CUDA_LAUNCHED("random_ids_kernel");
	return gg_ok();
}

static gg_status
clear_lists(uint64_t *lists, uint64_t count, cudaStream_t stream)
{
	GG_CUDA_TRY(cudaMemsetAsync(lists, 0xFF, count * sizeof(uint64_t), stream));
	return gg_ok();
}

/* What all items of a join have in common; keep: entries of the lists that count. */
static join_args
join_of(const gg_cuda_rows *a, const gg_cuda_rows *b, uint32_t keep, uint64_t *lists)
{
	join_args	args = {};

	args.a = *a;
	args.b = *b;
	args.lists = lists;
	args.keep = keep;
	return args;
}

/* The same among all rows of a set; parts may be NULL. */
static join_args
join_among(const gg_cuda_rows *rows, uint32_t length, const gg_cuda_parts *parts, uint64_t *lists)
{
	join_args	args = join_of(rows, rows, parts != NULL ? parts->k : length, lists);

	args.same = true;
	args.parts = parts != NULL ? parts->of : NULL;
	return args;
}

/* Every row of a against every row of b. */
static gg_status
join_all(join_args args, uint32_t length, const gg_cuda_run &run)
{
	const uint32_t na = args.a.n;
	const uint32_t nb = args.b.n;
	const uint32_t bound = gg_cuda_blocks(na, GG_TILE_ROWS);
	gg_cuda_buffer<join_item> items;
	gg_cuda_buffer<uint32_t> nitems;

	GG_TRY(items.allocate(bound));
	GG_TRY(nitems.allocate(1));
	whole_items_kernel<<<gg_cuda_blocks(bound, 256), 256, 0, run.stream>>>
		(na, nb, items.get(), nitems.get());
	GG_CUDA_LAUNCHED("whole_items_kernel");
	args.items = items.get();
	args.nitems = nitems.get();
	return join(&args, length, bound, nb, nb, run.stream, run.control);
}

/* The keep nearest rows of b for every row of a, every pair compared. */
gg_status
gg_cuda_join_whole(const gg_cuda_rows *a, const gg_cuda_rows *b, bool same, uint32_t length,
				   uint32_t keep, const gg_cuda_run &run, uint64_t *lists)
{
	join_args	args = join_of(a, b, keep, lists);

	args.same = same;
	GG_TRY(clear_lists(lists, (uint64_t) a->n * length, run.stream));
	return join_all(args, length, run);
}

/* Every slot of every cell of a against the same cell of b; phase: for its progress, or -1. */
static gg_status
join_cells(join_args args, const gg_cuda_cells *a_cells, const gg_cuda_cells *b_cells,
		   uint32_t length, const gg_cuda_run &run, int phase)
{
	const uint32_t na = args.a.n;
	const uint64_t bound = (uint64_t) a_cells->ncells + na / GG_TILE_ROWS + 1;
	const cell_starts a_starts = {a_cells->starts.get(), a_cells->slots};
	const cell_starts b_starts = {b_cells->starts.get(), b_cells->slots};
	gg_cuda_buffer<join_item> items;
	gg_cuda_buffer<uint32_t> nitems;

	GG_TRY(items.allocate(bound));
	GG_TRY(nitems.allocate(1));
	args.a_index = a_cells->members.get();
	args.b_index = b_cells->members.get();
	args.items = items.get();
	args.nitems = nitems.get();
	for (uint32_t slot = 0; slot < a_cells->slots; slot++)
	{
		GG_CUDA_TRY(cudaMemsetAsync(nitems.get(), 0, sizeof(uint32_t), run.stream));
		cell_items_kernel<<<gg_cuda_blocks(a_cells->ncells, 256), 256, 0, run.stream>>>
			(a_cells->ncells, a_starts, slot, b_starts, items.get(), nitems.get());
		GG_CUDA_LAUNCHED("cell_items_kernel");
		GG_TRY(join(&args, length, (uint32_t) bound,
					2 * (uint64_t) args.b.n * b_cells->slots / b_cells->ncells, b_cells->largest,
					run.stream, run.control));
		if (phase >= 0)
			gg_cuda_progress(run.control, (gg_phase) phase,
							 (uint64_t) na * (slot + 1) / a_cells->slots, na);
	}
	return gg_ok();
}

/*
 * lists (n x 32): the GG_SLOTS nearest of the pivots for every row.  With many pivots a row looks
 * only at those that lie in the same cells around every 30th or so pivot: 2,465 distances a row
 * over 1M rows instead of 15,626.
 */
static gg_status
assign(const gg_cuda_rows *rows, const gg_cuda_rows *pivots, const gg_cuda_run &run,
	   uint64_t *lists)
{
	if (pivots->n <= DIRECT_PIVOTS)
		return gg_cuda_join_whole(rows, pivots, false, 32, GG_SLOTS, run, lists);

	uint32_t	ncoarse = 256;
	gg_cuda_buffer<uint32_t> ids;
	gg_cuda_working_copy coarse;
	gg_cuda_cells row_cells;
	gg_cuda_cells pivot_cells;

	/* about 4 sqrt(pivots): the pivots then cost a row some four times what the coarse ones do */
	while ((uint64_t) ncoarse * ncoarse < 8 * (uint64_t) pivots->n)
		ncoarse *= 2;
	GG_TRY(ids.allocate(ncoarse, run.meter));
	GG_TRY(gg_cuda_random_ids(pivots->n, ncoarse, 1, run.stream, ids.get()));
	GG_TRY(gg_cuda_working_copy_gather(pivots, ids.get(), ncoarse, run.stream, run.meter, &coarse));
	GG_TRY(gg_cuda_level_rows(&coarse, ncoarse, run.stream));
	{
		gg_cuda_buffer<uint64_t> pivot_lists;

		GG_TRY(pivot_lists.allocate((uint64_t) pivots->n * 32, run.meter));
		GG_TRY(gg_cuda_join_whole(pivots, &coarse.view, false, 32, COARSE_PIVOT_SLOTS, run,
								  pivot_lists.get()));
		GG_TRY(gg_cuda_sort_into_cells({pivot_lists.get(), 32, COARSE_PIVOT_SLOTS}, pivots->n,
									   ncoarse, UINT32_MAX, run, &pivot_cells));
	}
	GG_TRY(gg_cuda_join_whole(rows, &coarse.view, false, 32, COARSE_SLOTS, run, lists));
	GG_TRY(gg_cuda_sort_into_cells({lists, 32, COARSE_SLOTS}, rows->n, ncoarse, UINT32_MAX, run,
								   &row_cells));
	GG_TRY(clear_lists(lists, (uint64_t) rows->n * 32, run.stream));
	return join_cells(join_of(rows, pivots, GG_SLOTS, lists), &row_cells, &pivot_cells, 32, run,
					  -1);
}

/* members of slot 0, cell after cell */
static __global__ void
order_kernel(const uint32_t *members, const uint64_t *starts, uint32_t slots, uint32_t *order,
			 uint32_t *count)
{
	const uint32_t cell = blockIdx.x;
	__shared__ uint32_t base;
	const uint64_t begin = starts[(uint64_t) cell * slots];
	const uint32_t size = (uint32_t) (starts[(uint64_t) cell * slots + 1] - begin);

	if (threadIdx.x == 0)
		base = atomicAdd(count, size);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < size; i += blockDim.x)
		order[base + i] = members[begin + i];
}

gg_status
gg_cuda_exact_lists(const gg_cuda_rows *rows, uint32_t length, const gg_cuda_parts *parts,
					const gg_cuda_run &run, uint64_t *lists)
{
	if (rows->n == 0)
		return gg_ok();
	if (parts == NULL)
		GG_TRY(clear_lists(lists, (uint64_t) rows->n * length, run.stream));
	return join_all(join_among(rows, length, parts, lists), length, run);
}

/* ---- the longest rows -------------------------------------------------------------- */

#define LONGEST_WARPS 256u		/* at most */

/* longest (warps x GG_LONGEST_ROWS keys): each warp's longest rows; it looks at 64 at a time. */
static __global__ void
longest_kernel(const float *norms, uint32_t n, uint64_t *longest)
{
	__shared__ uint64_t buffers[8][64];
	const uint32_t warp = blockIdx.x * 8 + threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;
	uint64_t   *buffer = buffers[threadIdx.x / 32];
	uint64_t   *list = longest + (uint64_t) warp * GG_LONGEST_ROWS;

	for (uint64_t begin = (uint64_t) warp * 64; begin < n; begin += (uint64_t) gridDim.x * 8 * 64)
	{
		const uint64_t last = list[GG_LONGEST_ROWS - 1];
		bool		any = false;

		for (uint32_t i = lane; i < 64; i += 32)
		{
			const uint32_t row = (uint32_t) begin + i;

			buffer[i] = row < n ? gg_key(gg_product_distance(norms[row]), row, 0) : GG_KEY_NONE;
			any |= buffer[i] < last;
		}
		__syncwarp();
		if (__any_sync(GG_FULL_WARP, any))
			gg_merge<GG_LONGEST_ROWS / 32>(list, buffer, 64);
	}
}

gg_status
gg_cuda_longest_lists(const gg_cuda_rows *all, uint32_t length, const gg_cuda_run &run,
					  uint64_t *lists)
{
	join_args	args = join_among(all, length, NULL, lists);
	const uint32_t n = all->n;
	const uint32_t blocks = std::min(gg_cuda_blocks(n, 8 * 64), LONGEST_WARPS / 8);
	const uint32_t count = std::min(n, GG_LONGEST_ROWS);
	std::vector<uint64_t> keys((size_t) blocks * 8 * GG_LONGEST_ROWS);
	gg_cuda_buffer<uint64_t> longest;
	gg_cuda_buffer<uint32_t> ids;
	uint32_t	rows[GG_LONGEST_ROWS];

	if (all->kind != GG_KIND_HALF_IP)
		return gg_ok();
	GG_TRY(longest.allocate(keys.size(), run.meter));
	GG_TRY(clear_lists(longest.get(), keys.size(), run.stream));
	longest_kernel<<<blocks, 256, 0, run.stream>>>(args.a.norms, n, longest.get());
	GG_CUDA_LAUNCHED("longest_kernel");
	GG_TRY(gg_cuda_copy_out(keys.data(), longest.get(), longest.bytes(), run.stream, run.control));
	std::partial_sort(keys.begin(), keys.begin() + count, keys.end());
	for (uint32_t i = 0; i < count; i++)
		rows[i] = (uint32_t) keys[i] >> 1;
	GG_TRY(ids.allocate(count, run.meter));
	GG_TRY(gg_cuda_copy_in(ids.get(), rows, ids.bytes(), run.stream, run.control));
	args.b.n = count;
	args.b_index = ids.get();
	return join_all(args, length, run);
}

gg_status
gg_cuda_cells_init(const gg_cuda_rows *rows, uint32_t length, uint64_t seed,
				   const gg_cuda_parts *parts, const gg_cuda_run &run, uint64_t *lists,
				   uint32_t *order)
{
	const uint32_t npivots = (uint32_t) ((uint64_t) rows->n * GG_SLOTS / CELL_ROWS) + 1;
	gg_cuda_buffer<uint32_t> ids;
	gg_cuda_buffer<uint32_t> count;
	gg_cuda_buffer<uint64_t> nearest;
	gg_cuda_working_copy pivots;
	gg_cuda_cells cells;

	GG_TRY(ids.allocate(npivots, run.meter));
	GG_TRY(gg_cuda_random_ids(rows->n, npivots, seed, run.stream, ids.get()));
	GG_TRY(gg_cuda_working_copy_gather(rows, ids.get(), npivots, run.stream, run.meter, &pivots));
	GG_TRY(gg_cuda_level_rows(&pivots, npivots, run.stream));
	GG_TRY(gg_cuda_allocate_large(&nearest, (uint64_t) rows->n * 32, run.control, run.meter));
	GG_TRY(assign(rows, &pivots.view, run, nearest.get()));
	GG_TRY(gg_cuda_sort_into_cells({nearest.get(), 32, GG_SLOTS}, rows->n, npivots, CELL_MAX_ROWS,
								   run, &cells));
	GG_TRY(gg_cuda_give_back(run.control, __func__, nearest));
	if (order != NULL)
	{
		GG_TRY(count.allocate(1));
		GG_CUDA_TRY(cudaMemsetAsync(count.get(), 0, sizeof(uint32_t), run.stream));
		order_kernel<<<cells.ncells, 64, 0, run.stream>>>
			(cells.members.get(), cells.starts.get(), cells.slots, order, count.get());
		GG_CUDA_LAUNCHED("order_kernel");
	}
	if (parts == NULL)
	{
		GG_TRY(clear_lists(lists, (uint64_t) rows->n * length, run.stream));
		GG_TRY(gg_cuda_longest_lists(rows, length, run, lists));
	}
	return join_cells(join_among(rows, length, parts, lists), &cells, &cells, length, run,
					  GG_PHASE_KNN_INIT);
}
