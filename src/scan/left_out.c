/*
 * left_out.c
 *		Rows that are not in the index and come before those that are.
 *
 * Rows whose vector is NULL, or zero under cosine, are in no index.  Where they come first, such as
 * in the order of 1 - d DESC, the planner takes the index only while it has left none out
 * (sort_key.h).  A row may be left out after the plan was made, and before the scan's snapshot was
 * taken.  Then the metapage, which is read after the snapshot was taken, says so, and the scan
 * looks for such rows in the table.  That takes as long as it takes without the index, and happens
 * until the plan is made anew (NoteLeftOut() in am/insert.c).
 */
#include "scan/scan.h"
#include "scan/row_filter.h"

#include "scan/sort_key.h"
#include "storage/type.h"

#include "access/tableam.h"
#include "catalog/index.h"

typedef struct TidList
{
	ItemPointerData *tids;
	uint64		count;
	uint64		room;
} TidList;

typedef struct GgLeftOut
{
	GgScanOpaque *so;
	TidList		nulls;
	TidList		zeros;			/* behind them */
	uint64		next;			/* of both */
} GgLeftOut;

static void
AddTid(MemoryContext context, TidList *list, ItemPointer tid)
{
	GgNeedRoom(context, list->tids, list->count, list->room);
	list->tids[list->count++] = *tid;
}

/* A zero vector under cosine is the only value that is not indexed. */
static bool
IsZero(const GgScanOpaque *so, Datum stored)
{
	const GgOpclass *opclass = GgIndexOpclass(so->index);
	const Datum value = PointerGetDatum(PG_DETOAST_DATUM(stored));
	const uint32 dimensions = GgValueDimensions(opclass, value);
	void	   *row = palloc((Size) dimensions * sizeof(float));
	const gg_element element = (gg_element) so->meta->element;
	const bool	zero = !GgValueToRow(opclass, element, value, dimensions, row);

	pfree(row);
	if (DatumGetPointer(value) != DatumGetPointer(stored))
		pfree(DatumGetPointer(value));
	return zero;
}

/* The callback of table_index_build_scan(). */
static void
LookAtRow(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool alive, void *arg)
{
	GgLeftOut  *left_out = arg;
	const GgScanOpaque *so = left_out->so;

	if (isnull[0])
	{
		if ((so->marks & GG_KEY_NULLS_FIRST) != 0)
			AddTid(so->context, &left_out->nulls, tid);
	}
	else if ((so->marks & GG_KEY_NANS_FIRST) != 0 && IsZero(so, values[0]))
		AddTid(so->context, &left_out->zeros, tid);
}

/*
 * The table is scanned as by a concurrent build: for the rows that the snapshot sees, with the TIDs
 * that indexes have.
 */
void
GgFindLeftOut(IndexScanDesc scan)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	IndexInfo  *info = BuildIndexInfo(scan->indexRelation);

	so->left_out = MemoryContextAllocZero(so->context, sizeof(GgLeftOut));
	so->left_out->so = so;
	info->ii_Concurrent = true;
	(void) table_index_build_scan(scan->heapRelation, scan->indexRelation, info, true, false,
								  LookAtRow, so->left_out,
								  GgBeginTableScan(scan->heapRelation, so->snapshot));
}

bool
GgNextLeftOut(GgScanOpaque *so, ItemPointer tid)
{
	GgLeftOut  *left_out = so->left_out;

	while (left_out != NULL && left_out->next < left_out->nulls.count + left_out->zeros.count)
	{
		const uint64 i = left_out->next++;

		*tid = i < left_out->nulls.count ? left_out->nulls.tids[i] :
			left_out->zeros.tids[i - left_out->nulls.count];
		if (GgTidMatches(so, tid))
			return true;
	}
	return false;
}
