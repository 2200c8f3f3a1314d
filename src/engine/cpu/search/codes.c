/*
 * codes.c
 *		Codes of rows, made and measured.  codes.h defines them.
 *
 * The code of a row, or of a query, is one piece of plain C that is compiled once for any CPU and
 * once for AVX2: the compiler may turn its loops into vectors, since no order matters to them.
 * Distances by AVX2 have loops of their own.
 *
 * Tried: distances by AVX-512 VNNI, 768 dimensions in the L1 cache: 19, 16, 14 ns for 8, 4, 2 bits
 * instead of 20, 19, 19, which a walk does not notice.  1 bit, as many rows measured as with 2:
 * recall@10 0.9545 at itopk 64 on 100,000 x 768, where 2 bits have 0.9930.
 *
 * This file is compiled with -ffp-contract=off: a multiplication and an addition that become one
 * operation have another result.
 */
#include <stdlib.h>

#include "engine/rules/codes.h"
#include "engine/cpu/common/cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* ---- a row --------------------------------------------------------------- */

static inline uint32_t
bits_of(float value)
{
	uint32_t	bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* The size of the largest element; a NaN is larger than any number. */
ALWAYS_INLINE float
largest_size(const float *row, uint32_t dim)
{
	int32_t		largest = 0;
	float		size;

	for (uint32_t i = 0; i < dim; i++)
	{
		int32_t		bits = (int32_t) (bits_of(row[i]) & 0x7FFFFFFFu);

		largest = bits > largest ? bits : largest;
	}
	memcpy(&size, &largest, sizeof(size));
	return size;
}

/* 2^-exponent of a vector; 0: no element is of normal size, or one is not finite. */
static float
scale_of(const float *vector, uint32_t dim, int *exponent)
{
	*exponent = gg_code_exponent(bits_of(largest_size(vector, dim)));
	return *exponent == GG_CODE_ZERO || *exponent == GG_CODE_INFINITE ? 0 :
		gg_code_power(-*exponent);
}

void
gg_code_unit_row(float *row, uint32_t dim)
{
	int			exponent;
	const float scale = scale_of(row, dim, &exponent);
	int64_t		square = 0;
	float		factor;

	if (scale == 0)
		return;
	for (uint32_t i = 0; i < dim; i++)
	{
		const int64_t whole = gg_code_whole(row[i], scale);

		square += whole * whole;
	}
	factor = gg_code_unit_scale(exponent, square);
	for (uint32_t i = 0; i < dim; i++)
		row[i] = GG_CODE_MUL(row[i], factor);
}

static void
centre(const gg_coder *coder, float *vector)
{
	for (uint32_t i = 0; i < coder->dim; i++)
		vector[i] = gg_code_centre(vector[i], coder->mean[i]);
}

/* What estimates of inner products add for a query. */
static float
mean_base(const gg_coder *coder, const float *query)
{
	int			exponent;
	const float scale = scale_of(query, coder->dim, &exponent);
	const float mean_scale = coder->mean_exponent == GG_CODE_ZERO ? 0 :
		gg_code_power(-coder->mean_exponent);
	int64_t		dot = 0;

	for (uint32_t i = 0; i < coder->dim && scale > 0; i++)
		dot += gg_code_whole(query[i], scale) * gg_code_whole(coder->mean[i], mean_scale);
	return gg_code_mean_base(dot, exponent, coder->mean_exponent);
}

/* Steps h = 1, 2 and 4 of the transform, for eight elements. */
ALWAYS_INLINE void
butterflies8(float *x)
{
	float		a[8];
	float		b[8];

	for (uint32_t i = 0; i < 8; i += 2)
	{
		a[i] = GG_CODE_ADD(x[i], x[i + 1]);
		a[i + 1] = GG_CODE_ADD(x[i], -x[i + 1]);
	}
	for (uint32_t i = 0; i < 8; i++)
		b[i] = i & 2 ? GG_CODE_ADD(a[i - 2], -a[i]) : GG_CODE_ADD(a[i], a[i + 2]);
	for (uint32_t i = 0; i < 8; i++)
		x[i] = i & 4 ? GG_CODE_ADD(b[i - 4], -b[i]) : GG_CODE_ADD(b[i], b[i + 4]);
}

/*
 * Steps h and 2 h of the transform of n elements, h a multiple of 8.  Compilers do not make vectors
 * of such short loops over pointers.
 */
typedef float float8 __attribute__((vector_size(32), aligned(4), may_alias));

ALWAYS_INLINE void
two_steps(float *x, uint32_t n, uint32_t h)
{
	for (uint32_t i = 0; i < n; i += 4 * h)
		for (uint32_t j = i; j < i + h; j += 8)
		{
			float8	   *at[4];
			float8		sums[2];
			float8		differences[2];

			for (uint32_t k = 0; k < 4; k++)
				at[k] = (float8 *) (x + j + k * h);
			for (uint32_t k = 0; k < 2; k++)
			{
				sums[k] = *at[2 * k] + *at[2 * k + 1];
				differences[k] = *at[2 * k] - *at[2 * k + 1];
			}
			*at[0] = sums[0] + sums[1];
			*at[1] = differences[0] + differences[1];
			*at[2] = sums[0] - sums[1];
			*at[3] = differences[0] - differences[1];
		}
}

/* One step of the transform of n elements. */
ALWAYS_INLINE void
butterflies(float *x, uint32_t n, uint32_t h)
{
	for (uint32_t i = 0; i < n; i += 2 * h)
	{
		float	   *low = x + i;
		float	   *high = low + h;

		for (uint32_t j = 0; j < h; j++)
		{
			float		a = low[j];
			float		b = high[j];

			low[j] = GG_CODE_ADD(a, b);
			high[j] = GG_CODE_ADD(a, -b);
		}
	}
}

ALWAYS_INLINE void
transform(float *x, uint32_t n)
{
	uint32_t	h = 1;

	if (n >= 8)
	{
		for (uint32_t i = 0; i < n; i += 8)
			butterflies8(x + i);
		for (h = 8; 4 * h <= n; h *= 4)
			two_steps(x, n, h);
	}
	for (; h < n; h *= 2)
		butterflies(x, n, h);
}

ALWAYS_INLINE void
rotate(const gg_coder *coder, float *row)
{
	uint32_t	dim = coder->dim;

	for (uint32_t r = 0; r < coder->rounds; r++)
	{
		const float *weights = coder->weights + (size_t) r * dim;
		uint32_t	pairs = coder->rounds > 2 && r == 1 ? dim / 2 : 0;
		float	   *second = row + dim - pairs;

		for (uint32_t i = 0; i < dim; i++)
			row[i] = GG_CODE_MUL(row[i], weights[i]);
		transform(row + (r % 2 == 0 ? 0 : dim - coder->block), coder->block);
		for (uint32_t i = 0; i < pairs; i++)
		{
			float		a = row[i];
			float		b = second[i];

			row[i] = GG_CODE_MUL(GG_CODE_ADD(a, b), GG_CODE_SQRT_HALF);
			second[i] = GG_CODE_MUL(GG_CODE_ADD(a, -b), GG_CODE_SQRT_HALF);
		}
	}
}

/* Scale and rotate a row, and make integers y of it, if it has an exponent.  Returns that. */
ALWAYS_INLINE int
rotate_scaled(const gg_coder *coder, float *row, int32_t *y)
{
	const uint32_t dim = coder->dim;	/* y, for all a compiler knows, is where coder is */
	int			exponent = gg_code_exponent(bits_of(largest_size(row, dim)));
	float		scale;

	if (exponent == GG_CODE_ZERO || exponent == GG_CODE_INFINITE)
		return exponent;
	scale = gg_code_power(-exponent);
	for (uint32_t i = 0; i < dim; i++)
		row[i] = GG_CODE_MUL(row[i], scale);
	rotate(coder, row);
	for (uint32_t i = 0; i < dim; i++)
		y[i] = (int32_t) GG_CODE_MUL(row[i], (float) (1 << GG_CODE_FRACTION));
	return exponent;
}

/* Elements that a loop over a row takes at a time; a multiple of 8. */
#define TRY_BLOCK	256

/* Put the levels into a record whose bytes are zero. */
ALWAYS_INLINE void
pack(const gg_coder *coder, const float *row, float inverse, float offset, uint8_t *record)
{
	const uint32_t bits = coder->bits;
	const uint32_t dim = coder->dim;
	const float top = (float) ((1 << bits) - 1);

	for (uint32_t begin = 0; begin < dim; begin += TRY_BLOCK)
	{
		uint32_t	count = dim - begin < TRY_BLOCK ? dim - begin : TRY_BLOCK;
		uint8_t		levels[TRY_BLOCK + 8];

		for (uint32_t i = 0; i < count; i++)
			levels[i] = (uint8_t) gg_code_level(row[begin + i], inverse, offset, top);
		memset(levels + count, 0, 8);
		/* eight consecutive elements are in the same bits of eight consecutive bytes */
		for (uint32_t i = 0; i < count; i += 8)
		{
			uint8_t    *bytes = record + gg_code_byte(bits, begin + i);
			uint64_t	eight;
			uint64_t	word;

			memcpy(&eight, levels + i, sizeof(eight));
			memcpy(&word, bytes, sizeof(word));
			word |= eight << gg_code_shift(bits, begin + i);
			memcpy(bytes, &word, sizeof(word));
		}
	}
}

/*
 * Add up to TRY_BLOCK elements to the sums of each step that is tried.  y has 32 bits, and
 * processors multiply and add 16 best: so it is cut in two.  A block's sums fit 32 bits, as
 * 255 * 2^15 * TRY_BLOCK does.
 */
ALWAYS_INLINE void
try_block(const float *row, const int32_t *y, uint32_t count, const float *inverse, float middle,
		  int64_t *dot, int64_t *length)
{
	float		top = 2 * middle - 1;
	int16_t		high[TRY_BLOCK];
	int16_t		low[TRY_BLOCK];
	int16_t		w[TRY_BLOCK];

	for (uint32_t i = 0; i < count; i++)
	{
		low[i] = (int16_t) (y[i] & 0xFFFF);
		high[i] = (int16_t) ((y[i] - low[i]) >> 16);
	}
	for (uint32_t attempt = 0; attempt < GG_CODE_TRIES; attempt++)
	{
		int32_t		highs = 0;
		int32_t		lows = 0;
		int32_t		squares = 0;

		for (uint32_t i = 0; i < count; i++)
			w[i] = (int16_t) (2 * gg_code_level(row[i], inverse[attempt], middle, top) -
							  (int32_t) top);
		for (uint32_t i = 0; i < count; i++)
		{
			highs += w[i] * high[i];
			lows += w[i] * low[i];
			squares += w[i] * w[i];
		}
		dot[attempt] += highs * INT64_C(65536) + lows;
		length[attempt] += squares;
	}
}

ALWAYS_INLINE void
code_rotated(const gg_coder *coder, float *row, int32_t *y, uint8_t *record)
{
	uint32_t	dim = coder->dim;
	uint32_t	bits = coder->bits;
	float		middle = (float) (1 << (bits - 1));
	int			exponent = rotate_scaled(coder, row, y);
	int64_t		square = 0;
	int64_t		dot[GG_CODE_TRIES] = {0};
	int64_t		length[GG_CODE_TRIES] = {0};
	float		inverse[GG_CODE_TRIES];
	double		best = -1;
	uint32_t	chosen = 0;
	float		largest;
	gg_code_head head;

	if (exponent == GG_CODE_ZERO || exponent == GG_CODE_INFINITE)
	{
		memset(row, 0, dim * sizeof(float));
		pack(coder, row, 0, middle, record);
		head = gg_code_plain_head(coder->metric, coder->mean != NULL, exponent == GG_CODE_ZERO);
		memcpy(record + coder->record_bytes - GG_CODE_HEAD, &head, sizeof(head));
		return;
	}
	largest = largest_size(row, dim);
	for (uint32_t i = 0; i < dim; i++)
		square += (int64_t) y[i] * y[i];
	for (uint32_t attempt = 0; attempt < GG_CODE_TRIES; attempt++)
		inverse[attempt] = gg_code_inverse(bits, attempt, square, dim, largest);
	for (uint32_t i = 0; i < dim; i += TRY_BLOCK)
		try_block(row + i, y + i, dim - i < TRY_BLOCK ? dim - i : TRY_BLOCK, inverse, middle, dot,
				  length);
	for (uint32_t attempt = 0; attempt < GG_CODE_TRIES; attempt++)
	{
		double		likeness = gg_code_likeness(dot[attempt], length[attempt]);

		if (likeness > best)
		{
			best = likeness;
			chosen = attempt;
		}
	}
	pack(coder, row, inverse[chosen], middle, record);
	head = gg_code_make_head(coder->metric, coder->mean != NULL, exponent, square, dot[chosen]);
	memcpy(record + coder->record_bytes - GG_CODE_HEAD, &head, sizeof(head));
}

/* A query's elements in the order of a record's bytes, and what estimates need beside them. */
ALWAYS_INLINE void
set_rotated(const gg_coder *coder, float *row, int32_t *y, gg_code_query *query)
{
	uint32_t	dim = coder->dim;
	uint32_t	bits = coder->bits;
	int			exponent = rotate_scaled(coder, row, y);
	int64_t		sum = 0;
	int64_t		square = 0;
	int32_t		largest = 0;
	double		scale;

	if (exponent == GG_CODE_ZERO || exponent == GG_CODE_INFINITE)
		memset(y, 0, dim * sizeof(int32_t));
	for (uint32_t i = 0; i < dim; i++)
	{
		int32_t		size = y[i] < 0 ? -y[i] : y[i];

		sum += size;
		square += (int64_t) size * size;
		largest = size > largest ? size : largest;
	}
	scale = gg_code_query_scale(sum, largest);
	query->unit = gg_code_query_unit(exponent, scale);
	query->base = gg_code_query_base(coder->metric, coder->mean != NULL, exponent, square);
	query->sum = 0;
	for (uint32_t i = 0; i < dim; i += 8)
	{
		size_t		at = (size_t) (gg_code_shift(bits, i) / bits) * coder->stride +
			gg_code_byte(bits, i);
		uint32_t	count = dim - i < 8 ? dim - i : 8;

		for (uint32_t j = 0; j < count; j++)
		{
			int16_t		element = gg_code_query_element(y[i + j], scale);
			int8_t		low = (int8_t) (element & 0xFF);

			query->sum += element;
			query->elements[at + j] = element;
			query->low[at + j] = low;
			query->high[at + j] = (int8_t) ((element - low) >> 8);
		}
	}
}

ALWAYS_INLINE void
code_in_place(const gg_coder *coder, float *row, int32_t *y, uint8_t *record)
{
	int32_t		least = INT32_MAX;
	int32_t		most = INT32_MIN;
	gg_code_head head = {INFINITY, 0.0f};
	float		inverse = 0;

	(void) y;
	for (uint32_t i = 0; i < coder->dim; i++)
	{
		int32_t		order = gg_code_order(bits_of(row[i]));

		least = order < least ? order : least;
		most = order > most ? order : most;
	}
	if (gg_code_exponent(bits_of(largest_size(row, coder->dim))) != GG_CODE_INFINITE)
	{
		head = gg_code_span(coder->bits, least, most, &inverse);
		for (uint32_t i = 0; i < coder->dim; i++)
			row[i] = GG_CODE_ADD(row[i], -head.base);
	}
	else
		memset(row, 0, coder->dim * sizeof(float));
	pack(coder, row, inverse, 0.5f, record);
	memcpy(record + coder->record_bytes - GG_CODE_HEAD, &head, sizeof(head));
}

/* gg_code_weight() of every element.  Each scan makes them, so what many share is made once. */
ALWAYS_INLINE void
set_weights(const gg_coder *coder, uint64_t seed)
{
	const float inside = gg_code_block_size(coder->block);

	for (uint32_t r = 0; r < coder->rounds; r++)
	{
		const uint32_t begin = r % 2 == 0 ? 0 : coder->dim - coder->block;

		for (uint32_t i = 0; i < coder->dim; i += 32)
		{
			const uint32_t signs = (uint32_t) (gg_code_signs(seed, r, i / 64) >> (i % 64));
			const uint32_t count = coder->dim - i < 32 ? coder->dim - i : 32;
			float	   *weights = coder->weights + (size_t) r * coder->dim + i;

			for (uint32_t j = 0; j < count; j++)
			{
				const float size = i + j - begin < coder->block ? inside : 1.0f;

				weights[j] = signs >> j & 1 ? -size : size;
			}
		}
	}
}

/* What makes codes and queries, compiled for one instruction set. */
#define CODE_FUNCTIONS(simd, TARGET) \
	TARGET static void simd##_weights(const gg_coder *coder, uint64_t seed) \
	{ set_weights(coder, seed); } \
	TARGET static void simd##_rotated(const gg_coder *coder, float *row, int32_t *y, \
									  uint8_t *record) \
	{ code_rotated(coder, row, y, record); } \
	TARGET static void simd##_in_place(const gg_coder *coder, float *row, int32_t *y, \
									   uint8_t *record) \
	{ code_in_place(coder, row, y, record); } \
	TARGET static void simd##_query(const gg_coder *coder, float *row, int32_t *y, \
									gg_code_query *query) \
	{ set_rotated(coder, row, y, query); }

CODE_FUNCTIONS(plain,)

/* ---- estimates ----------------------------------------------------------- */

ALWAYS_INLINE float
finish(const gg_coder *coder, const uint8_t *record, const gg_code_query *query, int32_t dot)
{
	gg_code_head head;

	memcpy(&head, record + coder->record_bytes - GG_CODE_HEAD, sizeof(head));
	return gg_code_estimate(head, coder->bits, dot, query->sum, query->unit, query->base);
}

static float
plain_distance(const gg_coder *coder, const uint8_t *record, const gg_code_query *query)
{
	uint32_t	mask = (1u << coder->bits) - 1;
	int32_t		dot = 0;

	for (uint32_t shift = 0; shift < 8; shift += coder->bits)
	{
		const int16_t *plane = query->elements + (size_t) (shift / coder->bits) * coder->stride;

		for (uint32_t b = 0; b < coder->chunk_bytes; b++)
			dot += (int32_t) (record[b] >> shift & mask) * plane[b];
	}
	return finish(coder, record, query, dot);
}

/* Add up eight sums, in one order for all instruction sets. */
static inline float
add_eight(const float *sums)
{
	return ((sums[0] + sums[4]) + (sums[1] + sums[5])) +
		((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

static float
plain_l1(const gg_coder *coder, const uint8_t *record, const gg_code_query *query)
{
	uint32_t	bits = coder->bits;
	uint32_t	mask = (1u << bits) - 1;
	float		sums[8] = {0};
	gg_code_head head;

	memcpy(&head, record + coder->record_bytes - GG_CODE_HEAD, sizeof(head));
	for (uint32_t i = 0; i < coder->dim; i += 8)
	{
		const uint8_t *bytes = record + gg_code_byte(bits, i);
		uint32_t	shift = gg_code_shift(bits, i);
		uint32_t	count = coder->dim - i < 8 ? coder->dim - i : 8;

		for (uint32_t j = 0; j < count; j++)
		{
			float		level = (float) (int32_t) (bytes[j] >> shift & mask);
			float		value = GG_CODE_ADD(head.base, GG_CODE_MUL(head.factor, level));

			sums[j] += fabsf(value - query->values[i + j]);
		}
	}
	return add_eight(sums);
}

#if defined(__x86_64__)

#define AVX2 __attribute__((target("avx2")))

CODE_FUNCTIONS(avx2, AVX2)

AVX2 static inline int32_t
avx2_sum(__m256i v)
{
	__m128i		s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

	s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
	s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
	return _mm_cvtsi128_si32(s);
}

/* Codes are widened to 16 bits: two products of bytes, added, would not fit 16 bits. */
AVX2 static float
avx2_distance8(const gg_coder *coder, const uint8_t *record, const gg_code_query *query)
{
	const int16_t *elements = query->elements;
	uint32_t	bytes = coder->chunk_bytes;
	__m256i		sum0 = _mm256_setzero_si256();
	__m256i		sum1 = sum0;
	uint32_t	b = 0;

#define STEP8(sum, codes, b) \
	sum = _mm256_add_epi32( \
		sum, _mm256_madd_epi16(_mm256_cvtepu8_epi16(codes), \
							   _mm256_loadu_si256((const __m256i *) (elements + (b)))))
	for (; bytes - b >= 32; b += 32)
	{
		STEP8(sum0, _mm_loadu_si128((const __m128i *) (record + b)), b);
		STEP8(sum1, _mm_loadu_si128((const __m128i *) (record + b + 16)), b + 16);
	}
	for (; b < bytes; b += 8)
	{
		__m128i		codes = _mm_loadl_epi64((const __m128i *) (record + b));

		sum0 = _mm256_add_epi32(sum0, _mm256_castsi128_si256(
			_mm_madd_epi16(_mm_cvtepu8_epi16(codes),
						   _mm_loadu_si128((const __m128i *) (elements + b)))));
	}
#undef STEP8
	return finish(coder, record, query, avx2_sum(_mm256_add_epi32(sum0, sum1)));
}

/* The products of 32 bytes of codes of 4 bits, in 16 bits: up to 7,680 in size. */
ALWAYS_INLINE AVX2 void
avx2_products(__m256i codes, const gg_code_query *query, uint32_t b, uint32_t stride, __m256i *high,
			  __m256i *low)
{
	__m256i		mask = _mm256_set1_epi8(15);

	for (uint32_t plane = 0; plane < 2; plane++)
	{
		const size_t at = (size_t) plane * stride + b;
		__m256i		u = _mm256_and_si256(_mm256_srli_epi16(codes, (int) (plane * 4)), mask);

		*high = _mm256_add_epi16(*high, _mm256_maddubs_epi16(
			u, _mm256_loadu_si256((const __m256i *) (query->high + at))));
		*low = _mm256_add_epi16(*low, _mm256_maddubs_epi16(
			u, _mm256_loadu_si256((const __m256i *) (query->low + at))));
	}
}

AVX2 static float
avx2_distance4(const gg_coder *coder, const uint8_t *record, const gg_code_query *query)
{
	const __m256i ones = _mm256_set1_epi16(1);
	const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	uint32_t	bytes = coder->chunk_bytes;
	uint32_t	b = 0;
	__m256i		highs = _mm256_setzero_si256();
	__m256i		lows = highs;

	/* four times 7,680 is below 2^15 */
	while (b < bytes)
	{
		__m256i		high = _mm256_setzero_si256();
		__m256i		low = high;

		for (int i = 0; i < 4 && b < bytes; i++, b += 32)
		{
			const uint8_t *at = record + b;
			__m256i		codes;

			if (bytes - b >= 32)
				codes = _mm256_loadu_si256((const __m256i *) at);
			else
				codes = _mm256_maskload_epi32(
					(const int *) at,
					_mm256_cmpgt_epi32(_mm256_set1_epi32((int) ((bytes - b) / 4)), lanes));
			avx2_products(codes, query, b, coder->stride, &high, &low);
		}
		highs = _mm256_add_epi32(highs, _mm256_madd_epi16(high, ones));
		lows = _mm256_add_epi32(lows, _mm256_madd_epi16(low, ones));
	}
	return finish(coder, record, query,
				  avx2_sum(_mm256_add_epi32(_mm256_slli_epi32(highs, 8), lows)));
}

AVX2 static float
avx2_l1(const gg_coder *coder, const uint8_t *record, const gg_code_query *query)
{
	const __m256i mask = _mm256_set1_epi32((1 << coder->bits) - 1);
	const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	uint32_t	bits = coder->bits;
	__m256		sums = _mm256_setzero_ps();
	__m256		base,
				factor;
	gg_code_head head;
	float		parts[8];

	memcpy(&head, record + coder->record_bytes - GG_CODE_HEAD, sizeof(head));
	base = _mm256_set1_ps(head.base);
	factor = _mm256_set1_ps(head.factor);
	for (uint32_t i = 0; i < coder->dim; i += 8)
	{
		__m128i		bytes = _mm_loadl_epi64((const __m128i *) (record + gg_code_byte(bits, i)));
		__m256i		level = _mm256_and_si256(
			_mm256_srlv_epi32(_mm256_cvtepu8_epi32(bytes),
							  _mm256_set1_epi32((int) gg_code_shift(bits, i))), mask);
		__m256i		there = _mm256_cmpgt_epi32(_mm256_set1_epi32((int) (coder->dim - i)), lanes);
		__m256		value = _mm256_add_ps(base,
										  _mm256_mul_ps(factor, _mm256_cvtepi32_ps(level)));
		__m256		apart = _mm256_sub_ps(value, _mm256_maskload_ps(query->values + i, there));

		apart = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), apart);
		sums = _mm256_add_ps(sums, _mm256_and_ps(apart, _mm256_castsi256_ps(there)));
	}
	_mm256_storeu_ps(parts, sums);
	return add_eight(parts);
}

#endif

/* Every instruction set has the same estimate, and the rest is integers and gg_code_bound_of(). */
float
gg_code_bound(const gg_coder *coder, const uint8_t *record, const gg_code_query *query,
			  const gg_code_bounds *bounds)
{
	const uint32_t bits = coder->bits;
	const uint32_t mask = (1u << bits) - 1;
	uint32_t	squares = 0;
	uint32_t	sum = 0;
	gg_code_head head;

	memcpy(&head, record + coder->record_bytes - GG_CODE_HEAD, sizeof(head));
	for (uint32_t shift = 0; shift < 8; shift += bits)
		for (uint32_t b = 0; b < coder->chunk_bytes; b++)
		{
			const uint32_t level = record[b] >> shift & mask;

			sum += level;
			squares += level * level;
		}
	return gg_code_bound_of(bounds, head, gg_code_length(bits, coder->dim, squares, sum),
							gg_code_distance(coder, record, query));
}

/* ---- choosing ------------------------------------------------------------ */

static void
choose_functions(gg_coder *coder)
{
	const bool	rotated = coder->metric != GG_METRIC_L1;

	coder->set_weights = plain_weights;
	coder->code = rotated ? plain_rotated : plain_in_place;
	coder->set_query = plain_query;
	coder->distance = rotated ? plain_distance : plain_l1;
#if defined(__x86_64__)
	if (gg_simd_in_use() != GG_SIMD_PLAIN)
	{
		coder->set_weights = avx2_weights;
		coder->code = rotated ? avx2_rotated : avx2_in_place;
		coder->set_query = avx2_query;
		coder->distance = !rotated ? avx2_l1 : coder->bits == 8 ? avx2_distance8 :
			avx2_distance4;
	}
#endif
}

static uint32_t
rounds_of(gg_metric metric, uint32_t dim)
{
	return metric == GG_METRIC_L1 ? 0 : gg_code_rounds(dim);
}

size_t
gg_coder_bytes(gg_metric metric, uint32_t dim)
{
	return ((size_t) rounds_of(metric, dim) + 1) * dim * sizeof(float);
}

void
gg_coder_set_up(gg_coder *coder, const gg_code_kind *kind, void *memory)
{
	const uint32_t dim = kind->dim;

	memset(coder, 0, sizeof(*coder));
	coder->metric = kind->metric;
	coder->dim = dim;
	coder->bits = gg_code_bits(kind->codes);
	coder->block = gg_code_block(dim);
	coder->rounds = rounds_of(kind->metric, dim);
	coder->chunk_bytes = gg_code_chunk_bytes(kind->codes, dim);
	coder->record_bytes = gg_code_record_bytes(kind->codes, dim);
	coder->stride = (coder->chunk_bytes + 63) / 64 * 64;
	choose_functions(coder);
	coder->weights = memory;
	coder->set_weights(coder, kind->seed);
	if (kind->mean != NULL)
	{
		coder->mean = memcpy(coder->weights + (size_t) coder->rounds * dim, kind->mean,
							 dim * sizeof(float));
		(void) scale_of(coder->mean, dim, &coder->mean_exponent);
	}
}

gg_status
gg_coder_init(gg_coder *coder, const gg_code_kind *kind)
{
	void	   *memory = malloc(gg_coder_bytes(kind->metric, kind->dim));

	memset(coder, 0, sizeof(*coder));
	if (memory == NULL)
		return gg_fail(GG_ENOMEM, "gg_coder_init", "out of memory for codes of %u dimensions",
					   kind->dim);
	gg_coder_set_up(coder, kind, memory);
	return gg_ok();
}

void
gg_coder_free(gg_coder *coder)
{
	free(coder->weights);
	coder->weights = NULL;
}

void
gg_code_row(const gg_coder *coder, const void *row, gg_element element, float *scratch,
			uint8_t *record)
{
	if (element == GG_ELEMENT_F16)
		gg_halves_to_floats(row, scratch, coder->dim);
	else
		memcpy(scratch, row, coder->dim * sizeof(float));
	if (coder->mean != NULL)
	{
		if (coder->metric == GG_METRIC_COSINE && element == GG_ELEMENT_F16)
			gg_code_unit_row(scratch, coder->dim);
		centre(coder, scratch);
	}
	memset(record, 0, coder->record_bytes);
	coder->code(coder, scratch, (int32_t *) (scratch + coder->dim), record);
}

/* Steps b and c of a round are their own inverses, but for what step a takes away. */
static void
rotate_back(const gg_coder *coder, float *row)
{
	uint32_t	dim = coder->dim;

	for (uint32_t r = coder->rounds; r-- > 0;)
	{
		const float *weights = coder->weights + (size_t) r * dim;
		uint32_t	pairs = coder->rounds > 2 && r == 1 ? dim / 2 : 0;
		float	   *second = row + dim - pairs;

		for (uint32_t i = 0; i < pairs; i++)
		{
			float		a = row[i];
			float		b = second[i];

			row[i] = (a + b) * GG_CODE_SQRT_HALF;
			second[i] = (a - b) * GG_CODE_SQRT_HALF;
		}
		transform(row + (r % 2 == 0 ? 0 : dim - coder->block), coder->block);
		for (uint32_t i = 0; i < dim; i++)
			row[i] *= weights[i];
	}
}

void
gg_decode_row(const gg_coder *coder, const uint8_t *record, float *row)
{
	const uint32_t bits = coder->bits;
	const int	top = (1 << bits) - 1;
	gg_code_head head;
	float		step;

	memcpy(&head, record + coder->record_bytes - GG_CODE_HEAD, sizeof(head));
	step = coder->metric == GG_METRIC_L2 ? head.factor / -2 : -head.factor;
	for (uint32_t i = 0; i < coder->dim; i++)
	{
		int			level = record[gg_code_byte(bits, i)] >> gg_code_shift(bits, i) & top;

		row[i] = coder->metric == GG_METRIC_L1 ? head.base + head.factor * (float) level :
			step * (float) (2 * level - top);
	}
	if (coder->metric != GG_METRIC_L1)
		rotate_back(coder, row);
	for (uint32_t i = 0; i < coder->dim && coder->mean != NULL; i++)
		row[i] += coder->mean[i];
}

/* ---- queries ------------------------------------------------------------- */

void
gg_code_query_set(const gg_coder *coder, const float *values, float *scratch, gg_code_query *query)
{
	const bool	centred = coder->mean != NULL && coder->metric != GG_METRIC_IP;

	query->values = values;
	memcpy(scratch, values, coder->dim * sizeof(float));
	if (centred)
		centre(coder, scratch);
	if (coder->metric != GG_METRIC_L1)
	{
		coder->set_query(coder, scratch, (int32_t *) (scratch + coder->dim), query);
		if (coder->metric == GG_METRIC_IP && coder->mean != NULL)
			query->base = mean_base(coder, values);
	}
	else if (centred)
		/* the elements' memory is free, and as large */
		query->values = memcpy(query->elements, scratch, coder->dim * sizeof(float));
}
