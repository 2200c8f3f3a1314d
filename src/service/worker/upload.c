/*
 * upload.c
 *		From staging chunks to the device: a thread of the worker.
 *
 * The worker's main thread must never wait for a copy, an allocation or a free of device memory.
 * These take from a tenth of a millisecond to seconds, and queries would wait with it.  So this
 * thread does all three, in the order close, create, write, finish, and the main thread only looks
 * at words.
 *
 * The thread calls no function of PostgreSQL: no memory contexts, no ereport, no locks.  The
 * exception is wake(), which sets a latch; that is safe even in a signal handler.  It shares the
 * words of loads and chunks (load.h) with other processes.  All signals are blocked, so that
 * handlers run in the main thread.
 *
 * The watchdog watches the thread.  Each call of the engine is a step, and so is each look at the
 * words.
 *
 * With no load under way it waits on a condition variable that the main thread signals.  With one,
 * it waits for chunks by sleeping POLL_MIN_US at first and twice as long each time up to
 * POLL_MAX_US: loaders are other processes, and a copy of a chunk takes longer than the shortest
 * sleep.  A condition variable in shared memory would be left locked by a loader that dies in it.
 */
#include "service/worker/upload.h"
#include "service/worker/watchdog.h"
#include "engine/cpu/common/threads.h"
#include "engine/rules/codes.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLL_MIN_US		20
#define POLL_MAX_US		2000

/*
 * A row of which not all bytes have come.  Where rows are not kept (GG_ROWS_NONE) the engine makes
 * codes of whole rows, but chunks end where pages do.
 */
typedef struct PartRow
{
	struct PartRow *next;
	uint32		list;
	uint64		offset;			/* of the row */
	uint64		bytes;			/* that have come */
	char		data[];
} PartRow;

struct GgUpload
{
	GgDevice   *device;
	const gg_engine *engine;
	void		(*wake) (void *arg);
	void	   *arg;
	pthread_t	thread;

	/* under mutex */
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	bool		stop;
	bool		kicked;
	gg_index  **closing;
	int			nclosing;
	int			closing_size;

	/* of loads between CREATE and DONE or BROKEN; the main thread keeps off until then */
	gg_index   *lists[GG_MAX_LOADS][GG_SERVE_MAX_LISTS];
	uint64		copied[GG_MAX_LOADS][GG_SERVE_MAX_LISTS];	/* bytes */
	PartRow    *part_rows[GG_MAX_LOADS];
	const gg_index *delta_from[GG_MAX_LOADS];	/* until CREATE is over; see GgUploadDelta() */
	uint32		delta_first[GG_MAX_LOADS];
	uint32		delta_rows[GG_MAX_LOADS];
	gg_status	status[GG_MAX_LOADS];
	bool		unfit[GG_MAX_LOADS];
};

/* Close what the main thread handed over. */
static void
CloseAll(GgUpload *upload)
{
	for (;;)
	{
		gg_index   *index = NULL;

		pthread_mutex_lock(&upload->mutex);
		if (upload->nclosing > 0)
			index = upload->closing[--upload->nclosing];
		pthread_mutex_unlock(&upload->mutex);
		if (index == NULL)
			return;
		upload->engine->index_close(index);
		GgWatchedSteps(GG_WATCHED_UPLOAD);
	}
}

static void
CloseLists(GgUpload *upload, int load)
{
	while (upload->part_rows[load] != NULL)
	{
		PartRow    *next = upload->part_rows[load]->next;

		free(upload->part_rows[load]);
		upload->part_rows[load] = next;
	}
	for (int i = 0; i < GG_SERVE_MAX_LISTS; i++)
	{
		if (upload->lists[load][i] != NULL)
			upload->engine->index_close(upload->lists[load][i]);
		upload->lists[load][i] = NULL;
	}
}

/* Give up a load in any of the states that this thread handles. */
static void
Break(GgUpload *upload, int load, uint32 serial)
{
	GgLoadJob  *job = &upload->device->loads_under_way[load];

	CloseLists(upload, load);
	pg_write_barrier();
	if (GgWordMove(&job->word, serial, GG_LOAD_CREATE, GG_LOAD_BROKEN) ||
		GgWordMove(&job->word, serial, GG_LOAD_OPEN, GG_LOAD_BROKEN) ||
		GgWordMove(&job->word, serial, GG_LOAD_FINISH, GG_LOAD_BROKEN))
		upload->wake(upload->arg);
}

static uint64
RowBytes(const gg_shape *shape)
{
	return (uint64) shape->dim * gg_element_size(shape->element);
}

/*
 * Bytes of all parts of a list as they are brought; by_codes: with codes in the place of rows;
 * halved: with rows that are to be rounded.
 */
static uint64
PartsBytes(const gg_shape *shape, bool by_codes, bool halved)
{
	uint64		row_bytes = by_codes ? gg_code_record_bytes(shape->codes, shape->dim) :
		RowBytes(shape) * (halved ? 2 : 1);
	uint64		n = shape->capacity;
	uint64		words = n * shape->degree + shape->npivots * (1 + (uint64) GG_PIVOT_DEGREE) +
		(shape->offsets ? n + 1 : 0);

	return n * row_bytes + words * sizeof(uint32) +
		shape->rows * (1 + (uint64) shape->words) * sizeof(uint64);
}

/* Make list i, and copy what the device has of it already. */
static gg_status
CreateList(GgUpload *upload, int load, uint32 i)
{
	const GgLoadJob *job = &upload->device->loads_under_way[load];
	const GgLoadList *list = &job->lists[i];
	uint32		rows = list->segment == GG_NO_SEGMENT ? upload->delta_rows[load] : 0;
	gg_shape	taken = list->shape;
	gg_status	status;

	if (job->centred)
		taken.code_mean = job->mean;
	status = upload->engine->index_create(&taken, &upload->lists[load][i]);

	if (status.code == GG_OK && rows > 0)
	{
		taken.capacity = taken.rows = rows;
		status = upload->engine->index_take(upload->lists[load][i], upload->delta_from[load],
											upload->delta_first[load], rows);
		upload->copied[load][i] = PartsBytes(&taken, false, false);
	}
	return status;
}

/* Are rows of the load to lie in the host's memory? */
static bool
PinsMemory(const GgLoadJob *job)
{
	for (uint32 i = 0; i < job->nlists; i++)
		if (GgIsLoaded(&job->lists[i]) && job->lists[i].shape.row_place == GG_ROWS_HOST)
			return true;
	return false;
}

static void
Create(GgUpload *upload, int load, uint32 serial)
{
	GgLoadJob  *job = &upload->device->loads_under_way[load];
	gg_status	status = {GG_OK};
	bool		left_out = false;

	memset(upload->lists[load], 0, sizeof(upload->lists[load]));
	memset(upload->copied[load], 0, sizeof(upload->copied[load]));
	upload->unfit[load] = false;
	for (uint32 i = 0; i < job->nlists; i++)
		left_out |= job->lists[i].left_out;
	if (job->fault == GG_FAULT_DEVICE_MEMORY ||
		(job->fault == GG_FAULT_LESS_MEMORY && !left_out))
		status = gg_fail(GG_EDEVICE_MEMORY, "gpugraph.fault",
						 "out of device memory, as gpugraph.fault asks for");
	if (job->fault == GG_FAULT_HOST_MEMORY && PinsMemory(job))
		status = gg_fail(GG_ENOMEM, "gpugraph.fault",
						 "no memory can be pinned, as gpugraph.fault asks for");
	while (job->fault == GG_FAULT_HANG_LOAD)
		usleep(POLL_MAX_US);
	for (uint32 i = 0; i < job->nlists && status.code == GG_OK; i++)
	{
		GgWatchedSteps(GG_WATCHED_UPLOAD);
		if (GgIsLoaded(&job->lists[i]))
			status = CreateList(upload, load, i);
	}
	upload->status[load] = status;
	if (status.code != GG_OK)
		Break(upload, load, serial);
	else
	{
		pg_write_barrier();
		GgWordMove(&job->word, serial, GG_LOAD_CREATE, GG_LOAD_OPEN);
	}
}

/* The list that a chunk is for; NULL when its load is over, given up or has no such list. */
static gg_index *
ListOf(GgUpload *upload, const GgStageChunk *chunk)
{
	GgLoadJob  *job;
	uint64		word;
	GgLoadState state;

	if (chunk->load >= GG_MAX_LOADS)
		return NULL;
	job = &upload->device->loads_under_way[chunk->load];
	word = GgReadWord(&job->word);
	state = GgWordState(word);
	if (GgWordSerial(word) != chunk->serial || (word & GG_LOAD_ABORT) ||
		(state != GG_LOAD_OPEN && state != GG_LOAD_FINISH) || chunk->list >= job->nlists)
		return NULL;
	return upload->lists[chunk->load][chunk->list];
}

/* Keep bytes of one row, which begin at `from` in the array, until the whole row has come. */
static gg_status
WritePartRow(GgUpload *upload, const GgStageChunk *chunk, gg_index *list, uint64 row_bytes,
			 uint64 from, const char *bytes, uint64 count)
{
	const uint64 skip = from % row_bytes;
	const uint64 offset = from - skip;
	PartRow   **place = &upload->part_rows[chunk->load];
	PartRow    *row;
	gg_status	status;

	while (*place != NULL && ((*place)->list != chunk->list || (*place)->offset != offset))
		place = &(*place)->next;
	if (*place == NULL)
	{
		*place = calloc(1, sizeof(PartRow) + row_bytes);
		if (*place == NULL)
			return gg_fail(GG_ENOMEM, "gpugraph upload", "out of memory for a row");
		(*place)->list = chunk->list;
		(*place)->offset = offset;
	}
	row = *place;
	memcpy(row->data + skip, bytes, count);
	row->bytes += count;
	if (row->bytes < row_bytes)
		return gg_ok();
	status = upload->engine->index_write(list, GG_PART_ROWS, offset, row->data, row_bytes);
	*place = row->next;
	free(row);
	return status;
}

/* Write rows that are not kept (GG_ROWS_NONE): each one as a whole. */
static gg_status
WriteWholeRows(GgUpload *upload, const GgStageChunk *chunk, gg_index *list, const char *bytes)
{
	const GgLoadJob *job = &upload->device->loads_under_way[chunk->load];
	const uint64 row_bytes = RowBytes(&job->lists[chunk->list].shape);
	uint64		offset = chunk->offset;
	uint64		left = chunk->bytes;
	gg_status	status = {GG_OK};

	while (left > 0 && status.code == GG_OK)
	{
		uint64		here = Min(left, row_bytes - offset % row_bytes);

		if (here == row_bytes)
		{
			here = left - left % row_bytes;
			status = upload->engine->index_write(list, GG_PART_ROWS, offset, bytes, here);
		}
		else
			status = WritePartRow(upload, chunk, list, row_bytes, offset, bytes, here);
		offset += here;
		bytes += here;
		left -= here;
	}
	return status;
}

/* Write rows that are kept in half precision. */
static gg_status
WriteHalves(GgUpload *upload, const GgStageChunk *chunk, gg_index *list, char *bytes)
{
	const gg_shape *shape = &upload->device->loads_under_way[chunk->load].lists[chunk->list].shape;

	if (gg_round_rows((const float *) bytes, (uint16 *) bytes, chunk->bytes / sizeof(float),
					  shape->dim))
		return upload->engine->index_write(list, GG_PART_ROWS, chunk->offset / 2, bytes,
										   chunk->bytes / 2);
	upload->unfit[chunk->load] = true;
	return gg_fail(GG_EUNSUPPORTED, "gpugraph upload", "rows do not bear half precision");
}

static gg_status
WriteChunk(GgUpload *upload, const GgStageChunk *chunk, gg_index *list, char *bytes)
{
	const GgLoadJob *job = &upload->device->loads_under_way[chunk->load];

	if (chunk->part == GG_PART_ROWS && job->lists[chunk->list].halved)
		return WriteHalves(upload, chunk, list, bytes);
	if (chunk->part == GG_PART_ROWS &&
		job->lists[chunk->list].shape.row_place == GG_ROWS_NONE)
		return WriteWholeRows(upload, chunk, list, bytes);
	return upload->engine->index_write(list, (gg_part) chunk->part, chunk->offset, bytes,
									   chunk->bytes);
}

/* Copy one chunk that is FILLED. */
static void
CopyChunk(GgUpload *upload, int number)
{
	GgStageChunk *chunk = &upload->device->chunks[number];
	char	   *bytes = upload->device->staging + (size_t) number * GG_STAGE_CHUNK;
	gg_index   *list;

	pg_atomic_write_u32(&chunk->state, GG_CHUNK_COPYING);
	GgWatchedSteps(GG_WATCHED_UPLOAD);
	list = ListOf(upload, chunk);
	if (list != NULL)
	{
		gg_status	status = WriteChunk(upload, chunk, list, bytes);

		upload->copied[chunk->load][chunk->list] += chunk->bytes;
		if (status.code != GG_OK)
		{
			upload->status[chunk->load] = status;
			Break(upload, (int) chunk->load, chunk->serial);
		}
	}
	pg_write_barrier();
	pg_atomic_write_u32(&chunk->state, GG_CHUNK_FREE);
}

/*
 * Has all of a list come?  A process may have left a list out that it took for one that is there.
 * Its memory would be garbage.
 */
static gg_status
CheckFilled(const GgUpload *upload, int load, uint32 list)
{
	const GgLoadList *brought = &upload->device->loads_under_way[load].lists[list];
	gg_status	status = {GG_OK};

	if (upload->copied[load][list] !=
		PartsBytes(&brought->shape, brought->by_codes, brought->halved))
		status = gg_fail(GG_EINVAL, "gpugraph upload", "a part of it was not brought");
	return status;
}

static void
Finish(GgUpload *upload, int load, uint32 serial)
{
	GgLoadJob  *job = &upload->device->loads_under_way[load];
	gg_control	control = {.threads = 1};
	gg_status	status = {GG_OK};

	for (uint32 i = 0; i < job->nlists && status.code == GG_OK; i++)
	{
		GgWatchedSteps(GG_WATCHED_UPLOAD);
		if (upload->lists[load][i] == NULL)
			continue;
		status = CheckFilled(upload, load, i);
		if (status.code == GG_OK)
			status = upload->engine->index_finish(upload->lists[load][i], job->lists[i].n,
												  &control);
	}
	upload->status[load] = status;
	if (status.code != GG_OK)
	{
		Break(upload, load, serial);
		return;
	}
	pg_write_barrier();
	if (GgWordMove(&job->word, serial, GG_LOAD_FINISH, GG_LOAD_DONE))
		upload->wake(upload->arg);
}

/* Look at everything once.  *active: a load is under way.  True when something was done. */
static bool
Turn(GgUpload *upload, bool *active)
{
	GgDevice   *device = upload->device;
	bool		done = false;
	uint32		finishing[GG_MAX_LOADS] = {0};	/* serials */

	CloseAll(upload);
	*active = false;
	for (int i = 0; i < GG_MAX_LOADS; i++)
	{
		GgLoadJob  *job = &device->loads_under_way[i];
		uint64		word = GgReadWord(&job->word);
		uint32		serial = GgWordSerial(word);
		GgLoadState state = GgWordState(word);

		if (state != GG_LOAD_CREATE && state != GG_LOAD_OPEN && state != GG_LOAD_FINISH)
			continue;
		*active = true;
		if (word & GG_LOAD_ABORT)
		{
			upload->status[i] = gg_fail(GG_ECANCELED, "gpugraph upload",
										"the load was abandoned");
			Break(upload, i, serial);
			done = true;
		}
		else if (state == GG_LOAD_CREATE)
		{
			Create(upload, i, serial);
			done = true;
		}
		else if (state == GG_LOAD_FINISH)
			finishing[i] = serial;
	}

	/* every chunk of a load that is finishing was FILLED before the load moved to FINISH */
	for (int i = 0; i < GG_STAGE_CHUNKS; i++)
	{
		if (pg_atomic_read_u32(&device->chunks[i].state) != GG_CHUNK_FILLED)
			continue;
		pg_read_barrier();
		CopyChunk(upload, i);
		done = true;
	}
	for (int i = 0; i < GG_MAX_LOADS; i++)
	{
		uint64		word = GgReadWord(&device->loads_under_way[i].word);

		if (finishing[i] != 0 && GgWordSerial(word) == finishing[i] &&
			GgWordState(word) == GG_LOAD_FINISH)
		{
			Finish(upload, i, finishing[i]);
			done = true;
		}
	}
	return done;
}

static void *
UploadMain(void *arg)
{
	GgUpload   *upload = arg;
	useconds_t	pause_us = POLL_MIN_US;

	for (;;)
	{
		bool		active;
		bool		done;

		GgWatchedTurns(GG_WATCHED_UPLOAD);
		done = Turn(upload, &active);
		GgWatchedTurns(GG_WATCHED_UPLOAD);
		pthread_mutex_lock(&upload->mutex);
		if (upload->stop)
		{
			pthread_mutex_unlock(&upload->mutex);
			break;
		}
		while (!active && !done && !upload->kicked && !upload->stop)
			pthread_cond_wait(&upload->cond, &upload->mutex);
		done |= upload->kicked;
		upload->kicked = false;
		pthread_mutex_unlock(&upload->mutex);

		if (done)
			pause_us = POLL_MIN_US;
		else
		{
			usleep(pause_us);
			pause_us = pause_us * 2 < POLL_MAX_US ? pause_us * 2 : POLL_MAX_US;
		}
	}
	GgWatchedTurns(GG_WATCHED_UPLOAD);
	CloseAll(upload);
	for (int i = 0; i < GG_MAX_LOADS; i++)
		CloseLists(upload, i);
	GgWatchedTurns(GG_WATCHED_UPLOAD);
	return NULL;
}

/* NULL when there is no memory or no thread to be had. */
GgUpload *
GgUploadStart(GgDevice *device, const gg_engine *engine, void (*wake) (void *arg), void *arg)
{
	GgUpload   *upload = calloc(1, sizeof(GgUpload));

	if (upload == NULL)
		return NULL;
	upload->device = device;
	upload->engine = engine;
	upload->wake = wake;
	upload->arg = arg;
	pthread_mutex_init(&upload->mutex, NULL);
	pthread_cond_init(&upload->cond, NULL);

	if (!gg_thread_create(&upload->thread, UploadMain, upload))
	{
		pthread_cond_destroy(&upload->cond);
		pthread_mutex_destroy(&upload->mutex);
		free(upload);
		return NULL;
	}
	return upload;
}

void
GgUploadStop(GgUpload *upload)
{
	pthread_mutex_lock(&upload->mutex);
	upload->stop = true;
	pthread_cond_signal(&upload->cond);
	pthread_mutex_unlock(&upload->mutex);
	pthread_join(upload->thread, NULL);
	pthread_cond_destroy(&upload->cond);
	pthread_mutex_destroy(&upload->mutex);
	free(upload->closing);
	free(upload);
}

void
GgUploadDelta(GgUpload *upload, int load, const gg_index *from, uint32 first, uint32 rows)
{
	upload->delta_from[load] = from;
	upload->delta_first[load] = first;
	upload->delta_rows[load] = rows;
}

void
GgUploadKick(GgUpload *upload)
{
	pthread_mutex_lock(&upload->mutex);
	upload->kicked = true;
	pthread_cond_signal(&upload->cond);
	pthread_mutex_unlock(&upload->mutex);
}

/* Where there is no memory for the list of what to close, close it at once: slow, but right. */
void
GgUploadClose(GgUpload *upload, gg_index *index)
{
	bool		queued = true;

	if (index == NULL)
		return;
	pthread_mutex_lock(&upload->mutex);
	if (upload->nclosing == upload->closing_size)
	{
		int			size = upload->closing_size == 0 ? 64 : upload->closing_size * 2;
		gg_index  **closing = realloc(upload->closing, size * sizeof(gg_index *));

		if (closing == NULL)
			queued = false;
		else
		{
			upload->closing = closing;
			upload->closing_size = size;
		}
	}
	if (queued)
		upload->closing[upload->nclosing++] = index;
	upload->kicked = true;
	pthread_cond_signal(&upload->cond);
	pthread_mutex_unlock(&upload->mutex);
	if (!queued)
		upload->engine->index_close(index);
}

void
GgUploadTake(GgUpload *upload, int load, gg_index **lists)
{
	memcpy(lists, upload->lists[load], sizeof(upload->lists[load]));
	memset(upload->lists[load], 0, sizeof(upload->lists[load]));
}

bool
GgUploadFoundUnfit(const GgUpload *upload, int load)
{
	return upload->unfit[load];
}

const gg_status *
GgUploadStatus(GgUpload *upload, int load)
{
	return &upload->status[load];
}
