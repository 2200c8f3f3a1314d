/*
 * fault.c
 *		Faults that tests make where blocks are given back (gpugraph.fault).
 */
#include "service/service.h"
#include "service/shmem.h"

#include "access/transam.h"

/* Transaction ids that are assigned before the process goes on. */
#define HELD_XIDS		10

/* A test that fails does not keep the metapage locked for ever. */
#define MOST_HELD_US	60000000

/* The metapage is locked, so no interrupts are served. */
static void
Hold(void)
{
	uint64		start = GgNowMicros();
	uint64		until = U64FromFullTransactionId(ReadNextFullTransactionId()) + HELD_XIDS;

	elog(LOG, "gpugraph.fault: blocks are about to be given back");
	while (U64FromFullTransactionId(ReadNextFullTransactionId()) < until &&
		   GgNowMicros() - start < MOST_HELD_US)
		pg_usleep(1000);
}

uint64
GgParkingFault(uint64 xid)
{
	if (gg_fault == GG_FAULT_PARKING_HOLD)
		Hold();
	return gg_fault == GG_FAULT_PARKING_NONE ? 0 : xid;
}
