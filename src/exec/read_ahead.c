/*
 * read_ahead.c
 *		The executor's node that reads the outer rows of a join ahead, for their queries.
 *
 * It stands below a nested loop whose inner side is a scan of ours, begun anew for each outer row:
 * for the nearest of that row's vector, or for all within a distance.  It reads some outer rows,
 * has all of their queries answered at once where that can be done (scan/lists_ahead.c), and hands
 * the rows on one by one.  All else is core's: the join, and the inner scan, which finds what it
 * would have asked for.
 *
 * The first rows are handed on one by one, and then four times as many as before are read each
 * time.  So where somebody stops early, one in five queries at least was not asked for in vain.
 * Where the last scan did not ask a device for what many queries can share, rows go one by one.
 *
 * The inner scan's keys for a row are found as the join and the scan would, by the join's
 * parameters, where to evaluate them has no effect and no error.
 */
#include "exec/nodes.h"
#include "scan/scan.h"

#include "commands/explain.h"
#include "executor/nodeIndexscan.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/memutils.h"

/* How many times as many rows are read as the time before. */
#define GROWTH				4

typedef struct ReadAhead
{
	CustomScanState css;
	AttrNumber	column;			/* of the outer row: the query */
	const IndexScanState *scan; /* NULL: none is known */
	const List *params;			/* NestLoopParams of the join */
	bool		knows_keys;		/* those of the scan, for any outer row */
	ScanKeyData *keys;			/* as the scan has them */
	IndexRuntimeKeyInfo *runtime_keys;	/* of the keys that expressions give */
	int			nruntime;
	GgListsAhead *lists;
	MemoryContext context;		/* of rows */
	MinimalTuple *rows;
	uint32		nrows;
	uint32		next;			/* of these */
	uint32		most;			/* rows that were read the last time */
	bool		ended;			/* the outer side has no other row */
	TupleTableSlot *slot;		/* of a row that was kept */
	uint64		nqueries;		/* for EXPLAIN: that were answered with others ... */
	uint64		nbatches;		/* ... in so many batches */
} ReadAhead;

/* How many rows to read, where there is memory for them. */
static uint32
RowsToRead(ReadAhead *state)
{
	GgScanOpaque *so;
	uint32		room;

	/* the inner scan begins with the first outer row */
	if (state->scan == NULL || state->scan->iss_ScanDesc == NULL)
		return 1;
	so = (GgScanOpaque *) state->scan->iss_ScanDesc->opaque;
	if (so->ahead == NULL)
		so->ahead = state->lists;
	room = GgRoomAhead(so, state->knows_keys);
	return Max(Min(state->most * GROWTH, room), 1);
}

/* The scan's keys for the outer row, in the expression's memory. */
static GgKeysAhead
KeysOf(ReadAhead *state, TupleTableSlot *slot)
{
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	const GgKeysAhead keys = {state->keys, state->scan->iss_NumScanKeys, state->nruntime > 0};
	const int	nparams = list_length(state->params);
	ParamExecData *before;

	if (!state->knows_keys || !keys.change)
		return keys;
	before = palloc(nparams * sizeof(ParamExecData));
	for (int i = 0; i < nparams; i++)
	{
		const NestLoopParam *param = list_nth(state->params, i);
		ParamExecData *value = &econtext->ecxt_param_exec_vals[param->paramno];

		before[i] = *value;
		value->value = slot_getattr(slot, param->paramval->varattno, &value->isnull);
	}
	ExecIndexEvalRuntimeKeys(econtext, state->runtime_keys, state->nruntime);
	for (int i = 0; i < nparams; i++)
		econtext->ecxt_param_exec_vals[list_nth_node(NestLoopParam, state->params, i)->paramno] =
			before[i];
	return keys;
}

/* Keep the row and its query.  Returns the bytes that they take. */
static Size
KeepRow(ReadAhead *state, TupleTableSlot *slot)
{
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	MemoryContext old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	bool		isnull;
	Datum		query = slot_getattr(slot, state->column, &isnull);
	MinimalTuple row;
	Size		bytes = 0;

	ResetExprContext(econtext);
	if (!isnull)
	{
		const GgKeysAhead keys = KeysOf(state, slot);

		bytes = GgAddAhead(state->lists, state->scan->iss_RelationDesc, query, &keys);
	}
	MemoryContextSwitchTo(state->context);
	row = ExecCopySlotMinimalTuple(slot);
	MemoryContextSwitchTo(old);
	state->rows[state->nrows++] = row;
	return bytes + row->t_len;
}

/* Read rows, within work_mem, and ask for their lists; a pass is made when a scan wants it. */
static void
ReadRows(ReadAhead *state, uint32 most)
{
	Size		bytes = 0;
	uint32		asked;

	MemoryContextReset(state->context);
	state->rows = MemoryContextAlloc(state->context, most * sizeof(MinimalTuple));
	state->nrows = state->next = 0;
	GgForgetAhead(state->lists);
	while (state->nrows < most && bytes < work_mem * (Size) 1024)
	{
		TupleTableSlot *slot = ExecProcNode(outerPlanState(state));

		CHECK_FOR_INTERRUPTS();
		state->ended = TupIsNull(slot);
		if (state->ended)
			break;
		bytes += KeepRow(state, slot);
	}
	state->most = state->nrows;
	asked = state->nrows > 1 ? GgAskAhead(state->lists) : 0;
	state->nqueries += asked;
	state->nbatches += asked > 0;
}

static TupleTableSlot *
ExecReadAhead(CustomScanState *css)
{
	ReadAhead  *state = (ReadAhead *) css;
	TupleTableSlot *slot = NULL;

	if (state->next == state->nrows && !state->ended)
	{
		const uint32 most = RowsToRead(state);

		if (most > 1)
			ReadRows(state, most);
		else
		{
			slot = ExecProcNode(outerPlanState(css));
			state->ended = TupIsNull(slot);
			state->most = 1;
		}
	}
	if (state->next < state->nrows)
		slot = ExecStoreMinimalTuple(state->rows[state->next++], state->slot, false);
	if (TupIsNull(slot))
		return ExecClearTuple(css->ss.ss_ScanTupleSlot);
	return GgPassOn(css, slot);
}

static void
BeginReadAhead(CustomScanState *css, EState *estate, int eflags)
{
	ReadAhead  *state = (ReadAhead *) css;
	const CustomScan *plan = (const CustomScan *) css->ss.ps.plan;

	outerPlanState(css) = ExecInitNode(outerPlan(plan), estate, eflags);
	state->column = (AttrNumber) linitial_int(plan->custom_private);
	state->lists = GgNewListsAhead();
	state->context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph rows ahead",
										   ALLOCSET_DEFAULT_SIZES);
	state->slot = ExecInitExtraTupleSlot(estate, css->ss.ss_ScanTupleSlot->tts_tupleDescriptor,
										 &TTSOpsMinimalTuple);
}

static void
EndReadAhead(CustomScanState *css)
{
	ExecEndNode(outerPlanState(css));
}

static void
ReScanReadAhead(CustomScanState *css)
{
	ReadAhead  *state = (ReadAhead *) css;

	state->nrows = state->next = state->most = 0;
	state->ended = false;
	GgForgetAhead(state->lists);
	if (outerPlanState(css)->chgParam == NULL)
		ExecReScan(outerPlanState(css));
}

static void
ExplainReadAhead(CustomScanState *css, List *ancestors, ExplainState *es)
{
	const ReadAhead *state = (const ReadAhead *) css;

	if (!es->analyze)
		return;
	ExplainPropertyUInteger("Queries Together", NULL, state->nqueries, es);
	ExplainPropertyUInteger("Batches", NULL, state->nbatches, es);
}

bool
GgIsOrderedBy(const IndexScan *scan, int param)
{
	const Node *query;

	if (list_length(scan->indexorderby) != 1)
		return false;
	query = lsecond(linitial_node(OpExpr, scan->indexorderby)->args);
	return IsA(query, Param) && ((const Param *) query)->paramkind == PARAM_EXEC &&
		((const Param *) query)->paramid == param;
}

/* The scan that a node reads ahead for. */
typedef struct ToFind
{
	int			param;
	const IndexScanState *scan;
} ToFind;

static bool
FindScan(PlanState *state, void *context)
{
	ToFind	   *wanted = context;

	if (IsA(state, IndexScanState) && GgIsOrderedBy((const IndexScan *) state->plan, wanted->param))
		wanted->scan = (const IndexScanState *) state;
	return wanted->scan != NULL || planstate_tree_walker(state, FindScan, context);
}

/* Is it a parameter as it stands, a constant, or an array of such? */
static bool
IsPlain(const Node *expr)
{
	ListCell   *cell;

	while (IsA(expr, RelabelType))
		expr = (const Node *) ((const RelabelType *) expr)->arg;
	if (!IsA(expr, ArrayExpr))
		return IsA(expr, Param) || IsA(expr, Const);
	foreach(cell, ((const ArrayExpr *) expr)->elements)
		if (!IsPlain(lfirst(cell)))
			return false;
	return true;
}

/*
 * Copy the scan's keys.  They are known if each that differs by row is plain.  The scan's runtime
 * keys have those of the order, too, which are left out.
 */
static void
CopyKeys(ReadAhead *state)
{
	const IndexScanState *scan = state->scan;

	state->keys = palloc(scan->iss_NumScanKeys * sizeof(ScanKeyData));
	memcpy(state->keys, scan->iss_ScanKeys, scan->iss_NumScanKeys * sizeof(ScanKeyData));
	state->runtime_keys = palloc(scan->iss_NumRuntimeKeys * sizeof(IndexRuntimeKeyInfo));
	state->nruntime = 0;
	state->knows_keys = true;
	for (int i = 0; i < scan->iss_NumRuntimeKeys; i++)
	{
		IndexRuntimeKeyInfo key = scan->iss_RuntimeKeys[i];

		if (key.scan_key < scan->iss_ScanKeys ||
			key.scan_key >= scan->iss_ScanKeys + scan->iss_NumScanKeys)
			continue;
		state->knows_keys &= IsPlain((const Node *) key.key_expr->expr);
		key.scan_key = state->keys + (key.scan_key - scan->iss_ScanKeys);
		state->runtime_keys[state->nruntime++] = key;
	}
}

void
GgTellReadAhead(const PlanState *join)
{
	ReadAhead  *state = (ReadAhead *) outerPlanState(join);
	ToFind		wanted = {0};

	if (!GgIsNode(&state->css.ss.ps, &gg_read_ahead))
		return;
	wanted.param = lsecond_int(((const CustomScan *) state->css.ss.ps.plan)->custom_private);
	(void) FindScan(innerPlanState(join), &wanted);
	state->scan = wanted.scan;
	state->params = ((const NestLoop *) join->plan)->nestParams;
	if (state->scan != NULL && state->scan->iss_ScanKeys != NULL)
		CopyKeys(state);
}

const GgNodeKind gg_read_ahead = {
	GG_NODE_NAMES("GpugraphReadAhead"),
	.exec.BeginCustomScan = BeginReadAhead,
	.exec.ExecCustomScan = ExecReadAhead,
	.exec.EndCustomScan = EndReadAhead,
	.exec.ReScanCustomScan = ReScanReadAhead,
	.exec.ExplainCustomScan = ExplainReadAhead,
	.state_bytes = sizeof(ReadAhead)
};
