/*
 * progress.c
 *		Phases of CREATE INDEX as pg_stat_progress_create_index shows them.
 *
 * Phases that read the table, or write or sync pages, count blocks.  The others count tuples.
 */
#include "build/progress.h"

#include "commands/progress.h"
#include "utils/backend_progress.h"

char *
ggbuildphasename(int64 phase)
{
	switch (phase)
	{
		case PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE:
			return "initializing";
		case GG_BUILD_LOAD:
			return "loading vectors";
		case GG_BUILD_DEDUPLICATE:
			return "removing duplicates";
		case GG_BUILD_UPLOAD:
			return "copying vectors to the device";
		case GG_BUILD_WRITE_ROWS:
			return "writing vectors";
		case GG_BUILD_GRAPH + GG_PHASE_KNN_INIT:
			return "finding first neighbors";
		case GG_BUILD_GRAPH + GG_PHASE_KNN_DESCENT:
			return "refining neighbors";
		case GG_BUILD_GRAPH + GG_PHASE_OPTIMIZE:
			return "selecting edges";
		case GG_BUILD_GRAPH + GG_PHASE_CONNECT:
			return "connecting the graph";
		case GG_BUILD_LEARN:
			return "learning edges";
		case GG_BUILD_WRITE:
			return "writing index";
		case GG_BUILD_SYNC:
			return "syncing index";
		case GG_BUILD_HAND_OVER:
			return "handing over to the GPU service";
		default:
			return NULL;
	}
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
