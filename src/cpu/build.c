/*
 * build.c
 *		The whole chain: k-NN lists, edges by the algorithm, pivots and reachability.
 *
 * Who holds what: the k-NN lists live from the first stage to the last (repair goes by them); each
 * stage's own memory is gone before the next one starts.  GRNND has no k-NN lists, and repair goes
 * by a copy of its edges.
 */
#include "algorithms.h"
#include "stages.h"

#include <stdlib.h>
#include <string.h>

static inline uint64_t
max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

gg_status
gg_cpu_build_bytes(const gg_dataset *data, const gg_build_params *params, const gg_control *control,
				   gg_bytes *bytes)
{
	int			threads = control && control->threads > 1 ? control->threads : 1;
	uint64_t	n = data->n;
	uint64_t	knn = n * params->intermediate_graph_degree * sizeof(uint32_t);
	uint64_t	graph = n * params->graph_degree * sizeof(uint32_t);
	gg_status	status = gg_build_check(data, params, "gg_cpu_build_bytes");

	if (status.code != GG_OK)
		return status;
	bytes->device = 0;
	if (params->algorithm == GG_ALGORITHM_GRNND)
	{
		bytes->host = graph + max_u64(gg_cpu_grnnd_bytes(data, params, threads),
									  graph + gg_cpu_connect_bytes(data, threads));
		return status;
	}
	bytes->host = knn + gg_cpu_knn_graph_bytes(data, params, threads, false);
	bytes->host = max_u64(bytes->host, knn + graph + n * sizeof(uint32_t) +
						  (params->algorithm == GG_ALGORITHM_TSDG ?
						   gg_cpu_diversify_bytes(data, params, threads) :
						   gg_cpu_optimize_bytes(data->n, params->graph_degree, threads)));
	bytes->host = max_u64(bytes->host, knn + graph + gg_cpu_connect_bytes(data, threads));
	return status;
}

/* Memory for the lists of a graph, to be freed with it. */
static gg_status
take_lists(gg_graph *graph)
{
	graph->adjacency = malloc(sizeof(uint32_t) * graph->n * (size_t) graph->degree + 1);
	return graph->adjacency ? gg_ok() :
		gg_fail(GG_ENOMEM, "gg_cpu_build", "out of memory for the lists of %u nodes", graph->n);
}

/* Edges from k-NN lists, of all rows or (input) of merged parts; near: these. */
static gg_status
choose_edges(gg_pool *pool, const gg_dataset *data, const gg_merge_input *input,
			 const gg_build_params *params, gg_graph *graph, uint32_t **near, uint32_t *length,
			 gg_build_stats *stats)
{
	uint32_t	k = params->intermediate_graph_degree;
	uint32_t   *knn = malloc(sizeof(uint32_t) * data->n * (size_t) k + 1);
	uint32_t   *order = NULL;
	double		start;
	gg_status	status;

	*near = knn;
	*length = k;
	if (!knn)
		return gg_fail(GG_ENOMEM, "gg_cpu_build", "out of memory for the k-NN lists of %u rows",
					   data->n);
	status = input ?
		gg_cpu_merge_lists_run(pool, data, input, params, knn, &order, stats) :
		gg_cpu_knn_graph_run(pool, data, params, knn, NULL, &order, stats);
	start = gg_now();
	if (status.code == GG_OK)
		status = take_lists(graph);
	if (status.code == GG_OK)
		status = params->algorithm == GG_ALGORITHM_TSDG ?
			gg_cpu_diversify_run(pool, data, params, knn, order, graph->adjacency) :
			gg_cpu_optimize_run(pool, knn, data->n, k, graph->degree, order, graph->adjacency);
	free(order);
	stats->optimize_s = gg_now() - start;
	return status;
}

/* Edges without k-NN lists; near: the edges, before any is replaced. */
static gg_status
build_edges(gg_pool *pool, const gg_dataset *data, const gg_build_params *params, gg_graph *graph,
			uint32_t **near, uint32_t *length, gg_build_stats *stats)
{
	size_t		bytes = sizeof(uint32_t) * data->n * (size_t) graph->degree;
	gg_status	status = take_lists(graph);

	if (status.code == GG_OK)
		status = gg_cpu_grnnd_run(pool, data, params, graph->adjacency, stats);
	if (status.code != GG_OK)
		return status;
	*near = malloc(bytes + 1);
	*length = graph->degree;
	if (!*near)
		return gg_fail(GG_ENOMEM, "gg_cpu_build", "out of memory for the lists of %u nodes",
					   data->n);
	memcpy(*near, graph->adjacency, bytes);
	return status;
}

/* gg_engine.build, or merge with an input. */
static gg_status
make_graph(const gg_dataset *data, const gg_merge_input *input, const gg_build_params *params,
		   const gg_control *control, gg_graph *graph, gg_build_stats *stats)
{
	uint32_t   *near = NULL;	/* n x k */
	uint32_t	k = 0;
	gg_pool    *pool = NULL;
	double		start;
	gg_status	status = gg_pool_create(&pool, control);

	if (status.code != GG_OK)
		return status;
	graph->n = data->n;
	graph->degree = params->graph_degree;
	status = params->algorithm == GG_ALGORITHM_GRNND ?
		build_edges(pool, data, params, graph, &near, &k, stats) :
		choose_edges(pool, data, input, params, graph, &near, &k, stats);

	start = gg_now();
	if (status.code == GG_OK)
		status = gg_cpu_connect_run(pool, data, near, k, params->seed, graph, stats);
	stats->connect_s = gg_now() - start;

	if (status.code != GG_OK)
		gg_graph_free(graph);
	free(near);
	gg_pool_free(pool);
	return status;
}

gg_status
gg_cpu_build(const gg_dataset *data, const gg_build_params *params, const gg_control *control,
			 gg_graph *graph, gg_build_stats *stats)
{
	gg_build_stats unwanted;
	gg_status	status = gg_build_check(data, params, "gg_cpu_build");

	if (!stats)
		stats = &unwanted;
	memset(stats, 0, sizeof(*stats));
	memset(graph, 0, sizeof(*graph));
	return status.code == GG_OK ? make_graph(data, NULL, params, control, graph, stats) : status;
}

gg_status
gg_cpu_merge(const gg_dataset *data, const gg_merge_input *input, const gg_build_params *params,
			 const gg_control *control, gg_graph *graph, gg_build_stats *stats)
{
	gg_build_stats unwanted;
	gg_status	status = gg_merge_check(data, input, params, "gg_cpu_merge");

	if (!stats)
		stats = &unwanted;
	memset(stats, 0, sizeof(*stats));
	memset(graph, 0, sizeof(*graph));
	return status.code == GG_OK ? make_graph(data, input, params, control, graph, stats) : status;
}

void
gg_graph_free(gg_graph *graph)
{
	free(graph->adjacency);
	free(graph->pivots);
	free(graph->pivot_adjacency);
	memset(graph, 0, sizeof(*graph));
}
