/*
 * knn_graph.c
 *		gpugraph_knn_graph(): the nearest rows of every row.
 *
 * The rows of the index come in chunks, in the order in which they lie there.  Each visible row is
 * a query.  Its answers are the chunk's output.  In a select list the caller takes it row by row.
 * In FROM it goes to a tuplestore, chunk by chunk, since the executor would put each row there.
 *
 * Where a device answers, the queries of a chunk are some thousand nodes of one segment, whose
 * vectors are read from the index, or from the table where the index has them rounded or as codes
 * alone.  Every row is a query sooner or later, and is a neighbor of some ten others.  So visible
 * versions of all rows are looked up once, and kept, if they fit in the memory of a hash table
 * (hash_mem_multiplier).  Elsewhere, and for rows of the delta, which are few, chunks are small,
 * and each row is a scan.
 *
 * Between two calls this holds memory and nothing else: the caller need not come back.  So each
 * chunk opens the index again, by the lock that the first one took.  All chunks read the directory
 * that the first one copied.  The session itself may rebuild the index between two FETCHes of a
 * cursor; then the instance differs.
 *
 * With algorithm => 'gnnd' all lists are made at once, in memory (knn_lists.c).
 */
#include "many/bulk.h"

#include "access/tableam.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

/* Places of the index per chunk.  To begin a chunk takes about a tenth of a search. */
#define CHUNK_PLACES	GG_QUERIES_TOGETHER

/* Rows of a device's chunk at the most. */
#define CHUNK_ROWS		16384

/* By GNND a chunk ends with the row that brings it to so many edges. */
#define EDGES_TOGETHER	1024

/* Memory for the queries of a chunk that are read from the table. */
#define QUERY_BYTES		(4 << 20)

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
	GgLists		all;			/* of meta, while a chunk is made */
	uint64		next_place;
	MemoryContext map_context;
	GgRowMap   *map;			/* NULL: none */
	bool		tried_map;
	GgCopies   *copies;			/* for all chunks */
	GgScanNote	note;			/* of all chunks */
	bool		by_gnnd;
	GgKnnLists *lists;			/* by GNND; NULL until they are made */
	uint32		next_row;		/* of the lists */
	HeapTuple	tuple;			/* of each row of the result ... */
	struct GraphRow *row;		/* ... and its columns */

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
	GgNeedRoom(graph->context, graph->edges, graph->nedges, graph->capacity);
	graph->edges[graph->nedges].ctid = *ctid;
	graph->edges[graph->nedges++].neighbor = *neighbor;
}

/* The row's edges are the first k of what was found but the row itself. */
static void
AddRow(KnnGraph *graph, const ItemPointerData *ctid, GgFoundRow *rows, uint64 nrows)
{
	uint64		nedges = graph->nedges;

	for (uint64 i = 0; i < nrows && graph->nedges - nedges < graph->k; i++)
		if (!ItemPointerEquals(unconstify(ItemPointerData *, ctid), &rows[i].ctid))
			AddEdge(graph, ctid, &rows[i]);
}

/* A chunk's rows, and the queries that they are: equal rows, which lie together, are one. */
typedef struct Asked
{
	uint32		nrows;
	ItemPointerData ctids[CHUNK_PLACES];
	uint32		query_of[CHUNK_PLACES];
	uint32		nqueries;
	Datum		queries[CHUNK_PLACES];
} Asked;

static void
ReadAsked(GgFinder *finder, ItemPointerData *tids, uint32 count, Asked *asked)
{
	Relation	heap = finder->target->heap;
	TupleTableSlot *slot = table_slot_create(heap, NULL);
	IndexFetchTableData *fetch = GgBeginFetch(heap);

	asked->nrows = asked->nqueries = 0;
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
		if (asked->nqueries == 0 ||
			!datumIsEqual(value, asked->queries[asked->nqueries - 1], false, -1))
			asked->queries[asked->nqueries++] = datumCopy(value, false, -1);
		asked->ctids[asked->nrows] = slot->tts_tid;
		asked->query_of[asked->nrows++] = asked->nqueries - 1;
		ResetPerTupleExprContext(finder->estate);
	}
	table_index_fetch_end(fetch);
	ExecDropSingleTupleTableSlot(slot);
}

static void
SearchRows(KnnGraph *graph, GgFinder *finder, ItemPointerData *tids, uint32 count)
{
	Asked		asked;
	uint64		k = (uint64) graph->k + 1;

	ReadAsked(finder, tids, count, &asked);
	GgSetQueries(finder, asked.queries, asked.nqueries, k);
	for (uint32 i = 0; i < asked.nrows; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (i == 0 || asked.query_of[i] != asked.query_of[i - 1])
			GgFindQuery(finder, asked.query_of[i], k);
		AddRow(graph, &asked.ctids[i], finder->rows, finder->nrows);
	}
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

/* ---- by scans --------------------------------------------------------------- */

/* Add the edges of the rows at some places.  Returns how many places, 0 at the end. */
static uint32
ScanPlaces(KnnGraph *graph, GgFinder *finder, uint64 first, uint32 most)
{
	ItemPointerData tids[CHUNK_PLACES];
	uint32		count = GgReadRows(&graph->all, first, most, tids);

	SearchRows(graph, finder, tids, count);
	return count;
}

/* ---- by a device ------------------------------------------------------------- */

/* Nodes of a segment that are searched for together. */
typedef struct NodeChunk
{
	int			list;
	uint32		first;			/* node */
	uint32		count;
	uint32	   *row_ends;		/* of each node: the row behind its last one */
	uint32		nrows;
	ItemPointerData *ctids;		/* of the rows */
} NodeChunk;

/* Which list has the next place, and as which row; false when no segment with live rows has it. */
static bool
FindList(const KnnGraph *graph, const GgLists *lists, int *list, uint32 *row)
{
	uint64		place = graph->next_place;
	const GgMetaPageData *now = lists->meta;

	for (int i = 0; i < graph->meta->nsegments; i++)
	{
		const GgSegment *segment = &graph->meta->segments[i];

		if (place < segment->rows)
		{
			*row = (uint32) place;
			for (*list = 0; *list < now->nsegments; (*list)++)
				if (now->segments[*list].id == segment->id)
					return lists->sources[*list].index != NULL;
			return false;
		}
		place -= segment->rows;
	}
	return false;
}

/* The visible versions of the rows [row, row + count) of a list. */
static ItemPointerData *
ResolveRows(const KnnGraph *graph, GgLists *lists, int list, uint32 row, uint32 count)
{
	ItemPointerData *ctids = MemoryContextAllocHuge(CurrentMemoryContext,
													count * sizeof(ItemPointerData));
	GgPlace    *places = MemoryContextAllocHuge(CurrentMemoryContext, count * sizeof(GgPlace));

	for (uint32 i = 0; i < count; i++)
		places[i] = GgPlaceOf(list, row + i);
	GgResolve(lists, graph->map, places, count, ctids);
	pfree(places);
	return ctids;
}

static void
ReadNodes(const KnnGraph *graph, GgBulk *bulk, int list, uint32 row, NodeChunk *chunk)
{
	GgLists    *lists = GgListsOf(bulk);
	const uint32 nodes = lists->meta->segments[list].nodes;
	const uint32 most = GgMostQueries(bulk);
	uint32		first,
				end = row;

	chunk->list = list;
	chunk->first = GgNodeOfRow(lists, list, row);
	chunk->count = 0;
	chunk->row_ends = palloc(most * sizeof(uint32));
	while (chunk->count < most && chunk->first + chunk->count < nodes &&
		   end < row + CHUNK_ROWS)
	{
		GgRowsOfNode(lists, list, chunk->first + chunk->count, &first, &end);
		chunk->row_ends[chunk->count++] = end;
	}
	/* a node may have any number of rows, and the next chunk begin amid them */
	end = Min(end, row + CHUNK_ROWS);
	if (end <= row)
		GgReportCorruption(lists->target->index, GG_META_BLKNO,
						   "row %u of segment %u belongs to no node", row,
						   lists->meta->segments[list].id);
	chunk->nrows = end - row;
	chunk->ctids = ResolveRows(graph, lists, list, row, chunk->nrows);
}

/*
 * Nodes of a chunk, as a device is asked for them.  lists: of the directory that the chunk was
 * taken from.  The bulk's lists may be others, once its resident was replaced.
 */
typedef struct NodesOf
{
	GgLists		lists;
	const NodeChunk *chunk;
} NodesOf;

static void
ReadVectors(void *arg, uint32 first, uint32 count, float *queries)
{
	const NodesOf *of = arg;
	const GgLists *lists = &of->lists;
	const GgMetaPageData *meta = lists->meta;
	const GgVectors *vectors = &lists->sources[of->chunk->list].vectors;
	uint32		node = of->chunk->first + first;
	Size		dim = meta->dimensions;
	Size		row_bytes = GgRowBytes(meta);
	bool		halves = meta->element == GG_ELEMENT_F16;
	char	   *stored = halves ? palloc(count * row_bytes) : (char *) queries;

	for (uint32 i = 0; i < count;)
	{
		const GgVectorPiece *piece = GgPieceOf(vectors, node + i);
		uint32		skip = node + i - piece->first;
		uint32		here = Min(count - i, piece->nodes - skip);

		GgReadArray(lists->target->index, meta->instance, &piece->array,
					skip * (uint64) row_bytes, stored + i * row_bytes, here * row_bytes);
		i += here;
	}
	if (halves)
	{
		gg_halves_to_floats((const uint16_t *) stored, queries, count * dim);
		pfree(stored);
	}
	for (uint32 i = 0; i < count; i++)
		gg_query_prepare(meta->metric, queries + i * dim, dim);
}

/* The edges of the row at a place, from the answer to its query. */
static void
AddAnswer(KnnGraph *graph, GgFinder *finder, uint64 place, ItemPointer ctid, const GgBulk *bulk,
		  uint32 query)
{
	GgFoundRow *rows;
	const uint32 found = GgFoundRows(bulk, query, &rows);

	if (found == GG_BULK_SHORT)
		ScanPlaces(graph, finder, place, 1);
	else
		AddRow(graph, ctid, rows, found);
}

/* Add the edges of the next nodes of a segment.  Returns how many places; 0: no device answers. */
static uint32
NodesChunk(KnnGraph *graph, GgFinder *finder, GgBulk *bulk, int list, uint32 row)
{
	NodeChunk	chunk;
	uint32		next = 0;
	NodesOf		of = {*GgListsOf(bulk), &chunk};

	ReadNodes(graph, bulk, list, row, &chunk);
	if (GgFindBulk(bulk, ReadVectors, &of, chunk.count) < chunk.count)
		return 0;
	for (uint32 i = 0; i < chunk.count; i++)
		for (; next < chunk.nrows && row + next < chunk.row_ends[i]; next++)
		{
			ItemPointer ctid = &chunk.ctids[next];

			if (ItemPointerIsValid(ctid))
				AddAnswer(graph, finder, graph->next_place + next, ctid, bulk, i);
		}
	return chunk.nrows;
}

/*
 * The same where rows are stored rounded, or as codes alone.  The index does not have the queries,
 * so they are read from the table, row by row: rows of one node may differ there.
 */
static uint32
RowsChunk(KnnGraph *graph, GgFinder *finder, GgBulk *bulk, int list, uint32 row)
{
	GgLists    *lists = GgListsOf(bulk);
	uint32		left = lists->meta->segments[list].rows - row;
	uint32		room = QUERY_BYTES / (lists->meta->dimensions * sizeof(float));
	uint32		count = Min(left, Min(GgMostQueries(bulk), room));
	ItemPointerData *ctids = ResolveRows(graph, lists, list, row, count);
	uint32	   *offsets = palloc(count * sizeof(uint32));
	Datum	   *values = palloc(count * sizeof(Datum));
	uint32		n = 0;

	for (uint32 i = 0; i < count; i++)
	{
		Datum		value;

		CHECK_FOR_INTERRUPTS();
		if (!ItemPointerIsValid(&ctids[i]))
			continue;
		GgFetchRow(finder, &ctids[i]);
		value = GgIndexedValue(finder, finder->slot);
		values[n] = PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
		offsets[n++] = i;
		ResetPerTupleExprContext(finder->estate);
	}
	ExecClearTuple(finder->slot);

	if (GgFindBulk(bulk, NULL, values, n) < n)
		return 0;
	for (uint32 i = 0; i < n; i++)
		AddAnswer(graph, finder, graph->next_place + offsets[i], &ctids[offsets[i]], bulk, i);
	return count;
}

static uint32
BulkChunk(KnnGraph *graph, GgFinder *finder, GgBulk *bulk)
{
	int			list;
	uint32		row;

	if (!FindList(graph, GgListsOf(bulk), &list, &row))
		return 0;
	if (graph->meta->element == finder->target->opclass->element &&
		graph->meta->coded == GG_CODES_NONE)
		return NodesChunk(graph, finder, bulk, list, row);
	return RowsChunk(graph, finder, bulk, list, row);
}

/* ---- chunks ------------------------------------------------------------------- */

/* Have a map where a device answers and there is memory for it. */
static void
NeedMap(KnnGraph *graph, GgBulk *bulk)
{
	MemoryContext old = MemoryContextSwitchTo(graph->map_context);

	if (!graph->tried_map)
		graph->map = GgMakeRowMap(GgListsOf(bulk), get_hash_memory_limit());
	graph->tried_map = true;
	GgUseRowMap(bulk, graph->map);
	MemoryContextSwitchTo(old);
}

/* Add the edges of some places; returns how many places, 0 at the end. */
static uint32
AddPlaces(KnnGraph *graph, const GgTarget *target)
{
	GgFinder	finder;
	GgBulk	   *bulk;
	uint32		count = 0;

	GgOpenLists(&graph->all, target, graph->meta);
	GgOpenFinder(&finder, target, false);
	bulk = GgOpenBulk(&finder, (uint64) graph->k + 1, CHUNK_ROWS, graph->copies, &graph->note);
	if (bulk != NULL && GgMostRows(bulk) > graph->k)
	{
		NeedMap(graph, bulk);
		count = BulkChunk(graph, &finder, bulk);
	}
	if (count == 0)
		count = ScanPlaces(graph, &finder, graph->next_place, CHUNK_PLACES);
	GgCloseFinder(&finder);
	GgAddNote(&graph->note, &finder.note);
	graph->next_place += count;
	return count;
}

/* Make the next chunk that has output; false when there is none. */
static bool
NextChunk(KnnGraph *graph)
{
	for (;;)
	{
		MemoryContext old;
		GgTarget	target;
		GgCaller	caller;
		uint32		count;

		MemoryContextReset(graph->context);
		graph->edges = NULL;
		graph->nedges = graph->next_edge = graph->capacity = 0;
		old = MemoryContextSwitchTo(graph->context);
		if (graph->meta != NULL)
			GgReopenTarget(graph->indexoid, &target);
		else
		{
			GgOpenTarget(graph->indexoid, &target);
			graph->meta = MemoryContextAlloc(GetMemoryChunkContext(graph),
											 sizeof(GgMetaPageData));
			GgReadMetaAsOf(target.index, GetActiveSnapshot(), graph->meta);
		}
		CheckInstance(graph, target.index);
		GgActAsOwner(target.heap, &caller);
		count = AddPlaces(graph, &target);
		GgActAsCaller(&caller);
		GgNoteCall(&graph->note);
		GgCloseTarget(&target);
		MemoryContextSwitchTo(old);
		if (graph->nedges > 0)
			return true;
		if (count == 0)
			return false;
	}
}

/* ---- by GNND ------------------------------------------------------------------- */

static void
MakeLists(KnnGraph *graph)
{
	MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(graph));
	GgTarget	target;
	GgCaller	caller;

	GgOpenTarget(graph->indexoid, &target);
	GgActAsOwner(target.heap, &caller);
	graph->lists = GgMakeKnnLists(&target, graph->k);
	GgActAsCaller(&caller);
	GgCloseTarget(&target);
	MemoryContextSwitchTo(old);
}

/*
 * Bring the edges of the next rows; false behind the last one.  Neighbors lie anywhere in memory: a
 * processor fetches those of one loop together, and those of single calls one after the other.
 */
static bool
NextOfLists(KnnGraph *graph)
{
	const GgKnnLists *lists;

	CHECK_FOR_INTERRUPTS();
	if (graph->lists == NULL)
		MakeLists(graph);
	lists = graph->lists;
	graph->nedges = graph->next_edge = 0;
	while (graph->next_row < lists->n && graph->nedges < EDGES_TOGETHER)
	{
		Size		list = (Size) graph->next_row * lists->length;

		for (uint32 i = 0; i < graph->k && i < lists->length; i++)
		{
			uint32		id = lists->ids[list + i];
			GgFoundRow	neighbor;

			if (id == GG_NO_NODE)
				break;
			neighbor.ctid = lists->ctids[id];
			neighbor.distance = GgOperatorDistance(lists->metric, lists->distances[list + i]);
			AddEdge(graph, &lists->ctids[graph->next_row], &neighbor);
		}
		graph->next_row++;
	}
	return graph->nedges > 0;
}

/* ---- the function ---------------------------------------------------------------- */

/* A row of the result. */
struct GraphRow
{
	ItemPointerData ctid;
	ItemPointerData neighbor;
	float8		distance;
};

/* Whether the algorithm is GNND. */
static bool
IsGnnd(const char *algorithm)
{
	if (strcmp(algorithm, "gnnd") != 0 && strcmp(algorithm, "search") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("there is no algorithm \"%s\"", algorithm),
				 errhint("Algorithms are \"search\" and \"gnnd\".")));
	return strcmp(algorithm, "gnnd") == 0;
}

/* Begin a graph in the current memory context. */
static KnnGraph *
BeginGraph(FunctionCallInfo fcinfo, TupleDesc desc)
{
	KnnGraph   *graph = palloc0(sizeof(KnnGraph));
	void	   *data;

	GgCheckK(PG_GETARG_INT32(1));
	graph->indexoid = PG_GETARG_OID(0);
	graph->k = PG_GETARG_INT32(1);
	graph->by_gnnd = IsGnnd(text_to_cstring(PG_GETARG_TEXT_PP(2)));
	graph->context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph k-NN graph",
										   ALLOCSET_DEFAULT_SIZES);
	graph->map_context = CurrentMemoryContext;
	graph->copies = GgMakeCopies(PG_UINT64_MAX);
	graph->tuple = GgFormRow(desc, sizeof(struct GraphRow), &data);
	graph->row = data;
	return graph;
}

/* Make the tuple that of the next edge; false behind the last one. */
static bool
NextRow(KnnGraph *graph)
{
	const Edge *edge;

	if (graph->next_edge == graph->nedges &&
		!(graph->by_gnnd ? NextOfLists(graph) : NextChunk(graph)))
		return false;
	edge = &graph->edges[graph->next_edge++];
	graph->row->ctid = edge->ctid;
	graph->row->neighbor = edge->neighbor.ctid;
	graph->row->distance = edge->neighbor.distance;
	return true;
}

static void
StoreGraph(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	KnnGraph   *graph;

	InitMaterializedSRF(fcinfo, 0);
	graph = BeginGraph(fcinfo, rsinfo->setDesc);
	while (NextRow(graph))
		tuplestore_puttuple(rsinfo->setResult, graph->tuple);
}

PG_FUNCTION_INFO_V1(gpugraph_knn_graph);

Datum
gpugraph_knn_graph(PG_FUNCTION_ARGS)
{
	const ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	FuncCallContext *call;
	KnnGraph   *graph;

	if (rsinfo != NULL && IsA(rsinfo, ReturnSetInfo) &&
		(rsinfo->allowedModes & SFRM_Materialize_Preferred) != 0)
	{
		StoreGraph(fcinfo);
		return (Datum) 0;
	}
	if (SRF_IS_FIRSTCALL())
	{
		MemoryContext old;
		TupleDesc	tupdesc;

		call = SRF_FIRSTCALL_INIT();
		old = MemoryContextSwitchTo(call->multi_call_memory_ctx);
		if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
			elog(ERROR, "return type must be a row type");
		call->user_fctx = BeginGraph(fcinfo, BlessTupleDesc(tupdesc));
		MemoryContextSwitchTo(old);
	}

	call = SRF_PERCALL_SETUP();
	graph = call->user_fctx;
	if (!NextRow(graph))
		SRF_RETURN_DONE(call);
	/* the caller is through with the row before when it asks for the next one */
	SRF_RETURN_NEXT(call, HeapTupleGetDatum(graph->tuple));
}
