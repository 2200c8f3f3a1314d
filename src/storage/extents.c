/*
 * extents.c
 *		Blocks of the relation, taken and given back, as extents of a copy of the directory.
 *
 * The caller copies the directory and stores the copy under one exclusive lock of the metapage
 * (directory.c).  An error or a crash before that leaves the directory as it was, so blocks that
 * were taken are still free.
 */
#include "storage/extents.h"

#include "access/generic_xlog.h"
#include "access/xlog.h"
#include "storage/procarray.h"
#include "utils/snapmgr.h"

/* ---- extents ----------------------------------------------------------------------------- */

/*
 * The entries of one array must stay in order, so an extent that does not continue the array's
 * last one goes to the end of the directory.
 */
void
GgAddExtent(GgMetaPageData *meta, BlockNumber start, uint32 nblocks, uint32 segment, GgKind kind)
{
	uint64		first = kind == GG_KIND_DELTA ? meta->delta_first : 0;
	GgExtent   *extent;

	for (int i = meta->nextents - 1; i >= 0; i--)
	{
		extent = &meta->extents[i];
		if (extent->segment != segment || extent->kind != kind)
			continue;
		if (kind != GG_KIND_FREE && extent->start + extent->nblocks == start)
		{
			extent->nblocks += nblocks;
			return;
		}
		first = extent->first + extent->nblocks;
		break;
	}
	if (meta->nextents >= GG_MAX_EXTENTS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("gpugraph index has more than %d extents", GG_MAX_EXTENTS),
				 errhint("REINDEX the index.")));
	extent = &meta->extents[meta->nextents++];
	memset(extent, 0, sizeof(GgExtent));
	extent->start = start;
	extent->nblocks = nblocks;
	extent->segment = segment;
	extent->kind = kind;
	extent->first = first;
}

void
GgRemoveExtent(GgMetaPageData *meta, int i)
{
	memmove(&meta->extents[i], &meta->extents[i + 1], (meta->nextents - i - 1) * sizeof(GgExtent));
	meta->nextents--;
}

BlockNumber
GgHighWater(const GgMetaPageData *meta)
{
	BlockNumber high = GG_META_BLKNO + 1;

	for (int i = 0; i < meta->nextents; i++)
		high = Max(high, meta->extents[i].start + meta->extents[i].nblocks);
	return high;
}

static int
CompareStarts(const void *a, const void *b)
{
	const GgExtent *left = a;
	const GgExtent *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

/*
 * All FREE entries go to the end, and those that touch become one.  Extents with different parked
 * ids stay apart as long as the directory has room, so that the earlier one can be used earlier.
 * In a crowded directory they are merged, too: under an old snapshot each VACUUM parks more, and
 * its entries would fill the directory.
 */
void
GgMergeFree(GgMetaPageData *meta)
{
	GgExtent   *free = palloc(Max(meta->nextents, 1) * sizeof(GgExtent));
	bool		crowded = meta->nextents > GG_MAX_EXTENTS / 4;
	int			nfree = 0;
	int			kept = 0;

	for (int i = 0; i < meta->nextents; i++)
	{
		if (meta->extents[i].kind == GG_KIND_FREE)
			free[nfree++] = meta->extents[i];
		else
			meta->extents[kept++] = meta->extents[i];
	}
	qsort(free, nfree, sizeof(GgExtent), CompareStarts);
	meta->nextents = kept;
	for (int i = 0; i < nfree; i++)
	{
		GgExtent   *last = &meta->extents[meta->nextents - 1];

		if (meta->nextents > kept && last->start + last->nblocks == free[i].start &&
			(last->parked_xid == free[i].parked_xid ||
			 (crowded && last->parked_xid != 0 && free[i].parked_xid != 0)))
		{
			last->nblocks += free[i].nblocks;
			last->parked_xid = Max(last->parked_xid, free[i].parked_xid);
		}
		else
			meta->extents[meta->nextents++] = free[i];
	}
	pfree(free);
}

/* Make a run of an extent's pages FREE.  The rest of the extent keeps its place in the order. */
static void
FreePart(GgMetaPageData *meta, int i, uint64 first, uint32 npages, uint64 parked_xid)
{
	GgExtent	whole = meta->extents[i];
	uint32		before = (uint32) (first - whole.first);
	uint32		after = whole.nblocks - before - npages;
	int			parts = 1 + (before > 0) + (after > 0);
	GgExtent   *part = &meta->extents[i];

	if (meta->nextents + parts - 1 > GG_MAX_EXTENTS)
		elog(ERROR, "gpugraph directory has no room to free pages");
	memmove(part + parts, part + 1, (meta->nextents - i - 1) * sizeof(GgExtent));
	meta->nextents += parts - 1;
	if (before > 0)
	{
		*part = whole;
		part->nblocks = before;
		part++;
	}
	*part = whole;
	part->start += before;
	part->nblocks = npages;
	part->segment = GG_NO_SEGMENT;
	part->kind = GG_KIND_FREE;
	part->parked_xid = parked_xid;
	if (after > 0)
	{
		part++;
		*part = whole;
		part->start += before + npages;
		part->first += before + npages;
		part->nblocks = after;
	}
}

void
GgFreeDelta(GgMetaPageData *meta, uint32 first, uint32 npages, uint64 parked_xid)
{
	uint32		end = meta->delta_first + meta->delta_pages;
	bool		any = false;

	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];
		uint64		from = Max(extent->first, first);
		uint64		to = Min(extent->first + extent->nblocks, (uint64) first + npages);

		if (extent->kind == GG_KIND_DELTA && from < to)
			FreePart(meta, i, from, (uint32) (to - from), parked_xid);
	}
	for (int i = 0; i < meta->nextents && !any; i++)
	{
		any = meta->extents[i].kind == GG_KIND_DELTA;
		if (any)
			meta->delta_first = (uint32) meta->extents[i].first;
	}
	if (!any)
		meta->delta_first = end;
	meta->delta_pages = end - meta->delta_first;
}

static void
FreeExtent(GgExtent *extent, uint64 parked_xid)
{
	extent->segment = GG_NO_SEGMENT;
	extent->kind = GG_KIND_FREE;
	extent->parked_xid = parked_xid;
}

void
GgFreePiece(GgMetaPageData *meta, uint32 piece, uint64 parked_xid)
{
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].segment == piece && meta->extents[i].kind == GG_KIND_VECTORS)
			FreeExtent(&meta->extents[i], parked_xid);
	for (int i = 0; i < meta->npieces; i++)
		if (meta->pieces[i].id == piece)
		{
			memmove(&meta->pieces[i], &meta->pieces[i + 1],
					(meta->npieces - i - 1) * sizeof(GgPiece));
			meta->npieces--;
			break;
		}
}

void
GgFreeGraph(GgMetaPageData *meta, uint32 segment, uint64 parked_xid)
{
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].segment == segment && GgIsOfSegment(meta->extents[i].kind))
			FreeExtent(&meta->extents[i], parked_xid);
}

void
GgFreeSegment(GgMetaPageData *meta, uint32 segment, uint64 parked_xid)
{
	GgFreeGraph(meta, segment, parked_xid);
	for (int i = meta->npieces - 1; i >= 0; i--)
		if (meta->pieces[i].segment == segment)
			GgFreePiece(meta, meta->pieces[i].id, parked_xid);
}

/*
 * The metapage is locked exclusively, so whoever copied the old directory on this server has taken
 * its snapshot by now.  On a standby snapshots follow the old directory until our record is
 * replayed.  They see every transaction whose end comes before the record in WAL, and none of those
 * may have passed the id.
 *
 * While we have an id of our own, they see that we run, and do not pass it nor a later one.  The
 * next id would always do then, but snapshots pass it only after the next transaction.  They pass
 * our own id as soon as we are done.  Our own is enough only if no later id has been assigned:
 * here, snapshots and horizons leave out transactions that run VACUUM, so a snapshot taken after a
 * later transaction had ended has passed our id though we still run.
 *
 * Without an id of our own, transactions that begin now may end before our record.  So no id is
 * known before the record is in WAL.
 */
uint64
GgParkingXid(FullTransactionId own)
{
	FullTransactionId next = ReadNextFullTransactionId();
	FullTransactionId after = own;

	if (!FullTransactionIdIsValid(own))
		return GG_PARKED_UNKNOWN;
	FullTransactionIdAdvance(&after);
	return U64FromFullTransactionId(FullTransactionIdEquals(after, next) ? own : next);
}

/* The record that parked them is in WAL, so the next id is later than all that ended before it. */
void
GgSetParkedIds(GgMetaPageData *meta)
{
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_FREE &&
			meta->extents[i].parked_xid == GG_PARKED_UNKNOWN)
			meta->extents[i].parked_xid = U64FromFullTransactionId(ReadNextFullTransactionId());
}

/* ---- blocks ------------------------------------------------------------------------------ */

/*
 * Blocks are about to be overwritten, so the directory is checked first: a wrong one must not
 * destroy anything else.  A block outside the relation could be written by no checkpoint.
 */
static void
CheckFreeBlocks(Relation index, const GgMetaPageData *meta, BlockNumber start, uint32 nblocks)
{
	BlockNumber end = RelationGetNumberOfBlocks(index);
	int			holders = 0;

	for (int i = 0; i < meta->nextents; i++)
		holders += start < meta->extents[i].start + meta->extents[i].nblocks &&
			meta->extents[i].start < start + nblocks;
	if (start == GG_META_BLKNO || start >= end || nblocks > end - start || holders != 1)
		GgReportCorruption(index, GG_META_BLKNO, "block %u, which the directory calls free, is not",
						   start);
}

/* May a FREE extent be written?  If so, clears its parked id in meta. */
static bool
IsReusable(Relation index, Relation heap, GgExtent *extent)
{
	FullTransactionId xid = FullTransactionIdFromU64(extent->parked_xid);

	if (extent->parked_xid == 0)
		return true;
	if (!GlobalVisCheckRemovableFullXid(heap, xid))
		return false;

	/*
	 * Every snapshot here has passed the id.  Standbys that replay this record cancel queries whose
	 * snapshots have not.  One record is enough for the extent.
	 */
	if (RelationNeedsWAL(index) && XLogStandbyInfoActive())
		GgLogReuse(index, heap, extent->start, xid);
	extent->parked_xid = 0;
	return true;
}

/*
 * Find out anew which ids every snapshot has passed.  GlobalVisCheckRemovableFullXid() alone goes
 * by what this process knew when it last took a snapshot, and a merge's slices take none.  It takes
 * 0.1 us with 100 connections, 0.6 with 500.
 */
static void
UpdateHorizon(Relation heap)
{
	(void) GetOldestNonRemovableTransactionId(heap);
}

/* The first nblocks of FREE extent i are in use from now on. */
static BlockNumber
UseFree(GgMetaPageData *meta, int i, uint32 nblocks)
{
	GgExtent   *extent = &meta->extents[i];
	BlockNumber start = extent->start;

	extent->start += nblocks;
	extent->nblocks -= nblocks;
	if (extent->nblocks == 0)
		GgRemoveExtent(meta, i);
	return start;
}

/*
 * Blocks behind the high water mark are left where a crash came between the extension of the
 * relation and the change of the metapage.  They belong to nobody, and are taken before the
 * relation grows.  So a crash leaks nothing.  Returns the relation's length.
 */
static BlockNumber
CheckHighWater(Relation index, BlockNumber high)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(index);

	/* every extent was written once, so the relation has its blocks */
	if (high > nblocks)
		GgReportCorruption(index, GG_META_BLKNO, "the directory goes on to block %u of %u",
						   high - 1, nblocks);
	return nblocks;
}

/* Take a block from a FREE extent that may be written; false: there is none. */
static bool
UseAnyFree(Relation index, Relation heap, GgMetaPageData *meta, BlockNumber *blkno)
{
	/* extents in the metapage first: to change another one is to write directory pages */
	for (int n = 0; n < meta->nextents; n++)
	{
		int			i = (meta->nspilled + n) % meta->nextents;
		GgExtent   *extent = &meta->extents[i];

		if (extent->kind != GG_KIND_FREE || !IsReusable(index, heap, extent))
			continue;
		CheckFreeBlocks(index, meta, extent->start, 1);
		*blkno = UseFree(meta, i, 1);
		return true;
	}
	return false;
}

Buffer
GgAllocateBlock(Relation index, Relation heap, GgMetaPageData *meta, BlockNumber *blkno)
{
	Buffer		buffer;
	bool		found = UseAnyFree(index, heap, meta, blkno);

	if (!found)
	{
		UpdateHorizon(heap);
		found = UseAnyFree(index, heap, meta, blkno);
	}
	if (found)
		return ReadBufferExtended(index, MAIN_FORKNUM, *blkno, RBM_ZERO_AND_LOCK, NULL);

	*blkno = GgHighWater(meta);
	if (*blkno < CheckHighWater(index, *blkno))
		return ReadBufferExtended(index, MAIN_FORKNUM, *blkno, RBM_ZERO_AND_LOCK, NULL);
	buffer = GgExtendOne(index, MAIN_FORKNUM);
	if (BufferGetBlockNumber(buffer) != *blkno)
		elog(ERROR, "relation grew to block %u while its metapage was locked at %u",
			 BufferGetBlockNumber(buffer), *blkno);
	return buffer;
}

/*
 * Make the relation longer.  The last block is logged, because replay must make the relation as
 * long even where WAL ends before the pages' records.
 */
static void
Lengthen(Relation index, const GgMetaPageData *meta, uint32 owner, BlockNumber end)
{
	Buffer		buffer;
	GenericXLogState *xlog;

	GgAppendZeros(index, MAIN_FORKNUM, end);
	buffer = ReadBufferExtended(index, MAIN_FORKNUM, end - 1, RBM_ZERO_AND_LOCK, NULL);
	xlog = GenericXLogStart(index);
	GgInitPage(GenericXLogRegisterBuffer(xlog, buffer, GENERIC_XLOG_FULL_IMAGE), meta->instance,
			   owner, GG_KIND_TAKEN, 0);
	GenericXLogFinish(xlog);
	UnlockReleaseBuffer(buffer);
}

/* Give every FREE extent free that snapshots have passed, so that neighbours become one. */
static void
ReleaseParked(Relation index, Relation heap, GgMetaPageData *meta)
{
	UpdateHorizon(heap);
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_FREE)
			(void) IsReusable(index, heap, &meta->extents[i]);
	GgMergeFree(meta);
}

/*
 * The free extent that serves best: the one at `next`, where the array goes on; the smallest that
 * holds the rest of it; the largest.  -1: none of `least` blocks.
 */
static int
ChooseFree(const GgMetaPageData *meta, BlockNumber next, uint32 least, uint32 rest)
{
	int			best = -1;

	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];
		uint32		nblocks = extent->nblocks;
		uint32		of_best = best < 0 ? 0 : meta->extents[best].nblocks;

		if (extent->kind != GG_KIND_FREE || extent->parked_xid != 0)
			continue;
		if (extent->start == next)
			return i;
		if (nblocks >= least &&
			(nblocks >= rest ? of_best < rest || nblocks < of_best : nblocks > of_best))
			best = i;
	}
	return best;
}

/* Where the directory is half full, what is free is left to inserts. */
uint32
GgTakeBlocks(Relation index, Relation heap, GgMetaPageData *meta, const GgBlocksWanted *wanted,
			 BlockNumber *start)
{
	uint32		nblocks = wanted->most;
	int			best;

	ReleaseParked(index, heap, meta);
	best = ChooseFree(meta, wanted->next, wanted->least, wanted->rest);
	if (best >= 0 && meta->nextents < GG_MAX_EXTENTS / 2)
	{
		nblocks = Min(wanted->most, meta->extents[best].nblocks);
		CheckFreeBlocks(index, meta, meta->extents[best].start, nblocks);
		*start = UseFree(meta, best, nblocks);
	}
	else
	{
		*start = GgHighWater(meta);
		(void) CheckHighWater(index, *start);
		Lengthen(index, meta, wanted->owner, *start + nblocks);
	}
	GgAddExtent(meta, *start, nblocks, wanted->owner, GG_KIND_TAKEN);
	return nblocks;
}
