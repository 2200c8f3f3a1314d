/*
 * build.c
 *		CREATE INDEX and REINDEX: rounds, each of which makes a segment.
 *
 * In a round the heap is scanned, by several processes where that pays, and its vectors are
 * collected as the rows of a data set (heap_scan.c).  Equal rows become one node
 * (deduplicate.c).  The engine makes the graph.  Vectors, TIDs, adjacency and pivots are written
 * as one segment behind the metapage (storage/segment_writer.c).  When the table does not fit in
 * memory (memory.c), another round follows.
 *
 * Rows are final once their chunk is full.  So all processes write pages between two chunks, and
 * the workers go on writing while the leader runs the engine.
 *
 * Nobody else reads the relation before the transaction commits, so no locks are taken.
 */
#include "build/build.h"
#include "build/deduplicate.h"
#include "build/device.h"
#include "merge/merge.h"
#include "service/shared/service.h"
#include "storage/graph_memory.h"

#include "access/xloginsert.h"
#include "catalog/index.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* How often the leader reports while others write. */
#define REPORT_MS			100

/* Rows that are expected are an estimate: segments for n devices are to be n. */
#define SPREAD_SLACK		1.02

/* The leader's. */
typedef struct GgBuild
{
	GgParticipant process;
	GgMemoryPlan plan;
	GgBuildDevice device;
	GgMetaPageData *meta;		/* the shared one */
	GgLearnSample *sample;		/* of queries whose edges are learned; NULL: there is none */
	const gg_engine *opened;	/* to be released */
	bool		caught;			/* an error beneath the engine, not thrown yet */
	int			engine_phase;	/* the gg_phase that is shown, or -1 */
	MemoryContext context;		/* what lives as long as the build */
	gg_graph   *graph;			/* of the segment in work */
	GgPivotEntry *pivots;		/* its pivots, as they are written */
	GgScratch	scratch;		/* the engine's while it makes a graph */
	GgBuildTimes times;
	double		heap_s;			/* the part of times.scan_s in which processes filled chunks */
	instr_time	start;			/* of all */
	instr_time	scan_start;		/* of this round */
} GgBuild;

/* ---- what the engine asks for while it runs ----------------------------- */

static bool
EngineCancelled(void *ctx)
{
	GgBuild    *build = ctx;

	return GgServeInterrupts(&build->caught);
}

static void
EngineProgress(void *ctx, gg_phase phase, uint64_t done, uint64_t total)
{
	GgBuild    *build = ctx;

	if (build->engine_phase != (int) phase)
		GgEnterPhase(GG_BUILD_GRAPH + phase, (int64) total, 0);
	build->engine_phase = (int) phase;
	GgReportTuples((int64) done);
}

static void *
TakeScratch(void *ctx, uint64_t bytes)
{
	GgBuild    *build = ctx;

	return GgTakeScratch(&build->scratch, bytes, &build->caught);
}

/* ---- however the build ends ---------------------------------------------- */

/* The graph's memory belongs to the engine. */
static void
FreeGraph(void *arg)
{
	gg_graph_free((gg_graph *) arg);
}

/* So does the device's context. */
static void
ReleaseEngine(GgBuild *build)
{
	if (build->opened != NULL)
		build->opened->release();
	build->opened = NULL;
}

/* The threads first, for they read the area and write to the device. */
static void
ReleaseBuild(void *arg)
{
	GgBuild    *build = arg;

	GgAbandonUpload(&build->device, NULL);
	GgFreeScratch(&build->scratch, false);
	GgUnmapArea(&build->process.area, true);
	GgCloseRunFile(&build->process.writer.file);
	ReleaseEngine(build);
}

static void
AtReset(MemoryContext context, MemoryContextCallbackFunction func, void *arg)
{
	MemoryContextCallback *callback = MemoryContextAlloc(context, sizeof(MemoryContextCallback));

	callback->func = func;
	callback->arg = arg;
	MemoryContextRegisterResetCallback(context, callback);
}

/* ---- the graph --------------------------------------------------------- */

static gg_dataset
DataSet(const GgBuild *build)
{
	return (gg_dataset) {
		.rows = build->process.area.rows, .n = build->process.area.nodes,
		.dim = build->meta->dimensions, .element = build->meta->element,
		.metric = build->meta->metric
	};
}

/* Build the graph by plan.engine: over the rows of the area, or over those on the device. */
static gg_status
RunEngine(GgBuild *build, bool on_device, gg_build_stats *stats)
{
	GgMemoryPlan *plan = &build->plan;
	gg_dataset	data = DataSet(build);
	gg_status	status;

	memset(stats, 0, sizeof(*stats));
	build->engine_phase = -1;
	if (on_device)
		status = plan->engine->build_index(build->device.index, data.n, &plan->params,
										   &plan->control, build->graph, stats);
	else
	{
		GgOpenDevice(plan->engine);
		status = plan->engine->build(&data, &plan->params, &plan->control, build->graph, stats);
	}
	GgThrowInterrupts(build->caught);
	GgFreeScratch(&build->scratch, true);
	return status;
}

static void
BuildGraph(GgBuild *build, bool on_device)
{
	gg_build_stats stats;
	gg_status	status = RunEngine(build, on_device, &stats);

	/* the device's memory is for others from now on */
	GgAbandonUpload(&build->device, NULL);
	/* its index had room for the rows that were expected; there may be far fewer rows */
	if (on_device && status.code == GG_EDEVICE_MEMORY)
		status = RunEngine(build, false, &stats);
	if (status.code == GG_EDEVICE_MEMORY && gg_engine_setting == GG_ENGINE_AUTO)
	{
		ereport(NOTICE,
				(errmsg("gpugraph index is built on the CPU"),
				 errdetail("The GPU's memory does not suffice: %s.", status.message),
				 errhint("Lower gpugraph.device_memory or maintenance_work_mem, "
						 "so that the index is built in smaller segments.")));
		build->plan.engine = &gg_cpu_engine;
		build->plan.apart = false;
		status = RunEngine(build, false, &stats);
	}
	if (status.code != GG_OK)
		GgReportStatus(&status, "building a gpugraph index");
	ereport(DEBUG1,
			(errmsg_internal("gpugraph graph of %u nodes on the %s engine: first lists %.3f s, "
							 "descent %.3f s in %u iterations, reordering %.3f s, "
							 "connecting %.3f s with %u repairs, transfer %.3f s",
							 build->process.area.nodes, build->plan.engine->name, stats.init_s,
							 stats.descent_s, stats.iterations, stats.optimize_s, stats.connect_s,
							 stats.repaired, stats.transfer_s)));
	build->times.knn_s += stats.init_s + stats.descent_s;
	build->times.optimize_s += stats.optimize_s + stats.connect_s;
	build->times.copy_s += stats.transfer_s;
}

/* Learn the edges of the sample. */
static void
LearnEdges(GgBuild *build, GgSegment *segment, const uint32 *offsets)
{
	gg_control	control = {
		.cancelled = EngineCancelled, .ctx = build, .threads = build->plan.control.threads
	};
	GgNewGraph	graph = {
		.data = DataSet(build), .offsets = offsets, .graph = build->graph,
		.seed = (uint64) build->meta->seed
	};
	gg_status	status;
	uint32		edges;

	if (build->sample == NULL)
		return;
	GgEnterPhase(GG_BUILD_LEARN, segment->nodes, 0);
	status = GgLearnNewGraph(build->sample, &graph, build->plan.engine, &control, &edges);
	GgThrowInterrupts(build->caught);
	if (status.code != GG_OK)
		GgReportStatus(&status, "learning edges of a gpugraph index");
	GgSetLearnedEdges(segment, edges);
}

/* The pivots' entries as they are stored. */
static void
FormPivots(GgBuild *build)
{
	const gg_graph *graph = build->graph;

	build->pivots = palloc(Max(graph->npivots, 1) * sizeof(GgPivotEntry));
	for (uint32 i = 0; i < graph->npivots; i++)
	{
		build->pivots[i].node = graph->pivots[i];
		memcpy(build->pivots[i].neighbors, graph->pivot_adjacency + (Size) i * GG_PIVOT_DEGREE,
			   sizeof(build->pivots[i].neighbors));
	}
}

/* ---- one segment ------------------------------------------------------- */

/* Take part in writing, in this phase, until all arrays added so far are written. */
static void
FinishWriting(GgBuild *build, GgBuildPhase phase)
{
	GgParticipant *process = &build->process;
	BlockNumber done,
				total;

	(void) GgIsWritten(&process->writer, &done, &total);
	GgEnterPhase(phase, 0, total);
	for (;;)
	{
		bool		worked = GgShareWork(&process->scan, INT_MAX);
		bool		all = GgIsWritten(&process->writer, &done, &total);

		GgReportBlocks(done);
		if (all)
			break;
		if (!worked)
			GgWaitForWriters(&process->writer, REPORT_MS);
	}
	GgEndWait();
}

/*
 * The vectors' number is known, and TIDs and filter words are sorted.  Offsets, which the leader
 * alone has, it writes at once.
 */
static void
AddRowArrays(GgBuild *build, const GgSegment *segment, const uint32 *offsets)
{
	GgArea	   *area = &build->process.area;
	GgSegmentWriter *writer = &build->process.writer;
	uint64		tid_bytes = (uint64) segment->rows * sizeof(GgTidEntry);
	uint64		filter_bytes = (uint64) segment->rows * GgFilterBytes(build->meta);
	gg_codes	codes = build->plan.codes;
	uint64		code_bytes = segment->nodes * GgCodeBytes(build->meta, codes);

	writer->data[GG_KIND_VECTORS] = area->rows;
	writer->data[GG_KIND_TIDS] = area->tids;
	writer->data[GG_KIND_FILTERS] = area->filters;
	GgEndGrowth(writer, build->meta->coded != GG_CODES_NONE ? code_bytes :
				(uint64) segment->nodes * GgRowBytes(build->meta));
	GgAddArray(writer, segment->id, GG_KIND_TIDS, tid_bytes);
	GgArrayReady(writer, tid_bytes);
	if (filter_bytes > 0)
	{
		GgAddArray(writer, segment->id, GG_KIND_FILTERS, filter_bytes);
		GgArrayReady(writer, filter_bytes);
	}
	if (codes != GG_CODES_NONE && build->meta->coded == GG_CODES_NONE)
	{
		GgAddArray(writer, segment->id, GG_KIND_CODES, code_bytes);
		GgArrayReady(writer, code_bytes);
	}
	if (offsets != NULL)
		GgWriteArray(writer, segment->id, GG_KIND_OFFSETS, offsets,
					 ((uint64) segment->nodes + 1) * sizeof(uint32));
}

/* The graph's lists, piece by piece from the engine's memory into what all processes share. */
static void
AddAdjacency(GgBuild *build, const GgSegment *segment)
{
	GgParticipant *process = &build->process;
	GgArea	   *area = &process->area;
	char	   *shared = (char *) area->adjacency;
	char	   *source = (char *) build->graph->adjacency;
	uint64		bytes = (uint64) segment->nodes * build->meta->graph_degree * sizeof(uint32);

	process->writer.data[GG_KIND_ADJACENCY] = source;
	GgAddArray(&process->writer, segment->id, GG_KIND_ADJACENCY, bytes);
	if (process->pcxt != NULL && process->pcxt->nworkers_launched > 0)
	{
		for (uint64 offset = 0; offset < bytes; offset += GG_RANGE_BYTES)
		{
			Size		piece = Min(GG_RANGE_BYTES, bytes - offset);

			GgCheckInterrupts();
			GgReserveArea(area, shared + offset, piece);
			memcpy(shared + offset, source + offset, piece);
			GgArrayReady(&process->writer, offset + piece);
		}
	}
	GgArrayReady(&process->writer, bytes);
}

/* The leader needs no range before this one; others give them up for it, and it does so later. */
static void
LeaveRanges(GgBuild *build, uint32 ranges)
{
	GgSetUnneeded(&build->process.area, ranges);
	GgWakeWriters(&build->process.writer);
}

/* Rows are the first of what is written. */
static void
HandedOver(void *arg, uint64 row_bytes, uint64 pages)
{
	if (row_bytes > 0)
		LeaveRanges(arg, (uint32) (row_bytes / GG_RANGE_BYTES));
	GgReportBlocks((int64) pages);
}

/* A segment for the rows in the area. */
static GgSegment *
AddSegment(GgBuild *build)
{
	GgMetaPageData *meta = build->meta;
	GgSegment  *segment;

	/* a table of far more rows than was to be expected can get here */
	if (meta->nsegments >= GG_MAX_SEGMENTS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("gpugraph index would have more than %d segments", GG_MAX_SEGMENTS),
				 errhint("ANALYZE the table, or increase maintenance_work_mem.")));
	segment = GgAddSegment(meta);
	segment->nodes = meta->pieces[meta->npieces - 1].nodes = build->process.area.nodes;
	segment->rows = build->process.area.nrows;
	if (segment->rows != segment->nodes)
		segment->flags = GG_SEGMENT_OFFSETS;
	meta->pieces[meta->npieces - 1].codes = build->plan.codes;
	return segment;
}

/*
 * Make the rows in the area a segment.  Vectors go where the segment begins, so that they can be
 * written during the scan.  The number of pivots comes with the graph, and they go last.
 */
static void
MakeSegment(GgBuild *build, bool more)
{
	GgParticipant *process = &build->process;
	GgArea	   *area = &process->area;
	GgSegment  *segment = AddSegment(build);
	uint32	   *offsets;
	bool		on_device;

	GgEnterPhase(GG_BUILD_DEDUPLICATE, area->nrows, 0);
	offsets = GgSortRows(area);
	if (!more)
		GgResetTables(area, true);
	build->graph = palloc0(sizeof(gg_graph));
	AtReset(CurrentMemoryContext, FreeGraph, build->graph);
	AddRowArrays(build, segment, offsets);
	build->times.scan_s += GgSecondsSince(build->scan_start);

	/* the CPU engine has a thread on every core, and would be in the others' way */
	if (!build->plan.apart)
		FinishWriting(build, GG_BUILD_WRITE_ROWS);
	if (build->device.upload != NULL)
		GgEnterPhase(GG_BUILD_UPLOAD, area->nodes, 0);
	on_device = GgCompleteUpload(&build->device, area, build->meta);
	BuildGraph(build, on_device);
	/* codes are made of vectors, which go as soon as they are handed over */
	if (build->plan.codes != GG_CODES_NONE && build->plan.apart)
		FinishWriting(build, GG_BUILD_WRITE_ROWS);
	segment->npivots = build->graph->npivots;
	LearnEdges(build, segment, offsets);
	AddAdjacency(build, segment);
	FormPivots(build);
	if (!more)
	{
		/* while the others write, one after the other because of WAL's locks */
		GgHandOverArrays arrays = {area, build->graph, build->pivots, offsets};

		GgHandOver(&build->device, process->scan.index, build->meta, &arrays, HandedOver, build);
		ReleaseEngine(build);
		LeaveRanges(build, GgCountRanges(&process->writer));
	}
	FinishWriting(build, GG_BUILD_WRITE);
	GgWriteArray(&process->writer, segment->id, GG_KIND_PIVOTS, build->pivots,
				 (uint64) segment->npivots * sizeof(GgPivotEntry));
}

/* Make a segment of the area, which no process fills any more.  more: the table goes on. */
static void
FlushArea(GgBuild *build, bool more)
{
	GgArea	   *area = &build->process.area;
	MemoryContext context,
				old;

	GgCloseGaps(area);
	build->heap_s += GgSecondsSince(build->scan_start);
	if (build->device.upload != NULL)
		GgEnterPhase(GG_BUILD_UPLOAD, area->nodes, 0);
	GgDrainUpload(&build->device);
	if (more)
		GgAnnounceSegments(&build->plan, build->meta, area->nrows);
	if (area->nodes == 0)
	{
		GgAbandonUpload(&build->device, NULL);
		return;
	}
	GgAnnounceMemory(&build->plan, build->meta, area->nodes, area->nrows);
	context = AllocSetContextCreate(build->context, "gpugraph segment", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	MakeSegment(build, more);
	MemoryContextSwitchTo(old);
	if (more)
	{
		build->graph = NULL;
		build->pivots = NULL;
		MemoryContextDelete(context);
		INSTR_TIME_SET_CURRENT(build->scan_start);
	}
}

/* ---- rounds ------------------------------------------------------------- */

static void
BeginRound(GgBuild *build, bool first)
{
	GgParticipant *process = &build->process;
	double		rows = build->plan.expected -
		(double) pg_atomic_read_u64(&process->shared->scan.rows_done);

	GgEnterPhase(GG_BUILD_LOAD, (int64) build->plan.expected,
				 RelationGetNumberOfBlocks(process->scan.heap));
	/* how many rows a predicate lets through is not known */
	if (build->plan.apart && process->scan.indexInfo->ii_Predicate == NIL)
		GgStartUpload(&build->device, &process->area, build->meta,
					  rows > 0 ? rows : build->plan.most, process->shared->scan.participants);
	GgBeginRound(&process->scan, first);
}

/* The area is full and the table goes on. */
static void
EndRound(void *arg)
{
	GgBuild    *build = arg;
	GgArea	   *area = &build->process.area;

	FlushArea(build, true);

	GgResetTables(area, false);
	/* the last segment takes all that is left, whatever memory that is */
	if (build->meta->nsegments >= GG_MAX_BUILD_SEGMENTS - 1)
	{
		area->most = GG_MAX_NODES;
		area->shared->limit = area->shared->capacity;
	}
	GgEmptyArea(area, GgCountRanges(&build->process.writer));
	BeginRound(build, false);
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
 * The metapage, and what makes the relation survive a crash.  Where the sync has to be done here,
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
	times->copy_s += build->device.copy_s;
	times->total_s = GgSecondsSince(build->start);
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
		GgDropBuffers(writer->index, MAIN_FORKNUM);
}

/* ---- entry points ------------------------------------------------------ */

static GgBuild *
CreateBuild(Relation heap, const GgMetaPageData *meta, const GgOptions *options)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph build",
												  ALLOCSET_DEFAULT_SIZES);
	GgBuild    *build = MemoryContextAllocZero(context, sizeof(GgBuild));
	GgMemoryPlan *plan = &build->plan;

	INSTR_TIME_SET_CURRENT(build->start);
	build->scan_start = build->start;
	build->context = context;
	plan->engine = build->opened = build->device.engine = GgChooseEngine();
	plan->apart = plan->engine != &gg_cpu_engine || gg_service_engine == GG_SERVICE_CPU;
	GgGetBuildParams(meta, options, &plan->params);
	plan->control.cancelled = EngineCancelled;
	plan->control.progress = EngineProgress;
	plan->control.scratch = TakeScratch;
	plan->control.ctx = build;
	plan->control.threads = max_parallel_maintenance_workers + 1;
	plan->expected = GgExpectedRows(heap);
	plan->bound = GgMostSegmentRows(options, plan->expected * SPREAD_SLACK);
	plan->codes = GgBuildCodes(meta, options);
	AtReset(context, ReleaseBuild, build);
	return build;
}

static void
LogTimes(const GgBuild *build, const char *index, const IndexBuildResult *result)
{
	const GgBuildTimes *times = &build->times;

	ereport(DEBUG1,
			(errmsg_internal("gpugraph build of \"%s\": %.0f rows in %u segments, total %.3f s, "
							 "scan %.3f s (heap read in %.3f s, the copy's rest then %.3f s), "
							 "device opened in %.3f s, copy %.3f s, k-NN graph %.3f s, "
							 "optimize %.3f s, write %.3f s, WAL %.3f s; hand-over %.3f s",
							 index, result->index_tuples, build->meta->nsegments,
							 times->total_s, times->scan_s, build->heap_s, build->device.late_s,
							 build->device.open_s, times->copy_s, times->knn_s,
							 times->optimize_s, times->write_s, times->wal_s,
							 build->device.hand_over_s)));
}

IndexBuildResult *
ggbuild(Relation heap, Relation index, IndexInfo *indexInfo)
{
	IndexBuildResult *result = palloc(sizeof(IndexBuildResult));
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgOptions	options;
	GgBuild    *build;
	GgParticipant *process;
	MemoryContext old;

	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data", RelationGetRelationName(index));

	GgGetOptions(index, &options);
	GgInitMeta(meta, index, &options);
	build = CreateBuild(heap, meta, &options);
	process = &build->process;
	old = MemoryContextSwitchTo(build->context);
	build->sample = GgReadSample(heap, index);
	GgBeginProcesses(process, heap, index, indexInfo, meta, &build->plan);
	build->meta = &process->shared->meta;
	process->scan.segment_full = EndRound;
	process->scan.arg = build;
	MemoryContextSwitchTo(old);

	BeginRound(build, true);
	GgScanTable(process);
	while (GgWorkersGoOn(&process->scan))
		EndRound(build);
	FlushArea(build, false);
	indexInfo->ii_BrokenHotChain |= process->shared->scan.broken_hot_chain;
	result->heap_tuples = process->shared->scan.heap_rows;
	result->index_tuples = (double) pg_atomic_read_u64(&process->shared->scan.rows_done);

	FinishRelation(build);
	GgEndHandOver(&build->device);
	LogTimes(build, RelationGetRelationName(index), result);
	GgAbandonUpload(&build->device, NULL);
	GgEndProcesses(process);

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
	(void) GgBuildCodes(meta, &options);
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
