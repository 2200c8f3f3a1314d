/*
 * shards.cu
 *		CAGRA, section IV-C2: shards of a set, each with a graph of its own, on one device or on
 *		several.  A query is searched for in all of them, and the nearest of what they find is its
 *		answer.
 *
 * The host starts the searches of a batch on all devices, and those of the next batch behind them.
 * What the shards have found comes to the first device and is merged there.
 */
#include "papers.h"

#include "../../../../kernels/serve/index.cuh"

#define K 10u
#define MOST_SHARDS 4u

/* ---- shards ------------------------------------------------------------------ */

/* Some of the rows on a device, with a graph of their own. */
class placed_shard
{
public:
	int			device;
	uint32_t	first;			/* row of the set */
	gg_graph	graph;
	gg_index   *index;
	cudaStream_t stream;
	cudaEvent_t searched;
	float	   *queries;		/* all of them */
	uint64_t   *keys;			/* of all queries x K, numbered in the shard */
};

class placed_shards
{
public:
	uint32_t	count;
	placed_shard all[MOST_SHARDS];
	cudaStream_t stream;		/* of the first device */
	gg_cuda_buffer<uint64_t> found;	/* what comes there: count x queries x K */
	gg_cuda_buffer<uint64_t> keys;	/* of all queries x K, merged */
};

/* Graphs of `count` shards; seconds of all, one after the other. */
static double
build_shards(const drawn_set *set, uint32_t count, placed_shards *s)
{
	const gg_build_params params = params_of(32, 64);
	gg_cuda_stream stream;
	double		seconds = 0.0;

	must(stream.create());
	s->count = count;
	for (uint32_t i = 0; i < count; i++)
	{
		placed_shard *one = &s->all[i];
		const uint32_t end = (uint32_t) ((uint64_t) set->n * (i + 1) / count);
		gg_cuda_data data = set->data();
		gg_build_stats stats = {};
		const double begin = now_s();

		one->first = (uint32_t) ((uint64_t) set->n * i / count);
		data.rows = set->rows.get() + (size_t) one->first * set->dim;
		data.n = end - one->first;
		must(gg_cuda_build_rows(&data, NULL, &params, {stream.get(), NULL, NULL}, &one->graph,
								&stats));
		seconds += now_s() - begin - stats.transfer_s;
	}
	return seconds;
}

/* Bring the shards to so many devices by turns. */
static void
place_shards(const drawn_set *set, int devices, placed_shards *s)
{
	const uint64_t keys = (uint64_t) set->nq * K;

	for (uint32_t i = 0; i < s->count; i++)
	{
		placed_shard *one = &s->all[i];
		gg_dataset	rows = set->dataset();

		one->device = (int) i % devices;
		rows.rows = set->host_rows.data() + (size_t) one->first * set->dim;
		rows.n = one->graph.n;
		must(gg_cuda_use_device(one->device));
		must(gg_cuda_index_open(&rows, &one->graph, NULL, &one->index));
		MUST(cudaStreamCreateWithFlags(&one->stream, cudaStreamNonBlocking));
		MUST(cudaEventCreateWithFlags(&one->searched, cudaEventDisableTiming));
		MUST(cudaMalloc((void **) &one->queries, set->queries.bytes()));
		MUST(cudaMalloc((void **) &one->keys, keys * sizeof(uint64_t)));
		must(gg_cuda_copy_in(one->queries, set->host_queries.data(), set->queries.bytes(),
							 one->stream, NULL));
	}
	must(gg_cuda_use_device(0));
	MUST(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
	must(s->found.allocate(s->count * keys));
	must(s->keys.allocate(keys));
}

/* What place_shards() has made, and not the graphs. */
static void
take_back_shards(placed_shards *s)
{
	for (uint32_t i = 0; i < s->count; i++)
	{
		placed_shard *one = &s->all[i];

		must(gg_cuda_use_device(one->device));
		gg_cuda_index_close(one->index);
		MUST(cudaStreamDestroy(one->stream));
		MUST(cudaEventDestroy(one->searched));
		MUST(cudaFree(one->queries));
		MUST(cudaFree(one->keys));
	}
	must(gg_cuda_use_device(0));
	MUST(cudaStreamDestroy(s->stream));
}

/* ---- searches ------------------------------------------------------------------ */

typedef struct merge_args
{
	const uint64_t *found[MOST_SHARDS];	/* nq x K each */
	uint32_t	first[MOST_SHARDS];
	uint32_t	count;
	uint32_t	nq;
	uint64_t   *keys;			/* nq x K, numbered in the set */
} merge_args;

/* One thread per query. */
static __global__ void
merge_found_kernel(merge_args args)
{
	const uint32_t query = blockIdx.x * blockDim.x + threadIdx.x;
	uint32_t	at[MOST_SHARDS] = {};

	if (query >= args.nq)
		return;
	for (uint32_t i = 0; i < K; i++)
	{
		uint64_t	nearest = GG_NO_KEY;
		uint32_t	from = 0;

		for (uint32_t s = 0; s < args.count; s++)
			if (at[s] < K && args.found[s][(uint64_t) query * K + at[s]] != GG_NO_KEY)
			{
				/* the node's number begins at bit 1 */
				const uint64_t key = args.found[s][(uint64_t) query * K + at[s]] +
					((uint64_t) args.first[s] << 1);

				if (key < nearest)
				{
					nearest = key;
					from = s;
				}
			}
		args.keys[(uint64_t) query * K + i] = nearest;
		at[from]++;
	}
}

/* Start the searches of queries [first, first + count), and merge what they find. */
static void
start_batch(placed_shards *s, const drawn_set *set, const gg_search_params *params, uint32_t first,
			uint32_t count)
{
	const uint64_t offset = (uint64_t) first * K;
	const size_t bytes = (size_t) count * K * sizeof(uint64_t);
	merge_args	args = {};

	for (uint32_t i = 0; i < s->count; i++)
	{
		placed_shard *one = &s->all[i];

		MUST(cudaSetDevice(one->device));
		must(gg_cuda_search_enqueue(one->index, params,
									one->queries + (size_t) first * set->dim, count,
									one->keys + offset, one->stream));
		MUST(cudaEventRecord(one->searched, one->stream));
	}
	MUST(cudaSetDevice(0));
	for (uint32_t i = 0; i < s->count; i++)
	{
		const placed_shard *one = &s->all[i];
		uint64_t   *here = s->found.get() + (uint64_t) i * set->nq * K + offset;

		MUST(cudaStreamWaitEvent(s->stream, one->searched, 0));
		if (one->device != 0)
			MUST(cudaMemcpyPeerAsync(here, 0, one->keys + offset, one->device, bytes, s->stream));
		args.found[i] = one->device != 0 ? here : one->keys + offset;
		args.first[i] = one->first;
	}
	args.count = s->count;
	args.nq = count;
	args.keys = s->keys.get() + offset;
	merge_found_kernel<<<gg_cuda_blocks(count, 64), 64, 0, s->stream>>>(args);
	MUST(cudaGetLastError());
}

/* As papers_search(); a single shard is searched as any index is. */
static papers_point
search_shards(placed_shards *s, const drawn_set *set, uint32_t batch, uint32_t width)
{
	const uint32_t count = papers_queries(set, batch);
	const gg_search_params params = {K, std::max(width, K), 0, GG_SEARCH_AUTO, 0, 0};

	if (s->count == 1)
		return papers_search(s->all[0].index, set, GG_SEARCH_AUTO, batch, width, K);
	batch = std::min(batch, set->nq);

	const double seconds = papers_best([&]()
	{
		for (uint32_t first = 0; first < count; first += batch)
			start_batch(s, set, &params, first, batch);
		MUST(cudaStreamSynchronize(s->stream));
	});

	return papers_point_of(set, params.itopk_size, s->keys.get(), count, K, seconds);
}

/* ---- the figure ------------------------------------------------------------------ */

/* Curves of so many shards on so many devices, one for each batch. */
typedef struct placed
{
	uint32_t	shards;
	int			devices;
	std::vector<papers_curve> curves;
} placed;

static std::string
name_of(uint32_t batch, uint32_t shards, int devices)
{
	return "batch " + std::to_string(batch) + ", " + std::to_string(shards) + " on " +
		std::to_string(devices);
}

static placed
measure(placed_shards *s, const drawn_set *set, int devices, const std::vector<uint32_t> &batches)
{
	placed		out = {s->count, devices, {}};

	place_shards(set, devices, s);
	for (uint32_t batch : batches)
	{
		out.curves.push_back(papers_curve_of([&](uint32_t width)
											 {
												 return search_shards(s, set, batch, width);
											 }));
		papers_curve_row(("batch " + std::to_string(batch)).c_str(),
						 name_of(batch, s->count, devices).c_str(), out.curves.back());
	}
	take_back_shards(s);
	return out;
}

void
cagra_shards(void)
{
	const std::vector<uint32_t> batches = papers.tiny ? std::vector<uint32_t>{10} :
		std::vector<uint32_t>{1, 10, 100, 1000, 10000};
	drawn_set	set;
	std::vector<placed> all;
	std::vector<double> seconds;

	papers.coarse = true;
	papers_begin("CAGRA section IV-C2: shards on devices", 4000000, true, &set);
	papers_curve_head();
	for (uint32_t count = 1; count <= MOST_SHARDS; count *= 2)
	{
		placed_shards s = {};

		seconds.push_back(build_shards(&set, count, &s));
		for (int devices = 1; devices <= std::min((int) count, papers_devices()); devices *= 2)
			all.push_back(measure(&s, &set, devices, batches));
		for (uint32_t i = 0; i < count; i++)
			gg_graph_free(&s.all[i].graph);
	}
	printf("\n");
	for (size_t b = 0; b < batches.size(); b++)
		for (size_t i = 1; i < all.size(); i++)
			papers_ratios(name_of(batches[b], all[i].shards, all[i].devices).c_str(),
						  all[i].curves[b], "one", all[0].curves[b]);
	printf("- graphs of 1, 2 and 4 shards, one after the other: %.3f, %.3f and %.3f s\n",
		   seconds[0], seconds[1], seconds[2]);
	papers_compare("sharding is no way to fill one GPU, and could be well suited to several: each "
				   "has a part of the graph", "as above; no figures are given there");
}
