/*
 * dispatch.c
 *		From the ring to batches, from batches to answers; runs in the worker.
 *
 * A query is taken from the ring as soon as it is there and becomes an item for each of its lists.  Items wait
 * only while every lane has something in flight: so a query that arrives at an idle device is launched at
 * once, and what arrives during launches goes out together, grouped by index, list and parameters, when
 * the first lane is free again.  There is no other delay.
 *
 * The device writes answers and done words into the slots itself.  The backend that spins sees them without us;
 * we look at the same words to wake those that sleep, to know when a lane is free, and for the counters.
 *
 * A slot is written by the device as long as any of its items is in flight.  Until then its query is "live" here, and an
 * abandoned slot is not freed.
 */
#include "service/service.h"

#include "port/pg_bitutils.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/s_lock.h"
#include "utils/float.h"
#include "utils/memutils.h"

#include "service/ring.h"

/* How often lanes with something in flight are asked for errors. */
#define CHECK_EVERY_US		2000

/* How long a worker that ends waits for its lanes: some launches. */
#define DRAIN_MOST_US		500000
#define DRAIN_SLEEP_US		100

/* gpugraph.fault = stall */
#define STALL_US			1000000

/* What the worker knows of a slot's query. */
typedef struct SlotQuery
{
	bool		live;
	bool		failed;
	GgReason	reason;			/* failed */
	uint32		ticket;			/* low half */
	uint32		items;			/* waiting or in flight */
	uint32		entry;			/* pinned */
	gg_index  **indexes;
	uint64		posted_us;		/* 0 once counted */
} SlotQuery;

/* One list of a query, to be searched. */
typedef struct SlotItem
{
	uint32		slot;
	uint32		list;
	uint32		entry;
	uint32		k;
	uint32		itopk_size;
	bool		exact;
	uint64		due_us;
} SlotItem;

/* A batch on its lane. */
typedef struct Flight
{
	struct Flight *next;
	uint32		lane;
	uint32		list;
	uint32		count;			/* not answered yet */
	uint64		submitted_us;
	uint32		slots[GG_SERVE_MAX_BATCH];
	uint32		tickets[GG_SERVE_MAX_BATCH];
} Flight;

static GgDevice *device;
static const gg_engine *engine;
static gg_server *server;

static SlotQuery *queries;			/* a slot */
static SlotItem *waiting;
static uint32 nwaiting;
static Flight *flights;			/* in flight, in no order */
static Flight *spare;
static uint32 lane_flights[GG_SERVE_LANES];
static uint32 next_lane;
static uint32 abandoned_seen;
static uint64 checked_us;

/* ---- slots -------------------------------------------------------------------- */

static bool
ChangeState(GgSlot *slot, uint64 ticket, GgSlotState from, GgSlotState to)
{
	uint64		word = GgSlotWord(ticket, from);

	return pg_atomic_compare_exchange_u64(&slot->word, &word, GgSlotWord(ticket, to));
}

static void
Wake(GgSlot *slot)
{
	if (pg_atomic_read_u32(&slot->sleeping) != 0)
		SetLatch(&GetPGProcByNumber(slot->procno)->procLatch);
}

/* Tell the backend that no answer will come; nothing in flight may name the slot. */
static void
FailSlot(GgSlot *slot, uint64 ticket, GgSlotState state, GgReason reason)
{
	slot->reason = reason;
	pg_write_barrier();
	if (ChangeState(slot, ticket, state, GG_SLOT_FAILED))
	{
		device->stats.failed++;
		Wake(slot);
	}
	else if (ChangeState(slot, ticket, GG_SLOT_ABANDONED, GG_SLOT_FREE))
		device->stats.abandoned++;
}

/* ---- the end of an item -------------------------------------------------------- */

static void
EndQuery(uint32 number)
{
	SlotQuery  *query = &queries[number];
	GgSlot	   *slot = &gg_service->slots[number];
	uint64		ticket = GgSlotTicket(pg_atomic_read_u64(&slot->word));

	query->live = false;
	GgResidentUnpin(query->entry);

	/* answered, and the backend has gone on to its next query */
	if ((uint32) ticket != query->ticket)
		return;
	if (query->failed)
		FailSlot(slot, ticket, GG_SLOT_RUNNING, query->reason);
	else if (ChangeState(slot, ticket, GG_SLOT_ABANDONED, GG_SLOT_FREE))
		device->stats.abandoned++;
	else
		Wake(slot);
}

static void
EndItem(uint32 number, bool failed, GgReason reason)
{
	SlotQuery  *query = &queries[number];

	Assert(query->live && query->items > 0);
	if (failed)
	{
		query->failed = true;
		query->reason = reason;
	}
	if (--query->items == 0)
		EndQuery(number);
}

/* Look for answers. */
static void
Poll(void)
{
	for (Flight **link = &flights; *link != NULL;)
	{
		Flight	   *flight = *link;

		for (uint32 i = 0; i < flight->count;)
		{
			uint32		number = flight->slots[i];
			const volatile uint32 *done = &gg_service->slots[number].done[flight->list];

			if (*done != flight->tickets[i])
			{
				i++;
				continue;
			}
			/* the answer before the look at sleeping: see Sleep() in client.c */
			pg_memory_barrier();
			GgTimeAdd(device->stats.kernel_us, GgNowMicros() - flight->submitted_us);
			flight->count--;
			flight->slots[i] = flight->slots[flight->count];
			flight->tickets[i] = flight->tickets[flight->count];
			EndItem(number, false, GG_REASON_NONE);
		}
		if (flight->count > 0)
		{
			link = &flight->next;
			continue;
		}
		lane_flights[flight->lane]--;
		*link = flight->next;
		flight->next = spare;
		spare = flight;
	}
}

/* Nothing on the lane runs any more, so what was not answered never will be. */
static void
FailLane(uint32 lane)
{
	for (Flight *flight = flights; flight != NULL; flight = flight->next)
	{
		if (flight->lane != lane)
			continue;
		while (flight->count > 0)
			EndItem(flight->slots[--flight->count], true, GG_REASON_FAILED);
	}
	Poll();						/* takes the empty flights away */
}

/* Ask the lanes whether something went wrong. */
static void
Check(void)
{
	uint64		now = GgNowMicros();

	if (flights == NULL || now - checked_us < CHECK_EVERY_US)
		return;
	checked_us = now;
	for (uint32 lane = 0; lane < GG_SERVE_LANES; lane++)
	{
		gg_status	status;
		bool		idle = false;

		if (lane_flights[lane] == 0)
			continue;
		status = engine->serve_check(server, lane, &idle);
		if (status.code == GG_EDEVICE)
			GgDeviceLost(&status);
		if (status.code != GG_OK)
			GgDeviceTrouble(&status);
		if (!idle)
			continue;
		Poll();
		if (lane_flights[lane] > 0)
			FailLane(lane);
	}
}

/* ---- submitting ------------------------------------------------------------------ */

static bool
SameBatch(const SlotItem *a, const SlotItem *b)
{
	return a->entry == b->entry && a->list == b->list && a->exact == b->exact && a->k == b->k &&
		a->itopk_size == b->itopk_size;
}

static void
SubmitBatch(const gg_serve_batch *batch, gg_index *index, uint32 lane)
{
	GgDeviceStats *stats = &device->stats;
	uint64		now = GgNowMicros();
	Flight	   *flight = spare;
	gg_status	status;

	if (flight != NULL)
		spare = flight->next;
	else
		flight = MemoryContextAlloc(TopMemoryContext, sizeof(Flight));

	for (uint32 i = 0; i < batch->count; i++)
	{
		SlotQuery  *query = &queries[batch->slots[i]];

		if (query->posted_us == 0)
			continue;
		GgTimeAdd(stats->queue_us, now > query->posted_us ? now - query->posted_us : 0);
		query->posted_us = 0;
	}
	status = engine->serve_submit(server, index, lane, batch);
	if (status.code == GG_EDEVICE)
		GgDeviceLost(&status);
	if (status.code != GG_OK)
	{
		/* refused as a whole, or (CPU engine) answered in part by this thread: nothing is in flight */
		flight->next = spare;
		spare = flight;
		GgDeviceTrouble(&status);
		for (uint32 i = 0; i < batch->count; i++)
			EndItem(batch->slots[i], true, GG_REASON_FAILED);
		return;
	}
	stats->batches++;
	GgHistogramAdd(stats->batch_sizes, batch->count);
	flight->lane = lane;
	flight->list = batch->list;
	flight->count = batch->count;
	flight->submitted_us = now;
	memcpy(flight->slots, batch->slots, batch->count * sizeof(uint32));
	memcpy(flight->tickets, batch->tickets, batch->count * sizeof(uint32));
	flight->next = flights;
	flights = flight;
	lane_flights[lane]++;
}

/*
 * Everything that waits goes to the lanes that are free now, a group a lane; where groups are more
 * than lanes, several follow each other on one.
 */
static void
Submit(void)
{
	uint32		lanes[GG_SERVE_LANES];
	uint32		nlanes = 0;
	uint32		turn = 0;
	uint32		first = 0;		/* items before it are not due */
	uint64		now = 0;

	if (nwaiting == 0)
		return;
	for (uint32 i = 0; i < GG_SERVE_LANES; i++)
	{
		uint32		lane = (next_lane + i) % GG_SERVE_LANES;

		if (lane_flights[lane] == 0)
			lanes[nlanes++] = lane;
	}
	if (nlanes == 0)
		return;

	while (first < nwaiting)
	{
		gg_serve_batch batch;
		SlotItem	item = waiting[first];
		uint32		kept = first;
		uint32		lane;

		if (item.due_us != 0)
		{
			now = now != 0 ? now : GgNowMicros();
			if (now < item.due_us)
			{
				first++;
				continue;
			}
			waiting[first].due_us = 0;
		}
		batch.count = 0;
		batch.exact = item.exact;
		batch.k = item.k;
		batch.itopk_size = item.itopk_size;
		batch.list = item.list;
		for (uint32 i = first; i < nwaiting; i++)
		{
			if (batch.count < GG_SERVE_MAX_BATCH && waiting[i].due_us == 0 && SameBatch(&waiting[i], &item))
			{
				batch.slots[batch.count] = waiting[i].slot;
				batch.tickets[batch.count++] = queries[waiting[i].slot].ticket;
			}
			else
				waiting[kept++] = waiting[i];
		}
		nwaiting = kept;
		lane = lanes[turn++ % nlanes];
		next_lane = lane + 1;
		SubmitBatch(&batch, queries[item.slot].indexes[item.list], lane);
	}
}

/* ---- taking ------------------------------------------------------------------------ */

static void
InjectFault(GgFault fault)
{
	gg_status	status;

	memset(&status, 0, sizeof(status));
	status.where = "gpugraph.fault";
	switch (fault)
	{
		case GG_FAULT_LAUNCH:
			snprintf(status.message, sizeof(status.message), "launch failed");
			GgDeviceTrouble(&status);
			break;
		case GG_FAULT_DEVICE:
			status.code = GG_EDEVICE;
			snprintf(status.message, sizeof(status.message), "device lost");
			GgDeviceLost(&status);
			break;
		case GG_FAULT_EXIT:
			proc_exit(1);
		default:
			break;
	}
}

static void
AddItem(GgSlot *slot, uint32 number, uint32 list, bool exact)
{
	SlotItem   *item;

	/* a list without rows: the answer is no node */
	if (queries[number].indexes[list] == NULL)
	{
		for (uint32 i = list * slot->k; i < (list + 1) * slot->k; i++)
		{
			slot->nodes[i] = GG_NO_NODE;
			slot->distances[i] = get_float4_infinity();
		}
		pg_write_barrier();
		slot->done[list] = queries[number].ticket;
		return;
	}

	item = &waiting[nwaiting++];
	item->slot = number;
	item->list = list;
	item->entry = slot->entry;
	item->k = slot->k;
	item->itopk_size = exact ? 0 : slot->itopk_size;
	item->exact = exact;
	item->due_us = slot->fault == GG_FAULT_STALL ? GgNowMicros() + STALL_US : 0;
	queries[number].items++;
}

/* The device follows these numbers unchecked, into its own memory and into the slots. */
static bool
IsSound(const GgSlot *slot, uint32 nlists)
{
	uint32		asked = slot->nlists - 1 < 32 ? slot->lists >> (slot->nlists - 1) : 0;
	uint32		end = slot->delta || slot->lists == 0 ? slot->nlists : pg_leftmost_one_pos32(slot->lists) + 1;

	return slot->nlists >= 1 && slot->nlists <= GG_SERVE_MAX_LISTS && asked == 0 &&
		slot->nlists - (slot->delta ? 0 : 1) <= nlists &&
		slot->k >= 1 && slot->k <= GG_MAX_ITOPK && (uint64) end * slot->k <= GG_SLOT_CANDIDATES && slot->itopk_size <= GG_MAX_ITOPK &&
		(slot->lists != 0 || slot->delta);
}

/* Take one query that is QUEUED under this ticket. */
static void
Take(uint32 number, uint64 ticket)
{
	GgSlot	   *slot = &gg_service->slots[number];
	SlotQuery  *query = &queries[number];
	uint32		nlists;

	/* its last query was answered, and nobody has looked since */
	if (query->live)
		Poll();
	Assert(!query->live);

	if (!ChangeState(slot, ticket, GG_SLOT_QUEUED, GG_SLOT_RUNNING))
	{
		if (ChangeState(slot, ticket, GG_SLOT_ABANDONED, GG_SLOT_FREE))
			device->stats.abandoned++;
		return;
	}
	device->stats.queries++;
	if (slot->fault != GG_FAULT_NONE)
	{
		InjectFault((GgFault) slot->fault);
		if (slot->fault == GG_FAULT_LAUNCH)
		{
			FailSlot(slot, ticket, GG_SLOT_RUNNING, GG_REASON_FAILED);
			return;
		}
	}

	query->indexes = GgResidentPin(slot->entry, slot->serial, &nlists);
	if (query->indexes == NULL)
	{
		/* evicted since the backend looked */
		FailSlot(slot, ticket, GG_SLOT_RUNNING, GG_REASON_NOT_RESIDENT);
		return;
	}
	query->live = true;
	query->failed = false;
	query->ticket = (uint32) ticket;
	query->entry = slot->entry;
	query->posted_us = slot->posted_us;
	query->items = 1;			/* until all are there */
	if (IsSound(slot, nlists))
	{
		for (uint32 list = 0; list + 1 < slot->nlists; list++)
			if (slot->lists & ((uint32) 1 << list))
				AddItem(slot, number, list, false);
		if (slot->delta)
			AddItem(slot, number, slot->nlists - 1, true);
		EndItem(number, false, GG_REASON_NONE);
	}
	else
		EndItem(number, true, GG_REASON_FAILED);
}

static bool
TakeAll(void)
{
	uint32		number,
				ticket;
	bool		any = false;

	/* no room for another query's items: those that wait go first */
	while (nwaiting + GG_SERVE_MAX_LISTS <= gg_service->nslots * GG_SERVE_MAX_LISTS &&
		   GgRingPop(device->ring, &number, &ticket))
	{
		uint64		word = pg_atomic_read_u64(&gg_service->slots[number].word);

		any = true;
		if ((uint32) GgSlotTicket(word) == ticket)
			Take(number, GgSlotTicket(word));
	}
	return any;
}

/* Free slots that were abandoned after we had seen their answer, or before we took them. */
static void
SweepAbandoned(void)
{
	uint32		now = pg_atomic_read_u32(&device->ring->abandoned);

	if (now == abandoned_seen)
		return;
	abandoned_seen = now;
	pg_memory_barrier();
	for (uint32 i = 0; i < gg_service->nslots; i++)
	{
		GgSlot	   *slot = &gg_service->slots[i];
		uint64		word = pg_atomic_read_u64(&slot->word);

		if (GgSlotStateOf(word) == GG_SLOT_ABANDONED && gg_service->devices[slot->device] == device &&
			!queries[i].live && ChangeState(slot, GgSlotTicket(word), GG_SLOT_ABANDONED, GG_SLOT_FREE))
			device->stats.abandoned++;
	}
}

/* ---- for the worker ------------------------------------------------------------------ */

bool
GgDispatchIdle(void)
{
	return GgRingEmpty(device->ring) &&
		pg_atomic_read_u32(&device->ring->abandoned) == abandoned_seen;
}

bool
GgDispatchTurn(void)
{
	bool		any;

	if (flights != NULL)
		Poll();
	any = TakeAll();
	SweepAbandoned();
	Submit();
	if (any)
		Poll();
	Check();
	return any || flights != NULL || nwaiting > 0;
}

/*
 * Whoever wrote into the slots of this device is gone with the worker before us, so all of them are free,
 * or their backends are told.  A slot in the state QUEUED whose entry is not in the ring yet is left for TakeAll().
 */
void
GgDispatchStart(GgDevice *mine)
{
	uint32		number,
				ticket;

	device = mine;
	abandoned_seen = pg_atomic_read_u32(&device->ring->abandoned);
	while (GgRingPop(device->ring, &number, &ticket))
	{
		GgSlot	   *slot = &gg_service->slots[number];
		uint64		word = pg_atomic_read_u64(&slot->word);

		if ((uint32) GgSlotTicket(word) == ticket)
			FailSlot(slot, GgSlotTicket(word), GG_SLOT_QUEUED, GG_REASON_NO_SERVICE);
	}
	for (uint32 i = 0; i < gg_service->nslots; i++)
	{
		GgSlot	   *slot = &gg_service->slots[i];
		uint64		word = pg_atomic_read_u64(&slot->word);

		if (gg_service->devices[slot->device] != device)
			continue;
		if (GgSlotStateOf(word) == GG_SLOT_RUNNING || GgSlotStateOf(word) == GG_SLOT_ABANDONED)
			FailSlot(slot, GgSlotTicket(word), GG_SLOT_RUNNING, GG_REASON_FAILED);
	}
}

void
GgDispatchServe(const gg_engine *with, gg_server *on)
{
	engine = with;
	server = on;
	queries = MemoryContextAllocZero(TopMemoryContext, gg_service->nslots * sizeof(SlotQuery));
	waiting = MemoryContextAllocHuge(TopMemoryContext,
									 (Size) gg_service->nslots * GG_SERVE_MAX_LISTS * sizeof(SlotItem));
}

/*
 * Before indexes are closed: the engine may rely on no batch in flight naming them, and a backend would believe an answer
 * out of memory that was given back.  Not with a device that is lost.
 */
void
GgDispatchDrain(void)
{
	uint64		start = GgNowMicros();

	for (uint32 lane = 0; lane < GG_SERVE_LANES; lane++)
		while (lane_flights[lane] > 0 && GgNowMicros() - start < DRAIN_MOST_US)
		{
			bool		idle = true;

			if (engine->serve_check(server, lane, &idle).code != GG_OK || idle)
				break;
			pg_usleep(DRAIN_SLEEP_US);
		}
}

/* The state is not UP any more; what is in flight may be written to still, so it is left to the next worker. */
void
GgDispatchStop(void)
{
	uint32		number,
				ticket;

	while (GgRingPop(device->ring, &number, &ticket))
	{
		GgSlot	   *slot = &gg_service->slots[number];
		uint64		word = pg_atomic_read_u64(&slot->word);

		if ((uint32) GgSlotTicket(word) == ticket)
			FailSlot(slot, GgSlotTicket(word), GG_SLOT_QUEUED, GG_REASON_NO_SERVICE);
	}
	for (uint32 i = 0; i < gg_service->nslots; i++)
	{
		GgSlot	   *slot = &gg_service->slots[i];

		if (gg_service->devices[slot->device] == device &&
			GgSlotStateOf(pg_atomic_read_u64(&slot->word)) == GG_SLOT_RUNNING)
			Wake(slot);
	}
}
