/*
 * test_distance.c
 *		Every instruction set's distances against sums in double precision, half conversion
 *		against its definition.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "engine/keys.h"

static const char *const sets[] = {"avx512", "avx2", "neon", "plain"};
static const gg_metric metrics[] = {GG_METRIC_L2, GG_METRIC_IP, GG_METRIC_COSINE, GG_METRIC_L1};
static const gg_element elements[] = {GG_ELEMENT_F32, GG_ELEMENT_F16};

#define DIM_MAX 16000

static uint64_t random_state = 1;

/* In [0, 1). */
static float
random_unit(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (float) (random_state >> 40) / 16777216.0f;
}

/* ---- half precision ---------------------------------------------------- */

/* The value that the bits of a half stand for; no NaN here. */
static double
half_value(uint16_t half)
{
	int			exponent = half >> 10 & 0x1F;
	int			mantissa = half & 0x3FF;
	double		magnitude;

	if (exponent == 0x1F)
		magnitude = INFINITY;
	else if (exponent == 0)
		magnitude = ldexp(mantissa, -24);
	else
		magnitude = ldexp(1024 + mantissa, exponent - 25);
	return half & 0x8000 ? -magnitude : magnitude;
}

static bool
half_is_nan(uint16_t half)
{
	return (half & 0x7C00) == 0x7C00 && (half & 0x3FF) != 0;
}

static uint32_t
float_bits(float value)
{
	uint32_t	bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static void
test_every_half(void)
{
	int			wrong = 0;

	for (uint32_t i = 0; i < 65536; i++)
	{
		uint16_t	half = (uint16_t) i;
		float		value = gg_half_to_float(half);

		if (half_is_nan(half))
		{
			/* still a NaN, of the same sign, and so is its way back */
			wrong += !isnan(value) || (signbit(value) != 0) != (half >> 15) ||
				!half_is_nan(gg_float_to_half(value));
			continue;
		}
		wrong += (double) value != half_value(half) || (signbit(value) != 0) != (half >> 15);
		wrong += gg_float_to_half(value) != half;
	}
	CHECK(wrong == 0, "%d of 65536 halves convert wrongly", wrong);
}

/* Between each two neighbouring halves: below the middle, the middle, above it. */
static void
test_round_to_even(void)
{
	int			wrong = 0;

	for (uint32_t i = 0; i < 0x7C00; i++)
	{
		uint16_t	low = (uint16_t) i;
		double		next = i + 1 == 0x7C00 ? 65536.0 : half_value((uint16_t) (i + 1));
		float		middle = (float) ((half_value(low) + next) / 2);	/* exact */
		uint16_t	even = (uint16_t) (i & 1 ? i + 1 : i);

		wrong += gg_float_to_half(middle) != even;
		wrong += gg_float_to_half(-middle) != (even | 0x8000);
		wrong += gg_float_to_half(nextafterf(middle, 0.0f)) != low;
		wrong += gg_float_to_half(nextafterf(middle, INFINITY)) != low + 1;
	}
	CHECK(wrong == 0, "%d roundings are wrong", wrong);
	CHECK(gg_float_to_half(65519.996f) == 0x7BFF, "below the middle to 2^16");
	CHECK(gg_float_to_half(65520.0f) == 0x7C00, "the middle to 2^16 is infinity");
	CHECK(gg_float_to_half(3.0e38f) == 0x7C00, "a large float is infinity");
	CHECK(gg_float_to_half(-INFINITY) == 0xFC00, "minus infinity");
	CHECK(gg_float_to_half(1.0e-40f) == 0, "a subnormal float is zero");
	CHECK(gg_float_to_half(-0.0f) == 0x8000, "minus zero keeps its sign");
}

/* In bulk, and where the floats were. */
static void
test_floats_to_halves(void)
{
	static float floats[4 * 0x7C00 + 5];
	static uint16_t halves[4 * 0x7C00 + 5];
	const size_t count = 4 * 0x7C00;
	int			wrong = 0;

	for (uint32_t i = 0; i < 0x7C00; i++)
	{
		float		value = gg_half_to_float((uint16_t) i);
		float		next = i + 1 == 0x7C00 ? 65536.0f : gg_half_to_float((uint16_t) (i + 1));
		float		middle = (float) (((double) value + next) / 2);

		floats[4 * i] = -value;
		floats[4 * i + 1] = middle;
		floats[4 * i + 2] = -nextafterf(middle, 0.0f);
		floats[4 * i + 3] = nextafterf(middle, INFINITY);
	}
	floats[count] = INFINITY;
	floats[count + 1] = -3e38f;
	floats[count + 2] = 1e-40f;
	for (size_t n = 0; n < 40; n++)
	{
		gg_floats_to_halves(floats + count + 3 - n, halves, n);
		for (size_t i = 0; i < n; i++)
			wrong += halves[i] != gg_float_to_half(floats[count + 3 - n + i]);
	}
	for (size_t i = 0; i < count + 3; i++)
		halves[i] = gg_float_to_half(floats[i]);
	gg_floats_to_halves(floats, (uint16_t *) floats, count + 3);
	wrong += memcmp(floats, halves, (count + 3) * sizeof(uint16_t)) != 0;
	CHECK(wrong == 0, "%d floats become other halves in bulk", wrong);
}

static void
test_halves_to_floats(void)
{
	static uint16_t halves[65537];
	static float floats[65536];
	int			wrong = 0;

	for (uint32_t i = 0; i < 65536; i++)
		halves[i + 1] = (uint16_t) i;
	gg_halves_to_floats(halves + 1, floats, 65536);
	for (uint32_t i = 0; i < 65536; i++)
		wrong += float_bits(floats[i]) != float_bits(gg_half_to_float((uint16_t) i));
	CHECK(wrong == 0, "%d of 65536 halves convert otherwise in bulk", wrong);

	/* short runs write their own elements and no more */
	for (size_t count = 0; count < 40; count++)
	{
		for (size_t i = 0; i < 64; i++)
			floats[i] = -1;
		gg_halves_to_floats(halves + 0x3C01, floats, count);
		wrong = 0;
		for (size_t i = 0; i < 64; i++)
			wrong += floats[i] != (i < count ? gg_half_to_float((uint16_t) (0x3C00 + i)) : -1.0f);
		CHECK(wrong == 0, "%d elements wrong after a run of %zu", wrong, count);
	}
}

/* ---- distances --------------------------------------------------------- */

static void
check_dim(const char *set, gg_metric metric, gg_element element, uint32_t dim, size_t shift)
{
	static float row[DIM_MAX],
				query[DIM_MAX];
	static float wide[DIM_MAX + 32];
	char	   *stored;
	size_t		bytes = dim * gg_element_size(element);
	double		expected,
				scale;
	float		got;

	for (uint32_t i = 0; i < dim; i++)
	{
		row[i] = random_unit() * 2 - 1;
		query[i] = random_unit() * 2 - 1;
	}
	gg_query_prepare(metric, query, dim);
	if (element == GG_ELEMENT_F32)
		gg_query_prepare(metric, row, dim); /* unit rows under cosine */

	/* the row ends where its block ends, so that a sanitizer sees any read past it */
	stored = malloc(bytes + shift);
	for (uint32_t i = 0; i < dim; i++)
	{
		if (element == GG_ELEMENT_F16)
		{
			uint16_t	half = gg_float_to_half(row[i]);

			memcpy(stored + shift + i * 2, &half, 2);
			row[i] = gg_half_to_float(half);
		}
		else
			memcpy(stored + shift + i * 4, &row[i], 4);
	}
	memcpy(wide + shift % 16, query, dim * sizeof(float));

	expected = harness_distance(metric, row, query, dim, &scale);
	got = gg_distance_function(metric, element) (stored + shift, wide + shift % 16, dim);

	/* sums of up to 16000 terms in at least two accumulators, each step rounding by 2^-24 */
	CHECK(fabs(got - expected) <= scale * (1e-6 + dim * 1e-9),
		  "%s metric %d element %d dim %u: %.9g, expected %.9g",
		  set, (int) metric, (int) element, dim, got, expected);
	free(stored);
}

static void
test_dims(const char *set)
{
	static const uint32_t large[] = {97, 128, 784, 960, 2000, 4097, 16000};

	for (size_t m = 0; m < sizeof(metrics) / sizeof(metrics[0]); m++)
	{
		for (size_t e = 0; e < sizeof(elements) / sizeof(elements[0]); e++)
		{
			for (uint32_t dim = 1; dim <= 70; dim++)
			{
				check_dim(set, metrics[m], elements[e], dim, 0);
				check_dim(set, metrics[m], elements[e], dim, 2 + dim % 31 * 2);
			}
			for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
			{
				check_dim(set, metrics[m], elements[e], large[i], 0);
				check_dim(set, metrics[m], elements[e], large[i], 2);
				check_dim(set, metrics[m], elements[e], large[i], 36);
			}
		}
	}
}

/* Fill a stored row with one value. */
static void
fill_row(void *stored, gg_element element, float value, uint32_t dim)
{
	for (uint32_t i = 0; i < dim; i++)
	{
		if (element == GG_ELEMENT_F16)
			((uint16_t *) stored)[i] = gg_float_to_half(value);
		else
			((float *) stored)[i] = value;
	}
}

static void
test_not_finite(const char *set)
{
	static const uint32_t dims[] = {1, 7, 16, 19, 64, 100};
	static float stored[128];
	static float query[128];

	for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++)
	{
		uint32_t	dim = dims[d];

		for (size_t e = 0; e < 2; e++)
		{
			gg_element	element = elements[e];

			for (size_t m = 0; m < 4; m++)
			{
				gg_distance_fn distance = gg_distance_function(metrics[m], element);

				fill_row(stored, element, NAN, dim);
				fill_row(query, GG_ELEMENT_F32, 0.5f, dim);
				CHECK(distance(stored, query, dim) == INFINITY,
					  "%s metric %d element %d dim %u: a NaN row is at infinity",
					  set, (int) metrics[m], (int) element, dim);

				fill_row(stored, element, 0.5f, dim);
				query[dim - 1] = NAN;
				CHECK(distance(stored, query, dim) == INFINITY,
					  "%s metric %d element %d dim %u: a NaN query is at infinity",
					  set, (int) metrics[m], (int) element, dim);
			}

			/* inf - inf */
			fill_row(stored, element, INFINITY, dim);
			fill_row(query, GG_ELEMENT_F32, INFINITY, dim);
			CHECK(gg_distance_function(GG_METRIC_L2, element) (stored, query, dim) == INFINITY,
				  "%s: inf - inf under L2", set);
			CHECK(gg_distance_function(GG_METRIC_L1, element) (stored, query, dim) == INFINITY,
				  "%s: inf - inf under L1", set);
			fill_row(query, GG_ELEMENT_F32, 0.0f, dim);
			CHECK(gg_distance_function(GG_METRIC_IP, element) (stored, query, dim) == INFINITY,
				  "%s: inf * 0 under IP", set);
			fill_row(query, GG_ELEMENT_F32, 1.0f, dim);
			CHECK(gg_distance_function(GG_METRIC_L2, element) (stored, query, dim) == INFINITY,
				  "%s: inf - 1 under L2", set);
			CHECK(gg_distance_function(GG_METRIC_IP, element) (stored, query, dim) == -INFINITY,
				  "%s: inf * 1 under IP", set);

			/* zero rows and queries under cosine */
			fill_row(stored, element, 0.0f, dim);
			CHECK(gg_distance_function(GG_METRIC_COSINE, element) (stored, query, dim) == 1.0f,
				  "%s: a zero row under cosine", set);
			fill_row(stored, element, 1.0f, dim);
			fill_row(query, GG_ELEMENT_F32, 0.0f, dim);
			gg_query_prepare(GG_METRIC_COSINE, query, dim);
			CHECK(query[0] == 0.0f, "a zero query stays zero");
			CHECK(gg_distance_function(GG_METRIC_COSINE, element) (stored, query, dim) == 1.0f,
				  "%s: a zero query under cosine", set);
		}
	}

	/* sums that overflow float */
	fill_row(stored, GG_ELEMENT_F32, 3e38f, 64);
	fill_row(query, GG_ELEMENT_F32, -3e38f, 64);
	for (size_t m = 0; m < 4; m++)
	{
		float		distance = gg_distance_function(metrics[m], GG_ELEMENT_F32) (stored, query, 64);

		CHECK(!isnan(distance), "%s metric %d: overflow is not NaN", set, (int) metrics[m]);
	}
}

/* Rounding must not take a cosine distance out of [0, 2]. */
static void
test_cosine_range(const char *set)
{
	static float row[300],
				query[300];
	static uint16_t halves[300];
	int			wrong = 0;

	for (uint32_t dim = 1; dim <= 300; dim++)
	{
		for (uint32_t i = 0; i < dim; i++)
		{
			row[i] = random_unit() + 0.1f;
			halves[i] = gg_float_to_half(row[i]);
			query[i] = gg_half_to_float(halves[i]);
		}
		gg_query_prepare(GG_METRIC_COSINE, row, dim);
		gg_query_prepare(GG_METRIC_COSINE, query, dim);
		for (int sign = 0; sign < 2; sign++)
		{
			float		same = sign ? 2.0f : 0.0f;
			gg_distance_fn of_floats = gg_distance_function(GG_METRIC_COSINE, GG_ELEMENT_F32);
			gg_distance_fn of_halves = gg_distance_function(GG_METRIC_COSINE, GG_ELEMENT_F16);
			float		d32 = of_floats(row, row, dim);
			float		d16 = of_halves(halves, query, dim);

			if (sign)
			{
				static float negative[300];

				for (uint32_t i = 0; i < dim; i++)
					negative[i] = -row[i];
				d32 = gg_distance_function(GG_METRIC_COSINE, GG_ELEMENT_F32) (negative, row, dim);
				for (uint32_t i = 0; i < dim; i++)
					query[i] = -query[i];
				d16 = gg_distance_function(GG_METRIC_COSINE, GG_ELEMENT_F16) (halves, query, dim);
			}
			wrong += d32 < 0 || d32 > 2 || fabsf(d32 - same) > 1e-6f;
			wrong += d16 < 0 || d16 > 2 || fabsf(d16 - same) > 1e-6f;
		}
	}
	CHECK(wrong == 0, "%s: %d cosine distances out of range", set, wrong);
}

static void
test_query_prepare(void)
{
	float		query[3] = {3e20f, -4e20f, 0};
	float		same[3] = {3, -4, 0};

	gg_query_prepare(GG_METRIC_COSINE, query, 3);
	CHECK(fabsf(query[0] - 0.6f) < 1e-6f && fabsf(query[1] + 0.8f) < 1e-6f,
		  "a query whose square overflows float gets unit length");
	gg_query_prepare(GG_METRIC_L2, same, 3);
	gg_query_prepare(GG_METRIC_IP, same, 3);
	gg_query_prepare(GG_METRIC_L1, same, 3);
	CHECK(same[0] == 3 && same[1] == -4 && same[2] == 0, "other metrics leave queries alone");
}

static void
test_no_such_function(void)
{
	CHECK(gg_distance_function((gg_metric) 0, GG_ELEMENT_F32) == NULL, "no metric 0");
	CHECK(gg_distance_function((gg_metric) 5, GG_ELEMENT_F32) == NULL, "no metric 5");
	CHECK(gg_distance_function(GG_METRIC_L2, (gg_element) 3) == NULL, "no element 3");
	CHECK(!gg_simd_force("mmx"), "no set mmx");
}

/* Keys are ordered as distances are, then by node; -0 is +0, and NaN +infinity. */
static void
test_keys(void)
{
	static const float ascending[] = {-INFINITY, -2, -1, -1e-38f, 0, 1e-38f, 1, 2, INFINITY};
	const uint32_t count = sizeof(ascending) / sizeof(ascending[0]);

	for (uint32_t i = 0; i < count; i++)
	{
		const uint64_t key = key_of(ascending[i], 7);

		CHECK(key_node(key) == 7 && key_distance(key) == ascending[i], "key of %g",
			  (double) ascending[i]);
		CHECK(key < key_of(ascending[i], 8), "nodes at %g", (double) ascending[i]);
		CHECK(i + 1 == count || key_of(ascending[i], 8) < key_of(ascending[i + 1], 7),
			  "keys above %g", (double) ascending[i]);
	}
	CHECK(key_of(-0.0f, 7) == key_of(0.0f, 7), "minus zero ties with zero");
	CHECK(key_of(NAN, 7) == key_of(INFINITY, 7), "NaN is as far as infinity");
}

int
main(void)
{
	int			tested = 0;

	test_keys();
	test_every_half();
	test_round_to_even();
	test_query_prepare();
	test_no_such_function();
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
	{
		if (!gg_simd_force(sets[i]))
			continue;
		CHECK(strcmp(gg_simd_name(), sets[i]) == 0, "%s is in use", sets[i]);
		test_halves_to_floats();
		test_floats_to_halves();
		test_dims(sets[i]);
		test_not_finite(sets[i]);
		test_cosine_range(sets[i]);
		tested++;
	}
	CHECK(tested >= 1, "the plain set is everywhere");
	gg_simd_force(NULL);
	return harness_finish();
}
