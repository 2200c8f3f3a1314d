/*
 * graph_thread.h
 *		The thread that builds a graph (graph_thread.c), for the worker's main thread.
 */
#ifndef GG_GRAPH_THREAD_H
#define GG_GRAPH_THREAD_H

#include "service/shared/shmem.h"

#include <pthread.h>

typedef struct GgGraphThread
{
	GgDevice   *device;
	const gg_engine *engine;
	void		(*wake) (void *arg);	/* the job is DONE; called from the thread */
	void	   *arg;
	uint32		serial;			/* of the job */
	uint64		device_memory;	/* that a build by groups of rows keeps to; 0: in one piece */
	pthread_t	thread;
	bool		running;		/* until it was joined */
	volatile bool stop;
	double		seconds;		/* that the engine took */
} GgGraphThread;

/* Start the thread, for a job that is GRANTED.  False: there is no thread to be had. */
extern bool GgGraphThreadStart(GgGraphThread *thread);

/* Wait for the thread's end; stop: have it end soon.  It need not run. */
extern void GgGraphThreadJoin(GgGraphThread *thread, bool stop);

#endif							/* GG_GRAPH_THREAD_H */
