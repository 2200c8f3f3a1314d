/*
 * request.h
 *		Rules of gg_request: which lists it is for, and what is out of range.  For both sides of
 *		engine.h, in C and C++.
 */
#ifndef GG_REQUEST_H
#define GG_REQUEST_H

#include "engine/engine.h"

/* How the answer for a list is found. */
typedef enum gg_way
{
	GG_WAY_WALK,				/* by a walk of the segment's graph */
	GG_WAY_MEASURE,				/* by measuring all rows, for no more keys than a walk may have */
	GG_WAY_DEEP					/* by measuring all rows, for any k, any `after` and any filter */
} gg_way;

/* Does the request ask for the list? */
static inline bool
gg_request_asks(const gg_request *request, uint32_t list)
{
	return list < request->nsegments ? (request->lists >> list & 1) != 0 :
		list == request->nsegments && request->delta;
}

/* How many lists come before this one in the answer. */
static inline uint32_t
gg_request_before(const gg_request *request, uint32_t list)
{
	return (uint32_t) __builtin_popcount(list < 32 ? request->lists & (((uint32_t) 1 << list) - 1) :
										 request->lists);
}

/* How many lists the request asks for. */
static inline uint32_t
gg_request_lists(const gg_request *request)
{
	return gg_request_before(request, 32) + request->delta;
}

/* Does the request ask for what only deep lists have? */
static inline bool
gg_request_wants_deep(const gg_request *request)
{
	return request->filter != 0 || request->after != 0 || request->last != 0 ||
		request->params.k > GG_MAX_ITOPK;
}

/* Are lists whose rows are all measured deep?  If so, the segments' and the delta's alike. */
static inline bool
gg_request_is_deep(const gg_request *request)
{
	return request->matches != 0;
}

static inline gg_way
gg_request_way(const gg_request *request, uint32_t list)
{
	if (list < request->nsegments && (request->measured >> list & 1) == 0)
		return GG_WAY_WALK;
	return gg_request_is_deep(request) ? GG_WAY_DEEP : GG_WAY_MEASURE;
}

/* Where in the region the request's answer for a list begins. */
static inline uint64_t
gg_request_keys_at(const gg_request *request, uint32_t list)
{
	return request->keys + sizeof(uint64_t) * gg_request_before(request, list) * request->count *
		request->params.k;
}

/* Bytes from a's answer for a list to b's.  Most requests ask for the same lists, k and count. */
static inline uint64_t
gg_request_keys_apart(const gg_request *a, const gg_request *b, uint32_t list)
{
	if (a->lists == b->lists && a->params.k == b->params.k && a->count == b->count)
		return b->keys - a->keys;
	return gg_request_keys_at(b, list) - gg_request_keys_at(a, list);
}

/* Are walks by these parameters alike, but for k? */
static inline bool
gg_same_walk(const gg_search_params *a, const gg_search_params *b)
{
	return a->itopk_size == b->itopk_size && a->search_width == b->search_width &&
		a->mode == b->mode && a->walks == b->walks && a->delta == b->delta &&
		a->rerank == b->rerank;
}

/*
 * Do both ask for the same lists, wherever queries and answers lie?  Requests have padding, so they
 * are not compared as memory.
 */
static inline bool
gg_same_request(const gg_request *a, const gg_request *b)
{
	return a->nsegments == b->nsegments && a->lists == b->lists && a->measured == b->measured &&
		a->delta == b->delta && a->count == b->count && a->dim == b->dim &&
		a->params.k == b->params.k && gg_same_walk(&a->params, &b->params) &&
		a->after == b->after && a->last == b->last;
}

/*
 * May two requests for a list share a batch?  If the list is deep, they may differ in k, in the key
 * to go on from, and in the filter.  apart: bytes from a's slot to b's.  Their queries must lie as
 * far apart, and so must their answers, unless the list is deep.
 */
static inline bool
gg_request_joins(const gg_request *a, const gg_request *b, uint32_t list, uint64_t apart)
{
	const gg_search_params *p = &a->params;
	const gg_search_params *q = &b->params;
	const gg_way way = gg_request_way(a, list);

	if (gg_request_way(b, list) != way || a->count != 1 || b->count != 1 || a->dim != b->dim ||
		b->queries - a->queries != apart)
		return false;
	if (way == GG_WAY_DEEP)
		return true;
	if (p->k != q->k || gg_request_keys_apart(a, b, list) != apart)
		return false;
	return way == GG_WAY_MEASURE || gg_same_walk(p, q);
}

/*
 * How many nodes of a walk by codes are measured by row.  The defaults lose nothing against
 * more.  Errors of codes are larger where there are few dimensions, and where rows lie far from the
 * origin, which the defaults do not know.  Figures are in test/bench/RESULTS.md.
 */
static inline uint32_t
gg_rerank_size(const gg_search_params *params, gg_codes codes, uint32_t dim)
{
	uint32_t	size = params->rerank;

	if (size == 0 && codes == GG_CODES_INT8)
		size = params->k + params->k / 10 + 5;
	else if (size == 0)
		size = params->k + params->k / 2 + (dim < 256 ? 32 : 16);
	if (size < params->k)
		size = params->k;
	return size < params->itopk_size ? size : params->itopk_size;
}

/* GG_EINVAL for parameters of a search that are out of range.  walks: it is, or may be, a walk. */
static inline gg_status
gg_check_params(const char *where, const gg_search_params *params, bool walks)
{
	if (params->k < 1 || params->k > (walks ? GG_MAX_ITOPK : GG_MAX_DEEP) ||
		(walks && (params->k > params->itopk_size || params->itopk_size > GG_MAX_ITOPK)) ||
		!gg_search_mode_known(params->mode) || !(params->delta >= 0))
		return gg_fail(GG_EINVAL, where,
					   "k %u with itopk_size %u, mode %d and delta %g is out of range", params->k,
					   params->itopk_size, (int) params->mode, (double) params->delta);
	return gg_ok();
}

/* GG_EINVAL for a request that is out of range, wherever its queries and answers are. */
static inline gg_status
gg_check_request(const char *where, const gg_request *request)
{
	const uint32_t segments = request->nsegments < 32 ?
		((uint32_t) 1 << request->nsegments) - 1 : 0xFFFFFFFFu;
	const bool	walks = (request->lists & ~request->measured) != 0;

	if (request->nsegments > GG_SERVE_MAX_LISTS - 1 || (request->lists & ~segments) != 0 ||
		gg_request_lists(request) == 0)
		return gg_fail(GG_EINVAL, where, "lists %x of %u segments are out of range",
					   request->lists, request->nsegments);
	if (request->count < 1 || request->count > GG_SERVE_MAX_BULK || request->dim < 1 ||
		request->dim > GG_MAX_DIM)
		return gg_fail(GG_EINVAL, where, "%u queries of %u dimensions are out of range",
					   request->count, request->dim);
	if (gg_request_wants_deep(request) && !gg_request_is_deep(request))
		return gg_fail(GG_EINVAL, where, "a list of %u that is not deep", request->params.k);
	if (gg_request_is_deep(request) && (walks || (request->count > 1 && request->after != 0)))
		return gg_fail(GG_EINVAL, where,
					   "a deep list of %u by a walk, or of %u queries behind a key",
					   request->params.k, request->count);
	return gg_check_params(where, &request->params, walks);
}

#endif							/* GG_REQUEST_H */
