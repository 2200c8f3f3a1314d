/*
 * long_lists.cu
 *		The k nearest of all rows, for k beyond exact.cu's lists, of several queries at once: most
 *		rows are read once for all of them.  And lists of bounds, of several queries at once.
 *
 * Shapes		rows n x dim as stored, queries nq x dim float32 -> of each query k keys, ascending.
 *				bounds: records n x walk_stride bytes, bits of nodes or none; the rest as above.
 * Requires		1 <= k <= GG_LONG_DEEP; what prune.cu takes; 8 bytes for each row of one query in
 *				ROUND_BYTES.  bounds: k <= GG_BOUNDED_LIST.
 * Mapping		sample	the k-th smallest key of one word of 32 rows in `step` (measure.cu), but
 *						where all queries have a last key
 *				prune	rows that may be as near as that, for all queries at once (prune.cu)
 *				pick	keys of the rows that are left, and the k-th smallest (measure.cu); those
 *						up to it, in no order
 *				sort	by a block of each query, which answers
 *				The first and the third are made for as many queries at once as there is room
 *				for keys.
 *				bounds	keys of the rows that match (bounds.cu), pick and sort.  There is room for
 *				the keys of BOUNDED_ROWS rows, should all of them match: of more rows the k least
 *				so far come in front of the next ones'.
 * Shared		sort: the k keys.
 * Oracle		gg_cpu_engine.serve_submit.  Keys are those of deep.cu's other lists, bit by bit.
 * Cost			n / step rows for up to 8 queries at a time (measure.cu), k x step rows for each
 *				query, and halves of all rows for all of them.
 */
#include "../../src/engine/rules/codes.h"
#include "../search/bounds.h"
#include "../search/exact.cuh"
#include "../search/measure.cuh"
#include "../search/prune.cuh"
#include "../search/query.cuh"
#include "index.cuh"

/* Bytes of the keys of the queries of a round. */
#define ROUND_BYTES ((uint64_t) 64 << 20)

/*
 * One query alone takes this way where it saves so many bytes: rows as stored less their halves.
 * The launches beside take some 60 us, which is an estimate.
 */
#ifndef LONG_BYTES				/* the emulated device has fewer rows */
#define LONG_BYTES ((uint64_t) 512 << 20)
#endif

/* Measuring a row that prune.cu leaves costs so many rows of the sample: an estimate. */
#define SAMPLE_WEIGHT 4

/* Rows whose keys have room, of all queries whose lists of bounds are made at once. */
#ifndef BOUNDED_ROWS			/* the emulated device has fewer rows */
#define BOUNDED_ROWS ((uint32_t) 1 << 23)
#endif

#define PICK_THREADS 256
#define SORT_THREADS 1024

typedef struct sort_args
{
	digit_state *states;		/* of each query */
	const uint64_t *picked;		/* k of each */
	uint32_t	k;
	const unsigned long long *matches;	/* NULL: nodes */
	uint32_t	matches_stride;	/* 1, or 0: one number for all */
	uint64_t	nodes;
	uint32_t	first;			/* number in the slots of the first query */
	deep_query	queries[GG_SERVE_MAX_DEEPS];
} sort_args;

/*
 * Grid: y over the queries.  Pick the keys up to the threshold: k, or fewer where there are no
 * more.  count: as in digit_search.
 */
__global__ void __launch_bounds__(PICK_THREADS)
pick_kernel(const uint64_t *keys, uint64_t keys_stride, uint32_t count, uint32_t k,
			digit_state *states, uint64_t *picked)
{
	digit_state *state = states + blockIdx.y;
	const uint64_t threshold = state->threshold;
	const uint32_t lane = threadIdx.x & 31;

	count = count > 0 ? count : state->found;
	keys += blockIdx.y * keys_stride;
	picked += (size_t) blockIdx.y * k;
	for (uint64_t base = (uint64_t) blockIdx.x * PICK_THREADS; base < count;
		 base += (uint64_t) gridDim.x * PICK_THREADS)
	{
		const uint64_t i = base + threadIdx.x;
		const uint64_t key = i < count ? keys[i] : GG_KEY_NONE;
		const uint32_t mask = __ballot_sync(GG_FULL_WARP, key <= threshold);
		uint32_t	at = 0;

		if (mask == 0)
			continue;
		if (lane == 0)
			at = atomicAdd(&state->taken, __popc(mask));
		at = __shfl_sync(GG_FULL_WARP, at, 0) + __popc(mask & gg_lanes_below(lane));
		if (key <= threshold && at < k)
			picked[at] = key;
	}
}

/* k rounded up to a power of two, at least 32. */
static __host__ __device__ __forceinline__ uint32_t
room_for(uint32_t k)
{
	uint32_t	room = 32;

	while (room < k)
		room *= 2;
	return room;
}

/* Sort each query's keys and answer, by a block per query. */
__global__ void __launch_bounds__(SORT_THREADS)
sort_kernel(const __grid_constant__ sort_args args, const __grid_constant__ search_slots slots)
{
	extern __shared__ __align__(16) char shared[];
	uint64_t   *keys = (uint64_t *) shared;
	const deep_query &query = args.queries[blockIdx.x];
	const uint64_t *picked = args.picked + (size_t) blockIdx.x * args.k;
	const uint32_t count = min(args.states[blockIdx.x].taken, args.k);
	const uint32_t room = room_for(count);

	for (uint32_t i = threadIdx.x; i < room; i += SORT_THREADS)
		keys[i] = i < count ? picked[i] : GG_KEY_NONE;
	block_sort<SORT_THREADS>(keys, room);
	for (uint32_t i = threadIdx.x; i < query.k; i += SORT_THREADS)
		query.keys[i] = i < count ? keys[i] : GG_KEY_NONE;
	if (threadIdx.x == 0)
		*query.matches = args.matches != NULL ?
			args.matches[blockIdx.x * args.matches_stride] : args.nodes;
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	args.states[blockIdx.x].found = 0;
	if (slots.base != NULL)
		answered(slots, args.first + blockIdx.x);
}

/* ---- queueing ------------------------------------------------------------------- */

static bool
is_long(const gg_index *index, const deep_batch *batch, uint32_t number)
{
	const deep_query *query = &batch->queries[number];

	return query->filter == NULL && query->after == 0 &&
		query->k <= GG_LONG_DEEP && prune_sample_step(index->view.n, query->k, SAMPLE_WEIGHT) > 1 &&
		room_for(query->k) * 8 <= (uint32_t) index->device.shared_bytes;
}

uint32_t
search_long_together(const gg_index *index, const deep_batch *batch, uint32_t first)
{
	const search_view *view = &index->view;
	uint32_t	end = first;

	if (view->n > ROUND_BYTES / 8 || !search_prune_takes(view, &index->device))
		return 0;
	while (end < batch->nq && is_long(index, batch, end))
		end++;
	return end - first > 1 ||
		(end > first && view->n * (uint64_t) (view->row_stride - view->walk_stride) >= LONG_BYTES) ?
		end - first : 0;
}

/* Where things lie in deep_scratch.together. */
typedef struct long_layout
{
	size_t		picked;
	size_t		keys;
	size_t		bits;
	size_t		total;
} long_layout;

static long_layout
layout_for(uint32_t n)
{
	const uint64_t all = (uint64_t) GG_SERVE_MAX_DEEPS * n * 8;
	long_layout layout;

	layout.picked = (GG_SERVE_MAX_DEEPS * sizeof(digit_state) + 255) & ~(size_t) 255;
	layout.keys = layout.picked + (size_t) GG_SERVE_MAX_DEEPS * GG_LONG_DEEP * 8;
	layout.bits = layout.keys + (all < ROUND_BYTES ? all : ROUND_BYTES);
	layout.total = layout.bits + (size_t) GG_SERVE_MAX_DEEPS * ((n + 31) / 32) * 4;
	return layout;
}

/* Provide memory of this layout, and of smaller ones; states are 0. */
static gg_status
provide(deep_scratch *scratch, const long_layout *layout, cudaStream_t stream)
{
	if (scratch->together.bytes() >= layout->total)
		return gg_ok();
	GG_TRY(grow(scratch->together, layout->total, stream));
	GG_CUDA_TRY(cudaMemsetAsync(scratch->together.get(), 0, layout->picked, stream));
	return gg_ok();
}

/* Queries that are answered together, and what of the scratch memory is for what. */
typedef struct long_search
{
	const gg_index *index;
	const float *queries;
	uint32_t	nq;
	uint32_t	k;				/* of the longest list */
	digit_state *states;		/* nq */
	uint64_t   *picked;			/* nq x k */
	uint64_t   *keys;
	uint32_t   *bits;			/* nq x a bit a row */
} long_search;

/* Find each query's k-th smallest key in one word of rows in `step`: no nearer than that of all. */
static gg_status
queue_sample(const long_search *search, uint32_t step, cudaStream_t stream)
{
	const search_view *view = &search->index->view;
	const search_device *device = &search->index->device;
	const uint32_t taken = ((view->n + 31) / 32 + step - 1) / step;
	const uint32_t last = (taken - 1) * step * 32;	/* row that the last word begins with */
	const uint32_t count = (taken - 1) * 32 + (view->n - last < 32 ? view->n - last : 32);
	const uint64_t stride = (uint64_t) taken * 32;
	const uint32_t most = (uint32_t) (ROUND_BYTES / 8 / stride);

	for (uint32_t q = 0; q < search->nq; q += most)
	{
		const uint32_t some = search->nq - q < most ? search->nq - q : most;
		const measure_args args = {
			.queries = search->queries + (size_t) q * view->dim,
			.nq = some,
			.end = view->n,
			.step = step,
			.keys = search->keys,
			.keys_stride = stride,
		};
		const digit_search digits = {
			.keys = search->keys,
			.keys_stride = stride,
			.nq = some,
			.count = count,
			.k = search->k,
			.exactly = false,
			.states = search->states + q,
		};

		GG_CUDA_TRY(search_measure_launch(view, &args, device, stream));
		GG_CUDA_TRY(search_digits_launch(&digits, device, stream));
	}
	return gg_ok();
}

/*
 * Pick the k least of the keys of each of `some` queries, in no order.  stride: from one query's
 * keys to the next one's, and how many they are at most; count: as in digit_search.
 */
static gg_status
queue_pick(const long_search *search, uint32_t first, uint32_t some, uint64_t stride,
		   uint32_t count, cudaStream_t stream)
{
	const search_device *device = &search->index->device;
	const uint32_t k = search->k;
	const uint32_t blocks = (8 * (uint32_t) device->sms + some - 1) / some;
	const uint32_t useful = (uint32_t) ((stride + PICK_THREADS - 1) / PICK_THREADS);
	const digit_search digits = {
		.keys = search->keys,
		.keys_stride = stride,
		.nq = some,
		.count = count,
		.k = k,
		.exactly = true,
		.states = search->states + first,
	};

	GG_CUDA_TRY(search_digits_launch(&digits, device, stream));
	pick_kernel<<<dim3(blocks < useful ? blocks : useful, some), PICK_THREADS, 0, stream>>>
		(search->keys, stride, count, k, search->states + first,
		 search->picked + (size_t) first * k);
	GG_CUDA_LAUNCHED("pick_kernel");
	return gg_ok();
}

/* Pick the k nearest of the rows whose bits are set, in no order. */
static gg_status
queue_picks(const long_search *search, cudaStream_t stream)
{
	const search_view *view = &search->index->view;
	const search_device *device = &search->index->device;
	const uint32_t words = (view->n + 31) / 32;
	const uint32_t most = (uint32_t) (ROUND_BYTES / 8 / view->n);

	for (uint32_t q = 0; q < search->nq; q += most)
	{
		const uint32_t some = search->nq - q < most ? search->nq - q : most;
		const measure_args args = {
			.queries = search->queries + (size_t) q * view->dim,
			.nq = some,
			.filter = search->bits + (size_t) q * words,
			.filter_stride = words,
			.end = view->n,
			.step = 1,
			.keys = search->keys,
			.keys_stride = view->n,
		};
		GG_CUDA_TRY(search_measure_launch(view, &args, device, stream));
		GG_TRY(queue_pick(search, q, some, view->n, view->n, stream));
	}
	return gg_ok();
}

/* Make bounds of the rows that match, and pick the k least of them, in no order. */
static gg_status
queue_bounds(const long_search *search, const deep_query *wanted, const deep_filters *filters,
			 cudaStream_t stream)
{
	const search_view *view = &search->index->view;
	const uint32_t nq = search->nq;
	const uint32_t slab = BOUNDED_ROWS / nq & ~31u;
	bounds_args args = {
		.queries = search->queries,
		.nq = nq,
		.filter = filters->bits,
		.filter_stride = filters->stride,
		.keys = search->keys,
		.keys_stride = (uint64_t) (view->n < slab ? view->n : slab) + search->k,
		.states = search->states,
	};

	for (uint32_t q = 0; q < nq; q++)
		args.after[q] = wanted[q].after;
	for (; args.first < view->n; args.first = args.end)
	{
		args.end = view->n - args.first < slab ? view->n : args.first + slab;
		if (args.first > 0)
		{
			GG_CUDA_TRY(cudaMemcpy2DAsync(search->keys, args.keys_stride * 8, search->picked,
										  search->k * 8, search->k * 8, nq,
										  cudaMemcpyDeviceToDevice, stream));
			GG_CUDA_TRY(cudaMemcpy2DAsync(&search->states->found, sizeof(digit_state),
										  &search->states->taken, sizeof(digit_state),
										  sizeof(uint32_t), nq, cudaMemcpyDeviceToDevice,
										  stream));
		}
		GG_CUDA_TRY(search_bounds_launch(view, &args, &search->index->device, stream));
		GG_TRY(queue_pick(search, 0, nq, args.keys_stride, 0, stream));
	}
	return gg_ok();
}

/* Sort the picked keys, and answer the batch's queries from first on. */
static gg_status
queue_sort(const long_search *search, const deep_batch *batch, uint32_t first,
		   const deep_filters *filters, cudaStream_t stream)
{
	sort_args	args;

	memset(&args, 0, sizeof(args));
	args.states = search->states;
	args.picked = search->picked;
	args.k = search->k;
	args.matches = filters->matches;
	args.matches_stride = filters->stride > 0;
	args.nodes = search->index->view.n;
	args.first = first;
	memcpy(args.queries, batch->queries + first, search->nq * sizeof(deep_query));
	GG_CUDA_TRY(kernel_ready<sort_kernel>(&search->index->device));
	sort_kernel<<<search->nq, SORT_THREADS, room_for(search->k) * 8, stream>>>(args,
																			   *batch->slots);
	GG_CUDA_LAUNCHED("sort_kernel");
	return gg_ok();
}

/* The longest list of the batch's queries [first, end): the nearest k begin any longer one. */
static uint32_t
longest_list(const deep_batch *batch, uint32_t first, uint32_t end)
{
	uint32_t	k = 0;

	for (uint32_t i = first; i < end; i++)
		k = batch->queries[i].k > k ? batch->queries[i].k : k;
	return k;
}

gg_status
search_long_queue(const gg_index *index, const float *queries, const deep_batch *batch,
				  uint32_t first, uint32_t end, deep_scratch *scratch, cudaStream_t stream)
{
	const search_view *view = &index->view;
	const long_layout layout = layout_for(view->n);
	const uint32_t words = (view->n + 31) / 32;
	const uint32_t k = longest_list(batch, first, end);
	const deep_filters none = {};

	GG_TRY(provide(scratch, &layout, stream));

	char	   *memory = scratch->together.get();
	const long_search search = {
		.index = index,
		.queries = queries,
		.nq = end - first,
		.k = k,
		.states = (digit_state *) memory,
		.picked = (uint64_t *) (memory + layout.picked),
		.keys = (uint64_t *) (memory + layout.keys),
		.bits = (uint32_t *) (memory + layout.bits),
	};
	prune_launch prune = {
		.to = search.bits,
		.to_stride = words,
		.queries = queries,
		.nq = search.nq,
		.bounds_stride = sizeof(digit_state) / 8,
	};

	for (uint32_t q = 0; q < search.nq; q++)
	{
		prune.last[q] = batch->queries[first + q].last;
		if (prune.last[q] == 0)
			prune.bounds = &search.states->threshold;
	}
	if (prune.bounds != NULL)
		GG_TRY(queue_sample(&search, prune_sample_step(view->n, k, SAMPLE_WEIGHT), stream));
	GG_CUDA_TRY(search_prune_launch(view, &prune, &index->device, stream));
	GG_TRY(queue_picks(&search, stream));
	return queue_sort(&search, batch, first, &none, stream);
}

gg_status
search_bounded_queue(const gg_index *index, const float *queries, const deep_batch *batch,
					 uint32_t first, const deep_filters *filters, deep_scratch *scratch,
					 cudaStream_t stream)
{
	const uint64_t rows = (uint64_t) GG_SERVE_MAX_DEEPS * index->view.n;
	const size_t lists = (size_t) GG_SERVE_MAX_DEEPS * GG_BOUNDED_LIST * 8;
	long_layout layout = layout_for(0);

	layout.keys = layout.picked + lists;
	layout.total = layout.keys + lists + (rows < BOUNDED_ROWS ? rows : BOUNDED_ROWS) * 8;
	GG_TRY(provide(scratch, &layout, stream));

	char	   *memory = scratch->together.get();
	const long_search search = {
		.index = index,
		.queries = queries,
		.nq = filters->count,
		.k = longest_list(batch, first, first + filters->count),
		.states = (digit_state *) memory,
		.picked = (uint64_t *) (memory + layout.picked),
		.keys = (uint64_t *) (memory + layout.keys),
	};

	GG_TRY(queue_bounds(&search, batch->queries + first, filters, stream));
	return queue_sort(&search, batch, first, filters, stream);
}

cudaError_t
search_long_ready(const search_view *view, const search_device *device)
{
	cudaError_t error = kernel_load((const void *) pick_kernel);

	if (error == cudaSuccess && view->code_bits > 0 && gg_code_has_bounds(view->metric))
		error = search_bounds_ready(view, device);
	return error == cudaSuccess ? kernel_ready<sort_kernel>(device) : error;
}
