/*
 * engine.cu
 *		The CUDA engine's table, and whether it can run here.
 */
#include <atomic>
#include <stdlib.h>

#include "cuda.h"

#ifndef GG_WITH_CUDA
#error "without GG_WITH_CUDA the table below would have no external linkage"
#endif

/* The machine code in this module is for Hopper and what came after it. */
#define LEAST_CAPABILITY 9

/*
 * Shared memory that a block must be able to ask for.  Capabilities 9.0 and 10.x have 227 KB, and
 * the search of the widest rows takes all of it; 12.x, workstation cards, have 99, and the build's
 * joins take 104 (cells.cu).
 */
#define LEAST_SHARED_BYTES (200 * 1024)

gg_status
gg_cuda_probe_device(int device)
{
	int			major = 0;
	int			minor = 0;
	int			shared_bytes = 0;

	/* attributes are answered without a context */
	GG_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
	GG_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
	if (major < LEAST_CAPABILITY)
		return gg_fail(GG_ENODEVICE, __func__,
					   "device %d has compute capability %d.%d, at least %d.0 is needed", device,
					   major, minor, LEAST_CAPABILITY);
	GG_CUDA_TRY(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
									   device));
	if (shared_bytes < LEAST_SHARED_BYTES)
		return gg_fail(GG_ENODEVICE, __func__,
					   "device %d has %d bytes of shared memory a block, at least %d are needed",
					   device, shared_bytes, LEAST_SHARED_BYTES);
	return gg_ok();
}

gg_status
gg_cuda_probe(gg_use use)
{
	int			devices = 0;
	int			device = 0;
	cudaError_t error;

	/*
	 * A context has as many queues to the device as this says, eight by default, and is opened in
	 * 60 ms with one, in 120 to 160 with eight (H200); closing it takes half as long.  A build does
	 * one thing at a time, and its copies share one way to the device.  The driver looks when it is
	 * started, which the next call does; a user's own choice stays.
	 */
	if (use == GG_USE_BUILD)
		(void) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 0);

	error = cudaGetDeviceCount(&devices);

	/* no driver, an old one, or none of its devices given to this process: all mean "not here" */
	if (error != cudaSuccess || devices == 0)
	{
		gg_status	status;

		status = gg_fail(GG_ENODEVICE, __func__, "%s", error == cudaSuccess ? "no CUDA device" :
						 cudaGetErrorString(error));
		status.device_error = (int) error;
		(void) cudaGetLastError();
		return status;
	}
	GG_CUDA_TRY(cudaGetDevice(&device));
	return gg_cuda_probe_device(device);
}

/* gg_engine.device_count; makes no context */
gg_status
gg_cuda_device_count(int *count)
{
	cudaError_t error;

	*count = 0;
	error = cudaGetDeviceCount(count);
	if (error != cudaSuccess)
	{
		gg_status	status = gg_fail(GG_ENODEVICE, __func__, "%s", cudaGetErrorString(error));

		*count = 0;
		status.device_error = (int) error;
		(void) cudaGetLastError();
		return status;
	}
	return gg_ok();
}

/* gg_engine.device_info; makes the device's context, for free memory is known only through one */
gg_status
gg_cuda_device_info(int device, gg_device_info *info)
{
	struct cudaDeviceProp properties;
	size_t		available = 0;
	size_t		total = 0;
	int			before = 0;
	cudaError_t error;

	memset(info, 0, sizeof(*info));
	GG_CUDA_TRY(cudaGetDeviceProperties(&properties, device));
	GG_CUDA_TRY(cudaGetDevice(&before));
	GG_CUDA_TRY(cudaSetDevice(device));
	error = cudaMemGetInfo(&available, &total);
	if (before != device)
		(void) cudaSetDevice(before);
	GG_TRY(gg_cuda_status(error, __func__, "cudaMemGetInfo"));
	snprintf(info->name, sizeof(info->name), "%.63s", properties.name);
	info->total_bytes = total;
	info->free_bytes = available;
	return gg_ok();
}

/* ---- contexts ------------------------------------------------------------------ */

#define CONTEXT_DEVICES 256		/* device numbers are below this */

static std::atomic<uint32_t> releases;
static std::atomic<int> served(-1);

uint32_t
gg_cuda_context_id(int device)
{
	return (releases.load() * CONTEXT_DEVICES + (uint32_t) device % CONTEXT_DEVICES + 1) & 0xFFFFFF;
}

void
gg_cuda_serve_device(int device)
{
	served.store(device);
}

int
gg_cuda_served_device(void)
{
	return served.load();
}

/* gg_engine.release; an error here leaves nothing to be done */
void
gg_cuda_release(void)
{
	(void) cudaDeviceReset();
	(void) cudaGetLastError();
	releases.fetch_add(1);
}

/* In the order of gg_engine: C++17 has no designated initializers. */
const gg_engine gg_cuda_engine = {
	"cuda",
	gg_cuda_probe,
	gg_cuda_build_bytes,
	gg_cuda_build,
	gg_cuda_build_index,
	gg_cuda_index_create,
	gg_cuda_index_write,
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
	gg_cuda_index_open,
	gg_cuda_index_search,
	gg_cuda_index_exact
};
