/*
 * test_merge_graph.c
 *		The CPU engine's merge().
 */
#include "merge_cases.h"

/*
 * Rows of uniform data, where near ones are hard to find, with short lists: searches of the base
 * have to go as far as with long ones, or the new rows are not found themselves.
 */
static void
test_by_search_short_lists(void)
{
	harness_spec spec = {.shape = SHAPE_UNIFORM, .n = harness_size(7000, 3), .dim = 32, .seed = 91};
	gg_build_params params = {.graph_degree = 16,.intermediate_graph_degree = 32,.seed = 5};
	gg_control	control = {.threads = 2};
	const uint32_t nq = harness_size(700, 3);
	uint32_t	ends[2] = {spec.n - nq, spec.n};
	gg_dataset	data;
	gg_graph	anew,
				graph;
	const float *queries;
	sides		s;

	harness_data(&spec, &data, NULL, 0);
	queries = (const float *) data.rows + (size_t) ends[0] * data.dim;
	make_sides(&s, &data, ends, 2, &params);
	CHECK_OK(gg_cpu_build(&data, &params, &control, &anew, NULL), "short lists");
	if (merge_way(&data, &s, &params, GG_MERGE_SEARCH, &graph, "short lists"))
	{
		const double had = recall_of(&data, &anew, NULL, queries, nq);
		const double has = recall_of(&data, &graph, NULL, queries, nq);

		CHECK(has >= had - 0.01, "recall of new rows %.4f, built anew %.4f", has, had);
	}
	gg_graph_free(&graph);
	gg_graph_free(&anew);
	free_sides(&s, &data, NULL);
}

int
main(void)
{
	harness_run("arguments", test_arguments);
	harness_run("tiny", test_tiny);
	harness_run("untidy lists", test_untidy_lists);
	harness_run("by search, tiny", test_by_search_tiny);
	harness_run("by search, apart", test_by_search_apart);
	/* valgrind: every path, at sizes that take seconds */
	if (harness_fewer())
		return harness_finish();
	harness_run("small side", test_small_side);
	harness_run("determinism", test_determinism);
	harness_run("recall", test_recall);
	harness_run("by search", test_by_search);
	harness_run("by search, short lists", test_by_search_short_lists);
	harness_run("dimensions", test_dimensions);
	harness_run("cancel", test_cancel);
	return harness_finish();
}
