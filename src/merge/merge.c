/*
 * merge.c
 *		One merge: nodes, graph, pages, the flip of the directory.
 *
 * The vectors of the inputs become the rows of a data set, for which an engine makes a graph: as in
 * a build, or of the inputs' graphs (graphs.c).  Where the service has a device, its worker does,
 * from memory that both map (service/graph_request.c); else the CPU engine.
 *
 * Pieces keep their vectors where they are, unless many of their nodes have no rows any more.  What
 * does not stay, and the delta's rows, goes into one new piece.  TIDs, offsets, filter words,
 * adjacency and pivots are written anew.
 *
 * Equal vectors share a node, by the hash of each.  A node of a piece that stays cannot go: its
 * rows go to the node that was there first, and it is left without rows.
 *
 * VACUUM clears TIDs meanwhile.  So TIDs are read again when all else is done, and once more if
 * VACUUM has cleared any since (vacuum_epoch), under the metapage's exclusive lock: what VACUUM
 * clears afterwards it clears in the merged segment, too (am/vacuum.c).  Then one WAL record flips
 * the directory.
 */
#include "merge/merge.h"
#include "service/service.h"
#include "storage/graph_memory.h"
#include "storage/row_hash.h"

#include "access/relation.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* A piece with so many parts of nodes without rows is written anew. */
#define EMPTY_SHARE			5

/* A segment has no more pieces than this; the smallest are written anew, as one. */
#define MOST_PIECES			24
#define LARGE_PIECES		8

/*
 * Nodes below which a context of our own takes longer to open than the CPU takes for all; and below
 * which the service is not asked.  The latter is less than the default of seal_rows, so that deltas
 * are sealed by devices.
 */
#define LEAST_GPU_NODES		20000
#define LEAST_DEVICE_NODES	5000

/* Nodes or rows between two looks for interrupts; and, with STEP_BYTES, of one read. */
#define STEP_ROWS			4096
#define STEP_BYTES			((Size) 4 * 1024 * 1024)


typedef struct Merge
{
	MemoryContext context;
	GgMergeTarget *target;
	const GgMetaPageData *meta;
	GgMergePlan *plan;
	GgMergeReport report;
	void	   *arg;
	int			threads;
	gg_build_params params;
	GgSharedRows *shared;		/* rows lie there; NULL: no device is asked */
	bool		caught;			/* an error beneath the engine, not thrown yet */
	bool		wanted;			/* somebody wants the database for themselves */

	GgTidEntry *tids;			/* of all inputs' rows */
	char	   *rows;			/* the data set: nodes of pieces that stay, then new ones */
	GgMergeFiles files;
	uint64	   *slots;			/* hash and node + 1, by hash; 0: empty */
	uint64		slot_mask;
	uint32		kept_nodes;		/* of pieces that stay */
	uint32		nodes;

	int			nkept;			/* pieces that stay, in the order of their nodes */
	uint32		kept[GG_MAX_PIECES];

	/* the merged segment */
	uint32		id;
	uint32		nrows;
	uint32		empty;			/* nodes without rows */
	uint32	   *offsets;		/* nodes + 1 */
	uint32	   *sources;		/* of each row: its place in tids */
	GgTidEntry *merged_tids;
	int64	   *words;			/* filter words of the merged rows, word by word */
	gg_merge_input graphs;		/* of the inputs; zeros: the graph is built anew */
	gg_graph   *graph;
	gg_graph	own;			/* the same where an engine of this process made it */
	char		builder[32];
	GgPivotEntry *pivots;
	GgNewArray	arrays[6];
	int			narrays;
} Merge;

static void
Report(Merge *merge, GgMergePhase phase, uint64 rows)
{
	if (merge->report != NULL)
		merge->report(merge->arg, phase, rows);
}

/* ---- pieces ------------------------------------------------------------------------------ */

static inline bool
RowIsAlive(const Merge *merge, uint32 row)
{
	return ItemPointerIsValid(&merge->tids[row].tid);
}

static bool
NodeIsAlive(const Merge *merge, const GgMergeInput *input, uint32 node)
{
	if (input->offsets == NULL)
		return RowIsAlive(merge, input->first_row + node);
	for (uint32 row = input->offsets[node]; row < input->offsets[node + 1]; row++)
		if (RowIsAlive(merge, input->first_row + row))
			return true;
	return false;
}

typedef struct PieceSize
{
	uint32		id;
	uint32		nodes;
} PieceSize;

static int
CompareSizes(const void *a, const void *b)
{
	const PieceSize *left = a;
	const PieceSize *right = b;

	return left->nodes > right->nodes ? -1 : left->nodes < right->nodes;
}

static bool
Keeps(const Merge *merge, uint32 piece)
{
	for (int i = 0; i < merge->nkept; i++)
		if (merge->kept[i] == piece)
			return true;
	return false;
}

/* Choose the pieces that stay, in the order in which inputs have them. */
static void
ChooseKept(Merge *merge)
{
	PieceSize	sizes[GG_MAX_PIECES];
	int			others = merge->meta->npieces;
	int			n = 0;

	for (int i = 0; i < merge->plan->ninputs; i++)
	{
		const GgMergeInput *input = &merge->plan->inputs[i];

		for (uint32 p = 0; !input->delta && p < input->vectors.npieces; p++)
		{
			const GgVectorPiece *piece = &input->vectors.pieces[p];
			uint32		dead = 0;

			others--;
			for (uint32 node = piece->first; node < piece->first + piece->nodes; node++)
				dead += !NodeIsAlive(merge, input, node);
			if (dead <= piece->nodes / EMPTY_SHARE)
				sizes[n++] = (PieceSize) {piece->array.segment, piece->nodes};
		}
	}
	qsort(sizes, n, sizeof(PieceSize), CompareSizes);
	if (n >= MOST_PIECES || n + others >= GG_MAX_PIECES - LARGE_PIECES)
		n = Min(n, LARGE_PIECES);
	merge->nkept = n;
	for (int i = 0; i < n; i++)
		merge->kept[i] = sizes[i].id;
}

/* ---- nodes ------------------------------------------------------------------------------- */

/*
 * The node that has the vector of row: an earlier one that is equal, or row itself, which is then
 * in the table.
 */
static uint32
FindNode(Merge *merge, uint32 row)
{
	Size		row_bytes = GgRowBytes(merge->meta);
	const char *data = merge->rows + (Size) row * row_bytes;
	uint64		hash = GgHashRow(data, row_bytes);
	uint64		entry = hash << 32 | (row + 1);

	for (uint64 i = hash & merge->slot_mask;; i = (i + 1) & merge->slot_mask)
	{
		uint64		other = merge->slots[i];

		if (other == 0)
		{
			merge->slots[i] = entry;
			return row;
		}
		if (other >> 32 == entry >> 32 &&
			memcmp(merge->rows + (Size) ((uint32) other - 1) * row_bytes, data, row_bytes) == 0)
			return (uint32) other - 1;
	}
}

/* The nodes of a piece that stays, whose vectors are read to their place. */
static void
AddKeptPiece(Merge *merge, GgMergeInput *input, const GgVectorPiece *piece)
{
	Size		row_bytes = GgRowBytes(merge->meta);

	GgReadVectors(merge->target, merge->meta, input, piece->first, piece->nodes,
				  merge->rows + (Size) merge->nodes * row_bytes);
	for (uint32 i = 0; i < piece->nodes; i++)
	{
		if (i % STEP_ROWS == 0)
			GgCheckInterrupts();
		input->targets[piece->first + i] = FindNode(merge, merge->nodes);
		input->places[piece->first + i] = merge->nodes;
		merge->nodes++;
	}
	merge->kept_nodes = merge->nodes;
	Report(merge, GG_MERGE_READ, merge->nodes);
}

/* The nodes [first, end) of an input that are alive go to the new piece, if they are new. */
static void
AddNewNodes(Merge *merge, GgMergeInput *input, uint32 first, uint32 end)
{
	Size		row_bytes = GgRowBytes(merge->meta);
	uint32		step = Max(1, Min(STEP_ROWS, STEP_BYTES / row_bytes));
	char	   *vectors;

	if (input->delta)
		step = Max(1, step / GgDeltaRowsPerPage(merge->meta)) *
			GgDeltaRowsPerPage(merge->meta);
	vectors = MemoryContextAllocHuge(CurrentMemoryContext, step * row_bytes);
	for (uint32 base = first; base < end; base += step)
	{
		uint32		count = Min(step, end - base);

		GgReadVectors(merge->target, merge->meta, input, base, count, vectors);
		for (uint32 i = 0; i < count; i++)
		{
			uint32		node;

			input->targets[base + i] = input->places[base + i] = GG_NO_NODE;
			if (!NodeIsAlive(merge, input, base + i))
				continue;
			memcpy(merge->rows + (Size) merge->nodes * row_bytes, vectors + i * row_bytes,
				   row_bytes);
			node = FindNode(merge, merge->nodes);
			input->targets[base + i] = node;
			if (node == merge->nodes)
				input->places[base + i] = merge->nodes++;
		}
		Report(merge, GG_MERGE_READ, merge->nodes);
	}
	pfree(vectors);
}

/* Nodes that the merged segment can have at most. */
static uint64
CountNodes(const Merge *merge)
{
	uint64		n = 0;

	for (int i = 0; i < merge->plan->ninputs; i++)
		n += merge->plan->inputs[i].nodes;
	return n;
}

/*
 * One more row than nodes: a duplicate is seen to be one when it is there.  What a device may be
 * asked for lies in memory that it sees.
 */
static void
AllocateRows(Merge *merge, uint32 most)
{
	const GgMetaPageData *meta = merge->meta;

	if (most >= LEAST_DEVICE_NODES && gg_engine_setting != GG_ENGINE_CPU && GgGraphDeviceIsUp() &&
		most <= GgNodesInMemory(meta, &merge->params, 0))
		merge->shared = GgShareRows(most, GgRowBytes(meta), meta->graph_degree);
	/* one more row than nodes: a duplicate is seen to be one when it is there */
	merge->rows = merge->shared != NULL ? merge->shared->rows :
		GgTakeRows(&merge->files, meta, &merge->params, most + 1, merge->target->sliced);
}

static void
CollectNodes(Merge *merge)
{
	uint64		most = CountNodes(merge);
	uint64		nslots = 1024;

	if (most > GG_MAX_NODES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a gpugraph segment would have more than %u nodes", GG_MAX_NODES)));
	while (nslots < 2 * most)
		nslots *= 2;
	merge->slot_mask = nslots - 1;
	merge->slots = MemoryContextAllocExtended(CurrentMemoryContext, nslots * sizeof(uint64),
											  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	AllocateRows(merge, (uint32) most);

	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < merge->plan->ninputs; i++)
		{
			GgMergeInput *input = &merge->plan->inputs[i];

			if (pass == 0)
			{
				input->targets = MemoryContextAllocHuge(CurrentMemoryContext,
														(Size) input->nodes * sizeof(uint32));
				input->places = MemoryContextAllocHuge(CurrentMemoryContext,
													   (Size) input->nodes * sizeof(uint32));
			}
			for (uint32 p = 0; p < input->vectors.npieces; p++)
			{
				const GgVectorPiece *piece = &input->vectors.pieces[p];
				bool		kept = Keeps(merge, piece->array.segment);

				if (kept && pass == 0)
					AddKeptPiece(merge, input, piece);
				else if (!kept && pass == 1)
					AddNewNodes(merge, input, piece->first, piece->first + piece->nodes);
			}
			if (input->delta && pass == 1)
				AddNewNodes(merge, input, 0, input->nodes);
		}
	pfree(merge->slots);
	merge->slots = NULL;
}

/* ---- rows -------------------------------------------------------------------------------- */

/* Run body for each row that is alive, with the node that it has in the merged segment. */
#define FOREACH_ROW(merge, row, node, body) \
	for (int i_ = 0; i_ < (merge)->plan->ninputs; i_++) \
	{ \
		const GgMergeInput *input_ = &(merge)->plan->inputs[i_]; \
		for (uint32 old_ = 0; old_ < input_->nodes; old_++) \
		{ \
			uint32		begin_ = input_->offsets == NULL ? old_ : input_->offsets[old_]; \
			uint32		end_ = input_->offsets == NULL ? old_ + 1 : input_->offsets[old_ + 1]; \
			uint32		node = input_->targets[old_]; \
			for (uint32 row = input_->first_row + begin_; row < input_->first_row + end_; row++) \
				if (RowIsAlive(merge, row)) \
					body \
		} \
	}

/* Sort rows by node: offsets and sources. */
static void
SortRows(Merge *merge)
{
	uint32	   *offsets = MemoryContextAllocExtended(CurrentMemoryContext,
													 ((Size) merge->nodes + 2) * sizeof(uint32),
													 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	/* offsets[node + 2] counts; then offsets[node + 1] is where the node's next row goes */
	FOREACH_ROW(merge, row, node, offsets[node + 2]++;)
	for (uint32 node = 0; node < merge->nodes; node++)
	{
		merge->empty += offsets[node + 2] == 0;
		offsets[node + 2] += offsets[node + 1];
	}
	merge->nrows = offsets[merge->nodes + 1];
	merge->sources = MemoryContextAllocHuge(CurrentMemoryContext,
											Max(merge->nrows, 1) * sizeof(uint32));
	FOREACH_ROW(merge, row, node, merge->sources[offsets[node + 1]++] = row;)
	merge->offsets = offsets;
}

/* Does every node have one row, its own? */
static bool
IsPlain(const Merge *merge)
{
	return merge->empty == 0 && merge->nrows == merge->nodes;
}

/* ---- the graph --------------------------------------------------------------------------- */

static bool
EngineCancelled(void *ctx)
{
	Merge	   *merge = ctx;
	GgMergeTarget *target = merge->target;
	uint32		holdoff = InterruptHoldoffCount;

	if (GgServeInterrupts(&merge->caught))
		return true;
	if (!target->sliced)
		return false;
	/* nothing may end the process while the engine's threads run */
	HOLD_INTERRUPTS();
	PG_TRY();
	{
		/* which looks now and then only */
		merge->wanted = merge->wanted || GgDatabaseIsWanted();
		if (target->meanwhile != NULL && !merge->wanted)
		{
			CommitTransactionCommand();
			MemoryContextSwitchTo(merge->context);
			target->meanwhile(target);
			StartTransactionCommand();
		}
	}
	PG_CATCH();
	{
		merge->caught = true;
	}
	PG_END_TRY();
	InterruptHoldoffCount = holdoff;
	return merge->caught || merge->wanted;
}

static void
EngineProgress(void *ctx, gg_phase phase, uint64_t done, uint64_t total)
{
	Merge	   *merge = ctx;

	Report(merge, GG_MERGE_GRAPH, done);
}

static void *
TakeScratch(void *ctx, uint64_t bytes)
{
	Merge	   *merge = ctx;

	return GgTakeScratch(&merge->files.scratch, bytes, &merge->caught);
}

static void
FreeGraph(void *arg)
{
	gg_graph_free((gg_graph *) arg);
}

/*
 * Have an engine of this process make the graph or, engine NULL, a device of the service.  A worker
 * has a transaction meanwhile, which holds no lock and no snapshot: looking for who wants the
 * database needs one.
 */
static gg_status
RunEngine(Merge *merge, const gg_engine *engine)
{
	MemoryContext context = CurrentMemoryContext;
	const bool	merges = merge->graphs.lists != NULL;
	gg_dataset	data = {
		.rows = merge->rows, .n = merge->nodes, .dim = merge->meta->dimensions,
		.element = merge->meta->element, .metric = merge->meta->metric
	};
	gg_control	control = {
		.cancelled = EngineCancelled, .progress = EngineProgress, .ctx = merge,
		.threads = merge->threads, .memory = merge->files.memory
	};
	gg_status	status;
	int			device = 0;

	if (merge->files.rows.start != NULL)
		control.scratch = TakeScratch;

	Report(merge, GG_MERGE_GRAPH, 0);
	if (engine != NULL)
		GgOpenDevice(engine);
	if (merge->target->sliced)
		StartTransactionCommand();
	if (engine == NULL)
		status = GgBuildOnDevice(merge->shared, &data, &merge->params, merges, &control,
								 merge->graph, &device);
	else if (merges && GgEngineMergesGraphs(engine))
		status = engine->merge(&data, &merge->graphs, &merge->params, &control, &merge->own, NULL);
	else
		status = engine->build(&data, &merge->params, &control, &merge->own, NULL);
	if (engine != NULL)
	{
		engine->release();
		*merge->graph = merge->own;
	}
	GgThrowInterrupts(merge->caught);
	if (merge->wanted)
		GgGiveWay();
	if (merge->target->sliced)
		CommitTransactionCommand();
	MemoryContextSwitchTo(context);
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
KnowGraphs(Merge *merge)
{
	Size		degree = merge->meta->graph_degree;
	uint8	   *parts;
	uint32	   *lists;

	if (merge->graphs.lists != NULL ||
		!GgMergesGraphs(merge->meta, merge->plan, merge->nodes) ||
		merge->nodes > GgNodesInMemory(merge->meta, &merge->params, GgKnownBytes(merge->meta)))
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

/* By a device of the service.  False: the CPU has to. */
static bool
BuiltByDevice(Merge *merge)
{
	gg_status	status;

	if (merge->shared == NULL || merge->nodes < LEAST_DEVICE_NODES)
		return false;
	if (GgEngineMergesGraphs(NULL))
		KnowGraphs(merge);
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

/* By an engine of this process: a GPU for VACUUM and gpugraph_merge(), where no service has it. */
static void
BuildHere(Merge *merge)
{
	const gg_engine *engine = &gg_cpu_engine;
	gg_status	status;

	if (merge->shared == NULL && !merge->target->sliced && merge->nodes >= LEAST_GPU_NODES &&
		!GgGraphDeviceIsUp())
		engine = GgAvailableEngine();
	if (GgEngineMergesGraphs(engine))
		KnowGraphs(merge);
	status = RunEngine(merge, engine);
	if (engine != &gg_cpu_engine && status.code != GG_OK && status.code != GG_ECANCELED)
	{
		KnowGraphs(merge);
		status = RunEngine(merge, &gg_cpu_engine);
	}
	if (status.code != GG_OK)
		GgReportStatus(&status, "merging segments of a gpugraph index");
}

static void
BuildGraph(Merge *merge)
{
	MemoryContextCallback *callback = palloc(sizeof(MemoryContextCallback));

	merge->graph = palloc0(sizeof(gg_graph));
	callback->func = FreeGraph;
	callback->arg = &merge->own;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);

	if (!BuiltByDevice(merge))
		BuildHere(merge);
	if (merge->graphs.lists != NULL &&
		(merge->shared == NULL || merge->graphs.lists != merge->shared->lists))
	{
		pfree(unconstify(uint8 *, merge->graphs.parts));
		pfree(unconstify(uint32 *, merge->graphs.lists));
	}

	merge->pivots = palloc_extended(merge->graph->npivots * sizeof(GgPivotEntry), MCXT_ALLOC_HUGE);
	for (uint32 i = 0; i < merge->graph->npivots; i++)
	{
		merge->pivots[i].node = merge->graph->pivots[i];
		memcpy(merge->pivots[i].neighbors,
			   merge->graph->pivot_adjacency + (Size) i * GG_PIVOT_DEGREE,
			   sizeof(merge->pivots[i].neighbors));
	}
}

/* ---- pages ------------------------------------------------------------------------------- */

/* A number for the merged segment and for its new piece. */
static void
TakeId(Merge *merge)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgMetaPageData *head;
	Buffer		metabuf;

	GgBeginSlice(merge->target);
	metabuf = GgLockMeta(merge->target->index, BUFFER_LOCK_EXCLUSIVE, &head);
	GgCopyMeta(merge->target->index, metabuf, meta);
	if (!merge->target->within)
		(void) GgFreeTaken(meta);
	merge->id = meta->next_id++;
	GgStoreMeta(merge->target->index, merge->target->heap, metabuf, meta);
	GgEndSlice(merge->target);
	pfree(meta);
}

/* Take blocks for an array and write it, in slices. */
static GgNewArray *
WriteArray(Merge *merge, GgKind kind, const void *data, uint64 bytes)
{
	GgNewArray *array = &merge->arrays[merge->narrays++];

	GgBeginArray(array, merge->id, kind, data, bytes);
	while (array->written < array->npages)
	{
		uint32		count;

		GgBeginSlice(merge->target);
		if (array->written == array->taken)
			GgTakeForArray(merge->target->index, merge->target->heap, array);
		count = Min(array->taken - array->written, GG_WRITE_PAGES);
		GgWritePages(merge->target->index, merge->meta->instance, array, array->written, count);
		array->written += count;
		GgEndSlice(merge->target);
		Report(merge, GG_MERGE_WRITE, array->written);
	}
	return array;
}

/*
 * The filter words of the merged rows.  They are gathered word by word, each over what has been
 * gathered already, so that little more than the inputs' words are in memory.
 */
static void
WriteFilters(Merge *merge)
{
	uint32		nwords = merge->meta->filter_words;
	Size		nrows = merge->nrows;
	Size		stride = merge->plan->rows;
	int64	   *words;
	int64	   *gathered;

	if (nwords == 0)
		return;
	/* kept: a device gets them, too */
	words = MemoryContextAllocHuge(CurrentMemoryContext, nwords * stride * sizeof(int64));
	merge->words = words;
	gathered = MemoryContextAllocHuge(CurrentMemoryContext, nrows * sizeof(int64));
	for (int i = 0; i < merge->plan->ninputs; i++)
		GgReadWords(merge->target, merge->meta, &merge->plan->inputs[i], words, stride);
	for (uint32 w = 0; w < nwords; w++)
	{
		GgCheckInterrupts();
		for (Size row = 0; row < nrows; row++)
			gathered[row] = words[w * stride + merge->sources[row]];
		memcpy(words + w * nrows, gathered, nrows * sizeof(int64));
	}
	WriteArray(merge, GG_KIND_FILTERS, words, nwords * nrows * sizeof(int64));
	pfree(gathered);
}

static void
WriteArrays(Merge *merge)
{
	const GgMetaPageData *meta = merge->meta;
	Size		row_bytes = GgRowBytes(meta);

	if (merge->nodes > merge->kept_nodes)
		WriteArray(merge, GG_KIND_VECTORS, merge->rows + (Size) merge->kept_nodes * row_bytes,
				   (uint64) (merge->nodes - merge->kept_nodes) * row_bytes);
	WriteArray(merge, GG_KIND_ADJACENCY, merge->graph->adjacency,
			   (uint64) merge->nodes * meta->graph_degree * sizeof(uint32));
	WriteArray(merge, GG_KIND_PIVOTS, merge->pivots,
			   (uint64) merge->graph->npivots * sizeof(GgPivotEntry));
	if (!IsPlain(merge))
		WriteArray(merge, GG_KIND_OFFSETS, merge->offsets,
				   ((uint64) merge->nodes + 1) * sizeof(uint32));
	WriteFilters(merge);
}

/* Read all TIDs as they are now. */
static void
ReadTids(Merge *merge)
{
	for (int i = 0; i < merge->plan->ninputs; i++)
		GgReadTids(merge->target, merge->meta, &merge->plan->inputs[i], merge->tids);
}

/* Bring the merged TIDs up to date, and write the pages that change, unless array is NULL. */
static void
UpdateTids(Merge *merge, const GgNewArray *array)
{
	for (uint32 base = 0; base < merge->nrows; base += GG_TIDS_PER_PAGE)
	{
		uint32		count = Min(GG_TIDS_PER_PAGE, merge->nrows - base);
		bool		changed = false;

		for (uint32 row = base; row < base + count; row++)
		{
			const GgTidEntry *now = &merge->tids[merge->sources[row]];

			if (memcmp(&merge->merged_tids[row], now, sizeof(GgTidEntry)) == 0)
				continue;
			merge->merged_tids[row] = *now;
			changed = true;
		}
		if (!changed || array == NULL)
			continue;
		GgBeginSlice(merge->target);
		GgWritePages(merge->target->index, merge->meta->instance, array, base / GG_TIDS_PER_PAGE,
					 1);
		GgEndSlice(merge->target);
	}
}

/* ---- the flip ---------------------------------------------------------------------------- */

/* Take an input out of the directory.  Pieces that stay are given to the merged segment after. */
static void
RemoveInput(Merge *merge, GgMetaPageData *meta, const GgMergeInput *input, uint64 xid)
{
	if (input->delta)
	{
		uint32		end = input->end_page;
		uint32		dead = 0;

		for (uint32 row = input->first_row; row < input->first_row + input->rows; row++)
			dead += !RowIsAlive(merge, row);
		if (end > meta->delta_first)
			GgFreeDelta(meta, meta->delta_first, end - meta->delta_first, xid);
		meta->delta_dead -= Min(meta->delta_dead, dead);
		return;
	}
	GgFreeGraph(meta, input->segment.id, xid);
	for (uint32 p = 0; p < input->vectors.npieces; p++)
		if (!Keeps(merge, input->vectors.pieces[p].array.segment))
			GgFreePiece(meta, input->vectors.pieces[p].array.segment, xid);
	for (int i = 0; i < meta->nsegments; i++)
		if (meta->segments[i].id == input->segment.id)
		{
			memmove(&meta->segments[i], &meta->segments[i + 1],
					(meta->nsegments - i - 1) * sizeof(GgSegment));
			meta->nsegments--;
			break;
		}
}

/* Move a piece to the end of the pieces, as one of the merged segment. */
static void
GivePiece(Merge *merge, GgMetaPageData *meta, uint32 id)
{
	for (int i = 0; i < meta->npieces; i++)
	{
		GgPiece		piece = meta->pieces[i];

		if (piece.id != id)
			continue;
		memmove(&meta->pieces[i], &meta->pieces[i + 1],
				(meta->npieces - i - 1) * sizeof(GgPiece));
		piece.segment = merge->id;
		meta->pieces[meta->npieces - 1] = piece;
		return;
	}
}

static void
AddMerged(Merge *merge, GgMetaPageData *meta)
{
	GgSegment  *segment = &meta->segments[meta->nsegments++];

	memset(segment, 0, sizeof(*segment));
	segment->id = merge->id;
	segment->nodes = merge->nodes;
	segment->rows = merge->nrows;
	segment->npivots = merge->graph->npivots;
	segment->empty = merge->empty;
	segment->algorithm = merge->params.algorithm;
	if (!IsPlain(merge))
		segment->flags = GG_SEGMENT_OFFSETS;
	for (uint32 row = 0; row < merge->nrows; row++)
		segment->dead += !ItemPointerIsValid(&merge->merged_tids[row].tid);

	/* in the order in which CollectNodes() took them */
	for (int i = 0; i < merge->plan->ninputs; i++)
	{
		const GgMergeInput *input = &merge->plan->inputs[i];

		for (uint32 p = 0; p < input->vectors.npieces; p++)
			if (Keeps(merge, input->vectors.pieces[p].array.segment))
				GivePiece(merge, meta, input->vectors.pieces[p].array.segment);
	}
	if (merge->nodes > merge->kept_nodes)
	{
		GgPiece    *piece = &meta->pieces[meta->npieces++];

		memset(piece, 0, sizeof(*piece));
		piece->id = piece->segment = merge->id;
		piece->nodes = merge->nodes - merge->kept_nodes;
	}
	for (int i = 0; i < merge->narrays; i++)
		GgListArray(meta, &merge->arrays[i]);
}

/* Put the merged segment in its inputs' place. */
static void
ReplaceInputs(Merge *merge, GgMetaPageData *meta, uint64 xid)
{
	GgForgetTaken(meta, merge->id);
	for (int i = 0; i < merge->plan->ninputs; i++)
		RemoveInput(merge, meta, &merge->plan->inputs[i], xid);
	if (merge->nodes > 0 &&
		(meta->nsegments >= GG_MAX_SEGMENTS || meta->npieces >= GG_MAX_PIECES))
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("gpugraph index would have more than %d segments or %d pieces",
						GG_MAX_SEGMENTS, GG_MAX_PIECES),
				 errhint("Increase maintenance_work_mem and call gpugraph_merge().")));
	if (merge->nodes > 0)
		AddMerged(merge, meta);
	meta->generation++;
}

static void
CheckInputs(Merge *merge, const GgMetaPageData *meta)
{
	for (int i = 0; i < merge->plan->ninputs; i++)
		if (!merge->plan->inputs[i].delta &&
			GgFindSegment(meta, merge->plan->inputs[i].segment.id) == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("a segment was given back during a merge")));
}

/* How long a load of the index that is under way is waited for. */
#define BUSY_MS				2000
#define BUSY_LOOK_MS		20

/*
 * Where a device has the index, bring it the merged segment before the flip, so that no query is
 * left to the CPU.  In a background worker the index is not locked while that takes its time.
 */
static void
BringToDevice(Merge *merge)
{
	GgMergeTarget *target = merge->target;
	MemoryContext context = CurrentMemoryContext;
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	uint64		nodes = merge->nodes;
	GgLoad	   *load;
	bool		busy;
	uint32		list;

	for (int waited_ms = 0;; waited_ms += BUSY_LOOK_MS)
	{
		GgBeginSlice(target);
		GgReadMeta(target->index, meta);
		CheckInputs(merge, meta);
		ReplaceInputs(merge, meta, 0);
		meta->delta_pages = 0;
		load = GgLoadAhead(target->index, meta, &busy);
		if (load != NULL || !busy || waited_ms >= BUSY_MS)
			break;
		GgEndSlice(target);
		pg_usleep(BUSY_LOOK_MS * 1000L);
	}
	list = meta->nsegments - 1;
	if (target->sliced)
	{
		relation_close(target->index, RowExclusiveLock);
		relation_close(target->heap, RowExclusiveLock);
		target->index = target->heap = NULL;
		/* VACUUM may remove what is deleted meanwhile */
		InvalidateCatalogSnapshot();
	}
	if (load != NULL && GgLoadOpen(load))
	{
		GgLoadWrite(load, list, GG_PART_ROWS, 0, merge->rows, nodes * GgRowBytes(meta));
		GgLoadWrite(load, list, GG_PART_ADJACENCY, 0, merge->graph->adjacency,
					nodes * meta->graph_degree * sizeof(uint32));
		GgLoadWrite(load, list, GG_PART_PIVOTS, 0, merge->pivots,
					(uint64) merge->graph->npivots * sizeof(GgPivotEntry));
		GgLoadWrite(load, list, GG_PART_TIDS, 0, merge->merged_tids,
					(uint64) merge->nrows * sizeof(GgTidEntry));
		GgLoadWrite(load, list, GG_PART_FILTERS, 0, merge->words,
					(uint64) merge->nrows * GgFilterBytes(meta));
		if (!IsPlain(merge))
			GgLoadWrite(load, list, GG_PART_OFFSETS, 0, merge->offsets,
						(nodes + 1) * sizeof(uint32));
		(void) GgLoadEnd(load);
	}
	if (target->sliced)
		CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	pfree(meta);
}

/*
 * Flip the directory.  False, and nothing is done, where VACUUM has
 * cleared TIDs since epoch was read.
 */
static bool
Flip(Merge *merge, uint64 epoch)
{
	Relation	index = merge->target->index;
	FullTransactionId own;
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgMetaPageData *head;
	Buffer		metabuf;
	uint64		xid;

	own = IsInParallelMode() ? InvalidFullTransactionId : GetTopFullTransactionId();
	metabuf = GgLockMeta(index, BUFFER_LOCK_EXCLUSIVE, &head);
	if (head->vacuum_epoch != epoch)
	{
		UnlockReleaseBuffer(metabuf);
		return false;
	}
	GgCopyMeta(index, metabuf, meta);
	CheckInputs(merge, meta);
	xid = GgParkingXid(own);
	ReplaceInputs(merge, meta, xid);
	GgMergeFree(meta);
	GgStoreMeta(index, merge->target->heap, metabuf, meta);
	GgNoteFlip(index, meta);
	pfree(meta);
	return true;
}

/* Write TIDs as they are by now, and flip. */
static void
Finish(Merge *merge)
{
	GgNewArray *array = NULL;
	bool		done = false;

	merge->merged_tids = MemoryContextAllocExtended(CurrentMemoryContext,
													Max(merge->nrows, 1) * sizeof(GgTidEntry),
													MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	while (!done)
	{
		GgMetaPageData *head;
		Buffer		metabuf;
		uint64		epoch;

		GgBeginSlice(merge->target);
		metabuf = GgLockMeta(merge->target->index, BUFFER_LOCK_SHARE, &head);
		epoch = head->vacuum_epoch;
		UnlockReleaseBuffer(metabuf);
		GgEndSlice(merge->target);

		ReadTids(merge);
		UpdateTids(merge, array);
		if (array == NULL && merge->nrows > 0)
		{
			array = WriteArray(merge, GG_KIND_TIDS, merge->merged_tids,
							   (uint64) merge->nrows * sizeof(GgTidEntry));
			BringToDevice(merge);
		}
		GgBeginSlice(merge->target);
		done = Flip(merge, epoch);
		GgEndSlice(merge->target);
	}
}

/* ---- all of it --------------------------------------------------------------------------- */

/* What is merged, and by what the graph is built. */
static void
PlanMerge(Merge *merge, const GgMergeChoice *choice)
{
	GgOptions	options;

	GgBeginSlice(merge->target);
	GgGetOptions(merge->target->index, &options);
	GgGetBuildParams(merge->meta, &options, &merge->params);
	GgEndSlice(merge->target);
	merge->plan = palloc0(sizeof(GgMergePlan));
	for (int i = 0; i < choice->nsegments; i++)
		GgAddInput(merge->plan, merge->meta, GgFindSegment(merge->meta, choice->segments[i]));
	if (choice->delta)
		GgAddDelta(merge->plan, merge->meta, choice->delta_rows);
	merge->tids = MemoryContextAllocHuge(CurrentMemoryContext,
										 Max(merge->plan->rows, 1) * sizeof(GgTidEntry));
}

void
GgMergeSegments(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeChoice *choice,
				int threads, GgMergeReport report, void *arg, GgMergeResult *result)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph merge",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Merge	   *merge = palloc0(sizeof(Merge));
	instr_time	start,
				now;

	INSTR_TIME_SET_CURRENT(start);
	merge->context = context;
	merge->target = target;
	merge->meta = meta;
	merge->report = report;
	merge->arg = arg;
	merge->threads = threads;
	PlanMerge(merge, choice);
	ReadTids(merge);
	for (int i = 0; i < merge->plan->ninputs; i++)
		GgReadOffsets(target, meta, &merge->plan->inputs[i]);
	ChooseKept(merge);
	CollectNodes(merge);
	SortRows(merge);
	/* nodes of kept pieces alone, and all of them dead by now */
	if (merge->nrows == 0)
		merge->nodes = merge->nkept = 0;
	TakeId(merge);
	if (merge->nodes > 0)
	{
		BuildGraph(merge);
		WriteArrays(merge);
	}
	Finish(merge);
	GgRemoveFiles(&merge->files);

	memset(result, 0, sizeof(*result));
	result->inputs = merge->plan->ninputs;
	result->nodes = merge->nodes;
	result->rows = merge->nrows;
	for (int i = 0; i < merge->narrays; i++)
		result->bytes += (uint64) merge->arrays[i].npages * BLCKSZ;
	strlcpy(result->builder, merge->builder[0] != '\0' ? merge->builder : "nobody",
			sizeof(result->builder));
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	result->seconds = INSTR_TIME_GET_DOUBLE(now);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}
