/*
 * fill.cu
 *		Data set and graph on the device: memory, the way there, and what walks read beside them.
 *
 * What a column keeps on the device, and why (precision.cu):
 *	float16 rows		The rows; the walk reads them as they are.
 *	float32 rows		The rows, for exact distances, and a copy in fp16 for the walk, centred on
 *						the mean and scaled by a power of two.  Centring keeps every order, since
 *						differences lose the mean and products gain the same for all rows, and saves
 *						the bits that a common offset would take.  Measured at itopk 64, batch
 *						10,000: 1.8 ms against 4.3 with fp32 alone (1M x 128), 5.8 against 38.6 (1M
 *						x 768).  A query alone takes as long either way; recall is the same.
 *	float32 rows alone	What fp16 cannot hold or tell apart, or (index_open only) too little memory
 *						for the copy.
 *
 *	codes				Records of codes for the walk, no copy in fp16.  Rows, which the re-rank and
 *						exact searches read, are beside them, in pinned host memory, or nowhere.
 *						Pivots have their codes twice: as records, and in halves for pivots.cu.
 *
 * Builds centre and round rows, too, by other rules (working_copy.cu tells why).
 *
 * Row heads, offsets and filter words are kept as they come, for filter.cu.
 *
 * All memory is taken when an index is created, the fp16 copy's too, so that finishing cannot fail
 * for want of it.  Rows lie at a stride of whole sectors; an index without a graph has them in the
 * same way, since searches and builds both read rows at a stride.
 *
 * Each index fills on streams of its own and waits for those alone, so others go on.  They do feel
 * cudaMalloc() and cudaFree(), once each per index: both take the driver's lock, and cudaFree()
 * waits for the device.  A pool (cudaMallocAsync) would avoid that, but keeps memory from other
 * processes, whose builds need it.  Rows that come from pageable memory, as in builds, also take
 * pinned buffers (write.cu).
 */
#include <mutex>
#include <new>

#include "../../src/engine/rules/serve_check.h"
#include "../search/codes.cuh"
#include "../search/codes.h"
#include "../search/exact.h"
#include "../search/gather.h"
#include "../search/pivots.h"
#include "../search/prune.cuh"
#include "../search/query.cuh"
#include "../search/search_group.h"
#include "../search/search_multi.h"
#include "../search/search_single.h"
#include "index.cuh"

/* Few dimensions have few distinct fp16 rows, and their fp32 rows cost little to read. */
#define HALF_MIN_DIM 13

/*
 * Left free for other indexes' scratch and the driver when index_open() decides on the fp16 copy.
 */
#define RESERVE_BYTES ((size_t) 512 << 20)

#define PART_ALIGN 256			/* of the arrays in memory: as cudaMalloc() */

/* ---- preparing rows -------------------------------------------------------- */

/* (x - mean) * scale in fp16, zeros to the end of the row */
__global__ void __launch_bounds__(256)
halve_kernel(const __grid_constant__ search_view view, char *walk_rows)
{
	uint32_t	lane = threadIdx.x & 31;

	for (uint32_t row = blockIdx.x * 8 + threadIdx.x / 32; row < view.n; row += gridDim.x * 8)
	{
		const float *x = (const float *) (view.rows + (size_t) row * view.row_stride);
		__half	   *to = (__half *) (walk_rows + (size_t) row * view.walk_stride);

		for (uint32_t i = lane; i < view.walk_stride / 2; i += 32)
			to[i] = __float2half_rn(i < view.dim ? (x[i] - view.mean[i]) * view.scale : 0);
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

/* Node ids out of the pivots as a segment has them. */
__global__ void __launch_bounds__(256)
unpack_pivots_kernel(const uint32_t *entries, uint32_t npivots, uint32_t *pivots)
{
	uint32_t	i = blockIdx.x * 256 + threadIdx.x;

	if (i < npivots)
		pivots[i] = entries[(size_t) i * PIVOT_WORDS];
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

		for (uint32_t quad = lane; quad < view.walk_stride / 16; quad += 32)
			((uint4 *) (pivot_rows + (size_t) i * view.walk_stride))[quad] = valid ?
				((const uint4 *) (view.walk_rows + (size_t) node * view.walk_stride))[quad] :
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

/* ---- memory ------------------------------------------------------------------ */

static size_t
padded(size_t bytes)
{
	/* whole 32-byte sectors, but for rows where that would cost a quarter or more */
	return bytes > 64 ? (bytes + 31) & ~(size_t) 31 : (bytes + 15) & ~(size_t) 15;
}

/* Where the arrays of an index lie in its memory; offsets in bytes. */
typedef struct fill_layout
{
	size_t		row_stride;
	size_t		walk_stride;	/* of the fp16 copy, or of records of codes; 0: none */
	size_t		half_stride;	/* of pivots in halves */
	uint64_t	host_rows;		/* bytes of rows in host memory */
	uint64_t	rows;
	uint64_t	adjacency;
	uint64_t	pivots;
	uint64_t	pivot_entries;
	uint64_t	pivot_rows;
	uint64_t	pivot_halves;
	uint64_t	weights;
	uint64_t	code_mean;
	uint64_t	pivot_norms;
	uint64_t	norms;
	uint64_t	mean;
	uint64_t	range;
	uint64_t	heads;
	uint64_t	offsets;
	uint64_t	words;
	uint64_t	bytes;
	bool		has_norms;
} fill_layout;

static uint64_t
take(uint64_t *at, uint64_t bytes)
{
	uint64_t	from = *at;

	*at += (bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
	return from;
}

/* Lay out what walks by codes take; there is room for the rows already. */
static void
lay_out_codes(const gg_shape *shape, uint64_t *at, fill_layout *layout)
{
	const bool	rotated = shape->metric != GG_METRIC_L1;

	layout->walk_stride = padded(gg_code_record_bytes(shape->codes, shape->dim));
	layout->pivot_rows = take(at, (uint64_t) shape->npivots * layout->walk_stride);
	layout->code_mean = take(at, (uint64_t) shape->dim * 4);
	if (!rotated)
		return;
	layout->half_stride = padded(((size_t) shape->dim * 2 + 15) / 16 * 16 + GG_CODE_HEAD);
	layout->pivot_halves = take(at, (uint64_t) shape->npivots * layout->half_stride);
	layout->weights = take(at, (uint64_t) gg_code_rounds(shape->dim) * shape->dim * 4);
}

/* Lay out what walks by rows take beside the rows. */
static void
lay_out_halves(const gg_shape *shape, bool halves, uint64_t *at, fill_layout *layout)
{
	const bool	wide = shape->element == GG_ELEMENT_F32;

	if (wide && halves && shape->dim >= HALF_MIN_DIM)
		layout->walk_stride = padded((size_t) shape->dim * 2);
	layout->has_norms = shape->metric == GG_METRIC_L2 ? !wide || layout->walk_stride > 0 :
		shape->metric == GG_METRIC_COSINE && !wide;
	/* should fp16 not do, pivots are copies of rows as given */
	layout->pivot_rows = take(at, (uint64_t) shape->npivots * layout->row_stride);
	if (layout->has_norms)
	{
		layout->pivot_norms = take(at, (uint64_t) shape->npivots * 4);
		layout->norms = take(at, (uint64_t) shape->capacity * 4);
	}
	layout->mean = take(at, (uint64_t) shape->dim * 4);
	layout->range = take(at, 3 * sizeof(double));
}

/* halves: with the fp16 copy, where there is a use for one. */
static fill_layout
layout_for(const gg_shape *shape, bool halves)
{
	const uint64_t capacity = shape->capacity;
	fill_layout layout;
	uint64_t	at = 0;

	memset(&layout, 0, sizeof(layout));
	layout.row_stride = padded(shape_row_bytes(shape));
	if (shape->row_place == GG_ROWS_DEVICE)
		layout.rows = take(&at, capacity * layout.row_stride);
	else if (shape->row_place == GG_ROWS_HOST)
		layout.host_rows = capacity * layout.row_stride;
	if (shape->degree > 0)
	{
		layout.adjacency = take(&at, capacity * shape->degree * 4);
		layout.pivots = take(&at, (uint64_t) shape->npivots * 4);
		layout.pivot_entries = take(&at, (uint64_t) shape->npivots * PIVOT_WORDS * 4);
		if (shape->codes != GG_CODES_NONE)
			lay_out_codes(shape, &at, &layout);
		else
			lay_out_halves(shape, halves, &at, &layout);
	}
	layout.heads = take(&at, (uint64_t) shape->rows * 8);
	if (shape->offsets)
		layout.offsets = take(&at, (capacity + 1) * 4);
	layout.words = take(&at, (uint64_t) shape->words * shape->rows * 8);
	layout.bytes = at;
	return layout;
}

static gg_status
check_shape(const gg_shape *shape)
{
	if (shape->dim < 1 || shape->dim > GG_MAX_DIM || shape->capacity > GG_MAX_NODES)
		return gg_fail(GG_EINVAL, __func__, "%u rows of %u dimensions are out of range",
					   shape->capacity, shape->dim);
	if (shape->metric < GG_METRIC_L2 || shape->metric > GG_METRIC_L1)
		return gg_fail(GG_EINVAL, __func__, "metric %d is unknown", (int) shape->metric);
	if (shape->element != GG_ELEMENT_F32 && shape->element != GG_ELEMENT_F16)
		return gg_fail(GG_EINVAL, __func__, "element %d is unknown", (int) shape->element);
	if (shape->degree > GG_MAX_DEGREE || (shape->degree == 0 && shape->npivots > 0) ||
		(shape->degree > 0 && shape->npivots == 0 && shape->capacity > 0))
		return gg_fail(GG_EINVAL, __func__,
					   "a graph of degree %u with %u pivots over %u rows is none", shape->degree,
					   shape->npivots, shape->capacity);
	GG_TRY(gg_serve_check_rows(__func__, shape));
	return gg_serve_check_codes(__func__, shape);
}

gg_status
search_device_find(search_device *device)
{
	static std::mutex lock;
	static search_device known;	/* of the context used last */
	int			id = gg_cuda_served_device();
	std::lock_guard<std::mutex> guard(lock);

	if (id >= 0)
		GG_CUDA_TRY(cudaSetDevice(id));
	else
		GG_CUDA_TRY(cudaGetDevice(&id));
	if (known.context != gg_cuda_context_id(id))
	{
		search_device found = {};
		gg_cuda_limits limits = {};

		found.ordinal = id;
		found.context = gg_cuda_context_id(id);
		GG_TRY(gg_cuda_device_limits(id, &limits));
		found.major = limits.major;
		found.sms = limits.sms;
		/* static shared memory counts, too; kernels with more of it than this take off their own */
		found.shared_bytes = limits.shared_bytes - 256;
		GG_CUDA_TRY(search_multi_plan(&found));
		known = found;
	}
	*device = known;
	return gg_ok();
}

/* Set where rows are written to, and where the device reads them; clear what pads them. */
static gg_status
place_rows(gg_index *index, const fill_layout *layout)
{
	const gg_shape *shape = &index->shape;
	search_view *view = &index->view;
	void	   *seen;

	view->row_stride = layout->row_stride;
	if (shape->row_place == GG_ROWS_DEVICE)
	{
		index->rows = index->memory.get() + layout->rows;
		view->rows = index->rows;
	}
	else if (layout->host_rows > 0)
	{
		GG_TRY(gg_cuda_pin_status(cudaHostAlloc(&index->host_rows, layout->host_rows,
												cudaHostAllocMapped | cudaHostAllocPortable),
								  __func__, "cudaHostAlloc", layout->host_rows));
		GG_CUDA_TRY(cudaHostGetDevicePointer(&seen, index->host_rows, 0));
		index->rows = (char *) index->host_rows;
		view->rows = (const char *) seen;
	}
	/* nothing writes what pads a row */
	if (layout->row_stride == shape_row_bytes(shape) || index->rows == NULL ||
		shape->capacity == 0)
		return gg_ok();
	if (index->host_rows != NULL)
	{
		memset(index->host_rows, 0, layout->host_rows);
		return gg_ok();
	}
	GG_CUDA_TRY(cudaMemsetAsync(index->rows, 0, (size_t) shape->capacity * layout->row_stride,
								index->stream.get()));
	/* rows come on other streams */
	GG_CUDA_TRY(cudaStreamSynchronize(index->stream.get()));
	return gg_ok();
}

/* Copy what codes are centred by: the caller's memory may go. */
static gg_status
place_mean(gg_index *index, const fill_layout *layout)
{
	const float *mean = index->shape.code_mean;
	const uint32_t dim = index->shape.dim;
	search_view *view = &index->view;
	float	   *copy = (float *) (index->memory.get() + layout->code_mean);
	uint32_t	largest = 0;

	index->shape.code_mean = NULL;
	if (mean == NULL)
		return gg_ok();
	for (uint32_t i = 0; i < dim; i++)
	{
		uint32_t	bits;

		memcpy(&bits, &mean[i], sizeof(bits));
		bits &= 0x7FFFFFFFu;
		largest = bits > largest ? bits : largest;
	}
	view->code_mean = copy;
	view->code_mean_exponent = gg_code_exponent(largest);
	return gg_cuda_copy_in(copy, mean, dim * sizeof(float), index->stream.get(), NULL);
}

/* Set what makes codes, and what walks by codes read. */
static gg_status
place_codes(gg_index *index, const fill_layout *layout)
{
	const gg_shape *shape = &index->shape;
	search_view *view = &index->view;
	const uint32_t bits = gg_code_bits(shape->codes);
	const uint32_t rounds = shape->metric == GG_METRIC_L1 ? 0 : gg_code_rounds(shape->dim);
	const uint64_t count = (uint64_t) rounds * shape->dim;
	float	   *weights;
	gg_status	status;

	view->code_bits = bits;
	view->walk_rows = index->walk_rows.get();
	view->walk_stride = layout->walk_stride;
	view->walk_quads = gg_code_record_bytes(shape->codes, shape->dim) / 16;
	/* a float of each element, or two bytes */
	view->walk_pad = code_plane_bytes(view->walk_quads) * (8 / bits) / (rounds == 0 ? 1 : 2);
	view->path = rounds == 0 ? WALK_CODE_L1 : bits == 8 ? WALK_CODE8 : WALK_CODE4;
	GG_TRY(place_mean(index, layout));
	GG_CUDA_TRY(search_codes_ready(&index->device));
	if (rounds == 0)
		return gg_ok();
	index->pivot_halves = index->memory.get() + layout->pivot_halves;
	index->code_weights = (float *) (index->memory.get() + layout->weights);
	view->code_weights = index->code_weights;
	weights = (float *) malloc(count * sizeof(float));
	if (weights == NULL)
		return gg_fail(GG_ENOMEM, __func__, "out of memory for codes of %u dimensions", shape->dim);
	for (uint64_t i = 0; i < count; i++)
		weights[i] = gg_code_weight(shape->code_seed, shape->dim, (uint32_t) (i / shape->dim),
									(uint32_t) (i % shape->dim));
	status = gg_cuda_copy_in(index->code_weights, weights, count * sizeof(float),
							 index->stream.get(), NULL);
	free(weights);
	return status;
}

static gg_status
create(const gg_shape *shape, bool halves, gg_index *index)
{
	fill_layout layout = layout_for(shape, halves);
	search_view *view = &index->view;
	char	   *memory;

	index->shape = *shape;
	GG_TRY(search_device_find(&index->device));
	GG_TRY(index->stream.create());
	GG_TRY(index->memory.allocate(layout.bytes));
	GG_TRY(index->walk_rows.allocate((uint64_t) shape->capacity * layout.walk_stride));
	memory = index->memory.get();
	if (shape->rows > 0)
		index->heads = (uint64_t *) (memory + layout.heads);
	if (shape->offsets)
		index->offsets = (uint32_t *) (memory + layout.offsets);
	if (shape->words > 0)
		index->words = (int64_t *) (memory + layout.words);
	view->dim = shape->dim;
	view->metric = shape->metric;
	view->element = shape->element;
	view->scale = 1;
	GG_TRY(place_rows(index, &layout));
	view->walk_rows = view->rows;
	view->walk_stride = view->row_stride;
	if (shape->degree == 0)
		return gg_ok();

	index->adjacency = (uint32_t *) (memory + layout.adjacency);
	index->pivots = (uint32_t *) (memory + layout.pivots);
	index->pivot_entries = (uint32_t *) (memory + layout.pivot_entries);
	index->pivot_rows = memory + layout.pivot_rows;
	if (layout.has_norms)
	{
		index->pivot_norms = (float *) (memory + layout.pivot_norms);
		index->norms = (float *) (memory + layout.norms);
	}
	index->mean = (float *) (memory + layout.mean);
	index->range = (double *) (memory + layout.range);
	view->degree = shape->degree;
	view->npivots = shape->npivots;
	view->adjacency = index->adjacency;
	view->pivots = index->pivots;
	return shape->codes != GG_CODES_NONE ? place_codes(index, &layout) : gg_ok();
}

/* gg_engine.index_create */
gg_status
gg_cuda_index_create(const gg_shape *shape, gg_index **index)
{
	gg_index   *created;
	gg_status	status;

	*index = NULL;
	GG_TRY(check_shape(shape));
	created = new (std::nothrow) gg_index;
	if (created == NULL)
		return gg_fail(GG_ENOMEM, __func__, "out of memory");
	status = create(shape, true, created);
	if (status.code != GG_OK)
	{
		delete created;
		return status;
	}
	*index = created;
	return status;
}

void
gg_cuda_index_close(gg_index *index)
{
	if (index == NULL)
		return;
	/* the thread that closes may be another than the one that opened */
	(void) cudaSetDevice(index->device.ordinal);
	delete index;
}

/* gg_engine.shape_bytes; 0 for what index_create() refuses */
uint64_t
gg_cuda_shape_bytes(const gg_shape *shape)
{
	fill_layout layout;

	if (check_shape(shape).code != GG_OK)
		return 0;
	layout = layout_for(shape, true);
	return layout.bytes + (uint64_t) shape->capacity * layout.walk_stride;
}

/* gg_engine.index_bytes; scratch is not counted: it belongs to searches */
uint64_t
gg_cuda_index_bytes(const gg_index *index)
{
	return index->memory.bytes() + index->walk_rows.bytes();
}

/* ---- finishing ------------------------------------------------------------------ */

gg_status
index_code_rows(gg_index *index, const char *from, size_t stride, uint64_t first, uint32_t n,
				cudaStream_t stream)
{
	const code_rows rows = {from, stride, n,
		index->walk_rows.get() + first * index->view.walk_stride};

	GG_CUDA_TRY(search_codes_launch(&index->view, &rows, &index->device, stream));
	return gg_ok();
}

/* The same as prepare() with codes. */
static gg_status
prepare_codes(gg_index *index)
{
	const uint32_t blocks = (uint32_t) index->device.sms * 8;
	search_view *view = &index->view;
	search_view *pivots = &index->pivot_view;
	cudaStream_t stream = index->stream.get();

	if (view->rows != NULL)
		GG_TRY(index_code_rows(index, view->rows, view->row_stride, 0, view->n, stream));
	view->pivot_rows = index->pivot_rows;
	pack_pivots_kernel<<<blocks, 256, 0, stream>>>(*view, index->pivots, index->pivot_rows,
												   (float *) NULL);
	GG_CUDA_LAUNCHED("pack_pivots_kernel");
	*pivots = *view;
	if (view->path == WALK_CODE_L1)
		return gg_ok();
	pivots->path = WALK_HALF_DOT;
	pivots->pivot_rows = index->pivot_halves;
	pivots->walk_quads = (view->dim * 2 + 15) / 16;
	pivots->walk_pad = (pivots->walk_quads + 3) / 4 * 32;
	pivots->walk_stride = layout_for(&index->shape, false).half_stride;
	GG_CUDA_TRY(search_code_pivots_launch(view, index->pivot_halves, pivots->walk_stride,
										  &index->device, stream));
	return gg_ok();
}

/* Make what the walk reads in addition to the rows as they were given; view->n > 0. */
static gg_status
prepare(gg_index *index)
{
	const gg_shape *shape = &index->shape;
	search_view *view = &index->view;
	cudaStream_t stream = index->stream.get();
	const uint32_t blocks = (uint32_t) index->device.sms * 8;
	uint32_t	element_bytes = 2;

	if (shape->element == GG_ELEMENT_F16)
		view->path = shape->metric == GG_METRIC_L1 ? WALK_HALF_L1 : WALK_HALF_DOT;
	else
	{
		GG_TRY(index_choose_path(index));
		if (view->path == WALK_HALF_DOT || view->path == WALK_HALF_L1)
		{
			view->walk_stride = padded((size_t) view->dim * 2);
			halve_kernel<<<blocks, 256, 0, stream>>>(*view, index->walk_rows.get());
			GG_CUDA_LAUNCHED("halve_kernel");
			view->walk_rows = index->walk_rows.get();
		}
		else
		{
			index->walk_rows.release();
			element_bytes = 4;
		}
	}
	view->walk_quads = (view->dim * element_bytes + 15) / 16;
	view->walk_pad = (view->walk_quads + 3) / 4 * (64 / element_bytes);

	if (view->path == WALK_HALF_DOT &&
		(shape->metric == GG_METRIC_L2 ||
		 (shape->metric == GG_METRIC_COSINE && shape->element == GG_ELEMENT_F16)))
	{
		norms_kernel<<<blocks, 256, 0, stream>>>
			(view->walk_rows, view->walk_stride, view->n, view->dim,
			 shape->metric == GG_METRIC_COSINE, index->norms);
		GG_CUDA_LAUNCHED("norms_kernel");
		view->norms = index->norms;
	}
	view->pivot_rows = index->pivot_rows;
	view->pivot_norms = view->norms != NULL ? index->pivot_norms : NULL;
	pack_pivots_kernel<<<blocks, 256, 0, stream>>>(*view, index->pivots, index->pivot_rows,
												   view->norms != NULL ? index->pivot_norms : NULL);
	GG_CUDA_LAUNCHED("pack_pivots_kernel");
	return gg_ok();
}

/* Load the code of searches over this index. */
static gg_status
load_kernels(const gg_index *index)
{
	GG_CUDA_TRY(search_exact_ready(&index->view, &index->device));
	GG_CUDA_TRY(search_prune_ready(&index->view, &index->device));
	GG_CUDA_TRY(search_gather_ready());
	GG_CUDA_TRY(search_deep_ready(&index->view, &index->device));
	if (index->shape.degree == 0 || index->view.n == 0)
		return gg_ok();
	GG_CUDA_TRY(search_single_ready(&index->view, &index->device));
	GG_CUDA_TRY(search_multi_ready(&index->view, &index->device));
	GG_CUDA_TRY(search_group_ready(&index->view, &index->device));
	GG_CUDA_TRY(search_pivots_ready(&index->view, &index->device));
	return gg_ok();
}

/* Make the index searchable.  unpack: pivots came as a segment has them, not as node ids. */
static gg_status
finish(gg_index *index, uint32_t n, bool unpack, const gg_control *control)
{
	cudaStream_t stream = index->stream.get();

	GG_TRY(gg_cuda_check_cancel(control, __func__));
	index->view.n = n;
	if (index->shape.degree > 0 && n > 0)
	{
		if (unpack)
		{
			unpack_pivots_kernel<<<(index->shape.npivots + 255) / 256, 256, 0, stream>>>
				(index->pivot_entries, index->shape.npivots, index->pivots);
			GG_CUDA_LAUNCHED("unpack_pivots_kernel");
		}
		if (index->shape.codes != GG_CODES_NONE)
			GG_TRY(prepare_codes(index));
		else
			GG_TRY(prepare(index));
	}
	GG_TRY(load_kernels(index));
	GG_CUDA_TRY(cudaStreamSynchronize(stream));
	index->finished = true;
	return gg_ok();
}

/* gg_engine.index_finish */
gg_status
gg_cuda_index_finish(gg_index *index, uint32_t n, const gg_control *control)
{
	if (index->finished || n > index->shape.capacity)
		return gg_fail(GG_EINVAL, __func__, "%u rows of %u%s", n, index->shape.capacity,
					   index->finished ? ", and the index is finished" : "");
	GG_CUDA_TRY(cudaSetDevice(index->device.ordinal));
	return finish(index, n, true, control);
}

/* For build.cu: the rows of an index that is not finished and has no graph. */
gg_status
gg_cuda_index_rows(gg_index *index, uint32_t n, gg_dataset *rows, size_t *stride)
{
	if (index->finished || index->shape.degree > 0 || n > index->shape.capacity)
		return gg_fail(GG_EINVAL, __func__, "%u of %u rows, degree %u%s", n, index->shape.capacity,
					   index->shape.degree, index->finished ? ", finished" : "");
	GG_CUDA_TRY(cudaSetDevice(index->device.ordinal));
	rows->rows = index->rows;
	rows->n = n;
	rows->dim = index->shape.dim;
	rows->element = index->shape.element;
	rows->metric = index->shape.metric;
	*stride = index->view.row_stride;
	return gg_ok();
}

/* ---- opening ---------------------------------------------------------------------- */

static gg_status
open_with(const gg_dataset *data, const gg_graph *graph, const gg_shape *shape,
		  const gg_control *control, gg_index *index)
{
	uint64_t	free_bytes = 0;
	uint64_t	total_bytes = 0;
	cudaStream_t stream;

	GG_TRY(search_device_find(&index->device));
	GG_TRY(gg_cuda_memory(&free_bytes, &total_bytes));
	GG_TRY(create(shape, free_bytes >= gg_cuda_shape_bytes(shape) + RESERVE_BYTES, index));
	stream = index->stream.get();
	GG_TRY(index_copy_rows(index, 0, (const char *) data->rows,
						   (uint64_t) data->n * shape_row_bytes(shape), control));
	if (shape->degree > 0)
	{
		GG_TRY(gg_cuda_copy_in(index->adjacency, graph->adjacency,
							   (uint64_t) graph->n * graph->degree * 4, stream, control));
		GG_TRY(gg_cuda_copy_in(index->pivots, graph->pivots, (uint64_t) graph->npivots * 4, stream,
							   control));
	}
	return finish(index, data->n, false, control);
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
	gg_shape	shape;
	gg_status	status;

	*index = NULL;
	if (graph != NULL && (graph->n != data->n || graph->degree > GG_MAX_DEGREE ||
						  (graph->n > 0 && (graph->npivots < 1 || graph->degree < 1))))
		return gg_fail(GG_EINVAL, __func__,
					   "a graph of %u nodes, degree %u, %u pivots does not fit %u rows", graph->n,
					   graph->degree, graph->npivots, data->n);
	memset(&shape, 0, sizeof(shape));
	shape.capacity = data->n;
	shape.dim = data->dim;
	shape.element = data->element;
	shape.metric = data->metric;
	if (graph != NULL && data->n > 0)
	{
		shape.degree = graph->degree;
		shape.npivots = graph->npivots;
	}
	GG_TRY(check_shape(&shape));
	opened = new (std::nothrow) gg_index;
	if (opened == NULL)
		return gg_fail(GG_ENOMEM, __func__, "out of memory");
	status = open_with(data, graph, &shape, control, opened);
	if (status.code != GG_OK)
	{
		delete opened;
		return status;
	}
	*index = opened;
	return status;
}
