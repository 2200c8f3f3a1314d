/*
 * build.c
 *		CREATE INDEX and REINDEX.
 *
 * Phases: the heap is scanned and its vectors are collected in memory as the rows of a data set;
 * equal rows are folded into one node; the engine makes the graph; vectors, adjacency, TIDs and
 * pivots are written as one segment behind the metapage.  Everything is written through shared (or
 * local) buffers and WAL-logged at the end in one pass.  Nobody else can see the relation before
 * the transaction commits, so no locks are taken beyond the buffers'.
 *
 * Memory: rows, TIDs and what the engine says it needs must fit in maintenance_work_mem.  Where they
 * do not, what was collected becomes a segment of its own and the scan goes on: the index then has
 * several segments, each as good, but a search walks each.  That is announced with a NOTICE.
 */
#include "gpugraph.h"

#include "access/tableam.h"
#include "access/xloginsert.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "optimizer/plancat.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "utils/backend_progress.h"
#include "utils/memutils.h"

/* A build never makes more segments than this, so that merges find room in the directory. */
#define MAX_BUILD_SEGMENTS	16

/* A segment is never smaller than this for want of memory: its graph would not be worth having. */
#define MIN_SEGMENT_ROWS	1000

/* Words of a row that its hash reads, spread over the row. */
#define HASH_WORDS			64

/* Subphases of CREATE INDEX; the engine's gg_phase values follow GRAPH. */
typedef enum BuildPhase
{
	PHASE_LOAD = PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE + 1,
	PHASE_GRAPH,				/* + gg_phase */
	PHASE_WRITE = PHASE_GRAPH + GG_PHASE_CONNECT + 1,
	PHASE_WAL
} BuildPhase;

typedef struct BuildState
{
	Relation	heap;
	Relation	index;
	IndexInfo  *indexInfo;
	ForkNumber	forknum;
	const GgOpclass *opclass;
	const gg_engine *engine;
	gg_build_params params;
	gg_control	control;
	GgMetaPageData *meta;
	GgOptions	options;

	MemoryContext tuple_context;	/* reset with every row */
	MemoryContext row_context;	/* rows and tids */

	/* what was collected for the next segment */
	char	   *rows;
	ItemPointerData *tids;
	uint32		n;
	uint32		capacity;
	uint32		most;			/* rows that fit in memory; 0 before the first */
	bool		announced;
	double		expected;		/* rows in the table, as far as is known */

	double		indtuples;
	int64		pages_done;		/* of the segment being written */
	double		graph_s,
				write_s;
} BuildState;

char *
ggbuildphasename(int64 phase)
{
	switch (phase)
	{
		case PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE:
			return "initializing";
		case PHASE_LOAD:
			return "loading vectors";
		case PHASE_GRAPH + GG_PHASE_KNN_INIT:
			return "finding first neighbors";
		case PHASE_GRAPH + GG_PHASE_KNN_DESCENT:
			return "refining neighbors";
		case PHASE_GRAPH + GG_PHASE_OPTIMIZE:
			return "reordering the graph";
		case PHASE_GRAPH + GG_PHASE_CONNECT:
			return "connecting the graph";
		case PHASE_WRITE:
			return "writing index";
		case PHASE_WAL:
			return "writing WAL";
		default:
			return NULL;
	}
}

/* Enter a phase of so many units, shown as tuples. */
static void
EnterPhase(int phase, int64 total)
{
	const int	columns[] = {
		PROGRESS_CREATEIDX_SUBPHASE, PROGRESS_CREATEIDX_TUPLES_TOTAL, PROGRESS_CREATEIDX_TUPLES_DONE
	};
	const int64 values[] = {phase, total, 0};

	pgstat_progress_update_multi_param(3, columns, values);
}

static double
SecondsSince(instr_time start)
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
	return InterruptPending && (QueryCancelPending || ProcDiePending);
}

static void
EngineProgress(void *ctx, gg_phase phase, uint64_t done, uint64_t total)
{
	const int	columns[] = {
		PROGRESS_CREATEIDX_SUBPHASE, PROGRESS_CREATEIDX_TUPLES_TOTAL, PROGRESS_CREATEIDX_TUPLES_DONE
	};
	const int64 values[] = {PHASE_GRAPH + phase, (int64) total, (int64) done};

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
	((const gg_engine *) arg)->release();
}

/* ---- memory ------------------------------------------------------------ */

/* Bytes that a segment of n rows takes at its peak. */
static uint64
SegmentBytes(BuildState *state, uint32 n)
{
	gg_dataset	data;
	gg_bytes	bytes;
	gg_status	status;

	data.rows = NULL;
	data.n = n;
	data.dim = state->meta->dimensions;
	data.element = state->meta->element;
	data.metric = state->meta->metric;
	status = state->engine->build_bytes(&data, &state->params, &state->control, &bytes);
	if (status.code != GG_OK)
		GgReportStatus(&status, "estimating the memory of an index build");
	return bytes.host + (uint64) n * (GgRowBytes(state->meta) + sizeof(ItemPointerData));
}

static uint32
RowsThatFit(BuildState *state)
{
	uint64		budget = (uint64) maintenance_work_mem * 1024;
	uint32		low = 1,
				high = GG_MAX_NODES;

	while (low < high)
	{
		uint32		mid = low + (high - low + 1) / 2;

		if (SegmentBytes(state, mid) <= budget)
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}

/*
 * Decide how many rows a segment may have, once the dimensions are known.  Where memory would make
 * too many or too small segments, they are made larger than memory allows, and that is said.
 */
static void
PlanSegments(BuildState *state)
{
	uint32		fit = RowsThatFit(state);
	uint32		most = fit;

	most = Max(most, MIN_SEGMENT_ROWS);
	most = Max(most, (uint32) Min(state->expected / MAX_BUILD_SEGMENTS + 1, GG_MAX_NODES));
	state->most = most;
}

/* Said once a build, when a segment is full and the table goes on. */
static void
AnnounceSegments(BuildState *state)
{
	uint64		needed = SegmentBytes(state, (uint32) Min(Max(state->expected, state->n), GG_MAX_NODES));

	if (state->announced)
		return;
	state->announced = true;
	ereport(NOTICE,
			(errmsg("gpugraph index no longer fits into maintenance_work_mem after %u rows", state->n),
			 errdetail("The index is built in several segments, and every search visits each."),
			 errhint("Increase maintenance_work_mem to " UINT64_FORMAT " MB for a single segment.",
					 needed / (1024 * 1024) + 1)));
}

/* Said where a segment takes more memory than it should (see PlanSegments). */
static void
AnnounceMemory(BuildState *state)
{
	uint64		needed = SegmentBytes(state, state->n);

	if (needed <= (uint64) maintenance_work_mem * 1024)
		return;
	ereport(NOTICE,
			(errmsg("gpugraph index build takes more memory than maintenance_work_mem"),
			 errdetail("A segment of %u rows takes " UINT64_FORMAT " MB; smaller ones would be too many, or too small for a graph.",
					   state->n, needed / (1024 * 1024) + 1),
			 errhint("Increase maintenance_work_mem.")));
}

static void
GrowRows(BuildState *state)
{
	Size		row_bytes = GgRowBytes(state->meta);
	uint32		capacity = Max(1024, state->capacity + state->capacity / 2);

	if (state->rows == NULL)
	{
		/* the table's size is a good first guess */
		if (state->expected > capacity)
			capacity = (uint32) Min(state->expected * 1.02, state->most);
		capacity = Min(capacity, state->most);
		state->rows = MemoryContextAllocHuge(state->row_context, (Size) capacity * row_bytes);
		state->tids = MemoryContextAllocHuge(state->row_context, (Size) capacity * sizeof(ItemPointerData));
	}
	else
	{
		capacity = Max(Min(capacity, state->most), state->n + 1);
		state->rows = repalloc_huge(state->rows, (Size) capacity * row_bytes);
		state->tids = repalloc_huge(state->tids, (Size) capacity * sizeof(ItemPointerData));
	}
	state->capacity = capacity;
}

/* ---- equal rows -------------------------------------------------------- */

typedef struct RowHash
{
	uint64		hash;
	uint32		row;
} RowHash;

/*
 * A hash of some words of the row.  Equal rows have equal hashes; unequal ones with equal hashes are
 * told apart by comparing them, so reading all of a long row would gain nothing.
 */
static uint64
HashRow(const char *row, Size row_bytes)
{
	Size		words = row_bytes / sizeof(uint32);
	Size		step = Max(1, words / HASH_WORDS);
	uint64		hash = 0;
	uint32		word;

	for (Size i = 0; i < words; i += step)
	{
		memcpy(&word, row + i * sizeof(uint32), sizeof(word));
		hash = (hash ^ word) * UINT64CONST(0x9E3779B97F4A7C15);
		hash ^= hash >> 29;
	}
	if (row_bytes % sizeof(uint32))
	{
		uint16		last;

		memcpy(&last, row + row_bytes - sizeof(last), sizeof(last));
		hash = (hash ^ last) * UINT64CONST(0x9E3779B97F4A7C15);
	}
	return hash;
}

typedef struct CompareRowsArg
{
	const char *rows;
	Size		row_bytes;
} CompareRowsArg;

/* by hash, then contents, then row number */
static int
CompareRowHashes(const void *a, const void *b, void *arg)
{
	const RowHash *x = a;
	const RowHash *y = b;
	const CompareRowsArg *rows = arg;
	int			order;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	order = memcmp(rows->rows + x->row * rows->row_bytes, rows->rows + y->row * rows->row_bytes, rows->row_bytes);
	if (order != 0)
		return order;
	return x->row < y->row ? -1 : x->row > y->row;
}

/*
 * Fold equal rows into one node, in place.  A graph over copies falls apart: the nearest neighbors of a copy
 * are all copies.  Afterwards state->rows holds the nodes, in the order in which they first appeared,
 * and state->tids the rows, node after node.  Returns the number of nodes; *offsets is NULL when all rows
 * differ, else nodes + 1 numbers of first rows.
 */
static uint32
FoldEqualRows(BuildState *state, uint32 **offsets)
{
	uint32		n = state->n;
	Size		row_bytes = GgRowBytes(state->meta);
	CompareRowsArg arg = {state->rows, row_bytes};
	RowHash    *hashes = MemoryContextAllocHuge(CurrentMemoryContext, Max(n, 1) * sizeof(RowHash));
	uint32	   *first;			/* of each row: the first row equal to it */
	uint32	   *start;
	ItemPointerData *tids;
	uint32		nodes = n;

	*offsets = NULL;
	for (uint32 i = 0; i < n; i++)
	{
		hashes[i].hash = HashRow(state->rows + (Size) i * row_bytes, row_bytes);
		hashes[i].row = i;
	}
	CHECK_FOR_INTERRUPTS();
	qsort_arg(hashes, n, sizeof(RowHash), CompareRowHashes, &arg);
	CHECK_FOR_INTERRUPTS();

	first = MemoryContextAllocHuge(CurrentMemoryContext, Max(n, 1) * sizeof(uint32));
	for (uint32 i = 0; i < n; i++)
	{
		if (i > 0 && hashes[i].hash == hashes[i - 1].hash &&
			memcmp(state->rows + (Size) hashes[i].row * row_bytes,
				   state->rows + (Size) hashes[i - 1].row * row_bytes, row_bytes) == 0)
		{
			first[hashes[i].row] = first[hashes[i - 1].row];
			nodes--;
		}
		else
			first[hashes[i].row] = hashes[i].row;
	}
	pfree(hashes);
	if (nodes == n)
	{
		pfree(first);
		return n;
	}

	/* number the nodes; first[] becomes the node of each row, start[] counts rows a node */
	start = MemoryContextAllocExtended(CurrentMemoryContext, ((Size) nodes + 1) * sizeof(uint32),
									   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	nodes = 0;
	for (uint32 i = 0; i < n; i++)
	{
		if (first[i] == i)
		{
			if (nodes != i)
				memcpy(state->rows + (Size) nodes * row_bytes, state->rows + (Size) i * row_bytes, row_bytes);
			first[i] = nodes++;
		}
		else
			first[i] = first[first[i]];
		start[first[i]]++;
	}

	/* counting sort of the TIDs by node */
	tids = MemoryContextAllocHuge(CurrentMemoryContext, (Size) n * sizeof(ItemPointerData));
	for (uint32 node = 0, sum = 0; node <= nodes; node++)
	{
		uint32		count = node < nodes ? start[node] : 0;

		start[node] = sum;
		sum += count;
	}
	for (uint32 i = 0; i < n; i++)
		tids[start[first[i]]++] = state->tids[i];
	memmove(start + 1, start, nodes * sizeof(uint32));
	start[0] = 0;
	memcpy(state->tids, tids, (Size) n * sizeof(ItemPointerData));
	pfree(tids);
	pfree(first);
	*offsets = start;
	return nodes;
}

/* ---- one segment ------------------------------------------------------- */

static void
WriteArray(BuildState *state, uint32 segment, GgKind kind, const void *data, uint64 bytes)
{
	GgArrayWriter writer;

	/* in slices, so that progress moves */
	const uint64 slice = 64 * GG_PAGE_PAYLOAD;

	GgWriterBegin(&writer, state->index, state->forknum, state->meta, segment, kind);
	for (uint64 done = 0; done < bytes; done += slice)
	{
		GgWriterAppend(&writer, (const char *) data + done, Min(slice, bytes - done));
		state->pages_done += GgArrayPages(Min(slice, bytes - done));
		pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, state->pages_done);
	}
	GgWriterEnd(&writer);
}

static void
WriteSegment(BuildState *state, const gg_graph *graph, const uint32 *offsets)
{
	GgMetaPageData *meta = state->meta;
	GgSegment  *segment = &meta->segments[meta->nsegments];
	GgTidEntry *tids;
	GgPivotEntry *pivots;
	uint64		vector_bytes = (uint64) graph->n * GgRowBytes(meta);
	uint64		adjacency_bytes = (uint64) graph->n * graph->degree * sizeof(uint32);

	memset(segment, 0, sizeof(*segment));
	segment->id = meta->next_segment++;
	segment->nodes = graph->n;
	segment->rows = state->n;
	segment->npivots = graph->npivots;
	meta->nsegments++;

	state->pages_done = 0;
	EnterPhase(PHASE_WRITE, GgArrayPages(vector_bytes) + GgArrayPages(adjacency_bytes) +
			   GgArrayPages((uint64) state->n * sizeof(GgTidEntry)) +
			   GgArrayPages((uint64) graph->npivots * sizeof(GgPivotEntry)));

	WriteArray(state, segment->id, GG_KIND_VECTORS, state->rows, vector_bytes);
	WriteArray(state, segment->id, GG_KIND_ADJACENCY, graph->adjacency, adjacency_bytes);

	tids = MemoryContextAllocExtended(CurrentMemoryContext, (Size) state->n * sizeof(GgTidEntry),
									  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (uint32 i = 0; i < state->n; i++)
		tids[i].tid = state->tids[i];
	WriteArray(state, segment->id, GG_KIND_TIDS, tids, (uint64) state->n * sizeof(GgTidEntry));
	pfree(tids);

	pivots = palloc(graph->npivots * sizeof(GgPivotEntry));
	for (uint32 i = 0; i < graph->npivots; i++)
	{
		pivots[i].node = graph->pivots[i];
		memcpy(pivots[i].neighbors, graph->pivot_adjacency + (Size) i * GG_PIVOT_DEGREE,
			   sizeof(pivots[i].neighbors));
	}
	WriteArray(state, segment->id, GG_KIND_PIVOTS, pivots, (uint64) graph->npivots * sizeof(GgPivotEntry));
	pfree(pivots);

	if (offsets != NULL)
		WriteArray(state, segment->id, GG_KIND_OFFSETS, offsets, ((uint64) graph->n + 1) * sizeof(uint32));
}

/* Make a segment of what was collected, and forget it. */
static void
FlushSegment(BuildState *state)
{
	MemoryContext context,
				old;
	MemoryContextCallback *callback;
	gg_graph   *graph;
	gg_dataset	data;
	gg_build_stats stats;
	gg_status	status;
	uint32	   *offsets;
	instr_time	start;

	if (state->n == 0)
		return;
	AnnounceMemory(state);
	context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph segment", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);

	INSTR_TIME_SET_CURRENT(start);
	GgNoteRows(state->opclass, state->meta, state->rows, state->n);
	data.rows = state->rows;
	data.n = FoldEqualRows(state, &offsets);
	data.dim = state->meta->dimensions;
	data.element = state->meta->element;
	data.metric = state->meta->metric;

	graph = palloc0(sizeof(gg_graph));
	callback = palloc(sizeof(MemoryContextCallback));
	callback->func = FreeGraph;
	callback->arg = graph;
	MemoryContextRegisterResetCallback(context, callback);

	memset(&stats, 0, sizeof(stats));
	status = state->engine->build(&data, &state->params, &state->control, graph, &stats);
	if (status.code == GG_EDEVICE_MEMORY && gg_engine_setting == GG_ENGINE_AUTO)
	{
		ereport(NOTICE,
				(errmsg("gpugraph index is built on the CPU"),
				 errdetail("The GPU's memory does not suffice: %s.", status.message),
				 errhint("Lower maintenance_work_mem, so that the index is built in smaller segments.")));
		state->engine = &gg_cpu_engine;
		status = state->engine->build(&data, &state->params, &state->control, graph, &stats);
	}
	if (status.code != GG_OK)
		GgReportStatus(&status, "building a gpugraph index");
	ereport(DEBUG1,
			(errmsg_internal("gpugraph graph of %u nodes on the %s engine: first lists %.3f s, descent %.3f s in %u iterations, "
							 "reordering %.3f s, connecting %.3f s with %u repairs, transfer %.3f s",
							 data.n, state->engine->name, stats.init_s, stats.descent_s, stats.iterations,
							 stats.optimize_s, stats.connect_s, stats.repaired, stats.transfer_s)));
	state->graph_s += SecondsSince(start);

	INSTR_TIME_SET_CURRENT(start);
	WriteSegment(state, graph, offsets);
	state->write_s += SecondsSince(start);

	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	state->n = 0;
}

/* ---- the heap scan ----------------------------------------------------- */

static void
BuildCallback(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool tupleIsAlive, void *arg)
{
	BuildState *state = arg;
	GgMetaPageData *meta = state->meta;
	MemoryContext old;
	Datum		value;
	uint32		dimensions;

	if (isnull[0])
		return;

	old = MemoryContextSwitchTo(state->tuple_context);
	value = PointerGetDatum(PG_DETOAST_DATUM(values[0]));
	dimensions = GgValueDimensions(state->opclass, value);
	if (meta->dimensions == 0)
		meta->dimensions = dimensions;
	if (dimensions != meta->dimensions)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("expected %u dimensions, not %u", meta->dimensions, dimensions),
				 errhint("Declare the column with its dimensions, or index an expression that casts to them.")));
	if (state->most == 0)
		PlanSegments(state);

	if (state->n >= state->most && meta->nsegments < MAX_BUILD_SEGMENTS - 1)
	{
		MemoryContextSwitchTo(old);
		AnnounceSegments(state);
		FlushSegment(state);
		EnterPhase(PHASE_LOAD, (int64) state->expected);
		pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, (int64) state->indtuples);
		MemoryContextSwitchTo(state->tuple_context);
	}
	if (state->n >= state->capacity)
		GrowRows(state);

	if (GgValueToRow(state->opclass, meta->element, value, dimensions, state->rows + (Size) state->n * GgRowBytes(meta)))
	{
		state->tids[state->n++] = *tid;
		state->indtuples++;
		pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, (int64) state->indtuples);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(state->tuple_context);
}

/* ---- entry points ------------------------------------------------------ */

static Buffer
NewMetaBuffer(Relation index, ForkNumber forknum)
{
	Buffer		buffer = GgExtendOne(index, forknum);

	Assert(BufferGetBlockNumber(buffer) == GG_META_BLKNO);
	return buffer;
}

static void
FillMetaPage(Page page, const GgMetaPageData *meta)
{
	GgInitPage(page, meta->instance, GG_NO_SEGMENT, GG_KIND_META, 0);
	memcpy(GgPageGetMeta(page), meta, sizeof(GgMetaPageData));
	((PageHeader) page)->pd_lower = (PageGetContents(page) - (char *) page) + sizeof(GgMetaPageData);
}

static double
ExpectedRows(Relation heap)
{
	BlockNumber pages;
	double		tuples,
				allvisfrac;

	estimate_rel_size(heap, NULL, &pages, &tuples, &allvisfrac);
	return tuples;
}

IndexBuildResult *
ggbuild(Relation heap, Relation index, IndexInfo *indexInfo)
{
	IndexBuildResult *result = palloc(sizeof(IndexBuildResult));
	BuildState	state;
	Buffer		metabuf;
	double		heap_rows;
	double		total_s;
	BlockNumber nblocks;
	instr_time	start;
	MemoryContextCallback *callback;

	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data", RelationGetRelationName(index));

	INSTR_TIME_SET_CURRENT(start);
	memset(&state, 0, sizeof(state));
	state.heap = heap;
	state.index = index;
	state.indexInfo = indexInfo;
	state.forknum = MAIN_FORKNUM;
	state.opclass = GgIndexOpclass(index);
	state.engine = GgChooseEngine();
	GgGetOptions(index, &state.options);
	state.params.graph_degree = state.options.graph_degree;
	state.params.intermediate_graph_degree = state.options.intermediate_graph_degree;
	state.params.seed = state.options.seed;
	state.control.cancelled = EngineCancelled;
	state.control.progress = EngineProgress;
	state.control.threads = max_parallel_maintenance_workers + 1;
	state.meta = palloc(sizeof(GgMetaPageData));
	GgInitMeta(state.meta, index, &state.options);
	state.tuple_context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph build tuple", ALLOCSET_DEFAULT_SIZES);
	state.row_context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph build rows", ALLOCSET_DEFAULT_SIZES);
	state.expected = ExpectedRows(heap);

	callback = MemoryContextAlloc(state.row_context, sizeof(MemoryContextCallback));
	callback->func = ReleaseEngine;
	callback->arg = (void *) state.engine;
	MemoryContextRegisterResetCallback(state.row_context, callback);

	/* the metapage is block 0; it is filled in last */
	metabuf = NewMetaBuffer(index, MAIN_FORKNUM);
	MarkBufferDirty(metabuf);
	LockBuffer(metabuf, BUFFER_LOCK_UNLOCK);

	EnterPhase(PHASE_LOAD, (int64) state.expected);
	heap_rows = table_index_build_scan(heap, index, indexInfo, true, false, BuildCallback, &state, NULL);
	FlushSegment(&state);

	total_s = SecondsSince(start);
	state.meta->engine = state.engine == &gg_cpu_engine ? 1 : 2;
	state.meta->times.scan_s = total_s - state.graph_s - state.write_s;
	state.meta->times.graph_s = state.graph_s;
	state.meta->times.write_s = state.write_s;

	/* the metapage goes last: it tells how long the rest took */
	INSTR_TIME_SET_CURRENT(start);
	nblocks = RelationGetNumberOfBlocks(index);
	if (RelationNeedsWAL(index) && nblocks > 1)
	{
		EnterPhase(PHASE_WAL, nblocks);
		log_newpage_range(index, MAIN_FORKNUM, 1, nblocks, true);
	}
	state.meta->times.wal_s = SecondsSince(start);

	LockBuffer(metabuf, BUFFER_LOCK_EXCLUSIVE);
	START_CRIT_SECTION();
	FillMetaPage(BufferGetPage(metabuf), state.meta);
	MarkBufferDirty(metabuf);
	if (RelationNeedsWAL(index))
		log_newpage_buffer(metabuf, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(metabuf);

	ereport(DEBUG1,
			(errmsg_internal("gpugraph build of \"%s\": %.0f rows in %u segments, scan %.3f s, graph %.3f s, write %.3f s, WAL %.3f s",
							 RelationGetRelationName(index), state.indtuples, state.meta->nsegments,
							 state.meta->times.scan_s, state.graph_s, state.write_s, state.meta->times.wal_s)));

	MemoryContextDelete(state.row_context);
	MemoryContextDelete(state.tuple_context);
	pfree(state.meta);

	result->heap_tuples = heap_rows;
	result->index_tuples = state.indtuples;
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
	buffer = NewMetaBuffer(index, INIT_FORKNUM);
	START_CRIT_SECTION();
	FillMetaPage(BufferGetPage(buffer), meta);
	MarkBufferDirty(buffer);
	log_newpage_buffer(buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
	pfree(meta);
}
