/*
 * engine_thread.h
 *		A thread of the leader in which the engine makes a graph, while the leader reads on.
 */
#ifndef GG_ENGINE_THREAD_H
#define GG_ENGINE_THREAD_H

#include "engine/engine.h"

typedef struct gg_engine_task
{
	const gg_engine *engine;
	int			device;			/* or GG_DEVICE_IN_USE */
	gg_index   *index;			/* the rows are there; NULL: they are those of data */
	gg_dataset	data;
	gg_build_params params;
	int			threads;		/* as in gg_control, like all below */
	uint64_t	memory;
	uint64_t	device_memory;
	const int  *others;			/* the array stays as rows do */
	int			nothers;
} gg_engine_task;

typedef struct gg_engine_thread gg_engine_thread;

/*
 * Start the thread.  It blocks all signals and calls nothing but the engine.  Rows and index must
 * stay until gg_engine_thread_free().  Errors: GG_ENOMEM.
 */
extern gg_status gg_engine_thread_start(const gg_engine_task *task, gg_engine_thread **thread);

extern bool gg_engine_thread_ended(const gg_engine_thread *thread);

/* How far the engine is.  False: it has not said yet. */
extern bool gg_engine_thread_progress(gg_engine_thread *thread, gg_phase *phase, uint64_t *done,
									  uint64_t *total);

/* Whether the engine asks for scratch memory (gg_control), and waits for it. */
extern bool gg_engine_thread_asks(gg_engine_thread *thread, uint64_t *bytes);
extern void gg_engine_thread_give(gg_engine_thread *thread, void *memory);

/* For estimates of memory: the callback of gg_control.  Nobody but the engine calls it. */
extern void *gg_engine_thread_scratch(void *ctx, uint64_t bytes);

/* Take an ended thread's stats, and graph, which the caller frees.  Returns the engine's status. */
extern gg_status gg_engine_thread_take(gg_engine_thread *thread, gg_graph *graph,
									   gg_build_stats *stats);

/* Has the engine return where it has not; frees a graph that was not taken.  NULL is allowed. */
extern void gg_engine_thread_free(gg_engine_thread *thread);

#endif							/* GG_ENGINE_THREAD_H */
