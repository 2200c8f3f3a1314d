/*
 * extend.cu
 *		Few rows into a large graph, by searching it: GGM's incremental case.
 *
 * Wang, Zhao, Zeng, Yang: "Fast k-NN Graph Construction by GPU based NN-Descent", 2021, section 5
 * has a merge compare all rows again.  Where one part, the base, has most of the rows,
 * new neighbours of its rows follow from the neighbours of the few others:
 *
 *	1. Each of the others is searched for in the base's graph, by the kernels of searches.  Its list
 *	   is its own part's united with what is found.  Where the others are not of one part, lists
 *	   among them are built anew first, as in a build.
 *	2. What is found is turned round: the base's row gets an offer of the other one.  Its list is
 *	   its edges united with its nearest OFFERS offers.
 *	3. Rows whose lists have changed are reordered (optimize.cu).  All others keep their edges.
 * TSDG diversifies all rows.  Reachability is made as in a build.
 *
 * Searches are over the working copy, in which every metric is a Euclidean distance, L1 or an inner
 * product.  They go along stored edges as these come, and enter at pivots of the base: those that a
 * build would choose (cover.cu), over stored edges by distance in place of nearest neighbours,
 * since pivots do not come with a merge and lists are not there yet.
 *
 * In the end every list is measured in fp32 (rank.cuh).  Offers are chosen by the distances that
 * searches return, by minima: the order in which they come does not matter.
 *
 * Tried: choose pivots over stored edges as these come.  Of 100 tight clusters two had no pivot, so
 * searches did not find them.
 *
 * Mapping: one warp per row everywhere, a thread per edge where offers are counted and scattered.
 * Shared memory: 16 KB per block for lists of 256 and 512, less for shorter ones.
 *
 * Memory: per row of the data set the stored edges (length x 4 bytes), k ids and graph_degree
 * edges; per row of the others width x 16 bytes of answers and offers.  With a fourth of the rows
 * at most that is less than the lists, samples and offers of a build, so a merge asks for those
 * (gg_cuda_merge_bytes()).
 *
 * Oracle: a graph built anew, by recall of searches (test_cuda_merge.c).
 */
#include "../../src/engine/rules/algorithms.h"
#include "../search/keys.cuh"
#include "../search/search_single.h"
#include "../serve/index.cuh"
#include "../graph/rank.cuh"

#include <algorithm>

#define WARPS 8					/* a block */

/*
 * The rule: merged by search where the others are at most one of so many rows.  One H200, device
 * time over a build's: 0.46 where they are a tenth of 1M x 128, 0.41 of 10M x 96, 0.59 of 1M x 768;
 * 0.65 and 0.88 where they are a fifth of 1M x 128 and of 1M x 768; 1.50 and 1.10 where they are
 * half of 1M x 768 and of 10M x 96.
 */
#define OTHERS_SHARE 4

#define OFFERS 32				/* that a list of the base takes: one a lane */
#define WIDTH 64				/* neighbours found for each of the others, if lists have as many */

/* Edges that a search has expanded at its end, of the nearest nodes it knows, as in extend.c. */
#define EDGES 2048u

/* Scratch memory of a batch of searches, and its queries at most. */
#define BATCH_BYTES ((uint64_t) 32 << 20)
#define BATCH_QUERIES 16384u

/* Edges of a launch, as in optimize.cu. */
#define PASS_EDGES ((uint64_t) 32 << 20)

/* Rows of host loops between two looks at cancelled(): some ms. */
#define POLL_ROWS ((uint32_t) 1 << 22)

/* ---- lists that are known ---------------------------------------------------------- */

/*
 * Fill ids (n x k) and graph (n x degree) with each row's stored edges, in their order, without the
 * row itself, repeats, and ids that are no rows.
 */
static __global__ void
tidy_kernel(gg_cuda_knn stored, uint32_t n, uint32_t k, uint32_t degree, uint32_t first,
			uint32_t *ids, uint32_t *graph)
{
	__shared__ uint32_t lists[WARPS][GG_MAX_DEGREE];
	const uint32_t row = first + blockIdx.x * WARPS + threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;
	uint32_t   *list = lists[threadIdx.x / 32];
	const uint32_t length = stored.k;
	uint32_t	count = 0;

	if (row >= n)
		return;
	for (uint32_t i = lane; i < length; i += 32)
		list[i] = stored.ids[(uint64_t) row * length + i];
	__syncwarp();
	for (uint32_t begin = 0; begin < length && count < k; begin += 32)
	{
		const uint32_t i = begin + lane;
		bool		keep = i < length && list[i] < n && list[i] != row;

		if (keep)
			for (uint32_t j = 0; j < i; j++)
				keep &= list[j] != list[i];
		const uint32_t mask = __ballot_sync(GG_FULL_WARP, keep);
		const uint32_t at = count + __popc(mask & gg_lanes_below(lane));

		if (keep && at < k)
			ids[(uint64_t) row * k + at] = list[i];
		if (keep && at < degree)
			graph[(uint64_t) row * degree + at] = list[i];
		count += __popc(mask);
	}
	for (uint32_t at = count + lane; at < k; at += 32)
		ids[(uint64_t) row * k + at] = GG_NO_NODE;
	for (uint32_t at = count + lane; at < degree; at += 32)
		graph[(uint64_t) row * degree + at] = GG_NO_NODE;
}

/*
 * Sort the first count of each row's ids (n x k) by distance: stored edges are in the order of
 * rank-based reordering, in which edges into other clusters come early.
 */
template <gg_cuda_kind KIND, int R>
static __global__ void
sort_kernel(gg_cuda_rows rows, uint32_t count, uint32_t k, uint32_t first, uint32_t *ids)
{
	__shared__ uint64_t all_lists[WARPS][32 * R];
	__shared__ uint64_t all_buffers[WARPS][64];
	const uint32_t row = first + blockIdx.x * WARPS + threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;
	uint64_t   *list = all_lists[threadIdx.x / 32];
	uint64_t   *buffer = all_buffers[threadIdx.x / 32];

	if (row >= rows.n)
		return;
	for (uint32_t i = lane; i < 32 * R; i += 32)
		list[i] = GG_KEY_NONE;
	for (uint32_t begin = 0; begin < count; begin += 64)
	{
		const uint32_t some = min(count - begin, 64u);
		uint32_t	known = 0;

		while (known < some && ids[(uint64_t) row * k + begin + known] != GG_NO_NODE)
		{
			const uint32_t id = ids[(uint64_t) row * k + begin + known];
			const float distance = gg_row_distance<KIND>(rows, row, id);

			if (lane == 0)
				buffer[known] = gg_key(distance, id, 0);
			known++;
		}
		__syncwarp();
		if (known > 0)
			gg_merge<R>(list, buffer, known);
		__syncwarp();
	}
	for (uint32_t i = lane; i < count; i += 32)
		ids[(uint64_t) row * k + i] = list[i] == GG_KEY_NONE ? GG_NO_NODE : gg_key_id(list[i]);
}

/* Fill ids of the others from lists among them (count x length keys) of places in others. */
static __global__ void
place_kernel(const uint64_t *lists, uint32_t length, const uint32_t *others, uint32_t count,
			 uint32_t k, uint32_t *ids)
{
	const uint32_t i = blockIdx.x * WARPS + threadIdx.x / 32;

	if (i >= count)
		return;
	for (uint32_t at = threadIdx.x & 31; at < k; at += 32)
	{
		const uint64_t key = lists[(uint64_t) i * length + at];

		ids[(uint64_t) others[i] * k + at] = key == GG_KEY_NONE ? GG_NO_NODE :
			others[gg_key_id(key)];
	}
}

/* ---- searches ------------------------------------------------------------------------ */

/* Rows of the working copy as queries; one thread per quad. */
template <gg_cuda_kind KIND>
static __global__ void
queries_kernel(gg_cuda_rows rows, const uint32_t *others, uint32_t count, float *queries)
{
	const uint64_t thread = (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;
	const uint32_t i = (uint32_t) (thread / rows.quads);

	if (i >= count)
		return;
	const uint4 quad = ((const uint4 *) rows.rows)[(uint64_t) others[i] * rows.quads +
												   thread % rows.quads];
	const uint32_t words[4] = {quad.x, quad.y, quad.z, quad.w};

#pragma unroll
	for (int j = 0; j < 4; j++)
		if (gg_cuda_halves(KIND))
			((float2 *) queries)[thread * 4 + j] = __half22float2(*(const __half2 *) &words[j]);
		else
			queries[thread * 4 + j] = __uint_as_float(words[j]);
}

/* ---- offers -------------------------------------------------------------------------- */

/* What was found of the others: others[i] has entries i x width and on. */
typedef struct found_args
{
	const uint64_t *keys;		/* of a search */
	const uint32_t *others;
	uint32_t	width;
	uint64_t	entries;		/* of all others */
	const uint8_t *parts;
	uint8_t		base;
	bool		products;		/* the searches' distances are negative products */
	uint32_t	n;
} found_args;

/* The base's row that an entry names, else GG_NO_NODE. */
__device__ static inline uint32_t
offered_row(const found_args &found, uint64_t entry)
{
	const uint32_t id = entry < found.entries ? gg_key_id(found.keys[entry]) : GG_NO_NODE;

	return id < found.n && found.parts[id] == found.base ? id : GG_NO_NODE;
}

static __global__ void
count_offers_kernel(found_args found, uint64_t first, uint32_t *counts)
{
	const uint32_t row = offered_row(found, first + (uint64_t) blockIdx.x * blockDim.x +
									 threadIdx.x);

	if (row != GG_NO_NODE)
		atomicAdd(&counts[row], 1);
}

static __global__ void
scatter_offers_kernel(found_args found, const uint64_t *starts, uint64_t first, uint32_t *counts,
					  uint64_t *offers)
{
	const uint64_t entry = first + (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;
	const uint32_t row = offered_row(found, entry);

	if (row == GG_NO_NODE)
		return;
	const float value = value_of(found.keys[entry]);

	offers[starts[row] + atomicSub(&counts[row], 1) - 1] =
		gg_key(found.products ? gg_product_distance(-value) : value,
			   found.others[entry / found.width], 0);
}

/* ---- new lists -------------------------------------------------------------------------- */

typedef struct list_args
{
	gg_cuda_data data;
	found_args	found;
	uint32_t	nothers;
	const uint64_t *starts;		/* of each row's offers */
	const uint64_t *offers;
	bool		all;			/* rows without offers, too */
	uint32_t	k;
	uint32_t	own;			/* known entries of a list that count, beside new ones */
	uint32_t   *ids;			/* n x k */
	uint8_t    *changed;
} list_args;

/* A warp's list in shared memory. */
typedef struct list_ids
{
	uint32_t   *ids;
	float	   *distances;
	uint32_t	count;
} list_ids;

template <int R>
__device__ static inline void
take_own(const list_args &args, uint32_t row, list_ids *list)
{
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint32_t i = r * 32 + (threadIdx.x & 31);
		const uint32_t id = i < args.own ? args.ids[(uint64_t) row * args.k + i] : GG_NO_NODE;

		if (id != GG_NO_NODE)
			list->ids[i] = id;
		list->count += __popc(__ballot_sync(GG_FULL_WARP, id != GG_NO_NODE));
	}
}

/* Append each lane's id, unless it is GG_NO_NODE. */
__device__ static inline void
append_ids(uint32_t id, list_ids *list)
{
	const uint32_t mask = __ballot_sync(GG_FULL_WARP, id != GG_NO_NODE);

	if (id != GG_NO_NODE)
		list->ids[list->count + __popc(mask & gg_lanes_below(threadIdx.x & 31))] = id;
	list->count += __popc(mask);
}

/* Make the nearest k of the list the row's, and mark the row as changed. */
template <int R>
__device__ static inline void
settle(const list_args &args, uint32_t row, const list_ids &list)
{
	__syncwarp();
	const uint32_t count = gg_rank_ids<R>(args.data, row, list.count, list.ids, list.distances);

	for (uint32_t at = threadIdx.x & 31; at < args.k; at += 32)
		args.ids[(uint64_t) row * args.k + at] = at < count ? list.ids[at] : GG_NO_NODE;
	if ((threadIdx.x & 31) == 0)
		args.changed[row] = 1;
}

template <int R>
struct list_shape
{
	static constexpr int WARPS_OF = R >= 16 ? 4 : 8;
};

/* Make lists of rows of the base; own is at most 32 * R - OFFERS. */
template <int R>
static __global__ void
base_lists_kernel(list_args args, uint32_t first)
{
	constexpr int W = list_shape<R>::WARPS_OF;
	__shared__ uint32_t all_ids[W][32 * R];
	__shared__ float all_distances[W][32 * R];
	__shared__ uint64_t all_nearest[W][OFFERS];
	const uint32_t warp = threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t row = first + blockIdx.x * W + warp;
	uint64_t   *nearest = all_nearest[warp];
	list_ids	list = {all_ids[warp], all_distances[warp], 0};

	static_assert(OFFERS == 32, "one a lane");
	if (row >= args.data.n || args.found.parts[row] != args.found.base)
		return;
	const uint64_t end = args.starts[row + 1];

	if (args.starts[row] == end && !args.all)
		return;
	take_own<R>(args, row, &list);
	nearest[lane] = GG_KEY_NONE;
	__syncwarp();
	for (uint64_t at = args.starts[row]; at < end; at += 64)
	{
		const uint32_t count = (uint32_t) min(end - at, (uint64_t) 64);
		const uint64_t last = nearest[OFFERS - 1];
		bool		any = lane < count && args.offers[at + lane] < last;

		any |= lane + 32 < count && args.offers[at + lane + 32] < last;
		if (__any_sync(GG_FULL_WARP, any))
			gg_merge<1>(nearest, args.offers + at, count);
	}
	const uint64_t key = nearest[lane];

	append_ids(key == GG_KEY_NONE ? GG_NO_NODE : gg_key_id(key), &list);
	settle<R>(args, row, list);
}

/* Make lists of the others; own is at most 32 * R - width. */
template <int R>
static __global__ void
other_lists_kernel(list_args args, uint32_t first)
{
	constexpr int W = list_shape<R>::WARPS_OF;
	__shared__ uint32_t all_ids[W][32 * R];
	__shared__ float all_distances[W][32 * R];
	const uint32_t warp = threadIdx.x / 32;
	const uint32_t i = first + blockIdx.x * W + warp;
	list_ids	list = {all_ids[warp], all_distances[warp], 0};

	if (i >= args.nothers)
		return;
	const uint32_t row = args.found.others[i];

	take_own<R>(args, row, &list);
	for (uint32_t begin = 0; begin < args.found.width; begin += 32)
	{
		const uint32_t j = begin + (threadIdx.x & 31);
		uint32_t	id = GG_NO_NODE;

		if (j < args.found.width)
			id = gg_key_id(args.found.keys[(uint64_t) i * args.found.width + j]);
		/* a row may find itself where the base has an edge to it */
		append_ids(id < args.data.n && id != row ? id : GG_NO_NODE, &list);
	}
	settle<R>(args, row, list);
}

/* ---- the plan ---------------------------------------------------------------------- */

/* A view of the working copy as an index, without its graph. */
static search_view
view_of(const gg_cuda_rows *rows)
{
	const bool	halves = gg_cuda_halves(rows->kind);
	search_view view = {};

	view.n = rows->n;
	view.dim = rows->quads * (halves ? 8 : 4);
	view.metric = rows->kind == GG_KIND_FLOAT_L1 ? GG_METRIC_L1 :
		rows->kind == GG_KIND_HALF_IP ? GG_METRIC_IP : GG_METRIC_L2;
	view.element = halves ? GG_ELEMENT_F16 : GG_ELEMENT_F32;
	view.path = halves ? WALK_HALF_DOT :
		rows->kind == GG_KIND_FLOAT_L1 ? WALK_FLOAT_L1 : WALK_FLOAT_L2;
	view.rows = view.walk_rows = rows->rows;
	view.row_stride = view.walk_stride = (size_t) rows->quads * 16;
	view.walk_quads = rows->quads;
	view.walk_pad = (rows->quads + 3) / 4 * (halves ? 32 : 16);
	view.norms = rows->kind == GG_KIND_HALF_L2 ? rows->norms : NULL;
	view.scale = 1;
	return view;
}

static gg_search_params
search_for(uint32_t width, uint32_t length)
{
	gg_search_params search = {};

	search.k = width;
	search.itopk_size = std::min(std::max(width, EDGES / length), GG_MAX_ITOPK);
	search.mode = GG_SEARCH_SINGLE_CTA;
	return search;
}

/* Whether a walk fits into a block's shared memory. */
static gg_status
walk_fits(const gg_dataset *data, uint32_t length, uint32_t width, bool *fits)
{
	gg_cuda_rows rows = {};
	search_launch launch = {};
	search_device device;
	search_view view;

	GG_TRY(search_device_find(&device));
	rows.kind = gg_cuda_kind_of(data->metric, data->dim);
	rows.n = data->n;
	rows.quads = (uint32_t) (gg_cuda_row_bytes(data->metric, data->dim) / 16);
	view = view_of(&rows);
	view.degree = length;
	launch.params = search_for(width, length);
	launch.params.rerank = search_rerank_size(launch.params.itopk_size, width);
	launch.params.search_width = search_width_for(0, launch.params.itopk_size, length);
	*fits = search_single_shared(&view, &launch, &device) <= (uint32_t) device.shared_bytes;
	return gg_ok();
}

/* How many rows each part has: rows of one come in runs. */
static gg_status
count_parts(const uint8_t *parts, uint32_t n, const gg_control *control, uint32_t *sizes)
{
	for (uint32_t row = 0; row < n;)
	{
		const uint32_t most = n - row < POLL_ROWS ? n : row + POLL_ROWS;
		const uint8_t part = parts[row];
		uint32_t	end = row + 1;

		while (end < most && parts[end] == part)
			end++;
		sizes[part] += end - row;
		if (row / POLL_ROWS != end / POLL_ROWS)
			GG_TRY(gg_cuda_check_cancel(control, __func__));
		row = end;
	}
	return gg_ok();
}

gg_status
gg_cuda_extension_plan(const gg_dataset *data, const gg_merge_input *input,
					   const gg_build_params *params, const gg_control *control,
					   gg_cuda_extension *plan)
{
	const uint32_t k = params->intermediate_graph_degree;
	const uint32_t wanted = params->graph_degree > WIDTH ? params->graph_degree : WIDTH;
	uint32_t	sizes[UINT8_MAX + 1] = {};
	uint32_t	base = 0;
	bool		fits;

	*plan = {};
	if (params->init == GG_INIT_RANDOM)
		return gg_ok();
	GG_TRY(count_parts(input->parts, data->n, control, sizes));
	for (uint32_t part = 1; part <= UINT8_MAX; part++)
		if (sizes[part] > (base == 0 ? 0 : sizes[base]))
			base = part;
	if (base == 0 ||
		(input->way != GG_MERGE_SEARCH && data->n - sizes[base] > data->n / OTHERS_SHARE))
		return gg_ok();
	plan->width = k < wanted ? k : wanted;
	GG_TRY(walk_fits(data, input->length, plan->width, &fits));
	if (!fits)
		return gg_ok();
	plan->base = (uint8_t) base;
	plan->others = data->n - sizes[base];
	for (uint32_t part = 1; part <= UINT8_MAX; part++)
		plan->together |= part != base && sizes[part] == plan->others;
	return gg_ok();
}

/* ---- host ---------------------------------------------------------------------------- */

/* What the steps share. */
class extending
{
public:
	gg_cuda_data *data;
	const gg_merge_input *input;
	const gg_build_params *params;
	const gg_cuda_extension *plan;
	gg_cuda_run run;
	gg_cuda_rows rows;			/* the working copy */
	gg_cuda_buffer<uint8_t> parts;
	gg_cuda_buffer<uint32_t> stored;
	gg_cuda_buffer<uint32_t> others;
	gg_cuda_buffer<uint64_t> found;	/* others x width */
	gg_cuda_buffer<uint64_t> starts;
	gg_cuda_buffer<uint64_t> offers;
	uint32_t   *ids;			/* n x k */
	uint8_t    *changed;
	uint32_t   *graph;			/* n x degree */
};

/* Copy the input into device memory, and make the ids of the others. */
static gg_status
load_input(extending *e)
{
	const uint32_t n = e->data->n;
	const uint64_t ids = (uint64_t) n * e->input->length;
	std::vector<uint32_t> others;

	GG_TRY(gg_cuda_allocate_large(&e->parts, n, e->run.control, e->run.meter));
	GG_TRY(gg_cuda_allocate_large(&e->stored, ids, e->run.control, e->run.meter));
	GG_TRY(gg_cuda_copy_in(e->parts.get(), e->input->parts, n, e->run.stream, e->run.control));
	GG_TRY(gg_cuda_copy_in(e->stored.get(), e->input->lists, ids * sizeof(uint32_t), e->run.stream,
						   e->run.control));
	others.reserve(e->plan->others);
	for (uint32_t row = 0; row < n; row++)
	{
		if (row % POLL_ROWS == 0)
			GG_TRY(gg_cuda_check_cancel(e->run.control, __func__));
		if (e->input->parts[row] != e->plan->base)
			others.push_back(row);
	}
	GG_TRY(e->others.allocate(others.size() + 1, e->run.meter));
	return gg_cuda_copy_in(e->others.get(), others.data(), others.size() * sizeof(uint32_t),
						   e->run.stream, e->run.control);
}

static gg_status
take_stored(const extending *e)
{
	const uint32_t n = e->data->n;
	const uint32_t k = e->params->intermediate_graph_degree;
	const uint32_t known = std::min(e->input->length, k);
	const gg_cuda_knn stored = {e->stored.get(), e->input->length};
	const uint64_t step = gg_cuda_cut(GG_PASS_ROWS, e->run.control);
	gg_cuda_pace pace;

	GG_TRY(pace.create());
	for (uint64_t first = 0; first < n; first += step)
	{
		const uint32_t count = gg_cuda_slice(n, first, step);

		tidy_kernel<<<gg_cuda_blocks(count, WARPS), WARPS * 32, 0, e->run.stream>>>
			(stored, n, k, e->params->graph_degree, (uint32_t) first, e->ids, e->graph);
		GG_CUDA_LAUNCHED("tidy_kernel");
		GG_SWITCH_KIND(e->rows.kind, GG_SWITCH_LENGTH(gg_cuda_list_length(known),
			(sort_kernel<KIND, R><<<gg_cuda_blocks(count, WARPS), WARPS * 32, 0, e->run.stream>>>
			 (e->rows, known, k, (uint32_t) first, e->ids))));
		GG_CUDA_LAUNCHED("sort_kernel");
		GG_TRY(pace.step(e->run.stream, e->run.control, __func__));
	}
	return gg_cuda_drain(e->run.stream, e->run.control, __func__);
}

/* Lists among the others, made as in a build. */
static gg_status
build_others(const extending *e, gg_build_stats *stats)
{
	const uint32_t count = e->plan->others;
	const uint32_t k = e->params->intermediate_graph_degree;
	const uint32_t length = gg_cuda_list_length(k);
	gg_cuda_working_copy copy;
	gg_cuda_buffer<uint64_t> lists;
	gg_cuda_buffer<uint32_t> order;

	GG_TRY(gg_cuda_working_copy_gather(&e->rows, e->others.get(), count, e->run.stream,
									   e->run.meter, &copy));
	GG_TRY(gg_cuda_allocate_large(&lists, (uint64_t) count * length, e->run.control, e->run.meter));
	if (count <= GG_EXACT_MAX_ROWS)
		GG_TRY(gg_cuda_exact_lists(&copy.view, length, NULL, e->run, lists.get()));
	else
	{
		GG_TRY(order.allocate(count, e->run.meter));
		GG_CUDA_TRY(cudaMemsetAsync(order.get(), 0xFF, order.bytes(), e->run.stream));
		GG_TRY(gg_cuda_cells_init(&copy.view, length, e->params->seed, NULL, e->run, lists.get(),
								  order.get()));
		GG_TRY(gg_cuda_gnnd(&copy.view, {lists.get(), length, k}, e->params, NULL, order.get(),
							e->run, stats));
	}
	place_kernel<<<gg_cuda_blocks(count, WARPS), WARPS * 32, 0, e->run.stream>>>
		(lists.get(), length, e->others.get(), count, k, e->ids);
	GG_CUDA_LAUNCHED("place_kernel");
	return gg_cuda_drain(e->run.stream, e->run.control, __func__);
}

/* Choose the pivots at which searches of the base enter. */
static gg_status
base_pivots(const extending *e, std::vector<uint32_t> &pivots)
{
	const uint8_t *parts = e->input->parts;
	const uint8_t base = e->plan->base;
	std::vector<uint32_t> all;

	GG_TRY(gg_cuda_choose_pivots({e->ids, e->params->intermediate_graph_degree, e->data->metric,
								 e->data}, e->data->n, e->params->seed, e->run, all));
	for (uint32_t pivot : all)
		if (parts[pivot] == base)
			pivots.push_back(pivot);
	if (pivots.empty())
		pivots.push_back((uint32_t) ((const uint8_t *) memchr(parts, base, e->data->n) - parts));
	return gg_ok();
}

/* Search for others [first, first + count), whose queries are made on the way. */
static gg_status
search_batch_of(const extending *e, gg_index *index, float *queries, uint32_t first,
				uint32_t count)
{
	const uint32_t width = e->plan->width;
	const gg_search_params search = search_for(width, e->input->length);
	const uint64_t quads = (uint64_t) count * e->rows.quads;
	search_batch batch = {};

	GG_SWITCH_KIND(e->rows.kind,
				   (queries_kernel<KIND><<<gg_cuda_blocks(quads, 256), 256, 0, e->run.stream>>>
					(e->rows, e->others.get() + first, count, queries)));
	GG_CUDA_LAUNCHED("queries_kernel");
	batch.queries = queries;
	batch.nq = batch.room = count;
	batch.keys = e->found.get() + (uint64_t) first * width;
	return search_queue(index, &index->scratch, &search, &batch, e->run.stream);
}

/* Search for all others. */
static gg_status
search_others(extending *e)
{
	const uint32_t count = e->plan->others;
	const uint64_t room = (uint64_t) count * e->plan->width;
	std::vector<uint32_t> pivots;
	gg_cuda_buffer<uint32_t> entries;
	gg_cuda_working_copy entry_rows;
	gg_cuda_buffer<float> queries;
	gg_cuda_pace pace;
	gg_index	index;
	uint64_t	step;

	GG_TRY(base_pivots(e, pivots));
	GG_TRY(entries.allocate(pivots.size(), e->run.meter));
	GG_TRY(gg_cuda_copy_in(entries.get(), pivots.data(), entries.bytes(), e->run.stream,
						   e->run.control));
	GG_TRY(gg_cuda_working_copy_gather(&e->rows, entries.get(), (uint32_t) pivots.size(),
									   e->run.stream, e->run.meter, &entry_rows));
	GG_TRY(search_device_find(&index.device));
	index.view = view_of(&e->rows);
	index.view.adjacency = e->stored.get();
	index.view.degree = e->input->length;
	index.view.pivots = entries.get();
	index.view.npivots = (uint32_t) pivots.size();
	index.view.pivot_rows = entry_rows.view.rows;
	index.view.pivot_norms = index.view.norms != NULL ? entry_rows.view.norms : NULL;

	/* a query, its halves, and its entries of two slices of the pivots */
	step = BATCH_BYTES / ((uint64_t) index.view.dim * 6 + 2 * ENTRY_NODES * 8);
	step = gg_cuda_cut(step > BATCH_QUERIES ? BATCH_QUERIES : step, e->run.control);
	step = step > count ? count : step;
	GG_TRY(e->found.allocate(room, e->run.meter));
	GG_TRY(queries.allocate(step * index.view.dim, e->run.meter));
	GG_TRY(pace.create());
	for (uint64_t first = 0; first < count; first += step)
	{
		GG_TRY(search_batch_of(e, &index, queries.get(), (uint32_t) first,
							   gg_cuda_slice(count, first, step)));
		GG_TRY(pace.step(e->run.stream, e->run.control, __func__));
		gg_cuda_progress(e->run.control, GG_PHASE_KNN_INIT, first, count);
	}
	return gg_cuda_drain(e->run.stream, e->run.control, __func__);
}

static found_args
found_by(const extending *e)
{
	found_args	found = {};

	found.keys = e->found.get();
	found.others = e->others.get();
	found.width = e->plan->width;
	found.entries = (uint64_t) e->plan->others * e->plan->width;
	found.parts = e->parts.get();
	found.base = e->plan->base;
	found.products = e->rows.kind == GG_KIND_HALF_IP;
	found.n = e->data->n;
	return found;
}

/* Turn what was found into offers, sorted by rows of the base. */
static gg_status
make_offers(extending *e)
{
	const found_args found = found_by(e);
	const uint64_t step = gg_cuda_cut(PASS_EDGES, e->run.control);
	gg_cuda_buffer<uint32_t> counts;
	gg_cuda_pace pace;

	GG_TRY(pace.create());
	GG_TRY(counts.allocate((uint64_t) found.n + 1, e->run.meter));
	GG_TRY(e->starts.allocate((uint64_t) found.n + 1, e->run.meter));
	GG_TRY(gg_cuda_allocate_large(&e->offers, found.entries + 1, e->run.control, e->run.meter));
	GG_CUDA_TRY(cudaMemsetAsync(counts.get(), 0, counts.bytes(), e->run.stream));
	GG_SWEEP(found.entries, step, e->run, pace, "count_offers_kernel",
		(count_offers_kernel<<<gg_cuda_blocks(count, 256), 256, 0, e->run.stream>>>
		 (found, first, counts.get())));
	GG_TRY(gg_cuda_starts(counts.get(), (uint64_t) found.n + 1, e->run.stream, e->starts.get()));
	GG_SWEEP(found.entries, step, e->run, pace, "scatter_offers_kernel",
		(scatter_offers_kernel<<<gg_cuda_blocks(count, 256), 256, 0, e->run.stream>>>
		 (found, e->starts.get(), first, counts.get(), e->offers.get())));
	return gg_cuda_drain(e->run.stream, e->run.control, __func__);
}

/* Length of lists of `more` new and `known` own entries; args->own: the own ones that have room. */
static uint32_t
list_room(list_args *args, uint32_t known, uint32_t more)
{
	const uint32_t most = known + more < GG_MAX_DEGREE ? known + more : GG_MAX_DEGREE;

	args->own = most - more;
	return most <= 64 ? 64 : gg_cuda_list_length(most);
}

static gg_status
unite_lists(extending *e)
{
	const uint32_t n = e->data->n;
	const uint32_t k = e->params->intermediate_graph_degree;
	const uint32_t stored = e->input->length < k ? e->input->length : k;
	/* a launch: 20 GB of rows, some 20 ms */
	const uint64_t row_bytes = (uint64_t) e->data->dim * gg_element_size(e->data->element);
	const uint64_t fit = 20000000000ull / (row_bytes * (k + OFFERS)) / 8 * 8 + 264;
	const uint64_t step = gg_cuda_cut(fit > GG_PASS_ROWS ? GG_PASS_ROWS : fit, e->run.control);
	gg_cuda_pace pace;
	list_args	args = {};
	uint32_t	length;

	args.data = *e->data;
	args.found = found_by(e);
	args.nothers = e->plan->others;
	args.starts = e->starts.get();
	args.offers = e->offers.get();
	args.all = gg_algorithm_of(e->params, e->data->metric) == GG_ALGORITHM_TSDG;
	args.k = k;
	args.ids = e->ids;
	args.changed = e->changed;
	GG_TRY(pace.create());
	length = list_room(&args, stored, OFFERS);
	GG_SWEEP(n, step, e->run, pace, "base_lists_kernel",
		GG_SWITCH_LONG_LENGTH(length, (base_lists_kernel<R>
			<<<gg_cuda_blocks(count, list_shape<R>::WARPS_OF), list_shape<R>::WARPS_OF * 32, 0,
			e->run.stream>>>(args, (uint32_t) first))));
	length = list_room(&args, e->plan->together ? stored : k, e->plan->width);
	GG_SWEEP(args.nothers, step, e->run, pace, "other_lists_kernel",
		GG_SWITCH_LONG_LENGTH(length, (other_lists_kernel<R>
			<<<gg_cuda_blocks(count, list_shape<R>::WARPS_OF), list_shape<R>::WARPS_OF * 32, 0,
			e->run.stream>>>(args, (uint32_t) first))));
	return gg_cuda_drain(e->run.stream, e->run.control, __func__);
}

uint64_t
gg_cuda_merge_bytes(uint32_t n, const gg_merge_input *input)
{
	return n * (1 + (uint64_t) input->length * sizeof(uint32_t));
}

gg_status
gg_cuda_extend_rows(gg_cuda_data *data, const gg_merge_input *input, const gg_build_params *params,
					const gg_cuda_extension *plan, const gg_cuda_run &run,
					const gg_cuda_extended *out, gg_build_stats *stats)
{
	const uint64_t n = data->n;
	double		begin = gg_cuda_now_s();
	extending	e = {};

	e.data = data;
	e.input = input;
	e.params = params;
	e.plan = plan;
	e.run = run;
	GG_TRY(load_input(&e));
	stats->transfer_s += gg_cuda_now_s() - begin;

	begin = gg_cuda_now_s();
	GG_TRY(gg_cuda_working_copy_make(data, run, out->copy));
	e.rows = out->copy->view;
	GG_TRY(gg_cuda_allocate_large(out->ids, n * params->intermediate_graph_degree, run.control,
								  run.meter));
	GG_TRY(gg_cuda_allocate_large(out->graph, n * params->graph_degree, run.control, run.meter));
	GG_TRY(out->changed->allocate(n, run.meter));
	GG_CUDA_TRY(cudaMemsetAsync(out->changed->get(), 0, n, run.stream));
	e.ids = out->ids->get();
	e.graph = out->graph->get();
	e.changed = out->changed->get();
	GG_TRY(take_stored(&e));
	if (plan->others > 0 && !plan->together)
		GG_TRY(build_others(&e, stats));
	if (plan->others > 0)
		GG_TRY(search_others(&e));
	GG_TRY(gg_cuda_give_back(run.control, __func__, e.stored));
	stats->init_s += gg_cuda_now_s() - begin;

	begin = gg_cuda_now_s();
	GG_TRY(make_offers(&e));
	GG_TRY(unite_lists(&e));
	GG_TRY(gg_cuda_give_back(run.control, __func__, e.offers, e.starts, e.found, e.parts));
	stats->descent_s += gg_cuda_now_s() - begin;
	return gg_ok();
}
