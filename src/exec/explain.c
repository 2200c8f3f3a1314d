/*
 * explain.c
 *		What EXPLAIN tells of a scan of a gpugraph index, from PostgreSQL 18 on.
 *
 * "Distance Bound" are the conditions of the filter that end the scan (within.c).
 *
 * Numbers, with ANALYZE, are those of gpugraph_last_scan(), summed over all loops, as core's "Index
 * Searches" is.  A scan in a parallel worker is not seen: its notes end with the worker.
 */
#include "scan/scan.h"

#include "commands/explain.h"
#include "nodes/execnodes.h"
#include "nodes/makefuncs.h"
#include "utils/ruleutils.h"

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
	if (note->recall > 0)
	{
		ExplainPropertyUInteger("Candidate List", NULL, note->list, es);
		ExplainPropertyFloat("Expected Recall", NULL, note->recall, 4, es);
	}
	PrintCount("Exact Lists", note->exact_lists, es);
	PrintCount("Widenings", note->widenings, es);
	PrintCount("Rows Re-ranked", note->reranked, es);
	if (filter != NULL)
	{
		ExplainPropertyText("Filter Strategy", filter, es);
		ExplainPropertyUInteger("Matches", NULL, note->matches, es);
	}
}

/* The conditions that end the scan. */
static void
PrintBound(PlanState *planstate, List *ancestors, ExplainState *es)
{
	const IndexScan *plan = (const IndexScan *) planstate->plan;
	const bool	prefix = list_length(es->rtable) > 1 || es->verbose;
	List	   *clauses = NIL;
	ListCell   *cell;

	foreach(cell, plan->scan.plan.qual)
	{
		GgMonotone	monotone;

		if (list_length(plan->indexorderbyorig) == 1 &&
			GgEndsScan(lfirst(cell), linitial(plan->indexorderbyorig), &monotone))
			clauses = lappend(clauses, lfirst(cell));
	}
	if (clauses == NIL)
		return;
	ExplainPropertyText("Distance Bound",
						deparse_expression((Node *) make_ands_explicit(clauses),
										   set_deparse_context_plan(es->deparse_cxt,
																	planstate->plan, ancestors),
										   prefix, false), es);
}

static void
ExplainNode(PlanState *planstate, List *ancestors, const char *relationship, const char *plan_name,
			ExplainState *es)
{
	if (prev_hook != NULL)
		prev_hook(planstate, ancestors, relationship, plan_name, es);
	if (IsA(planstate, IndexScanState))
	{
		const IndexScanState *scan = (const IndexScanState *) planstate;
		GgScanNote	note;

		if (!GgIsGpugraphIndex(((const IndexScan *) planstate->plan)->indexid))
			return;
		PrintBound(planstate, ancestors, es);
		if (!es->analyze || scan->iss_ScanDesc == NULL)
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
