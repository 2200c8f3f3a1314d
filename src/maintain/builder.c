/*
 * builder.c
 *		Who builds the graph of a merged segment: a device of the service, or this process.
 *
 * The graph is made as in a build, or of the inputs' graphs (graphs.c).  Where the service has a
 * device, its worker makes it, from memory that both map (service/backend/graph_request.c).  Else
 * the CPU engine does or, for VACUUM and gpugraph_merge(), the engine that a build would use.
 */
#include "maintain/merge_state.h"
#include "storage/graph_memory.h"

/* Of fewer nodes the CPU has built the graph before this process could have opened a device. */
#define LEAST_GPU_NODES		20000

static bool
EngineCancelled(void *ctx)
{
	GgMerge	   *merge = ctx;

	return GgCallIsCancelled(&merge->call);
}

static void
EngineProgress(void *ctx, gg_phase phase, uint64_t done, uint64_t total)
{
	GgMerge	   *merge = ctx;

	GgTellPhase(merge, GG_MERGE_GRAPH, done);
}

static void *
TakeScratch(void *ctx, uint64_t bytes)
{
	GgMerge	   *merge = ctx;

	return GgTakeScratch(&merge->files.scratch, bytes, &merge->call.caught);
}

static void
FreeGraph(void *arg)
{
	gg_graph_free((gg_graph *) arg);
}

static gg_dataset
DataSet(const GgMerge *merge)
{
	return (gg_dataset) {
		.rows = merge->rows, .n = merge->nodes, .dim = merge->meta->dimensions,
		.element = merge->meta->element, .metric = merge->meta->metric
	};
}

/* Have an engine of this process make the graph or, engine NULL, a device of the service. */
static gg_status
RunEngine(GgMerge *merge, const gg_engine *engine)
{
	const bool	merges = merge->graphs.lists != NULL;
	gg_dataset	data = DataSet(merge);
	gg_control	control = {
		.cancelled = EngineCancelled, .progress = EngineProgress, .ctx = merge,
		.threads = merge->threads, .memory = merge->files.memory
	};
	gg_status	status;
	int			device = 0;

	if (merge->files.rows.start != NULL)
		control.scratch = TakeScratch;

	GgTellPhase(merge, GG_MERGE_GRAPH, 0);
	if (engine != NULL)
		GgOpenDevice(engine);
	GgBeginCall(&merge->call);
	if (engine == NULL)
		status = GgBuildOnDevice(merge->shared, &data, &merge->params, merges, &control,
								 merge->graph, &device);
	else if (merges)
		status = engine->merge(&data, &merge->graphs, &merge->params, &control, &merge->own, NULL);
	else
		status = engine->build(&data, &merge->params, &control, &merge->own, NULL);
	if (engine != NULL)
	{
		engine->release();
		*merge->graph = merge->own;
	}
	GgEndCall(&merge->call);
	GgFreeScratch(&merge->files.scratch, true);
	if (engine == NULL)
		snprintf(merge->builder, sizeof(merge->builder), "device %d", device);
	else
		strlcpy(merge->builder, engine == &gg_cpu_engine ? "the CPU" : "a GPU",
				sizeof(merge->builder));
	return status;
}

/* Read the inputs' graphs, if they help and there is memory. */
static void
ReadInputGraphs(GgMerge *merge)
{
	Size		degree = merge->meta->graph_degree;
	uint8	   *parts;
	uint32	   *lists;

	if (merge->anew || merge->graphs.lists != NULL ||
		!GgMergesGraphs(&merge->params, merge->plan, merge->nodes) ||
		merge->nodes > GgNodesInMemory(merge->meta, &merge->params, GgInputGraphBytes(merge->meta)))
		return;
	if (merge->shared != NULL && GgShareLists(merge->shared, merge->nodes))
	{
		parts = merge->shared->parts;
		lists = merge->shared->lists;
	}
	else
	{
		parts = MemoryContextAllocHuge(CurrentMemoryContext, merge->nodes);
		lists = MemoryContextAllocHuge(CurrentMemoryContext,
									   merge->nodes * degree * sizeof(uint32));
	}
	GgReadGraphs(merge->target, merge->meta, merge->plan, merge->nodes, parts, lists);
	merge->graphs.parts = parts;
	merge->graphs.lists = lists;
	merge->graphs.length = merge->meta->graph_degree;
	ereport(DEBUG1, (errmsg_internal("merging the graphs of %d segments of a gpugraph index",
									 merge->plan->ninputs)));
}

/* Have a device of the service make the graph.  False: it did not, so this process has to. */
static bool
BuiltByDevice(GgMerge *merge)
{
	gg_status	status;

	if (merge->shared == NULL || merge->nodes < GG_LEAST_DEVICE_NODES)
		return false;
	ReadInputGraphs(merge);
	if (merge->graphs.lists != NULL && merge->graphs.lists != merge->shared->lists)
		return false;
	status = RunEngine(merge, NULL);
	if (status.code == GG_ECANCELED)
		GgReportStatus(&status, "merging segments of a gpugraph index");
	if (status.code != GG_OK)
		ereport(DEBUG1,
				(errmsg_internal("the graph of a merged gpugraph segment is built by the CPU: %s",
								 status.message)));
	return status.code == GG_OK;
}

/*
 * Have an engine of this process make the graph: the CPU's or, for VACUUM and gpugraph_merge() and
 * many nodes, a GPU's, where the service has no device to ask.
 */
static void
BuildHere(GgMerge *merge)
{
	const gg_engine *engine = &gg_cpu_engine;
	gg_status	status;

	if (merge->shared == NULL && !merge->target->sliced && merge->nodes >= LEAST_GPU_NODES &&
		!GgServiceIsUp(true))
		engine = GgAvailableEngine();
	ReadInputGraphs(merge);
	status = RunEngine(merge, engine);
	if (engine != &gg_cpu_engine && status.code != GG_OK && status.code != GG_ECANCELED)
		status = RunEngine(merge, &gg_cpu_engine);
	GgCheckStatus(&status, "merging segments of a gpugraph index");
}

/* Learn the edges of the index's sample, if it has one, unless (anew) it is to forget them. */
static void
LearnMerged(GgMerge *merge)
{
	gg_control	control = {.cancelled = EngineCancelled, .ctx = merge, .threads = merge->threads};
	GgNewGraph	graph = {
		.data = DataSet(merge), .offsets = merge->offsets, .graph = merge->graph,
		.seed = (uint64) merge->meta->seed
	};
	GgLearnSample *sample;
	gg_status	status;

	if (merge->anew)
		return;
	GgBeginSlice(merge->target);
	sample = GgReadSample(merge->target->index);
	GgEndSlice(merge->target);
	if (sample == NULL)
		return;
	GgTellPhase(merge, GG_MERGE_LEARN, merge->nodes);
	GgBeginCall(&merge->call);
	status = GgLearnNewGraph(sample, &graph, &gg_cpu_engine, &control, &merge->learned);
	GgEndCall(&merge->call);
	GgCheckStatus(&status, "learning edges of a gpugraph index");
	GgFreeSample(sample);
}

void
GgBuildMerged(GgMerge *merge)
{
	merge->graph = palloc0(sizeof(gg_graph));
	GgAtReset(CurrentMemoryContext, FreeGraph, &merge->own);
	if (!BuiltByDevice(merge))
		BuildHere(merge);
	if (merge->graphs.lists != NULL &&
		(merge->shared == NULL || merge->graphs.lists != merge->shared->lists))
	{
		pfree(unconstify(uint8 *, merge->graphs.parts));
		pfree(unconstify(uint32 *, merge->graphs.lists));
	}
	LearnMerged(merge);

	merge->pivots = palloc_extended(merge->graph->npivots * sizeof(GgPivotEntry), MCXT_ALLOC_HUGE);
	for (uint32 i = 0; i < merge->graph->npivots; i++)
	{
		merge->pivots[i].node = merge->graph->pivots[i];
		memcpy(merge->pivots[i].neighbors,
			   merge->graph->pivot_adjacency + (Size) i * GG_PIVOT_DEGREE,
			   sizeof(merge->pivots[i].neighbors));
	}
}
