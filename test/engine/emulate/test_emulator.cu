/*
 * test_emulator.cu
 *		The emulated device itself: what kernels get from each other, and that one which does wrong
 *		ends with a message.
 */
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/warp.cuh"

namespace cg = cooperative_groups;

static int	passed;
static int	failed;

static void
check(bool ok, const char *what)
{
	if (ok)
		passed++;
	else
		failed++;
	if (!ok)
		printf("failed: %s\n", what);
}

template <typename T>
static T *
device_array(size_t count)
{
	T		   *array = NULL;

	check(cudaMalloc((void **) &array, count * sizeof(T)) == cudaSuccess, "cudaMalloc");
	check(cudaMemset(array, 0, count * sizeof(T)) == cudaSuccess, "cudaMemset");
	return array;
}

/* ---- what is right --------------------------------------------------------------- */

/* out[0 .. 32): sums of the lanes up to one; then some ballots and reductions */
static __global__ void
warp_kernel(uint32_t *out)
{
	const uint32_t lane = threadIdx.x;
	uint32_t	sum = lane;

	for (uint32_t by = 1; by < 32; by *= 2)
	{
		const uint32_t below = __shfl_up_sync(GG_FULL_WARP, sum, by);

		sum += lane >= by ? below : 0;
	}
	out[lane] = sum;
	if (lane < 8)
		out[32] = __ballot_sync(0xFF, lane % 2);
	else
		out[33] = __reduce_min_sync(0xFFFFFF00u, lane * 3);
	out[34] = __match_any_sync(GG_FULL_WARP, lane / 4 == 0 ? 7u : lane);
	out[35] = __shfl_xor_sync(GG_FULL_WARP, 5.0f, 1) == 5.0f;
	/* those that are left */
	if (lane < 30)
		return;
	out[36] = __popc(__ballot_sync(GG_FULL_WARP, 1));
}

/* Each block reverses its part of the numbers, through shared memory of both kinds. */
static __global__ void
block_kernel(uint32_t *numbers)
{
	extern __shared__ uint32_t dynamic[];
	__shared__ uint32_t fixed[96];
	uint32_t   *own = numbers + blockIdx.x * blockDim.x;

	dynamic[threadIdx.x] = own[threadIdx.x];
	__syncthreads();
	fixed[threadIdx.x] = dynamic[blockDim.x - 1 - threadIdx.x];
	if (__syncthreads_or(threadIdx.x == 95))
		own[threadIdx.x] = fixed[threadIdx.x];
	atomicAdd(&numbers[gridDim.x * blockDim.x], 1);
}

/* Each block gets the rank of the next one from it. */
static __global__ void
cluster_kernel(uint32_t *out)
{
	__shared__ uint32_t from;
	cg::cluster_group cluster = cg::this_cluster();
	const uint32_t rank = cluster.block_rank();

	cluster.sync();
	if (threadIdx.x == 0)
		*cluster.map_shared_rank(&from, (rank + 1) % cluster.num_blocks()) = rank;
	cluster.sync();
	if (threadIdx.x == 0)
		out[blockIdx.x] = from;
}

/* a (16 x 16), b (8 x 16, so its columns are rows): out = a x b, by ldmatrix and mma */
static __global__ void
product_kernel(const __half *a, const __half *b, float *out)
{
	__shared__ __align__(16) __half tiles[24][16];
	const uint32_t lane = threadIdx.x;
	const char *rows = (const char *) tiles;
	uint32_t	x[4];
	uint32_t	y[4];
	float		sums[4] = {0, 0, 0, 0};

	for (uint32_t piece = lane; piece < 48; piece += 32)
		gg_copy_async((char *) tiles + piece * 16,
					  piece < 32 ? (const char *) a + piece * 16 :
					  (const char *) b + (piece - 32) * 16);
	gg_copy_commit();
	gg_copy_wait<0>();
	__syncwarp();
	gg_load_matrix(x, rows + lane % 16 * 32 + lane / 16 * 16);
	gg_load_matrix(y, rows + (16 + lane % 8) * 32 + lane / 8 % 2 * 16);
	gg_mma(sums, x[0], x[1], x[2], x[3], y[0], y[1]);
	for (uint32_t i = 0; i < 4; i++)
		out[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

static void
check_warp(void)
{
	uint32_t   *out = device_array<uint32_t>(37);
	bool		sums = true;

	warp_kernel<<<1, 32>>>(out);
	for (uint32_t lane = 0; lane < 32; lane++)
		sums = sums && out[lane] == lane * (lane + 1) / 2;
	check(sums, "sums over lanes");
	check(out[32] == 0xAA && out[33] == 24, "two masks at once");
	check(out[34] == 0xF || __popc(out[34]) == 1, "match");
	check(out[35] == 1, "floats");
	check(out[36] == 2, "a ballot of those that are left");
	(void) cudaFree(out);
}

static void
check_block(void)
{
	const uint32_t blocks = 7;
	uint32_t   *numbers = device_array<uint32_t>(blocks * 96 + 1);
	bool		right = true;

	for (uint32_t i = 0; i < blocks * 96; i++)
		numbers[i] = i;
	block_kernel<<<blocks, 96, 96 * sizeof(uint32_t)>>>(numbers);
	for (uint32_t i = 0; i < blocks * 96; i++)
		right = right && numbers[i] == i / 96 * 96 + 95 - i % 96;
	check(right && numbers[blocks * 96] == blocks * 96, "blocks");
	(void) cudaFree(numbers);
}

static cudaError_t
launch_cluster(uint32_t blocks, uint32_t cluster, uint32_t *out, void (*kernel) (uint32_t *))
{
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};

	attribute.id = cudaLaunchAttributeClusterDimension;
	attribute.val.clusterDim.x = cluster;
	attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
	config.gridDim = dim3(blocks);
	config.blockDim = dim3(64);
	config.attrs = &attribute;
	config.numAttrs = 1;
	return cudaLaunchKernelEx(&config, kernel, out);
}

static void
check_cluster(void)
{
	uint32_t   *out = device_array<uint32_t>(8);
	bool		right = true;

	check(launch_cluster(8, 4, out, cluster_kernel) == cudaSuccess, "a launch of clusters");
	for (uint32_t i = 0; i < 8; i++)
		right = right && out[i] == (i + 3) % 4;
	check(right, "clusters");
	check(launch_cluster(8, 3, out, cluster_kernel) == cudaErrorInvalidClusterSize &&
		  cudaGetLastError() != cudaSuccess, "blocks that make no whole clusters");
	block_kernel<<<1, 96, 49 << 10>>>(out);
	check(cudaGetLastError() == cudaErrorInvalidValue, "shared memory that nobody asked for");
	(void) cudaFree(out);
}

static void
check_product(void)
{
	__half	   *a = device_array<__half>(16 * 16);
	__half	   *b = device_array<__half>(8 * 16);
	float	   *out = device_array<float>(16 * 8);
	bool		right = true;

	for (int i = 0; i < 16 * 16; i++)
		a[i] = __float2half_rn((float) (i * 7 % 31) - 15);
	for (int i = 0; i < 8 * 16; i++)
		b[i] = __float2half_rn((float) (i * 5 % 23) / 4);
	product_kernel<<<1, 32>>>(a, b, out);
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 8; j++)
		{
			float		sum = 0;

			for (int k = 0; k < 16; k++)
				sum += __half2float(a[i * 16 + k]) * __half2float(b[j * 16 + k]);
			right = right && out[i * 8 + j] == sum;
		}
	check(right, "a product of matrices");
	(void) cudaFree(a);
	(void) cudaFree(b);
	(void) cudaFree(out);
}

/* A half for every one that there is, and what lies between two of them. */
static void
check_halves(void)
{
	uint32_t	wrong = 0;

	for (uint32_t bits = 0; bits < 0x7C00; bits++)
	{
		const float x = emulate::float_of_half((uint16_t) bits);
		const float next = emulate::float_of_half((uint16_t) (bits + 1));

		wrong += emulate::half_of_float(x) != bits;
		wrong += emulate::half_of_float(-x) != (bits | 0x8000);
		if (bits + 1 < 0x7C00)
			wrong += emulate::half_of_float((x + next) / 2) != bits + bits % 2;
	}
	check(wrong == 0, "halves");
	check(emulate::float_of_half(0x0001) == 0x1p-24f && emulate::float_of_half(0x7BFF) == 65504 &&
		  emulate::half_of_float(65520) == 0x7C00 && isnan(emulate::float_of_half(0x7E00)),
		  "the smallest half, the largest, and others");
}

/* ---- what is wrong ------------------------------------------------------------------- */

static __global__ void
half_barrier_kernel(uint32_t *out)
{
	if (threadIdx.x < 32)
		__syncthreads();
	else
		cg::this_cluster().sync();
	out[0] = 0;
}

static __global__ void
half_warp_kernel(uint32_t *out)
{
	if (threadIdx.x % 32 < 16)
		out[0] = __ballot_sync(GG_FULL_WARP, 1);
	__syncthreads();
}

static __global__ void
two_operations_kernel(uint32_t *out)
{
	if (threadIdx.x % 2)
		out[0] = __ballot_sync(GG_FULL_WARP, 1);
	else
		__syncwarp();
}

static __global__ void
absent_lane_kernel(uint32_t *out)
{
	if (threadIdx.x < 16)
		out[threadIdx.x] = __shfl_sync(0xFFFFu, threadIdx.x, 20);
}

static __global__ void
misaligned_kernel(uint32_t *out)
{
	__shared__ __align__(16) char room[64];

	gg_copy_async(room + 4, out);
}

static __global__ void
early_kernel(uint32_t *out)
{
	__shared__ uint32_t from;

	out[0] = from;
	*cg::this_cluster().map_shared_rank(&from, 1 - cg::this_cluster().block_rank()) = 1;
	cg::this_cluster().sync();
}

static __global__ void
greedy_kernel(uint32_t *out)
{
	__shared__ char much[300 << 10];

	much[threadIdx.x] = 0;
	out[0] = 0;
}

/* What it declares counts against what it asks for. */
static __global__ void
asking_kernel(uint32_t *out)
{
	__shared__ uint32_t declared[64];

	declared[threadIdx.x] = threadIdx.x;
	out[threadIdx.x] = declared[threadIdx.x];
}

/* In a process of its own: it aborts, and says why. */
static void
check_fails(void (*kernel) (uint32_t *), bool cluster, const char *message)
{
	char		text[65536];
	size_t		length = 0;
	int			ends[2];
	int			status = 0;
	pid_t		child;
	bool		ok;

	fflush(stdout);
	check(pipe(ends) == 0, "pipe");
	child = fork();
	if (child == 0)
	{
		uint32_t   *out = device_array<uint32_t>(64);

		(void) dup2(ends[1], 2);
		if (cluster)
			(void) launch_cluster(2, 2, out, kernel);
		else
			kernel<<<1, 64>>>(out);
		_exit(0);
	}
	(void) close(ends[1]);
	while (length < sizeof(text) - 1)
	{
		const ssize_t got = read(ends[0], text + length, sizeof(text) - 1 - length);

		if (got <= 0)
			break;
		length += (size_t) got;
	}
	text[length] = '\0';
	(void) close(ends[0]);
	(void) waitpid(child, &status, 0);
	ok = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, message) != NULL;
	check(ok, message);
	if (!ok)
		printf("%s\n", text);
}

/* Each device has memory and streams of its own. */
static void
check_devices(void)
{
	size_t		before[2];
	size_t		after[2];
	size_t		total;
	cudaStream_t stream = NULL;
	uint32_t   *out = NULL;

	(void) setenv("GG_EMULATE_DEVICES", "2", 1);
	check(cudaSetDevice(2) == cudaErrorInvalidDevice && cudaGetLastError() != cudaSuccess,
		  "a third device of two");
	for (int device = 0; device < 2; device++)
	{
		check(cudaSetDevice(device) == cudaSuccess, "cudaSetDevice");
		(void) cudaMemGetInfo(&before[device], &total);
	}
	out = device_array<uint32_t>(64);
	check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
	warp_kernel<<<1, 32, 0, stream>>>(out);
	check(cudaGetLastError() == cudaSuccess, "a launch on a stream of the thread's device");
	(void) cudaMemGetInfo(&after[1], &total);
	(void) cudaSetDevice(0);
	(void) cudaMemGetInfo(&after[0], &total);
	check(after[0] == before[0] && after[1] == before[1] - 64 * sizeof(uint32_t),
		  "memory is the thread's device's");
	warp_kernel<<<1, 32, 0, stream>>>(out);
	check(cudaGetLastError() == cudaErrorInvalidResourceHandle,
		  "a launch on a stream of another device");
	(void) cudaStreamDestroy(stream);
	(void) cudaFree(out);
	(void) unsetenv("GG_EMULATE_DEVICES");
}

int
main(void)
{
	check_warp();
	check_block();
	check_cluster();
	check_product();
	check_halves();
	check_devices();
	check_fails(half_barrier_kernel, true, "all threads wait");
	check_fails(half_warp_kernel, false, "all threads wait");
	check_fails(two_operations_kernel, false, "different operations");
	check_fails(absent_lane_kernel, false, "reads from lane 20");
	check_fails(misaligned_kernel, false, "no multiple of 16");
	check_fails(early_kernel, true, "has not begun");
	check_fails(greedy_kernel, false, "bytes of shared memory");
	check(cudaFuncSetAttribute(asking_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
							   EMULATE_SHARED_BYTES - 128) == cudaSuccess, "asking");
	check_fails(asking_kernel, false, "232576 bytes of shared memory");
	printf("%d passed, %d failed\n", passed, failed);
	return failed > 0;
}
