/*
 * shrink.c
 *		Gives the end of an index's file back to the system.  README, Shrinking, has the protocol.
 *
 * What is in use near the end is moved towards the start, in steps of 1 GB: its new blocks are
 * TAKEN, pages are copied in slices, and one WAL record changes their place in the directory.  The
 * blocks they come from are parked.  When everybody has passed their ids, the end of the relation
 * is free, and is truncated.  All that happens under the merge lock, so no merge reads what is
 * moved, and under locks that are never waited for.
 */
#include "maintain/merge.h"
#include "service/shared/settings.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/storage.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/resowner.h"

/* A free end of one in so many blocks of the relation is given back before all is moved. */
#define LEAST_TAIL			5

/* Does nobody else hold a lock of the index that stands in the way of this one? */
static bool
NobodyHinders(Relation index, LOCKMODE mode)
{
	LOCKTAG		tag;
	int			count;

	SET_LOCKTAG_RELATION(tag, index->rd_lockInfo.lockRelId.dbId,
						 index->rd_lockInfo.lockRelId.relId);
	pfree(GetLockConflicts(&tag, mode, &count));
	return count == 0;
}

/*
 * Lock the index unless somebody is in the way.  To ask for AccessExclusiveLock assigns a
 * transaction id even where it is in vain, so that is looked at first.
 */
static bool
TryLock(Relation index, LOCKMODE mode)
{
	return NobodyHinders(index, mode) && ConditionalLockRelation(index, mode);
}

/* Plan a step's moves.  Returns the relation's length; 0: it would not become much shorter. */
static BlockNumber
PlanStep(Relation index, const GgMetaPageData *meta, bool released, GgMoves *moves)
{
	BlockNumber length = RelationGetNumberOfBlocks(index);

	return GgPlanMoves(meta, length, released, moves) ? length : 0;
}

bool
GgShrinkIsDue(Relation index)
{
	Relation	heap = table_open(index->rd_index->indrelid, NoLock);
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgMoves		moves;
	bool		due;

	GgReadMeta(index, meta);
	due = GgMayTruncate(heap) && PlanStep(index, meta, true, &moves) > 0;
	pfree(meta);
	table_close(heap, NoLock);
	return due;
}

/*
 * Free blocks are still parked.  Where the id that they wait for is nobody's yet, assign one: the
 * next look finds that it has passed.
 */
static void
AdvanceHorizon(GgMergeTarget *target, GgMetaPageData *meta)
{
	uint64		next = U64FromFullTransactionId(ReadNextFullTransactionId());
	bool		unknown = false;
	bool		assign = false;

	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->kind != GG_KIND_FREE)
			continue;
		if (extent->parked_xid == GG_PARKED_UNKNOWN)
			unknown = true;
		else
			assign |= extent->parked_xid >= next;
	}
	if (unknown)
	{
		Buffer		metabuf = GgLockDirectory(target->index, meta);

		GgStoreMeta(target->index, target->heap, metabuf, meta);
	}
	if (assign)
		(void) GetTopTransactionId();
}

/* ---- moving ------------------------------------------------------------------------------ */

/*
 * Take blocks for the next step's moves.  False: the directory in use asks for none.  Who wrote
 * TAKEN blocks is gone, by the merge lock.
 */
static bool
TakeBlocks(GgMergeTarget *target, GgMetaPageData *meta, GgMoves *moves)
{
	Buffer		metabuf = GgLockDirectory(target->index, meta);

	(void) GgFreeTaken(meta);
	GgReleaseParked(target->index, target->heap, meta);
	if (PlanStep(target->index, meta, false, moves) == 0 ||
		(moves->n == 0 && !moves->directory))
	{
		UnlockReleaseBuffer(metabuf);
		return false;
	}
	/* nobody else takes blocks meanwhile, so that needs no id of its own: ids are for segments */
	moves->owner = meta->next_id - 1;
	GgTakeMoves(target->index, meta, moves);
	GgStoreMeta(target->index, target->heap, metabuf, meta);
	return true;
}

/* Copy what never changes, in slices. */
static void
CopyUnchanging(GgMergeTarget *target, const GgMetaPageData *meta, GgMoves *moves)
{
	for (int i = 0; i < moves->n; i++)
	{
		GgMove	   *move = &moves->moves[i];
		uint32		count;

		for (uint32 done = 0; !GgPagesChange(move->kind) && !move->dropped &&
			 done < move->nblocks; done += count)
		{
			count = Min(move->nblocks - done, GG_WRITE_PAGES);
			GgBeginSlice(target);
			move->dropped = !GgCopyPages(target->index, meta->instance, move, done, count);
			GgEndSlice(target);
		}
	}
}

/*
 * TIDs and the delta's pages are changed by VACUUM and inserts, which have RowExclusiveLock on the
 * index.  So they are copied, and the directory is changed, under a lock that keeps these out but
 * not queries.  Where it cannot be had, such pages stay.  Returns whether it is held.
 */
static bool
CopyChanging(GgMergeTarget *target, const GgMetaPageData *meta, GgMoves *moves)
{
	bool		any = false;
	bool		locked;

	for (int i = 0; i < moves->n; i++)
		any |= GgPagesChange(moves->moves[i].kind);
	locked = any && TryLock(target->index, ShareLock);
	for (int i = 0; i < moves->n; i++)
	{
		GgMove	   *move = &moves->moves[i];

		if (GgPagesChange(move->kind))
			move->dropped = !locked ||
				!GgCopyPages(target->index, meta->instance, move, 0, move->nblocks);
	}
	return locked;
}

/* Copy pages that change, and flip the directory.  Returns how many blocks were moved. */
static uint32
Flip(GgMergeTarget *target, GgMetaPageData *meta, GgMoves *moves)
{
	FullTransactionId own;
	Buffer		metabuf;
	uint32		moved;
	bool		locked;

	GgBeginSlice(target);
	locked = CopyChanging(target, meta, moves);
	GgHold(GG_FAULT_HOLD_MOVE);
	own = GetTopFullTransactionId();
	metabuf = GgLockDirectory(target->index, meta);
	moved = GgFlipMoves(meta, moves, GgParkingXid(own));
	GgStoreMeta(target->index, target->heap, metabuf, meta);
	if (locked && !target->sliced)
		UnlockRelation(target->index, ShareLock);
	GgEndSlice(target);
	return moved;
}

static GgShrinkResult
Move(GgMergeTarget *target, GgMetaPageData *meta, GgMoves *moves)
{
	uint32		moved;
	bool		taken;

	GgBeginSlice(target);
	taken = TakeBlocks(target, meta, moves);
	GgEndSlice(target);
	if (!taken)
		return GG_SHRINK_WAITS;
	CopyUnchanging(target, meta, moves);
	moved = Flip(target, meta, moves);
	ereport(DEBUG1,
			(errmsg_internal("moved %u blocks of a gpugraph index towards its start", moved)));
	return moved > 0 ? GG_SHRINK_GOES_ON : GG_SHRINK_WAITS;
}

/* ---- truncation -------------------------------------------------------------------------- */

/* Does the free end make the relation a good deal shorter, before what lies high is moved? */
static bool
IsLong(BlockNumber length, BlockNumber high)
{
	return high <= length - length / LEAST_TAIL;
}

/*
 * The end of the relation is free.  The directory forgets it first, so a crash in between leaves
 * blocks that belong to nobody, as one between an extension and its record does.  The index is
 * locked.
 */
static GgShrinkResult
TruncateLocked(GgMergeTarget *target, GgMetaPageData *meta)
{
	Relation	index = target->index;
	Buffer		metabuf = GgLockDirectory(index, meta);
	GgMoves		moves;
	BlockNumber length;
	BlockNumber high;

	(void) GgFreeTaken(meta);
	GgReleaseParked(index, target->heap, meta);
	length = PlanStep(index, meta, false, &moves);
	high = GgForgetTail(meta);
	if (length == 0 || (moves.n > 0 && !IsLong(length, high)))
	{
		UnlockReleaseBuffer(metabuf);
		return GG_SHRINK_WAITS;
	}
	/* directory pages at the end may go with that, too */
	GgSettleDirectory(index, target->heap, meta);
	(void) GgForgetTail(meta);
	GgStoreMeta(index, target->heap, metabuf, meta);
	high = GgHighWater(meta);
	GgHold(GG_FAULT_HOLD_TRUNCATE);
	RelationTruncate(index, high);
	ereport(DEBUG1,
			(errmsg_internal("truncated gpugraph index \"%s\" from %u to %u blocks",
							 RelationGetRelationName(index), length, high)));
	return moves.n > 0 ? GG_SHRINK_WAITS : GG_SHRINK_DONE;
}

/*
 * Standbys keep AccessExclusiveLock until the transaction that has it ends there, and VACUUM goes
 * on with other indexes and the table.  So VACUUM takes the lock in a subtransaction, which it
 * rolls back: that record, too, has standbys give back the lock, and a truncation stays.
 */
static GgShrinkResult
TruncateInVacuum(GgMergeTarget *target, GgMetaPageData *meta)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	GgShrinkResult result = GG_SHRINK_WAITS;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	if (TryLock(target->index, AccessExclusiveLock))
		result = TruncateLocked(target, meta);
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (XLogStandbyInfoActive())
		XLogFlush(XactLastRecEnd);
	return result;
}

static GgShrinkResult
Truncate(GgMergeTarget *target, GgMetaPageData *meta)
{
	if (!target->sliced)
		return TruncateInVacuum(target, meta);
	if (!TryLock(target->index, AccessExclusiveLock))
		return GG_SHRINK_WAITS;
	/* standbys keep the lock until the commit reaches them */
	ForceSyncCommit();
	return TruncateLocked(target, meta);
}

/* ---- a step ------------------------------------------------------------------------------ */

/* Are only pages to be moved that others may change, while somebody has the lock to do so? */
static bool
MovesWouldWait(Relation index, const GgMoves *moves)
{
	for (int i = 0; i < moves->n; i++)
		if (!GgPagesChange(moves->moves[i].kind))
			return false;
	return moves->n > 0 && !NobodyHinders(index, ShareLock);
}

GgShrinkResult
GgShrinkStep(GgMergeTarget *target)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgMoves		moves = {.n = 0};
	GgShrinkResult result = GG_SHRINK_WAITS;
	BlockNumber length;
	bool		move = false;

	GgBeginSlice(target);
	GgReadMeta(target->index, meta);
	(void) GgFreeTaken(meta);
	GgForgetPassed(target->heap, meta);
	if (!GgMayTruncate(target->heap))
		result = GG_SHRINK_DONE;
	else if ((length = PlanStep(target->index, meta, false, &moves)) > 0)
	{
		const bool	moving = moves.n > 0 || moves.directory;

		move = moving && !MovesWouldWait(target->index, &moves);
		/* what is moved now waits for a transaction id, and VACUUM does not come back soon */
		if (!moving || IsLong(length, GgForgetTail(meta)))
			result = Truncate(target, meta);
	}
	else if (PlanStep(target->index, meta, true, &moves) > 0)
		AdvanceHorizon(target, meta);
	else
		result = GG_SHRINK_DONE;
	GgEndSlice(target);
	if (move)
		result = Move(target, meta, &moves);
	pfree(meta);
	return result;
}
