/*
 * gnnd.cuh
 *		An iteration of GNND, step by step: for knn_graph.cu, and for benches that put a join and an
 *		update of their own in the place of two steps (test/engine/cuda/papers/update.cu).
 */
#ifndef GG_GNND_CUH
#define GG_GNND_CUH

#include "stages.h"

/* An empty place among samples. */
#define NO_SAMPLE 0xFFFFFFFFu

/* A bijection of 32-bit numbers and its inverse: reverse samples compete by it. */
__device__ static inline uint32_t
scramble(uint32_t id, uint32_t seed)
{
	return (id ^ seed) * 0x9E3779B1u;
}

__device__ static inline uint32_t
unscramble(uint32_t value, uint32_t seed)
{
	return value * 0x0E8B2F51u ^ seed;
}
static_assert(0x9E3779B1u * 0x0E8B2F51u == 1u, "inverse modulo 2^32");

__device__ static inline uint64_t
lower(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* What a join reads and writes. */
typedef struct local_args
{
	gg_cuda_rows rows;
	const uint32_t *order;		/* row of a block, or NULL */
	const uint32_t *fresh;
	const uint32_t *old;
	const uint32_t *summaries;
	const uint8_t *parts;		/* n, or NULL */
	uint64_t   *offers;
	uint32_t	words;			/* of a summary */
	/* as many as a row has chunks, at most STAGES: with fewer, more blocks fit */
	uint32_t	stages;
	uint32_t	seed;			/* of this iteration's samples */
	uint32_t	summary_seed;	/* of this iteration's summaries */
} local_args;

/* What the steps of all iterations share. */
class gnnd
{
public:
	const gg_cuda_rows *rows;
	uint32_t	length;			/* of a list in memory */
	uint32_t	k;				/* its entries that count */
	uint32_t	iterations;		/* at most */
	uint32_t	p;
	uint32_t	span;			/* words of samples of one age per row */
	uint64_t   *lists;
	cudaStream_t stream;
	const gg_control *control;
	gg_cuda_buffer<uint32_t> fresh;
	gg_cuda_buffer<uint32_t> old;
	gg_cuda_buffer<uint32_t> summaries;
	gg_cuda_buffer<uint64_t> offers;
	gg_cuda_buffer<unsigned long long> updates;
	local_args	args;
	gg_cuda_pace pace;
};

/* Set what g's rows and k tell, and take memory.  The caller sets args' seeds in each iteration. */
extern gg_status gg_cuda_gnnd_begin(gnnd *g, uint32_t p, const uint32_t *order,
									gg_cuda_meter *meter);
extern gg_status gg_cuda_gnnd_summaries(gnnd *g);
extern gg_status gg_cuda_gnnd_sample(gnnd *g);
extern gg_status gg_cuda_gnnd_join(gnnd *g, uint32_t iteration);
/* *changed: entries that came into the lists. */
extern gg_status gg_cuda_gnnd_update(gnnd *g, unsigned long long *changed);

#endif							/* GG_GNND_CUH */
