/*
 * table_order.c
 *		Rows of an index that has codes and no vectors, in the order of the table's values.
 *
 * The streams hand out rows in the order of estimates.  The nearest of them are read from the
 * table: the version that the scan's snapshot sees, whose distance is computed from the column's
 * value as an insert would see it.  Some more are read than the scan is expected to take
 * (GgRowsToRead()), and handed out in the order of their distances.  Rows that the snapshot does
 * not see do not count, and equal rows count as one (GG_MOST_ROWS_PER_NODE).  When the scan takes
 * more, twice as many are read, and so on.
 *
 * Reading ends before that once the next estimate is so much farther than the last row that the
 * scan is expected to take that errors of estimates hardly close the gap (GgIsTooFar()).  Most
 * queries pay for half of the rows so.  gpugraph.rerank_size, where it is set, is kept to.
 *
 * Streams hand out rows as under relaxed_order, unless iterative_scan is off.  A row that turns out
 * nearer than one that was returned before comes at once under relaxed_order, and last under
 * strict_order.  With iterative_scan off a scan has gpugraph.itopk_size rows, which are all read
 * before the first is returned.
 *
 * A row that the snapshot sees stays where it is while the snapshot lives, so that its TID is as
 * good later.
 */
#include "scan/scan.h"
#include "scan/toast_reader.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/tableam.h"
#include "catalog/pg_am_d.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/inspect.h"
#include "storage/type.h"
#include "utils/float.h"

/* Rows whose pages are asked for together. */
#define BATCH_ROWS			64

/* A row that is to be read. */
typedef struct Candidate
{
	float		estimate;
	ItemPointerData tid;
	uint32		number;			/* in the order of estimates */
	uint64		node;			/* of several rows where vectors are equal */
	GgToastValue value;			/* if that lies out of line */
} Candidate;

typedef struct OrderedRow
{
	float		distance;
	uint32		number;			/* in the order of estimates, for ties */
	ItemPointerData tid;
} OrderedRow;

typedef struct RowArray
{
	OrderedRow *rows;
	uint64		count;
	uint64		next;			/* those before it were returned */
	uint64		room;
} RowArray;

typedef struct GgTableOrder
{
	IndexFetchTableData *fetch;
	BlockNumber heap_blocks;	/* of a heap table; or 0 */
	TupleTableSlot *slot;
	EState	   *estate;
	ExprState  *expression;		/* of the key; NULL: it is a column */
	GgRights	rights;			/* with which that is evaluated */
	const GgOpclass *opclass;
	gg_distance_fn distance;
	void	   *row;			/* a value as a row */
	GgToastReader *toast;		/* NULL: not in use yet */
	RowArray	read;			/* ascending from next on */
	RowArray	late;
	Candidate	batch[BATCH_ROWS];
	uint32		nbatch;
	uint32		next;			/* of the batch; those before it were read */
	float		largest_error;	/* of the estimates of rows that were read */
	uint32		handed;			/* rows that the streams have handed out */
	bool		ended;			/* the streams have no more rows */
	bool		late_sorted;
	uint64		measured;		/* rows that were read */
	uint64		taken;			/* nodes that these belong to */
	uint64		last_node;		/* of them */
	uint64		returned;
	float		last;			/* distance of the last row that was not late */
} GgTableOrder;

static void
Begin(IndexScanDesc scan)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	GgTableOrder *order = palloc0(sizeof(GgTableOrder));

	order->fetch = GgBeginFetch(scan->heapRelation);
	if (scan->heapRelation->rd_rel->relam == HEAP_TABLE_AM_OID)
		order->heap_blocks = RelationGetNumberOfBlocks(scan->heapRelation);
	order->slot = table_slot_create(scan->heapRelation, NULL);
	order->estate = CreateExecutorState();
	if (GgIsExpression(scan->indexRelation))
	{
		GgCaller	caller;

		GgFindRights(&order->rights, scan->indexRelation, scan->heapRelation);
		GgTellRights(&order->rights);
		GgActAsOwner(scan->heapRelation, &caller);
		order->expression =
			ExecPrepareExpr(linitial(RelationGetIndexExpressions(scan->indexRelation)),
							order->estate);
		GgActAsCaller(&caller);
		GgTellNoRights(&order->rights);
	}
	order->opclass = GgIndexOpclass(scan->indexRelation);
	order->distance = gg_distance_function(so->meta->metric, so->meta->element);
	order->row = palloc(GgRowBytes(so->meta));
	order->last = -get_float4_infinity();
	so->table_order = order;
}

void
GgEndTableOrder(GgScanOpaque *so)
{
	GgTableOrder *order = so->table_order;

	if (order == NULL)
		return;
	so->table_order = NULL;
	if (order->toast != NULL)
		GgCloseToast(order->toast);
	ExecDropSingleTupleTableSlot(order->slot);
	table_index_fetch_end(order->fetch);
	FreeExecutorState(order->estate);
}

static void
AddRow(GgScanOpaque *so, RowArray *array, const OrderedRow *row)
{
	GgNeedRoom(so->context, array->rows, array->count, array->room);
	array->rows[array->count++] = *row;
}

static int
CompareRows(const void *a, const void *b)
{
	const OrderedRow *left = a;
	const OrderedRow *right = b;

	if (left->distance != right->distance)
		return left->distance < right->distance ? -1 : 1;
	return left->number < right->number ? -1 : left->number > right->number;
}

/* Sort the rows that were not returned, and forget the others. */
static void
SortRows(RowArray *array)
{
	array->count -= array->next;
	memmove(array->rows, array->rows + array->next, array->count * sizeof(OrderedRow));
	array->next = 0;
	qsort(array->rows, array->count, sizeof(OrderedRow), CompareRows);
}

/* The row's distance by a value of the column.  False: it has none. */
static bool
Measure(GgScanOpaque *so, GgTableOrder *order, Datum value, float *distance)
{
	value = PointerGetDatum(PG_DETOAST_DATUM(value));
	if (GgValueDimensions(order->opclass, value) != so->meta->dimensions ||
		!GgValueToRow(order->opclass, so->meta->element, value, so->meta->dimensions, order->row))
		return false;
	*distance = order->distance(order->row, so->query, so->meta->dimensions);
	return true;
}

/* Add a row to those that were read, if it has a distance. */
static void
TakeRow(GgScanOpaque *so, GgTableOrder *order, const Candidate *candidate, Datum value)
{
	OrderedRow	row = {.number = candidate->number, .tid = candidate->tid};
	float		error;

	if (!Measure(so, order, value, &row.distance))
		return;
	error = fabsf(row.distance - candidate->estimate);
	order->largest_error = Max(order->largest_error, error);
	order->measured++;
	order->taken += candidate->node != order->last_node;
	order->last_node = candidate->node;
	so->reranked++;
	AddRow(so, &order->read, &row);
}

/*
 * Read a row of the table, if the snapshot sees it.  True: its value lies out of line, and was
 * looked up.
 */
static bool
ReadRow(IndexScanDesc scan, Candidate *candidate)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	GgTableOrder *order = so->table_order;
	ExprContext *context = GetPerTupleExprContext(order->estate);
	ItemPointerData at = candidate->tid;
	bool		call_again = false;
	bool		all_dead = false;
	bool		later = false;

	if (order->heap_blocks > 0)
		GgPinRow(scan->heapRelation, order->fetch, &at);
	if (table_index_fetch_tuple(order->fetch, &at, so->snapshot, order->slot, &call_again,
								&all_dead))
	{
		MemoryContext old = MemoryContextSwitchTo(context->ecxt_per_tuple_memory);
		bool		isnull;
		Datum		value;

		context->ecxt_scantuple = order->slot;
		value = order->expression != NULL ? ExecEvalExpr(order->expression, context, &isnull) :
			slot_getattr(order->slot, so->index->rd_index->indkey.values[0], &isnull);
		if (!isnull && order->expression == NULL &&
			VARATT_IS_EXTERNAL_ONDISK((struct varlena *) DatumGetPointer(value)))
		{
			if (order->toast == NULL)
				order->toast = GgOpenToast(scan->heapRelation, so->context);
			later = GgFindToast(order->toast, value, &candidate->value);
		}
		if (!isnull && !later)
			TakeRow(so, order, candidate, value);
		MemoryContextSwitchTo(old);
		ResetExprContext(context);
	}
	ExecClearTuple(order->slot);
	return later;
}

/* Take a row whose value lies out of line. */
static void
ReadValue(GgScanOpaque *so, GgTableOrder *order, const Candidate *candidate)
{
	ExprContext *context = GetPerTupleExprContext(order->estate);
	MemoryContext old = MemoryContextSwitchTo(context->ecxt_per_tuple_memory);
	struct varlena *value = GgReadToast(order->toast, &candidate->value);

	if (value == NULL)
	{
		value = palloc(TOAST_POINTER_SIZE);
		SET_VARTAG_EXTERNAL(value, VARTAG_ONDISK);
		memcpy(VARDATA_EXTERNAL(value), &candidate->value.pointer,
			   sizeof(candidate->value.pointer));
	}
	TakeRow(so, order, candidate, PointerGetDatum(value));
	MemoryContextSwitchTo(old);
	ResetExprContext(context);
}

/* Ask for the rows of a batch together: of the disk, and of memory. */
static void
LookAtBatch(Relation heap, const GgTableOrder *order)
{
	const ItemPointerData *tids[BATCH_ROWS];

	for (uint32 i = 0; i < order->nbatch; i++)
		tids[i] = &order->batch[i].tid;
	for (uint32 i = 0; i < order->nbatch && order->heap_blocks > 0; i += GG_AHEAD_ROWS)
		GgLookAtRows(heap, order->heap_blocks, tids + i, Min(GG_AHEAD_ROWS, order->nbatch - i));
}

/* Fill the batch with the next rows of the streams, no more than `wanted`. */
static void
FillBatch(IndexScanDesc scan,
		  bool (*next) (GgScanOpaque *so, IndexScanDesc scan, ItemPointer tid), uint64 wanted)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	GgTableOrder *order = so->table_order;

	order->nbatch = order->next = 0;
	while (order->nbatch < Min(wanted, BATCH_ROWS) && !order->ended)
	{
		Candidate  *candidate = &order->batch[order->nbatch];

		if (next(so, scan, &candidate->tid))
		{
			candidate->estimate = so->distance;
			candidate->number = order->handed++;
			candidate->node = so->entered;
			order->nbatch++;
		}
		else
			order->ended = true;
	}
	LookAtBatch(scan->heapRelation, order);
}

/* Read rows of the batch, until they are of so many nodes. */
static void
ReadBatch(IndexScanDesc scan, uint64 due)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	GgTableOrder *order = so->table_order;
	uint32		later[BATCH_ROWS];
	uint32		nlater = 0;
	GgCaller	caller;

	/* what an expression calls runs with the rights of the table's owner */
	if (order->expression != NULL)
	{
		GgTellRights(&order->rights);
		GgActAsOwner(scan->heapRelation, &caller);
	}
	while (order->next < order->nbatch && order->taken + nlater < due)
	{
		CHECK_FOR_INTERRUPTS();
		if (ReadRow(scan, &order->batch[order->next]))
			later[nlater++] = order->next;
		order->next++;
	}
	if (order->expression != NULL)
	{
		GgActAsCaller(&caller);
		GgTellNoRights(&order->rights);
	}
	for (uint32 i = 0; i < nlater; i++)
		ReadValue(so, order, &order->batch[later[i]]);
	if (nlater > 0)
		GgForgetToast(order->toast);
}

/* How many rows were returned, or are late and wait for all others? */
static uint64
Gone(const GgTableOrder *order)
{
	return order->returned + order->late.count - order->late.next;
}

/*
 * Are the nearest `wanted` rows, with those that are gone, among the ones that were read?  These
 * are sorted.
 */
static bool
IsSettled(const GgTableOrder *order, uint64 wanted)
{
	const RowArray *read = &order->read;
	const uint64 last = read->next + wanted - Gone(order) - 1;

	return order->next < order->nbatch && last < read->count &&
		GgIsTooFar(order->batch[order->next].estimate, read->rows[last].distance,
				   order->largest_error);
}

/* Read what is due before the next row is returned. */
static void
ReadDue(IndexScanDesc scan,
		bool (*next) (GgScanOpaque *so, IndexScanDesc scan, ItemPointer tid))
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	GgTableOrder *order = so->table_order;
	const uint64 gone = Gone(order);
	const uint64 wanted = GgRowsWanted(so->mode, &so->params, so->limit, gone);
	const uint64 due = so->exact ? PG_UINT64_MAX :
		GgRowsToRead(so->meta, &so->params, wanted);
	const bool	all = so->exact || GgReadsAllDue(so->mode, &so->params);

	const uint64 before = order->measured;

	while (order->taken < due && order->measured / GG_MOST_ROWS_PER_NODE < due)
	{
		if (order->next == order->nbatch)
			FillBatch(scan, next, due - order->taken);
		if (order->nbatch == 0 || (!all && IsSettled(order, wanted)))
			break;
		if (all)
			ReadBatch(scan, due);
		else
		{
			ReadBatch(scan, GgMeasureUntil(order->taken, wanted, due));
			SortRows(&order->read);
		}
	}
	table_index_fetch_reset(order->fetch);
	if (all && order->measured > before)
		SortRows(&order->read);
}

bool
GgNextInTableOrder(IndexScanDesc scan,
				   bool (*next) (GgScanOpaque *so, IndexScanDesc scan, ItemPointer tid),
				   ItemPointer tid)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	GgTableOrder *order;
	const OrderedRow *row;

	if (so->table_order == NULL)
		Begin(scan);
	order = so->table_order;
	if (so->mode == GG_ITERATIVE_OFF && order->returned >= so->params.itopk_size)
		return false;
	for (;;)
	{
		RowArray   *from = &order->read;

		ReadDue(scan, next);
		if (order->read.next == order->read.count)
		{
			from = &order->late;
			if (!order->late_sorted && order->late.count > 0)
				SortRows(&order->late);
			order->late_sorted = true;
			if (from->next == from->count)
				return false;
		}
		row = &from->rows[from->next];
		if (row->distance > so->farthest_row)
		{
			/* nothing is read any more: what is left are late ones */
			if (from == &order->late)
				return false;
			order->read.count = order->read.next;
			order->ended = true;
			order->next = order->nbatch = 0;
			continue;
		}
		from->next++;
		so->late = from == &order->late;
		if (so->late)
			break;
		if (!so->strict_table || row->distance >= order->last)
		{
			order->last = row->distance;
			break;
		}
		AddRow(so, &order->late, row);
	}
	order->returned++;
	so->distance = row->distance;
	*tid = row->tid;
	return true;
}
