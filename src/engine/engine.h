/*
 * engine.h
 *		The line between PostgreSQL and the graph engines.
 *
 * What is above this header knows pages, snapshots and ereport().  What is below it knows rows,
 * graphs and distances, and includes no PostgreSQL header.  A function that can fail returns a
 * gg_status.  Nothing longjmps across the line: callbacks report failure by returning false.
 *
 * Two engines implement gg_engine.  gg_cpu_engine (src/engine/cpu/) is always there and is the
 * oracle of the other; gg_cuda_engine (kernels/) is there when built with nvcc.  walk.h has the CPU
 * engine's search by itself.
 *
 * Conventions
 *	- A data set is n rows of dim elements, row-major and without padding: row i starts at byte
 *	  i * dim * gg_element_size(element).  Products of a row and a stride are 64-bit.
 *	- n is at most GG_MAX_NODES, dim is 1 .. GG_MAX_DIM.
 *	- Queries are float32, whatever the rows are.
 *	- Distances are float32 and ordered like the SQL operator.  Smaller is nearer, and ties go to
 *	  the lower node id:
 *		GG_METRIC_L2		squared Euclidean distance
 *		GG_METRIC_IP		negative inner product
 *		GG_METRIC_COSINE	1 - cos(row, query), in [0, 2]
 *		GG_METRIC_L1		sum of absolute differences
 *	  A distance that comes out as NaN (overflow: inf - inf) counts as +infinity.
 *	- Under cosine, float32 rows are stored with unit length, and float16 rows as given: a unit row
 *	  that is rounded to half loses the order of near ties.  The engines' searches take queries of
 *	  any length; gg_distance_fn takes prepared ones, see gg_query_prepare().
 *	- An out parameter is set only with GG_OK, unless stated otherwise.  Besides the errors named at
 *	  a function, one that touches a device may return GG_EDEVICE, and one that takes memory
 *	  GG_ENOMEM or GG_EDEVICE_MEMORY.
 *
 * Papers
 *	[GNND]	Wang, Zhao, Zeng, Yang: "Fast k-NN Graph Construction by GPU based NN-Descent", 2021.
 *	[CAGRA]	Ootomo, Naruse, Nolet, Wang, Feher, Wang: "CAGRA: Highly Parallel Graph Construction and
 *			Approximate Nearest Neighbor Search for GPUs", 2023.
 *	[TSDG]	Wang, Wang, Zhao: "Graph-based Approximate NN Search: A Revisit", 2022.
 *	[GRNND]	Li, Li, Chang, Miyazaki: "GRNND: A GPU-Parallel Relative NN-Descent Algorithm for
 *			Efficient Approximate Nearest Neighbor Graph Construction", 2025.
 * doc/papers.md tells where we depart from them.
 */
#ifndef GG_ENGINE_H
#define GG_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GG_MAX_DIM		16000u		/* pgvector's type limit */
#define GG_MAX_NODES	0x7FFF0000u /* below 2^31 by more than any step of a loop */
#define GG_NO_NODE		0xFFFFFFFFu /* fills unused slots at the end of a list */
#define GG_EDGE_MARK	0x80000000u /* on a node id in adjacency, see gg_graph */
#define GG_MAX_DEGREE	512u		/* of any graph, intermediate ones included */
#define GG_MAX_ITOPK	1024u		/* of index_search; the walk has no such limit */
#define GG_PIVOT_DEGREE 16u			/* out-degree of the graph over the pivots */

/* ---- status ------------------------------------------------------------ */

typedef enum gg_code
{
	GG_OK = 0,
	GG_EINVAL,					/* the caller broke a stated precondition */
	GG_ENOMEM,					/* host memory */
	GG_EDEVICE_MEMORY,			/* device memory: another engine may still serve */
	GG_ENODEVICE,				/* no usable device or driver */
	GG_EDEVICE,					/* a device call failed; device_error says how */
	GG_ECANCELED,				/* gg_control.cancelled said so */
	GG_ECALLBACK,				/* a gg_source callback returned false */
	GG_EUNSUPPORTED				/* this engine, or this device, is well but does not do that */
} gg_code;

typedef struct gg_status
{
	gg_code		code;
	int			device_error;	/* cudaError_t, 0 when not a device's */
	const char *where;			/* static string: the function that failed */
	char		message[192];	/* lower-case fact with its numbers, "" when GG_OK */
} gg_status;

static inline gg_status
gg_ok(void)
{
	gg_status	status = {GG_OK, 0, "", ""};

	return status;
}

/* A failure that is not a device's.  where: the function that failed; format: of message. */
extern gg_status gg_fail(gg_code code, const char *where, const char *format, ...)
			__attribute__((format(printf, 3, 4)));

/* ---- data -------------------------------------------------------------- */

/* Values are on disk: never renumber. */
typedef enum gg_metric
{
	GG_METRIC_L2 = 1,
	GG_METRIC_IP = 2,
	GG_METRIC_COSINE = 3,
	GG_METRIC_L1 = 4
} gg_metric;

typedef enum gg_element
{
	GG_ELEMENT_F32 = 1,
	GG_ELEMENT_F16 = 2			/* IEEE 754 binary16 */
} gg_element;

static inline size_t
gg_element_size(gg_element element)
{
	return element == GG_ELEMENT_F16 ? 2 : 4;
}

/*
 * Codes of rows, 8 or 4 bits an element.  Where there are codes, walks measure by them instead of
 * by rows, and get estimates of distances.  engine/rules/codes.h defines them for all engines.
 */
typedef enum gg_codes
{
	GG_CODES_NONE = 0,
	GG_CODES_INT8 = 1,
	GG_CODES_INT4 = 2
} gg_codes;

typedef struct gg_dataset
{
	const void *rows;			/* n x dim elements in host memory */
	uint32_t	n;
	uint32_t	dim;
	gg_element	element;
	gg_metric	metric;
} gg_dataset;

/* ---- running ----------------------------------------------------------- */

typedef enum gg_phase
{
	GG_PHASE_KNN_INIT = 0,		/* first lists; unit: rows */
	GG_PHASE_KNN_DESCENT,		/* GNND iterations; unit: rows, summed over iterations */
	GG_PHASE_OPTIMIZE,			/* from k-NN lists to edges; unit: rows */
	GG_PHASE_CONNECT,			/* pivots and connectivity; unit: rows */
	GG_PHASE_EXACT				/* index_exact(); unit: queries */
} gg_phase;

/*
 * What a build in the background takes beyond gg_control.device_memory: scratch, small buffers and
 * a pool's steps.  The device's context does not count, which is there for searches in any case.
 */
#define GG_BACKGROUND_BYTES	((uint64_t) 64 << 20)

/*
 * How a long call talks to its caller.  Both callbacks are called from the thread that called the
 * engine, never from an engine thread, and must not longjmp.  The engine asks cancelled() at least
 * every 100 ms at any stage.  When it returns true, the call frees its memory and returns
 * GG_ECANCELED.
 *
 * A gg_control argument may be NULL: the call then has one thread, and nobody to talk to.
 */
typedef struct gg_control
{
	bool		(*cancelled) (void *ctx);	/* may be NULL */
	/* may be NULL */
	void		(*progress) (void *ctx, gg_phase phase, uint64_t done, uint64_t total);
	void	   *ctx;
	int			threads;		/* CPU threads to use, the calling one included; >= 1 */

	/*
	 * For build() and merge(): the device serves searches of this process meanwhile, which go
	 * first.  The work has the least priority.  It takes and gives back memory without waiting for
	 * other work on the device.  build_bytes() leaves out what the process holds in any case.  The
	 * CPU engine does not look at it.
	 */
	bool		background;

	/*
	 * Bytes of host memory that build() should keep to beyond the data set; 0: any number.  Where
	 * k-NN lists would take more, the CPU engine makes them group by group, and keeps them in
	 * scratch memory (mapped files, say), which is not counted.  It asks this callback for scratch
	 * memory, from the thread that called the engine, and never frees it.  NULL: there is none.
	 * Without the callback, and where the bytes are too few for any build, memory is exceeded.
	 */
	uint64_t	memory;
	void	   *(*scratch)(void *ctx, uint64_t bytes);	/* may be NULL */

	/*
	 * Bytes of device memory that build() should keep to beyond its context, in the background
	 * beyond GG_BACKGROUND_BYTES; 0: any number.  Where a build in one piece would take more, the
	 * CUDA engine has groups of rows on the device one after the other.  Where the bytes are too
	 * few for that, too, they are exceeded.
	 */
	uint64_t	device_memory;

	/*
	 * Devices that build() may use beside the calling thread's, by the numbers that use_device()
	 * takes.  No device is listed twice, and all are of one kind.  Where the CUDA engine builds by
	 * groups of rows, each device has groups, within device_memory.  A build in one piece and all
	 * other calls leave these devices alone, and the CPU engine does not look at them.  The graph
	 * does not depend on how many there are.  If one fails, so does the build, and the message
	 * names the device.  The devices' contexts are the caller's to release.
	 */
	const int  *others;
	int			nothers;
} gg_control;

/* ---- building ---------------------------------------------------------- */

typedef enum gg_init
{
	GG_INIT_PIVOT_CELLS = 0,	/* lists start from cells around random pivots */
	GG_INIT_RANDOM = 1			/* random lists, as [GNND] section 4 has it; for comparison */
} gg_init;

/* How the edges of a graph are chosen.  Values are on disk: never renumber. */
typedef enum gg_algorithm
{
	GG_ALGORITHM_CAGRA = 1,		/* rank-based reordering of the k-NN lists */
	GG_ALGORITHM_TSDG = 2,		/* two-stage diversification of the k-NN lists */
	GG_ALGORITHM_GRNND = 3		/* relative NN-descent, without k-NN lists */
} gg_algorithm;

#define GG_MAX_SAMPLES	64u			/* p */
#define GG_MAX_ALPHA	100.0f
#define GG_MAX_LAMBDA	1024u
#define GG_MAX_ROUNDS	100u		/* T1, and T2 */

typedef struct gg_build_params
{
	gg_algorithm algorithm;		/* 0: CAGRA */
	uint32_t	graph_degree;				/* out-degree of the result, 4 .. GG_MAX_DEGREE / 2 */
	uint32_t	intermediate_graph_degree;	/* length of the k-NN lists, >= graph_degree */
	uint32_t	samples;		/* p of GNND: 1 .. GG_MAX_SAMPLES; 0 = the engine's default */
	uint64_t	seed;			/* same seed and threads = 1: same graph (CPU engine) */
	gg_init		init;
	uint32_t	max_iterations; /* of GNND; 0 = the engine's default */
	float		termination_threshold;	/* stop when updates < this share of n x k; 0 = default */

	/* TSDG's, by the names of the paper; 0 = the engine's default */
	float		alpha;			/* 1 .. GG_MAX_ALPHA: the larger, the fewer edges stage 1 drops */
	uint32_t	lambda0;		/* 1 .. GG_MAX_LAMBDA: edges occluded more often are dropped */

	/* GRNND's, by its paper's names; 0 = a default.  intermediate_graph_degree is for its merges */
	uint32_t	initial_neighbors;	/* S: nodes that a pool starts with, 1 .. R */
	uint32_t	pool_capacity;	/* R: graph_degree .. GG_MAX_DEGREE */
	uint32_t	outer_rounds;	/* T1: 1 .. GG_MAX_ROUNDS, with reverse edges in between */
	uint32_t	inner_rounds;	/* T2, in each outer round: 1 .. GG_MAX_ROUNDS */
	float		rho;			/* above 0, at most 1: share of a pool that gets reverse edges */
} gg_build_params;

/*
 * A finished graph.  A list holds no duplicates, no self loop and no id out of range; a list that
 * is shorter than the degree ends in GG_NO_NODE.  Pivots are the nodes at which walks enter (entry
 * points).  Every node is reachable from the pivots along adjacency, and every pivot from pivot 0
 * along pivot_adjacency.  Pivots are in random order: any prefix of them is a random sample.
 *
 * Under TSDG an id in adjacency carries GG_EDGE_MARK where the edge's lambda is
 * GG_TSDG_LAMBDA_LARGE or more.  GG_SEARCH_TSDG_LARGE passes over such edges, and every node is
 * reachable without them.
 */
typedef struct gg_graph
{
	uint32_t	n;
	uint32_t	degree;
	uint32_t	npivots;		/* >= 1 when n >= 1 */
	uint32_t   *adjacency;		/* n x degree node ids, the most important first; see above */
	uint32_t   *pivots;			/* npivots distinct node ids */
	uint32_t   *pivot_adjacency;	/* npivots x GG_PIVOT_DEGREE indices into pivots */
} gg_graph;

/* How merge() finds neighbours in other parts. */
typedef enum gg_merge_way
{
	GG_MERGE_AUTO = 0,			/* the engine's own choice: by search, or all rows anew */
	GG_MERGE_SEARCH = 2			/* for tests and benches: by search wherever that can be */
} gg_merge_way;

/*
 * The graphs that merge() makes one of.  Lists are of the nearest rows, nearest first, or of edges,
 * the most important first; GG_NO_NODE fills unused places.  A row that stands in its own list, or
 * twice in one, does no harm.
 */
typedef struct gg_merge_input
{
	const uint8_t *parts;		/* n: the graph that each row is of, 1 .. 255; 0: of none */
	const uint32_t *lists;		/* n x length ids of rows */
	uint32_t	length;			/* 1 .. GG_MAX_DEGREE */
	gg_merge_way way;
} gg_merge_input;

typedef struct gg_build_stats
{
	uint32_t	iterations;		/* of GNND */
	float		changed;		/* share of the lists' places that the last iteration changed */
	uint64_t	distances;		/* computed, 0 where not counted */
	uint32_t	repaired;		/* nodes that connectivity repair had to link */
	double		init_s,
				descent_s,
				optimize_s,
				connect_s,
				transfer_s;		/* host <-> device, 0 on the CPU */
} gg_build_stats;

typedef struct gg_bytes
{
	uint64_t	host;			/* peak beyond the data set itself */
	uint64_t	device;			/* peak, the data set's copy included */
} gg_bytes;

/* ---- searching --------------------------------------------------------- */

typedef struct gg_index gg_index;	/* an engine's own copy of one data set and graph */

typedef enum gg_search_mode
{
	GG_SEARCH_AUTO = 0,			/* the engine's own choice by batch, itopk and device */
	GG_SEARCH_SINGLE_CTA = 1,	/* [CAGRA, section IV-C1] */
	GG_SEARCH_MULTI_CTA = 2,	/* [CAGRA, section IV-C2] */
	GG_SEARCH_TSDG_SMALL = 3,	/* [TSDG, section 4.1]: many greedy walks per query */
	GG_SEARCH_TSDG_LARGE = 4	/* [TSDG, section 4.2]: a walk along edges of small lambda */
} gg_search_mode;

#define GG_GREEDY_LIST		32u		/* R: nodes that a greedy walk keeps.  For more results than
									 * that the CUDA engine searches as under GG_SEARCH_AUTO */

static inline bool
gg_search_mode_known(gg_search_mode mode)
{
	return (unsigned) mode <= GG_SEARCH_TSDG_LARGE;
}

/*
 * Under the modes of [TSDG] itopk_size has its usual meaning: answers are the k nearest of as many
 * nodes known.  The contract is in src/engine/cpu/papers/tsdg_search.c.  An engine that does not
 * have a mode searches as under GG_SEARCH_AUTO.
 */
typedef struct gg_search_params
{
	uint32_t	k;				/* results per query, 1 .. itopk_size */
	uint32_t	itopk_size;		/* length of the candidate list, 1 .. GG_MAX_ITOPK */
	uint32_t	search_width;	/* parents expanded per step; 0 = the engine's choice */
	gg_search_mode mode;
	uint32_t	walks;			/* t0 of GG_SEARCH_TSDG_SMALL; 0 = the engine's choice */
	float		delta;			/* of GG_SEARCH_TSDG_LARGE; >= 0 */

	/*
	 * For an index with codes and rows: how many of the nearest nodes of the candidate list are
	 * measured by row.  Answers are the k nearest of these.  Less than k counts as k, and more than
	 * itopk_size as itopk_size; 0 is a default by codes, k and dim (gg_rerank_size(), request.h).
	 */
	uint32_t	rerank;
} gg_search_params;

/* ---- filling ------------------------------------------------------------ */

/* Where the rows of an index with codes are once it is finished. */
typedef enum gg_row_place
{
	GG_ROWS_DEVICE = 0,			/* beside the codes */
	GG_ROWS_HOST = 1,			/* in host memory that the device reads */

	/* nowhere: walks answer with estimates, and the caller measures rows that it has elsewhere */
	GG_ROWS_NONE = 2
} gg_row_place;

typedef struct gg_shape
{
	uint32_t	capacity;		/* rows that memory is taken for */
	uint32_t	dim;
	gg_element	element;
	gg_metric	metric;
	uint32_t	degree;			/* 0: rows alone, for index_exact() and exact batches */
	uint32_t	npivots;		/* 0 when degree is 0 */

	/* what walks measure by; only with a graph, for exact searches read rows */
	gg_codes	codes;
	gg_row_place row_place;		/* GG_ROWS_DEVICE without codes */
	uint64_t	code_seed;
	const float *code_mean;		/* dim, see engine/rules/codes.h; NULL: there is none.  Copied */

	/* what filters look at; all 0: none are answered */
	uint32_t	rows;			/* heads: capacity of them, or any number where there are offsets */
	uint32_t	words;			/* filter words of each row, at most GG_MAX_FILTER_WORDS */
	bool		offsets;		/* nodes have offsets; else node i has row i */
} gg_shape;

/* The parts of an index, as they lie in a segment's arrays. */
typedef enum gg_part
{
	GG_PART_ROWS = 0,			/* capacity x dim elements */
	GG_PART_ADJACENCY = 1,		/* capacity x degree uint32_t */

	/* npivots x (1 + GG_PIVOT_DEGREE) uint32_t: a node, then indices of other pivots */
	GG_PART_PIVOTS = 2,

	GG_PART_TIDS = 3,			/* rows x uint64_t: heads, see gg_filter */
	/* (capacity + 1) x uint32_t: node i has rows [offset i, offset i + 1), as far as there are */
	GG_PART_OFFSETS = 4,
	GG_PART_FILTERS = 5,		/* words x rows int64_t: word by word */
	/* capacity x a record of engine/rules/codes.h; under GG_ROWS_NONE alone */
	GG_PART_CODES = 6
} gg_part;

/* ---- filters ------------------------------------------------------------- */

/*
 * Which rows of a list may be returned.  A row has a head of 8 bytes, as a segment's array of TIDs
 * and the delta have it: 6 bytes TID, then 16 bits of which bit c says that filter column c is
 * NULL.  Beside it a row has up to GG_MAX_FILTER_WORDS words of 64 bits, the values of its filter
 * columns.  The words of a list are kept word by word: word w of all rows, then word w + 1 of all.
 *
 * A node matches when one of its rows does.  A row matches when its TID is valid, and is one of
 * tids unless that is NULL, and every condition holds.
 */
#define GG_MAX_CONDITIONS		16
#define GG_MAX_FILTER_TIDS		65536
#define GG_MAX_FILTER_VALUES	1024
#define GG_MAX_FILTER_WORDS		32
#define GG_MASK_WORDS			4	/* words of a column that is compared with masks */

typedef enum gg_condition_kind
{
	GG_CONDITION_RANGE = 1,		/* values[0] <= word <= values[1]; signed, as all words are */
	GG_CONDITION_IN,			/* the word is one of values, which ascend */
	/* for one mask at least, of GG_MASK_WORDS values each: the words have all of its bits */
	GG_CONDITION_MASK,
	GG_CONDITION_NULL,
	GG_CONDITION_NOT_NULL		/* all kinds but GG_CONDITION_NULL imply it */
} gg_condition_kind;

typedef struct gg_condition
{
	uint16_t	kind;			/* gg_condition_kind */
	uint16_t	column;			/* its bit in a row's head */
	uint32_t	word;			/* the column's first word */
	uint32_t	first_value;	/* index of its first value in gg_filter.values */
	uint32_t	nvalues;
} gg_condition;

typedef struct gg_filter
{
	uint32_t	nconditions;
	uint32_t	nvalues;
	const uint64_t *tids;		/* gg_tid_key()s, ascending and distinct; NULL: any TID */
	uint32_t	ntids;
	gg_condition conditions[GG_MAX_CONDITIONS];
	int64_t		values[GG_MAX_FILTER_VALUES];
} gg_filter;

/* Bytes of a filter that are in use.  Most filters have few values, and room for them is 8 kB. */
static inline size_t
gg_filter_bytes(const gg_filter *filter)
{
	return offsetof(gg_filter, values) + filter->nvalues * sizeof(int64_t);
}

/* How many words of a row, from condition->word on, the condition looks at. */
static inline uint32_t
gg_condition_words(const gg_condition *condition)
{
	switch (condition->kind)
	{
		case GG_CONDITION_RANGE:
		case GG_CONDITION_IN:
			return 1;
		case GG_CONDITION_MASK:
			return GG_MASK_WORDS;
		default:
			return 0;
	}
}

/* A TID as a number: block << 16 | line pointer, which is 0 when the TID is invalid. */
static inline uint64_t
gg_tid_key(uint64_t head)
{
	return (head & 0xFFFF) << 32 | (head >> 16 & 0xFFFF) << 16 | (head >> 32 & 0xFFFF);
}

/* The first of tids, from index low to below high, that is not less than key; high if none is. */
static inline uint32_t
gg_first_tid(const uint64_t *tids, uint32_t low, uint32_t high, uint64_t key)
{
	while (low < high)
	{
		uint32_t	middle = low + (high - low) / 2;

		if (tids[middle] < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * Which of n rows match: *bits gets bit i % 64 of word i / 64, of ceil(n / 64) words.  heads: n row
 * heads.  words[w]: word w of the n rows; only those that conditions name are looked at, and words
 * may be NULL without conditions on values.  Returns the number of rows that match.
 */
extern uint32_t gg_filter_rows(const gg_filter *filter, const uint64_t *heads,
							   const int64_t *const *words, uint32_t n, uint64_t *bits);

/* ---- serving ------------------------------------------------------------- */

/*
 * Searches for many callers at once, queued and not waited for.  Requests, queries and answers are
 * in a region of host memory that the device sees.  Each request belongs to a slot, a place in the
 * region with a word for each list of an index.
 *
 * serve_submit() starts one batch on a queue, which is an ordered stream of batches, and returns.
 * A batch is of one list; a search over several indexes (the segments of one relation) is several
 * batches that name the same request.  When request i is answered, its keys for the list are in
 * their place, and then done[list] of its slot becomes tickets[i].  Whoever reads that value
 * (acquire) sees the answer.  Batches on one queue run one after the other, batches on different
 * queues side by side, also over the same index.  The same query gets the same answer in any batch,
 * on any queue.
 *
 * A batch that is refused writes nothing.  GG_EUNSUPPORTED says that the device is well but cannot
 * run this batch, GG_EINVAL says what is wrong with it.  A batch that fails after it was accepted
 * never writes all of its tickets; serve_check() then returns the error, and the device is lost to
 * this process.
 *
 * One thread submits and checks.  Meanwhile another may call index_create(), index_write(),
 * index_take(), index_finish() and index_close(), on indexes that no batch in flight names, but for
 * the one that index_take() takes from.  The CPU engine answers within serve_submit().  All this
 * holds for groups, too.
 */
#define GG_SERVE_QUEUES		8
#define GG_SERVE_MAX_BATCH	256
#define GG_SERVE_MAX_BULK	2048	/* queries of one request */
#define GG_SERVE_MAX_LISTS	33		/* the segments of an index, and its delta */

#define GG_MAX_DEEP			65536u	/* keys of one list */
/* The longest deep lists that are worth being answered together: with filters, and without. */
#define GG_SHORT_DEEP		100u
#define GG_LONG_DEEP		16384u
#define GG_BOUNDED_LIST		4096u	/* keys of a list of bounds, at most; any length is worth it */
#define GG_SERVE_MAX_DEEPS	16		/* requests of one batch, if their lists are deep */
/* Requests whose filters have no more TIDs than this are answered together: 4,096. */
#define GG_SHORT_TIDS		(GG_MAX_FILTER_TIDS / GG_SERVE_MAX_DEEPS)

#define GG_NO_KEY			(~(uint64_t) 0)

/*
 * What is asked of the lists of an index: keys (keys.h) of the k nearest nodes of each, ascending,
 * GG_NO_KEY at the end, for one query or several.  Lists 0 .. nsegments - 1 are segments, list
 * nsegments is the delta.  request.h has the rules.
 *
 * Lists of which all rows are measured are deep if the request says where their numbers of
 * matching rows go (matches).  Such a number counts all rows that match, whatever their distance,
 * and without a filter all nodes.  Only deep lists may be longer than a walk's, begin behind a key
 * or have a filter.  A filter is for all queries of its request; behind a key there is one query.
 *
 * Offsets count from the start of the region, and are multiples of 64.  Filter, TIDs and queries
 * stay as they are until all lists are answered.  An answer may come where the TIDs are.
 */
typedef struct gg_request
{
	uint32_t	nsegments;		/* at most 32 */
	uint32_t	lists;			/* bitmap of the segments that are asked for */
	uint32_t	measured;		/* bitmap of the segments all of whose rows are measured */
	bool		delta;			/* whether the delta is asked for, all of whose rows are measured */
	uint32_t	count;			/* queries, of any length */
	uint32_t	dim;			/* of each query, as of the indexes' rows */
	gg_search_params params;	/* itopk_size and what follows are for walks alone */
	uint64_t	after;			/* only keys above this one are wanted */
	uint64_t	last;			/* deep: keys above this one may be left out; 0: none may */

	/* offsets */
	uint64_t	queries;		/* float[count][dim] */
	uint64_t	keys;			/* uint64_t[lists asked for][count][k]; a multiple of 8 */
	uint64_t	filter;			/* gg_filter, which the server has point to the TIDs; 0: none */
	uint64_t	tids;			/* uint64_t[ntids of the filter], a multiple of 8; 0: any TID */
	/* uint64_t[lists asked for], a multiple of 8; 0: no list is deep */
	uint64_t	matches;
} gg_request;

typedef struct gg_server gg_server;

typedef struct gg_serve_layout
{
	char	   *slots;			/* inside the region */
	size_t		slot_bytes;		/* from slot to slot */
	uint32_t	nslots;
	size_t		done;			/* uint32_t[GG_SERVE_MAX_LISTS], from the start of a slot */
} gg_serve_layout;

/*
 * Requests that join (gg_request_joins()).  Where there are several, all have their query at the
 * same place of their slots, and their answers, too, unless the list is deep.
 */
typedef struct gg_serve_batch
{
	uint32_t	list;			/* 0 .. GG_SERVE_MAX_LISTS - 1 */
	uint32_t	count;			/* requests, 1 .. GG_SERVE_MAX_BATCH, or GG_SERVE_MAX_DEEPS */
	const gg_request *requests[GG_SERVE_MAX_BATCH];
	uint32_t	slots[GG_SERVE_MAX_BATCH];
	uint32_t	tickets[GG_SERVE_MAX_BATCH];
} gg_serve_batch;

/*
 * A group: one query for lists of many indexes, all answered together.  The request says what each
 * of the lists is asked for, as if that were list 0 and the only one.  A list is walked, or all its
 * rows are measured, but none is deep.  List i has its k keys from keys[i][k] on, and when all are
 * answered, done[0] of the slot becomes ticket.  Answers are those of batches.
 */
#define GG_SERVE_MAX_GROUP	4096	/* lists */

typedef struct gg_serve_group
{
	const gg_request *request;
	uint32_t	slot;
	uint32_t	ticket;
	uint32_t	count;			/* lists, 1 .. GG_SERVE_MAX_GROUP */
	gg_index *const *indexes;	/* of each list; NULL: the list has no rows */
	const bool *measured;		/* of each list: whether all its rows are measured */
} gg_serve_group;

#define GG_DEVICE_IN_USE	(-1)

typedef struct gg_device_info
{
	char		name[64];
	unsigned char uuid[16];		/* the same whatever number it has; the CPU engine's is a number */
	uint64_t	total_bytes;
	uint64_t	free_bytes;		/* at the moment, without what other processes hold */
	uint32_t	speed;			/* to be compared with other devices': memory's GB/s; at least 1 */
} gg_device_info;

/* What a process wants of an engine. */
typedef enum gg_use
{
	/* to build graphs: one piece of work at a time, and the device opened and closed fast */
	GG_USE_BUILD,
	/* all else: pieces of work that run side by side on the device */
	GG_USE_SEARCH
} gg_use;

/*
 * One engine.  Functions may be called from one thread at a time per gg_index, and from several
 * threads on different ones.  But several threads may call index_write() on one index, and one may
 * call index_take() while others use `from`, except to close it.  None of the pointers is NULL.
 */
typedef struct gg_engine
{
	const char *name;			/* "cpu" or "cuda" */

	/*
	 * Can the engine run here?  GG_ENODEVICE, with the reason, when not.  To be called before any
	 * other function.  The first call's use holds as long as the process.
	 */
	gg_status	(*probe) (gg_use use);

	/* ---- building ---- */

	/*
	 * Peak memory in bytes that build() needs for these rows and parameters.  Nothing is allocated,
	 * and data->rows is not looked at.  GG_EINVAL: as build().
	 */
	gg_status	(*build_bytes) (const gg_dataset *data, const gg_build_params *params,
								const gg_control *control, gg_bytes *bytes);

	/*
	 * Build a graph: k-NN lists by GNND [GNND, sections 3 and 4], edges and reverse edges by the
	 * algorithm ([CAGRA, section III.B] or [TSDG, section 3]), or both at once ([GRNND, section
	 * 3]); then pivots and reachability (our own).  graph is made with malloc(), to be freed with
	 * gg_graph_free(); it is empty unless GG_OK.  stats may be NULL.
	 * GG_EINVAL: data or params out of range.  GG_EDEVICE_MEMORY, before anything is done: the
	 * build does not fit the device.  GG_ECANCELED.
	 */
	gg_status	(*build) (const gg_dataset *data, const gg_build_params *params,
						  const gg_control *control, gg_graph *graph, gg_build_stats *stats);

	/*
	 * One graph of the rows of several: GGM [GNND, section 5] where one part has most of the rows.
	 * Its graph is searched for the other rows (engine/cpu/build/extend.c; kernels/build/extend.cu,
	 * where rows that no search finds keep their edges).  Otherwise the graph is built anew.  Part
	 * 0 is rows of no graph.  The rest is as in build(), which takes no less memory than this does
	 * beyond its input.  Under GRNND k-NN lists of intermediate_graph_degree are made, too, and
	 * edges are chosen from them as from pools.  GG_EINVAL also for a list that names no row.
	 */
	gg_status	(*merge) (const gg_dataset *data, const gg_merge_input *input,
						  const gg_build_params *params, const gg_control *control,
						  gg_graph *graph, gg_build_stats *stats);

	/*
	 * build() over the first n rows of an index that was created with degree 0 and filled by
	 * index_write(), but not finished.  The graph is the one that build() makes of the same rows in
	 * host memory.  The index keeps its rows, and is good only for index_close() afterwards.
	 * Errors: as build(); GG_EINVAL also for another kind of index.
	 */
	gg_status	(*build_index) (gg_index *index, uint32_t n, const gg_build_params *params,
								const gg_control *control, gg_graph *graph, gg_build_stats *stats);

	/* ---- indexes ---- */

	/*
	 * An index that is filled piece by piece, so that its rows need not be in host memory together.
	 *
	 * index_create() takes memory for shape->capacity rows and the graph at once.  GG_EINVAL: a
	 * shape out of range.  GG_EUNSUPPORTED: the engine has no such codes, or cannot have rows in
	 * that place.  GG_EDEVICE_MEMORY, with the sizes: there is too little device memory; GG_ENOMEM:
	 * too little host memory for GG_ROWS_HOST.
	 *
	 * index_write() brings bytes [offset, offset + bytes) of a part, in any order and in pieces of
	 * any length, and returns when src may be used again.  Several threads may write different
	 * bytes of one index at once, which brings pageable memory to a device faster.  GG_EINVAL: the
	 * piece does not lie inside the part.  Contents are not checked.  The engine makes codes of
	 * rows.  Under GG_ROWS_NONE it does so here, and pieces have to be of whole rows (GG_EINVAL).
	 * Or the caller writes codes (GG_PART_CODES) in place of rows.
	 *
	 * index_take() makes rows first .. first + n of another index of index_create() the first n,
	 * their heads and filter words included, as index_write() would.  `from` is finished, and may
	 * be searched meanwhile.  The call returns when it may be closed.  GG_EINVAL: the index is
	 * finished, or `from` is not; n is over the capacity, or `from` has fewer rows; one of
	 * them has a graph or offsets; dim, element, metric or words differ; one of them alone has
	 * heads; they are on different devices.
	 *
	 * index_finish() makes it searchable with its first n rows.  GG_EINVAL: n is over the capacity,
	 * or the index is finished.
	 *
	 * With codes walks measure by codes alone, pivots included, and then some nodes by row
	 * (gg_search_params.rerank): distances in keys are those of rows, as without codes.  Exact and
	 * deep searches read rows.  Under GG_ROWS_NONE distances in keys of walks are estimates.  Those
	 * in keys of deep lists are bounds, which no float32 sum of the distance is below.  Refused
	 * (GG_EUNSUPPORTED) are then deep lists under L1 and inner product, deep lists of more than
	 * GG_BOUNDED_LIST keys, and lists of all rows that are not deep.
	 */
	gg_status	(*index_create) (const gg_shape *shape, gg_index **index);
	gg_status	(*index_write) (gg_index *index, gg_part part, uint64_t offset, const void *src,
								uint64_t bytes);
	gg_status	(*index_take) (gg_index *index, const gg_index *from, uint32_t first, uint32_t n);
	gg_status	(*index_finish) (gg_index *index, uint32_t n, const gg_control *control);
	void		(*index_close) (gg_index *index);	/* NULL is allowed */

	/*
	 * Bytes of device memory (of the CPU engine: host memory) that an index of this shape takes
	 * once finished, 0 for a shape that index_create() refuses; and that one index takes now.
	 * Rows in host memory that a device reads (GG_ROWS_HOST) are not among them.
	 */
	uint64_t	(*shape_bytes) (const gg_shape *shape);
	uint64_t	(*index_bytes) (const gg_index *index);

	/* ---- serving, see gg_serve_layout ---- */

	/*
	 * Serve the slots of a region of shared memory with a device.  GG_EINVAL: the slots do not lie
	 * in the region, or their parts are out of place.  GG_ENODEVICE: no such device.
	 */
	gg_status	(*serve_open) (int device, void *region, size_t region_bytes,
							   const gg_serve_layout *layout, gg_server **server);
	/*
	 * Start a batch on queue 0 .. GG_SERVE_QUEUES - 1.  GG_EINVAL, GG_EUNSUPPORTED: refused.  Where
	 * filters of consecutive requests are equal, the first one's is evaluated for all.  Any other
	 * error is that of all requests, though some may have been answered.
	 */
	gg_status	(*serve_submit) (gg_server *server, gg_index *index, uint32_t queue,
								 const gg_serve_batch *batch);
	/*
	 * The same for a group, on a queue on which all that was started is answered.  Arrays of the
	 * group are the caller's again when the call returns.
	 */
	gg_status	(*serve_group) (gg_server *server, uint32_t queue, const gg_serve_group *group);
	/* *idle: nothing is left to do on the queue.  Error: that of a batch that was accepted. */
	gg_status	(*serve_check) (gg_server *server, uint32_t queue, bool *idle);
	void		(*serve_close) (gg_server *server);

	/* ---- devices ---- */

	/*
	 * The number of devices; name and memory of device 0 .. count - 1, or of GG_DEVICE_IN_USE: the
	 * one that the calling thread uses, after probe() the one that builds.
	 */
	gg_status	(*device_count) (int *count);
	gg_status	(*device_info) (int device, gg_device_info *info);

	/*
	 * The calling thread builds and creates indexes on this device from now on, and release() is
	 * about it.  GG_ENODEVICE: it cannot be used.
	 */
	gg_status	(*use_device) (int device);

	/*
	 * Give back all that this process holds of the device, its context included, which takes some
	 * hundreds of MB.  Every gg_index must be closed before.  The next call starts anew.
	 */
	void		(*release) (void);

	/* ---- k-NN lists ---- */

	/*
	 * Approximate k-NN lists by GNND [GNND, sections 3 and 4], k = intermediate_graph_degree.  ids:
	 * n x k, nearest first, GG_NO_NODE at the end when n <= k.  distances: n x k (+infinity beside
	 * GG_NO_NODE), or NULL.  Under inner product a list has the rows of the greatest products, long
	 * ones, and not the nearest in place.  Errors: as build().
	 */
	gg_status	(*knn_graph) (const gg_dataset *data, const gg_build_params *params,
							  const gg_control *control, uint32_t *ids, float *distances,
							  gg_build_stats *stats);

	/* ---- searches whose caller waits: of gpugraph_learn(), and of what no device has ---- */

	/*
	 * An index over rows and graph in host memory, finished at once.  The CPU engine keeps the
	 * pointers, the CUDA engine copies.  graph may be NULL: then there are exact searches only.
	 * GG_EINVAL: data out of range, or a graph that is not over it.
	 */
	gg_status	(*index_open) (const gg_dataset *data, const gg_graph *graph,
							   const gg_control *control, gg_index **index);

	/*
	 * Best-first search [CAGRA, section IV] of nq queries (nq x dim float32, of any length) through
	 * the graph.  keys (keys.h): nq x k, ascending, GG_NO_KEY at the end.  GG_EINVAL: params out of
	 * range, no graph, or an index that is not finished.
	 */
	gg_status	(*index_search) (gg_index *index, const gg_search_params *params,
								 const float *queries, uint32_t nq, const gg_control *control,
								 uint64_t *keys);

	/*
	 * The same over all rows, exactly.  filter: NULL, or ceil(n / 32) words in which bit i % 32 of
	 * word i / 32 lets row i be returned.  k is 1 .. GG_MAX_ITOPK.
	 */
	gg_status	(*index_exact) (gg_index *index, uint32_t k, const uint32_t *filter,
								const float *queries, uint32_t nq, const gg_control *control,
								uint64_t *keys);
} gg_engine;

extern const gg_engine gg_cpu_engine;
#ifdef GG_WITH_CUDA
extern const gg_engine gg_cuda_engine;
#endif

/* Free the arrays of a graph and empty it; an empty one is allowed. */
extern void gg_graph_free(gg_graph *graph);

/* ---- one row, one query (CPU, SIMD chosen at run time) ----------------- */

/* Distance between one stored row and one prepared query, both of dim elements. */
typedef float (*gg_distance_fn) (const void *row, const float *query, uint32_t dim);

/* NULL when metric or element is unknown. */
extern gg_distance_fn gg_distance_function(gg_metric metric, gg_element element);

/* Name of the instruction set in use: "amx", "avx512_bf16", "avx512", "avx2", "neon", "plain". */
extern const char *gg_simd_name(void);

/*
 * Prepare a query for gg_distance_fn, in place.  Under cosine it gets unit length (a zero query
 * stays zero, and every distance is then 1); under other metrics it stays as it is.
 */
extern void gg_query_prepare(gg_metric metric, float *query, uint32_t dim);

/* ---- centroids (CPU) ----------------------------------------------------- */

typedef struct gg_kmeans_params
{
	uint32_t	k;				/* centroids, of at least as many rows */
	uint32_t	rounds;
	uint64_t	seed;
	bool		unit;			/* centroids get unit length, as rows have it */
} gg_kmeans_params;

/*
 * k-means of n x dim finite float32 rows by Euclidean distance; the same whatever the threads.
 * centroids: k x dim.  Rows of unit length, with `unit`, go to the centroid of the least angle.
 */
extern gg_status gg_kmeans(const float *rows, uint32_t n, uint32_t dim,
						   const gg_kmeans_params *params, const gg_control *control,
						   float *centroids);

/*
 * Returns which of k centroids is nearest, of equal ones the first: the same on every processor.
 * *distance gets its squared distance, unless distance is NULL.
 */
extern uint32_t gg_nearest_centroid(const float *centroids, uint32_t k, uint32_t dim,
									const float *row, float *distance);

extern float gg_half_to_float(uint16_t half);
extern uint16_t gg_float_to_half(float value);	/* round to nearest even */
extern void gg_halves_to_floats(const uint16_t *src, float *dst, size_t count);

/* As gg_float_to_half().  dst may be where src is. */
extern void gg_floats_to_halves(const float *src, uint16_t *dst, size_t count);

/*
 * The same for count elements of rows that follow each other; the first and the last row need not
 * be whole.  False: the rows do not bear it (halves.c), and some halves may not have been written.
 */
extern bool gg_round_rows(const float *rows, uint16_t *halves, uint64_t count, uint32_t dim);

#ifdef __cplusplus
}
#endif

#endif							/* GG_ENGINE_H */
