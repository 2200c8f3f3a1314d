/*
 * paths.c
 *		The hook for the paths of a table.
 */
#include "plan/planner.h"

#include "optimizer/paths.h"

static set_rel_pathlist_hook_type prev_hook = NULL;

/* Behind those of other libraries; bitmaps restrict the paths that are there, and so come last. */
static void
AddPaths(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	if (prev_hook != NULL)
		prev_hook(root, rel, rti, rte);
	GgDropProbedConditions(root, rel);
	GgAddFilterPaths(root, rel, rte);
	GgAddRangePaths(root, rel, rte);
	GgAddBitmapPaths(root, rel, rte);
}

void
GgInitPaths(void)
{
	prev_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = AddPaths;
}
