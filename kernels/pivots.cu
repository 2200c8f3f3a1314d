/*
 * pivots.cu
 *		The best pivots of many queries: a matrix product with its top-16 fused.
 *
 * Shapes		queries nq x dim float32, pivots npivots x dim fp16 -> entries nq x slices x
 *				ENTRY_NODES keys, each slice's ascending, GG_KEY_NONE at the end.
 * Requires		view.path == WALK_HALF_DOT; 1 <= slices <= PIVOT_MAX_SLICES.
 * Mapping		A block takes TILE_QUERIES queries and one slice of the pivots, TILE_PIVOTS of them
 *				a time; 8 warps as 2 x 4, each 32 x 32 of the product by mma, operands through
 *				shared memory in double-buffered chunks of TILE_DEPTH halves (cp.async).  A tile's
 *				scores go to shared memory, and each warp keeps the 32 best of its 8 queries in
 *				registers, one key per lane.
 * Shared		2 x (64 + 128) x 128 bytes of operands, 64 x 132 floats of scores, norms and ids of
 *				two tiles: 83 KB.
 * Precision	The query is rounded to fp16 here, once (the walk keeps 22 bits): it only decides
 *				which pivots a walk starts from, and the walk measures them again.
 * Oracle		scoring all pivots in the walk (search_multi.cu without entries): at least 14 of
 *				the 16 in common, and the search's recall unchanged.
 * Cost			10,000 x 4,096 x 128: 10 GFLOP.
 */
#include "launch.cuh"

#define TILE_QUERIES 64
#define TILE_PIVOTS 128
#define TILE_DEPTH 64			/* halves: a row of a tile is 128 bytes, all banks once */
#define SCORE_STRIDE (TILE_PIVOTS + 4)
#define THREADS 256

#define OPERAND_BYTES ((TILE_QUERIES + TILE_PIVOTS) * TILE_DEPTH * 2)
#define SHARED_BYTES (2 * OPERAND_BYTES + TILE_QUERIES * SCORE_STRIDE * 4 + 2 * TILE_PIVOTS * 8)

/*
 * One warp a query: its elements as fp16 halves, zeros up to walk_pad, and the product's factor.  A
 * query in a slot is read from host memory once, and copied for the walk: each lane reads back what
 * it wrote itself.
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

__global__ void __launch_bounds__(THREADS)
pivot_scores_kernel(const __grid_constant__ search_view view, const __half *halves,
					const float *factors, uint32_t nq, uint32_t slices, uint64_t *entries)
{
	extern __shared__ __align__(128) char shared[];
	float	   *scores = (float *) (shared + 2 * OPERAND_BYTES);
	float	   *all_norms = scores + TILE_QUERIES * SCORE_STRIDE;
	uint32_t   *all_nodes = (uint32_t *) (all_norms + 2 * TILE_PIVOTS);
	const uint32_t tid = threadIdx.x;
	const uint32_t lane = tid & 31;
	const uint32_t warp = tid >> 5;
	const uint32_t warp_q = (warp >> 2) * 32;	/* this warp's corner of the tile */
	const uint32_t warp_p = (warp & 3) * 32;
	const uint32_t first_query = blockIdx.x * TILE_QUERIES;
	const uint32_t tiles = (view.npivots + TILE_PIVOTS - 1) / TILE_PIVOTS;
	const uint32_t first_tile = (uint32_t) ((uint64_t) tiles * blockIdx.y / slices);
	const uint32_t last_tile = (uint32_t) ((uint64_t) tiles * (blockIdx.y + 1) / slices);
	const uint32_t depths = (view.walk_pad + TILE_DEPTH - 1) / TILE_DEPTH;
	const uint32_t query_pieces = view.walk_pad / 8;
	uint64_t	best[8];

#pragma unroll
	for (int i = 0; i < 8; i++)
		best[i] = GG_KEY_NONE;

	for (uint32_t tile = first_tile; tile < last_tile; tile++)
	{
		float		sums[2][4][4] = {};
		/* two of each: some warps may still be choosing from the tile before */
		float	   *norms = all_norms + (tile & 1) * TILE_PIVOTS;
		uint32_t   *nodes = all_nodes + (tile & 1) * TILE_PIVOTS;
		auto		load = [&](uint32_t depth)
		{
			char	   *a = shared + (depth & 1) * OPERAND_BYTES;
			char	   *b = a + TILE_QUERIES * TILE_DEPTH * 2;

			for (uint32_t i = tid; i < TILE_QUERIES * 8; i += THREADS)
			{
				uint32_t	row = i / 8;
				uint32_t	piece = depth * 8 + i % 8;
				bool		valid = first_query + row < nq && piece < query_pieces;
				const __half *from = halves + (valid ?
											   (size_t) (first_query + row) * view.walk_pad +
											   piece * 8 : 0);

				gg_copy_async_or_zero(a + gg_tile_offset(row, i % 8), from, valid);
			}
			for (uint32_t i = tid; i < TILE_PIVOTS * 8; i += THREADS)
			{
				uint32_t	row = i / 8;
				uint32_t	piece = depth * 8 + i % 8;
				uint32_t	pivot = tile * TILE_PIVOTS + row;
				bool		valid = pivot < view.npivots && piece < view.walk_pieces;
				const char *from = view.pivot_rows + (valid ? (size_t) pivot * view.walk_stride +
													  (size_t) piece * 16 : 0);

				gg_copy_async_or_zero(b + gg_tile_offset(row, i % 8), from, valid);
			}
			gg_copy_commit();
		};

		load(0);
		if (tid < TILE_PIVOTS)
		{
			uint32_t	pivot = tile * TILE_PIVOTS + tid;

			norms[tid] = load_norm(view.pivot_norms, pivot, pivot < view.npivots);
			nodes[tid] = pivot < view.npivots ? __ldg(view.pivots + pivot) : GG_NO_NODE;
		}
		for (uint32_t depth = 0; depth < depths; depth++)
		{
			const char *a = shared + (depth & 1) * OPERAND_BYTES;
			const char *b = a + TILE_QUERIES * TILE_DEPTH * 2;

			if (depth + 1 < depths)
			{
				load(depth + 1);
				gg_copy_wait<1>();
			}
			else
				gg_copy_wait<0>();
			__syncthreads();
#pragma unroll
			for (uint32_t k = 0; k < TILE_DEPTH / 16; k++)
			{
				uint32_t	fa[2][4];
				uint32_t	fb[2][4];

#pragma unroll
				for (int i = 0; i < 2; i++)
				{
					/* matrices: rows 0-7 and 8-15 of the first 8 halves, then of the next 8 */
					gg_load_matrix(fa[i], a + gg_tile_offset(warp_q + i * 16 + (lane & 15),
														  k * 2 + (lane >> 4)));
					/* pivots 0-7: both k halves, then pivots 8-15 */
					gg_load_matrix(fb[i],
								   b + gg_tile_offset(warp_p + i * 16 + (lane & 7) + (lane >> 4) *
													  8, k * 2 + ((lane >> 3) & 1)));
				}
#pragma unroll
				for (int i = 0; i < 2; i++)
#pragma unroll
					for (int j = 0; j < 4; j++)
						gg_mma(sums[i][j], fa[i][0], fa[i][1], fa[i][2], fa[i][3],
									fb[j >> 1][(j & 1) * 2], fb[j >> 1][(j & 1) * 2 + 1]);
			}
			__syncthreads();
		}

#pragma unroll
		for (int i = 0; i < 2; i++)
#pragma unroll
			for (int j = 0; j < 4; j++)
#pragma unroll
				for (int half = 0; half < 2; half++)
				{
					uint32_t	row = warp_q + i * 16 + half * 8 + (lane >> 2);
					uint32_t	column = warp_p + j * 8 + (lane & 3) * 2;

					*(float2 *) &scores[row * SCORE_STRIDE + column] =
						make_float2(sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
				}
		__syncthreads();

		/* the 32 best of each query so far, of which the first ENTRY_NODES count */
#pragma unroll
		for (int i = 0; i < 8; i++)
		{
			uint32_t	query = first_query + warp * 8 + i;
			float		factor;

			if (query >= nq)
				break;
			factor = factors[query];
#pragma unroll 1
			for (uint32_t part = 0; part < TILE_PIVOTS; part += 32)
			{
				uint32_t	pivot = tile * TILE_PIVOTS + part + lane;
				float		sum = scores[(warp * 8 + i) * SCORE_STRIDE + part + lane];
				uint64_t	key = GG_KEY_NONE;
				uint64_t	worst = __shfl_sync(GG_FULL_WARP, (unsigned long long) best[i],
												ENTRY_NODES - 1);
				uint32_t	mask;

				if (pivot < view.npivots)
					key = make_key(walk_value<WALK_HALF_DOT>(view, sum, factor, norms[part + lane]),
								   nodes[part + lane]);
				mask = __ballot_sync(GG_FULL_WARP, key < worst);
				if (__popc(mask) > 6)
				{
					/* sorting costs about as much as six insertions */
					best[i] = warp_merge(best[i], warp_sort(key), lane);
					continue;
				}
				while (mask != 0)
				{
					uint64_t	entrant = __shfl_sync(GG_FULL_WARP, (unsigned long long) key,
													  __ffs(mask) - 1);
					uint32_t	below = __popc(__ballot_sync(GG_FULL_WARP, best[i] < entrant));
					uint64_t	previous = __shfl_up_sync(GG_FULL_WARP,
														  (unsigned long long) best[i], 1);

					if (lane >= below)
						best[i] = lane == below ? entrant : previous;
					mask &= mask - 1;
				}
			}
		}
		/* the next tile's scores are written after barriers that wait for these reads */
	}

#pragma unroll
	for (int i = 0; i < 8; i++)
	{
		uint32_t	query = first_query + warp * 8 + i;

		if (query < nq && lane < ENTRY_NODES)
			entries[((size_t) query * slices + blockIdx.y) * ENTRY_NODES + lane] = best[i];
	}
}

/* Enough blocks to fill the device; a slice costs the walk 16 keys to look at. */
uint32_t
search_pivots_slices(const search_view *view, uint32_t nq, int sms)
{
	uint32_t	blocks = (nq + TILE_QUERIES - 1) / TILE_QUERIES;
	uint32_t	tiles = (view->npivots + TILE_PIVOTS - 1) / TILE_PIVOTS;
	uint32_t	slices = 1;

	while (slices < PIVOT_MAX_SLICES && slices * 2 <= tiles &&
		   blocks * slices * 2 <= 2 * (uint32_t) sms)
		slices *= 2;
	return slices;
}

cudaError_t
search_pivots_ready(const search_device *device)
{
	static kernel_state state;
	cudaError_t error;

	if (state.context.load() == device->context)
		return cudaSuccess;
	error = kernel_load((const void *) pivot_queries_kernel);
	if (error == cudaSuccess)
		error = kernel_ready(&state, (const void *) pivot_scores_kernel, false, device);
	return error;
}

cudaError_t
search_pivots_launch(const search_view *view, const float *queries, const search_slots *slots,
					 uint32_t nq, uint32_t slices, __half *halves, float *factors, float *copies,
					 uint64_t *entries, const search_device *device, cudaStream_t stream)
{
	cudaError_t error;

	if (nq == 0)
		return cudaSuccess;
	error = search_pivots_ready(device);
	if (error != cudaSuccess)
		return error;
	pivot_queries_kernel<<<(nq + 3) / 4, 128, 0, stream>>>(*view, queries, slots_or_none(slots), nq,
														   halves, factors, copies);
	error = cudaGetLastError();
	if (error != cudaSuccess)
		return error;
	pivot_scores_kernel<<<dim3((nq + TILE_QUERIES - 1) / TILE_QUERIES, slices), THREADS,
		SHARED_BYTES, stream>>>(*view, halves, factors, nq, slices, entries);
	return cudaGetLastError();
}
