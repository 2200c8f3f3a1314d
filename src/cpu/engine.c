/*
 * engine.c
 *		The CPU engine's ops table.
 */
#include "cpu.h"
#include "index.h"

/* It runs wherever it was built for; the instruction set is chosen later, see distance.c. */
static gg_status
cpu_probe(void)
{
	return gg_cpu_ok();
}

static void
cpu_release(void)
{
}

const gg_engine gg_cpu_engine = {
	.name = "cpu",
	.probe = cpu_probe,
	.build_bytes = gg_cpu_build_bytes,
	.knn_graph = gg_cpu_knn_graph,
	.optimize = gg_cpu_optimize,
	.build = gg_cpu_build,
	.index_open = gg_cpu_index_open,
	.index_search = gg_cpu_index_search,
	.index_exact = gg_cpu_index_exact,
	.index_close = gg_cpu_index_close,
	.release = cpu_release
};
