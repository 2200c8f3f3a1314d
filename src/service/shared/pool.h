/*
 * pool.h
 *		The pool of long answers: chunks of shared memory that devices see, for requests whose
 *		queries or answers do not fit a slot.
 *
 * A chunk belongs to one slot at a time.  The backend takes it before it posts a request, names it
 * in the slot, and gives it back when it has copied the answer.  While the slot is ABANDONED a
 * device may still write into the chunk: whoever frees the slot gives the chunk back first
 * (GgSlotFreeAbandoned() in shmem.h).  So a chunk lives as long as its request, and the pool needs
 * no lock.
 */
#ifndef GG_POOL_H
#define GG_POOL_H

#include "port/atomics.h"

typedef struct GgPool
{
	uint32		nchunks;
	pg_atomic_uint32 owners[FLEXIBLE_ARRAY_MEMBER]; /* slot number + 1; 0: free */
} GgPool;

static inline Size
GgPoolBytes(uint32 nchunks)
{
	return offsetof(GgPool, owners) + nchunks * sizeof(pg_atomic_uint32);
}

static inline void
GgPoolInit(GgPool *pool, uint32 nchunks)
{
	pool->nchunks = nchunks;
	for (uint32 i = 0; i < nchunks; i++)
		pg_atomic_init_u32(&pool->owners[i], 0);
}

/* Take a free chunk for a slot; -1 when there is none. */
static inline int
GgPoolTake(GgPool *pool, uint32 slot)
{
	/* slots look for theirs in different places */
	for (uint32 i = 0; i < pool->nchunks; i++)
	{
		uint32		chunk = (slot + i) % pool->nchunks;
		uint32		nobody = 0;

		if (pg_atomic_read_u32(&pool->owners[chunk]) == 0 &&
			pg_atomic_compare_exchange_u32(&pool->owners[chunk], &nobody, slot + 1))
			return (int) chunk;
	}
	return -1;
}

static inline bool
GgPoolIsOwner(GgPool *pool, int chunk, uint32 slot)
{
	return chunk >= 0 && (uint32) chunk < pool->nchunks &&
		pg_atomic_read_u32(&pool->owners[chunk]) == slot + 1;
}

/* Give a chunk back; false when it is not the slot's. */
static inline bool
GgPoolGiveBack(GgPool *pool, int chunk, uint32 slot)
{
	uint32		owner = slot + 1;

	return chunk >= 0 && (uint32) chunk < pool->nchunks &&
		pg_atomic_compare_exchange_u32(&pool->owners[chunk], &owner, 0);
}

#endif							/* GG_POOL_H */
