/*
 * algorithms.h
 *		Checks of a build's data and parameters for both engines, and the defaults of the
 *		algorithms.
 *
 * C and C++.
 */
#ifndef GG_ALGORITHMS_H
#define GG_ALGORITHMS_H

#include "engine/engine.h"
#include "engine/rules/random.h"

/* ---- GRNND ---------------------------------------------------------------- */

/* GRNND's parameters, with defaults in the place of zeros. */
typedef struct gg_grnnd
{
	uint32_t	start;			/* S */
	uint32_t	capacity;		/* R */
	uint32_t	outer;			/* T1 */
	uint32_t	inner;			/* T2 */
	uint32_t	pairs;			/* that a round draws for each entry of a pool */
	float		rho;
} gg_grnnd;

/* Measured in grnnd.c. */
#define GG_GRNND_START			32u
#define GG_GRNND_OUTER			1u	/* from pivot cells */
#define GG_GRNND_INNER			1u
#define GG_GRNND_RANDOM_OUTER	4u
#define GG_GRNND_RANDOM_INNER	8u
#define GG_GRNND_PAIRS			1u
#define GG_GRNND_RANDOM_PAIRS	8u
#define GG_GRNND_RHO			1.0f
#define GG_GRNND_RANDOM_RHO		0.6f

static inline gg_grnnd
gg_grnnd_params(const gg_build_params *params)
{
	bool		random = params->init == GG_INIT_RANDOM;
	gg_grnnd	out;

	out.capacity = params->pool_capacity != 0 ? params->pool_capacity : 2 * params->graph_degree;
	out.start = params->initial_neighbors != 0 ? params->initial_neighbors : GG_GRNND_START;
	if (out.start > out.capacity)
		out.start = out.capacity;
	out.outer = params->outer_rounds != 0 ? params->outer_rounds :
		random ? GG_GRNND_RANDOM_OUTER : GG_GRNND_OUTER;
	out.inner = params->inner_rounds != 0 ? params->inner_rounds :
		random ? GG_GRNND_RANDOM_INNER : GG_GRNND_INNER;
	out.pairs = random ? GG_GRNND_RANDOM_PAIRS : GG_GRNND_PAIRS;
	out.rho = params->rho != 0 ? params->rho : random ? GG_GRNND_RANDOM_RHO : GG_GRNND_RHO;
	return out;
}

/* A round's pair number `pair` of a pool of `count` nodes, two or more: two places of it. */
GG_RANDOM_INLINE void
gg_grnnd_pair(uint64_t seed, uint32_t pair, uint32_t count, uint32_t *near, uint32_t *far)
{
	uint32_t	one = gg_random_below(seed, 2 * (uint64_t) pair, count);
	uint32_t	other = gg_random_below(seed, 2 * (uint64_t) pair + 1, count - 1);

	other += other >= one;
	*near = one < other ? one : other;
	*far = one < other ? other : one;
}

/* The seed of a round's pairs of a node. */
GG_RANDOM_INLINE uint64_t
gg_grnnd_seed(uint64_t seed, uint32_t round, uint32_t node)
{
	return seed ^ gg_random_at(round, node);
}

/* ---- checks --------------------------------------------------------------- */

/* GG_EINVAL when the algorithm is unknown, or a parameter of one out of range. */
static inline gg_status
gg_algorithm_check(const gg_build_params *params, const char *where)
{
	if (params->algorithm != 0 && params->algorithm != GG_ALGORITHM_CAGRA &&
		params->algorithm != GG_ALGORITHM_TSDG && params->algorithm != GG_ALGORITHM_GRNND)
		return gg_fail(GG_EINVAL, where, "algorithm %d is unknown", (int) params->algorithm);
	/* a NaN is in no range, and is refused */
	if (params->alpha != 0 && !(params->alpha >= 1 && params->alpha <= GG_MAX_ALPHA))
		return gg_fail(GG_EINVAL, where, "alpha %g is not in 1 .. %g", (double) params->alpha,
					   (double) GG_MAX_ALPHA);
	if (params->lambda0 > GG_MAX_LAMBDA)
		return gg_fail(GG_EINVAL, where, "lambda0 %u is not in 1 .. %u", params->lambda0,
					   GG_MAX_LAMBDA);
	if (params->pool_capacity != 0 && (params->pool_capacity < params->graph_degree ||
									   params->pool_capacity > GG_MAX_DEGREE))
		return gg_fail(GG_EINVAL, where, "pool capacity %u is not in %u .. %u",
					   params->pool_capacity, params->graph_degree, GG_MAX_DEGREE);
	if (params->initial_neighbors > gg_grnnd_params(params).capacity)
		return gg_fail(GG_EINVAL, where, "%u initial neighbors are not in 1 .. %u",
					   params->initial_neighbors, gg_grnnd_params(params).capacity);
	if (params->outer_rounds > GG_MAX_ROUNDS || params->inner_rounds > GG_MAX_ROUNDS)
		return gg_fail(GG_EINVAL, where, "%u x %u rounds are not in 1 .. %u each",
					   params->outer_rounds, params->inner_rounds, GG_MAX_ROUNDS);
	if (params->rho != 0 && !(params->rho > 0 && params->rho <= 1))
		return gg_fail(GG_EINVAL, where, "rho %g is not in 0 .. 1", (double) params->rho);
	return gg_ok();
}

/* GG_EINVAL when data or parameters are out of range for a build. */
static inline gg_status
gg_build_check(const gg_dataset *data, const gg_build_params *params, const char *where)
{
	if (data->n > GG_MAX_NODES)
		return gg_fail(GG_EINVAL, where, "%u rows are more than %u", data->n, GG_MAX_NODES);
	if (data->dim < 1 || data->dim > GG_MAX_DIM)
		return gg_fail(GG_EINVAL, where, "dimension %u is not in 1 .. %u", data->dim, GG_MAX_DIM);
	if (data->metric < GG_METRIC_L2 || data->metric > GG_METRIC_L1 ||
		data->element < GG_ELEMENT_F32 || data->element > GG_ELEMENT_F16)
		return gg_fail(GG_EINVAL, where, "metric %d or element %d is unknown", (int) data->metric,
					   (int) data->element);
	if (params->graph_degree < 4 || params->graph_degree > GG_MAX_DEGREE / 2)
		return gg_fail(GG_EINVAL, where, "graph degree %u is not in 4 .. %u", params->graph_degree,
					   GG_MAX_DEGREE / 2);
	if (params->intermediate_graph_degree < params->graph_degree ||
		params->intermediate_graph_degree > GG_MAX_DEGREE)
		return gg_fail(GG_EINVAL, where, "intermediate graph degree %u is not in %u .. %u",
					   params->intermediate_graph_degree, params->graph_degree, GG_MAX_DEGREE);
	if (params->samples > GG_MAX_SAMPLES)
		return gg_fail(GG_EINVAL, where, "%u samples are not in 1 .. %u", params->samples,
					   GG_MAX_SAMPLES);
	return gg_algorithm_check(params, where);
}

/* GG_EINVAL: merge() does not take the input. */
static inline gg_status
gg_merge_check(const gg_dataset *data, const gg_merge_input *input, const gg_build_params *params,
			   const char *where)
{
	gg_status	status = gg_build_check(data, params, where);

	if (status.code != GG_OK)
		return status;
	if (input->length < 1 || input->length > GG_MAX_DEGREE)
		return gg_fail(GG_EINVAL, where, "list length %u is not in 1 .. %u", input->length,
					   GG_MAX_DEGREE);
	for (uint32_t row = 0; row < data->n; row++)
		for (uint32_t i = 0; i < input->length; i++)
		{
			uint32_t	id = input->lists[(size_t) row * input->length + i];

			if (id >= data->n && id != GG_NO_NODE)
				return gg_fail(GG_EINVAL, where, "list of row %u names row %u of %u", row, id,
							   data->n);
		}
	return status;
}

/* ---- inner product ------------------------------------------------------- */

/*
 * Rows that are compared with all, the longest: they are among the best of many rows, and near few
 * of them.  16,000 rows in 100 clusters, one of 100 ten times as long as the others: recall@10 at
 * itopk 64 with none, 32, 64, 128 is 0.850, 0.998, 0.9996 and 1.  With 256, where the logarithms of
 * the lengths are normal, lists fill with the same few rows, GNND ends before it has found others,
 * and recall is 0.984 instead of 0.995.
 */
#define GG_LONGEST_ROWS	128u

/*
 * The algorithm that makes the edges.  Of products one long row occludes all others: rows would
 * keep one edge of TSDG's, and GRNND's pools pass all on but the longest rows.
 */
static inline gg_algorithm
gg_algorithm_of(const gg_build_params *params, gg_metric metric)
{
	return metric == GG_METRIC_IP ? GG_ALGORITHM_CAGRA : params->algorithm;
}

/* ---- rank-based reordering ---------------------------------------------- */

/*
 * Reverse edges of a list, at most.  Under inner product few rows are in nearly all lists, and what
 * has them there is no answer: recall@10 at itopk 64, and distances, with as many reverse edges as
 * there are, 8 of 32, and none; 8,000 x 64, whose lengths are alike (normal), within a factor of
 * 10, and with normal logarithms:
 *	.9355 1,989		.9424 1,945		.9408 1,938
 *	.9772 1,862		.9925 1,604		.9940 1,551
 *	.9973 1,691		.9995 1,460		.9963 1,739
 * Without any, more than half of the rows of the latter two are linked once more to be reachable.
 */
static inline uint32_t
gg_reverse_edges(gg_metric metric, uint32_t degree)
{
	return metric == GG_METRIC_IP ? (degree + 3) / 4 : degree;
}

/* ---- TSDG ---------------------------------------------------------------- */

#define GG_TSDG_ALPHA	1.1f
#define GG_TSDG_LAMBDA0	9u

/* A search of large batches goes along edges of a lower lambda. */
#define GG_TSDG_LAMBDA_LARGE	5u

/* What stage 1 multiplies distances with: alpha, squared where distances are squares. */
static inline float
gg_tsdg_factor(const gg_build_params *params, gg_metric metric)
{
	float		alpha = params->alpha != 0 ? params->alpha : GG_TSDG_ALPHA;

	return metric == GG_METRIC_L1 ? alpha : alpha * alpha;
}

static inline uint32_t
gg_tsdg_lambda0(const gg_build_params *params)
{
	return params->lambda0 != 0 ? params->lambda0 : GG_TSDG_LAMBDA0;
}

/*
 * How many edges stage 1 keeps at most, and how many reverse edges are united with them.  With no
 * more than graph_degree the nearest ones crowd out those that stage 2 would have put first: degree
 * 16 of 96, 60,000 x 128, recall@10 at itopk 32 0.9785 instead of 0.9822; with four times as many
 * 0.9823.
 */
static inline uint32_t
gg_tsdg_limit(const gg_build_params *params)
{
	uint32_t	limit = 2 * params->graph_degree;

	if (limit > params->intermediate_graph_degree)
		limit = params->intermediate_graph_degree;
	return limit < GG_MAX_DEGREE / 2 ? limit : GG_MAX_DEGREE / 2;
}

/* ---- TSDG's search for small batches --------------------------------------- */

#define GG_GREEDY_STEPS	64u		/* at most */

/*
 * How many walks a query gets (t0), and how many pivots each: walk i has pivots [i x nseeds,
 * (i + 1) x nseeds), as far as there are.  Every pivot is of one walk.  npivots >= 1.
 */
static inline void
gg_greedy_plan(const gg_search_params *params, uint32_t npivots, uint32_t *walks, uint32_t *nseeds)
{
	uint32_t	wanted = params->walks != 0 ? params->walks : (params->itopk_size + 1) / 2;

	if (wanted > npivots)
		wanted = npivots;
	*nseeds = (npivots + wanted - 1) / wanted;
	/* there may be no pivots left for the last walks */
	*walks = (npivots + *nseeds - 1) / *nseeds;
}

#endif							/* GG_ALGORITHMS_H */
