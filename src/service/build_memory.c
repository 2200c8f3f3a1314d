/*
 * build_memory.c
 *		How much of a device's memory a build may take.
 */
#include "service/shmem.h"
#include "storage/graph_memory.h"

/*
 * A build that certainly fits is not worth a look at the device, which opens it: that takes 0.1 s
 * and more, and else goes on beside the scan.  It fits if it takes less than this share of what
 * residents have left of the smallest device; or, where there is no service that knows, less than
 * so many bytes.
 */
#define LOOK_SHARE			2
#define LOOK_BYTES			(UINT64CONST(2) << 30)

/* Where a build needs no look at the device. */
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
