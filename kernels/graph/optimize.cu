/*
 * optimize.cu
 *		Rank-based reordering with reverse edges.
 *
 * Ootomo et al.: "CAGRA: Highly Parallel Graph Construction and Approximate Nearest Neighbor Search
 * for GPUs", 2023, section III.B.  The contract is in src/engine/cpu/graph/optimize.c.
 *
 * knn n x k -> graph n x degree, in three steps
 *	1. detours	One warp per node A.  Its list goes into a table in shared memory (id -> rank).
 *				Then the lists of its neighbours B pass by, and each D found at rank s of the list
 *				of rank b adds a detour to A -> D when both b and s are below D's rank.  Edges are
 *				sorted by (detours, rank); the first `degree` are F(A).  Bytes: n x k x k ids are
 *				gathered, 16 GB at 1M and k = 64.  A node takes k^2 look-ups instead of the k^3
 *				compares of the definition, each of one word.
 *	2. reverse	Every edge A -> F(A)[i] is sorted to its target as (i, A): counted, scanned,
 *				scattered.
 *	3. merge	One warp per node D.  The `reverse` smallest of those keys are interleaved with
 *				F(D), each id once, without D.  tsdg.cu has steps 2 and 3, too, and keeps longer
 *				lists.
 *
 * Step 2 scatters in any order; step 3 takes minima, so the order does not matter.
 *
 * Where only some nodes are to be reordered (extend.cu), the others are in no step: they are no A
 * whose edges are turned round, and their lists in graph stay.
 *
 * Oracle: gg_cpu_optimize_run(), the same bytes (test_cuda_build.c).
 *
 * Ids out of range, such as GG_NO_NODE, are not followed and not written.
 *
 * Tried, 1M x 128, an H200, ms of detours of lists of 64 and 128.  Ids probed slot by slot, with
 * the rank beside them: 12.3, 59.7, where counting by distance took 10.2, 44.0.  This table with 16
 * slots per id 7.1, 48.3, with 8 7.5, 39.5, with 4 11.7, 62.3; by distance 8.7, 60.4, then 10.2,
 * 50.2 and 14.1, 69.0.  Twice as many lists in flight, 16 slots: 9.7, 75.1.
 */
#include "detours.cuh"

#include <cub/device/device_scan.cuh>
#include <cuda/std/functional>

/* Edges per launch: 32M scatter in 1 ms at 1M rows; with counters beyond L2 it is several. */
#define PASS_EDGES ((uint64_t) 32 << 20)

static __global__ void
in_degrees_kernel(const uint32_t *forward, uint64_t edges, uint64_t first, uint32_t *in_degrees)
{
	const uint64_t edge = first + (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;

	if (edge < edges && forward[edge] != GG_NO_NODE)
		atomicAdd(&in_degrees[forward[edge]], 1);
}

/* a key is (i, A), shifted past the bit that lists keep for GNND */
static __global__ void
reverse_kernel(const uint32_t *forward, uint64_t edges, uint32_t degree, const uint64_t *starts,
			   uint64_t first, uint32_t *in_degrees, uint64_t *reverse)
{
	const uint64_t edge = first + (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;

	if (edge >= edges || forward[edge] == GG_NO_NODE)
		return;
	const uint32_t target = forward[edge];

	reverse[starts[target] + atomicSub(&in_degrees[target], 1) - 1] =
		(edge % degree) << 32 | (edge / degree) << 1;
}

/* What united lists are made of. */
typedef struct unite_args
{
	uint32_t	n;
	uint32_t	degree;			/* of forward */
	uint32_t	nreverse;		/* reverse edges of a list, at most: <= degree */
	uint32_t	most;			/* edges of a list of graph */
	const uint32_t *forward;
	const uint64_t *starts;		/* of each node's keys in reverse */
	const uint64_t *reverse;
	const uint8_t *changed;		/* n, or NULL: all nodes */
	uint32_t   *graph;
} unite_args;

template <int R>
static __global__ void
merge_kernel(unite_args args, uint32_t first)
{
	constexpr int WARPS = R <= 4 ? 8 : 2;
	__shared__ uint64_t nearest[WARPS][32 * R];
	__shared__ uint32_t sequence[WARPS][64 * R];
	const uint32_t warp = threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t node = first + blockIdx.x * WARPS + warp;
	uint64_t   *list = nearest[warp];
	uint32_t   *ids = sequence[warp];
	uint32_t	nforward = 0;
	uint32_t	nreverse = 0;
	uint32_t	emitted = 0;
	const uint32_t degree = args.degree;
	const uint32_t most = args.most;
	const uint32_t *forward = args.forward;
	const uint64_t *starts = args.starts;
	const uint64_t *reverse = args.reverse;

	if (node >= args.n || (args.changed != NULL && !args.changed[node]))
		return;
#pragma unroll
	for (int r = 0; r < R; r++)
		list[r * 32 + lane] = GG_KEY_NONE;
	__syncwarp();
	for (uint64_t at = starts[node]; at < starts[node + 1]; at += 64)
	{
		const uint32_t count = (uint32_t) min(starts[node + 1] - at, (uint64_t) 64);
		const uint64_t last = list[args.nreverse - 1];
		bool		any = lane < count && reverse[at + lane] < last;

		any |= lane + 32 < count && reverse[at + lane + 32] < last;
		if (__any_sync(GG_FULL_WARP, any))
			gg_merge<R>(list, reverse + at, count);
	}

	/* count forward and reverse edges, then take them in turns */
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint32_t i = r * 32 + lane;

		nforward += __popc(__ballot_sync(GG_FULL_WARP, i < degree &&
										 forward[(uint64_t) node * degree +
												 min(i, degree - 1)] != GG_NO_NODE));
		nreverse += __popc(__ballot_sync(GG_FULL_WARP, i < args.nreverse &&
										 list[i] != GG_KEY_NONE));
	}
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint32_t i = r * 32 + lane;

		if (i < nforward)
			ids[i < nreverse ? 2 * i : nreverse + i] = forward[(uint64_t) node * degree + i];
		if (i < nreverse)
			ids[i < nforward ? 2 * i + 1 : nforward + i] = gg_key_id(list[i]);
	}
	__syncwarp();
	for (uint32_t base = 0; base < nforward + nreverse && emitted < most; base += 32)
	{
		const uint32_t i = base + lane;
		bool		keep = i < nforward + nreverse && ids[i] != node;

		if (keep)
			for (uint32_t j = 0; j < i; j++)
				keep &= ids[j] != ids[i];
		const uint32_t mask = __ballot_sync(GG_FULL_WARP, keep);
		const uint32_t at = emitted + __popc(mask & gg_lanes_below(lane));

		if (keep && at < most)
			args.graph[(uint64_t) node * most + at] = ids[i];
		emitted += __popc(mask);
	}
	for (uint32_t at = emitted + lane; at < most; at += 32)
		args.graph[(uint64_t) node * most + at] = GG_NO_NODE;
}

gg_status
gg_cuda_starts(const uint32_t *counts, uint64_t count, cudaStream_t stream, uint64_t *starts)
{
	gg_cuda_buffer<char> scratch;
	size_t		bytes = 0;

	GG_CUDA_TRY(cub::DeviceScan::ExclusiveScan(NULL, bytes, counts, starts, cuda::std::plus<>(),
											   (uint64_t) 0, (int64_t) count, stream));
	GG_TRY(scratch.allocate(bytes));
	GG_CUDA_TRY(cub::DeviceScan::ExclusiveScan(scratch.get(), bytes, counts, starts,
											   cuda::std::plus<>(), (uint64_t) 0, (int64_t) count,
											   stream));
	return gg_ok();
}

gg_status
gg_cuda_unite_device(const uint32_t *forward, uint32_t n, const gg_cuda_degrees &degrees,
					 uint32_t most, const gg_cuda_run &run, uint32_t *graph,
					 const uint8_t *changed)
{
	const uint32_t degree = degrees.own;
	const uint64_t edges = (uint64_t) n * degree;
	gg_cuda_buffer<uint32_t> in_degrees;
	gg_cuda_buffer<uint64_t> starts;
	gg_cuda_buffer<uint64_t> keys;
	gg_cuda_pace pace;

	GG_TRY(pace.create());
	GG_TRY(in_degrees.allocate((uint64_t) n + 1, run.meter));
	GG_TRY(starts.allocate((uint64_t) n + 1, run.meter));
	GG_TRY(gg_cuda_allocate_large(&keys, edges, run.control, run.meter));
	GG_CUDA_TRY(cudaMemsetAsync(in_degrees.get(), 0, in_degrees.bytes(), run.stream));
	GG_SWEEP(edges, PASS_EDGES, run, pace, "in_degrees_kernel",
		(in_degrees_kernel<<<gg_cuda_blocks(count, 256), 256, 0, run.stream>>>
		 (forward, edges, first, in_degrees.get())));
	GG_TRY(gg_cuda_starts(in_degrees.get(), (uint64_t) n + 1, run.stream, starts.get()));
	GG_TRY(pace.step(run.stream, run.control, __func__));
	GG_SWEEP(edges, PASS_EDGES, run, pace, "reverse_kernel",
		(reverse_kernel<<<gg_cuda_blocks(count, 256), 256, 0, run.stream>>>
		 (forward, edges, degree, starts.get(), first, in_degrees.get(), keys.get())));

	const uint64_t merge_fit = 200000000ull / degree + 8;
	const uint64_t merge_step = gg_cuda_cut(merge_fit > GG_PASS_ROWS ? GG_PASS_ROWS : merge_fit,
											run.control);

	const unite_args args = {
		.n = n,
		.degree = degree,
		.nreverse = degrees.reverse,
		.most = most,
		.forward = forward,
		.starts = starts.get(),
		.reverse = keys.get(),
		.changed = changed,
		.graph = graph,
	};

	GG_SWEEP(n, merge_step, run, pace, "merge_kernel",
		GG_SWITCH_LENGTH(gg_cuda_list_length(degree),
			(merge_kernel<R>
			 <<<gg_cuda_blocks(count, R <= 4 ? 8 : 2), R <= 4 ? 256 : 64, 0, run.stream>>>
			 (args, (uint32_t) first))));
	GG_TRY(gg_cuda_drain(run.stream, run.control, __func__));
	return gg_cuda_give_back(run.control, __func__, in_degrees, starts, keys);
}

gg_status
gg_cuda_optimize_device(const uint32_t *knn, uint32_t n, uint32_t k,
						const gg_cuda_degrees &degrees, const gg_cuda_run &run, uint32_t *graph,
						const uint8_t *changed)
{
	const uint32_t degree = degrees.own;
	/* k^2 look-ups a node at 2e11 a second: slices of 10 to 20 ms */
	const uint64_t fit = 3000000000ull / ((uint64_t) k * k) / 8 * 8 + 8;
	const uint64_t step = gg_cuda_cut(fit > GG_PASS_ROWS ? GG_PASS_ROWS : fit, run.control);
	gg_cuda_buffer<uint32_t> forward;
	gg_cuda_pace pace;

	if (n == 0)
		return gg_ok();
	GG_TRY(pace.create());
	GG_TRY(gg_cuda_allocate_large(&forward, (uint64_t) n * degree, run.control, run.meter));
	if (changed != NULL)
		GG_CUDA_TRY(cudaMemsetAsync(forward.get(), 0xFF, forward.bytes(), run.stream));
	for (uint64_t first = 0; first < n; first += step)
	{
		const uint32_t count = gg_cuda_slice(n, first, step);

		GG_SWITCH_LENGTH(gg_cuda_list_length(k),
			(detours_kernel<R><<<gg_cuda_blocks(count, detour_shape<R>::WARPS),
			 detour_shape<R>::WARPS * 32, 0, run.stream>>>
			 (knn, n, k, degree, changed, (uint32_t) first, forward.get())));
		GG_CUDA_LAUNCHED("detours_kernel");
		GG_TRY(pace.step(run.stream, run.control, __func__));
		gg_cuda_progress(run.control, GG_PHASE_OPTIMIZE, first, n);
	}

	GG_TRY(gg_cuda_unite_device(forward.get(), n, degrees, degree, run, graph, changed));
	gg_cuda_progress(run.control, GG_PHASE_OPTIMIZE, n, n);
	return gg_cuda_give_back(run.control, __func__, forward);
}
