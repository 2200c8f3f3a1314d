/*
 * build_stages.h
 *		Stages of the CPU engine's build that tests run one by one, each on a pool of its own, and
 *		lists for them.
 */
#ifndef GG_TEST_BUILD_STAGES_H
#define GG_TEST_BUILD_STAGES_H

#include <stdlib.h>

#include "../../src/engine/cpu/graph/stages.h"
#include "../../src/engine/rules/algorithms.h"
#include "harness.h"

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

static inline bool
list_has(const uint32_t *list, uint32_t count, uint32_t id)
{
	for (uint32_t i = 0; i < count; i++)
		if (list[i] == id)
			return true;
	return false;
}

/* Lists of distinct random neighbours; cut: some end early, and some are empty.  free() */
static inline uint32_t *
random_lists(harness_random *random, uint32_t n, uint32_t k, uint32_t spread, bool cut)
{
	uint32_t   *knn = malloc(sizeof(uint32_t) * n * k + 1);

	for (uint32_t a = 0; a < n; a++)
	{
		uint32_t   *list = knn + (size_t) a * k;
		uint32_t	have = k < n - 1 ? k : n - 1;
		uint32_t	count = 0;

		if (have > 2 * spread)
			have = 2 * spread;
		if (cut && a % 3 == 0)
			have = (uint32_t) (harness_unit(random) * (have + 1));
		while (count < have)
		{
			/* near by number, so that neighbours share neighbours */
			uint32_t	step = 1 + (uint32_t) (harness_unit(random) * 2 * spread);
			uint32_t	id = (a + n + (step % 2 ? step / 2 + 1 : n - step / 2)) % n;

			if (id != a && !list_has(list, count, id))
				list[count++] = id;
		}
		while (count < k)
			list[count++] = GG_NO_NODE;
	}
	return knn;
}

#endif							/* GG_TEST_BUILD_STAGES_H */
