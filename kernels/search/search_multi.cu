/*
 * search_multi.cu
 *		Multi-CTA search: one query per several thread blocks, for few queries at once.
 *
 * Shapes		queries nq x dim float32 -> nodes, distances nq x k; graph n x degree.
 * Requires		k <= itopk <= GG_MAX_ITOPK, width x degree <= MAX_WALK_CANDIDATES (or width 1),
 *				any dimension; 1 to MAX_CLUSTER blocks a query, all of a launch running at once.
 *				Compute capability 9.0 and later has a cluster for them; before that they write
 *				to each other through device memory.
 * Mapping		Every block of the query holds the same list and merges the same candidates into
 *				it, so there is no master to wait for and one cluster barrier per step. A step: each
 *				warp finds the parents by ballot; every block reads all their adjacency lists but
 *				keeps the ids that it owns (by a hash of the id), which makes its visited set a
 *				private part of the query's: shared by construction, no global memory, no epochs. It
 *				measures its candidates, 16 rows over some warps, the chunks of a row split over
 *				`split` warps, and writes those below the list's last key into every block's shared
 *				memory. After the barrier each block sorts what arrived by counting and merges by
 *				binary search.  With no entries given, the blocks first score their share of the
 *				pivots.
 * Shared		see block_layout: query twice, list twice, what arrives twice (a block may be one
 *				step ahead of another, never two), ids, partial sums, visited set.
 * Cost			1M x 128 at itopk 32, 43 us by clock64(): 2 to start, 8 for the pivots (5 of them
 *				choosing and waiting for the slowest block), 1 to enter, 30 for 6 steps, 2 for the
 *				exact distances. A late step's 7,500 cycles: 450 parents, 1,650 their lists and the
 *				visited set, 2,300 rows, 750 writes, 1,600 barrier and keeping, 1,000 merging; all
 *				latency, no unit is busy.
 * Tried		st.async and an mbarrier in place of cluster.sync(): 1.5 us less, of 43 and of 55
 *				at 768 dimensions, which is not worth its lines. Sorting by counting one key at a
 *				time: 36 cycles per key, 9 us in the first step. 8 warps per block: 1 us less at
 *				128 dimensions, 6 more at 768, where the pivots' bytes want loads in flight. Two
 *				blocks per multiprocessor for wider clusters: slower (index.cu, choose_cluster).
 * Oracle		gg_cpu_engine.index_search, as search_single.cu; and search_single.cu itself: the
 *				same walk, so the same answers but for near ties of the fp16 distances.
 */
#include "search_multi.cuh"
#include "search_multi.h"

cudaError_t
search_multi_launch(const search_view *view, const search_launch *launch,
					const search_slots *slots, const search_device *device, uint32_t cluster,
					cudaStream_t stream)
{
	if (launch->nq == 0)
		return cudaSuccess;
	cluster = cluster_with_room(view, launch, device, cluster);
	return with_walk_path(view->path, [&](auto path)
					 {
						 const int	PATH = decltype(path)::value;

						 if (cluster == 1 && launch->nq > (uint32_t) device->sms)
							 return launch_blocks<PATH, WIDE_WARPS>(view, launch, slots, device,
																	cluster, stream);
						 return launch_blocks<PATH, MULTI_WARPS>(view, launch, slots, device,
																 cluster, stream);
					 });
}

cudaError_t
search_multi_ready(const search_view *view, const search_device *device)
{
	return with_walk_path(view->path, [&](auto path)
					 {
						 const int	PATH = decltype(path)::value;
						 cudaError_t error = ready_blocks<PATH, MULTI_WARPS>(device);

						 return error != cudaSuccess ? error :
							 ready_blocks<PATH, WIDE_WARPS>(device);
					 });
}

/* Shared memory of a walk by one block, the least of any; what a launch cannot do without. */
uint32_t
search_multi_shared(const search_view *view, const search_launch *launch,
					const search_device *device)
{
	return block_layout_for(view, launch, device, 1, launch->nq > (uint32_t) device->sms ?
							WIDE_WARPS : MULTI_WARPS).total;
}

/* Device memory that searches of one stream take as search_launch.mail, zeroed once; 0: none. */
size_t
search_multi_mail(const search_device *device)
{
	return device->has_clusters ? 0 : (size_t) device->sms *
		(MAIL_COUNTER_BYTES + 2 * MAIL_BOX_BYTES + MAIL_EXACT_BYTES);
}

/*
 * Set device->has_clusters and device->clusters.  GPCs differ in how many multiprocessors they
 * have, and a cluster stays within one, so how many run at once does not follow from their size: of
 * 132 multiprocessors not all carry 8 clusters of 16.  CUDA is asked with all the shared memory
 * there is, so that no two blocks count for one multiprocessor.
 */
cudaError_t
search_multi_plan(search_device *device)
{
	cudaFuncAttributes attributes;
	cudaError_t error;

	/* which of the peers the code that this device runs was compiled with */
	error = cudaFuncGetAttributes(&attributes,
								  (const void *) search_block_kernel<WALK_HALF_DOT, MULTI_WARPS>);
	if (error != cudaSuccess)
		return error;
	device->has_clusters = attributes.ptxVersion >= 90;
	error = ready_blocks<WALK_HALF_DOT, MULTI_WARPS>(device);
	if (error != cudaSuccess)
		return error;
	device->clusters[1] = (uint32_t) device->sms;
	for (uint32_t cluster = 2; cluster <= MAX_CLUSTER; cluster++)
	{
		cluster_config config;
		int			clusters = 0;

		device->clusters[cluster] = device->has_clusters ? 0 : (uint32_t) device->sms / cluster;
		/* a device taken for a lesser one does without */
		if (!device->has_clusters || device->major < 9)
			continue;
		peers_config_set(&config, device, 1, cluster, MULTI_WARPS * 32,
						 (uint32_t) device->shared_bytes, NULL);
		error = cudaOccupancyMaxActiveClusters(&clusters,
											   search_block_kernel<WALK_HALF_DOT, MULTI_WARPS>,
											   &config.config);
		/* not every device runs clusters of more than 8 */
		if (error == cudaSuccess && clusters > 0)
			device->clusters[cluster] = (uint32_t) clusters;
		(void) cudaGetLastError();
	}
	return cudaSuccess;
}
