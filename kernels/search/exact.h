/*
 * exact.h
 *		The nearest of all rows, or of those that match a filter.
 */
#ifndef GG_SEARCH_EXACT_H
#define GG_SEARCH_EXACT_H

#include "search_group.h"
#include "view.h"

/* What is searched for, and where the answers go. */
typedef struct exact_search
{
	const uint32_t *filter;		/* rows whose bit is set; or NULL, for all */
	uint32_t	filter_stride;	/* words from one query's bits to the next one's, or 0 */
	const float *queries;
	const search_slots *slots;	/* or NULL: nothing is in slots */
	uint32_t	nq;
	uint32_t	k;
	uint64_t   *keys;
	const struct search_part *part;	/* part of the search (prune.cuh); NULL: all of it */
	void	   *scratch;		/* search_exact_scratch() bytes, zeroed once when allocated */
} exact_search;

extern cudaError_t search_exact_launch(const search_view *view, const exact_search *search,
									   const search_device *device, cudaStream_t stream);
extern size_t search_exact_scratch(uint32_t k, const search_device *device);

/*
 * The k nearest rows to query in each of many lists, of one element type and metric, and at most
 * most_rows rows.  lists and query are in device memory; view is the first list's; scratch as
 * above.
 */
typedef struct exact_group
{
	const search_list *lists;
	uint32_t	nlists;
	uint32_t	most_rows;
	uint32_t	k;
	const float *query;
	void	   *scratch;
} exact_group;

extern cudaError_t search_exact_group_launch(const search_view *view, const exact_group *group,
											 const search_device *device, cudaStream_t stream);

/* Shared memory that a block takes at least. */
extern uint32_t search_exact_shared(const search_view *view, uint32_t k);

/* How many blocks of search_exact_launch() will read each of nq queries, at most. */
extern uint32_t search_exact_readers(const search_view *view, uint32_t nq,
									 const search_device *device);

/*
 * Load what will be launched for an index: the first launch of a kernel else takes milliseconds,
 * and may wait for what the device does.
 */
extern cudaError_t search_exact_ready(const search_view *view, const search_device *device);

#endif							/* GG_SEARCH_EXACT_H */
