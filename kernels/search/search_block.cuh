/*
 * search_block.cuh
 *		A walk by several thread blocks: for search_multi.cu, whose head tells how it goes, and for
 *		search_group.cu.
 */
#ifndef GG_SEARCH_BLOCK_CUH
#define GG_SEARCH_BLOCK_CUH

#include "search_peers.cuh"

template <int PATH, int WARPS>
class block_walk
{
public:
	const search_view &view;
	const search_launch &launch;
	const search_slots &slots;
	const block_layout &layout;
	walk_peers	peers;
	char	   *shared;
	block_counters *counters;
	uint32_t	query;			/* of the launch */
	uint32_t	blocks;			/* of the query */
	uint32_t	rank;
	uint32_t	tid;
	uint32_t	lane;
	uint32_t	warp;
	walk_factor<PATH> factor;
	uint64_t   *list;
	uint64_t   *other_list;
	uint32_t   *hash;
	uint32_t   *ids;
	uint32_t	parity;
	uint32_t	known;			/* nodes in this block's visited set, at most */

	__device__ __forceinline__
	block_walk(const search_view &v, const search_launch &l, const search_slots &p,
			   const block_layout &o, uint32_t q, char *s, block_counters *c)
		: view(v), launch(l), slots(p), layout(o), peers(o, s), shared(s), counters(c), query(q),
		  blocks(peers.blocks), rank(peers.rank), tid(threadIdx.x), lane(threadIdx.x & 31),
		  warp(threadIdx.x >> 5), factor(),
		  list((uint64_t *) (s + o.list)), other_list(list + o.list_room),
		  hash((uint32_t *) (s + o.hash)), ids((uint32_t *) (s + o.ids)), parity(0), known(0)
	{
	}

	/* Called before anything is sent; it is a barrier of the block at least. */
	__device__ __forceinline__ void
	start(void)
	{
		if (blocks > 1)
			peers.start();
		else
			__syncthreads();
	}

	__device__ __forceinline__ void
	clear_hash(void)
	{
		for (uint32_t i = tid; i < (1u << layout.hash_bits); i += WARPS * 32)
			hash[i] = HASH_EMPTY;
	}

	/* Keep what node i has beside its row, from measure() until measured_key(). */
	__device__ __forceinline__ void
	keep_side(uint32_t i, const walk_side<PATH> &side)
	{
		float	   *sides = (float *) (shared + layout.partial) + layout.split * layout.room;

		if constexpr (code_bits_of(PATH) > 0)
		{
			sides[i] = side.base;
			sides[layout.room + i] = side.factor;
		}
		else
			sides[i] = side;
	}

	__device__ __forceinline__ walk_side<PATH>
	kept_side(uint32_t i) const
	{
		const float *sides = (const float *) (shared + layout.partial) +
			layout.split * layout.room;

		if constexpr (code_bits_of(PATH) > 0)
			return {sides[i], sides[layout.room + i]};
		else
			return sides[i];
	}

	/* Put raw sums of ids[0 .. count) into partial[part][i], keep norms; ends with a barrier. */
	__device__ __forceinline__ void
	measure(uint32_t count)
	{
		walk_sum<PATH> *partial = (walk_sum<PATH> *) (shared + layout.partial);
		uint32_t	chunks = walk_chunks(view);
		uint32_t	split = layout.split;
		uint32_t	part = warp % split;
		uint32_t	share = (chunks + split - 1) / split;
		uint32_t	begin = min(part * share, chunks);
		uint32_t	end = min(begin + share, chunks);

		for (uint32_t group = warp / split; group * 16 < count; group += WARPS / split)
		{
			uint32_t	a = group * 16 + (lane >> 2);
			uint32_t	b = a + 8;
			uint32_t	own = group * 16 + lane;
			bool		valid = lane < 16 && own < count;
			const walk_side<PATH> side = load_side<PATH>(view, view.walk_rows, view.norms,
														 ids[valid ? own : 0], valid && part == 0);
			walk_sum<PATH> sum;

			sum = sum_16_rows<PATH>(view, a < count ?
									view.walk_rows + (size_t) ids[a] * view.walk_stride : NULL,
									b < count ?
									view.walk_rows + (size_t) ids[b] * view.walk_stride : NULL,
									begin, end, shared, lane);
			if (valid)
				partial[part * layout.room + own] = sum;
			if (valid && part == 0)
				keep_side(own, side);
		}
		__syncthreads();
	}

	__device__ __forceinline__ uint64_t
	measured_key(uint32_t i) const
	{
		const walk_sum<PATH> *partial = (const walk_sum<PATH> *) (shared + layout.partial);
		walk_sum<PATH> sum = partial[i];

		for (uint32_t part = 1; part < layout.split; part++)
			sum += partial[part * layout.room + i];
		return make_key(walk_value<PATH>(view, sum, factor, kept_side(i)), ids[i]);
	}

	/*
	 * Sort kept[0 .. counters->kept) into sorted; returns how many.  Called after a barrier that
	 * made kept and its count visible; ends with one.
	 */
	__device__ __forceinline__ uint32_t
	sort_kept(void)
	{
		uint64_t   *kept = (uint64_t *) (shared + layout.kept);
		uint64_t   *sorted = (uint64_t *) (shared + layout.sorted);
		uint32_t	count = counters->kept;

		for (uint32_t i = tid; i < count; i += WARPS * 32)
		{
			uint64_t	mine = kept[i];

			sorted[count_below<true>(kept, count, mine, i)] = mine;
		}
		__syncthreads();
		return count;
	}

	/* Pad kept for count_below(); before the barrier that precedes counting. */
	__device__ __forceinline__ void
	clear_kept(void)
	{
		uint64_t   *kept = (uint64_t *) (shared + layout.kept);

		for (uint32_t i = tid; i < layout.room; i += WARPS * 32)
			kept[i] = GG_KEY_NONE;
	}

	/* Put what arrived from all blocks, without GG_KEY_NONE, into kept; ends with a barrier. */
	__device__ __forceinline__ void
	keep_arrived(void)
	{
		uint64_t   *kept = (uint64_t *) (shared + layout.kept);
		uint32_t	half = lane >> 4;	/* half a warp a block: most send fewer than 16 */

		for (uint32_t from = warp * 2 + half; from < ((blocks + 1) & ~1u); from += WARPS * 2)
		{
			uint32_t	count = from < blocks ? peers.count(parity, from) : 0;
			const uint64_t *keys = peers.keys(parity, from < blocks ? from : 0);

			for (uint32_t base = 0; __any_sync(GG_FULL_WARP, base < count); base += 16)
			{
				uint32_t	i = base + (lane & 15);

				keep(kept, i < count ? walk_peers::read(keys + i) : GG_KEY_NONE);
			}
		}
		__syncthreads();
	}

	/* Append the warp's keys to kept. */
	__device__ __forceinline__ void
	keep(uint64_t *kept, uint64_t key)
	{
		uint32_t	mask = __ballot_sync(GG_FULL_WARP, key != GG_KEY_NONE);
		uint32_t	at = 0;

		if (lane == 0 && mask != 0)
			at = atomicAdd(&counters->kept, __popc(mask));
		at = __shfl_sync(GG_FULL_WARP, at, 0) + __popc(mask & gg_lanes_below(lane));
		if (key != GG_KEY_NONE)
			kept[at] = key;
	}

	/* Merge sorted[0 .. count) into the list, whose first `expanded` members get their flag. */
	__device__ __forceinline__ void
	merge_sorted(uint32_t count, uint32_t expanded)
	{
		const uint64_t *sorted = (const uint64_t *) (shared + layout.sorted);
		const uint32_t itopk = launch.params.itopk_size;
		uint64_t   *swap;

		for (uint32_t i = tid; i < itopk + count; i += WARPS * 32)
		{
			uint64_t	key;
			uint32_t	place;

			if (i < itopk)
			{
				key = list[i];
				place = i + lower_bound(sorted, count, key);
				if (i < expanded)
					key |= 1;
			}
			else
			{
				key = sorted[i - itopk];
				place = i - itopk + lower_bound(list, itopk, key);
			}
			if (place < itopk)
				other_list[place] = key;
		}
		if (tid == 0)
			counters->kept = 0;
		clear_kept();
		__syncthreads();
		swap = list;
		list = other_list;
		other_list = swap;
	}

	/*
	 * Put the best pivots of all blocks, at which the walk enters, into sorted; returns how many.
	 */
	__device__ __forceinline__ uint32_t
	score_pivots(void)
	{
		uint64_t   *sorted = (uint64_t *) (shared + layout.sorted);
		uint32_t	chunks = walk_chunks(view);
		uint32_t	stride = blocks * WARPS * 16;
		const uint32_t bits = search_entry_bits(launch.params.itopk_size);
		const uint32_t entries = 1u << bits;
		uint64_t	best = GG_KEY_NONE;
		uint32_t	count;

		/*
		 * 16 a warp and round: with the usual 4 sqrt(n) of a million rows, all of them in one or
		 * two
		 */
		for (uint32_t base = (rank * WARPS + warp) * 16; base < view.npivots; base += stride)
		{
			uint32_t	a = base + (lane >> 2);
			uint32_t	b = a + 8;
			bool		valid = lane < 16 && base + lane < view.npivots;
			const walk_side<PATH> side = load_side<PATH>(view, view.pivot_rows, view.pivot_norms,
														 base + lane, valid);
			uint32_t	node = valid ? __ldg(view.pivots + base + lane) : GG_NO_NODE;
			uint64_t	key = GG_KEY_NONE;
			walk_sum<PATH> sum;

			sum = sum_16_rows<PATH>(view, a < view.npivots ?
									view.pivot_rows + (size_t) a * view.walk_stride : NULL,
									b < view.npivots ?
									view.pivot_rows + (size_t) b * view.walk_stride : NULL,
									0, chunks, shared, lane);
			if (valid)
				key = make_key(walk_value<PATH>(view, sum, factor, side), node);
			if (__any_sync(GG_FULL_WARP, key < __shfl_sync(GG_FULL_WARP, (unsigned long long) best,
														entries - 1)))
				best = warp_merge(best, warp_sort(key), lane);
		}

		/* the block's best, then those of all */
		if (lane < entries)
			sorted[(warp << bits) + lane] = best;
		__syncthreads();
		count = keep_best<false>(sorted, WARPS, bits);
		sort_distinct(count);
		if (blocks == 1)
			return min(count, entries);
		for (uint32_t x = tid; x < peers.receivers() << bits; x += WARPS * 32)
		{
			uint32_t	i = x & (entries - 1);

			peers.send(parity, x >> bits, i, i < count ? sorted[i] : GG_KEY_NONE);
		}
		if (tid == 0)
			counters->kept = 0;
		clear_kept();
		peers.meet();
		count = keep_best<true>(NULL, blocks, bits);
		sort_distinct(count);
		parity ^= 1;
		return min(count, entries);
	}

	/*
	 * Put what may be among the best 2^bits of `runs` ascending runs of 2^bits keys each into kept;
	 * returns how many.  The best 2^bits / runs of every run, rounded up, are that many keys in all
	 * or more, so nothing above the largest of them is needed: that leaves a few dozen to sort.
	 * SENT: the runs are what the peers sent, not one behind the other in keys.
	 */
	template <bool SENT>
	__device__ __forceinline__ uint32_t
	keep_best(const uint64_t *keys, uint32_t runs, uint32_t bits)
	{
		uint64_t   *kept = (uint64_t *) (shared + layout.kept);
		uint32_t	needed = ((1u << bits) + runs - 1) / runs;
		uint64_t	limit = 0;

		for (uint32_t run = 0; run < runs; run++)
		{
			uint64_t	key = SENT ? walk_peers::read(peers.keys(parity, run) + needed - 1) :
				keys[(run << bits) + needed - 1];

			limit = key > limit ? key : limit;
		}
		for (uint32_t base = 0; base < runs << bits; base += WARPS * 32)
		{
			uint32_t	x = base + tid;
			uint64_t	key = GG_KEY_NONE;

			if (x < runs << bits)
				key = SENT ? walk_peers::read(peers.keys(parity, x >> bits) +
											  (x & ((1u << bits) - 1))) : keys[x];
			keep(kept, key <= limit ? key : GG_KEY_NONE);
		}
		__syncthreads();
		return counters->kept;
	}

	/*
	 * As sort_kept() for keys that may repeat (GG_KEY_NONE, or a pivot named twice in a damaged
	 * index): equal keys go by position.
	 */
	__device__ __forceinline__ void
	sort_distinct(uint32_t count)
	{
		const uint64_t *kept = (const uint64_t *) (shared + layout.kept);
		uint64_t   *sorted = (uint64_t *) (shared + layout.sorted);

		for (uint32_t i = tid; i < count; i += WARPS * 32)
		{
			uint64_t	mine = kept[i];

			sorted[count_below<false>(kept, count, mine, i)] = mine;
		}
		__syncthreads();
	}

	/*
	 * The key of entry node i as score_pivots() left it: its pivot row is a copy of its walk row.
	 */
	__device__ __forceinline__ uint64_t
	entry_key(uint32_t i) const
	{
		const uint64_t *sorted = (const uint64_t *) (shared + layout.sorted);
		uint32_t	at = i;

		/* nodes that were left out before i only move its key down */
		while (gg_key_id(sorted[at]) != ids[i])
			at++;
		return sorted[at];
	}

	/* Fill the list with the entry nodes: the same ones, measured the same, in every block. */
	__device__ __forceinline__ void
	enter(void)
	{
		uint64_t   *kept = (uint64_t *) (shared + layout.kept);
		const uint64_t *sorted = (const uint64_t *) (shared + layout.sorted);
		uint32_t	count;

		if (launch.entries != NULL)
		{
			const uint64_t *entries = launch.entries +
				(size_t) query * launch.nentries;

			for (uint32_t i = tid; i < launch.nentries; i += WARPS * 32)
				kept[i] = entries[i];
			__syncthreads();
			sort_distinct(launch.nentries);
			count = min(launch.nentries, 1u << search_entry_bits(launch.params.itopk_size));
		}
		else
			count = score_pivots();

		/* a pivot named twice, or out of range, must not get into the list */
		if (warp == 0)
		{
			uint32_t	node = lane < count ? gg_key_id(sorted[lane]) : GG_NO_NODE;
			uint32_t	same = __match_any_sync(GG_FULL_WARP, node);	/* by all lanes */
			bool		fresh = node < view.n && (same & gg_lanes_below(lane)) == 0;
			uint32_t	mask = __ballot_sync(GG_FULL_WARP, fresh);

			if (fresh)
			{
				ids[__popc(mask & gg_lanes_below(lane))] = node;
				if (owner_of(node, blocks) == rank)
					visit(hash, layout.hash_bits, node);
			}
			if (lane == 0)
				counters->fresh = __popc(mask);
		}
		__syncthreads();
		count = counters->fresh;
		if (launch.entries != NULL)
			measure(count);
		for (uint32_t i = tid; i < layout.room; i += WARPS * 32)
			kept[i] = i >= count ? GG_KEY_NONE : launch.entries != NULL ? measured_key(i) :
				entry_key(i);
		if (tid == 0)
			counters->kept = count;
		__syncthreads();
		if (tid == 0)
			counters->fresh = 0;
		(void) sort_kept();
		merge_sorted(count, 0);
		known = count;
	}

	/* One step; false when no unexpanded member was left. */
	__device__ __forceinline__ bool
	step(void)
	{
		uint32_t   *parents = (uint32_t *) (shared + layout.parents) + warp * 32;
		uint32_t	found = 0;
		uint32_t	expanded = 0;	/* members before this position are expanded now */
		uint32_t	count;
		uint32_t	kept;
		uint64_t	worst;

		for (uint32_t base = 0;
			 base < launch.params.itopk_size && found < launch.params.search_width; base += 32)
		{
			uint64_t	key = base + lane < launch.params.itopk_size ?
				list[base + lane] : GG_KEY_NONE;
			bool		open = key != GG_KEY_NONE && (key & 1) == 0;
			uint32_t	mask = __ballot_sync(GG_FULL_WARP, open);
			uint32_t	place = found + __popc(mask & gg_lanes_below(lane));
			bool		chosen = open && place < launch.params.search_width;
			uint32_t	last = __ballot_sync(GG_FULL_WARP, chosen);

			if (chosen)
				parents[place] = gg_key_id(key);
			if (last != 0)
				expanded = base + 32 - __clz(last);
			found = min(found + __popc(mask), launch.params.search_width);
		}
		if (found == 0)
			return false;
		__syncwarp();

		for (uint32_t p = warp; p < found; p += WARPS)
		{
			const uint32_t *edges = view.adjacency + (size_t) parents[p] * view.degree;

			for (uint32_t edge = lane; edge < ((view.degree + 31) & ~31u); edge += 32)
			{
				uint32_t	id = edge < view.degree ? __ldg(edges + edge) & ~GG_EDGE_MARK :
					GG_NO_NODE;
				bool		fresh = id < view.n && owner_of(id, blocks) == rank &&
					visit(hash, layout.hash_bits, id);
				uint32_t	mask = __ballot_sync(GG_FULL_WARP, fresh);
				uint32_t	at = 0;

				if (lane == 0 && mask != 0)
					at = atomicAdd(&counters->fresh, __popc(mask));
				at = __shfl_sync(GG_FULL_WARP, at, 0) + __popc(mask & gg_lanes_below(lane));
				if (fresh)
					ids[at] = id;
			}
		}
		__syncthreads();
		count = counters->fresh;
		measure(count);

		worst = list[launch.params.itopk_size - 1];
		if (blocks == 1)
		{
			for (uint32_t base = 0; base < count; base += WARPS * 32)
			{
				uint64_t	key = base + tid < count ? measured_key(base + tid) : GG_KEY_NONE;

				keep((uint64_t *) (shared + layout.kept), key < worst ? key : GG_KEY_NONE);
			}
			__syncthreads();
		}
		else
		{
			for (uint32_t x = tid; x < count * peers.receivers(); x += WARPS * 32)
			{
				/* x / blocks: x is small */
				uint32_t	i = peers.receivers() == 1 ? x : __umulhi(x, layout.reciprocal);
				uint32_t	to = x - i * peers.receivers();
				uint64_t	key = measured_key(i);

				if (key >= worst)
					key = GG_KEY_NONE;
				else if (peers.is_self(to))
					asm volatile("prefetch.global.L2 [%0];" ::"l"(view.adjacency +
																  (size_t) ids[i] * view.degree));
				peers.send(parity, to, i, key);
			}
			peers.send_count(parity, count);
			peers.meet();
			keep_arrived();
		}
		if (tid == 0)
			counters->fresh = 0;
		parity ^= 1;
		kept = sort_kept();
		merge_sorted(kept, expanded);

		known += count;
		if (known + layout.room > (1u << layout.hash_bits) / 4 * 3)
			forget();
		return true;
	}

	/* Empty the visited set but for the list's members; only this block is concerned. */
	__device__ __forceinline__ void
	forget(void)
	{
		clear_hash();
		__syncthreads();
		for (uint32_t i = tid; i < launch.params.itopk_size; i += WARPS * 32)
		{
			uint64_t	key = list[i];

			if (key != GG_KEY_NONE && owner_of(gg_key_id(key), blocks) == rank)
				visit(hash, layout.hash_bits, gg_key_id(key));
		}
		known = launch.params.itopk_size;
		__syncthreads();
	}

	/*
	 * Put the query into raw.  Every block reads all of it, but a wide one in host memory is left
	 * to share_query().  Returns whether that was called; then start() is not needed.
	 */
	__device__ __forceinline__ bool
	take_query(float *raw)
	{
		const float *from = query_of(launch.queries, slots, query, view.dim);

		if (launch.queries != NULL || blocks == 1 || view.dim <= SHARE_DIM)
		{
			for (uint32_t i = tid; i < view.dim; i += WARPS * 32)
				raw[i] = from[i];
			__syncthreads();
			return false;
		}
		peers.template share_query<WARPS * 32>(raw, from, view.dim);
		return true;
	}

	/* Measure the list's front by rows, if there are any, by all blocks; block 0 answers. */
	__device__ __forceinline__ void
	answer(const float *raw, float inverse)
	{
		uint32_t	count = launch.params.rerank;
		uint64_t   *exact = (uint64_t *) (shared + layout.exact);
		uint64_t   *answer_keys = keys_of(launch.keys, slots, query, launch.params.k);

		for (uint32_t i = warp * blocks + rank; i < count; i += blocks * WARPS)
		{
			uint64_t	key = list[i];
			uint32_t	nodes[1] = {key == GG_KEY_NONE ? GG_NO_NODE : gg_key_id(key)};
			float		values[1];

			if (is_code(PATH) && view.rows == NULL)
				values[0] = value_of(key);
			else
				exact_nodes<1, 8>(view, nodes, raw, inverse, lane, values);
			key = key == GG_KEY_NONE ? GG_KEY_NONE : make_key(values[0], nodes[0]);
			if (lane == 0 && blocks > 1)
				peers.send_exact(i, key);
			else if (lane == 0)
				exact[i] = key;
		}
		if (blocks > 1)
			peers.collect_exact(count);
		else
			__syncthreads();
		if (rank != 0)
			return;
		for (uint32_t i = tid; i < count; i += WARPS * 32)
		{
			uint64_t	mine = exact[i];
			uint32_t	place = count_below<false>(exact, count, mine, i);

			if (place < launch.params.k)
				answer_keys[place] = mine;
		}
		if (slots.base != NULL)
		{
			__syncthreads();
			if (tid == 0)
				answered(slots, query);
		}
	}
};

/* Walk for query number `query` of the launch; by all blocks of the query. */
template <int PATH, int WARPS>
static __device__ __forceinline__ void
walk_by_blocks(const search_view &view, const search_launch &launch, const search_slots &slots,
			   const block_layout &layout, uint32_t query, char *shared, block_counters *counters)
{
	block_walk<PATH, WARPS> walk(view, launch, slots, layout, query, shared, counters);
	float	   *raw = (float *) (shared + layout.raw);
	float		inverse;
	bool		met;

	walk.clear_hash();
	for (uint32_t i = walk.tid; i < 2 * layout.list_room; i += WARPS * 32)
		walk.list[i] = GG_KEY_NONE;
	walk.clear_kept();
	/* the answer's keys come to block 0 from all; what pads them is there from the start */
	for (uint32_t i = walk.tid; i < COUNT_STEP; i += WARPS * 32)
		((uint64_t *) (shared + layout.exact))
			[launch.params.rerank / COUNT_STEP * COUNT_STEP + i] = GG_KEY_NONE;
	if (walk.tid == 0)
		counters->fresh = counters->kept = 0;
	met = walk.take_query(raw);
	inverse = query_inverse_norm<WARPS>(view, raw, counters->scratch);
	walk.factor = query_prepare<PATH, WARPS>(view, raw, inverse, shared, counters->scratch,
											 shared + layout.hash);
	if (is_code(PATH))
		walk.clear_hash();

	if (!met)
		walk.start();
	walk.enter();
	while (walk.step())
		;
	walk.answer(raw, inverse);
}

/* How many blocks each of the launch's queries gets: `cluster`, or fewer for lack of room. */
static inline uint32_t
cluster_with_room(const search_view *view, const search_launch *launch, const search_device *device,
				  uint32_t cluster)
{
	/* long lists of wide rows */
	while (cluster > 1 && block_layout_for(view, launch, device, cluster, MULTI_WARPS).total >
		   (uint32_t) device->shared_bytes)
		cluster /= 2;
	/* mail has no room for more blocks than run at once */
	while (cluster > 1 && !device->has_clusters &&
		   (launch->mail == NULL || launch->nq * cluster > (uint32_t) device->sms))
		cluster /= 2;
	return cluster;
}

#endif							/* GG_SEARCH_BLOCK_CUH */
