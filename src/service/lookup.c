/*
 * lookup.c
 *		Is an index on a device?  The table of residents as backends see it; prewarm and evict.
 *
 * A backend looks up (locator, instance) in each device's table, under its lock in share mode: a few comparisons
 * for tables as short as these.  It writes nothing there but the time of use and, by compare-and-swap, that a refresh is
 * wanted.  A request for a load takes the lock exclusively, makes an entry WANTED, and wakes the worker; everything else is
 * done there (resident.c, resident_load.c).
 *
 * What a copy may be used for:
 *
 *	same generation			all of it: segments, and the delta's pages that it covers.  Later delta pages are the
 *							scan's own affair.
 *	another generation, but the same segments in the same order
 *							the segments: they are immutable.  Not the delta, whose pages are numbered from another
 *							start.
 *	other segments			nothing.
 *
 * And when it is to be refreshed: when it is of an older generation; when VACUUM has cleared rows of the delta (they
 * would take the place of others in the answer); when the delta has grown by so much that the scan's own part becomes
 * noticeable.  A refresh reads all of the delta again, so it must not come more often than a twentieth of the time can pay
 * for.
 */
#include "service/resident.h"

#include <sys/stat.h>

#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "storage/inspect.h"

/*
 * Delta pages not covered by the copy from which on it is refreshed: so many, or fewer when they are a tenth of those
 * covered.  64 pages of 128 dimensions are 960 rows, which a scan measures in some 0.1 ms.
 */
#define REFRESH_PAGES		64
#define REFRESH_MIN_PAGES	8
#define REFRESH_SHARE		10

/*
 * A refresh comes no earlier than this many times what loading the delta took last, and no earlier than this.  Only the latter
 * where the copy is of no use at all, because the index has other segments by now.
 */
#define REFRESH_PATIENCE	20
#define REFRESH_MIN_MS		100

/*
 * A full table: a place changes hands no more often than this, and only from one who has had it for GG_REST times his load
 * time, unless a maintainer asks.  Where more indexes than there are places are queried in turn,
 * each query of one that has none would otherwise push another one out.
 */
#define DISPLACE_US			1000000

/* How often those who wait for a load look. */
#define LOOK_MS				2

/* So long gpugraph_prewarm() waits for a worker that opens its device: several GPUs' contexts take seconds, no driver at all none. */
#define START_US			30000000

/* Who wants an index to be loaded. */
typedef enum Asker
{
	ASKED_BY_QUERY,
	ASKED_BY_USER,				/* gpugraph_prewarm(): now, whatever failed a moment ago */
	ASKED_BY_MAINTAINER			/* likewise, also at the cost of what others have just loaded */
} Asker;

/* What stands in the way of a hit. */
typedef struct Obstacle
{
	bool		failed;			/* a load or refresh failed after since_us */
	GgReason	reason;
	char		error[160];
	uint32		use;			/* of the index's entry; 0 when there is none */
	int			device;			/* where that is */
} Obstacle;

void
GgLoadSleep(long timeout_ms)
{
	static uint32 wait_event = 0;

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms,
					 GgWaitEvent(wait_event, "GpugraphLoad"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

void
GgResidentNotify(GgDevice *device)
{
	pg_atomic_write_u32(&device->work, 1);
	GgWakeDevice(device);
}

static inline bool
IsUp(GgDevice *device)
{
	return pg_atomic_read_u32(&device->state) == GG_DEVICE_UP;
}

/* Is there a worker on its way?  It opens its device before it is up, which takes a driver some tenths of a second. */
static bool
IsStarting(void)
{
	for (int i = 0; i < gg_service->ndevices; i++)
	{
		GgDevice   *device = gg_service->devices[i];

		if (device != NULL && pg_atomic_read_u32(&device->state) == GG_DEVICE_DOWN &&
			(device->pid != 0 || pg_atomic_read_u64(&device->epoch) == 0))
			return true;
	}
	return false;
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

		if (device == NULL || !IsUp(device))
			continue;
		room = (int64) device->limit_bytes - (int64) device->stats.resident_bytes;
		if (best == NULL || room > best_room)
		{
			best = device;
			best_room = room;
			*number = i;
		}
	}
	return best;
}

/* ---- the table ----------------------------------------------------------- */

/*
 * When the database's directory was made, and where: its file PG_VERSION is written then and never again.  That is the same on
 * a standby, where no process of ours hears of DROP DATABASE.
 */
static uint64
StampDatabase(void)
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
		return 0;
	made.inode = st.st_ino;
	made.seconds = st.st_mtim.tv_sec;
	made.nanoseconds = st.st_mtim.tv_nsec;
	return hash_bytes_extended((const unsigned char *) &made, sizeof(made), 0);
}

static uint64 database_stamp = 0;

uint64
GgDatabaseStamp(void)
{
	if (database_stamp == 0)
		database_stamp = StampDatabase();
	return database_stamp;
}

/* The entry of a relation's file; -1 when there is none.  The lock is held. */
static int
FindEntry(GgDevice *device, const GgRelFileLocator *locator, uint64 instance, uint64 database)
{
	static uint32 hint = 0;		/* most backends ask for one index all the time */
	uint32		n = pg_atomic_read_u32(&device->nresidents);

	for (uint32 i = 0; i <= n; i++)
	{
		uint32		entry = i == 0 ? hint : i - 1;
		GgResident *resident = &device->residents[entry];

		if (resident->state != GG_RESIDENT_FREE && GgSameLocator(&resident->key.locator, locator) &&
			((resident->key.instance == instance && resident->key.database == database) ||
			 resident->key.instance == 0))
		{
			hint = entry;
			return entry;
		}
	}
	return -1;
}

/* Have the resident that was used longest ago make its place in the table free, if that may be. */
static void
Displace(GgDevice *device, bool forced)
{
	uint64		now_us = GgNowMicros();
	int			victim = -1;

	if (!forced && now_us < device->displaced_us + DISPLACE_US)
		return;
	for (int i = 0; i < GG_MAX_RESIDENT; i++)
	{
		/* one place is on its way already, and will do for all who ask meanwhile */
		if (device->residents[i].state == GG_RESIDENT_EVICTING)
			return;
		if (device->residents[i].state == GG_RESIDENT_READY && (forced || GgHasRested(&device->residents[i], now_us)) &&
			(victim < 0 || pg_atomic_read_u64(&device->residents[i].used) <
			 pg_atomic_read_u64(&device->residents[victim].used)))
			victim = i;
	}
	if (victim < 0)
		return;
	device->residents[victim].state = GG_RESIDENT_EVICTING;
	device->displaced_us = now_us;
}

int
GgTakeEntry(GgDevice *device, bool forced)
{
	int			best = -1;
	GgResident *resident;

	for (int i = 0; i < GG_MAX_RESIDENT; i++)
		if (device->residents[i].state == GG_RESIDENT_FREE)
		{
			best = i;
			break;
		}
	for (int i = 0; best < 0 && i < GG_MAX_RESIDENT; i++)
		if (device->residents[i].state == GG_RESIDENT_FAILED)
			best = i;
	if (best < 0)
	{
		/* none to be had now, but maybe soon */
		Displace(device, forced);
		return -1;
	}

	resident = &device->residents[best];
	memset(resident, 0, sizeof(GgResident));
	pg_atomic_init_u32(&resident->refresh, 0);
	pg_atomic_init_u64(&resident->used, pg_atomic_fetch_add_u64(&device->clock, 1));
	resident->use = ++device->last_use;
	if ((uint32) best >= pg_atomic_read_u32(&device->nresidents))
		pg_atomic_write_u32(&device->nresidents, best + 1);
	return best;
}

int
GgTakeLoad(GgDevice *device, int entry, bool refresh, int owner)
{
	GgResident *resident = &device->residents[entry];

	for (int i = 0; i < GG_MAX_LOADS; i++)
	{
		GgLoadJob  *job = &device->loads_under_way[i];
		uint64		word = pg_atomic_read_u64(&job->word);
		uint32		serial = GgLoadWordSerial(word) + 1;

		if (GgLoadWordState(word) != GG_LOAD_FREE)
			continue;
		memset((char *) job + offsetof(GgLoadJob, entry), 0, sizeof(GgLoadJob) - offsetof(GgLoadJob, entry));
		job->entry = entry;
		job->use = resident->use;
		job->refresh = refresh;
		job->owner = owner;
		job->forced = resident->forced;
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
		pg_atomic_write_u64(&job->word, ((uint64) serial << 8) | GG_LOAD_ASSIGNED);
		return i;
	}
	return -1;
}

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
				uint64		word = GgLoadWord(job);

				if (GgLoadWordState(word) != GG_LOAD_FREE && job->entry == entry && job->use == resident->use)
					GgLoadFlag(job, GgLoadWordSerial(word), GG_LOAD_ABORT);
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

/*
 * What other relations that had the file's number left here: the worker finds dropped files by their absence, and this one is there
 * again.  The lock is held exclusively.
 */
static void
ForgetPredecessors(GgDevice *device, const GgRelFileLocator *locator)
{
	for (uint32 i = 0; i < pg_atomic_read_u32(&device->nresidents); i++)
		if (device->residents[i].state != GG_RESIDENT_FREE && GgSameLocator(&device->residents[i].key.locator, locator))
			Forget(device, i);
}

/* Make a WANTED entry, or a failed one WANTED again. */
static void
Request(GgDevice *device, Relation index, const GgMetaPageData *meta, Asker asker)
{
	bool		forced = asker == ASKED_BY_MAINTAINER;
	int			entry;

	/* should a tool have touched that file: all have to agree on it, or each would ask for a load in vain */
	database_stamp = StampDatabase();

	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	entry = FindEntry(device, &GgLocator(index), meta->instance, database_stamp);
	if (entry < 0)
	{
		ForgetPredecessors(device, &GgLocator(index));
		entry = GgTakeEntry(device, forced);
		if (entry >= 0)
		{
			GgResident *resident = &device->residents[entry];

			resident->key.locator = GgLocator(index);
			resident->key.instance = meta->instance;
			resident->key.database = database_stamp;
			resident->key.generation = meta->generation;
			resident->database = MyDatabaseId;
			resident->relation = RelationGetRelid(index);
			strlcpy(resident->name, RelationGetRelationName(index), sizeof(resident->name));
			resident->forced = forced;
			resident->fault = gg_fault;
			resident->state = GG_RESIDENT_WANTED;
		}
	}
	else if (device->residents[entry].state == GG_RESIDENT_FAILED)
	{
		device->residents[entry].forced = forced;
		device->residents[entry].fault = gg_fault;
		device->residents[entry].state = GG_RESIDENT_WANTED;
	}
	LWLockRelease(device->lock);
	GgResidentNotify(device);
}

/* ---- what a copy can be used for ------------------------------------------ */

static bool
SameSegments(const GgResident *resident, const GgMetaPageData *meta)
{
	if (resident->nsegments != meta->nsegments)
		return false;
	for (int i = 0; i < meta->nsegments; i++)
		if (resident->segments[i] != meta->segments[i].id)
			return false;
	return true;
}

static uint32
UncoveredPages(const GgResident *resident, const GgMetaPageData *meta)
{
	uint32		full = GgFullDeltaPages(meta);

	return full > resident->delta_pages ? full - resident->delta_pages : 0;
}

/* Does the copy say all that can be said of the index now? */
static bool
IsCurrent(const GgResident *resident, const GgMetaPageData *meta)
{
	return resident->key.generation >= meta->generation &&
		(resident->key.generation > meta->generation ||
		 ((resident->delta_pages == 0 || resident->vacuum_epoch >= meta->vacuum_epoch) &&
		  UncoveredPages(resident, meta) == 0));
}

static void
AskForRefresh(GgDevice *device, GgResident *resident, const GgMetaPageData *meta, Asker asker)
{
	uint32		none = 0;

	if (pg_atomic_read_u32(&resident->refresh) != 0 || IsCurrent(resident, meta))
		return;
	if (asker == ASKED_BY_QUERY)
	{
		uint64		now;
		uint64		patience_us = REFRESH_MIN_MS * UINT64CONST(1000);

		/* a new generation, or rows cleared, in any case; a longer delta when it pays */
		if (resident->key.generation == meta->generation &&
			(resident->delta_pages == 0 || resident->vacuum_epoch >= meta->vacuum_epoch))
		{
			uint32		uncovered = UncoveredPages(resident, meta);

			if (uncovered < REFRESH_PAGES &&
				(uncovered < REFRESH_MIN_PAGES || uncovered < resident->delta_pages / REFRESH_SHARE))
				return;
		}
		if (resident->key.generation == meta->generation || SameSegments(resident, meta))
			patience_us = Max(patience_us, (uint64) (resident->delta_s * 1e6 * REFRESH_PATIENCE));
		now = GgNowMicros();
		if (now < resident->retry_us || now < resident->refreshed_us + patience_us)
			return;
	}
	if (pg_atomic_compare_exchange_u32(&resident->refresh, &none, GG_REFRESH_WANTED))
	{
		/* nobody but the winner writes these; a load copies them once it sees WANTED */
		resident->fault = gg_fault;
		resident->forced = asker == ASKED_BY_MAINTAINER;
		GgResidentNotify(device);
	}
}

/* A READY entry: true when the scan can use it. */
static bool
UseReady(GgDevice *device, int number, uint32 entry, const GgMetaPageData *meta, Asker asker,
		 GgResidentRef *ref, GgReason *reason)
{
	GgResident *resident = &device->residents[entry];

	AskForRefresh(device, resident, meta, asker);
	if (resident->key.generation != meta->generation && !SameSegments(resident, meta))
	{
		if (resident->key.generation > meta->generation)
			*reason = GG_REASON_NOT_RESIDENT;
		else if (resident->failures > 0 && pg_atomic_read_u32(&resident->refresh) == 0)
			*reason = resident->reason;	/* or who waits for a load would wait for ever */
		else
			*reason = GG_REASON_LOADING;
		return false;
	}
	pg_atomic_write_u64(&resident->used, pg_atomic_fetch_add_u64(&device->clock, 1) + 1);
	ref->device = number;
	ref->entry = entry + resident->copy * GG_MAX_RESIDENT;
	ref->serial = resident->serial;
	ref->nsegments = resident->nsegments;

	/*
	 * A copy made since the scan read the metapage may cover pages that the scan does not know: it measures
	 * the delta itself then.
	 */
	ref->delta_pages = 0;
	if (resident->key.generation == meta->generation && resident->delta_first == meta->delta_first &&
		resident->delta_pages <= meta->delta_pages)
		ref->delta_pages = resident->delta_pages;
	return true;
}

/* One look.  since_us: failures before it are of no interest, the load is asked for again; 0: they are. */
static bool
LookupOnce(Relation index, const GgMetaPageData *meta, Asker asker, uint64 since_us,
		   GgResidentRef *ref, Obstacle *obstacle)
{
	uint64		database = GgDatabaseStamp();
	GgDevice   *device;
	GgDevice   *retry = NULL;	/* a load failed there, long enough ago */
	bool		tried[GG_MAX_DEVICES] = {false};	/* a load failed there */
	bool		up = false;
	bool		failed = false;
	int			number;

	obstacle->failed = false;
	obstacle->reason = GG_REASON_FAILED;
	obstacle->use = 0;
	for (number = 0; number < gg_service->ndevices; number++)
	{
		bool		hit = false;
		bool		over = false;
		int			entry;

		device = gg_service->devices[number];
		if (device == NULL || !IsUp(device))
			continue;
		up = true;
		LWLockAcquire(device->lock, LW_SHARED);
		entry = FindEntry(device, &GgLocator(index), meta->instance, database);
		if (entry >= 0)
		{
			GgResident *resident = &device->residents[entry];

			obstacle->use = resident->use;
			obstacle->device = number;
			switch (resident->state)
			{
				case GG_RESIDENT_READY:
					/* who is about to report that the refresh failed must not start one more */
					hit = UseReady(device, number, entry, meta,
								   since_us == 0 || resident->failed_us < since_us ?
								   asker : ASKED_BY_QUERY, ref, &obstacle->reason);
					break;
				case GG_RESIDENT_FAILED:
					tried[number] = failed = true;
					obstacle->reason = resident->reason;
					if (since_us != 0 ? resident->failed_us < since_us : GgNowMicros() >= resident->retry_us)
						retry = device;
					break;
				case GG_RESIDENT_EVICTING:
					obstacle->reason = GG_REASON_NOT_RESIDENT;
					break;
				default:
					obstacle->reason = GG_REASON_LOADING;
					break;
			}
			over = resident->state != GG_RESIDENT_FAILED;
			if (since_us != 0 && resident->failed_us >= since_us)
			{
				obstacle->failed = true;
				strlcpy(obstacle->error, resident->error, sizeof(obstacle->error));
			}
		}
		LWLockRelease(device->lock);
		/* where a load failed does not matter if another device has the index */
		if (over)
			return hit;
	}

	if (!up)
	{
		obstacle->reason = GG_REASON_NO_SERVICE;
		return false;
	}

	/* the device with most room, or where it failed lately, one that may be tried again */
	device = GgChooseDevice(&number);
	if (device != NULL && tried[number])
		device = retry;
	if (device != NULL)
	{
		Request(device, index, meta, asker);
		obstacle->reason = GG_REASON_LOADING;
	}
	else if (!failed)
		obstacle->reason = GG_REASON_LOADING;
	return false;
}

/* Can there be a copy at all? */
static bool
CanBeResident(Relation index, const GgMetaPageData *meta, GgReason *reason)
{
	uint64		rows;

	if (gg_service == NULL)
	{
		*reason = GG_REASON_NO_SERVICE;
		return false;
	}
	if (RelationUsesLocalBuffers(index) || index->rd_createSubid != InvalidSubTransactionId ||
		GgFirstLocatorSubid(index) != InvalidSubTransactionId)
	{
		*reason = GG_REASON_LOCAL;
		return false;
	}
	rows = GgFullDeltaPages(meta);
	for (int i = 0; i < meta->nsegments; i++)
		rows += meta->segments[i].nodes;
	if (rows == 0)
	{
		*reason = GG_REASON_SMALL;
		return false;
	}
	return true;
}

/*
 * The transaction that has locked the index for itself keeps the loader out, too.  It must not
 * wait for what cannot come.
 */
static bool
KeepsLoadersOut(Relation index)
{
	return CheckRelationLockedByMe(index, AccessExclusiveLock, false);
}

/*
 * Wait until the load of an entry may have ended.  The wait is for the lock of the load, so that
 * the deadlock detector knows of it: our own lock on the index may be what somebody waits for,
 * behind whom the loader waits.  Where nobody holds the lock, the loader is still to start, or
 * what is left is for the service's worker to do, which waits for no lock: a short sleep will do
 * then.
 */
static void
WaitForLoad(Relation index, const Obstacle *obstacle)
{
	LOCKTAG		tag = GgLoadLock(RelationGetRelid(index), obstacle->use, obstacle->device);

	if (obstacle->use != 0)
	{
		if (LockAcquire(&tag, ShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		{
			/* lock_timeout is meant for waits of another kind */
			int			level = NewGUCNestLevel();

			(void) set_config_option("lock_timeout", "0", PGC_USERSET, PGC_S_SESSION,
									 GUC_ACTION_SAVE, true, 0, false);
			(void) LockAcquire(&tag, ShareLock, false, false);
			AtEOXact_GUC(true, level);
		}
		LockRelease(&tag, ShareLock, false);
	}
	GgLoadSleep(LOOK_MS);
}

bool
GgResidentLookup(Relation index, const GgMetaPageData *meta, GgResidentRef *ref, GgReason *reason)
{
	Obstacle	obstacle;

	if (!CanBeResident(index, meta, reason))
		return false;
	for (;;)
	{
		if (LookupOnce(index, meta, ASKED_BY_QUERY, 0, ref, &obstacle))
			return true;
		if (gg_engine_setting != GG_ENGINE_CUDA || obstacle.reason != GG_REASON_LOADING)
			break;
		if (KeepsLoadersOut(index))
		{
			obstacle.reason = GG_REASON_LOCAL;
			break;
		}
		WaitForLoad(index, &obstacle);
	}
	*reason = obstacle.reason;
	return false;
}

/* ---- SQL ----------------------------------------------------------------------- */

static void
ReportNoService(void)
{
	if (gg_service == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the gpugraph service is not running"),
				 errhint("Add gpugraph to shared_preload_libraries, let gpugraph.devices name a device, and restart the server.")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("no device of the gpugraph service is up"),
			 errhint("See gpugraph_stat_device and the server log.")));
}

static void
ReportLocal(Relation index)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("index \"%s\" can only be read by this session",
					RelationGetRelationName(index)),
			 errdetail("It is temporary, or was created or locked by this transaction."),
			 errhint("Try again once the transaction has committed.")));
}

PG_FUNCTION_INFO_V1(gpugraph_prewarm);

/*
 * The locks are held while waiting, so that the index stays what it is; the metapage is read again each time, as inserts
 * and VACUUM go on.
 */
Datum
gpugraph_prewarm(PG_FUNCTION_ARGS)
{
	GgInspected inspected;
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	uint64		began_us = GgNowMicros();
	Asker		asker = GgMayMaintainAll(GetUserId()) ? ASKED_BY_MAINTAINER : ASKED_BY_USER;
	GgResidentRef ref;
	Obstacle	obstacle;
	GgReason	reason;
	uint64		bytes = 0;

	GgOpenInspected(PG_GETARG_OID(0), GG_READ_INDEX, &inspected);
	for (;;)
	{
		GgReadMeta(inspected.index, meta);
		if (!CanBeResident(inspected.index, meta, &reason))
		{
			if (reason == GG_REASON_NO_SERVICE)
				ReportNoService();
			if (reason == GG_REASON_LOCAL)
				ReportLocal(inspected.index);
			break;				/* empty: there is nothing to bring */
		}
		if (LookupOnce(inspected.index, meta, asker, began_us, &ref, &obstacle))
		{
			GgDevice   *device = gg_service->devices[ref.device];
			GgResident *resident = &device->residents[ref.entry % GG_MAX_RESIDENT];
			bool		current;

			/* with rows arriving all the time, a refresh that began after us is enough */
			LWLockAcquire(device->lock, LW_SHARED);
			current = resident->serial == ref.serial &&
				(IsCurrent(resident, meta) ||
				 (resident->key.generation == meta->generation && resident->began_us >= began_us));
			bytes = resident->bytes;
			LWLockRelease(device->lock);
			if (current)
				break;
		}
		else if (obstacle.reason == GG_REASON_NO_SERVICE &&
				 (!IsStarting() || GgNowMicros() - began_us > START_US))
			ReportNoService();
		if (obstacle.failed)
			ereport(ERROR,
					(errcode(obstacle.reason == GG_REASON_MEMORY ? ERRCODE_OUT_OF_MEMORY : ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("could not load index \"%s\" onto the device", RelationGetRelationName(inspected.index)),
					 errdetail("%s", obstacle.error)));
		if (KeepsLoadersOut(inspected.index))
			ReportLocal(inspected.index);
		WaitForLoad(inspected.index, &obstacle);
	}
	GgCloseInspected(&inspected);
	PG_RETURN_INT64((int64) bytes);
}

/* Of all devices, what is held or wanted of a relation's file; true when there was something. */
static bool
EvictLocator(const GgRelFileLocator *locator, bool *pending)
{
	bool		found = false;

	*pending = false;
	for (int i = 0; i < gg_service->ndevices; i++)
	{
		GgDevice   *device = gg_service->devices[i];

		if (device == NULL || !IsUp(device))
			continue;
		for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
		{
			GgResident *resident = &device->residents[entry];
			GgResidentState state;
			uint32		use;
			bool		same;

			LWLockAcquire(device->lock, LW_SHARED);
			state = resident->state;
			use = resident->use;
			same = state != GG_RESIDENT_FREE && GgSameLocator(&resident->key.locator, locator);
			LWLockRelease(device->lock);
			if (!same)
				continue;
			if (state == GG_RESIDENT_READY || state == GG_RESIDENT_LOADING || state == GG_RESIDENT_EVICTING)
				*pending = true;
			found |= state == GG_RESIDENT_READY || state == GG_RESIDENT_LOADING;
			GgForgetEntry(device, entry, use);
		}
	}
	return found;
}

PG_FUNCTION_INFO_V1(gpugraph_evict);

Datum
gpugraph_evict(PG_FUNCTION_ARGS)
{
	GgInspected inspected;
	GgRelFileLocator locator;
	bool		found;
	bool		pending;

	GgOpenInspected(PG_GETARG_OID(0), GG_READ_INDEX, &inspected);
	if (!GgMayMaintain(RelationGetRelid(inspected.heap), GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX, RelationGetRelationName(inspected.index));
	locator = GgLocator(inspected.index);
	GgCloseInspected(&inspected);

	if (gg_service == NULL)
		PG_RETURN_BOOL(false);
	found = EvictLocator(&locator, &pending);

	/* memory is given back once the last batch in flight has ended; what is asked for anew meanwhile is not ours to wait for */
	for (int i = 0; pending && i < 1000; i++)
	{
		GgLoadSleep(LOOK_MS);
		pending = false;
		for (int d = 0; d < gg_service->ndevices; d++)
		{
			GgDevice   *device = gg_service->devices[d];

			if (device == NULL || !IsUp(device))
				continue;
			LWLockAcquire(device->lock, LW_SHARED);
			for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
				if (device->residents[entry].state == GG_RESIDENT_EVICTING &&
					GgSameLocator(&device->residents[entry].key.locator, &locator))
					pending = true;
			LWLockRelease(device->lock);
		}
	}
	PG_RETURN_BOOL(found);
}
