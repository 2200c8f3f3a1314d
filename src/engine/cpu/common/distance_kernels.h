/*
 * distance_kernels.h
 *		The four distance kernels for one instruction set and one element type.
 *
 * A template: distance.c includes it once for each pair, with these defined.
 *
 *	SIMD_SET_PREFIX		prefix of the instruction set's names: avx2_
 *	TARGET				function attribute that lets the compiler use that set
 *	ELEMENT				f32 or f16
 *	ELEMENT_BYTES		4 or 2
 *
 * and, as static inline functions of that set (SIMD(name) is the name with the prefix),
 *
 *	SIMD(v), SIMD(W)			a vector of floats, which has C's operators, and its width
 *	SIMD(sum)(v)
 *	SIMD(fma)(a, b, c)			a * b + c, rounded once where the set can
 *	SIMD(abs)(a)
 *	SIMD(load_ELEMENT)(p)		W elements at p, any alignment, as floats
 *	SIMD(tail_ELEMENT)(p, m)	m < W elements at p, the rest zero; reads nothing past them
 *	SIMD(load_f32), SIMD(tail_f32)	for the query
 *
 * Four accumulators: an fma has a latency of four cycles and two of them start per cycle, so one
 * accumulator would leave seven of eight slots empty; with four the loads are the limit.  Zeros in
 * a tail add nothing to any of the sums.
 */
#define KERNEL_PASTE(a, b, c) a##b##c
#define KERNEL_PASTE2(a, b, c) KERNEL_PASTE(a, b, c)
#define SIMD(name) KERNEL_PASTE2(SIMD_SET_PREFIX, name, )
#define KERNEL(name) KERNEL_PASTE2(SIMD_SET_PREFIX, name, ELEMENT)

#define ROW(i) KERNEL(load_) (r + (i) * ELEMENT_BYTES)
#define QUERY(i) SIMD(load_f32) ((const char *) (query + (i)))
#define ROW_TAIL(i) KERNEL(tail_) (r + (i) * ELEMENT_BYTES, (uint32_t) (n - (i)))
#define QUERY_TAIL(i) SIMD(tail_f32) ((const char *) (query + (i)), (uint32_t) (n - (i)))

/*
 * The loop over a row that all kernels share but cosine of halves.  STEP(sum, x, y) is the sum with
 * the vectors x (row) and y (query) taken in.
 */
#define KERNEL_SUM(STEP, result) \
	do \
	{ \
		const char *r = row; \
		SIMD(v)		s0 = {0}; \
		SIMD(v)		s1 = s0; \
		SIMD(v)		s2 = s0; \
		SIMD(v)		s3 = s0; \
		size_t		n = dim; \
		size_t		i = 0; \
 \
		for (; n - i >= 4 * SIMD(W); i += 4 * SIMD(W)) \
		{ \
			s0 = STEP(s0, ROW(i), QUERY(i)); \
			s1 = STEP(s1, ROW(i + SIMD(W)), QUERY(i + SIMD(W))); \
			s2 = STEP(s2, ROW(i + 2 * SIMD(W)), QUERY(i + 2 * SIMD(W))); \
			s3 = STEP(s3, ROW(i + 3 * SIMD(W)), QUERY(i + 3 * SIMD(W))); \
		} \
		for (; n - i >= SIMD(W); i += SIMD(W)) \
			s0 = STEP(s0, ROW(i), QUERY(i)); \
		if (i < n) \
			s1 = STEP(s1, ROW_TAIL(i), QUERY_TAIL(i)); \
		(result) = SIMD(sum) ((s0 + s1) + (s2 + s3)); \
	} while (0)

static inline __attribute__((always_inline)) TARGET SIMD(v)
KERNEL(l2_step_)(SIMD(v) sum, SIMD(v) x, SIMD(v) y)
{
	SIMD(v)		d = x - y;

	return SIMD(fma) (d, d, sum);
}

static inline __attribute__((always_inline)) TARGET SIMD(v)
KERNEL(dot_step_)(SIMD(v) sum, SIMD(v) x, SIMD(v) y)
{
	return SIMD(fma) (x, y, sum);
}

static inline __attribute__((always_inline)) TARGET SIMD(v)
KERNEL(l1_step_)(SIMD(v) sum, SIMD(v) x, SIMD(v) y)
{
	return sum + SIMD(abs) (x - y);
}

TARGET static float
KERNEL(l2_)(const void *row, const float *query, uint32_t dim)
{
	float		sum;

	KERNEL_SUM(KERNEL(l2_step_), sum);
	return nan_to_infinity(sum);
}

TARGET static float
KERNEL(ip_)(const void *row, const float *query, uint32_t dim)
{
	float		sum;

	KERNEL_SUM(KERNEL(dot_step_), sum);
	return nan_to_infinity(-sum);
}

TARGET static float
KERNEL(l1_)(const void *row, const float *query, uint32_t dim)
{
	float		sum;

	KERNEL_SUM(KERNEL(l1_step_), sum);
	return nan_to_infinity(sum);
}

#if ELEMENT_BYTES == 4

/* Float rows have unit length. */
TARGET static float
KERNEL(cosine_)(const void *row, const float *query, uint32_t dim)
{
	float		sum;

	KERNEL_SUM(KERNEL(dot_step_), sum);
	return cosine_distance(sum);
}

#else

/* Half rows have any length: the dot product and the row's square in one pass. */
TARGET static float
KERNEL(cosine_)(const void *row, const float *query, uint32_t dim)
{
	const char *r = row;
	SIMD(v)		dot0 = {0};
	SIMD(v)		dot1 = dot0;
	SIMD(v)		square0 = dot0;
	SIMD(v)		square1 = dot0;
	size_t		n = dim;
	size_t		i = 0;

	for (; n - i >= 2 * SIMD(W); i += 2 * SIMD(W))
	{
		SIMD(v)		x0 = ROW(i);
		SIMD(v)		x1 = ROW(i + SIMD(W));

		dot0 = SIMD(fma) (x0, QUERY(i), dot0);
		square0 = SIMD(fma) (x0, x0, square0);
		dot1 = SIMD(fma) (x1, QUERY(i + SIMD(W)), dot1);
		square1 = SIMD(fma) (x1, x1, square1);
	}
	if (n - i >= SIMD(W))
	{
		SIMD(v)		x = ROW(i);

		dot0 = SIMD(fma) (x, QUERY(i), dot0);
		square0 = SIMD(fma) (x, x, square0);
		i += SIMD(W);
	}
	if (i < n)
	{
		SIMD(v)		x = ROW_TAIL(i);

		dot1 = SIMD(fma) (x, QUERY_TAIL(i), dot1);
		square1 = SIMD(fma) (x, x, square1);
	}
	return cosine_of_sums(SIMD(sum) (dot0 + dot1), SIMD(sum) (square0 + square1));
}

#endif

#undef KERNEL_PASTE
#undef KERNEL_PASTE2
#undef KERNEL
#undef SIMD
#undef ROW
#undef QUERY
#undef ROW_TAIL
#undef QUERY_TAIL
#undef KERNEL_SUM
#undef ELEMENT
#undef ELEMENT_BYTES
