/*
 * inside.cu
 *		What tests ask of the inside of the CUDA engine: inside.h declares it.
 */
#include "../../../kernels/graph/stages.h"
#include "../../../kernels/serve/index.cuh"
#include "../../../src/engine/rules/algorithms.h"

extern "C" gg_status
inside_cuda_optimize(const uint32_t *knn, uint32_t n, uint32_t k, uint32_t degree,
					const gg_control *control, uint32_t *graph)
{
	gg_cuda_buffer<uint32_t> device_knn;
	gg_cuda_buffer<uint32_t> device_graph;
	gg_cuda_stream stream;

	if (n == 0)
		return gg_ok();
	GG_TRY(stream.create());
	GG_TRY(device_knn.allocate((uint64_t) n * k));
	GG_TRY(device_graph.allocate((uint64_t) n * degree));
	GG_TRY(gg_cuda_copy_in(device_knn.get(), knn, device_knn.bytes(), stream.get(), control));
	GG_TRY(gg_cuda_optimize_device(device_knn.get(), n, k, degree, {stream.get(), control, NULL},
								   device_graph.get()));
	return gg_cuda_copy_out(graph, device_graph.get(), device_graph.bytes(), stream.get(), control);
}

extern "C" gg_status
inside_cuda_diversify(const gg_dataset *data, const gg_build_params *params, const uint32_t *knn,
					 const gg_control *control, uint32_t *graph)
{
	gg_cuda_data device = {NULL, data->n, data->dim, data->dim, data->element, data->metric, NULL};
	gg_cuda_stream stream;
	gg_cuda_buffer<char> rows;
	gg_cuda_working_copy copy;
	gg_cuda_buffer<uint32_t> device_knn;
	gg_cuda_buffer<uint32_t> device_graph;

	GG_TRY(gg_build_check(data, params, __func__));
	if (data->n == 0)
		return gg_ok();
	GG_TRY(stream.create());

	const gg_cuda_run run = {stream.get(), control, NULL};

	GG_TRY(rows.allocate((uint64_t) data->n * data->dim * gg_element_size(data->element)));
	GG_TRY(gg_cuda_copy_in(rows.get(), data->rows, rows.bytes(), run.stream, control));
	device.rows = rows.get();
	/* for device.side alone */
	GG_TRY(gg_cuda_working_copy_make(&device, run, &copy));
	GG_TRY(device_knn.allocate((uint64_t) data->n * params->intermediate_graph_degree));
	GG_TRY(device_graph.allocate((uint64_t) data->n * params->graph_degree));
	GG_TRY(gg_cuda_copy_in(device_knn.get(), knn, device_knn.bytes(), run.stream, control));
	GG_TRY(gg_cuda_diversify_device(&device, params, device_knn.get(), run, device_graph.get()));
	return gg_cuda_copy_out(graph, device_graph.get(), device_graph.bytes(), run.stream, control);
}

extern "C" gg_status
inside_cuda_codes(const gg_index *index, uint32_t n, uint8_t *records)
{
	const uint32_t bytes = index->view.walk_quads * 16;

	GG_CUDA_TRY(cudaMemcpy2DAsync(records, bytes, index->walk_rows.get(), index->view.walk_stride,
								  bytes, n, cudaMemcpyDeviceToHost, index->stream.get()));
	GG_CUDA_TRY(cudaStreamSynchronize(index->stream.get()));
	return gg_ok();
}
