/*
 * finder.c
 *		The nearest visible rows of one query, by a scan of the index.
 *
 * The scan is the one that ORDER BY with a LIMIT runs, so settings mean the same, dead rows are
 * replaced by the next ones, and the answer is as good.  Where rows are stored rounded, this does
 * what the executor does for such a query: the operator's value comes from the table, and a row is
 * settled when no later one can be nearer (bound.c).  Under relaxed_order the scan's first k rows
 * are the answer, as there.
 */
#include "many/batch.h"

#include <math.h>

#include "access/genam.h"
#include "access/tableam.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/float.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

void
GgOpenFinder(GgFinder *finder, const GgTarget *target, bool exact)
{
	Relation	index = target->index;
	Oid			operator = get_opfamily_member(index->rd_opfamily[0], index->rd_opcintype[0],
											   index->rd_opcintype[0], GG_DISTANCE_STRATEGY);

	memset(finder, 0, sizeof(*finder));
	finder->target = target;
	finder->context = CurrentMemoryContext;
	ScanKeyEntryInitialize(&finder->key, SK_ORDER_BY, 1, GG_DISTANCE_STRATEGY, InvalidOid,
						   index->rd_indcollation[0], get_opcode(operator), (Datum) 0);
	finder->scan = GgBeginScan(target->heap, index, GetActiveSnapshot(), 0, 1);
	((GgScanOpaque *) finder->scan->opaque)->all_exact = exact;
	((GgScanOpaque *) finder->scan->opaque)->by_function = true;
	finder->slot = table_slot_create(target->heap, NULL);
	finder->estate = CreateExecutorState();
	finder->queries = GgMakeQueries();
}

void
GgCloseFinder(GgFinder *finder)
{
	GgNoteOf((GgScanOpaque *) finder->scan->opaque, &finder->note);
	index_endscan(finder->scan);
	ExecDropSingleTupleTableSlot(finder->slot);
	FreeExecutorState(finder->estate);
	GgFreeQueries(finder->queries);
	if (finder->rows != NULL)
		pfree(finder->rows);
}

Datum
GgIndexedValue(GgFinder *finder, TupleTableSlot *slot)
{
	Relation	index = finder->target->index;
	AttrNumber	column = index->rd_index->indkey.values[0];
	ExprContext *context = GetPerTupleExprContext(finder->estate);
	Datum		value;
	bool		isnull;

	if (column != InvalidAttrNumber)
		value = slot_getattr(slot, column, &isnull);
	else
	{
		if (finder->expression == NULL)
			finder->expression = ExecPrepareExpr(linitial(RelationGetIndexExpressions(index)),
												 finder->estate);
		context->ecxt_scantuple = slot;
		value = ExecEvalExprSwitchContext(finder->expression, context, &isnull);
	}
	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the value of a row of index \"%s\" has become NULL",
						RelationGetRelationName(index)),
				 errdetail("Its expression is not immutable."),
				 errhint("Correct the functions of the expression, and REINDEX the index.")));
	return value;
}

/* The operator's value for the row in the finder's slot, by the table's vector. */
static double
TrueDistance(GgFinder *finder)
{
	MemoryContext old = MemoryContextSwitchTo(GetPerTupleMemoryContext(finder->estate));
	Datum		value = GgIndexedValue(finder, finder->slot);
	double		distance = DatumGetFloat8(FunctionCall2Coll(&finder->key.sk_func,
															finder->key.sk_collation,
															value, finder->key.sk_argument));

	MemoryContextSwitchTo(old);
	ResetPerTupleExprContext(finder->estate);
	return distance;
}

void
GgFetchRow(GgFinder *finder, ItemPointer ctid)
{
	if (!table_tuple_fetch_row_version(finder->target->heap, ctid, GetActiveSnapshot(),
									   finder->slot))
		elog(ERROR, "row (%u,%u) of \"%s\" has become invisible",
			 ItemPointerGetBlockNumber(ctid), ItemPointerGetOffsetNumber(ctid),
			 RelationGetRelationName(finder->target->heap));
}

double
GgTrueDistance(GgFinder *finder, Datum query, ItemPointer ctid)
{
	double		distance;

	finder->key.sk_argument = query;
	GgFetchRow(finder, ctid);
	distance = TrueDistance(finder);
	ExecClearTuple(finder->slot);
	return distance;
}

double
GgOperatorDistance(gg_metric metric, float distance)
{
	return metric == GG_METRIC_L2 ? sqrt((double) distance) : distance;
}

float
GgEngineDistance(gg_metric metric, double value)
{
	return (float) (metric == GG_METRIC_L2 ? value * value : value);
}

/* The operator's value for the scan's row. */
static double
OperatorDistance(const GgScanOpaque *so)
{
	if (so->meta->metric == GG_METRIC_COSINE && GgIsZeroVector(so->query, so->meta->dimensions))
		return get_float8_nan();
	return GgOperatorDistance(so->meta->metric, so->distance);
}

/*
 * Put the row in the slot into its place.  Rows come nearly in order, so it is near the end.
 */
static void
PutInPlace(GgFinder *finder, double distance)
{
	uint64		place;

	GgNeedRoom(finder->context, finder->rows, finder->nrows, finder->capacity);
	for (place = finder->nrows;
		 place > 0 && float8_lt(distance, finder->rows[place - 1].distance);
		 place--)
		finder->rows[place] = finder->rows[place - 1];
	finder->rows[place].ctid = finder->slot->tts_tid;
	finder->rows[place].distance = distance;
	finder->nrows++;
}

static int
CompareFound(const void *a, const void *b)
{
	return float8_cmp_internal(((const GgFoundRow *) a)->distance,
							   ((const GgFoundRow *) b)->distance);
}

/* The rest of a search where rows are rounded: the first row is in the slot. */
static void
FindRounded(GgFinder *finder, uint64 k)
{
	do
	{
		double		least = DatumGetFloat8(finder->scan->xs_orderbyvals[0]);

		/* neither this row nor a later one is nearer than the last of k */
		if (finder->nrows == k && float8_ge(least, finder->rows[k - 1].distance))
			break;
		PutInPlace(finder, TrueDistance(finder));
		finder->nrows = Min(finder->nrows, k);
		CHECK_FOR_INTERRUPTS();
	} while (index_getnext_slot(finder->scan, ForwardScanDirection, finder->slot));
}

static void
Find(GgFinder *finder, GgQueries *queries, Datum query, uint64 k)
{
	GgScanOpaque *so = (GgScanOpaque *) finder->scan->opaque;
	bool		in_order = true;

	finder->nrows = 0;
	so->queries = queries;
	finder->key.sk_argument = query;
	GgTellLimit(&finder->key, k);
	index_rescan(finder->scan, NULL, 0, &finder->key, 1);
	while (finder->nrows < k &&
		   index_getnext_slot(finder->scan, ForwardScanDirection, finder->slot))
	{
		GgFoundRow *row;

		if (finder->scan->xs_recheckorderby)
		{
			FindRounded(finder, k);
			break;
		}
		GgNeedRoom(finder->context, finder->rows, finder->nrows, finder->capacity);
		row = &finder->rows[finder->nrows++];
		row->ctid = finder->slot->tts_tid;
		row->distance = so->bound.rounded ? TrueDistance(finder) : OperatorDistance(so);
		in_order &= finder->nrows == 1 || !float8_lt(row->distance, row[-1].distance);
	}
	/* what strict order kept back came last, and relaxed order has no order to speak of */
	if (!in_order)
		qsort(finder->rows, finder->nrows, sizeof(GgFoundRow), CompareFound);
	ExecClearTuple(finder->slot);
}

void
GgLeaveRowOut(GgFinder *finder, const GgNode *node)
{
	((GgScanOpaque *) finder->scan->opaque)->left_out_node = *node;
}

void
GgFind(GgFinder *finder, Datum query, uint64 k)
{
	Find(finder, NULL, query, k);
}

/*
 * Of the delta so many rows are kept for each query, within work_mem, as a pass for one query would
 * sort first (exact_stream.c), or 2 k if more: some are dead or, if rounded, not the nearest.
 */
void
GgSetQueries(GgFinder *finder, const Datum *values, uint32 count, uint64 k)
{
	uint64		room = (uint64) GgExactRoom(work_mem, (int) count);
	uint64		most = Min(Max(Max(2 * k, gg_itopk_size), GG_EXACT_MIN_BATCH), room);

	GgNameQueries(finder->queries, values, count, (uint32) most);
}

void
GgFindQuery(GgFinder *finder, uint32 number, uint64 k)
{
	Find(finder, finder->queries, GgTakeQuery(finder->queries, number), k);
}
