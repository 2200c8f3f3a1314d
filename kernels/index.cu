/*
 * index.cu
 *		The device-resident copy of one data set and graph, and searches over it.
 *
 * What a column keeps on the device, and why (choose_path):
 *	float16 rows		the rows; the walk reads them as they are.
 *	float32 rows		the rows, for exact distances, and a copy in fp16 for the walk, centred on the
 *						mean and scaled by a power of two.  Centring leaves every order as it was
 *						(differences lose the mean; products gain the same for all rows) and saves
 *						the bits that a common offset would take.  Measured at itopk 64, batch
 *						10,000: 1.8 ms against 4.3 with fp32 alone (1M x 128), 5.8 against 38.6
 *						(1M x 768); alone, a query takes as long either way; recall is the same.
 *	float32 rows alone	few dimensions (fp16 merges neighbours), values of too wide a
 *						range for fp16, or too little memory for the copy.
 *
 * One stream and one set of scratch buffers an index, which grow to the largest search seen and
 * then stay: a search after warm-up allocates nothing.
 */
#include <new>

#include "search.cuh"

/* Few dimensions have few distinct fp16 rows, and their fp32 rows cost little to read. */
#define HALF_MIN_DIM 13

/* Left free for other indexes' scratch and the driver when deciding on the fp16 copy. */
#define RESERVE_BYTES ((size_t) 512 << 20)

/* Queries of one launch; bounds scratch memory and the time between two looks at cancelled(). */
#define MAX_BATCH 16384

/* Exact distances of one launch, in elements: about 50 ms at 30 T elements/s. */
#define EXACT_ELEMENTS_PER_LAUNCH 1.5e12

/*
 * Up to here queries are read from, and answers written to, mapped host memory by the kernel itself:
 * a copy each way costs more than the kernel's own few transactions.
 */
#define MAPPED_BATCH 16

/* Up to here a block a query beats a warp a query: 1M x 128, 1,000 queries 0.36 and 0.40 ms, 2,000 0.56
 * and 0.48 ms. */
#define BLOCK_QUERIES_PER_SM 8

/*
 * Bytes of pivot rows that a multiprocessor may have to read for the walks it runs before a matrix
 * product over all queries is worth its two launches: at some 100 GB/s, 20 us.
 */
#define SCORE_BYTES_PER_SM ((uint64_t) 2 << 20)

#define UPLOAD_BYTES ((size_t) 64 << 20)	/* between two looks at cancelled(): 6 ms of pageable copy */
#define SAMPLE_ROWS 65536u		/* that the mean is taken of; any point near it serves */

struct gg_index
{
	search_view view;
	search_device device;
	gg_cuda_stream stream;

	gg_cuda_buffer<char> rows;
	gg_cuda_buffer<char> walk_rows;
	gg_cuda_buffer<float> norms;
	gg_cuda_buffer<float> mean;
	gg_cuda_buffer<uint32_t> adjacency;
	gg_cuda_buffer<uint32_t> pivots;
	gg_cuda_buffer<char> pivot_rows;
	gg_cuda_buffer<float> pivot_norms;

	/* scratch of searches */
	gg_cuda_buffer<__half> halves;
	gg_cuda_buffer<float> factors;
	gg_cuda_buffer<uint64_t> entries;
	gg_cuda_buffer<char> exact;
	gg_cuda_buffer<uint32_t> filter;
	gg_cuda_buffer<float> queries;
	gg_cuda_buffer<uint32_t> nodes;
	gg_cuda_buffer<float> distances;
	void	   *mapped;			/* pinned host memory that the device sees */
	size_t		mapped_bytes;

	gg_index() : mapped(NULL), mapped_bytes(0)
	{
		memset(&view, 0, sizeof(view));
		memset(&device, 0, sizeof(device));
	}
	~gg_index()
	{
		/* the stream may still be writing into it */
		if (stream.get() != NULL)
			(void) cudaStreamSynchronize(stream.get());
		if (mapped != NULL)
			(void) cudaFreeHost(mapped);
	}
};

/* ---- preparing rows -------------------------------------------------------- */

/* Mean of every count/SAMPLE_ROWS-th row: 32 columns a block, always in the same order. */
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
 * largest: bits of the largest |x - mean|; sums[0], sums[1]: of log2 |x - mean| and the number of
 * elements that are not 0.  All start at 0.
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
		sum += __shfl_xor_sync(FULL_WARP, sum, offset);
		count += __shfl_xor_sync(FULL_WARP, count, offset);
	}
	if (lane == 0)
	{
		atomicMax(largest, __float_as_uint(maximum));
		atomicAdd(&sums[0], sum);
		atomicAdd(&sums[1], count);
	}
}

/* (x - mean) * scale in fp16, zeros to the end of the row */
__global__ void __launch_bounds__(256)
halve_kernel(const char *rows, size_t stride, uint32_t n, uint32_t dim, const float *mean,
			 float scale, char *walk_rows, size_t walk_stride)
{
	uint32_t	lane = threadIdx.x & 31;

	for (uint32_t row = blockIdx.x * 8 + threadIdx.x / 32; row < n; row += gridDim.x * 8)
	{
		const float *x = (const float *) (rows + (size_t) row * stride);
		__half	   *to = (__half *) (walk_rows + (size_t) row * walk_stride);

		for (uint32_t i = lane; i < walk_stride / 2; i += 32)
			to[i] = __float2half_rn(i < dim ? (x[i] - mean[i]) * scale : 0);
	}
}

/* |x|^2 of fp16 rows, or 1 / |x| (0 for a zero row) */
__global__ void __launch_bounds__(256)
norms_kernel(const char *rows, size_t stride, uint32_t n, uint32_t dim, bool inverse, float *norms)
{
	uint32_t	lane = threadIdx.x & 31;

	for (uint32_t row = blockIdx.x * 8 + threadIdx.x / 32; row < n; row += gridDim.x * 8)
	{
		const __half *x = (const __half *) (rows + (size_t) row * stride);
		float		sum = 0;

		for (uint32_t i = lane; i < dim; i += 32)
			sum += __half2float(x[i]) * __half2float(x[i]);
		sum = group_reduce<1, false>(sum, NULL);
		if (lane == 0)
			norms[row] = !inverse ? sum : sum > 0 ? 1 / sqrtf(sum) : 0;
	}
}

/* Packed copies of the pivots' walk rows and norms; ids out of range become GG_NO_NODE. */
__global__ void __launch_bounds__(256)
pack_pivots_kernel(const __grid_constant__ search_view view, uint32_t *pivots, char *pivot_rows,
				   float *pivot_norms)
{
	uint32_t	lane = threadIdx.x & 31;

	for (uint32_t i = blockIdx.x * 8 + threadIdx.x / 32; i < view.npivots; i += gridDim.x * 8)
	{
		uint32_t	node = pivots[i];
		bool		valid = node < view.n;

		for (uint32_t piece = lane; piece < view.walk_stride / 16; piece += 32)
			((uint4 *) (pivot_rows + (size_t) i * view.walk_stride))[piece] =
				valid ? ((const uint4 *) (view.walk_rows + (size_t) node * view.walk_stride))[piece] :
				make_uint4(0, 0, 0, 0);
		__syncwarp();
		if (lane == 0)
		{
			if (pivot_norms != NULL)
				pivot_norms[i] = valid ? view.norms[node] : 0;
			if (!valid)
				pivots[i] = GG_NO_NODE;
		}
	}
}

/* ---- opening ---------------------------------------------------------------- */

static size_t
padded(size_t bytes)
{
	/* whole 32-byte sectors, but for rows where that would cost a quarter or more */
	return bytes > 64 ? (bytes + 31) & ~(size_t) 31 : (bytes + 15) & ~(size_t) 15;
}

static gg_status
find_device(search_device *device)
{
	int			id;

	GG_CUDA_TRY(cudaGetDevice(&id));
	GG_CUDA_TRY(cudaDeviceGetAttribute(&device->sms, cudaDevAttrMultiProcessorCount, id));
	GG_CUDA_TRY(cudaDeviceGetAttribute(&device->shared_bytes,
									   cudaDevAttrMaxSharedMemoryPerBlockOptin, id));
	/* static shared memory counts against the limit as well; no kernel here has more than this */
	device->shared_bytes -= 256;
	GG_CUDA_TRY(search_multi_max_cluster(device, &device->max_cluster));
	return gg_cuda_ok();
}

/* What float32 rows are walked in; see the head of the file. */
static walk_path
choose_path(const gg_dataset *data, float largest, double typical, size_t free_bytes)
{
	walk_path	alone = data->metric == GG_METRIC_L2 ? WALK_FLOAT_L2 :
		data->metric == GG_METRIC_L1 ? WALK_FLOAT_L1 : WALK_FLOAT_DOT;

	if (data->dim < HALF_MIN_DIM)
		return alone;

	/*
	 * Scaled so that the largest element is near 2^14, an element is a normal fp16 number down to
	 * 2^-14.  When the typical one (the mean is of logarithms: outliers do not move it) is below 2^-4,
	 * those a thousand times smaller start to lose bits: a few huge rows would spoil all others.
	 */
	if (!isfinite(largest) || !isfinite(typical) || typical * 262144.0 < largest)
		return alone;
	if (free_bytes < (size_t) data->n * padded((size_t) data->dim * 2) + RESERVE_BYTES)
		return alone;
	return data->metric == GG_METRIC_L1 ? WALK_HALF_L1 : WALK_HALF_DOT;
}

static gg_status
upload(gg_index *index, const gg_dataset *data, const gg_graph *graph, const gg_control *control)
{
	search_view *view = &index->view;
	cudaStream_t stream = index->stream.get();
	size_t		row_bytes = (size_t) data->dim * gg_element_size(data->element);
	uint64_t	edges;

	view->row_stride = padded(row_bytes);
	GG_TRY(index->rows.allocate((uint64_t) data->n * view->row_stride));
	if (view->row_stride != row_bytes)
		GG_CUDA_TRY(cudaMemsetAsync(index->rows.get(), 0, (size_t) data->n * view->row_stride,
									stream));
	for (uint32_t first = 0; first < data->n;)
	{
		uint32_t	count = (uint32_t) (UPLOAD_BYTES / row_bytes);

		if (count > data->n - first)
			count = data->n - first;
		GG_CUDA_TRY(cudaMemcpy2DAsync(index->rows.get() + (size_t) first * view->row_stride,
									  view->row_stride,
									  (const char *) data->rows + (size_t) first * row_bytes,
									  row_bytes, row_bytes, count, cudaMemcpyHostToDevice, stream));
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
		GG_TRY(gg_cuda_check_cancel(control, __func__));
		first += count;
	}
	view->rows = index->rows.get();
	if (graph == NULL)
		return gg_cuda_ok();

	edges = (uint64_t) graph->n * graph->degree;
	GG_TRY(index->adjacency.allocate(edges));
	for (uint64_t first = 0; first < edges;)
	{
		uint64_t	count = UPLOAD_BYTES / 4;

		if (count > edges - first)
			count = edges - first;
		GG_CUDA_TRY(cudaMemcpyAsync(index->adjacency.get() + first, graph->adjacency + first,
									count * 4, cudaMemcpyHostToDevice, stream));
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
		GG_TRY(gg_cuda_check_cancel(control, __func__));
		first += count;
	}
	GG_TRY(index->pivots.allocate(graph->npivots));
	GG_CUDA_TRY(cudaMemcpyAsync(index->pivots.get(), graph->pivots, (size_t) graph->npivots * 4,
								cudaMemcpyHostToDevice, stream));
	view->adjacency = index->adjacency.get();
	view->pivots = index->pivots.get();
	view->degree = graph->degree;
	view->npivots = graph->npivots;
	return gg_cuda_ok();
}

/* Everything the walk reads beside the rows as given. */
static gg_status
prepare(gg_index *index, const gg_dataset *data)
{
	search_view *view = &index->view;
	cudaStream_t stream = index->stream.get();
	const uint32_t blocks = (uint32_t) index->device.sms * 8;
	uint32_t	element_bytes = 2;

	view->scale = 1;
	if (data->element == GG_ELEMENT_F16)
	{
		view->path = data->metric == GG_METRIC_L1 ? WALK_HALF_L1 : WALK_HALF_DOT;
		view->walk_rows = view->rows;
		view->walk_stride = view->row_stride;
	}
	else
	{
		gg_cuda_buffer<double> range;
		struct
		{
			double		sums[2];
			uint32_t	largest;
			uint32_t	unused;
		}			found;
		float		largest;
		size_t		free_bytes;
		size_t		total_bytes;

		GG_TRY(index->mean.allocate(data->dim));
		GG_TRY(range.allocate(3));
		GG_CUDA_TRY(cudaMemsetAsync(range.get(), 0, sizeof(found), stream));
		mean_kernel<<<(data->dim + 31) / 32, dim3(32, 32), 0, stream>>>(view->rows, view->row_stride,
																	  data->n, data->dim,
																	  index->mean.get());
		GG_CUDA_LAUNCHED("mean_kernel");
		range_kernel<<<blocks, 256, 0, stream>>>(view->rows, view->row_stride, data->n, data->dim,
												 index->mean.get(), (uint32_t *) (range.get() + 2),
												 range.get());
		GG_CUDA_LAUNCHED("range_kernel");
		GG_CUDA_TRY(cudaMemcpyAsync(&found, range.get(), sizeof(found), cudaMemcpyDeviceToHost, stream));
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
		GG_CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes));
		memcpy(&largest, &found.largest, 4);
		view->path = choose_path(data, largest,
								 found.sums[1] > 0 ? exp2(found.sums[0] / found.sums[1]) : 0, free_bytes);
		if (view->path == WALK_HALF_DOT || view->path == WALK_HALF_L1)
		{
			int			exponent = 0;

			if (largest > 0)
				(void) frexpf(largest, &exponent);
			exponent = 14 - exponent;
			exponent = exponent > 100 ? 100 : exponent < -100 ? -100 : exponent;
			view->scale = ldexpf(1, exponent);
			view->mean = index->mean.get();
			view->walk_stride = padded((size_t) data->dim * 2);
			GG_TRY(index->walk_rows.allocate((uint64_t) data->n * view->walk_stride));
			halve_kernel<<<blocks, 256, 0, stream>>>(view->rows, view->row_stride, data->n, data->dim,
													 view->mean, view->scale, index->walk_rows.get(),
													 view->walk_stride);
			GG_CUDA_LAUNCHED("halve_kernel");
			view->walk_rows = index->walk_rows.get();
		}
		else
		{
			view->walk_rows = view->rows;
			view->walk_stride = view->row_stride;
			element_bytes = 4;
		}
	}
	view->walk_pieces = (data->dim * element_bytes + 15) / 16;
	view->walk_pad = (view->walk_pieces + 3) / 4 * (64 / element_bytes);

	if (view->path == WALK_HALF_DOT &&
		(data->metric == GG_METRIC_L2 ||
		 (data->metric == GG_METRIC_COSINE && data->element == GG_ELEMENT_F16)))
	{
		GG_TRY(index->norms.allocate(data->n));
		norms_kernel<<<blocks, 256, 0, stream>>>(view->walk_rows, view->walk_stride, data->n, data->dim,
												 data->metric == GG_METRIC_COSINE,
												 index->norms.get());
		GG_CUDA_LAUNCHED("norms_kernel");
		view->norms = index->norms.get();
	}
	if (view->npivots > 0)
	{
		GG_TRY(index->pivot_rows.allocate((uint64_t) view->npivots * view->walk_stride));
		if (view->norms != NULL)
			GG_TRY(index->pivot_norms.allocate(view->npivots));
		pack_pivots_kernel<<<blocks, 256, 0, stream>>>(*view, index->pivots.get(),
													   index->pivot_rows.get(),
													   index->pivot_norms.get());
		GG_CUDA_LAUNCHED("pack_pivots_kernel");
		view->pivot_rows = index->pivot_rows.get();
		view->pivot_norms = index->pivot_norms.get();
	}
	GG_CUDA_TRY(cudaStreamSynchronize(stream));
	return gg_cuda_ok();
}

/*
 * graph may be NULL: then only index_exact() works, which is all that rows not yet in a graph
 * need.
 */
gg_status
gg_cuda_index_open(const gg_dataset *data, const gg_graph *graph, const gg_control *control,
				   gg_index **index)
{
	gg_index   *opened;
	gg_status	status;

	*index = NULL;
	if (data->dim < 1 || data->dim > GG_MAX_DIM || data->n > GG_MAX_NODES)
		return gg_cuda_fail(GG_EINVAL, __func__, "%u rows of %u dimensions are out of range",
							data->n, data->dim);
	if (graph != NULL && (graph->n != data->n || graph->degree > GG_MAX_DEGREE ||
						  (graph->n > 0 && (graph->npivots < 1 || graph->degree < 1))))
		return gg_cuda_fail(GG_EINVAL, __func__,
							"a graph of %u nodes, degree %u, %u pivots does not fit %u rows",
							graph->n, graph->degree, graph->npivots, data->n);
	opened = new (std::nothrow) gg_index;
	if (opened == NULL)
		return gg_cuda_fail(GG_ENOMEM, __func__, "out of memory");
	opened->view.n = data->n;
	opened->view.dim = data->dim;
	opened->view.metric = data->metric;
	opened->view.element = data->element;
	status = find_device(&opened->device);
	if (status.code == GG_OK)
		status = opened->stream.create();
	if (status.code == GG_OK && data->n > 0)
		status = upload(opened, data, graph, control);
	if (status.code == GG_OK && data->n > 0)
		status = prepare(opened, data);
	if (status.code != GG_OK)
	{
		delete opened;
		return status;
	}
	*index = opened;
	return status;
}

void
gg_cuda_index_close(gg_index *index)
{
	delete index;
}

/* ---- searching --------------------------------------------------------------- */

/*
 * Parents a step.  A query alone is a chain of dependent steps, so it wants many at once; a batch
 * pays for them with distances.  Measured on 1M x 128 and 1M x 768 (itopk 64): 8 a step take a
 * sixth of the steps that 1 takes, for a fifth more distances, at the same recall.  Longer
 * lists take wider steps still: the share of wasted distances follows width / itopk.
 */
uint32_t
search_width_for(uint32_t requested, uint32_t itopk, uint32_t degree)
{
	uint32_t	width = requested;
	uint32_t	most = degree > 0 ? MAX_WALK_CANDIDATES / degree : 1;

	if (width == 0)
		width = itopk <= 128 ? 8 : 16;
	if (width > itopk)
		width = itopk;
	if (width > most)
		width = most;
	if (width > 32)
		width = 32;
	return width > 0 ? width : 1;
}

/*
 * Blocks a query, or 0 for the single-CTA kernel.
 *
 * While there are multiprocessors to spare, a query gets as many blocks as there are, up to the
 * largest cluster; two blocks sharing one were slower (1M x 128, batch 10: 115 us against 67).  Past that, a block a query is still sooner done than a warp a query, until the device is so full
 * that only throughput counts, where barriers are dear.  The length of the list does not change
 * that: both kernels' steps grow alike with it (measured at itopk 64 and 256).
 */
static uint32_t
choose_cluster(const search_device *device, gg_search_mode mode, uint32_t nq)
{
	uint32_t	cluster = device->max_cluster;

	uint32_t	sms = (uint32_t) device->sms;

	if (mode == GG_SEARCH_SINGLE_CTA || (mode == GG_SEARCH_AUTO && nq > BLOCK_QUERIES_PER_SM * sms))
		return 0;
	while (cluster > 1 && nq * cluster > sms)
		cluster /= 2;
	return cluster;
}

template <typename T>
static gg_status
grow(gg_cuda_buffer<T> &buffer, uint64_t count)
{
	if (buffer.bytes() >= count * sizeof(T))
		return gg_cuda_ok();
	return buffer.allocate(count);
}

/* Whether the pivots are scored by pivots.cu rather than in the walk. */
static bool
choose_product(const search_view *view, const search_device *device, uint32_t nq, uint32_t cluster)
{
	uint64_t	bytes = (uint64_t) nq * view->npivots * view->walk_stride;
	uint32_t	used = nq * cluster < (uint32_t) device->sms ? nq * cluster : (uint32_t) device->sms;

	if (view->path != WALK_HALF_DOT)
		return false;
	return cluster == 0 || bytes > used * SCORE_BYTES_PER_SM;
}

/*
 * Queue one search of at most MAX_BATCH queries on stream; returns before it is done.  queries,
 * nodes and distances: device or mapped host memory.  Searches of one index share its scratch
 * memory, so they must be queued on one stream, or ordered by the caller.
 */
gg_status
gg_cuda_search_enqueue(gg_index *index, const gg_search_params *params, const float *queries,
					   uint32_t nq, uint32_t *nodes, float *distances, cudaStream_t stream)
{
	const search_view *view = &index->view;
	search_launch launch;
	uint32_t	cluster;

	memset(&launch, 0, sizeof(launch));
	launch.queries = queries;
	launch.nq = nq;
	launch.k = params->k;
	launch.itopk = params->itopk_size;
	launch.width = search_width_for(params->search_width, params->itopk_size, view->degree);
	launch.nodes = nodes;
	launch.distances = distances;
	cluster = choose_cluster(&index->device, params->mode, nq);

	if (choose_product(view, &index->device, nq, cluster))
	{
		uint32_t	slices = search_pivots_slices(view, nq, index->device.sms);

		launch.nentries = slices * ENTRY_NODES;
		GG_TRY(grow(index->halves, (uint64_t) nq * view->walk_pad));
		GG_TRY(grow(index->factors, nq));
		GG_TRY(grow(index->entries, (uint64_t) nq * launch.nentries));
		GG_CUDA_TRY(search_pivots_launch(view, queries, nq, slices, index->halves.get(),
										 index->factors.get(), index->entries.get(), stream));
		launch.entries = index->entries.get();
	}
	if (cluster == 0)
		GG_CUDA_TRY(search_single_launch(view, &launch, &index->device, stream));
	else
		GG_CUDA_TRY(search_multi_launch(view, &launch, &index->device, cluster, stream));
	return gg_cuda_ok();
}

/* The same for exact search; filter is device memory or NULL. */
gg_status
gg_cuda_exact_enqueue(gg_index *index, uint32_t k, const uint32_t *filter, const float *queries,
					  uint32_t nq, uint32_t *nodes, float *distances, cudaStream_t stream)
{
	size_t		bytes = search_exact_scratch(k, &index->device);

	if (index->exact.bytes() < bytes)
	{
		GG_TRY(index->exact.allocate(bytes));
		GG_CUDA_TRY(cudaMemsetAsync(index->exact.get(), 0, bytes, stream));
	}
	GG_CUDA_TRY(search_exact_launch(&index->view, filter, queries, nq, k, nodes, distances,
									index->exact.get(), &index->device, stream));
	return gg_cuda_ok();
}

/* Pinned memory for nq queries and answers of a small search; the three parts in *_out. */
static gg_status
map_small(gg_index *index, uint32_t nq, uint32_t k, float **queries, uint32_t **nodes,
		  float **distances)
{
	size_t		query_bytes = ((size_t) nq * index->view.dim * 4 + 255) & ~(size_t) 255;
	size_t		answer_bytes = ((size_t) nq * k * 4 + 255) & ~(size_t) 255;
	size_t		bytes = query_bytes + 2 * answer_bytes;

	if (index->mapped_bytes < bytes)
	{
		if (index->mapped != NULL)
			GG_CUDA_TRY(cudaFreeHost(index->mapped));
		index->mapped = NULL;
		index->mapped_bytes = 0;
		/* one address space: the device uses the same pointers */
		GG_CUDA_TRY(cudaHostAlloc(&index->mapped, bytes, cudaHostAllocMapped));
		index->mapped_bytes = bytes;
	}
	*queries = (float *) index->mapped;
	*nodes = (uint32_t *) ((char *) index->mapped + query_bytes);
	*distances = (float *) ((char *) index->mapped + query_bytes + answer_bytes);
	return gg_cuda_ok();
}

/*
 * What searches of both kinds do with host memory: hand batches over, start them by enqueue(), take
 * the answers back.  enqueue is (queries, nq, nodes, distances) -> gg_status, pointers the device's.
 */
template <typename ENQUEUE>
static gg_status
search_host(gg_index *index, uint32_t k, uint32_t batch, const float *queries, uint32_t nq,
			const gg_control *control, uint32_t *nodes, float *distances, ENQUEUE enqueue)
{
	const uint32_t dim = index->view.dim;
	cudaStream_t stream = index->stream.get();

	if (index->view.n == 0)
	{
		for (size_t i = 0; i < (size_t) nq * k; i++)
		{
			nodes[i] = GG_NO_NODE;
			distances[i] = INFINITY;
		}
		return gg_cuda_ok();
	}
	if (nq > 0 && nq <= MAPPED_BATCH)
	{
		float	   *mapped_queries;
		uint32_t   *mapped_nodes;
		float	   *mapped_distances;

		GG_TRY(map_small(index, nq, k, &mapped_queries, &mapped_nodes, &mapped_distances));
		memcpy(mapped_queries, queries, (size_t) nq * dim * 4);
		GG_TRY(enqueue(mapped_queries, nq, mapped_nodes, mapped_distances));
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
		memcpy(nodes, mapped_nodes, (size_t) nq * k * 4);
		memcpy(distances, mapped_distances, (size_t) nq * k * 4);
		return gg_cuda_ok();
	}
	for (uint32_t first = 0; first < nq; first += batch)
	{
		uint32_t	count = nq - first < batch ? nq - first : batch;

		GG_TRY(gg_cuda_check_cancel(control, __func__));
		GG_TRY(grow(index->queries, (uint64_t) count * dim));
		GG_TRY(grow(index->nodes, (uint64_t) count * k));
		GG_TRY(grow(index->distances, (uint64_t) count * k));
		GG_CUDA_TRY(cudaMemcpyAsync(index->queries.get(), queries + (size_t) first * dim,
									(size_t) count * dim * 4, cudaMemcpyHostToDevice, stream));
		GG_TRY(enqueue(index->queries.get(), count, index->nodes.get(), index->distances.get()));
		GG_CUDA_TRY(cudaMemcpyAsync(nodes + (size_t) first * k, index->nodes.get(),
									(size_t) count * k * 4, cudaMemcpyDeviceToHost, stream));
		GG_CUDA_TRY(cudaMemcpyAsync(distances + (size_t) first * k, index->distances.get(),
									(size_t) count * k * 4, cudaMemcpyDeviceToHost, stream));
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
	}
	return gg_cuda_ok();
}

gg_status
gg_cuda_index_search(gg_index *index, const gg_search_params *params, const float *queries,
					 uint32_t nq, const gg_control *control, uint32_t *nodes, float *distances)
{
	cudaStream_t stream = index->stream.get();

	if (params->k < 1 || params->k > params->itopk_size || params->itopk_size > GG_MAX_ITOPK)
		return gg_cuda_fail(GG_EINVAL, __func__, "k %u with itopk_size %u is out of range",
							params->k, params->itopk_size);
	if (index->view.n > 0 && index->view.npivots == 0)
		return gg_cuda_fail(GG_EINVAL, __func__, "the index was opened without a graph");
	GG_TRY(gg_cuda_check_cancel(control, __func__));
	return search_host(index, params->k, MAX_BATCH, queries, nq, control, nodes, distances,
					   [&](const float *q, uint32_t count, uint32_t *ids, float *values)
					   {
						   return gg_cuda_search_enqueue(index, params, q, count, ids, values,
														 stream);
					   });
}

gg_status
gg_cuda_index_exact(gg_index *index, uint32_t k, const uint32_t *filter, const float *queries,
					uint32_t nq, const gg_control *control, uint32_t *nodes, float *distances)
{
	cudaStream_t stream = index->stream.get();
	double		elements = (double) index->view.n * index->view.dim;
	double		batch = elements > 0 ? EXACT_ELEMENTS_PER_LAUNCH / elements : MAX_BATCH;
	const uint32_t *device_filter = NULL;

	if (k < 1 || k > GG_MAX_ITOPK)
		return gg_cuda_fail(GG_EINVAL, __func__, "k %u is out of range", k);
	GG_TRY(gg_cuda_check_cancel(control, __func__));
	if (filter != NULL && index->view.n > 0)
	{
		size_t		words = ((size_t) index->view.n + 31) / 32;

		GG_TRY(grow(index->filter, words));
		GG_CUDA_TRY(cudaMemcpyAsync(index->filter.get(), filter, words * 4, cudaMemcpyHostToDevice,
									stream));
		device_filter = index->filter.get();
	}
	batch = batch < 8 ? 8 : batch > MAX_BATCH ? MAX_BATCH : batch;
	return search_host(index, k, (uint32_t) batch, queries, nq, control, nodes, distances,
					   [&](const float *q, uint32_t count, uint32_t *ids, float *values)
					   {
						   return gg_cuda_exact_enqueue(index, k, device_filter, q, count, ids, values,
														stream);
					   });
}
