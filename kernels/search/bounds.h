/*
 * bounds.h
 *		Keys of records in memory, with bounds of distances.
 */
#ifndef GG_SEARCH_BOUNDS_H
#define GG_SEARCH_BOUNDS_H

#include "measure.cuh"

/* As search_measure_launch(), of one query, and of every word (args->step 1). */
extern cudaError_t search_bounds_launch(const search_view *view, const measure_args *args,
										const search_device *device, cudaStream_t stream);
extern cudaError_t search_bounds_ready(const search_view *view, const search_device *device);

#endif							/* GG_SEARCH_BOUNDS_H */
