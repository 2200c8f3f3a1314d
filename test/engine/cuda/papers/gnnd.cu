/*
 * gnnd.cu
 *		Figures of Wang, Zhao, Zeng, Yang: "Fast k-NN Graph Construction by GPU based NN-Descent",
 *		2021.
 */
#include "papers.h"

#include "../../../../kernels/graph/list.cuh"

#include <algorithm>

/* ---- lists as they are between iterations ------------------------------------- */

/* The ids of the first k of each list, and the sum of the first 10 Euclidean distances. */
static __global__ void
read_lists_kernel(const uint64_t *lists, uint32_t n, uint32_t length, uint32_t k, uint32_t *ids,
				  double *sum)
{
	const uint32_t row = blockIdx.x * 8 + threadIdx.x / 32;
	float		mine = 0.0f;

	if (row >= n)
		return;
	for (uint32_t i = threadIdx.x & 31; i < k; i += 32)
	{
		const uint64_t key = lists[(uint64_t) row * length + i];

		ids[(uint64_t) row * k + i] = key == GG_KEY_NONE ? GG_NO_NODE : gg_key_id(key);
		if (i < 10 && key != GG_KEY_NONE)
			mine += sqrtf(gg_key_distance(key));
	}
	mine = gg_warp_sum(mine);
	if ((threadIdx.x & 31) == 0)
		atomicAdd(sum, (double) mine);
}

/* What a figure asks of lists: phi(G) over the nearest 10, and recall@10. */
typedef struct list_quality
{
	double		phi;
	double		recall;
} list_quality;

static list_quality
quality_of(const row_sample *sample, const gg_cuda_rows *rows, const uint64_t *lists,
		   uint32_t length, uint32_t k, cudaStream_t stream)
{
	gg_cuda_buffer<uint32_t> ids;
	gg_cuda_buffer<double> sum;
	list_quality out;

	must(ids.allocate((uint64_t) rows->n * k));
	must(sum.allocate(1));
	MUST(cudaMemsetAsync(sum.get(), 0, sizeof(double), stream));
	read_lists_kernel<<<gg_cuda_blocks(rows->n, 8), 256, 0, stream>>>
		(lists, rows->n, length, k, ids.get(), sum.get());
	MUST(cudaGetLastError());
	must(gg_cuda_copy_out(&out.phi, sum.get(), sizeof(double), stream, NULL));
	out.recall = lists_recall(sample, ids.get(), k, 10, stream);
	return out;
}

/* ---- figures 4 and 5 -------------------------------------------------------------- */

/* One way to update, an iteration after the other. */
class descent
{
public:
	const row_sample *sample;
	const gg_cuda_rows *rows;
	const uint64_t *lists;
	uint32_t	length;
	uint32_t	k;
	cudaStream_t stream;
	std::vector<list_quality> quality;
	std::vector<double> seconds;
};

static void
note_iteration(void *ctx, uint32_t iterations, double seconds)
{
	descent    *d = (descent *) ctx;

	(void) iterations;
	d->quality.push_back(quality_of(d->sample, d->rows, d->lists, d->length, d->k, d->stream));
	d->seconds.push_back(seconds);
}

/* Seconds until a recall; 0: not reached. */
static double
seconds_at(const descent &d, double recall)
{
	for (size_t i = 0; i < d.quality.size(); i++)
		if (d.quality[i].recall >= recall)
			return d.seconds[i];
	return 0.0;
}

static void
compare_seconds(const char *paper, const char *a, const descent &of, const char *b,
				const descent &to)
{
	printf("- paper: %s; here, %s against %s, time:", paper, a, b);
	for (double recall : {0.50, 0.80, 0.90, 0.95})
		if (seconds_at(of, recall) > 0.0 && seconds_at(to, recall) > 0.0)
			printf(" %.2fx to recall %.2f;", seconds_at(to, recall) / seconds_at(of, recall),
				   recall);
	printf(" %.2fx an iteration\n", to.seconds.back() / to.seconds.size() /
		   (of.seconds.back() / of.seconds.size()));
}

void
gnnd_4(void)
{
	static const char *const names[] = {"ours", "all pairs (GNND-r1)", "nearest (GNND-r2)",
										"nearest, segments (GNND)", "all pairs, near ones",
										"nearest, near ones"};
	const uint32_t k = 64;
	const uint32_t iterations = papers.tiny ? 1 : 12;
	drawn_set	set;
	row_sample sample;
	gg_cuda_stream stream;
	gg_cuda_working_copy copy;
	gg_cuda_buffer<uint64_t> lists;
	descent		runs[6] = {};

	papers_begin("GNND figures 4 and 5: updates of lists, from random lists of 64", 1000000, false,
				 &set);
	papers_sample(&set, &sample);
	must(stream.create());

	gg_cuda_data data = set.data();

	must(gg_cuda_working_copy_make(&data, {stream.get(), NULL, NULL}, &copy));
	must(lists.allocate((uint64_t) set.n * k));
	for (int update = UPDATE_OURS; update <= UPDATE_NEAREST_NEAR; update++)
	{
		descent    *d = &runs[update];

		d->sample = &sample;
		d->rows = &copy.view;
		d->lists = lists.get();
		d->length = d->k = k;
		d->stream = stream.get();
		must(gg_cuda_random_lists(&copy.view, k, k, 1, {stream.get(), NULL, NULL},
								  lists.get()));
		must(papers_gnnd((papers_update) update, &copy.view, k, k, iterations, 1, NULL,
						 stream.get(), lists.get(), note_iteration, d));
	}
	for (int what = 0; what < 3; what++)
	{
		printf("\n%s after each iteration:\n",
			   what == 0 ? "phi(G) of the nearest 10, over that of the last of all pairs," :
			   what == 1 ? "recall@10" : "Seconds");
		papers_head("iteration | ours | all pairs (GNND-r1) | nearest (GNND-r2) "
					"| nearest, segments (GNND) | all pairs, near ones | nearest, near ones");
		for (uint32_t i = 0; i < iterations; i++)
		{
			printf("| %u |", i + 1);
			for (const descent &d : runs)
				if (what == 0)
					printf(" %.4f |", d.quality[i].phi / runs[UPDATE_ALL].quality.back().phi);
				else
					printf(what == 1 ? " %.4f |" : " %.3f |",
						   what == 1 ? d.quality[i].recall : d.seconds[i]);
			printf("\n");
		}
	}
	printf("\n");
	papers_compare("phi(G) of GNND largely overlaps with that of all pairs", "as above");
	compare_seconds("selective update is more than 3 times as fast", names[UPDATE_NEAREST],
					runs[UPDATE_NEAREST], names[UPDATE_ALL], runs[UPDATE_ALL]);
	compare_seconds("as above, where far pairs ask for no lock", names[UPDATE_NEAREST_NEAR],
					runs[UPDATE_NEAREST_NEAR], names[UPDATE_ALL_NEAR], runs[UPDATE_ALL_NEAR]);
	compare_seconds("several locks a list take another 5 to 8% off", names[UPDATE_SEGMENTS],
					runs[UPDATE_SEGMENTS], names[UPDATE_NEAREST], runs[UPDATE_NEAREST]);
	compare_seconds("none, ours has no locks", names[UPDATE_OURS], runs[UPDATE_OURS],
					names[UPDATE_SEGMENTS], runs[UPDATE_SEGMENTS]);
}

/* ---- figure 6 ------------------------------------------------------------------------ */

/* Exact lists: every row against all, slice after slice. */
static void
exact_lists(const drawn_set *set, const gg_cuda_rows *rows, cudaStream_t stream)
{
	const uint32_t slice = std::min(set->n, 65536u);
	gg_cuda_buffer<uint64_t> lists;

	must(lists.allocate((uint64_t) slice * 32));
	for (uint32_t first = 0; first < set->n; first += slice)
	{
		gg_cuda_rows some = *rows;

		some.n = std::min(slice, set->n - first);
		some.rows += (uint64_t) first * rows->quads * 16;
		some.norms += first;
		must(gg_cuda_join_whole(&some, rows, false, 32, 11, {stream, NULL, NULL},
								lists.get()));
	}
	MUST(cudaStreamSynchronize(stream));
}

/* One build of lists. */
static void
lists_row(const drawn_set *set, const row_sample *sample, gg_init init, uint32_t k,
		  uint32_t p, uint32_t iterations, cudaStream_t stream, double *first)
{
	gg_build_params params = params_of(k / 2, k);
	double		seconds = INFINITY;
	double		recall = 0.0;

	params.samples = p;
	params.init = init;
	params.max_iterations = iterations;
	/* as many iterations as are asked for */
	params.termination_threshold = iterations == 0 ? 0.0f : 1e-9f;
	for (int run = 0; run < papers_runs(2); run++)
	{
		papers_lists lists;

		papers_lists_make(set, &params, stream, &lists);
		seconds = std::min(seconds, lists.seconds);
		recall = lists_recall(sample, lists.ids.get(), k, 10, stream);
	}
	printf("| %s | %u | %u | %s | %.3f | %.4f |\n",
		   init == GG_INIT_RANDOM ? "random lists" : "pivot cells", k, p,
		   iterations == 0 ? "default" : std::to_string(iterations).c_str(), seconds, recall);
	fflush(stdout);
	if (recall >= 0.99 && (*first == 0.0 || seconds < *first))
		*first = seconds;
}

void
gnnd_6(void)
{
	drawn_set	set;
	row_sample sample;
	gg_cuda_stream stream;
	gg_cuda_working_copy copy;
	double		first[2] = {0.0, 0.0};

	papers_begin("GNND figure 6: time against recall of k-NN lists",
				 strcmp(papers.set, "s960") == 0 ? 300000 : 1000000, false, &set);
	papers_sample(&set, &sample);
	must(stream.create());
	papers_head("start | k | p | iterations | seconds | recall@10");
	for (uint32_t k : {32u, 64u, 128u})
	{
		for (uint32_t iterations : {4u, 6u, 8u, 12u, 0u})
			if (!papers.tiny || iterations == 4)
				lists_row(&set, &sample, GG_INIT_RANDOM, k, GG_GNND_SAMPLES, iterations,
						  stream.get(), &first[0]);
		for (uint32_t iterations : {1u, 2u, 0u})
			if (!papers.tiny || iterations == 1)
				lists_row(&set, &sample, GG_INIT_PIVOT_CELLS, k, GG_GNND_SAMPLES, iterations,
						  stream.get(), &first[1]);
		/* the paper's curves are by p, from random lists */
		for (uint32_t p : {10u, 16u, 24u, 42u, 64u})
			if (papers.tiny ? k == 32 && p >= 24 : k >= 64)
				lists_row(&set, &sample, GG_INIT_RANDOM, k, p, papers.tiny ? 2 : 0, stream.get(),
						  &first[0]);
	}

	gg_cuda_data data = set.data();

	must(gg_cuda_working_copy_make(&data, {stream.get(), NULL, NULL}, &copy));

	/* the second time, too, in a tiny run: the first has kernels to load */
	const double exact = best_of(2, [&]() { exact_lists(&set, &copy.view, stream.get()); });

	printf("| every pair, on the tensor cores | 10 | | | %.3f | (fp16) |\n\n", exact);
	papers_compare("SIFT1M to recall 0.99 in under 4 s, every pair in 21 s: 5 times as fast",
				   "to 0.99 from random lists %.3f s, %.1fx; from pivot cells %.3f s, %.1fx "
				   "(0: not reached)",
				   first[0], first[0] > 0.0 ? exact / first[0] : 0.0, first[1],
				   first[1] > 0.0 ? exact / first[1] : 0.0);
}
