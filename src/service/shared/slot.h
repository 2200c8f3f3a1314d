/*
 * slot.h
 *		The memory of one request and its answer: a slot, and a chunk of the pool where these are
 *		long.
 */
#ifndef GG_SLOT_H
#define GG_SLOT_H

#include "service/shared/service.h"

#include "port/atomics.h"

#include "engine/request.h"

/*
 * Each device has a slot per PGPROC (backends and background workers), so a process has at most
 * one query under way with each device.  Each slot has one device that ever writes it, so what one
 * device does, or leaves undone, concerns no other device's answers.  The word holds
 * (ticket << 8 | state).  Every change but that from FREE, and back when the ring is full, is a
 * compare-and-swap of both, so a change that is meant for an earlier query never hits a later one.
 *
 *	FREE -> QUEUED		the backend, before it puts the slot's number into the ring
 *	QUEUED -> FREE		the backend, when the ring is full
 *	QUEUED -> RUNNING	the worker, when it takes the query
 *	RUNNING -> FREE		the backend, when all done words asked for have reached the ticket
 *	QUEUED|RUNNING -> ABANDONED		the backend, cancelled; it goes on at once
 *	ABANDONED -> FREE	the worker, when nothing in flight writes the slot any more
 *	QUEUED|RUNNING -> FAILED		the worker, with a reason
 *	FAILED -> FREE		the backend, also when it has seen the answer
 *
 * A request may name a chunk of the pool of long answers (pool.h).  Then the chunk is the slot's as
 * long as the slot is not FREE, and with RUNNING -> FREE and FAILED -> FREE until the backend has
 * copied the answer.  With ABANDONED -> FREE it goes back before the slot does.
 *
 * A process that ends abandons its slot (before_shmem_exit).  A backend that finds its slot not
 * FREE when it has a new query uses the CPU.  Slots that a worker left behind stay as they are,
 * because its dying context may still write them.  The next worker of the device frees them when
 * it starts.  The last worker of a device that is gone for good (GG_DEVICE_GONE) has opened no
 * context: a slot that is ABANDONED to it later is freed by its own process.
 */
typedef enum GgSlotState
{
	GG_SLOT_FREE = 0,
	GG_SLOT_QUEUED,
	GG_SLOT_RUNNING,
	GG_SLOT_ABANDONED,
	GG_SLOT_FAILED
} GgSlotState;

#define GgSlotWord(ticket, state)	((uint64) (ticket) << 8 | (state))
#define GgSlotTicket(word)			((word) >> 8)
#define GgSlotStateOf(word)			((GgSlotState) ((word) & 0xFF))

/* Keys of an answer that a slot has room for; longer ones come into a chunk. */
#define GG_SLOT_KEYS		4096

/* A slot has room for so many targets of a group; more of them lie in a chunk, before the keys. */
#define GG_SLOT_TARGETS		32

/* A list of a resident. */
typedef struct GgGroupTarget
{
	uint32		entry;			/* as in GgResidentRef */
	uint32		serial;
	uint16		list;
	bool		measured;		/* all rows of the list are */
	bool		lost;			/* set by the worker: the device has it no more; no keys come */
} GgGroupTarget;

typedef struct GgSlot
{
	pg_atomic_uint64 word;
	pg_atomic_uint32 sleeping;	/* the backend waits on its latch */

	/* the query: written by the backend before QUEUED, read by the worker */
	int32		procno;			/* whose latch to set */
	uint32		entry;			/* GgResidentRef */
	uint32		serial;
	int32		fault;			/* GgFault */
	int32		chunk;			/* of the pool; -1: none */
	uint32		ntargets;		/* of a group; 0: the lists are those of (entry, serial) */
	GgGroupTarget targets[GG_SLOT_TARGETS];
	gg_request	request;

	/* written by the worker before FAILED */
	int32		reason;			/* GgReason */

	/* microseconds of a monotonic clock; for the percentiles */
	uint64		posted_us;

	/* what follows is read and written by the device */
	pg_attribute_aligned(64) uint32 done[GG_SERVE_MAX_LISTS];
	pg_attribute_aligned(64) uint64 keys[GG_SLOT_KEYS];
	pg_attribute_aligned(64) float query[GG_MAX_DIM];
} GgSlot;

/* Change a slot's state; false when it holds another query, or is in another state. */
static inline bool
GgSlotMove(GgSlot *slot, uint64 ticket, GgSlotState from, GgSlotState to)
{
	uint64		word = GgSlotWord(ticket, from);

	return pg_atomic_compare_exchange_u64(&slot->word, &word, GgSlotWord(ticket, to));
}

/*
 * A chunk of the pool holds several queries, or a group's targets, then the answer's keys; and a
 * filter, whose TIDs are the end of the body.  The keys of a single list may overwrite the TIDs.
 */
#define GG_CHUNK_BODY		((Size) 512 << 10)

typedef struct GgChunk
{
	pg_attribute_aligned(64) gg_filter filter;
	pg_attribute_aligned(64) uint64 matches[GG_SERVE_MAX_LISTS];
	pg_attribute_aligned(64) char body[GG_CHUNK_BODY];
} GgChunk;

StaticAssertDecl(GG_CHUNK_BODY == GG_MAX_DEEP * sizeof(uint64) &&
				 GG_MAX_FILTER_TIDS <= GG_MAX_DEEP && offsetof(GgChunk, body) % 64 == 0 &&
				 sizeof(GgChunk) % 64 == 0, "a chunk holds the longest list, and the most TIDs");

/* Bytes of the body of a chunk that queries, if there are several, and keys take. */
static inline uint64
GgBodyBytes(uint64 count, uint32 dim, uint32 k, uint32 nlists)
{
	uint64		queries = count > 1 ? TYPEALIGN64(64, count * dim * sizeof(float)) : 0;

	return queries + nlists * count * k * sizeof(uint64);
}

/* Bytes of the body of a chunk that a group's targets take. */
static inline Size
GgTargetBytes(uint32 ntargets)
{
	return TYPEALIGN64(64, ntargets * sizeof(GgGroupTarget));
}

/* How many TIDs there is room for beside one query's lists. */
static inline uint32
GgMostTids(uint32 k, uint32 nlists)
{
	Size		keys = nlists > 1 ? Min(GgBodyBytes(1, 0, k, nlists), GG_CHUNK_BODY) : 0;

	return Min((GG_CHUNK_BODY - keys) / sizeof(uint64), GG_MAX_FILTER_TIDS);
}

/* Does the answer to a request, whose numbers are in range, fit a slot without a chunk? */
extern bool GgFitsSlot(const gg_request *request);

/* Do the targets of a group and the answer to its request fit a slot without a chunk? */
extern bool GgGroupFitsSlot(const gg_request *request, uint32 ntargets);

/*
 * Fill in where queries, keys and, unless they are 0, filter, TIDs and matches of a request lie in
 * a slot, or in the chunk that the slot has.  False: they do not fit.
 */
extern bool GgPlaceRequest(const GgSlot *slot, uint32 ntids, gg_request *request);

/* The targets of the group that a slot has. */
extern GgGroupTarget *GgSlotTargets(GgSlot *slot);

#endif							/* GG_SLOT_H */
