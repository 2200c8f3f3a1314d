/*
 * heap_scan.c
 *		The heap scan of CREATE INDEX, by one process or by several.
 *
 * Detoasting a wide vector costs more than anything else between heap and graph, and it scales with
 * processes.  Several ones share the area: memory for the rows of a segment, which stay where they were put until
 * the graph is built, so that the engine gets one contiguous data set without a copy.  A participant claims a chunk
 * of rows at a time and fills it; a row that equals one in the area becomes a copy of that (deduplicate.c).  Chunks fill in any
 * order, and the gaps left at the end are closed.  Rows of full chunks stay where they are, so their pages are written and logged
 * while the scan goes on.  The protocol of rounds is told at GgBuildShared.
 */
#include "build/build.h"

#include "access/heapam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "pgstat.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/backend_progress.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

#define KEY_SHARED			UINT64CONST(0x6770677200000001)
#define KEY_QUERY_TEXT		UINT64CONST(0x6770677200000002)
#define KEY_WAL_USAGE		UINT64CONST(0x6770677200000003)
#define KEY_BUFFER_USAGE	UINT64CONST(0x6770677200000004)

/* While the heap is scanned one process of so many writes pages at a time, or one: the others read on. */
#define SCAN_WRITERS		4

/* Copies that a process claims at a time, where there is room for many. */
#define MOST_COPIES			1024

/* Rows between two updates of the count and of the progress view; they cost a microsecond. */
#define PROGRESS_ROWS		256

/* Memory that a process that is alone begins with, at the most; growing it moves no bytes, only their addresses. */
#define FIRST_ROWS_BYTES	((Size) 256 * 1024 * 1024)

PGDLLEXPORT void gg_parallel_build_main(dsm_segment *segment, shm_toc *toc);

/* ---- rows to the device ------------------------------------------------------- */

void
GgAbandonCopy(GgBuild *build, const gg_status *why)
{
	if (why != NULL)
		ereport(DEBUG1, (errmsg_internal("gpugraph rows are not copied during the scan: %s", why->message)));
	gg_copy_free(build->copy);
	build->copy = NULL;
	if (build->device_index != NULL)
		build->engine->index_close(build->device_index);
	build->device_index = NULL;
}

/* However the build ends: the threads first, for they read the area and write to the device. */
static void
LoseBuild(void *arg)
{
	GgBuild    *build = arg;

	GgAbandonCopy(build, NULL);
	GgUnmapArea(build);
	GgCloseRunFile(&build->file);
}

/*
 * Begin to copy the rows of this round to the device, if the engine can build from there.  The index is made for as
 * many rows as are expected; where that was too few, or the device has no room, build.c goes another way.
 */
static void
StartCopy(GgBuild *build)
{
	const gg_engine *engine = build->engine;
	GgBuildShared *shared = build->shared;
	gg_copy_source source;
	gg_shape	shape = {.dim = build->meta->dimensions, .element = build->meta->element, .metric = build->meta->metric};
	double		rows = build->expected - (double) pg_atomic_read_u64(&shared->rows_done);
	gg_status	status;

	if (!build->device || engine->build_index == NULL || engine->index_create == NULL ||
		build->area.base == NULL || build->indexInfo->ii_Predicate != NIL)
		return;

	/* a little more than is to be expected, in whole chunks */
	shape.capacity = (uint32) Min(rows > 0 ? rows * 1.05 : build->most, shared->limit);
	shape.capacity = Min(shape.capacity / shared->chunk_rows + 2, shared->limit / shared->chunk_rows) * shared->chunk_rows;
	build->copy_capacity = shape.capacity;
	source.rows = build->area.rows;
	source.row_bytes = GgRowBytes(build->meta);
	source.chunk_rows = shared->chunk_rows;
	source.filled = (const volatile uint32_t *) build->area.filled;
	source.claimed = (const volatile uint64_t *) build->area.next_row;
	/* a processor is taken only while there is something to be copied */
	status = gg_copy_start(engine, &shape, &source, shared->participants, &build->device_index, &build->copy);
	if (status.code != GG_OK)
		GgAbandonCopy(build, &status);
}

static void
StartRound(GgBuild *build)
{
	build->full_chunks = 0;
	GgStartWriting(build);
	StartCopy(build);
}

/* ---- chunks -------------------------------------------------------------------- */

/* Add the rows that this process has found to the count that all share. */
static void
CountRows(GgBuild *build)
{
	pg_atomic_fetch_add_u64(&build->shared->rows_done, build->uncounted);
	build->uncounted = 0;
}

static void
ReportRows(GgBuild *build)
{
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE,
								 (int64) pg_atomic_read_u64(&build->shared->rows_done));
}

/*
 * The leader lets all processes write the vectors that stay where they are: those before the first chunk that is not full.  Gaps lie behind
 * them, and so does what is moved to close these.
 */
static void
OfferFullChunks(GgBuild *build)
{
	/* behind the last chunk there is one entry more, always 0 */
	while (pg_atomic_read_u32(&build->area.filled[build->full_chunks]) != 0)
		build->full_chunks++;
	pg_read_barrier();
	GgOfferVectors(build, (uint64) build->full_chunks * build->shared->chunk_rows * GgRowBytes(build->meta));
}

/* A worker takes part in writing until the given round is over, or (any) until all is done. */
static void
Help(GgBuild *build, bool any, uint32 round)
{
	GgBuildShared *shared = build->shared;

	for (;;)
	{
		bool		over;

		SpinLockAcquire(&shared->mutex);
		over = shared->done || (!any && shared->round != round);
		SpinLockRelease(&shared->mutex);
		if (over)
			break;
		if (!GgWriteRange(build, INT_MAX))
			ConditionVariableSleep(&shared->changed, WAIT_EVENT_PARALLEL_CREATE_INDEX_SCAN);
	}
	ConditionVariableCancelSleep();
}

/* The leader waits until no worker fills chunks; returns how many have no more rows. */
static int
WaitForWorkers(GgBuild *build)
{
	GgBuildShared *shared = build->shared;
	int			scanned = 0;

	if (build->pcxt == NULL)
		return 0;
	for (;;)
	{
		int			stopped;

		SpinLockAcquire(&shared->mutex);
		stopped = shared->nstopped;
		scanned = shared->nscanned;
		SpinLockRelease(&shared->mutex);
		ReportRows(build);
		OfferFullChunks(build);
		if (stopped + scanned == build->pcxt->nworkers_launched)
			break;
		(void) ConditionVariableTimedSleep(&shared->changed, 100, WAIT_EVENT_PARALLEL_CREATE_INDEX_SCAN);
	}
	ConditionVariableCancelSleep();
	return scanned;
}

/* The leader makes a segment of this round's rows and begins the next. */
static void
NextRound(GgBuild *build)
{
	GgBuildShared *shared = build->shared;

	GgCloseGaps(build);
	GgFlushSegment(build, true);

	GgResetFold(build, false);
	if (build->area.filled != NULL)
		for (uint32 i = 0; i <= shared->capacity / shared->chunk_rows; i++)
			pg_atomic_write_u32(&build->area.filled[i], 0);
	if (build->area.next_row != NULL)
		pg_atomic_write_u64(build->area.next_row, 0);
	build->next = 0;
	build->end = build->area.base != NULL ? 0 : Min(build->shared->capacity, build->most);
	/* the last segment takes all that is left, whatever memory that is */
	if (build->meta->nsegments >= GG_MAX_BUILD_SEGMENTS - 1)
		shared->limit = shared->capacity;
	StartRound(build);

	GgEnterPhase(GG_BUILD_LOAD, (int64) build->expected);
	ReportRows(build);
	SpinLockAcquire(&shared->mutex);
	shared->nholes = 0;
	shared->nstopped = 0;
	shared->round++;
	SpinLockRelease(&shared->mutex);
	ConditionVariableBroadcast(&shared->changed);
}

/* What this process claimed of the area and did not fill; the mutex is held. */
static void
NoteHole(GgBuild *build)
{
	GgBuildShared *shared = build->shared;

	if (build->area.base != NULL && build->next < build->end)
	{
		shared->holes[shared->nholes].first = build->next;
		shared->holes[shared->nholes].end = build->end;
		shared->nholes++;
	}
}

/* The area is full, and this process has one more row, which goes into the next round. */
static void
WaitForRoom(GgBuild *build)
{
	GgBuildShared *shared = build->shared;
	uint32		round;

	CountRows(build);
	SpinLockAcquire(&shared->mutex);
	NoteHole(build);
	SpinLockRelease(&shared->mutex);
	if (build->leader)
	{
		if (build->pcxt != NULL)
			WaitForParallelWorkersToAttach(build->pcxt);
		WaitForWorkers(build);
		NextRound(build);
		return;
	}
	SpinLockAcquire(&shared->mutex);
	shared->nstopped++;
	round = shared->round;
	SpinLockRelease(&shared->mutex);
	ConditionVariableBroadcast(&shared->changed);
	Help(build, false, round);
	build->next = build->end = 0;
	build->next_copy = build->end_copy = 0;
	build->fold_levels = 0;
}

/* A new chunk of the shared area, reserved. */
static void
ClaimChunk(GgBuild *build)
{
	GgBuildShared *shared = build->shared;
	Size		row_bytes = GgRowBytes(build->meta);

	if (build->end > 0)
	{
		pg_write_barrier();
		pg_atomic_write_u32(&build->area.filled[build->end / shared->chunk_rows - 1], shared->chunk_rows);
		if (build->leader)
			OfferFullChunks(build);
		GgWriteRange(build, Max(shared->participants / SCAN_WRITERS, 1));
	}
	for (;;)
	{
		uint64		start = pg_atomic_fetch_add_u64(build->area.next_row, shared->chunk_rows);

		/* limit changes only while nobody claims */
		if (start + shared->chunk_rows <= shared->limit)
		{
			build->next = (uint32) start;
			build->end = build->next + shared->chunk_rows;
			break;
		}
		WaitForRoom(build);
	}
	GgReserveArea(build, build->area.rows + build->next * row_bytes, shared->chunk_rows * row_bytes);
	GgReserveArea(build, build->area.tids + build->next, shared->chunk_rows * sizeof(GgTidEntry));
}

/* More room in the memory of a process that is alone. */
static void
GrowRows(GgBuild *build)
{
	Size		row_bytes = GgRowBytes(build->meta);
	uint32		capacity = Max(1024, build->end + build->end / 2);
	GgBuildArea *area = &build->area;

	if (build->next >= build->most && build->meta->nsegments < GG_MAX_BUILD_SEGMENTS - 1)
	{
		WaitForRoom(build);
		return;
	}
	if (area->rows == NULL)
	{
		/* the table's size is a good first guess, but it is one */
		if (build->expected > capacity)
			capacity = (uint32) Min(build->expected * 1.02, Max(capacity, FIRST_ROWS_BYTES / row_bytes));
		capacity = Min(capacity, build->most);
		area->rows = MemoryContextAllocHuge(build->row_context, capacity * row_bytes);
		area->tids = MemoryContextAllocHuge(build->row_context, capacity * sizeof(GgTidEntry));
	}
	else
	{
		/* the last segment takes what is left, whatever memory that is */
		if (build->next < build->most)
			capacity = Min(capacity, build->most);
		area->rows = repalloc_huge(area->rows, capacity * row_bytes);
		area->tids = repalloc_huge(area->tids, capacity * sizeof(GgTidEntry));
	}
	build->end = build->shared->capacity = capacity;
}

/* Take the length of a row into the metapage.  Others do so, too: looked at without the mutex, changed under it. */
static void
NoteLength(GgBuild *build, const void *row)
{
	float		length = GgRowLength(build->opclass, build->meta, row);

	if (length > build->meta->largest_length)
	{
		SpinLockAcquire(&build->shared->mutex);
		build->meta->largest_length = Max(build->meta->largest_length, length);
		SpinLockRelease(&build->shared->mutex);
	}
}

/* Room in the area for one row more. */
static void
HaveRoom(GgBuild *build)
{
	if (build->next < build->end)
		return;
	if (build->area.base != NULL)
		ClaimChunk(build);
	else
	{
		if (build->most == 0)
		{
			GgPlanSegments(build);
			GgPlanFold(build);
		}
		GrowRows(build);
	}
}

/* Add a value to the area, to the copies of one that is there, or (NULL in the eyes of an index) nowhere; false: no room for copies. */
static bool
PlaceRow(GgBuild *build, ItemPointer tid, Datum value, uint32 dimensions)
{
	char	   *row;
	bool		indexed;
	uint32		first;
	GgTidEntry *entry;
	MemoryContext old;

	HaveRoom(build);
	row = build->area.rows + build->next * GgRowBytes(build->meta);
	old = MemoryContextSwitchTo(build->tuple_context);
	indexed = GgValueToRow(build->opclass, build->meta->element, value, dimensions, row);
	MemoryContextSwitchTo(old);
	if (!indexed)
		return true;

	first = GgFoldRow(build, build->next);
	if (first != build->next)
	{
		if (!GgAddCopy(build, tid, first))
			return false;
	}
	else
	{
		NoteLength(build, row);
		entry = &build->area.tids[build->next++];
		entry->tid = *tid;
		entry->reserved = 0;
	}
	build->uncounted++;
	return true;
}

/* The callback of table_index_build_scan(). */
static void
AddRow(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool tupleIsAlive, void *arg)
{
	GgBuild    *build = arg;
	GgMetaPageData *meta = build->meta;
	MemoryContext old;
	Datum		value;
	uint32		dimensions;

	/* PostgreSQL's scan looks for interrupts, but not for the postmaster */
	GgCheckInterrupts();
	if (isnull[0])
		return;

	old = MemoryContextSwitchTo(build->tuple_context);
	value = PointerGetDatum(PG_DETOAST_DATUM(values[0]));
	dimensions = GgValueDimensions(build->opclass, value);
	/* only where the process is alone are they not known beforehand */
	if (meta->dimensions == 0)
		meta->dimensions = dimensions;
	if (dimensions != meta->dimensions)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("expected %u dimensions, not %u", meta->dimensions, dimensions),
				 errhint("Declare the column with its dimensions, or index an expression that casts to them.")));
	MemoryContextSwitchTo(old);

	/* again where there was no room for a copy: it may be none in the next segment */
	while (!PlaceRow(build, tid, value, dimensions))
		WaitForRoom(build);

	if (build->uncounted >= PROGRESS_ROWS)
	{
		CountRows(build);
		if (build->leader)
			ReportRows(build);
	}
	MemoryContextReset(build->tuple_context);
}

/* ---- planning --------------------------------------------------------------------- */

/* As plan_create_index_workers() sees it. */
static bool
IsParallelSafe(Relation index)
{
	PlannerInfo *root = makeNode(PlannerInfo);

	root->glob = makeNode(PlannerGlobal);
	return is_parallel_safe(root, (Node *) RelationGetIndexExpressions(index)) &&
		is_parallel_safe(root, (Node *) RelationGetIndexPredicate(index));
}

/*
 * How many workers to ask for.  The rules are those of plan_create_index_workers() but for the number: that one grows
 * with the logarithm of the heap's size, and does not see that most of the work lies in the TOAST table.  Each
 * process gets at least min_parallel_table_scan_size of both together, whose reading takes about as long as
 * starting it.
 */
static int
PlanWorkers(GgBuild *build, const GgMetaPageData *meta)
{
	Relation	heap = build->heap;
	double		pages = RelationGetNumberOfBlocks(heap);
	int			asked = RelationGetParallelWorkers(heap, -1);

	if (!IsUnderPostmaster || max_parallel_maintenance_workers == 0 || IsInParallelMode() ||
		heap->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
		meta->dimensions == 0 || !IsParallelSafe(build->index))
		return 0;
	if (asked != -1)
		return Min(asked, max_parallel_maintenance_workers);
	if (OidIsValid(heap->rd_rel->reltoastrelid))
	{
		Relation	toast = table_open(heap->rd_rel->reltoastrelid, AccessShareLock);

		pages += RelationGetNumberOfBlocks(toast);
		table_close(toast, AccessShareLock);
	}
	return (int) Min(max_parallel_maintenance_workers, pages / Max(min_parallel_table_scan_size, 1));
}

/* ---- begin and end ------------------------------------------------------------------ */

static Size
SharedBytes(int participants)
{
	return MAXALIGN(offsetof(GgBuildShared, holes) + mul_size(participants, sizeof(((GgBuildShared *) NULL)->holes[0])));
}

/* The table scan's part of the shared memory lies behind ours. */
static ParallelTableScanDesc
SharedScan(GgBuildShared *shared)
{
	return (ParallelTableScanDesc) ((char *) shared + BUFFERALIGN(SharedBytes(shared->participants)));
}

static void
InitShared(GgBuild *build, GgBuildShared *shared, const GgMetaPageData *meta, int participants)
{
	memset(shared, 0, SharedBytes(participants));
	shared->participants = participants;
	shared->heap = RelationGetRelid(build->heap);
	shared->index = RelationGetRelid(build->index);
	shared->concurrent = build->indexInfo->ii_Concurrent;
	shared->use_wal = RelationNeedsWAL(build->index);
	shared->meta = *meta;
	pg_atomic_init_u64(&shared->rows_done, 0);
	ConditionVariableInit(&shared->changed);
	SpinLockInit(&shared->mutex);
	build->shared = shared;
	build->meta = &shared->meta;
}

/*
 * The area's size: the limit is what maintenance_work_mem allows, the capacity more, so that the last of many
 * segments can take what is left over.  Address space is all that it costs.
 */
static void
PlanArea(GgBuild *build, int participants)
{
	GgBuildShared *shared = build->shared;
	uint64		chunk = Max(GG_CHUNK_BYTES / GgRowBytes(build->meta), 1);
	uint64		capacity;

	/* small areas have smaller chunks, or one process would claim all */
	chunk = Max(Min(chunk, build->most / (8 * participants)), 1);
	capacity = Max(build->most, Min(build->expected * 8 + 1000000, GG_MAX_NODES));
	shared->chunk_rows = (uint32) chunk;
	shared->chunk_copies = (uint32) Max(Min(MOST_COPIES, build->most / (8 * participants)), 1);
	shared->limit = (uint32) (build->most / chunk * chunk);
	shared->capacity = (uint32) (capacity / chunk * chunk);
	GgPlanFold(build);
}

/* End parallel mode before a worker was started. */
static void
BackOut(GgBuild *build)
{
	if (IsMVCCSnapshot(build->snapshot))
		UnregisterSnapshot(build->snapshot);
	build->snapshot = NULL;
	DestroyParallelContext(build->pcxt);
	build->pcxt = NULL;
	ExitParallelMode();
}

/* False when the build must do without; build->shared is then not set. */
static bool
BeginParallel(GgBuild *build, const GgMetaPageData *meta, int request)
{
	ParallelContext *pcxt;
	GgBuildShared *shared;
	int			participants = request + 1;
	Size		bytes;
	int			query_bytes = debug_query_string ? strlen(debug_query_string) + 1 : 0;

	EnterParallelMode();
	pcxt = build->pcxt = CreateParallelContext("gpugraph", "gg_parallel_build_main", request);

	/* rows that died recently are indexed, except by a concurrent build, which sees what its snapshot does */
	build->snapshot = build->indexInfo->ii_Concurrent ? RegisterSnapshot(GetTransactionSnapshot()) : SnapshotAny;

	bytes = BUFFERALIGN(SharedBytes(participants)) + table_parallelscan_estimate(build->heap, build->snapshot);
	shm_toc_estimate_chunk(&pcxt->estimator, bytes);
	shm_toc_estimate_chunk(&pcxt->estimator, mul_size(sizeof(WalUsage), request));
	shm_toc_estimate_chunk(&pcxt->estimator, mul_size(sizeof(BufferUsage), request));
	shm_toc_estimate_keys(&pcxt->estimator, 3);
	if (query_bytes > 0)
	{
		shm_toc_estimate_chunk(&pcxt->estimator, query_bytes);
		shm_toc_estimate_keys(&pcxt->estimator, 1);
	}
	InitializeParallelDSM(pcxt);
	if (pcxt->seg == NULL)
	{
		BackOut(build);
		return false;
	}

	shared = shm_toc_allocate(pcxt->toc, bytes);
	InitShared(build, shared, meta, participants);
	GgPlanSegments(build);
	PlanArea(build, participants);
	if (!GgCreateArea(build))
	{
		BackOut(build);
		build->shared = NULL;
		build->most = 0;
		return false;
	}
	table_parallelscan_initialize(build->heap, SharedScan(shared), build->snapshot);
	shm_toc_insert(pcxt->toc, KEY_SHARED, shared);
	build->wal_usage = shm_toc_allocate(pcxt->toc, mul_size(sizeof(WalUsage), request));
	shm_toc_insert(pcxt->toc, KEY_WAL_USAGE, build->wal_usage);
	build->buffer_usage = shm_toc_allocate(pcxt->toc, mul_size(sizeof(BufferUsage), request));
	shm_toc_insert(pcxt->toc, KEY_BUFFER_USAGE, build->buffer_usage);
	if (query_bytes > 0)
	{
		char	   *text = shm_toc_allocate(pcxt->toc, query_bytes);

		memcpy(text, debug_query_string, query_bytes);
		shm_toc_insert(pcxt->toc, KEY_QUERY_TEXT, text);
	}
	LaunchParallelWorkers(pcxt);
	ereport(DEBUG1,
			(errmsg_internal("gpugraph heap scan: %d workers of %d asked for, %u rows fit",
							 pcxt->nworkers_launched, request, shared->limit)));
	return true;
}

void
GgBeginScan(GgBuild *build, const GgMetaPageData *meta)
{
	MemoryContextCallback *callback = MemoryContextAlloc(build->row_context, sizeof(MemoryContextCallback));
	int			request;

	callback->func = LoseBuild;
	callback->arg = build;
	MemoryContextRegisterResetCallback(build->row_context, callback);

	request = PlanWorkers(build, meta);
	if (request > 0 && BeginParallel(build, meta, request))
		return;
	InitShared(build, MemoryContextAlloc(build->row_context, SharedBytes(0)), meta, 0);
}

/* The participants' numbers, whoever they are. */
static void
EndOfTable(GgBuild *build, const IndexInfo *indexInfo, double heap_rows)
{
	GgBuildShared *shared = build->shared;

	CountRows(build);
	SpinLockAcquire(&shared->mutex);
	NoteHole(build);
	if (!build->leader)
		shared->nscanned++;
	shared->heap_rows += heap_rows;
	shared->broken_hot_chain |= indexInfo->ii_BrokenHotChain;
	SpinLockRelease(&shared->mutex);
	ConditionVariableBroadcast(&shared->changed);
}

double
GgScanHeap(GgBuild *build)
{
	GgBuildShared *shared = build->shared;
	TableScanDesc scan = NULL;
	double		heap_rows;

	StartRound(build);

	if (build->pcxt != NULL)
		scan = table_beginscan_parallel(build->heap, SharedScan(shared));
	heap_rows = table_index_build_scan(build->heap, build->index, build->indexInfo, true, false, AddRow, build, scan);
	EndOfTable(build, build->indexInfo, heap_rows);

	if (build->pcxt != NULL)
	{
		WaitForParallelWorkersToAttach(build->pcxt);
		while (WaitForWorkers(build) < build->pcxt->nworkers_launched)
			NextRound(build);
	}
	GgCloseGaps(build);
	GgFlushSegment(build, false);
	build->indexInfo->ii_BrokenHotChain |= shared->broken_hot_chain;
	return shared->heap_rows;
}

void
GgEndScan(GgBuild *build)
{
	GgBuildShared *shared = build->shared;
	ParallelContext *pcxt = build->pcxt;

	SpinLockAcquire(&shared->mutex);
	shared->done = true;
	SpinLockRelease(&shared->mutex);
	ConditionVariableBroadcast(&shared->changed);
	if (pcxt == NULL)
		return;

	WaitForParallelWorkersToFinish(pcxt);
	for (int i = 0; i < pcxt->nworkers_launched; i++)
		InstrAccumParallelQuery(&build->buffer_usage[i], &build->wal_usage[i]);

	build->shared = NULL;
	build->meta = NULL;
	if (IsMVCCSnapshot(build->snapshot))
		UnregisterSnapshot(build->snapshot);
	GgAbandonCopy(build, NULL);
	GgUnmapArea(build);
	DestroyParallelContext(pcxt);
	build->pcxt = NULL;
	ExitParallelMode();
}

/* ---- a worker ------------------------------------------------------------------------ */

void
gg_parallel_build_main(dsm_segment *segment, shm_toc *toc)
{
	GgBuild		build;
	GgBuildShared *shared = shm_toc_lookup(toc, KEY_SHARED, false);
	WalUsage   *wal_usage = shm_toc_lookup(toc, KEY_WAL_USAGE, false);
	BufferUsage *buffer_usage = shm_toc_lookup(toc, KEY_BUFFER_USAGE, false);
	LOCKMODE	heap_lockmode = shared->concurrent ? ShareUpdateExclusiveLock : ShareLock;
	LOCKMODE	index_lockmode = shared->concurrent ? RowExclusiveLock : AccessExclusiveLock;
	double		heap_rows;

	debug_query_string = shm_toc_lookup(toc, KEY_QUERY_TEXT, true);
	pgstat_report_activity(STATE_RUNNING, debug_query_string);

	memset(&build, 0, sizeof(build));
	build.shared = shared;
	build.meta = &shared->meta;
	build.heap = table_open(shared->heap, heap_lockmode);
	build.index = index_open(shared->index, index_lockmode);
	build.opclass = GgIndexOpclass(build.index);
	build.indexInfo = BuildIndexInfo(build.index);
	build.indexInfo->ii_Concurrent = shared->concurrent;
	build.tuple_context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph build tuple", ALLOCSET_DEFAULT_SIZES);
	build.row_context = CurrentMemoryContext;

	InstrStartParallelQuery();
	if (GgAttachArea(&build))
	{
		heap_rows = table_index_build_scan(build.heap, build.index, build.indexInfo, true, false, AddRow, &build,
										   table_beginscan_parallel(build.heap, SharedScan(shared)));
		EndOfTable(&build, build.indexInfo, heap_rows);
		Help(&build, true, 0);
	}
	else
		EndOfTable(&build, build.indexInfo, 0);
	InstrEndParallelQuery(&buffer_usage[ParallelWorkerNumber], &wal_usage[ParallelWorkerNumber]);

	GgCloseRunFile(&build.file);
	GgUnmapArea(&build);
	index_close(build.index, index_lockmode);
	table_close(build.heap, heap_lockmode);
}
