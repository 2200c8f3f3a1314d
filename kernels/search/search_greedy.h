/*
 * search_greedy.h
 *		TSDG's search for small batches.
 */
#ifndef GG_SEARCH_GREEDY_H
#define GG_SEARCH_GREEDY_H

#include "view.h"

/*
 * A query has `walks` blocks with `nseeds` pivots each (gg_greedy_plan).  lists: nq x walks x
 * GG_GREEDY_LIST of scratch; arrived: nq words that are zero, and are so again afterwards.  Queries
 * and slots as of search_single_launch().
 */
extern cudaError_t search_greedy_launch(const search_view *view, const search_launch *launch,
										const search_slots *slots, uint32_t walks,
										uint32_t nseeds, uint64_t *lists, uint32_t *arrived,
										const search_device *device, cudaStream_t stream);
extern bool search_greedy_takes(const search_view *view, uint32_t k, const search_device *device);

#endif							/* GG_SEARCH_GREEDY_H */
