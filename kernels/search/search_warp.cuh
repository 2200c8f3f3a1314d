/*
 * search_warp.cuh
 *		What the searches share whose list is kept by one warp: search_single.cu,
 *		search_segmented.cu and search_greedy.cu.
 *
 * WARPS is the number of warps of a block, which are all at one query.  They measure together, and
 * warp 0 does the rest while the others wait.
 */
#ifndef GG_SEARCH_WARP_CUH
#define GG_SEARCH_WARP_CUH

#include "keys.cuh"
#include "launch.cuh"
#include "pivots.h"
#include "query.cuh"
#include "rerank.cuh"
#include "walk.cuh"

/*
 * Wider rows are too much for one warp with the tensor cores: the loads of 16 of them are many
 * latencies in a row, and the query takes shared memory from other warps.  Measured at batch
 * 10,000, itopk 64: 128 dimensions 1.8 ms with one warp per query, 2.3 ms with four; 768 dimensions
 * 11.7 ms with one, 9.1 with two, 5.8 with four, 6.1 with eight.  One warp does with teams of 16
 * lanes (search_single.cu).
 */
#define WIDE_DIM 384
#define WIDE_CODE_QUADS 64		/* of records: 1 kB, by analogy */

/* ---- shared memory --------------------------------------------------------- */

/*
 * A query's dynamic shared memory:
 *
 *	query		walk_pad x 4			as walks measure it
 *	list		itopk x 8, in 32s		keys; until they come, what makes a query by codes ready
 *	pending		64 x 8					keys that are to go into the list
 *	ids			candidates x 4			of a step
 *	parents		32 x 4
 *	hash		4 << hash_bits			the visited set; at the end, keys of the answer
 */
typedef struct warp_layout
{
	uint32_t	list;			/* offsets, bytes */
	uint32_t	pending;
	uint32_t	ids;
	uint32_t	parents;
	uint32_t	hash;
	uint32_t	total;
	uint32_t	hash_bits;
} warp_layout;

/*
 * The visited set is emptied when it is three quarters full.  A walk sees some 20 candidates a list
 * member, so at itopk 64 a set of 4 kB is emptied once or twice; one of 8 kB is not, but half of
 * that memory is worth more as further warps: 1.8 against 2.1 ms (1M x 128, batch 10,000).
 */
static inline uint32_t
hash_bits_for(uint32_t itopk, uint32_t candidates)
{
	uint32_t	bits = 10;

	while (bits < 13 && (1u << bits) < 16 * itopk)
		bits++;
	/* the list and the candidates of two steps must fit in three quarters of it */
	while ((1u << bits) * 3 / 4 < itopk + 2 * candidates)
		bits++;
	return bits;
}

/* Are the rows too wide for one warp?  See WIDE_DIM. */
static inline bool
is_wide(const search_view *view)
{
	return view->code_bits > 0 ? view->walk_quads > WIDE_CODE_QUADS : view->dim > WIDE_DIM;
}

/* The layout for steps of up to so many candidates. */
static inline warp_layout
warp_layout_for(const search_view *view, const search_launch *launch, uint32_t candidates)
{
	warp_layout layout;
	uint32_t	at = view->walk_pad * 4;

	if (candidates < LONG_ENTRY_NODES)
		candidates = LONG_ENTRY_NODES;
	layout.list = at;
	at += ((launch->params.itopk_size + 31) & ~31u) * 8;
	layout.pending = at;
	at += 64 * 8;
	layout.ids = at;
	at += (candidates * 4 + 15) & ~15u;	/* rounded: hash will hold the answer's keys */
	layout.parents = at;
	at += 32 * 4;
	layout.hash = at;
	layout.hash_bits = hash_bits_for(launch->params.itopk_size, candidates);
	layout.total = at + (4u << layout.hash_bits);
	/* a query by codes is made ready where the list comes */
	if (view->code_bits > 0 && layout.total < layout.list + code_work_bytes(view->dim))
		layout.total = layout.list + code_work_bytes(view->dim);
	return layout;
}

#ifdef __CUDACC__

/* Sums of 32 rows that warps leave for each other; none in a block of one warp. */
#define SUMS_OF(warps) ((warps) == 1 ? 0 : 2 * ((warps) / 2) * 32)

/* A list in shared memory, and what it takes to put keys into it. */
typedef struct warp_list
{
	uint64_t   *keys;			/* itopk of them, ascending; GG_KEY_NONE at the end */
	uint32_t	itopk;
	uint64_t   *pending;		/* 64 places */
	uint32_t   *hash;			/* the visited set */
	uint32_t	hash_bits;
	uint32_t	known;			/* nodes in the visited set */
	float	   *sums;			/* SUMS_OF(WARPS) */
	uint32_t	parity;			/* which half of sums is next */
} warp_list;

static __device__ __forceinline__ warp_list
warp_list_in(char *shared, const warp_layout &layout, uint32_t itopk)
{
	return {
		.keys = (uint64_t *) (shared + layout.list),
		.itopk = itopk,
		.pending = (uint64_t *) (shared + layout.pending),
		.hash = (uint32_t *) (shared + layout.hash),
		.hash_bits = layout.hash_bits
	};
}

/* Empty the list, and the visited set.  By all warps. */
template <int WARPS>
static __device__ __forceinline__ void
warp_list_clear(const warp_list &list)
{
	for (uint32_t i = threadIdx.x; i < 1u << list.hash_bits; i += WARPS * 32)
		list.hash[i] = HASH_EMPTY;
	for (uint32_t i = threadIdx.x; i < ((list.itopk + 31) & ~31u); i += WARPS * 32)
		list.keys[i] = GG_KEY_NONE;
}

/* Is this warp 0 of a block of WARPS?  The compiler knows when there is no other. */
template <int WARPS>
static __device__ __forceinline__ bool
is_first_warp(void)
{
	return WARPS == 1 || threadIdx.x < 32;
}

/* ---- distances --------------------------------------------------------------- */

/* Raw sums, over chunks [begin, end), of the 16 rows `at` of lanes 16 half .. 16 half + 15. */
template <int PATH>
static __device__ __forceinline__ walk_sum<PATH>
sum_half(const search_view &view, const char *rows, uint32_t at, uint32_t half, uint32_t begin,
		 uint32_t end, const void *query)
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t a = __shfl_sync(GG_FULL_WARP, at, half * 16 + (lane >> 2));
	const uint32_t b = __shfl_sync(GG_FULL_WARP, at, half * 16 + (lane >> 2) + 8);

	return sum_16_rows<PATH>(view, a == GG_NO_NODE ? NULL : rows + (size_t) a * view.walk_stride,
							 b == GG_NO_NODE ? NULL : rows + (size_t) b * view.walk_stride,
							 begin, end, query, lane);
}

/*
 * Raw sums of up to 32 rows: row `at` of rows, of each lane below count, or none where that is
 * GG_NO_NODE.  One warp takes 16 rows after the other.  Of several, warps w and w + 1, w even, take
 * 16 rows each, and each pair a part of the rows' length; the sums are right in every warp.  parity
 * alternates from call to call, so that one barrier a call is enough.
 */
template <int PATH, int WARPS>
static __device__ __forceinline__ walk_sum<PATH>
sum_32_rows(const search_view &view, const char *rows, uint32_t at, uint32_t count,
			const void *query, float *sums, uint32_t parity)
{
	static_assert(WARPS == 1 || !is_code(PATH), "sums of several warps are floats");
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t chunks = walk_chunks(view);
	walk_sum<PATH> sum = 0;

	if constexpr (WARPS == 1)
	{
#pragma unroll 1
		for (uint32_t half = 0; half < 2 && half * 16 < count; half++)
		{
			const walk_sum<PATH> value = sum_half<PATH>(view, rows, at, half, 0, chunks, query);

			if ((lane >> 4) == half)
				sum = value;
		}
	}
	else
	{
		const uint32_t slices = WARPS / 2;
		const uint32_t half = threadIdx.x >> 5 & 1;
		const uint32_t slice = threadIdx.x >> 6;
		const uint32_t each = (chunks + slices - 1) / slices;
		const uint32_t begin = min(slice * each, chunks);

		sums += parity * slices * 32;
		sum = sum_half<PATH>(view, rows, at, half, begin, min(begin + each, chunks), query);
		if (lane < 16)
			sums[slice * 32 + half * 16 + lane] = sum;
		__syncthreads();
		sum = 0;
#pragma unroll
		for (uint32_t i = 0; i < slices; i++)
			sum += sums[i * 32 + lane];
	}
	return sum;
}

/* ---- entering ---------------------------------------------------------------- */

/* The nearest 32 pivots to query number `query`, ascending over the lanes of warp 0. */
template <int PATH, int WARPS>
static __device__ __forceinline__ uint64_t
best_pivots(const search_view &view, const search_launch &launch, uint32_t query,
			const void *prepared, const walk_factor<PATH> &factor, warp_list *list)
{
	const uint32_t lane = threadIdx.x & 31;
	uint64_t	best = GG_KEY_NONE;

	if (launch.entries != NULL)
	{
		const uint64_t *entries = launch.entries + (size_t) query * launch.nentries;

		for (uint32_t base = 0; is_first_warp<WARPS>() && base < launch.nentries; base += 32)
		{
			uint64_t	key = base + lane < launch.nentries ? entries[base + lane] : GG_KEY_NONE;

			best = warp_merge(best, warp_sort(key), lane);
		}
		return best;
	}
	for (uint32_t base = 0; base < view.npivots; base += 32)
	{
		const uint32_t at = base + lane < view.npivots ? base + lane : GG_NO_NODE;
		uint64_t	key = GG_KEY_NONE;
		const walk_side<PATH> side = load_side<PATH>(view, view.pivot_rows, view.pivot_norms, at,
													 at != GG_NO_NODE && is_first_warp<WARPS>());
		const walk_sum<PATH> sum = sum_32_rows<PATH, WARPS>(view, view.pivot_rows, at,
															view.npivots - base, prepared,
															list->sums, list->parity);

		list->parity ^= 1;
		if (!is_first_warp<WARPS>())
			continue;
		if (at != GG_NO_NODE)
			key = make_key(walk_value<PATH>(view, sum, factor, side), view.pivots[at]);
		if (__any_sync(GG_FULL_WARP, key < __shfl_sync(GG_FULL_WARP, (unsigned long long) best,
													   31)))
			best = warp_merge(best, warp_sort(key), lane);
	}
	return best;
}

/*
 * Put the first `entries` of best_pivots(), at which the walk enters, into ids; returns their
 * number.  Warp 0.  A pivot named twice, or out of range, must not get into the list.
 */
static __device__ __forceinline__ uint32_t
enter_pivots(const search_view &view, uint64_t best, uint32_t entries, warp_list *list,
			 uint32_t *ids)
{
	const uint32_t lane = threadIdx.x & 31;
	bool		fresh = lane < entries && gg_key_id(best) < view.n &&
		visit(list->hash, list->hash_bits, gg_key_id(best));
	uint32_t	mask = __ballot_sync(GG_FULL_WARP, fresh);

	if (fresh)
		ids[__popc(mask & gg_lanes_below(lane))] = gg_key_id(best);
	list->known = __popc(mask);
	return __popc(mask);
}

/* ---- the list ------------------------------------------------------------------ */

/*
 * Measure ids[0 .. count) and merge those that belong into the list.  By all warps.  keys: NULL, or
 * room for the keys of all.
 */
template <int PATH, int WARPS>
static __device__ __forceinline__ void
measure_and_merge(const search_view &view, const uint32_t *ids, uint32_t count, const void *query,
				  const walk_factor<PATH> &factor, warp_list *list, uint64_t *keys)
{
	const uint32_t lane = threadIdx.x & 31;
	key_list	merged = {list->keys, list->pending, list->itopk, 0};

	for (uint32_t base = 0; base < count; base += 32)
	{
		uint32_t	mine = base + lane < count ? ids[base + lane] : GG_NO_NODE;
		const walk_side<PATH> side = load_side<PATH>(view, view.walk_rows, view.norms, mine,
													 mine != GG_NO_NODE &&
													 is_first_warp<WARPS>());
		const walk_sum<PATH> sum = sum_32_rows<PATH, WARPS>(view, view.walk_rows, mine,
															count - base, query, list->sums,
															list->parity);
		uint64_t	key = GG_KEY_NONE;

		list->parity ^= 1;
		if (!is_first_warp<WARPS>())
			continue;
		if (mine != GG_NO_NODE)
		{
			key = make_key(walk_value<PATH>(view, sum, factor, side), mine);
			if (keys != NULL)
				keys[base + lane] = key;
		}
		offer(key, merged, list->itopk, lane);
	}
	settle(merged, list->itopk, lane);
}

/*
 * After `count` more nodes were put into the visited set: empty it, but for the list's members,
 * unless it has room for `next` more.  Warp 0.
 */
static __device__ __forceinline__ void
forget_if_full(warp_list *list, uint32_t count, uint32_t next)
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t size = 1u << list->hash_bits;

	list->known += count;
	if (list->known + next <= size / 4 * 3)
		return;
	for (uint32_t i = lane; i < size; i += 32)
		list->hash[i] = HASH_EMPTY;
	__syncwarp();
	list->known = 0;
	for (uint32_t base = 0; base < list->itopk; base += 32)
	{
		uint64_t	key = list->keys[base + lane];

		if (key != GG_KEY_NONE)
			visit(list->hash, list->hash_bits, gg_key_id(key));
		list->known += __popc(__ballot_sync(GG_FULL_WARP, key != GG_KEY_NONE));
	}
	__syncwarp();
}

/* ---- the answer ------------------------------------------------------------------ */

/* Answer with the front of the list as it is: there are no rows to measure.  One warp. */
static __device__ __forceinline__ void
answer_estimates(const search_launch &launch, const search_slots &slots, uint32_t query,
				 const warp_list &list)
{
	uint64_t   *keys_out = keys_of(launch.keys, slots, query, launch.params.k);

	for (uint32_t i = threadIdx.x; i < launch.params.k; i += 32)
		keys_out[i] = list.keys[i] == GG_KEY_NONE ? GG_KEY_NONE : list.keys[i] & ~(uint64_t) 1;
	__syncwarp();
	if (slots.base != NULL && threadIdx.x == 0)
		answered(slots, query);
}

/* rows being measured exactly at once, two quads of each per lane */
#define RERANK_ROWS 4

/*
 * Answer query number `query` with the front of the list, in order of exact distances.  By all
 * warps, after a barrier; the new keys go where the visited set was.
 */
template <int WARPS>
static __device__ __forceinline__ void
answer_query(const search_view &view, const search_launch &launch, const search_slots &slots,
			 uint32_t query, const float *raw, float inverse, const warp_list &list)
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t warp = WARPS == 1 ? 0 : threadIdx.x >> 5;
	const uint32_t count = launch.params.rerank;
	uint64_t   *exact = (uint64_t *) list.hash;
	uint64_t   *keys_out = keys_of(launch.keys, slots, query, launch.params.k);

	for (uint32_t i = threadIdx.x; i < ((count + 31) & ~31u); i += WARPS * 32)
		exact[i] = GG_KEY_NONE;
	group_sync<WARPS>();
	for (uint32_t base = 0; base < count; base += 32)
	{
		uint64_t	key = base + lane < count ? list.keys[base + lane] : GG_KEY_NONE;
		uint32_t	node = key == GG_KEY_NONE ? GG_NO_NODE : gg_key_id(key);
		uint32_t	valid = __popc(__ballot_sync(GG_FULL_WARP, node != GG_NO_NODE));
		float		value = INFINITY;

		for (uint32_t i = warp * RERANK_ROWS; i < valid; i += WARPS * RERANK_ROWS)
		{
			uint32_t	nodes[RERANK_ROWS];
			float		values[RERANK_ROWS];

#pragma unroll
			for (int u = 0; u < RERANK_ROWS; u++)
				nodes[u] = __shfl_sync(GG_FULL_WARP, node, min(i + u, 31u));
			exact_nodes<RERANK_ROWS, 2>(view, nodes, raw, inverse, lane, values);
#pragma unroll
			for (int u = 0; u < RERANK_ROWS; u++)
				if (lane == i + u)
					value = values[u];
		}
		/* the lanes of the rows that this warp measured */
		if (WARPS == 1 || lane / RERANK_ROWS % WARPS == warp)
			list.pending[lane] = node == GG_NO_NODE ? GG_KEY_NONE : make_key(value, node);
		group_sync<WARPS>();
		if (is_first_warp<WARPS>())
			warp_merge_list(exact, count, count, list.pending, valid, lane);
		if (WARPS > 1)
			__syncthreads();
	}
	if (!is_first_warp<WARPS>())
		return;
	for (uint32_t i = lane; i < launch.params.k; i += 32)
		keys_out[i] = exact[i];
	__syncwarp();
	if (slots.base != NULL && lane == 0)
		answered(slots, query);
}

#endif							/* __CUDACC__ */
#endif							/* GG_SEARCH_WARP_CUH */
