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
 *	components	Device: 8M edges are united, one thread per row, where the neighbour's list has the
 *				row.  On the host these would be 8M random reads, and the lists would have to be
 *				copied there.
 *	cover		Hops on the device, 4 x 8M reads.  Rows that are too far go to the host in slices,
 *				with what lies around them, since every choice there depends on the one before.  The
 *				host stops when it has enough.
 *	levels		Lists of all pairs and the optimiser on the device: 6,000^2 distances, and a third
 *				of that for the levels above, take less than a millisecond.  CPU threads, of which a
 *				build may have one, would take some 0.1 s at 128 dimensions and 0.5 s at 768.
 *				Interleaving the levels' lists is 1,500 times 16 places: host.
 *	search		Device, one warp per node of the frontier.  A node's parent is the lowest of the
 *				nodes that reached it first, whatever the order of arrival.
 *	orphans		Host: mostly there are none, else small groups of near copies.
 *
 * Components are disjoint sets, kept as trees in which every node points to a lower one.  A root is
 * hooked under a lower root by atomicCAS, and paths are halved on the way.  The root of a component
 * ends as its lowest node, whatever the order of arrival.
 *
 * Oracle: invariants of gg_graph, and recall of CPU walks over the result (test_cuda_build.c).
 */
#include "../../src/engine/rules/pivots.h"
#include "../../src/engine/rules/reach.h"
#include "../graph/list.cuh"

#include <algorithm>
#include <stdlib.h>
#include <vector>

/*
 * Rows looked at together for new pivots: what may lie around them is 19 MB to carry to the host.
 */
#define COVER_SLICE 65536u
#define AROUND (GG_COVER_LIST + GG_COVER_LIST * GG_COVER_LIST)	/* rows within two steps of one */

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

	/* The end of a stretch on the host. */
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

/* nearest: of each orphan that is left, its nearest anchors among the rows, as keys. */
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
	/* else a few long ones were the nearest of all orphans */
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

/* Nodes not visited before this step that the frontier leads to, each once, into next. */
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

/* ---- device: components of the nearest neighbours ------------------------------------------ */

/*
 * The id in one place of the lists; GG_NO_NODE behind a list's end.  Where these are the edges of a
 * graph by groups (groups.cu), TSDG has marked some.
 */
__device__ static inline uint32_t
neighbor_at(const uint32_t *knn, uint64_t place)
{
	const uint32_t id = knn[place];

	return id == GG_NO_NODE ? GG_NO_NODE : id & ~GG_EDGE_MARK;
}

static __global__ void
own_root_kernel(uint32_t n, uint32_t *above)
{
	const uint32_t node = blockIdx.x * blockDim.x + threadIdx.x;

	if (node < n)
		above[node] = node;
}

/*
 * The root of node's tree, or what was it a moment ago; halves the path on the way.  volatile:
 * others hook and halve meanwhile.  Whatever of theirs is seen late is a node of the same tree,
 * above.
 */
__device__ static inline uint32_t
find_root(volatile uint32_t *above, uint32_t node)
{
	uint32_t	next = above[node];

	while (next != node)
	{
		const uint32_t after = above[next];

		if (after != next)
			above[node] = after;
		node = next;
		next = after;
	}
	return node;
}

/* Make the trees of a and b one. */
__device__ static inline void
unite(uint32_t *above, uint32_t a, uint32_t b)
{
	a = find_root(above, a);
	b = find_root(above, b);
	while (a != b)
	{
		if (a < b)
		{
			const uint32_t swap = a;

			a = b;
			b = swap;
		}
		/* a root is hooked once; b need not be one any more, it is lower all the same */
		const uint32_t was = atomicCAS(&above[a], a, b);

		if (was == a)
			break;
		a = find_root(above, was);
	}
}

/* Is node among the first `length` of the k neighbours of other? */
__device__ static inline bool
has_neighbour(const gg_cuda_knn &lists, uint32_t length, uint32_t other, uint32_t node)
{
	for (uint32_t i = 0; i < length; i++)
		if (neighbor_at(lists.ids, (uint64_t) other * lists.k + i) == node)
			return true;
	return false;
}

/*
 * Rows first .. first + count: into one tree with those of their nearest neighbours that have them
 * for a neighbour, too; these and they are united.
 */
static __global__ void
unite_kernel(gg_cuda_knn lists, uint32_t length, uint64_t first, uint32_t count, uint32_t *above,
			 uint8_t *united)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
	const uint32_t mutual = GG_UNITE_LENGTH(lists.k, lists.metric);

	if (i >= count)
		return;
	for (uint32_t j = 0; j < length; j++)
	{
		const uint32_t near = neighbor_at(lists.ids, (first + i) * lists.k + j);

		if (near == GG_NO_NODE)
			return;
		/* nearly all are in one tree already, and lists lie anywhere in memory */
		if (find_root(above, near) == find_root(above, (uint32_t) (first + i)) ||
			!has_neighbour(lists, mutual, near, (uint32_t) (first + i)))
			continue;
		unite(above, (uint32_t) (first + i), near);
		united[near] = united[first + i] = 1;
	}
}

/* Rows that are not united: into the tree of their nearest neighbour (not by products: pivots.h) */
static __global__ void
unite_rest_kernel(const uint32_t *knn, uint32_t k, uint32_t n, uint32_t *above,
				  const uint8_t *united)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n || united[i])
		return;
	const uint32_t near = neighbor_at(knn, (uint64_t) i * k);

	if (near != GG_NO_NODE)
		unite(above, i, near);
}

static __global__ void
cover_roots_kernel(const uint32_t *pivots, uint32_t count, uint32_t *above, uint8_t *covered)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		covered[find_root(above, pivots[i])] = 1;
}

/* Under inner product: are too few of the nearest rows of a root in its own tree? */
__device__ static inline bool
is_among_others(const gg_cuda_knn &lists, uint32_t *above, uint32_t root)
{
	uint32_t	own = 0;

	for (uint32_t i = 0; i < GG_COVER_LIST && i < lists.k; i++)
	{
		const uint32_t near = neighbor_at(lists.ids, (uint64_t) root * lists.k + i);

		if (near == GG_NO_NODE)
			break;
		own += find_root(above, near) == root;
	}
	return own < GG_PIVOT_OWN;
}

/* The tree of a row, or where it is by itself that of its nearest row. */
__device__ static inline uint32_t
home_of(const gg_cuda_knn &lists, uint32_t *above, const uint8_t *united, uint32_t row)
{
	const uint32_t near = neighbor_at(lists.ids, (uint64_t) row * lists.k);

	return find_root(above, united[row] || near == GG_NO_NODE ? row : near);
}

/* Does a root's list name more than GG_PIVOTS_APART() other trees, and one of these list it? */
__device__ static inline bool
is_linked(const gg_cuda_knn &lists, uint32_t *above, const uint8_t *united, uint32_t root)
{
	const uint32_t k = lists.k;
	const uint64_t list = (uint64_t) root * k;
	uint32_t	count = 0;
	bool		listed = false;

	for (uint32_t i = 0; i < k; i++)
	{
		const uint32_t near = neighbor_at(lists.ids, list + i);

		if (near == GG_NO_NODE)
			break;
		const uint32_t other = home_of(lists, above, united, near);
		uint32_t	j = 0;

		if (other == root)
			continue;
		listed = listed || has_neighbour(lists, k, near, root);
		while (j < i &&
			   home_of(lists, above, united, neighbor_at(lists.ids, list + j)) != other)
			j++;
		count += j == i;
		if (listed && count > GG_PIVOTS_APART(k))
			return true;
	}
	return false;
}

struct cuda_trees
{
	uint32_t   *above;
	const uint8_t *united;		/* has a row another one's tree, or is another in its own? */
	const uint8_t *covered;		/* of a root: its tree */
};

/*
 * Finds the trees apart without a pivot: writes their roots, of rows first .. first + count, to
 * out.
 */
static __global__ void
bare_roots_kernel(gg_cuda_knn lists, cuda_trees trees, uint64_t first, uint32_t count,
				  uint32_t *out, uint32_t *found)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
	const uint32_t row = (uint32_t) (first + i);

	if (i >= count || trees.above[row] != row || trees.covered[row])
		return;
	if (lists.metric == GG_METRIC_IP && is_among_others(lists, trees.above, row))
		return;
	if (!is_linked(lists, trees.above, trees.united, row))
		out[atomicAdd(found, 1)] = row;
}

/* What *count says, after all that was queued before. */
static gg_status
read_count(const uint32_t *device_count, cudaStream_t stream, const gg_control *control,
		   uint32_t *count)
{
	GG_CUDA_TRY(cudaMemcpyAsync(count, device_count, sizeof(uint32_t), cudaMemcpyDeviceToHost,
								stream));
	return gg_cuda_drain(stream, control, __func__);
}

/*
 * A pivot for each component apart that has none, its lowest node; see cover_components() of
 * src/engine/cpu/build/connect.c.
 */
static gg_status
cover_components(const gg_cuda_knn &lists, uint32_t n, const gg_cuda_run &run,
				 std::vector<uint32_t> &pivots)
{
	const uint32_t length = lists.k < GG_COVER_LIST ? lists.k : GG_COVER_LIST;
	const uint32_t slice = n < GG_PASS_ROWS ? n : (uint32_t) GG_PASS_ROWS;
	const size_t most = gg_pivots_most(n);
	gg_cuda_buffer<uint32_t> above;
	gg_cuda_buffer<uint8_t> united;
	gg_cuda_buffer<uint8_t> covered;
	gg_cuda_buffer<uint32_t> drawn;
	gg_cuda_buffer<uint32_t> bare;
	gg_cuda_buffer<uint32_t> found;
	gg_cuda_pace pace;

	GG_TRY(pace.create());
	GG_TRY(above.allocate(n, run.meter));
	GG_TRY(united.allocate(n, run.meter));
	GG_TRY(covered.allocate(n, run.meter));
	GG_TRY(drawn.allocate(pivots.size(), run.meter));
	GG_TRY(bare.allocate(slice, run.meter));
	GG_TRY(found.allocate(1, run.meter));
	GG_TRY(gg_cuda_copy_in(drawn.get(), pivots.data(), drawn.bytes(), run.stream, run.control));
	GG_CUDA_TRY(cudaMemsetAsync(united.get(), 0, united.bytes(), run.stream));
	own_root_kernel<<<gg_cuda_blocks(n, 256), 256, 0, run.stream>>>(n, above.get());
	GG_CUDA_LAUNCHED("own_root_kernel");
	GG_SWEEP(n, slice, run, pace, "unite_kernel",
		(unite_kernel<<<gg_cuda_blocks(count, 256), 256, 0, run.stream>>>
		 (lists, length, first, count, above.get(), united.get())));
	if (lists.metric != GG_METRIC_IP)
	{
		unite_rest_kernel<<<gg_cuda_blocks(n, 256), 256, 0, run.stream>>>
			(lists.ids, lists.k, n, above.get(), united.get());
		GG_CUDA_LAUNCHED("unite_rest_kernel");
	}
	GG_CUDA_TRY(cudaMemsetAsync(covered.get(), 0, covered.bytes(), run.stream));
	cover_roots_kernel<<<gg_cuda_blocks(pivots.size(), 256), 256, 0, run.stream>>>
		(drawn.get(), (uint32_t) pivots.size(), above.get(), covered.get());
	GG_CUDA_LAUNCHED("cover_roots_kernel");

	const cuda_trees trees = {above.get(), united.get(), covered.get()};

	for (uint64_t first = 0; first < n && pivots.size() < most; first += slice)
	{
		const uint32_t rows = gg_cuda_slice(n, first, slice);
		const size_t had = pivots.size();
		uint32_t	count;

		GG_CUDA_TRY(cudaMemsetAsync(found.get(), 0, sizeof(uint32_t), run.stream));
		bare_roots_kernel<<<gg_cuda_blocks(rows, 256), 256, 0, run.stream>>>
			(lists, trees, first, rows, bare.get(), found.get());
		GG_CUDA_LAUNCHED("bare_roots_kernel");
		GG_TRY(read_count(found.get(), run.stream, run.control, &count));
		pivots.resize(had + count);
		GG_TRY(gg_cuda_copy_out(pivots.data() + had, bare.get(),
								(uint64_t) count * sizeof(uint32_t), run.stream, run.control));
		/* in the order of ids, whatever the order in which they were found */
		std::sort(pivots.begin() + had, pivots.end());
		pivots.resize(std::min(pivots.size(), most));
	}
	return gg_ok();
}

/* ---- device: hops to the nearest pivot ----------------------------------- */

/*
 * Of rows first .. first + count: hops[i] = hop where a neighbour is one nearer; nodes only look
 * for hop - 1, so the order is not seen.
 */
static __global__ void
hop_kernel(const uint32_t *knn, uint32_t k, uint32_t length, uint8_t hop, uint64_t first,
		   uint32_t count, uint8_t *hops)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= count || hops[first + i] <= hop)
		return;
	for (uint32_t j = 0; j < length; j++)
	{
		const uint32_t near = neighbor_at(knn, (first + i) * k + j);

		if (near == GG_NO_NODE)
			return;
		if (hops[near] == hop - 1)
		{
			hops[first + i] = hop;
			return;
		}
	}
}

/* Rows first .. first + count that are too far. */
static __global__ void
far_kernel(const uint8_t *hops, uint64_t first, uint32_t count, uint32_t *far, uint32_t *found)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count && hops[first + i] > GG_COVER_HOPS)
		far[atomicAdd(found, 1)] = (uint32_t) (first + i);
}

/* Neighbour j of rows[i], for thread i * GG_COVER_LIST + j; GG_NO_NODE behind the list's end. */
__device__ static inline uint32_t
neighbor_of(const uint32_t *knn, uint32_t k, uint32_t length, uint32_t row, uint32_t j)
{
	return row != GG_NO_NODE && j < length ? neighbor_at(knn, (uint64_t) row * k + j) : GG_NO_NODE;
}

/* around: count x AROUND, the neighbours of far[i] and theirs; one thread per neighbour. */
static __global__ void
around_kernel(const uint32_t *knn, uint32_t k, uint32_t length, const uint32_t *far, uint32_t count,
			  uint32_t *around)
{
	const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
	const uint32_t i = thread / GG_COVER_LIST;
	const uint32_t j = thread % GG_COVER_LIST;

	if (i >= count)
		return;
	const uint32_t near = neighbor_of(knn, k, length, far[i], j);
	uint32_t   *record = around + (uint64_t) i * AROUND;

	record[j] = near;
	for (uint32_t l = 0; l < GG_COVER_LIST; l++)
		record[GG_COVER_LIST * (1 + j) + l] = neighbor_of(knn, k, length, near, l);
}

/* What lies within two steps of new pivots is near enough; one thread per neighbour. */
static __global__ void
near_enough_kernel(const uint32_t *knn, uint32_t k, uint32_t length, const uint32_t *pivots,
				   uint32_t count, uint8_t *hops)
{
	const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;

	if (thread / GG_COVER_LIST >= count)
		return;
	const uint32_t near = neighbor_of(knn, k, length, pivots[thread / GG_COVER_LIST],
									  thread % GG_COVER_LIST);

	if (near != GG_NO_NODE && hops[near] > GG_COVER_HOPS)
		hops[near] = GG_COVER_HOPS;
	for (uint32_t l = 0; l < GG_COVER_LIST; l++)
	{
		const uint32_t next = neighbor_of(knn, k, length, near, l);

		if (next != GG_NO_NODE && hops[next] > GG_COVER_HOPS)
			hops[next] = GG_COVER_HOPS;
	}
}

static __global__ void
pivot_hops_kernel(const uint32_t *pivots, uint32_t count, uint8_t *hops)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		hops[pivots[i]] = 0;
}

/* Tell the device of pivots from `from` on. */
static gg_status
mark_pivots(const uint32_t *knn, uint32_t k, const std::vector<uint32_t> &pivots, size_t from,
			const gg_cuda_run &run, gg_cuda_buffer<uint32_t> &fresh, uint8_t *hops)
{
	const uint32_t length = k < GG_COVER_LIST ? k : GG_COVER_LIST;
	const uint32_t count = (uint32_t) (pivots.size() - from);

	GG_TRY(gg_cuda_copy_in(fresh.get(), pivots.data() + from, (uint64_t) count * sizeof(uint32_t),
						   run.stream, run.control));
	near_enough_kernel<<<gg_cuda_blocks((uint64_t) count * GG_COVER_LIST, 256), 256, 0,
		run.stream>>>
		(knn, k, length, fresh.get(), count, hops);
	GG_CUDA_LAUNCHED("near_enough_kernel");
	pivot_hops_kernel<<<gg_cuda_blocks(count, 256), 256, 0, run.stream>>>(fresh.get(), count, hops);
	GG_CUDA_LAUNCHED("pivot_hops_kernel");
	return gg_ok();
}

/*
 * Of the rows first .. first + rows that are too far (far, in any order, and what lies around
 * each), take the lowest, then the lowest not near it, and so on.
 */
static void
choose_pivots(const std::vector<uint32_t> &far, const std::vector<uint32_t> &around, uint32_t count,
			  uint64_t first, uint32_t rows, size_t most, std::vector<uint32_t> &pivots)
{
	std::vector<uint32_t> place(rows, GG_NO_NODE);	/* of a row in far; GG_NO_NODE: near enough */

	for (uint32_t i = 0; i < count; i++)
		place[far[i] - first] = i;
	for (uint32_t row = 0; row < rows && pivots.size() < most; row++)
	{
		if (place[row] == GG_NO_NODE)
			continue;
		pivots.push_back((uint32_t) (first + row));
		for (uint32_t j = 0; j < AROUND; j++)
		{
			const uint32_t near = around[(size_t) place[row] * AROUND + j];

			/* those of other slices the device marks; GG_NO_NODE is in none */
			if (near >= first && near < first + rows && near > first + row)
				place[near - first] = GG_NO_NODE;
		}
	}
}

/*
 * Add pivots where none is near, see cover_nodes() of src/engine/cpu/build/connect.c: one for each
 * component apart without any, then, up to twice as many as were drawn, rows that are too far from
 * all, no two of them near one another.
 */
static gg_status
cover_nodes(const gg_cuda_knn &lists, uint32_t n, const gg_cuda_run &run,
			std::vector<uint32_t> &pivots)
{
	const uint32_t *knn = lists.ids;
	const uint32_t k = lists.k;
	const size_t most = 2 * pivots.size();
	const uint32_t length = k < GG_COVER_LIST ? k : GG_COVER_LIST;
	const uint32_t slice = n < COVER_SLICE ? n : COVER_SLICE;
	gg_cuda_buffer<uint8_t> hops;
	gg_cuda_buffer<uint32_t> far;
	gg_cuda_buffer<uint32_t> around;
	gg_cuda_buffer<uint32_t> found;
	gg_cuda_buffer<uint32_t> fresh;
	std::vector<uint32_t> host_far(slice);
	std::vector<uint32_t> host_around;
	gg_cuda_pace pace;
	size_t		had;

	GG_TRY(cover_components(lists, n, run, pivots));
	GG_TRY(pace.create());
	GG_TRY(hops.allocate(n, run.meter));
	GG_TRY(far.allocate(slice, run.meter));
	GG_TRY(around.allocate((uint64_t) slice * AROUND, run.meter));
	GG_TRY(found.allocate(1, run.meter));
	GG_TRY(fresh.allocate(std::max(pivots.size(), (size_t) slice), run.meter));
	GG_CUDA_TRY(cudaMemsetAsync(hops.get(), GG_COVER_HOPS + 1, n, run.stream));
	GG_TRY(gg_cuda_copy_in(fresh.get(), pivots.data(), pivots.size() * sizeof(uint32_t), run.stream,
						   run.control));
	pivot_hops_kernel<<<gg_cuda_blocks(pivots.size(), 256), 256, 0, run.stream>>>
		(fresh.get(), (uint32_t) pivots.size(), hops.get());
	GG_CUDA_LAUNCHED("pivot_hops_kernel");
	do
	{
		had = pivots.size();
		if (had >= most)
			break;
		for (uint8_t hop = 1; hop <= GG_COVER_HOPS; hop++)
			GG_SWEEP(n, GG_PASS_ROWS, run, pace, "hop_kernel",
				(hop_kernel<<<gg_cuda_blocks(count, 256), 256, 0, run.stream>>>
				 (knn, k, length, hop, first, count, hops.get())));
		for (uint64_t first = 0; first < n && pivots.size() < most; first += slice)
		{
			const uint32_t rows = gg_cuda_slice(n, first, slice);
			const size_t before = pivots.size();
			uint32_t	count;

			GG_CUDA_TRY(cudaMemsetAsync(found.get(), 0, sizeof(uint32_t), run.stream));
			far_kernel<<<gg_cuda_blocks(rows, 256), 256, 0, run.stream>>>
				(hops.get(), first, rows, far.get(), found.get());
			GG_CUDA_LAUNCHED("far_kernel");
			GG_TRY(read_count(found.get(), run.stream, run.control, &count));
			if (count == 0)
				continue;
			around_kernel<<<gg_cuda_blocks((uint64_t) count * GG_COVER_LIST, 256), 256, 0,
				run.stream>>>
				(knn, k, length, far.get(), count, around.get());
			GG_CUDA_LAUNCHED("around_kernel");
			host_around.resize((size_t) count * AROUND);
			GG_TRY(gg_cuda_copy_out(host_far.data(), far.get(), (uint64_t) count * sizeof(uint32_t),
									run.stream, run.control));
			GG_TRY(gg_cuda_copy_out(host_around.data(), around.get(),
									host_around.size() * sizeof(uint32_t), run.stream,
									run.control));
			choose_pivots(host_far, host_around, count, first, rows, most, pivots);
			GG_TRY(mark_pivots(knn, k, pivots, before, run, fresh, hops.get()));
		}
	} while (pivots.size() > had);
	return gg_cuda_drain(run.stream, run.control, __func__);
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

/* lists (n x GG_PIVOT_LIST keys) of some pivots. */
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
 * adjacency, on the host: for each level of the pivots its own graph, then the places shared
 * between them.
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

/* out->pivots and out->pivot_adjacency of the pivots, all reachable from the first. */
gg_status
gg_cuda_link_pivots(const gg_cuda_rows *rows, const std::vector<uint32_t> &pivots, uint64_t seed,
					const gg_cuda_run &run, gg_graph *out)
{
	const uint32_t count = (uint32_t) pivots.size();
	gg_control	quiet = {};
	host_reach	on;

	/* the optimiser's progress is that of the whole graph, not of this one */
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
 * Every node reachable from the pivots: edges of out->adjacency are replaced, or pivots added,
 * where it is not.
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
		GG_TRY(read_count(next_count.get(), run.stream, run.control, &count));
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
gg_cuda_choose_pivots(const gg_cuda_knn &knn, uint32_t n, uint64_t seed, const gg_cuda_run &run,
					  std::vector<uint32_t> &pivots)
{
	pivots.resize(gg_pivots_wanted(n));
	{
		gg_cuda_buffer<uint32_t> drawn;

		GG_TRY(drawn.allocate(pivots.size(), run.meter));
		/* not the numbers that made the cells: rows near those have had their share of attention */
		GG_TRY(gg_cuda_random_ids(n, (uint32_t) pivots.size(), seed + 0x9E3779B97F4A7C15ull,
								  run.stream, drawn.get()));
		GG_TRY(gg_cuda_copy_out(pivots.data(), drawn.get(), drawn.bytes(), run.stream,
								run.control));
	}
	return cover_nodes(knn, n, run, pivots);
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
