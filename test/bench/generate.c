/*
 * generate.c
 *		Synthetic nearest-neighbour data of a chosen intrinsic dimension, with exact answers.
 *
 * usage: generate [-g GAP [-s SAMPLE]] OUT_DIR N NQ DIM LATENT CLUSTERS METRIC SEED
 *			[NOISE [THREADS]]
 *
 *		-g GAP		between queries and rows, 0 to 1, or "hard" (default: 0)
 *		-s SAMPLE	also write sample.f32, so many queries like the others but of three quarters of
 *					the clusters, of which the set's queries are then, too; and the sets
 *					OUT_DIR/unseen, with queries of the last quarter, and OUT_DIR/own, with queries
 *					like the rows
 *
 * model.h says what the points are.  The intrinsic dimension, which LATENT and NOISE set, is
 * estimated from the answers and printed.  METRIC is l2, ip or cos.  Files: see exact.h.  The same
 * arguments give the same files whatever the number of threads.
 */
#include "model.h"

#include <stdatomic.h>

#define CHUNK 1024				/* rows handed to a thread at a time */

typedef struct draw_job
{
	const model *mo;
	query_kind	kind;
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
		model_queries(job->mo, &job->kind, job->stream, first,
					  job->out.n - first < CHUNK ? job->out.n - first : CHUNK,
					  job->out.rows + first * job->mo->dim);
	return NULL;
}

static vectors
draw(const model *mo, query_kind kind, int64_t n, uint64_t stream, int threads)
{
	draw_job	job = {.mo = mo,.kind = kind,.stream = stream};

	job.out.n = n;
	job.out.dim = mo->dim;
	job.out.rows = allocate(sizeof(float) * n * mo->dim);
	run_threads(threads, draw_thread, &job);
	return job.out;
}

/* Queries of a kind and their answers, in a directory below. */
static void
write_more(const char *dir, const char *name, const model *mo, query_kind kind, vectors base,
		   int64_t nq, int threads, const char *source)
{
	vectors		query = draw(mo, kind, nq, STREAM_QUERY, threads);
	char		path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	(void) write_query_set(path, base, query, mo->m, threads, source);
	free(query.rows);
}

typedef struct options
{
	const char *gap;			/* NULL: none */
	long		sample;
	int64_t		n;
	int64_t		nq;
	int			threads;
} options;

static char **
read_arguments(int argc, char **argv, options *o, model *mo)
{
	const option_of letters[] = {{'g', OPTION_TEXT, &o->gap}, {'s', OPTION_LONG, &o->sample}, {0}};
	const int	first = read_options(argc, argv, letters);

	if (argc - first < 8 || argc - first > 10 || (o->sample > 0 && o->gap == NULL))
		die("usage: generate [-g GAP [-s SAMPLE]] OUT_DIR N NQ DIM LATENT CLUSTERS METRIC SEED "
			"[NOISE [THREADS]]");
	argv += first;
	o->n = atoll(argv[1]);
	o->nq = atoll(argv[2]);
	mo->noise = argc - first > 8 ? strtof(argv[8], NULL) : MODEL_NOISE;
	o->threads = argc - first > 9 ? atoi(argv[9]) : online_cpus();
	if (o->n < EXACT_K || o->n > INT32_MAX || o->nq < 1 || o->threads < 1 || o->sample < 0)
		die("an argument is out of range");
	model_make(mo, argv + 3);
	return argv;
}

/* The kind of queries with the gap, from the model of the next seed. */
static query_kind
read_gap(const options *o, char **arguments, model *other)
{
	query_kind	kind = {0};
	char		seed[32];
	char	   *of_other[5] = {arguments[0], arguments[1], arguments[2], arguments[3], seed};

	if (o->gap == NULL)
		return kind;
	snprintf(seed, sizeof(seed), "%llu", strtoull(arguments[4], NULL, 10) + 1);
	model_make(other, of_other);
	kind.other = other;
	if (strcmp(o->gap, "hard") != 0)
	{
		kind.gap = strtof(o->gap, NULL);
		kind.offset = model_offset(other);
		if (!(kind.gap >= 0 && kind.gap <= 1))
			die("the gap is 0 to 1, or hard");
	}
	return kind;
}

int
main(int argc, char **argv)
{
	model		mo = {0};
	model		other = {0};
	options		o = {0};
	query_kind	kind,
				unseen;
	vectors		base,
				query;
	double		start = now(),
				drawn,
				lid;
	char		source[256];
	const char *dir;

	argv = read_arguments(argc, argv, &o, &mo);
	dir = argv[0];
	kind = unseen = read_gap(&o, argv + 3, &other);
	if (o.sample > 0)
		kind.end = unseen.first = mo.clusters * 3 / 4;
	snprintf(source, sizeof(source),
			 "generate GAP=%s N=%lld NQ=%lld DIM=%d LATENT=%d CLUSTERS=%d METRIC=%s SEED=%llu "
			 "NOISE=%g", o.gap != NULL ? o.gap : "0", (long long) o.n, (long long) o.nq, mo.dim,
			 mo.latent, mo.clusters, argv[6], (unsigned long long) mo.seed, mo.noise);

	base = draw(&mo, (query_kind) {0}, o.n, STREAM_BASE, o.threads);
	query = draw(&mo, kind, o.nq, STREAM_QUERY, o.threads);
	drawn = now();
	if (o.sample > 0)
	{
		vectors		sample = draw(&mo, kind, o.sample, STREAM_SAMPLE, o.threads);

		make_directory(dir);
		write_file(dir, "sample.f32", sample.rows, sizeof(float) * sample.n * sample.dim);
		write_more(dir, "unseen", &mo, unseen, base, o.nq, o.threads, source);
		write_more(dir, "own", &mo, (query_kind) {0}, base, o.nq, o.threads, source);
		free(sample.rows);
	}
	lid = write_data_set(dir, base, query, mo.m, o.threads, source);
	printf("%s: %lld x %d %s, %lld queries, intrinsic dimension %.1f"
		   " (drawn in %.1f s, answered in %.1f s)\n",
		   dir, (long long) o.n, mo.dim, argv[6], (long long) o.nq, lid, drawn - start,
		   now() - drawn);
	free(base.rows);
	free(query.rows);
	model_free(&mo);
	return 0;
}
