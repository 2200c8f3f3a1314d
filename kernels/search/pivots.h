/*
 * pivots.h
 *		The entry points of walks: products of queries and pivots.
 */
#ifndef GG_CUDA_PIVOTS_H
#define GG_CUDA_PIVOTS_H

#include "view.h"

#define PIVOT_MAX_SLICES 16

/* The best ENTRY_NODES pivots of each query in each of `slices` parts of the pivots. */
typedef struct pivot_search
{
	const float *queries;		/* NULL: they are read from slots, once */
	const search_slots *slots;
	uint32_t	nq;
	uint32_t	slices;
	__half	   *halves;			/* nq x walk_pad, scratch */
	float	   *factors;		/* nq, scratch */
	float	   *copies;			/* nq x dim: of queries that lie in slots */
	uint64_t   *entries;		/* their keys */
} pivot_search;

extern cudaError_t search_pivots_launch(const search_view *view, const pivot_search *search,
										const search_device *device, cudaStream_t stream);
extern uint32_t search_pivots_slices(const search_view *view, uint32_t nq, int sms);

/*
 * Load what will be launched for an index: the first launch of a kernel else takes milliseconds,
 * and may wait for what the device does.
 */
extern cudaError_t search_pivots_ready(const search_view *view, const search_device *device);

#endif							/* GG_CUDA_PIVOTS_H */
