/*
 * memory.c
 *		A device's memory: what residents and loads take of it, and who makes room for whom.
 *
 * used_bytes counts the versions of residents and what loads under way have been granted.  A load
 * is granted its memory only while the sum stays under gpugraph.device_memory.  Room is made by
 * evicting what was used longest ago.  A resident that has not yet been there for GG_REST times
 * its load time is safe.  Otherwise indexes that do not fit together would push each other out
 * all the time, and none would ever answer.  gpugraph_prewarm() may evict it all the same when a
 * superuser, or from 17 on a member of pg_maintain, calls it: nobody else decides for others.
 *
 * Dropped relations: the worker reads no catalogs.  Now and then it looks whether the files of its
 * residents still exist.  DROP, TRUNCATE, REINDEX and DROP DATABASE remove or truncate them when
 * they commit, also in recovery.  A resident that lingers can answer nobody, since no relation has
 * its locator and instance any more.
 */
#include "service/worker.h"

#include <sys/stat.h>

const char *
GgFormatBytes(char *buffer, Size size, uint64 bytes)
{
	if (bytes < UINT64CONST(10) << 20)
		snprintf(buffer, size, UINT64_FORMAT " kB", (bytes + 1023) >> 10);
	else
		snprintf(buffer, size, UINT64_FORMAT " MB", (bytes + (1 << 20) - 1) >> 20);
	return buffer;
}

const char *
GgNameOf(char *buffer, Size size, const char *name, Oid database, Oid relation)
{
	if (name[0] != '\0')
		snprintf(buffer, size, "index \"%s\" (%u) of database %u", name, relation, database);
	else
		snprintf(buffer, size, "index %u of database %u", relation, database);
	return buffer;
}

/* ---- accounts --------------------------------------------------------------- */

uint64
GgLimitBytes(const GgWorker *worker)
{
	if (gg_device_memory_mb > 0)
		return (uint64) gg_device_memory_mb << 20;
	return worker->total_bytes > 0 ? worker->total_bytes / 10 * 9 : PG_INT64_MAX;
}

void
GgSetUsed(GgWorker *worker, uint64 bytes)
{
	worker->used_bytes = bytes;
	worker->device->stats.resident_bytes = bytes;
}

uint64
GgOutgoingBytes(GgWorker *worker)
{
	GgDevice   *device = worker->device;
	uint64		bytes = 0;

	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
		for (int v = 0; v < 2; v++)
		{
			const GgResidentVersion *version = &worker->versions[entry][v];

			if (version->live &&
				(version->replaced || device->residents[entry].state == GG_RESIDENT_EVICTING))
				bytes += version->bytes;
		}
	return bytes;
}

/* ---- dropped relations ---------------------------------------------------------- */

bool
GgFileIsGone(const GgRelFileLocator *locator)
{
	char		path[MAXPGPATH];
	struct stat st;

	GgMainForkPath(*locator, path, sizeof(path));
	if (stat(path, &st) != 0)
		return errno == ENOENT;
	/* the first file of a dropped relation stays, empty, until the next checkpoint */
	return st.st_size == 0;
}

void
GgSweepDropped(GgWorker *worker)
{
	GgDevice   *device = worker->device;

	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
	{
		GgResident *resident = &device->residents[entry];
		GgRelFileLocator locator;
		uint32		use = 0;
		char		name[160];

		LWLockAcquire(device->lock, LW_SHARED);
		locator = resident->key.locator;
		if (resident->state == GG_RESIDENT_READY || resident->state == GG_RESIDENT_FAILED)
			use = resident->use;
		LWLockRelease(device->lock);
		if (use == 0 || !GgFileIsGone(&locator))
			continue;
		ereport(DEBUG1,
				(errmsg_internal("gpugraph device %d: %s was dropped", device->number,
								 GgNameOf(name, sizeof(name), resident->name, resident->database,
										  resident->relation))));
		GgForgetEntry(device, entry, use);
	}
}

/* ---- room ------------------------------------------------------------------------- */

static bool
MayEvict(GgDevice *device, uint32 entry, const GgLoadJob *job, uint64 now_us)
{
	const GgResident *resident = &device->residents[entry];

	if (resident->state != GG_RESIDENT_READY || entry == job->entry)
		return false;
	return job->forced || GgHasRested(resident, now_us);
}

/* Of the residents that may go, the one used longest ago; -1 when there is none. */
static int
ChooseVictim(GgDevice *device, const GgLoadJob *job, uint64 now_us)
{
	int			victim = -1;
	uint64		victim_used = 0;

	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
	{
		uint64		used = pg_atomic_read_u64(&device->residents[entry].used);

		if (MayEvict(device, entry, job, now_us) && (victim < 0 || used < victim_used))
		{
			victim = entry;
			victim_used = used;
		}
	}
	return victim;
}

static void
LogVictim(const GgDevice *device, const GgResident *resident, uint64 bytes, const GgLoadJob *job)
{
	char		what[160],
				whom[160],
				size[32];

	ereport(LOG,
			(errmsg("gpugraph device %d: %s, %s, makes room for %s", device->number,
					GgNameOf(what, sizeof(what), resident->name, resident->database,
							 resident->relation),
					GgFormatBytes(size, sizeof(size), bytes),
					GgNameOf(whom, sizeof(whom), job->name, job->database, job->relation))));
}

/*
 * Nothing is evicted in vain: first we see whether all that may go would be enough.  With 0 bytes
 * the limit itself is to be kept, and all that can be done for that is done.
 */
GgRoom
GgMakeRoom(GgWorker *worker, const GgLoadJob *job, uint64 bytes)
{
	GgDevice   *device = worker->device;
	uint64		needed = worker->used_bytes + bytes;
	uint64		limit = GgLimitBytes(worker);
	uint64		outgoing;
	uint64		evictable = 0;
	uint64		now_us = GgNowMicros();

	if (needed <= limit)
		return GG_ROOM_THERE;
	GgSweepDropped(worker);
	outgoing = GgOutgoingBytes(worker);
	if (needed <= limit + outgoing)
		return GG_ROOM_SOON;
	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
		if (MayEvict(device, entry, job, now_us))
			evictable += GgCurrentVersion(worker, entry)->bytes;
	if (bytes > 0 && needed > limit + outgoing + evictable)
		return GG_ROOM_NONE;

	while (needed > limit + outgoing)
	{
		int			victim = ChooseVictim(device, job, now_us);
		uint64		freed;

		if (victim < 0)
			return GG_ROOM_NONE;
		freed = GgCurrentVersion(worker, victim)->bytes;
		outgoing += freed;
		LogVictim(device, &device->residents[victim], freed, job);
		GgForgetEntry(device, victim, device->residents[victim].use);
	}
	return GG_ROOM_SOON;
}

/* ---- gpugraph.device_memory ----------------------------------------------------------- */

/* The limit was lowered: evict until it is kept, also what was loaded a moment ago. */
static void
KeepToLimit(GgWorker *worker)
{
	GgLoadJob	nobody;

	memset(&nobody, 0, sizeof(nobody));
	nobody.entry = GG_MAX_RESIDENT;
	nobody.forced = true;
	strlcpy(nobody.name, "nothing", sizeof(nobody.name));
	(void) GgMakeRoom(worker, &nobody, 0);
	/* loads under way were granted memory under the old limit, and can be evicted once they end */
	worker->exceeded = worker->used_bytes > GgLimitBytes(worker);
}

void
GgCheckLimit(GgWorker *worker)
{
	GgDevice   *device = worker->device;
	uint64		limit = GgLimitBytes(worker);

	if (worker->exceeded)
		KeepToLimit(worker);
	if (limit == device->limit_bytes)
		return;
	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	device->limit_bytes = limit;
	/* what did not fit may fit now */
	for (uint32 entry = 0; entry < GG_MAX_RESIDENT; entry++)
	{
		GgResident *resident = &device->residents[entry];

		if (resident->state == GG_RESIDENT_FAILED && resident->reason == GG_REASON_MEMORY)
			resident->retry_us = 0;
	}
	LWLockRelease(device->lock);
	KeepToLimit(worker);
}
