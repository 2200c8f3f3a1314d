/*
 * knn.h
 *		k-NN lists under way: what their start (cells.c) and GNND (knn_graph.c) share.
 */
#ifndef GG_KNN_H
#define GG_KNN_H

#include "engine/cpu/common/threads.h"
#include "engine/cpu/common/tile.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Up to so many rows lists are exact: n^2 / 2 distances are no more than cells and descent take. */
#define GG_BRUTE_ROWS	6000u

#define GG_CELLS_OF_ROW	8u

typedef struct gg_knn
{
	const gg_build_params *params;
	gg_pool    *pool;
	gg_rows		rows;
	uint32_t	n;
	uint32_t	k;
	gg_tile_memory **memory;	/* one per thread */
	float	  **row;			/* 2 x rows.dim per thread: a centre, a row to measure */
	gg_lists	lists;
	uint32_t	npivots;		/* 0 without cells */
	uint32_t   *cells_of;		/* n x GG_CELLS_OF_ROW: a row's cells; npivots: none */
	uint8_t   **cell_bits;		/* npivots + 1 per thread, all 0 between nodes */
	uint32_t   *order;			/* n: rows near each other stand near each other, or NULL */

	/* see gg_join */
	const float *centre;		/* the centre of all joins; NULL: each has its own */
	bool		ordered;
	bool		exact;			/* joins are */
} gg_knn;

static inline uint32_t
gg_min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint32_t
gg_max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/*
 * p of GNND: so many new entries of a list are sampled, and as many old ones.  With the rows that
 * sampled it, a row has up to 2 p samples of either kind.
 */
#define GG_DEFAULT_SAMPLES	12u

static inline uint32_t
gg_knn_samples(const gg_build_params *params)
{
	return params->samples != 0 ? params->samples : GG_DEFAULT_SAMPLES;
}

static inline uint32_t
gg_knn_at(const gg_knn *state, uint64_t i)
{
	return state->order ? state->order[i] : (uint32_t) i;
}

/*
 * Append those of more that are not among the ids yet, and say how many they were.  Offers of one
 * kind from one side are distinct already, but cheap to test with the rest.
 */
static inline uint32_t
gg_join_add(uint32_t *ids, uint32_t count, const uint32_t *more, uint32_t nmore)
{
	uint32_t	had = count;

	for (uint32_t i = 0; i < nmore; i++)
	{
		uint32_t	found = 0;

		for (uint32_t j = 0; j < count; j++)
			found |= (uint32_t) (ids[j] == more[i]);
		if (!found)
			ids[count++] = more[i];
	}
	return count - had;
}

static inline void *
gg_array(uint64_t count, size_t size)
{
	return malloc((size_t) (count > 0 ? count : 1) * size);
}

/* ---- knn.c ---------------------------------------------------------------- */

/*
 * Take memory for lists of the data, with all places free, into state, whose params and pool are
 * set already.  ids and distances as in gg_lists_create().  gg_knn_close() is due after an error,
 * too; it keeps ids and distances.
 */
extern gg_status gg_knn_open(gg_knn *state, const gg_dataset *data, uint32_t *ids,
							 float *distances);
extern void gg_knn_close(gg_knn *state, const uint32_t *ids, const float *distances);
/* What gg_knn_open() takes beyond ids and distances (each NULL or not). */
extern uint64_t gg_knn_bytes(const gg_dataset *data, uint32_t k, int threads, bool ids,
							 bool distances);

extern gg_status gg_knn_no_memory(const gg_knn *state);

/* Rows of a piece of work that takes well under a poll interval at any dimension. */
extern uint64_t gg_knn_chunk(const gg_knn *state, uint64_t at_128);

/*
 * Sort a row's list and take its samples, p old ones and p new ones at most; taken says how many.
 * New ones that were taken are old from now on.  Returns how many new ones were left.
 */
extern uint32_t gg_knn_sample(gg_knn *state, uint32_t row, uint32_t p, uint32_t *const *samples,
							  uint32_t *taken);

/* Item i of the blocks x blocks triangle, by rows: a <= b. */
extern void gg_triangle_at(uint64_t i, uint32_t blocks, uint32_t *a, uint32_t *b);

/* Rows that are cut into blocks. */
typedef struct gg_blocks
{
	const uint32_t *ids;		/* count, or NULL: rows 0 .. count - 1 */
	uint32_t	count;
	uint32_t	rows;			/* of a block */
} gg_blocks;

/* Compare block a with block b, or with itself. */
extern uint64_t gg_knn_join(gg_knn *state, gg_worker *worker, const gg_blocks *blocks, uint32_t a,
							uint32_t b, const float *centre, bool exact);

/* Compare all rows with all. */
extern gg_status gg_knn_brute(gg_knn *state);

/*
 * Compare the longest rows with all, under inner product: they are among the best of many rows, and
 * near few of them.
 */
extern gg_status gg_knn_longest(gg_knn *state);

/* Fill what is free of a list with rows that it does not have; distances are measured later. */
extern void gg_knn_fill(gg_knn *state, uint32_t row, uint64_t seed);
/* Measure one list term by term. */
extern void gg_knn_measure(gg_knn *state, uint32_t row, int thread);
/* Set the largest distance of one list from its entries. */
extern void gg_knn_refresh(gg_knn *state, uint32_t row);

/* ---- cells.c -------------------------------------------------------------- */

/* Compare the rows of each pivot's cell; sets npivots, cells_of, cell_bits and order. */
extern gg_status gg_knn_cells(gg_knn *state);
/* *peak: its peak memory, *left included; *left: what it leaves.  Of state n and k are read. */
extern void gg_knn_cells_bytes(const gg_knn *state, const gg_dataset *data, int threads,
							   uint64_t *peak, uint64_t *left);

/*
 * For each of m rows, in which of node's cells it is.  Two rows with a common bit have been
 * compared already, in that cell, and that is most of the pairs around a node.
 */
extern void gg_knn_shared(const gg_knn *state, int thread, uint32_t node, const uint32_t *ids,
						  uint32_t m, uint8_t *shared);

#endif							/* GG_KNN_H */
