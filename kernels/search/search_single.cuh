/*
 * search_single.cuh
 *		The kernel of single-CTA search, with distances by any path, and its launch: for
 *		search_single.cu, whose head tells how a walk goes, and for a bench of other teams.
 */
#ifndef GG_SEARCH_SINGLE_CUH
#define GG_SEARCH_SINGLE_CUH

#include "query.cuh"
#include "search_warp.cuh"
#include "walk.cuh"

#define PARENTS_IN_FLIGHT 8		/* adjacency lists being read at once */

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
static __global__ void __launch_bounds__(32)
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
	warp_list	list = warp_list_in(shared, layout, launch.params.itopk_size);
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
													&list),
						 1u << search_entry_bits(launch.params.itopk_size), &list, ids);
	__syncwarp();
	measure_and_merge<PATH, 1>(view, ids, count, shared, factor, &list, NULL);
	for (;;)
	{
		const uint32_t found = take_parents(list, launch.params.search_width, parents, lane);

		if (found == 0)
			break;
		__syncwarp();
		count = take_candidates(view, list, parents, found, ids, lane);
		__syncwarp();
		measure_and_merge<PATH, 1>(view, ids, count, shared, factor, &list, NULL);
		forget_if_full(&list, count, launch.params.search_width * view.degree);
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
	return kernel_ready<search_warp_kernel<PATH>>(device);
}

template <int PATH>
static cudaError_t
launch_warps(const search_view *view, const search_launch *launch, const search_slots *slots,
			 const search_device *device, cudaStream_t stream)
{
	warp_layout layout = warp_layout_for(view, launch, launch->params.search_width * view->degree);
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

#endif							/* GG_SEARCH_SINGLE_CUH */
