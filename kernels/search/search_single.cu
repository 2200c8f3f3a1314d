/*
 * search_single.cu
 *		Single-CTA search: one query per warp, for batches.
 *
 * Shapes		queries nq x dim float32 -> nodes, distances nq x k; graph n x degree.
 * Requires		k <= itopk <= GG_MAX_ITOPK, width x degree <= MAX_WALK_CANDIDATES (or width 1).
 *				Some wide rows, and long lists of narrow ones, go to the block kernel of
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
#include "search_multi.h"
#include "search_single.cuh"
#include "search_single.h"

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
	const uint32_t itopk = launch->params.itopk_size;
	const uint32_t bytes =
		warp_layout_for(view, launch, launch->params.search_width * view->degree).total;

	if (!is_wide(view))
		return itopk <= NARROW_SHORT;
	return view->path == WALK_HALF_DOT && launch->nq > (uint32_t) device->sms &&
		itopk > WIDE_SHORT && bytes <= (uint32_t) device->shared_bytes &&
		(uint64_t) bytes * WIDE_WARPS * 10 <=
		(uint64_t) search_multi_shared(view, launch, device) * 17;
}

/* Shared memory that a block takes. */
uint32_t
search_single_shared(const search_view *view, const search_launch *launch,
					 const search_device *device)
{
	return !takes_warps(view, launch, device) ? search_multi_shared(view, launch, device) :
		warp_layout_for(view, launch, launch->params.search_width * view->degree).total;
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
