/*
 * harness.c
 *		What the engine tests share: counting, data, exact answers.
 */
#include "harness.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

const char *const harness_metrics[] = {"?", "l2", "ip", "cosine", "l1"};

/* threads may check, too */
static int	passed = 0;
static int	failed = 0;

bool
harness_check(const char *file, int line, bool condition, const char *text, const char *format,...)
{
	va_list		args;

	if (condition)
	{
		__atomic_add_fetch(&passed, 1, __ATOMIC_RELAXED);
		return true;
	}
	__atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
	printf("%s:%d: failed: %s: ", file, line, text);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	return false;
}

bool
harness_check_ok(const char *file, int line, gg_status status, const char *what)
{
	return harness_check(file, line, status.code == GG_OK, "status is GG_OK",
						 "%s: code %d in %s: %s", what, (int) status.code, status.where ?
						 status.where : "?", status.message);
}

int
harness_finish(void)
{
	printf("%d passed, %d failed\n", passed, failed);
	return failed > 0;
}

bool
harness_small(void)
{
	return getenv("GG_TEST_SMALL") != NULL;
}

bool
harness_fewer(void)
{
	const char *value = getenv("GG_TEST_SMALL");

	return value != NULL && (value[0] == '2' || value[0] == '3');
}

bool
harness_fewest(void)
{
	const char *value = getenv("GG_TEST_SMALL");

	return value != NULL && value[0] == '3';
}

uint32_t
harness_size(uint32_t size, uint32_t scale)
{
	/* memcheck takes 50 times as long */
	if (harness_fewer() && !harness_fewest() && size / scale > 1)
		scale *= 2;
	return harness_small() && size / scale > 0 ? size / scale : size;
}

double
harness_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}

double
harness_processor_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}

/* Processor seconds of this process and of those it has waited for. */
static double
with_children(void)
{
	double		seconds = 0;

	for (int i = 0; i < 2; i++)
	{
		struct rusage usage;

		getrusage(i == 0 ? RUSAGE_SELF : RUSAGE_CHILDREN, &usage);
		seconds += (double) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
			1e-6 * (double) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
	}
	return seconds;
}

void
harness_run(const char *name, void (*test) (void))
{
	static unsigned number = 0;
	const char *value = getenv("GG_TEST_PART");
	unsigned	part = 0;
	unsigned	parts = 1;
	double		begin = with_children();

	if (value != NULL && (sscanf(value, "%u/%u", &part, &parts) != 2 || part >= parts))
	{
		harness_check(__FILE__, __LINE__, false, "GG_TEST_PART is i/n", "%s", value);
		return;
	}
	if (number++ % parts != part)
		return;
	test();
	printf("# %s: %.1f s\n", name, with_children() - begin);
	fflush(stdout);
}

bool
harness_cancelled(void *watch)
{
	harness_watch *w = watch;

	return ++w->asked == w->cancel_at;
}

bool
harness_cancelled_at_once(void *ctx)
{
	(void) ctx;
	return true;
}

/* Out of memory in a test is the end of it. */
static void *
need(size_t size)
{
	void	   *memory = malloc(size > 0 ? size : 1);

	if (!memory)
	{
		printf("out of memory for %zu bytes\n", size);
		exit(2);
	}
	return memory;
}

/* ---- random numbers ------------------------------------------------------ */

static uint64_t
random_bits(harness_random *random)
{
	uint64_t	x = (random->state += UINT64_C(0x9E3779B97F4A7C15));

	x = (x ^ (x >> 32)) * UINT64_C(0xD6E8FEB86659FD93);
	x = (x ^ (x >> 32)) * UINT64_C(0xD6E8FEB86659FD93);
	return x ^ (x >> 32);
}

double
harness_unit(harness_random *random)
{
	return (double) (random_bits(random) >> 11) / 9007199254740992.0;
}

double
harness_normal(harness_random *random)
{
	double		u = 1.0 - harness_unit(random);

	return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * harness_unit(random));
}

/* ---- data ------------------------------------------------------------------ */

/* x = tanh(z W1 + b) W2 + noise, z normal around one of the clusters' centres */
typedef struct manifold
{
	uint32_t	latent,
				hidden,
				clusters,
				dim;
	float	   *w1,				/* latent x hidden */
			   *b,				/* hidden */
			   *w2,				/* hidden x dim */
			   *centres,		/* clusters x latent */
			   *widths,			/* clusters */
			   *shares,			/* clusters: running sum of the clusters' parts */
			   *z,
			   *h;
} manifold;

static float *
normals(harness_random *random, size_t count, double scale)
{
	float	   *values = need(sizeof(float) * count);

	for (size_t i = 0; i < count; i++)
		values[i] = (float) (scale * harness_normal(random));
	return values;
}

static void
manifold_make(manifold *m, const harness_spec *spec, harness_random *random)
{
	double		sum = 0;

	m->dim = spec->dim;
	m->latent = spec->latent ? spec->latent : 16;
	m->clusters = spec->clusters ? spec->clusters : 20;
	m->hidden = 2 * m->latent > 64 ? 2 * m->latent : 64;
	m->w1 = normals(random, (size_t) m->latent * m->hidden, 1 / sqrt(m->latent));
	m->b = normals(random, m->hidden, 0.3);
	m->w2 = normals(random, (size_t) m->hidden * m->dim, 1 / sqrt(m->hidden));
	m->centres = normals(random, (size_t) m->clusters * m->latent, 1);
	m->widths = need(sizeof(float) * m->clusters);
	m->shares = need(sizeof(float) * m->clusters);
	m->z = need(sizeof(float) * m->latent);
	m->h = need(sizeof(float) * m->hidden);
	for (uint32_t c = 0; c < m->clusters; c++)
	{
		double		u = harness_unit(random);

		m->widths[c] = (float) (0.25 + 0.5 * harness_unit(random)) * (spec->shape == SHAPE_TIGHT ?
																	  1e-3f : 1.0f);
		m->shares[c] = (float) (sum += u * u + 0.05);
	}
	for (uint32_t c = 0; c < m->clusters; c++)
		m->shares[c] /= (float) sum;
}

static void
manifold_free(manifold *m)
{
	free(m->w1);
	free(m->b);
	free(m->w2);
	free(m->centres);
	free(m->widths);
	free(m->shares);
	free(m->z);
	free(m->h);
}

static void
manifold_draw(manifold *m, harness_random *random, double noise, float *x)
{
	double		u = harness_unit(random);
	uint32_t	c = 0;

	while (c + 1 < m->clusters && m->shares[c] < u)
		c++;
	for (uint32_t l = 0; l < m->latent; l++)
		m->z[l] = m->centres[(size_t) c * m->latent + l] + m->widths[c] *
			(float) harness_normal(random);
	for (uint32_t h = 0; h < m->hidden; h++)
		m->h[h] = m->b[h];
	for (uint32_t l = 0; l < m->latent; l++)
		for (uint32_t h = 0; h < m->hidden; h++)
			m->h[h] += m->z[l] * m->w1[(size_t) l * m->hidden + h];
	for (uint32_t h = 0; h < m->hidden; h++)
		m->h[h] = tanhf(m->h[h]);
	/* noise: uniform of the same deviation, ten times as quick to make as normal */
	for (uint32_t k = 0; k < m->dim; k++)
		x[k] = (float) (noise * 3.4641 * (harness_unit(random) - 0.5));
	for (uint32_t h = 0; h < m->hidden; h++)
	{
		float		s = m->h[h];
		const float *w = m->w2 + (size_t) h * m->dim;

		for (uint32_t k = 0; k < m->dim; k++)
			x[k] += s * w[k];
	}
}

void
harness_data(const harness_spec *spec, gg_dataset *data, float **queries, uint32_t nq)
{
	const gg_metric metric = spec->metric ? spec->metric : GG_METRIC_L2;
	const gg_element element = spec->element ? spec->element : GG_ELEMENT_F32;
	harness_random random = {spec->seed * 1000003 + 17};
	float	   *rows = need(sizeof(float) * spec->n * spec->dim);
	float	   *x = need(sizeof(float) * spec->dim);
	float	   *answer = need(sizeof(float) * ((size_t) nq * spec->dim + 1));
	manifold	m;

	manifold_make(&m, spec, &random);
	for (uint32_t i = 0; i < spec->n + nq; i++)
	{
		bool		again = (spec->shape == SHAPE_EQUAL && i > 0 && i < spec->n) ||
			(spec->shape == SHAPE_COPIES && i % 20 != 0 && i < spec->n);

		if (!again)
		{
			if (spec->shape == SHAPE_UNIFORM)
				for (uint32_t k = 0; k < spec->dim; k++)
					x[k] = (float) harness_unit(&random);
			else
				manifold_draw(&m, &random, spec->shape == SHAPE_TIGHT ? 2e-5 : 0.02, x);
			for (uint32_t k = 0; k < spec->dim; k++)
				x[k] += spec->offset;
			if (metric == GG_METRIC_COSINE && element == GG_ELEMENT_F32)
			{
				double		sum = 0;

				for (uint32_t k = 0; k < spec->dim; k++)
					sum += (double) x[k] * x[k];
				for (uint32_t k = 0; k < spec->dim; k++)
					x[k] = sum > 0 ? (float) (x[k] / sqrt(sum)) : (k == 0);
			}
		}
		memcpy(i < spec->n ? rows + (size_t) i * spec->dim :
			   answer + (size_t) (i - spec->n) * spec->dim, x, sizeof(float) * spec->dim);
	}
	manifold_free(&m);
	free(x);
	*data = (gg_dataset) {rows, spec->n, spec->dim, element, metric};
	if (element == GG_ELEMENT_F16)
	{
		data->rows = harness_stored(rows, (size_t) spec->n * spec->dim, element);
		free(rows);
	}
	if (queries)
		*queries = answer;
	else
		free(answer);
}

void
harness_free(gg_dataset *data, float *queries)
{
	free((void *) data->rows);
	free(queries);
	data->rows = NULL;
}

void *
harness_stored(const float *values, size_t count, gg_element element)
{
	void	   *rows = need(count * gg_element_size(element));

	if (element == GG_ELEMENT_F16)
		gg_floats_to_halves(values, rows, count);
	else
		memcpy(rows, values, count * sizeof(float));
	return rows;
}

/* Rows first .. first + count as floats: those of the data set, or a copy that *copy is. */
static const float *
rows_as_floats(const gg_dataset *data, uint32_t first, uint32_t count, float **copy)
{
	const size_t begin = (size_t) first * data->dim;
	const size_t elements = (size_t) count * data->dim;

	*copy = NULL;
	if (data->element == GG_ELEMENT_F32)
		return (const float *) data->rows + begin;
	*copy = need(sizeof(float) * elements);
	for (size_t i = 0; i < elements; i++)
		(*copy)[i] = gg_half_to_float(((const uint16_t *) data->rows)[begin + i]);
	return *copy;
}

double
harness_distance(gg_metric metric, const float *a, const float *b, uint32_t dim, double *size)
{
	double		sum = 0,
				dot = 0,
				products = 0,
				aa = 0,
				bb = 0;

	/* these two want one sum, and are quicker */
	if (metric == GG_METRIC_L2 || metric == GG_METRIC_L1)
	{
		for (uint32_t k = 0; k < dim && metric == GG_METRIC_L2; k++)
			sum += ((double) a[k] - b[k]) * ((double) a[k] - b[k]);
		for (uint32_t k = 0; k < dim && metric == GG_METRIC_L1; k++)
			sum += fabs((double) a[k] - b[k]);
		if (size != NULL)
			*size = sum;
		return sum;
	}
	for (uint32_t k = 0; k < dim; k++)
	{
		double		x = a[k],
					y = b[k];

		dot += x * y;
		products += fabs(x * y);
		aa += x * x;
		bb += y * y;
	}
	if (size != NULL)
		*size = metric == GG_METRIC_IP ? products : 1;
	if (metric == GG_METRIC_IP)
		return -dot;
	return aa > 0 && bb > 0 ? 1 - dot / sqrt(aa * bb) : 1;
}

double
harness_row_distance(const gg_dataset *data, uint32_t a, uint32_t b)
{
	float	   *copy;
	const float *query = rows_as_floats(data, b, 1, &copy);
	double		distance = harness_query_distance(data, a, query, NULL);

	free(copy);
	return distance;
}

double
harness_query_distance(const gg_dataset *data, uint32_t row, const float *query, double *size)
{
	float	   *copy;
	const float *x = rows_as_floats(data, row, 1, &copy);
	double		distance = harness_distance(data->metric, x, query, data->dim, size);

	free(copy);
	return distance;
}

static int
compare_doubles(const void *a, const void *b)
{
	double		x = *(const double *) a,
				y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* How many of a row's first `at` entries are no farther than the at-th distance. */
static uint32_t
count_near(const gg_dataset *data, const uint32_t *list, uint32_t k, uint32_t at,
		   const double *distances, const double *sorted, double farther)
{
	/* rows just as far are just as good */
	double		limit = sorted[at - 1] + farther * (fabs(sorted[at - 1]) + farther);
	uint32_t	found = 0;

	for (uint32_t j = 0; j < at && j < k; j++)
		found += list[j] < data->n && distances[list[j]] <= limit;
	return found;
}

void
harness_knn_recalls(const gg_dataset *data, const uint32_t *ids, uint32_t k, const uint32_t at[2],
					uint32_t rows, double farther, double recalls[2])
{
	double	   *distances = need(sizeof(double) * data->n);
	double	   *sorted = need(sizeof(double) * data->n);
	float	   *copy;
	const float *all = rows_as_floats(data, 0, data->n, &copy);
	uint64_t	hits[2] = {0, 0},
				wanted[2] = {0, 0};

	if (rows > data->n)
		rows = data->n;
	for (uint32_t r = 0; r < rows; r++)
	{
		uint32_t	row = (uint32_t) ((uint64_t) r * data->n / rows);

		for (uint32_t i = 0; i < data->n; i++)
			distances[i] = i == row ? INFINITY :
				harness_distance(data->metric, all + (size_t) row * data->dim,
								 all + (size_t) i * data->dim, data->dim, NULL);
		memcpy(sorted, distances, sizeof(double) * data->n);
		qsort(sorted, data->n, sizeof(double), compare_doubles);
		for (int i = 0; i < 2; i++)
		{
			uint32_t	most = at[i] < data->n ? at[i] : data->n - 1;

			if (most == 0)
				continue;
			hits[i] += count_near(data, ids + (size_t) row * k, k, most, distances, sorted,
								  farther);
			wanted[i] += most;
		}
	}
	for (int i = 0; i < 2; i++)
		recalls[i] = wanted[i] > 0 ? (double) hits[i] / (double) wanted[i] : 1;
	free(distances);
	free(sorted);
	free(copy);
}

double
harness_knn_recall(const gg_dataset *data, const uint32_t *ids, uint32_t k, uint32_t at,
				   uint32_t rows, double farther)
{
	double		recalls[2];

	harness_knn_recalls(data, ids, k, (uint32_t[2]) {at, 0}, rows, farther, recalls);
	return recalls[0];
}

void
harness_lists_check(const gg_dataset *data, const uint32_t *ids, const float *distances,
					uint32_t k, double tolerance, double least, const char *what)
{
	const uint32_t have = data->n == 0 || k < data->n - 1 ? k : data->n - 1;
	const uint32_t step = 1 + data->n / 200;
	uint32_t   *seen = calloc(data->n + 1, sizeof(uint32_t));
	uint32_t	wrong = 0;

	for (uint32_t row = 0; row < data->n; row++)
		for (uint32_t i = 0; i < k; i++)
		{
			const uint32_t id = ids[(size_t) row * k + i];
			const float d = distances[(size_t) row * k + i];
			bool		right;

			if (i >= have)
				right = id == GG_NO_NODE && d == INFINITY;
			else
				right = id < data->n && id != row && seen[id] != row + 1 &&
					(data->metric == GG_METRIC_IP || d >= 0) &&
					(i == 0 || d >= distances[(size_t) row * k + i - 1]);
			if (right && i < have && row % step == 0)
			{
				const double truth = harness_row_distance(data, row, id);

				right = isinf(d) ? fabs(truth) > FLT_MAX :
					fabs(d - truth) <= fmax(tolerance * fabs(truth), least);
			}
			if (!right && wrong++ == 0)
				printf("row %u entry %u: id %u distance %g\n", row, i, id, d);
			if (id < data->n)
				seen[id] = row + 1;
		}
	CHECK(wrong == 0, "%s: %u entries of lists of %u are wrong, n %u, dim %u", what, wrong, k,
		  data->n, data->dim);
	free(seen);
}

/* ---- answers ----------------------------------------------------------------- */

uint64_t *
harness_found(const gg_engine *engine, gg_index *index, const gg_search_params *params,
			  const float *queries, uint32_t nq, const gg_control *control, const char *what)
{
	uint64_t   *keys = need(sizeof(uint64_t) * nq * params->k);

	memset(keys, 0xAB, sizeof(uint64_t) * nq * params->k);
	CHECK_OK(engine->index_search(index, params, queries, nq, control, keys), what);
	return keys;
}

uint64_t *
harness_nearest(const gg_engine *engine, gg_index *index, uint32_t k, const uint32_t *filter,
				const float *queries, uint32_t nq, const gg_control *control, const char *what)
{
	uint64_t   *keys = need(sizeof(uint64_t) * nq * k);

	memset(keys, 0xAB, sizeof(uint64_t) * nq * k);
	CHECK_OK(engine->index_exact(index, k, filter, queries, nq, control, keys), what);
	return keys;
}

uint32_t
harness_wrong(const gg_dataset *data, const float *queries, uint32_t nq, const uint64_t *keys,
			  uint32_t k, double tolerance)
{
	gg_distance_fn distance = gg_distance_function(data->metric, data->element);
	const size_t row_bytes = data->dim * gg_element_size(data->element);
	float	   *query = need(data->dim * sizeof(float));
	uint32_t	wrong = 0;

	for (uint32_t q = 0; q < nq; q++)
	{
		const float *asked = queries + (size_t) q * data->dim;

		memcpy(query, asked, data->dim * sizeof(float));
		gg_query_prepare(data->metric, query, data->dim);
		for (uint32_t i = 0; i < k; i++)
		{
			const uint64_t key = keys[(size_t) q * k + i];
			const uint32_t node = key_node(key);
			const void *row = (const char *) data->rows + (node < data->n ? node : 0) * row_bytes;
			double		size = 0;

			if (key == GG_NO_KEY)
				continue;
			if (node >= data->n || (i > 0 && keys[(size_t) q * k + i - 1] >= key))
				wrong++;
			else if (tolerance == 0)
				wrong += key != key_of(distance(row, query, data->dim), node);
			else
			{
				const double truth = harness_query_distance(data, node, asked, &size);

				wrong += !(fabs(key_distance(key) - truth) <= tolerance * size + 1e-30);
			}
		}
	}
	free(query);
	return wrong;
}

uint32_t
harness_hits(const uint64_t *found, const uint64_t *truth, uint32_t nq, uint32_t k)
{
	uint32_t	hits = 0;

	for (uint32_t i = 0; i < nq * k; i++)
	{
		const uint64_t last = truth[i / k * k + k - 1];

		hits += found[i] != GG_NO_KEY &&
			(last == GG_NO_KEY || key_distance(found[i]) <= key_distance(last));
	}
	return hits;
}

harness_walks
harness_walk(const gg_dataset *data, const gg_graph *graph, const float *queries, uint32_t nq,
			 uint32_t itopk, const char *what)
{
	const gg_search_params params = {.k = 10,.itopk_size = itopk};
	const gg_control control = {.threads = 2};
	harness_walks walks = {0};
	uint64_t   *found,
			   *truth;
	gg_index   *index;

	CHECK_OK(gg_cpu_engine.index_open(data, graph, &control, &index), what);
	found = harness_found(&gg_cpu_engine, index, &params, queries, nq, &control, what);
	truth = harness_nearest(&gg_cpu_engine, index, 10, NULL, queries, nq, &control, what);
	for (uint32_t q = 0; q < nq; q++)
	{
		const uint32_t hits = harness_hits(found + (size_t) q * 10, truth + (size_t) q * 10, 1, 10);

		walks.hits += hits;
		walks.lost += hits == 0;
	}
	walks.recall = (double) walks.hits / (10.0 * nq);
	gg_cpu_engine.index_close(index);
	free(found);
	free(truth);
	return walks;
}

static bool
condition_holds(const gg_filter *filter, const gg_condition *c, bool null, const int64_t *word,
				uint32_t stride)
{
	const int64_t *values = filter->values + c->first_value;

	if (null || c->kind == GG_CONDITION_NULL)
		return null && c->kind == GG_CONDITION_NULL;
	if (c->kind == GG_CONDITION_NOT_NULL)
		return true;
	if (c->kind == GG_CONDITION_RANGE)
		return values[0] <= *word && *word <= values[1];
	/* one of some values, or all bits of one of some masks */
	for (uint32_t v = 0; v < c->nvalues; v += gg_condition_words(c))
	{
		int64_t		missing = c->kind == GG_CONDITION_IN ? values[v] ^ *word : 0;

		for (uint32_t w = 0; c->kind == GG_CONDITION_MASK && w < GG_MASK_WORDS; w++)
			missing |= values[v + w] & ~word[(size_t) w * stride];
		if (missing == 0)
			return true;
	}
	return false;
}

static int
compare_tids(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *) a;
	const uint64_t y = *(const uint64_t *) b;

	return (x > y) - (x < y);
}

bool
harness_matches(const gg_filter *filter, const uint64_t *heads, const int64_t *words,
				uint32_t stride, uint32_t row)
{
	const uint64_t tid = gg_tid_key(heads[row]);

	if ((tid & 0xFFFF) == 0)
		return false;
	for (uint32_t i = 0; i < filter->nconditions; i++)
	{
		const gg_condition *c = &filter->conditions[i];

		if (!condition_holds(filter, c, heads[row] >> (48 + c->column) & 1,
							 words + (size_t) c->word * stride + row, stride))
			return false;
	}
	return filter->tids == NULL ||
		bsearch(&tid, filter->tids, filter->ntids, sizeof(tid), compare_tids) != NULL;
}

/* ---- graphs ------------------------------------------------------------------ */

bool
harness_graphs_equal(const gg_graph *a, const gg_graph *b)
{
	return a->n == b->n && a->degree == b->degree && a->npivots == b->npivots &&
		memcmp(a->adjacency, b->adjacency, sizeof(uint32_t) * a->n * a->degree) == 0 &&
		memcmp(a->pivots, b->pivots, sizeof(uint32_t) * a->npivots) == 0 &&
		memcmp(a->pivot_adjacency, b->pivot_adjacency,
			   sizeof(uint32_t) * a->npivots * GG_PIVOT_DEGREE) == 0;
}

uint32_t *
harness_pivots(const gg_graph *graph)
{
	const uint32_t words = 1 + GG_PIVOT_DEGREE;
	uint32_t   *pivots = need(sizeof(uint32_t) * graph->npivots * words);

	for (uint32_t i = 0; i < graph->npivots; i++)
	{
		pivots[(size_t) i * words] = graph->pivots[i];
		memcpy(pivots + (size_t) i * words + 1,
			   graph->pivot_adjacency + (size_t) i * GG_PIVOT_DEGREE,
			   sizeof(uint32_t) * GG_PIVOT_DEGREE);
	}
	return pivots;
}

/* mark: what an id may carry */
static bool
list_valid(const uint32_t *list, uint32_t degree, uint32_t n, uint32_t self, uint32_t mark,
		   bool full)
{
	uint32_t	length = 0;

	while (length < degree && list[length] != GG_NO_NODE)
		length++;
	for (uint32_t i = length; i < degree; i++)
		if (list[i] != GG_NO_NODE)
			return false;
	for (uint32_t i = 0; i < length; i++)
	{
		uint32_t	id = list[i] & ~mark;

		if (id >= n || id == self)
			return false;
		for (uint32_t j = 0; j < i; j++)
			if (id == (list[j] & ~mark))
				return false;
	}
	return !full || length == (n - 1 < degree ? n - 1 : degree);
}

/* How many nodes the roots lead to, without marked edges. */
static uint32_t
reached(const uint32_t *adjacency, uint32_t degree, uint32_t n, const uint32_t *roots,
		uint32_t nroots)
{
	bool	   *seen = calloc(n + 1, 1);
	uint32_t   *queue = malloc(sizeof(uint32_t) * (n + 1));
	uint32_t	queued = 0;

	for (uint32_t i = 0; i < nroots; i++)
		if (!seen[roots[i]])
		{
			seen[roots[i]] = true;
			queue[queued++] = roots[i];
		}
	for (uint32_t q = 0; q < queued; q++)
		for (uint32_t i = 0; i < degree && adjacency[(size_t) queue[q] * degree + i] != GG_NO_NODE;
			 i++)
		{
			uint32_t	next = adjacency[(size_t) queue[q] * degree + i];

			if ((next & GG_EDGE_MARK) == 0 && !seen[next])
			{
				seen[next] = true;
				queue[queued++] = next;
			}
		}
	free(seen);
	free(queue);
	return queued;
}

void
harness_adjacency_check(const uint32_t *adjacency, uint32_t n, uint32_t degree, uint32_t mark,
						bool full, const char *what)
{
	uint32_t	wrong = 0;

	for (uint32_t i = 0; i < n; i++)
		wrong += !list_valid(adjacency + (size_t) i * degree, degree, n, i, mark, full);
	CHECK(wrong == 0, "%s: %u lists of %u", what, wrong, n);
}

void
harness_graph_check(const gg_graph *graph, uint32_t n, uint32_t degree, bool full,
					const char *what)
{
	uint32_t	zero = 0;
	bool	   *is_pivot = calloc(n + 1, 1);

	CHECK(graph->n == n && graph->degree == degree, "%s: n %u, degree %u", what, graph->n,
		  graph->degree);
	harness_adjacency_check(graph->adjacency, n, degree, GG_EDGE_MARK, full, what);
	CHECK(n == 0 ? graph->npivots == 0 : graph->npivots >= 1 && graph->npivots <= n,
		  "%s: %u pivots", what, graph->npivots);
	for (uint32_t i = 0; i < graph->npivots; i++)
	{
		CHECK(graph->pivots[i] < n && !is_pivot[graph->pivots[i]], "%s: pivot %u is %u", what, i,
			  graph->pivots[i]);
		is_pivot[graph->pivots[i]] = true;
	}
	harness_adjacency_check(graph->pivot_adjacency, graph->npivots, GG_PIVOT_DEGREE, 0, true, what);
	CHECK(n == 0 || reached(graph->adjacency, degree, n, graph->pivots, graph->npivots) == n,
		  "%s: nodes reachable from the pivots", what);
	CHECK(n == 0 || reached(graph->pivot_adjacency, GG_PIVOT_DEGREE, graph->npivots, &zero,
							1) == graph->npivots, "%s: pivots reachable from pivot 0", what);
	free(is_pivot);
}
