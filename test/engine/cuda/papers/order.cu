/*
 * order.cu
 *		GRNND that looks at all pairs of a pool, in one of three orders: section 4.3.
 *
 * Each node of a pool meets those that are nearer to the pool's own: the nearest first, as
 * RNN-descent on a processor; the farthest first; or from a place that is drawn on.
 */
#include "papers.h"

#include "../../../../kernels/papers/grnnd.cuh"

enum order
{
	ASCENDING,
	DESCENDING,
	DISORDERED
};

/* Pair number far (far - 1) / 2 + near, near turned round or on. */
template <order ORDER>
struct all_pairs
{
	__host__ __device__ static uint32_t
	most(const gg_grnnd &, uint32_t count)
	{
		return count * (count - 1) / 2;
	}

	__device__ static void
	draw(uint64_t seed, uint32_t pair, uint32_t, uint32_t *near, uint32_t *far)
	{
		uint32_t	row = (uint32_t) ((1.0f + sqrtf(1.0f + 8.0f * (float) pair)) / 2.0f);

		while (row * (row - 1) / 2 > pair)
			row--;
		while ((row + 1) * row / 2 <= pair)
			row++;
		*far = row;
		*near = pair - row * (row - 1) / 2;
		if (ORDER == DESCENDING)
			*near = row - 1 - *near;
		if (ORDER == DISORDERED)
			*near = (*near + gg_random_below(seed, row, row)) % row;
	}
};

template <order ORDER>
static gg_status
grow(const gg_cuda_data *data, const gg_build_params *params, const gg_cuda_lists &starts,
	 const uint32_t *order, const gg_cuda_run &run, uint32_t *lists)
{
	return gg_cuda_grnnd_by(grnnd_round<all_pairs<ORDER>>, data, params, starts, order, run, lists);
}

const papers_grnnd papers_grnnd_ascending = grow<ASCENDING>;
const papers_grnnd papers_grnnd_descending = grow<DESCENDING>;
const papers_grnnd papers_grnnd_disordered = grow<DISORDERED>;
