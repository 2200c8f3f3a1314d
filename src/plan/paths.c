/*
 * paths.c
 *		The hook for the paths of a table.
 */
#include "plan/planner.h"

#include "optimizer/paths.h"

static set_rel_pathlist_hook_type prev_hook = NULL;

/*
 * Drop scans that are not to be used, since core's comparisons do not always see their cost: an
 * Append of one partition is taken for enabled, from 18 on.
 */
static void
DropRefused(RelOptInfo *rel)
{
	List	   *others = NIL;
	ListCell   *cell;

	foreach(cell, rel->pathlist)
		if (!IsA(lfirst(cell), IndexPath) || !GgPathIsRefused(lfirst(cell)))
			others = lappend(others, lfirst(cell));
	if (others != NIL)
		rel->pathlist = others;
}

/* Ours come after other libraries' paths; bitmaps restrict paths that are there, and come last. */
static void
AddPaths(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	if (prev_hook != NULL)
		prev_hook(root, rel, rti, rte);
	GgDropProbedConditions(root, rel);
	GgAddFilterPaths(root, rel, rte);
	GgAddRangePaths(root, rel, rte);
	GgAddBitmapPaths(root, rel, rte);
	DropRefused(rel);
}

void
GgInitPaths(void)
{
	prev_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = AddPaths;
}
