/*
 * exact.c
 *		Exact nearest neighbours by brute force, and the files of a bench data set.
 *
 * A first pass in float32 keeps the CANDIDATES best of each query, a second computes their
 * distances in double and keeps EXACT_K: float32 rounding can only lose a neighbour that falls
 * behind another hundred rows.  Each thread takes its own queries, in panels of PANEL columns laid
 * out dimension by dimension, and runs a block of base rows that fits the second-level cache past
 * all of them.
 */
#include "exact.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PANEL 16				/* queries a panel: one AVX-512 register, two AVX2 ones */
#define ROWS 6					/* base rows at a time: 12 AVX2 accumulators of the 16 registers */
#define BLOCK_BYTES (512 * 1024)	/* of base rows: half of a 1 MB second-level cache */
#define CANDIDATES (2 * EXACT_K)

#if defined(__x86_64__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

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

typedef struct exact_job
{
	vectors		base;
	vectors		query;
	metric		m;
	const float *add;			/* n: key = add + scale * ip */
	const float *scale;			/* n */
	int32_t    *ids;			/* nq x EXACT_K */
	double	   *distances;		/* nq x EXACT_K */
	int			panels_per_thread;
	atomic_int	next;
} exact_job;

typedef struct ranked
{
	double		distance;
	int32_t		id;
} ranked;

void
die(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

void *
allocate(size_t bytes)
{
	void	   *p = NULL;

	if (posix_memalign(&p, 64, bytes ? bytes : 1) != 0)
		die("out of memory allocating %zu bytes", bytes);
	return p;
}

metric
metric_of(const char *name)
{
	if (strcmp(name, "l2") == 0)
		return METRIC_L2;
	if (strcmp(name, "ip") == 0)
		return METRIC_IP;
	if (strcmp(name, "cos") == 0)
		return METRIC_COS;
	die("metric \"%s\" is none of l2, ip, cos", name);
}

int
online_cpus(void)
{
	long		n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : (int) n;
}

void
run_threads(int threads, void *(*body) (void *), void *arg)
{
	pthread_t  *th = allocate(sizeof(pthread_t) * threads);

	for (int i = 1; i < threads; i++)
		if (pthread_create(&th[i], NULL, body, arg) != 0)
			die("could not start a thread");
	body(arg);
	for (int i = 1; i < threads; i++)
		pthread_join(th[i], NULL);
	free(th);
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
offer(const exact_job *job, shortlist *lists, int64_t row, int nrows, const float *products)
{
	for (int r = 0; r < nrows; r++)
	{
		float		add = job->add[row + r];
		float		scale = job->scale[row + r];

		for (int q = 0; q < PANEL; q++)
		{
			float		key = add + scale * products[r * PANEL + q];
			shortlist  *s = &lists[q];

			if (key < s->bound)
			{
				s->list[s->count++] = (candidate) {key, (int32_t) (row + r)};
				if (s->count == 2 * CANDIDATES)
					shorten(s);
			}
		}
	}
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

static void
settle(const exact_job *job, int64_t q, shortlist *s)
{
	ranked		r[CANDIDATES];
	const float *query = job->query.rows + q * job->query.dim;

	shorten(s);
	for (int i = 0; i < s->count; i++)
	{
		r[i].id = s->list[i].id;
		r[i].distance = exact_distance(query, job->base.rows + (int64_t) r[i].id * job->base.dim,
									   job->base.dim, job->m);
	}
	qsort(r, s->count, sizeof(ranked), compare_ranked);
	for (int i = 0; i < EXACT_K; i++)
	{
		job->ids[q * EXACT_K + i] = r[i].id;
		job->distances[q * EXACT_K + i] = r[i].distance;
	}
}

static void *
exact_thread(void *arg)
{
	exact_job  *job = arg;
	int			dim = job->base.dim;
	int64_t		block = BLOCK_BYTES / (sizeof(float) * dim) / ROWS * ROWS;
	int			np = job->panels_per_thread;
	float	   *panels = allocate(sizeof(float) * np * dim * PANEL);
	shortlist  *lists = allocate(sizeof(shortlist) * np * PANEL);
	float	   *tail = allocate(sizeof(float) * ROWS * dim);

	if (block < ROWS)
		block = ROWS;
	for (;;)
	{
		int64_t		q0 = (int64_t) atomic_fetch_add(&job->next, 1) * np * PANEL;

		if (q0 >= job->query.n)
			break;
		memset(panels, 0, sizeof(float) * np * dim * PANEL);
		for (int i = 0; i < np * PANEL; i++)
		{
			lists[i].count = 0;
			lists[i].bound = INFINITY;
			if (q0 + i < job->query.n)
				for (int d = 0; d < dim; d++)
					panels[((size_t) (i / PANEL) * dim + d) * PANEL + i % PANEL] =
						job->query.rows[(q0 + i) * dim + d];
		}
		for (int64_t b = 0; b < job->base.n; b += block)
		{
			int64_t		end = b + block < job->base.n ? b + block : job->base.n;

			for (int p = 0; p < np && q0 + p * PANEL < job->query.n; p++)
				for (int64_t row = b; row < end; row += ROWS)
				{
					float		products[ROWS * PANEL];
					const float *rows = job->base.rows + row * dim;
					int			nrows = end - row < ROWS ? (int) (end - row) : ROWS;

					if (nrows < ROWS)
					{
						memset(tail, 0, sizeof(float) * ROWS * dim);
						memcpy(tail, rows, sizeof(float) * nrows * dim);
						rows = tail;
					}
					panel_products(rows, panels + (size_t) p * dim * PANEL, dim, products);
					offer(job, lists + p * PANEL, row, nrows, products);
				}
		}
		for (int i = 0; i < np * PANEL && q0 + i < job->query.n; i++)
			settle(job, q0 + i, &lists[i]);
	}
	free(panels);
	free(lists);
	free(tail);
	return NULL;
}

static void
exact_neighbours(vectors base, vectors query, metric m, int threads, int32_t *ids,
				 double *distances)
{
	float	   *add = allocate(sizeof(float) * base.n);
	float	   *scale = allocate(sizeof(float) * base.n);
	int64_t		panels = (query.n + PANEL - 1) / PANEL;
	exact_job	job = {.base = base,.query = query,.m = m,.add = add,.scale = scale,
	.ids = ids,.distances = distances};

	for (int64_t i = 0; i < base.n; i++)
	{
		double		norm2 = 0;

		for (int d = 0; d < base.dim; d++)
			norm2 += (double) base.rows[i * base.dim + d] * base.rows[i * base.dim + d];
		add[i] = m == METRIC_L2 ? (float) norm2 : 0;
		scale[i] = m == METRIC_L2 ? -2 : m == METRIC_IP ? -1
			: norm2 > 0 ? (float) (-1 / sqrt(norm2)) : 0;
	}

	/* one share a thread, unless its panels would be many times the cache */
	job.panels_per_thread = (int) ((panels + threads - 1) / threads);
	if (job.panels_per_thread > 64)
		job.panels_per_thread = 64;
	run_threads(threads, exact_thread, &job);
	free(add);
	free(scale);
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

static void
write_file(const char *dir, const char *name, const void *data, size_t size)
{
	char		path[4096];
	FILE	   *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "wb");
	if (f == NULL || fwrite(data, 1, size, f) != size || fclose(f) != 0)
		die("could not write \"%s\": %s", path, strerror(errno));
}

double
write_data_set(const char *dir, vectors base, vectors query, metric m, int threads,
			   const char *source)
{
	int32_t    *ids = allocate(sizeof(int32_t) * query.n * EXACT_K);
	double	   *distances = allocate(sizeof(double) * query.n * EXACT_K);
	double		lid;
	char		meta[1024];

	if (base.n < EXACT_K)
		die("%lld base rows are fewer than the %d neighbours wanted", (long long) base.n, EXACT_K);
	if (mkdir(dir, 0755) != 0 && errno != EEXIST)
		die("could not create \"%s\": %s", dir, strerror(errno));
	exact_neighbours(base, query, m, threads, ids, distances);
	lid = intrinsic_dimension(distances, query.n, m);
	write_file(dir, "base.f32", base.rows, sizeof(float) * base.n * base.dim);
	write_file(dir, "query.f32", query.rows, sizeof(float) * query.n * query.dim);
	write_file(dir, "gt.i32", ids, sizeof(int32_t) * query.n * EXACT_K);
	write_file(dir, "gd.f64", distances, sizeof(double) * query.n * EXACT_K);
	snprintf(meta, sizeof(meta), "n=%lld\nnq=%lld\ndim=%d\nmetric=%s\nlid=%.1f\nsource=%s\n",
			 (long long) base.n, (long long) query.n, base.dim,
			 m == METRIC_L2 ? "l2" : m == METRIC_IP ? "ip" : "cos", lid, source);
	/* last: its presence says that the others are complete */
	write_file(dir, "meta", meta, strlen(meta));
	free(ids);
	free(distances);
	return lid;
}
