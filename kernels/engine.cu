/*
 * engine.cu
 *		The CUDA engine's table.
 */
#include "common/cuda.h"

#ifndef GG_WITH_CUDA
#error "without GG_WITH_CUDA the table below would have no external linkage"
#endif

const gg_engine gg_cuda_engine = {
	.name = "cuda",
	.probe = gg_cuda_probe,
	.build_bytes = gg_cuda_build_bytes,
	.build = gg_cuda_build,
	.merge = gg_cuda_merge,
	.build_index = gg_cuda_build_index,
	.index_create = gg_cuda_index_create,
	.index_write = gg_cuda_index_write,
	.index_take = gg_cuda_index_take,
	.index_finish = gg_cuda_index_finish,
	.index_close = gg_cuda_index_close,
	.shape_bytes = gg_cuda_shape_bytes,
	.index_bytes = gg_cuda_index_bytes,
	.serve_open = gg_cuda_serve_open,
	.serve_submit = gg_cuda_serve_submit,
	.serve_group = gg_cuda_serve_group,
	.serve_check = gg_cuda_serve_check,
	.serve_close = gg_cuda_serve_close,
	.device_count = gg_cuda_device_count,
	.device_info = gg_cuda_device_info,
	.use_device = gg_cuda_use_device,
	.release = gg_cuda_release,
	.knn_graph = gg_cuda_knn_graph,
	.index_open = gg_cuda_index_open,
	.index_search = gg_cuda_index_search,
	.index_exact = gg_cuda_index_exact
};
