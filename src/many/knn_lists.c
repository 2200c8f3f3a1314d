/*
 * knn_lists.c
 *		gpugraph_knn_graph(..., algorithm => 'gnnd'): k-NN lists of all rows at once, by GNND.
 *
 * The table is scanned under the snapshot.  The index says which rows count and what is compared:
 * its predicate, its expression, no NULL, no zero vector under cosine.  So dead rows and rows of
 * the delta need no care.  The engine makes the lists as it does in a build, from rows in memory.
 *
 * Rows and lists are in memory together, up to maintenance_work_mem.  Equal rows are rows of their
 * own, at distance 0.
 *
 * Inner product is refused: GNND misses a tenth and more of a list where few rows are in nearly all
 * lists.
 */
#include "many/batch.h"
#include "service/shared/service.h"

#include "access/tableam.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* Lists are twice as long as is asked for, since their ends are the worst, and at least so long. */
#define LEAST_LENGTH		64

/*
 * This makes GNND do at least two iterations from pivot cells, where a build is content with one
 * (RESULTS.md, "What iterations and p find").
 */
#define TERMINATION			0.03f

#define MB(bytes)			((uint64) (bytes) >> 20)

/* The rows as they are read. */
typedef struct Reading
{
	const GgTarget *target;
	GgKnnLists *lists;
	MemoryContext context;		/* of the lists ... */
	MemoryContext scratch;		/* ... and of the rows */
	uint32		dim;
	Size		row_bytes;
	char	   *rows;
	uint32		capacity;
} Reading;

/* ---- memory ----------------------------------------------------------------- */

static void
CheckMemory(const Reading *reading, uint64 bytes, bool more)
{
	if (bytes <= (uint64) maintenance_work_mem * 1024)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("the lists of index \"%s\" do not fit into maintenance_work_mem",
					RelationGetRelationName(reading->target->index)),
			 errdetail("%s%u rows of %u dimensions with lists of %u take " UINT64_FORMAT " MB.",
					   more ? "More than " : "", reading->lists->n, reading->dim,
					   reading->lists->length, MB(bytes) + 1),
			 errhint("Increase maintenance_work_mem, or use algorithm \"search\".")));
}

static uint64
RowsAndLists(const Reading *reading, uint32 n)
{
	return n * (reading->row_bytes + sizeof(ItemPointerData) +
				reading->lists->length * (sizeof(uint32) + sizeof(float)));
}

/* There is a row more. */
static void
NeedRoom(Reading *reading)
{
	GgKnnLists *lists = reading->lists;

	if (lists->n < reading->capacity)
		return;
	if (lists->n == GG_MAX_NODES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("table \"%s\" has more than %u rows for one graph",
						RelationGetRelationName(reading->target->heap), GG_MAX_NODES),
				 errhint("Use algorithm \"search\".")));
	CheckMemory(reading, RowsAndLists(reading, lists->n), true);
	reading->capacity = (uint32) Min(Max(1024, (uint64) lists->n * 2), GG_MAX_NODES);
	reading->rows = GgEnlarge(reading->scratch, reading->rows,
							  reading->capacity * reading->row_bytes);
	lists->ctids = GgEnlarge(reading->context, lists->ctids,
							 reading->capacity * sizeof(ItemPointerData));
}

/* ---- rows -------------------------------------------------------------------- */

static void
ReadValue(Reading *reading, const GgOpclass *opclass, Datum value, const ItemPointerData *ctid)
{
	GgKnnLists *lists = reading->lists;
	Datum		detoasted = PointerGetDatum(PG_DETOAST_DATUM(value));

	if (GgValueDimensions(opclass, detoasted) != reading->dim)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("expected %u dimensions, not %u", reading->dim,
						GgValueDimensions(opclass, detoasted))));
	NeedRoom(reading);
	if (GgValueToRow(opclass, opclass->element, detoasted, reading->dim,
					 reading->rows + lists->n * reading->row_bytes))
		lists->ctids[lists->n++] = *ctid;
}

/* The rows of the table that the index has and the snapshot sees. */
static void
ReadRows(Reading *reading)
{
	const GgTarget *target = reading->target;
	TupleTableSlot *slot = table_slot_create(target->heap, NULL);
	EState	   *estate = CreateExecutorState();
	ExprContext *context = GetPerTupleExprContext(estate);
	IndexInfo  *info = BuildIndexInfo(target->index);
	ExprState  *predicate = ExecPrepareQual(info->ii_Predicate, estate);
	TableScanDesc scan = GgBeginTableScan(target->heap, GetActiveSnapshot());

	context->ecxt_scantuple = slot;
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		Datum		values[INDEX_MAX_KEYS];
		bool		isnull[INDEX_MAX_KEYS];
		MemoryContext old;

		CHECK_FOR_INTERRUPTS();
		ResetPerTupleExprContext(estate);
		if (predicate != NULL && !ExecQual(predicate, context))
			continue;
		FormIndexDatum(info, slot, estate, values, isnull);
		if (isnull[0])
			continue;
		old = MemoryContextSwitchTo(GetPerTupleMemoryContext(estate));
		ReadValue(reading, target->opclass, values[0], &slot->tts_tid);
		MemoryContextSwitchTo(old);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	FreeExecutorState(estate);
}

/* ---- lists ------------------------------------------------------------------- */

static void
SayOnCpu(const char *detail)
{
	ereport(NOTICE,
			(errmsg("gpugraph makes the lists on the CPU"),
			 errdetail("The GPU's memory does not suffice: %s.", detail),
			 errhint("Increase gpugraph.device_memory, or free memory of the GPU.")));
}

static gg_status
RunEngine(const gg_engine *engine, const gg_dataset *data, const gg_build_params *params,
		  GgKnnLists *lists)
{
	bool		caught = false;
	gg_control	control = {
		.cancelled = GgIsInterrupted, .ctx = &caught,
		.threads = max_parallel_maintenance_workers + 1
	};
	gg_status	status;

	GgOpenDevice(engine);
	status = engine->knn_graph(data, params, &control, lists->ids, lists->distances, NULL);
	engine->release();
	GgThrowInterrupts(caught);
	return status;
}

static void
MakeLists(Reading *reading, const gg_dataset *data, const gg_build_params *params)
{
	const gg_engine *engine = GgChooseEngine();
	gg_control	control = {.threads = max_parallel_maintenance_workers + 1};
	gg_bytes	bytes;
	gg_status	status = engine->build_bytes(data, params, &control, &bytes);

	if (status.code == GG_OK && engine != &gg_cpu_engine &&
		bytes.device > GgBuildBudget(engine, NULL, bytes.device))
		status = gg_fail(GG_EDEVICE_MEMORY, "gpugraph_knn_graph", "lists of %u rows take "
						 UINT64_FORMAT " MB", data->n, MB(bytes.device));
	if (status.code == GG_OK)
	{
		CheckMemory(reading, RowsAndLists(reading, data->n) + bytes.host, false);
		status = RunEngine(engine, data, params, reading->lists);
	}
	if (status.code == GG_EDEVICE_MEMORY && gg_engine_setting == GG_ENGINE_AUTO)
	{
		SayOnCpu(status.message);
		status = gg_cpu_engine.build_bytes(data, params, &control, &bytes);
		if (status.code == GG_OK)
		{
			CheckMemory(reading, RowsAndLists(reading, data->n) + bytes.host, false);
			status = RunEngine(&gg_cpu_engine, data, params, reading->lists);
		}
	}
	GgCheckStatus(&status, "making the lists of a k-NN graph");
}

static uint32
ListLength(int32 k)
{
	return Min(Max(LEAST_LENGTH, ((uint32) k + 15) / 16 * 32), GG_MAX_DEGREE);
}

static void
CheckRequest(const GgTarget *target, int32 k)
{
	if (target->opclass->metric == GG_METRIC_IP)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("algorithm \"gnnd\" does not know inner products"),
				 errhint("Use algorithm \"search\".")));
	if (k > GG_MAX_DEGREE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k must be at most %d for algorithm \"gnnd\", not %d", GG_MAX_DEGREE, k),
				 errhint("Use algorithm \"search\".")));
}

GgKnnLists *
GgMakeKnnLists(const GgTarget *target, int32 k)
{
	GgKnnLists *lists = palloc0(sizeof(GgKnnLists));
	GgMetaPageData *meta = GgReadDirectory(target->index);
	MemoryContext old;
	Reading		reading = {.target = target, .lists = lists, .context = CurrentMemoryContext};
	gg_build_params params = {
		.graph_degree = LEAST_LENGTH / 2, .intermediate_graph_degree = ListLength(k),
		.termination_threshold = TERMINATION
	};

	CheckRequest(target, k);
	reading.scratch = AllocSetContextCreate(CurrentMemoryContext, "gpugraph k-NN rows",
											ALLOCSET_DEFAULT_SIZES);
	lists->length = params.intermediate_graph_degree;
	lists->metric = target->opclass->metric;
	params.seed = (uint64) meta->seed;
	reading.dim = meta->dimensions;
	reading.row_bytes = reading.dim * gg_element_size(target->opclass->element);
	/* without dimensions there has been no row */
	if (reading.dim > 0)
	{
		old = MemoryContextSwitchTo(reading.scratch);
		ReadRows(&reading);
		MemoryContextSwitchTo(old);
	}
	if (lists->n > 0)
	{
		gg_dataset	data = {
			.rows = reading.rows, .n = lists->n, .dim = reading.dim,
			.element = target->opclass->element, .metric = lists->metric
		};
		Size		places = (Size) lists->n * lists->length;

		CheckMemory(&reading, RowsAndLists(&reading, lists->n), false);
		lists->ids = MemoryContextAllocHuge(CurrentMemoryContext, places * sizeof(uint32));
		lists->distances = MemoryContextAllocHuge(CurrentMemoryContext, places * sizeof(float));
		MakeLists(&reading, &data, &params);
	}
	MemoryContextDelete(reading.scratch);
	pfree(meta);
	return lists;
}
