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
	uint64_t	gone;			/* of these, about: those that a merge leaves out */
	uint64_t	rows;
	uint64_t	dead;			/* of these */
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

/* The one with the most bytes first. */
extern void gg_sort_units(gg_unit *units, int n);

/*
 * The first of n units, up to the smallest one, that are worth a merge, since together the smaller
 * ones have one part in `share` of the next larger one's bytes.  n: none is.
 */
extern int	gg_due_units(const gg_unit *units, int n, uint64_t share);

/*
 * The same where there are too many, and some have to be merged: the tail that makes the most room
 * for what it writes.  bytes, counts: of each.
 */
extern int	gg_cheapest_tail(const uint64_t *bytes, const uint32_t *counts, int n);

#endif							/* GG_TIERS_H */
