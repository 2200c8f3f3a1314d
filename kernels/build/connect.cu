/*
 * connect.cu
 *		Pivots, their own graph, and every node made reachable from them.
 *
 * A graph built here is walked by the CPU engine, too, so pivots follow the same rules as in
 * src/engine/cpu/build/connect.c: random rows, more where none is near, all of them shuffled, and a
 * graph over them whose coarse levels share the places of its lists.  Numbers, order and levels are
 * shared code (src/engine/rules/pivots.h), and so is the forest of paths
 * (src/engine/rules/reach.h).  Two things differ:
 *	1. Which rows are drawn.
 *	2. From which node an orphan is linked.  The CPU engine goes by the orphan's k-NN list.  Here
 *	   these lists are on the device, and at 1M rows and k = 64 they are 256 MB; the adjacency is on
 *	   the host anyway.  So an orphan goes by its own adjacency, one step and then two.  A pivot
 *	   that knows nobody outside of its group is linked from the nearest pivot reached.
 *
 * Where each part runs, by its cost for 1M rows and some 6,000 pivots (arithmetic, not measured):
 *	levels		Lists of all pairs and the optimiser on the device: 6,000^2 distances, and a third
 *				of that for the levels above, take less than a millisecond.  CPU threads, of which a
 *				build may have one, would take some 0.1 s at 128 dimensions and 0.5 s at 768.
 *				Interleaving the levels' lists is 1,500 times 16 places: host.
 *	search		Device, one warp per node of the frontier.  A node's parent is the lowest of the
 *				nodes that reached it first, whatever the order of arrival.
 *	orphans		Host: mostly there are none, else small groups of near copies.
 *
 * Oracle: invariants of gg_graph, and recall of CPU walks over the result (test_cuda_build.c).
 */
#include "../../src/engine/rules/pivots.h"
#include "../../src/engine/rules/reach.h"
#include "../graph/list.cuh"

#include <algorithm>
#include <stdlib.h>
#include <vector>

/* Nodes of the frontier that one launch expands: 32M edges, some 10 ms when the lists are cold. */
#define EXPAND_NODES ((uint64_t) 1 << 20)

/* ---- host: linking what was not reached -------------------------------------- */

/* A gg_reach that frees itself. */
class host_reach
{
public:
	gg_reach	reach;
	const gg_control *control;

	host_reach() : reach(), control(NULL)
	{
	}
	~host_reach()
	{
		gg_reach_free(&reach);
	}
	host_reach(const host_reach &) = delete;
	host_reach &operator=(const host_reach &) = delete;

	gg_status
	create(const gg_control *wanted, uint32_t *adjacency, uint32_t n, uint32_t degree)
	{
		control = wanted;
		return gg_reach_create(&reach, "gg_cuda_connect", adjacency, n, degree, stop, this);
	}

	/* After work on the host: GG_ECANCELED if it was stopped, or is to stop. */
	gg_status
	status(const char *where) const
	{
		if (reach.stopped)
			return gg_fail(GG_ECANCELED, where, "canceled");
		return gg_cuda_check_cancel(control, where);
	}

private:
	static bool
	stop(void *ctx)
	{
		return gg_cuda_check_cancel(((const host_reach *) ctx)->control, __func__).code != GG_OK;
	}
};

/* Search on from the roots, then link what can be linked by the nodes' own lists. */
static gg_status
reach_by_list(host_reach *on, const char *where)
{
	gg_reach_spread(&on->reach);
	if (!gg_reach_link_all(&on->reach, gg_reach_link_by_list, NULL))
		return gg_fail(GG_ENOMEM, where, "out of memory to connect %u nodes", on->reach.n);
	return on->status(where);
}

/* Nearest reached nodes that are kept of each orphan. */
#define NEAR_ANCHORS 32u

/* Fill nearest: keys of each left orphan's nearest anchors; their ids are places in the queue. */
static gg_status
find_anchors(const gg_reach *reach, uint32_t nanchors, const gg_cuda_rows *rows,
			 const gg_cuda_run &run, std::vector<uint64_t> &nearest)
{
	gg_cuda_buffer<uint32_t> ids;
	gg_cuda_buffer<uint64_t> lists;
	gg_cuda_working_copy from;
	gg_cuda_working_copy to;

	GG_TRY(ids.allocate(std::max(reach->nleft, nanchors), run.meter));
	GG_TRY(gg_cuda_copy_in(ids.get(), reach->left, (uint64_t) reach->nleft * 4, run.stream,
						   run.control));
	GG_TRY(gg_cuda_working_copy_gather(rows, ids.get(), reach->nleft, run.stream, run.meter,
									   &from));
	GG_CUDA_TRY(cudaStreamSynchronize(run.stream));
	GG_TRY(gg_cuda_copy_in(ids.get(), reach->queue, (uint64_t) nanchors * 4, run.stream,
						   run.control));
	GG_TRY(gg_cuda_working_copy_gather(rows, ids.get(), nanchors, run.stream, run.meter, &to));
	/* else a few long rows would be the nearest of all orphans */
	GG_TRY(gg_cuda_level_rows(&to, nanchors, run.stream));
	GG_TRY(lists.allocate(nearest.size(), run.meter));
	GG_TRY(gg_cuda_join_whole(&from.view, &to.view, false, NEAR_ANCHORS, NEAR_ANCHORS, run,
							  lists.get()));
	return gg_cuda_copy_out(nearest.data(), lists.get(), lists.bytes(), run.stream, run.control);
}

/*
 * Make all pivots reachable from pivot 0: by their lists, and those that know nobody outside of
 * their group from the nearest of the anchors, nearest pairs first.  The anchors are what pivot 0
 * leads to by itself.  rows: the pivots.
 */
static gg_status
reach_pivots(host_reach *on, const gg_cuda_rows *rows, cudaStream_t stream, gg_cuda_meter *meter)
{
	gg_reach   *reach = &on->reach;
	uint32_t	nanchors;

	memset(reach->parent, 0xFF, (size_t) reach->n * sizeof(uint32_t));
	gg_reach_root(reach, 0);
	gg_reach_spread(reach);
	nanchors = reach->queued;
	if (reach->stopped || nanchors == reach->n)
		return on->status(__func__);
	GG_TRY(reach_by_list(on, __func__));
	if (reach->nleft == 0)
		return gg_ok();

	std::vector<uint64_t> nearest((uint64_t) reach->nleft * NEAR_ANCHORS);
	std::vector<uint32_t> order(reach->nleft);

	GG_TRY(find_anchors(reach, nanchors, rows, {stream, on->control, meter}, nearest));
	for (uint32_t i = 0; i < reach->nleft; i++)
		order[i] = i;
	std::sort(order.begin(), order.end(), [&nearest](uint32_t a, uint32_t b)
			  {
				  const uint64_t of_a = nearest[(uint64_t) a * NEAR_ANCHORS] >> 32;
				  const uint64_t of_b = nearest[(uint64_t) b * NEAR_ANCHORS] >> 32;

				  return of_a != of_b ? of_a < of_b : a < b;
			  });
	for (uint32_t i : order)
	{
		if (gg_reach_stopping(reach))
			break;

		const uint32_t orphan = reach->left[i];
		bool		done = gg_reach_has(reach, orphan) ||
			gg_reach_link_by_list(reach, orphan, NULL);

		for (uint32_t j = 0; !done && j < NEAR_ANCHORS; j++)
		{
			const uint64_t key = nearest[(uint64_t) i * NEAR_ANCHORS + j];

			done = key != GG_KEY_NONE &&
				gg_reach_link(reach, reach->queue[(uint32_t) key >> 1], orphan);
		}
		/* the node reached last is a leaf of the tree, so all its edges can be given */
		if (!done)
			(void) gg_reach_link(reach, reach->queue[reach->queued - 1], orphan);
	}
	return on->status(__func__);
}

/* ---- device: breadth-first search ----------------------------------------------- */

static __global__ void
begin_kernel(const uint32_t *pivots, uint32_t npivots, uint8_t *visited, uint32_t *parent,
			 uint32_t *frontier)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= npivots)
		return;
	visited[pivots[i]] = 1;
	parent[pivots[i]] = pivots[i];
	frontier[i] = pivots[i];
}

/* Put into next, each once, the nodes not visited before this step that the frontier leads to. */
static __global__ void
expand_kernel(gg_cuda_knn graph, const uint8_t *visited, uint32_t *parent,
			  const uint32_t *frontier, uint32_t count, uint32_t *next, uint32_t *next_count)
{
	const uint32_t i = blockIdx.x * 8 + threadIdx.x / 32;

	if (i >= count)
		return;
	const uint32_t node = frontier[i];

	for (uint32_t j = threadIdx.x & 31; j < graph.k; j += 32)
	{
		const uint32_t neighbor = graph.ids[(uint64_t) node * graph.k + j];

		/* skip marked edges, which do not count (reach.h), and empty slots: both have the bit */
		if ((neighbor & GG_EDGE_MARK) != 0 || visited[neighbor])
			continue;
		if (atomicMin(&parent[neighbor], node) == GG_NO_NODE)
			next[atomicAdd(next_count, 1)] = neighbor;
	}
}

static __global__ void
visit_kernel(const uint32_t *next, uint32_t count, uint8_t *visited)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		visited[next[i]] = 1;
}

/* ---- the pivots' graph --------------------------------------------------- */

/*
 * Up to here pivots are compared pair by pair, beyond it their lists are made as those of all rows:
 * pairs grow by the square.  So many are drawn from 480 million rows on only, but every component
 * of the k-NN graph has one, and of n rows in clusters of 12 that is n / 12.
 */
#define PIVOTS_BY_PAIRS 65536u

/*
 * ids of the lists: one warp a list, one thread an entry.  Where no cell and no join reached enough
 * others, random pivots stand in.
 */
static __global__ void __launch_bounds__(256)
list_ids_kernel(const uint64_t *lists, uint32_t n, uint32_t seed, uint32_t *ids)
{
	const uint32_t row = blockIdx.x * 8 + threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;

	static_assert(GG_PIVOT_LIST == 32, "one thread an entry");
	if (row >= n)
		return;
	const uint64_t key = lists[(uint64_t) row * GG_PIVOT_LIST + lane];
	const uint32_t want = min(GG_PIVOT_LIST, n - 1);
	uint32_t	id = key == GG_KEY_NONE ? GG_NO_NODE : gg_key_id(key);
	uint32_t	count = __popc(__ballot_sync(GG_FULL_WARP, id != GG_NO_NODE));
	uint32_t	candidate = gg_mix(row ^ seed) % n;

	while (count < want)
	{
		if (!__any_sync(GG_FULL_WARP, id == candidate) && candidate != row)
		{
			if (lane == count)
				id = candidate;
			count++;
		}
		candidate = candidate + 1 < n ? candidate + 1 : 0;
	}
	ids[(uint64_t) row * GG_PIVOT_LIST + lane] = id;
}

/* Fill lists (n x GG_PIVOT_LIST keys) with the nearest of some pivots to each. */
static gg_status
pivot_lists(const gg_cuda_rows *pivots, uint64_t seed, const gg_cuda_run &run, uint64_t *lists)
{
	gg_build_params params = {};
	gg_build_stats unwanted = {};
	gg_cuda_buffer<uint32_t> order;

	if (pivots->n <= PIVOTS_BY_PAIRS)
		return gg_cuda_exact_lists(pivots, GG_PIVOT_LIST, NULL, run, lists);
	params.seed = seed;
	GG_TRY(order.allocate(pivots->n, run.meter));
	GG_CUDA_TRY(cudaMemsetAsync(order.get(), 0xFF, order.bytes(), run.stream));
	GG_TRY(gg_cuda_cells_init(pivots, GG_PIVOT_LIST, seed, NULL, run, lists, order.get()));
	return gg_cuda_gnnd(pivots, {lists, GG_PIVOT_LIST, GG_PIVOT_LIST}, &params, NULL, order.get(),
						run, &unwanted);
}

/*
 * Make adjacency, on the host: a graph of each level of the pivots, then the places shared between
 * these graphs.
 */
static gg_status
link_levels(const gg_cuda_rows *pivots, uint64_t seed, const gg_cuda_run &run, uint32_t *adjacency)
{
	uint32_t	sizes[GG_LEVELS_MAX];
	uint32_t   *levels[GG_LEVELS_MAX];
	const uint32_t nlevels = gg_pivot_levels(pivots->n, sizes);
	std::vector<uint32_t> upper[GG_LEVELS_MAX];
	gg_cuda_buffer<uint64_t> lists;
	gg_cuda_buffer<uint32_t> knn;
	gg_cuda_buffer<uint32_t> graph;

	GG_TRY(lists.allocate((uint64_t) pivots->n * GG_PIVOT_LIST, run.meter));
	GG_TRY(knn.allocate((uint64_t) pivots->n * GG_PIVOT_LIST, run.meter));
	GG_TRY(graph.allocate((uint64_t) pivots->n * GG_PIVOT_DEGREE, run.meter));
	for (uint32_t level = 0; level < nlevels; level++)
	{
		gg_cuda_rows prefix = *pivots;

		prefix.n = sizes[level];
		if (level > 0)
			upper[level].resize((size_t) prefix.n * GG_PIVOT_DEGREE);
		levels[level] = level > 0 ? upper[level].data() : adjacency;
		GG_TRY(pivot_lists(&prefix, seed, run, lists.get()));
		list_ids_kernel<<<gg_cuda_blocks(prefix.n, 8), 256, 0, run.stream>>>
			(lists.get(), prefix.n, (uint32_t) seed, knn.get());
		GG_CUDA_LAUNCHED("list_ids_kernel");
		GG_TRY(gg_cuda_optimize_device(knn.get(), prefix.n, GG_PIVOT_LIST, GG_PIVOT_DEGREE, run,
									   graph.get()));
		GG_TRY(gg_cuda_copy_out(levels[level], graph.get(),
								(uint64_t) prefix.n * GG_PIVOT_DEGREE * sizeof(uint32_t),
								run.stream, run.control));
	}
	gg_pivot_join_levels(levels, sizes, nlevels);
	return gg_ok();
}

/* Make out->pivots and out->pivot_adjacency, in which all pivots are reachable from the first. */
gg_status
gg_cuda_link_pivots(const gg_cuda_rows *rows, const std::vector<uint32_t> &pivots, uint64_t seed,
					const gg_cuda_run &run, gg_graph *out)
{
	const uint32_t count = (uint32_t) pivots.size();
	gg_control	quiet = {};
	host_reach	on;

	/* progress is that of the whole graph: the optimiser does not tell it of this one */
	if (run.control != NULL)
	{
		quiet = *run.control;
		quiet.progress = NULL;
	}
	out->npivots = count;
	out->pivots = (uint32_t *) malloc((size_t) count * sizeof(uint32_t));
	out->pivot_adjacency = (uint32_t *) malloc((size_t) count * GG_PIVOT_DEGREE * sizeof(uint32_t));
	if (out->pivots == NULL || out->pivot_adjacency == NULL)
		return gg_fail(GG_ENOMEM, __func__, "out of memory for %u pivots", count);
	memcpy(out->pivots, pivots.data(), (size_t) count * sizeof(uint32_t));
	GG_TRY(link_levels(rows, seed, {run.stream, &quiet, run.meter}, out->pivot_adjacency));

	GG_TRY(on.create(&quiet, out->pivot_adjacency, count, GG_PIVOT_DEGREE));
	return reach_pivots(&on, rows, run.stream, run.meter);
}

/* ---- all of it ----------------------------------------------------------- */

/*
 * Make every node reachable from the pivots: where one is not, edges of out->adjacency are
 * replaced, or pivots added.
 */
static gg_status
reach_nodes(const uint32_t *graph, const gg_cuda_run &run, gg_graph *out,
			std::vector<uint32_t> &pivots, uint32_t *repaired)
{
	const gg_cuda_knn edges = {graph, out->degree};
	const uint32_t n = out->n;
	const uint32_t most = gg_pivots_most(n);
	uint32_t	count = (uint32_t) pivots.size();
	uint64_t	reached = count;
	gg_cuda_buffer<uint32_t> roots;
	gg_cuda_buffer<uint8_t> visited;
	gg_cuda_buffer<uint32_t> parent;
	gg_cuda_buffer<uint32_t> frontier;
	gg_cuda_buffer<uint32_t> next;
	gg_cuda_buffer<uint32_t> next_count;
	uint32_t   *current;
	uint32_t   *following;
	gg_cuda_pace pace;
	host_reach	on;

	GG_TRY(pace.create());
	GG_TRY(roots.allocate(count, run.meter));
	GG_TRY(visited.allocate(n, run.meter));
	GG_TRY(parent.allocate(n, run.meter));
	GG_TRY(frontier.allocate(n, run.meter));
	GG_TRY(next.allocate(n, run.meter));
	GG_TRY(next_count.allocate(1, run.meter));
	GG_TRY(gg_cuda_copy_in(roots.get(), pivots.data(), roots.bytes(), run.stream, run.control));
	GG_CUDA_TRY(cudaMemsetAsync(visited.get(), 0, visited.bytes(), run.stream));
	GG_CUDA_TRY(cudaMemsetAsync(parent.get(), 0xFF, parent.bytes(), run.stream));
	begin_kernel<<<gg_cuda_blocks(count, 256), 256, 0, run.stream>>>
		(roots.get(), count, visited.get(), parent.get(), frontier.get());
	GG_CUDA_LAUNCHED("begin_kernel");
	current = frontier.get();
	following = next.get();
	while (count > 0)
	{
		GG_CUDA_TRY(cudaMemsetAsync(next_count.get(), 0, sizeof(uint32_t), run.stream));
		for (uint64_t first = 0; first < count; first += EXPAND_NODES)
		{
			const uint32_t nodes = gg_cuda_slice(count, first, EXPAND_NODES);

			expand_kernel<<<gg_cuda_blocks(nodes, 8), 256, 0, run.stream>>>
				(edges, visited.get(), parent.get(), current + first, nodes, following,
				 next_count.get());
			GG_CUDA_LAUNCHED("expand_kernel");
			GG_TRY(pace.step(run.stream, run.control, __func__));
		}
		GG_TRY(gg_cuda_read_count(next_count.get(), run.stream, run.control, &count));
		if (count > 0)
		{
			visit_kernel<<<gg_cuda_blocks(count, 256), 256, 0, run.stream>>>
				(following, count, visited.get());
			GG_CUDA_LAUNCHED("visit_kernel");
		}
		reached += count;
		gg_cuda_progress(run.control, GG_PHASE_CONNECT, reached, n);
		std::swap(current, following);
	}
	if (reached == n)
		return gg_ok();

	GG_TRY(on.create(run.control, out->adjacency, n, out->degree));
	GG_TRY(gg_cuda_copy_out(on.reach.parent, parent.get(), parent.bytes(), run.stream,
							run.control));
	GG_TRY(reach_by_list(&on, __func__));
	gg_reach_root_left(&on.reach, most > pivots.size() ? most - (uint32_t) pivots.size() : 0);
	GG_TRY(on.status(__func__));
	pivots.insert(pivots.end(), on.reach.left, on.reach.left + on.reach.nleft);
	*repaired += on.reach.links + on.reach.nleft;
	return gg_ok();
}

gg_status
gg_cuda_connect_nodes(const gg_cuda_knn &knn, const uint32_t *graph, uint64_t seed,
					  const gg_cuda_run &run, gg_graph *out, std::vector<uint32_t> &pivots,
					  uint32_t *repaired)
{
	*repaired = 0;
	GG_TRY(gg_cuda_choose_pivots(knn, out->n, seed, run, pivots));
	GG_TRY(reach_nodes(graph, run, out, pivots, repaired));
	gg_pivots_shuffle(pivots.data(), (uint32_t) pivots.size(), seed);
	return gg_ok();
}

gg_status
gg_cuda_connect(const gg_cuda_rows *rows, const gg_cuda_knn &knn, const uint32_t *graph,
				uint64_t seed, const gg_cuda_run &run, gg_graph *out, uint32_t *repaired)
{
	std::vector<uint32_t> pivots;
	gg_cuda_buffer<uint32_t> ids;
	gg_cuda_working_copy copy;

	*repaired = 0;
	if (rows->n == 0)
		return gg_ok();
	GG_TRY(gg_cuda_connect_nodes(knn, graph, seed, run, out, pivots, repaired));
	GG_TRY(ids.allocate(pivots.size(), run.meter));
	GG_TRY(gg_cuda_copy_in(ids.get(), pivots.data(), ids.bytes(), run.stream, run.control));
	GG_TRY(gg_cuda_working_copy_gather(rows, ids.get(), (uint32_t) pivots.size(), run.stream,
									   run.meter, &copy));
	return gg_cuda_link_pivots(&copy.view, pivots, seed, run, out);
}
