/*
 * sample.c
 *		The sample queries of an indexed column, in the extension's table gpugraph_samples.
 *
 * A sample belongs to a column, or an expression, of a table and to a metric, not to an index.  So
 * it is found again however the index is built anew, and indexes that differ in neither share it.
 * An expression is compared by its text, deparsed as pg_dump would.
 *
 * Merges and builds read the table without a look at privileges, since nobody but its owner has
 * any: queries are data of users.  It is ordinary otherwise, so a sample comes and goes with the
 * transaction that stores or removes it, and WAL and backups have it.
 *
 * Locks: RowExclusiveLock on gpugraph_samples to write, AccessShareLock to read.  Who writes one
 * holds another lock as well, that of the table as an object with a sub-object that no table has,
 * until the transaction ends.  So two indexes of a column do not store two samples.
 */
#include "merge/merge.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/type.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#define SAMPLES				"gpugraph_samples"

/* Its columns, as the SQL script makes them. */
enum
{
	SAMPLE_RELID = 1,
	SAMPLE_ATTNUM,
	SAMPLE_EXPRESSION,
	SAMPLE_METRIC,
	SAMPLE_EDGES,
	SAMPLE_DIMENSIONS,
	SAMPLE_QUERIES,
	SAMPLE_COLUMNS = SAMPLE_QUERIES
};

/* The sub-object whose lock keeps others from writing samples of the table. */
#define SAMPLE_LOCK			PG_UINT16_MAX

typedef struct SampleKey
{
	Oid			relid;
	AttrNumber	attnum;			/* 0: an expression */
	char	   *expression;		/* "" of a column */
	gg_metric	metric;
} SampleKey;

/* ---- which sample is an index's ---------------------------------------------------------- */

/* As pg_dump has it.  The stored expression is not simplified, which might run functions. */
static char *
ExpressionText(Relation heap, Relation index)
{
	bool		isnull;
	Datum		stored = SysCacheGetAttr(INDEXRELID, index->rd_indextuple,
										 Anum_pg_index_indexprs, &isnull);
	List	   *expressions = isnull ? NIL : stringToNode(TextDatumGetCString(stored));
	List	   *context = deparse_context_for(RelationGetRelationName(heap),
											  RelationGetRelid(heap));
	int			nest_level = NewGUCNestLevel();
	char	   *text;

	if (expressions == NIL)
		elog(ERROR, "index \"%s\" has no expression", RelationGetRelationName(index));
	(void) set_config_option("search_path", "pg_catalog", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	text = deparse_expression(linitial(expressions), context, false, false);
	AtEOXact_GUC(true, nest_level);
	return text;
}

static SampleKey
KeyOf(Relation heap, Relation index)
{
	SampleKey	key = {
		.relid = RelationGetRelid(heap), .attnum = index->rd_index->indkey.values[0],
		.expression = "", .metric = GgIndexOpclass(index)->metric
	};

	if (key.attnum == InvalidAttrNumber)
		key.expression = ExpressionText(heap, index);
	return key;
}

static bool
HasKey(const SampleKey *key, const Datum *values)
{
	return DatumGetObjectId(values[SAMPLE_RELID - 1]) == key->relid &&
		DatumGetInt16(values[SAMPLE_ATTNUM - 1]) == key->attnum &&
		DatumGetInt16(values[SAMPLE_METRIC - 1]) == (int16) key->metric &&
		strcmp(TextDatumGetCString(values[SAMPLE_EXPRESSION - 1]), key->expression) == 0;
}

/* The table or column is gone, or what has its number by now is no such vector. */
static bool
IsOrphan(const Datum *values)
{
	Oid			relid = DatumGetObjectId(values[SAMPLE_RELID - 1]);
	AttrNumber	attnum = DatumGetInt16(values[SAMPLE_ATTNUM - 1]);

	return !SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)) ||
		(attnum != InvalidAttrNumber && get_atttype(relid, attnum) == InvalidOid);
}

/* ---- the table ---------------------------------------------------------------------------- */

/*
 * The extension's table, or NULL: the library is newer than the SQL objects.  A table of this name
 * that is not the extension's is not looked at.
 */
static Relation
OpenSamples(Relation index, LOCKMODE lockmode)
{
	Oid			schema = get_func_namespace(index->rd_amhandler);
	Oid			samples = get_relname_relid(SAMPLES, schema);
	Relation	relation;

	if (samples == InvalidOid ||
		getExtensionOfObject(RelationRelationId, samples) !=
		getExtensionOfObject(AccessMethodRelationId, index->rd_rel->relam))
		return NULL;
	relation = table_open(samples, lockmode);
	if (RelationGetDescr(relation)->natts != SAMPLE_COLUMNS)
		elog(ERROR, "table \"%s\" has %d columns instead of %d", SAMPLES,
			 RelationGetDescr(relation)->natts, SAMPLE_COLUMNS);
	return relation;
}

/* As memory has it, or NULL where the row is not what GgStoreSample() writes. */
static GgLearnSample *
FormSample(const Datum *values)
{
	bytea	   *queries = DatumGetByteaPP(values[SAMPLE_QUERIES - 1]);
	Size		bytes = VARSIZE_ANY_EXHDR(queries);
	int32		dimensions = DatumGetInt32(values[SAMPLE_DIMENSIONS - 1]);
	int32		edges = DatumGetInt32(values[SAMPLE_EDGES - 1]);
	GgLearnSample *sample;
	float	   *rows;

	if (dimensions < 1 || edges < 1 || bytes == 0 || bytes % (dimensions * sizeof(float)) != 0)
		return NULL;
	sample = palloc0(sizeof(GgLearnSample));
	sample->queries = rows = palloc(bytes);
	memcpy(rows, VARDATA_ANY(queries), bytes);
	sample->dimensions = (uint32) dimensions;
	sample->count = (uint32) (bytes / (dimensions * sizeof(float)));
	sample->edges = (uint32) edges;
	return sample;
}

/* Both look at the latest state, whatever snapshots there are: the table is no catalog. */
static SysScanDesc
BeginScan(Relation samples)
{
	return systable_beginscan(samples, InvalidOid, false, NULL, 0, NULL);
}

/* The index's sample, or NULL. */
static GgLearnSample *
FindSample(Relation samples, const SampleKey *key)
{
	SysScanDesc scan = BeginScan(samples);
	GgLearnSample *sample = NULL;
	HeapTuple	tuple;

	while (sample == NULL && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Datum		values[SAMPLE_COLUMNS];
		bool		nulls[SAMPLE_COLUMNS];

		heap_deform_tuple(tuple, RelationGetDescr(samples), values, nulls);
		if (HasKey(key, values))
			sample = FormSample(values);
	}
	systable_endscan(scan);
	return sample;
}

/*
 * Remove the index's sample, and what belongs to tables or columns that are gone.  False: there was
 * no sample of the index.
 */
static bool
RemoveSample(Relation samples, const SampleKey *key)
{
	SysScanDesc scan = BeginScan(samples);
	bool		removed = false;
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Datum		values[SAMPLE_COLUMNS];
		bool		nulls[SAMPLE_COLUMNS];

		heap_deform_tuple(tuple, RelationGetDescr(samples), values, nulls);
		if (HasKey(key, values))
		{
			simple_heap_delete(samples, &tuple->t_self);
			removed = true;
		}
		else if (IsOrphan(values))
		{
			TM_FailureData failure;

			/* another session may do so, too */
			(void) heap_delete(samples, &tuple->t_self, GetCurrentCommandId(true), InvalidSnapshot,
							   false, &failure, false);
		}
	}
	systable_endscan(scan);
	return removed;
}

GgLearnSample *
GgReadSample(Relation heap, Relation index)
{
	Relation	samples = OpenSamples(index, AccessShareLock);
	GgLearnSample *sample = NULL;
	SampleKey	key;

	if (samples == NULL)
		return NULL;
	if (RelationGetNumberOfBlocks(samples) > 0)
	{
		key = KeyOf(heap, index);
		sample = FindSample(samples, &key);
	}
	table_close(samples, AccessShareLock);
	return sample;
}

static bool
LockSamplesOf(Relation heap, bool wait)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, RelationRelationId, RelationGetRelid(heap), SAMPLE_LOCK);
	return LockAcquire(&tag, ExclusiveLock, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

static void
InsertSample(Relation samples, const SampleKey *key, const GgLearnSample *sample)
{
	Size		bytes = (Size) sample->count * sample->dimensions * sizeof(float);
	bytea	   *queries = palloc(VARHDRSZ + bytes);
	bool		nulls[SAMPLE_COLUMNS] = {false};
	Datum		values[SAMPLE_COLUMNS];
	HeapTuple	tuple;

	SET_VARSIZE(queries, VARHDRSZ + bytes);
	memcpy(VARDATA(queries), sample->queries, bytes);
	values[SAMPLE_RELID - 1] = ObjectIdGetDatum(key->relid);
	values[SAMPLE_ATTNUM - 1] = Int16GetDatum(key->attnum);
	values[SAMPLE_EXPRESSION - 1] = CStringGetTextDatum(key->expression);
	values[SAMPLE_METRIC - 1] = Int16GetDatum((int16) key->metric);
	values[SAMPLE_EDGES - 1] = Int32GetDatum((int32) sample->edges);
	values[SAMPLE_DIMENSIONS - 1] = Int32GetDatum((int32) sample->dimensions);
	values[SAMPLE_QUERIES - 1] = PointerGetDatum(queries);
	tuple = heap_form_tuple(RelationGetDescr(samples), values, nulls);
	/* the worker has no snapshot, and who writes rows that may be toasted must have one */
	PushActiveSnapshot(GetTransactionSnapshot());
	CatalogTupleInsert(samples, tuple);
	PopActiveSnapshot();
	heap_freetuple(tuple);
	pfree(queries);
}

static bool
IsSameSample(const GgLearnSample *a, const GgLearnSample *b)
{
	return a->edges == b->edges && a->dimensions == b->dimensions && a->count == b->count &&
		memcmp(a->queries, b->queries, (Size) a->count * a->dimensions * sizeof(float)) == 0;
}

bool
GgStoreSample(Relation heap, Relation index, const GgLearnSample *sample, bool wait)
{
	Relation	samples;
	GgLearnSample *old;
	SampleKey	key;

	if (!LockSamplesOf(heap, wait))
		return false;
	samples = OpenSamples(index, RowExclusiveLock);
	if (samples == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("extension gpugraph has no table \"%s\"", SAMPLES),
				 errhint("Run ALTER EXTENSION gpugraph UPDATE.")));
	key = KeyOf(heap, index);
	old = FindSample(samples, &key);
	if (old == NULL || !IsSameSample(old, sample))
	{
		(void) RemoveSample(samples, &key);
		InsertSample(samples, &key, sample);
		CommandCounterIncrement();
	}
	table_close(samples, NoLock);
	return true;
}

bool
GgRemoveSample(Relation heap, Relation index)
{
	Relation	samples;
	bool		removed;
	SampleKey	key;

	(void) LockSamplesOf(heap, true);
	samples = OpenSamples(index, RowExclusiveLock);
	if (samples == NULL)
		return false;
	key = KeyOf(heap, index);
	removed = RemoveSample(samples, &key);
	CommandCounterIncrement();
	table_close(samples, NoLock);
	return removed;
}
