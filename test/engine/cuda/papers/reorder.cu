/*
 * reorder.cu
 *		CAGRA's reordering alone, by rank and by distance: section III.B.
 *
 * By rank is the engine's own kernel (kernels/build/detours.cuh).  By distance has the table of the
 * paper at hand, n x k distances: D is behind a detour by B when both d(A, B) and d(B, D) are below
 * d(A, D).  That kernel is the other one with one more gather: of each list, its distances.
 */
#include "papers.h"

#include "../../../../kernels/build/detours.cuh"

/* A warp's list in shared memory: where an id is, and how far. */
template <int R>
class detour_table
{
public:
	uint32_t	ids[detour_shape<R>::SLOTS];
	uint16_t	ranks[detour_shape<R>::SLOTS];
	uint32_t	counts[32 * R];
	float		far[32 * R];
};

/* Warps a block so that the tables stay below 48 KB. */
template <int R>
__device__ __host__ static constexpr int
table_warps()
{
	return detour_shape<R>::WARPS / 2;
}

/* Up to the first id that is none; returns how many. */
template <int R>
__device__ static inline uint32_t
load_table(const uint32_t *list, const float *distances, uint32_t n, uint32_t k,
		   detour_table<R> *table)
{
	const uint32_t lane = threadIdx.x & 31;
	uint32_t	length = k;

	for (uint32_t i = lane; i < detour_shape<R>::SLOTS; i += 32)
		table->ids[i] = GG_NO_NODE;
	for (uint32_t rank = lane; rank < 32 * R; rank += 32)
	{
		const uint32_t ends = __ballot_sync(GG_FULL_WARP, rank >= k || list[rank] >= n);

		if (ends != 0)
			length = min(length, rank - lane + (uint32_t) __ffs(ends) - 1);
		table->counts[rank] = 0;
		table->far[rank] = rank < k ? distances[rank] : 0.0f;
	}
	__syncwarp();
	for (uint32_t rank = lane; rank < length; rank += 32)
	{
		uint32_t	slot = hash_slot<R>(list[rank]);

		while (atomicCAS(&table->ids[slot], GG_NO_NODE, list[rank]) != GG_NO_NODE)
			slot = (slot + 1) % detour_shape<R>::SLOTS;
		table->ranks[slot] = (uint16_t) rank;
	}
	__syncwarp();
	return length;
}

template <int R>
static __global__ void
distance_detours_kernel(const uint32_t *__restrict__ knn, const float *__restrict__ distances,
						uint32_t n, uint32_t k, uint32_t degree, uint32_t first, uint32_t *forward)
{
	typedef detour_table<R> warp_table;
	constexpr int WARPS = table_warps<R>();
	constexpr int AHEAD = detour_shape<R>::AHEAD;
	__shared__ warp_table tables[WARPS];
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t node = first + blockIdx.x * WARPS + threadIdx.x / 32;
	detour_table<R> *table = &tables[threadIdx.x / 32];
	uint64_t	keys[R];

	if (node >= n)
		return;
	const uint32_t *list = knn + (uint64_t) node * k;
	const uint32_t length = load_table<R>(list, distances + (uint64_t) node * k, n, k, table);

	for (uint32_t begin = 0; begin < length; begin += AHEAD)
	{
		uint32_t	theirs[AHEAD][R];
		float		far[AHEAD][R];

#pragma unroll
		for (int j = 0; j < AHEAD; j++)
		{
			const uint32_t b = begin + j < length ? list[begin + j] : GG_NO_NODE;

#pragma unroll
			for (int r = 0; r < R; r++)
			{
				const bool	valid = b < n && r * 32 + lane < k;
				const uint64_t at = (uint64_t) b * k + r * 32 + lane;

				theirs[j][r] = valid ? knn[at] : GG_NO_NODE;
				far[j][r] = valid ? distances[at] : 0.0f;
			}
		}
#pragma unroll
		for (int j = 0; j < AHEAD; j++)
#pragma unroll
			for (int r = 0; r < R; r++)
			{
				const uint32_t id = theirs[j][r];
				uint32_t	slot = hash_slot<R>(id);

				while (id != GG_NO_NODE && table->ids[slot] != GG_NO_NODE)
				{
					if (table->ids[slot] == id)
					{
						const uint32_t rank = table->ranks[slot];

						if (fmaxf(table->far[begin + j], far[j][r]) < table->far[rank])
							atomicAdd(&table->counts[rank], 1);
						break;
					}
					slot = (slot + 1) % detour_shape<R>::SLOTS;
				}
			}
	}
	__syncwarp();
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint32_t rank = r * 32 + lane;

		keys[r] = rank < length ? (uint64_t) table->counts[rank] << 32 | rank : GG_KEY_NONE;
	}
	gg_sort<R>(keys);
#pragma unroll
	for (int r = 0; r < R; r++)
		if (r * 32 + lane < degree)
			forward[(uint64_t) node * degree + r * 32 + lane] = keys[r] == GG_KEY_NONE ?
				GG_NO_NODE : list[(uint32_t) keys[r]];
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
