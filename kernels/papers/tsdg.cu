/*
 * tsdg.cu
 *		Two-stage diversification of k-NN lists, with reverse edges.
 *
 * Wang, Wang, Zhao: "Graph-based Approximate NN Search: A Revisit", 2022, section 3.  The contract
 * is in src/engine/cpu/papers/tsdg.c.
 *
 * rows n x dim, knn n x k -> graph n x degree, in three steps
 *	1. relaxed	One block per node A.  The rows of its list against each other give one bit per
 *				pair: f d(A, B) < d(A, D) and f d(B, D) < d(A, D).  One warp goes through the list
 *				and keeps the D that none of those kept occludes: F(A).
 *	2. unite	Reverse edges, by optimize.cu.
 *	3. soft		One block per node A.  U(A) is sorted by (distance, id), its bits are made with
 *				f = 1, lambda of D is the number of bits of D.  Edges are sorted by (lambda, place).
 *
 * Distances, bits, mapping and shared memory are row_view.cuh's.  d(A, B) and d(A, D) are compared
 * as measured in fp32.
 *
 * Arithmetic: a node gathers its rows from device memory once and again from L1 or L2: 33 GB for
 * lists of 64 at 1M x 128 of float32; 8,192 x dim multiply-adds.
 *
 * Oracle: gg_cpu_diversify_run().  Lists differ where rounding decides a comparison
 * (test_cuda_build.c says how many may), and recall of searches does not.
 */
#include "../../src/engine/rules/algorithms.h"
#include "row_view.cuh"

#define PER_THREAD 2			/* rows of a list for each thread */

typedef struct tsdg_args
{
	gg_view		view;
	const uint32_t *lists;		/* n x length ids, nearest first or in any order */
	uint32_t	length;
	uint32_t	capacity;		/* length, rounded up to 32 */
	float		factor;
	uint32_t	lambda0;
	uint32_t   *out;			/* n x most */
	uint32_t	most;
} tsdg_args;

/* Load a node's ids up to the first that is none; all threads return with list->count. */
__device__ static inline void
load_ids(const tsdg_args &args, uint32_t node, gg_view_list *list)
{
	__shared__ uint32_t count;

	if (threadIdx.x == 0)
		count = args.length;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < args.length; i += blockDim.x)
	{
		const uint32_t id = args.lists[(uint64_t) node * args.length + i];

		list->ids[i] = id;
		if (id >= args.view.data.n)
			atomicMin(&count, i);
	}
	__syncthreads();
	list->count = count;
}

/* Order the list by (distance, id): each row's place is the number of those before it. */
__device__ static inline void
sort_list(const gg_view_list &list)
{
	uint64_t	keys[PER_THREAD];
	uint32_t	places[PER_THREAD];

#pragma unroll
	for (int j = 0; j < PER_THREAD; j++)
	{
		const uint32_t i = threadIdx.x + j * blockDim.x;

		keys[j] = i < list.count ? gg_key(list.distances[i], list.ids[i], 0) : GG_KEY_NONE;
		places[j] = 0;
		for (uint32_t other = 0; i < list.count && other < list.count; other++)
			places[j] += gg_key(list.distances[other], list.ids[other], 0) < keys[j];
	}
	__syncthreads();
#pragma unroll
	for (int j = 0; j < PER_THREAD; j++)
		if (keys[j] != GG_KEY_NONE)
		{
			list.distances[places[j]] = gg_key_distance(keys[j]);
			list.ids[places[j]] = gg_key_id(keys[j]);
		}
	__syncthreads();
}

/* F(A) from the bits, by the first warp: lane w has the rows 32 w .. 32 w + 31 that are kept. */
__device__ static inline void
choose(const tsdg_args &args, uint32_t node, const gg_view_list &list)
{
	const uint32_t lane = threadIdx.x & 31;
	uint32_t   *out = args.out + (uint64_t) node * args.most;
	uint32_t	kept = 0;
	uint32_t	before;			/* kept in lower lanes */
	uint32_t	count = 0;

	for (uint32_t r = 0; r < list.count && count < args.most; r++)
	{
		const bool	occluded = lane <= r / 32 && (list.bits[gg_view_bits_at(r) + lane] & kept) != 0;

		if (__any_sync(GG_FULL_WARP, occluded))
			continue;
		if (lane == r / 32)
			kept |= 1u << r % 32;
		count++;
	}
	before = __popc(kept);
	for (int stride = 1; stride < 32; stride *= 2)
	{
		const uint32_t lower = __shfl_up_sync(GG_FULL_WARP, before, stride);

		if (lane >= (uint32_t) stride)
			before += lower;
	}
	before -= __popc(kept);
	for (uint32_t block = 0; block * 32 < list.count; block++)
	{
		const uint32_t word = __shfl_sync(GG_FULL_WARP, kept, block);
		const uint32_t at = __shfl_sync(GG_FULL_WARP, before, block) +
			__popc(word & gg_lanes_below(lane));

		if (word >> lane & 1)
			out[at] = list.ids[block * 32 + lane];
	}
	for (uint32_t at = count + lane; at < args.most; at += 32)
		out[at] = GG_NO_NODE;
}

/* The edges of A by (lambda, place) from the bits. */
__device__ static inline void
rank_edges(const tsdg_args &args, uint32_t node, const gg_view_list &list)
{
	uint32_t   *out = args.out + (uint64_t) node * args.most;
	uint32_t   *lambdas = (uint32_t *) list.norms;	/* done with */

	for (uint32_t i = threadIdx.x; i < list.count; i += blockDim.x)
	{
		uint32_t	lambda = 0;

		for (uint32_t w = 0; w <= i / 32; w++)
			lambda += __popc(list.bits[gg_view_bits_at(i) + w]);
		lambdas[i] = lambda;
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < list.count; i += blockDim.x)
	{
		uint32_t	place = 0;

		for (uint32_t other = 0; other < list.count; other++)
			place += lambdas[other] < lambdas[i] || (lambdas[other] == lambdas[i] && other < i);
		if (place < args.most)
			out[place] = lambdas[i] > args.lambda0 ? GG_NO_NODE : list.ids[i] |
				(lambdas[i] >= GG_TSDG_LAMBDA_LARGE ? GG_EDGE_MARK : 0);
	}
	for (uint32_t at = list.count + threadIdx.x; at < args.most; at += blockDim.x)
		out[at] = GG_NO_NODE;
}

template <gg_cuda_kind KIND, int THREADS, int T>
static __global__ void __launch_bounds__(THREADS)
relaxed_kernel(tsdg_args args, uint32_t first)
{
	extern __shared__ char shared[];
	const uint32_t node = first + blockIdx.x;
	gg_view_list list = gg_view_list_in(shared, args.capacity);

	load_ids(args, node, &list);
	if (KIND == GG_KIND_HALF_L2)
		gg_view_measure<KIND>(args.view, node, list);
	gg_view_compare<KIND, T>(args.view, node, args.factor, list);
	if (threadIdx.x < 32)
		choose(args, node, list);
}

template <gg_cuda_kind KIND, int THREADS, int T>
static __global__ void __launch_bounds__(THREADS)
soft_kernel(tsdg_args args, uint32_t first)
{
	extern __shared__ char shared[];
	const uint32_t node = first + blockIdx.x;
	gg_view_list list = gg_view_list_in(shared, args.capacity);

	load_ids(args, node, &list);
	gg_view_measure<KIND>(args.view, node, list);
	sort_list(list);
	gg_view_compare<KIND, T>(args.view, node, args.factor, list);
	rank_edges(args, node, list);
}

/* Run the soft or the relaxed kernel over all nodes. */
static gg_status
run_stage(const tsdg_args *args, bool soft, const gg_cuda_run &run)
{
	const gg_cuda_data *data = &args->view.data;
	const gg_cuda_kind kind = gg_cuda_kind_of(data->metric, data->dim);
	const uint32_t shared = gg_view_shared_bytes(args->capacity);
	const uint32_t size = args->capacity <= 64 ? 0 : args->capacity <= 128 ? 1 : 2;
	/*
	 * A launch: 20 ms at 1 TB/s of rows, which are read once to be measured and once for every 8
	 * or 16 tiles; or at 10 TFLOP/s of fp32.
	 */
	const uint64_t tiles = (uint64_t) args->capacity / 32 * (args->capacity / 32 + 1) / 2;
	const double bytes = (double) args->length * data->dim * 4.0 * (2.0 + (double) (tiles / 8));
	const double flops = kind == GG_KIND_HALF_L2 ? 0.0 : (double) tiles * 1024 * data->dim * 3;
	const double fit = 0.02 / (bytes / 1e12 + flops / 1e13);
	const uint64_t step = gg_cuda_cut(fit > (double) GG_PASS_ROWS ? GG_PASS_ROWS :
									  (uint64_t) fit + 132, run.control);
	gg_cuda_pace pace;

#define LAUNCH(kernel, threads, tiles_) \
	do { \
		GG_CUDA_TRY(cudaFuncSetAttribute(kernel<KIND, threads, tiles_>, \
										 cudaFuncAttributeMaxDynamicSharedMemorySize, shared)); \
		(kernel<KIND, threads, tiles_><<<count, threads, shared, run.stream>>> \
		 (*args, (uint32_t) first)); \
	} while (0)
#define LAUNCH_SIZE(kernel) \
	do { \
		if (size == 0) \
			LAUNCH(kernel, 128, 1); \
		else if (size == 1) \
			LAUNCH(kernel, 256, 1); \
		else \
			LAUNCH(kernel, 256, 2); \
	} while (0)

	GG_TRY(pace.create());
	for (uint64_t first = 0; first < data->n; first += step)
	{
		const uint32_t count = gg_cuda_slice(data->n, first, step);

		if (soft)
			GG_SWITCH_PLACE_KIND(kind, LAUNCH_SIZE(soft_kernel));
		else
			GG_SWITCH_PLACE_KIND(kind, LAUNCH_SIZE(relaxed_kernel));
		GG_CUDA_LAUNCHED(soft ? "soft_kernel" : "relaxed_kernel");
		GG_TRY(pace.step(run.stream, run.control, __func__));
		gg_cuda_progress(run.control, GG_PHASE_OPTIMIZE, (soft ? data->n + first : first) / 2,
						 data->n);
	}
#undef LAUNCH_SIZE
#undef LAUNCH
	return gg_ok();
}

gg_status
gg_cuda_relax_device(const gg_cuda_data *data, const gg_build_params *params, const uint32_t *knn,
					 const gg_cuda_run &run, uint32_t *forward)
{
	tsdg_args	args = {};

	args.view = gg_view_of(data);
	args.lists = knn;
	args.length = params->intermediate_graph_degree;
	args.capacity = (args.length + 31) / 32 * 32;
	args.factor = gg_tsdg_factor(params, data->metric);
	args.out = forward;
	args.most = gg_tsdg_limit(params);
	return run_stage(&args, false, run);
}

gg_status
gg_cuda_soften_device(const gg_cuda_data *data, const gg_build_params *params,
					  const uint32_t *united, uint32_t length, const gg_cuda_run &run,
					  uint32_t *graph)
{
	tsdg_args	args = {};

	args.view = gg_view_of(data);
	args.lists = united;
	args.length = length;
	args.capacity = (length + 31) / 32 * 32;
	args.factor = 1.0f;
	args.lambda0 = gg_tsdg_lambda0(params);
	args.out = graph;
	args.most = params->graph_degree;
	return run_stage(&args, true, run);
}

gg_status
gg_cuda_diversify_device(const gg_cuda_data *data, const gg_build_params *params,
						 const uint32_t *knn, const gg_cuda_run &run, uint32_t *graph)
{
	const uint32_t n = data->n;
	const uint32_t limit = gg_tsdg_limit(params);
	gg_cuda_buffer<uint32_t> forward;
	gg_cuda_buffer<uint32_t> united;

	if (n == 0)
		return gg_ok();
	GG_TRY(gg_cuda_allocate_large(&forward, (uint64_t) n * limit, run.control, run.meter));
	GG_TRY(gg_cuda_relax_device(data, params, knn, run, forward.get()));
	GG_TRY(gg_cuda_allocate_large(&united, (uint64_t) n * 2 * limit, run.control, run.meter));
	GG_TRY(gg_cuda_unite_device(forward.get(), n, limit, 2 * limit, run, united.get()));
	GG_TRY(gg_cuda_give_back(run.control, __func__, forward));
	GG_TRY(gg_cuda_soften_device(data, params, united.get(), 2 * limit, run, graph));
	gg_cuda_progress(run.control, GG_PHASE_OPTIMIZE, n, n);
	GG_TRY(gg_cuda_drain(run.stream, run.control, __func__));
	return gg_cuda_give_back(run.control, __func__, united);
}
