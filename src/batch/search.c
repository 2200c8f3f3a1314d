/*
 * search.c
 *		gpugraph_search(): the nearest rows of many queries.
 */
#include "batch/bulk.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/arrayaccess.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "vector/vector.h"
#include "vector/halfvec.h"

typedef struct Queries
{
	Datum	   *values;
	int			count;
} Queries;

static bool
IsFinite(const GgOpclass *opclass, Datum value, uint32 dimensions)
{
	uint32		beyond = 0;

	if (opclass->element == GG_ELEMENT_F16)
	{
		const uint16 *x = (const uint16 *) ((HalfVector *) DatumGetPointer(value))->x;

		for (uint32 i = 0; i < dimensions; i++)
			beyond |= (x[i] & 0x7C00) == 0x7C00;
	}
	else
	{
		const float *x = ((Vector *) DatumGetPointer(value))->x;

		for (uint32 i = 0; i < dimensions; i++)
			beyond |= !isfinite(x[i]);
	}
	return beyond == 0;
}

static void
CheckQuery(const GgTarget *target, uint32 dimensions, Datum *value, bool isnull, int number)
{
	uint32		given;

	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("query %d is NULL", number),
				 errhint("Leave NULL vectors out, for example by array_agg(...) "
						 "FILTER (WHERE embedding IS NOT NULL).")));
	*value = PointerGetDatum(PG_DETOAST_DATUM(*value));
	given = GgValueDimensions(target->opclass, *value);
	if (dimensions != 0 && given != dimensions)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("query %d has %u dimensions, and index \"%s\" has %u", number, given,
						RelationGetRelationName(target->index), dimensions),
				 errhint("Search with vectors of the index's number of dimensions.")));
	if (!IsFinite(target->opclass, *value, given))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("query %d has an element that is NaN or infinite", number),
				 errhint("Search with vectors whose elements are all finite.")));
}

/* All queries are looked at before the first search begins.  They stay where they are. */
static void
ReadQueries(const GgTarget *target, AnyArrayType *array, Queries *queries)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	Oid			type = AARR_ELEMTYPE(array);
	array_iter	next;
	int16		length;
	bool		by_value;
	char		align;

	if (type != target->type)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("queries are of type %s, and index \"%s\" is on a column of type %s",
						format_type_be(type), RelationGetRelationName(target->index),
						format_type_be(target->type)),
				 errhint("Cast the queries to %s[].", format_type_be(target->type))));
	get_typlenbyvalalign(type, &length, &by_value, &align);
	queries->count = ArrayGetNItems(AARR_NDIM(array), AARR_DIMS(array));
	queries->values = palloc(Max(queries->count, 1) * sizeof(Datum));
	GgReadMeta(target->index, meta);
	array_iter_setup(&next, array);
	for (int i = 0; i < queries->count; i++)
	{
		bool		isnull;

		queries->values[i] = array_iter_next(&next, &isnull, i, length, by_value, align);
		CheckQuery(target, meta->dimensions, &queries->values[i], isnull, i + 1);
	}
	pfree(meta);
}

/* Where rows of the result go. */
typedef struct RowStore
{
	Tuplestorestate *store;
	HeapTuple	tuple;
	struct RowData
	{
		int32		query;
		ItemPointerData ctid;
		float8		distance;
	}		   *row;			/* the tuple's */
} RowStore;

static void
OpenRowStore(RowStore *result, const ReturnSetInfo *rsinfo)
{
	void	   *data;

	result->store = rsinfo->setResult;
	result->tuple = GgFormRow(rsinfo->setDesc, sizeof(struct RowData), &data);
	result->row = data;
}

static void
PutRows(const RowStore *result, int query, const GgFoundRow *rows, uint64 count)
{
	result->row->query = query;
	for (uint64 i = 0; i < count; i++)
	{
		result->row->ctid = rows[i].ctid;
		result->row->distance = rows[i].distance;
		tuplestore_puttuple(result->store, result->tuple);
	}
}

/* Queries [first, first + count), one scan after the other. */
static void
SearchOneByOne(const RowStore *result, const Queries *queries, int first, int count,
			   GgFinder *finder, uint64 k)
{
	int			end = first + count;

	for (; first < end; first += GG_QUERIES_TOGETHER)
	{
		int			here = Min(GG_QUERIES_TOGETHER, end - first);

		GgSetQueries(finder, queries->values + first, here, k);
		for (int i = 0; i < here; i++)
		{
			CHECK_FOR_INTERRUPTS();
			GgFindQuery(finder, i, k);
			PutRows(result, first + i + 1, finder->rows, finder->nrows);
		}
	}
}

/*
 * All queries by a device.  Returns how many were answered: fewer than all where the device is
 * lost.
 */
static int
SearchBulk(const RowStore *result, const Queries *queries, GgBulk *bulk, GgFinder *finder,
		   uint64 k)
{
	GgFoundRow *rows = MemoryContextAllocHuge(CurrentMemoryContext,
											  (Size) bulk->most * bulk->k * sizeof(GgFoundRow));
	uint32	   *found = palloc(bulk->most * sizeof(uint32));
	int			first = 0;

	while (first < queries->count)
	{
		int			count = Min((int) bulk->most, queries->count - first);
		int			answered;

		CHECK_FOR_INTERRUPTS();
		bulk->finder = finder;
		bulk->values = queries->values + first;
		answered = (int) GgFindBulk(bulk, GgReadValues, bulk, count, rows, found);
		for (int i = 0; i < answered; i++)
			if (found[i] == GG_BULK_SHORT)
				SearchOneByOne(result, queries, first + i, 1, finder, k);
			else
				PutRows(result, first + i + 1, rows + (Size) i * bulk->k, found[i]);
		first += answered;
		if (answered < count)
			break;
	}
	return first;
}

PG_FUNCTION_INFO_V1(gpugraph_search);

Datum
gpugraph_search(PG_FUNCTION_ARGS)
{
	AnyArrayType *array = PG_GETARG_ANY_ARRAY_P(1);
	int32		k = PG_GETARG_INT32(2);
	int			answered = 0;
	RowStore	result;
	GgScanNote	note = {0};
	GgTarget	target;
	GgFinder	finder;
	GgBulk		bulk;
	GgCaller	caller;
	Queries		queries;

	InitMaterializedSRF(fcinfo, 0);
	OpenRowStore(&result, (ReturnSetInfo *) fcinfo->resultinfo);
	GgCheckK(k);
	GgOpenTarget(PG_GETARG_OID(0), &target);
	ReadQueries(&target, array, &queries);
	GgActAsOwner(target.heap, &caller);
	GgOpenFinder(&finder, &target, false);
	if (queries.count > 1 &&
		GgOpenBulk(&bulk, &target, k, queries.count, GgMakeCopies(queries.count)))
	{
		answered = SearchBulk(&result, &queries, &bulk, &finder, k);
		note = bulk.note;
	}
	SearchOneByOne(&result, &queries, answered, queries.count - answered, &finder, k);
	GgCloseFinder(&finder);
	GgActAsCaller(&caller);
	GgAddNote(&note, &finder.note);
	GgNoteCall(&note);
	GgCloseTarget(&target);
	return (Datum) 0;
}
