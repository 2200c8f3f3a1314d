/*
 * test_code_loss.c
 *		What walks by codes find less than walks by rows: nothing where codes tell neighbours apart,
 *		nearly all where all neighbours have one code.
 */
#include <stdlib.h>
#include <string.h>

#include "../../src/engine/rules/codes.h"
#include "harness.h"

static gg_dataset data;
static gg_graph graph;

static void
make(harness_shape shape, uint32_t n, uint32_t dim, gg_metric metric)
{
	const harness_spec spec = {.shape = shape, .n = n, .dim = dim, .metric = metric, .seed = 5};
	const gg_build_params params = {
		.graph_degree = 32, .intermediate_graph_degree = 64, .seed = 1
	};
	const gg_control control = {.threads = 2};
	float	   *queries;

	harness_data(&spec, &data, &queries, 1);
	free(queries);
	CHECK_OK(gg_cpu_engine.build(&data, &params, &control, &graph, NULL), "build");
}

static void
drop(void)
{
	gg_graph_free(&graph);
	harness_free(&data, NULL);
}

static void
lose(gg_codes codes, int threads, double *loss)
{
	const gg_code_kind kind = {data.metric, data.dim, codes, 7, NULL};
	const gg_control control = {.threads = threads};

	CHECK_OK(gg_cpu_code_loss(&data, &graph, &kind, &control, loss), "loss");
}

static void
check_loss(harness_shape shape, uint32_t dim, gg_metric metric, double least, double most,
		   const char *what)
{
	double		loss[GG_LOSS_LISTS];
	double		again[GG_LOSS_LISTS];

	make(shape, harness_size(4000, 8), dim, metric);
	lose(GG_CODES_INT8, 1, loss);
	for (int i = 0; i < GG_LOSS_LISTS; i++)
		CHECK(loss[i] >= least && loss[i] <= most, "%s: loss %d is %.4f", what, i, loss[i]);
	lose(GG_CODES_INT8, 3, again);
	CHECK(memcmp(loss, again, sizeof(loss)) == 0, "%s: three threads say something else", what);
	drop();
}

static void
check_errors(void)
{
	const gg_code_kind kind = {GG_METRIC_L2, 96, GG_CODES_INT8, 7, NULL};
	const gg_control control = {.cancelled = harness_cancelled_at_once};
	double		loss[GG_LOSS_LISTS];
	gg_dataset	halves;

	make(SHAPE_MANIFOLD, harness_size(4000, 8), 96, GG_METRIC_L2);
	halves = data;
	halves.element = GG_ELEMENT_F16;
	CHECK(gg_cpu_code_loss(&halves, &graph, &kind, NULL, loss).code == GG_EINVAL, "float16 rows");
	CHECK(gg_cpu_code_loss(&data, &graph, &kind, &control, loss).code == GG_ECANCELED, "cancelled");
	drop();

	/* fewer rows than queries are taken of more */
	make(SHAPE_MANIFOLD, 20, 96, GG_METRIC_L2);
	lose(GG_CODES_INT8, 1, loss);
	CHECK(loss[0] == 0 && loss[1] == 0, "20 rows lose %.4f and %.4f", loss[0], loss[1]);
	drop();
}

int
main(void)
{
	check_loss(SHAPE_MANIFOLD, 96, GG_METRIC_L2, -0.002, 0.002, "manifold");
	check_loss(SHAPE_MANIFOLD, 96, GG_METRIC_COSINE, -0.002, 0.002, "cosine");
	check_loss(SHAPE_MANIFOLD, 128, GG_METRIC_IP, -0.004, 0.004, "inner product");
	check_loss(SHAPE_TIGHT, 96, GG_METRIC_L2, 0.1, 1, "tight clusters");
	check_errors();
	return harness_finish();
}
