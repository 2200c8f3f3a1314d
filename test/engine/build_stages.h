/*
 * build_stages.h
 *		Stages of the CPU engine's build that tests run one by one, each on a pool of its own.
 */
#ifndef GG_TEST_BUILD_STAGES_H
#define GG_TEST_BUILD_STAGES_H

#include "../../src/engine/cpu/graph/stages.h"
#include "../../src/engine/rules/algorithms.h"

static inline gg_status
stage_optimize(const uint32_t *knn, uint32_t n, uint32_t k, uint32_t degree,
			   const gg_control *control, uint32_t *graph)
{
	const gg_near_lists lists = {knn, n, k};
	gg_pool    *pool;
	gg_status	status = gg_pool_create(&pool, control);

	if (status.code == GG_OK)
		status = gg_cpu_optimize_run(pool, &lists, degree, degree, NULL, graph);
	gg_pool_free(pool);
	return status;
}

static inline gg_status
stage_diversify(const gg_dataset *data, const gg_build_params *params, const uint32_t *knn,
				const gg_control *control, uint32_t *graph)
{
	gg_pool    *pool = NULL;
	gg_status	status = gg_build_check(data, params, __func__);

	if (status.code == GG_OK)
		status = gg_pool_create(&pool, control);
	if (status.code == GG_OK)
		status = gg_cpu_diversify_run(pool, data, params, knn, NULL, graph);
	gg_pool_free(pool);
	return status;
}

#endif							/* GG_TEST_BUILD_STAGES_H */
