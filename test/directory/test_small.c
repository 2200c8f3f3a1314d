/*
 * test_small.c
 *		Inserts, merges, VACUUMs, snapshots and crashes in random order, on a directory of few
 *		entries.
 *
 * Merges choose their inputs at random, so that the directory fills as no policy would let it.  A
 * plain map of blocks says what each holds, and until when an old snapshot may read it.  After each
 * step the directory must agree with it.  No insert, no VACUUM and no flip may fail, whatever came
 * before.  Nor do blocks get lost, or zeros written while the metapage is locked.
 */
#include "server.h"
#include "storage/array_writer.h"

#define STEPS				40000
#define MOST_BLOCKS			2000000
#define MOST_SEGMENTS		30
#define ARRAYS				3

/* What a block holds: nothing, or the page of an array or of the delta. */
typedef struct Content
{
	uint32		owner;			/* id of a segment, or GG_NO_SEGMENT */
	uint32		kind;			/* 0: nothing */
	uint64		number;
	uint64		pinned;			/* snapshots that have not passed this id may read it */
} Content;

static Content *blocks;
static GgMetaPageData stored;	/* what a crash leads back to */
static int	refused;			/* merges that found no room */
static int	most;				/* entries that there were */
static int	full;				/* steps with more entries than VACUUM and merges keep to */
static int	unknown;			/* runs that were parked without an id */

/* Commit: the copy of the directory goes to the metapage. */
static void
Store(void)
{
	stored = *meta;
}

static void
Use(BlockNumber blkno, uint32 owner, uint32 kind, uint64 number)
{
	Content	   *block = &blocks[blkno];

	if (blkno >= server.nblocks || blkno >= MOST_BLOCKS)
		fail("block %u of %u is used", blkno, server.nblocks);
	if (block->kind != 0)
		fail("block %u, which holds page " UINT64_FORMAT " of kind %u of %u, is used for kind %u",
			 blkno, block->number, block->kind, block->owner, kind);
	if (block->pinned >= server.horizon)
		fail("block %u is used, which snapshots before " UINT64_FORMAT " may read; they have "
			 "passed " UINT64_FORMAT, blkno, block->pinned, server.horizon);
	*block = (Content) {owner, kind, number, 0};
}

/* Every page is where the directory says, and nothing is in two extents. */
static void
Check(const char *what, int step)
{
	static uint8 *seen;
	uint64		delta_end = GgDeltaFirst(meta);

	if (seen == NULL)
		seen = malloc(MOST_BLOCKS);
	memset(seen, 0, server.nblocks);
	if (meta->nextents > GG_ALL_EXTENTS)
		fail("%s, step %d: %u entries", what, step, meta->nextents);
	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->nblocks == 0 || extent->start + extent->nblocks > server.nblocks)
			fail("%s, step %d: %u blocks from %u on, of %u", what, step, extent->nblocks,
				 extent->start, server.nblocks);
		if (extent->kind == GG_KIND_DELTA)
		{
			if (extent->first < delta_end)
				fail("%s, step %d: the delta goes back", what, step);
			delta_end = extent->first + extent->nblocks;
		}
		for (uint32 b = 0; b < extent->nblocks; b++)
		{
			const Content *block = &blocks[extent->start + b];

			if (seen[extent->start + b]++)
				fail("%s, step %d: block %u is in two extents", what, step, extent->start + b);
			if (extent->kind == GG_KIND_FREE ? block->kind != 0 :
				block->kind != extent->kind || block->owner != extent->segment ||
				(extent->kind != GG_KIND_TAKEN && block->number != extent->first + b))
				fail("%s, step %d: block %u holds kind %u, and an extent of kind %u", what, step,
					 extent->start + b, block->kind, extent->kind);
			if (extent->kind == GG_KIND_FREE && block->pinned >= server.horizon &&
				extent->parked_xid < block->pinned)
				fail("%s, step %d: block %u is free before its time", what, step,
					 extent->start + b);
		}
	}
	for (BlockNumber b = 0; b < GgHighWater(meta); b++)
		if (!seen[b])
			fail("%s, step %d: block %u is in no extent", what, step, b);
	passed++;
}

static void
Insert(void)
{
	int			npages = 1 + draw(3);

	for (int i = 0; i < npages; i++)
	{
		const uint64 number = GgDeltaEnd(meta);

		Use(insert_page(), GG_NO_SEGMENT, GG_KIND_DELTA, number);
	}
	Store();
}

/* Blocks of an owner hold nothing any more; queries may read them until xid. */
static void
Clear(uint32 owner, uint32 kind, uint64 xid)
{
	for (BlockNumber b = 0; b < server.nblocks; b++)
		if (blocks[b].kind != 0 && blocks[b].owner == owner &&
			(kind == 0 || blocks[b].kind == kind))
			blocks[b] = (Content) {.pinned = xid};
}

static void
ClearDelta(uint64 first, uint64 npages, uint64 xid)
{
	for (BlockNumber b = 0; b < server.nblocks; b++)
		if (blocks[b].kind == GG_KIND_DELTA && blocks[b].number >= first &&
			blocks[b].number < first + npages)
			blocks[b] = (Content) {.pinned = xid};
}

/* A merge under way. */
static struct
{
	uint32		id;				/* 0: none */
	uint64		end_page;
	int			array;
	uint32		npages;
	uint32		taken;
	int			nruns;
	struct
	{
		GgKind		kind;
		uint32		first;
		BlockNumber start;
		uint32		nblocks;
	}			runs[ARRAYS * GG_ARRAY_RUNS];
} merge;

static const GgKind kinds[ARRAYS] = {GG_KIND_VECTORS, GG_KIND_ADJACENCY, GG_KIND_TIDS};

static void
BeginMerge(void)
{
	memset(&merge, 0, sizeof(merge));
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_TAKEN)
			Clear(meta->extents[i].segment, GG_KIND_TAKEN, 0);
	free_taken();
	merge.id = meta->next_id++;
	merge.end_page = GgDeltaEnd(meta);
	merge.npages = 1 + draw(60);
	Store();
}

static void
Flip(void)
{
	uint64		xid = ++server.next_xid;
	int			gone = draw(8) == 0 ? draw(6) : draw(2);
	GgSegment  *segment;

	for (int i = meta->nextents - 1; i >= 0; i--)
		if (meta->extents[i].kind == GG_KIND_TAKEN && meta->extents[i].segment == merge.id)
			GgRemoveExtent(meta, i);
	if (merge.end_page > GgDeltaFirst(meta))
	{
		ClearDelta(GgDeltaFirst(meta), merge.end_page - GgDeltaFirst(meta), xid);
		GgFreeDelta(meta, GgDeltaFirst(meta), merge.end_page - GgDeltaFirst(meta), xid);
	}
	/* the newest ones; all of them now and then, as by a policy that sees entries */
	if (meta->nextents > GG_MAX_EXTENTS + 24 && draw(4) == 0)
		gone = meta->nsegments;
	while (meta->nsegments > 0 && (gone-- > 0 || meta->nsegments >= MOST_SEGMENTS))
	{
		uint32		id = meta->segments[--meta->nsegments].id;

		Clear(id, 0, xid);
		GgFreeSegment(meta, id, xid);
	}
	segment = &meta->segments[meta->nsegments++];
	memset(segment, 0, sizeof(*segment));
	segment->id = merge.id;
	meta->pieces[meta->npieces++] = (GgPiece) {.id = merge.id, .segment = merge.id};
	for (int i = 0; i < merge.nruns; i++)
	{
		GgAddExtent(meta, merge.runs[i].start, merge.runs[i].nblocks, merge.id,
					merge.runs[i].kind);
		for (uint32 b = 0; b < merge.runs[i].nblocks; b++)
			blocks[merge.runs[i].start + b] =
				(Content) {merge.id, merge.runs[i].kind, merge.runs[i].first + b, 0};
	}
	GgMergeFree(meta);
	merge.id = 0;
	Store();
}

/* A step of the merge: blocks for its array, the next array, or the flip. */
static void
Take(void)
{
	GgBlocksWanted wanted = {
		.owner = merge.id,
		.least = Min(1 + draw(8), merge.npages - merge.taken),
		.whole = merge.npages,
		.rest = merge.npages - merge.taken,
		.next = InvalidBlockNumber
	};
	uint64		zeroed = server.zeroed;
	BlockNumber start;
	BlockNumber end;
	uint32		n;

	n = GgTakeBlocks(&relation, &relation, meta, &wanted, &start, &end);
	if (server.zeroed != zeroed)
		fail("the relation grew while the metapage was locked");
	if (n == 0)
	{
		*meta = stored;
		GgLengthen(&relation, end);
		return;
	}
	for (uint32 b = 0; b < n; b++)
		Use(start + b, merge.id, GG_KIND_TAKEN, 0);
	if (merge.nruns >= (merge.array + 1) * GG_ARRAY_RUNS)
		fail("an array has too many runs");
	merge.runs[merge.nruns].kind = kinds[merge.array];
	merge.runs[merge.nruns].first = merge.taken;
	merge.runs[merge.nruns].start = start;
	merge.runs[merge.nruns++].nblocks = n;
	merge.taken += n;
	Store();
	if (merge.taken < merge.npages)
		return;
	merge.taken = 0;
	merge.npages = 1 + draw(20);
	merge.array++;
}

/*
 * VACUUM gives back a segment, or pages in the middle of the delta where there is room.  In
 * parallel mode it has no id for them.
 */
static void
Vacuum(void)
{
	uint64		xid = ++server.next_xid;
	uint64		parked = xid;

	if (draw(3) == 0)
	{
		parked = GgParkingXid(InvalidFullTransactionId);
		unknown++;
	}
	if (merge.id == 0 && meta->nsegments > 0 && draw(4) == 0)
	{
		int			i = draw(meta->nsegments);
		uint32		id = meta->segments[i].id;

		meta->segments[i] = meta->segments[--meta->nsegments];
		Clear(id, 0, xid);
		GgFreeSegment(meta, id, parked);
	}
	else if (meta->delta_pages > 4 && meta->nextents < GG_MAX_EXTENTS / 2)
	{
		uint64		first = GgDeltaFirst(meta) + draw(meta->delta_pages - 2);
		uint32		npages = 1 + draw(GgDeltaEnd(meta) - 1 - first);

		ClearDelta(first, npages, xid);
		GgFreeDelta(meta, first, npages, parked);
	}
	GgMergeFree(meta);
	Store();
}

/* All in memory is gone.  The relation may be longer than the directory knows. */
static void
Crash(void)
{
	*meta = stored;
	memset(&merge, 0, sizeof(merge));
}

/* A merge may find no room for its blocks.  A flip does not fail. */
static void
MergeStep(void)
{
	if (merge.id == 0)
		BeginMerge();
	else if (merge.array == ARRAYS)
		Flip();
	else if (!tried(Take))
	{
		/* what was taken stays TAKEN until the next merge begins */
		Crash();
		refused++;
	}
}

static void
Step(int step)
{
	uint32		what = draw(1000);

	/* whoever is about to change the directory does */
	GgSetParkedIds(meta);
	if (what < 400)
		Insert();
	else if (what < 850)
		MergeStep();
	else if (what < 980)
		Vacuum();
	else if (what < 985)
		Crash();
	else
		server.next_xid++;
	full += meta->nextents > GG_MAX_EXTENTS;
	most = Max(most, meta->nextents);
	if (step % 20 == 0)
		Check("after a step", step);
}

int
main(void)
{
	uint32		held = 0;
	BlockNumber length = 0;

	blocks = calloc(MOST_BLOCKS, sizeof(Content));
	begin_directory(100);
	meta->delta_low = PG_UINT32_MAX - 2000;	/* numbers pass 32 bits */
	blocks[0] = (Content) {GG_NO_SEGMENT, GG_KIND_META, 0, 0};
	Store();
	for (int step = 0; step < STEPS && server.nblocks < MOST_BLOCKS - 10000; step++)
	{
		Step(step);
		/* snapshots of all ages: now and then one is held for long */
		if (held > 0)
			held--;
		else if (draw(5000) == 0)
			held = draw(20000);
		else
		{
			uint64		oldest = server.next_xid - draw(50);

			server.horizon = Max(server.horizon, oldest);
		}
	}

	/* without snapshots what is free is used */
	for (int i = 0; i < 400; i++)
	{
		if (i == 200)
			length = server.nblocks;
		server.horizon = ++server.next_xid;
		GgSetParkedIds(meta);
		Insert();
		do
			MergeStep();
		while (merge.id != 0);
	}
	Check("at the end", STEPS);
	if (server.nblocks > length)
		fail("%u blocks are not enough, of which few are in use", length);
	printf("%d steps: more than %d entries in %d of them, %d at most; %d merges were refused, "
		   "%d times there was no id; %u blocks\n", STEPS, GG_MAX_EXTENTS, full, most, refused,
		   unknown, server.nblocks);
	if (full == 0 || refused == 0 || unknown == 0)
		fail("the directory was never full");
	return finish();
}
