/*
 * harness.h
 *		What the engine tests share: counting, data, exact answers.  No server needed.
 */
#ifndef GG_TEST_HARNESS_H
#define GG_TEST_HARNESS_H

#include "../../src/engine/cpu/common/cpu.h"
#include "../../src/engine/keys.h"
#include "searches.h"

#include <stdbool.h>
#include <stdint.h>

/* Count one check; a failed one is printed with its place and the rest of the arguments. */
#define CHECK(condition, ...) \
	harness_check(__FILE__, __LINE__, (condition), #condition, __VA_ARGS__)

extern bool harness_check(const char *file, int line, bool condition, const char *text,
						  const char *format,...) __attribute__((format(printf, 5, 6)));

/* A status that is expected to be GG_OK. */
#define CHECK_OK(status, what) \
	harness_check_ok(__FILE__, __LINE__, (status), (what))

extern bool harness_check_ok(const char *file, int line, gg_status status, const char *what);

/* Print "N passed, N failed"; the exit status of main(). */
extern int	harness_finish(void);

/*
 * Set GG_TEST_SMALL in the environment to run under slow checkers: sizes are divided by scale.
 * With the value 2 (valgrind, slower still) also fewer of the cases that cannot be
 * made small, with 3 (the emulated device) fewer again.
 */
extern bool harness_small(void);
extern bool harness_fewer(void);
extern bool harness_fewest(void);

/*
 * One section of a program, its name and processor seconds printed: where the time goes matters
 * under slow checkers.  GG_TEST_PART=i/n in the environment runs only every n-th section, from
 * number i on, so that n processes share the program.
 */
extern void harness_run(const char *name, void (*test) (void));
extern uint32_t harness_size(uint32_t size, uint32_t scale);

extern double harness_now(void);	/* seconds */
extern double harness_processor_seconds(void);	/* of this process: others use the machine */

/* A control's cancelled(): says yes to question number cancel_at alone; 0: to none. */
typedef struct harness_watch
{
	uint64_t	asked;
	uint64_t	cancel_at;
} harness_watch;

extern bool harness_cancelled(void *watch);

/* Another: says yes whenever it is asked. */
extern bool harness_cancelled_at_once(void *ctx);

/* Names of metrics. */
extern const char *const harness_metrics[];

/* ---- random numbers ------------------------------------------------------ */

typedef struct harness_random
{
	uint64_t	state;
} harness_random;

extern double harness_unit(harness_random *random); /* in [0, 1) */
extern double harness_normal(harness_random *random);

/* ---- data ------------------------------------------------------------------ */

typedef enum harness_shape
{
	SHAPE_MANIFOLD,				/* clusters on a curved manifold of latent dimensions */
	SHAPE_UNIFORM,				/* each element uniform in [0, 1) */
	SHAPE_EQUAL,				/* all rows equal */
	SHAPE_COPIES,				/* manifold, 20 copies of each row */
	SHAPE_TIGHT					/* clusters 10^-3 as wide as their distances */
} harness_shape;

typedef struct harness_spec
{
	harness_shape shape;
	uint32_t	n;
	uint32_t	dim;
	uint32_t	latent;			/* 0: 16, at most dim */
	uint32_t	clusters;		/* 0: 20 */
	gg_metric	metric;			/* 0: L2.  Cosine: float32 rows get unit length */
	gg_element	element;		/* 0: float32 */
	float		offset;			/* added to every element: far from the origin */
	uint64_t	seed;
} harness_spec;

/*
 * A data set and nq queries of the same kind (float32; NULL: none), both to be freed by
 * harness_free().
 */
extern void harness_data(const harness_spec *spec, gg_dataset *data, float **queries, uint32_t nq);
extern void harness_free(gg_dataset *data, float *queries);

/* A copy of floats as rows of that type; free(). */
extern void *harness_stored(const float *values, size_t count, gg_element element);

/*
 * Distance of two vectors in double precision.  *size, unless it is NULL: of what was summed, which
 * errors of float32 are relative to.
 */
extern double harness_distance(gg_metric metric, const float *a, const float *b, uint32_t dim,
							   double *size);

/* That of two rows, as a k-NN graph has it; and of a row and a query. */
extern double harness_row_distance(const gg_dataset *data, uint32_t a, uint32_t b);
extern double harness_query_distance(const gg_dataset *data, uint32_t row, const float *query,
									 double *size);

/*
 * Share of the entries 0 .. at - 1 of the lists (n x k) that are no farther than the true at-th
 * neighbour, but for this share of its distance, over some rows spread evenly.
 */
extern double harness_knn_recall(const gg_dataset *data, const uint32_t *ids, uint32_t k,
								 uint32_t at, uint32_t rows, double farther);
/* The same for two lengths at once. */
extern void harness_knn_recalls(const gg_dataset *data, const uint32_t *ids, uint32_t k,
								const uint32_t at[2], uint32_t rows, double farther,
								double recalls[2]);

/*
 * Lists of the k nearest rows of each row: distinct ids in range and not the row's own, as many as
 * there are, nearest first; distances beside the ids, of some rows, are right to tolerance times
 * the distance or `least`, whichever is larger.
 */
extern void harness_lists_check(const gg_dataset *data, const uint32_t *ids,
								const float *distances, uint32_t k, double tolerance,
								double least, const char *what);

/* ---- answers --------------------------------------------------------------- */

/* Answers to nq queries, params->k or k keys each; free().  That there are some is checked. */
extern uint64_t *harness_found(const gg_engine *engine, gg_index *index,
							   const gg_search_params *params, const float *queries, uint32_t nq,
							   const gg_control *control, const char *what);
extern uint64_t *harness_nearest(const gg_engine *engine, gg_index *index, uint32_t k,
								 const uint32_t *filter, const float *queries, uint32_t nq,
								 const gg_control *control, const char *what);

/*
 * Keys out of order, repeated, out of range or padded before the end, or whose distance is not the
 * row's.  tolerance: of what was summed; 0: all bits are the CPU engine's.
 */
extern uint32_t harness_wrong(const gg_dataset *data, const float *queries, uint32_t nq,
							  const uint64_t *keys, uint32_t k, double tolerance);

/* Keys of nq lists of `found` that are no farther than the last of as many of `truth`. */
extern uint32_t harness_hits(const uint64_t *found, const uint64_t *truth, uint32_t nq, uint32_t k);

/* What walks over a graph, by the CPU engine, find of the ten nearest rows of each query. */
typedef struct harness_walks
{
	uint32_t	hits;
	uint32_t	lost;			/* queries that found none */
	double		recall;
} harness_walks;

extern harness_walks harness_walk(const gg_dataset *data, const gg_graph *graph,
								  const float *queries, uint32_t nq, uint32_t itopk,
								  const char *what);

/*
 * Does a row match: fulfil all conditions, be one of the TIDs if there is a list of them, and not
 * be dead?  words: of each word of a row the values of all rows, stride apart.
 */
extern bool harness_matches(const gg_filter *filter, const uint64_t *heads, const int64_t *words,
							uint32_t stride, uint32_t row);

/* ---- graphs ---------------------------------------------------------------- */

/* The same nodes, edges and pivots? */
extern bool harness_graphs_equal(const gg_graph *a, const gg_graph *b);

/* The entries of GG_PART_PIVOTS; free(). */
extern uint32_t *harness_pivots(const gg_graph *graph);

/*
 * Each list has distinct ids below n but its own, then GG_NO_NODE; mark: what an id may carry.
 * full: none is shorter than it must be.
 */
extern void harness_adjacency_check(const uint32_t *adjacency, uint32_t n, uint32_t degree,
									uint32_t mark, bool full, const char *what);

/* What gg_graph promises; full: of nodes, too. */
extern void harness_graph_check(const gg_graph *graph, uint32_t n, uint32_t degree, bool full,
								const char *what);

#endif							/* GG_TEST_HARNESS_H */
