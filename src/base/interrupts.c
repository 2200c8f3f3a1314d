/*
 * interrupts.c
 *		Interrupts of a process that runs an engine, and the signal mask under which drivers start.
 *
 * CHECK_FOR_INTERRUPTS() may throw, and FATAL ends the process, so it cannot be called by a
 * callback of an engine, whose threads still work on memory that would be freed.  But a build runs
 * an engine for minutes, and others wait for answers meanwhile: DROP DATABASE waits until every
 * process has served its barrier.  So a callback serves here what only asks for an answer.  What
 * ends the statement or the session makes the engine return, and is thrown after that.
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

/* Of libpq/libpq.h, which asks for headers of GSSAPI that need not be installed. */
extern bool pq_check_connection(void);

static bool
PostmasterIsGone(void)
{
	return IsUnderPostmaster && !PostmasterIsAlive();
}

/* As ProcessInterrupts() does, but it leaves the end to the next CHECK_FOR_INTERRUPTS(). */
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

/* What only asks for an answer.  A parallel worker's message may be an error, which is thrown. */
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
		/* nothing that is called here may end the process on its own */
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
