/*
 * cuda_runtime.h
 *		CUDA C++ for the emulated device: words, vector types, what kernels call.
 */
#ifndef EMULATE_CUDA_RUNTIME_H
#define EMULATE_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../emulator.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

#define threadIdx (emulate::self->index)
#define blockIdx (emulate::self->its_block->index)

/* ---- vectors ----------------------------------------------------------------- */

#define EMULATE_VECTOR2(name, type, align) \
	struct __align__(align) name { type x, y; }; \
	static inline name make_##name(type x, type y) { return {x, y}; }
#define EMULATE_VECTOR4(name, type, align) \
	struct __align__(align) name { type x, y, z, w; }; \
	static inline name make_##name(type x, type y, type z, type w) { return {x, y, z, w}; }

EMULATE_VECTOR2(int2, int, 8)
EMULATE_VECTOR2(uint2, unsigned, 8)
EMULATE_VECTOR2(float2, float, 8)
EMULATE_VECTOR2(double2, double, 16)
EMULATE_VECTOR2(longlong2, long long, 16)
EMULATE_VECTOR2(ulonglong2, unsigned long long, 16)
EMULATE_VECTOR4(int4, int, 16)
EMULATE_VECTOR4(uint4, unsigned, 16)
EMULATE_VECTOR4(float4, float, 16)

/* ---- numbers ------------------------------------------------------------------ */

#define EMULATE_MIN_MAX(type, a, b) \
	static inline type min(a x, b y) { return (type) x < (type) y ? (type) x : (type) y; } \
	static inline type max(a x, b y) { return (type) x > (type) y ? (type) x : (type) y; }

EMULATE_MIN_MAX(int, int, int)
EMULATE_MIN_MAX(unsigned, unsigned, unsigned)
EMULATE_MIN_MAX(unsigned, unsigned, int)
EMULATE_MIN_MAX(unsigned, int, unsigned)
EMULATE_MIN_MAX(long, long, long)
EMULATE_MIN_MAX(unsigned long, unsigned long, unsigned long)
EMULATE_MIN_MAX(long long, long long, long long)
EMULATE_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
EMULATE_MIN_MAX(float, float, float)
EMULATE_MIN_MAX(double, double, double)

namespace emulate
{

template <typename To, typename From>
static inline To
bits_of(From from)
{
	To			to;

	static_assert(sizeof(To) == sizeof(From), "bits are copied");
	memcpy(&to, &from, sizeof(to));
	return to;
}

}

static inline float __uint_as_float(unsigned x) { return emulate::bits_of<float>(x); }
static inline float __int_as_float(int x) { return emulate::bits_of<float>(x); }
static inline unsigned __float_as_uint(float x) { return emulate::bits_of<unsigned>(x); }
static inline int __float_as_int(float x) { return emulate::bits_of<int>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned) x); }
static inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(x); }
static inline unsigned __umulhi(unsigned x, unsigned y) { return (uint64_t) x * y >> 32; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline int
__dp4a(int a, int b, int sum)
{
	uint32_t	total = (uint32_t) sum;

	for (int i = 0; i < 32; i += 8)
		total += (uint32_t) ((int8_t) (a >> i) * (int8_t) (b >> i));
	return (int) total;
}
static inline unsigned
__dp4a(unsigned a, unsigned b, unsigned sum)
{
	for (int i = 0; i < 32; i += 8)
		sum += (a >> i & 0xFF) * (b >> i & 0xFF);
	return sum;
}
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline float cospif(float x) { return (float) cos(3.14159265358979323846 * x); }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }

/* ---- memory --------------------------------------------------------------------- */

template <typename T> static inline T __ldg(const T *at) { return *at; }
template <typename T> static inline T __ldcg(const T *at) { return *at; }
template <typename T> static inline T __ldcs(const T *at) { return *at; }
template <typename T, typename U> static inline void __stcg(T *at, U value) { *at = value; }
template <typename T, typename U> static inline void __stcs(T *at, U value) { *at = value; }

static inline void __threadfence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block(void) { __threadfence(); }
static inline void __threadfence_system(void) { __threadfence(); }

static inline size_t
__cvta_generic_to_global(const void *address)
{
	return (size_t) address;
}

/* Each returns what was there. */
template <typename T, typename U, typename Op>
static inline T
emulate_atomic(T *at, U value, Op op)
{
	T			was;
	T			is;

	__atomic_load(at, &was, __ATOMIC_RELAXED);
	do
		is = op(was, (T) value);
	while (!__atomic_compare_exchange(at, &was, &is, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return was;
}

#define EMULATE_ATOMIC(name, expression) \
	template <typename T, typename U> \
	static inline T \
	name(T *at, U value) \
	{ \
		return emulate_atomic(at, value, [](T x, T y) { return (T) (expression); }); \
	}

EMULATE_ATOMIC(atomicAdd, x + y)
EMULATE_ATOMIC(atomicSub, x - y)
EMULATE_ATOMIC(atomicMin, x < y ? x : y)
EMULATE_ATOMIC(atomicMax, x > y ? x : y)
EMULATE_ATOMIC(atomicAnd, x & y)
EMULATE_ATOMIC(atomicOr, x | y)
EMULATE_ATOMIC(atomicXor, x ^ y)
EMULATE_ATOMIC(atomicExch, ((void) x, y))

template <typename T, typename U, typename V>
static inline T
atomicCAS(T *at, U expected, V value)
{
	T			was = (T) expected;
	T			is = (T) value;

	(void) __atomic_compare_exchange(at, &was, &is, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return was;
}

/* ---- the block -------------------------------------------------------------------- */

static inline void
__syncthreads(void)
{
	emulate::block_barrier("__syncthreads", false);
}

static inline int
__syncthreads_or(int truth)
{
	emulate::block_barrier("__syncthreads_or", truth != 0);
	return emulate::self->its_block->found > 0;
}

static inline int
__syncthreads_and(int truth)
{
	emulate::block_barrier("__syncthreads_and", truth != 0);
	return emulate::self->its_block->found == emulate::self->its_block->took_part;
}

static inline int
__syncthreads_count(int truth)
{
	emulate::block_barrier("__syncthreads_count", truth != 0);
	return (int) emulate::self->its_block->found;
}

/* ---- the warp ----------------------------------------------------------------------- */

namespace emulate
{

extern void complete_nothing(warp *w, uint32_t lanes);
extern void complete_exchange(warp *w, uint32_t lanes);
extern void complete_ballot(warp *w, uint32_t lanes);
extern void complete_match(warp *w, uint32_t lanes);
extern void complete_matrix(warp *w, uint32_t lanes);
extern void complete_product(warp *w, uint32_t lanes);
extern void complete_byte_product(warp *w, uint32_t lanes);

/* The value of lane `source`. */
template <typename T>
static inline T
exchange(uint32_t mask, const char *name, T value, uint32_t source)
{
	static_assert(sizeof(T) <= sizeof(uint64_t), "one word a lane");
	self->in[0] = 0;
	memcpy(&self->in[0], &value, sizeof(T));
	self->in[1] = source;
	warp_operation(mask, name, complete_exchange);
	memcpy(&value, &self->out[0], sizeof(T));
	return value;
}

/* The lanes that say yes, and all that were asked. */
static inline uint32_t
ballot(uint32_t mask, const char *name, bool truth)
{
	self->in[0] = truth;
	warp_operation(mask, name, complete_ballot);
	return (uint32_t) self->out[0];
}

template <typename T, typename Op>
static inline T
reduce(uint32_t mask, const char *name, T value, Op)
{
	self->in[0] = (uint64_t) value;
	warp_operation(mask, name, [](warp *w, uint32_t lanes)
				   {
					   T			all = 0;
					   bool			first = true;

					   for (uint32_t l = 0; l < 32; l++)
						   if (lanes >> l & 1)
						   {
							   const T		one = (T) w->fibers[l].in[0];

							   all = first ? one : Op()(all, one);
							   first = false;
						   }
					   for (uint32_t l = 0; l < 32; l++)
						   if (lanes >> l & 1)
							   w->fibers[l].out[0] = (uint64_t) all;
				   });
	return (T) self->out[0];
}

struct least
{
	template <typename T> T operator()(T a, T b) const { return a < b ? a : b; }
};
struct largest
{
	template <typename T> T operator()(T a, T b) const { return a > b ? a : b; }
};
struct sum
{
	template <typename T> T operator()(T a, T b) const { return a + b; }
};
struct bits_and
{
	template <typename T> T operator()(T a, T b) const { return a & b; }
};
struct bits_or
{
	template <typename T> T operator()(T a, T b) const { return a | b; }
};
struct bits_xor
{
	template <typename T> T operator()(T a, T b) const { return a ^ b; }
};

}

static inline void
__syncwarp(unsigned mask = 0xFFFFFFFFu)
{
	emulate::warp_operation(mask, "__syncwarp", emulate::complete_nothing);
}

/* Lanes of one of the parts that `width` makes of a warp; outside of it a lane gets its own. */
template <typename T>
static inline T
__shfl_sync(unsigned mask, T value, int source, int width = 32)
{
	const uint32_t part = emulate::self->lane & ~((uint32_t) width - 1);

	return emulate::exchange(mask, "__shfl_sync", value,
							 part | ((uint32_t) source & ((uint32_t) width - 1)));
}

template <typename T>
static inline T
__shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32)
{
	const uint32_t lane = emulate::self->lane;
	const uint32_t end = (lane & ~((uint32_t) width - 1)) + (uint32_t) width;
	const uint32_t source = lane ^ (uint32_t) lanes;

	return emulate::exchange(mask, "__shfl_xor_sync", value, source < end ? source : lane);
}

template <typename T>
static inline T
__shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32)
{
	const uint32_t lane = emulate::self->lane;
	const uint32_t place = lane & ((uint32_t) width - 1);

	return emulate::exchange(mask, "__shfl_up_sync", value, place >= by ? lane - by : lane);
}

template <typename T>
static inline T
__shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32)
{
	const uint32_t lane = emulate::self->lane;
	const uint32_t place = lane & ((uint32_t) width - 1);

	return emulate::exchange(mask, "__shfl_down_sync", value,
							 place + by < (uint32_t) width ? lane + by : lane);
}

static inline unsigned
__ballot_sync(unsigned mask, int truth)
{
	return emulate::ballot(mask, "__ballot_sync", truth != 0);
}

static inline int
__any_sync(unsigned mask, int truth)
{
	return emulate::ballot(mask, "__any_sync", truth != 0) != 0;
}

static inline int
__all_sync(unsigned mask, int truth)
{
	return emulate::ballot(mask, "__all_sync", truth != 0) == emulate::self->out[1];
}

template <typename T>
static inline unsigned
__match_any_sync(unsigned mask, T value)
{
	emulate::self->in[0] = 0;
	memcpy(&emulate::self->in[0], &value, sizeof(value));
	emulate::warp_operation(mask, "__match_any_sync", emulate::complete_match);
	return (unsigned) emulate::self->out[0];
}

#define EMULATE_REDUCE(name, op) \
	static inline unsigned \
	name(unsigned mask, unsigned value) \
	{ \
		return emulate::reduce(mask, #name, value, emulate::op()); \
	}
#define EMULATE_REDUCE_BOTH(name, op) \
	EMULATE_REDUCE(name, op) \
	static inline int \
	name(unsigned mask, int value) \
	{ \
		return emulate::reduce(mask, #name, value, emulate::op()); \
	}

EMULATE_REDUCE_BOTH(__reduce_min_sync, least)
EMULATE_REDUCE_BOTH(__reduce_max_sync, largest)
EMULATE_REDUCE_BOTH(__reduce_add_sync, sum)
EMULATE_REDUCE(__reduce_and_sync, bits_and)
EMULATE_REDUCE(__reduce_or_sync, bits_or)
EMULATE_REDUCE(__reduce_xor_sync, bits_xor)

/* ---- instructions, by their names (translate) -------------------------------------------- */

namespace emulate
{

static inline void
aligned(const char *instruction, const void *address, size_t bytes)
{
	if ((size_t) address % bytes != 0)
		fail("%s: the address %p is no multiple of %zu", instruction, address, bytes);
}

static inline char *
shared_address(const void *address)
{
	return (char *) address;
}

static inline void
cp_async_cg_shared_global(const char *instruction, char *to, const void *from, int taken = 16)
{
	aligned(instruction, to, 16);
	aligned(instruction, from, 16);
	copy_later(to, from, 16, (uint32_t) taken);
}

static inline void
cp_async_ca_shared_global(const char *instruction, char *to, const void *from)
{
	const int	bytes = atoi(strrchr(instruction, ',') + 1);

	aligned(instruction, to, (size_t) bytes);
	aligned(instruction, from, (size_t) bytes);
	copy_later(to, from, (uint32_t) bytes, (uint32_t) bytes);
}

static inline void
cp_async_commit_group(const char *)
{
	copies_commit();
}

static inline void
cp_async_wait_group(const char *, int pending)
{
	copies_wait((uint32_t) pending);
}

static inline void
ldmatrix_sync_aligned_m8n8_x4_shared_b16(const char *instruction, uint32_t &a, uint32_t &b,
										 uint32_t &c, uint32_t &d, const char *row)
{
	uint32_t	out[4];

	aligned(instruction, row, 16);
	self->in[0] = (uint64_t) row;
	self->in[1] = (uint64_t) out;
	warp_operation(0xFFFFFFFFu, "ldmatrix", complete_matrix);
	a = out[0];
	b = out[1];
	c = out[2];
	d = out[3];
}

static inline void
mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(const char *, float &c0, float &c1, float &c2,
												  float &c3, uint32_t a0, uint32_t a1,
												  uint32_t a2, uint32_t a3, uint32_t b0,
												  uint32_t b1)
{
	float		sums[4] = {c0, c1, c2, c3};

	self->in[0] = (uint64_t) a1 << 32 | a0;
	self->in[1] = (uint64_t) a3 << 32 | a2;
	self->in[2] = (uint64_t) b1 << 32 | b0;
	self->in[3] = (uint64_t) sums;
	warp_operation(0xFFFFFFFFu, "mma", complete_product);
	c0 = sums[0];
	c1 = sums[1];
	c2 = sums[2];
	c3 = sums[3];
}

static inline void
mma_sync_aligned_m16n8k32_row_col_s32_u8_s8_s32(const char *, int32_t &c0, int32_t &c1,
												int32_t &c2, int32_t &c3, uint32_t a0, uint32_t a1,
												uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
	int32_t		sums[4] = {c0, c1, c2, c3};

	self->in[0] = (uint64_t) a1 << 32 | a0;
	self->in[1] = (uint64_t) a3 << 32 | a2;
	self->in[2] = (uint64_t) b1 << 32 | b0;
	self->in[3] = (uint64_t) sums;
	warp_operation(0xFFFFFFFFu, "mma of bytes", complete_byte_product);
	c0 = sums[0];
	c1 = sums[1];
	c2 = sums[2];
	c3 = sums[3];
}

static inline void
ld_global_nc_L1_no_allocate_v4_u32(const char *instruction, uint32_t &x, uint32_t &y, uint32_t &z,
								   uint32_t &w, const char *from)
{
	uint32_t	piece[4];

	aligned(instruction, from, 16);
	memcpy(piece, from, 16);
	x = piece[0];
	y = piece[1];
	z = piece[2];
	w = piece[3];
}

static inline void
ld_global_nc_f32(const char *, float &value, const float *from)
{
	value = *from;
}

static inline void
ld_acquire_gpu_global_u32(const char *, uint32_t &value, size_t from)
{
	look_again();
	value = __atomic_load_n((const uint32_t *) from, __ATOMIC_ACQUIRE);
}

static inline void
st_relaxed_sys_global_u32(const char *, uint32_t *to, uint32_t value)
{
	__atomic_store_n(to, value, __ATOMIC_RELEASE);
}

static inline void
prefetch_global_L2(const char *, const void *)
{
}

}

/* ---- the runtime's templates ----------------------------------------------------------- */

/* The code that runs is what this file was compiled as: __CUDA_ARCH__ may say. */
template <typename T>
static inline cudaError_t
cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, T *)
{
#ifdef __CUDA_ARCH__
	const int	version = __CUDA_ARCH__ / 10;
#else
	const int	version = 90;
#endif

	*attributes = {1024, version, version};
	return cudaSuccess;
}

template <typename T>
static inline cudaError_t
cudaFuncSetAttribute(T *kernel, enum cudaFuncAttribute attribute, int value)
{
	if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
		return emulate::function_shared((const void *) kernel, (size_t) value);
	return cudaSuccess;
}

template <typename T>
static inline cudaError_t
cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, T *, int threads, size_t shared_bytes)
{
	const int	by_threads = 2048 / threads;
	const int	by_shared = (int) ((EMULATE_SHARED_BYTES + 1024) / (shared_bytes + 1024));

	*blocks = by_threads < by_shared ? by_threads : by_shared;
	return cudaSuccess;
}

template <typename T>
static inline cudaError_t
cudaOccupancyMaxActiveClusters(int *clusters, T *, const cudaLaunchConfig_t *config)
{
	*clusters = 0;
	for (unsigned i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == cudaLaunchAttributeClusterDimension)
			*clusters = emulate::multiprocessors() / (int) config->attrs[i].val.clusterDim.x;
	return cudaSuccess;
}

template <typename... P, typename... A>
static inline cudaError_t
cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel) (P...), A &&... arguments)
{
	std::tuple<std::remove_cv_t<P>...> values(std::forward<A> (arguments)...);

	emulate::know_kernel((const void *) kernel, emulate::call_kernel_at<P...>);
	return std::apply([&](auto &... value)
					  {
						  void	   *addresses[] = {(void *) &value..., NULL};

						  return cudaLaunchKernelExC(config, (const void *) kernel, addresses);
					  }, values);
}

#endif							/* __cplusplus */
#endif							/* EMULATE_CUDA_RUNTIME_H */
