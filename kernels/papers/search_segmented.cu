/*
 * search_segmented.cu
 *		TSDG's search for large batches: a warp or two per query, with a segmented queue.
 *
 * Wang, Wang, Zhao: "Graph-based Approximate NN Search: A Revisit", 2022, section 4.2.  The
 * contract is in src/engine/cpu/papers/tsdg_search.c.
 *
 * Shapes		queries nq x dim float32 -> nodes, distances nq x k; graph n x degree.
 * Requires		k <= itopk <= GG_MAX_ITOPK, queries in launch->queries, and the shared memory below.
 * Mapping		a block of one warp per query.  A step: the lanes find the nearest node of the queue
 *				C, each looking at the heads of two segments, and read its neighbours.  A marked
 *				edge is an id out of range, so it costs nothing to pass over.  What is new is
 *				measured, 16 rows at a time, and merged into the list R.  What is in R afterwards
 *				enters C, one node after the other: a segment has a cell per lane, so an insertion
 *				is a ballot and a shift.  Rows of more than WIDE_DIM elements have four warps, which
 *				measure together; warp 0 does the rest (search_warp.cuh).  Few queries (FEW_PER_SM)
 *				have two warps, which measure 16 rows each side by side, and what enters C is asked
 *				for its list at once: a step waits for two loads in a row instead of three.
 * Shared		the query (4 bytes per element), R (8 bytes per member), C (twice as many cells as R
 *				has members, at least 1 kB), a step's ids and keys, 64 pending keys, the visited
 *				set.  7.5 kB for 128 dimensions, itopk 64 and degree 32.
 * Departures	those of the contract, and these.  The walk enters at the ENTRY_NODES nearest of all
 *				pivots.  The visited set may be emptied (walk.cuh tells why that is harmless).
 *				Segments are not circular: removing the first cell is a shift, too.  A walk that
 *				ends with less than itopk nodes known ends there.
 * Oracle		gg_cpu_engine.index_search under the same mode: the same nodes, but where the
 *				rounding to fp16 on the way decides.  Distances are those of the other kernels, to
 *				the bit, and do not depend on the batch.
 */
#include "../search/keys.cuh"
#include "../search/query.cuh"
#include "search_segmented.h"
#include "../search/search_warp.cuh"
#include "../search/walk.cuh"

#define SEGMENT_SIZE	32u		/* a cell per lane */
#define MIN_SEGMENTS	4u
#define LANE_SEGMENTS	2		/* segments whose heads a lane has */

/*
 * Up to so many queries per multiprocessor the device has warps to spare, as for a block per query
 * of CAGRA's search (kernels/serve/index.cu).  Two warps add up each row's sum as one does, so the
 * batch does not show in an answer; with four, as of wide rows, it would.
 */
#define FEW_PER_SM	8
#define FEW_WARPS	2

typedef struct segmented_args
{
	uint32_t	nsegments;		/* at most LANE_SEGMENTS * 32 */
	uint32_t	keys;			/* offsets in shared memory behind `base`: of a step's candidates */
	uint32_t	cells;			/* nsegments x SEGMENT_SIZE keys */
	uint32_t	sums;			/* of several warps: SUMS_OF() floats */
	uint32_t	total;
	warp_layout base;
} segmented_args;

/* C.  Known to warp 0. */
typedef struct segmented_queue
{
	uint64_t   *cells;			/* of each segment ascending; GG_KEY_NONE at the end */
	uint32_t	nsegments;
	/* first cells of segments lane and lane + 32; GG_KEY_NONE where there is no such segment */
	uint64_t	heads[LANE_SEGMENTS];
} segmented_queue;

/* The lowest of all lanes' keys, in every lane. */
static __device__ __forceinline__ uint64_t
warp_min(uint64_t key)
{
	const uint32_t high = __reduce_min_sync(GG_FULL_WARP, (uint32_t) (key >> 32));
	const uint32_t low = __reduce_min_sync(GG_FULL_WARP, (uint32_t) (key >> 32) == high ?
										   (uint32_t) key : 0xFFFFFFFFu);

	return (uint64_t) high << 32 | low;
}

/* Put a node in; where its segment is full, the farthest node of that is dropped. */
static __device__ __forceinline__ void
queue_push(segmented_queue *queue, uint64_t key, uint32_t segment, uint32_t lane)
{
	/* each lane reads and writes its own cell alone */
	uint64_t   *cell = queue->cells + segment * SEGMENT_SIZE + lane;
	const uint64_t mine = *cell;
	const uint64_t before = __shfl_up_sync(GG_FULL_WARP, (unsigned long long) mine, 1);
	const uint32_t at = __popc(__ballot_sync(GG_FULL_WARP, mine < key));

	if (lane >= at)
		*cell = lane == at ? key : before;
#pragma unroll
	for (uint32_t i = 0; i < LANE_SEGMENTS; i++)
		if (at == 0 && segment == i * 32 + lane)
			queue->heads[i] = key;
}

/* Take the nearest node out; GG_KEY_NONE where there is none. */
static __device__ __forceinline__ uint64_t
queue_pop(segmented_queue *queue, uint32_t lane)
{
	const uint64_t nearest = warp_min(queue->heads[0] < queue->heads[1] ?
											queue->heads[0] : queue->heads[1]);
	const uint32_t first = __ballot_sync(GG_FULL_WARP, queue->heads[0] == nearest);
	const uint32_t second = __ballot_sync(GG_FULL_WARP, queue->heads[1] == nearest);
	const uint32_t segment = first != 0 ? __ffs(first) - 1 : 32 + __ffs(second) - 1;
	uint64_t   *cell = queue->cells + segment * SEGMENT_SIZE + lane;
	uint64_t	next;
	uint64_t	head;

	if (nearest == GG_KEY_NONE)
		return nearest;
	next = __shfl_down_sync(GG_FULL_WARP, (unsigned long long) *cell, 1);
	if (lane == 31)
		next = GG_KEY_NONE;
	*cell = next;
	head = __shfl_sync(GG_FULL_WARP, (unsigned long long) next, 0);
#pragma unroll
	for (uint32_t i = 0; i < LANE_SEGMENTS; i++)
		if (segment == i * 32 + lane)
			queue->heads[i] = head;
	return nearest;
}

/* Of a step's candidates, put those that are in R into C. */
template <bool PREFETCH>
static __device__ __forceinline__ void
queue_newcomers(const search_view &view, segmented_queue *queue, const uint64_t *keys,
				uint32_t count, uint64_t last, uint32_t lane)
{
	for (uint32_t base = 0; base < count; base += 32)
	{
		const uint64_t key = base + lane < count ? keys[base + lane] : GG_KEY_NONE;
		const uint32_t segment = gg_key_id(key) % queue->nsegments;
		const bool	enters = key != GG_KEY_NONE && key <= last;
		uint32_t	left = __ballot_sync(GG_FULL_WARP, enters);

		if (PREFETCH && enters)
			asm volatile("prefetch.global.L2 [%0];" ::"l"(view.adjacency +
														  (size_t) gg_key_id(key) * view.degree));
		for (; left != 0; left &= left - 1)
		{
			const uint32_t from = __ffs(left) - 1;

			queue_push(queue, __shfl_sync(GG_FULL_WARP, (unsigned long long) key, from),
					   __shfl_sync(GG_FULL_WARP, segment, from), lane);
		}
	}
}

/*
 * Whether a node is too far to be expanded.  Distances of a walk are true ones times a factor plus
 * a constant.  Both cancel out here: delta is a share of one difference, and bounds another.
 */
static __device__ __forceinline__ bool
beyond(const warp_list &list, uint64_t key, float delta)
{
	const uint64_t last = list.keys[list.itopk - 1];
	const float far = value_of(last);

	/* infinite distances have a NaN between them, and are not beyond one another */
	return last != GG_KEY_NONE && key > last &&
		(delta == 0 || value_of(key) > far + delta * (far - value_of(list.keys[0])));
}

/*
 * The neighbours of a node that are new, to ids; returns their number.  A marked edge is not below
 * n.
 */
static __device__ __forceinline__ uint32_t
take_neighbors(const search_view &view, const warp_list &list, uint32_t node, uint32_t *ids,
			   uint32_t lane)
{
	const uint32_t *edges = view.adjacency + (size_t) node * view.degree;
	uint32_t	count = 0;

	for (uint32_t base = 0; base < view.degree; base += 32)
	{
		const uint32_t id = base + lane < view.degree ? __ldg(edges + base + lane) : GG_NO_NODE;
		const bool	fresh = id < view.n && visit(list.hash, list.hash_bits, id);
		const uint32_t mask = __ballot_sync(GG_FULL_WARP, fresh);

		if (fresh)
			ids[count + __popc(mask & gg_lanes_below(lane))] = id;
		count += __popc(mask);
	}
	return count;
}

/* Hand a value of warp 0 to all warps; as for sums, there are two places that take turns. */
template <int WARPS>
static __device__ __forceinline__ uint32_t
tell_all(uint32_t *places, uint32_t turn, uint32_t value)
{
	if (WARPS > 1 && threadIdx.x == 0)
		places[turn & 1] = value;
	group_sync<WARPS>();
	return WARPS > 1 ? places[turn & 1] : value;
}

template <int PATH, int WARPS>
static __global__ void __launch_bounds__(WARPS * 32)
segmented_kernel(const __grid_constant__ search_view view,
				 const __grid_constant__ search_launch launch,
				 const __grid_constant__ search_slots slots,
				 const __grid_constant__ segmented_args args)
{
	extern __shared__ __align__(16) char shared[];
	uint32_t   *ids = (uint32_t *) (shared + args.base.ids);
	uint64_t   *keys = (uint64_t *) (shared + args.keys);
	uint32_t   *places = (uint32_t *) (shared + args.base.parents);
	float	   *sums = (float *) (shared + args.sums);
	const uint32_t lane = threadIdx.x & 31;
	const float *raw = launch.queries + (size_t) blockIdx.x * view.dim;
	segmented_queue queue = {(uint64_t *) (shared + args.cells), args.nsegments,
	{GG_KEY_NONE, GG_KEY_NONE}};
	warp_list	list = warp_list_in(shared, args.base, launch.params.itopk_size);
	uint32_t	count = 0;
	float		inverse;
	float		factor;

	list.sums = sums;
	warp_list_clear<WARPS>(list);
	for (uint32_t i = threadIdx.x; i < args.nsegments * SEGMENT_SIZE; i += WARPS * 32)
		queue.cells[i] = GG_KEY_NONE;
	/* two warps each take all of the norm, so that it has a warp's bits */
	inverse = query_inverse_norm<WARPS == FEW_WARPS ? 1 : WARPS>(view, raw, sums);
	factor = query_prepare<PATH, WARPS>(view, raw, inverse, shared, sums);
	{
		const uint64_t best = best_pivots<PATH, WARPS>(view, launch, blockIdx.x, shared, factor,
													   &list);

		if (is_first_warp<WARPS>())
			count = enter_pivots(view, best, ENTRY_NODES, &list, ids);
	}
	for (uint32_t turn = 0;; turn++)
	{
		count = tell_all<WARPS>(places, turn, count);
		if (count == GG_NO_NODE)
			break;
		measure_and_merge<PATH, WARPS>(view, ids, count, shared, factor, &list, keys);
		if (!is_first_warp<WARPS>())
			continue;
		queue_newcomers<WARPS == FEW_WARPS>(view, &queue, keys, count, list.keys[list.itopk - 1],
											lane);
		if (turn > 0)
			forget_if_full(&list, count, view.degree);

		const uint64_t parent = queue_pop(&queue, lane);

		count = parent == GG_KEY_NONE || beyond(list, parent, launch.params.delta) ? GG_NO_NODE :
			take_neighbors(view, list, gg_key_id(parent), ids, lane);
	}
	answer_query<WARPS>(view, launch, slots, blockIdx.x, raw, inverse, list);
}

static segmented_args
segmented_args_for(const search_view *view, const search_launch *launch, uint32_t warps)
{
	segmented_args args;
	uint32_t	at;

	memset(&args, 0, sizeof(args));
	args.base = warp_layout_for(view, launch, view->degree);
	args.nsegments = (2 * launch->params.itopk_size + SEGMENT_SIZE - 1) / SEGMENT_SIZE;
	if (args.nsegments < MIN_SEGMENTS)
		args.nsegments = MIN_SEGMENTS;
	at = (args.base.total + 15) & ~15u;
	args.keys = at;
	at += (view->degree < ENTRY_NODES ? ENTRY_NODES : view->degree) * 8;
	args.cells = at;
	at += args.nsegments * SEGMENT_SIZE * 8;
	args.sums = at;
	at += SUMS_OF(warps) * 4;
	args.total = at;
	return args;
}

bool
search_segmented_takes(const search_view *view, const search_launch *launch,
					   const search_device *device)
{
	/* whatever the batch */
	const uint32_t warps = view->dim > WIDE_DIM ? WIDE_WARPS : FEW_WARPS;

	return view->code_bits == 0 &&
		segmented_args_for(view, launch, warps).total <= (uint32_t) device->shared_bytes;
}

template <int PATH, int WARPS>
static cudaError_t
launch_segmented(const search_view *view, const search_launch *launch, const search_slots *slots,
				 const search_device *device, cudaStream_t stream)
{
	const segmented_args args = segmented_args_for(view, launch, WARPS);
	cudaError_t error = kernel_ready<segmented_kernel<PATH, WARPS>>(device);

	if (error != cudaSuccess)
		return error;
	segmented_kernel<PATH, WARPS><<<launch->nq, WARPS * 32, args.total, stream>>>
		(*view, *launch, slots_or_none(slots), args);
	return cudaGetLastError();
}

cudaError_t
search_segmented_launch(const search_view *view, const search_launch *launch,
						const search_slots *slots, const search_device *device,
						cudaStream_t stream)
{
	if (launch->nq == 0)
		return cudaSuccess;
	return with_path(view->path, [&](auto path)
					 {
						 const int	PATH = decltype(path)::value;

						 if (view->dim > WIDE_DIM)
							 return launch_segmented<PATH, WIDE_WARPS>(view, launch, slots, device,
																	   stream);
						 if (launch->nq <= FEW_PER_SM * (uint32_t) device->sms)
							 return launch_segmented<PATH, FEW_WARPS>(view, launch, slots, device,
																	  stream);
						 return launch_segmented<PATH, 1>(view, launch, slots, device, stream);
					 });
}
