/*
 * jobs.c
 *		The list of indexes that background workers are to merge; gpugraph_stat_merge.
 *
 * Inserts and VACUUM put an index on the list in shared memory and, where fewer than
 * gpugraph.merge_workers are at work, start a dynamic background worker for its database.  Without
 * preloading there is no list, and VACUUM merges itself, as it does where no worker can be started.
 */
#include "maintain/jobs.h"
#include "service/shared/service.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

/* Places for indexes that wait, are being merged, or have failed in the last minute. */
#define MAX_JOBS			64

/* gpugraph.merge_workers at most */
#define MAX_WORKERS			16

/* An index whose merge failed is left alone for this time. */
#define RETRY_MS			60000

/* A worker that has not begun within this time could not be forked. */
#define START_MS			60000

/* See GgNoteSearch(). */
#define SEARCHED_MS			50

typedef enum JobState
{
	JOB_FREE,
	JOB_WAITING,				/* for a worker, which takes it from retry on */
	JOB_RUNNING,
	JOB_FAILED					/* until retry; then as good as free */
} JobState;

typedef struct Job
{
	JobState	state;
	Oid			database;
	Oid			index;
	bool		again;			/* to be looked at: taken, or asked for, since the worker looked */
	bool		renewed;		/* asked for since the worker looked, or took it */
	bool		shrink;			/* asked to make its file shorter */
	bool		calibrate;		/* asked to measure its recall */
	TimestampTz retry;			/* a merge has failed, and the next one is not to begin before */
	uint64		turn;			/* WAITING: those that wait longer have less */
	GgJobWatch	watch;

	/* for the view */
	int			pid;
	GgMergePhase phase;
	bool		merging;
	uint64		rows;
	TimestampTz since;			/* when the merge began */
} Job;

/* A place for a worker that is at work, or is being started. */
typedef struct Place
{
	bool		taken;
	int			pid;			/* 0: being started */
	TimestampTz since;			/* when it was asked for */
} Place;

typedef struct MergeShared
{
	slock_t		mutex;
	Place		places[MAX_WORKERS];
	uint64		turns;
	pg_atomic_uint64 searched;	/* GgLastSearch() */
	bool		told;			/* the log has it that no worker could be started */
	Job			jobs[MAX_JOBS];
} MergeShared;

static MergeShared *shared = NULL;
static int	my_place = -1;
static int	merge_workers = 1;

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

/* Room for a new job: a free one, or that of a failure.  The mutex is held. */
static Job *
FindRoom(void)
{
	Job		   *room = NULL;

	for (int i = 0; i < MAX_JOBS; i++)
	{
		if (shared->jobs[i].state == JOB_FREE)
			return &shared->jobs[i];
		if (shared->jobs[i].state == JOB_FAILED)
			room = &shared->jobs[i];
	}
	return room;
}

/* The mutex is held. */
static void
AddTurn(Job *job)
{
	job->state = JOB_WAITING;
	job->turn = ++shared->turns;
	job->pid = 0;
	job->merging = false;
}

/* Take a place for one more worker; -1: gpugraph.merge_workers are at work.  The mutex is held. */
static int
TakePlace(TimestampTz now)
{
	int			taken = 0;
	int			free = -1;

	for (int i = 0; i < MAX_WORKERS; i++)
	{
		Place	   *place = &shared->places[i];

		if (place->taken && place->pid == 0 &&
			now > TimestampTzPlusMilliseconds(place->since, START_MS))
			place->taken = false;
		if (place->taken)
			taken++;
		else
			free = i;
	}
	if (taken >= merge_workers || free < 0)
		return -1;
	shared->places[free].taken = true;
	shared->places[free].pid = 0;
	shared->places[free].since = now;
	return free;
}

/* Put the index on the list.  False: no room.  *place: of a worker to be started, or -1. */
static bool
PutJob(Oid database, Oid index, bool shrink, bool calibrate, int *place)
{
	TimestampTz now = GetCurrentTimestamp();
	Job		   *job;

	*place = -1;
	SpinLockAcquire(&shared->mutex);
	job = FindJob(database, index);
	if (job != NULL && job->state == JOB_RUNNING)
		job->again = job->renewed = true;
	else if (job == NULL || job->state == JOB_FAILED)
	{
		TimestampTz retry = job == NULL ? 0 : job->retry;

		if (job == NULL)
			job = FindRoom();
		if (job != NULL)
		{
			memset(job, 0, sizeof(*job));
			job->database = database;
			job->index = index;
			job->retry = retry;
			AddTurn(job);
		}
	}
	if (job != NULL)
	{
		job->shrink |= shrink;
		job->calibrate |= calibrate;
	}
	if (job != NULL && job->state == JOB_WAITING)
		*place = TakePlace(now);
	SpinLockRelease(&shared->mutex);
	return job != NULL;
}

/* Start a worker, whose place is taken.  False: the server has no room for one. */
static bool
StartWorker(Oid database, int place)
{
	BackgroundWorker worker;
	bool		tell;

	GgDescribeWorker(&worker, "gpugraph merge worker", "GgMergeWorkerMain",
					 ObjectIdGetDatum(database));
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	memcpy(worker.bgw_extra, &place, sizeof(place));
	if (RegisterDynamicBackgroundWorker(&worker, NULL))
		return true;

	SpinLockAcquire(&shared->mutex);
	shared->places[place].taken = false;
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
		job->retry = failed ? TimestampTzPlusMilliseconds(now, RETRY_MS) : 0;
	if (job != NULL && job->state == JOB_RUNNING && job->renewed)
	{
		/* asked for while the worker failed, gave way, or found the index locked */
		memset(&job->watch, 0, sizeof(job->watch));
		AddTurn(job);
	}
	else if (job != NULL)
	{
		job->state = failed ? JOB_FAILED : JOB_FREE;
		job->pid = 0;
	}
	SpinLockRelease(&shared->mutex);
}

static bool
Request(Relation index, bool shrink, bool calibrate)
{
	Oid			relid = RelationGetRelid(index);
	int			place;

	/* a worker sees neither temporary relations nor those of this transaction */
	if (shared == NULL || merge_workers == 0 || GgIsLocal(index) ||
		!PutJob(MyDatabaseId, relid, shrink, calibrate, &place))
		return false;
	if (place >= 0 && !StartWorker(MyDatabaseId, place))
	{
		GgEndJob(relid, false);
		return false;
	}
	return true;
}

bool
GgRequestMerge(Relation index, bool shrink)
{
	return Request(index, shrink, false);
}

void
GgRequestCalibration(Relation index)
{
	(void) Request(index, false, true);
}

/* Begins of searches are told, to about SEARCHED_MS, so that few searches write. */
void
GgNoteSearch(void)
{
	const TimestampTz now = GetCurrentTimestamp();

	if (shared != NULL &&
		now > TimestampTzPlusMilliseconds((TimestampTz) pg_atomic_read_u64(&shared->searched),
										  SEARCHED_MS))
		pg_atomic_write_u64(&shared->searched, (uint64) now);
}

TimestampTz
GgLastSearch(void)
{
	return shared == NULL ? 0 : (TimestampTz) pg_atomic_read_u64(&shared->searched);
}

/* ---- for the worker ---------------------------------------------------------------------- */

bool
GgTakeWorkerPlace(void)
{
	int			place;

	memcpy(&place, MyBgworkerEntry->bgw_extra, sizeof(place));
	SpinLockAcquire(&shared->mutex);
	if (shared->places[place].taken && shared->places[place].pid == 0)
	{
		shared->places[place].pid = MyProcPid;
		my_place = place;
	}
	SpinLockRelease(&shared->mutex);
	return my_place >= 0;
}

/*
 * The job that waits longest.  Where all have failed less than a minute ago, the one that may begin
 * first.  NULL: there is none.  The mutex is held.
 */
static Job *
NextJob(TimestampTz now)
{
	Job		   *next = NULL;

	for (int i = 0; i < MAX_JOBS; i++)
	{
		Job		   *job = &shared->jobs[i];
		TimestampTz from = Max(job->retry, now);

		if (job->state != JOB_WAITING)
			continue;
		if (next == NULL || from < Max(next->retry, now) ||
			(from == Max(next->retry, now) && job->turn < next->turn))
			next = job;
	}
	return next;
}

Oid
GgTakeJob(GgJobWatch *watch, bool *wait)
{
	TimestampTz now = GetCurrentTimestamp();
	Oid			index = InvalidOid;
	Job		   *job;

	SpinLockAcquire(&shared->mutex);
	job = NextJob(now);
	*wait = job != NULL && job->database == MyDatabaseId && job->retry > now;
	if (job != NULL && job->database == MyDatabaseId && !*wait)
	{
		job->state = JOB_RUNNING;
		job->again = true;
		job->renewed = false;
		job->pid = MyProcPid;
		index = job->index;
		*watch = job->watch;
	}
	SpinLockRelease(&shared->mutex);
	return index;
}

void
GgYieldJob(Oid index, const GgJobWatch *watch)
{
	Job		   *job;

	SpinLockAcquire(&shared->mutex);
	job = FindJob(MyDatabaseId, index);
	if (job != NULL)
	{
		job->watch = *watch;
		AddTurn(job);
	}
	SpinLockRelease(&shared->mutex);
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
GgWasAskedAgain(Oid index, bool *shrink)
{
	Job		   *job;
	bool		again;

	SpinLockAcquire(&shared->mutex);
	job = FindJob(MyDatabaseId, index);
	again = job != NULL && job->again;
	*shrink = job != NULL && job->shrink;
	if (job != NULL)
		job->again = job->renewed = job->shrink = false;
	SpinLockRelease(&shared->mutex);
	return again;
}

bool
GgWasAskedToCalibrate(Oid index)
{
	Job		   *job;
	bool		asked;

	SpinLockAcquire(&shared->mutex);
	job = FindJob(MyDatabaseId, index);
	asked = job != NULL && job->calibrate;
	if (job != NULL)
		job->calibrate = false;
	SpinLockRelease(&shared->mutex);
	return asked;
}

bool
GgOthersWait(void)
{
	TimestampTz now = GetCurrentTimestamp();
	const Job  *next;
	bool		others;

	SpinLockAcquire(&shared->mutex);
	next = NextJob(now);
	others = next != NULL && next->retry <= now;
	SpinLockRelease(&shared->mutex);
	return others;
}

void
GgWorkerGone(Oid closed)
{
	TimestampTz now = GetCurrentTimestamp();
	Place	   *place = &shared->places[my_place];
	Oid			database = InvalidOid;
	Job		   *next;

	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < MAX_JOBS; i++)
		if (shared->jobs[i].state == JOB_WAITING && shared->jobs[i].database == closed)
			shared->jobs[i].state = JOB_FREE;
	next = NextJob(now);
	if (next != NULL)
		database = next->database;
	/* under the same lock: a later request finds that a worker is at work or is being started */
	place->taken = next != NULL;
	place->pid = 0;
	place->since = now;
	SpinLockRelease(&shared->mutex);
	if (database != InvalidOid)
		(void) StartWorker(database, my_place);
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
		[GG_MERGE_LEARN] = "learning edges",
		[GG_MERGE_WRITE] = "writing pages",
		[GG_MERGE_DEVICE] = "bringing to device",
		[GG_MERGE_SHRINK] = "making the file shorter",
		[GG_MERGE_CALIBRATE] = "measuring recall"
	};
	ReturnSetInfo *rsinfo = GgInitRows(fcinfo, STAT_COLUMNS);
	TimestampTz now = GetCurrentTimestamp();
	Job			jobs[MAX_JOBS];

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
		GgRow		row = {0};

		if (job->state == JOB_FREE || (job->state == JOB_FAILED && job->retry <= now))
			continue;
		if (job->state == JOB_WAITING && job->retry <= now)
			phase = "waiting for a worker";
		else if (job->state == JOB_RUNNING)
			phase = job->merging ? phases[job->phase] : "watching";
		GgPut(&row, job->pid != 0, Int32GetDatum(job->pid));
		GgPut(&row, true, ObjectIdGetDatum(job->database));
		GgPut(&row, true, ObjectIdGetDatum(job->index));
		GgPutText(&row, phase);
		GgPut(&row, job->merging, Int64GetDatum((int64) job->rows));
		GgPut(&row, job->merging, TimestampTzGetDatum(job->since));
		GgAddRow(rsinfo, &row, STAT_COLUMNS);
	}
	return (Datum) 0;
}

/* ---- start ------------------------------------------------------------------------------- */

static void
RequestShmem(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(MergeShared)));
}

static void
StartShmem(void)
{
	bool		found;

	shared = ShmemInitStruct("gpugraph merges", sizeof(MergeShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(MergeShared));
		SpinLockInit(&shared->mutex);
		pg_atomic_init_u64(&shared->searched, 0);
	}
}

void
GgInitMerges(void)
{
	DefineCustomIntVariable("gpugraph.merge_workers",
							"Sets how many background workers may merge segments at once.",
							"0 leaves it to VACUUM. Takes effect where gpugraph is preloaded.",
							&merge_workers,
							1, 0, MAX_WORKERS,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	GgUseSharedMemory(RequestShmem, StartShmem);
}
