/*
 * model.c
 *		Synthetic rows of a chosen intrinsic dimension.
 */
#include "model.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef struct rng
{
	uint64_t	state;
	float		spare;			/* the second of a pair of normals */
	int			has_spare;
} rng;

/* splitmix64 (Steele, Lea and Flood 2014): any start value is a good one */
static uint64_t
next_random(rng *r)
{
	uint64_t	z = (r->state += 0x9E3779B97F4A7C15ULL);

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
	return z ^ (z >> 31);
}

static rng
stream_of(uint64_t seed, uint64_t stream, uint64_t row)
{
	rng			r = {.state = seed};

	r.state = next_random(&r) + stream;
	r.state = next_random(&r) ^ row;
	r.state = next_random(&r);
	return r;
}

static double
uniform(rng *r)
{
	return (double) (next_random(r) >> 11) * 0x1p-53;
}

/* standard normal, by Box and Muller */
static float
normal(rng *r)
{
	uint64_t	bits;
	float		radius,
				angle;

	if (r->has_spare)
	{
		r->has_spare = 0;
		return r->spare;
	}
	bits = next_random(r);
	radius = sqrtf(-2 * logf(((float) (bits >> 40) + 1) * 0x1p-24f));
	angle = (float) ((bits >> 8) & 0xFFFFFF) * (float) (2 * M_PI * 0x1p-24);
	r->spare = radius * sinf(angle);
	r->has_spare = 1;
	return radius * cosf(angle);
}

static float *
normals(rng *r, size_t count, float factor)
{
	float	   *x = allocate(sizeof(float) * count);

	for (size_t i = 0; i < count; i++)
		x[i] = factor * normal(r);
	return x;
}

void
model_make(model *mo, char **arguments)
{
	rng			r;
	double		total = 0;

	mo->dim = atoi(arguments[0]);
	mo->latent = atoi(arguments[1]);
	mo->clusters = atoi(arguments[2]);
	mo->m = metric_of(arguments[3]);
	mo->seed = strtoull(arguments[4], NULL, 10);
	if (mo->dim < 1 || mo->dim > 16000 || mo->latent < 1 || mo->clusters < 1)
		die("an argument is out of range");
	r = stream_of(mo->seed, STREAM_MODEL, 0);

	mo->hidden = 2 * mo->latent > 64 ? 2 * mo->latent : 64;
	mo->w1 = normals(&r, (size_t) mo->latent * mo->hidden, 1 / sqrtf(mo->latent));
	mo->b1 = normals(&r, mo->hidden, 0.3f);
	mo->w2 = normals(&r, (size_t) mo->hidden * mo->dim, 1 / sqrtf(mo->hidden));
	mo->mean = normals(&r, (size_t) mo->clusters * mo->latent, 1);
	mo->width = allocate(sizeof(float) * mo->clusters);
	mo->cumulative = allocate(sizeof(double) * mo->clusters);
	for (int c = 0; c < mo->clusters; c++)
	{
		double		u = uniform(&r);

		mo->width[c] = 0.25f + 0.5f * (float) uniform(&r);
		/* the largest cluster weighs 21 times the smallest */
		mo->cumulative[c] = (total += u * u + 0.05);
	}
	for (int c = 0; c < mo->clusters; c++)
		mo->cumulative[c] /= total;
}

float *
model_offset(const model *other)
{
	rng			r = stream_of(other->seed, STREAM_OFFSET, 0);

	/* tanh of what w1 makes of a z is 0.65 in the mean square */
	return normals(&r, other->dim, 0.65f);
}

/* u is within the weights of the clusters that are asked for. */
static int
pick_cluster(const model *mo, double u)
{
	int			low = 0,
				high = mo->clusters - 1;

	while (low < high)
	{
		int			mid = (low + high) / 2;

		if (mo->cumulative[mid] > u)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

/* A point of one of the clusters first .. end - 1. */
static void
draw_latent(const model *mo, rng *r, int first, int end, float *z)
{
	double		from = first > 0 ? mo->cumulative[first - 1] : 0;
	double		to = end > 0 ? mo->cumulative[end - 1] : 1;
	int			c = pick_cluster(mo, from + (to - from) * uniform(r));
	const float *mean = mo->mean + (size_t) c * mo->latent;

	for (int l = 0; l < mo->latent; l++)
		z[l] = mean[l] + mo->width[c] * normal(r);
}

/* x += share * tanh(z W1 + b1) W2 */
static void
add_map(const model *mo, const float *z, float share, float *hidden, float *x)
{
	memcpy(hidden, mo->b1, sizeof(float) * mo->hidden);
	for (int l = 0; l < mo->latent; l++)
		for (int h = 0; h < mo->hidden; h++)
			hidden[h] += z[l] * mo->w1[(size_t) l * mo->hidden + h];
	for (int h = 0; h < mo->hidden; h++)
	{
		float		t = share * tanhf(hidden[h]);
		const float *w = mo->w2 + (size_t) h * mo->dim;

		for (int d = 0; d < mo->dim; d++)
			x[d] += t * w[d];
	}
}

static void
normalise(float *x, int dim)
{
	double		norm2 = 0;

	for (int d = 0; d < dim; d++)
		norm2 += (double) x[d] * x[d];
	for (int d = 0; d < dim; d++)
		x[d] = (float) (x[d] / sqrt(norm2));
}

static void
draw_row(const model *mo, const query_kind *kind, rng *r, float *z, float *hidden, float *x)
{
	const bool	hard = kind->other != NULL && kind->offset == NULL;

	draw_latent(hard ? kind->other : mo, r, kind->first, kind->end, z);
	for (int d = 0; d < mo->dim; d++)
		x[d] = mo->noise * normal(r);
	for (int d = 0; d < mo->dim && kind->offset != NULL; d++)
		x[d] += kind->gap * kind->offset[d];
	if (!hard)
		add_map(mo, z, 1 - kind->gap, hidden, x);
	if (kind->other != NULL)
		add_map(kind->other, z, hard ? 1 : kind->gap, hidden, x);
	if (mo->m == METRIC_COS)
		normalise(x, mo->dim);
}

void
model_queries(const model *mo, const query_kind *kind, uint64_t stream, int64_t first,
			  int64_t count, float *rows)
{
	float	   *z = allocate(sizeof(float) * mo->latent);
	float	   *hidden = allocate(sizeof(float) * mo->hidden);

	for (int64_t i = 0; i < count; i++)
	{
		rng			r = stream_of(mo->seed, stream, (uint64_t) (first + i));

		draw_row(mo, kind, &r, z, hidden, rows + i * mo->dim);
	}
	free(z);
	free(hidden);
}

void
model_rows(const model *mo, uint64_t stream, int64_t first, int64_t count, float *rows)
{
	const query_kind like_rows = {0};

	model_queries(mo, &like_rows, stream, first, count, rows);
}

void
model_free(model *mo)
{
	free(mo->w1);
	free(mo->b1);
	free(mo->w2);
	free(mo->mean);
	free(mo->width);
	free(mo->cumulative);
}
