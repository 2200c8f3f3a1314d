/*
 * ring.h
 *		The ring that carries slot numbers from backends to a device's worker.
 *
 * It is bounded and without locks, for many producers and one consumer.  A producer takes a place
 * by moving tail, writes the cell and then publishes it by the cell's sequence.  The consumer reads
 * cells in order.  An entry names slot and ticket, so one left behind by a query that is over means
 * nothing.  No producer can end between taking a place and publishing it, because nothing in
 * between can throw.
 *
 * There are more cells than slots, and a slot is in the ring once for each query.  So the ring is
 * full only when the worker takes nothing from it.
 */
#ifndef GG_RING_H
#define GG_RING_H

#include "port/atomics.h"

typedef struct GgRingCell
{
	pg_atomic_uint32 sequence;	/* position p: free for entry p; p + 1: holds entry p */
	uint32		slot;
	uint32		ticket;			/* the low half of the slot's */
} GgRingCell;

typedef struct GgRing
{
	uint32		mask;
	pg_atomic_uint32 abandoned; /* counts queries given up, whose slots the worker looks for */

	/* apart, because different processes write them all the time */
	pg_attribute_aligned(64) pg_atomic_uint32 tail;
	pg_attribute_aligned(64) uint32 head;	/* the worker's; the next worker goes on from it */
	pg_attribute_aligned(64) pg_atomic_uint32 waiting;	/* backends with a query under way */
	pg_attribute_aligned(64) GgRingCell cells[FLEXIBLE_ARRAY_MEMBER];
} GgRing;

/*
 * How many cells a ring has: for four queries per slot, of which three may be given up and one live
 * before the worker has looked at any.
 */
static inline uint32
GgRingCells(uint32 nslots)
{
	uint32		cells = 64;

	while (cells < 4 * nslots)
		cells *= 2;
	return cells;
}

static inline Size
GgRingBytes(uint32 nslots)
{
	return offsetof(GgRing, cells) + GgRingCells(nslots) * sizeof(GgRingCell);
}

static inline void
GgRingInit(GgRing *ring, uint32 nslots)
{
	uint32		cells = GgRingCells(nslots);

	ring->mask = cells - 1;
	ring->head = 0;
	pg_atomic_init_u32(&ring->tail, 0);
	pg_atomic_init_u32(&ring->abandoned, 0);
	pg_atomic_init_u32(&ring->waiting, 0);
	for (uint32 i = 0; i < cells; i++)
		pg_atomic_init_u32(&ring->cells[i].sequence, i);
}

/* Put a slot's number and ticket into the ring; false when it is full. */
static inline bool
GgRingPush(GgRing *ring, uint32 slot, uint32 ticket)
{
	uint32		place = pg_atomic_read_u32(&ring->tail);
	GgRingCell *cell;

	for (;;)
	{
		int32		ahead;

		cell = &ring->cells[place & ring->mask];
		ahead = (int32) (pg_atomic_read_u32(&cell->sequence) - place);
		if (ahead < 0)
			return false;
		if (ahead > 0)
			place = pg_atomic_read_u32(&ring->tail);
		else if (pg_atomic_compare_exchange_u32(&ring->tail, &place, place + 1))
			break;
	}
	cell->slot = slot;
	cell->ticket = ticket;
	pg_write_barrier();
	pg_atomic_write_u32(&cell->sequence, place + 1);
	return true;
}

static inline bool
GgRingEmpty(GgRing *ring)
{
	return pg_atomic_read_u32(&ring->cells[ring->head & ring->mask].sequence) != ring->head + 1;
}

/* Take the oldest entry; false when there is none.  Worker only. */
static inline bool
GgRingPop(GgRing *ring, uint32 *slot, uint32 *ticket)
{
	GgRingCell *cell = &ring->cells[ring->head & ring->mask];

	if (GgRingEmpty(ring))
		return false;
	pg_read_barrier();
	*slot = cell->slot;
	*ticket = cell->ticket;
	pg_memory_barrier();
	pg_atomic_write_u32(&cell->sequence, ring->head + ring->mask + 1);
	ring->head++;
	return true;
}

#endif							/* GG_RING_H */
