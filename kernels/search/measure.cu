/*
 * measure.cu
 *		Writes keys of rows to memory, finds the k-th smallest: for lists longer than exact.cu's.
 *
 * Shapes		rows n x dim as stored, queries nq x dim float32, bits of nodes or none for all of
 *				them -> keys of the rows [first, end), or of one word of 32 in so many; of these
 *				keys the k-th smallest of each query.
 * Mapping		measure		a key for each row, by a warp as in exact.cu (exact.cuh), into memory;
 *							without bits for BATCH_QUERIES queries at a time
 *				digits		the k-th smallest key, DIGIT_BITS of it a launch: a histogram of the
 *							keys that begin as it does, in which the last block to finish finds
 *							its bin.  When all keys of the bin are wanted, the launches left end
 *							at once: the last three of six, unless distances tie
 * Shared		measure: the queries, 32 row numbers a warp; digits: BINS counters.
 * Oracle		gg_cpu_engine.serve_submit.  Distances are those of exact.cu, bit by bit.
 * Cost			The rows once for each query, or for BATCH_QUERIES; 8 bytes per row and query
 *				written, and read up to three times by digits, from the L2 cache up to some millions
 *				of rows.
 */
#include "exact.cuh"
#include "measure.cuh"

#define WARPS 8
#define BATCH_QUERIES 8			/* that share a pass over the rows, as in exact.cu */
#define BLOCKS_PER_SM 4
#define DIGIT_THREADS (BINS / 2)	/* each looks at two bins in the end */

/* ---- measuring -------------------------------------------------------------- */

/* Grid: y over groups of QUERIES queries, x over the rows.  With several no filter is looked at. */
template <typename ELEMENT, int METRIC, int TEAM, int QUERIES>
__global__ void __launch_bounds__(WARPS * 32, QUERIES == 1 ? 1 : 2)
measure_kernel(const __grid_constant__ search_view view, const __grid_constant__ measure_args args,
			   uint32_t query_pad)
{
	extern __shared__ __align__(16) char shared[];
	__shared__ float inverses[QUERIES];
	float	   *raw = (float *) shared;
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t warp = threadIdx.x >> 5;
	uint32_t   *packed = (uint32_t *) (raw + QUERIES * query_pad) + warp * 32;
	const uint32_t first_query = blockIdx.y * QUERIES;
	const uint32_t nq = min(args.nq - first_query, (uint32_t) QUERIES);
	const float *queries = args.queries + (size_t) first_query * view.dim;
	const uint32_t *filter = QUERIES == 1 && args.filter != NULL ?
		args.filter + (size_t) first_query * args.filter_stride : NULL;
	uint64_t   *keys = args.keys + first_query * args.keys_stride;
	const uint32_t words = (args.end + 31) / 32;

	for (uint32_t i = threadIdx.x; i < QUERIES * query_pad; i += WARPS * 32)
		raw[i] = i / query_pad < nq && i % query_pad < view.dim ?
			queries[(size_t) (i / query_pad) * view.dim + i % query_pad] : 0;
	__syncthreads();
	for (uint32_t q = warp; q < QUERIES; q += WARPS)
	{
		float		inverse = exact_inverse(raw + q * query_pad, view.dim, lane);

		if (lane == 0)
			inverses[q] = inverse;
	}
	__syncthreads();

	for (uint32_t taken = blockIdx.x * WARPS + warp;; taken += gridDim.x * WARPS)
	{
		const uint32_t word = args.first / 32 + taken * args.step;
		uint64_t   *out = keys + (size_t) taken * 32;
		measure_word rows;
		uint64_t	key[QUERIES];

		if (word >= words)
			break;
		rows = take_measure_word(args, filter, word, out, lane);
		if (rows.count == 0)
			continue;
		rows.row = pack_word(word, rows.bits, rows.count, packed, lane);
#pragma unroll
		for (int q = 0; q < QUERIES; q++)
			key[q] = GG_KEY_NONE;
		exact_measure<ELEMENT, METRIC, TEAM, QUERIES>(view, raw, query_pad, inverses, rows.row,
													  rows.count, key);
#pragma unroll
		for (int q = 0; q < QUERIES; q++)
			if (lane < rows.count && (uint32_t) q < nq)
				out[q * args.keys_stride + (rows.row - word * 32)] =
					key[q] > args.after ? key[q] : GG_KEY_NONE;
	}
}

static uint32_t
query_pad_for(const search_view *view)
{
	return (view->dim + 7) & ~7u;
}

static uint32_t
shared_for(const search_view *view, uint32_t queries)
{
	return queries * query_pad_for(view) * 4 + WARPS * 32 * 4;
}

template <typename ELEMENT, int METRIC, int TEAM, int QUERIES>
static cudaError_t
launch_measure(const search_view *view, const measure_args *args, const search_device *device,
			   cudaStream_t stream)
{
	const uint32_t shared = shared_for(view, QUERIES);
	const uint32_t groups = (args->nq + QUERIES - 1) / QUERIES;
	const uint32_t words = (args->end - args->first + 31) / 32;
	uint32_t	blocks = ((words + args->step - 1) / args->step + WARPS - 1) / WARPS;
	uint32_t	most;
	int			per_sm;
	cudaError_t error;

	error = kernel_ready<measure_kernel<ELEMENT, METRIC, TEAM, QUERIES>>(device);
	if (error == cudaSuccess)
		error = kernel_blocks_per_sm<measure_kernel<ELEMENT, METRIC, TEAM, QUERIES>>
			(WARPS * 32, shared, device, &per_sm);
	if (error != cudaSuccess)
		return error;
	per_sm = per_sm > BLOCKS_PER_SM ? BLOCKS_PER_SM : per_sm;
	most = ((uint32_t) (device->sms * per_sm) + groups - 1) / groups;
	measure_kernel<ELEMENT, METRIC, TEAM, QUERIES><<<dim3(blocks < most ? blocks : most, groups),
		WARPS * 32, shared, stream>>>(*view, *args, query_pad_for(view));
	return cudaGetLastError();
}

/* call(ELEMENT(), std::integral_constant<int, METRIC>, std::integral_constant<int, TEAM>) */
template <typename CALL>
static cudaError_t
with_rows(const search_view *view, CALL call)
{
	using		wide = std::integral_constant<int, 32>;
	using		narrow = std::integral_constant<int, 8>;

	return with_metric(view->metric, [&](auto metric)
					   {
						   if (view->element == GG_ELEMENT_F32)
							   return exact_is_wide<float>(view) ?
								   call(float(), metric, wide()) : call(float(), metric, narrow());
						   return exact_is_wide<__half>(view) ?
							   call(__half(), metric, wide()) : call(__half(), metric, narrow());
					   });
}

/* ---- the k-th smallest key ------------------------------------------------------ */

/* The sum of `mine` of the threads before this one; *total: of all.  sums: 32 words, shared. */
static __device__ __forceinline__ uint32_t
sum_before(uint32_t mine, uint32_t *sums, uint32_t *total)
{
	const uint32_t lane = threadIdx.x & 31;
	uint32_t	sum = mine;

#pragma unroll
	for (int offset = 1; offset < 32; offset *= 2)
	{
		uint32_t	other = __shfl_up_sync(GG_FULL_WARP, sum, offset);

		if (lane >= (uint32_t) offset)
			sum += other;
	}
	if (lane == 31)
		sums[threadIdx.x / 32] = sum;
	__syncthreads();
	if (threadIdx.x < 32)
	{
		uint32_t	part = sums[lane];

#pragma unroll
		for (int offset = 1; offset < 32; offset *= 2)
		{
			uint32_t	other = __shfl_up_sync(GG_FULL_WARP, part, offset);

			if (lane >= (uint32_t) offset)
				part += other;
		}
		sums[lane] = part;
	}
	__syncthreads();
	*total = sums[31];
	return sum - mine + (threadIdx.x >= 32 ? sums[threadIdx.x / 32 - 1] : 0);
}

/* Find one digit of the k-th smallest key: its `bits` bits from bit `shift` on. */
__global__ void __launch_bounds__(DIGIT_THREADS)
digit_kernel(const uint64_t *keys, uint64_t keys_stride, uint32_t count, uint32_t k, uint32_t shift,
			 uint32_t bits, digit_state *states)
{
	__shared__ uint32_t counts[BINS];
	__shared__ uint32_t sums[32];
	__shared__ bool last;
	digit_state *state = states + blockIdx.y;
	const bool	first = shift + bits == 64;
	const uint64_t prefix = first ? 0 : state->prefix;
	const uint32_t wanted = first ? k : state->remaining;
	const uint32_t low = threadIdx.x * 2;	/* the thread's bins are this and the next one */
	uint32_t	pair[2];
	uint32_t	before;
	uint32_t	total;

	if (!first && state->done)
		return;
	count = count > 0 ? count : state->found;
	keys += blockIdx.y * keys_stride;
	counts[low] = counts[low + 1] = 0;
	__syncthreads();
#pragma unroll 4
	for (uint32_t i = blockIdx.x * DIGIT_THREADS + threadIdx.x; i < count;
		 i += gridDim.x * DIGIT_THREADS)
	{
		uint64_t	key = keys[i];

		if (key != GG_KEY_NONE && (first || (key ^ prefix) >> (shift + bits) == 0))
			atomicAdd(&counts[(uint32_t) (key >> shift) & ((1u << bits) - 1)], 1);
	}
	__syncthreads();
	for (uint32_t b = low; b < low + 2; b++)
		if (counts[b] > 0)
			atomicAdd(&state->counts[b], counts[b]);
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0)
		last = atomicAdd(&state->finished, 1) == gridDim.x - 1;
	__syncthreads();
	if (!last)
		return;
	__threadfence();

	pair[0] = __ldcg(&state->counts[low]);
	pair[1] = __ldcg(&state->counts[low + 1]);
	before = sum_before(pair[0] + pair[1], sums, &total);
	if (threadIdx.x == 0 && total < wanted)
	{
		/* in the first launch only: there are fewer keys than k, so all are wanted */
		state->threshold = GG_KEY_NONE - 1;
		state->done = 1;
	}
	for (uint32_t b = 0; b < 2; b++)
	{
		if (before < wanted && wanted <= before + pair[b])
		{
			uint64_t	found = prefix | (uint64_t) (low + b) << shift;
			bool		all = pair[b] == wanted - before;

			state->prefix = found;
			state->remaining = wanted - before;
			state->threshold = found | (((uint64_t) 1 << shift) - 1);
			state->done = all;
		}
		before += pair[b];
	}
	state->counts[low] = state->counts[low + 1] = 0;
	if (threadIdx.x == 0)
		state->finished = state->taken = 0;
}

cudaError_t
search_digits_launch(const digit_search *search, const search_device *device, cudaStream_t stream)
{
	const uint32_t nq = search->nq;
	const uint32_t last = search->exactly ? 0 : 32;
	const uint32_t most = (2 * (uint32_t) device->sms + nq - 1) / nq;
	uint32_t	blocks = (search->count + 4 * DIGIT_THREADS - 1) / (4 * DIGIT_THREADS);

	if (blocks > most || search->count == 0)
		blocks = most;
	for (uint32_t shift = 64; shift > last;)
	{
		uint32_t	bits = shift < DIGIT_BITS ? shift : DIGIT_BITS;
		cudaError_t error;

		shift -= bits;
		digit_kernel<<<dim3(blocks, nq), DIGIT_THREADS, 0, stream>>>
			(search->keys, search->keys_stride, search->count, search->k, shift, bits,
			 search->states);
		error = cudaGetLastError();
		if (error != cudaSuccess)
			return error;
	}
	return cudaSuccess;
}

/* ---- for deep.cu and long_lists.cu -------------------------------------------------- */

/* Queries that share a pass.  Only long_lists.cu has several, of what prune.cu takes: not L1. */
static constexpr int
queries_of(int metric)
{
	return metric == GG_METRIC_L1 ? 1 : BATCH_QUERIES;
}

cudaError_t
search_measure_launch(const search_view *view, const measure_args *args,
					  const search_device *device, cudaStream_t stream)
{
	/* two queries alone are at memory speed */
	const bool	batch = args->nq > 2 && args->filter == NULL &&
		shared_for(view, BATCH_QUERIES) <= (uint32_t) device->shared_bytes / 2;

	return with_rows(view, [&](auto element, auto metric, auto team)
					 {
						 using		row = decltype(element);
						 const int	METRIC = decltype(metric)::value;
						 const int	TEAM = decltype(team)::value;

						 if (!batch)
							 return launch_measure<row, METRIC, TEAM, 1>
								 (view, args, device, stream);
						 return launch_measure<row, METRIC, TEAM, queries_of(METRIC)>
							 (view, args, device, stream);
					 });
}

cudaError_t
search_measure_ready(const search_view *view, const search_device *device)
{
	cudaError_t error = kernel_load((const void *) digit_kernel);

	if (error != cudaSuccess)
		return error;
	return with_rows(view, [&](auto element, auto metric, auto team)
					 {
						 using		row = decltype(element);
						 const int	METRIC = decltype(metric)::value;
						 const int	TEAM = decltype(team)::value;
						 const int	QUERIES = queries_of(METRIC);
						 cudaError_t one =
							 kernel_ready<measure_kernel<row, METRIC, TEAM, 1>>(device);

						 return one != cudaSuccess ? one :
							 kernel_ready<measure_kernel<row, METRIC, TEAM, QUERIES>>(device);
					 });
}
