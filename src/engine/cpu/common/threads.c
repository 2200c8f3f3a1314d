/*
 * threads.c
 *		Worker threads of one engine call: a parallel loop with dynamic pieces.
 *
 * gg_control promises that cancelled() is asked at least every 100 ms.  The calling thread looks
 * at the clock between pieces of work, and inside long ones through gg_worker_stopping(), and asks
 * when POLL_SECONDS have passed; the others read one atomic flag.
 */
#include "threads.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* Half of the promised interval: a piece of work may take the other half. */
#define POLL_SECONDS	0.05

struct gg_pool
{
	gg_control	control;
	int			nthreads;		/* the calling one included */
	pthread_t  *threads;		/* nthreads - 1 */
	gg_worker  *workers;		/* nthreads */

	pthread_mutex_t mutex;		/* guards everything down to status */
	pthread_cond_t work;
	pthread_cond_t idle;
	uint64_t	generation;		/* of jobs */
	int			busy;			/* threads not finished with this generation */
	bool		quit;
	gg_status	status;

	/* the job */
	gg_pool_fn	fn;
	void	   *ctx;
	uint64_t	total;
	uint64_t	chunk;
	atomic_uint_fast64_t next;
	atomic_bool stop;

	/* progress; of the calling thread but for done */
	gg_phase	phase;
	uint64_t	phase_total;
	atomic_uint_fast64_t done;
	uint64_t	reported;
	bool		muted;
	double		polled;
};

double
gg_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}

static void
pool_set_status(gg_pool *pool, gg_status status)
{
	pthread_mutex_lock(&pool->mutex);
	if (pool->status.code == GG_OK)
		pool->status = status;
	pthread_mutex_unlock(&pool->mutex);
	atomic_store(&pool->stop, true);
}

/* Talk to the caller when it is time; only ever called in its own thread. */
static void
pool_poll(gg_pool *pool, bool now)
{
	double		time = gg_now();
	uint64_t	done;

	if (!now && time - pool->polled < POLL_SECONDS)
		return;
	pool->polled = time;
	if (pool->control.cancelled && pool->control.cancelled(pool->control.ctx))
		pool_set_status(pool, gg_fail(GG_ECANCELED, "gg_pool_run", "canceled"));
	done = atomic_load_explicit(&pool->done, memory_order_relaxed);
	if (done > pool->phase_total)
		done = pool->phase_total;
	if (pool->control.progress && !pool->muted && done != pool->reported)
	{
		pool->reported = done;
		pool->control.progress(pool->control.ctx, pool->phase, done, pool->phase_total);
	}
}

static void
pool_work(gg_worker *worker)
{
	gg_pool    *pool = worker->pool;

	while (!gg_worker_stopping(worker))
	{
		uint64_t	begin = atomic_fetch_add_explicit(&pool->next, pool->chunk,
													  memory_order_relaxed);

		if (begin >= pool->total)
			break;
		pool->fn(worker, pool->ctx, begin,
				 pool->total - begin < pool->chunk ? pool->total : begin + pool->chunk);
	}
}

static void *
pool_thread(void *arg)
{
	gg_worker  *worker = arg;
	gg_pool    *pool = worker->pool;
	uint64_t	seen = 0;

	pthread_mutex_lock(&pool->mutex);
	for (;;)
	{
		while (!pool->quit && pool->generation == seen)
			pthread_cond_wait(&pool->work, &pool->mutex);
		if (pool->quit)
			break;
		seen = pool->generation;
		pthread_mutex_unlock(&pool->mutex);
		pool_work(worker);
		pthread_mutex_lock(&pool->mutex);
		if (--pool->busy == 0)
			pthread_cond_signal(&pool->idle);
	}
	pthread_mutex_unlock(&pool->mutex);
	return NULL;
}

bool
gg_thread_create(pthread_t *thread, void *(*start) (void *), void *arg)
{
	sigset_t	all,
				saved;
	int			rc;

	/* a thread inherits the mask: no signal may reach it, not even at its first instruction */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	rc = pthread_create(thread, NULL, start, arg);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	errno = rc;
	return rc == 0;
}

gg_status
gg_pool_create(gg_pool **result, const gg_control *control)
{
	int			wanted = control && control->threads > 1 ? control->threads : 1;
	gg_pool    *pool = calloc(1, sizeof(*pool));
	pthread_condattr_t attr;

	*result = NULL;
	if (pool)
	{
		pool->workers = calloc((size_t) wanted, sizeof(*pool->workers));
		pool->threads = calloc((size_t) wanted, sizeof(*pool->threads));
	}
	if (!pool || !pool->workers || !pool->threads)
	{
		if (pool)
		{
			free(pool->workers);
			free(pool->threads);
		}
		free(pool);
		return gg_fail(GG_ENOMEM, "gg_pool_create", "out of memory for %d threads", wanted);
	}
	if (control)
		pool->control = *control;
	pool->status = gg_ok();
	pool->polled = gg_now();
	pthread_mutex_init(&pool->mutex, NULL);
	pthread_cond_init(&pool->work, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&pool->idle, &attr);
	pthread_condattr_destroy(&attr);
	for (int i = 0; i < wanted; i++)
	{
		pool->workers[i].pool = pool;
		pool->workers[i].id = i;
	}

	pool->nthreads = 1;
	while (pool->nthreads < wanted)
	{
		/* fewer threads are slower, not wrong */
		if (!gg_thread_create(&pool->threads[pool->nthreads - 1], pool_thread,
							  &pool->workers[pool->nthreads]))
			break;
		pool->nthreads++;
	}
	*result = pool;
	return gg_ok();
}

void
gg_pool_free(gg_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->mutex);
	pool->quit = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->mutex);
	for (int i = 0; i + 1 < pool->nthreads; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->idle);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->mutex);
	free(pool->threads);
	free(pool->workers);
	free(pool);
}

int
gg_pool_threads(const gg_pool *pool)
{
	return pool->nthreads;
}

void
gg_pool_phase(gg_pool *pool, gg_phase phase, uint64_t total)
{
	if (pool->muted)
		return;
	pool->phase = phase;
	pool->phase_total = total;
	pool->reported = 0;
	atomic_store(&pool->done, 0);
	if (pool->control.progress)
		pool->control.progress(pool->control.ctx, phase, 0, total);
}

gg_status
gg_pool_run(gg_pool *pool, gg_pool_fn fn, void *ctx, uint64_t total, uint64_t chunk)
{
	gg_status	status = gg_pool_poll(pool);

	if (status.code != GG_OK)
		return status;

	pthread_mutex_lock(&pool->mutex);
	pool->fn = fn;
	pool->ctx = ctx;
	pool->total = total;
	pool->chunk = chunk > 0 ? chunk : 1;
	atomic_store(&pool->next, 0);
	/* waking everybody up for one piece costs more than it gives */
	if (total > pool->chunk && pool->nthreads > 1)
	{
		pool->busy = pool->nthreads - 1;
		pool->generation++;
		pthread_cond_broadcast(&pool->work);
	}
	pthread_mutex_unlock(&pool->mutex);

	pool_work(&pool->workers[0]);

	pthread_mutex_lock(&pool->mutex);
	while (pool->busy > 0)
	{
		struct timespec until;

		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += (long) (POLL_SECONDS * 1e9);
		if (until.tv_nsec >= 1000000000L)
		{
			until.tv_nsec -= 1000000000L;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&pool->idle, &pool->mutex, &until);
		if (pool->busy > 0)
		{
			pthread_mutex_unlock(&pool->mutex);
			pool_poll(pool, false);
			pthread_mutex_lock(&pool->mutex);
		}
	}
	status = pool->status;
	pthread_mutex_unlock(&pool->mutex);
	return status;
}

typedef struct each_job
{
	gg_item_fn	fn;
	void	   *ctx;
} each_job;

static void
each_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	const each_job *job = arg;

	for (uint64_t i = begin; i < end && !gg_worker_stopping(worker); i++)
		job->fn(worker, job->ctx, i);
}

gg_status
gg_pool_each(gg_pool *pool, gg_item_fn fn, void *ctx, uint64_t total, uint64_t chunk)
{
	each_job	job = {fn, ctx};

	return gg_pool_run(pool, each_run, &job, total, chunk);
}

gg_status
gg_pool_poll(gg_pool *pool)
{
	gg_status	status;

	pool_poll(pool, true);
	pthread_mutex_lock(&pool->mutex);
	status = pool->status;
	pthread_mutex_unlock(&pool->mutex);
	return status;
}

gg_worker *
gg_pool_caller(gg_pool *pool)
{
	return &pool->workers[0];
}

void
gg_pool_mute(gg_pool *pool, bool muted)
{
	pool->muted = muted;
}

bool
gg_worker_stopping(gg_worker *worker)
{
	if (worker->id == 0)
		pool_poll(worker->pool, false);
	return atomic_load_explicit(&worker->pool->stop, memory_order_relaxed);
}

void
gg_worker_progress(gg_worker *worker, uint64_t done)
{
	if (!worker->pool->muted)
		atomic_fetch_add_explicit(&worker->pool->done, done, memory_order_relaxed);
}

void
gg_worker_fail(gg_worker *worker, gg_status status)
{
	pool_set_status(worker->pool, status);
}
