/*
 * stages.h
 *		The stages of a build, each on the pool of the whole.
 */
#ifndef GG_STAGES_H
#define GG_STAGES_H

#include "cpu.h"
#include "threads.h"

/* gg_engine.knn_graph; stats is added to. */
extern gg_status gg_cpu_knn_graph_run(gg_pool *pool, const gg_dataset *data, const gg_build_params *params,
									  uint32_t *ids, float *distances, gg_build_stats *stats);

/* gg_engine.optimize; says nothing about progress when quiet. */
extern gg_status gg_cpu_optimize_run(gg_pool *pool, const uint32_t *knn, uint32_t n, uint32_t k, uint32_t degree,
									 bool quiet, uint32_t *graph);

/* Pivots and reachability: the graph's adjacency is there, pivots and pivot_adjacency are made. */
extern gg_status gg_cpu_connect_run(gg_pool *pool, const gg_dataset *data, const uint32_t *knn, uint32_t k,
									uint64_t seed, gg_graph *graph, gg_build_stats *stats);

#endif							/* GG_STAGES_H */
