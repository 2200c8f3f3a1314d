/*
 * learn.c
 *		Edges learned from sample queries: other adjacency for segments that stay.
 *
 * For each segment the CPU engine measures the rows, some of them at a time, and the nearest live
 * nodes of each query become edges by the rule of rules/learn.h.  The new adjacency is written
 * beside the old one, and one WAL record puts it in its place for all segments.  Vectors, TIDs,
 * filters and pivots stay where they are.
 *
 * Pages of the new adjacency have the stamps of the old ones.  The old blocks are parked, as a
 * merge's are.  A process that no snapshot protects may find a page of the new adjacency in such a
 * block later on.  That is as good: nodes have the same numbers.
 *
 * VACUUM clears TIDs meanwhile, which nothing here depends on: a node may die as soon as it is an
 * answer.  It gives back segments without live rows.  Those are left out of the flip, and what was
 * written for them stays TAKEN until the next merge.
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

typedef struct GgLearning
{
	GgMergeTarget *target;
	const GgMetaPageData *meta;
	const GgLearnSample *sample;
	gg_control	control;
	bool		caught;			/* an error beneath the engine, not thrown yet */
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

	return GgServeInterrupts(&learning->caught);
}

static void
CheckEngine(const GgLearning *learning, const gg_status *status)
{
	GgThrowInterrupts(learning->caught);
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
	gg_status	status = gg_cpu_engine.index_open(&data, NULL, &learning->control, &index);

	if (status.code == GG_OK)
	{
		status = gg_cpu_engine.index_exact(index, GG_LEARN_LIST, live, learning->sample->queries,
										   learning->sample->count, &learning->control, keys);
		gg_cpu_engine.index_close(index);
	}
	CheckEngine(learning, &status);
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
		MeasureRows(learning, rows, count, live + first / 32, keys);
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

		GgCheckInterrupts();
		if (array->written == array->taken)
			(void) GgTakeForArray(target->index, target->heap, array);
		count = Min(array->taken - array->written, GG_WRITE_PAGES);
		GgWritePages(target->index, learning->meta->instance, array, array->written, count);
		array->written += count;
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
	status = gg_learn(&rule, &learning->control, adjacency, &stats);
	CheckEngine(learning, &status);
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
	}
	meta->generation++;
	GgMergeFree(meta);
	GgStoreMeta(index, learning->target->heap, metabuf, meta);
	pfree(meta);
}

/* What merges that failed have left is free again. */
static void
FreeTaken(const GgMergeTarget *target)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgMetaPageData *head;
	Buffer		metabuf = GgLockMeta(target->index, BUFFER_LOCK_EXCLUSIVE, &head);

	GgCopyMeta(target->index, metabuf, meta);
	if (GgFreeTaken(meta))
		GgStoreMeta(target->index, target->heap, metabuf, meta);
	else
		UnlockReleaseBuffer(metabuf);
	pfree(meta);
}

uint64
GgLearnEdges(GgMergeTarget *target, const GgMetaPageData *meta, const GgLearnSample *sample,
			 int threads)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph learning",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	GgLearning *learning = palloc0(sizeof(GgLearning));
	uint64		edges;

	learning->target = target;
	learning->meta = meta;
	learning->sample = sample;
	learning->control.cancelled = IsCancelled;
	learning->control.ctx = learning;
	learning->control.threads = threads;
	FreeTaken(target);
	for (int i = 0; i < meta->nsegments; i++)
		GgAddInput(&learning->plan, meta, &meta->segments[i]);
	learning->tids = MemoryContextAllocHuge(context, Max(learning->plan.rows, 1) *
											sizeof(GgTidEntry));
	for (int i = 0; i < learning->plan.ninputs; i++)
		LearnSegment(learning, &learning->plan.inputs[i]);
	GgHold(GG_HOLD_MERGE);
	if (learning->narrays > 0)
		Flip(learning);
	edges = learning->edges;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return edges;
}
