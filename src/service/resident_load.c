/*
 * resident_load.c
 *		How an index comes to a device: the loads under way, the worker's side.
 *
 * All is done by the worker's main thread in GgLoadsWork(), which never waits: every turn looks at the words of the loads under way
 * (resident.h), moves on what can be moved, and leaves the rest for the next turn.  A load is given to a loader that reads the
 * pages (loader.c), granted its memory out of what resident.c accounts for, filled by the upload thread (upload.c), and its lists
 * become the entry's copy, the first or a refresh's.  When it fails, its entry tells why and when it may be tried again; an owner
 * that dies is noticed here, and what it held is given up.
 */
#include "service/resident.h"

#include <ctype.h>

#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/memutils.h"

/* When a load that failed is tried again: from 5 s to a minute; what is too large for the limit, after a minute. */
#define RETRY_MIN_MS	5000
#define RETRY_MAX_MS	60000
#define NO_ROOM_RETRY_MS 1000
#define QUIET_RETRY_MS	100

typedef struct LocalLoad
{
	BackgroundWorkerHandle *handle;
	uint64		bytes;			/* granted, and not yet a copy's */
	bool		evicted_more;	/* the device had less than the limit says: more was evicted once */
} LocalLoad;

static GgDevice *device;
static int	device_number;		/* in gg_service->devices */
static const gg_engine *engine;
static GgUpload *upload;
static LocalLoad loads[GG_MAX_LOADS];
static bool busy;
static gg_status device_lost;	/* an upload's, GG_OK while there is none */

/* ---- from WANTED to a loader ----------------------------------------------------- */

/* Set why a load failed, unless somebody was first, and have it given up. */
static void
FailLoad(GgLoadJob *job, uint32 serial, GgReason reason, const char *error)
{
	if (job->error[0] == '\0' && !job->quiet)
	{
		job->reason = reason;
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
		FailLoad(job, serial, GG_REASON_FAILED, "no background worker is free to load it: raise max_worker_processes");
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

/* ---- from SHAPED to READY -------------------------------------------------------- */

static void
Ungrant(int load)
{
	GgSetUsed(gg_used_bytes - loads[load].bytes);
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
			else if (job->reason == GG_REASON_MEMORY)
				retry_ms = RETRY_MAX_MS;
			tell = IsNewCause(resident->error, job->error);
			strlcpy(resident->error, job->error, sizeof(resident->error));
			resident->reason = job->reason;
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
				job->reason == GG_REASON_MEMORY && StandsInItsWay(resident, job);
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
						GgNameOf(name, sizeof(name), job->name, job->database, job->relation), job->error),
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
	if (loads[load].evicted_more && GgOutgoingBytes() > 0)
	{
		busy = true;
		return;
	}
	switch (GgMakeRoom(job, bytes))
	{
		case GG_ROOM_THERE:
			loads[load].bytes = bytes;
			GgSetUsed(gg_used_bytes + bytes);
			if (GgLoadMove(job, serial, GG_LOAD_SHAPED, GG_LOAD_CREATE))
				GgUploadKick(upload);
			break;
		case GG_ROOM_SOON:
			busy = true;
			break;
		case GG_ROOM_NONE:
			job->reason = GG_REASON_MEMORY;
			GgFormatBytes(need, sizeof(need), bytes);
			GgFormatBytes(limit, sizeof(limit), GgLimitBytes());
			if (bytes > GgLimitBytes())
				snprintf(job->error, sizeof(job->error), "it needs %s of device memory, gpugraph.device_memory allows %s",
						 need, limit);
			else
				snprintf(job->error, sizeof(job->error),
						 "it needs %s of device memory, and of %s too little is free or has not been used for long enough",
						 need, limit);
			LoadFailed(load, serial, bytes <= GgLimitBytes());
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
		if (GgMakeRoom(job, GgLimitBytes() - Min(GgLimitBytes(), gg_used_bytes) + bytes) != GG_ROOM_NONE)
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
		job->reason = memory ? GG_REASON_MEMORY : GG_REASON_FAILED;
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
	GgCopy	   *old = &gg_copies[job->entry][resident->copy];
	GgCopy	   *copy = &gg_copies[job->entry][1 - resident->copy];
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
			all_bytes += gg_copies[entry][c].bytes;
	for (int i = 0; i < GG_MAX_LOADS; i++)
		all_bytes += loads[i].bytes;
	GgSetUsed(all_bytes);

	if (job->refresh)
		device->stats.refreshes++;
	else
	{
		device->stats.loads++;
		gg_residents_changed = true;
	}
	ereport(job->refresh ? DEBUG1 : LOG,
			(errmsg("gpugraph device %d: %s %s, %s in %.3f s", device->number, job->refresh ? "refreshed" : "loaded",
					GgNameOf(name, sizeof(name), job->name, job->database, job->relation),
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
			FailLoad(job, serial, GG_REASON_FAILED, "its loader ended early");
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

/* ---- what resident.c calls ---------------------------------------------------------- */

void
GgLoadsStart(GgDevice *which, int number, const gg_engine *with, GgUpload *through)
{
	device = which;
	device_number = number;
	engine = with;
	upload = through;
	memset(loads, 0, sizeof(loads));
}

bool
GgLoadsWork(int64 now_ms)
{
	busy = false;
	MoveLoads(now_ms);
	StartLoads();
	if (device_lost.code != GG_OK)
		GgDeviceLost(&device_lost);
	return busy;
}
