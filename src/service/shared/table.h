/*
 * table.h
 *		The table of residents and loads of a device (table.c).
 */
#ifndef GG_TABLE_H
#define GG_TABLE_H

#include "service/shared/shmem.h"

/*
 * After a load, and after it has grown, a resident is safe from being evicted for another one for
 * this many times what that took.
 */
#define GG_REST				20

static inline bool
GgHasRested(const GgResident *resident, uint64 now_us)
{
	return now_us >= resident->rested_us;
}

/* Is a resident evicted before another one?  Replicas are, then what was used longest ago. */
static inline bool
GgGoesBefore(GgResident *resident, GgResident *other)
{
	if (resident->replica != other->replica)
		return resident->replica;
	return pg_atomic_read_u64(&resident->used) < pg_atomic_read_u64(&other->used);
}

/* Has a resident the graphs that a load is for, in the same lists, and no others? */
static inline bool
GgHasGraphsOf(const GgResident *resident, const GgLoadJob *job)
{
	for (uint32 i = 0; i < job->nsegments && i < resident->now.nsegments; i++)
		if (resident->now.graphs[i] != job->lists[i].graph)
			return false;
	return resident->now.nsegments == job->nsegments;
}

/*
 * A stamp that tells this process's database from any other that ever had its number.  0: not
 * known.
 */
extern uint64 GgDatabaseStamp(void);

/* The same, looked up anew. */
extern uint64 GgRenewDatabaseStamp(void);

/* The device with most room among those that are up; NULL when none is. */
extern GgDevice *GgChooseDevice(int *number);

/* The entry of a relation's file; -1 when there is none.  Under device->lock. */
extern int	GgFindEntry(GgDevice *device, const GgRelFileLocator *locator, uint64 instance,
						uint64 database);

/* The entry of an index that is READY; -1 when there is none.  Under device->lock. */
extern int	GgFindReady(GgDevice *device, Relation index, const GgMetaPageData *meta);

/*
 * Take an entry that is FREE or FAILED, whose state is FREE until the caller sets another one.  -1
 * when there is none; then one may be evicted, so that there is one soon.  forced: at any cost, see
 * GgResident.  Under device->lock, exclusive.
 */
extern int	GgTakeEntry(GgDevice *device, bool forced);

/* Take an entry that is FREE; -1 when there is none.  Nothing is evicted. */
extern int	GgTakeFreeEntry(GgDevice *device);

/* Fill in which index an entry is for.  Under device->lock, exclusive. */
extern void GgNameEntry(GgDevice *device, uint32 entry, Relation index,
						const GgMetaPageData *meta);

/* Note what an entry is found by, after its locator or relation was written. */
extern void GgTagEntry(GgDevice *device, uint32 entry);

/*
 * A load for an entry, in state ASSIGNED; -1 when all are taken.  owner: the process that builds,
 * 0 for a loader.  Under device->lock, exclusive.
 */
extern int	GgTakeLoad(GgDevice *device, int entry, bool refresh, int owner);

/* Have an entry evicted, if it still has this use.  Takes the lock. */
extern void GgForgetEntry(GgDevice *device, uint32 entry, uint32 use);

/* Have all entries of a relation's file evicted.  Under device->lock, exclusive. */
extern void GgForgetLocator(GgDevice *device, const GgRelFileLocator *locator);

/* Tell the worker that there is something to do. */
extern void GgResidentNotify(GgDevice *device);

/* Sleep until something may have changed; interruptible. */
extern void GgLoadSleep(long timeout_ms);

/*
 * Mark what of a refresh the resident has already: lists and, where it is of that generation, pages
 * of the delta.  Unless it is to grow, what is in its forms.missing is left out.  The lock is held.
 */
extern void GgMarkKept(const GgResident *resident, uint64 generation, GgLoadJob *job);

#endif							/* GG_TABLE_H */
