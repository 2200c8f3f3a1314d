/*
 * stages.h
 *		The stages of a build, each on the pool of the whole.
 */
#ifndef GG_STAGES_H
#define GG_STAGES_H

#include "engine/cpu/common/cpu.h"
#include "engine/cpu/common/threads.h"

/* Is the id among these? */
static inline bool
gg_has_id(const uint32_t *ids, uint32_t count, uint32_t id)
{
	for (uint32_t i = 0; i < count; i++)
		if (ids[i] == id)
			return true;
	return false;
}

/*
 * gg_engine.knn_graph; adds to stats.  order, unless NULL, receives the rows in an order in
 * which neighbours stand near each other (free()), or NULL where there is none.
 */
extern gg_status gg_cpu_knn_graph_run(gg_pool *pool, const gg_dataset *data,
									  const gg_build_params *params, uint32_t *ids,
									  float *distances, uint32_t **order, gg_build_stats *stats);
/* Its peak memory beyond ids and distances. */
extern uint64_t gg_cpu_knn_graph_bytes(const gg_dataset *data, const gg_build_params *params,
									   int threads, bool distances);

/*
 * k-NN lists that are the same whatever the threads (ordered, see knn_graph.c); data and params
 * were checked.
 */
extern gg_status gg_cpu_ordered_lists_run(gg_pool *pool, const gg_dataset *data,
										  const gg_build_params *params, uint32_t *ids);

/*
 * k-NN lists of merged parts, one of which has most of the rows, see extend.c; input was checked.
 * Makes order, adds to stats.  gg_cpu_extends(): whether a merge is to make them so, in no more
 * memory than k-NN lists take; else it builds anew.
 */
extern bool gg_cpu_extends(const gg_dataset *data, const gg_merge_input *input,
						   const gg_build_params *params, int threads);
extern gg_status gg_cpu_extend_lists_run(gg_pool *pool, const gg_dataset *data,
										 const gg_merge_input *input,
										 const gg_build_params *params, uint32_t *ids,
										 uint32_t **order, gg_build_stats *stats);

typedef struct gg_near_lists
{
	const uint32_t *ids;		/* n x k, nearest first */
	uint32_t	n;
	uint32_t	k;
} gg_near_lists;

/*
 * Rank-based reordering with at most `reverse` reverse edges a list [CAGRA, section III.B].  graph:
 * n x degree.  The result is a function of the lists alone: every engine makes the same bytes of
 * them.  order, unless NULL: which nodes to take first, for locality's sake alone.  GG_EINVAL: k or
 * degree out of range.
 */
extern gg_status gg_cpu_optimize_run(gg_pool *pool, const gg_near_lists *lists, uint32_t degree,
									 uint32_t reverse, const uint32_t *order, uint32_t *graph);
/* Its peak memory beyond knn and graph. */
extern uint64_t gg_cpu_optimize_bytes(uint32_t n, uint32_t degree, int threads);

/*
 * (b) and (c) of optimize.c: reverse edges united with forward ones.  forward: degree x n, F(A)[i]
 * at i * n + A.  graph: n x most, the lists cut to `most` edges, which is no less than degree.
 */
extern gg_status gg_cpu_unite_run(gg_pool *pool, const uint32_t *forward, uint32_t n,
								  uint32_t degree, uint32_t reverse, uint32_t most,
								  uint32_t *graph);
/* Its peak memory beyond forward and graph. */
extern uint64_t gg_cpu_unite_bytes(uint32_t n, int threads);

/*
 * Two-stage diversification with reverse edges [TSDG, section 3].  knn: n x
 * intermediate_graph_degree ids, nearest first; graph: n x graph_degree.  The result is a function
 * of rows, knn and params, which were checked: engines differ only where the rounding of distances
 * decides.  order: as in gg_cpu_optimize_run().
 */
extern gg_status gg_cpu_diversify_run(gg_pool *pool, const gg_dataset *data,
									  const gg_build_params *params, const uint32_t *knn,
									  const uint32_t *order, uint32_t *graph);
/* Its peak memory beyond knn and graph. */
extern uint64_t gg_cpu_diversify_bytes(const gg_dataset *data, const gg_build_params *params,
									   int threads);

/* Make GRNND's pools as lists (n x R, GG_NO_NODE behind the last); params were checked. */
extern gg_status gg_cpu_grnnd_run(gg_pool *pool, const gg_dataset *data,
								  const gg_build_params *params, uint32_t *lists,
								  gg_build_stats *stats);
/* Its peak memory beyond lists. */
extern uint64_t gg_cpu_grnnd_bytes(const gg_dataset *data, const gg_build_params *params,
								   int threads);

/*
 * Pivots and reachability.  The graph comes with its adjacency, and lists of near nodes (n x k);
 * some edges of it are replaced, pivots and pivot_adjacency are made (malloc).  Adds to
 * stats->repaired.
 */
extern gg_status gg_cpu_connect_run(gg_pool *pool, const gg_dataset *data, const uint32_t *knn,
									uint32_t k, uint64_t seed, gg_graph *graph,
									gg_build_stats *stats);
/* Its peak memory, what it adds to the graph included. */
extern uint64_t gg_cpu_connect_bytes(const gg_dataset *data, int threads);

/*
 * Pivots alone, for walks over the rows of one part, which has some rows.  They are made in graph
 * (malloc), of which only n is read.  Takes no more memory than gg_cpu_connect_run().
 */
typedef struct gg_entries
{
	const uint32_t *knn;		/* n x k: near nodes of all rows */
	uint32_t	k;
	const uint8_t *parts;		/* n */
	uint8_t		part;
} gg_entries;

extern gg_status gg_cpu_entries_run(gg_pool *pool, const gg_dataset *data,
									const gg_entries *entries, uint64_t seed, gg_graph *graph);

#endif							/* GG_STAGES_H */
