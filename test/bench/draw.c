/*
 * draw.c
 *		Synthetic rows straight into a table, and the exact answers, without a file of the rows.
 *
 * usage: draw [options] OUT_DIR N NQ DIM LATENT CLUSTERS METRIC SEED
 *		-d CONNINFO		libpq connection string
 *		-T TABLE		(id int4, v vector or halfvec), which exists; without it nothing is sent
 *		-t TYPE			vector (default) or halfvec: v's type
 *		-c CONNECTIONS	one thread each (default: processors)
 *
 * Rows and queries are those of generate with the same arguments.  A row depends on its number
 * alone, so every thread draws blocks of its own, sends them by binary COPY, and compares them with
 * all queries on the way; OUT_DIR gets what generate writes but for base.f32.  Rows lie in the
 * table in the order in which blocks arrived.  Elements of a halfvec are rounded, those of the
 * queries, too: the answers are those of the rows that the table has.
 */
#include "model.h"
#include "server.h"

#include <stdatomic.h>

#define BLOCK 1024				/* rows that a thread draws at a time: 400 kB of 96 elements */

typedef struct draw_job
{
	const model *mo;
	const char *conninfo;
	const char *table;			/* NULL: nothing is sent */
	bool		half;
	int64_t		n;
	vectors		query;
	atomic_llong next;			/* the first row that nobody has taken */
	atomic_int	nsearches;
	exact_search **searches;	/* of each thread */
} draw_job;

/* ---- rows ------------------------------------------------------------------- */

CLONES static void
round_to_half(float *x, size_t count)
{
	for (size_t i = 0; i < count; i++)
		x[i] = (float) (_Float16) x[i];
}

static void
draw_rows(const draw_job *job, uint64_t stream, int64_t first, int64_t count, float *rows)
{
	model_rows(job->mo, stream, first, count, rows);
	if (job->half)
		round_to_half(rows, (size_t) count * job->mo->dim);
}

/* exact_row */
static const float *
draw_again(void *arg, int64_t id, float *space)
{
	draw_rows(arg, STREAM_BASE, id, 1, space);
	return space;
}

/* ---- a thread --------------------------------------------------------------- */

static void *
draw_thread(void *arg)
{
	draw_job   *job = arg;
	int			dim = job->mo->dim;
	PGconn	   *conn = job->table != NULL ? begin_copy(job->conninfo, job->table) : NULL;
	exact_search *search = exact_open(job->query, job->mo->m);
	float	   *rows = allocate(sizeof(float) * BLOCK * dim);
	char	   *message = allocate(BLOCK * row_bytes(dim, job->half));
	int64_t		first;

	while ((first = atomic_fetch_add(&job->next, BLOCK)) < job->n)
	{
		int64_t		count = job->n - first < BLOCK ? job->n - first : BLOCK;
		char	   *p = message;

		draw_rows(job, STREAM_BASE, first, count, rows);
		for (int64_t i = 0; i < count && conn != NULL; i++)
			p = put_row(p, first + i, rows + i * dim, dim, job->half);
		if (conn != NULL)
			send_copy(conn, message, p - message);
		exact_add(search, rows, count, first);
	}
	if (conn != NULL)
		end_copy(conn);
	free(rows);
	free(message);
	job->searches[atomic_fetch_add(&job->nsearches, 1)] = search;
	return NULL;
}

/* The threads' answers put together and written; returns the intrinsic dimension. */
static double
answer(draw_job *job, const char *dir, const char *source)
{
	int64_t		nq = job->query.n;
	exact_search *all = job->searches[0];
	int32_t    *ids = allocate(sizeof(int32_t) * nq * EXACT_K);
	double	   *distances = allocate(sizeof(double) * nq * EXACT_K);
	double		lid;

	for (int i = 1; i < job->nsearches; i++)
	{
		exact_merge(all, job->searches[i]);
		exact_close(job->searches[i]);
	}
	exact_settle(all, draw_again, job, ids, distances);
	exact_close(all);
	lid = write_answers(dir, job->n, job->query, job->mo->m, ids, distances, source);
	free(ids);
	free(distances);
	return lid;
}

int
main(int argc, char **argv)
{
	model		mo = {.noise = MODEL_NOISE};
	draw_job	job = {.mo = &mo,.conninfo = ""};
	int			threads = online_cpus();
	double		start = now(),
				drawn,
				lid;
	char		source[256];
	const char *type = "vector";
	const option_of options[] = {
		{'d', OPTION_TEXT, &job.conninfo}, {'T', OPTION_TEXT, &job.table},
		{'t', OPTION_TEXT, &type}, {'c', OPTION_INT, &threads}, {0}
	};
	const int	first = read_options(argc, argv, options);

	job.half = strcmp(type, "halfvec") == 0;
	if (!job.half && strcmp(type, "vector") != 0)
		die("type \"%s\" is none of vector, halfvec", type);
	argv += first;
	if (argc - first != 8)
		die("usage: draw [options] OUT_DIR N NQ DIM LATENT CLUSTERS METRIC SEED; see its head");
	job.n = atoll(argv[1]);
	job.query.n = atoll(argv[2]);
	if (job.n < EXACT_K || job.n > INT32_MAX || job.query.n < 1 || threads < 1)
		die("an argument is out of range");
	model_make(&mo, argv + 3);
	snprintf(source, sizeof(source), "draw %s N=%lld NQ=%lld DIM=%d LATENT=%d CLUSTERS=%d SEED=%s",
			 job.half ? "halfvec" : "vector", (long long) job.n, (long long) job.query.n, mo.dim,
			 mo.latent, mo.clusters, argv[7]);

	job.query.dim = mo.dim;
	job.query.rows = allocate(sizeof(float) * job.query.n * mo.dim);
	draw_rows(&job, STREAM_QUERY, 0, job.query.n, job.query.rows);
	job.searches = allocate(sizeof(exact_search *) * threads);
	run_threads(threads, draw_thread, &job);
	drawn = now();
	lid = answer(&job, argv[0], source);
	printf("%s: %lld x %d %s, %lld queries, intrinsic dimension %.1f"
		   " (%s in %.1f s by %d threads, answers put together in %.1f s)\n",
		   argv[0], (long long) job.n, mo.dim, argv[6], (long long) job.query.n, lid,
		   job.table != NULL ? "drawn, sent and compared" : "drawn and compared", drawn - start,
		   threads, now() - drawn);
	free(job.searches);
	free(job.query.rows);
	model_free(&mo);
	return 0;
}
