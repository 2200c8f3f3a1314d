/*
 * build_memory.c
 *		Which devices a build uses, and how much of their memory it may take.
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

/* Up to this many bytes a build need not look at a device. */
static uint64
CertainBytes(void)
{
	uint64		least = PG_UINT64_MAX;

	for (int i = 0; gg_service != NULL && i < gg_service->ndevices; i++)
	{
		const GgDeviceStats *stats = &gg_service->devices[i]->stats;

		if (stats->total_bytes > 0)
			least = Min(least, stats->total_bytes - Min(stats->total_bytes, stats->resident_bytes));
	}
	return least == PG_UINT64_MAX ? LOOK_BYTES : least / LOOK_SHARE;
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
		}
		speeds[place] = device->speed;
		devices->ordinals[place] = device->ordinal;
		devices->count++;
	}
	/* a build with one device takes the first that can be used */
	if (devices->count <= 1)
	{
		devices->count = 1;
		devices->ordinals[0] = GG_DEVICE_IN_USE;
	}
}

/* What is free of the devices; some may be left out.  Returns the least of the others. */
static uint64
LeastFree(const gg_engine *engine, GgBuildDevices *devices)
{
	uint64		bytes[GG_MAX_DEVICES];
	uint64		most = 0,
				least = PG_UINT64_MAX;
	int			kept = 0;

	for (int i = 0; i < devices->count; i++)
	{
		gg_device_info info;

		/* one that cannot be looked at will fail where it is used */
		bytes[i] = GgLookAtDevice(engine, devices->ordinals[i], &info).code == GG_OK ?
			info.free_bytes / 10 * 9 : PG_UINT64_MAX;
		devices->opened[i] = true;
		if (bytes[i] < PG_UINT64_MAX)
			most = Max(most, bytes[i]);
	}
	for (int i = 0; i < devices->count; i++)
		if (bytes[i] >= most / 2)
		{
			least = Min(least, bytes[i]);
			devices->ordinals[kept++] = devices->ordinals[i];
		}
		else if (engine->use_device(devices->ordinals[i]).code == GG_OK)
			engine->release();
	devices->count = kept;
	return least;
}

uint64
GgBuildBudget(const gg_engine *engine, GgBuildDevices *devices, uint64 needed)
{
	GgBuildDevices in_use = {.count = 1, .ordinals = {GG_DEVICE_IN_USE}};
	uint64		budget = PG_UINT64_MAX;

	if (gg_device_memory_mb > 0)
		budget = Max((uint64) gg_device_memory_mb << 20, GG_LEAST_GRAPH_BYTES);
	if (Min(needed, budget) > CertainBytes())
		budget = Min(budget, LeastFree(engine, devices != NULL ? devices : &in_use));
	return budget;
}

bool
GgBuildFault(const GgBuildDevices *devices, int place)
{
	return gg_fault == GG_FAULT_GRAPH && devices->count > 1 && place == 0;
}
