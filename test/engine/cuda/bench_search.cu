/*
 * bench_search.cu
 *		Time, recall and bandwidth of the CUDA engine's searches.
 *
 *	bench_search NAME DIR N DIM METRIC DEGREE [what]
 *
 * DIR holds base.f32 and query.f32 (row-major float32), gt.i32 (100 exact ids a query), and may hold
 * graph.i32 (N x DEGREE) with pivots.i32; without them the engine builds the graph.  METRIC is l2, ip,
 * cosine (rows of unit length) or l1.  what: letters of a(ll), e(xact), 1 (batch 1), b(atches of
 * 10,000), q(uick: two of those), c (both kernels at many batch sizes), w(idths), s(ave the graph built to DIR).  One line a measurement; times are of kernels, between events on the stream, queries
 * and answers in device memory.
 */
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <vector>

#include "../../../kernels/search.cuh"

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
static cudaStream_t stream;
static float *device_queries;
static uint32_t *device_nodes;
static float *device_distances;
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
	std::vector<uint32_t> nodes(count);

	MUST(cudaMemcpy(nodes.data(), device_nodes, count * 4, cudaMemcpyDeviceToHost));
	return nodes;
}

/* All queries in batches of `batch`, one launch after another: milliseconds of all. */
static double
search_all(const gg_search_params *params, uint32_t batch, uint32_t count, int repeats)
{
	return timed(repeats, [&]()
	{
		for (uint32_t first = 0; first < count; first += batch)
			must_ok(gg_cuda_search_enqueue(cuda_index, params, device_queries + (size_t) first * dim,
										   std::min(batch, count - first),
										   device_nodes + (size_t) first * params->k,
										   device_distances + (size_t) first * params->k, stream),
					"search");
	});
}

static void
bench_search(uint32_t batch, uint32_t itopk, uint32_t width, gg_search_mode mode)
{
	gg_search_params params = {K, itopk, width, mode};
	uint32_t	count = batch <= 1 ? 1000 : batch <= 100 ? 2000 : nq;
	double		ms;

	count = std::min(count, nq) / batch * batch;
	if (count == 0)
		return;
	ms = search_all(&params, batch, count, 3);
	printf("%-4s search batch %5u itopk %4u width %2u %-6s  %9.2f us/launch  %9.0f q/s  recall@10 %.4f\n",
		   name, batch, itopk, search_width_for(width, itopk, degree),
		   mode == GG_SEARCH_AUTO ? "auto" : mode == GG_SEARCH_SINGLE_CTA ? "single" : "multi",
		   ms * 1000 / (count / batch), count / ms * 1000,
		   recall(fetch((size_t) count * K), count, K));
	fflush(stdout);
}

static void
bench_exact(uint32_t batch, uint32_t k)
{
	double		ms = timed(10, [&]()
	{
		must_ok(gg_cuda_exact_enqueue(cuda_index, k, NULL, device_queries, batch, device_nodes,
									  device_distances, stream), "exact");
	});
	double		gbs = (double) n * dim * 4 / ms / 1e6;

	printf("%-4s exact  batch %5u k %4u  %9.2f us/launch  %9.0f q/s  %6.0f GB/s  %5.1f%% of copy",
		   name, batch, k, ms * 1000, batch / ms * 1000, gbs, gbs / copy_gbs * 100);
	if (k == K)
		printf("  recall@10 %.4f", recall(fetch((size_t) batch * K), batch, K));
	printf("\n");
	fflush(stdout);
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
	printf("%-4s same   itopk %4u  batch 1 and %u share %.5f of the answers; recall@10 %.4f and %.4f\n",
		   name, itopk, nq, (double) same / ((double) count * K), recall(alone, count, K),
		   recall(together, count, K));
	fflush(stdout);
}

int
main(int argc, char **argv)
{
	gg_control	control = {};
	gg_dataset	data;
	gg_graph	graph;
	std::vector<uint32_t> adjacency,
				pivots;
	std::string dir;
	std::string what;
	bool		all;

	if (argc < 7)
	{
		fprintf(stderr, "usage: bench_search NAME DIR N DIM METRIC DEGREE [what]\n");
		return 2;
	}
	name = argv[1];
	dir = argv[2];
	n = (uint32_t) atoi(argv[3]);
	dim = (uint32_t) atoi(argv[4]);
	degree = (uint32_t) atoi(argv[6]);
	what = argc > 7 ? argv[7] : "a";
	all = what.find('a') != std::string::npos;
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
	data.metric = argv[5][0] == 'i' ? GG_METRIC_IP : argv[5][0] == 'c' ? GG_METRIC_COSINE :
		argv[5][1] == '1' ? GG_METRIC_L1 : GG_METRIC_L2;
	memset(&graph, 0, sizeof(graph));
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	if (read_file(dir + "/graph.i32", adjacency) && read_file(dir + "/pivots.i32", pivots))
	{
		graph.n = n;
		graph.degree = degree;
		graph.npivots = (uint32_t) pivots.size();
		graph.adjacency = adjacency.data();
		graph.pivots = pivots.data();
	}
	else
	{
		gg_build_params params = {};
		gg_build_stats stats;

		params.graph_degree = degree;
		params.intermediate_graph_degree = 2 * degree;
		params.seed = 1;
		must_ok(gg_cuda_engine.build(&data, &params, &control, &graph, &stats), "build");
		if (what.find('s') != std::string::npos)
		{
			FILE	   *file = fopen((dir + "/graph.i32").c_str(), "wb");
			bool		written = file != NULL &&
				fwrite(graph.adjacency, (size_t) n * degree * 4, 1, file) == 1;

			if (file != NULL)
				fclose(file);
			file = written ? fopen((dir + "/pivots.i32").c_str(), "wb") : NULL;
			written = file != NULL && fwrite(graph.pivots, (size_t) graph.npivots * 4, 1, file) == 1;
			if (file != NULL)
				fclose(file);
			if (!written)
				fprintf(stderr, "cannot write to %s\n", dir.c_str());
		}
		printf("%-4s build  %.2f s init, %.2f s descent, %.2f s optimize, %.2f s connect\n", name,
			   stats.init_s, stats.descent_s, stats.optimize_s, stats.connect_s);
	}
	must_ok(gg_cuda_engine.index_open(&data, &graph, &control, &cuda_index), "index_open");
	copy_gbs = measure_copy();
	printf("%-4s copy   %.0f GB/s read and written; %u rows, %u queries, %u pivots\n", name, copy_gbs,
		   n, nq, graph.npivots);
	MUST(cudaMalloc(&device_queries, queries.size() * 4));
	MUST(cudaMemcpy(device_queries, queries.data(), queries.size() * 4, cudaMemcpyHostToDevice));
	MUST(cudaMalloc(&device_nodes, (size_t) nq * 1024 * 4));
	MUST(cudaMalloc(&device_distances, (size_t) nq * 1024 * 4));

	if (all || what.find('e') != std::string::npos)
	{
		bench_exact(1, 10);
		bench_exact(1, 100);
		bench_exact(1, 1024);
		bench_exact(8, 10);
		bench_exact(100, 10);
	}
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
	if (what.find('q') != std::string::npos)
	{
		bench_search(10000, 40, 0, GG_SEARCH_SINGLE_CTA);
		bench_search(10000, 64, 0, GG_SEARCH_SINGLE_CTA);
	}
	if (all || what.find('w') != std::string::npos)
		for (uint32_t width = 1; width <= 16; width *= 2)
		{
			bench_search(1, 64, width, GG_SEARCH_MULTI_CTA);
			bench_search(10000, 64, width, GG_SEARCH_SINGLE_CTA);
		}
	gg_cuda_engine.index_close(cuda_index);
	return 0;
}
