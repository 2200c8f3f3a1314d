/*
 * watchdog.c
 *		Ends a worker whose device hangs; another worker takes its place.
 *
 * A kernel that never ends is seen by the main thread, which looks how old its batches are
 * (dispatch.c).  But a call of the driver may never return either: one that waits for such a
 * kernel, say, as most calls do that take or free device memory.  So a thread of its own watches
 * the main thread, the upload thread and the one that builds graphs.  Each counts its steps where
 * the watchdog sees it.  A thread that works, and whose count stays the same for
 * gpugraph.device_timeout, hangs.
 *
 *	- Another thread hangs: the main thread is woken, looks (GgWatchdogLook), and ends.
 *	- The main thread hangs: it gets a signal, and ends in the handler, as a background worker does
 *	  that has no handler for SIGTERM of its own.  Where it holds a lock it is not in the driver;
 *	  then the next signal follows.
 *
 * The end is that of a device that is lost (device_error.c): shared memory is left properly, no
 * call of the driver is made, and _exit() takes the thread that hangs along.  The postmaster sees
 * an exit with status 1 and starts the next worker.
 *
 * The watchdog counts its own ticks, not the clock's time: a process that was stopped for an hour
 * has not hung for an hour.
 */
#include "service/worker/watchdog.h"
#include "engine/cpu/common/threads.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/ipc.h"

#define TICK_MS			200

/* Opening a device may take this many times gpugraph.device_timeout: a driver that sleeps wakes up
 * all GPUs of the host. */
#define OPENING_TIMES	10

volatile uint32 gg_watched_steps[GG_NWATCHED];

static GgWorker *watched_worker = NULL;
static pthread_t main_thread;
static volatile bool opening = false;
static volatile bool main_hangs = false;
static volatile bool thread_hangs[GG_NWATCHED];
static volatile bool ended = false;

void
GgDeviceHangs(GgWorker *worker, const char *what)
{
	gg_status	status;

	memset(&status, 0, sizeof(status));
	status.code = GG_EDEVICE;
	status.where = "gpugraph.device_timeout";
	snprintf(status.message, sizeof(status.message), "%s for %g s", what,
			 gg_device_timeout_ms / 1000.0);
	GgDeviceLost(worker, &status);
}

/* SIGUSR2: the main thread hangs. */
static void
EndHere(SIGNAL_ARGS)
{
	/* a driver's thread may inherit the mask in which this signal is not blocked */
	if (!pthread_equal(pthread_self(), main_thread) || !main_hangs || ended)
		return;
	/* on its way out a process holds interrupts for good */
	if (InterruptHoldoffCount > 0 && !proc_exit_inprogress)
		return;
	ended = true;
	GgDeviceHangs(watched_worker, "a call of the driver has not returned");
}

static void *
Watch(void *arg)
{
	uint32		seen[GG_NWATCHED] = {0};
	uint64		ticks[GG_NWATCHED] = {0};	/* for how many the count is the same */

	while (!ended)
	{
		usleep(TICK_MS * 1000);
		for (int i = 0; i < GG_NWATCHED; i++)
		{
			uint32		steps = gg_watched_steps[i];
			uint64		most = gg_device_timeout_ms;

			if (i == GG_WATCHED_MAIN && opening)
				most *= OPENING_TIMES;
			if (steps != seen[i] || steps % 2 == 0)
			{
				seen[i] = steps;
				ticks[i] = 0;
				main_hangs &= i != GG_WATCHED_MAIN;
				continue;
			}
			if (most == 0 || ++ticks[i] * TICK_MS < most)
				continue;
			if (i == GG_WATCHED_MAIN)
			{
				main_hangs = true;
				pthread_kill(main_thread, SIGUSR2);
			}
			else if (!thread_hangs[i])
			{
				thread_hangs[i] = true;
				GgWakeDevice(watched_worker->device);
			}
		}
	}
	return NULL;
}

void
GgWatchdogLook(GgWorker *worker)
{
	if (thread_hangs[GG_WATCHED_UPLOAD])
		GgDeviceHangs(worker, "a call of the driver in the loading thread has not returned");
	if (thread_hangs[GG_WATCHED_GRAPH])
		GgDeviceHangs(worker, "a call of the driver that builds a graph has not returned");
}

void
GgWatchdogUnblock(void)
{
	sigset_t	ours;

	sigemptyset(&ours);
	sigaddset(&ours, SIGUSR2);
	pthread_sigmask(SIG_UNBLOCK, &ours, NULL);
}

void
GgWatchdogOpening(bool yes)
{
	GgWatchedSteps(GG_WATCHED_MAIN);
	opening = yes;
}

void
GgWatchdogEnd(void)
{
	ended = true;
}

/* Where no thread can be started, nothing is watched. */
void
GgWatchdogStart(GgWorker *worker)
{
	pthread_t	thread;

	watched_worker = worker;
	main_thread = pthread_self();
	GgWatchedTurns(GG_WATCHED_MAIN);
	pqsignal(SIGUSR2, EndHere);
	if (gg_thread_create(&thread, Watch, NULL))
		(void) pthread_detach(thread);
}
