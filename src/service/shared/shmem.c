/*
 * shmem.c
 *		Shared memory of the service.
 *
 * Devices see one region, which holds each device's slots, the pool's chunks and then each device's
 * staging.  It is page aligned, since devices register whole pages.
 */
#include "service/shared/shmem.h"

#include <unistd.h>

#include "miscadmin.h"
#include "storage/shmem.h"

#include "service/shared/ring.h"

GgService  *gg_service = NULL;

/*
 * The postmaster's, before the shared memory is there; from then on see
 * gg_service->devices[].number.
 */
static int	ndevices = 0;
static int	device_numbers[GG_MAX_DEVICES];

static Size
SystemPage(void)
{
	return (Size) sysconf(_SC_PAGESIZE);
}

static Size
SlotsBytes(void)
{
	return TYPEALIGN64(SystemPage(), mul_size(mul_size(ndevices, MaxBackends), sizeof(GgSlot)));
}

static Size
ChunksBytes(void)
{
	return TYPEALIGN64(SystemPage(), mul_size(gg_answer_chunks, sizeof(GgChunk)));
}

static Size
RegionBytes(void)
{
	return add_size(add_size(SlotsBytes(), ChunksBytes()),
					mul_size(ndevices, GG_STAGE_CHUNK * GG_STAGE_CHUNKS));
}

/* A device's entries and their tags. */
static Size
TableBytes(void)
{
	return CACHELINEALIGN(mul_size(gg_max_residents,
								   sizeof(GgResident) + sizeof(GgResidentTag)));
}

static uint32
IndexSlots(void)
{
	return (uint32) Max(GG_LEAST_INDEX_SLOTS, 2 * gg_max_residents);
}

static Size
IndexStatsBytes(void)
{
	return MAXALIGN(add_size(offsetof(GgIndexStats, slots),
							 mul_size(IndexSlots(), sizeof(GgIndexCounters))));
}

static Size
ServiceBytes(void)
{
	Size		size = CACHELINEALIGN(sizeof(GgService));

	size = add_size(size, mul_size(ndevices, CACHELINEALIGN(sizeof(GgDevice))));
	size = add_size(size, mul_size(ndevices, TableBytes()));
	size = add_size(size, mul_size(ndevices, CACHELINEALIGN(GgRingBytes(MaxBackends))));
	size = add_size(size, CACHELINEALIGN(GgPoolBytes(gg_answer_chunks)));
	size = add_size(size, SystemPage());
	return add_size(size, RegionBytes());
}

static void
RequestShmem(void)
{
	RequestAddinShmemSpace(add_size(ServiceBytes(), IndexStatsBytes()));
	RequestNamedLWLockTranche("gpugraph", ndevices + 1);
}

static void
InitDevice(GgDevice *device, int number, LWLock *lock)
{
	memset(device, 0, sizeof(GgDevice));
	device->number = number;
	device->lock = lock;
	pg_atomic_init_u32(&device->state, GG_DEVICE_DOWN);
	pg_atomic_init_u64(&device->epoch, 0);
	pg_atomic_init_u32(&device->sleeping, 0);
	pg_atomic_init_u64(&device->clock, 0);
	pg_atomic_init_u32(&device->work, 0);
	pg_atomic_init_u64(&device->build_bytes, 0);
	pg_atomic_init_u64(&device->staying.word, GG_STAY_NONE);
	pg_atomic_init_u64(&device->graph_job.word, GG_GRAPH_FREE);
	for (int i = 0; i < GG_STAGE_CHUNKS; i++)
		pg_atomic_init_u32(&device->chunks[i].state, 0);
}

static void
InitCounters(GgIndexCounters *counters)
{
	pg_atomic_init_u64(&counters->key, 0);
	pg_atomic_init_u64(&counters->rows, 0);
	for (int i = 0; i < GG_NREASONS; i++)
		pg_atomic_init_u64(&counters->queries[i], 0);
}

static void
StartIndexStats(void)
{
	bool		found;
	GgIndexStats *stats;

	stats = ShmemInitStruct("gpugraph index statistics", IndexStatsBytes(), &found);
	gg_service->index_stats = stats;
	if (found)
		return;
	pg_atomic_init_u64(&stats->resets, 0);
	InitCounters(&stats->others);
	for (uint32 i = 0; i < gg_service->index_slots; i++)
		InitCounters(&stats->slots[i]);
}

/* Lay out the memory: service, devices, tables, rings, the pool's words, then the region. */
static void
InitService(void)
{
	LWLockPadded *locks = GetNamedLWLockTranche("gpugraph");
	char	   *next = (char *) gg_service + CACHELINEALIGN(sizeof(GgService));

	memset(gg_service, 0, sizeof(GgService));
	gg_service->ndevices = ndevices;
	gg_service->nslots = MaxBackends;
	gg_service->max_residents = (uint32) gg_max_residents;
	gg_service->index_slots = IndexSlots();
	gg_service->stat_lock = &locks[ndevices].lock;
	pg_atomic_init_u32(&gg_service->last_use, 0);
	for (int i = 0; i < GG_NREASONS; i++)
		pg_atomic_init_u64(&gg_service->told_us[i], 0);

	for (int i = 0; i < ndevices; i++)
	{
		gg_service->devices[i] = (GgDevice *) next;
		InitDevice(gg_service->devices[i], device_numbers[i], &locks[i].lock);
		next += CACHELINEALIGN(sizeof(GgDevice));
	}
	for (int i = 0; i < ndevices; i++)
	{
		gg_service->devices[i]->residents = (GgResident *) next;
		gg_service->devices[i]->tags =
			(GgResidentTag *) (next + gg_service->max_residents * sizeof(GgResident));
		memset(next, 0, TableBytes());
		next += TableBytes();
	}
	for (int i = 0; i < ndevices; i++)
	{
		gg_service->devices[i]->ring = (GgRing *) next;
		GgRingInit(gg_service->devices[i]->ring, gg_service->nslots);
		next += CACHELINEALIGN(GgRingBytes(gg_service->nslots));
	}
	gg_service->pool = (GgPool *) next;
	GgPoolInit(gg_service->pool, gg_answer_chunks);
	next += CACHELINEALIGN(GgPoolBytes(gg_answer_chunks));

	next = (char *) TYPEALIGN(SystemPage(), next);
	gg_service->region = next;
	gg_service->region_bytes = RegionBytes();
	gg_service->slots = (GgSlot *) next;
	next += SlotsBytes();
	gg_service->chunks = (GgChunk *) next;
	next += ChunksBytes();
	for (uint32 i = 0; i < ndevices * gg_service->nslots; i++)
	{
		GgSlot	   *slot = &gg_service->slots[i];

		memset(slot, 0, offsetof(GgSlot, keys));
		pg_atomic_init_u64(&slot->word, GG_SLOT_FREE);
		pg_atomic_init_u32(&slot->sleeping, 0);
		slot->chunk = -1;
	}
	for (int i = 0; i < ndevices; i++)
	{
		gg_service->devices[i]->slots = gg_service->slots + i * gg_service->nslots;
		gg_service->devices[i]->staging = next;
		next += GG_STAGE_CHUNK * GG_STAGE_CHUNKS;
	}
}

static void
StartShmem(void)
{
	bool		found;

	gg_service = ShmemInitStruct("gpugraph service", ServiceBytes(), &found);
	if (!found)
		InitService();
	StartIndexStats();
}

void
GgUseServiceMemory(int count, const int *numbers)
{
	ndevices = count;
	memcpy(device_numbers, numbers, count * sizeof(int));
	GgUseSharedMemory(RequestShmem, StartShmem);
}

void
GgDeviceLayout(const GgDevice *device, gg_serve_layout *layout)
{
	layout->slots = (char *) device->slots;
	layout->slot_bytes = sizeof(GgSlot);
	layout->nslots = gg_service->nslots;
	layout->done = offsetof(GgSlot, done);
}

/*
 * The worker sets sleeping, then looks for work.  Its callers make work, then look at sleeping.
 * Full barriers lie in between on both sides, so that one of them sees the other.
 */
void
GgWakeDevice(GgDevice *device)
{
	Latch	   *latch;

	pg_memory_barrier();
	if (pg_atomic_read_u32(&device->sleeping) == 0)
		return;
	/*
	 * The latch of a worker that is ending belongs to its PGPROC, or to the next owner of that,
	 * which then wakes up in vain.
	 */
	latch = *(Latch *volatile *) &device->latch;
	if (latch != NULL)
		SetLatch(latch);
}
