/*
 * build.c
 *		CREATE INDEX and REINDEX: phases, memory plan, segments.
 *
 * Phases: the heap is scanned, by several processes where that pays, and its vectors are collected as the rows of a data
 * set (heap_scan.c); equal rows are folded into one node (deduplicate.c); the engine makes the graph;
 * vectors, TIDs, adjacency and pivots are written as one segment behind the metapage (write.c).
 * Rows are final once their chunk is full: all processes write their pages between two chunks, and the others go on while the leader
 * runs the engine.
 * Nobody else can see the relation before the transaction commits, so no locks are taken.
 *
 * Memory: rows, TIDs, hashes, the graph and what the engine says it needs should fit in
 * maintenance_work_mem. Where twice as much would do, or 64 MB, the build takes that.  Where it
 * would not, what was collected becomes a segment of its own and the scan goes on: the index then
 * has several segments, each as good, but a search walks each.  Either is announced with a NOTICE.
 */
#include "build/build.h"
#include "service/service.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "optimizer/plancat.h"
#include "pgstat.h"
#include "utils/backend_progress.h"
#include "utils/memutils.h"

/* A segment is never smaller than this for want of memory: its graph would not be worth having. */
#define MIN_SEGMENT_ROWS	1000

/* Memory that a build may take whatever the setting: too little for a server to miss. */
#define LEAST_BYTES			((uint64) 64 * 1024 * 1024)

/* Heap pages looked at to learn how many rows a page has. */
#define SAMPLE_PAGES		32

/* Bytes copied between two looks for interrupts. */
#define COPY_SLICE			((uint64) 32 * 1024 * 1024)

char *
ggbuildphasename(int64 phase)
{
	switch (phase)
	{
		case PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE:
			return "initializing";
		case GG_BUILD_LOAD:
			return "loading vectors";
		case GG_BUILD_FOLD:
			return "folding equal vectors";
		case GG_BUILD_COPY:
			return "copying vectors to the device";
		case GG_BUILD_WRITE_ROWS:
			return "writing vectors";
		case GG_BUILD_GRAPH + GG_PHASE_KNN_INIT:
			return "finding first neighbors";
		case GG_BUILD_GRAPH + GG_PHASE_KNN_DESCENT:
			return "refining neighbors";
		case GG_BUILD_GRAPH + GG_PHASE_OPTIMIZE:
			return "reordering the graph";
		case GG_BUILD_GRAPH + GG_PHASE_CONNECT:
			return "connecting the graph";
		case GG_BUILD_WRITE:
			return "writing index";
		case GG_BUILD_SYNC:
			return "syncing index";
		case GG_BUILD_HAND_OVER:
			return "handing over to the GPU service";
		default:
			return NULL;
	}
}

/* Enter a phase of so many units, shown as tuples. */
void
GgEnterPhase(GgBuildPhase phase, int64 total)
{
	const int	columns[] = {
		PROGRESS_CREATEIDX_SUBPHASE, PROGRESS_CREATEIDX_TUPLES_TOTAL, PROGRESS_CREATEIDX_TUPLES_DONE
	};
	const int64 values[] = {phase, total, 0};

	pgstat_progress_update_multi_param(3, columns, values);
}

double
GgSecondsSince(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return INSTR_TIME_GET_DOUBLE(now);
}

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
	const int	columns[] = {
		PROGRESS_CREATEIDX_SUBPHASE, PROGRESS_CREATEIDX_TUPLES_TOTAL, PROGRESS_CREATEIDX_TUPLES_DONE
	};
	const int64 values[] = {GG_BUILD_GRAPH + phase, (int64) total, (int64) done};

	pgstat_progress_update_multi_param(3, columns, values);
}

/* Memory of the graph belongs to the engine: give it back however the build ends. */
static void
FreeGraph(void *arg)
{
	gg_graph_free((gg_graph *) arg);
}

/* So does the device's context. */
static void
ReleaseEngine(void *arg)
{
	GgBuild    *build = arg;

	if (build->opened != NULL)
		build->opened->release();
	build->opened = NULL;
}

/* ---- memory ------------------------------------------------------------ */

/*
 * Bytes that a segment of n rows takes at its peak, while the engine runs: what folding takes before and the adjacency's
 * copy after it are less than what the engine then has not taken yet, or has given back.
 */
static uint64
SegmentBytes(GgBuild *build, uint32 n)
{
	gg_dataset	data;
	gg_bytes	bytes;
	gg_status	status;

	data.rows = NULL;
	data.n = n;
	data.dim = build->meta->dimensions;
	data.element = build->meta->element;
	data.metric = build->meta->metric;
	status = build->engine->build_bytes(&data, &build->params, &build->control, &bytes);
	if (status.code != GG_OK)
		GgReportStatus(&status, "estimating the memory of an index build");
	return bytes.host + (uint64) n * (GgRowBytes(build->meta) + sizeof(GgTidEntry) + GG_FOLD_ROW_BYTES);
}

static uint32
RowsThatFit(GgBuild *build, uint64 budget)
{
	uint32		low = 1,
				high = GG_MAX_NODES;

	while (low < high)
	{
		uint32		mid = low + (high - low + 1) / 2;

		if (SegmentBytes(build, mid) <= budget)
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}

/*
 * A setting that is a little too small is exceeded rather than answered with segments.  A table
 * that needs several anyway keeps to it.  Where memory would make too many or too small segments,
 * they are made larger than memory allows.  All of this is announced.
 */
void
GgPlanSegments(GgBuild *build)
{
	uint64		setting = (uint64) maintenance_work_mem * 1024;
	uint32		most = RowsThatFit(build, Max(2 * setting, LEAST_BYTES));

	if (build->expected > most)
		most = RowsThatFit(build, Max(setting, LEAST_BYTES));
	most = Max(most, MIN_SEGMENT_ROWS);
	most = Max(most, (uint32) Min(build->expected / GG_MAX_BUILD_SEGMENTS + 1, GG_MAX_NODES));
	build->most = most;
}

/* Said once a build, when a segment is full and the table goes on. */
static void
AnnounceSegments(GgBuild *build)
{
	uint64		needed = SegmentBytes(build, (uint32) Min(Max(build->expected, build->rows), GG_MAX_NODES));

	if (build->announced)
		return;
	build->announced = true;
	ereport(NOTICE,
			(errmsg("gpugraph index no longer fits into maintenance_work_mem after %u rows", build->rows),
			 errdetail("The index is built in several segments, and every search visits each."),
			 errhint("Increase maintenance_work_mem to " UINT64_FORMAT " MB for a single segment.",
					 needed / (1024 * 1024) + 1)));
}

/* Said once where a segment takes more memory than it should (see GgPlanSegments). */
static void
AnnounceMemory(GgBuild *build)
{
	uint64		needed = SegmentBytes(build, build->n);

	if (needed <= (uint64) maintenance_work_mem * 1024 || build->memory_announced)
		return;
	build->memory_announced = true;
	ereport(NOTICE,
			(errmsg("gpugraph index build takes more memory than maintenance_work_mem"),
			 errdetail("A segment of %u rows takes " UINT64_FORMAT " MB; "
					   "smaller ones would make searches slower.",
					   build->rows, needed / (1024 * 1024) + 1),
			 errhint("Increase maintenance_work_mem to " UINT64_FORMAT " MB.",
					 needed / (1024 * 1024) + 1)));
}

/*
 * Rows in the table.  The planner's estimate goes by the widths of columns when the table was never
 * analyzed, and can be off by a factor of ten; line pointers on a few pages are better than that.
 */
static double
ExpectedRows(Relation heap)
{
	BlockNumber pages = RelationGetNumberOfBlocks(heap);
	double		tuples,
				allvisfrac;
	double		items = 0;

	if (heap->rd_rel->reltuples >= 0 || heap->rd_tableam != GetHeapamTableAmRoutine() || pages == 0)
	{
		estimate_rel_size(heap, NULL, &pages, &tuples, &allvisfrac);
		return tuples;
	}
	for (uint32 i = 0; i < SAMPLE_PAGES; i++)
	{
		BlockNumber blkno = (BlockNumber) ((uint64) pages * i / SAMPLE_PAGES);
		Buffer		buffer = ReadBuffer(heap, blkno);
		Page		page = BufferGetPage(buffer);

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		if (!PageIsNew(page))
			for (OffsetNumber off = FirstOffsetNumber; off <= PageGetMaxOffsetNumber(page); off++)
				items += ItemIdIsNormal(PageGetItemId(page, off));
		UnlockReleaseBuffer(buffer);
	}
	return items / SAMPLE_PAGES * pages;
}

/* ---- the graph --------------------------------------------------------- */

/* Rows first .. n - 1 to the device, by this process. */
static gg_status
CopyRows(GgBuild *build, uint32 first, uint32 n)
{
	Size		row_bytes = GgRowBytes(build->meta);
	gg_status	status = {.code = GG_OK};
	uint64		offset = first * row_bytes;
	uint64		end = n * row_bytes;

	while (offset < end && status.code == GG_OK)
	{
		uint64		bytes = Min(end - offset, COPY_SLICE);

		GgCheckInterrupts();
		status = build->engine->index_write(build->device_index, GG_PART_ROWS, offset,
											build->area.rows + offset, bytes);
		offset += bytes;
	}
	return status;
}

/* The chunks of n rows that did not go to the device during the scan: those with gaps, and what came last. */
static gg_status
CopyRest(GgBuild *build, uint32 n)
{
	uint32		chunk_rows = build->shared->chunk_rows;
	gg_status	status = {.code = GG_OK};

	for (uint64 first = 0; first < n && status.code == GG_OK; first += chunk_rows)
		if (!gg_copy_done(build->copy, first / chunk_rows))
			status = CopyRows(build, (uint32) first, (uint32) Min(first + chunk_rows, n));
	return status;
}

/* Wait until the threads have copied all chunks that are full. */
static void
DrainCopy(GgBuild *build)
{
	instr_time	start;
	gg_status	status;

	if (build->copy == NULL)
		return;
	INSTR_TIME_SET_CURRENT(start);
	GgEnterPhase(GG_BUILD_COPY, build->n);
	gg_copy_drain(build->copy);
	while (!gg_copy_ended(build->copy))
	{
		GgCheckInterrupts();
		pg_usleep(500);
	}
	status = gg_copy_stop(build->copy);
	build->open_s += gg_copy_open_seconds(build->copy);
	build->times.copy_s += gg_copy_seconds(build->copy);
	if (status.code != GG_OK)
		GgAbandonCopy(build, &status);
	build->late_copy_s += GgSecondsSince(start);
}

/*
 * Complete the device's rows after gaps were closed.  False when the graph must be built from host memory: the scan brought more rows
 * than were expected, or the device failed.
 */
static bool
CompleteCopy(GgBuild *build, uint32 nodes)
{
	gg_status	status;
	gg_shape	shape = {
		.capacity = nodes, .dim = build->meta->dimensions,
		.element = build->meta->element, .metric = build->meta->metric
	};
	instr_time	start;
	sigset_t	before;

	if (build->copy == NULL)
		return false;
	INSTR_TIME_SET_CURRENT(start);
	if (nodes > build->copy_capacity)
	{
		/* what is there is too small: all again, into one that is not */
		GgAbandonCopy(build, NULL);
		GgBlockSignals(&before);
		status = build->engine->index_create(&shape, &build->device_index);
		GgRestoreSignals(&before);
		if (status.code == GG_OK)
			status = CopyRows(build, 0, nodes);
	}
	else
		status = CopyRest(build, nodes);
	build->times.copy_s += GgSecondsSince(start);
	build->late_copy_s += GgSecondsSince(start);
	if (status.code != GG_OK)
	{
		ereport(DEBUG1, (errmsg_internal("gpugraph rows are copied again for the build: %s", status.message)));
		GgAbandonCopy(build, NULL);
		return false;
	}
	return true;
}

/*
 * Make the device's context, under a mask that the engine's own calls cannot have: they run for
 * minutes, and their callback waits for signals.  Where that fails, the engine says why.
 */
static void
OpenDevice(GgBuild *build)
{
	gg_device_info info;
	sigset_t	before;

	GgBlockSignals(&before);
	(void) build->engine->device_info(0, &info);
	GgRestoreSignals(&before);
}

/* Build build->graph by one engine: over the first data->n rows of the area, or over those on the device. */
static gg_status
RunEngine(GgBuild *build, const gg_dataset *data, bool on_device, gg_build_stats *stats)
{
	gg_status	status;

	memset(stats, 0, sizeof(*stats));
	if (on_device)
		status = build->engine->build_index(build->device_index, data->n, &build->params,
											&build->control, build->graph, stats);
	else
	{
		OpenDevice(build);
		status = build->engine->build(data, &build->params, &build->control, build->graph, stats);
	}
	GgThrowInterrupts(build->caught);
	return status;
}

static void
BuildGraph(GgBuild *build, const gg_dataset *data, bool on_device)
{
	gg_build_stats stats;
	gg_status	status = RunEngine(build, data, on_device, &stats);

	/* the device's memory is for others from now on */
	GgAbandonCopy(build, NULL);
	/* it was made for the rows that were to be expected; of those in an index there may be far fewer */
	if (on_device && status.code == GG_EDEVICE_MEMORY)
		status = RunEngine(build, data, false, &stats);
	if (status.code == GG_EDEVICE_MEMORY && gg_engine_setting == GG_ENGINE_AUTO)
	{
		ereport(NOTICE,
				(errmsg("gpugraph index is built on the CPU"),
				 errdetail("The GPU's memory does not suffice: %s.", status.message),
				 errhint("Lower maintenance_work_mem, so that the index is built in smaller segments.")));
		build->engine = &gg_cpu_engine;
		status = RunEngine(build, data, false, &stats);
	}
	if (status.code != GG_OK)
		GgReportStatus(&status, "building a gpugraph index");
	ereport(DEBUG1,
			(errmsg_internal("gpugraph graph of %u nodes on the %s engine: first lists %.3f s, descent %.3f s in %u iterations, "
							 "reordering %.3f s, connecting %.3f s with %u repairs, transfer %.3f s",
							 data->n, build->engine->name, stats.init_s, stats.descent_s, stats.iterations,
							 stats.optimize_s, stats.connect_s, stats.repaired, stats.transfer_s)));
	build->times.knn_s += stats.init_s + stats.descent_s;
	build->times.optimize_s += stats.optimize_s + stats.connect_s;
	build->times.copy_s += stats.transfer_s;
}

/* ---- residency --------------------------------------------------------- */

static void
HandOverPart(GgBuild *build, gg_part part, const void *data, uint64 bytes, uint64 *pages)
{
	for (uint64 offset = 0; offset < bytes; offset += COPY_SLICE)
	{
		uint64		piece = Min(bytes - offset, COPY_SLICE);

		GgCheckInterrupts();
		GgLoadWrite(build->load, 0, part, offset, (const char *) data + offset, piece);
		/* rows are the first of what is being written */
		if (part == GG_PART_ROWS)
			GgLeaveRanges(build, (uint32) ((offset + piece) / GG_RANGE_BYTES));
		*pages += GgArrayPages(piece);
		pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, *pages);
	}
}

/*
 * Give the GPU service the segment while it is in memory, so that the first query finds it on the device and nothing is
 * read back; the leader does so while workers write and log, which WAL's locks make them do one after the other.  Of several
 * segments only the last one still is in memory: then the first query asks for a load.  Where the service has no room or fails,
 * the index is as good; where the build fails, the load goes with its transaction.
 */
static void
HandOver(GgBuild *build)
{
	const GgMetaPageData *meta = build->meta;
	const GgSegment *segment = &meta->segments[0];
	uint64		row_bytes = segment->nodes * GgRowBytes(meta);
	uint64		edge_bytes = (uint64) segment->nodes * meta->graph_degree * sizeof(uint32);
	uint64		pages = 0;
	GgReason	reason;
	instr_time	start;

	if (meta->nsegments != 1 || gg_engine_setting == GG_ENGINE_CPU)
		return;
	INSTR_TIME_SET_CURRENT(start);
	build->load = GgLoadBegin(build->index, meta, &reason);
	if (build->load == NULL)
	{
		ereport(DEBUG1, (errmsg_internal("gpugraph index is not handed over: %s", GgReasonText(reason))));
		return;
	}
	GgEnterPhase(GG_BUILD_HAND_OVER, GgArrayPages(row_bytes) + GgArrayPages(edge_bytes));
	HandOverPart(build, GG_PART_ROWS, build->area.rows, row_bytes, &pages);
	HandOverPart(build, GG_PART_ADJACENCY, build->graph->adjacency, edge_bytes, &pages);
	HandOverPart(build, GG_PART_PIVOTS, build->pivots, (uint64) segment->npivots * sizeof(GgPivotEntry), &pages);
	build->hand_over_s += GgSecondsSince(start);
}

/* The index is written: the copy may answer. */
static void
EndHandOver(GgBuild *build)
{
	instr_time	start;

	if (build->load == NULL)
		return;
	INSTR_TIME_SET_CURRENT(start);
	(void) GgLoadEnd(build->load);
	build->load = NULL;
	build->hand_over_s += GgSecondsSince(start);
}

/* ---- one segment ------------------------------------------------------- */

/* The graph's lists, by all processes: piece by piece from the engine's memory into what they share. */
static void
OfferAdjacency(GgBuild *build, const GgWriteJob *job)
{
	uint32		ranges = GgJobRanges(job);

	GgAddJob(build, job);
	if (build->pcxt == NULL || build->pcxt->nworkers_launched == 0)
	{
		GgOfferRanges(build, ranges);
		return;
	}
	for (uint32 i = 0; i < ranges; i++)
	{
		Size		offset = i * GG_RANGE_BYTES;
		Size		bytes = Min(GG_RANGE_BYTES, job->bytes - offset);

		GgCheckInterrupts();
		GgReserveArea(build, (char *) build->area.adjacency + offset, bytes);
		memcpy((char *) build->area.adjacency + offset, (char *) build->graph->adjacency + offset, bytes);
		GgOfferRanges(build, 1);
	}
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

static void
WritePivots(GgBuild *build, uint32 segment)
{
	GgWriteJob	job = GgPlanArray(build, segment, GG_KIND_PIVOTS, (uint64) build->graph->npivots * sizeof(GgPivotEntry));

	GgExtendRelation(build);
	GgWriteAlone(build, &job, build->pivots);
}

/*
 * Vectors go where the segment begins, so that they can be written during the scan.  Where each of the other arrays lies is
 * decided before the graph is built; the number of pivots alone is not known, and they go last.
 */
void
GgFlushSegment(GgBuild *build, bool more)
{
	GgMetaPageData *meta = build->meta;
	GgSegment  *segment;
	GgWriteJob	rows[2],
				offsets_job,
				adjacency;
	MemoryContext context,
				old;
	MemoryContextCallback *callback;
	gg_dataset	data;
	uint32	   *offsets;
	uint32		pages;
	bool		on_device;

	build->heap_s += GgSecondsSince(build->scan_start);
	DrainCopy(build);
	if (more)
		AnnounceSegments(build);
	if (build->n == 0)
	{
		GgAbandonCopy(build, NULL);
		return;
	}
	/* a table of far more rows than was to be expected can still get here */
	if (meta->nsegments >= GG_MAX_SEGMENTS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("gpugraph index would have more than %d segments", GG_MAX_SEGMENTS),
				 errhint("ANALYZE the table, or increase maintenance_work_mem.")));
	AnnounceMemory(build);
	context = AllocSetContextCreate(build->row_context, "gpugraph segment", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);

	GgEnterPhase(GG_BUILD_FOLD, build->rows);
	offsets = GgSortTids(build);
	if (!more)
		GgResetFold(build, true);
	data.rows = build->area.rows;
	data.n = build->n;
	data.dim = meta->dimensions;
	data.element = meta->element;
	data.metric = meta->metric;

	segment = &meta->segments[meta->nsegments++];
	memset(segment, 0, sizeof(*segment));
	segment->id = meta->next_segment++;
	segment->nodes = data.n;
	segment->rows = build->rows;
	rows[0] = GgPlanArray(build, segment->id, GG_KIND_VECTORS, (uint64) data.n * GgRowBytes(meta));
	rows[1] = GgPlanArray(build, segment->id, GG_KIND_TIDS, (uint64) build->rows * sizeof(GgTidEntry));
	offsets_job = GgPlanArray(build, segment->id, GG_KIND_OFFSETS,
							  offsets != NULL ? ((uint64) data.n + 1) * sizeof(uint32) : 0);
	adjacency = GgPlanArray(build, segment->id, GG_KIND_ADJACENCY,
							(uint64) data.n * meta->graph_degree * sizeof(uint32));
	pages = rows[0].npages + rows[1].npages;
	GgExtendRelation(build);
	build->times.scan_s += GgSecondsSince(build->scan_start);

	build->graph = palloc0(sizeof(gg_graph));
	callback = palloc(sizeof(MemoryContextCallback));
	callback->func = FreeGraph;
	callback->arg = build->graph;
	MemoryContextRegisterResetCallback(context, callback);

	/* With threads of its own on every core the CPU engine would only be in the others' way. */
	GgSettleWriting(build, rows, 2);
	if (!build->device)
	{
		GgEnterPhase(GG_BUILD_WRITE_ROWS, pages);
		GgFinishWriting(build);
	}
	on_device = CompleteCopy(build, data.n);
	BuildGraph(build, &data, on_device);
	segment->npivots = build->graph->npivots;
	OfferAdjacency(build, &adjacency);
	pages += adjacency.npages;
	FormPivots(build);
	if (!more)
	{
		/* while the others write, which WAL makes them do one after the other */
		HandOver(build);
		ReleaseEngine(build);
		GgLeaveRanges(build, GgJobRanges(&rows[0]) + GgJobRanges(&rows[1]) + GgJobRanges(&adjacency));
	}

	GgEnterPhase(GG_BUILD_WRITE, pages);
	GgFinishWriting(build);
	if (offsets != NULL)
		GgWriteAlone(build, &offsets_job, offsets);
	WritePivots(build, segment->id);

	MemoryContextSwitchTo(old);
	if (more)
	{
		build->graph = NULL;
		build->pivots = NULL;
		MemoryContextDelete(context);
		INSTR_TIME_SET_CURRENT(build->scan_start);
	}
}

/* ---- entry points ------------------------------------------------------ */

IndexBuildResult *
ggbuild(Relation heap, Relation index, IndexInfo *indexInfo)
{
	IndexBuildResult *result = palloc(sizeof(IndexBuildResult));
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	MemoryContext row_context;
	GgBuild    *build;
	MemoryContextCallback *callback;

	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data", RelationGetRelationName(index));

	row_context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph build rows", ALLOCSET_DEFAULT_SIZES);
	build = MemoryContextAllocZero(row_context, sizeof(GgBuild));
	INSTR_TIME_SET_CURRENT(build->start);
	build->scan_start = build->start;
	build->row_context = row_context;
	build->leader = true;
	build->heap = heap;
	build->index = index;
	build->indexInfo = indexInfo;
	build->opclass = GgIndexOpclass(index);
	build->engine = build->opened = GgChooseEngine();
	build->device = build->engine != &gg_cpu_engine || gg_service_engine == GG_SERVICE_CPU;
	GgGetOptions(index, &build->options);
	build->params.graph_degree = build->options.graph_degree;
	build->params.intermediate_graph_degree = build->options.intermediate_graph_degree;
	build->params.seed = build->options.seed;
	build->control.cancelled = EngineCancelled;
	build->control.progress = EngineProgress;
	build->control.ctx = build;
	build->control.threads = max_parallel_maintenance_workers + 1;
	build->tuple_context = AllocSetContextCreate(row_context, "gpugraph build tuple", ALLOCSET_DEFAULT_SIZES);
	build->expected = ExpectedRows(heap);
	build->start_redo = GetRedoRecPtr();
	build->nblocks = GG_META_BLKNO + 1;
	GgInitMeta(meta, index, &build->options);

	callback = MemoryContextAlloc(row_context, sizeof(MemoryContextCallback));
	callback->func = ReleaseEngine;
	callback->arg = build;
	MemoryContextRegisterResetCallback(row_context, callback);

	GgEnterPhase(GG_BUILD_LOAD, (int64) build->expected);
	GgBeginScan(build, meta);
	result->heap_tuples = GgScanHeap(build);
	result->index_tuples = (double) pg_atomic_read_u64(&build->shared->rows_done);

	build->meta->engine = build->engine == &gg_cpu_engine ? 1 : 2;
	GgFinishRelation(build);
	*meta = *build->meta;

	EndHandOver(build);
	GgEndScan(build);

	ereport(DEBUG1,
			(errmsg_internal("gpugraph build of \"%s\": %.0f rows in %u segments, total %.3f s, scan %.3f s (heap read in %.3f s, "
							 "the copy's rest then %.3f s), device opened in %.3f s, copy %.3f s, k-NN graph %.3f s, optimize %.3f s, write %.3f s, WAL %.3f s; "
							 "hand-over %.3f s",
							 RelationGetRelationName(index), result->index_tuples, meta->nsegments,
							 meta->times.total_s, meta->times.scan_s, build->heap_s, build->late_copy_s, build->open_s, meta->times.copy_s,
							 meta->times.knn_s, meta->times.optimize_s, meta->times.write_s, meta->times.wal_s, build->hand_over_s)));

	MemoryContextDelete(row_context);
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
