/*
 * first_of_group.c
 *		The executor's node for the first rows of each group, in the order in which rows come.
 *
 * Rows of a group that has had enough are passed over.  Equal is what the operators of
 * GROUP BY, DISTINCT ON or PARTITION BY call so; NULLs are one group.  Groups are kept until the
 * scan ends: no more of them than rows were returned.  Where the node has a column more than its
 * child, that is the row's number in its group, from 1 on.
 */
#include "exec/nodes.h"

#include "miscadmin.h"
#include "utils/memutils.h"

typedef struct FirstOfGroup
{
	CustomScanState css;
	int			nkeys;
	uint64		most;			/* rows of a group */
	AttrNumber *columns;		/* 1 to nkeys */
	Oid		   *equal;
	FmgrInfo   *hash;
	Oid		   *collations;
	MemoryContext context;		/* of groups */
	TupleHashTable groups;
} FirstOfGroup;

/* No group was seen so far. */
static void
ForgetGroups(FirstOfGroup *state)
{
	MemoryContextReset(state->context);
	state->groups = GgMakeGroups(&state->css.ss.ps,
								 state->css.ss.ss_ScanTupleSlot->tts_tupleDescriptor,
								 state->nkeys, state->columns, state->equal, state->hash,
								 state->collations, state->context,
								 state->css.ss.ps.ps_ExprContext->ecxt_per_tuple_memory);
}

/* Which of its group's rows is it? */
static uint64
NumberInGroup(FirstOfGroup *state, TupleTableSlot *slot)
{
	bool		is_new;
	TupleHashEntry entry = LookupTupleHashEntry(state->groups, slot, &is_new, NULL);
	uint64	   *number = GgNumberOfGroup(state->groups, entry);

	return *number = is_new ? 1 : *number + 1;
}

static TupleTableSlot *
ExecFirstOfGroup(CustomScanState *css)
{
	FirstOfGroup *state = (FirstOfGroup *) css;
	PlanState  *child = linitial(css->custom_ps);
	ProjectionInfo *projection = css->ss.ps.ps_ProjInfo;
	TupleTableSlot *scan = css->ss.ss_ScanTupleSlot;
	const int	last = scan->tts_tupleDescriptor->natts - 1;
	TupleTableSlot *slot;
	uint64		n;

	do
	{
		CHECK_FOR_INTERRUPTS();
		ResetExprContext(css->ss.ps.ps_ExprContext);
		slot = ExecProcNode(child);
		if (TupIsNull(slot))
			return ExecClearTuple(projection != NULL ? projection->pi_state.resultslot : scan);
		n = NumberInGroup(state, GgPassOn(css, slot));
	} while (n > state->most);

	if (slot->tts_tupleDescriptor->natts <= last)
		scan->tts_values[last] = Int64GetDatum((int64) n);
	if (projection == NULL)
		return scan;
	css->ss.ps.ps_ExprContext->ecxt_scantuple = scan;
	return ExecProject(projection);
}

static void
BeginFirstOfGroup(CustomScanState *css, EState *estate, int eflags)
{
	FirstOfGroup *state = (FirstOfGroup *) css;
	const CustomScan *plan = (const CustomScan *) css->ss.ps.plan;
	const List *operators = linitial(plan->custom_private);
	const List *collations = lsecond(plan->custom_private);
	Oid		   *equal;

	css->custom_ps = list_make1(ExecInitNode(linitial(plan->custom_plans), estate, eflags));
	state->context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph groups",
										   ALLOCSET_DEFAULT_SIZES);
	state->nkeys = list_length(operators);
	state->most = (uint64) linitial_int((const List *) lthird(plan->custom_private));
	state->columns = palloc(state->nkeys * sizeof(AttrNumber));
	state->collations = palloc(state->nkeys * sizeof(Oid));
	equal = palloc(state->nkeys * sizeof(Oid));
	for (int i = 0; i < state->nkeys; i++)
	{
		state->columns[i] = i + 1;
		state->collations[i] = list_nth_oid(collations, i);
		equal[i] = list_nth_oid(operators, i);
	}
	execTuplesHashPrepare(state->nkeys, equal, &state->equal, &state->hash);
	ForgetGroups(state);
}

static void
EndFirstOfGroup(CustomScanState *css)
{
	ExecEndNode(linitial(css->custom_ps));
	MemoryContextDelete(((FirstOfGroup *) css)->context);
}

static void
ReScanFirstOfGroup(CustomScanState *css)
{
	ForgetGroups((FirstOfGroup *) css);
	GgReScanChildren(css);
}

const GgNodeKind gg_first_of_group = {
	GG_NODE_NAMES("GpugraphFirstOfGroup"),
	.exec.BeginCustomScan = BeginFirstOfGroup,
	.exec.ExecCustomScan = ExecFirstOfGroup,
	.exec.EndCustomScan = EndFirstOfGroup,
	.exec.ReScanCustomScan = ReScanFirstOfGroup,
	.state_bytes = sizeof(FirstOfGroup)
};
