/*
 * graph_memory.c
 *		How many rows a graph can be built of with so much memory: for builds and merges.
 */
#include "storage/graph_memory.h"

uint64
GgGraphBytes(const GgGraphMemory *memory, uint32 n)
{
	gg_dataset	data = {
		.rows = NULL, .n = n, .dim = memory->meta->dimensions, .element = memory->meta->element,
		.metric = memory->meta->metric
	};
	gg_bytes	bytes;
	gg_status	status;

	status = memory->engine->build_bytes(&data, memory->params, memory->control, &bytes);
	if (status.code != GG_OK)
		GgReportStatus(&status, "estimating the memory of a graph");
	return bytes.host + (uint64) n * memory->row_bytes;
}

uint32
GgRowsThatFit(const GgGraphMemory *memory, uint64 budget)
{
	uint32		low = 1,
				high = GG_MAX_NODES;

	while (low < high)
	{
		uint32		mid = low + (high - low + 1) / 2;

		if (GgGraphBytes(memory, mid) <= budget)
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}
