/*
 * launch.cuh
 *		What the files that launch search kernels share: kernels made ready once, clusters, the
 *		step from an index's properties to a kernel's template arguments.
 *
 * A launch in the steady state is one call to CUDA and nothing else: attributes and occupancy are
 * kept from the first one on.
 */
#ifndef GG_LAUNCH_CUH
#define GG_LAUNCH_CUH

#include <atomic>
#include <type_traits>

#include "view.h"


/* What is known of one kernel; all zero at first, see kernel_state_of(). */
typedef struct kernel_state
{
	std::atomic<uint32_t> context;	/* that the kernel's attributes are set in */
	/* context << 40 | shared bytes << 8 | blocks a multiprocessor */
	std::atomic<uint64_t> blocks;
} kernel_state;

/*
 * Load the kernel's code now rather than when it is launched: a load may wait for what the device
 * does.
 */
static inline cudaError_t
kernel_load(const void *kernel)
{
	cudaFuncAttributes unused;

	return cudaFuncGetAttributes(&unused, kernel);
}

template <auto KERNEL>
static inline kernel_state *
kernel_state_of(void)
{
	static kernel_state state;

	return &state;
}

/* Before a launch: load the kernel, allow all shared memory; clusters: and over 8 blocks each. */
template <auto KERNEL>
static inline cudaError_t
kernel_ready(const search_device *device, bool clusters = false)
{
	const void *kernel = (const void *) KERNEL;
	kernel_state *state = kernel_state_of<KERNEL>();
	cudaError_t error;

	if (state->context.load(std::memory_order_relaxed) == device->context)
		return cudaSuccess;
	error = kernel_load(kernel);
	if (error == cudaSuccess)
		error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
									 device->shared_bytes);
	if (error == cudaSuccess && clusters)
		error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
	/* two threads may both do this: they set the same */
	if (error == cudaSuccess)
		state->context.store(device->context, std::memory_order_relaxed);
	return error;
}

/* How many blocks of the kernel run on a multiprocessor at once; 1 .. 255. */
template <auto KERNEL>
static inline cudaError_t
kernel_blocks_per_sm(int threads, uint32_t shared_bytes, const search_device *device, int *blocks)
{
	kernel_state *state = kernel_state_of<KERNEL>();
	const uint64_t known = ((uint64_t) device->context << 32 | shared_bytes) << 8;
	uint64_t	kept = state->blocks.load(std::memory_order_relaxed);

	if ((kept & ~(uint64_t) 0xFF) != known)
	{
		int			found = 0;
		cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
			&found, (const void *) KERNEL, threads, shared_bytes);

		if (error != cudaSuccess)
			return error;
		kept = known | (uint64_t) (found < 1 ? 1 : found > 255 ? 255 : found);
		state->blocks.store(kept, std::memory_order_relaxed);
	}
	*blocks = (int) (kept & 0xFF);
	return cudaSuccess;
}

/* A launch of several blocks a query.  config points to attribute, so the struct must not move. */
typedef struct cluster_config
{
	cudaLaunchConfig_t config;
	cudaLaunchAttribute attribute;
} cluster_config;

/* Clusters where there are any; else blocks that all run at once: they wait for each other. */
static inline void
peers_config_set(cluster_config *launch, const search_device *device, uint32_t clusters,
				 uint32_t cluster, uint32_t threads, uint32_t shared_bytes, cudaStream_t stream)
{
	launch->config = {};
	launch->config.gridDim = dim3(clusters * cluster);
	launch->config.blockDim = dim3(threads);
	launch->config.dynamicSmemBytes = shared_bytes;
	launch->config.stream = stream;
	launch->attribute = {};
	launch->config.attrs = &launch->attribute;
	launch->config.numAttrs = device->has_clusters || cluster > 1 ? 1 : 0;
	if (device->has_clusters)
	{
		launch->attribute.id = cudaLaunchAttributeClusterDimension;
		launch->attribute.val.clusterDim.x = cluster;
		launch->attribute.val.clusterDim.y = 1;
		launch->attribute.val.clusterDim.z = 1;
	}
	else
	{
		launch->attribute.id = cudaLaunchAttributeCooperative;
		launch->attribute.val.cooperative = 1;
	}
}

/* The slots argument of a kernel; NULL: queries and answers lie side by side. */
static inline const search_slots &
slots_or_none(const search_slots *slots)
{
	static const search_slots none = {};

	return slots != NULL ? *slots : none;
}

/* call(std::integral_constant<int, PATH>) -> cudaError_t */
template <typename CALL>
static inline cudaError_t
with_path(walk_path path, CALL call)
{
	switch (path)
	{
		case WALK_HALF_DOT:
			return call(std::integral_constant<int, WALK_HALF_DOT>());
		case WALK_HALF_L1:
			return call(std::integral_constant<int, WALK_HALF_L1>());
		case WALK_FLOAT_L2:
			return call(std::integral_constant<int, WALK_FLOAT_L2>());
		case WALK_FLOAT_DOT:
			return call(std::integral_constant<int, WALK_FLOAT_DOT>());
		case WALK_FLOAT_L1:
			return call(std::integral_constant<int, WALK_FLOAT_L1>());
		default:
			return cudaErrorInvalidValue;
	}
}

/* The same for kernels that walk by codes, too. */
template <typename CALL>
static inline cudaError_t
with_walk_path(walk_path path, CALL call)
{
	switch (path)
	{
		case WALK_CODE8:
			return call(std::integral_constant<int, WALK_CODE8>());
		case WALK_CODE4:
			return call(std::integral_constant<int, WALK_CODE4>());
		case WALK_CODE_L1:
			return call(std::integral_constant<int, WALK_CODE_L1>());
		default:
			return with_path(path, call);
	}
}

/* The same of a metric. */
template <typename CALL>
static inline cudaError_t
with_metric(gg_metric metric, CALL call)
{
	switch (metric)
	{
		case GG_METRIC_L2:
			return call(std::integral_constant<int, GG_METRIC_L2>());
		case GG_METRIC_IP:
			return call(std::integral_constant<int, GG_METRIC_IP>());
		case GG_METRIC_COSINE:
			return call(std::integral_constant<int, GG_METRIC_COSINE>());
		case GG_METRIC_L1:
			return call(std::integral_constant<int, GG_METRIC_L1>());
	}
	return cudaErrorInvalidValue;
}

#endif							/* GG_LAUNCH_CUH */
