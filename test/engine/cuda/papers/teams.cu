/*
 * teams.cu
 *		Single-CTA search with distances by teams of 2 to 32 lanes: CAGRA, section IV-B1.
 *
 * The kernel of search_single.cu, one warp a query whatever the dimension, with every size of a
 * team (sum_16_by_teams() of kernels/search/walk.cuh) and with the tensor cores.  All else is the
 * engine's: entries, list, visited set.  So here is what the size of a team, and the tensor cores,
 * are worth.
 */
#include "../../../../kernels/search/search_single.cuh"

cudaError_t
papers_team_launch(uint32_t team, const search_view *view, const search_launch *launch,
				   const search_device *device, cudaStream_t stream)
{
	if (view->path != WALK_HALF_DOT)
		return cudaErrorInvalidValue;
	switch (team)
	{
		case 0:
			return launch_warps<WALK_HALF_DOT>(view, launch, NULL, device, stream);
		case 2:
			return launch_warps<WALK_HALF_TEAMS(2)>(view, launch, NULL, device, stream);
		case 4:
			return launch_warps<WALK_HALF_TEAMS(4)>(view, launch, NULL, device, stream);
		case 8:
			return launch_warps<WALK_HALF_TEAMS(8)>(view, launch, NULL, device, stream);
		case 16:
			return launch_warps<WALK_HALF_TEAMS(16)>(view, launch, NULL, device, stream);
		case 32:
			return launch_warps<WALK_HALF_TEAMS(32)>(view, launch, NULL, device, stream);
	}
	return cudaErrorInvalidValue;
}
