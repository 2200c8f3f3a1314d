/*
 * dispatch.c
 *		From the ring to items, from batches to answers; runs in the worker.
 *
 * A query is taken from the ring as soon as it is there and becomes an item for each of its lists.
 * batch.c makes batches of these.
 *
 * The device itself writes answers and done words into the slots.  A backend that spins sees them
 * itself.  The worker looks at the same words to wake backends that sleep, to know when a queue is
 * free, and for the counters.
 *
 * The device writes into a slot as long as any of its items is in flight.  Meanwhile the query is
 * "live" here, and its slot is not freed even when abandoned.
 */
#include "service/worker/dispatch.h"

#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/memutils.h"

#include "service/shared/ring.h"

/* How often queues with something in flight are asked for errors. */
#define CHECK_EVERY_US		2000

/* How long a worker that ends waits for its queues: some launches. */
#define DRAIN_MOST_US		500000
#define DRAIN_SLEEP_US		100

/* gpugraph.fault = stall */
#define STALL_US			1000000

/* The slots of this worker's device. */
static GgSlot *device_slots = NULL;

/* ---- slots -------------------------------------------------------------------- */

static void
Wake(GgSlot *slot)
{
	if (pg_atomic_read_u32(&slot->sleeping) != 0)
		SetLatch(&GetPGProcByNumber(slot->procno)->procLatch);
}

/* Tell the backend that no answer will come; nothing in flight may name the slot. */
static void
FailSlot(GgDevice *device, GgSlot *slot, uint64 ticket, GgSlotState state, GgReason reason)
{
	slot->reason = reason;
	pg_write_barrier();
	if (GgSlotMove(slot, ticket, state, GG_SLOT_FAILED))
	{
		device->stats.failed++;
		Wake(slot);
	}
	else if (GgSlotFreeAbandoned(slot, ticket))
		device->stats.abandoned++;
}

/* Empty the ring: the queries in it fail. */
static void
FailRing(GgDevice *device)
{
	uint32		number,
				ticket;

	while (GgRingPop(device->ring, &number, &ticket))
	{
		GgSlot	   *slot = &device_slots[number];
		uint64		word = pg_atomic_read_u64(&slot->word);

		if ((uint32) GgSlotTicket(word) == ticket)
			FailSlot(device, slot, GgSlotTicket(word), GG_SLOT_QUEUED, GG_REASON_NO_SERVICE);
	}
}

/* ---- the end of an item -------------------------------------------------------- */

static void
Unpin(GgWorker *worker, SlotQuery *query)
{
	Members    *members = query->members;

	while (query->npinned > 0)
		GgResidentUnpin(worker, query->pinned[--query->npinned]);
	if (members == NULL)
		return;
	members->next = worker->dispatch->spare_members;
	worker->dispatch->spare_members = members;
	query->members = NULL;
}

static void
EndQuery(GgWorker *worker, uint32 number)
{
	SlotQuery  *query = &worker->dispatch->queries[number];
	GgSlot	   *slot = &device_slots[number];
	uint64		ticket = GgSlotTicket(pg_atomic_read_u64(&slot->word));
	uint64		now = GgNowMicros();

	query->live = false;
	for (uint32 i = 0; i < query->npinned; i++)
		if (query->submitted_us != 0)
			worker->times[GgEntryOf(query->pinned[i])].answered_us +=
				(now - query->submitted_us) / query->npinned;
	Unpin(worker, query);

	/* answered, and the backend has gone on to its next query */
	if ((uint32) ticket != query->ticket)
		return;
	if (query->failed)
		FailSlot(worker->device, slot, ticket, GG_SLOT_RUNNING, query->reason);
	else if (GgSlotFreeAbandoned(slot, ticket))
		worker->device->stats.abandoned++;
	else
		Wake(slot);
}

static void
EndItem(GgWorker *worker, uint32 number, GgReason reason)
{
	SlotQuery  *query = &worker->dispatch->queries[number];

	Assert(query->live && query->items > 0);
	if (reason != GG_REASON_NONE)
	{
		query->failed = true;
		query->reason = reason;
	}
	if (--query->items == 0)
		EndQuery(worker, number);
}

/* Look for answers. */
static void
Poll(GgWorker *worker)
{
	GgDispatch *dispatch = worker->dispatch;

	for (Flight **link = &dispatch->flights; *link != NULL;)
	{
		Flight	   *flight = *link;

		for (uint32 i = 0; i < flight->count;)
		{
			uint32		number = flight->slots[i];
			const volatile uint32 *done = &device_slots[number].done[flight->list];

			if (*done != flight->tickets[i])
			{
				i++;
				continue;
			}
			/* the answer before the look at sleeping: see Sleep() in client.c */
			pg_memory_barrier();
			GgTimeAdd(worker->device->stats.kernel_us, GgNowMicros() - flight->submitted_us);
			flight->count--;
			flight->slots[i] = flight->slots[flight->count];
			flight->tickets[i] = flight->tickets[flight->count];
			EndItem(worker, number, GG_REASON_NONE);
		}
		if (flight->count > 0)
		{
			link = &flight->next;
			continue;
		}
		dispatch->queue_flights[flight->queue]--;
		*link = flight->next;
		flight->next = dispatch->spare;
		dispatch->spare = flight;
	}
}

/* Nothing runs on the queue any more, so what was not answered never will be. */
static void
FailQueue(GgWorker *worker, uint32 queue)
{
	for (Flight *flight = worker->dispatch->flights; flight != NULL; flight = flight->next)
	{
		if (flight->queue != queue)
			continue;
		while (flight->count > 0)
			EndItem(worker, flight->slots[--flight->count], GG_REASON_FAILED);
	}
	Poll(worker);				/* takes the empty flights away */
}

/* Has a batch been in flight for so long that it will not end any more? */
static bool
Hangs(const GgDispatch *dispatch, uint64 now)
{
	uint64		most = (uint64) gg_device_timeout_ms * 1000;

	for (const Flight *flight = dispatch->flights; flight != NULL && most > 0;
		 flight = flight->next)
		if (now > flight->submitted_us + most)
			return true;
	return false;
}

/* Ask the queues whether something went wrong. */
static void
Check(GgWorker *worker)
{
	GgDispatch *dispatch = worker->dispatch;
	uint64		now = GgNowMicros();

	if (dispatch->flights == NULL || now - dispatch->checked_us < CHECK_EVERY_US)
		return;
	dispatch->checked_us = now;
	for (uint32 queue = 0; queue < GG_SERVE_QUEUES; queue++)
	{
		gg_status	status;
		bool		idle = false;

		if (dispatch->queue_flights[queue] == 0 || dispatch->queue_hangs[queue])
			continue;
		status = worker->engine->serve_check(worker->server, queue, &idle);
		if (status.code == GG_EDEVICE)
			GgDeviceLost(worker, &status);
		if (status.code != GG_OK)
			GgDeviceTrouble(worker, &status);
		if (!idle)
			continue;
		Poll(worker);
		if (dispatch->queue_flights[queue] > 0)
			FailQueue(worker, queue);
	}
	if (!Hangs(dispatch, now))
		return;
	/* this process may have been stopped since it last looked for answers */
	Poll(worker);
	if (Hangs(dispatch, now))
		GgDeviceHangs(worker, "a batch has not ended");
}

/* ---- taking ------------------------------------------------------------------------ */

static void
InjectFault(GgWorker *worker, GgFault fault)
{
	gg_status	status;

	switch (fault)
	{
		case GG_FAULT_LAUNCH:
			status = gg_fail(GG_EDEVICE, "gpugraph.fault", "launch failed");
			GgDeviceTrouble(worker, &status);
			break;
		case GG_FAULT_DEVICE:
			status = gg_fail(GG_EDEVICE, "gpugraph.fault", "device lost");
			GgDeviceLost(worker, &status);
			break;
		case GG_FAULT_EXIT:
			proc_exit(1);
		case GG_FAULT_HANG_LAUNCH:
			for (;;)
				pg_usleep(STALL_US);
		default:
			break;
	}
}

/* The answer of a list without rows: no node. */
static void
AnswerNothing(const gg_request *request, uint32 list)
{
	uint64	   *matches = (uint64 *) (gg_service->region + request->matches);

	memset(gg_service->region + gg_request_keys_at(request, list), 0xFF,
		   (Size) request->count * request->params.k * sizeof(uint64));
	if (gg_request_way(request, list) == GG_WAY_DEEP)
		matches[gg_request_before(request, list)] = 0;
}

static void
AddItem(GgDispatch *dispatch, uint32 number, uint32 list)
{
	GgSlot	   *slot = &device_slots[number];
	SlotItem   *item;

	if (slot->ntargets == 0 && dispatch->queries[number].indexes[list] == NULL)
	{
		AnswerNothing(&slot->request, list);
		pg_write_barrier();
		slot->done[list] = dispatch->queries[number].ticket;
		return;
	}

	item = &dispatch->waiting[dispatch->nwaiting++];
	item->slot = number;
	item->at = slot;
	item->list = list;
	/* a group has many entries; only deep lists need theirs, and it has no deep list */
	item->entry = slot->ntargets > 0 ? 0 : dispatch->queries[number].pinned[0];
	item->bounded = list < 32 && (dispatch->queries[number].rowless >> list & 1) != 0;
	item->hangs = slot->fault == GG_FAULT_HANG;
	item->due_us = slot->fault == GG_FAULT_STALL ? GgNowMicros() + STALL_US : 0;
	dispatch->queries[number].items++;
}

/* Has the slot the chunk that it names, if any, and a number of targets that fit there? */
static bool
HasItsChunk(const GgSlot *slot)
{
	if (slot->chunk >= 0)
		return GgPoolIsOwner(gg_service->pool, slot->chunk, GgSlotOwner(slot)) &&
			slot->ntargets <= GG_SERVE_MAX_GROUP;
	return slot->ntargets <= GG_SLOT_TARGETS;
}

/* Is a request in range?  The device follows it unchecked, into its own memory and the region. */
static bool
IsSound(const GgSlot *slot, uint32 nlists)
{
	const gg_request *request = &slot->request;
	gg_request	placed = *request;

	return gg_check_request(__func__, request).code == GG_OK &&
		request->nsegments + request->delta <= nlists &&
		GgPlaceRequest(slot, GgCountSlotTids(slot), &placed) &&
		placed.queries == request->queries && placed.keys == request->keys &&
		placed.filter == request->filter && placed.tids == request->tids &&
		placed.matches == request->matches;
}

/* Pin the resident that a query is for; false where it is not there, or not the one that was. */
static bool
PinOne(GgWorker *worker, uint32 number, uint32 *nlists, bool *missing)
{
	SlotQuery  *query = &worker->dispatch->queries[number];
	const GgSlot *slot = &device_slots[number];
	GgResidentVersion *version = GgResidentPin(worker, slot->entry, slot->serial);

	if (version == NULL)
		return false;
	query->one = slot->entry;
	query->pinned = &query->one;
	query->npinned = 1;
	query->indexes = version->lists;
	query->rowless = version->forms.rowless;
	*nlists = version->nlists;
	*missing = (slot->request.lists & version->forms.missing) != 0;
	return true;
}

/* Pin what a group asks for.  A list that is not there any more is lost, the others are not. */
static void
PinTargets(GgWorker *worker, uint32 number)
{
	GgDispatch *dispatch = worker->dispatch;
	SlotQuery  *query = &dispatch->queries[number];
	GgSlot	   *slot = &device_slots[number];
	GgGroupTarget *targets = GgSlotTargets(slot);
	Members    *members = dispatch->spare_members;

	if (members != NULL)
		dispatch->spare_members = members->next;
	else
		members = MemoryContextAlloc(TopMemoryContext, sizeof(Members));
	query->members = members;
	query->pinned = members->pinned;
	for (uint32 i = 0; i < slot->ntargets; i++)
	{
		GgGroupTarget *target = &targets[i];
		GgResidentVersion *version = GgResidentPin(worker, target->entry, target->serial);

		if (version != NULL)
			query->pinned[query->npinned++] = target->entry;
		target->lost = version == NULL || target->list >= version->nlists ||
			(target->list < 32 && (version->forms.missing >> target->list & 1) != 0);
		members->indexes[i] = target->lost ? NULL : version->lists[target->list];
		members->measured[i] = target->measured;
	}
}

/* Pin what a query is for.  False: nothing is pinned. */
static bool
Pin(GgWorker *worker, uint32 number, uint32 *nlists, bool *missing)
{
	SlotQuery  *query = &worker->dispatch->queries[number];

	query->npinned = 0;
	query->members = NULL;
	query->rowless = 0;
	if (device_slots[number].ntargets == 0)
		return PinOne(worker, number, nlists, missing);
	PinTargets(worker, number);
	*nlists = 1;
	*missing = false;
	return true;
}

/* Make items of a query that was taken and whose residents are pinned. */
static void
AddItems(GgWorker *worker, uint32 number, uint32 nlists, bool missing)
{
	GgDispatch *dispatch = worker->dispatch;
	const GgSlot *slot = &device_slots[number];

	if (!IsSound(slot, nlists) || missing)
	{
		EndItem(worker, number, GG_REASON_FAILED);
		return;
	}
	for (uint32 list = 0; list <= slot->request.nsegments; list++)
		if (gg_request_asks(&slot->request, list))
			AddItem(dispatch, number, list);
	EndItem(worker, number, GG_REASON_NONE);
}

/* Take one query that is QUEUED under this ticket. */
static void
Take(GgWorker *worker, uint32 number, uint64 ticket)
{
	GgDevice   *device = worker->device;
	GgSlot	   *slot = &device_slots[number];
	SlotQuery  *query = &worker->dispatch->queries[number];
	uint32		nlists;
	bool		missing;

	/* its last query was answered, and nobody has looked since */
	if (query->live)
		Poll(worker);
	Assert(!query->live);

	if (!GgSlotMove(slot, ticket, GG_SLOT_QUEUED, GG_SLOT_RUNNING))
	{
		if (GgSlotFreeAbandoned(slot, ticket))
			device->stats.abandoned++;
		return;
	}
	device->stats.queries++;
	InjectFault(worker, (GgFault) slot->fault);
	if (slot->fault == GG_FAULT_LAUNCH)
	{
		FailSlot(device, slot, ticket, GG_SLOT_RUNNING, GG_REASON_FAILED);
		return;
	}

	if (!HasItsChunk(slot) || !Pin(worker, number, &nlists, &missing))
	{
		/* evicted since the backend looked */
		FailSlot(device, slot, ticket, GG_SLOT_RUNNING, GG_REASON_NOT_RESIDENT);
		return;
	}
	query->live = true;
	query->failed = false;
	query->ticket = (uint32) ticket;
	query->posted_us = slot->posted_us;
	query->submitted_us = 0;
	query->items = 1;			/* until all are there */
	AddItems(worker, number, nlists, missing);
}

static bool
TakeAll(GgWorker *worker)
{
	GgDispatch *dispatch = worker->dispatch;
	uint32		number,
				ticket;
	bool		any = false;

	/* no room for another query's items: those that wait go first */
	while (dispatch->nwaiting + GG_SERVE_MAX_LISTS <= gg_service->nslots * GG_SERVE_MAX_LISTS &&
		   GgRingPop(worker->device->ring, &number, &ticket))
	{
		uint64		word = pg_atomic_read_u64(&device_slots[number].word);

		any = true;
		if ((uint32) GgSlotTicket(word) == ticket)
			Take(worker, number, GgSlotTicket(word));
	}
	return any;
}

/* Free slots that were abandoned after we had seen their answer, or before we took them. */
static void
SweepAbandoned(GgWorker *worker)
{
	GgDispatch *dispatch = worker->dispatch;
	uint32		now = pg_atomic_read_u32(&worker->device->ring->abandoned);

	if (now == dispatch->abandoned_seen)
		return;
	dispatch->abandoned_seen = now;
	pg_memory_barrier();
	for (uint32 i = 0; i < gg_service->nslots; i++)
	{
		GgSlot	   *slot = &device_slots[i];
		uint64		word = pg_atomic_read_u64(&slot->word);

		if (GgSlotStateOf(word) == GG_SLOT_ABANDONED && !dispatch->queries[i].live &&
			GgSlotFreeAbandoned(slot, GgSlotTicket(word)))
			worker->device->stats.abandoned++;
	}
}

/* ---- for the worker ------------------------------------------------------------------ */

bool
GgDispatchIdle(GgWorker *worker)
{
	GgRing	   *ring = worker->device->ring;

	return GgRingEmpty(ring) &&
		pg_atomic_read_u32(&ring->abandoned) == worker->dispatch->abandoned_seen;
}

bool
GgDispatchTurn(GgWorker *worker)
{
	GgDispatch *dispatch = worker->dispatch;
	bool		any;

	if (dispatch->flights != NULL)
		Poll(worker);
	any = TakeAll(worker);
	SweepAbandoned(worker);
	GgSubmit(worker, EndItem);
	if (any)
		Poll(worker);
	Check(worker);
	return any || dispatch->flights != NULL || dispatch->nwaiting > 0;
}

/*
 * The worker before us wrote into the slots of this device and is gone, so all of them are freed,
 * or their backends are told.  A slot in the state QUEUED whose entry is not in the ring yet is
 * left for TakeAll().
 */
void
GgDispatchStart(GgWorker *worker)
{
	GgDevice   *device = worker->device;

	device_slots = device->slots;
	worker->dispatch = MemoryContextAllocZero(TopMemoryContext, sizeof(GgDispatch));
	worker->dispatch->abandoned_seen = pg_atomic_read_u32(&device->ring->abandoned);
	FailRing(device);
	for (uint32 i = 0; i < gg_service->nslots; i++)
	{
		GgSlot	   *slot = &device_slots[i];
		uint64		word = pg_atomic_read_u64(&slot->word);

		if (GgSlotStateOf(word) == GG_SLOT_RUNNING || GgSlotStateOf(word) == GG_SLOT_ABANDONED)
			FailSlot(device, slot, GgSlotTicket(word), GG_SLOT_RUNNING, GG_REASON_FAILED);
	}
}

void
GgDispatchServe(GgWorker *worker)
{
	GgDispatch *dispatch = worker->dispatch;
	Size		nslots = gg_service->nslots;

	dispatch->queries = MemoryContextAllocZero(TopMemoryContext, nslots * sizeof(SlotQuery));
	dispatch->waiting = MemoryContextAllocHuge(TopMemoryContext,
											   nslots * GG_SERVE_MAX_LISTS * sizeof(SlotItem));
}

/*
 * Called before indexes are closed: no batch in flight may name them, since a backend would believe
 * an answer read from freed memory.  Not called for a device that is lost.  False: something is in
 * flight still, or the device is lost by now.
 */
bool
GgDispatchDrain(GgWorker *worker)
{
	uint64		start = GgNowMicros();

	for (uint32 queue = 0; queue < GG_SERVE_QUEUES; queue++)
		while (worker->dispatch->queue_flights[queue] > 0)
		{
			bool		idle = true;

			if (worker->engine->serve_check(worker->server, queue, &idle).code != GG_OK)
				return false;
			if (idle && !worker->dispatch->queue_hangs[queue])
				break;
			if (GgNowMicros() - start >= DRAIN_MOST_US)
				return false;
			pg_usleep(DRAIN_SLEEP_US);
		}
	return true;
}

/*
 * Fail what is in the ring, and wake who waits: the state is not UP any more.  The device may still
 * write for queries in flight, so their slots are left to the next worker.
 */
void
GgDispatchStop(GgWorker *worker)
{
	FailRing(worker->device);
	for (uint32 i = 0; i < gg_service->nslots; i++)
	{
		GgSlot	   *slot = &device_slots[i];

		if (GgSlotStateOf(pg_atomic_read_u64(&slot->word)) == GG_SLOT_RUNNING)
			Wake(slot);
	}
}
