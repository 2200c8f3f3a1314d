/*
 * load.c
 *		Load the base rows of a bench data set by binary COPY.
 *
 * usage: load CONNINFO TABLE BASE.f32 DIM [ROWS]
 *
 * TABLE exists and is (id int4, v vector); row i of the file gets id i.  ROWS: only the first
 * ones.
 */
#include "server.h"

#include <errno.h>

#define SEND_BYTES (1 << 20)	/* a COPY message goes out when this much is in it */

int
main(int argc, char **argv)
{
	const int	dim = argc > 4 ? atoi(argv[4]) : 0;
	const long	rows = argc > 5 ? atol(argv[5]) : UINT32_MAX;
	PGconn	   *conn;
	FILE	   *f;
	float	   *row;
	char	   *buffer,
			   *p;

	if (argc < 5 || argc > 6 || dim < 1 || dim > MAX_DIM)
		die("usage: load CONNINFO TABLE BASE.f32 DIM [ROWS]");
	f = fopen(argv[3], "rb");
	if (f == NULL)
		die("%s: %s", argv[3], strerror(errno));
	row = allocate(sizeof(float) * dim);
	p = buffer = allocate(SEND_BYTES + row_bytes(dim, false));
	conn = begin_copy(argv[1], argv[2]);
	for (long id = 0; id < rows && fread(row, sizeof(float), dim, f) == (size_t) dim; id++)
	{
		p = put_row(p, id, row, dim, false);
		if (p - buffer >= SEND_BYTES)
		{
			send_copy(conn, buffer, p - buffer);
			p = buffer;
		}
	}
	if (ferror(f))
		die("%s: %s", argv[3], strerror(errno));
	send_copy(conn, buffer, p - buffer);
	end_copy(conn);
	fclose(f);
	free(row);
	free(buffer);
	return 0;
}
