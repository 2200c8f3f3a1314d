/*
 * runtime.cpp
 *		CUDA's runtime, as far as the engine uses it, over the host's memory.
 *
 * Everything has happened when a call returns, so streams and events are names.  A device is of
 * compute capability 9.0 as an H200, but has few multiprocessors, for kernels of as many blocks
 * take as long here as they have threads.
 *
 * Devices differ in the memory that they have left, and in the streams and kernels' limits that
 * belong to them.  That a kernel reads another one's memory is not seen.
 *
 * GG_EMULATE_SMS in the environment: how many multiprocessors.  GG_EMULATE_DEVICES: how many
 * devices, 1 without it.  GG_EMULATE_INTEGRATED: their memory is the host's.
 */
#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/cuda_runtime.h"

#define DEVICE_BYTES ((size_t) 4 << 30)
#define CONTEXT_BYTES ((size_t) 256 << 20)	/* that are never free */
#define DEVICE_ALIGN 256
#define FILL 0xA5
#define USUAL_MULTIPROCESSORS 8
#define MOST_DEVICES 8

struct emulate_stream
{
	int			device;
};

struct emulate_event
{
	std::chrono::steady_clock::time_point recorded;
};

/* ---- state ------------------------------------------------------------------------ */

typedef struct piece
{
	size_t		bytes;
	cudaMemoryType type;
	bool		registered;		/* host memory of the caller's */
	int			device;			/* that was the thread's */
} piece;

static std::mutex lock;			/* of what follows */
static std::map<const char *, piece> pieces;
static size_t held[MOST_DEVICES];	/* device bytes */
static std::map<std::pair<int, const void *>, size_t> shared_limits;
static std::map<const void *, emulate::caller> callers;

static thread_local cudaError_t last_error = cudaSuccess;
static thread_local int current = 0;	/* device */

namespace emulate
{

cudaError_t
remember(cudaError_t error)
{
	if (error != cudaSuccess)
		last_error = error;
	return error;
}

int
multiprocessors(void)
{
	const char *set = getenv("GG_EMULATE_SMS");
	const int	count = set != NULL ? atoi(set) : 0;

	return count > 0 ? count : USUAL_MULTIPROCESSORS;
}

cudaError_t
function_shared(const void *kernel, size_t bytes)
{
	std::lock_guard<std::mutex> guard(lock);

	if (bytes > EMULATE_SHARED_BYTES)
		return remember(cudaErrorInvalidValue);
	shared_limits[{current, kernel}] = bytes;
	return cudaSuccess;
}

size_t
function_shared_asked(const void *kernel)
{
	std::lock_guard<std::mutex> guard(lock);
	const auto	found = shared_limits.find({current, kernel});

	return found == shared_limits.end() ? 0 : found->second;
}

size_t
function_shared_limit(const void *kernel)
{
	return std::max(function_shared_asked(kernel), (size_t) EMULATE_SHARED_USUAL);
}

bool
is_of_device(cudaStream_t stream)
{
	return stream == NULL || stream->device == current;
}

void
know_kernel(const void *kernel, caller call)
{
	std::lock_guard<std::mutex> guard(lock);

	callers[kernel] = call;
}

}

using emulate::remember;

/* The piece that an address lies in; NULL: none.  The lock is held. */
static const std::pair<const char *const, piece> *
piece_of(const void *address)
{
	auto		next = pieces.upper_bound((const char *) address);

	if (next == pieces.begin())
		return NULL;
	--next;
	return (const char *) address < next->first + next->second.bytes ? &*next : NULL;
}

static int
count_devices(void)
{
	const char *set = getenv("GG_EMULATE_DEVICES");

	return set != NULL ? std::min(std::max(atoi(set), 1), MOST_DEVICES) : 1;
}

static bool
is_device(int device)
{
	return device >= 0 && device < count_devices();
}

extern "C"
{

/* ---- errors, the device -------------------------------------------------------------- */

cudaError_t
cudaGetLastError(void)
{
	const cudaError_t error = last_error;

	last_error = cudaSuccess;
	return error;
}

const char *
cudaGetErrorString(cudaError_t error)
{
	switch (error)
	{
		case cudaSuccess:
			return "no error";
		case cudaErrorInvalidValue:
			return "invalid argument";
		case cudaErrorMemoryAllocation:
			return "out of memory";
		case cudaErrorInvalidConfiguration:
			return "invalid configuration argument";
		case cudaErrorInvalidDevice:
			return "invalid device ordinal";
		case cudaErrorInvalidResourceHandle:
			return "invalid resource handle";
		case cudaErrorCooperativeLaunchTooLarge:
			return "too many blocks in cooperative launch";
		case cudaErrorInvalidClusterSize:
			return "invalid cluster size";
		default:
			return "an error of the emulated device";
	}
}

cudaError_t
cudaDriverGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t
cudaGetDeviceCount(int *count)
{
	*count = count_devices();
	return cudaSuccess;
}

cudaError_t
cudaGetDevice(int *device)
{
	*device = current;
	return cudaSuccess;
}

cudaError_t
cudaSetDevice(int device)
{
	if (!is_device(device))
		return remember(cudaErrorInvalidDevice);
	current = device;
	return cudaSuccess;
}

/* Memory of the device goes with the context; the host's stays, but is not registered any more. */
cudaError_t
cudaDeviceReset(void)
{
	std::lock_guard<std::mutex> guard(lock);

	for (auto one = pieces.begin(); one != pieces.end();)
		if (one->second.device == current)
		{
			if (!one->second.registered)
				free((void *) one->first);
			one = pieces.erase(one);
		}
		else
			++one;
	for (auto one = shared_limits.begin(); one != shared_limits.end();)
		one = one->first.first == current ? shared_limits.erase(one) : std::next(one);
	held[current] = 0;
	return cudaSuccess;
}

cudaError_t
cudaDeviceSynchronize(void)
{
	return cudaSuccess;
}

cudaError_t
cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	if (!is_device(device))
		return remember(cudaErrorInvalidDevice);
	switch (attribute)
	{
		case cudaDevAttrMultiProcessorCount:
			*value = emulate::multiprocessors();
			return cudaSuccess;
		case cudaDevAttrIntegrated:
			*value = getenv("GG_EMULATE_INTEGRATED") != NULL;
			return cudaSuccess;
		case cudaDevAttrMemoryClockRate:
			*value = 1000000;
			return cudaSuccess;
		case cudaDevAttrGlobalMemoryBusWidth:
			*value = 64;
			return cudaSuccess;
		case cudaDevAttrComputeCapabilityMajor:
			*value = 9;
			return cudaSuccess;
		case cudaDevAttrComputeCapabilityMinor:
			*value = 0;
			return cudaSuccess;
		case cudaDevAttrMaxSharedMemoryPerBlockOptin:
			*value = EMULATE_SHARED_BYTES;
			return cudaSuccess;
		case cudaDevAttrMemoryPoolsSupported:
			*value = 1;
			return cudaSuccess;
	}
	return remember(cudaErrorInvalidValue);
}

cudaError_t
cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
	if (!is_device(device))
		return remember(cudaErrorInvalidDevice);
	memset(properties, 0, sizeof(*properties));
	strcpy(properties->name, "emulated device");
	properties->uuid.bytes[0] = (char) device;
	properties->totalGlobalMem = DEVICE_BYTES;
	properties->major = 9;
	properties->multiProcessorCount = emulate::multiprocessors();
	return cudaSuccess;
}

cudaError_t
cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}

cudaError_t
cudaMemGetInfo(size_t *available, size_t *total)
{
	std::lock_guard<std::mutex> guard(lock);

	*available = DEVICE_BYTES - CONTEXT_BYTES - held[current];
	*total = DEVICE_BYTES;
	return cudaSuccess;
}

/* ---- memory -------------------------------------------------------------------------- */

/* Just as many bytes as asked for, so that AddressSanitizer sees the one after the last. */
static cudaError_t
allocate(void **memory, size_t bytes, cudaMemoryType type)
{
	std::lock_guard<std::mutex> guard(lock);
	const bool	device = type == cudaMemoryTypeDevice;

	*memory = NULL;
	if (bytes == 0)
		return cudaSuccess;
	if ((device && bytes > DEVICE_BYTES - CONTEXT_BYTES - held[current]) ||
		posix_memalign(memory, device ? DEVICE_ALIGN : 4096, bytes) != 0)
		return remember(cudaErrorMemoryAllocation);
	memset(*memory, FILL, bytes);
	pieces[(const char *) *memory] = {bytes, type, false, current};
	held[current] += device ? bytes : 0;
	return cudaSuccess;
}

static cudaError_t
release(void *memory, cudaMemoryType type)
{
	std::lock_guard<std::mutex> guard(lock);
	const auto	found = pieces.find((const char *) memory);

	if (memory == NULL)
		return cudaSuccess;
	if (found == pieces.end() || found->second.type != type || found->second.registered)
		return remember(cudaErrorInvalidValue);
	held[found->second.device] -= type == cudaMemoryTypeDevice ? found->second.bytes : 0;
	pieces.erase(found);
	free(memory);
	return cudaSuccess;
}

cudaError_t
cudaMalloc(void **memory, size_t bytes)
{
	return allocate(memory, bytes, cudaMemoryTypeDevice);
}

cudaError_t
cudaFree(void *memory)
{
	return release(memory, cudaMemoryTypeDevice);
}

cudaError_t
cudaMallocAsync(void **memory, size_t bytes, cudaStream_t)
{
	return cudaMalloc(memory, bytes);
}

cudaError_t
cudaFreeAsync(void *memory, cudaStream_t)
{
	return cudaFree(memory);
}

struct emulate_pool
{
	bool		keeps;			/* memory that was given back to it */
};

cudaError_t
cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *properties)
{
	if (!is_device(properties->location.id))
		return remember(cudaErrorInvalidDevice);
	*pool = new emulate_pool();
	return cudaSuccess;
}

cudaError_t
cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr, void *value)
{
	pool->keeps = *(const uint64_t *) value > 0;
	return cudaSuccess;
}

cudaError_t
cudaMemPoolDestroy(cudaMemPool_t pool)
{
	delete pool;
	return cudaSuccess;
}

cudaError_t
cudaMallocFromPoolAsync(void **memory, size_t bytes, cudaMemPool_t, cudaStream_t)
{
	return cudaMalloc(memory, bytes);
}

cudaError_t
cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
	return allocate(memory, bytes, cudaMemoryTypeHost);
}

cudaError_t
cudaFreeHost(void *memory)
{
	return release(memory, cudaMemoryTypeHost);
}

cudaError_t
cudaHostRegister(void *memory, size_t bytes, unsigned)
{
	std::lock_guard<std::mutex> guard(lock);

	if (memory == NULL || bytes == 0)
		return remember(cudaErrorInvalidValue);
	if (piece_of(memory) != NULL || piece_of((char *) memory + bytes - 1) != NULL)
		return remember(cudaErrorHostMemoryAlreadyRegistered);
	pieces[(const char *) memory] = {bytes, cudaMemoryTypeHost, true, current};
	return cudaSuccess;
}

cudaError_t
cudaHostUnregister(void *memory)
{
	std::lock_guard<std::mutex> guard(lock);
	const auto	found = pieces.find((const char *) memory);

	if (found == pieces.end() || !found->second.registered)
		return remember(cudaErrorHostMemoryNotRegistered);
	pieces.erase(found);
	return cudaSuccess;
}

cudaError_t
cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
	std::lock_guard<std::mutex> guard(lock);
	const auto *found = piece_of(host);

	if (found == NULL || found->second.type != cudaMemoryTypeHost)
		return remember(cudaErrorInvalidValue);
	*device = host;
	return cudaSuccess;
}

cudaError_t
cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory)
{
	std::lock_guard<std::mutex> guard(lock);
	const auto *found = piece_of(memory);

	attributes->type = found == NULL ? cudaMemoryTypeUnregistered : found->second.type;
	attributes->device = found == NULL ? 0 : found->second.device;
	attributes->devicePointer = found == NULL ? NULL : (void *) memory;
	attributes->hostPointer = attributes->type == cudaMemoryTypeHost ? (void *) memory : NULL;
	return cudaSuccess;
}

/* Whether `bytes` from there on are all of the device's memory, or none is. */
static bool
lies_right(const void *memory, size_t bytes, bool device)
{
	const auto *found = piece_of(memory);
	const bool	on_device = found != NULL && found->second.type == cudaMemoryTypeDevice;

	if (on_device && (const char *) memory + bytes > found->first + found->second.bytes)
		return false;
	return on_device == device;
}

/* Whether a copy's two sides are where its kind says. */
static bool
copy_fits(const void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	std::lock_guard<std::mutex> guard(lock);

	if (kind == cudaMemcpyDefault || bytes == 0)
		return true;
	return lies_right(to, bytes, kind == cudaMemcpyHostToDevice ||
					  kind == cudaMemcpyDeviceToDevice) &&
		lies_right(from, bytes, kind == cudaMemcpyDeviceToHost ||
				   kind == cudaMemcpyDeviceToDevice);
}

cudaError_t
cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	if (!copy_fits(to, from, bytes, kind))
		return remember(cudaErrorInvalidValue);
	if (bytes > 0)
		memcpy(to, from, bytes);
	return cudaSuccess;
}

cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t)
{
	return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t
cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
					cudaStream_t)
{
	if (!is_device(to_device) || !is_device(from_device))
		return remember(cudaErrorInvalidDevice);
	return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}

cudaError_t
cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
	return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, NULL);
}

cudaError_t
cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
				  size_t height, enum cudaMemcpyKind kind, cudaStream_t)
{
	if (width > to_pitch || width > from_pitch)
		return remember(cudaErrorInvalidValue);
	for (size_t row = 0; row < height; row++)
	{
		const cudaError_t error = cudaMemcpy((char *) to + row * to_pitch,
											 (const char *) from + row * from_pitch, width, kind);

		if (error != cudaSuccess)
			return error;
	}
	return cudaSuccess;
}

cudaError_t
cudaMemset(void *memory, int value, size_t bytes)
{
	if (!copy_fits(memory, memory, bytes, cudaMemcpyDeviceToDevice))
		return remember(cudaErrorInvalidValue);
	if (bytes > 0)
		memset(memory, value, bytes);
	return cudaSuccess;
}

cudaError_t
cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t)
{
	return cudaMemset(memory, value, bytes);
}

/* ---- streams, events, launches ----------------------------------------------------------- */

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
	*stream = new emulate_stream{current};
	return cudaSuccess;
}

cudaError_t
cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
	return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
	delete stream;
	return cudaSuccess;
}

cudaError_t
cudaStreamSynchronize(cudaStream_t)
{
	return cudaSuccess;
}

cudaError_t
cudaStreamQuery(cudaStream_t)
{
	return cudaSuccess;
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
	return cudaSuccess;
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
	*event = new emulate_event();
	return cudaSuccess;
}

cudaError_t
cudaEventDestroy(cudaEvent_t event)
{
	delete event;
	return cudaSuccess;
}

cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t)
{
	event->recorded = std::chrono::steady_clock::now();
	return cudaSuccess;
}

cudaError_t
cudaEventSynchronize(cudaEvent_t)
{
	return cudaSuccess;
}

cudaError_t
cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
	*ms = std::chrono::duration<float, std::milli>(end->recorded - begin->recorded).count();
	return cudaSuccess;
}

cudaError_t
cudaEventQuery(cudaEvent_t)
{
	return cudaSuccess;
}

cudaError_t
cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments)
{
	struct work
	{
		emulate::caller call;
		const void *kernel;
		void	  **arguments;
	}			work = {NULL, kernel, arguments};
	emulate::grid shape = {"cudaLaunchKernelEx", 0, config->gridDim, config->blockDim,
						   config->dynamicSmemBytes, 0, false, config->stream};

	{
		std::lock_guard<std::mutex> guard(lock);
		const auto	found = callers.find(kernel);

		if (found == callers.end())
			return remember(cudaErrorInvalidDeviceFunction);
		work.call = found->second;
	}
	for (unsigned i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == cudaLaunchAttributeClusterDimension)
			shape.cluster = config->attrs[i].val.clusterDim.x;
		else if (config->attrs[i].id == cudaLaunchAttributeCooperative)
			shape.cooperative = config->attrs[i].val.cooperative != 0;
	return emulate::launch_grid(shape, kernel, [](void *memory)
								{
									struct work *its = (struct work *) memory;

									its->call(its->kernel, its->arguments);
								}, &work);
}

}
