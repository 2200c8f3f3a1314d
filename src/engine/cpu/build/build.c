/*
 * build.c
 *		The whole chain: k-NN lists, edges by the algorithm, pivots and reachability.
 *
 * Memory: the k-NN lists live from the first stage to the last, since repair uses them.  Each stage
 * frees its own memory before the next one starts.  GRNND's pools are lists like these.  Lists that
 * memory does not hold are made by groups (groups.c), in scratch memory.
 */
#include "engine/rules/algorithms.h"
#include "groups.h"
#include "engine/cpu/graph/stages.h"

#include <stdlib.h>
#include <string.h>

static inline uint64_t
max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Peak memory with k-NN lists in memory. */
static uint64_t
plain_bytes(const gg_dataset *data, const gg_build_params *params, int threads, uint64_t edges)
{
	uint64_t	knn = (uint64_t) data->n * params->intermediate_graph_degree * sizeof(uint32_t);

	return knn + max_u64(gg_cpu_knn_graph_bytes(data, params, threads, false), edges);
}

/* Do k-NN lists go to scratch memory?  edges: peak memory of what comes after them. */
static bool
by_groups(const gg_dataset *data, const gg_build_params *params, const gg_control *control,
		  uint64_t edges)
{
	return control && control->memory > 0 && control->scratch &&
		gg_algorithm_of(params, data->metric) != GG_ALGORITHM_GRNND &&
		gg_cpu_groups_possible(data) &&
		plain_bytes(data, params, control->threads, edges) > control->memory;
}

/* Peak memory of what comes after the k-NN lists, without these. */
static uint64_t
edges_bytes(const gg_dataset *data, const gg_build_params *params, int threads)
{
	uint64_t	n = data->n;
	uint64_t	graph = n * params->graph_degree * sizeof(uint32_t);
	uint64_t	choose = n * sizeof(uint32_t) +
		(gg_algorithm_of(params, data->metric) == GG_ALGORITHM_TSDG ?
		 gg_cpu_diversify_bytes(data, params, threads) :
		 gg_cpu_optimize_bytes(data->n, params->graph_degree, threads));

	return graph + max_u64(choose, gg_cpu_connect_bytes(data, threads));
}

gg_status
gg_cpu_build_bytes(const gg_dataset *data, const gg_build_params *params, const gg_control *control,
				   gg_bytes *bytes)
{
	int			threads = control && control->threads > 1 ? control->threads : 1;
	uint64_t	n = data->n;
	uint64_t	edges;
	gg_status	status = gg_build_check(data, params, "gg_cpu_build_bytes");

	if (status.code != GG_OK)
		return status;
	bytes->device = 0;
	edges = edges_bytes(data, params, threads);
	if (gg_algorithm_of(params, data->metric) == GG_ALGORITHM_GRNND)
	{
		/* merges have k-NN lists */
		bytes->host = max_u64(plain_bytes(data, params, threads, edges),
							  n * gg_grnnd_params(params).capacity * sizeof(uint32_t) +
							  max_u64(gg_cpu_grnnd_bytes(data, params, threads), edges));
		return status;
	}
	if (by_groups(data, params, control, edges))
		bytes->host = max_u64(gg_cpu_groups_bytes(data, params, control->memory, threads), edges);
	else
		bytes->host = plain_bytes(data, params, threads, edges);
	return status;
}

/* Take memory for the lists of a graph, to be freed with it. */
static gg_status
take_lists(gg_graph *graph)
{
	graph->adjacency = malloc(sizeof(uint32_t) * graph->n * (size_t) graph->degree + 1);
	return graph->adjacency ? gg_ok() :
		gg_fail(GG_ENOMEM, "gg_cpu_build", "out of memory for the lists of %u nodes", graph->n);
}

/* A build or merge in work. */
typedef struct build_state
{
	gg_pool    *pool;
	const gg_dataset *data;
	const gg_merge_input *input;	/* NULL: a build */
	const gg_build_params *params;
	const gg_control *control;
	gg_graph   *graph;
	uint32_t   *near;			/* n x length: near nodes, by which repair goes */
	uint32_t	length;
	bool		scratch;		/* near is not ours to free */
	gg_build_stats *stats;
} build_state;

/* Are the lists GRNND's pools?  Merges have k-NN lists. */
static bool
by_pools(const build_state *build)
{
	return gg_algorithm_of(build->params, build->data->metric) == GG_ALGORITHM_GRNND &&
		!build->input;
}

/* Make k-NN lists, or pools, in memory, or by groups in scratch memory. */
static gg_status
make_lists(build_state *build, uint32_t **order)
{
	const gg_dataset *data = build->data;
	const gg_control *control = build->control;
	size_t		bytes = sizeof(uint32_t) * data->n * (size_t) build->length;
	float	   *distances = NULL;

	build->scratch = !build->input &&
		by_groups(data, build->params, control,
				  edges_bytes(data, build->params, gg_pool_threads(build->pool)));
	if (build->scratch)
	{
		build->near = control->scratch(control->ctx, bytes);
		distances = build->near ? control->scratch(control->ctx, bytes) : NULL;
	}
	else
		build->near = malloc(bytes + 1);
	if (!build->near || (build->scratch && !distances))
		return gg_fail(GG_ENOMEM, "gg_cpu_build", "out of %s for the k-NN lists of %u rows",
					   build->scratch ? "scratch memory" : "memory", data->n);
	if (by_pools(build))
		return gg_cpu_grnnd_run(build->pool, data, build->params, build->near, build->stats);
	if (build->input && gg_cpu_extends(data, build->input, build->params,
									   gg_pool_threads(build->pool)))
		return gg_cpu_extend_lists_run(build->pool, data, build->input, build->params, build->near,
									   order, build->stats);
	if (build->scratch)
		return gg_cpu_groups_run(build->pool, data, build->params, control->memory,
								 (gg_list_room) {build->near, distances}, order, build->stats);
	return gg_cpu_knn_graph_run(build->pool, data, build->params, build->near, NULL, order,
								build->stats);
}

/* Make k-NN lists or pools, and choose edges from them. */
static gg_status
choose_edges(build_state *build)
{
	const gg_dataset *data = build->data;
	const gg_build_params *params = build->params;
	uint32_t	k = by_pools(build) ? gg_grnnd_params(params).capacity :
		params->intermediate_graph_degree;
	gg_graph   *graph = build->graph;
	gg_pool    *pool = build->pool;
	gg_near_lists lists;
	uint32_t   *order = NULL;
	double		start;
	gg_status	status;

	build->length = k;
	status = make_lists(build, &order);
	lists = (gg_near_lists) {build->near, data->n, k};
	start = gg_now();
	if (status.code == GG_OK)
		status = take_lists(graph);
	if (status.code == GG_OK)
		status = gg_algorithm_of(params, data->metric) == GG_ALGORITHM_TSDG ?
			gg_cpu_diversify_run(pool, data, params, build->near, order, graph->adjacency) :
			gg_cpu_optimize_run(pool, &lists, graph->degree,
								gg_reverse_edges(data->metric, graph->degree), order,
								graph->adjacency);
	free(order);
	build->stats->optimize_s = gg_now() - start;
	return status;
}

/* Make the graph of a build whose other fields are set and checked. */
static gg_status
make_graph(build_state *build, gg_graph *graph, gg_build_stats *stats)
{
	gg_build_stats unwanted;
	double		start;
	gg_status	status = gg_pool_create(&build->pool, build->control);

	if (status.code != GG_OK)
		return status;
	build->graph = graph;
	build->stats = stats ? stats : &unwanted;
	memset(build->stats, 0, sizeof(*build->stats));
	graph->n = build->data->n;
	graph->degree = build->params->graph_degree;
	status = choose_edges(build);

	start = gg_now();
	if (status.code == GG_OK)
		status = gg_cpu_connect_run(build->pool, build->data, build->near, build->length,
									build->params->seed, graph, build->stats);
	build->stats->connect_s = gg_now() - start;

	if (status.code != GG_OK)
		gg_graph_free(graph);
	if (!build->scratch)
		free(build->near);
	gg_pool_free(build->pool);
	return status;
}

gg_status
gg_cpu_build(const gg_dataset *data, const gg_build_params *params, const gg_control *control,
			 gg_graph *graph, gg_build_stats *stats)
{
	build_state build = {.data = data, .params = params, .control = control};
	gg_status	status = gg_build_check(data, params, "gg_cpu_build");

	memset(graph, 0, sizeof(*graph));
	return status.code == GG_OK ? make_graph(&build, graph, stats) : status;
}

gg_status
gg_cpu_merge(const gg_dataset *data, const gg_merge_input *input, const gg_build_params *params,
			 const gg_control *control, gg_graph *graph, gg_build_stats *stats)
{
	build_state build = {.data = data, .input = input, .params = params, .control = control};
	gg_status	status = gg_merge_check(data, input, params, "gg_cpu_merge");

	memset(graph, 0, sizeof(*graph));
	return status.code == GG_OK ? make_graph(&build, graph, stats) : status;
}

void
gg_graph_free(gg_graph *graph)
{
	free(graph->adjacency);
	free(graph->pivots);
	free(graph->pivot_adjacency);
	memset(graph, 0, sizeof(*graph));
}
