/*
 * progress.h
 *		Phases of CREATE INDEX as pg_stat_progress_create_index shows them.
 */
#ifndef GG_PROGRESS_H
#define GG_PROGRESS_H

#include "base/base.h"

/* Subphases.  The engine's gg_phase values follow GRAPH. */
typedef enum GgBuildPhase
{
	GG_BUILD_LOAD = 2,			/* 1 is PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE */
	GG_BUILD_DEDUPLICATE,
	GG_BUILD_UPLOAD,
	GG_BUILD_GRAPH,				/* + gg_phase */
	GG_BUILD_LEARN = GG_BUILD_GRAPH + GG_PHASE_CONNECT + 1,
	GG_BUILD_WRITE,
	GG_BUILD_SYNC,
	GG_BUILD_HAND_OVER
} GgBuildPhase;

/* Enter a phase that works on these numbers of tuples and blocks; 0: on none. */
extern void GgEnterPhase(GgBuildPhase phase, int64 tuples, int64 blocks);
extern void GgReportTuples(int64 done);
extern void GgReportBlocks(int64 done);

/* The access method's callback. */
extern char *ggbuildphasename(int64 phase);

#endif							/* GG_PROGRESS_H */
