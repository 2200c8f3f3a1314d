/*
 * model.h
 *		Synthetic rows of a chosen intrinsic dimension, any of which can be drawn at any time.
 *
 * Points are drawn in `latent` dimensions from Gaussian clusters of uneven weight and width, and
 * bent onto a curved manifold of `dim` dimensions:  x = tanh(z W1 + b1) W2 + noise * N(0, I).
 * latent and noise set the intrinsic dimension; uniform or Gaussian points in dim dimensions would
 * be both harder and unlike anything that is embedded.  Under METRIC_COS rows are normalised.
 *
 * Queries unlike the rows are
 *
 *		(1 - a) f(z) + a g(z) + a o + noise * N(0, I)
 *
 * where f is the map above, g such a map of another seed, and o an offset that all queries share,
 * about as long as a row: a is the gap.  z is drawn as a row's.  Hard queries are rows of the other
 * seed: neither map nor clusters are those of the rows.
 *
 * Every row is drawn from its own stream, so it depends on the model, the stream and its number
 * alone; another CPU's fused multiply-add may change last bits.
 */
#ifndef MODEL_H
#define MODEL_H

#include "exact.h"

/* what a stream of random numbers is for; part of its seed */
enum
{
	STREAM_MODEL = 1,
	STREAM_BASE = 2,
	STREAM_QUERY = 3,
	STREAM_SAMPLE = 4,
	STREAM_OFFSET = 5
};

typedef struct model
{
	int			dim;
	int			latent;
	int			hidden;
	int			clusters;
	float		noise;
	metric		m;
	uint64_t	seed;
	float	   *w1;				/* latent x hidden */
	float	   *b1;				/* hidden */
	float	   *w2;				/* hidden x dim */
	float	   *mean;			/* clusters x latent */
	float	   *width;			/* clusters */
	double	   *cumulative;		/* clusters: weights up to and including this one, ending in 1 */
} model;

#define MODEL_NOISE 0.02f		/* unless said otherwise */

/* DIM LATENT CLUSTERS METRIC SEED, as on a command line; noise is set before. */
extern void model_make(model *mo, char **arguments);
extern void model_free(model *mo);

/* Which queries are drawn.  All zero: those like the rows. */
typedef struct query_kind
{
	const model *other;			/* of another seed */
	const float *offset;		/* o; NULL: hard queries */
	float		gap;			/* a */
	int			first,			/* clusters first .. end - 1 alone; end 0: all */
				end;
} query_kind;

/* The offset of other's seed.  free() */
extern float *model_offset(const model *other);

/* Rows first .. first + count - 1 of a stream; or queries of a kind. */
extern void model_rows(const model *mo, uint64_t stream, int64_t first, int64_t count,
					   float *rows);
extern void model_queries(const model *mo, const query_kind *kind, uint64_t stream, int64_t first,
						  int64_t count, float *rows);

#endif							/* MODEL_H */
