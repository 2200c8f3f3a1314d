/*
 * recent_buffers.h
 *		In which buffer a block was last seen, as a hint.
 */
#ifndef GG_RECENT_BUFFERS_H
#define GG_RECENT_BUFFERS_H

#include "postgres.h"

#include "compat.h"

#include "port/atomics.h"

/* Blocks of one version of a relation; see recent_buffers.c. */
typedef struct GgRecentBuffers
{
	pg_atomic_uint64 *slots;
	uint32		mask;
	uint32		owner;
} GgRecentBuffers;

/* From _PG_init. */
extern void GgInitRecentBuffers(void);

/* Set up *recent for a relation.  version: what, beside its file, tells one owner from another. */
extern void GgFindRecentBuffers(GgRecentBuffers *recent, Relation rel, uint64 version);

/*
 * The buffer that a block was last seen in, or InvalidBuffer.  It may be another block's by now:
 * ReadRecentBuffer() finds out, or a look at the buffer's tag before and after.
 */
static inline Buffer
GgRecentBuffer(const GgRecentBuffers *recent, BlockNumber blkno)
{
	uint32		tag = blkno ^ recent->owner;
	uint64		slot = pg_atomic_read_u64(&recent->slots[tag & recent->mask]);

	return slot >> 32 == tag ? (Buffer) (uint32) slot : InvalidBuffer;
}

/* The table is larger than caches: what GgRecentBuffer() reads is fetched ahead. */
static inline void
GgFetchRecentBuffer(const GgRecentBuffers *recent, BlockNumber blkno)
{
	__builtin_prefetch(&recent->slots[(blkno ^ recent->owner) & recent->mask]);
}

static inline void
GgSetRecentBuffer(const GgRecentBuffers *recent, BlockNumber blkno, Buffer buffer)
{
	uint32		tag = blkno ^ recent->owner;

	pg_atomic_write_u64(&recent->slots[tag & recent->mask], (uint64) tag << 32 | (uint32) buffer);
}

#endif							/* GG_RECENT_BUFFERS_H */
