/*
 * build.c
 *		CREATE INDEX and REINDEX: rounds, each of which makes a segment.
 *
 * In a round the heap is scanned, by several processes where that pays, and its vectors are
 * collected as the rows of a data set (heap_scan.c).  Equal rows become one node
 * (deduplicate.c).  The engine makes the graph.  Vectors, TIDs, adjacency and pivots are written
 * as one segment behind the metapage (storage/segment_writer.c).  When the table does not fit in
 * memory (memory.c), another round follows.  Where there is memory for two segments, the next round
 * goes on while the segment of the one before is built and written (segment.c).
 *
 * Rows are final once their chunk is full.  So all processes write pages between two chunks, and
 * go on writing while the engine runs.
 *
 * Nobody else reads the relation before the transaction commits, so no locks are taken.
 */
#include "build/segment.h"
#include "build/deduplicate.h"
#include "service/shared/service.h"
#include "storage/graph_memory.h"

#include "access/xloginsert.h"
#include "catalog/index.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* Segments are larger by this, as expected rows are an estimate: n devices are to get n of them. */
#define SPREAD_SLACK		1.02

/* ---- however the build ends ---------------------------------------------- */

/* Threads and devices first: they read the areas. */
static void
ReleaseBuild(void *arg)
{
	GgBuild    *build = arg;

	GgReleaseWorks(build);
	for (int i = 0; i < GG_WRITER_QUEUES; i++)
		GgUnmapArea(&build->process.areas[i], true);
	GgCloseRunFile(&build->process.writer.file);
	GgReleaseEngine(build);
}

/* ---- rounds ------------------------------------------------------------- */

static GgSegmentWork *
CurrentWork(GgBuild *build)
{
	return &build->works[GgAreaNumber(&build->process.scan)];
}

static void
BeginRound(GgBuild *build, bool first)
{
	GgShowScan(build);
	GgBeginRound(&build->process.scan, first);
	GgBeginWork(build, CurrentWork(build));
}

/* The area is full and the table goes on. */
static void
EndRound(void *arg)
{
	GgBuild    *build = arg;
	GgParticipant *process = &build->process;
	GgArea	   *full = process->scan.area;
	GgArea	   *next = GgNextArea(&process->scan);

	GgCloseWork(build, CurrentWork(build), true);
	GgFinishWork(build, &build->works[next - process->areas]);
	/* the last segment takes all that is left, whatever memory that is */
	if (build->meta->nsegments >= GG_MAX_BUILD_SEGMENTS - 1)
	{
		next->most = GG_MAX_NODES;
		next->shared->limit = next->shared->capacity;
	}
	GgEmptyArea(next, GgCountRanges(&process->writer, (int) (next - process->areas)));
	build->scan_start_us = GgNowMicros();
	if (next == full)
		GgResetTables(full, false);
	BeginRound(build, false);
	if (next != full)
		GgResetTables(full, false);
}

/* Some rows are read. */
static void
Look(void *arg)
{
	GgTendSegments(arg, true);
}

/* The next build, and merges, learn from the same queries. */
static void
WriteSample(GgBuild *build)
{
	uint64		bytes;
	void	   *data;

	if (build->sample == NULL)
		return;
	data = GgFormSample(build->sample, &bytes);
	GgWriteArray(&build->process.writer, build->meta->next_id++, GG_KIND_SAMPLE, data, bytes);
	pfree(data);
}

/* ---- the end -------------------------------------------------------------- */

static void
ReportSync(BlockNumber done, BlockNumber total)
{
	if (done == 0)
		GgEnterPhase(GG_BUILD_SYNC, 0, total);
	GgReportBlocks(done);
}

/*
 * Write the metapage, and make the relation survive a crash.  Where the sync has to be done here,
 * it is done twice: the metapage tells how long everything before it took.
 */
static void
FinishRelation(GgBuild *build)
{
	GgSegmentWriter *writer = &build->process.writer;
	GgWriterShared *shared = writer->shared;
	GgBuildTimes *times = &build->times;
	double		share;

	GgSyncWriter(writer, ReportSync);

	/* WAL has the same share of the time of writing as of the processes' time */
	share = shared->busy_s > 0 ? shared->wal_s / shared->busy_s : 0.0;
	for (int i = 0; i < GG_WRITER_QUEUES; i++)
		times->copy_s += build->works[i].device.copy_s;
	times->total_s = GgSecondsSince(build->start_us);
	times->wal_s = shared->write_s * share;
	times->write_s = shared->write_s - times->wal_s;
	build->meta->times = *times;
	build->meta->engine = build->plan.engine == &gg_cpu_engine ? 1 : 2;

	GgWriteMetaPage(writer);
	GgSyncWriter(writer, ReportSync);

	/*
	 * While an index is built concurrently its catalog entries are committed, and others may read
	 * its blocks (pg_prewarm, say).  What shared buffers have of them is from before they were
	 * written.
	 */
	if (build->process.shared->concurrent)
		GgDropBuffers(writer->index);
}

/* ---- entry points ------------------------------------------------------ */

static GgBuild *
CreateBuild(Relation heap, const GgMetaPageData *meta, const GgOptions *options)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph build",
												  ALLOCSET_DEFAULT_SIZES);
	GgBuild    *build = MemoryContextAllocZero(context, sizeof(GgBuild));
	GgMemoryPlan *plan = &build->plan;
	int			codes;

	build->start_us = GgNowMicros();
	build->scan_start_us = build->start_us;
	build->context = context;
	plan->engine = build->opened = GgChooseEngine();
	GgFindBuildDevices(plan->engine, &plan->devices);
	plan->apart = plan->engine != &gg_cpu_engine || gg_service_engine == GG_SERVICE_CPU;
	GgGetBuildParams(meta, options, &plan->params);
	plan->control.scratch = gg_engine_thread_scratch;
	plan->control.threads = max_parallel_maintenance_workers + 1;
	plan->expected = GgExpectedRows(heap);
	plan->bound = GgMostSegmentRows(options, plan->expected * SPREAD_SLACK);
	codes = GgBuildCodes(meta, options);
	plan->auto_codes = codes == GG_CODES_AUTO;
	plan->codes = plan->auto_codes ? GG_CODES_NONE : (gg_codes) codes;
	for (int i = 0; i < GG_WRITER_QUEUES; i++)
	{
		build->works[i].number = i;
		build->works[i].area = &build->process.areas[i];
		build->works[i].device.engine = plan->engine;
		build->works[i].chosen = -1;
	}
	GgAtReset(context, ReleaseBuild, build);
	return build;
}

static void
LogTimes(const GgBuild *build, const char *index, const IndexBuildResult *result)
{
	const GgBuildTimes *times = &build->times;
	double		open_s = 0,
				late_s = 0,
				hand_over_s = 0;

	for (int i = 0; i < GG_WRITER_QUEUES; i++)
	{
		open_s += build->works[i].device.open_s;
		late_s += build->works[i].device.late_s;
		hand_over_s += build->works[i].device.hand_over_s;
	}
	ereport(DEBUG1,
			(errmsg_internal("gpugraph build of \"%s\": %.0f rows in %u segments, total %.3f s, "
							 "scan %.3f s (heap read in %.3f s, the copy's rest then %.3f s), "
							 "device opened in %.3f s, copy %.3f s, k-NN graph %.3f s, "
							 "optimize %.3f s, write %.3f s, WAL %.3f s; hand-over %.3f s",
							 index, result->index_tuples, build->meta->nsegments,
							 times->total_s, times->scan_s, build->heap_s, late_s, open_s,
							 times->copy_s, times->knn_s, times->optimize_s, times->write_s,
							 times->wal_s, hand_over_s)));
}

IndexBuildResult *
ggbuild(Relation heap, Relation index, IndexInfo *indexInfo)
{
	IndexBuildResult *result = palloc(sizeof(IndexBuildResult));
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgOptions	options;
	GgBuild    *build;
	GgParticipant *process;
	GgCaller	caller;
	bool		as_owner;
	MemoryContext old;

	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data", RelationGetRelationName(index));

	GgGetOptions(index, &options);
	GgInitMeta(meta, index, &options);
	build = CreateBuild(heap, meta, &options);
	process = &build->process;
	as_owner = GgEvaluatesAsOwner(index, meta);
	if (as_owner)
		GgActAsOwner(heap, &caller);
	old = MemoryContextSwitchTo(build->context);
	build->sample = GgInheritSample(heap, index);
	GgBeginProcesses(process, heap, index, indexInfo, meta, &build->plan);
	build->meta = &process->shared->meta;
	process->scan.segment_full = EndRound;
	process->scan.look = Look;
	process->scan.arg = build;
	MemoryContextSwitchTo(old);

	BeginRound(build, true);
	GgScanTable(process);
	while (GgWorkersGoOn(&process->scan))
		EndRound(build);
	GgCloseWork(build, CurrentWork(build), false);
	GgFinishWorks(build);
	WriteSample(build);
	if ((build->meta->flags & GG_META_CODES_LOSE) != 0)
		GgFreeCodes(build->meta);
	indexInfo->ii_BrokenHotChain |= process->shared->scan.broken_hot_chain;
	result->heap_tuples = process->shared->scan.heap_rows;
	result->index_tuples = (double) pg_atomic_read_u64(&process->shared->scan.rows_done);

	FinishRelation(build);
	for (int i = 0; i < GG_WRITER_QUEUES; i++)
		GgEndHandOver(&build->works[i].device);
	LogTimes(build, RelationGetRelationName(index), result);
	GgEndProcesses(process);
	if (as_owner)
		GgActAsCaller(&caller);

	MemoryContextDelete(build->context);
	pfree(meta);
	return result;
}

/* The empty index that an unlogged relation starts from after a crash. */
void
ggbuildempty(Relation index)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgOptions	options;
	Buffer		buffer;

	GgGetOptions(index, &options);
	GgInitMeta(meta, index, &options);
	buffer = GgExtendOne(index, INIT_FORKNUM);
	Assert(BufferGetBlockNumber(buffer) == GG_META_BLKNO);
	START_CRIT_SECTION();
	GgFormMetaPage(BufferGetPage(buffer), meta);
	MarkBufferDirty(buffer);
	log_newpage_buffer(buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
	pfree(meta);
}
