/*
 * batch.c
 *		From the items of queries to batches that a device works on; runs in the worker.
 *
 * The device has GG_SERVE_QUEUES queues (CUDA streams).  Items wait only while each of the
 * FIRST_QUEUES has something in flight.  So a query that arrives at an idle device is launched at
 * once.  What arrives during launches goes out together, grouped by index, list and parameters,
 * when one of these queues is free again.  So do deep requests of a kind (DeepKind).
 *
 * The other queues take further lists that go out then, since an index may have many segments.
 * Nothing waits for them, so batches are no smaller than with FIRST_QUEUES alone.
 *
 * Deep requests also wait until as many of their kind wait as are in flight over the same rows:
 * many take the device little longer than a few, so a small batch would only hold up the others.
 * There is no other delay.  One H200, 1M x 768, 16 callers, one row in 10 matches: 51,000 to 54,000
 * queries per second, and 32,000 where a second batch went whenever only one was in flight.
 */
#include "service/worker/dispatch.h"

#include "utils/memutils.h"

/* Items wait for one of these queues; the others are for further lists. */
#define FIRST_QUEUES		4

uint32
GgCountSlotTids(const GgSlot *slot)
{
	return slot->chunk >= 0 && slot->request.tids != 0 ?
		gg_service->chunks[slot->chunk].filter.ntids : 0;
}

static const gg_request *
RequestOf(const SlotItem *item)
{
	return &item->at->request;
}

/* A group is one item, and a batch by itself. */
static bool
IsGroup(const SlotItem *item)
{
	return item->at->ntargets > 0;
}

static DeepKind
KindOf(const SlotItem *item)
{
	const gg_request *request = RequestOf(item);

	if (gg_request_way(request, item->list) != GG_WAY_DEEP || request->after != 0 ||
		request->count > 1)
		return DEEP_ALONE;
	if (request->filter == 0)
		return request->params.k <= GG_LONG_DEEP ? DEEP_ALL : DEEP_ALONE;
	return request->params.k <= (item->bounded ? GG_BOUNDED_LIST : GG_SHORT_DEEP) &&
		GgCountSlotTids(item->at) <= GG_SHORT_TIDS ? DEEP_FILTERED : DEEP_ALONE;
}

/* May b share a batch with a, which is of this kind? */
static bool
SameBatch(const GgDispatch *dispatch, const SlotItem *a, DeepKind kind, const SlotItem *b)
{
	const SlotQuery *queries = dispatch->queries;
	uint64		apart = ((uint64) b->slot - a->slot) * sizeof(GgSlot);

	return !IsGroup(a) && !IsGroup(b) && a->list == b->list && a->hangs == b->hangs &&
		queries[a->slot].indexes[a->list] == queries[b->slot].indexes[b->list] &&
		gg_request_joins(RequestOf(a), RequestOf(b), a->list, apart) && KindOf(b) == kind &&
		(kind != DEEP_ALONE || gg_request_way(RequestOf(a), a->list) != GG_WAY_DEEP);
}

/* Count how long the queries of a batch have waited, each once. */
static void
CountWaits(GgWorker *worker, const gg_serve_batch *batch, uint64 now)
{
	for (uint32 i = 0; i < batch->count; i++)
	{
		SlotQuery  *query = &worker->dispatch->queries[batch->slots[i]];
		uint64		waited_us = now > query->posted_us ? now - query->posted_us : 0;

		if (query->submitted_us != 0)
			continue;
		query->submitted_us = now;
		GgTimeAdd(worker->device->stats.queue_us, waited_us);
		for (uint32 j = 0; j < query->npinned; j++)
			worker->times[GgEntryOf(query->pinned[j])].waited_us += waited_us / query->npinned;
	}
}

/* Have the device begin a batch.  item: the first of those that the batch was made of. */
static gg_status
StartBatch(GgWorker *worker, const gg_serve_batch *batch, const SlotItem *item, uint32 queue)
{
	const SlotQuery *query = &worker->dispatch->queries[item->slot];
	gg_serve_group group;

	if (item->hangs)
	{
		worker->dispatch->queue_hangs[queue] = true;
		return gg_ok();
	}
	if (query->members == NULL)
		return worker->engine->serve_submit(worker->server, query->indexes[item->list], queue,
											batch);
	group.request = batch->requests[0];
	group.slot = item->slot;
	group.ticket = query->ticket;
	group.count = item->at->ntargets;
	group.indexes = query->members->indexes;
	group.measured = query->members->measured;
	return worker->engine->serve_group(worker->server, queue, &group);
}

/* Submit a batch, or have its queries refused.  item: as in StartBatch(). */
static void
SubmitBatch(GgWorker *worker, const gg_serve_batch *batch, const SlotItem *item, uint32 queue,
			GgEndItem refused)
{
	GgDispatch *dispatch = worker->dispatch;
	GgDeviceStats *stats = &worker->device->stats;
	uint64		now = GgNowMicros();
	Flight	   *flight = dispatch->spare;
	/* read before the answer comes, which gives the chunk back */
	DeepKind	kind = KindOf(item);
	gg_status	status;

	if (flight != NULL)
		dispatch->spare = flight->next;
	else
		flight = MemoryContextAlloc(TopMemoryContext, sizeof(Flight));

	CountWaits(worker, batch, now);
	status = StartBatch(worker, batch, item, queue);
	if (status.code == GG_EDEVICE)
		GgDeviceLost(worker, &status);
	if (status.code != GG_OK)
	{
		/*
		 * Refused as a whole, or (CPU engine) answered in part by this thread.  Either way nothing
		 * is in flight.
		 */
		flight->next = dispatch->spare;
		dispatch->spare = flight;
		GgDeviceTrouble(worker, &status);
		for (uint32 i = 0; i < batch->count; i++)
			refused(worker, batch->slots[i], GG_REASON_FAILED);
		return;
	}
	stats->batches++;
	GgHistogramAdd(stats->batch_sizes, batch->count);
	flight->queue = queue;
	flight->entry = item->entry;
	flight->list = batch->list;
	flight->kind = kind;
	flight->count = batch->count;
	flight->submitted_us = now;
	memcpy(flight->slots, batch->slots, batch->count * sizeof(uint32));
	memcpy(flight->tickets, batch->tickets, batch->count * sizeof(uint32));
	flight->next = dispatch->flights;
	dispatch->flights = flight;
	dispatch->queue_flights[queue]++;
}

/* gpugraph.fault = stall: for a second, or as long as this process has the setting, too. */
static bool
IsStalled(const SlotItem *item)
{
	return item->due_us != 0 && (GgNowMicros() < item->due_us || gg_fault == GG_FAULT_STALL);
}

/* Take the first waiting item, from `first` on, and all that may share a batch with it. */
static void
GatherBatch(GgDispatch *dispatch, uint32 first, gg_serve_batch *batch)
{
	SlotItem   *waiting = dispatch->waiting;
	SlotItem	item = waiting[first];
	uint32		kept = first;
	DeepKind	kind = KindOf(&item);
	uint32		most = kind != DEEP_ALONE ? GG_SERVE_MAX_DEEPS : GG_SERVE_MAX_BATCH;

	batch->count = 0;
	batch->list = item.list;
	for (uint32 i = first; i < dispatch->nwaiting; i++)
	{
		if (i == first || (batch->count < most && !IsStalled(&waiting[i]) &&
						   SameBatch(dispatch, &item, kind, &waiting[i])))
		{
			batch->requests[batch->count] = RequestOf(&waiting[i]);
			batch->slots[batch->count] = waiting[i].slot;
			batch->tickets[batch->count++] = dispatch->queries[waiting[i].slot].ticket;
		}
		else
			waiting[kept++] = waiting[i];
	}
	dispatch->nwaiting = kept;
}

/*
 * Find the queues that have nothing in flight, and count them: *nfirst of the first ones, from the
 * one whose turn it is, then the others.
 */
static uint32
FreeQueues(const GgDispatch *dispatch, uint32 *queues, uint32 *nfirst)
{
	uint32		nqueues = 0;

	for (uint32 i = 0; i < FIRST_QUEUES; i++)
	{
		uint32		queue = (dispatch->next_queue + i) % FIRST_QUEUES;

		if (dispatch->queue_flights[queue] == 0)
			queues[nqueues++] = queue;
	}
	*nfirst = nqueues;
	for (uint32 queue = FIRST_QUEUES; queue < GG_SERVE_QUEUES; queue++)
		if (dispatch->queue_flights[queue] == 0)
			queues[nqueues++] = queue;
	return nqueues;
}

/* An item waits while more of its kind are in flight than wait. */
static bool
MustWait(const GgDispatch *dispatch, const SlotItem *item)
{
	DeepKind	kind = KindOf(item);
	uint32		in_flight = 0;
	uint32		waiting = 0;

	if (kind == DEEP_ALONE)
		return false;
	for (const Flight *flight = dispatch->flights; flight != NULL; flight = flight->next)
		if (flight->kind == kind && flight->entry == item->entry && flight->list == item->list)
			in_flight += flight->count;
	for (uint32 i = 0; i < dispatch->nwaiting && waiting < in_flight; i++)
		waiting += SameBatch(dispatch, item, kind, &dispatch->waiting[i]);
	return waiting < in_flight;
}

/*
 * Submit what waits to the queues that are free now, one batch per queue.  Where there are more
 * batches than free queues, several follow each other on one queue, but for groups
 * (gg_serve_group), which wait.  What takes much scratch memory goes to the first queues alone,
 * which have it then.
 */
void
GgSubmit(GgWorker *worker, GgEndItem refused)
{
	GgDispatch *dispatch = worker->dispatch;
	uint32		queues[GG_SERVE_QUEUES];
	uint32		nqueues;
	uint32		nfirst;
	uint32		turn = 0;
	uint32		first = 0;		/* items before it have to wait */

	if (dispatch->nwaiting == 0)
		return;
	nqueues = FreeQueues(dispatch, queues, &nfirst);
	if (nfirst == 0)
		return;

	while (first < dispatch->nwaiting)
	{
		SlotItem	item = dispatch->waiting[first];
		gg_serve_batch batch;
		uint32		queue;

		uint32		most = item.at->chunk < 0 || IsGroup(&item) ? nqueues : nfirst;

		if (IsStalled(&item) || MustWait(dispatch, &item) || (IsGroup(&item) && turn >= most))
		{
			first++;
			continue;
		}
		GatherBatch(dispatch, first, &batch);
		queue = queues[turn++ % most];
		if (queue < FIRST_QUEUES)
			dispatch->next_queue = queue + 1;
		SubmitBatch(worker, &batch, &item, queue, refused);
	}
}
