/*
 * wrong_order.c
 *		A damaged row that the executor notices, as an error that names index and block.
 *
 * In the operator's order the executor is given a bound with each row (bound.c).  Where the value
 * that it computes from the table is below the bound, the index has the row farther away than it
 * is: its vector was damaged, or its TID is another row's.  The executor says then that the index
 * returned tuples in wrong order, but not which index.
 */
#include "scan/scan.h"

#include "executor/executor.h"

static ExecutorRun_hook_type prev_hook = NULL;

/* The scan that has returned a row with a bound last, within the query that runs; or NULL. */
static const GgScanOpaque *last_scan = NULL;

void
GgNoteBound(const GgScanOpaque *so)
{
	/* functions of ours compare by themselves, and may run where no hook is called */
	if (!so->by_function)
		last_scan = so;
}

void
GgForgetBound(const GgScanOpaque *so)
{
	if (last_scan == so)
		last_scan = NULL;
}

/* The block that has the vector of the row, or where it begins. */
static BlockNumber
BlockOfRow(const GgScanOpaque *so)
{
	const GgStream *stream = so->current;
	const uint32 node = stream->head.node;
	const GgVectorPiece *piece;
	GgVectors	vectors;

	if (stream->segment == NULL)
		return GgArrayBlock(&so->delta, GgDeltaPageOf(so->meta, node));
	GgFindVectors(so->meta, stream->segment->id, &vectors);
	piece = GgPieceOf(&vectors, node);
	return GgArrayBlock(&piece->array,
						(uint64) (node - piece->first) * GgRowBytes(so->meta) / GG_PAGE_PAYLOAD);
}

/* If the error being handled is that of a wrong order, report the scan's last row instead. */
static void
ReportWrongOrder(const GgScanOpaque *so, MemoryContext context)
{
	ErrorData  *error;

	if (so == NULL || geterrcode() != ERRCODE_INTERNAL_ERROR)
		return;
	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	if (strcmp(error->message, "index returned tuples in wrong order") != 0)
		return;
	FlushErrorState();
	GgReportCorruption(so->index, BlockOfRow(so),
					   "a row of the table is nearer than the index has it");
}

static void
RunExecutor(GG_RUN_PARAMETERS)
{
	const GgScanOpaque *before = last_scan;
	MemoryContext context = CurrentMemoryContext;

	last_scan = NULL;
	PG_TRY();
	{
		if (prev_hook != NULL)
			prev_hook(GG_RUN_ARGUMENTS);
		else
			standard_ExecutorRun(GG_RUN_ARGUMENTS);
	}
	PG_CATCH();
	{
		const GgScanOpaque *so = last_scan;

		last_scan = before;
		ReportWrongOrder(so, context);
		PG_RE_THROW();
	}
	PG_END_TRY();
	last_scan = before;
}

void
GgInitWrongOrder(void)
{
	prev_hook = ExecutorRun_hook;
	ExecutorRun_hook = RunExecutor;
}
