/*
 * test_shrink.c
 *		Indexes whose pieces lie scattered up to the end of the relation are made shorter.
 *
 * Arrays of random lengths are spread over the relation, in one extent or several, and most blocks
 * are free, some for old snapshots.  The relation has 100 blocks to a million, up to some thousand
 * times what is in use.  Steps of moves follow, each of which may be lost in a crash after blocks
 * were taken, or lose its source to VACUUM.  Each page must be where the directory says, once.  As
 * long as no snapshot is in the way the relation ends up with a tenth more than what is in use, and
 * 16 blocks, wherever the delta's last page was.  Little more is moved than what is in use.
 */
#include "server.h"
#include "storage/moves.h"

#define ROUNDS				600
#define MOST_BLOCKS			1000000
#define MOST_ARRAYS			60

/* What a block holds. */
typedef struct Content
{
	uint32		segment;
	uint32		kind;			/* 0: nothing */
	uint64		number;
} Content;

static Content blocks[MOST_BLOCKS];
static int	steps;
static int	crashes;
static int	held;
static int	last_highest;
static int	rewritten;

/* How long is the relation, at most?  Long ones take longest. */
static BlockNumber
DrawLimit(void)
{
	static const BlockNumber limits[] = {100, 1000, 10000, 40000, 100000, MOST_BLOCKS};

	return limits[draw(50) == 0 ? 5 : draw(lengthof(limits) - 1)];
}

static void
Spread(void)
{
	BlockNumber limit = DrawLimit();
	uint32		scale = 1 + limit / 40000;
	uint32		sparse = draw(3) == 0 ? 20 : 1;
	static const GgKind kinds[] = {GG_KIND_VECTORS, GG_KIND_ADJACENCY, GG_KIND_TIDS,
		GG_KIND_FILTERS};
	int			narrays = 1 + draw(MOST_ARRAYS);
	uint32		pages[MOST_ARRAYS + 1] = {0};
	BlockNumber next = 1;

	memset(blocks, 0, sizeof(blocks));
	begin_directory(100);
	meta->next_id = 1000;
	for (int n = 0; n < narrays + (int) draw(100); n++)
	{
		int			array = draw(narrays + 1);
		uint32		owner = array == narrays ? GG_NO_SEGMENT : 1 + array;
		GgKind		kind = array == narrays ? GG_KIND_DELTA : kinds[array % lengthof(kinds)];
		uint32		count = 1 + draw((draw(4) == 0 ? 100 : 20) * (sparse > 1 ? 1 : scale));
		uint32		gap = draw((draw(3) == 0 ? 400 : 40) * scale * sparse);

		if (next + count + gap >= limit)
			break;
		for (uint32 b = 0; b < count; b++)
			blocks[next + b] = (Content) {owner, kind, pages[array] + b};
		GgAddExtent(meta, next, count, owner, kind);
		pages[array] += count;
		next += count;
		if (gap == 0)
			continue;
		GgAddExtent(meta, next, gap, GG_NO_SEGMENT, GG_KIND_FREE);
		meta->extents[meta->nextents - 1].parked_xid = draw(10) == 0 ? server.next_xid - 1 : 0;
		next += gap;
		/* a page of the directory, which no move may take */
		if (meta->ndirectory > 0 || draw(20) > 0)
			continue;
		meta->ndirectory = 1;
		GgAddExtent(meta, next++, 1, GG_NO_SEGMENT, GG_KIND_DIRECTORY);
	}
	meta->delta_pages = pages[narrays];
	server.nblocks = next;
	for (int i = meta->nextents - 1; i >= 0; i--)
		if (meta->extents[i].kind != GG_KIND_FREE)
		{
			last_highest += meta->extents[i].kind == GG_KIND_DELTA;
			break;
		}
	server.horizon = server.next_xid - draw(2);
}

static uint32
Used(void)
{
	uint32		used = 0;

	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind != GG_KIND_FREE)
			used += meta->extents[i].nblocks;
	return used;
}

static void
Check(const char *what)
{
	static uint8 seen[MOST_BLOCKS];

	memset(seen, 0, server.nblocks);
	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		for (uint32 b = 0; b < extent->nblocks; b++)
		{
			const Content *block = &blocks[extent->start + b];

			if (extent->start + b >= server.nblocks || seen[extent->start + b]++)
				fail("%s: block %u is in two extents, or outside", what, extent->start + b);
			if ((GgIsOfSegment(extent->kind) || extent->kind == GG_KIND_VECTORS ||
				 extent->kind == GG_KIND_DELTA) &&
				(block->segment != extent->segment || block->kind != extent->kind ||
				 block->number != extent->first + b))
				fail("%s: block %u holds page " UINT64_FORMAT " of kind %u of %u, not "
					 UINT64_FORMAT " of kind %u of %u", what, extent->start + b, block->number,
					 block->kind, block->segment, extent->first + b, extent->kind,
					 extent->segment);
		}
		/* an array's extents are in the order of its pages */
		for (int j = 0; j < i && extent->kind != GG_KIND_FREE && extent->kind != GG_KIND_TAKEN; j++)
			if (meta->extents[j].segment == extent->segment &&
				meta->extents[j].kind == extent->kind && meta->extents[j].first >= extent->first)
				fail("%s: an array goes back", what);
	}
	passed++;
}

/* The directory says that blocks are free which are written next. */
static void
CheckNotParked(const GgMove *move)
{
	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->kind == GG_KIND_FREE && extent->parked_xid != 0 &&
			move->to < extent->start + extent->nblocks && extent->start < move->to + move->nblocks)
			fail("block %u is moved to, and parked", move->to);
	}
}

/* The directory page is written anew, into the first free block. */
static void
RewriteDirectory(void)
{
	int			old = -1;
	int			free = -1;

	for (int i = meta->nextents - 1; i >= 0; i--)
	{
		if (meta->extents[i].kind == GG_KIND_DIRECTORY)
			old = i;
		if (meta->extents[i].kind == GG_KIND_FREE && meta->extents[i].parked_xid == 0)
			free = i;
	}
	if (free < 0)
		fail("no room for a directory page");
	meta->extents[old].kind = GG_KIND_FREE;
	GgCutExtent(meta, free, 0, 1)->kind = GG_KIND_DIRECTORY;
	GgMergeFree(meta);
	rewritten++;
}

/* One step.  False: there is nothing to move.  moved: blocks, added up. */
static bool
Step(uint32 *moved)
{
	static GgMoves moves;
	uint32		flipped;

	free_taken();
	GgReleaseParked(&relation, &relation, meta);
	/* snapshots end meanwhile */
	if (draw(4) == 0)
		server.horizon = server.next_xid;
	if (!GgPlanMoves(meta, server.nblocks, false, &moves) || (moves.n == 0 && !moves.directory))
		return false;
	steps++;
	for (int i = 0; i < moves.n; i++)
		CheckNotParked(&moves.moves[i]);
	moves.owner = meta->next_id++;
	GgTakeMoves(&relation, meta, &moves);
	Check("taken");
	for (int i = 0; i < moves.n; i++)
		for (uint32 b = 0; b < moves.moves[i].nblocks; b++)
		{
			if (moves.moves[i].to + b >= moves.moves[i].from)
				fail("a page moves up");
			blocks[moves.moves[i].to + b] = blocks[moves.moves[i].from + b];
		}
	if (draw(8) == 0)
	{
		crashes++;
		return true;
	}
	if (moves.n > 0 && draw(8) == 0)
	{
		const GgMove *move = &moves.moves[draw(moves.n)];

		/* VACUUM gives back what is being copied */
		if (move->kind == GG_KIND_VECTORS)
			GgFreePiece(meta, move->segment, server.next_xid);
		else if (move->kind != GG_KIND_DELTA)
			GgFreeGraph(meta, move->segment, server.next_xid);
	}
	else if (moves.n > 0 && draw(8) == 0)
		moves.moves[draw(moves.n)].dropped = true;
	flipped = GgFlipMoves(meta, &moves, server.next_xid++);
	*moved += flipped;
	if (moves.directory)
		RewriteDirectory();
	Check("flipped");
	if (draw(2) == 0)
		server.horizon = server.next_xid;
	return true;
}

static void
Shrink(void)
{
	uint32		used = Used();
	uint32		moved = 0;
	GgMoves		moves;
	BlockNumber high;

	/* a snapshot of before keeps what it keeps */
	while (Step(&moved))
		;
	if (moved > 2 * used + 16)
		fail("%u blocks were moved, where %u were in use", moved, used);
	if (server.horizon < server.next_xid)
		held++;
	do
		server.horizon = ++server.next_xid;
	while (Step(&moved));
	free_taken();
	GgReleaseParked(&relation, &relation, meta);
	if (GgPlanMoves(meta, server.nblocks, false, &moves))
	{
		high = GgForgetTail(meta);
		if (high >= server.nblocks)
			fail("%u blocks of %u are left", high, server.nblocks);
		server.nblocks = high;
	}
	Check("truncated");
	used = Used();
	if (server.nblocks > used * 1.1 + 16)
		fail("%u blocks for %u in use, %u entries", server.nblocks, used, meta->nextents);
}

int
main(void)
{
	for (int round = 0; round < ROUNDS; round++)
	{
		Spread();
		Check("spread");
		Shrink();
	}
	printf("%d steps, %d crashes, %d times a snapshot was in the way, %d times the delta's last "
		   "page lay highest, %d times a directory page was in the way\n", steps, crashes, held,
		   last_highest, rewritten);
	if (crashes == 0 || held == 0 || last_highest == 0 || rewritten == 0)
		fail("something never happened");
	return finish();
}
