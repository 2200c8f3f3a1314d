/*
 * tile_ops.h
 *		What a join needs of an instruction set.
 */
#ifndef GG_TILE_OPS_H
#define GG_TILE_OPS_H

#include <stdbool.h>
#include <stdint.h>

/* Set in the id of a list entry that cross-matching has not used yet; ids are below 2^31. */
#define GG_ENTRY_NEW	0x80000000u
#define GG_ENTRY_ID(e)	((e) & 0x7FFFFFFFu)

#define TILE_COLUMNS	32u		/* rows of one panel */
#define TILE_HEIGHT		8u		/* rows of a panel in one tile */

/*
 * sums[r * ld + c] = (first ? 0 : itself) + sum over k of a term of left[k][r] and right[k][c], r <
 * TILE_HEIGHT
 */
typedef void (*tile_fn) (const float *left, const float *right, uint32_t depth, bool first,
						 float *sums, uint32_t ld);

/* Columns of a row of a tile, as bits: those whose pair with the row is near enough for a list. */
typedef struct tile_hits
{
	uint32_t	row;			/* for the row's list */
	uint32_t	columns;		/* for the column's list */
} tile_hits;

typedef struct tile_ops
{
	const char *name;
	tile_fn		dot;
	tile_fn		l2;
	tile_fn		l1;
	void		(*panel_norms) (const float *panel, uint32_t depth, float *bias);
	float		(*pair_l2) (const float *a, const float *b, uint32_t dim);
	float		(*pair_l1) (const float *a, const float *b, uint32_t dim);
	float		(*pair_dot) (const float *a, const float *b, uint32_t dim);

	/* make 16 columns of a panel from 16 rows, less centre (if any) */
	void		(*transpose) (const float *const rows[16], const float *centre, uint32_t depth,
							  float *panel);

	/*
	 * Turn the sums of one row of a tile into distances, max(least, bias + biases[c] + factor *
	 * sum).  Returns which of them are below worst, and which below worsts[c].
	 */
	tile_hits	(*screen) (float *sums, float bias, const float *biases, float factor, float least,
						   float worst, const float *worsts);

	/*
	 * Replace the worst entry (which is worse) unless id is there already; returns the new worst.
	 */
	float		(*enter) (uint32_t *ids, float *distances, uint32_t stride, float worst,
						  float distance, uint32_t id, uint64_t *entered);

	/* The same by (distance, id): the worst is the last in that order, and may be as far as id. */
	float		(*enter_ordered) (uint32_t *ids, float *distances, uint32_t stride, float worst,
								  float distance, uint32_t id, uint64_t *entered);
} tile_ops;

/* The functions for the instruction set in use. */
extern const tile_ops *gg_tile_ops(void);

/* Products of rows rounded to bfloat16.  A pair is elements 2p and 2p + 1 of a row, 32 bits. */
typedef struct bf16_ops
{
	uint32_t	height;			/* rows of a tile */

	/*
	 * make pairs of a row less centre (if any), a multiple of 16 of them, 0 behind the row's end;
	 * add its square to *bias
	 */
	void		(*round) (const float *row, const float *centre, uint32_t depth, uint32_t pairs,
						  uint32_t *out, float *bias);

	/* as tile_fn, but r < height; left is rows of pairs one after another, right a panel of them */
	void		(*dot) (const uint32_t *left, const uint32_t *right, uint32_t pairs, bool first,
						float *sums, uint32_t ld);
} bf16_ops;

/* For the instruction set in use; NULL: it has no such products, or the system denies them. */
extern const bf16_ops *gg_bf16_ops(void);

#endif							/* GG_TILE_OPS_H */
