/*
 * first_of_group.c
 *		The executor's node for the first row of each group, in the order in which rows come.
 *
 * Rows of groups that were seen are passed over.  What is equal is so by the operators of GROUP BY;
 * NULLs are one group.  Groups are kept until the scan ends: no more of them than were returned.
 */
#include "exec/first_of_group.h"

#include "common/hashfn.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#define FIRST_BUCKETS		256

typedef struct GroupKey
{
	FmgrInfo	hash;
	FmgrInfo	equal;
	Oid			collation;
	int16		length;			/* of the type */
	bool		by_value;
} GroupKey;

typedef struct SeenGroup
{
	struct SeenGroup *next;		/* in its bucket */
	uint32		hash;
	NullableDatum values[FLEXIBLE_ARRAY_MEMBER];
} SeenGroup;

typedef struct FirstOfGroup
{
	CustomScanState css;
	int			nkeys;
	GroupKey   *keys;
	MemoryContext context;		/* of groups */
	SeenGroup **buckets;
	uint32		nbuckets;		/* a power of two; 0: there are none yet */
	uint32		ngroups;
} FirstOfGroup;

static uint32
HashOf(const FirstOfGroup *state, const TupleTableSlot *slot)
{
	uint32		hash = 0;

	for (int i = 0; i < state->nkeys; i++)
	{
		GroupKey   *key = &state->keys[i];
		uint32		own = 0;

		if (!slot->tts_isnull[i])
			own = DatumGetUInt32(FunctionCall1Coll(&key->hash, key->collation,
												   slot->tts_values[i]));
		hash = hash_combine(hash, own);
	}
	return murmurhash32(hash);
}

static bool
IsOf(const FirstOfGroup *state, const SeenGroup *group, const TupleTableSlot *slot)
{
	for (int i = 0; i < state->nkeys; i++)
	{
		GroupKey   *key = &state->keys[i];
		const NullableDatum *value = &group->values[i];

		if (value->isnull != slot->tts_isnull[i])
			return false;
		if (!value->isnull && !DatumGetBool(FunctionCall2Coll(&key->equal, key->collation,
															  value->value,
															  slot->tts_values[i])))
			return false;
	}
	return true;
}

static void
AddBuckets(FirstOfGroup *state)
{
	const uint32 nbuckets = Max(2 * state->nbuckets, FIRST_BUCKETS);
	SeenGroup **buckets = MemoryContextAllocExtended(state->context,
													 nbuckets * sizeof(SeenGroup *),
													 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (uint32 i = 0; i < state->nbuckets; i++)
		for (SeenGroup *group = state->buckets[i], *next; group != NULL; group = next)
		{
			SeenGroup **bucket = &buckets[group->hash & (nbuckets - 1)];

			next = group->next;
			group->next = *bucket;
			*bucket = group;
		}
	if (state->buckets != NULL)
		pfree(state->buckets);
	state->buckets = buckets;
	state->nbuckets = nbuckets;
}

static void
AddGroup(FirstOfGroup *state, const TupleTableSlot *slot, uint32 hash)
{
	MemoryContext old = MemoryContextSwitchTo(state->context);
	SeenGroup  *group = palloc(offsetof(SeenGroup, values) + state->nkeys * sizeof(NullableDatum));
	SeenGroup **bucket = &state->buckets[hash & (state->nbuckets - 1)];

	group->hash = hash;
	group->next = *bucket;
	for (int i = 0; i < state->nkeys; i++)
	{
		const GroupKey *key = &state->keys[i];
		NullableDatum *value = &group->values[i];

		value->isnull = slot->tts_isnull[i];
		value->value = value->isnull ? (Datum) 0 :
			datumCopy(slot->tts_values[i], key->by_value, key->length);
	}
	*bucket = group;
	state->ngroups++;
	MemoryContextSwitchTo(old);
}

/* Is it the first row of its group? */
static bool
IsFirst(FirstOfGroup *state, const TupleTableSlot *slot)
{
	ExprContext *context = state->css.ss.ps.ps_ExprContext;
	MemoryContext old = MemoryContextSwitchTo(context->ecxt_per_tuple_memory);
	const uint32 hash = HashOf(state, slot);
	const SeenGroup *group;

	if (state->ngroups >= state->nbuckets)
		AddBuckets(state);
	group = state->buckets[hash & (state->nbuckets - 1)];
	while (group != NULL && (group->hash != hash || !IsOf(state, group, slot)))
		group = group->next;
	MemoryContextSwitchTo(old);
	if (group != NULL)
		return false;
	AddGroup(state, slot, hash);
	return true;
}

static TupleTableSlot *
ExecFirstOfGroup(CustomScanState *css)
{
	FirstOfGroup *state = (FirstOfGroup *) css;
	PlanState  *child = linitial(css->custom_ps);
	ProjectionInfo *projection = css->ss.ps.ps_ProjInfo;
	TupleTableSlot *scan = css->ss.ss_ScanTupleSlot;
	TupleTableSlot *slot;

	do
	{
		CHECK_FOR_INTERRUPTS();
		ResetExprContext(css->ss.ps.ps_ExprContext);
		slot = ExecProcNode(child);
		if (TupIsNull(slot))
			return ExecClearTuple(projection != NULL ? projection->pi_state.resultslot : scan);
		slot_getallattrs(slot);
	} while (!IsFirst(state, slot));

	/* what reads the row knows the kind of this slot, and not of the child's */
	ExecClearTuple(scan);
	memcpy(scan->tts_values, slot->tts_values,
		   scan->tts_tupleDescriptor->natts * sizeof(Datum));
	memcpy(scan->tts_isnull, slot->tts_isnull,
		   scan->tts_tupleDescriptor->natts * sizeof(bool));
	ExecStoreVirtualTuple(scan);
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
	const TupleDesc desc = css->ss.ss_ScanTupleSlot->tts_tupleDescriptor;

	css->custom_ps = list_make1(ExecInitNode(linitial(plan->custom_plans), estate, eflags));
	state->context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph groups",
										   ALLOCSET_DEFAULT_SIZES);
	state->nkeys = list_length(operators);
	state->keys = palloc0(state->nkeys * sizeof(GroupKey));
	for (int i = 0; i < state->nkeys; i++)
	{
		GroupKey   *key = &state->keys[i];
		const Oid	operator = list_nth_oid(operators, i);
		Oid			hash,
					other;

		key->collation = list_nth_oid(collations, i);
		if (!get_op_hash_functions(operator, &hash, &other))
			elog(ERROR, "operator %u has no hash function", operator);
		fmgr_info(hash, &key->hash);
		fmgr_info(get_opcode(operator), &key->equal);
		get_typlenbyval(TupleDescAttr(desc, i)->atttypid, &key->length, &key->by_value);
	}
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
	FirstOfGroup *state = (FirstOfGroup *) css;
	PlanState  *child = linitial(css->custom_ps);

	MemoryContextReset(state->context);
	state->buckets = NULL;
	state->nbuckets = state->ngroups = 0;
	if (css->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(child, css->ss.ps.chgParam);
	if (child->chgParam == NULL)
		ExecReScan(child);
}

static const CustomExecMethods exec_methods = {
	.CustomName = GG_FIRST_OF_GROUP_NAME,
	.BeginCustomScan = BeginFirstOfGroup,
	.ExecCustomScan = ExecFirstOfGroup,
	.EndCustomScan = EndFirstOfGroup,
	.ReScanCustomScan = ReScanFirstOfGroup
};

static Node *
CreateFirstOfGroup(CustomScan *plan)
{
	FirstOfGroup *state = palloc0(sizeof(FirstOfGroup));

	NodeSetTag(state, T_CustomScanState);
	state->css.methods = &exec_methods;
	return (Node *) state;
}

const CustomScanMethods gg_first_of_group = {
	.CustomName = GG_FIRST_OF_GROUP_NAME,
	.CreateCustomScanState = CreateFirstOfGroup
};
