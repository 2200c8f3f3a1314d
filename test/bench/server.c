/*
 * server.c
 *		How the programs of the bench speak to a server.
 */
#include "server.h"

PGconn *
connect_server(const char *conninfo)
{
	PGconn	   *conn = PQconnectdb(conninfo);

	if (PQstatus(conn) != CONNECTION_OK)
		die("connection: %s", PQerrorMessage(conn));
	return conn;
}

void
do_sql(PGconn *conn, const char *sql)
{
	PGresult   *res = PQexec(conn, sql);

	if (PQresultStatus(res) != PGRES_COMMAND_OK && PQresultStatus(res) != PGRES_TUPLES_OK)
		die("%s: %s", sql, PQerrorMessage(conn));
	PQclear(res);
}

void
prepare_sql(PGconn *conn, const char *name, const char *sql)
{
	PGresult   *res = PQprepare(conn, name, sql, 0, NULL);

	if (PQresultStatus(res) != PGRES_COMMAND_OK)
		die("%s: %s", sql, PQerrorMessage(conn));
	PQclear(res);
}

CLONES static void
put_floats(const float *x, int count, char *to)
{
	for (int i = 0; i < count; i++)
	{
		uint32_t	bits;

		memcpy(&bits, &x[i], sizeof(bits));
		bits = __builtin_bswap32(bits);
		memcpy(to + sizeof(bits) * i, &bits, sizeof(bits));
	}
}

CLONES static void
put_halves(const float *x, int count, char *to)
{
	for (int i = 0; i < count; i++)
	{
		_Float16	half = (_Float16) x[i];
		uint16_t	bits;

		memcpy(&bits, &half, sizeof(bits));
		bits = __builtin_bswap16(bits);
		memcpy(to + sizeof(bits) * i, &bits, sizeof(bits));
	}
}

size_t
vector_bytes(int dim, bool half)
{
	return 4 + (size_t) dim * (half ? 2 : 4);
}

char *
put_vector(char *p, const float *vector, int dim, bool half)
{
	char	   *elements = put16(put16(p, (uint16_t) dim), 0);

	if (half)
		put_halves(vector, dim, elements);
	else
		put_floats(vector, dim, elements);
	return p + vector_bytes(dim, half);
}

/* ---- COPY --------------------------------------------------------------------- */

PGconn *
begin_copy(const char *conninfo, const char *table)
{
	PGconn	   *conn = connect_server(conninfo);
	PGresult   *res;
	char		sql[256];
	/* signature, flags and the length of the header extension */
	char		head[19] = "PGCOPY\n\377\r\n\0";

	snprintf(sql, sizeof(sql), "COPY %s (id, v) FROM STDIN (FORMAT binary)", table);
	res = PQexec(conn, sql);
	if (PQresultStatus(res) != PGRES_COPY_IN)
		die("COPY: %s", PQerrorMessage(conn));
	PQclear(res);
	send_copy(conn, head, sizeof(head));
	return conn;
}

size_t
row_bytes(int dim, bool half)
{
	return 2 + 4 + 4 + 4 + vector_bytes(dim, half);
}

char *
put_row(char *p, int64_t id, const float *vector, int dim, bool half)
{
	p = put16(p, 2);
	p = put32(p, 4);
	p = put32(p, (uint32_t) id);
	p = put32(p, (uint32_t) vector_bytes(dim, half));
	return put_vector(p, vector, dim, half);
}

void
send_copy(PGconn *conn, const char *from, size_t bytes)
{
	if (PQputCopyData(conn, from, (int) bytes) != 1)
		die("COPY: %s", PQerrorMessage(conn));
}

void
end_copy(PGconn *conn)
{
	PGresult   *res;
	char		tail[2];

	put16(tail, 0xFFFF);
	send_copy(conn, tail, sizeof(tail));
	if (PQputCopyEnd(conn, NULL) != 1)
		die("COPY: %s", PQerrorMessage(conn));
	while ((res = PQgetResult(conn)) != NULL)
	{
		if (PQresultStatus(res) != PGRES_COMMAND_OK)
			die("COPY: %s", PQerrorMessage(conn));
		PQclear(res);
	}
	PQfinish(conn);
}
