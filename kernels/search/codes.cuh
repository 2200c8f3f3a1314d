/*
 * codes.cuh
 *		Codes on the device (engine/rules/codes.h): vectors rotated, and queries made ready for
 *		records.
 *
 * A group of WARPS warps works at one vector in shared memory.  Each step of the transform makes a
 * sum and a difference of two numbers, and which two follows from the definition alone.  So it does
 * not matter which thread takes them, or that three steps are made in registers at a time.
 */
#ifndef GG_SEARCH_CODES_CUH
#define GG_SEARCH_CODES_CUH

#include "../../src/engine/rules/codes.h"
#include "../common/warp.cuh"
#include "view.h"

/* Bits of an element on a path that measures records by products; 0 on others. */
static __host__ __device__ constexpr uint32_t
code_bits_of(int path)
{
	return path == WALK_CODE8 ? 8 : path == WALK_CODE4 ? 4 : 0;
}

static __host__ __device__ constexpr bool
is_code(int path)
{
	return code_bits_of(path) > 0 || path == WALK_CODE_L1;
}

/* What estimates need of a query beside its elements: gg_code_query has the same. */
typedef struct code_factor
{
	float		base;
	float		scale;
	int32_t		sum;
} code_factor;

/* ---- groups ---------------------------------------------------------------- */

/* Bytes behind a vector in shared memory, for code_fold(): one value of each warp. */
#define CODE_FOLD_BYTES 256

/* Bytes of shared memory that a vector takes, with code_fold()'s. */
static __host__ __device__ __forceinline__ uint32_t
code_work_bytes(uint32_t dim)
{
	return ((dim * 4 + 15) & ~15u) + CODE_FOLD_BYTES;
}

template <int WARPS>
static __device__ __forceinline__ void
code_sync(void)
{
	if (WARPS == 1)
		__syncwarp();
	else
		__syncthreads();
}

/* Fold the values of a group's threads by op(); each gets the result.  scratch: CODE_FOLD_BYTES. */
template <int WARPS, typename T, typename OP>
static __device__ __forceinline__ T
code_fold(T value, void *scratch, OP op)
{
	T		   *values = (T *) scratch;

#pragma unroll
	for (int offset = 16; offset > 0; offset >>= 1)
		value = op(value, __shfl_xor_sync(GG_FULL_WARP, value, offset));
	if (WARPS == 1)
		return value;
	__syncthreads();
	if ((threadIdx.x & 31) == 0)
		values[threadIdx.x >> 5] = value;
	__syncthreads();
	value = values[0];
	for (int i = 1; i < WARPS; i++)
		value = op(value, values[i]);
	return value;
}

template <int WARPS, typename T>
static __device__ __forceinline__ T
code_sum(T value, void *scratch)
{
	return code_fold<WARPS>(value, scratch, [](T a, T b) { return a + b; });
}

template <int WARPS, typename T>
static __device__ __forceinline__ T
code_most(T value, void *scratch)
{
	return code_fold<WARPS>(value, scratch, [](T a, T b) { return a > b ? a : b; });
}

/* ---- rotation -------------------------------------------------------------- */

/* Make LEVELS steps of the transform of n elements, the first one on pairs h apart. */
template <int WARPS, int LEVELS>
static __device__ __forceinline__ void
code_steps(float *x, uint32_t n, uint32_t h)
{
	constexpr uint32_t R = 1u << LEVELS;

	for (uint32_t i = threadIdx.x; i < n / R; i += WARPS * 32)
	{
		float	   *first = x + (i / h * h * R + i % h);
		float		v[R];

#pragma unroll
		for (uint32_t j = 0; j < R; j++)
			v[j] = first[j * h];
#pragma unroll
		for (uint32_t level = 1; level < R; level *= 2)
#pragma unroll
			for (uint32_t j = 0; j < R; j++)
				if ((j & level) == 0)
				{
					const float a = v[j];
					const float b = v[j + level];

					v[j] = GG_CODE_ADD(a, b);
					v[j + level] = GG_CODE_ADD(a, -b);
				}
#pragma unroll
		for (uint32_t j = 0; j < R; j++)
			first[j * h] = v[j];
	}
	code_sync<WARPS>();
}

/* Rotate x.  weights: rounds x dim. */
template <int WARPS>
static __device__ __forceinline__ void
code_rotate(float *x, uint32_t dim, const float *weights)
{
	const uint32_t block = gg_code_block(dim);
	const uint32_t rounds = block == dim ? 2 : 4;

#pragma unroll 1
	for (uint32_t r = 0; r < rounds; r++)
	{
		float	   *in = x + (r % 2 == 0 ? 0 : dim - block);
		const uint32_t pairs = rounds > 2 && r == 1 ? dim / 2 : 0;
		float	   *second = x + dim - pairs;
		uint32_t	h = 1;

		for (uint32_t i = threadIdx.x; i < dim; i += WARPS * 32)
			x[i] = GG_CODE_MUL(x[i], __ldg(weights + (size_t) r * dim + i));
		code_sync<WARPS>();
		for (; block / h >= 8; h *= 8)
			code_steps<WARPS, 3>(in, block, h);
		if (block / h == 4)
			code_steps<WARPS, 2>(in, block, h);
		else if (block / h == 2)
			code_steps<WARPS, 1>(in, block, h);
		for (uint32_t i = threadIdx.x; i < pairs; i += WARPS * 32)
		{
			const float a = x[i];
			const float b = second[i];

			x[i] = GG_CODE_MUL(GG_CODE_ADD(a, b), GG_CODE_SQRT_HALF);
			second[i] = GG_CODE_MUL(GG_CODE_ADD(a, -b), GG_CODE_SQRT_HALF);
		}
		code_sync<WARPS>();
	}
}

/* The bits of the largest |x[i]|. */
template <int WARPS>
static __device__ __forceinline__ uint32_t
code_largest(const float *x, uint32_t dim, void *scratch)
{
	uint32_t	largest = 0;

	for (uint32_t i = threadIdx.x; i < dim; i += WARPS * 32)
		largest = max(largest, __float_as_uint(x[i]) & 0x7FFFFFFFu);
	return code_most<WARPS>(largest, scratch);
}

/*
 * Scale and rotate x.  A barrier comes between the writes of x and the call.  Returns the exponent;
 * if it is GG_CODE_ZERO or GG_CODE_INFINITE, x becomes zeros.
 */
template <int WARPS>
static __device__ __forceinline__ int
code_rotate_scaled(float *x, uint32_t dim, const float *weights, void *scratch)
{
	const int	exponent = gg_code_exponent(code_largest<WARPS>(x, dim, scratch));
	const bool	none = exponent == GG_CODE_ZERO || exponent == GG_CODE_INFINITE;
	const float scale = none ? 0 : gg_code_power(-exponent);

	for (uint32_t i = threadIdx.x; i < dim; i += WARPS * 32)
		x[i] = none ? 0 : GG_CODE_MUL(x[i], scale);
	code_sync<WARPS>();
	if (!none)
		code_rotate<WARPS>(x, dim, weights);
	return exponent;
}

/* A rotated element as an integer. */
static __device__ __forceinline__ int32_t
code_integer(float x)
{
	return (int32_t) GG_CODE_MUL(x, (float) (1 << GG_CODE_FRACTION));
}

/* ---- queries --------------------------------------------------------------- */

/*
 * 1 / |q| under cosine, as gg_query_prepare() has it but for the order of additions; 1 otherwise,
 * and for queries that it leaves alone.
 */
template <int WARPS>
static __device__ __forceinline__ double
code_query_length(const search_view &view, const float *raw, void *scratch)
{
	double		square = 0;

	if (view.metric != GG_METRIC_COSINE)
		return 1;
	for (uint32_t i = threadIdx.x; i < view.dim; i += WARPS * 32)
		square += (double) raw[i] * raw[i];
	square = code_sum<WARPS>(square, scratch);
	return !(square > 0) || isinf(square) ? 1 : 1 / sqrt(square);
}

/* x times the mean: what inner products add.  A barrier comes between writes of x and the call. */
template <int WARPS>
static __device__ __forceinline__ float
code_mean_base(const search_view &view, const float *x, void *scratch)
{
	const int	exponent = gg_code_exponent(code_largest<WARPS>(x, view.dim, scratch));
	const bool	none = exponent == GG_CODE_ZERO || exponent == GG_CODE_INFINITE ||
		view.code_mean_exponent == GG_CODE_ZERO;
	const float scale = none ? 0 : gg_code_power(-exponent);
	const float mean_scale = none ? 0 : gg_code_power(-view.code_mean_exponent);
	int64_t		dot = 0;

	for (uint32_t i = threadIdx.x; i < view.dim && !none; i += WARPS * 32)
		dot += gg_code_whole(x[i], scale) * gg_code_whole(__ldg(view.code_mean + i), mean_scale);
	dot = code_sum<WARPS>(dot, scratch);
	return gg_code_mean_base(dot, exponent, view.code_mean_exponent);
}

/*
 * Put a query into x, prepared and, but for inner products, centred; ends with a barrier.  Returns
 * what estimates of inner products add for the mean; 0 under other metrics.
 */
template <int WARPS>
static __device__ __forceinline__ float
code_take_query(const search_view &view, const float *raw, float *x, void *scratch)
{
	const bool	centred = view.code_mean != NULL && view.metric != GG_METRIC_IP;
	const double scale = code_query_length<WARPS>(view, raw, scratch);
	float		base = 0;

	for (uint32_t i = threadIdx.x; i < view.dim; i += WARPS * 32)
	{
		const float q = view.metric == GG_METRIC_COSINE ? (float) (raw[i] * scale) : raw[i];

		x[i] = centred ? gg_code_centre(q, __ldg(view.code_mean + i)) : q;
	}
	code_sync<WARPS>();
	if (view.code_mean != NULL && view.metric == GG_METRIC_IP)
	{
		base = code_mean_base<WARPS>(view, x, scratch);
		code_sync<WARPS>();
	}
	return base;
}

/* Which element is in plane `plane` of byte b of a record; dim or more where there is none. */
static __device__ __forceinline__ uint32_t
code_element(uint32_t bits, uint32_t b, uint32_t plane)
{
	return b / GG_CODE_CHUNK * (8 * GG_CODE_CHUNK / bits) + plane * GG_CODE_CHUNK +
		b % GG_CODE_CHUNK;
}

/* Bytes of a plane of a prepared query: whole 64-byte chunks of a record. */
static __host__ __device__ __forceinline__ uint32_t
code_plane_bytes(uint32_t quads)
{
	return (quads + 3) / 4 * 64;
}

/* Four elements of a query: their high bytes, their low bytes, their sum. */
typedef struct code_word
{
	uint32_t	high;
	uint32_t	low;
	int32_t		sum;
} code_word;

/* The elements of a query that meet one plane of bytes b .. b + 3 of a record. */
static __device__ __forceinline__ code_word
code_query_word(const float *x, uint32_t dim, uint32_t bits, uint32_t b, uint32_t plane,
				double scale)
{
	code_word	word = {0, 0, 0};

#pragma unroll
	for (uint32_t j = 0; j < 4; j++)
	{
		const uint32_t i = code_element(bits, b + j, plane);
		const int32_t element = i < dim ? gg_code_query_element(code_integer(x[i]), scale) : 0;
		const int32_t lower = (int8_t) (element & 0xFF);

		word.sum += element;
		word.low |= (uint32_t) (lower & 0xFF) << (8 * j);
		word.high |= (uint32_t) ((element - lower) >> 8 & 0xFF) << (8 * j);
	}
	return word;
}

/*
 * Write a query for products with records to prepared: the high bytes of plane 0, of plane 1 and so
 * on, then the low ones.  x: the query as code_take_query() left it; it is changed.  base: what
 * code_take_query() returned.
 */
template <int BITS, int WARPS>
static __device__ __forceinline__ code_factor
code_prepare_product(const search_view &view, float *x, void *scratch, float base,
					 uint32_t *prepared)
{
	const uint32_t words = code_plane_bytes(view.walk_quads) / 4;
	const uint32_t dim = view.dim;
	const int	exponent = code_rotate_scaled<WARPS>(x, dim, view.code_weights, scratch);
	const double unit = ldexp(1.0, exponent - GG_CODE_FRACTION);
	int64_t		sizes = 0;
	int64_t		square = 0;
	int32_t		largest = 0;
	int32_t		sum = 0;
	double		scale;
	code_factor factor;

	for (uint32_t i = threadIdx.x; i < dim; i += WARPS * 32)
	{
		const int32_t size = abs(code_integer(x[i]));

		sizes += size;
		square += (int64_t) size * size;
		largest = max(largest, size);
	}
	sizes = code_sum<WARPS>(sizes, scratch);
	square = code_sum<WARPS>(square, scratch);
	largest = code_most<WARPS>(largest, scratch);
	scale = gg_code_query_scale(sizes, largest);
	factor.scale = largest == 0 ? 0.0f : (float) (unit / scale);
	factor.base = view.metric == GG_METRIC_IP ? base :
		gg_code_query_base(view.metric, view.code_mean != NULL, exponent, square);
	for (uint32_t i = threadIdx.x; i < words * (8 / BITS); i += WARPS * 32)
	{
		const code_word word = code_query_word(x, dim, BITS, i % words * 4, i / words, scale);

		prepared[i] = word.high;
		prepared[words * (8 / BITS) + i] = word.low;
		sum += word.sum;
	}
	/* the last fold's barriers stand between x and what comes there next */
	factor.sum = code_sum<WARPS>(sum, scratch);
	code_sync<WARPS>();
	return factor;
}

/* Write a query for sums of differences: floats in a record's order, NaN for no element. */
template <int WARPS>
static __device__ __forceinline__ void
code_prepare_differences(const search_view &view, const float *raw, float *prepared)
{
	const uint32_t bytes = code_plane_bytes(view.walk_quads);

	for (uint32_t i = threadIdx.x; i < bytes * (8 / view.code_bits); i += WARPS * 32)
	{
		const uint32_t element = code_element(view.code_bits, i % bytes, i / bytes);

		prepared[i] = element >= view.dim ? NAN : view.code_mean == NULL ? raw[element] :
			gg_code_centre(raw[element], __ldg(view.code_mean + element));
	}
	code_sync<WARPS>();
}

/* ---- records --------------------------------------------------------------- */

/* The head of a record, or of any other row of `bytes` bytes that ends in one. */
static __device__ __forceinline__ gg_code_head
load_head(const char *row, size_t bytes)
{
	const float2 parts = __ldg((const float2 *) (row + bytes - GG_CODE_HEAD));

	return {parts.x, parts.y};
}

#endif							/* GG_SEARCH_CODES_CUH */
