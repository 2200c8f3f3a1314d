/*
 * result.c
 *		Rows of a fixed number of columns, which SQL functions return.
 *
 * After an update of the library a database has the functions of the version before until ALTER
 * EXTENSION gpugraph UPDATE.  Their rows have the first of our columns: versions add others behind
 * them (test/README, SQL objects).  A function that has more columns is of a later version.
 */
#include "base/base.h"

#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/tuplestore.h"

static void
CheckColumns(FunctionCallInfo fcinfo, TupleDesc desc, int columns)
{
	if (desc->natts > columns)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("function %s() is of a later version of gpugraph than its library",
						get_func_name(fcinfo->flinfo->fn_oid)),
				 errdetail("It returns %d columns, and the library has %d.", desc->natts, columns),
				 errhint("Install the later version, and restart the server.")));
}

TupleDesc
GgResultRow(FunctionCallInfo fcinfo, int columns)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	CheckColumns(fcinfo, desc, columns);
	return BlessTupleDesc(desc);
}

ReturnSetInfo *
GgInitRows(FunctionCallInfo fcinfo, int columns)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	CheckColumns(fcinfo, result->setDesc, columns);
	return result;
}

void
GgPutText(GgRow *row, const char *text)
{
	const bool	known = text != NULL && text[0] != '\0';

	GgPut(row, known, known ? CStringGetTextDatum(text) : (Datum) 0);
}

Datum
GgRowDatum(TupleDesc desc, GgRow *row, int columns)
{
	Assert(row->count == columns);
	return HeapTupleGetDatum(heap_form_tuple(desc, row->values, row->nulls));
}

void
GgAddRow(ReturnSetInfo *result, GgRow *row, int columns)
{
	Assert(row->count == columns);
	tuplestore_putvalues(result->setResult, result->setDesc, row->values, row->nulls);
}
