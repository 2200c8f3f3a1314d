/*
 * row_upload.c
 *		The threads that copy rows to the device while the heap is scanned.
 *
 * These are threads, and not the leader between its own rows, because a leader that waits reads no
 * rows: index_create() opens the device, which takes longer than to read a small table, and
 * index_write() returns only when the bytes have left.  There is no PostgreSQL in this file.  No
 * signal reaches the threads: the process's handlers run in the leader's own thread alone.
 *
 * The first thread creates the index, starts the others, copies as they do, and ends last.
 *
 * Other processes fill the chunks, and raise a flag for each.  The threads look at these flags.
 * A look costs one word for each MB that is not copied yet.  One thread looks while the others
 * copy or wait to look, so waiting costs what one thread costs.
 */
#include "engine/threads/row_upload.h"
#include "engine/threads/host.h"
#include "engine/cpu/common/threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/*
 * Sleep after a look that found nothing.  A chunk takes longer to fill, and any long scan has many
 * chunks.
 */
#define IDLE_NS		300000L

/*
 * Chunks that follow each other go in one call, up to this many.  With 8 MB a call's own cost is
 * small, and all threads share the last chunks.
 */
#define MAX_RUN		8

struct gg_row_upload
{
	const gg_engine *engine;
	int			device;
	gg_shape	shape;
	gg_upload_source source;
	uint32_t	nchunks;
	int			nthreads;
	gg_index  **index;			/* set by the first thread before it starts the others */
	double		open_seconds;	/* set by the first thread, too */
	pthread_t	thread;			/* the first */
	bool		running;
	int			stop;			/* 0, DRAIN or NOW; atomic */
	int			ended;			/* atomic */

	pthread_mutex_t look;		/* protects what follows, until the threads were joined */
	unsigned char *taken;		/* by chunk: a thread copies it, or has */
	uint32_t	first;			/* all chunks before this one are taken */

	pthread_mutex_t mutex;		/* the same for what follows; may be taken while look is held */
	gg_status	status;
	int			copying;		/* threads that copy */
	uint64_t	since_us;		/* when the first thread of those began */
	double		seconds;		/* in which threads copied before since_us */
};

enum
{
	DRAIN = 1,
	NOW = 2
};

static gg_status
no_memory(void)
{
	return gg_fail(GG_ENOMEM, "gg_row_upload_start", "no memory or thread for copying rows");
}

static bool
can_take(const gg_row_upload *upload, uint32_t chunk)
{
	return !upload->taken[chunk] &&
		__atomic_load_n(&upload->source.filled[chunk], __ATOMIC_ACQUIRE) != 0;
}

/* Take full chunks that follow each other; look is held.  Returns how many; *chunk is the first. */
static uint32_t
take_run(gg_row_upload *upload, uint32_t *chunk)
{
	uint64_t	claimed = __atomic_load_n(upload->source.claimed, __ATOMIC_RELAXED) /
		upload->source.chunk_rows;
	uint32_t	end = claimed < upload->nchunks ? (uint32_t) claimed : upload->nchunks;
	uint32_t	run = 0;

	while (upload->first < end && upload->taken[upload->first])
		upload->first++;
	for (uint32_t i = upload->first; i < end && run == 0; i++)
	{
		while (i + run < end && run < MAX_RUN && can_take(upload, i + run))
			run++;
		*chunk = i;
	}
	if (run > 0)
		memset(upload->taken + *chunk, 1, run);
	return run;
}

gg_status
gg_write_halves(const gg_engine *engine, gg_index *index, uint32_t dim, uint64_t offset,
				const char *rows, uint64_t bytes, uint16_t *halves)
{
	if (!gg_round_rows((const float *) rows, halves, bytes / sizeof(float), dim))
		return gg_fail(GG_EUNSUPPORTED, __func__, "rows do not bear half precision");
	return engine->index_write(index, GG_PART_ROWS, offset / 2, halves, bytes / 2);
}

/* Copy `run` chunks.  halves: room for MAX_RUN chunks of halves, where rows become halves. */
static gg_status
copy_run(gg_row_upload *upload, uint32_t chunk, uint32_t run, uint16_t *halves)
{
	const gg_upload_source *source = &upload->source;
	uint64_t	chunk_bytes = source->chunk_rows * source->row_bytes;

	if (source->halve)
		return gg_write_halves(upload->engine, *upload->index, upload->shape.dim,
							   chunk * chunk_bytes, source->rows + chunk * chunk_bytes,
							   run * chunk_bytes, halves);
	return upload->engine->index_write(*upload->index, GG_PART_ROWS, chunk * chunk_bytes,
									   source->rows + chunk * chunk_bytes, run * chunk_bytes);
}

static void
begin_run(gg_row_upload *upload)
{
	pthread_mutex_lock(&upload->mutex);
	if (upload->copying++ == 0)
		upload->since_us = GgNowMicros();
	pthread_mutex_unlock(&upload->mutex);
}

static void
end_run(gg_row_upload *upload, gg_status status)
{
	pthread_mutex_lock(&upload->mutex);
	if (--upload->copying == 0)
		upload->seconds += GgSecondsSince(upload->since_us);
	if (upload->status.code == GG_OK)
		upload->status = status;
	pthread_mutex_unlock(&upload->mutex);
}

static bool
has_failed(gg_row_upload *upload)
{
	bool		failed;

	pthread_mutex_lock(&upload->mutex);
	failed = upload->status.code != GG_OK;
	pthread_mutex_unlock(&upload->mutex);
	return failed;
}

/* Wait for chunks to copy, and take them; 0 when there will be none. */
static uint32_t
next_run(gg_row_upload *upload, uint32_t *chunk)
{
	uint32_t	run = 0;

	pthread_mutex_lock(&upload->look);
	for (;;)
	{
		/* read before looking, so that chunks that were full when the drain began are seen */
		int			stop = __atomic_load_n(&upload->stop, __ATOMIC_ACQUIRE);
		struct timespec idle = {0, IDLE_NS};

		if (stop == NOW || has_failed(upload))
			break;
		run = take_run(upload, chunk);
		if (run > 0 || stop == DRAIN)
			break;
		nanosleep(&idle, NULL);
	}
	pthread_mutex_unlock(&upload->look);
	return run;
}

/* What each thread does once there is an index. */
static void *
copy_chunks(void *arg)
{
	gg_row_upload *upload = arg;
	const gg_upload_source *source = &upload->source;
	uint16_t   *halves = NULL;
	uint32_t	chunk = 0;
	uint32_t	run;

	if (source->halve)
		halves = malloc(MAX_RUN * source->chunk_rows * source->row_bytes / 2);
	while ((run = next_run(upload, &chunk)) > 0)
	{
		begin_run(upload);
		end_run(upload, source->halve && halves == NULL ? no_memory() :
				copy_run(upload, chunk, run, halves));
	}
	free(halves);
	return NULL;
}

static void *
copy_main(void *arg)
{
	gg_row_upload *upload = arg;
	pthread_t	others[GG_UPLOAD_THREADS];
	int			nothers = 0;
	uint64_t	start_us = GgNowMicros();

	if (upload->device != GG_DEVICE_IN_USE)
		upload->status = upload->engine->use_device(upload->device);
	if (upload->status.code == GG_OK)
		upload->status = upload->engine->index_create(&upload->shape, upload->index);
	upload->open_seconds = GgSecondsSince(start_us);
	if (upload->status.code == GG_OK)
	{
		/* fewer threads will do where no more can be started */
		while (nothers + 1 < upload->nthreads &&
			   pthread_create(&others[nothers], NULL, copy_chunks, upload) == 0)
			nothers++;
		copy_chunks(upload);
		for (int i = 0; i < nothers; i++)
			pthread_join(others[i], NULL);
	}
	__atomic_store_n(&upload->ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

gg_status
gg_row_upload_start(const gg_engine *engine, int device, const gg_shape *shape,
					const gg_upload_source *source, int threads, gg_index **index,
					gg_row_upload **result)
{
	gg_status	status = {.code = GG_OK};
	gg_row_upload *upload = calloc(1, sizeof(gg_row_upload));

	*result = NULL;
	*index = NULL;
	if (upload == NULL)
		return no_memory();
	upload->engine = engine;
	upload->device = device;
	upload->shape = *shape;
	upload->source = *source;
	upload->nchunks = shape->capacity / source->chunk_rows;
	upload->nthreads = threads < GG_UPLOAD_THREADS ? threads : GG_UPLOAD_THREADS;
	upload->index = index;
	upload->taken = calloc(upload->nchunks + 1, 1);
	if (upload->taken == NULL)
	{
		free(upload);
		return no_memory();
	}
	pthread_mutex_init(&upload->look, NULL);
	pthread_mutex_init(&upload->mutex, NULL);

	upload->running = gg_thread_create(&upload->thread, copy_main, upload);
	if (!upload->running)
	{
		gg_row_upload_free(upload);
		return no_memory();
	}
	*result = upload;
	return status;
}

void
gg_row_upload_drain(gg_row_upload *upload)
{
	__atomic_store_n(&upload->stop, DRAIN, __ATOMIC_RELEASE);
}

bool
gg_row_upload_ended(const gg_row_upload *upload)
{
	return __atomic_load_n(&upload->ended, __ATOMIC_ACQUIRE) != 0;
}

gg_status
gg_row_upload_stop(gg_row_upload *upload)
{
	if (upload->running)
	{
		__atomic_store_n(&upload->stop, NOW, __ATOMIC_RELEASE);
		pthread_join(upload->thread, NULL);
		upload->running = false;
	}
	return upload->status;
}

bool
gg_row_upload_done(const gg_row_upload *upload, uint32_t chunk)
{
	return chunk < upload->nchunks && upload->taken[chunk];
}

double
gg_row_upload_open_seconds(const gg_row_upload *upload)
{
	return upload->open_seconds;
}

double
gg_row_upload_seconds(const gg_row_upload *upload)
{
	return upload->seconds;
}

void
gg_row_upload_free(gg_row_upload *upload)
{
	if (upload == NULL)
		return;
	gg_row_upload_stop(upload);
	pthread_mutex_destroy(&upload->mutex);
	pthread_mutex_destroy(&upload->look);
	free(upload->taken);
	free(upload);
}
