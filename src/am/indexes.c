/*
 * indexes.c
 *		gpugraph_get_index(): the row of one index in the view gpugraph_indexes.
 *
 * Monitoring systems poll the view, so it neither waits for a lock nor fails because of one index.
 * What needs the index's pages is NULL where DDL has the index or its table for itself.  An error
 * in reading the pages becomes a hint.
 *
 * Everybody may see an index's size, its state in the service, and how many queries were answered
 * where, as with PostgreSQL's own views.  What the index holds is for those who may ask
 * gpugraph_index_info().
 */
#include "maintain/merge.h"
#include "service/shared/service.h"
#include "storage/codes.h"
#include "storage/type.h"

#include "access/relation.h"
#include "access/xlog.h"
#include "catalog/index.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/tuplestore.h"

#define INDEXES_COLUMNS		16
#define RECALL_COLUMNS		8

/*
 * A hint asks for a merge when the delta has several times the rows that are sealed by default, and
 * they are more than this share of all rows.  A scan measures each of them.
 */
#define HINT_DELTA_SEALS	4
#define HINT_DELTA_SHARE	0.1

/* Merging leaves no more segments than this where memory suffices (maintain/policy.c). */
#define HINT_SEGMENTS		5

/* What the pages of an index say. */
typedef struct Contents
{
	Relation	index;
	int64		bytes;			/* -1: not known */
	bool		known;			/* what follows is, but for error and reindex */
	int64		rows;			/* of segments and delta, dead ones included */
	int64		delta_rows;
	int64		seal_rows;		/* that a seal takes by default */
	int64		dead_rows;
	int			segments;
	const char *storage;
	int			algorithm;		/* gg_algorithm of the last build */
	uint32		left_out;		/* GG_FEATURE_NO_*: of rows that the index may lack */
	char	   *error;			/* why the pages could not be read; else NULL */
	bool		reindex;		/* a REINDEX mends the error */
	bool		no_codes;		/* it has none, and a build would make some */
	const GgCalibration *calibration;	/* NULL: recall was not measured */
	GgForm		cpu_form;
} Contents;

static void
ReadContents(void *arg)
{
	Contents   *contents = arg;
	Relation	index = contents->index;
	GgMetaPageData *meta = GgReadDirectory(index);
	GgOptions	options;

	contents->delta_rows = GgCountDeltaRows(index, meta);
	contents->rows = contents->delta_rows;
	contents->seal_rows = GgDefaultSealRows(meta, GgIsServed(index, meta));
	contents->dead_rows = meta->delta_dead;
	for (int i = 0; i < meta->nsegments; i++)
	{
		contents->rows += meta->segments[i].rows;
		contents->dead_rows += meta->segments[i].dead;
	}
	contents->segments = meta->nsegments;
	contents->storage = GgStorageName(meta);
	contents->algorithm = meta->algorithm;
	contents->left_out = ((GgIsDeclaredNotNull(index->rd_index->indrelid,
											   index->rd_index->indkey.values[0]) ?
						   0 : GG_FEATURE_NO_NULL) |
						  (meta->metric == GG_METRIC_COSINE ? GG_FEATURE_NO_ZERO : 0)) &
		~GgNeverLeftOut(meta);
	GgGetOptions(index, &options);
	contents->no_codes = options.codes == GG_CODES_AUTO && meta->coded == GG_CODES_NONE &&
		meta->npieces > 0 && meta->pieces[0].codes == GG_CODES_NONE &&
		GgWhyNoCodes(meta, (double) contents->rows) == NULL;
	contents->calibration = GgReadCalibration(index, meta);
	contents->cpu_form = GgCpuForm(meta);
	contents->known = true;
	pfree(meta);
}

static void
TryContents(Relation index, Contents *contents)
{
	ErrorData  *error;

	contents->index = index;
	error = GgTry(ReadContents, contents);
	if (error == NULL)
		return;
	contents->error = error->message;
	contents->reindex = error->sqlerrcode == ERRCODE_INDEX_CORRUPTED ||
		error->sqlerrcode == ERRCODE_DATA_CORRUPTED ||
		error->sqlerrcode == ERRCODE_FEATURE_NOT_SUPPORTED;
}

/* Can this session read the pages, and may its user know what is in them? */
static bool
IsReadable(Relation index)
{
	Oid			user = GetUserId();

	if (!index->rd_index->indisready || RELATION_IS_OTHER_TEMP(index) ||
		(RecoveryInProgress() && !RelationIsPermanent(index)))
		return false;
	return GgMayMaintain(index->rd_index->indrelid, user) ||
		has_privs_of_role(user, ROLE_PG_STAT_SCAN_TABLES);
}

/*
 * Ask for the locks of a query, table before index as everybody does, and read what one may.  Both
 * locks are given back at once: the view holds nobody up either.
 */
static void
LookInto(Oid indexoid, Oid heapoid, Contents *contents)
{
	Relation	index;

	if (!ConditionalLockRelationOid(heapoid, AccessShareLock))
		return;
	if (ConditionalLockRelationOid(indexoid, AccessShareLock))
	{
		index = try_relation_open(indexoid, NoLock);
		if (index != NULL && GgIsGpugraph(index))
		{
			contents->bytes = DatumGetInt64(DirectFunctionCall2(pg_relation_size,
																ObjectIdGetDatum(indexoid),
																CStringGetTextDatum("main")));
			if (IsReadable(index))
				TryContents(index, contents);
		}
		if (index != NULL)
			relation_close(index, NoLock);
		UnlockRelationOid(indexoid, AccessShareLock);
	}
	UnlockRelationOid(heapoid, AccessShareLock);
}

/* The form that answers, as far as is known. */
static GgForm
FormOf(const Contents *contents, const GgIndexStat *stat)
{
	if (stat->state == NULL || strcmp(stat->state, "ready") != 0)
		return contents->cpu_form;
	return stat->rowless != 0 ? GG_FORM_GPU_CODES : GG_FORM_GPU_ROWS;
}

/*
 * The recall of LIMIT 10 under the session's settings.  *short_of: it is below the target, and no
 * list reaches that.
 */
static double
RecallNow(const Contents *contents, const GgIndexStat *stat, bool *short_of)
{
	const GgForm form = FormOf(contents, stat);
	const bool	aims = gg_target_recall > 0 && gg_iterative_scan != GG_ITERATIVE_OFF;
	uint32		list = (uint32) gg_itopk_size;
	double		recall = 1;

	if (aims && gg_target_recall < 1)
		list = GgListFor(contents->calibration, form, gg_target_recall, GG_USUAL_LIMIT);
	if (!aims || gg_target_recall < 1)
		recall = GgRecallOf(contents->calibration, form, list, GG_USUAL_LIMIT);
	*short_of = aims && list == GG_MAX_ITOPK && recall < gg_target_recall;
	return recall;
}

/* The one thing that should be done first; NULL when there is nothing to do. */
static const char *
Hint(bool valid, const Contents *contents, const GgIndexStat *stat, bool short_of)
{
	if (!valid)
		return "The index is not valid: unless it is being built now, DROP it, or REINDEX INDEX.";
	if (contents->error != NULL)
		return psprintf(contents->reindex ? "REINDEX INDEX: %s." : "The index cannot be read: %s.",
						contents->error);
	if (contents->known && contents->delta_rows >= HINT_DELTA_SEALS * contents->seal_rows &&
		contents->delta_rows > HINT_DELTA_SHARE * contents->rows)
		return psprintf("Preload gpugraph, or call gpugraph_merge(): every query measures the "
						INT64_FORMAT " rows that were inserted and are not merged yet.",
						contents->delta_rows);
	if (stat->missing != 0)
		return psprintf("Increase gpugraph.device_memory, or evict other indexes: the CPU searches"
						" %d segments that have no room on the GPU.",
						pg_popcount32(stat->missing));
	if (contents->known && contents->segments > HINT_SEGMENTS)
		return psprintf("Increase maintenance_work_mem, and call gpugraph_merge(): every query"
						" searches each of %d segments.", contents->segments);
	if (stat->up && stat->missed > 0 && stat->state == NULL)
		return "The CPU answers, as the index is not on a GPU: call gpugraph_prewarm().";
	if (stat->up && stat->missed > 0 && stat->failure != GG_REASON_NONE)
		return psprintf("The CPU answers. %s See last_error in gpugraph_stat_index.",
						GgReasonText(stat->failure));
	if (short_of)
		return "REINDEX INDEX with a larger graph_degree, or learn from queries: "
			"gpugraph.target_recall is not reached.";
	if (contents->calibration != NULL && contents->calibration->held)
		return "Call gpugraph_calibrate(), unless somebody asks what others do not: queries have "
			"changed by more than candidate lists follow by themselves.";
	if (contents->no_codes && stat->queries_cpu > stat->queries_gpu)
		return "REINDEX INDEX: the CPU answers most queries, and searches faster by codes.";
	if (contents->left_out != 0)
		return psprintf("Order by distances in ascending order: a falling order, such as that of "
						"1 - distance DESC, reads the table, as rows with %s vectors may not be in "
						"the index. Where the table has none, REINDEX INDEX%s.",
						contents->left_out == GG_FEATURE_NO_ZERO ? "zero" :
						contents->left_out == GG_FEATURE_NO_NULL ? "NULL" : "NULL or zero",
						(contents->left_out & GG_FEATURE_NO_NULL) == 0 ? "" :
						"; where queries want none, add WHERE column IS NOT NULL");
	return NULL;
}

/* What recall was measured by. */
static const char *
NameOfBy(int by)
{
	return by == GG_BY_QUERIES ? "queries" : "rows";
}

PG_FUNCTION_INFO_V1(gpugraph_get_index);

/* What is no gpugraph index gets a row, mostly of NULLs: it may have been dropped just now. */
Datum
gpugraph_get_index(PG_FUNCTION_ARGS)
{
	Oid			indexoid = PG_GETARG_OID(0);
	bool		valid = PG_GETARG_BOOL(1);
	Oid			heapoid = get_rel_relkind(indexoid) == RELKIND_INDEX ?
		IndexGetRelation(indexoid, true) : InvalidOid;
	Contents	contents = {.bytes = -1};
	GgIndexStat stat;
	bool		short_of = false;
	double		recall = 0;
	TupleDesc	tupdesc = GgResultRow(fcinfo, INDEXES_COLUMNS);
	GgRow		row = {0};

	if (OidIsValid(heapoid))
		LookInto(indexoid, heapoid, &contents);
	GgStatOfIndex(indexoid, &stat);
	if (contents.calibration != NULL)
		recall = RecallNow(&contents, &stat, &short_of);

	GgPut(&row, contents.bytes >= 0, Int64GetDatum(contents.bytes));
	GgPut(&row, contents.known, Int64GetDatum(contents.rows));
	GgPut(&row, contents.known, Int64GetDatum(contents.delta_rows));
	GgPut(&row, contents.known,
		  Float8GetDatum((double) contents.delta_rows / Max(contents.rows, 1)));
	GgPut(&row, contents.known, Int64GetDatum(contents.dead_rows));
	GgPut(&row, contents.known, Int32GetDatum(contents.segments));
	GgPutText(&row, contents.known ? contents.storage : NULL);
	GgPut(&row, stat.state != NULL, Int32GetDatum(stat.device));
	GgPutText(&row, stat.state != NULL ? stat.state : "cpu");
	GgPut(&row, stat.counted, Int64GetDatum((int64) stat.queries_gpu));
	GgPut(&row, stat.counted, Int64GetDatum((int64) stat.queries_cpu));
	GgPutText(&row, Hint(valid, &contents, &stat, short_of));
	GgPutText(&row, contents.known ? GgAlgorithmName(contents.algorithm) : NULL);
	GgPut(&row, contents.calibration != NULL, Float8GetDatum(recall));
	GgPut(&row, contents.calibration != NULL,
		  TimestampTzGetDatum(contents.calibration != NULL ? contents.calibration->measured : 0));
	GgPutText(&row, contents.calibration != NULL ? NameOfBy(contents.calibration->by) : NULL);
	PG_RETURN_DATUM(GgRowDatum(tupdesc, &row, INDEXES_COLUMNS));
}

PG_FUNCTION_INFO_V1(gpugraph_stat_get_recall);

/* A row for each day on which an index's recall was measured, if the user may see its contents. */
Datum
gpugraph_stat_get_recall(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = GgInitRows(fcinfo, RECALL_COLUMNS);
	Oid			indexoid = PG_GETARG_OID(0);
	Oid			heapoid = get_rel_relkind(indexoid) == RELKIND_INDEX ?
		IndexGetRelation(indexoid, true) : InvalidOid;
	Contents	contents = {.bytes = -1};

	if (OidIsValid(heapoid))
		LookInto(indexoid, heapoid, &contents);
	for (uint32 i = 0; contents.calibration != NULL && i < contents.calibration->ndays; i++)
	{
		const GgCalibrationDay *day = &GgDaysOf(contents.calibration)[i];
		Datum		values[RECALL_COLUMNS] = {
			TimestampTzGetDatum(day->measured), Int32GetDatum((int32) day->queries),
			CStringGetTextDatum(NameOfBy(day->by)),
			BoolGetDatum(i > 0 && day[-1].sample != day->sample)
		};
		bool		nulls[RECALL_COLUMNS] = {0};

		for (int form = 0; form < GG_FORMS; form++)
		{
			nulls[4 + form] = day->recall[form] == 0;
			values[4 + form] = Float8GetDatum(day->recall[form] / (double) PG_UINT16_MAX);
		}
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
