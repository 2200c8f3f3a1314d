/*
 * tile_ops.c
 *		The inner loops of joins for AVX-512, AVX2 with FMA, NEON and plain C vectors.
 *
 * Which set is used is decided at run time: all but the plain loops are compiled for their set by
 * function attributes, whatever the compiler's flags.
 */
#include "tile_ops.h"
#include "cpu.h"

#include <math.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* The parts that no instruction set is needed for; inlined into the functions of each. */

static inline __attribute__((always_inline)) void
any_transpose(const float *const rows[16], const float *centre, uint32_t begin, uint32_t end,
			  float *panel)
{
	for (uint32_t k = begin; k < end; k++)
	{
		float		c = centre ? centre[k] : 0.0f;

		for (int r = 0; r < 16; r++)
			panel[(size_t) k * TILE_COLUMNS + r] = rows[r][k] - c;
	}
}

static inline __attribute__((always_inline)) tile_hits
any_screen(float *sums, float bias, const float *biases, float factor, float least,
		   float worst, const float *worsts)
{
	tile_hits	hits = {0, 0};

	for (uint32_t c = 0; c < TILE_COLUMNS; c++)
	{
		float		d = bias + biases[c] + factor * sums[c];

		d = d < least ? least : d;	/* NaN stays, and is below nothing */
		sums[c] = d;
		hits.row |= (uint32_t) (d < worst) << c;
		hits.columns |= (uint32_t) (d < worsts[c]) << c;
	}
	return hits;
}

/* Other threads look at the ids of a list without its lock: join_mark_known(). */
static inline __attribute__((always_inline)) void
put_entry(uint32_t *ids, float *distances, uint32_t at, uint32_t id, float distance)
{
	__atomic_store_n(&ids[at], id | GG_ENTRY_NEW, __ATOMIC_RELAXED);
	distances[at] = distance;
}

static inline __attribute__((always_inline)) float
any_enter(uint32_t *ids, float *distances, uint32_t stride, float worst,
		  float distance, uint32_t id, uint64_t *entered)
{
	uint32_t	found = 0,
				at = 0;
	float		max = -INFINITY;

	for (uint32_t i = 0; i < stride; i++)
		found |= (uint32_t) (GG_ENTRY_ID(ids[i]) == id);
	if (found)
		return worst;
	while (distances[at] != worst)
		at++;
	put_entry(ids, distances, at, id, distance);
	for (uint32_t i = 0; i < stride; i++)
		max = distances[i] > max ? distances[i] : max;
	++*entered;
	return max;
}

/* A free place has the greatest id. */
static inline __attribute__((always_inline)) float
any_enter_ordered(uint32_t *ids, float *distances, uint32_t stride, float worst, float distance,
				  uint32_t id, uint64_t *entered)
{
	int32_t		found = 0,
				last = -1,
				at = 0;
	float		max = -INFINITY;

	for (uint32_t i = 0; i < stride; i++)
	{
		int32_t		other = (int32_t) GG_ENTRY_ID(ids[i]);

		found |= other == (int32_t) id;
	}
	if (found)
		return worst;
	for (uint32_t i = 0; i < stride; i++)
	{
		int32_t		tied = distances[i] == worst ? (int32_t) GG_ENTRY_ID(ids[i]) : -1;

		last = tied > last ? tied : last;
	}
	if (distance == worst && (int32_t) id > last)
		return worst;
	for (uint32_t i = 0; i < stride; i++)
	{
		bool		out = distances[i] == worst && (int32_t) GG_ENTRY_ID(ids[i]) == last;
		float		x = out ? distance : distances[i];

		at = out ? (int32_t) i : at;
		max = x > max ? x : max;
	}
	/* several places are free: only one is taken */
	if (last == INT32_MAX)
	{
		for (at = 0; distances[at] != worst || GG_ENTRY_ID(ids[at]) != INT32_MAX;)
			at++;
		for (uint32_t i = (uint32_t) at + 1; i < stride; i++)
			max = distances[i] > max ? distances[i] : max;
	}
	put_entry(ids, distances, at, id, distance);
	++*entered;
	return max;
}

#define ENTER_ORDERED(set) \
	SIMD_TARGET static float \
	enter_ordered_##set(uint32_t *ids, float *distances, uint32_t stride, float worst, \
						float distance, uint32_t id, uint64_t *entered) \
	{ \
		return any_enter_ordered(ids, distances, stride, worst, distance, id, entered); \
	}

#define ANY_OPS(set) \
	SET_TARGET static void \
	transpose_##set(const float *const rows[16], const float *centre, uint32_t depth, \
					float *panel) \
	{ \
		any_transpose(rows, centre, 0, depth, panel); \
	} \
	SET_TARGET static tile_hits \
	screen_##set(float *sums, float bias, const float *biases, float factor, float least, \
				 float worst, const float *worsts) \
	{ \
		return any_screen(sums, bias, biases, factor, least, worst, worsts); \
	} \
	SET_TARGET static float \
	enter_##set(uint32_t *ids, float *distances, uint32_t stride, float worst, \
				float distance, uint32_t id, uint64_t *entered) \
	{ \
		return any_enter(ids, distances, stride, worst, distance, id, entered); \
	}

#define OPS_TABLE(set) \
	static const tile_ops ops_##set = { \
		.name = #set, \
		.dot = tile_dot_##set, \
		.l2 = tile_l2_##set, \
		.l1 = tile_l1_##set, \
		.panel_norms = panel_norms_##set, \
		.pair_l2 = pair_l2_##set, \
		.pair_l1 = pair_l1_##set, \
		.pair_dot = pair_dot_##set, \
		.transpose = transpose_##set, \
		.screen = screen_##set, \
		.enter = enter_##set, \
		.enter_ordered = enter_ordered_##set \
	};

#define SIMD_LANES	4
#define SIMD_TARGET
#define SET_TARGET
#if defined(__aarch64__)
#define SIMD_NAME(x) x##_neon
#include "tile_simd.h"
ANY_OPS(neon)
ENTER_ORDERED(neon)
OPS_TABLE(neon)
#else
#define SIMD_NAME(x) x##_plain
#include "tile_simd.h"
ANY_OPS(plain)
ENTER_ORDERED(plain)
OPS_TABLE(plain)
#endif
#undef SET_TARGET
#undef SIMD_TARGET
#undef SIMD_LANES
#undef SIMD_NAME

#if defined(__x86_64__)

#define SIMD_NAME(x) x##_avx2
#define SIMD_TARGET	__attribute__((target("avx2,fma")))
#define SIMD_LANES	8
#include "tile_simd.h"

SIMD_TARGET static void
transpose_avx2(const float *const rows[16], const float *centre, uint32_t depth, float *panel)
{
	uint32_t	k = 0;

	for (; k + 8 <= depth; k += 8)
	{
		__m256		middle = centre ? _mm256_loadu_ps(centre + k) : _mm256_setzero_ps();

		for (int half = 0; half < 16; half += 8)
		{
			const float *const *r = rows + half;
			float	   *out = panel + (size_t) k * TILE_COLUMNS + half;
			__m256		a0 = _mm256_sub_ps(_mm256_loadu_ps(r[0] + k), middle);
			__m256		a1 = _mm256_sub_ps(_mm256_loadu_ps(r[1] + k), middle);
			__m256		a2 = _mm256_sub_ps(_mm256_loadu_ps(r[2] + k), middle);
			__m256		a3 = _mm256_sub_ps(_mm256_loadu_ps(r[3] + k), middle);
			__m256		a4 = _mm256_sub_ps(_mm256_loadu_ps(r[4] + k), middle);
			__m256		a5 = _mm256_sub_ps(_mm256_loadu_ps(r[5] + k), middle);
			__m256		a6 = _mm256_sub_ps(_mm256_loadu_ps(r[6] + k), middle);
			__m256		a7 = _mm256_sub_ps(_mm256_loadu_ps(r[7] + k), middle);

			/* two rows interleaved, then four, then eight across the register's halves */
			__m256		b0 = _mm256_unpacklo_ps(a0, a1),
						b1 = _mm256_unpackhi_ps(a0, a1);
			__m256		b2 = _mm256_unpacklo_ps(a2, a3),
						b3 = _mm256_unpackhi_ps(a2, a3);
			__m256		b4 = _mm256_unpacklo_ps(a4, a5),
						b5 = _mm256_unpackhi_ps(a4, a5);
			__m256		b6 = _mm256_unpacklo_ps(a6, a7),
						b7 = _mm256_unpackhi_ps(a6, a7);
			__m256		c0 = _mm256_shuffle_ps(b0, b2, 0x44),
						c1 = _mm256_shuffle_ps(b0, b2, 0xEE);
			__m256		c2 = _mm256_shuffle_ps(b1, b3, 0x44),
						c3 = _mm256_shuffle_ps(b1, b3, 0xEE);
			__m256		c4 = _mm256_shuffle_ps(b4, b6, 0x44),
						c5 = _mm256_shuffle_ps(b4, b6, 0xEE);
			__m256		c6 = _mm256_shuffle_ps(b5, b7, 0x44),
						c7 = _mm256_shuffle_ps(b5, b7, 0xEE);

			_mm256_storeu_ps(out + 0 * TILE_COLUMNS, _mm256_permute2f128_ps(c0, c4, 0x20));
			_mm256_storeu_ps(out + 1 * TILE_COLUMNS, _mm256_permute2f128_ps(c1, c5, 0x20));
			_mm256_storeu_ps(out + 2 * TILE_COLUMNS, _mm256_permute2f128_ps(c2, c6, 0x20));
			_mm256_storeu_ps(out + 3 * TILE_COLUMNS, _mm256_permute2f128_ps(c3, c7, 0x20));
			_mm256_storeu_ps(out + 4 * TILE_COLUMNS, _mm256_permute2f128_ps(c0, c4, 0x31));
			_mm256_storeu_ps(out + 5 * TILE_COLUMNS, _mm256_permute2f128_ps(c1, c5, 0x31));
			_mm256_storeu_ps(out + 6 * TILE_COLUMNS, _mm256_permute2f128_ps(c2, c6, 0x31));
			_mm256_storeu_ps(out + 7 * TILE_COLUMNS, _mm256_permute2f128_ps(c3, c7, 0x31));
		}
	}
	any_transpose(rows, centre, k, depth, panel);
}

SIMD_TARGET static tile_hits
screen_avx2(float *sums, float bias, const float *biases, float factor, float least, float worst,
			const float *worsts)
{
	tile_hits	hits = {0, 0};

	for (uint32_t c = 0; c < TILE_COLUMNS; c += 8)
	{
		__m256		d = _mm256_fmadd_ps(_mm256_set1_ps(factor), _mm256_loadu_ps(sums + c),
										_mm256_add_ps(_mm256_set1_ps(bias),
													  _mm256_loadu_ps(biases + c)));

		/* of a NaN and a number, max returns the second operand */
		d = _mm256_max_ps(_mm256_set1_ps(least), d);
		_mm256_storeu_ps(sums + c, d);
		hits.row |= (uint32_t) _mm256_movemask_ps(_mm256_cmp_ps(d, _mm256_set1_ps(worst),
																_CMP_LT_OQ)) << c;
		hits.columns |= (uint32_t) _mm256_movemask_ps(_mm256_cmp_ps(d, _mm256_loadu_ps(worsts + c),
																	_CMP_LT_OQ)) << c;
	}
	return hits;
}

SIMD_TARGET static float
enter_avx2(uint32_t *ids, float *distances, uint32_t stride, float worst,
		   float distance, uint32_t id, uint64_t *entered)
{
	const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF),
				key = _mm256_set1_epi32((int) id);
	__m256i		found = _mm256_setzero_si256();
	__m256		max = _mm256_set1_ps(-INFINITY);
	__m128		half;
	uint32_t	at = 0,
				where;

	for (uint32_t i = 0; i < stride; i += 8)
	{
		__m256i		some = _mm256_loadu_si256((const __m256i *) (ids + i));

		found = _mm256_or_si256(found, _mm256_cmpeq_epi32(key, _mm256_and_si256(mask, some)));
	}
	if (!_mm256_testz_si256(found, found))
		return worst;
	while ((where = (uint32_t) _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(distances + at),
											_mm256_set1_ps(worst), _CMP_EQ_OQ))) == 0)
		at += 8;
	at += (uint32_t) __builtin_ctz(where);
	put_entry(ids, distances, at, id, distance);
	for (uint32_t i = 0; i < stride; i += 8)
		max = _mm256_max_ps(max, _mm256_loadu_ps(distances + i));
	half = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
	half = _mm_max_ps(half, _mm_movehl_ps(half, half));
	half = _mm_max_ss(half, _mm_movehdup_ps(half));
	++*entered;
	return _mm_cvtss_f32(half);
}

ENTER_ORDERED(avx2)
OPS_TABLE(avx2)
#undef SIMD_LANES
#undef SIMD_TARGET
#undef SIMD_NAME

#define SIMD_NAME(x) x##_avx512
#define SIMD_TARGET	__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define SIMD_LANES	16
#include "tile_simd.h"

SIMD_TARGET static void
transpose_avx512(const float *const rows[16], const float *centre, uint32_t depth, float *panel)
{
	uint32_t	k = 0;

	for (; k + 16 <= depth; k += 16)
	{
		__m512		middle = centre ? _mm512_loadu_ps(centre + k) : _mm512_setzero_ps();
		float	   *out = panel + (size_t) k * TILE_COLUMNS;
		__m512		a[16],
					b[16];

#pragma GCC unroll 16
		for (int i = 0; i < 16; i++)
			a[i] = _mm512_sub_ps(_mm512_loadu_ps(rows[i] + k), middle);
		/* two rows interleaved, four, eight, sixteen */
#pragma GCC unroll 8
		for (int i = 0; i < 16; i += 2)
		{
			b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
			b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
		}
#pragma GCC unroll 4
		for (int i = 0; i < 16; i += 4)
		{
			a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44);
			a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xEE);
			a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44);
			a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xEE);
		}
		/* a[4q + e]: in lane l, element 4l + e of rows 4q .. 4q + 3 */
#pragma GCC unroll 4
		for (int e = 0; e < 4; e++)
		{
			__m512		low01 = _mm512_shuffle_f32x4(a[e], a[4 + e], 0x44);
			__m512		high01 = _mm512_shuffle_f32x4(a[e], a[4 + e], 0xEE);
			__m512		low23 = _mm512_shuffle_f32x4(a[8 + e], a[12 + e], 0x44);
			__m512		high23 = _mm512_shuffle_f32x4(a[8 + e], a[12 + e], 0xEE);

			_mm512_storeu_ps(out + (0 + e) * TILE_COLUMNS,
							 _mm512_shuffle_f32x4(low01, low23, 0x88));
			_mm512_storeu_ps(out + (4 + e) * TILE_COLUMNS,
							 _mm512_shuffle_f32x4(low01, low23, 0xDD));
			_mm512_storeu_ps(out + (8 + e) * TILE_COLUMNS,
							 _mm512_shuffle_f32x4(high01, high23, 0x88));
			_mm512_storeu_ps(out + (12 + e) * TILE_COLUMNS,
							 _mm512_shuffle_f32x4(high01, high23, 0xDD));
		}
	}
	any_transpose(rows, centre, k, depth, panel);
}

SIMD_TARGET static tile_hits
screen_avx512(float *sums, float bias, const float *biases, float factor, float least, float worst,
			  const float *worsts)
{
	const __m512 f = _mm512_set1_ps(factor),
				b = _mm512_set1_ps(bias),
				w = _mm512_set1_ps(worst),
				l = _mm512_set1_ps(least);
	__m512		d0 = _mm512_fmadd_ps(f, _mm512_loadu_ps(sums),
									 _mm512_add_ps(b, _mm512_loadu_ps(biases)));
	__m512		d1 = _mm512_fmadd_ps(f, _mm512_loadu_ps(sums + 16),
									 _mm512_add_ps(b, _mm512_loadu_ps(biases + 16)));

	/* of a NaN and a number, max returns the second operand */
	d0 = _mm512_max_ps(l, d0);
	d1 = _mm512_max_ps(l, d1);
	_mm512_storeu_ps(sums, d0);
	_mm512_storeu_ps(sums + 16, d1);
	return (tile_hits) {
		.row = (uint32_t) _mm512_cmp_ps_mask(d0, w, _CMP_LT_OQ) |
			(uint32_t) _mm512_cmp_ps_mask(d1, w, _CMP_LT_OQ) << 16,
		.columns = (uint32_t) _mm512_cmp_ps_mask(d0, _mm512_loadu_ps(worsts), _CMP_LT_OQ) |
			(uint32_t) _mm512_cmp_ps_mask(d1, _mm512_loadu_ps(worsts + 16), _CMP_LT_OQ) << 16
	};
}

ENTER_ORDERED(any_avx512)

/*
 * The usual stride.  An ordered list that is full has one entry of the worst distance nearly
 * always; where it has several, the order of ids decides.
 */
SIMD_TARGET static inline __attribute__((always_inline)) float
enter_64_avx512(uint32_t *ids, float *distances, float worst, float distance, uint32_t id,
				uint64_t *entered, bool ordered)
{
	const __m512i mask = _mm512_set1_epi32(0x7FFFFFFF),
				key = _mm512_set1_epi32((int) id);
	const __m512 w = _mm512_set1_ps(worst),
				d = _mm512_set1_ps(distance);
	__m512		x0 = _mm512_loadu_ps(distances),
				x1 = _mm512_loadu_ps(distances + 16),
				x2 = _mm512_loadu_ps(distances + 32),
				x3 = _mm512_loadu_ps(distances + 48);
	uint64_t	where;
	uint32_t	at;

	if (_mm512_cmpeq_epi32_mask(key, _mm512_and_si512(mask, _mm512_loadu_si512(ids))) |
		_mm512_cmpeq_epi32_mask(key, _mm512_and_si512(mask, _mm512_loadu_si512(ids + 16))) |
		_mm512_cmpeq_epi32_mask(key, _mm512_and_si512(mask, _mm512_loadu_si512(ids + 32))) |
		_mm512_cmpeq_epi32_mask(key, _mm512_and_si512(mask, _mm512_loadu_si512(ids + 48))))
		return worst;
	where = (uint64_t) _mm512_cmp_ps_mask(x0, w, _CMP_EQ_OQ) |
		(uint64_t) _mm512_cmp_ps_mask(x1, w, _CMP_EQ_OQ) << 16 |
		(uint64_t) _mm512_cmp_ps_mask(x2, w, _CMP_EQ_OQ) << 32 |
		(uint64_t) _mm512_cmp_ps_mask(x3, w, _CMP_EQ_OQ) << 48;
	at = (uint32_t) __builtin_ctzll(where);
	if (ordered && (where & (where - 1)) != 0)
		return enter_ordered_any_avx512(ids, distances, 64, worst, distance, id, entered);
	if (ordered && distance == worst && id > GG_ENTRY_ID(ids[at]))
		return worst;
	where &= -where;
	put_entry(ids, distances, at, id, distance);
	x0 = _mm512_mask_mov_ps(x0, (__mmask16) where, d);
	x1 = _mm512_mask_mov_ps(x1, (__mmask16) (where >> 16), d);
	x2 = _mm512_mask_mov_ps(x2, (__mmask16) (where >> 32), d);
	x3 = _mm512_mask_mov_ps(x3, (__mmask16) (where >> 48), d);
	++*entered;
	return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(x0, x1), _mm512_max_ps(x2, x3)));
}

SIMD_TARGET static float
enter_avx512(uint32_t *ids, float *distances, uint32_t stride, float worst,
			 float distance, uint32_t id, uint64_t *entered)
{
	if (stride == 64)
		return enter_64_avx512(ids, distances, worst, distance, id, entered, false);

	const __m512i mask = _mm512_set1_epi32(0x7FFFFFFF),
				key = _mm512_set1_epi32((int) id);
	const __m512 w = _mm512_set1_ps(worst);
	__mmask16	found = 0;
	__m512		max = _mm512_set1_ps(-INFINITY);
	uint32_t	at = 0,
				where;

	for (uint32_t i = 0; i < stride; i += 16)
		found |= _mm512_cmpeq_epi32_mask(key, _mm512_and_si512(mask, _mm512_loadu_si512(ids + i)));
	if (found)
		return worst;
	while ((where = _mm512_cmp_ps_mask(_mm512_loadu_ps(distances + at), w, _CMP_EQ_OQ)) == 0)
		at += 16;
	/* a vector read of what was just written would wait for the write: blend it in instead */
	where &= -where;
	for (uint32_t i = 0; i < stride; i += 16)
	{
		__m512		x = _mm512_loadu_ps(distances + i);

		if (i == at)
			x = _mm512_mask_mov_ps(x, (__mmask16) where, _mm512_set1_ps(distance));
		max = _mm512_max_ps(max, x);
	}
	at += (uint32_t) __builtin_ctz(where);
	put_entry(ids, distances, at, id, distance);
	++*entered;
	return _mm512_reduce_max_ps(max);
}

SIMD_TARGET static float
enter_ordered_avx512(uint32_t *ids, float *distances, uint32_t stride, float worst,
					 float distance, uint32_t id, uint64_t *entered)
{
	return stride == 64 ?
		enter_64_avx512(ids, distances, worst, distance, id, entered, true) :
		enter_ordered_any_avx512(ids, distances, stride, worst, distance, id, entered);
}

OPS_TABLE(avx512)
#undef SIMD_LANES
#undef SIMD_TARGET
#undef SIMD_NAME

#endif							/* __x86_64__ */

const tile_ops *
gg_tile_ops(void)
{
#if defined(__x86_64__)
	const gg_simd simd = gg_simd_in_use();

	return simd >= GG_SIMD_AVX512 ? &ops_avx512 : simd == GG_SIMD_AVX2 ? &ops_avx2 : &ops_plain;
#elif defined(__aarch64__)
	return &ops_neon;
#else
	return &ops_plain;
#endif
}
