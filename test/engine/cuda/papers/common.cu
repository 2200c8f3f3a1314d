/*
 * common.cu
 *		Sets, graphs, curves and tables of bench_papers; see papers.h.
 */
#include "../draw.cuh"
#include "papers.h"
#include "../../../../kernels/serve/index.cuh"


#include <ctype.h>
#include <stdarg.h>
#include <thread>
#include <time.h>

papers_options papers;

void
must(gg_status status)
{
	if (status.code == GG_OK)
		return;
	fprintf(stderr, "bench_papers: %s: %s\n", status.where, status.message);
	exit(1);
}

double
papers_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double) time.tv_sec + (double) time.tv_nsec * 1e-9;
}

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

typedef struct known_set
{
	const char *name;
	const char *like;
	gg_metric	metric;
	draw_from	from;
	long		query_seed;		/* queries of another distribution than rows */
} known_set;

static const known_set known_sets[] = {
	{"s128", "SIFT1M: 128 d, LID 15.6", GG_METRIC_L2, {128, 32, 200, false, DRAW_SEED}, DRAW_SEED},
	{"u128", "rows without clusters", GG_METRIC_L2, {128, 20, 1, false, DRAW_SEED}, DRAW_SEED},
	{"s96", "DEEP1M: 96 d, LID 15.9", GG_METRIC_L2, {96, 34, 200, false, DRAW_SEED}, DRAW_SEED},
	{"s960", "GIST1M: 960 d, LID 25.9", GG_METRIC_L2, {960, 76, 200, false, DRAW_SEED}, DRAW_SEED},
	{"s100", "GloVe: 100 d, cosine, LID 29.4", GG_METRIC_COSINE, {100, 128, 110, true, DRAW_SEED},
	DRAW_SEED},
	{"s768", "embeddings: 768 d, cosine", GG_METRIC_COSINE, {768, 64, 500, true, DRAW_SEED},
	DRAW_SEED},
	{"s200", "Text-to-Image: 200 d, inner product, LID 20.9, queries of another distribution",
	GG_METRIC_IP, {200, 24, 200, false, DRAW_SEED}, 11}
};

/*
 * The mean of the maximum-likelihood estimates of LID from the distances of TRUTH neighbours, which
 * become Euclidean ones first; under inner product after the MIPS reduction.
 */
static double
estimate_lid(const papers_set *set, const std::vector<float> &distances)
{
	double		longest = 0.0;
	double		lid = 0.0;

	for (uint32_t i = 0; set->metric == GG_METRIC_IP && i < set->n; i++)
	{
		const float *row = &set->host_rows[(size_t) i * set->dim];
		double		sum = 0.0;

		for (uint32_t d = 0; d < set->dim; d++)
			sum += (double) row[d] * row[d];
		longest = std::max(longest, sum);
	}
	for (uint32_t q = 0; q < set->nq; q++)
	{
		const float *found = &distances[(size_t) q * TRUTH];
		const float *query = &set->host_queries[(size_t) q * set->dim];
		double		add = 0.0;
		double		logs = 0.0;

		if (set->metric == GG_METRIC_IP)
		{
			add = longest;
			for (uint32_t d = 0; d < set->dim; d++)
				add += (double) query[d] * query[d];
		}

		const double factor = set->metric == GG_METRIC_IP ? 2.0 : 1.0;
		const double last = add + factor * found[TRUTH - 1];

		for (uint32_t i = 0; i + 1 < TRUTH; i++)
			logs += 0.5 * log(std::max(add + factor * found[i], 1e-30) / last);
		lid -= (TRUTH - 1) / logs / set->nq;
	}
	return lid;
}

/* The rows' exact answers. */
static void
find_truth(papers_set *set)
{
	gg_index   *index = papers_index(set, NULL);
	std::vector<float> distances((size_t) set->nq * TRUTH);

	set->truth.resize(distances.size());
	must(harness_exact(&gg_cuda_engine, index, TRUTH, NULL, set->host_queries.data(), set->nq,
					   NULL, set->truth.data(), distances.data()));
	gg_cuda_index_close(index);
	set->lid = estimate_lid(set, distances);
}

void
papers_set_make(const char *name, uint32_t rows, bool truth, papers_set *set)
{
	const known_set *known = NULL;

	for (const known_set &one : known_sets)
		if (one.name == std::string(name))
			known = &one;
	if (known == NULL)
	{
		fprintf(stderr, "bench_papers: there is no set %s\n", name);
		exit(2);
	}

	draw_from	from = known->from;

	set->name = name;
	set->like = known->like;
	set->n = papers.n != 0 ? papers.n : rows;
	set->nq = papers.nq;
	set->dim = from.dim;
	set->metric = known->metric;
	set->lid = 0.0;
	must(draw_rows(from, 0, set->n, &set->rows));
	from.seed = known->query_seed;
	must(draw_rows(from, set->n, set->nq, &set->queries));
	set->host_rows.resize((size_t) set->n * set->dim);
	set->host_queries.resize((size_t) set->nq * set->dim);
	must(gg_cuda_copy_out(set->host_rows.data(), set->rows.get(), set->rows.bytes(), NULL, NULL));
	must(gg_cuda_copy_out(set->host_queries.data(), set->queries.get(), set->queries.bytes(), NULL,
						  NULL));
	if (truth)
		find_truth(set);
}

void
papers_sample_make(const papers_set *set, uint32_t k, papers_sample *sample)
{
	const uint32_t count = std::min(set->nq, set->n / 2);
	gg_index   *index = papers_index(set, NULL);
	std::vector<float> queries((size_t) count * set->dim);
	std::vector<uint32_t> nodes((size_t) count * (k + 1));
	std::vector<float> distances(nodes.size());

	sample->k = k;
	for (uint32_t i = 0; i < count; i++)
	{
		const uint32_t row = (uint32_t) ((uint64_t) i * set->n / count);

		sample->rows.push_back(row);
		memcpy(&queries[(size_t) i * set->dim], &set->host_rows[(size_t) row * set->dim],
			   set->dim * sizeof(float));
	}
	must(harness_exact(&gg_cuda_engine, index, k + 1, NULL, queries.data(), count, NULL,
					   nodes.data(), distances.data()));
	gg_cuda_index_close(index);
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t j = 0, kept = 0; j <= k && kept < k; j++)
			if (nodes[(size_t) i * (k + 1) + j] != sample->rows[i])
			{
				sample->truth.push_back(nodes[(size_t) i * (k + 1) + j]);
				kept++;
			}
}

static __global__ void
pick_lists_kernel(const uint32_t *lists, const uint32_t *rows, uint32_t k, uint32_t *out)
{
	for (uint32_t i = threadIdx.x; i < k; i += blockDim.x)
		out[(uint64_t) blockIdx.x * k + i] = lists[(uint64_t) rows[blockIdx.x] * k + i];
}

double
papers_lists_recall(const papers_sample *sample, const uint32_t *lists, uint32_t k, uint32_t at,
					cudaStream_t stream)
{
	const uint32_t count = (uint32_t) sample->rows.size();
	gg_cuda_buffer<uint32_t> rows;
	gg_cuda_buffer<uint32_t> picked;
	std::vector<uint32_t> found((size_t) count * k);
	uint64_t	hits = 0;

	must(rows.allocate(count));
	must(picked.allocate(found.size()));
	must(gg_cuda_copy_in(rows.get(), sample->rows.data(), rows.bytes(), stream, NULL));
	pick_lists_kernel<<<count, 64, 0, stream>>>(lists, rows.get(), k, picked.get());
	MUST(cudaGetLastError());
	must(gg_cuda_copy_out(found.data(), picked.get(), picked.bytes(), stream, NULL));
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t j = 0; j < at; j++)
			for (uint32_t l = 0; l < at && l < k; l++)
				hits += sample->truth[(size_t) i * sample->k + j] == found[(size_t) i * k + l];
	return (double) hits / ((double) count * at);
}

/* ---- graphs ------------------------------------------------------------------ */

void
papers_lists_make(const papers_set *set, const gg_build_params *params, cudaStream_t stream,
				  papers_lists *lists)
{
	gg_cuda_data data = set->data();
	gg_build_stats stats = {};
	const double begin = papers_now();

	lists->k = params->intermediate_graph_degree;
	must(gg_cuda_knn_rows(&data, params, {stream, NULL, NULL}, &lists->copy, &lists->ids,
						  &lists->distances, &stats));
	lists->seconds = papers_now() - begin;
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
papers_build(const papers_set *set, const gg_build_params *params, int runs, gg_graph *graph,
			 gg_build_stats *stats)
{
	gg_cuda_stream stream;
	double		best = INFINITY;

	must(stream.create());
	memset(graph, 0, sizeof(*graph));
	for (int run = 0; run < (papers.tiny ? 1 : runs); run++)
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

gg_index *
papers_index(const papers_set *set, const gg_graph *graph)
{
	const gg_dataset dataset = set->dataset();
	gg_index   *index = NULL;

	must(gg_cuda_index_open(&dataset, graph, NULL, &index));
	return index;
}

gg_index *
papers_default_index(const char *title, uint32_t degree, papers_set *set, gg_graph *graph)
{
	gg_build_params params = {};
	gg_build_stats stats = {};

	papers_set_make(papers.set, 1000000, true, set);
	papers_begin(title, set);
	params.graph_degree = degree;
	params.intermediate_graph_degree = 2 * degree;
	params.seed = 1;
	(void) papers_build(set, &params, 1, graph, &stats);
	return papers_index(set, graph);
}

/* ---- searches ---------------------------------------------------------------- */

uint32_t
papers_queries(const papers_set *set, uint32_t batch)
{
	const uint32_t count = batch <= 1 ? 500 : batch <= 100 ? 2000 : set->nq;

	batch = std::min(batch, set->nq);
	return std::min(count, set->nq) / batch * batch;
}

double
papers_recall(const papers_set *set, const std::vector<uint64_t> &keys, uint32_t count,
			  uint32_t k)
{
	uint64_t	hits = 0;

	for (uint32_t q = 0; q < count; q++)
		for (uint32_t i = 0; i < k; i++)
			for (uint32_t j = 0; j < k; j++)
				hits += key_node(keys[(size_t) q * k + i]) ==
					set->truth[(size_t) q * TRUTH + j];
	return (double) hits / ((double) count * k);
}

papers_point
papers_search(gg_index *index, const papers_set *set, gg_search_mode mode, uint32_t batch,
			  uint32_t width, uint32_t k)
{
	const uint32_t count = papers_queries(set, batch);
	gg_search_params params = {k, std::max(width, k), 0, mode, 0, 0};
	gg_cuda_stream stream;
	gg_cuda_buffer<uint64_t> keys;
	std::vector<uint64_t> found((size_t) count * k);
	double		best = INFINITY;

	batch = std::min(batch, set->nq);
	must(stream.create());
	must(keys.allocate(found.size()));
	/* the first run is for warm-up */
	for (int run = 0; run < (papers.tiny ? 1 : 1 + BEST_RUNS); run++)
	{
		const double begin = papers_now();

		for (uint32_t first = 0; first < count; first += batch)
			must(gg_cuda_search_enqueue(index, &params,
										set->queries.get() + (size_t) first * set->dim, batch,
										keys.get() + (size_t) first * k, stream.get()));
		MUST(cudaStreamSynchronize(stream.get()));
		if (run > 0 || papers.tiny)
			best = std::min(best, papers_now() - begin);
	}
	must(gg_cuda_copy_out(found.data(), keys.get(), keys.bytes(), stream.get(), NULL));
	return {params.itopk_size, papers_recall(set, found, count, k), count / best};
}

papers_curve
papers_search_curve(gg_index *index, const papers_set *set, gg_search_mode mode, uint32_t batch,
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
papers_begin(const char *title, const papers_set *set)
{
	printf("## %s, %s\n%u rows of %u dimensions", title, set->name.c_str(), set->n, set->dim);
	if (!set->truth.empty())
		printf(", %u queries, LID %.1f", set->nq, set->lid);
	printf(" (%s)\n", set->like.c_str());
	fflush(stdout);
}

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
