/*
 * vacuum.c
 *		VACUUM: clears the TIDs of dead rows, and gives back segments and delta pages without rows.
 *
 * Clearing changes TID pages and delta pages in place, under their exclusive lock.  A scan that
 * measured a row before reads its TID afterwards, under the share lock, and finds it gone.  No
 * interlock with scans is needed: a heap slot that is used again holds a row that no snapshot taken
 * before can see.
 *
 * Merges replace segments meanwhile (maintain/flip.c), and beside inserts they do so all the time.
 * So ambulkdelete() remembers by id which segments it has gone through.  Of those that came since
 * it began, it reads only what a merge may have copied before it was cleared.  maintain/README,
 * "Beside VACUUM", has the protocol and why it ends.  Horizons leave VACUUM out, so a page that it
 * comes to may by then be in use for something else, which its stamp tells.
 *
 * Giving back makes the blocks FREE extents, in one WAL record with the directory change.  They are
 * parked under a transaction id that no snapshot had passed by then (GgParkingXid).  So once all
 * snapshots have passed it, nobody follows the old directory any more.
 */
#include "am/am.h"
#include "maintain/merge.h"
#include "service/shared/settings.h"

#include "access/generic_xlog.h"
#include "access/table.h"
#include "access/xact.h"
#include "commands/vacuum.h"
#include "miscadmin.h"

/* A segment of the directory that was last looked at. */
typedef struct Visit
{
	uint32		id;
	bool		done;			/* it has no TID that the callback calls dead */
	bool		late;			/* it came since ambulkdelete() began */
} Visit;

typedef struct VacuumState
{
	Relation	index;
	BufferAccessStrategy strategy;
	IndexBulkDeleteResult *stats;
	IndexBulkDeleteCallback callback;
	void	   *callback_state;

	GgMetaPageData *meta;		/* the directory when last looked at */

	/* of ambulkdelete() */
	int			nvisits;
	Visit		visits[GG_MAX_SEGMENTS];	/* of all segments of meta */
	uint64		delta_first;	/* of meta */
	uint64		delta_end;		/* rows on pages from this one on came since it began */
	bool		delta_done;		/* the pages before delta_end were gone through */
	uint64		pages;			/* read */
	uint64		late_pages;		/* of these, pages of segments that came since it began */
} VacuumState;

/*
 * Clear dead TIDs on one page, which has count TIDs at the given stride.  Returns how many are
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
	}
	if (xlog != NULL)
		GenericXLogFinish(xlog);
	return cleared;
}

/* Read and lock a page by the directory last looked at.  False: that is outdated, the page gone. */
static bool
VacuumReadPage(VacuumState *state, const GgArray *array, uint64 number, int lockmode,
			   Buffer *buffer)
{
	return GgReadPageUnlessGone(state->index, state->meta, array, number, lockmode,
								state->strategy, buffer);
}

/* ---- the directory meanwhile ---------------------------------------------------------------- */

static Visit *
FindVisit(VacuumState *state, uint32 id)
{
	for (int i = 0; i < state->nvisits; i++)
		if (state->visits[i].id == id)
			return &state->visits[i];
	return NULL;
}

/*
 * state->meta is the directory in use, or was a moment ago.  Segments that came since the last look
 * were made of those that went, and of delta pages that did.  Where all of these were done, the new
 * ones are done, too: a merge looks at the flip whether its TIDs are older than what VACUUM
 * cleared.  Rows that were inserted since ambulkdelete() began are not dead.
 */
static void
FollowDirectory(VacuumState *state)
{
	const GgMetaPageData *meta = state->meta;
	Visit		visits[GG_MAX_SEGMENTS];
	bool		done = state->delta_done || GgDeltaFirst(meta) == state->delta_first;

	for (int i = 0; i < state->nvisits; i++)
		done &= state->visits[i].done || GgFindSegment(meta, state->visits[i].id) != NULL;
	for (int i = 0; i < meta->nsegments; i++)
	{
		const Visit *visit = FindVisit(state, meta->segments[i].id);

		visits[i] = visit != NULL ? *visit :
			(Visit) {.id = meta->segments[i].id, .done = done, .late = true};
	}
	memcpy(state->visits, visits, meta->nsegments * sizeof(Visit));
	state->nvisits = meta->nsegments;
	state->delta_first = GgDeltaFirst(meta);
}

static void
LookAgain(VacuumState *state)
{
	GgReadMeta(state->index, state->meta);
	FollowDirectory(state);
}

/* LookAgain(), and leave the metapage locked exclusively. */
static Buffer
LockDirectory(VacuumState *state)
{
	Buffer		buffer = GgLockDirectory(state->index, state->meta);

	FollowDirectory(state);
	return buffer;
}

/* VACUUM, parallel VACUUM and CREATE INDEX CONCURRENTLY hold a lock of the table. */
static void
StoreDirectory(VacuumState *state, Buffer buffer)
{
	Relation	heap = table_open(state->index->rd_index->indrelid, NoLock);

	GgStoreMeta(state->index, heap, buffer, state->meta);
	table_close(heap, NoLock);
}

/* ---- clearing ------------------------------------------------------------------------------- */

/*
 * A segment was gone through, and has so many cleared rows.  After a crash the directory may lag
 * behind the pages until the next VACUUM.  It never leads.
 */
static void
StoreSegmentDead(VacuumState *state, uint32 id, uint32 dead)
{
	Buffer		buffer = LockDirectory(state);
	Visit	   *visit = FindVisit(state, id);
	GgSegment  *segment = unconstify(GgSegment *, GgFindSegment(state->meta, id));

	if (visit != NULL)
		visit->done = true;
	if (segment != NULL && segment->dead != dead)
	{
		segment->dead = dead;
		StoreDirectory(state, buffer);
	}
	else
		UnlockReleaseBuffer(buffer);
}

/*
 * Clear dead TIDs of a segment, unless it goes meanwhile.  A segment that came meanwhile (late) is
 * read without delay, so that VACUUM is done with it before the next merge of it is: a merge reads
 * the same pages, and more.
 */
static void
VacuumSegment(VacuumState *state, uint32 id, bool late, bool last)
{
	const uint32 rows = GgFindSegment(state->meta, id)->rows;
	uint32		dead = 0;
	GgArray		array;

	GgFindArray(state->meta, id, GG_KIND_TIDS, &array);
	for (uint32 base = 0; base < rows; base += GG_TIDS_PER_PAGE)
	{
		Buffer		buffer;

		if (late)
			CHECK_FOR_INTERRUPTS();
		else
			GgVacuumDelayPoint();
		while (!VacuumReadPage(state, &array, base / GG_TIDS_PER_PAGE, BUFFER_LOCK_EXCLUSIVE,
							   &buffer))
		{
			LookAgain(state);
			if (FindVisit(state, id) == NULL)
				return;
		}
		dead += VacuumTids(state, buffer, Min(GG_TIDS_PER_PAGE, rows - base), sizeof(GgTidEntry));
		UnlockReleaseBuffer(buffer);
		state->pages++;
		state->late_pages += late;
	}
	GgHold(last ? GG_FAULT_HOLD_VACUUM_LAST : GG_FAULT_HOLD_VACUUM_SEGMENT);
	StoreSegmentDead(state, id, dead);
}

/*
 * Read and lock the next page of the delta where rows start, from *number on, before end.  False:
 * there is none.  Pages that were merged meanwhile, or given back before, are passed over.
 */
static bool
ReadDeltaPage(VacuumState *state, uint64 *number, uint64 end, int lockmode, Buffer *buffer)
{
	GgArray		array;

	GgFindArray(state->meta, GG_NO_SEGMENT, GG_KIND_DELTA, &array);
	while (*number < end)
	{
		if (GgArrayBlock(&array, *number) == InvalidBlockNumber)
		{
			*number += GgDeltaPagesPerRow(state->meta);
			continue;
		}
		GgVacuumDelayPoint();
		if (VacuumReadPage(state, &array, *number, lockmode, buffer))
			return true;
		LookAgain(state);
		GgFindArray(state->meta, GG_NO_SEGMENT, GG_KIND_DELTA, &array);
	}
	return false;
}

/*
 * The delta was gone through; dead has the cleared rows of each page since begin.  Cleared rows on
 * pages that a merge took meanwhile are not the delta's any more.
 */
static void
StoreDeltaDead(VacuumState *state, uint64 begin, const uint16 *dead, bool cleared)
{
	uint32		npages = GgDeltaPagesPerRow(state->meta);
	Buffer		buffer = LockDirectory(state);
	uint32		sum = 0;

	for (uint64 number = begin; number < state->delta_end; number += npages)
		if (number >= GgDeltaFirst(state->meta))
			sum += dead[(number - begin) / npages];
	state->delta_done = true;
	if (cleared || sum != state->meta->delta_dead)
	{
		state->meta->delta_dead = sum;
		state->meta->vacuum_epoch++;
		StoreDirectory(state, buffer);
	}
	else
		UnlockReleaseBuffer(buffer);
}

/* Clear dead TIDs of the delta's rows that were there when ambulkdelete() began. */
static void
VacuumDelta(VacuumState *state)
{
	const uint32 npages = GgDeltaPagesPerRow(state->meta);
	const uint64 begin = state->delta_first;
	const double removed = state->stats->tuples_removed;
	uint16	   *dead;
	Buffer		buffer;

	dead = MemoryContextAllocExtended(CurrentMemoryContext,
									  (state->delta_end - begin) / npages * sizeof(uint16),
									  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (uint64 number = begin;
		 ReadDeltaPage(state, &number, state->delta_end, BUFFER_LOCK_EXCLUSIVE, &buffer);
		 number += npages)
	{
		uint32		count = GgDeltaRowCount(state->index, state->meta, buffer);

		dead[(number - begin) / npages] =
			(uint16) VacuumTids(state, buffer, count, GgDeltaRowBytes(state->meta));
		UnlockReleaseBuffer(buffer);
		state->pages++;
	}
	GgHold(GG_FAULT_HOLD_VACUUM_DELTA);
	StoreDeltaDead(state, begin, dead, state->stats->tuples_removed > removed);
	pfree(dead);
}

/*
 * Choose the segment to be gone through next: the smallest.  So what merges replace most often is
 * done soon, and while the largest is read, all others are.  NULL: all are done.
 */
static const Visit *
NextVisit(const VacuumState *state, bool *last)
{
	int			next = -1;
	int			n = 0;

	for (int i = 0; i < state->nvisits; i++)
	{
		if (state->visits[i].done)
			continue;
		n++;
		if (next < 0 || state->meta->segments[i].rows < state->meta->segments[next].rows)
			next = i;
	}
	*last = n == 1;
	return next < 0 ? NULL : &state->visits[next];
}

IndexBulkDeleteResult *
ggbulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats, IndexBulkDeleteCallback callback,
			 void *callback_state)
{
	GgMetaPageData *meta = GgReadDirectory(info->index);
	VacuumState state = {.index = info->index, .strategy = info->strategy, .meta = meta};
	const Visit *visit;
	bool		last;

	if (stats == NULL)
		stats = (IndexBulkDeleteResult *) palloc0(sizeof(IndexBulkDeleteResult));
	state.stats = stats;
	state.callback = callback;
	state.callback_state = callback_state;

	for (int i = 0; i < meta->nsegments; i++)
		state.visits[state.nvisits++] = (Visit) {.id = meta->segments[i].id};
	state.delta_first = GgDeltaFirst(meta);
	state.delta_end = GgDeltaEnd(meta);
	state.delta_done = meta->delta_pages == 0;

	/* the delta first: what is sealed of it afterwards needs no visit */
	if (!state.delta_done)
		VacuumDelta(&state);
	while ((visit = NextVisit(&state, &last)) != NULL)
		VacuumSegment(&state, visit->id, visit->late, last);

	stats->num_index_tuples = (double) GgCountDeltaRows(info->index, meta) - meta->delta_dead;
	for (int i = 0; i < meta->nsegments; i++)
		stats->num_index_tuples += meta->segments[i].rows - meta->segments[i].dead;
	ereport(DEBUG1,
			(errmsg_internal("read " UINT64_FORMAT " pages of rows of gpugraph index \"%s\", "
							 UINT64_FORMAT " of them of segments that merges made meanwhile",
							 state.pages, RelationGetRelationName(info->index),
							 state.late_pages)));
	pfree(meta);
	return stats;
}

/* ---- giving back ----------------------------------------------------------------------- */

/* Delta pages whose rows are all cleared, with nothing but gaps between them. */
typedef struct DeadRun
{
	uint64		first;			/* number of the first page */
	uint64		end;			/* behind the last one */
	uint32		npages;			/* without the gaps */
} DeadRun;

/* Runs that FindDeadRuns() finds at most: each needs one more entry, or is a whole extent. */
#define MAX_RUNS			(2 * GG_MAX_EXTENTS)

/* Are all rows cleared that start on this delta page? */
static bool
AllRowsCleared(VacuumState *state, Buffer buffer)
{
	const GgMetaPageData *meta = state->meta;
	uint32		count = GgDeltaRowCount(state->index, meta, buffer);

	for (uint32 slot = 0; slot < count; slot++)
		if (ItemPointerIsValid(&GgDeltaRowOf(meta, BufferGetPage(buffer), slot)->tid))
			return false;
	return true;
}

/*
 * Add a run that has ended to those to be given back.  That adds an entry to the directory for the
 * rest of an extent on either side.  Where there is no room for entries, only whole extents are
 * given back; a run at the delta's front may use all the room there is.  A row longer than a page
 * may lie in two extents, and is given back as a whole.
 */
static void
EndRun(const GgMetaPageData *meta, const DeadRun *run, DeadRun *runs, int *nruns, int *room)
{
	uint32		pages_per_row = GgDeltaPagesPerRow(meta);
	bool		front = run->first == GgDeltaFirst(meta);
	DeadRun		whole = {0};
	uint32		npages = 0;
	int			added = 0;

	if (run->npages == 0 || *nruns == MAX_RUNS)
		return;
	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];
		uint64		end = extent->first + extent->nblocks;

		if (extent->kind != GG_KIND_DELTA || extent->first >= run->end || end <= run->first)
			continue;
		added += (extent->first < run->first) + (end > run->end);
		if (extent->first < run->first || end > run->end ||
			(npages == 0 && (extent->first - GgDeltaFirst(meta)) % pages_per_row != 0))
			continue;
		if (npages == 0)
			whole.first = extent->first;
		npages += extent->nblocks;
		if ((end - GgDeltaFirst(meta)) % pages_per_row != 0)
			continue;
		whole.end = end;
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
 * be about to lock them.  Gaps are to fill half of the directory at most.
 */
static void
FindDeadRuns(VacuumState *state, DeadRun *runs, int *nruns)
{
	GgMetaPageData *meta = state->meta;
	const uint32 npages = GgDeltaPagesPerRow(meta);
	const uint64 end = GgDeltaEnd(meta) - Min(npages, meta->delta_pages);
	int			room = GG_MAX_EXTENTS / 2 - meta->nextents;
	DeadRun		run = {0};
	Buffer		buffer;

	*nruns = 0;
	for (uint64 number = GgDeltaFirst(meta);
		 ReadDeltaPage(state, &number, end, BUFFER_LOCK_SHARE, &buffer); number += npages)
	{
		bool		dead = AllRowsCleared(state, buffer);

		UnlockReleaseBuffer(buffer);
		if (dead)
		{
			if (run.npages == 0)
				run.first = number;
			run.end = number + npages;
			run.npages += npages;
		}
		else
		{
			EndRun(meta, &run, runs, nruns, &room);
			run.npages = 0;
		}
	}
	EndRun(meta, &run, runs, nruns, &room);
}

/*
 * Which of the runs that were found can be given back by the directory in use?  A merge may have
 * taken pages from the delta's front meanwhile, and the directory may have less room.  Rows that
 * were cleared stay so, and the last row's pages were none of a run.
 */
static int
ChooseDeadRuns(const GgMetaPageData *meta, const DeadRun *found, int nfound, DeadRun *runs)
{
	int			room = GG_MAX_EXTENTS / 2 - meta->nextents;
	int			nruns = 0;

	for (int i = 0; i < nfound; i++)
	{
		DeadRun		run = {.first = Max(found[i].first, GgDeltaFirst(meta)), .end = found[i].end};

		for (int j = 0; j < meta->nextents; j++)
		{
			const GgExtent *extent = &meta->extents[j];
			uint64		from = Max(extent->first, run.first);
			uint64		to = Min(extent->first + extent->nblocks, run.end);

			if (extent->kind == GG_KIND_DELTA && from < to)
				run.npages += (uint32) (to - from);
		}
		EndRun(meta, &run, runs, &nruns, &room);
	}
	return nruns;
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
		GgFreeDelta(meta, runs[i].first, (uint32) (runs[i].end - runs[i].first), xid);
		meta->delta_dead -= Min(meta->delta_dead, runs[i].npages / GgDeltaPagesPerRow(meta) *
								GgDeltaRowsPerPage(meta));
	}
	GgMergeFree(meta);
	meta->generation++;
}

/* Has the directory segments without rows? */
static bool
HasDeadSegment(const GgMetaPageData *meta)
{
	for (int i = 0; i < meta->nsegments; i++)
		if (meta->segments[i].dead >= meta->segments[i].rows)
			return true;
	return false;
}

static void
GiveBack(VacuumState *state)
{
	Relation	index = state->index;
	GgMetaPageData *meta = GgReadDirectory(index);
	DeadRun	   *found = palloc(MAX_RUNS * sizeof(DeadRun));
	DeadRun	   *runs = palloc(MAX_RUNS * sizeof(DeadRun));
	int			nruns;
	FullTransactionId own;
	Buffer		buffer;

	state->meta = meta;
	FindDeadRuns(state, found, &nruns);
	if (nruns == 0 && !HasDeadSegment(meta))
		return;

	/* parallel mode does not allow to assign a transaction id */
	own = IsInParallelMode() ? InvalidFullTransactionId : GetTopFullTransactionId();

	GgHold(GG_FAULT_HOLD_GIVE_BACK);
	buffer = GgLockDirectory(index, meta);
	nruns = ChooseDeadRuns(meta, found, nruns, runs);
	if (nruns == 0 && !HasDeadSegment(meta))
	{
		/* merges have taken all of it */
		UnlockReleaseBuffer(buffer);
		return;
	}
	RemoveDead(meta, runs, nruns, GgParkingFault(GgParkingXid(own)));
	StoreDirectory(state, buffer);
}

IndexBulkDeleteResult *
ggvacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	if (info->analyze_only)
		return stats;

	if (stats == NULL)
	{
		/* nothing was deleted: count by the directory, and the delta by its pages */
		GgMetaPageData *meta = GgReadDirectory(info->index);

		stats = (IndexBulkDeleteResult *) palloc0(sizeof(IndexBulkDeleteResult));
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
