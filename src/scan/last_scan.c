/*
 * last_scan.c
 *		What scans did: notes for EXPLAIN and for gpugraph_last_scan().
 *
 * A note says what one scan did, or is the sum of many: of all that a node of a plan began, or of
 * all searches in one call of gpugraph_search().
 */
#include "scan/scan.h"

#include "catalog/index.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/rls.h"

#define LAST_SCAN_COLUMNS	15

static GgScanNote last_scan;

void
GgAddNote(GgScanNote *sum, const GgScanNote *note)
{
	if (note->queries == 0)
		return;
	sum->index = note->index;
	if (note->by_device < note->queries)
		sum->reason = note->reason;
	sum->queries += note->queries;
	sum->by_device += note->by_device;
	sum->by_both += note->by_both;
	sum->lists += note->lists;
	sum->exact_lists += note->exact_lists;
	sum->procedures |= note->procedures;
	sum->widenings += note->widenings;
	sum->filtered |= note->filtered;
	sum->matches += note->matches;
	sum->rows += note->rows;
	sum->distances += note->distances;
	sum->reranked += note->reranked;
	sum->list = note->list;
	sum->recall = note->recall;
}

GgProcedure
GgProcedureOf(gg_search_mode mode)
{
	return mode == GG_SEARCH_TSDG_SMALL ? GG_TSDG_SMALL :
		mode == GG_SEARCH_TSDG_LARGE ? GG_TSDG_LARGE : GG_BEST_FIRST;
}

/* Were all matching rows of the stream measured? */
static bool
IsExact(const GgScanOpaque *so, const GgStream *stream)
{
	if (stream->ops == &gg_device_stream)
	{
		uint32		bit = stream->segment == NULL ? 0 :
			(uint32) 1 << (stream->segment - so->meta->segments);

		return bit == 0 || so->device.deep ||
			(so->filter != NULL ? (so->device.walked & bit) == 0 : (so->device.exact & bit) != 0);
	}
	return stream->ops == &gg_exact_stream;
}

/* Make the note of a scan that is under way. */
static void
MakeNote(const GgScanOpaque *so, GgScanNote *note)
{
	memset(note, 0, sizeof(*note));
	note->index = RelationGetRelid(so->index);
	note->queries = 1;
	note->reason = GgAnsweredBy(so);
	note->by_device = note->reason == GG_REASON_NONE;
	note->by_both = note->reason == GG_REASON_PARTIAL;
	note->lists = so->nstreams;
	note->widenings = so->widenings;
	note->filtered = so->filter != NULL;
	note->rows = so->nrows;
	note->distances = so->distances;
	note->reranked = so->reranked;
	note->list = so->params.itopk_size;
	note->recall = (float) GgExpectedRecall(so);
	for (int i = 0; i < so->nstreams; i++)
	{
		const GgStream *stream = &so->streams[i];

		if (IsExact(so, stream))
			note->exact_lists++;
		else
			note->procedures |= GgProcedureOf(so->params.mode);
		note->matches += stream->matches;
	}
	if (note->recall > 0 && note->exact_lists == note->lists)
		note->recall = 1;
}

void
GgNoteScan(GgScanOpaque *so)
{
	MakeNote(so, &last_scan);
	GgAddNote(&so->ended, &last_scan);
}

void
GgNoteOf(const GgScanOpaque *so, GgScanNote *sum)
{
	*sum = so->ended;
	if (so->started)
	{
		GgScanNote	note;

		MakeNote(so, &note);
		GgAddNote(sum, &note);
	}
}

void
GgNoteCall(const GgScanNote *note)
{
	if (note->queries > 0)
		last_scan = *note;
}

const char *
GgNoteEngine(const GgScanNote *note)
{
	if (note->by_device == note->queries)
		return "gpu";
	return note->by_device + note->by_both == 0 ? "cpu" : "gpu, cpu";
}

const char *
GgNoteProcedure(const GgScanNote *note)
{
	static const char *const names[] = {
		NULL, "best_first", "tsdg_small", "best_first, tsdg_small", "tsdg_large",
		"best_first, tsdg_large", "tsdg_small, tsdg_large", "best_first, tsdg_small, tsdg_large"
	};

	return names[note->procedures];
}

const char *
GgNoteFilter(const GgScanNote *note)
{
	if (!note->filtered)
		return NULL;
	if (note->exact_lists == note->lists)
		return "exact";
	return note->exact_lists == 0 ? "walk" : "walk, exact";
}

/*
 * May the user read all rows and columns of the index's table?  The scan may have been that of a
 * function with another user's rights, and it goes past the rows that policies hide.
 */
static bool
MaySeeRows(Oid indexoid)
{
	Oid			heapoid = IndexGetRelation(indexoid, true);
	Oid			user = GetUserId();

	/* the table may have been dropped since */
	if (!OidIsValid(heapoid))
		return false;
	if (pg_class_aclcheck(heapoid, user, ACL_SELECT) != ACLCHECK_OK &&
		pg_attribute_aclcheck_all(heapoid, user, ACL_SELECT, ACLMASK_ALL) != ACLCHECK_OK)
		return false;
	return check_enable_rls(heapoid, InvalidOid, true) != RLS_ENABLED;
}

PG_FUNCTION_INFO_V1(gpugraph_last_scan);

Datum
gpugraph_last_scan(PG_FUNCTION_ARGS)
{
	const GgScanNote *note = &last_scan;
	TupleDesc	tupdesc = GgResultRow(fcinfo, LAST_SCAN_COLUMNS);
	GgRow		row = {0};
	bool		may_see;

	if (!OidIsValid(note->index))
		PG_RETURN_NULL();
	may_see = MaySeeRows(note->index);

	GgPut(&row, true, ObjectIdGetDatum(note->index));
	GgPutText(&row, GgNoteEngine(note));
	GgPutText(&row, note->by_device < note->queries ? GgReasonText(note->reason) : NULL);
	GgPutText(&row, GgNoteProcedure(note));
	GgPut(&row, true, Int64GetDatum((int64) note->queries));
	GgPut(&row, true, Int64GetDatum((int64) note->lists));
	GgPut(&row, true, Int64GetDatum((int64) note->exact_lists));
	GgPut(&row, true, Int64GetDatum((int64) note->widenings));
	GgPutText(&row, GgNoteFilter(note));

	/* numbers of rows, those that the user may not see among them */
	GgPut(&row, note->filtered && may_see, Int64GetDatum((int64) note->matches));
	GgPut(&row, may_see, Int64GetDatum((int64) note->rows));
	/* a device does not say how many it measured */
	GgPut(&row, note->by_device + note->by_both == 0 && may_see,
		  Int64GetDatum((int64) note->distances));
	GgPut(&row, true, Int64GetDatum((int64) note->reranked));
	GgPut(&row, true, Int32GetDatum((int32) note->list));
	GgPut(&row, note->recall > 0, Float8GetDatum(note->recall));
	PG_RETURN_DATUM(GgRowDatum(tupdesc, &row, LAST_SCAN_COLUMNS));
}
