/*
 * am.h
 *		Callbacks of the access method that neither build, plan nor scan.
 */
#ifndef GG_AM_H
#define GG_AM_H

#include "base/base.h"
#include "access/genam.h"
#include "commands/vacuum.h"
#include "nodes/execnodes.h"

extern bool gginsert(Relation index, Datum *values, bool *isnull, ItemPointer heap_tid,
					 Relation heap, IndexUniqueCheck checkUnique, bool indexUnchanged,
					 IndexInfo *indexInfo);
extern IndexBulkDeleteResult *ggbulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
										   IndexBulkDeleteCallback callback, void *callback_state);
extern IndexBulkDeleteResult *ggvacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats);
extern bool ggvalidate(Oid opclassoid);

/* ---- alter.c -------------------------------------------------------------- */

/* Called by _PG_init.  From then on ALTER INDEX refuses options that do not fit the index. */
extern void GgInitAlter(void);

#endif							/* GG_AM_H */
