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
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct client
{
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
static atomic_int started;
static pthread_barrier_t start_line;
static double start_time;

static void
insert_row(client *c, PGconn *conn, long row, char *param)
{
	/* a prime, so that consecutive rows of the file go to distant ids, and all ids have a turn */
	const uint32_t id = htonl((uint32_t) (ids > 0 ? row * 2654435761 % ids : row));
	const char *values[2] = {(const char *) &id, param};
	const int	lengths[2] = {4, (int) vector_bytes(dim, false)};
	const int	formats[2] = {1, 1};
	PGresult   *res;
	double		before;
	double		took;

	put_vector(param, base + (size_t) row * dim, dim, false);
	before = today();
	res = PQexecPrepared(conn, "i", 2, values, lengths, formats, 1);
	took = today() - before;
	if (PQresultStatus(res) != PGRES_COMMAND_OK)
		die("%s: %s", ids > 0 ? "UPDATE" : "INSERT", PQerrorMessage(conn));
	if (strcmp(PQcmdTuples(res), "1") != 0)
		die("UPDATE: no row has the id, or several have");
	PQclear(res);
	if (took > c->longest)
		c->longest = took;
	c->rows++;
}

/* Wait until a row is due.  Clients that are late do not wait. */
static void
pace(long number)
{
	double		wait = start_time + (double) number / rate - today();
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
	client	   *c = (client *) arg + atomic_fetch_add(&started, 1);
	PGconn	   *conn = connect_server(conninfo);
	char	   *param = allocate(vector_bytes(dim, false));
	char		sql[256];
	long		row;

	snprintf(sql, sizeof(sql), ids > 0 ? "UPDATE %s SET v = $2 WHERE id = $1" :
			 "INSERT INTO %s (id, v) VALUES ($1, $2)", table);
	prepare_sql(conn, "i", sql);

	if (pthread_barrier_wait(&start_line) == PTHREAD_BARRIER_SERIAL_THREAD)
		start_time = today();
	pthread_barrier_wait(&start_line);
	while (seconds == 0 || today() < start_time + seconds)
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
	c->finish = today();
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
		die("%s: %s", path, strerror(errno));
	base = mmap(NULL, (size_t) st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		die("%s: %s", path, strerror(errno));
	close(fd);
	rows = (long) st.st_size / (4 * (long) dim);
	if (end < 0)
		end = rows;
	if (first < 0 || first > end || end > rows)
		die("%s: has not so many rows", path);
}

int
main(int argc, char **argv)
{
	const char *path = NULL;
	client	   *cs;
	long		rows = 0;
	double		finish = 0;
	double		longest = 0;
	const option_of options[] = {
		{'d', OPTION_TEXT, &conninfo}, {'f', OPTION_TEXT, &path}, {'n', OPTION_INT, &dim},
		{'T', OPTION_TEXT, &table}, {'a', OPTION_LONG, &first}, {'e', OPTION_LONG, &end},
		{'b', OPTION_INT, &bit}, {'c', OPTION_INT, &clients}, {'r', OPTION_DOUBLE, &rate},
		{'t', OPTION_DOUBLE, &seconds}, {'u', OPTION_LONG, &ids}, {0}
	};

	read_options(argc, argv, options);
	if (path == NULL || table == NULL || dim < 1 || dim > MAX_DIM || clients < 1 || rate < 0 ||
		seconds < 0 || bit > 30 || ids < 0)
		die("usage: see the head of insert.c");
	map_rows(path);
	atomic_init(&next_row, first);
	cs = allocate(sizeof(client) * clients);
	memset(cs, 0, sizeof(client) * clients);

	pthread_barrier_init(&start_line, NULL, clients);
	run_threads(clients, run_client, cs);
	for (int i = 0; i < clients; i++)
	{
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
