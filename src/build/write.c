/*
 * write.c
 *		The pages of a new index: formed in memory, logged and written in large runs, each once.
 *
 * Nobody uses the relation before the transaction commits, so pages bypass the buffer manager, as those
 * of nbtree's builds do: into a file that the leader has extended, by any process and in any order.  No WAL is flushed before a
 * page is written: after a crash before the commit the file goes anyway, or (CREATE INDEX CONCURRENTLY) belongs to an index that is
 * not ready and never read.
 */
#include "build/build.h"
#include "build/stripes.h"

#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/storage.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/smgr.h"
#include "utils/backend_progress.h"
#include "utils/wait_event.h"

/* Blocks that the kernel is asked to write between two looks for interrupts, before a sync: 16 MB. */
#define SYNC_BLOCKS			((BlockNumber) 2048)

/* Pages of one WAL record, which cannot have more; and as many at a time are formed and written. */
#define GG_WRITE_BATCH		XLR_MAX_BLOCK_ID

/* Processes that write while memory waits to be given back: as many as keep WAL busy during the scan (heap_scan.c). */
#define LEAVING_WRITERS		4

/* Ranges of vectors that are offered at a time while the heap is scanned: 32 MB. */
#define OFFER_RANGES		8

/* ---- places ---------------------------------------------------------------- */

GgWriteJob
GgPlanArray(GgBuild *build, uint32 segment, GgKind kind, uint64 bytes)
{
	GgWriteJob	job = {.kind = kind, .segment = segment, .bytes = bytes};
	uint64		npages = GgArrayPages(bytes);

	if (build->nblocks + npages >= MaxBlockNumber)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("gpugraph index would have more than %u blocks", MaxBlockNumber)));
	job.start = build->nblocks;
	job.npages = (uint32) npages;
	if (npages > 0)
		GgAddExtent(build->meta, job.start, job.npages, segment, kind);
	build->nblocks += job.npages;
	return job;
}

void
GgExtendRelation(GgBuild *build)
{
	GgExtendTo(build->index, MAIN_FORKNUM, build->nblocks);
}

/* ---- pages ----------------------------------------------------------------- */

/* Log and write npages pages at block start, which lie one after the other in build->pages. */
static void
PutPages(GgBuild *build, BlockNumber start, int npages, double *wal_s)
{
	Page		pages[GG_WRITE_BATCH];
	BlockNumber blocks[GG_WRITE_BATCH];

	for (int i = 0; i < npages; i++)
	{
		pages[i] = build->pages + (Size) i * BLCKSZ;
		blocks[i] = start + i;
	}
	if (build->shared->use_wal)
	{
		instr_time	began;

		INSTR_TIME_SET_CURRENT(began);
		log_newpages(&GgLocator(build->index), MAIN_FORKNUM, npages, blocks, pages, true);
		*wal_s += GgSecondsSince(began);
	}
	for (int i = 0; i < npages; i++)
		PageSetChecksumInplace(pages[i], blocks[i]);
	GgWriteRun(build->index, MAIN_FORKNUM, start, pages, npages, &build->file);
}

/* One of an array's pages; data is the array. */
static void
FormPage(GgBuild *build, const GgWriteJob *job, const char *data, uint32 number, Page page)
{
	uint64		offset = (uint64) number * GG_PAGE_PAYLOAD;
	Size		len = Min(job->bytes - offset, GG_PAGE_PAYLOAD);

	GgInitPage(page, build->meta->instance, job->segment, job->kind, number);
	memcpy(PageGetContents(page), data + offset, len);
	((PageHeader) page)->pd_lower = (PageGetContents(page) - (char *) page) + len;
}

/* The pages first .. first + count - 1 of an array. */
static void
WritePages(GgBuild *build, const GgWriteJob *job, const char *data, uint32 first, uint32 count, double *wal_s)
{
	if (build->pages == NULL)
	{
		/* aligned, since 16 and later may write past the kernel's cache */
		char	   *memory = MemoryContextAlloc(build->row_context, (GG_WRITE_BATCH + 1) * BLCKSZ);

		build->pages = (char *) TYPEALIGN(BLCKSZ, memory);
	}
	for (uint32 done = 0; done < count;)
	{
		int			npages = (int) Min(count - done, GG_WRITE_BATCH);

		GgCheckInterrupts();
		for (int i = 0; i < npages; i++)
			FormPage(build, job, data, first + done + i, build->pages + (Size) i * BLCKSZ);
		PutPages(build, job->start + first + done, npages, wal_s);
		done += npages;
	}
}

/* ---- together -------------------------------------------------------------- */

uint32
GgJobRanges(const GgWriteJob *job)
{
	return (job->npages + GG_RANGE_PAGES - 1) / GG_RANGE_PAGES;
}

/* Ranges [from, to) may be claimed soon: the leader needs them, and who will write them. */
static void
InitUsers(GgBuild *build, uint32 from, uint32 to)
{
	if (build->area.users != NULL)
		for (uint32 i = from; i < to; i++)
			pg_atomic_write_u32(&build->area.users[i], 2);
}

void
GgStartWriting(GgBuild *build)
{
	GgBuildShared *shared = build->shared;
	GgWriteJob *job = &shared->jobs[0];

	SpinLockAcquire(&shared->mutex);
	Assert(shared->done_ranges == shared->nranges || shared->ready_ranges == 0);
	job->kind = GG_KIND_VECTORS;
	job->segment = build->meta->next_segment;
	job->start = build->nblocks;
	job->npages = MaxBlockNumber / 2;
	job->bytes = PG_UINT64_MAX;
	shared->njobs = 1;
	shared->nranges = GgJobRanges(job);
	shared->ready_ranges = shared->next_range = shared->done_ranges = 0;
	shared->left_ranges = shared->next_left = 0;
	shared->striped_from = shared->striped_to = 0;
	shared->stripes = 1;
	SpinLockRelease(&shared->mutex);
}

void
GgOfferVectors(GgBuild *build, uint64 bytes)
{
	GgBuildShared *shared = build->shared;
	uint32		ready = shared->ready_ranges;	/* nobody else changes it */
	uint32		ranges = (uint32) (bytes / GG_RANGE_BYTES);

	/* the last block of each step is written an extra time before 16, see GgExtendTo() */
	if (ranges < ready + OFFER_RANGES)
		return;
	GgExtendTo(build->index, MAIN_FORKNUM, build->nblocks + ranges * GG_RANGE_PAGES);
	InitUsers(build, ready, ranges);
	GgOfferRanges(build, ranges - ready);
}

void
GgSettleWriting(GgBuild *build, const GgWriteJob *jobs, int njobs)
{
	GgBuildShared *shared = build->shared;
	uint32		ready = shared->ready_ranges;
	uint32		nranges = 0;
	uint32		pages = 0;

	Assert(njobs <= GG_MAX_JOBS);
	Assert(jobs[0].start == shared->jobs[0].start && jobs[0].segment == shared->jobs[0].segment);
	for (int i = 0; i < njobs; i++)
	{
		nranges += GgJobRanges(&jobs[i]);
		pages += jobs[i].npages;
	}
	Assert(ready <= jobs[0].npages / GG_RANGE_PAGES);
	InitUsers(build, ready, nranges);

	SpinLockAcquire(&shared->mutex);
	memcpy(shared->jobs, jobs, njobs * sizeof(GgWriteJob));
	shared->njobs = njobs;
	/* one process had better write in order */
	shared->stripes = build->pcxt != NULL ? Max(1, pages / RELSEG_SIZE) : 1;
	shared->striped_from = ready;
	shared->striped_to = shared->nranges = shared->ready_ranges = nranges;
	SpinLockRelease(&shared->mutex);
	ConditionVariableBroadcast(&shared->changed);
}

void
GgAddJob(GgBuild *build, const GgWriteJob *job)
{
	GgBuildShared *shared = build->shared;
	uint32		nranges = shared->nranges;

	Assert(shared->njobs < GG_MAX_JOBS && shared->ready_ranges == nranges);
	InitUsers(build, nranges, nranges + GgJobRanges(job));
	SpinLockAcquire(&shared->mutex);
	shared->jobs[shared->njobs++] = *job;
	shared->nranges += GgJobRanges(job);
	SpinLockRelease(&shared->mutex);
}

void
GgOfferRanges(GgBuild *build, uint32 more)
{
	SpinLockAcquire(&build->shared->mutex);
	build->shared->ready_ranges += more;
	SpinLockRelease(&build->shared->mutex);
	ConditionVariableBroadcast(&build->shared->changed);
}

static const char *
AreaData(GgBuild *build, GgKind kind)
{
	switch (kind)
	{
		case GG_KIND_VECTORS:
			return build->area.rows;
		case GG_KIND_TIDS:
			return (const char *) build->area.tids;
		case GG_KIND_ADJACENCY:
			return (const char *) build->area.adjacency;
		default:
			elog(ERROR, "pages of kind %d are not written together", kind);
	}
}

/* The leader has the graph as the engine made it. */
static const char *
JobData(GgBuild *build, GgKind kind)
{
	if (kind == GG_KIND_ADJACENCY && build->graph != NULL)
		return (const char *) build->graph->adjacency;
	return AreaData(build, kind);
}

/* The job that a range of all jobs' belongs to; *range: its number among that job's. */
static const GgWriteJob *
JobOfRange(const GgWriteJob *jobs, int njobs, uint32 *range)
{
	for (int i = 0; i < njobs; i++)
	{
		if (*range < GgJobRanges(&jobs[i]))
			return &jobs[i];
		*range -= GgJobRanges(&jobs[i]);
	}
	elog(ERROR, "range %u is behind the last one that is written", *range);
}

/* One who needed the range no longer does; the last one gives back the memory that it was written from. */
static void
LeaveRange(GgBuild *build, const GgWriteJob *jobs, int njobs, uint32 range)
{
	if (build->area.users != NULL && pg_atomic_sub_fetch_u32(&build->area.users[range], 1) == 0)
	{
		const GgWriteJob *job = JobOfRange(jobs, njobs, &range);
		uint64		offset = range * GG_RANGE_BYTES;

		GgReleaseArea(build, AreaData(build, job->kind) + offset, Min(GG_RANGE_BYTES, job->bytes - offset));
	}
}

void
GgLeaveRanges(GgBuild *build, uint32 end)
{
	SpinLockAcquire(&build->shared->mutex);
	build->shared->left_ranges = end;
	SpinLockRelease(&build->shared->mutex);
	ConditionVariableBroadcast(&build->shared->changed);
}

/* The range that a turn to write stands for; the mutex is held. */
static uint32
RangeOfTurn(const GgBuildShared *shared, uint32 turn)
{
	uint32		from = shared->striped_from;

	if (turn < from || turn >= shared->striped_to)
		return turn;
	return from + gg_stripes_range(turn - from, shared->striped_to - from, shared->stripes);
}

/* What a process does next: it writes a range, or the leader leaves one through it. */
typedef struct Turn
{
	bool		write;
	uint32		range;			/* of those of all jobs together */
	int			njobs;
	GgWriteJob	jobs[GG_MAX_JOBS];
	instr_time	start;
} Turn;

/* False when there is nothing to be done; writers as for GgWriteRange(). */
static bool
TakeTurn(GgBuildShared *shared, int writers, Turn *turn)
{
	bool		leave;

	INSTR_TIME_SET_CURRENT(turn->start);
	SpinLockAcquire(&shared->mutex);
	turn->njobs = shared->njobs;
	memcpy(turn->jobs, shared->jobs, sizeof(turn->jobs));
	leave = shared->next_left < shared->left_ranges;
	/* WAL is one for all, so where some write already the memory goes first: it would be waited for at the end */
	if (leave)
		writers = Min(writers, LEAVING_WRITERS);
	turn->write = shared->next_range < shared->ready_ranges && shared->writers < writers;
	if (turn->write)
	{
		turn->range = RangeOfTurn(shared, shared->next_range++);
		if (shared->writers++ == 0)
			shared->write_since = turn->start;
	}
	else if (leave)
		turn->range = shared->next_left++;
	SpinLockRelease(&shared->mutex);
	return turn->write || leave;
}

/* A range is written, which took so many seconds, some of them for WAL. */
static void
EndTurn(GgBuildShared *shared, double busy_s, double wal_s)
{
	bool		all;

	SpinLockAcquire(&shared->mutex);
	all = ++shared->done_ranges == shared->nranges;
	shared->write_busy_s += busy_s;
	shared->wal_busy_s += wal_s;
	if (--shared->writers == 0)
		shared->write_s += GgSecondsSince(shared->write_since);
	SpinLockRelease(&shared->mutex);
	if (all)
		ConditionVariableBroadcast(&shared->changed);
}

bool
GgWriteRange(GgBuild *build, int writers)
{
	Turn		turn;
	double		busy_s = 0.0,
				wal_s = 0.0;

	if (!TakeTurn(build->shared, writers, &turn))
		return false;
	if (turn.write)
	{
		uint32		range = turn.range;
		const GgWriteJob *job = JobOfRange(turn.jobs, turn.njobs, &range);
		uint32		first = range * GG_RANGE_PAGES;

		WritePages(build, job, JobData(build, job->kind), first, Min(GG_RANGE_PAGES, job->npages - first), &wal_s);
		busy_s = GgSecondsSince(turn.start);
	}
	/* before the range counts as done: with the last one the next round may begin, where its number has other users */
	LeaveRange(build, turn.jobs, turn.njobs, turn.range);
	if (turn.write)
		EndTurn(build->shared, busy_s, wal_s);
	return true;
}

void
GgFinishWriting(GgBuild *build)
{
	GgBuildShared *shared = build->shared;
	uint32		pages = 0;

	for (int i = 0; i < shared->njobs; i++)
		pages += shared->jobs[i].npages;
	for (;;)
	{
		uint32		done,
					total;
		bool		worked = GgWriteRange(build, INT_MAX);

		SpinLockAcquire(&shared->mutex);
		done = shared->done_ranges;
		total = shared->nranges;
		SpinLockRelease(&shared->mutex);
		pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, Min((int64) done * GG_RANGE_PAGES, pages));
		if (done == total)
			break;
		/* wakes up now and then to report */
		if (!worked)
			(void) ConditionVariableTimedSleep(&shared->changed, 100, WAIT_EVENT_PARALLEL_CREATE_INDEX_SCAN);
	}
	ConditionVariableCancelSleep();
}

void
GgWriteAlone(GgBuild *build, const GgWriteJob *job, const void *data)
{
	instr_time	start;
	double		wal_s = 0.0,
				busy_s;

	INSTR_TIME_SET_CURRENT(start);
	WritePages(build, job, data, 0, job->npages, &wal_s);
	busy_s = GgSecondsSince(start);
	SpinLockAcquire(&build->shared->mutex);
	build->shared->write_s += busy_s;
	build->shared->write_busy_s += busy_s;
	build->shared->wal_busy_s += wal_s;
	SpinLockRelease(&build->shared->mutex);
}

/* ---- the end ---------------------------------------------------------------- */

/*
 * Pages that bypass the buffer manager are unknown to checkpoints.  One that began after we logged
 * them would make recovery begin behind their WAL, so it must have synced them, or we do.  If none
 * began since our first record, asking the next one to sync is enough, and takes no time here, if
 * its queue has room; it is kept from beginning meanwhile.
 *
 * What skips WAL (wal_level = minimal) is synced by the commit, and nothing saves temporary relations.  Unlogged
 * ones are kept over a clean shutdown, whose checkpoint must know them.
 */
static void
SyncRelation(GgBuild *build)
{
	bool		asked = false;

	if (build->index->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		return;
	if (!build->shared->use_wal && build->index->rd_rel->relpersistence == RELPERSISTENCE_PERMANENT)
		return;

	MyProc->delayChkptFlags |= DELAY_CHKPT_START;
	if (build->start_redo == GetRedoRecPtr())
		asked = GgRegisterSync(build->index, MAIN_FORKNUM, build->nblocks);
	MyProc->delayChkptFlags &= ~DELAY_CHKPT_START;

	if (!asked)
	{
		SMgrRelation smgr = RelationGetSmgr(build->index);

		/*
		 * A sync cannot be interrupted, and gigabytes take a while.  So the kernel is asked to write piece by piece first: it
		 * lets us go on when its queue has room, and little is left to be waited for.
		 */
		GgEnterPhase(GG_BUILD_SYNC, build->nblocks);
		(void) smgrnblocks(smgr, MAIN_FORKNUM); /* opens every file: what is not open is not written */
		for (BlockNumber first = 0; first < build->nblocks; first += SYNC_BLOCKS)
		{
			GgCheckInterrupts();
			smgrwriteback(smgr, MAIN_FORKNUM, first, Min(SYNC_BLOCKS, build->nblocks - first));
			pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, first);
		}
		smgrimmedsync(smgr, MAIN_FORKNUM);
	}
}

/* Synced twice, where it has to be done here: the metapage tells how long everything else took. */
void
GgFinishRelation(GgBuild *build)
{
	GgBuildShared *shared = build->shared;
	double		wal_s = 0.0;
	double		share;

	SyncRelation(build);

	/* of the wall time of writing, as large a part went into WAL as of the processes' */
	share = shared->write_busy_s > 0 ? shared->wal_busy_s / shared->write_busy_s : 0.0;
	build->times.total_s = GgSecondsSince(build->start);
	build->meta->times = build->times;
	build->meta->times.wal_s = shared->write_s * share;
	build->meta->times.write_s = shared->write_s - build->meta->times.wal_s;

	if (build->pages == NULL)
		WritePages(build, NULL, NULL, 0, 0, &wal_s);	/* for its buffer */
	GgFormMetaPage((Page) build->pages, build->meta);
	GgExtendRelation(build);
	PutPages(build, GG_META_BLKNO, 1, &wal_s);
	SyncRelation(build);

	/*
	 * While an index is built concurrently its catalog entries are committed, and others may read its blocks (pg_prewarm, say).
	 * What shared buffers have of them is from before they were written.
	 */
	if (build->indexInfo->ii_Concurrent)
		GgDropBuffers(build->index, MAIN_FORKNUM);
}
