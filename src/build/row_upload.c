/*
 * row_upload.c
 *		The threads that copy rows to the device while the heap is scanned.
 *
 * Threads, and not the leader between its own rows: index_create() opens the device, which takes longer than
 * to read a small table, index_write() returns only when the bytes have left, and a leader that waits reads no rows.  There is
 * no PostgreSQL in this file, and no signal reaches the threads: the process's handlers run in the leader's thread alone.
 *
 * The first thread creates the index, starts the others, copies as they do, and ends last.
 *
 * The threads look at the chunks instead of being told: they are filled by other processes, and a flag
 * that each raises is all that these need know.  A look costs one word for each MB that is not copied yet.  One thread looks
 * while the others copy or wait for their turn to look, so waiting costs what one thread costs.
 */
#include "build/row_upload.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Between two looks when there was nothing: a chunk takes longer to fill, and a scan of any length has many. */
#define IDLE_NS		300000L

/*
 * Chunks that follow each other go in one call, up to this many: 8 MB are enough to make little of what a call costs, and
 * few enough for the last ones to be shared by all threads.
 */
#define MAX_RUN		8

struct gg_copy
{
	const gg_engine *engine;
	gg_shape	shape;
	gg_copy_source source;
	uint32_t	nchunks;
	int			nthreads;
	gg_index  **index;			/* set by the first thread before it starts the others */
	double		open_seconds;	/* likewise */
	pthread_t	thread;			/* the first */
	bool		running;
	int			stop;			/* 0, DRAIN or NOW; atomic */
	int			ended;			/* atomic */

	pthread_mutex_t look;		/* protects what follows, until the threads were joined */
	unsigned char *taken;		/* by chunk: is copied, or was */
	uint32_t	first;			/* all chunks before this one are taken */

	pthread_mutex_t mutex;		/* likewise; may be taken while look is held */
	gg_status	status;
	int			copying;		/* threads that copy */
	double		since;			/* when the first of them began */
	double		seconds;		/* before that */
};

enum
{
	DRAIN = 1,
	NOW = 2
};

static double
monotonic_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static bool
can_take(const gg_copy *copy, uint32_t chunk)
{
	return !copy->taken[chunk] && __atomic_load_n(&copy->source.filled[chunk], __ATOMIC_ACQUIRE) != 0;
}

/* Take full chunks that follow each other; look is held.  Returns how many, *chunk is the first of them. */
static uint32_t
take_run(gg_copy *copy, uint32_t *chunk)
{
	uint64_t	claimed = __atomic_load_n(copy->source.claimed, __ATOMIC_RELAXED) / copy->source.chunk_rows;
	uint32_t	end = claimed < copy->nchunks ? (uint32_t) claimed : copy->nchunks;
	uint32_t	run = 0;

	while (copy->first < end && copy->taken[copy->first])
		copy->first++;
	for (uint32_t i = copy->first; i < end && run == 0; i++)
	{
		while (i + run < end && run < MAX_RUN && can_take(copy, i + run))
			run++;
		*chunk = i;
	}
	if (run > 0)
		memset(copy->taken + *chunk, 1, run);
	return run;
}

static gg_status
copy_run(gg_copy *copy, uint32_t chunk, uint32_t run)
{
	const gg_copy_source *source = &copy->source;
	uint64_t	chunk_bytes = source->chunk_rows * source->row_bytes;

	return copy->engine->index_write(*copy->index, GG_PART_ROWS, chunk * chunk_bytes, source->rows + chunk * chunk_bytes,
									 run * chunk_bytes);
}

static void
begin_run(gg_copy *copy)
{
	pthread_mutex_lock(&copy->mutex);
	if (copy->copying++ == 0)
		copy->since = monotonic_seconds();
	pthread_mutex_unlock(&copy->mutex);
}

static void
end_run(gg_copy *copy, gg_status status)
{
	pthread_mutex_lock(&copy->mutex);
	if (--copy->copying == 0)
		copy->seconds += monotonic_seconds() - copy->since;
	if (copy->status.code == GG_OK)
		copy->status = status;
	pthread_mutex_unlock(&copy->mutex);
}

static bool
has_failed(gg_copy *copy)
{
	bool		failed;

	pthread_mutex_lock(&copy->mutex);
	failed = copy->status.code != GG_OK;
	pthread_mutex_unlock(&copy->mutex);
	return failed;
}

/* Wait for chunks to copy, and take them; 0 when there will be none. */
static uint32_t
next_run(gg_copy *copy, uint32_t *chunk)
{
	uint32_t	run = 0;

	pthread_mutex_lock(&copy->look);
	for (;;)
	{
		/* asked before looking: what was full when we were told to drain is then seen */
		int			stop = __atomic_load_n(&copy->stop, __ATOMIC_ACQUIRE);
		struct timespec idle = {0, IDLE_NS};

		if (stop == NOW || has_failed(copy))
			break;
		run = take_run(copy, chunk);
		if (run > 0 || stop == DRAIN)
			break;
		nanosleep(&idle, NULL);
	}
	pthread_mutex_unlock(&copy->look);
	return run;
}

/* What each thread does once there is an index. */
static void *
copy_chunks(void *arg)
{
	gg_copy    *copy = arg;
	uint32_t	chunk = 0;
	uint32_t	run;

	while ((run = next_run(copy, &chunk)) > 0)
	{
		begin_run(copy);
		end_run(copy, copy_run(copy, chunk, run));
	}
	return NULL;
}

static void *
copy_main(void *arg)
{
	gg_copy    *copy = arg;
	pthread_t	others[GG_COPY_THREADS];
	int			nothers = 0;
	double		start = monotonic_seconds();

	copy->status = copy->engine->index_create(&copy->shape, copy->index);
	copy->open_seconds = monotonic_seconds() - start;
	if (copy->status.code == GG_OK)
	{
		/* where there are to be no more threads, fewer do it */
		while (nothers + 1 < copy->nthreads && pthread_create(&others[nothers], NULL, copy_chunks, copy) == 0)
			nothers++;
		copy_chunks(copy);
		for (int i = 0; i < nothers; i++)
			pthread_join(others[i], NULL);
	}
	__atomic_store_n(&copy->ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

gg_status
gg_copy_start(const gg_engine *engine, const gg_shape *shape, const gg_copy_source *source, int threads,
			  gg_index **index, gg_copy **result)
{
	gg_status	status = {.code = GG_OK};
	gg_status	no_memory = {.code = GG_ENOMEM, .where = "gg_copy_start", .message = "no memory or thread for copying rows"};
	gg_copy    *copy = calloc(1, sizeof(gg_copy));
	sigset_t	all,
				old;

	*result = NULL;
	*index = NULL;
	if (copy == NULL)
		return no_memory;
	copy->engine = engine;
	copy->shape = *shape;
	copy->source = *source;
	copy->nchunks = shape->capacity / source->chunk_rows;
	copy->nthreads = threads < GG_COPY_THREADS ? threads : GG_COPY_THREADS;
	copy->index = index;
	copy->taken = calloc(copy->nchunks + 1, 1);
	if (copy->taken == NULL)
	{
		free(copy);
		return no_memory;
	}
	pthread_mutex_init(&copy->look, NULL);
	pthread_mutex_init(&copy->mutex, NULL);

	/* a thread inherits the mask: no signal may reach it even at its start */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	copy->running = pthread_create(&copy->thread, NULL, copy_main, copy) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!copy->running)
	{
		gg_copy_free(copy);
		return no_memory;
	}
	*result = copy;
	return status;
}

void
gg_copy_drain(gg_copy *copy)
{
	__atomic_store_n(&copy->stop, DRAIN, __ATOMIC_RELEASE);
}

bool
gg_copy_ended(const gg_copy *copy)
{
	return __atomic_load_n(&copy->ended, __ATOMIC_ACQUIRE) != 0;
}

gg_status
gg_copy_stop(gg_copy *copy)
{
	if (copy->running)
	{
		__atomic_store_n(&copy->stop, NOW, __ATOMIC_RELEASE);
		pthread_join(copy->thread, NULL);
		copy->running = false;
	}
	return copy->status;
}

bool
gg_copy_done(const gg_copy *copy, uint32_t chunk)
{
	return chunk < copy->nchunks && copy->taken[chunk];
}

double
gg_copy_open_seconds(const gg_copy *copy)
{
	return copy->open_seconds;
}

double
gg_copy_seconds(const gg_copy *copy)
{
	return copy->seconds;
}

void
gg_copy_free(gg_copy *copy)
{
	if (copy == NULL)
		return;
	gg_copy_stop(copy);
	pthread_mutex_destroy(&copy->mutex);
	pthread_mutex_destroy(&copy->look);
	free(copy->taken);
	free(copy);
}
