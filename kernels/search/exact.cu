/*
 * exact.cu
 *		Exact nearest rows: all of them, or those whose filter bit is set.
 *
 * Shapes		rows n x dim as stored, queries nq x dim float32 -> keys nq x k.
 * Requires		1 <= k <= GG_MAX_ITOPK.
 * Mapping		One launch.  Grid: x over the rows, y over groups of QUERIES queries.  A warp takes
 *				32 rows at a time: those whose bit is set, of one word of the filter after the
 *				other, put aside until they are so many.  TEAM lanes read a row, two rows at once.
 *				Each warp keeps its own list of the k best; rows below its last key wait in the
 *				warp's buffer and are merged 32 at a time.  In the end a block merges its warps'
 *				lists, and the last block of a group to finish all blocks': of one query by sorting
 *				them, of several by a warp for each.
 * Shared		per query and warp: a list (8 k bytes, k rounded up to a power of two), 64 keys; per
 *				query: the query; per warp: 64 rows put aside.
 * Oracle		gg_cpu_engine.index_exact: the same nodes but where distances differ by less than
 *				1e-5 relative; distances within 1e-5 relative (sums are in another order).
 * Cost			Memory bound at one query: the rows once.
 *				The sums of a row are those of exact.cuh.
 * Tried		One list per block, merged into under a lock: long lists made all warps wait (1.4 ms
 *				for k 1,024 of 1M x 128).
 */
#include "exact.cuh"
#include "exact.h"
#include "keys.cuh"
#include "measure.cuh"
#include "prune.cuh"
#include "query.cuh"

#define WARPS 8
#define BATCH_QUERIES 8			/* queries that share a pass over the rows: at 128 dimensions, about
								 * where arithmetic takes as long as memory */
#define BLOCKS_PER_SM 4
#define MAX_GROUPS 64			/* of one launch, since each takes scratch memory; lists of indexes
								 * may be more, with one block each */
#define LONG_K 64				/* from here the blocks' lists are merged by limit and sort */

static_assert(WARPS == BATCH_QUERIES, "each warp merges the lists of a query");

/*
 * A block's dynamic shared memory, Q queries of it:
 *
 *	queries		Q x query_pad x 4
 *	list		Q x WARPS x list_room x 8	each warp's list of each query; once they are merged, of
 *											each query the first
 *	pending		WARPS x Q x 64 x 8			keys that are to go into those lists
 *	packed		WARPS x 64 x 4				rows put aside
 */
typedef struct exact_layout
{
	uint32_t	query_pad;		/* floats a query takes */
	uint32_t	list_room;		/* keys that a list takes: a power of two, at least 32 */
	uint32_t	list;			/* offsets, bytes */
	uint32_t	pending;
	uint32_t	packed;
	uint32_t	total;
} exact_layout;

typedef struct exact_args
{
	const uint32_t *filter;		/* or NULL */
	uint32_t	filter_stride;	/* words from one query's bits to the next's; 0 if QUERIES > 1 */
	const float *queries;		/* of the whole batch; NULL, as in search_launch: in slots */
	uint32_t	first;			/* query of the batch that this launch begins with */
	uint32_t	nq;				/* end of the launch's queries, not their number */
	uint32_t	k;
	search_part part;			/* its step is at least 1 */
	uint64_t   *keys;			/* nq x k; NULL: they go to slots */
	uint32_t   *finished;		/* blocks done, per group; 0 before and after */
	uint64_t   *lists;			/* groups x gridDim.x x QUERIES x k */
} exact_args;

static exact_layout
exact_layout_for(const search_view *view, uint32_t k, uint32_t queries)
{
	exact_layout layout;
	uint32_t	at;

	layout.query_pad = (view->dim + 7) & ~7u;
	at = queries * layout.query_pad * 4;
	layout.list = at;
	layout.list_room = 32;
	while (layout.list_room < k)
		layout.list_room *= 2;
	at += queries * WARPS * layout.list_room * 8;
	layout.pending = at;
	at += queries * WARPS * 64 * 8;
	layout.packed = at;
	layout.total = at + WARPS * 64 * 4;
	return layout;
}

/* Offer the keys of an ascending list of k, up to bound.  GLOBAL: other blocks wrote it. */
template <bool GLOBAL>
static __device__ __forceinline__ void
take_sorted(const uint64_t *from, uint64_t bound, key_list &list, uint32_t k, uint32_t lane)
{
	for (uint32_t base = 0; base < k; base += 32)
	{
		const uint64_t *at = from + base + lane;
		uint64_t	key = base + lane >= k ? GG_KEY_NONE : GLOBAL ? __ldcg(at) : *at;
		bool		pass = key <= bound && key < list.keys[k - 1];

		/* nothing passes after one that did not */
		offer(pass ? key : GG_KEY_NONE, list, k, lane);
		if (!__all_sync(GG_FULL_WARP, pass))
			break;
	}
}

/* Where a warp finds what is in shared memory, and its queries. */
template <int QUERIES>
struct exact_block
{
	/* warps that a query has once lists are merged */
	static constexpr uint32_t parts = QUERIES == 1 ? WARPS : 1;

	float	   *queries;
	float	   *inverses;
	uint64_t   *lists;
	uint64_t   *pending;		/* the warp's, QUERIES x 64 */
	uint32_t   *packed;			/* the warp's */
	unsigned long long *limits; /* of each query: nothing above it is needed */
	bool	   *last;			/* this block is the last of its group */
	uint32_t	query_pad;
	uint32_t	list_room;
	uint32_t	room;			/* keys of one query's lists */
	uint32_t	first_query;
	uint32_t	lane;
	uint32_t	warp;
	/* once lists are merged: the warp's query, and which of that one's warps it is */
	uint32_t	mine;
	uint32_t	part;
};

/* Empty the lists, and fetch the queries. */
template <int QUERIES>
static __device__ __forceinline__ void
exact_begin(const search_view &view, const exact_args &args, const search_slots &slots,
			const exact_block<QUERIES> &block)
{
	for (uint32_t i = threadIdx.x; i < QUERIES * block.room; i += WARPS * 32)
		block.lists[i] = GG_KEY_NONE;
	for (uint32_t i = threadIdx.x; i < QUERIES * block.query_pad; i += WARPS * 32)
	{
		uint32_t	query = block.first_query + i / block.query_pad;
		uint32_t	at = i % block.query_pad;

		block.queries[i] = query < args.nq && at < view.dim ?
			query_of(args.queries, slots, query, view.dim)[at] : 0;
	}
	__syncthreads();
	for (uint32_t q = block.warp; q < QUERIES; q += WARPS)
	{
		float		inverse = exact_inverse(block.queries + q * block.query_pad, view.dim,
											block.lane);

		if (block.lane == 0)
			block.inverses[q] = inverse;
	}
	__syncthreads();
}

/* Measure the warp's share of the rows, for its lists. */
template <typename ELEMENT, int METRIC, int TEAM, int QUERIES>
static __device__ __forceinline__ void
exact_read(const search_view &view, const exact_args &args, const exact_block<QUERIES> &block)
{
	const uint32_t lane = block.lane;
	const uint32_t words = (view.n + 31) / 32;
	const uint32_t stride = gridDim.x * WARPS * args.part.step;	/* words */
	const uint32_t *filter = args.filter != NULL ?
		args.filter + (size_t) block.first_query * args.filter_stride : NULL;
	uint32_t	word = (blockIdx.x * WARPS + block.warp) * args.part.step;
	uint32_t	rows = 0;		/* put aside */
	key_list	list[QUERIES];

#pragma unroll
	for (int q = 0; q < QUERIES; q++)
		list[q] = {block.lists + q * block.room + block.warp * block.list_room,
				   block.pending + q * 64, 0, 0};
	for (;;)
	{
		uint64_t	keys[QUERIES];
		uint32_t	count;

		while (rows < 32 && word < words)
			rows += take_word(filter, view.n, stride, word, block.packed + rows, lane);
		if (rows == 0)
			break;
		count = min(rows, 32u);
		__syncwarp();
#pragma unroll
		for (int q = 0; q < QUERIES; q++)
			keys[q] = GG_KEY_NONE;
		exact_measure<ELEMENT, METRIC, TEAM, QUERIES>(view, block.queries, block.query_pad,
													  block.inverses, block.packed[lane], count,
													  keys);
#pragma unroll
		for (int q = 0; q < QUERIES; q++)
			offer(keys[q], list[q], args.k, lane);
		rows -= count;
		if (lane < rows)
			block.packed[lane] = block.packed[lane + 32];
		__syncwarp();
	}
#pragma unroll
	for (int q = 0; q < QUERIES; q++)
		settle(list[q], args.k, lane);
}

/* The lists of a query's warps become one, the first of them. */
template <int QUERIES>
static __device__ __forceinline__ void
exact_merge_warps(uint32_t k, const exact_block<QUERIES> &block)
{
	if (block.parts > 1)
		block_sort<WARPS * 32>(block.lists, block.room);
	else
	{
		uint64_t   *first = block.lists + block.mine * block.room;
		key_list	list = {first, block.pending, k, 0};

		__syncthreads();
		for (uint32_t from = 1; from < WARPS; from++)
			take_sorted<false>(first + from * block.list_room, GG_KEY_NONE, list, k, block.lane);
		settle(list, k, block.lane);
		__syncthreads();
	}
}

/* Copy the block's lists to group, where all blocks' go; returns whether all have done so. */
template <int QUERIES>
static __device__ __forceinline__ bool
exact_hand_in(const exact_args &args, const exact_block<QUERIES> &block, uint64_t *group)
{
	for (uint32_t i = threadIdx.x; i < QUERIES * args.k; i += WARPS * 32)
		group[((size_t) (i / args.k) * gridDim.x + blockIdx.x) * args.k + i % args.k] =
			block.lists[i / args.k * block.room + i % args.k];
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0)
	{
		*block.last = atomicAdd(&args.finished[blockIdx.y], 1) == gridDim.x - 1;
		if (*block.last)
			args.finished[blockIdx.y] = 0;
		__threadfence();
	}
	if (threadIdx.x < QUERIES)
		block.limits[threadIdx.x] = 0;
	__syncthreads();
	return *block.last;
}

/* Offer the warp's share of all keys that were handed in. */
template <int QUERIES>
static __device__ __forceinline__ void
exact_take_all(const uint64_t *handed, uint32_t k, const exact_block<QUERIES> &block,
			   key_list &list)
{
	const uint32_t total = gridDim.x * k;

	for (uint32_t base = block.part * 32; base < total; base += block.parts * 32 * 4)
	{
		uint64_t	key[4];

#pragma unroll
		for (int u = 0; u < 4; u++)
		{
			uint32_t	at = base + u * block.parts * 32 + block.lane;

			key[u] = at < total ? __ldcg(handed + at) : GG_KEY_NONE;
		}
#pragma unroll
		for (int u = 0; u < 4; u++)
			offer(key[u], list, k, block.lane);
	}
}

/*
 * Offer the keys up to a limit only.  The first ceil(k / blocks) keys of all lists are at least k
 * keys, so none above the largest of them is needed; usually that leaves little more than k.
 */
template <int QUERIES>
static __device__ __forceinline__ void
exact_take_nearest(const uint64_t *handed, uint32_t k, const exact_block<QUERIES> &block,
				   key_list &list)
{
	const uint32_t front = (k + gridDim.x - 1) / gridDim.x;
	unsigned long long *limit = &block.limits[block.mine];

	for (uint32_t from = block.part * 32 + block.lane; from < gridDim.x; from += block.parts * 32)
		atomicMax(limit, (unsigned long long) __ldcg(handed + (size_t) from * k + front - 1));
	__syncthreads();
	for (uint32_t from = block.part; from < gridDim.x; from += block.parts)
		take_sorted<true>(handed + (size_t) from * k, *limit, list, k, block.lane);
}

/* Merge all blocks' lists, group, into one, where exact_merge_warps() left the block's own. */
template <int QUERIES>
static __device__ __forceinline__ void
exact_merge_blocks(uint32_t k, const exact_block<QUERIES> &block, const uint64_t *group)
{
	const uint64_t *handed = group + (size_t) block.mine * gridDim.x * k;
	key_list	list = {block.lists + block.mine * block.room + block.part * block.list_room,
						block.pending, 0, 0};

	/* the block's own list is among them: start over, so that no key comes twice */
	for (uint32_t i = threadIdx.x; i < QUERIES * block.room; i += WARPS * 32)
		block.lists[i] = GG_KEY_NONE;
	__syncthreads();
	if (k < LONG_K)
		exact_take_all(handed, k, block, list);
	else
		exact_take_nearest(handed, k, block, list);
	settle(list, k, block.lane);
	if (block.parts > 1)
		block_sort<WARPS * 32>(block.lists, block.room);
	else
		__syncthreads();
}

template <int QUERIES>
static __device__ __forceinline__ void
exact_answer(const exact_args &args, const search_slots &slots,
			 const exact_block<QUERIES> &block)
{
	for (uint32_t i = threadIdx.x; i < QUERIES * args.k; i += WARPS * 32)
	{
		uint32_t	query = block.first_query + i / args.k;
		uint64_t	key = block.lists[i / args.k * block.room + i % args.k];

		if (query < args.nq)
			keys_of(args.keys, slots, query, args.k)[i % args.k] = key;
	}
	if (slots.base != NULL)
	{
		__syncthreads();
		if (threadIdx.x < QUERIES && block.first_query + threadIdx.x < args.nq)
			answered(slots, block.first_query + threadIdx.x);
	}
}

/* What a block does: rows of its column of the grid, queries of its row, from `first` on. */
template <typename ELEMENT, int METRIC, int TEAM, int QUERIES>
static __device__ __forceinline__ void
exact_by_block(const search_view &view, const exact_args &args, const search_slots &slots,
			   const exact_layout &layout, uint32_t first, char *shared)
{
	__shared__ float inverses[QUERIES];
	__shared__ bool last;
	__shared__ unsigned long long limits[QUERIES];
	const uint32_t warp = threadIdx.x >> 5;
	const exact_block<QUERIES> block = {
		.queries = (float *) shared,
		.inverses = inverses,
		.lists = (uint64_t *) (shared + layout.list),
		.pending = (uint64_t *) (shared + layout.pending) + warp * QUERIES * 64,
		.packed = (uint32_t *) (shared + layout.packed) + warp * 64,
		.limits = limits,
		.last = &last,
		.query_pad = layout.query_pad,
		.list_room = layout.list_room,
		.room = WARPS * layout.list_room,
		.first_query = first,
		.lane = threadIdx.x & 31,
		.warp = warp,
		.mine = QUERIES == 1 ? 0 : warp,
		.part = QUERIES == 1 ? warp : 0,
	};

	exact_begin(view, args, slots, block);
	exact_read<ELEMENT, METRIC, TEAM>(view, args, block);
	exact_merge_warps(args.k, block);
	/* the group's last block merges the lists of all */
	if (gridDim.x > 1)
	{
		uint64_t   *group = args.lists + (size_t) blockIdx.y * gridDim.x * QUERIES * args.k;

		if (!exact_hand_in(args, block, group))
			return;
		exact_merge_blocks(args.k, block, group);
	}
	exact_answer(args, slots, block);
}

template <typename ELEMENT, int METRIC, int TEAM, int QUERIES>
__global__ void __launch_bounds__(WARPS * 32, QUERIES == 1 ? BLOCKS_PER_SM : 2)
exact_kernel(const __grid_constant__ search_view view, const __grid_constant__ exact_args args,
			 const __grid_constant__ search_slots slots,
			 const __grid_constant__ exact_layout layout)
{
	extern __shared__ __align__(16) char shared[];

	if (!gate_lets_run(args.part.gate))
		return;
	exact_by_block<ELEMENT, METRIC, TEAM, QUERIES>(view, args, slots, layout,
												   args.first + blockIdx.y * QUERIES, shared);
}

/* The same of one query and many indexes: row y of the grid has list y. */
template <typename ELEMENT, int METRIC, int TEAM>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS_PER_SM)
exact_group_kernel(const search_list *lists, const __grid_constant__ exact_args args,
				   const __grid_constant__ search_slots slots,
				   const __grid_constant__ exact_layout layout)
{
	extern __shared__ __align__(16) char shared[];
	const uint32_t *from = (const uint32_t *) (lists + blockIdx.y);
	search_list *list = (search_list *) (shared + layout.total);
	exact_args	mine = args;

	for (uint32_t i = threadIdx.x; i < sizeof(search_list) / 4; i += WARPS * 32)
		((uint32_t *) list)[i] = __ldg(from + i);
	__syncthreads();
	mine.keys = list->keys;
	exact_by_block<ELEMENT, METRIC, TEAM, 1>(list->view, mine, slots, layout, 0, shared);
}

/* How many blocks n rows keep busy, with 32 rows a warp and one word read in `step`. */
static uint32_t
useful_blocks(uint32_t n, uint32_t step)
{
	uint32_t	blocks = ((n + 31) / 32 / step + WARPS - 1) / WARPS;

	return blocks < 1 ? 1 : blocks;
}

template <typename ELEMENT, int METRIC, int TEAM, int QUERIES>
static cudaError_t
launch_exact(const search_view *view, const exact_args *args, const search_slots *slots,
			 const search_device *device, cudaStream_t stream)
{
	exact_layout layout = exact_layout_for(view, args->k, QUERIES);
	uint32_t	groups = (args->nq - args->first + QUERIES - 1) / QUERIES;
	int			per_sm;
	uint32_t	blocks;
	cudaError_t error;

	error = kernel_ready<exact_kernel<ELEMENT, METRIC, TEAM, QUERIES>>(device);
	/* as many blocks as run at once: a second round of a few would take as long as the first */
	if (error == cudaSuccess)
		error = kernel_blocks_per_sm<exact_kernel<ELEMENT, METRIC, TEAM, QUERIES>>
			(WARPS * 32, layout.total, device, &per_sm);
	if (error != cudaSuccess)
		return error;
	per_sm = per_sm > BLOCKS_PER_SM ? BLOCKS_PER_SM : per_sm;
	blocks = (uint32_t) (device->sms * per_sm) / groups;
	if (blocks > useful_blocks(view->n, args->part.step))
		blocks = useful_blocks(view->n, args->part.step);
	if (blocks < 1)
		blocks = 1;
	exact_kernel<ELEMENT, METRIC, TEAM, QUERIES><<<dim3(blocks, groups), WARPS * 32, layout.total,
		stream>>>(*view, *args, slots_or_none(slots), layout);
	return cudaGetLastError();
}

template <typename ELEMENT, int METRIC, int TEAM>
static cudaError_t
launch_exact_group(const search_view *view, const exact_args *args, const exact_group *group,
				   const search_device *device, cudaStream_t stream)
{
	const exact_layout layout = exact_layout_for(view, args->k, 1);
	const uint32_t bytes = layout.total + (uint32_t) sizeof(search_list);
	uint32_t	blocks = 1;
	int			per_sm;
	cudaError_t error = kernel_ready<exact_group_kernel<ELEMENT, METRIC, TEAM>>(device);

	if (error == cudaSuccess)
		error = kernel_blocks_per_sm<exact_group_kernel<ELEMENT, METRIC, TEAM>>
			(WARPS * 32, bytes, device, &per_sm);
	if (error != cudaSuccess)
		return error;
	per_sm = per_sm > BLOCKS_PER_SM ? BLOCKS_PER_SM : per_sm;
	/* only so many lists have a counter of blocks */
	if (group->nlists <= MAX_GROUPS)
		blocks = (uint32_t) (device->sms * per_sm) / group->nlists;
	if (blocks > useful_blocks(group->most_rows, 1))
		blocks = useful_blocks(group->most_rows, 1);
	if (blocks < 1)
		blocks = 1;
	exact_group_kernel<ELEMENT, METRIC, TEAM><<<dim3(blocks, group->nlists), WARPS * 32, bytes,
		stream>>>(group->lists, *args, slots_or_none(NULL), layout);
	return cudaGetLastError();
}

template <typename ELEMENT, int METRIC>
static cudaError_t
launch_team(const search_view *view, const exact_args *args, const search_slots *slots,
			const search_device *device, bool batch, cudaStream_t stream)
{
	if (exact_is_wide<ELEMENT>(view))
		return batch ?
			launch_exact<ELEMENT, METRIC, 32, BATCH_QUERIES>(view, args, slots, device, stream) :
			launch_exact<ELEMENT, METRIC, 32, 1>(view, args, slots, device, stream);
	return batch ?
		launch_exact<ELEMENT, METRIC, 8, BATCH_QUERIES>(view, args, slots, device, stream) :
		launch_exact<ELEMENT, METRIC, 8, 1>(view, args, slots, device, stream);
}

template <typename ELEMENT, int METRIC, int TEAM>
static cudaError_t
ready_kernels(const search_device *device)
{
	cudaError_t error = kernel_ready<exact_kernel<ELEMENT, METRIC, TEAM, 1>>(device);

	if (error == cudaSuccess)
		error = kernel_ready<exact_group_kernel<ELEMENT, METRIC, TEAM>>(device);
	return error != cudaSuccess ? error :
		kernel_ready<exact_kernel<ELEMENT, METRIC, TEAM, BATCH_QUERIES>>(device);
}

template <typename ELEMENT, int METRIC>
static cudaError_t
ready_team(const search_view *view, const search_device *device)
{
	return exact_is_wide<ELEMENT>(view) ? ready_kernels<ELEMENT, METRIC, 32>(device) :
		ready_kernels<ELEMENT, METRIC, 8>(device);
}

cudaError_t
search_exact_ready(const search_view *view, const search_device *device)
{
	return with_metric(view->metric, [&](auto metric)
					   {
						   const int	METRIC = decltype(metric)::value;

						   return view->element == GG_ELEMENT_F32 ?
							   ready_team<float, METRIC>(view, device) :
							   ready_team<__half, METRIC>(view, device);
					   });
}

/* Counters first, then the lists of as many blocks as one launch ever has. */
size_t
search_exact_scratch(uint32_t k, const search_device *device)
{
	size_t		blocks = (size_t) device->sms * BLOCKS_PER_SM + MAX_GROUPS;

	return MAX_GROUPS * 4 + blocks * BATCH_QUERIES * k * 8;
}

uint32_t
search_exact_shared(const search_view *view, uint32_t k)
{
	return exact_layout_for(view, k, 1).total;
}

uint32_t
search_exact_readers(const search_view *view, uint32_t nq, const search_device *device)
{
	uint32_t	groups = (nq + BATCH_QUERIES - 1) / BATCH_QUERIES;
	uint32_t	blocks = (uint32_t) device->sms * BLOCKS_PER_SM / (groups < 1 ? 1 : groups);

	if (blocks > useful_blocks(view->n, 1))
		blocks = useful_blocks(view->n, 1);
	return blocks < 1 ? 1 : blocks;
}

cudaError_t
search_exact_launch(const search_view *view, const exact_search *search,
					const search_device *device, cudaStream_t stream)
{
	const search_part whole = {1, {}};
	const search_part *part = search->part != NULL ? search->part : &whole;
	const uint32_t nq = search->nq;
	/*
	 * a few queries alone are at memory speed, and a few rows soon read; sharing rows needs room
	 * for all their lists
	 */
	bool		batch = nq > 2 && search->filter_stride == 0 && part->step <= 1 &&
		exact_layout_for(view, search->k, BATCH_QUERIES).total <=
		(uint32_t) device->shared_bytes / 2;
	uint32_t	step = MAX_GROUPS * (batch ? BATCH_QUERIES : 1);

	for (uint32_t first = 0; first < nq; first += step)
	{
		exact_args	args = {
			.filter = search->filter,
			.filter_stride = search->filter_stride,
			.queries = search->queries,
			.first = first,
			.nq = nq - first < step ? nq : first + step,
			.k = search->k,
			.part = *part,
			.keys = search->keys,
			.finished = (uint32_t *) search->scratch,
			.lists = (uint64_t *) ((char *) search->scratch + MAX_GROUPS * 4),
		};
		cudaError_t error;

		if (args.part.step < 1)
			args.part.step = 1;
		error = with_metric(view->metric, [&](auto metric)
							{
								const int	METRIC = decltype(metric)::value;

								return view->element == GG_ELEMENT_F32 ?
									launch_team<float, METRIC>(view, &args, search->slots, device,
															   batch, stream) :
									launch_team<__half, METRIC>(view, &args, search->slots, device,
																batch, stream);
							});
		if (error != cudaSuccess)
			return error;
	}
	return cudaSuccess;
}

template <typename ELEMENT, int METRIC>
static cudaError_t
launch_group_team(const search_view *view, const exact_args *args, const exact_group *group,
				  const search_device *device, cudaStream_t stream)
{
	return exact_is_wide<ELEMENT>(view) ?
		launch_exact_group<ELEMENT, METRIC, 32>(view, args, group, device, stream) :
		launch_exact_group<ELEMENT, METRIC, 8>(view, args, group, device, stream);
}

cudaError_t
search_exact_group_launch(const search_view *view, const exact_group *group,
						  const search_device *device, cudaStream_t stream)
{
	const exact_args args = {
		.queries = group->query,
		.nq = 1,
		.k = group->k,
		.part = {1, {}},
		.finished = (uint32_t *) group->scratch,
		.lists = (uint64_t *) ((char *) group->scratch + MAX_GROUPS * 4),
	};

	return with_metric(view->metric, [&](auto metric)
					   {
						   const int	METRIC = decltype(metric)::value;

						   return view->element == GG_ELEMENT_F32 ?
							   launch_group_team<float, METRIC>(view, &args, group, device,
																stream) :
							   launch_group_team<__half, METRIC>(view, &args, group, device,
																 stream);
					   });
}
