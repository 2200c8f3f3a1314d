/*
 * prune.cuh
 *		Exact searches in parts: a sample of the rows (exact.cu), what it leaves of all rows
 *		(prune.cu), and exact.cu again.
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
	uint32_t	queries;		/* of each of them */
	unsigned long long least;	/* pairs; with fewer the launch ends */
	bool		below;			/* the other way round: with fewer it runs */
} search_gate;

/* What part of a search an exact launch makes. */
typedef struct search_part
{
	uint32_t	step;			/* one word of 32 rows in so many; 0: all rows */
	search_gate gate;
} search_part;

/*
 * prune.cu: of nq queries, the bits of those rows that may be as near as a key, in to, whose words
 * are to_stride apart.  filter, filter_stride: as above, or NULL for all rows.  bounds: the key of
 * each query, bounds_stride apart; GG_KEY_NONE: all rows may be.  NULL: they are in last.
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
 * One word in so many is looked at first, 1 if that would not pay: of n rows it costs n / step, and
 * leaves some k x step, each of which costs `weight` times as much.
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
