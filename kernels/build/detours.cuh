/*
 * detours.cuh
 *		The detours of each edge of a k-NN list, by rank: the first step of optimize.cu.
 */
#ifndef GG_CUDA_DETOURS_CUH
#define GG_CUDA_DETOURS_CUH

#include "list.cuh"

/* Warps a block so that the tables stay below 48 KB. */
template <int R>
struct detour_shape
{
	static constexpr int WARPS = R <= 4 ? 8 : R == 8 ? 4 : 2;
	static constexpr int LOG_SLOTS = R == 1 ? 7 : R == 2 ? 8 : R == 4 ? 9 : R == 8 ? 10 : 11;
	/* a quarter full: a miss takes 1.4 probes */
	static constexpr uint32_t SLOTS = 1u << LOG_SLOTS;
	static constexpr int AHEAD = R <= 2 ? 4 : R == 4 ? 2 : 1;	/* lists in flight */
};

/* the high bits of the product: ids of one stride must not share a slot */
template <int R>
__device__ static inline uint32_t
hash_slot(uint32_t id)
{
	return id * 0x9E3779B1u >> (32 - detour_shape<R>::LOG_SLOTS);
}

/*
 * A warp's shared memory, R = 1, 2, 4, 8, 16:
 *
 *				bytes
 *	ids			4 x SLOTS		512, 1024, 2048, 4096, 8192; GG_NO_NODE: the slot is empty
 *	ranks		2 x SLOTS		of the id in the same slot
 *	counts		4 x 32 R		detours of the edge of each rank
 *
 * A block has WARPS of each: 7,168, 14,336, then 28,672 bytes.
 */
struct detour_warp
{
	uint32_t   *ids;
	uint16_t   *ranks;
	uint32_t   *counts;
};

/* mine: the node's list, up to its first GG_NO_NODE; returns its length.  Clears the table. */
template <int R>
static __device__ __forceinline__ uint32_t
detours_begin(const uint32_t *__restrict__ knn, uint32_t n, uint32_t k, uint32_t node,
			  const detour_warp &table, uint32_t (&mine)[R])
{
	const uint32_t lane = threadIdx.x & 31;
	uint32_t	length = k;

#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint32_t rank = r * 32 + lane;

		mine[r] = rank < k ? knn[(uint64_t) node * k + rank] : GG_NO_NODE;
		const uint32_t ends = __ballot_sync(GG_FULL_WARP, mine[r] >= n);

		if (ends != 0)
			length = min(length, (uint32_t) (r * 32 + __ffs(ends) - 1));
		table.counts[rank] = 0;
	}
	for (uint32_t i = lane; i < detour_shape<R>::SLOTS; i += 32)
		table.ids[i] = GG_NO_NODE;
	__syncwarp();
	return length;
}

/* The list into the table.  Of an id that comes twice one rank stays. */
template <int R>
static __device__ __forceinline__ void
detours_enter(const uint32_t (&mine)[R], uint32_t length, const detour_warp &table)
{
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint32_t rank = r * 32 + (threadIdx.x & 31);

		if (rank < length)
		{
			uint32_t	slot = hash_slot<R>(mine[r]);

			for (;;)
			{
				const uint32_t was = atomicCAS(&table.ids[slot], GG_NO_NODE, mine[r]);

				if (was == GG_NO_NODE)
				{
					table.ranks[slot] = (uint16_t) rank;
					break;
				}
				if (was == mine[r])
					break;
				slot = (slot + 1) % detour_shape<R>::SLOTS;
			}
		}
	}
	__syncwarp();
}

/* id is at rank s of the list of the neighbour of rank b: a detour to its edge, if that is last. */
template <int R>
static __device__ __forceinline__ void
detours_look_up(const detour_warp &table, uint32_t id, uint32_t b, uint32_t s)
{
	uint32_t	slot = hash_slot<R>(id);

	if (id == GG_NO_NODE)
		return;
	for (;;)
	{
		const uint32_t found = table.ids[slot];

		if (found == id)
		{
			const uint32_t rank = table.ranks[slot];

			if (rank > b && rank > s)
				atomicAdd(&table.counts[rank], 1);
			break;
		}
		if (found == GG_NO_NODE)
			break;
		slot = (slot + 1) % detour_shape<R>::SLOTS;
	}
}

/* The lists of the node's neighbours pass by. */
template <int R>
static __device__ __forceinline__ void
detours_count(const uint32_t *__restrict__ knn, uint32_t n, uint32_t k, uint32_t node,
			  uint32_t length, const detour_warp &table)
{
	constexpr int AHEAD = detour_shape<R>::AHEAD;
	const uint32_t lane = threadIdx.x & 31;

	for (uint32_t begin = 0; begin < length; begin += AHEAD)
	{
		uint32_t	theirs[AHEAD][R];

#pragma unroll
		for (int j = 0; j < AHEAD; j++)
		{
			const uint32_t b = begin + j;
			/* all lanes read one word: a broadcast */
			const uint32_t neighbor = b < length ? knn[(uint64_t) node * k + b] : GG_NO_NODE;

#pragma unroll
			for (int r = 0; r < R; r++)
				theirs[j][r] = neighbor < n && r * 32 + lane < k ?
					knn[(uint64_t) neighbor * k + r * 32 + lane] : GG_NO_NODE;
		}
#pragma unroll
		for (int j = 0; j < AHEAD; j++)
#pragma unroll
			for (int r = 0; r < R; r++)
				detours_look_up<R>(table, theirs[j][r], begin + j, r * 32 + lane);
	}
	__syncwarp();
}

template <int R>
static __global__ void
detours_kernel(const uint32_t *__restrict__ knn, uint32_t n, uint32_t k, uint32_t degree,
			   const uint8_t *changed, uint32_t first, uint32_t *forward)
{
	constexpr int WARPS = detour_shape<R>::WARPS;
	__shared__ uint32_t slot_ids[WARPS][detour_shape<R>::SLOTS];
	__shared__ uint16_t slot_ranks[WARPS][detour_shape<R>::SLOTS];
	__shared__ uint32_t counts[WARPS][32 * R];
	const uint32_t warp = threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t node = first + blockIdx.x * WARPS + warp;
	const detour_warp table = {slot_ids[warp], slot_ranks[warp], counts[warp]};
	uint32_t	mine[R];
	uint64_t	keys[R];

	if (node >= n || (changed != NULL && !changed[node]))
		return;
	const uint32_t length = detours_begin<R>(knn, n, k, node, table, mine);

	detours_enter<R>(mine, length, table);
	detours_count<R>(knn, n, k, node, length, table);
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint32_t rank = r * 32 + lane;

		keys[r] = rank < length ? (uint64_t) table.counts[rank] << 32 | rank : GG_KEY_NONE;
	}
	gg_sort<R>(keys);
#pragma unroll
	for (int r = 0; r < R; r++)
		if (r * 32 + lane < degree)
			forward[(uint64_t) node * degree + r * 32 + lane] = keys[r] == GG_KEY_NONE ?
				GG_NO_NODE : knn[(uint64_t) node * k + (uint32_t) keys[r]];
}

#endif							/* GG_CUDA_DETOURS_CUH */
