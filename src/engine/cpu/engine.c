/*
 * engine.c
 *		The CPU engine's ops table.
 */
#include "engine/cpu/common/cpu.h"
#include "engine/cpu/serve/index.h"

/* It runs wherever it was built for; the instruction set is chosen later, see distance.c. */
static gg_status
cpu_probe(gg_use use)
{
	(void) use;
	return gg_ok();
}

static void
cpu_release(void)
{
}

/* Any number of devices is played. */
static gg_status
cpu_use_device(int device)
{
	(void) device;
	return gg_ok();
}

const gg_engine gg_cpu_engine = {
	.name = "cpu",
	.probe = cpu_probe,
	.build_bytes = gg_cpu_build_bytes,
	.build = gg_cpu_build,
	.merge = gg_cpu_merge,
	.build_index = gg_cpu_build_index,
	.index_create = gg_cpu_index_create,
	.index_write = gg_cpu_index_write,
	.index_take = gg_cpu_index_take,
	.index_finish = gg_cpu_index_finish,
	.index_close = gg_cpu_index_close,
	.shape_bytes = gg_cpu_shape_bytes,
	.index_bytes = gg_cpu_index_bytes,
	.serve_open = gg_cpu_serve_open,
	.serve_submit = gg_cpu_serve_submit,
	.serve_group = gg_cpu_serve_group,
	.serve_check = gg_cpu_serve_check,
	.serve_close = gg_cpu_serve_close,
	.device_count = gg_cpu_device_count,
	.device_info = gg_cpu_device_info,
	.use_device = cpu_use_device,
	.release = cpu_release,
	.knn_graph = gg_cpu_knn_graph,
	.index_open = gg_cpu_index_open,
	.index_search = gg_cpu_index_search,
	.index_exact = gg_cpu_index_exact
};
