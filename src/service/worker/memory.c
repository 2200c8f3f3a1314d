/*
 * memory.c
 *		A device's memory: what residents and loads take of it, and who makes room for whom.
 *
 * used_bytes counts the versions of residents, what loads under way have been granted, and what a
 * merge's graph takes that is built here (graph_work.c).  The graph's memory counts as outgoing
 * from the start.  A load is granted its memory only while the sum stays under
 * gpugraph.device_memory.  Room is made by evicting what was used longest ago.  A resident is safe
 * for GG_REST times its load time.  Otherwise indexes that do not fit together would evict each
 * other all the time, and none would ever answer.  gpugraph_prewarm() evicts it all the same where
 * a superuser calls it or, from 17 on, a member of pg_maintain.  REINDEX evicts the copy of what it
 * replaces.
 *
 * A resident of several segments gives up as many as are needed, by a version without them.
 * Queries that find it then search those segments on the CPU.
 *
 * Dropped relations: the worker reads no catalogs.  Now and then it looks whether the files of its
 * residents still exist.  DROP, TRUNCATE, REINDEX and DROP DATABASE remove or truncate them when
 * they commit, also in recovery.  A resident that lingers can answer nobody, since no relation has
 * its locator and instance any more.
 */
#include "service/worker/worker.h"

#include <sys/stat.h>

#include "port/pg_bitutils.h"

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
GgTakenBytes(GgWorker *worker)
{
	return worker->used_bytes + GgBuildsShare(worker->device);
}

uint64
GgOutgoingBytes(GgWorker *worker)
{
	GgDevice   *device = worker->device;
	uint64		bytes = worker->graph_bytes;

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

static double
HeatOf(GgResident *resident)
{
	return resident->heat +
		(double) (pg_atomic_read_u64(&resident->queries) - resident->cooled_queries);
}

void
GgCoolDown(GgDevice *device)
{
	/* so that no process takes an entry meanwhile */
	LWLockAcquire(device->lock, LW_SHARED);
	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
	{
		GgResident *resident = &device->residents[entry];
		uint64		queries = pg_atomic_read_u64(&resident->queries);

		resident->heat = (resident->heat + (double) (queries - resident->cooled_queries)) / 2;
		resident->cooled_queries = queries;
	}
	LWLockRelease(device->lock);
}

/*
 * Is a resident a copy of what the load's index was before REINDEX?  Queries of the index wait for
 * the end of that, and find the new file then.
 */
static bool
IsReplaced(const GgResident *resident, const GgLoadJob *job)
{
	return resident->relation == job->relation && resident->database == job->database;
}

/*
 * For an index that does not fit as a whole, only what is clearly colder is evicted: else two
 * indexes of the same heat would take segments from each other all the time.  A replica may go
 * at any time, as may what is replaced, and for the load of another replica nothing may.
 */
static bool
MayEvict(GgWorker *worker, uint32 entry, const GgLoadJob *job, uint64 now_us)
{
	GgDevice   *device = worker->device;
	GgResident *resident = &device->residents[entry];

	if (resident->state != GG_RESIDENT_READY || entry == job->entry || job->replica)
		return false;
	if (job->forced || IsReplaced(resident, job) || GgIsReplica(worker, resident))
		return true;
	return GgHasRested(resident, now_us) &&
		(!job->partial || 2 * HeatOf(resident) < HeatOf(&device->residents[job->entry]));
}

/* Of the residents that may go, the one that goes first; -1 when there is none. */
static int
ChooseVictim(GgWorker *worker, const GgLoadJob *job, uint64 now_us)
{
	GgDevice   *device = worker->device;
	int			victim = -1;

	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
	{
		if (!MayEvict(worker, entry, job, now_us))
			continue;
		if (IsReplaced(&device->residents[entry], job))
			return entry;
		if (victim < 0 || GgGoesBefore(&device->residents[entry], &device->residents[victim]))
			victim = entry;
	}
	return victim;
}

/* Log which resident makes room for a load.  segments: how many of its segments go; 0: all. */
static void
LogVictim(const GgDevice *device, const GgResident *resident, uint64 bytes, int segments,
		  const GgLoadJob *job)
{
	char		what[160],
				whom[160],
				size[32],
				part[32] = "";

	if (segments > 0)
		snprintf(part, sizeof(part), " of %d segments", segments);
	ereport(LOG,
			(errmsg("gpugraph device %d: %s, %s%s, makes room for %s", device->number,
					GgNameOf(what, sizeof(what), resident->name, resident->database,
							 resident->relation),
					GgFormatBytes(size, sizeof(size), bytes), part,
					GgNameOf(whom, sizeof(whom), job->name, job->database, job->relation))));
}

/*
 * Which segments of a version to give up for `bytes`: the smallest one that is enough, or the
 * largest ones.  0 where none would be left.
 */
static uint32
SegmentsToDrop(const GgResidentVersion *version, uint32 nsegments, uint64 bytes)
{
	uint32		drop = 0;
	uint64		dropped = 0;
	int			left = 0;

	for (uint32 i = 0; i < nsegments; i++)
		left += version->lists[i] != NULL;
	while (dropped < bytes && --left > 0)
	{
		uint64		need = bytes - dropped;
		int			best = -1;

		for (uint32 i = 0; i < nsegments; i++)
		{
			uint64		size = version->list_bytes[i];
			uint64		best_size = best < 0 ? 0 : version->list_bytes[best];

			if (version->lists[i] == NULL || (drop >> i & 1) != 0)
				continue;
			if (best < 0 || (size >= need ? best_size < need || size < best_size :
							 size > best_size))
				best = (int) i;
		}
		drop |= (uint32) 1 << best;
		dropped += version->list_bytes[best];
	}
	return dropped >= bytes ? drop : 0;
}

/* Make a version without some segments, in the place of the current one; returns their bytes. */
static uint64
Trim(GgWorker *worker, uint32 entry, uint32 drop)
{
	GgDevice   *device = worker->device;
	GgResident *resident = &device->residents[entry];
	GgResidentVersion *old = GgCurrentVersion(worker, entry);
	GgResidentVersion *version = &worker->versions[entry][1 - resident->now.version];

	Assert(!version->live);
	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	*version = *old;
	version->serial = ++device->last_serial;
	version->pins = 0;
	version->forms.missing |= drop;
	version->forms.coded &= ~drop;
	version->forms.rowless &= ~drop;
	version->forms.halved &= ~drop;
	old->bytes = 0;
	for (uint32 i = 0; i < old->nlists; i++)
	{
		old->owned[i] = i < GG_MAX_SEGMENTS && (drop >> i & 1) != 0;
		if (!old->owned[i])
			continue;
		version->lists[i] = NULL;
		version->bytes -= version->list_bytes[i];
		old->bytes += version->list_bytes[i];
	}
	old->replaced = true;
	old->ahead = false;
	old->replaced_ms = (int64) (GgNowMicros() / 1000);

	resident->previous.serial = 0;
	pg_atomic_write_u64(&resident->flipped_us, 0);
	resident->now.version = 1 - resident->now.version;
	resident->now.serial = version->serial;
	GgNoteVersion(resident, version);
	resident->missing_bytes += old->bytes;
	LWLockRelease(device->lock);
	worker->busy = true;
	return old->bytes;
}

/*
 * Have a resident give up as many of its segments as are needed, or all, as a replica does.
 * Returns the bytes that this frees; 0 where a version that is on its way out must go first.
 */
static uint64
Evict(GgWorker *worker, uint32 entry, uint64 bytes, const GgLoadJob *job)
{
	GgDevice   *device = worker->device;
	const GgResident *resident = &device->residents[entry];
	const GgResidentVersion *version = GgCurrentVersion(worker, entry);
	uint32		drop = resident->replica ? 0 :
		SegmentsToDrop(version, resident->now.nsegments, bytes);
	uint64		freed;

	if (drop != 0 && worker->versions[entry][1 - resident->now.version].live)
		return 0;
	if (drop != 0)
	{
		freed = Trim(worker, entry, drop);
		LogVictim(device, resident, freed, pg_popcount32(drop), job);
		return freed;
	}
	freed = version->bytes;
	LogVictim(device, resident, freed, 0, job);
	GgForgetEntry(device, entry, resident->use);
	return freed;
}

uint64
GgAvailableBytes(GgWorker *worker, const GgLoadJob *job)
{
	GgDevice   *device = worker->device;
	uint64		bytes = GgLimitBytes(worker) + GgOutgoingBytes(worker);
	uint64		now_us = GgNowMicros();

	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
		if (MayEvict(worker, entry, job, now_us))
			bytes += GgCurrentVersion(worker, entry)->bytes;
	return bytes - Min(bytes, GgTakenBytes(worker));
}

/*
 * Nothing is evicted in vain: it is done only if all that may go is enough.  With 0 bytes the limit
 * itself is to be kept: residents go until it is, or until no more of them may; nothing goes for
 * builds.
 */
GgRoom
GgMakeRoom(GgWorker *worker, const GgLoadJob *job, uint64 bytes)
{
	uint64		needed = bytes > 0 ? GgTakenBytes(worker) + bytes : worker->used_bytes;
	uint64		limit = GgLimitBytes(worker);
	uint64		outgoing;
	uint64		now_us = GgNowMicros();

	if (needed <= limit)
		return GG_ROOM_THERE;
	GgSweepDropped(worker);
	outgoing = GgOutgoingBytes(worker);
	if (needed <= limit + outgoing)
		return GG_ROOM_SOON;
	if (bytes > 0 && bytes > GgAvailableBytes(worker, job))
		return GG_ROOM_NONE;

	while (needed > limit + outgoing)
	{
		int			victim = ChooseVictim(worker, job, now_us);
		uint64		freed;

		if (victim < 0)
			return GG_ROOM_NONE;
		freed = Evict(worker, victim, needed - limit - outgoing, job);
		if (freed == 0)
			return GG_ROOM_SOON;
		outgoing += freed;
	}
	return GG_ROOM_SOON;
}

GgRoom
GgTrimForDelta(GgWorker *worker, GgLoadJob *job, uint64 bytes)
{
	GgDevice   *device = worker->device;
	const GgResident *resident = &device->residents[job->entry];
	const GgResidentVersion *version = GgCurrentVersion(worker, job->entry);
	uint64		available = GgAvailableBytes(worker, job);
	uint64		old = version->nlists > resident->now.nsegments ?
		version->list_bytes[resident->now.nsegments] : 0;
	/* the old delta goes when the new one is there */
	uint64		wanted = 2 * bytes - Min(old, bytes);
	uint64		freed;
	uint32		drop;
	char		name[160],
				size[32];

	if (!job->refresh || job->ahead || available >= bytes ||
		resident->state != GG_RESIDENT_READY || resident->use != job->use ||
		!GgHasGraphsOf(resident, job))
		return GG_ROOM_NONE;
	drop = SegmentsToDrop(version, resident->now.nsegments, wanted - available);
	if (drop == 0)
		drop = SegmentsToDrop(version, resident->now.nsegments, bytes - available);
	if (drop == 0)
		return GG_ROOM_NONE;
	if (worker->versions[job->entry][1 - resident->now.version].live)
		return GG_ROOM_SOON;
	for (uint32 i = 0; i < job->nsegments; i++)
		if ((drop >> i & 1) != 0)
		{
			job->lists[i].kept = false;
			job->lists[i].left_out = true;
		}
	freed = Trim(worker, job->entry, drop);
	ereport(LOG,
			(errmsg("gpugraph device %d: %s, %s of %d segments, makes room for its delta",
					device->number,
					GgNameOf(name, sizeof(name), resident->name, resident->database,
							 resident->relation),
					GgFormatBytes(size, sizeof(size), freed), pg_popcount32(drop))));
	return GG_ROOM_SOON;
}

bool
GgGiveUpSegments(GgWorker *worker, uint32 entry, uint32 drop)
{
	GgResident *resident = &worker->device->residents[entry];
	uint32		none = 0;

	/* a refresh under way would keep these segments */
	if (worker->versions[entry][1 - resident->now.version].live ||
		!pg_atomic_compare_exchange_u32(&resident->refresh, &none, GG_REFRESH_LOADING))
		return false;
	(void) Trim(worker, entry, drop);
	pg_atomic_write_u32(&resident->refresh, 0);
	return true;
}

/* ---- gpugraph.device_memory ----------------------------------------------------------- */

/* The limit was lowered: evict until it is kept, also what was loaded a moment ago. */
static void
KeepToLimit(GgWorker *worker)
{
	GgLoadJob	nobody = {.entry = PG_UINT32_MAX, .forced = true, .name = "nothing"};

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
	/* loads that did not fit may fit now */
	for (uint32 entry = 0; entry < gg_service->max_residents; entry++)
	{
		GgResident *resident = &device->residents[entry];

		resident->grow_us = 0;
		if (resident->state == GG_RESIDENT_FAILED && resident->reason == GG_REASON_MEMORY)
			resident->retry_us = 0;
	}
	LWLockRelease(device->lock);
	KeepToLimit(worker);
}
