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
 *				hand.  Where some of these have TIDs, each block first makes a table of them all.  A
 *				look at it says which filters may have a row's TID.  Others leave the row out.
 * Shared		Counters, and that table: 16 kB.  Conditions and a few values are the kernel's
 *				parameter.  Longer lists of values are copied to device memory before.  So are TIDs:
 *				few of them by the batch's first launch (serve.cu), others by a copy of their own.
 * Oracle		gg_filter_rows(): the same bits.
 * Cost			Memory: 8 bytes per row, and 8 for each word that conditions name.  TIDs add a
 *				binary search of each row that passed the conditions, in the caches.  The table
 *				leaves of them, by chance, one row in 80 for a filter of 100 TIDs, and four in 10
 *				for one of 4,096.
 */
#include "../common/warp.cuh"
#include "../search/launch.cuh"
#include "index.cuh"

#define THREADS 256
#define ROWS 4					/* of a thread at a time */
#define FEW_VALUES 64			/* that need no copy: most filters have two */
#define SMALL_CONDITIONS 4		/* of a filter that is evaluated beside others */
#define SMALL_VALUES 16
#define BLOCKS_PER_SM 8

/* The table of several filters' TIDs has 8,192 places of 16 bits. */
#define TABLE_BITS 13
#define TABLE_WORDS ((1u << TABLE_BITS) / 2)
#define TABLE_BLOCKS_PER_SM 4	/* fewer blocks: each makes the table for itself */

/* Bytes of bits of all filters of a launch, at most: they bound how many are evaluated together. */
#define MOST_BITS ((uint64_t) 64 << 20)

typedef struct filter_rows
{
	const uint64_t *heads;
	const int64_t *words;
	uint32_t	stride;			/* rows from one word's values to the next one's */
	const uint32_t *end;		/* the number of rows, at most stride; NULL: nrows */
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

/* A small filter, with TIDs or without. */
struct small_tids_filter : small_filter
{
	const uint64_t *tids;		/* NULL: any TID */
	uint32_t	ntids;
};

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
typedef filter_args<small_tids_filter, GG_SERVE_MAX_DEEPS> several_tids_filters;

static_assert(sizeof(several_filters) + 16 <= 4096 && sizeof(several_tids_filters) + 16 <= 4096,
			  "what every driver takes for parameters");
static_assert(GG_SERVE_MAX_DEEPS <= 16, "a place has a bit for each filter");

/* Are such filters looked up in a table of their TIDs? */
template <typename FILTER>
constexpr bool has_tid_table = std::is_same<FILTER, small_tids_filter>::value;

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
is_one_of(const uint64_t *tids, uint32_t ntids, uint64_t tid)
{
	uint32_t	low = 0;
	uint32_t	high = ntids;

	if (tids == NULL)
		return true;
	while (low < high)
	{
		uint32_t	middle = low + (high - low) / 2;

		if (__ldg((const unsigned long long *) tids + middle) < tid)
			low = middle + 1;
		else
			high = middle;
	}
	return low < ntids && __ldg((const unsigned long long *) tids + low) == tid;
}

static __device__ __forceinline__ bool
is_tid(const any_filter &filter, uint64_t tid)
{
	return is_one_of(filter.tids, filter.ntids, tid);
}

static __device__ __forceinline__ bool
is_tid(const small_filter &filter, uint64_t tid)
{
	return true;
}

static __device__ __forceinline__ bool
is_tid(const small_tids_filter &filter, uint64_t tid)
{
	return is_one_of(filter.tids, filter.ntids, tid);
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

/* Does a row match the condition?  Its column is not NULL. */
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

/*
 * Which of ROWS rows match, THREADS apart, of which row is the first: a bit each.  match: the bits
 * of the rows that may.
 */
template <typename FILTER>
static __device__ __forceinline__ uint32_t
rows_match(const filter_rows &rows, const FILTER &filter, uint64_t row,
		   const uint64_t (&heads)[ROWS], uint32_t match)
{
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

/* ---- the table of TIDs ------------------------------------------------------- */

/* A TID's place.  Consecutive TIDs have places far apart. */
static __device__ __forceinline__ uint32_t
table_place(uint64_t tid)
{
	const uint32_t low = (uint32_t) tid * 0x9E3779B1u;
	const uint32_t high = (uint32_t) (tid >> 32) * 0x85EBCA77u;

	return (low ^ high) >> (32 - TABLE_BITS);
}

/*
 * table: two places a word.  Bit f of a place says that filter f has a TID there.  A thread that
 * has passed the end of a filter's TIDs goes on in the next one's, so all threads have as many.
 */
template <int MOST>
static __device__ __forceinline__ void
make_table(const filter_args<small_tids_filter, MOST> &args, uint32_t *table)
{
	uint32_t	i = threadIdx.x;

	for (uint32_t word = threadIdx.x; word < TABLE_WORDS; word += THREADS)
		table[word] = 0;
	__syncthreads();
	for (uint32_t f = 0; f < args.count; f++)
	{
		const unsigned long long *tids = (const unsigned long long *) args.filters[f].tids;
		const uint32_t ntids = args.filters[f].ntids;

#pragma unroll 4
		for (; i < ntids; i += THREADS)
		{
			const uint32_t place = table_place(__ldg(tids + i));

			atomicOr(&table[place / 2], 1u << (place % 2 * 16 + f));
		}
		i -= ntids;
	}
	__syncthreads();
}

/* Of each row the filters that may have its TID: the lower 16 bits. */
static __device__ __forceinline__ void
look_up(const uint32_t *table, const uint64_t (&heads)[ROWS], uint32_t (&may)[ROWS])
{
#pragma unroll
	for (int r = 0; r < ROWS; r++)
	{
		const uint32_t place = table_place(tid_key(heads[r]));

		may[r] = table[place / 2] >> (place % 2 * 16);
	}
}

/* Of the rows those whose TID filter f may have, by look_up(); all of them if it has no TIDs. */
static __device__ __forceinline__ uint32_t
rows_that_may(const small_tids_filter &filter, uint32_t f, const uint32_t (&may)[ROWS])
{
	uint32_t	rows = 0;

#pragma unroll
	for (int r = 0; r < ROWS; r++)
		rows |= (may[r] >> f & 1) << r;
	return filter.tids != NULL ? rows : (1u << ROWS) - 1;
}

/* ---- kernels ------------------------------------------------------------------ */

/* Of the rows those that are there, and have a TID. */
static __device__ __forceinline__ uint32_t
rows_with_tid(const uint64_t (&heads)[ROWS])
{
	uint32_t	rows = 0;

#pragma unroll
	for (int r = 0; r < ROWS; r++)
		if ((tid_key(heads[r]) & 0xFFFF) != 0)
			rows |= 1u << r;
	return rows;
}

/* Make bits of the rows that match.  matches: their number for each filter, 0 before. */
template <typename FILTER, int MOST>
__global__ void __launch_bounds__(THREADS)
filter_rows_kernel(const __grid_constant__ filter_args<FILTER, MOST> args, uint32_t *bits,
				   unsigned long long *matches)
{
	__shared__ uint32_t found[MOST];
	__shared__ uint32_t table[has_tid_table<FILTER> ? TABLE_WORDS : 1];
	const filter_rows &rows = args.rows;
	const uint32_t nrows = rows.end != NULL ? min(*rows.end, rows.stride) : rows.nrows;
	const uint32_t lane = threadIdx.x & 31;

	if (threadIdx.x < MOST)
		found[threadIdx.x] = 0;
	if constexpr (has_tid_table<FILTER>)
		make_table(args, table);
	else
		__syncthreads();
	/* 64 bits: the last block's numbers may pass the end of 32 */
	for (uint64_t base = (uint64_t) blockIdx.x * THREADS * ROWS; base < nrows;
		 base += (uint64_t) gridDim.x * THREADS * ROWS)
	{
		const uint64_t row = base + threadIdx.x;
		uint64_t	heads[ROWS];
		uint32_t	may[ROWS];

		/* a head of zeros names no row */
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			heads[r] = row + r * THREADS < nrows ? rows.heads[row + r * THREADS] : 0;
		if constexpr (has_tid_table<FILTER>)
			look_up(table, heads, may);
		for (uint32_t f = 0; f < args.count; f++)
		{
			uint32_t	match = rows_with_tid(heads);
			uint32_t	count = 0;

			if constexpr (has_tid_table<FILTER>)
				match &= rows_that_may(args.filters[f], f, may);
			if (!has_tid_table<FILTER> || match != 0)
				match = rows_match(rows, args.filters[f], row, heads, match);
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
	if (error == cudaSuccess)
		error = kernel_load((const void *)
							filter_rows_kernel<small_tids_filter, GG_SERVE_MAX_DEEPS>);
	return error == cudaSuccess ? kernel_load((const void *) filter_nodes_kernel) : error;
}

/* Copy TIDs that were not gathered to the device. */
static gg_status
bring_tids(const gg_filter *filter, deep_scratch *scratch, cudaStream_t stream)
{
	GG_TRY(grow(scratch->tids, GG_MAX_FILTER_TIDS, stream));
	GG_CUDA_TRY(cudaMemcpyAsync(scratch->tids.get(), filter->tids,
								filter->ntids * sizeof(uint64_t), cudaMemcpyDefault, stream));
	return gg_ok();
}

/* Turn the filter into a kernel's parameter; what does not fit into it is copied to the device. */
static gg_status
bring_filter(const filter_source *source, deep_scratch *scratch, any_filter *to,
			 cudaStream_t stream)
{
	const gg_filter *filter = source->filter;

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
	if (source->tids == NULL)
		GG_TRY(bring_tids(filter, scratch, stream));
	to->tids = source->tids != NULL ? source->tids : scratch->tids.get();
	to->ntids = filter->ntids;
	return gg_ok();
}

static uint32_t
blocks_for(const search_device *device, uint32_t items, uint32_t per_sm)
{
	uint32_t	blocks = items / THREADS + 1;
	uint32_t	most = (uint32_t) device->sms * per_sm;

	return blocks < most ? blocks : most;
}

/* Words of one filter's bits: of nodes, and behind them of rows where nodes have offsets. */
static uint32_t
bits_words(const gg_index *index)
{
	return (uint32_t) (((uint64_t) index->view.n + 31) / 32 +
					   (index->shape.offsets ? ((uint64_t) index->shape.rows + 31) / 32 : 0));
}

/* Queue args, whose filters and count are set; room: how many filters bits are grown for. */
template <typename FILTER, int MOST>
static gg_status
queue_filters(const gg_index *index, filter_args<FILTER, MOST> *args, uint32_t room,
			  deep_scratch *scratch, unsigned long long *matches, cudaStream_t stream)
{
	const gg_shape *shape = &index->shape;
	const uint32_t n = index->view.n;
	const uint32_t blocks = blocks_for(&index->device, (shape->rows + ROWS - 1) / ROWS,
									   has_tid_table<FILTER> ? TABLE_BLOCKS_PER_SM : BLOCKS_PER_SM);
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
	filter_rows_kernel<FILTER, MOST><<<blocks, THREADS, 0, stream>>>(*args, rows, matches);
	GG_CUDA_LAUNCHED("filter_rows_kernel");
	if (shape->offsets)
	{
		filter_nodes_kernel<<<dim3(blocks_for(&index->device, n, BLOCKS_PER_SM), args->count),
			THREADS, 0, stream>>>(index->offsets, n, shape->rows, args->words, rows, nodes);
		GG_CUDA_LAUNCHED("filter_nodes_kernel");
	}
	return gg_ok();
}

gg_status
search_filter_queue(const gg_index *index, const filter_source *filter, deep_scratch *scratch,
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
search_filter_is_small(const filter_source *source)
{
	const gg_filter *filter = source->filter;

	return filter != NULL && (filter->tids == NULL || source->tids != NULL) &&
		filter->nconditions <= SMALL_CONDITIONS && filter->nvalues <= SMALL_VALUES;
}

static void
set_tids(const filter_source *, small_filter *)
{
}

static void
set_tids(const filter_source *from, small_tids_filter *to)
{
	to->tids = from->tids;
	to->ntids = from->tids != NULL ? from->filter->ntids : 0;
}

template <typename FILTER>
static gg_status
queue_several(const gg_index *index, const filter_source *filters, uint32_t count,
			  deep_scratch *scratch, unsigned long long *matches, cudaStream_t stream)
{
	filter_args<FILTER, GG_SERVE_MAX_DEEPS> args;

	memset(&args, 0, sizeof(args));
	args.count = count;
	for (uint32_t f = 0; f < count; f++)
	{
		const gg_filter *from = filters[f].filter;
		FILTER	   *to = &args.filters[f];

		to->nconditions = from->nconditions;
		memcpy(to->conditions, from->conditions, to->nconditions * sizeof(gg_condition));
		memcpy(to->values, from->values, from->nvalues * sizeof(int64_t));
		set_tids(&filters[f], to);
	}
	return queue_filters(index, &args, search_filters_together(index), scratch, matches, stream);
}

gg_status
search_filters_queue(const gg_index *index, const filter_source *filters, uint32_t count,
					 deep_scratch *scratch, unsigned long long *matches, uint32_t *stride,
					 cudaStream_t stream)
{
	bool		tids = false;

	for (uint32_t f = 0; f < count; f++)
		tids = tids || filters[f].tids != NULL;
	if (tids)
		GG_TRY(queue_several<small_tids_filter>(index, filters, count, scratch, matches, stream));
	else
		GG_TRY(queue_several<small_filter>(index, filters, count, scratch, matches, stream));
	*stride = bits_words(index);
	return gg_ok();
}
