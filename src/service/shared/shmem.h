/*
 * shmem.h
 *		What all processes of the service share: devices, and the whole of its memory.
 */
#ifndef GG_SHMEM_H
#define GG_SHMEM_H

#include "service/shared/service.h"

#include "storage/latch.h"
#include "storage/lwlock.h"

#include "service/shared/counters.h"
#include "service/shared/graph_job.h"
#include "service/shared/load.h"
#include "service/shared/pool.h"
#include "service/shared/settings.h"
#include "service/shared/slot.h"

typedef enum GgDeviceState
{
	GG_DEVICE_DOWN = 0,			/* no worker, or it has not opened the device yet */
	GG_DEVICE_UP,
	GG_DEVICE_BROKEN,			/* the worker waits out its back-off, or found no device */
	GG_DEVICE_GONE				/* the device is not there: its last worker ended for good */
} GgDeviceState;

typedef struct GgDevice
{
	int			number;			/* CUDA's, as gpugraph.devices has it */
	int			ordinal;		/* CUDA's, as the worker opened it; see OpenDevice() */
	uint32		speed;			/* of its memory, beside other devices'; once it is up */
	LWLock	   *lock;			/* residents and load requests */
	pg_atomic_uint32 state;		/* GgDeviceState */
	pg_atomic_uint64 epoch;		/* counts worker starts */
	pg_atomic_uint32 sleeping;	/* the worker waits on its latch */
	Latch	   *latch;			/* the live worker's; set through GgWakeDevice() */
	int			pid;			/* the live worker's, 0 without one */

	/* breaker (device_error.c): failures in a row, and when the next worker may try */
	uint32		failures;
	uint64		not_before_us;
	uint64		up_since_us;

	GgSlot	   *slots;			/* gg_service->nslots */

	/* ring of the slots' numbers (client.c, dispatch.c) */
	struct GgRing *ring;

	/* apart from what everybody reads all the time: every query writes it */
	pg_attribute_aligned(64) pg_atomic_uint64 clock;	/* for GgResident.used */
	pg_attribute_aligned(64) pg_atomic_uint32 work;		/* something for the worker to do: WANTED,
														 * EVICTING, a load that ended */
	uint64		limit_bytes;	/* what gpugraph.device_memory comes to; the live worker's */
	pg_atomic_uint64 build_bytes;	/* that builds of other processes reserve (build_memory.c) */
	pg_atomic_uint32 reset;		/* the worker is to zero its counters */
	pg_atomic_uint32 nresidents;	/* entries from here on are free */
	uint64		displaced_us;	/* under lock; when an entry of the full table was last evicted */
	uint32		last_serial;	/* the worker's; goes on over restarts, because open cursors
								 * remember serials of any age */
	GgResident *residents;		/* gg_service->max_residents, behind the devices */
	GgResidentTag *tags;		/* of these */
	GgStageChunk chunks[GG_STAGE_CHUNKS];
	GgLoadJob	loads_under_way[GG_MAX_LOADS];
	GgStayingLoader staying;
	GgGraphJob	graph_job;
	char	   *staging;		/* GG_STAGE_CHUNKS x GG_STAGE_CHUNK, inside the region */
	GgDeviceStats stats;
} GgDevice;

struct GgService
{
	int			ndevices;
	GgDevice   *devices[GG_MAX_DEVICES];	/* none of the first ndevices is NULL */
	uint32		nslots;			/* of each device */
	uint32		max_residents;	/* of each device */
	uint32		index_slots;	/* of index_stats */
	char	   *region;			/* slots, chunks and staging, page aligned, for devices to see */
	Size		region_bytes;
	GgSlot	   *slots;			/* of all devices, one device's after the other's */
	GgPool	   *pool;			/* who has which of the chunks */
	GgChunk    *chunks;
	GgIndexStats *index_stats;
	LWLock	   *stat_lock;
	pg_atomic_uint32 last_use;	/* of all entries of all devices */
	pg_atomic_uint64 told_us[GG_NREASONS];	/* last LOG line for this reason (client.c); 0: none */
};

static inline bool
GgDeviceIsUp(GgDevice *device)
{
	return pg_atomic_read_u32(&device->state) == GG_DEVICE_UP;
}

/* Bytes of limit_bytes that builds reserve: they first take what the device has beside it. */
static inline uint64
GgBuildsShare(GgDevice *device)
{
	uint64		beside = device->stats.total_bytes / 10 * 9;
	uint64		builds = pg_atomic_read_u64(&device->build_bytes);

	beside -= Min(beside, device->limit_bytes);
	return builds - Min(builds, beside);
}

/* Bytes that another copy or merge may take; below 0 where more is taken than may be. */
static inline int64
GgDeviceRoom(GgDevice *device)
{
	return (int64) device->limit_bytes -
		(int64) (device->stats.resident_bytes + GgBuildsShare(device));
}

/* The number by which the pool knows the slot that has a chunk. */
static inline uint32
GgSlotOwner(const GgSlot *slot)
{
	return (uint32) (slot - gg_service->slots);
}

/* Give back the chunk that a slot has, if it has one. */
static inline void
GgSlotGiveChunkBack(GgSlot *slot)
{
	int			chunk = slot->chunk;

	slot->chunk = -1;
	(void) GgPoolGiveBack(gg_service->pool, chunk, GgSlotOwner(slot));
}

/*
 * ABANDONED -> FREE, for the one process that may; false when the slot is not ABANDONED under this
 * ticket.
 */
static inline bool
GgSlotFreeAbandoned(GgSlot *slot, uint64 ticket)
{
	if (pg_atomic_read_u64(&slot->word) != GgSlotWord(ticket, GG_SLOT_ABANDONED))
		return false;
	pg_read_barrier();
	GgSlotGiveChunkBack(slot);
	return GgSlotMove(slot, ticket, GG_SLOT_ABANDONED, GG_SLOT_FREE);
}

/* In the postmaster: have memory made for devices with these numbers. */
extern void GgUseServiceMemory(int count, const int *numbers);

/* Wake the device's worker, if it sleeps: there is work. */
extern void GgWakeDevice(GgDevice *device);

/* Where the engine finds the device's slots. */
extern void GgDeviceLayout(const GgDevice *device, gg_serve_layout *layout);

/* Called by a worker that ends: have a successor started; false when there is no place for it. */
extern bool GgStartWorker(GgDevice *device);

#endif							/* GG_SHMEM_H */
