/*
 * tsdg.c
 *		Two-stage diversification of k-NN lists, with reverse edges.
 *
 * Wang, Wang, Zhao: "Graph-based Approximate NN Search: A Revisit", 2022, section 3.
 *
 * Contract.  L(A) is A's k-NN list, up to its first GG_NO_NODE; it holds no duplicates and not A.
 * d is the distance of knn_graph(): squared Euclidean, of the rows at unit length under cosine; or
 * L1.  f is alpha squared, and alpha itself under L1, so that alpha scales lengths.  Builds under
 * inner product do not diversify (gg_algorithm_of()).
 *
 *	(a) Stage 1.  F(A) is made by going through L(A) in order.  D is put into F(A) unless a B of
 *		F(A) occludes it: f d(A, B) < d(A, D) and f d(B, D) < d(A, D).  It ends with `limit` nodes
 *		(gg_tsdg_limit(): twice the degree).
 *	(b) U(A) is F(A) and the reverse edges, as (b) and (c) of optimize.c unite them with `limit` for
 *		degree, but up to 2 limit nodes.
 *	(c) Stage 2.  The occlusion factor lambda of D in U(A) is the number of B in U(A) with
 *		d(A, B) < d(A, D) and d(B, D) < d(A, D).  The list of A is the D with lambda <= lambda0 in
 *		the order (lambda, d(A, D), D), up to `degree`; GG_NO_NODE fills the rest.  A D whose lambda
 *		is GG_TSDG_LAMBDA_LARGE or more carries GG_EDGE_MARK.
 *
 * lambda itself is not stored.  The paper's searches go along edges of a lambda lower than a limit
 * [TSDG, section 5.4]: 5 for large batches, which pass over marked edges, and 10 for small ones,
 * which go along all edges: lambda0 is 9 by default.  Links that reachability needed (reach.h)
 * carry no mark.
 *
 * Measured on 2 CPU cores, 60,000 x 128 of intrinsic dimension 13, recall@10 at itopk 16 / 32 / 64:
 * degree 32 of 96, CAGRA 0.9856 / 0.9985 / 0.9999, alpha 1.1 0.9863 / 0.9980 / 0.9997 with 27.9
 * edges in the mean, 1.2 0.9873 / 0.9983 / 0.9998 with 30.7, lambda0 5 0.9848 / 0.9974 / 0.9997
 * with 25.9, and 1 to 2% fewer distances than CAGRA's.  At degree 16 of 96 CAGRA's is better,
 * 0.9337 / 0.9824 / 0.9974 against 0.9281 / 0.9822 / 0.9966.  Where intrinsic dimension is low
 * lists get shorter at the same recall: 20,000 x 64 of 8, alpha 1.1, 0.9996 at itopk 32 with 19.6
 * edges and 450 distances, CAGRA 0.9998 with 32 and 479.
 *
 * All is float32, f d too.  So d(A, B) = d(B, A) to the bit, and the result does not depend on
 * threads.  Another engine may round d in its own way; then pairs that are nearly ties may change.
 */
#include "engine/rules/algorithms.h"
#include "row_view.h"
#include "engine/cpu/graph/stages.h"

#include <stdlib.h>

typedef struct tsdg_state
{
	gg_row_view view;
	const uint32_t *knn;		/* n x k */
	uint32_t	n;
	uint32_t	k;
	uint32_t	degree;
	uint32_t	limit;
	float		factor;			/* f */
	uint32_t	lambda0;
	const uint32_t *order;		/* n: nodes in the order to take them, or NULL */
	uint32_t   *forward;		/* limit x n: F(A)[i] at i * n + A, GG_NO_NODE behind the last */
	uint32_t   *united;			/* n x 2 limit: U(A) */
	uint32_t   *graph;			/* n x degree */
} tsdg_state;

/* A node's list while it is looked at. */
typedef struct tsdg_list
{
	uint32_t	length;
	uint32_t	ids[GG_MAX_DEGREE];
	const float *rows[GG_MAX_DEGREE];
	float		distances[GG_MAX_DEGREE];	/* from the node */
} tsdg_list;

/* Load a node's list: ids up to GG_NO_NODE, at most `most`, with their rows and distances. */
static void
load_list(const tsdg_state *state, int thread, uint32_t node, const uint32_t *ids, uint32_t most,
		  tsdg_list *list)
{
	const float *own = gg_row_view_at(&state->view, thread, 0, node);

	list->length = 0;
	while (list->length < most && ids[list->length] != GG_NO_NODE)
	{
		uint32_t	i = list->length++;

		list->ids[i] = ids[i];
		list->rows[i] = gg_row_view_at(&state->view, thread, 1 + i, ids[i]);
		list->distances[i] = gg_row_view_distance(&state->view, own, list->rows[i]);
	}
}

/* (a) */
static void
relaxed_run(gg_worker *worker, void *arg, uint64_t at)
{
	tsdg_state *state = arg;
	tsdg_list	list;
	uint32_t	kept[GG_MAX_DEGREE];	/* ranks in the list */
	uint32_t	node = state->order ? state->order[at] : (uint32_t) at;
	uint32_t	nkept = 0;

	load_list(state, worker->id, node, state->knn + (size_t) node * state->k, state->k, &list);
	for (uint32_t r = 0; r < list.length && nkept < state->limit; r++)
	{
		float		far = list.distances[r];
		bool		occluded = false;

		/* a long list of long rows takes more than 100 ms */
		if (gg_worker_stopping(worker))
			return;
		for (uint32_t i = 0; i < nkept && !occluded; i++)
			occluded = state->factor * list.distances[kept[i]] < far &&
				state->factor * gg_row_view_distance(&state->view, list.rows[kept[i]],
												 list.rows[r]) < far;
		if (!occluded)
			kept[nkept++] = r;
	}
	for (uint32_t i = 0; i < state->limit; i++)
		state->forward[(size_t) i * state->n + node] = i < nkept ? list.ids[kept[i]] :
			GG_NO_NODE;
	gg_worker_progress(worker, 1);
}

/* Sort a list by (distance, id).  It is in order by halves, and short. */
static void
sort_list(tsdg_list *list)
{
	for (uint32_t i = 1; i < list->length; i++)
	{
		uint32_t	id = list->ids[i];
		const float *row = list->rows[i];
		float		distance = list->distances[i];
		uint32_t	j = i;

		for (; j > 0 && (list->distances[j - 1] > distance ||
						 (list->distances[j - 1] == distance && list->ids[j - 1] > id)); j--)
		{
			list->ids[j] = list->ids[j - 1];
			list->rows[j] = list->rows[j - 1];
			list->distances[j] = list->distances[j - 1];
		}
		list->ids[j] = id;
		list->rows[j] = row;
		list->distances[j] = distance;
	}
}

/* lambda of entry i of a sorted list, or lambda0 + 1 where it is larger than lambda0. */
static uint32_t
occlusion_factor(const tsdg_state *state, const tsdg_list *list, uint32_t i)
{
	uint32_t	lambda = 0;

	for (uint32_t b = 0; b < i && lambda <= state->lambda0 &&
		 list->distances[b] < list->distances[i]; b++)
		lambda += gg_row_view_distance(&state->view, list->rows[b], list->rows[i]) <
			list->distances[i];
	return lambda;
}

/* (c) */
static void
soft_run(gg_worker *worker, void *arg, uint64_t at)
{
	tsdg_state *state = arg;
	tsdg_list	list;
	uint32_t	edges[GG_MAX_DEGREE];	/* positions in the list, by (lambda, position) */
	uint32_t	lambdas[GG_MAX_DEGREE];
	uint32_t	node = state->order ? state->order[at] : (uint32_t) at;
	uint32_t   *out = state->graph + (size_t) node * state->degree;
	uint32_t	count = 0;

	load_list(state, worker->id, node, state->united + (size_t) node * 2 * state->limit,
			  2 * state->limit, &list);
	sort_list(&list);
	for (uint32_t i = 0; i < list.length; i++)
	{
		uint32_t	lambda = occlusion_factor(state, &list, i);
		uint32_t	j = count;

		if (gg_worker_stopping(worker))
			return;
		if (lambda > state->lambda0)
			continue;
		for (; j > 0 && lambdas[j - 1] > lambda; j--)
		{
			edges[j] = edges[j - 1];
			lambdas[j] = lambdas[j - 1];
		}
		edges[j] = i;
		lambdas[j] = lambda;
		count++;
	}
	for (uint32_t i = 0; i < state->degree; i++)
		out[i] = i >= count ? GG_NO_NODE : list.ids[edges[i]] |
			(lambdas[i] >= GG_TSDG_LAMBDA_LARGE ? GG_EDGE_MARK : 0);
}

/* Rows that are looked at together: a node and its list. */
static uint32_t
rows_at_once(const gg_build_params *params)
{
	uint32_t	united = 2 * gg_tsdg_limit(params);

	return 1 + (params->intermediate_graph_degree > united ? params->intermediate_graph_degree :
				united);
}

uint64_t
gg_cpu_diversify_bytes(const gg_dataset *data, const gg_build_params *params, int threads)
{
	/* F, U */
	return (uint64_t) data->n * sizeof(uint32_t) * 3 * gg_tsdg_limit(params) +
		gg_cpu_unite_bytes(data->n, threads) +
		gg_row_view_bytes(data, rows_at_once(params), threads);
}

gg_status
gg_cpu_diversify_run(gg_pool *pool, const gg_dataset *data, const gg_build_params *params,
					 const uint32_t *knn, const uint32_t *order, uint32_t *graph)
{
	uint32_t	n = data->n,
				limit = gg_tsdg_limit(params);
	tsdg_state	state = {.knn = knn, .n = n, .k = params->intermediate_graph_degree,
		.degree = params->graph_degree, .limit = limit,
		.factor = gg_tsdg_factor(params, data->metric), .lambda0 = gg_tsdg_lambda0(params),
		.order = order, .graph = graph};
	gg_status	status;

	if (n == 0)
		return gg_ok();
	gg_pool_phase(pool, GG_PHASE_OPTIMIZE, n);
	status = gg_row_view_create(&state.view, data, rows_at_once(params), pool);
	if (status.code == GG_OK)
	{
		state.forward = malloc(sizeof(uint32_t) * n * (size_t) limit);
		state.united = malloc(sizeof(uint32_t) * n * (size_t) limit * 2);
		if (!state.forward || !state.united)
			status = gg_fail(GG_ENOMEM, __func__,
							 "out of memory for the edges of %u nodes, %u each", n, limit);
	}
	if (status.code == GG_OK)
		status = gg_pool_each(pool, relaxed_run, &state, n, 64);
	if (status.code == GG_OK)
		status = gg_cpu_unite_run(pool, state.forward, n, limit, limit, 2 * limit, state.united);
	if (status.code == GG_OK)
		status = gg_pool_each(pool, soft_run, &state, n, 64);
	free(state.forward);
	free(state.united);
	gg_row_view_free(&state.view);
	return status;
}
