/*
 * search.cuh
 *		What the search kernels share: the device-resident index, and the pieces of a walk.
 *
 * A walk is the search of Ootomo et al.: "CAGRA: Highly Parallel Graph Construction and Approximate
 * Nearest Neighbor Search for GPUs", 2023, section IV.  A candidate list holds the itopk nearest
 * nodes known; its search_width nearest unexpanded ones are expanded per step, until none is left.
 * That rule is the same in every kernel, and the visited set behind it behaves as a perfect one
 * (below), so which kernel answers does not show in the result.
 *
 * Departures from the paper, and why
 *	1. A walk enters at the best ENTRY_NODES of all pivots instead of at random nodes.
 *	2. Distances of 16 candidates at a time are one product on the tensor cores.  The candidates'
 *	   fp16 rows are the 16 x k operand.  Of the k x 8 one, column 0 is the query rounded to fp16
 *	   and column 1 is what the rounding lost, so the query keeps 22 bits.  That takes about a tenth
 *	   of the instructions of a scalar product per lane.  Four lanes read a row, 64 bytes of it at a
 *	   time, whatever the dimension ("team size" 4).  Wide rows are split over warps; in batches, a
 *	   warp measures them alone, by scalar products of teams of 16 lanes (sum_16_by_teams()).
 *	3. A walk orders its list by fp16 distances.  The rows as stored then give the final order in
 *	   fp32 (search_rerank).
 *
 * Why forgetting is harmless: the visited set may be emptied when it fills, provided that the
 * list's members are put back.  A forgotten node was rejected or pushed out, so the list was full
 * of nearer nodes, and lists only get nearer.  Such a node costs its distance again, and is
 * rejected again.
 *
 * Sort keys are those of warp.cuh; the flag means "expanded".  Comparing keys is comparing
 * (distance, node), since the ids in one list are distinct.
 */
#ifndef GG_SEARCH_CUH
#define GG_SEARCH_CUH

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "../src/request.h"
#include "cuda.h"
#include "warp.cuh"

/* ---- the index on the device -------------------------------------------- */

#define ENTRY_NODES 16			/* pivots that a walk starts from: the nearest of all */
#define MAX_WALK_CANDIDATES 512	/* search_width x degree of one step is held under this */
#define MAX_CLUSTER 16			/* thread blocks of one query; Hopper's largest cluster */
#define MULTI_WARPS 16			/* warps per block of the multi-CTA kernel */
#define WIDE_WARPS 4			/* warps per block of the single-CTA kernel for wide rows */

/* How candidates are measured during the walk; follows rows, metric and memory. */
typedef enum walk_path
{
	WALK_HALF_DOT = 0,			/* fp16 rows on tensor cores: L2, IP, cosine */
	WALK_HALF_L1,				/* fp16 rows, scalar */
	WALK_FLOAT_L2,				/* fp32 rows, scalar */
	WALK_FLOAT_DOT,
	WALK_FLOAT_L1
} walk_path;

/*
 * A path of kernels for WALK_HALF_DOT: scalar products by teams of so many lanes, a power of two up
 * to 32, instead of the tensor cores.  Values, norms and rows are the same.
 */
#define WALK_HALF_TEAMS(lanes) (0x100 + (lanes))

/* Everything a kernel reads; passed by value. */
typedef struct search_view
{
	uint32_t	n;
	uint32_t	dim;
	uint32_t	degree;
	uint32_t	npivots;
	gg_metric	metric;
	gg_element	element;
	walk_path	path;

	const char *rows;			/* as given, n x row_stride bytes, zeros after dim */
	size_t		row_stride;		/* multiple of 16 */
	const char *walk_rows;		/* what the walk reads: (x - mean) * scale in fp16, or rows */
	size_t		walk_stride;	/* multiple of 16 */
	uint32_t	walk_pieces;	/* 16-byte pieces of a walk row that hold elements */
	/* elements that a query has in shared memory: whole 64-byte chunks */
	uint32_t	walk_pad;
	const float *norms;			/* per node: |x|^2 (L2), 1/|x| (cosine over fp16 rows), or NULL */
	const float *mean;			/* dim; NULL when not centred */
	float		scale;			/* power of two */

	const uint32_t *adjacency;	/* n x degree; ids >= n are ignored */
	const uint32_t *pivots;		/* npivots node ids */
	const char *pivot_rows;		/* npivots x walk_stride, packed copies of walk_rows */
	const float *pivot_norms;	/* npivots, or NULL */
} search_view;

/*
 * Queries and answers in the slots of a served region (engine.h, gg_serve_layout): query i of the
 * batch is in slot[i].  A kernel parameter, by value, although it is 2 kB: looked up in host
 * memory, a slot's number would put one more round trip over PCIe, a microsecond or two, before
 * each query.
 */
typedef struct search_slots
{
	char	   *base;			/* slot 0 as the device sees it; NULL: nothing is in slots */
	size_t		slot_bytes;
	size_t		query;			/* offsets from a slot, bytes */
	size_t		keys;			/* ... of the answer: k of them */
	size_t		done;
	uint32_t	slot[GG_SERVE_MAX_BATCH];
	uint32_t	ticket[GG_SERVE_MAX_BATCH];
} search_slots;

/*
 * One launch.  queries and keys are device pointers or mapped host memory; nothing here
 * waits for the device.  Beside it goes a search_slots: when that has a base, answers go to the
 * slots, each followed by its ticket, and keys are NULL; queries are NULL too unless they were
 * copied to device memory before.
 */
typedef struct search_launch
{
	const float *queries;		/* nq x dim, of any length */
	uint32_t	nq;
	uint32_t	k;
	uint32_t	itopk;
	uint32_t	width;			/* parents per step */
	uint64_t   *keys;			/* nq x k, GG_KEY_NONE at the end */
	const uint64_t *entries;	/* nq x nentries keys of pivots, or NULL: score them in the walk */
	uint32_t	nentries;
	char	   *mail;			/* search_multi_mail() bytes of the stream's, or NULL */
} search_launch;

/* What was found out about the device when the index was opened. */
typedef struct search_device
{
	int			ordinal;		/* CUDA's number of it */
	uint32_t	context;		/* gg_cuda_context_id() */
	int			major;			/* of its compute capability */
	int			sms;
	int			shared_bytes;	/* a block's dynamic limit */
	bool		has_clusters;	/* and code that uses them */
	/*
	 * by blocks a query: how many queries of search_multi.cu run at once, each block with a
	 * multiprocessor of its own
	 */
	uint32_t	clusters[MAX_CLUSTER + 1];
} search_device;

/* Parents a step.  One function for every kernel: the walk must not depend on the mode. */
extern uint32_t search_width_for(uint32_t requested, uint32_t itopk, uint32_t degree);

/*
 * search_single.cu: one query per warp (or a block, for some wide rows).  Reads queries several
 * times: they must be in launch->queries.  slots: NULL or as above.
 */
extern cudaError_t search_single_launch(const search_view *view, const search_launch *launch,
										const search_slots *slots, const search_device *device,
										cudaStream_t stream);

extern uint32_t search_single_shared(const search_view *view, const search_launch *launch,
									 const search_device *device);

extern cudaError_t search_single_ready(const search_view *view, const search_device *device);

/* search_multi.cu: one query per several thread blocks */
extern cudaError_t search_multi_launch(const search_view *view, const search_launch *launch,
									   const search_slots *slots, const search_device *device,
									   uint32_t cluster, cudaStream_t stream);
extern cudaError_t search_multi_plan(search_device *device);
extern uint32_t search_multi_shared(const search_view *view, const search_launch *launch,
									const search_device *device);
extern size_t search_multi_mail(const search_device *device);

/*
 * search_greedy.cu: TSDG's search for small batches, by `walks` blocks per query with `nseeds`
 * pivots each (gg_greedy_plan).  lists: nq x walks x GG_GREEDY_LIST of scratch; arrived: nq words
 * that are zero, and are so again afterwards.  Queries and slots as of search_single_launch().
 */
extern cudaError_t search_greedy_launch(const search_view *view, const search_launch *launch,
										const search_slots *slots, uint32_t walks,
										uint32_t nseeds, uint64_t *lists, uint32_t *arrived,
										const search_device *device, cudaStream_t stream);
extern bool search_greedy_takes(const search_view *view, uint32_t k, const search_device *device);

/*
 * search_segmented.cu: TSDG's search for large batches, one query per warp (or a block, for wide
 * rows).  Queries, entries and slots as of search_single_launch(); delta as in gg_search_params.
 */
extern cudaError_t search_segmented_launch(const search_view *view, const search_launch *launch,
										   const search_slots *slots, float delta,
										   const search_device *device, cudaStream_t stream);
extern bool search_segmented_takes(const search_view *view, const search_launch *launch,
								   const search_device *device);

/*
 * pivots.cu: the best ENTRY_NODES pivots of each of nq queries in each of `slices` parts of the
 * pivots, as keys.  halves: nq x walk_pad fp16 of scratch, factors: nq floats of scratch.  queries
 * NULL: they are read from slots, once, and copied to copies (nq x dim).
 */
#define PIVOT_MAX_SLICES 16

extern cudaError_t search_pivots_launch(const search_view *view, const float *queries,
										const search_slots *slots, uint32_t nq, uint32_t slices,
										__half *halves, float *factors, float *copies,
										uint64_t *entries, const search_device *device,
										cudaStream_t stream);
extern uint32_t search_pivots_slices(const search_view *view, uint32_t nq, int sms);

/* What filters have of TIDs, from the host's memory as the device sees it. */
typedef struct gathered_tids
{
	const uint64_t *from[GG_SERVE_MAX_DEEPS];	/* of each query; NULL: none */
	uint32_t	count[GG_SERVE_MAX_DEEPS];	/* at most GG_SHORT_TIDS; 0 beside NULL */
	uint64_t   *to;				/* GG_SHORT_TIDS for each query */
} gathered_tids;

/*
 * serve.cu: the queries of a batch from their slots to copies (nq x dim).  zeros: NULL, or two
 * numbers of each query, GG_SERVE_MAX_DEEPS apart, which become 0.  tids: NULL, or what is copied
 * beside them.
 */
extern cudaError_t search_gather_launch(const search_slots *slots, uint32_t nq, uint32_t dim,
										float *copies, unsigned long long *zeros,
										const gathered_tids *tids, cudaStream_t stream);

/*
 * exact.cu: the k nearest of all rows whose filter bit is set.  filter_stride: words from one
 * query's bits to the next one's, or 0.  slots: NULL or as in search_launch.  part: NULL for all,
 * or as prune.cuh has it.
 * scratch: search_exact_scratch() bytes, zeroed once when allocated.
 */
extern cudaError_t search_exact_launch(const search_view *view, const uint32_t *filter,
									   uint32_t filter_stride, const float *queries,
									   const search_slots *slots, uint32_t nq, uint32_t k,
									   uint64_t *keys,
									   const struct search_part *part, void *scratch,
									   const search_device *device, cudaStream_t stream);
extern size_t search_exact_scratch(uint32_t k, const search_device *device);

/* Shared memory that a block takes at least. */
extern uint32_t search_exact_shared(const search_view *view, uint32_t k);

/* Blocks that will read each query of such a launch, at most. */
extern uint32_t search_exact_readers(const search_view *view, uint32_t nq,
									 const search_device *device);

/*
 * Load what will be launched for an index: the first launch of a kernel else takes milliseconds,
 * and may wait for what the device does.
 */
extern cudaError_t search_multi_ready(const search_view *view, const search_device *device);
extern cudaError_t search_pivots_ready(const search_device *device);
extern cudaError_t search_exact_ready(const search_view *view, const search_device *device);
extern cudaError_t search_gather_ready(void);

/*
 * index.cu: queue a search, or an exact one, on a stream and return.  For callers that keep queries
 * and answers in memory the device sees, and wait by their own means.
 */
extern gg_status gg_cuda_search_enqueue(gg_index *index, const gg_search_params *params,
										const float *queries, uint32_t nq, uint64_t *keys,
										cudaStream_t stream);
extern gg_status gg_cuda_exact_enqueue(gg_index *index, uint32_t k, const uint32_t *filter,
									   const float *queries, uint32_t nq, uint64_t *keys,
									   cudaStream_t stream);

#ifdef __CUDACC__

/* ---- keys ---------------------------------------------------------------- */

/* Floats as unsigned integers of the same order, -0 as +0; NaN sorts with +infinity. */
static __device__ __forceinline__ uint32_t
order_of(float value)
{
	uint32_t	bits = __float_as_uint(value + 0.0f);

	if (value != value)
		bits = 0x7F800000u;
	return bits ^ ((bits >> 31) ? 0xFFFFFFFFu : 0x80000000u);
}

static __device__ __forceinline__ float
value_of(uint64_t key)
{
	uint32_t	order = (uint32_t) (key >> 32);

	return __uint_as_float(order ^ ((order >> 31) ? 0x80000000u : 0xFFFFFFFFu));
}

static __device__ __forceinline__ uint64_t
make_key(float value, uint32_t node)
{
	return ((uint64_t) order_of(value) << 32) | (node << 1);
}

/* First index of keys[0 .. count) whose key is not below `key`. */
static __device__ __forceinline__ uint32_t
lower_bound(const uint64_t *keys, uint32_t count, uint64_t key)
{
	uint32_t	low = 0;

	while (count > 0)
	{
		uint32_t	half = count >> 1;

		if (keys[low + half] < key)
		{
			low += half + 1;
			count -= half + 1;
		}
		else
			count = half;
	}
	return low;
}

/*
 * How many of keys[0 .. count) are below mine, or equal to it and before position `at`.  For a
 * block sorting by counting: every lane reads the same key at once.  keys is 16-byte aligned and
 * ends in GG_KEY_NONE up to the next multiple of COUNT_STEP: eight keys in flight make this five
 * times as fast as one.
 */
#define COUNT_STEP 8

template <bool DISTINCT>
static __device__ __forceinline__ uint32_t
count_below(const uint64_t *keys, uint32_t count, uint64_t mine, uint32_t at)
{
	const ulonglong2 *pairs = (const ulonglong2 *) keys;
	uint32_t	below = 0;

	for (uint32_t j = 0; j < count; j += COUNT_STEP)
	{
		ulonglong2	pair[COUNT_STEP / 2];

#pragma unroll
		for (int u = 0; u < COUNT_STEP / 2; u++)
			pair[u] = pairs[j / 2 + u];
#pragma unroll
		for (int u = 0; u < COUNT_STEP / 2; u++)
		{
			below += pair[u].x < mine;
			below += pair[u].y < mine;
			if (!DISTINCT)
			{
				below += pair[u].x == mine && j + 2 * u < at;
				below += pair[u].y == mine && j + 2 * u + 1 < at;
			}
		}
	}
	return below;
}

/* One key per lane, ascending over the warp. */
static __device__ __forceinline__ uint64_t
warp_sort(uint64_t key)
{
	uint64_t	keys[1] = {key};

	gg_sort<1>(keys);
	return keys[0];
}

/* The 32 lowest of two ascending warps of keys, ascending. */
static __device__ __forceinline__ uint64_t
warp_merge(uint64_t a, uint64_t b, uint32_t lane)
{
	uint64_t	reversed = __shfl_sync(GG_FULL_WARP, (unsigned long long) b, 31 - lane);
	uint64_t	keys[1] = {a < reversed ? a : reversed};

	gg_sort_bitonic<1>(keys);
	return keys[0];
}

/*
 * Merge count <= 32 keys (any order, in shared memory) into an ascending list of `length` keys,
 * dropping what falls off its end.  One warp; pending must have room for 64 keys: its second half
 * takes the sorted ones.  From `used` on the list is known to hold only GG_KEY_NONE, which need not
 * move; length when that is not known.  Ranks by counting: reads are broadcasts, and count is
 * small.
 *
 * In place: blocks of 32 move up by at most 32, highest first, so a write never reaches a key that
 * is still to be read.
 */
static __device__ __forceinline__ void
warp_merge_list(uint64_t *list, uint32_t length, uint32_t used, uint64_t *pending, uint32_t count,
				uint32_t lane)
{
	uint64_t   *sorted = pending + 32;
	uint64_t	mine = lane < count ? pending[lane] : GG_KEY_NONE;
	uint32_t	rank = 0;
	uint32_t	position = length;
	uint32_t	first;

	for (uint32_t j = 0; j < count; j++)
		rank += pending[j] < mine;
	if (lane < count)
		sorted[rank] = mine;
	if (lane < count)
		position = rank + lower_bound(list, length, mine);
	__syncwarp();

	/* below the lowest new key nothing moves */
	first = __reduce_min_sync(GG_FULL_WARP, lane < count ? position - rank : length);
	for (int base = (int) ((used - 1) & ~31u); base + 31 >= (int) first; base -= 32)
	{
		uint32_t	at = base + lane;
		uint64_t	key = at < length ? list[at] : GG_KEY_NONE;
		uint32_t	to = at;

		if (at >= first && at < length)
			to += lower_bound(sorted, count, key);
		__syncwarp();
		if (at >= first && to < length)
			list[to] = key;
		__syncwarp();
	}
	if (lane < count && position < length)
		list[position] = mine;
	__syncwarp();
}

/* ---- the visited set ------------------------------------------------------ */

#define HASH_EMPTY 0xFFFFFFFFu

/*
 * True when node was not there yet; it is now.  Double hashing: a warp waits for its unluckiest
 * lane, and linear probing's long runs took half of the walk's instructions.
 */
static __device__ __forceinline__ bool
visit(uint32_t *hash, uint32_t bits, uint32_t node)
{
	uint32_t	product = node * 0x9E3779B1u;
	uint32_t	slot = product >> (32 - bits);
	uint32_t	stride = product | 1;

	for (;;)
	{
		uint32_t	seen = ((volatile uint32_t *) hash)[slot];

		if (seen == HASH_EMPTY)
			seen = atomicCAS(&hash[slot], HASH_EMPTY, node);
		if (seen == HASH_EMPTY)
			return true;
		if (seen == node)
			return false;
		slot = (slot + stride) & ((1u << bits) - 1);
	}
}

/* ---- where queries come from and answers go --------------------------------- */

/* Query number `query` of the launch. */
static __device__ __forceinline__ const float *
query_of(const float *queries, const search_slots &slots, uint32_t query, uint32_t dim)
{
	if (queries != NULL)
		return queries + (size_t) query * dim;
	return (const float *) (slots.base + slots.slot[query] * slots.slot_bytes + slots.query);
}

/* Where the k keys of its answer go. */
static __device__ __forceinline__ uint64_t *
keys_of(uint64_t *keys, const search_slots &slots, uint32_t query, uint32_t k)
{
	if (keys != NULL)
		return keys + (size_t) query * k;
	return (uint64_t *) (slots.base + slots.slot[query] * slots.slot_bytes + slots.keys);
}

static __device__ __forceinline__ void
ticket_store(uint32_t *done, uint32_t ticket)
{
	__threadfence_system();
	asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(done), "r"(ticket) : "memory");
}

/*
 * The answer is complete: tell whoever waits.  By one thread, after a barrier of all that wrote it;
 * the barrier and the fence together order their stores before the ticket, for the host too.  The
 * slot may belong to another query a moment later, so nothing of it may be read or written
 * afterwards.
 */
static __device__ __forceinline__ void
answered(const search_slots &slots, uint32_t query)
{
	uint32_t   *done = (uint32_t *) (slots.base + slots.slot[query] * slots.slot_bytes +
									 slots.done);

	ticket_store(done, slots.ticket[query]);
}

/* ---- queries --------------------------------------------------------------- */

/* Lanes of a team of WALK_HALF_TEAMS(lanes); 0 on other paths. */
static __host__ __device__ constexpr uint32_t
team_of(int path)
{
	return path > WALK_HALF_TEAMS(0) ? path - WALK_HALF_TEAMS(0) : 0;
}

/* Whether a path measures fp16 rows by products. */
static __host__ __device__ constexpr bool
is_half_product(int path)
{
	return path == WALK_HALF_DOT || team_of(path) > 0;
}

/* Barrier and reductions of a group of WARPS warps: a warp or a whole block. */
template <int WARPS>
static __device__ __forceinline__ void
group_sync(void)
{
	if (WARPS == 1)
		__syncwarp();
	else
		__syncthreads();
}

template <int WARPS, bool MAXIMUM>
static __device__ __forceinline__ float
group_reduce(float value, float *scratch)
{
#pragma unroll
	for (int offset = 16; offset > 0; offset >>= 1)
	{
		float		other = __shfl_xor_sync(GG_FULL_WARP, value, offset);

		value = MAXIMUM ? fmaxf(value, other) : value + other;
	}
	if (WARPS > 1)
	{
		__syncthreads();
		if ((threadIdx.x & 31) == 0)
			scratch[threadIdx.x >> 5] = value;
		__syncthreads();
		value = scratch[0];
#pragma unroll
		for (int i = 1; i < WARPS; i++)
			value = MAXIMUM ? fmaxf(value, scratch[i]) : value + scratch[i];
	}
	return value;
}

/* 1 / |q| under cosine (0 for a zero query, whose distances are all 1), 1 otherwise */
template <int WARPS>
static __device__ __forceinline__ float
query_inverse_norm(const search_view &view, const float *raw, float *scratch)
{
	float		sum = 0;

	if (view.metric != GG_METRIC_COSINE)
		return 1;
	for (uint32_t i = threadIdx.x; i < view.dim; i += WARPS * 32)
		sum += raw[i] * raw[i];
	sum = group_reduce<WARPS, false>(sum, scratch);
	return sum > 0 ? 1 / sqrtf(sum) : 0;
}

/* Element i of the query in the walk rows' coordinates. */
static __device__ __forceinline__ float
query_element(const search_view &view, const float *raw, float inverse, uint32_t i)
{
	float		value;

	if (i >= view.dim)
		return 0;
	value = raw[i] * inverse;
	/* under dot products the mean adds the same to every row: leave the query alone */
	if (view.mean != NULL && (view.metric == GG_METRIC_L2 || view.metric == GG_METRIC_L1))
		value -= view.mean[i];
	return value * view.scale;
}

/*
 * The power of two that brings a query's largest element to about 2^10: far from fp16's overflow,
 * and low enough that the second column, 2^-11 of the first, stays a normal number.
 */
static __device__ __forceinline__ float
query_scale(float largest)
{
	int			exponent;

	if (!(largest > 0) || largest > 3e38f)
		return 1;
	frexpf(largest, &exponent);
	exponent = min(max(10 - exponent, -120), 120);
	return ldexpf(1, exponent);
}

/*
 * Make a query ready in shared memory.  WALK_HALF_DOT: walk_pad halves of the high parts, then
 * walk_pad of the low ones.  Other paths: walk_pad floats.  Returns the factor that turns a product
 * of fp16 rows into its share of a distance.
 */
template <int PATH, int WARPS>
static __device__ __forceinline__ float
query_prepare(const search_view &view, const float *raw, float inverse, void *prepared,
			  float *scratch)
{
	float		factor = 1;

	if (is_half_product(PATH))
	{
		float	   *floats = (float *) prepared;
		__half	   *high = (__half *) prepared;
		__half	   *low = high + view.walk_pad;
		float		largest = 0;
		float		scale;

		for (uint32_t i = threadIdx.x; i < view.walk_pad; i += WARPS * 32)
			largest = fmaxf(largest, fabsf(query_element(view, raw, inverse, i)));
		largest = group_reduce<WARPS, true>(largest, scratch);
		scale = query_scale(largest);
		for (uint32_t i = threadIdx.x; i < view.walk_pad; i += WARPS * 32)
		{
			float		value = query_element(view, raw, inverse, i) * scale;
			__half		part = __float2half_rn(value);

			if (team_of(PATH) > 0)
			{
				floats[i] = value;
				continue;
			}
			high[i] = part;
			low[i] = __float2half_rn(value - __half2float(part));
		}
		factor = (view.metric == GG_METRIC_L2 ? -2.0f : -1.0f) / scale;
	}
	else
	{
		float	   *floats = (float *) prepared;

		for (uint32_t i = threadIdx.x; i < view.walk_pad; i += WARPS * 32)
			floats[i] = query_element(view, raw, inverse, i);
	}
	group_sync<WARPS>();
	return factor;
}

/* ---- walk distances --------------------------------------------------------- */

static __device__ __forceinline__ uint4
load_piece(const char *row, uint32_t piece, bool valid)
{
	uint4		value = make_uint4(0, 0, 0, 0);

	if (valid)
		asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
					 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
					 : "l"(row + (size_t) piece * 16));
	return value;
}

template <int PATH>
static __device__ __forceinline__ float
scalar_piece(uint4 row, const float *query, float sum)
{
	if (PATH == WALK_HALF_L1)
	{
		const __half2 *halves = (const __half2 *) &row;

#pragma unroll
		for (int i = 0; i < 4; i++)
		{
			float2		x = __half22float2(halves[i]);

			sum += fabsf(x.x - query[2 * i]) + fabsf(x.y - query[2 * i + 1]);
		}
	}
	else
	{
		const float *x = (const float *) &row;

#pragma unroll
		for (int i = 0; i < 4; i++)
		{
			float		difference = x[i] - query[i];

			if (PATH == WALK_FLOAT_L2)
				sum += difference * difference;
			else if (PATH == WALK_FLOAT_DOT)
				sum += x[i] * query[i];
			else
				sum += fabsf(difference);
		}
	}
	return sum;
}

/* Eight products of an fp16 piece. */
static __device__ __forceinline__ float
product_piece(uint4 row, const float *query, float sum)
{
	const __half2 *halves = (const __half2 *) &row;
	const float4 low = *(const float4 *) query;
	const float4 high = *(const float4 *) (query + 4);
	const float2 x[4] = {__half22float2(halves[0]), __half22float2(halves[1]),
						 __half22float2(halves[2]), __half22float2(halves[3])};

	sum = fmaf(x[0].x, low.x, fmaf(x[0].y, low.y, fmaf(x[1].x, low.z, fmaf(x[1].y, low.w, sum))));
	return fmaf(x[2].x, high.x, fmaf(x[2].y, high.y, fmaf(x[3].x, high.z,
														   fmaf(x[3].y, high.w, sum))));
}

#define PIECES_IN_FLIGHT 8		/* a lane's, of 16 bytes, loaded before the first is used */

/*
 * Products of 16 rows by teams of TEAM lanes; arguments and result as of sum_16_rows().  Each team
 * reads up to PIECES_IN_FLIGHT of its rows side by side, so that a piece of the query is read from
 * shared memory once for all of them.
 */
template <uint32_t TEAM>
static __device__ __forceinline__ float
sum_16_by_teams(const char *row_a, const char *row_b, uint32_t begin, uint32_t end,
				uint32_t pieces, const float *query, uint32_t lane)
{
	constexpr uint32_t at_once = 32 / TEAM;	/* rows that the warp reads, one a team */
	constexpr uint32_t passes = TEAM / 2;	/* that 16 rows take */
	constexpr uint32_t ahead = passes < PIECES_IN_FLIGHT ? passes : PIECES_IN_FLIGHT;
	constexpr uint32_t depth = PIECES_IN_FLIGHT / ahead;	/* pieces of each row in flight */
	const uint32_t last = min(end * 4, pieces);
	const uint32_t wanted = lane & 15;
	float		result = 0;

#pragma unroll 1
	for (uint32_t pass = 0; pass < passes; pass += ahead)
	{
		const char *rows[ahead];
		float		sums[ahead];

#pragma unroll
		for (uint32_t j = 0; j < ahead; j++)
		{
			const uint32_t row = (pass + j) * at_once + lane / TEAM;
			const unsigned long long a = __shfl_sync(GG_FULL_WARP, (unsigned long long) row_a,
													 (row & 7) * 4);
			const unsigned long long b = __shfl_sync(GG_FULL_WARP, (unsigned long long) row_b,
													 (row & 7) * 4);

			rows[j] = (const char *) (row < 8 ? a : b);
			sums[j] = 0;
		}
		for (uint32_t base = begin * 4; base < last; base += TEAM * depth)
		{
			uint4		x[ahead][depth];

#pragma unroll
			for (uint32_t j = 0; j < ahead; j++)
#pragma unroll
				for (uint32_t d = 0; d < depth; d++)
				{
					const uint32_t piece = base + d * TEAM + lane % TEAM;

					x[j][d] = load_piece(rows[j], piece, piece < last && rows[j] != NULL);
				}
#pragma unroll
			for (uint32_t d = 0; d < depth; d++)
			{
				const uint32_t piece = base + d * TEAM + lane % TEAM;

				if (piece < last)
#pragma unroll
					for (uint32_t j = 0; j < ahead; j++)
						sums[j] = product_piece(x[j][d], query + piece * 8, sums[j]);
			}
		}
#pragma unroll
		for (uint32_t j = 0; j < ahead; j++)
		{
#pragma unroll
			for (int stride = TEAM / 2; stride > 0; stride /= 2)
				sums[j] += __shfl_xor_sync(GG_FULL_WARP, sums[j], stride);

			const float value = __shfl_sync(GG_FULL_WARP, sums[j], wanted % at_once * TEAM);

			if (wanted / at_once == pass + j)
				result = value;
		}
	}
	return result;
}

#define CHUNKS_IN_FLIGHT 4		/* 64-byte chunks a row loaded before the first is used */

/*
 * Raw sums (products, or sums of differences) of 16 rows over chunks [begin, end) of 64 bytes.
 * Lane l reads rows l / 4 and l / 4 + 8, piece l % 4 of each chunk; NULL rows read as zeros.
 * Lane l gets the sum of row l % 16.
 */
template <int PATH>
static __device__ __forceinline__ float
sum_16_rows(const char *row_a, const char *row_b, uint32_t begin, uint32_t end, uint32_t pieces,
			const void *query, uint32_t walk_pad, uint32_t lane)
{
	uint32_t	part = lane & 3;
	float		sum_a,
				sum_b;

	if constexpr (team_of(PATH) > 0)
		return sum_16_by_teams<team_of(PATH)>(row_a, row_b, begin, end, pieces,
											  (const float *) query, lane);
	if (PATH == WALK_HALF_DOT)
	{
		/* lanes 0-3 hold the high parts (column 0), 4-7 the low ones (column 1), others zeros */
		const uint4 *column = (const uint4 *) ((const __half *) query + (lane >= 4 ? walk_pad : 0));
		float		even[4] = {0, 0, 0, 0};
		float		odd[4] = {0, 0, 0, 0};

		for (uint32_t chunk = begin; chunk < end; chunk += CHUNKS_IN_FLIGHT)
		{
			uint4		a[CHUNKS_IN_FLIGHT];
			uint4		b[CHUNKS_IN_FLIGHT];

#pragma unroll
			for (int u = 0; u < CHUNKS_IN_FLIGHT; u++)
			{
				uint32_t	piece = (chunk + u) * 4 + part;
				bool		inside = chunk + u < end && piece < pieces;

				a[u] = load_piece(row_a, piece, inside && row_a != NULL);
				b[u] = load_piece(row_b, piece, inside && row_b != NULL);
			}
#pragma unroll
			for (int u = 0; u < CHUNKS_IN_FLIGHT; u++)
			{
				uint4		q = make_uint4(0, 0, 0, 0);

				if (chunk + u >= end)
					break;
				if (lane < 8)
					q = column[(chunk + u) * 4 + part];
				gg_mma(even, a[u].x, b[u].x, a[u].y, b[u].y, q.x, q.y);
				gg_mma(odd, a[u].z, b[u].z, a[u].w, b[u].w, q.z, q.w);
			}
		}
		/* in lanes 4 g, the two columns of rows g and g + 8 */
		sum_a = (even[0] + odd[0]) + (even[1] + odd[1]);
		sum_b = (even[2] + odd[2]) + (even[3] + odd[3]);
	}
	else
	{
		const uint32_t elements = PATH == WALK_HALF_L1 ? 8 : 4;
		const float *floats = (const float *) query;

		sum_a = sum_b = 0;
		for (uint32_t chunk = begin; chunk < end; chunk += CHUNKS_IN_FLIGHT)
		{
			uint4		a[CHUNKS_IN_FLIGHT];
			uint4		b[CHUNKS_IN_FLIGHT];

#pragma unroll
			for (int u = 0; u < CHUNKS_IN_FLIGHT; u++)
			{
				uint32_t	piece = (chunk + u) * 4 + part;
				bool		inside = chunk + u < end && piece < pieces;

				a[u] = load_piece(row_a, piece, inside && row_a != NULL);
				b[u] = load_piece(row_b, piece, inside && row_b != NULL);
			}
#pragma unroll
			for (int u = 0; u < CHUNKS_IN_FLIGHT; u++)
			{
				uint32_t	piece = (chunk + u) * 4 + part;

				if (chunk + u < end && piece < pieces)
				{
					sum_a = scalar_piece<PATH>(a[u], floats + piece * elements, sum_a);
					sum_b = scalar_piece<PATH>(b[u], floats + piece * elements, sum_b);
				}
			}
		}
		sum_a += __shfl_xor_sync(GG_FULL_WARP, sum_a, 1);
		sum_b += __shfl_xor_sync(GG_FULL_WARP, sum_b, 1);
		sum_a += __shfl_xor_sync(GG_FULL_WARP, sum_a, 2);
		sum_b += __shfl_xor_sync(GG_FULL_WARP, sum_b, 2);
	}
	sum_a = __shfl_sync(GG_FULL_WARP, sum_a, (lane & 7) * 4);
	sum_b = __shfl_sync(GG_FULL_WARP, sum_b, (lane & 7) * 4);
	return (lane & 8) ? sum_b : sum_a;
}

/*
 * A node's norm, 0 where there are none.  Asked for before the node's row, so that one latency
 * covers both.
 */
static __device__ __forceinline__ float
load_norm(const float *norms, uint32_t at, bool valid)
{
	float		norm = 0;

	if (valid && norms != NULL)
		asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(norm) : "l"(norms + at));
	return norm;
}

/* From a raw sum to a number ordered like the distance. */
template <int PATH>
static __device__ __forceinline__ float
walk_value(const search_view &view, float sum, float factor, float norm)
{
	if (is_half_product(PATH))
	{
		float		value = factor * sum;

		if (view.norms != NULL)
			value = view.metric == GG_METRIC_L2 ? value + norm : value * norm;
		return value;
	}
	return PATH == WALK_FLOAT_DOT ? -sum : sum;
}

static __device__ __forceinline__ uint32_t
walk_chunks(const search_view &view)
{
	return (view.walk_pieces + 3) / 4;
}

/* ---- exact distances --------------------------------------------------------- */

/* One 16-byte piece of a row as stored against the same elements of the query. */
template <typename ELEMENT, int METRIC>
static __device__ __forceinline__ void
exact_piece(const uint4 &piece, const float (&q)[16 / sizeof(ELEMENT)], float &sum, float &square)
{
	const ELEMENT *x = (const ELEMENT *) &piece;

#pragma unroll
	for (int i = 0; i < 16 / (int) sizeof(ELEMENT); i++)
	{
		float		value = (float) x[i];
		float		difference = value - q[i];

		if (METRIC == GG_METRIC_L2)
			sum += difference * difference;
		else if (METRIC == GG_METRIC_L1)
			sum += fabsf(difference);
		else
			sum += value * q[i];
		if (METRIC == GG_METRIC_COSINE && sizeof(ELEMENT) == 2)
			square += value * value;
	}
}

/* The distance that the SQL operator orders by, from the sums over a row. */
template <typename ELEMENT, int METRIC>
static __device__ __forceinline__ float
exact_value(float sum, float square, float inverse)
{
	float		value = sum;

	/* not -sum: a distance of 0 has one sign, and such rows go by their ids as other ties do */
	if (METRIC == GG_METRIC_IP)
		value = 0.0f - sum;
	if (METRIC == GG_METRIC_COSINE)
	{
		value = sum * inverse;
		if (sizeof(ELEMENT) == 2)
			value = square > 0 ? value / sqrtf(square) : 0;
		value = fminf(fmaxf(1 - value, 0.0f), 2.0f);
		/* fmaxf swallows NaN; a sum that overflowed must not look near */
		if (!isfinite(sum))
			value = INFINITY;
	}
	return value == value ? value : INFINITY;
}

/*
 * Distances of ROWS nodes by one warp, every lane gets all; PIECES pieces of each are in flight a
 * lane.  The order of additions depends on the dimension alone: the same bits in every kernel.
 */
template <typename ELEMENT, int METRIC, int ROWS, int PIECES>
static __device__ __forceinline__ void
exact_rows(const search_view &view, const uint32_t (&nodes)[ROWS], const float *raw, float inverse,
		   uint32_t lane, float (&values)[ROWS])
{
	const int	elements = 16 / (int) sizeof(ELEMENT);
	uint32_t	pieces = (view.dim + elements - 1) / elements;
	float		sum[ROWS];
	float		square[ROWS];

#pragma unroll
	for (int r = 0; r < ROWS; r++)
		sum[r] = square[r] = 0;
	for (uint32_t first = lane; first < pieces; first += 32 * PIECES)
	{
		uint4		x[PIECES][ROWS];

#pragma unroll
		for (int u = 0; u < PIECES; u++)
#pragma unroll
			for (int r = 0; r < ROWS; r++)
				x[u][r] = load_piece(view.rows + (size_t) nodes[r] * view.row_stride,
									 first + u * 32, nodes[r] < view.n && first + u * 32 < pieces);
#pragma unroll
		for (int u = 0; u < PIECES; u++)
		{
			uint32_t	at = (first + u * 32) * elements;
			float		q[elements];

			if (at >= view.dim)
				break;
#pragma unroll
			for (int i = 0; i < elements; i++)
				q[i] = at + i < view.dim ? raw[at + i] : 0;
#pragma unroll
			for (int r = 0; r < ROWS; r++)
				exact_piece<ELEMENT, METRIC>(x[u][r], q, sum[r], square[r]);
		}
	}
#pragma unroll
	for (int r = 0; r < ROWS; r++)
	{
#pragma unroll
		for (int offset = 16; offset > 0; offset >>= 1)
		{
			sum[r] += __shfl_xor_sync(GG_FULL_WARP, sum[r], offset);
			if (METRIC == GG_METRIC_COSINE && sizeof(ELEMENT) == 2)
				square[r] += __shfl_xor_sync(GG_FULL_WARP, square[r], offset);
		}
		values[r] = exact_value<ELEMENT, METRIC>(sum[r], square[r], inverse);
	}
}

template <int ROWS, int PIECES>
static __device__ __forceinline__ void
exact_nodes(const search_view &view, const uint32_t (&nodes)[ROWS], const float *raw, float inverse,
			uint32_t lane, float (&values)[ROWS])
{
	bool		wide = view.element == GG_ELEMENT_F32;

	switch (view.metric)
	{
		case GG_METRIC_L2:
			if (wide)
				exact_rows<float, GG_METRIC_L2, ROWS, PIECES>(view, nodes, raw, inverse, lane,
															  values);
			else
				exact_rows<__half, GG_METRIC_L2, ROWS, PIECES>(view, nodes, raw, inverse, lane,
															   values);
			break;
		case GG_METRIC_IP:
			if (wide)
				exact_rows<float, GG_METRIC_IP, ROWS, PIECES>(view, nodes, raw, inverse, lane,
															  values);
			else
				exact_rows<__half, GG_METRIC_IP, ROWS, PIECES>(view, nodes, raw, inverse, lane,
															   values);
			break;
		case GG_METRIC_COSINE:
			if (wide)
				exact_rows<float, GG_METRIC_COSINE, ROWS, PIECES>(view, nodes, raw, inverse, lane,
																  values);
			else
				exact_rows<__half, GG_METRIC_COSINE, ROWS, PIECES>(view, nodes, raw, inverse, lane,
																   values);
			break;
		default:
			if (wide)
				exact_rows<float, GG_METRIC_L1, ROWS, PIECES>(view, nodes, raw, inverse, lane,
															  values);
			else
				exact_rows<__half, GG_METRIC_L1, ROWS, PIECES>(view, nodes, raw, inverse, lane,
															   values);
			break;
	}
}

/* How many of the walk's list are measured exactly for the answer: see search_rerank_count. */
static __device__ __host__ __forceinline__ uint32_t
search_rerank_count(uint32_t itopk, uint32_t k)
{
	/*
	 * fp16 rounding moves a node by a few ranks, never by tens; half as many again plus a
	 * constant leaves room, and halves the fp32 bytes of the usual k = 10, itopk = 64.
	 */
	uint32_t	count = k + k / 2 + 16;

	return count < itopk ? count : itopk;
}

#endif							/* __CUDACC__ */
#endif							/* GG_SEARCH_CUH */
