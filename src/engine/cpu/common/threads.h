/*
 * threads.h
 *		Worker threads of one engine call.
 *
 * A pool lives as long as one call of the engine.  The calling thread works too, as worker 0, and
 * is the only one that talks to gg_control's callbacks.  The other threads block every signal, so
 * that the caller's process keeps delivering its signals to the calling thread alone.
 */
#ifndef GG_THREADS_H
#define GG_THREADS_H

#include <pthread.h>

#include "cpu.h"

typedef struct gg_pool gg_pool;

/* One worker, during one gg_pool_run(). */
typedef struct gg_worker
{
	gg_pool    *pool;
	int			id;				/* 0 (the calling thread) .. gg_pool_threads() - 1 */
} gg_worker;

/*
 * Work on the items begin .. end - 1.  A piece of work that can take longer than some tens of
 * milliseconds asks gg_worker_stopping() in between and returns early when told so.
 */
typedef void (*gg_pool_fn) (gg_worker *worker, void *ctx, uint64_t begin, uint64_t end);

/* Start a thread that no signal ever reaches.  False: the system has none left; errno says why. */
extern bool gg_thread_create(pthread_t *thread, void *(*start) (void *), void *arg);

/* control may be NULL: one thread, nobody to talk to.  Errors: GG_ENOMEM. */
extern gg_status gg_pool_create(gg_pool **pool, const gg_control *control);
extern void gg_pool_free(gg_pool *pool);	/* NULL is allowed */

/* Threads at work, the calling one included; less than asked for where the system gave fewer. */
extern int	gg_pool_threads(const gg_pool *pool);

/* Set the phase that progress is about from now on; total: in the phase's unit. */
extern void gg_pool_phase(gg_pool *pool, gg_phase phase, uint64_t total);

/*
 * Run fn over items 0 .. total - 1, handed out in order in pieces of chunk.  Returns when all are
 * done.  Errors: GG_ECANCELED, and whatever a worker gave to gg_worker_fail().
 */
extern gg_status gg_pool_run(gg_pool *pool, gg_pool_fn fn, void *ctx, uint64_t total,
							 uint64_t chunk);

/*
 * The same where items do not depend on each other, and one takes no longer than some tens of
 * milliseconds: those that are left are not begun when told to stop.
 */
typedef void (*gg_item_fn) (gg_worker *worker, void *ctx, uint64_t i);
extern gg_status gg_pool_each(gg_pool *pool, gg_item_fn fn, void *ctx, uint64_t total,
							  uint64_t chunk);

/* Ask gg_control without running anything, for serial stretches of the calling thread. */
extern gg_status gg_pool_poll(gg_pool *pool);

/* The calling thread as a worker, for gg_worker_stopping() and so on outside gg_pool_run(). */
extern gg_worker *gg_pool_caller(gg_pool *pool);

/* Say nothing about progress while muted: a stage runs as a part of another. */
extern void gg_pool_mute(gg_pool *pool, bool muted);

extern bool gg_worker_stopping(gg_worker *worker);
extern void gg_worker_progress(gg_worker *worker, uint64_t done);	/* add to the phase's count */
extern void gg_worker_fail(gg_worker *worker, gg_status status);	/* the first one counts */

/*
 * How often serial loops look at the clock, in rows: under 1 ms where each of a row's entries is a
 * cache miss.
 */
#define GG_POLL_ROWS	1024u

/* In a serial loop of the calling thread: is it time to end it?  Then gg_pool_poll() says why. */
static inline bool
gg_pool_stopping(gg_pool *pool, uint64_t i)
{
	return i % GG_POLL_ROWS == 0 && gg_worker_stopping(gg_pool_caller(pool));
}

/* Monotonic seconds. */
extern double gg_now(void);

#endif							/* GG_THREADS_H */
