/*
 * grnnd.cuh
 *		GRNND's rounds: the pairs of a pool that are measured, and who leaves it.
 *
 * grnnd.cu says what a round is, and has all else.  The template parameter PAIRS says which pairs
 * a round looks at: those that are drawn (grnnd.cu), or all, in one order or another
 * (test/engine/cuda/papers/order.cu).
 *
 *		most(params, count)		how many pairs of a pool of count nodes
 *		draw(seed, pair, count, &near, &far)	the places of a pair's nodes, near < far
 */
#ifndef GG_CUDA_GRNND_CUH
#define GG_CUDA_GRNND_CUH

#include "../../src/engine/rules/algorithms.h"
#include "../../src/engine/rules/random.h"
#include "row_view.cuh"

#define PAIRS_AT_ONCE 4			/* as many distances as gg_view_pairs() has at a time */

typedef struct grnnd_args
{
	gg_view		view;
	uint64_t   *pools;			/* n x length keys */

	/*
	 * n x length.  After a round: the place in the same pool of the node that this entry is offered
	 * to, or the entry's own place: it stays.
	 */
	uint16_t   *places;
	uint32_t	length;			/* of a pool in memory: R, rounded up (gg_cuda_list_length()) */
	const uint32_t *order;		/* n: nodes, those of one cell side by side; or NULL */
	gg_grnnd	params;
	uint64_t	seed;
	uint32_t	round;
	bool		reverse;		/* offers are those of step (c), reverse edges */
} grnnd_args;

/* Warps a block so that the pools stay below 48 KB. */
template <int R>
struct round_shape
{
	static constexpr int WARPS = R <= 4 ? 8 : 4;
};

/* Load a warp's pool into shared memory; returns how many nodes it has. */
template <int R>
__device__ static inline uint32_t
load_pool(const uint64_t *pool, uint64_t *keys, uint16_t *places)
{
	uint32_t	count = 0;

#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint32_t i = r * 32 + (threadIdx.x & 31);

		keys[i] = pool[i];
		places[i] = (uint16_t) i;
		count += __popc(__ballot_sync(GG_FULL_WARP, keys[i] != GG_KEY_NONE));
	}
	__syncwarp();
	return count;
}

/*
 * Judge up to 32 pairs of a pool, one a lane: for a node that leaves, places gets the place of the
 * pair's nearer node, and the pool in memory its distance from that node, at once.
 */
template <gg_cuda_kind KIND>
__device__ static inline void
judge_pairs(const gg_view &view, uint32_t near, uint32_t far, uint32_t some, const uint64_t *keys,
			uint16_t *places, uint64_t *pool)
{
	for (uint32_t i = 0; i < some; i += PAIRS_AT_ONCE)
	{
		uint32_t	nears[PAIRS_AT_ONCE];
		uint32_t	fars[PAIRS_AT_ONCE];
		uint32_t	to[PAIRS_AT_ONCE];
		uint32_t	ids[PAIRS_AT_ONCE];
		float		distances[PAIRS_AT_ONCE];

#pragma unroll
		for (int j = 0; j < PAIRS_AT_ONCE; j++)
		{
			nears[j] = __shfl_sync(GG_FULL_WARP, near, min(i + j, some - 1));
			fars[j] = __shfl_sync(GG_FULL_WARP, far, min(i + j, some - 1));
			to[j] = gg_key_id(keys[nears[j]]);
			ids[j] = gg_key_id(keys[fars[j]]);
		}
		gg_view_pairs<KIND>(view, to, ids, distances);
#pragma unroll
		for (int j = 0; j < PAIRS_AT_ONCE; j++)
		{
			/* the same in every lane; of several pairs that it leaves by, the first drawn counts */
			const bool	leaves = i + j < some && places[fars[j]] == fars[j] &&
				distances[j] < gg_key_distance(keys[fars[j]]);

			__syncwarp();
			if (leaves && (threadIdx.x & 31) == 0)
			{
				places[fars[j]] = (uint16_t) nears[j];
				pool[fars[j]] = gg_key(distances[j], ids[j], 0);
			}
			__syncwarp();
		}
	}
}

template <gg_cuda_kind KIND, int R, typename PAIRS>
static __global__ void __launch_bounds__(round_shape<R>::WARPS * 32)
round_kernel(grnnd_args args, uint32_t first)
{
	constexpr int WARPS = round_shape<R>::WARPS;
	__shared__ uint64_t keys_of[WARPS][32 * R];
	__shared__ uint16_t places_of[WARPS][32 * R];
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t at = first + blockIdx.x * WARPS + threadIdx.x / 32;
	uint64_t   *keys = keys_of[threadIdx.x / 32];
	uint16_t   *places = places_of[threadIdx.x / 32];

	if (at >= args.view.data.n)
		return;
	const uint32_t node = args.order != NULL ? args.order[at] : at;
	const uint64_t seed = gg_grnnd_seed(args.seed, args.round, node);
	uint64_t   *pool = args.pools + (uint64_t) node * (32 * R);
	const uint32_t count = load_pool<R>(pool, keys, places);
	const uint32_t pairs = count > 1 ? PAIRS::most(args.params, count) : 0;

	for (uint32_t begin = 0; begin < pairs; begin += 32)
	{
		uint32_t	near = 0;
		uint32_t	far = 0;

		if (begin + lane < pairs)
			PAIRS::draw(seed, begin + lane, count, &near, &far);
		judge_pairs<KIND>(args.view, near, far, min(pairs - begin, 32u), keys, places, pool);
	}
#pragma unroll
	for (int r = 0; r < R; r++)
		args.places[(uint64_t) node * (32 * R) + r * 32 + lane] = places[r * 32 + lane];
}

/* A round of all pools, but for what is done with the offers. */
template <typename PAIRS>
static gg_status
grnnd_round(const grnnd_args &args, const gg_cuda_run &run, gg_cuda_pace *pace)
{
	const gg_cuda_data *data = &args.view.data;
	const uint64_t pairs = PAIRS::most(args.params, args.params.capacity);
	/* a launch: 40 GB of rows, most of them in L2, some 10 ms */
	const uint64_t fit = 40000000000ull / (pairs * 2 * (data->dim * 4 + 16)) / 8 * 8 + 264;
	const uint64_t step = fit > GG_PASS_ROWS ? GG_PASS_ROWS : fit;

	GG_SWEEP(data->n, step, run, *pace, "round_kernel",
		GG_SWITCH_PLACE_KIND(gg_cuda_kind_of(data->metric, data->dim),
			GG_SWITCH_LENGTH(args.length,
				(round_kernel<KIND, R, PAIRS>
				 <<<gg_cuda_blocks(count, round_shape<R>::WARPS), round_shape<R>::WARPS * 32, 0,
				 run.stream>>>(args, (uint32_t) first)))));
	return gg_ok();
}

typedef gg_status (*grnnd_rounds) (const grnnd_args &args, const gg_cuda_run &run,
								   gg_cuda_pace *pace);

/* gg_cuda_grnnd_device() by such rounds. */
extern gg_status gg_cuda_grnnd_by(grnnd_rounds round, const gg_cuda_data *data,
								  const gg_build_params *params, const gg_cuda_lists &starts,
								  const uint32_t *order, const gg_cuda_run &run, uint32_t *lists);

#endif							/* GG_CUDA_GRNND_CUH */
