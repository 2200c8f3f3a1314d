/*
 * table.c
 *		The table of residents and loads of a device, in shared memory.
 *
 * Backends, builders, loaders and the worker all use it.  device->lock protects it: shared to look
 * and to note a query (lookup.c), exclusive to take an entry or a load and to have an entry
 * evicted.  All other changes are the worker's (resident.c, resident_load.c).
 */
#include "service/shared/table.h"

#include <sys/stat.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "pgstat.h"

/*
 * A full table: an entry changes hands no more often than this, and only when its resident has
 * been there for GG_REST times its load time, unless a maintainer asks.  Where more indexes than
 * there are entries are queried in turn, each query of an index without an entry would otherwise
 * push another index out.
 */
#define DISPLACE_US			1000000

void
GgLoadSleep(long timeout_ms)
{
	static uint32 wait_event = 0;

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_POSTMASTER_DEATH, timeout_ms,
					 GgWaitEvent(wait_event, "GpugraphLoad"));
	ResetLatch(MyLatch);
	GgCheckInterrupts();
}

void
GgResidentNotify(GgDevice *device)
{
	pg_atomic_write_u32(&device->work, 1);
	GgWakeDevice(device);
}

/* What replicas take, which make room for anything. */
static uint64
ReplicaBytes(GgDevice *device)
{
	uint64		bytes = 0;

	LWLockAcquire(device->lock, LW_SHARED);
	for (uint32 i = 0; i < pg_atomic_read_u32(&device->nresidents); i++)
		if (device->residents[i].state == GG_RESIDENT_READY && device->residents[i].replica)
			bytes += device->residents[i].bytes;
	LWLockRelease(device->lock);
	return bytes;
}

GgDevice *
GgChooseDevice(int *number)
{
	GgDevice   *best = NULL;
	int64		best_room = 0;

	for (int i = 0; i < gg_service->ndevices; i++)
	{
		GgDevice   *device = gg_service->devices[i];
		int64		room;

		if (!GgDeviceIsUp(device))
			continue;
		room = GgDeviceRoom(device) + (int64) ReplicaBytes(device);
		if (best == NULL || room > best_room)
		{
			best = device;
			best_room = room;
			*number = i;
		}
	}
	return best;
}

/* ---- databases ------------------------------------------------------------- */

static uint64 database_stamp = 0;

/*
 * The stamp is a hash of where and when the database's directory was made.  Its file PG_VERSION is
 * written then and never again.  The same holds on a standby, where no process of ours hears of
 * DROP DATABASE.
 */
uint64
GgRenewDatabaseStamp(void)
{
	char		path[MAXPGPATH];
	struct stat st;
	struct
	{
		uint64		inode,
					seconds,
					nanoseconds;
	}			made;

	snprintf(path, sizeof(path), "%s/PG_VERSION", DatabasePath);
	if (stat(path, &st) != 0)
		return database_stamp = 0;
	made.inode = st.st_ino;
	made.seconds = st.st_mtim.tv_sec;
	made.nanoseconds = st.st_mtim.tv_nsec;
	return database_stamp = hash_bytes_extended((const unsigned char *) &made, sizeof(made), 0);
}

uint64
GgDatabaseStamp(void)
{
	return database_stamp != 0 ? database_stamp : GgRenewDatabaseStamp();
}

/* ---- entries ---------------------------------------------------------------- */

int
GgFindEntry(GgDevice *device, const GgRelFileLocator *locator, uint64 instance, uint64 database)
{
	uint32		tag = GgFileTag(locator);
	uint32		n = pg_atomic_read_u32(&device->nresidents);

	for (uint32 entry = 0; entry < n; entry++)
	{
		GgResident *resident = &device->residents[entry];

		if (device->tags[entry].file == tag && resident->state != GG_RESIDENT_FREE &&
			GgSameLocator(&resident->key.locator, locator) &&
			((resident->key.instance == instance && resident->key.database == database) ||
			 resident->key.instance == 0))
			return entry;
	}
	return -1;
}

int
GgFindReady(GgDevice *device, Relation index, const GgMetaPageData *meta)
{
	int			entry = GgFindEntry(device, &GgLocator(index), meta->instance, GgDatabaseStamp());

	return entry >= 0 && device->residents[entry].state == GG_RESIDENT_READY ? entry : -1;
}

/* Evict the resident that goes before all (GgGoesBefore()), if any may: its entry becomes free. */
static void
Displace(GgDevice *device, bool forced)
{
	uint64		now_us = GgNowMicros();
	int			victim = -1;

	if (!forced && now_us < device->displaced_us + DISPLACE_US)
		return;
	for (uint32 i = 0; i < gg_service->max_residents; i++)
	{
		GgResident *resident = &device->residents[i];

		/* one entry is on its way out already, which is enough for now */
		if (resident->state == GG_RESIDENT_EVICTING)
			return;
		if (resident->state == GG_RESIDENT_READY &&
			(forced || resident->replica || GgHasRested(resident, now_us)) &&
			(victim < 0 || GgGoesBefore(resident, &device->residents[victim])))
			victim = i;
	}
	if (victim < 0)
		return;
	device->residents[victim].state = GG_RESIDENT_EVICTING;
	device->displaced_us = now_us;
}

/* The first entry in this state; -1 when there is none. */
static int
FirstInState(const GgDevice *device, GgResidentState state)
{
	for (uint32 i = 0; i < gg_service->max_residents; i++)
		if (device->residents[i].state == state)
			return i;
	return -1;
}

/* Begin another use of an entry. */
static int
Reuse(GgDevice *device, int entry)
{
	GgResident *resident = &device->residents[entry];

	memset(resident, 0, sizeof(GgResident));
	pg_atomic_init_u32(&resident->refresh, 0);
	pg_atomic_init_u64(&resident->flipped_us, 0);
	pg_atomic_init_u64(&resident->used, pg_atomic_fetch_add_u64(&device->clock, 1));
	pg_atomic_init_u64(&resident->queries, 1);
	resident->use = pg_atomic_add_fetch_u32(&gg_service->last_use, 1);
	if ((uint32) entry >= pg_atomic_read_u32(&device->nresidents))
		pg_atomic_write_u32(&device->nresidents, entry + 1);
	return entry;
}

int
GgTakeFreeEntry(GgDevice *device)
{
	int			entry = FirstInState(device, GG_RESIDENT_FREE);

	return entry >= 0 ? Reuse(device, entry) : -1;
}

int
GgTakeEntry(GgDevice *device, bool forced)
{
	int			entry = FirstInState(device, GG_RESIDENT_FREE);

	if (entry < 0)
		entry = FirstInState(device, GG_RESIDENT_FAILED);
	if (entry >= 0)
		return Reuse(device, entry);
	/* none to be had now, but maybe soon */
	Displace(device, forced);
	return -1;
}

void
GgTagEntry(GgDevice *device, uint32 entry)
{
	device->tags[entry].file = GgFileTag(&device->residents[entry].key.locator);
	device->tags[entry].relation = device->residents[entry].relation;
}

void
GgNameEntry(GgDevice *device, uint32 entry, Relation index, const GgMetaPageData *meta)
{
	GgResident *resident = &device->residents[entry];

	resident->key.locator = GgLocator(index);
	resident->key.instance = meta->instance;
	resident->key.database = GgDatabaseStamp();
	resident->key.generation = meta->generation;
	resident->database = MyDatabaseId;
	resident->relation = RelationGetRelid(index);
	resident->devices = GgWishedDevices(index);
	strlcpy(resident->name, RelationGetRelationName(index), sizeof(resident->name));
	GgTagEntry(device, entry);
}

/* ---- loads ------------------------------------------------------------------- */

int
GgTakeLoad(GgDevice *device, int entry, bool refresh, int owner)
{
	GgResident *resident = &device->residents[entry];

	for (int i = 0; i < GG_MAX_LOADS; i++)
	{
		GgLoadJob  *job = &device->loads_under_way[i];
		uint64		word = pg_atomic_read_u64(&job->word);
		uint32		serial = GgWordSerial(word) + 1;

		if (GgWordState(word) != GG_LOAD_FREE)
			continue;
		memset((char *) job + offsetof(GgLoadJob, entry), 0,
			   sizeof(GgLoadJob) - offsetof(GgLoadJob, entry));
		job->entry = entry;
		job->use = resident->use;
		job->refresh = refresh;
		job->owner = owner;
		job->grow = refresh && owner == 0 && resident->grow;
		job->forced = resident->forced;
		job->replica = resident->replica;
		job->part = resident->part;
		job->fault = resident->fault;
		job->database = resident->database;
		job->relation = resident->relation;
		job->key = resident->key;
		strlcpy(job->name, resident->name, sizeof(job->name));
		job->reason = GG_REASON_FAILED;
		job->began_us = GgNowMicros();
		pg_atomic_write_u64(&job->claimed, (uint64) serial << 32);
		pg_atomic_write_u64(&job->filled, (uint64) serial << 32);
		pg_write_barrier();
		pg_atomic_write_u64(&job->word, GgWordOf(serial, GG_LOAD_ASSIGNED));
		return i;
	}
	return -1;
}

/*
 * Mark which of the delta's pages the resident has.  A full page changes only where VACUUM clears
 * rows, and no other page ever has its number.
 */
static void
MarkKeptDelta(const GgResident *resident, GgLoadJob *job)
{
	uint64		end = resident->now.delta_first + resident->now.delta_pages;

	if (resident->vacuum_epoch != job->vacuum_epoch ||
		job->delta_first < resident->now.delta_first || job->delta_first >= end)
		return;
	job->delta_kept = (uint32) Min(job->delta_pages, end - job->delta_first);
	job->delta_skip = (uint32) (job->delta_first - resident->now.delta_first);
	job->delta_serial = resident->now.serial;
}

void
GgMarkKept(const GgResident *resident, uint64 generation, GgLoadJob *job)
{
	if (resident->key.generation == generation)
		MarkKeptDelta(resident, job);
	for (uint32 i = 0; i < job->nsegments; i++)
		for (uint32 j = 0; j < resident->now.nsegments; j++)
		{
			if (resident->now.graphs[j] != job->lists[i].graph)
				continue;
			if (resident->now.forms.missing >> j & 1)
				job->lists[i].left_out = !job->grow;
			else
				job->lists[i].kept = true;
		}
}

/* ---- evicting ------------------------------------------------------------------ */

/* Have an entry evicted.  The lock is held exclusively. */
static void
Forget(GgDevice *device, uint32 entry)
{
	GgResident *resident = &device->residents[entry];

	switch (resident->state)
	{
		case GG_RESIDENT_FREE:
		case GG_RESIDENT_EVICTING:
			break;
		case GG_RESIDENT_WANTED:
		case GG_RESIDENT_FAILED:
			resident->state = GG_RESIDENT_FREE;
			break;
		case GG_RESIDENT_LOADING:
		case GG_RESIDENT_READY:
			resident->state = GG_RESIDENT_EVICTING;
			for (int i = 0; i < GG_MAX_LOADS; i++)
			{
				GgLoadJob  *job = &device->loads_under_way[i];
				uint64		word = GgReadWord(&job->word);

				if (GgWordState(word) != GG_LOAD_FREE && job->entry == entry &&
					job->use == resident->use)
					GgWordFlag(&job->word, GgWordSerial(word), GG_LOAD_ABORT);
			}
			break;
	}
}

void
GgForgetEntry(GgDevice *device, uint32 entry, uint32 use)
{
	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	if (device->residents[entry].use == use)
		Forget(device, entry);
	LWLockRelease(device->lock);
	GgResidentNotify(device);
}

void
GgForgetLocator(GgDevice *device, const GgRelFileLocator *locator)
{
	uint32		tag = GgFileTag(locator);

	for (uint32 i = 0; i < pg_atomic_read_u32(&device->nresidents); i++)
		if (device->tags[i].file == tag && device->residents[i].state != GG_RESIDENT_FREE &&
			GgSameLocator(&device->residents[i].key.locator, locator))
			Forget(device, i);
}
