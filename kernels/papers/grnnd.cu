/*
 * grnnd.cu
 *		Relative NN-descent in parallel: pools of neighbours that are pruned and passed on at once.
 *
 * Li, Li, Chang, Miyazaki: "GRNND: A GPU-Parallel Relative NN-Descent Algorithm for Efficient
 * Approximate Nearest Neighbor Graph Construction", 2025, section 3.  The contract, with steps (a)
 * to (d), is in src/engine/cpu/papers/grnnd.c.
 *
 * rows n x dim -> lists n x R, over pools of n x length keys (list.cuh), sorted, of which the first
 * R count
 *	(a) start	One warp per node.  S nodes, drawn at random as the CPU engine draws them, or the
 *				node's k-NN list from pivot cells, are measured and sorted.
 *	(b) round	One warp per node.  The pairs that the round draws are measured, four at a time.
 *				Who leaves keeps its place of the pool, with its distance from the node that it is
 *				offered to (grnnd.cuh).
 *		gather	Offers are sorted to the nodes that they are for: counted, scanned, scattered.
 *		merge	One warp per node.  What stayed and what was offered; the first R are the new pool.
 *	(c) reverse	gather and merge again, of other offers: a node to the first of its pool.
 *	(d) lists	One thread per entry of a list, from which optimize.cu chooses edges.
 *
 * Departures from the paper.  It has two pools per node, and puts an offer into the second one at
 * once; whether a full pool has room depends there on who came first.  Here all offers are gathered
 * before any is merged, so that a pool keeps the nearest of them, and one pool per node does.
 *
 * Order does not matter.  gather scatters in any order, and merge takes minima.  The same id is
 * offered to a pool several times with the same distance, since that is a function of the two rows
 * (row_view.cuh); merge drops what is equal.
 *
 * Nodes are looked at in the order of their cells: pools of one cell are of few rows, which come
 * from L2.
 *
 * Shared memory of round: 10 bytes per entry of a warp's pool, 5 KB a block for pools of 64.
 *
 * Memory: 18 bytes per entry of a pool (keys, places, offers), 1,152 per node at R = 64.
 *
 * Arithmetic of a round (estimated): two rows for each pair, 66 GB for 64 pairs at 1M x 128 of
 * float32; offers are 8 bytes each, read and written once more.
 *
 * Oracle: the CPU engine's build().  From random pools, over rows whose distances are exact, the
 * pools are the same to the last bit; elsewhere rounding decides some comparisons, and recall of
 * searches is the same (test_cuda_build.c).
 */
#include "grnnd.cuh"

/* ---- (a) start --------------------------------------------------------------- */

/*
 * A warp draws `wanted` distinct nodes other than node, as draw() of grnnd.c does: numbers that are
 * no use are passed over.  ids: shared memory for as many, and 32 more.
 */
__device__ static inline void
draw_ids(uint64_t seed, uint32_t node, uint32_t n, uint32_t wanted, uint32_t *ids)
{
	const uint32_t lane = threadIdx.x & 31;
	uint64_t	counter = (uint64_t) node << 20;
	uint32_t	count = 0;

	/* counting on from the node where few are free to take */
	for (uint32_t i = lane; wanted > n / 2 && i < wanted; i += 32)
		ids[i] = (uint32_t) (((uint64_t) node + 1 + i) % n);
	while (wanted <= n / 2 && count < wanted)
	{
		const uint32_t id = gg_random_below(seed, counter + lane, n);
		bool		fresh = id != node;
		uint32_t	mask;
		uint32_t	at;

		ids[count + lane] = id;
		__syncwarp();
		for (uint32_t i = 0; i < count + lane; i++)
			fresh &= ids[i] != id;
		/* all have read before one writes */
		__syncwarp();
		mask = __ballot_sync(GG_FULL_WARP, fresh);
		at = count + __popc(mask & gg_lanes_below(lane));
		if (fresh && at < wanted)
			ids[at] = id;
		__syncwarp();
		count += __popc(mask);
		counter += 32;
	}
	__syncwarp();
}

/* Warps a block so that the ids stay below 48 KB. */
template <int R>
struct start_shape
{
	static constexpr int WARPS = R <= 4 ? 8 : 4;
};

/* lists: of k-NN, the first S count; without keys random nodes are drawn */
template <gg_cuda_kind KIND, int R>
static __global__ void __launch_bounds__(start_shape<R>::WARPS * 32)
start_kernel(grnnd_args args, gg_cuda_lists lists, uint32_t first)
{
	constexpr int WARPS = start_shape<R>::WARPS;
	__shared__ uint32_t ids_of[WARPS][32 * R + 32];
	__shared__ uint64_t keys_of[WARPS][64];
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t at = first + blockIdx.x * WARPS + threadIdx.x / 32;
	const uint32_t n = args.view.data.n;
	uint32_t   *ids = ids_of[threadIdx.x / 32];
	uint64_t   *keys = keys_of[threadIdx.x / 32];
	uint32_t	count = min(args.params.start, n - 1);

	if (at >= n)
		return;
	const uint32_t node = args.order != NULL ? args.order[at] : at;

	if (lists.keys == NULL)
		draw_ids(args.seed, node, n, count, ids);
	else
	{
		const uint64_t *from = lists.keys + (uint64_t) node * lists.length;
		uint32_t	known = 0;

		for (uint32_t begin = 0; begin < count; begin += 32)
		{
			const uint64_t key = begin + lane < count ? from[begin + lane] : GG_KEY_NONE;

			if (key != GG_KEY_NONE)
				ids[begin + lane] = gg_key_id(key);
			known += __popc(__ballot_sync(GG_FULL_WARP, key != GG_KEY_NONE));
		}
		__syncwarp();
		count = known;
	}
	for (uint32_t begin = 0; begin < count; begin += 64)
	{
		const uint32_t some = min(count - begin, 64u);

		for (uint32_t i = 0; i < some; i += 4)
		{
			const uint32_t own[4] = {node, node, node, node};
			uint32_t	others[4];
			float		distances[4];

#pragma unroll
			for (int j = 0; j < 4; j++)
				others[j] = ids[begin + min(i + j, some - 1)];
			gg_view_pairs<KIND>(args.view, own, others, distances);
#pragma unroll
			for (int j = 0; j < 4; j++)
				if (lane == 0 && i + j < some)
					keys[i + j] = gg_key(distances[j], others[j], 0);
		}
		__syncwarp();
		gg_merge<R>(args.pools + (uint64_t) node * (32 * R), keys, some);
	}
}

/* ---- gather and merge -------------------------------------------------------- */

/* What entry `place` of a node's pool offers, and to whom; false: nothing.  length: entries. */
__device__ static inline bool
offer_of(const grnnd_args &args, uint32_t node, uint32_t place, uint32_t length, uint32_t *to,
		 uint64_t *key)
{
	const uint64_t *pool = args.pools + (uint64_t) node * args.length;

	if (args.reverse)
	{
		if (!((float) place < args.params.rho * (float) length))
			return false;
		*to = gg_key_id(pool[place]);
		*key = gg_key(gg_key_distance(pool[place]), node, 0);
		return true;
	}
	const uint32_t near = args.places[(uint64_t) node * args.length + place];

	if (near == place)
		return false;
	/* a node that has left as well, for another, still has its id here */
	*to = gg_key_id(pool[near]);
	*key = pool[place];
	return true;
}

/* Entries of a pool, in every lane. */
__device__ static inline uint32_t
pool_count(const uint64_t *pool, uint32_t length)
{
	uint32_t	count = 0;

	for (uint32_t i = threadIdx.x & 31; i < length; i += 32)
		count += __popc(__ballot_sync(GG_FULL_WARP, pool[i] != GG_KEY_NONE));
	return count;
}

/* counts[v] = offers to node v; a warp per node that offers */
static __global__ void
count_offers_kernel(grnnd_args args, uint32_t first, uint32_t *counts)
{
	const uint32_t node = first + blockIdx.x * 8 + threadIdx.x / 32;

	if (node >= args.view.data.n)
		return;
	const uint32_t length = pool_count(args.pools + (uint64_t) node * args.length, args.length);

	for (uint32_t place = threadIdx.x & 31; place < length; place += 32)
	{
		uint32_t	to;
		uint64_t	key;

		if (offer_of(args, node, place, length, &to, &key))
			atomicAdd(&counts[to], 1);
	}
}

/* Offers to node v, in any order, to offers[starts[v] .. starts[v + 1]); takes counts down to 0. */
static __global__ void
scatter_offers_kernel(grnnd_args args, uint32_t first, const uint64_t *starts, uint32_t *counts,
					  uint64_t *offers)
{
	const uint32_t node = first + blockIdx.x * 8 + threadIdx.x / 32;

	if (node >= args.view.data.n)
		return;
	const uint32_t length = pool_count(args.pools + (uint64_t) node * args.length, args.length);

	for (uint32_t place = threadIdx.x & 31; place < length; place += 32)
	{
		uint32_t	to;
		uint64_t	key;

		if (offer_of(args, node, place, length, &to, &key))
			offers[starts[to] + atomicSub(&counts[to], 1) - 1] = key;
	}
}

/* Warps a block so that the pools stay below 48 KB. */
template <int R>
struct merge_shape
{
	static constexpr int WARPS = R <= 4 ? 8 : 4;
};

/* A node's new pool: what stayed, and what it was offered, the nearest R. */
template <int R>
static __global__ void __launch_bounds__(merge_shape<R>::WARPS * 32)
merge_offers_kernel(grnnd_args args, const uint64_t *starts, const uint64_t *offers, uint32_t first)
{
	constexpr int WARPS = merge_shape<R>::WARPS;
	__shared__ uint64_t lists[WARPS][32 * R];
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t node = first + blockIdx.x * WARPS + threadIdx.x / 32;
	uint64_t   *list = lists[threadIdx.x / 32];
	uint32_t	stayed = 0;

	if (node >= args.view.data.n)
		return;
	uint64_t   *pool = args.pools + (uint64_t) node * (32 * R);
	const uint16_t *places = args.places + (uint64_t) node * (32 * R);

	for (uint32_t i = lane; i < 32 * R; i += 32)
	{
		const bool	stays = pool[i] != GG_KEY_NONE && (args.reverse || places[i] == i);
		const uint32_t mask = __ballot_sync(GG_FULL_WARP, stays);

		if (stays)
			list[stayed + __popc(mask & gg_lanes_below(lane))] = pool[i];
		stayed += __popc(mask);
	}
	for (uint32_t i = stayed + lane; i < 32 * R; i += 32)
		list[i] = GG_KEY_NONE;
	__syncwarp();
	for (uint64_t at = starts[node]; at < starts[node + 1]; at += 64)
	{
		const uint32_t count = (uint32_t) min(starts[node + 1] - at, (uint64_t) 64);
		const uint64_t last = list[args.params.capacity - 1];
		bool		any = lane < count && offers[at + lane] < last;

		any |= lane + 32 < count && offers[at + lane + 32] < last;
		if (__any_sync(GG_FULL_WARP, any))
			gg_merge<R>(list, offers + at, count);
	}
	for (uint32_t i = lane; i < 32 * R; i += 32)
		pool[i] = i < args.params.capacity ? list[i] : GG_KEY_NONE;
}

/* ---- (d) lists --------------------------------------------------------------- */

static __global__ void
lists_kernel(const uint64_t *pools, uint32_t length, uint32_t capacity, uint64_t entries,
			 uint64_t first, uint32_t *lists)
{
	const uint64_t entry = first + (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;

	if (entry >= entries)
		return;
	const uint64_t key = pools[entry / capacity * length + entry % capacity];

	lists[entry] = key == GG_KEY_NONE ? GG_NO_NODE : gg_key_id(key);
}

/* ---- all of it --------------------------------------------------------------- */

class grnnd
{
public:
	grnnd_args	args;
	grnnd_rounds round;
	gg_cuda_run run;
	gg_cuda_buffer<uint64_t> pools;
	gg_cuda_buffer<uint16_t> places;
	gg_cuda_buffer<uint64_t> offers;
	gg_cuda_buffer<uint32_t> counts;
	gg_cuda_buffer<uint64_t> starts;
	gg_cuda_pace pace;

	/* Tell how many passes over all rows are done. */
	void
	progress(uint32_t passes) const
	{
		const uint64_t n = args.view.data.n;

		gg_cuda_progress(run.control, GG_PHASE_KNN_DESCENT, n * passes,
						 n * (1 + args.params.outer * args.params.inner));
	}
};

/* (a) */
static gg_status
fill_pools(grnnd *g, const gg_cuda_lists &lists)
{
	const gg_cuda_data *data = &g->args.view.data;
	/* a launch: 20 GB of rows, some 20 ms */
	const uint64_t fit = 20000000000ull /
		((uint64_t) g->args.params.start * (data->dim * 4 + 16)) / 8 * 8 + 8;
	const uint64_t step = fit > GG_PASS_ROWS ? GG_PASS_ROWS : fit;

	GG_CUDA_TRY(cudaMemsetAsync(g->pools.get(), 0xFF, g->pools.bytes(), g->run.stream));
	GG_SWEEP(data->n, step, g->run, g->pace, "start_kernel",
		GG_SWITCH_PLACE_KIND(gg_cuda_kind_of(data->metric, data->dim),
			GG_SWITCH_LENGTH(g->args.length,
				(start_kernel<KIND, R><<<gg_cuda_blocks(count, start_shape<R>::WARPS),
				 start_shape<R>::WARPS * 32, 0, g->run.stream>>>
				 (g->args, lists, (uint32_t) first)))));
	return gg_ok();
}

/* Sort the offers of all pools to the nodes that they are for. */
static gg_status
gather_offers(grnnd *g)
{
	const uint32_t n = g->args.view.data.n;
	uint64_t	total = 0;

	GG_CUDA_TRY(cudaMemsetAsync(g->counts.get(), 0, g->counts.bytes(), g->run.stream));
	GG_SWEEP(n, GG_PASS_ROWS, g->run, g->pace, "count_offers_kernel",
		(count_offers_kernel<<<gg_cuda_blocks(count, 8), 256, 0, g->run.stream>>>
		 (g->args, (uint32_t) first, g->counts.get())));
	GG_TRY(gg_cuda_starts(g->counts.get(), (uint64_t) n + 1, g->run.stream, g->starts.get()));
	GG_CUDA_TRY(cudaMemcpyAsync(&total, g->starts.get() + n, sizeof(total), cudaMemcpyDeviceToHost,
								g->run.stream));
	GG_TRY(gg_cuda_drain(g->run.stream, g->run.control, __func__));
	/* the first round mostly has the most; a later one after reverse edges may have more */
	if (g->offers.bytes() < total * sizeof(uint64_t))
		GG_TRY(gg_cuda_allocate_large(&g->offers, total, g->run.control, g->run.meter));
	GG_SWEEP(n, GG_PASS_ROWS, g->run, g->pace, "scatter_offers_kernel",
		(scatter_offers_kernel<<<gg_cuda_blocks(count, 8), 256, 0, g->run.stream>>>
		 (g->args, (uint32_t) first, g->starts.get(), g->counts.get(), g->offers.get())));
	return gg_ok();
}

static gg_status
merge_offers(grnnd *g)
{
	const uint32_t n = g->args.view.data.n;
	const uint64_t fit = 200000000ull / g->args.length + 8;
	const uint64_t step = fit > GG_PASS_ROWS ? GG_PASS_ROWS : fit;

	GG_SWEEP(n, step, g->run, g->pace, "merge_offers_kernel",
		GG_SWITCH_LENGTH(g->args.length,
			(merge_offers_kernel<R><<<gg_cuda_blocks(count, merge_shape<R>::WARPS),
			 merge_shape<R>::WARPS * 32, 0, g->run.stream>>>
			 (g->args, g->starts.get(), g->offers.get(), (uint32_t) first))));
	return gg_ok();
}

/* (b) and (c) */
static gg_status
descend(grnnd *g)
{
	const gg_grnnd *params = &g->args.params;

	for (uint32_t outer = 0; outer < params->outer; outer++)
	{
		g->args.reverse = true;
		if (outer > 0)
		{
			GG_TRY(gather_offers(g));
			GG_TRY(merge_offers(g));
		}
		g->args.reverse = false;
		for (uint32_t inner = 0; inner < params->inner; inner++)
		{
			g->args.round++;
			GG_TRY(g->round(g->args, g->run, &g->pace));
			GG_TRY(gather_offers(g));
			GG_TRY(merge_offers(g));
			g->progress(1 + g->args.round);
		}
	}
	return gg_ok();
}

/* (d) */
static gg_status
write_lists(grnnd *g, uint32_t *lists)
{
	const uint32_t capacity = g->args.params.capacity;
	const uint64_t entries = (uint64_t) g->args.view.data.n * capacity;
	const uint64_t step = GG_PASS_ROWS * 32;

	GG_SWEEP(entries, step, g->run, g->pace, "lists_kernel",
		(lists_kernel<<<gg_cuda_blocks(count, 256), 256, 0, g->run.stream>>>
		 (g->pools.get(), g->args.length, capacity, entries, first, lists)));
	return gg_ok();
}

uint64_t
gg_cuda_grnnd_bytes(uint32_t n, const gg_build_params *params)
{
	const uint64_t length = gg_cuda_list_length(gg_grnnd_params(params).capacity);

	/* pools, places, offers; counts, starts */
	return n * (length * (8 + 2 + 8) + 4 + 8);
}

gg_status
gg_cuda_grnnd_by(grnnd_rounds round, const gg_cuda_data *data, const gg_build_params *params,
				 const gg_cuda_lists &starts, const uint32_t *order, const gg_cuda_run &run,
				 uint32_t *lists)
{
	const uint64_t n = data->n;
	grnnd		g = {};
	uint64_t	entries;

	if (n == 0)
		return gg_ok();
	g.args.view = gg_view_of(data);
	g.args.params = gg_grnnd_params(params);
	g.args.length = gg_cuda_list_length(g.args.params.capacity);
	g.args.seed = params->seed;
	g.args.order = order;
	g.round = round;
	g.run = run;
	entries = n * g.args.length;
	GG_TRY(g.pace.create());
	GG_TRY(gg_cuda_allocate_large(&g.pools, entries, run.control, run.meter));
	GG_TRY(gg_cuda_allocate_large(&g.places, entries, run.control, run.meter));
	GG_TRY(gg_cuda_allocate_large(&g.counts, n + 1, run.control, run.meter));
	GG_TRY(gg_cuda_allocate_large(&g.starts, n + 1, run.control, run.meter));
	g.args.pools = g.pools.get();
	g.args.places = g.places.get();
	GG_TRY(fill_pools(&g, starts));
	g.progress(1);
	GG_TRY(descend(&g));
	GG_TRY(write_lists(&g, lists));
	GG_TRY(gg_cuda_drain(run.stream, run.control, __func__));
	return gg_cuda_give_back(run.control, __func__, g.pools, g.places, g.offers, g.counts,
							 g.starts);
}

/* The pairs that the contract draws. */
struct drawn_pairs
{
	__host__ __device__ static uint32_t
	most(const gg_grnnd &params, uint32_t count)
	{
		return params.pairs * count;
	}

	__device__ static void
	draw(uint64_t seed, uint32_t pair, uint32_t count, uint32_t *near, uint32_t *far)
	{
		gg_grnnd_pair(seed, pair, count, near, far);
	}
};

gg_status
gg_cuda_grnnd_device(const gg_cuda_data *data, const gg_build_params *params,
					 const gg_cuda_lists &starts, const uint32_t *order, const gg_cuda_run &run,
					 uint32_t *lists)
{
	return gg_cuda_grnnd_by(grnnd_round<drawn_pairs>, data, params, starts, order, run, lists);
}
