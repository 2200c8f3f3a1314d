/*
 * serve_group.h
 *		One query for lists of many indexes: answers are those of the engine's searches whose
 *		caller waits, nothing beside them is written, and what is out of place is refused.  For
 *		all engines.
 */
#ifndef SERVE_GROUP_H
#define SERVE_GROUP_H

#include "serve_bulk.h"
#include "serve_refusals.h"

#define GROUP_SLOT 1u
#define GROUP_QUEUE 3u

/* Lists, as gg_serve_group has them. */
typedef struct group_lists
{
	gg_index  **indexes;
	bool	   *measured;
	uint32_t	count;
} group_lists;

/* `count` lists, of some indexes over and over, in another order each time. */
static inline group_lists
group_repeat(gg_index *const *indexes, const bool *measured, uint32_t distinct, uint32_t count)
{
	group_lists lists = {malloc(count * sizeof(gg_index *)), malloc(count * sizeof(bool)), count};

	for (uint32_t i = 0; i < count; i++)
	{
		const uint32_t of = (i + i / distinct) % distinct;

		lists.indexes[i] = indexes[of];
		lists.measured[i] = measured[of];
	}
	return lists;
}

static inline void
group_lists_free(group_lists *lists)
{
	free(lists->indexes);
	free(lists->measured);
}

/* What the engine says of each list when it is asked by itself: count x params->k keys. */
static inline uint64_t *
group_truth(const gg_engine *engine, const group_lists *lists, const gg_search_params *params,
			const float *query)
{
	const uint32_t k = params->k;
	uint64_t   *truth = malloc((size_t) lists->count * k * 8);

	for (uint32_t i = 0; i < lists->count; i++)
	{
		uint64_t   *keys = truth + (size_t) i * k;
		uint32_t	same = 0;

		while (lists->indexes[same] != lists->indexes[i] ||
			   lists->measured[same] != lists->measured[i])
			same++;
		if (lists->indexes[i] == NULL)
			memset(keys, 0xFF, k * 8);
		else if (same < i)
			memcpy(keys, truth + (size_t) same * k, k * 8);
		else if (lists->measured[i])
			CHECK_OK(engine->index_exact(lists->indexes[i], k, NULL, query, 1, NULL, keys),
					 "index_exact");
		else
			CHECK_OK(engine->index_search(lists->indexes[i], params, query, 1, NULL, keys),
					 "index_search");
	}
	return truth;
}

static inline gg_status
group_submit(bulk_region *r, uint32_t queue, uint32_t slot, const group_lists *lists,
			 const gg_request *request)
{
	const gg_serve_group group = {
		.request = request, .slot = slot, .ticket = BULK_TICKET, .count = lists->count,
		.indexes = lists->indexes, .measured = lists->measured
	};

	return r->engine->serve_group(r->server, queue, &group);
}

/*
 * least: share of the nodes of all lists that must be the same.  Distances may differ in the last
 * bits where blocks of more warps add up a query's length.
 */
static inline void
group_answers(const gg_engine *engine, const group_lists *lists, uint32_t dim, const float *query,
			  const gg_search_params *params, double least)
{
	const size_t nkeys = (size_t) lists->count * params->k;
	gg_request	request = request_for(0, false, 1, dim, params);
	uint64_t   *truth = group_truth(engine, lists, params, query);
	size_t		same = 0;
	size_t		far = 0;
	bulk_region r;

	request.nsegments = 1;
	request.queries = BULK_SLOT;
	request.keys = BULK_SLOT + ((size_t) dim * 4 + 63) / 64 * 64;
	if (!bulk_open(&r, engine, request.keys - BULK_SLOT + nkeys * 8))
		return;
	{
		const size_t written[3][2] = {
			{GROUP_SLOT * r.layout.slot_bytes + r.layout.done, 4},
			{request.queries, (size_t) dim * 4},
			{request.keys, nkeys * 8}
		};
		const uint64_t *found = (const uint64_t *) (r.memory + request.keys);

		memcpy(r.memory + request.queries, query, (size_t) dim * 4);
		CHECK_OK(group_submit(&r, GROUP_QUEUE, GROUP_SLOT, lists, &request), "serve_group");
		bulk_wait(&r, GROUP_QUEUE, GROUP_SLOT, 0, BULK_TICKET);
		for (size_t i = 0; i < nkeys; i++)
		{
			if (key_node(found[i]) != key_node(truth[i]))
				continue;
			same++;
			far += found[i] != truth[i] &&
				!(fabsf(key_distance(found[i]) - key_distance(truth[i])) <=
				  1e-5f * (1 + fabsf(key_distance(truth[i]))));
		}
		CHECK(same >= least * nkeys && far == 0,
			  "%u lists, dim %u, k %u, itopk %u, mode %d: %zu of %zu nodes are the same, "
			  "%zu distances differ", lists->count, dim, params->k, params->itopk_size,
			  (int) params->mode, same, nkeys, far);
		CHECK(bulk_stray(&r, written, 3) == 0, "nothing else is written");
	}
	bulk_close(&r);
	free(truth);
}

/* What call number i of group_refusals() has wrong; false: there are no more. */
static inline bool
group_spoil(int i, size_t region, bulk_call *call, group_lists *lists)
{
	gg_request *request = &call->request;

	switch (i)
	{
		case 0: lists->count = 0; break;
		case 1: lists->count = GG_SERVE_MAX_GROUP + 1; break;
		case 2: call->slot = 2; break;
		case 3: call->queue = GG_SERVE_QUEUES; break;
		case 4: request->count = 2; break;
		case 5: request->dim = 15; break;
		case 6: request->dim = 0; break;
		case 7: request->nsegments = 2; break;
		case 8: request->lists = 0; break;
		case 9: request->delta = true; break;
		case 10: request->measured = 1, request->matches = 4096; break;
		case 11: request->after = 1; break;
		case 12: request->params.k = 5; break;	/* of a list of 4 */
		case 13: request->params.k = 0; break;
		case 14: request->queries = region; break;
		case 15: request->queries = 4100; break;
		case 16: request->keys = region - 16; break;	/* two lists of two take 32 bytes */
		case 17: request->keys = 4356; break;
		case 18: request->keys = UINT64_MAX / 64 * 64; break;
		case 19: lists->indexes[1] = NULL, request->keys = region; break;
		default: return false;
	}
	return true;
}

/* What is wrong with one index of several refuses all. */
static inline void
group_refuse_member(bulk_region *r, const group_lists *good, gg_index *index, bool measured,
					const gg_request *request, const char *what)
{
	gg_index   *indexes[2] = {good->indexes[0], index};
	bool		how[2] = {false, measured};
	const group_lists lists = {indexes, how, 2};

	CHECK(group_submit(r, 0, 0, &lists, request).code == GG_EINVAL, "%s", what);
}

static inline void
group_refusals(const gg_engine *engine)
{
	const gg_search_params params = {.k = 2,.itopk_size = 4};
	bulk_call	good = {.request = request_for(0, false, 1, 16, &params)};
	const size_t written[1][2] = {{0, 0}};
	gg_index   *graph = refusals_index(engine, 4, 16);
	gg_index   *rows = refusals_index(engine, 0, 16);
	gg_index   *wide = refusals_index(engine, 4, 17);
	gg_index   *indexes[2] = {graph, graph};
	bool		measured[2] = {false, true};
	const group_lists lists = {indexes, measured, 2};
	bulk_region r;

	good.request.nsegments = 1;
	good.request.queries = 4096;
	good.request.keys = 4352;
	CHECK_OK(engine->index_finish(graph, 5, NULL), "index_finish");
	CHECK_OK(engine->index_finish(wide, 5, NULL), "index_finish");
	if (!bulk_open(&r, engine, 4096))
		return;
	group_refuse_member(&r, &lists, rows, true, &good.request, "not finished");
	CHECK_OK(engine->index_finish(rows, 1, NULL), "index_finish");
	group_refuse_member(&r, &lists, rows, false, &good.request, "no graph");
	group_refuse_member(&r, &lists, wide, false, &good.request, "other dimensions");
	for (int i = 0;; i++)
	{
		gg_index   *bad_indexes[2] = {graph, graph};
		group_lists bad_lists = {bad_indexes, measured, 2};
		bulk_call	bad = good;

		if (!group_spoil(i, r.bytes, &bad, &bad_lists))
			break;
		CHECK(group_submit(&r, bad.queue, bad.slot, &bad_lists, &bad.request).code == GG_EINVAL,
			  "group %d", i);
	}
	CHECK(bulk_stray(&r, written, 1) == 0, "refused groups write nothing");
	memset(r.memory + good.request.queries, 0, 64);
	CHECK_OK(group_submit(&r, 0, 0, &lists, &good.request), "a good one");
	bulk_wait(&r, 0, 0, 0, BULK_TICKET);
	bulk_close(&r);
	engine->index_close(graph);
	engine->index_close(rows);
	engine->index_close(wide);
}

#endif							/* SERVE_GROUP_H */
