/*
 * engine_call.c
 *		What a merge or learning does while an engine, or a device of the service, works for it.
 */
#include "maintain/merge.h"
#include "service/shared/service.h"

#include "access/xact.h"
#include "miscadmin.h"

/* Note whether somebody wants the database.  If not, seal the delta if due, within this merge. */
static void
WorkMeanwhile(GgEngineCall *call)
{
	GgMergeTarget *target = call->target;

	/* GgDatabaseIsWanted() looks ten times per second at most */
	call->wanted = call->wanted || GgDatabaseIsWanted();
	if (target->meanwhile == NULL || call->wanted)
		return;
	CommitTransactionCommand();
	MemoryContextSwitchTo(call->context);
	target->meanwhile(target);
	StartTransactionCommand();
}

/*
 * An error was caught, and the engine may take 100 ms to return.  The transaction ends here, since
 * others wait for its locks, which may be that of the metapage.  Where the process has to end, the
 * error has only led here and is dropped: GgThrowInterrupts() says why the process ends.
 */
static void
EndMeanwhile(GgEngineCall *call)
{
	HOLD_INTERRUPTS();
	AbortCurrentTransaction();
	MemoryContextSwitchTo(call->context);
	if (GgInterruptEnds())
		FlushErrorState();
	else
		call->caught = true;
	GgWithinEndedFault();
}

bool
GgCallIsCancelled(GgEngineCall *call)
{
	GgCallbackState state;

	if (GgServeInterrupts(&call->caught))
		return true;
	if (!call->target->sliced)
		return false;
	state = GgEnterCallback();
	PG_TRY();
	{
		WorkMeanwhile(call);
	}
	PG_CATCH();
	{
		EndMeanwhile(call);
	}
	PG_END_TRY();
	GgLeaveCallback(state);
	return call->caught || call->wanted || GgServeInterrupts(&call->caught);
}

void
GgBeginCall(GgEngineCall *call)
{
	if (call->target->sliced)
		StartTransactionCommand();
	MemoryContextSwitchTo(call->context);
}

void
GgEndCall(GgEngineCall *call)
{
	GgThrowInterrupts(call->caught);
	if (call->wanted)
		GgGiveWay();
	if (call->target->sliced)
		CommitTransactionCommand();
	MemoryContextSwitchTo(call->context);
}
