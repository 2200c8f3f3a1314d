/*
 * generate.c
 *		Synthetic nearest-neighbour data of a chosen intrinsic dimension, with exact answers.
 *
 * usage: generate OUT_DIR N NQ DIM LATENT CLUSTERS METRIC SEED [NOISE [THREADS]]
 *
 * model.h says what the points are.  The intrinsic dimension, which LATENT and NOISE set, is
 * estimated from the answers and printed.  Queries come from the same distribution.  METRIC is l2,
 * ip or cos.  Files: see exact.h.  The same arguments give the same files whatever the number of
 * threads.
 */
#include "model.h"

#include <stdatomic.h>
#include <time.h>

#define CHUNK 1024				/* rows handed to a thread at a time */

typedef struct draw_job
{
	const model *mo;
	vectors		out;
	uint64_t	stream;
	atomic_llong next;
} draw_job;

static void *
draw_thread(void *arg)
{
	draw_job   *job = arg;
	int64_t		first;

	while ((first = atomic_fetch_add(&job->next, CHUNK)) < job->out.n)
		model_rows(job->mo, job->stream, first,
				   job->out.n - first < CHUNK ? job->out.n - first : CHUNK,
				   job->out.rows + first * job->mo->dim);
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
	mo.noise = argc > 9 ? strtof(argv[9], NULL) : MODEL_NOISE;
	threads = argc > 10 ? atoi(argv[10]) : online_cpus();
	if (n < EXACT_K || n > INT32_MAX || nq < 1 || threads < 1)
		die("an argument is out of range");
	model_make(&mo, argv + 4);
	snprintf(source, sizeof(source),
			 "generate N=%lld NQ=%lld DIM=%d LATENT=%d CLUSTERS=%d METRIC=%s SEED=%llu NOISE=%g",
			 (long long) n, (long long) nq, mo.dim, mo.latent, mo.clusters, argv[7],
			 (unsigned long long) mo.seed, mo.noise);

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
	model_free(&mo);
	return 0;
}
