/*
 * test_product.c
 *		The CPU engine's graphs under inner product.
 */
#include "product_cases.h"

static void
test_case(const lengths *of)
{
	product_set set;
	gg_graph	graph;
	double		found;

	open_set(of, harness_size(8000, 8), harness_size(300, 10), &set);
	CHECK_OK(gg_cpu_engine.build(&set.data, &usual, &two_threads, &graph, NULL), of->what);
	found = graph_recall(&set, &graph, of->what);
	CHECK(found >= of->built, "%s: recall %.4f", of->what, found);
	merge(&gg_cpu_engine, &set.data, &usual, 4, &graph);
	found = graph_recall(&set, &graph, of->what);
	CHECK(found >= of->merged, "%s: recall after a merge %.4f", of->what, found);
	close_set(&set);
}

static void
test_lengths(void)
{
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
		if (c % 2 == 0 || !harness_fewer())
			test_case(&cases[c]);
}

static void
test_copies(void)
{
	check_copies(&gg_cpu_engine, harness_size(8000, 4), harness_size(400, 4),
				 harness_small() ? 1 : 6);
}

int
main(void)
{
	harness_run("lengths", test_lengths);
	harness_run("copies", test_copies);
	return harness_finish();
}
