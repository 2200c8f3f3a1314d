/*
 * build.c
 *		The whole chain: k-NN lists, edges by the algorithm, pivots and reachability.
 *
 * Who holds what: the k-NN lists live from the first stage to the last (repair goes by them); each
 * stage's own memory is gone before the next one starts.
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
	bytes->host = knn + gg_cpu_knn_graph_bytes(data, params, threads, false);
	bytes->host = max_u64(bytes->host, knn + graph + n * sizeof(uint32_t) +
						  (params->algorithm == GG_ALGORITHM_TSDG ?
						   gg_cpu_diversify_bytes(data, params, threads) :
						   gg_cpu_optimize_bytes(data->n, params->graph_degree, threads)));
	bytes->host = max_u64(bytes->host, knn + graph + gg_cpu_connect_bytes(data, threads));
	return status;
}

gg_status
gg_cpu_build(const gg_dataset *data, const gg_build_params *params, const gg_control *control,
			 gg_graph *graph, gg_build_stats *stats)
{
	uint32_t	k = params->intermediate_graph_degree;
	uint32_t   *knn = NULL,
			   *order = NULL;
	gg_build_stats unwanted;
	gg_pool    *pool = NULL;
	double		start;
	gg_status	status = gg_build_check(data, params, "gg_cpu_build");

	if (!stats)
		stats = &unwanted;
	memset(stats, 0, sizeof(*stats));
	memset(graph, 0, sizeof(*graph));
	if (status.code == GG_OK)
		status = gg_pool_create(&pool, control);
	if (status.code != GG_OK)
		return status;

	graph->n = data->n;
	graph->degree = params->graph_degree;
	knn = malloc(sizeof(uint32_t) * data->n * (size_t) k + 1);
	if (!knn)
		status = gg_fail(GG_ENOMEM, "gg_cpu_build", "out of memory for the k-NN lists of %u rows",
						 data->n);
	if (status.code == GG_OK)
		status = gg_cpu_knn_graph_run(pool, data, params, knn, NULL, &order, stats);

	start = gg_now();
	if (status.code == GG_OK)
	{
		graph->adjacency = malloc(sizeof(uint32_t) * data->n * (size_t) graph->degree + 1);
		if (!graph->adjacency)
			status = gg_fail(GG_ENOMEM, "gg_cpu_build", "out of memory for the lists of %u nodes",
							 data->n);
	}
	if (status.code == GG_OK)
		status = params->algorithm == GG_ALGORITHM_TSDG ?
			gg_cpu_diversify_run(pool, data, params, knn, order, graph->adjacency) :
			gg_cpu_optimize_run(pool, knn, data->n, k, graph->degree, order, graph->adjacency);
	free(order);
	stats->optimize_s = gg_now() - start;

	start = gg_now();
	if (status.code == GG_OK)
		status = gg_cpu_connect_run(pool, data, knn, k, params->seed, graph, stats);
	stats->connect_s = gg_now() - start;

	if (status.code != GG_OK)
		gg_graph_free(graph);
	free(knn);
	gg_pool_free(pool);
	return status;
}

void
gg_graph_free(gg_graph *graph)
{
	free(graph->adjacency);
	free(graph->pivots);
	free(graph->pivot_adjacency);
	memset(graph, 0, sizeof(*graph));
}
