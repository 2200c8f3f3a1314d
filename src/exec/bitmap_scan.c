/*
 * bitmap_scan.c
 *		The executor's node for an index scan that is restricted to a bitmap of rows.
 *
 * The node has two children: the IndexScan of a gpugraph index in the order of a distance, and the
 * plan of a bitmap (BitmapIndexScan, BitmapAnd, BitmapOr) of other indexes.  Before the index
 * scan's first row it runs the bitmap's plan, hands the TIDs to the index scan (GgScanSetTids), and
 * then returns that scan's rows as they are.
 *
 * The index scan is the executor's own node, with all conditions of the query as its filter.  So
 * this node changes nothing about parameters, the reordering of rounded rows, locked rows that have
 * changed (EvalPlanQual), and the order in which conditions of row-level security are evaluated.
 * No answer depends on the bitmap: it only says which rows need not be looked at.  That is why
 * nothing is rechecked here, whatever the bitmap says of recheck, and why a bitmap may be left out.
 *
 * It is left out where its TIDs take more memory than a hash table may, or where it is lossy for a
 * table that is no heap.  The index then brings all rows, nearest first, and those that fail the
 * filter are dropped: as without a bitmap.
 *
 * A page that the bitmap knows as a whole ("lossy") stands for the rows that its line pointers
 * name.  So it is read, as a bitmap heap scan would do.  The line pointers of tuples that only
 * other tuples point to (HOT) are not TIDs of any index.
 */
#include "exec/nodes.h"
#include "scan/ready_scan.h"
#include "scan/row_filter.h"

#include "access/tableam.h"
#include "catalog/pg_am_d.h"
#include "commands/explain.h"
#include "miscadmin.h"
#include "utils/memutils.h"

typedef struct BitmapScanState
{
	CustomScanState css;
	IndexScanState *index;
	PlanState  *bitmap;
	bool		restricted;		/* the index scan has been told the TIDs */

	/* what the bitmap said; kept while its own parameters do not change */
	MemoryContext context;		/* of tids */
	bool		read;
	bool		unbounded;		/* the bitmap is left out: all rows */
	uint64	   *tids;			/* gg_tid_key()s, ascending */
	uint32		ntids;
	uint32		tids_cap;
	uint32		max_tids;
	BufferAccessStrategy strategy;

	/* for EXPLAIN, of all bitmaps */
	uint64		exact_pages;
	uint64		lossy_pages;
	uint64		total_tids;
	uint64		unrestricted;	/* bitmaps that were left out */
} BitmapScanState;

uint32
GgMostBitmapTids(void)
{
	return (uint32) Min(get_hash_memory_limit() / sizeof(uint64), PG_INT32_MAX);
}

/* ---- from a bitmap to TIDs ---------------------------------------------- */

static void
ForgetTids(BitmapScanState *state)
{
	MemoryContextReset(state->context);
	state->tids = NULL;
	state->ntids = state->tids_cap = 0;
}

/* False when there is no room for as many more. */
static bool
NeedRoom(BitmapScanState *state, uint32 more)
{
	if (state->ntids + more <= state->tids_cap)
		return true;
	if (state->ntids + more > state->max_tids)
		return false;
	state->tids_cap = Min(Max(state->tids_cap * 2, 1024), state->max_tids);
	state->tids = GgEnlarge(state->context, state->tids, state->tids_cap * sizeof(uint64));
	return true;
}

static inline void
AddTid(BitmapScanState *state, BlockNumber block, OffsetNumber offset)
{
	state->tids[state->ntids++] = (uint64) block << 16 | offset;
}

/* The rows of a page that the bitmap knows as a whole. */
static void
AddPage(BitmapScanState *state, BlockNumber block)
{
	Relation	heap = state->css.ss.ss_currentRelation;
	Buffer		buffer = ReadBufferExtended(heap, MAIN_FORKNUM, block, RBM_NORMAL, state->strategy);
	Page		page = BufferGetPage(buffer);
	OffsetNumber last;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	GgTestForOldSnapshot(state->css.ss.ps.state->es_snapshot, heap, page);
	last = Min(PageGetMaxOffsetNumber(page), MaxHeapTuplesPerPage);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		ItemId		item = PageGetItemId(page, offset);

		if (ItemIdIsRedirected(item) ||
			(ItemIdIsNormal(item) &&
			 !HeapTupleHeaderIsHeapOnly((HeapTupleHeader) PageGetItem(page, item))))
			AddTid(state, block, offset);
	}
	UnlockReleaseBuffer(buffer);
}

/*
 * Ask the other indexes.  Pages come in order, so the TIDs do.  A bitmap may go beyond the end of
 * the table (BRIN's ranges do).  Rows that were added behind that end since are not visible to us.
 */
static void
ReadBitmap(BitmapScanState *state)
{
	Relation	heap = state->css.ss.ss_currentRelation;
	TIDBitmap  *bitmap = (TIDBitmap *) MultiExecProcNode(state->bitmap);
	BlockNumber nblocks = RelationGetNumberOfBlocks(heap);
	GgBitmapIterator *iterator;
	GgBitmapPage page;

	if (bitmap == NULL || !IsA(bitmap, TIDBitmap))
		elog(ERROR, "unrecognized result from subplan");
	state->unbounded = false;
	iterator = GgBitmapBegin(bitmap);
	while (!state->unbounded && GgBitmapNext(iterator, &page))
	{
		CHECK_FOR_INTERRUPTS();
		if (page.block >= nblocks)
			continue;
		if (page.lossy)
			state->lossy_pages++;
		else
			state->exact_pages++;
		/* what a page looks like is known for heap tables only */
		if ((page.lossy && heap->rd_rel->relam != HEAP_TABLE_AM_OID) ||
			!NeedRoom(state, page.lossy ? MaxHeapTuplesPerPage : page.ntuples))
			state->unbounded = true;
		else if (page.lossy)
			AddPage(state, page.block);
		else
			for (int i = 0; i < page.ntuples; i++)
				AddTid(state, page.block, page.offsets[i]);
	}
	GgBitmapEnd(iterator);
	tbm_free(bitmap);
	if (state->unbounded)
	{
		ForgetTids(state);
		state->unrestricted++;
	}
	state->total_tids += state->ntids;
	state->read = true;
}

/* ---- the index scan ----------------------------------------------------- */

/*
 * Make the index scan ready for its first row, as it would do by itself, and restrict it.  To
 * evaluate its keys and to begin it would undo a restriction, so both are done first.
 */
static void
RestrictScan(BitmapScanState *state)
{
	IndexScanState *index = state->index;

	if (!state->read)
		ReadBitmap(state);
	GgReadyScan(index);
	if (!state->unbounded)
		GgScanSetTids(index->iss_ScanDesc, state->tids, state->ntids);
	state->restricted = true;
}

/*
 * Is the table's row given, since the query is run again for a row that was changed by others
 * (EvalPlanQual)?  Then there is no scan.
 */
static bool
RowIsGiven(const BitmapScanState *state)
{
	const EPQState *epq = state->css.ss.ps.state->es_epq_active;
	Index		i = ((Scan *) state->css.ss.ps.plan)->scanrelid - 1;

	return epq != NULL &&
		(epq->relsubs_done[i] || epq->relsubs_slot[i] != NULL || epq->relsubs_rowmark[i] != NULL);
}

/* ---- the node ----------------------------------------------------------- */

/*
 * The index scan hands over the table's row, whatever its plan's target list is, and this node
 * projects.  So both have the table's row in the same slot.  Whoever looks for the row that a
 * cursor stands on (WHERE CURRENT OF) finds it there, with its ctid.  ExecInitCustomScan() made a
 * slot that cannot hold one.
 */
static void
BeginBitmapScan(CustomScanState *css, EState *estate, int eflags)
{
	BitmapScanState *state = (BitmapScanState *) css;
	CustomScan *plan = (CustomScan *) css->ss.ps.plan;
	Relation	heap = css->ss.ss_currentRelation;

	state->index = castNode(IndexScanState,
							ExecInitNode(linitial(plan->custom_plans), estate, eflags));
	state->bitmap = ExecInitNode(lsecond(plan->custom_plans), estate, eflags);
	css->custom_ps = list_make2(state->index, state->bitmap);

	state->index->ss.ps.ps_ProjInfo = NULL;
	GgInitScanSlot(estate, &css->ss, RelationGetDescr(heap), table_slot_callbacks(heap));
	css->ss.ss_ScanTupleSlot = state->index->ss.ss_ScanTupleSlot;
	css->ss.ps.subPlan = NIL;	/* the new projection brings them again */
	ExecAssignScanProjectionInfo(&css->ss);

	state->context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph bitmap",
										   ALLOCSET_DEFAULT_SIZES);
	state->max_tids = GgMostBitmapTids();
	state->strategy = GetAccessStrategy(BAS_BULKREAD);
}

static TupleTableSlot *
ExecBitmapScan(CustomScanState *css)
{
	BitmapScanState *state = (BitmapScanState *) css;
	ProjectionInfo *projection = css->ss.ps.ps_ProjInfo;
	ExprContext *econtext = css->ss.ps.ps_ExprContext;
	TupleTableSlot *slot = NULL;

	if (RowIsGiven(state))
		slot = ExecProcNode(&state->index->ss.ps);
	else
	{
		if (!state->restricted)
			RestrictScan(state);
		if (state->unbounded || state->ntids > 0)
			slot = ExecProcNode(&state->index->ss.ps);
	}
	if (projection == NULL)
		return slot;
	if (TupIsNull(slot))
		return ExecClearTuple(projection->pi_state.resultslot);
	ResetExprContext(econtext);
	econtext->ecxt_scantuple = slot;
	return ExecProject(projection);
}

static void
EndBitmapScan(CustomScanState *css)
{
	BitmapScanState *state = (BitmapScanState *) css;

	ExecEndNode(&state->index->ss.ps);
	ExecEndNode(state->bitmap);
	FreeAccessStrategy(state->strategy);
	MemoryContextDelete(state->context);
}

/*
 * Where only the vector is another one, as in a LATERAL subquery, the bitmap is not made anew.
 */
static void
ReScanBitmapScan(CustomScanState *css)
{
	BitmapScanState *state = (BitmapScanState *) css;
	PlanState  *index = &state->index->ss.ps;

	if (css->ss.ps.chgParam != NULL)
	{
		UpdateChangedParamSet(index, css->ss.ps.chgParam);
		UpdateChangedParamSet(state->bitmap, css->ss.ps.chgParam);
	}
	if (state->bitmap->chgParam != NULL)
	{
		ForgetTids(state);
		state->read = false;
	}
	if (index->chgParam == NULL)
		ExecReScan(index);
	state->restricted = false;
}

static void
ExplainBitmapScan(CustomScanState *css, List *ancestors, ExplainState *es)
{
	BitmapScanState *state = (BitmapScanState *) css;

	if (!es->analyze)
		return;
	if (es->format != EXPLAIN_FORMAT_TEXT)
	{
		ExplainPropertyUInteger("Exact Heap Blocks", NULL, state->exact_pages, es);
		ExplainPropertyUInteger("Lossy Heap Blocks", NULL, state->lossy_pages, es);
	}
	else if (state->exact_pages + state->lossy_pages > 0)
	{
		char	   *blocks = psprintf("exact=" UINT64_FORMAT " lossy=" UINT64_FORMAT,
									  state->exact_pages, state->lossy_pages);

		ExplainPropertyText("Heap Blocks", blocks, es);
	}
	ExplainPropertyUInteger("TIDs", NULL, state->total_tids, es);
	if (es->format != EXPLAIN_FORMAT_TEXT || state->unrestricted > 0)
		ExplainPropertyUInteger("Unrestricted Scans", NULL, state->unrestricted, es);
}

const GgNodeKind gg_bitmap_scan = {
	GG_NODE_NAMES("GpugraphBitmapScan"),
	.exec.BeginCustomScan = BeginBitmapScan,
	.exec.ExecCustomScan = ExecBitmapScan,
	.exec.EndCustomScan = EndBitmapScan,
	.exec.ReScanCustomScan = ReScanBitmapScan,
	.exec.ExplainCustomScan = ExplainBitmapScan,
	.state_bytes = sizeof(BitmapScanState)
};
