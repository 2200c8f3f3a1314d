/*
 * query.cuh
 *		Queries: where they come from, how they are made ready, where their answers go.
 */
#ifndef GG_SEARCH_QUERY_CUH
#define GG_SEARCH_QUERY_CUH

#include <type_traits>

#include "../common/warp.cuh"
#include "codes.cuh"
#include "view.h"

/* ---- where queries come from and answers go --------------------------------- */

/* Query number `query` of the launch. */
static __device__ __forceinline__ const float *
query_of(const float *queries, const search_slots &slots, uint32_t query, uint32_t dim)
{
	if (queries != NULL)
		return queries + (size_t) query * dim;
	return (const float *) (slots.base + slots.slot[query] * slots.slot_bytes + slots.query);
}

/* Where the k keys of the answer for query number `query` go. */
static __device__ __forceinline__ uint64_t *
keys_of(uint64_t *keys, const search_slots &slots, uint32_t query, uint32_t k)
{
	if (keys != NULL)
		return keys + (size_t) query * k;
	return (uint64_t *) (slots.base + slots.slot[query] * slots.slot_bytes + slots.keys);
}

static __device__ __forceinline__ void
ticket_store(uint32_t *done, uint32_t ticket)
{
	__threadfence_system();
	asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(done), "r"(ticket) : "memory");
}

/*
 * The answer is complete: tell whoever waits.  By one thread, after a barrier of all that wrote it;
 * the barrier and the fence together order their stores before the ticket, for the host too.  The
 * slot may belong to another query a moment later, so nothing of it may be read or written
 * afterwards.
 */
static __device__ __forceinline__ void
answered(const search_slots &slots, uint32_t query)
{
	uint32_t   *done = (uint32_t *) (slots.base + slots.slot[query] * slots.slot_bytes +
									 slots.done);

	ticket_store(done, slots.ticket[query]);
}

/* ---- queries --------------------------------------------------------------- */

/* Lanes of a team of WALK_HALF_TEAMS(lanes); 0 on other paths. */
static __host__ __device__ constexpr uint32_t
team_of(int path)
{
	return path > WALK_HALF_TEAMS(0) ? path - WALK_HALF_TEAMS(0) : 0;
}

/* Whether a path measures fp16 rows by products. */
static __host__ __device__ constexpr bool
is_half_product(int path)
{
	return path == WALK_HALF_DOT || team_of(path) > 0;
}

/* What turns a raw sum into a distance, beside what the row has: see query_prepare(). */
template <int PATH>
using walk_factor = std::conditional_t<(code_bits_of(PATH) > 0), code_factor, float>;

/* Barrier and reductions of a group of WARPS warps: a warp or a whole block. */
template <int WARPS>
static __device__ __forceinline__ void
group_sync(void)
{
	if (WARPS == 1)
		__syncwarp();
	else
		__syncthreads();
}

template <int WARPS, bool MAXIMUM>
static __device__ __forceinline__ float
group_reduce(float value, float *scratch)
{
#pragma unroll
	for (int offset = 16; offset > 0; offset >>= 1)
	{
		float		other = __shfl_xor_sync(GG_FULL_WARP, value, offset);

		value = MAXIMUM ? fmaxf(value, other) : value + other;
	}
	if (WARPS > 1)
	{
		__syncthreads();
		if ((threadIdx.x & 31) == 0)
			scratch[threadIdx.x >> 5] = value;
		__syncthreads();
		value = scratch[0];
#pragma unroll
		for (int i = 1; i < WARPS; i++)
			value = MAXIMUM ? fmaxf(value, scratch[i]) : value + scratch[i];
	}
	return value;
}

/*
 * 1 / |q| under cosine (0 for a zero query, whose distances are all 1), 1 otherwise.  With a WARPS
 * of 1 each warp of a block finds it by itself.
 */
template <int WARPS>
static __device__ __forceinline__ float
query_inverse_norm(const search_view &view, const float *raw, float *scratch)
{
	float		sum = 0;

	if (view.metric != GG_METRIC_COSINE)
		return 1;
	for (uint32_t i = threadIdx.x % (WARPS * 32); i < view.dim; i += WARPS * 32)
		sum += raw[i] * raw[i];
	sum = group_reduce<WARPS, false>(sum, scratch);
	return sum > 0 ? 1 / sqrtf(sum) : 0;
}

/* Element i of the query in the walk rows' coordinates. */
static __device__ __forceinline__ float
query_element(const search_view &view, const float *raw, float inverse, uint32_t i)
{
	float		value;

	if (i >= view.dim)
		return 0;
	value = raw[i] * inverse;
	/* under dot products the mean adds the same to every row: leave the query alone */
	if (view.mean != NULL && (view.metric == GG_METRIC_L2 || view.metric == GG_METRIC_L1))
		value -= view.mean[i];
	return value * view.scale;
}

/*
 * The power of two that brings a query's largest element to about 2^10: far from fp16's overflow,
 * and low enough that the second column, 2^-11 of the first, stays a normal number.
 */
static __device__ __forceinline__ float
query_scale(float largest)
{
	int			exponent;

	if (!(largest > 0) || largest > 3e38f)
		return 1;
	frexpf(largest, &exponent);
	exponent = min(max(10 - exponent, -120), 120);
	return ldexpf(1, exponent);
}

/* query_prepare() of paths without codes. */
template <int PATH, int WARPS>
static __device__ __forceinline__ float
query_prepare_elements(const search_view &view, const float *raw, float inverse, void *prepared,
					   float *scratch)
{
	float		factor = 1;

	if (is_half_product(PATH))
	{
		float	   *floats = (float *) prepared;
		__half	   *high = (__half *) prepared;
		__half	   *low = high + view.walk_pad;
		float		largest = 0;
		float		scale;

		for (uint32_t i = threadIdx.x; i < view.walk_pad; i += WARPS * 32)
			largest = fmaxf(largest, fabsf(query_element(view, raw, inverse, i)));
		largest = group_reduce<WARPS, true>(largest, scratch);
		scale = query_scale(largest);
		for (uint32_t i = threadIdx.x; i < view.walk_pad; i += WARPS * 32)
		{
			float		value = query_element(view, raw, inverse, i) * scale;
			__half		part = __float2half_rn(value);

			if (team_of(PATH) > 0)
			{
				floats[i] = value;
				continue;
			}
			high[i] = part;
			low[i] = __float2half_rn(value - __half2float(part));
		}
		factor = (view.metric == GG_METRIC_L2 ? -2.0f : -1.0f) / scale;
	}
	else
	{
		float	   *floats = (float *) prepared;

		for (uint32_t i = threadIdx.x; i < view.walk_pad; i += WARPS * 32)
			floats[i] = query_element(view, raw, inverse, i);
	}
	group_sync<WARPS>();
	return factor;
}

/*
 * Make a query ready in shared memory.  WALK_HALF_DOT: walk_pad halves of the high parts, then
 * walk_pad of the low ones.  Codes: as codes.cuh has it.  Other paths: walk_pad floats.  Returns
 * the factor that turns a product into its share of a distance.  work: with codes,
 * code_work_bytes() of shared memory, which are free again when it returns.
 */
template <int PATH, int WARPS>
static __device__ __forceinline__ walk_factor<PATH>
query_prepare(const search_view &view, const float *raw, float inverse, void *prepared,
			  float *scratch, char *work = NULL)
{
	walk_factor<PATH> factor = {};

	if constexpr (code_bits_of(PATH) > 0)
	{
		char	   *folds = work + code_work_bytes(view.dim) - CODE_FOLD_BYTES;
		const float base = code_take_query<WARPS>(view, raw, (float *) work, folds);

		factor = code_prepare_product<code_bits_of(PATH), WARPS>(view, (float *) work, folds,
																 base, (uint32_t *) prepared);
	}
	else if constexpr (PATH == WALK_CODE_L1)
		code_prepare_differences<WARPS>(view, raw, (float *) prepared);
	else
		factor = query_prepare_elements<PATH, WARPS>(view, raw, inverse, prepared, scratch);
	return factor;
}

#endif							/* GG_SEARCH_QUERY_CUH */
