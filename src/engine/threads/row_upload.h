/*
 * row_upload.h
 *		Rows go to the device while others are still read from the heap.
 */
#ifndef GG_ROW_UPLOAD_H
#define GG_ROW_UPLOAD_H

#include "engine/engine.h"

/*
 * A device takes rows from several threads at once; more threads than these do not make it faster.
 */
#define GG_UPLOAD_THREADS	8

/*
 * A data set that is being filled chunk by chunk, in any order.  Other processes write to rows,
 * filled and claimed meanwhile.
 */
typedef struct gg_upload_source
{
	const char *rows;
	size_t		row_bytes;
	uint32_t	chunk_rows;		/* rows of a chunk */
	bool		halve;			/* rows are float32, and the index gets halves */
	const volatile uint32_t *filled;	/* by chunk: not 0 once all its rows are there (release) */
	const volatile uint64_t *claimed;	/* chunks that begin at this row or later are empty */
} gg_upload_source;

typedef struct gg_row_upload gg_row_upload;

/*
 * Start threads, at most GG_UPLOAD_THREADS.  They create an index of that shape on the device (it
 * may be GG_DEVICE_IN_USE) and hand full chunks to engine->index_write() as these appear.  Rows
 * behind shape->capacity are not copied.  The threads block all signals and call nothing but the
 * engine.  The caller uses nothing of the engine that touches that device before
 * gg_row_upload_stop().  *index is then the index, the caller's to close, or NULL.  That variable
 * must live as long as the upload.
 *
 * Errors: GG_ENOMEM.  What the engine has to say comes from gg_row_upload_stop(), and
 * GG_EUNSUPPORTED where rows do not bear half precision.
 */
extern gg_status gg_row_upload_start(const gg_engine *engine, int device, const gg_shape *shape,
									 const gg_upload_source *source, int threads,
									 gg_index **index, gg_row_upload **upload);

/* Let the threads end once all chunks that are full now have been copied. */
extern void gg_row_upload_drain(gg_row_upload *upload);

/* Whether the threads have ended, after a drain or because the engine failed. */
extern bool gg_row_upload_ended(const gg_row_upload *upload);

/* End the threads now.  The status is that of the first call that failed.  May be called again. */
extern gg_status gg_row_upload_stop(gg_row_upload *upload);

/* After gg_row_upload_stop(), if that was GG_OK: whether the chunk is on the device. */
extern bool gg_row_upload_done(const gg_row_upload *upload, uint32_t chunk);

/* After gg_row_upload_stop(): seconds to create the index, and in which any thread copied. */
extern double gg_row_upload_open_seconds(const gg_row_upload *upload);
extern double gg_row_upload_seconds(const gg_row_upload *upload);

/*
 * Write `bytes` bytes of float32 rows, at `offset` of all, to an index of halves, without threads.
 * halves: room for half as many.  Errors: as index_write(); GG_EUNSUPPORTED: gg_round_rows() fails.
 */
extern gg_status gg_write_halves(const gg_engine *engine, gg_index *index, uint32_t dim,
								 uint64_t offset, const char *rows, uint64_t bytes,
								 uint16_t *halves);

extern void gg_row_upload_free(gg_row_upload *upload);	/* stops it; NULL is allowed */

#endif							/* GG_ROW_UPLOAD_H */
