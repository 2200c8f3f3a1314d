/*
 * teams.cu
 *		Single-CTA search with distances by teams of TEAM lanes: CAGRA, section IV-B1.
 *
 * A second copy of kernels/search_single.cu, compiled once for each VARIANT, or TEAM: 2, 4, 8, 16,
 * 32, and 0 for the engine's own product.  A team of TEAM lanes measures a row by scalar products:
 * fp16 pieces of 16 bytes against the query in fp32, in shared memory, summed in fp32 and then over
 * the team.  Eight pieces a lane are in flight, as many as the engine's product has.  All else is
 * the engine's: entries, list, visited set, one warp a query.  So here is what the size of a team,
 * and the tensor cores, are worth.
 *
 * Wide rows have one warp, too, where the engine gives them four.
 */
#define sum_16_rows engine_sum_16_rows
#define query_prepare engine_query_prepare
#include "../../../../kernels/launch.cuh"
#undef sum_16_rows
#undef query_prepare

#include "papers.h"

#define TEAM VARIANT

#define GLUE_(a, b) a ## b
#define GLUE(a, b) GLUE_(a, b)

#if TEAM == 0
#define sum_16_rows engine_sum_16_rows
#define query_prepare engine_query_prepare
#else

#define IN_FLIGHT 8				/* pieces a lane */
#define ROWS_AT_ONCE (32 / TEAM)
#define PASSES (TEAM / 2)		/* that 16 rows take */
#define AHEAD (PASSES < IN_FLIGHT ? PASSES : IN_FLIGHT) /* rows of a team in flight */
#define DEPTH (IN_FLIGHT / AHEAD)	/* pieces of each */

/* Eight products. */
__device__ static inline float
piece_product(uint4 row, const float *query, float sum)
{
	const __half2 *halves = (const __half2 *) &row;
	const float4 low = *(const float4 *) query;
	const float4 high = *(const float4 *) (query + 4);
	const float2 x[4] = {__half22float2(halves[0]), __half22float2(halves[1]),
						 __half22float2(halves[2]), __half22float2(halves[3])};

	sum = fmaf(x[0].x, low.x, fmaf(x[0].y, low.y, fmaf(x[1].x, low.z, fmaf(x[1].y, low.w, sum))));
	return fmaf(x[2].x, high.x, fmaf(x[2].y, high.y, fmaf(x[3].x, high.z,
														   fmaf(x[3].y, high.w, sum))));
}

/* As search.cuh's: lane l has rows l / 4 and l / 4 + 8, and gets the sum of row l % 16. */
template <int PATH>
static __device__ __forceinline__ float
sum_16_rows(const char *row_a, const char *row_b, uint32_t begin, uint32_t end, uint32_t pieces,
			const void *query, uint32_t walk_pad, uint32_t lane)
{
	const uint32_t last = min(end * 4, pieces);
	const uint32_t wanted = lane & 15;
	float		result = 0;

	(void) walk_pad;
#pragma unroll 1
	for (uint32_t pass = 0; pass < PASSES; pass += AHEAD)
	{
		const char *rows[AHEAD];
		float		sums[AHEAD];

#pragma unroll
		for (uint32_t j = 0; j < AHEAD; j++)
		{
			const uint32_t row = (pass + j) * ROWS_AT_ONCE + lane / TEAM;
			const unsigned long long a = __shfl_sync(GG_FULL_WARP, (unsigned long long) row_a,
													 (row & 7) * 4);
			const unsigned long long b = __shfl_sync(GG_FULL_WARP, (unsigned long long) row_b,
													 (row & 7) * 4);

			rows[j] = (const char *) (row < 8 ? a : b);
			sums[j] = 0;
		}
		for (uint32_t base = begin * 4; base < last; base += TEAM * DEPTH)
		{
			uint4		x[AHEAD][DEPTH];

#pragma unroll
			for (uint32_t j = 0; j < AHEAD; j++)
#pragma unroll
				for (uint32_t d = 0; d < DEPTH; d++)
				{
					const uint32_t piece = base + d * TEAM + lane % TEAM;

					x[j][d] = load_piece(rows[j], piece, piece < last && rows[j] != NULL);
				}
#pragma unroll
			for (uint32_t d = 0; d < DEPTH; d++)
			{
				const uint32_t piece = base + d * TEAM + lane % TEAM;

				if (piece < last)
#pragma unroll
					for (uint32_t j = 0; j < AHEAD; j++)
						sums[j] = piece_product(x[j][d], (const float *) query + piece * 8,
												sums[j]);
			}
		}
#pragma unroll
		for (uint32_t j = 0; j < AHEAD; j++)
		{
#pragma unroll
			for (int stride = TEAM / 2; stride > 0; stride /= 2)
				sums[j] += __shfl_xor_sync(GG_FULL_WARP, sums[j], stride);

			const float value = __shfl_sync(GG_FULL_WARP, sums[j], wanted % ROWS_AT_ONCE * TEAM);

			if (wanted / ROWS_AT_ONCE == pass + j)
				result = value;
		}
	}
	return result;
}

/* walk_pad floats; returns the factor that turns a product into its share of a distance. */
template <int PATH, int WARPS>
static __device__ __forceinline__ float
query_prepare(const search_view &view, const float *raw, float inverse, void *prepared,
			  float *scratch)
{
	(void) scratch;
	for (uint32_t i = threadIdx.x; i < view.walk_pad; i += WARPS * 32)
		((float *) prepared)[i] = query_element(view, raw, inverse, i);
	group_sync<WARPS>();
	return view.metric == GG_METRIC_L2 ? -2.0f : -1.0f;
}

#endif

/* Rows in fp16 and products alone. */
template <typename CALL>
static inline cudaError_t
dot_path(walk_path path, CALL call)
{
	return path == WALK_HALF_DOT ? call(std::integral_constant<int, WALK_HALF_DOT>()) :
		cudaErrorInvalidValue;
}

#define with_path dot_path
#define search_warp_kernel GLUE(team_kernel_, TEAM)
#define search_single_shared GLUE(team_shared_, TEAM)
#define search_single_launch GLUE(team_launch_, TEAM)
#define search_multi_launch(view, launch, slots, device, cluster, stream) \
	launch_warps<WALK_HALF_DOT>(view, launch, slots, device, stream)
#include "../../../../kernels/search_single.cu"
