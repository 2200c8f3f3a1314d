/*
 * nearest.c
 *		The SQL functions of partitions by centroid: which centroid is nearest to a vector.
 *
 * gpugraph_nearest_centroid() and gpugraph_probe() are for users, with whose rights they call the
 * centroids' function.  Plans call gpugraph_planned_nearest() and gpugraph_planned_probe(), which
 * call it with the rights of the table's owner.  Their last argument is internal, so no statement
 * can call them.
 */
#include "many/probes.h"

#include "catalog/pg_proc.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"
#include "vector/vector.h"
#include "vector/halfvec.h"

#include "engine/keys.h"

/* ---- values ---------------------------------------------------------------- */

float *
GgVectorValues(Datum value, bool is_half, uint32 *dim)
{
	struct varlena *detoasted = PG_DETOAST_DATUM(value);
	float	   *values;

	*dim = is_half ? ((HalfVector *) detoasted)->dim : ((Vector *) detoasted)->dim;
	values = palloc(*dim * sizeof(float));
	if (is_half)
		gg_halves_to_floats((const uint16 *) ((HalfVector *) detoasted)->x, values, *dim);
	else
		memcpy(values, ((Vector *) detoasted)->x, *dim * sizeof(float));
	return values;
}

/* The centroids that `function` returns, of type vector of the called function's extension. */
static const GgCentroids *
CentroidsFor(FunctionCallInfo fcinfo, Oid function, Oid table)
{
	return GgFindCentroids(function, GgFindOwn(fcinfo->flinfo->fn_oid)->types[0], table);
}

/* Is that argument, whose type is "any", a halfvec? */
static bool
IsHalf(FunctionCallInfo fcinfo, int argument)
{
	return get_fn_expr_argtype(fcinfo->flinfo, argument) ==
		GgFindOwn(fcinfo->flinfo->fn_oid)->types[1];
}

/* ---- the nearest ----------------------------------------------------------------- */

static void
CheckDimensions(const GgCentroids *centroids, uint32 dim)
{
	if (dim != centroids->dim)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("different vector dimensions %u and %u", dim, centroids->dim),
				 errdetail("The centroids of %s have %u.",
						   format_procedure(centroids->key.function), centroids->dim)));
}

/* The nearest centroid's number, from 1.  Callers put a row without a vector into partition 1. */
static Datum
Nearest(const GgCentroids *centroids, Datum value, bool is_half)
{
	uint32		dim;
	float	   *values = GgVectorValues(value, is_half, &dim);
	uint32		nearest;

	CheckDimensions(centroids, dim);
	nearest = gg_nearest_centroid(centroids->values, centroids->count, dim, values, NULL);
	pfree(values);
	PG_RETURN_INT32((int32) nearest + 1);
}

static Datum
NearestCentroid(FunctionCallInfo fcinfo, bool is_half)
{
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	if (PG_ARGISNULL(1))
		PG_RETURN_INT32(1);
	return Nearest(CentroidsFor(fcinfo, PG_GETARG_OID(0), InvalidOid), PG_GETARG_DATUM(1), is_half);
}

PG_FUNCTION_INFO_V1(gpugraph_nearest_centroid);

Datum
gpugraph_nearest_centroid(PG_FUNCTION_ARGS)
{
	return NearestCentroid(fcinfo, false);
}

PG_FUNCTION_INFO_V1(gpugraph_nearest_centroid_of_halfvec);

Datum
gpugraph_nearest_centroid_of_halfvec(PG_FUNCTION_ARGS)
{
	return NearestCentroid(fcinfo, true);
}

PG_FUNCTION_INFO_V1(gpugraph_planned_nearest);

/* Arguments: table, function, value, internal. */
Datum
gpugraph_planned_nearest(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(2))
		PG_RETURN_INT32(1);
	return Nearest(CentroidsFor(fcinfo, PG_GETARG_OID(1), PG_GETARG_OID(0)), PG_GETARG_DATUM(2),
				   IsHalf(fcinfo, 2));
}

/* ---- all of them by distance -------------------------------------------------------- */

/* The order of centroids for the last query: a plan asks for one place of it with each call. */
typedef struct ProbeOrder
{
	uint64		load;			/* of the centroids; 0: none */
	gg_metric	metric;
	float	   *query;
	uint64	   *keys;
} ProbeOrder;

static ProbeOrder last_order = {0};

/* By an operator's name. */
static gg_metric
MetricOfOperator(const char *name)
{
	static const struct
	{
		const char *name;
		gg_metric	metric;
	}			operators[] = {
		{"<->", GG_METRIC_L2}, {"<#>", GG_METRIC_IP}, {"<=>", GG_METRIC_COSINE},
		{"<+>", GG_METRIC_L1}
	};

	for (int i = 0; i < lengthof(operators); i++)
		if (strcmp(operators[i].name, name) == 0)
			return operators[i].metric;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("operator \"%s\" is no distance", name),
			 errhint("Distances are <->, <#>, <=> and <+>.")));
}

static void
SortCentroids(const GgCentroids *centroids, gg_metric metric, const float *query)
{
	const uint32 dim = centroids->dim;
	const gg_distance_fn measure = gg_distance_function(metric, GG_ELEMENT_F32);
	float	   *prepared = palloc(dim * sizeof(float));

	last_order.load = 0;
	if (last_order.query != NULL)
		pfree(last_order.query);
	last_order.query = NULL;
	if (last_order.keys != NULL)
		pfree(last_order.keys);
	last_order.keys = NULL;
	last_order.query = MemoryContextAlloc(TopMemoryContext, dim * sizeof(float));
	last_order.keys = MemoryContextAlloc(TopMemoryContext, centroids->count * sizeof(uint64));
	memcpy(last_order.query, query, dim * sizeof(float));
	memcpy(prepared, query, dim * sizeof(float));
	gg_query_prepare(metric, prepared, dim);
	for (uint32 i = 0; i < centroids->count; i++)
		heap_push(last_order.keys, i,
				  key_of(measure(centroids->values + (Size) i * dim, prepared, dim), i));
	heap_sort(last_order.keys, centroids->count);
	pfree(prepared);
	last_order.metric = metric;
	last_order.load = centroids->load;
}

/* The centroid at a place, 1 .. count, in the order of distance to a query, which is freed. */
static Datum
Probe(const GgCentroids *centroids, gg_metric metric, float *query, uint32 dim, int32 place)
{
	CheckDimensions(centroids, dim);
	/* centroids of one load have the same dimensions, and so has last_order.query */
	if (last_order.load != centroids->load || last_order.metric != metric ||
		memcmp(last_order.query, query, dim * sizeof(float)) != 0)
		SortCentroids(centroids, metric, query);
	pfree(query);
	return Int32GetDatum((int32) key_node(last_order.keys[place - 1]) + 1);
}

static Datum
ProbeOfUser(FunctionCallInfo fcinfo, bool is_half)
{
	const GgCentroids *centroids;
	int32		place;
	float	   *query;
	uint32		dim;
	gg_metric	metric;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(3))
		PG_RETURN_NULL();
	place = PG_GETARG_INT32(3);
	centroids = CentroidsFor(fcinfo, PG_GETARG_OID(0), InvalidOid);
	if (place < 1 || place > (int32) centroids->count)
		PG_RETURN_NULL();
	/* without a query any order is as good as another */
	if (PG_ARGISNULL(2))
		PG_RETURN_INT32(place);
	metric = MetricOfOperator(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	query = GgVectorValues(PG_GETARG_DATUM(2), is_half, &dim);
	return Probe(centroids, metric, query, dim, place);
}

PG_FUNCTION_INFO_V1(gpugraph_probe);

Datum
gpugraph_probe(PG_FUNCTION_ARGS)
{
	return ProbeOfUser(fcinfo, false);
}

PG_FUNCTION_INFO_V1(gpugraph_probe_of_halfvec);

Datum
gpugraph_probe_of_halfvec(PG_FUNCTION_ARGS)
{
	return ProbeOfUser(fcinfo, true);
}

PG_FUNCTION_INFO_V1(gpugraph_planned_probe);

/* Arguments: table, function, metric, query, place, internal. */
Datum
gpugraph_planned_probe(PG_FUNCTION_ARGS)
{
	const GgCentroids *centroids;
	float	   *query;
	uint32		dim;

	if (PG_ARGISNULL(4))
		PG_RETURN_NULL();
	if (PG_ARGISNULL(3))
		PG_RETURN_INT32(PG_GETARG_INT32(4));
	centroids = CentroidsFor(fcinfo, PG_GETARG_OID(1), PG_GETARG_OID(0));
	if (PG_GETARG_INT32(4) > (int32) centroids->count)
		PG_RETURN_NULL();
	query = GgVectorValues(PG_GETARG_DATUM(3), IsHalf(fcinfo, 3), &dim);
	return Probe(centroids, (gg_metric) PG_GETARG_INT32(2), query, dim, PG_GETARG_INT32(4));
}

/* ---- which function is which ------------------------------------------------------------ */

static GgOwn own;
static bool own_known = false;
static uint32 own_hash;			/* of a function's row in pg_proc */

/* The extension's functions come and go together, so the row of one tells of all. */
static void
ForgetOwn(Datum arg, int cacheid, uint32 hash)
{
	if (hash == 0 || hash == own_hash)
		own_known = false;
}

/* The type of a function's second argument. */
static Oid
ValueType(Oid function)
{
	Oid		   *types;
	int			count;

	if (!OidIsValid(function))
		return InvalidOid;
	(void) get_func_signature(function, &types, &count);
	return types[1];
}

const GgOwn *
GgFindOwn(Oid function)
{
	static bool registered = false;
	const PGFunction functions[] = {
		gpugraph_nearest_centroid, gpugraph_nearest_centroid_of_halfvec, gpugraph_planned_nearest,
		gpugraph_planned_probe
	};
	Oid			found[lengthof(functions)];

	if (own_known)
		return &own;
	if (!registered)
		CacheRegisterSyscacheCallback(PROCOID, ForgetOwn, (Datum) 0);
	registered = true;
	GgFindMembers(function, functions, lengthof(functions), found, &own.am);
	own.nearest[0] = found[0];
	own.nearest[1] = found[1];
	own.planned_nearest = found[2];
	own.planned_probe = found[3];
	own.types[0] = ValueType(found[0]);
	own.types[1] = ValueType(found[1]);
	own_hash = GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(found[0]));
	own_known = OidIsValid(found[0]);
	return &own;
}

static bool
IsFunction(Oid function, PGFunction one, PGFunction other)
{
	FmgrInfo	finfo;

	fmgr_info(function, &finfo);
	return finfo.fn_addr == one || finfo.fn_addr == other;
}

bool
GgIsNearestCentroid(Oid function)
{
	return IsFunction(function, gpugraph_nearest_centroid, gpugraph_nearest_centroid_of_halfvec);
}

bool
GgIsPlannedProbe(Oid function)
{
	return IsFunction(function, gpugraph_planned_probe, gpugraph_planned_probe);
}
