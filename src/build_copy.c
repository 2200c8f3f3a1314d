/*
 * build_copy.c
 *		The thread that copies rows to the device while the heap is scanned.
 *
 * A thread, and not the leader between its own rows: index_write() returns only when the bytes have
 * left, and a leader that waits for the bus reads no rows.  There is no PostgreSQL in this file, and no signal
 * reaches the thread: the process's handlers run in the leader's thread alone.
 *
 * The thread looks at the chunks in turn instead of being told: they are filled by other processes, and a flag
 * that each raises is all that these need know.  A look costs one word for each MB that is not copied yet.
 */
#include "build_copy.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Between two looks when there was nothing: a chunk takes longer to fill, and a scan of any length has many. */
#define IDLE_NS		300000L

/* Chunks that follow each other go in one call, up to this many: 32 MB keep the bus busy. */
#define MAX_RUN		32

struct gg_copy
{
	const gg_engine *engine;
	gg_index   *index;
	gg_copy_source source;
	uint32_t	nchunks;
	unsigned char *copied;		/* by chunk; the thread's until it was joined */
	pthread_t	thread;
	bool		running;
	int			stop;			/* 0, DRAIN or NOW; atomic */
	int			ended;			/* atomic */
	gg_status	status;
	double		seconds;
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
is_full(const gg_copy *copy, uint32_t chunk)
{
	return __atomic_load_n(&copy->source.filled[chunk], __ATOMIC_ACQUIRE) != 0;
}

/* Copy what is full from chunk first on.  Returns whether there was any; moves *first behind what is done. */
static bool
copy_full_chunks(gg_copy *copy, uint32_t *first)
{
	const gg_copy_source *source = &copy->source;
	uint64_t	claimed = __atomic_load_n(source->claimed, __ATOMIC_RELAXED);
	uint32_t	end = copy->nchunks;
	size_t		chunk_bytes = source->chunk_rows * source->row_bytes;
	bool		any = false;

	if (claimed / source->chunk_rows < end)
		end = (uint32_t) (claimed / source->chunk_rows);
	for (uint32_t i = *first; i < end && __atomic_load_n(&copy->stop, __ATOMIC_RELAXED) != NOW;)
	{
		uint32_t	run = 0;
		double		start;

		while (i + run < end && run < MAX_RUN && !copy->copied[i + run] && is_full(copy, i + run))
			run++;
		if (run == 0)
		{
			i++;
			continue;
		}
		start = monotonic_seconds();
		copy->status = copy->engine->index_write(copy->index, GG_PART_ROWS, (uint64_t) i * chunk_bytes,
												 source->rows + (uint64_t) i * chunk_bytes, (uint64_t) run * chunk_bytes);
		copy->seconds += monotonic_seconds() - start;
		if (copy->status.code != GG_OK)
			return false;
		memset(copy->copied + i, 1, run);
		i += run;
		any = true;
	}
	while (*first < end && copy->copied[*first])
		(*first)++;
	return any;
}

static void *
copy_main(void *arg)
{
	gg_copy    *copy = arg;
	uint32_t	first = 0;

	for (;;)
	{
		/* asked before looking: what was full when we were told to drain is then seen */
		int			stop = __atomic_load_n(&copy->stop, __ATOMIC_ACQUIRE);
		bool		any;

		if (stop == NOW)
			break;
		any = copy_full_chunks(copy, &first);
		if (copy->status.code != GG_OK || (stop == DRAIN && !any))
			break;
		if (!any)
		{
			struct timespec idle = {0, IDLE_NS};

			nanosleep(&idle, NULL);
		}
	}
	__atomic_store_n(&copy->ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

gg_status
gg_copy_start(const gg_engine *engine, gg_index *index, const gg_copy_source *source, gg_copy **result)
{
	gg_status	status = {.code = GG_OK};
	gg_status	no_memory = {.code = GG_ENOMEM, .where = "gg_copy_start", .message = "no memory or thread for copying rows"};
	gg_copy    *copy = calloc(1, sizeof(gg_copy));
	sigset_t	all,
				old;

	*result = NULL;
	if (copy == NULL)
		return no_memory;
	copy->engine = engine;
	copy->index = index;
	copy->source = *source;
	copy->nchunks = source->capacity / source->chunk_rows;
	copy->copied = calloc(copy->nchunks + 1, 1);
	if (copy->copied == NULL)
	{
		free(copy);
		return no_memory;
	}

	/* a thread inherits the mask: no signal may reach it even at its start */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	copy->running = pthread_create(&copy->thread, NULL, copy_main, copy) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!copy->running)
	{
		free(copy->copied);
		free(copy);
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
	return chunk < copy->nchunks && copy->copied[chunk];
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
	free(copy->copied);
	free(copy);
}
