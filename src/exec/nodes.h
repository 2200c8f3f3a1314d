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
 * The plan has one child, whose columns are those of custom_scan_tlist.  The first of them make a
 * group.  custom_private: lists of their operators, and of their collations.
 */
extern const GgNodeKind gg_first_of_group;

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

#endif							/* GG_NODES_H */
