/*
 * pivots.cu
 *		The best pivots of many queries: a matrix product with its top-16 fused.
 *
 * Shapes		queries nq x dim float32, pivots npivots x dim fp16 -> entries nq x slices x
 *				ENTRY_NODES keys, each slice's ascending, GG_KEY_NONE at the end.
 * Requires		view.path == WALK_HALF_DOT; 1 <= slices <= PIVOT_MAX_SLICES.  With codes the view
 *				is one of the pivots alone (codes.h, search_code_pivots_launch()), and queries are
 *				rotated.
 * Mapping		A block takes TILE_QUERIES queries and one slice of the pivots, TILE_PIVOTS of them
 *				at a time; 8 warps as 2 x 4, each 32 x 32 of the product by mma, operands through
 *				shared memory in chunks of TILE_DEPTH halves (cp.async), STAGES of them, which are
 *				read ahead from one tile into the next.  A thread has sums of 4 queries and of 8
 *				pivots of a tile.  Of a run of tiles it keeps the KEPT nearest pivots of each query,
 *				in registers.  At the end of a run a warp per query sorts what the query's 16
 *				threads kept, and merges the best 16 into the slice's.
 * Shared		3 x (64 + 128) x 128 bytes of operands, 64 x 64 words of a run's best: 88 KB.
 * Precision	The query is rounded to fp16 here, once (the walk keeps 22 bits), and a distance to
 *				14 bits of mantissa, so that the pivot's number fits beside it in a word: it only
 *				decides which pivots a walk starts from, and the walk measures them again.
 * Loss			A pivot is lost that comes after KEPT others among the 32 that its thread sees of
 *				the run.  The nearest KEPT of all never are, and neighbours in the list of pivots
 *				are not seen by one thread.  Of the best 16 these are 0.04 in the mean with 512
 *				pivots in random order, and 0.0001 with 3,000, by arithmetic.  Runs do not depend on
 *				slices, so what is chosen does not depend on the batch.
 * Oracle		scoring all pivots in the walk (search_multi.cu without entries): at least 14 of
 *				the 16 in common, and the search's recall unchanged.
 * Cost			10,000 x 4,096 x 128: 10 GFLOP.  At 128 dimensions choosing takes more
 *				instructions than the product: some 17 per distance.
 * Tried		Scores in shared memory and a warp per query that inserts what is below the 16th
 *				best so far, with two buffers: 256 pivots instead of all made batches of 10,000 over
 *				1M x 128 a sixth faster (8.94M and 10.38M queries/s at recall 0.99, intrinsic
 *				dimension 12; at 16, 256 random nodes are too few to start from).
 */
#include "keys.cuh"
#include "launch.cuh"
#include "pivots.h"
#include "query.cuh"
#include "walk.cuh"

#define TILE_QUERIES 64
#define TILE_PIVOTS 128
#define TILE_DEPTH 64			/* halves: a row of a tile is 128 bytes, all banks once */
#define STAGES 3
#define RUN_TILES 4
#define RUN_PIVOTS (RUN_TILES * TILE_PIVOTS)	/* a number below it is the lower part of a word */
#define KEPT 4					/* nearest pivots of a run that a thread keeps for a query */
#define RUN_WORDS (16 * KEPT)	/* that a query's 16 threads keep */
#define THREADS 256

#define OPERAND_BYTES ((TILE_QUERIES + TILE_PIVOTS) * TILE_DEPTH * 2)
#define SHARED_BYTES (STAGES * OPERAND_BYTES + TILE_QUERIES * RUN_WORDS * 4)

/*
 * One warp per query: its elements as fp16 halves, zeros up to walk_pad, and the product's factor.
 * A query in a slot is read from host memory once, and copied for the walk: each lane reads back
 * what it wrote itself.
 */
__global__ void __launch_bounds__(128)
pivot_queries_kernel(const __grid_constant__ search_view view, const float *queries,
					 const __grid_constant__ search_slots slots, uint32_t nq, __half *halves,
					 float *factors, float *copies)
{
	uint32_t	query = blockIdx.x * 4 + threadIdx.x / 32;
	uint32_t	lane = threadIdx.x & 31;
	const float *raw;
	float		inverse = 1;
	float		largest = 0;
	float		scale;

	if (query >= nq)
		return;
	raw = query_of(queries, slots, query, view.dim);
	if (queries == NULL)
	{
		float	   *copy = copies + (size_t) query * view.dim;

#pragma unroll 8
		for (uint32_t i = lane; i < view.dim; i += 32)
			copy[i] = raw[i];
		raw = copy;
	}
	if (view.metric == GG_METRIC_COSINE)
	{
		float		sum = 0;

		for (uint32_t i = lane; i < view.dim; i += 32)
			sum += raw[i] * raw[i];
		sum = group_reduce<1, false>(sum, NULL);
		inverse = sum > 0 ? 1 / sqrtf(sum) : 0;
	}
	for (uint32_t i = lane; i < view.dim; i += 32)
		largest = fmaxf(largest, fabsf(query_element(view, raw, inverse, i)));
	scale = query_scale(group_reduce<1, true>(largest, NULL));
	for (uint32_t i = lane; i < view.walk_pad; i += 32)
		halves[(size_t) query * view.walk_pad + i] =
			__float2half_rn(query_element(view, raw, inverse, i) * scale);
	if (lane == 0)
		factors[query] = (view.metric == GG_METRIC_L2 ? -2.0f : -1.0f) / scale;
}

/*
 * The same with codes, by a block per query.  Shared memory: code_work_bytes().
 */
__global__ void __launch_bounds__(128)
pivot_code_queries_kernel(const __grid_constant__ search_view view, const float *queries,
						  const __grid_constant__ search_slots slots, __half *halves,
						  float *factors, float *copies)
{
	extern __shared__ __align__(128) char shared[];
	const uint32_t query = blockIdx.x;
	const uint32_t dim = view.dim;
	const float *raw = query_of(queries, slots, query, dim);
	float	   *x = (float *) shared;
	void	   *scratch = shared + code_work_bytes(dim) - CODE_FOLD_BYTES;
	float		scale;
	int			exponent;

	if (queries == NULL)
	{
		float	   *copy = copies + (size_t) query * dim;

		for (uint32_t i = threadIdx.x; i < dim; i += 128)
			copy[i] = raw[i];
		raw = copy;
	}
	code_take_query<4>(view, raw, x, scratch);
	exponent = code_rotate_scaled<4>(x, dim, view.code_weights, scratch);
	scale = query_scale(__uint_as_float(code_largest<4>(x, dim, scratch)));
	for (uint32_t i = threadIdx.x; i < view.walk_pad; i += 128)
		halves[(size_t) query * view.walk_pad + i] = __float2half_rn(i < dim ? x[i] * scale : 0);
	if (threadIdx.x == 0)
		factors[query] = ldexpf(1, exponent) / scale;
}

/* Of the 4 rows of a tile whose sums a thread has, the one of sums[i][j][half * 2 + e]. */
static __device__ __forceinline__ uint32_t
row_of(int i, int half)
{
	return (threadIdx.x >> 7) * 32 + i * 16 + half * 8 + ((threadIdx.x & 31) >> 2);
}

/* Which of the 16 threads of a row this one is. */
static __device__ __forceinline__ uint32_t
place_in_row(void)
{
	return ((threadIdx.x >> 5) & 3) * 4 + (threadIdx.x & 3);
}

/*
 * Pivots go to a tile's columns so that the first 16 of a tile are the first columns of the 16
 * threads of a row, and so on: a few, and neighbours, are seen by different threads.  This is the
 * pivot of the thread's sums[i][j][half * 2 + e].
 */
static __device__ __forceinline__ uint32_t
pivot_of_sum(int j, int e)
{
	return (j * 2 + e) * 16 + place_in_row();
}

/* The pivot of a tile's column: column j x 8 + (thread of 4) x 2 + e of a warp's 32. */
static __device__ __forceinline__ uint32_t
pivot_of_column(uint32_t column)
{
	return ((column >> 3 & 3) * 2 + (column & 1)) * 16 + (column >> 5) * 4 + (column >> 1 & 3);
}

/* Copy chunk `depth` of the block's queries, and behind them of a tile's pivots, to `to`. */
static __device__ __forceinline__ void
load_chunk(const search_view &view, const __half *halves, uint32_t nq, uint32_t tile,
		   uint32_t depth, char *to)
{
	const uint32_t first_query = blockIdx.x * TILE_QUERIES;

#pragma unroll
	for (uint32_t i = threadIdx.x; i < TILE_QUERIES * 8; i += THREADS)
	{
		uint32_t	row = i / 8;
		uint32_t	quad = depth * 8 + i % 8;
		bool		valid = first_query + row < nq && quad < view.walk_pad / 8;
		const __half *from = halves + (valid ? (size_t) (first_query + row) * view.walk_pad +
									   quad * 8 : 0);

		gg_copy_async_or_zero(to + gg_tile_offset(row, i % 8), from, valid);
	}
	to += TILE_QUERIES * TILE_DEPTH * 2;
#pragma unroll
	for (uint32_t i = threadIdx.x; i < TILE_PIVOTS * 8; i += THREADS)
	{
		uint32_t	row = i / 8;
		uint32_t	quad = depth * 8 + i % 8;
		uint32_t	pivot = tile * TILE_PIVOTS + pivot_of_column(row);
		bool		valid = pivot < view.npivots && quad < view.walk_quads;
		const char *from = view.pivot_rows + (valid ? (size_t) pivot * view.walk_stride +
											  (size_t) quad * 16 : 0);

		gg_copy_async_or_zero(to + gg_tile_offset(row, i % 8), from, valid);
	}
}

/* Add a chunk's products to the sums of this warp's 32 x 32. */
static __device__ __forceinline__ void
add_chunk(const char *chunk, float (&sums)[2][4][4])
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t warp = threadIdx.x >> 5;
	const char *a = chunk;
	const char *b = chunk + TILE_QUERIES * TILE_DEPTH * 2;
	const uint32_t a_row = (warp >> 2) * 32 + (lane & 15);
	const uint32_t b_row = (warp & 3) * 32 + (lane & 7) + (lane >> 4) * 8;

#pragma unroll
	for (uint32_t k = 0; k < TILE_DEPTH / 16; k++)
	{
		uint32_t	fa[2][4];
		uint32_t	fb[2][4];

#pragma unroll
		for (int i = 0; i < 2; i++)
		{
			/* matrices: rows 0-7 and 8-15 of the first 8 halves, then of the next 8 */
			gg_load_matrix(fa[i], a + gg_tile_offset(a_row + i * 16, k * 2 + (lane >> 4)));
			/* pivots 0-7: both k halves, then pivots 8-15 */
			gg_load_matrix(fb[i], b + gg_tile_offset(b_row + i * 16, k * 2 + ((lane >> 3) & 1)));
		}
#pragma unroll
		for (int i = 0; i < 2; i++)
#pragma unroll
			for (int j = 0; j < 4; j++)
				gg_mma(sums[i][j], fa[i][0], fa[i][1], fa[i][2], fa[i][3],
					   fb[j >> 1][(j & 1) * 2], fb[j >> 1][(j & 1) * 2 + 1]);
	}
}

/* What a thread keeps of its 4 queries: words, ascending; a pivot's number is the lower part. */
typedef uint32_t kept_words[2][2][KEPT];

static __device__ __forceinline__ void
forget_words(kept_words &kept)
{
#pragma unroll
	for (int i = 0; i < 4 * KEPT; i++)
		kept[i / KEPT / 2][i / KEPT % 2][i % KEPT] = 0xFFFFFFFFu;
}

/* What a pivot has beside its row: a norm, or the head of its code. */
template <bool CODES>
using pivot_side = std::conditional_t<CODES, gg_code_head, float>;

template <bool CODES>
static __device__ __forceinline__ pivot_side<CODES>
load_pivot_side(const search_view &view, uint32_t pivot)
{
	const bool	valid = pivot < view.npivots;

	if constexpr (CODES)
		return valid ? load_head(view.pivot_rows + (size_t) pivot * view.walk_stride,
								 view.walk_stride) : gg_code_head{0, 0};
	else
		return load_norm(view.pivot_norms, pivot, valid);
}

template <bool CODES>
static __device__ __forceinline__ float
pivot_value(const search_view &view, float sum, float factor, const pivot_side<CODES> &side)
{
	if constexpr (CODES)
		return side.base + side.factor * (sum * factor);
	else
		return walk_value<WALK_HALF_DOT>(view, sum, factor, side);
}

/* Of a tile's pivots, keep those that are among a thread's nearest of the run. */
template <bool CODES>
static __device__ __forceinline__ void
keep_nearest(const search_view &view, const float (&sums)[2][4][4], const float (&factors)[2][2],
			 const pivot_side<CODES> (&sides)[4][2], uint32_t tile, kept_words &kept)
{
	const uint32_t left = view.npivots - tile * TILE_PIVOTS;

#pragma unroll
	for (int j = 0; j < 4; j++)
#pragma unroll
		for (int e = 0; e < 2; e++)
		{
			const uint32_t pivot = pivot_of_sum(j, e);
			const uint32_t number = tile % RUN_TILES * TILE_PIVOTS + pivot;

#pragma unroll
			for (int i = 0; i < 2; i++)
#pragma unroll
				for (int half = 0; half < 2; half++)
				{
					const float value = pivot_value<CODES>(view, sums[i][j][half * 2 + e],
														   factors[i][half], sides[j][e]);
					uint32_t	word = (order_of(value) & ~(RUN_PIVOTS - 1)) | number;

					if (pivot >= left)
						word = 0xFFFFFFFFu;
#pragma unroll
					for (int rank = 0; rank < KEPT; rank++)
					{
						const uint32_t other = kept[i][half][rank];

						kept[i][half][rank] = min(other, word);
						word = max(other, word);
					}
				}
		}
}

/* Where queries' entries go: nq x slices x ENTRY_NODES. */
typedef struct entry_lists
{
	uint64_t   *keys;
	uint32_t	nq;
	uint32_t	slices;
} entry_lists;

/*
 * End a run: merge its best pivots of every query into the query's entries; first: none are there
 * yet.  words: TILE_QUERIES x RUN_WORDS in shared memory, which nobody reads any more.
 */
static __device__ __forceinline__ void
end_run(const search_view &view, uint32_t run, bool first, const kept_words &kept, uint32_t *words,
		const entry_lists &entries)
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t warp = threadIdx.x >> 5;

#pragma unroll
	for (int i = 0; i < 4 * KEPT; i++)
		words[row_of(i / KEPT / 2, i / KEPT % 2) * RUN_WORDS + i % KEPT * 16 + place_in_row()] =
			kept[i / KEPT / 2][i / KEPT % 2][i % KEPT];
	__syncthreads();
#pragma unroll 2
	for (uint32_t i = 0; i < TILE_QUERIES / 8; i++)
	{
		const uint32_t row = warp * (TILE_QUERIES / 8) + i;
		const uint32_t query = blockIdx.x * TILE_QUERIES + row;
		uint64_t   *mine = entries.keys +
			((size_t) query * entries.slices + blockIdx.y) * ENTRY_NODES + lane;
		uint32_t	sorted[RUN_WORDS / 32];
		uint64_t	key = GG_KEY_NONE;

		if (query >= entries.nq)
			break;
#pragma unroll
		for (int j = 0; j < RUN_WORDS / 32; j++)
			sorted[j] = words[row * RUN_WORDS + j * 32 + lane];
		gg_sort<RUN_WORDS / 32>(sorted);
		if (lane < ENTRY_NODES && sorted[0] != 0xFFFFFFFFu)
			key = (uint64_t) sorted[0] << 32 |
				__ldg(view.pivots + run * RUN_PIVOTS + sorted[0] % RUN_PIVOTS) << 1;
		/* each lane reads what it wrote itself */
		if (!first)
			key = warp_merge(key, lane < ENTRY_NODES ? *mine : GG_KEY_NONE, lane);
		if (lane < ENTRY_NODES)
			*mine = key;
	}
}

/* How many runs of tiles hold all pivots. */
static __host__ __device__ __forceinline__ uint32_t
runs_of(const search_view &view)
{
	return (view.npivots + RUN_PIVOTS - 1) / RUN_PIVOTS;
}

template <bool CODES>
__global__ void __launch_bounds__(THREADS, 2)
pivot_scores_kernel(const __grid_constant__ search_view view, const __half *halves,
					const float *query_factors, uint32_t nq, uint32_t slices, uint64_t *entries)
{
	extern __shared__ __align__(128) char shared[];
	const uint32_t tiles = (view.npivots + TILE_PIVOTS - 1) / TILE_PIVOTS;
	const uint32_t first_run = (uint32_t) ((uint64_t) runs_of(view) * blockIdx.y / slices);
	const uint32_t last_run = (uint32_t) ((uint64_t) runs_of(view) * (blockIdx.y + 1) / slices);
	const uint32_t last_tile = min(last_run * RUN_TILES, tiles);
	const uint32_t depths = (view.walk_pad + TILE_DEPTH - 1) / TILE_DEPTH;
	float		factors[2][2];
	kept_words	kept;
	uint32_t	stage = 0;
	uint32_t	next_stage = 0;	/* where the next chunk goes, and which it is */
	uint32_t	next_tile = first_run * RUN_TILES;
	uint32_t	next_depth = 0;
	auto		load_next = [&]()
	{
		if (next_tile < last_tile)
			load_chunk(view, halves, nq, next_tile, next_depth,
					   shared + next_stage * OPERAND_BYTES);
		gg_copy_commit();
		next_stage = next_stage + 1 < STAGES ? next_stage + 1 : 0;
		if (++next_depth == depths)
		{
			next_depth = 0;
			next_tile++;
		}
	};

	for (int i = 1; i < STAGES; i++)
		load_next();
	forget_words(kept);
#pragma unroll
	for (int i = 0; i < 4; i++)
	{
		const uint32_t query = blockIdx.x * TILE_QUERIES + row_of(i / 2, i % 2);

		factors[i / 2][i % 2] = query < nq ? query_factors[query] : 0;
	}
	for (uint32_t tile = first_run * RUN_TILES; tile < last_tile; tile++)
	{
		float		sums[2][4][4] = {};
		pivot_side<CODES> sides[4][2];

#pragma unroll
		for (int j = 0; j < 8; j++)
			sides[j / 2][j % 2] = load_pivot_side<CODES>(view, tile * TILE_PIVOTS +
														 pivot_of_sum(j / 2, j % 2));
		for (uint32_t depth = 0; depth < depths; depth++)
		{
			gg_copy_wait<STAGES - 2>();
			/* the chunk is there for all, and all are done with the one before it */
			__syncthreads();
			load_next();
			add_chunk(shared + stage * OPERAND_BYTES, sums);
			stage = stage + 1 < STAGES ? stage + 1 : 0;
		}
		keep_nearest<CODES>(view, sums, factors, sides, tile, kept);
		if ((tile + 1) % RUN_TILES != 0 && tile + 1 < last_tile)
			continue;
		/* there were barriers since the last run's words were read */
		end_run(view, tile / RUN_TILES, tile / RUN_TILES == first_run, kept,
				(uint32_t *) (shared + STAGES * OPERAND_BYTES), {entries, nq, slices});
		forget_words(kept);
	}
}

/*
 * As many as leave the busiest multiprocessor the fewest runs; a slice costs the walk 16 keys to
 * look at.
 */
uint32_t
search_pivots_slices(const search_view *view, uint32_t nq, uint32_t least, int sms)
{
	const uint32_t blocks = (nq + TILE_QUERIES - 1) / TILE_QUERIES;
	const uint32_t runs = runs_of(*view);
	uint32_t	slices = 0;
	uint32_t	fewest = 0xFFFFFFFFu;

	for (uint32_t some = least; some <= runs && some <= PIVOT_MAX_SLICES; some++)
	{
		const uint32_t most = (blocks * some + (uint32_t) sms - 1) / (uint32_t) sms *
			((runs + some - 1) / some);

		if (most < fewest)
		{
			fewest = most;
			slices = some;
		}
	}
	return slices;
}

cudaError_t
search_pivots_ready(const search_view *view, const search_device *device)
{
	cudaError_t error;

	if (view->code_bits > 0)
	{
		error = kernel_ready<pivot_code_queries_kernel>(device);
		return error != cudaSuccess ? error : kernel_ready<pivot_scores_kernel<true>>(device);
	}
	error = kernel_ready<pivot_scores_kernel<false>>(device);
	return error != cudaSuccess ? error : kernel_load((const void *) pivot_queries_kernel);
}

cudaError_t
search_pivots_launch(const search_view *view, const pivot_search *search,
					 const search_device *device, cudaStream_t stream)
{
	const uint32_t nq = search->nq;
	const dim3	tiles((nq + TILE_QUERIES - 1) / TILE_QUERIES, search->slices);
	cudaError_t error;

	if (nq == 0)
		return cudaSuccess;
	if (view->code_bits > 0)
	{
		error = kernel_ready<pivot_code_queries_kernel>(device);
		if (error == cudaSuccess)
			error = kernel_ready<pivot_scores_kernel<true>>(device);
		if (error != cudaSuccess)
			return error;
		pivot_code_queries_kernel<<<nq, 128, code_work_bytes(view->dim), stream>>>
			(*view, search->queries, slots_or_none(search->slots), search->halves, search->factors,
			 search->copies);
		error = cudaGetLastError();
		if (error != cudaSuccess)
			return error;
		pivot_scores_kernel<true><<<tiles, THREADS, SHARED_BYTES, stream>>>
			(*view, search->halves, search->factors, nq, search->slices, search->entries);
		return cudaGetLastError();
	}
	error = kernel_ready<pivot_scores_kernel<false>>(device);
	if (error != cudaSuccess)
		return error;
	pivot_queries_kernel<<<(nq + 3) / 4, 128, 0, stream>>>
		(*view, search->queries, slots_or_none(search->slots), nq, search->halves,
		 search->factors, search->copies);
	error = cudaGetLastError();
	if (error != cudaSuccess)
		return error;
	pivot_scores_kernel<false><<<tiles, THREADS, SHARED_BYTES, stream>>>
		(*view, search->halves, search->factors, nq, search->slices, search->entries);
	return cudaGetLastError();
}
