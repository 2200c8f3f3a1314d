/*
 * build.h
 *		What the processes of CREATE INDEX share, and one process's view of it.
 */
#ifndef GG_BUILD_H
#define GG_BUILD_H

#include "build/heap_scan.h"
#include "build/progress.h"

#include "executor/instrument.h"
#include "utils/snapshot.h"

/* In the parallel context's memory, or the leader's own when it is alone. */
typedef struct GgBuildShared
{
	Oid			heap;
	Oid			index;
	bool		concurrent;

	/*
	 * The leader alone changes the directory, and all processes largest_length and features (see
	 * GgScanShared).  The rest is fixed before workers start.
	 */
	GgMetaPageData meta;
	GgScanShared scan;
	GgWriterShared writer;		/* its nqueues is the number of areas, too */
	GgAreaShared areas[GG_WRITER_QUEUES];
} GgBuildShared;

/* A leader or a worker. */
typedef struct GgParticipant
{
	GgBuildShared *shared;
	GgScan		scan;
	GgArea		areas[GG_WRITER_QUEUES];
	GgSegmentWriter writer;

	/* the leader's, of a parallel build */
	ParallelContext *pcxt;		/* NULL when it is alone */
	Snapshot	snapshot;
	BufferUsage *buffer_usage;
	WalUsage   *wal_usage;
} GgParticipant;

/*
 * The leader begins, and starts as many workers as pay, or none.  It allocates in the current
 * context, and sets scan.plan.  segment_full() may be called from GgScanTable() on.
 */
extern void GgBeginProcesses(GgParticipant *leader, Relation heap, Relation index,
							 IndexInfo *indexInfo, const GgMetaPageData *meta, GgMemoryPlan *plan);

/* The leader scans its part of the table. */
extern void GgScanTable(GgParticipant *leader);

/* Wait for the workers' end.  What they shared is gone then, and so is the leader's area. */
extern void GgEndProcesses(GgParticipant *leader);

/* ---- access method callbacks, beside ggbuildphasename() ------------------- */

extern IndexBuildResult *ggbuild(Relation heap, Relation index, IndexInfo *indexInfo);
extern void ggbuildempty(Relation index);

#endif							/* GG_BUILD_H */
