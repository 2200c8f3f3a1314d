/*
 * segment.c
 *		The leader's part of CREATE INDEX: segments in work, from a full area to written pages.
 *
 * The engine runs in a thread (engine_thread.c).  All else is done here in small steps: by the
 * leader between its own rows, or while it waits.  Where a segment's arrays lie is decided when its
 * area is closed, because the next segment's vectors grow behind them.  Only pivots, whose number
 * comes with the graph, are placed later, when no array grows.
 */
#include "build/segment.h"
#include "build/deduplicate.h"
#include "service/shared/settings.h"
#include "storage/graph_memory.h"

#include "utils/memutils.h"

/* The leader looks at the engine again after 1/LOOK_SHARE of its wait so far, in these bounds. */
#define LEAST_LOOK_MS		1
#define MOST_LOOK_MS		10
#define LOOK_SHARE			50

/* Recall that codes may cost where a build makes them by itself. */
#define MOST_LOSS			0.002

/* Adjacency that the leader copies at a time. */
#define COPY_BYTES			GG_RANGE_BYTES

void
GgShowScan(GgBuild *build)
{
	GgEnterPhase(GG_BUILD_LOAD, (int64) build->plan.expected,
				 RelationGetNumberOfBlocks(build->process.scan.heap));
}

void
GgReleaseEngine(GgBuild *build)
{
	GgBuildDevices *devices = &build->plan.devices;

	GgKeepReserved(devices, 0, 0);
	if (build->opened == NULL)
		return;
	/* the first one last, for this thread uses it from then on */
	for (int i = devices->count - 1; i >= 0; i--)
		if (devices->opened[i] && (devices->ordinals[i] == GG_DEVICE_IN_USE ||
								   build->opened->use_device(devices->ordinals[i]).code == GG_OK))
			build->opened->release();
	build->opened = NULL;
}

/* ---- devices ------------------------------------------------------------ */

/* A device that no segment has, -1 without one.  The CPU engine is one device. */
static int
IdleDevice(const GgBuild *build)
{
	int			count = build->plan.apart ? build->plan.devices.count : 1;

	for (int i = 0; i < count; i++)
	{
		bool		idle = !build->failed[i];

		for (int j = 0; j < GG_WRITER_QUEUES; j++)
			idle = idle && build->works[j].chosen != i;
		if (idle)
			return i;
	}
	return -1;
}

static void
ChooseDevice(GgBuild *build, GgSegmentWork *work, int device)
{
	work->chosen = device;
	work->device.ordinal = build->plan.devices.ordinals[device];
	build->plan.devices.opened[device] = true;
}

/*
 * Have the devices that no segment has build groups of this one's rows, too.  Where several areas
 * are in work each has a device of its own.
 */
static void
ChooseOthers(GgBuild *build, GgSegmentWork *work)
{
	GgMemoryPlan *plan = &build->plan;

	work->nothers = 0;
	if (!plan->apart || plan->control.nothers == 0 || plan->areas > 1 || build->alone)
		return;
	for (int i = 0; i < plan->devices.count; i++)
		if (i != work->chosen && !build->failed[i])
		{
			work->others[work->nothers++] = plan->devices.ordinals[i];
			plan->devices.opened[i] = true;
		}
}

/* The device's memory is for other segments from now on. */
static void
LeaveDevice(GgSegmentWork *work)
{
	GgAbandonUpload(&work->device, NULL);
	work->on_device = false;
	work->chosen = -1;
}

/* ---- the graph --------------------------------------------------------- */

static gg_dataset
DataSet(const GgBuild *build, const GgSegmentWork *work)
{
	return (gg_dataset) {
		.rows = work->area->rows, .n = work->area->nodes,
		.dim = build->meta->dimensions, .element = build->meta->element,
		.metric = build->meta->metric
	};
}

/* Have rows of the area copied to the device while others are still read. */
static void
BeginUpload(GgBuild *build, GgSegmentWork *work, double expected)
{
	work->device.halved = build->plan.halved;
	/* the engine has them come there group by group */
	if (build->plan.control.device_memory > 0)
		return;
	/* how many rows a predicate lets through is not known */
	if (build->plan.apart && build->process.scan.indexInfo->ii_Predicate == NIL)
		GgStartUpload(&work->device, work->area, build->meta, expected,
					  build->process.shared->scan.participants);
}

/* Start the thread: over the rows of the area, or over those on the device. */
static void
StartThread(GgBuild *build, GgSegmentWork *work)
{
	GgMemoryPlan *plan = &build->plan;
	gg_engine_task task = {
		.engine = plan->engine, .device = work->device.ordinal, .data = DataSet(build, work),
		.params = plan->params, .threads = plan->control.threads, .memory = plan->control.memory,
		.device_memory = plan->control.device_memory
	};
	gg_status	status;

	GgHold(GG_FAULT_HOLD_BUILD);
	ChooseOthers(build, work);
	task.others = work->others;
	task.nothers = work->nothers;

	/* another segment may have given the device up since these rows came there */
	if (work->on_device)
	{
		task.engine = work->device.engine;
		task.index = work->device.index;
	}
	if (task.engine == &gg_cpu_engine)
		task.device = GG_DEVICE_IN_USE;
	status = gg_engine_thread_start(&task, &work->thread);
	GgCheckStatus(&status, "building a gpugraph index");
	work->state = GG_WORK_GRAPH;
}

/* Go on without a device that failed; false: it was the last. */
static bool
DoWithout(GgBuild *build, int device, const gg_status *status)
{
	const GgBuildDevices *devices = &build->plan.devices;

	build->failed[device] = true;
	build->alone = false;
	for (int i = 0; i < devices->count; i++)
		if (!build->failed[i])
		{
			ereport(LOG,
					(errmsg("a gpugraph index is built without device %d",
							devices->ordinals[device]),
					 errdetail("%s.", status->message)));
			return true;
		}
	return false;
}

/* The engine failed: is there another way?  The segment then waits for a device again. */
static bool
HasAnotherWay(GgBuild *build, GgSegmentWork *work, const gg_status *status)
{
	GgMemoryPlan *plan = &build->plan;
	bool		memory = status->code == GG_EDEVICE_MEMORY;
	int			device = work->chosen;

	if (!memory && status->code != GG_EDEVICE && status->code != GG_ENODEVICE)
		return false;
	/* the index there had room for the rows that were expected; there may be far fewer rows */
	if (memory && work->on_device && !plan->halved)
	{
		LeaveDevice(work);
		ChooseDevice(build, work, device);
		return true;
	}
	LeaveDevice(work);
	if (work->nothers > 0)
	{
		/* whichever of them it was: if it was this one, it will fail again */
		ereport(LOG,
				(errmsg("a gpugraph index is built by device %d alone",
						plan->devices.ordinals[device]),
				 errdetail("%s.", status->message)));
		build->alone = true;
		ChooseDevice(build, work, device);
		return true;
	}
	if (plan->apart && DoWithout(build, device, status))
		return true;
	if (!memory || gg_engine_setting != GG_ENGINE_AUTO || !plan->apart)
		return false;
	build->failed[0] = false;
	ereport(NOTICE,
			(errmsg("gpugraph index is built on the CPU"),
			 errdetail("The GPU's memory does not suffice: %s.", status->message),
			 errhint("Lower gpugraph.device_memory or maintenance_work_mem, or set the option "
					 "segment_rows, so that the index is built in smaller segments.")));
	GgKeepReserved(&plan->devices, 0, 0);
	plan->engine = &gg_cpu_engine;
	plan->apart = plan->halved = false;
	return true;
}

/* The device has room for rows in half precision alone, and has none of these. */
static void
GiveUpHalves(GgBuild *build, GgSegmentWork *work)
{
	gg_status	status = gg_fail(GG_EDEVICE_MEMORY, "gpugraph build",
								 "it has room for rows in half precision alone, %s",
								 work->device.unfit ? "which these do not bear" :
								 "and these did not come there");

	/* nor do the rows bear it on another device */
	if (work->device.unfit)
		memset(build->failed, true, sizeof(build->failed));
	if (!HasAnotherWay(build, work, &status))
		GgReportStatus(&status, "building a gpugraph index");
}

/* Start where a device is idle, or is the segment's already. */
static void
StartGraph(GgBuild *build, GgSegmentWork *work)
{
	if (work->chosen < 0)
	{
		int			device = IdleDevice(build);

		if (device < 0)
			return;
		ChooseDevice(build, work, device);
		/* threads copy rows faster than the engine */
		BeginUpload(build, work, work->area->nodes);
		GgDrainUpload(&work->device);
		work->on_device = GgCompleteUpload(&work->device, work->area, build->meta);
	}
	else if (!work->on_device && build->plan.halved)
	{
		/* when the round began, it may not have been known that rows are to be rounded */
		work->device.halved = true;
		work->on_device = GgCompleteUpload(&work->device, work->area, build->meta);
	}
	if (!work->on_device && build->plan.halved)
		GiveUpHalves(build, work);
	else
		StartThread(build, work);
}

static void
LogGraph(const GgBuild *build, const GgSegmentWork *work, const gg_build_stats *stats)
{
	char		others[30] = "";

	if (work->nothers > 0)
		snprintf(others, sizeof(others), " and %d more", work->nothers);
	ereport(DEBUG1,
			(errmsg_internal("gpugraph graph of %u nodes on the %s engine, device %d%s: "
							 "first lists %.3f s, descent %.3f s in %u iterations, "
							 "reordering %.3f s, connecting %.3f s with %u repairs, "
							 "transfer %.3f s",
							 work->area->nodes, build->plan.engine->name, work->device.ordinal,
							 others, stats->init_s,
							 stats->descent_s, stats->iterations, stats->optimize_s,
							 stats->connect_s, stats->repaired, stats->transfer_s)));
}

/* The pivots' entries as they are stored. */
static void
FormPivots(GgSegmentWork *work)
{
	const gg_graph *graph = &work->graph;

	work->pivots = MemoryContextAlloc(work->context,
									  Max(graph->npivots, 1) * sizeof(GgPivotEntry));
	for (uint32 i = 0; i < graph->npivots; i++)
	{
		work->pivots[i].node = graph->pivots[i];
		memcpy(work->pivots[i].neighbors, graph->pivot_adjacency + (Size) i * GG_PIVOT_DEGREE,
			   sizeof(work->pivots[i].neighbors));
	}
}

static bool
EngineCancelled(void *ctx)
{
	GgBuild    *build = ctx;

	return GgServeInterrupts(&build->caught);
}

/* Learn the edges of the index's sample, if there is one. */
static void
LearnEdges(GgBuild *build, GgSegmentWork *work, const gg_control *control)
{
	GgNewGraph	graph = {
		.data = DataSet(build, work), .offsets = work->offsets, .graph = &work->graph,
		.seed = (uint64) build->meta->seed
	};
	gg_status	status;
	uint32		edges;

	if (build->sample == NULL)
		return;
	GgEnterPhase(GG_BUILD_LEARN, work->segment->nodes, 0);
	build->engine_phase = -1;
	status = GgLearnNewGraph(build->sample, &graph, build->plan.engine, control, &edges);
	GgThrowInterrupts(build->caught);
	GgCheckStatus(&status, "learning edges of a gpugraph index");
	GgSetLearnedEdges(work->segment, edges);
}

/*
 * Codes that nobody asked for are not to cost recall.  The first segment tells: where walks by them
 * lose more than MOST_LOSS, no segment keeps its codes (GgFreeCodes()).
 */
static void
CheckCodes(GgBuild *build, GgSegmentWork *work, const gg_control *control)
{
	GgWriterShared *shared = build->process.writer.shared;
	const gg_dataset data = DataSet(build, work);
	const gg_code_kind kind = {
		.metric = build->meta->metric, .dim = build->meta->dimensions,
		.codes = build->plan.codes, .seed = build->meta->instance,
		.mean = shared->centred ? shared->mean : NULL
	};
	double		loss[GG_LOSS_LISTS];
	double		most = 0;
	gg_status	status;

	if (!build->plan.auto_codes || build->plan.codes == GG_CODES_NONE ||
		work->segment != &build->meta->segments[0])
		return;
	status = gg_cpu_code_loss(&data, &work->graph, &kind, control, loss);
	GgThrowInterrupts(build->caught);
	if (status.code != GG_OK && status.code != GG_ENOMEM)
		GgReportStatus(&status, "trying the codes of a gpugraph index");
	for (int i = 0; i < GG_LOSS_LISTS && status.code == GG_OK; i++)
		most = Max(most, loss[i]);
	ereport(DEBUG1,
			(errmsg_internal("gpugraph codes of %u nodes lose %.4f of recall", work->area->nodes,
							 most)));
	if (status.code == GG_OK && most <= MOST_LOSS)
		return;
	build->meta->flags |= GG_META_CODES_LOSE;
	build->plan.codes = GG_CODES_NONE;
}

/* The thread has ended: take its graph or, where it failed, have the segment wait again. */
static void
TakeGraph(GgBuild *build, GgSegmentWork *work, bool growing)
{
	const gg_control control = {
		.cancelled = EngineCancelled, .ctx = build, .threads = build->plan.control.threads
	};
	gg_build_stats stats;
	gg_status	status = gg_engine_thread_take(work->thread, &work->graph, &stats);

	gg_engine_thread_free(work->thread);
	work->thread = NULL;
	GgFreeScratch(&build->scratch, true);
	if (status.code == GG_OK && GgBuildFault(&build->plan.devices, work->chosen))
	{
		gg_graph_free(&work->graph);
		status = gg_fail(GG_EDEVICE, "gpugraph.fault", "device lost while building a graph");
	}
	if (status.code != GG_OK)
	{
		if (!HasAnotherWay(build, work, &status))
			GgReportStatus(&status, "building a gpugraph index");
		work->state = GG_WORK_WAITS;
		return;
	}
	LeaveDevice(work);
	LogGraph(build, work, &stats);
	build->times.knn_s += stats.init_s + stats.descent_s;
	build->times.optimize_s += stats.optimize_s + stats.connect_s;
	build->times.copy_s += stats.transfer_s;
	work->segment->npivots = work->graph.npivots;
	LearnEdges(build, work, &control);
	CheckCodes(build, work, &control);
	if (growing)
		GgShowScan(build);
	FormPivots(work);
	work->state = GG_WORK_COPY;
}

/* ---- one segment ------------------------------------------------------- */

/* Are codes to be made of the rows, so that rows stay in the area after they are written? */
static bool
RowsAreCoded(const GgBuild *build)
{
	return build->plan.codes != GG_CODES_NONE && build->meta->coded == GG_CODES_NONE;
}

/* The leader needs no range before `ranges`: workers give them up for it, and it does so later. */
static void
LeaveRanges(GgBuild *build, GgSegmentWork *work, uint32 ranges)
{
	GgSetUnneeded(work->area, ranges);
	GgWakeWriters(&build->process.writer);
}

/* At the area's last use leave all ranges of the work, once only their writers still read them. */
static void
LeaveWork(GgBuild *build, GgSegmentWork *work)
{
	if (work->last_use && work->state >= (RowsAreCoded(build) ? GG_WORK_PIVOTS : GG_WORK_WRITE))
		LeaveRanges(build, work, GgCountRanges(&build->process.writer, work->number));
}

/*
 * The graph's lists, a piece at a time from the engine's memory into what all processes share.
 * Where nobody shares, they stay there.
 */
static void
CopyAdjacency(GgBuild *build, GgSegmentWork *work)
{
	GgParticipant *process = &build->process;
	char	   *source = (char *) work->graph.adjacency;
	uint64		bytes = (uint64) work->area->nodes * build->meta->graph_degree * sizeof(uint32);

	if (process->pcxt != NULL && process->pcxt->nworkers_launched > 0)
	{
		char	   *shared = (char *) work->area->adjacency + work->copied;
		Size		piece = Min(COPY_BYTES, bytes - work->copied);

		GgReserveArea(work->area, shared, piece);
		memcpy(shared, source + work->copied, piece);
		work->copied += piece;
	}
	else
	{
		process->writer.data[work->number][GG_KIND_ADJACENCY] = source;
		work->copied = bytes;
	}
	GgArrayReady(&process->writer, work->number, work->copied);
	if (work->copied < bytes)
		return;
	work->state = GG_WORK_WRITE;
	LeaveWork(build, work);
}

/* Codes of the first segment, and of all others, are centred by the mean of its rows. */
static void
CentreCodes(GgBuild *build, const GgSegmentWork *work)
{
	GgSegmentWriter *writer = &build->process.writer;
	const gg_dataset data = DataSet(build, work);
	float	   *mean;

	if (build->plan.codes == GG_CODES_NONE || build->meta->nsegments != 1)
		return;
	mean = GgTakeMean(&data);
	if (mean == NULL)
		return;
	memcpy(writer->shared->mean, mean, GgMeanBytes(build->meta));
	writer->shared->centred = true;
}

/*
 * Add the arrays of a segment, once its vectors are counted, and TIDs and filter words sorted.  The
 * leader alone has offsets, and writes them at once.
 */
static void
AddRowArrays(GgBuild *build, GgSegmentWork *work)
{
	const GgSegment *segment = work->segment;
	GgArea	   *area = work->area;
	GgSegmentWriter *writer = &build->process.writer;
	int			queue = work->number;
	uint64		tid_bytes = (uint64) segment->rows * sizeof(GgTidEntry);
	uint64		filter_bytes = (uint64) segment->rows * GgFilterBytes(build->meta);
	gg_codes	codes = build->plan.codes;
	uint64		code_bytes = segment->nodes * GgCodeBytes(build->meta, codes);

	if (area->base == NULL)
		area->codes = build->meta->coded != GG_CODES_NONE ?
			MemoryContextAllocHuge(CurrentMemoryContext, code_bytes) : NULL;
	writer->data[queue][GG_KIND_CODES] = area->codes;
	writer->data[queue][GG_KIND_VECTORS] = area->rows;
	writer->data[queue][GG_KIND_TIDS] = area->tids;
	writer->data[queue][GG_KIND_FILTERS] = area->filters;
	GgEndGrowth(writer, queue, build->meta->coded != GG_CODES_NONE ? code_bytes :
				(uint64) segment->nodes * GgRowBytes(build->meta));
	GgAddArray(writer, queue, segment->id, GG_KIND_TIDS, tid_bytes);
	GgArrayReady(writer, queue, tid_bytes);
	if (filter_bytes > 0)
	{
		GgAddArray(writer, queue, segment->id, GG_KIND_FILTERS, filter_bytes);
		GgArrayReady(writer, queue, filter_bytes);
	}
	if (RowsAreCoded(build))
	{
		GgAddArray(writer, queue, segment->id, GG_KIND_CODES, code_bytes);
		GgArrayReady(writer, queue, code_bytes);
	}
	GgAddArray(writer, queue, segment->id, GG_KIND_ADJACENCY,
			   (uint64) segment->nodes * build->meta->graph_degree * sizeof(uint32));
	if (work->offsets != NULL)
		GgWriteArray(writer, segment->id, GG_KIND_OFFSETS, work->offsets,
					 ((uint64) segment->nodes + 1) * sizeof(uint32));
	if (writer->shared->centred && build->meta->nsegments == 1)
		GgWriteArray(writer, GG_NO_SEGMENT, GG_KIND_MEAN, writer->shared->mean,
					 GgMeanBytes(build->meta));
}

/* A segment for the rows in the area. */
static GgSegment *
AddSegment(GgBuild *build, const GgArea *area)
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
	segment->nodes = meta->pieces[meta->npieces - 1].nodes = area->nodes;
	segment->rows = area->nrows;
	if (segment->rows != segment->nodes)
		segment->flags = GG_SEGMENT_OFFSETS;
	meta->pieces[meta->npieces - 1].codes = build->plan.codes;
	return segment;
}

/* ---- waiting ----------------------------------------------------------- */

static void
ShowEngine(GgBuild *build, const GgSegmentWork *work)
{
	gg_phase	phase;
	uint64		done,
				total;

	if (!gg_engine_thread_progress(work->thread, &phase, &done, &total))
		return;
	if (build->engine_phase != (int) phase)
		GgEnterPhase(GG_BUILD_GRAPH + phase, (int64) total, 0);
	build->engine_phase = (int) phase;
	GgReportTuples((int64) done);
}

/* Show what is waited for; *phase is what was shown before. */
static void
ShowWork(GgBuild *build, const GgSegmentWork *work, int *phase)
{
	int			now = work->state == GG_WORK_GRAPH ? GG_BUILD_GRAPH : GG_BUILD_WRITE;
	BlockNumber done,
				total;

	if (now == GG_BUILD_GRAPH)
		ShowEngine(build, work);
	else
	{
		(void) GgIsWritten(&build->process.writer, work->number, &done, &total);
		if (*phase != now)
			GgEnterPhase(now, 0, total);
		build->engine_phase = -1;
		GgReportBlocks(done);
	}
	*phase = now;
}

/*
 * Take part in all that is to be done, until the work is in that state, or in a later one, and
 * (ready) until what is ready of it is written.
 */
static void
WaitForWork(GgBuild *build, GgSegmentWork *work, GgWorkState state, bool ready)
{
	GgParticipant *process = &build->process;
	uint64		start = GgNowMicros();
	int			phase = -1;

	build->engine_phase = -1;
	for (;;)
	{
		GgCheckInterrupts();
		GgTendSegments(build, false);
		if (work->state == GG_WORK_NONE ||
			(work->state >= state &&
			 (!ready || GgReadyIsWritten(&process->writer, work->number))))
			break;
		ShowWork(build, work, &phase);
		if (!GgShareWork(&process->scan, INT_MAX) && work->state != GG_WORK_COPY)
		{
			double		look_ms = GgSecondsSince(start) * 1000 / LOOK_SHARE;

			GgWaitForWriters(&process->writer,
							 (long) Min(Max(look_ms, LEAST_LOOK_MS), MOST_LOOK_MS));
		}
	}
	GgEndWait();
}

/* ---- steps ------------------------------------------------------------- */

/* The engine asks for memory, which is of temporary files. */
static void
ServeEngine(GgBuild *build, GgSegmentWork *work)
{
	uint64		bytes;
	bool		caught = false;

	if (!gg_engine_thread_asks(work->thread, &bytes))
		return;
	gg_engine_thread_give(work->thread, GgTakeScratch(&build->scratch, bytes, &caught));
	GgThrowInterrupts(caught);
}

static void
WritePivots(GgBuild *build, GgSegmentWork *work)
{
	GgWriteArray(&build->process.writer, work->segment->id, GG_KIND_PIVOTS, work->pivots,
				 (uint64) work->segment->npivots * sizeof(GgPivotEntry));
	gg_graph_free(&work->graph);
	MemoryContextDelete(work->context);
	work->context = NULL;
	work->state = GG_WORK_NONE;
}

static void
TendWork(GgBuild *build, GgSegmentWork *work, bool growing)
{
	BlockNumber done,
				total;

	if (work->state == GG_WORK_WAITS)
		StartGraph(build, work);
	if (work->state == GG_WORK_GRAPH)
	{
		ServeEngine(build, work);
		if (gg_engine_thread_ended(work->thread))
			TakeGraph(build, work, growing);
	}
	if (work->state == GG_WORK_COPY)
		CopyAdjacency(build, work);
	if (work->state == GG_WORK_WRITE &&
		GgIsWritten(&build->process.writer, work->number, &done, &total))
	{
		work->state = GG_WORK_PIVOTS;
		LeaveWork(build, work);
	}
	if (work->state == GG_WORK_PIVOTS && !growing && !work->held)
		WritePivots(build, work);
}

/* The rows of this round may go to a device for which no other segment waits. */
static void
UploadRound(GgBuild *build)
{
	GgScan	   *scan = &build->process.scan;
	GgSegmentWork *work = &build->works[GgAreaNumber(scan)];
	double		rows = build->plan.expected -
		(double) pg_atomic_read_u64(&scan->shared->rows_done);
	int			device = work->chosen < 0 ? IdleDevice(build) : -1;

	for (int i = 0; i < GG_WRITER_QUEUES; i++)
		if (build->works[i].state == GG_WORK_WAITS)
			return;
	if (device < 0)
		return;
	ChooseDevice(build, work, device);
	BeginUpload(build, work, rows > 0 ? rows : build->plan.most);
}

void
GgTendSegments(GgBuild *build, bool growing)
{
	int			n = build->process.shared->writer.nqueues;
	uint32		round = build->process.shared->scan.round;

	/* the oldest first */
	for (int i = 1; i <= n; i++)
	{
		GgSegmentWork *work = &build->works[(round + i) % n];

		if (work->state != GG_WORK_NONE)
			TendWork(build, work, growing);
	}
	if (growing)
		UploadRound(build);
}

/* ---- begin and end ----------------------------------------------------- */

void
GgBeginWork(GgBuild *build, GgSegmentWork *work)
{
	LeaveDevice(work);
	UploadRound(build);
}

/*
 * Vectors go where the segment begins, so that they can be written during the scan.  Other arrays
 * follow them, all but the pivots.
 */
static void
BeginSegment(GgBuild *build, GgSegmentWork *work, bool more)
{
	GgArea	   *area = work->area;
	MemoryContext old = MemoryContextSwitchTo(work->context);

	work->segment = AddSegment(build, area);
	work->copied = 0;
	GgEnterPhase(GG_BUILD_DEDUPLICATE, area->nrows, 0);
	work->offsets = GgSortRows(area);
	if (!more)
		GgResetTables(area, true);
	CentreCodes(build, work);
	AddRowArrays(build, work);
	build->times.scan_s += GgSecondsSince(build->scan_start_us);
	MemoryContextSwitchTo(old);
}

/* No round comes any more: memory is given back as it is written. */
static void
LastUse(GgBuild *build)
{
	for (int i = 0; i < GG_WRITER_QUEUES; i++)
	{
		build->works[i].last_use = true;
		LeaveWork(build, &build->works[i]);
	}
}

void
GgCloseWork(GgBuild *build, GgSegmentWork *work, bool more)
{
	GgArea	   *area = work->area;

	GgCloseGaps(area);
	build->heap_s += GgSecondsSince(build->scan_start_us);
	if (work->device.upload != NULL)
		GgEnterPhase(GG_BUILD_UPLOAD, area->nodes, 0);
	GgDrainUpload(&work->device);
	if (more)
		GgAnnounceSegments(&build->plan, build->meta, area->nrows);
	if (area->nodes == 0)
	{
		LeaveDevice(work);
		return;
	}
	GgAnnounceMemory(&build->plan, build->meta, area->nodes, area->nrows);
	work->context = AllocSetContextCreate(build->context, "gpugraph segment",
										  ALLOCSET_DEFAULT_SIZES);
	if (!more)
		LastUse(build);
	BeginSegment(build, work, more);
	if (work->device.upload != NULL)
		GgEnterPhase(GG_BUILD_UPLOAD, area->nodes, 0);
	work->on_device = work->device.upload != NULL &&
		GgCompleteUpload(&work->device, area, build->meta);
	work->state = GG_WORK_WAITS;
	GgTendSegments(build, false);
}

void
GgFinishWork(GgBuild *build, GgSegmentWork *work)
{
	if (work->state != GG_WORK_NONE)
		WaitForWork(build, work, GG_WORK_PIVOTS + 1, false);
}

/* Rows, or their codes, are the first ranges: leave those that are handed over. */
static void
HandedOver(void *arg, uint64 first_bytes, uint64 pages)
{
	GgBuild    *build = arg;

	for (int i = 0; first_bytes > 0 && i < GG_WRITER_QUEUES; i++)
		if (build->works[i].device.load != NULL)
			LeaveRanges(build, &build->works[i], (uint32) (first_bytes / GG_RANGE_BYTES));
	GgReportBlocks((int64) pages);
}

/* The only segment: hand it over while others write, one after the other because of WAL's locks. */
static void
HandOver(GgBuild *build, GgSegmentWork *work)
{
	GgHandOverArrays arrays;

	/* ranges are left when they are handed over */
	work->last_use = false;
	work->held = true;
	/* codes are made of vectors, which go as soon as they are handed over */
	WaitForWork(build, work, GG_WORK_COPY, build->plan.codes != GG_CODES_NONE);
	WaitForWork(build, work, GG_WORK_WRITE, false);
	/* the service's copy may have the device memory that the graph took */
	GgKeepReserved(&build->plan.devices, 0, 0);
	arrays = (GgHandOverArrays) {work->area, &work->graph, work->pivots, work->offsets};
	GgHandOver(&work->device, build->process.scan.index, build->meta, &arrays, HandedOver, build);
	LeaveRanges(build, work, GgCountRanges(&build->process.writer, work->number));
	work->held = false;
}

void
GgFinishWorks(GgBuild *build)
{
	for (int i = 0; i < GG_WRITER_QUEUES; i++)
	{
		GgSegmentWork *work = &build->works[i];

		if (work->state != GG_WORK_NONE && build->meta->nsegments == 1)
			HandOver(build, work);
		else if (work->state != GG_WORK_NONE)
			WaitForWork(build, work, GG_WORK_COPY, false);
	}
	/* others still write */
	GgReleaseEngine(build);
	for (int i = 0; i < GG_WRITER_QUEUES; i++)
		GgFinishWork(build, &build->works[i]);
}

/* The threads first, for they read the area and use the device. */
void
GgReleaseWorks(GgBuild *build)
{
	for (int i = 0; i < GG_WRITER_QUEUES; i++)
	{
		GgSegmentWork *work = &build->works[i];

		gg_engine_thread_free(work->thread);
		work->thread = NULL;
		gg_graph_free(&work->graph);
		GgAbandonUpload(&work->device, NULL);
	}
	GgFreeScratch(&build->scratch, false);
}
