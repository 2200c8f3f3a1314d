/*
 * order.cu
 *		GRNND whose pools are looked at in another order: section 4.3.
 *
 * A second copy of kernels/build/grnnd.cu, compiled once for each VARIANT: 0, the nearest first, as
 * RNN-descent on a processor; 1, the farthest first.  Swaps of the places i and count - 1 - i in
 * the second half turn an order round.
 */
#if VARIANT == 0
#define GRNND_SWAP(seed, i, count) ((void) (seed), (i))
#define gg_cuda_grnnd_device papers_grnnd_ascending
#define gg_cuda_grnnd_bytes papers_ascending_bytes
#else
#define GRNND_SWAP(seed, i, count) ((void) (seed), 2 * (i) >= (count) ? (count) - 1 - (i) : (i))
#define gg_cuda_grnnd_device papers_grnnd_descending
#define gg_cuda_grnnd_bytes papers_descending_bytes
#endif
#include "../../../../kernels/build/grnnd.cu"
