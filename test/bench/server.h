/*
 * server.h
 *		How the programs of the bench speak to a server: connections, vectors as pgvector has them,
 *		binary COPY into (id int4, v vector or halfvec).
 */
#ifndef GG_BENCH_SERVER_H
#define GG_BENCH_SERVER_H

#include "tools.h"

#include <arpa/inet.h>
#include <libpq-fe.h>
#include <stdbool.h>

#define MAX_DIM 16000

extern PGconn *connect_server(const char *conninfo);
/* A statement whose rows nobody wants. */
extern void do_sql(PGconn *conn, const char *sql);
extern void prepare_sql(PGconn *conn, const char *name, const char *sql);

static inline char *
put16(char *p, uint16_t value)
{
	value = htons(value);
	memcpy(p, &value, sizeof(value));
	return p + sizeof(value);
}

static inline char *
put32(char *p, uint32_t value)
{
	value = htonl(value);
	memcpy(p, &value, sizeof(value));
	return p + sizeof(value);
}

/* Bytes of a vector, or halfvec, and the vector: int16 dim, int16 0, its elements. */
extern size_t vector_bytes(int dim, bool half);
extern char *put_vector(char *p, const float *vector, int dim, bool half);

/* ---- COPY --------------------------------------------------------------------- */

extern PGconn *begin_copy(const char *conninfo, const char *table);
/* Bytes of a row, and the row. */
extern size_t row_bytes(int dim, bool half);
extern char *put_row(char *p, int64_t id, const float *vector, int dim, bool half);
extern void send_copy(PGconn *conn, const char *from, size_t bytes);
extern void end_copy(PGconn *conn);

#endif							/* GG_BENCH_SERVER_H */
