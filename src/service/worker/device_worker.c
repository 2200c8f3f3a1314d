/*
 * device_worker.c
 *		The life of a device's worker: start, loop, end.
 *
 * The worker owns the device's context; no other process searches with a context of its own.  It
 * has no database connection, and reads nothing of PostgreSQL's but shared memory, so it runs on a
 * hot standby, too.
 *
 * device_error.c says when it starts again after an error.  Only an exit with status 0 or 1 leaves
 * the server up, so nothing here may crash on the way out: a driver's destructors are not run after
 * its device is lost.  When the device hangs, watchdog.c ends the worker.
 *
 * Threads that the driver or an engine starts have all signals blocked, so PostgreSQL's handlers
 * run in this thread only.
 */
#include "service/worker/watchdog.h"

#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/s_lock.h"

/*
 * How long to look for work before sleeping: being woken costs the next query some 10 us or more.
 * A client that comes back after some 100 us of its own work is worth waiting for; one that seldom
 * comes back is not.
 */
#define SPIN_LEAST_US		50
#define SPIN_MOST_US		500

#define SLEEP_MOST_MS		1000

/* ---- the end ---------------------------------------------------------------- */

static void
LeaveService(int code, Datum arg)
{
	GgWorker   *worker = (GgWorker *) DatumGetPointer(arg);
	GgDevice   *device = worker->device;

	pg_atomic_write_u32(&device->state,
						worker->gone ? GG_DEVICE_GONE :
						worker->lost ? GG_DEVICE_BROKEN : GG_DEVICE_DOWN);
	device->pid = 0;
	device->latch = NULL;
	pg_memory_barrier();
	LWLockReleaseAll();
	GgDispatchStop(worker);

	/* last, because a successor may start at once; where there is no place for one, the postmaster
	 * starts this worker again */
	if (worker->quiet_end)
		worker->quiet_end = GgStartWorker(device);

	/* calls into a lost device may never return, nor into one whose batches do not end */
	if (worker->server != NULL && !worker->lost)
		worker->lost = !GgDispatchDrain(worker);
	if (!worker->lost)
	{
		GgWatchedSteps(GG_WATCHED_MAIN);
		GgResidentStop(worker);
		if (worker->server != NULL)
			worker->engine->serve_close(worker->server);
		worker->engine->release();
	}
	GgWatchdogEnd();
}

/* The last callback of all: PostgreSQL has left shared memory properly.  Where the device is lost,
 * the driver's destructors are skipped. */
static void
SkipDestructors(int code, Datum arg)
{
	const GgWorker *worker = (GgWorker *) DatumGetPointer(arg);

	if (worker->lost)
		_exit(worker->quiet_end ? 0 : code);
}

/* ---- the start ---------------------------------------------------------------- */

/* Wait on the latch, and end the process when that is asked for. */
static void
Sleep(long timeout_ms)
{
	static uint32 wait_event = 0;

	GgWatchedTurns(GG_WATCHED_MAIN);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms,
					 GgWaitEvent(wait_event, "GpugraphService"));
	GgWatchedTurns(GG_WATCHED_MAIN);
	ResetLatch(MyLatch);
	if (ShutdownRequestPending)
		proc_exit(1);
	GgReloadSettings();
}

static void
WaitForBreaker(GgDevice *device)
{
	for (;;)
	{
		uint64		now = GgNowMicros();

		if (now >= device->not_before_us)
			return;
		pg_atomic_write_u32(&device->state, GG_DEVICE_BROKEN);
		Sleep(Min((device->not_before_us - now) / 1000 + 1, SLEEP_MOST_MS));
	}
}

/* The device is not there while others are: end for good, unless it was there before. */
static gg_status
NotThere(GgWorker *worker, int count)
{
	if (worker->device->up_since_us > 0)
		return gg_fail(GG_ENODEVICE, "the driver", "device %d is not there: %d found",
					   worker->device->number, count);
	ereport(LOG,
			(errmsg("gpugraph device %d is not there: %d found", worker->device->number, count),
			 errhint("Name the devices to use in gpugraph.devices.")));
	worker->lost = worker->gone = true; /* nothing was opened */
	proc_exit(0);
}

static gg_status
OpenDevice(GgWorker *worker)
{
	GgDevice   *device = worker->device;
	const gg_engine *engine = worker->engine;
	gg_device_info info;
	gg_serve_layout layout;
	gg_status	status;
	int			count;

	if (gg_fault == GG_FAULT_NO_DRIVER)
		return gg_fail(GG_ENODEVICE, "gpugraph.fault", "no driver");
	status = engine->probe(GG_USE_SEARCH);
	if (status.code == GG_OK)
		status = engine->device_count(&count);
	if (status.code != GG_OK)
		return status;
	/* for tests: the GPUs that are there play as many as gpugraph.devices names */
	device->ordinal = device->number;
	if (getenv("GPUGRAPH_SAME_GPU") != NULL && count > 0)
		device->ordinal = device->number % count;
	if (gg_fault == GG_FAULT_NO_DEVICE ||
		(device->ordinal >= count && gg_service_engine != GG_SERVICE_CPU))
		return NotThere(worker, count);
	if (gg_fault == GG_FAULT_OLD_DEVICE && device->number > 0)
		return gg_fail(GG_ENODEVICE, "gpugraph.fault", "device %d is too old", device->number);
	/* serve_open() first: it refuses a device that cannot be used before a context is made */
	GgDeviceLayout(device, &layout);
	status = engine->serve_open(device->ordinal, gg_service->region, gg_service->region_bytes,
								&layout, &worker->server);
	if (status.code == GG_OK)
		status = engine->device_info(device->ordinal, &info);
	if (status.code != GG_OK)
		return status;
	strlcpy(device->stats.name, info.name, sizeof(device->stats.name));
	device->stats.total_bytes = info.total_bytes;
	device->speed = Max(info.speed, 1);
	return status;
}

static void
Start(GgWorker *worker)
{
	GgDevice   *device = worker->device;
	gg_status	status;
	sigset_t	before;

	GgBlockSignals(&before);
	GgWatchdogUnblock();
	GgWatchdogOpening(true);
	status = OpenDevice(worker);
	GgWatchdogOpening(false);
	GgRestoreSignals(&before);
	if (status.code != GG_OK)
		GgDeviceLost(worker, &status);

	GgDispatchServe(worker);
	GgBlockSignals(&before);
	GgWatchdogUnblock();
	GgResidentStart(worker);
	GgRestoreSignals(&before);

	device->stats.started = GetCurrentTimestamp();
	device->up_since_us = GgNowMicros();
	pg_write_barrier();
	pg_atomic_write_u32(&device->state, GG_DEVICE_UP);
	ereport(LOG,
			(errmsg("gpugraph device %d: %s with %llu MB is ready", device->number,
					device->stats.name, (unsigned long long) (device->stats.total_bytes >> 20))));
}

/* ---- the loop ------------------------------------------------------------------ */

static void
SleepUntilWork(GgWorker *worker)
{
	pg_atomic_write_u32(&worker->device->sleeping, 1);
	pg_memory_barrier();
	if (GgDispatchIdle(worker) && !ShutdownRequestPending)
		Sleep(Min(GgResidentTimeout(worker), SLEEP_MOST_MS));
	pg_atomic_write_u32(&worker->device->sleeping, 0);
}

static void
Loop(GgWorker *worker)
{
	const bool	may_spin = GgProcessors() >= 4;
	uint64		idle_since = GgNowMicros();
	double		gap_us = SPIN_MOST_US;	/* between an answer and the next query, on average */
	bool		idle = true;

	for (;;)
	{
		bool		busy;
		uint64		now;
		double		spin_us;

		if (ShutdownRequestPending)
			proc_exit(1);
		GgReloadSettings();
		GgWatchedSteps(GG_WATCHED_MAIN);
		GgWatchdogLook(worker);
		GgResidentWork(worker);
		busy = GgDispatchTurn(worker);
		if (busy && !idle)
		{
			SPIN_DELAY();
			continue;
		}

		now = GgNowMicros();
		if (busy)
		{
			gap_us += ((double) Min(now - idle_since, 10 * SPIN_MOST_US) - gap_us) / 8;
			idle = false;
			continue;
		}
		if (!idle)
		{
			idle = true;
			idle_since = now;
		}
		spin_us = 2 * gap_us <= SPIN_MOST_US ? Max(2 * gap_us, SPIN_LEAST_US) : SPIN_LEAST_US;
		if (may_spin && now - idle_since < spin_us)
			SPIN_DELAY();
		else
			SleepUntilWork(worker);
	}
}

void
GgWorkerMain(Datum number)
{
	static GgWorker worker;
	GgDevice   *device = gg_service->devices[DatumGetInt32(number)];

	worker.device = device;
	worker.number = DatumGetInt32(number);
	worker.engine = GgServiceOps();

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	on_proc_exit(SkipDestructors, PointerGetDatum(&worker));
	before_shmem_exit(LeaveService, PointerGetDatum(&worker));

	pg_atomic_write_u32(&device->state, GG_DEVICE_DOWN);
	if (pg_atomic_fetch_add_u64(&device->epoch, 1) > 0)
		device->stats.restarts++;
	pg_atomic_write_u32(&device->sleeping, 0);
	device->latch = MyLatch;
	device->pid = MyProcPid;
	GgDispatchStart(&worker);
	GgWatchdogStart(&worker);

	WaitForBreaker(device);
	Start(&worker);
	Loop(&worker);
}
