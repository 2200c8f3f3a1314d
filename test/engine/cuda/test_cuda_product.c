/*
 * test_cuda_product.c
 *		The CUDA engine's graphs under inner product, beside the CPU engine's.
 *
 * Contracts
 *	recall		a graph that is built has the recall that product_cases.h asks for, and the CPU
 *				engine's within 0.01; merged within 0.02
 *	algorithms	TSDG's and GRNND's graphs have cagra's recall within 0.02
 *	groups		so has a graph that is built group by group, within 0.03
 *	copies		no cluster is lost where many rows have near copies
 *
 * The emulated device compares more than 4,096 rows in cells, another one more than 16,384.
 */
#include "../product_cases.h"

#include <stdio.h>

static uint32_t
rows(void)
{
	return harness_fewest() ? 4300 : harness_small() ? 5000 : 24000;
}

/* Built by either engine: recall of the CUDA engine's graph. */
static double
built(const product_set *set, const gg_build_params *params, const gg_control *control,
	  const char *what)
{
	gg_graph	graph;

	CHECK_OK(gg_cuda_engine.build(&set->data, params, control, &graph, NULL), what);
	return graph_recall(set, &graph, what);
}

static void
test_case(const lengths *of)
{
	/* by search, anew: merge() chooses between them */
	static const uint32_t one_of[] = {8, 2};
	static const double less[] = {0.02, 0.02};
	product_set set;
	gg_graph	graph;
	double		found,
				cpu;

	open_set(of, rows(), harness_fewest() ? 100 : 300, &set);
	CHECK_OK(gg_cpu_engine.build(&set.data, &usual, &two_threads, &graph, NULL), of->what);
	cpu = graph_recall(&set, &graph, of->what);
	found = built(&set, &usual, NULL, of->what);
	printf("# %s: built %.4f, on the CPU %.4f\n", of->what, found, cpu);
	CHECK(found >= cpu - 0.01, "%s: recall %.4f", of->what, found);
	for (int i = 0; i < 2; i++)
	{
		/* the emulated device merges an eighth of the one set, half of the other */
		if (harness_fewest() && i != (of->one_in > 0))
			continue;
		merge(&gg_cuda_engine, &set.data, &usual, one_of[i], &graph);
		found = graph_recall(&set, &graph, of->what);
		printf("# %s: merged, one of %u, %.4f\n", of->what, one_of[i], found);
		CHECK(found >= cpu - less[i], "%s: recall after a merge of one of %u %.4f", of->what,
			  one_of[i], found);
	}
	close_set(&set);
}

static void
test_lengths(void)
{
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
		if (c % 2 == 0 || !harness_fewest())
			test_case(&cases[c]);
}

static void
test_algorithms(void)
{
	product_set set;
	double		cagra;

	open_set(&cases[2], harness_fewest() ? 1000 : rows(), harness_fewest() ? 100 : 300, &set);
	cagra = built(&set, &usual, NULL, "cagra");
	for (int algorithm = GG_ALGORITHM_CAGRA + 1; algorithm <= GG_ALGORITHM_GRNND; algorithm++)
	{
		gg_build_params params = usual;
		double		found;

		params.algorithm = (gg_algorithm) algorithm;
		found = built(&set, &params, NULL, "algorithm");
		printf("# algorithm %d: %.4f, cagra %.4f\n", algorithm, found, cagra);
		CHECK(found >= cagra - 0.02, "algorithm %d: recall %.4f, cagra %.4f", algorithm, found,
			  cagra);
	}
	close_set(&set);
}

static void
test_groups(void)
{
	product_set set;
	gg_control	control = two_threads;
	gg_bytes	all;
	gg_bytes	own;
	gg_dataset	one;
	double		whole,
				found;

	open_set(&cases[2], harness_fewest() ? 600 : harness_small() ? 9000 : 60000,
			 harness_fewest() ? 50 : 200, &set);
	one = set.data;
	one.n = 1;
	CHECK_OK(gg_cuda_engine.build_bytes(&set.data, &usual, NULL, &all), "bytes");
	CHECK_OK(gg_cuda_engine.build_bytes(&one, &usual, NULL, &own), "bytes");
	whole = built(&set, &usual, NULL, "in one piece");
	control.device_memory = (uint64_t) ((double) (all.device - own.device) *
										(set.data.n > 10000 ? 0.4 : 0.7));
	found = built(&set, &usual, &control, "groups");
	printf("# groups %.4f, in one piece %.4f\n", found, whole);
	CHECK(found >= whole - 0.03, "groups: recall %.4f, in one piece %.4f", found, whole);
	close_set(&set);
}

static void
test_copies(void)
{
	check_copies(&gg_cuda_engine, harness_fewest() ? 1500 : harness_size(8000, 2),
				 harness_size(400, 4), harness_small() ? 1 : 6);
}

int
main(void)
{
	harness_run("lengths", test_lengths);
	harness_run("copies", test_copies);
	harness_run("algorithms", test_algorithms);
	harness_run("groups", test_groups);
	return harness_finish();
}
