/*
 * algorithms.cu
 *		The algorithms beside each other on every set: construction, degree, searches; and what a
 *		construction that is told to do less costs in searches.
 */
#include "papers.h"

#define DEGREE 32u

/* One way to build. */
typedef struct construction
{
	const char *name;
	const char *algorithm;		/* algorithm_option.h */
	uint32_t	lists;			/* length of the k-NN lists */
	uint32_t	iterations;		/* of GNND; 0: as many as the engine makes */
} construction;

/* Build so, print "| name | seconds | stages | GNND | mean degree", and open the graph. */
static open_index
construct(const drawn_set *set, const construction *how)
{
	gg_build_params params = params_of(DEGREE, how->lists);
	gg_build_stats stats = {};
	owned_graph graph;
	double		seconds;

	params.max_iterations = how->iterations;
	/* of that many, none is left out */
	params.termination_threshold = how->iterations > 0 ? 1e-6f : 0;
	parse_algorithm(how->algorithm, &params);
	seconds = papers_build(set, &params, BEST_RUNS, &graph, &stats);
	printf("| %s | %.3f | %.3f + %.3f + %.3f + %.3f | %u, %.4f | %.1f", how->name, seconds,
		   stats.init_s, stats.descent_s, stats.optimize_s, stats.connect_s, stats.iterations,
		   stats.changed, mean_degree(&graph));
	return open_index(set->dataset(), &graph);
}

void
algorithms(void)
{
	static const construction ways[] = {
		{"cagra", "cagra", 2 * DEGREE, 0},
		{"tsdg", "tsdg", 2 * DEGREE, 0},
		{"grnnd", "grnnd", 2 * DEGREE, 0},
	};
	drawn_set	set;
	std::vector<open_index> indexes;

	papers.coarse = true;
	papers_begin("Algorithms: construction and searches", 1000000, true, &set);
	papers_head("algorithm | construction, s | init + descent + optimize + connect "
				"| iterations, last change | mean degree");
	for (const construction &way : ways)
	{
		indexes.push_back(construct(&set, &way));
		printf(" |\n");
	}
	for (uint32_t batch : {1u, 10u, 100u, 10000u})
	{
		const std::string name = "batch " + std::to_string(batch);

		if (batch > set.nq)
			continue;
		printf("\nrecall@10, %s:\n", name.c_str());
		papers_curve_head();
		for (size_t i = 0; i < indexes.size(); i++)
			papers_curve_row(name.c_str(), ways[i].name,
							 papers_search_curve(indexes[i], &set, GG_SEARCH_AUTO, batch, 10));
	}
}

void
construction_limits(void)
{
	static const construction ways[] = {
		{"cagra, lists of 64", "cagra", 64, 0},
		{"cagra, lists of 64, 2 iterations", "cagra", 64, 2},
		{"cagra, lists of 56", "cagra", 56, 0},
		{"cagra, lists of 48", "cagra", 48, 0},
		{"cagra, lists of 48, 2 iterations", "cagra", 48, 2},
		{"cagra, lists of 40", "cagra", 40, 0},
		{"cagra, lists of 32", "cagra", 32, 0},
		{"cagra, lists of 32, 2 iterations", "cagra", 32, 2},
		{"tsdg, lists of 48", "tsdg", 48, 0},
		{"grnnd, 2 x 1", "grnnd", 64, 0},
		{"grnnd, 1 x 1", "grnnd:0:0:1:1", 64, 0},
		{"grnnd, 1 x 2", "grnnd:0:0:1:2", 64, 0},
	};
	const bool	large = papers.n > 2000000;
	drawn_set	set;

	papers_begin("Construction: what doing less costs in searches", 1000000, true, &set);
	papers_head("construction | s | init + descent + optimize + connect "
				"| iterations, last change | mean degree "
				"| recall@10 at itopk 32 | at 64 | queries/s at 0.95 | at 0.99");
	for (const construction &way : ways)
	{
		papers_curve curve;
		double		recalls[2] = {};

		if (large && strcmp(way.algorithm, "cagra") != 0)
			continue;

		const open_index index = construct(&set, &way);

		for (uint32_t width : {10u, 16u, 24u, 32u, 48u, 64u, 96u, 128u})
		{
			if (papers.tiny && width != 32 && width != 64)
				continue;
			curve.push_back(papers_search(index, &set, GG_SEARCH_AUTO, set.nq, width, 10));
			if (width == 32)
				recalls[0] = curve.back().recall;
			if (width == 64)
				recalls[1] = curve.back().recall;
		}
		printf(" | %.4f | %.4f", recalls[0], recalls[1]);
		for (double recall : {0.95, 0.99})
		{
			const double qps = papers_qps_at(curve, recall);

			if (qps > 0)
				printf(" | %.2fM", qps * 1e-6);
			else
				printf(" | outside");
		}
		printf(" |\n");
		fflush(stdout);
	}
}
