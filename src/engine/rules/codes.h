/*
 * codes.h
 *		Codes of rows: 8 or 4 bits an element, and distances estimated from them.
 *
 * A code is a function of the row's values, the metric, the kind of codes, a seed and a mean, and
 * of nothing else.  Every engine and every instruction set makes the same bytes.  Three rules see
 * to that:
 *
 *	1. Elements are changed by float32 additions, subtractions and multiplications alone, each
 *	   rounded by itself (GG_CODE_MUL(), GG_CODE_ADD(); codes.c is compiled without contraction).
 *	2. Every sum over elements is one of integers, and so has no order.
 *	3. What is computed once a row is float64, by operations that IEEE 754 defines.
 *
 * A mean m is a vector of the rows' dimensions, or there is none.  Where rows lie far from the
 * origin, beside their distances from each other, a code of x would say where they all are, and
 * hardly how they differ.  So codes are of x - m, and no distance needs more of a query than once:
 *	L2, L1		x - q = (x - m) - (q - m): the query is centred, too.
 *	Inner		<x, q> = <x - m, q> + <m, q>: the query stays, and <m, q> is added to its estimates.
 *	product
 *	Cosine		With x and q of length 1 the distance is |x - q|^2 / 2, half of what L2 has.  Rows
 *				of float16 are scaled to that length first (gg_code_unit_scale()).
 * What follows calls x - m the row, and q - m the query.
 *
 * L2, inner product, cosine
 *	Scale	The row is multiplied by a power of two, which brings its largest element into [1, 2)
 *			(gg_code_exponent()).  A row without an element of normal size is a zero vector.
 *	Rotate	by a random orthogonal matrix, so that its elements have about the same size, and
 *			errors of codes have no direction.  block is the largest power of two that is not above
 *			dim.  There are two rounds if that is dim, otherwise four.  Round r has three steps:
 *			a. Element i is multiplied by gg_code_weight(): a random sign, and 1 / sqrt(block)
 *			   inside the block of this round, which is the first `block` elements if r is even,
 *			   else the last ones.
 *			b. The block is replaced by its Walsh-Hadamard transform, in place: for h = 1, 2, 4, ..
 *			   block / 2 each pair (i, i + h), where i has not bit h, becomes (sum, difference).
 *			c. In the second of four rounds elements i and dim - dim / 2 + i, i < dim / 2, become
 *			   their sum and difference times GG_CODE_SQRT_HALF.
 *			784 elements are two blocks of 512, which overlap.  Two rounds spread any element over
 *			a block at least, step c makes the halves equal in size, and the other two rounds do
 *			the same to sums of elements.  Nothing is padded with zeros: a code has dim elements.
 *	Round	y_i is element i times 2^GG_CODE_FRACTION, as an integer (towards zero).  Element i gets
 *			one of 2^bits levels, u_i (gg_code_level()).  It stands for w_i = 2 u_i - (2^bits - 1),
 *			times a step that nobody needs: the code is a direction.  Four steps are tried, so that
 *			the levels span gg_code_clip() times the root mean square, but no more than the largest
 *			element.  The step with the smallest angle between w and y is taken, the first of
 *			equal ones.
 *	Head	Let <x, q> be estimated by |x|^2 <w, q> / <w, x>, with w and both vectors rotated: this
 *			is exact where q is a multiple of x, and unbiased over rotations.  So every
 *			metric's distance is base + factor <w, q>, and under L2 + |q|^2 (gg_code_make_head()).
 *			Under cosine with a mean it is half of L2's.
 *
 * L1 is not kept by a rotation.  There the levels span the row's least to largest element, base is
 * the least and factor the step between levels.  So rows of small integers have exact codes of 8
 * bits.
 *
 * A zero vector has w = 1 in every element and factor 0, under L1 u = 0.  A row with an element
 * that is not finite has the same, and base +infinity.
 *
 * Record of a row: chunks of 8 bytes, each of 64 / bits elements.  Byte j of a chunk has, from the
 * lowest bits up, the chunk's elements j, j + 8, ..: one mask, or a shift and a mask, of whole
 * registers gives elements in a fixed order.  Elements past dim are 0.  Then zeros up to the head,
 * which is the last 8 bytes: float32 base and factor.  A record's size is a multiple of 16.
 *
 * The query's elements are rotated, too, and rounded to 16 bits (gg_code_query).  So <w, q> is a
 * sum of integers, and the estimate is the same bits everywhere.  Under L1 it is a sum of
 * float32, whose last bits may differ between the engines, but not between instruction sets.
 *
 * The definitions below are for C, C++ and device code.
 */
#ifndef GG_CODES_H
#define GG_CODES_H

#include <math.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/rules/random.h"

#ifdef __CUDA_ARCH__
#define GG_CODE_MUL(a, b) __fmul_rn(a, b)
#define GG_CODE_ADD(a, b) __fadd_rn(a, b)
#define GG_CODE_MUL64(a, b) __dmul_rn(a, b)
#define GG_CODE_ROOT(a) __fsqrt_rn(a)
#else
#define GG_CODE_MUL(a, b) ((a) * (b))
#define GG_CODE_ADD(a, b) ((a) + (b))
#define GG_CODE_MUL64(a, b) ((a) * (b))
#define GG_CODE_ROOT(a) sqrtf(a)
#endif

#define GG_CODE_CHUNK		8u	/* bytes */
#define GG_CODE_HEAD		8u
#define GG_CODE_FRACTION	22	/* y is below 2^31: elements are below 4 sqrt(GG_MAX_DIM) */
#define GG_CODE_SQRT_HALF	0.70710678f
#define GG_CODE_TRIES		4u

/* ---- sizes --------------------------------------------------------------- */

GG_RANDOM_INLINE uint32_t
gg_code_bits(gg_codes codes)
{
	return codes == GG_CODES_INT8 ? 8 : 4;
}

/* Bytes of a record's chunks, and of the whole. */
GG_RANDOM_INLINE uint32_t
gg_code_chunk_bytes(gg_codes codes, uint32_t dim)
{
	uint32_t	elements = 8 * GG_CODE_CHUNK / gg_code_bits(codes);

	return (dim + elements - 1) / elements * GG_CODE_CHUNK;
}

GG_RANDOM_INLINE uint32_t
gg_code_record_bytes(gg_codes codes, uint32_t dim)
{
	return (gg_code_chunk_bytes(codes, dim) + GG_CODE_HEAD + 15) / 16 * 16;
}

/* Element i: byte and lowest bit. */
GG_RANDOM_INLINE uint32_t
gg_code_byte(uint32_t bits, uint32_t i)
{
	uint32_t	elements = 8 * GG_CODE_CHUNK / bits;

	return i / elements * GG_CODE_CHUNK + i % GG_CODE_CHUNK;
}

GG_RANDOM_INLINE uint32_t
gg_code_shift(uint32_t bits, uint32_t i)
{
	uint32_t	elements = 8 * GG_CODE_CHUNK / bits;

	return i % elements / GG_CODE_CHUNK * bits;
}

/* ---- centring ------------------------------------------------------------ */

/* An element without the mean's.  No element of a mean is so large that this overflows. */
#define GG_CODE_LARGEST_MEAN	0x1p100f

GG_RANDOM_INLINE float
gg_code_centre(float x, float mean)
{
	return GG_CODE_ADD(x, -mean);
}

/* A row's element, or a query's or the mean's, as an integer; scale: 2^-exponent of the vector. */
GG_RANDOM_INLINE int64_t
gg_code_whole(float x, float scale)
{
	return (int64_t) GG_CODE_MUL(GG_CODE_MUL(x, scale), (float) (1 << GG_CODE_FRACTION));
}

/* ---- rotation ------------------------------------------------------------ */

GG_RANDOM_INLINE uint32_t
gg_code_block(uint32_t dim)
{
	uint32_t	block = 1;

	while (block <= dim / 2)
		block *= 2;
	return block;
}

GG_RANDOM_INLINE uint32_t
gg_code_rounds(uint32_t dim)
{
	return gg_code_block(dim) == dim ? 2 : 4;
}

/* The signs of elements 64 * word and the 63 after it. */
GG_RANDOM_INLINE uint64_t
gg_code_signs(uint64_t seed, uint32_t round, uint32_t word)
{
	return gg_random_at(seed, (uint64_t) round * (GG_MAX_DIM / 64) + word);
}

/* The size of weights inside the block. */
GG_RANDOM_INLINE float
gg_code_block_size(uint32_t block)
{
	return (float) (1 / sqrt((double) block));
}

GG_RANDOM_INLINE float
gg_code_weight(uint64_t seed, uint32_t dim, uint32_t round, uint32_t i)
{
	uint32_t	block = gg_code_block(dim);
	uint32_t	begin = round % 2 == 0 ? 0 : dim - block;
	uint64_t	signs = gg_code_signs(seed, round, i / 64);
	float		size = i >= begin && i - begin < block ? gg_code_block_size(block) : 1.0f;

	return signs >> (i % 64) & 1 ? -size : size;
}

/*
 * The power of two that is not above an element, from its bits.  The largest is 126, so that
 * 2^-exponent is a normal number; the largest element is then scaled into [2, 4).
 */
#define GG_CODE_ZERO		(-127)	/* an element of no normal size */
#define GG_CODE_INFINITE	128		/* an element that is not finite */

GG_RANDOM_INLINE int
gg_code_exponent(uint32_t largest)
{
	int			exponent = (int) ((largest & 0x7FFFFFFFu) >> 23) - 127;

	return exponent == 127 ? 126 : exponent;
}

GG_RANDOM_INLINE float
gg_code_power(int exponent)
{
	uint32_t	bits = (uint32_t) (exponent + 127) << 23;
	float		power;

	memcpy(&power, &bits, sizeof(power));
	return power;
}

/* ---- rounding ------------------------------------------------------------ */

/*
 * The levels span so many times the root mean square to either side.  For normally distributed
 * elements 2.7 is best with 4 bits, and 3.9 with 8.
 */
GG_RANDOM_INLINE double
gg_code_clip(uint32_t bits, uint32_t attempt)
{
	double		first = bits == 8 ? 2.75 : 2.25;
	double		apart = bits == 8 ? 0.5 : 0.25;

	return first + apart * attempt;
}

/* 1 / step; square: the sum of y_i^2; largest: the size of the largest rotated element. */
GG_RANDOM_INLINE float
gg_code_inverse(uint32_t bits, uint32_t attempt, int64_t square, uint32_t dim, float largest)
{
	double		rms = sqrt((double) square / dim) / (1 << GG_CODE_FRACTION);
	double		clip = gg_code_clip(bits, attempt) * rms;

	clip = clip < largest ? clip : largest;
	return (float) ((1 << (bits - 1)) / clip);
}

/*
 * u of an element, 0 .. top.  offset: 2^(bits - 1) of a rotated element; under L1, where x is the
 * element less the row's least, 0.5.
 */
GG_RANDOM_INLINE int
gg_code_level(float x, float inverse, float offset, float top)
{
	float		level = GG_CODE_ADD(GG_CODE_MUL(x, inverse), offset);

	level = level > 0.0f ? level : 0.0f;
	level = level < top ? level : top;
	return (int) level;
}

/* The larger, the smaller is the angle.  dot: sum of w_i y_i; length: of w_i^2. */
GG_RANDOM_INLINE double
gg_code_likeness(int64_t dot, int64_t length)
{
	return (double) dot * (double) dot / (double) length;
}

typedef struct gg_code_head
{
	float		base;
	float		factor;
} gg_code_head;

/* What 1 in y stands for, of a row or query that was scaled by this exponent. */
GG_RANDOM_INLINE double
gg_code_unit(int exponent)
{
	return ldexp(1.0, exponent - GG_CODE_FRACTION);
}

/* |x|^2 */
GG_RANDOM_INLINE float
gg_code_square(int exponent, int64_t square)
{
	double		unit = gg_code_unit(exponent);

	return (float) ((double) square * unit * unit);
}

/* What elements are multiplied by for length 1; square: the sum of squares of gg_code_whole(). */
GG_RANDOM_INLINE float
gg_code_unit_scale(int exponent, int64_t square)
{
	return (float) (1 / (sqrt((double) square) * gg_code_unit(exponent)));
}

/* The head of a row's record.  centred, here and below: there is a mean. */
GG_RANDOM_INLINE gg_code_head
gg_code_make_head(gg_metric metric, bool centred, int exponent, int64_t square, int64_t dot)
{
	gg_code_head head = {metric == GG_METRIC_COSINE ? 1.0f : 0.0f, 0.0f};
	double		factor = (double) square / (double) dot * gg_code_unit(exponent);

	if (metric == GG_METRIC_L2)
	{
		head.base = gg_code_square(exponent, square);
		head.factor = (float) (-2 * factor);
	}
	else if (metric == GG_METRIC_COSINE && centred)
	{
		head.base = 0.5f * gg_code_square(exponent, square);
		head.factor = (float) -factor;
	}
	else if (metric == GG_METRIC_IP)
		head.factor = (float) -factor;
	else
		head.factor = (float) (-sqrt((double) square) / (double) dot);
	return head;
}

/* The head of a zero vector, or of a row that is not finite. */
GG_RANDOM_INLINE gg_code_head
gg_code_plain_head(gg_metric metric, bool centred, bool finite)
{
	gg_code_head head = {finite ? (metric == GG_METRIC_COSINE && !centred ? 1.0f : 0.0f) :
						 INFINITY, 0.0f};

	return head;
}

/* Under L1 the least and the largest element are found among integers: -0 is before 0. */
GG_RANDOM_INLINE int32_t
gg_code_order(uint32_t bits)
{
	return (int32_t) (bits ^ (bits >> 31 != 0 ? 0x7FFFFFFFu : 0));
}

GG_RANDOM_INLINE gg_code_head
gg_code_span(uint32_t bits, int32_t least, int32_t most, float *inverse)
{
	uint32_t	least_bits = (uint32_t) gg_code_order((uint32_t) least);
	uint32_t	most_bits = (uint32_t) gg_code_order((uint32_t) most);
	gg_code_head head;
	float		end;
	double		span;

	memcpy(&head.base, &least_bits, sizeof(float));
	memcpy(&end, &most_bits, sizeof(float));
	span = (double) end - head.base;
	head.factor = (float) (span / ((1 << bits) - 1));
	*inverse = span > 0 ? (float) (((1 << bits) - 1) / span) : 0.0f;
	return head;
}

/* ---- queries ------------------------------------------------------------- */

/*
 * 16-bit elements are so small that 255 * 2 times their sum is below 2^31, whatever their signs,
 * and that they have two signed bytes.
 */
#define GG_CODE_QUERY_LARGEST	32512
#define GG_CODE_QUERY_SUM		(1 << 22)

/*
 * What y_i is multiplied by; sum: of |y_i|.  0 for a query whose y are 0: a zero vector, or one
 * that is not finite.
 */
GG_RANDOM_INLINE double
gg_code_query_scale(int64_t sum, int64_t largest)
{
	double		by_largest,
				by_sum;

	if (largest == 0)
		return 0;
	by_largest = (double) GG_CODE_QUERY_LARGEST / (double) largest;
	by_sum = (double) GG_CODE_QUERY_SUM / (double) sum;
	return by_largest < by_sum ? by_largest : by_sum;
}

GG_RANDOM_INLINE int16_t
gg_code_query_element(int32_t y, double scale)
{
	return (int16_t) (GG_CODE_MUL64((double) y, scale) + (y < 0 ? -0.5 : 0.5));
}

/* What 1 in a query's elements stands for. */
GG_RANDOM_INLINE float
gg_code_query_unit(int exponent, double scale)
{
	return scale > 0 ? (float) (gg_code_unit(exponent) / scale) : 0.0f;
}

/* What estimates add for a query, except under inner product.  square: the sum of its y_i^2. */
GG_RANDOM_INLINE float
gg_code_query_base(gg_metric metric, bool centred, int exponent, int64_t square)
{
	if (metric == GG_METRIC_L2)
		return gg_code_square(exponent, square);
	return metric == GG_METRIC_COSINE && centred ? 0.5f * gg_code_square(exponent, square) : 0.0f;
}

/* The same under inner product.  dot: of query and mean, the sum of products of gg_code_whole(). */
GG_RANDOM_INLINE float
gg_code_mean_base(int64_t dot, int exponent, int mean_exponent)
{
	return (float) -((double) dot * gg_code_unit(exponent) * gg_code_unit(mean_exponent));
}

/*
 * The estimate of a distance.  dot: sum of u_i q_i; sum: of q_i; unit, base: of gg_code_query.
 */
GG_RANDOM_INLINE float
gg_code_estimate(gg_code_head head, uint32_t bits, int32_t dot, int32_t sum, float unit,
				 float base)
{
	int32_t		doubled = 2 * dot - ((1 << bits) - 1) * sum;
	float		start = GG_CODE_ADD(head.base, base);

	return GG_CODE_ADD(start, GG_CODE_MUL(head.factor, GG_CODE_MUL((float) doubled, unit)));
}

/* ---- bounds -------------------------------------------------------------- */

/*
 * A number that no distance of the row is below, whoever computes it in float32.
 *
 * Let x be the row, X what its record stands for, e = X - x.  The head sees to <X, x> = |x|^2, so e
 * is at right angles to x, and |e|^2 = |X|^2 - |x|^2.  The estimate of |x - q|^2 is off by 2 <e, q>
 * = 2 <e, q - x>, which is 2 |e| d at most, where d = |x - q|.  So d^2 + 2 |e| d >= estimate, and
 *
 *		d >= sqrt(estimate + |e|^2) - |e|.
 *
 * The right side falls as |e| rises where it is not below 0, so |e| may be taken larger.  Under
 * cosine x and q have unit length, and the distance is d^2 / 2.  With a mean, x and q here are
 * without it, and d is the same.  L1 has no such e.  A record of inner products does not say how
 * long x is.
 *
 * What is taken off, with u = 2^-24, n dimensions, and |X| >= |x|:
 *
 *	estimate	Each of its terms, at most |x|^2, |q|^2 and 2 |X||q| in size, is rounded six times
 *				or less: 9 u (|x|^2 + |q|^2 + |X|^2).  16 u is taken.  Elements of q are rounded to
 *				half a unit of 16 bits: 2 |X| sqrt(n) / 2 units.
 *	|e|^2		|X|^2 is rounded seven times, |x|^2 once: 32 u |X|^2 is added.
 *	x, q		are rotated in float32, and then cut to integers.  A step of the transform moves a
 *				vector by u of its length, a round of 13 steps and a weight by 15 u, and there are
 *				four.  Integers are 2^-22 of the largest element apart, which is |x| at most.  Twice
 *				that is taken: 128 u + 2 sqrt(n) 2^-22 of |X| + |q|.
 *	distance	is a sum of n products in float32, in some order: (n + 32) u of the sum of their
 *				sizes, which is the distance itself under L2 and at most 1 under cosine.  Twice that
 *				is taken.
 *	mean		Elements of x and q are rounded by u when it is taken off, which "x, q" above has
 *				room for: half of what is taken there.  Under cosine a row's length is off by
 *				4 sqrt(n) u at most, and the distance by twice that and 4 u, which is less than
 *				(n + 32) u, as much as "distance" above takes beyond need.
 *	underflow	Squares are absent below 2^-126, and vectors whose elements are.
 *
 * Numbers that overflow have the bound 0.
 */
typedef struct gg_code_bounds
{
	bool		cosine;
	bool		centred;
	float		square;			/* |q|^2 */
	float		length;			/* |q| */
	float		rounding;		/* of q's elements; times |X| */
	float		moved;			/* by rotating; times |X| + |q| */
	float		shrink;			/* what is left of d^2 */
	float		slack;			/* what is taken off d^2 then */
} gg_code_bounds;

#define GG_CODE_ROUNDING	0x1p-24f
#define GG_CODE_UNDERFLOW	0x1p-118f	/* of a sum of squares whose terms may underflow */

GG_RANDOM_INLINE bool
gg_code_has_bounds(gg_metric metric)
{
	return metric == GG_METRIC_L2 || metric == GG_METRIC_COSINE;
}

/* The bounds of a query; unit, base: as gg_code_estimate() takes them. */
GG_RANDOM_INLINE gg_code_bounds
gg_code_bounds_of(gg_metric metric, bool centred, uint32_t dim, float unit, float base)
{
	const float root = GG_CODE_ROOT((float) dim);
	const float sums = GG_CODE_MUL((float) (2 * (dim + 32)), GG_CODE_ROUNDING);
	const bool	cosine = metric == GG_METRIC_COSINE;
	gg_code_bounds bounds;

	bounds.cosine = cosine;
	bounds.centred = centred;
	bounds.square = !cosine ? base : centred ? 2.0f * base : 1.0f;
	bounds.length = GG_CODE_ROOT(bounds.square);
	bounds.rounding = GG_CODE_MUL(GG_CODE_MUL(1.001f, root), unit);
	bounds.moved = GG_CODE_ADD(128 * GG_CODE_ROUNDING, GG_CODE_MUL(root, 0x1p-21f));
	bounds.shrink = cosine ? 0.5f - 16 * GG_CODE_ROUNDING : GG_CODE_ADD(1.0f, -sums);
	bounds.slack = cosine ? sums : (float) GG_MAX_DIM * GG_CODE_UNDERFLOW;
	return bounds;
}

/* The sum of w_i^2; squares, sum: of u_i^2, and of u_i.  It fits, whatever wraps on the way. */
GG_RANDOM_INLINE uint32_t
gg_code_length(uint32_t bits, uint32_t dim, uint32_t squares, uint32_t sum)
{
	const uint32_t top = (1u << bits) - 1;

	return 4 * squares - 4 * top * sum + dim * top * top;
}

/* length: as of gg_code_length(). */
GG_RANDOM_INLINE float
gg_code_bound_of(const gg_code_bounds *bounds, gg_code_head head, uint32_t length, float estimate)
{
	const float size = fabsf(bounds->cosine ? head.factor : 0.5f * head.factor);
	const float decoded = GG_CODE_MUL(size, GG_CODE_ROOT((float) length));	/* |X| */
	const float square = GG_CODE_MUL(decoded, decoded);
	const float row = !bounds->cosine ? head.base : bounds->centred ? 2.0f * head.base : 1.0f;
	const float more = GG_CODE_ADD(square, -row);	/* row: |x|^2 */
	const float error = GG_CODE_ADD(more > 0.0f ? more : 0.0f,
									GG_CODE_MUL(32 * GG_CODE_ROUNDING, square));
	const float sizes = GG_CODE_ADD(GG_CODE_ADD(row, bounds->square), square);
	const float off = GG_CODE_ADD(GG_CODE_MUL(decoded, bounds->rounding),
								  GG_CODE_ADD(GG_CODE_MUL(16 * GG_CODE_ROUNDING, sizes),
											  GG_CODE_UNDERFLOW));
	const float least = GG_CODE_ADD(GG_CODE_ADD(bounds->cosine ? 2.0f * estimate : estimate,
												error), -off);
	const float away = GG_CODE_MUL(bounds->moved, GG_CODE_ADD(decoded, bounds->length));
	float		apart;

	/* also where something is not a number */
	if (!(least > 0.0f) || least > 0x1p126f)
		return 0.0f;
	apart = GG_CODE_ADD(GG_CODE_MUL(GG_CODE_ROOT(least), 1.0f - 4 * GG_CODE_ROUNDING),
						-GG_CODE_MUL(GG_CODE_ROOT(error), 1.0f + 4 * GG_CODE_ROUNDING));
	apart = GG_CODE_ADD(apart, -GG_CODE_ADD(away, 0x1p-110f));
	if (!(apart > 0.0f))
		return 0.0f;
	apart = GG_CODE_ADD(GG_CODE_MUL(GG_CODE_MUL(apart, apart), bounds->shrink), -bounds->slack);
	return apart > 0.0f ? apart : 0.0f;
}

/* ---- codes.c ------------------------------------------------------------- */

#ifdef __cplusplus
extern "C" {
#endif

struct gg_coder;

/* A query made ready for codes. */
typedef struct gg_code_query
{
	float		base;			/* what estimates add: gg_code_query_base(), gg_code_mean_base() */
	float		unit;			/* of elements */
	int32_t		sum;			/* of elements */

	/*
	 * Elements in the order of a record's bytes, lowest bits first: plane k, byte b, is at k *
	 * stride + b.  stride is the chunks' bytes, rounded up to 64; the rest is 0.
	 */
	int16_t    *elements;
	int8_t	   *high;			/* element = 256 high + low */
	int8_t	   *low;
	const float *values;		/* the query without the mean, for L1 */
} gg_code_query;

typedef float (*gg_code_distance_fn) (const struct gg_coder *coder, const uint8_t *record,
									  const gg_code_query *query);

/* What makes codes of one kind of rows. */
typedef struct gg_coder
{
	gg_metric	metric;
	uint32_t	dim;
	uint32_t	bits;
	uint32_t	block;
	uint32_t	rounds;
	uint32_t	chunk_bytes;
	uint32_t	record_bytes;
	uint32_t	stride;			/* of a query's planes */
	float	   *weights;		/* rounds x dim */
	const float *mean;			/* dim; NULL: there is none */
	int			mean_exponent;
	gg_code_distance_fn distance;
	void		(*set_weights) (const struct gg_coder *coder, uint64_t seed);
	/* row is changed; y: room for dim elements; record: zeros */
	void		(*code) (const struct gg_coder *coder, float *row, int32_t *y, uint8_t *record);
	void		(*set_query) (const struct gg_coder *coder, float *row, int32_t *y,
							  gg_code_query *query);
} gg_coder;

/* What codes are made by. */
typedef struct gg_code_kind
{
	gg_metric	metric;
	uint32_t	dim;
	gg_codes	codes;			/* that go with the metric */
	uint64_t	seed;
	const float *mean;			/* dim; NULL: there is none */
} gg_code_kind;

/* Scale a row to length 1, by the same bits on every processor. */
extern void gg_code_unit_row(float *row, uint32_t dim);

/*
 * Make a coder, for the instruction set in use now.  The mean is copied.  gg_coder_free() is due
 * after an error, too.
 */
extern gg_status gg_coder_init(gg_coder *coder, const gg_code_kind *kind);
extern void gg_coder_free(gg_coder *coder);

/* The same in memory of the caller's, of gg_coder_bytes(). */
extern size_t gg_coder_bytes(gg_metric metric, uint32_t dim);
extern void gg_coder_set_up(gg_coder *coder, const gg_code_kind *kind, void *memory);

/*
 * The mean of rows for their codes, or of GG_MEAN_ROWS of them, evenly spaced.  False: there is to
 * be none.  There are no rows, or no memory; or the mean is too large; or, under L1, elements of a
 * row lie, on average, no nearer to each other without it.
 */
#define GG_MEAN_ROWS	65536u

extern bool gg_code_mean(const gg_dataset *data, float *mean);

/* Code a row.  scratch: 2 x dim floats. */
extern void gg_code_row(const gg_coder *coder, const void *row, gg_element element, float *scratch,
						uint8_t *record);

/* The row that a record stands for: estimates of inner products are exact for that one. */
extern void gg_decode_row(const gg_coder *coder, const uint8_t *record, float *row);

extern gg_status gg_code_query_init(const gg_coder *coder, gg_code_query *query);
extern void gg_code_query_free(gg_code_query *query);

/* The same in memory of the caller's: gg_code_query_bytes(), all zeros. */
extern size_t gg_code_query_bytes(const gg_coder *coder);
extern void gg_code_query_place(const gg_coder *coder, gg_code_query *query, void *memory);

/* values: dim elements, prepared (gg_query_prepare()); they must stay.  scratch: 2 x dim floats. */
extern void gg_code_query_set(const gg_coder *coder, const float *values, float *scratch,
							  gg_code_query *query);

/* The estimate of a distance. */
static inline float
gg_code_distance(const gg_coder *coder, const uint8_t *record, const gg_code_query *query)
{
	return coder->distance(coder, record, query);
}

/*
 * loss[i] becomes how much more of the ten nearest, a share, walks by rows find than walks by codes
 * of that kind, with the i-th of the lists 16 and 64.  A sample of the rows are the queries.  Takes
 * memory for all codes.  GG_EINVAL: rows not float32, or none.  GG_ENOMEM, GG_ECANCELED.
 */
#define GG_LOSS_LISTS	2

extern gg_status gg_cpu_code_loss(const gg_dataset *data, const gg_graph *graph,
								  const gg_code_kind *kind, const gg_control *control,
								  double *loss);

/* A lower bound of a distance, if gg_code_has_bounds().  bounds: gg_code_bounds_of() the query. */
extern float gg_code_bound(const gg_coder *coder, const uint8_t *record, const gg_code_query *query,
						   const gg_code_bounds *bounds);

#ifdef __cplusplus
}
#endif

#endif							/* GG_CODES_H */
