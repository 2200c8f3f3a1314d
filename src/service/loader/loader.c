/*
 * loader.c
 *		Dynamic workers that bring an index to a device.
 *
 * A loader connects to the index's database without a role, and looks whether the index is what was
 * asked for.  It describes the index's lists to the worker.  Once memory for them is granted, it
 * reads them unit by unit (unit.c, read_unit.c).  A big index has several readers
 * (gg_loaders), which the first one starts.
 *
 * Locks: AccessShareLock on the index, for one unit at a time.  So DROP, TRUNCATE and REINDEX wait
 * for 4 MB at most.  The next unit then finds another file, or none, and the load ends quietly.
 * While a process waits for the load, the loader keeps the lock from unit to unit.  A statement
 * that wants the index for itself has to wait for that process anyway, and would otherwise come
 * first at every unit.  The first reader's lock of the load lets the deadlock detector see such
 * waits.  All readers are one lock group, since each of them may be the one that the load waits
 * for.
 *
 * handover.c has the steps that loaders and builders share.
 */
#include "service/loader/unit.h"
#include "storage/codes.h"

#include "access/xact.h"
#include "access/relation.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/*
 * Pages of an index that are worth another reader.  20000 pages are 160 MB, for which one reader
 * takes some 0.1 s of CPU time when they are in shared buffers.
 */
#define READER_PAGES		20000

/* gpugraph.fault = load_stall, and load_readers */
#define STALL_US			1000000

/*
 * A loader that waits for a lock looks for a deadlock this soon.  The detector can let the loader
 * go first, and until then every query on the index's table waits, too.
 */
#define LOADER_DEADLOCK_TIMEOUT	"100ms"

/*
 * A loader that has brought a refresh stays this long for the next one, and looks this often
 * whether another session wants its database.
 */
#define STAY_US				1000000
#define STAY_LOOK_MS		100

/* A load that waits this long for a lock ends quietly: a device has but GG_MAX_LOADS. */
#define LOADER_LOCK_TIMEOUT		"10s"

/* ---- shapes -------------------------------------------------------------------- */

/* Does another entry stand for the same index?  The lock is held. */
static bool
IsAskedForTwice(GgDevice *device, const GgLoadJob *job)
{
	for (uint32 i = 0; i < pg_atomic_read_u32(&device->nresidents); i++)
	{
		const GgResident *other = &device->residents[i];

		if (i == job->entry || other->state == GG_RESIDENT_FREE ||
			other->state == GG_RESIDENT_FAILED ||
			!GgSameLocator(&other->key.locator, &job->key.locator))
			continue;
		if (other->key.instance == 0 ||
			(other->key.instance == job->key.instance && other->key.database == job->key.database))
			return true;
	}
	return false;
}

/* Mark what the version to be refreshed has already.  False when there is nothing to load now. */
static bool
MarkKept(GgDevice *device, GgLoadJob *job)
{
	const GgResident *resident = &device->residents[job->entry];
	bool		same;

	LWLockAcquire(device->lock, LW_SHARED);
	same = resident->use == job->use;
	if (same && job->refresh)
	{
		same = resident->state == GG_RESIDENT_READY &&
			resident->key.instance == job->key.instance;
		GgMarkKept(resident, job->key.generation, job);
	}
	else if (same)
	{
		/* an entry made from the list on disk has no instance, so there may be one more */
		same = !IsAskedForTwice(device, job);
	}
	LWLockRelease(device->lock);
	return same;
}

/*
 * gpugraph.fault = load_stall: rest with a unit in hand, which no other reader will bring.  For a
 * second, or as long as this process has the setting, too.
 */
static void
Stall(GgLoad *load, int fault)
{
	uint64		start = GgNowMicros();

	while ((GgNowMicros() - start < STALL_US || gg_fault == fault) && GgLoadIsOpen(load) &&
		   !GgLoadMustStop(load, start))
	{
		GgLoadSleep(GG_LOAD_WAIT_MS);
		GgReloadSettings();
	}
}

/* Take units until there is none left.  False when the load is over. */
static bool
LoadUnits(GgReader *reader, uint32 total)
{
	GgLoadJob  *job = reader->job;
	bool		stalls = job->fault == GG_FAULT_LOAD_STALL || job->fault == GG_FAULT_LOAD_READERS;
	bool		stalled = false;
	uint32		u;
	GgUnit		unit;

	while ((u = GgClaimUnit(job, reader->load->serial, total)) < total)
	{
		if (GgLoadMustStop(reader->load, 0))
			return false;
		if (job->fault == GG_FAULT_LOAD && u >= total / 2)
		{
			GgLoadGiveUp(reader->load, false, 0, "the loader failed, as gpugraph.fault asks for");
			return false;
		}
		if (job->fault == GG_FAULT_LOAD_GAP && u == total / 2)
		{
			GgCountFilled(job, reader->load->serial);
			continue;
		}
		reader->load->in_unit = true;
		if (stalls && u >= total / 2 && !stalled)
		{
			Stall(reader->load, job->fault);
			stalled = true;
		}
		if (!GgFindUnit(job, reader->meta, u, &unit) || !GgBringUnit(reader, &unit))
			return false;
		reader->load->in_unit = false;
	}
	return true;
}

/* ---- the dynamic worker ---------------------------------------------------------------- */

static GgLoad my_load;

/* Has the load been given up, or all of it been handed over? */
static bool
IsThrough(void)
{
	GgLoadState state = GgLoadStateOf(&my_load);

	return state != GG_LOAD_ASSIGNED && state != GG_LOAD_SHAPED && state != GG_LOAD_CREATE &&
		state != GG_LOAD_OPEN;
}

/* The process has nothing more to do with its load: the worker frees it when it has ended. */
static void
LetGo(void)
{
	if (!IsThrough())
		GgLoadGiveUp(&my_load, true, 0, NULL);
	GgWordFlag(&GgLoadJobOf(&my_load)->word, my_load.serial, GG_LOAD_ORPHAN);
	GgResidentNotify(my_load.device);
}

/*
 * This process stays no longer: take the load that it was given.  False: there is none.  Until here
 * the place is this process's, so that nobody takes the load of another.
 */
static bool
TakeGiven(uint64 word)
{
	bool		given = GgStayWordState(word) == GG_STAY_TAKEN;

	if (given)
	{
		my_load.number = GgStayWordLoad(word);
		my_load.serial = GgStayWordWhat(word);
		my_load.over = my_load.in_unit = false;
	}
	pg_atomic_write_u64(&my_load.device->staying.word, GG_STAY_NONE);
	return given;
}

static bool staying = false;

/* Stop staying; true when a load was given to this process first. */
static bool
StopStaying(void)
{
	GgStayingLoader *place = &my_load.device->staying;
	uint64		word = GgStayWord(MyProcPid, 0, GG_STAY_READY);

	staying = false;
	return !pg_atomic_compare_exchange_u64(&place->word, &word, GG_STAY_NONE) && TakeGiven(word);
}

/*
 * However the process ends, its load ends with it, unless the process has brought its part.  The
 * chunk that it fills is given back in any case.
 */
static void
LoaderExit(int code, Datum arg)
{
	if (staying && !StopStaying())
		return;
	if (my_load.filling >= 0)
		GgLoadFreeChunk(&my_load);
	if (my_load.helper && !my_load.in_unit)
		return;
	if (!IsThrough())
		GgLoadGiveUp(&my_load, false, 0, "its loader was terminated");
}

/* bgw_extra of a loader. */
typedef struct LoaderExtra
{
	uint32		serial;
	bool		helper;
	int			leader_pid;		/* helpers: the first reader ... */
	uint32		leader;			/* ... and its PGPROC */
} LoaderExtra;

bool
GgStartLoader(int device, int load, uint32 serial, bool helper, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;
	LoaderExtra extra = {serial, helper, MyProcPid, GgMyProcNumber()};

	GgDescribeWorker(&worker, "gpugraph loader", "GgLoaderMain",
					 Int32GetDatum(device << 8 | load));
	worker.bgw_notify_pid = MyProcPid;
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "gpugraph loader for device %d",
			 gg_service->devices[device]->number);
	memcpy(worker.bgw_extra, &extra, sizeof(extra));
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

static void
StartHelpers(const GgLoad *load, uint64 npages)
{
	const GgLoadJob *job = GgLoadJobOf(load);
	int			readers = gg_loaders;

	if (job->fault != GG_FAULT_LOAD_READERS)
		readers = (int) Min((uint64) readers, npages / READER_PAGES);
	for (int i = 1; i < readers; i++)
		if (!GgStartLoader(load->device_number, load->number, load->serial, true, NULL))
			break;				/* fewer have to do */
}

/*
 * Describe the load, for the worker to see whether there is room.  False, and the load is given
 * up, when the index is another than was asked for, or there is nothing to load.
 */
static bool
Describe(GgReader *reader, Relation index)
{
	GgLoad	   *load = reader->load;
	GgLoadJob  *job = reader->job;
	GgResidentKey wanted = job->key;

	/* the wait for locks may outlast the device's worker, and the place be another load's by now */
	if (GgLoadStateOf(load) != GG_LOAD_ASSIGNED)
		return false;
	GgLoadDescribe(job, index, reader->meta, GgReadMean(index, reader->meta));
	if ((wanted.instance != 0 && (wanted.instance != job->key.instance ||
								  wanted.database != job->key.database)) ||
		!MarkKept(load->device, job))
	{
		GgLoadGiveUp(load, true, 0, NULL);
		return false;
	}
	pg_write_barrier();
	return GgWordMove(&job->word, load->serial, GG_LOAD_ASSIGNED, GG_LOAD_SHAPED);
}

/* Open the index and read its metapage; the first reader also describes the load.  False: stop. */
static bool
Prepare(GgReader *reader)
{
	GgLoadJob  *job = reader->job;
	bool		helper = reader->load->helper;
	bool		ok;
	Relation	index;

	index = GgOpenLoaded(job->relation,
						 helper || job->key.instance != 0 ? &job->key.locator : NULL);
	if (index == NULL)
	{
		if (!helper)
			GgLoadGiveUp(reader->load, true, 0, NULL);
		return false;
	}
	GgReadMeta(index, reader->meta);
	pgstat_report_activity(STATE_RUNNING, RelationGetRelationName(index));
	if (RelationGetNumberOfBlocks(index) > NBuffers / 4)
		reader->strategy = GetAccessStrategy(BAS_BULKREAD);
	if (helper)
	{
		/* if it is another index by now, the first reader finds out itself */
		ok = job->key.instance == reader->meta->instance &&
			job->key.generation == reader->meta->generation;
	}
	else
		ok = Describe(reader, index);
	relation_close(index, AccessShareLock);
	InvalidateCatalogSnapshot();
	return ok;
}

/* All of a loader's work.  A helper's load was described and opened by the first reader. */
static void
Load(GgLoad *load)
{
	GgLoadJob  *job = GgLoadJobOf(load);
	GgReader	reader = {.load = load, .job = job};
	uint64		npages;
	uint32		total;

	reader.meta = palloc(sizeof(GgMetaPageData));
	reader.lock = GgLoadLock(job->relation, job->use, load->device_number);
	if (!load->helper)
	{
		(void) LockAcquire(&reader.lock, ExclusiveLock, false, false);
		BecomeLockGroupLeader();
	}
	if (!Prepare(&reader))
		return;

	/* until the load is open, the worker may leave lists out */
	if (!load->helper && !GgLoadWaitUntilOpen(load))
		return;
	total = GgCountUnits(job, reader.meta, &npages);
	if (!load->helper && total > 1)
		StartHelpers(load, npages);
	if (!LoadUnits(&reader, total) || load->helper)
		return;

	/* helpers may have units in hand */
	while (GgLoadIsOpen(load) && (uint32) pg_atomic_read_u64(&job->filled) < total &&
		   !GgLoadMustStop(load, 0))
		GgLoadSleep(1);
	if (GgLoadIsOpen(load))
		GgWordMove(&job->word, load->serial, GG_LOAD_OPEN, GG_LOAD_FINISH);
}

/* Does another session want the database for itself?  To be called outside of transactions. */
static bool
MustLeave(void)
{
	bool		wanted;

	StartTransactionCommand();
	wanted = GgDatabaseIsWanted();
	CommitTransactionCommand();
	return wanted;
}

/*
 * Wait for another load, which becomes my_load; false when none came.  One loader of a device
 * stays at a time.
 */
static bool
StayForLoad(void)
{
	static uint32 wait_event = 0;
	GgStayingLoader *place = &my_load.device->staying;
	uint64		none = GG_STAY_NONE;
	uint64		start = GgNowMicros();
	uint64		word;

	if (!pg_atomic_compare_exchange_u64(&place->word, &none, GG_STAY_COMING))
		return false;
	place->database = MyDatabaseId;
	place->procno = GgMyProcNumber();
	pg_write_barrier();
	staying = true;
	pg_atomic_write_u64(&place->word, GgStayWord(MyProcPid, 0, GG_STAY_READY));
	pgstat_report_activity(STATE_IDLE, NULL);
	do
	{
		if (ProcDiePending || GgNowMicros() - start > STAY_US || MustLeave() ||
			!GgDeviceIsUp(my_load.device))
			return StopStaying();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, STAY_LOOK_MS,
						 GgWaitEvent(wait_event, "GpugraphStay"));
		ResetLatch(MyLatch);
		if (!ProcDiePending)
			CHECK_FOR_INTERRUPTS();
		GgReloadSettings();
		word = pg_atomic_read_u64(&place->word);
	} while (GgStayWordState(word) == GG_STAY_READY);
	staying = false;
	return TakeGiven(word);
}

/*
 * Bring my_load.  An error goes to the worker, which logs it, and false is returned: the process
 * is to end without another word.
 */
static bool
RunLoad(void)
{
	StartTransactionCommand();
	PG_TRY();
	{
		Load(&my_load);
	}
	PG_CATCH();
	{
		ErrorData  *edata;
		char		error[GG_LOAD_ERROR];

		MemoryContextSwitchTo(TopMemoryContext);
		edata = CopyErrorData();
		FlushErrorState();
		snprintf(error, sizeof(error), "%s", edata->message);
		if (!my_load.helper || my_load.in_unit)
			GgLoadGiveUp(&my_load, edata->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE,
						 edata->sqlerrcode, error);
		AbortCurrentTransaction();
		return false;
	}
	PG_END_TRY();
	CommitTransactionCommand();
	return true;
}

void
GgLoaderMain(Datum arg)
{
	LoaderExtra extra;
	int			number = DatumGetInt32(arg) >> 8;
	int			load = DatumGetInt32(arg) & 0xFF;
	GgLoadJob  *job;

	memcpy(&extra, MyBgworkerEntry->bgw_extra, sizeof(extra));
	if (gg_service == NULL || number >= gg_service->ndevices)
		return;
	my_load.device = gg_service->devices[number];
	my_load.device_number = number;
	my_load.number = load;
	my_load.serial = extra.serial;
	my_load.filling = -1;
	my_load.helper = extra.helper;
	job = GgLoadJobOf(&my_load);
	if (GgLoadStateOf(&my_load) == GG_LOAD_FREE)
		return;
	/*
	 * A helper joins before it takes any lock, as parallel workers do.  Without its first reader
	 * the load is over.
	 */
	if (extra.helper && !BecomeLockGroupMember(GetPGProcByNumber(extra.leader), extra.leader_pid))
		return;
	before_shmem_exit(LoaderExit, (Datum) 0);

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(job->database, InvalidOid, 0);

	/*
	 * PostgreSQL has this setting from 17 on.  It is meant for clients' transactions, and would end
	 * every load that takes longer, again and again.
	 */
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("deadlock_timeout", LOADER_DEADLOCK_TIMEOUT, PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", LOADER_LOCK_TIMEOUT, PGC_SUSET, PGC_S_OVERRIDE);

	while (RunLoad() && !my_load.helper && job->refresh)
	{
		LetGo();
		if (!StayForLoad())
			break;
		job = GgLoadJobOf(&my_load);
	}
}
