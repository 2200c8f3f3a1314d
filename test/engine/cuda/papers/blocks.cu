/*
 * blocks.cu
 *		Multi-CTA search with distances by teams of lanes, as teams.cu has them for single-CTA
 *		search: the kernel of search_multi.cu, by clusters of any size.
 *
 * Teams of 16 are left out: with 16 warps they spill registers.
 */
#include "../../../../kernels/search/search_multi.cuh"

cudaError_t
papers_block_launch(uint32_t team, const search_view *view, const search_launch *launch,
					const search_device *device, uint32_t cluster, cudaStream_t stream)
{
	if (view->path != WALK_HALF_DOT)
		return cudaErrorInvalidValue;
	switch (team)
	{
		case 0:
			return launch_blocks<WALK_HALF_DOT, MULTI_WARPS>(view, launch, NULL, device, cluster,
															 stream);
		case 4:
			return launch_blocks<WALK_HALF_TEAMS(4), MULTI_WARPS>(view, launch, NULL, device,
																  cluster, stream);
		case 8:
			return launch_blocks<WALK_HALF_TEAMS(8), MULTI_WARPS>(view, launch, NULL, device,
																  cluster, stream);
	}
	return cudaErrorInvalidValue;
}
