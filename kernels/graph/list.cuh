/*
 * list.cuh
 *		Sorted lists of 64-bit keys, one warp per list.
 *
 * For files that build graphs.  Keys and their sorting are in warp.cuh; here the upper half of a
 * key is a distance's bits as they are, since builds have no negative distances.
 */
#ifndef GG_LIST_CUH
#define GG_LIST_CUH

#include "../common/warp.cuh"
#include "stages.h"

__device__ static inline uint64_t
gg_key(float distance, uint32_t id, uint32_t flag)
{
	return (uint64_t) __float_as_uint(distance) << 32 | (uint64_t) id << 1 | flag;
}

__device__ static inline float
gg_key_distance(uint64_t key)
{
	return __uint_as_float((uint32_t) (key >> 32));
}

/*
 * Ascending keys, 32 in each of a warp's registers: is the lane's another (distance, id) than the
 * one before it?  Registers are given in order.  edge: the last key of the one before, at first
 * GG_KEY_NONE, which stands for no key.
 */
__device__ static inline bool
gg_differs(uint64_t key, uint64_t &edge)
{
	uint64_t	before = __shfl_up_sync(GG_FULL_WARP, key, 1);

	if ((threadIdx.x & 31) == 0)
		before = edge;
	edge = __shfl_sync(GG_FULL_WARP, key, 31);
	return key != GG_KEY_NONE && before >> 1 != key >> 1;
}

/*
 * Merge buffer (64 keys, count of them used, in any order) into a list of 32 * R keys in memory,
 * each (distance, id) kept once.
 */
template <int R>
__device__ static inline void
gg_merge(uint64_t *list, const uint64_t *buffer, uint32_t count)
{
	constexpr int H = R < 2 ? 2 : R;	/* half of the merged array; holds the buffer's 64 keys */
	const uint32_t lane = threadIdx.x & 31;
	uint64_t	fresh[2];
	uint64_t	all[2 * H];
	uint32_t	base = 0;

	fresh[0] = lane < count ? buffer[lane] : GG_KEY_NONE;
	fresh[1] = lane + 32 < count ? buffer[lane + 32] : GG_KEY_NONE;
	gg_sort<2>(fresh);

#pragma unroll
	for (int r = 0; r < H; r++)
	{
		all[r] = r < R ? list[r * 32 + lane] : GG_KEY_NONE;
		all[H + r] = GG_KEY_NONE;
	}
	/* the list is written below: not before every lane has read its part */
	__syncwarp();
	all[2 * H - 2] = __shfl_sync(GG_FULL_WARP, fresh[1], 31 - lane);
	all[2 * H - 1] = __shfl_sync(GG_FULL_WARP, fresh[0], 31 - lane);
	gg_sort_bitonic<2 * H>(all);

	/* equal pairs are side by side; of one id flagged OLD and NEW the OLD comes first and stays */
	uint64_t	edge = GG_KEY_NONE;

#pragma unroll
	for (int r = 0; r < 2 * H; r++)
	{
		const bool	keep = gg_differs(all[r], edge);
		const uint32_t kept = __ballot_sync(GG_FULL_WARP, keep);
		const uint32_t at = base + __popc(kept & gg_lanes_below(lane));

		if (keep && at < 32 * R)
			list[at] = all[r];
		base += __popc(kept);
	}
	for (uint32_t at = base + lane; at < 32 * R; at += 32)
		list[at] = GG_KEY_NONE;
	__syncwarp();
}

/*
 * A warp's distance between two rows of the working copy, in every lane: of differences, so not the
 * bits that a tile has for the pair (tile.cuh).
 */
template <gg_cuda_kind KIND>
__device__ static inline float
gg_row_distance(const gg_cuda_rows &rows, uint32_t row, uint32_t other)
{
	const uint4 *mine = (const uint4 *) (rows.rows + (uint64_t) row * rows.quads * 16);
	const uint4 *theirs = (const uint4 *) (rows.rows + (uint64_t) other * rows.quads * 16);
	float		sum = 0.0f;

	for (uint32_t quad = threadIdx.x & 31; quad < rows.quads; quad += 32)
	{
		const uint4 a = mine[quad];
		const uint4 b = theirs[quad];
		const uint32_t as[4] = {a.x, a.y, a.z, a.w};
		const uint32_t bs[4] = {b.x, b.y, b.z, b.w};

#pragma unroll
		for (int j = 0; j < 4; j++)
		{
			if (gg_cuda_halves(KIND))
			{
				const float2 x = __half22float2(*(const __half2 *) &as[j]);
				const float2 y = __half22float2(*(const __half2 *) &bs[j]);

				sum = KIND == GG_KIND_HALF_IP ? fmaf(x.x, y.x, fmaf(x.y, y.y, sum)) :
					fmaf(x.x - y.x, x.x - y.x, fmaf(x.y - y.y, x.y - y.y, sum));
			}
			else
			{
				const float difference = __uint_as_float(as[j]) - __uint_as_float(bs[j]);

				sum += KIND == GG_KIND_FLOAT_L1 ? fabsf(difference) : difference * difference;
			}
		}
	}
	sum = gg_warp_sum(sum);
	return KIND == GG_KIND_HALF_IP ? gg_product_distance(sum) : sum;
}

/* Element number `at` of the caller's rows, counted over them all. */
__device__ static inline float
gg_load_element(const gg_cuda_data &data, uint64_t at)
{
	return data.element == GG_ELEMENT_F16 ? __half2float(((const __half *) data.rows)[at]) :
		((const float *) data.rows)[at];
}

/* A well mixed 32-bit hash; a bijection. */
__device__ __host__ static inline uint32_t
gg_mix(uint32_t x)
{
	x ^= x >> 16;
	x *= 0x7FEB352Du;
	x ^= x >> 15;
	x *= 0x846CA68Bu;
	x ^= x >> 16;
	return x;
}

/* Run a kernel template for a list length of 64 or more: R = length / 32. */
#define GG_SWITCH_LONG_LENGTH(length, call) \
	do { \
		switch ((length) / 32) \
		{ \
			case 2: { constexpr int R = 2; call; } break; \
			case 4: { constexpr int R = 4; call; } break; \
			case 8: { constexpr int R = 8; call; } break; \
			default: { constexpr int R = 16; call; } break; \
		} \
	} while (0)

/* For any length. */
#define GG_SWITCH_LENGTH(length, call) \
	do { \
		if ((length) / 32 == 1) \
			{ constexpr int R = 1; call; } \
		else \
			GG_SWITCH_LONG_LENGTH(length, call); \
	} while (0)

/* Run a kernel template for a kind whose rows have places in a space: for all but products. */
#define GG_SWITCH_PLACE_KIND(kind_, call) \
	do { \
		switch (kind_) \
		{ \
			case GG_KIND_HALF_L2: \
				{ constexpr gg_cuda_kind KIND = GG_KIND_HALF_L2; call; } \
				break; \
			case GG_KIND_FLOAT_L2: \
				{ constexpr gg_cuda_kind KIND = GG_KIND_FLOAT_L2; call; } \
				break; \
			default: \
				{ constexpr gg_cuda_kind KIND = GG_KIND_FLOAT_L1; call; } \
				break; \
		} \
	} while (0)

/* For any kind. */
#define GG_SWITCH_KIND(kind_, call) \
	do { \
		if ((kind_) == GG_KIND_HALF_IP) \
			{ constexpr gg_cuda_kind KIND = GG_KIND_HALF_IP; call; } \
		else \
			GG_SWITCH_PLACE_KIND(kind_, call); \
	} while (0)

#endif							/* GG_LIST_CUH */
