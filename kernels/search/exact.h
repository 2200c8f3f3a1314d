/*
 * exact.h
 *		The nearest of all rows, or of those that match a filter.
 */
#ifndef GG_SEARCH_EXACT_H
#define GG_SEARCH_EXACT_H

#include "view.h"

/*
 * The k nearest of all rows whose filter bit is set.  filter_stride: words from one
 * query's bits to the next one's, or 0.  slots: NULL or as in search_launch.  part: NULL for all,
 * or as prune.cuh has it.
 * scratch: search_exact_scratch() bytes, zeroed once when allocated.
 */
extern cudaError_t search_exact_launch(const search_view *view, const uint32_t *filter,
									   uint32_t filter_stride, const float *queries,
									   const search_slots *slots, uint32_t nq, uint32_t k,
									   uint64_t *keys,
									   const struct search_part *part, void *scratch,
									   const search_device *device, cudaStream_t stream);
extern size_t search_exact_scratch(uint32_t k, const search_device *device);

/* Shared memory that a block takes at least. */
extern uint32_t search_exact_shared(const search_view *view, uint32_t k);

/* Blocks that will read each query of such a launch, at most. */
extern uint32_t search_exact_readers(const search_view *view, uint32_t nq,
									 const search_device *device);

/*
 * Load what will be launched for an index: the first launch of a kernel else takes milliseconds,
 * and may wait for what the device does.
 */
extern cudaError_t search_exact_ready(const search_view *view, const search_device *device);

#endif							/* GG_SEARCH_EXACT_H */
