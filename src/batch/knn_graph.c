/*
 * knn_graph.c
 *		gpugraph_knn_graph(): the nearest rows of every row.
 *
 * The rows of the index come in chunks, in the order in which they lie there.  Each visible row is
 * a query.  Its answers are the chunk's output, which the caller takes row by row.
 *
 * Between two calls this holds memory and nothing else: the caller need not come back.  So each
 * chunk opens the index again, by the lock that the first one took.  All chunks read the directory
 * that the first one copied.  The session itself may rebuild the index between two FETCHes of a
 * cursor, which the instance tells.
 */
#include "batch/batch.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* Places of the index per chunk.  To begin one takes about as long as a tenth of a search. */
#define CHUNK_PLACES	64

typedef struct Edge
{
	ItemPointerData ctid;
	GgFoundRow	neighbor;
} Edge;

typedef struct KnnGraph
{
	Oid			indexoid;
	int32		k;
	GgMetaPageData *meta;
	uint64		next_place;

	/* the chunk */
	MemoryContext context;
	Edge	   *edges;
	uint64		nedges;
	uint64		next_edge;
	uint64		capacity;
} KnnGraph;

static void
AddEdge(KnnGraph *graph, const ItemPointerData *ctid, const GgFoundRow *neighbor)
{
	if (graph->nedges == graph->capacity)
	{
		graph->capacity = Max(CHUNK_PLACES, graph->capacity * 2);
		if (graph->edges == NULL)
			graph->edges = MemoryContextAllocHuge(graph->context, graph->capacity * sizeof(Edge));
		else
			graph->edges = repalloc_huge(graph->edges, graph->capacity * sizeof(Edge));
	}
	graph->edges[graph->nedges].ctid = *ctid;
	graph->edges[graph->nedges++].neighbor = *neighbor;
}

/* The row's edges are the first k of what was found but the row itself. */
static void
AddRow(KnnGraph *graph, const GgFinder *finder, const ItemPointerData *ctid)
{
	uint64		nedges = graph->nedges;

	for (uint64 i = 0; i < finder->nrows && graph->nedges - nedges < graph->k; i++)
		if (!ItemPointerEquals(unconstify(ItemPointerData *, ctid),
							   &finder->rows[i].ctid))
			AddEdge(graph, ctid, &finder->rows[i]);
}

static void
SearchRows(KnnGraph *graph, GgFinder *finder, ItemPointerData *tids, uint32 count)
{
	Relation	heap = finder->target->heap;
	TupleTableSlot *slot = table_slot_create(heap, NULL);
	IndexFetchTableData *fetch = table_index_fetch_begin(heap);
	Datum		last = (Datum) 0;

	for (uint32 i = 0; i < count; i++)
	{
		bool		call_again = false;
		Datum		value;

		CHECK_FOR_INTERRUPTS();
		if (!ItemPointerIsValid(&tids[i]) ||
			!table_index_fetch_tuple(fetch, &tids[i], GetActiveSnapshot(), slot, &call_again, NULL))
			continue;
		value = GgIndexedValue(finder, slot);
		value = PointerGetDatum(PG_DETOAST_DATUM(value));

		/* equal rows have the same answer, and lie one after the other */
		if (DatumGetPointer(last) == NULL || !datumIsEqual(value, last, false, -1))
		{
			last = datumCopy(value, false, -1);
			GgFind(finder, last, (uint64) graph->k + 1);
		}
		AddRow(graph, finder, &slot->tts_tid);
		ResetPerTupleExprContext(finder->estate);
	}
	table_index_fetch_end(fetch);
	ExecDropSingleTupleTableSlot(slot);
}

static void
CheckInstance(const KnnGraph *graph, Relation index)
{
	GgMetaPageData *head;
	Buffer		buffer = GgLockMeta(index, BUFFER_LOCK_SHARE, &head);
	bool		same = head->instance == graph->meta->instance;

	UnlockReleaseBuffer(buffer);
	if (!same)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("index \"%s\" was rebuilt while its rows were read",
						RelationGetRelationName(index)),
				 errhint("Close the cursor, and begin anew.")));
}

/* Make the next chunk that has output; false when there is none. */
static bool
NextChunk(KnnGraph *graph)
{
	ItemPointerData tids[CHUNK_PLACES];
	GgTarget	target;
	GgFinder	finder;
	MemoryContext old;
	uint32		count;

	MemoryContextReset(graph->context);
	graph->edges = NULL;
	graph->nedges = graph->next_edge = graph->capacity = 0;
	old = MemoryContextSwitchTo(graph->context);
	GgOpenTarget(graph->indexoid, &target);
	if (graph->meta == NULL)
	{
		graph->meta = MemoryContextAlloc(GetMemoryChunkContext(graph), sizeof(GgMetaPageData));
		GgReadMeta(target.index, graph->meta);
	}
	CheckInstance(graph, target.index);
	GgOpenFinder(&finder, &target, false);
	while (graph->nedges == 0)
	{
		count = GgReadPlaces(target.index, graph->meta, graph->next_place, CHUNK_PLACES, tids);
		if (count == 0)
			break;
		graph->next_place += count;
		SearchRows(graph, &finder, tids, count);
	}
	GgCloseFinder(&finder);
	GgCloseTarget(&target);
	MemoryContextSwitchTo(old);
	return graph->nedges > 0;
}

PG_FUNCTION_INFO_V1(gpugraph_knn_graph);

Datum
gpugraph_knn_graph(PG_FUNCTION_ARGS)
{
	FuncCallContext *call;
	KnnGraph   *graph;
	Edge	   *edge;
	Datum		values[3];
	bool		nulls[3] = {false, false, false};

	if (SRF_IS_FIRSTCALL())
	{
		MemoryContext old;
		TupleDesc	tupdesc;

		GgCheckK(PG_GETARG_INT32(1));
		call = SRF_FIRSTCALL_INIT();
		old = MemoryContextSwitchTo(call->multi_call_memory_ctx);
		if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
			elog(ERROR, "return type must be a row type");
		call->tuple_desc = BlessTupleDesc(tupdesc);
		graph = palloc0(sizeof(KnnGraph));
		graph->indexoid = PG_GETARG_OID(0);
		graph->k = PG_GETARG_INT32(1);
		graph->context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph k-NN graph",
											   ALLOCSET_DEFAULT_SIZES);
		call->user_fctx = graph;
		MemoryContextSwitchTo(old);
	}

	call = SRF_PERCALL_SETUP();
	graph = call->user_fctx;
	if (graph->next_edge == graph->nedges && !NextChunk(graph))
		SRF_RETURN_DONE(call);
	edge = &graph->edges[graph->next_edge++];
	values[0] = PointerGetDatum(&edge->ctid);
	values[1] = PointerGetDatum(&edge->neighbor.ctid);
	values[2] = Float8GetDatum(edge->neighbor.distance);
	SRF_RETURN_NEXT(call, HeapTupleGetDatum(heap_form_tuple(call->tuple_desc, values, nulls)));
}
