/*
 * tell_scan.c
 *		A scan is told how many rows the executor will ask it for.
 *
 * The number goes into the scan key of the order.  The upper bits of sk_flags are the access
 * method's own (access/skey.h).  ggrescan() receives them with the key.  Nobody calls the function
 * of an index scan's key, so there is a place for a pointer, too.  It leads to the LIMIT, and to
 * what the filter says: conditions that end the scan (within.c), and sets (told_sets.c).
 */
#include "scan/scan.h"

#include "base/base.h"

#include "nodes/execnodes.h"

void
GgTellLimit(ScanKey key, uint64 limit)
{
	const uint32 expected = (uint32) Min(limit, GG_MOST_EXPECTED) | GG_EXPECTED_LIMIT;

	key->sk_flags &= (1 << GG_EXPECTED_SHIFT) - 1;
	key->sk_flags |= (int) (expected << GG_EXPECTED_SHIFT);
}

/* What the scan was told, with room for more. */
static GgTold *
ToldOf(IndexScanState *scan)
{
	FmgrInfo   *function = &scan->iss_OrderByKeys->sk_func;

	if (function->fn_extra == NULL)
		function->fn_extra = MemoryContextAllocZero(scan->ss.ps.state->es_query_cxt,
													sizeof(GgTold));
	return function->fn_extra;
}

/*
 * Tell the scan of conditions that end it, and of sets.  False: there is nothing in the filter but
 * what ends the scan, so that it drops no row before the last one that passes.
 */
static bool
TellConditions(IndexScanState *scan)
{
	MemoryContext old = MemoryContextSwitchTo(scan->ss.ps.state->es_query_cxt);
	bool		all = false;
	GgWithin   *within = GgIsEnabled(GG_DISTANCE_BOUND) ? GgMakeWithin(scan, &all) : NULL;
	List	   *sets = scan->ss.ps.subPlan != NIL && GgIsEnabled(GG_TOLD_SETS) ?
		GgFindSets(scan) : NIL;

	if (within != NULL)
		ToldOf(scan)->within = within;
	if (sets != NIL)
		ToldOf(scan)->sets = sets;
	MemoryContextSwitchTo(old);
	return !all;
}

void
GgTellScan(IndexScanState *scan, const GgAsked *asked)
{
	const Plan *plan = scan->ss.ps.plan;
	ScanKey		key = scan->iss_OrderByKeys;
	bool		drops = plan->qual != NIL;
	double		rows;

	if (scan->iss_NumOrderByKeys != 1 || !GgIsGpugraph(scan->iss_RelationDesc))
		return;
	if (plan->qual != NIL)
		drops = TellConditions(scan);
	if (!drops && asked->rows > 0)
	{
		GgTellLimit(key, asked->rows);
		if (asked->of_many)
			key->sk_flags |= (int) ((uint32) GG_EXPECTED_MORE << GG_EXPECTED_SHIFT);
		return;
	}
	key->sk_flags &= (1 << GG_EXPECTED_SHIFT) - 1;
	if (drops)
	{
		rows = scan->ss.ss_currentRelation->rd_rel->reltuples;
		key->sk_flags |= GgRowsToExpect(rows, plan->plan_rows,
										asked->rows > 0 ? asked->rows :
										GG_EXPECTED_ANSWERS) <<
			GG_EXPECTED_SHIFT;
	}
	if (asked->limit != NULL)
		ToldOf(scan)->limit = asked->limit;
}

void
GgReadExpected(GgScanOpaque *so, ScanKey key)
{
	const uint32 expected = (uint32) key->sk_flags >> GG_EXPECTED_SHIFT;
	const GgTold *told = key->sk_func.fn_extra;

	so->expected = so->limit = 0;
	so->one_of_many = false;
	so->above = told == NULL ? NULL : told->limit;
	if (so->above != NULL)
		so->passed_before = so->above->position;
	if ((expected & GG_EXPECTED_LIMIT) != 0)
	{
		so->limit = expected & GG_MOST_EXPECTED;
		so->one_of_many = (expected & GG_EXPECTED_MORE) != 0;
		return;
	}
	so->expected = expected & GG_MOST_EXPECTED;
}

/*
 * By the share that has passed so far.  Half a row is added, so that none of a few rows means that
 * one passes of twice as many.
 */
double
GgRowsUntilLimit(const GgScanOpaque *so)
{
	double		passed,
				wanted;

	if (so->nrows == 0 || so->one_of_many)
		return 0;
	if (so->limit > 0)
		return so->limit > so->nrows ? so->limit : 0;
	if (so->above == NULL || so->above->noCount)
		return 0;
	passed = Max(so->above->position - so->passed_before, 0);
	wanted = (double) so->above->offset + so->above->count - so->above->position;
	return wanted > 0 ? so->nrows * (1 + wanted / (passed + 0.5)) : 0;
}
