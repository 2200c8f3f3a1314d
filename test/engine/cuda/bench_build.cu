/*
 * bench_build.cu
 *		Time and recall of the CUDA engine's build, vectors already on the device.
 *
 * usage: bench build [-i random] [-t ITERATIONS] [-r RUNS] [-k K] [-d DEGREE] [-p SAMPLES] [-q]
 *			[-a ALGORITHM] [-m PERCENT] [-g MB] SET...
 *	SAMPLES: p of GNND
 *	-q: recall of searches of the graph, too, whose queries are the sampled rows
 *	PERCENT: instead, two parts, of so many percent of the rows and of the rest, are built alone and
 *	their graphs merged, by searching the larger one, beside a build of all rows.  Recall is that of
 *	searches then, whose queries are the sampled rows.
 *	MB: instead, rows come from host memory, and builds in so much memory of one device, of two and
 *	so on, of as many as there are, take turns with one in as much as it wants; 16 threads.  Seconds
 *	are those of the call.  Searches are of one batch after the other, of 16 queries each.
 *	ALGORITHM: cagra, or another with its parameters (algorithm_option.h)
 *	SET: d1 (1M x 128 L2, LID 16, 200 clusters), d2 (1M x 768 cosine, LID 22, 500), d3 (10M x 96 L2,
 *	LID 15, 1000), d4 (1M x 100 cosine, LID 22, 200), or N,DIM,LATENT,CLUSTERS,l2|cos
 *
 * Rows are drawn on the device (draw.cuh).  Recall is that of the k-NN lists against all pairs,
 * over 4,096 rows.  Options are for the sets behind them.
 */
#include "bench.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <unistd.h>

#define SAMPLE 4096u

/* What is asked for beside a set and the parameters of builds. */
typedef struct build_options
{
	int			runs;
	uint32_t	percent;		/* of the rows in the first part of a merge; 0: builds */
	bool		searches;		/* recall of searches, too */
	uint64_t	budget;			/* device memory of builds by groups; 0: builds of the other kind */
} build_options;

/* A set with exact lists of some rows; one that is named again is not drawn again. */
static drawn_set *set;
static row_sample *sample;

/*
 * recall@10 at itopk 16, 32 and 64 of searches for the sampled rows, themselves left out; with
 * rates, queries per second, too, in batches of 16, one after the other.
 */
static void
print_searches(const std::string &what, const gg_graph *graph, bool rates)
{
	const uint32_t count = (uint32_t) sample->rows.size();
	std::vector<uint32_t> nodes(count * 11);
	std::vector<float> distances(count * 11);
	open_index	index(set->dataset(), graph);
	gg_search_params params = {};
	auto		search = [&](uint32_t first, uint32_t queries)
	{
		must(harness_search(&gg_cuda_engine, index, &params, &sample->queries[first * set->dim],
							queries, NULL, nodes.data(), distances.data()));
	};

	printf("%s: recall@10 of searches", what.c_str());
	params.k = 11;
	for (uint32_t width : {16u, 32u, 64u})
	{
		uint64_t	hits = 0;

		params.itopk_size = width;
		search(0, count);
		for (uint32_t i = 0; i < count; i++)
			for (uint32_t j = 0; j < 10; j++)
				for (uint32_t l = 0; l < 11; l++)
					hits += sample->truth[i * sample->k + j] == nodes[i * 11 + l];
		printf(" %.4f", (double) hits / (count * 10.0));
	}
	params.k = 10;
	if (rates)
		printf(", queries/s");
	for (uint32_t width : {16u, 32u, 64u})
	{
		params.itopk_size = width;
		if (rates)
			printf(" %.0f", count / best_of(5, [&]()
			{
				for (uint32_t i = 0; i < count; i += 16)
					search(i, std::min(16u, count - i));
			}));
	}
	printf(" at itopk 16 32 64\n");
	fflush(stdout);
}

/* ---- by groups of rows ------------------------------------------------------------ */

/* The least device memory that was free, by the driver, while it lives. */
class free_watch
{
public:
	free_watch() : least_(SIZE_MAX), ends_(false), thread_([this] { watch(); })
	{
	}
	size_t
	end()
	{
		ends_.store(true);
		thread_.join();
		return least_;
	}

private:
	void
	watch()
	{
		size_t		available;
		size_t		total;

		while (!ends_.load())
		{
			if (cudaMemGetInfo(&available, &total) == cudaSuccess)
				least_ = std::min(least_, available);
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
		}
	}

	size_t		least_;
	std::atomic<bool> ends_;
	std::thread thread_;
};

/* When a phase last told of progress. */
static void
note_time(void *ctx, gg_phase phase, uint64_t, uint64_t)
{
	((double *) ctx)[phase] = now_s();
}

static void
build_groups(const gg_build_params *params, uint64_t budget, const std::vector<int> &others,
			 bool first)
{
	const std::string what = set->name + (budget == 0 ? ": in one piece" : others.empty() ?
		": by groups" : ": by groups on " + std::to_string(others.size() + 1) + " devices");
	const gg_dataset data = set->dataset();
	gg_build_stats stats = {};
	gg_control	control = {};
	owned_graph graph;
	size_t		available = 0;
	size_t		total = 0;
	double		times[GG_PHASE_CONNECT + 1] = {};

	control.progress = note_time;
	control.ctx = times;
	control.threads = 16;
	control.device_memory = budget;
	control.others = others.data();
	control.nothers = (int) others.size();
	MUST(cudaMemGetInfo(&available, &total));

	free_watch	watch;
	const double begin = now_s();
	const gg_status status = gg_cuda_engine.build(&data, params, &control, &graph, &stats);
	const double seconds = now_s() - begin;
	const size_t least = watch.end();

	must(status);
	printf("%s: %.3f s: init %.3f descent %.3f optimize %.3f connect %.3f transfer %.3f; "
		   "first lists by %.3f, descent by %.3f; "
		   "repaired %u; %u pivots; mean degree %.2f; peak %.2f GB by the driver\n", what.c_str(),
		   seconds, stats.init_s, stats.descent_s, stats.optimize_s, stats.connect_s,
		   stats.transfer_s, times[GG_PHASE_KNN_INIT] - begin, times[GG_PHASE_KNN_DESCENT] - begin,
		   stats.repaired, graph.npivots, mean_degree(&graph),
		   (double) (available - std::min(available, least)) / 1e9);
	if (first)
		print_searches(what, &graph, true);
}

/* By groups on one device, on two, and so on, and in one piece. */
static void
run_groups(const gg_build_params *params, const build_options *options)
{
	int			devices;

	must(gg_cuda_engine.device_count(&devices));
	for (int run = 0; run < options->runs; run++)
	{
		std::vector<int> others;

		for (int device = 0; device < devices; device++)
		{
			if (device > 0)
				others.push_back(device);
			build_groups(params, options->budget, others, run == 0);
		}
		build_groups(params, 0, {}, run == 0);
	}
}

/* ---- merges ------------------------------------------------------------------------ */

/* Build rows [first, end) alone; the edges of their graph are what is known of them. */
static void
build_part(uint32_t first, uint32_t end, const gg_build_params *params, cudaStream_t stream,
		   uint32_t *lists)
{
	gg_cuda_data data = set->data();
	gg_build_stats stats = {};
	owned_graph graph;

	data.rows = set->rows.get() + (uint64_t) first * set->dim;
	data.n = end - first;
	must(gg_cuda_build_rows(&data, NULL, params, {stream, NULL, NULL}, &graph, &stats));
	for (uint64_t i = 0; i < (uint64_t) data.n * graph.degree; i++)
		lists[(uint64_t) first * graph.degree + i] = graph.adjacency[i] == GG_NO_NODE ?
			GG_NO_NODE : (graph.adjacency[i] & ~GG_EDGE_MARK) + first;
}

/* One graph, of parts or (NULL) anew, with its times and, of the first run, its recall. */
static double
merge_once(const std::string &what, const gg_merge_input *input, const gg_build_params *params,
		   bool first, cudaStream_t stream)
{
	gg_cuda_data device = set->data();
	gg_build_stats stats = {};
	gg_cuda_meter meter = {};
	owned_graph graph;
	const double begin = now_s();

	must(gg_cuda_build_rows(&device, input, params, {stream, NULL, &meter}, &graph, &stats));

	const double seconds = now_s() - begin;
	const double device_s = stats.init_s + stats.descent_s + stats.optimize_s + stats.connect_s;

	printf("%s: device %.3f s: init %.3f descent %.3f (%u iterations) optimize %.3f connect %.3f; "
		   "copies %.3f; all %.3f; peak %.2f GB\n", what.c_str(), device_s, stats.init_s,
		   stats.descent_s, stats.iterations, stats.optimize_s, stats.connect_s, stats.transfer_s,
		   seconds, (double) meter.peak / 1e9);
	if (first)
		print_searches(what, &graph, false);
	return device_s;
}

/* The graphs of two parts merged by search, and one graph built of all rows, in turns. */
static void
run_merges(const gg_build_params *params, const build_options *options)
{
	const uint32_t first = (uint32_t) ((uint64_t) set->n * options->percent / 100);
	const std::string name = set->name + ": " + std::to_string(options->percent) + "%";
	std::vector<uint8_t> parts(set->n, 2);
	std::vector<uint32_t> lists((uint64_t) set->n * params->graph_degree);
	const gg_merge_input input = {parts.data(), lists.data(), params->graph_degree,
								  GG_MERGE_SEARCH};
	double		merged = INFINITY;
	double		anew = INFINITY;
	gg_cuda_stream stream;

	std::fill_n(parts.begin(), first, (uint8_t) 1);
	must(stream.create());
	build_part(0, first, params, stream.get(), lists.data());
	build_part(first, set->n, params, stream.get(), lists.data());
	for (int run = 0; run < options->runs; run++)
	{
		merged = std::min(merged, merge_once(name + " by search", &input, params, run == 0,
											 stream.get()));
		anew = std::min(anew, merge_once(name + " anew", NULL, params, run == 0, stream.get()));
	}
	printf("%s device time over anew, least of %d runs: by search %.3f\n", name.c_str(),
		   options->runs, merged / anew);
}

/* ---- builds ------------------------------------------------------------------------ */

/*
 * The longest time between two questions whether to stop, and what had been reported last by then.
 */
typedef struct silence
{
	double		last;
	double		longest;
	gg_phase	phase;
	uint64_t	done;
	gg_phase	longest_phase;
	uint64_t	longest_done;
} silence;

static const char *const phase_names[] = {"first lists", "descent", "optimize", "connect"};

static bool
never_cancelled(void *ctx)
{
	silence    *s = (silence *) ctx;
	const double now = now_s();

	if (now - s->last > s->longest)
	{
		s->longest = now - s->last;
		s->longest_phase = s->phase;
		s->longest_done = s->done;
	}
	s->last = now;
	return false;
}

static void
note_progress(void *ctx, gg_phase phase, uint64_t done, uint64_t)
{
	((silence *) ctx)->phase = phase;
	((silence *) ctx)->done = done;
}

static void
print_lists(const gg_build_params *params, cudaStream_t stream)
{
	const uint32_t k = params->intermediate_graph_degree;
	const uint32_t most = std::min(k, sample->k);
	gg_cuda_data data = set->data();
	gg_build_stats stats = {};
	gg_cuda_working_copy copy;
	gg_cuda_buffer<uint32_t> lists;

	must(gg_cuda_knn_rows(&data, params, {stream, NULL, NULL}, &copy, &lists, NULL, &stats));
	printf("%s: %u x %u, LID %.1f, %u of %u, p %u, recall@10 %.4f recall@%u %.4f, "
		   "%u iterations, the last of which changed %.4f\n", set->name.c_str(), set->n,
		   set->dim, sample->lid, params->graph_degree, k, gg_cuda_samples(params),
		   lists_recall(sample, lists.get(), k, 10, stream), most,
		   lists_recall(sample, lists.get(), k, most, stream), stats.iterations, stats.changed);
}

static void
build_once(const gg_build_params *params, bool searches, cudaStream_t stream)
{
	const gg_dataset described = set->dataset();
	gg_cuda_data data = set->data();
	gg_cuda_meter meter = {set->rows.bytes(), set->rows.bytes()};
	gg_build_stats stats = {};
	silence		quiet = {};
	gg_control	control = {};
	gg_bytes	foreseen;
	owned_graph graph;

	must(gg_cuda_build_bytes(&described, params, NULL, &foreseen));
	control.cancelled = never_cancelled;
	control.progress = note_progress;
	control.ctx = &quiet;
	control.threads = 1;
	quiet.last = now_s();
	must(gg_cuda_build_rows(&data, NULL, params, {stream, &control, &meter}, &graph, &stats));
	/* up to its return: what it gives back at the end counts too */
	(void) never_cancelled(&quiet);
	if (searches)
		print_searches(set->name, &graph, false);
	printf("%s: init %.3f descent %.3f optimize %.3f = %.3f s; connect %.3f copy back %.3f; "
		   "repaired %u; %u pivots; mean degree %.1f; peak %.2f GB, foreseen %.2f\n",
		   set->name.c_str(), stats.init_s, stats.descent_s, stats.optimize_s,
		   stats.init_s + stats.descent_s + stats.optimize_s, stats.connect_s, stats.transfer_s,
		   stats.repaired, graph.npivots, mean_degree(&graph), (double) meter.peak / 1e9,
		   (double) foreseen.device / 1e9);
	printf("%s: longest gap between polls %.0f ms, ending after %s had reported %llu rows\n",
		   set->name.c_str(), quiet.longest * 1e3, phase_names[quiet.longest_phase],
		   (unsigned long long) quiet.longest_done);
	fflush(stdout);
}

static void
run_builds(const gg_build_params *params, const build_options *options)
{
	gg_cuda_stream stream;

	must(stream.create());
	/* recall first: it also warms up */
	if (options->runs > 0)
		print_lists(params, stream.get());
	for (int run = 0; run < options->runs; run++)
		build_once(params, options->searches && run == 0, stream.get());
}

int
bench_build(int argc, char **argv)
{
	drawn_set	drawn;
	row_sample	rows;
	gg_build_params params = params_of(32, 64);
	build_options options = {2, 0, false, 0};
	int			option;

	set = &drawn;
	sample = &rows;
	/* -: what is no option comes in turn, too, as 1 */
	while ((option = getopt(argc, argv, "-i:t:r:k:d:p:qa:m:g:")) != -1)
		switch (option)
		{
			case 'i':
				params.init = strcmp(optarg, "random") == 0 ? GG_INIT_RANDOM : GG_INIT_PIVOT_CELLS;
				break;
			case 't':
				params.max_iterations = (uint32_t) atoi(optarg);
				break;
			case 'r':
				options.runs = atoi(optarg);
				break;
			case 'k':
				params.intermediate_graph_degree = (uint32_t) atoi(optarg);
				break;
			case 'd':
				params.graph_degree = (uint32_t) atoi(optarg);
				break;
			case 'p':
				params.samples = (uint32_t) atoi(optarg);
				break;
			case 'q':
				options.searches = true;
				break;
			case 'a':
				parse_algorithm(optarg, &params);
				break;
			case 'm':
				options.percent = (uint32_t) std::min(std::max(atoi(optarg), 1), 99);
				break;
			case 'g':
				options.budget = (uint64_t) std::max(atoi(optarg), 1) << 20;
				break;
			case 1:
				if (set->name != optarg)
				{
					drawn_set_make(optarg, 0, 0, false, set);
					row_sample_make(set, std::min(SAMPLE, set->n), 64, sample);
				}
				if (options.percent > 0)
					run_merges(&params, &options);
				else if (options.budget > 0)
					run_groups(&params, &options);
				else
					run_builds(&params, &options);
				break;
			default:
				fprintf(stderr, "usage: see the head of bench_build.cu\n");
				return 2;
		}
	return 0;
}
