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
#include <math.h>
#include <pthread.h>

#include "../search_cases.h"
#include "scenes.h"

#define TOLERANCE 1e-5

static const gg_control control = {.threads = 2};

/* Of the rows and the graph as they are now. */
static void
scene_indexes(scene *s)
{
	gg_cpu_engine.index_close(s->cpu);
	gg_cuda_engine.index_close(s->cuda);
	CHECK_OK(gg_cpu_engine.index_open(&s->data, &s->graph, &control, &s->cpu), s->name);
	CHECK_OK(gg_cuda_engine.index_open(&s->data, &s->graph, &control, &s->cuda), s->name);
}

static void
scene_open(scene *s, const scene_spec *spec, uint64_t seed)
{
	scene_draw(s, spec, seed);
	scene_indexes(s);
}

static void
scene_close(scene *s)
{
	gg_cpu_engine.index_close(s->cpu);
	gg_cuda_engine.index_close(s->cuda);
	scene_drop(s);
}

/* Answers of either engine to the first queries. */
static uint64_t *
cpu_nearest(const scene *s, uint32_t k, const uint32_t *filter, uint32_t nq)
{
	return harness_nearest(&gg_cpu_engine, s->cpu, k, filter, s->queries, nq, &control, s->name);
}

static uint64_t *
cpu_found(const scene *s, const gg_search_params *params, uint32_t nq)
{
	return harness_found(&gg_cpu_engine, s->cpu, params, s->queries, nq, &control, s->name);
}

static uint64_t *
cuda_found(const scene *s, const gg_search_params *params, uint32_t nq)
{
	return harness_found(&gg_cuda_engine, s->cuda, params, s->queries, nq, &control, s->name);
}

/* The same in batches of so many. */
static uint64_t *
cuda_batches(const scene *s, const gg_search_params *params, uint32_t nq, uint32_t batch)
{
	uint64_t   *keys = malloc((size_t) nq * params->k * sizeof(uint64_t));

	for (uint32_t first = 0; first < nq; first += batch)
		CHECK_OK(gg_cuda_engine.index_search(s->cuda, params,
											 s->queries + (size_t) first * s->data.dim,
											 nq - first < batch ? nq - first : batch, &control,
											 keys + (size_t) first * params->k), s->name);
	return keys;
}

static uint32_t
wrong_keys(const scene *s, const uint64_t *keys, uint32_t nq, uint32_t k)
{
	return harness_wrong(&s->data, s->queries, nq, keys, k, TOLERANCE);
}

/* What the error of a distance is measured by. */
static double
size_of(const scene *s, uint64_t key, uint32_t q)
{
	double		size = 0;

	if (key != GG_NO_KEY)
		(void) harness_query_distance(&s->data, key_node(key), s->queries + (size_t) q *
									  s->data.dim, &size);
	return size;
}

/* Share of the answers that are no farther than the true k-th, up to rounding. */
static double
recall_of(const scene *s, const uint64_t *found, const uint64_t *truth, uint32_t nq, uint32_t k)
{
	uint64_t	hits = 0;
	uint64_t	possible = 0;

	for (uint32_t q = 0; q < nq; q++)
	{
		const uint64_t last = truth[(size_t) q * k + k - 1];
		const double farthest = last == GG_NO_KEY ? INFINITY :
			key_distance(last) + TOLERANCE * size_of(s, last, q);

		for (size_t i = (size_t) q * k; i < (size_t) (q + 1) * k; i++)
		{
			possible += truth[i] != GG_NO_KEY;
			hits += found[i] != GG_NO_KEY && key_distance(found[i]) <= farthest;
		}
	}
	return possible > 0 ? (double) hits / (double) possible : 1;
}

/* Share of b's nodes that a has too, over nq lists of k. */
static double
shared(const uint64_t *a, const uint64_t *b, uint32_t nq, uint32_t k)
{
	uint64_t	same = 0;
	uint64_t	all = 0;

	for (size_t i = 0; i < (size_t) nq * k; i++)
	{
		const uint64_t *list = a + i / k * k;
		uint32_t	j = 0;

		if (b[i] == GG_NO_KEY)
			continue;
		while (j < k && (list[j] == GG_NO_KEY || key_node(list[j]) != key_node(b[i])))
			j++;
		all++;
		same += j < k;
	}
	return all > 0 ? (double) same / (double) all : 1;
}

/*
 * Keys are right, and their recall is the CPU engine's but for 0.01; one query more or less of few
 * is no difference.
 */
static void
check_found(const scene *s, const gg_search_params *params, const uint64_t *found, uint32_t nq,
			const char *what)
{
	const uint32_t k = params->k;
	const bool	chosen = params->mode <= GG_SEARCH_MULTI_CTA;
	gg_search_params cpu_params = *params;
	uint64_t   *truth = cpu_nearest(s, k, NULL, nq);
	uint64_t   *cpu;
	const double recall = recall_of(s, found, truth, nq, k);
	double		cpu_recall;

	/* which kernel walks is for devices to choose */
	cpu_params.mode = chosen ? GG_SEARCH_AUTO : params->mode;
	cpu = cpu_found(s, &cpu_params, nq);
	cpu_recall = recall_of(s, cpu, truth, nq, k);
	CHECK(wrong_keys(s, found, nq, k) == 0, "%s: %s k %u itopk %u width %u nq %u: %u wrong",
		  s->name, what, k, params->itopk_size, params->search_width, nq,
		  wrong_keys(s, found, nq, k));
	CHECK(recall >= cpu_recall - 0.01 - 1.0 / nq,
		  "%s: %s k %u itopk %u width %u nq %u: recall %.4f, cpu %.4f", s->name, what, k,
		  params->itopk_size, params->search_width, nq, recall, cpu_recall);
	free(truth);
	free(cpu);
}

/* ---- exact ----------------------------------------------------------------- */

static void
check_exact(scene *s, uint32_t k, uint32_t nq, const uint32_t *filter, const char *what)
{
	uint64_t   *cpu = cpu_nearest(s, k, filter, nq);
	uint64_t   *cuda = harness_nearest(&gg_cuda_engine, s->cuda, k, filter, s->queries, nq,
									   &control, s->name);
	uint32_t	differ = 0;

	CHECK(wrong_keys(s, cuda, nq, k) == 0, "%s: exact %s k %u nq %u: %u wrong", s->name, what, k,
		  nq, wrong_keys(s, cuda, nq, k));
	/* position by position the same distance: no row was missed */
	for (size_t i = 0; i < (size_t) nq * k; i++)
	{
		const uint32_t node = key_node(cuda[i]);

		if ((cpu[i] == GG_NO_KEY) != (cuda[i] == GG_NO_KEY))
			differ++;
		else if (cpu[i] != GG_NO_KEY)
		{
			differ += filter != NULL && node < s->data.n &&
				(filter[node / 32] >> node % 32 & 1) == 0;
			differ += !(fabs((double) key_distance(cpu[i]) - key_distance(cuda[i])) <=
						2 * TOLERANCE * size_of(s, cpu[i], (uint32_t) (i / k)) + 1e-30);
		}
	}
	CHECK(differ == 0, "%s: exact %s k %u nq %u: %u places differ", s->name, what, k, nq, differ);
	free(cpu);
	free(cuda);
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
	uint64_t   *found[3];

	for (int m = 0; m < nmodes; m++)
	{
		params.mode = modes[m];
		found[m] = cuda_found(s, &params, nq);
		check_found(s, &params, found[m], nq, mode_names[m]);
	}
	CHECK(shared(found[0], found[1], nq, k) >= 0.998 - 1.0 / nq / k,
		  "%s: k %u itopk %u width %u nq %u: single and multi share %.4f", s->name, k, itopk, width,
		  nq, shared(found[0], found[1], nq, k));
	for (int m = 0; m < nmodes; m++)
		free(found[m]);
}

/*
 * A search of TSDG: nearly the CPU engine's answers, and the same bits each time and in each batch.
 */
static void
check_tsdg(scene *s, const gg_search_params *params, uint32_t nq)
{
	const uint32_t k = params->k;
	uint64_t   *cpu = cpu_found(s, params, nq);
	uint64_t   *found = cuda_found(s, params, nq);
	uint64_t   *again = cuda_batches(s, params, nq, 5);
	char		what[128];

	snprintf(what, sizeof(what), "%s, walks %u delta %g",
			 params->mode == GG_SEARCH_TSDG_SMALL ? "small" : "large", params->walks,
			 (double) params->delta);
	check_found(s, params, found, nq, what);
	CHECK(shared(cpu, found, nq, k) >= 0.98 - 1.0 / nq, "%s: %s: the engines share %.4f",
		  s->name, what, shared(cpu, found, nq, k));
	CHECK(memcmp(found, again, (size_t) nq * k * sizeof(uint64_t)) == 0,
		  "%s: %s: batches of 5 differ", s->name, what);
	free(cpu);
	free(found);
	free(again);
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
	const gg_search_params params = {.k = k,.itopk_size = itopk};
	uint64_t   *all = cuda_found(s, &params, s->nq);

	for (size_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++)
	{
		uint32_t	nq = batches[b] < s->nq ? batches[b] : s->nq;
		uint32_t	total = s->nq < 2 * nq ? nq : s->nq / nq * nq;
		uint64_t   *some = cuda_batches(s, &params, total, nq);

		CHECK(shared(all, some, total, k) >= 0.998 - 1.0 / total,
			  "%s: itopk %u: batches of %u and %u share %.4f", s->name, itopk, nq, s->nq,
			  shared(all, some, total, k));
		free(some);
	}
	free(all);
}

static void
test_scenes(void)
{
	static const scene_spec specs[] = {
		{.n = 3000,.dim = 128,.degree = 32,.npivots = 200,.nq = 1000},
		{.n = 2000,.dim = 96,.metric = GG_METRIC_COSINE,.degree = 32,.npivots = 130,.nq = 300,
			.marked = true},
		{.n = 2000,.dim = 100,.metric = GG_METRIC_IP,.degree = 32,.npivots = 200,.nq = 300},
		{.n = 2000,.dim = 72,.metric = GG_METRIC_L1,.degree = 32,.npivots = 100,.nq = 300},
		{.n = 2000,.dim = 128,.element = GG_ELEMENT_F16,.degree = 32,.npivots = 129,.nq = 132,
			.marked = true},
		{.n = 2000,.dim = 65,.metric = GG_METRIC_COSINE,.element = GG_ELEMENT_F16,.degree = 32,
			.npivots = 50,.nq = 132},
		{.n = 1500,.dim = 33,.metric = GG_METRIC_IP,.element = GG_ELEMENT_F16,.degree = 17,
			.npivots = 90,.nq = 132},
		{.n = 1500,.dim = 40,.metric = GG_METRIC_L1,.element = GG_ELEMENT_F16,.degree = 24,
			.npivots = 90,.nq = 132},
		{.n = 1000,.dim = 1,.degree = 16,.npivots = 60,.nq = 64},
		{.n = 1000,.dim = 3,.degree = 16,.npivots = 60,.nq = 64},
		{.n = 1000,.dim = 3,.metric = GG_METRIC_COSINE,.degree = 16,.npivots = 60,.nq = 64},
		{.n = 1000,.dim = 3,.metric = GG_METRIC_L1,.degree = 16,.npivots = 60,.nq = 64},
		{.n = 1000,.dim = 3,.metric = GG_METRIC_IP,.element = GG_ELEMENT_F16,.degree = 16,
			.npivots = 60,.nq = 64},
		{.n = 1000,.dim = 31,.degree = 64,.npivots = 60,.nq = 64},
		{.n = 1000,.dim = 97,.degree = 48,.npivots = 60,.nq = 64},
		{.n = 800,.dim = 960,.degree = 32,.npivots = 60,.nq = 140,.marked = true},
		{.n = 500,.dim = 2000,.metric = GG_METRIC_COSINE,.degree = 32,.npivots = 40,.nq = 300},
		{.n = 300,.dim = 4097,.element = GG_ELEMENT_F16,.degree = 16,.npivots = 40,.nq = 140},
		{.n = 300,.dim = 4097,.metric = GG_METRIC_L1,.degree = 16,.npivots = 40,.nq = 20},
		{.n = 200,.dim = 16000,.degree = 16,.npivots = 20,.nq = 140},
		{.n = 200,.dim = 16000,.metric = GG_METRIC_IP,.element = GG_ELEMENT_F16,.degree = 16,
			.npivots = 20,.nq = 17},
		/*
		 * with the longest lists more than a block's shared memory, were the visited set not made
		 * smaller
		 */
		{.n = 200,.dim = 16000,.degree = 32,.npivots = 20,.nq = 20},
		{.n = 2000,.dim = 32,.degree = 32,.npivots = 100,.nq = 64,.copies = 20,.marked = true},
		{.n = 1500,.dim = 64,.degree = 32,.npivots = 100,.nq = 64,.offset = 1000},
		{.n = 600,.dim = 24,.degree = 256,.npivots = 30,.nq = 64},
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
		.npivots = brief ? 8 : variant.wide ? 300 : 40,.nq = many ? 140 : 70,.marked = d == 1};
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
	uint64_t	keys[n];
	uint32_t	wrong = 0;
	gg_index   *index;

	for (uint32_t i = 0; i < n; i++)
	{
		rows[i * dim] = i % 3 == 0 ? 1e-30f : i % 3 == 1 ? -1e-30f : 0;
		rows[i * dim + 1 + i % 5] = 1;
	}
	CHECK_OK(gg_cuda_engine.index_open(&data, NULL, &control, &index), "open");
	CHECK_OK(gg_cuda_engine.index_exact(index, n, NULL, query, 1, &control, keys), "exact");
	for (uint32_t i = 0; i < n; i++)
		wrong += keys[i] != key_of(0, i);
	CHECK(wrong == 0, "%u of %u rows are out of place, or their 0 is a negative one", wrong, n);
	gg_cuda_engine.index_close(index);
}

/* Few rows: every one is found by each kernel, and the rest is padding. */
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
			const uint32_t n = sizes[i];
			const scene_spec spec = {.n = n,.dim = dim,.degree = 8,.npivots = n < 4 ? n : 4,
				.nq = harness_size(40, 10)};
			gg_search_params params = {.k = 100,.itopk_size = 128};
			scene		s;

			scene_open(&s, &spec, 7 + i);
			for (int m = 0; m < 4; m++)
			{
				uint64_t   *found;
				uint32_t	filled = 0;

				params.mode = modes[m];
				found = cuda_found(&s, &params, s.nq);
				for (uint32_t j = 0; j < s.nq * 100; j++)
					filled += found[j] != GG_NO_KEY;
				CHECK(filled == s.nq * n, "%s: %s: %u answers to %u queries", s.name, mode_names[m],
					  filled, s.nq);
				CHECK(wrong_keys(&s, found, s.nq, 100) == 0, "%s: %s: wrong answers", s.name,
					  mode_names[m]);
				free(found);
			}
			check_exact(&s, 100, s.nq, NULL, "all");
			scene_close(&s);
		}
	}
	search_few_rows(&gg_cuda_engine, TOLERANCE);
	search_no_graph(&gg_cuda_engine);
}

/* A graph is untrusted input: ids out of range, self loops, repeats and a pivot named twice. */
static void
test_damaged_graph(void)
{
	scene_spec	spec = {.n = 1000,.dim = 48,.degree = 16,.npivots = 40,.nq = 64};
	gg_search_params params = {.k = 20,.itopk_size = 64};
	scene		s;

	scene_open(&s, &spec, 5);
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
	gg_cuda_engine.index_close(s.cuda);
	s.cuda = NULL;
	CHECK_OK(gg_cuda_engine.index_open(&s.data, &s.graph, &control, &s.cuda), s.name);
	for (int m = 0; m < 5; m++)
	{
		uint64_t   *found;

		params.mode = modes[m];
		found = cuda_found(&s, &params, s.nq);
		CHECK(wrong_keys(&s, found, s.nq, 20) == 0, "damaged graph: %s: %u wrong", mode_names[m],
			  wrong_keys(&s, found, s.nq, 20));
		free(found);
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

		scene_spec	spec = {.n = 600,.dim = 40,.degree = 16,.npivots = 40,.nq = 40};
		scene		s;

		scene_open(&s, &spec, 55);
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
		scene_indexes(&s);
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
	uint64_t	keys[n];
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
		CHECK_OK(gg_cuda_engine.index_search(index, &params, &query, 1, &control, keys),
				 mode_names[m]);
		while (found < n && key_node(keys[found]) == found)
			found++;
		CHECK(found == (params.mode == GG_SEARCH_TSDG_LARGE ? cut : n) &&
			  (found == n || keys[found] == GG_NO_KEY), "%s: %u nodes in a row", mode_names[m],
			  found);
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
			uint64_t	keys[2];
			gg_index   *index;

			CHECK_OK(engine->index_open(&data, &graph, &control, &index), "open");
			CHECK_OK(engine->index_search(index, &params, query, 1, &control, keys), "search");
			CHECK(key_node(keys[0]) == expected[0] && key_node(keys[1]) == expected[1],
				  "engine %d, metric %d, dim %u, delta %g: nodes %u and %u", e, (int) metric, dim,
				  (double) params.delta, key_node(keys[0]), key_node(keys[1]));
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
		scene_spec	spec = {.n = 300,.dim = 400,.metric = (gg_metric) metric,.degree = 16,
			.npivots = 40,.nq = 10};
		scene		s;

		/* rows of unit length fit */
		if (metric == GG_METRIC_COSINE)
			continue;
		scene_open(&s, &spec, 56);
		s.rows[7] = 1e12f;
		scene_indexes(&s);
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
	scene_spec	spec = {.n = 1200,.dim = 32,.degree = 16,.npivots = 40,.nq = 20,.apart = 4000};
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
	uint64_t   *exact;
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
	exact = harness_nearest(&gg_cpu_engine, cpu, k, NULL, queries, nq, &control, "exact");
	for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++)
	{
		uint64_t   *found;

		params.mode = modes[m];
		found = harness_found(&gg_cuda_engine, cuda, &params, queries, nq, &control, "search");
		CHECK(shared(found, exact, nq, k) >= 0.97, "mode %d: %.4f of the nearest", (int) modes[m],
			  shared(found, exact, nq, k));
		free(found);
	}
	gg_cpu_engine.index_close(cpu);
	gg_cuda_engine.index_close(cuda);
	gg_graph_free(&graph);
	free(exact);
	free(rows);
}

/* A search that asks for more shared memory than a block has says how much. */
static void
test_little_shared(void)
{
	scene_spec	spec = {.n = 50,.dim = GG_MAX_DIM,.degree = 8,.npivots = 10,.nq = 1};
	gg_search_params params = {.k = GG_MAX_ITOPK,.itopk_size = GG_MAX_ITOPK};
	uint64_t	keys[GG_MAX_ITOPK];
	gg_status	status;
	scene		s;

	scene_open(&s, &spec, 4);
	for (int exact = 0; exact < 2; exact++)
	{
		status = exact ? gg_cuda_engine.index_exact(s.cuda, GG_MAX_ITOPK, NULL, s.queries, 1,
													&control, keys) :
			gg_cuda_engine.index_search(s.cuda, &params, s.queries, 1, &control, keys);
		if (status.code == GG_EUNSUPPORTED)
			CHECK(little_shared() && strstr(status.message, "shared memory a block") != NULL,
				  "%s", status.message);
		else if (CHECK_OK(status, s.name))
			CHECK(wrong_keys(&s, keys, 1, GG_MAX_ITOPK) == 0, "%s", s.name);
	}
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
		uint64_t	keys[200 * 10];

		b->wrong += gg_cuda_engine.index_search(b->s.cuda, &params, b->s.queries, nq, &control,
												keys).code != GG_OK ||
			wrong_keys(&b->s, keys, nq, 10) != 0;
	}
	return NULL;
}

/* The same batch over and over: right the first time, and the same each time. */
static void
repeat_search(scene *s, const gg_search_params *params, uint32_t nq, uint32_t times)
{
	const size_t bytes = (size_t) nq * params->k * sizeof(uint64_t);
	uint64_t   *first = cuda_found(s, params, nq);
	uint64_t   *again = malloc(bytes);
	uint32_t	differ = 0;

	check_found(s, params, first, nq, "repeated");
	for (uint32_t i = 0; i < times; i++)
	{
		if (!CHECK_OK(gg_cuda_engine.index_search(s->cuda, params, s->queries, nq, &control, again),
					  s->name))
			break;
		differ += memcmp(first, again, bytes) != 0;
	}
	CHECK(differ == 0, "%s: itopk %u nq %u: %u of %u searches answered otherwise", s->name,
		  params->itopk_size, nq, differ, times);
	free(first);
	free(again);
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
	scene_spec	spec = {.n = 3000,.dim = 48,.degree = 32,.npivots = 200,.nq = 60};
	scene_spec	other = {.n = 2000,.dim = 128,.degree = 32,.npivots = 130,.nq = 200};
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
	search_cancel(&gg_cuda_engine);
	search_refusals(&gg_cuda_engine);
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
