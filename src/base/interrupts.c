/*
 * interrupts.c
 *		Interrupts of a process that runs an engine, and the signal mask under which drivers start.
 *
 * A callback of an engine cannot call CHECK_FOR_INTERRUPTS(), which may throw or, with FATAL, end
 * the process: the engine's threads still work on memory that would be freed.  But a build runs an
 * engine for minutes, and other processes wait for this one meanwhile.  DROP DATABASE, for example,
 * waits until every process has served its barrier.  So a callback serves here what only asks for
 * an answer.  What ends the statement or the session makes the engine return, and is thrown then.
 *
 * A callback may do work of its own that takes long: maintain/builder.c has merges done within an
 * engine's call.  This work looks for interrupts as any other (GgCheckInterrupts), and is ended by
 * an ordinary error where the process has to end.  The callback catches it and has the engine
 * return.
 */
#include "base/base.h"

#include <pthread.h>
#include <signal.h>

#include "access/parallel.h"
#include "miscadmin.h"
#include "storage/pmsignal.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/timeout.h"

/* From libpq/libpq.h, which includes headers of GSSAPI that may not be installed. */
extern bool pq_check_connection(void);

static bool
PostmasterIsGone(void)
{
	return IsUnderPostmaster && !PostmasterIsAlive();
}

/* As in ProcessInterrupts(), but it is the next CHECK_FOR_INTERRUPTS() that ends the session. */
static void
CheckClient(void)
{
	CheckClientConnectionPending = false;
	if (client_connection_check_interval <= 0)
		return;
	if (pq_check_connection())
		enable_timeout_after(CLIENT_CONNECTION_CHECK_TIMEOUT, client_connection_check_interval);
	else
	{
		ClientConnectionLost = true;
		InterruptPending = true;
	}
}

/* Serve what only asks for an answer.  Throws if a parallel worker sent an error. */
static void
ServePending(void)
{
	if (ProcSignalBarrierPending)
		ProcessProcSignalBarrier();
	if (LogMemoryContextPending)
		ProcessLogMemoryContextInterrupt();
	if (CheckClientConnectionPending)
		CheckClient();
	if (ParallelMessagePending)
		GgProcessParallelMessages();
}

/* InterruptHoldoffCount of a callback's work while it holds no lock; -1: no callback works. */
static int	callback_holdoff = -1;

GgCallbackState
GgEnterCallback(void)
{
	GgCallbackState state = {callback_holdoff, InterruptHoldoffCount};

	/* nothing may end the process while the engine's threads run */
	HOLD_INTERRUPTS();
	callback_holdoff = (int) InterruptHoldoffCount;
	return state;
}

/* An error may have reset InterruptHoldoffCount, so it is set, too. */
void
GgLeaveCallback(GgCallbackState state)
{
	callback_holdoff = state.holdoff;
	InterruptHoldoffCount = state.holdoff_before;
}

/* As by CHECK_FOR_INTERRUPTS(), no request is served while a lock is held. */
static void
CheckInCallback(void)
{
	bool		ends = PostmasterIsGone();

	if (InterruptPending && (int) InterruptHoldoffCount == callback_holdoff &&
		CritSectionCount == 0)
	{
		ServePending();
		ends |= GgInterruptEnds();
	}
	if (ends)
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("what is done while an engine runs is interrupted")));
}

bool
GgServeInterrupts(bool *caught)
{
	MemoryContext context = CurrentMemoryContext;
	uint32		holdoff = InterruptHoldoffCount;

	if (*caught || PostmasterIsGone())
		return true;
	if (!InterruptPending)
		return false;

	PG_TRY();
	{
		/* nothing called here may end the process */
		HOLD_INTERRUPTS();
		ServePending();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		*caught = true;
	}
	PG_END_TRY();
	/* an error has reset it */
	InterruptHoldoffCount = holdoff;
	return *caught || GgInterruptEnds();
}

bool
GgIsInterrupted(void *ctx)
{
	return GgServeInterrupts(ctx);
}

void
GgThrowInterrupts(bool caught)
{
	if (caught)
		PG_RE_THROW();
	GgCheckInterrupts();
}

void
GgCheckInterrupts(void)
{
	if (callback_holdoff >= 0)
	{
		CheckInCallback();
		return;
	}
	if (PostmasterIsGone())
		ereport(FATAL,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("terminating connection due to unexpected postmaster exit")));
	CHECK_FOR_INTERRUPTS();
}

void
GgBlockSignals(sigset_t *before)
{
	sigset_t	all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, before);
}

void
GgRestoreSignals(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

gg_status
GgLookAtDevice(const gg_engine *engine, int device, gg_device_info *info)
{
	gg_status	status;
	sigset_t	before;

	GgBlockSignals(&before);
	status = engine->device_info(device, info);
	GgRestoreSignals(&before);
	return status;
}

void
GgOpenDevice(const gg_engine *engine)
{
	gg_device_info info;

	(void) GgLookAtDevice(engine, GG_DEVICE_IN_USE, &info);
}
