/*
 * cagra.cu
 *		Figures of Ootomo et al.: "CAGRA: Highly Parallel Graph Construction and Approximate Nearest
 *		Neighbor Search for GPUs", 2023.
 */
#include "papers.h"

#include "../../../../kernels/search/pivots.h"
#include "../../../../kernels/search/search_multi.h"
#include "../../../../kernels/serve/index.cuh"

#include <thread>

#define DEGREE 32u

/* ---- figure 3 ---------------------------------------------------------------- */

/* What the paper looks at in a graph. */
typedef struct graph_shape
{
	double		two_hop;		/* nodes within two steps, mean */
	uint32_t	components;		/* strongly connected */
	double		largest;		/* share of the nodes in the largest of them */
} graph_shape;

/* Mean number of nodes within two steps of up to 20,000 nodes. */
static double
count_two_hop(const uint32_t *graph, uint32_t n, uint32_t degree)
{
	const uint32_t sample = std::min(n, 20000u);
	std::vector<uint32_t> seen(n, 0);
	uint64_t	total = 0;

	for (uint32_t s = 1; s <= sample; s++)
	{
		const uint32_t node = (uint32_t) ((uint64_t) (s - 1) * n / sample);
		auto		visit = [&](uint32_t id)
		{
			if (id < n && id != node && seen[id] != s)
			{
				seen[id] = s;
				total++;
			}
		};

		for (uint32_t i = 0; i < degree; i++)
		{
			const uint32_t near = graph[(size_t) node * degree + i];

			visit(near);
			for (uint32_t j = 0; near < n && j < degree; j++)
				visit(graph[(size_t) near * degree + j]);
		}
	}
	return (double) total / sample;
}

/* Tarjan's algorithm with a stack of its own. */
class tarjan
{
public:
	const uint32_t *graph;
	uint32_t	n;
	uint32_t	degree;
	std::vector<uint32_t> number;	/* order of discovery, from 1; 0: not found yet */
	std::vector<uint32_t> low;	/* n + 1: in a component that is done */
	std::vector<uint16_t> next;	/* edge to look at */
	std::vector<uint32_t> path;
	std::vector<uint32_t> open;	/* nodes of components that are not done */
	uint32_t	found;
	uint32_t	components;
	uint32_t	largest;

	void
	enter(uint32_t node)
	{
		number[node] = low[node] = ++found;
		path.push_back(node);
		open.push_back(node);
	}

	/* The component whose first node this is. */
	void
	close(uint32_t node)
	{
		uint32_t	size = 0;
		uint32_t	member;

		do
		{
			member = open.back();
			open.pop_back();
			low[member] = n + 1;
			size++;
		} while (member != node);
		components++;
		largest = std::max(largest, size);
	}

	void
	walk_from(uint32_t root)
	{
		enter(root);
		while (!path.empty())
		{
			const uint32_t node = path.back();

			if (next[node] < degree)
			{
				const uint32_t to = graph[(size_t) node * degree + next[node]++];

				if (to >= n)
					continue;
				if (number[to] == 0)
					enter(to);
				else if (low[to] <= n)
					low[node] = std::min(low[node], number[to]);
				continue;
			}
			path.pop_back();
			if (low[node] == number[node])
				close(node);
			if (!path.empty() && low[node] <= n)
				low[path.back()] = std::min(low[path.back()], low[node]);
		}
	}
};

static graph_shape
shape_of(const uint32_t *graph, uint32_t n, uint32_t degree)
{
	tarjan		t = {};

	t.graph = graph;
	t.n = n;
	t.degree = degree;
	t.number.resize(n);
	t.low.resize(n);
	t.next.resize(n);
	for (uint32_t root = 0; root < n; root++)
		if (t.number[root] == 0)
			t.walk_from(root);
	return {count_two_hop(graph, n, degree), t.components, (double) t.largest / n};
}

/* As the paper merges: half of the list forward edges, half reverse ones, the rest forward. */
static std::vector<uint32_t>
unite_halves(const std::vector<uint32_t> &forward, uint32_t n, uint32_t degree)
{
	std::vector<uint32_t> graph(forward.size(), GG_NO_NODE);
	std::vector<uint32_t> reverse((size_t) n * (degree / 2));
	std::vector<uint16_t> counts(n, 0);

	for (uint32_t rank = 0; rank < degree; rank++)
		for (uint32_t node = 0; node < n; node++)
		{
			const uint32_t to = forward[(size_t) node * degree + rank];

			if (to < n && counts[to] < degree / 2)
				reverse[(size_t) to * (degree / 2) + counts[to]++] = node;
		}
	for (uint32_t node = 0; node < n; node++)
	{
		const uint32_t *own = &forward[(size_t) node * degree];
		const uint32_t *theirs = &reverse[(size_t) node * (degree / 2)];
		uint32_t   *list = &graph[(size_t) node * degree];
		uint32_t	count = 0;
		auto		add = [&](uint32_t id)
		{
			if (count < degree && id < n && std::find(list, list + count, id) == list + count)
				list[count++] = id;
		};

		for (uint32_t i = 0; i < degree / 2; i++)
		{
			add(own[i]);
			if (i < counts[node])
				add(theirs[i]);
		}
		for (uint32_t i = degree / 2; i < degree; i++)
			add(own[i]);
	}
	return graph;
}

/* The first `degree` of each list. */
static std::vector<uint32_t>
first_of(const std::vector<uint32_t> &lists, uint32_t n, uint32_t k, uint32_t degree)
{
	std::vector<uint32_t> out((size_t) n * degree);

	for (uint32_t node = 0; node < n; node++)
		memcpy(&out[(size_t) node * degree], &lists[(size_t) node * k], degree * 4);
	return out;
}

static std::vector<uint32_t>
fetch(const uint32_t *from, uint64_t count, cudaStream_t stream)
{
	std::vector<uint32_t> out(count);

	must(gg_cuda_copy_out(out.data(), from, count * 4, stream, NULL));
	return out;
}

/* A graph of the figure, and what it looks like. */
typedef struct shaped
{
	const char *name;
	std::vector<uint32_t> graph;
	graph_shape shape;
} shaped;

/* A thread for each: a million nodes take some seconds. */
static void
print_shapes(std::vector<shaped> &graphs, uint32_t n)
{
	std::vector<std::thread> threads;

	for (shaped &one : graphs)
		threads.emplace_back([&one, n]() { one.shape = shape_of(one.graph.data(), n, DEGREE); });
	for (std::thread &thread : threads)
		thread.join();
	papers_head("degree 32 of k-NN lists of 96 | 2-hop count | of the most, 1,056 | "
				"strong components | nodes in the largest");
	for (const shaped &one : graphs)
		printf("| %s | %.1f | %.1f%% | %u | %.3f%% |\n", one.name, one.shape.two_hop,
			   100.0 * one.shape.two_hop / (DEGREE + DEGREE * DEGREE), one.shape.components,
			   100.0 * one.shape.largest);
}

/* Lists of k, and room for the edges that are chosen from them, before and after reverse ones. */
static void
make_lists(const drawn_set *set, uint32_t k, uint32_t degree, cudaStream_t stream,
		   papers_lists *lists, gg_cuda_buffer<uint32_t> &forward,
		   gg_cuda_buffer<uint32_t> &united)
{
	const gg_build_params params = params_of(degree, k);

	papers_lists_make(set, &params, stream, lists);
	must(forward.allocate((uint64_t) set->n * degree));
	must(united.allocate((uint64_t) set->n * degree));
}

void
cagra_3(void)
{
	drawn_set	set;
	papers_lists lists;
	gg_cuda_stream stream;
	gg_cuda_buffer<uint32_t> forward;
	gg_cuda_buffer<uint32_t> united;
	owned_graph graph;
	uint32_t	repaired;

	papers_begin("CAGRA figure 3: 2-hop node counts and strong components", 1000000, true, &set);
	must(stream.create());
	make_lists(&set, 3 * DEGREE, DEGREE, stream.get(), &lists, forward, united);
	must(papers_reorder(lists.ids.get(), NULL, set.n, lists.k, DEGREE, stream.get(),
						forward.get()));

	const std::vector<uint32_t> nearest =
		first_of(fetch(lists.ids.get(), (uint64_t) set.n * lists.k, stream.get()), set.n, lists.k,
				 DEGREE);
	const std::vector<uint32_t> pruned = fetch(forward.get(), (uint64_t) set.n * DEGREE,
											   stream.get());

	must(gg_cuda_unite_device(forward.get(), set.n, DEGREE, DEGREE, {stream.get(), NULL, NULL},
							  united.get()));
	papers_graph_make(&lists, united.get(), DEGREE, stream.get(), &graph, &repaired);

	std::vector<shaped> graphs = {
		{"nearest 32 of the k-NN list", nearest, {}},
		{"reverse edges alone", unite_halves(nearest, set.n, DEGREE), {}},
		{"reordering alone", pruned, {}},
		{"both, half and half as in the paper", unite_halves(pruned, set.n, DEGREE), {}},
		{"both, interleaved (ours)",
		fetch(united.get(), (uint64_t) set.n * DEGREE, stream.get()), {}},
		{"ours with reachability made",
		std::vector<uint32_t>(graph.adjacency, graph.adjacency + (size_t) set.n * DEGREE), {}}};

	print_shapes(graphs, set.n);
	printf("\n");
	papers_compare("both add to the 2-hop count, reordering more than reverse edges; these take "
				   "most strong components away", "see the table; %u links were put in to make all "
				   "reachable from %u pivots", repaired, graph.npivots);
}

/* Recall and rate of CAGRA's search of a graph, as a row of a table. */
static papers_curve
graph_row(const drawn_set *set, const gg_graph *graph, const char *plot, const char *name)
{
	const papers_curve curve = papers_search_curve(open_index(set->dataset(), graph), set,
												   GG_SEARCH_AUTO, 10000, 10);

	papers_curve_row(plot, name, curve);
	return curve;
}

/* ---- two departures ---------------------------------------------------------- */

/*
 * What the engine does in another way than the paper, by search: reverse edges half and half, and
 * random nodes to start from.  Those are the first pivots, which are random nodes: as many as one
 * parent has edges, as 8 parents have, and all.
 */
void
cagra_departures(void)
{
	drawn_set	set;
	papers_lists lists;
	gg_cuda_stream stream;
	gg_cuda_buffer<uint32_t> forward;
	gg_cuda_buffer<uint32_t> united;
	papers_curve curves[2];

	papers_begin("CAGRA sections III-B2 and IV-A: reverse edges half and half, random entry",
				 1000000, true, &set);
	must(stream.create());
	make_lists(&set, 2 * DEGREE, DEGREE, stream.get(), &lists, forward, united);
	must(papers_reorder(lists.ids.get(), NULL, set.n, lists.k, DEGREE, stream.get(),
						forward.get()));
	papers_curve_head();
	for (int ours = 0; ours < 2; ours++)
	{
		owned_graph graph;
		uint32_t	repaired;

		if (ours)
			must(gg_cuda_unite_device(forward.get(), set.n, DEGREE, DEGREE,
									  {stream.get(), NULL, NULL}, united.get()));
		else
		{
			const std::vector<uint32_t> halves =
				unite_halves(fetch(forward.get(), (uint64_t) set.n * DEGREE, stream.get()), set.n,
							 DEGREE);

			must(gg_cuda_copy_in(united.get(), halves.data(), united.bytes(), stream.get(), NULL));
		}
		papers_graph_make(&lists, united.get(), DEGREE, stream.get(), &graph, &repaired);
		curves[ours] = graph_row(&set, &graph, "batch 10,000",
								 ours ? "interleaved (ours)" : "half and half");
		for (uint32_t pivots : {8 * DEGREE, DEGREE})
		{
			gg_graph	few = graph;

			if (!ours || pivots >= graph.npivots)
				continue;
			few.npivots = pivots;
			for (uint32_t i = 0; i < pivots * GG_PIVOT_DEGREE; i++)
				few.pivot_adjacency[i] %= pivots;
			(void) graph_row(&set, &few, "batch 10,000",
							 (std::to_string(pivots) + " random nodes to start from").c_str());
		}
	}
	printf("\n");
	papers_ratios("interleaved", curves[1], "half and half", curves[0]);
}

/* ---- figures 4 and 5 ---------------------------------------------------------- */

/* Best seconds of reordering, without reverse edges and with them, by rank and by distance. */
static void
time_reorder(const drawn_set *set, const papers_lists *lists, uint32_t degree,
			 cudaStream_t stream, uint32_t *forward, uint32_t *united, double (&seconds)[2][2])
{
	for (int by = 0; by < 2; by++)
		for (int with = 0; with < 2; with++)
			seconds[by][with] = papers_best([&]()
			{
				must(papers_reorder(lists->ids.get(), by == 1 ? lists->distances.get() : NULL,
									set->n, lists->k, degree, stream, forward));
				if (with)
					must(gg_cuda_unite_device(forward, set->n, degree, degree,
											  {stream, NULL, NULL}, united));
			});
}

/* Searches of the graphs that reordering the lists by rank and by distance makes. */
static void
compare_reordered(const drawn_set *set, const papers_lists *lists, cudaStream_t stream,
				  uint32_t *forward, uint32_t *united)
{
	static const char *const names[] = {"by rank", "by distance"};
	papers_curve curves[2];

	papers_curve_head();
	for (int by = 0; by < 2; by++)
	{
		owned_graph graph;
		uint32_t	repaired;

		must(papers_reorder(lists->ids.get(), by == 1 ? lists->distances.get() : NULL, set->n,
							lists->k, DEGREE, stream, forward));
		must(gg_cuda_unite_device(forward, set->n, DEGREE, DEGREE, {stream, NULL, NULL}, united));
		papers_graph_make(lists, united, DEGREE, stream, &graph, &repaired);
		curves[by] = graph_row(set, &graph, "by rank or distance", names[by]);
	}
	printf("\n");
	papers_compare("recall and throughput are almost the same", "batch 10,000, recall@10:");
	papers_ratios(names[0], curves[0], names[1], curves[1]);
}

void
cagra_4(void)
{
	static const uint32_t shapes[][2] = {{2 * DEGREE, 4 * DEGREE}, {DEGREE, 2 * DEGREE},
	{DEGREE, 3 * DEGREE}};
	drawn_set	set;
	gg_cuda_stream stream;
	double		least = INFINITY;
	double		most = 0;

	papers_begin("CAGRA figures 4 and 5: reordering by rank and by distance",
				 strcmp(papers.set, "s960") == 0 ? 300000 : 1000000, true, &set);
	must(stream.create());
	papers_head("degree | of lists of | by rank, ms | by distance | with reverse edges, by rank | "
				"by distance | by rank is as fast, times | the table of distances, GB");
	for (const uint32_t (&shape)[2] : shapes)
	{
		papers_lists lists;
		gg_cuda_buffer<uint32_t> forward;
		gg_cuda_buffer<uint32_t> united;
		double		seconds[2][2];

		make_lists(&set, shape[1], shape[0], stream.get(), &lists, forward, united);
		time_reorder(&set, &lists, shape[0], stream.get(), forward.get(), united.get(), seconds);
		printf("| %u | %u | %.2f | %.2f | %.2f | %.2f | %.2f, %.2f | %.2f |\n", shape[0], shape[1],
			   seconds[0][0] * 1e3, seconds[1][0] * 1e3, seconds[0][1] * 1e3,
			   seconds[1][1] * 1e3, seconds[1][0] / seconds[0][0], seconds[1][1] / seconds[0][1],
			   (double) lists.distances.bytes() / 1e9);
		fflush(stdout);
		least = std::min(least, seconds[1][0] / seconds[0][0]);
		most = std::max(most, seconds[1][0] / seconds[0][0]);
		if (shape[1] == 3 * DEGREE)
			compare_reordered(&set, &lists, stream.get(), forward.get(), united.get());
	}
	printf("\n");
	papers_compare("by rank is up to 1.9x as fast, and by distance runs out of memory at 100M rows",
				   "%.2fx to %.2fx, the table of distances at hand", least, most);
}

/* ---- figure 8 ------------------------------------------------------------------ */

extern cudaError_t papers_team_launch(uint32_t team, const search_view *view,
									  const search_launch *launch, const search_device *device,
									  cudaStream_t stream);

/* visited.cu */
extern size_t papers_visited_bytes(uint32_t itopk, uint32_t nq);
extern cudaError_t papers_visited_launch(const search_view *view, const search_launch *launch,
										 const search_device *device, cudaStream_t stream);
extern size_t papers_lists_bytes(const search_view *view, const search_launch *launch,
								 uint32_t ctas);
extern cudaError_t papers_lists_launch(const search_view *view, const search_launch *launch,
									   const search_device *device, uint32_t ctas, char *work,
									   cudaStream_t stream);

#define THE_ENGINE 1			/* no size of a team: the engine's choice */
#define DEVICE_SET 34			/* one warp, with a visited set in device memory */
#define A_BLOCK 33				/* four warps a query, as rows of over 384 dimensions had before */

typedef struct team_kernel
{
	const char *name;
	uint32_t	team;			/* lanes; 0: tensor cores, by one warp; or as above */
} team_kernel;

static const team_kernel team_kernels[] = {
	{"engine", THE_ENGINE},
	{"tensor cores, one warp", 0},
	{"teams of 2", 2},
	{"teams of 4", 4},
	{"teams of 8", 8},
	{"teams of 16", 16},
	{"teams of 32", 32},
	{"tensor cores, a block of four warps", A_BLOCK},
};

/* What a search takes beside the index. */
class team_memory
{
public:
	gg_cuda_buffer<__half> halves;
	gg_cuda_buffer<float> factors;
	gg_cuda_buffer<uint64_t> entries;
	gg_cuda_buffer<uint64_t> keys;
	gg_cuda_buffer<char> visited;
	uint32_t	slices;

	void
	take(const gg_index *index, uint32_t nq, uint32_t k)
	{
		slices = search_pivots_slices(&index->view, nq, 1, index->device.sms);
		must(halves.allocate((uint64_t) nq * index->view.walk_pad));
		must(factors.allocate(nq));
		must(entries.allocate((uint64_t) nq * slices * ENTRY_NODES));
		must(keys.allocate((uint64_t) nq * k));
	}
};

/* As search_queue() of index.cu, for single-CTA search. */
static papers_point
team_search(const gg_index *index, const drawn_set *set, const team_kernel *kernel,
			uint32_t width, uint32_t k)
{
	const uint32_t count = papers_queries(set, 10000);
	search_launch launch = {};
	team_memory memory;
	double		seconds;

	memory.take(index, count, k);
	launch.queries = set->queries.get();
	launch.nq = count;
	launch.params.k = k;
	launch.params.itopk_size = width;
	launch.params.rerank = search_rerank_size(width, k);
	launch.params.search_width = search_width_for(0, width, index->view.degree);
	launch.keys = memory.keys.get();
	launch.entries = memory.entries.get();
	launch.nentries = memory.slices * ENTRY_NODES;
	if (kernel->team == DEVICE_SET)
	{
		must(memory.visited.allocate(papers_visited_bytes(width, count)));
		launch.mail = memory.visited.get();
	}

	const pivot_search search = {
		.queries = launch.queries,
		.nq = count,
		.slices = memory.slices,
		.halves = memory.halves.get(),
		.factors = memory.factors.get(),
		.entries = memory.entries.get(),
	};

	seconds = papers_best([&]()
	{
		MUST(search_pivots_launch(&index->view, &search, &index->device, NULL));
		if (kernel->team == A_BLOCK)
			MUST(search_multi_launch(&index->view, &launch, NULL, &index->device, 1, NULL));
		else if (kernel->team == DEVICE_SET)
			MUST(papers_visited_launch(&index->view, &launch, &index->device, NULL));
		else
			MUST(papers_team_launch(kernel->team, &index->view, &launch, &index->device, NULL));
		MUST(cudaDeviceSynchronize());
	});
	return papers_point_of(set, width, memory.keys.get(), count, k, seconds);
}

void
cagra_8(void)
{
	drawn_set	set;
	owned_graph graph;
	const open_index index = papers_default_index("CAGRA figure 8: team sizes",
												  strcmp(papers.set, "s960") == 0 ? 500000 :
												  1000000, DEGREE, &set, &graph);
	std::vector<papers_curve> curves;
	size_t		best = 2;

	papers_curve_head();
	for (const team_kernel &kernel : team_kernels)
	{
		papers_curve curve;

		for (uint32_t width : papers_widths())
			if (width >= 10 && (width <= 256 || set.dim > 384))
				curve.push_back(kernel.team == THE_ENGINE ?
								papers_search(index, &set, GG_SEARCH_SINGLE_CTA, 10000, width, 10) :
								team_search(index, &set, &kernel, width, 10));
		papers_curve_row("single-CTA search, batch 10,000", kernel.name, curve);
		curves.push_back(curve);
	}
	for (size_t i = 3; i < 7; i++)
		if (papers_qps_at(curves[i], 0.95) > papers_qps_at(curves[best], 0.95))
			best = i;
	printf("\n");
	papers_compare("96 dimensions: teams of 4 or 8 are best; 960: of 32",
				   "%s, at recall 0.95 (fp16 rows)", team_kernels[best].name);
	papers_ratios("the tensor cores, one warp a query as here,", curves[1],
				  team_kernels[best].name, curves[best]);
	papers_ratios("the engine", curves[0], team_kernels[best].name, curves[best]);
	papers_ratios("the engine", curves[0], team_kernels[7].name, curves[7]);
}

/* ---- figure 9 ------------------------------------------------------------------ */

void
cagra_9(void)
{
	static const team_kernel kernels[] = {
		{"emptied when it is full, in shared memory", 0},
		{"never emptied, in device memory", DEVICE_SET},
	};
	drawn_set	set;
	owned_graph graph;
	const open_index index =
		papers_default_index("CAGRA figure 9: the visited set of single-CTA search", 1000000,
							 DEGREE, &set, &graph);
	papers_curve curves[2];

	papers_curve_head();
	for (int i = 0; i < 2; i++)
	{
		for (uint32_t width : papers_widths())
			curves[i].push_back(team_search(index, &set, &kernels[i], width, 10));
		papers_curve_row("one warp a query, batch 10,000", kernels[i].name, curves[i]);
	}
	printf("\n");
	papers_compare("the forgettable set is as fast or faster, less so on GloVe", "as follows");
	papers_ratios(kernels[0].name, curves[0], kernels[1].name, curves[1]);
}

/* ---- section IV-C2 --------------------------------------------------------------- */

/* Pivots, which are random nodes, as entries of count queries. */
static void
make_random_entries(const gg_graph *graph, uint32_t count, uint32_t each,
					gg_cuda_buffer<uint64_t> *out)
{
	std::vector<uint64_t> entries((size_t) count * each);

	for (uint32_t query = 0; query < count; query++)
		for (uint32_t i = 0; i < each; i++)
			entries[(size_t) query * each + i] = (uint64_t) i << 32 |
				(uint64_t) graph->pivots[(query * 7919 + i) % graph->npivots] << 1;
	must(out->allocate(entries.size()));
	must(gg_cuda_copy_in(out->get(), entries.data(), out->bytes(), NULL, NULL));
}

/* `ctas` lists of 32 per query. */
static papers_point
lists_search(const gg_index *index, const drawn_set *set, const gg_graph *graph, uint32_t batch,
			 uint32_t ctas, bool random)
{
	const uint32_t count = papers_queries(set, batch);
	const uint32_t k = 10;
	search_launch launch = {};
	team_memory memory;
	gg_cuda_buffer<uint64_t> entries;	/* random ones: count x ctas x ENTRY_NODES */
	gg_cuda_buffer<char> work;
	double		seconds;

	memory.take(index, count, k);
	if (random)
		make_random_entries(graph, count, ctas * ENTRY_NODES, &entries);
	launch.nq = batch;
	launch.params.k = k;
	launch.params.itopk_size = 32;
	launch.nentries = random ? ctas * ENTRY_NODES : memory.slices * ENTRY_NODES;
	must(work.allocate(papers_lists_bytes(&index->view, &launch, ctas)));
	seconds = papers_best([&]()
	{
		for (uint32_t first = 0; first < count; first += batch)
		{
			const pivot_search search = {
				.queries = set->queries.get() + (size_t) first * set->dim,
				.nq = batch,
				.slices = memory.slices,
				.halves = memory.halves.get(),
				.factors = memory.factors.get(),
				.entries = memory.entries.get(),
			};

			launch.queries = search.queries;
			launch.keys = memory.keys.get() + (size_t) first * k;
			launch.entries = random ? entries.get() + (size_t) first * launch.nentries :
				search.entries;
			if (!random)
				MUST(search_pivots_launch(&index->view, &search, &index->device, NULL));
			MUST(papers_lists_launch(&index->view, &launch, &index->device, ctas, work.get(),
									 NULL));
		}
		MUST(cudaDeviceSynchronize());
	});
	return papers_point_of(set, ctas * 32, memory.keys.get(), count, k, seconds);
}

void
cagra_lists(void)
{
	drawn_set	set;
	owned_graph graph;
	const open_index index =
		papers_default_index("CAGRA section IV-C2: multi-CTA search with a list per CTA", 1000000,
							 DEGREE, &set, &graph);

	for (uint32_t batch : {1u, 10u, 100u})
	{
		const std::string name = "batch " + std::to_string(batch);
		papers_curve ours;
		papers_curve theirs[2];

		if (batch > set.nq)
			continue;
		printf("\nBatch %u:\n", batch);
		papers_curve_head();
		ours = papers_search_curve(index, &set, GG_SEARCH_MULTI_CTA, batch, 10);
		papers_curve_row(name.c_str(), "one list (ours)", ours);
		for (int random = 0; random < 2; random++)
		{
			for (uint32_t ctas : {1u, 2u, 4u, 8u, 16u, 32u, 64u})
				if (!papers.tiny || ctas == 2)
					theirs[random].push_back(lists_search(index, &set, &graph, batch, ctas,
														  random == 1));
			papers_curve_row(name.c_str(), random ? "lists of 32, random entry" :
							 "lists of 32, entries shared out", theirs[random]);
		}
		printf("\n");
		papers_ratios("one list", ours, "lists of 32, entries shared out", theirs[0]);
		papers_ratios("one list", ours, "lists of 32, random entry", theirs[1]);
	}
}

/* ---- figure 10 ------------------------------------------------------------------- */

void
cagra_10(void)
{
	drawn_set	set;
	owned_graph graph;
	const open_index index =
		papers_default_index("CAGRA figure 10: single-CTA and multi-CTA search", 1000000, DEGREE,
							 &set, &graph);

	for (uint32_t batch : {1u, 10u, 100u, 1000u, 10000u})
	{
		papers_curve single;
		papers_curve multi;

		if (batch > set.nq)
			continue;
		printf("\nBatch %u:\n", batch);
		papers_curve_head();
		single = papers_search_curve(index, &set, GG_SEARCH_SINGLE_CTA, batch, 10);
		multi = papers_search_curve(index, &set, GG_SEARCH_MULTI_CTA, batch, 10);
		papers_curve_row(("batch " + std::to_string(batch)).c_str(), "single-CTA", single);
		papers_curve_row(("batch " + std::to_string(batch)).c_str(), "multi-CTA", multi);
		printf("\n");
		papers_ratios("multi-CTA", multi, "single-CTA", single);
	}
	printf("\n");
	papers_compare("one query: multi-CTA is faster; 10,000: single-CTA, but on GloVe not at the "
				   "highest recall", "as above");
}
