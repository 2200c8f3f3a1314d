/*
 * extents.h
 *		Blocks of the relation, taken and given back, as extents of a copy of the directory.
 */
#ifndef GG_EXTENTS_H
#define GG_EXTENTS_H

#include "storage/pages.h"

/* Add nblocks at start to an array.  They extend its last extent where they follow it. */
extern void GgAddExtent(GgMetaPageData *meta, BlockNumber start, uint32 nblocks, uint32 segment,
						GgKind kind);

/* The first block behind every extent.  It and all that follow belong to nobody. */
extern BlockNumber GgHighWater(const GgMetaPageData *meta);

/* ereport(ERROR) unless the relation has all blocks before this one.  Returns its length. */
extern BlockNumber GgCheckHighWater(Relation index, BlockNumber high);

/* For qsort() of GgExtents: by their first blocks. */
extern int	GgCompareStarts(const void *a, const void *b);

/* ereport(ERROR) where nblocks are too many for an index.  Call it before anything is changed. */
extern void GgCheckLength(Relation index, uint64 nblocks);

/*
 * Take a block for a delta or directory page, from the free extents of meta (which this changes) or
 * new at the end.  It is locked exclusively, and not initialised.  The caller holds the metapage
 * exclusively.
 */
extern Buffer GgAllocateBlock(Relation index, Relation heap, GgMetaPageData *meta, GgKind kind,
							  BlockNumber *blkno);

/* Blocks by which the relation grows, or pages written, in one call: 4 MB, some milliseconds. */
#define GG_WRITE_PAGES		512

/*
 * Make the relation longer by a step towards end blocks, without the metapage's lock.  The new
 * blocks belong to nobody until somebody takes them.
 */
extern void GgLengthen(Relation index, BlockNumber end);

/* What an array is to get. */
typedef struct GgBlocksWanted
{
	uint32		owner;
	uint32		least;			/* free blocks are taken from a run of so many at least */
	uint32		whole;			/* of the array */
	uint32		rest;			/* blocks of the array that are not taken yet */
	BlockNumber next;			/* behind the array's last block; InvalidBlockNumber: it has none */
} GgBlocksWanted;

/*
 * Take consecutive blocks for an array: the rest of it or, from a free run, a part.  They become a
 * TAKEN extent of its owner.  Returns the number; 0 where the relation must have *end blocks first.
 * The caller holds the metapage exclusively.
 */
extern uint32 GgTakeBlocks(Relation index, Relation heap, GgMetaPageData *meta,
						   const GgBlocksWanted *wanted, BlockNumber *start, BlockNumber *end);

/*
 * Clear the parked ids of FREE extents that every snapshot has passed, and join neighbours.  The
 * caller stores meta.
 */
extern void GgReleaseParked(Relation index, Relation heap, GgMetaPageData *meta);

/* The same in a copy that only serves to look, and is not stored. */
extern void GgForgetPassed(Relation heap, GgMetaPageData *meta);

/*
 * Blocks are about to be overwritten that lie in one FREE extent.  ereport(ERROR) unless they do: a
 * wrong directory must not destroy anything else.
 */
extern void GgCheckFreeBlocks(Relation index, const GgMetaPageData *meta, BlockNumber start,
							  uint32 nblocks);

/* Cut blocks out of extent i, as an entry of their own: nblocks behind the first `before`. */
extern GgExtent *GgCutExtent(GgMetaPageData *meta, int i, uint32 before, uint32 nblocks);

/* Take free blocks at the end out of the directory.  Returns its new high water mark. */
extern BlockNumber GgForgetTail(GgMetaPageData *meta);

/* Remove entry i of the extents. */
extern void GgRemoveExtent(GgMetaPageData *meta, int i);

/* Merge FREE extents that touch, all of the same parked id, and others where there are many. */
extern void GgMergeFree(GgMetaPageData *meta);

/* Give back the delta's pages [first, first + npages), by their numbers. */
extern void GgFreeDelta(GgMetaPageData *meta, uint64 first, uint32 npages, uint64 parked_xid);

/* Give back one array. */
extern void GgFreeArray(GgMetaPageData *meta, uint32 segment, GgKind kind, uint64 parked_xid);

/* Give back all arrays and pieces of a segment, which the caller takes out of the directory. */
extern void GgFreeSegment(GgMetaPageData *meta, uint32 segment, uint64 parked_xid);

/* Give back a segment's arrays, but not its pieces. */
extern void GgFreeGraph(GgMetaPageData *meta, uint32 segment, uint64 parked_xid);

/* Give back all codes and their mean: free at once, because nobody else uses the relation. */
extern void GgFreeCodes(GgMetaPageData *meta);

/* Give back the vectors and codes of a piece, and take it out of the directory. */
extern void GgFreePiece(GgMetaPageData *meta, uint32 piece, uint64 parked_xid);

/*
 * The full transaction id that all snapshots must have passed before blocks that are given back now
 * are used again.  The metapage is locked exclusively.  own: this transaction's.  It is invalid in
 * parallel mode, where none can be assigned, and the result then is GG_PARKED_UNKNOWN.
 */
extern uint64 GgParkingXid(FullTransactionId own);

/* How many free blocks may some snapshot still need? */
extern uint64 GgParkedBlocks(Relation heap, const GgMetaPageData *meta);

/* Give a parked id to those extents of a directory in use that have GG_PARKED_UNKNOWN. */
extern void GgSetParkedIds(GgMetaPageData *meta);

#endif							/* GG_EXTENTS_H */
