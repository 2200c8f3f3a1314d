/*
 * prune.cuh
 *		Exact searches in parts: find the nearest of a sample of the rows, mark those of all rows
 *		that may be nearer (prune.cu), and find the nearest of these (exact.cu or measure.cu).
 */
#ifndef GG_PRUNE_CUH
#define GG_PRUNE_CUH

#include "launch.cuh"

#define PRUNE_QUERIES 16		/* at most */

/*
 * A launch that runs or ends at once by how many pairs of a query and a row its filters leave,
 * which the host does not know.
 */
typedef struct search_gate
{
	const unsigned long long *matches;	/* rows of each filter; NULL: the launch runs */
	uint32_t	count;			/* filters */
	uint32_t	queries;		/* of each filter */
	unsigned long long least;	/* pairs; with fewer the launch ends */
	bool		below;			/* true: it runs with fewer, and else ends */
} search_gate;

/* What part of a search an exact launch makes. */
typedef struct search_part
{
	uint32_t	step;			/* one word of 32 rows in so many; 0: all rows */
	search_gate gate;
} search_part;

/*
 * What prune.cu is given.  It sets bits in `to`, to_stride words a query: of the rows that may be
 * as near as the query's bound, a key.  filter NULL: all rows; filter_stride 0: one for all.
 * bounds: bounds_stride apart; NULL: they are in last.  GG_KEY_NONE as a bound: all rows may be.
 */
typedef struct prune_launch
{
	const uint32_t *filter;
	uint32_t	filter_stride;
	uint32_t   *to;
	uint32_t	to_stride;
	const float *queries;		/* nq x dim */
	uint32_t	nq;
	const uint64_t *bounds;
	uint32_t	bounds_stride;
	uint64_t	last[PRUNE_QUERIES];
	search_gate gate;
} prune_launch;

extern bool search_prune_takes(const search_view *view, const search_device *device);
extern cudaError_t search_prune_launch(const search_view *view, const prune_launch *launch,
									   const search_device *device, cudaStream_t stream);
extern cudaError_t search_prune_ready(const search_view *view, const search_device *device);

/*
 * The step of a sample, one word in so many; 1 if it would not pay.  A sample costs n / step rows,
 * and leaves some k x step, each of which costs `weight` times as much.
 */
static inline uint32_t
prune_sample_step(uint32_t n, uint32_t k, uint32_t weight)
{
	uint32_t	step = 1;

	while ((uint64_t) step * step * weight <= n / k)
		step *= 2;
	return step;
}

static __device__ __forceinline__ bool
gate_lets_run(const search_gate &gate)
{
	unsigned long long pairs = 0;

	if (gate.matches == NULL)
		return true;
	for (uint32_t i = 0; i < gate.count; i++)
		pairs += __ldg(gate.matches + i);
	return (pairs * gate.queries < gate.least) == gate.below;
}

#endif							/* GG_PRUNE_CUH */
