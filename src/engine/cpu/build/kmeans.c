/*
 * kmeans.c
 *		k-means (Lloyd) over a sample of rows: the centroids of a table's partitions.
 *
 * Centroids start as distinct places of the sample, drawn by the seed.  In each round every row
 * goes to its nearest centroid, and a centroid becomes the mean of its rows, in double precision
 * and in the order of the rows, so the result does not depend on the threads.  A centroid without
 * rows takes the place of the row that is farthest from its own one.
 *
 * Rows are drawn without replacement, and not far from each other as k-means++ does: that reads the
 * sample once per centroid, and a hundred rows per centroid and ten rounds find about the same.
 */
#include "engine/cpu/common/threads.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/rules/random.h"

#define PIECE_ROWS		64u

typedef struct kmeans_job
{
	const float *rows;
	const float *centroids;
	uint32_t	dim;
	uint32_t	k;
	uint32_t   *nearest;		/* of each row */
	float	   *distances;
} kmeans_job;

/*
 * The squared distance that decides, the same on every processor: a float32 squared is exact in
 * double precision, whether it is added in one step or in two, and the order of the sum is fixed.
 */
static double
deciding_distance(const float *a, const float *b, uint32_t dim)
{
	double		sum = 0;

	for (uint32_t j = 0; j < dim; j++)
	{
		const float difference = a[j] - b[j];

		sum += (double) difference * difference;
	}
	return sum;
}

/*
 * A centroid's number is part of a partition's key, so rows that were routed on one processor must
 * lie where another one looks for them.  Distances in single precision have other last bits with
 * each instruction set.  So they decide only where they differ by more than sums can be wrong: each
 * addition by 2^-24 of the sum, and by 2^-150 where float32 has no smaller part.
 */
uint32_t
gg_nearest_centroid(const float *centroids, uint32_t k, uint32_t dim, const float *row,
					float *distance)
{
	const gg_distance_fn measure = gg_distance_function(GG_METRIC_L2, GG_ELEMENT_F32);
	const double factor = 1 + (dim + 16) * 0x1p-22;
	const double margin = dim * 0x1p-148;
	uint32_t	nearest = 0;
	double		least = measure(centroids, row, dim);
	double		deciding = -1;	/* of the nearest; -1: not known */

	for (uint32_t i = 1; i < k; i++)
	{
		const float *centroid = centroids + (size_t) i * dim;
		const double at = measure(centroid, row, dim);

		/* infinity stands for all that exceeds float32 */
		if (fmin(at, FLT_MAX) > least * factor + margin)
			continue;
		if (fmin(least, FLT_MAX) > at * factor + margin)
			deciding = -1;
		else
		{
			const double other = deciding_distance(centroid, row, dim);

			if (deciding < 0)
				deciding = deciding_distance(centroids + (size_t) nearest * dim, row, dim);
			if (other >= deciding)
				continue;
			deciding = other;
		}
		nearest = i;
		least = at;
	}
	if (distance != NULL)
		*distance = (float) least;
	return nearest;
}

static void
assign_rows(gg_worker *worker, void *ctx, uint64_t i)
{
	kmeans_job *job = ctx;

	(void) worker;
	job->nearest[i] = gg_nearest_centroid(job->centroids, job->k, job->dim,
										  job->rows + i * job->dim, &job->distances[i]);
}

/* Draw k different rows as centroids: the first places of a shuffle. */
static void
draw(const float *rows, uint32_t n, uint32_t dim, uint32_t k, uint64_t seed, uint32_t *order,
	 float *centroids)
{
	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	for (uint32_t i = 0; i < k; i++)
	{
		const uint32_t j = i + gg_random_below(seed, i, n - i);
		const uint32_t row = order[j];

		order[j] = order[i];
		order[i] = row;
		memcpy(centroids + (size_t) i * dim, rows + (size_t) row * dim, dim * sizeof(float));
	}
}

/* Move a centroid without rows to the row farthest from its own centroid, which then is near. */
static void
move_to_farthest(kmeans_job *job, uint32_t n, float *centroid)
{
	uint32_t	farthest = 0;

	for (uint32_t i = 1; i < n; i++)
		if (job->distances[i] > job->distances[farthest])
			farthest = i;
	job->distances[farthest] = 0;
	memcpy(centroid, job->rows + (size_t) farthest * job->dim, job->dim * sizeof(float));
}

static void
set_mean(float *centroid, const double *sum, uint32_t count, uint32_t dim, bool unit)
{
	double		length = 0;

	for (uint32_t j = 0; j < dim; j++)
		length += sum[j] * sum[j];
	length = unit && length > 0 ? sqrt(length) : count;
	for (uint32_t j = 0; j < dim; j++)
		centroid[j] = (float) (sum[j] / length);
}

/* Make each centroid the mean of its rows.  sums: k x dim; counts: k. */
static void
take_means(kmeans_job *job, uint32_t n, bool unit, double *sums, uint32_t *counts,
		   float *centroids)
{
	const uint32_t dim = job->dim;

	memset(sums, 0, (size_t) job->k * dim * sizeof(double));
	memset(counts, 0, job->k * sizeof(uint32_t));
	for (uint32_t i = 0; i < n; i++)
	{
		double	   *sum = sums + (size_t) job->nearest[i] * dim;

		counts[job->nearest[i]]++;
		for (uint32_t j = 0; j < dim; j++)
			sum[j] += job->rows[(size_t) i * dim + j];
	}
	for (uint32_t c = 0; c < job->k; c++)
	{
		float	   *centroid = centroids + (size_t) c * dim;

		if (counts[c] == 0)
			move_to_farthest(job, n, centroid);
		else
			set_mean(centroid, sums + (size_t) c * dim, counts[c], dim, unit);
	}
}

gg_status
gg_kmeans(const float *rows, uint32_t n, uint32_t dim, const gg_kmeans_params *params,
		  const gg_control *control, float *centroids)
{
	static const char *const where = "gg_kmeans";
	const uint32_t k = params->k;
	kmeans_job	job = {.rows = rows,.centroids = centroids,.dim = dim,.k = k};
	double	   *sums = malloc((size_t) k * dim * sizeof(double));
	uint32_t   *counts = malloc(k * sizeof(uint32_t));
	gg_pool    *pool = NULL;
	gg_status	status;

	job.nearest = malloc(n * sizeof(uint32_t));
	job.distances = malloc(n * sizeof(float));
	if (k < 1 || n < k || dim < 1)
		status = gg_fail(GG_EINVAL, where, "%u centroids of %u rows of %u dimensions", k, n, dim);
	else if (sums == NULL || counts == NULL || job.nearest == NULL || job.distances == NULL)
		status = gg_fail(GG_ENOMEM, where, "out of memory for %u centroids of %u rows", k, n);
	else
		status = gg_pool_create(&pool, control);
	if (status.code == GG_OK)
		draw(rows, n, dim, k, params->seed, job.nearest, centroids);
	for (uint32_t round = 0; round < params->rounds && status.code == GG_OK; round++)
	{
		status = gg_pool_each(pool, assign_rows, &job, n, PIECE_ROWS);
		if (status.code == GG_OK)
			take_means(&job, n, params->unit, sums, counts, centroids);
	}
	gg_pool_free(pool);
	free(job.distances);
	free(job.nearest);
	free(counts);
	free(sums);
	return status;
}
