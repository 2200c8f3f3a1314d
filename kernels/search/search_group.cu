/*
 * search_group.cu
 *		Walks of many indexes for one query: those of the partitions of a table.
 *
 * Shapes		one query of dim float32, lists of nq indexes -> k keys of each.
 * Requires		what search_multi.cu does; lists that join (search_group.h).
 * Mapping		As search_multi.cu with a list in the place of a query: a block for each, and with
 *				few lists a cluster.  A block copies the view of its index to shared memory, since a
 *				thousand of them are no parameters of a launch.
 * Shared		block_layout, then the list.
 * Oracle		search_multi.cu: the same walk.
 */
#include "search_block.cuh"
#include "search_group.h"

/* Where the list is, in shared memory. */
static __host__ __device__ __forceinline__ uint32_t
list_at(const block_layout &layout)
{
	return (layout.total + 15) & ~15u;
}

static uint32_t
group_shared(const block_layout &layout)
{
	return list_at(layout) + (uint32_t) sizeof(search_list);
}

template <int PATH, int WARPS>
__global__ void __launch_bounds__(WARPS * 32)
search_group_kernel(const search_list *lists, const __grid_constant__ search_launch launch,
					const __grid_constant__ search_slots slots,
					const __grid_constant__ block_layout layout)
{
	extern __shared__ __align__(16) char shared[];
	__shared__ block_counters counters;
	const uint32_t *from = (const uint32_t *) (lists + blockIdx.x / layout.blocks);
	search_list *list = (search_list *) (shared + list_at(layout));
	search_launch mine = launch;

	for (uint32_t i = threadIdx.x; i < sizeof(search_list) / 4; i += WARPS * 32)
		((uint32_t *) list)[i] = __ldg(from + i);
	__syncthreads();
	mine.keys = list->keys;
	walk_by_blocks<PATH, WARPS>(list->view, mine, slots, layout, 0, shared, &counters);
}

template <int PATH, int WARPS>
static cudaError_t
ready_groups(const search_device *device)
{
	return kernel_ready<search_group_kernel<PATH, WARPS>>(device, device->has_clusters);
}

template <int PATH, int WARPS>
static cudaError_t
launch_groups(const search_view *view, const search_list *lists, const search_launch *launch,
			  const search_device *device, uint32_t cluster, cudaStream_t stream)
{
	const block_layout layout = block_layout_for(view, launch, device, cluster, WARPS);
	const uint32_t bytes = group_shared(layout);
	cluster_config config;
	cudaError_t error;

	if (bytes > (uint32_t) device->shared_bytes)
		return cudaErrorInvalidConfiguration;
	error = ready_groups<PATH, WARPS>(device);
	if (error != cudaSuccess)
		return error;
	peers_config_set(&config, device, launch->nq, cluster, WARPS * 32, bytes, stream);
	return cudaLaunchKernelEx(&config.config, search_group_kernel<PATH, WARPS>, lists, *launch,
							  slots_or_none(NULL), layout);
}

/* Does each list get a block of few warps?  Several run beside each other on a multiprocessor. */
static bool
takes_few_warps(const search_launch *launch, const search_device *device, uint32_t cluster)
{
	return cluster == 1 && launch->nq > (uint32_t) device->sms;
}

bool
search_group_takes(const search_view *view, const search_launch *launch,
				   const search_device *device)
{
	const uint32_t warps = takes_few_warps(launch, device, 1) ? WIDE_WARPS : MULTI_WARPS;

	return group_shared(block_layout_for(view, launch, device, 1, warps)) <=
		(uint32_t) device->shared_bytes;
}

cudaError_t
search_group_launch(const search_view *view, const search_list *lists, const search_launch *launch,
					const search_device *device, uint32_t cluster, cudaStream_t stream)
{
	cluster = cluster_with_room(view, launch, device, cluster);
	while (cluster > 1 && group_shared(block_layout_for(view, launch, device, cluster,
														MULTI_WARPS)) >
		   (uint32_t) device->shared_bytes)
		cluster /= 2;
	return with_walk_path(view->path, [&](auto path)
					 {
						 const int	PATH = decltype(path)::value;

						 if (takes_few_warps(launch, device, cluster))
							 return launch_groups<PATH, WIDE_WARPS>(view, lists, launch, device,
																	cluster, stream);
						 return launch_groups<PATH, MULTI_WARPS>(view, lists, launch, device,
																 cluster, stream);
					 });
}

cudaError_t
search_group_ready(const search_view *view, const search_device *device)
{
	return with_walk_path(view->path, [&](auto path)
					 {
						 const int	PATH = decltype(path)::value;
						 cudaError_t error = ready_groups<PATH, MULTI_WARPS>(device);

						 return error != cudaSuccess ? error :
							 ready_groups<PATH, WIDE_WARPS>(device);
					 });
}
