/*
 * partition_plan.c
 *		Finished plans: the node that searches the indexes of partitions together
 *		(partition_search.c) takes the place of MergeAppend nodes.
 *
 * The planner's choice stands: costs, order and run-time pruning are those of the MergeAppend.  It
 * is what the new node keeps, without its children, which are the new node's own.  The replacement
 * comes last, so that nothing else in the planner needs to know of it, on any version.
 */
#include "exec/nodes.h"
#include "plan/planner.h"
#include "scan/sort_key.h"

#include "catalog/pg_operator_d.h"
#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/planner.h"

/* Is the order that of one distance, ascending? */
static bool
IsByDistance(const MergeAppend *merge)
{
	return merge->numCols == 1 && merge->sortOperators[0] == Float8LessOperator &&
		!merge->nullsFirst[0];
}

/*
 * The first scan of our indexes.  NULL: there are no two of them, they are not of the same query,
 * or one has another sort key than the distance.
 */
static const IndexScan *
FirstToSearch(const MergeAppend *merge)
{
	const IndexScan *first = NULL;
	Node	   *query = NULL;
	int			nours = 0;
	ListCell   *cell;

	foreach(cell, merge->mergeplans)
	{
		const IndexScan *scan = GgOrderedScan(lfirst(cell));
		const OpExpr *distance;

		if (scan == NULL)
			continue;
		distance = linitial_node(OpExpr, scan->indexorderby);
		if ((GgKeyMarks(distance->inputcollid) & GG_KEY_OTHER) != 0)
			return NULL;
		if (first == NULL)
		{
			first = scan;
			query = lsecond(distance->args);
		}
		else if (!equal(query, lsecond(distance->args)))
			return NULL;
		nours++;
	}
	return nours >= 2 ? first : NULL;
}

/* Make the node, which returns its children's rows as they are. */
static Plan *
MakeNode(MergeAppend *merge, const IndexScan *first)
{
	CustomScan *scan = makeNode(CustomScan);
	ListCell   *cell;

	scan->scan.plan = merge->plan;
	scan->scan.plan.type = T_CustomScan;
	scan->scan.plan.targetlist = NIL;
	foreach(cell, merge->plan.targetlist)
	{
		TargetEntry *column = flatCopyTargetEntry(lfirst_node(TargetEntry, cell));
		TargetEntry *input = flatCopyTargetEntry(column);

		/* for its type, and for EXPLAIN */
		input->expr = list_nth_node(TargetEntry, first->scan.plan.targetlist,
									foreach_current_index(cell))->expr;
		scan->custom_scan_tlist = lappend(scan->custom_scan_tlist, input);
		/* core leaves constants as they are */
		if (IsA(column->expr, Var))
		{
			Var		   *var = copyObject((Var *) column->expr);

			var->varno = INDEX_VAR;
			var->varattno = column->resno;
			column->expr = (Expr *) var;
		}
		scan->scan.plan.targetlist = lappend(scan->scan.plan.targetlist, column);
	}
	scan->custom_plans = merge->mergeplans;
	scan->custom_relids = merge->apprelids;
	merge->mergeplans = NIL;
	scan->custom_private = list_make1(merge);
	scan->methods = &gg_partitions.plan;
	return &scan->scan.plan;
}

void
GgSearchPartitionsTogether(Plan **plan)
{
	MergeAppend *merge = (MergeAppend *) *plan;
	const IndexScan *first;

	if (!IsA(merge, MergeAppend) || !GgIsEnabled(GG_PARTITION_SEARCH) || !IsByDistance(merge))
		return;
	first = FirstToSearch(merge);
	if (first != NULL)
		*plan = MakeNode(merge, first);
}
