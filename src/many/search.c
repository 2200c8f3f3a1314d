/*
 * search.c
 *		gpugraph_search(): the nearest rows of many queries.
 *
 * max_distance has one number for each query, or none at all.  Of the k nearest rows, those that
 * are farther are left out.
 */
#include "many/bulk.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "maintain/merge.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/float.h"
#include "utils/tuplestore.h"

/* Where rows of the result go. */
typedef struct RowStore
{
	Tuplestorestate *store;
	const float8 *most;			/* distance of each query's rows; NULL: any */
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
	/* rows are in ascending order, NaN last */
	while (result->most != NULL && count > 0 &&
		   float8_gt(rows[count - 1].distance, result->most[query - 1]))
		count--;
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
SearchOneByOne(const RowStore *result, const GgQueryArray *queries, int first, int count,
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
SearchBulk(const RowStore *result, const GgQueryArray *queries, GgBulk *bulk, GgFinder *finder,
		   uint64 k)
{
	int			first = 0;

	while (first < queries->count)
	{
		int			count = Min((int) GgMostQueries(bulk), queries->count - first);
		int			answered;

		CHECK_FOR_INTERRUPTS();
		answered = (int) GgFindBulk(bulk, NULL, queries->values + first, count);
		for (int i = 0; i < answered; i++)
		{
			GgFoundRow *rows;
			const uint32 found = GgFoundRows(bulk, i, &rows);

			if (found == GG_BULK_SHORT)
				SearchOneByOne(result, queries, first + i, 1, finder, k);
			else
				PutRows(result, first + i + 1, rows, found);
		}
		first += answered;
		if (answered < count)
			break;
	}
	return first;
}

typedef struct AskedQueries
{
	const GgTarget *target;
	const GgQueryArray *queries;
} AskedQueries;

static const float *
AskedQuery(void *arg, int number)
{
	const AskedQueries *asked = arg;

	return GgQueryFromValue(asked->target->opclass, asked->queries->values[number],
							asked->queries->dimensions);
}

/* Read max_distance: a number for each query, infinity for NULL.  Returns NULL if it has none. */
static const float8 *
ReadMost(ArrayType *array, int queries)
{
	float8	   *most;
	Datum	   *values;
	bool	   *nulls;
	int			count;

	deconstruct_array(array, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &values,
					  &nulls, &count);
	if (count == 0)
		return NULL;
	if (count != queries)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("max_distance has %d elements for %d queries", count, queries),
				 errhint("Give one distance for each query, NULL for those without.")));
	most = palloc(count * sizeof(float8));
	for (int i = 0; i < count; i++)
		most[i] = nulls[i] ? get_float8_infinity() : DatumGetFloat8(values[i]);
	return most;
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
	GgBulk	   *bulk = NULL;
	GgCaller	caller;
	GgQueryArray queries;
	AskedQueries asked = {&target, &queries};

	InitMaterializedSRF(fcinfo, 0);
	OpenRowStore(&result, (ReturnSetInfo *) fcinfo->resultinfo);
	GgCheckK(k);
	GgOpenTarget(PG_GETARG_OID(0), &target);
	GgReadQueryArray(&target, array, &queries);
	result.most = ReadMost(PG_GETARG_ARRAYTYPE_P(3), queries.count);
	GgNoteQueries(target.index, queries.dimensions, queries.count, AskedQuery, &asked);
	GgActAsOwner(target.heap, &caller);
	GgOpenFinder(&finder, &target, false);
	if (queries.count > 1)
		bulk = GgOpenBulk(&finder, k, queries.count, GgMakeCopies(queries.count), &note);
	if (bulk != NULL)
		answered = SearchBulk(&result, &queries, bulk, &finder, k);
	SearchOneByOne(&result, &queries, answered, queries.count - answered, &finder, k);
	GgCloseFinder(&finder);
	GgActAsCaller(&caller);
	GgAddNote(&note, &finder.note);
	GgNoteCall(&note);
	GgCloseTarget(&target);
	return (Datum) 0;
}
