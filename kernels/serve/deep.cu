/*
 * deep.cu
 *		The k nearest of all rows, or of those whose filter bit is set, behind a key: for more of
 *		them than exact.cu's lists hold.
 *
 * Shapes		rows n x dim as stored, queries, bits of nodes or none for all of them -> of each
 *				query k keys, ascending.
 * Requires		1 <= k <= GG_MAX_DEEP.
 * Mapping		The first launch brings queries from the host, and TIDs of filters that have few of
 *				them (serve.cu).
 *				What fits exact.cu's lists is left to it, for several queries at once: neighbours
 *				whose filters are equal, or all small, few TIDs included (filter.cu).
 *				Where filters leave many rows for several queries, or many bytes for one or two,
 *				exact.cu first makes the lists of one word of 32 rows in so many, by whose last keys
 *				prune.cu throws out most of all rows.  Only the device knows whether filters leave
 *				so many: where they lately did, all these launches look, and end at once where they
 *				are not for the case.
 *				Longer lists of all rows, and those with a last key, are for long_lists.cu.  Others
 *				are made one after the other, slab by slab of SLAB rows: keys and the k-th smallest
 *				(measure.cu), and the keys up to it, in the order of their nodes (cub).  The k keys
 *				of one slab are carried into the next one.  In the end they are sorted by their
 *				distance alone: the sort (cub's) is stable, and keys come by node.
 *				Of an index without rows all lists are for long_lists.cu, as many at once as filters
 *				allow.
 * Oracle		gg_cpu_engine.serve_submit: the same nodes but where distances differ by less than
 *				1e-5 relative.  Distances are those of exact.cu, bit by bit.
 * Cost			The rows once; 8 bytes per row written, and read four to five times by selection,
 *				from the L2 cache up to some millions of rows; a sort of k keys.
 */
#include <algorithm>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>

#include "../../src/engine/rules/serve_check.h"
#include "../search/exact.h"
#include "../search/gather.h"
#include "../search/measure.cuh"
#include "../search/prune.cuh"
#include "../search/query.cuh"
#include "index.cuh"

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
 * read rows for themselves, and wait for memory: prune.cu must save them PRUNED_BYTES, which take
 * 60 us.  So one query over 1M x 768 as float32 is for prune.cu where 175,000 rows match, and over
 * 1M x 128 never.  Filters that differ must also make exact.cu read PRUNED_TIMES the bytes of all
 * rows' halves, since prune.cu reads what any of them wants.
 * These are estimates.  Measured over 1M x 128 as float32, 16 callers with equal filters, when
 * prune.cu read rows as stored: 1.9 times as many queries per second with it where one row in two
 * matches, and 1.4 times where one in 10 does; 0.91 and 0.87 where one in 100 and in 1,000 do and
 * its launches are made, only to end at once.
 */
#ifndef PRUNED_PAIRS			/* the emulated device has fewer rows */
#define PRUNED_PAIRS ((uint64_t) 1 << 18)
#define PRUNED_BYTES ((uint64_t) 256 << 20)
#endif
#define PRUNED_SHARED 3			/* queries of a filter, from which on exact.cu shares rows */
#define PRUNED_TIMES 2
#define PRUNED_BITS ((uint64_t) 64 << 20)	/* bytes of all queries' bits, at most */

/* Measuring a row that prune.cu leaves costs so many rows of the sample: an estimate. */
#define SAMPLE_WEIGHT 16

#define ANSWER_THREADS 256

/* ---- selection ------------------------------------------------------------------ */

/* Keys up to the threshold are selected.  GG_KEY_NONE is not: it is above any threshold. */
struct is_selected
{
	const uint64_t *threshold;

	__device__ __forceinline__ bool
	operator()(const uint64_t &key) const
	{
		return key <= __ldg((const unsigned long long *) threshold);
	}
};

/* Copy selected keys to out, in their order.  Without temp: *temp_bytes becomes what that takes. */
static cudaError_t
select_keys(void *temp, size_t *temp_bytes, const uint64_t *keys, uint32_t count, uint64_t *out,
			digit_state *state, cudaStream_t stream)
{
	/* how many there were is not asked, and remaining is free between searches for digits */
	return cub::DeviceSelect::If(temp, *temp_bytes, keys, out, temp != NULL ? &state->remaining :
								 (uint32_t *) NULL, (int) count,
								 is_selected{temp != NULL ? &state->threshold : NULL}, stream);
}

/* Sort keys by the distance, their upper half. */
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

/* Grid: y over the queries, x over the keys of each.  A query's last block writes its ticket. */
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
	if (atomicAdd(&args.finished[blockIdx.y], 1) == gridDim.x - 1 && slots.base != NULL)
		answered(slots, args.first + blockIdx.y);
}

/* Queue the k least keys of one slab and of those before, into selected[0]. */
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

	GG_CUDA_TRY(search_measure_launch(&index->view, args, &index->device, stream));
	if (args->first > 0)
	{
		/* the earlier slabs' go in front of its keys, as keys come by node */
		keys -= k;
		count += k;
		GG_CUDA_TRY(cudaMemcpyAsync(keys, selected, (size_t) k * 8, cudaMemcpyDeviceToDevice,
									stream));
	}

	const digit_search search = {
		.keys = keys,
		.nq = 1,
		.count = count,
		.k = k,
		.exactly = true,
		.states = state,
	};

	GG_CUDA_TRY(search_digits_launch(&search, &index->device, stream));
	GG_CUDA_TRY(cudaMemsetAsync(selected, 0xFF, (size_t) k * 8, stream));
	GG_CUDA_TRY(select_keys(memory + layout->temp, &temp_bytes, keys, count, selected, state,
							stream));
	return gg_ok();
}

/* Queue one list, slab by slab.  *keys: where the sorted list will be. */
static gg_status
queue_wide(const gg_index *index, const float *query, const uint32_t *filter,
		   const deep_query *wanted, deep_scratch *scratch, const uint64_t **keys,
		   cudaStream_t stream)
{
	const uint32_t n = index->view.n;
	const uint32_t k = wanted->k;
	deep_layout layout;
	char	   *memory;
	size_t		temp_bytes;

	GG_TRY(provide_wide(scratch, n, stream));
	layout = layout_for(scratch->slab);
	memory = scratch->wide.get();
	for (uint32_t first = 0; first < n;)
	{
		uint32_t	end = n - first < scratch->slab ? n : first + scratch->slab;
		const measure_args args = {
			.queries = query,
			.nq = 1,
			.filter = filter,
			.first = first,
			.end = end,
			.step = 1,
			.after = wanted->after,
			.keys = (uint64_t *) (memory + layout.keys),
		};

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

/* Lists of as many queries as their filters are for. */
typedef struct deep_lists
{
	const float *queries;
	uint32_t	k;
	uint64_t   *keys;
} deep_lists;

/* Queue lists of several queries at once by exact.cu, over the filters' bits. */
static gg_status
queue_exact(const gg_index *index, const deep_lists *lists, const deep_filters *filters,
			const search_part *part, search_scratch *search, cudaStream_t stream)
{
	search_batch batch;

	memset(&batch, 0, sizeof(batch));
	batch.queries = lists->queries;
	batch.nq = batch.room = filters->count;
	batch.keys = lists->keys;
	batch.filter_stride = filters->stride;
	batch.part = part;
	return search_exact_queue(index, search, lists->k, filters->bits, &batch, stream);
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

/* The same as queue_exact(), by prune.cu where that is sooner. */
static gg_status
queue_narrow(const gg_index *index, const deep_lists *lists, const deep_filters *filters,
			 search_scratch *search, deep_scratch *scratch, cudaStream_t stream)
{
	const search_view *view = &index->view;
	const uint32_t k = lists->k;
	const uint32_t words = (view->n + 31) / 32;
	const uint64_t bits = (uint64_t) (filters->count == 1 ? 1 : PRUNE_QUERIES) * words;
	deep_filters pruned = {filters->count, NULL, words, NULL};
	search_part part = {
		.step = prune_sample_step(view->n, k, SAMPLE_WEIGHT),
		.gate = {
			.matches = filters->matches,
			.count = 1,
			.queries = filters->count,
			.least = pruned_pairs(view, filters),
			.below = false,
		},
	};
	prune_launch launch = {
		.filter = filters->bits,
		.filter_stride = filters->stride,
		.to_stride = words,
		.queries = lists->queries,
		.nq = filters->count,
		.bounds = lists->keys + k - 1,
		.bounds_stride = k,
	};

	if (filters->stride > 0)
	{
		part.gate.count = filters->count;
		part.gate.queries = 1;
	}
	if (filters->matches == NULL || part.step < 4 || bits * 4 > PRUNED_BITS ||
		(uint64_t) view->n * filters->count < part.gate.least ||
		scratch->usual < part.gate.least / filters->count ||
		!search_prune_takes(view, &index->device))
		return queue_exact(index, lists, filters, NULL, search, stream);

	GG_TRY(grow(scratch->pruned, bits, stream));
	pruned.bits = launch.to = scratch->pruned.get();
	launch.gate = part.gate;
	GG_TRY(queue_exact(index, lists, filters, &part, search, stream));
	GG_CUDA_TRY(search_prune_launch(view, &launch, &index->device, stream));
	part.step = 0;
	GG_TRY(queue_exact(index, lists, &pruned, &part, search, stream));
	part.gate.below = true;
	return queue_exact(index, lists, filters, &part, search, stream);
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

/* The batch's queries in device memory. */
static const float *
copies_of(const deep_batch *batch, const search_scratch *search)
{
	return batch->copies != NULL ? batch->copies : search->queries.get();
}

/* The filter of a request, and where gather_batch() has brought its TIDs. */
static filter_source
filter_of(const deep_batch *batch, uint32_t query, const deep_scratch *scratch)
{
	const filter_source source = {batch->queries[query].filter,
		batch->queries[query].tids == NULL ? NULL :
		scratch->gathered.get() + (size_t) query * GG_SHORT_TIDS};

	return source;
}

/* How many of `most` queries, from `first` on, have the filter of `first`. */
static uint32_t
same_filter(const deep_batch *batch, uint32_t first, uint32_t most)
{
	uint32_t	same = 1;

	while (same < most && gg_serve_is_same(batch->queries[first].filter,
										   batch->queries[first + same].filter))
		same++;
	return same;
}

/*
 * Queue filters of queries from first on, `most` at most: one for those that share it, or each
 * one's.  One filter alone goes without filter.cu's table of TIDs.  The table would save the search
 * of one list, which is a few steps in a block's cache, and each block would clear its 16 kB first.
 */
static gg_status
queue_deep_filters(const gg_index *index, const deep_batch *batch, uint32_t first, uint32_t most,
				   deep_scratch *scratch, deep_filters *filters, cudaStream_t stream)
{
	unsigned long long *matches = (unsigned long long *) scratch->narrow.get() + first;
	filter_source sources[GG_SERVE_MAX_DEEPS];
	const uint32_t together = search_filters_together(index);
	uint32_t	apart = 0;

	memset(filters, 0, sizeof(*filters));
	filters->count = same_filter(batch, first, most);
	for (uint32_t q = 0; q < most; q++)
		sources[q] = filter_of(batch, first + q, scratch);
	while (apart < most && apart < together && search_filter_is_small(&sources[apart]))
		apart++;
	if (filters->count < apart)
	{
		filters->count = apart;
		GG_TRY(search_filters_queue(index, sources, apart, scratch, matches, &filters->stride,
									stream));
		filters->bits = scratch->bits.get();
		filters->matches = matches;
	}
	else if (batch->queries[first].filter != NULL)
	{
		GG_TRY(search_filter_queue(index, &sources[0], scratch, matches, &filters->bits, stream));
		filters->matches = matches;
	}
	return gg_ok();
}

/* queue_lists() of an index without rows: of first, and the queries that filters join to it. */
static gg_status
queue_bounded(const gg_index *index, const deep_batch *batch, uint32_t first, uint32_t *end,
			  search_scratch *search, deep_scratch *scratch, cudaStream_t stream)
{
	const float *copies = copies_of(batch, search) + (size_t) first * index->view.dim;
	deep_filters filters;

	GG_TRY(queue_deep_filters(index, batch, first, batch->nq - first, scratch, &filters, stream));
	*end = first + filters.count;
	return search_bounded_queue(index, copies, batch, first, &filters, scratch, stream);
}

/*
 * Queue the lists of queries [first, *end): of those from first on that exact.cu or long_lists.cu
 * takes together, or of first alone.  The nearest k begin any longer list, so the longest one's k
 * is that of all.
 */
static gg_status
queue_lists(const gg_index *index, const deep_batch *batch, uint32_t first, uint32_t *end,
			search_scratch *search, deep_scratch *scratch, cudaStream_t stream)
{
	const deep_query *queries = batch->queries + first;
	const float *copies = copies_of(batch, search) + (size_t) first * index->view.dim;
	const uint32_t narrow = count_narrow(index, batch, first);
	const uint32_t together = narrow > 0 && queries[0].last == 0 ? 0 :
		search_long_together(index, batch, first);
	uint64_t   *keys = scratch->narrow.get() + 2 * GG_SERVE_MAX_DEEPS;
	deep_filters filters;
	uint32_t	k = queries[0].k;
	uint32_t	blocks;
	answer_args args;

	if (together > 0)
	{
		const gg_status status = search_long_queue(index, copies, batch, first, first + together,
												   scratch, stream);

		*end = first + together;
		/* where there is no memory for that, they are made one after the other */
		if (status.code != GG_EDEVICE_MEMORY)
			return status;
	}
	GG_TRY(queue_deep_filters(index, batch, first, narrow > 1 ? narrow : 1, scratch, &filters,
							  stream));
	for (uint32_t q = 1; q < filters.count; q++)
		k = queries[q].k > k ? queries[q].k : k;

	const deep_lists lists = {copies, k, keys};

	memset(&args, 0, sizeof(args));
	args.keys = keys;
	if (narrow > 0)
		GG_TRY(queue_narrow(index, &lists, &filters, search, scratch, stream));
	else
		GG_TRY(queue_wide(index, copies, filters.bits, &queries[0], scratch, &args.keys, stream));
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
	if (batch->queries[0].filter == NULL)
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

/*
 * Bring queries, if they are not there, and TIDs of filters that have few, to device memory, where
 * they stay as long as the batch takes: what bring_filter() copies for a later group goes
 * elsewhere.  The numbers of matches, and of blocks that have answered, become 0.
 */
static gg_status
gather_batch(const gg_index *index, const deep_batch *batch, search_scratch *search,
			 deep_scratch *scratch, cudaStream_t stream)
{
	gathered_tids tids;
	bool		any = false;

	if (batch->copies != NULL)
	{
		GG_CUDA_TRY(cudaMemsetAsync(scratch->narrow.get(), 0,
									2 * GG_SERVE_MAX_DEEPS * sizeof(uint64_t), stream));
		return gg_ok();
	}
	memset(&tids, 0, sizeof(tids));
	for (uint32_t q = 0; q < batch->nq; q++)
		if (batch->queries[q].tids != NULL)
		{
			tids.from[q] = batch->queries[q].tids;
			tids.count[q] = batch->queries[q].filter->ntids;
			any = true;
		}
	if (any)
		GG_TRY(grow(scratch->gathered, GG_SERVE_MAX_DEEPS * GG_SHORT_TIDS, stream));
	tids.to = scratch->gathered.get();
	GG_CUDA_TRY(search_gather_launch(batch->slots, batch->nq, index->view.dim,
									 search->queries.get(),
									 (unsigned long long *) scratch->narrow.get(),
									 any ? &tids : NULL, stream));
	return gg_ok();
}

gg_status
search_deep_queue(const gg_index *index, search_scratch *search, deep_scratch *scratch,
				  const deep_batch *batch, cudaStream_t stream)
{
	const uint32_t dim = index->view.dim;
	const uint32_t room = batch->nq == 1 ? 1 : GG_SERVE_MAX_DEEPS;

	/* the numbers of matches, those of blocks that have answered, the keys of short lists */
	GG_TRY(grow(scratch->narrow, GG_SERVE_MAX_DEEPS * (2 + NARROW_K), stream));
	if (batch->copies == NULL)
		GG_TRY(grow(search->queries, (uint64_t) room * dim, stream));
	GG_TRY(gather_batch(index, batch, search, scratch, stream));
	note_matches(index, batch, scratch);
	for (uint32_t done = 0; done < batch->nq;)
		if (index->shape.row_place == GG_ROWS_NONE)
			GG_TRY(queue_bounded(index, batch, done, &done, search, scratch, stream));
		else
			GG_TRY(queue_lists(index, batch, done, &done, search, scratch, stream));
	return gg_ok();
}

/* ---- loading ------------------------------------------------------------------------ */

cudaError_t
search_deep_ready(const search_view *view, const search_device *device)
{
	cudaError_t error = search_filter_ready();

	if (error == cudaSuccess)
		error = kernel_load((const void *) deep_answer_kernel);
	if (error == cudaSuccess)
		error = search_long_ready(view, device);
	return error == cudaSuccess ? search_measure_ready(view, device) : error;
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
