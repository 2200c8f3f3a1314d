/*
 * harness.h
 *		What the engine tests share: counting, data, exact answers.  No server needed.
 */
#ifndef GG_TEST_HARNESS_H
#define GG_TEST_HARNESS_H

#include "../../src/engine/cpu/common/cpu.h"
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
	gg_metric	metric;			/* cosine: float32 rows get unit length */
	gg_element	element;
	float		offset;			/* added to every element: far from the origin */
	uint64_t	seed;
} harness_spec;

/*
 * A data set and nq queries of the same kind (float32; NULL: none), both to be freed by
 * harness_free().
 */
extern void harness_data(const harness_spec *spec, gg_dataset *data, float **queries, uint32_t nq);
extern void harness_free(gg_dataset *data, float *queries);

/* Element of a row, as a double. */
extern double harness_element(const gg_dataset *data, uint32_t row, uint32_t element);

/* Distance of two rows in double precision, as a k-NN graph has it. */
extern double harness_row_distance(const gg_dataset *data, uint32_t a, uint32_t b);

/*
 * Share of the entries 0 .. at - 1 of the lists (n x k) that are no farther than the true at-th
 * neighbour, over some rows spread evenly.
 */
extern double harness_knn_recall(const gg_dataset *data, const uint32_t *ids, uint32_t k,
								 uint32_t at, uint32_t rows);
/* The same for two lengths at once. */
extern void harness_knn_recalls(const gg_dataset *data, const uint32_t *ids, uint32_t k,
								const uint32_t at[2], uint32_t rows, double recalls[2]);

/* ---- graphs ---------------------------------------------------------------- */

/* What gg_graph promises; full: no list is shorter than the degree. */
extern void harness_graph_check(const gg_graph *graph, uint32_t n, uint32_t degree, bool full,
								const char *what);

#endif							/* GG_TEST_HARNESS_H */
