/*
 * segment_plan.h
 *		How many rows go into a segment of a build, by the memory of host and device.
 *
 * No PostgreSQL here: the engine tests have it, too.
 */
#ifndef GG_SEGMENT_PLAN_H
#define GG_SEGMENT_PLAN_H

#include "engine/engine.h"

/* A build never plans more segments than this, so that merges find room in the directory. */
#define GG_MAX_BUILD_SEGMENTS	16

/* A segment never has fewer rows for want of memory: its graph would not be worth having. */
#define GG_LEAST_SEGMENT_ROWS	1000u

/* What there is room for, in rows of a segment. */
typedef struct gg_segment_room
{
	double		expected;		/* rows of the table, as far as is known */
	uint32_t	host;			/* that the host's memory holds, if there are several segments */
	uint32_t	host_alone;		/* that it holds of an only segment, which may take more; >= host */
	uint32_t	spilled;		/* that it holds where rows are in files; 0: they cannot be */
	uint32_t	wanted;			/* option segment_rows; 0: as many as memory holds */
	uint32_t	device;			/* that the device holds; GG_MAX_NODES: any number, or no device */
} gg_segment_room;

typedef struct gg_segment_plan
{
	uint32_t	rows;			/* of a segment, at most */
	bool		spill;			/* rows, and what the engine makes of them, go to files */
	bool		by_wish;		/* segment_rows asks for fewer than memory holds */
	bool		by_device;		/* rows is what the device holds: the host holds more */
	bool		too_small;		/* the device holds too little to be of use: plan without it */
} gg_segment_plan;

extern gg_segment_plan gg_plan_segments(const gg_segment_room *room);

#endif							/* GG_SEGMENT_PLAN_H */
