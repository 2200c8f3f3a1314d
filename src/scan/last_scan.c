/*
 * last_scan.c
 *		gpugraph_last_scan(): what the session's last scan of a gpugraph index did.
 */
#include "scan/scan.h"

#include "funcapi.h"
#include "utils/builtins.h"

#define LAST_SCAN_COLUMNS	10

static struct
{
	Oid			index;			/* invalid: there was none */
	GgReason	reason;
	int			lists;
	int			exact_lists;
	uint32		widenings;
	bool		filtered;
	uint64		matches;		/* nodes of segments */
	uint64		rows;
	uint64		distances;
}			last_scan;

void
GgNoteScan(const GgScanOpaque *so)
{
	last_scan.index = RelationGetRelid(so->index);
	last_scan.reason = GgAnsweredBy(so);
	last_scan.lists = so->nstreams;
	last_scan.exact_lists = 0;
	last_scan.filtered = so->filter != NULL;
	last_scan.matches = 0;
	for (int i = 0; i < so->nstreams; i++)
	{
		const GgStream *stream = &so->streams[i];

		last_scan.exact_lists += stream->ops == &gg_exact_stream;
		if (stream->matching != NULL)
			last_scan.matches += stream->nmatching;
	}
	last_scan.widenings = so->widenings;
	last_scan.rows = so->nrows;
	last_scan.distances = so->distances;
}

/* How the rows that match were found. */
static const char *
FilterStrategy(void)
{
	if (last_scan.exact_lists == last_scan.lists)
		return "exact";
	return last_scan.exact_lists == 0 ? "walk" : "walk, exact";
}

PG_FUNCTION_INFO_V1(gpugraph_last_scan);

Datum
gpugraph_last_scan(PG_FUNCTION_ARGS)
{
	bool		on_device = last_scan.reason == GG_REASON_NONE;
	const char *engine = on_device ? "gpu" : last_scan.reason == GG_REASON_PARTIAL ? "both" : "cpu";
	TupleDesc	tupdesc;
	Datum		values[LAST_SCAN_COLUMNS] = {0};
	bool		nulls[LAST_SCAN_COLUMNS] = {0};
	int			c = 0;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (!OidIsValid(last_scan.index))
		PG_RETURN_NULL();

	values[c++] = ObjectIdGetDatum(last_scan.index);
	values[c++] = CStringGetTextDatum(engine);
	if (on_device)
		nulls[c++] = true;
	else
		values[c++] = CStringGetTextDatum(GgReasonText(last_scan.reason));
	values[c++] = Int32GetDatum(last_scan.lists);
	values[c++] = Int32GetDatum(last_scan.exact_lists);
	values[c++] = Int32GetDatum((int32) last_scan.widenings);
	nulls[c] = nulls[c + 1] = !last_scan.filtered;
	values[c++] = CStringGetTextDatum(FilterStrategy());
	values[c++] = Int64GetDatum((int64) last_scan.matches);
	values[c++] = Int64GetDatum((int64) last_scan.rows);
	/* a device does not say */
	if (on_device)
		nulls[c++] = true;
	else
		values[c++] = Int64GetDatum((int64) last_scan.distances);
	Assert(c == LAST_SCAN_COLUMNS);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}
