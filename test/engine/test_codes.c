/*
 * test_codes.c
 *		Codes of rows against their definition in double precision, the same bytes from every
 *		instruction set, and how far estimated distances are off.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "code_tools.h"

static const gg_metric metrics[] = {GG_METRIC_L2, GG_METRIC_IP, GG_METRIC_COSINE, GG_METRIC_L1};
static const gg_element elements[] = {GG_ELEMENT_F32, GG_ELEMENT_F16};
static const gg_codes kinds[] = {GG_CODES_INT8, GG_CODES_INT4};
static const char *const sets[] = {"avx512", "avx2", "neon", "plain"};
static const uint32_t dims[] = {1, 3, 31, 96, 100, 200, 784, 1536, 16000};

#define NDIMS (sizeof(dims) / sizeof(dims[0]))
#define SEED 11

/* Under float16 the row is rounded to halves, in place. */
static void
code(tools *t, float *row, gg_element element)
{
	const void *stored = row;

	if (element == GG_ELEMENT_F16)
	{
		for (uint32_t i = 0; i < t->coder.dim; i++)
		{
			t->halves[i] = gg_float_to_half(row[i]);
			row[i] = gg_half_to_float(t->halves[i]);
		}
		stored = t->halves;
	}
	memset(t->record, 0xA5, t->coder.record_bytes);
	gg_code_row(&t->coder, stored, element, t->scratch, t->record);
}

static float
estimate(tools *t, float *query)
{
	gg_query_prepare(t->coder.metric, query, t->coder.dim);
	gg_code_query_set(&t->coder, query, t->scratch, &t->query);
	return gg_code_distance(&t->coder, t->record, &t->query);
}

static gg_code_head
head_of(const tools *t)
{
	gg_code_head head;

	memcpy(&head, t->record + t->coder.record_bytes - GG_CODE_HEAD, sizeof(head));
	return head;
}

static int
level_of(const tools *t, uint32_t i)
{
	uint32_t	bits = t->coder.bits;

	return t->record[gg_code_byte(bits, i)] >> gg_code_shift(bits, i) & ((1 << bits) - 1);
}

/* ---- rows ---------------------------------------------------------------- */

typedef enum row_kind
{
	ROW_NORMAL, ROW_ONE, ROW_STEPS, ROW_FAR, ROW_LARGE, ROW_SMALL, ROW_CONSTANT, ROW_ZERO,
	ROW_KINDS
} row_kind;

static void
make_row(row_kind kind, harness_random *random, float *row, uint32_t dim)
{
	memset(row, 0, dim * sizeof(float));
	if (kind == ROW_ONE)
		row[(uint32_t) (harness_unit(random) * dim)] = -2.5f;
	for (uint32_t i = 0; i < dim && kind != ROW_ONE && kind != ROW_ZERO; i++)
	{
		float		x = (float) harness_normal(random);

		row[i] = kind == ROW_STEPS ? (float) (int) (harness_unit(random) * 256) :
			kind == ROW_FAR ? x + 50 : kind == ROW_LARGE ? x * 0x1p13f :
			kind == ROW_SMALL ? x * 0x1p-12f : kind == ROW_CONSTANT ? 0.7f : x;
	}
}

static double
length(const float *row, uint32_t dim)
{
	double		square = 0;

	for (uint32_t i = 0; i < dim; i++)
		square += (double) row[i] * row[i];
	return sqrt(square);
}

/* ---- the definition ------------------------------------------------------ */

/* The rotation as codes.h states it, in double, the transform as a matrix. */
static void
rotate(double *x, uint32_t dim, uint64_t seed)
{
	uint32_t	block = gg_code_block(dim);
	double	   *out = malloc(block * sizeof(double));

	for (uint32_t r = 0; r < gg_code_rounds(dim); r++)
	{
		double	   *in = x + (r % 2 == 0 ? 0 : dim - block);

		for (uint32_t i = 0; i < dim; i++)
			x[i] *= gg_code_weight(seed, dim, r, i);
		for (uint32_t i = 0; i < block; i++)
		{
			out[i] = 0;
			for (uint32_t j = 0; j < block; j++)
				out[i] += __builtin_parity(i & j) ? -in[j] : in[j];
		}
		memcpy(in, out, block * sizeof(double));
		for (uint32_t i = 0; i < dim / 2 && block != dim && r == 1; i++)
		{
			double		a = x[i];
			double		b = x[dim - dim / 2 + i];

			x[i] = (a + b) * sqrt(0.5);
			x[dim - dim / 2 + i] = (a - b) * sqrt(0.5);
		}
	}
	free(out);
}

/*
 * Is there a step such that every level is that of its element?  Returns the sum of w x, or 0 if
 * there is none.
 */
static double
fits(const tools *t, const double *x)
{
	int			top = (1 << t->coder.bits) - 1;
	int			middle = 1 << (t->coder.bits - 1);
	double		largest = 0;
	double		least = 0;
	double		most = INFINITY;
	double		dot = 0;

	for (uint32_t i = 0; i < t->coder.dim; i++)
		largest = fmax(largest, fabs(x[i]));
	for (uint32_t i = 0; i < t->coder.dim; i++)
	{
		int			u = level_of(t, i);
		double		below = u - middle;
		double		slack = 1e-5 * largest;

		dot += (2 * u - top) * x[i];
		/* below * step <= x < (below + 1) * step, but for the ends, and for rounding */
		if (u > 0 && below > 0)
			most = fmin(most, (x[i] + slack) / below);
		if (u > 0 && below < 0)
			least = fmax(least, (x[i] + slack) / below);
		if (u < top && below >= 0)
			least = fmax(least, (x[i] - slack) / (below + 1));
		if (u < top && below + 1 < 0)
			most = fmin(most, (x[i] - slack) / (below + 1));
		if ((below == 0 && x[i] < -slack) || (below == -1 && x[i] > slack))
			return 0;
	}
	return least <= most ? dot : 0;
}

static void
check_rotated(tools *t, const float *row)
{
	uint32_t	dim = t->coder.dim;
	double	   *x = malloc(dim * sizeof(double));
	double		size = length(row, dim);
	gg_code_head head = head_of(t);
	double		dot;
	double		factor;

	for (uint32_t i = 0; i < dim; i++)
		x[i] = row[i];
	rotate(x, dim, SEED);
	dot = fits(t, x);
	CHECK(dot > 0, "dim %u bits %u: levels are not those of one step", dim, t->coder.bits);
	factor = t->coder.metric == GG_METRIC_L2 ? -2 * size * size / dot :
		t->coder.metric == GG_METRIC_IP ? -size * size / dot : -size / dot;
	CHECK(fabs(head.factor / factor - 1) < 1e-4, "dim %u bits %u: factor %g, not %g", dim,
		  t->coder.bits, head.factor, factor);
	CHECK(t->coder.metric != GG_METRIC_L2 || fabs(head.base / (size * size) - 1) < 1e-4,
		  "dim %u bits %u: base %g, not %g", dim, t->coder.bits, head.base, size * size);
	CHECK(t->coder.metric == GG_METRIC_L2 ||
		  head.base == (t->coder.metric == GG_METRIC_COSINE ? 1 : 0), "dim %u: base %g", dim,
		  head.base);
	free(x);
}

static void
check_in_place(tools *t, const float *row)
{
	gg_code_head head = head_of(t);
	uint32_t	wrong = 0;

	for (uint32_t i = 0; i < t->coder.dim; i++)
	{
		double		value = head.base + (double) head.factor * level_of(t, i);

		wrong += fabs(value - row[i]) > 0.5001 * head.factor + 1e-6 * fabs(row[i]);
	}
	CHECK(wrong == 0, "dim %u bits %u: %u elements off by more than half a step", t->coder.dim,
		  t->coder.bits, wrong);
}

static void
test_definition(void)
{
	harness_random random = {3};

	for (int m = 0; m < 4; m++)
		for (int k = 0; k < 2; k++)
			for (size_t d = 0; d < NDIMS; d++)
			{
				tools		t;

				/* the matrix takes dim squared */
				if (dims[d] > (harness_small() ? 200 : 1536) && metrics[m] != GG_METRIC_L1)
					continue;
				tools_make(&t, metrics[m], dims[d], kinds[k], SEED);
				for (row_kind kind = ROW_NORMAL; kind < ROW_ZERO; kind++)
				{
					make_row(kind, &random, t.row, dims[d]);
					code(&t, t.row, elements[kind % 2]);
					if (metrics[m] == GG_METRIC_L1)
						check_in_place(&t, t.row);
					else
						check_rotated(&t, t.row);
				}
				tools_free(&t);
			}
}

/* ---- the same bytes ------------------------------------------------------ */

/* Every instruction set makes the record that plain C makes, and estimates from it the same. */
static void
check_sets(gg_metric metric, gg_codes codes, uint32_t dim, const float *mean)
{
	harness_random random = {5};
	const row_kind kinds_of_rows = harness_fewer() ? ROW_STEPS : ROW_KINDS;
	float	   *row;
	float	   *query;
	tools		plain;

	gg_simd_force("plain");
	tools_make_centred(&plain, metric, dim, codes, SEED, mean);
	row = plain.row;
	query = plain.asked;
	for (size_t s = 0; s < sizeof(sets) / sizeof(sets[0]); s++)
	{
		tools		other;

		if (!gg_simd_force(sets[s]))
			continue;
		tools_make_centred(&other, metric, dim, codes, SEED, mean);
		for (int e = 0; e < 2; e++)
			for (row_kind kind = ROW_NORMAL; kind < kinds_of_rows; kind++)
			{
				float		a,
							b;

				make_row(kind, &random, row, dim);
				make_row(kind == ROW_ONE ? ROW_NORMAL : kind, &random, query, dim);
				code(&plain, row, elements[e]);
				code(&other, row, elements[e]);
				CHECK(memcmp(plain.record, other.record, plain.coder.record_bytes) == 0,
					  "%s: metric %d element %d bits %u dim %u row %d", sets[s], (int) metric,
					  (int) elements[e], plain.coder.bits, dim, (int) kind);
				code(&other, row, GG_ELEMENT_F32);
				/* under cosine float32 rows have unit length */
				CHECK((mean != NULL && metric == GG_METRIC_COSINE && e == 1) ||
					  memcmp(plain.record, other.record, plain.coder.record_bytes) == 0,
					  "%s: metric %d bits %u dim %u row %d of other elements", sets[s],
					  (int) metric, plain.coder.bits, dim, (int) kind);
				memcpy(other.record, plain.record, plain.coder.record_bytes);
				a = estimate(&plain, query);
				b = estimate(&other, query);
				CHECK(memcmp(&a, &b, sizeof(a)) == 0,
					  "%s: metric %d bits %u dim %u row %d: %.9g, not %.9g", sets[s],
					  (int) metric, plain.coder.bits, dim, (int) kind, (double) b, (double) a);
			}
		tools_free(&other);
	}
	tools_free(&plain);
	gg_simd_force(NULL);
}

static void
test_same_bytes(void)
{
	static float mean[16000];
	harness_random random = {8};

	for (uint32_t i = 0; i < 16000; i++)
		mean[i] = (float) (50 + harness_normal(&random));
	for (int m = 0; m < 4; m++)
		for (int k = 0; k < 2; k++)
			for (size_t d = 0; d < NDIMS; d++)
			{
				check_sets(metrics[m], kinds[k], dims[d], NULL);
				check_sets(metrics[m], kinds[k], dims[d], mean);
			}
}

/* What is written by one host is read by another: these bytes stay. */
static void
test_known_bytes(void)
{
	static const struct
	{
		gg_metric	metric;
		uint32_t	dim;
		uint64_t	hashes[3];
	}			cases[] =
	{
		{GG_METRIC_L2, 1, {UINT64_C(0xBDE91F97DAB70B94), UINT64_C(0x413AFBA99226D7A8),
			UINT64_C(0xDEF7AADC141F1473)}},
		{GG_METRIC_L2, 128, {UINT64_C(0xEBE4E67C886E6204), UINT64_C(0x738F9D0CC3580DEE),
			UINT64_C(0x80AFB3C22FF12DAA)}},
		{GG_METRIC_L2, 784, {UINT64_C(0xC7134ECC4277F783), UINT64_C(0xD4367085CAC3AE8E),
			UINT64_C(0x34D6BA53E0EE08E2)}},
		{GG_METRIC_IP, 31, {UINT64_C(0x15802968D31FB906), UINT64_C(0xA2B76696A9A1F89B),
			UINT64_C(0x3D59C049774630DE)}},
		{GG_METRIC_COSINE, 16000, {UINT64_C(0x92AD51A270AC72DF), UINT64_C(0x93A19CD4A167B816),
			UINT64_C(0xD224795BB70429B0)}},
		{GG_METRIC_L1, 200, {UINT64_C(0x3C5386BB9689AE06), UINT64_C(0xF8807301C20A0083)}},
	};

	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
		for (int k = 0; k < 2; k++)
		{
			uint32_t	dim = cases[c].dim;
			uint64_t	hash = UINT64_C(0xCBF29CE484222325);
			tools		t;

			tools_make(&t, cases[c].metric, dim, kinds[k], 12345);
			/* not of libm, whose last bits may differ */
			for (uint32_t i = 0; i < dim; i++)
				t.row[i] = (float) (int32_t) (gg_random_at(1, i) >> 40) * 0x1p-23f - 1;
			code(&t, t.row, GG_ELEMENT_F32);
			for (uint32_t b = 0; b < t.coder.record_bytes; b++)
				hash = (hash ^ t.record[b]) * UINT64_C(0x100000001B3);
			CHECK(hash == cases[c].hashes[k], "metric %d dim %u bits %u: %#llx",
				  (int) cases[c].metric, dim, t.coder.bits, (unsigned long long) hash);
			tools_free(&t);
		}
}

/* ---- centred codes ------------------------------------------------------- */

/* x of length 1, as a float16 row is scaled. */
static void
make_unit(float *x, uint32_t dim)
{
	const double size = length(x, dim);

	for (uint32_t i = 0; i < dim; i++)
		x[i] = (float) (x[i] / size);
}

/*
 * The estimate of a row and a query, with the mean, is that of the two without it: under cosine
 * half of what L2 has for rows of length 1, under inner product less <q, m>.
 */
static void
check_centred(gg_metric metric, gg_element element, gg_codes codes, uint32_t dim)
{
	harness_random random = {dim};
	const bool	cosine = metric == GG_METRIC_COSINE;
	float	   *mean = malloc(dim * sizeof(float));
	float	   *row;
	float	   *query;
	tools		t;
	tools		plain;

	make_row(ROW_FAR, &random, mean, dim);
	for (uint32_t i = 0; i < dim && cosine; i++)
		mean[i] = 0.99f / sqrtf((float) dim);
	tools_make_centred(&t, metric, dim, codes, SEED, mean);
	tools_make(&plain, cosine ? GG_METRIC_L2 : metric, dim, codes, SEED);
	row = plain.row;
	query = plain.asked;
	for (row_kind kind = ROW_NORMAL; kind < ROW_LARGE; kind++)
	{
		double		got,
					expected,
					size,
					added = 0;

		make_row(kind, &random, row, dim);
		make_row(ROW_FAR, &random, query, dim);
		if (cosine && element == GG_ELEMENT_F32)
			make_unit(row, dim);
		code(&t, row, element);
		got = estimate(&t, query);
		if (cosine)
			make_unit(row, dim);
		for (uint32_t i = 0; i < dim; i++)
		{
			row[i] -= mean[i];
			added -= metric == GG_METRIC_IP ? (double) mean[i] * query[i] : 0;
			query[i] -= metric == GG_METRIC_IP ? 0 : mean[i];
		}
		code(&plain, row, GG_ELEMENT_F32);
		CHECK((cosine && element == GG_ELEMENT_F16) ||
			  memcmp(t.record, plain.record, t.coder.record_bytes - GG_CODE_HEAD) == 0,
			  "metric %d codes %d dim %u row %d: levels", (int) metric, (int) codes, dim,
			  (int) kind);
		expected = estimate(&plain, query) * (cosine ? 0.5 : 1) + added;
		/* of float16 rows some level may be another one */
		size = cosine && element == GG_ELEMENT_F16 ? 0.02 * (codes == GG_CODES_INT8 ? 1 : 16) :
			1e-6 * (fabs(expected) + fabs(added) + length(query, dim) * length(row, dim));
		CHECK(fabs(got - expected) <= size,
			  "metric %d element %d codes %d dim %u row %d: %.9g, not %.9g", (int) metric,
			  (int) element, (int) codes, dim, (int) kind, got, expected);
	}
	tools_free(&t);
	tools_free(&plain);
	free(mean);
}

static void
test_centred(void)
{
	for (int m = 0; m < 4; m++)
		for (int e = 0; e < 2; e++)
			for (int k = 0; k < 2; k++)
				for (size_t d = 0; d < NDIMS - harness_fewer(); d++)
					check_centred(metrics[m], elements[e], kinds[k], dims[d]);
}

/* The mean that is taken of rows; false: none. */
static bool
mean_of(gg_metric metric, const float *rows, uint32_t n, uint32_t dim, float *mean)
{
	const gg_dataset data = {.rows = rows,.n = n,.dim = dim,.element = GG_ELEMENT_F32,
							 .metric = metric};

	return gg_code_mean(&data, mean);
}

static void
test_mean(void)
{
	static const float rows[] = {1, 100, 3, 104};
	static const float even[] = {0, 255, 255, 0};
	static const float large[] = {0x1p120f, 1, 0x1p120f, 1};
	static const float opposite[] = {0x1p127f, 1, -0x1p127f, 1};
	uint16_t	halves[4];
	const gg_dataset data = {.rows = halves,.n = 2,.dim = 2,.element = GG_ELEMENT_F16,
							 .metric = GG_METRIC_COSINE};
	float		mean[2];

	for (int m = 0; m < 4; m++)
		CHECK(mean_of(metrics[m], rows, 2, 2, mean) && mean[0] == 2 && mean[1] == 102,
			  "metric %d: mean", (int) metrics[m]);
	CHECK(!mean_of(GG_METRIC_L1, even, 2, 2, mean), "L1: rows whose elements are as far apart");
	CHECK(mean_of(GG_METRIC_L2, even, 2, 2, mean) && mean[0] == 127.5f, "L2: has one in any case");
	CHECK(!mean_of(GG_METRIC_L2, large, 2, 2, mean), "a mean that rows may be infinitely far from");
	CHECK(mean_of(GG_METRIC_L2, opposite, 2, 2, mean) && mean[0] == 0, "sums do not overflow");
	for (int i = 0; i < 4; i++)
		halves[i] = gg_float_to_half(i < 2 ? 3 * (i + 1.0f) : 0.5f * (i - 1));
	CHECK(gg_code_mean(&data, mean) && fabsf(mean[0] - 0.4472136f) < 1e-6f &&
		  fabsf(mean[1] - 0.8944272f) < 1e-6f, "float16 rows have length 1 under cosine");
}

/* ---- errors of estimates ------------------------------------------------- */

/*
 * The error of <x, q> has a mean of 0, and a root mean square that is a share of |x| |q| /
 * sqrt(dim), whatever the rows.  Few elements do not have the distribution of many.
 */
static double
bound(gg_codes codes, uint32_t dim)
{
	double		share = codes == GG_CODES_INT8 ? 0.0125 : codes == GG_CODES_INT4 ? 0.14 : 0.5;

	return dim == 1 ? 1e-3 : dim < 31 ? 2 * share : share;
}

static void
check_errors(gg_metric metric, gg_element element, gg_codes codes, uint32_t dim)
{
	harness_random random = {7 + dim};
	const int	rotations = harness_fewer() ? 3 : 8;
	const int	rows = dim > 2000 ? 8 : harness_small() ? 8 : 32;
	double		squares = 0;
	double		sum = 0;
	int			count = 0;

	for (int r = 0; r < rotations; r++)
	{
		tools		t;

		tools_make(&t, metric, dim, codes, (uint64_t) r);
		for (int i = 0; i < rows; i++)
		{
			float	   *row = t.row;
			float	   *query = t.asked;
			double		distance,
						unit,
						error;

			make_row((row_kind) (i % ROW_LARGE), &random, row, dim);
			make_row((row_kind) (i / 2 % ROW_LARGE), &random, query, dim);
			code(&t, row, element);
			unit = length(row, dim) * length(query, dim) / sqrt(dim);
			if (metric == GG_METRIC_L2)
				unit *= 2;
			else if (metric == GG_METRIC_COSINE)
				unit = 1 / sqrt(dim);
			distance = harness_distance(metric, row, query, dim, NULL);
			error = estimate(&t, query) - distance;
			/* float32 has errors of its own */
			error = fabs(error) <= 1e-6 * fabs(distance) ? 0 : error / unit;
			squares += error * error;
			sum += error;
			count++;
		}
		tools_free(&t);
	}
	CHECK(sqrt(squares / count) <= bound(codes, dim),
		  "metric %d element %d codes %d dim %u: error %.5f", (int) metric, (int) element,
		  (int) codes, dim, sqrt(squares / count));
	CHECK(fabs(sum / count) <= 4.5 * sqrt(squares / count / count),
		  "metric %d element %d codes %d dim %u: mean error %.5f of %.5f", (int) metric,
		  (int) element, (int) codes, dim, sum / count, sqrt(squares / count));
}

/* Under L1 no element is off by more than half a step. */
static void
check_l1_errors(gg_element element, gg_codes codes, uint32_t dim)
{
	harness_random random = {9};
	tools		t;

	tools_make(&t, GG_METRIC_L1, dim, codes, 0);
	for (int i = 0; i < 32; i++)
	{
		float	   *row = t.row;
		float	   *query = t.asked;
		double		distance,
					error;

		make_row((row_kind) (i % ROW_KINDS), &random, row, dim);
		make_row((row_kind) (i % ROW_KINDS), &random, query, dim);
		code(&t, row, element);
		distance = harness_distance(GG_METRIC_L1, row, query, dim, NULL);
		error = fabs(estimate(&t, query) - distance);
		CHECK(error <= 0.501 * dim * head_of(&t).factor + 1e-4 * distance,
			  "element %d codes %d dim %u row %d: %g of %g", (int) element, (int) codes, dim, i,
			  error, distance);
		CHECK(i % ROW_KINDS != ROW_STEPS || codes != GG_CODES_INT8 || dim < 784 ||
			  error <= 1e-5 * distance, "dim %u: %g of %g where steps are integers", dim, error,
			  distance);
	}
	tools_free(&t);
}

static void
test_errors(void)
{
	for (int m = 0; m < 4; m++)
		for (int e = 0; e < 2; e++)
			for (int k = 0; k < 2; k++)
				for (size_t d = 0; d < NDIMS - harness_fewer(); d++)
					if (metrics[m] == GG_METRIC_L1)
						check_l1_errors(elements[e], kinds[k], dims[d]);
					else
						check_errors(metrics[m], elements[e], kinds[k], dims[d]);
}

/* A query that equals the row is exact, and so are its multiples. */
static void
test_same_direction(void)
{
	harness_random random = {4};

	for (int m = 0; m < 3; m++)
		for (int k = 0; k < 2; k++)
			for (size_t d = 0; d < NDIMS; d++)
			{
				uint32_t	dim = dims[d];
				float	   *row;
				float	   *query;
				double		scale;
				double		distance;
				tools		t;

				tools_make(&t, metrics[m], dim, kinds[k], SEED);
				row = t.row;
				query = t.asked;
				make_row(ROW_FAR, &random, row, dim);
				for (uint32_t i = 0; i < dim; i++)
					query[i] = 3 * row[i];
				code(&t, row, GG_ELEMENT_F32);
				distance = harness_distance(metrics[m], row, query, dim, NULL);
				scale = length(row, dim) * length(query, dim);
				if (metrics[m] == GG_METRIC_COSINE)
					scale = 1;
				CHECK(fabs(estimate(&t, query) - distance) <= 1e-3 * scale,
					  "metric %d codes %d dim %u", (int) metrics[m], (int) kinds[k], dim);
				tools_free(&t);
			}
}

/* ---- rows that have no direction ----------------------------------------- */

static void
test_special_rows(void)
{
	harness_random random = {6};

	for (int m = 0; m < 4; m++)
		for (int k = 0; k < 2; k++)
			for (size_t d = 0; d < NDIMS; d++)
			{
				uint32_t	dim = dims[d];
				float	   *row;
				float	   *query;
				double		distance;
				tools		t;
				uint8_t    *zero;

				tools_make(&t, metrics[m], dim, kinds[k], SEED);
				row = t.row;
				query = t.asked;
				zero = malloc(t.coder.record_bytes);
				make_row(ROW_NORMAL, &random, query, dim);
				distance = harness_distance(metrics[m], row, query, dim, NULL);
				code(&t, row, GG_ELEMENT_F32);
				memcpy(zero, t.record, t.coder.record_bytes);
				CHECK(fabs(estimate(&t, query) - distance) <= 1e-5 * distance,
					  "metric %d dim %u: zero row", (int) metrics[m], dim);
				memset(query, 0, dim * sizeof(float));
				distance = harness_distance(metrics[m], row, query, dim, NULL);
				CHECK(estimate(&t, query) == distance, "metric %d dim %u: zero row and query",
					  (int) metrics[m], dim);

				row[dim / 2] = 0x1p-140f;
				code(&t, row, GG_ELEMENT_F32);
				CHECK(metrics[m] == GG_METRIC_L1 ||
					  memcmp(zero, t.record, t.coder.record_bytes) == 0,
					  "metric %d dim %u: a subnormal row is zero", (int) metrics[m], dim);

				/* whatever the query: never near */
				row[0] = INFINITY;
				make_row(ROW_NORMAL, &random, query, dim);
				code(&t, row, GG_ELEMENT_F32);
				CHECK(estimate(&t, query) == INFINITY, "metric %d dim %u: infinite row",
					  (int) metrics[m], dim);
				row[0] = NAN;
				code(&t, row, GG_ELEMENT_F32);
				CHECK(estimate(&t, query) == INFINITY, "metric %d dim %u: NaN", (int) metrics[m],
					  dim);

				/* the largest and the smallest of normal size have a direction */
				for (int small = 0; small < 2; small++)
				{
					for (uint32_t i = 0; i < dim; i++)
						row[i] = small ? 0x1p-126f : 0x1.FFFFFEp127f;
					code(&t, row, GG_ELEMENT_F32);
					CHECK(metrics[m] == GG_METRIC_L1 || level_of(&t, 0) != level_of(&t, dim - 1) ||
						  memcmp(zero, t.record, t.coder.chunk_bytes) != 0 || dim == 1,
						  "metric %d dim %u: extreme row %d", (int) metrics[m], dim, small);
					memcpy(query, row, dim * sizeof(float));
					CHECK(metrics[m] != GG_METRIC_COSINE || fabs(estimate(&t, query)) < 1e-3,
						  "dim %u: extreme row %d from itself", dim, small);
				}
				tools_free(&t);
				free(zero);
			}
}

/* ---- decoding ------------------------------------------------------------ */

/* The distance of a query to what a record stands for, but for the lengths under L2. */
static double
decoded_distance(const tools *t, const float *decoded, const float *query)
{
	double		sum = 0;

	for (uint32_t i = 0; i < t->coder.dim; i++)
		sum += t->coder.metric == GG_METRIC_L1 ? fabs((double) decoded[i] - query[i]) :
			(double) decoded[i] * query[i];
	if (t->coder.metric == GG_METRIC_L2)
	{
		double		square = 0;

		for (uint32_t i = 0; i < t->coder.dim; i++)
			square += (double) query[i] * query[i];
		return head_of(t).base + square - 2 * sum;
	}
	return t->coder.metric == GG_METRIC_L1 ? sum :
		t->coder.metric == GG_METRIC_IP ? -sum : 1 - sum;
}

/* An estimate is the distance to the row that the record stands for, query's rounding aside. */
static void
test_decoding(void)
{
	static const uint32_t some[] = {1, 3, 64, 96, 100, 784};

	for (gg_metric metric = GG_METRIC_L2; metric <= GG_METRIC_L1; metric++)
		for (gg_codes codes = GG_CODES_INT8; codes <= GG_CODES_INT4; codes++)
			for (size_t d = 0; d < sizeof(some) / sizeof(some[0]); d++)
			{
				uint32_t	dim = some[d];
				harness_random random = {dim};
				float	   *decoded = malloc(dim * sizeof(float));
				double		got,
							expected;
				tools		t;

				tools_make(&t, metric, dim, codes, SEED);
				make_row(ROW_NORMAL, &random, t.row, dim);
				make_row(ROW_NORMAL, &random, t.asked, dim);
				code(&t, t.row, GG_ELEMENT_F32);
				got = estimate(&t, t.asked);
				gg_decode_row(&t.coder, t.record, decoded);
				expected = decoded_distance(&t, decoded, t.asked);
				CHECK(fabs(got - expected) <= 1e-3 * (dim + fabs(expected)),
					  "metric %d, codes %d, dim %u: %g instead of %g", (int) metric, (int) codes,
					  dim, got, expected);
				tools_free(&t);
				free(decoded);
			}
}

/* ---- sizes --------------------------------------------------------------- */

static void
test_sizes(void)
{
	static const struct
	{
		gg_codes	codes;
		uint32_t	dim;
		uint32_t	bytes;
	}			cases[] =
	{
		{GG_CODES_INT8, 1, 16}, {GG_CODES_INT8, 96, 112}, {GG_CODES_INT8, 768, 784},
		{GG_CODES_INT4, 96, 64}, {GG_CODES_INT4, 768, 400}, {GG_CODES_INT4, 784, 400},
		{GG_CODES_INT4, 16000, 8016},
	};

	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
	{
		uint32_t	bytes = gg_code_record_bytes(cases[c].codes, cases[c].dim);

		CHECK(bytes == cases[c].bytes, "%u bytes for dim %u", bytes, cases[c].dim);
	}
}

int
main(void)
{
	harness_run("definition", test_definition);
	harness_run("same bytes", test_same_bytes);
	harness_run("known bytes", test_known_bytes);
	harness_run("centred", test_centred);
	harness_run("mean", test_mean);
	harness_run("errors", test_errors);
	harness_run("same direction", test_same_direction);
	harness_run("special rows", test_special_rows);
	harness_run("decoding", test_decoding);
	harness_run("sizes", test_sizes);
	return harness_finish();
}
