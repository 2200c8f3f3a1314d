/*
 * cuda_runtime_api.h
 *		What the CUDA engine and its tests use of CUDA's runtime, for the emulated device.
 *
 * C, as CUDA's own.  runtime.cpp has the functions.
 */
#ifndef EMULATE_CUDA_RUNTIME_API_H
#define EMULATE_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#define CUDART_VERSION 13000

#ifdef __cplusplus
extern "C"
{
#endif

typedef enum cudaError
{
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInvalidConfiguration = 9,
	cudaErrorInsufficientDriver = 35,
	cudaErrorInvalidDeviceFunction = 98,
	cudaErrorNoDevice = 100,
	cudaErrorInvalidDevice = 101,
	cudaErrorInvalidKernelImage = 200,
	cudaErrorNoKernelImageForDevice = 209,
	cudaErrorInvalidPtx = 218,
	cudaErrorJitCompilerNotFound = 221,
	cudaErrorUnsupportedPtxVersion = 222,
	cudaErrorJitCompilationDisabled = 223,
	cudaErrorInvalidResourceHandle = 400,
	cudaErrorNotReady = 600,
	cudaErrorLaunchOutOfResources = 701,
	cudaErrorHostMemoryAlreadyRegistered = 712,
	cudaErrorHostMemoryNotRegistered = 713,
	cudaErrorCooperativeLaunchTooLarge = 720,
	cudaErrorNotSupported = 801,
	cudaErrorInvalidClusterSize = 912
} cudaError_t;

typedef struct emulate_stream *cudaStream_t;
typedef struct emulate_pool *cudaMemPool_t;

enum cudaMemAllocationType
{
	cudaMemAllocationTypePinned = 1
};

enum cudaMemLocationType
{
	cudaMemLocationTypeDevice = 1
};

enum cudaMemPoolAttr
{
	cudaMemPoolAttrReleaseThreshold = 4
};

typedef struct cudaMemPoolProps
{
	enum cudaMemAllocationType allocType;
	struct
	{
		enum cudaMemLocationType type;
		int			id;
	}			location;
} cudaMemPoolProps;

typedef struct emulate_event *cudaEvent_t;

#define cudaStreamNonBlocking 1
#define cudaEventDisableTiming 2
#define cudaHostAllocDefault 0
#define cudaHostAllocPortable 1
#define cudaHostAllocMapped 2
#define cudaHostRegisterDefault 0
#define cudaHostRegisterPortable 1
#define cudaHostRegisterMapped 2

enum cudaMemcpyKind
{
	cudaMemcpyHostToHost = 0,
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDeviceToHost = 2,
	cudaMemcpyDeviceToDevice = 3,
	cudaMemcpyDefault = 4
};

enum cudaMemoryType
{
	cudaMemoryTypeUnregistered = 0,
	cudaMemoryTypeHost = 1,
	cudaMemoryTypeDevice = 2,
	cudaMemoryTypeManaged = 3
};

struct cudaPointerAttributes
{
	enum cudaMemoryType type;
	int			device;
	void	   *devicePointer;
	void	   *hostPointer;
};

enum cudaDeviceAttr
{
	cudaDevAttrMultiProcessorCount = 16,
	cudaDevAttrIntegrated = 18,
	cudaDevAttrMemoryClockRate = 36,
	cudaDevAttrGlobalMemoryBusWidth = 37,
	cudaDevAttrComputeCapabilityMajor = 75,
	cudaDevAttrComputeCapabilityMinor = 76,
	cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
	cudaDevAttrMemoryPoolsSupported = 115
};

struct cudaDeviceProp
{
	char		name[256];
	struct
	{
		char		bytes[16];
	}			uuid;
	size_t		totalGlobalMem;
	int			major;
	int			minor;
	int			multiProcessorCount;
};

struct cudaFuncAttributes
{
	int			maxThreadsPerBlock;
	int			ptxVersion;
	int			binaryVersion;
};

enum cudaFuncAttribute
{
	cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
	cudaFuncAttributeNonPortableClusterSizeAllowed = 13
};

typedef struct dim3
{
	unsigned	x;
	unsigned	y;
	unsigned	z;
#ifdef __cplusplus
	constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
	{
	}
#endif
} dim3;

typedef enum cudaLaunchAttributeID
{
	cudaLaunchAttributeIgnore = 0,
	cudaLaunchAttributeCooperative = 2,
	cudaLaunchAttributeClusterDimension = 4
} cudaLaunchAttributeID;

typedef union cudaLaunchAttributeValue
{
	char		pad[64];
	int			cooperative;
	struct
	{
		unsigned	x;
		unsigned	y;
		unsigned	z;
	}			clusterDim;
} cudaLaunchAttributeValue;

typedef struct cudaLaunchAttribute
{
	cudaLaunchAttributeID id;
	cudaLaunchAttributeValue val;
} cudaLaunchAttribute;

typedef struct cudaLaunchConfig_t
{
	dim3		gridDim;
	dim3		blockDim;
	size_t		dynamicSmemBytes;
	cudaStream_t stream;
	cudaLaunchAttribute *attrs;
	unsigned	numAttrs;
} cudaLaunchConfig_t;

extern cudaError_t cudaGetLastError(void);
extern const char *cudaGetErrorString(cudaError_t error);

extern cudaError_t cudaDriverGetVersion(int *version);
extern cudaError_t cudaGetDeviceCount(int *count);
extern cudaError_t cudaGetDevice(int *device);
extern cudaError_t cudaSetDevice(int device);
extern cudaError_t cudaDeviceReset(void);
extern cudaError_t cudaDeviceSynchronize(void);
extern cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
extern cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
extern cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
extern cudaError_t cudaMemGetInfo(size_t *available, size_t *total);

extern cudaError_t cudaMalloc(void **memory, size_t bytes);
extern cudaError_t cudaFree(void *memory);
extern cudaError_t cudaMallocAsync(void **memory, size_t bytes, cudaStream_t stream);
extern cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream);
extern cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *properties);
extern cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
										   void *value);
extern cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool);
extern cudaError_t cudaMallocFromPoolAsync(void **memory, size_t bytes, cudaMemPool_t pool,
										   cudaStream_t stream);
extern cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
extern cudaError_t cudaFreeHost(void *memory);
extern cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags);
extern cudaError_t cudaHostUnregister(void *memory);
extern cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
extern cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
											const void *memory);

extern cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
extern cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
								   enum cudaMemcpyKind kind, cudaStream_t stream);
extern cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device,
								  size_t bytes);
extern cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
									   size_t bytes, cudaStream_t stream);
extern cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
									 size_t from_pitch, size_t width, size_t height,
									 enum cudaMemcpyKind kind, cudaStream_t stream);
extern cudaError_t cudaMemset(void *memory, int value, size_t bytes);
extern cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);

extern cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
extern cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
												int priority);
extern cudaError_t cudaStreamDestroy(cudaStream_t stream);
extern cudaError_t cudaStreamSynchronize(cudaStream_t stream);
extern cudaError_t cudaStreamQuery(cudaStream_t stream);
extern cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
extern cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
extern cudaError_t cudaEventDestroy(cudaEvent_t event);
extern cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
extern cudaError_t cudaEventSynchronize(cudaEvent_t event);
extern cudaError_t cudaEventQuery(cudaEvent_t event);
extern cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end);

extern cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
									   void **arguments);

#ifdef __cplusplus
}
#endif

#endif							/* EMULATE_CUDA_RUNTIME_API_H */
