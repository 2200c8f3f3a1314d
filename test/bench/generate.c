/*
 * generate.c
 *		Synthetic nearest-neighbour data of a chosen intrinsic dimension, with exact answers.
 *
 * usage: generate OUT_DIR N NQ DIM LATENT CLUSTERS METRIC SEED [NOISE [THREADS]]
 *
 * Points are drawn in LATENT dimensions from CLUSTERS Gaussian clusters of uneven weight and width,
 * and bent onto a curved manifold of DIM dimensions:  x = tanh(z W1 + b1) W2 + NOISE * N(0, I).
 * LATENT and NOISE set the intrinsic dimension, which is estimated from the answers and printed;
 * uniform or Gaussian points in DIM dimensions would be both harder and unlike anything that is
 * embedded.  Queries come from the same distribution.  METRIC is l2, ip or cos (cos rows are
 * normalised).  Files: see exact.h.
 *
 * Every row is drawn from its own stream, so the same arguments give the same files whatever the
 * number of threads; another CPU's fused multiply-add may change last bits.
 */
#include "exact.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define CHUNK 1024				/* rows handed to a thread at a time */

/* what a stream of random numbers is for; part of its seed */
enum
{
	STREAM_MODEL = 1,
	STREAM_BASE = 2,
	STREAM_QUERY = 3
};

typedef struct rng
{
	uint64_t	state;
	float		spare;			/* the second of a pair of normals */
	int			has_spare;
} rng;

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

typedef struct draw_job
{
	const model *mo;
	vectors		out;
	uint64_t	stream;
	atomic_llong next;
} draw_job;

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

static void
make_model(model *mo)
{
	rng			r = stream_of(mo->seed, STREAM_MODEL, 0);
	double		total = 0;

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

static void
draw_row(const model *mo, rng *r, float *z, float *hidden, float *x)
{
	int			c = pick_cluster(mo, uniform(r));
	const float *mean = mo->mean + (size_t) c * mo->latent;

	for (int l = 0; l < mo->latent; l++)
		z[l] = mean[l] + mo->width[c] * normal(r);
	memcpy(hidden, mo->b1, sizeof(float) * mo->hidden);
	for (int l = 0; l < mo->latent; l++)
		for (int h = 0; h < mo->hidden; h++)
			hidden[h] += z[l] * mo->w1[(size_t) l * mo->hidden + h];
	for (int d = 0; d < mo->dim; d++)
		x[d] = mo->noise * normal(r);
	for (int h = 0; h < mo->hidden; h++)
	{
		float		t = tanhf(hidden[h]);
		const float *w = mo->w2 + (size_t) h * mo->dim;

		for (int d = 0; d < mo->dim; d++)
			x[d] += t * w[d];
	}
	if (mo->m == METRIC_COS)
	{
		double		norm2 = 0;

		for (int d = 0; d < mo->dim; d++)
			norm2 += (double) x[d] * x[d];
		for (int d = 0; d < mo->dim; d++)
			x[d] = (float) (x[d] / sqrt(norm2));
	}
}

static void *
draw_thread(void *arg)
{
	draw_job   *job = arg;
	const model *mo = job->mo;
	float	   *z = allocate(sizeof(float) * mo->latent);
	float	   *hidden = allocate(sizeof(float) * mo->hidden);
	int64_t		first;

	while ((first = atomic_fetch_add(&job->next, CHUNK)) < job->out.n)
		for (int64_t i = first; i < first + CHUNK && i < job->out.n; i++)
		{
			rng			r = stream_of(mo->seed, job->stream, (uint64_t) i);

			draw_row(mo, &r, z, hidden, job->out.rows + i * mo->dim);
		}
	free(z);
	free(hidden);
	return NULL;
}

static vectors
draw(const model *mo, int64_t n, uint64_t stream, int threads)
{
	draw_job	job = {.mo = mo,.stream = stream};

	job.out.n = n;
	job.out.dim = mo->dim;
	job.out.rows = allocate(sizeof(float) * n * mo->dim);
	run_threads(threads, draw_thread, &job);
	return job.out;
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

int
main(int argc, char **argv)
{
	model		mo = {0};
	vectors		base,
				query;
	int64_t		n,
				nq;
	int			threads;
	double		start = now(),
				drawn,
				lid;
	char		source[256];

	if (argc < 9 || argc > 11)
		die("usage: generate OUT_DIR N NQ DIM LATENT CLUSTERS METRIC SEED [NOISE [THREADS]]");
	n = atoll(argv[2]);
	nq = atoll(argv[3]);
	mo.dim = atoi(argv[4]);
	mo.latent = atoi(argv[5]);
	mo.clusters = atoi(argv[6]);
	mo.m = metric_of(argv[7]);
	mo.seed = strtoull(argv[8], NULL, 10);
	mo.noise = argc > 9 ? strtof(argv[9], NULL) : 0.02f;
	threads = argc > 10 ? atoi(argv[10]) : online_cpus();
	if (n < EXACT_K || n > INT32_MAX || nq < 1 || mo.dim < 1 || mo.dim > 16000 || mo.latent < 1 ||
		mo.clusters < 1 || threads < 1)
		die("an argument is out of range");
	snprintf(source, sizeof(source),
			 "generate N=%lld NQ=%lld DIM=%d LATENT=%d CLUSTERS=%d METRIC=%s SEED=%llu NOISE=%g",
			 (long long) n, (long long) nq, mo.dim, mo.latent, mo.clusters, argv[7],
			 (unsigned long long) mo.seed, mo.noise);

	make_model(&mo);
	base = draw(&mo, n, STREAM_BASE, threads);
	query = draw(&mo, nq, STREAM_QUERY, threads);
	drawn = now();
	lid = write_data_set(argv[1], base, query, mo.m, threads, source);
	printf("%s: %lld x %d %s, %lld queries, intrinsic dimension %.1f"
		   " (drawn in %.1f s, answered in %.1f s)\n",
		   argv[1], (long long) n, mo.dim, argv[7], (long long) nq, lid, drawn - start,
		   now() - drawn);
	free(base.rows);
	free(query.rows);
	free(mo.w1);
	free(mo.b1);
	free(mo.w2);
	free(mo.mean);
	free(mo.width);
	free(mo.cumulative);
	return 0;
}
