/*
 * test_tiers.c
 *		How many bytes merges write for each byte that is inserted, and how much the relation grows
 *		under an old snapshot, where nothing that they give back can be used again.  Nor are there
 *		more segments than queries may search.
 *
 * GG_TEST_SMALL in the environment: a tenth of the rows, for slow checkers.
 */
#include "merges.h"

#define MOST_WRITTEN		8
#define MOST_GROWTH			3
#define MOST_SEGMENTS		17		/* 15, one that is sealed, and one that is merged meanwhile */

typedef struct Case
{
	const char *name;
	uint32		rows_per_node;
	uint16		words;			/* filter words */
} Case;

static int	failed;

/* Blocks that are in use, or that an old snapshot keeps. */
static BlockNumber
kept_blocks(void)
{
	BlockNumber n = server.nblocks;

	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_FREE && meta->extents[i].parked_xid < server.horizon)
			n -= meta->extents[i].nblocks;
	return n;
}

/* Judge what was inserted since `before` blocks were kept.  growth: else what was written. */
static void
judge(const Case *c, const char *when, BlockNumber before, bool growth)
{
	double		pages = (double) counts.inserted / GgDeltaRowsPerPage(meta);
	double		written = counts.written / pages;
	double		grown = ((double) kept_blocks() - before) / pages;
	bool		ok = (growth ? grown <= MOST_GROWTH : written <= MOST_WRITTEN) &&
		counts.most_segments <= MOST_SEGMENTS;

	passed += ok;
	failed += !ok;
	printf("%s%s, %s: %.2f times what was inserted is written, the index grows by %.2f times; "
		   "%.1f segments, %d at most; %d entries, %d pieces\n", ok ? "" : "failed: ", c->name,
		   when, written, grown, (double) counts.segments / counts.looks, counts.most_segments,
		   counts.most_entries, counts.most_pieces);
	memset(&counts, 0, sizeof(counts));
}

/* All that is given back is used again; rows are updated; an old snapshot. */
static void
run(const Case *c, uint64 rows)
{
	Shape		shape = {
		.dimensions = 128,
		.filter_words = c->words,
		.vectors = c->rows_per_node > 1 ? rows / c->rows_per_node : 0,
		.slice = 100,
		.most_nodes = 40000000
	};
	BlockNumber before;

	begin_index(&shape);
	insert_rows(rows);
	judge(c, "inserts", 1, false);
	/* in the model nodes do not go with their rows */
	for (int i = 0; i < 20 && shape.vectors > 0; i++)
	{
		clear_rows(100);
		insert_rows(rows / 100);
	}
	if (shape.vectors > 0)
		judge(c, "updates", 1, false);
	before = kept_blocks();
	hold_snapshot(true);
	insert_rows(rows / 4);
	judge(c, "an old snapshot", before, true);
	end_index();
}

int
main(void)
{
	static const Case cases[] = {
		{"1 row a node", 1, 0},
		{"1 row a node, 32 words", 1, 32},
		{"100 rows a node", 100, 0},
		{"100 rows a node, 32 words", 100, 32}
	};

	for (int i = 0; i < lengthof(cases); i++)
		run(&cases[i], getenv("GG_TEST_SMALL") != NULL ? 400000 : 4000000);
	printf("%d passed, %d failed\n", passed, failed);
	return failed > 0;
}
