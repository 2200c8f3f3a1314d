/*
 * test_copy.c
 *		The thread that copies rows to the device (src/build_copy.c), with an engine that only remembers
 *		what was written, while other threads fill chunks in any order.
 */
#include "harness.h"

#include "../../src/build_copy.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct gg_index
{
	char	   *memory;
	size_t		bytes;
	uint64_t	calls;
	uint64_t	written;
	uint64_t	fail_at;		/* the call that fails, 0: none */
	long		delay_ns;		/* of each call */
	bool		outside;		/* something was written past the end */
};

static gg_status
remember(gg_index *index, gg_part part, uint64_t offset, const void *src, uint64_t bytes)
{
	gg_status	status = {.code = GG_OK};
	struct timespec delay = {0, index->delay_ns};

	index->calls++;
	if (index->calls == index->fail_at)
	{
		status.code = GG_EDEVICE;
		return status;
	}
	if (part != GG_PART_ROWS || offset + bytes > index->bytes)
	{
		index->outside = true;
		return status;
	}
	if (index->delay_ns)
		nanosleep(&delay, NULL);
	memcpy(index->memory + offset, src, bytes);
	index->written += bytes;
	return status;
}

static const gg_engine engine = {.name = "memory", .index_write = remember};

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

/* Fill and copy; capacity is the device's, in chunks. */
static void
run(uint32_t nchunks, uint32_t capacity, uint32_t skip, uint64_t fail_at)
{
	filling		f = {.row_bytes = 52, .chunk_rows = 40, .nchunks = nchunks, .skip = skip};
	size_t		chunk_bytes = f.chunk_rows * f.row_bytes;
	gg_index	index = {.bytes = capacity * chunk_bytes, .fail_at = fail_at};
	gg_copy_source source;
	gg_copy    *copy;
	gg_status	status;
	pthread_t	threads[3];
	uint64_t	done = 0;

	f.rows = calloc(nchunks, chunk_bytes);
	f.filled = calloc(nchunks, sizeof(uint32_t));
	index.memory = calloc(capacity, chunk_bytes);
	source = (gg_copy_source) {
		.rows = f.rows, .row_bytes = f.row_bytes, .chunk_rows = f.chunk_rows,
		.capacity = capacity * f.chunk_rows, .filled = f.filled, .claimed = &f.claimed
	};
	CHECK_OK(gg_copy_start(&engine, &index, &source, &copy), "gg_copy_start");
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, fill, &f);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	gg_copy_drain(copy);
	while (!gg_copy_ended(copy))
	{
		struct timespec wait = {0, 100000};

		nanosleep(&wait, NULL);
	}
	status = gg_copy_stop(copy);
	if (fail_at != 0)
		CHECK(status.code == GG_EDEVICE, "the error is %d", status.code);
	else
	{
		CHECK_OK(status, "gg_copy_stop");
		for (uint32_t c = 0; c < nchunks; c++)
		{
			bool		wanted = c < capacity && f.filled[c] != 0;

			if (gg_copy_done(copy, c) != wanted ||
				(wanted && memcmp(index.memory + c * chunk_bytes, f.rows + c * chunk_bytes, chunk_bytes) != 0))
				CHECK(false, "chunk %u of %u, %u on the device", c, nchunks, capacity);
			done += wanted;
		}
		CHECK(index.written == done * chunk_bytes, "%llu bytes for %llu chunks: none is copied twice",
			  (unsigned long long) index.written, (unsigned long long) done);
	}
	CHECK(!index.outside, "nothing is written past the end");
	gg_copy_free(copy);
	free(f.rows);
	free(f.filled);
	free(index.memory);
}

/* Ended in the middle: at once, and what is said to be there is. */
static void
stop_early(void)
{
	uint32_t	filled[200];
	uint64_t	claimed = 200 * 10;
	char	   *rows = calloc(200 * 10, 16);
	gg_index	index = {.bytes = 200 * 10 * 16, .delay_ns = 5000000};
	gg_copy_source source = {
		.rows = rows, .row_bytes = 16, .chunk_rows = 10, .capacity = 2000, .filled = filled, .claimed = &claimed
	};
	gg_copy    *copy;
	double		start;
	uint64_t	done = 0;

	/* every other chunk is full: a hundred calls of 5 ms each */
	for (int i = 0; i < 200; i++)
		filled[i] = i % 2;
	index.memory = calloc(1, index.bytes);
	CHECK_OK(gg_copy_start(&engine, &index, &source, &copy), "gg_copy_start");
	start = harness_now();
	CHECK_OK(gg_copy_stop(copy), "gg_copy_stop");
	CHECK(harness_now() - start < 0.25, "stopped after %.3f s", harness_now() - start);
	for (uint32_t c = 0; c < 200; c++)
		done += gg_copy_done(copy, c);
	CHECK(index.written == done * 160, "%llu bytes for %llu chunks", (unsigned long long) index.written, (unsigned long long) done);
	CHECK(!gg_copy_done(copy, 200) && !gg_copy_done(copy, 0xFFFFFFFFu), "no chunk behind the last");
	gg_copy_free(copy);
	gg_copy_free(NULL);
	free(rows);
	free(index.memory);
}

int
main(void)
{
	run(1, 1, 0, 0);
	run(harness_size(2000, 10), harness_size(2000, 10), 0, 0);
	run(harness_size(2000, 10), harness_size(2000, 10), 7, 0);
	run(harness_size(2000, 10), harness_size(1200, 10), 3, 0);
	run(harness_size(2000, 10), harness_size(2000, 10), 0, 3);
	stop_early();
	return harness_finish();
}
