/*
 * resident.c
 *		Which indexes a device holds: the worker's side.
 *
 * The worker's main thread does all of this in GgResidentWork(), which never waits: every turn
 * looks at the table, moves on what can be moved, and leaves the rest for the next turn.  The
 * upload thread makes all copies, allocations and frees of device memory (upload.c).  Loads are in
 * resident_load.c, memory and eviction in memory.c.  This file owns the versions that are there,
 * and the list of what was here before.
 *
 * A version of a resident is the list of an index's gg_index handles, one per segment and one for
 * the delta.  A refresh makes a second version of the entry, which takes over the segments that
 * both have and replaces the first.  Queries that were sent to the first are still answered from
 * it.  So each entry has two places for versions, used in turn.
 */
#include "service/worker/worker.h"

#include <time.h>

#include "utils/memutils.h"

#define TICK_MS			500		/* idle: for what happens without a wake-up */
#define BUSY_TICK_MS	2		/* with loads under way, or something to be closed */
#define SWEEP_MS		2000
#define GROW_MS			500
#define SAVE_MS			60000

static int64
NowMs(void)
{
	return (int64) (GgNowMicros() / 1000);
}

/* ---- versions ------------------------------------------------------------- */

static void
CloseVersion(GgWorker *worker, GgResidentVersion *version)
{
	for (uint32 i = 0; i < version->nlists; i++)
		if (version->owned[i])
			GgUploadClose(worker->upload, version->lists[i]);
	GgSetUsed(worker, worker->used_bytes - version->bytes);
	memset(version, 0, sizeof(GgResidentVersion));
}

/* Does a load still name this entry? */
static bool
IsLoading(GgDevice *device, uint32 entry)
{
	for (int i = 0; i < GG_MAX_LOADS; i++)
	{
		GgLoadJob  *job = &device->loads_under_way[i];
		GgLoadState state = GgWordState(GgReadWord(&job->word));

		if (state != GG_LOAD_FREE && state != GG_LOAD_ENDED && job->entry == entry &&
			job->use == device->residents[entry].use)
			return true;
	}
	return false;
}

static void
FreeEntry(GgWorker *worker, uint32 entry)
{
	GgDevice   *device = worker->device;
	uint32		n;

	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	device->residents[entry].state = GG_RESIDENT_FREE;
	/* shorten the part of the table that look-ups go through */
	n = pg_atomic_read_u32(&device->nresidents);
	while (n > 0 && device->residents[n - 1].state == GG_RESIDENT_FREE)
		n--;
	pg_atomic_write_u32(&device->nresidents, n);
	LWLockRelease(device->lock);
	device->stats.evictions++;
	worker->residents_changed = true;
}

/* May queries that were posted just now still name a version that was replaced? */
static bool
MayBeNamed(const GgResidentVersion *version, GgResident *resident, int64 now_ms)
{
	uint64		flipped_us = pg_atomic_read_u64(&resident->flipped_us);
	int64		last_ms = version->replaced_ms;

	if (version->ahead)
		last_ms = flipped_us > 0 ? (int64) (flipped_us / 1000) : last_ms + GG_AHEAD_MS;
	return now_ms - last_ms < GG_REPLACED_MS;
}

/* Close versions that were replaced or are being evicted, unless they are pinned. */
static void
CloseVersions(GgWorker *worker, int64 now_ms)
{
	GgDevice   *device = worker->device;

	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
	{
		GgResidentVersion *pair = worker->versions[entry];

		for (int v = 0; v < 2; v++)
		{
			if (!pair[v].replaced)
				continue;
			if (pair[v].pins == 0 && !MayBeNamed(&pair[v], &device->residents[entry], now_ms))
				CloseVersion(worker, &pair[v]);
			else
				worker->busy = true;
		}
		if (device->residents[entry].state != GG_RESIDENT_EVICTING)
			continue;
		if (IsLoading(device, entry) || pair[0].pins > 0 || pair[1].pins > 0)
		{
			worker->busy = true;
			continue;
		}
		for (int v = 0; v < 2; v++)
			if (pair[v].live)
				CloseVersion(worker, &pair[v]);
		FreeEntry(worker, entry);
	}
}

/* ---- the list of what was here before a restart ------------------------------------------ */

/*
 * Times of use may change during the sort.  Then the order is not exact; pg_qsort() stays within
 * its array in any case.
 */
static int
CompareUsed(const void *a, const void *b, void *arg)
{
	GgResident *residents = arg;
	uint64		x = pg_atomic_read_u64(&residents[*(const uint32 *) a].used);
	uint64		y = pg_atomic_read_u64(&residents[*(const uint32 *) b].used);

	return x < y ? 1 : x > y ? -1 : 0;
}

/*
 * List what is READY, last used first.  A part is left out: the copy that is no part has it loaded
 * again, as far as it is wanted then.
 */
static int
ListResidents(GgWorker *worker, GgPreloadItem *items)
{
	GgDevice   *device = worker->device;
	uint32	   *order = worker->order;
	int			n = 0;

	LWLockAcquire(device->lock, LW_SHARED);
	for (uint32 i = 0; i < gg_service->max_residents; i++)
		if (device->residents[i].state == GG_RESIDENT_READY && !device->residents[i].part)
			order[n++] = i;
	qsort_arg(order, n, sizeof(uint32), CompareUsed, device->residents);
	for (int i = 0; i < n; i++)
	{
		const GgResident *resident = &device->residents[order[i]];

		items[i].database = resident->database;
		items[i].relation = resident->relation;
		items[i].locator = resident->key.locator;
	}
	LWLockRelease(device->lock);
	return n;
}

static void
Save(GgWorker *worker)
{
	if (!worker->residents_changed)
		return;
	worker->residents_changed = false;
	GgPreloadWrite(worker->list, worker->items, ListResidents(worker, worker->items));
}

static void
WantItems(GgDevice *device, const GgPreloadItem *items, int nitems)
{
	for (int i = 0; i < nitems; i++)
	{
		int			entry;

		if (GgFileIsGone(&items[i].locator))
			continue;
		LWLockAcquire(device->lock, LW_EXCLUSIVE);
		entry = GgTakeEntry(device, false);
		if (entry >= 0)
		{
			device->residents[entry].database = items[i].database;
			device->residents[entry].relation = items[i].relation;
			device->residents[entry].key.locator = items[i].locator;
			GgTagEntry(device, entry);
			device->residents[entry].state = GG_RESIDENT_WANTED;
		}
		LWLockRelease(device->lock);
	}
}

/* ---- the worker's life ---------------------------------------------------------------- */

static void
Wake(void *arg)
{
	/* sets a latch, which is async-signal-safe and so safe in a thread */
	GgResidentNotify(arg);
}

/*
 * Free what an earlier worker left: entries, loads, chunks, the graph job.  Its device memory went
 * with it.
 */
static void
EmptyTable(GgWorker *worker)
{
	GgDevice   *device = worker->device;

	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	for (uint32 i = 0; i < gg_service->max_residents; i++)
		device->residents[i].state = GG_RESIDENT_FREE;
	pg_atomic_write_u32(&device->nresidents, 0);
	for (int i = 0; i < GG_MAX_LOADS; i++)
	{
		uint64		word = pg_atomic_read_u64(&device->loads_under_way[i].word);
		uint32		serial = GgWordSerial(word) + 1;

		pg_atomic_write_u64(&device->loads_under_way[i].word,
							GgWordOf(serial, GG_LOAD_FREE));
	}
	for (int i = 0; i < GG_STAGE_CHUNKS; i++)
		if (pg_atomic_read_u32(&device->chunks[i].state) != GG_CHUNK_FILLING)
			pg_atomic_write_u32(&device->chunks[i].state, GG_CHUNK_FREE);
	GgGraphStart(worker);
	LWLockRelease(device->lock);
}

/* Zeroed, so many bytes for each entry of the table. */
static void *
AllocPerEntry(Size bytes)
{
	return MemoryContextAllocExtended(TopMemoryContext, gg_service->max_residents * bytes,
									  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

/* Loads again what an earlier worker's table holds or, where that is empty, what the list on disk
 * names. */
void
GgResidentStart(GgWorker *worker)
{
	GgDevice   *device = worker->device;
	int			nitems;
	gg_device_info info = {0};
	gg_status	status;

	worker->versions = AllocPerEntry(sizeof(*worker->versions));
	worker->times = AllocPerEntry(sizeof(*worker->times));
	worker->items = AllocPerEntry(sizeof(*worker->items));
	worker->order = AllocPerEntry(sizeof(*worker->order));
	status = worker->engine->device_info(device->ordinal, &info);
	GgPreloadName(device, &info, worker->list);
	nitems = ListResidents(worker, worker->items);
	if (nitems == 0)
		nitems = GgPreloadRead(worker->list, worker->number, worker->items,
							   (int) gg_service->max_residents);
	EmptyTable(worker);

	worker->total_bytes = status.code == GG_OK ? info.total_bytes : 0;
	device->limit_bytes = GgLimitBytes(worker);
	GgSetUsed(worker, 0);

	worker->graph.device = device;
	worker->graph.engine = worker->engine;
	worker->graph.wake = Wake;
	worker->graph.arg = device;
	worker->upload = GgUploadStart(device, worker->engine, Wake, device);
	if (worker->upload == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not start the upload thread of gpugraph device %d: %m",
						device->number)));

	if (gg_autoprewarm && GgIsEnabled(GG_AUTOPREWARM))
		WantItems(device, worker->items, nitems);
	worker->residents_changed = nitems > 0;
	worker->next_tick_ms = worker->next_sweep_ms = worker->next_grow_ms = 0;
	worker->next_cool_ms = NowMs() + GG_COOL_MS;
	worker->next_save_ms = NowMs() + SAVE_MS;
	pg_atomic_write_u32(&device->work, 1);
}

/* Also when the worker ends on an error: nothing here throws. */
void
GgResidentStop(GgWorker *worker)
{
	if (worker->upload == NULL)
		return;
	Save(worker);
	GgGraphThreadJoin(&worker->graph, true);
	GgUploadStop(worker->upload);
	worker->upload = NULL;
	for (uint32 entry = 0; entry < gg_service->max_residents; entry++)
		for (int v = 0; v < 2; v++)
		{
			GgResidentVersion *version = &worker->versions[entry][v];

			for (uint32 l = 0; l < version->nlists; l++)
				if (version->owned[l])
					worker->engine->index_close(version->lists[l]);
		}
	memset(worker->versions, 0, gg_service->max_residents * sizeof(*worker->versions));
	GgSetUsed(worker, 0);
}

static void
ResetStats(GgDevice *device)
{
	GgDeviceStats *stats = &device->stats;

	/* the counters lie before the field restarts */
	memset(stats, 0, offsetof(GgDeviceStats, restarts));
	stats->reset_at = GetCurrentTimestamp();
	pg_write_barrier();
	pg_atomic_write_u32(&device->reset, 0);
}

void
GgResidentWork(GgWorker *worker)
{
	GgDevice   *device = worker->device;
	int64		now_ms = NowMs();

	if (pg_atomic_read_u32(&device->work) == 0 && now_ms < worker->next_tick_ms)
		return;
	pg_atomic_write_u32(&device->work, 0);
	pg_memory_barrier();

	if (pg_atomic_read_u32(&device->reset) != 0)
		ResetStats(device);
	GgCheckLimit(worker);
	worker->busy = false;
	GgLoadsWork(worker, now_ms);
	GgGraphWork(worker);
	CloseVersions(worker, now_ms);
	if (now_ms >= worker->next_sweep_ms)
	{
		GgSweepDropped(worker);
		worker->next_sweep_ms = now_ms + SWEEP_MS;
	}
	if (now_ms >= worker->next_cool_ms)
	{
		GgCoolDown(device);
		worker->next_cool_ms = now_ms + GG_COOL_MS;
	}
	if (now_ms >= worker->next_grow_ms)
	{
		GgGrow(worker);
		GgReplicate(worker);
		GgSpread(worker);
		worker->next_grow_ms = now_ms + GROW_MS;
	}
	if (now_ms >= worker->next_save_ms)
	{
		Save(worker);
		worker->next_save_ms = now_ms + SAVE_MS;
	}
	worker->next_tick_ms = now_ms + (worker->busy ? BUSY_TICK_MS : TICK_MS);
}

long
GgResidentTimeout(GgWorker *worker)
{
	int64		left = worker->next_tick_ms - NowMs();

	return pg_atomic_read_u32(&worker->device->work) != 0 || left < 0 ? 0 : (long) left;
}
