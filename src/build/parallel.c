/*
 * parallel.c
 *		The processes of CREATE INDEX: how many there are, their begin and end, a worker.
 */
#include "build/build.h"
#include "build/deduplicate.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "pgstat.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define KEY_SHARED			UINT64CONST(0x6770677200000001)
#define KEY_QUERY_TEXT		UINT64CONST(0x6770677200000002)
#define KEY_WAL_USAGE		UINT64CONST(0x6770677200000003)
#define KEY_BUFFER_USAGE	UINT64CONST(0x6770677200000004)

/* Duplicates that a process claims at a time, where there is room for many. */
#define MOST_DUPLICATES		1024

/*
 * Chunks of rows, or of duplicates, that each process finds in the smallest area.  In the last area
 * each may leave a chunk empty: together these are to be less than SPREAD_SLACK (build.c), or there
 * would be one segment more than devices.
 */
#define LEAST_CHUNKS		100

PGDLLEXPORT void gg_parallel_build_main(dsm_segment *segment, shm_toc *toc);

/* ---- planning --------------------------------------------------------------------- */

/* May workers evaluate expressions and predicate?  The rule is plan_create_index_workers()'s. */
static bool
IsParallelSafe(Relation index)
{
	PlannerInfo *root = makeNode(PlannerInfo);

	root->glob = makeNode(PlannerGlobal);
	return is_parallel_safe(root, (Node *) RelationGetIndexExpressions(index)) &&
		is_parallel_safe(root, (Node *) RelationGetIndexPredicate(index));
}

/*
 * How many workers to ask for.  The rules are those of plan_create_index_workers() but for the
 * number.  PostgreSQL's number grows with the logarithm of the heap's size, and ignores the TOAST
 * table, where most of the work lies.  Here each process gets at least min_parallel_table_scan_size
 * of both together, whose reading takes about as long as starting it.
 */
static int
PlanWorkers(Relation heap, Relation index, uint32 dimensions)
{
	double		pages = RelationGetNumberOfBlocks(heap);
	int			asked = RelationGetParallelWorkers(heap, -1);

	if (!IsUnderPostmaster || max_parallel_maintenance_workers == 0 || IsInParallelMode() ||
		heap->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
		dimensions == 0 || !IsParallelSafe(index))
		return 0;
	if (asked != -1)
		return Min(asked, max_parallel_maintenance_workers);
	if (OidIsValid(heap->rd_rel->reltoastrelid))
	{
		Relation	toast = table_open(heap->rd_rel->reltoastrelid, AccessShareLock);

		pages += RelationGetNumberOfBlocks(toast);
		table_close(toast, AccessShareLock);
	}
	return (int) Min(max_parallel_maintenance_workers,
					 pages / Max(min_parallel_table_scan_size, 1));
}

/*
 * The areas' size.  The limit is what maintenance_work_mem allows.  The capacity is more, so that
 * the last of many segments can take what is left over.  Address space is all that it costs.
 */
static void
PlanArea(GgParticipant *leader, const GgMemoryPlan *plan, int participants, GgArea *area)
{
	GgAreaShared *shared = area->shared;
	uint32		least = LEAST_CHUNKS * participants;
	uint64		chunk;
	uint64		capacity;

	shared->spilled = plan->spill;
	shared->row_bytes = GgRowBytes(&leader->shared->meta);
	shared->code_bytes = GgCodeBytes(&leader->shared->meta, plan->codes);
	shared->coded = leader->shared->meta.coded != GG_CODES_NONE;
	shared->graph_degree = leader->shared->meta.graph_degree;
	chunk = Max(GG_CHUNK_BYTES / shared->row_bytes, 1);
	/* small areas have smaller chunks, or one process would claim all */
	chunk = Max(Min(chunk, plan->most / least), 1);
	capacity = GgPlanCapacity(plan);
	shared->chunk_rows = (uint32) chunk;
	shared->chunk_duplicates = Max(Min(MOST_DUPLICATES, plan->most / least), 1);
	shared->limit = (uint32) (plan->most / chunk * chunk);
	shared->capacity = (uint32) (capacity / chunk * chunk);
	GgPlanTables(area, leader->scan.heap, Min(plan->expected, plan->most));
}

/* ---- the leader --------------------------------------------------------------------- */

/* The table scan's part of the shared memory lies behind ours. */
static ParallelTableScanDesc
SharedScan(GgBuildShared *shared)
{
	return (ParallelTableScanDesc) ((char *) shared + BUFFERALIGN(sizeof(GgBuildShared)));
}

/* Point a process's parts at each other. */
static void
ConnectParts(GgParticipant *process, GgBuildShared *shared, Relation heap, Relation index,
			 IndexInfo *indexInfo)
{
	process->shared = shared;
	for (int i = 0; i < GG_WRITER_QUEUES; i++)
	{
		process->areas[i].shared = &shared->areas[i];
		process->areas[i].context = CurrentMemoryContext;
	}
	process->scan.heap = heap;
	process->scan.index = index;
	process->scan.indexInfo = indexInfo;
	process->scan.opclass = GgIndexOpclass(index);
	GgGetFilterColumns(index, &process->scan.columns);
	process->scan.meta = &shared->meta;
	process->scan.shared = &shared->scan;
	process->scan.areas = process->scan.area = process->areas;
	process->scan.writer = &process->writer;
	process->scan.tuple_context = AllocSetContextCreate(CurrentMemoryContext,
														"gpugraph build tuple",
														ALLOCSET_DEFAULT_SIZES);
	GgBeginWriter(&process->writer, index, &shared->meta, &shared->writer, CurrentMemoryContext);
}

/* Set the process's pointers into the shared areas. */
static void
SetArrays(GgParticipant *process)
{
	for (int i = 0; i < process->shared->writer.nqueues; i++)
	{
		const GgArea *area = &process->areas[i];
		const void **data = process->writer.data[i];

		data[GG_KIND_VECTORS] = area->rows;
		data[GG_KIND_TIDS] = area->tids;
		data[GG_KIND_FILTERS] = area->filters;
		data[GG_KIND_CODES] = area->codes;
		data[GG_KIND_ADJACENCY] = area->adjacency;
	}
}

static void
InitShared(GgBuildShared *shared, Relation heap, Relation index, bool concurrent,
		   const GgMetaPageData *meta, int participants)
{
	memset(shared, 0, sizeof(*shared));
	shared->heap = RelationGetRelid(heap);
	shared->index = RelationGetRelid(index);
	shared->concurrent = concurrent;
	shared->meta = *meta;
	GgInitScanShared(&shared->scan, participants);
	for (int i = 0; i < GG_WRITER_QUEUES; i++)
	{
		SpinLockInit(&shared->areas[i].mutex);
		shared->areas[i].filter_words = meta->filter_words;
	}
	GgInitWriterShared(&shared->writer, index);
}

/* End parallel mode before a worker was started. */
static void
BackOut(GgParticipant *leader)
{
	if (IsMVCCSnapshot(leader->snapshot))
		UnregisterSnapshot(leader->snapshot);
	leader->snapshot = NULL;
	DestroyParallelContext(leader->pcxt);
	leader->pcxt = NULL;
	ExitParallelMode();
}

/* Memory for the usage counters of `request` workers, and for the statement. */
static void
EstimateExtras(ParallelContext *pcxt, int request)
{
	shm_toc_estimate_chunk(&pcxt->estimator, mul_size(sizeof(WalUsage), request));
	shm_toc_estimate_chunk(&pcxt->estimator, mul_size(sizeof(BufferUsage), request));
	shm_toc_estimate_keys(&pcxt->estimator, 2);
	if (debug_query_string)
	{
		shm_toc_estimate_chunk(&pcxt->estimator, strlen(debug_query_string) + 1);
		shm_toc_estimate_keys(&pcxt->estimator, 1);
	}
}

static void
StoreExtras(GgParticipant *leader, int request)
{
	shm_toc    *toc = leader->pcxt->toc;

	leader->wal_usage = shm_toc_allocate(toc, mul_size(sizeof(WalUsage), request));
	shm_toc_insert(toc, KEY_WAL_USAGE, leader->wal_usage);
	leader->buffer_usage = shm_toc_allocate(toc, mul_size(sizeof(BufferUsage), request));
	shm_toc_insert(toc, KEY_BUFFER_USAGE, leader->buffer_usage);
	if (debug_query_string)
	{
		char	   *text = shm_toc_allocate(toc, strlen(debug_query_string) + 1);

		strcpy(text, debug_query_string);
		shm_toc_insert(toc, KEY_QUERY_TEXT, text);
	}
}

/* Plan segments and make areas, once the leader's parts are connected.  False: there is no area. */
static bool
PlanShared(GgParticipant *leader, GgMemoryPlan *plan, int participants)
{
	int		   *nareas = &leader->shared->writer.nqueues;

	GgPlanSegments(plan, &leader->shared->meta);
	for (int i = 0; i < plan->areas; i++)
	{
		PlanArea(leader, plan, participants, &leader->areas[i]);
		if (!GgCreateArea(&leader->areas[i]))
			break;
		*nareas = i + 1;
	}
	if (leader->areas[0].base != NULL)
		return true;
	plan->most = 0;
	return false;
}

/* False when the build must do without workers. */
static bool
BeginParallel(GgParticipant *leader, Relation heap, Relation index, IndexInfo *indexInfo,
			  const GgMetaPageData *meta, GgMemoryPlan *plan)
{
	int			request = PlanWorkers(heap, index, meta->dimensions);
	bool		concurrent = indexInfo->ii_Concurrent;
	ParallelContext *pcxt;
	GgBuildShared *shared;
	Size		bytes;

	if (request == 0)
		return false;
	EnterParallelMode();
	pcxt = leader->pcxt = CreateParallelContext("gpugraph", "gg_parallel_build_main", request);

	/* rows that died recently are indexed; a concurrent build sees what its snapshot does */
	leader->snapshot = concurrent ? RegisterSnapshot(GetTransactionSnapshot()) : SnapshotAny;

	bytes = BUFFERALIGN(sizeof(GgBuildShared)) +
		table_parallelscan_estimate(heap, leader->snapshot);
	shm_toc_estimate_chunk(&pcxt->estimator, bytes);
	shm_toc_estimate_keys(&pcxt->estimator, 1);
	EstimateExtras(pcxt, request);
	InitializeParallelDSM(pcxt);
	if (pcxt->seg == NULL)
	{
		BackOut(leader);
		return false;
	}

	shared = shm_toc_allocate(pcxt->toc, bytes);
	InitShared(shared, heap, index, concurrent, meta, request + 1);
	ConnectParts(leader, shared, heap, index, indexInfo);
	if (!PlanShared(leader, plan, request + 1))
	{
		BackOut(leader);
		return false;
	}
	table_parallelscan_initialize(heap, SharedScan(shared), leader->snapshot);
	shm_toc_insert(pcxt->toc, KEY_SHARED, shared);
	StoreExtras(leader, request);
	SetArrays(leader);
	LaunchParallelWorkers(pcxt);
	ereport(DEBUG1,
			(errmsg_internal("gpugraph heap scan: %d workers of %d asked for, %u rows fit",
							 pcxt->nworkers_launched, request, shared->areas[0].limit)));
	return true;
}

void
GgBeginProcesses(GgParticipant *leader, Relation heap, Relation index, IndexInfo *indexInfo,
				 const GgMetaPageData *meta, GgMemoryPlan *plan)
{
	if (!BeginParallel(leader, heap, index, indexInfo, meta, plan))
	{
		GgBuildShared *shared = palloc(sizeof(GgBuildShared));

		InitShared(shared, heap, index, indexInfo->ii_Concurrent, meta, 0);
		ConnectParts(leader, shared, heap, index, indexInfo);
	}
	leader->scan.plan = plan;
	leader->scan.pcxt = leader->pcxt;
}

void
GgScanTable(GgParticipant *leader)
{
	TableScanDesc scan = NULL;

	if (leader->pcxt != NULL)
		scan = GgBeginParallelScan(leader->scan.heap, SharedScan(leader->shared));
	GgScanHeap(&leader->scan, scan);
}

void
GgEndProcesses(GgParticipant *leader)
{
	ParallelContext *pcxt = leader->pcxt;

	GgEndScan(&leader->scan);
	if (pcxt == NULL)
	{
		GgUnmapTempFile(&leader->areas[0].temp, true);
		return;
	}

	WaitForParallelWorkersToFinish(pcxt);
	for (int i = 0; i < pcxt->nworkers_launched; i++)
		InstrAccumParallelQuery(&leader->buffer_usage[i], &leader->wal_usage[i]);

	leader->shared = NULL;
	if (IsMVCCSnapshot(leader->snapshot))
		UnregisterSnapshot(leader->snapshot);
	for (int i = 0; i < GG_WRITER_QUEUES; i++)
		GgUnmapArea(&leader->areas[i], false);
	DestroyParallelContext(pcxt);
	leader->pcxt = NULL;
	ExitParallelMode();
}

/* ---- a worker ------------------------------------------------------------------------ */

void
gg_parallel_build_main(dsm_segment *segment, shm_toc *toc)
{
	GgParticipant worker = {0};
	GgBuildShared *shared = shm_toc_lookup(toc, KEY_SHARED, false);
	WalUsage   *wal_usage = shm_toc_lookup(toc, KEY_WAL_USAGE, false);
	BufferUsage *buffer_usage = shm_toc_lookup(toc, KEY_BUFFER_USAGE, false);
	LOCKMODE	heap_lockmode = shared->concurrent ? ShareUpdateExclusiveLock : ShareLock;
	LOCKMODE	index_lockmode = shared->concurrent ? RowExclusiveLock : AccessExclusiveLock;
	Relation	heap,
				index;
	IndexInfo  *indexInfo;
	int			attached = 0;

	debug_query_string = shm_toc_lookup(toc, KEY_QUERY_TEXT, true);
	pgstat_report_activity(STATE_RUNNING, debug_query_string);

	heap = table_open(shared->heap, heap_lockmode);
	index = index_open(shared->index, index_lockmode);
	indexInfo = BuildIndexInfo(index);
	indexInfo->ii_Concurrent = shared->concurrent;
	ConnectParts(&worker, shared, heap, index, indexInfo);

	InstrStartParallelQuery();
	while (attached < shared->writer.nqueues && GgAttachArea(&worker.areas[attached]))
		attached++;
	if (attached == shared->writer.nqueues)
	{
		SetArrays(&worker);
		GgScanHeap(&worker.scan, GgBeginParallelScan(heap, SharedScan(shared)));
		GgHelpToTheEnd(&worker.scan);
	}
	else
		GgLeaveScan(&worker.scan, 0);
	InstrEndParallelQuery(&buffer_usage[ParallelWorkerNumber], &wal_usage[ParallelWorkerNumber]);

	GgCloseRunFile(&worker.writer.file);
	for (int i = 0; i < attached; i++)
		GgUnmapArea(&worker.areas[i], false);
	index_close(index, index_lockmode);
	table_close(heap, heap_lockmode);
}
