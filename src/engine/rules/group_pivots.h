/*
 * group_pivots.h
 *		Overlapping groups of rows near each other: how many, and which pivots are whose.
 *
 * Where memory does not hold the build of a graph of all rows, each engine builds in groups
 * (engine/cpu/build/groups.c, kernels/build/groups.cu).  Some random rows, the pivots, are cut into
 * groups of pivots near each other, and a row belongs to the two groups whose nearest pivots are
 * nearest. C and C++.
 */
#ifndef GG_GROUP_PIVOTS_H
#define GG_GROUP_PIVOTS_H

#include "engine/engine.h"

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A group has room for at least this many rows: in smaller ones most rows are near a border, and
 * their lists poor.
 */
#ifndef GG_GROUP_LEAST_ROOM		/* an emulated device would take minutes for so many */
#define GG_GROUP_LEAST_ROOM		4000u
#endif

/* The part of each group's room to be used on average: groups are not of equal size. */
#define GG_GROUP_FILL			0.75

/* More groups would cost each row too many distances to pivots. */
#define GG_MOST_GROUPS			250u

/* In all. */
#define GG_MOST_GROUP_PIVOTS	1024u

/* Random rows per pivot that are looked at to estimate how many rows are near each pivot. */
#define GG_GROUP_WEIGHT_ROWS	32u

/* The least room with which n rows make no more than GG_MOST_GROUPS. */
static inline uint32_t
gg_least_group_room(uint32_t n)
{
	double		share = ceil(2.0 * n / (GG_GROUP_FILL * GG_MOST_GROUPS));

	return share < GG_GROUP_LEAST_ROOM ? GG_GROUP_LEAST_ROOM : (uint32_t) share;
}

/* How many groups n rows make, of which each has room for `room` rows. */
extern uint32_t gg_count_groups(uint32_t n, uint32_t room);
extern uint32_t gg_count_group_pivots(uint32_t ngroups);

typedef struct gg_group_pivots
{
	const float *rows;			/* n x dim */
	uint32_t	n;
	uint32_t	dim;
	gg_distance_fn distance;
	const uint32_t *weights;	/* n: how many rows are near each, about */
} gg_group_pivots;

/* Cut pivots into ngroups groups of about equal weight; groups[i]: the number of pivot i's. */
extern gg_status gg_cut_groups(const gg_group_pivots *pivots, uint32_t ngroups, uint32_t *groups);

#ifdef __cplusplus
}
#endif

#endif							/* GG_GROUP_PIVOTS_H */
