/*
 * exact.h
 *		Exact nearest neighbours by brute force, and the files of a bench data set.
 *
 * A data set is a directory:
 *		base.f32	n x dim float32, row-major
 *		query.f32	nq x dim float32
 *		gt.i32		nq x EXACT_K int32: ids (row numbers of base) of the nearest rows, nearest first
 *		gd.f64		nq x EXACT_K doubles: their distances (squared L2, -ip, 1 - cos)
 *		meta		name=value lines: n, nq, dim, metric, lid, source
 * All in the machine's byte order.
 */
#ifndef EXACT_H
#define EXACT_H

#include "tools.h"

#define EXACT_K 100				/* neighbours kept a query */

typedef enum metric
{
	METRIC_L2,
	METRIC_IP,
	METRIC_COS
} metric;

typedef struct vectors
{
	float	   *rows;			/* n x dim */
	int64_t		n;
	int			dim;
} vectors;

extern metric metric_of(const char *name);
extern const char *metric_name(metric m);

/*
 * Finds the neighbours of every query, writes the directory's files, and returns the mean of the
 * queries' maximum-likelihood estimates of the local intrinsic dimension (Levina and Bickel, with
 * k = EXACT_K; NaN under METRIC_IP, which is no distance).  Needs base.n >= EXACT_K.
 */
extern double write_data_set(const char *dir, vectors base, vectors query, metric m, int threads,
							 const char *source);

/* The same but for base.f32. */
extern double write_query_set(const char *dir, vectors base, vectors query, metric m, int threads,
							  const char *source);

/* Likewise, with n rows whose neighbours are known. */
extern double write_answers(const char *dir, int64_t n, vectors query, metric m,
							const int32_t *ids, const double *distances, const char *source);

/* ---- rows that are not in memory all at once ------------------------------ */

/* The nearest rows so far, of one thread; query.rows stay the caller's. */
typedef struct exact_search exact_search;

/* A row again, in the space given or elsewhere. */
typedef const float *(*exact_row) (void *arg, int64_t id, float *space);

extern exact_search *exact_open(vectors query, metric m);
/* Rows with ids first, first + 1, ... */
extern void exact_add(exact_search *s, const float *rows, int64_t count, int64_t first);
extern void exact_merge(exact_search *into, const exact_search *from);
/* The nearest of all that were added, EXACT_K at least: nq x EXACT_K ids and distances. */
extern void exact_settle(exact_search *s, exact_row row, void *arg, int32_t *ids,
						 double *distances);
extern void exact_close(exact_search *s);

#endif							/* EXACT_H */
