/*
 * device_memory.h
 *		What a test program has taken of the device.
 *
 * The linker leads every cudaMalloc() and cudaFree() of the engine through the counters below
 * (Makefile, --wrap).  What the device has free would tell of other processes, too, and of a
 * sanitizer's own memory.
 */
#ifndef GG_TEST_DEVICE_MEMORY_H
#define GG_TEST_DEVICE_MEMORY_H

#include <cuda_runtime_api.h>

#define BLOCKS_MAX 4096			/* held at one time; a build holds some dozens */

static struct
{
	void	   *blocks[BLOCKS_MAX];
	size_t		sizes[BLOCKS_MAX];
	size_t		held;			/* bytes */
	size_t		peak;
} device;

extern cudaError_t __real_cudaMalloc(void **block, size_t bytes);
extern cudaError_t __real_cudaFree(void *block);
extern cudaError_t __wrap_cudaMalloc(void **block, size_t bytes);
extern cudaError_t __wrap_cudaFree(void *block);

cudaError_t
__wrap_cudaMalloc(void **block, size_t bytes)
{
	const cudaError_t error = __real_cudaMalloc(block, bytes);
	int			i = 0;

	if (error != cudaSuccess)
		return error;
	while (i < BLOCKS_MAX && device.blocks[i] != NULL)
		i++;
	if (i == BLOCKS_MAX)
	{
		/* as good as lost: nobody gives so many back */
		(void) __real_cudaFree(*block);
		return cudaErrorMemoryAllocation;
	}
	device.blocks[i] = *block;
	device.sizes[i] = bytes;
	device.held += bytes;
	if (device.held > device.peak)
		device.peak = device.held;
	return cudaSuccess;
}

cudaError_t
__wrap_cudaFree(void *block)
{
	for (int i = 0; block != NULL && i < BLOCKS_MAX; i++)
		if (device.blocks[i] == block)
		{
			device.blocks[i] = NULL;
			device.held -= device.sizes[i];
			break;
		}
	return __real_cudaFree(block);
}

#endif							/* GG_TEST_DEVICE_MEMORY_H */
