/*
 * resident.c
 *		Which indexes a device holds: the worker's side.
 *
 * All is done by the worker's main thread in GgResidentWork(), which never waits: every turn looks at the words of the loads
 * under way (resident.h) and at the table, moves on what can be moved, and leaves the rest for the next turn.  Copies,
 * allocations and frees of device memory are the upload thread's (upload.c); pages are read by loaders (loader.c).
 *
 * A copy is the list of an index's gg_index handles, one a segment and one for the delta.  A refresh makes a second copy of
 * the entry, which takes over the segments that both have and replaces the first: queries that were sent to
 * the first are still answered from it.  So each entry has two places for copies, used in turn.
 *
 * Memory: used_bytes counts copies and what loads under way have been granted; a load is granted its memory only while the
 * sum stays under gpugraph.device_memory.  Room is made by evicting what was used longest ago, but nothing that has not
 * yet had GG_REST times its load time on the device, or indexes that together do not fit would push each other out all the
 * time and none would ever answer.  gpugraph_prewarm() is told what it costs, and may.
 *
 * What was dropped: this process reads no catalogs.  Every SWEEP_MS it looks whether the files of what it
 * holds are there still; DROP, TRUNCATE, REINDEX and DROP DATABASE remove or truncate them when they commit, also in recovery.
 * A copy that lingers can answer nobody, since no relation has its locator and instance any more.
 */
#include "service/resident.h"

#include <ctype.h>
#include <sys/stat.h>
#include <time.h>

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/memutils.h"

#define TICK_MS			500		/* idle: what nobody wakes us for */
#define BUSY_TICK_MS	10		/* with loads under way, or something to be closed */
#define SWEEP_MS		2000
#define SAVE_MS			60000

/* When a load that failed is tried again: from 5 s to a minute; what is too large for the limit, after a minute. */
#define RETRY_MIN_MS	5000
#define RETRY_MAX_MS	60000
#define NO_ROOM_RETRY_MS 1000
#define QUIET_RETRY_MS	100

typedef struct Copy
{
	bool		live;
	bool		replaced;		/* goes once it is not pinned and no query can name it */
	uint32		serial;
	uint32		nlists;
	gg_index   *lists[GG_SERVE_MAX_LISTS];
	bool		owned[GG_SERVE_MAX_LISTS];	/* false: the copy that replaced this one has it */
	uint64		bytes;			/* of those owned */
	uint32		pins;
	int64		replaced_ms;
} Copy;

typedef struct LocalLoad
{
	BackgroundWorkerHandle *handle;
	uint64		bytes;			/* granted, and not yet a copy's */
	bool		evicted_more;	/* the device had less than the limit says: more was evicted once */
} LocalLoad;

static GgDevice *device = NULL;
static int	device_number;		/* in gg_service->devices */
static const gg_engine *engine;
static GgUpload *upload;
static Copy (*copies)[2];
static LocalLoad loads[GG_MAX_LOADS];
static uint64 used_bytes;
static uint64 total_bytes;
static bool busy;
static gg_status device_lost;	/* an upload's, GG_OK while there is none */
static bool changed;			/* since the list was saved */
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

static uint64
LimitBytes(void)
{
	if (gg_device_memory_mb > 0)
		return (uint64) gg_device_memory_mb << 20;
	return total_bytes > 0 ? total_bytes / 10 * 9 : PG_INT64_MAX;
}

static void
SetUsed(uint64 bytes)
{
	used_bytes = bytes;
	device->stats.resident_bytes = bytes;
}

/* Name of an entry or load in the log. */
static const char *
NameOf(char *buffer, Size size, const char *name, Oid database, Oid relation)
{
	if (name[0] != '\0')
		snprintf(buffer, size, "index \"%s\" (%u) of database %u", name, relation, database);
	else
		snprintf(buffer, size, "index %u of database %u", relation, database);
	return buffer;
}

/* ---- copies ------------------------------------------------------------- */

static void
CloseCopy(Copy *copy)
{
	for (uint32 i = 0; i < copy->nlists; i++)
		if (copy->owned[i])
			GgUploadClose(upload, copy->lists[i]);
	SetUsed(used_bytes - copy->bytes);
	memset(copy, 0, sizeof(Copy));
}

gg_index **
GgResidentPin(uint32 entry, uint32 serial, uint32 *nlists)
{
	Copy	   *copy;

	if (entry >= 2 * GG_MAX_RESIDENT || copies == NULL)
		return NULL;
	copy = &copies[entry % GG_MAX_RESIDENT][entry / GG_MAX_RESIDENT];
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
	Copy	   *copy = &copies[entry % GG_MAX_RESIDENT][entry / GG_MAX_RESIDENT];

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
		Copy	   *pair = copies[entry];
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
		changed = true;
	}
}

/* ---- room ----------------------------------------------------------------- */

typedef enum Room
{
	ROOM_THERE,
	ROOM_SOON,					/* something is on its way out */
	ROOM_NONE
} Room;

/* Memory that goes without anything more being evicted. */
static uint64
OutgoingBytes(void)
{
	uint64		bytes = 0;

	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
		for (int c = 0; c < 2; c++)
			if (copies[entry][c].live &&
				(copies[entry][c].replaced || device->residents[entry].state == GG_RESIDENT_EVICTING))
				bytes += copies[entry][c].bytes;
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
static Room
MakeRoom(const GgLoadJob *job, uint64 bytes)
{
	uint64		limit = LimitBytes();
	uint64		outgoing;
	uint64		evictable = 0;
	uint64		now_us = GgNowMicros();
	uint32		n = pg_atomic_read_u32(&device->nresidents);
	char		what[160],
				whom[160],
				size[32];

	if (used_bytes + bytes <= limit)
		return ROOM_THERE;
	Sweep();					/* what was dropped goes first */
	outgoing = OutgoingBytes();
	if (used_bytes + bytes <= limit + outgoing)
		return ROOM_SOON;
	for (uint32 entry = 0; entry < n; entry++)
		if (MayEvict(entry, job, now_us))
			evictable += copies[entry][device->residents[entry].copy].bytes;
	if (bytes > 0 && used_bytes + bytes > limit + outgoing + evictable)
		return ROOM_NONE;

	while (used_bytes + bytes > limit + outgoing)
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
			return ROOM_NONE;
		outgoing += copies[victim][device->residents[victim].copy].bytes;
		ereport(LOG,
				(errmsg("gpugraph device %d: %s, %s, makes room for %s", device->number,
						NameOf(what, sizeof(what), device->residents[victim].name, device->residents[victim].database,
							   device->residents[victim].relation),
						GgFormatBytes(size, sizeof(size), copies[victim][device->residents[victim].copy].bytes),
						NameOf(whom, sizeof(whom), job->name, job->database, job->relation))));
		GgForgetEntry(device, victim, device->residents[victim].use);
	}
	return ROOM_SOON;
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
	(void) MakeRoom(&nobody, 0);
}

static void
CheckLimit(void)
{
	static bool exceeded = false;	/* what loads under way were granted under a higher limit counts once they are through */
	uint64		limit = LimitBytes();

	if (exceeded)
	{
		KeepToLimit();
		exceeded = used_bytes > limit;
	}
	if (limit == device->limit_bytes)
		return;
	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	device->limit_bytes = limit;
	/* what did not fit may fit now */
	for (uint32 entry = 0; entry < GG_MAX_RESIDENT; entry++)
		if (device->residents[entry].state == GG_RESIDENT_FAILED && device->residents[entry].why == GG_CPU_MEMORY)
			device->residents[entry].retry_us = 0;
	LWLockRelease(device->lock);
	KeepToLimit();
	exceeded = used_bytes > limit;
}

/* ---- loads: from WANTED to a loader ------------------------------------------ */

/* Set why a load failed, unless somebody was first, and have it given up. */
static void
FailLoad(GgLoadJob *job, uint32 serial, GgWhy why, const char *error)
{
	if (job->error[0] == '\0' && !job->quiet)
	{
		job->why = why;
		strlcpy(job->error, error, sizeof(job->error));
	}
	GgLoadFlag(job, serial, GG_LOAD_ABORT | GG_LOAD_ORPHAN);
}

static void
StartLoader(int load)
{
	GgLoadJob  *job = &device->loads_under_way[load];
	uint32		serial = GgLoadWordSerial(GgLoadWord(job));
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	memset(&loads[load], 0, sizeof(LocalLoad));
	if (!GgStartLoader(device_number, load, serial, job->database, false, &loads[load].handle))
	{
		loads[load].handle = NULL;
		FailLoad(job, serial, GG_CPU_FAILED, "no background worker is free to load it: raise max_worker_processes");
	}
	MemoryContextSwitchTo(old);
}

static void
StartLoads(void)
{
	uint32		n = pg_atomic_read_u32(&device->nresidents);

	for (uint32 entry = 0; entry < n; entry++)
	{
		GgResident *resident = &device->residents[entry];
		int			load = -1;

		/* looked at without the lock first: most of the time there is nothing */
		if (resident->state != GG_RESIDENT_WANTED &&
			!(resident->state == GG_RESIDENT_READY && pg_atomic_read_u32(&resident->refresh) == GG_REFRESH_WANTED))
			continue;
		LWLockAcquire(device->lock, LW_EXCLUSIVE);
		if (resident->state == GG_RESIDENT_WANTED)
		{
			load = GgTakeLoad(device, entry, false, 0);
			if (load >= 0)
				resident->state = GG_RESIDENT_LOADING;
		}
		else if (resident->state == GG_RESIDENT_READY && pg_atomic_read_u32(&resident->refresh) == GG_REFRESH_WANTED)
		{
			load = GgTakeLoad(device, entry, true, 0);
			if (load >= 0)
				pg_atomic_write_u32(&resident->refresh, GG_REFRESH_LOADING);
		}
		LWLockRelease(device->lock);
		if (load >= 0)
		{
			StartLoader(load);
			busy = true;
		}
	}
}

/* ---- loads: from SHAPED to READY ------------------------------------------------ */

static void
Ungrant(int load)
{
	SetUsed(used_bytes - loads[load].bytes);
	loads[load].bytes = 0;
}

/* The load is over and its entry says so; the owner may look, then the load is free. */
static void
EndLoad(int load, uint32 serial)
{
	GgLoadJob  *job = &device->loads_under_way[load];

	Ungrant(load);
	loads[load].evicted_more = false;
	pg_write_barrier();
	(void) (GgLoadMove(job, serial, GG_LOAD_ASSIGNED, GG_LOAD_ENDED) ||
			GgLoadMove(job, serial, GG_LOAD_SHAPED, GG_LOAD_ENDED) ||
			GgLoadMove(job, serial, GG_LOAD_BROKEN, GG_LOAD_ENDED) ||
			GgLoadMove(job, serial, GG_LOAD_DONE, GG_LOAD_ENDED));
}

/* Sizes change from try to try; that is not another cause. */
static bool
IsNewCause(const char *before, const char *now)
{
	while (*before != '\0' || *now != '\0')
	{
		while (isdigit((unsigned char) *before))
			before++;
		while (isdigit((unsigned char) *now))
			now++;
		if (*before != *now)
			return true;
		if (*now != '\0')
		{
			before++;
			now++;
		}
	}
	return false;
}

/*
 * A refresh found no memory beside the copy that it was to replace.  Is that copy good for so little that it had better go, and make
 * room for a load?  Where the segments are others now, or only the delta is left and numbered anew, it answers nothing; and
 * where it lacks more of the delta than it has, the CPU does most of the work.
 */
static bool
StandsInItsWay(const GgResident *resident, const GgLoadJob *job)
{
	if (resident->nsegments != job->nsegments)
		return true;
	for (uint32 i = 0; i < job->nsegments; i++)
		if (resident->segments[i] != job->lists[i].segment)
			return true;
	return (job->nsegments == 0 && resident->key.generation != job->key.generation) ||
		job->delta_pages / 2 > resident->delta_pages;
}

static void
LoadFailed(int load, uint32 serial, bool no_room)
{
	GgLoadJob  *job = &device->loads_under_way[load];
	GgResident *resident = &device->residents[job->entry];
	bool		tell = false;
	bool		forget = false;
	char		name[160];

	if (job->error[0] == '\0')
		strlcpy(job->error, "its loader ended early", sizeof(job->error));
	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	if (resident->use == job->use)
	{
		if (!job->quiet)
		{
			int64		retry_ms = RETRY_MIN_MS << Min(resident->failures, 4);

			if (no_room)
				retry_ms = NO_ROOM_RETRY_MS;
			else if (job->why == GG_CPU_MEMORY)
				retry_ms = RETRY_MAX_MS;
			tell = IsNewCause(resident->error, job->error);
			strlcpy(resident->error, job->error, sizeof(resident->error));
			resident->why = job->why;
			resident->failures++;
			resident->failed_at = GetCurrentTimestamp();
			resident->failed_us = GgNowMicros();
			resident->retry_us = resident->failed_us + Min(retry_ms, RETRY_MAX_MS) * 1000;
		}
		else
			resident->retry_us = GgNowMicros() + QUIET_RETRY_MS * UINT64CONST(1000);
		if (job->refresh)
		{
			/* the copy that is there goes on being used as a rule, unless it is on its way out anyway */
			pg_atomic_write_u32(&resident->refresh, 0);
			forget = job->quiet ?
				job->key.instance != resident->key.instance || job->key.database != resident->key.database :
				job->why == GG_CPU_MEMORY && StandsInItsWay(resident, job);
		}
		else if (resident->state == GG_RESIDENT_LOADING)
			resident->state = job->quiet ? GG_RESIDENT_FREE : GG_RESIDENT_FAILED;
	}
	LWLockRelease(device->lock);

	if (!job->quiet)
		device->stats.failed_loads++;
	if (tell)
		ereport(LOG,
				(errmsg("gpugraph device %d: could not %s %s: %s", device->number, job->refresh ? "refresh" : "load",
						NameOf(name, sizeof(name), job->name, job->database, job->relation), job->error),
				 errdetail("The CPU answers its queries.")));
	if (forget)
		GgForgetEntry(device, job->entry, job->use);
	EndLoad(load, serial);
}

/* SHAPED: see whether there is room, and have the memory taken. */
static void
GrantLoad(int load, uint32 serial)
{
	GgLoadJob  *job = &device->loads_under_way[load];
	uint64		bytes = 0;
	char		need[32],
				limit[32];

	for (uint32 i = 0; i < job->nlists; i++)
		if (!job->lists[i].kept && job->lists[i].n > 0)
			bytes += engine->shape_bytes(&job->lists[i].shape);
	if (loads[load].evicted_more && OutgoingBytes() > 0)
	{
		busy = true;
		return;
	}
	switch (MakeRoom(job, bytes))
	{
		case ROOM_THERE:
			loads[load].bytes = bytes;
			SetUsed(used_bytes + bytes);
			if (GgLoadMove(job, serial, GG_LOAD_SHAPED, GG_LOAD_CREATE))
				GgUploadKick(upload);
			break;
		case ROOM_SOON:
			busy = true;
			break;
		case ROOM_NONE:
			job->why = GG_CPU_MEMORY;
			GgFormatBytes(need, sizeof(need), bytes);
			GgFormatBytes(limit, sizeof(limit), LimitBytes());
			if (bytes > LimitBytes())
				snprintf(job->error, sizeof(job->error), "it needs %s of device memory, gpugraph.device_memory allows %s",
						 need, limit);
			else
				snprintf(job->error, sizeof(job->error),
						 "it needs %s of device memory, and of %s too little is free or has not been used for long enough",
						 need, limit);
			LoadFailed(load, serial, bytes <= LimitBytes());
			break;
	}
}

/* BROKEN: the upload thread gave up.  The device may hold less than we thought: evict and try once more. */
static void
LoadBroken(int load, uint32 serial)
{
	GgLoadJob  *job = &device->loads_under_way[load];
	const gg_status *status = GgUploadStatus(upload, load);
	bool		memory = status->code == GG_EDEVICE_MEMORY || status->code == GG_ENOMEM;

	if (memory && !loads[load].evicted_more && job->fault != GG_FAULT_DEVICE_MEMORY)
	{
		uint64		bytes = loads[load].bytes;

		loads[load].evicted_more = true;
		if (MakeRoom(job, LimitBytes() - Min(LimitBytes(), used_bytes) + bytes) != ROOM_NONE)
		{
			Ungrant(load);
			if (GgLoadMove(job, serial, GG_LOAD_BROKEN, GG_LOAD_SHAPED))
				return;
		}
	}
	if (status->code == GG_EDEVICE)
		device_lost = *status;
	if (job->error[0] == '\0')
	{
		job->why = memory ? GG_CPU_MEMORY : GG_CPU_FAILED;
		strlcpy(job->error, status->message, sizeof(job->error));
	}
	LoadFailed(load, serial, false);
}

/* DONE: the new copy replaces the entry's old one, if any. */
static void
Publish(int load, uint32 serial, int64 now_ms)
{
	GgLoadJob  *job = &device->loads_under_way[load];
	GgResident *resident = &device->residents[job->entry];
	Copy	   *old = &copies[job->entry][resident->copy];
	Copy	   *copy = &copies[job->entry][1 - resident->copy];
	gg_index   *lists[GG_SERVE_MAX_LISTS];
	TimestampTz now = GetCurrentTimestamp();
	uint64		now_us = GgNowMicros();
	double		seconds = (now_us - job->began_us) / 1e6;
	uint64		all_bytes = 0;
	uint64		loaded_bytes = 0,
				delta_bytes = 0;
	bool		wanted;
	char		name[160],
				size[32];

	if (copy->live)
	{
		busy = true;			/* a query of two refreshes ago is still in flight */
		return;
	}
	GgUploadTake(upload, load, lists);
	for (uint32 i = 0; i < job->nlists; i++)
		if (lists[i] != NULL)
		{
			uint64		bytes = engine->index_bytes(lists[i]);

			loaded_bytes += bytes;
			if (job->lists[i].segment == GG_NO_SEGMENT)
				delta_bytes += bytes;
		}

	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	wanted = resident->use == job->use &&
		resident->state == (job->refresh ? GG_RESIDENT_READY : GG_RESIDENT_LOADING);
	for (uint32 i = 0; i < job->nlists && wanted; i++)
		if (job->lists[i].kept && job->lists[i].n > 0)
		{
			bool		have = false;

			for (uint32 j = 0; j < resident->nsegments; j++)
				have |= resident->segments[j] == job->lists[i].segment && old->live && old->lists[j] != NULL;
			wanted = have;
		}
	if (wanted)
	{
		copy->live = true;
		copy->serial = ++device->last_serial;
		copy->nlists = job->nlists;
		for (uint32 i = 0; i < job->nlists; i++)
		{
			copy->owned[i] = true;
			copy->lists[i] = lists[i];
			if (job->lists[i].kept)
				for (uint32 j = 0; j < resident->nsegments; j++)
					if (resident->segments[j] == job->lists[i].segment && old->live)
					{
						copy->lists[i] = old->lists[j];
						old->owned[j] = false;
					}
			if (copy->lists[i] != NULL)
				copy->bytes += engine->index_bytes(copy->lists[i]);
		}
		if (old->live)
		{
			old->bytes = 0;
			for (uint32 i = 0; i < old->nlists; i++)
				if (old->owned[i] && old->lists[i] != NULL)
					old->bytes += engine->index_bytes(old->lists[i]);
			old->replaced = true;
			old->replaced_ms = now_ms;
		}
		loads[load].bytes = 0;

		resident->copy = 1 - resident->copy;
		resident->serial = copy->serial;
		resident->key = job->key;
		strlcpy(resident->name, job->name, sizeof(resident->name));
		resident->nsegments = job->nsegments;
		for (uint32 i = 0; i < job->nsegments; i++)
			resident->segments[i] = job->lists[i].segment;
		resident->delta_first = job->delta_first;
		resident->delta_pages = job->delta_pages;
		resident->vacuum_epoch = job->vacuum_epoch;
		resident->bytes = copy->bytes;
		resident->error[0] = '\0';
		resident->failures = 0;
		resident->forced = false;
		resident->refreshed_at = now;
		resident->refreshed_us = now_us;
		resident->began_us = job->began_us;
		resident->delta_s = loaded_bytes > 0 ? seconds * delta_bytes / loaded_bytes : 0;
		if (job->refresh)
		{
			resident->refresh_s = seconds;
			resident->refreshes++;
		}
		else
		{
			resident->loaded_at = now;
			resident->loaded_us = now_us;
			resident->load_s = seconds;
			/* a query asked for it just now */
			pg_atomic_write_u64(&resident->used, pg_atomic_fetch_add_u64(&device->clock, 1));
		}
		pg_atomic_write_u32(&resident->refresh, 0);
		resident->state = GG_RESIDENT_READY;
	}
	LWLockRelease(device->lock);

	if (!wanted)
	{
		for (int i = 0; i < GG_SERVE_MAX_LISTS; i++)
			GgUploadClose(upload, lists[i]);
		job->quiet = true;
		LoadFailed(load, serial, false);
		return;
	}

	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
		for (int c = 0; c < 2; c++)
			all_bytes += copies[entry][c].bytes;
	for (int i = 0; i < GG_MAX_LOADS; i++)
		all_bytes += loads[i].bytes;
	SetUsed(all_bytes);

	if (job->refresh)
		device->stats.refreshes++;
	else
	{
		device->stats.loads++;
		changed = true;
	}
	ereport(job->refresh ? DEBUG1 : LOG,
			(errmsg("gpugraph device %d: %s %s, %s in %.3f s", device->number, job->refresh ? "refreshed" : "loaded",
					NameOf(name, sizeof(name), job->name, job->database, job->relation),
					GgFormatBytes(size, sizeof(size), copy->bytes), seconds)));
	EndLoad(load, serial);
}

/* Is there still somebody who works on the load?  Where not, it is given up, or finished without him. */
static void
WatchOwner(int load, uint64 word)
{
	GgLoadJob  *job = &device->loads_under_way[load];
	uint32		serial = GgLoadWordSerial(word);
	pid_t		pid;
	bool		gone;

	if (word & GG_LOAD_ORPHAN)
		return;
	if (job->owner != 0)
		gone = BackendPidGetProc(job->owner) == NULL;
	else
		gone = loads[load].handle == NULL ||
			GetBackgroundWorkerPid(loads[load].handle, &pid) == BGWH_STOPPED;
	if (!gone)
		return;

	/* it may have moved on just before it ended */
	word = GgLoadWord(job);
	switch (GgLoadWordState(word))
	{
		case GG_LOAD_ASSIGNED:
		case GG_LOAD_SHAPED:
		case GG_LOAD_CREATE:
		case GG_LOAD_OPEN:
			FailLoad(job, serial, GG_CPU_FAILED, "its loader ended early");
			GgUploadKick(upload);
			break;
		default:
			GgLoadFlag(job, serial, GG_LOAD_ORPHAN);
			break;
	}
}

static void
MoveLoads(int64 now_ms)
{
	for (int i = 0; i < GG_MAX_LOADS; i++)
	{
		GgLoadJob  *job = &device->loads_under_way[i];
		uint64		word = GgLoadWord(job);
		uint32		serial = GgLoadWordSerial(word);

		if (GgLoadWordState(word) == GG_LOAD_FREE)
			continue;
		busy = true;
		WatchOwner(i, word);
		word = GgLoadWord(job);
		switch (GgLoadWordState(word))
		{
			case GG_LOAD_ASSIGNED:
				if (word & GG_LOAD_ABORT)
					LoadFailed(i, serial, false);
				break;
			case GG_LOAD_SHAPED:
				if (word & GG_LOAD_ABORT)
					LoadFailed(i, serial, false);
				else
					GrantLoad(i, serial);
				break;
			case GG_LOAD_BROKEN:
				LoadBroken(i, serial);
				break;
			case GG_LOAD_DONE:
				Publish(i, serial, now_ms);
				break;
			default:
				break;
		}
		word = GgLoadWord(job);
		if (GgLoadWordState(word) == GG_LOAD_ENDED && (word & GG_LOAD_ORPHAN))
		{
			if (loads[i].handle != NULL)
				pfree(loads[i].handle);
			loads[i].handle = NULL;
			pg_atomic_write_u64(&job->word, ((uint64) serial << 8) | GG_LOAD_FREE);
		}
	}
}

/* A process that dies while it fills a chunk cannot give it back. */
static void
FreeDeadChunks(void)
{
	for (int i = 0; i < GG_STAGE_CHUNKS; i++)
	{
		uint32		state = pg_atomic_read_u32(&device->chunks[i].state);

		if ((state & GG_CHUNK_STATE_MASK) == GG_CHUNK_FILLING && BackendPidGetProc(state >> 8) == NULL)
			pg_atomic_compare_exchange_u32(&device->chunks[i].state, &state, GG_CHUNK_FREE);
	}
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
								 NameOf(name, sizeof(name), resident->name, resident->database, resident->relation))));
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

	if (!changed)
		return;
	changed = false;
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
	copies = MemoryContextAllocZero(TopMemoryContext, GG_MAX_RESIDENT * sizeof(*copies));
	memset(loads, 0, sizeof(loads));
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
		if ((pg_atomic_read_u32(&device->chunks[i].state) & GG_CHUNK_STATE_MASK) != GG_CHUNK_FILLING)
			pg_atomic_write_u32(&device->chunks[i].state, GG_CHUNK_FREE);
	LWLockRelease(device->lock);

	status = engine->device_info(device->number, &info);
	total_bytes = status.code == GG_OK ? info.total_bytes : 0;
	device->limit_bytes = LimitBytes();
	SetUsed(0);

	upload = GgUploadStart(device, engine, Wake, device);
	if (upload == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not start the upload thread of gpugraph device %d: %m", device->number)));

	if (gg_autoprewarm)
		WantItems(items, nitems);
	changed = nitems > 0;
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
			for (uint32 l = 0; l < copies[i][c].nlists; l++)
				if (copies[i][c].owned[l])
					engine->index_close(copies[i][c].lists[l]);
	memset(copies, 0, GG_MAX_RESIDENT * sizeof(*copies));
	SetUsed(0);
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
	busy = false;
	MoveLoads(now_ms);
	StartLoads();
	if (device_lost.code != GG_OK)
		GgDeviceLost(&device_lost);
	CloseCopies(now_ms);
	if (busy)
		FreeDeadChunks();
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
