/*
 * search_plan.h
 *		When a segment is walked and when it is measured row by row.  A scan decides by these
 *		numbers (src/scan), and the planner's costs follow the scan (src/am/cost.c).
 */
#ifndef GG_SEARCH_PLAN_H
#define GG_SEARCH_PLAN_H

/*
 * A walk measures some 20 to 35 rows for each entry of its list, at random places.  A sequential
 * pass is at least as fast per row.  So no list is longer than nodes / 32.
 */
#define GG_EXACT_SHARE		32

/* The first pass of an exact stream keeps at least this many rows. */
#define GG_EXACT_MIN_BATCH	64

#endif							/* GG_SEARCH_PLAN_H */
