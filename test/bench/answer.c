/*
 * answer.c
 *		Exact answers of queries whose vectors are in a file: a bench data set of them.
 *
 * usage: answer OUT_DIR BASE.f32 QUERY.f32 DIM METRIC
 *
 * Writes all files of exact.h but base.f32, and prints the intrinsic dimension.
 */
#include "exact.h"

static vectors
read_vectors(const char *path, int dim)
{
	vectors		v = {.dim = dim};
	size_t		bytes;

	v.rows = read_file(NULL, path, &bytes);
	v.n = (int64_t) (bytes / (sizeof(float) * dim));
	return v;
}

int
main(int argc, char **argv)
{
	const int	dim = argc == 6 ? atoi(argv[4]) : 0;
	vectors		base,
				query;
	double		lid;

	if (dim < 1 || dim > 16000)
		die("usage: answer OUT_DIR BASE.f32 QUERY.f32 DIM METRIC");
	base = read_vectors(argv[2], dim);
	query = read_vectors(argv[3], dim);
	if (base.n < EXACT_K || base.n > INT32_MAX || query.n < 1)
		die("%lld rows and %lld queries are too few, or too many", (long long) base.n,
			(long long) query.n);
	lid = write_query_set(argv[1], base, query, metric_of(argv[5]), online_cpus(), argv[3]);
	printf("%s: %lld x %d %s, %lld queries, intrinsic dimension %.1f\n", argv[1],
		   (long long) base.n, dim, argv[5], (long long) query.n, lid);
	free(base.rows);
	free(query.rows);
	return 0;
}
