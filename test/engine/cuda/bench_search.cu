/*
 * bench_search.cu
 *		Time, recall and bandwidth of the CUDA engine's searches.
 *
 *	bench search NAME DIR N DIM METRIC DEGREE [WHAT [ALGORITHM [K-NN]]]
 *
 * DIR holds base.f32 and query.f32 (row-major float32) and gt.i32 (100 exact ids a query).  The
 * engine builds the graph, of lists of K-NN (2 DEGREE), by the ALGORITHM (algorithm_option.h;
 * cagra).  METRIC is l2, ip, cosine (rows of unit length) or l1.  WHAT: letters of
 *	e	exact searches
 *	t	batch 1 to 10,000 with bandwidth, as Markdown rows
 *	1	batch 1
 *	b	batches of 10,000
 *	c	both kernels at many batch sizes
 *	w	widths
 *	a	all of these; the default
 *	p	points: lists from 10 on, at batch 1 and 10,000
 *	k	codes of each kind, rows on the device, in host memory, nowhere, beside full rows
 *	h	rows are rounded to float16 and kept so
 * One line a measurement; times are of kernels, between events on the stream, queries and answers
 * in device memory.
 *
 * Bytes of a graph search are counted, not measured.  The same walk as the kernels' is done on the
 * CPU over a sample of the queries (log_walks(): entries, width, list and stopping rule of
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
#include "bench.h"

#include "../../../kernels/serve/index.cuh"

#define K 10

static const char *name;
static uint32_t n,
			dim,
			degree,
			nq;
static std::vector<float> base,
			queries;
static std::vector<uint32_t> truth;
static gg_index *cuda_index;
static gg_dataset data;			/* of base, or of its rounded rows */
static owned_graph graph;
static cudaStream_t stream;
static float *device_queries;
static uint64_t *device_keys;
static double copy_gbs;

template <typename T>
static void
read_file(const std::string &path, std::vector<T> &out)
{
	FILE	   *file = fopen(path.c_str(), "rb");

	if (file == NULL)
		fail("cannot read %s", path.c_str());
	fseek(file, 0, SEEK_END);
	out.resize((size_t) ftell(file) / sizeof(T));
	rewind(file);
	if (out.empty() || fread(out.data(), sizeof(T), out.size(), file) != out.size())
		fail("cannot read %s", path.c_str());
	fclose(file);
}

/* Milliseconds of each run, by events, after two for warm-up. */
template <typename RUN>
static std::vector<double>
times_of(int repeats, RUN run)
{
	std::vector<double> times;
	cudaEvent_t start,
				stop;

	MUST(cudaEventCreateWithFlags(&start, 0));
	MUST(cudaEventCreateWithFlags(&stop, 0));
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
	return times;
}

/* Best copy bandwidth, bytes read and written, of 1 GiB buffers. */
static double
measure_copy(void)
{
	const size_t bytes = (size_t) 1 << 30;
	gg_cuda_buffer<char> a;
	gg_cuda_buffer<char> b;
	std::vector<double> times;

	must(a.allocate(bytes));
	must(b.allocate(bytes));
	MUST(cudaMemset(a.get(), 1, bytes));
	times = times_of(8, [&]()
	{
		MUST(cudaMemcpyAsync(b.get(), a.get(), bytes, cudaMemcpyDeviceToDevice, stream));
	});
	return 2.0 * bytes / percentile(times, 0.0) / 1e6;
}

/* recall@K of the first answers */
static double
recall(uint32_t count)
{
	std::vector<uint64_t> keys((size_t) count * K);

	MUST(cudaMemcpy(keys.data(), device_keys, keys.size() * 8, cudaMemcpyDeviceToHost));
	return keys_recall(truth, keys, count, K);
}

/* All queries in batches of `batch`, one launch after another: median milliseconds of all. */
static double
search_all(const gg_search_params *params, uint32_t batch, uint32_t count, int repeats)
{
	std::vector<double> times = times_of(repeats, [&]()
	{
		for (uint32_t first = 0; first < count; first += batch)
			must(gg_cuda_search_enqueue(cuda_index, params,
										device_queries + (size_t) first * dim,
										std::min(batch, count - first),
										device_keys + (size_t) first * params->k, stream));
	});

	return percentile(times, 0.5);
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

static void
measure(uint32_t batch, uint32_t itopk, uint32_t width, gg_search_mode mode)
{
	const gg_search_params params = {K, itopk, width, mode, 0, 0};
	const uint32_t count = queries_for(batch);
	double		ms;

	if (count == 0)
		return;
	ms = search_all(&params, batch, count, 3);
	printf("%-4s search batch %5u itopk %4u width %2u %-6s  %9.2f us/launch  %9.0f q/s  "
		   "recall@10 %.4f\n",
		   name, batch, itopk, search_width_for(width, itopk, degree),
		   mode == GG_SEARCH_SINGLE_CTA ? "single" : mode == GG_SEARCH_MULTI_CTA ? "multi" : "auto",
		   ms * 1000 / (count / batch), count / ms * 1000, recall(count));
	fflush(stdout);
}

/* Both kernels beside each other. */
static void
measure_both(uint32_t batch, uint32_t itopk)
{
	measure(batch, itopk, 0, GG_SEARCH_MULTI_CTA);
	measure(batch, itopk, 0, GG_SEARCH_SINGLE_CTA);
}

static void
measure_exact(uint32_t batch, uint32_t k)
{
	std::vector<double> times = times_of(10, [&]()
	{
		must(gg_cuda_exact_enqueue(cuda_index, k, NULL, device_queries, batch,
								   device_keys, stream));
	});
	const double ms = percentile(times, 0.5);
	const double gbs = (double) n * dim * 4 / ms / 1e6;

	printf("%-4s exact  batch %5u k %4u  %9.2f us/launch  %9.0f q/s  %6.0f GB/s  %5.1f%% of copy",
		   name, batch, k, ms * 1000, batch / ms * 1000, gbs, gbs / copy_gbs * 100);
	if (k == K)
		printf("  recall@10 %.4f", recall(batch));
	printf("\n");
	fflush(stdout);
}

/* ---- bytes of a search ---------------------------------------------------- */

/* Batch 1 to 10,000 as the engine chooses its kernels, one Markdown row each. */
static void
print_table(uint32_t itopk)
{
	const gg_search_params params = {K, itopk, 0, GG_SEARCH_AUTO};
	const gg_dataset full = {base.data(), n, dim, GG_ELEMENT_F32, data.metric};
	const uint32_t sample = std::min(nq, 500u);
	/* as index.cu keeps rows: fp16 from 13 dimensions on, in quads; norms for L2 in fp16 alone */
	const bool	half = dim >= 13;
	const double row = (dim * (half ? 2 : 4) + 15) / 16 * 16;
	const double norm = half && data.metric == GG_METRIC_L2 ? 4 : 0;
	walk_log	log;

	log_walks(&full, &graph, queries.data(), sample, nq / sample, itopk, K, &log);

	const double distances = (double) (log.entries + log.ids.size()) / sample;
	const double a_query = distances * (row + norm) + (double) log.expanded / sample * degree * 4 +
		log.nfront * dim * 4.0 + dim * 4.0 + K * 8.0;

	printf("| data | itopk | batch | us a launch | queries/s | recall@10 | distances a query "
		   "| MB a launch | GB/s | of copy (%.0f GB/s) |\n"
		   "|:-----|------:|------:|------------:|----------:|----------:|------------------:"
		   "|------------:|-----:|--------:|\n",
		   copy_gbs);
	for (uint32_t batch : {1, 10, 100, 1000, 10000})
	{
		const uint32_t asked = queries_for(batch);

		if (asked == 0)
			continue;
		const double ms = search_all(&params, batch, asked, 5);
		const double launch_ms = ms / (asked / batch);
		const double bytes = batch * a_query + (batch + 63) / 64 * graph.npivots * (row + norm + 4);
		const double gbs = bytes / launch_ms / 1e6;

		printf("| %s | %u | %u | %.1f | %.0f | %.4f | %.0f | %.2f | %.0f | %.1f%% |\n", name, itopk,
			   batch, launch_ms * 1000, asked / ms * 1000, recall(asked), distances, bytes / 1e6,
			   gbs, gbs / copy_gbs * 100);
		fflush(stdout);
	}
}

/* How many of the answers to the first queries are the same alone and in one batch. */
static void
measure_same(uint32_t itopk)
{
	const gg_search_params params = {K, itopk, 0, GG_SEARCH_AUTO, 0, 0};
	const uint32_t count = std::min(nq, 2000u);
	std::vector<uint64_t> keys[2];
	double		recalls[2];
	uint64_t	same = 0;

	for (int together = 0; together < 2; together++)
	{
		const uint32_t asked = together ? nq : count;

		search_all(&params, together ? nq : 1, asked, 1);
		recalls[together] = recall(count);
		keys[together].resize((size_t) count * K);
		MUST(cudaMemcpy(keys[together].data(), device_keys, keys[together].size() * 8,
						cudaMemcpyDeviceToHost));
	}
	for (uint32_t q = 0; q < count; q++)
		for (uint32_t i = 0; i < K; i++)
			for (uint32_t j = 0; j < K; j++)
				same += key_node(keys[0][(size_t) q * K + i]) ==
					key_node(keys[1][(size_t) q * K + j]);
	printf("%-4s same   itopk %4u  batch 1 and %u share %.5f of the answers; "
		   "recall@10 %.4f and %.4f\n",
		   name, itopk, nq, (double) same / ((double) count * K), recalls[0], recalls[1]);
	fflush(stdout);
}

/* ---- codes ------------------------------------------------------------------- */

/* Another index of the same rows and graph. */
static gg_index *
open_codes(gg_codes codes, gg_row_place place)
{
	const std::vector<uint32_t> pivots = packed_pivots(&graph);
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
	must(gg_cuda_index_create(&shape, &index));
	must(gg_cuda_index_write(index, GG_PART_ROWS, 0, data.rows,
							 (uint64_t) n * dim * gg_element_size(data.element)));
	must(gg_cuda_index_write(index, GG_PART_ADJACENCY, 0, graph.adjacency,
							 (uint64_t) n * degree * 4));
	must(gg_cuda_index_write(index, GG_PART_PIVOTS, 0, pivots.data(), pivots.size() * 4));
	must(gg_cuda_index_finish(index, n, NULL));
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
		times.push_back(1e6 * best_of(1, [&]()
		{
			must(gg_cuda_index_search(cuda_index, params, queries.data() + (size_t) q * dim, 1,
									  NULL, keys));
		}));
	return percentile(times, 0.5);
}

/* One line for each list length and number of nodes measured by row; 0: the default. */
static void
measure_codes_of(const char *codes, const char *place)
{
	const bool	full = strcmp(codes, "none") == 0;
	const uint32_t batch = std::min(nq, 10000u);

	for (uint32_t itopk : {32u, 64u, 128u})
		for (uint32_t rerank : {0u, 16u, 32u, 64u, 128u})
		{
			const gg_search_params params = {K, itopk, 0, GG_SEARCH_AUTO, 0, 0, rerank};
			double		ms;

			if (rerank > itopk || (rerank > 0 && (full || strcmp(place, "none") == 0)))
				continue;
			ms = search_all(&params, batch, batch, 5);
			printf("%-4s codes %-4s rows %-6s %6.0f B/row itopk %4u rerank %3u  batch %u "
				   "%9.0f q/s  one %6.1f us  recall@10 %.4f\n", name, codes, place,
				   (double) gg_cuda_index_bytes(cuda_index) / n, itopk, rerank, batch,
				   batch / ms * 1000, wait_for_one(&params), recall(batch));
			fflush(stdout);
		}
}

static void
measure_codes(void)
{
	static const char *const places[] = {"device", "host", "none"};
	gg_index   *full = cuda_index;

	measure_codes_of("none", "device");
	for (gg_codes codes : {GG_CODES_INT8, GG_CODES_INT4})
		for (gg_row_place place : {GG_ROWS_DEVICE, GG_ROWS_HOST, GG_ROWS_NONE})
		{
			cuda_index = open_codes(codes, place);
			measure_codes_of(codes == GG_CODES_INT8 ? "int8" : "int4", places[place]);
			gg_cuda_index_close(cuda_index);
		}
	cuda_index = full;
	measure_codes_of("none", "device");
}

/* ---- all of it ----------------------------------------------------------------- */

static void
run(char what)
{
	switch (what)
	{
		case 'e':
			for (uint32_t k : {10u, 100u, 1024u})
				measure_exact(1, k);
			measure_exact(8, 10);
			measure_exact(100, 10);
			break;
		case 't':
			print_table(32);
			print_table(64);
			break;
		case '1':
			for (uint32_t itopk : {32u, 40u, 48u, 56u, 64u, 96u, 128u})
				measure(1, itopk, 0, GG_SEARCH_MULTI_CTA);
			measure(1, 64, 0, GG_SEARCH_SINGLE_CTA);
			break;
		case 'b':
			for (uint32_t itopk : {32u, 40u, 48u, 56u, 64u, 96u, 128u, 512u})
				measure(10000, itopk, 0, GG_SEARCH_AUTO);
			measure_same(64);
			break;
		case 'c':
			for (uint32_t batch : {1u, 4u, 10u, 30u, 100u, 200u, 500u, 1000u, 2000u, 5000u, 10000u})
				measure_both(batch, 64);
			measure_both(1000, 256);
			measure_both(10000, 256);
			break;
		case 'w':
			for (uint32_t width = 1; width <= 16; width *= 2)
			{
				measure(1, 64, width, GG_SEARCH_MULTI_CTA);
				measure(10000, 64, width, GG_SEARCH_SINGLE_CTA);
			}
			break;
		case 'p':
			for (uint32_t batch : {1, 10000})
				for (uint32_t itopk : {10, 12, 14, 16, 20, 24, 28, 32, 40, 64})
					measure(batch, itopk, 0, GG_SEARCH_AUTO);
			break;
		case 'k':
			measure_codes();
			break;
	}
}

int
bench_search(int argc, char **argv)
{
	gg_build_params params;
	gg_build_stats stats = {};
	gg_control	control = {};
	std::vector<uint16_t> halves;
	std::string dir;
	std::string what = argc > 7 ? argv[7] : "a";

	if (argc < 7)
	{
		fprintf(stderr, "usage: see the head of bench_search.cu\n");
		return 2;
	}
	name = argv[1];
	dir = argv[2];
	n = (uint32_t) atoi(argv[3]);
	dim = (uint32_t) atoi(argv[4]);
	degree = (uint32_t) atoi(argv[6]);
	read_file(dir + "/base.f32", base);
	read_file(dir + "/query.f32", queries);
	read_file(dir + "/gt.i32", truth);
	nq = (uint32_t) (queries.size() / dim);
	data = {base.data(), n, dim, GG_ELEMENT_F32, metric_named(argv[5])};
	if (what.find('h') != std::string::npos)
	{
		halves.resize(base.size());
		std::transform(base.begin(), base.end(), halves.begin(), gg_float_to_half);
		data.rows = halves.data();
		data.element = GG_ELEMENT_F16;
	}
	params = params_of(degree, argc > 9 ? (uint32_t) atoi(argv[9]) : 2 * degree);
	if (argc > 8)
		parse_algorithm(argv[8], &params);
	control.threads = 8;
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	must(gg_cuda_engine.build(&data, &params, &control, &graph, &stats));
	printf("%-4s build  %.2f s init, %.2f s descent, %.2f s optimize, %.2f s connect, "
		   "mean degree %.1f\n", name, stats.init_s, stats.descent_s, stats.optimize_s,
		   stats.connect_s, mean_degree(&graph));

	open_index	index(data, &graph, &control);

	cuda_index = index;
	copy_gbs = measure_copy();
	printf("%-4s copy   %.0f GB/s read and written; %u rows, %u queries, %u pivots\n", name,
		   copy_gbs, n, nq, graph.npivots);
	MUST(cudaMalloc((void **) &device_queries, queries.size() * 4));
	MUST(cudaMemcpy(device_queries, queries.data(), queries.size() * 4, cudaMemcpyHostToDevice));
	MUST(cudaMalloc((void **) &device_keys, (size_t) nq * 1024 * 8));
	if (what.find('a') != std::string::npos)
		what = "et1bcw" + what;
	for (char letter : what)
		run(letter);
	return 0;
}
