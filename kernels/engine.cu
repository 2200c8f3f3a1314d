/*
 * engine.cu
 *		The CUDA engine's table, and whether it can run here.
 */
#include "cuda.h"

#ifndef GG_WITH_CUDA
#error "without GG_WITH_CUDA the table below would have no external linkage"
#endif

/* The machine code in this module is for Hopper and what came after it. */
#define LEAST_CAPABILITY 9

gg_status
gg_cuda_probe(void)
{
	int			devices = 0;
	int			device = 0;
	int			major = 0;
	int			minor = 0;
	cudaError_t error = cudaGetDeviceCount(&devices);

	/* no driver, an old one, or none of its devices given to this process: all mean "not here" */
	if (error != cudaSuccess || devices == 0)
	{
		gg_status	status;

		status = gg_cuda_fail(GG_ENODEVICE, __func__, "%s",
							  error == cudaSuccess ? "no CUDA device" : cudaGetErrorString(error));
		status.device_error = (int) error;
		(void) cudaGetLastError();
		return status;
	}
	GG_CUDA_TRY(cudaGetDevice(&device));
	/* attributes are answered without a context */
	GG_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
	GG_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
	if (major < LEAST_CAPABILITY)
		return gg_cuda_fail(GG_ENODEVICE, __func__,
							"device %d has compute capability %d.%d, at least %d.0 is needed",
							device, major, minor, LEAST_CAPABILITY);
	return gg_cuda_ok();
}

/* gg_engine.release; an error here leaves nothing to be done */
void
gg_cuda_release(void)
{
	(void) cudaDeviceReset();
	(void) cudaGetLastError();
}

const gg_engine gg_cuda_engine = {
	"cuda",
	gg_cuda_probe,
	gg_cuda_build_bytes,
	gg_cuda_knn_graph,
	gg_cuda_optimize,
	gg_cuda_build,
	gg_cuda_index_open,
	gg_cuda_index_search,
	gg_cuda_index_exact,
	gg_cuda_index_close,
	NULL, NULL, NULL, NULL, NULL, NULL, NULL,
	NULL, NULL, NULL, NULL, NULL, NULL,
	gg_cuda_release,
};
