/*
 * search_single.cu
 *		Single-CTA search: one query per warp, for batches.
 *
 * Shapes		queries nq x dim float32 -> nodes, distances nq x k; graph n x degree.
 * Requires		k <= itopk <= GG_MAX_ITOPK, width x degree <= MAX_WALK_CANDIDATES (or width 1),
 *				some wide rows, and long lists of narrow ones, go to the block kernel of
 *				search_multi.cu with a cluster of one (takes_warps()).
 * Mapping		one warp per query, one warp per block: a query that ends early frees its place at
 *				once.  A step: the lanes find the parents by ballot, read their adjacency
 *				lists (all parents' loads in flight together), pass the ids through the
 *				visited set, measure 16 candidates at a time (walk.cuh), and merge
 *				those below the list's last key, 32 at a time.  Rows of more than WIDE_DIM elements
 *				are measured by teams of WIDE_TEAM lanes, not by the tensor cores.
 * Shared		the query (4 bytes per element), the list (8 bytes per member), 64 pending keys, ids
 *				of one step, the visited set (hash_bits_for()).
 * Tried		Linear probing in the visited set: 2.0 ms for 1M x 128, batch 10,000, where double
 *				hashing takes 1.8.  A cap of 64 or 80 registers for more warps: spills nothing, but
 *				orders the loads worse (2.6, 2.1 ms).  Two chunks in flight instead of four: 2.5 ms.
 * Oracle		gg_cpu_engine.index_search: recall within 0.01 of it on the same graph, distances
 *				of returned nodes within 1e-5 relative (sums are in another order).
 */
#include "query.cuh"
#include "search_multi.h"
#include "search_single.h"
#include "search_warp.cuh"
#include "walk.cuh"

#define PARENTS_IN_FLIGHT 8		/* adjacency lists being read at once */

/*
 * Lanes that share a wide row.  500,000 x 960, batch 10,000, recall 0.99: 1.25M queries/s; 8 lanes
 * 1.23M, 32 0.90M, 4 0.78M, the tensor cores 0.75M.  Both 8 and 16 take 96 registers and 128
 * elements at a time, which divides 768 and 1,536; 16 read the query from shared memory half as
 * often.
 */
#define WIDE_TEAM 16

/*
 * Lists up to so long are searched by a block where rows are wide, and by a warp where they are
 * narrow: see takes_warps().
 */
#define WIDE_SHORT 64
#define NARROW_SHORT 64

/*
 * The list's nearest members that are not expanded, at most `width`, to parents; they count as
 * expanded from here on.  Returns their number.
 */
static __device__ __forceinline__ uint32_t
take_parents(const warp_list &list, uint32_t width, uint32_t *parents, uint32_t lane)
{
	uint32_t	found = 0;

	for (uint32_t base = 0; base < list.itopk && found < width; base += 32)
	{
		uint64_t	key = list.keys[base + lane];
		bool		open = key != GG_KEY_NONE && (key & 1) == 0;
		uint32_t	mask = __ballot_sync(GG_FULL_WARP, open);
		uint32_t	rank = found + __popc(mask & gg_lanes_below(lane));

		if (open && rank < width)
		{
			list.keys[base + lane] = key | 1;
			parents[rank] = gg_key_id(key);
		}
		found = min(found + __popc(mask), width);
	}
	return found;
}

/* The parents' neighbours that are new, to ids; returns their number. */
static __device__ __forceinline__ uint32_t
take_candidates(const search_view &view, const warp_list &list, const uint32_t *parents,
				uint32_t found, uint32_t *ids, uint32_t lane)
{
	uint32_t	count = 0;

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
					id[u] = __ldg(view.adjacency + (size_t) parents[p + u] * view.degree + edge) &
						~GG_EDGE_MARK;
			}
#pragma unroll
			for (int u = 0; u < PARENTS_IN_FLIGHT; u++)
			{
				bool		fresh = id[u] < view.n && visit(list.hash, list.hash_bits, id[u]);
				uint32_t	mask = __ballot_sync(GG_FULL_WARP, fresh);

				if (fresh)
					ids[count + __popc(mask & gg_lanes_below(lane))] = id[u];
				count += __popc(mask);
			}
		}
	}
	return count;
}

template <int PATH>
__global__ void __launch_bounds__(32)
search_warp_kernel(const __grid_constant__ search_view view,
				   const __grid_constant__ search_launch launch,
				   const __grid_constant__ search_slots slots,
				   const __grid_constant__ warp_layout layout)
{
	extern __shared__ __align__(16) char shared[];
	uint32_t   *ids = (uint32_t *) (shared + layout.ids);
	uint32_t   *parents = (uint32_t *) (shared + layout.parents);
	const uint32_t lane = threadIdx.x;
	const float *raw = launch.queries + (size_t) blockIdx.x * view.dim;
	warp_list	list = warp_list_in(shared, layout, launch.itopk);
	walk_factor<PATH> factor;
	float		inverse;
	uint32_t	count;

	if (!is_code(PATH))
		warp_list_clear<1>(list);
	inverse = query_inverse_norm<1>(view, raw, NULL);
	factor = query_prepare<PATH, 1>(view, raw, inverse, shared, NULL, shared + layout.list);
	if (is_code(PATH))
	{
		warp_list_clear<1>(list);
		__syncwarp();
	}
	count = enter_pivots(view, best_pivots<PATH, 1>(view, launch, blockIdx.x, shared, factor,
													&list), &list, ids);
	__syncwarp();
	measure_and_merge<PATH, 1>(view, ids, count, shared, factor, &list, NULL);
	for (;;)
	{
		const uint32_t found = take_parents(list, launch.width, parents, lane);

		if (found == 0)
			break;
		__syncwarp();
		count = take_candidates(view, list, parents, found, ids, lane);
		__syncwarp();
		measure_and_merge<PATH, 1>(view, ids, count, shared, factor, &list, NULL);
		forget_if_full(&list, count, launch.width * view.degree);
	}
	if (is_code(PATH) && view.rows == NULL)
		answer_estimates(launch, slots, blockIdx.x, list);
	else
		answer_query<1>(view, launch, slots, blockIdx.x, raw, inverse, list);
}

template <int PATH>
static cudaError_t
ready_warps(const search_device *device)
{
	static kernel_state state;

	return kernel_ready(&state, (const void *) search_warp_kernel<PATH>, false, device);
}

template <int PATH>
static cudaError_t
launch_warps(const search_view *view, const search_launch *launch, const search_slots *slots,
			 const search_device *device, cudaStream_t stream)
{
	warp_layout layout = warp_layout_for(view, launch, launch->width * view->degree);
	cudaError_t error;

	if (layout.total > (uint32_t) device->shared_bytes)
		return cudaErrorInvalidConfiguration;
	error = ready_warps<PATH>(device);
	if (error != cudaSuccess)
		return error;
	search_warp_kernel<PATH><<<launch->nq, 32, layout.total, stream>>>(*view, *launch,
																	  slots_or_none(slots), layout);
	return cudaGetLastError();
}

/*
 * Whether a warp takes a query, and not a block of WIDE_WARPS warps.  It takes narrow rows of every
 * path, with short lists: batch 10,000, queries per second of a warp over those of a block 1.37 at
 * itopk 32 over 1M x 128, then 0.91 at 96, 0.78 at 256 and, over 1M x 100, 0.60 at 384, since long
 * lists leave room for few queries beside each other.  Wide rows it takes by products, for more
 * queries than there are multiprocessors, and with long lists: 500,000 x 960, 0.97 at itopk 32,
 * 0.86 at 48, 0.80 at 64, then 1.40 at 96, 1.27 at 128, 1.01 at 192, 1.19 at 256.  The longest
 * lists leave room for so few queries that the block has more loads in flight.
 */
static bool
takes_warps(const search_view *view, const search_launch *launch, const search_device *device)
{
	const uint32_t bytes = warp_layout_for(view, launch, launch->width * view->degree).total;

	if (!is_wide(view))
		return launch->itopk <= NARROW_SHORT;
	return view->path == WALK_HALF_DOT && launch->nq > (uint32_t) device->sms &&
		launch->itopk > WIDE_SHORT && bytes <= (uint32_t) device->shared_bytes &&
		(uint64_t) bytes * WIDE_WARPS * 10 <=
		(uint64_t) search_multi_shared(view, launch, device) * 17;
}

/* Shared memory that a block takes. */
uint32_t
search_single_shared(const search_view *view, const search_launch *launch,
					 const search_device *device)
{
	return !takes_warps(view, launch, device) ? search_multi_shared(view, launch, device) :
		warp_layout_for(view, launch, launch->width * view->degree).total;
}

cudaError_t
search_single_launch(const search_view *view, const search_launch *launch,
					 const search_slots *slots, const search_device *device, cudaStream_t stream)
{
	if (launch->nq == 0)
		return cudaSuccess;
	if (!takes_warps(view, launch, device))
		return search_multi_launch(view, launch, slots, device, 1, stream);
	if (is_wide(view))
		return launch_warps<WALK_HALF_TEAMS(WIDE_TEAM)>(view, launch, slots, device, stream);
	return with_walk_path(view->path, [&](auto path)
					 {
						 return launch_warps<decltype(path)::value>(view, launch, slots, device,
																	stream);
					 });
}

cudaError_t
search_single_ready(const search_view *view, const search_device *device)
{
	if (is_wide(view))
		return view->path == WALK_HALF_DOT ?
			ready_warps<WALK_HALF_TEAMS(WIDE_TEAM)>(device) : cudaSuccess;
	return with_walk_path(view->path, [&](auto path)
					 {
						 return ready_warps<decltype(path)::value>(device);
					 });
}
