/*
 * reorder.cu
 *		CAGRA's reordering alone, by rank and by distance: section III.B.
 *
 * By rank is the engine's own kernel (kernels/graph/detours.cuh).  By distance has the table of the
 * paper at hand, n x k distances: D is behind a detour by B when both d(A, B) and d(B, D) are below
 * d(A, D).  That kernel is the other one, lists in shared memory and all, with one more
 * gather: of each list, its distances.
 */
#include "papers.h"

#include "../../../../kernels/graph/detours.cuh"

/* A warp's list in shared memory, and how far its ids are. */
template <int R>
class far_table
{
public:
	detour_table<R> list;
	float		far[32 * R];
};

/* Warps a block so that the tables stay below 48 KB. */
template <int R>
__device__ __host__ static constexpr int
table_warps()
{
	return R == 1 ? 8 : R <= 4 ? 4 : 2;
}

template <int R>
static __global__ void
distance_detours_kernel(const uint32_t *__restrict__ knn, const float *__restrict__ distances,
						uint32_t n, uint32_t k, uint32_t degree, uint32_t first, uint32_t *forward)
{
	typedef far_table<R> warp_table;
	constexpr int WARPS = table_warps<R>();
	constexpr int AHEAD = detour_shape<R>::AHEAD;
	__shared__ warp_table tables[WARPS];
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t node = first + blockIdx.x * WARPS + threadIdx.x / 32;
	far_table<R> *table = &tables[threadIdx.x / 32];
	uint32_t	keys[R];

	if (node >= n)
		return;
	const uint32_t length = detours_enter<R>(knn + (uint64_t) node * k, n, k, &table->list);

	for (uint32_t rank = lane; rank < 32 * R; rank += 32)
		table->far[rank] = rank < k ? distances[(uint64_t) node * k + rank] : 0.0f;
	__syncwarp();
	for (uint32_t begin = 0; begin + 1 < length; begin += AHEAD)
	{
		uint32_t	theirs[AHEAD][R];
		float		far[AHEAD][R];

#pragma unroll
		for (int j = 0; j < AHEAD; j++)
		{
			const bool	any = begin + j < length;
			const uint64_t list = (uint64_t) table->list.ids[any ? begin + j : 0] * k;

#pragma unroll
			for (int r = 0; r < R; r++)
			{
				const bool	valid = any && r * 32 + lane < k;

				theirs[j][r] = valid ? knn[list + r * 32 + lane] : GG_NO_NODE;
				far[j][r] = valid ? distances[list + r * 32 + lane] : 0.0f;
			}
		}
#pragma unroll
		for (int j = 0; j < AHEAD; j++)
#pragma unroll
			for (int r = 0; r < R; r++)
			{
				const uint32_t rank = detours_rank<R>(&table->list, theirs[j][r]);

				if (rank > 0 &&
					fmaxf(table->far[begin + j < length ? begin + j : 0], far[j][r]) <
					table->far[rank])
					atomicAdd(&table->list.counts[rank], 1);
			}
	}
	__syncwarp();
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint32_t rank = r * 32 + lane;

		keys[r] = rank < length ? table->list.counts[rank] << 16 | rank : GG_NO_NODE;
	}
	gg_sort<R>(keys);
#pragma unroll
	for (int r = 0; r < R; r++)
		if (r * 32 + lane < degree)
			forward[(uint64_t) node * degree + r * 32 + lane] = keys[r] == GG_NO_NODE ?
				GG_NO_NODE : table->list.ids[keys[r] & 0xFFFF];
}

gg_status
papers_reorder(const uint32_t *knn, const float *distances, uint32_t n, uint32_t k,
			   uint32_t degree, cudaStream_t stream, uint32_t *forward)
{
	if (distances != NULL)
		GG_SWITCH_LENGTH(gg_cuda_list_length(k),
			(distance_detours_kernel<R>
			 <<<gg_cuda_blocks(n, table_warps<R>()), table_warps<R>() * 32, 0, stream>>>
			 (knn, distances, n, k, degree, 0, forward)));
	else
		GG_SWITCH_LENGTH(gg_cuda_list_length(k),
			(detours_kernel<R><<<gg_cuda_blocks(n, detour_shape<R>::WARPS),
			 detour_shape<R>::WARPS * 32, 0, stream>>>(knn, n, k, degree, nullptr, 0, forward)));
	GG_CUDA_LAUNCHED("detours_kernel");
	GG_CUDA_TRY(cudaStreamSynchronize(stream));
	return gg_ok();
}
