/*
 * test_merge_graph.c
 *		The CPU engine's merge().
 */
#include "merge_cases.h"

int
main(void)
{
	harness_run("arguments", test_arguments);
	harness_run("tiny", test_tiny);
	harness_run("untidy lists", test_untidy_lists);
	/* valgrind: every path, at sizes that take seconds */
	if (harness_fewer())
		return harness_finish();
	harness_run("small side", test_small_side);
	harness_run("determinism", test_determinism);
	harness_run("recall", test_recall);
	harness_run("dimensions", test_dimensions);
	harness_run("cancel", test_cancel);
	return harness_finish();
}
