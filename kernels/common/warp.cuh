/*
 * warp.cuh
 *		The words that kernels of builds and of searches have in common: lanes, keys and their
 *		sorting, asynchronous copies to shared memory, products on the tensor cores.
 *
 * A key is 64 bits: a distance as an unsigned integer of the same order, a node's id of 31 bits,
 * and one flag.  Comparing keys without flags is comparing (distance, id).  How a distance becomes
 * an integer is left to those who make keys.  Builds have no negative distances and take the bits
 * as they are (gg_key() of list.cuh), which spares an instruction per pair.  Searches have negative
 * ones, under inner product, and flip the bits (make_key() of search/keys.cuh, as src/engine/keys.h
 * does).
 */
#ifndef GG_WARP_CUH
#define GG_WARP_CUH

#include <stdint.h>

#define GG_FULL_WARP 0xFFFFFFFFu	/* all lanes take part */

/* The lanes below this one. */
__device__ static inline uint32_t
gg_lanes_below(uint32_t lane)
{
	return (1u << lane) - 1;
}

/* Sum of all lanes' values, in every lane. */
__device__ static inline float
gg_warp_sum(float value)
{
	for (int stride = 16; stride > 0; stride /= 2)
		value += __shfl_xor_sync(GG_FULL_WARP, value, stride);
	return value;
}

/* ---- keys ---------------------------------------------------------------- */

#define GG_KEY_NONE (~(uint64_t) 0) /* after every key */

__device__ static inline uint32_t
gg_key_id(uint64_t key)
{
	return (uint32_t) key >> 1;
}

/*
 * A warp holds 32 * R keys "striped": key i is register i / 32 of lane i % 32.  Strides of 32 and
 * more are then exchanges between a lane's own registers, smaller ones are shuffles.
 */

/*
 * One compare-exchange step of a bitonic network; ascending says which way this element's run goes.
 */
template <int R, typename KEY>
__device__ static inline void
gg_bitonic_step(KEY (&keys)[R], int stride, int run)
{
	const int	lane = threadIdx.x & 31;

	if (stride >= 32)
	{
#pragma unroll
		for (int r = 0; r < R; r++)
		{
			const int	other = r ^ (stride >> 5);

			if (other > r && other < R)
			{
				const bool	ascending = ((r * 32) & run) == 0;
				const KEY	a = keys[r];
				const KEY	b = keys[other];
				const bool	swap = (a > b) == ascending;

				keys[r] = swap ? b : a;
				keys[other] = swap ? a : b;
			}
		}
	}
	else
	{
#pragma unroll
		for (int r = 0; r < R; r++)
		{
			const KEY	mine = keys[r];
			const KEY	theirs = __shfl_xor_sync(GG_FULL_WARP, mine, stride);
			const bool	ascending = ((r * 32 + lane) & run) == 0;
			const bool	low = (lane & stride) == 0;

			keys[r] = (low == ascending) == (mine < theirs) ? mine : theirs;
		}
	}
}

/* Sort 32 * R keys, or words that sort as they do, R a power of two. */
template <int R, typename KEY>
__device__ static inline void
gg_sort(KEY (&keys)[R])
{
#pragma unroll
	for (int run = 2; run <= 32 * R; run *= 2)
#pragma unroll
		for (int stride = run / 2; stride > 0; stride /= 2)
			gg_bitonic_step<R>(keys, stride, run);
}

/* The same when the keys already rise and then fall. */
template <int R>
__device__ static inline void
gg_sort_bitonic(uint64_t (&keys)[R])
{
#pragma unroll
	for (int stride = 16 * R; stride > 0; stride /= 2)
		gg_bitonic_step<R>(keys, stride, 64 * R);
}

/* ---- shared memory ------------------------------------------------------- */

#define GG_TILE_PITCH 128		/* bytes of a tile's row in shared memory */

/*
 * Byte offset of quad number `quad` of a tile's row: swizzled, so that ldmatrix hits every bank.
 */
__device__ static inline uint32_t
gg_tile_offset(uint32_t row, uint32_t quad)
{
	return row * GG_TILE_PITCH + ((quad ^ (row & 7)) << 4);
}

__device__ static inline void
gg_copy_async(void *shared, const void *global)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
				 :: "r"((uint32_t) __cvta_generic_to_shared(shared)), "l"(global) : "memory");
}

/* The same, or 16 zeros: a source size of 0 writes zeros. */
__device__ static inline void
gg_copy_async_or_zero(void *shared, const void *global, bool valid)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
				 :: "r"((uint32_t) __cvta_generic_to_shared(shared)), "l"(global),
				 "r"(valid ? 16 : 0) : "memory");
}

__device__ static inline void
gg_copy_async_4(void *shared, const void *global)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
				 :: "r"((uint32_t) __cvta_generic_to_shared(shared)), "l"(global) : "memory");
}

__device__ static inline void
gg_copy_commit(void)
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int PENDING>
__device__ static inline void
gg_copy_wait(void)
{
	asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
}

/* ---- tensor cores -------------------------------------------------------- */

__device__ static inline void
gg_load_matrix(uint32_t (&out)[4], const char *shared)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
				 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
				 : "r"((uint32_t) __cvta_generic_to_shared(shared)));
}

__device__ static inline void
gg_mma(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
	   uint32_t b1)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
				 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
				 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
				 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* As gg_mma(), in integers: a is of unsigned bytes, and b of signed ones. */
__device__ static inline void
gg_mma_bytes(int32_t (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
			 uint32_t b1)
{
	asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
				 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
				 : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
				 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

#endif							/* GG_WARP_CUH */
