/*
 * model.h
 *		Synthetic rows of a chosen intrinsic dimension, any of which can be drawn at any time.
 *
 * Points are drawn in `latent` dimensions from Gaussian clusters of uneven weight and width, and
 * bent onto a curved manifold of `dim` dimensions:  x = tanh(z W1 + b1) W2 + noise * N(0, I).
 * latent and noise set the intrinsic dimension; uniform or Gaussian points in dim dimensions would
 * be both harder and unlike anything that is embedded.  Under METRIC_COS rows are normalised.
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
	STREAM_QUERY = 3
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

/* Rows first .. first + count - 1 of a stream. */
extern void model_rows(const model *mo, uint64_t stream, int64_t first, int64_t count,
					   float *rows);

#endif							/* MODEL_H */
