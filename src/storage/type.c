/*
 * type.c
 *		The column types: pgvector's vector and halfvec as engine rows and queries.
 *
 * Support function 1 of an operator class says metric and element type.  It is a C function, rather
 * than a catalog look-up of operator names, because pgvector may be installed in any schema.
 */
#include "storage/type.h"

#include <float.h>
#include <math.h>

#include "vector/vector.h"
#include "vector/halfvec.h"

#define DEFINE_OPCLASS(name, metric_, element_) \
	PG_FUNCTION_INFO_V1(gpugraph_##name##_support); \
	Datum \
	gpugraph_##name##_support(PG_FUNCTION_ARGS) \
	{ \
		static const GgOpclass opclass = {metric_, element_}; \
		PG_RETURN_POINTER(&opclass); \
	} \
	extern int	gg_no_such_variable

DEFINE_OPCLASS(vector_l2, GG_METRIC_L2, GG_ELEMENT_F32);
DEFINE_OPCLASS(vector_ip, GG_METRIC_IP, GG_ELEMENT_F32);
DEFINE_OPCLASS(vector_cosine, GG_METRIC_COSINE, GG_ELEMENT_F32);
DEFINE_OPCLASS(vector_l1, GG_METRIC_L1, GG_ELEMENT_F32);
DEFINE_OPCLASS(halfvec_l2, GG_METRIC_L2, GG_ELEMENT_F16);
DEFINE_OPCLASS(halfvec_ip, GG_METRIC_IP, GG_ELEMENT_F16);
DEFINE_OPCLASS(halfvec_cosine, GG_METRIC_COSINE, GG_ELEMENT_F16);
DEFINE_OPCLASS(halfvec_l1, GG_METRIC_L1, GG_ELEMENT_F16);

const GgOpclass *
GgIndexOpclass(Relation index)
{
	FmgrInfo   *proc;

	if (!OidIsValid(index_getprocid(index, 1, GG_OPCLASS_PROC)))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the first column of gpugraph index \"%s\" is not a vector",
						RelationGetRelationName(index)),
				 errhint("Put the vector first, and the columns that queries filter by behind "
						 "it: USING gpugraph (embedding vector_l2_ops, category).")));
	proc = index_getprocinfo(index, 1, GG_OPCLASS_PROC);
	return (const GgOpclass *) DatumGetPointer(FunctionCall1(proc, PointerGetDatum(NULL)));
}

/* pgvector's type modifier is the number of dimensions itself */
uint32
GgDeclaredDimensions(Relation index)
{
	int32		typmod = TupleDescAttr(RelationGetDescr(index), 0)->atttypmod;

	return typmod > 0 ? (uint32) typmod : 0;
}

/* vector and halfvec have the same head */
uint32
GgValueDimensions(const GgOpclass *opclass, Datum detoasted)
{
	if (opclass->element == GG_ELEMENT_F16)
		return (uint32) ((HalfVector *) DatumGetPointer(detoasted))->dim;
	return (uint32) ((Vector *) DatumGetPointer(detoasted))->dim;
}

gg_element
GgStoredElement(const GgOpclass *opclass, const GgOptions *options)
{
	if (opclass->element == GG_ELEMENT_F16)
	{
		if (options->storage == GG_STORAGE_FLOAT32)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("storage \"float32\" does not fit a column of type halfvec"),
					 errhint("Leave the option out: halfvec is stored as it is.")));
		return GG_ELEMENT_F16;
	}
	return options->storage == GG_STORAGE_FLOAT16 ? GG_ELEMENT_F16 : GG_ELEMENT_F32;
}

const char *
GgStorageName(const GgMetaPageData *meta)
{
	if (meta->coded != GG_CODES_NONE)
		return GgCodesName(meta->coded);
	return meta->element == GG_ELEMENT_F16 ? "float16" : "float32";
}

static void
ReportNotFinite(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_EXCEPTION),
			 errmsg("NaN or infinite value in vector"),
			 errhint("gpugraph indexes only vectors whose elements are all finite.")));
}

static void
ReportTooLarge(float value)
{
	ereport(ERROR,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 errmsg("value %g is out of range for storage \"float16\"", value),
			 errdetail("Elements must be below 65520 in absolute value."),
			 errhint("Build the index with storage = 'float32'.")));
}

/*
 * CREATE INDEX reads a row of 768 elements in some 5 us, and these loops over all elements must not
 * take as long.  So they go by blocks, which compilers put into vector registers, with one sum for
 * each place in the block.
 */
#define BLOCK		8

static bool
AllFinite(const float *x, uint32 n)
{
	uint32		any[BLOCK] = {0};
	uint32		i = 0;

	for (; i + BLOCK <= n; i += BLOCK)
	{
		uint32		bits[BLOCK];

		memcpy(bits, x + i, sizeof(bits));
		for (int j = 0; j < BLOCK; j++)
			any[j] |= (bits[j] & 0x7F800000) == 0x7F800000;
	}
	for (int j = 1; j < BLOCK; j++)
		any[0] |= any[j];
	for (; i < n; i++)
		any[0] |= !isfinite(x[i]);
	return any[0] == 0;
}

static double
SquaredLength(const float *x, uint32 n)
{
	double		sum[BLOCK] = {0};
	uint32		i = 0;

	for (; i + BLOCK <= n; i += BLOCK)
		for (int j = 0; j < BLOCK; j++)
			sum[j] += (double) x[i + j] * x[i + j];
	for (int j = 1; j < BLOCK; j++)
		sum[0] += sum[j];
	for (; i < n; i++)
		sum[0] += (double) x[i] * x[i];
	return sum[0];
}

static void
Scale(const float *restrict x, uint32 n, double factor, float *restrict out)
{
	uint32		i = 0;

	for (; i + BLOCK <= n; i += BLOCK)
		for (int j = 0; j < BLOCK; j++)
			out[i + j] = (float) (x[i + j] * factor);
	for (; i < n; i++)
		out[i] = (float) (x[i] * factor);
}

/*
 * Round a vector to halves.  Under cosine it is first scaled by a power of two to a length in
 * [1, 2).  That changes no angle and loses no bit.  Without it short vectors would vanish and long
 * ones overflow.
 */
static bool
VectorToHalves(gg_metric metric, const float *x, uint32 dimensions, uint16 *out)
{
	float		scale = 1.0f;

	if (metric == GG_METRIC_COSINE)
	{
		double		length = SquaredLength(x, dimensions);
		int			exponent;

		if (length == 0.0)
			return false;
		length = sqrt(length);
		if (length < 1 / GG_MAX_COSINE_LENGTH || length > GG_MAX_COSINE_LENGTH)
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("length %g of a vector is out of range for storage \"float16\" "
							"under cosine distance", length),
					 errdetail("Lengths may be from %g to %g.",
							   1 / GG_MAX_COSINE_LENGTH, GG_MAX_COSINE_LENGTH),
					 errhint("Build the index with storage = 'float32'.")));
		(void) frexp(length, &exponent);
		scale = (float) ldexp(1.0, 1 - exponent);
	}
	for (uint32 i = 0; i < dimensions; i++)
	{
		out[i] = gg_float_to_half(x[i] * scale);
		if ((out[i] & 0x7FFF) == 0x7C00)
			ReportTooLarge(x[i]);
	}
	return true;
}

bool
GgValueToRow(const GgOpclass *opclass, gg_element stored, Datum detoasted, uint32 dimensions,
			 void *dst)
{
	if (opclass->element == GG_ELEMENT_F16)
	{
		const uint16 *x = (const uint16 *) ((HalfVector *) DatumGetPointer(detoasted))->x;
		uint16		any = 0;

		for (uint32 i = 0; i < dimensions; i++)
		{
			if ((x[i] & 0x7C00) == 0x7C00)
				ReportNotFinite();
			any |= x[i] & 0x7FFF;
		}
		if (opclass->metric == GG_METRIC_COSINE && any == 0)
			return false;
		memcpy(dst, x, dimensions * sizeof(uint16));
	}
	else
	{
		const float *x = ((Vector *) DatumGetPointer(detoasted))->x;
		float	   *out = dst;

		if (!AllFinite(x, dimensions))
			ReportNotFinite();
		if (stored == GG_ELEMENT_F16)
			return VectorToHalves(opclass->metric, x, dimensions, dst);
		if (opclass->metric == GG_METRIC_COSINE)
		{
			double		square = SquaredLength(x, dimensions);

			if (square == 0.0)
				return false;
			Scale(x, dimensions, 1.0 / sqrt(square), out);
		}
		else
			memcpy(out, x, dimensions * sizeof(float));
	}
	return true;
}

float
GgRowLength(const GgOpclass *opclass, const GgMetaPageData *meta, const void *row)
{
	float		piece[256];
	double		square = 0.0;

	if (opclass->metric != GG_METRIC_IP)
		return 0.0f;
	for (uint32 i = 0; i < meta->dimensions; i += lengthof(piece))
	{
		uint32		count = Min(lengthof(piece), meta->dimensions - i);

		if (meta->element == GG_ELEMENT_F16)
			gg_halves_to_floats((const uint16_t *) row + i, piece, count);
		else
			memcpy(piece, (const float *) row + i, count * sizeof(float));
		for (uint32 k = 0; k < count; k++)
			square += (double) piece[k] * piece[k];
	}
	return (float) Max(sqrt(square), FLT_MIN);
}

float *
GgQueryFromValue(const GgOpclass *opclass, Datum value, uint32 dimensions)
{
	Datum		detoasted = PointerGetDatum(PG_DETOAST_DATUM(value));
	uint32		given = GgValueDimensions(opclass, detoasted);
	float	   *query;

	if (dimensions != 0 && given != dimensions)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("different vector dimensions %u and %u", dimensions, given)));
	query = palloc(given * sizeof(float));
	if (opclass->element == GG_ELEMENT_F16)
		gg_halves_to_floats((const uint16_t *) ((HalfVector *) DatumGetPointer(detoasted))->x,
							query, given);
	else
		memcpy(query, ((Vector *) DatumGetPointer(detoasted))->x, given * sizeof(float));
	gg_query_prepare(opclass->metric, query, given);
	return query;
}

StaticAssertDecl(offsetof(Vector, x) == offsetof(HalfVector, x) &&
				 offsetof(Vector, dim) == offsetof(HalfVector, dim), "they begin alike");

Datum
GgValueOfQuery(const GgOpclass *opclass, const float *query, uint32 dimensions)
{
	const Size	bytes = offsetof(Vector, x) + dimensions * gg_element_size(opclass->element);
	Vector	   *value = palloc0(bytes);

	SET_VARSIZE(value, bytes);
	value->dim = (int16) dimensions;
	if (opclass->element == GG_ELEMENT_F16)
		gg_floats_to_halves(query, (uint16_t *) value->x, dimensions);
	else
		memcpy(value->x, query, dimensions * sizeof(float));
	return PointerGetDatum(value);
}
