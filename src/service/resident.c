/*
 * resident.c
 *		Which indexes a device holds: the worker's side.
 *
 * All is done by the worker's main thread in GgResidentWork(), which never waits: every turn looks at the table, moves on what
 * can be moved, and leaves the rest for the next turn.  Copies, allocations and frees of device memory are the upload thread's
 * (upload.c).  How an entry gets its copy is the loads' affair (resident_load.c): this file owns the copies that are there, the
 * memory that they may take and who makes room for whom, what was dropped, and the list for gpugraph.autoprewarm.
 *
 * A copy is the list of an index's gg_index handles, one a segment and one for the delta.  A refresh makes a second copy of
 * the entry, which takes over the segments that both have and replaces the first: queries that were sent to
 * the first are still answered from it.  So each entry has two places for copies, used in turn.
 *
 * Memory: gg_used_bytes counts copies and what loads under way have been granted; a load is granted its memory only while the
 * sum stays under gpugraph.device_memory.  Room is made by evicting what was used longest ago, but nothing that has not
 * yet had GG_REST times its load time on the device, or indexes that together do not fit would push each other out all the
 * time and none would ever answer.  gpugraph_prewarm() may when a superuser, or from 17 on a
 * member of pg_maintain, calls it; nobody else decides for others.
 *
 * What was dropped: this process reads no catalogs.  Every SWEEP_MS it looks whether the files of what it
 * holds are there still; DROP, TRUNCATE, REINDEX and DROP DATABASE remove or truncate them when they commit, also in recovery.
 * A copy that lingers can answer nobody, since no relation has its locator and instance any more.
 */
#include "service/resident.h"

#include <sys/stat.h>
#include <time.h>

#include "utils/memutils.h"

#define TICK_MS			500		/* idle: what nobody wakes us for */
#define BUSY_TICK_MS	10		/* with loads under way, or something to be closed */
#define SWEEP_MS		2000
#define SAVE_MS			60000

static GgDevice *device = NULL;
static int	device_number;		/* in gg_service->devices */
static const gg_engine *engine;
static GgUpload *upload;
GgCopy		(*gg_copies)[2];
uint64		gg_used_bytes;
static uint64 total_bytes;
static bool busy;
bool		gg_residents_changed;
static int64 next_tick_ms,
			next_sweep_ms,
			next_save_ms;

static int64
NowMs(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

const char *
GgFormatBytes(char *buffer, Size size, uint64 bytes)
{
	if (bytes < UINT64CONST(10) << 20)
		snprintf(buffer, size, UINT64_FORMAT " kB", (bytes + 1023) >> 10);
	else
		snprintf(buffer, size, UINT64_FORMAT " MB", (bytes + (1 << 20) - 1) >> 20);
	return buffer;
}

uint64
GgLimitBytes(void)
{
	if (gg_device_memory_mb > 0)
		return (uint64) gg_device_memory_mb << 20;
	return total_bytes > 0 ? total_bytes / 10 * 9 : PG_INT64_MAX;
}

void
GgSetUsed(uint64 bytes)
{
	gg_used_bytes = bytes;
	device->stats.resident_bytes = bytes;
}

/* Name of an entry or load in the log. */
const char *
GgNameOf(char *buffer, Size size, const char *name, Oid database, Oid relation)
{
	if (name[0] != '\0')
		snprintf(buffer, size, "index \"%s\" (%u) of database %u", name, relation, database);
	else
		snprintf(buffer, size, "index %u of database %u", relation, database);
	return buffer;
}

/* ---- copies ------------------------------------------------------------- */

static void
CloseCopy(GgCopy *copy)
{
	for (uint32 i = 0; i < copy->nlists; i++)
		if (copy->owned[i])
			GgUploadClose(upload, copy->lists[i]);
	GgSetUsed(gg_used_bytes - copy->bytes);
	memset(copy, 0, sizeof(GgCopy));
}

gg_index **
GgResidentPin(uint32 entry, uint32 serial, uint32 *nlists)
{
	GgCopy	   *copy;

	if (entry >= 2 * GG_MAX_RESIDENT || gg_copies == NULL)
		return NULL;
	copy = &gg_copies[entry % GG_MAX_RESIDENT][entry / GG_MAX_RESIDENT];
	if (!copy->live || copy->serial != serial ||
		device->residents[entry % GG_MAX_RESIDENT].state != GG_RESIDENT_READY)
		return NULL;
	copy->pins++;
	*nlists = copy->nlists;
	return copy->lists;
}

void
GgResidentUnpin(uint32 entry)
{
	GgCopy	   *copy = &gg_copies[entry % GG_MAX_RESIDENT][entry / GG_MAX_RESIDENT];

	Assert(copy->pins > 0);
	if (--copy->pins == 0 &&
		(copy->replaced || device->residents[entry % GG_MAX_RESIDENT].state == GG_RESIDENT_EVICTING))
		pg_atomic_write_u32(&device->work, 1);
}

/* Close what was replaced and what is being evicted, as far as it is not pinned. */
static void
CloseCopies(int64 now_ms)
{
	uint32		n = pg_atomic_read_u32(&device->nresidents);

	for (uint32 entry = 0; entry < n; entry++)
	{
		GgResident *resident = &device->residents[entry];
		GgCopy	   *pair = gg_copies[entry];
		bool		loading = false;

		for (int c = 0; c < 2; c++)
		{
			if (!pair[c].replaced)
				continue;
			if (pair[c].pins == 0 && now_ms - pair[c].replaced_ms >= GG_REPLACED_MS)
				CloseCopy(&pair[c]);
			else
				busy = true;
		}
		if (resident->state != GG_RESIDENT_EVICTING)
			continue;
		for (int i = 0; i < GG_MAX_LOADS; i++)
		{
			GgLoadJob  *job = &device->loads_under_way[i];
			GgLoadState state = GgLoadWordState(GgLoadWord(job));

			loading |= state != GG_LOAD_FREE && state != GG_LOAD_ENDED && job->entry == entry && job->use == resident->use;
		}
		if (loading || pair[0].pins > 0 || pair[1].pins > 0)
		{
			busy = true;
			continue;
		}
		for (int c = 0; c < 2; c++)
			if (pair[c].live)
				CloseCopy(&pair[c]);
		LWLockAcquire(device->lock, LW_EXCLUSIVE);
		resident->state = GG_RESIDENT_FREE;
		/* what look-ups go through need not stay as long as it once was */
		for (n = pg_atomic_read_u32(&device->nresidents); n > 0 && device->residents[n - 1].state == GG_RESIDENT_FREE; n--)
			;
		pg_atomic_write_u32(&device->nresidents, n);
		LWLockRelease(device->lock);
		device->stats.evictions++;
		gg_residents_changed = true;
	}
}

/* ---- room ----------------------------------------------------------------- */

/* Memory that goes without anything more being evicted. */
uint64
GgOutgoingBytes(void)
{
	uint64		bytes = 0;

	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
		for (int c = 0; c < 2; c++)
			if (gg_copies[entry][c].live &&
				(gg_copies[entry][c].replaced || device->residents[entry].state == GG_RESIDENT_EVICTING))
				bytes += gg_copies[entry][c].bytes;
	return bytes;
}

static void Sweep(void);

static bool
MayEvict(uint32 entry, const GgLoadJob *job, uint64 now_us)
{
	const GgResident *resident = &device->residents[entry];

	if (resident->state != GG_RESIDENT_READY || entry == job->entry)
		return false;
	return job->forced || GgHasRested(resident, now_us);
}

/*
 * Make room for bytes more, by evicting what was used longest ago.  Nothing is evicted in vain: first it is seen whether all
 * that may go would be enough.  With 0 bytes the limit itself is to be kept to, and all that can be done for that is done.
 */
GgRoom
GgMakeRoom(const GgLoadJob *job, uint64 bytes)
{
	uint64		limit = GgLimitBytes();
	uint64		outgoing;
	uint64		evictable = 0;
	uint64		now_us = GgNowMicros();
	uint32		n = pg_atomic_read_u32(&device->nresidents);
	char		what[160],
				whom[160],
				size[32];

	if (gg_used_bytes + bytes <= limit)
		return GG_ROOM_THERE;
	Sweep();					/* what was dropped goes first */
	outgoing = GgOutgoingBytes();
	if (gg_used_bytes + bytes <= limit + outgoing)
		return GG_ROOM_SOON;
	for (uint32 entry = 0; entry < n; entry++)
		if (MayEvict(entry, job, now_us))
			evictable += gg_copies[entry][device->residents[entry].copy].bytes;
	if (bytes > 0 && gg_used_bytes + bytes > limit + outgoing + evictable)
		return GG_ROOM_NONE;

	while (gg_used_bytes + bytes > limit + outgoing)
	{
		int			victim = -1;
		uint64		victim_used = 0;

		for (uint32 entry = 0; entry < n; entry++)
		{
			uint64		used = pg_atomic_read_u64(&device->residents[entry].used);

			if (MayEvict(entry, job, now_us) && (victim < 0 || used < victim_used))
			{
				victim = entry;
				victim_used = used;
			}
		}
		if (victim < 0)
			return GG_ROOM_NONE;
		outgoing += gg_copies[victim][device->residents[victim].copy].bytes;
		ereport(LOG,
				(errmsg("gpugraph device %d: %s, %s, makes room for %s", device->number,
						GgNameOf(what, sizeof(what), device->residents[victim].name, device->residents[victim].database,
								 device->residents[victim].relation),
						GgFormatBytes(size, sizeof(size), gg_copies[victim][device->residents[victim].copy].bytes),
						GgNameOf(whom, sizeof(whom), job->name, job->database, job->relation))));
		GgForgetEntry(device, victim, device->residents[victim].use);
	}
	return GG_ROOM_SOON;
}

/* gpugraph.device_memory was lowered: evict until it is kept to. */
static void
KeepToLimit(void)
{
	GgLoadJob	nobody;

	memset(&nobody, 0, sizeof(nobody));
	nobody.entry = GG_MAX_RESIDENT;
	nobody.forced = true;
	strlcpy(nobody.name, "nothing", sizeof(nobody.name));
	(void) GgMakeRoom(&nobody, 0);
}

static void
CheckLimit(void)
{
	static bool exceeded = false;	/* what loads under way were granted under a higher limit counts once they are through */
	uint64		limit = GgLimitBytes();

	if (exceeded)
	{
		KeepToLimit();
		exceeded = gg_used_bytes > limit;
	}
	if (limit == device->limit_bytes)
		return;
	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	device->limit_bytes = limit;
	/* what did not fit may fit now */
	for (uint32 entry = 0; entry < GG_MAX_RESIDENT; entry++)
		if (device->residents[entry].state == GG_RESIDENT_FAILED && device->residents[entry].reason == GG_REASON_MEMORY)
			device->residents[entry].retry_us = 0;
	LWLockRelease(device->lock);
	KeepToLimit();
	exceeded = gg_used_bytes > limit;
}

/* ---- what was dropped -------------------------------------------------------------- */

static bool
FileIsGone(const GgRelFileLocator *locator)
{
	char		path[MAXPGPATH];
	struct stat st;

	GgMainForkPath(*locator, path, sizeof(path));
	if (stat(path, &st) != 0)
		return errno == ENOENT;
	/* the first file of a dropped relation stays, empty, up to the next checkpoint */
	return st.st_size == 0;
}

static void
Sweep(void)
{
	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
	{
		GgResident *resident = &device->residents[entry];
		GgRelFileLocator locator;
		uint32		use;
		char		name[160];

		LWLockAcquire(device->lock, LW_SHARED);
		locator = resident->key.locator;
		use = resident->state == GG_RESIDENT_READY || resident->state == GG_RESIDENT_FAILED ? resident->use : 0;
		LWLockRelease(device->lock);
		if (use == 0 || !FileIsGone(&locator))
			continue;
		ereport(DEBUG1,
				(errmsg_internal("gpugraph device %d: %s was dropped", device->number,
								 GgNameOf(name, sizeof(name), resident->name, resident->database, resident->relation))));
		GgForgetEntry(device, entry, use);
	}
}

/* ---- the list for gpugraph.autoprewarm ------------------------------------------------ */

/* used may change while we sort: then the order is not quite theirs, no more, since pg_qsort() stays within its array in any case. */
static int
CompareUsed(const void *a, const void *b)
{
	uint64		x = pg_atomic_read_u64(&device->residents[*(const int *) a].used);
	uint64		y = pg_atomic_read_u64(&device->residents[*(const int *) b].used);

	return x < y ? 1 : x > y ? -1 : 0;
}

/* What is READY, by its last use. */
static int
ListResidents(GgPreloadItem *items)
{
	int			order[GG_MAX_RESIDENT];
	int			n = 0;

	LWLockAcquire(device->lock, LW_SHARED);
	for (int i = 0; i < GG_MAX_RESIDENT; i++)
		if (device->residents[i].state == GG_RESIDENT_READY)
			order[n++] = i;
	qsort(order, n, sizeof(int), CompareUsed);
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
Save(void)
{
	GgPreloadItem items[GG_MAX_RESIDENT];
	int			n;

	if (!gg_residents_changed)
		return;
	gg_residents_changed = false;
	n = ListResidents(items);
	GgPreloadWrite(device_number, items, n);
}

static void
WantItems(const GgPreloadItem *items, int nitems)
{
	for (int i = 0; i < nitems; i++)
	{
		int			entry;

		if (FileIsGone(&items[i].locator))
			continue;
		LWLockAcquire(device->lock, LW_EXCLUSIVE);
		entry = GgTakeEntry(device, false);
		if (entry >= 0)
		{
			device->residents[entry].database = items[i].database;
			device->residents[entry].relation = items[i].relation;
			device->residents[entry].key.locator = items[i].locator;
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
 * The table may be what an earlier worker left.  Its memory is gone with its context; the list of what it held is
 * what we load again, else the list on disk.
 */
void
GgResidentStart(GgDevice *which, const gg_engine *with)
{
	GgPreloadItem items[GG_MAX_RESIDENT];
	int			nitems;
	gg_device_info info;
	gg_status	status;

	device = which;
	engine = with;
	for (device_number = 0; gg_service->devices[device_number] != which; device_number++)
		;
	gg_copies = MemoryContextAllocZero(TopMemoryContext, GG_MAX_RESIDENT * sizeof(*gg_copies));
	nitems = ListResidents(items);
	if (nitems == 0)
		nitems = GgPreloadRead(device_number, items, GG_MAX_RESIDENT);

	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	for (int i = 0; i < GG_MAX_RESIDENT; i++)
		device->residents[i].state = GG_RESIDENT_FREE;
	pg_atomic_write_u32(&device->nresidents, 0);
	for (int i = 0; i < GG_MAX_LOADS; i++)
	{
		uint64		word = pg_atomic_read_u64(&device->loads_under_way[i].word);

		pg_atomic_write_u64(&device->loads_under_way[i].word,
							((uint64) (uint32) (GgLoadWordSerial(word) + 1) << 8) | GG_LOAD_FREE);
	}
	for (int i = 0; i < GG_STAGE_CHUNKS; i++)
		if (pg_atomic_read_u32(&device->chunks[i].state) != GG_CHUNK_FILLING)
			pg_atomic_write_u32(&device->chunks[i].state, GG_CHUNK_FREE);
	LWLockRelease(device->lock);

	status = engine->device_info(device->number, &info);
	total_bytes = status.code == GG_OK ? info.total_bytes : 0;
	device->limit_bytes = GgLimitBytes();
	GgSetUsed(0);

	upload = GgUploadStart(device, engine, Wake, device);
	if (upload == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not start the upload thread of gpugraph device %d: %m", device->number)));
	GgLoadsStart(device, device_number, engine, upload);

	if (gg_autoprewarm)
		WantItems(items, nitems);
	gg_residents_changed = nitems > 0;
	next_tick_ms = next_sweep_ms = 0;
	next_save_ms = NowMs() + SAVE_MS;
	pg_atomic_write_u32(&device->work, 1);
}

/* Also when the worker ends on an error: nothing here throws. */
void
GgResidentStop(void)
{
	if (device == NULL || upload == NULL)
		return;
	Save();
	GgUploadStop(upload);
	upload = NULL;
	for (int i = 0; i < GG_MAX_RESIDENT; i++)
		for (int c = 0; c < 2; c++)
			for (uint32 l = 0; l < gg_copies[i][c].nlists; l++)
				if (gg_copies[i][c].owned[l])
					engine->index_close(gg_copies[i][c].lists[l]);
	memset(gg_copies, 0, GG_MAX_RESIDENT * sizeof(*gg_copies));
	GgSetUsed(0);
}

static void
ResetStats(void)
{
	GgDeviceStats *stats = &device->stats;

	/* the counters lie before restarts */
	memset(stats, 0, offsetof(GgDeviceStats, restarts));
	stats->reset_at = GetCurrentTimestamp();
	pg_write_barrier();
	pg_atomic_write_u32(&device->reset, 0);
}

void
GgResidentWork(void)
{
	int64		now_ms = NowMs();

	if (pg_atomic_read_u32(&device->work) == 0 && now_ms < next_tick_ms)
		return;
	pg_atomic_write_u32(&device->work, 0);
	pg_memory_barrier();

	if (pg_atomic_read_u32(&device->reset) != 0)
		ResetStats();
	CheckLimit();
	busy = GgLoadsWork(now_ms);
	CloseCopies(now_ms);
	if (now_ms >= next_sweep_ms)
	{
		Sweep();
		next_sweep_ms = now_ms + SWEEP_MS;
	}
	if (now_ms >= next_save_ms)
	{
		Save();
		next_save_ms = now_ms + SAVE_MS;
	}
	next_tick_ms = now_ms + (busy ? BUSY_TICK_MS : TICK_MS);
}

long
GgResidentTimeout(void)
{
	int64		left = next_tick_ms - NowMs();

	return pg_atomic_read_u32(&device->work) != 0 || left < 0 ? 0 : (long) left;
}
