/*
 * device_memory.h
 *		What a test program has taken of the device.
 *
 * The linker leads every cudaMalloc() and cudaFree() of the engine, and what it takes from pools,
 * through the counters below (Makefile, --wrap).  What the device has free would tell of other
 * processes, too, and of a sanitizer's own memory.
 */
#ifndef GG_TEST_DEVICE_MEMORY_H
#define GG_TEST_DEVICE_MEMORY_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define BLOCKS_MAX 4096			/* held at one time; a build holds some dozens */

static struct
{
	void	   *blocks[BLOCKS_MAX];
	size_t		sizes[BLOCKS_MAX];
	size_t		held;			/* bytes */
	size_t		peak;
	uint64_t	pooled;			/* times that memory was taken from a pool */
	int			until_refused;	/* takes before one is refused; 0: none is */
} device;

/* Builds take memory in a thread for each device. */
static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;

extern cudaError_t __real_cudaMalloc(void **block, size_t bytes);
extern cudaError_t __real_cudaFree(void *block);
extern cudaError_t __wrap_cudaMalloc(void **block, size_t bytes);
extern cudaError_t __wrap_cudaFree(void *block);
extern cudaError_t __real_cudaMallocFromPoolAsync(void **block, size_t bytes, cudaMemPool_t pool,
												  cudaStream_t stream);
extern cudaError_t __real_cudaFreeAsync(void *block, cudaStream_t stream);
extern cudaError_t __wrap_cudaMallocFromPoolAsync(void **block, size_t bytes, cudaMemPool_t pool,
												  cudaStream_t stream);
extern cudaError_t __wrap_cudaFreeAsync(void *block, cudaStream_t stream);

/* False: there is no place to count it in, or a test wants it refused. */
static bool
count_block(void *block, size_t bytes)
{
	int			i = 0;
	bool		counted;

	pthread_mutex_lock(&device_lock);
	while (i < BLOCKS_MAX && device.blocks[i] != NULL)
		i++;
	counted = i < BLOCKS_MAX && (device.until_refused == 0 || --device.until_refused > 0);
	if (counted)
	{
		device.blocks[i] = block;
		device.sizes[i] = bytes;
		device.held += bytes;
		if (device.held > device.peak)
			device.peak = device.held;
	}
	pthread_mutex_unlock(&device_lock);
	return counted;
}

static void
forget_block(void *block)
{
	pthread_mutex_lock(&device_lock);
	for (int i = 0; block != NULL && i < BLOCKS_MAX; i++)
		if (device.blocks[i] == block)
		{
			device.blocks[i] = NULL;
			device.held -= device.sizes[i];
			break;
		}
	pthread_mutex_unlock(&device_lock);
}

cudaError_t
__wrap_cudaMalloc(void **block, size_t bytes)
{
	const cudaError_t error = __real_cudaMalloc(block, bytes);

	if (error != cudaSuccess || count_block(*block, bytes))
		return error;
	/* as good as lost: nobody gives so many back */
	(void) __real_cudaFree(*block);
	return cudaErrorMemoryAllocation;
}

cudaError_t
__wrap_cudaFree(void *block)
{
	forget_block(block);
	return __real_cudaFree(block);
}

cudaError_t
__wrap_cudaMallocFromPoolAsync(void **block, size_t bytes, cudaMemPool_t pool,
							   cudaStream_t stream)
{
	const cudaError_t error = __real_cudaMallocFromPoolAsync(block, bytes, pool, stream);

	device.pooled++;
	if (error != cudaSuccess || count_block(*block, bytes))
		return error;
	(void) __real_cudaFreeAsync(*block, stream);
	return cudaErrorMemoryAllocation;
}

cudaError_t
__wrap_cudaFreeAsync(void *block, cudaStream_t stream)
{
	forget_block(block);
	return __real_cudaFreeAsync(block, stream);
}

#endif							/* GG_TEST_DEVICE_MEMORY_H */
