/*
 * exact.c
 *		Exact nearest neighbours by brute force, and the files of a bench data set.
 *
 * A first pass in float32 keeps the CANDIDATES best of each query, a second computes their
 * distances in double and keeps EXACT_K: float32 rounding can only lose a neighbour that falls
 * behind another hundred rows.  Queries are in panels of PANEL columns, laid out dimension by
 * dimension, and a block of rows that fits the second-level cache runs past all of them.  Where all
 * rows are in memory, each thread takes queries of its own; where they come block by block, each
 * takes blocks of its own, for all queries, and the lists are merged (exact_merge()).
 */
#include "exact.h"

#include <math.h>
#include <stdatomic.h>

#define PANEL 16				/* queries a panel: one AVX-512 register, two AVX2 ones */
#define ROWS 6					/* base rows at a time: 12 AVX2 accumulators of the 16 registers */
#define BLOCK_BYTES (512 * 1024)	/* of base rows: half of a 1 MB second-level cache */
#define CANDIDATES (2 * EXACT_K)

typedef float lanes __attribute__((vector_size(PANEL * sizeof(float)), aligned(4)));

typedef struct candidate
{
	float		key;			/* ordered like the distance */
	int32_t		id;
} candidate;

typedef struct shortlist
{
	float		bound;			/* keys at or above it cannot enter */
	int			count;
	candidate	list[2 * CANDIDATES];
} shortlist;

struct exact_search
{
	vectors		query;
	metric		m;
	int			block;			/* rows that fit the cache */
	int			npanels;
	float	   *panels;
	shortlist  *lists;			/* npanels x PANEL */
	float	   *add;			/* block: key = add + scale * ip */
	float	   *scale;			/* block */
	float	   *tail;			/* ROWS rows */
};

typedef struct exact_job
{
	vectors		base;
	vectors		query;
	metric		m;
	int32_t    *ids;			/* nq x EXACT_K */
	double	   *distances;		/* nq x EXACT_K */
	int			share;			/* queries that a thread takes at a time */
	atomic_llong next;
} exact_job;

typedef struct ranked
{
	double		distance;
	int32_t		id;
} ranked;

static const char *const metric_names[] = {"l2", "ip", "cos"};

metric
metric_of(const char *name)
{
	for (int m = METRIC_L2; m <= METRIC_COS; m++)
		if (strcmp(name, metric_names[m]) == 0)
			return (metric) m;
	die("metric \"%s\" is none of l2, ip, cos", name);
}

const char *
metric_name(metric m)
{
	return metric_names[m];
}

static int
compare_candidates(const void *a, const void *b)
{
	const candidate *x = a;
	const candidate *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

static int
compare_ranked(const void *a, const void *b)
{
	const ranked *x = a;
	const ranked *y = b;

	if (x->distance != y->distance)
		return x->distance < y->distance ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

/* products[r][q] = row r . column q of the panel, for ROWS consecutive rows */
CLONES static void
panel_products(const float *rows, const float *panel, int dim, float *products)
{
	lanes		acc[ROWS] = {{0}};

	for (int d = 0; d < dim; d++)
	{
		lanes		q = *(const lanes *) (panel + (size_t) d * PANEL);

		for (int r = 0; r < ROWS; r++)
			acc[r] += rows[(size_t) r * dim + d] * q;
	}
	memcpy(products, acc, sizeof(acc));
}

static void
shorten(shortlist *s)
{
	qsort(s->list, s->count, sizeof(candidate), compare_candidates);
	if (s->count > CANDIDATES)
		s->count = CANDIDATES;
	if (s->count == CANDIDATES)
		s->bound = s->list[CANDIDATES - 1].key;
}

static void
put_candidate(shortlist *s, float key, int32_t id)
{
	s->list[s->count++] = (candidate) {key, id};
	if (s->count == 2 * CANDIDATES)
		shorten(s);
}

/* Rows id, id + 1, ... to the lists of a panel. */
static void
offer(shortlist *lists, const float *add, const float *scale, int64_t id, int nrows,
	  const float *products)
{
	for (int r = 0; r < nrows; r++)
		for (int q = 0; q < PANEL; q++)
		{
			float		key = add[r] + scale[r] * products[r * PANEL + q];

			if (key < lists[q].bound)
				put_candidate(&lists[q], key, (int32_t) (id + r));
		}
}

exact_search *
exact_open(vectors query, metric m)
{
	exact_search *s = allocate(sizeof(exact_search));
	int			dim = query.dim;
	size_t		panel_bytes = sizeof(float) * dim * PANEL;

	s->query = query;
	s->m = m;
	s->block = (int) (BLOCK_BYTES / (sizeof(float) * dim) / ROWS * ROWS);
	if (s->block < ROWS)
		s->block = ROWS;
	s->npanels = (int) ((query.n + PANEL - 1) / PANEL);
	s->panels = allocate(panel_bytes * s->npanels);
	s->lists = allocate(sizeof(shortlist) * s->npanels * PANEL);
	s->add = allocate(sizeof(float) * s->block);
	s->scale = allocate(sizeof(float) * s->block);
	s->tail = allocate(sizeof(float) * ROWS * dim);
	memset(s->panels, 0, panel_bytes * s->npanels);
	for (int i = 0; i < s->npanels * PANEL; i++)
	{
		s->lists[i].count = 0;
		/* no row is near the columns that only fill the last panel */
		s->lists[i].bound = i < query.n ? INFINITY : -INFINITY;
		for (int d = 0; d < dim && i < query.n; d++)
			s->panels[((size_t) (i / PANEL) * dim + d) * PANEL + i % PANEL] =
				query.rows[(size_t) i * dim + d];
	}
	return s;
}

void
exact_close(exact_search *s)
{
	free(s->panels);
	free(s->lists);
	free(s->add);
	free(s->scale);
	free(s->tail);
	free(s);
}

/* count rows, no more than a block */
static void
weigh_rows(exact_search *s, const float *rows, int count)
{
	int			dim = s->query.dim;

	for (int i = 0; i < count; i++)
	{
		double		norm2 = 0;

		for (int d = 0; d < dim; d++)
			norm2 += (double) rows[(size_t) i * dim + d] * rows[(size_t) i * dim + d];
		s->add[i] = s->m == METRIC_L2 ? (float) norm2 : 0;
		s->scale[i] = s->m == METRIC_L2 ? -2 : s->m == METRIC_IP ? -1
			: norm2 > 0 ? (float) (-1 / sqrt(norm2)) : 0;
	}
}

void
exact_add(exact_search *s, const float *rows, int64_t count, int64_t first)
{
	int			dim = s->query.dim;

	for (int64_t b = 0; b < count; b += s->block)
	{
		int			n = count - b < s->block ? (int) (count - b) : s->block;

		weigh_rows(s, rows + b * dim, n);
		for (int p = 0; p < s->npanels; p++)
			for (int i = 0; i < n; i += ROWS)
			{
				float		products[ROWS * PANEL];
				const float *some = rows + (b + i) * dim;
				int			nrows = n - i < ROWS ? n - i : ROWS;

				if (nrows < ROWS)
				{
					memset(s->tail, 0, sizeof(float) * ROWS * dim);
					memcpy(s->tail, some, sizeof(float) * nrows * dim);
					some = s->tail;
				}
				panel_products(some, s->panels + (size_t) p * dim * PANEL, dim, products);
				offer(s->lists + p * PANEL, s->add + i, s->scale + i, first + b + i, nrows,
					  products);
			}
	}
}

void
exact_merge(exact_search *into, const exact_search *from)
{
	for (int64_t q = 0; q < into->query.n; q++)
		for (int i = 0; i < from->lists[q].count; i++)
			put_candidate(&into->lists[q], from->lists[q].list[i].key, from->lists[q].list[i].id);
}

static double
exact_distance(const float *a, const float *b, int dim, metric m)
{
	double		l2 = 0,
				ip = 0,
				aa = 0,
				bb = 0;

	for (int d = 0; d < dim; d++)
	{
		double		x = a[d],
					y = b[d];

		l2 += (x - y) * (x - y);
		ip += x * y;
		aa += x * x;
		bb += y * y;
	}
	if (m == METRIC_L2)
		return l2;
	if (m == METRIC_IP)
		return -ip;
	return 1 - ip / sqrt(aa * bb);
}

void
exact_settle(exact_search *s, exact_row row, void *arg, int32_t *ids, double *distances)
{
	int			dim = s->query.dim;
	float	   *space = allocate(sizeof(float) * dim);

	for (int64_t q = 0; q < s->query.n; q++)
	{
		ranked		r[CANDIDATES];
		shortlist  *list = &s->lists[q];

		shorten(list);
		for (int i = 0; i < list->count; i++)
		{
			r[i].id = list->list[i].id;
			r[i].distance = exact_distance(s->query.rows + q * dim, row(arg, r[i].id, space), dim,
										   s->m);
		}
		qsort(r, list->count, sizeof(ranked), compare_ranked);
		for (int i = 0; i < EXACT_K; i++)
		{
			ids[q * EXACT_K + i] = r[i].id;
			distances[q * EXACT_K + i] = r[i].distance;
		}
	}
	free(space);
}

static const float *
row_in_memory(void *arg, int64_t id, float *space)
{
	const vectors *base = arg;

	(void) space;
	return base->rows + id * base->dim;
}

static void *
exact_thread(void *arg)
{
	exact_job  *job = arg;
	int64_t		first;

	while ((first = atomic_fetch_add(&job->next, job->share)) < job->query.n)
	{
		vectors		query = {job->query.rows + first * job->query.dim, job->share, job->query.dim};
		exact_search *s;

		if (query.n > job->query.n - first)
			query.n = job->query.n - first;
		s = exact_open(query, job->m);
		exact_add(s, job->base.rows, job->base.n, 0);
		exact_settle(s, row_in_memory, &job->base, job->ids + first * EXACT_K,
					 job->distances + first * EXACT_K);
		exact_close(s);
	}
	return NULL;
}

static void
exact_neighbours(vectors base, vectors query, metric m, int threads, int32_t *ids,
				 double *distances)
{
	int64_t		panels = (query.n + PANEL - 1) / PANEL;
	int64_t		share = (panels + threads - 1) / threads;
	exact_job	job = {.base = base,.query = query,.m = m,.ids = ids,.distances = distances};

	/* one share a thread, unless its panels would be many times the cache */
	job.share = PANEL * (int) (share < 64 ? share : 64);
	run_threads(threads, exact_thread, &job);
}

static double
intrinsic_dimension(const double *distances, int64_t nq, metric m)
{
	double		sum = 0;

	if (m == METRIC_IP)
		return NAN;
	for (int64_t q = 0; q < nq; q++)
	{
		const double *d = distances + q * EXACT_K;
		double		logs = 0;

		/* both are squared distances up to a factor, whence the half */
		for (int i = 0; i < EXACT_K - 1; i++)
			logs += 0.5 * log(fmax(d[i], 1e-20) / fmax(d[EXACT_K - 1], 1e-20));
		sum += logs < 0 ? -(EXACT_K - 1) / logs : 0;
	}
	return sum / nq;
}

double
write_answers(const char *dir, int64_t n, vectors query, metric m, const int32_t *ids,
			  const double *distances, const char *source)
{
	double		lid = intrinsic_dimension(distances, query.n, m);
	char		meta[1024];

	make_directory(dir);
	write_file(dir, "query.f32", query.rows, sizeof(float) * query.n * query.dim);
	write_file(dir, "gt.i32", ids, sizeof(int32_t) * query.n * EXACT_K);
	write_file(dir, "gd.f64", distances, sizeof(double) * query.n * EXACT_K);
	snprintf(meta, sizeof(meta), "n=%lld\nnq=%lld\ndim=%d\nmetric=%s\nlid=%.1f\nsource=%s\n",
			 (long long) n, (long long) query.n, query.dim, metric_name(m), lid, source);
	/* last: its presence says that the others are complete */
	write_file(dir, "meta", meta, strlen(meta));
	return lid;
}

double
write_query_set(const char *dir, vectors base, vectors query, metric m, int threads,
				const char *source)
{
	int32_t    *ids = allocate(sizeof(int32_t) * query.n * EXACT_K);
	double	   *distances = allocate(sizeof(double) * query.n * EXACT_K);
	double		lid;

	if (base.n < EXACT_K)
		die("%lld base rows are fewer than the %d neighbours wanted", (long long) base.n, EXACT_K);
	exact_neighbours(base, query, m, threads, ids, distances);
	lid = write_answers(dir, base.n, query, m, ids, distances, source);
	free(ids);
	free(distances);
	return lid;
}

double
write_data_set(const char *dir, vectors base, vectors query, metric m, int threads,
			   const char *source)
{
	make_directory(dir);
	write_file(dir, "base.f32", base.rows, sizeof(float) * base.n * base.dim);
	return write_query_set(dir, base, query, m, threads, source);
}
