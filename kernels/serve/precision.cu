/*
 * precision.cu
 *		What the walk reads float32 rows in: fp16, or as they are.
 *
 * fp16 is faster (fill.cu), and the rows that a walk ends with are measured by float32.  So fp16 is
 * wrong only where a walk cannot tell which rows are near:
 *
 *	few dimensions		fp16 merges neighbours.
 *	too wide a range	Elements of most rows lose bits when the largest fits.
 *	tight clusters		Under L2 a distance is made of float32 products, and loses what is 2^-22 of
 *						them.  In a cluster whose rows are nearer to each other than 1/1024 of their
 *						distance from the mean, squares of distances are wrong by a quarter, and
 *						soon all rows of it look alike.  That is no harm while the cluster fits a
 *						list.  50 clusters of 204 rows had recall 0.28 at itopk 64, and 1 from 512
 *						on.  WALK_FLOAT_L2 sums differences, which lose nothing.  fp16 under L1 does
 *						so, too, but loses by its rounding.  Under inner product and cosine float32
 *						loses as much.
 *
 * Oracle		the CPU engine's walk over the same graph: test_cuda_search, "wide values" and
 *				"tight clusters".
 */
#include "../search/query.cuh"
#include "index.cuh"

#define SAMPLE_ROWS 65536u		/* that the mean is taken of; any point near it serves */

/* Rows whose neighbours are looked at, and the share of these with a tight cluster that counts. */
#define TIGHT_SAMPLE 1024u
#define TIGHT_SHARE (1.0 / 32)

/* Mean of up to SAMPLE_ROWS rows, evenly spread: 32 columns a block, always in the same order. */
__global__ void __launch_bounds__(1024)
mean_kernel(const char *rows, size_t stride, uint32_t n, uint32_t dim, float *mean)
{
	__shared__ float sums[32][33];
	uint32_t	column = blockIdx.x * 32 + threadIdx.x;
	uint32_t	count = min(n, SAMPLE_ROWS);
	float		sum = 0;

	if (column < dim)
		for (uint32_t i = threadIdx.y; i < count; i += 32)
		{
			uint32_t	row = (uint32_t) ((uint64_t) i * n / count);

			sum += ((const float *) (rows + (size_t) row * stride))[column];
		}
	sums[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.y == 0 && column < dim)
	{
		for (uint32_t i = 1; i < 32; i++)
			sum += sums[i][threadIdx.x];
		sum /= count;
		/* a mean that overflowed is no use as a centre */
		mean[column] = isfinite(sum) ? sum : 0;
	}
}

/*
 * largest: bits of the largest |x - mean|; sums[0]: of log2 |x - mean| over the elements where it
 * is not 0; sums[1]: their number.  All start at 0.
 */
__global__ void __launch_bounds__(256)
range_kernel(const char *rows, size_t stride, uint32_t n, uint32_t dim, const float *mean,
			 uint32_t *largest, double *sums)
{
	uint32_t	lane = threadIdx.x & 31;
	uint32_t	warp = blockIdx.x * 8 + threadIdx.x / 32;
	float		maximum = 0;
	double		sum = 0;
	double		count = 0;

	for (uint32_t row = warp; row < n; row += gridDim.x * 8)
	{
		const float *x = (const float *) (rows + (size_t) row * stride);
		float		part = 0;
		uint32_t	some = 0;

		for (uint32_t i = lane; i < dim; i += 32)
		{
			float		value = x[i] - mean[i];

			maximum = fmaxf(maximum, fabsf(value));
			if (value != 0)
			{
				part += log2f(fabsf(value));
				some++;
			}
		}
		sum += part;
		count += some;
	}
	maximum = group_reduce<1, true>(maximum, NULL);
	for (int offset = 16; offset > 0; offset >>= 1)
	{
		sum += __shfl_xor_sync(GG_FULL_WARP, sum, offset);
		count += __shfl_xor_sync(GG_FULL_WARP, count, offset);
	}
	if (lane == 0)
	{
		atomicMax(largest, __float_as_uint(maximum));
		atomicAdd(&sums[0], sum);
		atomicAdd(&sums[1], count);
	}
}

/*
 * Of count rows, evenly spread, count into *tight those with a cluster around them that a walk
 * cannot look into: three quarters of their first edges, 32 at most, lead to rows whose squared
 * distance is below resolution times the row's from the mean.
 */
__global__ void __launch_bounds__(256)
tight_kernel(const __grid_constant__ search_view view, const float *mean, float resolution,
			 uint32_t count, uint32_t *tight)
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t edges = min(view.degree, 32u);

	for (uint32_t i = blockIdx.x * 8 + threadIdx.x / 32; i < count; i += gridDim.x * 8)
	{
		const uint32_t row = (uint32_t) ((uint64_t) i * view.n / count);
		const float *x = (const float *) (view.rows + (size_t) row * view.row_stride);
		float		length = 0;
		uint32_t	near = 0;

		for (uint32_t j = lane; j < view.dim; j += 32)
			length += (x[j] - mean[j]) * (x[j] - mean[j]);
		length = group_reduce<1, false>(length, NULL);
		for (uint32_t e = 0; e < edges; e++)
		{
			const uint32_t node = view.adjacency[(size_t) row * view.degree + e] & ~GG_EDGE_MARK;
			const float *y = (const float *) (view.rows + (size_t) node * view.row_stride);
			float		distance = 0;

			if (node >= view.n)
				continue;
			for (uint32_t j = lane; j < view.dim; j += 32)
				distance += (x[j] - y[j]) * (x[j] - y[j]);
			near += group_reduce<1, false>(distance, NULL) < length * resolution;
		}
		if (lane == 0 && near * 4 >= edges * 3)
			atomicAdd(tight, 1u);
	}
}

/* What range_kernel() and tight_kernel() find. */
typedef struct found_range
{
	double		sums[2];
	uint32_t	largest;
	uint32_t	tight;
} found_range;

static walk_path
choose_path(gg_metric metric, const found_range *found, uint32_t sampled)
{
	const walk_path alone = metric == GG_METRIC_L2 ? WALK_FLOAT_L2 :
		metric == GG_METRIC_L1 ? WALK_FLOAT_L1 : WALK_FLOAT_DOT;
	const double typical = found->sums[1] > 0 ? exp2(found->sums[0] / found->sums[1]) : 0;
	float		largest;

	memcpy(&largest, &found->largest, 4);

	/*
	 * Scaled so that the largest element is near 2^14, an element is a normal fp16 number down to
	 * 2^-14.  When the typical one (the mean is of logarithms: outliers do not move it) is below
	 * 2^-4, those a thousand times smaller start to lose bits: a few huge rows would spoil all
	 * others.
	 */
	if (!isfinite(largest) || !isfinite(typical) || typical * 262144.0 < largest)
		return alone;
	if (found->tight > sampled * TIGHT_SHARE)
		return alone;
	return metric == GG_METRIC_L1 ? WALK_HALF_L1 : WALK_HALF_DOT;
}

/* A power of two that brings the largest element near 2^14. */
static float
scale_of(float largest)
{
	int			exponent = 0;

	if (largest > 0)
		(void) frexpf(largest, &exponent);
	exponent = 14 - exponent;
	exponent = exponent > 100 ? 100 : exponent < -100 ? -100 : exponent;
	return ldexpf(1, exponent);
}

gg_status
index_choose_path(gg_index *index)
{
	const uint32_t blocks = (uint32_t) index->device.sms * 8;
	search_view *view = &index->view;
	const float resolution = view->metric == GG_METRIC_L2 ? 0x1p-20f :
		view->metric == GG_METRIC_L1 ? 0x1p-24f : 0;
	const uint32_t sampled = view->degree == 0 || resolution == 0 ? 0 :
		view->n < TIGHT_SAMPLE ? view->n : TIGHT_SAMPLE;
	cudaStream_t stream = index->stream.get();
	uint32_t   *words = (uint32_t *) (index->range + 2);
	found_range found;
	float		largest;

	if (index->walk_rows.get() == NULL)
	{
		view->path = view->metric == GG_METRIC_L2 ? WALK_FLOAT_L2 :
			view->metric == GG_METRIC_L1 ? WALK_FLOAT_L1 : WALK_FLOAT_DOT;
		return gg_ok();
	}
	GG_CUDA_TRY(cudaMemsetAsync(index->range, 0, sizeof(found), stream));
	mean_kernel<<<(view->dim + 31) / 32, dim3(32, 32), 0, stream>>>
		(view->rows, view->row_stride, view->n, view->dim, index->mean);
	GG_CUDA_LAUNCHED("mean_kernel");
	range_kernel<<<blocks, 256, 0, stream>>>
		(view->rows, view->row_stride, view->n, view->dim, index->mean, words, index->range);
	GG_CUDA_LAUNCHED("range_kernel");
	if (sampled > 0)
	{
		tight_kernel<<<TIGHT_SAMPLE / 8, 256, 0, stream>>>(*view, index->mean, resolution, sampled,
														words + 1);
		GG_CUDA_LAUNCHED("tight_kernel");
	}
	GG_CUDA_TRY(cudaMemcpyAsync(&found, index->range, sizeof(found), cudaMemcpyDeviceToHost,
								stream));
	GG_CUDA_TRY(cudaStreamSynchronize(stream));
	memcpy(&largest, &found.largest, 4);
	view->path = choose_path(view->metric, &found, sampled);
	if (view->path == WALK_HALF_DOT || view->path == WALK_HALF_L1)
	{
		view->mean = index->mean;
		view->scale = scale_of(largest);
	}
	return gg_ok();
}
