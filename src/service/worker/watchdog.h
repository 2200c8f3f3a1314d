/*
 * watchdog.h
 *		Steps that the worker's threads count, so that one that hangs is noticed (watchdog.c).
 */
#ifndef GG_WATCHDOG_H
#define GG_WATCHDOG_H

#include "service/worker/worker.h"

typedef enum GgWatched
{
	GG_WATCHED_MAIN,			/* the worker's main thread */
	GG_WATCHED_UPLOAD,			/* upload.c */
	GG_WATCHED_GRAPH,			/* graph_thread.c */
	GG_NWATCHED
} GgWatched;

/*
 * Steps of each thread, which alone writes them: grows with every step; odd while the thread works.
 */
extern volatile uint32 gg_watched_steps[GG_NWATCHED];

/* The thread begins to work, or to wait for work. */
static inline void
GgWatchedTurns(GgWatched thread)
{
	gg_watched_steps[thread]++;
}

/* The thread works on, and got somewhere. */
static inline void
GgWatchedSteps(GgWatched thread)
{
	gg_watched_steps[thread] += 2;
}

/* Start to watch; the caller is the main thread, and works. */
extern void GgWatchdogStart(GgWorker *worker);

/*
 * Unblock the watchdog's signal.  All others stay blocked while a driver starts threads, but the
 * driver may hang.
 */
extern void GgWatchdogUnblock(void);

/* The main thread begins to open the device, or is through with it: between, it has more time. */
extern void GgWatchdogOpening(bool opening);

/* Does another thread hang?  Then the worker ends, and this does not return. */
extern void GgWatchdogLook(GgWorker *worker);

/* Stop watching: the worker has done with its device. */
extern void GgWatchdogEnd(void);

/* End the worker, since something takes longer than gpugraph.device_timeout.  what: for the log. */
pg_noreturn extern void GgDeviceHangs(GgWorker *worker, const char *what);

#endif							/* GG_WATCHDOG_H */
