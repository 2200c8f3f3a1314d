/*
 * search_greedy.cu
 *		TSDG's search for small batches: many greedy walks per query, each by one block.
 *
 * Wang, Wang, Zhao: "Graph-based Approximate NN Search: A Revisit", 2022, section 4.1.  The
 * contract is in src/engine/cpu/papers/tsdg_search.c.
 *
 * Shapes		queries nq x dim float32 -> nodes, distances nq x k; graph n x degree.
 * Requires		k <= GG_GREEDY_LIST <= npivots, queries in launch->queries.
 * Mapping		a block of 8 warps per walk, whose seeds are its share of the pivots.  It measures
 *				32 rows at a time: of warps w and w + 1, w even, each takes 16 rows, and each pair
 *				of warps a quarter of the rows' length.  Warp 0 adds up the quarters, keeps R (a key
 *				per lane, with a flag where the walk was) and finds the next node, while the others
 *				wait at a barrier of the block.
 *				No block waits for another.  At its end a walk measures R exactly, and leaves it in
 *				global memory.  The last block of a query merges the R of all.
 * Shared		the query (4 bytes per element), the quarters of 32 sums, twice, and 4 kB of nodes
 *				that the walk has seen (walk.cuh tells why it may forget them).
 * Oracle		gg_cpu_engine.index_search under the same mode: the same nodes, but where the
 *				rounding to fp16 on the way decides.  Distances are those of the other kernels, to
 *				the bit.
 */
#include "../../src/engine/rules/algorithms.h"
#include "../search/keys.cuh"
#include "../search/query.cuh"
#include "../search/rerank.cuh"
#include "search_greedy.h"
#include "../search/search_warp.cuh"
#include "../search/walk.cuh"

#define GREEDY_WARPS	8
#define SEEN_BITS		10

typedef struct greedy_shared
{
	float		sums[SUMS_OF(GREEDY_WARPS)];
	uint64_t	list[GREEDY_WARPS][32];
	uint32_t	seen[1 << SEEN_BITS];
	float		scratch[GREEDY_WARPS];
	uint32_t	next;			/* the node to expand, or GG_NO_NODE */
	bool		last;
} greedy_shared;

/* What warp 0 knows of its walk. */
typedef struct greedy_walk
{
	uint64_t	kept;			/* R, ascending over the lanes; the flag: was expanded */
	uint64_t	next;			/* the nearest newcomer of this step, or GG_KEY_NONE */
	bool		went_on;		/* from a local minimum */
	uint32_t	known;			/* nodes in the set of those seen */
	uint32_t	parity;			/* of the sums of 32 rows, in all warps: which half is written */
} greedy_walk;

/* The query as a walk measures it, and rows with their norms. */
typedef struct greedy_query
{
	const void *prepared;
	float		factor;
} greedy_query;

typedef struct greedy_rows
{
	const char *rows;
	const float *norms;
} greedy_rows;

/* Warp 0: put measured nodes, one per lane or GG_KEY_NONE, into R. */
static __device__ __forceinline__ void
keep_nodes(greedy_walk *walk, uint32_t *seen, uint64_t key, uint32_t lane)
{
	const uint64_t last = __shfl_sync(GG_FULL_WARP, (unsigned long long) walk->kept, 31);
	/* what is too far needs no place in the set: it stays too far */
	const bool	fresh = key < last && visit(seen, SEEN_BITS, gg_key_id(key));
	uint64_t	nearest;

	if (!__any_sync(GG_FULL_WARP, fresh))
		return;
	key = warp_sort(fresh ? key : GG_KEY_NONE);
	nearest = __shfl_sync(GG_FULL_WARP, (unsigned long long) key, 0);
	if (nearest < walk->next)
		walk->next = nearest;
	walk->kept = warp_merge(walk->kept, key, lane);

	walk->known += __popc(__ballot_sync(GG_FULL_WARP, fresh));
	if (walk->known + 32 <= (1u << SEEN_BITS) / 4 * 3)
		return;
	for (uint32_t i = lane; i < 1u << SEEN_BITS; i += 32)
		seen[i] = HASH_EMPTY;
	__syncwarp();
	if (walk->kept != GG_KEY_NONE)
		visit(seen, SEEN_BITS, gg_key_id(walk->kept));
	walk->known = __popc(__ballot_sync(GG_FULL_WARP, walk->kept != GG_KEY_NONE));
	__syncwarp();
}

/* Warp 0: the node to expand, or GG_NO_NODE. */
static __device__ __forceinline__ uint32_t
take_next(greedy_walk *walk)
{
	uint64_t	next = walk->next;

	if (next == GG_KEY_NONE && !walk->went_on)
	{
		/* GG_KEY_NONE has the flag */
		const uint32_t left = __ballot_sync(GG_FULL_WARP, (walk->kept & 1) == 0);

		walk->went_on = true;
		if (left != 0)
			next = __shfl_sync(GG_FULL_WARP, (unsigned long long) walk->kept, __ffs(left) - 1);
	}
	if (walk->kept == next)
		walk->kept |= 1;
	walk->next = GG_KEY_NONE;
	return next == GG_KEY_NONE ? GG_NO_NODE : gg_key_id(next);
}

/* Measure and keep 32 rows: each lane's at `at`, of its `node`; at is GG_NO_NODE: none. */
template <int PATH>
static __device__ __forceinline__ void
measure_32(const search_view &view, const greedy_rows &from, uint32_t at, uint32_t node,
		   const greedy_query &query, greedy_shared *shared, greedy_walk *walk)
{
	const uint32_t lane = threadIdx.x & 31;
	const float norm = load_norm(from.norms, at, threadIdx.x < 32 && at != GG_NO_NODE);
	const float sum = sum_32_rows<PATH, GREEDY_WARPS>(view, from.rows, at, 32, query.prepared,
													  shared->sums, walk->parity);

	if (threadIdx.x < 32)
		keep_nodes(walk, shared->seen, at == GG_NO_NODE ? GG_KEY_NONE :
				   make_key(walk_value<PATH>(view, sum, query.factor, norm), node), lane);
}

/* Exact keys of R, ascending, in warp 0. */
static __device__ __forceinline__ uint64_t
measure_exactly(const search_view &view, const float *raw, float inverse, greedy_shared *shared,
				uint64_t kept)
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t first = (threadIdx.x >> 5) * 4;
	uint64_t   *list = shared->list[0];
	uint32_t	nodes[4];
	float		values[4];

	if (threadIdx.x < 32)
		list[lane] = kept;
	__syncthreads();
#pragma unroll
	for (int u = 0; u < 4; u++)
		nodes[u] = list[first + u] == GG_KEY_NONE ? GG_NO_NODE : gg_key_id(list[first + u]);
	exact_nodes<4, 2>(view, nodes, raw, inverse, lane, values);
	/* nobody but this warp reads these four */
	__syncwarp();
#pragma unroll
	for (int u = 0; u < 4; u++)
		if (lane == (uint32_t) u)
			list[first + u] = nodes[u] == GG_NO_NODE ? GG_KEY_NONE : make_key(values[u], nodes[u]);
	__syncthreads();
	return threadIdx.x < 32 ? warp_sort(list[lane]) : GG_KEY_NONE;
}

/* The 32 lowest of two ascending warps of keys without those that both have, ascending. */
static __device__ __forceinline__ uint64_t
merge_distinct(uint64_t a, uint64_t b, uint32_t lane)
{
	uint32_t	at = 0;

#pragma unroll
	for (uint32_t half = 16; half > 0; half /= 2)
	{
		uint64_t	probe = __shfl_sync(GG_FULL_WARP, (unsigned long long) a, at + half - 1);

		at += probe < b ? half : 0;
	}
	if (__shfl_sync(GG_FULL_WARP, (unsigned long long) a, at) == b)
		b = GG_KEY_NONE;
	return warp_merge(a, warp_sort(b), lane);
}

/* By the last block of a query: answer it from the lists of all walks. */
static __device__ __forceinline__ void
merge_walks(const search_launch &launch, const search_slots &slots, const greedy_args &args,
			uint32_t query, greedy_shared *shared)
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t warp = threadIdx.x >> 5;
	const uint64_t *lists = args.lists + (size_t) query * args.walks * GG_GREEDY_LIST;
	uint64_t	best = GG_KEY_NONE;

	for (uint32_t i = warp; i < args.walks; i += GREEDY_WARPS)
		best = merge_distinct(best, __ldcg((const unsigned long long *) lists +
										   (size_t) i * GG_GREEDY_LIST + lane), lane);
	shared->list[warp][lane] = best;
	__syncthreads();
	if (warp != 0)
		return;
	for (uint32_t i = 1; i < GREEDY_WARPS; i++)
		best = merge_distinct(best, shared->list[i][lane], lane);
	if (lane < launch.params.k)
		keys_of(launch.keys, slots, query, launch.params.k)[lane] = best;
	__syncwarp();
	if (lane == 0)
	{
		args.arrived[query] = 0;
		if (slots.base != NULL)
			answered(slots, query);
	}
}

template <int PATH>
static __global__ void __launch_bounds__(GREEDY_WARPS * 32)
greedy_kernel(const __grid_constant__ search_view view,
			  const __grid_constant__ search_launch launch,
			  const __grid_constant__ search_slots slots,
			  const __grid_constant__ greedy_args args)
{
	extern __shared__ __align__(16) char prepared[];
	__shared__ greedy_shared shared;
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t query = blockIdx.x / args.walks;
	const uint32_t first = blockIdx.x % args.walks * args.nseeds;
	const uint32_t seeds = min(args.nseeds, view.npivots - first);
	const float *raw = launch.queries + (size_t) query * view.dim;
	greedy_walk walk = {.kept = GG_KEY_NONE, .next = GG_KEY_NONE};
	greedy_query measured = {prepared, 0};
	float		inverse;

	for (uint32_t i = threadIdx.x; i < 1u << SEEN_BITS; i += GREEDY_WARPS * 32)
		shared.seen[i] = HASH_EMPTY;
	inverse = query_inverse_norm<GREEDY_WARPS>(view, raw, shared.scratch);
	measured.factor = query_prepare<PATH, GREEDY_WARPS>(view, raw, inverse, prepared,
														shared.scratch);
	for (uint32_t base = 0; base < seeds; base += 32)
	{
		uint32_t	at = base + lane < seeds ? first + base + lane : GG_NO_NODE;
		const uint32_t node = at == GG_NO_NODE ? GG_NO_NODE : view.pivots[at];

		if (node >= view.n)
			at = GG_NO_NODE;
		walk.parity ^= 1;
		measure_32<PATH>(view, {view.pivot_rows, view.pivot_norms}, at, node, measured, &shared,
						 &walk);
	}
	for (uint32_t step = 0; step < GG_GREEDY_STEPS; step++)
	{
		const uint32_t *edges;

		if (threadIdx.x < 32)
		{
			const uint32_t next = take_next(&walk);

			if (threadIdx.x == 0)
				shared.next = next;
		}
		__syncthreads();
		if (shared.next == GG_NO_NODE)
			break;
		edges = view.adjacency + (size_t) shared.next * view.degree;
		for (uint32_t base = 0; base < view.degree; base += 32)
		{
			uint32_t	node = base + lane < view.degree ?
				__ldg(edges + base + lane) & ~GG_EDGE_MARK : GG_NO_NODE;

			if (node >= view.n)
				node = GG_NO_NODE;
			walk.parity ^= 1;
			measure_32<PATH>(view, {view.walk_rows, view.norms}, node, node, measured, &shared,
							 &walk);
		}
	}

	walk.kept = measure_exactly(view, raw, inverse, &shared, walk.kept);
	if (threadIdx.x < 32)
	{
		args.lists[(size_t) blockIdx.x * GG_GREEDY_LIST + lane] = walk.kept;
		__threadfence();
		__syncwarp();
	}
	if (threadIdx.x == 0)
	{
		shared.last = atomicAdd(args.arrived + query, 1) == args.walks - 1;
		__threadfence();
	}
	__syncthreads();
	if (shared.last)
		merge_walks(launch, slots, args, query, &shared);
}

/* Shared memory that a block takes beside what the kernel declares. */
static uint32_t
greedy_bytes(const search_view *view)
{
	return view->walk_pad * 4;
}

bool
search_greedy_takes(const search_view *view, uint32_t k, const search_device *device)
{
	return view->code_bits == 0 && k <= GG_GREEDY_LIST && view->npivots >= GG_GREEDY_LIST &&
		greedy_bytes(view) + sizeof(greedy_shared) <= (uint32_t) device->shared_bytes;
}

template <int PATH>
static cudaError_t
launch_walks(const search_view *view, const search_launch *launch, const search_slots *slots,
			 const greedy_args *args, const search_device *device, cudaStream_t stream)
{
	static std::atomic<uint32_t> context;
	const void *kernel = (const void *) greedy_kernel<PATH>;

	/* what the kernel declares counts against the block's limit */
	if (context.load(std::memory_order_relaxed) != device->context)
	{
		const int	bytes = device->shared_bytes - (int) sizeof(greedy_shared);
		cudaError_t error = cudaFuncSetAttribute(kernel,
												 cudaFuncAttributeMaxDynamicSharedMemorySize,
												 bytes);

		if (error != cudaSuccess)
			return error;
		context.store(device->context, std::memory_order_relaxed);
	}
	greedy_kernel<PATH><<<launch->nq * args->walks, GREEDY_WARPS * 32, greedy_bytes(view),
						  stream>>>(*view, *launch, slots_or_none(slots), *args);
	return cudaGetLastError();
}

cudaError_t
search_greedy_launch(const search_view *view, const search_launch *launch,
					 const search_slots *slots, const greedy_args *args,
					 const search_device *device, cudaStream_t stream)
{
	if (launch->nq == 0)
		return cudaSuccess;
	return with_path(view->path, [&](auto path)
					 {
						 return launch_walks<decltype(path)::value>(view, launch, slots, args,
																	device, stream);
					 });
}
