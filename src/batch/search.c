/*
 * search.c
 *		gpugraph_search(): the nearest rows of many queries.
 */
#include "batch/batch.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

typedef struct Queries
{
	Datum	   *values;
	int			count;
} Queries;

static bool
IsFinite(const GgOpclass *opclass, Datum value, uint32 dimensions)
{
	const float *query = GgQueryFromValue(opclass, value, dimensions);
	bool		finite = true;

	for (uint32 i = 0; i < dimensions; i++)
		finite &= isfinite(query[i]) != 0;
	pfree(unconstify(float *, query));
	return finite;
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

/* All queries are looked at before the first search begins. */
static void
ReadQueries(const GgTarget *target, ArrayType *array, Queries *queries)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	Oid			type = ARR_ELEMTYPE(array);
	int16		length;
	bool		by_value;
	char		align;
	bool	   *nulls;

	if (type != target->type)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("queries are of type %s, and index \"%s\" is on a column of type %s",
						format_type_be(type), RelationGetRelationName(target->index),
						format_type_be(target->type)),
				 errhint("Cast the queries to %s[].", format_type_be(target->type))));
	get_typlenbyvalalign(type, &length, &by_value, &align);
	deconstruct_array(array, type, length, by_value, align, &queries->values, &nulls,
					  &queries->count);
	GgReadMeta(target->index, meta);
	for (int i = 0; i < queries->count; i++)
		CheckQuery(target, meta->dimensions, &queries->values[i], nulls[i], i + 1);
	pfree(meta);
}

static void
PutRow(const ReturnSetInfo *result, int query, const GgFoundRow *row)
{
	Datum		values[3];
	bool		nulls[3] = {false, false, false};

	values[0] = Int32GetDatum(query);
	values[1] = PointerGetDatum(&row->ctid);
	values[2] = Float8GetDatum(row->distance);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

PG_FUNCTION_INFO_V1(gpugraph_search);

Datum
gpugraph_search(PG_FUNCTION_ARGS)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(1);
	int32		k = PG_GETARG_INT32(2);
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	GgTarget	target;
	GgFinder	finder;
	Queries		queries;

	InitMaterializedSRF(fcinfo, 0);
	GgCheckK(k);
	GgOpenTarget(PG_GETARG_OID(0), &target);
	ReadQueries(&target, array, &queries);
	GgOpenFinder(&finder, &target, false);
	for (int i = 0; i < queries.count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		GgFind(&finder, queries.values[i], k);
		for (uint64 j = 0; j < finder.nrows; j++)
			PutRow(result, i + 1, &finder.rows[j]);
	}
	GgCloseFinder(&finder);
	GgCloseTarget(&target);
	return (Datum) 0;
}
