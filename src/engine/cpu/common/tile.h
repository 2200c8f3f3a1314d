/*
 * tile.h
 *		All-pairs distances by tiles, entered into bounded neighbour lists.
 *
 * Everything that compares many rows with many rows goes through gg_tile_join(): assigning rows to
 * pivots, comparing the rows of a cell, the cross-matching of GNND.
 */
#ifndef GG_TILE_H
#define GG_TILE_H

#include "cpu.h"
#include "threads.h"
#include "tile_ops.h"

/* ---- rows as tiles see them --------------------------------------------- */

/*
 * For tiles two metrics are the squared Euclidean distance: of the rows as they are (L2), or of the
 * rows at unit length (cosine: |a - b|^2 = 2 (1 - cos)).  Inner product and L1 stay themselves.
 */
typedef struct gg_rows
{
	const gg_dataset *data;
	uint32_t	dim;			/* of data */
	float	   *scale;			/* n factors to unit length, or NULL */
	float	   *directions;		/* inner product: such factors, which cells.c applies; else NULL */
} gg_rows;

extern gg_status gg_rows_prepare(gg_rows *rows, const gg_dataset *data, gg_pool *pool);
extern void gg_rows_free(gg_rows *rows);
/* Elements begin .. end - 1 of a row, as float32. */
extern void gg_rows_load(const gg_rows *rows, uint32_t row, uint32_t begin, uint32_t end,
						 float *out);

/* ---- bounded lists ------------------------------------------------------- */

/*
 * n lists of the k nearest seen so far, unordered.  A list starts as k times (GG_NO_NODE,
 * +infinity) and has stride - k slots behind that never change: (GG_NO_NODE, -infinity), so that
 * vectors of 16 need no end case.
 */
typedef struct gg_lists
{
	uint32_t	n;
	uint32_t	k;
	uint32_t	stride;			/* k rounded up to GG_LIST_STEP */
	uint32_t   *ids;			/* n x stride */
	float	   *distances;		/* n x stride */
	float	   *worst;			/* n: the largest distance of each list */
	unsigned char *locks;		/* n, or NULL: lists are written by one thread each */
} gg_lists;

#define GG_LIST_STEP	16u
#define GG_LIST_STRIDE(k) (((k) + GG_LIST_STEP - 1) / GG_LIST_STEP * GG_LIST_STEP)

/*
 * ids, distances: n x stride to use, or NULL: own memory.  Errors: GG_ENOMEM.
 */
extern gg_status gg_lists_create(gg_lists *lists, uint32_t n, uint32_t k, bool locks,
								 uint32_t *ids, float *distances, gg_pool *pool);
extern void gg_lists_free(gg_lists *lists, const uint32_t *ids, const float *distances);
/* Sort one list by (distance, id), unused slots last; the marks stay with their entries. */
extern void gg_lists_sort(gg_lists *lists, uint32_t row);
/* Sort keys; buffer has room for as many. */
extern void gg_sort_keys(uint64_t *keys, uint64_t *buffer, uint32_t count);

/* ---- joins --------------------------------------------------------------- */

#define GG_TILE_ROWS	1024u	/* of one join */

/* Rows of up to this many elements are summed up at once in any join. */
#define GG_ONE_PIECE	1024u

/* Working memory of one thread. */
typedef struct gg_tile_memory gg_tile_memory;

extern gg_status gg_tile_memory_create(gg_tile_memory **memory, uint32_t dim);
extern void gg_tile_memory_free(gg_tile_memory *memory);	/* NULL is allowed */
extern uint64_t gg_tile_memory_bytes(uint32_t dim);

/*
 * Compare the rows ids[i], i < left, with the rows ids[j], max(i + 1, right) <= j < m, and enter
 * each pair whose distance is small enough into the list of the one row and, when mutual, of the
 * other.  ids are distinct, m <= GG_TILE_ROWS.
 */
typedef struct gg_join
{
	const gg_rows *rows;
	const uint32_t *ids;
	const uint32_t *labels;		/* m values to enter into lists in place of ids, or NULL */
	uint32_t	m;
	uint32_t	left;
	uint32_t	right;
	bool		mutual;

	/*
	 * Pairs not worth looking at, because they were compared before: rows with a common bit in
	 * shared (m bytes, or NULL); and, when known is set, rows that are in each other's lists
	 * already, for which the lists are searched first.
	 */
	const uint8_t *shared;
	bool		known;

	/*
	 * rows->dim elements near the rows, or NULL.  |a|^2 + |b|^2 - 2ab loses the difference of two
	 * rows whose length is much larger than it; measured from a point among them they are short.
	 */
	const float *centre;
	bool		exact;			/* squared differences instead: slower, loses nothing */

	/*
	 * A list keeps the nearest by (distance, id) of all that it is ever offered, so that the order
	 * of offers does not show.  The caller has to see that a pair has the same distance in every
	 * join: the same centre in all of them, and no more than GG_ONE_PIECE elements; or exact.
	 */
	bool		ordered;
	gg_lists   *lists;			/* by ids */
} gg_join;

/* Returns how many entries were made; gives up early when the worker has to stop. */
extern uint64_t gg_tile_join(gg_tile_memory *memory, const gg_join *join, gg_worker *worker);

/*
 * Squared Euclidean distance, L1 or negative product (by metric) of two rows of gg_rows_load(),
 * term by term.
 */
extern float gg_tile_distance(gg_metric metric, const float *a, const float *b, uint32_t dim);

#endif							/* GG_TILE_H */
