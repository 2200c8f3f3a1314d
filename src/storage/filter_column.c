/*
 * filter_column.c
 *		Values of filter columns as words.
 *
 * The words are on disk: what a value is encoded as never changes.
 */
#include "storage/filter_column.h"
#include "storage/type.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

StaticAssertDecl(GG_MAX_COLUMNS * GG_MASK_WORDS <= GG_MAX_FILTER_WORDS,
				 "a row must have room for the words of all columns");

/* ---- types --------------------------------------------------------------- */

/* The type as which values of this type are encoded; invalid where they are not encoded. */
static Oid
EncodedType(Oid type)
{
	type = getBaseType(type);
	switch (type)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case UUIDOID:
		case TEXTOID:
			return type;
		case VARCHAROID:
			return TEXTOID;
		default:
			return type_is_enum(type) ? type : InvalidOid;
	}
}

static Oid
EncodedArrayType(Oid type)
{
	Oid			element = get_base_element_type(type);

	switch (OidIsValid(element) ? EncodedType(element) : InvalidOid)
	{
		case INT2OID:
			return INT2ARRAYOID;
		case INT4OID:
			return INT4ARRAYOID;
		case INT8OID:
			return INT8ARRAYOID;
		case TEXTOID:
			return TEXTARRAYOID;
		default:
			return InvalidOid;
	}
}

bool
GgIsFilterType(Oid type)
{
	return type == ANYENUMOID || type == ANYARRAYOID || OidIsValid(EncodedType(type)) ||
		OidIsValid(EncodedArrayType(type));
}

static GgEncoding
EncodingOf(Oid type)
{
	switch (type)
	{
		case FLOAT4OID:
		case FLOAT8OID:
			return GG_ENCODING_FLOAT;
		case UUIDOID:
			return GG_ENCODING_UUID;
		case TEXTOID:
			return GG_ENCODING_HASH;
		case INT2ARRAYOID:
		case INT4ARRAYOID:
		case INT8ARRAYOID:
		case TEXTARRAYOID:
			return GG_ENCODING_SIGNATURE;
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return GG_ENCODING_INTEGER;
		default:
			return GG_ENCODING_ENUM;
	}
}

void
GgGetFilterColumns(Relation index, GgFilterColumns *columns)
{
	TupleDesc	desc = RelationGetDescr(index);

	memset(columns, 0, sizeof(GgFilterColumns));
	columns->ncolumns = IndexRelationGetNumberOfKeyAttributes(index) - 1;
	if (columns->ncolumns > GG_MAX_COLUMNS)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("cannot have more than %d filter columns in a gpugraph index",
						GG_MAX_COLUMNS),
				 errdetail("Index \"%s\" has %d columns behind the vector.",
						   RelationGetRelationName(index), columns->ncolumns),
				 errhint("Leave out those that queries filter by least.")));
	for (int i = 0; i < columns->ncolumns; i++)
	{
		GgFilterColumn *column = &columns->columns[i];
		Oid			declared = TupleDescAttr(desc, i + 1)->atttypid;
		Oid			accepted = index->rd_opcintype[i + 1];

		if (OidIsValid(index_getprocid(index, i + 2, GG_OPCLASS_PROC)))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("column %d of gpugraph index \"%s\" is a vector",
							i + 2, RelationGetRelationName(index)),
					 errhint("A gpugraph index has one vector, which is its first column.  Make "
							 "another index for another vector.")));
		/* the operator class names the type, unless it is for enums or arrays */
		column->type = accepted == ANYARRAYOID || accepted == ANYENUMOID ? declared : accepted;
		if (OidIsValid(EncodedArrayType(column->type)))
			column->type = EncodedArrayType(column->type);
		else
			column->type = EncodedType(column->type);
		if (!OidIsValid(column->type))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("column %d of gpugraph index \"%s\" cannot be a filter column",
							i + 2, RelationGetRelationName(index)),
					 errdetail("Its type is %s.", format_type_be(declared)),
					 errhint("Filter columns of gpugraph have the types boolean, smallint, "
							 "integer, bigint, real, double precision, date, timestamp, "
							 "timestamptz, uuid, text, varchar, an enum, or an array of integers "
							 "or texts.")));
		column->collation = index->rd_indcollation[i + 1];
		column->encoding = (uint16) EncodingOf(column->type);
		column->first_word = (uint16) columns->nwords;
		column->nwords = column->encoding == GG_ENCODING_SIGNATURE ? GG_MASK_WORDS : 1;
		columns->nwords += column->nwords;
	}
}

/* ---- values -------------------------------------------------------------- */

/* NaN is the greatest and equals itself, and -0 equals 0, as PostgreSQL has them. */
static int64
EncodeFloat(double value)
{
	int64		bits;

	if (isnan(value))
		return PG_INT64_MAX;
	if (value == 0)
		return 0;
	memcpy(&bits, &value, sizeof(bits));
	return bits < 0 ? bits ^ PG_INT64_MAX : bits;
}

static int64
EncodeUuid(const pg_uuid_t *uuid)
{
	uint64		word = 0;

	for (int i = 0; i < 8; i++)
		word = word << 8 | uuid->data[i];
	return (int64) (word ^ (uint64) 1 << 63);
}

/* Under a nondeterministic collation equal texts may have different bytes; this hash knows. */
static uint64
HashText(Oid collation, Datum value)
{
	return DatumGetUInt64(DirectFunctionCall2Coll(hashtextextended, collation, value,
												  Int64GetDatum(0)));
}

int64
GgEncodeScalar(Oid type, Oid collation, Datum value)
{
	switch (type)
	{
		case BOOLOID:
			return DatumGetBool(value);
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		case INT8OID:
			return DatumGetInt64(value);
		case DATEOID:
			return DatumGetDateADT(value);
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return DatumGetTimestamp(value);
		case FLOAT4OID:
			return EncodeFloat(DatumGetFloat4(value));
		case FLOAT8OID:
			return EncodeFloat(DatumGetFloat8(value));
		case UUIDOID:
			return EncodeUuid(DatumGetUUIDP(value));
		case TEXTOID:
			return (int64) HashText(collation, value);
		default:
			return DatumGetObjectId(value);
	}
}

/* ---- arrays -------------------------------------------------------------- */

void
GgArrayElements(Oid type, Datum array, Datum **elements, bool **isnull, int *count)
{
	ArrayType  *detoasted = DatumGetArrayTypeP(array);
	int			length = -1;
	bool		byval = true;
	char		align = TYPALIGN_INT;

	/* the element type that the array itself names may be a domain */
	switch (type)
	{
		case INT2ARRAYOID:
			length = sizeof(int16);
			align = TYPALIGN_SHORT;
			break;
		case INT4ARRAYOID:
			length = sizeof(int32);
			break;
		case INT8ARRAYOID:
			length = sizeof(int64);
			byval = FLOAT8PASSBYVAL;
			align = TYPALIGN_DOUBLE;
			break;
		default:
			byval = false;
			break;
	}
	deconstruct_array(detoasted, ARR_ELEMTYPE(detoasted), length, byval, align, elements, isnull,
					  count);
}

/* A hash of 64 bits whose every bit depends on every bit of the value: splitmix64's last steps. */
static uint64
Mix(uint64 x)
{
	x = (x ^ x >> 30) * UINT64CONST(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64CONST(0x94d049bb133111eb);
	return x ^ x >> 31;
}

void
GgEncodeElement(Oid type, Oid collation, Datum element, int64 *words)
{
	uint64		hash;

	switch (type)
	{
		case INT2ARRAYOID:
			hash = Mix((uint64) DatumGetInt16(element));
			break;
		case INT4ARRAYOID:
			hash = Mix((uint64) DatumGetInt32(element));
			break;
		case INT8ARRAYOID:
			hash = Mix((uint64) DatumGetInt64(element));
			break;
		default:
			hash = HashText(collation, element);
			break;
	}
	for (int i = 0; i < 2; i++)
	{
		uint32		bit = hash >> (8 * i) & (GG_MASK_WORDS * 64 - 1);

		words[bit / 64] = (int64) ((uint64) words[bit / 64] | (uint64) 1 << (bit % 64));
	}
}

/* ---- rows ---------------------------------------------------------------- */

uint16
GgEncodeFilters(const GgFilterColumns *columns, const Datum *values, const bool *isnull,
				int64 *words)
{
	uint16		nulls = 0;

	memset(words, 0, columns->nwords * sizeof(int64));
	for (int c = 0; c < columns->ncolumns; c++)
	{
		const GgFilterColumn *column = &columns->columns[c];
		int64	   *first = words + column->first_word;

		if (isnull[c])
			nulls |= (uint16) (1 << c);
		else if (column->encoding == GG_ENCODING_SIGNATURE)
		{
			Datum	   *elements;
			bool	   *missing;
			int			count;

			GgArrayElements(column->type, values[c], &elements, &missing, &count);
			for (int i = 0; i < count; i++)
				if (!missing[i])
					GgEncodeElement(column->type, column->collation, elements[i], first);
		}
		else
			first[0] = GgEncodeScalar(column->type, column->collation, values[c]);
	}
	return nulls;
}
