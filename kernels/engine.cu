/*
 * engine.cu
 *		The CUDA engine's table.
 */
#include "common/cuda.h"

#ifndef GG_WITH_CUDA
#error "without GG_WITH_CUDA the table below would have no external linkage"
#endif

/* In the order of gg_engine: C++17 has no designated initializers. */
const gg_engine gg_cuda_engine = {
	"cuda",
	gg_cuda_probe,
	gg_cuda_build_bytes,
	gg_cuda_build,
	gg_cuda_merge,
	gg_cuda_build_index,
	gg_cuda_index_create,
	gg_cuda_index_write,
	gg_cuda_index_take,
	gg_cuda_index_finish,
	gg_cuda_index_close,
	gg_cuda_shape_bytes,
	gg_cuda_index_bytes,
	gg_cuda_serve_open,
	gg_cuda_serve_submit,
	gg_cuda_serve_check,
	gg_cuda_serve_close,
	gg_cuda_device_count,
	gg_cuda_device_info,
	gg_cuda_release,
	gg_cuda_knn_graph,
	gg_cuda_optimize,
	gg_cuda_diversify,
	gg_cuda_index_open,
	gg_cuda_index_search,
	gg_cuda_index_exact
};
