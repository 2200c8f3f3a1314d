/*
 * build_memory.c
 *		Which devices a build uses, and how much of their memory it may take.
 *
 * What a build is going to take of a device it reserves there (GgDevice.build_bytes) before it
 * begins, so that other builds and the device's worker (worker/memory.c) leave it alone.  The sum
 * is all that is shared: a build that ends early gives back by the callback of its memory context,
 * and after a crash all of shared memory is made anew.
 */
#include "service/shared/shmem.h"
#include "storage/graph_memory.h"

/*
 * A build that certainly fits does not look at a device.  A look opens the device, which takes
 * 0.1 s and more, and which a build otherwise does during its scan.  A build certainly fits if it
 * takes less than one in LOOK_SHARE of what residents have left of the smallest device; or, where
 * no service knows that, less than LOOK_BYTES.
 */
#define LOOK_SHARE			2
#define LOOK_BYTES			(UINT64CONST(2) << 30)

/* What residents and builds leave of a device. */
static uint64
Unclaimed(GgDevice *device, uint64 total)
{
	uint64		claimed = device->stats.resident_bytes + pg_atomic_read_u64(&device->build_bytes);

	return total - Min(total, claimed);
}

/* Up to this many bytes a build need not look at a device. */
static uint64
CertainBytes(void)
{
	uint64		least = PG_UINT64_MAX;

	for (int i = 0; gg_service != NULL && i < gg_service->ndevices; i++)
	{
		const GgDeviceStats *stats = &gg_service->devices[i]->stats;

		if (stats->total_bytes > 0)
			least = Min(least, Unclaimed(gg_service->devices[i], stats->total_bytes));
	}
	return least == PG_UINT64_MAX ? LOOK_BYTES : least / LOOK_SHARE;
}

/* The place of CUDA's first device, which a build with one device uses; -1: not of the service. */
static int
PlaceInUse(const gg_engine *engine)
{
	for (int i = 0; gg_service != NULL && engine == GgServiceOps() && i < gg_service->ndevices; i++)
		if (gg_service->devices[i]->number == 0)
			return i;
	return -1;
}

void
GgFindBuildDevices(const gg_engine *engine, GgBuildDevices *devices)
{
	uint32		speeds[GG_MAX_DEVICES];

	memset(devices, 0, sizeof(*devices));
	/* the fastest first */
	for (int i = 0; gg_service != NULL && engine == GgServiceOps() && i < gg_service->ndevices; i++)
	{
		const GgDevice *device = gg_service->devices[i];
		int			place = devices->count;

		if (!GgDeviceIsUp(gg_service->devices[i]))
			continue;
		for (; place > 0 && speeds[place - 1] < device->speed; place--)
		{
			speeds[place] = speeds[place - 1];
			devices->ordinals[place] = devices->ordinals[place - 1];
			devices->places[place] = devices->places[place - 1];
		}
		speeds[place] = device->speed;
		devices->ordinals[place] = device->ordinal;
		devices->places[place] = i;
		devices->count++;
	}
	/* a build with one device takes the first that can be used */
	if (devices->count <= 1)
	{
		devices->count = 1;
		devices->ordinals[0] = GG_DEVICE_IN_USE;
		devices->places[0] = PlaceInUse(engine);
	}
}

/*
 * Reserve `wanted` bytes of a device, as far as there is room: `most` bytes at most.  Returns the
 * room.
 */
static uint64
Reserve(GgBuildDevices *devices, int i, uint64 wanted, uint64 most, uint64 total)
{
	GgDevice   *device = devices->places[i] < 0 ? NULL : gg_service->devices[devices->places[i]];
	uint64		builds = device == NULL ? 0 : pg_atomic_read_u64(&device->build_bytes);
	uint64		room = most;

	if (device == NULL)
		return room;
	do
	{
		room = Min(most, (total - Min(total, device->stats.resident_bytes + builds)) / 10 * 9);
		devices->reserved[i] = Min(wanted, room);
	} while (!pg_atomic_compare_exchange_u64(&device->build_bytes, &builds,
											 builds + devices->reserved[i]));
	return room;
}

static void
GiveBack(GgBuildDevices *devices, int i, uint64 bytes)
{
	if (bytes > 0)
		pg_atomic_fetch_sub_u64(&gg_service->devices[devices->places[i]]->build_bytes,
								(int64) bytes);
	devices->reserved[i] -= bytes;
}

void
GgKeepReserved(GgBuildDevices *devices, int first, uint64 bytes)
{
	for (int i = 0; i < devices->count; i++)
		GiveBack(devices, i, devices->reserved[i] -
				 (i < first ? Min(devices->reserved[i], bytes) : 0));
}

/*
 * Reserve `wanted` bytes of each device, as far as they are free; those with little are left out.
 * Returns the least room that one of the others has.
 */
static uint64
LeastFree(const gg_engine *engine, GgBuildDevices *devices, uint64 wanted)
{
	gg_device_info infos[GG_MAX_DEVICES];
	uint64		bytes[GG_MAX_DEVICES];
	uint64		most = 0,
				least = PG_UINT64_MAX;
	int			kept = 0;

	for (int i = 0; i < devices->count; i++)
	{
		/* one that cannot be looked at will fail where it is used */
		if (GgLookAtDevice(engine, devices->ordinals[i], &infos[i]).code != GG_OK)
			infos[i].total_bytes = 0;
		devices->opened[i] = true;
	}
	/* looks take long: others may have reserved since */
	for (int i = 0; i < devices->count; i++)
	{
		bytes[i] = infos[i].total_bytes == 0 ? PG_UINT64_MAX :
			Reserve(devices, i, wanted, infos[i].free_bytes / 10 * 9, infos[i].total_bytes);
		if (bytes[i] < PG_UINT64_MAX)
			most = Max(most, bytes[i]);
	}
	for (int i = 0; i < devices->count; i++)
		if (bytes[i] >= most / 2)
		{
			least = Min(least, bytes[i]);
			devices->ordinals[kept] = devices->ordinals[i];
			devices->places[kept] = devices->places[i];
			devices->reserved[kept++] = devices->reserved[i];
		}
		else
		{
			GiveBack(devices, i, devices->reserved[i]);
			if (engine->use_device(devices->ordinals[i]).code == GG_OK)
				engine->release();
		}
	devices->count = kept;
	return least;
}

uint64
GgBuildBudget(const gg_engine *engine, GgBuildDevices *devices, uint64 needed)
{
	GgBuildDevices in_use = {
		.count = 1, .ordinals = {GG_DEVICE_IN_USE}, .places = {PlaceInUse(engine)}
	};
	uint64		budget = PG_UINT64_MAX;
	uint64		least;

	if (gg_device_memory_mb > 0)
		budget = Max((uint64) gg_device_memory_mb << 20, GG_LEAST_GRAPH_BYTES);
	needed = Min(needed, budget);
	/* a build that plans anew gives back what it has reserved */
	if (devices != NULL)
		GgKeepReserved(devices, 0, 0);
	if (needed > CertainBytes())
	{
		least = devices != NULL ? LeastFree(engine, devices, needed) :
			LeastFree(engine, &in_use, 0);
		return Min(budget, least);
	}
	for (int i = 0; devices != NULL && i < devices->count; i++)
		(void) Reserve(devices, i, needed, PG_UINT64_MAX, PG_UINT64_MAX);
	return budget;
}

bool
GgBuildFault(const GgBuildDevices *devices, int place)
{
	return gg_fault == GG_FAULT_GRAPH && devices->count > 1 && place == 0;
}
