/*
 * test_kmeans.c
 *		Centroids of a sample (src/engine/cpu/build/kmeans.c).
 *
 *	clusters	each of well separated clusters has a centroid, and rows go to that of their own
 *	rounds		bring centroids nearer to the rows
 *	copies		where fewer rows are distinct than there are centroids, those are among them
 *	unit		centroids have unit length
 *	threads		change nothing
 *	processors	change nothing: ties, and squares beyond float32, have one winner with all
 *				sets of instructions
 *	refusals	more centroids than rows; a cancel
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define DIM 24u

static float *
clustered(uint32_t n, uint32_t clusters, bool unit)
{
	harness_random random = {7};
	float	   *rows = malloc((size_t) n * DIM * sizeof(float));

	for (uint32_t i = 0; i < n; i++)
	{
		double		length = 0;

		for (uint32_t j = 0; j < DIM; j++)
		{
			const double x = (j == i % clusters ? 10 : 0) + 0.5 * harness_normal(&random);

			rows[i * DIM + j] = (float) x;
			length += x * x;
		}
		for (uint32_t j = 0; unit && j < DIM; j++)
			rows[i * DIM + j] /= (float) sqrt(length);
	}
	return rows;
}

static double
sum_of_distances(const float *rows, uint32_t n, const float *centroids, uint32_t k)
{
	double		sum = 0;

	for (uint32_t i = 0; i < n; i++)
	{
		float		distance;

		(void) gg_nearest_centroid(centroids, k, DIM, rows + (size_t) i * DIM, &distance);
		sum += distance;
	}
	return sum;
}

static void
test_clusters(void)
{
	const uint32_t n = 2000;
	const uint32_t k = 12;
	float	   *rows = clustered(n, k, false);
	float	   *centroids = malloc(3 * k * DIM * sizeof(float));
	const gg_control three = {.threads = 3};
	gg_kmeans_params params = {.k = 3 * k,.rounds = 10,.seed = 3};
	float	   *again = malloc(3 * k * DIM * sizeof(float));
	double		before;
	uint32_t	mixed = 0;

	/* with three centroids per cluster, none has rows of two */
	CHECK_OK(gg_kmeans(rows, n, DIM, &params, NULL, centroids), "kmeans");
	for (uint32_t i = 0; i < n; i++)
	{
		const uint32_t c = gg_nearest_centroid(centroids, 3 * k, DIM, rows + i * DIM, NULL);

		for (uint32_t j = 0; j < k; j++)
			mixed += j != i % k && centroids[c * DIM + j] > centroids[c * DIM + i % k];
	}
	CHECK(mixed == 0, "%u rows are with another cluster", mixed);
	CHECK_OK(gg_kmeans(rows, n, DIM, &params, &three, again), "kmeans, threads");
	CHECK(memcmp(centroids, again, 3 * k * DIM * sizeof(float)) == 0, "threads change centroids");
	params.rounds = 0;
	CHECK_OK(gg_kmeans(rows, n, DIM, &params, NULL, again), "kmeans, no round");
	before = sum_of_distances(rows, n, again, 3 * k);
	CHECK(sum_of_distances(rows, n, centroids, 3 * k) < 0.8 * before, "%g before, %g after",
		  before, sum_of_distances(rows, n, centroids, 3 * k));
	free(again);
	free(centroids);
	free(rows);
}

static void
test_copies(void)
{
	const uint32_t n = 300;
	const uint32_t distinct = 5;
	float	   *rows = malloc((size_t) n * DIM * sizeof(float));
	float		centroids[8 * DIM];
	const gg_kmeans_params params = {.k = 8,.rounds = 6,.seed = 1};

	for (uint32_t i = 0; i < n * DIM; i++)
		rows[i] = (float) ((i / DIM) % distinct * 3 + i % DIM);
	CHECK_OK(gg_kmeans(rows, n, DIM, &params, NULL, centroids), "kmeans");
	CHECK(sum_of_distances(rows, n, centroids, 8) == 0, "%g",
		  sum_of_distances(rows, n, centroids, 8));
	free(rows);
}

static void
test_unit(void)
{
	const uint32_t n = 1000;
	float	   *rows = clustered(n, 9, true);
	float		centroids[9 * DIM];
	const gg_kmeans_params params = {.k = 9,.rounds = 8,.seed = 5,.unit = true};

	CHECK_OK(gg_kmeans(rows, n, DIM, &params, NULL, centroids), "kmeans");
	for (uint32_t c = 0; c < 9; c++)
	{
		double		length = 0;

		for (uint32_t j = 0; j < DIM; j++)
			length += (double) centroids[c * DIM + j] * centroids[c * DIM + j];
		CHECK(fabs(length - 1) < 1e-5, "length %g", length);
	}
	free(rows);
}

static void
test_refusals(void)
{
	float	   *rows = clustered(4000, 9, false);
	float		centroids[20 * DIM];
	const gg_kmeans_params many = {.k = 20,.rounds = 1};
	const gg_kmeans_params long_one = {.k = 20,.rounds = 1000};
	const gg_control control = {.threads = 1,.cancelled = harness_cancelled_at_once};

	CHECK(gg_kmeans(rows, 19, DIM, &many, NULL, centroids).code == GG_EINVAL, "too few rows");
	CHECK(gg_kmeans(rows, 4000, DIM, &long_one, &control, centroids).code == GG_ECANCELED,
		  "canceled");
	free(rows);
}

/* The winner with the set in use; UINT32_MAX: another set has another one. */
static uint32_t
winner(const float *centroids, uint32_t k, uint32_t dim, const float *row)
{
	static const char *const sets[] = {"avx512", "avx2", "neon", "plain"};
	uint32_t	first = UINT32_MAX;

	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
	{
		uint32_t	nearest;

		if (!gg_simd_force(sets[i]))
			continue;
		nearest = gg_nearest_centroid(centroids, k, dim, row, NULL);
		if (first != UINT32_MAX && nearest != first)
			first = nearest = UINT32_MAX;
		if (nearest == UINT32_MAX)
			break;
		first = nearest;
	}
	gg_simd_force(NULL);
	return first;
}

/* Centroids are the same numbers in another order each, so all are as far from the origin. */
static void
test_processors(void)
{
	enum
	{
		K = 16,
		MOST = 1000
	};
	static const uint32_t dims[] = {2, 7, 24, 96, 768, MOST};
	static float centroids[K * MOST];
	static const float origin[MOST];
	static const float beyond[] = {1e30f, 0, 4e30f, 0, 2.5e30f, 1e29f};
	static const float long_row[] = {2e30f, 0};
	harness_random random = {11};
	uint32_t	differ = 0;

	for (uint32_t trial = 0; trial < 600; trial++)
	{
		const uint32_t dim = dims[trial % (sizeof(dims) / sizeof(dims[0]))];

		for (uint32_t j = 0; j < dim; j++)
			centroids[j] = (float) harness_normal(&random);
		for (uint32_t c = 1; c < K; c++)
			for (uint32_t j = 0; j < dim; j++)
				centroids[c * dim + j] = centroids[(j + c * 5) % dim];
		differ += winner(centroids, K, dim, origin) == UINT32_MAX;
	}
	CHECK(differ == 0, "processors differ in %u ties", differ);
	CHECK(winner(beyond, 3, 2, long_row) == 2, "squares beyond float32");
}

int
main(void)
{
	harness_run("clusters", test_clusters);
	harness_run("copies", test_copies);
	harness_run("unit", test_unit);
	harness_run("processors", test_processors);
	harness_run("refusals", test_refusals);
	return harness_finish();
}
