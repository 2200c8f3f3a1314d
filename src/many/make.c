/*
 * make.c
 *		gpugraph_partition_by_centroid(): a table partitioned by centroid, and its centroids.
 *
 * The centroids come from a sample of another table's rows, by k-means.  All is made by SQL and as
 * the caller, who needs the privileges for it.
 */
#include "many/probes.h"

#include <math.h>

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/varlena.h"

/* Rows of the sample per partition, unless the caller says how many in all, or memory is short. */
#define SAMPLE_PER_PARTITION	100

#define KMEANS_ROUNDS	10
#define FETCH_ROWS		1000

typedef struct Sample
{
	Oid			source;
	const char *column;
	const GgOwn *own;
	bool		is_half;		/* the column is a halfvec, else a vector */
	bool		is_domain;		/* the column is of a domain over that type */
	bool		unit;			/* rows get unit length */
	uint32		partitions;
	bool		given;			/* the caller says how many rows are wanted */
	uint32		wanted;
	uint32		rows;
	uint32		dim;
	float	   *values;			/* rows x dim, with room for those that are wanted */
} Sample;

/* Where all is made. */
typedef struct Target
{
	const char *schema;
	const char *table;
	char	   *qualified;		/* the table, quoted */
	char	   *centroids;		/* the function, quoted, with its parentheses */
} Target;

/* ---- arguments ------------------------------------------------------------------- */

static bool
IsUnit(const char *metric)
{
	if (strcmp(metric, "cosine") == 0)
		return true;
	if (strcmp(metric, "l2") != 0 && strcmp(metric, "ip") != 0 && strcmp(metric, "l1") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("metric \"%s\" is unknown", metric),
				 errhint("Metrics are \"l2\", \"ip\", \"cosine\" and \"l1\".")));
	return false;
}

/* Note whether a type is vector or halfvec, or a domain over one.  False: it is neither. */
static bool
FindType(Sample *sample, Oid type)
{
	const Oid	base = getBaseType(type);

	sample->is_domain = base != type;
	sample->is_half = base == sample->own->types[1];
	return sample->is_half || base == sample->own->types[0];
}

static void
CheckType(Sample *sample, Oid type)
{
	if (!FindType(sample, type))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("column \"%s\" is of type %s, not vector or halfvec", sample->column,
						format_type_be(type)),
				 errhint("These are the types of extension vector, whatever others are called.")));
}

static void
CheckSource(Sample *sample)
{
	AttrNumber	attno = get_attnum(sample->source, sample->column);

	if (attno == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist", sample->column,
						get_rel_name(sample->source))));
	CheckType(sample, get_atttype(sample->source, attno));
}

static void
CheckNumbers(Sample *sample, int32 partitions, int32 rows)
{
	if (partitions < 2 || partitions > GG_MAX_CENTROIDS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%d is outside the valid range of partitions (2 .. %d)", partitions,
						GG_MAX_CENTROIDS)));
	if (rows != 0 && rows < partitions)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a sample of %d rows is too small for %d partitions", rows, partitions),
				 errhint("Leave the sample out for %d rows per partition.",
						 SAMPLE_PER_PARTITION)));
	sample->partitions = (uint32) partitions;
	sample->given = rows != 0;
	sample->wanted = rows != 0 ? (uint32) rows : (uint32) partitions * SAMPLE_PER_PARTITION;
}

/* The name of what is made, like that of any new table. */
static void
ParseTarget(text *name, Target *target)
{
	RangeVar   *range = makeRangeVarFromNameList(textToQualifiedNameList(name));
	Oid			schema = RangeVarGetCreationNamespace(range);
	char	   *function;

	/* the longest name that is made of it: NAME_centroids */
	if (strlen(range->relname) + strlen("_centroids") >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("name \"%s\" is too long", range->relname),
				 errhint("It is part of longer names; choose one of at most %d bytes.",
						 NAMEDATALEN - 1 - (int) strlen("_centroids"))));
	target->schema = get_namespace_name(schema);
	target->table = range->relname;
	function = psprintf("%s_centroids", range->relname);
	target->qualified = quote_qualified_identifier(target->schema, target->table);
	target->centroids = psprintf("%s()", quote_qualified_identifier(target->schema, function));
}

static char *
SourceName(const Sample *sample)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(sample->source)),
									  get_rel_name(sample->source));
}

/* ---- the sample --------------------------------------------------------------------- */

static void
SetLength(float *row, uint32 dim)
{
	double		square = 0;

	for (uint32 i = 0; i < dim; i++)
		square += (double) row[i] * row[i];
	for (uint32 i = 0; i < dim && square > 0; i++)
		row[i] = (float) (row[i] / sqrt(square));
}

/* A sample is kept in maintenance_work_mem. */
static void
FitMemory(Sample *sample)
{
	const uint64 most = (uint64) maintenance_work_mem * 1024 / (sample->dim * sizeof(float));
	const uint32 least = sample->given ? sample->wanted : sample->partitions;

	if (most < least)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("maintenance_work_mem has no room for a sample of %u rows", least),
				 errhint("Raise maintenance_work_mem to %u MB at least.",
						 (uint32) ((uint64) least * sample->dim * sizeof(float) >> 20) + 1)));
	sample->wanted = (uint32) Min(sample->wanted, most);
}

static void
AddRow(Sample *sample, Datum value)
{
	uint32		dim;
	float	   *row = GgVectorValues(value, sample->is_half, &dim);

	if (sample->rows == 0)
	{
		sample->dim = dim;
		FitMemory(sample);
		sample->values = MemoryContextAllocHuge(CurrentMemoryContext,
												(Size) sample->wanted * dim * sizeof(float));
	}
	else if (dim != sample->dim)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("vectors of column \"%s\" have %u and %u dimensions", sample->column,
						sample->dim, dim)));
	if (sample->unit)
		SetLength(row, dim);
	memcpy(sample->values + (Size) sample->rows++ * dim, row, dim * sizeof(float));
	pfree(row);
}

/* Draw the sample by a query.  The caller's privileges and row-level security apply. */
static void
DrawSample(Sample *sample)
{
	MemoryContext context = CurrentMemoryContext;
	const char *column = quote_identifier(sample->column);
	char	   *table = SourceName(sample);
	Portal		portal;
	SPIPlanPtr	plan;

	SPI_connect();
	plan = SPI_prepare(psprintf("SELECT %s FROM %s WHERE %s IS NOT NULL "
								"ORDER BY pg_catalog.random() LIMIT %u",
								column, table, column, sample->wanted), 0, NULL);
	if (plan == NULL)
		elog(ERROR, "could not prepare the sample: %s", SPI_result_code_string(SPI_result));
	portal = SPI_cursor_open(NULL, plan, NULL, NULL, true);
	do
	{
		SPI_cursor_fetch(portal, true, FETCH_ROWS);
		/* the table was not locked when its type was looked up */
		CheckType(sample, SPI_gettypeid(SPI_tuptable->tupdesc, 1));
		for (uint64 i = 0; i < SPI_processed && sample->rows < sample->wanted; i++)
		{
			bool		isnull;
			Datum		value = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1,
											  &isnull);
			MemoryContext old = MemoryContextSwitchTo(context);

			AddRow(sample, value);
			MemoryContextSwitchTo(old);
		}
		SPI_freetuptable(SPI_tuptable);
	} while (SPI_processed > 0 && sample->rows < sample->wanted);
	SPI_cursor_close(portal);
	SPI_finish();
	if (sample->rows < sample->partitions)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has too few rows with a vector for %u partitions",
						get_rel_name(sample->source), sample->partitions),
				 errhint("Partition it once it has rows like those that are to come, some hundred "
						 "for each partition.")));
}

/* The centroids, as the text of an array. */
static char *
MakeCentroids(const Sample *sample)
{
	const Size	bytes = (Size) sample->partitions * sample->dim * sizeof(float);
	float	   *centroids = MemoryContextAllocHuge(CurrentMemoryContext, bytes);
	bool		caught = false;
	gg_control	control = {
		.cancelled = GgIsInterrupted, .ctx = &caught, .threads = max_parallel_workers_per_gather + 1
	};
	gg_kmeans_params params = {
		.k = sample->partitions, .rounds = KMEANS_ROUNDS, .seed = 1, .unit = sample->unit
	};
	gg_status	status = gg_kmeans(sample->values, sample->rows, sample->dim, &params, &control,
								   centroids);
	StringInfoData text;

	GgThrowInterrupts(caught);
	GgCheckStatus(&status, "choosing centroids");
	initStringInfo(&text);
	for (uint32 c = 0; c < sample->partitions; c++)
	{
		appendStringInfoString(&text, c == 0 ? "{\"[" : ",\"[");
		for (uint32 i = 0; i < sample->dim; i++)
			appendStringInfo(&text, "%s%.8g", i == 0 ? "" : ",",
							 (double) centroids[(Size) c * sample->dim + i]);
		appendStringInfoString(&text, "]\"");
	}
	appendStringInfoChar(&text, '}');
	return text.data;
}

/* ---- what is made --------------------------------------------------------------------- */

static void
Run(const char *statement)
{
	if (SPI_execute(statement, false, 0) < 0)
		elog(ERROR, "could not run: %s", statement);
}

/* Of a type, quoted. */
static char *
NameOfType(Oid type)
{
	return format_type_extended(type, -1, FORMAT_TYPE_FORCE_QUALIFY);
}

/* Of a function, quoted, without its arguments. */
static char *
NameOfFunction(Oid function)
{
	return quote_qualified_identifier(get_namespace_name(get_func_namespace(function)),
									  get_func_name(function));
}

/* The column as an argument, of its base type: for its domain another function might be called. */
static char *
KeyColumn(const Sample *sample)
{
	const char *column = quote_identifier(sample->column);

	return sample->is_domain ?
		psprintf("%s::%s", column, NameOfType(sample->own->types[sample->is_half])) :
		pstrdup(column);
}

/* The function, the table and its partitions. */
static void
MakeTables(const Sample *sample, const Target *target, const char *centroids)
{
	char	   *vector = NameOfType(sample->own->types[0]);

	SPI_connect();
	Run(psprintf("CREATE FUNCTION %s RETURNS %s[] LANGUAGE sql IMMUTABLE PARALLEL SAFE "
				 "AS $$SELECT '%s'::%s[]$$", target->centroids, vector, centroids, vector));
	Run(psprintf("CREATE TABLE %s (LIKE %s INCLUDING ALL EXCLUDING INDEXES EXCLUDING IDENTITY) "
				 "PARTITION BY LIST (%s(%s::pg_catalog.regprocedure, %s))", target->qualified,
				 SourceName(sample), NameOfFunction(sample->own->nearest[sample->is_half]),
				 quote_literal_cstr(target->centroids), KeyColumn(sample)));
	for (uint32 i = 1; i <= sample->partitions; i++)
	{
		char	   *name = psprintf("%s_%u", target->table, i);

		CHECK_FOR_INTERRUPTS();
		Run(psprintf("CREATE TABLE %s PARTITION OF %s FOR VALUES IN (%u)",
					 quote_qualified_identifier(target->schema, name), target->qualified, i));
	}
	SPI_finish();
}

PG_FUNCTION_INFO_V1(gpugraph_partition_by_centroid);

Datum
gpugraph_partition_by_centroid(PG_FUNCTION_ARGS)
{
	Sample		sample = {
		.source = PG_GETARG_OID(0), .column = NameStr(*PG_GETARG_NAME(1)),
		.own = GgFindOwn(fcinfo->flinfo->fn_oid),
		.unit = IsUnit(text_to_cstring(PG_GETARG_TEXT_PP(4)))
	};
	Target		target;
	char	   *centroids;

	if (get_rel_name(sample.source) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", sample.source)));
	CheckSource(&sample);
	CheckNumbers(&sample, PG_GETARG_INT32(3), PG_GETARG_INT32(5));
	ParseTarget(PG_GETARG_TEXT_PP(2), &target);
	DrawSample(&sample);
	centroids = MakeCentroids(&sample);
	MakeTables(&sample, &target, centroids);
	PG_RETURN_VOID();
}
