/*
 * query_array.c
 *		Arrays of vectors that functions take, checked.
 */
#include "many/batch.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "utils/arrayaccess.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "vector/vector.h"
#include "vector/halfvec.h"

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

void
GgReadQueryArray(const GgTarget *target, AnyArrayType *array, GgQueryArray *queries)
{
	GgMetaPageData *meta = GgReadDirectory(target->index);
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
	queries->dimensions = meta->dimensions;
	GgSetUpArray(&next, array, length, by_value, align);
	for (int i = 0; i < queries->count; i++)
	{
		bool		isnull;

		queries->values[i] = GgNextOfArray(&next, &isnull, i, length, by_value, align);
		CheckQuery(target, queries->dimensions, &queries->values[i], isnull, i + 1);
	}
	pfree(meta);
}
