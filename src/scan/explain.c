/*
 * explain.c
 *		What EXPLAIN ANALYZE tells of a scan of a gpugraph index, from PostgreSQL 18 on.
 *
 * Numbers are those of gpugraph_last_scan(), summed over all loops, as core's "Index Searches" is.
 * A scan in a parallel worker is not seen: its notes end with the worker.
 */
#include "scan/scan.h"

#include "commands/explain.h"
#include "nodes/execnodes.h"

static GgExplainNodeHook prev_hook = NULL;

/* Text leaves out what did not happen. */
static void
PrintCount(const char *label, uint64 count, ExplainState *es)
{
	if (count > 0 || es->format != EXPLAIN_FORMAT_TEXT)
		ExplainPropertyUInteger(label, NULL, count, es);
}

static void
PrintNote(const GgScanNote *note, ExplainState *es)
{
	const char *filter = GgNoteFilter(note);

	ExplainPropertyText("Engine", GgNoteEngine(note), es);
	if (note->by_device < note->queries)
		ExplainPropertyText("CPU Reason", GgReasonText(note->reason), es);
	if (note->procedures != 0)
		ExplainPropertyText("Search Procedure", GgNoteProcedure(note), es);
	ExplainPropertyUInteger("Lists", NULL, note->lists, es);
	PrintCount("Exact Lists", note->exact_lists, es);
	PrintCount("Widenings", note->widenings, es);
	PrintCount("Rows Re-ranked", note->reranked, es);
	if (filter != NULL)
	{
		ExplainPropertyText("Filter Strategy", filter, es);
		ExplainPropertyUInteger("Matches", NULL, note->matches, es);
	}
}

static void
ExplainNode(PlanState *planstate, List *ancestors, const char *relationship, const char *plan_name,
			ExplainState *es)
{
	if (prev_hook != NULL)
		prev_hook(planstate, ancestors, relationship, plan_name, es);
	if (es->analyze && IsA(planstate, IndexScanState))
	{
		const IndexScanState *scan = (const IndexScanState *) planstate;
		GgScanNote	note;

		if (scan->iss_ScanDesc == NULL || !GgIsGpugraph(scan->iss_RelationDesc))
			return;
		GgNoteOf((const GgScanOpaque *) scan->iss_ScanDesc->opaque, &note);
		if (note.queries > 0)
			PrintNote(&note, es);
	}
}

void
GgInitExplain(void)
{
	prev_hook = GgHookExplain(ExplainNode);
}
