/*
 * worker.c
 *		The life of a device's worker: start, loop, faults, end.
 *
 * The worker owns the device's context; nobody else has one to search with.  It has no database connection, and all that it reads
 * of PostgreSQL's is shared memory, so a hot standby runs it, too.
 *
 * A device that fails takes its context with it, and with that everything resident: the worker says so
 * once, exits, and is started again by the postmaster a second later.  It then waits until the breaker lets it try:
 * a second after a first failure, twice as long after each further one, and from the start again after a minute
 * without.  Only an exit with status 0 or 1 leaves the server up, so nothing here may crash on the way out: a driver's
 * destructors are not run after its device is lost.
 *
 * Threads that the driver or an engine starts have all signals blocked: handlers of PostgreSQL run in this thread only.
 */
#include "service/service.h"

#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"
#include "storage/s_lock.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "service/ring.h"

#define BACKOFF_FIRST_S		1
#define BACKOFF_MOST_S		60
/* no driver today is most likely no driver in a minute */
#define BACKOFF_NO_DEVICE_S	300
#define HEALTHY_AFTER_S		60

/*
 * How long to look for work before sleeping: being woken costs the next query some 10 us or more.  A client that comes
 * back after its own work (some 100 us) is waited for, one that does so seldom is not.
 */
#define SPIN_LEAST_US		50
#define SPIN_MOST_US		500

#define SLEEP_MOST_MS		1000

static GgDevice *device;
static const gg_engine *engine;
static gg_server *server = NULL;
static bool residents = false;	/* GgResidentStart() was called */
static bool lost = false;		/* the device, or that it cannot be used */
static bool gone = false;		/* the device is not there, and will not be */
static bool quiet_end = false;	/* the postmaster need not hear of this end: see GgDeviceLost() */

/* ---- the end ---------------------------------------------------------------- */

static void
LeaveService(int code, Datum arg)
{
	pg_atomic_write_u32(&device->state,
						gone ? GG_DEVICE_GONE : lost ? GG_DEVICE_BROKEN : GG_DEVICE_DOWN);
	device->pid = 0;
	device->latch = NULL;
	pg_memory_barrier();
	LWLockReleaseAll();
	GgDispatchStop();

	/* last of all, for it may start at once; without a place for it we are started again as ever */
	if (quiet_end)
		quiet_end = GgStartWorker(device);

	/* calls into a lost device may never return */
	if (lost)
		return;
	GgDispatchDrain();
	if (residents)
		GgResidentStop();
	if (server != NULL)
		engine->serve_close(server);
	if (engine != NULL)
		engine->release();
}

/* The last callback of all: PostgreSQL has left shared memory properly, and the driver's destructors are skipped. */
static void
SkipDestructors(int code, Datum arg)
{
	if (lost)
		_exit(quiet_end ? 0 : code);
}

static void
RememberError(const gg_status *status)
{
	GgDeviceStats *stats = &device->stats;

	snprintf(stats->last_error, sizeof(stats->last_error), "%s%s%s",
			 status->where ? status->where : "", status->where ? ": " : "", status->message);
	stats->last_error_at = GetCurrentTimestamp();
}

static bool
IsNews(const gg_status *status)
{
	char		before[sizeof(device->stats.last_error)];

	strlcpy(before, device->stats.last_error, sizeof(before));
	RememberError(status);
	return strcmp(before, device->stats.last_error) != 0;
}

void
GgDeviceTrouble(const gg_status *status)
{
	TimestampTz before = device->stats.last_error_at;

	if (IsNews(status) ||
		TimestampDifferenceExceeds(before, device->stats.last_error_at, HEALTHY_AFTER_S * 1000))
		ereport(LOG,
				(errmsg("gpugraph device %d: %s", device->number, status->message),
				 status->device_error ?
				 errdetail("%s returned device error %d.", status->where, status->device_error) :
				 errdetail("Reported by %s.", status->where),
				 errhint("The CPU answers the queries concerned.")));
}

void
GgDeviceLost(const gg_status *status)
{
	int			most = status->code == GG_ENODEVICE ? BACKOFF_NO_DEVICE_S : BACKOFF_MOST_S;
	uint64		now = GgNowMicros();
	int			pause;
	bool		first;

	/* residents: it was up */
	if (residents && now > device->up_since_us + HEALTHY_AFTER_S * UINT64CONST(1000000))
		device->failures = 0;
	first = device->failures == 0;
	pause = device->failures < 16 ? Min(BACKOFF_FIRST_S << device->failures, most) : most;

	/* the same again and again is told once, as long as nothing worked in between */
	if (IsNews(status) || first)
		ereport(LOG,
				(errmsg("gpugraph device %d cannot be used: %s", device->number, status->message),
				 status->device_error ?
				 errdetail("%s returned device error %d.", status->where, status->device_error) :
				 errdetail("Reported by %s.", status->where),
				 errhint("Queries are answered by the CPU; the device is tried again in %d s, then less and less often.",
						 pause)));
	device->failures++;
	device->not_before_us = now + pause * UINT64CONST(1000000);
	lost = true;

	/*
	 * A process that has not called the driver yet is to ask again.  But a server without a GPU is no
	 * news, and the postmaster logs every exit with another status than 0.  After an exit with status 0
	 * it does not start us again, so we leave it a successor.
	 */
	quiet_end = !residents && status->code == GG_ENODEVICE;
	proc_exit(1);
}

/* ---- the start ---------------------------------------------------------------- */

static void
Reload(void)
{
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/* Wait on the latch; interrupts that ask for the end are followed here. */
static void
Sleep(long timeout_ms)
{
	static uint32 wait_event = 0;

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms,
					 GgWaitEvent(wait_event, "GpugraphService"));
	ResetLatch(MyLatch);
	if (ShutdownRequestPending)
		proc_exit(1);
	Reload();
}

static void
WaitForBreaker(void)
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

static gg_status
OpenDevice(void)
{
	gg_device_info info;
	gg_serve_layout layout;
	gg_status	status;
	int			count;

	if (gg_fault == GG_FAULT_NO_DRIVER)
	{
		memset(&status, 0, sizeof(status));
		status.code = GG_ENODEVICE;
		status.where = "gpugraph.fault";
		snprintf(status.message, sizeof(status.message), "no driver");
		return status;
	}
	status = engine->probe(GG_USE_SEARCH);
	if (status.code == GG_OK)
		status = engine->device_count(&count);
	if (status.code != GG_OK)
		return status;
	if (gg_fault == GG_FAULT_NO_DEVICE ||
		(device->number >= count && gg_service_engine != GG_SERVICE_CPU))
	{
		ereport(LOG,
				(errmsg("gpugraph device %d is not there: %d found", device->number, count),
				 errhint("Name the devices to use in gpugraph.devices.")));
		lost = gone = true;		/* nothing was opened */
		proc_exit(0);
	}
	status = engine->device_info(device->number, &info);
	if (status.code != GG_OK)
		return status;
	strlcpy(device->stats.name, info.name, sizeof(device->stats.name));
	device->stats.total_bytes = info.total_bytes;
	GgDeviceLayout(&layout);
	return engine->serve_open(device->number, gg_service->region, gg_service->region_bytes, &layout, &server);
}

static void
Start(void)
{
	gg_status	status;
	sigset_t	before;

	GgBlockSignals(&before);
	status = OpenDevice();
	GgRestoreSignals(&before);
	if (status.code != GG_OK)
		GgDeviceLost(&status);

	GgDispatchServe(engine, server);
	GgBlockSignals(&before);
	residents = true;
	GgResidentStart(device, engine);
	GgRestoreSignals(&before);

	device->stats.started = GetCurrentTimestamp();
	device->up_since_us = GgNowMicros();
	pg_write_barrier();
	pg_atomic_write_u32(&device->state, GG_DEVICE_UP);
	ereport(LOG,
			(errmsg("gpugraph device %d: %s with %llu MB is ready", device->number, device->stats.name,
					(unsigned long long) (device->stats.total_bytes >> 20))));
}

/* ---- the loop ------------------------------------------------------------------ */

static void
SleepUntilWork(void)
{
	pg_atomic_write_u32(&device->sleeping, 1);
	pg_memory_barrier();
	if (GgDispatchIdle() && !ShutdownRequestPending)
		Sleep(Min(GgResidentTimeout(), SLEEP_MOST_MS));
	pg_atomic_write_u32(&device->sleeping, 0);
}

static void
Loop(void)
{
	const bool	may_spin = GgProcessors() >= 4;
	uint64		idle_since = GgNowMicros();
	double		gap_us = SPIN_MOST_US;	/* between an answer and the next query, on average */
	bool		idle = true;

	for (;;)
	{
		bool		busy;
		uint64		now;

		if (ShutdownRequestPending)
			proc_exit(1);
		Reload();
		GgResidentWork();
		busy = GgDispatchTurn();
		if (busy && !idle)
		{
			/* nothing of the below happens in WaitLatch as long as there is work */
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
		if (may_spin && now - idle_since < (2 * gap_us <= SPIN_MOST_US ? Max(2 * gap_us, SPIN_LEAST_US) : SPIN_LEAST_US))
			SPIN_DELAY();
		else
			SleepUntilWork();
	}
}

void
GgWorkerMain(Datum number)
{
	device = gg_service->devices[DatumGetInt32(number)];
	engine = GgServiceOps();

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	on_proc_exit(SkipDestructors, (Datum) 0);
	before_shmem_exit(LeaveService, (Datum) 0);

	pg_atomic_write_u32(&device->state, GG_DEVICE_DOWN);
	if (pg_atomic_fetch_add_u64(&device->epoch, 1) > 0)
		device->stats.restarts++;
	pg_atomic_write_u32(&device->sleeping, 0);
	device->latch = MyLatch;
	device->pid = MyProcPid;
	GgDispatchStart(device);

	WaitForBreaker();
	Start();
	Loop();
}
