/*
 * test_code_bounds.c
 *		Bounds from codes (engine/rules/codes.h): no distance of any pair is below the pair's, and
 *		that of ordinary rows is as near to the distance as the definition says.
 *
 * Rows are ordinary ones and those that arithmetic is worst for.  Queries are such rows, too, and
 * rows again: the row itself, its opposite, one beside it, and those that lie in the direction of
 * the code's error, where the bound has nothing to spare but what it leaves to rounding.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "code_tools.h"

static const gg_metric metrics[] = {GG_METRIC_L2, GG_METRIC_COSINE};
static const gg_element elements[] = {GG_ELEMENT_F32, GG_ELEMENT_F16};
static const gg_codes kinds[] = {GG_CODES_INT8, GG_CODES_INT4};
static const char *const sets[] = {"avx512", "avx2", "neon", "plain"};
static const uint32_t dims[] = {1, 2, 3, 8, 31, 96, 100, 200, 784, 1536, 16000};

#define NSETS (sizeof(sets) / sizeof(sets[0]))
#define SEED 7
#define QUERIES 16				/* of a row */

typedef enum row_kind
{
	ROW_NORMAL, ROW_ONE, ROW_FEW, ROW_STEPS, ROW_FAR, ROW_CONSTANT, ROW_ZERO, ROW_UNEVEN, ROW_LARGE,
	ROW_SMALL,
	/* these are no halves */
	ROW_HUGE, ROW_OVERFLOWING, ROW_TINY, ROW_UNDERFLOWING, ROW_DENORMAL, ROW_KINDS
} row_kind;

typedef enum query_kind
{
	QUERY_ITSELF, QUERY_OPPOSITE, QUERY_NEAR, QUERY_LONGER, QUERY_ALONG, QUERY_AGAINST, QUERY_OTHER
} query_kind;

/* A row and its record, and a query. */
typedef struct pair
{
	tools		code;			/* halves: the stored row of that type */
	gg_element	element;
	float	   *row;			/* of code, as the stored one has it */
	float	   *decoded;
	float	   *values;			/* of code: the query */
} pair;

static uint64_t pairs;
static uint64_t wrong;

/* mean: NULL, or what codes are centred by. */
static void
pair_make(pair *t, gg_metric metric, uint32_t dim, gg_codes codes, gg_element element,
		  const float *mean)
{
	tools_make_centred(&t->code, metric, dim, codes, SEED, mean);
	t->element = element;
	t->row = t->code.row;
	t->values = t->code.asked;
	t->decoded = malloc(dim * sizeof(float));
}

static void
pair_free(pair *t)
{
	tools_free(&t->code);
	free(t->decoded);
}

/* What rows of this kind are multiplied by. */
static float
size_of(row_kind kind, harness_random *random)
{
	switch (kind)
	{
		case ROW_LARGE:
			return 0x1p13f;
		case ROW_SMALL:
			return 0x1p-12f;
		case ROW_HUGE:
			return 0x1p57f;
		case ROW_OVERFLOWING:
			return ldexpf(1, 60 + (int) (harness_unit(random) * 64));
		case ROW_TINY:
			return 0x1p-50f;
		case ROW_UNDERFLOWING:
			return ldexpf(1, -80 + (int) (harness_unit(random) * 30));
		case ROW_DENORMAL:
			return ldexpf(1, -140 + (int) (harness_unit(random) * 16));
		default:
			return 1;
	}
}

static void
make_row(row_kind kind, harness_random *random, float *row, uint32_t dim)
{
	const float size = size_of(kind, random);

	memset(row, 0, dim * sizeof(float));
	if (kind == ROW_ZERO)
		return;
	if (kind == ROW_ONE || kind == ROW_FEW)
	{
		for (int i = 0; i < (kind == ROW_ONE ? 1 : 3); i++)
			row[(uint32_t) (harness_unit(random) * dim)] = (float) harness_normal(random);
		return;
	}
	for (uint32_t i = 0; i < dim; i++)
	{
		const float x = (float) harness_normal(random);

		row[i] = kind == ROW_STEPS ? (float) (int) (harness_unit(random) * 256) :
			kind == ROW_FAR ? x + 50 : kind == ROW_CONSTANT ? 0.7f :
			kind == ROW_UNEVEN ? ldexpf(x, -(int) (i % 14)) : x * size;
	}
}

/* Store a row, as an index does: at unit length under cosine, in halves if they are its type. */
static void
store_row(pair *t)
{
	const uint32_t dim = t->code.coder.dim;
	const void *stored = t->row;

	gg_query_prepare(t->code.coder.metric, t->row, dim);
	if (t->element == GG_ELEMENT_F16)
	{
		for (uint32_t i = 0; i < dim; i++)
		{
			t->code.halves[i] = gg_float_to_half(t->row[i]);
			t->row[i] = gg_half_to_float(t->code.halves[i]);
		}
		stored = t->code.halves;
	}
	gg_code_row(&t->code.coder, stored, t->element, t->code.scratch, t->code.record);
	gg_decode_row(&t->code.coder, t->code.record, t->decoded);
}

/* A query for the row; returns false where it is not finite. */
static bool
make_query(pair *t, query_kind kind, row_kind row, harness_random *random)
{
	const uint32_t dim = t->code.coder.dim;
	const float size = (float) pow(10, -6 * harness_unit(random));
	const float times = (float) pow(10, 4 * harness_unit(random) - 2);
	/* of unit length, where the row is not */
	const bool	cosine = t->code.coder.metric == GG_METRIC_COSINE;
	double		square = 0;
	double		length;
	bool		finite = true;

	for (uint32_t i = 0; i < dim; i++)
		square += (double) t->row[i] * t->row[i];
	length = cosine && square > 0 ? 1 / sqrt(square) : 1;
	if (kind == QUERY_OTHER)
		make_row(harness_unit(random) < 0.5 ? row :
				 (row_kind) (harness_unit(random) * ROW_KINDS), random, t->values, dim);
	for (uint32_t i = 0; i < dim && kind != QUERY_OTHER; i++)
	{
		const float x = t->row[i];
		const float error = t->decoded[i] - (float) (x * length);

		t->values[i] = kind == QUERY_ITSELF ? x : kind == QUERY_OPPOSITE ? -x :
			kind == QUERY_NEAR ? x + size * x * (float) harness_normal(random) :
			kind == QUERY_LONGER ? x * times :
			(float) (x * length) + (kind == QUERY_ALONG ? times : -times) * error;
	}
	gg_query_prepare(t->code.coder.metric, t->values, dim);
	for (uint32_t i = 0; i < dim; i++)
		finite &= isfinite(t->values[i]) != 0;
	return finite;
}

static double
true_distance(const pair *t)
{
	const double distance = harness_distance(t->code.coder.metric, t->row, t->values,
											 t->code.coder.dim, NULL);

	return fmax(0, distance);
}

static void
check_pair(pair *t, const gg_distance_fn *functions, row_kind row, query_kind query)
{
	const void *stored = t->element == GG_ELEMENT_F16 ? (void *) t->code.halves : (void *) t->row;
	double		distance = true_distance(t);
	gg_code_bounds bounds;
	float		bound;

	gg_code_query_set(&t->code.coder, t->values, t->code.scratch, &t->code.query);
	bounds = gg_code_bounds_of(t->code.coder.metric, t->code.coder.mean != NULL,
							   t->code.coder.dim, t->code.query.unit, t->code.query.base);
	bound = gg_code_bound(&t->code.coder, t->code.record, &t->code.query, &bounds);
	pairs++;
	for (size_t s = 0; s < NSETS; s++)
		if (functions[s] != NULL)
			distance = fmin(distance, functions[s] (stored, t->values, t->code.coder.dim));
	if (bound >= 0 && bound <= distance)
		return;
	if (++wrong <= 10)
		CHECK(false, "metric %d element %d bits %u dim %u%s row %d query %d: bound %.9g of %.9g",
			  (int) t->code.coder.metric, (int) t->element, t->code.coder.bits,
			  t->code.coder.dim, t->code.coder.mean != NULL ? " centred" : "", (int) row,
			  (int) query, (double) bound, distance);
}

/* A mean that some kinds of rows lie near: ROW_FAR, and under cosine the constant ones. */
static void
make_mean(gg_metric metric, uint32_t dim, float *mean)
{
	harness_random random = {dim};

	for (uint32_t i = 0; i < dim; i++)
		mean[i] = metric == GG_METRIC_L2 ? (float) (50 + 0.1 * harness_normal(&random)) :
			0.9f / sqrtf((float) dim);
}

static void
check_kind(gg_metric metric, gg_element element, gg_codes codes, uint32_t dim, bool centred)
{
	harness_random random = {(uint64_t) dim * 100 + codes};
	const uint32_t most = harness_size(2000000, 50) / dim;
	const uint32_t rows = (most < 30000 ? most : 30000) / QUERIES + 1;
	float	   *mean = malloc(dim * sizeof(float));
	const row_kind last = element == GG_ELEMENT_F16 ? ROW_SMALL + 1 : ROW_KINDS;
	gg_distance_fn functions[NSETS] = {NULL};
	pair		t;

	for (size_t s = 0; s < NSETS; s++)
		if (gg_simd_force(sets[s]))
			functions[s] = gg_distance_function(metric, element);
	gg_simd_force(NULL);
	make_mean(metric, dim, mean);
	pair_make(&t, metric, dim, codes, element, centred ? mean : NULL);
	free(mean);
	for (uint32_t i = 0; i < rows; i++)
	{
		const row_kind row = (row_kind) (i % last);

		make_row(row, &random, t.row, dim);
		store_row(&t);
		for (uint32_t q = 0; q < QUERIES; q++)
		{
			query_kind	query = q < QUERY_OTHER ? (query_kind) q : QUERY_OTHER;

			if (q >= QUERIES - 6)
				query = (query_kind) (QUERY_NEAR + q % 4);
			if (make_query(&t, query, row, &random))
				check_pair(&t, functions, row, query);
		}
	}
	pair_free(&t);
}

static void
test_none_below(void)
{
	for (int m = 0; m < 2; m++)
		for (int e = 0; e < 2; e++)
			for (int k = 0; k < 2; k++)
				for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++)
					for (int centred = 0; centred < 2; centred++)
						check_kind(metrics[m], elements[e], kinds[k], dims[d], centred != 0);
	CHECK(wrong == 0, "%llu of %llu pairs are below their bounds", (unsigned long long) wrong,
		  (unsigned long long) pairs);
	CHECK(harness_small() || pairs > 1500000, "%llu pairs", (unsigned long long) pairs);
}

/*
 * Of ordinary rows and queries the bound is not below sqrt(d^2 + e^2 - 2 e d c) - e, where c is a
 * correlation of the error and the query that chance does not exceed.
 */
static void
test_near(void)
{
	harness_random random = {4};

	for (int m = 0; m < 2; m++)
		for (int k = 0; k < 2; k++)
			for (size_t d = 6; d < 10; d++)
			{
				pair		t;

				pair_make(&t, metrics[m], dims[d], kinds[k], GG_ELEMENT_F32, NULL);
				for (uint32_t i = 0; i < 50; i++)
				{
					const double c = 6 / sqrt(dims[d]);
					double		error = 0;
					double		apart;
					double		least;
					float		bound;
					gg_code_bounds bounds;

					make_row(ROW_NORMAL, &random, t.row, dims[d]);
					store_row(&t);
					make_row(ROW_NORMAL, &random, t.values, dims[d]);
					gg_query_prepare(metrics[m], t.values, dims[d]);
					for (uint32_t j = 0; j < dims[d]; j++)
						error += pow((double) t.decoded[j] - t.row[j], 2);
					apart = true_distance(&t) * (m == 0 ? 1 : 2);
					least = sqrt(apart + error - 2 * sqrt(apart * error) * c) - sqrt(error);
					least *= least * (m == 0 ? 1 : 0.5);
					gg_code_query_set(&t.code.coder, t.values, t.code.scratch, &t.code.query);
					bounds = gg_code_bounds_of(metrics[m], false, dims[d], t.code.query.unit,
											   t.code.query.base);
					bound = gg_code_bound(&t.code.coder, t.code.record, &t.code.query, &bounds);
					CHECK(bound > 0.995 * least,
						  "metric %d bits %u dim %u: a bound of %g, not %g", (int) metrics[m],
						  t.code.coder.bits, dims[d], bound, least);
				}
				pair_free(&t);
			}
}

int
main(void)
{
	test_none_below();
	test_near();
	return harness_finish();
}
