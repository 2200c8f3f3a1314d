/*
 * codes.cu
 *		Codes of rows.
 *
 * Shapes		rows n x dim -> records n x walk_stride bytes.
 * Mapping		A block of CODE_WARPS warps takes one row after the other, in shared memory: the
 *				rotation (codes.cuh), the four tries, then each thread makes words of the record.
 * Shared		the row (4 bytes per element), one value of each warp.
 * Oracle		src/engine/cpu/search/codes.c: the same bytes.
 */
#include "codes.cuh"
#include "codes.h"
#include "launch.cuh"

#define CODE_WARPS 4
#define BLOCKS_PER_SM 16		/* of 2,048 threads that a multiprocessor has */

/* What levels are made with: gg_code_level(). */
typedef struct row_levels
{
	float		inverse;
	float		offset;
	float		top;
} row_levels;

/* Scale a row to length 1, each thread its own elements. */
static __device__ __forceinline__ void
make_unit(float *x, uint32_t dim, void *scratch)
{
	const int	exponent = gg_code_exponent(code_largest<CODE_WARPS>(x, dim, scratch));
	int64_t		square = 0;
	float		factor;

	if (exponent == GG_CODE_ZERO || exponent == GG_CODE_INFINITE)
		return;
	for (uint32_t i = threadIdx.x; i < dim; i += CODE_WARPS * 32)
	{
		const int64_t whole = gg_code_whole(x[i], gg_code_power(-exponent));

		square += whole * whole;
	}
	factor = gg_code_unit_scale(exponent, code_sum<CODE_WARPS>(square, scratch));
	for (uint32_t i = threadIdx.x; i < dim; i += CODE_WARPS * 32)
		x[i] = GG_CODE_MUL(x[i], factor);
}

static __device__ __forceinline__ void
take_row(const search_view &view, const char *row, float *x, void *scratch)
{
	for (uint32_t i = threadIdx.x; i < view.dim; i += CODE_WARPS * 32)
		x[i] = view.element == GG_ELEMENT_F16 ? __half2float(((const __half *) row)[i]) :
			((const float *) row)[i];
	__syncthreads();
	if (view.code_mean == NULL)
		return;
	if (view.metric == GG_METRIC_COSINE && view.element == GG_ELEMENT_F16)
		make_unit(x, view.dim, scratch);
	for (uint32_t i = threadIdx.x; i < view.dim; i += CODE_WARPS * 32)
		x[i] = gg_code_centre(x[i], __ldg(view.code_mean + i));
	__syncthreads();
}

/* Sum w y, and w w, of the row with these levels (engine/rules/codes.h). */
static __device__ __forceinline__ void
try_levels(const float *x, uint32_t dim, const row_levels &levels, void *scratch, int64_t *dot,
		   int64_t *length)
{
	*dot = *length = 0;
	for (uint32_t i = threadIdx.x; i < dim; i += CODE_WARPS * 32)
	{
		const int32_t w = 2 * gg_code_level(x[i], levels.inverse, levels.offset, levels.top) -
			(int32_t) levels.top;

		*dot += (int64_t) w * code_integer(x[i]);
		*length += w * w;
	}
	*dot = code_sum<CODE_WARPS>(*dot, scratch);
	*length = code_sum<CODE_WARPS>(*length, scratch);
}

/* Rotate the row, and choose its levels. */
static __device__ __forceinline__ gg_code_head
choose_rotated(const search_view &view, float *x, void *scratch, row_levels *levels)
{
	const uint32_t bits = view.code_bits;
	const uint32_t dim = view.dim;
	const int	exponent = code_rotate_scaled<CODE_WARPS>(x, dim, view.code_weights, scratch);
	int64_t		square = 0;
	int64_t		best_dot = 0;
	double		best = -1;
	float		best_inverse = 0;
	float		largest;

	levels->offset = (float) (1 << (bits - 1));
	levels->top = 2 * levels->offset - 1;
	levels->inverse = 0;
	if (exponent == GG_CODE_ZERO || exponent == GG_CODE_INFINITE)
		return gg_code_plain_head(view.metric, view.code_mean != NULL, exponent == GG_CODE_ZERO);
	largest = __uint_as_float(code_largest<CODE_WARPS>(x, dim, scratch));
	for (uint32_t i = threadIdx.x; i < dim; i += CODE_WARPS * 32)
		square += (int64_t) code_integer(x[i]) * code_integer(x[i]);
	square = code_sum<CODE_WARPS>(square, scratch);
	for (uint32_t attempt = 0; attempt < GG_CODE_TRIES; attempt++)
	{
		int64_t		dot;
		int64_t		length;
		double		likeness;

		levels->inverse = gg_code_inverse(bits, attempt, square, dim, largest);
		try_levels(x, dim, *levels, scratch, &dot, &length);
		likeness = gg_code_likeness(dot, length);
		if (likeness > best)
		{
			best = likeness;
			best_dot = dot;
			best_inverse = levels->inverse;
		}
	}
	levels->inverse = best_inverse;
	return gg_code_make_head(view.metric, view.code_mean != NULL, exponent, square, best_dot);
}

/* The same under L1, where rows are not rotated: x becomes its distance from the least element. */
static __device__ __forceinline__ gg_code_head
choose_in_place(const search_view &view, float *x, void *scratch, row_levels *levels)
{
	const int	exponent = gg_code_exponent(code_largest<CODE_WARPS>(x, view.dim, scratch));
	int32_t		least = INT32_MAX;
	int32_t		most = INT32_MIN;
	gg_code_head head = {INFINITY, 0.0f};

	for (uint32_t i = threadIdx.x; i < view.dim; i += CODE_WARPS * 32)
	{
		const int32_t order = gg_code_order(__float_as_uint(x[i]));

		least = min(least, order);
		most = max(most, order);
	}
	/* the largest of the complements: -least could overflow */
	least = ~code_most<CODE_WARPS>(~least, scratch);
	most = code_most<CODE_WARPS>(most, scratch);
	levels->offset = 0.5f;
	levels->top = (float) ((1 << view.code_bits) - 1);
	levels->inverse = 0;
	if (exponent != GG_CODE_INFINITE)
		head = gg_code_span(view.code_bits, least, most, &levels->inverse);
	for (uint32_t i = threadIdx.x; i < view.dim; i += CODE_WARPS * 32)
		x[i] = exponent != GG_CODE_INFINITE ? GG_CODE_ADD(x[i], -head.base) : 0;
	__syncthreads();
	return head;
}

static __device__ __forceinline__ void
put_record(const search_view &view, const float *x, const row_levels &levels,
		   const gg_code_head &head, uint32_t *record)
{
	const uint32_t bits = view.code_bits;
	const uint32_t end = view.walk_quads * 4;	/* words of the record */

	for (uint32_t w = threadIdx.x; w < view.walk_stride / 4; w += CODE_WARPS * 32)
	{
		uint32_t	word = 0;

		if (w == end - 2)
			word = __float_as_uint(head.base);
		else if (w == end - 1)
			word = __float_as_uint(head.factor);
		else if (w < end)
			for (uint32_t shift = 0; shift < 32; shift += bits)
			{
				const uint32_t i = code_element(bits, w * 4 + shift / 8, shift % 8 / bits);

				if (i < view.dim)
					word |= (uint32_t) gg_code_level(x[i], levels.inverse, levels.offset,
													 levels.top) << shift;
			}
		record[w] = word;
	}
}

__global__ void __launch_bounds__(CODE_WARPS * 32)
codes_kernel(const __grid_constant__ search_view view, const __grid_constant__ code_rows rows)
{
	extern __shared__ __align__(16) char shared[];
	float	   *x = (float *) shared;
	void	   *scratch = shared + code_work_bytes(view.dim) - CODE_FOLD_BYTES;

	for (uint32_t row = blockIdx.x; row < rows.n; row += gridDim.x)
	{
		row_levels	levels;
		gg_code_head head;

		take_row(view, rows.rows + (size_t) row * rows.row_stride, x, scratch);
		if (view.metric == GG_METRIC_L1)
			head = choose_in_place(view, x, scratch, &levels);
		else
			head = choose_rotated(view, x, scratch, &levels);
		put_record(view, x, levels, head,
				   (uint32_t *) (rows.records + (size_t) row * view.walk_stride));
		__syncthreads();
	}
}

__global__ void __launch_bounds__(256)
code_pivots_kernel(const __grid_constant__ search_view view, char *halves, size_t stride)
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t bits = view.code_bits;
	const int	top = (1 << bits) - 1;

	for (uint32_t i = blockIdx.x * 8 + threadIdx.x / 32; i < view.npivots; i += gridDim.x * 8)
	{
		const uint8_t *record = (const uint8_t *) view.pivot_rows + (size_t) i * view.walk_stride;
		char	   *to = halves + (size_t) i * stride;

		for (uint32_t j = lane; j < (stride - GG_CODE_HEAD) / 2; j += 32)
			((__half *) to)[j] = __float2half_rn(j >= view.dim ? 0.0f : (float)
				(2 * (record[gg_code_byte(bits, j)] >> gg_code_shift(bits, j) & top) - top));
		if (lane == 0)
			*(gg_code_head *) (to + stride - GG_CODE_HEAD) =
				load_head((const char *) record, (size_t) view.walk_quads * 16);
	}
}

cudaError_t
search_codes_ready(const search_device *device)
{
	const cudaError_t error = kernel_ready<codes_kernel>(device);

	return error != cudaSuccess ? error : kernel_load((const void *) code_pivots_kernel);
}

cudaError_t
search_codes_launch(const search_view *view, const code_rows *rows, const search_device *device,
					cudaStream_t stream)
{
	const uint32_t most = (uint32_t) device->sms * BLOCKS_PER_SM;
	cudaError_t error;

	if (rows->n == 0)
		return cudaSuccess;
	error = search_codes_ready(device);
	if (error != cudaSuccess)
		return error;
	codes_kernel<<<rows->n < most ? rows->n : most, CODE_WARPS * 32, code_work_bytes(view->dim),
		stream>>>(*view, *rows);
	return cudaGetLastError();
}

cudaError_t
search_code_pivots_launch(const search_view *view, char *halves, size_t stride,
						  const search_device *device, cudaStream_t stream)
{
	code_pivots_kernel<<<(uint32_t) device->sms, 256, 0, stream>>>(*view, halves, stride);
	return cudaGetLastError();
}
