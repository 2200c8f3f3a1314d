/*
 * jobs.c
 *		The list of indexes that background workers are to merge, and its view.
 *
 * Inserts and VACUUM put an index on the list in shared memory and, where fewer than
 * gpugraph.merge_workers are at work, start a dynamic background worker for its database.  Without
 * preloading there is no list, and VACUUM merges itself, as it does where no worker can be started.
 */
#include "merge/jobs.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

/* Indexes that wait, are merged, or failed not long ago. */
#define MAX_JOBS			64

/* An index whose merge failed is left alone for so long. */
#define RETRY_MS			60000

typedef enum JobState
{
	JOB_FREE,
	JOB_WAITING,
	JOB_RUNNING,
	JOB_FAILED					/* until retry */
} JobState;

typedef struct Job
{
	JobState	state;
	Oid			database;
	Oid			index;
	bool		again;			/* asked for since the worker looked */
	TimestampTz retry;

	/* for the view */
	int			pid;
	GgMergePhase phase;
	bool		merging;
	uint64		rows;
	TimestampTz since;			/* when the merge began */
} Job;

typedef struct MergeShared
{
	slock_t		mutex;
	int			workers;		/* at work, or being started */
	bool		told;			/* that no worker could be started */
	Job			jobs[MAX_JOBS];
} MergeShared;

static MergeShared *shared = NULL;
static int	merge_workers = 1;
static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/* ---- the list ---------------------------------------------------------------------------- */

/* The mutex is held. */
static Job *
FindJob(Oid database, Oid index)
{
	for (int i = 0; i < MAX_JOBS; i++)
	{
		Job		   *job = &shared->jobs[i];

		if (job->state != JOB_FREE && job->database == database && job->index == index)
			return job;
	}
	return NULL;
}

/* A place for a new job: a free one, or that of a failure.  The mutex is held. */
static Job *
FindPlace(void)
{
	Job		   *place = NULL;

	for (int i = 0; i < MAX_JOBS; i++)
	{
		if (shared->jobs[i].state == JOB_FREE)
			return &shared->jobs[i];
		if (shared->jobs[i].state == JOB_FAILED)
			place = &shared->jobs[i];
	}
	return place;
}

/* Put the index on the list.  False: there is no room.  *start: a worker is to be started. */
static bool
PutJob(Oid database, Oid index, bool *start)
{
	TimestampTz now = GetCurrentTimestamp();
	Job		   *job;

	*start = false;
	SpinLockAcquire(&shared->mutex);
	job = FindJob(database, index);
	if (job != NULL && job->state == JOB_RUNNING)
		job->again = true;
	else if (job == NULL || (job->state == JOB_FAILED && job->retry <= now))
	{
		if (job == NULL)
			job = FindPlace();
		if (job != NULL)
		{
			memset(job, 0, sizeof(*job));
			job->state = JOB_WAITING;
			job->database = database;
			job->index = index;
		}
	}
	if (job != NULL && job->state == JOB_WAITING && shared->workers < merge_workers)
	{
		shared->workers++;
		*start = true;
	}
	SpinLockRelease(&shared->mutex);
	return job != NULL;
}

/* Start a worker that was counted already.  False: there is no place for one. */
static bool
StartWorker(Oid database)
{
	BackgroundWorker worker;
	bool		tell;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "gpugraph merge worker");
	snprintf(worker.bgw_type, sizeof(worker.bgw_type), "gpugraph merge worker");
	strlcpy(worker.bgw_library_name, "gpugraph", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "GgMergeWorkerMain", sizeof(worker.bgw_function_name));
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	if (RegisterDynamicBackgroundWorker(&worker, NULL))
		return true;

	SpinLockAcquire(&shared->mutex);
	shared->workers--;
	tell = !shared->told;
	shared->told = true;
	SpinLockRelease(&shared->mutex);
	if (tell)
		ereport(LOG,
				(errmsg("gpugraph could not start a merge worker: VACUUM merges instead"),
				 errhint("Increase max_worker_processes.")));
	return false;
}

void
GgEndJob(Oid index, bool failed)
{
	TimestampTz now = GetCurrentTimestamp();
	Job		   *job;

	SpinLockAcquire(&shared->mutex);
	job = FindJob(MyDatabaseId, index);
	if (job != NULL)
	{
		job->state = failed ? JOB_FAILED : JOB_FREE;
		job->retry = TimestampTzPlusMilliseconds(now, RETRY_MS);
		job->pid = 0;
	}
	SpinLockRelease(&shared->mutex);
}

bool
GgRequestMerge(Relation index)
{
	Oid			relid = RelationGetRelid(index);
	bool		start;

	/* a worker sees neither temporary relations nor those of this transaction */
	if (shared == NULL || merge_workers == 0 || RelationUsesLocalBuffers(index) ||
		index->rd_createSubid != InvalidSubTransactionId ||
		GgFirstLocatorSubid(index) != InvalidSubTransactionId ||
		!PutJob(MyDatabaseId, relid, &start))
		return false;
	if (start && !StartWorker(MyDatabaseId))
	{
		GgEndJob(relid, false);
		return false;
	}
	return true;
}

/* ---- for the worker ---------------------------------------------------------------------- */

Oid
GgTakeJob(void)
{
	Oid			index = InvalidOid;

	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < MAX_JOBS && index == InvalidOid; i++)
	{
		Job		   *job = &shared->jobs[i];

		if (job->state != JOB_WAITING || job->database != MyDatabaseId)
			continue;
		job->state = JOB_RUNNING;
		job->again = true;
		job->pid = MyProcPid;
		index = job->index;
	}
	SpinLockRelease(&shared->mutex);
	return index;
}

void
GgReportJob(Oid index, GgMergePhase phase, uint64 rows)
{
	TimestampTz now = GetCurrentTimestamp();
	Job		   *job;

	SpinLockAcquire(&shared->mutex);
	job = FindJob(MyDatabaseId, index);
	if (job != NULL)
	{
		if (!job->merging)
			job->since = now;
		job->merging = true;
		job->phase = phase;
		job->rows = rows;
	}
	SpinLockRelease(&shared->mutex);
}

void
GgEndReport(Oid index)
{
	Job		   *job;

	SpinLockAcquire(&shared->mutex);
	job = FindJob(MyDatabaseId, index);
	if (job != NULL)
		job->merging = false;
	SpinLockRelease(&shared->mutex);
}

bool
GgWasAskedAgain(Oid index)
{
	Job		   *job;
	bool		again;

	SpinLockAcquire(&shared->mutex);
	job = FindJob(MyDatabaseId, index);
	again = job != NULL && job->again;
	if (job != NULL)
		job->again = false;
	SpinLockRelease(&shared->mutex);
	return again;
}

/* The mutex is held. */
static Oid
WaitingDatabase(void)
{
	for (int i = 0; i < MAX_JOBS; i++)
		if (shared->jobs[i].state == JOB_WAITING)
			return shared->jobs[i].database;
	return InvalidOid;
}

Oid
GgWaitingDatabase(void)
{
	Oid			database;

	SpinLockAcquire(&shared->mutex);
	database = WaitingDatabase();
	SpinLockRelease(&shared->mutex);
	return database;
}

void
GgWorkerGone(Oid closed)
{
	Oid			database;

	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < MAX_JOBS; i++)
		if (shared->jobs[i].state == JOB_WAITING && shared->jobs[i].database == closed)
			shared->jobs[i].state = JOB_FREE;
	database = WaitingDatabase();
	/* in one step: who asks later finds that a worker is to be started, or that there is one */
	if (database == InvalidOid)
		shared->workers--;
	SpinLockRelease(&shared->mutex);
	if (database != InvalidOid)
		(void) StartWorker(database);
}

bool
GgHasJobs(void)
{
	return shared != NULL;
}

/* ---- the view ---------------------------------------------------------------------------- */

PG_FUNCTION_INFO_V1(gpugraph_stat_get_merge);

#define STAT_COLUMNS		6

Datum
gpugraph_stat_get_merge(PG_FUNCTION_ARGS)
{
	static const char *const phases[] = {
		[GG_MERGE_READ] = "reading rows",
		[GG_MERGE_GRAPH] = "building graph",
		[GG_MERGE_WRITE] = "writing pages"
	};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Job			jobs[MAX_JOBS];

	InitMaterializedSRF(fcinfo, 0);
	memset(jobs, 0, sizeof(jobs));
	if (shared != NULL)
	{
		SpinLockAcquire(&shared->mutex);
		memcpy(jobs, shared->jobs, sizeof(jobs));
		SpinLockRelease(&shared->mutex);
	}
	for (int i = 0; i < MAX_JOBS; i++)
	{
		const Job  *job = &jobs[i];
		const char *phase = "failed";
		Datum		values[STAT_COLUMNS];
		bool		nulls[STAT_COLUMNS] = {0};

		if (job->state == JOB_FREE)
			continue;
		if (job->state == JOB_WAITING)
			phase = "waiting for a worker";
		else if (job->state == JOB_RUNNING)
			phase = job->merging ? phases[job->phase] : "watching";
		values[0] = Int32GetDatum(job->pid);
		nulls[0] = job->pid == 0;
		values[1] = ObjectIdGetDatum(job->database);
		values[2] = ObjectIdGetDatum(job->index);
		values[3] = CStringGetTextDatum(phase);
		values[4] = Int64GetDatum((int64) job->rows);
		values[5] = TimestampTzGetDatum(job->since);
		nulls[4] = nulls[5] = !job->merging;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* ---- start ------------------------------------------------------------------------------- */

static void
RequestShmem(void)
{
	if (prev_shmem_request_hook != NULL)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(MAXALIGN(sizeof(MergeShared)));
}

static void
StartShmem(void)
{
	bool		found;

	if (prev_shmem_startup_hook != NULL)
		prev_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("gpugraph merges", sizeof(MergeShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(MergeShared));
		SpinLockInit(&shared->mutex);
	}
	LWLockRelease(AddinShmemInitLock);
}

void
GgInitMerges(void)
{
	DefineCustomIntVariable("gpugraph.merge_workers",
							"Sets how many background workers may merge segments at once.",
							"0 leaves it to VACUUM. Takes effect where gpugraph is preloaded.",
							&merge_workers,
							1, 0, 16,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	if (!process_shared_preload_libraries_in_progress)
		return;
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = RequestShmem;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = StartShmem;
}
