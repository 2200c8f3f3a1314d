/*
 * stages.cu
 *		TSDG's two stages one without the other: section 3.
 *
 * Stage 1 alone is a graph as Vamana's or, with an alpha of 1, as GD's: relaxed diversification,
 * then reverse edges, cut at the degree.  Stage 2 alone is one as DPG's: the k-NN list cut at the
 * limit, reverse edges, lambda.
 */
#include "papers.h"

#include "../../../../src/engine/rules/algorithms.h"

static __global__ void
cut_lists_kernel(const uint32_t *lists, uint32_t k, uint32_t length, uint32_t *out)
{
	for (uint32_t i = threadIdx.x; i < length; i += blockDim.x)
		out[(uint64_t) blockIdx.x * length + i] = lists[(uint64_t) blockIdx.x * k + i];
}

gg_status
papers_diversify(int stages, const gg_cuda_data *given, const gg_build_params *params,
				 const uint32_t *knn, cudaStream_t stream, uint32_t *graph)
{
	gg_cuda_data places = *given;
	const gg_cuda_data *data = &places;
	const uint32_t n = data->n;
	const uint32_t limit = gg_tsdg_limit(params);
	const gg_cuda_run run = {stream, NULL, NULL};
	gg_cuda_buffer<uint32_t> forward;
	gg_cuda_buffer<uint32_t> united;

	/* TSDG's stages are not for products (gg_algorithm_of()): they look at where rows lie */
	if (places.metric == GG_METRIC_IP)
		places.metric = GG_METRIC_L2;
	GG_TRY(forward.allocate((uint64_t) n * limit));
	if (stages & 1)
		GG_TRY(gg_cuda_relax_device(data, params, knn, run, forward.get()));
	else
	{
		cut_lists_kernel<<<n, 64, 0, stream>>>(knn, params->intermediate_graph_degree, limit,
											   forward.get());
		GG_CUDA_LAUNCHED("cut_lists_kernel");
	}
	if (stages == 1)
	{
		/* united lists are as long as the limit at least */
		GG_TRY(united.allocate((uint64_t) n * limit));
		GG_TRY(gg_cuda_unite_device(forward.get(), n, limit, limit, run, united.get()));
		cut_lists_kernel<<<n, 64, 0, stream>>>(united.get(), limit, params->graph_degree, graph);
		GG_CUDA_LAUNCHED("cut_lists_kernel");
	}
	else
	{
		GG_TRY(united.allocate((uint64_t) n * 2 * limit));
		GG_TRY(gg_cuda_unite_device(forward.get(), n, limit, 2 * limit, run, united.get()));
		GG_TRY(gg_cuda_soften_device(data, params, united.get(), 2 * limit, run, graph));
	}
	GG_CUDA_TRY(cudaStreamSynchronize(stream));
	return gg_ok();
}
