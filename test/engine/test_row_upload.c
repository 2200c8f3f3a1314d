/*
 * test_row_upload.c
 *		The threads that copy rows to the device (src/engine/threads/row_upload.c), with an engine
 *		that only remembers what was written, while other threads fill chunks in any order.
 */
#include "harness.h"

#include "../../src/engine/threads/row_upload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_PAUSES 60000		/* of a millisecond: what has not come by then never will */

/* Created by create() from what the test wants of it; one at a time. */
struct gg_index
{
	char	   *memory;
	size_t		bytes;
	gg_shape	shape;			/* that was asked for */
	int			creations;
	bool		no_room;		/* it is not to be had */
	bool		create_late;	/* it comes when the test waits for the end */
	bool		write_late;		/* so does the end of each call */
	int			meeting;		/* calls wait until so many are under way */
	uint64_t	fail_at;		/* the call that fails, 0: none */
	long		delay_ns;		/* of each call */

	/* atomic */
	bool		stopping;		/* the test waits for the end */
	uint64_t	calls;
	uint64_t	written;
	int			inside;			/* calls under way */
	int			most_inside;
	bool		outside;		/* something was written past the end */
};

static gg_index wanted;
static pthread_t tester;

extern int	__real_pthread_join(pthread_t thread, void **result);
extern int	__wrap_pthread_join(pthread_t thread, void **result);

/* gg_row_upload_stop() has said what it has to say, and waits (Makefile, --wrap). */
int
__wrap_pthread_join(pthread_t thread, void **result)
{
	if (pthread_equal(pthread_self(), tester))
		__atomic_store_n(&wanted.stopping, true, __ATOMIC_RELEASE);
	return __real_pthread_join(thread, result);
}

static void
pause_ns(long ns)
{
	struct timespec pause = {0, ns};

	nanosleep(&pause, NULL);
}

static void
wait_for_stop(void)
{
	while (!__atomic_load_n(&wanted.stopping, __ATOMIC_ACQUIRE))
		pause_ns(100000);
}

/* Until so many were under way at one time: threads begin when they like. */
static void
wait_for_calls(int count)
{
	for (int i = 0; i < MOST_PAUSES &&
		 __atomic_load_n(&wanted.most_inside, __ATOMIC_RELAXED) < count; i++)
		pause_ns(1000000);
}

static gg_status
create(const gg_shape *shape, gg_index **index)
{
	gg_status	status = {.code = GG_OK};

	wanted.creations++;
	if (wanted.create_late)
		wait_for_stop();
	if (wanted.no_room)
	{
		status.code = GG_EDEVICE_MEMORY;
		return status;
	}
	wanted.shape = *shape;
	*index = &wanted;
	return status;
}

static gg_status
remember(gg_index *index, gg_part part, uint64_t offset, const void *src, uint64_t bytes)
{
	gg_status	status = {.code = GG_OK};
	int			inside = __atomic_add_fetch(&index->inside, 1, __ATOMIC_RELAXED);
	int			most = __atomic_load_n(&index->most_inside, __ATOMIC_RELAXED);

	while (inside > most &&
		   !__atomic_compare_exchange_n(&index->most_inside, &most, inside, false,
										__ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	wait_for_calls(index->meeting);
	if (__atomic_add_fetch(&index->calls, 1, __ATOMIC_RELAXED) == index->fail_at)
		status.code = GG_EDEVICE;
	else if (part != GG_PART_ROWS || offset + bytes > index->bytes)
		__atomic_store_n(&index->outside, true, __ATOMIC_RELAXED);
	else
	{
		if (index->delay_ns)
			pause_ns(index->delay_ns);
		if (index->write_late)
			wait_for_stop();
		memcpy(index->memory + offset, src, bytes);
		__atomic_add_fetch(&index->written, bytes, __ATOMIC_RELAXED);
	}
	__atomic_sub_fetch(&index->inside, 1, __ATOMIC_RELAXED);
	return status;
}

/*
 * After gg_row_upload_stop(), that create() saw what it should.  create() does not check itself: it
 * runs beside the test's own checks, which one thread counts.
 */
static void
check_created(void)
{
	CHECK(wanted.creations == 1 && wanted.shape.dim == 13 && wanted.shape.degree == 0,
		  "the shape that was asked for, once");
}

static const gg_engine engine = {.name = "memory", .index_create = create, .index_write = remember};

typedef struct filling
{
	char	   *rows;
	size_t		row_bytes;
	uint32_t	chunk_rows;
	uint32_t	nchunks;
	uint32_t   *filled;
	uint64_t	claimed;
	uint32_t	skip;			/* every skip-th chunk is left half empty, 0: none */
} filling;

static void *
fill(void *arg)
{
	filling    *f = arg;
	size_t		chunk_bytes = f->chunk_rows * f->row_bytes;

	for (;;)
	{
		uint64_t	first = __atomic_fetch_add(&f->claimed, f->chunk_rows, __ATOMIC_RELAXED);
		uint32_t	chunk = (uint32_t) (first / f->chunk_rows);

		if (chunk >= f->nchunks)
			return NULL;
		for (size_t i = 0; i < chunk_bytes; i++)
			f->rows[chunk * chunk_bytes + i] = (char) (chunk * 31 + i * 7);
		if (f->skip == 0 || chunk % f->skip != 0)
			__atomic_store_n(&f->filled[chunk], f->chunk_rows, __ATOMIC_RELEASE);
	}
}

static void
wait_for_end(gg_row_upload *upload)
{
	while (!gg_row_upload_ended(upload))
		pause_ns(100000);
}

/* Fill and copy; capacity is the device's, in chunks. */
static void
run(uint32_t nchunks, uint32_t capacity, uint32_t skip, uint64_t fail_at, int nthreads)
{
	filling		f = {.row_bytes = 52, .chunk_rows = 40, .nchunks = nchunks, .skip = skip};
	size_t		chunk_bytes = f.chunk_rows * f.row_bytes;
	gg_shape	shape = {.capacity = capacity * f.chunk_rows, .dim = 13};
	gg_index   *index = NULL;
	gg_upload_source source;
	gg_row_upload *upload;
	gg_status	status;
	pthread_t	threads[3];
	uint64_t	done = 0;

	f.rows = calloc(nchunks, chunk_bytes);
	f.filled = calloc(nchunks, sizeof(uint32_t));
	wanted = (gg_index) {
		.memory = calloc(capacity, chunk_bytes), .bytes = capacity * chunk_bytes, .fail_at = fail_at
	};
	source = (gg_upload_source) {
		.rows = f.rows, .row_bytes = f.row_bytes, .chunk_rows = f.chunk_rows, .filled = f.filled,
		.claimed = &f.claimed
	};
	CHECK_OK(gg_row_upload_start(&engine, GG_DEVICE_IN_USE, &shape, &source, nthreads, &index,
								 &upload), "gg_row_upload_start");
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, fill, &f);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	gg_row_upload_drain(upload);
	wait_for_end(upload);
	status = gg_row_upload_stop(upload);
	CHECK(index == &wanted && wanted.creations == 1, "the index is the caller's");
	check_created();
	if (fail_at != 0)
		CHECK(status.code == GG_EDEVICE, "the error is %d", status.code);
	else
	{
		CHECK_OK(status, "gg_row_upload_stop");
		for (uint32_t c = 0; c < nchunks; c++)
		{
			bool		expected = c < capacity && f.filled[c] != 0;

			if (gg_row_upload_done(upload, c) != expected ||
				(expected && memcmp(wanted.memory + c * chunk_bytes, f.rows + c * chunk_bytes,
									chunk_bytes) != 0))
				CHECK(false, "chunk %u of %u, %u on the device", c, nchunks, capacity);
			done += expected;
		}
		CHECK(wanted.written == done * chunk_bytes,
			  "%llu bytes for %llu chunks: none is copied twice",
			  (unsigned long long) wanted.written, (unsigned long long) done);
	}
	CHECK(!wanted.outside, "nothing is written past the end");
	CHECK(wanted.most_inside <= (nthreads < GG_UPLOAD_THREADS ? nthreads : GG_UPLOAD_THREADS),
		  "%d at a time", wanted.most_inside);
	gg_row_upload_free(upload);
	free(f.rows);
	free(f.filled);
	free(wanted.memory);
}

/*
 * 200 chunks of ten rows, of which every other one is full: a hundred calls.  like: what these are.
 */
static gg_row_upload *
start_slow(gg_index like, int nthreads, char **rows, gg_index **index)
{
	static uint32_t filled[200];
	static uint64_t claimed = 200 * 10;
	gg_shape	shape = {.capacity = 2000, .dim = 13};
	gg_upload_source source = {
		.row_bytes = 52, .chunk_rows = 10, .filled = filled, .claimed = &claimed
	};
	gg_row_upload *upload;

	source.rows = *rows = calloc(2000, 52);
	for (int i = 0; i < 200; i++)
		filled[i] = i % 2;
	wanted = like;
	wanted.memory = calloc(2000, 52);
	wanted.bytes = 2000 * 52;
	CHECK_OK(gg_row_upload_start(&engine, GG_DEVICE_IN_USE, &shape, &source, nthreads, index,
								 &upload), "gg_row_upload_start");
	return upload;
}

/* Ended in the middle: at once, and what is said to be there is. */
static void
stop_early(void)
{
	gg_index   *index;
	char	   *rows;
	gg_row_upload *upload = start_slow((gg_index) {.write_late = true}, 2, &rows, &index);
	uint64_t	done = 0;

	wait_for_calls(2);
	CHECK_OK(gg_row_upload_stop(upload), "gg_row_upload_stop");
	CHECK(wanted.calls == 2, "%llu chunks of 100 were begun", (unsigned long long) wanted.calls);
	for (uint32_t c = 0; c < 200; c++)
		done += gg_row_upload_done(upload, c);
	check_created();
	CHECK(wanted.written == done * 520, "%llu bytes for %llu chunks",
		  (unsigned long long) wanted.written, (unsigned long long) done);
	CHECK(!gg_row_upload_done(upload, 200) && !gg_row_upload_done(upload, 0xFFFFFFFFu),
		  "no chunk behind the last");
	gg_row_upload_free(upload);
	gg_row_upload_free(NULL);
	free(rows);
	free(wanted.memory);
}

/* Several threads copy side by side, and the time that is told is not the sum of theirs. */
static void
side_by_side(void)
{
	gg_index   *index;
	char	   *rows;
	double		start = harness_now();
	gg_row_upload *upload = start_slow((gg_index) {.delay_ns = 5000000,.meeting = 4}, 4, &rows,
										  &index);

	gg_row_upload_drain(upload);
	wait_for_end(upload);
	CHECK_OK(gg_row_upload_stop(upload), "gg_row_upload_stop");
	check_created();
	CHECK(wanted.written == 100 * 520, "all of it");
	CHECK(wanted.most_inside == 4, "%d at a time", wanted.most_inside);
	CHECK(gg_row_upload_seconds(upload) >= 0.125 - 0.01 &&
		  gg_row_upload_seconds(upload) <= harness_now() - start,
		  "%.3f s", gg_row_upload_seconds(upload));
	CHECK(gg_row_upload_open_seconds(upload) >= 0, "%.3f s to open",
		  gg_row_upload_open_seconds(upload));
	gg_row_upload_free(upload);
	free(rows);
	free(wanted.memory);
}

/* One chunk, which is full. */
static gg_row_upload *
start_one(gg_index **index)
{
	static const uint32_t filled[1] = {10};
	static const uint64_t claimed = 10;
	static const char rows[10 * 52];
	const gg_shape shape = {.capacity = 10, .dim = 13};
	const gg_upload_source source = {
		.rows = rows, .row_bytes = 52, .chunk_rows = 10, .filled = filled, .claimed = &claimed
	};
	gg_row_upload *upload;

	CHECK_OK(gg_row_upload_start(&engine, GG_DEVICE_IN_USE, &shape, &source, 4, index, &upload),
			 "gg_row_upload_start");
	return upload;
}

/* No index to be had: said at the end, and nothing is written. */
static void
no_room(void)
{
	gg_index   *index = &wanted;
	gg_row_upload *upload;

	wanted = (gg_index) {.no_room = true};
	upload = start_one(&index);
	wait_for_end(upload);
	CHECK(gg_row_upload_stop(upload).code == GG_EDEVICE_MEMORY, "the engine's error");
	CHECK(index == NULL && wanted.creations == 1 && wanted.calls == 0,
		  "nothing more was asked of the engine");
	gg_row_upload_free(upload);
}

/* Ended before the index is there, or freed without being ended: the index is the caller's. */
static void
stop_before_open(void)
{
	gg_index   *index;
	gg_row_upload *upload;

	for (int stop = 0; stop < 2; stop++)
	{
		wanted = (gg_index) {.create_late = true};
		upload = start_one(&index);
		if (stop)
			CHECK_OK(gg_row_upload_stop(upload), "gg_row_upload_stop");
		gg_row_upload_free(upload);
		check_created();
		CHECK(index == &wanted && wanted.calls == 0, "created, and nothing was copied");
	}
}

int
main(void)
{
	uint32_t	many = harness_size(2000, 10);

	tester = pthread_self();
	for (int threads = 1; threads <= 2 * GG_UPLOAD_THREADS; threads *= 4)
	{
		run(1, 1, 0, 0, threads);
		run(many, many, 0, 0, threads);
		run(many, many, 7, 0, threads);
		run(many, harness_size(1200, 10), 3, 0, threads);
		run(many, many, 0, 3, threads);
	}
	stop_early();
	side_by_side();
	no_room();
	stop_before_open();
	return harness_finish();
}
