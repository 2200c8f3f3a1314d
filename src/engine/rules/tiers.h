/*
 * tiers.h
 *		Which segments are worth a merge, by the bytes that it writes.
 *
 * No PostgreSQL here: policy.c gives what it is to be judged by.
 */
#ifndef GG_TIERS_H
#define GG_TIERS_H

#include "engine/engine.h"

/* What an index stores, in bytes. */
typedef struct gg_unit_shape
{
	uint32_t	vector_bytes;
	uint32_t	list_bytes;		/* of a node's neighbors */
	uint32_t	row_bytes;		/* of a row: TID and filter words */
} gg_unit_shape;

/* A segment as the directory has it; the delta has as many nodes as rows. */
typedef struct gg_unit_counts
{
	uint64_t	nodes;
	uint64_t	gone;			/* nodes that a merge leaves out, about */
	uint64_t	rows;
	uint64_t	dead;			/* rows that are dead */
	uint32_t	pieces;			/* its vectors are in so many */
} gg_unit_counts;

/* A segment, or the delta, as an input of a merge. */
typedef struct gg_unit
{
	uint32_t	id;
	uint64_t	nodes;			/* that the merged segment gets of it, about */
	uint64_t	rows;			/* dead ones, too */
	uint64_t	bytes;			/* that a merge writes of it, about, but for vectors */
	uint64_t	vector_bytes;
	uint32_t	pieces;
	bool		dead;			/* much of it is of dead rows */
} gg_unit;

extern gg_unit gg_make_unit(const gg_unit_shape *shape, uint32_t id, gg_unit_counts counts);

/* Sort units, the one with the most bytes first. */
extern void gg_sort_units(gg_unit *units, int n);

/*
 * Returns the first of n sorted units that is worth a merge with all that follow it, since together
 * these have at least one part in `share` of its bytes.  n: none is.
 */
extern int	gg_due_units(const gg_unit *units, int n, uint64_t share);

/*
 * Where there are too many units, or pieces: returns the first unit of the tail whose merge makes
 * the most room for what it writes: bytes[i] of unit i, which counts as counts[i].  n: none.
 */
extern int	gg_cheapest_tail(const uint64_t *bytes, const uint32_t *counts, int n);

#endif							/* GG_TIERS_H */
