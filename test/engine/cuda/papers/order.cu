/*
 * order.cu
 *		GRNND that looks at all pairs of a pool, in one of three orders: section 4.3.
 *
 * A second copy of kernels/build/grnnd.cu, compiled once for each VARIANT.  Each node of a pool
 * meets those that are nearer to the pool's own: 0, the nearest first, as RNN-descent on a
 * processor; 1, the farthest first; 2, from a place that is drawn on.
 */
#if VARIANT == 0
#define gg_cuda_grnnd_device papers_grnnd_ascending
#define gg_cuda_grnnd_bytes papers_ascending_bytes
#elif VARIANT == 1
#define gg_cuda_grnnd_device papers_grnnd_descending
#define gg_cuda_grnnd_bytes papers_descending_bytes
#else
#define gg_cuda_grnnd_device papers_grnnd_disordered
#define gg_cuda_grnnd_bytes papers_disordered_bytes
#endif
#define GRNND_PAIR ordered_pair
#define GRNND_PAIRS(params, count) ((count) * ((count) - 1) / 2)

#include <stdint.h>

static __device__ void ordered_pair(uint64_t seed, uint32_t pair, uint32_t count, uint32_t *near,
									uint32_t *far);

#include "../../../../kernels/build/grnnd.cu"

/* Pair number far (far - 1) / 2 + near, near turned round or on. */
static __device__ void
ordered_pair(uint64_t seed, uint32_t pair, uint32_t count, uint32_t *near, uint32_t *far)
{
	uint32_t	row = (uint32_t) ((1.0f + sqrtf(1.0f + 8.0f * (float) pair)) / 2.0f);

	while (row * (row - 1) / 2 > pair)
		row--;
	while ((row + 1) * row / 2 <= pair)
		row++;
	*far = row;
	*near = pair - row * (row - 1) / 2;
	if (VARIANT == 1)
		*near = row - 1 - *near;
	if (VARIANT == 2)
		*near = (*near + gg_random_below(seed, row, row)) % row;
}
