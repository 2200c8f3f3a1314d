/*
 * test_cuda_search.c
 *		Searches of the CUDA engine against the CPU engine: exact ones by distance, walks by
 *		recall, and both kernels and all batch sizes against each other.
 *
 * Needs a GPU.  Graphs are made here by comparing all rows, so nothing depends on a builder.
 *
 * Tolerances: the engines add in different orders, so a distance may be off by a share of the sum
 * of its terms' sizes, 1e-5 of it here (float32 has 6e-8, and 16,000 terms lose some more).  Recall
 * may differ by 0.01: the CUDA walk compares fp16 rows and expands more parents a step.
 *
 * GG_TEST_SMALL in the environment: for compute-sanitizer and the emulated device.  Then each
 * instance of each kernel runs a few times (test_variant), instead of many shapes hundreds of
 * times.  The answers are checked as ever.
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../harness.h"
#include "../small_graph.h"

#define TOLERANCE 1e-5

static const gg_control control = {.threads = 2};

typedef struct scene
{
	gg_dataset	data;
	gg_graph	graph;
	float	   *rows;			/* float32, whatever data.rows is */
	uint16_t   *halves;
	float	   *queries;
	uint32_t	nq;
	gg_index   *cpu;
	gg_index   *cuda;
	char		name[128];
} scene;

typedef struct scene_spec
{
	uint32_t	n;
	uint32_t	dim;
	gg_metric	metric;
	gg_element	element;
	uint32_t	degree;
	uint32_t	npivots;
	uint32_t	nq;
	uint32_t	copies;			/* of each row; 0 or 1: none */
	float		offset;			/* added to every element */
	float		apart;			/* times row % 4 and element % 7, added: tight clusters */
	bool		marked;			/* every third edge has GG_EDGE_MARK */
} scene_spec;

typedef struct answers
{
	uint32_t	k;
	uint32_t   *nodes;
	float	   *distances;
} answers;

static answers
answers_make(uint32_t nq, uint32_t k)
{
	size_t		count = (size_t) nq * k;
	answers		a = {k, malloc(count * sizeof(uint32_t) + 1), malloc(count * sizeof(float) + 1)};

	memset(a.nodes, 0xAB, count * sizeof(uint32_t));
	memset(a.distances, 0xAB, count * sizeof(float));
	return a;
}

static void
answers_free(answers *a)
{
	free(a->nodes);
	free(a->distances);
}

static void
scene_open(scene *s, const scene_spec *spec, uint64_t seed)
{
	small_random random = {seed};
	uint32_t	copies = spec->copies > 1 ? spec->copies : 1;
	uint32_t	distinct = (spec->n + copies - 1) / copies;
	uint32_t	latent = spec->dim < 12 ? spec->dim : 12;
	bool		unit = spec->metric == GG_METRIC_COSINE;
	float	   *all;

	memset(s, 0, sizeof(*s));
	snprintf(s->name, sizeof(s->name),
			 "n %u dim %u metric %d element %d degree %u copies %u offset %g", spec->n, spec->dim,
			 (int) spec->metric, (int) spec->element, spec->degree, copies, (double) spec->offset);
	s->nq = spec->nq;
	/* rows and queries from one draw: the same clusters */
	all = malloc(((size_t) distinct + spec->nq) * spec->dim * sizeof(float));
	small_clusters(&random, all, distinct + spec->nq, spec->dim, latent, 8, 0.7f, unit);
	for (size_t i = 0; i < ((size_t) distinct + spec->nq) * spec->dim; i++)
		all[i] += spec->offset + spec->apart * (float) (i / spec->dim % 4 * (i % spec->dim % 7));
	s->rows = malloc((size_t) spec->n * spec->dim * sizeof(float) + 1);
	s->halves = malloc((size_t) spec->n * spec->dim * sizeof(uint16_t) + 1);
	for (uint32_t i = 0; i < spec->n; i++)
		memcpy(s->rows + (size_t) i * spec->dim, all + (size_t) (i % distinct) * spec->dim,
			   spec->dim * sizeof(float));
	if (spec->element == GG_ELEMENT_F16)
	{
		for (size_t i = 0; i < (size_t) spec->n * spec->dim; i++)
		{
			s->halves[i] = gg_float_to_half(s->rows[i]);
			s->rows[i] = gg_half_to_float(s->halves[i]);
		}
	}
	s->queries = malloc((size_t) spec->nq * spec->dim * sizeof(float) + 1);
	memcpy(s->queries, all + (size_t) distinct * spec->dim,
		   (size_t) spec->nq * spec->dim * sizeof(float));
	/* queries come with any length */
	for (size_t i = 0; unit && i < (size_t) spec->nq * spec->dim; i++)
		s->queries[i] *= 3;
	free(all);

	s->data.rows = spec->element == GG_ELEMENT_F16 ? (void *) s->halves : (void *) s->rows;
	s->data.n = spec->n;
	s->data.dim = spec->dim;
	s->data.element = spec->element;
	s->data.metric = spec->metric;
	small_graph_make(&random, s->rows, spec->n, spec->dim,
					 spec->metric == GG_METRIC_IP ? GG_METRIC_L2 : spec->metric, spec->degree,
					 spec->npivots, &s->graph);
	for (size_t i = 0; spec->marked && i < (size_t) spec->n * spec->degree; i += 3)
		if (s->graph.adjacency[i] != GG_NO_NODE)
			s->graph.adjacency[i] |= GG_EDGE_MARK;
	CHECK_OK(gg_cpu_engine.index_open(&s->data, &s->graph, &control, &s->cpu), s->name);
	CHECK_OK(gg_cuda_engine.index_open(&s->data, &s->graph, &control, &s->cuda), s->name);
}

static void
scene_close(scene *s)
{
	gg_cpu_engine.index_close(s->cpu);
	gg_cuda_engine.index_close(s->cuda);
	small_graph_free(&s->graph);
	free(s->rows);
	free(s->halves);
	free(s->queries);
}

/* A distance in double, and the size that its error is measured by. */
static double
reference(const scene *s, uint32_t row, const float *query, double *size)
{
	const float *x = s->rows + (size_t) row * s->data.dim;
	double		dot = 0,
				xx = 0,
				qq = 0,
				l2 = 0,
				l1 = 0,
				products = 0;

	for (uint32_t i = 0; i < s->data.dim; i++)
	{
		double		difference = (double) x[i] - query[i];

		dot += (double) x[i] * query[i];
		products += fabs((double) x[i] * query[i]);
		xx += (double) x[i] * x[i];
		qq += (double) query[i] * query[i];
		l2 += difference * difference;
		l1 += fabs(difference);
	}
	switch (s->data.metric)
	{
		case GG_METRIC_L2:
			*size = l2;
			return l2;
		case GG_METRIC_L1:
			*size = l1;
			return l1;
		case GG_METRIC_IP:
			*size = products;
			return -dot;
		default:
			*size = 1;
			/* float32 rows are taken as of unit length */
			if (s->data.element == GG_ELEMENT_F32)
				xx = 1;
			return xx == 0 || qq == 0 ? 1 : 1 - dot / sqrt(xx * qq);
	}
}

/* Answers out of order, repeated, out of range, badly padded or with a wrong distance. */
static uint32_t
answers_wrong(const scene *s, const answers *a, uint32_t nq)
{
	uint32_t	wrong = 0;

	for (uint32_t q = 0; q < nq; q++)
	{
		const uint32_t *nodes = a->nodes + (size_t) q * a->k;
		const float *distances = a->distances + (size_t) q * a->k;

		for (uint32_t i = 0; i < a->k; i++)
		{
			double		size;
			double		d;

			if (nodes[i] == GG_NO_NODE)
			{
				wrong += distances[i] != INFINITY;
				continue;
			}
			if (nodes[i] >= s->data.n)
			{
				wrong++;
				continue;
			}
			d = reference(s, nodes[i], s->queries + (size_t) q * s->data.dim, &size);
			wrong += !(fabs(distances[i] - d) <= TOLERANCE * size + 1e-30);
			if (i > 0)
				wrong += nodes[i - 1] == GG_NO_NODE || distances[i - 1] > distances[i] ||
					(distances[i - 1] == distances[i] && nodes[i - 1] >= nodes[i]);
		}
	}
	return wrong;
}

/* Share of the first k answers that are no farther than the true k-th, up to rounding. */
static double
answers_recall(const scene *s, const answers *a, const answers *truth, uint32_t nq, uint32_t k)
{
	uint64_t	hits = 0;
	uint64_t	possible = 0;

	for (uint32_t q = 0; q < nq; q++)
	{
		for (uint32_t i = 0; i < k; i++)
		{
			uint32_t	node = a->nodes[(size_t) q * a->k + i];
			uint32_t	last = truth->nodes[(size_t) q * truth->k + k - 1];
			float		farthest = truth->distances[(size_t) q * truth->k + k - 1];
			double		size = 0;

			possible += truth->nodes[(size_t) q * truth->k + i] != GG_NO_NODE;
			if (last != GG_NO_NODE)
				(void) reference(s, last, s->queries + (size_t) q * s->data.dim, &size);
			hits += node != GG_NO_NODE &&
				a->distances[(size_t) q * a->k + i] <= farthest + TOLERANCE * size;
		}
	}
	return possible > 0 ? (double) hits / (double) possible : 1;
}

/* Share of b's nodes that a has too, over the first nq queries. */
static double
answers_shared(const answers *a, const answers *b, uint32_t nq)
{
	uint64_t	same = 0;
	uint64_t	all = 0;

	for (uint32_t q = 0; q < nq; q++)
		for (uint32_t i = 0; i < b->k; i++)
		{
			uint32_t	node = b->nodes[(size_t) q * b->k + i];

			if (node == GG_NO_NODE)
				continue;
			all++;
			for (uint32_t j = 0; j < a->k; j++)
				if (a->nodes[(size_t) q * a->k + j] == node)
				{
					same++;
					break;
				}
		}
	return all > 0 ? (double) same / (double) all : 1;
}

/* ---- exact ----------------------------------------------------------------- */

static void
check_exact(scene *s, uint32_t k, uint32_t nq, const uint32_t *filter, const char *what)
{
	answers		cpu = answers_make(nq, k);
	answers		cuda = answers_make(nq, k);
	uint32_t	differ = 0;

	CHECK_OK(harness_exact(&gg_cpu_engine, s->cpu, k, filter, s->queries, nq, &control, cpu.nodes,
						   cpu.distances), s->name);
	CHECK_OK(harness_exact(&gg_cuda_engine, s->cuda, k, filter, s->queries, nq, &control,
						   cuda.nodes, cuda.distances), s->name);
	CHECK(answers_wrong(s, &cuda, nq) == 0, "%s: exact %s k %u nq %u: %u wrong", s->name, what, k,
		  nq, answers_wrong(s, &cuda, nq));
	/* position by position the same distance: no row was missed */
	for (uint32_t q = 0; q < nq; q++)
		for (uint32_t i = 0; i < k; i++)
		{
			size_t		at = (size_t) q * k + i;
			double		size = 0;

			if ((cpu.nodes[at] == GG_NO_NODE) != (cuda.nodes[at] == GG_NO_NODE))
				differ++;
			else if (cpu.nodes[at] != GG_NO_NODE)
			{
				if (filter != NULL && cuda.nodes[at] < s->data.n &&
					(filter[cuda.nodes[at] / 32] >> cuda.nodes[at] % 32 & 1) == 0)
					differ++;
				(void) reference(s, cpu.nodes[at], s->queries + (size_t) q * s->data.dim, &size);
				differ += !(fabs((double) cpu.distances[at] - cuda.distances[at]) <=
							2 * TOLERANCE * size + 1e-30);
			}
		}
	CHECK(differ == 0, "%s: exact %s k %u nq %u: %u places differ", s->name, what, k, nq, differ);
	answers_free(&cpu);
	answers_free(&cuda);
}

static void
check_exacts(scene *s)
{
	uint32_t	words = (s->data.n + 31) / 32;
	uint32_t   *filter = malloc((words + 1) * sizeof(uint32_t));
	small_random random = {77};
	uint32_t	few = s->nq < 3 ? s->nq : 3;

	check_exact(s, 1, 1, NULL, "all");
	check_exact(s, 10, s->nq, NULL, "all");
	check_exact(s, 100, few, NULL, "all");
	check_exact(s, 1024, 1, NULL, "all");
	for (uint32_t share = 0; share <= 50; share = share == 0 ? 2 : share * 5)
	{
		memset(filter, 0, words * sizeof(uint32_t));
		for (uint32_t i = 0; i < s->data.n; i++)
			if (small_random_bits(&random) % 100 < share)
				filter[i / 32] |= 1u << i % 32;
		/* bits past the last row must not matter */
		if (s->data.n % 32 != 0)
			filter[words - 1] |= ~0u << s->data.n % 32;
		check_exact(s, 10, few, filter, "filtered");
		check_exact(s, 70, 1, filter, "filtered");
	}
	free(filter);
}

/* ---- walks ----------------------------------------------------------------- */

static const gg_search_mode modes[] = {GG_SEARCH_SINGLE_CTA, GG_SEARCH_MULTI_CTA, GG_SEARCH_AUTO,
GG_SEARCH_TSDG_LARGE, GG_SEARCH_TSDG_SMALL};
static const char *const mode_names[] = {"single", "multi", "auto", "large", "small"};

static void
check_walk(scene *s, uint32_t k, uint32_t itopk, uint32_t width, uint32_t nq)
{
	/* what is chosen is one of the other two */
	const int	nmodes = harness_small() ? 2 : 3;
	gg_search_params params = {.k = k,.itopk_size = itopk,.search_width = width};
	answers		truth = answers_make(nq, k);
	answers		cpu = answers_make(nq, k);
	answers		found[3];
	double		cpu_recall;

	CHECK_OK(harness_exact(&gg_cpu_engine, s->cpu, k, NULL, s->queries, nq, &control, truth.nodes,
						   truth.distances), s->name);
	CHECK_OK(harness_search(&gg_cpu_engine, s->cpu, &params, s->queries, nq, &control, cpu.nodes,
							cpu.distances), s->name);
	cpu_recall = answers_recall(s, &cpu, &truth, nq, k);
	for (int m = 0; m < nmodes; m++)
	{
		double		recall;

		found[m] = answers_make(nq, k);
		params.mode = modes[m];
		CHECK_OK(harness_search(&gg_cuda_engine, s->cuda, &params, s->queries, nq, &control,
								found[m].nodes, found[m].distances), s->name);
		recall = answers_recall(s, &found[m], &truth, nq, k);
		CHECK(answers_wrong(s, &found[m], nq) == 0, "%s: %s k %u itopk %u width %u nq %u: %u wrong",
			  s->name, mode_names[m], k, itopk, width, nq, answers_wrong(s, &found[m], nq));
		/* one query more or less of few is no difference */
		CHECK(recall >= cpu_recall - 0.01 - 1.0 / nq,
			  "%s: %s k %u itopk %u width %u nq %u: recall %.4f, cpu %.4f", s->name, mode_names[m],
			  k, itopk, width, nq, recall, cpu_recall);
	}
	CHECK(answers_shared(&found[0], &found[1], nq) >= 0.998 - 1.0 / nq / k,
		  "%s: k %u itopk %u width %u nq %u: single and multi share %.4f", s->name, k, itopk, width,
		  nq, answers_shared(&found[0], &found[1], nq));
	for (int m = 0; m < nmodes; m++)
		answers_free(&found[m]);
	answers_free(&truth);
	answers_free(&cpu);
}

/*
 * A search of TSDG: nearly the CPU engine's answers, and the same bits each time and in each batch.
 */
static void
check_tsdg(scene *s, const gg_search_params *params, uint32_t nq)
{
	const uint32_t k = params->k;
	answers		truth = answers_make(nq, k);
	answers		cpu = answers_make(nq, k);
	answers		found = answers_make(nq, k);
	answers		again = answers_make(nq, k);
	char		what[128];
	double		cpu_recall,
				recall;

	snprintf(what, sizeof(what), "%s, k %u itopk %u walks %u delta %g nq %u",
			 params->mode == GG_SEARCH_TSDG_SMALL ? "small" : "large", k, params->itopk_size,
			 params->walks, (double) params->delta, nq);
	CHECK_OK(harness_exact(&gg_cpu_engine, s->cpu, k, NULL, s->queries, nq, &control, truth.nodes,
						   truth.distances), s->name);
	CHECK_OK(harness_search(&gg_cpu_engine, s->cpu, params, s->queries, nq, &control, cpu.nodes,
							cpu.distances), s->name);
	CHECK_OK(harness_search(&gg_cuda_engine, s->cuda, params, s->queries, nq, &control, found.nodes,
							found.distances), s->name);
	cpu_recall = answers_recall(s, &cpu, &truth, nq, k);
	recall = answers_recall(s, &found, &truth, nq, k);
	CHECK(answers_wrong(s, &found, nq) == 0, "%s: %s: %u wrong", s->name, what,
		  answers_wrong(s, &found, nq));
	CHECK(recall >= cpu_recall - 0.01 - 1.0 / nq, "%s: %s: recall %.4f, cpu %.4f", s->name, what,
		  recall, cpu_recall);
	CHECK(answers_shared(&cpu, &found, nq) >= 0.98 - 1.0 / nq, "%s: %s: the engines share %.4f",
		  s->name, what, answers_shared(&cpu, &found, nq));
	for (uint32_t first = 0; first < nq; first += 5)
		CHECK_OK(harness_search(&gg_cuda_engine, s->cuda, params, s->queries + (size_t) first *
								s->data.dim, nq - first < 5 ? nq - first : 5, &control, again.nodes
								+ (size_t) first * k, again.distances + (size_t) first * k),
				 s->name);
	CHECK(memcmp(found.nodes, again.nodes, (size_t) nq * k * sizeof(uint32_t)) == 0 &&
		  memcmp(found.distances, again.distances, (size_t) nq * k * sizeof(float)) == 0,
		  "%s: %s: batches of 5 differ", s->name, what);
	answers_free(&truth);
	answers_free(&cpu);
	answers_free(&found);
	answers_free(&again);
}

/* With fewer pivots than a walk has seeds, searches are as under auto. */
static void
check_greedy(scene *s, uint32_t k, uint32_t itopk, uint32_t walks, uint32_t nq)
{
	const gg_search_params params = {.k = k,.itopk_size = itopk,.mode = GG_SEARCH_TSDG_SMALL,
	.walks = walks};

	if (s->graph.npivots >= 32)
		check_tsdg(s, &params, nq);
}

static void
check_segmented(scene *s, uint32_t k, uint32_t itopk, float delta, uint32_t nq)
{
	const gg_search_params params = {.k = k,.itopk_size = itopk,.mode = GG_SEARCH_TSDG_LARGE,
	.delta = delta};

	check_tsdg(s, &params, nq);
}

/* The first queries of a batch get what they get alone. */
static void
check_batches(scene *s, uint32_t k, uint32_t itopk)
{
	/* clusters of many sizes, whatever the device; then a block a query, then a warp */
	static const uint32_t batches[] = {1, 2, 7, 8, 9, 11, 13, 14, 15, 16, 18, 20, 24, 27, 31, 33,
									   42, 44, 52, 66, 67, 132, 1000};
	gg_search_params params = {.k = k,.itopk_size = itopk};
	answers		all = answers_make(s->nq, k);

	CHECK_OK(harness_search(&gg_cuda_engine, s->cuda, &params, s->queries, s->nq, &control,
							all.nodes, all.distances), s->name);
	for (size_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++)
	{
		uint32_t	nq = batches[b] < s->nq ? batches[b] : s->nq;
		uint32_t	total = s->nq < 2 * nq ? nq : s->nq / nq * nq;
		answers		some = answers_make(total, k);

		for (uint32_t first = 0; first < total; first += nq)
			CHECK_OK(harness_search(&gg_cuda_engine, s->cuda, &params, s->queries + (size_t) first *
									s->data.dim, nq, &control, some.nodes + (size_t) first * k,
									some.distances + (size_t) first * k), s->name);
		CHECK(answers_shared(&all, &some, total) >= 0.998 - 1.0 / total,
			  "%s: itopk %u: batches of %u and %u share %.4f", s->name, itopk, nq, s->nq,
			  answers_shared(&all, &some, total));
		answers_free(&some);
	}
	answers_free(&all);
}

/*
 * Whether blocks have less shared memory than capability 9.0 has: then the widest rows are refused,
 * which test_refusals() of test_cuda_search sees to.  GPUGRAPH_AS: see test/README.
 */
static bool
little_shared(void)
{
	const char *as = getenv("GPUGRAPH_AS");
	int			bytes = 0;

	return (as != NULL && as[0] != '\0') ||
		cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) != cudaSuccess ||
		bytes < 200 * 1024;
}

static void
test_scenes(void)
{
	static const scene_spec specs[] = {
		{.n = 3000,.dim = 128,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,.degree = 32,
		 .npivots = 200,.nq = 1000},
		{.n = 2000,.dim = 96,.metric = GG_METRIC_COSINE,.element = GG_ELEMENT_F32,.degree = 32,
		 .npivots = 130,.nq = 300,.marked = true},
		{.n = 2000,.dim = 100,.metric = GG_METRIC_IP,.element = GG_ELEMENT_F32,.degree = 32,
		 .npivots = 200,.nq = 300},
		{.n = 2000,.dim = 72,.metric = GG_METRIC_L1,.element = GG_ELEMENT_F32,.degree = 32,
		 .npivots = 100,.nq = 300},
		{.n = 2000,.dim = 128,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F16,.degree = 32,
		 .npivots = 129,.nq = 132,.marked = true},
		{.n = 2000,.dim = 65,.metric = GG_METRIC_COSINE,.element = GG_ELEMENT_F16,.degree = 32,
		 .npivots = 50,.nq = 132},
		{.n = 1500,.dim = 33,.metric = GG_METRIC_IP,.element = GG_ELEMENT_F16,.degree = 17,
		 .npivots = 90,.nq = 132},
		{.n = 1500,.dim = 40,.metric = GG_METRIC_L1,.element = GG_ELEMENT_F16,.degree = 24,
		 .npivots = 90,.nq = 132},
		{.n = 1000,.dim = 1,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,.degree = 16,
		 .npivots = 60,.nq = 64},
		{.n = 1000,.dim = 3,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,.degree = 16,
		 .npivots = 60,.nq = 64},
		{.n = 1000,.dim = 3,.metric = GG_METRIC_COSINE,.element = GG_ELEMENT_F32,.degree = 16,
		 .npivots = 60,.nq = 64},
		{.n = 1000,.dim = 3,.metric = GG_METRIC_L1,.element = GG_ELEMENT_F32,.degree = 16,
		 .npivots = 60,.nq = 64},
		{.n = 1000,.dim = 3,.metric = GG_METRIC_IP,.element = GG_ELEMENT_F16,.degree = 16,
		 .npivots = 60,.nq = 64},
		{.n = 1000,.dim = 31,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,.degree = 64,
		 .npivots = 60,.nq = 64},
		{.n = 1000,.dim = 97,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,.degree = 48,
		 .npivots = 60,.nq = 64},
		{.n = 800,.dim = 960,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,.degree = 32,
		 .npivots = 60,.nq = 140,.marked = true},
		{.n = 500,.dim = 2000,.metric = GG_METRIC_COSINE,.element = GG_ELEMENT_F32,.degree = 32,
		 .npivots = 40,.nq = 300},
		{.n = 300,.dim = 4097,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F16,.degree = 16,
		 .npivots = 40,.nq = 140},
		{.n = 300,.dim = 4097,.metric = GG_METRIC_L1,.element = GG_ELEMENT_F32,.degree = 16,
		 .npivots = 40,.nq = 20},
		{.n = 200,.dim = 16000,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,.degree = 16,
		 .npivots = 20,.nq = 140},
		{.n = 200,.dim = 16000,.metric = GG_METRIC_IP,.element = GG_ELEMENT_F16,.degree = 16,
		 .npivots = 20,.nq = 17},
		/*
		 * with the longest lists more than a block's shared memory, were the visited set not made
		 * smaller
		 */
		{.n = 200,.dim = 16000,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,.degree = 32,
		 .npivots = 20,.nq = 20},
		{.n = 2000,.dim = 32,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,.degree = 32,
		 .npivots = 100,.nq = 64,.copies = 20,.marked = true},
		{.n = 1500,.dim = 64,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,.degree = 32,
		 .npivots = 100,.nq = 64,.offset = 1000},
		{.n = 600,.dim = 24,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,.degree = 256,
		 .npivots = 30,.nq = 64},
	};

	for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
	{
		scene_spec	spec = specs[i];
		scene		s;

		if (spec.dim > 2000 && little_shared())
			spec.dim = 2000;
		scene_open(&s, &spec, 100 + i);
		check_exacts(&s);
		check_walk(&s, 10, 64, 0, s.nq);
		check_walk(&s, 10, 32, 1, s.nq < 100 ? s.nq : 100);
		check_walk(&s, 64, 64, 4, s.nq < 50 ? s.nq : 50);
		check_walk(&s, 1, 1, 0, s.nq < 20 ? s.nq : 20);
		check_walk(&s, 5, 7, 3, s.nq < 20 ? s.nq : 20);
		check_walk(&s, 100, 200, 0, s.nq < 20 ? s.nq : 20);
		check_walk(&s, 1024, 1024, 0, s.nq < 4 ? s.nq : 4);
		/* lists with which a warp has a wide row's query alone, and such as are too long for it */
		if (s.data.dim > 384 && s.nq > 132)
		{
			check_walk(&s, 10, 96, 0, s.nq);
			check_walk(&s, 10, 600, 0, s.nq);
		}
		check_greedy(&s, 10, 64, 0, s.nq < 100 ? s.nq : 100);
		check_greedy(&s, 32, 32, 1, s.nq < 50 ? s.nq : 50);
		check_greedy(&s, 1, 1, 0, s.nq < 20 ? s.nq : 20);
		check_greedy(&s, 10, 500, 0, s.nq < 5 ? s.nq : 5);
		check_segmented(&s, 10, 64, 0, s.nq < 300 ? s.nq : 300);
		check_segmented(&s, 10, 12, 0.5f, s.nq < 100 ? s.nq : 100);
		check_segmented(&s, 64, 64, 0, s.nq < 50 ? s.nq : 50);
		check_segmented(&s, 1, 1, 0, s.nq < 20 ? s.nq : 20);
		check_segmented(&s, 100, 200, 0, s.nq < 20 ? s.nq : 20);
		check_segmented(&s, 1024, 1024, 0, s.nq < 4 ? s.nq : 4);
		check_batches(&s, 10, 64);
		if (i == 0)
			check_batches(&s, 100, 300);
		scene_close(&s);
	}
}

/*
 * For slow checkers: each instance of each kernel.
 *	exact_kernel			element, metric; a row by 8 lanes or by 32 (above 1,024 bytes); one
 *							query, or 8 at a time
 *	search_warp_kernel		path of the walk, and teams of lanes (above 384 dimensions, more queries
 *							than multiprocessors); element and metric of the last distances
 *	segmented_kernel		the same; four warps (above 384 dimensions)
 *	search_block_kernel		the same, in a cluster of blocks (few queries), one block a query, and
 *							with 4 warps instead of 16 (more queries than multiprocessors)
 *	pivot_scores_kernel		more than one tile of 128 pivots a block
 * and those that prepare an index.  Above 384 dimensions search_block_kernel is both modes of few
 * queries.
 */
static struct
{
	gg_metric	metric;
	int			half;			/* rows of float16 */
	int			d;				/* which of the dimensions */
	int			wide;			/* 1 to NWIDE: a list or filter that one variant is enough for */
}			variant;

#define NWIDE 8

static void
test_variant(void)
{
	static const uint32_t dims[2][3] = {{3, 40, 300}, {5, 33, 600}};	/* of float32, float16 */
	const gg_metric metric = variant.metric;
	const int	half = variant.half;
	const int	d = variant.d;
	/*
	 * each path once with many queries: fp32 rows of few dimensions (not IP, cosine is the same),
	 * fp16 ones, wide ones
	 */
	const bool	many = (half == 0 && metric != GG_METRIC_IP &&
						(d == 0 || (d == 1 && metric != GG_METRIC_COSINE))) ||
		(half == 1 && metric == GG_METRIC_L2 && d == 2);
	/*
	 * a walk by several blocks takes the emulated device long, and the longest list ends when all
	 * rows are in it
	 */
	const bool	brief = variant.wide == NWIDE && harness_fewer();
	/* a walk that sees more nodes than its visited set has room for */
	const bool	forgetful = variant.wide == 7;
	scene_spec	spec = {.n = brief ? 50 : forgetful ? 8000 : variant.wide ? 700 : 300,
		.dim = forgetful ? 16 : dims[half][d],.metric = metric,
		.element = half ? GG_ELEMENT_F16 : GG_ELEMENT_F32,.degree = forgetful ? 64 : 16,
		.npivots = brief ? 8 : variant.wide ? 300 : 40,
	.nq = many ? 140 : 70,.marked = d == 1};
	uint32_t	filter[700 / 32 + 1];
	scene		s;

	scene_open(&s, &spec, 100 + metric * 10 + half * 5 + d);
	for (uint32_t i = 0; i < sizeof(filter) / sizeof(filter[0]); i++)
		filter[i] = 0x9E3779B1u * (i + 1);
	switch (variant.wide)
	{
		case 1:
			check_exact(&s, 10, 3, filter, "filtered");
			break;
		case 2:
			check_exact(&s, 100, 1, NULL, "all");
			break;
		case 3:
			check_exact(&s, 1024, 1, NULL, "all");
			break;
		case 4:
			/* a block a query */
			check_walk(&s, 10, 64, 0, 70);
			break;
		case 5:
			check_walk(&s, 64, 64, 4, 2);
			break;
		case 6:
			check_walk(&s, 1, 1, 0, 2);
			break;
		case 7:
			check_segmented(&s, 64, 64, 100, 4);
			check_segmented(&s, 64, 64, 100, 65);
			break;
		case NWIDE:
			check_walk(&s, 1024, 1024, 0, 1);
			break;
		default:
			check_exact(&s, 10, 1, NULL, "all");
			check_exact(&s, 10, 9, NULL, "all");
			check_walk(&s, 10, 32, 0, 12);
			check_greedy(&s, 10, 16, 0, 12);
			/* a warp a query, on a device of few multiprocessors, and two in batches of 5 */
			check_segmented(&s, 10, 32, 0, 70);
			if (many)
				check_walk(&s, 10, d == 2 ? 96 : 32, 0, 140);
	}
	scene_close(&s);
}

/*
 * Rows at right angles to the query, products that are 0 and products that vanish below 0 among
 * them: their distances are one 0, as the CPU engine's, and they go by their ids.
 */
static void
test_zero_products(void)
{
	enum
	{
		n = 50,
		dim = 6
	};
	float		rows[n * dim] = {0};
	const float query[dim] = {1e-30f, 0, 0, 0, 0, 0};
	gg_dataset	data = {rows, n, dim, GG_ELEMENT_F32, GG_METRIC_IP};
	gg_search_params walk = {.k = 1,.itopk_size = 1};
	uint32_t	nodes[n];
	float		distances[n];
	uint32_t	wrong = 0;
	gg_index   *index;

	for (uint32_t i = 0; i < n; i++)
	{
		rows[i * dim] = i % 3 == 0 ? 1e-30f : i % 3 == 1 ? -1e-30f : 0;
		rows[i * dim + 1 + i % 5] = 1;
	}
	CHECK_OK(gg_cuda_engine.index_open(&data, NULL, &control, &index), "open");
	CHECK_OK(harness_exact(&gg_cuda_engine, index, n, NULL, query, 1, &control, nodes, distances),
			 "exact");
	for (uint32_t i = 0; i < n; i++)
		wrong += nodes[i] != i || distances[i] != 0 || signbit(distances[i]);
	CHECK(wrong == 0, "%u of %u rows are out of place, or their 0 is a negative one", wrong, n);
	CHECK(harness_search(&gg_cuda_engine, index, &walk, query, 1, &control, nodes, distances).code
		  == GG_EINVAL, "a walk without a graph");
	gg_cuda_engine.index_close(index);
}

/* Few rows: every one is found, and the rest is padding. */
static void
test_few_rows(void)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 5, 17, 31, 32, 33, 65};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
	{
		if (harness_small() && sizes[i] != 1 && sizes[i] != 33)
			continue;
		for (uint32_t dim = 5; dim <= 40; dim += 35)
		{
			uint32_t	n = sizes[i];
			scene_spec	spec = {.n = n,.dim = dim,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,
			.degree = 8,.npivots = n < 4 ? n : 4,.nq = harness_size(40, 10)};
			gg_search_params params = {.k = 100,.itopk_size = 128};
			scene		s;

			scene_open(&s, &spec, 7 + i);
			for (int m = 0; m < 4; m++)
			{
				answers		a = answers_make(s.nq, 100);
				uint32_t	filled = 0;

				params.mode = modes[m];
				CHECK_OK(harness_search(&gg_cuda_engine, s.cuda, &params, s.queries, s.nq, &control,
										a.nodes, a.distances), s.name);
				for (uint32_t j = 0; j < s.nq * 100; j++)
					filled += a.nodes[j] != GG_NO_NODE;
				CHECK(filled == s.nq * n, "%s: %s: %u answers to %u queries", s.name, mode_names[m],
					  filled, s.nq);
				CHECK(answers_wrong(&s, &a, s.nq) == 0, "%s: %s: wrong answers", s.name,
					  mode_names[m]);
				answers_free(&a);
			}
			check_exact(&s, 100, s.nq, NULL, "all");
			scene_close(&s);
		}
	}
}

/* A graph is untrusted input: ids out of range, self loops, repeats and a pivot named twice. */
static void
test_damaged_graph(void)
{
	scene_spec	spec = {.n = 1000,.dim = 48,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,
	.degree = 16,.npivots = 40,.nq = 64};
	gg_search_params params = {.k = 20,.itopk_size = 64};
	scene		s;

	scene_open(&s, &spec, 5);
	gg_cuda_engine.index_close(s.cuda);
	for (uint32_t i = 0; i < s.data.n; i++)
	{
		uint32_t   *list = s.graph.adjacency + (size_t) i * 16;

		list[3] = GG_NO_NODE;
		list[5] = s.data.n + i;
		list[7] = 0x80000001u;
		list[9] = i;
		list[11] = list[10];
	}
	s.graph.pivots[1] = s.graph.pivots[0];
	s.graph.pivots[2] = s.graph.pivots[0];
	s.graph.pivots[3] = s.data.n;
	s.graph.pivots[4] = 0xFFFFFFF0u;
	s.cuda = NULL;
	CHECK_OK(gg_cuda_engine.index_open(&s.data, &s.graph, &control, &s.cuda), s.name);
	for (int m = 0; m < 5; m++)
	{
		answers		a = answers_make(s.nq, 20);

		params.mode = modes[m];
		CHECK_OK(harness_search(&gg_cuda_engine, s.cuda, &params, s.queries, s.nq, &control,
								a.nodes, a.distances), s.name);
		CHECK(answers_wrong(&s, &a, s.nq) == 0, "damaged graph: %s: %u wrong", mode_names[m],
			  answers_wrong(&s, &a, s.nq));
		answers_free(&a);
	}
	scene_close(&s);
}

/*
 * Values that break what is not careful: zeros, huge and tiny ones, one huge row among small ones.
 */
static void
test_values(void)
{
	static const float scales[] = {1e-20f, 1e-6f, 1e6f, 1e15f};

	for (int i = 0; i < 5; i++)
	{
		/* slow checkers: what is walked in fp16 after all, and what is not */
		if (harness_small() && i % 4 != 0)
			continue;

		scene_spec	spec = {.n = 600,.dim = 40,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,
		.degree = 16,.npivots = 40,.nq = 40};
		scene		s;

		scene_open(&s, &spec, 55);
		gg_cuda_engine.index_close(s.cuda);
		gg_cpu_engine.index_close(s.cpu);
		if (i < 4)
		{
			for (size_t j = 0; j < (size_t) spec.n * spec.dim; j++)
				s.rows[j] *= scales[i];
			for (size_t j = 0; j < (size_t) spec.nq * spec.dim; j++)
				s.queries[j] *= scales[i];
		}
		else
		{
			s.rows[7] = 1e12f;
			memset(s.queries, 0, spec.dim * sizeof(float));
		}
		snprintf(s.name, sizeof(s.name), "values %d", i);
		CHECK_OK(gg_cpu_engine.index_open(&s.data, &s.graph, &control, &s.cpu), s.name);
		CHECK_OK(gg_cuda_engine.index_open(&s.data, &s.graph, &control, &s.cuda), s.name);
		check_exact(&s, 10, s.nq, NULL, "values");
		check_walk(&s, 10, 64, 0, s.nq);
		scene_close(&s);
	}
}

/*
 * A chain of nodes, of which one edge is marked: a search for large batches gets no farther, with
 * room in its list, all others get to the end.
 */
static void
test_marked_edges(void)
{
	enum
	{
		n = 40,
		cut = 25,
		degree = 4
	};
	float		rows[n];
	uint32_t	adjacency[n * degree];
	uint32_t	pivots[1] = {0};
	uint32_t	pivot_adjacency[GG_PIVOT_DEGREE];
	const gg_dataset data = {rows, n, 1, GG_ELEMENT_F32, GG_METRIC_L2};
	const gg_graph graph = {n, degree, 1, adjacency, pivots, pivot_adjacency};
	gg_search_params params = {.k = n,.itopk_size = 64};
	const float query = 0;
	float		distances[n];
	uint32_t	nodes[n];
	gg_index   *index;

	memset(adjacency, 0xFF, sizeof(adjacency));
	memset(pivot_adjacency, 0xFF, sizeof(pivot_adjacency));
	for (uint32_t i = 0; i < n; i++)
	{
		rows[i] = (float) i;
		if (i + 1 < n)
			adjacency[i * degree] = (i + 1) | (i + 1 == cut ? GG_EDGE_MARK : 0);
	}
	CHECK_OK(gg_cuda_engine.index_open(&data, &graph, &control, &index), "open");
	for (int m = 0; m < 4; m++)
	{
		uint32_t	found = 0;

		params.mode = modes[m];
		CHECK_OK(harness_search(&gg_cuda_engine, index, &params, &query, 1, &control, nodes,
								distances), mode_names[m]);
		while (found < n && nodes[found] == found)
			found++;
		CHECK(found == (params.mode == GG_SEARCH_TSDG_LARGE ? cut : n) &&
			  (found == n || nodes[found] == GG_NO_NODE), "%s: %u nodes in a row, then %u",
			  mode_names[m], found, found < n ? nodes[found] : 0);
	}
	gg_cuda_engine.index_close(index);
}

/*
 * A search for large batches with a list of 2, whose first two nodes are 3 and 4 away.  A node that
 * was in the list before, 5 away, leads to one that is 1 away: it is expanded when delta says so,
 * whatever the metric, and in fp16 as in fp32.
 */
static void
test_delta(void)
{
	enum
	{
		n = 6,
		degree = 4
	};
	static const float away[n] = {10, 6, 5, 4, 3, 1};
	static const uint32_t lists[n][degree] = {{1, 2, 3}, {0}, {5}, {4}, {3}, {2}};
	static const uint32_t lengths[n] = {3, 1, 1, 1, 1, 1};
	static const gg_metric metrics[] = {GG_METRIC_L2, GG_METRIC_IP, GG_METRIC_L1};
	static const float deltas[] = {0, 0.5f, 2};
	uint32_t	adjacency[n * degree];
	uint32_t	pivots[1] = {0};
	uint32_t	pivot_adjacency[GG_PIVOT_DEGREE];
	const gg_graph graph = {n, degree, 1, adjacency, pivots, pivot_adjacency};

	memset(adjacency, 0xFF, sizeof(adjacency));
	memset(pivot_adjacency, 0xFF, sizeof(pivot_adjacency));
	for (uint32_t i = 0; i < n; i++)
		memcpy(adjacency + i * degree, lists[i], lengths[i] * sizeof(uint32_t));
	for (int i = 0; i < 3 * 2 * 3; i++)
	{
		const gg_metric metric = metrics[i / 6];
		const uint32_t dim = i / 3 % 2 == 0 ? 1 : 32;
		const gg_search_params params = {.k = 2,.itopk_size = 2,.mode = GG_SEARCH_TSDG_LARGE,
		.delta = deltas[i % 3]};
		const uint32_t expected[2] = {params.delta < 1 ? 4 : 5, params.delta < 1 ? 3 : 4};
		float		rows[n * 32] = {0};
		float		query[32] = {metric == GG_METRIC_IP};
		const gg_dataset data = {rows, n, dim, GG_ELEMENT_F32, metric};

		for (uint32_t j = 0; j < n; j++)
			rows[j * dim] = metric == GG_METRIC_L2 ? sqrtf(away[j]) :
				metric == GG_METRIC_IP ? -away[j] : away[j];
		for (int e = 0; e < 2; e++)
		{
			const gg_engine *engine = e == 0 ? &gg_cpu_engine : &gg_cuda_engine;
			float		distances[2];
			uint32_t	nodes[2];
			gg_index   *index;

			CHECK_OK(engine->index_open(&data, &graph, &control, &index), "open");
			CHECK_OK(harness_search(engine, index, &params, query, 1, &control, nodes, distances),
					 "search");
			CHECK(memcmp(nodes, expected, sizeof(nodes)) == 0,
				  "engine %d, metric %d, dim %u, delta %g: nodes %u and %u", e, (int) metric, dim,
				  (double) params.delta, nodes[0], nodes[1]);
			engine->index_close(index);
		}
	}
}

/*
 * The walk over fp32 rows, which few dimensions have and those whose values fp16 cannot hold, with
 * several warps a query.
 */
static void
test_wide_values(void)
{
	for (int metric = GG_METRIC_L2; metric <= GG_METRIC_L1; metric++)
	{
		scene_spec	spec = {.n = 300,.dim = 400,.metric = (gg_metric) metric,
			.element = GG_ELEMENT_F32,.degree = 16,.npivots = 40,.nq = 10};
		scene		s;

		/* rows of unit length fit */
		if (metric == GG_METRIC_COSINE)
			continue;
		scene_open(&s, &spec, 56);
		gg_cuda_engine.index_close(s.cuda);
		gg_cpu_engine.index_close(s.cpu);
		s.rows[7] = 1e12f;
		CHECK_OK(gg_cpu_engine.index_open(&s.data, &s.graph, &control, &s.cpu), s.name);
		CHECK_OK(gg_cuda_engine.index_open(&s.data, &s.graph, &control, &s.cuda), s.name);
		check_walk(&s, 10, 64, 0, s.nq);
		check_segmented(&s, 10, 64, 0, s.nq);
		scene_close(&s);
	}
}

/*
 * The bug: walks over fp16 rows took all rows of a tight cluster for equally near, so that a list
 * of 64 had any 64 of its 300 rows.  The fix: such rows are walked as they are.
 */
static void
test_tight_clusters(void)
{
	scene_spec	spec = {.n = 1200,.dim = 32,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,
		.degree = 16,.npivots = 40,.nq = 20,.apart = 4000};
	scene		s;

	for (spec.metric = GG_METRIC_L2; spec.metric <= GG_METRIC_L1; spec.metric++)
	{
		/* of these float32 itself cannot tell which are near */
		if (spec.metric == GG_METRIC_COSINE || spec.metric == GG_METRIC_IP)
			continue;
		scene_open(&s, &spec, 57);
		check_walk(&s, 10, 64, 0, s.nq);
		scene_close(&s);
	}
}

/*
 * A long list wants rows of many clusters.
 *
 * The bug: walks entered at the 16 nearest pivots, whatever their list.  Of the nearest 512 rows a
 * list of 1,024 had 422 to 500: the rest lay in clusters that none of the 16 is in, and few edges
 * lead from one cluster to the next.  The fix: 32 pivots with lists longer than 512.
 */
static void
test_long_lists(void)
{
	enum
	{
		n = 6000,
		dim = 32,
		clusters = 20,
		nq = 4,
		k = 512
	};
	static const gg_search_mode modes[] = {GG_SEARCH_AUTO, GG_SEARCH_SINGLE_CTA};
	const gg_build_params build = {.graph_degree = 32,.intermediate_graph_degree = 64,.seed = 1};
	gg_search_params params = {.k = k,.itopk_size = GG_MAX_ITOPK};
	small_random random = {9};
	float	   *rows = malloc(sizeof(float) * n * dim);
	float		centres[clusters * dim];
	float		queries[nq * dim];
	const gg_dataset data = {rows, n, dim, GG_ELEMENT_F32, GG_METRIC_L2};
	answers		exact = answers_make(nq, k);
	answers		found = answers_make(nq, k);
	gg_graph	graph;
	gg_index   *cpu;
	gg_index   *cuda;

	for (uint32_t i = 0; i < clusters * dim; i++)
		centres[i] = 2 * small_random_unit(&random);
	for (uint32_t i = 0; i < n * dim; i++)
		rows[i] = centres[i / dim % clusters * dim + i % dim] + 0.5f *
			(small_random_unit(&random) + small_random_unit(&random) + small_random_unit(&random));
	for (uint32_t i = 0; i < nq * dim; i++)
		queries[i] = rows[i] + 0.05f * small_random_unit(&random);
	CHECK_OK(gg_cpu_engine.build(&data, &build, &control, &graph, NULL), "build");
	CHECK_OK(gg_cpu_engine.index_open(&data, &graph, &control, &cpu), "index_open");
	CHECK_OK(gg_cuda_engine.index_open(&data, &graph, &control, &cuda), "index_open");
	CHECK_OK(harness_exact(&gg_cpu_engine, cpu, k, NULL, queries, nq, &control, exact.nodes,
						   exact.distances), "exact");
	for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++)
	{
		params.mode = modes[m];
		CHECK_OK(harness_search(&gg_cuda_engine, cuda, &params, queries, nq, &control, found.nodes,
								found.distances), "search");
		CHECK(answers_shared(&found, &exact, nq) >= 0.97, "mode %d: %.4f of the nearest",
			  (int) modes[m], answers_shared(&found, &exact, nq));
	}
	gg_cpu_engine.index_close(cpu);
	gg_cuda_engine.index_close(cuda);
	gg_graph_free(&graph);
	answers_free(&exact);
	answers_free(&found);
	free(rows);
}

static bool
cancelled_now(void *ctx)
{
	(void) ctx;
	return true;
}

/* A search that asks for more shared memory than a block has says how much. */
static void
test_little_shared(void)
{
	scene_spec	spec = {.n = 50,.dim = GG_MAX_DIM,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,
	.degree = 8,.npivots = 10,.nq = 1};
	gg_search_params params = {.k = GG_MAX_ITOPK,.itopk_size = GG_MAX_ITOPK};
	answers		a = answers_make(1, GG_MAX_ITOPK);
	gg_status	status;
	scene		s;

	scene_open(&s, &spec, 4);
	for (int exact = 0; exact < 2; exact++)
	{
		status = exact ? harness_exact(&gg_cuda_engine, s.cuda, GG_MAX_ITOPK, NULL, s.queries, 1,
									   &control, a.nodes, a.distances) :
			harness_search(&gg_cuda_engine, s.cuda, &params, s.queries, 1, &control, a.nodes,
						   a.distances);
		if (status.code == GG_EUNSUPPORTED)
			CHECK(little_shared() && strstr(status.message, "shared memory a block") != NULL,
				  "%s", status.message);
		else if (CHECK_OK(status, s.name))
			CHECK(answers_wrong(&s, &a, 1) == 0, "%s", s.name);
	}
	answers_free(&a);
	scene_close(&s);
}

/* A device can be taken for a lesser one that there is, and for no other. */
static void
test_lesser_device(void)
{
	const char *as = getenv("GPUGRAPH_AS");
	char	   *before = as != NULL ? strdup(as) : NULL;
	gg_status	status;

	setenv("GPUGRAPH_AS", "7.5", 1);
	status = gg_cuda_engine.probe(GG_USE_SEARCH);
	CHECK(status.code == GG_EINVAL && strstr(status.message, "7.5") != NULL, "code %d: %s",
		  (int) status.code, status.message);
	setenv("GPUGRAPH_AS", "8.6", 1);
	CHECK_OK(gg_cuda_engine.probe(GG_USE_SEARCH), "probe as 8.6");
	if (before != NULL)
		setenv("GPUGRAPH_AS", before, 1);
	else
		unsetenv("GPUGRAPH_AS");
	free(before);
}

/* Searches beside others, until told to stop: blocks then start when there is room for them. */
typedef struct beside
{
	scene		s;
	volatile bool stop;
	uint32_t	wrong;			/* searches */
} beside;

static void *
search_beside(void *arg)
{
	beside	   *b = arg;
	gg_search_params params = {.k = 10,.itopk_size = 64};
	small_random random = {9};

	while (!b->stop)
	{
		const uint32_t nq = 1 + (uint32_t) (small_random_bits(&random) % b->s.nq);
		answers		a = answers_make(nq, 10);

		b->wrong += harness_search(&gg_cuda_engine, b->s.cuda, &params, b->s.queries, nq, &control,
								   a.nodes, a.distances).code != GG_OK ||
			answers_wrong(&b->s, &a, nq) != 0;
		answers_free(&a);
	}
	return NULL;
}

/* The same batch over and over: right the first time, and the same each time. */
static void
repeat_search(scene *s, const gg_search_params *params, uint32_t nq, uint32_t times)
{
	const uint32_t k = params->k;
	answers		truth = answers_make(nq, k);
	answers		cpu = answers_make(nq, k);
	answers		first = answers_make(nq, k);
	answers		again = answers_make(nq, k);
	uint32_t	differ = 0;
	double		recall;
	double		cpu_recall;

	CHECK_OK(harness_exact(&gg_cpu_engine, s->cpu, k, NULL, s->queries, nq, &control, truth.nodes,
						   truth.distances), s->name);
	CHECK_OK(harness_search(&gg_cpu_engine, s->cpu, params, s->queries, nq, &control, cpu.nodes,
							cpu.distances), s->name);
	CHECK_OK(harness_search(&gg_cuda_engine, s->cuda, params, s->queries, nq, &control, first.nodes,
							first.distances), s->name);
	CHECK(answers_wrong(s, &first, nq) == 0, "%s: nq %u: wrong answers", s->name, nq);
	recall = answers_recall(s, &first, &truth, nq, k);
	cpu_recall = answers_recall(s, &cpu, &truth, nq, k);
	CHECK(recall >= cpu_recall - 0.01 - 1.0 / nq, "%s: itopk %u nq %u: recall %.4f, cpu %.4f",
		  s->name, params->itopk_size, nq, recall, cpu_recall);
	for (uint32_t i = 0; i < times; i++)
	{
		if (!CHECK_OK(harness_search(&gg_cuda_engine, s->cuda, params, s->queries, nq, &control,
									 again.nodes, again.distances), s->name))
			break;
		differ += memcmp(first.nodes, again.nodes, (size_t) nq * k * 4) != 0 ||
			memcmp(first.distances, again.distances, (size_t) nq * k * 4) != 0;
	}
	CHECK(differ == 0, "%s: itopk %u nq %u: %u of %u searches answered otherwise", s->name,
		  params->itopk_size, nq, differ, times);
	answers_free(&truth);
	answers_free(&cpu);
	answers_free(&first);
	answers_free(&again);
}

/*
 * The blocks of a query meet at every step, each at a time of its own.  Whatever the order, the
 * answers are the same each time.  Alone, and while others search.  GG_TEST_REPEAT: how often, for
 * as long as one likes to look.
 */
static void
test_repeated(void)
{
	static const uint32_t batches[] = {1, 3, 8, 11, 20, 33, 60};
	static const uint32_t lists[] = {32, 64, 300};
	const char *repeat = getenv("GG_TEST_REPEAT");
	const uint32_t times = repeat != NULL ? (uint32_t) atoi(repeat) : 1000;
	scene_spec	spec = {.n = 3000,.dim = 48,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,
	.degree = 32,.npivots = 200,.nq = 60};
	scene_spec	other = {.n = 2000,.dim = 128,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,
	.degree = 32,.npivots = 130,.nq = 200};
	gg_search_params params = {.k = 10};
	beside		b = {.stop = false};
	scene		s;

	scene_open(&s, &spec, 6);
	scene_open(&b.s, &other, 7);
	for (int pass = 0; pass < 2; pass++)
	{
		pthread_t	thread;
		bool		started = pass == 1 && pthread_create(&thread, NULL, search_beside, &b) == 0;

		CHECK(started == (pass == 1), "pthread_create");
		for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++)
		{
			params.itopk_size = lists[l];
			for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++)
				repeat_search(&s, &params, batches[i], times);
		}
		if (started)
		{
			b.stop = true;
			pthread_join(thread, NULL);
		}
	}
	CHECK(b.wrong == 0, "%u wrong searches beside", b.wrong);
	scene_close(&s);
	scene_close(&b.s);
}

static void
test_refusals(void)
{
	scene_spec	spec = {.n = 300,.dim = 16,.metric = GG_METRIC_L2,.element = GG_ELEMENT_F32,
	.degree = 8,.npivots = 10,.nq = 40};
	gg_control	cancelling = {.cancelled = cancelled_now,.threads = 1};
	gg_search_params params = {.k = 10,.itopk_size = 9};
	answers		a = answers_make(40, 10);
	gg_index   *index;
	scene		s;

	scene_open(&s, &spec, 3);
	CHECK(harness_search(&gg_cuda_engine, s.cuda, &params, s.queries, 40, &control, a.nodes,
						 a.distances).code == GG_EINVAL, "k above itopk_size");
	params.itopk_size = GG_MAX_ITOPK + 1;
	CHECK(harness_search(&gg_cuda_engine, s.cuda, &params, s.queries, 40, &control, a.nodes,
						 a.distances).code == GG_EINVAL, "itopk_size too large");
	CHECK(harness_exact(&gg_cuda_engine, s.cuda, 0, NULL, s.queries, 40, &control, a.nodes,
						a.distances).code == GG_EINVAL, "k 0");
	params.itopk_size = 64;
	CHECK(harness_search(&gg_cuda_engine, s.cuda, &params, s.queries, 40, &cancelling, a.nodes,
						 a.distances).code == GG_ECANCELED, "search");
	CHECK(harness_exact(&gg_cuda_engine, s.cuda, 10, NULL, s.queries, 40, &cancelling, a.nodes,
						a.distances).code == GG_ECANCELED, "exact");
	CHECK(gg_cuda_engine.index_open(&s.data, &s.graph, &cancelling, &index).code == GG_ECANCELED,
		  "index_open");
	s.data.dim = GG_MAX_DIM + 1;
	CHECK(gg_cuda_engine.index_open(&s.data, &s.graph, &control, &index).code == GG_EINVAL,
		  "too many dimensions");
	s.data.dim = spec.dim;
	/* and it still works */
	CHECK_OK(harness_search(&gg_cuda_engine, s.cuda, &params, s.queries, 40, &control, a.nodes,
							a.distances), "search after refusals");
	CHECK(answers_wrong(&s, &a, 40) == 0, "search after refusals");
	gg_cuda_engine.index_close(NULL);
	answers_free(&a);
	scene_close(&s);
}

int
main(void)
{
	gg_status	status = gg_cuda_engine.probe(GG_USE_SEARCH);

	/* a host without a GPU proves nothing: say so, and fail */
	if (!CHECK_OK(status, "probe"))
		return harness_finish();
	harness_run("few rows", test_few_rows);
	harness_run("damaged graph", test_damaged_graph);
	harness_run("values", test_values);
	harness_run("marked edges", test_marked_edges);
	harness_run("delta", test_delta);
	harness_run("wide values", test_wide_values);
	harness_run("tight clusters", test_tight_clusters);
	harness_run("refusals", test_refusals);
	harness_run("lesser device", test_lesser_device);
	if (harness_small())
	{
		static const char *const metrics[] = {"l2", "ip", "cosine", "l1"};

		for (int i = 0; i < 4 * 2 * 3; i++)
		{
			char		name[64];

			variant.metric = (gg_metric) (GG_METRIC_L2 + i / 6);
			variant.half = i / 3 % 2;
			variant.d = i % 3;
			/* float16 rows of few dimensions walk as those of more */
			if (variant.half == 1 && variant.d == 0)
				continue;
			snprintf(name, sizeof(name), "variant %s, %s, %d", metrics[i / 6], variant.half ?
					 "float16" : "float32", variant.d);
			harness_run(name, test_variant);
		}
		variant.metric = GG_METRIC_L2;
		variant.half = 0;
		variant.d = 1;
		for (variant.wide = 1; variant.wide <= NWIDE; variant.wide++)
			harness_run("variant l2, wide", test_variant);
	}
	else
	{
		harness_run("zero products", test_zero_products);
		harness_run("little shared memory", test_little_shared);
		harness_run("repeated", test_repeated);
		harness_run("scenes", test_scenes);
	}
	harness_run("long lists", test_long_lists);
	return harness_finish();
}
