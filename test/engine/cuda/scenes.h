/*
 * scenes.h
 *		Rows and queries of the same clusters, and a graph that is made by comparing all rows
 *		(small_graph.h), so that nothing depends on a builder.
 */
#ifndef GG_TEST_SCENES_H
#define GG_TEST_SCENES_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../harness.h"
#include "../small_graph.h"

typedef struct scene_spec
{
	uint32_t	n;
	uint32_t	dim;
	gg_metric	metric;			/* 0: L2 */
	gg_element	element;		/* 0: float32 */
	uint32_t	degree;			/* 0: no graph */
	uint32_t	npivots;
	uint32_t	nq;
	uint32_t	copies;			/* of each row; 0 or 1: none */
	float		offset;			/* added to every element */
	float		apart;			/* times row % 4 and element % 7, added: tight clusters */
	bool		marked;			/* every third edge has GG_EDGE_MARK */
} scene_spec;

typedef struct scene
{
	gg_dataset	data;
	gg_shape	shape;			/* of the rows and the graph */
	gg_graph	graph;
	float	   *rows;			/* float32, whatever data.rows is, which they are if it is that */
	float	   *queries;
	uint32_t	nq;
	gg_index   *cpu;			/* for those who open them */
	gg_index   *cuda;
	char		name[128];
} scene;

/*
 * Whether blocks have less shared memory than capability 9.0 has: then the widest rows are refused,
 * which test_little_shared() of test_cuda_search sees to.  GPUGRAPH_AS: see test/README.
 */
static inline bool
little_shared(void)
{
	const char *as = getenv("GPUGRAPH_AS");
	int			bytes = 0;

	return (as != NULL && as[0] != '\0') ||
		cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) != cudaSuccess ||
		bytes < 200 * 1024;
}

static inline void
scene_draw(scene *s, const scene_spec *spec, uint64_t seed)
{
	const gg_metric metric = spec->metric ? spec->metric : GG_METRIC_L2;
	const gg_element element = spec->element ? spec->element : GG_ELEMENT_F32;
	const uint32_t copies = spec->copies > 1 ? spec->copies : 1;
	const uint32_t distinct = (spec->n + copies - 1) / copies;
	const uint32_t dim = spec->dim;
	const bool	unit = metric == GG_METRIC_COSINE;
	const size_t elements = ((size_t) distinct + spec->nq) * dim;
	float	   *all = malloc(elements * sizeof(float));
	small_random random = {seed};

	memset(s, 0, sizeof(*s));
	snprintf(s->name, sizeof(s->name),
			 "n %u dim %u metric %d element %d degree %u copies %u offset %g", spec->n, dim,
			 (int) metric, (int) element, spec->degree, copies, (double) spec->offset);
	s->nq = spec->nq;
	/* rows and queries from one draw: the same clusters */
	small_clusters(&random, all, distinct + spec->nq, dim, dim < 12 ? dim : 12, 8, 0.7f, unit);
	for (size_t i = 0; i < elements; i++)
		all[i] += spec->offset + spec->apart * (float) (i / dim % 4 * (i % dim % 7));
	s->rows = malloc((size_t) spec->n * dim * sizeof(float) + 1);
	for (uint32_t i = 0; i < spec->n; i++)
		memcpy(s->rows + (size_t) i * dim, all + (size_t) (i % distinct) * dim,
			   dim * sizeof(float));
	s->data = (gg_dataset) {s->rows, spec->n, dim, element, metric};
	if (element == GG_ELEMENT_F16)
	{
		s->data.rows = harness_stored(s->rows, (size_t) spec->n * dim, element);
		gg_halves_to_floats(s->data.rows, s->rows, (size_t) spec->n * dim);
	}
	s->queries = malloc((size_t) spec->nq * dim * sizeof(float) + 1);
	memcpy(s->queries, all + (size_t) distinct * dim, (size_t) spec->nq * dim * sizeof(float));
	/* queries come with any length */
	for (size_t i = 0; unit && i < (size_t) spec->nq * dim; i++)
		s->queries[i] *= 3;
	free(all);
	s->shape = (gg_shape) {.capacity = spec->n,.dim = dim,.metric = metric,.element = element,
		.degree = spec->degree,.npivots = spec->npivots};
	if (spec->degree == 0)
		return;
	small_graph_make(&random, s->rows, spec->n, dim,
					 metric == GG_METRIC_IP ? GG_METRIC_L2 : metric, spec->degree, spec->npivots,
					 &s->graph);
	for (size_t i = 0; spec->marked && i < (size_t) spec->n * spec->degree; i += 3)
		if (s->graph.adjacency[i] != GG_NO_NODE)
			s->graph.adjacency[i] |= GG_EDGE_MARK;
}

static inline void
scene_drop(scene *s)
{
	if (s->shape.degree > 0)
		small_graph_free(&s->graph);
	if (s->data.rows != s->rows)
		free((void *) s->data.rows);
	free(s->rows);
	free(s->queries);
}

#endif							/* GG_TEST_SCENES_H */
