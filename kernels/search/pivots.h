/*
 * pivots.h
 *		The entry points of walks: products of queries and pivots.
 */
#ifndef GG_CUDA_PIVOTS_H
#define GG_CUDA_PIVOTS_H

#include "view.h"

/*
 * The best ENTRY_NODES pivots of each of nq queries in each of `slices` parts of the
 * pivots, as keys.  halves: nq x walk_pad fp16 of scratch, factors: nq floats of scratch.  queries
 * NULL: they are read from slots, once, and copied to copies (nq x dim).
 */
#define PIVOT_MAX_SLICES 16

extern cudaError_t search_pivots_launch(const search_view *view, const float *queries,
										const search_slots *slots, uint32_t nq, uint32_t slices,
										__half *halves, float *factors, float *copies,
										uint64_t *entries, const search_device *device,
										cudaStream_t stream);
extern uint32_t search_pivots_slices(const search_view *view, uint32_t nq, int sms);

/*
 * Load what will be launched for an index: the first launch of a kernel else takes milliseconds,
 * and may wait for what the device does.
 */
extern cudaError_t search_pivots_ready(const search_view *view, const search_device *device);

#endif							/* GG_CUDA_PIVOTS_H */
