/*
 * index.cu
 *		Searches over one index: which kernels answer, and callers that wait for them.
 *
 * Each index has one stream and one set of scratch buffers.  These grow to the largest search seen
 * and then stay, so a search after warm-up allocates nothing.  A server (serve.cu) has its own of
 * both.
 */
#include "../../src/engine/rules/algorithms.h"
#include "../search/exact.h"
#include "../search/gather.h"
#include "../search/pivots.h"
#include "../papers/search_greedy.h"
#include "../search/search_multi.h"
#include "../papers/search_segmented.h"
#include "../search/search_single.h"
#include "index.cuh"

/* Queries of one launch; bounds scratch memory and the time between two looks at cancelled(). */
#define MAX_BATCH 16384

/* Exact distances of one launch, in elements: about 50 ms at 30 T elements/s. */
#define EXACT_ELEMENTS_PER_LAUNCH 1.5e12

/*
 * Up to here queries are read from, and answers written to, mapped host memory by the kernel
 * itself: a copy each way costs more than the kernel's own few transactions.
 */
#define MAPPED_BATCH 16

/*
 * Queries in slots are copied to device memory by a launch of their own when blocks would else read
 * more than this over PCIe a second time: at 55 GB/s 128 kB take 2.4 us.  Chosen by arithmetic,
 * against the few us that one more launch in the stream is known to take.
 */
#define GATHER_BYTES ((uint64_t) 128 << 10)

/*
 * Queries of one launch of greedy walks, which leave 8 kB each at itopk 64, 128 kB at most, in
 * scratch memory.  Any batch of a server is one launch.
 */
#define GREEDY_BATCH GG_SERVE_MAX_BATCH

/*
 * Up to here a block per query beats a warp per query: over 1M x 128 1,000 queries take 0.36 and
 * 0.40 ms, 2,000 take 0.56 and 0.48 ms.
 */
#define BLOCK_QUERIES_PER_SM 8

/*
 * Bytes of pivot rows that a multiprocessor may have to read for the walks it runs before a matrix
 * product over all queries is worth its two launches: at some 100 GB/s, 20 us.
 */
#define SCORE_BYTES_PER_SM ((uint64_t) 2 << 20)

/* ---- which kernels ---------------------------------------------------------- */

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
 * While there are multiprocessors to spare, a query gets as many blocks as can be given to each at
 * once; two blocks sharing one were slower (1M x 128, batch 10: 115 us against 67), and so is a
 * cluster that waits for another one's end.
 * Past that, a block per query is still sooner done than a warp per query, until the device is so
 * full that only throughput counts, where barriers are dear.  Which of the two is better in such
 * batches depends on the list's length, too (takes_warps() in search_single.cu).
 */
uint32_t
search_cluster_for(const search_device *device, gg_search_mode mode, uint32_t nq)
{
	uint32_t	cluster = MAX_CLUSTER;
	uint32_t	sms = (uint32_t) device->sms;

	/* other modes are searched as under GG_SEARCH_AUTO */
	if (mode == GG_SEARCH_SINGLE_CTA ||
		(mode != GG_SEARCH_MULTI_CTA && nq > BLOCK_QUERIES_PER_SM * sms))
		return 0;
	while (cluster > 1 && device->clusters[cluster] < nq)
		cluster--;
	return cluster;
}

/* Whether the pivots, of this view, are scored by pivots.cu rather than in the walk. */
static bool
choose_product(const search_view *view, const search_device *device, uint32_t nq, uint32_t cluster)
{
	uint64_t	bytes = (uint64_t) nq * view->npivots * view->walk_stride;
	uint32_t	used = nq * cluster < (uint32_t) device->sms ? nq * cluster :
		(uint32_t) device->sms;

	if (view->path != WALK_HALF_DOT)
		return false;
	return cluster == 0 || bytes > used * SCORE_BYTES_PER_SM;
}

/* Provide the mail of blocks that share a query, where they have no cluster. */
gg_status
search_mail(search_scratch *scratch, const search_device *device, cudaStream_t stream)
{
	size_t		bytes = search_multi_mail(device);

	if (scratch->mail.bytes() >= bytes)
		return gg_ok();
	GG_TRY(scratch->mail.allocate(bytes));
	GG_CUDA_TRY(cudaMemsetAsync(scratch->mail.get(), 0, bytes, stream));
	return gg_ok();
}

/* GG_EUNSUPPORTED for a walk that takes more shared memory than a block can have. */
static gg_status
check_shared(const search_view *view, const search_launch *launch, const search_device *device,
			 uint32_t cluster)
{
	uint32_t	bytes = cluster == 0 ? search_single_shared(view, launch, device) :
		search_multi_shared(view, launch, device);

	if (bytes > (uint32_t) device->shared_bytes)
		return gg_fail(GG_EUNSUPPORTED, __func__,
					   "a walk over rows of %u dimensions with itopk_size %u takes %u bytes of "
					   "shared memory a block, device %d has %d", view->dim,
					   launch->params.itopk_size, bytes, device->ordinal, device->shared_bytes);
	return gg_ok();
}

/* How many nodes of a walk's list are measured by row; k if the index has no rows. */
static uint32_t
rerank_for(const gg_index *index, const gg_search_params *params)
{
	if (index->shape.codes == GG_CODES_NONE)
		return search_rerank_size(params->itopk_size, params->k);
	return index->shape.row_place == GG_ROWS_NONE ? params->k :
		gg_rerank_size(params, index->shape.codes, index->shape.dim);
}

/* The launch of a walk of so many queries; where they are, the caller says. */
search_launch
search_launch_for(const gg_index *index, const gg_search_params *params, uint32_t nq)
{
	search_launch launch;

	memset(&launch, 0, sizeof(launch));
	launch.nq = nq;
	launch.params = *params;
	launch.params.search_width = search_width_for(params->search_width, params->itopk_size,
												  index->view.degree);
	launch.params.rerank = rerank_for(index, params);
	return launch;
}

/* Copy the batch's queries from slots to scratch->queries. */
static gg_status
gather(const gg_index *index, search_scratch *scratch, const search_batch *batch,
	   cudaStream_t stream)
{
	GG_TRY(grow(scratch->queries, (uint64_t) batch->room * index->view.dim, stream));
	GG_CUDA_TRY(search_gather_launch(batch->slots, batch->nq, index->view.dim,
									 scratch->queries.get(), NULL, NULL, stream));
	return gg_ok();
}

/* TSDG's search for small batches. */
static gg_status
queue_greedy(const gg_index *index, search_scratch *scratch, const gg_search_params *params,
			 const search_batch *batch, cudaStream_t stream)
{
	const uint32_t room = batch->room < GREEDY_BATCH ? batch->room : GREEDY_BATCH;
	const float *queries = batch->queries;
	search_launch launch;
	uint32_t	walks;
	uint32_t	nseeds;

	gg_greedy_plan(params, index->view.npivots, &walks, &nseeds);
	GG_TRY(grow(scratch->greedy_lists, (uint64_t) room * walks * GG_GREEDY_LIST, stream));
	if (scratch->greedy_arrived.bytes() < (uint64_t) room * 4)
	{
		GG_TRY(grow(scratch->greedy_arrived, room, stream));
		GG_CUDA_TRY(cudaMemsetAsync(scratch->greedy_arrived.get(), 0,
									scratch->greedy_arrived.bytes(), stream));
	}
	if (batch->slots != NULL)
	{
		/* each walk reads its query several times; all queries in slots fit in one launch */
		GG_TRY(gather(index, scratch, batch, stream));
		queries = scratch->queries.get();
	}

	const greedy_args args = {walks, nseeds, scratch->greedy_lists.get(),
		scratch->greedy_arrived.get()};

	memset(&launch, 0, sizeof(launch));
	launch.params = *params;
	for (uint32_t first = 0; first < batch->nq; first += room)
	{
		launch.queries = queries + (size_t) first * index->view.dim;
		launch.nq = batch->nq - first < room ? batch->nq - first : room;
		if (batch->slots == NULL)
			launch.keys = batch->keys + (size_t) first * params->k;
		GG_CUDA_TRY(search_greedy_launch(&index->view, &launch, batch->slots, &args, &index->device,
										 stream));
	}
	return gg_ok();
}

gg_status
search_queue(const gg_index *index, search_scratch *scratch, const gg_search_params *params,
			 const search_batch *batch, cudaStream_t stream)
{
	const search_view *view = &index->view;
	const search_view *pivots = view->code_bits > 0 ? &index->pivot_view : view;
	const search_device *device = &index->device;
	const uint32_t nq = batch->nq;
	search_launch launch;
	uint32_t	slices = 0;		/* of the pivots' product, 0: none */
	uint32_t	cluster = 0;
	bool		segmented;

	if (params->mode == GG_SEARCH_TSDG_SMALL && search_greedy_takes(view, params->k, device))
		return queue_greedy(index, scratch, params, batch, stream);
	launch = search_launch_for(index, params, nq);
	launch.queries = batch->queries;
	launch.keys = batch->keys;
	segmented = params->mode == GG_SEARCH_TSDG_LARGE &&
		search_segmented_takes(view, &launch, device);
	if (!segmented)
		cluster = search_cluster_for(device, params->mode, nq + batch->beside);
	if (choose_product(pivots, device, nq, cluster))
		slices = search_pivots_slices(pivots, nq,
									  search_entry_bits(launch.params.itopk_size) == 4 ? 1 : 2,
									  device->sms);
	launch.nentries = slices * ENTRY_NODES;
	if (!segmented)
		GG_TRY(check_shared(view, &launch, device, cluster));
	GG_TRY(search_mail(scratch, device, stream));
	launch.mail = scratch->mail.get();

	if (slices > 0)
	{
		GG_TRY(grow(scratch->halves, (uint64_t) batch->room * pivots->walk_pad, stream));
		GG_TRY(grow(scratch->factors, batch->room, stream));
		/* fewer queries take more slices: room for the most */
		GG_TRY(grow(scratch->entries, batch->slots != NULL ?
					(uint64_t) batch->room * PIVOT_MAX_SLICES * ENTRY_NODES :
					(uint64_t) nq * launch.nentries, stream));
		/* queries in slots are copied on the way: the product and the walk both read them */
		if (batch->slots != NULL)
			GG_TRY(grow(scratch->queries, (uint64_t) batch->room * view->dim, stream));
		const pivot_search search = {
			.queries = batch->queries,
			.slots = batch->slots,
			.nq = nq,
			.slices = slices,
			.halves = scratch->halves.get(),
			.factors = scratch->factors.get(),
			.copies = scratch->queries.get(),
			.entries = scratch->entries.get(),
		};

		GG_CUDA_TRY(search_pivots_launch(pivots, &search, device, stream));
		launch.entries = scratch->entries.get();
		if (batch->slots != NULL)
			launch.queries = scratch->queries.get();
	}
	else if (batch->slots != NULL && cluster == 0)
	{
		/* kernels with a warp per query read it several times */
		GG_TRY(gather(index, scratch, batch, stream));
		launch.queries = scratch->queries.get();
	}
	if (segmented)
		GG_CUDA_TRY(search_segmented_launch(view, &launch, batch->slots, device, stream));
	else if (cluster == 0)
		GG_CUDA_TRY(search_single_launch(view, &launch, batch->slots, device, stream));
	else
		GG_CUDA_TRY(search_multi_launch(view, &launch, batch->slots, device, cluster, stream));
	return gg_ok();
}

/* Provide scratch memory of exact searches for k. */
gg_status
search_exact_room(search_scratch *scratch, uint32_t k, const search_device *device,
				  cudaStream_t stream)
{
	uint32_t	room = 64;

	if (scratch->exact.bytes() >= search_exact_scratch(k, device))
		return gg_ok();
	/* a few sizes, not one for every k */
	while (room < k)
		room *= 2;
	GG_TRY(grow(scratch->exact, search_exact_scratch(room, device), stream));
	GG_CUDA_TRY(cudaMemsetAsync(scratch->exact.get(), 0, scratch->exact.bytes(), stream));
	return gg_ok();
}

/* filter is device memory or NULL. */
gg_status
search_exact_queue(const gg_index *index, search_scratch *scratch, uint32_t k,
				   const uint32_t *filter, const search_batch *batch, cudaStream_t stream)
{
	const search_view *view = &index->view;
	const search_device *device = &index->device;
	const float *queries = batch->queries;
	uint32_t	shared = search_exact_shared(view, k);

	if (shared > (uint32_t) device->shared_bytes)
		return gg_fail(GG_EUNSUPPORTED, __func__,
					   "an exact search for %u of rows of %u dimensions takes %u bytes of shared "
					   "memory a block, device %d has %d", k, view->dim, shared, device->ordinal,
					   device->shared_bytes);
	GG_TRY(search_exact_room(scratch, k, device, stream));
	if (batch->slots != NULL &&
		(search_exact_readers(view, batch->nq, device) - 1) * (uint64_t) batch->nq * view->dim * 4 >
		GATHER_BYTES)
	{
		GG_TRY(gather(index, scratch, batch, stream));
		queries = scratch->queries.get();
	}
	const exact_search search = {
		.filter = filter,
		.filter_stride = batch->filter_stride,
		.queries = queries,
		.slots = batch->slots,
		.nq = batch->nq,
		.k = k,
		.keys = batch->keys,
		.part = batch->part,
		.scratch = scratch->exact.get(),
	};

	GG_CUDA_TRY(search_exact_launch(view, &search, device, stream));
	return gg_ok();
}

static search_batch
batch_of(const float *queries, uint32_t nq, uint64_t *keys)
{
	search_batch batch = {};

	batch.queries = queries;
	batch.nq = batch.room = nq;
	batch.keys = keys;
	return batch;
}

/*
 * Queue one search of at most MAX_BATCH queries on stream; returns before it is done.  queries,
 * keys: device or mapped host memory.  Searches of one index share its scratch
 * memory, so they must be queued on one stream, or ordered by the caller.
 */
gg_status
gg_cuda_search_enqueue(gg_index *index, const gg_search_params *params, const float *queries,
					   uint32_t nq, uint64_t *keys, cudaStream_t stream)
{
	const search_batch batch = batch_of(queries, nq, keys);

	return search_queue(index, &index->scratch, params, &batch, stream);
}

/* The same for exact search. */
gg_status
gg_cuda_exact_enqueue(gg_index *index, uint32_t k, const uint32_t *filter, const float *queries,
					  uint32_t nq, uint64_t *keys, cudaStream_t stream)
{
	const search_batch batch = batch_of(queries, nq, keys);

	return search_exact_queue(index, &index->scratch, k, filter, &batch, stream);
}

/* Pinned memory for nq queries and answers of a small search. */
static gg_status
map_small(gg_index *index, uint32_t nq, uint32_t k, float **queries, uint64_t **keys)
{
	size_t		query_bytes = ((size_t) nq * index->view.dim * 4 + 255) & ~(size_t) 255;
	size_t		bytes = query_bytes + (size_t) nq * k * 8;

	if (index->mapped_bytes < bytes)
	{
		if (index->mapped != NULL)
			GG_CUDA_TRY(cudaFreeHost(index->mapped));
		index->mapped = NULL;
		index->mapped_bytes = 0;
		/* one address space: the device uses the same pointers */
		GG_TRY(gg_cuda_pin_status(cudaHostAlloc(&index->mapped, bytes, cudaHostAllocMapped),
								  __func__, "cudaHostAlloc", bytes));
		index->mapped_bytes = bytes;
	}
	*queries = (float *) index->mapped;
	*keys = (uint64_t *) ((char *) index->mapped + query_bytes);
	return gg_ok();
}

/* Queries in host memory and the place of their answers. */
typedef struct host_queries
{
	const float *queries;		/* nq x dim */
	uint32_t	nq;
	uint32_t	k;
	uint64_t   *keys;			/* nq x k */
} host_queries;

/*
 * What searches of both kinds do with host memory: hand batches over, start them by enqueue(), take
 * the answers back.  enqueue is (queries, nq, keys) -> gg_status, pointers the device's.
 */
template <typename ENQUEUE>
static gg_status
search_host(gg_index *index, const host_queries &host, uint32_t batch, const gg_control *control,
			ENQUEUE enqueue)
{
	const float *queries = host.queries;
	const uint32_t nq = host.nq;
	const uint32_t k = host.k;
	uint64_t   *keys = host.keys;
	const uint32_t dim = index->view.dim;
	cudaStream_t stream = index->stream.get();

	if (index->view.n == 0)
	{
		memset(keys, 0xFF, (size_t) nq * k * 8);
		return gg_ok();
	}
	if (nq > 0 && nq <= MAPPED_BATCH)
	{
		float	   *mapped_queries;
		uint64_t   *mapped_keys;

		GG_TRY(map_small(index, nq, k, &mapped_queries, &mapped_keys));
		memcpy(mapped_queries, queries, (size_t) nq * dim * 4);
		GG_TRY(enqueue(mapped_queries, nq, mapped_keys));
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
		memcpy(keys, mapped_keys, (size_t) nq * k * 8);
		return gg_ok();
	}
	for (uint32_t first = 0; first < nq; first += batch)
	{
		uint32_t	count = nq - first < batch ? nq - first : batch;

		GG_TRY(gg_cuda_check_cancel(control, __func__));
		GG_TRY(grow(index->scratch.queries, (uint64_t) count * dim, stream));
		GG_TRY(grow(index->keys, (uint64_t) count * k, stream));
		GG_CUDA_TRY(cudaMemcpyAsync(index->scratch.queries.get(), queries + (size_t) first * dim,
									(size_t) count * dim * 4, cudaMemcpyHostToDevice, stream));
		GG_TRY(enqueue(index->scratch.queries.get(), count, index->keys.get()));
		GG_CUDA_TRY(cudaMemcpyAsync(keys + (size_t) first * k, index->keys.get(),
									(size_t) count * k * 8, cudaMemcpyDeviceToHost, stream));
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
	}
	return gg_ok();
}

gg_status
gg_cuda_index_search(gg_index *index, const gg_search_params *params, const float *queries,
					 uint32_t nq, const gg_control *control, uint64_t *keys)
{
	cudaStream_t stream = index->stream.get();

	GG_TRY(gg_check_params(__func__, params, true));
	if (!index->finished)
		return gg_fail(GG_EINVAL, __func__, "the index is not finished");
	if (index->view.n > 0 && index->view.npivots == 0)
		return gg_fail(GG_EINVAL, __func__, "the index was opened without a graph");
	GG_TRY(gg_cuda_check_cancel(control, __func__));
	GG_CUDA_TRY(cudaSetDevice(index->device.ordinal));
	return search_host(index, {queries, nq, params->k, keys}, MAX_BATCH, control,
					   [&](const float *q, uint32_t count, uint64_t *found)
					   {
						   return gg_cuda_search_enqueue(index, params, q, count, found, stream);
					   });
}

gg_status
gg_cuda_index_exact(gg_index *index, uint32_t k, const uint32_t *filter, const float *queries,
					uint32_t nq, const gg_control *control, uint64_t *keys)
{
	cudaStream_t stream = index->stream.get();
	double		elements = (double) index->view.n * index->view.dim;
	double		batch = elements > 0 ? EXACT_ELEMENTS_PER_LAUNCH / elements : MAX_BATCH;
	const uint32_t *device_filter = NULL;
	uint32_t	done = 0;

	if (k < 1 || k > GG_MAX_ITOPK)
		return gg_fail(GG_EINVAL, __func__, "k %u is out of range", k);
	if (!index->finished)
		return gg_fail(GG_EINVAL, __func__, "the index is not finished");
	if (index->shape.row_place == GG_ROWS_NONE)
		return gg_fail(GG_EUNSUPPORTED, __func__,
					   "rows are to be measured, and the index has none");
	GG_TRY(gg_cuda_check_cancel(control, __func__));
	GG_CUDA_TRY(cudaSetDevice(index->device.ordinal));
	if (filter != NULL && index->view.n > 0)
	{
		size_t		words = ((size_t) index->view.n + 31) / 32;

		GG_TRY(grow(index->filter, words, stream));
		GG_CUDA_TRY(cudaMemcpyAsync(index->filter.get(), filter, words * 4, cudaMemcpyHostToDevice,
									stream));
		device_filter = index->filter.get();
	}
	batch = batch < 8 ? 8 : batch > MAX_BATCH ? MAX_BATCH : batch;
	return search_host(index, {queries, nq, k, keys}, (uint32_t) batch, control,
					   [&](const float *q, uint32_t count, uint64_t *found)
					   {
						   gg_cuda_progress(control, GG_PHASE_EXACT, done, nq);
						   done += count;
						   return gg_cuda_exact_enqueue(index, k, device_filter, q, count, found,
														stream);
					   });
}
