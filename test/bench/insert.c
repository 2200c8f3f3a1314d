/*
 * insert.c
 *		Insert or update rows of a bench data set as applications do: one row a statement and
 *		transaction.
 *
 * usage: insert [options]
 *		-d CONNINFO		libpq connection string
 *		-f BASE.f32		the rows
 *		-n DIM			their dimensions
 *		-T TABLE		exists and is (id int4, v vector)
 *		-a FIRST		row to begin with (default 0)
 *		-e END			row to end before (default: all)
 *		-b BIT			only rows whose number has this bit set
 *		-c CLIENTS		connections, one thread each (default 1)
 *		-r RATE			rows per second of all clients together (default: as fast as they go)
 *		-t SECONDS		end after so long (default: when the rows end)
 *		-u IDS			update instead: v of rows whose ids are below IDS, here and there among them
 *
 * Row i of the file gets id i.  Clients take rows in order, each the next that none has taken, so
 * that what is inserted has no gaps.  Prints, tab-separated: rows, seconds, rows per second, when
 * the first began and the last ended (seconds since 1970), and the longest statement in
 * milliseconds.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct client
{
	pthread_t	thread;
	long		rows;
	double		longest;		/* seconds */
	double		finish;
} client;

static const char *conninfo = "";
static const char *table;
static const float *base;
static int	dim;
static long first = 0;
static long end = -1;
static int	bit = -1;
static int	clients = 1;
static double rate = 0;
static double seconds = 0;
static long ids = 0;			/* of the rows to update; 0: insert */

static atomic_long next_row;
static atomic_long taken;		/* rows, for the pace */
static pthread_barrier_t start_line;
static double start_time;

static void __attribute__((noreturn))
fail(const char *what, const char *why)
{
	fprintf(stderr, "insert: %s: %s\n", what, why);
	exit(1);
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

static void
insert_row(client *c, PGconn *conn, long row, char *param)
{
	const float *vector = base + (size_t) row * dim;
	/* a prime, so that consecutive rows of the file go to distant ids, and all ids have a turn */
	const uint32_t id = htonl((uint32_t) (ids > 0 ? row * 2654435761 % ids : row));
	const uint16_t head[2] = {htons((uint16_t) dim), 0};
	const char *values[2] = {(const char *) &id, param};
	const int	lengths[2] = {4, 4 + 4 * dim};
	const int	formats[2] = {1, 1};
	PGresult   *res;
	double		before;
	double		took;

	memcpy(param, head, sizeof(head));
	for (int d = 0; d < dim; d++)
	{
		uint32_t	bits;

		memcpy(&bits, &vector[d], sizeof(bits));
		bits = htonl(bits);
		memcpy(param + 4 + 4 * d, &bits, sizeof(bits));
	}
	before = now();
	res = PQexecPrepared(conn, "i", 2, values, lengths, formats, 1);
	took = now() - before;
	if (PQresultStatus(res) != PGRES_COMMAND_OK)
		fail(ids > 0 ? "UPDATE" : "INSERT", PQerrorMessage(conn));
	if (strcmp(PQcmdTuples(res), "1") != 0)
		fail("UPDATE", "no row has the id, or several have");
	PQclear(res);
	if (took > c->longest)
		c->longest = took;
	c->rows++;
}

/* Wait until a row is due.  Clients that are late do not wait. */
static void
pace(long number)
{
	double		wait = start_time + (double) number / rate - now();
	struct timespec t;

	if (wait <= 0)
		return;
	t.tv_sec = (time_t) wait;
	t.tv_nsec = (long) ((wait - (double) t.tv_sec) * 1e9);
	nanosleep(&t, NULL);
}

static void *
run_client(void *arg)
{
	client	   *c = arg;
	PGconn	   *conn = PQconnectdb(conninfo);
	PGresult   *res;
	char	   *param = malloc(4 + 4 * (size_t) dim);
	char		sql[256];
	long		row;

	if (param == NULL)
		fail("memory", "exhausted");
	if (PQstatus(conn) != CONNECTION_OK)
		fail("connection", PQerrorMessage(conn));
	snprintf(sql, sizeof(sql), ids > 0 ? "UPDATE %s SET v = $2 WHERE id = $1" :
			 "INSERT INTO %s (id, v) VALUES ($1, $2)", table);
	res = PQprepare(conn, "i", sql, 0, NULL);
	if (PQresultStatus(res) != PGRES_COMMAND_OK)
		fail("PREPARE", PQerrorMessage(conn));
	PQclear(res);

	if (pthread_barrier_wait(&start_line) == PTHREAD_BARRIER_SERIAL_THREAD)
		start_time = now();
	pthread_barrier_wait(&start_line);
	while (seconds == 0 || now() < start_time + seconds)
	{
		row = atomic_fetch_add(&next_row, 1);
		if (row >= end)
			break;
		if (bit >= 0 && (row >> bit & 1) == 0)
			continue;
		if (rate > 0)
			pace(atomic_fetch_add(&taken, 1));
		insert_row(c, conn, row, param);
	}
	c->finish = now();
	PQfinish(conn);
	free(param);
	return NULL;
}

static void
map_rows(const char *path)
{
	int			fd = open(path, O_RDONLY);
	struct stat st;
	long		rows;

	if (fd < 0 || fstat(fd, &st) != 0)
		fail(path, strerror(errno));
	base = mmap(NULL, (size_t) st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		fail(path, strerror(errno));
	close(fd);
	rows = (long) st.st_size / (4 * (long) dim);
	if (end < 0)
		end = rows;
	if (first < 0 || first > end || end > rows)
		fail(path, "has not so many rows");
}

int
main(int argc, char **argv)
{
	const char *path = NULL;
	client	   *cs;
	long		rows = 0;
	double		finish = 0;
	double		longest = 0;
	int			option;

	while ((option = getopt(argc, argv, "d:f:n:T:a:e:b:c:r:t:u:")) != -1)
		switch (option)
		{
			case 'd':
				conninfo = optarg;
				break;
			case 'f':
				path = optarg;
				break;
			case 'n':
				dim = atoi(optarg);
				break;
			case 'T':
				table = optarg;
				break;
			case 'a':
				first = atol(optarg);
				break;
			case 'e':
				end = atol(optarg);
				break;
			case 'b':
				bit = atoi(optarg);
				break;
			case 'c':
				clients = atoi(optarg);
				break;
			case 'r':
				rate = atof(optarg);
				break;
			case 't':
				seconds = atof(optarg);
				break;
			case 'u':
				ids = atol(optarg);
				break;
			default:
				return 2;
		}
	if (path == NULL || table == NULL || dim < 1 || dim > 16000 || clients < 1 || rate < 0 ||
		seconds < 0 || bit > 30 || ids < 0)
		fail("usage", "see the head of insert.c");
	map_rows(path);
	atomic_init(&next_row, first);
	cs = calloc(clients, sizeof(client));
	if (cs == NULL)
		fail("memory", "exhausted");

	pthread_barrier_init(&start_line, NULL, clients);
	for (int i = 0; i < clients; i++)
		if (pthread_create(&cs[i].thread, NULL, run_client, &cs[i]) != 0)
			fail("pthread_create", strerror(errno));
	for (int i = 0; i < clients; i++)
	{
		pthread_join(cs[i].thread, NULL);
		rows += cs[i].rows;
		if (cs[i].finish > finish)
			finish = cs[i].finish;
		if (cs[i].longest > longest)
			longest = cs[i].longest;
	}
	printf("%ld\t%.3f\t%.1f\t%.3f\t%.3f\t%.1f\n", rows, finish - start_time,
		   (double) rows / (finish - start_time), start_time, finish, longest * 1e3);
	free(cs);
	return 0;
}
