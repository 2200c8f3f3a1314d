/*
 * recall.c
 *		gpugraph_recall(), gpugraph_itopk_size(): how good answers are at each length of the
 *		candidate list.
 *
 * The queries are given, or some visible rows of the index, chosen at random with a fixed seed.
 * Such a row is asked as if it were not there: its own edges lead to its neighbours, which a new
 * query has to find without.
 *
 * Each is answered once by measuring every row, and then at each length as ORDER BY with a LIMIT
 * answers it under the session's settings.  A row counts as found when it is as near as the last
 * row of the exact answer, so rows at equal distances do not matter.
 */
#include "many/resolve.h"

#include <math.h>

#include "access/tableam.h"
#include "common/pg_prng.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

#define SAMPLE_SEED			UINT64CONST(20231)

/* Places tried for each row of the sample: most of them may have dead rows. */
#define MOST_TRIES			20

#define MOST_SAMPLE			100000

/* The lengths that are tried: 16, 32, ... 1024. */
#define FIRST_LENGTH		16

typedef struct Sample
{
	GgTarget	target;
	GgCaller	caller;
	uint64		k;
	int			count;
	Datum	   *queries;
	GgNode	   *nodes;			/* of queries that are rows; NULL: queries are given */
	double	   *farthest;		/* distance of the last row of each exact answer */
	uint64	   *rows;			/* how many each exact answer has */
	uint64		all_rows;
	double	   *times_ms;		/* of the answers at one length, ascending */
} Sample;

/* ---- the queries --------------------------------------------------------- */

/* Take the row at that place as a query, if there is one that the snapshot sees. */
static void
TakePlace(GgRowSample *rows, GgFinder *finder, IndexFetchTableData *fetch, TupleTableSlot *slot,
		  GgLists *lists, uint64 place)
{
	ItemPointerData tid;
	bool		call_again = false;
	Datum		value;

	if (GgReadRows(lists, place, 1, &tid) == 0 ||
		!ItemPointerIsValid(&tid) ||
		!table_index_fetch_tuple(fetch, &tid, GetActiveSnapshot(), slot, &call_again, NULL))
		return;
	value = GgIndexedValue(finder, slot);
	rows->nodes[rows->count] = GgNodeAt(lists, place);
	rows->queries[rows->count++] =
		datumCopy(PointerGetDatum(PG_DETOAST_DATUM(value)), false, -1);
	ResetPerTupleExprContext(finder->estate);
}

void
GgTakeRowSample(GgFinder *finder, uint64 seed, int most, GgRowSample *rows)
{
	GgMetaPageData *meta = GgReadDirectory(finder->target->index);
	TupleTableSlot *slot = table_slot_create(finder->target->heap, NULL);
	IndexFetchTableData *fetch = GgBeginFetch(finder->target->heap);
	pg_prng_state random;
	uint64		places;
	uint64		tries;
	bool		few;
	GgLists		lists;

	rows->count = 0;
	rows->queries = palloc(most * sizeof(Datum));
	rows->nodes = palloc(most * sizeof(GgNode));
	GgOpenLists(&lists, finder->target, meta);
	places = GgCountRows(&lists);
	pg_prng_seed(&random, seed);

	/* of a few places none is tried twice */
	few = places <= (uint64) most * 2;
	tries = Min(places, (uint64) most * MOST_TRIES);
	for (uint64 i = 0; i < tries && rows->count < most; i++)
		if (!few)
			TakePlace(rows, finder, fetch, slot, &lists,
					  pg_prng_uint64_range(&random, 0, places - 1));
		else if (pg_prng_double(&random) * (places - i) < most - rows->count)
			TakePlace(rows, finder, fetch, slot, &lists, i);
	table_index_fetch_end(fetch);
	ExecDropSingleTupleTableSlot(slot);
	pfree(meta);
}

void
GgSetSetting(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
}

static void
Find(const Sample *sample, GgFinder *finder, int query)
{
	if (sample->nodes != NULL)
		GgLeaveRowOut(finder, &sample->nodes[query]);
	GgFind(finder, sample->queries[query], sample->k);
}

static void
AnswerExactly(Sample *sample, GgFinder *finder)
{
	sample->farthest = palloc(Max(sample->count, 1) * sizeof(double));
	sample->rows = palloc(Max(sample->count, 1) * sizeof(uint64));
	sample->times_ms = palloc(Max(sample->count, 1) * sizeof(double));
	for (int i = 0; i < sample->count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		Find(sample, finder, i);
		sample->rows[i] = finder->nrows;
		sample->all_rows += finder->nrows;
		if (finder->nrows > 0)
			sample->farthest[i] = finder->rows[finder->nrows - 1].distance;
	}
}

/* Open the index, and answer queries exactly: those that are given, or so many rows of it. */
static void
OpenSample(Sample *sample, Oid indexoid, int32 k, AnyArrayType *given, int32 count)
{
	GgQueryArray queries;
	GgRowSample rows;
	GgFinder	finder;

	GgCheckK(k);
	if (given == NULL && (count < 1 || count > MOST_SAMPLE))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("sample must be from 1 to %d, not %d", MOST_SAMPLE, count),
				 errhint("sample is the number of rows to search for; 100 tell recall to "
						 "a percent or so.")));
	memset(sample, 0, sizeof(*sample));
	sample->k = k;
	GgOpenTarget(indexoid, &sample->target);
	if (given != NULL)
		GgReadQueryArray(&sample->target, given, &queries);
	GgActAsOwner(sample->target.heap, &sample->caller);
	GgOpenFinder(&finder, &sample->target, true);
	if (given == NULL)
		GgTakeRowSample(&finder, SAMPLE_SEED, count, &rows);
	sample->queries = given != NULL ? queries.values : rows.queries;
	sample->nodes = given != NULL ? NULL : rows.nodes;
	sample->count = given != NULL ? queries.count : rows.count;
	AnswerExactly(sample, &finder);
	GgCloseFinder(&finder);
}

static void
CloseSample(Sample *sample)
{
	GgActAsCaller(&sample->caller);
	GgCloseTarget(&sample->target);
}

/* ---- answers at one length ----------------------------------------------- */

static int
CompareTimes(const void *a, const void *b)
{
	double		x = *(const double *) a,
				y = *(const double *) b;

	return (x > y) - (x < y);
}

/* The time that this share of all answers took at most. */
static double
Percentile(const Sample *sample, double share)
{
	return sample->times_ms[(int) ceil(share * sample->count) - 1];
}

double
GgFarthestFound(gg_metric metric, double farthest)
{
	return farthest + 1e-6 * (metric == GG_METRIC_COSINE ? 1 : fabs(farthest));
}

static uint64
CountFound(const Sample *sample, const GgFinder *finder, int query)
{
	const double farthest = GgFarthestFound(sample->target.opclass->metric,
											sample->farthest[query]);
	uint64		found = 0;

	while (found < finder->nrows && !(finder->rows[found].distance > farthest))
		found++;
	/* a merge may have given the query's row another node meanwhile, and it finds itself again */
	return Min(found, sample->rows[query]);
}

/* Recall at this length of the candidate list; sets times_ms. */
static double
MeasureRecall(Sample *sample, int itopk_size)
{
	int			nest_level = NewGUCNestLevel();
	uint64		found = 0;
	GgFinder	finder;

	GgSetSetting("gpugraph.itopk_size", psprintf("%d", itopk_size));
	GgSetSetting("gpugraph.target_recall", "0");
	GgOpenFinder(&finder, &sample->target, false);
	for (int i = 0; i < sample->count; i++)
	{
		instr_time	start,
					duration;

		CHECK_FOR_INTERRUPTS();
		INSTR_TIME_SET_CURRENT(start);
		Find(sample, &finder, i);
		INSTR_TIME_SET_CURRENT(duration);
		INSTR_TIME_SUBTRACT(duration, start);
		sample->times_ms[i] = INSTR_TIME_GET_MILLISEC(duration);
		found += CountFound(sample, &finder, i);
	}
	GgCloseFinder(&finder);
	AtEOXact_GUC(false, nest_level);
	qsort(sample->times_ms, sample->count, sizeof(double), CompareTimes);
	return (double) found / Max(sample->all_rows, 1);
}

/* A row for each length. */
static Datum
PutRecall(FunctionCallInfo fcinfo, int32 k, AnyArrayType *given, int32 count)
{
	const ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Sample		sample;

	InitMaterializedSRF(fcinfo, 0);
	OpenSample(&sample, PG_GETARG_OID(0), k, given, count);
	/* so that the time of the first length is not that of reading the graph into memory */
	(void) MeasureRecall(&sample, GG_MAX_ITOPK);
	for (int length = FIRST_LENGTH; sample.count > 0 && length <= GG_MAX_ITOPK; length *= 2)
	{
		Datum		values[4];
		bool		nulls[4] = {false, false, false, false};

		values[0] = Int32GetDatum(length);
		values[1] = Float8GetDatum(MeasureRecall(&sample, length));
		values[2] = Float8GetDatum(Percentile(&sample, 0.5));
		values[3] = Float8GetDatum(Percentile(&sample, 0.95));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	CloseSample(&sample);
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(gpugraph_recall);

Datum
gpugraph_recall(PG_FUNCTION_ARGS)
{
	return PutRecall(fcinfo, PG_GETARG_INT32(1), NULL, PG_GETARG_INT32(2));
}

PG_FUNCTION_INFO_V1(gpugraph_recall_of_queries);

Datum
gpugraph_recall_of_queries(PG_FUNCTION_ARGS)
{
	return PutRecall(fcinfo, PG_GETARG_INT32(2), PG_GETARG_ANY_ARRAY_P(1), 0);
}

/*
 * The shortest length that suffices; NULL where none does, or there is no query.  Doubles the
 * length until it is enough, and then halves the step, down to a sixteenth of the length.
 */
static Datum
FindLength(FunctionCallInfo fcinfo, double wanted, int32 k, AnyArrayType *given, int32 count)
{
	int			length = FIRST_LENGTH;
	Sample		sample;

	if (!(wanted > 0 && wanted <= 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("recall must be above 0 and at most 1, not %g", wanted),
				 errhint("0.99 means that 99 of 100 true neighbors are found.")));
	OpenSample(&sample, PG_GETARG_OID(0), k, given, count);
	while (sample.count > 0 && length <= GG_MAX_ITOPK && MeasureRecall(&sample, length) < wanted)
		length *= 2;
	if (sample.count == 0 || length > GG_MAX_ITOPK)
		length = 0;
	/* length - 2 * step, which was tried, is too short */
	for (int step = length / 4; length > FIRST_LENGTH && step >= length / 16; step /= 2)
		if (MeasureRecall(&sample, length - step) >= wanted)
			length -= step;
	CloseSample(&sample);
	if (length == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT32(length);
}

PG_FUNCTION_INFO_V1(gpugraph_itopk_size);

Datum
gpugraph_itopk_size(PG_FUNCTION_ARGS)
{
	return FindLength(fcinfo, PG_GETARG_FLOAT8(2), PG_GETARG_INT32(1), NULL, PG_GETARG_INT32(3));
}

PG_FUNCTION_INFO_V1(gpugraph_itopk_size_of_queries);

Datum
gpugraph_itopk_size_of_queries(PG_FUNCTION_ARGS)
{
	return FindLength(fcinfo, PG_GETARG_FLOAT8(3), PG_GETARG_INT32(2), PG_GETARG_ANY_ARRAY_P(1), 0);
}
