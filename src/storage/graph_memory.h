/*
 * graph_memory.h
 *		How a graph is to be built, and from how many rows in a given amount of memory.
 */
#ifndef GG_GRAPH_MEMORY_H
#define GG_GRAPH_MEMORY_H

#include "storage/directory.h"

/* Memory that a build or merge may take whatever the setting: too little for a server to miss. */
#define GG_LEAST_GRAPH_BYTES	((uint64) 64 * 1024 * 1024)

/*
 * The parameters of a new segment's graph.  The algorithm, the degrees and the seed are those of
 * the index's last build (meta).  The algorithm's parameters are options, which take effect at
 * once.  Options of another algorithm, which the next REINDEX will use, are left out.
 */
extern void GgGetBuildParams(const GgMetaPageData *meta, const GgOptions *options,
							 gg_build_params *params);

/* Engine, parameters and rows of a graph to be built. */
typedef struct GgGraphMemory
{
	const gg_engine *engine;
	const gg_build_params *params;
	const gg_control *control;
	const GgMetaPageData *meta; /* dimensions, element and metric of the rows */
	Size		row_bytes;		/* of host memory that the caller takes for each row */
	bool		halved;			/* the device gets rows in half precision */
	uint64		budget;			/* the engine keeps to what rows leave of it; 0: see control */
} GgGraphMemory;

/* Bytes of host memory at the peak, while the engine builds a graph of n rows. */
extern uint64 GgGraphBytes(const GgGraphMemory *memory, uint32 n);

/*
 * Bytes of device memory at the peak, those of the rows and index included, but not what the driver
 * takes for the process.  The CPU engine, which may play a device, takes host memory for it.
 */
extern uint64 GgGraphDeviceBytes(const GgGraphMemory *memory, uint32 n);

/* The most rows whose host or device bytes fit budget.  Where none fits, 1; of a device 0. */
extern uint32 GgRowsThatFit(const GgGraphMemory *memory, uint64 budget);
extern uint32 GgRowsThatFitDevice(const GgGraphMemory *memory, uint64 budget);

/*
 * The same where rows and k-NN lists go to temporary files: row_bytes leaves out the rows, and the
 * control has scratch.  The engine then gets GgEngineBudget() of the budget, which is never 0.
 */
extern uint32 GgRowsSpilled(const GgGraphMemory *memory, uint64 budget);
extern uint64 GgEngineBudget(const GgGraphMemory *memory, uint32 n, uint64 budget);

/* What a build or merge may take that keeps to maintenance_work_mem. */
extern uint64 GgGraphBudget(void);

#endif							/* GG_GRAPH_MEMORY_H */
