/*
 * working_copy.cu
 *		Rows made ready for comparing: cosine's at unit length, centred, scaled, rounded to fp16
 *		(or kept fp32), with their norms.
 *
 * Cosine over fp16 rows divides by |x| (fp32 rows come with unit length).  Neither centring nor
 * scaling changes which rows are nearer; they keep |a|^2 + |b|^2 - 2ab from cancelling and fp16 in
 * its normal range.  Centring would change which products are greater, so products get none.
 *
 * The scale puts the median row's largest element near 16: fp16 then has its full 11 bits down to
 * 4e-6 of that, and 4,000 times of room above it.  What still does not fit is clamped: one absurd
 * row must not flatten the others, and its own list is settled by fp32 distances at the end.
 *
 * Mapping: one warp per row.  Bytes: each row read once (twice with a side value), written once at
 * half the size; 1M x 768 moves 4.6 GB, 1.1 ms at 4.3 TB/s.
 *
 * Searches centre and round rows, too (fill.cu), into another copy and by other rules.  A walk's
 * rows must keep the order of the metric itself under every query, so they are neither transformed
 * nor clamped: values of too wide a range stay float32.  Rows compared here are only compared with
 * each other, and exact distances settle the lists at the end.  Mean and scale are taken of other
 * samples, so sharing their kernels would change the bits of graphs or of answers.
 */
#include "list.cuh"

#include <math.h>
#include <stdlib.h>

#define WARPS 8					/* a block */
#define MEAN_SAMPLE 8192		/* rows that the centre is the mean of: it need not be exact */
#define MEAN_GROUPS 32
#define SCALE_SAMPLE 1024
#define HALF_LIMIT 60000.0f
#define FLOAT_LIMIT 1e12f		/* 16,000 differences of twice this, squared, stay finite in fp32 */

gg_cuda_kind
gg_cuda_kind_of(gg_metric metric, uint32_t dim)
{
	if (metric == GG_METRIC_L1)
		return GG_KIND_FLOAT_L1;
	/* fp16 for few dimensions, too: what is rounded of a product is a share of it */
	if (metric == GG_METRIC_IP)
		return GG_KIND_HALF_IP;
	return dim <= GG_FLOAT_MAX_DIM ? GG_KIND_FLOAT_L2 : GG_KIND_HALF_L2;
}

static uint32_t
row_quads(gg_metric metric, uint32_t dim)
{
	return gg_cuda_halves(gg_cuda_kind_of(metric, dim)) ? (dim + 15) / 16 * 2 : (dim + 3) / 4;
}

/* Bytes that one row takes in the working copy, norm and side value included. */
uint64_t
gg_cuda_row_bytes(gg_metric metric, uint32_t dim)
{
	return (uint64_t) row_quads(metric, dim) * 16 + 8;
}

__device__ static inline float
element(const gg_cuda_data &data, uint32_t row, uint32_t i)
{
	return gg_load_element(data, (uint64_t) row * data.pitch + i);
}

/* Element i of the row at unit length, where that is asked for. */
__device__ static inline float
transformed(const gg_cuda_data &data, uint32_t row, uint32_t i)
{
	return data.side != NULL ? element(data, row, i) * data.side[row] : element(data, row, i);
}

/* side[row] = 1 / |x| */
static __global__ void
side_kernel(gg_cuda_data data, uint32_t first, float *side)
{
	const uint32_t row = first + blockIdx.x * WARPS + threadIdx.x / 32;
	float		sum = 0.0f;

	if (row >= data.n)
		return;
	for (uint32_t i = threadIdx.x & 31; i < data.dim; i += 32)
	{
		const float x = element(data, row, i);

		sum = fmaf(x, x, sum);
	}
	sum = fminf(gg_warp_sum(sum), 3e38f);
	/* rounded as on the CPU: rsqrtf() is not, and copies at one length would not be copies */
	if ((threadIdx.x & 31) == 0)
		side[row] = sum > 0.0f ? 1.0f / sqrtf(sum) : 0.0f;
}

__device__ static inline uint32_t
sample_row(uint32_t i, uint32_t sample, uint32_t n)
{
	return (uint32_t) ((uint64_t) i * n / sample);
}

/* sums[group * dim + i] of every MEAN_GROUPS-th sample row */
static __global__ void
mean_partial_kernel(gg_cuda_data data, uint32_t sample, float *sums)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
	float		sum = 0.0f;

	if (i >= data.dim)
		return;
#pragma unroll 8
	for (uint32_t s = blockIdx.y; s < sample; s += MEAN_GROUPS)
		sum += transformed(data, sample_row(s, sample, data.n), i) / (float) sample;
	sums[blockIdx.y * data.dim + i] = sum;
}

static __global__ void
mean_kernel(uint32_t dim, const float *sums, float *mean)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
	float		sum = 0.0f;

	if (i >= dim)
		return;
	for (uint32_t group = 0; group < MEAN_GROUPS; group++)
		sum += sums[group * dim + i];
	mean[i] = isfinite(sum) ? sum : 0.0f;
}

static __global__ void
extent_kernel(gg_cuda_data data, uint32_t sample, const float *mean, float *extents)
{
	const uint32_t s = blockIdx.x * WARPS + threadIdx.x / 32;
	float		extent = 0.0f;

	if (s >= sample)
		return;
	for (uint32_t i = threadIdx.x & 31; i < data.dim; i += 32)
		extent = fmaxf(extent, fabsf(transformed(data, sample_row(s, sample, data.n),
												 i) - mean[i]));
	for (int stride = 16; stride > 0; stride /= 2)
		extent = fmaxf(extent, __shfl_xor_sync(GG_FULL_WARP, extent, stride));
	if ((threadIdx.x & 31) == 0)
		extents[s] = extent;
}

/* How rows are centred and scaled. */
typedef struct row_transform
{
	const float *mean;			/* of each element */
	float		scale;
} row_transform;

static __global__ void
convert_kernel(gg_cuda_data data, gg_cuda_kind kind, uint32_t quads, row_transform transform,
			   uint32_t first, char *rows, float *norms)
{
	const uint32_t row = first + blockIdx.x * WARPS + threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;
	char	   *out = rows + (uint64_t) row * quads * 16;
	const float *mean = transform.mean;
	const float scale = transform.scale;
	float		norm = 0.0f;

	if (row >= data.n)
		return;
	if (gg_cuda_halves(kind))
	{
		for (uint32_t i = lane * 2; i < quads * 8; i += 64)
		{
			float		x[2] = {0.0f, 0.0f};

			for (int j = 0; j < 2; j++)
				if (i + j < data.dim)
					x[j] = (transformed(data, row, i + j) - mean[i + j]) * scale;

			const __half2 pair = __floats2half2_rn(fminf(fmaxf(x[0], -HALF_LIMIT), HALF_LIMIT),
												   fminf(fmaxf(x[1], -HALF_LIMIT), HALF_LIMIT));
			const float2 rounded = __half22float2(pair);

			norm = fmaf(rounded.x, rounded.x, fmaf(rounded.y, rounded.y, norm));
			((__half2 *) out)[i / 2] = pair;
		}
		norm = gg_warp_sum(norm);
		if (lane == 0)
			norms[row] = norm;
	}
	else
	{
		for (uint32_t i = lane; i < quads * 4; i += 32)
		{
			float		x = 0.0f;

			if (i < data.dim)
				x = (transformed(data, row, i) - mean[i]) * scale;
			((float *) out)[i] = fminf(fmaxf(x, -FLOAT_LIMIT), FLOAT_LIMIT);
		}
		if (lane == 0)
			norms[row] = 0.0f;
	}
}

static __global__ void
gather_kernel(gg_cuda_rows from, const uint32_t *ids, uint32_t count, char *rows, float *norms)
{
	const uint32_t i = blockIdx.x * WARPS + threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;

	if (i >= count)
		return;
	const uint4 *source = (const uint4 *) (from.rows + (uint64_t) ids[i] * from.quads * 16);
	uint4	   *target = (uint4 *) (rows + (uint64_t) i * from.quads * 16);

	for (uint32_t quad = lane; quad < from.quads; quad += 32)
		target[quad] = source[quad];
	if (lane == 0)
		norms[i] = from.norms[ids[i]];
}

/* The length that directions are compared at: its square fits into fp16's range many times. */
#define LEVEL 256.0f

static __global__ void
level_kernel(uint32_t quads, uint32_t count, const float *norms, char *rows)
{
	const uint32_t row = blockIdx.x * WARPS + threadIdx.x / 32;

	if (row >= count || !(norms[row] > 0.0f))
		return;
	__half2    *pairs = (__half2 *) (rows + (uint64_t) row * quads * 16);
	const float factor = LEVEL / sqrtf(norms[row]);

	for (uint32_t i = threadIdx.x & 31; i < quads * 4; i += 32)
	{
		const float2 x = __half22float2(pairs[i]);

		pairs[i] = __floats2half2_rn(x.x * factor, x.y * factor);
	}
}

gg_status
gg_cuda_level_rows(gg_cuda_working_copy *copy, uint32_t count, cudaStream_t stream)
{
	if (copy->view.kind != GG_KIND_HALF_IP || count == 0)
		return gg_ok();
	level_kernel<<<gg_cuda_blocks(count, WARPS), WARPS * 32, 0, stream>>>
		(copy->view.quads, count, copy->norms.get(), copy->rows.get());
	GG_CUDA_LAUNCHED("level_kernel");
	return gg_ok();
}

static int
compare_floats(const void *a, const void *b)
{
	const float x = *(const float *) a;
	const float y = *(const float *) b;

	return (x > y) - (x < y);
}

/* The power of two that brings the median extent near 16. */
static float
choose_scale(float *extents, uint32_t sample)
{
	float		typical;
	int			exponent;

	qsort(extents, sample, sizeof(float), compare_floats);
	typical = extents[sample / 2];
	if (!(typical > 0.0f))
		typical = extents[sample - 1];
	if (!(typical > 0.0f) || !isfinite(typical))
		return typical > 0.0f ? 1e-34f : 1.0f;
	frexpf(typical, &exponent);
	exponent = 4 - exponent;
	if (exponent > 120)
		exponent = 120;
	return ldexpf(1.0f, exponent);
}

/* Rows of a launch: 8 GB, some 5 ms; of short rows fewer bytes. */
static uint64_t
rows_at_once(const gg_cuda_data *data)
{
	const uint64_t fit = ((uint64_t) 8 << 30) /
		((uint64_t) data->dim * gg_element_size(data->element)) + 1;

	return fit > 4 * GG_PASS_ROWS ? 4 * GG_PASS_ROWS : fit;
}

/* Makes data->side, where it is wanted. */
static gg_status
make_side(gg_cuda_data *data, const gg_cuda_run &run, gg_cuda_pace *pace,
		  gg_cuda_buffer<float> *side)
{
	const uint64_t step = rows_at_once(data);

	if (data->metric != GG_METRIC_COSINE || data->element != GG_ELEMENT_F16)
		return gg_ok();
	GG_TRY(side->allocate(data->n, run.meter));
	GG_SWEEP(data->n, step, run, *pace, "side_kernel",
		(side_kernel<<<gg_cuda_blocks(count, WARPS), WARPS * 32, 0, run.stream>>>
		 (*data, (uint32_t) first, side->get())));
	data->side = side->get();
	return gg_ok();
}

/* mean (dim), 0 for L1 and products; and the scale of the rows about it. */
static gg_status
measure_rows(const gg_cuda_data *data, cudaStream_t stream, float *mean, float *scale)
{
	const uint32_t dim = data->dim;
	const uint32_t sample = data->n < MEAN_SAMPLE ? data->n : MEAN_SAMPLE;
	const uint32_t extent_sample = data->n < SCALE_SAMPLE ? data->n : SCALE_SAMPLE;
	gg_cuda_buffer<float> sums;
	gg_cuda_buffer<float> extents;
	float		host_extents[SCALE_SAMPLE];

	GG_TRY(sums.allocate((uint64_t) dim * MEAN_GROUPS));
	GG_TRY(extents.allocate(extent_sample));
	if (data->metric == GG_METRIC_L1 || data->metric == GG_METRIC_IP)
		GG_CUDA_TRY(cudaMemsetAsync(mean, 0, dim * sizeof(float), stream));
	else
	{
		mean_partial_kernel<<<dim3(gg_cuda_blocks(dim, 64), MEAN_GROUPS), 64, 0, stream>>>
			(*data, sample, sums.get());
		GG_CUDA_LAUNCHED("mean_partial_kernel");
		mean_kernel<<<gg_cuda_blocks(dim, 64), 64, 0, stream>>>(dim, sums.get(), mean);
		GG_CUDA_LAUNCHED("mean_kernel");
	}
	extent_kernel<<<gg_cuda_blocks(extent_sample, WARPS), WARPS * 32, 0, stream>>>
		(*data, extent_sample, mean, extents.get());
	GG_CUDA_LAUNCHED("extent_kernel");
	GG_CUDA_TRY(cudaMemcpyAsync(host_extents, extents.get(), extent_sample * sizeof(float),
								cudaMemcpyDeviceToHost, stream));
	GG_CUDA_TRY(cudaStreamSynchronize(stream));
	*scale = choose_scale(host_extents, extent_sample);
	return gg_ok();
}

gg_status
gg_cuda_working_copy_make(gg_cuda_data *data, const gg_cuda_run &run, gg_cuda_working_copy *copy)
{
	const uint32_t n = data->n;
	const uint64_t step = rows_at_once(data);
	gg_cuda_rows *view = &copy->view;
	gg_cuda_buffer<float> mean;
	float		scale = 1.0f;
	gg_cuda_pace pace;

	GG_TRY(pace.create());
	view->kind = gg_cuda_kind_of(data->metric, data->dim);
	view->n = n;
	view->quads = row_quads(data->metric, data->dim);
	GG_TRY(gg_cuda_allocate_large(&copy->rows, (uint64_t) n * view->quads * 16, run.control,
								  run.meter));
	GG_TRY(copy->norms.allocate(n, run.meter));
	view->rows = copy->rows.get();
	view->norms = copy->norms.get();
	data->side = NULL;
	if (n == 0)
		return gg_ok();

	GG_TRY(make_side(data, run, &pace, &copy->side));
	GG_TRY(mean.allocate(data->dim));
	GG_TRY(measure_rows(data, run.stream, mean.get(), &scale));

	const row_transform transform = {mean.get(), scale};

	GG_SWEEP(n, step, run, pace, "convert_kernel",
		(convert_kernel<<<gg_cuda_blocks(count, WARPS), WARPS * 32, 0, run.stream>>>
		 (*data, view->kind, view->quads, transform, (uint32_t) first, copy->rows.get(),
		  copy->norms.get())));
	return gg_cuda_drain(run.stream, run.control, __func__);
}

gg_status
gg_cuda_working_copy_gather(const gg_cuda_rows *from, const uint32_t *ids, uint32_t count,
							cudaStream_t stream, gg_cuda_meter *meter, gg_cuda_working_copy *copy)
{
	copy->view = *from;
	copy->view.n = count;
	GG_TRY(copy->rows.allocate((uint64_t) count * from->quads * 16, meter));
	GG_TRY(copy->norms.allocate(count, meter));
	copy->view.rows = copy->rows.get();
	copy->view.norms = copy->norms.get();
	if (count > 0)
	{
		gather_kernel<<<gg_cuda_blocks(count, WARPS), WARPS * 32, 0, stream>>>
			(*from, ids, count, copy->rows.get(), copy->norms.get());
		GG_CUDA_LAUNCHED("gather_kernel");
	}
	return gg_ok();
}
