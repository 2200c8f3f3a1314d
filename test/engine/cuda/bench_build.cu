/*
 * bench_build.cu
 *		Time and recall of the CUDA engine's build, vectors already on the device.
 *
 * usage: bench_build [-i random] [-t ITERATIONS] [-s SHARE] [-r RUNS] [-k K] [-d DEGREE]
 *			[-p SAMPLES] [-q] [-a ALGORITHM] [-m PERCENT] [-g MB] SET...
 *	SAMPLES: p of GNND
 *	-q: recall of searches of the graph, too, whose queries are the sampled rows
 *	SHARE: GNND goes on until fewer of the places changed, and makes two iterations at least
 *	PERCENT: instead, two parts, of so many percent of the rows and of the rest, are built alone and
 *	their graphs merged, by comparing rows of both and by searching the larger one, beside a build
 *	of all rows.  Recall is that of searches then, whose queries are the sampled rows.
 *	MB: instead, rows come from host memory, and builds in so much memory of one device, of two and
 *	so on, of as many as there are, take turns with one in as much as it wants; 16 threads.  Seconds
 *	are those of the call.  Searches are of one batch after the other, of 16 queries each.
 *	ALGORITHM: cagra, or another with its parameters (algorithm_option.h)
 *	SET: d1 (1M x 128 L2, LID 16, 200 clusters), d2 (1M x 768 cosine, LID 22, 500), d3 (10M x 96 L2,
 *	LID 15, 1000), d4 (1M x 100 cosine, LID 22, 200), or N,DIM,LATENT,CLUSTERS,l2|cos
 *
 * Rows are drawn on the device (draw.cuh).  Recall is that of the k-NN lists against all pairs in
 * fp32, over 4,096 rows.
 */
#include "../../../kernels/graph/list.cuh"
#include "../algorithm_option.h"
#include "../searches.h"
#include "draw.cuh"
#include "mode.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <time.h>

#define SAMPLE 4096u

static bool
failed(gg_status status, const char *what)
{
	if (status.code == GG_OK)
		return false;
	fprintf(stderr, "%s: %s: %s\n", what, status.where, status.message);
	return true;
}

/* ---- recall ------------------------------------------------------------------- */

/*
 * truth: SAMPLE lists of 64 ids, the row's own dropped, of rows ids[]; fp32 differences, every
 * pair.  lid: mean maximum-likelihood estimate of the intrinsic dimension there.
 */
static gg_status
exact(const float *rows, uint32_t n, uint32_t dim, std::vector<uint32_t> &ids,
	  std::vector<uint32_t> &truth, double *lid)
{
	gg_cuda_working_copy some;
	gg_cuda_buffer<float> zeros;
	gg_cuda_buffer<uint32_t> device_ids;
	gg_cuda_buffer<uint64_t> lists;
	gg_cuda_stream stream;
	gg_cuda_rows all = {GG_KIND_FLOAT_L2, n, dim / 4, (const char *) rows, NULL};
	std::vector<uint64_t> keys((uint64_t) SAMPLE * 128);

	GG_TRY(stream.create());
	GG_TRY(zeros.allocate(n));
	GG_CUDA_TRY(cudaMemset(zeros.get(), 0, zeros.bytes()));
	all.norms = zeros.get();
	GG_TRY(device_ids.allocate(SAMPLE));
	GG_TRY(gg_cuda_random_ids(n, SAMPLE, 99, stream.get(), device_ids.get()));
	ids.resize(SAMPLE);
	GG_TRY(gg_cuda_copy_out(ids.data(), device_ids.get(), SAMPLE * 4, stream.get(), NULL));
	GG_TRY(gg_cuda_working_copy_gather(&all, device_ids.get(), SAMPLE, stream.get(), NULL, &some));
	GG_TRY(lists.allocate(keys.size()));
	GG_TRY(gg_cuda_join_whole(&some.view, &all, false, 128, 65, {stream.get(), NULL, NULL},
							  lists.get()));
	GG_TRY(gg_cuda_copy_out(keys.data(), lists.get(), lists.bytes(), stream.get(), NULL));
	truth.assign((size_t) SAMPLE * 64, GG_NO_NODE);
	for (uint32_t i = 0; i < SAMPLE; i++)
		for (uint32_t j = 0, at = 0; j < 65 && at < 64; j++)
			if (((uint32_t) keys[(uint64_t) i * 128 + j] >> 1) != ids[i])
				truth[(uint64_t) i * 64 + at++] = (uint32_t) keys[(uint64_t) i * 128 + j] >> 1;
	*lid = 0.0;
	for (uint32_t i = 0; i < SAMPLE; i++)
	{
		double		logs = 0.0;
		float		last;
		const uint32_t bits = (uint32_t) (keys[(uint64_t) i * 128 + 64] >> 32);

		memcpy(&last, &bits, 4);
		for (uint32_t j = 1; j < 64; j++)
		{
			const uint32_t at = (uint32_t) (keys[(uint64_t) i * 128 + j] >> 32);
			float		distance;

			memcpy(&distance, &at, 4);
			logs += 0.5 * log(fmax(distance, 1e-30) / last);
		}
		*lid -= 63.0 / logs / SAMPLE;
	}
	return gg_ok();
}

static double
recall(const std::vector<uint32_t> &found, uint32_t k, const std::vector<uint32_t> &truth,
	   uint32_t at)
{
	uint64_t	hits = 0;

	for (uint32_t i = 0; i < SAMPLE; i++)
		for (uint32_t j = 0; j < at; j++)
			for (uint32_t l = 0; l < at && l < k; l++)
				hits += truth[(uint64_t) i * 64 + j] == found[(uint64_t) i * k + l];
	return (double) hits / ((double) SAMPLE * at);
}

/* lists of the sampled rows only, packed */
static __global__ void
pick_kernel(const uint32_t *ids, const uint32_t *rows, uint32_t k, uint32_t *out)
{
	for (uint32_t i = threadIdx.x; i < k; i += blockDim.x)
		out[(uint64_t) blockIdx.x * k + i] = ids[(uint64_t) rows[blockIdx.x] * k + i];
}

/* ---- merge ---------------------------------------------------------------------- */

static double now_s(void);

/* recall@10 at itopk 16, 32 and 64 of searches for the sampled rows, themselves left out. */
static gg_status
search_recall(const gg_dataset *data, const gg_graph *graph, const std::vector<uint32_t> &ids,
			  const std::vector<uint32_t> &truth, double (&found)[3])
{
	std::vector<float> queries((uint64_t) SAMPLE * data->dim);
	std::vector<uint32_t> nodes(SAMPLE * 11);
	std::vector<float> distances(SAMPLE * 11);
	gg_index   *index = NULL;
	gg_status	status = gg_cuda_index_open(data, graph, NULL, &index);

	for (uint32_t i = 0; i < SAMPLE; i++)
		memcpy(&queries[(uint64_t) i * data->dim],
			   (const float *) data->rows + (uint64_t) ids[i] * data->dim, data->dim * 4);
	for (int width = 0; width < 3 && status.code == GG_OK; width++)
	{
		gg_search_params params = {};
		uint64_t	hits = 0;

		params.k = 11;
		params.itopk_size = 16u << width;
		status = harness_search(&gg_cuda_engine, index, &params, queries.data(), SAMPLE, NULL,
								nodes.data(), distances.data());
		for (uint32_t i = 0; i < SAMPLE; i++)
			for (uint32_t j = 0; j < 10; j++)
				for (uint32_t l = 0; l < 11; l++)
					hits += truth[(uint64_t) i * 64 + j] == nodes[i * 11 + l];
		found[width] = (double) hits / (SAMPLE * 10.0);
	}
	gg_cuda_index_close(index);
	return status;
}

/* Queries per second of the sampled rows, in batches of 16, one after the other. */
static gg_status
search_rate(const gg_dataset *data, const gg_graph *graph, const std::vector<uint32_t> &ids,
			double (&rates)[3])
{
	const uint32_t batch = 16;
	std::vector<float> queries((uint64_t) SAMPLE * data->dim);
	uint32_t	nodes[batch * 10];
	float		distances[batch * 10];
	gg_index   *index = NULL;
	gg_status	status = gg_cuda_index_open(data, graph, NULL, &index);

	for (uint32_t i = 0; i < SAMPLE; i++)
		memcpy(&queries[(uint64_t) i * data->dim],
			   (const float *) data->rows + (uint64_t) ids[i] * data->dim, data->dim * 4);
	for (int width = 0; width < 3; width++)
	{
		gg_search_params params = {};

		params.k = 10;
		params.itopk_size = 16u << width;
		rates[width] = 0.0;
		for (int run = 0; run < 5 && status.code == GG_OK; run++)
		{
			const double begin = now_s();

			for (uint32_t i = 0; i < SAMPLE && status.code == GG_OK; i += batch)
				status = harness_search(&gg_cuda_engine, index, &params,
										&queries[(uint64_t) i * data->dim], batch, NULL, nodes,
										distances);
			rates[width] = std::max(rates[width], SAMPLE / (now_s() - begin));
		}
	}
	gg_cuda_index_close(index);
	return status;
}

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
note_time(void *ctx, gg_phase phase, uint64_t done, uint64_t total)
{
	double	   *times = (double *) ctx;

	(void) done;
	(void) total;
	times[phase] = now_s();
}

static gg_status
bench_groups_once(const char *name, const gg_dataset *data, const gg_build_params *params,
				  uint64_t budget, const std::vector<int> &others, bool first,
				  const std::vector<uint32_t> &ids, const std::vector<uint32_t> &truth)
{
	const std::string way = budget == 0 ? "in one piece" : others.empty() ? "by groups" :
		"by groups on " + std::to_string(others.size() + 1) + " devices";
	gg_build_stats stats = {};
	gg_control	control = {};
	gg_graph	graph;
	size_t		available = 0;
	size_t		total = 0;
	double		found[3];
	double		rates[3];
	double		times[GG_PHASE_CONNECT + 1] = {};

	control.progress = note_time;
	control.ctx = times;
	control.threads = 16;
	control.device_memory = budget;
	control.others = others.data();
	control.nothers = (int) others.size();
	GG_CUDA_TRY(cudaMemGetInfo(&available, &total));

	free_watch	watch;
	const double begin = now_s();
	gg_status	status = gg_cuda_engine.build(data, params, &control, &graph, &stats);
	const double seconds = now_s() - begin;
	const size_t least = watch.end();

	GG_TRY(status);
	printf("%s: %s: %.3f s: init %.3f descent %.3f optimize %.3f connect %.3f transfer %.3f; "
		   "first lists by %.3f, descent by %.3f; "
		   "repaired %u; %u pivots; mean degree %.2f; peak %.2f GB by the driver\n", name,
		   way.c_str(), seconds, stats.init_s, stats.descent_s, stats.optimize_s, stats.connect_s,
		   stats.transfer_s, times[GG_PHASE_KNN_INIT] - begin, times[GG_PHASE_KNN_DESCENT] - begin,
		   stats.repaired, graph.npivots, mean_degree(&graph),
		   (double) (available - std::min(available, least)) / 1e9);
	if (first)
	{
		status = search_recall(data, &graph, ids, truth, found);
		if (status.code == GG_OK)
			status = search_rate(data, &graph, ids, rates);
		if (status.code == GG_OK)
			printf("%s: %s: recall@10 %.4f %.4f %.4f, queries/s %.0f %.0f %.0f at itopk 16 32 64\n",
				   name, way.c_str(), found[0], found[1], found[2], rates[0], rates[1], rates[2]);
	}
	fflush(stdout);
	gg_graph_free(&graph);
	return status;
}

/* By groups on one device, on two, and so on, and in one piece. */
static gg_status
bench_groups(const char *name, const gg_cuda_data *from, const gg_build_params *params,
			 uint64_t budget, int runs, const std::vector<uint32_t> &ids,
			 const std::vector<uint32_t> &truth)
{
	std::vector<float> rows((uint64_t) from->n * from->dim);
	const gg_dataset data = {rows.data(), from->n, from->dim, from->element, from->metric};
	std::vector<int> others;
	int			devices;

	GG_TRY(gg_cuda_engine.device_count(&devices));
	GG_TRY(gg_cuda_copy_out(rows.data(), from->rows, rows.size() * 4, NULL, NULL));
	for (int run = 0; run < runs; run++)
	{
		others.clear();
		for (int device = 0; device < devices; device++)
		{
			if (device > 0)
				others.push_back(device);
			GG_TRY(bench_groups_once(name, &data, params, budget, others, run == 0, ids, truth));
		}
		GG_TRY(bench_groups_once(name, &data, params, 0, {}, run == 0, ids, truth));
	}
	return gg_ok();
}

/* Build rows [first, end) alone; the edges of their graph are what is known of them. */
static gg_status
build_part(const gg_cuda_data *whole, uint32_t first, uint32_t end, const gg_build_params *params,
		   cudaStream_t stream, uint32_t *lists)
{
	gg_cuda_data data = *whole;
	gg_build_stats stats = {};
	gg_graph	graph;
	gg_status	status;

	data.rows = (const float *) whole->rows + (uint64_t) first * whole->dim;
	data.n = end - first;
	status = gg_cuda_build_rows(&data, NULL, params, {stream, NULL, NULL}, &graph, &stats);
	for (uint64_t i = 0; status.code == GG_OK && i < (uint64_t) data.n * graph.degree; i++)
		lists[(uint64_t) first * graph.degree + i] = graph.adjacency[i] == GG_NO_NODE ?
			GG_NO_NODE : (graph.adjacency[i] & ~GG_EDGE_MARK) + first;
	gg_graph_free(&graph);
	return status;
}

/* How bench_merge() makes a graph of all rows. */
typedef struct merge_run
{
	const char *name;
	gg_merge_way way;
	bool		anew;
	double		device_s;		/* its least so far */
} merge_run;

/* One graph, its times and, of the first run, its recall. */
static gg_status
bench_merge_once(const char *name, uint32_t percent, const gg_cuda_data *whole,
				 const gg_merge_input *parts, const gg_build_params *params,
				 const gg_dataset *host, const std::vector<uint32_t> &ids,
				 const std::vector<uint32_t> &truth, cudaStream_t stream, merge_run *run)
{
	const bool	first = run->device_s == 0.0;
	gg_cuda_data device = *whole;
	gg_merge_input input = *parts;
	gg_build_stats stats = {};
	gg_cuda_meter meter = {};
	double		found[3] = {0.0, 0.0, 0.0};
	const double begin = now_s();
	gg_graph	graph;
	gg_status	status;

	input.way = run->way;
	status = gg_cuda_build_rows(&device, run->anew ? NULL : &input, params, {stream, NULL, &meter},
								&graph, &stats);

	const double seconds = now_s() - begin;
	const double device_s = stats.init_s + stats.descent_s + stats.optimize_s + stats.connect_s;

	if (status.code == GG_OK && first)
		status = search_recall(host, &graph, ids, truth, found);
	gg_graph_free(&graph);
	GG_TRY(status);
	printf("%s: %u%% %s: device %.3f s: init %.3f descent %.3f (%u iterations) optimize %.3f "
		   "connect %.3f; copies %.3f; all %.3f; peak %.2f GB\n", name, percent, run->name,
		   device_s, stats.init_s, stats.descent_s, stats.iterations, stats.optimize_s,
		   stats.connect_s, stats.transfer_s, seconds, (double) meter.peak / 1e9);
	if (first)
		printf("%s: %u%% %s: recall@10 %.4f %.4f %.4f at itopk 16 32 64\n", name, percent,
			   run->name, found[0], found[1], found[2]);
	fflush(stdout);
	if (first || device_s < run->device_s)
		run->device_s = device_s;
	return gg_ok();
}

/*
 * The graphs of two parts merged by search, and one graph built of all rows, in turns.
 */
static gg_status
bench_merge(const char *name, const gg_cuda_data *whole, uint32_t percent,
			const gg_build_params *params, int runs, const std::vector<uint32_t> &ids,
			const std::vector<uint32_t> &truth)
{
	const uint32_t n = whole->n;
	const uint32_t first = (uint32_t) ((uint64_t) n * percent / 100);
	std::vector<float> rows((uint64_t) n * whole->dim);
	std::vector<uint8_t> parts(n, 2);
	std::vector<uint32_t> lists((uint64_t) n * params->graph_degree);
	gg_merge_input input = {parts.data(), lists.data(), params->graph_degree, GG_MERGE_AUTO};
	gg_dataset	data = {rows.data(), n, whole->dim, whole->element, whole->metric};
	merge_run	ways[] = {
		{"by search", GG_MERGE_SEARCH, false, 0.0},
		{"anew", GG_MERGE_AUTO, true, 0.0}
	};
	gg_cuda_stream stream;

	std::fill_n(parts.begin(), first, (uint8_t) 1);
	GG_TRY(stream.create());
	GG_TRY(gg_cuda_copy_out(rows.data(), whole->rows, rows.size() * 4, stream.get(), NULL));
	GG_TRY(build_part(whole, 0, first, params, stream.get(), lists.data()));
	GG_TRY(build_part(whole, first, n, params, stream.get(), lists.data()));
	for (int run = 0; run < runs; run++)
		for (merge_run &way : ways)
			GG_TRY(bench_merge_once(name, percent, whole, &input, params, &data, ids, truth,
									stream.get(), &way));
	printf("%s: %u%% device time over anew, least of %d runs: by search %.3f\n", name, percent,
		   runs, ways[0].device_s / ways[1].device_s);
	return gg_ok();
}

/* ---- run ------------------------------------------------------------------------ */

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

static double
now_s(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double) time.tv_sec + (double) time.tv_nsec * 1e-9;
}

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
note_progress(void *ctx, gg_phase phase, uint64_t done, uint64_t total)
{
	silence    *s = (silence *) ctx;

	(void) total;
	s->phase = phase;
	s->done = done;
}

/* A set with its exact lists; one that is named again is not drawn again. */
class drawn_set
{
public:
	std::string name;
	gg_cuda_buffer<float> rows;
	std::vector<uint32_t> ids;
	std::vector<uint32_t> truth;
	double		lid;
};

static gg_status
draw(const char *name, uint32_t n, const draw_from &from, drawn_set *set)
{
	if (set->name == name)
		return gg_ok();
	set->name = name;
	set->rows.release();
	GG_TRY(draw_rows(from, 0, n, &set->rows));
	return exact(set->rows.get(), n, from.dim, set->ids, set->truth, &set->lid);
}

static gg_status
report_searches(const char *name, const gg_cuda_data *from, const gg_graph *graph,
				const drawn_set *set)
{
	std::vector<float> rows((uint64_t) from->n * from->dim);
	const gg_dataset data = {rows.data(), from->n, from->dim, from->element, from->metric};
	double		found[3] = {0.0, 0.0, 0.0};

	GG_TRY(gg_cuda_copy_out(rows.data(), from->rows, rows.size() * 4, NULL, NULL));
	GG_TRY(search_recall(&data, graph, set->ids, set->truth, found));
	printf("%s: recall@10 of searches %.4f %.4f %.4f at itopk 16 32 64\n", name, found[0],
		   found[1], found[2]);
	return gg_ok();
}

/* What is asked for beside a set and the parameters of builds. */
typedef struct bench_options
{
	int			runs;
	uint32_t	percent;		/* of the rows in the first part of a merge; 0: builds */
	bool		searches;		/* recall of searches, too */
	uint64_t	budget;			/* device memory of builds by groups; 0: builds of the other kind */
} bench_options;

static gg_status
bench(const char *name, uint32_t n, const draw_from &from, gg_build_params *params,
	  const bench_options *options)
{
	static drawn_set set;
	const uint32_t k = params->intermediate_graph_degree;
	const gg_cuda_buffer<float> &rows = set.rows;
	const std::vector<uint32_t> &ids = set.ids;
	const std::vector<uint32_t> &truth = set.truth;
	gg_cuda_stream stream;
	gg_cuda_data data = {};
	gg_dataset	described = {};
	gg_bytes	foreseen;

	GG_TRY(stream.create());
	GG_TRY(draw(name, n, from, &set));
	data.rows = rows.get();
	data.n = n;
	data.dim = from.dim;
	data.pitch = from.dim;
	data.element = GG_ELEMENT_F32;
	data.metric = from.unit ? GG_METRIC_COSINE : GG_METRIC_L2;
	if (options->percent > 0)
		return bench_merge(name, &data, options->percent, params, options->runs, ids, truth);
	if (options->budget > 0)
		return bench_groups(name, &data, params, options->budget, options->runs, ids, truth);
	described.n = n;
	described.dim = from.dim;
	described.element = data.element;
	described.metric = data.metric;
	GG_TRY(gg_cuda_build_bytes(&described, params, NULL, &foreseen));
	for (int run = 0; run < options->runs; run++)
	{
		gg_cuda_meter meter = {rows.bytes(), rows.bytes()};
		gg_build_stats stats = {};
		silence		quiet = {};
		gg_control	control = {};
		gg_graph	graph;
		gg_status	status;

		control.cancelled = never_cancelled;
		control.progress = note_progress;
		control.ctx = &quiet;
		control.threads = 1;
		if (run == 0)
		{
			/* recall first: it also warms up */
			gg_cuda_working_copy copy;
			gg_cuda_buffer<uint32_t> lists;
			gg_cuda_buffer<uint32_t> device_ids;
			gg_cuda_buffer<uint32_t> some;
			std::vector<uint32_t> found((uint64_t) SAMPLE * k);

			GG_TRY(gg_cuda_knn_rows(&data, params, {stream.get(), NULL, NULL}, &copy, &lists, NULL,
									&stats));
			GG_TRY(device_ids.allocate(SAMPLE));
			GG_TRY(some.allocate(found.size()));
			GG_TRY(gg_cuda_copy_in(device_ids.get(), ids.data(), SAMPLE * 4, stream.get(), NULL));
			pick_kernel<<<SAMPLE, 64, 0, stream.get()>>>
				(lists.get(), device_ids.get(), k, some.get());
			GG_CUDA_LAUNCHED("pick_kernel");
			GG_TRY(gg_cuda_copy_out(found.data(), some.get(), some.bytes(), stream.get(), NULL));
			printf("%s: %u x %u, LID %.1f, %u of %u, p %u, recall@10 %.4f recall@%u %.4f, "
				   "%u iterations, the last of which changed %.4f\n", name, n, from.dim, set.lid,
				   params->graph_degree, k, gg_cuda_samples(params),
				   recall(found, k, truth, 10), std::min(k, 64u),
				   recall(found, k, truth, std::min(k, 64u)), stats.iterations, stats.changed);
			stats = {};
		}
		quiet.last = now_s();
		status = gg_cuda_build_rows(&data, NULL, params, {stream.get(), &control, &meter}, &graph,
									&stats);
		/* up to its return: what it gives back at the end counts too */
		(void) never_cancelled(&quiet);

		const uint32_t npivots = graph.npivots;
		const double mean = mean_degree(&graph);

		if (options->searches && run == 0 && status.code == GG_OK)
			status = report_searches(name, &data, &graph, &set);
		gg_graph_free(&graph);
		GG_TRY(status);
		printf("%s: init %.3f descent %.3f optimize %.3f = %.3f s; connect %.3f copy back %.3f; "
			   "repaired %u; %u pivots; mean degree %.1f; "
			   "peak %.2f GB, foreseen %.2f\n", name, stats.init_s,
			   stats.descent_s, stats.optimize_s, stats.init_s + stats.descent_s + stats.optimize_s,
			   stats.connect_s, stats.transfer_s, stats.repaired, npivots, mean,
			   (double) meter.peak / 1e9, (double) foreseen.device / 1e9);
		printf("%s: longest gap between polls %.0f ms, ending after %s had reported %llu rows\n",
			   name, quiet.longest * 1e3, phase_names[quiet.longest_phase],
			   (unsigned long long) quiet.longest_done);
		fflush(stdout);
	}
	return gg_ok();
}

int
main(int argc, char **argv)
{
	gg_build_params params = {};
	bench_options options = {2, 0, false, 0};
	int			worst = 0;

	params.graph_degree = 32;
	params.intermediate_graph_degree = 64;
	params.seed = 1;
	print_mode();
	for (int i = 1; i < argc; i++)
	{
		uint32_t	n = 0;
		uint32_t	dim = 0;
		uint32_t	latent = 0;
		uint32_t	clusters = 0;
		char		metric[8] = "l2";

		if (strcmp(argv[i], "-i") == 0 && i + 1 < argc)
			params.init = strcmp(argv[++i], "random") == 0 ? GG_INIT_RANDOM : GG_INIT_PIVOT_CELLS;
		else if (strcmp(argv[i], "-t") == 0 && i + 1 < argc)
			params.max_iterations = (uint32_t) atoi(argv[++i]);
		else if (strcmp(argv[i], "-s") == 0 && i + 1 < argc)
			params.termination_threshold = (float) atof(argv[++i]);
		else if (strcmp(argv[i], "-p") == 0 && i + 1 < argc)
			params.samples = (uint32_t) atoi(argv[++i]);
		else if (strcmp(argv[i], "-r") == 0 && i + 1 < argc)
			options.runs = atoi(argv[++i]);
		else if (strcmp(argv[i], "-q") == 0)
			options.searches = true;
		else if (strcmp(argv[i], "-m") == 0 && i + 1 < argc)
			options.percent = (uint32_t) std::min(std::max(atoi(argv[++i]), 1), 99);
		else if (strcmp(argv[i], "-g") == 0 && i + 1 < argc)
			options.budget = (uint64_t) std::max(atoi(argv[++i]), 1) << 20;
		else if (strcmp(argv[i], "-k") == 0 && i + 1 < argc)
			params.intermediate_graph_degree = (uint32_t) atoi(argv[++i]);
		else if (strcmp(argv[i], "-d") == 0 && i + 1 < argc)
			params.graph_degree = (uint32_t) atoi(argv[++i]);
		else if (strcmp(argv[i], "-a") == 0 && i + 1 < argc)
			parse_algorithm(argv[++i], &params);
		else if (strcmp(argv[i], "d1") == 0)
			worst |= failed(bench("d1", 1000000, {128, 16, 200, false, DRAW_SEED}, &params,
								  &options), "d1");
		else if (strcmp(argv[i], "d2") == 0)
			worst |= failed(bench("d2", 1000000, {768, 22, 500, true, DRAW_SEED}, &params,
								  &options), "d2");
		else if (strcmp(argv[i], "d3") == 0)
			worst |= failed(bench("d3", 10000000, {96, 15, 1000, false, DRAW_SEED}, &params,
								  &options), "d3");
		else if (strcmp(argv[i], "d4") == 0)
			worst |= failed(bench("d4", 1000000, {100, 22, 200, true, DRAW_SEED}, &params,
								  &options), "d4");
		else if (sscanf(argv[i], "%u,%u,%u,%u,%7s", &n, &dim, &latent, &clusters, metric) >= 4 &&
				 n >= SAMPLE && dim % 4 == 0 && latent <= 128)
			worst |= failed(bench(argv[i], n, {dim, latent, clusters,
								  strcmp(metric, "cos") == 0, DRAW_SEED}, &params, &options),
							argv[i]);
		else
		{
			fprintf(stderr, "usage: bench_build [-i random] [-t ITERATIONS] [-r RUNS] [-k K] "
					"[-d DEGREE] [-p SAMPLES] [-q] [-a ALGORITHM] [-m PERCENT] [-g MB] "
					"SET...\n");
			return 2;
		}
	}
	return worst;
}
