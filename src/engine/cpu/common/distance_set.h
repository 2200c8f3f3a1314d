/*
 * distance_set.h
 *		All functions of one instruction set.
 *
 * A template: distance.c includes it once for each set, with SIMD_SET_PREFIX, TARGET and what
 * distance_kernels.h needs defined, and
 *
 *	SIMD(store_f32)(p, a)		the W floats of a at p, any alignment
 *	SIMD(store_f16)(p, a)		the same, rounded to halves
 */
#define SET_PASTE(a, b) a##b
#define SET_PASTE2(a, b) SET_PASTE(a, b)
#define SIMD(name) SET_PASTE2(SIMD_SET_PREFIX, name)

TARGET static void
SIMD(halves_to_floats)(const uint16_t *src, float *dst, size_t count)
{
	size_t		i = 0;
	float		rest[SIMD(W)];

	for (; count - i >= SIMD(W); i += SIMD(W))
		SIMD(store_f32) (dst + i, SIMD(load_f16) ((const char *) (src + i)));
	if (i == count)
		return;
	SIMD(store_f32) (rest, SIMD(tail_f16) ((const char *) (src + i), (uint32_t) (count - i)));
	memcpy(dst + i, rest, (count - i) * sizeof(float));
}

TARGET static void
SIMD(floats_to_halves)(const float *src, uint16_t *dst, size_t count)
{
	size_t		i = 0;

	for (; count - i >= SIMD(W); i += SIMD(W))
		SIMD(store_f16) (dst + i, SIMD(load_f32) ((const char *) (src + i)));
	for (; i < count; i++)
		dst[i] = gg_float_to_half(src[i]);
}

#define ELEMENT f32
#define ELEMENT_BYTES 4
#include "distance_kernels.h"
#define ELEMENT f16
#define ELEMENT_BYTES 2
#include "distance_kernels.h"

#undef SET_PASTE
#undef SET_PASTE2
#undef SIMD
#undef SIMD_SET_PREFIX
#undef TARGET
