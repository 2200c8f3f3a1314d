/*
 * stages.h
 *		What the files that build a graph share: the working copy of the rows, the
 *		neighbour lists, and the stages over them.
 *
 *	working_copy.cu	rows made ready for comparing
 *	cells.cu		pivot cells: assignment, joins within cells
 *	cell_sort.cu	rows sorted into cells
 *	knn_graph.cu	GNND iterations; gnnd.cuh: step by step
 *	lists.cu		random lists, exact last distances
 *	extend.cu		few rows into a large graph, by searching it
 *	optimize.cu		rank-based reordering; detours.cuh: edges and their detours
 *	tsdg.cu			two-stage diversification
 *	grnnd.cu		relative NN-descent; grnnd.cuh: its rounds
 *	cover.cu		pivots
 *	connect.cu		their graph, reachability
 *	groups.cu		the chain for rows that the device does not hold: group by group, by several
 *					devices; copiers.cuh: threads that copy; group_room.cu: sizes
 *	build.cu		the chain of these stages, and the memory it needs
 *	memory.cu		where buffers come from; a build beside searches
 *
 * Everything here is in device memory and runs on one stream.  Nothing depends on the order in
 * which blocks run: of the keys that arrive a list keeps the smallest.  So the same rows, seed and
 * parameters give the same graph.
 */
#ifndef GG_CUDA_BUILD_H
#define GG_CUDA_BUILD_H

#include "../common/cuda.h"

#include <time.h>
#include <vector>

/* For stats. */
static inline double
gg_cuda_now_s(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double) time.tv_sec + (double) time.tv_nsec * 1e-9;
}

/* What a stage runs on and for.  Functions look at its members, and keep none when they return. */
typedef struct gg_cuda_run
{
	cudaStream_t stream;
	const gg_control *control;	/* or NULL */
	gg_cuda_meter *meter;		/* of device memory, or NULL */
} gg_cuda_run;

/* ---- the working copy ---------------------------------------------------- */

/*
 * How rows are compared while building.  L2 and cosine (on unit rows) order as the Euclidean
 * distance does.
 */
typedef enum gg_cuda_kind
{
	GG_KIND_HALF_L2 = 0,		/* fp16 rows, fp32 norms, |a|^2 + |b|^2 - 2ab by mma */
	GG_KIND_FLOAT_L2 = 1,		/* fp32 rows, differences: few dimensions, where fp16 merges rows */
	GG_KIND_FLOAT_L1 = 2,		/* fp32 rows */
	GG_KIND_HALF_IP = 3			/* fp16 rows, gg_product_distance() of products by mma */
} gg_cuda_kind;

static __host__ __device__ __forceinline__ constexpr bool
gg_cuda_halves(gg_cuda_kind kind)
{
	return kind == GG_KIND_HALF_L2 || kind == GG_KIND_HALF_IP;
}

/* Up to here the fp32 kind costs little and loses nothing; fp16 has 1,024 values an octave. */
#define GG_FLOAT_MAX_DIM 12

/*
 * n rows of quads x 16 bytes, zero padded; for halves quads is even (one mma step is 16 of them).
 * Rows are centred (not L1's, where nothing is lost, nor those of products) and scaled by a power
 * of two.
 */
typedef struct gg_cuda_rows
{
	gg_cuda_kind kind;
	uint32_t	n;
	uint32_t	quads;
	const char *rows;
	const float *norms;			/* squared, of the rows as rounded; 0 for the float kinds */
} gg_cuda_rows;

/* The caller's rows in device memory, and what exact distances need beside them. */
typedef struct gg_cuda_data
{
	const void *rows;
	uint32_t	n;
	uint32_t	dim;
	uint32_t	pitch;			/* elements from row to row: dim, or more */
	gg_element	element;
	gg_metric	metric;
	/* cosine over fp16 rows: 1 / |x|; else NULL */
	const float *side;
} gg_cuda_data;

class gg_cuda_working_copy
{
public:
	gg_cuda_rows view;
	gg_cuda_buffer<char> rows;
	gg_cuda_buffer<float> norms;
	gg_cuda_buffer<float> side;
};

/* Fills copy from data, and data->side when the metric wants it. */
extern gg_status gg_cuda_working_copy_make(gg_cuda_data *data, const gg_cuda_run &run,
										   gg_cuda_working_copy *copy);

/* Fills copy with rows ids[0 .. count) of from, packed. */
extern gg_status gg_cuda_working_copy_gather(const gg_cuda_rows *from, const uint32_t *ids,
											 uint32_t count, cudaStream_t stream,
											 gg_cuda_meter *meter, gg_cuda_working_copy *copy);

/*
 * Where copy is for products, brings its first count rows to one length, so that products with them
 * tell directions.  Rows behind them, and copies of other kinds, stay as they are.
 */
extern gg_status gg_cuda_level_rows(gg_cuda_working_copy *copy, uint32_t count,
									cudaStream_t stream);

extern gg_cuda_kind gg_cuda_kind_of(gg_metric metric, uint32_t dim);
extern uint64_t gg_cuda_row_bytes(gg_metric metric, uint32_t dim);

/* ---- neighbour lists ------------------------------------------------------- */

/*
 * A list is `length` keys in ascending order, GG_KEY_NONE at the end.  A key is the distance's bits
 * (distances are never negative, so they order as integers), then the id, then the NEW flag of
 * GNND: ties go to the lower id, and equal (distance, id) are neighbours in the order.
 */
#define GG_KEY_NEW 1ull

/*
 * The distance that stands for a product: it is not negative, and falls as the product grows.  Zero
 * is in the middle of the floats from 0 to infinity; on both sides the product's bits are counted,
 * but for the last one.
 */
#define GG_ZERO_PRODUCT 0x3FC00000u

__device__ static __forceinline__ float
gg_product_distance(float product)
{
	const uint32_t bits = __float_as_uint(product);
	const uint32_t size = (bits & 0x7FFFFFFFu) >> 1;

	return __uint_as_float((bits >> 31) != 0 ? GG_ZERO_PRODUCT + size : GG_ZERO_PRODUCT - size);
}

/* And back. */
__device__ static __forceinline__ float
gg_distance_product(float distance)
{
	const uint32_t bits = __float_as_uint(distance);

	return bits > GG_ZERO_PRODUCT ? -__uint_as_float((bits - GG_ZERO_PRODUCT) << 1) :
		__uint_as_float((GG_ZERO_PRODUCT - bits) << 1);
}

/* A list for each of some rows, in device memory. */
typedef struct gg_cuda_lists
{
	uint64_t   *keys;
	uint32_t	length;			/* of a list in memory */
	uint32_t	k;				/* its entries that count */
} gg_cuda_lists;

/* The same as ids alone, or a graph's edges; GG_NO_NODE at the end of a list. */
typedef struct gg_cuda_knn
{
	const uint32_t *ids;		/* n x k */
	uint32_t	k;
	gg_metric	metric;			/* by which they are nearest */
	const gg_cuda_data *rows;	/* for the host; NULL: they are not in device memory */
} gg_cuda_knn;

/* Length that a list of k entries takes: registers of a warp times a power of two. */
static inline uint32_t
gg_cuda_list_length(uint32_t k)
{
	uint32_t	length = 32;

	while (length < k)
		length *= 2;
	return length;
}

/*
 * Rows of several parts, of which lists are known: GGM as in the paper, which only its bench does
 * (test/engine/cuda/papers/join.cu).  Rows of one part are not compared,
 * but those of part 0 are.  A function given parts (NULL in a build) adds to the lists that are
 * there, and passes over ids from n on, which are no rows.
 */
typedef struct gg_cuda_parts
{
	const uint8_t *of;			/* n, in device memory */
	uint32_t	k;				/* entries of a list that count */
	double		share;			/* of these entries, those that can be of other parts */
} gg_cuda_parts;

/* ---- cells ----------------------------------------------------------------- */

/*
 * Rows sorted by (cell, slot): the members of slot s of cell c are at
 * members[starts[c * slots + s] .. starts[c * slots + s + 1]).
 */
class gg_cuda_cells
{
public:
	uint32_t	ncells;
	uint32_t	slots;
	uint32_t	largest;		/* members of the largest cell, all slots */
	gg_cuda_buffer<uint32_t> members;
	gg_cuda_buffer<uint64_t> starts;
};

/*
 * Sort n rows by the cells in the entries of their lists that count.  Cells of more than max_rows
 * members become several; cells->ncells counts the pieces.  Which piece a row goes to depends on
 * the row alone, so that rows that share two split cells do not always miss each other twice.
 */
extern gg_status gg_cuda_sort_into_cells(const gg_cuda_lists &lists, uint32_t n, uint32_t ncells,
										 uint32_t max_rows, const gg_cuda_run &run,
										 gg_cuda_cells *cells);

/*
 * Fill lists (n x length keys, flags NEW) from cells around random pivots.  order: NULL, or n ids
 * written so that rows of one cell are side by side.
 */
extern gg_status gg_cuda_cells_init(const gg_cuda_rows *rows, uint32_t length, uint64_t seed,
									const gg_cuda_parts *parts, const gg_cuda_run &run,
									uint64_t *lists, uint32_t *order);

/* Under inner product compares the longest rows with all, for all lists; else does nothing. */
extern gg_status gg_cuda_longest_lists(const gg_cuda_rows *rows, uint32_t length,
									   const gg_cuda_run &run, uint64_t *lists);

/* Lists of all rows of a small set, by comparing every pair. */
extern gg_status gg_cuda_exact_lists(const gg_cuda_rows *rows, uint32_t length,
									 const gg_cuda_parts *parts, const gg_cuda_run &run,
									 uint64_t *lists);

/*
 * lists (a->n x length keys): the `keep` nearest rows of b for every row of a, every pair compared.
 */
extern gg_status gg_cuda_join_whole(const gg_cuda_rows *a, const gg_cuda_rows *b, bool same,
									uint32_t length, uint32_t keep, const gg_cuda_run &run,
									uint64_t *lists);

/* ids[0 .. count): distinct random numbers below n, in ascending order. */
extern gg_status gg_cuda_random_ids(uint32_t n, uint32_t count, uint64_t seed, cudaStream_t stream,
									uint32_t *ids);

/* Sets up to this size are compared pair by pair: cheaper than assigning them to cells. */
#ifndef GG_EXACT_MAX_ROWS		/* the emulated device has fewer rows */
#define GG_EXACT_MAX_ROWS 16384
#endif

/* ---- stages ------------------------------------------------------------------ */

/* p of GNND by default: samples of either age from a row's list, and as many that sampled it. */
#define GG_GNND_SAMPLES 32

static inline uint32_t
gg_cuda_samples(const gg_build_params *params)
{
	return params->samples != 0 ? params->samples : GG_GNND_SAMPLES;
}

/* Up to this p a row's samples of one age take 64 words, above it 128. */
#define GG_NARROW_SAMPLES 32

static inline uint32_t
gg_cuda_sample_words(uint32_t p)
{
	return p <= GG_NARROW_SAMPLES ? 2 * GG_NARROW_SAMPLES : 2 * GG_MAX_SAMPLES;
}

/* GNND from lists in place; iterations and the update counts go to stats. */
extern gg_status gg_cuda_gnnd(const gg_cuda_rows *rows, const gg_cuda_lists &lists,
							  const gg_build_params *params, const gg_cuda_parts *parts,
							  const uint32_t *order, const gg_cuda_run &run, gg_build_stats *stats);

extern gg_status gg_cuda_random_lists(const gg_cuda_rows *rows, uint32_t length, uint32_t k,
									  uint64_t seed, const gg_cuda_run &run, uint64_t *lists);

/*
 * ids (n x k) and, unless NULL, distances from lists: distances computed again from the caller's
 * rows in fp32, lists sorted by them, duplicates dropped; with fill, short lists filled up to
 * min(k, n - 1).
 */
extern gg_status gg_cuda_finish_lists(const gg_cuda_data *data, const gg_cuda_lists &lists,
									  bool fill, uint64_t seed, const gg_cuda_run &run,
									  uint32_t *ids, float *distances);

/* How many edges of a node are chosen, and how many reverse ones are united with them, at most. */
struct gg_cuda_degrees
{
	uint32_t	own;
	uint32_t	reverse;		/* <= own */

	gg_cuda_degrees(uint32_t both) : own(both), reverse(both)
	{
	}
	gg_cuda_degrees(uint32_t chosen, uint32_t turned) : own(chosen), reverse(turned)
	{
	}
};

/*
 * The optimiser on device memory: knn n x k, graph n x degrees.own.  changed: NULL, or n flags; the
 * lists of nodes whose flag is 0 stay in graph as they are.
 */
extern gg_status gg_cuda_optimize_device(const uint32_t *knn, uint32_t n, uint32_t k,
										 const gg_cuda_degrees &degrees, const gg_cuda_run &run,
										 uint32_t *graph, const uint8_t *changed = NULL);

/*
 * Its second half: reverse edges united with forward ones (n x degree, GG_NO_NODE behind the last).
 * graph: n x most, lists cut to `most` edges, which is no less than degree.
 */
extern gg_status gg_cuda_unite_device(const uint32_t *forward, uint32_t n,
									  const gg_cuda_degrees &degrees, uint32_t most,
									  const gg_cuda_run &run, uint32_t *graph,
									  const uint8_t *changed = NULL);

/* starts[i] = the sum of counts[0 .. i); the scan of what is sorted to its targets. */
extern gg_status gg_cuda_starts(const uint32_t *counts, uint64_t count, cudaStream_t stream,
								uint64_t *starts);

/* TSDG's diversification on device memory; data->side is set where the metric wants it. */
extern gg_status gg_cuda_diversify_device(const gg_cuda_data *data, const gg_build_params *params,
										  const uint32_t *knn, const gg_cuda_run &run,
										  uint32_t *graph);

/* Its stages: relaxed, knn to forward (n x gg_tsdg_limit()); soft, united (n x length) to graph. */
extern gg_status gg_cuda_relax_device(const gg_cuda_data *data, const gg_build_params *params,
									  const uint32_t *knn, const gg_cuda_run &run,
									  uint32_t *forward);
extern gg_status gg_cuda_soften_device(const gg_cuda_data *data, const gg_build_params *params,
									   const uint32_t *united, uint32_t length,
									   const gg_cuda_run &run, uint32_t *graph);

/*
 * GRNND's pools on device memory: lists n x R.  data->side is set where the metric wants it.
 * starts: lists of S keys and more, to start from; keys NULL: from random nodes.  order: n ids,
 * best with those of one cell side by side, or NULL.
 */
extern gg_status gg_cuda_grnnd_device(const gg_cuda_data *data, const gg_build_params *params,
									  const gg_cuda_lists &starts, const uint32_t *order,
									  const gg_cuda_run &run, uint32_t *lists);
/* Its device memory beyond data, starts, order and lists. */
extern uint64_t gg_cuda_grnnd_bytes(uint32_t n, const gg_build_params *params);

/*
 * Pivots for a graph of which knn (n x k, device memory) is known: random rows, and more where none
 * is near.
 */
extern gg_status gg_cuda_choose_pivots(const gg_cuda_knn &knn, uint32_t n, uint64_t seed,
									   const gg_cuda_run &run, std::vector<uint32_t> &pivots);

/*
 * Pivots, and what they reach.  graph, the copy of out->adjacency, is in device memory; where nodes
 * cannot be reached, edges of out->adjacency are replaced or pivots added, and *repaired counts
 * both.  Makes out->pivots and out->pivot_adjacency.
 */
extern gg_status gg_cuda_connect(const gg_cuda_rows *rows, const gg_cuda_knn &knn,
								 const uint32_t *graph, uint64_t seed, const gg_cuda_run &run,
								 gg_graph *out, uint32_t *repaired);
/* Its first half, which looks at no rows: pivots, in their order. */
extern gg_status gg_cuda_connect_nodes(const gg_cuda_knn &knn, const uint32_t *graph, uint64_t seed,
									   const gg_cuda_run &run, gg_graph *out,
									   std::vector<uint32_t> &pivots, uint32_t *repaired);
/* Its second half; rows: those of the pivots alone. */
extern gg_status gg_cuda_link_pivots(const gg_cuda_rows *rows, const std::vector<uint32_t> &pivots,
									 uint64_t seed, const gg_cuda_run &run, gg_graph *out);

/*
 * The chain over rows that are in device memory: out as gg_engine.build makes it, to be freed with
 * gg_graph_free() whatever the status; with input, in host memory, as gg_engine.merge does.
 * transfer_s of stats is the time that copies of the graph and of the input take.
 */
extern gg_status gg_cuda_build_rows(gg_cuda_data *data, const gg_merge_input *input,
									const gg_build_params *params, const gg_cuda_run &run,
									gg_graph *out, gg_build_stats *stats);

/* Its edges alone, before they are connected: graph, n x graph_degree, is allocated here. */
extern gg_status gg_cuda_edges(gg_cuda_data *data, const gg_build_params *params,
							   const gg_cuda_run &run, gg_cuda_buffer<uint32_t> *graph,
							   gg_build_stats *stats);
/* Device memory of the chain, the rows included, beyond the context. */
extern uint64_t gg_cuda_plain_bytes(const gg_dataset *data, const gg_build_params *params);

/*
 * The same by groups of rows, which devices have one after the other: groups.cu.  data is in host
 * memory; room: the rows of a group, at most.
 */
extern gg_status gg_cuda_build_groups(const gg_dataset *data, const gg_build_params *params,
									  const gg_control *control, uint32_t room, cudaStream_t stream,
									  gg_graph *out, gg_build_stats *stats);
/* The room that a budget of device memory allows; *bytes: what is taken of it; 0: too little. */
extern uint32_t gg_cuda_group_room(const gg_dataset *data, const gg_build_params *params,
								   uint64_t budget, uint64_t *bytes);
/* Host memory beyond that of any build, by so many devices. */
extern uint64_t gg_cuda_groups_host_bytes(uint64_t n, int devices);

/*
 * Working copy and k-NN lists of n x gg_cuda_list_length(k) keys, by distances of that copy; order
 * is empty, or has rows of one cell side by side.
 */
extern gg_status gg_cuda_near_lists(gg_cuda_data *data, const gg_build_params *params,
									const gg_cuda_run &run, gg_cuda_working_copy *copy,
									gg_cuda_buffer<uint64_t> *lists,
									gg_cuda_buffer<uint32_t> *order, gg_build_stats *stats);

/*
 * The k-NN lists alone: copy and ids (n x k, device memory, allocated here) are left for what
 * follows.
 */
extern gg_status gg_cuda_knn_rows(gg_cuda_data *data, const gg_build_params *params,
								  const gg_cuda_run &run, gg_cuda_working_copy *copy,
								  gg_cuda_buffer<uint32_t> *ids, gg_cuda_buffer<float> *distances,
								  gg_build_stats *stats);

/*
 * A merge by search (extend.cu): the plan, made of what is in host memory alone.  base: the part
 * whose graph is searched; 0: all is built anew.  others: the rows of no or another part.
 */
typedef struct gg_cuda_extension
{
	uint8_t		base;
	uint32_t	others;
	bool		together;		/* they are one part, whose lists are known */
	uint32_t	width;			/* neighbours that are searched for each of the others */
} gg_cuda_extension;

extern gg_status gg_cuda_extension_plan(const gg_dataset *data, const gg_merge_input *input,
										const gg_build_params *params, const gg_control *control,
										gg_cuda_extension *plan);

/* Where gg_cuda_extend_rows() leaves what it makes; it allocates the buffers. */
typedef struct gg_cuda_extended
{
	gg_cuda_working_copy *copy;
	gg_cuda_buffer<uint32_t> *ids;	/* n x intermediate_graph_degree: lists, or edges */
	gg_cuda_buffer<uint8_t> *changed;	/* n flags: ids has the row's list, nearest first */
	gg_cuda_buffer<uint32_t> *graph;	/* n x graph_degree: edges of rows that are not flagged */
} gg_cuda_extended;

extern gg_status gg_cuda_extend_rows(gg_cuda_data *data, const gg_merge_input *input,
									 const gg_build_params *params, const gg_cuda_extension *plan,
									 const gg_cuda_run &run, const gg_cuda_extended *out,
									 gg_build_stats *stats);

/* The device memory that a merge takes beyond that of a build. */
extern uint64_t gg_cuda_merge_bytes(uint32_t n, const gg_merge_input *input);

/*
 * The end of a stage: without it the next stage's pace would start counting with a queue that is
 * already full.  Costs the device some 10 us of idleness.
 */
static inline gg_status
gg_cuda_drain(cudaStream_t stream, const gg_control *control, const char *where)
{
	GG_TRY(gg_cuda_status(cudaStreamSynchronize(stream), where, "cudaStreamSynchronize"));
	return gg_cuda_check_cancel(control, where);
}

/* What *count, in device memory, says after all that was queued before. */
static inline gg_status
gg_cuda_read_count(const uint32_t *count, cudaStream_t stream, const gg_control *control,
				   uint32_t *out)
{
	GG_CUDA_TRY(cudaMemcpyAsync(out, count, sizeof(uint32_t), cudaMemcpyDeviceToHost, stream));
	return gg_cuda_drain(stream, control, __func__);
}

/*
 * Rows that one launch of a plain pass over all rows takes.  Some ms each; up to 10 where every row
 * has some dozens of atomic operations all over device memory, of which it does a few billion a
 * second.
 */
#define GG_PASS_ROWS ((uint64_t) 1 << 20)

/*
 * Memory that grows with the rows is taken and given back one buffer at a time, and cancellation is
 * asked for after each: the driver maps and unmaps gigabytes in some ms each, and cudaFree() waits
 * for all that is queued besides.
 */
template <typename T>
static inline gg_status
gg_cuda_allocate_large(gg_cuda_buffer<T> *buffer, uint64_t count, const gg_control *control,
					   gg_cuda_meter *meter)
{
	GG_TRY(buffer->allocate(count, meter));
	return gg_cuda_check_cancel(control, __func__);
}

static inline gg_status
gg_cuda_give_back(const gg_control *control, const char *where)
{
	return gg_cuda_check_cancel(control, where);
}

template <typename T, typename... Rest>
static inline gg_status
gg_cuda_give_back(const gg_control *control, const char *where, gg_cuda_buffer<T> &buffer,
				  Rest &... rest)
{
	buffer.release();
	GG_TRY(gg_cuda_check_cancel(control, where));
	return gg_cuda_give_back(control, where, rest...);
}

/*
 * Rows for a launch: `rows`, or beside searches an eighth, which takes some ms: where these share a
 * queue to the device with it, they wait until it has ended.  A multiple of 256 stays one.
 */
static inline uint64_t
gg_cuda_cut(uint64_t rows, const gg_control *control)
{
	if (control == NULL || !control->background || rows <= 256)
		return rows;
	return rows < 8 * 256 ? 256 : rows / (8 * 256) * 256;
}

/* Rows that the launch from row first takes of n, at most `most`. */
static inline uint32_t
gg_cuda_slice(uint64_t n, uint64_t first, uint64_t most)
{
	return (uint32_t) (n - first < most ? n - first : most);
}

/*
 * Launches a kernel for n rows, or what n counts, `most` of them at a time: launch says it, in
 * parentheses, of the `count` rows from `first` on.
 */
#define GG_SWEEP(n, most, run, pace, kernel, launch) \
	for (uint64_t first = 0; first < (n); first += (most)) \
	{ \
		const uint32_t count = gg_cuda_slice(n, first, most); \
 \
		launch; \
		GG_CUDA_LAUNCHED(kernel); \
		GG_TRY((pace).step((run).stream, (run).control, __func__)); \
	}

static inline uint32_t
gg_cuda_blocks(uint64_t items, uint32_t per_block)
{
	return (uint32_t) ((items + per_block - 1) / per_block);
}

#endif							/* GG_CUDA_BUILD_H */
