/*
 * learn.c
 *		Edges learned from sample queries: other adjacency for segments that stay, and graphs that
 *		builds and merges have made.
 *
 * gpugraph_learn().  The CPU engine measures the rows of each segment, some of them at a time.  The
 * nearest live nodes of each query become edges by the rule of rules/learn.h.  The new adjacency is
 * written beside the old one, and one WAL record puts it in its place for all segments.  Vectors,
 * TIDs, filters and pivots stay where they are.
 *
 * Pages of the new adjacency have the stamps of the old ones.  The old blocks are parked, as a
 * merge's are.  A process that no snapshot protects may find a page of the new adjacency in such a
 * block later on.  That is as good: nodes have the same numbers.
 *
 * VACUUM clears TIDs meanwhile, which nothing here depends on: a node may die as soon as it is an
 * answer.  It gives back segments without live rows.  Those are left out of the flip, and what was
 * written for them stays TAKEN until the next merge.
 *
 * Builds and merges learn the index's sample (sample.c) before they write a graph.  They search it
 * for the answers, by walks with a list of WALK_LIST.  To measure all rows would take longer than
 * the graph itself.  They learn from one query for ROWS_PER_QUERY rows at most, so that many
 * queries do not make a small segment's merge long.
 *
 * 40,000 x 200, inner product, 10,000 queries, 2 threads; recall@10 at itopk 64 of other queries
 * with a gap of 0.5 and of clusters without rows (foreign.h), and seconds for the answers.  The
 * build takes 6.5.
 *
 *		all rows		.9946	.9868	23 to 36
 *		walks, 128		.9924	.9784	2.5 to 5
 *		walks, 256		.9940	.9848	4.4 to 6.4
 *		walks, 512		.9944	.9864	9 to 13
 */
#include "merge/merge.h"
#include "service/shared/service.h"

#include "access/xact.h"
#include "keys.h"
#include "miscadmin.h"
#include "rules/learn.h"
#include "utils/memutils.h"

/* Rows that are measured at a time take half of maintenance_work_mem, and are so many at least. */
#define LEAST_ROWS		1024

/* See the head.  Walks measure more than that many rows. */
#define WALK_LIST		256
#define LEAST_WALKED	4096
#define ROWS_PER_QUERY	4

typedef struct GgLearning
{
	GgMergeTarget *target;
	const GgMetaPageData *meta;
	const GgLearnSample *sample;
	gg_control	control;
	GgEngineCall call;
	GgLearnReport report;
	uint64		nodes;			/* of all segments */
	uint64		measured;		/* of these; the engine has so many more: */
	uint32		measuring;
	GgMergePlan plan;
	GgTidEntry *tids;			/* of all segments */
	GgNewArray	arrays[GG_MAX_SEGMENTS];
	int			narrays;
	uint64		edges;			/* that are new */
} GgLearning;

static bool
IsCancelled(void *ctx)
{
	GgLearning *learning = ctx;

	return GgCallIsCancelled(&learning->call);
}

static void
ReportMeasured(void *ctx, gg_phase phase, uint64_t done, uint64_t total)
{
	GgLearning *learning = ctx;

	learning->report(GG_MERGE_LEARN, learning->measured + learning->measuring * done / total,
					 learning->nodes);
}

/* After the call. */
static void
EndCall(GgLearning *learning, const gg_status *status)
{
	GgEndCall(&learning->call);
	if (status->code != GG_OK)
		GgReportStatus(status, "learning edges of a gpugraph index");
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
	gg_index   *index;
	gg_status	status;

	GgBeginCall(&learning->call);
	status = gg_cpu_engine.index_open(&data, NULL, &learning->control, &index);
	if (status.code == GG_OK)
	{
		status = gg_cpu_engine.index_exact(index, GG_LEARN_LIST, live, learning->sample->queries,
										   learning->sample->count, &learning->control, keys);
		gg_cpu_engine.index_close(index);
	}
	EndCall(learning, &status);
}

/* The nearest live nodes of each query, nearest first, GG_LEARN_LIST of each. */
static uint32 *
AnswerQueries(GgLearning *learning, const GgMergeInput *input)
{
	const Size	row_bytes = GgRowBytes(learning->meta);
	const Size	places = (Size) learning->sample->count * GG_LEARN_LIST;
	Size		wanted = Max((Size) maintenance_work_mem * 1024 / 2 / row_bytes, LEAST_ROWS);
	uint32		step = (uint32) Min(wanted, input->nodes + (Size) 31) / 32 * 32;
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
	GgMergeTarget *target = learning->target;
	GgNewArray *array = &learning->arrays[learning->narrays++];

	GgBeginArray(array, input->segment.id, GG_KIND_ADJACENCY, adjacency,
				 (uint64) input->nodes * learning->meta->graph_degree * sizeof(uint32));
	while (array->written < array->npages)
	{
		uint32		count;

		GgBeginSlice(target);
		if (array->written == array->taken)
			(void) GgTakeForArray(target->index, target->heap, array);
		count = Min(array->taken - array->written, GG_WRITE_PAGES);
		GgWritePages(target->index, learning->meta->instance, array, array->written, count);
		array->written += count;
		GgEndSlice(target);
		learning->report(GG_MERGE_WRITE, array->written, array->npages);
	}
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
	EndCall(learning, &status);
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

/* Put the new adjacency in the old one's place, in all segments that are there still. */
static void
Flip(GgLearning *learning)
{
	Relation	index = learning->target->index;
	FullTransactionId own = GetTopFullTransactionId();
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgMetaPageData *head;
	Buffer		metabuf = GgLockMeta(index, BUFFER_LOCK_EXCLUSIVE, &head);
	uint64		xid;

	GgCopyMeta(index, metabuf, meta);
	xid = GgParkingXid(own);
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
	meta->generation++;
	GgMergeFree(meta);
	GgStoreMeta(index, learning->target->heap, metabuf, meta);
	pfree(meta);
}

/* What merges that failed have left is free again. */
static void
FreeTaken(GgMergeTarget *target)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgMetaPageData *head;
	Buffer		metabuf;

	GgBeginSlice(target);
	metabuf = GgLockMeta(target->index, BUFFER_LOCK_EXCLUSIVE, &head);
	GgCopyMeta(target->index, metabuf, meta);
	if (GgFreeTaken(meta))
		GgStoreMeta(target->index, target->heap, metabuf, meta);
	else
		UnlockReleaseBuffer(metabuf);
	GgEndSlice(target);
	pfree(meta);
}

uint64
GgLearnEdges(GgMergeTarget *target, const GgMetaPageData *meta, const GgLearnSample *sample,
			 int threads, GgLearnReport report)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph learning",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	GgLearning *learning = palloc0(sizeof(GgLearning));
	uint64		edges;

	learning->target = target;
	learning->call = (GgEngineCall) {.context = context, .target = target};
	learning->meta = meta;
	learning->sample = sample;
	learning->report = report;
	learning->control.cancelled = IsCancelled;
	learning->control.progress = ReportMeasured;
	learning->control.ctx = learning;
	learning->control.threads = threads;
	FreeTaken(target);
	for (int i = 0; i < meta->nsegments; i++)
	{
		GgAddInput(&learning->plan, meta, &meta->segments[i]);
		learning->nodes += meta->segments[i].nodes;
	}
	learning->tids = MemoryContextAllocHuge(context, Max(learning->plan.rows, 1) *
											sizeof(GgTidEntry));
	for (int i = 0; i < learning->plan.ninputs; i++)
		LearnSegment(learning, &learning->plan.inputs[i]);
	GgBeginSlice(target);
	GgHold(GG_HOLD_MERGE);
	if (learning->narrays > 0)
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

/*
 * Of each list of `length` keys the nearest nodes that have rows, GG_LEARN_LIST of them, GG_NO_NODE
 * at the end.
 */
static void
TakeAnswers(const GgNewGraph *graph, const uint64 *keys, uint32 length, uint32 count,
			uint32 *answers)
{
	for (uint32 q = 0; q < count; q++, answers += GG_LEARN_LIST, keys += length)
	{
		uint32		taken = 0;

		for (uint32 i = 0; i < length && taken < GG_LEARN_LIST && keys[i] != GG_NO_KEY; i++)
		{
			uint32		node = key_node(keys[i]);

			if (graph->offsets == NULL || graph->offsets[node] < graph->offsets[node + 1])
				answers[taken++] = node;
		}
		while (taken < GG_LEARN_LIST)
			answers[taken++] = GG_NO_NODE;
	}
}

/* The nearest nodes of each query, `length` of them, as keys. */
static gg_status
FindNodes(const GgNewGraph *graph, const float *queries, uint32 count, uint32 length,
		  const gg_control *control, uint64 *keys)
{
	const gg_search_params params = {.k = length, .itopk_size = WALK_LIST};
	gg_index   *index;
	gg_status	status = gg_cpu_engine.index_open(&graph->data, graph->graph, control, &index);

	if (status.code != GG_OK)
		return status;
	if (graph->data.n <= LEAST_WALKED)
		status = gg_cpu_engine.index_exact(index, length, NULL, queries, count, control, keys);
	else
		status = gg_cpu_engine.index_search(index, &params, queries, count, control, keys);
	gg_cpu_engine.index_close(index);
	return status;
}

gg_status
GgLearnNewGraph(const GgLearnSample *sample, const GgNewGraph *graph, const gg_control *control,
				uint32 *edges)
{
	/* some nodes of pieces that stay have no row */
	const uint32 length = 2 * GG_LEARN_LIST;
	gg_learn_input rule = {
		.n = graph->data.n, .degree = graph->graph->degree, .pivots = graph->graph->pivots,
		.npivots = graph->graph->npivots, .length = GG_LEARN_LIST, .seed = graph->seed
	};
	gg_learn_stats stats;
	gg_status	status;
	float	   *queries;
	uint64	   *keys;
	uint32	   *answers;

	*edges = 0;
	if (sample == NULL || sample->dimensions != graph->data.dim)
		return gg_ok();
	rule.edges = Min(sample->edges, gg_learn_most_edges(rule.degree));
	queries = TakeQueries(sample, rule.n, &rule.count);
	keys = MemoryContextAllocHuge(CurrentMemoryContext,
								  (Size) rule.count * length * sizeof(uint64));
	answers = MemoryContextAllocHuge(CurrentMemoryContext,
									 (Size) rule.count * GG_LEARN_LIST * sizeof(uint32));
	status = FindNodes(graph, queries, rule.count, length, control, keys);
	if (status.code == GG_OK)
	{
		TakeAnswers(graph, keys, length, rule.count, answers);
		rule.answers = answers;
		status = gg_learn(&rule, control, graph->graph->adjacency, &stats);
	}
	if (status.code == GG_OK)
	{
		*edges = stats.edges > 0 ? rule.edges : 0;
		ereport(DEBUG1,
				(errmsg_internal("gpugraph graph of %u nodes: " UINT64_FORMAT " edges learned from "
								 "%u queries, %u links", rule.n, stats.edges, rule.count,
								 stats.links)));
	}
	pfree(queries);
	pfree(keys);
	pfree(answers);
	return status;
}
