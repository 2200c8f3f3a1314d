/*
 * sample.c
 *		The sample queries of an index, in its own blocks.
 *
 * Queries are data of users.  So they lie where no SELECT, no publication and no dump finds them,
 * and WAL, standbys and physical backups have them as they have the index.  A sample is stored and
 * removed by a record of the directory, under the merge lock, and a transaction that is rolled back
 * leaves it as it is.
 *
 * A build takes over what the index had: the file that it had before the command is there until the
 * transaction ends.  Which file that was, pg_class tells by a snapshot of now whose command id is
 * that of the statement (SnapshotBefore): what other sessions have committed is seen, also under
 * REPEATABLE READ, whose own snapshot may name a file that is gone.  The lock of the index protects
 * the file.  A table that the same transaction has made, or a temporary one with ON COMMIT DELETE
 * ROWS, is truncated in place: the blocks are gone before the build begins, and the sample with
 * them.
 *
 * A new index takes over the sample of another valid index of the same column, or expression, and
 * metric, which may be one that the command has dropped (ALTER TABLE), by the same snapshot.  Where
 * it is a copy (REINDEX CONCURRENTLY) and the original is there, that alone counts, and else the
 * indexes of the same definition, if there are any: a forgotten sample does not come back from
 * another index.
 *
 * No lock is waited for: two sessions may each build one index and look at the other's.  Reading
 * goes on in a subtransaction: a file that is damaged costs the sample and a WARNING, and not the
 * REINDEX that is to mend it.
 */
#include "maintain/merge.h"

#include <math.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "common/hashfn.h"
#include "storage/directory.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/type.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* One of so many queries is held out. */
#define HELD_OUT_ONE_OF		5

/* ---- reading ------------------------------------------------------------------------------ */

static GgLearnSample *
ReadFrom(Relation index, const GgMetaPageData *meta)
{
	GgArray		array;
	GgSampleHead head;
	GgLearnSample *sample;
	float	   *queries;
	Size		bytes;

	if (!GgFindSample(index, meta, &array, &head))
		return NULL;
	bytes = GgSampleBytes(&head) - sizeof(head);
	queries = MemoryContextAllocHuge(CurrentMemoryContext, bytes);
	GgReadArray(index, meta->instance, &array, sizeof(head), queries, bytes);
	for (Size i = 0; i < bytes / sizeof(float); i++)
		if (!isfinite(queries[i]))
			GgReportCorruption(index, GgArrayBlock(&array, (sizeof(head) + i * sizeof(float)) /
												   GG_PAGE_PAYLOAD),
							   "query " UINT64_FORMAT " of the sample is not finite",
							   (uint64) i / head.dimensions);
	sample = palloc(sizeof(GgLearnSample));
	*sample = (GgLearnSample) {
		.queries = queries, .dimensions = head.dimensions, .count = head.count,
		.edges = head.edges
	};
	return sample;
}

GgLearnSample *
GgReadSample(Relation index)
{
	GgMetaPageData *meta = GgReadDirectory(index);
	GgLearnSample *sample = ReadFrom(index, meta);

	pfree(meta);
	return sample;
}

void
GgFreeSample(GgLearnSample *sample)
{
	pfree(unconstify(float *, sample->queries));
	pfree(sample);
}

bool
GgHasSample(Relation index, const GgLearnSample *sample)
{
	GgLearnSample *own = GgReadSample(index);
	bool		same;

	if (own == NULL)
		return false;
	same = own->edges == sample->edges && own->dimensions == sample->dimensions &&
		own->count == sample->count &&
		memcmp(own->queries, sample->queries,
			   (Size) own->count * own->dimensions * sizeof(float)) == 0;
	GgFreeSample(own);
	return same;
}

/* ---- queries that are held out ------------------------------------------------------------ */

bool
GgIsHeldOut(const float *query, uint32 dimensions)
{
	return hash_bytes((const unsigned char *) query, (int) (dimensions * sizeof(float))) %
		HELD_OUT_ONE_OF == 0;
}

bool
GgHoldsOut(const GgLearnSample *sample)
{
	uint32		count = 0;

	if (sample->count < GG_LEAST_HELD_OUT)
		return false;
	for (uint32 i = 0; i < sample->count; i++)
		count += GgIsHeldOut(sample->queries + (Size) i * sample->dimensions, sample->dimensions);
	return count >= GG_LEAST_HELD_OUT;
}

const GgLearnSample *
GgTaughtOf(const GgLearnSample *sample)
{
	GgLearnSample *taught;
	float	   *queries;
	const Size	bytes = (Size) sample->dimensions * sizeof(float);

	if (!GgHoldsOut(sample))
		return sample;
	taught = palloc(sizeof(GgLearnSample));
	*taught = *sample;
	taught->queries = queries = MemoryContextAllocHuge(CurrentMemoryContext,
													   sample->count * bytes);
	taught->count = 0;
	for (uint32 i = 0; i < sample->count; i++)
	{
		const float *query = sample->queries + (Size) i * sample->dimensions;

		if (!GgIsHeldOut(query, sample->dimensions))
			memcpy(queries + (Size) taught->count++ * sample->dimensions, query, bytes);
	}
	return taught;
}

/* ---- what a build takes over -------------------------------------------------------------- */

/*
 * The catalogs as they were before the command: with what others have committed by now, which the
 * transaction's snapshot may not see, and without what the command has done.
 */
static Snapshot
SnapshotBefore(void)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

	snapshot->curcid = GetActiveSnapshot()->curcid;
	return snapshot;
}

/* Copies of the rows of a catalog that have this OID in a column, as they were. */
static List *
RowsBefore(Oid catalog, Oid catalog_index, AttrNumber column, Oid oid)
{
	Relation	relation = table_open(catalog, AccessShareLock);
	Snapshot	snapshot = SnapshotBefore();
	List	   *rows = NIL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, column, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(oid));
	scan = systable_beginscan(relation, catalog_index, true, snapshot, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		rows = lappend(rows, heap_copytuple(tuple));
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(relation, AccessShareLock);
	return rows;
}

/* NULL: it is new. */
static HeapTuple
ClassBefore(Oid relid)
{
	List	   *rows = RowsBefore(RelationRelationId, ClassOidIndexId, Anum_pg_class_oid, relid);

	return rows == NIL ? NULL : linitial(rows);
}

static HeapTuple
IndexBefore(Oid relid)
{
	List	   *rows = RowsBefore(IndexRelationId, IndexRelidIndexId, Anum_pg_index_indexrelid,
								  relid);

	return rows == NIL ? NULL : linitial(rows);
}

static Node *
FirstExpression(HeapTuple row)
{
	bool		isnull;
	Datum		stored = SysCacheGetAttr(INDEXRELID, row, Anum_pg_index_indexprs, &isnull);

	return isnull ? NULL : linitial(stringToNode(TextDatumGetCString(stored)));
}

/* Do both begin with the same column, or with the same expression? */
static bool
HaveSameKey(HeapTuple a, HeapTuple b)
{
	AttrNumber	column = ((Form_pg_index) GETSTRUCT(a))->indkey.values[0];

	if (column != ((Form_pg_index) GETSTRUCT(b))->indkey.values[0])
		return false;
	return column != InvalidAttrNumber || equal(FirstExpression(a), FirstExpression(b));
}

static bool
HaveSame(int cache, HeapTuple a, HeapTuple b, AttrNumber column)
{
	bool		isnull[2];
	Datum		values[2] = {
		SysCacheGetAttr(cache, a, column, &isnull[0]),
		SysCacheGetAttr(cache, b, column, &isnull[1])
	};

	return isnull[0] == isnull[1] &&
		(isnull[0] || datumIsEqual(values[0], values[1], false, -1));
}

static bool
HaveSameDefinition(HeapTuple a, HeapTuple b, HeapTuple class_a, HeapTuple class_b)
{
	static const AttrNumber columns[] = {
		Anum_pg_index_indkey, Anum_pg_index_indclass, Anum_pg_index_indexprs,
		Anum_pg_index_indpred
	};

	for (int i = 0; i < (int) lengthof(columns); i++)
		if (!HaveSame(INDEXRELID, a, b, columns[i]))
			return false;
	return HaveSame(RELOID, class_a, class_b, Anum_pg_class_reloptions);
}

/*
 * Is `copy` a name that a copy of an index called `name` gets?  ALTER TABLE gives the copy the same
 * one.  REINDEX CONCURRENTLY cuts it where it is long, and adds "_ccnew", perhaps with a number;
 * REPACK (CONCURRENTLY), from 19 on, adds "_repacknew".
 */
static bool
IsNameOfCopy(const char *copy, const char *name)
{
	static const char *const added[] = {"_ccnew", "_repacknew"};
	bool		cut = false;

	for (int i = 0; i < (int) lengthof(added); i++)
	{
		const char *end = NULL;

		for (const char *at = copy; (at = strstr(at, added[i])) != NULL; at++)
			end = at;
		cut |= end != NULL && strncmp(copy, name, end - copy) == 0;
	}
	return cut || strcmp(copy, name) == 0;
}

typedef enum Likeness
{
	ANOTHER,					/* with the same key */
	TWIN,						/* of the same definition */
	ORIGINAL					/* of which the index is a copy */
} Likeness;

typedef struct Reading
{
	Relation	index;			/* that is built */
	GgRelFileLocator file;
	GgLearnSample *sample;
} Reading;

/* Read the sample of a file that may belong to no relation any more. */
static void
ReadFile(void *arg)
{
	Reading    *reading = arg;
	RelationData *relation = palloc(sizeof(RelationData));
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));

	/* it is of the same table, so all else is the same that reading looks at */
	*relation = *reading->index;
	GgLocator(relation) = reading->file;
	relation->rd_smgr = NULL;
	relation->pgstat_enabled = false;
	relation->pgstat_info = NULL;
	PG_TRY();
	{
		GgReadMetaOfFile(relation, meta);
		if (meta->metric == GgIndexOpclass(reading->index)->metric)
			reading->sample = ReadFrom(relation, meta);
	}
	PG_FINALLY();
	{
		RelationCloseSmgr(relation);
	}
	PG_END_TRY();
	pfree(meta);
	pfree(relation);
}

/* The sample of an index's file, or NULL.  A damaged file is no error: REINDEX is to mend it. */
static GgLearnSample *
TryFile(Relation index, Form_pg_class class)
{
	Reading		reading = {
		.index = index, .file = GgFileOf(class->reltablespace, class->relfilenode)
	};
	ErrorData  *error = GgTry(ReadFile, &reading);

	if (error == NULL)
		return reading.sample;
	ereport(WARNING,
			(errmsg("the sample of queries of index \"%s\" cannot be read",
					NameStr(class->relname)),
			 errdetail_internal("%s", error->message),
			 errhint("Call gpugraph_learn() once more, if it had one.")));
	return NULL;
}

/* The index that is built, and others of its table as they were before the command. */
typedef struct Sources
{
	Relation	index;
	HeapTuple	row;			/* of pg_index, as it is */
	HeapTuple	class;			/* of pg_class */
	List	   *others;			/* rows of pg_index */
	bool		found;			/* an index of the likeness that was looked for */
} Sources;

static Likeness
LikenessOf(const Sources *sources, HeapTuple row, HeapTuple class)
{
	if (!HaveSameDefinition(sources->row, row, sources->class, class))
		return ANOTHER;
	return IsNameOfCopy(RelationGetRelationName(sources->index),
						NameStr(((Form_pg_class) GETSTRUCT(class))->relname)) ? ORIGINAL : TWIN;
}

static GgLearnSample *
TryOther(Sources *sources, HeapTuple other, Likeness likeness)
{
	Relation	index = sources->index;
	HeapTuple	class = ClassBefore(((Form_pg_index) GETSTRUCT(other))->indexrelid);
	Form_pg_class form;

	if (class == NULL)
		return NULL;
	form = (Form_pg_class) GETSTRUCT(class);
	if (form->relam != index->rd_rel->relam || form->relkind != RELKIND_INDEX ||
		LikenessOf(sources, other, class) != likeness)
		return NULL;
	sources->found = true;
	return TryFile(index, form);
}

/* The sample of another index that has this likeness; NULL: there is none. */
static GgLearnSample *
SampleOf(Sources *sources, Likeness likeness)
{
	GgLearnSample *sample = NULL;
	ListCell   *cell;

	foreach(cell, sources->others)
	{
		HeapTuple	other = lfirst(cell);
		Form_pg_index form = (Form_pg_index) GETSTRUCT(other);

		/* pass over one that another session builds anew: it has the lock until the file goes */
		if (sample != NULL || form->indexrelid == RelationGetRelid(sources->index) ||
			!form->indisvalid || !HaveSameKey(sources->row, other) ||
			!ConditionalLockRelationOid(form->indexrelid, AccessShareLock))
			continue;
		sample = TryOther(sources, other, likeness);
		UnlockRelationOid(form->indexrelid, AccessShareLock);
	}
	return sample;
}

static GgLearnSample *
SampleOfOthers(Relation heap, Relation index)
{
	Sources		sources = {
		.index = index, .row = index->rd_indextuple,
		.class = SearchSysCache1(RELOID, ObjectIdGetDatum(RelationGetRelid(index))),
		.others = RowsBefore(IndexRelationId, IndexIndrelidIndexId, Anum_pg_index_indrelid,
							 GgTableInPlace(heap))
	};
	GgLearnSample *sample = NULL;

	for (int likeness = ORIGINAL; likeness >= ANOTHER && !sources.found; likeness--)
		sample = SampleOf(&sources, (Likeness) likeness);
	ReleaseSysCache(sources.class);
	return sample;
}

/* Has the command given the index, valid before, another file, as REINDEX and TRUNCATE do? */
static bool
HadOtherFile(Relation index, HeapTuple class)
{
	HeapTuple	row = IndexBefore(RelationGetRelid(index));

	return class != NULL && row != NULL && ((Form_pg_index) GETSTRUCT(row))->indisvalid &&
		(((Form_pg_class) GETSTRUCT(class))->relfilenode != index->rd_rel->relfilenode ||
		 ((Form_pg_class) GETSTRUCT(class))->reltablespace != index->rd_rel->reltablespace);
}

GgLearnSample *
GgInheritSample(Relation heap, Relation index)
{
	HeapTuple	class;

	if (!ActiveSnapshotSet())
		return NULL;
	class = ClassBefore(RelationGetRelid(index));
	if (HadOtherFile(index, class))
		return TryFile(index, (Form_pg_class) GETSTRUCT(class));
	return SampleOfOthers(heap, index);
}

/* ---- writing ------------------------------------------------------------------------------ */

void *
GgFormSample(const GgLearnSample *sample, uint64 *bytes)
{
	const GgSampleHead head = {
		.dimensions = sample->dimensions, .count = sample->count, .edges = sample->edges
	};
	char	   *data;

	*bytes = GgSampleBytes(&head);
	data = MemoryContextAllocHuge(CurrentMemoryContext, *bytes);
	memcpy(data, &head, sizeof(head));
	memcpy(data + sizeof(head), sample->queries, *bytes - sizeof(head));
	return data;
}

void
GgWriteSlices(GgMergeTarget *target, uint64 instance, GgNewArray *array)
{
	while (array->written < array->npages)
	{
		uint32		count;

		GgBeginSlice(target);
		if (array->written == array->taken)
			(void) GgTakeForArray(target->index, target->heap, array);
		count = Min(array->taken - array->written, GG_WRITE_PAGES);
		GgWritePages(target->index, instance, array, array->written, count);
		array->written += count;
		GgEndSlice(target);
		if (target->report != NULL)
			target->report(GG_MERGE_WRITE, array->written, array->npages);
	}
}

/* Free what is TAKEN, then write an array of no segment beside the one that is there. */
static void
WriteArray(GgMergeTarget *target, uint64 instance, GgKind kind, const void *data, uint64 bytes,
		   GgNewArray *array)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	Buffer		metabuf;

	GgBeginSlice(target);
	metabuf = GgLockDirectory(target->index, meta);
	(void) GgFreeTaken(meta);
	GgBeginArray(array, GgTakeId(target->index, meta), kind, data, bytes);
	GgStoreMeta(target->index, target->heap, metabuf, meta);
	GgEndSlice(target);
	GgWriteSlices(target, instance, array);
	pfree(meta);
}

void
GgWriteSample(GgMergeTarget *target, uint64 instance, const GgLearnSample *sample,
			  GgNewArray *array)
{
	uint64		bytes;
	void	   *data = GgFormSample(sample, &bytes);

	WriteArray(target, instance, GG_KIND_SAMPLE, data, bytes, array);
	pfree(data);
}

static void
ListOne(GgMetaPageData *meta, GgKind kind, const GgNewArray *array, uint64 parked_xid)
{
	GgFreeArray(meta, GgIdOfKind(meta, kind), kind, parked_xid);
	if (array != NULL)
	{
		GgForgetTaken(meta, array->owner);
		GgListArray(meta, array);
	}
}

void
GgListSample(GgMetaPageData *meta, const GgNewArray *array, uint64 parked_xid)
{
	ListOne(meta, GG_KIND_SAMPLE, array, parked_xid);
}

/* Put array in the place of the one that is there; NULL: none.  False: there is neither. */
static bool
Replace(GgMergeTarget *target, GgKind kind, const GgNewArray *array)
{
	FullTransactionId own;
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	Buffer		metabuf;
	bool		any;

	GgBeginSlice(target);
	own = GetTopFullTransactionId();
	metabuf = GgLockDirectory(target->index, meta);
	any = array != NULL || GgIdOfKind(meta, kind) != GG_NO_SEGMENT;
	if (any)
	{
		ListOne(meta, kind, array, GgParkingXid(own));
		GgMergeFree(meta);
		GgStoreMeta(target->index, target->heap, metabuf, meta);
		/* open indexes and plans keep what they know of a calibration */
		if (kind == GG_KIND_CALIBRATION)
			CacheInvalidateRelcache(target->index);
	}
	else
		UnlockReleaseBuffer(metabuf);
	GgEndSlice(target);
	pfree(meta);
	return any;
}

void
GgStoreSample(GgMergeTarget *target, uint64 instance, const GgLearnSample *sample)
{
	GgNewArray *array = palloc(sizeof(GgNewArray));

	GgWriteSample(target, instance, sample, array);
	(void) Replace(target, GG_KIND_SAMPLE, array);
	pfree(array);
}

void
GgStoreCalibration(GgMergeTarget *target, const GgCalibration *calibration)
{
	GgNewArray *array = palloc(sizeof(GgNewArray));

	WriteArray(target, target->instance, GG_KIND_CALIBRATION, calibration,
			   GgCalibrationBytes(calibration), array);
	(void) Replace(target, GG_KIND_CALIBRATION, array);
	pfree(array);
}

bool
GgRemoveSample(GgMergeTarget *target)
{
	return Replace(target, GG_KIND_SAMPLE, NULL);
}
