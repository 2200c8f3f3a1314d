/*
 * random.h
 *		Pseudo-random numbers that depend on nothing but the seed and a counter.
 *
 * C and C++, and device code.
 */
#ifndef GG_RANDOM_H
#define GG_RANDOM_H

#include <stdint.h>

#ifdef __host__					/* nvcc has it from the first line on */
#define GG_RANDOM_INLINE __host__ __device__ static inline
#else
#define GG_RANDOM_INLINE static inline
#endif

/* The splitmix64 finalizer: every bit of the result depends on every bit of both arguments. */
GG_RANDOM_INLINE uint64_t
gg_random_at(uint64_t seed, uint64_t counter)
{
	uint64_t	x = seed + (counter + 1) * UINT64_C(0x9E3779B97F4A7C15);

	x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
	return x ^ (x >> 31);
}

/* Uniform in 0 .. below - 1 but for a bias under 2^-32. */
GG_RANDOM_INLINE uint32_t
gg_random_below(uint64_t seed, uint64_t counter, uint32_t below)
{
	return (uint32_t) (((gg_random_at(seed, counter) >> 32) * below) >> 32);
}

#endif							/* GG_RANDOM_H */
