/*
 * test_pool.c
 *		The pool of long answers (src/service/shared/pool.h): a chunk has one owner at a time, is
 *		given back by its owner alone, and none is lost.
 */
#include "harness.h"

#include "port/atomics.h"

#include "../../src/service/shared/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define CHUNKS 5u
#define THREADS 8u

static GgPool *
new_pool(void)
{
	GgPool	   *pool = malloc(GgPoolBytes(CHUNKS));

	GgPoolInit(pool, CHUNKS);
	return pool;
}

static void
test_one_thread(void)
{
	GgPool	   *pool = new_pool();
	int			taken[CHUNKS];
	volatile int beyond = CHUNKS;	/* the compiler would take it for an overflow */
	uint32		seen = 0;

	for (uint32 i = 0; i < CHUNKS; i++)
	{
		taken[i] = GgPoolTake(pool, i);
		CHECK(taken[i] >= 0 && taken[i] < (int) CHUNKS && (seen >> taken[i] & 1) == 0 &&
			  GgPoolIsOwner(pool, taken[i], i), "chunk %d for slot %u", taken[i], i);
		if (taken[i] >= 0)
			seen |= 1u << taken[i];
	}
	CHECK(GgPoolTake(pool, CHUNKS) == -1, "no more than there are");
	CHECK(!GgPoolIsOwner(pool, taken[0], 1) && !GgPoolGiveBack(pool, taken[0], 1),
		  "nobody gives back another's");
	CHECK(!GgPoolGiveBack(pool, -1, 0) && !GgPoolGiveBack(pool, beyond, 0) &&
		  !GgPoolIsOwner(pool, -1, 0) && !GgPoolIsOwner(pool, beyond, 0), "no such chunk");
	CHECK(GgPoolGiveBack(pool, taken[2], 2) && !GgPoolGiveBack(pool, taken[2], 2),
		  "given back once");
	CHECK(!GgPoolIsOwner(pool, taken[2], 2) && GgPoolTake(pool, 77) == taken[2],
		  "and taken by another");
	free(pool);
}

typedef struct taker
{
	GgPool	   *pool;
	uint32		id;
	uint32		count;
	uint32	   *holders;		/* of each chunk, while it is held */
	uint32		clashes;
	uint32		lost;
} taker;

static void *
take(void *arg)
{
	taker	   *t = arg;

	for (uint32 i = 0; i < t->count;)
	{
		int			chunk = GgPoolTake(t->pool, t->id);

		if (chunk < 0)
		{
			sched_yield();
			continue;
		}
		/* plain memory: a second owner would be a race */
		t->clashes += t->holders[chunk]++ != 0;
		t->clashes += t->holders[chunk]-- != 1;
		t->lost += !GgPoolGiveBack(t->pool, chunk, t->id);
		i++;
	}
	return NULL;
}

static void
test_threads(void)
{
	GgPool	   *pool = new_pool();
	uint32		holders[CHUNKS] = {0};
	taker		takers[THREADS];
	pthread_t	threads[THREADS];

	for (uint32 i = 0; i < THREADS; i++)
	{
		takers[i] = (taker) {pool, i * 3, harness_size(100000, 10), holders, 0, 0};
		if (!CHECK(pthread_create(&threads[i], NULL, take, &takers[i]) == 0, "no thread"))
			return;
	}
	for (uint32 i = 0; i < THREADS; i++)
	{
		pthread_join(threads[i], NULL);
		CHECK(takers[i].clashes == 0 && takers[i].lost == 0, "thread %u: %u clashes, %u lost", i,
			  takers[i].clashes, takers[i].lost);
	}
	for (uint32 i = 0; i < CHUNKS; i++)
		CHECK(GgPoolTake(pool, i) >= 0, "chunk %u is free in the end", i);
	free(pool);
}

int
main(void)
{
	harness_run("one thread", test_one_thread);
	harness_run("threads", test_threads);
	return harness_finish();
}
