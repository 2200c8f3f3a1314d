/*
 * memory.cu
 *		Where buffers come from: cudaMalloc(), or a pool for work beside searches.  Copies between
 *		the host's memory and the device's.
 *
 * cudaMalloc() and cudaFree() take the driver's lock, and cudaFree() waits for all that the device
 * does: batches that are launched meanwhile wait with it.  A build calls them some hundred times.
 * Beside searches it takes memory from a pool of its own instead, in the order of its stream, and
 * the pool gives all of it back at the end.
 *
 * The pool belongs to the thread, because buffers are taken at places that know nothing of it.  One
 * thread runs one build from its begin to its end.
 *
 * No GPU has run this with searches beside it yet: what the driver makes them wait for, when the
 * pool grows and when it goes, is not measured.
 */
#include "cuda.h"

#define COPY_BYTES ((uint64_t) 32 << 20)

static thread_local cudaMemPool_t pool = NULL;
static thread_local cudaStream_t pool_stream = NULL;

cudaError_t
gg_cuda_malloc(void **memory, size_t bytes)
{
	if (pool == NULL)
		return cudaMalloc(memory, bytes);
	return cudaMallocFromPoolAsync(memory, bytes, pool, pool_stream);
}

void
gg_cuda_free(void *memory)
{
	if (pool == NULL)
		(void) cudaFree(memory);
	else
		(void) cudaFreeAsync(memory, pool_stream);
}

/* Some virtual GPUs have no pools; there a build is as any other. */
static gg_status
open_pool(int device, cudaStream_t stream)
{
	cudaMemPoolProps properties;
	uint64_t	keep = UINT64_MAX;	/* all that it has, as long as it lives */
	int			supported = 0;

	GG_CUDA_TRY(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device));
	if (!supported)
		return gg_ok();
	memset(&properties, 0, sizeof(properties));
	properties.allocType = cudaMemAllocationTypePinned;
	properties.location.type = cudaMemLocationTypeDevice;
	properties.location.id = device;
	GG_CUDA_TRY(cudaMemPoolCreate(&pool, &properties));
	pool_stream = stream;
	return gg_cuda_status(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
						  __func__, "cudaMemPoolSetAttribute");
}

gg_status
gg_cuda_work::start(const gg_control *control)
{
	int			least = 0;
	int			greatest = 0;
	int			device = 0;

	if (control == NULL || !control->background)
		return stream_.create();
	GG_CUDA_TRY(cudaGetDevice(&device));
	GG_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	GG_TRY(stream_.create(least));
	return open_pool(device, stream_.get());
}

gg_cuda_work::~gg_cuda_work()
{
	if (pool == NULL)
		return;
	(void) cudaStreamSynchronize(stream_.get());
	(void) cudaMemPoolDestroy(pool);
	pool = NULL;
	pool_stream = NULL;
}

gg_status
gg_cuda_copy_in(void *device, const void *host, uint64_t bytes, cudaStream_t stream,
				const gg_control *control)
{
	for (uint64_t at = 0; at < bytes; at += COPY_BYTES)
	{
		GG_CUDA_TRY(cudaMemcpyAsync((char *) device + at, (const char *) host + at,
									bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES,
									cudaMemcpyHostToDevice, stream));
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
		GG_TRY(gg_cuda_check_cancel(control, __func__));
	}
	return gg_ok();
}

gg_status
gg_cuda_copy_out(void *host, const void *device, uint64_t bytes, cudaStream_t stream,
				 const gg_control *control)
{
	for (uint64_t at = 0; at < bytes; at += COPY_BYTES)
	{
		GG_CUDA_TRY(cudaMemcpyAsync((char *) host + at, (const char *) device + at,
									bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES,
									cudaMemcpyDeviceToHost, stream));
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
		GG_TRY(gg_cuda_check_cancel(control, __func__));
	}
	return gg_ok();
}
