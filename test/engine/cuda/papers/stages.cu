/*
 * stages.cu
 *		TSDG's two stages one without the other: section 3.
 *
 * A second copy of kernels/build/tsdg.cu.  Stage 1 alone is a graph as Vamana's or, with an alpha
 * of 1, as GD's: relaxed diversification, then reverse edges, cut at the degree.  Stage 2 alone is
 * one as DPG's: the k-NN list cut at the limit, reverse edges, lambda.
 */
#define gg_cuda_diversify_device papers_both_stages
#include "../../../../kernels/build/tsdg.cu"

#include "papers.h"

static __global__ void
cut_lists_kernel(const uint32_t *lists, uint32_t k, uint32_t length, uint32_t *out)
{
	for (uint32_t i = threadIdx.x; i < length; i += blockDim.x)
		out[(uint64_t) blockIdx.x * length + i] = lists[(uint64_t) blockIdx.x * k + i];
}

/* Stage 1: n x limit. */
static gg_status
relax(const gg_cuda_data *data, const gg_build_params *params, const uint32_t *knn,
	  cudaStream_t stream, uint32_t *forward)
{
	tsdg_args	args = {};
	gg_cuda_pace pace;

	GG_TRY(pace.create());
	args.view = gg_view_of(data);
	args.lists = knn;
	args.length = params->intermediate_graph_degree;
	args.capacity = (args.length + 31) / 32 * 32;
	args.factor = gg_tsdg_factor(params, data->metric);
	args.out = forward;
	args.most = gg_tsdg_limit(params);
	return run_stage(&args, false, stream, NULL, &pace);
}

/* Stage 2 of n x length. */
static gg_status
count_lambda(const gg_cuda_data *data, const gg_build_params *params, const uint32_t *united,
			 uint32_t length, cudaStream_t stream, uint32_t *graph)
{
	tsdg_args	args = {};
	gg_cuda_pace pace;

	GG_TRY(pace.create());
	args.view = gg_view_of(data);
	args.lists = united;
	args.length = length;
	args.capacity = (length + 31) / 32 * 32;
	args.factor = 1.0f;
	args.lambda0 = gg_tsdg_lambda0(params);
	args.out = graph;
	args.most = params->graph_degree;
	return run_stage(&args, true, stream, NULL, &pace);
}

gg_status
papers_diversify(int stages, const gg_cuda_data *data, const gg_build_params *params,
				 const uint32_t *knn, cudaStream_t stream, uint32_t *graph)
{
	const uint32_t n = data->n;
	const uint32_t limit = gg_tsdg_limit(params);
	gg_cuda_buffer<uint32_t> forward;
	gg_cuda_buffer<uint32_t> united;

	GG_TRY(forward.allocate((uint64_t) n * limit));
	if (stages & 1)
		GG_TRY(relax(data, params, knn, stream, forward.get()));
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
		GG_TRY(gg_cuda_unite_device(forward.get(), n, limit, limit, {stream, NULL, NULL},
									united.get()));
		cut_lists_kernel<<<n, 64, 0, stream>>>(united.get(), limit, params->graph_degree, graph);
		GG_CUDA_LAUNCHED("cut_lists_kernel");
	}
	else
	{
		GG_TRY(united.allocate((uint64_t) n * 2 * limit));
		GG_TRY(gg_cuda_unite_device(forward.get(), n, limit, 2 * limit, {stream, NULL, NULL},
									united.get()));
		GG_TRY(count_lambda(data, params, united.get(), 2 * limit, stream, graph));
	}
	GG_CUDA_TRY(cudaStreamSynchronize(stream));
	return gg_ok();
}
