/*
 * engine.h
 *		The line between PostgreSQL and the graph engines.
 *
 * Everything above this header knows pages, snapshots and ereport(); everything
 * below it knows rows, graphs and distances.  No PostgreSQL header is included
 * on the far side, every function that can fail returns a gg_status, and nothing
 * longjmps across: callbacks handed down report failure by returning false.
 *
 * Two engines implement gg_engine: gg_cpu_engine (src/cpu/, always there, and
 * the oracle) and gg_cuda_engine (kernels/, when built with nvcc).  The walk over a
 * gg_source at the end of the file is the CPU engine's search; it serves rows in
 * memory and rows in relation pages alike.
 *
 * Conventions
 *	- A data set is n rows of dim elements, row-major and without padding: row i
 *	  starts at byte i * dim * gg_element_size(element).  Row x stride products
 *	  are 64-bit.
 *	- Queries are always float32, whatever the rows are.
 *	- Distances are float32 and ordered like the SQL operator, smaller is
 *	  nearer, ties broken by the lower node id:
 *		GG_METRIC_L2		squared Euclidean distance
 *		GG_METRIC_IP		negative inner product
 *		GG_METRIC_COSINE	1 - cos(row, query), in [0, 2]
 *		GG_METRIC_L1		sum of absolute differences
 *	  A distance that comes out NaN (overflow: inf - inf) counts as +infinity.
 *	- Cosine: float32 rows are stored with unit length and float16 rows as given
 *	  (a unit row rounded to half loses order between near ties); queries need
 *	  unit length, see gg_query_prepare().
 *	- n is at most GG_MAX_NODES, dim is 1 .. GG_MAX_DIM.
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
#define GG_MAX_NODES	0x7FFFFFFFu
#define GG_NO_NODE		0xFFFFFFFFu /* fills unused slots at the end of a list */
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
	GG_EUNSUPPORTED				/* this engine, or this device, does not do that; nothing else is the matter */
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
	GG_PHASE_OPTIMIZE,			/* rank-based reordering; unit: rows */
	GG_PHASE_CONNECT			/* pivots and connectivity; unit: rows */
} gg_phase;

/*
 * How a long call talks to its caller.  Both callbacks are called from the thread that called
 * the engine, never from an engine thread, and must not longjmp.  cancelled() is asked at least
 * every 100 ms at any stage, and the call then returns GG_ECANCELED with all its memory given back.
 */
typedef struct gg_control
{
	bool		(*cancelled) (void *ctx);	/* may be NULL */
	void		(*progress) (void *ctx, gg_phase phase, uint64_t done, uint64_t total); /* may be NULL */
	void	   *ctx;
	int			threads;		/* CPU threads to use, the calling one included; >= 1 */
} gg_control;

/* ---- building ---------------------------------------------------------- */

typedef enum gg_init
{
	GG_INIT_PIVOT_CELLS = 0,	/* lists start from cells around random pivots */
	GG_INIT_RANDOM = 1			/* the paper's start, for comparison */
} gg_init;

typedef struct gg_build_params
{
	uint32_t	graph_degree;				/* out-degree of the result, 4 .. GG_MAX_DEGREE / 2 */
	uint32_t	intermediate_graph_degree;	/* length of the k-NN lists, >= graph_degree */
	uint64_t	seed;			/* same seed and threads = 1: same graph (CPU engine) */
	gg_init		init;
	uint32_t	max_iterations; /* of GNND; 0 = the engine's default */
	float		termination_threshold;	/* stop when updates < this share of n x k; 0 = default */
} gg_build_params;

/*
 * A finished graph.  Lists hold no duplicates, no self loops and no id out of range; a list
 * shorter than the degree (n <= degree) ends in GG_NO_NODE.  Every node is reachable from
 * the pivots along adjacency, and every pivot from pivot 0 along pivot_adjacency.  Pivots are in
 * random order: any prefix of them is a random sample.
 */
typedef struct gg_graph
{
	uint32_t	n;
	uint32_t	degree;
	uint32_t	npivots;		/* >= 1 when n >= 1 */
	uint32_t   *adjacency;		/* n x degree node ids, nearest (by rank) first */
	uint32_t   *pivots;			/* npivots distinct node ids */
	uint32_t   *pivot_adjacency;	/* npivots x GG_PIVOT_DEGREE indices into pivots */
} gg_graph;

typedef struct gg_build_stats
{
	uint32_t	iterations;		/* of GNND */
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
	GG_SEARCH_SINGLE_CTA = 1,	/* for tests and benches */
	GG_SEARCH_MULTI_CTA = 2
} gg_search_mode;

typedef struct gg_search_params
{
	uint32_t	k;				/* results a query, 1 .. itopk_size */
	uint32_t	itopk_size;		/* length of the candidate list, 1 .. GG_MAX_ITOPK */
	uint32_t	search_width;	/* parents expanded a step; 0 = the engine's choice */
	gg_search_mode mode;
} gg_search_params;

/* ---- filling ------------------------------------------------------------ */

typedef struct gg_shape
{
	uint32_t	capacity;		/* rows that memory is taken for */
	uint32_t	dim;
	gg_element	element;
	gg_metric	metric;
	uint32_t	degree;			/* 0: rows alone, for index_exact() and exact batches */
	uint32_t	npivots;		/* 0 when degree is 0 */
} gg_shape;

/* The parts of an index, as they lie in a segment's arrays. */
typedef enum gg_part
{
	GG_PART_ROWS = 0,			/* capacity x dim elements */
	GG_PART_ADJACENCY = 1,		/* capacity x degree uint32_t */
	GG_PART_PIVOTS = 2			/* npivots x (1 + GG_PIVOT_DEGREE) uint32_t: node, then indices of other pivots */
} gg_part;

/* ---- serving ------------------------------------------------------------- */

/*
 * Searches for many callers at once, queued and not waited for.  Queries and answers stay in a region of
 * host memory that the device sees: slots of equal layout, one query each.  A search over several
 * indexes (the segments of one relation) is several batches that name the same slot, each with its
 * own list number.
 *
 * serve_submit() starts one batch on a lane and returns.  When query i is answered, its k (node, distance)
 * lie at k * list of its slot's nodes and distances, sorted and padded as index_search() does, and then
 * done[list] of the slot becomes tickets[i]: whoever reads that value (acquire) sees the answer.
 * Batches on one lane run one after the other, those on different lanes side by side, also over
 * the same index.  The same query gives the same answer in any batch, on any lane.
 *
 * A batch that fails after it was accepted never writes its tickets: serve_check() then returns the
 * error (GG_EDEVICE: the device is lost to this process).  serve_check() also tells whether the lane has nothing left to do.
 * A batch that is not accepted writes nothing: GG_EUNSUPPORTED says that the device is well but cannot run this one, GG_EINVAL
 * names what is wrong with it.
 *
 * One thread submits and checks; index_create(), index_write(), index_finish() and index_close() may be called by
 * another meanwhile, on indexes that no batch in flight names.  The CPU engine answers within serve_submit().
 */
#define GG_SERVE_LANES		4
#define GG_SERVE_MAX_BATCH	256
#define GG_SERVE_MAX_LISTS	33		/* the segments of an index, and its delta */

typedef struct gg_server gg_server;

/* All offsets from the start of a slot, multiples of 64. */
typedef struct gg_serve_layout
{
	char	   *slots;			/* inside the region */
	size_t		slot_bytes;		/* from slot to slot */
	uint32_t	nslots;
	size_t		query;			/* float[dim], unprepared */
	size_t		nodes;			/* uint32_t[] */
	size_t		distances;		/* float[] */
	size_t		done;			/* uint32_t[GG_SERVE_MAX_LISTS] */
} gg_serve_layout;

typedef struct gg_serve_batch
{
	uint32_t	count;			/* 1 .. GG_SERVE_MAX_BATCH */
	bool		exact;			/* index_exact() instead of index_search() */
	uint32_t	k;				/* as in gg_search_params */
	uint32_t	itopk_size;
	uint32_t	list;			/* 0 .. GG_SERVE_MAX_LISTS - 1 */
	uint32_t	slots[GG_SERVE_MAX_BATCH];
	uint32_t	tickets[GG_SERVE_MAX_BATCH];
} gg_serve_batch;

typedef struct gg_device_info
{
	char		name[64];
	uint64_t	total_bytes;
	uint64_t	free_bytes;		/* now, after other processes' share */
} gg_device_info;

/* What a process wants of an engine. */
typedef enum gg_use
{
	GG_USE_BUILD,				/* to build graphs: one piece of work at a time, and the device opened and closed fast */
	GG_USE_SEARCH				/* all else: pieces of work that run side by side on the device */
} gg_use;

/*
 * One engine.  All functions are safe to call from one thread at a time per gg_index (index_write(): from several), and from
 * several threads on different ones.
 */
typedef struct gg_engine
{
	const char *name;			/* "cpu" or "cuda" */

	/*
	 * GG_OK when the engine can run here; GG_ENODEVICE with the reason when not.  To be called before any other function; the
	 * first use that is named holds as long as the process.
	 */
	gg_status	(*probe) (gg_use use);

	/* Peak memory that build() will need for n x dim rows, before anything is allocated. */
	gg_status	(*build_bytes) (const gg_dataset *data, const gg_build_params *params,
								const gg_control *control, gg_bytes *bytes);

	/*
	 * Approximate k-NN lists by GNND (paper: gnnd-and-ggm-2021, sections 3 and 4), k =
	 * intermediate_graph_degree.  ids: n x k, nearest first, GG_NO_NODE at the end when n <= k.
	 * distances: n x k (+infinity beside GG_NO_NODE), or NULL.  Metric IP compares rows as the
	 * Euclidean distance after the MIPS reduction (each row given one more element,
	 * sqrt(max |x|^2 - |x|^2)), which a graph for inner product needs; distances then are those.
	 */
	gg_status	(*knn_graph) (const gg_dataset *data, const gg_build_params *params,
							  const gg_control *control, uint32_t *ids, float *distances,
							  gg_build_stats *stats);

	/*
	 * Rank-based reordering with reverse edges (paper: cagra-2023, section III.B).  knn: n x k ids,
	 * nearest first; graph: n x degree.  A function of knn alone: every engine returns the same
	 * bytes for it.  Contract in src/cpu/optimize.c.
	 */
	gg_status	(*optimize) (const uint32_t *knn, uint32_t n, uint32_t k, uint32_t degree,
							 const gg_control *control, uint32_t *graph);

	/* The whole chain, k-NN graph to connected graph with pivots.  Free with gg_graph_free(). */
	gg_status	(*build) (const gg_dataset *data, const gg_build_params *params,
						  const gg_control *control, gg_graph *graph, gg_build_stats *stats);

	/*
	 * Take what searches need; the CPU engine keeps the pointers, the CUDA engine copies.  graph may be NULL: then there are
	 * exact searches only.
	 */
	gg_status	(*index_open) (const gg_dataset *data, const gg_graph *graph, const gg_control *control,
							   gg_index **index);

	/*
	 * nq queries (nq x dim float32, unprepared) against the graph: nodes and distances are nq x k,
	 * sorted by (distance, node), padded with GG_NO_NODE and +infinity.
	 */
	gg_status	(*index_search) (gg_index *index, const gg_search_params *params, const float *queries,
								 uint32_t nq, const gg_control *control, uint32_t *nodes, float *distances);

	/*
	 * The same over all rows, exactly.  filter: NULL, or ceil(n / 32) words in which bit i % 32 of
	 * word i / 32 lets row i be returned.  k is 1 .. GG_MAX_ITOPK.
	 */
	gg_status	(*index_exact) (gg_index *index, uint32_t k, const uint32_t *filter, const float *queries,
								uint32_t nq, const gg_control *control, uint32_t *nodes, float *distances);

	void		(*index_close) (gg_index *index);	/* NULL is allowed */

	/*
	 * An index that is filled piece by piece, so that rows need not lie in host memory together: memory for
	 * shape->capacity rows and the graph is taken at once (GG_EDEVICE_MEMORY, with the sizes, when there is
	 * not enough), then index_write() brings the parts, in any order and in pieces of any length, and
	 * index_finish() makes it searchable with shape n rows.  index_write() returns when src may be used
	 * again.  It checks that the piece lies inside the part, nothing else.  Several threads may write to one index at once,
	 * each other bytes, and pageable memory reaches a device faster so.
	 */
	gg_status	(*index_create) (const gg_shape *shape, gg_index **index);
	gg_status	(*index_write) (gg_index *index, gg_part part, uint64_t offset, const void *src, uint64_t bytes);
	gg_status	(*index_finish) (gg_index *index, uint32_t n, const gg_control *control);

	/*
	 * More rows of an index without a graph, after index_finish(): rows [0, n) have been written, n <=
	 * capacity.  Searches queued before see the old number.
	 */
	gg_status	(*index_grow) (gg_index *index, uint32_t n);

	/*
	 * build() over the n rows of an index created with degree 0 and filled by index_write() but not finished.  The graph is
	 * the one that build() makes of the same rows in host memory.  Memory for the build is checked as build()
	 * does; the index holds its rows still, and is only good for index_close() afterwards.
	 */
	gg_status	(*build_index) (gg_index *index, uint32_t n, const gg_build_params *params,
								const gg_control *control, gg_graph *graph, gg_build_stats *stats);

	/* Device memory (of the CPU engine: host memory) that an index of this shape takes once finished; and of one index, now. */
	uint64_t	(*shape_bytes) (const gg_shape *shape);
	uint64_t	(*index_bytes) (const gg_index *index);

	/* Serving, below; NULL never. */
	gg_status	(*serve_open) (int device, void *region, size_t region_bytes, const gg_serve_layout *layout,
							   gg_server **server);
	gg_status	(*serve_submit) (gg_server *server, gg_index *index, uint32_t lane, const gg_serve_batch *batch);
	gg_status	(*serve_check) (gg_server *server, uint32_t lane, bool *idle);
	void		(*serve_close) (gg_server *server);

	/* How many devices there are, and what one is called and holds. */
	gg_status	(*device_count) (int *count);
	gg_status	(*device_info) (int device, gg_device_info *info);

	/*
	 * Give back all that this process holds of the device, its context included, which is some hundreds
	 * of MB; every gg_index must be closed before.  The next call starts anew.
	 */
	void		(*release) (void);
} gg_engine;

extern const gg_engine gg_cpu_engine;
#ifdef GG_WITH_CUDA
extern const gg_engine gg_cuda_engine;
#endif

extern void gg_graph_free(gg_graph *graph);

/* ---- one row, one query (CPU, SIMD chosen at run time) ----------------- */

/* Distance between one stored row and one prepared query of dim elements. */
typedef float (*gg_distance_fn) (const void *row, const float *query, uint32_t dim);

extern gg_distance_fn gg_distance_function(gg_metric metric, gg_element element);

/* Name of the instruction set in use: "avx512", "avx2", "neon", "plain". */
extern const char *gg_simd_name(void);

/*
 * Make a query ready for gg_distance_fn, in place: unit length under cosine (a zero query stays
 * zero, every distance is then 1), untouched otherwise.
 */
extern void gg_query_prepare(gg_metric metric, float *query, uint32_t dim);

extern float gg_half_to_float(uint16_t half);
extern uint16_t gg_float_to_half(float value);	/* round to nearest even */
extern void gg_halves_to_floats(const uint16_t *src, float *dst, size_t count);

/* ---- the walk ---------------------------------------------------------- */

/*
 * Where a walk gets its rows and edges.  Each callback returns false when it could not
 * (the caller keeps the reason); the walk then returns GG_ECALLBACK.
 */
typedef struct gg_source
{
	uint32_t	n;				/* nodes */
	uint32_t	degree;
	uint32_t	npivots;
	void	   *ctx;

	/* out[i] = distance of nodes[i] to the query of this walk; count <= GG_MAX_DEGREE */
	bool		(*distances) (void *ctx, const uint32_t *nodes, uint32_t count, float *out);
	/* copy the degree ids of node's list to out, GG_NO_NODE where unused */
	bool		(*neighbors) (void *ctx, uint32_t node, uint32_t *out);
	/* copy pivot i: its node id, and GG_PIVOT_DEGREE indices of other pivots */
	bool		(*pivot) (void *ctx, uint32_t i, uint32_t *node, uint32_t *neighbors);
} gg_source;

typedef struct gg_candidate
{
	float		distance;
	uint32_t	node;
} gg_candidate;

/*
 * Best-first search (paper: cagra-2023, section IV) that can be resumed wider.
 *
 *	gg_walk_start(w, source, itopk)		enter through the pivots, expand until the itopk nearest
 *										nodes known have all been expanded
 *	gg_walk_next(w, &c)					the nearest node known, among those itopk, that was not yet
 *										handed out; false: widen or stop
 *	gg_walk_widen(w, itopk)				go on with a longer list; nothing already computed is
 *										computed again.  Nodes found late may be nearer than nodes
 *										handed out before: they come first in gg_walk_next.
 *	gg_walk_exhausted(w)				no unexpanded node is left: widening will find nothing more
 *
 * A walk's memory is kept between starts and freed by gg_walk_free().  Ids that the source hands
 * out of range are ignored and counted (gg_walk_invalid): pages are untrusted input.
 */
typedef struct gg_walk gg_walk;

extern gg_status gg_walk_create(gg_walk **walk);
extern gg_status gg_walk_start(gg_walk *walk, const gg_source *source, uint32_t itopk_size);
extern gg_status gg_walk_widen(gg_walk *walk, uint32_t itopk_size);
extern bool gg_walk_next(gg_walk *walk, gg_candidate *candidate);
extern bool gg_walk_exhausted(const gg_walk *walk);
extern uint64_t gg_walk_distances(const gg_walk *walk); /* computed since start */
extern uint64_t gg_walk_invalid(const gg_walk *walk);
extern void gg_walk_free(gg_walk *walk);

#ifdef __cplusplus
}
#endif

#endif							/* GG_ENGINE_H */
