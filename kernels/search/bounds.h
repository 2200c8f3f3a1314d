/*
 * bounds.h
 *		Writes keys of records to memory, with lower bounds in the place of distances.
 */
#ifndef GG_SEARCH_BOUNDS_H
#define GG_SEARCH_BOUNDS_H

#include "measure.cuh"

/* A launch's queries, side by side, and where their keys go. */
typedef struct bounds_args
{
	const float *queries;
	uint32_t	nq;
	const uint32_t *filter;		/* NULL: all rows */
	uint32_t	filter_stride;	/* words from one query's bits to the next one's, or 0 */
	uint32_t	first;			/* row, a multiple of 32 */
	uint32_t	end;
	uint64_t	after[GG_SERVE_MAX_DEEPS];	/* of each query: keys up to it become GG_KEY_NONE */
	uint64_t   *keys;			/* new ones go behind the `found` ones */
	uint64_t	keys_stride;	/* from one query's to the next one's */
	digit_state *states;		/* of each query; found counts its keys */
} bounds_args;

/* Append the keys of the rows [first, end) whose bit is set, in no order. */
extern cudaError_t search_bounds_launch(const search_view *view, const bounds_args *args,
										const search_device *device, cudaStream_t stream);
extern cudaError_t search_bounds_ready(const search_view *view, const search_device *device);

#endif							/* GG_SEARCH_BOUNDS_H */
