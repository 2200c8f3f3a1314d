/*
 * nodes.h
 *		The executor's nodes of ours: how each is planned, made and told from others.
 */
#ifndef GG_NODES_H
#define GG_NODES_H

#include "base/base.h"

#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "nodes/extensible.h"

typedef struct GgNodeKind
{
	CustomScanMethods plan;		/* first: of the plan's node, which is all that a copy knows */
	CustomExecMethods exec;
	Size		state_bytes;	/* of what begins with a CustomScanState */
} GgNodeKind;

#define GG_NODE_NAMES(name) \
	.plan = {.CustomName = (name), .CreateCustomScanState = GgMakeNodeState}, \
	.exec.CustomName = (name)

/* The children of its plan are an IndexScan and the plan of a bitmap. */
extern const GgNodeKind gg_bitmap_scan;

/* Those of its plan are the children of the MergeAppend that it has in custom_private. */
extern const GgNodeKind gg_partitions;

/*
 * The plan has one child, whose columns are those of custom_scan_tlist, but for a last one of it
 * that may be the row's number in its group.  The first of them make a group.  custom_private:
 * lists of their operators, of their collations, and of how many rows a group has at most.
 */
extern const GgNodeKind gg_first_of_group;

/*
 * The plan's outer child is the outer side of a nested loop; its rows are those of the child.
 * custom_private: the number of the column that is the query of a scan of the inner side, and the
 * parameter by which the loop hands it over.
 */
extern const GgNodeKind gg_read_ahead;

static inline bool
GgIsNode(const PlanState *state, const GgNodeKind *kind)
{
	return IsA(state, CustomScanState) &&
		((const CustomScanState *) state)->methods == &kind->exec;
}

/* ---- what nodes have in common -------------------------------------------- */

/* The children begin anew. */
static inline void
GgReScanChildren(CustomScanState *css)
{
	ListCell   *cell;

	foreach(cell, css->custom_ps)
	{
		PlanState  *child = lfirst(cell);

		if (css->ss.ps.chgParam != NULL)
			UpdateChangedParamSet(child, css->ss.ps.chgParam);
		if (child->chgParam == NULL)
			ExecReScan(child);
	}
}

/*
 * The row of the child as one of the node's own.  What reads it knows the kind of its slot, and not
 * of the child's.  Columns that the child does not have are 0.
 */
static inline TupleTableSlot *
GgPassOn(CustomScanState *css, TupleTableSlot *slot)
{
	TupleTableSlot *scan = css->ss.ss_ScanTupleSlot;
	const int	natts = slot->tts_tupleDescriptor->natts;

	slot_getallattrs(slot);
	ExecClearTuple(scan);
	memcpy(scan->tts_values, slot->tts_values, natts * sizeof(Datum));
	memcpy(scan->tts_isnull, slot->tts_isnull, natts * sizeof(bool));
	for (int i = natts; i < scan->tts_tupleDescriptor->natts; i++)
	{
		scan->tts_values[i] = 0;
		scan->tts_isnull[i] = false;
	}
	return ExecStoreVirtualTuple(scan);
}

static inline Node *
GgMakeNodeState(CustomScan *plan)
{
	const GgNodeKind *kind = (const GgNodeKind *) plan->methods;
	CustomScanState *state = palloc0(kind->state_bytes);

	NodeSetTag(state, T_CustomScanState);
	state->methods = &kind->exec;
	return (Node *) state;
}

/* ---- of single ones --------------------------------------------------------- */

/* How many TIDs a bitmap scan holds in memory; a bitmap of more is left out. */
extern uint32 GgMostBitmapTids(void);

/* Is it a gg_partitions?  The executor will ask for `limit` rows of it; 0: not known. */
extern bool GgTellPartitions(PlanState *node, uint32 limit);

/* A nested loop: where its outer side reads ahead, that is to know the inner side's scan. */
extern void GgTellReadAhead(const PlanState *join);

/* Is the scan's query this parameter of a nested loop? */
extern bool GgIsOrderedBy(const IndexScan *scan, int param);

#endif							/* GG_NODES_H */
