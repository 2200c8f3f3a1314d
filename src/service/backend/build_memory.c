/*
 * build_memory.c
 *		How much of a device's memory a build may take.
 */
#include "service/shared/shmem.h"
#include "storage/graph_memory.h"

/*
 * A build that certainly fits does not look at the device.  A look opens the device, which takes
 * 0.1 s and more, and which a build otherwise does during its scan.  A build certainly fits if it
 * takes less than one in LOOK_SHARE of what residents have left of the smallest device; or, where
 * no service knows that, less than LOOK_BYTES.
 */
#define LOOK_SHARE			2
#define LOOK_BYTES			(UINT64CONST(2) << 30)

/* Up to this many bytes a build need not look at the device. */
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

uint64
GgBuildBudget(const gg_engine *engine, uint64 needed)
{
	uint64		budget = PG_UINT64_MAX;
	gg_device_info info;

	if (gg_device_memory_mb > 0)
		budget = Max((uint64) gg_device_memory_mb << 20, GG_LEAST_GRAPH_BYTES);
	if (Min(needed, budget) > CertainBytes() &&
		GgLookAtDevice(engine, &info).code == GG_OK)
		budget = Min(budget, info.free_bytes / 10 * 9);
	return budget;
}
