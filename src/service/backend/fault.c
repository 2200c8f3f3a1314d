/*
 * fault.c
 *		Faults that tests make in merges and in VACUUM (gpugraph.fault).
 */
#include "service/shared/service.h"
#include "service/shared/shmem.h"

#include "access/transam.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"

/* Transaction ids that are assigned before the process goes on. */
#define HELD_XIDS		10

/* A test that fails does not hold a process for ever. */
#define MOST_HELD_US	90000000

#define STEP_US			1000

/* Rest until HELD_XIDS were assigned.  The metapage is locked, so no interrupts are served. */
static void
Hold(void)
{
	uint64		start = GgNowMicros();
	uint64		until = U64FromFullTransactionId(ReadNextFullTransactionId()) + HELD_XIDS;

	elog(LOG, "gpugraph.fault: blocks are about to be given back");
	while (U64FromFullTransactionId(ReadNextFullTransactionId()) < until &&
		   GgNowMicros() - start < MOST_HELD_US)
		pg_usleep(STEP_US);
}

uint64
GgParkingFault(uint64 xid)
{
	if (gg_fault == GG_FAULT_PARKING_HOLD)
		Hold();
	return gg_fault == GG_FAULT_PARKING_NONE ? 0 : xid;
}

void
GgHold(GgFault fault)
{
	Datum		key = Int32GetDatum((int32) fault - GG_FAULT_HOLD_MERGE);

	if (gg_fault != (int) fault)
		return;
	(void) DirectFunctionCall2(pg_advisory_lock_int4, Int32GetDatum(0), key);
	(void) DirectFunctionCall2(pg_advisory_unlock_int4, Int32GetDatum(0), key);
}

/* Rest until an interrupt would end the statement.  It is not served: a callback does not throw. */
static void
RestUntilEnded(void)
{
	uint64		start = GgNowMicros();

	while (!GgInterruptEnds() && GgNowMicros() - start < MOST_HELD_US)
		pg_usleep(STEP_US);
}

void
GgLearnFault(void)
{
	if (gg_fault == GG_FAULT_LEARN_HOLD)
		RestUntilEnded();
}

/*
 * As many slices would, this looks for interrupts all the time, and whether somebody wants the
 * database.  It rests only within an engine's callback, which holds interrupts.
 */
void
GgWithinFault(void)
{
	uint64		start = GgNowMicros();

	if (gg_fault != GG_FAULT_WITHIN_HOLD || InterruptHoldoffCount == 0)
		return;
	elog(LOG, "gpugraph.fault: a merge within another one rests");
	while (GgNowMicros() - start < MOST_HELD_US && !GgDatabaseIsWanted())
	{
		GgCheckInterrupts();
		pg_usleep(STEP_US);
	}
	elog(LOG, "gpugraph.fault: it goes on");
}

void
GgWithinLockedFault(void)
{
	if (gg_fault == GG_FAULT_WITHIN_ERROR)
		elog(ERROR, "gpugraph.fault: a merge within another one fails");
}

/* An engine looks every 100 ms whether it has to return; here it rests until a cancel. */
void
GgWithinEndedFault(void)
{
	if (gg_fault != GG_FAULT_WITHIN_ERROR)
		return;
	elog(LOG, "gpugraph.fault: an engine is slow to return");
	RestUntilEnded();
	elog(LOG, "gpugraph.fault: the engine returns");
}
