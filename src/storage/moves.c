/*
 * moves.c
 *		Arrays moved towards the relation's start, so that its end can be given back.
 *
 * While an old snapshot lives nothing parked is used again, and all that is written lies at the end
 * of the relation.  Afterwards most of it is free, but what is in use lies scattered up to the end.
 * So what lies behind a mark, little more than the number of blocks in use, is moved before it, the
 * last ones first.  Pages are copied as they are: a stamp does not say in which block it is.
 *
 * Every free run before the mark may be used, that behind the delta's last page, too.  How many
 * blocks are to be left to the delta is a part of the relation's length (extents.c).  In a
 * relation that is far too long, such a part is more than all that is in use.
 *
 * A plan is made by doing all its moves on a copy of the directory.  So it is known before anything
 * is copied how short the relation will be.  It ends, because each move takes blocks from behind
 * the mark to before it.
 */
#include "storage/moves.h"

/* The mark lies so far behind the blocks in use: a part of them, and so many more. */
#define SLACK_SHARE			16
#define LEAST_SLACK			8

/* A relation may be longer than what is in use by this part of it, and by so many blocks. */
#define EXCESS_SHARE		10
#define LEAST_EXCESS		16

/* A relation that cannot become as short as that is made shorter where this part of it goes. */
#define LEAST_SHARE			5

/*
 * What does not fit one free run gets runs of so many blocks, or of this part of the mark.  Where
 * these do not suffice, it gets any.
 */
#define LEAST_RUN			8
#define RUN_SHARE			1024

/* Moves leave room in the directory: each may add so many entries for a while. */
#define MOST_ENTRIES		(GG_MAX_EXTENTS / 4 * 3)
#define MOVE_ENTRIES		3

/* How long may the relation be? */
static uint64
AllowedLength(uint64 used)
{
	return used + used / EXCESS_SHARE + LEAST_EXCESS;
}

static bool
CanMove(const GgExtent *extent)
{
	return GgIsArray(extent->kind) || extent->kind == GG_KIND_DELTA;
}

static BlockNumber
EndOf(const GgExtent *extent)
{
	return extent->start + extent->nblocks;
}

/* A copy of the directory for a plan; released: in which nothing is parked. */
static GgMetaPageData *
CopyForPlan(const GgMetaPageData *meta, bool released)
{
	GgMetaPageData *copy = palloc(sizeof(GgMetaPageData));

	memcpy(copy, meta, sizeof(GgMetaPageData));
	for (int i = 0; i < copy->nextents; i++)
		if (copy->extents[i].kind == GG_KIND_FREE && released)
			copy->extents[i].parked_xid = 0;
	GgMergeFree(copy);
	return copy;
}

/* Blocks that are in use, or that snapshots need. */
static uint64
CountUsed(const GgMetaPageData *copy)
{
	uint64		used = 0;

	for (int i = 0; i < copy->nextents; i++)
		if (copy->extents[i].kind != GG_KIND_FREE || copy->extents[i].parked_xid != 0)
			used += copy->extents[i].nblocks;
	return used;
}

/* The extent that is in use, or that snapshots need, whose end is the highest. */
static int
HighestUsed(const GgMetaPageData *copy)
{
	int			best = -1;

	/* there is always the metapage */
	for (int i = 0; i < copy->nextents; i++)
		if ((copy->extents[i].kind != GG_KIND_FREE || copy->extents[i].parked_xid != 0) &&
			(best < 0 || EndOf(&copy->extents[i]) > EndOf(&copy->extents[best])))
			best = i;
	return best;
}

/*
 * The free run before the mark that serves n blocks best: the smallest that holds them, else the
 * largest, which has `least` blocks.  Returns its blocks; 0: there is none.
 */
static uint32
ChooseRun(const GgMetaPageData *copy, BlockNumber mark, uint32 n, uint32 least,
		  BlockNumber *start)
{
	uint32		best = 0;

	least = Min(n, least);

	for (int i = 0; i < copy->nextents; i++)
	{
		const GgExtent *extent = &copy->extents[i];
		uint32		room;

		if (extent->kind != GG_KIND_FREE || extent->parked_xid != 0 || extent->start >= mark)
			continue;
		room = Min(EndOf(extent), mark) - extent->start;
		if (room < least || (room >= n ? best >= n && room >= best : room <= best))
			continue;
		best = room;
		*start = extent->start;
	}
	return best;
}

/* The extent of that kind that holds the blocks; -1: there is none. */
static int
FindHolder(const GgMetaPageData *meta, GgKind kind, BlockNumber start, uint32 nblocks)
{
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == kind && meta->extents[i].start <= start &&
			start + nblocks <= EndOf(&meta->extents[i]))
			return i;
	return -1;
}

/* Cut blocks out of the FREE extent that holds them, as an entry of their own. */
static GgExtent *
CutFree(GgMetaPageData *meta, BlockNumber start, uint32 nblocks)
{
	int			i = FindHolder(meta, GG_KIND_FREE, start, nblocks);

	return GgCutExtent(meta, i, start - meta->extents[i].start, nblocks);
}

/* Extents of an array that follow each other, in pages and in blocks, become one. */
static void
JoinArray(GgMetaPageData *meta, uint32 segment, GgKind kind)
{
	int			last = -1;

	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->segment != segment || extent->kind != kind)
			continue;
		if (last >= 0 && EndOf(&meta->extents[last]) == extent->start &&
			meta->extents[last].first + meta->extents[last].nblocks == extent->first)
		{
			meta->extents[last].nblocks += extent->nblocks;
			GgRemoveExtent(meta, i--);
		}
		else
			last = i;
	}
}

/* Put a move's pages, of extent i, into new blocks, which no extent has, and park the old ones. */
static void
Replace(GgMetaPageData *meta, int i, const GgMove *move, uint64 parked_xid)
{
	GgExtent   *extent = GgCutExtent(meta, i, move->from - meta->extents[i].start, move->nblocks);

	extent->start = move->to;
	JoinArray(meta, move->segment, move->kind);
	GgAddExtent(meta, move->from, move->nblocks, GG_NO_SEGMENT, GG_KIND_FREE);
	meta->extents[meta->nextents - 1].parked_xid = parked_xid;
}

/* Room in the step that is being planned for more blocks of that kind. */
static uint32
RoomInStep(const GgMetaPageData *meta, const GgMoves *moves, GgKind kind)
{
	uint32		blocks = 0;
	uint32		changing = 0;

	if (moves->n == GG_MOST_MOVES ||
		meta->nextents + (moves->n + 1) * MOVE_ENTRIES > GG_MAX_EXTENTS)
		return 0;
	for (int i = 0; i < moves->n; i++)
	{
		blocks += moves->moves[i].nblocks;
		if (GgPagesChange(moves->moves[i].kind))
			changing += moves->moves[i].nblocks;
	}
	return Min(GG_STEP_BLOCKS - blocks,
			   GgPagesChange(kind) ? GG_STEP_CHANGING - changing : PG_UINT32_MAX);
}

/* Directory pages behind the mark are not moved but written anew, into free blocks.  True: any. */
static bool
ForgetDirectory(GgMetaPageData *copy, BlockNumber mark)
{
	bool		any = false;

	for (int i = 0; i < copy->nextents; i++)
	{
		GgExtent   *extent = &copy->extents[i];

		if (extent->kind != GG_KIND_DIRECTORY || extent->start < mark)
			continue;
		any = true;
		extent->kind = GG_KIND_FREE;
		extent->parked_xid = 0;
	}
	GgMergeFree(copy);
	return any;
}

/*
 * Plan to move what lies behind the mark, into runs of `least` blocks.  Changes copy, which
 * CopyForPlan() made.  Returns how short the relation becomes.  The directory is to have no more
 * entries in the end than it may have, or has already.
 */
static BlockNumber
PlanBefore(GgMetaPageData *copy, const GgMetaPageData *meta, BlockNumber mark, uint32 least,
		   GgMoves *moves)
{
	int			most = Max(MOST_ENTRIES, meta->nextents);
	BlockNumber start;
	int			high;

	moves->n = 0;
	moves->directory = ForgetDirectory(copy, mark) && ChooseRun(copy, mark, 1, 1, &start) > 0;
	high = HighestUsed(copy);
	while (EndOf(&copy->extents[high]) > mark && CanMove(&copy->extents[high]) &&
		   copy->nextents <= most && copy->nextents + MOVE_ENTRIES <= GG_MAX_EXTENTS)
	{
		const GgExtent *extent = &copy->extents[high];
		uint32		n = EndOf(extent) - Max(extent->start, mark);
		GgMove		move = {.segment = extent->segment, .kind = extent->kind};
		uint32		room = ChooseRun(copy, mark, n, least, &move.to);
		uint32		step;

		if (room == 0)
			break;
		/* what has no room in this step is moved later; the blocks before it may follow it */
		step = RoomInStep(meta, moves, move.kind);
		move.to += Min(n, room);
		move.nblocks = Min(Min(n, room), step > 0 ? step : n);
		move.to -= move.nblocks;
		move.from = EndOf(extent) - move.nblocks;
		move.first = extent->first + (move.from - extent->start);
		if (step > 0)
			moves->moves[moves->n++] = move;

		GgRemoveExtent(copy, CutFree(copy, move.to, move.nblocks) - copy->extents);
		Replace(copy, FindHolder(copy, move.kind, move.from, move.nblocks), &move, 0);
		GgMergeFree(copy);
		high = HighestUsed(copy);
	}
	return EndOf(&copy->extents[high]);
}

/*
 * Large runs first.  Where they are too few, small ones are used, too, which leaves arrays in more
 * extents.
 */
bool
GgPlanMoves(const GgMetaPageData *meta, BlockNumber length, bool released, GgMoves *moves)
{
	GgMoves		tried = {.n = 0};
	BlockNumber best = length;
	uint64		allowed = length;

	moves->n = 0;
	moves->directory = false;
	for (int any = 0; any <= 1; any++)
	{
		GgMetaPageData *copy = CopyForPlan(meta, released);
		uint64		used = CountUsed(copy);
		uint64		mark = used + used / SLACK_SHARE + LEAST_SLACK;
		BlockNumber after = length;

		allowed = AllowedLength(used);
		if (length > allowed)
			after = PlanBefore(copy, meta, (BlockNumber) mark,
							   any ? 1 : Max(LEAST_RUN, mark / RUN_SHARE), &tried);
		if (after < best)
		{
			best = after;
			*moves = tried;
		}
		pfree(copy);
		if (after <= mark || length <= allowed)
			break;
	}
	return best < length && (best <= allowed || best <= length - length / LEAST_SHARE);
}

void
GgTakeMoves(Relation index, GgMetaPageData *meta, const GgMoves *moves)
{
	for (int i = 0; i < moves->n; i++)
	{
		const GgMove *move = &moves->moves[i];
		GgExtent   *extent;

		GgCheckFreeBlocks(index, meta, move->to, move->nblocks);
		extent = CutFree(meta, move->to, move->nblocks);
		extent->kind = GG_KIND_TAKEN;
		extent->segment = moves->owner;
		extent->first = 0;
	}
}

uint32
GgFlipMoves(GgMetaPageData *meta, const GgMoves *moves, uint64 parked_xid)
{
	uint32		moved = 0;

	for (int i = meta->nextents - 1; i >= 0; i--)
		if (meta->extents[i].kind == GG_KIND_TAKEN && meta->extents[i].segment == moves->owner)
			GgRemoveExtent(meta, i);
	for (int i = 0; i < moves->n; i++)
	{
		const GgMove *move = &moves->moves[i];
		int			holder = FindHolder(meta, move->kind, move->from, move->nblocks);

		if (!move->dropped && holder >= 0 && meta->extents[holder].segment == move->segment &&
			meta->extents[holder].first + (move->from - meta->extents[holder].start) == move->first)
		{
			Replace(meta, holder, move, parked_xid);
			moved += move->nblocks;
		}
		else
			GgAddExtent(meta, move->to, move->nblocks, GG_NO_SEGMENT, GG_KIND_FREE);
	}
	GgMergeFree(meta);
	meta->generation++;
	/* a number so large has GgSettleDirectory() write directory pages anew */
	if (moves->directory)
		meta->nspilled = meta->nextents + 1;
	return moved;
}
