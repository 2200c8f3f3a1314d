/*
 * learn.c
 *		Edges learned from sample queries: other adjacency for segments that stay, and graphs that
 *		builds and merges have made.
 *
 * gpugraph_learn().  An engine measures the rows of each segment, some of them at a time: a device
 * that this process opens where there is one, and the CPU engine where there is none, it fails,
 * there is little to measure, or a background worker learns.  The nearest live nodes of each query
 * become edges by the rule of engine/rules/learn.h.  The new adjacency is written beside the old
 * one, and one WAL record puts it in its place for all segments.  Vectors, TIDs, filters and pivots
 * stay where they are.
 *
 * Pages of the new adjacency have the stamps of the old ones.  The old blocks are parked, as a
 * merge's are.  A process that no snapshot protects may find a page of the new adjacency in such a
 * block later on.  That is as good: nodes have the same numbers.
 *
 * VACUUM clears TIDs meanwhile, which nothing here depends on: a node may die as soon as it is an
 * answer.  It gives back segments without live rows.  Those are left out of the flip, and what was
 * written for them stays TAKEN until the next merge.
 *
 * Builds and merges learn the index's sample (sample.c) before they write a graph.  A build on a
 * device has it measure all rows.  On the CPU that would take longer than the graph itself, so the
 * graph is searched for the answers.  A first walk finds many of them, and a second one, in the
 * graph that has learned from these, most others.  In a large graph two more are needed.  Either
 * way they learn from one query for ROWS_PER_QUERY rows at most, so that many queries do not make a
 * small segment's merge long.
 *
 * 50,000 x 200, inner product, 6,000 queries, 2 threads; recall@10 at itopk 64 of other queries of
 * clusters without rows, and of such clusters that the sample lacks (foreign.h); answers that walks
 * found, and seconds, the build being 8.6 (the machine had other work).  As built .8298 and .8590.
 *
 *		all rows				.9798	.9534	1.0000	14.4
 *		a walk of 256			.9728	.9466	.9605	4.6
 *		a walk of 512			.9752	.9504	.9875	8.9
 *		64, then 128			.9768	.9508	.9732
 *		128, then 128			.9790	.9510	.9824	2.7 to 5.4
 *		128, then 256			.9790	.9536	.9939	5.3
 *		a quarter of the queries by 256, then all by 256
 *								.9788	.9512	.9915	5.1
 *		128, then 128, the graph as built learning the second time
 *								.9780	.9498	.9824
 *
 * 1,000,000 x 200, the same, 10,000 queries, 16 processors; seconds of a merge that adds a sixth.
 *
 *		all rows				.9547	.8610
 *		128, then 256			.9363	.8330	3.2
 *		128, 256, 256			.9456	.8598	3.7
 *		128, 256, 512			.9487	.8609	4.1
 *		128, 256, 256, 512		.9502	.8613	4.7
 */
#include "maintain/merge.h"
#include "service/shared/settings.h"

#include "access/xact.h"
#include "engine/keys.h"
#include "miscadmin.h"
#include "engine/rules/learn.h"
#include "utils/memutils.h"

/* Rows that are measured at a time take half of maintenance_work_mem, and are so many at least. */
#define LEAST_ROWS		1024

/* A device takes 0.1 s and more to be opened; the CPU measures so many pairs meanwhile. */
#define LEAST_GPU_PAIRS	UINT64CONST(20000000)

/* The walks of the head.  Of LEAST_WALKED nodes and fewer the CPU measures all instead. */
static const struct
{
	uint32		list;
	uint32		least;			/* nodes from which on there is this walk */
}			walks[] = {{128}, {256}, {256, 1u << 18}, {512, 1u << 18}};
#define LEAST_WALKED	4096
#define ROWS_PER_QUERY	4

typedef struct GgLearning
{
	GgMergeTarget *target;
	const GgMetaPageData *meta;
	const GgLearnSample *sample;
	gg_control	control;
	const gg_engine *engine;	/* that measures rows */
	GgEngineCall call;
	uint64		nodes;			/* of all segments */
	uint64		measured;		/* nodes that were measured so far */
	uint32		measuring;		/* nodes that the engine measures now */
	GgMergePlan plan;
	GgTidEntry *tids;			/* of all segments */
	GgNewArray	arrays[GG_MAX_SEGMENTS];
	int			narrays;
	bool		store;			/* the sample is to be stored, too */
	GgNewArray	stored;			/* the array of the sample */
	uint64		edges;			/* that are new */
} GgLearning;

static bool
IsCancelled(void *ctx)
{
	GgLearning *learning = ctx;

	GgLearnFault();
	return GgCallIsCancelled(&learning->call);
}

static void
ReportMeasured(void *ctx, gg_phase phase, uint64_t done, uint64_t total)
{
	GgLearning *learning = ctx;

	learning->target->report(GG_MERGE_LEARN,
							 learning->measured + learning->measuring * done / total,
							 learning->nodes);
}

/* ---- exact answers ----------------------------------------------------------------------- */

/* Bit i % 32 of word i / 32: node i has a live row. */
static uint32 *
LiveNodes(const GgLearning *learning, const GgMergeInput *input)
{
	uint32	   *live = palloc_extended((input->nodes / 32 + 1) * sizeof(uint32),
									   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (uint32 node = 0; node < input->nodes; node++)
	{
		uint32		row = input->offsets != NULL ? input->offsets[node] : node;
		uint32		end = input->offsets != NULL ? input->offsets[node + 1] : node + 1;

		for (; row < end && row < input->rows; row++)
			if (ItemPointerIsValid(&learning->tids[input->first_row + row].tid))
				live[node / 32] |= (uint32) 1 << node % 32;
	}
	return live;
}

/* Merge more keys, whose nodes are counted from first, into the nearest ones.  Both are sorted. */
static void
AddKeys(uint64 *nearest, const uint64 *more, uint32 first)
{
	uint64		both[GG_LEARN_LIST];
	int			a = 0,
				b = 0;

	for (int i = 0; i < GG_LEARN_LIST; i++)
	{
		uint64		key = more[b] == GG_NO_KEY ? GG_NO_KEY : more[b] + ((uint64) first << 1);

		if (nearest[a] <= key)
			both[i] = nearest[a++];
		else
		{
			both[i] = key;
			b++;
		}
	}
	memcpy(nearest, both, sizeof(both));
}

/* Who measures the rows of all segments. */
static const gg_engine *
ChooseEngine(const GgLearning *learning)
{
	const uint64 pairs = learning->nodes * learning->sample->count;

	if (learning->target->sliced ||
		(pairs < LEAST_GPU_PAIRS && gg_engine_setting != GG_ENGINE_CUDA))
		return &gg_cpu_engine;
	return GgAvailableEngine();
}

/* Called however learning ends, and before the CPU goes on in the place of a device. */
static void
ReleaseEngine(void *arg)
{
	GgLearning *learning = arg;

	learning->engine->release();
	learning->engine = &gg_cpu_engine;
}

/* Rows that are measured at a time, a multiple of 32. */
static uint32
RowsAtATime(const GgLearning *learning, uint32 nodes)
{
	const GgMetaPageData *meta = learning->meta;
	gg_shape	shape = {
		.dim = meta->dimensions, .element = meta->element, .metric = meta->metric
	};
	Size		wanted = (Size) maintenance_work_mem * 1024 / 2 / GgRowBytes(meta);
	uint64		budget;

	shape.capacity = (uint32) Min(Max(wanted, LEAST_ROWS), nodes + (Size) 31);
	if (learning->engine != &gg_cpu_engine)
	{
		budget = GgBuildBudget(learning->engine, NULL, learning->engine->shape_bytes(&shape));
		while (shape.capacity > LEAST_ROWS && learning->engine->shape_bytes(&shape) > budget)
			shape.capacity /= 2;
	}
	return shape.capacity / 32 * 32;
}

static gg_status
RunEngine(GgLearning *learning, const gg_dataset *data, const uint32 *live, uint64 *keys)
{
	const gg_engine *engine = learning->engine;
	gg_index   *index;
	gg_status	status;

	if (engine != &gg_cpu_engine)
		GgOpenDevice(engine);
	GgBeginCall(&learning->call);
	status = engine->index_open(data, NULL, &learning->control, &index);
	if (status.code == GG_OK)
	{
		status = engine->index_exact(index, GG_LEARN_LIST, live, learning->sample->queries,
									 learning->sample->count, &learning->control, keys);
		engine->index_close(index);
	}
	GgEndCall(&learning->call);
	return status;
}

/* The nearest live nodes of each query, as keys, of nodes [first, first + count). */
static void
MeasureRows(GgLearning *learning, const char *rows, uint32 count, const uint32 *live,
			uint64 *keys)
{
	const GgMetaPageData *meta = learning->meta;
	gg_dataset	data = {
		.rows = rows, .n = count, .dim = meta->dimensions, .element = meta->element,
		.metric = meta->metric
	};
	gg_status	status = RunEngine(learning, &data, live, keys);

	if (status.code != GG_OK && learning->engine != &gg_cpu_engine)
	{
		ereport(DEBUG1,
				(errmsg_internal("the CPU measures rows for a gpugraph index that learns: %s",
								 status.message)));
		ReleaseEngine(learning);
		status = RunEngine(learning, &data, live, keys);
	}
	GgCheckStatus(&status, "learning edges of a gpugraph index");
}

/* The nearest live nodes of each query, nearest first, GG_LEARN_LIST of each. */
static uint32 *
AnswerQueries(GgLearning *learning, const GgMergeInput *input)
{
	const Size	row_bytes = GgRowBytes(learning->meta);
	const Size	places = (Size) learning->sample->count * GG_LEARN_LIST;
	const uint32 step = RowsAtATime(learning, input->nodes);
	uint32	   *live = LiveNodes(learning, input);
	char	   *rows = MemoryContextAllocHuge(CurrentMemoryContext, step * row_bytes);
	uint64	   *nearest = MemoryContextAllocHuge(CurrentMemoryContext, places * sizeof(uint64));
	uint64	   *keys = MemoryContextAllocHuge(CurrentMemoryContext, places * sizeof(uint64));
	uint32	   *answers = MemoryContextAllocHuge(CurrentMemoryContext, places * sizeof(uint32));

	memset(nearest, 0xFF, places * sizeof(uint64));
	for (uint32 first = 0; first < input->nodes; first += step)
	{
		uint32		count = Min(step, input->nodes - first);

		GgReadVectors(learning->target, learning->meta, input, first, count, rows);
		learning->measuring = count;
		learning->target->report(GG_MERGE_LEARN, learning->measured, learning->nodes);
		MeasureRows(learning, rows, count, live + first / 32, keys);
		learning->measured += count;
		for (Size q = 0; q < places; q += GG_LEARN_LIST)
			AddKeys(nearest + q, keys + q, first);
	}
	for (Size i = 0; i < places; i++)
		answers[i] = nearest[i] == GG_NO_KEY ? GG_NO_NODE : key_node(nearest[i]);
	pfree(live);
	pfree(rows);
	pfree(nearest);
	pfree(keys);
	return answers;
}

/* ---- a segment --------------------------------------------------------------------------- */

static void
WriteAdjacency(GgLearning *learning, const GgMergeInput *input, const uint32 *adjacency)
{
	GgNewArray *array = &learning->arrays[learning->narrays++];

	GgBeginArray(array, input->segment.id, GG_KIND_ADJACENCY, adjacency,
				 (uint64) input->nodes * learning->meta->graph_degree * sizeof(uint32));
	GgWriteSlices(learning->target, learning->meta->instance, array);
}

static void
LearnSegment(GgLearning *learning, GgMergeInput *input)
{
	const GgMetaPageData *meta = learning->meta;
	gg_learn_input rule = {
		.n = input->nodes, .degree = meta->graph_degree, .npivots = input->segment.npivots,
		.count = learning->sample->count, .length = GG_LEARN_LIST,
		.edges = learning->sample->edges, .seed = (uint64) meta->seed
	};
	gg_learn_stats stats;
	gg_status	status;
	uint32	   *adjacency;
	uint32	   *pivots;
	uint32	   *answers;

	GgReadTids(learning->target, meta, input, learning->tids);
	GgReadOffsets(learning->target, meta, input);
	rule.answers = answers = AnswerQueries(learning, input);
	rule.pivots = pivots = GgReadPivots(learning->target, meta, input);
	adjacency = MemoryContextAllocHuge(CurrentMemoryContext, (Size) input->nodes *
									   meta->graph_degree * sizeof(uint32));
	GgReadAdjacency(learning->target, meta, input, 0, input->nodes, adjacency);
	GgBeginCall(&learning->call);
	status = gg_learn(&rule, &learning->control, adjacency, &stats);
	GgEndCall(&learning->call);
	GgCheckStatus(&status, "learning edges of a gpugraph index");
	if (stats.edges > 0)
		WriteAdjacency(learning, input, adjacency);
	learning->edges += stats.edges;
	pfree(adjacency);
	pfree(pivots);
	pfree(answers);
	if (input->offsets != NULL)
		pfree(input->offsets);
}

/* ---- the flip ---------------------------------------------------------------------------- */

/*
 * Put the new adjacency in the old one's place, in all segments that are there still, and the
 * sample in that of the one before.
 */
static void
Flip(GgLearning *learning)
{
	Relation	index = learning->target->index;
	FullTransactionId own = GetTopFullTransactionId();
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	Buffer		metabuf = GgLockDirectory(index, meta);
	uint64		xid = GgParkingXid(own);

	for (int i = 0; i < learning->narrays; i++)
	{
		const GgNewArray *array = &learning->arrays[i];
		GgSegment  *segment = unconstify(GgSegment *, GgFindSegment(meta, array->owner));

		if (segment == NULL)
			continue;
		GgForgetTaken(meta, array->owner);
		GgFreeArray(meta, array->owner, GG_KIND_ADJACENCY, xid);
		GgListArray(meta, array);
		segment->graph = GgTakeId(index, meta);
		GgSetLearnedEdges(segment, Max(GgLearnedEdges(segment), learning->sample->edges));
	}
	if (learning->narrays > 0)
		meta->generation++;
	if (learning->store)
		GgListSample(meta, &learning->stored, xid);
	GgMergeFree(meta);
	GgStoreMeta(index, learning->target->heap, metabuf, meta);
	pfree(meta);
}

/* Free what merges that failed have left TAKEN. */
static void
FreeTaken(GgMergeTarget *target)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	Buffer		metabuf;

	GgBeginSlice(target);
	metabuf = GgLockDirectory(target->index, meta);
	if (GgFreeTaken(meta))
		GgStoreMeta(target->index, target->heap, metabuf, meta);
	else
		UnlockReleaseBuffer(metabuf);
	GgEndSlice(target);
	pfree(meta);
}

uint64
GgLearnEdges(GgMergeTarget *target, const GgMetaPageData *meta, const GgLearnSample *sample,
			 bool store, int threads)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph learning",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	GgLearning *learning = palloc0(sizeof(GgLearning));
	uint64		edges;

	learning->target = target;
	learning->call = (GgEngineCall) {.context = context, .target = target};
	learning->meta = meta;
	learning->sample = GgTaughtOf(sample);
	learning->store = store;
	learning->control.cancelled = IsCancelled;
	learning->control.progress = ReportMeasured;
	learning->control.ctx = learning;
	learning->control.threads = threads;
	learning->engine = &gg_cpu_engine;
	FreeTaken(target);
	if (store)
		GgWriteSample(target, meta->instance, sample, &learning->stored);
	for (int i = 0; i < meta->nsegments; i++)
	{
		GgAddInput(&learning->plan, meta, &meta->segments[i]);
		learning->nodes += meta->segments[i].nodes;
	}
	GgAtReset(context, ReleaseEngine, learning);
	learning->engine = ChooseEngine(learning);
	learning->tids = MemoryContextAllocHuge(context, Max(learning->plan.rows, 1) *
											sizeof(GgTidEntry));
	for (int i = 0; i < learning->plan.ninputs; i++)
		LearnSegment(learning, &learning->plan.inputs[i]);
	GgBeginSlice(target);
	GgHold(GG_FAULT_HOLD_MERGE);
	if (learning->narrays > 0 || store)
		Flip(learning);
	GgEndSlice(target);
	edges = learning->edges;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return edges;
}

/* ---- graphs that are not written yet ------------------------------------------------------ */

/* The queries that a graph of so many nodes learns from: all, or some of them, evenly spaced. */
static float *
TakeQueries(const GgLearnSample *sample, uint32 nodes, uint32 *count)
{
	const uint32 most = Max(nodes / ROWS_PER_QUERY, 1);
	const Size	dimensions = sample->dimensions;
	float	   *queries;

	*count = Min(sample->count, most);
	queries = MemoryContextAllocHuge(CurrentMemoryContext, *count * dimensions * sizeof(float));
	for (Size i = 0; i < *count; i++)
		memcpy(queries + i * dimensions,
			   sample->queries + (Size) ((uint64) i * sample->count / *count) * dimensions,
			   dimensions * sizeof(float));
	return queries;
}

/* Nodes that are looked for.  Some have no row: those in pieces that stay may have lost theirs. */
#define KEYS			(2 * GG_LEARN_LIST)

/*
 * Of each list of KEYS keys the nearest nodes that have rows, GG_LEARN_LIST of them, GG_NO_NODE at
 * the end.
 */
static void
TakeAnswers(const GgNewGraph *graph, const uint64 *keys, uint32 count, uint32 *answers)
{
	for (uint32 q = 0; q < count; q++, answers += GG_LEARN_LIST, keys += KEYS)
	{
		uint32		taken = 0;

		for (uint32 i = 0; i < KEYS && taken < GG_LEARN_LIST && keys[i] != GG_NO_KEY; i++)
		{
			uint32		node = key_node(keys[i]);

			if (graph->offsets == NULL || graph->offsets[node] < graph->offsets[node + 1])
				answers[taken++] = node;
		}
		while (taken < GG_LEARN_LIST)
			answers[taken++] = GG_NO_NODE;
	}
}

/* The nearest nodes of each query, KEYS of them, as keys.  walk_list 0: all are measured. */
static gg_status
FindNodes(const gg_engine *engine, const GgNewGraph *graph, const float *queries, uint32 count,
		  uint32 walk_list, const gg_control *control, uint64 *keys)
{
	const gg_search_params params = {.k = KEYS, .itopk_size = walk_list};
	gg_index   *index;
	gg_status	status = engine->index_open(&graph->data, walk_list > 0 ? graph->graph : NULL,
											control, &index);

	if (status.code != GG_OK)
		return status;
	if (walk_list == 0)
		status = engine->index_exact(index, KEYS, NULL, queries, count, control, keys);
	else
		status = engine->index_search(index, &params, queries, count, control, keys);
	engine->index_close(index);
	return status;
}

/* Learn from the answers, by the rule. */
static gg_status
LearnAnswers(gg_learn_input *rule, const GgNewGraph *graph, const uint64 *keys,
			 const gg_control *control, uint32 *edges)
{
	/* the current context may be a slice's, which ends beneath the engine (control) */
	MemoryContext context = GetMemoryChunkContext(unconstify(uint64 *, keys));
	uint32	   *answers = MemoryContextAllocHuge(context, (Size) rule->count * GG_LEARN_LIST *
												 sizeof(uint32));
	gg_learn_stats stats;
	gg_status	status;

	TakeAnswers(graph, keys, rule->count, answers);
	rule->answers = answers;
	status = gg_learn(rule, control, graph->graph->adjacency, &stats);
	if (status.code == GG_OK && stats.edges > 0)
		*edges = rule->edges;
	ereport(DEBUG1,
			(errmsg_internal("gpugraph graph of %u nodes: " UINT64_FORMAT " edges learned from %u "
							 "queries, %u links", rule->n, stats.edges, rule->count,
							 stats.links)));
	pfree(answers);
	return status;
}

gg_status
GgLearnNewGraph(const GgLearnSample *sample, const GgNewGraph *graph, const gg_engine *engine,
				const gg_control *control, uint32 *edges)
{
	gg_learn_input rule = {
		.n = graph->data.n, .degree = graph->graph->degree, .pivots = graph->graph->pivots,
		.npivots = graph->graph->npivots, .length = GG_LEARN_LIST, .seed = graph->seed
	};
	bool		measured = engine != &gg_cpu_engine || rule.n <= LEAST_WALKED;
	gg_status	status = gg_ok();
	const GgLearnSample *taught;
	float	   *queries;
	uint64	   *keys;

	*edges = 0;
	if (sample == NULL || sample->dimensions != graph->data.dim)
		return status;
	rule.edges = Min(sample->edges, gg_learn_most_edges(rule.degree));
	taught = GgTaughtOf(sample);
	queries = TakeQueries(taught, rule.n, &rule.count);
	if (taught != sample)
		GgFreeSample(unconstify(GgLearnSample *, taught));
	keys = MemoryContextAllocHuge(CurrentMemoryContext, (Size) rule.count * KEYS * sizeof(uint64));
	if (measured)
	{
		status = FindNodes(engine, graph, queries, rule.count, 0, control, keys);
		measured = engine == &gg_cpu_engine || status.code == GG_OK ||
			status.code == GG_ECANCELED;
		if (status.code == GG_OK)
			status = LearnAnswers(&rule, graph, keys, control, edges);
	}
	/* walks follow, too, where a device has failed */
	if (!measured)
		status = gg_ok();
	for (int i = 0; i < (int) lengthof(walks) && !measured && status.code == GG_OK; i++)
	{
		if (rule.n < walks[i].least)
			break;
		status = FindNodes(&gg_cpu_engine, graph, queries, rule.count, walks[i].list, control,
						   keys);
		if (status.code == GG_OK)
			status = LearnAnswers(&rule, graph, keys, control, edges);
	}
	pfree(queries);
	pfree(keys);
	return status;
}
