/*
 * worker.c
 *		The background worker that merges.
 *
 * A worker takes the indexes of its database from the list (jobs.c).  When an index has nothing
 * due, the worker stays with it until nobody has inserted for a while, and then merges what is
 * worth it in an idle index only.  It learns from queries, too, when that is due (queries.c).
 * Where others wait, it takes turns.  Where the next index is another database's, the worker ends,
 * and its place goes to a worker for that database.
 */
#include "maintain/jobs.h"
#include "service/shared/service.h"

#include "access/relation.h"
#include "access/xact.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

/* How long a worker stays with an index while others wait. */
#define TURN_MS				1000

/* How often a worker looks whether more is due, and when an index counts as idle and as quiet. */
#define LOOK_MS				100
#define IDLE_MS				10000
#define QUIET_MS			30000

/* How long it tries to make the file shorter, since something was moved or VACUUM asked. */
#define SHRINK_MS			10000

pg_noreturn extern PGDLLEXPORT void GgMergeWorkerMain(Datum arg);

static Oid	my_index = InvalidOid;
static GgJobWatch my_watch;
static bool connected = false;
static bool gives_way = false;

/*
 * Called however the worker ends.  Where it could not connect, the database may be gone, or let
 * nobody in, and where it gives way, somebody wants the database: its indexes are taken off the
 * list, until they are asked for again.
 */
static void
WorkerExit(int code, Datum arg)
{
	if (my_index != InvalidOid)
		GgEndJob(my_index, code != 0);
	GgWorkerGone(connected && !gives_way ? InvalidOid : DatumGetObjectId(arg));
}

static void
Report(GgMergePhase phase, uint64 done, uint64 total)
{
	GgReportJob(my_index, phase, done);
}

/* The end of the delta: it moves with each new page. */
static uint64
DeltaEnd(GgMergeTarget *target)
{
	GgMetaPageData *head;
	Buffer		buffer;
	uint64		end;

	GgBeginSlice(target);
	buffer = GgLockMeta(target->index, BUFFER_LOCK_SHARE, &head);
	end = GgDeltaEnd(head);
	UnlockReleaseBuffer(buffer);
	GgEndSlice(target);
	return end;
}

/*
 * Find the table of the index.  False: the index is gone, not valid, or locked.  If it is locked,
 * others wait, and a later insert into it asks again.
 */
static bool
FindTarget(GgMergeTarget *target)
{
	Relation	index = NULL;
	bool		found = false;

	StartTransactionCommand();
	if (ConditionalLockRelationOid(my_index, AccessShareLock))
		index = try_relation_open(my_index, NoLock);
	if (index != NULL)
	{
		found = index->rd_rel->relkind == RELKIND_INDEX && GgIsGpugraph(index) &&
			index->rd_index->indisvalid && index->rd_index->indisready;
		if (found)
		{
			target->heap_oid = index->rd_index->indrelid;
			pgstat_report_activity(STATE_RUNNING, RelationGetRelationName(index));
		}
		relation_close(index, AccessShareLock);
	}
	CommitTransactionCommand();
	return found;
}

static void
Maintain(GgMergeTarget *target, GgMergeUrge urge)
{
	(void) GgMaintain(target, urge);
	GgEndReport(my_index);
}

/* Learn from queries that the index was asked, if there are enough new ones. */
static void
Learn(GgMergeTarget *target)
{
	if (!GgQueriesAreDue(my_index))
		return;
	GgLearnQueries(target);
	GgEndReport(my_index);
}

/* Make a step towards a shorter file, unless it was tried for long.  True: more is to be done. */
static bool
Shrink(GgMergeTarget *target, TimestampTz now)
{
	GgShrinkResult result = GG_SHRINK_DONE;

	if (my_watch.shrink_until == 0)
		return false;
	GgReportJob(my_index, GG_MERGE_SHRINK, 0);
	if (now < my_watch.shrink_until)
		result = GgShrink(target);
	if (result == GG_SHRINK_DONE)
	{
		my_watch.shrink_until = 0;
		GgEndReport(my_index);
	}
	if (result == GG_SHRINK_GOES_ON)
		my_watch.shrink_until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), SHRINK_MS);
	return result == GG_SHRINK_GOES_ON;
}

/* A step of measuring recall, where that is due.  True: there is more to do. */
static bool
Calibrate(GgMergeTarget *target, bool *at_once)
{
	bool		more;

	my_watch.calibrate |= GgWasAskedToCalibrate(my_index);
	more = GgCalibrateStep(target, my_watch.calibrate, at_once);
	if (!more)
		my_watch.calibrate = false;
	return more;
}

static void
Look(GgMergeTarget *target, TimestampTz now)
{
	uint64		end = DeltaEnd(target);

	if (my_watch.since != 0 && my_watch.delta_end == end)
		return;
	my_watch.delta_end = end;
	my_watch.since = now;
	my_watch.idle_done = false;
}

static void
Wait(void)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LOOK_MS,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	GgCheckInterrupts();
	GgReloadSettings();
}

/*
 * Merge what is due, then stay until the index is quiet, and merge what is worth it then.  False:
 * others have their turn first.
 */
static bool
ServeIndex(void)
{
	GgMergeTarget target = {.sliced = true, .index_oid = my_index, .report = Report};
	TimestampTz began = GetCurrentTimestamp();

	if (!FindTarget(&target))
		return true;
	for (;;)
	{
		TimestampTz now = GetCurrentTimestamp();
		bool		shrink;
		bool		goes_on;
		bool		measures;
		bool		at_once = false;

		Look(&target, now);
		if (GgWasAskedAgain(my_index, &shrink))
			Maintain(&target, GG_MERGE_DUE);
		Learn(&target);
		if (shrink)
			my_watch.shrink_until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), SHRINK_MS);
		goes_on = Shrink(&target, GetCurrentTimestamp());
		if (!my_watch.idle_done && TimestampDifferenceExceeds(my_watch.since, now, IDLE_MS))
		{
			Maintain(&target, GG_MERGE_IDLE);
			my_watch.idle_done = true;
		}
		measures = Calibrate(&target, &at_once);
		if (!measures && TimestampDifferenceExceeds(my_watch.since, now, QUIET_MS))
			break;
		if (GgOthersWait() && TimestampDifferenceExceeds(began, now, TURN_MS))
			return false;
		if (!goes_on && !at_once)
			Wait();
	}
	Maintain(&target, GG_MERGE_QUIET);
	return true;
}

/*
 * Serve one index.  An error does not end the worker, and is not logged where the index was changed
 * or locked, or a session wants the database.
 */
static void
TryIndex(MemoryContext context)
{
	volatile bool failed = false;
	volatile bool done = true;

	PG_TRY();
	{
		done = ServeIndex();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		failed = error->sqlerrcode != ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		if (failed)
			EmitErrorReport();
		AbortCurrentTransaction();
		LockReleaseSession(DEFAULT_LOCKMETHOD);
		FlushErrorState();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	MemoryContextReset(context);
	if (done)
		GgEndJob(my_index, failed);
	else
		GgYieldJob(my_index, &my_watch);
	my_index = InvalidOid;
	pgstat_report_activity(STATE_IDLE, NULL);
}

/*
 * Take the next index.  False: this worker is to end.  Where merges have failed, it waits until
 * they may begin again, another database's index is next, or a session wants the database.
 */
static bool
TakeIndex(void)
{
	bool		wait;

	while ((my_index = GgTakeJob(&my_watch, &wait)) == InvalidOid && wait && !gives_way)
	{
		Wait();
		StartTransactionCommand();
		gives_way = GgDatabaseIsWanted();
		CommitTransactionCommand();
	}
	return my_index != InvalidOid;
}

void
GgMergeWorkerMain(Datum arg)
{
	MemoryContext context;

	if (!GgHasJobs() || !GgTakeWorkerPlace())
		proc_exit(0);
	before_shmem_exit(WorkerExit, arg);
	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(arg), InvalidOid, 0);
	connected = true;
	/* from PostgreSQL 17 on; it is meant for clients' transactions */
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);

	/* a flip that is lost in a crash leaves the old generation; nobody is to wait for a standby */
	SetConfigOption("synchronous_commit", "off", PGC_SUSET, PGC_S_OVERRIDE);

	context = AllocSetContextCreate(TopMemoryContext, "gpugraph merge worker",
									ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	while (TakeIndex())
		TryIndex(context);
	proc_exit(0);
}
