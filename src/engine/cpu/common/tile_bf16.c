/*
 * tile_bf16.c
 *		Products of rows rounded to bfloat16, for processors that multiply these: two elements of
 *		each row at once (AVX512_BF16), or 16 x 16 rows (AMX).
 *
 * A bfloat16 is the upper half of a float32, and sums are float32.  Distances of rounded rows are
 * off by about a thousandth.  Who keeps pairs by them measures these term by term in the end.
 */
#include "tile_ops.h"
#include "cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BF16_TARGET \
	__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")))
#define AMX_TARGET \
	__attribute__((target("amx-tile,amx-bf16")))

/* Elements k .. k + 15 of a row less centre, 0 from depth on. */
BF16_TARGET static inline __m512
elements(const float *row, const float *centre, uint32_t k, uint32_t depth)
{
	const uint32_t count = k >= depth ? 0 : depth - k < 16 ? depth - k : 16;
	const __mmask16 some = (__mmask16) ((1u << count) - 1);
	const __m512 x = _mm512_maskz_loadu_ps(some, row + k);

	return centre ? _mm512_sub_ps(x, _mm512_maskz_loadu_ps(some, centre + k)) : x;
}

BF16_TARGET static void
round_row(const float *row, const float *centre, uint32_t depth, uint32_t pairs, uint32_t *out,
		  float *bias)
{
	__m512		squares = _mm512_setzero_ps();

	for (uint32_t p = 0; p < pairs; p += 16)
	{
		const __m512bh x = _mm512_cvtne2ps_pbh(elements(row, centre, 2 * p + 16, depth),
											   elements(row, centre, 2 * p, depth));

		squares = _mm512_dpbf16_ps(squares, x, x);
		_mm512_storeu_si512(out + p, (__m512i) x);
	}
	*bias += _mm512_reduce_add_ps(squares);
}

/* The sums of 8 rows fill 16 registers. */
BF16_TARGET static void
dot_avx512_bf16(const uint32_t *left, const uint32_t *right, uint32_t pairs, bool first,
				float *sums, uint32_t ld)
{
	__m512		low[TILE_HEIGHT],
				high[TILE_HEIGHT];

#pragma GCC unroll 8
	for (uint32_t r = 0; r < TILE_HEIGHT; r++)
	{
		low[r] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + r * ld);
		high[r] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + r * ld + 16);
	}
	for (uint32_t p = 0; p < pairs; p++, right += TILE_COLUMNS)
	{
		const __m512bh a = (__m512bh) _mm512_loadu_si512(right);
		const __m512bh b = (__m512bh) _mm512_loadu_si512(right + 16);

#pragma GCC unroll 8
		for (uint32_t r = 0; r < TILE_HEIGHT; r++)
		{
			const __m512bh x = (__m512bh) _mm512_set1_epi32((int) left[(size_t) r * pairs + p]);

			low[r] = _mm512_dpbf16_ps(low[r], x, a);
			high[r] = _mm512_dpbf16_ps(high[r], x, b);
		}
	}
#pragma GCC unroll 8
	for (uint32_t r = 0; r < TILE_HEIGHT; r++)
	{
		_mm512_storeu_ps(sums + r * ld, low[r]);
		_mm512_storeu_ps(sums + r * ld + 16, high[r]);
	}
}

/* ---- AMX -------------------------------------------------------------------- */

/* All eight tiles have 16 rows of 64 bytes. */
static const struct
{
	uint8_t		palette;
	uint8_t		unused[15];
	uint16_t	row_bytes[16];
	uint8_t		rows[16];
}			tiles = {
	.palette = 1,
	.row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
	.rows = {16, 16, 16, 16, 16, 16, 16, 16}
};

/* Tiles 0 .. 3 are 2 x 2 blocks of sums, 4 and 5 rows of the left, 6 and 7 columns of the right. */
AMX_TARGET static void
dot_amx(const uint32_t *left, const uint32_t *right, uint32_t pairs, bool first, float *sums,
		uint32_t ld)
{
	const size_t row = pairs * sizeof(uint32_t),
				panel = TILE_COLUMNS * sizeof(uint32_t),
				sum = ld * sizeof(float);

	_tile_loadconfig(&tiles);
	if (first)
	{
		_tile_zero(0);
		_tile_zero(1);
		_tile_zero(2);
		_tile_zero(3);
	}
	else
	{
		_tile_loadd(0, sums, sum);
		_tile_loadd(1, sums + 16, sum);
		_tile_loadd(2, sums + 16 * ld, sum);
		_tile_loadd(3, sums + 16 * ld + 16, sum);
	}
	for (uint32_t p = 0; p < pairs; p += 16)
	{
		_tile_loadd(4, left + p, row);
		_tile_loadd(6, right + (size_t) p * TILE_COLUMNS, panel);
		_tile_loadd(7, right + (size_t) p * TILE_COLUMNS + 16, panel);
		_tile_dpbf16ps(0, 4, 6);
		_tile_dpbf16ps(1, 4, 7);
		_tile_loadd(5, left + (size_t) 16 * pairs + p, row);
		_tile_dpbf16ps(2, 5, 6);
		_tile_dpbf16ps(3, 5, 7);
	}
	_tile_stored(0, sums, sum);
	_tile_stored(1, sums + 16, sum);
	_tile_stored(2, sums + 16 * ld, sum);
	_tile_stored(3, sums + 16 * ld + 16, sum);
	_tile_release();
}

/*
 * The system gives AMX's registers, number 18 of a process's state, to who asks for them.  Stacks
 * for signals have to be larger from then on, so it is not asked before a build.
 */
static bool
may_use_amx(void)
{
	static _Atomic int may = -1;
	int			known = atomic_load_explicit(&may, memory_order_relaxed);

	if (known < 0)
	{
		known = syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18) == 0;
		atomic_store_explicit(&may, known, memory_order_relaxed);
	}
	return known;
}

static const bf16_ops ops_avx512_bf16 = {TILE_HEIGHT, round_row, dot_avx512_bf16};
static const bf16_ops ops_amx = {TILE_COLUMNS, round_row, dot_amx};
#endif							/* __x86_64__ */

const bf16_ops *
gg_bf16_ops(void)
{
#if defined(__x86_64__)
	const gg_simd simd = gg_simd_in_use();

	return simd == GG_SIMD_AVX512_BF16 ? &ops_avx512_bf16 :
		simd == GG_SIMD_AMX && may_use_amx() ? &ops_amx : NULL;
#else
	return NULL;
#endif
}
