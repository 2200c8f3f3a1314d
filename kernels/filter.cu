/*
 * filter.cu
 *		Which nodes match a filter (gg_filter, engine.h): bits for exact.cu and deep.cu.
 *
 * Shapes		heads rows x 8 bytes, of each filter word rows x 8 bytes, offsets (n + 1) x 4 or
 *				none -> ceil(n / 32) words of node bits, and the number of rows that match.
 * Requires		A filter that gg_serve_check_filter() has let through.
 * Mapping		A thread a row.  A warp's ballot is a word of bits.  Where nodes have offsets
 *				these are bits of rows, and a second launch makes those of nodes, a thread a node.
 * Shared		None.  Conditions and a few values are the kernel's parameter; longer lists of
 *				values are copied to device memory before, as TIDs are.
 * Oracle		gg_filter_rows(): the same bits.
 * Cost			Memory: 8 bytes a row, and 8 for each word that conditions name.  TIDs add a binary
 *				search of each row that passed the conditions, in the L2 cache.
 */
#include "index.cuh"
#include "launch.cuh"

#define THREADS 256
#define FEW_VALUES 64			/* that need no copy: most filters have two */
#define BLOCKS_PER_SM 8

typedef struct filter_args
{
	uint32_t	nconditions;
	gg_condition conditions[GG_MAX_CONDITIONS];
	int64_t		few[FEW_VALUES];
	const int64_t *many;		/* NULL: the values are in few */
	const uint64_t *tids;		/* NULL: any TID */
	uint32_t	ntids;
	const uint64_t *heads;
	const int64_t *words;
	uint32_t	stride;			/* rows from one word's values to the next one's */
	const uint32_t *end;		/* of the rows, at most stride; NULL: nrows */
	uint32_t	nrows;
} filter_args;

static __device__ __forceinline__ int64_t
filter_value(const filter_args &args, uint32_t i)
{
	return args.many != NULL ? __ldg((const long long *) args.many + i) : args.few[i];
}

/* gg_tid_key() */
static __device__ __forceinline__ uint64_t
tid_key(uint64_t head)
{
	return (head & 0xFFFF) << 32 | (head >> 16 & 0xFFFF) << 16 | (head >> 32 & 0xFFFF);
}

static __device__ __forceinline__ bool
is_tid(const filter_args &args, uint64_t tid)
{
	uint32_t	low = 0;
	uint32_t	high = args.ntids;

	while (low < high)
	{
		uint32_t	middle = low + (high - low) / 2;

		if (__ldg((const unsigned long long *) args.tids + middle) < tid)
			low = middle + 1;
		else
			high = middle;
	}
	return low < args.ntids && __ldg((const unsigned long long *) args.tids + low) == tid;
}

static __device__ __forceinline__ bool
is_value(const filter_args &args, const gg_condition &condition, int64_t word)
{
	uint32_t	low = condition.first_value;
	uint32_t	end = condition.first_value + condition.nvalues;
	uint32_t	high = end;

	while (low < high)
	{
		uint32_t	middle = low + (high - low) / 2;

		if (filter_value(args, middle) < word)
			low = middle + 1;
		else
			high = middle;
	}
	return low < end && filter_value(args, low) == word;
}

static __device__ __forceinline__ bool
has_mask(const filter_args &args, const gg_condition &condition, const int64_t *word)
{
	int64_t		words[GG_MASK_WORDS];

#pragma unroll
	for (int w = 0; w < GG_MASK_WORDS; w++)
		words[w] = word[(size_t) w * args.stride];
	for (uint32_t m = 0; m + GG_MASK_WORDS <= condition.nvalues; m += GG_MASK_WORDS)
	{
		int64_t		missing = 0;

#pragma unroll
		for (int w = 0; w < GG_MASK_WORDS; w++)
			missing |= filter_value(args, condition.first_value + m + w) & ~words[w];
		if (missing == 0)
			return true;
	}
	return false;
}

static __device__ __forceinline__ bool
row_matches(const filter_args &args, uint32_t row)
{
	const uint64_t head = args.heads[row];
	const uint64_t tid = tid_key(head);

	if ((tid & 0xFFFF) == 0)
		return false;
	for (uint32_t i = 0; i < args.nconditions; i++)
	{
		const gg_condition &condition = args.conditions[i];
		const bool	null = (head >> (48 + condition.column) & 1) != 0;
		const int64_t *word = args.words + (size_t) condition.word * args.stride + row;
		bool		match = true;

		if (condition.kind == GG_CONDITION_NULL)
			match = null;
		else if (null)
			match = false;
		else if (condition.kind == GG_CONDITION_RANGE)
			match = filter_value(args, condition.first_value) <= *word &&
				*word <= filter_value(args, condition.first_value + 1);
		else if (condition.kind == GG_CONDITION_IN)
			match = is_value(args, condition, *word);
		else if (condition.kind == GG_CONDITION_MASK)
			match = has_mask(args, condition, word);
		if (!match)
			return false;
	}
	return args.tids == NULL || is_tid(args, tid);
}

__global__ void __launch_bounds__(THREADS)
filter_rows_kernel(const __grid_constant__ filter_args args, uint32_t *bits,
				   unsigned long long *matches)
{
	const uint32_t nrows = args.end != NULL ? min(*args.end, args.stride) : args.nrows;
	const uint32_t lane = threadIdx.x & 31;
	uint32_t	found = 0;

	/* 64 bits: the last block's numbers may pass the end of 32 */
	for (uint64_t base = (uint64_t) blockIdx.x * THREADS; base < nrows;
		 base += (uint64_t) gridDim.x * THREADS)
	{
		uint64_t	row = base + threadIdx.x;
		uint32_t	word = __ballot_sync(GG_FULL_WARP,
										 row < nrows && row_matches(args, (uint32_t) row));

		if (lane == 0 && row < nrows)
			bits[row / 32] = word;
		found += __popc(word);
	}
	if (lane == 0 && found > 0)
		atomicAdd(matches, (unsigned long long) found);
}

/* Is one of bits [begin, end) set? */
static __device__ __forceinline__ bool
any_bit(const uint32_t *bits, uint32_t begin, uint32_t end)
{
	while (begin < end)
	{
		uint32_t	word = bits[begin / 32] >> (begin % 32);
		uint32_t	count = min(32 - begin % 32, end - begin);

		if (count < 32)
			word &= (1u << count) - 1;
		if (word != 0)
			return true;
		begin += count;
	}
	return false;
}

/* offsets come from pages, so they may be anything: rows that are not there are left out. */
__global__ void __launch_bounds__(THREADS)
filter_nodes_kernel(const uint32_t *offsets, uint32_t n, uint32_t rows, const uint32_t *row_bits,
					uint32_t *bits)
{
	const uint32_t nrows = min(offsets[n], rows);

	for (uint64_t base = (uint64_t) blockIdx.x * THREADS; base < n;
		 base += (uint64_t) gridDim.x * THREADS)
	{
		uint64_t	node = base + threadIdx.x;
		bool		match = node < n &&
			any_bit(row_bits, offsets[node], min(offsets[node + 1], nrows));
		uint32_t	word = __ballot_sync(GG_FULL_WARP, match);

		if ((threadIdx.x & 31) == 0 && node < n)
			bits[node / 32] = word;
	}
}

cudaError_t
search_filter_ready(void)
{
	cudaError_t error = kernel_load((const void *) filter_rows_kernel);

	return error == cudaSuccess ? kernel_load((const void *) filter_nodes_kernel) : error;
}

/* What the filter has in host memory, brought to the device as far as it is no parameter. */
static gg_status
bring_filter(const gg_filter *filter, deep_scratch *scratch, filter_args *args,
			 cudaStream_t stream)
{
	memset(args, 0, sizeof(*args));
	args->nconditions = filter->nconditions;
	memcpy(args->conditions, filter->conditions, filter->nconditions * sizeof(gg_condition));
	if (filter->nvalues <= FEW_VALUES)
		memcpy(args->few, filter->values, filter->nvalues * sizeof(int64_t));
	else
	{
		GG_TRY(grow(scratch->values, GG_MAX_FILTER_VALUES, stream));
		GG_CUDA_TRY(cudaMemcpyAsync(scratch->values.get(), filter->values,
									filter->nvalues * sizeof(int64_t), cudaMemcpyDefault, stream));
		args->many = scratch->values.get();
	}
	if (filter->tids == NULL)
		return gg_ok();
	GG_TRY(grow(scratch->tids, GG_MAX_FILTER_TIDS, stream));
	GG_CUDA_TRY(cudaMemcpyAsync(scratch->tids.get(), filter->tids,
								filter->ntids * sizeof(uint64_t), cudaMemcpyDefault, stream));
	args->tids = scratch->tids.get();
	args->ntids = filter->ntids;
	return gg_ok();
}

static uint32_t
blocks_for(const search_device *device, uint32_t items)
{
	uint32_t	blocks = items / THREADS + 1;
	uint32_t	most = (uint32_t) device->sms * BLOCKS_PER_SM;

	return blocks < most ? blocks : most;
}

gg_status
search_filter_queue(const gg_index *index, const gg_filter *filter, deep_scratch *scratch,
					unsigned long long *matches, const uint32_t **bits, cudaStream_t stream)
{
	const gg_shape *shape = &index->shape;
	const uint32_t n = index->view.n;
	const uint64_t node_words = (n + 31) / 32;
	const uint64_t row_words = shape->offsets ? ((uint64_t) shape->rows + 31) / 32 : 0;
	filter_args args;
	uint32_t   *node_bits;

	GG_TRY(bring_filter(filter, scratch, &args, stream));
	GG_TRY(grow(scratch->bits, node_words + row_words, stream));
	node_bits = scratch->bits.get();
	args.heads = index->heads;
	args.words = index->words;
	args.stride = shape->rows;
	args.nrows = n;
	args.end = shape->offsets ? index->offsets + n : NULL;
	GG_CUDA_TRY(cudaMemsetAsync(matches, 0, sizeof(*matches), stream));
	filter_rows_kernel<<<blocks_for(&index->device, shape->rows), THREADS, 0, stream>>>
		(args, shape->offsets ? node_bits + node_words : node_bits, matches);
	GG_CUDA_LAUNCHED("filter_rows_kernel");
	if (shape->offsets)
	{
		filter_nodes_kernel<<<blocks_for(&index->device, n), THREADS, 0, stream>>>
			(index->offsets, n, shape->rows, node_bits + node_words, node_bits);
		GG_CUDA_LAUNCHED("filter_nodes_kernel");
	}
	*bits = node_bits;
	return gg_ok();
}
