/*
 * search_single.h
 *		Walks by one warp per query, or by a block for some wide rows.
 */
#ifndef GG_SEARCH_SINGLE_H
#define GG_SEARCH_SINGLE_H

#include "view.h"

/*
 * queries are read several times: they must be in launch->queries.  slots: NULL, or where answers
 * go.
 */
extern cudaError_t search_single_launch(const search_view *view, const search_launch *launch,
										const search_slots *slots, const search_device *device,
										cudaStream_t stream);

extern uint32_t search_single_shared(const search_view *view, const search_launch *launch,
									 const search_device *device);

extern cudaError_t search_single_ready(const search_view *view, const search_device *device);

#endif							/* GG_SEARCH_SINGLE_H */
