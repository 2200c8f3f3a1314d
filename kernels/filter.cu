/*
 * filter.cu
 *		Which nodes match a filter (gg_filter, engine.h): bits for exact.cu and deep.cu.
 *
 * Shapes		heads rows x 8 bytes, of each filter word rows x 8 bytes, offsets (n + 1) x 4 or
 *				none -> ceil(n / 32) words of node bits, and the number of rows that match.
 * Requires		A filter that gg_serve_check_filter() has let through.
 * Mapping		A thread takes four rows.  A warp's ballot is a word of bits.  Where nodes have
 *				offsets these are bits of rows, and a second launch makes those of nodes, one thread
 *				per node.  Several small filters are evaluated one after the other while rows are at
 *				hand.
 * Shared		Counters.  Conditions and a few values are the kernel's parameter; longer lists of
 *				values are copied to device memory before, as TIDs are.
 * Oracle		gg_filter_rows(): the same bits.
 * Cost			Memory: 8 bytes per row, and 8 for each word that conditions name.  TIDs add a
 *				binary search of each row that passed the conditions, in the L2 cache.
 */
#include "index.cuh"
#include "launch.cuh"

#define THREADS 256
#define ROWS 4					/* of a thread at a time */
#define FEW_VALUES 64			/* that need no copy: most filters have two */
#define SMALL_CONDITIONS 4		/* of a filter that is evaluated beside others */
#define SMALL_VALUES 16
#define BLOCKS_PER_SM 8

/* Bits of all filters of a launch, bytes: as many filters are evaluated together. */
#define MOST_BITS ((uint64_t) 64 << 20)

typedef struct filter_rows
{
	const uint64_t *heads;
	const int64_t *words;
	uint32_t	stride;			/* rows from one word's values to the next one's */
	const uint32_t *end;		/* of the rows, at most stride; NULL: nrows */
	uint32_t	nrows;
} filter_rows;

typedef struct any_filter
{
	uint32_t	nconditions;
	gg_condition conditions[GG_MAX_CONDITIONS];
	int64_t		few[FEW_VALUES];
	const int64_t *many;		/* NULL: the values are in few */
	const uint64_t *tids;		/* NULL: any TID */
	uint32_t	ntids;
} any_filter;

typedef struct small_filter
{
	uint32_t	nconditions;
	gg_condition conditions[SMALL_CONDITIONS];
	int64_t		values[SMALL_VALUES];
} small_filter;

template <typename FILTER, int MOST>
struct filter_args
{
	filter_rows rows;
	uint32_t	count;			/* filters */
	uint32_t	words;			/* from one filter's bits to the next one's */
	FILTER		filters[MOST];
};

typedef filter_args<any_filter, 1> one_filter;
typedef filter_args<small_filter, GG_SERVE_MAX_DEEPS> several_filters;

static_assert(sizeof(several_filters) + 16 <= 4096, "what every driver takes for parameters");

static __device__ __forceinline__ int64_t
filter_value(const any_filter &filter, uint32_t i)
{
	return filter.many != NULL ? __ldg((const long long *) filter.many + i) : filter.few[i];
}

static __device__ __forceinline__ int64_t
filter_value(const small_filter &filter, uint32_t i)
{
	return filter.values[i];
}

/* gg_tid_key() */
static __device__ __forceinline__ uint64_t
tid_key(uint64_t head)
{
	return (head & 0xFFFF) << 32 | (head >> 16 & 0xFFFF) << 16 | (head >> 32 & 0xFFFF);
}

static __device__ __forceinline__ bool
is_tid(const small_filter &filter, uint64_t tid)
{
	return true;
}

static __device__ __forceinline__ bool
is_tid(const any_filter &filter, uint64_t tid)
{
	uint32_t	low = 0;
	uint32_t	high = filter.ntids;

	if (filter.tids == NULL)
		return true;
	while (low < high)
	{
		uint32_t	middle = low + (high - low) / 2;

		if (__ldg((const unsigned long long *) filter.tids + middle) < tid)
			low = middle + 1;
		else
			high = middle;
	}
	return low < filter.ntids && __ldg((const unsigned long long *) filter.tids + low) == tid;
}

template <typename FILTER>
static __device__ __forceinline__ bool
is_value(const FILTER &filter, const gg_condition &condition, int64_t word)
{
	uint32_t	low = condition.first_value;
	uint32_t	end = condition.first_value + condition.nvalues;
	uint32_t	high = end;

	while (low < high)
	{
		uint32_t	middle = low + (high - low) / 2;

		if (filter_value(filter, middle) < word)
			low = middle + 1;
		else
			high = middle;
	}
	return low < end && filter_value(filter, low) == word;
}

template <typename FILTER>
static __device__ __forceinline__ bool
has_mask(const filter_rows &rows, const FILTER &filter, const gg_condition &condition,
		 const int64_t *word)
{
	int64_t		words[GG_MASK_WORDS];

#pragma unroll
	for (int w = 0; w < GG_MASK_WORDS; w++)
		words[w] = word[(size_t) w * rows.stride];
	for (uint32_t m = 0; m + GG_MASK_WORDS <= condition.nvalues; m += GG_MASK_WORDS)
	{
		int64_t		missing = 0;

#pragma unroll
		for (int w = 0; w < GG_MASK_WORDS; w++)
			missing |= filter_value(filter, condition.first_value + m + w) & ~words[w];
		if (missing == 0)
			return true;
	}
	return false;
}

/* Of a row whose column is not NULL. */
template <typename FILTER>
static __device__ __forceinline__ bool
word_matches(const filter_rows &rows, const FILTER &filter, const gg_condition &condition,
			 const int64_t *word)
{
	if (condition.kind == GG_CONDITION_IN)
		return is_value(filter, condition, *word);
	if (condition.kind == GG_CONDITION_MASK)
		return has_mask(rows, filter, condition, word);
	return true;
}

/* Which of ROWS rows match, THREADS apart, of which row is the first: a bit each. */
template <typename FILTER>
static __device__ __forceinline__ uint32_t
rows_match(const filter_rows &rows, const FILTER &filter, uint64_t row,
		   const uint64_t (&heads)[ROWS])
{
	uint32_t	match = 0;

#pragma unroll
	for (int r = 0; r < ROWS; r++)
		if ((tid_key(heads[r]) & 0xFFFF) != 0)
			match |= 1u << r;
	/* a condition is read once for all of them: that takes longer than to evaluate it */
	for (uint32_t i = 0; i < filter.nconditions; i++)
	{
		const gg_condition &condition = filter.conditions[i];
		const int64_t *word = rows.words + (size_t) condition.word * rows.stride + row;
		uint32_t	null = 0;

#pragma unroll
		for (int r = 0; r < ROWS; r++)
			null |= (uint32_t) (heads[r] >> (48 + condition.column) & 1) << r;
		if (condition.kind == GG_CONDITION_NULL)
		{
			match &= null;
			continue;
		}
		match &= ~null;
		if (condition.kind == GG_CONDITION_RANGE)
		{
			const int64_t least = filter_value(filter, condition.first_value);
			const int64_t most = filter_value(filter, condition.first_value + 1);

#pragma unroll
			for (int r = 0; r < ROWS; r++)
			{
				int64_t		value = match >> r & 1 ? word[r * THREADS] : least;

				if (value < least || value > most)
					match &= ~(1u << r);
			}
		}
		else if (condition.kind != GG_CONDITION_NOT_NULL)
#pragma unroll 1
			for (int r = 0; r < ROWS; r++)
				if ((match >> r & 1) != 0 &&
					!word_matches(rows, filter, condition, word + r * THREADS))
					match &= ~(1u << r);
		if (match == 0)
			return 0;
	}
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		if ((match >> r & 1) != 0 && !is_tid(filter, tid_key(heads[r])))
			match &= ~(1u << r);
	return match;
}

/* matches: of each filter, 0 before. */
template <typename FILTER, int MOST>
__global__ void __launch_bounds__(THREADS)
filter_rows_kernel(const __grid_constant__ filter_args<FILTER, MOST> args, uint32_t *bits,
				   unsigned long long *matches)
{
	__shared__ uint32_t found[MOST];
	const filter_rows &rows = args.rows;
	const uint32_t nrows = rows.end != NULL ? min(*rows.end, rows.stride) : rows.nrows;
	const uint32_t lane = threadIdx.x & 31;

	if (threadIdx.x < MOST)
		found[threadIdx.x] = 0;
	__syncthreads();
	/* 64 bits: the last block's numbers may pass the end of 32 */
	for (uint64_t base = (uint64_t) blockIdx.x * THREADS * ROWS; base < nrows;
		 base += (uint64_t) gridDim.x * THREADS * ROWS)
	{
		const uint64_t row = base + threadIdx.x;
		uint64_t	heads[ROWS];

		/* a head of zeros names no row */
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			heads[r] = row + r * THREADS < nrows ? rows.heads[row + r * THREADS] : 0;
		for (uint32_t f = 0; f < args.count; f++)
		{
			const uint32_t match = rows_match(rows, args.filters[f], row, heads);
			uint32_t	count = 0;

#pragma unroll
			for (int r = 0; r < ROWS; r++)
			{
				uint32_t	word = __ballot_sync(GG_FULL_WARP, match >> r & 1);

				if (lane == 0 && row + r * THREADS < nrows)
					bits[(size_t) f * args.words + (row + r * THREADS) / 32] = word;
				count += __popc(word);
			}
			if (lane == 0 && count > 0)
				atomicAdd(&found[f], count);
		}
	}
	__syncthreads();
	if (threadIdx.x < args.count && found[threadIdx.x] > 0)
		atomicAdd(&matches[threadIdx.x], (unsigned long long) found[threadIdx.x]);
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

/*
 * Grid: y over the filters, whose bits of rows and of nodes are `words` apart.  offsets come from
 * pages, so they may be anything: rows that are not there are left out.
 */
__global__ void __launch_bounds__(THREADS)
filter_nodes_kernel(const uint32_t *offsets, uint32_t n, uint32_t rows, uint32_t words,
					const uint32_t *row_bits, uint32_t *bits)
{
	const uint32_t nrows = min(offsets[n], rows);

	row_bits += (size_t) blockIdx.y * words;
	bits += (size_t) blockIdx.y * words;
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
	cudaError_t error = kernel_load((const void *) filter_rows_kernel<any_filter, 1>);

	if (error == cudaSuccess)
		error = kernel_load((const void *) filter_rows_kernel<small_filter, GG_SERVE_MAX_DEEPS>);
	return error == cudaSuccess ? kernel_load((const void *) filter_nodes_kernel) : error;
}

/* What the filter has in host memory, brought to the device as far as it is no parameter. */
static gg_status
bring_filter(const gg_filter *filter, deep_scratch *scratch, any_filter *to, cudaStream_t stream)
{
	to->nconditions = filter->nconditions;
	memcpy(to->conditions, filter->conditions, filter->nconditions * sizeof(gg_condition));
	if (filter->nvalues <= FEW_VALUES)
		memcpy(to->few, filter->values, filter->nvalues * sizeof(int64_t));
	else
	{
		GG_TRY(grow(scratch->values, GG_MAX_FILTER_VALUES, stream));
		GG_CUDA_TRY(cudaMemcpyAsync(scratch->values.get(), filter->values,
									filter->nvalues * sizeof(int64_t), cudaMemcpyDefault, stream));
		to->many = scratch->values.get();
	}
	if (filter->tids == NULL)
		return gg_ok();
	GG_TRY(grow(scratch->tids, GG_MAX_FILTER_TIDS, stream));
	GG_CUDA_TRY(cudaMemcpyAsync(scratch->tids.get(), filter->tids,
								filter->ntids * sizeof(uint64_t), cudaMemcpyDefault, stream));
	to->tids = scratch->tids.get();
	to->ntids = filter->ntids;
	return gg_ok();
}

static uint32_t
blocks_for(const search_device *device, uint32_t items)
{
	uint32_t	blocks = items / THREADS + 1;
	uint32_t	most = (uint32_t) device->sms * BLOCKS_PER_SM;

	return blocks < most ? blocks : most;
}

/* Words of one filter's bits: those of nodes, and before them of rows where nodes have offsets. */
static uint32_t
bits_words(const gg_index *index)
{
	return (uint32_t) (((uint64_t) index->view.n + 31) / 32 +
					   (index->shape.offsets ? ((uint64_t) index->shape.rows + 31) / 32 : 0));
}

/* The filters and their count are set; room: filters that bits are made for when they must grow. */
template <typename FILTER, int MOST>
static gg_status
queue_filters(const gg_index *index, filter_args<FILTER, MOST> *args, uint32_t room,
			  deep_scratch *scratch, unsigned long long *matches, cudaStream_t stream)
{
	const gg_shape *shape = &index->shape;
	const uint32_t n = index->view.n;
	uint32_t   *nodes;
	uint32_t   *rows;

	args->words = bits_words(index);
	GG_TRY(grow(scratch->bits, (uint64_t) args->words * room, stream));
	nodes = scratch->bits.get();
	rows = shape->offsets ? nodes + (n + 31) / 32 : nodes;
	args->rows.heads = index->heads;
	args->rows.words = index->words;
	args->rows.stride = shape->rows;
	args->rows.nrows = n;
	args->rows.end = shape->offsets ? index->offsets + n : NULL;
	filter_rows_kernel<FILTER, MOST><<<blocks_for(&index->device, (shape->rows + ROWS - 1) / ROWS),
		THREADS, 0, stream>>>(*args, rows, matches);
	GG_CUDA_LAUNCHED("filter_rows_kernel");
	if (shape->offsets)
	{
		filter_nodes_kernel<<<dim3(blocks_for(&index->device, n), args->count), THREADS, 0,
			stream>>>(index->offsets, n, shape->rows, args->words, rows, nodes);
		GG_CUDA_LAUNCHED("filter_nodes_kernel");
	}
	return gg_ok();
}

gg_status
search_filter_queue(const gg_index *index, const gg_filter *filter, deep_scratch *scratch,
					unsigned long long *matches, const uint32_t **bits, cudaStream_t stream)
{
	one_filter	args;

	memset(&args, 0, sizeof(args));
	args.count = 1;
	GG_TRY(bring_filter(filter, scratch, &args.filters[0], stream));
	GG_TRY(queue_filters(index, &args, 1, scratch, matches, stream));
	*bits = scratch->bits.get();
	return gg_ok();
}

uint32_t
search_filters_together(const gg_index *index)
{
	uint64_t	most = MOST_BITS / ((uint64_t) bits_words(index) * 4 + 1);

	return most < 1 ? 1 : most > GG_SERVE_MAX_DEEPS ? GG_SERVE_MAX_DEEPS : (uint32_t) most;
}

bool
search_filter_is_small(const gg_filter *filter)
{
	return filter != NULL && filter->tids == NULL && filter->nconditions <= SMALL_CONDITIONS &&
		filter->nvalues <= SMALL_VALUES;
}

gg_status
search_filters_queue(const gg_index *index, const gg_filter *const *filters, uint32_t count,
					 deep_scratch *scratch, unsigned long long *matches, const uint32_t **bits,
					 uint32_t *stride, cudaStream_t stream)
{
	several_filters args;

	memset(&args, 0, sizeof(args));
	args.count = count;
	for (uint32_t f = 0; f < count; f++)
	{
		small_filter *to = &args.filters[f];

		to->nconditions = filters[f]->nconditions;
		memcpy(to->conditions, filters[f]->conditions, to->nconditions * sizeof(gg_condition));
		memcpy(to->values, filters[f]->values, filters[f]->nvalues * sizeof(int64_t));
	}
	GG_TRY(queue_filters(index, &args, search_filters_together(index), scratch, matches, stream));
	*bits = scratch->bits.get();
	*stride = args.words;
	return gg_ok();
}
