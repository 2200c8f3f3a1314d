/*
 * blocks.cu
 *		Multi-CTA search with distances by teams of lanes, as teams.cu has them for single-CTA
 *		search: the kernel of search_multi.cu, by clusters of any size.
 *
 * Teams of 16 are left out: with 16 warps they spill registers.
 */
#include "../../../../kernels/search/launch.cuh"

/* Rows in fp16 and products alone. */
template <typename CALL>
static inline cudaError_t
dot_path(walk_path path, CALL call)
{
	return path == WALK_HALF_DOT ? call(std::integral_constant<int, WALK_HALF_DOT>()) :
		cudaErrorInvalidValue;
}

#define with_path dot_path
#define search_block_kernel team_block_kernel
#define search_multi_launch papers_multi_launch
#define search_multi_ready papers_multi_ready
#define search_multi_shared papers_multi_shared
#define search_multi_mail papers_multi_mail
#define search_multi_plan papers_multi_plan
#include "../../../../kernels/search/search_multi.cu"

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
