/*
 * heap_scan.c
 *		The heap scan of CREATE INDEX, by one process or several.
 *
 * Detoasting wide vectors takes longer than anything else between heap and graph, and it scales
 * with processes.  Several share the area: memory for the rows of a segment, which stay where
 * they were put until the graph is built, so that the engine gets one contiguous data set without
 * a copy.  A participant claims a chunk of rows at a time and fills it.  A row that equals one in
 * the area becomes a duplicate of it (deduplicate.c).  Chunks fill in any order, and the gaps
 * left at the end are closed.  Rows of full chunks stay where they are, so all write their pages
 * between two chunks.
 */
#include "build/heap_scan.h"
#include "build/deduplicate.h"
#include "build/progress.h"

#include "access/tableam.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

/*
 * While the table is scanned, one process in four writes, and the others read on.  1M x 128 takes
 * 0.62 to 0.70 s with 4 of 16, 0.85 to 0.99 s with 8 or 16; 1M x 768 3.04 to 4.10 s with 4, 3.68 to
 * 3.78 s with 8.
 */
#define SCAN_WRITERS		4

/* Writers while memory waits to be given back: this many keep WAL busy, see SCAN_WRITERS. */
#define RELEASE_WRITERS		4

/* Rows between two updates of the count and of the progress view, which take a microsecond. */
#define PROGRESS_ROWS		256

/*
 * Memory that a process that is alone begins with, at most.  To grow it moves no bytes, only their
 * addresses.
 */
#define FIRST_ROWS_BYTES	((Size) 256 * 1024 * 1024)

/* How often the leader looks whether chunks are full while it waits for workers. */
#define LOOK_MS				100

/* ---- work shared with others ----------------------------------------------------- */

/* An area with ranges that the leader does not need any more; NULL: there is none. */
static GgArea *
FindUnneeded(const GgScan *scan)
{
	for (int i = 0; i < scan->writer->shared->nqueues; i++)
		if (GgHasUnneeded(&scan->areas[i]))
			return &scan->areas[i];
	return NULL;
}

bool
GgShareWork(GgScan *scan, int writers)
{
	GgArea	   *unneeded = FindUnneeded(scan);
	GgPageRange range;
	uint32		number;

	/*
	 * all write into one WAL: where some write already, memory is given back first, or it delays
	 * the end
	 */
	if (unneeded != NULL)
		writers = Min(writers, RELEASE_WRITERS);
	if (GgClaimRange(scan->writer, writers, &range))
	{
		GgWriteRange(scan->writer, &range);
		GgGiveUpRange(&scan->areas[range.queue], &range);
		GgEndRange(scan->writer, &range);
		return true;
	}
	if (unneeded != NULL && GgTakeUnneeded(unneeded, &number))
	{
		GgFindRange(scan->writer, (int) (unneeded - scan->areas), number, &range);
		GgGiveUpRange(unneeded, &range);
		return true;
	}
	return false;
}

/* A worker shares the work until the given round is over, or (any) until all is done. */
static void
ShareWorkUntil(GgScan *scan, bool any, uint32 round)
{
	GgScanShared *shared = scan->shared;

	for (;;)
	{
		bool		over;

		SpinLockAcquire(&shared->mutex);
		over = shared->done || (!any && shared->round != round);
		SpinLockRelease(&shared->mutex);
		if (over)
			break;
		if (!GgShareWork(scan, INT_MAX))
			GgWaitForWriters(scan->writer, -1);
	}
	GgEndWait();
}

void
GgHelpToTheEnd(GgScan *scan)
{
	ShareWorkUntil(scan, true, 0);
}

/* ---- rounds ------------------------------------------------------------------------ */

/* Add the rows that this process has found to the count that all share. */
static void
CountRows(GgScan *scan)
{
	pg_atomic_fetch_add_u64(&scan->shared->rows_done, scan->uncounted);
	scan->uncounted = 0;
}

static void
ReportRows(GgScan *scan)
{
	GgReportTuples((int64) pg_atomic_read_u64(&scan->shared->rows_done));
}

/*
 * The leader lets all processes write the vectors of chunks that lie before the first one which is
 * not full.  These stay where they are: gaps, and rows that are moved to close them, lie behind.
 * Where codes are written in place of vectors, none is made until the rows of the first segment
 * are all there: they need its mean.
 */
static void
WriteFullChunks(GgScan *scan)
{
	GgArea	   *area = scan->area;

	/* behind the last chunk there is one entry more, always 0 */
	while (pg_atomic_read_u32(&area->filled[scan->full_chunks]) != 0)
		scan->full_chunks++;
	pg_read_barrier();
	if (scan->meta->coded != GG_CODES_NONE && scan->meta->nsegments == 0)
		return;
	GgGrowArray(scan->writer, GgAreaNumber(scan),
				(uint64) scan->full_chunks * area->shared->chunk_rows *
				(scan->meta->coded != GG_CODES_NONE ? area->shared->code_bytes :
				 area->shared->row_bytes));
}

/* The leader waits until no worker fills chunks; returns how many have no more rows. */
static int
WaitForWorkers(GgScan *scan)
{
	GgScanShared *shared = scan->shared;
	int			scanned = 0;

	if (scan->pcxt == NULL)
		return 0;
	WaitForParallelWorkersToAttach(scan->pcxt);
	for (;;)
	{
		int			stopped;

		SpinLockAcquire(&shared->mutex);
		stopped = shared->nstopped;
		scanned = shared->nscanned;
		SpinLockRelease(&shared->mutex);
		ReportRows(scan);
		WriteFullChunks(scan);
		scan->look(scan->arg);
		if (stopped + scanned == scan->pcxt->nworkers_launched)
			break;
		(void) ConditionVariableTimedSleep(&shared->changed, LOOK_MS,
										   WAIT_EVENT_PARALLEL_CREATE_INDEX_SCAN);
	}
	ConditionVariableCancelSleep();
	return scanned;
}

bool
GgWorkersGoOn(GgScan *scan)
{
	return scan->pcxt != NULL && WaitForWorkers(scan) < scan->pcxt->nworkers_launched;
}

GgArea *
GgNextArea(const GgScan *scan)
{
	return &scan->areas[(GgAreaNumber(scan) + 1) % scan->writer->shared->nqueues];
}

void
GgBeginRound(GgScan *scan, bool first)
{
	scan->full_chunks = 0;
	if (!first)
		scan->area = GgNextArea(scan);
	GgBeginSegment(scan->writer, GgAreaNumber(scan), scan->meta->next_id,
				   scan->meta->coded != GG_CODES_NONE ? GG_KIND_CODES : GG_KIND_VECTORS);
	if (first)
		return;
	ReportRows(scan);
	SpinLockAcquire(&scan->shared->mutex);
	scan->shared->nstopped = 0;
	scan->shared->round++;
	SpinLockRelease(&scan->shared->mutex);
	GgWakeWriters(scan->writer);
}

/* The area is full, and this process has one more row, which goes into the next round. */
static void
WaitForRoom(GgScan *scan)
{
	GgScanShared *shared = scan->shared;
	GgArea	   *area = scan->area;
	uint32		round;

	CountRows(scan);
	GgNoteHole(area);
	if (scan->plan != NULL)
	{
		WaitForWorkers(scan);
		scan->segment_full(scan->arg);
		return;
	}
	SpinLockAcquire(&shared->mutex);
	shared->nstopped++;
	round = shared->round;
	SpinLockRelease(&shared->mutex);
	ConditionVariableBroadcast(&shared->changed);
	ShareWorkUntil(scan, false, round);
	area = scan->area = GgNextArea(scan);
	area->next = area->end = 0;
	area->next_duplicate = area->end_duplicate = 0;
	area->ntables = 0;
}

/* ---- room for rows ----------------------------------------------------------------- */

/* A new chunk of the shared area, reserved. */
static void
ClaimChunk(GgScan *scan)
{
	GgArea	   *area = scan->area;
	uint32		chunk_rows = area->shared->chunk_rows;
	Size		row_bytes = area->shared->row_bytes;
	Size		nwords = area->shared->filter_words;

	if (area->end > 0)
	{
		pg_write_barrier();
		pg_atomic_write_u32(&area->filled[area->end / chunk_rows - 1], chunk_rows);
		if (scan->plan != NULL)
			WriteFullChunks(scan);
		GgShareWork(scan, Max(scan->shared->participants / SCAN_WRITERS, 1));
	}
	for (;;)
	{
		uint64		start = pg_atomic_fetch_add_u64(area->next_chunk, chunk_rows);

		if (start + chunk_rows <= area->shared->limit)
		{
			area->next = (uint32) start;
			area->end = area->next + chunk_rows;
			break;
		}
		WaitForRoom(scan);
		area = scan->area;
	}
	GgReserveArea(area, area->rows + area->next * row_bytes, chunk_rows * row_bytes);
	GgReserveArea(area, area->tids + area->next, chunk_rows * sizeof(GgTidEntry));
	GgReserveArea(area, area->words + area->next * nwords, chunk_rows * nwords * sizeof(int64));
	if (area->codes != NULL)
		GgReserveArea(area, area->codes + area->next * area->shared->code_bytes,
					  chunk_rows * area->shared->code_bytes);
}

/*
 * The first row of a process that is alone says how wide rows are; plan for them.  Other areas
 * follow that plan.
 */
static void
PlanRows(GgScan *scan)
{
	GgMemoryPlan *plan = scan->plan;
	GgAreaShared *shared = scan->area->shared;

	if (plan->most == 0)
	{
		GgPlanSegments(plan, scan->meta);
		scan->writer->shared->nqueues = plan->areas;
	}
	scan->area->most = plan->most;
	shared->spilled = plan->spill;
	shared->row_bytes = GgRowBytes(scan->meta);
	GgPlanTables(scan->area, scan->heap, Min(plan->expected, plan->most));
}

/* More room in the memory of a process that is alone. */
static void
GrowRows(GgScan *scan)
{
	GgArea	   *area = scan->area;
	uint32		capacity = Max(1024, area->end + area->end / 2);
	Size		row_bytes;

	if (area->most == 0)
		PlanRows(scan);
	row_bytes = area->shared->row_bytes;
	if (area->next >= area->most)
	{
		WaitForRoom(scan);
		return;
	}
	if (area->rows == NULL)
	{
		double		expected = scan->plan->expected;

		/* the table's size gives a good first guess, but no more */
		if (expected > capacity)
			capacity = (uint32) Min(expected * 1.02, Max(capacity, FIRST_ROWS_BYTES / row_bytes));
	}
	capacity = Min(capacity, area->most);
	if (area->shared->spilled)
		capacity = Min(capacity, Max(GgPlanCapacity(scan->plan), area->end + 1));
	area->rows = area->shared->spilled ?
		GgGrowSpilled(area, capacity * row_bytes, GgPlanCapacity(scan->plan) * row_bytes) :
		GgEnlarge(area->context, area->rows, capacity * row_bytes);
	area->tids = GgEnlarge(area->context, area->tids, capacity * sizeof(GgTidEntry));
	area->words = GgEnlarge(area->context, area->words,
							(Size) capacity * area->shared->filter_words * sizeof(int64));
	area->end = area->shared->capacity = capacity;
}

/* ---- rows -------------------------------------------------------------------------- */

/*
 * Raise the metapage's largest length to that of a row.  Other processes do so, too: it is read
 * without the mutex, and changed under it.
 */
static void
NoteLength(GgScan *scan, const void *row)
{
	float		length = GgRowLength(scan->opclass, scan->meta, row);

	if (length > scan->meta->largest_length)
	{
		SpinLockAcquire(&scan->shared->mutex);
		scan->meta->largest_length = Max(scan->meta->largest_length, length);
		SpinLockRelease(&scan->shared->mutex);
	}
}

/* A row is left out, so that the index will not have this feature.  See NoteLength(). */
static void
NoteLeftOut(GgScan *scan, uint32 feature)
{
	if ((scan->meta->features & feature) != 0)
	{
		SpinLockAcquire(&scan->shared->mutex);
		scan->meta->features &= ~feature;
		SpinLockRelease(&scan->shared->mutex);
	}
}

/*
 * Add a value to the area, or to the duplicates of one that is there.  A value that is not indexed
 * is left out.  False when there is no room for duplicates.
 */
static bool
PlaceRow(GgScan *scan, const GgTidEntry *entry, Datum value, uint32 dimensions)
{
	GgArea	   *area;
	Size		nwords = scan->area->shared->filter_words;
	char	   *row;
	bool		indexed;
	uint32		first;
	MemoryContext old;

	/* the next round has another area */
	while (scan->area->next >= scan->area->end)
	{
		if (scan->area->base != NULL)
			ClaimChunk(scan);
		else
			GrowRows(scan);
	}
	area = scan->area;
	row = area->rows + area->next * area->shared->row_bytes;
	old = MemoryContextSwitchTo(scan->tuple_context);
	indexed = GgValueToRow(scan->opclass, scan->meta->element, value, dimensions, row);
	MemoryContextSwitchTo(old);
	if (!indexed)
	{
		NoteLeftOut(scan, GG_FEATURE_NO_ZERO);
		return true;
	}

	first = GgFindEqualRow(area, area->next);
	if (first != area->next)
	{
		if (!GgAddDuplicate(area, entry, scan->words, first))
			return false;
	}
	else
	{
		NoteLength(scan, row);
		memcpy(area->words + area->next * nwords, scan->words, nwords * sizeof(int64));
		area->tids[area->next++] = *entry;
	}
	scan->uncounted++;
	return true;
}

/* The callback of table_index_build_scan(). */
static void
AddRow(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool tupleIsAlive, void *arg)
{
	GgScan	   *scan = arg;
	GgMetaPageData *meta = scan->meta;
	MemoryContext old;
	Datum		value;
	uint32		dimensions;
	GgTidEntry	entry;

	/* PostgreSQL's scan looks for interrupts, but not for the postmaster */
	GgCheckInterrupts();
	if (isnull[0])
	{
		NoteLeftOut(scan, GG_FEATURE_NO_NULL);
		return;
	}

	old = MemoryContextSwitchTo(scan->tuple_context);
	value = PointerGetDatum(PG_DETOAST_DATUM(values[0]));
	dimensions = GgValueDimensions(scan->opclass, value);
	/* only a process that is alone may not know them before */
	if (meta->dimensions == 0)
		meta->dimensions = dimensions;
	if (dimensions != meta->dimensions)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("expected %u dimensions, not %u", meta->dimensions, dimensions),
				 errhint("Declare the column with its dimensions, "
						 "or index an expression that casts to them.")));
	entry.tid = *tid;
	entry.nulls = GgEncodeFilters(&scan->columns, values + 1, isnull + 1, scan->words);
	MemoryContextSwitchTo(old);

	/* again where there was no room for a duplicate: in the next segment the row may be none */
	while (!PlaceRow(scan, &entry, value, dimensions))
		WaitForRoom(scan);

	if (scan->uncounted >= PROGRESS_ROWS)
	{
		CountRows(scan);
		if (scan->plan != NULL)
		{
			ReportRows(scan);
			scan->look(scan->arg);
		}
	}
	MemoryContextReset(scan->tuple_context);
}

/* ---- begin and end ------------------------------------------------------------------ */

void
GgInitScanShared(GgScanShared *shared, int participants)
{
	memset(shared, 0, sizeof(*shared));
	shared->participants = participants;
	pg_atomic_init_u64(&shared->rows_done, 0);
	ConditionVariableInit(&shared->changed);
	SpinLockInit(&shared->mutex);
}

void
GgLeaveScan(GgScan *scan, double heap_rows)
{
	GgScanShared *shared = scan->shared;

	CountRows(scan);
	GgNoteHole(scan->area);
	SpinLockAcquire(&shared->mutex);
	if (scan->plan == NULL)
		shared->nscanned++;
	shared->heap_rows += heap_rows;
	shared->broken_hot_chain |= scan->indexInfo->ii_BrokenHotChain;
	SpinLockRelease(&shared->mutex);
	ConditionVariableBroadcast(&shared->changed);
}

void
GgScanHeap(GgScan *scan, TableScanDesc parallel_scan)
{
	const bool	tell = GgEvaluatesAsOwner(scan->index, scan->meta);
	GgRights	rights;
	double		heap_rows;

	if (tell)
	{
		GgFindRights(&rights, scan->index, scan->heap);
		GgTellRights(&rights);
	}
	heap_rows = table_index_build_scan(scan->heap, scan->index, scan->indexInfo, true, false,
									   AddRow, scan, parallel_scan);
	if (tell)
		GgTellNoRights(&rights);
	GgLeaveScan(scan, heap_rows);
}

void
GgEndScan(GgScan *scan)
{
	SpinLockAcquire(&scan->shared->mutex);
	scan->shared->done = true;
	SpinLockRelease(&scan->shared->mutex);
	GgWakeWriters(scan->writer);
}
