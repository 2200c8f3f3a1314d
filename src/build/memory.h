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
	gg_control	control;		/* device_memory: 0, or groups of rows keep to it, on so many
								 * more devices as nothers says */
	bool		apart;			/* the engine has memory and processors of its own, or plays that it
								 * has */
	double		expected;		/* rows in the table, as far as is known */
	uint32		bound;			/* option segment_rows */
	gg_codes	codes;			/* that are made of the vectors */
	uint32		most;			/* rows that a segment may have; 0: not known yet */
	bool		spill;			/* rows go to temporary files */
	int			areas;			/* segments that are in memory at the same time */
	bool		by_device;		/* it is the device that does not hold more */
	bool		halved;			/* it gets rows in half precision */
	uint64		device_budget;	/* bytes that the build may take of it */
	bool		segments_announced;
	bool		spill_announced;
	bool		memory_announced;
} GgMemoryPlan;

/* Rows in the table, for plan->expected. */
extern double GgExpectedRows(Relation heap);

/*
 * Decide plan->most; the dimensions are known.  Where the device holds too little, a NOTICE says
 * so, and the plan becomes one for the CPU engine.
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

/* NOTICEs: the table has more rows than these; a segment takes more memory than it should. */
extern void GgAnnounceSegments(GgMemoryPlan *plan, const GgMetaPageData *meta, uint32 rows);
extern void GgAnnounceMemory(GgMemoryPlan *plan, const GgMetaPageData *meta, uint32 nodes,
							 uint32 rows);

#endif							/* GG_MEMORY_H */
