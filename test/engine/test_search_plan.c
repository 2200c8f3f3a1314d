/*
 * test_search_plan.c
 *		Lists that follow each other: every sequence ends, and every list is longer than the one
 *		before it.
 */
#include "../../src/engine/rules/search_plan.h"
#include "harness.h"

/*
 * The lists of a filtered walk from the first one on.  A rule that returned what it was given would
 * have planner and scan ask it for ever.
 */
static bool
sequence_ends(uint32_t first, double longest)
{
	uint32_t	itopk = first;

	for (int lists = 0; lists < 64; lists++)
	{
		uint32_t	next = GgLongerFilteredList(itopk, longest);

		if (next == 0)
			return true;
		if (next <= itopk || next > longest)
			break;
		itopk = next;
	}
	return false;
}

static void
test_filtered_lists(void)
{
	/* as many matching rows as make a list of so many, and fractions between */
	for (uint32_t first = 1; first <= GG_MAX_ITOPK; first += harness_small() ? 13 : 1)
	{
		uint32_t	failed = 0;

		for (uint32_t matching = 0; matching <= 2400; matching++)
			failed += !sequence_ends(first, matching / (double) GG_FILTER_SHARE);
		for (double matching = 2400; matching <= UINT32_MAX; matching *= 1.01)
			failed += !sequence_ends(first, matching / GG_FILTER_SHARE);
		CHECK(failed == 0, "first list %u: %u sequences do not end", first, failed);
	}
}

/* The list after one may be as long as any: rows are left to an exact pass no sooner than that. */
static void
test_last_list(void)
{
	CHECK(GgLongerFilteredList(64, 1000) == 128, "twice as long");
	CHECK(GgLongerFilteredList(64, 100) == 100, "the longest one");
	CHECK(GgLongerFilteredList(64, 79) == 0, "not for a few nodes more");
	CHECK(GgLongerFilteredList(1, 1000) == 17, "sixteen more");
	CHECK(GgLongerFilteredList(1, 2.5) == 2, "one more");
	CHECK(GgLongerFilteredList(1, 1.9) == 0, "part of a node is none");
}

int
main(void)
{
	harness_run("filtered lists", test_filtered_lists);
	harness_run("last list", test_last_list);
	return harness_finish();
}
