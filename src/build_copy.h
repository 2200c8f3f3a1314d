/*
 * build_copy.h
 *		Rows go to the device while others are still read from the heap.
 */
#ifndef GG_BUILD_COPY_H
#define GG_BUILD_COPY_H

#include "engine.h"

/*
 * A data set that is being filled chunk by chunk, in any order.  rows, filled and claimed are written to by other
 * processes meanwhile; capacity, chunk_rows: in rows.
 */
typedef struct gg_copy_source
{
	const char *rows;
	size_t		row_bytes;
	uint32_t	chunk_rows;
	uint32_t	capacity;		/* of the device's index: rows behind are not copied */
	const volatile uint32_t *filled;	/* by chunk: not 0 once all its rows are there (release) */
	const volatile uint64_t *claimed;	/* chunks that begin behind this row are empty */
} gg_copy_source;

typedef struct gg_copy gg_copy;

/*
 * Start a thread that hands full chunks to engine->index_write() as they appear.  It blocks all signals and calls nothing
 * but the engine.  Errors: GG_ENOMEM.
 */
extern gg_status gg_copy_start(const gg_engine *engine, gg_index *index, const gg_copy_source *source, gg_copy **copy);

/*
 * Let the thread end when all chunks that are full now have been copied; whether it has ended, then or by a failed
 * index_write().
 */
extern void gg_copy_drain(gg_copy *copy);
extern bool gg_copy_ended(const gg_copy *copy);

/* End the thread now.  The status is that of the first index_write() that failed.  May be called again. */
extern gg_status gg_copy_stop(gg_copy *copy);

/* After gg_copy_stop(): whether the chunk is on the device, and how long the thread copied. */
extern bool gg_copy_done(const gg_copy *copy, uint32_t chunk);
extern double gg_copy_seconds(const gg_copy *copy);

extern void gg_copy_free(gg_copy *copy);	/* stops it; NULL is allowed */

#endif							/* GG_BUILD_COPY_H */
