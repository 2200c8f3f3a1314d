/*
 * test_search_plan.c
 *		Lists that follow each other: every sequence ends, and every list is longer than the one
 *		before it.  When a filtered walk is worth it.
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
	/* longest lists that are whole nodes, and fractions between */
	for (uint32_t first = 1; first <= GG_MAX_ITOPK; first += harness_small() ? 13 : 1)
	{
		uint32_t	failed = 0;

		for (uint32_t matching = 0; matching <= 2400; matching++)
			failed += !sequence_ends(first, matching / 24.0);
		for (double matching = 2400; matching <= UINT32_MAX; matching *= 1.01)
			failed += !sequence_ends(first, matching / 24.0);
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

/* The longest list where so many of 40,000 nodes of 128 dimensions match. */
static double
longest_list(double matching, double limit, double conditions, double pages)
{
	const GgFilteredNodes of = {
		.nodes = 40000,
		.matching = matching,
		.conditions = conditions,
		.walk_pages = pages,
		.exact_pages = pages,
		.wanted = GgNodesWanted(limit, 64)
	};

	return GgLongestFilteredList(&of);
}

/*
 * LIMIT is what a walk has to bring, and what it costs is what an exact pass costs, which evaluates
 * the conditions of all rows unless that was done.  All is monotone.
 */
static void
test_filtered_walks(void)
{
	const double pages = 0.063;

	CHECK(longest_list(2000, 10, 1, pages) == 0, "1 in 20 is measured");
	CHECK(longest_list(8000, 10, 1, pages) >= 128, "1 in 5 is walked");
	CHECK(longest_list(3500, 1, 1, pages) > 0, "LIMIT 1 wants fewer nodes");
	CHECK(longest_list(3500, 10, 1, pages) == 0, "LIMIT 10 more");
	CHECK(longest_list(8000, 100, 1, pages) == 0, "LIMIT 100 more than a walk has");
	CHECK(longest_list(20000, 100, 1, pages) > 200, "but not of every other node");
	CHECK(longest_list(8000, 0, 1, pages) > 0, "without LIMIT as for some rows");
	CHECK(longest_list(8000, 10, 1, pages) > longest_list(8000, 10, 0, pages),
		  "conditions are part of an exact pass");
	for (double matching = 0; matching < 40000; matching += 100)
		CHECK(longest_list(matching + 100, 10, 1, pages) >= longest_list(matching, 10, 1, pages),
			  "%g nodes: no shorter list of more", matching);
}

int
main(void)
{
	harness_run("filtered lists", test_filtered_lists);
	harness_run("last list", test_last_list);
	harness_run("filtered walks", test_filtered_walks);
	return harness_finish();
}
