/*
 * groups.h
 *		k-NN lists of more rows than memory holds.
 */
#ifndef GG_GROUPS_H
#define GG_GROUPS_H

#include "stages.h"

/* Are there enough rows for groups? */
extern bool gg_cpu_groups_possible(const gg_dataset *data);

/*
 * gg_engine.knn_graph by groups.  knn and distances are n x k each, in any memory; the rest keeps
 * to `memory` bytes where that is possible.  order: as in gg_cpu_knn_graph_run().  stats is added
 * to.
 */
extern gg_status gg_cpu_groups_run(gg_pool *pool, const gg_dataset *data,
								   const gg_build_params *params, uint64_t memory, uint32_t *knn,
								   float *distances, uint32_t **order, gg_build_stats *stats);
/* Its peak memory beyond knn and distances. */
extern uint64_t gg_cpu_groups_bytes(const gg_dataset *data, const gg_build_params *params,
									uint64_t memory, int threads);

#endif							/* GG_GROUPS_H */
