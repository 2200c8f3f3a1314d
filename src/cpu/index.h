/*
 * index.h
 *		Members of gg_cpu_engine that search, see gg_engine.
 */
#ifndef GG_INDEX_H
#define GG_INDEX_H

#include "cpu.h"

extern gg_status gg_cpu_index_open(const gg_dataset *data, const gg_graph *graph,
								   const gg_control *control, gg_index **index);
extern gg_status gg_cpu_index_search(gg_index *index, const gg_search_params *params,
									 const float *queries, uint32_t nq, const gg_control *control,
									 uint32_t *nodes, float *distances);
extern gg_status gg_cpu_index_exact(gg_index *index, uint32_t k, const uint32_t *filter,
									const float *queries, uint32_t nq, const gg_control *control,
									uint32_t *nodes, float *distances);
extern void gg_cpu_index_close(gg_index *index);

#endif							/* GG_INDEX_H */
