/*
 * search_multi.h
 *		Walks by several thread blocks per query.
 */
#ifndef GG_SEARCH_MULTI_H
#define GG_SEARCH_MULTI_H

#include "view.h"

extern cudaError_t search_multi_launch(const search_view *view, const search_launch *launch,
									   const search_slots *slots, const search_device *device,
									   uint32_t cluster, cudaStream_t stream);
extern cudaError_t search_multi_plan(search_device *device);
extern uint32_t search_multi_shared(const search_view *view, const search_launch *launch,
									const search_device *device);
extern size_t search_multi_mail(const search_device *device);

/*
 * Load what will be launched for an index: the first launch of a kernel else takes milliseconds,
 * and may wait for what the device does.
 */
extern cudaError_t search_multi_ready(const search_view *view, const search_device *device);

#endif							/* GG_SEARCH_MULTI_H */
