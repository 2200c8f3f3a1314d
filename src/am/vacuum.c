/*
 * vacuum.c
 *		VACUUM: clears the TIDs of dead rows, and gives back segments and delta pages without rows.
 *
 * Clearing changes TID pages and delta pages in place, under their exclusive lock.  A scan that
 * measured a row before reads its TID afterwards, under the share lock, and finds it gone.  No
 * interlock with scans is needed: a heap slot that is used again holds a row that no snapshot taken
 * before can see.
 *
 * A merge may replace segments meanwhile (merge/flip.c).  A merge's copy of the TIDs can be older
 * than what VACUUM cleared.  So each looks, under the metapage's exclusive lock, whether the other
 * was faster: VACUUM starts over where the generation has changed, and a merge reads the TIDs again
 * where the vacuum epoch has.  Horizons leave VACUUM out, so its pages may even be in use for
 * something else by then, which their stamps tell.
 *
 * Giving back makes the blocks FREE extents, in one WAL record with the directory change.  They are
 * parked under a transaction id that no snapshot had passed by then (GgParkingXid).  So once all
 * snapshots have passed it, nobody follows the old directory any more.
 */
#include "am/am.h"
#include "merge/merge.h"
#include "service/service.h"
#include "storage/type.h"

#include "access/generic_xlog.h"
#include "access/table.h"
#include "access/xact.h"
#include "commands/vacuum.h"
#include "miscadmin.h"

typedef struct VacuumState
{
	Relation	index;
	BufferAccessStrategy strategy;
	IndexBulkDeleteResult *stats;
	IndexBulkDeleteCallback callback;
	void	   *callback_state;
} VacuumState;

/*
 * Clear dead TIDs on one page, which has count of them at the given stride.  Returns how many are
 * clear after this visit.
 */
static uint32
VacuumTids(VacuumState *state, Buffer buffer, uint32 count, Size stride)
{
	GenericXLogState *xlog = NULL;
	Page		page = BufferGetPage(buffer);
	uint32		cleared = 0;

	/* GenericXLog clears what lies behind pd_lower */
	if (GgPayloadBytes(page) < (Size) (count - 1) * stride + sizeof(ItemPointerData))
		GgReportCorruption(state->index, BufferGetBlockNumber(buffer),
						   "%zu bytes do not hold %u rows", GgPayloadBytes(page), count);
	for (uint32 i = 0; i < count; i++)
	{
		ItemPointer tid = (ItemPointer) (PageGetContents(page) + i * stride);

		if (!ItemPointerIsValid(tid))
			cleared++;
		else if (state->callback(tid, state->callback_state))
		{
			if (xlog == NULL)
			{
				/* go on in the working copy, which has the same contents so far */
				xlog = GenericXLogStart(state->index);
				page = GenericXLogRegisterBuffer(xlog, buffer, 0);
				tid = (ItemPointer) (PageGetContents(page) + i * stride);
			}
			ItemPointerSetInvalid(tid);
			cleared++;
			state->stats->tuples_removed++;
		}
		else
			state->stats->num_index_tuples++;
	}
	if (xlog != NULL)
		GenericXLogFinish(xlog);
	return cleared;
}

/* VACUUM, parallel VACUUM and CREATE INDEX CONCURRENTLY hold a lock of the table. */
static Relation
OpenHeap(Relation index)
{
	return table_open(index->rd_index->indrelid, NoLock);
}

static bool
VacuumReadPage(VacuumState *state, const GgMetaPageData *meta, const GgArray *array, uint32 number,
			   int lockmode, Buffer *buffer)
{
	GgVacuumDelayPoint();
	return GgReadPageUnlessGone(state->index, meta, array, number, lockmode, state->strategy,
								buffer);
}

/*
 * Store new counts of cleared rows.  After a crash the directory may lag behind the pages until the
 * next VACUUM.  It never leads.  False where another generation is in use by now.
 */
static bool
StoreDeadCounts(Relation index, const GgMetaPageData *seen, const uint32 *dead, uint32 delta_dead)
{
	GgMetaPageData *meta;
	Buffer		buffer = GgLockMeta(index, BUFFER_LOCK_EXCLUSIVE, &meta);
	Relation	heap;

	if (meta->generation != seen->generation)
	{
		UnlockReleaseBuffer(buffer);
		return false;
	}
	meta = palloc(sizeof(GgMetaPageData));
	GgCopyMeta(index, buffer, meta);
	for (int i = 0; i < seen->nsegments; i++)
		meta->segments[i].dead = dead[i];
	meta->delta_dead = delta_dead;
	meta->vacuum_epoch++;
	heap = OpenHeap(index);
	GgStoreMeta(index, heap, buffer, meta);
	table_close(heap, NoLock);
	pfree(meta);
	return true;
}

/* Clear dead TIDs of a segment, and count its TIDs that are clear.  False: it is gone. */
static bool
VacuumSegment(VacuumState *state, const GgMetaPageData *meta, const GgSegment *segment,
			  uint32 *dead)
{
	GgArray		array;

	*dead = 0;
	GgFindArray(meta, segment->id, GG_KIND_TIDS, &array);
	for (uint32 base = 0; base < segment->rows; base += GG_TIDS_PER_PAGE)
	{
		Buffer		buffer;

		if (!VacuumReadPage(state, meta, &array, base / GG_TIDS_PER_PAGE, BUFFER_LOCK_EXCLUSIVE,
							&buffer))
			return false;
		*dead += VacuumTids(state, buffer, Min(GG_TIDS_PER_PAGE, segment->rows - base),
							sizeof(GgTidEntry));
		UnlockReleaseBuffer(buffer);
	}
	return true;
}

/* The same for the delta. */
static bool
VacuumDelta(VacuumState *state, const GgMetaPageData *meta, uint32 *dead)
{
	uint32		npages;
	GgArray		array;

	*dead = 0;
	if (meta->delta_pages == 0)
		return true;
	npages = GgDeltaPagesPerRow(meta);
	GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_DELTA, &array);
	for (uint32 i = 0; i < meta->delta_pages; i += npages)
	{
		uint32		number = meta->delta_first + i;
		uint32		count;
		Buffer		buffer;

		if (GgArrayBlock(&array, number) == InvalidBlockNumber)
			continue;			/* given back before */
		if (!VacuumReadPage(state, meta, &array, number, BUFFER_LOCK_EXCLUSIVE, &buffer))
			return false;
		count = GgDeltaRowCount(state->index, meta, buffer);
		*dead += VacuumTids(state, buffer, count, GgDeltaRowBytes(meta));
		UnlockReleaseBuffer(buffer);
	}
	return true;
}

/*
 * Clear the TIDs of one generation.  False: another one is in use by now, and is to be gone through
 * instead.
 */
static bool
VacuumGeneration(VacuumState *state, GgMetaPageData *meta)
{
	uint32		dead[GG_MAX_SEGMENTS];
	uint32		delta_dead;
	bool		changed;

	state->stats->num_index_tuples = 0;
	GgReadMeta(state->index, meta);
	for (int i = 0; i < meta->nsegments; i++)
		if (!VacuumSegment(state, meta, &meta->segments[i], &dead[i]))
			return false;
	if (!VacuumDelta(state, meta, &delta_dead))
		return false;

	changed = delta_dead != meta->delta_dead;
	for (int i = 0; i < meta->nsegments; i++)
		changed |= dead[i] != meta->segments[i].dead;
	if (changed)
		return StoreDeadCounts(state->index, meta, dead, delta_dead);
	return !GgHasNewGeneration(state->index, meta);
}

IndexBulkDeleteResult *
ggbulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats, IndexBulkDeleteCallback callback,
			 void *callback_state)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	VacuumState state;

	if (stats == NULL)
		stats = (IndexBulkDeleteResult *) palloc0(sizeof(IndexBulkDeleteResult));

	state.index = info->index;
	state.strategy = info->strategy;
	state.stats = stats;
	state.callback = callback;
	state.callback_state = callback_state;

	while (!VacuumGeneration(&state, meta))
		GgVacuumDelayPoint();
	pfree(meta);
	return stats;
}

/* ---- giving back ----------------------------------------------------------------------- */

/* Delta pages whose rows are all cleared, with nothing but gaps between them. */
typedef struct DeadRun
{
	uint32		first;			/* number of the first page */
	uint32		end;			/* behind the last one */
	uint32		npages;			/* without the gaps */
} DeadRun;

/* Runs that FindDeadRuns() finds at most: each needs one more entry, or is a whole extent. */
#define MAX_RUNS			(2 * GG_MAX_EXTENTS)

/* Are all rows cleared that start on this delta page? */
static bool
AllRowsCleared(VacuumState *state, const GgMetaPageData *meta, Buffer buffer)
{
	char	   *rows = PageGetContents(BufferGetPage(buffer));
	uint32		count = GgDeltaRowCount(state->index, meta, buffer);

	for (uint32 slot = 0; slot < count; slot++)
		if (ItemPointerIsValid((ItemPointer) (rows + slot * GgDeltaRowBytes(meta))))
			return false;
	return true;
}

/*
 * A run has ended.  Giving it back adds an entry to the directory for the rest of an extent on
 * either side.  Where there is no room for entries, only whole extents are given back; a run at the
 * delta's front may use all the room there is.  A row longer than a page may lie in two extents,
 * and is given back as a whole.
 */
static void
EndRun(const GgMetaPageData *meta, const DeadRun *run, DeadRun *runs, int *nruns, int *room)
{
	uint32		pages_per_row = GgDeltaPagesPerRow(meta);
	bool		front = run->first == meta->delta_first;
	DeadRun		whole = {0};
	uint32		npages = 0;
	int			added = 0;

	if (run->npages == 0)
		return;
	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];
		uint64		end = extent->first + extent->nblocks;

		if (extent->kind != GG_KIND_DELTA || extent->first >= run->end || end <= run->first)
			continue;
		added += (extent->first < run->first) + (end > run->end);
		if (extent->first < run->first || end > run->end ||
			(npages == 0 && (extent->first - meta->delta_first) % pages_per_row != 0))
			continue;
		if (npages == 0)
			whole.first = (uint32) extent->first;
		npages += extent->nblocks;
		if ((end - meta->delta_first) % pages_per_row != 0)
			continue;
		whole.end = (uint32) end;
		whole.npages = npages;
	}
	if (added <= *room + (front ? GG_MAX_EXTENTS / 2 - GG_MAX_DIRECTORY_PAGES : 0))
	{
		*room -= added;
		runs[(*nruns)++] = *run;
	}
	else if (whole.npages > 0)
		runs[(*nruns)++] = whole;
}

/*
 * Find what can be given back of the delta.  The last row's pages never can, because an insert may
 * be about to lock them.  Gaps are to fill half of the directory at most.  False: the generation is
 * over.
 */
static bool
FindDeadRuns(VacuumState *state, const GgMetaPageData *meta, DeadRun *runs, int *nruns)
{
	uint32		npages;
	int			room = GG_MAX_EXTENTS / 2 - meta->nextents;
	DeadRun		run = {0};
	GgArray		array;

	*nruns = 0;
	if (meta->delta_pages == 0)
		return true;
	npages = GgDeltaPagesPerRow(meta);
	GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_DELTA, &array);
	for (uint32 i = 0; i + npages < meta->delta_pages; i += npages)
	{
		uint32		number = meta->delta_first + i;
		Buffer		buffer;
		bool		dead;

		if (GgArrayBlock(&array, number) == InvalidBlockNumber)
			continue;
		if (!VacuumReadPage(state, meta, &array, number, BUFFER_LOCK_SHARE, &buffer))
			return false;
		dead = AllRowsCleared(state, meta, buffer);
		UnlockReleaseBuffer(buffer);
		if (!dead)
		{
			EndRun(meta, &run, runs, nruns, &room);
			run.npages = 0;
			continue;
		}
		if (run.npages == 0)
			run.first = number;
		run.end = number + npages;
		run.npages += npages;
	}
	EndRun(meta, &run, runs, nruns, &room);
	return true;
}

/* Take segments without rows out of the directory, and the runs out of the delta. */
static void
RemoveDead(GgMetaPageData *meta, const DeadRun *runs, int nruns, uint64 xid)
{
	int			kept = 0;

	for (int i = 0; i < meta->nsegments; i++)
	{
		if (meta->segments[i].dead < meta->segments[i].rows)
			meta->segments[kept++] = meta->segments[i];
		else
			GgFreeSegment(meta, meta->segments[i].id, xid);
	}
	meta->nsegments = kept;
	for (int i = 0; i < nruns; i++)
	{
		GgFreeDelta(meta, runs[i].first, runs[i].end - runs[i].first, xid);
		meta->delta_dead -= Min(meta->delta_dead, runs[i].npages / GgDeltaPagesPerRow(meta) *
								GgDeltaRowsPerPage(meta));
	}
	GgMergeFree(meta);
	meta->generation++;
}

static void
GiveBack(VacuumState *state)
{
	Relation	index = state->index;
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	DeadRun	   *runs = palloc((MAX_RUNS + 1) * sizeof(DeadRun));
	int			nruns;
	FullTransactionId own;
	uint64		generation;
	GgMetaPageData *head;
	Buffer		buffer;
	Relation	heap;
	bool		any;

	GgReadMeta(index, meta);
	any = FindDeadRuns(state, meta, runs, &nruns) && nruns > 0;
	for (int i = 0; i < meta->nsegments; i++)
		any |= meta->segments[i].dead >= meta->segments[i].rows;
	if (!any)
		return;

	/* parallel mode does not allow to assign one */
	own = IsInParallelMode() ? InvalidFullTransactionId : GetTopFullTransactionId();

	generation = meta->generation;
	buffer = GgLockMeta(index, BUFFER_LOCK_EXCLUSIVE, &head);
	if (head->generation != generation)
	{
		/* a merge has done so, or the next VACUUM will */
		UnlockReleaseBuffer(buffer);
		return;
	}
	GgCopyMeta(index, buffer, meta);
	RemoveDead(meta, runs, nruns, GgParkingFault(GgParkingXid(own)));
	heap = OpenHeap(index);
	GgStoreMeta(index, heap, buffer, meta);
	table_close(heap, NoLock);
}

IndexBulkDeleteResult *
ggvacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	if (info->analyze_only)
		return stats;

	if (stats == NULL)
	{
		/* nothing was deleted: count by the directory, and the delta by its pages */
		GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));

		stats = (IndexBulkDeleteResult *) palloc0(sizeof(IndexBulkDeleteResult));
		GgReadMeta(info->index, meta);
		for (int i = 0; i < meta->nsegments; i++)
			stats->num_index_tuples += meta->segments[i].rows - meta->segments[i].dead;
		stats->num_index_tuples += (double) GgDeltaSlots(meta);
		stats->estimated_count = meta->delta_pages > 0;
		pfree(meta);
	}
	else
	{
		VacuumState state = {.index = info->index, .strategy = info->strategy};

		GiveBack(&state);
	}
	GgMaintainAfterVacuum(info->index);
	stats->num_pages = RelationGetNumberOfBlocks(info->index);
	return stats;
}
