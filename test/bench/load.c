/*
 * load.c
 *		Load the base rows of a bench data set by binary COPY.
 *
 * usage: load CONNINFO TABLE BASE.f32 DIM [ROWS]
 *
 * TABLE exists and is (id int4, v vector); row i of the file gets id i.  ROWS: only the first
 * ones.  A vector travels as pgvector sends it: int16 dim, int16 0, dim float4, all in network byte
 * order.
 */
#include <errno.h>
#include <libpq-fe.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copy.h"

#define SEND_BYTES (1 << 20)	/* a COPY message goes out when this much is in it */

static void
fail(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

int
main(int argc, char **argv)
{
	PGconn	   *conn;
	PGresult   *res;
	FILE	   *f;
	int			dim;
	float	   *row;
	char	   *buffer,
			   *p;
	size_t		row_bytes;
	char		sql[256];
	uint32_t	id = 0;
	uint32_t	rows = UINT32_MAX;

	if (argc != 5 && argc != 6)
		fail("usage", "load CONNINFO TABLE BASE.f32 DIM [ROWS]");
	if (argc == 6)
		rows = (uint32_t) strtoul(argv[5], NULL, 10);
	dim = atoi(argv[4]);
	if (dim < 1 || dim > 16000)
		fail(argv[4], "dimensions are 1 to 16000");
	f = fopen(argv[3], "rb");
	if (f == NULL)
		fail(argv[3], strerror(errno));
	row_bytes = 2 + 4 + 4 + 4 + 4 + 4 * (size_t) dim;
	row = malloc(sizeof(float) * dim);
	buffer = malloc(SEND_BYTES + row_bytes + 32);
	if (row == NULL || buffer == NULL)
		fail("load", "out of memory");

	conn = PQconnectdb(argv[1]);
	if (PQstatus(conn) != CONNECTION_OK)
		fail("connection", PQerrorMessage(conn));
	snprintf(sql, sizeof(sql), "COPY %s (id, v) FROM STDIN (FORMAT binary)", argv[2]);
	res = PQexec(conn, sql);
	if (PQresultStatus(res) != PGRES_COPY_IN)
		fail("COPY", PQerrorMessage(conn));
	PQclear(res);

	/* signature, flags and the length of the header extension */
	p = buffer;
	memcpy(p, "PGCOPY\n\377\r\n\0", 11);
	p = put32(p + 11, 0);
	p = put32(p, 0);
	while (id < rows && fread(row, sizeof(float), dim, f) == (size_t) dim)
	{
		p = put16(p, 2);
		p = put32(p, 4);
		p = put32(p, id++);
		p = put32(p, 4 + 4 * (uint32_t) dim);
		p = put16(p, (uint16_t) dim);
		p = put16(p, 0);
		for (int d = 0; d < dim; d++)
		{
			uint32_t	bits;

			memcpy(&bits, &row[d], sizeof(bits));
			p = put32(p, bits);
		}
		if (p - buffer >= SEND_BYTES)
		{
			if (PQputCopyData(conn, buffer, (int) (p - buffer)) != 1)
				fail("COPY", PQerrorMessage(conn));
			p = buffer;
		}
	}
	if (ferror(f))
		fail(argv[3], strerror(errno));
	p = put16(p, 0xFFFF);
	if (PQputCopyData(conn, buffer, (int) (p - buffer)) != 1 || PQputCopyEnd(conn, NULL) != 1)
		fail("COPY", PQerrorMessage(conn));
	while ((res = PQgetResult(conn)) != NULL)
	{
		if (PQresultStatus(res) != PGRES_COMMAND_OK)
			fail("COPY", PQerrorMessage(conn));
		PQclear(res);
	}
	PQfinish(conn);
	fclose(f);
	free(row);
	free(buffer);
	return 0;
}
