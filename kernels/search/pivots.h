/*
 * pivots.h
 *		The entry points of walks: products of queries and pivots.
 */
#ifndef GG_CUDA_PIVOTS_H
#define GG_CUDA_PIVOTS_H

#include "view.h"

#define PIVOT_MAX_SLICES 16
#define LONG_ENTRY_NODES 32		/* ENTRY_NODES of a walk with a long list */

/*
 * Two to this power are the pivots that a walk enters at: LONG_ENTRY_NODES with a list longer than
 * 512, else ENTRY_NODES.  What a long list wants lies in more clusters than the nearest 16 pivots:
 * recall@512 of lists of 1,024 is 0.928 behind 16 and 0.985 behind 32 over 12,000 rows in clusters
 * of 300, in 1.09 of the time, 0.861 and 0.906 over 100,000, in 1.04, and 0.9932 and 0.9937 over
 * 500,000 x 768, in the same time.  Lists of 256 and 512 find nothing more, in up to 1.14 of it.
 */
static __host__ __device__ __forceinline__ uint32_t
search_entry_bits(uint32_t itopk)
{
	return itopk > 512 ? 5 : 4;
}

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
	uint64_t   *entries;		/* nq x slices x ENTRY_NODES keys */
} pivot_search;

extern cudaError_t search_pivots_launch(const search_view *view, const pivot_search *search,
										const search_device *device, cudaStream_t stream);

/* Slices for a launch, `least` or more; 0: there are too few pivots for so many. */
extern uint32_t search_pivots_slices(const search_view *view, uint32_t nq, uint32_t least,
									 int sms);

/*
 * Load what will be launched for an index: the first launch of a kernel else takes milliseconds,
 * and may wait for what the device does.
 */
extern cudaError_t search_pivots_ready(const search_view *view, const search_device *device);

#endif							/* GG_CUDA_PIVOTS_H */
