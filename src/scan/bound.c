/*
 * bound.c
 *		What a distance to a rounded row says about the distance to the row itself.
 *
 * With storage = 'float16' a vector column is stored rounded to half precision.  The scan's order
 * is that of the distances to rounded rows.  SQL asks for the order of the operator over the heap's
 * values.  The executor makes the second order from the first.  With each row it is given a number
 * that is not above the operator's value for this row, nor for any later row.  It computes the
 * operator's value itself, and keeps the row back until the number has passed it.  A number that is
 * too low costs rows fetched ahead.  One that is too high is an error ("index returned tuples in
 * wrong order"), so what follows is the worst case, never the typical case.
 *
 * Let x be the column's value, y the stored row, q the query, n the dimensions.
 *
 * Rounding		|x_i - y_i| <= 2^-11 |y_i| + 2^-25: the first term is that of normal halves, the
 *				second that of subnormal ones.  So |x - y| <= D |y| + n' with D = 2^-11 and
 *				n' = 2^-25 sqrt(n), or 2^-25 n for sums of absolute values.  D is taken 1/256
 *				larger.  That covers products of errors, and 65504 < |x_i| < 65520, which is stored
 *				as 65504.
 *
 * Arithmetic	Both the engine and pgvector sum n products of float32, in an order that nobody
 *				promises.  The error is at most G times the sum of the absolute values, with
 *				G = n u / (1 - n u) and u = 2^-24 (Higham, Accuracy and Stability of Numerical
 *				Algorithms, 2002, section 3.1).  n + 32 stands for n, for the few operations before
 *				and after the sum.  Under L2 what underflows adds less than is spent on subnormal
 *				halves, where 2^-24 is used for 2^-25.  A difference of L1 never underflows.
 *
 * The number must rise with the distance, or it would not hold for later rows.  So it may depend on
 * the row only through the distance, and |y| itself must be bounded:
 *
 * L2, L1		|q - x| >= |q - y| - |x - y|, and |y| <= |q| + |q - y|, in the norm of the metric:
 *				d (1 - D) - D |q| - n'.
 *
 * IP			-<q, x> >= -<q, y> - D |q||y| - 2^-25 sum |q_i|.  |y| is at most the largest length
 *				of any row stored, which the metapage has.  G counts twice here, for the engine and
 *				for pgvector, as the sum of absolute values is at most |q||y| for both.  A product
 *				that underflows loses less than the least normal float32, for both, too.  Of rows
 *				that are not rounded G is all there is.
 *
 * Cosine		The angle between x and y has a sine of at most |x - y| / |y|, since the distance
 *				from y to the line through x is |y| times the sine.  So the angle is at most
 *				a = asin(D + n'), as |y| >= 1 nearly.  Angles obey the triangle inequality:
 *				1 - cos(max(0, angle(q, y) - a)).  G counts once for the product and half for each
 *				square: 2 G.
 */
#include "scan/bound.h"

#include <float.h>
#include <math.h>

#include "utils/float.h"
#include "vector/vector.h"

#define HALF_ROUNDING		(0x1p-11 * (1 + 0x1p-8))
#define HALF_SUBNORMAL		0x1p-24
#define FLOAT_ROUNDING		0x1p-24

/* From here on float32 sums may overflow, and nothing is known. */
#define LARGEST_PRODUCT		(FLT_MAX / 4)

/*
 * Make the bound of rows that are stored as they are: only arithmetic differs.  Under inner product
 * GgBoundInitProduct() makes it.
 */
static void
InitExact(GgBound *bound, double n, double sums, bool has_query)
{
	bound->factor = (1 - sums) * (1 - sums);
	bound->slack = 2 * sums * (1 + 0x1p-7);
	if (!has_query || bound->metric == GG_METRIC_IP)
		bound->offset = get_float8_infinity();
	else if (bound->metric == GG_METRIC_L2)
		bound->offset = sqrt(n * FLT_MIN);
}

/*
 * Make the bound of rounded rows.  length, sum: of the query, in the norms of L2 and L1.  largest:
 * a length that no row exceeds; 0: not known.
 */
static void
InitRounded(GgBound *bound, double n, double sums, double length, double sum, double largest)
{
	switch (bound->metric)
	{
		case GG_METRIC_L2:
			/* errors of sums of squares count half in the root; here they count in full */
			bound->factor = (1 - HALF_ROUNDING) * (1 - sums) * (1 - sums);
			bound->offset = HALF_ROUNDING * length + HALF_SUBNORMAL * sqrt(n);
			break;

		case GG_METRIC_L1:
			bound->factor = (1 - HALF_ROUNDING) * (1 - sums) * (1 - sums);
			bound->offset = HALF_ROUNDING * sum + HALF_SUBNORMAL * n;
			break;

		case GG_METRIC_IP:
			{
				/* largest was rounded to float32 when it was stored */
				double		product = length * largest * (1 + 0x1p-20);

				bound->factor = 1;
				bound->offset = (HALF_ROUNDING + 2 * sums * (1 + 2 * HALF_ROUNDING)) * product +
					HALF_SUBNORMAL * sum + 2 * n * FLT_MIN;
				if (largest == 0 || product >= LARGEST_PRODUCT)
					bound->offset = get_float8_infinity();
			}
			break;

		case GG_METRIC_COSINE:
			bound->sine = HALF_ROUNDING + HALF_SUBNORMAL * sqrt(n);
			bound->slack = 2 * sums * (1 + 0x1p-7);
			if (length > 0 && (length < 1 / GG_MAX_COSINE_LENGTH || length > GG_MAX_COSINE_LENGTH))
				bound->offset = get_float8_infinity();
			break;
	}
}

void
GgBoundInit(GgBound *bound, const GgOpclass *opclass, const GgMetaPageData *meta, Datum value,
			const float *query)
{
	double		n = meta->dimensions;
	double		u = (n + 32) * FLOAT_ROUNDING;
	double		sums = u / (1 - u);
	double		sum = 0.0,
				square = 0.0,
				length;
	Vector	   *vector;

	memset(bound, 0, sizeof(*bound));
	bound->metric = opclass->metric;
	if (query == NULL || meta->element == opclass->element)
	{
		InitExact(bound, n, sums, query != NULL);
		return;
	}

	/* the query as it was before GgQueryFromValue() prepared it */
	vector = (Vector *) PG_DETOAST_DATUM(value);
	for (int i = 0; i < vector->dim; i++)
	{
		sum += fabs(vector->x[i]);
		square += (double) vector->x[i] * vector->x[i];
	}
	length = sqrt(square);
	if ((Pointer) vector != DatumGetPointer(value))
		pfree(vector);

	/* under cosine a query of length 0 has NaN for every row: there is no order */
	bound->rounded = bound->metric != GG_METRIC_COSINE || length > 0;
	InitRounded(bound, n, sums, length, sum, meta->largest_length);
}

float
GgBoundInitProduct(GgBound *bound, const GgMetaPageData *meta, const float *query)
{
	const double n = meta->dimensions;
	const double u = (n + 32) * FLOAT_ROUNDING;
	double		square = 0.0,
				product;

	for (uint32 i = 0; i < meta->dimensions; i++)
		square += (double) query[i] * query[i];
	product = sqrt(square) * meta->largest_length * (1 + 0x1p-20);
	if (product >= LARGEST_PRODUCT)
		return 0;
	if (!bound->rounded)
	{
		bound->factor = 1;
		bound->offset = 2 * u / (1 - u) * product + 2 * n * FLT_MIN;
	}
	return (float) (product + bound->offset + FLT_MIN);
}

void
GgBoundInitHalves(GgBound *bound, const GgMetaPageData *meta, const float *query)
{
	double		n = meta->dimensions;
	double		u = (n + 32) * FLOAT_ROUNDING;
	double		sum = 0.0,
				square = 0.0;

	memset(bound, 0, sizeof(*bound));
	bound->metric = (gg_metric) meta->metric;
	for (uint32 i = 0; i < meta->dimensions; i++)
	{
		sum += fabs(query[i]);
		square += (double) query[i] * query[i];
	}
	InitRounded(bound, n, u / (1 - u), sqrt(square), sum, 0);
}

static double
CosineBound(const GgBound *bound, double distance)
{
	double		cosine = Max(1 - distance + bound->slack, -1);
	double		most = sqrt(1 - bound->sine * bound->sine); /* cosine of the angle itself */

	if (cosine >= most)
		return 0;
	return 1 - (cosine * most + sqrt(1 - cosine * cosine) * bound->sine) - bound->slack;
}

double
GgBoundOf(const GgBound *bound, float distance)
{
	/* infinity is an overflow: the sum was this or more */
	double		d = Min(distance, FLT_MAX);
	double		least;

	if (isinf(bound->offset))
		return -get_float8_infinity();
	switch (bound->metric)
	{
		case GG_METRIC_L2:
			least = sqrt(d) * bound->factor - bound->offset;
			break;
		case GG_METRIC_COSINE:
			least = CosineBound(bound, d);
			break;
		case GG_METRIC_IP:
			return d * bound->factor - bound->offset;
		default:
			least = d * bound->factor - bound->offset;
			break;
	}
	return Max(least, 0);
}

double
GgBoundOfKey(const GgBound *bound, float distance)
{
	double		least = GgBoundOf(bound, distance);

	return bound->metric == GG_METRIC_L2 ? least * least : least;
}
