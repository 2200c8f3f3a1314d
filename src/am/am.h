/*
 * am.h
 *		Callbacks of the access method that neither build nor scan, and the planner's hooks.
 */
#ifndef GG_AM_H
#define GG_AM_H

#include "base/base.h"
#include "storage/format.h"

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

/* ---- cost.c: what other costs are made of -------------------------------- */

/* What core charges for the sort of a row with a small LIMIT, in units of cpu_operator_cost. */
#define GG_SORTED_ROW_COST		10.0

/*
 * Does a device have the index, and will a scan ask it?  Where no segment has least_nodes, the CPU
 * answers (scan/device_ask.c).  *missing: a bitmap of segments that the device has no room for.
 * *rowless: of those that it only walks.
 */
extern bool GgDeviceAnswers(Oid index, const GgMetaPageData *meta, uint32 least_nodes,
							uint32 *missing, uint32 *rowless);

/*
 * Microseconds that a device takes to look at so many words of 64 bits of each node, and to measure
 * those that match.
 */
extern double GgDeviceExactTime(double nodes, double words, double matching, double row_bytes);

/* column_pages: pages that a vector fills in the table.  limit: not above 0: not known. */
extern double GgSortedRowTime(const RelOptInfo *rel, double column_pages);
extern Cost GgMicrosecondCost(const RelOptInfo *rel, double column_pages, double filtered,
							  double limit);

/*
 * A path that is not to be used has at least this cost.  It is finite: of an infinite cost, core's
 * subtractions make one that is not a number, and comparisons with that are always false.  Core may
 * still multiply it by the 1e100 rows that it takes for the most there can be.
 */
#define GG_REFUSED_COST			1e200

static inline bool
GgPathIsRefused(const Path *path)
{
	return path->total_cost >= GG_REFUSED_COST;
}

/* ---- filter_path.c -------------------------------------------------------- */

/*
 * May a hook add scans of indexes to a table's paths?  Not where the query reads a sample of the
 * table, or its children, or where no row can match: core makes no index paths then, either.
 */
extern bool GgTakesIndexPaths(RelOptInfo *rel, const RangeTblEntry *rte);

/* Called by _PG_init.  From then on queries get the paths of filter_path.c. */
extern void GgInitFilterPaths(void);

/* ---- rank_order.c --------------------------------------------------------- */

/* Have a query that is to be planned, and those within, ordered by what ranks are of. */
extern void GgOrderByWindows(Query *query);

/* ---- alter.c -------------------------------------------------------------- */

/* Called by _PG_init.  From then on ALTER INDEX refuses options that do not fit the index. */
extern void GgInitAlter(void);

/* ---- plan.c --------------------------------------------------------------- */

/*
 * Is the query that is being planned a cursor's?  Then another statement may read the ctid of the
 * row that it stands on (WHERE CURRENT OF).
 */
extern bool GgPlansCursor(void);

/* Will the finished plan pass our hook?  Not where another module plans by itself. */
extern bool GgIsPlanning(void);

/* The custom scan that restricts an index scan to a bitmap of rows (src/scan/bitmap_scan.c). */
#define GG_BITMAP_SCAN_NAME		"GpugraphBitmapScan"

/* Called by _PG_init.  From then on finished plans compute no distance that only orders rows. */
extern void GgInitPlanner(void);

#endif							/* GG_AM_H */
