/*
 * engine_thread.c
 *		A thread of the leader in which the engine makes a graph, while the leader reads on.
 *
 * There is no PostgreSQL in this file, and no signal reaches the thread.  What the engine asks of
 * its caller (gg_control) is kept here until the leader looks: whether to go on, how far it is, and
 * memory of temporary files, which the leader alone can make.
 */
#include "engine/threads/engine_thread.h"
#include "engine/cpu/common/threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct gg_engine_thread
{
	gg_engine_task task;
	pthread_t	thread;
	bool		running;		/* the thread is to be joined */
	bool		taken;

	/* atomic */
	int			stop;
	int			ended;

	pthread_mutex_t mutex;		/* protects what follows */
	gg_phase	phase;
	uint64_t	done;
	uint64_t	total;			/* 0: it has not said anything yet */
	pthread_cond_t answered;
	uint64_t	asked;			/* bytes of scratch memory; 0: none is asked for */
	void	   *given;

	/* the thread's until it has ended */
	gg_status	status;
	gg_graph	graph;
	gg_build_stats stats;
};

static bool
is_cancelled(void *ctx)
{
	gg_engine_thread *thread = ctx;

	return __atomic_load_n(&thread->stop, __ATOMIC_ACQUIRE) != 0;
}

static void
note_progress(void *ctx, gg_phase phase, uint64_t done, uint64_t total)
{
	gg_engine_thread *thread = ctx;

	pthread_mutex_lock(&thread->mutex);
	thread->phase = phase;
	thread->done = done;
	thread->total = total;
	pthread_mutex_unlock(&thread->mutex);
}

void *
gg_engine_thread_scratch(void *ctx, uint64_t bytes)
{
	gg_engine_thread *thread = ctx;
	void	   *memory;

	pthread_mutex_lock(&thread->mutex);
	thread->given = NULL;
	thread->asked = bytes;
	while (thread->asked > 0 && !is_cancelled(thread))
		pthread_cond_wait(&thread->answered, &thread->mutex);
	memory = thread->given;
	pthread_mutex_unlock(&thread->mutex);
	return memory;
}

static void *
engine_main(void *arg)
{
	gg_engine_thread *thread = arg;
	const gg_engine_task *task = &thread->task;
	gg_control	control = {
		.cancelled = is_cancelled, .progress = note_progress, .scratch = gg_engine_thread_scratch,
		.ctx = thread, .threads = task->threads, .memory = task->memory,
		.device_memory = task->device_memory, .others = task->others, .nothers = task->nothers
	};

	if (task->device != GG_DEVICE_IN_USE)
		thread->status = task->engine->use_device(task->device);
	if (thread->status.code == GG_OK && task->index != NULL)
		thread->status = task->engine->build_index(task->index, task->data.n, &task->params,
												   &control, &thread->graph, &thread->stats);
	else if (thread->status.code == GG_OK)
		thread->status = task->engine->build(&task->data, &task->params, &control,
											 &thread->graph, &thread->stats);
	__atomic_store_n(&thread->ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

gg_status
gg_engine_thread_start(const gg_engine_task *task, gg_engine_thread **result)
{
	const gg_status failed = gg_fail(GG_ENOMEM, "gg_engine_thread_start",
									 "no memory or thread for building a graph");
	gg_engine_thread *thread = calloc(1, sizeof(gg_engine_thread));

	*result = NULL;
	if (thread == NULL)
		return failed;
	thread->task = *task;
	pthread_mutex_init(&thread->mutex, NULL);
	pthread_cond_init(&thread->answered, NULL);

	thread->running = gg_thread_create(&thread->thread, engine_main, thread);
	if (!thread->running)
	{
		gg_engine_thread_free(thread);
		return failed;
	}
	*result = thread;
	return gg_ok();
}

bool
gg_engine_thread_ended(const gg_engine_thread *thread)
{
	return __atomic_load_n(&thread->ended, __ATOMIC_ACQUIRE) != 0;
}

bool
gg_engine_thread_progress(gg_engine_thread *thread, gg_phase *phase, uint64_t *done,
						  uint64_t *total)
{
	pthread_mutex_lock(&thread->mutex);
	*phase = thread->phase;
	*done = thread->done;
	*total = thread->total;
	pthread_mutex_unlock(&thread->mutex);
	return *total > 0;
}

bool
gg_engine_thread_asks(gg_engine_thread *thread, uint64_t *bytes)
{
	pthread_mutex_lock(&thread->mutex);
	*bytes = thread->asked;
	pthread_mutex_unlock(&thread->mutex);
	return *bytes > 0;
}

void
gg_engine_thread_give(gg_engine_thread *thread, void *memory)
{
	pthread_mutex_lock(&thread->mutex);
	thread->given = memory;
	thread->asked = 0;
	pthread_cond_signal(&thread->answered);
	pthread_mutex_unlock(&thread->mutex);
}

gg_status
gg_engine_thread_take(gg_engine_thread *thread, gg_graph *graph, gg_build_stats *stats)
{
	*graph = thread->graph;
	*stats = thread->stats;
	thread->taken = true;
	return thread->status;
}

void
gg_engine_thread_free(gg_engine_thread *thread)
{
	if (thread == NULL)
		return;
	if (thread->running)
	{
		pthread_mutex_lock(&thread->mutex);
		__atomic_store_n(&thread->stop, 1, __ATOMIC_RELEASE);
		pthread_cond_signal(&thread->answered);
		pthread_mutex_unlock(&thread->mutex);
		pthread_join(thread->thread, NULL);
	}
	if (!thread->taken)
		gg_graph_free(&thread->graph);
	pthread_cond_destroy(&thread->answered);
	pthread_mutex_destroy(&thread->mutex);
	free(thread);
}
