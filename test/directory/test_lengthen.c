/*
 * test_lengthen.c
 *		A merge of 100 GB gets its blocks: what is done while the metapage is locked, and what is
 *		left by one that ends early.
 *
 * The relation is a number, as a sparse file would be.  The metapage is locked in GgTakeBlocks()
 * and GgAllocateBlock(), and not in GgLengthen(), for which an insert may have to wait.
 */
#include "server.h"
#include "storage/extents.h"

#define PAGES				(100 * 1024 / 8 * 1024)	/* 100 GB */

static void
Check(bool ok, const char *what)
{
	if (!ok)
		fail("%s: %u blocks, " UINT64_FORMAT " of them added", what, server.nblocks, server.zeroed);
	passed++;
}

static void
Insert(void)
{
	uint64		before = server.zeroed;

	(void) insert_page();
	if (server.zeroed > before + 1)
		fail("an insert added " UINT64_FORMAT " blocks", server.zeroed - before);
}

/* A look at the directory: blocks, or how long the relation must be first. */
static uint32
Take(uint32 npages, BlockNumber *end)
{
	GgBlocksWanted wanted = {.owner = 1, .least = 64, .whole = npages, .rest = npages,
	.next = InvalidBlockNumber};
	uint64		before = server.zeroed;
	BlockNumber start;
	uint32		n = GgTakeBlocks(&relation, &relation, meta, &wanted, &start, end);

	if (server.zeroed != before)
		fail(UINT64_FORMAT " blocks were added under the metapage's lock", server.zeroed - before);
	return n;
}

/* Steps towards end, each followed by an insert; at most so many.  Returns how many they were. */
static uint32
Lengthen(BlockNumber end, uint32 most)
{
	uint32		steps = 0;

	for (; server.nblocks < end && steps < most; steps++)
	{
		uint64		before = server.zeroed;

		GgLengthen(&relation, end);
		if (server.zeroed > before + GG_WRITE_PAGES)
			fail("a step added " UINT64_FORMAT " blocks", server.zeroed - before);
		Insert();
	}
	return steps;
}

int
main(void)
{
	BlockNumber end;
	uint32		steps;
	int			looks = 1;
	BlockNumber length;

	begin_directory(100);
	for (int i = 0; i < 1000; i++)
		Insert();
	Check(Take(PAGES, &end) == 0, "the relation is too short");

	/* a merge that is cancelled half way leaves blocks behind the high water mark */
	steps = Lengthen(end, PAGES / 2 / GG_WRITE_PAGES);
	Check(server.nblocks > PAGES / 2 && GgHighWater(meta) < 100000, "half way");

	/* the next one uses them; inserts go on all the time */
	while (Take(PAGES, &end) == 0)
	{
		steps += Lengthen(end, PG_UINT32_MAX);
		looks++;
	}
	Check(steps <= server.nblocks / GG_WRITE_PAGES + 10, "few steps");
	Check(looks <= 5, "the directory is locked a few times");
	Check(meta->nextents <= 6, "the array is one extent");
	Check(server.nblocks - GgHighWater(meta) <= 2 * GG_WRITE_PAGES, "and ends the relation");

	/* what the delta has left behind it, it uses */
	length = server.nblocks;
	for (int i = 0; i < 16; i++)
		Insert();
	Check(server.nblocks == length && meta->nextents <= 6, "inserts go on where they were");

	/*
	 * A merge that ended with an error before the flip: its blocks are free, and used again but for
	 * those behind the delta.
	 */
	free_taken();
	Check(Take(PAGES, &end) > PAGES - PAGES / 100, "free blocks are used");
	printf("%u steps and %d looks at the directory for %u blocks\n", steps, looks, PAGES);
	return finish();
}
