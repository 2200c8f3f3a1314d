/*
 * bench_search.cu
 *		Time, recall and bandwidth of the CUDA engine's searches.
 *
 *	bench_search NAME DIR N DIM METRIC DEGREE [what [ALGORITHM [K-NN]]]
 *
 * DIR holds base.f32 and query.f32 (row-major float32), gt.i32 (100 exact ids a query), and may
 * hold graph.i32 (N x DEGREE) with pivots.i32; without them, or when an algorithm is named
 * (algorithm_option.h), the engine builds the graph, of lists of K-NN (2 DEGREE).  METRIC is
 * l2, ip, cosine (rows of unit length) or l1.  what: letters of a(ll), e(xact), 1 (batch 1),
 * b(atches of 10,000), p(oints: lists from 10 on, at batch 1 and 10,000; not in a), q(uick: two of
 * b), c (both kernels at many batch sizes), w(idths), t(able: batch 1 to 10,000 with bandwidth, as
 * Markdown rows), g(reedy walks of TSDG beside multi-CTA search, at small batches; not in a),
 * l(arge batches' search of TSDG and its greedy walks beside the engine's choice, at batch 1 to
 * 10,000; not in a), k (codes of each kind, rows on the device, in host memory, nowhere, beside
 * full rows; not in a), h (rows are rounded to float16 and kept so; not in a), s(ave the graph
 * built to DIR).
 * One line a measurement; times are of kernels, between events on the stream, queries and answers
 * in device memory.
 *
 * Bytes of a graph search are counted, not measured.  The same walk as the kernels' is done on the
 * CPU over a sample of the queries (count_walk: entries, width, list and stopping rule of
 * walk.cuh, distances in fp32 where the kernels have fp16), and what it looks at is multiplied by
 * what the kernels read for it:
 *	a distance			a walk row (fp16 but for few dimensions) and its norm, if the metric has one
 *	a parent			its list, degree x 4
 *	a query				itself, the rows measured again for the answer, as stored, and the answer
 *	64 queries or fewer	all pivots' walk rows, once, as the matrix product over a batch reads them
 * That is the least that must come from memory or cache: a cluster's blocks read each list from L2
 * again, a small batch reads the pivots once a query, from L2, and the one-warp kernel measures
 * some nodes twice.
 */
#include <algorithm>
#include <chrono>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

#include "../algorithm_option.h"
#include "../searches.h"
#include "mode.h"
#include "../../../kernels/search/pivots.h"
#include "../../../kernels/search/rerank.cuh"
#include "../../../kernels/serve/index.cuh"

#define K 10
#define TRUTH 100

static const char *name;
static uint32_t n,
			dim,
			degree,
			nq;
static std::vector<float> base,
			queries;
static std::vector<uint32_t> truth;
static gg_index *cuda_index;
static gg_dataset data;
static gg_graph graph;
static cudaStream_t stream;
static float *device_queries;
static uint64_t *device_keys;
static double copy_gbs;

#define MUST(call) \
	do { \
		cudaError_t error_ = (call); \
		if (error_ != cudaSuccess) \
		{ \
			fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_)); \
			exit(1); \
		} \
	} while (0)

static void
must_ok(gg_status status, const char *what)
{
	if (status.code != GG_OK)
	{
		fprintf(stderr, "%s: %s: %s\n", what, status.where, status.message);
		exit(1);
	}
}

template <typename T>
static bool
read_file(const std::string &path, std::vector<T> &out)
{
	FILE	   *file = fopen(path.c_str(), "rb");

	if (file == NULL)
		return false;
	fseek(file, 0, SEEK_END);
	out.resize((size_t) ftell(file) / sizeof(T));
	rewind(file);
	if (fread(out.data(), sizeof(T), out.size(), file) != out.size())
		out.clear();
	fclose(file);
	return !out.empty();
}

/* Best copy bandwidth, bytes read and written, of 1 GiB buffers. */
static double
measure_copy(void)
{
	size_t		bytes = (size_t) 1 << 30;
	char	   *a,
			   *b;
	cudaEvent_t start,
				stop;
	float		best = 1e9f;

	MUST(cudaMalloc(&a, bytes));
	MUST(cudaMalloc(&b, bytes));
	MUST(cudaMemset(a, 1, bytes));
	MUST(cudaEventCreate(&start));
	MUST(cudaEventCreate(&stop));
	for (int i = 0; i < 10; i++)
	{
		float		ms;

		MUST(cudaEventRecord(start, stream));
		MUST(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, stream));
		MUST(cudaEventRecord(stop, stream));
		MUST(cudaEventSynchronize(stop));
		MUST(cudaEventElapsedTime(&ms, start, stop));
		best = std::min(best, ms);
	}
	MUST(cudaFree(a));
	MUST(cudaFree(b));
	return 2.0 * bytes / best / 1e6;
}

static double
recall(const std::vector<uint32_t> &nodes, uint32_t count, uint32_t k)
{
	uint64_t	hits = 0;

	for (uint32_t q = 0; q < count; q++)
		for (uint32_t i = 0; i < k; i++)
			for (uint32_t j = 0; j < k; j++)
				hits += nodes[(size_t) q * k + i] == truth[(size_t) q * TRUTH + j];
	return (double) hits / ((double) count * k);
}

/* Median milliseconds of run() over repeats, after two for warm-up. */
template <typename RUN>
static double
timed(int repeats, RUN run)
{
	std::vector<float> times;
	cudaEvent_t start,
				stop;

	MUST(cudaEventCreate(&start));
	MUST(cudaEventCreate(&stop));
	for (int i = 0; i < repeats + 2; i++)
	{
		float		ms;

		MUST(cudaEventRecord(start, stream));
		run();
		MUST(cudaEventRecord(stop, stream));
		MUST(cudaEventSynchronize(stop));
		MUST(cudaEventElapsedTime(&ms, start, stop));
		if (i >= 2)
			times.push_back(ms);
	}
	MUST(cudaEventDestroy(start));
	MUST(cudaEventDestroy(stop));
	std::sort(times.begin(), times.end());
	return times[times.size() / 2];
}

static std::vector<uint32_t>
fetch(size_t count)
{
	std::vector<uint64_t> keys(count);
	std::vector<uint32_t> nodes(count);

	MUST(cudaMemcpy(keys.data(), device_keys, count * 8, cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < count; i++)
		nodes[i] = key_node(keys[i]);
	return nodes;
}

/* All queries in batches of `batch`, one launch after another: milliseconds of all. */
static double
search_all(const gg_search_params *params, uint32_t batch, uint32_t count, int repeats)
{
	return timed(repeats, [&]()
	{
		for (uint32_t first = 0; first < count; first += batch)
			must_ok(gg_cuda_search_enqueue(cuda_index, params,
										   device_queries + (size_t) first * dim,
										   std::min(batch, count - first),
										   device_keys + (size_t) first * params->k, stream),
					"search");
	});
}

/*
 * Queries that batches of one size are measured with: whole batches, and enough time for each size.
 */
static uint32_t
queries_for(uint32_t batch)
{
	uint32_t	count = batch <= 1 ? 1000 : batch <= 100 ? 2000 : nq;

	return std::min(count, nq) / batch * batch;
}

static const char *
mode_name(gg_search_mode mode)
{
	switch (mode)
	{
		case GG_SEARCH_SINGLE_CTA:
			return "single";
		case GG_SEARCH_MULTI_CTA:
			return "multi";
		case GG_SEARCH_TSDG_SMALL:
			return "small";
		case GG_SEARCH_TSDG_LARGE:
			return "large";
		default:
			return "auto";
	}
}

static void
bench_search(uint32_t batch, uint32_t itopk, uint32_t width, gg_search_mode mode)
{
	gg_search_params params = {K, itopk, width, mode, 0, 0};
	uint32_t	count = queries_for(batch);
	double		ms;

	if (count == 0)
		return;
	ms = search_all(&params, batch, count, 3);
	printf("%-4s search batch %5u itopk %4u width %2u %-6s  %9.2f us/launch  %9.0f q/s  "
		   "recall@10 %.4f\n",
		   name, batch, itopk, search_width_for(width, itopk, degree),
		   mode_name(mode), ms * 1000 / (count / batch), count / ms * 1000,
		   recall(fetch((size_t) count * K), count, K));
	fflush(stdout);
}

static void
bench_exact(uint32_t batch, uint32_t k)
{
	double		ms = timed(10, [&]()
	{
		must_ok(gg_cuda_exact_enqueue(cuda_index, k, NULL, device_queries, batch, device_keys,
									  stream), "exact");
	});
	double		gbs = (double) n * dim * 4 / ms / 1e6;

	printf("%-4s exact  batch %5u k %4u  %9.2f us/launch  %9.0f q/s  %6.0f GB/s  %5.1f%% of copy",
		   name, batch, k, ms * 1000, batch / ms * 1000, gbs, gbs / copy_gbs * 100);
	if (k == K)
		printf("  recall@10 %.4f", recall(fetch((size_t) batch * K), batch, K));
	printf("\n");
	fflush(stdout);
}

/* ---- bytes of a search ---------------------------------------------------- */

/* Of one query, in the mean. */
typedef struct walk_count
{
	double		distances;		/* entry nodes included, pivots not */
	double		parents;
	double		reranked;
} walk_count;

typedef struct walk_member
{
	float		distance;
	uint32_t	node;
	bool		expanded;
} walk_member;

static bool
nearer(const walk_member &a, const walk_member &b)
{
	return a.distance != b.distance ? a.distance < b.distance : a.node < b.node;
}

/*
 * The walk of walk.cuh over up to 500 queries, on the CPU, in fp32, with a perfect visited set.
 */
static walk_count
count_walk(uint32_t itopk, uint32_t k)
{
	const gg_distance_fn distance = gg_distance_function(data.metric, GG_ELEMENT_F32);
	const uint32_t width = search_width_for(0, itopk, degree);
	const uint32_t sample = std::min(nq, 500u);
	std::vector<uint32_t> seen(n, 0);	/* the last query, counted from 1, that measured a node */
	std::vector<float> query(dim);
	walk_count	count = {};

	for (uint32_t s = 0; s < sample; s++)
	{
		const uint32_t q = (uint32_t) ((uint64_t) s * nq / sample);
		std::vector<walk_member> list;
		std::vector<walk_member> found;
		auto		measure = [&](uint32_t node)
		{
			if (node >= n || seen[node] == s + 1)
				return;
			seen[node] = s + 1;
			count.distances++;
			found.push_back({distance(base.data() + (size_t) node * dim, query.data(), dim), node,
							 false});
		};

		memcpy(query.data(), queries.data() + (size_t) q * dim, dim * sizeof(float));
		gg_query_prepare(data.metric, query.data(), dim);
		for (uint32_t i = 0; i < graph.npivots; i++)
			list.push_back({distance(base.data() + (size_t) graph.pivots[i] * dim, query.data(),
									 dim), graph.pivots[i], false});
		std::sort(list.begin(), list.end(), nearer);
		list.resize(std::min(list.size(), (size_t) 1 << search_entry_bits(itopk)));
		for (const walk_member &entry : list)
			measure(entry.node);
		list.clear();
		for (;;)
		{
			uint32_t	parents = 0;

			list.insert(list.end(), found.begin(), found.end());
			std::sort(list.begin(), list.end(), nearer);
			list.resize(std::min(list.size(), (size_t) itopk));
			found.clear();
			for (size_t i = 0; i < list.size() && parents < width; i++)
				if (!list[i].expanded)
				{
					list[i].expanded = true;
					parents++;
					for (uint32_t e = 0; e < degree; e++)
						measure(graph.adjacency[(size_t) list[i].node * degree + e] &
								~GG_EDGE_MARK);
				}
			if (parents == 0)
				break;
			count.parents += parents;
		}
		count.reranked += std::min((uint32_t) list.size(), search_rerank_size(itopk, k));
	}
	count.distances /= sample;
	count.parents /= sample;
	count.reranked /= sample;
	return count;
}

/* Bytes of one launch, see the head of the file. */
static double
launch_bytes(const walk_count *count, uint32_t batch, uint32_t k)
{
	/* as index.cu keeps rows: fp16 from 13 dimensions on, in quads; norms for L2 in fp16 alone */
	const bool	half = dim >= 13;
	const double row = (dim * (half ? 2 : 4) + 15) / 16 * 16;
	const double norm = half && data.metric == GG_METRIC_L2 ? 4 : 0;
	const double a_query = count->distances * (row + norm) + count->parents * degree * 4.0 +
		count->reranked * dim * 4.0 + dim * 4.0 + k * 8.0;

	return batch * a_query + (batch + 63) / 64 * (graph.npivots * (row + norm + 4));
}

/* Batch 1 to 10,000 as the engine chooses its kernels, one Markdown row each. */
static void
bench_table(uint32_t itopk)
{
	static const uint32_t batches[] = {1, 10, 100, 1000, 10000};
	const gg_search_params params = {K, itopk, 0, GG_SEARCH_AUTO};
	const walk_count count = count_walk(itopk, K);

	printf("| data | itopk | batch | us a launch | queries/s | recall@10 | distances a query "
		   "| MB a launch | GB/s | of copy (%.0f GB/s) |\n"
		   "|:-----|------:|------:|------------:|----------:|----------:|------------------:"
		   "|------------:|-----:|--------:|\n",
		   copy_gbs);
	for (uint32_t batch : batches)
	{
		const uint32_t asked = queries_for(batch);

		if (asked == 0)
			continue;
		const double ms = search_all(&params, batch, asked, 5);
		const double launch_ms = ms / (asked / batch);
		const double bytes = launch_bytes(&count, batch, K);
		const double gbs = bytes / launch_ms / 1e6;

		printf("| %s | %u | %u | %.1f | %.0f | %.4f | %.0f | %.2f | %.0f | %.1f%% |\n", name, itopk,
			   batch, launch_ms * 1000, asked / ms * 1000, recall(fetch((size_t) asked * K), asked,
																  K), count.distances, bytes / 1e6,
			   gbs, gbs / copy_gbs * 100);
		fflush(stdout);
	}
}

/* How many of the answers to the first queries are the same alone and in one batch. */
static void
bench_same(uint32_t itopk)
{
	gg_search_params params = {K, itopk, 0, GG_SEARCH_AUTO};
	uint32_t	count = std::min(nq, 2000u);
	std::vector<uint32_t> alone,
				together;
	uint64_t	same = 0;

	search_all(&params, 1, count, 1);
	alone = fetch((size_t) count * K);
	search_all(&params, nq, nq, 1);
	together = fetch((size_t) nq * K);
	for (uint32_t q = 0; q < count; q++)
		for (uint32_t i = 0; i < K; i++)
			for (uint32_t j = 0; j < K; j++)
				same += alone[(size_t) q * K + i] == together[(size_t) q * K + j];
	printf("%-4s same   itopk %4u  batch 1 and %u share %.5f of the answers; "
		   "recall@10 %.4f and %.4f\n",
		   name, itopk, nq, (double) same / ((double) count * K), recall(alone, count, K),
		   recall(together, count, K));
	fflush(stdout);
}

/* ---- codes ------------------------------------------------------------------- */

static const char *
codes_name(gg_codes codes)
{
	return codes == GG_CODES_INT8 ? "int8" : codes == GG_CODES_INT4 ? "int4" : "none";
}

/* Another index of the same rows and graph. */
static gg_index *
open_codes(gg_codes codes, gg_row_place place)
{
	std::vector<uint32_t> pivots((size_t) graph.npivots * (1 + GG_PIVOT_DEGREE), 0);
	gg_shape	shape = {};
	gg_index   *index;

	shape.capacity = n;
	shape.dim = dim;
	shape.element = data.element;
	shape.metric = data.metric;
	shape.degree = degree;
	shape.npivots = graph.npivots;
	shape.codes = codes;
	shape.row_place = place;
	shape.code_seed = 1;
	for (uint32_t i = 0; i < graph.npivots; i++)
		pivots[(size_t) i * (1 + GG_PIVOT_DEGREE)] = graph.pivots[i];
	must_ok(gg_cuda_engine.index_create(&shape, &index), "index_create");
	must_ok(gg_cuda_engine.index_write(index, GG_PART_ROWS, 0, data.rows,
										(uint64_t) n * dim * gg_element_size(data.element)),
			"rows");
	must_ok(gg_cuda_engine.index_write(index, GG_PART_ADJACENCY, 0, graph.adjacency,
									   (uint64_t) n * degree * 4), "adjacency");
	must_ok(gg_cuda_engine.index_write(index, GG_PART_PIVOTS, 0, pivots.data(), pivots.size() * 4),
			"pivots");
	must_ok(gg_cuda_engine.index_finish(index, n, NULL), "index_finish");
	return index;
}

/* Median microseconds of one query whose caller waits. */
static double
wait_for_one(const gg_search_params *params)
{
	const uint32_t count = std::min(nq, 2000u);
	std::vector<double> times;
	uint64_t	keys[GG_MAX_ITOPK];

	for (uint32_t q = 0; q < count; q++)
	{
		const auto	begin = std::chrono::steady_clock::now();

		must_ok(gg_cuda_engine.index_search(cuda_index, params, queries.data() + (size_t) q * dim,
											1, NULL, keys), "search");
		times.push_back(std::chrono::duration<double, std::micro>
						(std::chrono::steady_clock::now() - begin).count());
	}
	std::sort(times.begin(), times.end());
	return times[count / 2];
}

/* One line for each list length and number of nodes measured by row; 0: the default. */
static void
bench_codes_of(const char *codes, const char *place)
{
	const bool	full = strcmp(codes, "none") == 0;
	const uint32_t batch = std::min(nq, 10000u);

	for (uint32_t itopk : {32u, 64u, 128u})
		for (uint32_t rerank : {0u, 16u, 32u, 64u, 128u})
		{
			gg_search_params params = {K, itopk, 0, GG_SEARCH_AUTO, 0, 0, rerank};
			double		ms;

			if (rerank > itopk || (rerank > 0 && (full || strcmp(place, "none") == 0)))
				continue;
			ms = search_all(&params, batch, batch, 5);
			printf("%-4s codes %-4s rows %-6s %6.0f B/row itopk %4u rerank %3u  batch %u "
				   "%9.0f q/s  one %6.1f us  recall@10 %.4f\n", name, codes, place,
				   (double) gg_cuda_engine.index_bytes(cuda_index) / n, itopk, rerank, batch,
				   batch / ms * 1000, wait_for_one(&params),
				   recall(fetch((size_t) batch * K), batch, K));
			fflush(stdout);
		}
}

static void
bench_codes(void)
{
	static const char *const places[] = {"device", "host", "none"};
	gg_index   *full = cuda_index;

	bench_codes_of("none", "device");
	for (gg_codes codes : {GG_CODES_INT8, GG_CODES_INT4})
		for (gg_row_place place : {GG_ROWS_DEVICE, GG_ROWS_HOST, GG_ROWS_NONE})
		{
			cuda_index = open_codes(codes, place);
			bench_codes_of(codes_name(codes), places[place]);
			gg_cuda_engine.index_close(cuda_index);
		}
	cuda_index = full;
	bench_codes_of("none", "device");
}

static void
save_graph(const std::string &dir)
{
	FILE	   *file = fopen((dir + "/graph.i32").c_str(), "wb");
	bool		written = file != NULL &&
		fwrite(graph.adjacency, (size_t) n * degree * 4, 1, file) == 1;

	if (file != NULL)
		fclose(file);
	file = written ? fopen((dir + "/pivots.i32").c_str(), "wb") : NULL;
	written = file != NULL && fwrite(graph.pivots, (size_t) graph.npivots * 4, 1,
									 file) == 1;
	if (file != NULL)
		fclose(file);
	if (!written)
		fprintf(stderr, "cannot write to %s\n", dir.c_str());
}

/*
 * The graph that was saved in dir, or a new one, as one is if params name an algorithm; save: keep
 * it there.
 */
static void
load_graph(const std::string &dir, bool save, const gg_build_params &params,
		   const gg_control *control, std::vector<uint32_t> &adjacency,
		   std::vector<uint32_t> &pivots)
{
	gg_build_stats stats;

	memset(&graph, 0, sizeof(graph));
	if (params.algorithm == 0 && read_file(dir + "/graph.i32", adjacency) &&
		read_file(dir + "/pivots.i32", pivots))
	{
		graph.n = n;
		graph.degree = degree;
		graph.npivots = (uint32_t) pivots.size();
		graph.adjacency = adjacency.data();
		graph.pivots = pivots.data();
		return;
	}
	must_ok(gg_cuda_engine.build(&data, &params, control, &graph, &stats), "build");
	if (save)
		save_graph(dir);
	printf("%-4s build  %.2f s init, %.2f s descent, %.2f s optimize, %.2f s connect, "
		   "mean degree %.1f\n", name, stats.init_s, stats.descent_s, stats.optimize_s,
		   stats.connect_s, mean_degree(&graph));
}

/* what: letters of the benches wanted, a: all. */
static void
run(const std::string &what)
{
	const bool	all = what.find('a') != std::string::npos;

	if (all || what.find('e') != std::string::npos)
	{
		bench_exact(1, 10);
		bench_exact(1, 100);
		bench_exact(1, 1024);
		bench_exact(8, 10);
		bench_exact(100, 10);
	}
	if (all || what.find('t') != std::string::npos)
		for (uint32_t itopk = 32; itopk <= 64; itopk *= 2)
			bench_table(itopk);
	if (all || what.find('1') != std::string::npos)
	{
		for (uint32_t itopk = 32; itopk <= 128; itopk += itopk < 64 ? 8 : 32)
			bench_search(1, itopk, 0, GG_SEARCH_MULTI_CTA);
		bench_search(1, 64, 0, GG_SEARCH_SINGLE_CTA);
	}
	if (all || what.find('b') != std::string::npos)
	{
		for (uint32_t itopk = 32; itopk <= 128; itopk += itopk < 64 ? 8 : 32)
			bench_search(10000, itopk, 0, GG_SEARCH_AUTO);
		bench_search(10000, 512, 0, GG_SEARCH_AUTO);
		bench_same(64);
	}
	if (all || what.find('c') != std::string::npos)
	{
		static const uint32_t batches[] = {1, 4, 10, 30, 100, 200, 500, 1000, 2000, 5000, 10000};

		for (uint32_t batch : batches)
		{
			bench_search(batch, 64, 0, GG_SEARCH_MULTI_CTA);
			bench_search(batch, 64, 0, GG_SEARCH_SINGLE_CTA);
		}
		bench_search(1000, 256, 0, GG_SEARCH_MULTI_CTA);
		bench_search(1000, 256, 0, GG_SEARCH_SINGLE_CTA);
		bench_search(10000, 256, 0, GG_SEARCH_MULTI_CTA);
		bench_search(10000, 256, 0, GG_SEARCH_SINGLE_CTA);
	}
	if (what.find('p') != std::string::npos)
		for (uint32_t batch : {1, 10000})
			for (uint32_t itopk : {10, 12, 14, 16, 20, 24, 28, 32, 40, 64})
				bench_search(batch, itopk, 0, GG_SEARCH_AUTO);
	if (what.find('k') != std::string::npos)
		bench_codes();
	if (what.find('q') != std::string::npos)
	{
		bench_search(10000, 40, 0, GG_SEARCH_SINGLE_CTA);
		bench_search(10000, 64, 0, GG_SEARCH_SINGLE_CTA);
	}
	if (what.find('g') != std::string::npos)
		for (uint32_t batch : {1, 8, 32, 128})
			for (uint32_t itopk : {10, 16, 32, 64, 128, 256})
			{
				bench_search(batch, itopk, 0, GG_SEARCH_MULTI_CTA);
				bench_search(batch, itopk, 0, GG_SEARCH_TSDG_SMALL);
			}
	if (what.find('l') != std::string::npos)
		for (uint32_t batch : {1, 10, 100, 1000, 10000})
			for (uint32_t itopk : {12, 16, 24, 32, 48, 64, 96, 128})
				for (gg_search_mode mode : {GG_SEARCH_AUTO, GG_SEARCH_TSDG_SMALL,
											GG_SEARCH_TSDG_LARGE})
					bench_search(batch, itopk, 0, mode);
	if (all || what.find('w') != std::string::npos)
		for (uint32_t width = 1; width <= 16; width *= 2)
		{
			bench_search(1, 64, width, GG_SEARCH_MULTI_CTA);
			bench_search(10000, 64, width, GG_SEARCH_SINGLE_CTA);
		}
}

int
main(int argc, char **argv)
{
	gg_build_params params = {};
	gg_control	control = {};
	std::vector<uint32_t> adjacency,
				pivots;
	std::vector<uint16_t> halves;
	std::string dir;
	std::string what;

	if (argc < 7)
	{
		fprintf(stderr, "usage: bench_search NAME DIR N DIM METRIC DEGREE [what [ALGORITHM "
				"[K-NN]]]\n");
		return 2;
	}
	name = argv[1];
	dir = argv[2];
	n = (uint32_t) atoi(argv[3]);
	dim = (uint32_t) atoi(argv[4]);
	degree = (uint32_t) atoi(argv[6]);
	what = argc > 7 ? argv[7] : "a";
	control.threads = 8;
	if (!read_file(dir + "/base.f32", base) || !read_file(dir + "/query.f32", queries) ||
		!read_file(dir + "/gt.i32", truth))
	{
		fprintf(stderr, "cannot read %s\n", dir.c_str());
		return 1;
	}
	nq = (uint32_t) (queries.size() / dim);
	memset(&data, 0, sizeof(data));
	data.rows = base.data();
	data.n = n;
	data.dim = dim;
	data.element = GG_ELEMENT_F32;
	if (what.find('h') != std::string::npos)
	{
		halves.resize(base.size());
		std::transform(base.begin(), base.end(), halves.begin(), gg_float_to_half);
		data.rows = halves.data();
		data.element = GG_ELEMENT_F16;
	}
	data.metric = argv[5][0] == 'i' ? GG_METRIC_IP : argv[5][0] == 'c' ? GG_METRIC_COSINE :
		argv[5][1] == '1' ? GG_METRIC_L1 : GG_METRIC_L2;
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	params.graph_degree = degree;
	params.intermediate_graph_degree = argc > 9 ? (uint32_t) atoi(argv[9]) : 2 * degree;
	params.seed = 1;
	if (argc > 8)
		parse_algorithm(argv[8], &params);
	load_graph(dir, what.find('s') != std::string::npos, params, &control, adjacency, pivots);
	must_ok(gg_cuda_engine.index_open(&data, &graph, &control, &cuda_index), "index_open");
	copy_gbs = measure_copy();
	print_mode();
	printf("%-4s copy   %.0f GB/s read and written; %u rows, %u queries, %u pivots\n", name,
		   copy_gbs, n, nq, graph.npivots);
	MUST(cudaMalloc(&device_queries, queries.size() * 4));
	MUST(cudaMemcpy(device_queries, queries.data(), queries.size() * 4, cudaMemcpyHostToDevice));
	MUST(cudaMalloc(&device_keys, (size_t) nq * 1024 * 8));
	run(what);
	gg_cuda_engine.index_close(cuda_index);
	return 0;
}
