/*
 * row_upload.h
 *		Rows go to the device while others are still read from the heap.
 */
#ifndef GG_ROW_UPLOAD_H
#define GG_ROW_UPLOAD_H

#include "engine.h"

/* A device takes rows from several threads at once; more than these it does not take faster. */
#define GG_COPY_THREADS		8

/*
 * A data set that is being filled chunk by chunk, in any order.  rows, filled and claimed are written to by other
 * processes meanwhile; chunk_rows: in rows.
 */
typedef struct gg_copy_source
{
	const char *rows;
	size_t		row_bytes;
	uint32_t	chunk_rows;
	const volatile uint32_t *filled;	/* by chunk: not 0 once all its rows are there (release) */
	const volatile uint64_t *claimed;	/* chunks that begin behind this row are empty */
} gg_copy_source;

typedef struct gg_copy gg_copy;

/*
 * Start threads, at most GG_COPY_THREADS, that create an index of that shape and hand full chunks to
 * engine->index_write() as they appear; rows behind shape->capacity are not copied.  They block all signals and call nothing but the
 * engine, of which the caller uses nothing that touches a device until gg_copy_stop().  By then *index is what was created, the caller's to close, or
 * NULL; it must live as long as the copy.  Errors: GG_ENOMEM; what the engine has to say comes from gg_copy_stop().
 */
extern gg_status gg_copy_start(const gg_engine *engine, const gg_shape *shape, const gg_copy_source *source, int threads,
							   gg_index **index, gg_copy **copy);

/*
 * Let the threads end when all chunks that are full now have been copied; whether they have ended, then or by a failure of
 * the engine.
 */
extern void gg_copy_drain(gg_copy *copy);
extern bool gg_copy_ended(const gg_copy *copy);

/* End the threads now.  The status is that of the first call of the engine that failed.  May be called again. */
extern gg_status gg_copy_stop(gg_copy *copy);

/* After gg_copy_stop(), if that was GG_OK: whether the chunk is on the device. */
extern bool gg_copy_done(const gg_copy *copy, uint32_t chunk);

/* After gg_copy_stop(): seconds to create the index, and in which any of the threads copied. */
extern double gg_copy_open_seconds(const gg_copy *copy);
extern double gg_copy_seconds(const gg_copy *copy);

extern void gg_copy_free(gg_copy *copy);	/* stops it; NULL is allowed */

#endif							/* GG_ROW_UPLOAD_H */
