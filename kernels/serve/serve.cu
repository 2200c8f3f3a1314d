/*
 * serve.cu
 *		Searches for many callers at once, queued and not waited for.
 *
 * The region is host memory of all processes, registered with the device: kernels read queries from
 * the slots and write answers, and then tickets, into them.  In the steady state a batch is one
 * launch and no other call to CUDA.  A pivots' product takes two more launches, and a gather one,
 * where many blocks would read the same queries over PCIe.  Nothing is copied and no event is
 * recorded; whoever waits looks at a word of its slot.
 *
 * Deep requests take as many launches as one of them does, where their lists are short and go from
 * the start, and their filters are equal or small (deep.cu).  The gather also brings the TIDs of
 * filters that have few of them, from the region: so they take no call of their own.
 *
 * A group is a copy of what its lists are, a launch for each kind of them, and the ticket
 * (group.cu).
 *
 * A queue is a CUDA stream with scratch memory of its own, so batches on different queues run side
 * by side over the same index.  Its priority is the highest: a load that runs meanwhile comes
 * second.
 *
 * Order of memory	An answer's stores, a barrier of the block that made them, a fence of system
 *				scope, the ticket's store (query.cuh, answered()).  The host's acquire load of the
 *				ticket sees all of the answer.  The other way, what the host wrote before a launch
 *				is seen by it.
 * Cost			serve_submit() copies some 2.5 kB of parameters and launches;
 *				test/engine/cuda/bench_serve measures it, and the time to the ticket.
 */
#include <new>

#include "../../src/engine/rules/codes.h"
#include "../../src/engine/rules/serve_check.h"
#include "../search/exact.h"
#include "../search/gather.h"
#include "../search/launch.cuh"
#include "../search/pivots.h"
#include "index.cuh"

/*
 * What a queue has from the start, so that ordinary searches never allocate: 3.5 MB, and 2.4 for
 * exact search.  Deep lists take up to 35 MB more, long ones of several queries up to 85 MB and
 * those of bounds up to 70 MB, and filters up to 65 MB, or two bits per row if that is more, when
 * the first ones come (deep.cu, long_lists.cu, filter.cu).
 */
#define USUAL_DIM 2048
#define USUAL_K 64

typedef struct serve_queue
{
	cudaStream_t stream;
	search_scratch scratch;
	deep_scratch deep;
	group_scratch group;
	/*
	 * the last walks queued: how many, and the last one's word of its slot, which is `before` until
	 * it is answered
	 */
	uint32_t	count;
	const uint32_t *done;
	uint32_t	before;
} serve_queue;

struct gg_server
{
	gg_serve_place place;
	search_device device;
	bool		registered;		/* the region is */
	char	   *seen;			/* the region as the device sees it */
	serve_queue	queues[GG_SERVE_QUEUES];

	gg_server() : registered(false), seen(NULL)
	{
		memset(&place, 0, sizeof(place));
		memset(&device, 0, sizeof(device));
		for (int i = 0; i < GG_SERVE_QUEUES; i++)
		{
			queues[i].stream = NULL;
			queues[i].count = 0;
			queues[i].done = NULL;
			queues[i].before = 0;
		}
	}
	~gg_server()
	{
		/* all queues first: freeing one's scratch would wait for the others' work too */
		for (int i = 0; i < GG_SERVE_QUEUES; i++)
			if (queues[i].stream != NULL)
				(void) cudaStreamSynchronize(queues[i].stream);
		for (int i = 0; i < GG_SERVE_QUEUES; i++)
			if (queues[i].stream != NULL)
				(void) cudaStreamDestroy(queues[i].stream);
		if (registered)
			(void) cudaHostUnregister(place.region);
		/* what failed here has nobody left to tell, and is not the next call's error */
		(void) cudaGetLastError();
	}
};

/* ---- opening ------------------------------------------------------------------ */

static gg_status
check_device(int device)
{
	int			count;

	GG_TRY(gg_cuda_device_count(&count));
	if (device < 0 || device >= count)
		return gg_fail(GG_ENODEVICE, __func__, "no device %d, there are %d", device, count);
	return gg_cuda_probe_device(device);
}

static gg_status
open_queue(serve_queue *queue, int priority, const search_device *device)
{
	GG_CUDA_TRY(cudaStreamCreateWithPriority(&queue->stream, cudaStreamNonBlocking, priority));
	GG_TRY(queue->scratch.halves.allocate(GG_SERVE_MAX_BATCH * USUAL_DIM));
	GG_TRY(queue->scratch.factors.allocate(GG_SERVE_MAX_BATCH));
	GG_TRY(queue->scratch.entries.allocate(GG_SERVE_MAX_BATCH * PIVOT_MAX_SLICES * ENTRY_NODES));
	GG_TRY(queue->scratch.queries.allocate(GG_SERVE_MAX_BATCH * USUAL_DIM));
	GG_TRY(search_mail(&queue->scratch, device, queue->stream));
	GG_TRY(queue->scratch.exact.allocate(search_exact_scratch(USUAL_K, device)));
	GG_CUDA_TRY(cudaMemsetAsync(queue->scratch.exact.get(), 0, queue->scratch.exact.bytes(),
								queue->stream));
	return gg_ok();
}

static gg_status
open_server(gg_server *server, int device)
{
	const size_t bytes = server->place.region_bytes;
	void	   *seen;
	int			least = 0;
	int			greatest = 0;

	GG_CUDA_TRY(cudaSetDevice(device));
	GG_TRY(search_device_find(&server->device));
	GG_TRY(gg_cuda_pin_status(cudaHostRegister(server->place.region, bytes,
											   cudaHostRegisterPortable | cudaHostRegisterMapped),
							  __func__, "cudaHostRegister", bytes));
	server->registered = true;
	GG_CUDA_TRY(cudaHostGetDevicePointer(&seen, server->place.region, 0));
	server->seen = (char *) seen;
	GG_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	for (int i = 0; i < GG_SERVE_QUEUES; i++)
		GG_TRY(open_queue(&server->queues[i], greatest, &server->device));
	GG_TRY(search_deep_open(server->queues[0].stream));
	for (int i = 0; i < GG_SERVE_QUEUES; i++)
		GG_CUDA_TRY(cudaStreamSynchronize(server->queues[i].stream));
	return gg_ok();
}

/*
 * gg_engine.serve_open.  From here on indexes are created on this device, in whichever thread: a
 * process serves one device.
 */
gg_status
gg_cuda_serve_open(int device, void *region, size_t region_bytes, const gg_serve_layout *layout,
				   gg_server **server)
{
	gg_server  *opened;
	gg_status	status;

	*server = NULL;
	GG_TRY(gg_serve_check_layout(__func__, region, region_bytes, layout));
	GG_TRY(check_device(device));
	opened = new (std::nothrow) gg_server;
	if (opened == NULL)
		return gg_fail(GG_ENOMEM, __func__, "out of memory");
	opened->place = {(char *) region, region_bytes, *layout};
	gg_cuda_serve_device(device);
	status = open_server(opened, device);
	if (status.code != GG_OK)
	{
		delete opened;
		gg_cuda_serve_device(-1);
		return status;
	}
	*server = opened;
	return status;
}

void
gg_cuda_serve_close(gg_server *server)
{
	if (server == NULL)
		return;
	(void) cudaSetDevice(server->device.ordinal);
	delete server;
	gg_cuda_serve_device(-1);
}

/* ---- submitting ----------------------------------------------------------------- */

/* The word of request i's slot for the batch's list, in memory that begins with `region`. */
static uint32_t *
done_of(const gg_server *server, char *region, const gg_serve_batch *batch, uint32_t i)
{
	const gg_serve_layout *layout = &server->place.layout;
	char	   *slots = region + (layout->slots - server->place.region);

	return (uint32_t *) (slots + batch->slots[i] * layout->slot_bytes + layout->done) + batch->list;
}

/* Answer a batch where there are no rows: the device has nothing to do. */
static void
answer_nothing(const gg_server *server, const gg_serve_batch *batch)
{
	char	   *region = server->place.region;

	for (uint32_t i = 0; i < batch->count; i++)
	{
		const gg_request *request = batch->requests[i];

		memset(region + gg_request_keys_at(request, batch->list), 0xFF,
			   (size_t) request->count * request->params.k * 8);
		if (gg_request_way(request, batch->list) == GG_WAY_DEEP)
			((uint64_t *) (region + request->matches))[gg_request_before(request, batch->list)] = 0;
		__atomic_store_n(done_of(server, region, batch, i), batch->tickets[i], __ATOMIC_RELEASE);
	}
}

/*
 * Walks that other queues are at, as far as their last queries tell.  A cluster takes a
 * multiprocessor a block, so batches whose clusters were chosen as if each were alone would run one
 * after the other; smaller clusters run side by side.  Exact batches are not counted: those of a
 * delta are short.
 */
static uint32_t
walks_beside(const gg_server *server, uint32_t queue)
{
	uint32_t	walks = 0;

	for (uint32_t i = 0; i < GG_SERVE_QUEUES; i++)
	{
		const serve_queue *other = &server->queues[i];

		if (i != queue && other->count > 0 &&
			__atomic_load_n(other->done, __ATOMIC_RELAXED) == other->before)
			walks += other->count;
	}
	return walks;
}

/*
 * Wait where a batch could not be queued, and return why, or GG_EDEVICE.  Of several launches the
 * first may run: what it writes must not come after the refusal, and how it ends tells whether the
 * device is lost, for an error that sticks is what every call returns.
 */
static gg_status
give_up(const gg_status *status, cudaStream_t stream)
{
	gg_status	end = gg_cuda_status(cudaStreamSynchronize(stream), __func__, "the device is lost");

	if (end.code == GG_OK)
		return *status;
	end.code = GG_EDEVICE;
	return end;
}

static gg_serve_target
target_of(const gg_index *index)
{
	const gg_serve_target target = {
		.finished = index->finished,
		.n = index->view.n,
		.dim = index->shape.dim,
		.npivots = index->view.npivots,
		.rows = index->shape.rows,
		.words = index->shape.words,
		.no_rows = index->shape.row_place == GG_ROWS_NONE,
		.bounds = gg_code_has_bounds(index->shape.metric),
	};

	return target;
}

static gg_status
check_ordinal(const gg_server *server, const gg_index *index)
{
	if (index->device.ordinal != server->device.ordinal)
		return gg_fail(GG_EINVAL, __func__, "the index is on device %d, not %d",
					   index->device.ordinal, server->device.ordinal);
	return gg_ok();
}

/* Describe the batch's queries, answers and words, by the slots of its requests. */
static void
describe_slots(const gg_server *server, const gg_serve_batch *batch, search_slots *slots)
{
	const gg_serve_layout *layout = &server->place.layout;
	const gg_request *first = batch->requests[0];
	const uint64_t at = layout->slots - server->place.region;	/* slot 0 */
	const uint64_t slot = at + batch->slots[0] * layout->slot_bytes;
	const uint32_t count = batch->count;

	slots->base = server->seen + at;
	slots->slot_bytes = layout->slot_bytes;
	/* other requests have theirs as far from their slots, before or behind them */
	slots->query = first->queries - slot;
	slots->keys = gg_request_keys_at(first, batch->list) - slot;
	slots->done = layout->done + batch->list * 4;
	memcpy(slots->slot, batch->slots, count * 4);
	memcpy(slots->ticket, batch->tickets, count * 4);
	/* no kernel looks at the rest, but it is copied */
	memset(slots->slot + count, 0, (GG_SERVE_MAX_BATCH - count) * 4);
	memset(slots->ticket + count, 0, (GG_SERVE_MAX_BATCH - count) * 4);
}

/* Queue a batch of walks, or of exact searches. */
static gg_status
queue_search(gg_server *server, gg_index *index, uint32_t queue, const gg_serve_batch *batch,
			 search_batch *queued)
{
	const gg_request *request = batch->requests[0];
	serve_queue *to = &server->queues[queue];

	if (gg_request_way(request, batch->list) != GG_WAY_WALK)
		return search_exact_queue(index, &to->scratch, request->params.k, NULL, queued, to->stream);
	to->done = done_of(server, server->place.region, batch, batch->count - 1);
	to->before = __atomic_load_n(to->done, __ATOMIC_RELAXED);
	queued->beside = walks_beside(server, queue);
	GG_TRY(search_queue(index, &to->scratch, &request->params, queued, to->stream));
	to->count = queued->nq;
	return gg_ok();
}

/* Queue one query of each of several requests. */
static gg_status
queue_several(gg_server *server, gg_index *index, uint32_t queue, const gg_serve_batch *batch)
{
	search_slots slots;
	search_batch queued = {};

	describe_slots(server, batch, &slots);
	queued.nq = batch->count;
	queued.slots = &slots;
	queued.room = GG_SERVE_MAX_BATCH;
	return queue_search(server, index, queue, batch, &queued);
}

/* Queries that scratch memory is made for: a few sizes, not one for every count. */
static uint32_t
room_for(uint32_t count)
{
	uint32_t	room = GG_SERVE_MAX_BATCH;

	while (room < count)
		room *= 2;
	return room;
}

/* Copy the queries of a request to device memory. */
static gg_status
bring_queries(gg_server *server, uint32_t queue, const gg_request *request)
{
	serve_queue *to = &server->queues[queue];

	GG_TRY(grow(to->scratch.queries, (uint64_t) room_for(request->count) * request->dim,
				to->stream));
	GG_CUDA_TRY(cudaMemcpyAsync(to->scratch.queries.get(), server->seen + request->queries,
								(uint64_t) request->count * request->dim * 4, cudaMemcpyDefault,
								to->stream));
	return gg_ok();
}

/* Queue many queries of one request: their copy to device memory, the search, the ticket. */
static gg_status
queue_many(gg_server *server, gg_index *index, uint32_t queue, const gg_serve_batch *batch)
{
	const gg_request *request = batch->requests[0];
	serve_queue *to = &server->queues[queue];
	search_batch queued = {};

	GG_TRY(bring_queries(server, queue, request));
	queued.queries = to->scratch.queries.get();
	queued.nq = request->count;
	queued.keys = (uint64_t *) (server->seen + gg_request_keys_at(request, batch->list));
	queued.room = room_for(request->count);
	GG_TRY(queue_search(server, index, queue, batch, &queued));
	GG_CUDA_TRY(search_ticket_launch(done_of(server, server->seen, batch, 0), batch->tickets[0],
									 to->stream));
	return gg_ok();
}

/* The deep list of the first query of a request. */
static deep_query
describe_deep(const gg_server *server, const gg_request *request, uint32_t list)
{
	const gg_filter *filter = gg_serve_filter(&server->place, request);
	const uint64_t matches = request->matches + 8 * gg_request_before(request, list);
	const deep_query query = {
		.k = request->params.k,
		.after = request->after,
		.last = request->last,
		.keys = (uint64_t *) (server->seen + gg_request_keys_at(request, list)),
		.matches = (uint64_t *) (server->seen + matches),
		.told = (const uint64_t *) (server->place.region + matches),
		.filter = filter,
		/* TIDs are gathered if they are so few */
		.tids = request->count == 1 && request->tids != 0 && filter->ntids <= GG_SHORT_TIDS ?
			(const uint64_t *) (server->seen + request->tids) : NULL,
	};

	return query;
}

static gg_status
queue_deep(gg_server *server, gg_index *index, uint32_t queue, const gg_serve_batch *batch)
{
	serve_queue *to = &server->queues[queue];
	deep_query	queries[GG_SERVE_MAX_DEEPS];
	search_slots slots;
	const deep_batch deep = {queries, batch->count, NULL, &slots};

	for (uint32_t i = 0; i < batch->count; i++)
		queries[i] = describe_deep(server, batch->requests[i], batch->list);
	describe_slots(server, batch, &slots);
	return search_deep_queue(index, &to->scratch, &to->deep, &deep, to->stream);
}

/* Queue deep lists of many queries of one request, GG_SERVE_MAX_DEEPS at a time. */
static gg_status
queue_many_deep(gg_server *server, gg_index *index, uint32_t queue, const gg_serve_batch *batch)
{
	const gg_request *request = batch->requests[0];
	serve_queue *to = &server->queues[queue];
	deep_query	queries[GG_SERVE_MAX_DEEPS];
	const deep_query first = describe_deep(server, request, batch->list);

	GG_TRY(bring_queries(server, queue, request));
	for (uint32_t done = 0; done < request->count;)
	{
		const float *copies = to->scratch.queries.get() + (size_t) done * request->dim;
		uint32_t	n = 0;

		for (; n < GG_SERVE_MAX_DEEPS && done < request->count; n++, done++)
		{
			queries[n] = first;
			queries[n].keys += (size_t) done * first.k;
		}

		const deep_batch deep = {queries, n, copies, &slots_or_none(NULL)};

		GG_TRY(search_deep_queue(index, &to->scratch, &to->deep, &deep, to->stream));
	}
	GG_CUDA_TRY(search_ticket_launch(done_of(server, server->seen, batch, 0), batch->tickets[0],
									 to->stream));
	return gg_ok();
}

/*
 * gg_engine.serve_submit.  GG_EUNSUPPORTED: this device cannot run this batch, and runs others as
 * before.  GG_EDEVICE: it is lost, as serve_check() has it.
 */
gg_status
gg_cuda_serve_submit(gg_server *server, gg_index *index, uint32_t queue,
					 const gg_serve_batch *batch)
{
	const gg_serve_target target = target_of(index);
	gg_status	status;

	GG_TRY(gg_serve_check_batch(__func__, &server->place, &target, queue, batch));
	GG_TRY(check_ordinal(server, index));
	if (index->view.n == 0)
	{
		answer_nothing(server, batch);
		return gg_ok();
	}
	/* the device is current already, but for the first call of a thread */
	GG_CUDA_TRY(cudaSetDevice(server->device.ordinal));
	server->queues[queue].count = 0;
	if (gg_request_way(batch->requests[0], batch->list) == GG_WAY_DEEP)
		status = batch->requests[0]->count > 1 ? queue_many_deep(server, index, queue, batch) :
			queue_deep(server, index, queue, batch);
	else if (batch->requests[0]->count > 1)
		status = queue_many(server, index, queue, batch);
	else
		status = queue_several(server, index, queue, batch);
	return status.code == GG_OK ? status : give_up(&status, server->queues[queue].stream);
}

/* Check that every index of a group can be asked for what it is; *any: one has rows. */
static gg_status
check_members(const gg_server *server, const gg_serve_group *group, bool *any)
{
	*any = false;
	for (uint32_t i = 0; i < group->count; i++)
	{
		const gg_index *index = group->indexes[i];

		if (index == NULL)
			continue;
		const gg_serve_target target = target_of(index);

		GG_TRY(gg_serve_check_member(__func__, &target, group->request, group->measured[i]));
		GG_TRY(check_ordinal(server, index));
		*any |= index->view.n > 0;
	}
	return gg_ok();
}

static gg_status
queue_group(gg_server *server, uint32_t queue, const gg_serve_group *group, uint64_t *keys,
			uint32_t *done)
{
	const gg_request *request = group->request;
	serve_queue *to = &server->queues[queue];
	const search_group queued = {
		.group = group,
		.query = (const float *) (server->place.region + request->queries),
		.keys = (uint64_t *) (server->seen + request->keys),
		.beside = walks_beside(server, queue),
	};

	for (uint32_t i = 0; i < group->count; i++)
		if (group->indexes[i] == NULL || group->indexes[i]->view.n == 0)
			memset(keys + (size_t) i * request->params.k, 0xFF, (size_t) request->params.k * 8);
	to->done = done;
	to->before = __atomic_load_n(done, __ATOMIC_RELAXED);
	GG_TRY(search_group_queue(&queued, &to->scratch, &to->group, to->stream));
	to->count = group->count;
	GG_CUDA_TRY(search_ticket_launch((uint32_t *) (server->seen +
												   ((char *) done - server->place.region)),
									 group->ticket, to->stream));
	return gg_ok();
}

/* gg_engine.serve_group */
gg_status
gg_cuda_serve_group(gg_server *server, uint32_t queue, const gg_serve_group *group)
{
	const gg_serve_layout *layout = &server->place.layout;
	uint64_t   *keys;
	uint32_t   *done;
	bool		any;
	gg_status	status;

	GG_TRY(gg_serve_check_group(__func__, &server->place, queue, group));
	GG_TRY(check_members(server, group, &any));
	keys = (uint64_t *) (server->place.region + group->request->keys);
	done = (uint32_t *) (layout->slots + group->slot * layout->slot_bytes + layout->done);
	if (!any)
	{
		memset(keys, 0xFF, (size_t) group->count * group->request->params.k * 8);
		__atomic_store_n(done, group->ticket, __ATOMIC_RELEASE);
		return gg_ok();
	}
	GG_CUDA_TRY(cudaSetDevice(server->device.ordinal));
	server->queues[queue].count = 0;
	status = queue_group(server, queue, group, keys, done);
	return status.code == GG_OK ? status : give_up(&status, server->queues[queue].stream);
}

/* gg_engine.serve_check */
gg_status
gg_cuda_serve_check(gg_server *server, uint32_t queue, bool *idle)
{
	cudaError_t error;
	gg_status	status;

	*idle = false;
	if (queue >= GG_SERVE_QUEUES)
		return gg_fail(GG_EINVAL, __func__, "queue %u of %d", queue, GG_SERVE_QUEUES);
	error = cudaStreamQuery(server->queues[queue].stream);
	if (error == cudaErrorNotReady)
	{
		/* no error, but kept as one for whoever asks after the next launch */
		(void) cudaGetLastError();
		return gg_ok();
	}
	*idle = error == cudaSuccess;
	status = gg_cuda_status(error, __func__, "the device is lost");
	if (status.code != GG_OK)
		status.code = GG_EDEVICE;
	return status;
}
