/*
 * segment.h
 *		The leader's part of CREATE INDEX: segments in work.
 *
 * A round fills an area.  The leader then makes a segment of it, step by step, whenever it looks
 * (GgTendSegments); with several areas the next round goes on meanwhile.
 */
#ifndef GG_BUILD_SEGMENT_H
#define GG_BUILD_SEGMENT_H

#include "build/build.h"
#include "build/device.h"
#include "engine/threads/engine_thread.h"
#include "maintain/merge.h"

typedef enum GgWorkState
{
	GG_WORK_NONE,				/* no segment: the area is empty, or is being filled */
	GG_WORK_WAITS,				/* its area is closed, and it waits for the engine */
	GG_WORK_GRAPH,				/* a thread makes the graph */
	GG_WORK_COPY,				/* its lists are copied to where all processes write them from */
	GG_WORK_WRITE,				/* processes write what there is */
	GG_WORK_PIVOTS				/* all but the pivots is written */
} GgWorkState;

/* A segment, from its area to its pages. */
typedef struct GgSegmentWork
{
	GgWorkState state;
	int			number;			/* of the area and of the writer's queue */
	GgArea	   *area;
	GgBuildDevice device;		/* rows go there while the area is filled */
	int			chosen;			/* device's place in plan.devices; -1: none is chosen yet */
	bool		on_device;		/* all rows are on the device */
	int			others[GG_MAX_DEVICES]; /* devices that build groups of its rows, too */
	int			nothers;
	MemoryContext context;		/* what lives as long as the work; NULL: there is none */
	GgSegment  *segment;
	uint32	   *offsets;		/* as GgSortRows() has it */
	gg_engine_thread *thread;
	gg_graph	graph;
	GgPivotEntry *pivots;		/* as they are written */
	uint64		copied;			/* bytes of adjacency */
	bool		last_use;		/* of the area: its memory is given back as it is written */
	bool		held;			/* it may not end: the leader hands it over */
} GgSegmentWork;

/* The leader's. */
typedef struct GgBuild
{
	GgParticipant process;
	GgMemoryPlan plan;
	GgMetaPageData *meta;		/* the shared one */
	GgLearnSample *sample;		/* of queries whose edges are learned; NULL: there is none */
	const gg_engine *opened;	/* to be released */
	MemoryContext context;		/* what lives as long as the build */
	GgScratch	scratch;		/* the engine's while it makes a graph */
	GgBuildTimes times;
	double		heap_s;			/* the part of times.scan_s in which processes filled chunks */
	uint64		start_us;		/* of all */
	uint64		scan_start_us;	/* of this round */
	bool		caught;			/* an error beneath the engine, not thrown yet */
	int			engine_phase;	/* the gg_phase that is shown, or -1 */
	bool		failed[GG_MAX_DEVICES]; /* devices, by place in plan.devices */
	bool		alone;			/* several devices together have failed */
	GgSegmentWork works[GG_WRITER_QUEUES];	/* by area */
} GgBuild;

/* The scan as users see it. */
extern void GgShowScan(GgBuild *build);

/* Give back the devices' contexts, which no segment needs any more. */
extern void GgReleaseEngine(GgBuild *build);

/* A round begins to fill this area. */
extern void GgBeginWork(GgBuild *build, GgSegmentWork *work);

/*
 * Begin to make a segment of the area, which no process fills any more.  GgTendSegments() goes on
 * with it.  more: the table has more rows.
 */
extern void GgCloseWork(GgBuild *build, GgSegmentWork *work, bool more);

/* Do what can be done now for all segments in work.  growing: an area is being filled. */
extern void GgTendSegments(GgBuild *build, bool growing);

/* While no area is being filled: wait until the area's segment, if there is one, is written. */
extern void GgFinishWork(GgBuild *build, GgSegmentWork *work);

/* All segments are begun: finish them, and hand the segment over where there is only one. */
extern void GgFinishWorks(GgBuild *build);

/* However the build ends: free its threads, copies on devices, and graphs. */
extern void GgReleaseWorks(GgBuild *build);

#endif							/* GG_BUILD_SEGMENT_H */
