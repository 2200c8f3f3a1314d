/*
 * search_greedy.h
 *		TSDG's search for small batches.
 */
#ifndef GG_SEARCH_GREEDY_H
#define GG_SEARCH_GREEDY_H

#include "../search/view.h"

/* A launch's shape (gg_greedy_plan), and its scratch. */
typedef struct greedy_args
{
	uint32_t	walks;			/* per query, a block each */
	uint32_t	nseeds;			/* pivots of each walk */
	uint64_t   *lists;			/* nq x walks x GG_GREEDY_LIST */
	uint32_t   *arrived;		/* nq: walks that have ended; 0 between launches */
} greedy_args;

/* Queries and slots as of search_single_launch(). */
extern cudaError_t search_greedy_launch(const search_view *view, const search_launch *launch,
										const search_slots *slots, const greedy_args *args,
										const search_device *device, cudaStream_t stream);
extern bool search_greedy_takes(const search_view *view, uint32_t k, const search_device *device);

#endif							/* GG_SEARCH_GREEDY_H */
