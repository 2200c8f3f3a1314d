/*
 * test_ring.c
 *		The ring between backends and a device's worker (src/service/shared/ring.h): nothing is
 *		lost, nothing comes twice, what one producer puts in comes out in its order; also where the
 *		ring is full most of the time, and where its positions wrap around.
 */
#include "harness.h"

#include "port/atomics.h"

#include "../../src/service/shared/ring.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define PRODUCERS 6u

static GgRing *
new_ring(uint32 nslots, uint32 start)
{
	/* its members are aligned to cache lines */
	GgRing	   *ring = aligned_alloc(64, (GgRingBytes(nslots) + 63) / 64 * 64);

	GgRingInit(ring, nslots);

	/* as if so many had gone through already */
	ring->head = start;
	pg_atomic_init_u32(&ring->tail, start);
	for (uint32 i = 0; i <= ring->mask; i++)
		pg_atomic_init_u32(&ring->cells[(start + i) & ring->mask].sequence, start + i);
	return ring;
}

static void
test_one_thread(void)
{
	GgRing	   *ring = new_ring(10, UINT32_MAX - 20);
	uint32		slot,
				ticket;
	uint32		pushed = 0;

	CHECK(GgRingCells(10) == 64 && GgRingCells(17) == 128,
		  "cells are four a slot, and a power of two");
	CHECK(GgRingEmpty(ring) && !GgRingPop(ring, &slot, &ticket), "an empty ring has nothing");
	for (int round = 0; round < 5; round++)
	{
		uint32		popped = pushed;

		while (GgRingPush(ring, pushed % 10, pushed))
			pushed++;
		CHECK(pushed - popped == 64, "it holds 64, not %u", pushed - popped);
		while (GgRingPop(ring, &slot, &ticket))
		{
			if (slot != popped % 10 || ticket != popped)
				break;
			popped++;
		}
		CHECK(popped == pushed && GgRingEmpty(ring), "round %d: all come back in order, %u of %u",
			  round, popped, pushed);
	}
	free(ring);
}

typedef struct producer
{
	GgRing	   *ring;
	uint32		id;
	uint32		count;
	uint32		full;			/* atomic */
} producer;

static void *
produce(void *arg)
{
	producer   *p = arg;

	for (uint32 i = 1; i <= p->count; i++)
		while (!GgRingPush(p->ring, p->id, i))
		{
			__atomic_add_fetch(&p->full, 1, __ATOMIC_RELAXED);
			sched_yield();
		}
	return NULL;
}

/* slow: the consumer waits for a full ring, and is slower than the producers afterwards. */
static void
run_threads(const char *what, uint32 start, uint32 count, bool slow)
{
	GgRing	   *ring = new_ring(PRODUCERS, start);
	producer	producers[PRODUCERS];
	pthread_t	threads[PRODUCERS];
	uint32		last[PRODUCERS] = {0};
	uint64_t	taken = 0;
	uint64_t	disorder = 0;
	uint64_t	full = 0;

	for (uint32 i = 0; i < PRODUCERS; i++)
	{
		producers[i] = (producer) {ring, i, count, 0};
		if (!CHECK(pthread_create(&threads[i], NULL, produce, &producers[i]) == 0, "no thread"))
			return;
	}
	while (slow && __atomic_load_n(&producers[0].full, __ATOMIC_RELAXED) == 0)
		sched_yield();
	while (taken < (uint64_t) PRODUCERS * count)
	{
		uint32		slot,
					ticket;

		if (!GgRingPop(ring, &slot, &ticket))
		{
			sched_yield();
			continue;
		}
		taken++;
		if (slot >= PRODUCERS || ticket != last[slot] + 1)
			disorder++;
		if (slot < PRODUCERS)
			last[slot] = ticket;
		if (slow && taken % 64 == 0)
			sched_yield();
	}
	for (uint32 i = 0; i < PRODUCERS; i++)
	{
		pthread_join(threads[i], NULL);
		full += producers[i].full;
	}
	CHECK(disorder == 0, "%s: %llu of %llu entries are not the ones that were due", what,
		  (unsigned long long) disorder, (unsigned long long) taken);
	CHECK(GgRingEmpty(ring), "%s: something is left", what);
	CHECK(ring->head == start + PRODUCERS * count, "%s: the head is at %u", what, ring->head);
	if (slow)
		CHECK(full > 0, "%s: the ring was never full", what);
	free(ring);
}

static void
test_threads(void)
{
	run_threads("from 0", 0, harness_size(200000, 10), false);
	run_threads("wrapping", UINT32_MAX - 1000, harness_size(200000, 10), false);
	run_threads("full", UINT32_MAX - 1000, harness_size(200000, 10), true);
}

int
main(void)
{
	harness_run("one thread", test_one_thread);
	harness_run("threads", test_threads);
	return harness_finish();
}
