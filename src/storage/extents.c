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
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/snapmgr.h"

/*
 * Free blocks behind the delta's last page are left to it: a part of the relation, so that a longer
 * one does not have more of the delta's runs per GB; at most 1 GB.
 */
#define DELTA_SHARE			256
#define LEAST_DELTA_RUN		16
#define MOST_DELTA_RUN		((uint32) (1024 * 1024 * 1024 / BLCKSZ))

/* Arrays get no free run shorter than this part of the relation, but for their rest. */
#define RUN_SHARE			4096

/* FREE entries that may stay apart though they touch. */
#define MOST_APART			(GG_MAX_EXTENTS / 16)

/* ---- extents ----------------------------------------------------------------------------- */

/*
 * The entries of one array must stay in order, so an extent that does not continue the array's
 * last one goes to the end of the directory.
 */
void
GgAddExtent(GgMetaPageData *meta, BlockNumber start, uint32 nblocks, uint32 segment, GgKind kind)
{
	uint64		first = kind == GG_KIND_DELTA ? GgDeltaFirst(meta) : 0;
	GgExtent   *extent;

	for (int i = meta->nextents - 1; i >= 0 && kind != GG_KIND_FREE; i--)
	{
		extent = &meta->extents[i];
		if (extent->segment != segment || extent->kind != kind)
			continue;
		if (extent->start + extent->nblocks == start)
		{
			extent->nblocks += nblocks;
			return;
		}
		first = extent->first + extent->nblocks;
		break;
	}
	if (meta->nextents >= GG_ALL_EXTENTS)
		elog(ERROR, "gpugraph directory has no room for an extent");
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

BlockNumber
GgForgetTail(GgMetaPageData *meta)
{
	for (;;)
	{
		BlockNumber high = GgHighWater(meta);
		int			last = -1;

		for (int i = 0; i < meta->nextents && last < 0; i++)
			if (meta->extents[i].start + meta->extents[i].nblocks == high)
				last = i;
		if (last < 0 || meta->extents[last].kind != GG_KIND_FREE ||
			meta->extents[last].parked_xid != 0)
			return high;
		GgRemoveExtent(meta, last);
	}
}

int
GgCompareStarts(const void *a, const void *b)
{
	const GgExtent *left = a;
	const GgExtent *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

/* All FREE entries go to the end, in the order of their blocks.  Returns the first one's place. */
static int
SortFree(GgMetaPageData *meta)
{
	GgExtent   *free = palloc(Max(meta->nextents, 1) * sizeof(GgExtent));
	int			nfree = 0;
	int			kept = 0;

	for (int i = 0; i < meta->nextents; i++)
	{
		if (meta->extents[i].kind == GG_KIND_FREE)
			free[nfree++] = meta->extents[i];
		else
			meta->extents[kept++] = meta->extents[i];
	}
	qsort(free, nfree, sizeof(GgExtent), GgCompareStarts);
	memcpy(&meta->extents[kept], free, nfree * sizeof(GgExtent));
	pfree(free);
	return kept;
}

/*
 * May the FREE entries i and i + 1 become one: do they touch?  *distance: of their parked ids.
 * What is free at once is not parked again.
 */
static bool
CanJoin(const GgMetaPageData *meta, int i, uint64 *distance)
{
	const GgExtent *left = &meta->extents[i];
	const GgExtent *right = left + 1;

	*distance = Max(left->parked_xid, right->parked_xid) -
		Min(left->parked_xid, right->parked_xid);
	return left->start + left->nblocks == right->start &&
		(*distance == 0 || (left->parked_xid != 0 && right->parked_xid != 0));
}

/* Make one of the FREE entries i and i + 1, which touch, under the later parked id. */
static void
JoinFree(GgMetaPageData *meta, int i)
{
	GgExtent   *extent = &meta->extents[i];

	extent->nblocks += extent[1].nblocks;
	extent->parked_xid = Max(extent->parked_xid, extent[1].parked_xid);
	GgRemoveExtent(meta, i + 1);
}

/*
 * Of the sorted FREE entries from first on, join two with the nearest parked ids.  False: no two
 * may become one.  Where all were joined that touch, what is parked again and again beside what was
 * parked just before would grow under the latest id, and never be free.
 */
static bool
JoinNearest(GgMetaPageData *meta, int first)
{
	uint64		least = 0;
	int			best = -1;

	for (int i = first; i + 1 < meta->nextents; i++)
	{
		uint64		distance;

		if (!CanJoin(meta, i, &distance) || (best >= 0 && distance >= least))
			continue;
		least = distance;
		best = i;
	}
	if (best >= 0)
		JoinFree(meta, best);
	return best >= 0;
}

/*
 * FREE entries that touch become one.  Some with different parked ids stay apart, so that the
 * earlier one can be used earlier.  Under an old snapshot each merge and each VACUUM parks more,
 * and all of them would fill the directory.  GG_PARKED_UNKNOWN is the greatest id, so what is
 * joined with blocks without an id has none either.
 */
void
GgMergeFree(GgMetaPageData *meta)
{
	int			first = SortFree(meta);
	uint64		distance;

	for (int i = meta->nextents - 2; i >= first; i--)
		if (CanJoin(meta, i, &distance) && distance == 0)
			JoinFree(meta, i);
	while (meta->nextents - first > MOST_APART && JoinNearest(meta, first))
		;
}

/* The parts keep the extent's place in the order. */
GgExtent *
GgCutExtent(GgMetaPageData *meta, int i, uint32 before, uint32 nblocks)
{
	GgExtent	whole = meta->extents[i];
	uint32		after = whole.nblocks - before - nblocks;
	bool		numbered = whole.kind != GG_KIND_FREE;
	int			parts = 1 + (before > 0) + (after > 0);
	GgExtent   *part = &meta->extents[i];
	GgExtent   *cut;

	if (meta->nextents + parts - 1 > GG_ALL_EXTENTS)
		elog(ERROR, "gpugraph directory has no room for parts of an extent");
	memmove(part + parts, part + 1, (meta->nextents - i - 1) * sizeof(GgExtent));
	meta->nextents += parts - 1;
	if (before > 0)
	{
		*part = whole;
		part->nblocks = before;
		part++;
	}
	cut = part;
	*cut = whole;
	cut->start += before;
	cut->nblocks = nblocks;
	if (numbered)
		cut->first += before;
	if (after > 0)
	{
		part++;
		*part = whole;
		part->start += before + nblocks;
		part->nblocks = after;
		if (numbered)
			part->first += before + nblocks;
	}
	return cut;
}

static void
FreeExtent(GgExtent *extent, uint64 parked_xid)
{
	extent->segment = GG_NO_SEGMENT;
	extent->kind = GG_KIND_FREE;
	extent->parked_xid = parked_xid;
}

static void
SetDeltaFirst(GgMetaPageData *meta, uint64 first)
{
	meta->delta_low = (uint32) first;
	meta->delta_high = (uint16) (first >> 32);
	if (meta->delta_high != 0)
		meta->version = GG_FORMAT_VERSION;
}

void
GgFreeDelta(GgMetaPageData *meta, uint64 first, uint32 npages, uint64 parked_xid)
{
	uint64		end = GgDeltaEnd(meta);
	uint64		front = end;
	bool		any = false;

	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];
		uint64		from = Max(extent->first, first);
		uint64		to = Min(extent->first + extent->nblocks, first + npages);

		if (extent->kind == GG_KIND_DELTA && from < to)
			FreeExtent(GgCutExtent(meta, i, (uint32) (from - extent->first),
								   (uint32) (to - from)), parked_xid);
	}
	for (int i = 0; i < meta->nextents && !any; i++)
	{
		any = meta->extents[i].kind == GG_KIND_DELTA;
		if (any)
			front = meta->extents[i].first;
	}
	SetDeltaFirst(meta, front);
	meta->delta_pages = (uint32) (end - front);
}

void
GgFreeArray(GgMetaPageData *meta, uint32 segment, GgKind kind, uint64 parked_xid)
{
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].segment == segment && meta->extents[i].kind == kind)
			FreeExtent(&meta->extents[i], parked_xid);
}

void
GgFreePiece(GgMetaPageData *meta, uint32 piece, uint64 parked_xid)
{
	GgFreeArray(meta, piece, GG_KIND_VECTORS, parked_xid);
	GgFreeArray(meta, piece, GG_KIND_CODES, parked_xid);
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
GgFreeCodes(GgMetaPageData *meta)
{
	for (int i = 0; i < meta->npieces; i++)
	{
		GgFreeArray(meta, meta->pieces[i].id, GG_KIND_CODES, 0);
		meta->pieces[i].codes = GG_CODES_NONE;
	}
	GgFreeArray(meta, GG_NO_SEGMENT, GG_KIND_MEAN, 0);
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

/* The extents' record is in WAL, so the next id is later than all that ended before the record. */
void
GgSetParkedIds(GgMetaPageData *meta)
{
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_FREE &&
			meta->extents[i].parked_xid == GG_PARKED_UNKNOWN)
			meta->extents[i].parked_xid = U64FromFullTransactionId(ReadNextFullTransactionId());
}

/* ---- blocks ------------------------------------------------------------------------------ */

/* A block outside the relation could be written by no checkpoint. */
void
GgCheckFreeBlocks(Relation index, const GgMetaPageData *meta, BlockNumber start, uint32 nblocks)
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

/* May a snapshot still need what a FREE extent holds? */
static bool
IsParked(Relation heap, const GgExtent *extent)
{
	return extent->parked_xid != 0 &&
		!GlobalVisCheckRemovableFullXid(heap, FullTransactionIdFromU64(extent->parked_xid));
}

/* May a FREE extent be written?  If so, clears its parked id in meta. */
static bool
IsReusable(Relation index, Relation heap, GgExtent *extent)
{
	FullTransactionId xid = FullTransactionIdFromU64(extent->parked_xid);

	if (extent->parked_xid == 0)
		return true;
	if (IsParked(heap, extent))
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
 * by what this process knew when it last took a snapshot, and a merge's slices take none.  To find
 * out takes 0.1 us with 100 connections, 0.6 with 500.
 */
static void
UpdateHorizon(Relation heap)
{
	(void) GetOldestNonRemovableTransactionId(heap);
}

uint64
GgParkedBlocks(Relation heap, const GgMetaPageData *meta)
{
	uint64		n = 0;

	UpdateHorizon(heap);
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_FREE && IsParked(heap, &meta->extents[i]))
			n += meta->extents[i].nblocks;
	return n;
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

/* The last nblocks of FREE extent i are in use from now on. */
static BlockNumber
UseFreeEnd(GgMetaPageData *meta, int i, uint32 nblocks)
{
	GgExtent   *extent = &meta->extents[i];
	BlockNumber start = extent->start + extent->nblocks - nblocks;

	extent->nblocks -= nblocks;
	if (extent->nblocks == 0)
		GgRemoveExtent(meta, i);
	return start;
}

/*
 * Blocks behind the high water mark are left where an error, a crash or a cancelled merge came
 * between the extension of the relation and the change of the metapage.  They belong to nobody, and
 * are taken before the relation grows.  So none is lost.
 */
BlockNumber
GgCheckHighWater(Relation index, BlockNumber high)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(index);

	/* every extent was written once, so the relation has its blocks */
	if (high > nblocks)
		GgReportCorruption(index, GG_META_BLKNO, "the directory goes on to block %u of %u",
						   high - 1, nblocks);
	return nblocks;
}

/* The last block that PostgreSQL allows has no place in an extent, whose end would not be valid. */
void
GgCheckLength(Relation index, uint64 nblocks)
{
	if (nblocks > MaxBlockNumber)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("index \"%s\" cannot have more than %u blocks",
						RelationGetRelationName(index), MaxBlockNumber),
				 errhint("REINDEX the index, which leaves out free blocks, "
						 "or partition the table.")));
}

/* The block behind the delta's last one; InvalidBlockNumber: there is none. */
static BlockNumber
BehindDelta(const GgMetaPageData *meta)
{
	for (int i = meta->nextents - 1; i >= 0; i--)
		if (meta->extents[i].kind == GG_KIND_DELTA)
			return meta->extents[i].start + meta->extents[i].nblocks;
	return InvalidBlockNumber;
}

/* Take the first or the last block of FREE extent i, unless it may not be written yet. */
static bool
UseOne(Relation index, Relation heap, GgMetaPageData *meta, int i, bool last, BlockNumber *blkno)
{
	GgExtent   *extent = &meta->extents[i];

	if (extent->kind != GG_KIND_FREE || !IsReusable(index, heap, extent))
		return false;
	GgCheckFreeBlocks(index, meta, last ? extent->start + extent->nblocks - 1 : extent->start, 1);
	*blkno = last ? UseFreeEnd(meta, i, 1) : UseFree(meta, i, 1);
	return true;
}

/* Is the end of extent i the lowest free block but for a few that are left to the delta? */
static bool
IsLowest(const GgMetaPageData *meta, int i)
{
	for (int j = 0; j < meta->nextents; j++)
		if (meta->extents[j].kind == GG_KIND_FREE && meta->extents[j].parked_xid == 0 &&
			meta->extents[j].start < meta->extents[i].start)
			return false;
	return meta->extents[i].nblocks > GG_MAX_DIRECTORY_PAGES;
}

/*
 * Take a block from a FREE extent that may be written; false: there is none.  The delta goes on
 * behind its last page if it can, which adds no entry.  Others leave it that room if they can, but
 * for directory pages, which are not to keep the relation from becoming shorter.
 */
static bool
UseAnyFree(Relation index, Relation heap, GgMetaPageData *meta, GgKind kind, BlockNumber *blkno)
{
	BlockNumber next = BehindDelta(meta);
	int			behind = -1;

	for (int i = 0; i < meta->nextents && behind < 0; i++)
		if (meta->extents[i].kind == GG_KIND_FREE && meta->extents[i].start == next)
			behind = i;
	if (behind >= 0 && kind == GG_KIND_DELTA && UseOne(index, heap, meta, behind, false, blkno))
		return true;
	if (behind >= 0 && kind == GG_KIND_DIRECTORY && IsLowest(meta, behind) &&
		UseOne(index, heap, meta, behind, true, blkno))
		return true;

	/* extents in the metapage first: to change another one is to write directory pages */
	for (int n = 0; n < meta->nextents; n++)
	{
		int			i = (meta->nspilled + n) % meta->nextents;

		if (i != behind && UseOne(index, heap, meta, i, false, blkno))
			return true;
	}
	return behind >= 0 && UseOne(index, heap, meta, behind, true, blkno);
}

Buffer
GgAllocateBlock(Relation index, Relation heap, GgMetaPageData *meta, GgKind kind,
				BlockNumber *blkno)
{
	Buffer		buffer;
	bool		found = UseAnyFree(index, heap, meta, kind, blkno);

	if (!found)
	{
		UpdateHorizon(heap);
		found = UseAnyFree(index, heap, meta, kind, blkno);
	}
	if (found)
		return ReadBufferExtended(index, MAIN_FORKNUM, *blkno, RBM_ZERO_AND_LOCK, NULL);

	*blkno = GgHighWater(meta);
	GgCheckLength(index, (uint64) *blkno + 1);
	if (*blkno < GgCheckHighWater(index, *blkno))
		return ReadBufferExtended(index, MAIN_FORKNUM, *blkno, RBM_ZERO_AND_LOCK, NULL);
	buffer = GgExtendOne(index, MAIN_FORKNUM);
	if (BufferGetBlockNumber(buffer) == *blkno)
		return buffer;
	/* a merge has just made the relation longer, and this block lies behind what it added */
	UnlockReleaseBuffer(buffer);
	return ReadBufferExtended(index, MAIN_FORKNUM, *blkno, RBM_ZERO_AND_LOCK, NULL);
}

/*
 * An insert may wait for the extension lock while it holds the metapage, so that lock is held for
 * one step only.
 */
void
GgLengthen(Relation index, BlockNumber end)
{
	BlockNumber now;

	GgCheckInterrupts();
	if (!RELATION_IS_LOCAL(index))
		LockRelationForExtension(index, ExclusiveLock);
	now = RelationGetNumberOfBlocks(index);
	if (now < end)
		GgAppendZeros(index, now + Min(end - now, GG_WRITE_PAGES));
	if (!RELATION_IS_LOCAL(index))
		UnlockRelationForExtension(index, ExclusiveLock);
}

/*
 * Blocks up to end, which the relation has, are about to be in the directory.  The last one is
 * logged, because replay must make the relation as long even where WAL ends before the pages'
 * records.
 */
static void
LogLength(Relation index, const GgMetaPageData *meta, uint32 owner, BlockNumber end)
{
	Buffer		buffer = ReadBufferExtended(index, MAIN_FORKNUM, end - 1, RBM_ZERO_AND_LOCK, NULL);
	GenericXLogState *xlog = GenericXLogStart(index);

	GgInitPage(GenericXLogRegisterBuffer(xlog, buffer, GENERIC_XLOG_FULL_IMAGE), meta->instance,
			   owner, GG_KIND_TAKEN, 0);
	GenericXLogFinish(xlog);
	UnlockReleaseBuffer(buffer);
}

void
GgForgetPassed(Relation heap, GgMetaPageData *meta)
{
	UpdateHorizon(heap);
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_FREE && !IsParked(heap, &meta->extents[i]))
			meta->extents[i].parked_xid = 0;
	GgMergeFree(meta);
}

void
GgReleaseParked(Relation index, Relation heap, GgMetaPageData *meta)
{
	UpdateHorizon(heap);
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_FREE)
			(void) IsReusable(index, heap, &meta->extents[i]);
	GgMergeFree(meta);
}

/* Blocks behind the delta's last page that are left to it. */
static uint32
DeltaRun(const GgMetaPageData *meta)
{
	return Min(Max(GgHighWater(meta) / DELTA_SHARE, LEAST_DELTA_RUN), MOST_DELTA_RUN);
}

/* How many blocks of a FREE extent may an array get?  They are its last ones. */
static uint32
RoomForArrays(const GgMetaPageData *meta, const GgExtent *extent)
{
	if (extent->kind != GG_KIND_FREE || extent->parked_xid != 0)
		return 0;
	if (extent->start == BehindDelta(meta))
		return extent->nblocks - Min(extent->nblocks, DeltaRun(meta));
	return extent->nblocks;
}

/*
 * The free extent that serves best: the one at `next`, where the array goes on; the smallest that
 * holds the rest of it; the largest.  -1: none of `least` blocks.
 *
 * To use it adds no more entries than blocks at the end of the relation do, however full the
 * directory is: none where all of the extent is used, and else one.  But where a fourth of the
 * directory's entries is in use, an array gets few extents.
 */
static int
ChooseFree(const GgMetaPageData *meta, const GgBlocksWanted *wanted)
{
	uint32		least = Max(wanted->least, GgHighWater(meta) / RUN_SHARE);
	uint32		of_best = 0;
	int			best = -1;

	if (meta->nextents > GG_MAX_EXTENTS / 4)
		least = Max(least, wanted->whole / 4);
	least = Min(least, wanted->rest);
	for (int i = 0; i < meta->nextents; i++)
	{
		uint32		nblocks = RoomForArrays(meta, &meta->extents[i]);

		if (nblocks == 0)
			continue;
		if (meta->extents[i].start == wanted->next && nblocks == meta->extents[i].nblocks)
			return i;
		if (nblocks >= least &&
			(nblocks >= wanted->rest ? of_best < wanted->rest || nblocks < of_best :
			 nblocks > of_best))
		{
			best = i;
			of_best = nblocks;
		}
	}
	return best;
}

/*
 * How many blocks at the end of the relation are to be left to the delta?  Where it ends there,
 * inserts and merges would take turns, and each turn would be an entry.
 */
static uint32
LeaveToDelta(const GgMetaPageData *meta)
{
	BlockNumber high = GgHighWater(meta);
	BlockNumber next = BehindDelta(meta);
	uint32		run = DeltaRun(meta);

	if (next == high)
		return run;
	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->kind == GG_KIND_FREE && extent->parked_xid == 0 && extent->start == next &&
			extent->start + extent->nblocks == high)
			return run - Min(run, extent->nblocks);
	}
	return 0;
}

/* Take nblocks at the end of the relation.  False: it must have *end blocks first. */
static bool
TakeAtEnd(Relation index, GgMetaPageData *meta, uint32 owner, uint32 nblocks, BlockNumber *start,
		  BlockNumber *end)
{
	BlockNumber high = GgHighWater(meta);
	uint32		left = LeaveToDelta(meta);
	BlockNumber length = GgCheckHighWater(index, high);

	GgCheckLength(index, (uint64) high + left + nblocks);
	if (nblocks > length - high)
	{
		*end = high + left + nblocks;
		return false;
	}
	/* inserts may have taken some since it was made longer */
	left = Min(left, length - high - nblocks);
	*start = high + left;
	LogLength(index, meta, owner, *start + nblocks);
	if (left > 0)
		GgAddExtent(meta, high, left, GG_NO_SEGMENT, GG_KIND_FREE);
	return true;
}

uint32
GgTakeBlocks(Relation index, Relation heap, GgMetaPageData *meta, const GgBlocksWanted *wanted,
			 BlockNumber *start, BlockNumber *end)
{
	uint32		nblocks = wanted->rest;
	int			best;

	GgReleaseParked(index, heap, meta);
	if (meta->nextents >= GG_MAX_EXTENTS + GG_RESERVED_EXTENTS / 2)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("directory of index \"%s\" has no room for a merge",
						RelationGetRelationName(index)),
				 errdetail("It has %u entries.", meta->nextents),
				 errhint("End old transactions, increase maintenance_work_mem and call "
						 "gpugraph_merge(), or REINDEX the index.")));
	best = ChooseFree(meta, wanted);
	if (best >= 0)
	{
		nblocks = Min(nblocks, RoomForArrays(meta, &meta->extents[best]));
		GgCheckFreeBlocks(index, meta, meta->extents[best].start, meta->extents[best].nblocks);
		*start = meta->extents[best].start == BehindDelta(meta) ?
			UseFreeEnd(meta, best, nblocks) : UseFree(meta, best, nblocks);
	}
	else if (!TakeAtEnd(index, meta, wanted->owner, nblocks, start, end))
		return 0;
	GgAddExtent(meta, *start, nblocks, wanted->owner, GG_KIND_TAKEN);
	GgMergeFree(meta);
	return nblocks;
}
