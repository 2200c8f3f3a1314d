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
	static constexpr int WARPS = R <= 2 ? 8 : R == 4 ? 4 : 2;
	static constexpr int LOG_SLOTS = R == 1 ? 9 : R <= 4 ? 10 : 12;
	static constexpr uint32_t SLOTS = 1u << LOG_SLOTS;
	static constexpr uint32_t SHARED = SLOTS / 2;	/* a word's bit; ranks are below it */
	static constexpr int AHEAD = R <= 2 ? 4 : R == 4 ? 2 : 1;	/* lists in flight */
};

/*
 * A warp's list in shared memory, R = 1, 2, 4, 8, 16.  An id's hash is a bijection.  Its upper bits
 * are the slot, and the others stand in the word there: one word says whether the id is in the
 * list, and at which rank.  Ids whose slot another one has are crowded: they are compared one by
 * one, where the word says that its slot is shared.  Rank 0 has no detours and is not entered, so
 * that 0 is an empty slot and finds nothing that counts.
 *
 *				bytes
 *	words		4 x SLOTS		2,048, 4,096, 4,096, then 16,384
 *	ids			4 x 32 R		the list
 *	counts		4 x 32 R		detours of the edge of each rank
 *	crowded		2 x 32 R		ranks; of 64 ids 2 are, of 128 8, of 512 some 32
 */
template <int R>
struct __align__(16) detour_table
{
	uint32_t	words[detour_shape<R>::SLOTS];
	uint32_t	ids[32 * R];
	uint32_t	counts[32 * R];
	uint16_t	crowded[32 * R];
	uint32_t	ncrowded;
};

__device__ static inline uint32_t
detour_hash(uint32_t id)
{
	return id * 0x9E3779B1u;
}

/* Empties the table and enters the list; returns its length, up to the first id that is none. */
template <int R>
static __device__ __forceinline__ uint32_t
detours_enter(const uint32_t *__restrict__ list, uint32_t n, uint32_t k, detour_table<R> *table)
{
	constexpr int LOG = detour_shape<R>::LOG_SLOTS;
	constexpr uint32_t SLOTS = detour_shape<R>::SLOTS;
	const uint32_t lane = threadIdx.x & 31;
	uint32_t	length = k;

	for (uint32_t i = lane; i < SLOTS / 4; i += 32)
		((uint4 *) table->words)[i] = make_uint4(0, 0, 0, 0);
	if (lane == 0)
		table->ncrowded = 0;
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint32_t rank = r * 32 + lane;
		const uint32_t id = rank < k ? list[rank] : GG_NO_NODE;
		const uint32_t ends = __ballot_sync(GG_FULL_WARP, id >= n);

		if (ends != 0)
			length = min(length, (uint32_t) (r * 32 + __ffs(ends) - 1));
		table->ids[rank] = id;
		table->counts[rank] = 0;
	}
	__syncwarp();
	for (uint32_t rank = lane; rank < length; rank += 32)
	{
		const uint32_t hash = detour_hash(table->ids[rank]);
		const uint32_t word = hash << LOG | rank;

		if (rank == 0)
			continue;
		const uint32_t was = atomicCAS(&table->words[hash >> (32 - LOG)], 0, word);

		if (was != 0 && (was ^ word) >= SLOTS)
		{
			atomicOr(&table->words[hash >> (32 - LOG)], detour_shape<R>::SHARED);
			table->crowded[atomicAdd(&table->ncrowded, 1)] = (uint16_t) rank;
		}
	}
	__syncwarp();
	return length;
}

/* The rank of an id of the list; 0 also of one that is not in it. */
template <int R>
static __device__ __forceinline__ uint32_t
detours_rank(const detour_table<R> *table, uint32_t id)
{
	constexpr int LOG = detour_shape<R>::LOG_SLOTS;
	const uint32_t hash = detour_hash(id);
	const uint32_t word = table->words[hash >> (32 - LOG)];
	const uint32_t differs = word ^ hash << LOG;
	uint32_t	rank = 0;

	if (differs < detour_shape<R>::SLOTS)
		rank = differs % detour_shape<R>::SHARED;
	else if (word & detour_shape<R>::SHARED)
		for (uint32_t i = 0; i < table->ncrowded; i++)
			if (table->ids[table->crowded[i]] == id)
				rank = table->crowded[i];
	return rank;
}

/* Counts the detours of each edge, as the lists of the node's neighbours pass by. */
template <int R>
static __device__ __forceinline__ void
detours_count(const uint32_t *__restrict__ knn, uint32_t k, uint32_t length,
			  detour_table<R> *table)
{
	constexpr int AHEAD = detour_shape<R>::AHEAD;
	const uint32_t lane = threadIdx.x & 31;

	/* an edge of the last rank leads to no later one */
	for (uint32_t begin = 0; begin + 1 < length; begin += AHEAD)
	{
		uint32_t	theirs[AHEAD][R];

#pragma unroll
		for (int j = 0; j < AHEAD; j++)
		{
			const bool	any = begin + j < length;
			const uint32_t *list = knn + (uint64_t) table->ids[any ? begin + j : 0] * k;

#pragma unroll
			for (int r = 0; r < R; r++)
				theirs[j][r] = any && r * 32 + lane < k ? list[r * 32 + lane] : GG_NO_NODE;
		}
#pragma unroll
		for (int j = 0; j < AHEAD; j++)
#pragma unroll
			for (int r = 0; r < R; r++)
			{
				const uint32_t rank = detours_rank<R>(table, theirs[j][r]);

				/* a detour leads to a node whose rank is later than those of both hops */
				if (rank > max(begin + j, r * 32 + lane))
					atomicAdd(&table->counts[rank], 1);
			}
	}
	__syncwarp();
}

template <int R>
static __global__ void
detours_kernel(const uint32_t *__restrict__ knn, uint32_t n, uint32_t k, uint32_t degree,
			   const uint8_t *changed, uint32_t first, uint32_t *forward)
{
	constexpr int WARPS = detour_shape<R>::WARPS;
	typedef detour_table<R> warp_table;
	__shared__ warp_table tables[WARPS];
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t node = first + blockIdx.x * WARPS + threadIdx.x / 32;
	detour_table<R> *table = &tables[threadIdx.x / 32];
	uint32_t	keys[R];

	if (node >= n || (changed != NULL && !changed[node]))
		return;
	const uint32_t length = detours_enter<R>(knn + (uint64_t) node * k, n, k, table);

	detours_count<R>(knn, k, length, table);
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint32_t rank = r * 32 + lane;

		keys[r] = rank < length ? table->counts[rank] << 16 | rank : GG_NO_NODE;
	}
	gg_sort<R>(keys);
#pragma unroll
	for (int r = 0; r < R; r++)
		if (r * 32 + lane < degree)
			forward[(uint64_t) node * degree + r * 32 + lane] = keys[r] == GG_NO_NODE ?
				GG_NO_NODE : table->ids[keys[r] & 0xFFFF];
}

#endif							/* GG_CUDA_DETOURS_CUH */
