/*
 * tell_scan.c
 *		A scan is told how many rows the executor will ask it for.
 *
 * The number goes into the scan key of the order.  The upper bits of sk_flags are the access
 * method's own (access/skey.h).  ggrescan() receives them with the key.
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

void
GgTellScan(IndexScanState *scan, uint32 limit)
{
	const Plan *plan = scan->ss.ps.plan;
	double		rows;

	if (scan->iss_NumOrderByKeys != 1 || (plan->qual == NIL && limit == 0) ||
		!GgIsGpugraph(scan->iss_RelationDesc))
		return;
	if (plan->qual == NIL)
	{
		GgTellLimit(&scan->iss_OrderByKeys[0], limit);
		return;
	}
	rows = scan->ss.ss_currentRelation->rd_rel->reltuples;
	scan->iss_OrderByKeys[0].sk_flags |=
		GgRowsToExpect(rows, plan->plan_rows, limit > 0 ? limit : GG_EXPECTED_ANSWERS) <<
		GG_EXPECTED_SHIFT;
}
