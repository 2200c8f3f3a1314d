/*
 * recent_buffers.c
 *		In which buffer a block was last seen, as a hint.
 *
 * Looking up a block in the buffer table costs more than a distance, and several times as much as
 * ReadRecentBuffer(), which pins the block if it is in the buffer that the caller names.  Here such
 * buffers are remembered, in one direct-mapped table for all indexes and tables.  Where gpugraph is
 * preloaded, the table lies in shared memory, so that a new session finds what others have seen.
 * It has a slot for each shared buffer.  Otherwise, and for local buffers, a backend has a table of
 * its own.
 *
 * A tag is the block's number, XORed with a hash of the relation's file and version (the owner).
 * So nothing has to be done when a relation changes or goes: its old slots no longer match, and
 * others displace them.  A tag tells nothing for sure.  Two owners' tags agree by chance, but then
 * their blocks have different numbers, and ReadRecentBuffer() finds another block in the buffer.
 *
 * Who sets the slot of an index's block has checked that the page is sound, and who pins by it
 * compares its stamp alone (source.c).  The version is instance and generation there.  All who know
 * it have copied the same directory, and a block of its arrays keeps its contents while a snapshot
 * can need them (README, Locks).  No generation comes back: a rebuilt relation has another
 * instance, and a crash that undoes a generation undoes shared memory, too.
 *
 * Slots are read and written without a lock, each as one word.  A slot that two backends set at the
 * same time is one of theirs.
 */
#include "storage/recent_buffers.h"

#include "base/base.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

/* Slots of a backend's own table: 2 MB, of which only those in use take memory. */
#define OWN_SLOTS		(1 << 18)

static pg_atomic_uint64 *shared_slots = NULL;	/* NULL: not preloaded */
static pg_atomic_uint64 *own_slots = NULL;

static uint32
SharedSlots(void)
{
	return pg_nextpower2_32(NBuffers);
}

static void
MakeOwnSlots(void)
{
	/* not palloc0(), which would touch all of it */
	own_slots = calloc(OWN_SLOTS, sizeof(pg_atomic_uint64));
	if (own_slots == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
}

void
GgFindRecentBuffers(GgRecentBuffers *recent, Relation rel, uint64 version)
{
	GgRelFileLocator locator = GgLocator(rel);
	bool		local = RelationUsesLocalBuffers(rel);

	/* a temporary table may have the file number of another one */
	recent->owner = (uint32) hash_bytes_extended((const unsigned char *) &locator, sizeof(locator),
												 version) ^ local;
	if (shared_slots != NULL && !local)
	{
		recent->slots = shared_slots;
		recent->mask = SharedSlots() - 1;
		return;
	}
	if (own_slots == NULL)
		MakeOwnSlots();
	recent->slots = own_slots;
	recent->mask = OWN_SLOTS - 1;
}

static void
RequestShmem(void)
{
	RequestAddinShmemSpace(mul_size(SharedSlots(), sizeof(pg_atomic_uint64)));
}

static void
StartShmem(void)
{
	bool		found;

	shared_slots = ShmemInitStruct("gpugraph recent buffers",
								   mul_size(SharedSlots(), sizeof(pg_atomic_uint64)), &found);
	for (uint32 i = 0; !found && i < SharedSlots(); i++)
		pg_atomic_init_u64(&shared_slots[i], 0);
}

void
GgInitRecentBuffers(void)
{
	GgUseSharedMemory(RequestShmem, StartShmem);
}
