/*
 * test_cuda_merge.c
 *		The CUDA engine's merge() by the CPU engine's test cases, and beside the CPU engine's.
 *
 * Contracts
 *	recall		searches over a merged graph find what they find over one that the CPU engine built
 *				anew, within 0.01; and over one that it merged
 *	by search	where one part has most of the rows: recall within 0.003 of a graph that the same
 *				engine built anew
 *	same bytes	in every run
 *	memory		given back whatever the end; no more in use than build_bytes() and the input
 *
 * GG_TEST_SMALL in the environment: the sizes for compute-sanitizer and the emulated device, where
 * one case has cells.
 */
#include "../merge_cases.h"
#include "device_memory.h"

static size_t held;				/* before all sections */

/* More rows than are compared pair by pair. */
static void
test_cells(void)
{
	static const recall_case c = {"cells", SPEC(16600, L2, F32, 21,.dim = 16), {80, 95}, 0.98};

	/* the emulated device has cells from 4,097 rows on */
	run_recall(&c, harness_fewest() ? 4200 : c.spec.n, !harness_small());
}

/* Graphs of either engine, merged from the same parts: the same answers, within 0.01. */
static void
beside_cpu(const harness_spec *spec, const gg_build_params *params, uint32_t percent,
		   const char *what)
{
	const uint32_t nq = 200;
	gg_control	control = {.threads = 2};
	uint32_t	ends[2] = {(uint32_t) ((uint64_t) spec->n * percent / 100), spec->n};
	gg_merge_input input;
	gg_dataset	data;
	gg_graph	ours,
				theirs;
	float	   *queries;
	sides		s;
	double		recall[2];

	harness_data(spec, &data, &queries, nq);
	make_sides(&s, &data, ends, 2, params);
	input = (gg_merge_input) {s.parts, s.lists, s.degree, GG_MERGE_AUTO};
	if (CHECK_OK(gg_cuda_engine.merge(&data, &input, params, &control, &ours, NULL), what) &&
		CHECK_OK(gg_cpu_engine.merge(&data, &input, params, &control, &theirs, NULL), what))
	{
		harness_graph_check(&ours, data.n, params->graph_degree, false, what);
		recall[0] = recall_of(&data, &ours, &theirs, queries, nq);
		recall[1] = recall_of(&data, &theirs, NULL, queries, nq);
		CHECK(recall[0] >= recall[1] - 0.01, "%s, %s: recall %.4f, the CPU engine's %.4f", what,
			  harness_metrics[data.metric], recall[0], recall[1]);
		gg_graph_free(&theirs);
	}
	gg_graph_free(&ours);
	free_sides(&s, &data, queries);
}

static void
test_beside_cpu(void)
{
	static const struct
	{
		gg_metric	metric;
		gg_element	element;
		harness_shape shape;
		uint32_t	dim;
		uint32_t	percent;
		uint32_t	degree;
		uint32_t	k;
		gg_init		init;
		gg_algorithm algorithm;
		const char *what;
	}			cases[] = {
		{GG_METRIC_L2, GG_ELEMENT_F32, SHAPE_MANIFOLD, 33, 90, 32, 64, GG_INIT_PIVOT_CELLS,
		GG_ALGORITHM_TSDG, "tsdg"},
		/* lists that are no power of two long, of which some is saved */
		{GG_METRIC_IP, GG_ELEMENT_F16, SHAPE_MANIFOLD, 20, 50, 24, 33, GG_INIT_PIVOT_CELLS,
		GG_ALGORITHM_CAGRA, "24 of 33"},
		{GG_METRIC_COSINE, GG_ELEMENT_F32, SHAPE_MANIFOLD, 7, 60, 30, 30, GG_INIT_RANDOM,
		GG_ALGORITHM_CAGRA, "30 of 30"},
		{GG_METRIC_L1, GG_ELEMENT_F32, SHAPE_COPIES, 17, 75, 48, 100, GG_INIT_RANDOM,
		GG_ALGORITHM_CAGRA, "copies"},
		{GG_METRIC_COSINE, GG_ELEMENT_F16, SHAPE_TIGHT, 40, 99, 64, 200, GG_INIT_PIVOT_CELLS,
		GG_ALGORITHM_TSDG, "a hundredth, 64 of 200"},
		{GG_METRIC_L2, GG_ELEMENT_F16, SHAPE_UNIFORM, 6, 50, 100, 300, GG_INIT_PIVOT_CELLS,
		GG_ALGORITHM_CAGRA, "100 of 300"}
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		harness_spec spec = {.shape = cases[i].shape, .n = merge_size(7001 + 37 * (uint32_t) i),
			.dim = cases[i].dim, .metric = cases[i].metric, .element = cases[i].element,
			.seed = 50 + i};
		gg_build_params params = {.algorithm = cases[i].algorithm,
			.graph_degree = cases[i].degree,.intermediate_graph_degree = cases[i].k,
		.init = cases[i].init,.seed = 3,
			/* more than one block of the join for each row */
		.samples = cases[i].init == GG_INIT_RANDOM ? 50 : 0};

		beside_cpu(&spec, &params, cases[i].percent, cases[i].what);
	}
}

/* ---- few rows into a large graph ------------------------------------------------------- */

/* Beside searches a merge is the same, with memory from a pool, of which it takes what it may. */
static void
beside_searches(const gg_dataset *data, const sides *s, const gg_graph *plain)
{
	const gg_control control = {.threads = 1,.background = true};
	const gg_merge_input input = {s->parts, s->lists, s->degree, GG_MERGE_AUTO};
	const uint64_t pooled = device.pooled;
	const size_t before = device.held;
	gg_bytes	bytes;
	gg_graph	graph;

	CHECK_OK(gg_cuda_engine.build_bytes(data, &params_32, &control, &bytes), "beside searches");
	bytes.device += (uint64_t) data->n * (1 + 4 * s->degree);
	device.peak = before;
	if (CHECK_OK(gg_cuda_engine.merge(data, &input, &params_32, &control, &graph, NULL),
				 "beside searches"))
		CHECK(harness_graphs_equal(&graph, plain), "beside searches it is another graph");
	CHECK(device.pooled > pooled && device.held == before &&
		  device.peak - before <= bytes.device,
		  "%lu times from a pool, peak %zu of %lu, %zu bytes lost",
		  (unsigned long) (device.pooled - pooled), device.peak - before,
		  (unsigned long) bytes.device, device.held - before);
	gg_graph_free(&graph);
}

/*
 * One row: it is found, and what no new row was found near keeps its edges.  Where nodes of two
 * parts are one, edges lead from part to part.
 */
static void
test_by_search_one(void)
{
	harness_spec spec = {.n = harness_size(6000, 4), .dim = 16, .seed = 73};
	uint32_t	ends[2] = {spec.n - 1, spec.n};
	uint32_t	kept = 0;
	bool		linked = false;
	gg_dataset	data;
	gg_graph	graph;
	sides		s;

	harness_data(&spec, &data, NULL, 0);
	make_sides(&s, &data, ends, 2, &params_32);
	for (uint32_t i = 0; i < 8; i++)
		s.lists[(size_t) (data.n - 1) * s.degree + i] = i * 5;
	s.lists[3] = data.n - 1;
	if (merge_way(&data, &s, &params_32, GG_MERGE_AUTO, &graph, "one row"))
	{
		for (uint32_t row = 0; row + 1 < data.n; row++)
			kept += memcmp(graph.adjacency + (size_t) row * 32, s.lists + (size_t) row * 32,
						   sizeof(uint32_t) * 32) == 0;
		/* 64 rows were found */
		CHECK(kept >= data.n - 1 - 64 - 8, "%u of %u rows have their edges", kept, data.n - 1);
		for (size_t i = 0; i < (size_t) (data.n - 1) * 32; i++)
			linked |= graph.adjacency[i] == data.n - 1;
		CHECK(linked, "an edge leads to the new row");
		beside_searches(&data, &s, &graph);
	}
	gg_graph_free(&graph);
	free_sides(&s, &data, NULL);
}

/* Device memory in use is what was foreseen; all of it comes back. */
static void
test_memory(void)
{
	/* from cells, from random rows, by search, by search for rows of no part */
	for (int way = 0; way < 4; way++)
	{
		harness_spec spec = {.n = harness_small() ? 600 : 60000, .dim = 4, .metric = GG_METRIC_IP,
			.element = GG_ELEMENT_F16, .seed = 8};
		uint32_t	ends[2] = {way < 2 ? spec.n / 2 : spec.n / 4 * 3, spec.n};
		gg_build_params params = {.graph_degree = 16,.intermediate_graph_degree = 16,
			.init = way == 1 ? GG_INIT_RANDOM : GG_INIT_PIVOT_CELLS,
		.samples = way == 1 ? GG_MAX_SAMPLES : 0};
		gg_merge_input input;
		gg_bytes	bytes;
		gg_dataset	data;
		gg_graph	graph;
		uint64_t	foreseen;
		sides		s;

		harness_data(&spec, &data, NULL, 0);
		make_sides(&s, &data, ends, way == 3 ? 1 : 2, &params);
		input = (gg_merge_input) {s.parts, s.lists, s.degree, GG_MERGE_AUTO};
		CHECK_OK(gg_cuda_engine.build_bytes(&data, &params, NULL, &bytes), "memory");
		foreseen = bytes.device + (uint64_t) data.n * (4 * input.length + 5);
		device.peak = device.held;
		CHECK_OK(gg_cuda_engine.merge(&data, &input, &params, NULL, &graph, NULL), "memory");
		CHECK(device.peak - held <= foreseen, "%zu bytes of device memory in use, %lu foreseen",
			  device.peak - held, (unsigned long) foreseen);
		gg_graph_free(&graph);
		free_sides(&s, &data, NULL);
	}
}

int
main(void)
{
	merge_engine = &gg_cuda_engine;
	/* cells from GG_EXACT_MAX_ROWS on */
	merge_scale = harness_small() ? 1 : 3;
	/* a host without a GPU proves nothing: fail */
	if (!CHECK_OK(gg_cuda_engine.probe(GG_USE_BUILD), "probe"))
		return harness_finish();
	held = device.held;
	harness_run("arguments", test_arguments);
	harness_run("tiny", test_tiny);
	harness_run("small side", test_small_side);
	harness_run("beside the CPU engine", test_beside_cpu);
	harness_run("recall", test_recall);
	harness_run("by search", test_by_search);
	harness_run("by search, one row", test_by_search_one);
	harness_run("by search, tiny", test_by_search_tiny);
	harness_run("by search, apart", test_by_search_apart);
	if (!harness_fewer() || harness_fewest())
		harness_run("cells", test_cells);
	if (!harness_small())
	{
		harness_run("untidy lists", test_untidy_lists);
		harness_run("dimensions", test_dimensions);
	}
	harness_run("determinism", test_determinism);
	harness_run("cancel", test_cancel);
	harness_run("memory", test_memory);
	/* cancelled runs were among them */
	CHECK(device.held == held, "%zu bytes of device memory held before, %zu after", held,
		  device.held);
	return harness_finish();
}
