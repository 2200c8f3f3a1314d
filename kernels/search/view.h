/*
 * view.h
 *		What every search kernel is given: the index on the device, a launch, the device.
 *
 *	search_multi.cu			walks by several thread blocks per query
 *	search_group.cu			the same of many indexes for one query
 *	search_block.cuh		what these two share; search_peers.cuh: the blocks of a query
 *	search_single.cu		walks by a warp or a block per query
 *	search_greedy.cu		TSDG's search for small batches
 *	search_segmented.cu		TSDG's search for large batches
 *	search_warp.cuh			what the three last ones share
 *	walk.cuh, rerank.cuh	distances, by the rows of walks and by those as stored
 *	codes.cu, codes.cuh		codes of rows, and queries for them
 *	query.cuh, keys.cuh		queries and answers
 *	pivots.cu				the entry points of walks
 *	exact.cu				the nearest of all rows
 *	measure.cu				keys of rows in memory, and the k-th smallest
 *	bounds.cu				keys of records in memory, with bounds of distances
 *	prune.cu				which of many rows may be near several queries, by tensor cores
 *	gather.cu				queries from the slots to the device
 *	launch.cuh				how these kernels are launched
 */
#ifndef GG_SEARCH_VIEW_H
#define GG_SEARCH_VIEW_H

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "../../src/engine/request.h"
#include "../common/cuda.h"

#define ENTRY_NODES 16			/* nearest pivots that a walk starts from; long lists: more */
#define MAX_WALK_CANDIDATES 512	/* search_width x degree, at most */
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
	WALK_FLOAT_L1,
	WALK_CODE8,					/* codes of 8 and 4 bits on tensor cores: L2, IP, cosine */
	WALK_CODE4,
	WALK_CODE_L1				/* codes of 8 or 4 bits, scalar: L1 */
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

	/* as given, n x row_stride bytes, zeros after dim; in host memory, or NULL, only with codes */
	const char *rows;
	size_t		row_stride;		/* multiple of 16 */
	/* what the walk reads: (x - mean) * scale in fp16, or rows, or records of codes */
	const char *walk_rows;
	size_t		walk_stride;	/* multiple of 16 */
	/* quads of a walk row that hold elements; a record has its head in the last one */
	uint32_t	walk_quads;
	/* elements that a query has in shared memory, 4 bytes each: whole 64-byte chunks */
	uint32_t	walk_pad;
	uint32_t	code_bits;		/* of an element; 0: there are no codes */
	const float *code_weights;	/* rounds x dim of the rotation (codes.h) */
	const float *code_mean;		/* dim, what codes are centred by; NULL: they are not */
	int			code_mean_exponent;
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
	gg_search_params params;	/* search_width and rerank chosen: rerank is k .. itopk_size */
	uint64_t   *keys;			/* nq x k, GG_KEY_NONE at the end */
	const uint64_t *entries;	/* nq x nentries keys of pivots, or NULL: score them in the walk */
	uint32_t	nentries;
	char	   *mail;			/* search_multi_mail() bytes of the stream's, or NULL */
} search_launch;

/* How many of a list by fp16 distances are measured exactly for the answer. */
static inline uint32_t
search_rerank_size(uint32_t itopk, uint32_t k)
{
	/*
	 * fp16 rounding moves a node by a few ranks, never by tens; half as many again plus a
	 * constant leaves room, and halves the fp32 bytes of the usual k = 10, itopk = 64.
	 */
	uint32_t	count = k + k / 2 + 16;

	return count < itopk ? count : itopk;
}

/* What was found out about the device when the index was opened. */
typedef struct search_device
{
	int			ordinal;		/* CUDA's number of it */
	uint32_t	context;		/* gg_cuda_context_id() */
	int			major;			/* of its compute capability */
	int			sms;
	int			shared_bytes;	/* a block's dynamic limit */
	bool		has_clusters;	/* the device runs code that uses clusters */
	/*
	 * by blocks a query: how many queries of search_multi.cu run at once, each block with a
	 * multiprocessor of its own
	 */
	uint32_t	clusters[MAX_CLUSTER + 1];
} search_device;

#endif							/* GG_SEARCH_VIEW_H */
