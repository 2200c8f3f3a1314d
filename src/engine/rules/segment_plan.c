/*
 * segment_plan.c
 *		How many rows go into a segment of a build, by the memory of host and device.
 *
 * A setting of the host's that is a little too small is exceeded.  Beyond that, rows go to files,
 * and one graph is made of them by groups (engine/cpu/build/groups.c), in memory that keeps to the
 * setting.  Measured against segments that fit (RESULTS.md, "Builds larger than memory"): 100,000 x
 * 128 by groups are built in 7.8 s, 4 and 8 segments in 3.8 and 4.9 s; a query takes 126 us, and
 * 250 and 402 us, at recall@10 of 0.9995, 0.9994 and 0.9991.  Where there can be no files, or the
 * graph alone is too large, there are several segments.  Where these would be too many or too
 * small, they are larger than the setting allows: the host has more memory than that.
 *
 * A device has no more memory than it says.  So a segment is never larger than the device holds,
 * and where that would make too many or too small segments, the CPU builds.
 */
#include "engine/rules/segment_plan.h"

gg_segment_plan
gg_plan_segments(const gg_segment_room *room)
{
	gg_segment_plan plan = {0};
	double		share = room->expected / GG_MAX_BUILD_SEGMENTS + 1;
	uint32_t	least = share < GG_LEAST_SEGMENT_ROWS ? GG_LEAST_SEGMENT_ROWS :
		share < GG_MAX_NODES ? (uint32_t) share : GG_MAX_NODES;

	plan.rows = room->expected > room->host_alone ? room->host : room->host_alone;
	if (room->expected > room->host_alone && room->spilled > room->host)
	{
		plan.spill = true;
		plan.rows = room->spilled;
	}
	if (plan.rows < least)
		plan.rows = least;
	if (room->wanted > 0 && room->wanted < plan.rows)
	{
		plan.by_wish = true;
		plan.rows = room->wanted > least ? room->wanted : least;
		plan.spill = plan.spill && plan.rows > room->host;
	}
	if (room->device < plan.rows)
	{
		plan.too_small = room->device < least;
		plan.by_device = true;
		plan.rows = room->device;
		plan.spill = plan.spill && plan.rows > room->host;
	}
	return plan;
}
