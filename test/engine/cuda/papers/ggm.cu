/*
 * ggm.cu
 *		Figure 7 and table 2 of Wang, Zhao, Zeng, Yang: "Fast k-NN Graph Construction by GPU based
 *		NN-Descent", 2021: graphs merged.  Its section 5: shards on disk.
 *
 * Sub-graphs are whole k-NN lists, as the paper's; the engine's own merges start from edges.
 */
#include "papers.h"

#include "../../../../kernels/graph/list.cuh"
#include "../../../../kernels/serve/index.cuh"

#include <atomic>
#include <errno.h>
#include <future>

#define K 64u
#define BATCH 10000u

/* The rows [first, end) of a set as a set of their own, on the device and on the host. */
typedef struct part
{
	gg_cuda_data device;
	gg_dataset	host;
	uint32_t	first;
} part;

static part
part_of(const drawn_set *set, uint32_t first, uint32_t end)
{
	part		p = {set->data(), set->dataset(), first};

	p.device.rows = set->rows.get() + (size_t) first * set->dim;
	p.host.rows = set->host_rows.data() + (size_t) first * set->dim;
	p.device.n = p.host.n = end - first;
	return p;
}

/* k-NN lists of a part; the status of one that the device has no memory for is not OK */
static gg_status
try_part_lists(const part *p, cudaStream_t stream, papers_lists *lists)
{
	gg_cuda_data data = p->device;
	const gg_build_params params = params_of(K / 2, K);
	gg_build_stats stats = {};
	const double begin = now_s();

	lists->k = K;
	GG_TRY(gg_cuda_knn_rows(&data, &params, {stream, NULL, NULL}, &lists->copy, &lists->ids,
							&lists->distances, &stats));
	lists->seconds = now_s() - begin;
	return gg_ok();
}

static void
part_lists(const part *p, cudaStream_t stream, papers_lists *lists)
{
	must(try_part_lists(p, stream, lists));
}

/* ids on the host, moved by `first` */
static void
fetch_lists(const papers_lists *lists, uint32_t first, cudaStream_t stream, uint32_t *out)
{
	const uint64_t count = (uint64_t) lists->copy.view.n * K;

	must(gg_cuda_copy_out(out, lists->ids.get(), count * 4, stream, NULL));
	for (uint64_t i = 0; i < count; i++)
		out[i] += out[i] == GG_NO_NODE ? 0 : first;
}

/* Merge once; seconds without the way of the lists to the device. */
static double
merge_once(const drawn_set *set, const gg_merge_input *input, gg_init init, uint32_t iterations,
		   const row_sample *sample, cudaStream_t stream, double *recall)
{
	gg_build_params params = params_of(K / 2, K);
	double		best = INFINITY;

	params.init = init;
	params.max_iterations = iterations;
	params.termination_threshold = iterations == 0 ? 0.0f : 1e-9f;
	for (int run = 0; run < papers_runs(2); run++)
	{
		gg_cuda_data data = set->data();
		gg_build_stats stats = {};
		gg_cuda_working_copy copy;
		gg_cuda_buffer<uint32_t> ids;
		double		begin = now_s();

		must(gg_cuda_merge_rows(&data, input, &params, {stream, NULL, NULL}, &copy, &ids, &stats));
		best = std::min(best, now_s() - begin - stats.transfer_s);
		*recall = lists_recall(sample, ids.get(), K, 10, stream);
	}
	return best;
}

/* ---- figure 7 ---------------------------------------------------------------- */

/* The two halves, as they are before they are merged. */
class halves
{
public:
	part		parts[2];
	papers_lists lists[2];
	std::vector<open_index> indexes;
};

static void
make_halves(const drawn_set *set, cudaStream_t stream, halves *h)
{
	for (int i = 0; i < 2; i++)
	{
		gg_cuda_buffer<uint32_t> edges;
		owned_graph graph;
		uint32_t	repaired;

		h->parts[i] = part_of(set, i == 0 ? 0 : set->n / 2, i == 0 ? set->n / 2 : set->n);
		part_lists(&h->parts[i], stream, &h->lists[i]);
		must(edges.allocate((uint64_t) h->parts[i].device.n * (K / 2)));
		must(gg_cuda_optimize_device(h->lists[i].ids.get(), h->parts[i].device.n, K, K / 2,
									 {stream, NULL, NULL}, edges.get()));
		papers_graph_make(&h->lists[i], edges.get(), K / 2, stream, &graph, &repaired);
		h->indexes.emplace_back(h->parts[i].host, &graph);
	}
}

/* What was found of each row in the half that it is not of: n x 10 keys, numbered in that half. */
typedef std::vector<uint64_t> found_lists;

/* Every row is searched for in the graph of the other half; seconds of all. */
static double
search_halves(const drawn_set *set, halves *h, uint32_t width, cudaStream_t stream,
			  found_lists *found)
{
	const gg_search_params params = {10, width, 0, GG_SEARCH_AUTO, 0, 0};
	gg_cuda_buffer<uint64_t> keys;
	double		seconds;

	must(keys.allocate((uint64_t) set->n * 10));
	seconds = best_of(papers_runs(2), [&]()
	{
		for (int i = 0; i < 2; i++)
			for (uint32_t at = 0; at < h->parts[i].device.n; at += BATCH)
			{
				const uint32_t count = std::min(BATCH, h->parts[i].device.n - at);
				const uint64_t row = h->parts[i].first + at;

				must(gg_cuda_search_enqueue(h->indexes[1 - i], &params,
											set->rows.get() + row * set->dim, count,
											keys.get() + row * 10, stream));
			}
		MUST(cudaStreamSynchronize(stream));
	});
	found->resize((size_t) set->n * 10);
	must(gg_cuda_copy_out(found->data(), keys.get(), keys.bytes(), stream, NULL));
	return seconds;
}

/* recall@10 of the sampled rows' own lists united with what was found. */
static double
united_recall(const halves *h, const std::vector<uint32_t> *own,
			  const std::vector<float> *own_distances, const row_sample *sample,
			  const found_lists *found)
{
	uint64_t	hits = 0;

	for (size_t s = 0; s < sample->rows.size(); s++)
	{
		const uint32_t row = sample->rows[s];
		const int	i = row < h->parts[1].first ? 0 : 1;
		const size_t local = row - h->parts[i].first;
		std::vector<std::pair<float, uint32_t>> all;

		for (uint32_t j = 0; j < 10; j++)
		{
			all.push_back({own_distances[i][local * K + j],
						   own[i][local * K + j] + h->parts[i].first});
			all.push_back({key_distance((*found)[(size_t) row * 10 + j]),
						   key_node((*found)[(size_t) row * 10 + j]) + h->parts[1 - i].first});
		}
		std::sort(all.begin(), all.end());
		for (uint32_t j = 0; j < 10; j++)
			for (uint32_t l = 0; l < 10; l++)
				hits += all[j].second == sample->truth[s * sample->k + l];
	}
	return (double) hits / (10.0 * sample->rows.size());
}

/* The row of one width. */
static void
search_row(const drawn_set *set, halves *h, const std::vector<uint32_t> *own,
		   const std::vector<float> *own_distances, const row_sample *sample, uint32_t width,
		   cudaStream_t stream)
{
	found_lists found;
	const double seconds = search_halves(set, h, width, stream, &found);

	printf("| by search, itopk %u | %.3f | %.4f |\n", width, seconds,
		   united_recall(h, own, own_distances, sample, &found));
	fflush(stdout);
}

void
ggm_7(void)
{
	drawn_set	set;
	row_sample sample;
	gg_cuda_stream stream;
	halves		h = {};
	std::vector<uint32_t> stored;
	std::vector<uint8_t> parts;
	std::vector<uint32_t> own[2];
	std::vector<float> own_distances[2];
	double		recall;

	papers_begin("GGM figure 7: two halves merged", 1000000, false, &set);
	papers_sample(&set, &sample);
	must(stream.create());
	make_halves(&set, stream.get(), &h);
	stored.resize((size_t) set.n * K);
	for (int i = 0; i < 2; i++)
	{
		fetch_lists(&h.lists[i], h.parts[i].first, stream.get(),
					stored.data() + (size_t) h.parts[i].first * K);
		own[i].resize((size_t) h.parts[i].device.n * K);
		own_distances[i].resize(own[i].size());
		must(gg_cuda_copy_out(own[i].data(), h.lists[i].ids.get(), own[i].size() * 4, stream.get(),
							  NULL));
		must(gg_cuda_copy_out(own_distances[i].data(), h.lists[i].distances.get(),
							  own[i].size() * 4, stream.get(), NULL));
		parts.insert(parts.end(), h.parts[i].device.n, (uint8_t) (i + 1));
	}

	const gg_merge_input input = {parts.data(), stored.data(), K, GG_MERGE_AUTO};

	papers_head("k-NN lists of 64, of two halves | seconds | recall@10");
	for (gg_init init : {GG_INIT_RANDOM, GG_INIT_PIVOT_CELLS})
		for (uint32_t iterations : {1u, 2u, 4u, 6u, 8u, 12u})
			if (papers.tiny ? iterations == (init == GG_INIT_RANDOM ? 2 : 1) :
				init == GG_INIT_RANDOM || iterations <= 4)
			{
				const double seconds = merge_once(&set, &input, init, iterations, &sample,
												  stream.get(), &recall);

				printf("| GGM from %s, %u iterations | %.3f | %.4f |\n",
					   init == GG_INIT_RANDOM ? "random rows" : "pivot cells", iterations, seconds,
					   recall);
				fflush(stdout);
			}
	for (uint32_t width : {10u, 16u, 32u, 64u, 128u, 256u})
		if (!papers.tiny || width == 16)
			search_row(&set, &h, own, own_distances, &sample, width, stream.get());
	h.indexes.clear();

	papers_lists anew;
	const part whole = part_of(&set, 0, set.n);

	part_lists(&whole, stream.get(), &anew);
	printf("| built anew | %.3f | %.4f |\n", anew.seconds,
		   lists_recall(&sample, anew.ids.get(), K, 10, stream.get()));
	printf("| the halves themselves | %.3f | |\n\n", h.lists[0].seconds + h.lists[1].seconds);
	papers_compare("GGM's recall@10 is 5 to 10% above that of merging by search (GGNN) in the same "
				   "time, sub-graphs not counted",
				   "as above; searches without their graphs and without uniting");
}

/* ---- table 2 --------------------------------------------------------------------- */

/*
 * What a merge of two shards found for its rows, into lists of all rows by fp32 distances of rows;
 * one warp per row.  Rows [0, half) are those from begin[0] on, the others from begin[1] on.
 */
typedef struct gather_args
{
	const float *rows;			/* of all */
	uint32_t	dim;
	const uint32_t *ids;		/* of the merge, n x K */
	uint32_t	n;
	uint32_t	half;
	uint32_t	begin[2];
	uint32_t	numbers[2];		/* of their first rows, in the keys of lists */
	uint64_t   *lists;			/* of all, x K */
} gather_args;

static __global__ void
gather_lists_kernel(gather_args args)
{
	__shared__ uint64_t buffers[8][64];
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t local = blockIdx.x * 8 + threadIdx.x / 32;
	uint64_t   *buffer = buffers[threadIdx.x / 32];

	if (local >= args.n)
		return;
	const uint32_t row = local < args.half ? args.begin[0] + local :
		args.begin[1] + local - args.half;

	for (uint32_t i = 0; i < K; i++)
	{
		const uint32_t other = args.ids[(uint64_t) local * K + i];
		float		sum = 0.0f;

		if (other == GG_NO_NODE)
		{
			buffer[i] = GG_KEY_NONE;
			continue;
		}
		const uint32_t id = other < args.half ? args.begin[0] + other :
			args.begin[1] + other - args.half;

		for (uint32_t d = lane; d < args.dim; d += 32)
		{
			const float difference = args.rows[(uint64_t) row * args.dim + d] -
				args.rows[(uint64_t) id * args.dim + d];

			sum = fmaf(difference, difference, sum);
		}
		sum = gg_warp_sum(sum);
		if (lane == 0)
			buffer[i] = gg_key(sum, other < args.half ? args.numbers[0] + other :
							   args.numbers[1] + other - args.half, 0);
	}
	__syncwarp();
	gg_merge<2>(args.lists + (uint64_t) row * K, buffer, K);
}

static __global__ void
key_ids_kernel(const uint64_t *lists, uint64_t count, uint32_t *ids)
{
	const uint64_t i = (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		ids[i] = lists[i] == GG_KEY_NONE ? GG_NO_NODE : gg_key_id(lists[i]);
}

/* All shards with their lists. */
class all_shards
{
public:
	uint32_t	count;
	uint32_t	size;
	std::vector<std::vector<uint32_t>> lists;	/* size x K, ids in the shard */
};

/* A device that makes shards and merges pairs. */
class joiner
{
public:
	cudaStream_t stream;
	const float *rows;			/* of all */
	float	   *copy;			/* of the set's rows; NULL: they are on this device */
	uint64_t   *united;			/* n x K: what its merges have found */
};

static void
open_joiner(const drawn_set *set, int device, joiner *j)
{
	const size_t bytes = (size_t) set->n * K * sizeof(uint64_t);

	MUST(cudaStreamCreateWithFlags(&j->stream, cudaStreamNonBlocking));
	j->rows = set->rows.get();
	if (device > 0)
	{
		MUST(cudaMalloc((void **) &j->copy, set->rows.bytes()));
		MUST(cudaMemcpyPeer(j->copy, device, set->rows.get(), 0, set->rows.bytes()));
		j->rows = j->copy;
	}
	MUST(cudaMalloc((void **) &j->united, bytes));
	MUST(cudaMemsetAsync(j->united, 0xFF, bytes, j->stream));
	MUST(cudaStreamSynchronize(j->stream));
}

static void
close_joiner(joiner *j)
{
	MUST(cudaStreamDestroy(j->stream));
	MUST(cudaFree(j->copy));
	MUST(cudaFree(j->united));
}

/*
 * Merge two shards of as many rows, which lie one behind the other, with their own lists, and put
 * what is found into args->lists.  args: all but the merge's result and its size.
 */
static void
merge_lists(const drawn_set *set, const float *rows, const uint32_t *const *lists,
			gather_args *args, cudaStream_t stream)
{
	const uint32_t size = args->half;
	gg_cuda_working_copy copy;
	gg_cuda_buffer<uint32_t> ids;
	gg_cuda_data data = set->data();
	const gg_build_params params = params_of(K / 2, K);
	gg_build_stats stats = {};
	std::vector<uint8_t> parts(2 * (size_t) size, 1);
	std::vector<uint32_t> stored((size_t) size * 2 * K);
	const gg_merge_input input = {parts.data(), stored.data(), K, GG_MERGE_AUTO};

	std::fill(parts.begin() + size, parts.end(), (uint8_t) 2);
	memcpy(stored.data(), lists[0], (size_t) size * K * 4);
	for (size_t i = 0; i < (size_t) size * K; i++)
		stored[(size_t) size * K + i] = lists[1][i] == GG_NO_NODE ? GG_NO_NODE :
			lists[1][i] + size;
	data.rows = rows;
	data.n = 2 * size;
	must(gg_cuda_merge_rows(&data, &input, &params, {stream, NULL, NULL}, &copy, &ids, &stats));
	args->dim = set->dim;
	args->ids = ids.get();
	args->n = 2 * size;
	gather_lists_kernel<<<gg_cuda_blocks(2 * size, 8), 256, 0, stream>>>(*args);
	MUST(cudaGetLastError());
	MUST(cudaStreamSynchronize(stream));
}

/* Merge two shards and put what is found into the joiner's lists. */
static void
merge_pair(const drawn_set *set, const all_shards *all, const joiner *j, uint32_t a, uint32_t b)
{
	const uint32_t size = all->size;
	const uint64_t row_bytes = (uint64_t) set->dim * sizeof(float);
	const uint32_t *lists[2] = {all->lists[a].data(), all->lists[b].data()};
	gg_cuda_buffer<float> rows;
	gather_args args = {};

	must(rows.allocate(2 * (uint64_t) size * set->dim));
	MUST(cudaMemcpyAsync(rows.get(), j->rows + (size_t) a * size * set->dim, size * row_bytes,
						 cudaMemcpyDeviceToDevice, j->stream));
	MUST(cudaMemcpyAsync(rows.get() + (size_t) size * set->dim,
						 j->rows + (size_t) b * size * set->dim, size * row_bytes,
						 cudaMemcpyDeviceToDevice, j->stream));
	args.rows = j->rows;
	args.half = size;
	args.begin[0] = args.numbers[0] = a * size;
	args.begin[1] = args.numbers[1] = b * size;
	args.lists = j->united;
	merge_lists(set, rows.get(), lists, &args, j->stream);
}

/* Merge n lists into those of `lists`; one warp per row. */
static __global__ void
unite_lists_kernel(uint64_t *lists, const uint64_t *others, uint32_t n)
{
	const uint32_t row = blockIdx.x * 8 + threadIdx.x / 32;

	if (row < n)
		gg_merge<2>(lists + (uint64_t) row * K, others + (uint64_t) row * K, K);
}

/* Unite what all joiners have found, in the lists of the first one. */
static void
unite_joiners(const drawn_set *set, const joiner *joiners, int devices)
{
	gg_cuda_buffer<uint64_t> here;
	const uint32_t most = std::min(set->n, 1u << 20);

	must(here.allocate(devices > 1 ? (uint64_t) most * K : 0));
	for (int device = 1; device < devices; device++)
		for (uint32_t first = 0; first < set->n; first += most)
		{
			const uint32_t count = std::min(most, set->n - first);
			const uint64_t offset = (uint64_t) first * K;

			MUST(cudaMemcpyPeerAsync(here.get(), 0, joiners[device].united + offset, device,
									 (size_t) count * K * sizeof(uint64_t), joiners[0].stream));
			unite_lists_kernel<<<gg_cuda_blocks(count, 8), 256, 0, joiners[0].stream>>>
				(joiners[0].united + offset, here.get(), count);
			MUST(cudaGetLastError());
		}
	MUST(cudaStreamSynchronize(joiners[0].stream));
}

/* Make the shards on so many devices, merge all pairs there, and print the row of the table. */
static void
merge_shards(const drawn_set *set, int devices, const row_sample *sample)
{
	const uint32_t count = papers.tiny ? 3 : 8;
	const uint64_t entries = (uint64_t) set->n * K;
	all_shards	all = {count, set->n / count, std::vector<std::vector<uint32_t>>(count)};
	std::vector<joiner> joiners(devices);
	std::vector<std::pair<uint32_t, uint32_t>> pairs;
	std::atomic<uint32_t> next(0);
	gg_cuda_buffer<uint32_t> ids;

	for (uint32_t a = 0; a < count; a++)
		for (uint32_t b = a + 1; b < count; b++)
			pairs.push_back({a, b});
	papers_on_devices(devices, [&](int device)
					  {
						  open_joiner(set, device, &joiners[device]);
					  });

	const double begin = now_s();

	papers_on_devices(devices, [&](int device)
					  {
						  for (uint32_t i = (uint32_t) device; i < count; i += (uint32_t) devices)
						  {
							  part		p = part_of(set, i * all.size, (i + 1) * all.size);
							  papers_lists lists;

							  p.device.rows = joiners[device].rows +
								  (size_t) i * all.size * set->dim;
							  part_lists(&p, joiners[device].stream, &lists);
							  all.lists[i].resize((size_t) all.size * K);
							  fetch_lists(&lists, 0, joiners[device].stream, all.lists[i].data());
						  }
					  });

	const double merging = now_s();

	papers_on_devices(devices, [&](int device)
					  {
						  for (uint32_t i = next.fetch_add(1); i < pairs.size();
							   i = next.fetch_add(1))
							  merge_pair(set, &all, &joiners[device], pairs[i].first,
										 pairs[i].second);
					  });
	unite_joiners(set, joiners.data(), devices);

	const double end = now_s();

	must(ids.allocate(entries));
	key_ids_kernel<<<gg_cuda_blocks(entries, 256), 256, 0, joiners[0].stream>>>
		(joiners[0].united, entries, ids.get());
	MUST(cudaGetLastError());
	printf("| %u shards of %u, all %zu pairs merged, by %d | %.2f (shards %.2f, merges %.2f) | "
		   "%.0f | %.4f |\n", count, all.size, pairs.size(), devices, end - begin, merging - begin,
		   end - merging, set->n / (end - begin),
		   lists_recall(sample, ids.get(), K, 10, joiners[0].stream));
	fflush(stdout);
	papers_on_devices(devices, [&](int device)
					  {
						  close_joiner(&joiners[device]);
					  });
}

void
ggm_2(void)
{
	drawn_set	set;
	row_sample sample;
	gg_cuda_stream stream;
	papers_lists anew;

	papers_begin("GNND table 2, scaled: shards merged in pairs, by devices", 4000000, false, &set);
	papers_sample(&set, &sample);
	must(stream.create());
	papers_head("k-NN lists | seconds | rows/s | recall@10");
	printf("| paper: DEEP100M by GGM | 2888 | 34626 | 0.956 |\n"
		   "| paper: SIFT100M by GGM | 3033 | 32971 | 0.966 |\n");
	for (int devices = 1; devices <= std::min(papers_devices(), 8); devices *= 2)
		merge_shards(&set, devices, &sample);

	const part	whole = part_of(&set, 0, set.n);
	const gg_status status = try_part_lists(&whole, stream.get(), &anew);

	if (status.code == GG_OK)
		printf("| built as one | %.2f | %.0f | %.4f |\n", anew.seconds, set.n / anew.seconds,
			   lists_recall(&sample, anew.ids.get(), K, 10, stream.get()));
	else
		printf("| built as one | %s | - | - |\n", status.message);
	printf("\nSeconds of merges are with the lists' way to the devices, and with that of what they "
		   "have found to the first one. The paper's rows/s fall with the number of shards, as "
		   "here.\n");
}

/* ---- shards on disk --------------------------------------------------------------- */

/* A shard in memory: its rows, its own k-NN lists, and the lists of what merges have found. */
class shard
{
public:
	std::vector<float> rows;
	std::vector<uint32_t> lists;	/* ids in the shard */
	std::vector<uint64_t> found;	/* keys, ids of the set */
};

/* The shards of a set in files of a directory, three of each. */
class disk
{
public:
	std::string folder;
	uint32_t	count;
	uint32_t	size;
	uint32_t	dim;
};

template <typename T>
static void
file_io(const disk *d, const char *what, uint32_t i, std::vector<T> *values, bool write)
{
	const std::string path = d->folder + "/" + what + std::to_string(i);
	FILE	   *file = fopen(path.c_str(), write ? "wb" : "rb");

	if (file == NULL ||
		(write ? fwrite(values->data(), sizeof(T), values->size(), file) :
		 fread(values->data(), sizeof(T), values->size(), file)) != values->size() ||
		fclose(file) != 0)
		fail("%s: %s", path.c_str(), strerror(errno));
}

static shard
read_shard(const disk *d, uint32_t i, bool lists)
{
	shard		s;

	s.rows.resize((size_t) d->size * d->dim);
	file_io(d, "rows", i, &s.rows, false);
	if (lists)
	{
		s.lists.resize((size_t) d->size * K);
		s.found.resize((size_t) d->size * K);
		file_io(d, "lists", i, &s.lists, false);
		file_io(d, "found", i, &s.found, false);
	}
	return s;
}

static void
write_found(const disk *d, uint32_t i, shard s)
{
	file_io(d, "found", i, &s.found, true);
}

/* Lists of each shard, while the rows of the next one are read. */
static void
lists_on_disk(const drawn_set *set, const disk *d, cudaStream_t stream)
{
	std::future<shard> next = std::async(std::launch::async, read_shard, d, 0u, false);

	for (uint32_t i = 0; i < d->count; i++)
	{
		shard		s = next.get();
		gg_cuda_buffer<float> rows;
		papers_lists lists;
		part		p = {set->data(), set->dataset(), 0};

		if (i + 1 < d->count)
			next = std::async(std::launch::async, read_shard, d, i + 1, false);
		must(rows.allocate(s.rows.size()));
		MUST(cudaMemcpyAsync(rows.get(), s.rows.data(), rows.bytes(), cudaMemcpyHostToDevice,
							 stream));
		p.device.rows = rows.get();
		p.device.n = d->size;
		part_lists(&p, stream, &lists);
		s.lists.resize((size_t) d->size * K);
		fetch_lists(&lists, 0, stream, s.lists.data());
		file_io(d, "lists", i, &s.lists, true);
		s.found.assign((size_t) d->size * K, GG_KEY_NONE);
		file_io(d, "found", i, &s.found, true);
	}
}

/* Merge two shards in memory into what was found for both. */
static void
merge_in_memory(const drawn_set *set, shard *const *both, const uint32_t *numbers,
				cudaStream_t stream)
{
	const uint32_t size = (uint32_t) (both[0]->lists.size() / K);
	const uint32_t *lists[2] = {both[0]->lists.data(), both[1]->lists.data()};
	gg_cuda_buffer<float> rows;
	gg_cuda_buffer<uint64_t> found;
	gather_args args = {};

	must(rows.allocate(2 * (uint64_t) size * set->dim));
	must(found.allocate(2 * (uint64_t) size * K));
	for (int i = 0; i < 2; i++)
	{
		MUST(cudaMemcpyAsync(rows.get() + (size_t) i * size * set->dim, both[i]->rows.data(),
							 both[i]->rows.size() * sizeof(float), cudaMemcpyHostToDevice, stream));
		MUST(cudaMemcpyAsync(found.get() + (size_t) i * size * K, both[i]->found.data(),
							 both[i]->found.size() * sizeof(uint64_t), cudaMemcpyHostToDevice,
							 stream));
		args.begin[i] = (uint32_t) i * size;
		args.numbers[i] = numbers[i] * size;
	}
	args.rows = rows.get();
	args.half = size;
	args.lists = found.get();
	merge_lists(set, rows.get(), lists, &args, stream);
	for (int i = 0; i < 2; i++)
		MUST(cudaMemcpyAsync(both[i]->found.data(), found.get() + (size_t) i * size * K,
							 both[i]->found.size() * sizeof(uint64_t), cudaMemcpyDeviceToHost,
							 stream));
	MUST(cudaStreamSynchronize(stream));
}

/* All pairs, each while the next shard is read and the one before is written. */
static void
merge_on_disk(const drawn_set *set, const disk *d, cudaStream_t stream)
{
	for (uint32_t a = 0; a + 1 < d->count; a++)
	{
		shard		first = read_shard(d, a, true);
		std::future<shard> next = std::async(std::launch::async, read_shard, d, a + 1, true);
		std::future<void> written;

		for (uint32_t b = a + 1; b < d->count; b++)
		{
			shard		second = next.get();
			shard	   *const both[2] = {&first, &second};
			const uint32_t numbers[2] = {a, b};

			if (b + 1 < d->count)
				next = std::async(std::launch::async, read_shard, d, b + 1, true);
			merge_in_memory(set, both, numbers, stream);
			if (written.valid())
				written.get();
			written = std::async(std::launch::async, write_found, d, b, std::move(second));
		}
		written.get();
		write_found(d, a, std::move(first));
	}
}

/* recall@10 of the sampled rows' lists in the files. */
static double
disk_recall(const disk *d, const row_sample *sample)
{
	std::vector<uint64_t> found((size_t) d->size * K);
	uint32_t	have = UINT32_MAX;
	uint64_t	hits = 0,
				asked = 0;

	for (size_t s = 0; s < sample->rows.size(); s++)
	{
		const uint32_t i = sample->rows[s] / d->size;

		if (i >= d->count)
			continue;
		if (i != have)
			file_io(d, "found", have = i, &found, false);
		asked += 10;
		for (uint32_t j = 0; j < 10; j++)
			for (uint32_t l = 0; l < 10; l++)
				hits += (uint32_t) found[(size_t) (sample->rows[s] % d->size) * K + j] >> 1 ==
					sample->truth[s * sample->k + l];
	}
	return (double) hits / (double) asked;
}

void
ggm_disk(void)
{
	char		folder[] = "gpugraph-shards.XXXXXX";
	drawn_set	set;
	row_sample sample;
	gg_cuda_stream stream;
	disk		d = {};

	papers_begin("GNND section 5: shards on disk, merged in pairs", 4000000, false, &set);
	papers_sample(&set, &sample);
	must(stream.create());
	if (mkdtemp(folder) == NULL)
		fail("%s: %s", folder, strerror(errno));
	d = {folder, papers.tiny ? 3u : 8u, 0, set.dim};
	d.size = set.n / d.count;
	for (uint32_t i = 0; i < d.count; i++)
	{
		const float *begin = set.host_rows.data() + (size_t) i * d.size * set.dim;
		std::vector<float> rows(begin, begin + (size_t) d.size * set.dim);

		file_io(&d, "rows", i, &rows, true);
	}
	/* from here on the device has two shards at most, and the host four */
	set.rows.release();
	std::vector<float>().swap(set.host_rows);

	const double begin = now_s();

	lists_on_disk(&set, &d, stream.get());

	const double merging = now_s();

	merge_on_disk(&set, &d, stream.get());

	const double end = now_s();

	papers_head("k-NN lists | seconds | rows/s | recall@10");
	printf("| %u shards of %u in files, all pairs merged | %.2f (shards %.2f, merges %.2f) | "
		   "%.0f | %.4f |\n\n", d.count, d.size, end - begin, merging - begin, end - merging,
		   (double) d.size * d.count / (end - begin), disk_recall(&d, &sample));
	for (uint32_t i = 0; i < d.count; i++)
		for (const char *what : {"rows", "lists", "found"})
			remove((d.folder + "/" + what + std::to_string(i)).c_str());
	remove(folder);
	papers_compare("reading and writing are hidden behind the merges: 2,888 s for DEEP100M",
				   "as above; files are in the directory that the bench runs in");
}
