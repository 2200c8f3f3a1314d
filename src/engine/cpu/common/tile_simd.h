/*
 * tile_simd.h
 *		The loops that read alike in all instruction sets, included once for each by tile_ops.c.
 *
 * The includer defines
 *	SIMD_NAME(x)	name of function x for this set
 *	SIMD_TARGET		its target attribute
 *	SIMD_LANES		floats of one vector register
 *
 * All is written with the compiler's vector types, which become the registers of the target.  A
 * panel is TILE_COLUMNS rows transposed: element k of row c at k * TILE_COLUMNS + c.  A tile is
 * TILE_HEIGHT rows of one panel against all of another; the accumulators of TILE_HEIGHT rows x 2
 * vectors, 2 operands and a broadcast fill 19 registers of the 32 of AVX-512 and NEON, and 4 rows
 * x 2 vectors fit the 16 of AVX2.
 */

typedef float SIMD_NAME(vec) __attribute__((vector_size(SIMD_LANES * 4), aligned(4), may_alias));
typedef int32_t SIMD_NAME(ivec) __attribute__((vector_size(SIMD_LANES * 4), aligned(4), may_alias));

#define VEC		SIMD_NAME(vec)
#define IVEC	SIMD_NAME(ivec)
#define LOAD(p) (*(const VEC *) (p))

#define TERM_DOT(acc, x, y) \
	(acc) += (x) * (y)
#define TERM_L2(acc, x, y) \
	do { VEC t_ = (x) - (y); (acc) += t_ * t_; } while (0)
#define TERM_L1(acc, x, y) \
	do { VEC t_ = (x) - (y); (acc) += (VEC) ((IVEC) t_ & 0x7FFFFFFF); } while (0)

#define ROWS4(X)	X(0) X(1) X(2) X(3)
#if SIMD_LANES == 16 || defined(__aarch64__)
#define ROWS(X)		ROWS4(X) X(4) X(5) X(6) X(7)
#define ROWS_COUNT	8
#else
#define ROWS(X)		ROWS4(X)
#define ROWS_COUNT	4
#endif

#define ROW_ZERO(r)		VEC c##r##0 = {0}, c##r##1 = {0};
#define ROW_READ(r) \
	c##r##0 = LOAD(at + r * ld); \
	c##r##1 = LOAD(at + r * ld + SIMD_LANES);
#define ROW_WRITE(r) \
	*(VEC *) (at + r * ld) = c##r##0; \
	*(VEC *) (at + r * ld + SIMD_LANES) = c##r##1;
#define ROW_TERM(r) \
	{ \
		float	s_ = a[r]; \
		VEC		x_ = s_ - (VEC) {0}; \
		TERM(c##r##0, x_, b0); \
		TERM(c##r##1, x_, b1); \
	}

/* sums[r * ld + c] += sum over k of term(left[k][r], right[k][c]), r < TILE_HEIGHT */
#define TILE_BODY \
	for (uint32_t r0 = 0; r0 < TILE_HEIGHT; r0 += ROWS_COUNT) \
		for (uint32_t c0 = 0; c0 < TILE_COLUMNS; c0 += 2 * SIMD_LANES) \
		{ \
			float	   *at = sums + (size_t) r0 * ld + c0; \
			const float *a = left + r0; \
			const float *b = right + c0; \
			ROWS(ROW_ZERO) \
			if (!first) \
			{ \
				ROWS(ROW_READ) \
			} \
			for (uint32_t k = 0; k < depth; k++) \
			{ \
				VEC			b0 = LOAD(b); \
				VEC			b1 = LOAD(b + SIMD_LANES); \
				ROWS(ROW_TERM) \
				a += TILE_COLUMNS; \
				b += TILE_COLUMNS; \
			} \
			ROWS(ROW_WRITE) \
		}

#define TERM TERM_DOT
SIMD_TARGET static void
SIMD_NAME(tile_dot) (const float *left, const float *right, uint32_t depth, bool first, float *sums,
					 uint32_t ld)
{
	TILE_BODY
}
#undef TERM

#define TERM TERM_L2
SIMD_TARGET static void
SIMD_NAME(tile_l2) (const float *left, const float *right, uint32_t depth, bool first, float *sums,
					uint32_t ld)
{
	TILE_BODY
}
#undef TERM

#define TERM TERM_L1
SIMD_TARGET static void
SIMD_NAME(tile_l1) (const float *left, const float *right, uint32_t depth, bool first, float *sums,
					uint32_t ld)
{
	TILE_BODY
}
#undef TERM

/* bias[c] += sum over k of panel[k][c]^2 */
SIMD_TARGET static void
SIMD_NAME(panel_norms) (const float *panel, uint32_t depth, float *bias)
{
	for (uint32_t c = 0; c < TILE_COLUMNS; c += SIMD_LANES)
	{
		VEC			sum0 = LOAD(bias + c),
					sum1 = {0};
		uint32_t	k = 0;

		for (; k + 2 <= depth; k += 2)
		{
			VEC			x = LOAD(panel + (size_t) k * TILE_COLUMNS + c),
						y = LOAD(panel + (size_t) (k + 1) * TILE_COLUMNS + c);

			sum0 += x * x;
			sum1 += y * y;
		}
		if (k < depth)
		{
			VEC			x = LOAD(panel + (size_t) k * TILE_COLUMNS + c);

			sum0 += x * x;
		}
		*(VEC *) (bias + c) = sum0 + sum1;
	}
}

#define PAIR_BODY \
	VEC			s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}; \
	float		sum = 0; \
	uint32_t	i = 0; \
	for (; i + 4 * SIMD_LANES <= dim; i += 4 * SIMD_LANES) \
	{ \
		TERM(s0, LOAD(a + i), LOAD(b + i)); \
		TERM(s1, LOAD(a + i + SIMD_LANES), LOAD(b + i + SIMD_LANES)); \
		TERM(s2, LOAD(a + i + 2 * SIMD_LANES), LOAD(b + i + 2 * SIMD_LANES)); \
		TERM(s3, LOAD(a + i + 3 * SIMD_LANES), LOAD(b + i + 3 * SIMD_LANES)); \
	} \
	for (; i + SIMD_LANES <= dim; i += SIMD_LANES) \
		TERM(s0, LOAD(a + i), LOAD(b + i)); \
	s0 = (s0 + s1) + (s2 + s3); \
	for (int l = 0; l < SIMD_LANES; l++) \
		sum += s0[l];

#define TERM TERM_L2
SIMD_TARGET static float
SIMD_NAME(pair_l2) (const float *a, const float *b, uint32_t dim)
{
	PAIR_BODY
	for (; i < dim; i++)
		sum += (a[i] - b[i]) * (a[i] - b[i]);
	return sum;
}
#undef TERM

#define TERM TERM_L1
SIMD_TARGET static float
SIMD_NAME(pair_l1) (const float *a, const float *b, uint32_t dim)
{
	PAIR_BODY
	for (; i < dim; i++)
		sum += a[i] < b[i] ? b[i] - a[i] : a[i] - b[i];
	return sum;
}
#undef TERM

#define TERM TERM_DOT
SIMD_TARGET static float
SIMD_NAME(pair_dot) (const float *a, const float *b, uint32_t dim)
{
	PAIR_BODY
	for (; i < dim; i++)
		sum += a[i] * b[i];
	return sum;
}
#undef TERM

#undef PAIR_BODY
#undef TILE_BODY
#undef ROW_TERM
#undef ROW_WRITE
#undef ROW_READ
#undef ROW_ZERO
#undef ROWS_COUNT
#undef ROWS
#undef ROWS4
#undef TERM_L1
#undef TERM_L2
#undef TERM_DOT
#undef LOAD
#undef IVEC
#undef VEC
