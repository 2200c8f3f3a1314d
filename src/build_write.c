/*
 * build_write.c
 *		The pages of a new index: formed in memory, logged and written in large runs, each once.
 *
 * Nobody uses the relation before the transaction commits, so pages bypass the buffer manager, as those
 * of nbtree's builds do: into a file that the leader has extended, by any process and in any order.  No WAL is flushed before a
 * page is written: after a crash before the commit the file goes anyway, or (CREATE INDEX CONCURRENTLY) belongs to an index that is
 * not ready and never read.
 */
#include "build.h"
#include "stripes.h"

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

		CHECK_FOR_INTERRUPTS();
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

void
GgStartWriting(GgBuild *build, const GgWriteJob *jobs, int njobs, bool ready)
{
	GgBuildShared *shared = build->shared;
	uint32		nranges = 0;
	uint32		pages = 0;

	Assert(njobs <= GG_MAX_JOBS);
	for (int i = 0; i < njobs; i++)
	{
		nranges += GgJobRanges(&jobs[i]);
		pages += jobs[i].npages;
	}
	build->left = 0;
	if (build->area.users != NULL)
		for (uint32 i = 0; i < nranges; i++)
			pg_atomic_write_u32(&build->area.users[i], 2);	/* the leader and who writes it */
	INSTR_TIME_SET_CURRENT(build->write_start);

	SpinLockAcquire(&shared->mutex);
	Assert(shared->done_ranges == shared->nranges);
	memcpy(shared->jobs, jobs, njobs * sizeof(GgWriteJob));
	shared->njobs = njobs;
	/* what is not ready is made ready in order, and is then written so; one process had better write in order */
	shared->stripes = ready && build->pcxt != NULL ? Max(1, pages / RELSEG_SIZE) : 1;
	shared->nranges = nranges;
	shared->ready_ranges = ready ? nranges : 0;
	shared->next_range = 0;
	shared->done_ranges = 0;
	shared->write_end = build->write_start;
	SpinLockRelease(&shared->mutex);
	ConditionVariableBroadcast(&shared->changed);
}

void
GgOfferRanges(GgBuild *build, uint32 ready)
{
	SpinLockAcquire(&build->shared->mutex);
	build->shared->ready_ranges = ready;
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
	for (; build->left < end; build->left++)
	{
		CHECK_FOR_INTERRUPTS();
		LeaveRange(build, build->shared->jobs, build->shared->njobs, build->left);
	}
}

bool
GgWriteRange(GgBuild *build)
{
	GgBuildShared *shared = build->shared;
	GgWriteJob	jobs[GG_MAX_JOBS];
	const GgWriteJob *job;
	uint32		turn,
				range,
				first;
	int			njobs;
	double		wal_s = 0.0,
				busy_s;
	bool		all;
	instr_time	start;

	SpinLockAcquire(&shared->mutex);
	if (shared->next_range >= shared->ready_ranges)
	{
		SpinLockRelease(&shared->mutex);
		return false;
	}
	turn = shared->next_range++;
	njobs = shared->njobs;
	memcpy(jobs, shared->jobs, sizeof(jobs));
	range = gg_stripes_range(turn, shared->nranges, shared->stripes);
	SpinLockRelease(&shared->mutex);

	INSTR_TIME_SET_CURRENT(start);
	first = range;
	job = JobOfRange(jobs, njobs, &first);
	first *= GG_RANGE_PAGES;
	WritePages(build, job, JobData(build, job->kind), first, Min(GG_RANGE_PAGES, job->npages - first), &wal_s);
	busy_s = GgSecondsSince(start);
	INSTR_TIME_SET_CURRENT(start);
	LeaveRange(build, jobs, njobs, range);

	SpinLockAcquire(&shared->mutex);
	all = ++shared->done_ranges == shared->nranges;
	shared->write_busy_s += busy_s;
	shared->wal_busy_s += wal_s;
	if (all)
		shared->write_end = start;
	SpinLockRelease(&shared->mutex);
	if (all)
		ConditionVariableBroadcast(&shared->changed);
	return true;
}

void
GgFinishWriting(GgBuild *build, uint32 before)
{
	GgBuildShared *shared = build->shared;
	uint32		pages = 0;
	instr_time	end;

	for (int i = 0; i < shared->njobs; i++)
		pages += shared->jobs[i].npages;
	for (;;)
	{
		uint32		done,
					total;
		bool		wrote = GgWriteRange(build);

		SpinLockAcquire(&shared->mutex);
		done = shared->done_ranges;
		total = shared->nranges;
		end = shared->write_end;
		SpinLockRelease(&shared->mutex);
		pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE,
									 before + Min((int64) done * GG_RANGE_PAGES, pages));
		if (done == total)
			break;
		/* wakes up now and then to report */
		if (!wrote)
			(void) ConditionVariableTimedSleep(&shared->changed, 100, WAIT_EVENT_PARALLEL_CREATE_INDEX_SCAN);
	}
	ConditionVariableCancelSleep();
	INSTR_TIME_SUBTRACT(end, build->write_start);
	build->times.write_s += INSTR_TIME_GET_DOUBLE(end);
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
	build->times.write_s += busy_s;
	SpinLockAcquire(&build->shared->mutex);
	build->shared->write_busy_s += busy_s;
	build->shared->wal_busy_s += wal_s;
	SpinLockRelease(&build->shared->mutex);
}

/* ---- the end ---------------------------------------------------------------- */

/*
 * Pages that bypass the buffer manager are unknown to checkpoints.  One that began after we logged them would make
 * recovery begin behind their WAL, so it must have synced them, or we do.  If none began since our first record, asking
 * the next one to sync is enough, and takes no time here; it is kept from beginning meanwhile.
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
	{
		GgRegisterSync(build->index, MAIN_FORKNUM, build->nblocks);
		asked = true;
	}
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
			CHECK_FOR_INTERRUPTS();
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
	build->meta->times.wal_s = build->times.write_s * share;
	build->meta->times.write_s -= build->meta->times.wal_s;

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
