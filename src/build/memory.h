/*
 * memory.h
 *		How many rows of a build go into one segment.
 */
#ifndef GG_MEMORY_H
#define GG_MEMORY_H

#include "base/base.h"
#include "storage/format.h"

/* A build never makes more segments than this, so that merges find room in the directory. */
#define GG_MAX_BUILD_SEGMENTS	16

typedef struct GgMemoryPlan
{
	const gg_engine *engine;
	gg_build_params params;
	gg_control	control;
	double		expected;		/* rows in the table, as far as is known */
	uint32		bound;			/* option segment_rows */
	uint32		most;			/* rows that a segment may have; 0: not known yet */
	bool		segments_announced;
	bool		memory_announced;
} GgMemoryPlan;

/* Rows in the table, for plan->expected. */
extern double GgExpectedRows(Relation heap);

/* Decide plan->most; the dimensions are known. */
extern void GgPlanSegments(GgMemoryPlan *plan, const GgMetaPageData *meta);

/* Say that the table goes on behind so many rows, and that a segment takes more than it should. */
extern void GgAnnounceSegments(GgMemoryPlan *plan, const GgMetaPageData *meta, uint32 rows);
extern void GgAnnounceMemory(GgMemoryPlan *plan, const GgMetaPageData *meta, uint32 nodes,
							 uint32 rows);

#endif							/* GG_MEMORY_H */
