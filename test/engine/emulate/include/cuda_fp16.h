/*
 * cuda_fp16.h
 *		Half-precision numbers, as bits and conversions, for the emulated device.
 */
#ifndef EMULATE_CUDA_FP16_H
#define EMULATE_CUDA_FP16_H

#include <stdint.h>

#include "cuda_runtime.h"

namespace emulate
{

/* No branches: a compiler makes vectors of it. */
static inline float
float_of_half(uint16_t half)
{
	const uint32_t bits = (uint32_t) (half & 0x7FFF) << 13;
	const uint32_t exponent = half >> 10 & 31;
	/* subnormal: a multiple of 2^-24, below 2^-14 */
	const float below = bits_of<float>(bits + (113u << 23)) - bits_of<float>(113u << 23);
	const uint32_t value = exponent == 31 ? bits + (224u << 23) :
		exponent == 0 ? bits_of<uint32_t>(below) : bits + (112u << 23);

	return bits_of<float>(value | (uint32_t) (half >> 15) << 31);
}

/* To the nearest, ties to even. */
static inline uint16_t
half_of_float(float value)
{
	uint32_t	bits = bits_of<uint32_t>(value);
	const uint16_t sign = (uint16_t) (bits >> 16 & 0x8000);

	bits &= 0x7FFFFFFF;
	if (bits > 0x7F800000)
		return 0x7FFF;
	if (bits >= 0x477FF000)		/* what rounds above 65504 */
		return sign | 0x7C00;
	if (bits < 0x38800000)
		/* subnormal: the last bit of 0.5 is worth 2^-24, so the sum rounds as a half would */
		return sign | (uint16_t) (bits_of<uint32_t>(bits_of<float>(bits) + 0.5f) - 0x3F000000);
	bits += 0xFFF + (bits >> 13 & 1);
	return sign | (uint16_t) ((bits - ((127u - 15) << 23)) >> 13);
}

}

struct __half
{
	uint16_t	bits;

	__half() = default;
	explicit __half(float value) : bits(emulate::half_of_float(value))
	{
	}
	operator float() const
	{
		return emulate::float_of_half(bits);
	}
};

struct __align__(4) __half2
{
	__half		x;
	__half		y;
};

typedef __half half;
typedef __half2 half2;

static inline float
__half2float(__half value)
{
	return (float) value;
}

static inline __half
__float2half_rn(float value)
{
	return __half(value);
}

static inline __half
__float2half(float value)
{
	return __half(value);
}

static inline __half2
__floats2half2_rn(float x, float y)
{
	return {__half(x), __half(y)};
}

static inline float2
__half22float2(__half2 value)
{
	return make_float2((float) value.x, (float) value.y);
}

#endif							/* EMULATE_CUDA_FP16_H */
