/*
 * cuda_fp16.h
 *		Half-precision numbers, as bits and conversions, for the emulated device.
 */
#ifndef EMULATE_CUDA_FP16_H
#define EMULATE_CUDA_FP16_H

#include <stdint.h>
#include <string.h>

#include "cuda_runtime.h"

namespace emulate
{

static inline float
float_of_half(uint16_t half)
{
	const uint32_t exponent = half >> 10 & 31;
	uint32_t	bits = (uint32_t) (half & 0x7FFF) << 13;
	float		value;

	if (exponent == 31)
		bits += (255u - 31) << 23;
	else if (exponent == 0)
	{
		/* subnormal: a multiple of 2^-24 */
		value = (float) (half & 0x3FF) * 5.9604644775390625e-8f;
		return half >> 15 ? -value : value;
	}
	else
		bits += (127u - 15) << 23;
	bits |= (uint32_t) (half >> 15) << 31;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* To the nearest, ties to even. */
static inline uint16_t
half_of_float(float value)
{
	uint32_t	bits;
	uint16_t	sign;

	memcpy(&bits, &value, sizeof(bits));
	sign = (uint16_t) (bits >> 16 & 0x8000);
	bits &= 0x7FFFFFFF;
	if (bits > 0x7F800000)
		return 0x7FFF;
	if (bits >= 0x477FF000)		/* what rounds above 65504 */
		return sign | 0x7C00;
	if (bits < 0x38800000)
	{
		/* subnormal: the last bit of 0.5 is worth 2^-24, so the sum rounds as a half would */
		float		rounded;

		memcpy(&rounded, &bits, sizeof(rounded));
		rounded += 0.5f;
		memcpy(&bits, &rounded, sizeof(bits));
		return sign | (uint16_t) (bits - 0x3F000000);
	}
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
