/*
 * grnnd.cu
 *		Figures of Li, Li, Chang, Miyazaki: "GRNND: A GPU-Parallel Relative NN-Descent Algorithm for
 *		Efficient Approximate Nearest Neighbor Graph Construction", 2025.
 *
 * The paper does not say what S and R are: here the engine's, 32 and 64.  Its CAGRA builds by GNND
 * from random lists; so does one of those here, and the other starts from pivot cells as the engine
 * does.  Recall and queries/s are of single-CTA search in one batch.
 */
#include "papers.h"

#include "../../../../src/engine/rules/algorithms.h"

#define DEGREE 32u
#define WIDTH 64u				/* the fixed search */

/* One construction. */
typedef struct built
{
	std::string name;
	double		seconds;
	double		recall;			/* at WIDTH */
	double		qps;
} built;

/* As choose_edges() of build.cu, by one of the orders; seconds until the graph is connected. */
static double
grow(const drawn_set *set, const gg_build_params *params, papers_grnnd grnnd, gg_graph *graph)
{
	static bool warm = papers.tiny; /* kernels of the first run have to be loaded */
	double		best = INFINITY;
	gg_cuda_stream stream;

	must(stream.create());
	memset(graph, 0, sizeof(*graph));
	for (int run = warm ? 1 : 0; run < 2; run++)
	{
		gg_cuda_data data = set->data();
		gg_build_stats stats = {};
		papers_lists lists;
		gg_build_params first = *params;
		gg_cuda_buffer<uint64_t> starts;
		gg_cuda_buffer<uint32_t> order;
		gg_cuda_buffer<uint32_t> edges;
		uint32_t	repaired;
		const uint32_t start = gg_grnnd_params(params).start;
		const double begin = now_s();

		first.intermediate_graph_degree = start;
		if (params->init == GG_INIT_RANDOM)
			must(gg_cuda_working_copy_make(&data, {stream.get(), NULL, NULL}, &lists.copy));
		else
			must(gg_cuda_near_lists(&data, &first, {stream.get(), NULL, NULL}, &lists.copy,
									&starts, &order, &stats));
		lists.k = gg_grnnd_params(params).capacity;
		must(lists.ids.allocate((uint64_t) set->n * lists.k));
		must(edges.allocate((uint64_t) set->n * DEGREE));
		must(grnnd(&data, params, {starts.get(), gg_cuda_list_length(start), start}, order.get(),
				   {stream.get(), NULL, NULL}, lists.ids.get()));
		must(gg_cuda_optimize_device(lists.ids.get(), set->n, lists.k, DEGREE,
									 {stream.get(), NULL, NULL}, edges.get()));
		MUST(cudaStreamSynchronize(stream.get()));
		best = std::min(best, now_s() - begin);
		gg_graph_free(graph);
		papers_graph_make(&lists, edges.get(), DEGREE, stream.get(), graph, &repaired);
	}
	warm = true;
	return best;
}

/* Build, search, print a row; the graph is given back unless wanted. */
static built
row(const drawn_set *set, const std::string &name, gg_build_params params,
	papers_grnnd grnnd, gg_graph *wanted)
{
	gg_build_stats stats = {};
	owned_graph graph;
	papers_point point;
	double		seconds;

	params.graph_degree = DEGREE;
	params.seed = 1;
	if (params.algorithm == GG_ALGORITHM_GRNND)
	{
		params.intermediate_graph_degree = DEGREE;
		seconds = grow(set, &params, grnnd, &graph);
	}
	else
	{
		params.intermediate_graph_degree = 2 * DEGREE;
		(void) papers_build(set, &params, 2, &graph, &stats);
		seconds = stats.init_s + stats.descent_s + stats.optimize_s;
	}
	point = papers_search(open_index(set->dataset(), &graph), set, GG_SEARCH_SINGLE_CTA, 10000,
						  WIDTH, 10);
	printf("| %s | %.3f | %.1f | %.4f | %.0f |\n", name.c_str(), seconds, mean_degree(&graph),
		   point.recall, point.qps);
	fflush(stdout);
	if (wanted != NULL)
		std::swap(*wanted, (gg_graph &) graph);
	return {name, seconds, point.recall, point.qps};
}

static void
head(const char *what)
{
	papers_head((std::string(what) + " | seconds | mean degree | recall@10 at itopk 64 | "
				 "queries/s there").c_str());
}

static void
begin(const char *title, drawn_set *set)
{
	papers_begin(title, strcmp(papers.set, "s960") == 0 ? 200000 : 1000000, true, set);
}

static gg_build_params
rounds(gg_init init, uint32_t outer, uint32_t inner, float rho)
{
	gg_build_params params = {};

	params.algorithm = GG_ALGORITHM_GRNND;
	params.init = init;
	params.outer_rounds = papers.tiny ? 1 : outer;
	params.inner_rounds = papers.tiny ? 1 : inner;
	params.rho = rho;
	return params;
}

static std::string
rounds_name(uint32_t outer, uint32_t inner)
{
	return ", " + std::to_string(outer) + " x " + std::to_string(inner);
}

/* The fastest of a kind with such a recall; NULL: none has it. */
static const built *
fastest(const std::vector<built> &of, double recall)
{
	const built *best = NULL;

	for (const built &one : of)
		if (one.recall >= recall && (best == NULL || one.seconds < best->seconds))
			best = &one;
	return best;
}

static void
compare_at_recall(const std::string &a, const std::vector<built> &of, const std::string &b,
				  const std::vector<built> &to)
{
	bool		any = false;

	printf("- %s against %s, construction:", a.c_str(), b.c_str());
	for (double recall : {0.90, 0.95, 0.97, 0.98, 0.99, 0.995})
	{
		const built *x = fastest(of, recall);
		const built *y = fastest(to, recall);

		if (x != NULL && y != NULL)
		{
			printf("%s %.2fx at %.3f", any ? "," : "", y->seconds / x->seconds, recall);
			any = true;
		}
	}
	printf("%s\n", any ? "" : " no recall that both reach");
}

/* Figures 5 and 6. */
void
grnnd_5(void)
{
	static const uint32_t random_rounds[][2] = {{1, 4}, {2, 4}, {2, 8}, {3, 8}, {4, 8}, {6, 8}};
	static const uint32_t cells_rounds[][2] = {{1, 1}, {2, 1}, {3, 1}, {2, 2}};
	static const uint32_t iterations[] = {3, 4, 5, 6, 8, 12, 20};
	static const std::string names[4] = {"GRNND, random pools", "GRNND, pivot cells",
										 "CAGRA, random lists", "CAGRA, pivot cells"};
	drawn_set	set;
	std::vector<built> kinds[4];
	owned_graph graphs[4];

	begin("GRNND figures 5 and 6: construction at equal recall, and searches", &set);
	head("construction");
	for (const uint32_t *r : random_rounds)
		if (!papers.tiny || r[0] == 4)
			kinds[0].push_back(row(&set, names[0] + rounds_name(r[0], r[1]),
								   rounds(GG_INIT_RANDOM, r[0], r[1], 0.6f),
								   gg_cuda_grnnd_device, r[0] == 4 ? &graphs[0] : NULL));
	for (const uint32_t *r : cells_rounds)
		if (!papers.tiny || r == cells_rounds[1])
			kinds[1].push_back(row(&set, names[1] + rounds_name(r[0], r[1]),
								   rounds(GG_INIT_PIVOT_CELLS, r[0], r[1], 0),
								   gg_cuda_grnnd_device,
								   r == cells_rounds[1] ? &graphs[1] : NULL));
	for (uint32_t count : iterations)
	{
		gg_build_params params = {};

		if (papers.tiny && count != 20)
			continue;
		params.init = GG_INIT_RANDOM;
		params.max_iterations = papers.tiny ? 1 : count;
		kinds[2].push_back(row(&set, names[2] + ", " + std::to_string(count) +
							   " iterations", params, NULL, count == 20 ? &graphs[2] : NULL));
	}
	for (uint32_t count : {1u, 2u, 0u})
	{
		gg_build_params params = {};

		if (papers.tiny && count != 0)
			continue;
		params.max_iterations = count;
		kinds[3].push_back(row(&set, names[3] + ", " +
							   (count == 0 ? "default" : std::to_string(count) + " iterations"),
							   params, NULL, count == 0 ? &graphs[3] : NULL));
	}
	printf("\n");
	papers_compare("GRNND is built 3.1x to 5.7x as fast as CAGRA (which starts from random lists), "
				   "at comparable recall", "by recall at itopk 64:");
	compare_at_recall(names[0], kinds[0], names[2], kinds[2]);
	compare_at_recall(names[1], kinds[1], names[2], kinds[2]);
	compare_at_recall(names[1], kinds[1], names[3], kinds[3]);

	printf("\nSearches of four of these graphs (4 x 8, 2 x 1, 20 iterations, default):\n");
	papers_curve_head();

	papers_curve curves[4];

	for (int kind = 0; kind < 4; kind++)
	{
		curves[kind] = papers_search_curve(open_index(set.dataset(), &graphs[kind]), &set,
										   GG_SEARCH_SINGLE_CTA, 10000, 10);
		papers_curve_row("batch 10,000", names[kind].c_str(), curves[kind]);
	}
	printf("\n");
	papers_compare("GRNND's graphs answer substantially more queries/s than CAGRA's", "as follows");
	papers_ratios(names[0].c_str(), curves[0], names[2].c_str(), curves[2]);
	papers_ratios(names[1].c_str(), curves[1], names[3].c_str(), curves[3]);
}

void
grnnd_7(void)
{
	drawn_set	set;
	built		order[4];

	begin("GRNND figure 7: the order in which a pool is looked at", &set);
	head("order, from random pools");
	for (uint32_t outer : {2u, 4u})
	{
		const gg_build_params params = rounds(GG_INIT_RANDOM, outer, 8, 0.6f);
		const std::string which = rounds_name(outer, 8);

		order[0] = row(&set, "all pairs, ascending" + which, params, papers_grnnd_ascending, NULL);
		order[1] = row(&set, "all pairs, descending" + which, params, papers_grnnd_descending,
					   NULL);
		order[2] = row(&set, "all pairs, disordered" + which, params, papers_grnnd_disordered,
					   NULL);
		order[3] = row(&set, "pairs drawn (ours)" + which, params, gg_cuda_grnnd_device, NULL);
	}
	printf("\n");
	papers_compare("disordered is slightly slower than ascending, much faster than descending, and "
				   "has the best recall", "seconds, ascending : descending : disordered : ours = 1 "
				   ": %.2f : %.2f : %.2f; recall %.4f, %.4f, %.4f, %.4f",
				   order[1].seconds / order[0].seconds, order[2].seconds / order[0].seconds,
				   order[3].seconds / order[0].seconds, order[0].recall, order[1].recall,
				   order[2].recall, order[3].recall);
}

/* One share of a pool; in a tiny run 0.6 alone. */
static built
rho_row(const drawn_set *set, float rho, gg_init init, uint32_t outer, uint32_t inner)
{
	char		name[64];

	if (papers.tiny && rho != 0.6f)
		return {};
	snprintf(name, sizeof(name), "%.1f, %s, %u x %u", rho,
			 init == GG_INIT_RANDOM ? "random pools" : "pivot cells", outer, inner);
	return row(set, name, rounds(init, outer, inner, rho), gg_cuda_grnnd_device, NULL);
}

void
grnnd_8(void)
{
	drawn_set	set;
	built		low = {};
	built		middle = {};
	built		high = {};
	built		other;

	begin("GRNND figure 8: the share of a pool that gets reverse edges", &set);
	head("rho");
	for (float rho : {0.1f, 0.2f, 0.4f, 0.6f, 0.8f, 1.0f})
	{
		const built one = rho_row(&set, rho, GG_INIT_RANDOM, 4, 8);

		(rho == 0.1f ? low : rho == 0.6f ? middle : rho == 1.0f ? high : other) = one;
	}
	for (float rho : {0.2f, 0.6f, 1.0f})
		(void) rho_row(&set, rho, GG_INIT_PIVOT_CELLS, 2, 1);
	printf("\n");
	papers_compare("0.6 is best: less loses recall, more takes longer for little",
				   "from random pools 0.1, 0.6, 1.0: recall %.4f, %.4f, %.4f; seconds %.3f, %.3f, "
				   "%.3f", low.recall, middle.recall, high.recall, low.seconds, middle.seconds,
				   high.seconds);
}

void
grnnd_9(void)
{
	static const std::vector<uint32_t> one = {1};
	static const std::vector<uint32_t> few = {1, 2, 3};
	static const std::vector<uint32_t> several = {2, 4, 8};
	static const std::vector<uint32_t> most = {1, 2, 4, 6};
	drawn_set	set;

	begin("GRNND figure 9: outer and inner rounds", &set);
	head("T1 x T2");
	for (uint32_t outer : papers.tiny ? one : most)
		for (uint32_t inner : papers.tiny ? one : several)
			(void) row(&set, "random pools" + rounds_name(outer, inner),
					   rounds(GG_INIT_RANDOM, outer, inner, 0.6f), gg_cuda_grnnd_device, NULL);
	for (uint32_t outer : papers.tiny ? one : few)
		for (uint32_t inner : papers.tiny ? one : few)
			(void) row(&set, "pivot cells" + rounds_name(outer, inner),
					   rounds(GG_INIT_PIVOT_CELLS, outer, inner, 0), gg_cuda_grnnd_device, NULL);
	printf("\n");
	papers_compare("T1 of 1 or 2 does for 96 and 128 dimensions, 960 gain by more; T2 helps recall "
				   "and may save time", "as above");
}
