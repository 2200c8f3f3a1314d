/*
 * common.cu
 *		Graphs, curves and tables of "bench papers"; see papers.h.
 */
#include "papers.h"

#include "../../../../kernels/serve/index.cuh"

#include <ctype.h>
#include <stdarg.h>
#include <thread>

papers_options papers;

const std::vector<uint32_t> &
papers_widths(void)
{
	static const std::vector<uint32_t> all = {10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512};
	static const std::vector<uint32_t> some = {10, 16, 32, 64, 128, 256};
	static const std::vector<uint32_t> few = {16, 32};

	return papers.tiny ? few : papers.coarse ? some : all;
}

/* ---- devices ----------------------------------------------------------------- */

int
papers_devices(void)
{
	int			count;

	must(gg_cuda_device_count(&count));
	return count;
}

void
papers_on_devices(int count, const std::function<void (int device)> &run)
{
	std::vector<std::thread> threads;

	for (int device = 0; device < count; device++)
		threads.emplace_back([&run, device]
							 {
								 must(gg_cuda_use_device(device));
								 run(device);
							 });
	for (std::thread &thread : threads)
		thread.join();
}

/* ---- sets ------------------------------------------------------------------ */

void
papers_begin(const char *title, uint32_t rows, bool truth, drawn_set *set)
{
	drawn_set_make(papers.set, papers.n != 0 ? papers.n : rows, papers.nq, truth, set);
	printf("## %s, %s\n%u rows of %u dimensions", title, set->name.c_str(), set->n, set->dim);
	if (truth)
		printf(", %u queries, LID %.1f", set->nq, set->lid);
	printf(" (%s)\n", set->like.c_str());
	fflush(stdout);
}

void
papers_sample(const drawn_set *set, row_sample *sample)
{
	row_sample_make(set, std::min(set->nq, set->n / 2), 10, sample);
}

/* ---- graphs ------------------------------------------------------------------ */

void
papers_lists_make(const drawn_set *set, const gg_build_params *params, cudaStream_t stream,
				  papers_lists *lists)
{
	gg_cuda_data data = set->data();
	gg_build_stats stats = {};
	const double begin = now_s();

	lists->k = params->intermediate_graph_degree;
	must(gg_cuda_knn_rows(&data, params, {stream, NULL, NULL}, &lists->copy, &lists->ids,
						  &lists->distances, &stats));
	lists->seconds = now_s() - begin;
}

void
papers_graph_make(const papers_lists *lists, const uint32_t *edges, uint32_t degree,
				  cudaStream_t stream, gg_graph *graph, uint32_t *repaired)
{
	const uint64_t bytes = (uint64_t) lists->copy.view.n * degree * sizeof(uint32_t);

	memset(graph, 0, sizeof(*graph));
	graph->n = lists->copy.view.n;
	graph->degree = degree;
	graph->adjacency = (uint32_t *) malloc(bytes);
	*repaired = 0;
	must(gg_cuda_copy_out(graph->adjacency, edges, bytes, stream, NULL));
	must(gg_cuda_connect(&lists->copy.view, {lists->ids.get(), lists->k}, edges, 1,
						 {stream, NULL, NULL}, graph, repaired));
}

double
papers_build(const drawn_set *set, const gg_build_params *params, int runs, gg_graph *graph,
			 gg_build_stats *stats)
{
	gg_cuda_stream stream;
	double		best = INFINITY;

	must(stream.create());
	memset(graph, 0, sizeof(*graph));
	for (int run = 0; run < papers_runs(runs); run++)
	{
		gg_cuda_data data = set->data();
		gg_build_stats these = {};

		gg_graph_free(graph);
		must(gg_cuda_build_rows(&data, NULL, params, {stream.get(), NULL, NULL}, graph, &these));

		/* the way of the graph to the host is no part of it */
		const double seconds = these.init_s + these.descent_s + these.optimize_s +
			these.connect_s;

		if (seconds < best)
		{
			best = seconds;
			*stats = these;
		}
	}
	return best;
}

open_index
papers_default_index(const char *title, uint32_t rows, uint32_t degree, drawn_set *set,
					 gg_graph *graph)
{
	const gg_build_params params = params_of(degree, 2 * degree);
	gg_build_stats stats = {};

	papers_begin(title, rows, true, set);
	(void) papers_build(set, &params, 1, graph, &stats);
	return open_index(set->dataset(), graph);
}

/* ---- searches ---------------------------------------------------------------- */

uint32_t
papers_queries(const drawn_set *set, uint32_t batch)
{
	const uint32_t count = batch <= 1 ? 500 : batch <= 100 ? 2000 : set->nq;

	batch = std::min(batch, set->nq);
	return std::min(count, set->nq) / batch * batch;
}

papers_point
papers_point_of(const drawn_set *set, uint32_t width, const uint64_t *keys, uint32_t count,
				uint32_t k, double seconds)
{
	std::vector<uint64_t> found((size_t) count * k);

	must(gg_cuda_copy_out(found.data(), keys, found.size() * sizeof(uint64_t), NULL, NULL));
	return {width, keys_recall(set->truth, found, count, k), count / seconds};
}

papers_point
papers_search(gg_index *index, const drawn_set *set, gg_search_mode mode, uint32_t batch,
			  uint32_t width, uint32_t k)
{
	const uint32_t count = papers_queries(set, batch);
	gg_search_params params = {k, std::max(width, k), 0, mode, 0, 0};
	gg_cuda_stream stream;
	gg_cuda_buffer<uint64_t> keys;
	double		seconds;

	batch = std::min(batch, set->nq);
	must(stream.create());
	must(keys.allocate((uint64_t) count * k));
	seconds = papers_best([&]()
	{
		for (uint32_t first = 0; first < count; first += batch)
			must(gg_cuda_search_enqueue(index, &params,
										set->queries.get() + (size_t) first * set->dim, batch,
										keys.get() + (size_t) first * k, stream.get()));
		MUST(cudaStreamSynchronize(stream.get()));
	});
	return papers_point_of(set, params.itopk_size, keys.get(), count, k, seconds);
}

papers_curve
papers_search_curve(gg_index *index, const drawn_set *set, gg_search_mode mode, uint32_t batch,
					uint32_t k)
{
	papers_curve curve;

	for (uint32_t width : papers_widths())
	{
		if (width < k && !papers.tiny)
			continue;
		curve.push_back(papers_search(index, set, mode, batch, width, k));
		if (curve.back().recall > 0.9995)
			break;
	}
	return curve;
}

double
papers_qps_at(const papers_curve &curve, double recall)
{
	for (size_t i = 0; i < curve.size(); i++)
	{
		if (curve[i].recall < recall)
			continue;
		if (i == 0)
			return curve[0].recall > recall ? 0.0 : curve[0].qps;

		const papers_point &a = curve[i - 1];
		const papers_point &b = curve[i];
		const double from = log(1.0 - a.recall);
		const double part = (log(1.0 - recall) - from) /
			(log(std::max(1.0 - b.recall, 1e-6)) - from);

		return exp(log(a.qps) + part * (log(b.qps) - log(a.qps)));
	}
	return 0.0;
}

/* ---- tables -------------------------------------------------------------------- */

void
papers_head(const char *names)
{
	printf("\n| %s |\n|:--|", names);
	for (const char *at = strchr(names, '|'); at != NULL; at = strchr(at + 1, '|'))
		printf("--:|");
	printf("\n");
}

static const double targets[] = {0.90, 0.95, 0.99};

void
papers_curve_head(void)
{
	papers_head("search | queries/s at 0.90 | at 0.95 | at 0.99 | itopk: recall, queries/s");
}

/* A plot's name in a file's: letters, digits, and dashes for the rest. */
static std::string
file_name(const char *plot)
{
	std::string name = std::string(papers.figure) + "-" + papers.set + "-";

	for (const char *at = plot; *at != '\0'; at++)
		if (isalnum((unsigned char) *at))
			name += *at;
		else if (name.back() != '-')
			name += '-';
	return name;
}

void
papers_curve_row(const char *plot, const char *name, const papers_curve &curve)
{
	printf("| %s |", name);
	for (double target : targets)
	{
		const double qps = papers_qps_at(curve, target);

		if (qps > 0.0)
			printf(" %.0f |", qps);
		else
			printf(" - |");
	}
	for (size_t i = 0; i < curve.size(); i++)
	{
		/* some of many points: the plot has them all */
		if (curve.size() <= 6 || i % 3 == 0 || i + 1 == curve.size())
			printf("%s %u: %.4f, %.0f", i == 0 ? "" : ";", curve[i].width, curve[i].recall,
				   curve[i].qps);
		/* as report.pl has points of the SQL bench: set, label, width, clients, round, ... */
		if (papers.points != NULL)
			fprintf(papers.points, "point\t%s\t%s\t%u\t1\t1\t%.4f\t%.1f\t0\t0\t0\t10\t1\t0\n",
					file_name(plot).c_str(), name, curve[i].width, curve[i].recall,
					curve[i].qps);
	}
	printf(" |\n");
	fflush(stdout);
}

void
papers_ratios(const char *a, const papers_curve &of, const char *b, const papers_curve &to)
{
	bool		any = false;

	printf("- %s over %s, queries/s:", a, b);
	for (double target : targets)
	{
		const double x = papers_qps_at(of, target);
		const double y = papers_qps_at(to, target);

		if (x > 0.0 && y > 0.0)
		{
			printf("%s %.2f at recall %.2f", any ? "," : "", x / y, target);
			any = true;
		}
	}
	printf("%s\n", any ? "" : " no recall within both curves");
	fflush(stdout);
}

void
papers_compare(const char *paper, const char *format, ...)
{
	va_list		args;

	printf("- paper: %s; here: ", paper);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
}
