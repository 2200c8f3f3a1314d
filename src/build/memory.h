/*
 * memory.h
 *		How many rows of a build go into one segment.
 */
#ifndef GG_MEMORY_H
#define GG_MEMORY_H

#include "base/base.h"
#include "engine/rules/segment_plan.h"
#include "service/shared/service.h"
#include "storage/format.h"

typedef struct GgMemoryPlan
{
	const gg_engine *engine;
	GgBuildDevices devices;
	gg_build_params params;
	gg_control	control;		/* device_memory: 0, or what groups of rows take of each device;
								 * nothers: how many devices more build groups */
	bool		apart;			/* the engine has memory and processors of its own, or plays that it
								 * has */
	double		expected;		/* rows in the table, as far as is known */
	uint32		bound;			/* option segment_rows */
	gg_codes	codes;			/* that are made of the vectors */
	bool		auto_codes;		/* the build decides whether it makes codes */
	uint32		most;			/* rows that a segment may have; 0: not known yet */
	bool		spill;			/* rows go to temporary files */
	int			areas;			/* segments that are in memory at the same time */
	bool		by_device;		/* most is what the device holds: the host holds more */
	bool		halved;			/* the device gets rows in half precision */
	uint64		device_budget;	/* bytes of a device that the build may take */
	bool		segments_announced;
	bool		spill_announced;
	bool		memory_announced;
} GgMemoryPlan;

/* Rows in the table, for plan->expected. */
extern double GgExpectedRows(Relation heap);

/*
 * Decide plan->most, and how segments are built; the dimensions are known.  Where the device holds
 * too little, a NOTICE says so, and the plan is for the CPU engine; an ERROR if engine is "cuda".
 */
extern void GgPlanSegments(GgMemoryPlan *plan, const GgMetaPageData *meta);

/* Rows to take address space for; the last of many segments takes all rows that are left. */
static inline Size
GgPlanCapacity(const GgMemoryPlan *plan)
{
	/* file systems have a greatest length of files */
	double		capacity = plan->expected * (plan->spill ? 2 : 8) + 1000000;

	return Max(plan->most, Min(capacity, GG_MAX_NODES));
}

/* NOTICEs: the table has more than these rows; a segment takes too much memory, or files. */
extern void GgAnnounceSegments(GgMemoryPlan *plan, const GgMetaPageData *meta, uint32 rows);
extern void GgAnnounceMemory(GgMemoryPlan *plan, const GgMetaPageData *meta, uint32 nodes,
							 uint32 rows);

#endif							/* GG_MEMORY_H */
