/*
 * memory.c
 *		The memory of a merge, and what lies in temporary files instead.
 *
 * As in a build (build/memory.c), up to twice maintenance_work_mem, or 64 MB, is taken.  Beyond
 * that, rows are read into a mapped file, and the engine makes k-NN lists by groups, in files, too.
 * The rest keeps to the setting.  Segments that have no room in that way either stay apart.
 *
 * A background worker's files outlive its transactions, of which each slice has one.  They go with
 * the merge's memory context.
 */
#include "maintain/merge.h"
#include "service/shared/service.h"
#include "storage/graph_memory.h"

#include "miscadmin.h"

/* Bytes of a row beside its vector and its filter words: TID, source, hash slots, target, place. */
#define ROW_BYTES			(sizeof(GgTidEntry) + 3 * sizeof(uint32) + 4 * sizeof(uint64))

/* What file systems take beside the files' contents. */
#define FILE_SLACK			(1024.0 * 1024.0)

/* For build_bytes(), which looks only whether there is such a callback. */
static void *
NoScratch(void *ctx, uint64_t bytes)
{
	return NULL;
}

/* What a merge takes, with rows and lists in memory, and where they are in files. */
static GgGraphMemory
HeldMemory(const GgMetaPageData *meta, const gg_build_params *params)
{
	static const gg_control control = {.threads = 1};
	GgGraphMemory memory = {&gg_cpu_engine, params, &control, meta};

	memory.row_bytes = GgRowBytes(meta) + GgCodeBytes(meta, meta->coded) + GgFilterBytes(meta) +
		ROW_BYTES;
	return memory;
}

static GgGraphMemory
SpilledMemory(const GgMetaPageData *meta, const gg_build_params *params)
{
	static const gg_control control = {.threads = 1, .scratch = NoScratch};
	GgGraphMemory memory = {&gg_cpu_engine, params, &control, meta};

	memory.row_bytes = GgFilterBytes(meta) + ROW_BYTES;
	return memory;
}

/* Bytes of the files of a merge of `nodes` nodes. */
static double
FileBytes(const GgMetaPageData *meta, const gg_build_params *params, uint32 nodes)
{
	double		bytes = (double) GgRowBytes(meta);

	/* ids and distances; GRNND has no lists */
	if (params->algorithm != GG_ALGORITHM_GRNND)
		bytes += params->intermediate_graph_degree * (sizeof(uint32) + sizeof(float));
	return nodes * bytes + FILE_SLACK;
}

uint32
GgNodesInMemory(const GgMetaPageData *meta, const gg_build_params *params, Size more)
{
	GgGraphMemory memory = HeldMemory(meta, params);

	memory.row_bytes += more;
	return GgRowsThatFit(&memory, Max((uint64) maintenance_work_mem * 2048, GG_LEAST_GRAPH_BYTES));
}

/* Nodes that a merge may have with rows and lists in files; 0: there can be none. */
static uint32
NodesInFiles(const GgMetaPageData *meta, const gg_build_params *params)
{
	GgGraphMemory memory = SpilledMemory(meta, params);
	uint32		most = GgRowsSpilled(&memory, GgGraphBudget());

	/* no more than temp_file_limit allows */
	while (most > 0 && !GgTempFileAllowed(FileBytes(meta, params, most)))
		most -= most / 16 + 1;
	return most;
}

uint32
GgMostMergedNodes(const GgMetaPageData *meta, const GgOptions *options)
{
	uint64		budget = GgBuildBudget(&gg_cpu_engine, NULL, 0);
	gg_build_params params;
	uint32		most;

	GgGetBuildParams(meta, options, &params);
	most = Max(GgNodesInMemory(meta, &params, 0), NodesInFiles(meta, &params));
	/* nor more than a device has room for: what it cannot build is left to the CPU */
	if (budget < PG_UINT64_MAX)
	{
		gg_control	control = {.threads = 1};
		GgGraphMemory memory = {GgAvailableEngine(), &params, &control, meta};

		if (memory.engine != &gg_cpu_engine || gg_service_engine == GG_SERVICE_CPU)
			most = Min(most, GgRowsThatFitDevice(&memory, budget));
	}
	return Max(most, 1);
}

static void
ReleaseFiles(void *arg)
{
	GgMergeFiles *files = arg;

	GgFreeScratch(&files->scratch, false);
	GgUnmapTempFile(&files->rows, false);
}

/* Where files are not allowed either, memory is taken: there would be too many segments else. */
char *
GgTakeRows(GgMergeFiles *files, const GgMetaPageData *meta, const gg_build_params *params,
		   uint32 nodes, bool outlive)
{
	Size		bytes = nodes * GgRowBytes(meta);
	GgGraphMemory memory = SpilledMemory(meta, params);

	if (nodes <= GgNodesInMemory(meta, params, 0) + 1 ||
		!GgTempFileAllowed(FileBytes(meta, params, nodes)))
		return MemoryContextAllocHuge(CurrentMemoryContext, bytes);
	ereport(DEBUG1,
			(errmsg_internal("merging %u rows of a gpugraph index in temporary files of %.0f MB",
							 nodes, FileBytes(meta, params, nodes) / (1024 * 1024))));
	GgAtReset(CurrentMemoryContext, ReleaseFiles, files);
	files->scratch.outlive = outlive;
	files->memory = GgEngineBudget(&memory, nodes, GgGraphBudget());
	GgMapTempFile(&files->rows, bytes, outlive);
	GgGrowTempFile(&files->rows, bytes);
	return files->rows.start;
}

void
GgRemoveFiles(GgMergeFiles *files)
{
	GgFreeScratch(&files->scratch, true);
	GgUnmapTempFile(&files->rows, true);
}
