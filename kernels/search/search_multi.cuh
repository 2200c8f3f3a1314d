/*
 * search_multi.cuh
 *		The kernel of multi-CTA search, with distances by any path, and its launch: for
 *		search_multi.cu and for a bench of other teams.
 */
#ifndef GG_SEARCH_MULTI_CUH
#define GG_SEARCH_MULTI_CUH

#include "search_block.cuh"

template <int PATH, int WARPS>
static __global__ void __launch_bounds__(WARPS * 32)
search_block_kernel(const __grid_constant__ search_view view,
					const __grid_constant__ search_launch launch,
					const __grid_constant__ search_slots slots,
					const __grid_constant__ block_layout layout)
{
	extern __shared__ __align__(16) char shared[];
	__shared__ block_counters counters;

	walk_by_blocks<PATH, WARPS>(view, launch, slots, layout, blockIdx.x / layout.blocks, shared,
								&counters);
}

template <int PATH, int WARPS>
static cudaError_t
ready_blocks(const search_device *device)
{
	return kernel_ready<search_block_kernel<PATH, WARPS>>(device, device->has_clusters);
}

template <int PATH, int WARPS>
static cudaError_t
launch_blocks(const search_view *view, const search_launch *launch, const search_slots *slots,
			  const search_device *device, uint32_t cluster, cudaStream_t stream)
{
	block_layout layout = block_layout_for(view, launch, device, cluster, WARPS);
	cluster_config config;
	cudaError_t error;

	if (layout.total > (uint32_t) device->shared_bytes)
		return cudaErrorInvalidConfiguration;
	error = ready_blocks<PATH, WARPS>(device);
	if (error != cudaSuccess)
		return error;
	peers_config_set(&config, device, launch->nq, cluster, WARPS * 32, layout.total, stream);
	return cudaLaunchKernelEx(&config.config, search_block_kernel<PATH, WARPS>, *view, *launch,
							  slots_or_none(slots), layout);
}

#endif							/* GG_SEARCH_MULTI_CUH */
