/*
 * join.cu
 *		Graphs merged as graphs, on the device: GGM as in the paper, which compares all rows.
 *
 * Wang, Zhao, Zeng, Yang: "Fast k-NN Graph Construction by GPU based NN-Descent", 2021, section 5
 * and algorithm 3.  k is intermediate_graph_degree.
 *
 *	(a) enter_kernel puts the first half of k of what is stored of each row's own part into its
 *		list, OLD, and marks behind it.  A mark has the distance of half of these and an id from n
 *		on: a place that only what is nearer can take.
 *	(b) The joins of cells.cu add the nearest rows of other parts, NEW; enter_kernel then adds what
 *		is stored of other parts.  For GG_INIT_RANDOM it draws rows of other parts instead.
 *	(c) The iterations of knn_graph.cu, which join rows of different parts alone.
 *	(d) enter_kernel takes the marks out and adds what was saved; gg_cuda_finish_lists() measures
 *		all again in fp32 and sorts.
 *
 * Up to GG_EXACT_MAX_ROWS rows all pairs of different parts are compared, and (c) is left out.
 *
 * A list of BOUNDED rows of its own part takes no others that are farther than half of these, but
 * for NEAREST.  Edges that were chosen by rank, and reverse edges, lie farther than as many nearest
 * neighbours, and without a bound the free places fill with whatever is in the same cells.  With
 * nothing beyond the bound the graph loses the edges that lead from cluster to cluster.
 *
 * A key's distance is a tile's (tile.cuh) or enter_kernel's, which differ in their last bits.  So
 * nothing enters a list whose id is there: enter_kernel looks, summaries tell the joins of (c), and
 * those of (b) meet only what they have measured themselves.
 *
 * Mapping: one warp per row; a lane has an id, the warp measures one after the other.  Shared
 * memory: 64 keys per warp.
 *
 * Departures from the paper
 *	1. The cells of (b), the bound of (a), and what is saved for (d).
 *	2. Random rows are drawn once; what is drawn twice is not drawn again.
 *	3. Near ties at the end of a list are decided by fp16 distances.
 *
 * A join of a cell measures all its pairs and keeps those of different parts.  To measure these
 * alone would spare little as joins are: of 512 members of a cell 64 have it in one slot, and the
 * rows of one part among them take a tile of 64 rows of their own.
 *
 * The engine's merges search the largest graph for the rows of others (kernels/build/extend.cu)
 * where these are few, and build anew where they are not: this takes no less time than a build.
 * The start is what is slow: 10M x 96, 10% into 90%: init 0.99 s, where a build has 0.74; descent
 * 0.55 s, where it has 0.67.
 */
#include "papers.h"

#include "../../../../kernels/graph/list.cuh"

#include <vector>

#define WARPS 8					/* a block */
#define PARTS 256

/* See the head. */
#define BOUNDED 8
#define NEAREST 8

typedef enum entries
{
	OWN,						/* (a) what is stored of the row's own part, and marks */
	OTHERS,						/* (b) what is stored of other parts, or by_part's random rows */
	SAVED						/* (d) all that was left; marks go */
} entries;

typedef struct enter_args
{
	gg_cuda_rows rows;
	entries		kind;
	const uint8_t *parts;
	const uint32_t *stored;		/* n x length */
	uint32_t	length;
	uint32_t	begin;			/* which of a row's stored ids */
	uint32_t	end;
	const uint32_t *by_part;	/* n rows, those of a part together; NULL: no random rows */
	const uint32_t *parts_at;	/* PARTS + 1: where they begin there */
	uint32_t	seed;
	uint32_t	k;
	uint64_t   *lists;
} enter_args;

/*
 * Each lane's id (GG_NO_NODE: none) into the row's list, unless it is there; one that two lanes
 * have comes in once.
 */
template <gg_cuda_kind KIND, int R>
__device__ static inline void
enter_ids(const enter_args &args, uint32_t row, uint32_t id, uint64_t *buffer)
{
	const uint32_t lane = threadIdx.x & 31;
	uint64_t   *list = args.lists + (uint64_t) row * (32 * R);
	uint32_t	left = __ballot_sync(GG_FULL_WARP, id < args.rows.n);
	uint32_t	count = 0;
	uint64_t	keys[R];

#pragma unroll
	for (int r = 0; r < R; r++)
		keys[r] = list[r * 32 + lane];
	while (left != 0)
	{
		const uint32_t other = __shfl_sync(GG_FULL_WARP, id, __ffs(left) - 1);
		bool		known = false;

		left &= left - 1;
#pragma unroll
		for (int r = 0; r < R; r++)
			known |= gg_key_id(keys[r]) == other;
		if (__any_sync(GG_FULL_WARP, known))
			continue;

		const float distance = gg_row_distance<KIND>(args.rows, row, other);

		if (lane == 0)
			buffer[count] = gg_key(distance, other, args.kind == OTHERS);
		count++;
	}
	__syncwarp();
	if (count > 0)
		gg_merge<R>(list, buffer, count);
}

/* Random row number i of those that are not of the part. */
__device__ static inline uint32_t
other_row(const enter_args &args, uint32_t row, uint32_t i)
{
	const uint32_t part = args.parts[row];
	const uint32_t begin = args.parts_at[part];
	const uint32_t size = part == 0 ? 0 : args.parts_at[part + 1] - begin;
	const uint32_t others = args.rows.n - size;
	const bool	all = others <= args.k;
	uint32_t	at = i;

	if (i >= (all ? others : (args.k + 1) / 2))
		return GG_NO_NODE;
	if (!all)
		at = __umulhi(gg_mix(gg_mix(row ^ args.seed) + i * 0x9E3779B1u), others);
	return args.by_part[size > 0 && at >= begin ? at + size : at];
}

/*
 * Marks behind what came in.  Their ids are no row's, and need 31 bits: lists of so many rows that
 * they would not be enough take 550 GB.
 */
template <int R>
__device__ static inline void
add_marks(const enter_args &args, uint64_t *list, uint64_t *buffer)
{
	const uint32_t lane = threadIdx.x & 31;
	uint32_t	count = 0;

#pragma unroll
	for (int r = 0; r < R; r++)
		count += __popc(__ballot_sync(GG_FULL_WARP, list[r * 32 + lane] != GG_KEY_NONE));
	if (count < BOUNDED)
		return;
	const float bound = gg_key_distance(list[(count - 1) / 2]);

	__syncwarp();
	for (uint32_t at = count + NEAREST; at < args.k; at += 64)
	{
		const uint32_t some = min(args.k - at, 64u);

		for (uint32_t i = lane; i < some; i += 32)
			buffer[i] = gg_key(bound, args.rows.n + at + i, 0);
		__syncwarp();
		gg_merge<R>(list, buffer, some);
	}
}

template <int R>
__device__ static inline void
drop_marks(uint32_t n, uint64_t *list)
{
	const uint32_t lane = threadIdx.x & 31;
	uint32_t	count = 0;
	uint64_t	keys[R];

#pragma unroll
	for (int r = 0; r < R; r++)
		keys[r] = list[r * 32 + lane];
	/* every lane has read its part */
	__syncwarp();
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const bool	keep = gg_key_id(keys[r]) < n;
		const uint32_t mask = __ballot_sync(GG_FULL_WARP, keep);

		if (keep)
			list[count + __popc(mask & gg_lanes_below(lane))] = keys[r];
		count += __popc(mask);
	}
	for (uint32_t at = count + lane; at < 32 * R; at += 32)
		list[at] = GG_KEY_NONE;
	__syncwarp();
}

template <gg_cuda_kind KIND, int R>
static __global__ void
enter_kernel(enter_args args, uint32_t first)
{
	__shared__ uint64_t buffers[WARPS][64];
	const uint32_t row = first + blockIdx.x * WARPS + threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;
	uint64_t   *buffer = buffers[threadIdx.x / 32];
	uint64_t   *list = args.lists + (uint64_t) row * (32 * R);

	if (row >= args.rows.n)
		return;
	const uint32_t part = args.parts[row];

	if (args.kind == SAVED)
		drop_marks<R>(args.rows.n, list);
	for (uint32_t begin = args.begin; begin < args.end; begin += 32)
	{
		uint32_t	id = GG_NO_NODE;

		if (begin + lane < args.end)
			id = args.stored[(uint64_t) row * args.length + begin + lane];
		if (id == row)
			id = GG_NO_NODE;
		/* GG_NO_NODE has no part */
		if (args.kind != SAVED && id != GG_NO_NODE &&
			(part != 0 && args.parts[id] == part) != (args.kind == OWN))
			id = GG_NO_NODE;
		enter_ids<KIND, R>(args, row, id, buffer);
	}
	if (args.kind == OWN)
		add_marks<R>(args, list, buffer);
	if (args.by_part != NULL)
		for (uint32_t begin = 0; begin < args.k; begin += 32)
		{
			const uint32_t id = other_row(args, row, begin + lane);

			enter_ids<KIND, R>(args, row, id == row ? GG_NO_NODE : id, buffer);
		}
}

/* ---- host ---------------------------------------------------------------------- */

/* What the steps of a merge share. */
class merging
{
public:
	const gg_merge_input *input;
	const gg_build_params *params;
	gg_cuda_run run;
	gg_cuda_buffer<uint8_t> parts;
	gg_cuda_buffer<uint32_t> stored;
	gg_cuda_buffer<uint32_t> by_part;
	gg_cuda_buffer<uint32_t> parts_at;
	gg_cuda_buffer<uint64_t> lists;
	uint32_t	begins[PARTS + 1];	/* of the parts, rows counted part by part */
	gg_cuda_parts joins;
	gg_cuda_rows rows;
	uint32_t	length;			/* of a list in memory */
};

/* Rows of host loops between two questions: some ms. */
#define POLL_ROWS ((uint32_t) 1 << 22)

/* The input into device memory; how many rows each part has. */
static gg_status
load_input(merging *m, uint32_t n)
{
	const uint64_t ids = (uint64_t) n * m->input->length;
	double		share = 1.0;

	GG_TRY(gg_cuda_allocate_large(&m->parts, n, m->run.control, m->run.meter));
	GG_TRY(gg_cuda_allocate_large(&m->stored, ids, m->run.control, m->run.meter));
	GG_TRY(gg_cuda_copy_in(m->parts.get(), m->input->parts, n, m->run.stream, m->run.control));
	GG_TRY(gg_cuda_copy_in(m->stored.get(), m->input->lists, ids * sizeof(uint32_t), m->run.stream,
						   m->run.control));
	memset(m->begins, 0, sizeof(m->begins));
	for (uint32_t row = 0; row < n; row++)
	{
		if (row % POLL_ROWS == 0)
			GG_TRY(gg_cuda_check_cancel(m->run.control, __func__));
		m->begins[m->input->parts[row] + 1]++;
	}
	for (int part = 1; part < PARTS; part++)
	{
		const double x = (double) m->begins[part + 1] / n;

		share -= x * x;
	}
	for (int part = 0; part < PARTS; part++)
		m->begins[part + 1] += m->begins[part];
	m->joins.of = m->parts.get();
	m->joins.k = m->params->intermediate_graph_degree;
	m->joins.share = share;
	return gg_ok();
}

/* For random rows. */
static gg_status
sort_by_part(merging *m, uint32_t n)
{
	std::vector<uint32_t> rows(n);
	uint32_t	next[PARTS];

	memcpy(next, m->begins, sizeof(next));
	for (uint32_t row = 0; row < n; row++)
	{
		if (row % POLL_ROWS == 0)
			GG_TRY(gg_cuda_check_cancel(m->run.control, __func__));
		rows[next[m->input->parts[row]]++] = row;
	}
	GG_TRY(gg_cuda_allocate_large(&m->by_part, n, m->run.control, m->run.meter));
	GG_TRY(m->parts_at.allocate(PARTS + 1, m->run.meter));
	GG_TRY(gg_cuda_copy_in(m->by_part.get(), rows.data(), m->by_part.bytes(), m->run.stream,
						   m->run.control));
	return gg_cuda_copy_in(m->parts_at.get(), m->begins, sizeof(m->begins), m->run.stream,
						   m->run.control);
}

/* Stored ids [begin, end) of every row that there are. */
static gg_status
enter(const merging *m, entries kind, uint32_t begin, uint32_t end)
{
	const uint32_t n = m->rows.n;
	const uint32_t k = m->joins.k;
	/* a launch: 20 GB of rows and lists, some 20 ms */
	const uint64_t row_bytes = m->rows.quads * 16 + 16;
	const uint64_t per_row = ((uint64_t) m->input->length + k) * row_bytes + m->length * 16;
	const uint64_t fit = 20000000000ull / per_row / WARPS * WARPS + WARPS;
	const uint64_t step = gg_cuda_cut(fit > GG_PASS_ROWS ? GG_PASS_ROWS : fit, m->run.control);
	gg_cuda_pace pace;
	enter_args	args = {};

	args.rows = m->rows;
	args.kind = kind;
	args.parts = m->parts.get();
	args.stored = m->stored.get();
	args.length = m->input->length;
	args.begin = begin;
	args.end = end;
	args.by_part = kind == OTHERS ? m->by_part.get() : NULL;
	args.parts_at = m->parts_at.get();
	args.seed = gg_mix((uint32_t) m->params->seed) ^ (uint32_t) (m->params->seed >> 32);
	args.k = k;
	args.lists = m->lists.get();
	GG_TRY(pace.create());
	for (uint64_t first = 0; first < n; first += step)
	{
		const uint32_t count = gg_cuda_slice(n, first, step);

		GG_SWITCH_KIND(m->rows.kind, GG_SWITCH_LENGTH(m->length,
			(enter_kernel<KIND, R><<<gg_cuda_blocks(count, WARPS), WARPS * 32, 0, m->run.stream>>>
			 (args, (uint32_t) first))));
		GG_CUDA_LAUNCHED("enter_kernel");
		GG_TRY(pace.step(m->run.stream, m->run.control, __func__));
	}
	return gg_cuda_drain(m->run.stream, m->run.control, __func__);
}

/* (a) to (c) */
static gg_status
make_lists(merging *m, gg_build_stats *stats)
{
	const uint32_t n = m->rows.n;
	const uint32_t k = m->joins.k;
	const uint32_t half = m->input->length < (k + 1) / 2 ? m->input->length : (k + 1) / 2;
	const bool	random = m->params->init == GG_INIT_RANDOM;
	const bool	exact = !random && n <= GG_EXACT_MAX_ROWS;
	gg_cuda_buffer<uint32_t> order;
	double		begin = gg_cuda_now_s();

	GG_TRY(gg_cuda_allocate_large(&m->lists, (uint64_t) n * m->length, m->run.control,
								  m->run.meter));
	GG_CUDA_TRY(cudaMemsetAsync(m->lists.get(), 0xFF, m->lists.bytes(), m->run.stream));
	/* stored edges are not the best of a row's own part, and no join looks there for better ones */
	if (!random && !exact)
		GG_TRY(gg_cuda_longest_lists(&m->rows, m->length, m->run, m->lists.get()));
	GG_TRY(enter(m, OWN, 0, half));
	if (random)
		GG_TRY(sort_by_part(m, n));
	else if (exact)
		GG_TRY(gg_cuda_exact_lists(&m->rows, m->length, &m->joins, m->run, m->lists.get()));
	else
	{
		GG_TRY(order.allocate(n, m->run.meter));
		GG_CUDA_TRY(cudaMemsetAsync(order.get(), 0xFF, order.bytes(), m->run.stream));
		GG_TRY(gg_cuda_cells_init(&m->rows, m->length, m->params->seed, &m->joins, m->run,
								  m->lists.get(), order.get()));
	}
	/* where all pairs were compared, nothing is new */
	if (!exact)
		GG_TRY(enter(m, OTHERS, 0, half));
	GG_TRY(gg_cuda_give_back(m->run.control, __func__, m->by_part));
	stats->init_s += gg_cuda_now_s() - begin;

	begin = gg_cuda_now_s();
	if (!exact)
		GG_TRY(gg_cuda_gnnd(&m->rows, {m->lists.get(), m->length, k}, m->params, &m->joins,
							order.get(), m->run, stats));
	stats->descent_s += gg_cuda_now_s() - begin;
	return gg_ok();
}

gg_status
gg_cuda_merge_rows(gg_cuda_data *data, const gg_merge_input *input, const gg_build_params *params,
				   const gg_cuda_run &run, gg_cuda_working_copy *copy,
				   gg_cuda_buffer<uint32_t> *ids, gg_build_stats *stats)
{
	const uint32_t n = data->n;
	const uint32_t k = params->intermediate_graph_degree;
	merging		m = {};
	double		begin = gg_cuda_now_s();

	if (n == 0)
		return gg_ok();
	m.input = input;
	m.params = params;
	m.run = run;
	m.length = gg_cuda_list_length(k);
	GG_TRY(load_input(&m, n));
	stats->transfer_s += gg_cuda_now_s() - begin;
	begin = gg_cuda_now_s();
	GG_TRY(gg_cuda_working_copy_make(data, run, copy));
	m.rows = copy->view;
	stats->init_s += gg_cuda_now_s() - begin;
	GG_TRY(make_lists(&m, stats));

	/* (d) */
	begin = gg_cuda_now_s();
	GG_TRY(enter(&m, SAVED, (k + 1) / 2, input->length));
	GG_TRY(gg_cuda_give_back(run.control, __func__, m.stored, m.parts));
	GG_TRY(gg_cuda_allocate_large(ids, (uint64_t) n * k, run.control, run.meter));
	GG_TRY(gg_cuda_finish_lists(data, {m.lists.get(), m.length, k}, false, params->seed, run,
								ids->get(), NULL));
	GG_TRY(gg_cuda_give_back(run.control, __func__, m.lists));
	stats->descent_s += gg_cuda_now_s() - begin;
	return gg_ok();
}
