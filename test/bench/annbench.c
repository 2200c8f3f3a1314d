/*
 * annbench.c
 *		Drive nearest-neighbour queries over libpq; report recall, throughput and latency.
 *
 * usage: annbench [options]
 *		-d CONNINFO		libpq connection string
 *		-D DIR			data set (query.f32, gt.i32, gd.f64: see exact.h)
 *		-n DIM			dimensions of the queries
 *		-q SQL			the query: $1 is the vector, the first column of its result an int4 id
 *		-s SQL			run once on every connection first (SET ...)
 *		-k K			neighbours asked for by the SQL, at most 100 (default 10)
 *		-c CLIENTS		connections, one thread each (default 1)
 *		-t SECONDS		length of the timed run (default 5)
 *		-w QUERIES		untimed queries a client before it (default 200)
 *		-l LABEL		printed in front
 *		-r ROWS			pass as $2, a tid[], where the K nearest lie in a table that holds ROWS
 *						per page, in the order of ids
 *		-o tsv			one tab-separated line in the order of FIELDS, instead of a readable one
 *		-p FILE			write a line for each second of the timed run: when it began (seconds since
 *						1970), queries that ended in it, and their p50, p95 and p99 in microseconds.
 *						A second in which none ended has the latency of the next one that did
 *
 * SIGTERM ends the timed run early, and what is reported is reported then.
 *
 * The SQL is prepared once a connection and executed with one binary parameter, results in binary.
 * Throughput and latencies are over the timed run.  Recall is over the whole query set, each query
 * counted once: queries that warm-up and timed run did not reach are asked after it, so that recall
 * never depends on speed.  An answer counts when it is one of the K nearest, or as near as the
 * K-th: duplicates of a row are equally right.  The same id twice in one answer counts once.
 * "Lost" are queries with no right answer at all: a walk that ended in the wrong part of the graph,
 * which a wider search seldom mends.
 */
#include "exact.h"
#include "server.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#define NOT_ASKED (-1)

/*
 * FIELDS of -o tsv: label clients k recall qps p50_us p95_us p99_us rows_per_query queries lost
 * seconds
 */

typedef struct client
{
	int			id;
	long		count;			/* timed queries */
	long		rows;			/* they returned */
	float	   *latency;		/* microseconds, count of them */
	float	   *end;			/* when each ended, in seconds after the start; only for -p */
	long		capacity;
	double		finish;			/* when the last timed query ended */
	PGconn	   *conn;
	char	   *param;
} client;

static const char *conninfo = "";
static const char *sql;
static const char *setup;
static const char *label = "";
static int	dim;
static int	k = 10;
static int	clients = 1;
static double seconds = 5;
static int	warmup = 200;
static int	rows_per_page = 0;
static const char *seconds_file;

static float *queries;
static int32_t *truth;
static double *truth_distance;
static int	nq;
static _Atomic signed char *hits;	/* a query: right answers of K, or NOT_ASKED */

static client *all_clients;
static atomic_int started;
static pthread_barrier_t start_line;
static double start_time;
static double start_epoch;		/* the same, in seconds since 1970 */
static volatile sig_atomic_t stop = 0;

typedef struct sample
{
	float		end;
	float		latency;
} sample;

static void
stop_early(int signal)
{
	(void) signal;
	stop = 1;
}

/* A file of count rows of the data set. */
static void *
read_rows(const char *dir, const char *name, size_t row, int count)
{
	size_t		size;
	void	   *rows = read_file(dir, name, &size);

	if (size != row * count)
		die("%s/%s does not fit query.f32", dir, name);
	return rows;
}

static int
count_hits(int q, PGresult *res)
{
	const int32_t *ids = truth + (size_t) q * EXACT_K;
	const double *distances = truth_distance + (size_t) q * EXACT_K;
	int			rows = PQntuples(res);
	int			right = 0;
	bool		used[EXACT_K] = {false};

	for (int r = 0; r < rows && r < k; r++)
	{
		int32_t		id = (int32_t) ntohl(*(uint32_t *) PQgetvalue(res, r, 0));

		for (int t = 0; t < EXACT_K && (t < k || distances[t] <= distances[k - 1]); t++)
			if (ids[t] == id && !used[t])
			{
				used[t] = true;
				right++;
				break;
			}
	}
	return right;
}

/*
 * The binary form of a tid[]: dimensions, nulls, the elements' type, length, lower bound; then each
 * with its length.
 */
#define PLACES_BYTES	(5 * 4 + EXACT_K * (4 + 6))

static int
put_places(const int32_t *ids, char *to)
{
	const uint32_t head[5] = {1, 0, 27, (uint32_t) k, 1};
	char	   *at = to;

	for (int i = 0; i < 5; i++)
		at = put32(at, head[i]);
	for (int i = 0; i < k; i++)
	{
		at = put32(at, 6);
		at = put32(at, (uint32_t) (ids[i] / rows_per_page));
		at = put16(at, (uint16_t) (ids[i] % rows_per_page + 1));
	}
	return (int) (at - to);
}

/* returns the microseconds it took; *rows gets the number of rows */
static float
ask(client *c, int q, int *rows)
{
	int			lengths[2] = {(int) vector_bytes(dim, false), 0};
	const int	formats[2] = {1, 1};
	char		places[PLACES_BYTES];
	const char *values[2] = {c->param, places};
	PGresult   *res;
	double		before,
				after;

	put_vector(c->param, queries + (size_t) q * dim, dim, false);
	if (rows_per_page > 0)
		lengths[1] = put_places(truth + (size_t) q * EXACT_K, places);
	before = now();
	res = PQexecPrepared(c->conn, "q", rows_per_page > 0 ? 2 : 1, values, lengths, formats, 1);
	after = now();
	if (PQresultStatus(res) != PGRES_TUPLES_OK)
		die("query: %s", PQerrorMessage(c->conn));
	if (PQftype(res, 0) != 23 || PQgetlength(res, 0, 0) > 4)
		die("query: the first column is no int4");
	*rows = PQntuples(res);
	hits[q] = (signed char) count_hits(q, res);
	PQclear(res);
	return (float) ((after - before) * 1e6);
}

static void
make_room(client *c)
{
	c->latency = realloc(c->latency, sizeof(float) * c->capacity);
	if (seconds_file != NULL)
		c->end = realloc(c->end, sizeof(float) * c->capacity);
	if (c->latency == NULL || (seconds_file != NULL && c->end == NULL))
		die("out of memory");
}

static void *
run_client(void *arg)
{
	client	   *c = (client *) arg + atomic_fetch_add(&started, 1);
	int			rows;
	long		q;
	double		end;

	c->id = (int) (c - (client *) arg);
	q = (long) c->id * nq / clients;
	c->param = allocate(vector_bytes(dim, false));
	c->capacity = 1 << 16;
	make_room(c);
	c->conn = connect_server(conninfo);
	if (setup != NULL)
		do_sql(c->conn, setup);
	prepare_sql(c->conn, "q", sql);
	for (int i = 0; i < warmup; i++)
		ask(c, (int) (q++ % nq), &rows);

	pthread_barrier_wait(&start_line);
	if (c->id == 0)
	{
		start_time = now();
		start_epoch = today();
	}
	pthread_barrier_wait(&start_line);
	end = start_time + seconds;
	do
	{
		if (c->count == c->capacity)
		{
			c->capacity *= 2;
			make_room(c);
		}
		c->latency[c->count] = ask(c, (int) (q++ % nq), &rows);
		if (seconds_file != NULL)
			c->end[c->count] = (float) (now() - start_time);
		c->count++;
		c->rows += rows;
	} while (now() < end && !stop);
	c->finish = now();

	/* nobody works through the rest while another is still timed */
	pthread_barrier_wait(&start_line);
	for (int i = c->id; i < nq; i += clients)
		if (hits[i] == NOT_ASKED)
			ask(c, i, &rows);
	PQfinish(c->conn);
	free(c->param);
	return NULL;
}

static int
compare_floats(const void *a, const void *b)
{
	float		x = *(const float *) a;
	float		y = *(const float *) b;

	return (x > y) - (x < y);
}

static int
compare_samples(const void *a, const void *b)
{
	const sample *x = a;
	const sample *y = b;

	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	return (x->latency > y->latency) - (x->latency < y->latency);
}

/* a line for each whole second of the timed run, which lasted so long */
static void
write_seconds(const client *cs, long total, double elapsed)
{
	sample	   *all = allocate(sizeof(sample) * total);
	float	   *latency = allocate(sizeof(float) * total);
	FILE	   *f = fopen(seconds_file, "w");
	long		n = 0,
				from = 0;

	if (f == NULL)
		die("%s: %s", seconds_file, strerror(errno));
	for (int i = 0; i < clients; i++)
		for (long j = 0; j < cs[i].count; j++)
			all[n++] = (sample) {cs[i].end[j], cs[i].latency[j]};
	qsort(all, n, sizeof(sample), compare_samples);
	for (long s = 0; s < (long) elapsed && from < n; s++)
	{
		long		to = from;
		long		count;

		while (to < n && all[to].end < (float) (s + 1))
			to++;
		count = to > from ? to - from : 1;
		for (long j = 0; j < count; j++)
			latency[j] = all[from + j].latency;
		qsort(latency, count, sizeof(float), compare_floats);
		fprintf(f, "%.3f\t%ld\t%.0f\t%.0f\t%.0f\n", start_epoch + (double) s, to - from,
				latency[count / 2], latency[count * 95 / 100], latency[count * 99 / 100]);
		from = to;
	}
	if (fclose(f) != 0)
		die("%s: %s", seconds_file, strerror(errno));
	free(all);
	free(latency);
}

/* What -o says. */
static void
report(bool tsv)
{
	long		total = 0,
				rows = 0,
				right = 0,
				lost = 0,
				o = 0;
	double		finish = 0,
				elapsed;
	float	   *all;

	for (int i = 0; i < clients; i++)
	{
		total += all_clients[i].count;
		rows += all_clients[i].rows;
		if (all_clients[i].finish > finish)
			finish = all_clients[i].finish;
	}
	elapsed = finish - start_time;
	if (seconds_file != NULL)
		write_seconds(all_clients, total, elapsed);
	all = allocate(sizeof(float) * total);
	for (int i = 0; i < clients; i++)
	{
		memcpy(all + o, all_clients[i].latency, sizeof(float) * all_clients[i].count);
		o += all_clients[i].count;
		free(all_clients[i].latency);
		free(all_clients[i].end);
	}
	qsort(all, total, sizeof(float), compare_floats);
	for (int i = 0; i < nq; i++)
	{
		right += hits[i];
		lost += hits[i] == 0;
	}
	printf(tsv ? "%s\t%d\t%d\t%.5f\t%.1f\t%.0f\t%.0f\t%.0f\t%.3f\t%ld\t%ld\t%.2f\n"
		   : "%s clients %d  recall@%d %.4f  qps %.0f  p50 %.0f us  p95 %.0f us  p99 %.0f us  "
		   "rows/query %.2f  (%ld queries, %ld lost, in %.1f s)\n",
		   label, clients, k, (double) right / ((double) nq * k), total / elapsed, all[total / 2],
		   all[total * 95 / 100], all[total * 99 / 100], (double) rows / total, total, lost,
		   elapsed);
	free(all);
}

int
main(int argc, char **argv)
{
	const char *dir = NULL;
	const char *form = "";
	const option_of options[] = {
		{'d', OPTION_TEXT, &conninfo}, {'D', OPTION_TEXT, &dir}, {'n', OPTION_INT, &dim},
		{'q', OPTION_TEXT, &sql}, {'s', OPTION_TEXT, &setup}, {'k', OPTION_INT, &k},
		{'c', OPTION_INT, &clients}, {'t', OPTION_DOUBLE, &seconds}, {'w', OPTION_INT, &warmup},
		{'l', OPTION_TEXT, &label}, {'r', OPTION_INT, &rows_per_page}, {'o', OPTION_TEXT, &form},
		{'p', OPTION_TEXT, &seconds_file}, {0}
	};
	size_t		size;

	read_options(argc, argv, options);
	if (dir == NULL || sql == NULL || dim < 1 || dim > MAX_DIM || k < 1 || k > EXACT_K ||
		clients < 1 || seconds <= 0 || warmup < 0)
		die("usage: see the head of annbench.c");

	queries = read_file(dir, "query.f32", &size);
	nq = (int) (size / sizeof(float) / dim);
	if (nq < 1)
		die("%s/query.f32 has no queries", dir);
	truth = read_rows(dir, "gt.i32", sizeof(int32_t) * EXACT_K, nq);
	truth_distance = read_rows(dir, "gd.f64", sizeof(double) * EXACT_K, nq);
	hits = allocate(nq);
	memset((void *) hits, NOT_ASKED, nq);
	all_clients = allocate(sizeof(client) * clients);
	memset(all_clients, 0, sizeof(client) * clients);

	signal(SIGTERM, stop_early);
	pthread_barrier_init(&start_line, NULL, clients);
	run_threads(clients, run_client, all_clients);
	report(strcmp(form, "tsv") == 0);
	free(all_clients);
	free((void *) hits);
	free(queries);
	free(truth);
	free(truth_distance);
	return 0;
}
