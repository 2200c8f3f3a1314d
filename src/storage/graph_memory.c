/*
 * graph_memory.c
 *		How a graph is to be built, and from how many rows in a given amount of memory: for builds
 *		and merges.
 */
#include "storage/graph_memory.h"

#include "miscadmin.h"

#include "engine/rules/algorithms.h"

/* The algorithm's parameters, where the options are still of this algorithm. */
static void
AddParameters(const GgMetaPageData *meta, const GgOptions *options, gg_build_params *params)
{
	if (options->algorithm != params->algorithm)
		return;
	params->alpha = (float) options->alpha;
	params->lambda0 = options->lambda0;
	/* the options fit the degree of the next REINDEX, which may differ from this one */
	if (options->pool_capacity != 0)
		params->pool_capacity = Max(options->pool_capacity, meta->graph_degree);
	params->initial_neighbors = Min(options->initial_neighbors,
									options->pool_capacity != 0 ? params->pool_capacity :
									2 * meta->graph_degree);
	params->outer_rounds = options->outer_rounds;
	params->inner_rounds = options->inner_rounds;
	params->rho = (float) options->rho;
}

void
GgGetBuildParams(const GgMetaPageData *meta, const GgOptions *options, gg_build_params *params)
{
	memset(params, 0, sizeof(*params));
	params->algorithm = meta->algorithm;
	params->graph_degree = meta->graph_degree;
	params->intermediate_graph_degree = meta->intermediate_graph_degree;
	params->seed = meta->seed;
	AddParameters(meta, options, params);
	/* the lists of a merge are as long as the pools that a build has in their place */
	if (params->algorithm == GG_ALGORITHM_GRNND)
		params->intermediate_graph_degree = gg_grnnd_params(params).capacity;
}

/* Memory by the engine's own account. */
static gg_bytes
EngineBytes(const GgGraphMemory *memory, uint32 n)
{
	gg_dataset	data = {
		.rows = NULL, .n = n, .dim = memory->meta->dimensions,
		.element = memory->halved ? GG_ELEMENT_F16 : memory->meta->element,
		.metric = memory->meta->metric
	};
	gg_control	control = *memory->control;
	gg_bytes	bytes;
	gg_status	status;

	if (memory->budget > 0)
		control.memory = GgEngineBudget(memory, n, memory->budget);
	status = memory->engine->build_bytes(&data, memory->params, &control, &bytes);
	GgCheckStatus(&status, "estimating the memory of a graph");
	return bytes;
}

uint64
GgGraphBytes(const GgGraphMemory *memory, uint32 n)
{
	return EngineBytes(memory, n).host + (uint64) n * memory->row_bytes;
}

uint64
GgGraphDeviceBytes(const GgGraphMemory *memory, uint32 n)
{
	gg_bytes	bytes = EngineBytes(memory, n);

	if (memory->engine == &gg_cpu_engine)
		return bytes.host + (uint64) n * GgRowBytes(memory->meta) / (memory->halved ? 2 : 1);
	/* what the engine takes for one row counts as the process's own */
	return bytes.device - Min(bytes.device, EngineBytes(memory, 1).device);
}

uint64
GgEngineBudget(const GgGraphMemory *memory, uint32 n, uint64 budget)
{
	uint64		taken = (uint64) n * memory->row_bytes;

	return budget - Min(taken, budget - 1);
}

/* The most rows, from low on, whose bytes are no more than budget. */
static uint32
MostRows(const GgGraphMemory *memory, uint64 budget, uint32 low,
		 uint64 (*bytes) (const GgGraphMemory *memory, uint32 n))
{
	uint32		high = GG_MAX_NODES;

	while (low < high)
	{
		uint32		mid = low + (high - low + 1) / 2;

		if (bytes(memory, mid) <= budget)
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}

uint32
GgRowsThatFit(const GgGraphMemory *memory, uint64 budget)
{
	return MostRows(memory, budget, 1, GgGraphBytes);
}

uint32
GgRowsThatFitDevice(const GgGraphMemory *memory, uint64 budget)
{
	return MostRows(memory, budget, 0, GgGraphDeviceBytes);
}

uint32
GgRowsSpilled(const GgGraphMemory *memory, uint64 budget)
{
	GgGraphMemory spilled = *memory;

	spilled.budget = budget;
	return MostRows(&spilled, budget, 0, GgGraphBytes);
}

uint64
GgGraphBudget(void)
{
	return Max((uint64) maintenance_work_mem * 1024, GG_LEAST_GRAPH_BYTES);
}
