/*
 * centroids.c
 *		Centroids of a table's partitions, as a function returns them.
 *
 * Centroids are what a function without arguments returns, a vector[].  The table's partition key
 * names that function as a constant of type regprocedure.  So the key is short, a dump has the
 * centroids among the definitions, before any row, and PostgreSQL knows that the table depends on
 * the function.  A session calls the function once for each user whose rights it has, and again
 * when its row in pg_proc has changed.  What one user's call has returned is not another one's: who
 * calls it chooses the search_path.
 *
 * A query that asks the nearest partitions needs the centroids whoever asks it.  So the function is
 * called as the table's owner then, as the functions of an index's expressions are: it cannot get
 * the rights of who asks.
 */
#include "many/probes.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/inspect.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/partcache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"
#include "vector/vector.h"

static HTAB *known_centroids = NULL;

/* ---- what is known ------------------------------------------------------------- */

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

/* Roles have changed, and with them who may do what. */
static void
ForgetRights(Datum arg, int cacheid, uint32 hash)
{
	HASH_SEQ_STATUS status;
	GgCentroids *centroids;

	hash_seq_init(&status, known_centroids);
	while ((centroids = hash_seq_search(&status)) != NULL)
		centroids->allowed = false;
}

static void
MakeTable(void)
{
	HASHCTL		control = {.keysize = sizeof(GgCentroidsKey), .entrysize = sizeof(GgCentroids)};

	known_centroids = hash_create("gpugraph centroids", 16, &control, HASH_ELEM | HASH_BLOBS);
	CacheRegisterSyscacheCallback(PROCOID, ForgetCentroids, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, ForgetRights, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, ForgetRights, (Datum) 0);
}

/* ---- the function ------------------------------------------------------------- */

pg_noreturn static void
RefuseFunction(Oid function)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("function %s does not return centroids", format_procedure(function)),
			 errhint("Centroids are the vector[] that an immutable function without arguments "
					 "returns.")));
}

/* Is a type an array of vectors?  Domains are what they are domains over. */
static bool
IsVectorArray(Oid type, Oid vector)
{
	Oid			element = get_element_type(getBaseType(type));

	return OidIsValid(element) && getBaseType(element) == vector;
}

/* Check that the function has the form of one that returns centroids; *hash: its row's. */
static void
CheckFunction(Oid function, Oid vector, uint32 *hash)
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
		form->provolatile == PROVOLATILE_IMMUTABLE && IsVectorArray(form->prorettype, vector);
	ReleaseSysCache(tuple);
	if (!fits)
		RefuseFunction(function);
	*hash = GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(function));
}

/* Copy what the function has returned. */
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
		RefuseFunction(centroids->key.function);
	for (int i = 0; i < count; i++)
	{
		Vector	   *vector;

		if (nulls[i])
			RefuseFunction(centroids->key.function);
		vector = (Vector *) PG_DETOAST_DATUM(elements[i]);
		if (i > 0 && vector->dim != dim)
			RefuseFunction(centroids->key.function);
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

static Datum
Call(Oid function, bool *isnull)
{
	FmgrInfo	finfo;
	LOCAL_FCINFO(fcinfo, 0);
	Datum		array;

	fmgr_info(function, &finfo);
	InitFunctionCallInfoData(*fcinfo, &finfo, 0, InvalidOid, NULL, NULL);
	array = FunctionCallInvoke(fcinfo);
	*isnull = fcinfo->isnull;
	return array;
}

/* Add to an error whose rights and path the function had.  Its names mostly want another path. */
static void
TellOwner(void *arg)
{
	const int	code = geterrcode();

	errcontext("%s", (const char *) arg);
	if (code == ERRCODE_UNDEFINED_FUNCTION || code == ERRCODE_UNDEFINED_OBJECT ||
		code == ERRCODE_UNDEFINED_TABLE)
		errhint("Qualify the names in the function, or SET search_path on it.");
}

/* Only a function that is in the table's key gets the owner's rights, whoever makes the call. */
static void
CheckKey(Relation table, Oid function)
{
	const PartitionKey key = RelationGetPartitionKey(table);
	const FuncExpr *expr = key == NULL || key->partexprs == NIL ? NULL : linitial(key->partexprs);
	const Const *set = expr == NULL || !IsA(expr, FuncExpr) ? NULL : linitial(expr->args);

	if (set == NULL || !IsA(set, Const) || set->consttype != REGPROCEDUREOID ||
		set->constisnull || DatumGetObjectId(set->constvalue) != function)
		elog(ERROR, "function %u is not in the partition key of table \"%s\"", function,
			 RelationGetRelationName(table));
}

static Datum
CallAsOwner(Oid function, Oid table, bool *isnull)
{
	Relation	heap = table_open(table, AccessShareLock);
	ErrorContextCallback callback = {.previous = error_context_stack, .callback = TellOwner};
	GgCaller	caller;
	Datum		array;

	CheckKey(heap, function);
	callback.arg = psprintf("function %s of the partition key of table \"%s\", called as the "
							"table's owner with search_path = pg_catalog, pg_temp",
							format_procedure(function), RelationGetRelationName(heap));
	GgActAsOwner(heap, &caller);
	error_context_stack = &callback;
	array = Call(function, isnull);
	error_context_stack = callback.previous;
	GgActAsCaller(&caller);
	table_close(heap, NoLock);
	return array;
}

static void
LoadCentroids(GgCentroids *centroids, Oid vector, Oid table)
{
	static uint64 loads = 0;
	const Oid	function = centroids->key.function;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph centroids",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Datum		array;
	bool		isnull;

	if (centroids->values != NULL)
		pfree(centroids->values);
	centroids->values = NULL;
	CheckFunction(function, vector, &centroids->hash);
	/* a change of the function from here on is noticed */
	centroids->valid = true;
	array = OidIsValid(table) ? CallAsOwner(function, table, &isnull) : Call(function, &isnull);
	if (isnull)
		RefuseFunction(function);
	ReadCentroids(DatumGetArrayTypeP(array), centroids);
	centroids->load = ++loads;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

static Oid
OwnerOf(Oid table)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", table);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

const GgCentroids *
GgFindCentroids(Oid function, Oid vector, Oid table)
{
	const bool	as_owner = OidIsValid(table);
	const GgCentroidsKey key = {
		.function = function, .user = as_owner ? OwnerOf(table) : GetUserId(),
		.as_owner = as_owner
	};
	GgCentroids *centroids;
	bool		found;

	if (known_centroids == NULL)
		MakeTable();
	centroids = hash_search(known_centroids, &key, HASH_ENTER, &found);
	if (!found)
	{
		centroids->valid = false;
		centroids->values = NULL;
	}
	if (!centroids->valid || centroids->values == NULL)
		centroids->allowed = false;
	else if (centroids->allowed)
		return centroids;
	if (!GgMayExecute(function, key.user))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, get_func_name(function));
	centroids->allowed = true;
	if (!centroids->valid || centroids->values == NULL)
		LoadCentroids(centroids, vector, table);
	return centroids;
}
