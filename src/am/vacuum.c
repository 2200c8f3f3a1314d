/*
 * vacuum.c
 *		VACUUM: clears the TIDs of dead rows, and gives back segments and delta pages without rows.
 *
 * Clearing changes TID pages and delta pages in place, under their exclusive lock.  A scan that
 * measured a row before reads its TID afterwards, under the share lock, and finds it gone.  No
 * interlock with scans is needed: a heap slot that is used again holds a row that no snapshot taken
 * before can see.
 *
 * Giving back makes the blocks FREE extents, in one WAL record with the directory change.  They are
 * parked under a transaction id that no snapshot had passed by then (ParkingXid).  So once all
 * snapshots have passed it, nobody follows the old directory any more.
 */
#include "am/am.h"
#include "storage/pages.h"
#include "storage/type.h"

#include "access/generic_xlog.h"
#include "access/xact.h"
#include "commands/vacuum.h"
#include "miscadmin.h"

/*
 * Entries of the directory that VACUUM leaves for inserts.  An insert takes one when it begins to
 * use a FREE extent.
 */
#define EXTENTS_FOR_INSERTS		32

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

static Buffer
VacuumReadPage(VacuumState *state, const GgMetaPageData *meta, const GgArray *array, uint32 number)
{
	GgVacuumDelayPoint();
	return GgReadPageExtended(state->index, meta->instance, array, number,
							  BUFFER_LOCK_EXCLUSIVE, state->strategy);
}

/*
 * Store new counts of cleared rows.  After a crash the directory may lag behind the pages until the
 * next VACUUM.  It never leads.
 */
static void
StoreDeadCounts(Relation index, const GgMetaPageData *seen, const uint32 *dead, uint32 delta_dead)
{
	GgMetaPageData *meta;
	Buffer		buffer = GgLockMeta(index, BUFFER_LOCK_EXCLUSIVE, &meta);
	GenericXLogState *xlog = GenericXLogStart(index);

	meta = GgPageGetMeta(GenericXLogRegisterBuffer(xlog, buffer, 0));
	for (int i = 0; i < seen->nsegments; i++)
		meta->segments[i].dead = dead[i];
	meta->delta_dead = delta_dead;
	meta->vacuum_epoch++;
	GenericXLogFinish(xlog);
	UnlockReleaseBuffer(buffer);
}

/* Clear dead TIDs of a segment, and return how many of its TIDs are clear. */
static uint32
VacuumSegment(VacuumState *state, const GgMetaPageData *meta, const GgSegment *segment)
{
	GgArray		array;
	uint32		dead = 0;

	GgFindArray(meta, segment->id, GG_KIND_TIDS, &array);
	for (uint32 base = 0; base < segment->rows; base += GG_TIDS_PER_PAGE)
	{
		Buffer		buffer = VacuumReadPage(state, meta, &array, base / GG_TIDS_PER_PAGE);

		dead += VacuumTids(state, buffer, Min(GG_TIDS_PER_PAGE, segment->rows - base),
						   sizeof(GgTidEntry));
		UnlockReleaseBuffer(buffer);
	}
	return dead;
}

/* The same for the delta. */
static uint32
VacuumDelta(VacuumState *state, const GgMetaPageData *meta)
{
	uint32		npages;
	GgArray		array;
	uint32		dead = 0;

	if (meta->delta_pages == 0)
		return 0;
	npages = GgDeltaPagesPerRow(meta);
	GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_DELTA, &array);
	for (uint32 i = 0; i < meta->delta_pages; i += npages)
	{
		Buffer		buffer = VacuumReadPage(state, meta, &array, meta->delta_first + i);
		uint32		count = GgDeltaRowCount(state->index, meta, buffer);

		dead += VacuumTids(state, buffer, count, GgDeltaRowBytes(meta));
		UnlockReleaseBuffer(buffer);
	}
	return dead;
}

IndexBulkDeleteResult *
ggbulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats, IndexBulkDeleteCallback callback,
			 void *callback_state)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	VacuumState state;
	uint32		dead[GG_MAX_SEGMENTS];
	uint32		delta_dead;
	bool		changed;

	if (stats == NULL)
		stats = (IndexBulkDeleteResult *) palloc0(sizeof(IndexBulkDeleteResult));
	stats->num_index_tuples = 0;

	state.index = info->index;
	state.strategy = info->strategy;
	state.stats = stats;
	state.callback = callback;
	state.callback_state = callback_state;

	GgReadMeta(info->index, meta);

	for (int i = 0; i < meta->nsegments; i++)
		dead[i] = VacuumSegment(&state, meta, &meta->segments[i]);
	delta_dead = VacuumDelta(&state, meta);

	changed = delta_dead != meta->delta_dead;
	for (int i = 0; i < meta->nsegments; i++)
		changed |= dead[i] != meta->segments[i].dead;
	if (changed)
		StoreDeadCounts(info->index, meta, dead, delta_dead);
	pfree(meta);
	return stats;
}

/*
 * Count the full pages at the delta's start whose rows are all cleared.  The last row's pages are
 * never given back, because an insert may be about to lock them.
 */
static uint32
DeadDeltaPages(Relation index, const GgMetaPageData *meta)
{
	uint32		npages;
	uint32		dead = 0;
	GgArray		array;

	if (meta->delta_pages == 0)
		return 0;
	npages = GgDeltaPagesPerRow(meta);
	GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_DELTA, &array);
	while (dead + npages < meta->delta_pages)
	{
		Buffer		buffer = GgReadPage(index, meta->instance, &array, meta->delta_first + dead,
										BUFFER_LOCK_SHARE);
		char	   *rows = PageGetContents(BufferGetPage(buffer));
		uint32		count = GgDeltaRowCount(index, meta, buffer);
		uint32		slot;

		for (slot = 0; slot < count; slot++)
			if (ItemPointerIsValid((ItemPointer) (rows + slot * GgDeltaRowBytes(meta))))
				break;
		UnlockReleaseBuffer(buffer);
		if (slot < count)
			break;
		dead += npages;
	}
	return dead;
}

/*
 * How many of the first npages pages of the delta can be given back?  Cutting an extent in two
 * takes one more entry of the directory.  Where inserts need the entries that are left, only pages
 * up to the end of both an extent and a row can go.
 */
static uint32
CuttablePages(const GgMetaPageData *meta, uint32 npages)
{
	uint32		whole = 0;
	uint32		sum = 0;

	if (npages == 0 || meta->nextents < GG_MAX_EXTENTS - EXTENTS_FOR_INSERTS)
		return npages;
	for (int i = 0; i < meta->nextents; i++)
	{
		if (meta->extents[i].kind != GG_KIND_DELTA)
			continue;
		sum += meta->extents[i].nblocks;
		if (sum > npages)
			break;
		if (sum % GgDeltaPagesPerRow(meta) == 0)
			whole = sum;
	}
	return whole;
}

/* Turn the first npages pages of the delta, which are cuttable, into FREE extents. */
static void
CutDelta(GgMetaPageData *meta, uint32 npages, uint64 xid)
{
	uint32		left = npages;

	if (npages == 0)
		return;
	for (int i = 0; i < meta->nextents && left > 0; i++)
	{
		GgExtent   *extent = &meta->extents[i];
		uint32		cut;

		if (extent->kind != GG_KIND_DELTA)
			continue;
		cut = Min(left, extent->nblocks);
		if (cut < extent->nblocks)
		{
			/* split: the freed part goes in front, and the rest keeps its place in the order */
			memmove(extent + 1, extent, (meta->nextents - i) * sizeof(GgExtent));
			meta->nextents++;
			extent[1].start += cut;
			extent[1].nblocks -= cut;
			extent->nblocks = cut;
		}
		extent->kind = GG_KIND_FREE;
		extent->parked_xid = xid;
		left -= cut;
	}
	meta->delta_first += npages;
	meta->delta_pages -= npages;
	meta->delta_dead -= Min(meta->delta_dead,
							npages / GgDeltaPagesPerRow(meta) * GgDeltaRowsPerPage(meta));
}

/*
 * Make one entry of FREE extents that touch.  An old snapshot forbids the use of what VACUUM gives
 * back under it.  Without this function each such VACUUM would add an entry, until the directory is
 * full.
 */
static void
MergeFree(GgMetaPageData *meta)
{
	for (int i = 0; i < meta->nextents; i++)
	{
		for (int j = 0; j < meta->nextents; j++)
		{
			GgExtent   *left = &meta->extents[i];
			GgExtent   *right = &meta->extents[j];

			if (left->kind != GG_KIND_FREE || right->kind != GG_KIND_FREE ||
				left->start + left->nblocks != right->start ||
				(left->parked_xid == 0) != (right->parked_xid == 0))
				continue;
			left->nblocks += right->nblocks;
			left->parked_xid = Max(left->parked_xid, right->parked_xid);
			memmove(right, right + 1, (meta->nextents - j - 1) * sizeof(GgExtent));
			meta->nextents--;
			if (j < i)
				i--;
			j = -1;				/* it may touch an entry seen before */
		}
	}
}

static void
ParkSegment(GgMetaPageData *meta, uint32 segment, uint64 xid)
{
	for (int i = 0; i < meta->nextents; i++)
	{
		GgExtent   *extent = &meta->extents[i];

		if (extent->segment != segment)
			continue;
		extent->segment = GG_NO_SEGMENT;
		extent->kind = GG_KIND_FREE;
		extent->parked_xid = xid;
	}
}

/*
 * The id that snapshots must have passed before blocks are used again.  The metapage is locked
 * exclusively, so whoever copied the old directory has taken its snapshot by now.
 *
 * The next id would always do, as in nbtree, but snapshots pass it only after the next transaction.
 * They pass our own as soon as we are done.  It does only if nobody has got an id since.
 * Snapshots and horizons leave out transactions that run VACUUM.  So a snapshot that was taken
 * after a later id had ended has passed ours, though we are still running.
 */
static uint64
ParkingXid(FullTransactionId own)
{
	FullTransactionId next = ReadNextFullTransactionId();

	if (FullTransactionIdIsValid(own))
	{
		FullTransactionId after = own;

		FullTransactionIdAdvance(&after);
		if (FullTransactionIdEquals(after, next))
			return U64FromFullTransactionId(own);
	}
	return U64FromFullTransactionId(next);
}

static void
GiveBack(Relation index)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	uint32		dead_pages;
	uint32		kept = 0;
	FullTransactionId own;
	uint64		xid;
	Buffer		buffer;
	GenericXLogState *xlog;
	bool		any;

	GgReadMeta(index, meta);
	dead_pages = DeadDeltaPages(index, meta);
	any = dead_pages > 0;
	for (int i = 0; i < meta->nsegments; i++)
		any |= meta->segments[i].dead >= meta->segments[i].rows;
	pfree(meta);
	if (!any)
		return;

	/* parallel mode forbids to assign one */
	own = IsInParallelMode() ? InvalidFullTransactionId : GetTopFullTransactionId();

	buffer = GgLockMeta(index, BUFFER_LOCK_EXCLUSIVE, &meta);
	GgCheckDirectory(index, meta);
	xid = ParkingXid(own);
	xlog = GenericXLogStart(index);
	meta = GgPageGetMeta(GenericXLogRegisterBuffer(xlog, buffer, 0));
	for (int i = 0; i < meta->nsegments; i++)
	{
		if (meta->segments[i].dead < meta->segments[i].rows)
			meta->segments[kept++] = meta->segments[i];
		else
			ParkSegment(meta, meta->segments[i].id, xid);
	}
	meta->nsegments = kept;
	CutDelta(meta, CuttablePages(meta, dead_pages), xid);
	MergeFree(meta);
	meta->generation++;
	GenericXLogFinish(xlog);
	UnlockReleaseBuffer(buffer);
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
		if (meta->delta_pages > 0)
		{
			stats->num_index_tuples +=
				(double) meta->delta_pages / GgDeltaPagesPerRow(meta) * GgDeltaRowsPerPage(meta);
			stats->estimated_count = true;
		}
		pfree(meta);
	}
	else
		GiveBack(info->index);
	stats->num_pages = RelationGetNumberOfBlocks(info->index);
	return stats;
}
