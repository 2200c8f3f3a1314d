/*
 * search_single.cu
 *		Single-CTA search: one query per warp, for batches.
 *
 * Shapes		queries nq x dim float32 -> nodes, distances nq x k; graph n x degree.
 * Requires		k <= itopk <= GG_MAX_ITOPK, width x degree <= MAX_WALK_CANDIDATES (or width 1),
 *				rows up to WIDE_DIM elements; wider rows go to the block kernel of
 *				search_multi.cu with a cluster of one.
 * Mapping		one warp per query, one warp per block: a query that ends early frees its place at
 *				once.  A step: the lanes find the parents by ballot, read their adjacency
 *				lists (all parents' loads in flight together), pass the ids through the
 *				visited set, measure 16 candidates at a time (search.cuh), and merge
 *				those below the list's last key, 32 at a time.
 * Shared		the query (4 bytes per element), the list (8 bytes per member), 64 pending keys, ids
 *				of one step, the visited set (hash_bits below).
 * Tried		Linear probing in the visited set: 2.0 ms for 1M x 128, batch 10,000, where double
 *				hashing takes 1.8.  A cap of 64 or 80 registers for more warps: spills nothing, but
 *				orders the loads worse (2.6, 2.1 ms).  Two chunks in flight instead of four: 2.5 ms.
 * Oracle		gg_cpu_engine.index_search: recall within 0.01 of it on the same graph, distances
 *				of returned nodes within 1e-5 relative (sums are in another order).
 */
#include "launch.cuh"

/*
 * Wider rows are too much for one warp: the loads of 16 of them are many latencies in a row, and
 * the query takes shared memory from other warps.  Measured at batch 10,000, itopk 64: 128
 * dimensions 1.8 ms with one warp per query, 2.3 ms with four; 768 dimensions 11.7 ms with one, 9.1
 * with two, 5.8 with four, 6.1 with eight.
 */
#define WIDE_DIM 384

typedef struct warp_layout
{
	uint32_t	list;			/* offsets in shared memory, bytes */
	uint32_t	pending;
	uint32_t	ids;
	uint32_t	parents;
	uint32_t	hash;
	uint32_t	total;
	uint32_t	hash_bits;
} warp_layout;

/*
 * The visited set is emptied when it is three quarters full.  A walk sees some 20 candidates a list
 * member, so at itopk 64 a set of 4 kB is emptied once or twice; one of 8 kB is not, but halves of
 * that memory are worth more as further warps: 1.8 against 2.1 ms (1M x 128, batch 10,000).
 */
static uint32_t
hash_bits_for(uint32_t itopk, uint32_t candidates)
{
	uint32_t	bits = 10;

	while (bits < 13 && (1u << bits) < 16 * itopk)
		bits++;
	/* the list and a step's candidates must fit in three quarters of it */
	while ((1u << bits) * 3 / 4 < itopk + 2 * candidates)
		bits++;
	return bits;
}

static warp_layout
warp_layout_for(const search_view *view, const search_launch *launch)
{
	warp_layout layout;
	uint32_t	candidates = launch->width * view->degree;
	uint32_t	at = view->walk_pad * 4;

	if (candidates < ENTRY_NODES)
		candidates = ENTRY_NODES;
	layout.list = at;
	at += ((launch->itopk + 31) & ~31u) * 8;
	layout.pending = at;
	at += 64 * 8;
	layout.ids = at;
	at += (candidates * 4 + 15) & ~15u;	/* the answer's keys go where the visited set was */
	layout.parents = at;
	at += 32 * 4;
	layout.hash = at;
	layout.hash_bits = hash_bits_for(launch->itopk, candidates);
	layout.total = at + (4u << layout.hash_bits);
	return layout;
}

#define PARENTS_IN_FLIGHT 8		/* adjacency lists being read at once */
/* rows being measured exactly at once, two pieces of each per lane */
#define RERANK_ROWS 4

/*
 * Measure ids[0 .. count) and merge those that belong into the list.
 */
template <int PATH>
static __device__ __forceinline__ void
measure_and_merge(const search_view &view, const uint32_t *ids, uint32_t count, const void *query,
				  float factor, uint64_t *list, uint32_t itopk, uint64_t *pending, uint32_t lane)
{
	uint32_t	waiting = 0;
	uint64_t	worst = list[itopk - 1];
	uint32_t	chunks = walk_chunks(view);

	for (uint32_t base = 0; base < count; base += 32)
	{
		uint32_t	mine = base + lane < count ? ids[base + lane] : GG_NO_NODE;
		float		norm = load_norm(view.norms, mine, mine != GG_NO_NODE);
		float		sum = 0;
		uint64_t	key;
		uint32_t	mask;
		bool		pass;

#pragma unroll 1
		for (uint32_t half = 0; half < 2 && base + half * 16 < count; half++)
		{
			uint32_t	a = __shfl_sync(GG_FULL_WARP, mine, half * 16 + (lane >> 2));
			uint32_t	b = __shfl_sync(GG_FULL_WARP, mine, half * 16 + (lane >> 2) + 8);
			float		value;

			value = sum_16_rows<PATH>(a == GG_NO_NODE ? NULL :
									  view.walk_rows + (size_t) a * view.walk_stride,
									  b == GG_NO_NODE ? NULL :
									  view.walk_rows + (size_t) b * view.walk_stride,
									  0, chunks, view.walk_pieces, query, view.walk_pad, lane);
			if ((lane >> 4) == half)
				sum = value;
		}
		pass = mine != GG_NO_NODE;
		key = GG_KEY_NONE;
		if (pass)
		{
			key = make_key(walk_value<PATH>(view, sum, factor, norm), mine);
			pass = key < worst;
		}
		mask = __ballot_sync(GG_FULL_WARP, pass);
		/* at most 31 wait, so all fit in 64 slots; merging takes 32 and needs the upper half */
		if (waiting + __popc(mask) > 32)
		{
			warp_merge_list(list, itopk, itopk, pending, waiting, lane);
			worst = list[itopk - 1];
			pass = pass && key < worst;
			mask = __ballot_sync(GG_FULL_WARP, pass);
			waiting = 0;
		}
		if (pass)
			pending[waiting + __popc(mask & gg_lanes_below(lane))] = key;
		waiting += __popc(mask);
		__syncwarp();
	}
	if (waiting > 0)
		warp_merge_list(list, itopk, itopk, pending, waiting, lane);
}

template <int PATH>
__global__ void __launch_bounds__(32)
search_warp_kernel(const __grid_constant__ search_view view,
				   const __grid_constant__ search_launch launch,
				   const __grid_constant__ search_slots slots,
				   const __grid_constant__ warp_layout layout)
{
	extern __shared__ __align__(16) char shared[];
	uint64_t   *list = (uint64_t *) (shared + layout.list);
	uint64_t   *pending = (uint64_t *) (shared + layout.pending);
	uint32_t   *ids = (uint32_t *) (shared + layout.ids);
	uint32_t   *parents = (uint32_t *) (shared + layout.parents);
	uint32_t   *hash = (uint32_t *) (shared + layout.hash);
	const uint32_t lane = threadIdx.x;
	const uint32_t itopk = launch.itopk;
	const uint32_t hash_size = 1u << layout.hash_bits;
	const float *raw = launch.queries + (size_t) blockIdx.x * view.dim;
	float		inverse;
	float		factor;
	uint32_t	known;
	uint64_t	best = GG_KEY_NONE;

	for (uint32_t i = lane; i < hash_size; i += 32)
		hash[i] = HASH_EMPTY;
	for (uint32_t i = lane; i < ((itopk + 31) & ~31u); i += 32)
		list[i] = GG_KEY_NONE;
	inverse = query_inverse_norm<1>(view, raw, NULL);
	factor = query_prepare<PATH, 1>(view, raw, inverse, shared, NULL);

	/* the pivots to start from */
	if (launch.entries != NULL)
	{
		const uint64_t *entries = launch.entries + (size_t) blockIdx.x * launch.nentries;

		for (uint32_t base = 0; base < launch.nentries; base += 32)
		{
			uint64_t	key = base + lane < launch.nentries ? entries[base + lane] : GG_KEY_NONE;

			best = warp_merge(best, warp_sort(key), lane);
		}
	}
	else
	{
		uint32_t	chunks = walk_chunks(view);

		for (uint32_t base = 0; base < view.npivots; base += 32)
		{
			uint64_t	key = GG_KEY_NONE;
			float		norm = load_norm(view.pivot_norms, base + lane, base + lane < view.npivots);
			float		sum = 0;

#pragma unroll 1
			for (uint32_t half = 0; half < 2 && base + half * 16 < view.npivots; half++)
			{
				uint32_t	a = base + half * 16 + (lane >> 2);
				uint32_t	b = a + 8;
				float		value;

				value = sum_16_rows<PATH>(a < view.npivots ?
										  view.pivot_rows + (size_t) a * view.walk_stride : NULL,
										  b < view.npivots ?
										  view.pivot_rows + (size_t) b * view.walk_stride : NULL,
										  0, chunks, view.walk_pieces, shared, view.walk_pad, lane);
				if ((lane >> 4) == half)
					sum = value;
			}
			if (base + lane < view.npivots)
				key = make_key(walk_value<PATH>(view, sum, factor, norm),
							   view.pivots[base + lane]);
			if (__any_sync(GG_FULL_WARP, key < __shfl_sync(GG_FULL_WARP, (unsigned long long) best,
														   31)))
				best = warp_merge(best, warp_sort(key), lane);
		}
	}
	{
		/* a pivot named twice, or out of range, must not get into the list */
		bool		fresh = lane < ENTRY_NODES && gg_key_id(best) < view.n &&
			visit(hash, layout.hash_bits, gg_key_id(best));
		uint32_t	mask = __ballot_sync(GG_FULL_WARP, fresh);

		if (fresh)
			ids[__popc(mask & gg_lanes_below(lane))] = gg_key_id(best);
		known = __popc(mask);
	}
	__syncwarp();
	measure_and_merge<PATH>(view, ids, known, shared, factor, list, itopk, pending, lane);

	for (;;)
	{
		uint32_t	found = 0;
		uint32_t	count = 0;

		for (uint32_t base = 0; base < itopk && found < launch.width; base += 32)
		{
			uint64_t	key = list[base + lane];
			bool		open = key != GG_KEY_NONE && (key & 1) == 0;
			uint32_t	mask = __ballot_sync(GG_FULL_WARP, open);
			uint32_t	rank = found + __popc(mask & gg_lanes_below(lane));

			if (open && rank < launch.width)
			{
				list[base + lane] = key | 1;
				parents[rank] = gg_key_id(key);
			}
			found = min(found + __popc(mask), launch.width);
		}
		if (found == 0)
			break;
		__syncwarp();

		for (uint32_t p = 0; p < found; p += PARENTS_IN_FLIGHT)
		{
			for (uint32_t edge = lane; edge < ((view.degree + 31) & ~31u); edge += 32)
			{
				uint32_t	id[PARENTS_IN_FLIGHT];

#pragma unroll
				for (int u = 0; u < PARENTS_IN_FLIGHT; u++)
				{
					id[u] = GG_NO_NODE;
					if (p + u < found && edge < view.degree)
						id[u] = __ldg(view.adjacency + (size_t) parents[p + u] * view.degree +
									  edge) & ~GG_EDGE_MARK;
				}
#pragma unroll
				for (int u = 0; u < PARENTS_IN_FLIGHT; u++)
				{
					bool		fresh = id[u] < view.n && visit(hash, layout.hash_bits, id[u]);
					uint32_t	mask = __ballot_sync(GG_FULL_WARP, fresh);

					if (fresh)
						ids[count + __popc(mask & gg_lanes_below(lane))] = id[u];
					count += __popc(mask);
				}
			}
		}
		__syncwarp();
		measure_and_merge<PATH>(view, ids, count, shared, factor, list, itopk, pending, lane);

		known += count;
		if (known + launch.width * view.degree > hash_size / 4 * 3)
		{
			for (uint32_t i = lane; i < hash_size; i += 32)
				hash[i] = HASH_EMPTY;
			__syncwarp();
			known = 0;
			for (uint32_t base = 0; base < itopk; base += 32)
			{
				uint64_t	key = list[base + lane];

				if (key != GG_KEY_NONE)
					visit(hash, layout.hash_bits, gg_key_id(key));
				known += __popc(__ballot_sync(GG_FULL_WARP, key != GG_KEY_NONE));
			}
			__syncwarp();
		}
	}

	/* the front of the list in order of exact distances; the list's memory takes the new keys */
	{
		uint32_t	count = search_rerank_count(itopk, launch.k);
		uint64_t   *exact = (uint64_t *) hash;
		uint32_t   *answer_nodes = nodes_of(launch.nodes, slots, blockIdx.x, launch.k);
		float	   *answer_distances = distances_of(launch.distances, slots, blockIdx.x, launch.k);

		for (uint32_t i = lane; i < ((count + 31) & ~31u); i += 32)
			exact[i] = GG_KEY_NONE;
		__syncwarp();
		for (uint32_t base = 0; base < count; base += 32)
		{
			uint64_t	key = base + lane < count ? list[base + lane] : GG_KEY_NONE;
			uint32_t	node = key == GG_KEY_NONE ? GG_NO_NODE : gg_key_id(key);
			uint32_t	valid = __popc(__ballot_sync(GG_FULL_WARP, node != GG_NO_NODE));
			float		value = INFINITY;

			for (uint32_t i = 0; i < valid; i += RERANK_ROWS)
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
			pending[lane] = node == GG_NO_NODE ? GG_KEY_NONE : make_key(value, node);
			__syncwarp();
			warp_merge_list(exact, count, count, pending, valid, lane);
		}
		for (uint32_t i = lane; i < launch.k; i += 32)
		{
			uint64_t	key = exact[i];

			answer_nodes[i] = key == GG_KEY_NONE ? GG_NO_NODE : gg_key_id(key);
			answer_distances[i] = key == GG_KEY_NONE ? INFINITY : value_of(key);
		}
		__syncwarp();
		if (slots.base != NULL && lane == 0)
			answered(slots, blockIdx.x);
	}
}

template <int PATH>
static cudaError_t
launch_warps(const search_view *view, const search_launch *launch, const search_slots *slots,
			 const search_device *device, cudaStream_t stream)
{
	static kernel_state state;
	warp_layout layout = warp_layout_for(view, launch);
	cudaError_t error;

	if (layout.total > (uint32_t) device->shared_bytes)
		return cudaErrorInvalidConfiguration;
	error = kernel_ready(&state, (const void *) search_warp_kernel<PATH>, false, device);
	if (error != cudaSuccess)
		return error;
	search_warp_kernel<PATH><<<launch->nq, 32, layout.total, stream>>>(*view, *launch,
																	  slots_or_none(slots), layout);
	return cudaGetLastError();
}

/* Shared memory that a block takes. */
uint32_t
search_single_shared(const search_view *view, const search_launch *launch,
					 const search_device *device)
{
	return view->dim > WIDE_DIM ? search_multi_shared(view, launch, device) :
		warp_layout_for(view, launch).total;
}

cudaError_t
search_single_launch(const search_view *view, const search_launch *launch,
					 const search_slots *slots, const search_device *device, cudaStream_t stream)
{
	if (launch->nq == 0)
		return cudaSuccess;
	if (view->dim > WIDE_DIM)
		return search_multi_launch(view, launch, slots, device, 1, stream);
	return with_path(view->path, [&](auto path)
					 {
						 return launch_warps<decltype(path)::value>(view, launch, slots, device,
																	stream);
					 });
}
