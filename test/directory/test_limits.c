/*
 * test_limits.c
 *		Blocks and rows near 2^32: what has no room is refused, and leaves the directory sound.
 *
 * The bugs: an insert took the last block that a relation may have, with which the directory
 * passed for a corrupt one.  A merge was chosen of segments with more rows than it counts.  And
 * one was chosen of the delta's dead rows as if they were a segment's, which crashed the server.
 */
#include "server.h"
#include "maintain/merge.h"
#include "storage/directory_check.h"

#define FILLER				77	/* an owner of TAKEN blocks */


/* In the server these are of files that know more of it. */
uint64
GgSealableEnd(const GgMetaPageData *m)
{
	return GgDeltaEnd(m);
}

uint64
GgArrayPages(uint64 bytes)
{
	return (bytes + GG_PAGE_PAYLOAD - 1) / GG_PAGE_PAYLOAD;
}

uint32
GgDeclaredDimensions(Relation index)
{
	return 0;
}

const char *
GgAlgorithmName(int algorithm)
{
	return "cagra";
}

static void
Check(bool ok, const char *what)
{
	if (!ok)
		fail("%s: %u blocks, %d entries, \"%s\"", what, server.nblocks, meta->nextents,
			 server.message);
	passed++;
}

/* A relation of so many blocks, which all belong to somebody. */
static void
Fill(BlockNumber nblocks)
{
	begin_directory(2000);
	meta->version = GG_FORMAT_VERSION;
	meta->algorithm = GG_ALGORITHM_CAGRA;
	meta->graph_degree = 32;
	meta->next_id = FILLER + 1;
	meta->delta_tail = InvalidBlockNumber;
	GgAddExtent(meta, 1, nblocks - 1, FILLER, GG_KIND_TAKEN);
	server.nblocks = nblocks;
}

/* False: there is an error, and the directory is as before. */
static bool
Changed(void (*change) (void))
{
	GgMetaPageData copy = *meta;

	if (!tried(change))
	{
		*meta = copy;
		return false;
	}
	GgCheckDirectory(&relation, meta);
	return true;
}

static void
InsertPage(void)
{
	meta->delta_tail = insert_page();
}

/* Insert a row on a page of its own. */
static bool
Insert(void)
{
	return Changed(InsertPage);
}

/* What TakeBlocks() takes, and how it comes out. */
static GgBlocksWanted wanted = {.owner = 1, .least = 1, .next = InvalidBlockNumber};
static uint32 taken;
static BlockNumber end;

static void
TakeBlocks(void)
{
	BlockNumber start;

	taken = GgTakeBlocks(&relation, &relation, meta, &wanted, &start, &end);
}

/* The same for blocks of an array. */
static bool
Take(uint32 npages)
{
	wanted.whole = wanted.rest = npages;
	return Changed(TakeBlocks);
}

static void
CheckRefusal(const char *what)
{
	Check(server.sqlerrcode == ERRCODE_PROGRAM_LIMIT_EXCEEDED && server.hint, what);
}

static void
TestInserts(void)
{
	Fill(MaxBlockNumber - 2);
	Check(Insert() && Insert(), "rows go into the last blocks");
	Check(!Insert(), "there is no other");
	CheckRefusal("the limit, with a hint");

	/* a merge has given something back */
	GgAddExtent(meta, 1000, 5, GG_NO_SEGMENT, GG_KIND_FREE);
	meta->extents[1].start += 1005 - 1;
	meta->extents[1].nblocks -= 1005 - 1;
	for (int i = 0; i < 5; i++)
		Check(Insert(), "free blocks are used");
	Check(!Insert(), "as long as there are some");
}

static void
TestMerges(void)
{
	Fill(MaxBlockNumber - 3000);
	Check(!Take(3001), "a merge that has no room");
	CheckRefusal("the limit, with a hint");
	Check(Take(3000) && taken == 0 && end == MaxBlockNumber, "one that just has");
	while (server.nblocks < end)
		GgLengthen(&relation, end);
	Check(Take(3000) && taken == 3000, "gets the last blocks");
	Check(GgHighWater(meta) == MaxBlockNumber, "the relation is full");
	Check(!Take(1), "there is no other");
	Check(!Take(PG_UINT32_MAX), "nor are there many");
}

/* Segments of few vectors and so many rows each: how many are merged into one? */
static int
ChooseOf(uint32 rows, int nsegments)
{
	GgMergeLook look = {.meta = meta, .seal_rows = 1000, .most = GG_MAX_NODES};
	GgMergeChoice choice;

	Fill(1000);
	for (int i = 0; i < nsegments; i++)
		meta->segments[i] = (GgSegment) {.id = i + 1, .nodes = 20000, .rows = rows, .npivots = 100};
	meta->nsegments = nsegments;
	if (!GgChooseMerge(&look, GG_MERGE_ALL, &choice))
		return 0;
	return choice.nsegments;
}

static void
TestRows(void)
{
	Check(ChooseOf(1000, 3) == 3, "few rows");
	Check(ChooseOf(GG_MAX_ROWS / 3, 3) == 3, "as many as a segment may have");
	Check(ChooseOf(GG_MAX_ROWS / 3 + 1, 3) == 2, "more");
	Check(ChooseOf(3000000000, 3) == 0, "two segments alone have more");
}

/* A delta too small to be sealed when nobody inserts any more, of which a third is dead. */
static void
TestDeadDelta(void)
{
	GgMergeLook look = {.meta = meta, .seal_rows = 1000, .delta_rows = 900, .most = GG_MAX_NODES};
	GgMergeChoice choice;

	Fill(1000);
	GgAddExtent(meta, 1000, 901, GG_NO_SEGMENT, GG_KIND_DELTA);
	meta->delta_pages = 901;
	meta->delta_dead = 300;
	Check(!GgChooseMerge(&look, GG_MERGE_IDLE, &choice), "the delta is no segment with dead rows");
	Check(!GgChooseMerge(&look, GG_MERGE_QUIET, &choice), "nor is it one later");

	meta->segments[0] = (GgSegment) {.id = 1, .nodes = 200000, .rows = 200000, .dead = 90000};
	meta->nsegments = 1;
	Check(GgChooseMerge(&look, GG_MERGE_IDLE, &choice) && !choice.delta &&
		  choice.nsegments == 1 && choice.segments[0] == 1, "a segment with dead rows is merged");
}

int
main(void)
{
	TestInserts();
	TestMerges();
	TestRows();
	TestDeadDelta();
	return finish();
}
