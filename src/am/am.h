/*
 * am.h
 *		Callbacks of the access method that neither build nor scan, and the planner's hooks.
 */
#ifndef GG_AM_H
#define GG_AM_H

#include "base/base.h"

#include "access/genam.h"
#include "commands/vacuum.h"
#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"

extern bool gginsert(Relation index, Datum *values, bool *isnull, ItemPointer heap_tid,
					 Relation heap, IndexUniqueCheck checkUnique, bool indexUnchanged,
					 IndexInfo *indexInfo);
extern IndexBulkDeleteResult *ggbulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
										   IndexBulkDeleteCallback callback, void *callback_state);
extern IndexBulkDeleteResult *ggvacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats);
extern void ggcostestimate(PlannerInfo *root, IndexPath *path, double loop_count,
						   Cost *indexStartupCost, Cost *indexTotalCost,
						   Selectivity *indexSelectivity, double *indexCorrelation,
						   double *indexPages);
extern bool ggvalidate(Oid opclassoid);

/* Called by _PG_init.  From then on finished plans compute no distance that only orders rows. */
extern void GgInitPlanner(void);

/* The same.  From then on queries get the paths of filter_path.c. */
extern void GgInitFilterPaths(void);

#endif							/* GG_AM_H */
