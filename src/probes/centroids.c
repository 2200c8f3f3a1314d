/*
 * centroids.c
 *		Centroids of a table's partitions, and which of them is nearest to a vector.
 *
 * Centroids are what a function without arguments returns, a vector[].  The table's partition key
 * names that function as a constant of type regprocedure.  So the key is short, a dump has the
 * centroids among the definitions, before any row, and PostgreSQL knows that the table depends on
 * the function.  A session calls the function once, and again when its row in pg_proc has changed.
 */
#include "probes/probes.h"

#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/syscache.h"
#include "vector/vector.h"
#include "vector/halfvec.h"

#include "keys.h"

static HTAB *known_centroids = NULL;

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

/* ---- the function ------------------------------------------------------------- */

static void
ForgetCentroids(Datum arg, int cacheid, uint32 hash)
{
	HASH_SEQ_STATUS status;
	GgCentroids *centroids;

	hash_seq_init(&status, known_centroids);
	while ((centroids = hash_seq_search(&status)) != NULL)
		if (hash == 0 || centroids->hash == hash)
			centroids->valid = false;
}

static void
MakeTable(void)
{
	HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(GgCentroids)};

	known_centroids = hash_create("gpugraph centroids", 16, &control, HASH_ELEM | HASH_BLOBS);
	CacheRegisterSyscacheCallback(PROCOID, ForgetCentroids, (Datum) 0);
}

static bool
IsVectorType(Oid type)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	bool		is_vector;

	if (!HeapTupleIsValid(tuple))
		return false;
	is_vector = strcmp(NameStr(((Form_pg_type) GETSTRUCT(tuple))->typname), "vector") == 0;
	ReleaseSysCache(tuple);
	return is_vector;
}

pg_noreturn static void
RefuseFunction(Oid function)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("function %s does not return centroids", format_procedure(function)),
			 errhint("Centroids are the vector[] that an immutable function without arguments "
					 "returns.")));
}

/* The function has the form of one that returns centroids, and *hash is its row's. */
static void
CheckFunction(Oid function, uint32 *hash)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool		fits;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function with OID %u does not exist", function)));
	form = (Form_pg_proc) GETSTRUCT(tuple);
	fits = form->prokind == PROKIND_FUNCTION && form->pronargs == 0 && !form->proretset &&
		form->provolatile == PROVOLATILE_IMMUTABLE &&
		IsVectorType(get_element_type(form->prorettype));
	ReleaseSysCache(tuple);
	if (!fits)
		RefuseFunction(function);
	*hash = GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(function));
}

/*
 * Copy what the function has returned.  A type of that name may be anything, so all is checked
 * before.
 */
static void
ReadCentroids(ArrayType *array, GgCentroids *centroids)
{
	Datum	   *elements;
	bool	   *nulls;
	int			count;
	int			dim = 0;

	deconstruct_array(array, ARR_ELEMTYPE(array), -1, false, TYPALIGN_INT, &elements, &nulls,
					  &count);
	if (ARR_NDIM(array) != 1 || count > GG_MAX_CENTROIDS)
		RefuseFunction(centroids->function);
	for (int i = 0; i < count; i++)
	{
		Vector	   *vector;

		if (nulls[i])
			RefuseFunction(centroids->function);
		vector = (Vector *) PG_DETOAST_DATUM(elements[i]);
		if (VARSIZE(vector) < offsetof(Vector, x) || vector->dim < 1 ||
			VARSIZE(vector) != VECTOR_SIZE(vector->dim) || (i > 0 && vector->dim != dim))
			RefuseFunction(centroids->function);
		dim = vector->dim;
		elements[i] = PointerGetDatum(vector);
	}
	centroids->count = (uint32) count;
	centroids->dim = (uint32) dim;
	centroids->values = MemoryContextAllocHuge(TopMemoryContext,
											   (Size) count * dim * sizeof(float));
	for (int i = 0; i < count; i++)
		memcpy(centroids->values + (Size) i * dim, ((Vector *) DatumGetPointer(elements[i]))->x,
			   dim * sizeof(float));
}

static void
CallFunction(GgCentroids *centroids)
{
	static uint64 loads = 0;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph centroids",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	FmgrInfo	finfo;
	LOCAL_FCINFO(fcinfo, 0);
	Datum		array;

	if (centroids->values != NULL)
		pfree(centroids->values);
	centroids->values = NULL;
	CheckFunction(centroids->function, &centroids->hash);
	/* a change of the function from here on is noticed */
	centroids->valid = true;
	fmgr_info(centroids->function, &finfo);
	InitFunctionCallInfoData(*fcinfo, &finfo, 0, InvalidOid, NULL, NULL);
	array = FunctionCallInvoke(fcinfo);
	if (fcinfo->isnull)
		RefuseFunction(centroids->function);
	ReadCentroids(DatumGetArrayTypeP(array), centroids);
	centroids->load = ++loads;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

const GgCentroids *
GgFindCentroids(Oid function)
{
	GgCentroids *centroids;
	bool		usable;
	bool		found;

	if (known_centroids == NULL)
		MakeTable();
	centroids = hash_search(known_centroids, &function, HASH_ENTER, &found);
	if (!found)
	{
		centroids->valid = false;
		centroids->values = NULL;
		centroids->user = InvalidOid;
	}
	usable = centroids->valid && centroids->values != NULL;
	if (usable && centroids->user == GetUserId())
		return centroids;
	if (!GgMayExecute(function, GetUserId()))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, get_func_name(function));
	centroids->user = GetUserId();
	if (!usable)
		CallFunction(centroids);
	return centroids;
}

/* ---- the nearest ----------------------------------------------------------------- */

static void
CheckDimensions(const GgCentroids *centroids, uint32 dim)
{
	if (dim != centroids->dim)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("different vector dimensions %u and %u", dim, centroids->dim),
				 errdetail("The centroids of %s have %u.", format_procedure(centroids->function),
						   centroids->dim)));
}

/* A row without a vector lies in the first partition. */
static Datum
NearestCentroid(FunctionCallInfo fcinfo, bool is_half)
{
	const GgCentroids *centroids;
	float	   *values;
	uint32		dim;
	uint32		nearest;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	if (PG_ARGISNULL(1))
		PG_RETURN_INT32(1);
	centroids = GgFindCentroids(PG_GETARG_OID(0));
	values = GgVectorValues(PG_GETARG_DATUM(1), is_half, &dim);
	CheckDimensions(centroids, dim);
	nearest = gg_nearest_centroid(centroids->values, centroids->count, dim, values, NULL);
	pfree(values);
	PG_RETURN_INT32((int32) nearest + 1);
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

/* ---- all of them by distance -------------------------------------------------------- */

/* The order of centroids for the query that was last asked for: a plan asks for one place each. */
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

/* The centroid at a place, from 1 on, in the order of distance to a query; NULL beyond the last. */
static Datum
Probe(FunctionCallInfo fcinfo, bool is_half)
{
	const GgCentroids *centroids;
	int32		place;
	gg_metric	metric;
	float	   *query;
	uint32		dim;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(3))
		PG_RETURN_NULL();
	place = PG_GETARG_INT32(3);
	centroids = GgFindCentroids(PG_GETARG_OID(0));
	if (place < 1 || place > (int32) centroids->count)
		PG_RETURN_NULL();
	/* the order of no query is as good as any other */
	if (PG_ARGISNULL(2))
		PG_RETURN_INT32(place);
	metric = MetricOfOperator(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	query = GgVectorValues(PG_GETARG_DATUM(2), is_half, &dim);
	CheckDimensions(centroids, dim);
	/* of those of one load, all have the same dimensions */
	if (last_order.load != centroids->load || last_order.metric != metric ||
		memcmp(last_order.query, query, dim * sizeof(float)) != 0)
		SortCentroids(centroids, metric, query);
	pfree(query);
	PG_RETURN_INT32((int32) key_node(last_order.keys[place - 1]) + 1);
}

PG_FUNCTION_INFO_V1(gpugraph_probe);

Datum
gpugraph_probe(PG_FUNCTION_ARGS)
{
	return Probe(fcinfo, false);
}

PG_FUNCTION_INFO_V1(gpugraph_probe_of_halfvec);

Datum
gpugraph_probe_of_halfvec(PG_FUNCTION_ARGS)
{
	return Probe(fcinfo, true);
}

/* ---- whose function -------------------------------------------------------------------- */

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
GgIsProbe(Oid function)
{
	return IsFunction(function, gpugraph_probe, gpugraph_probe_of_halfvec);
}
