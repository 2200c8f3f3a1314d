/*
 * device.cu
 *		Devices: what they can do, whether there is code for them, their contexts, their errors.
 */
#include <atomic>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"
#include "engine/rules/device_memory.h"

/* Asynchronous copies, m16n8k16 products and reductions of a warp begin with Ampere. */
#define LEAST_CAPABILITY 8

/*
 * Shared memory that a block must be able to ask for.  Capabilities 8.6, 8.9 and 12.x have 99 KB,
 * 8.0 has 163, 9.0 and 10.x have 227.
 */
#define LEAST_SHARED_BYTES (99 * 1024)

/*
 * GPUGRAPH_AS in the environment, for tests: take a device for one of this lesser capability.  Its
 * shared memory is what such a device has.
 */
static gg_status
lessen(gg_cuda_limits *limits)
{
	static const struct
	{
		const char *name;
		int			major;
		int			minor;
		int			shared_bytes;
	}			lesser[] = {
		{"8.0", 8, 0, 163 * 1024},
		{"8.6", 8, 6, 99 * 1024},
		{"8.9", 8, 9, 99 * 1024},
		{"12.0", 12, 0, 99 * 1024}
	};
	const char *as = getenv("GPUGRAPH_AS");

	if (as == NULL || as[0] == '\0')
		return gg_ok();
	for (const auto &one : lesser)
		if (strcmp(as, one.name) == 0 && one.shared_bytes <= limits->shared_bytes)
		{
			limits->major = one.major;
			limits->minor = one.minor;
			limits->shared_bytes = one.shared_bytes;
			return gg_ok();
		}
	return gg_fail(GG_EINVAL, __func__,
				   "GPUGRAPH_AS is \"%s\"; it can be 8.0, 8.6, 8.9 or 12.0, and no more than the "
				   "device, which is of %d.%d", as, limits->major, limits->minor);
}

gg_status
gg_cuda_device_limits(int device, gg_cuda_limits *limits)
{
	/* attributes are answered without a context */
	GG_CUDA_TRY(cudaDeviceGetAttribute(&limits->major, cudaDevAttrComputeCapabilityMajor, device));
	GG_CUDA_TRY(cudaDeviceGetAttribute(&limits->minor, cudaDevAttrComputeCapabilityMinor, device));
	GG_CUDA_TRY(cudaDeviceGetAttribute(&limits->sms, cudaDevAttrMultiProcessorCount, device));
	GG_CUDA_TRY(cudaDeviceGetAttribute(&limits->shared_bytes,
									   cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
	return lessen(limits);
}

/* ---- errors ---------------------------------------------------------------- */

static gg_code
code_of(cudaError_t error)
{
	switch (error)
	{
		case cudaErrorMemoryAllocation:
			return GG_EDEVICE_MEMORY;
		case cudaErrorNoDevice:
		case cudaErrorInsufficientDriver:
		case cudaErrorNoKernelImageForDevice:
		case cudaErrorInvalidDeviceFunction:
		case cudaErrorInvalidKernelImage:
		case cudaErrorInvalidPtx:
		case cudaErrorUnsupportedPtxVersion:
		case cudaErrorJitCompilerNotFound:
		case cudaErrorJitCompilationDisabled:
			return GG_ENODEVICE;

			/* refused for what was asked, not for what became of the device, whose context is as
			 * good as before */
		case cudaErrorInvalidValue:
		case cudaErrorInvalidConfiguration:
		case cudaErrorLaunchOutOfResources:
		case cudaErrorInvalidClusterSize:
		case cudaErrorCooperativeLaunchTooLarge:
		case cudaErrorNotSupported:
			return GG_EUNSUPPORTED;
		default:
			return GG_EDEVICE;
	}
}

gg_status
gg_cuda_failed(cudaError_t error, const char *where, const char *what)
{
	gg_status	status = gg_fail(code_of(error), where, "%s: %s", what, cudaGetErrorString(error));

	status.device_error = (int) error;
	/* errors that do not stick are taken off the thread, so the next call does not report them */
	(void) cudaGetLastError();
	return status;
}

/* ---- the driver ------------------------------------------------------------ */

/* The runtime found no driver, an old one, or no device: say which. */
static gg_status
no_device(cudaError_t error, const char *where)
{
	int			driver = 0;			/* the CUDA version that it is made for */
	gg_status	status;

	(void) cudaGetLastError();
	if (error == cudaErrorInsufficientDriver &&
		(cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0))
		status = gg_fail(GG_ENODEVICE, where, "there is no NVIDIA driver");
	else if (error == cudaErrorInsufficientDriver)
		status = gg_fail(GG_ENODEVICE, where,
						 "the NVIDIA driver is too old: it is made for CUDA %d.%d, and gpugraph, "
						 "built with CUDA %d.%d, needs driver %d or later", driver / 1000,
						 driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
						 CUDART_VERSION >= 13000 ? 580 : 525);
	else
		status = gg_fail(GG_ENODEVICE, where, "%s", error == cudaSuccess ? "no CUDA device" :
						 cudaGetErrorString(error));
	status.device_error = (int) error;
	return status;
}

/* gg_engine.device_count; makes no context */
gg_status
gg_cuda_device_count(int *count)
{
	cudaError_t error;

	*count = 0;
	error = cudaGetDeviceCount(count);
	if (error == cudaSuccess)
		return gg_ok();
	*count = 0;
	return no_device(error, __func__);
}

/* ---- one device ------------------------------------------------------------ */

#define TEXT_OF(...) #__VA_ARGS__
#define TEXT(...) TEXT_OF(__VA_ARGS__)

#ifndef GG_CUDA_CODES
#define GG_CUDA_CODES
#endif

/*
 * What the kernels were compiled for, as "sm_80+sm_90+compute_90"; "": the Makefile could not tell.
 */
static const char *const codes = TEXT(GG_CUDA_CODES);

/*
 * Does code of that name run there?  Machine code runs on its own major capability from its own
 * minor one on, PTX (compute_) on all from its own on, and what ends in a letter on less.
 */
static bool
code_runs(const char *code, size_t length, int major, int minor)
{
	const bool	ptx = strncmp(code, "compute_", 8) == 0;
	char	   *end;
	const long	number = strtol(code + (ptx ? 8 : 3), &end, 10);
	const char	letter = end < code + length ? *end : '\0';
	const int	code_major = (int) number / 10;
	const int	code_minor = (int) number % 10;

	if (letter == 'a')
		return major == code_major && minor == code_minor;
	if (!ptx || letter == 'f')
		return major == code_major && minor >= code_minor;
	return major > code_major || (major == code_major && minor >= code_minor);
}

/* Is there code for the device, as it is rather than as it is taken for? */
static gg_status
check_codes(int device)
{
	int			major = 0;
	int			minor = 0;
	char		names[sizeof(TEXT(GG_CUDA_CODES))];

	GG_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
	GG_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
	if (codes[0] == '\0')
		return gg_ok();
	for (const char *code = codes; code[0] != '\0';)
	{
		const size_t length = strcspn(code, "+");

		if (code_runs(code, length, major, minor))
			return gg_ok();
		code += length + (code[length] == '+');
	}
	strcpy(names, codes);
	for (char *at = names; *at != '\0'; at++)
		if (*at == '+')
			*at = ' ';
	return gg_fail(GG_ENODEVICE, __func__,
				   "device %d has compute capability %d.%d, and this gpugraph has code for %s: "
				   "build it with NVCC_GENCODE=-arch=sm_%d%d", device, major, minor, names, major,
				   minor);
}

gg_status
gg_cuda_probe_device(int device)
{
	gg_cuda_limits limits = {};

	GG_TRY(gg_cuda_device_limits(device, &limits));
	if (limits.major < LEAST_CAPABILITY)
		return gg_fail(GG_ENODEVICE, __func__,
					   "device %d has compute capability %d.%d, at least %d.0 is needed", device,
					   limits.major, limits.minor, LEAST_CAPABILITY);
	if (limits.shared_bytes < LEAST_SHARED_BYTES)
		return gg_fail(GG_ENODEVICE, __func__,
					   "device %d has %d bytes of shared memory a block, at least %d are needed",
					   device, limits.shared_bytes, LEAST_SHARED_BYTES);
	return check_codes(device);
}

/*
 * gg_engine.probe.  A host may have devices of several kinds: a build takes the first that can be
 * used, and it is enough for searches that there is one.  If none can be used, the first one's
 * failure is told.
 */
gg_status
gg_cuda_probe(gg_use use)
{
	gg_status	first = gg_ok();
	int			devices = 0;

	/*
	 * A context has as many queues to the device as this says, eight by default, and is opened in
	 * 60 ms with one, in 120 to 160 with eight (H200); closing it takes half as long.  A build does
	 * one thing at a time, and its copies share one way to the device.  The service has more
	 * streams than eight: its queues, and those of indexes and merges.  The driver looks when it is
	 * started, which the next call does; a user's own choice stays.
	 */
	(void) setenv("CUDA_DEVICE_MAX_CONNECTIONS", use == GG_USE_BUILD ? "1" : "16", 0);

	GG_TRY(gg_cuda_device_count(&devices));
	if (devices == 0)
		return no_device(cudaSuccess, __func__);
	for (int device = 0; device < devices; device++)
	{
		gg_status	status = gg_cuda_probe_device(device);

		if (status.code != GG_OK)
		{
			if (device == 0)
				first = status;
			continue;
		}
		if (use == GG_USE_BUILD && device > 0)
		{
			GG_CUDA_TRY(cudaSetDevice(device));
			gg_cuda_serve_device(device);
		}
		return gg_ok();
	}
	return first;
}

/* What its memory gives, in GB/s: two transfers a clock; 1 where the driver does not say. */
static uint32_t
memory_speed(int device)
{
	int			khz = 0;
	int			bits = 0;

	if (cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, device) != cudaSuccess ||
		cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device) != cudaSuccess)
		(void) cudaGetLastError();
	return (uint32_t) std::max<int64_t>((int64_t) khz * 2 * (bits / 8) / 1000000, 1);
}

gg_status
gg_cuda_memory(uint64_t *available, uint64_t *total)
{
	size_t		free_bytes = 0;
	size_t		all_bytes = 0;
	int			device = 0;
	int			integrated = 0;

	GG_CUDA_TRY(cudaMemGetInfo(&free_bytes, &all_bytes));
	*available = free_bytes;
	*total = all_bytes;
	GG_CUDA_TRY(cudaGetDevice(&device));
	GG_CUDA_TRY(cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, device));
	if (integrated)
	{
		char		meminfo[8192];
		FILE	   *file = fopen("/proc/meminfo", "re");
		const size_t length = file == NULL ? 0 : fread(meminfo, 1, sizeof(meminfo) - 1, file);

		meminfo[length] = '\0';
		if (file != NULL)
			(void) fclose(file);
		gg_integrated_memory(meminfo, available, total);
	}
	return gg_ok();
}

/* gg_engine.device_info; makes the device's context, for free memory is known only through one */
gg_status
gg_cuda_device_info(int device, gg_device_info *info)
{
	struct cudaDeviceProp properties;
	int			before = 0;
	gg_status	status;

	memset(info, 0, sizeof(*info));
	GG_CUDA_TRY(cudaGetDevice(&before));
	if (device == GG_DEVICE_IN_USE)
		device = before;
	GG_CUDA_TRY(cudaGetDeviceProperties(&properties, device));
	GG_CUDA_TRY(cudaSetDevice(device));
	status = gg_cuda_memory(&info->free_bytes, &info->total_bytes);
	if (before != device)
		(void) cudaSetDevice(before);
	GG_TRY(status);
	snprintf(info->name, sizeof(info->name), "%.63s", properties.name);
	memcpy(info->uuid, properties.uuid.bytes, sizeof(info->uuid));
	info->speed = memory_speed(device);
	return gg_ok();
}

/* ---- contexts ------------------------------------------------------------------ */

#define CONTEXT_DEVICES 256		/* device numbers are below this */

static std::atomic<uint32_t> releases;
static std::atomic<int> served(-1);
static thread_local int used = -1;

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
	return used >= 0 ? used : served.load();
}

/* gg_engine.use_device */
gg_status
gg_cuda_use_device(int device)
{
	GG_TRY(gg_cuda_probe_device(device));
	GG_CUDA_TRY(cudaSetDevice(device));
	used = device;
	return gg_ok();
}

/* gg_engine.release; an error here leaves nothing to be done */
void
gg_cuda_release(void)
{
	(void) cudaDeviceReset();
	(void) cudaGetLastError();
	gg_cuda_forget_shared();
	releases.fetch_add(1);
}
