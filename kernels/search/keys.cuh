/*
 * keys.cuh
 *		Keys on the device: made of distances and nodes, counted, sorted, merged.
 *
 * They are those of warp.cuh; the flag means "expanded".  Comparing keys is comparing
 * (distance, node), since the ids in one list are distinct.
 */
#ifndef GG_SEARCH_KEYS_CUH
#define GG_SEARCH_KEYS_CUH

#include "../common/warp.cuh"

/* Floats as unsigned integers of the same order, -0 as +0; NaN sorts with +infinity. */
static __device__ __forceinline__ uint32_t
order_of(float value)
{
	uint32_t	bits = __float_as_uint(value + 0.0f);

	if (value != value)
		bits = 0x7F800000u;
	return bits ^ ((bits >> 31) ? 0xFFFFFFFFu : 0x80000000u);
}

static __device__ __forceinline__ float
value_of(uint64_t key)
{
	uint32_t	order = (uint32_t) (key >> 32);

	return __uint_as_float(order ^ ((order >> 31) ? 0x80000000u : 0xFFFFFFFFu));
}

static __device__ __forceinline__ uint64_t
make_key(float value, uint32_t node)
{
	return ((uint64_t) order_of(value) << 32) | (node << 1);
}

/* First index of ascending keys[0 .. count) whose key is not below `key`; count if none is. */
static __device__ __forceinline__ uint32_t
lower_bound(const uint64_t *keys, uint32_t count, uint64_t key)
{
	uint32_t	low = 0;

	while (count > 0)
	{
		uint32_t	half = count >> 1;

		if (keys[low + half] < key)
		{
			low += half + 1;
			count -= half + 1;
		}
		else
			count = half;
	}
	return low;
}

/*
 * How many of keys[0 .. count) are below mine, or, unless DISTINCT, equal and before position `at`.
 * For a block sorting by counting: every lane reads the same key at once.  keys is 16-byte aligned
 * and ends in GG_KEY_NONE up to the next multiple of COUNT_STEP: eight keys in flight make this
 * five times as fast as one.
 */
#define COUNT_STEP 8

template <bool DISTINCT>
static __device__ __forceinline__ uint32_t
count_below(const uint64_t *keys, uint32_t count, uint64_t mine, uint32_t at)
{
	const ulonglong2 *pairs = (const ulonglong2 *) keys;
	uint32_t	below = 0;

	for (uint32_t j = 0; j < count; j += COUNT_STEP)
	{
		ulonglong2	pair[COUNT_STEP / 2];

#pragma unroll
		for (int u = 0; u < COUNT_STEP / 2; u++)
			pair[u] = pairs[j / 2 + u];
#pragma unroll
		for (int u = 0; u < COUNT_STEP / 2; u++)
		{
			below += pair[u].x < mine;
			below += pair[u].y < mine;
			if (!DISTINCT)
			{
				below += pair[u].x == mine && j + 2 * u < at;
				below += pair[u].y == mine && j + 2 * u + 1 < at;
			}
		}
	}
	return below;
}

/* Sort one key per lane, ascending over the warp. */
static __device__ __forceinline__ uint64_t
warp_sort(uint64_t key)
{
	uint64_t	keys[1] = {key};

	gg_sort<1>(keys);
	return keys[0];
}

/* The 32 lowest of two ascending warps of keys, ascending. */
static __device__ __forceinline__ uint64_t
warp_merge(uint64_t a, uint64_t b, uint32_t lane)
{
	uint64_t	reversed = __shfl_sync(GG_FULL_WARP, (unsigned long long) b, 31 - lane);
	uint64_t	keys[1] = {a < reversed ? a : reversed};

	gg_sort_bitonic<1>(keys);
	return keys[0];
}

/*
 * Merge count <= 32 keys (any order, in shared memory) into an ascending list of `length` keys,
 * dropping what falls off its end.  One warp; pending must have room for 64 keys: its second half
 * takes the sorted ones.  From `used` on the list is known to hold only GG_KEY_NONE, which need not
 * move; length when that is not known.  Ranks by counting: reads are broadcasts, and count is
 * small.
 *
 * In place: blocks of 32 move up by at most 32, highest first, so a write never reaches a key that
 * is still to be read.
 */
static __device__ __forceinline__ void
warp_merge_list(uint64_t *list, uint32_t length, uint32_t used, uint64_t *pending, uint32_t count,
				uint32_t lane)
{
	uint64_t   *sorted = pending + 32;
	uint64_t	mine = lane < count ? pending[lane] : GG_KEY_NONE;
	uint32_t	rank = 0;
	uint32_t	position = length;
	uint32_t	first;

	for (uint32_t j = 0; j < count; j++)
		rank += pending[j] < mine;
	if (lane < count)
		sorted[rank] = mine;
	if (lane < count)
		position = rank + lower_bound(list, length, mine);
	__syncwarp();

	/* below the lowest new key nothing moves */
	first = __reduce_min_sync(GG_FULL_WARP, lane < count ? position - rank : length);
	for (int base = (int) ((used - 1) & ~31u); base + 31 >= (int) first; base -= 32)
	{
		uint32_t	at = base + lane;
		uint64_t	key = at < length ? list[at] : GG_KEY_NONE;
		uint32_t	to = at;

		if (at >= first && at < length)
			to += lower_bound(sorted, count, key);
		__syncwarp();
		if (at >= first && to < length)
			list[to] = key;
		__syncwarp();
	}
	if (lane < count && position < length)
		list[position] = mine;
	__syncwarp();
}

/* A list that a warp fills: ascending, with what waits to be merged into it. */
struct key_list
{
	uint64_t   *keys;			/* k of them count */
	uint64_t   *pending;		/* places for 32 keys that wait, and 32 that merging takes */
	uint32_t	used;			/* as warp_merge_list() has it */
	uint32_t	waiting;
};

/* Merge the keys that wait into the list. */
static __device__ __forceinline__ void
settle(key_list &list, uint32_t k, uint32_t lane)
{
	if (list.waiting > 0)
		warp_merge_list(list.keys, k, list.used, list.pending, list.waiting, lane);
}

/*
 * Take one key per lane.  Keys that may belong to the warp's list go to its buffer, which is merged
 * into the list when it would overflow.
 */
static __device__ __forceinline__ void
offer(uint64_t key, key_list &list, uint32_t k, uint32_t lane)
{
	uint64_t	worst = list.keys[k - 1];
	uint32_t	mask = __ballot_sync(GG_FULL_WARP, key < worst);

	if (mask == 0)
		return;
	if (list.waiting + __popc(mask) > 32)
	{
		warp_merge_list(list.keys, k, list.used, list.pending, list.waiting, lane);
		list.used = min(list.used + list.waiting, k);
		list.waiting = 0;
		worst = list.keys[k - 1];
		mask = __ballot_sync(GG_FULL_WARP, key < worst);
	}
	if (key < worst)
		list.pending[list.waiting + __popc(mask & gg_lanes_below(lane))] = key;
	list.waiting += __popc(mask);
	__syncwarp();
}

#endif							/* GG_SEARCH_KEYS_CUH */
