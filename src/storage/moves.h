/*
 * moves.h
 *		Arrays moved towards the relation's start, so that its end can be given back.
 */
#ifndef GG_MOVES_H
#define GG_MOVES_H

#include "storage/extents.h"

/* Pages of an array, or of the delta, that are copied to other blocks. */
typedef struct GgMove
{
	uint32		segment;
	GgKind		kind;
	uint64		first;			/* number of the first page */
	uint32		nblocks;
	BlockNumber from;
	BlockNumber to;
	bool		dropped;		/* the pages stay where they are */
} GgMove;

/* A step has so many moves and blocks (1 GB) at most, and of blocks that others change 32 MB. */
#define GG_MOST_MOVES			128
#define GG_STEP_BLOCKS			((uint32) (1024 * 1024 * 1024 / BLCKSZ))
#define GG_STEP_CHANGING		((uint32) (32 * 1024 * 1024 / BLCKSZ))

typedef struct GgMoves
{
	uint32		owner;			/* of the TAKEN extents */
	int			n;
	GgMove		moves[GG_MOST_MOVES];
	bool		directory;		/* a directory page is in the way, and is to be written anew */
} GgMoves;

/* VACUUM and inserts change these pages in place. */
static inline bool
GgPagesChange(GgKind kind)
{
	return kind == GG_KIND_TIDS || kind == GG_KIND_DELTA;
}

/*
 * The relation has `length` blocks.  Is that more than it may have, and would it become as short as
 * it is to be, or a fifth shorter, if what lies high was moved?  If so, says what to move next:
 * nothing if only free blocks lie high.  released: as if every snapshot had passed every parked id.
 * Else what has a parked id is needed.  The caller has looked which ids snapshots have passed
 * (GgReleaseParked()); who looked again here could find more, of which the directory does not say
 * that they are free.
 */
extern bool GgPlanMoves(const GgMetaPageData *meta, BlockNumber length, bool released,
						GgMoves *moves);

/* Take the blocks that are moved to, which are free.  The caller settles and stores meta. */
extern void GgTakeMoves(Relation index, GgMetaPageData *meta, const GgMoves *moves);

/*
 * What was copied is in use from now on, and the blocks it comes from are parked.  What the
 * directory names no longer, or by another place, is not moved.  Returns blocks that were moved.
 */
extern uint32 GgFlipMoves(GgMetaPageData *meta, const GgMoves *moves, uint64 parked_xid);

#endif							/* GG_MOVES_H */
