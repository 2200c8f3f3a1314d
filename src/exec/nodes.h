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
	CustomScanMethods plan;		/* first: the methods of a plan's node point to it */
	CustomExecMethods exec;
	Size		state_bytes;	/* of the state, which begins with a CustomScanState */
} GgNodeKind;

#define GG_NODE_NAMES(name) \
	.plan = {.CustomName = (name), .CreateCustomScanState = GgMakeNodeState}, \
	.exec.CustomName = (name)

/* The children of its plan are an IndexScan and the plan of a bitmap. */
extern const GgNodeKind gg_bitmap_scan;

/* The children of its plan are those of the MergeAppend that it has in custom_private. */
extern const GgNodeKind gg_partitions;

/*
 * The plan has one child, whose columns are those of custom_scan_tlist.  The list may have one more
 * at the end, the row's number in its group.  The first columns make a group.  custom_private:
 * lists of their operators, of their collations, and of the most rows that a group may have.
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
 * Put the child's row into the node's own slot.  Expressions that read it were made for the kind of
 * that slot, not of the child's.  Columns that the child does not have are 0.
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

/* Tell a gg_partitions how many rows are asked of it; 0: not known.  False: it is none. */
extern bool GgTellPartitions(PlanState *node, uint32 limit);

/* Where the outer side of a nested loop reads ahead, tell it the scan of the inner side. */
extern void GgTellReadAhead(const PlanState *join);

/* Is the scan's query this parameter of a nested loop? */
extern bool GgIsOrderedBy(const IndexScan *scan, int param);

#endif							/* GG_NODES_H */
