/*
 * load.h
 *		A load's word and its lock, the states of a staging chunk, and which part of a delta a
 *		resident covers.
 *
 * A load's word is (serial << 8 | flags | state).  Who may change it:
 *
 *	FREE -> ASSIGNED		under device->lock: the worker, which then starts a loader, or
 *							GgLoadBegin()
 *	ASSIGNED -> SHAPED		the owner: it has filled in what is to be loaded
 *	SHAPED -> CREATE		the worker: there is room
 *	CREATE -> OPEN			the upload thread: it has the device memory, and chunks are accepted
 *	OPEN -> FINISH			the owner: every chunk has been handed over
 *	FINISH -> DONE			the upload thread: searchable
 *	CREATE, OPEN, FINISH -> BROKEN		the upload thread: an engine error, or the ABORT flag; it
 *							has given the memory back
 *	BROKEN -> SHAPED		the worker, once: it made more room
 *	ASSIGNED, SHAPED, BROKEN, DONE -> ENDED		the worker: the entry has the outcome
 *	ENDED -> FREE			the owner; the worker when the ORPHAN flag says that there is no owner
 *							any more
 *
 * Every process that knows the serial may set flags, at any time.
 */
#ifndef GG_LOAD_H
#define GG_LOAD_H

#include "service/shared/shmem.h"

#include "miscadmin.h"
#include "storage/lock.h"

/* ---- the word ---------------------------------------------------------------- */

typedef enum GgLoadState
{
	GG_LOAD_FREE = 0,
	GG_LOAD_ASSIGNED,
	GG_LOAD_SHAPED,
	GG_LOAD_CREATE,
	GG_LOAD_OPEN,
	GG_LOAD_FINISH,
	GG_LOAD_DONE,
	GG_LOAD_BROKEN,
	GG_LOAD_ENDED
} GgLoadState;

#define GG_LOAD_STATE_MASK	0x0F
#define GG_LOAD_ABORT		0x10
#define GG_LOAD_ORPHAN		0x20

#define GgLoadWordState(word)	((GgLoadState) ((word) & GG_LOAD_STATE_MASK))
#define GgLoadWordSerial(word)	((uint32) ((word) >> 8))

static inline uint64
GgLoadWord(GgLoadJob *job)
{
	uint64		word = pg_atomic_read_u64(&job->word);

	pg_read_barrier();
	return word;
}

/* Move a load from one state to the next and keep its flags; false when it is another load, or
 * in another state. */
static inline bool
GgLoadMove(GgLoadJob *job, uint32 serial, GgLoadState from, GgLoadState to)
{
	uint64		word = pg_atomic_read_u64(&job->word);

	while (GgLoadWordSerial(word) == serial && GgLoadWordState(word) == from)
		if (pg_atomic_compare_exchange_u64(&job->word, &word,
										   (word & ~(uint64) GG_LOAD_STATE_MASK) | to))
			return true;
	return false;
}

/* Set flags of a load; false when it is over. */
static inline bool
GgLoadFlag(GgLoadJob *job, uint32 serial, uint32 flags)
{
	uint64		word = pg_atomic_read_u64(&job->word);

	while (GgLoadWordSerial(word) == serial && GgLoadWordState(word) != GG_LOAD_FREE)
		if (pg_atomic_compare_exchange_u64(&job->word, &word, word | flags))
			return true;
	return false;
}

/*
 * The lock of a load.  Its first reader takes it exclusively before it locks the index, and keeps
 * it to its end.  A process that waits for the load asks for it in share mode.  So the deadlock
 * detector knows who waits for whom: see src/README, "Locks".  It is a user lock because these
 * may be exclusive on a standby, too.
 */
static inline LOCKTAG
GgLoadLock(Oid relation, uint32 use, int device)
{
	LOCKTAG		tag;

	tag.locktag_field1 = MyDatabaseId;
	tag.locktag_field2 = relation;
	tag.locktag_field3 = use;	/* of the entry; no two of a device are the same */
	tag.locktag_field4 = (uint16) device;
	tag.locktag_type = LOCKTAG_USERLOCK;
	tag.locktag_lockmethodid = USER_LOCKMETHOD;
	return tag;
}

/* ---- staging chunks ------------------------------------------------------------ */

/*
 * GgStageChunk.state.  A chunk that is FILLING belongs to a process, which hands it over or frees
 * it, however it ends (LoaderExit(); with a builder's transaction, EndPending()).
 */
typedef enum GgChunkState
{
	GG_CHUNK_FREE = 0,
	GG_CHUNK_FILLING,
	GG_CHUNK_FILLED,
	GG_CHUNK_COPYING
} GgChunkState;

/* Is this list to be brought to the device? */
static inline bool
GgIsLoaded(const GgLoadList *list)
{
	return !list->kept && !list->left_out && list->n > 0;
}

/* Have the load go without the delta. */
static inline void
GgDropDelta(GgLoadJob *job)
{
	job->delta_pages = job->delta_kept = 0;
	job->nlists = job->nsegments;
	job->lists[job->nsegments].n = 0;
}

/* ---- the delta's part of a load -------------------------------------------------- */

/* Full pages of a delta: whole rows, and no page that an insert may still append to. */
static inline uint32
GgFullDeltaPages(const GgMetaPageData *meta)
{
	uint32		npages;

	if (meta->delta_pages == 0 || meta->dimensions == 0)
		return 0;
	npages = GgDeltaPagesPerRow(meta);
	return npages > 1 ? meta->delta_pages / npages * npages : meta->delta_pages - 1;
}

#endif							/* GG_LOAD_H */
