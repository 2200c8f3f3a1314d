/*
 * bench.cu
 *		Benches of the CUDA engine, without a server; and what they share (bench.h).
 *
 * usage: bench PART ...
 *	build, search, serve		the head of the part's file, bench_PART.cu, has its arguments
 *	papers						papers/main.cu has them
 */
#include "bench.h"

#include "draw.cuh"
#include "mode.h"
#include "../../../kernels/search/pivots.h"
#include "../../../kernels/serve/index.cuh"

#include <stdarg.h>
#include <time.h>

void
must(gg_status status)
{
	if (status.code != GG_OK)
		fail("%s: %s", status.where, status.message);
}

void
fail(const char *format, ...)
{
	va_list		args;

	fprintf(stderr, "bench: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	exit(1);
}

double
now_s(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double) time.tv_sec + (double) time.tv_nsec * 1e-9;
}

double
percentile(std::vector<double> &times, double share)
{
	std::sort(times.begin(), times.end());
	return times[(size_t) (share * (double) (times.size() - 1))];
}

gg_metric
metric_named(const char *name)
{
	return name[0] == 'i' ? GG_METRIC_IP : name[0] == 'c' ? GG_METRIC_COSINE :
		strcmp(name, "l1") == 0 ? GG_METRIC_L1 : GG_METRIC_L2;
}

gg_build_params
params_of(uint32_t degree, uint32_t lists)
{
	gg_build_params params = {};

	params.graph_degree = degree;
	params.intermediate_graph_degree = lists;
	params.seed = 1;
	return params;
}

std::vector<uint32_t>
packed_pivots(const gg_graph *graph)
{
	const size_t words = 1 + GG_PIVOT_DEGREE;
	std::vector<uint32_t> out(graph->npivots * words, 0);

	for (uint32_t i = 0; i < graph->npivots; i++)
	{
		out[i * words] = graph->pivots[i];
		if (graph->pivot_adjacency != NULL)
			memcpy(&out[i * words + 1], graph->pivot_adjacency + (size_t) i * GG_PIVOT_DEGREE,
				   GG_PIVOT_DEGREE * 4);
	}
	return out;
}

/* ---- sets ------------------------------------------------------------------ */

typedef struct known_set
{
	const char *name;
	const char *like;
	uint32_t	n;				/* unless a figure of the papers has its own */
	gg_metric	metric;
	draw_from	from;
	long		query_seed;		/* queries of another distribution than rows */
} known_set;

static const known_set known_sets[] = {
	{"d1", "", 1000000, GG_METRIC_L2, {128, 16, 200, false, DRAW_SEED}, DRAW_SEED},
	{"d2", "", 1000000, GG_METRIC_COSINE, {768, 22, 500, true, DRAW_SEED}, DRAW_SEED},
	{"d3", "", 10000000, GG_METRIC_L2, {96, 15, 1000, false, DRAW_SEED}, DRAW_SEED},
	{"d4", "", 1000000, GG_METRIC_COSINE, {100, 22, 200, true, DRAW_SEED}, DRAW_SEED},
	{"s128", "SIFT1M: 128 d, LID 15.6", 1000000, GG_METRIC_L2,
	{128, 32, 200, false, DRAW_SEED}, DRAW_SEED},
	{"u128", "rows without clusters", 1000000, GG_METRIC_L2,
	{128, 20, 1, false, DRAW_SEED}, DRAW_SEED},
	{"s96", "DEEP1M: 96 d, LID 15.9", 1000000, GG_METRIC_L2,
	{96, 34, 200, false, DRAW_SEED}, DRAW_SEED},
	{"s960", "GIST1M: 960 d, LID 25.9", 1000000, GG_METRIC_L2,
	{960, 76, 200, false, DRAW_SEED}, DRAW_SEED},
	{"s100", "GloVe: 100 d, cosine, LID 29.4", 1000000, GG_METRIC_COSINE,
	{100, 128, 110, true, DRAW_SEED}, DRAW_SEED},
	{"s768", "embeddings: 768 d, cosine", 1000000, GG_METRIC_COSINE,
	{768, 64, 500, true, DRAW_SEED}, DRAW_SEED},
	{"s200", "Text-to-Image: 200 d, inner product, LID 20.9, queries of another distribution",
	1000000, GG_METRIC_IP, {200, 24, 200, false, DRAW_SEED}, 11}
};

/* One of these, or N,DIM,LATENT,CLUSTERS[,l2|cos]. */
static known_set
find_set(const char *name)
{
	known_set	set = {name, "", 0, GG_METRIC_L2, {0, 0, 0, false, DRAW_SEED}, DRAW_SEED};
	char		metric[8] = "l2";

	for (const known_set &one : known_sets)
		if (strcmp(one.name, name) == 0)
			return one;
	if (sscanf(name, "%u,%u,%u,%u,%7s", &set.n, &set.from.dim, &set.from.latent,
			   &set.from.clusters, metric) < 4 || set.from.dim % 4 != 0 || set.from.latent > 128)
		fail("there is no set %s", name);
	set.metric = metric_named(metric);
	set.from.unit = set.metric == GG_METRIC_COSINE;
	return set;
}

static double
squared_length(const float *row, uint32_t dim)
{
	double		sum = 0.0;

	for (uint32_t d = 0; d < dim; d++)
		sum += (double) row[d] * row[d];
	return sum;
}

/*
 * The mean of the maximum-likelihood estimates of LID from the distances of count x k neighbours,
 * which become Euclidean ones first; under inner product after the MIPS reduction.
 */
static double
estimate_lid(const drawn_set *set, const std::vector<float> &queries,
			 const std::vector<float> &distances, uint32_t k)
{
	const bool	product = set->metric == GG_METRIC_IP;
	const double factor = product ? 2.0 : 1.0;
	const size_t count = distances.size() / k;
	double		longest = 0.0;
	double		lid = 0.0;

	for (uint32_t i = 0; product && i < set->n; i++)
		longest = std::max(longest, squared_length(&set->host_rows[(size_t) i * set->dim],
												   set->dim));
	for (size_t q = 0; q < count; q++)
	{
		const float *found = &distances[q * k];
		const double add = product ? longest + squared_length(&queries[q * set->dim], set->dim) :
			0.0;
		const double last = add + factor * found[k - 1];
		double		logs = 0.0;

		for (uint32_t i = 0; i + 1 < k; i++)
			logs += 0.5 * log(std::max(add + factor * found[i], 1e-30) / last);
		lid -= (k - 1) / logs / (double) count;
	}
	return lid;
}

/* The k nearest rows of each query, by comparing all. */
static void
find_exact(const drawn_set *set, const std::vector<float> &queries, uint32_t k,
		   std::vector<uint32_t> *nodes, std::vector<float> *distances)
{
	const uint32_t count = (uint32_t) (queries.size() / set->dim);
	open_index	index(set->dataset(), NULL);

	nodes->resize((size_t) count * k);
	distances->resize(nodes->size());
	must(harness_exact(&gg_cuda_engine, index, k, NULL, queries.data(), count, NULL,
					   nodes->data(), distances->data()));
}

static std::vector<float>
fetch_rows(const gg_cuda_buffer<float> &from)
{
	std::vector<float> out(from.bytes() / sizeof(float));

	must(gg_cuda_copy_out(out.data(), from.get(), from.bytes(), NULL, NULL));
	return out;
}

void
drawn_set_make(const char *name, uint32_t n, uint32_t nq, bool truth, drawn_set *set)
{
	const known_set known = find_set(name);
	draw_from	from = known.from;

	set->name = name;
	set->like = known.like;
	set->n = n != 0 ? n : known.n;
	set->nq = nq;
	set->dim = from.dim;
	set->metric = known.metric;
	set->lid = 0.0;
	set->rows.release();
	must(draw_rows(from, 0, set->n, &set->rows));
	set->host_rows = fetch_rows(set->rows);
	if (nq > 0)
	{
		from.seed = known.query_seed;
		must(draw_rows(from, set->n, nq, &set->queries));
		set->host_queries = fetch_rows(set->queries);
	}
	if (truth)
	{
		std::vector<float> distances;

		find_exact(set, set->host_queries, TRUTH, &set->truth, &distances);
		set->lid = estimate_lid(set, set->host_queries, distances, TRUTH);
	}
}

void
row_sample_make(const drawn_set *set, uint32_t count, uint32_t k, row_sample *sample)
{
	std::vector<uint32_t> nodes;
	std::vector<float> found;
	std::vector<float> distances;

	*sample = {};
	sample->k = k;
	for (uint32_t i = 0; i < count; i++)
	{
		const uint32_t row = (uint32_t) ((uint64_t) i * set->n / count);
		const float *at = &set->host_rows[(size_t) row * set->dim];

		sample->rows.push_back(row);
		sample->queries.insert(sample->queries.end(), at, at + set->dim);
	}
	find_exact(set, sample->queries, k + 1, &nodes, &found);
	/* the row's own dropped */
	for (size_t i = 0; i < nodes.size(); i++)
		if (nodes[i] != sample->rows[i / (k + 1)] &&
			sample->truth.size() < (i / (k + 1) + 1) * k)
		{
			sample->truth.push_back(nodes[i]);
			distances.push_back(found[i]);
		}
	sample->lid = estimate_lid(set, sample->queries, distances, k);
}

static __global__ void
pick_lists_kernel(const uint32_t *lists, const uint32_t *rows, uint32_t k, uint32_t *out)
{
	for (uint32_t i = threadIdx.x; i < k; i += blockDim.x)
		out[(uint64_t) blockIdx.x * k + i] = lists[(uint64_t) rows[blockIdx.x] * k + i];
}

double
lists_recall(const row_sample *sample, const uint32_t *lists, uint32_t k, uint32_t at,
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

double
keys_recall(const std::vector<uint32_t> &truth, const std::vector<uint64_t> &keys, uint32_t count,
			uint32_t k)
{
	uint64_t	hits = 0;

	for (uint32_t q = 0; q < count; q++)
		for (uint32_t i = 0; i < k; i++)
			for (uint32_t j = 0; j < k; j++)
				hits += key_node(keys[(size_t) q * k + i]) == truth[(size_t) q * TRUTH + j];
	return (double) hits / ((double) count * k);
}

/* ---- walks on the CPU ------------------------------------------------------------ */

typedef struct walk_member
{
	float		distance;
	uint32_t	node;
	bool		expanded;

	bool
	operator<(const walk_member &other) const
	{
		return distance != other.distance ? distance < other.distance : node < other.node;
	}
} walk_member;

/*
 * Steps of one walk, whose query is prepared; the list at its end.  seen: of each node the last
 * walk that did.
 */
static std::vector<walk_member>
log_walk(const gg_dataset *data, const gg_graph *graph, const float *query, uint32_t itopk,
		 uint32_t number, std::vector<uint32_t> &seen, walk_log *log)
{
	const gg_distance_fn distance = gg_distance_function(data->metric, GG_ELEMENT_F32);
	const size_t pivots = std::min(itopk, 1u << search_entry_bits(itopk));
	std::vector<walk_member> list;
	auto		measure = [&](uint32_t node)
	{
		list.push_back({distance((const float *) data->rows + (size_t) node * data->dim, query,
								 data->dim), node, false});
	};

	for (uint32_t i = 0; i < graph->npivots; i++)
		measure(graph->pivots[i]);
	std::sort(list.begin(), list.end());
	list.resize(std::min(list.size(), pivots));
	log->entries += list.size();
	for (const walk_member &entry : list)
		seen[entry.node] = number;
	for (;;)
	{
		std::vector<uint32_t> parents;

		for (walk_member &member : list)
			if (!member.expanded && parents.size() < log->width)
			{
				member.expanded = true;
				parents.push_back(member.node);
			}
		if (parents.empty())
			return list;
		log->expanded += parents.size();
		for (uint32_t parent : parents)
			for (uint32_t i = 0; i < graph->degree; i++)
			{
				const uint32_t node = graph->adjacency[(size_t) parent * graph->degree + i] &
					~GG_EDGE_MARK;

				if (node >= graph->n || seen[node] == number)
					continue;
				seen[node] = number;
				log->ids.push_back(node);
				measure(node);
			}
		parents.resize(log->width, GG_NO_NODE);
		log->parents.insert(log->parents.end(), parents.begin(), parents.end());
		log->first.push_back((uint32_t) log->ids.size());
		std::sort(list.begin(), list.end());
		list.resize(std::min(list.size(), (size_t) itopk));
	}
}

void
log_walks(const gg_dataset *data, const gg_graph *graph, const float *queries, uint32_t nq,
		  uint32_t stride, uint32_t itopk, uint32_t k, walk_log *log)
{
	std::vector<uint32_t> seen(graph->n, 0);

	*log = {};
	log->nq = nq;
	log->width = search_width_for(0, itopk, graph->degree);
	log->nfront = std::min(search_rerank_size(itopk, k), graph->n);
	log->steps.push_back(0);
	log->first.push_back(0);
	for (uint32_t q = 0; q < nq; q++)
	{
		const float *query = queries + (size_t) q * stride * data->dim;
		std::vector<float> prepared(query, query + data->dim);
		std::vector<walk_member> list;

		gg_query_prepare(data->metric, prepared.data(), data->dim);
		list = log_walk(data, graph, prepared.data(), itopk, q + 1, seen, log);
		log->steps.push_back((uint32_t) (log->parents.size() / log->width));
		for (uint32_t i = 0; i < log->nfront; i++)
			log->front.push_back(list[i % list.size()].node);
	}
}

/* ---- parts ------------------------------------------------------------------------- */

int
main(int argc, char **argv)
{
	static const struct
	{
		const char *name;
		int			(*run) (int argc, char **argv);
	}			parts[] = {
		{"build", bench_build},
		{"search", bench_search},
		{"serve", bench_serve},
		{"papers", bench_papers},
	};

	for (const auto &part : parts)
		if (argc > 1 && strcmp(argv[1], part.name) == 0)
		{
			must(gg_cuda_probe(GG_USE_SEARCH));
			print_mode();
			return part.run(argc - 1, argv + 1);
		}
	fprintf(stderr, "usage: bench build|search|serve|papers ...; see the heads of the parts\n");
	return 2;
}
