/*
 * cover.cu
 *		Pivots: random rows, and more where none is near.
 *
 * They follow the same rules as in src/engine/cpu/build/connect.c, but for which rows are drawn.
 * The rules' numbers are shared code (src/engine/rules/pivots.h).
 *
 * Where each part runs, by its cost for 1M rows and some 6,000 pivots (arithmetic, not measured):
 *	components	Device: 8M edges are united, one thread per row, where the neighbour's list has the
 *				row.  On the host these would be 8M random reads, and the lists would have to be
 *				copied there.  Neighbours behind the second are asked for their distance where rows
 *				are in device memory, too, one warp per row.
 *	cover		Hops on the device, 4 x 8M reads.  Rows that are too far go to the host in slices,
 *				with what lies around them, since every choice there depends on the one before.  The
 *				host stops when it has enough.
 *
 * Components are disjoint sets, kept as trees in which every node points to a lower one.  A root is
 * hooked under a lower root by atomicCAS, and paths are halved on the way.  The root of a component
 * ends as its lowest node, whatever the order of arrival.
 *
 * Oracle: invariants of gg_graph, and recall of CPU walks over the result (test_cuda_build.c).
 */
#include "../../src/engine/rules/pivots.h"
#include "../graph/rank.cuh"

#include <algorithm>
#include <vector>

/*
 * Rows looked at together for new pivots: what may lie around them is 19 MB to carry to the host.
 */
#define COVER_SLICE 65536u
#define AROUND (GG_COVER_LIST + GG_COVER_LIST * GG_COVER_LIST)	/* rows within two steps of one */

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

/* Make the trees of two rows one, and mark both rows as united. */
__device__ static inline void
unite_rows(uint32_t *above, uint8_t *united, uint32_t row, uint32_t near)
{
	unite(above, row, near);
	united[near] = united[row] = 1;
}

/* Is a neighbour in another tree, though it has the row for a neighbour, too? */
__device__ static inline bool
is_apart(const gg_cuda_knn &lists, uint32_t *above, uint32_t row, uint32_t near)
{
	/* nearly all are in one tree already, and lists lie anywhere in memory */
	return find_root(above, near) != find_root(above, row) &&
		has_neighbour(lists, GG_UNITE_LENGTH(lists.k, lists.metric), near, row);
}

/*
 * Put rows first .. first + count into one tree with those of their nearest neighbours that have
 * them for a neighbour, too, and mark both as united.
 */
static __global__ void
unite_kernel(gg_cuda_knn lists, uint32_t length, uint64_t first, uint32_t count, uint32_t *above,
			 uint8_t *united)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= count)
		return;
	for (uint32_t j = 0; j < length; j++)
	{
		const uint32_t near = neighbor_at(lists.ids, (first + i) * lists.k + j);

		if (near == GG_NO_NODE)
			return;
		if (is_apart(lists, above, (uint32_t) (first + i), near))
			unite_rows(above, united, (uint32_t) (first + i), near);
	}
}

/*
 * The same of neighbours behind GG_UNITE_ALWAYS that are near enough to be of a row's own group
 * (gg_unite_ratio()): one warp a row, one lane a neighbour.
 */
static __global__ void __launch_bounds__(256)
unite_group_kernel(gg_cuda_knn lists, gg_cuda_data data, float ratio, uint64_t first,
				   uint32_t count, uint32_t *above, uint8_t *united)
{
	const uint32_t i = blockIdx.x * 8 + threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;

	if (i >= count)
		return;
	const uint32_t row = (uint32_t) (first + i);
	const uint32_t near = lane < GG_COVER_LIST && lane < lists.k ?
		neighbor_at(lists.ids, (uint64_t) row * lists.k + lane) : GG_NO_NODE;
	uint32_t	apart = __ballot_sync(GG_FULL_WARP, lane >= GG_UNITE_ALWAYS && near != GG_NO_NODE &&
									  is_apart(lists, above, row, near));
	float		most = 0;

	if (apart != 0)
		most = ratio * gg_exact_distance(data, row,
										 __shfl_sync(GG_FULL_WARP, near, GG_UNITE_ALWAYS - 1));
	for (; apart != 0; apart &= apart - 1)
	{
		const uint32_t other = __shfl_sync(GG_FULL_WARP, near, __ffs(apart) - 1);

		if (gg_exact_distance(data, row, other) <= most && lane == 0)
			unite_rows(above, united, row, other);
	}
}

/* Put rows not united into the tree of their nearest neighbour (not by products: pivots.h). */
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

/* Does a root's list name more than GG_PIVOTS_APART() other trees, and a row of these list it? */
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
	const uint8_t *united;		/* was the row united with another one (unite_rows())? */
	const uint8_t *covered;		/* of a root: has its tree a pivot? */
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

/*
 * Add a pivot for each component apart that has none, its lowest node; see cover_components() of
 * src/engine/cpu/build/connect.c.
 */
static gg_status
cover_components(const gg_cuda_knn &lists, uint32_t n, const gg_cuda_run &run,
				 std::vector<uint32_t> &pivots)
{
	const uint32_t length = lists.k < GG_COVER_LIST ? lists.k : GG_COVER_LIST;
	const uint32_t slice = n < GG_PASS_ROWS ? n : (uint32_t) GG_PASS_ROWS;
	const size_t most = gg_pivots_most(n);
	const bool	by_ratio = lists.rows != NULL && gg_unite_ratio(lists.metric) > 0;
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
		 (lists, by_ratio ? std::min(length, (uint32_t) GG_UNITE_ALWAYS) : length, first, count,
		  above.get(), united.get())));
	if (by_ratio)
		GG_SWEEP(n, slice, run, pace, "unite_group_kernel",
			(unite_group_kernel<<<gg_cuda_blocks(count, 8), 256, 0, run.stream>>>
			 (lists, *lists.rows, gg_unite_ratio(lists.metric), first, count, above.get(),
			  united.get())));
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
		GG_TRY(gg_cuda_read_count(found.get(), run.stream, run.control, &count));
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

/* Find those of rows first .. first + count that are too far from pivots. */
static __global__ void
far_kernel(const uint8_t *hops, uint64_t first, uint32_t count, uint32_t *far, uint32_t *found)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count && hops[first + i] > GG_COVER_HOPS)
		far[atomicAdd(found, 1)] = (uint32_t) (first + i);
}

/* Neighbour j of a row; GG_NO_NODE behind the list's end, and if row is GG_NO_NODE. */
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
			GG_TRY(gg_cuda_read_count(found.get(), run.stream, run.control, &count));
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

/* ---- all of it ----------------------------------------------------------- */

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
