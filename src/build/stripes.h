/*
 * stripes.h
 *		In which order the ranges of an array are written by several processes.
 *
 * Writers of one file wait for each other in the kernel, so ranges that are claimed one after the other lie in different
 * stripes of the array, each about a file of the relation.  There is no PostgreSQL in this file.
 */
#ifndef GG_STRIPES_H
#define GG_STRIPES_H

#include <stdint.h>

/*
 * The range of a turn: turns 0 .. nranges - 1 take each range once, the stripes in rotation and each from its start.  The first
 * nranges % stripes stripes are one range longer, and take the last turns alone.  stripes is at least 1.
 */
static inline uint32_t
gg_stripes_range(uint32_t turn, uint32_t nranges, uint32_t stripes)
{
	uint32_t	shortest = nranges / stripes;
	uint32_t	longer = nranges % stripes;
	uint32_t	stripe = turn % stripes;

	return stripe * shortest + (stripe < longer ? stripe : longer) + turn / stripes;
}

#endif							/* GG_STRIPES_H */
