/*
 * connect.cu
 *		Pivots, their own graph, and every node made reachable from them.
 *
 * Pivots are random rows, about 4 sqrt(n): where walks start decides recall, and this many cost a
 * search little (src/README).  Their graph is exact k-NN lists through the same optimiser.
 *
 * Reachability: a breadth-first search on the device, a warp a node of the frontier.  A node's parent is
 * the lowest of the nodes that reached it first, whatever the order of arrival.  What is left over
 * (mostly nothing; small groups of near copies) is linked on the host, see repair().
 */
#include "list.cuh"

#include <algorithm>
#include <math.h>
#include <stdlib.h>
#include <vector>

#define PIVOT_K 32				/* lists that the pivots' graph is made of */

/* ---- host: linking what was not reached -------------------------------------- */

/* A graph on the host and a tree of paths to all nodes visited so far. */
typedef struct reach
{
	uint32_t	n;
	uint32_t	degree;
	uint32_t   *adjacency;
	uint8_t    *visited;
	uint32_t   *parent;			/* of a visited node, itself where the search began */
	uint32_t	links;
} reach;

/* Visit everything that start leads to. */
static void
spread(reach *r, uint32_t start, std::vector<uint32_t> &queue)
{
	queue.clear();
	queue.push_back(start);
	for (size_t head = 0; head < queue.size(); head++)
	{
		const uint32_t node = queue[head];

		for (uint32_t i = 0; i < r->degree; i++)
		{
			const uint32_t next = r->adjacency[(uint64_t) node * r->degree + i];

			if (next == GG_NO_NODE || r->visited[next])
				continue;
			r->visited[next] = 1;
			r->parent[next] = node;
			queue.push_back(next);
		}
	}
}

/*
 * An edge from -> node in place of from's last one that no path in the tree uses; false when all are
 * used.  node is not visited and from is, so the edge is not there yet.
 */
static bool
link_node(reach *r, uint32_t from, uint32_t node, std::vector<uint32_t> &queue)
{
	for (uint32_t i = r->degree; i-- > 0;)
	{
		uint32_t   *edge = &r->adjacency[(uint64_t) from * r->degree + i];

		if (*edge != GG_NO_NODE && r->parent[*edge] == from)
			continue;
		/* a list that is not full has its holes at the end: fill the first */
		while (*edge == GG_NO_NODE && i > 0 && edge[-1] == GG_NO_NODE)
		{
			edge--;
			i--;
		}
		*edge = node;
		r->visited[node] = 1;
		r->parent[node] = from;
		r->links++;
		spread(r, node, queue);
		return true;
	}
	return false;
}

/* Link node to a visited node of its own list: the nearest first. */
static bool
link_by_list(reach *r, uint32_t node, std::vector<uint32_t> &queue)
{
	for (uint32_t i = 0; i < r->degree; i++)
	{
		const uint32_t from = r->adjacency[(uint64_t) node * r->degree + i];

		if (from != GG_NO_NODE && r->visited[from] && link_node(r, from, node, queue))
			return true;
	}
	return false;
}

/*
 * Make all nodes reachable.  rows: what the nodes are, row_ids their rows there (NULL: the same numbers);
 * anchors: visited nodes to look among for the nearest when a node's own list leads to nothing visited.
 */
static gg_status
repair(reach *r, const gg_cuda_rows *rows, const uint32_t *row_ids, const std::vector<uint32_t> &anchors,
	   cudaStream_t stream, const gg_control *control, gg_cuda_meter *meter)
{
	std::vector<uint32_t> queue;
	std::vector<uint32_t> left;
	bool		linked;

	for (uint32_t node = 0; node < r->n; node++)
		if (!r->visited[node])
			left.push_back(node);
	do
	{
		linked = false;
		for (uint32_t node : left)
		{
			if (!r->visited[node])
				linked |= link_by_list(r, node, queue);
		}
		GG_TRY(gg_cuda_check_cancel(control, __func__));
	} while (linked);
	left.erase(std::remove_if(left.begin(), left.end(), [r](uint32_t node)
							  { return r->visited[node] != 0; }), left.end());
	if (left.empty())
		return gg_cuda_ok();

	/* groups that know nobody outside: from the nearest anchors, nearest pairs first */
	const uint32_t count = (uint32_t) left.size();
	gg_cuda_buffer<uint32_t> ids;
	gg_cuda_buffer<uint64_t> lists;
	gg_cuda_working_copy from;
	gg_cuda_working_copy to;
	std::vector<uint64_t> nearest((uint64_t) count * 32);
	std::vector<uint32_t> left_rows(left);
	std::vector<uint32_t> anchor_rows(anchors);
	std::vector<uint32_t> order(count);

	if (row_ids != NULL)
	{
		for (uint32_t &id : left_rows)
			id = row_ids[id];
		for (uint32_t &id : anchor_rows)
			id = row_ids[id];
	}
	GG_TRY(ids.allocate(std::max(left.size(), anchors.size()), meter));
	GG_TRY(gg_cuda_copy_in(ids.get(), left_rows.data(), left.size() * 4, stream, control));
	GG_TRY(gg_cuda_working_copy_gather(rows, ids.get(), count, stream, meter, &from));
	GG_CUDA_TRY(cudaStreamSynchronize(stream));
	GG_TRY(gg_cuda_copy_in(ids.get(), anchor_rows.data(), anchors.size() * 4, stream, control));
	GG_TRY(gg_cuda_working_copy_gather(rows, ids.get(), (uint32_t) anchors.size(), stream, meter, &to));
	GG_TRY(lists.allocate((uint64_t) count * 32, meter));
	GG_TRY(gg_cuda_join_whole(&from.view, &to.view, false, 32, 32, stream, control, lists.get()));
	GG_TRY(gg_cuda_copy_out(nearest.data(), lists.get(), lists.bytes(), stream, control));

	for (uint32_t i = 0; i < count; i++)
		order[i] = i;
	std::sort(order.begin(), order.end(), [&nearest](uint32_t a, uint32_t b)
			  { return nearest[(uint64_t) a * 32] >> 32 != nearest[(uint64_t) b * 32] >> 32 ?
					nearest[(uint64_t) a * 32] >> 32 < nearest[(uint64_t) b * 32] >> 32 : a < b; });

	uint32_t	any = 0;		/* a visited node that may have an edge to give */

	for (uint32_t i : order)
	{
		const uint32_t node = left[i];
		bool		done = r->visited[node] || link_by_list(r, node, queue);

		for (uint32_t j = 0; !done && j < 32; j++)
		{
			const uint64_t key = nearest[(uint64_t) i * 32 + j];

			done = key != GG_KEY_NONE && link_node(r, anchors[(uint32_t) key >> 1], node, queue);
		}
		/* the tree has fewer edges than the graph, so some node has one */
		for (; !done && any < r->n; any += done ? 0 : 1)
			done = r->visited[any] && link_node(r, any, node, queue);
	}
	return gg_cuda_check_cancel(control, __func__);
}

/* ---- device: breadth-first search ----------------------------------------------- */

static __global__ void
begin_kernel(const uint32_t *pivots, uint32_t npivots, uint8_t *visited, uint32_t *parent, uint32_t *frontier)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= npivots)
		return;
	visited[pivots[i]] = 1;
	parent[pivots[i]] = pivots[i];
	frontier[i] = pivots[i];
}

/* Nodes not visited before this step that the frontier leads to, each once, into next. */
static __global__ void
expand_kernel(const uint32_t *graph, uint32_t degree, const uint8_t *visited, uint32_t *parent,
			  const uint32_t *frontier, uint32_t count, uint32_t *next, uint32_t *next_count)
{
	const uint32_t i = blockIdx.x * 8 + threadIdx.x / 32;

	if (i >= count)
		return;
	const uint32_t node = frontier[i];

	for (uint32_t j = threadIdx.x & 31; j < degree; j += 32)
	{
		const uint32_t neighbor = graph[(uint64_t) node * degree + j];

		if (neighbor == GG_NO_NODE || visited[neighbor])
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

/* ---- pivots --------------------------------------------------------------------------- */

static uint32_t
pivot_count(uint32_t n)
{
	const uint32_t by_root = (uint32_t) (4.0 * sqrt((double) n));
	const uint32_t most = n / 64;
	const uint32_t least = n < 32 ? n : 32;
	const uint32_t count = by_root < most ? by_root : most;

	return count > least ? count : least;
}

static __global__ void
list_ids_kernel(const uint64_t *lists, uint64_t count, uint32_t *ids)
{
	const uint64_t i = (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		ids[i] = lists[i] == GG_KEY_NONE ? GG_NO_NODE : gg_key_id(lists[i]);
}

/* out->pivot_adjacency of the pivots that ids (device) and out->pivots (host) name. */
static gg_status
pivot_graph(const gg_cuda_rows *rows, const uint32_t *ids, cudaStream_t stream, const gg_control *control,
			gg_cuda_meter *meter, gg_graph *out)
{
	const uint32_t count = out->npivots;
	gg_cuda_working_copy copy;
	gg_cuda_buffer<uint64_t> lists;
	gg_cuda_buffer<uint32_t> knn;
	gg_cuda_buffer<uint32_t> graph;
	std::vector<uint8_t> visited(count, 0);
	std::vector<uint32_t> parent(count, GG_NO_NODE);
	std::vector<uint32_t> queue;
	std::vector<uint32_t> anchors;
	gg_control	quiet = {};
	reach		r = {count, GG_PIVOT_DEGREE, out->pivot_adjacency, visited.data(), parent.data(), 0};

	/* the optimiser's progress is that of the whole graph, not of this one */
	if (control != NULL)
	{
		quiet = *control;
		quiet.progress = NULL;
	}
	GG_TRY(gg_cuda_working_copy_gather(rows, ids, count, stream, meter, &copy));
	GG_TRY(lists.allocate((uint64_t) count * PIVOT_K, meter));
	GG_TRY(knn.allocate((uint64_t) count * PIVOT_K, meter));
	GG_TRY(graph.allocate((uint64_t) count * GG_PIVOT_DEGREE, meter));
	GG_TRY(gg_cuda_exact_lists(&copy.view, PIVOT_K, stream, &quiet, lists.get()));
	list_ids_kernel<<<gg_cuda_blocks((uint64_t) count * PIVOT_K, 256), 256, 0, stream>>>
		(lists.get(), (uint64_t) count * PIVOT_K, knn.get());
	GG_CUDA_LAUNCHED("list_ids_kernel");
	GG_TRY(gg_cuda_optimize_device(knn.get(), count, PIVOT_K, GG_PIVOT_DEGREE, stream, &quiet, meter,
								   graph.get()));
	GG_TRY(gg_cuda_copy_out(out->pivot_adjacency, graph.get(), graph.bytes(), stream, &quiet));

	visited[0] = 1;
	parent[0] = 0;
	spread(&r, 0, queue);
	anchors = queue;
	if (anchors.size() < count)
		GG_TRY(repair(&r, &copy.view, NULL, anchors, stream, &quiet, meter));
	return gg_cuda_ok();
}

gg_status
gg_cuda_connect(const gg_cuda_rows *rows, const uint32_t *graph, uint64_t seed, cudaStream_t stream,
				const gg_control *control, gg_cuda_meter *meter, gg_graph *out, uint32_t *repaired)
{
	const uint32_t n = rows->n;
	const uint32_t npivots = pivot_count(n);
	gg_cuda_buffer<uint32_t> pivots;
	gg_cuda_buffer<uint8_t> visited;
	gg_cuda_buffer<uint32_t> parent;
	gg_cuda_buffer<uint32_t> frontier;
	gg_cuda_buffer<uint32_t> next;
	gg_cuda_buffer<uint32_t> next_count;
	uint32_t   *current;
	uint32_t   *following;
	uint32_t	count = npivots;
	uint64_t	reached = npivots;

	*repaired = 0;
	if (n == 0)
		return gg_cuda_ok();
	out->npivots = npivots;
	out->pivots = (uint32_t *) malloc((size_t) npivots * sizeof(uint32_t));
	out->pivot_adjacency = (uint32_t *) malloc((size_t) npivots * GG_PIVOT_DEGREE * sizeof(uint32_t));
	if (out->pivots == NULL || out->pivot_adjacency == NULL)
		return gg_cuda_fail(GG_ENOMEM, __func__, "out of memory for %u pivots", npivots);
	GG_TRY(pivots.allocate(npivots, meter));
	/* not the numbers that made the cells: rows near those have had their share of attention */
	GG_TRY(gg_cuda_random_ids(n, npivots, seed + 0x9E3779B97F4A7C15ull, stream, pivots.get()));
	GG_TRY(gg_cuda_copy_out(out->pivots, pivots.get(), pivots.bytes(), stream, control));
	GG_TRY(pivot_graph(rows, pivots.get(), stream, control, meter, out));

	GG_TRY(visited.allocate(n, meter));
	GG_TRY(parent.allocate(n, meter));
	GG_TRY(frontier.allocate(n, meter));
	GG_TRY(next.allocate(n, meter));
	GG_TRY(next_count.allocate(1, meter));
	GG_CUDA_TRY(cudaMemsetAsync(visited.get(), 0, visited.bytes(), stream));
	GG_CUDA_TRY(cudaMemsetAsync(parent.get(), 0xFF, parent.bytes(), stream));
	begin_kernel<<<gg_cuda_blocks(npivots, 256), 256, 0, stream>>>
		(pivots.get(), npivots, visited.get(), parent.get(), frontier.get());
	GG_CUDA_LAUNCHED("begin_kernel");
	current = frontier.get();
	following = next.get();
	while (count > 0)
	{
		GG_CUDA_TRY(cudaMemsetAsync(next_count.get(), 0, sizeof(uint32_t), stream));
		expand_kernel<<<gg_cuda_blocks(count, 8), 256, 0, stream>>>
			(graph, out->degree, visited.get(), parent.get(), current, count, following, next_count.get());
		GG_CUDA_LAUNCHED("expand_kernel");
		GG_CUDA_TRY(cudaMemcpyAsync(&count, next_count.get(), sizeof(uint32_t), cudaMemcpyDeviceToHost, stream));
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
		GG_TRY(gg_cuda_check_cancel(control, __func__));
		if (count > 0)
		{
			visit_kernel<<<gg_cuda_blocks(count, 256), 256, 0, stream>>>(following, count, visited.get());
			GG_CUDA_LAUNCHED("visit_kernel");
		}
		reached += count;
		gg_cuda_progress(control, GG_PHASE_CONNECT, reached, n);
		std::swap(current, following);
	}
	if (reached == n)
		return gg_cuda_ok();

	std::vector<uint8_t> host_visited(n);
	std::vector<uint32_t> host_parent(n);
	std::vector<uint32_t> anchors(out->pivots, out->pivots + npivots);
	reach		r = {n, out->degree, out->adjacency, host_visited.data(), host_parent.data(), 0};

	GG_TRY(gg_cuda_copy_out(host_visited.data(), visited.get(), visited.bytes(), stream, control));
	GG_TRY(gg_cuda_copy_out(host_parent.data(), parent.get(), parent.bytes(), stream, control));
	GG_TRY(repair(&r, rows, NULL, anchors, stream, control, meter));
	*repaired = r.links;
	return gg_cuda_ok();
}
