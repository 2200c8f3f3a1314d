/*
 * progress.c
 *		Phases of CREATE INDEX as pg_stat_progress_create_index shows them.
 *
 * Loading counts blocks and tuples.  Phases that write, sync or hand over pages count blocks.  The
 * others count tuples.
 */
#include "build/progress.h"

#include "commands/progress.h"
#include "utils/backend_progress.h"

char *
ggbuildphasename(int64 phase)
{
	static char *const names[] = {
		[PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE] = "initializing",
		[GG_BUILD_LOAD] = "loading vectors",
		[GG_BUILD_DEDUPLICATE] = "removing duplicates",
		[GG_BUILD_UPLOAD] = "copying vectors to the device",
		[GG_BUILD_GRAPH + GG_PHASE_KNN_INIT] = "finding first neighbors",
		[GG_BUILD_GRAPH + GG_PHASE_KNN_DESCENT] = "refining neighbors",
		[GG_BUILD_GRAPH + GG_PHASE_OPTIMIZE] = "selecting edges",
		[GG_BUILD_GRAPH + GG_PHASE_CONNECT] = "connecting the graph",
		[GG_BUILD_LEARN] = "learning edges",
		[GG_BUILD_WRITE] = "writing index",
		[GG_BUILD_SYNC] = "syncing index",
		[GG_BUILD_HAND_OVER] = "handing over to the GPU service"
	};

	return phase >= 0 && phase < lengthof(names) ? names[phase] : NULL;
}

void
GgEnterPhase(GgBuildPhase phase, int64 tuples, int64 blocks)
{
	const int	columns[] = {
		PROGRESS_CREATEIDX_SUBPHASE,
		PROGRESS_CREATEIDX_TUPLES_TOTAL, PROGRESS_CREATEIDX_TUPLES_DONE,
		PROGRESS_SCAN_BLOCKS_TOTAL, PROGRESS_SCAN_BLOCKS_DONE
	};
	const int64 values[] = {phase, tuples, 0, blocks, 0};

	pgstat_progress_update_multi_param(lengthof(columns), columns, values);
}

void
GgReportTuples(int64 done)
{
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, done);
}

void
GgReportBlocks(int64 done)
{
	pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, done);
}
