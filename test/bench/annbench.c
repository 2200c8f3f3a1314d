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
#include <arpa/inet.h>
#include <errno.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GT_K 100				/* ids a query in gt.i32 */
#define NOT_ASKED (-1)

/*
 * FIELDS of -o tsv: label clients k recall qps p50_us p95_us p99_us rows_per_query queries lost
 * seconds
 */

typedef struct client
{
	pthread_t	thread;
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

static pthread_barrier_t start_line;
static double start_time;
static double start_epoch;		/* the same, in seconds since 1970 */
static volatile sig_atomic_t stop = 0;

typedef struct sample
{
	float		end;
	float		latency;
} sample;

static void __attribute__((noreturn))
fail(const char *what, const char *why)
{
	fprintf(stderr, "annbench: %s: %s\n", what, why);
	exit(1);
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

static void
stop_early(int signal)
{
	(void) signal;
	stop = 1;
}

static void *
read_whole(const char *dir, const char *name, long *bytes)
{
	char		path[4096];
	FILE	   *f;
	void	   *data;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "rb");
	if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (*bytes = ftell(f)) < 0)
		fail(path, strerror(errno));
	rewind(f);
	data = malloc(*bytes + 1);
	if (data == NULL || fread(data, 1, *bytes, f) != (size_t) *bytes)
		fail(path, "could not be read whole");
	fclose(f);
	return data;
}

static int
count_hits(int q, PGresult *res)
{
	const int32_t *ids = truth + (size_t) q * GT_K;
	const double *distances = truth_distance + (size_t) q * GT_K;
	int			rows = PQntuples(res);
	int			right = 0;
	bool		used[GT_K] = {false};

	for (int r = 0; r < rows && r < k; r++)
	{
		int32_t		id = (int32_t) ntohl(*(uint32_t *) PQgetvalue(res, r, 0));

		for (int t = 0; t < GT_K && (t < k || distances[t] <= distances[k - 1]); t++)
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
#define PLACES_BYTES	(5 * 4 + GT_K * (4 + 6))

static int
put_places(const int32_t *ids, char *to)
{
	const uint32_t head[5] = {htonl(1), 0, htonl(27), htonl((uint32_t) k), htonl(1)};
	const uint32_t length = htonl(6);
	char	   *at = to;

	memcpy(at, head, sizeof(head));
	at += sizeof(head);
	for (int i = 0; i < k; i++)
	{
		uint32_t	block = htonl((uint32_t) (ids[i] / rows_per_page));
		uint16_t	offset = htons((uint16_t) (ids[i] % rows_per_page + 1));

		memcpy(at, &length, 4);
		memcpy(at + 4, &block, 4);
		memcpy(at + 8, &offset, 2);
		at += 10;
	}
	return (int) (at - to);
}

/* returns the microseconds it took; *rows gets the number of rows */
static float
ask(client *c, int q, int *rows)
{
	int			lengths[2] = {4 + 4 * dim, 0};
	const int	formats[2] = {1, 1};
	char		places[PLACES_BYTES];
	const char *values[2] = {c->param, places};
	const float *vector = queries + (size_t) q * dim;
	uint16_t	head[2] = {htons((uint16_t) dim), 0};
	PGresult   *res;
	double		before,
				after;

	memcpy(c->param, head, sizeof(head));
	for (int d = 0; d < dim; d++)
	{
		uint32_t	bits;

		memcpy(&bits, &vector[d], sizeof(bits));
		bits = htonl(bits);
		memcpy(c->param + 4 + 4 * d, &bits, sizeof(bits));
	}
	if (rows_per_page > 0)
		lengths[1] = put_places(truth + (size_t) q * GT_K, places);
	before = now();
	res = PQexecPrepared(c->conn, "q", rows_per_page > 0 ? 2 : 1, values, lengths, formats, 1);
	after = now();
	if (PQresultStatus(res) != PGRES_TUPLES_OK)
		fail("query", PQerrorMessage(c->conn));
	if (PQftype(res, 0) != 23 || PQgetlength(res, 0, 0) > 4)
		fail("query", "the first column is no int4");
	*rows = PQntuples(res);
	hits[q] = (signed char) count_hits(q, res);
	PQclear(res);
	return (float) ((after - before) * 1e6);
}

static void
connect_client(client *c)
{
	PGresult   *res;

	c->conn = PQconnectdb(conninfo);
	if (PQstatus(c->conn) != CONNECTION_OK)
		fail("connection", PQerrorMessage(c->conn));
	if (setup != NULL)
	{
		res = PQexec(c->conn, setup);
		if (PQresultStatus(res) != PGRES_COMMAND_OK && PQresultStatus(res) != PGRES_TUPLES_OK)
			fail("-s", PQerrorMessage(c->conn));
		PQclear(res);
	}
	res = PQprepare(c->conn, "q", sql, 0, NULL);
	if (PQresultStatus(res) != PGRES_COMMAND_OK)
		fail("-q", PQerrorMessage(c->conn));
	PQclear(res);
}

static void
make_room(client *c)
{
	c->latency = realloc(c->latency, sizeof(float) * c->capacity);
	if (seconds_file != NULL)
		c->end = realloc(c->end, sizeof(float) * c->capacity);
	if (c->latency == NULL || (seconds_file != NULL && c->end == NULL))
		fail("memory", "exhausted");
}

static void *
run_client(void *arg)
{
	client	   *c = arg;
	int			rows;
	long		q = (long) c->id * nq / clients;
	double		end;

	c->param = malloc(4 + 4 * (size_t) dim);
	c->capacity = 1 << 16;
	if (c->param == NULL)
		fail("memory", "exhausted");
	make_room(c);
	connect_client(c);
	for (int i = 0; i < warmup; i++)
		ask(c, (int) (q++ % nq), &rows);

	pthread_barrier_wait(&start_line);
	if (c->id == 0)
	{
		struct timespec t;

		start_time = now();
		clock_gettime(CLOCK_REALTIME, &t);
		start_epoch = (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
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
	sample	   *all = malloc(sizeof(sample) * (total + 1));
	float	   *latency = malloc(sizeof(float) * (total + 1));
	FILE	   *f = fopen(seconds_file, "w");
	long		n = 0,
				from = 0;

	if (all == NULL || latency == NULL)
		fail("memory", "exhausted");
	if (f == NULL)
		fail(seconds_file, strerror(errno));
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
		fail(seconds_file, strerror(errno));
	free(all);
	free(latency);
}

int
main(int argc, char **argv)
{
	const char *dir = NULL;
	const char *label = "";
	bool		tsv = false;
	client	   *cs;
	long		bytes,
				total = 0,
				rows = 0,
				right = 0,
				lost = 0,
				o = 0;
	double		finish = 0,
				elapsed,
				recall;
	float	   *all;
	int			option;

	while ((option = getopt(argc, argv, "d:D:n:q:s:k:c:t:w:l:r:o:p:")) != -1)
		switch (option)
		{
			case 'd':
				conninfo = optarg;
				break;
			case 'D':
				dir = optarg;
				break;
			case 'n':
				dim = atoi(optarg);
				break;
			case 'q':
				sql = optarg;
				break;
			case 's':
				setup = optarg;
				break;
			case 'k':
				k = atoi(optarg);
				break;
			case 'c':
				clients = atoi(optarg);
				break;
			case 't':
				seconds = atof(optarg);
				break;
			case 'w':
				warmup = atoi(optarg);
				break;
			case 'l':
				label = optarg;
				break;
			case 'r':
				rows_per_page = atoi(optarg);
				break;
			case 'o':
				tsv = strcmp(optarg, "tsv") == 0;
				break;
			case 'p':
				seconds_file = optarg;
				break;
			default:
				return 2;
		}
	if (dir == NULL || sql == NULL || dim < 1 || dim > 16000 || k < 1 || k > GT_K || clients < 1 ||
		seconds <= 0 || warmup < 0)
		fail("usage", "see the head of annbench.c");

	queries = read_whole(dir, "query.f32", &bytes);
	nq = (int) (bytes / (long) sizeof(float) / dim);
	truth = read_whole(dir, "gt.i32", &bytes);
	if (nq < 1 || bytes != (long) sizeof(int32_t) * nq * GT_K)
		fail(dir, "gt.i32 does not fit query.f32");
	truth_distance = read_whole(dir, "gd.f64", &bytes);
	if (bytes != (long) sizeof(double) * nq * GT_K)
		fail(dir, "gd.f64 does not fit query.f32");
	hits = malloc(nq);
	cs = calloc(clients, sizeof(client));
	if (hits == NULL || cs == NULL)
		fail("memory", "exhausted");
	for (int i = 0; i < nq; i++)
		hits[i] = NOT_ASKED;

	signal(SIGTERM, stop_early);
	pthread_barrier_init(&start_line, NULL, clients);
	for (int i = 0; i < clients; i++)
	{
		cs[i].id = i;
		if (pthread_create(&cs[i].thread, NULL, run_client, &cs[i]) != 0)
			fail("pthread_create", strerror(errno));
	}
	for (int i = 0; i < clients; i++)
	{
		pthread_join(cs[i].thread, NULL);
		total += cs[i].count;
		rows += cs[i].rows;
		if (cs[i].finish > finish)
			finish = cs[i].finish;
	}
	elapsed = finish - start_time;
	all = malloc(sizeof(float) * (total + 1));
	if (all == NULL)
		fail("memory", "exhausted");
	if (seconds_file != NULL)
		write_seconds(cs, total, elapsed);
	for (int i = 0; i < clients; i++)
	{
		memcpy(all + o, cs[i].latency, sizeof(float) * cs[i].count);
		o += cs[i].count;
		free(cs[i].latency);
		free(cs[i].end);
	}
	qsort(all, total, sizeof(float), compare_floats);
	for (int i = 0; i < nq; i++)
	{
		right += hits[i];
		lost += hits[i] == 0;
	}
	recall = (double) right / ((double) nq * k);

	printf(tsv ? "%s\t%d\t%d\t%.5f\t%.1f\t%.0f\t%.0f\t%.0f\t%.3f\t%ld\t%ld\t%.2f\n"
		   : "%s clients %d  recall@%d %.4f  qps %.0f  p50 %.0f us  p95 %.0f us  p99 %.0f us  "
		   "rows/query %.2f  (%ld queries, %ld lost, in %.1f s)\n",
		   label, clients, k, recall, total / elapsed, all[total / 2], all[total * 95 / 100],
		   all[total * 99 / 100], (double) rows / total, total, lost, elapsed);
	free(all);
	free(cs);
	free((void *) hits);
	free(queries);
	free(truth);
	free(truth_distance);
	return 0;
}
