/*
 * deep.cu
 *		The k nearest of all rows, or of those whose filter bit is set, behind a key: for more of
 *		them than exact.cu's lists hold.
 *
 * Shapes		rows n x dim as stored, queries, bits of nodes or none for all of them -> of each
 *				query k keys, ascending.
 * Requires		1 <= k <= GG_MAX_DEEP.
 * Mapping		Slab by slab of SLAB rows:
 *				measure		a key for each row, by a warp as in exact.cu (exact.cuh), into memory
 *				digits		the k-th smallest key, DIGIT_BITS of it a launch: a histogram of the
 *							keys that begin as it does, in which the last block to finish finds
 *							its bin.  When all keys of the bin are wanted, the launches left end
 *							at once: the last three of six, unless distances tie
 *				select		the keys up to it, in the order of their nodes (cub)
 *				The k keys of one slab are carried into the next one.  In the end they are sorted
 *				by their distance alone: the sort (cub's) is stable, and keys come by node.
 *				What fits exact.cu's lists is left to it, for several queries at once: neighbours
 *				whose filters are equal, or all small (filter.cu).  Longer lists are made one after
 *				the other.
 *				Where filters leave many rows for several queries, or many bytes for one or two,
 *				exact.cu first makes the lists of one word of 32 rows in so many, by whose last keys
 *				prune.cu throws out most of all rows.  Only the device knows whether filters leave
 *				so many: all these launches look, and end at once where they are not for the case.
 * Shared		measure: the query, 32 row numbers a warp; digits: BINS counters.
 * Oracle		gg_cpu_engine.serve_deep: the same nodes but where distances differ by less than
 *				1e-5 relative.  Distances are those of exact.cu, bit by bit.
 * Cost			The rows once; 8 bytes per row written, and read four to five times by selection,
 *				from the L2 cache up to some millions of rows; a sort of k keys.
 */
#include <algorithm>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>

#include "../src/cpu/serve_check.h"
#include "exact.cuh"
#include "index.cuh"
#include "prune.cuh"

#define WARPS 8
#define BLOCKS_PER_SM 4

/*
 * Rows whose keys are in memory at once, 32 MB: so scratch memory does not grow with the index.
 * What each further slab costs beside its rows is some ten launches.
 */
#define SLAB ((uint32_t) 1 << 22)
#define LEAST_SLAB ((uint32_t) 1 << 16)

/*
 * Up to here exact.cu's lists are faster: over 1M x 128 they take 141 us with k = 10, 207 with k =
 * 100 and 551 with k = 1,024, mostly in merging.
 */
#define NARROW_K GG_SHORT_DEEP

/*
 * When prune.cu is worth its launches, some 25 us.  Where queries share a filter, exact.cu takes
 * its time for pairs of a query and a row: 8M of 128 dimensions 0.3 to 0.6 ms.  One or two queries
 * read rows for themselves, and wait for memory: from so many bytes on that prune.cu saves, which
 * take 60 us.  So one query over 1M x 768 as float32 is for prune.cu where 175,000 rows match, and
 * over 1M x 128 never.  Filters that differ must also make exact.cu read PRUNED_TIMES the bytes of
 * all rows' halves, since prune.cu reads what any of them wants.
 * These are estimates.  Measured over 1M x 128 as float32, 16 callers with equal filters, when
 * prune.cu read rows as stored: 1.9 times as many queries per second with it where one row in two
 * matches, and 1.4 times where one in 10 does; 0.91 and 0.87 where one in 100 and in 1,000 do,
 * since its launches end at once there but are made.
 */
#ifndef PRUNED_PAIRS			/* the emulated device has fewer rows */
#define PRUNED_PAIRS ((uint64_t) 1 << 18)
#define PRUNED_BYTES ((uint64_t) 256 << 20)
#endif
#define PRUNED_SHARED 3			/* queries of a filter, from which on exact.cu shares rows */
#define PRUNED_TIMES 2
#define PRUNED_BITS ((uint64_t) 64 << 20)	/* bytes of all queries' bits, at most */

#define DIGIT_BITS 11
#define BINS (1 << DIGIT_BITS)
#define DIGIT_THREADS (BINS / 2)	/* each looks at two bins in the end */

#define ANSWER_THREADS 256

/* Of the search for the k-th smallest key; 0 before. */
typedef struct digit_state
{
	uint64_t	prefix;			/* the digits that are known */
	uint64_t	threshold;		/* once done: the keys up to it are k, or all */
	uint32_t	remaining;		/* how many more, of those that begin as prefix does */
	uint32_t	done;
	uint32_t	finished;		/* blocks; 0 before and after a launch */
	uint32_t	counts[BINS];	/* 0 before and after a launch */
} digit_state;

/* ---- measuring -------------------------------------------------------------- */

template <typename ELEMENT, int METRIC, int TEAM>
__global__ void __launch_bounds__(WARPS * 32)
deep_kernel(const __grid_constant__ search_view view, const uint32_t *filter, const float *query,
			uint32_t query_pad, uint32_t first, uint32_t end, uint64_t after, uint64_t *keys)
{
	extern __shared__ __align__(16) char shared[];
	__shared__ float inverses[1];
	float	   *raw = (float *) shared;
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t warp = threadIdx.x >> 5;
	uint32_t   *packed = (uint32_t *) (raw + query_pad) + warp * 32;

	for (uint32_t i = threadIdx.x; i < query_pad; i += WARPS * 32)
		raw[i] = i < view.dim ? query[i] : 0;
	__syncthreads();
	if (warp == 0)
	{
		float		inverse = exact_inverse(raw, view.dim, lane);

		if (lane == 0)
			inverses[0] = inverse;
	}
	__syncthreads();

	/* first is a multiple of 32 */
	for (uint32_t word = first / 32 + blockIdx.x * WARPS + warp; word < (end + 31) / 32;
		 word += gridDim.x * WARPS)
	{
		uint64_t   *out = keys + (word * 32 - first);
		uint32_t	bits = filter != NULL ? __ldg(filter + word) : GG_FULL_WARP;
		uint32_t	valid = end - word * 32 < 32 ? (1u << (end - word * 32)) - 1 : GG_FULL_WARP;
		uint32_t	count;
		uint32_t	row;
		uint64_t	key[1] = {GG_KEY_NONE};

		bits &= valid;
		count = __popc(bits);
		if ((valid & ~bits) >> lane & 1)
			out[lane] = GG_KEY_NONE;
		if (count == 0)
			continue;
		row = exact_pack(word, bits, count, packed, lane);
		exact_measure<ELEMENT, METRIC, TEAM, 1>(view, raw, query_pad, inverses, row, count, lane,
												key);
		if (lane < count)
			out[row - word * 32] = key[0] > after ? key[0] : GG_KEY_NONE;
	}
}

static uint32_t
query_pad_for(const search_view *view)
{
	return (view->dim + 7) & ~7u;
}

template <typename ELEMENT, int METRIC, int TEAM>
static kernel_state *
deep_kernel_state(void)
{
	static kernel_state state;

	return &state;
}

template <typename ELEMENT, int METRIC, int TEAM>
static cudaError_t
ready_measure(const search_device *device)
{
	return kernel_ready(deep_kernel_state<ELEMENT, METRIC, TEAM>(),
						(const void *) deep_kernel<ELEMENT, METRIC, TEAM>, false, device);
}

/* What a launch of deep_kernel differs in from others over the same index. */
typedef struct measure_args
{
	const uint32_t *filter;
	const float *query;
	uint32_t	first;
	uint32_t	end;
	uint64_t	after;
	uint64_t   *keys;
} measure_args;

template <typename ELEMENT, int METRIC, int TEAM>
static cudaError_t
launch_measure(const search_view *view, const measure_args *args, const search_device *device,
			   cudaStream_t stream)
{
	const uint32_t query_pad = query_pad_for(view);
	const uint32_t shared = query_pad * 4 + WARPS * 32 * 4;
	uint32_t	blocks = ((args->end - args->first + 31) / 32 + WARPS - 1) / WARPS;
	int			per_sm;
	cudaError_t error;

	error = ready_measure<ELEMENT, METRIC, TEAM>(device);
	if (error == cudaSuccess)
		error = kernel_blocks_per_sm(deep_kernel_state<ELEMENT, METRIC, TEAM>(),
									 (const void *) deep_kernel<ELEMENT, METRIC, TEAM>, WARPS * 32,
									 shared, device, &per_sm);
	if (error != cudaSuccess)
		return error;
	per_sm = per_sm > BLOCKS_PER_SM ? BLOCKS_PER_SM : per_sm;
	if (blocks > (uint32_t) (device->sms * per_sm))
		blocks = (uint32_t) (device->sms * per_sm);
	deep_kernel<ELEMENT, METRIC, TEAM><<<blocks, WARPS * 32, shared, stream>>>
		(*view, args->filter, args->query, query_pad, args->first, args->end, args->after,
		 args->keys);
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

/* ---- selection ------------------------------------------------------------------ */

/* Of all threads before this one; *total: of all.  sums: 32 words of shared memory. */
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

/* One digit of the k-th smallest key: `bits` of them from `shift` on. */
__global__ void __launch_bounds__(DIGIT_THREADS)
digit_kernel(const uint64_t *keys, uint32_t count, uint32_t k, uint32_t shift, uint32_t bits,
			 digit_state *state)
{
	__shared__ uint32_t counts[BINS];
	__shared__ uint32_t sums[32];
	__shared__ bool last;
	const bool	first = shift + bits == 64;
	const uint64_t prefix = first ? 0 : state->prefix;
	const uint32_t wanted = first ? k : state->remaining;
	const uint32_t low = threadIdx.x * 2;	/* the thread's bins are this and the next one */
	uint32_t	pair[2];
	uint32_t	before;
	uint32_t	total;

	if (!first && state->done)
		return;
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
		/* in the first launch only: there are not so many, so all of them */
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
		state->finished = 0;
}

static cudaError_t
launch_digits(const uint64_t *keys, uint32_t count, uint32_t k, digit_state *state,
			  const search_device *device, cudaStream_t stream)
{
	uint32_t	blocks = (count + 4 * DIGIT_THREADS - 1) / (4 * DIGIT_THREADS);

	if (blocks > 2 * (uint32_t) device->sms)
		blocks = 2 * (uint32_t) device->sms;
	for (uint32_t shift = 64; shift > 0;)
	{
		uint32_t	bits = shift < DIGIT_BITS ? shift : DIGIT_BITS;
		cudaError_t error;

		shift -= bits;
		digit_kernel<<<blocks, DIGIT_THREADS, 0, stream>>>(keys, count, k, shift, bits, state);
		error = cudaGetLastError();
		if (error != cudaSuccess)
			return error;
	}
	return cudaSuccess;
}

/* Keys up to the threshold; GG_KEY_NONE is above any. */
struct is_selected
{
	const uint64_t *threshold;

	__device__ __forceinline__ bool
	operator()(const uint64_t &key) const
	{
		return key <= __ldg((const unsigned long long *) threshold);
	}
};

/* The first one, without temp: how much of it this takes. */
static cudaError_t
select_keys(void *temp, size_t *temp_bytes, const uint64_t *keys, uint32_t count, uint64_t *out,
			digit_state *state, cudaStream_t stream)
{
	/* how many there were is not asked, and finished is free between the launches of digits */
	return cub::DeviceSelect::If(temp, *temp_bytes, keys, out, temp != NULL ? &state->remaining :
								 (uint32_t *) NULL, (int) count,
								 is_selected{temp != NULL ? &state->threshold : NULL}, stream);
}

/* By the distance, the upper half. */
static cudaError_t
sort_keys(void *temp, size_t *temp_bytes, cub::DoubleBuffer<uint64_t> &keys, uint32_t count,
		  cudaStream_t stream)
{
	return cub::DeviceRadixSort::SortKeys(temp, *temp_bytes, keys, (int) count, 32, 64, stream);
}

/* ---- scratch memory ------------------------------------------------------------- */

/* Where things lie in deep_scratch.wide. */
typedef struct deep_layout
{
	size_t		selected[2];
	size_t		carried;		/* ends where keys begin */
	size_t		keys;
	size_t		temp;			/* cub's, deep_scratch.temp_bytes */
} deep_layout;

static deep_layout
layout_for(uint32_t slab)
{
	deep_layout layout;

	layout.selected[0] = (sizeof(digit_state) + 255) & ~(size_t) 255;
	layout.selected[1] = layout.selected[0] + (size_t) GG_MAX_DEEP * 8;
	layout.carried = layout.selected[1] + (size_t) GG_MAX_DEEP * 8;
	layout.keys = layout.carried + (size_t) GG_MAX_DEEP * 8;
	layout.temp = layout.keys + (size_t) slab * 8;
	return layout;
}

/*
 * Room for a slab of rows.  It is taken with the first deep list of a queue, grows with the first
 * one of a greater index, to some 35 MB at most, and goes with the server.
 */
static gg_status
provide_wide(deep_scratch *scratch, uint32_t rows, cudaStream_t stream)
{
	uint32_t	slab = LEAST_SLAB;
	cub::DoubleBuffer<uint64_t> none(NULL, NULL);
	size_t		select_bytes = 0;
	size_t		sort_bytes = 0;

	while (slab < rows && slab < SLAB)
		slab *= 2;
	if (scratch->slab >= slab)
		return gg_ok();
	scratch->slab = 0;
	GG_CUDA_TRY(select_keys(NULL, &select_bytes, NULL, slab + GG_MAX_DEEP, NULL, NULL, NULL));
	GG_CUDA_TRY(sort_keys(NULL, &sort_bytes, none, GG_MAX_DEEP, NULL));
	scratch->temp_bytes = select_bytes > sort_bytes ? select_bytes : sort_bytes;
	GG_TRY(grow(scratch->wide, layout_for(slab).temp + scratch->temp_bytes, stream));
	GG_CUDA_TRY(cudaMemsetAsync(scratch->wide.get(), 0, sizeof(digit_state), stream));
	scratch->slab = slab;
	return gg_ok();
}

/* ---- lists ----------------------------------------------------------------------- */

typedef struct answer_args
{
	const uint64_t *keys;		/* stride of each query */
	uint32_t	stride;
	const unsigned long long *matches;	/* NULL: nodes */
	uint32_t	matches_stride;	/* 1, or 0: one number for all */
	uint64_t	nodes;
	unsigned long long *finished;	/* blocks of each query; 0 before */
	uint32_t	first;			/* number in the slots of the first query */
	deep_query	queries[GG_SERVE_MAX_DEEPS];
} answer_args;

/* Grid: y over the queries, x over the keys of each.  The last block of a query is its end. */
__global__ void __launch_bounds__(ANSWER_THREADS)
deep_answer_kernel(const __grid_constant__ answer_args args,
				   const __grid_constant__ search_slots slots)
{
	const deep_query &query = args.queries[blockIdx.y];
	const uint64_t *keys = args.keys + (size_t) blockIdx.y * args.stride;

	for (uint32_t i = blockIdx.x * ANSWER_THREADS + threadIdx.x; i < query.k;
		 i += gridDim.x * ANSWER_THREADS)
		query.keys[i] = keys[i];
	if (blockIdx.x == 0 && threadIdx.x == 0)
		*query.matches = args.matches != NULL ? args.matches[blockIdx.y * args.matches_stride] :
			args.nodes;
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	/* the stores of this block before its count, those of all blocks before the ticket */
	__threadfence_system();
	if (atomicAdd(&args.finished[blockIdx.y], 1) == gridDim.x - 1)
		answered(slots, args.first + blockIdx.y);
}

/* The k keys of one slab and of those before, into selected[0]. */
static gg_status
queue_slab(const gg_index *index, const measure_args *args, uint32_t k, deep_scratch *scratch,
		   const deep_layout *layout, cudaStream_t stream)
{
	char	   *memory = scratch->wide.get();
	digit_state *state = (digit_state *) memory;
	uint64_t   *selected = (uint64_t *) (memory + layout->selected[0]);
	uint64_t   *keys = args->keys;
	uint32_t	count = args->end - args->first;
	size_t		temp_bytes = scratch->temp_bytes;

	GG_CUDA_TRY(with_rows(&index->view, [&](auto element, auto metric, auto team)
						  {
							  return launch_measure<decltype(element), decltype(metric)::value,
								  decltype(team)::value>(&index->view, args, &index->device,
														 stream);
						  }));
	if (args->first > 0)
	{
		/* in front of its keys, as they come by node */
		keys -= k;
		count += k;
		GG_CUDA_TRY(cudaMemcpyAsync(keys, selected, (size_t) k * 8, cudaMemcpyDeviceToDevice,
									stream));
	}
	GG_CUDA_TRY(launch_digits(keys, count, k, state, &index->device, stream));
	GG_CUDA_TRY(cudaMemsetAsync(selected, 0xFF, (size_t) k * 8, stream));
	GG_CUDA_TRY(select_keys(memory + layout->temp, &temp_bytes, keys, count, selected, state,
							stream));
	return gg_ok();
}

/* *keys: where the sorted list will be. */
static gg_status
queue_wide(const gg_index *index, const float *query, const uint32_t *filter, uint32_t k,
		   uint64_t after, deep_scratch *scratch, const uint64_t **keys, cudaStream_t stream)
{
	const uint32_t n = index->view.n;
	deep_layout layout;
	char	   *memory;
	size_t		temp_bytes;

	GG_TRY(provide_wide(scratch, n, stream));
	layout = layout_for(scratch->slab);
	memory = scratch->wide.get();
	for (uint32_t first = 0; first < n;)
	{
		uint32_t	end = n - first < scratch->slab ? n : first + scratch->slab;
		measure_args args = {filter, query, first, end, after,
							 (uint64_t *) (memory + layout.keys)};

		GG_TRY(queue_slab(index, &args, k, scratch, &layout, stream));
		first = end;
	}

	cub::DoubleBuffer<uint64_t> buffer((uint64_t *) (memory + layout.selected[0]),
									   (uint64_t *) (memory + layout.selected[1]));

	temp_bytes = scratch->temp_bytes;
	GG_CUDA_TRY(sort_keys(memory + layout.temp, &temp_bytes, buffer, k, stream));
	*keys = buffer.Current();
	return gg_ok();
}

/* The filters of one launch, or of several. */
typedef struct deep_filters
{
	uint32_t	count;			/* queries they are for */
	const uint32_t *bits;		/* NULL: all nodes */
	uint32_t	stride;			/* 0: one filter for all */
	const unsigned long long *matches;	/* NULL, as bits */
} deep_filters;

/* By exact.cu: lists of k, of several queries at once, by these bits. */
static gg_status
queue_exact(const gg_index *index, const float *queries, const deep_filters *filters, uint32_t k,
			const search_part *part, search_scratch *search, uint64_t *keys, cudaStream_t stream)
{
	search_batch batch;

	memset(&batch, 0, sizeof(batch));
	batch.queries = queries;
	batch.nq = batch.room = filters->count;
	batch.keys = keys;
	batch.filter_stride = filters->stride;
	batch.part = part;
	return search_exact_queue(index, search, k, filters->bits, &batch, stream);
}

/*
 * One word in so many is looked at first, 1 if that would not pay: of n rows it costs n / step, and
 * leaves some k x step.
 */
static uint32_t
sample_step(uint32_t n, uint32_t k)
{
	uint32_t	step = 1;

	while ((uint64_t) step * step * 16 <= n / k)
		step *= 2;
	return step;
}

/* Pairs of a query and a row that filters must leave for prune.cu to be sooner. */
static uint64_t
pruned_pairs(const search_view *view, const deep_filters *filters)
{
	const uint64_t exact_bytes = view->row_stride;
	const uint64_t rough_bytes = view->walk_stride;
	const bool	apart = filters->stride > 0;
	const uint64_t all = apart ? view->n * rough_bytes * PRUNED_TIMES / exact_bytes : 0;
	const uint64_t saved = exact_bytes - rough_bytes / (apart ? 1 : filters->count);

	if (filters->count >= PRUNED_SHARED)
		return all > PRUNED_PAIRS ? all : PRUNED_PAIRS;
	return saved > 0 ? PRUNED_BYTES / saved : UINT64_MAX;
}

/* The same, by prune.cu where that is sooner. */
static gg_status
queue_narrow(const gg_index *index, const float *queries, const deep_filters *filters, uint32_t k,
			 search_scratch *search, deep_scratch *scratch, uint64_t *keys, cudaStream_t stream)
{
	const search_view *view = &index->view;
	const uint32_t words = (view->n + 31) / 32;
	const uint64_t bits = (uint64_t) (filters->count == 1 ? 1 : PRUNE_QUERIES) * words;
	deep_filters pruned = {filters->count, NULL, words, NULL};
	search_part part = {sample_step(view->n, k),
		{filters->matches, 1, filters->count, pruned_pairs(view, filters), false}};
	prune_launch launch = {filters->bits, filters->stride, NULL, words, queries, filters->count, k,
		keys, {}};

	if (filters->stride > 0)
	{
		part.gate.count = filters->count;
		part.gate.queries = 1;
	}
	if (filters->matches == NULL || part.step < 4 || bits * 4 > PRUNED_BITS ||
		(uint64_t) view->n * filters->count < part.gate.least ||
		scratch->usual < part.gate.least / filters->count ||
		!search_prune_takes(view, &index->device))
		return queue_exact(index, queries, filters, k, NULL, search, keys, stream);

	GG_TRY(grow(scratch->pruned, bits, stream));
	pruned.bits = launch.to = scratch->pruned.get();
	launch.gate = part.gate;
	GG_TRY(queue_exact(index, queries, filters, k, &part, search, keys, stream));
	GG_CUDA_TRY(search_prune_launch(view, &launch, &index->device, stream));
	part.step = 0;
	GG_TRY(queue_exact(index, queries, &pruned, k, &part, search, keys, stream));
	part.gate.below = true;
	return queue_exact(index, queries, filters, k, &part, search, keys, stream);
}

static bool
is_narrow(const gg_index *index, const deep_query *query)
{
	return query->k <= NARROW_K && query->after == 0 &&
		search_exact_shared(&index->view, query->k) <= (uint32_t) index->device.shared_bytes;
}

/* How many queries from first on exact.cu takes together if their filters allow. */
static uint32_t
count_narrow(const gg_index *index, const deep_batch *batch, uint32_t first)
{
	uint32_t	next = first;

	while (next < batch->nq && is_narrow(index, &batch->queries[next]))
		next++;
	return next - first;
}

/* Of queries from first on, `most` at most: one filter for those that share it, or each one's. */
static gg_status
queue_deep_filters(const gg_index *index, const deep_batch *batch, uint32_t first, uint32_t most,
				   deep_scratch *scratch, deep_filters *filters, cudaStream_t stream)
{
	const gg_serve_deep *requests = batch->requests + first;
	unsigned long long *matches = (unsigned long long *) scratch->narrow.get() + first;
	const gg_filter *small[GG_SERVE_MAX_DEEPS];
	const uint32_t together = search_filters_together(index);
	uint32_t	apart = 0;

	memset(filters, 0, sizeof(*filters));
	filters->count = gg_serve_same_filter(requests, most);
	while (apart < most && apart < together && search_filter_is_small(requests[apart].filter))
	{
		small[apart] = requests[apart].filter;
		apart++;
	}
	if (filters->count < apart)
	{
		filters->count = apart;
		GG_TRY(search_filters_queue(index, small, apart, scratch, matches, &filters->bits,
									&filters->stride, stream));
		filters->matches = matches;
	}
	else if (requests[0].filter != NULL)
	{
		GG_TRY(search_filter_queue(index, requests[0].filter, scratch, matches, &filters->bits,
								   stream));
		filters->matches = matches;
	}
	return gg_ok();
}

/*
 * The lists of queries [first, *end): of those from first on that exact.cu takes together, or of
 * first alone.  The nearest k begin any longer list, so the longest one's k is that of all.
 */
static gg_status
queue_lists(const gg_index *index, const deep_batch *batch, uint32_t first, uint32_t *end,
			search_scratch *search, deep_scratch *scratch, cudaStream_t stream)
{
	const deep_query *queries = batch->queries + first;
	const float *copies = search->queries.get() + (size_t) first * index->view.dim;
	const uint32_t narrow = count_narrow(index, batch, first);
	uint64_t   *keys = scratch->narrow.get() + 2 * GG_SERVE_MAX_DEEPS;
	deep_filters filters;
	uint32_t	k = queries[0].k;
	uint32_t	blocks;
	answer_args args;

	GG_TRY(queue_deep_filters(index, batch, first, narrow > 1 ? narrow : 1, scratch, &filters,
							  stream));
	for (uint32_t q = 1; q < filters.count; q++)
		k = queries[q].k > k ? queries[q].k : k;
	memset(&args, 0, sizeof(args));
	args.keys = keys;
	if (narrow > 0)
		GG_TRY(queue_narrow(index, copies, &filters, k, search, scratch, keys, stream));
	else
		GG_TRY(queue_wide(index, copies, filters.bits, k, queries[0].after, scratch, &args.keys,
						  stream));
	args.stride = k;
	args.matches = filters.matches;
	args.matches_stride = filters.stride > 0;
	args.nodes = index->view.n;
	args.finished = (unsigned long long *) scratch->narrow.get() + GG_SERVE_MAX_DEEPS + first;
	args.first = first;
	memcpy(args.queries, queries, filters.count * sizeof(deep_query));
	blocks = (k + ANSWER_THREADS - 1) / ANSWER_THREADS;
	deep_answer_kernel<<<dim3(blocks < 32 ? blocks : 32, filters.count), ANSWER_THREADS, 0,
		stream>>>(args, *batch->slots);
	GG_CUDA_LAUNCHED("deep_answer_kernel");
	*end = first + filters.count;
	return gg_ok();
}

/*
 * How many rows filters leave of this index, as the answers to the stream's last batches say: the
 * most, of which an eighth is forgotten with each batch.  Without it all of prune.cu's launches
 * would be made, four where one is enough.  It is a guess: the last batch may not have been
 * answered, or something else may have been written in that place since.
 */
static void
note_matches(const gg_index *index, const deep_batch *batch, deep_scratch *scratch)
{
	if (batch->requests[0].filter == NULL)
		return;
	if (scratch->filtered != index)
		scratch->usual = UINT64_MAX;
	else
	{
		const uint64_t matches = *scratch->told;
		const uint64_t before = scratch->usual == UINT64_MAX ? 0 : scratch->usual;

		scratch->usual = std::max(matches, before - before / 8);
	}
	scratch->filtered = index;
	scratch->told = batch->queries[0].told;
}

gg_status
search_deep_queue(const gg_index *index, search_scratch *search, deep_scratch *scratch,
				  const deep_batch *batch, cudaStream_t stream)
{
	const uint32_t dim = index->view.dim;
	const uint32_t room = batch->nq == 1 ? 1 : GG_SERVE_MAX_DEEPS;

	/* the numbers of matches, those of blocks that have answered, the keys of short lists */
	GG_TRY(grow(scratch->narrow, GG_SERVE_MAX_DEEPS * (2 + NARROW_K), stream));
	GG_TRY(grow(search->queries, (uint64_t) room * dim, stream));
	GG_CUDA_TRY(search_gather_launch(batch->slots, batch->nq, dim, search->queries.get(),
									 (unsigned long long *) scratch->narrow.get(), stream));
	note_matches(index, batch, scratch);
	for (uint32_t done = 0; done < batch->nq;)
		GG_TRY(queue_lists(index, batch, done, &done, search, scratch, stream));
	return gg_ok();
}

/* ---- loading ------------------------------------------------------------------------ */

cudaError_t
search_deep_ready(const search_view *view, const search_device *device)
{
	cudaError_t error = search_filter_ready();

	if (error == cudaSuccess)
		error = kernel_load((const void *) digit_kernel);
	if (error == cudaSuccess)
		error = kernel_load((const void *) deep_answer_kernel);
	if (error != cudaSuccess)
		return error;
	return with_rows(view, [&](auto element, auto metric, auto team)
					 {
						 return ready_measure<decltype(element), decltype(metric)::value,
							 decltype(team)::value>(device);
					 });
}

/*
 * cub's kernels are loaded by being launched: the sort's are others for few keys than for many.
 * Waits.
 */
gg_status
search_deep_open(cudaStream_t stream)
{
	deep_layout layout;
	deep_scratch scratch;
	char	   *memory;

	GG_TRY(provide_wide(&scratch, LEAST_SLAB, stream));
	layout = layout_for(scratch.slab);
	memory = scratch.wide.get();
	GG_CUDA_TRY(cudaMemsetAsync(memory, 0, layout.temp, stream));
	for (uint32_t count = 64; count <= GG_MAX_DEEP; count *= 32)
	{
		cub::DoubleBuffer<uint64_t> buffer((uint64_t *) (memory + layout.selected[0]),
										   (uint64_t *) (memory + layout.selected[1]));
		size_t		temp_bytes = scratch.temp_bytes;

		GG_CUDA_TRY(select_keys(memory + layout.temp, &temp_bytes,
								(const uint64_t *) (memory + layout.keys), count,
								(uint64_t *) (memory + layout.selected[0]),
								(digit_state *) memory, stream));
		temp_bytes = scratch.temp_bytes;
		GG_CUDA_TRY(sort_keys(memory + layout.temp, &temp_bytes, buffer, count, stream));
	}
	GG_CUDA_TRY(cudaStreamSynchronize(stream));
	return gg_ok();
}
