/*
 * search_segmented.h
 *		TSDG's search for large batches, a warp or two per query, or four for wide rows.
 */
#ifndef GG_SEARCH_SEGMENTED_H
#define GG_SEARCH_SEGMENTED_H

#include "../search/view.h"

/* Queries, entries and slots as of search_single_launch(). */
extern cudaError_t search_segmented_launch(const search_view *view, const search_launch *launch,
										   const search_slots *slots,
										   const search_device *device, cudaStream_t stream);
extern bool search_segmented_takes(const search_view *view, const search_launch *launch,
								   const search_device *device);

#endif							/* GG_SEARCH_SEGMENTED_H */
