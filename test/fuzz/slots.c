/*
 * slots.c
 *		Requests in shared memory: whatever a backend wrote there, the worker of a device answers
 *		or refuses it, and writes nowhere but into the answer.  This process is the worker.
 */
#include "fuzz.h"

#include "storage/proc.h"
#include "utils/memutils.h"

#include "service/shared/ring.h"
#include "service/worker/worker.h"

#define NODES		64
#define DIMENSIONS	4
#define DEGREE		8
#define PIVOTS		4
#define SERIAL		7
#define SLOTS		3			/* with requests of an input */

static GgWorker worker;
static GgDevice *device;
static char *before;			/* the region, but for what loads bring */
static Size compared;			/* bytes of it */
static uint64 ticket;

static gg_index *
make_index(gg_metric metric)
{
	gg_shape	shape = {.capacity = NODES, .dim = DIMENSIONS, .element = GG_ELEMENT_F32,
		.metric = metric, .degree = DEGREE, .npivots = PIVOTS, .rows = NODES, .words = 1};
	float		rows[NODES][DIMENSIONS];
	uint32		edges[NODES][DEGREE];
	uint32		pivots[PIVOTS][1 + GG_PIVOT_DEGREE];
	uint64		heads[NODES];
	int64		words[NODES];
	gg_index   *index;

	for (uint32 i = 0; i < NODES; i++)
	{
		GgTidEntry	entry = {.nulls = 0};

		for (uint32 d = 0; d < DIMENSIONS; d++)
			rows[i][d] = (float) ((i * 7 + d * 13) % 19) + 1;
		for (uint32 e = 0; e < DEGREE; e++)
			edges[i][e] = (i + 1 + e * e) % NODES;
		ItemPointerSet(&entry.tid, i, 1);
		memcpy(&heads[i], &entry, sizeof(entry));
		words[i] = i;
	}
	for (uint32 p = 0; p < PIVOTS; p++)
	{
		pivots[p][0] = p * NODES / PIVOTS;
		for (uint32 e = 0; e < GG_PIVOT_DEGREE; e++)
			pivots[p][1 + e] = e < PIVOTS - 1 ? (p + 1 + e) % PIVOTS : GG_NO_NODE;
	}
	if (worker.engine->index_create(&shape, &index).code != GG_OK ||
		worker.engine->index_write(index, GG_PART_ROWS, 0, rows, sizeof(rows)).code != GG_OK ||
		worker.engine->index_write(index, GG_PART_ADJACENCY, 0, edges,
								   sizeof(edges)).code != GG_OK ||
		worker.engine->index_write(index, GG_PART_PIVOTS, 0, pivots,
								   sizeof(pivots)).code != GG_OK ||
		worker.engine->index_write(index, GG_PART_TIDS, 0, heads, sizeof(heads)).code != GG_OK ||
		worker.engine->index_write(index, GG_PART_FILTERS, 0, words, sizeof(words)).code != GG_OK ||
		worker.engine->index_finish(index, NODES, NULL).code != GG_OK)
		elog(ERROR, "no index");
	return index;
}

/* Two residents of three lists each: two segments, the second of which may be empty; a delta. */
static void
start(void)
{
	gg_serve_layout layout;
	gg_status	status;

	if (gg_service == NULL)
		elog(ERROR, "gpugraph is not preloaded");
	device = gg_service->devices[0];
	device->latch = MyLatch;
	worker.device = device;
	worker.engine = GgServiceOps();
	GgDispatchStart(&worker);
	GgDeviceLayout(device, &layout);
	status = worker.engine->serve_open(0, gg_service->region, gg_service->region_bytes, &layout,
									   &worker.server);
	if (status.code != GG_OK)
		elog(ERROR, "%s", status.message);
	GgDispatchServe(&worker);
	worker.versions = palloc0(gg_service->max_residents * sizeof(*worker.versions));
	worker.times = palloc0(gg_service->max_residents * sizeof(*worker.times));
	for (int e = 0; e < 2; e++)
	{
		GgResidentVersion *version = &worker.versions[e][0];

		version->live = true;
		version->serial = SERIAL;
		version->nlists = 3;
		version->lists[0] = make_index(e == 0 ? GG_METRIC_L2 : GG_METRIC_IP);
		version->lists[1] = e == 0 ? make_index(GG_METRIC_L2) : NULL;
		version->lists[2] = make_index(e == 0 ? GG_METRIC_L2 : GG_METRIC_IP);
		device->residents[e].state = GG_RESIDENT_READY;
		pg_atomic_write_u64(&device->residents[e].used, 1);
	}
	pg_atomic_write_u32(&device->nresidents, 2);
	pg_atomic_write_u32(&device->state, GG_DEVICE_UP);
	compared = device->staging - gg_service->region;
	before = MemoryContextAllocHuge(TopMemoryContext, compared);
}

/* A request as a backend makes it, which the input then changes. */
static void
write_request(Input *input, GgSlot *slot)
{
	gg_request *request = &slot->request;
	const uint8 form = take8(input);
	GgGroupTarget *targets;

	memset(request, 0, sizeof(*request));
	slot->procno = 0;
	slot->entry = GgPlaceOf(take8(input) % 3, 0);
	slot->serial = SERIAL + take8(input) / 250;
	slot->fault = GG_FAULT_NONE;
	slot->ntargets = 0;
	slot->chunk = -1;
	if (form & 1)
		slot->chunk = GgPoolTake(gg_service->pool, GgSlotOwner(slot));
	request->nsegments = 2;
	request->lists = take8(input) % 4;
	request->measured = take8(input) % 4;
	request->delta = (form & 2) != 0;
	request->count = form & 4 ? take8(input) % 4 : 1;
	request->dim = DIMENSIONS;
	request->params.itopk_size = 32;
	request->params.k = take8(input) % 40;
	request->params.mode = (gg_search_mode) (take8(input) % 6);
	if (form & 8)
	{
		request->matches = 8;
		request->measured = 3;
		request->params.k = take16(input);
		request->after = take8(input) % 2;
	}
	if ((form & 16) && slot->chunk >= 0)
	{
		gg_filter  *filter = &gg_service->chunks[slot->chunk].filter;

		memset(filter, 0, offsetof(gg_filter, values));
		request->filter = 8;
		request->tids = form & 64 ? 8 : 0;
		filter->nconditions = take8(input) % 3;
		filter->nvalues = 2;
		filter->values[0] = 3;
		filter->values[1] = 40;
		filter->ntids = request->tids != 0 ? take16(input) : 0;
		for (uint32 i = 0; i < filter->nconditions; i++)
			filter->conditions[i] = (gg_condition) {.kind = 1 + take8(input) % 5, .nvalues = 2};
	}
	if (form & 32)
		slot->ntargets = slot->chunk < 0 ? take8(input) : take16(input);
	if (slot->chunk >= 0 || slot->ntargets <= GG_SLOT_TARGETS)
	{
		targets = GgSlotTargets(slot);
		for (uint32 i = 0; i < Min(slot->ntargets, 8); i++)
			targets[i] = (GgGroupTarget) {.entry = GgPlaceOf(take8(input) % 3, 0),
				.serial = SERIAL, .list = take8(input) % 5, .measured = take8(input) % 2};
	}
	(void) GgPlaceRequest(slot, request->tids != 0 ?
						  gg_service->chunks[slot->chunk].filter.ntids : 0, request);
}

/* Bytes of the slot from its first field of the query on, or of its chunk. */
static void
change_request(Input *input, GgSlot *slot)
{
	for (int changes = take8(input) % 6; changes > 0; changes--)
	{
		const uint8 where = take8(input);
		const uint16 offset = take16(input);
		const Size	bytes = take8(input) % 8 + 1;
		char	   *to = (char *) slot;
		Size		from = offsetof(GgSlot, entry);
		Size		end = offsetof(GgSlot, reason);

		if ((where & 1) && slot->chunk >= 0 &&
			GgPoolIsOwner(gg_service->pool, slot->chunk, GgSlotOwner(slot)))
		{
			to = (char *) &gg_service->chunks[slot->chunk];
			from = 0;
			end = where & 2 ? sizeof(GgChunk) - bytes : offsetof(gg_filter, tids);
		}
		from += offset % (end - from);
		take(input, to + from, Min(bytes, end - from));
	}
	/* what only tests set: a worker that rests or ends */
	slot->fault = GG_FAULT_NONE;
	slot->procno = 0;
}

/* Is this byte of the region one of a slot of the input, or of its chunk?  Then where that ends. */
static Size
end_of_own(const int *chunks, Size at)
{
	for (int i = 0; i < SLOTS; i++)
	{
		Size		slot = (char *) &device->slots[i] - gg_service->region;
		Size		chunk = (char *) &gg_service->chunks[Max(chunks[i], 0)] - gg_service->region;

		if (at >= slot && at < slot + sizeof(GgSlot))
			return slot + sizeof(GgSlot);
		if (chunks[i] >= 0 && at >= chunk && at < chunk + sizeof(GgChunk))
			return chunk + sizeof(GgChunk);
	}
	return 0;
}

/* Has anything been written but slots of the input and their chunks? */
static void
compare(const int *chunks)
{
	const char *now = gg_service->region;

	for (Size at = 0; at < compared;)
	{
		Size		end = end_of_own(chunks, at);

		if (end > 0)
			at = end;
		else if (at % 4096 == 0 && at + 4096 <= compared &&
				 memcmp(now + at, before + at, 4096) == 0)
			at += 4096;
		else if (now[at] != before[at])
			wrong("byte %zu of the region was written", at);
		else
			at++;
	}
}

static void
turn(void *arg)
{
	for (int i = 0; i < 100 && GgDispatchTurn(&worker); i++)
		;
}

static void
one(Input *input)
{
	const int	n = take8(input) % SLOTS + 1;
	int			chunks[SLOTS] = {-1, -1, -1};
	bool		given_up[SLOTS];

	ticket++;
	for (int i = 0; i < n; i++)
	{
		write_request(input, &device->slots[i]);
		chunks[i] = device->slots[i].chunk;
	}
	for (int i = 0; i < n; i++)
		change_request(input, &device->slots[i]);
	memcpy(before, gg_service->region, compared);
	for (int i = 0; i < n; i++)
	{
		given_up[i] = take8(input) % 8 == 1;
		pg_atomic_write_u64(&device->slots[i].word,
							GgSlotWord(ticket, given_up[i] ? GG_SLOT_ABANDONED : GG_SLOT_QUEUED));
		pg_atomic_write_u32(&device->slots[i].sleeping, 0);
		(void) GgRingPush(device->ring, i, (uint32) ticket);
	}
	if (!tried(turn, NULL))
		wrong("a worker must not raise errors");
	if (pg_atomic_read_u32(&device->state) != GG_DEVICE_UP)
		wrong("the device is down");
	compare(chunks);
	for (int i = 0; i < n; i++)
	{
		GgSlot	   *slot = &device->slots[i];
		GgSlotState state = GgSlotStateOf(pg_atomic_read_u64(&slot->word));

		if (given_up[i] ? state != GG_SLOT_FREE :
			state != GG_SLOT_RUNNING && state != GG_SLOT_FAILED)
			wrong("slot %d is in state %d", i, state);
		(void) GgPoolGiveBack(gg_service->pool, chunks[i], GgSlotOwner(slot));
		pg_atomic_write_u64(&slot->word, GgSlotWord(ticket, GG_SLOT_FREE));
	}
	for (int e = 0; e < 2; e++)
		if (worker.versions[e][0].pins != 0)
			wrong("resident %d is still pinned", e);
}

const Target fuzz_slots = {"slots", start, one};
