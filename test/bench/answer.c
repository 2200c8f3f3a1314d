/*
 * answer.c
 *		Exact answers of queries whose vectors are in a file: a bench data set of them.
 *
 * usage: answer OUT_DIR BASE.f32 QUERY.f32 DIM METRIC
 *
 * Writes all files of exact.h but base.f32, and prints the intrinsic dimension.
 */
#include "exact.h"

#include <string.h>

static vectors
read_vectors(const char *path, int dim)
{
	vectors		v = {.dim = dim};
	const size_t row_bytes = sizeof(float) * dim;
	FILE	   *f = fopen(path, "rb");
	long		bytes;

	if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (bytes = ftell(f)) < 0)
		die("could not open \"%s\"", path);
	rewind(f);
	v.n = bytes / (long) row_bytes;
	v.rows = allocate(v.n * row_bytes);
	if (fread(v.rows, row_bytes, v.n, f) != (size_t) v.n)
		die("could not read \"%s\"", path);
	fclose(f);
	return v;
}

int
main(int argc, char **argv)
{
	int			dim;
	vectors		base,
				query;
	double		lid;

	if (argc != 6)
		die("usage: answer OUT_DIR BASE.f32 QUERY.f32 DIM METRIC");
	dim = atoi(argv[4]);
	if (dim < 1 || dim > 16000)
		die("dimensions are 1 to 16000");
	base = read_vectors(argv[2], dim);
	query = read_vectors(argv[3], dim);
	if (base.n < EXACT_K || base.n > INT32_MAX || query.n < 1)
		die("%lld rows and %lld queries are too few, or too many", (long long) base.n,
			(long long) query.n);
	make_directory(argv[1]);
	lid = write_query_set(argv[1], base, query, metric_of(argv[5]), online_cpus(), argv[3]);
	printf("%s: %lld x %d %s, %lld queries, intrinsic dimension %.1f\n", argv[1],
		   (long long) base.n, dim, argv[5], (long long) query.n, lid);
	free(base.rows);
	free(query.rows);
	return 0;
}
