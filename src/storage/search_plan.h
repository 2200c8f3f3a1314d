/*
 * search_plan.h
 *		When a segment is walked and when it is measured row by row.  A scan decides by these
 *		numbers (src/scan), and the planner's costs follow the scan (src/am/cost.c).
 */
#ifndef GG_SEARCH_PLAN_H
#define GG_SEARCH_PLAN_H

#include "engine.h"

/*
 * A walk measures some 20 to 35 rows for each entry of its list, at random places.  A sequential
 * pass is at least as fast per row.  So no list is longer than nodes / 32.
 */
#define GG_EXACT_SHARE		32

/*
 * A device measures all rows at the speed of its memory.  An entry of a walk's list is taken to
 * last as long as measuring so many bytes of rows.  Where a list would last longer than all rows,
 * the exact list, of GG_FIRST_DEEP nodes, takes its place.  The number is an estimate, from
 * searches and exact passes of one H200 in test/bench/RESULTS.md.
 */
#define GG_DEVICE_ENTRY_BYTES	2e6

/* Length of the first exact list of a device.  Those that follow are longer. */
#define GG_FIRST_DEEP			16384

static inline double
GgLongestDeviceList(double nodes, double row_bytes)
{
	double		longest = nodes * row_bytes / GG_DEVICE_ENTRY_BYTES;

	return longest < GG_MAX_ITOPK ? longest : GG_MAX_ITOPK;
}

/* The first pass of an exact stream keeps at least this many rows. */
#define GG_EXACT_MIN_BATCH	64

#endif							/* GG_SEARCH_PLAN_H */
