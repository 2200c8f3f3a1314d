/*
 * groups.h
 *		k-NN lists of more rows than memory holds.
 */
#ifndef GG_GROUPS_H
#define GG_GROUPS_H

#include "engine/cpu/graph/stages.h"

/* Are there enough rows for groups? */
extern bool gg_cpu_groups_possible(const gg_dataset *data);

/* Where k-NN lists are written, in any memory. */
typedef struct gg_list_room
{
	uint32_t   *ids;			/* n x k */
	float	   *distances;		/* n x k */
} gg_list_room;

/*
 * gg_engine.knn_graph by groups.  All but the lists keeps to `memory` bytes where that is possible.
 * order: as in gg_cpu_knn_graph_run().  stats is added to.
 */
extern gg_status gg_cpu_groups_run(gg_pool *pool, const gg_dataset *data,
								   const gg_build_params *params, uint64_t memory,
								   gg_list_room lists, uint32_t **order, gg_build_stats *stats);
/* Its peak memory beyond the lists. */
extern uint64_t gg_cpu_groups_bytes(const gg_dataset *data, const gg_build_params *params,
									uint64_t memory, int threads);

#endif							/* GG_GROUPS_H */
