/*
 * serve_check.h
 *		Checks of a server's slots, of each batch, and of what an index is made of, for both
 *		engines.
 *
 * A device follows these numbers unchecked into memory that all processes share.  And if the CPU
 * engine, playing a device, took what a device refuses, tests with it would prove nothing.  So the
 * rules are in one place, for serve.c here, and fill.cu, write.cu and serve.cu in kernels/.  C and
 * C++.
 */
#ifndef GG_SERVE_CHECK_H
#define GG_SERVE_CHECK_H

#include "engine/request.h"

#include <string.h>

/* What of an index decides whether a batch may name it. */
typedef struct gg_serve_target
{
	bool		finished;
	uint32_t	n;
	uint32_t	dim;
	uint32_t	npivots;		/* 0: no graph */
	uint32_t	rows;			/* rows with heads; 0: none are filtered */
	uint32_t	words;			/* filter words of each row */
	bool		no_rows;		/* GG_ROWS_NONE */
	bool		bounds;			/* codes have bounds: deep lists do without rows */
} gg_serve_target;

/* Check a server's layout: GG_EINVAL or GG_OK.  where: the function that asks, as in gg_status. */
static inline gg_status
gg_serve_check_layout(const char *where, const void *region, size_t region_bytes,
					  const gg_serve_layout *layout)
{
	const char *begin = (const char *) region;

	if (region == NULL || layout->slots < begin || layout->nslots < 1 || layout->slot_bytes == 0 ||
		(size_t) (layout->slots - begin) > region_bytes ||
		layout->nslots > (region_bytes - (size_t) (layout->slots - begin)) / layout->slot_bytes)
		return gg_fail(GG_EINVAL, where, "%u slots of %zu bytes do not lie in the region of %zu",
					   layout->nslots, layout->slot_bytes, region_bytes);
	if (layout->done % 64 != 0 || layout->slot_bytes % 4 != 0 ||
		(uintptr_t) layout->slots % 4 != 0 || layout->done > layout->slot_bytes ||
		layout->slot_bytes - layout->done < GG_SERVE_MAX_LISTS * 4)
		return gg_fail(GG_EINVAL, where, "the words of a slot are out of place");
	return gg_ok();
}

/* Does a condition name values, and words of a row, that are there? */
static inline bool
gg_serve_is_sound(const gg_filter *filter, const gg_condition *condition, uint32_t words)
{
	uint32_t	needed = 0;		/* words of a row from the condition's first one on */

	if (condition->column >= 16 || condition->first_value > filter->nvalues ||
		condition->nvalues > filter->nvalues - condition->first_value)
		return false;
	switch (condition->kind)
	{
		case GG_CONDITION_RANGE:
			if (condition->nvalues < 2)
				return false;
			needed = 1;
			break;
		case GG_CONDITION_IN:
			needed = 1;
			break;
		case GG_CONDITION_MASK:
			needed = GG_MASK_WORDS;
			break;
		case GG_CONDITION_NULL:
		case GG_CONDITION_NOT_NULL:
			return true;
		default:
			return false;
	}
	return words >= needed && condition->word <= words - needed;
}

static inline gg_status
gg_serve_check_filter(const char *where, const gg_serve_target *target, const gg_filter *filter)
{
	if (target->rows == 0 && target->n > 0)
		return gg_fail(GG_EINVAL, where, "the index has no row heads");
	if (filter->nconditions > GG_MAX_CONDITIONS || filter->nvalues > GG_MAX_FILTER_VALUES ||
		(filter->tids != NULL && filter->ntids > GG_MAX_FILTER_TIDS))
		return gg_fail(GG_EINVAL, where, "%u conditions, %u values and %u TIDs are out of range",
					   filter->nconditions, filter->nvalues, filter->ntids);
	for (uint32_t i = 0; i < filter->nconditions; i++)
		if (!gg_serve_is_sound(filter, &filter->conditions[i], target->words))
			return gg_fail(GG_EINVAL, where, "condition %u is out of range for rows of %u words", i,
						   target->words);
	return gg_ok();
}

/* Where the slots and the requests of a server are. */
typedef struct gg_serve_place
{
	char	   *region;
	size_t		region_bytes;
	gg_serve_layout layout;
} gg_serve_place;

/* Do count elements of so many bytes lie in the region, at an offset that is aligned? */
static inline bool
gg_serve_is_inside(const gg_serve_place *place, uint64_t offset, uint64_t count, uint64_t bytes,
				   uint32_t align)
{
	return offset % align == 0 && offset <= place->region_bytes &&
		count <= (place->region_bytes - offset) / bytes;
}

/* The filter of a request, NULL if it has none. */
static inline gg_filter *
gg_serve_filter(const gg_serve_place *place, const gg_request *request)
{
	return request->filter != 0 ? (gg_filter *) (place->region + request->filter) : NULL;
}

/* Have the filter of a request, which lies in the region, point to its TIDs. */
static inline gg_status
gg_serve_bind_filter(const char *where, const gg_serve_place *place, const gg_serve_target *target,
					 const gg_request *request)
{
	gg_filter  *filter = gg_serve_filter(place, request);

	filter->tids = request->tids != 0 ? (const uint64_t *) (place->region + request->tids) : NULL;
	if (filter->tids != NULL &&
		!gg_serve_is_inside(place, request->tids, filter->ntids, sizeof(uint64_t), 8))
		return gg_fail(GG_EINVAL, where, "%u TIDs are not in the region of %zu bytes",
					   filter->ntids, place->region_bytes);
	return gg_serve_check_filter(where, target, filter);
}

/* Check a request of a batch.  No product overflows: gg_check_request() has found it in range. */
static inline gg_status
gg_serve_check_request(const char *where, const gg_serve_place *place,
					   const gg_serve_target *target, uint32_t list, const gg_request *request)
{
	const gg_way way = gg_request_way(request, list);
	const uint64_t keys = (uint64_t) request->count * request->params.k;

	if (!gg_request_asks(request, list))
		return gg_fail(GG_EINVAL, where, "list %u is not asked for", list);
	if (way == GG_WAY_WALK && target->n > 0 && target->npivots == 0)
		return gg_fail(GG_EINVAL, where, "the index has no graph");
	if (target->no_rows && (way == GG_WAY_MEASURE || (way == GG_WAY_DEEP && !target->bounds)))
		return gg_fail(GG_EUNSUPPORTED, where, "rows are to be measured, and the index has none");
	if (target->no_rows && way == GG_WAY_DEEP && request->params.k > GG_BOUNDED_LIST)
		return gg_fail(GG_EUNSUPPORTED, where, "a list of %u bounds", request->params.k);
	if (request->dim != target->dim)
		return gg_fail(GG_EINVAL, where, "queries of %u dimensions, rows of %u", request->dim,
					   target->dim);
	if (!gg_serve_is_inside(place, request->queries, (uint64_t) request->count * request->dim, 4,
							64) ||
		!gg_serve_is_inside(place, request->keys, keys * gg_request_lists(request), 8, 8) ||
		(way == GG_WAY_DEEP &&
		 !gg_serve_is_inside(place, request->matches, gg_request_lists(request), 8, 8)) ||
		(request->filter != 0 &&
		 !gg_serve_is_inside(place, request->filter, 1, sizeof(gg_filter), 8)))
		return gg_fail(GG_EINVAL, where, "queries or answers are not in the region of %zu bytes",
					   place->region_bytes);
	return request->filter != 0 ? gg_serve_bind_filter(where, place, target, request) : gg_ok();
}

/*
 * Is a request sound that joins a checked one of its batch (gg_request_joins())?  There may be
 * 256, each from another process, so this looks at what joining says nothing about, and no more.
 * keys: where the request's answer begins.
 */
static inline bool
gg_serve_is_in_place(const gg_serve_place *place, uint32_t list, const gg_request *request,
					 uint64_t keys)
{
	return gg_request_asks(request, list) && !gg_request_wants_deep(request) &&
		gg_serve_is_inside(place, request->queries, request->dim, 4, 64) &&
		gg_serve_is_inside(place, keys, request->params.k, 8, 8);
}

/* A batch is refused as a whole, before anything of it is answered. */
static inline gg_status
gg_serve_check_batch(const char *where, const gg_serve_place *place, const gg_serve_target *target,
					 uint32_t queue, const gg_serve_batch *batch)
{
	uint64_t	keys;

	if (queue >= GG_SERVE_QUEUES || batch->count < 1 || batch->count > GG_SERVE_MAX_BATCH ||
		batch->list >= GG_SERVE_MAX_LISTS)
		return gg_fail(GG_EINVAL, where, "%u requests for list %u on queue %u are out of range",
					   batch->count, batch->list, queue);
	if (!target->finished)
		return gg_fail(GG_EINVAL, where, "the index is not finished");
	keys = gg_request_keys_at(batch->requests[0], batch->list);
	for (uint32_t i = 0; i < batch->count; i++)
	{
		const gg_request *request = batch->requests[i];
		const uint64_t apart = ((uint64_t) batch->slots[i] - batch->slots[0]) *
			place->layout.slot_bytes;

		if (batch->slots[i] >= place->layout.nslots)
			return gg_fail(GG_EINVAL, where, "slot %u of %u", batch->slots[i],
						   place->layout.nslots);
		if (i > 0 && !gg_request_joins(batch->requests[0], request, batch->list, apart))
			return gg_fail(GG_EINVAL, where, "requests 0 and %u are not for one batch", i);
		if (i == 0 || gg_request_way(request, batch->list) == GG_WAY_DEEP ||
			!gg_serve_is_in_place(place, batch->list, request, keys + apart))
		{
			gg_status	status = gg_check_request(where, request);

			if (status.code == GG_OK)
				status = gg_serve_check_request(where, place, target, batch->list, request);
			if (status.code != GG_OK)
				return status;
		}
	}
	if (batch->count > GG_SERVE_MAX_DEEPS &&
		gg_request_way(batch->requests[0], batch->list) == GG_WAY_DEEP)
		return gg_fail(GG_EINVAL, where, "%u deep requests are more than %u", batch->count,
					   GG_SERVE_MAX_DEEPS);
	return gg_ok();
}

/* Check a group as it was given, but for its indexes: gg_serve_check_member() looks at each. */
static inline gg_status
gg_serve_check_group(const char *where, const gg_serve_place *place, uint32_t queue,
					 const gg_serve_group *group)
{
	const gg_request *request = group->request;
	gg_status	status = gg_check_request(where, request);

	if (status.code != GG_OK)
		return status;
	if (queue >= GG_SERVE_QUEUES || group->count < 1 || group->count > GG_SERVE_MAX_GROUP ||
		group->slot >= place->layout.nslots)
		return gg_fail(GG_EINVAL, where, "%u lists on queue %u and slot %u are out of range",
					   group->count, queue, group->slot);
	if (request->nsegments != 1 || request->delta || request->count != 1 ||
		gg_request_is_deep(request))
		return gg_fail(GG_EINVAL, where, "the request of a group is for one list of one query");
	if (!gg_serve_is_inside(place, request->queries, request->dim, 4, 64) ||
		!gg_serve_is_inside(place, request->keys, (uint64_t) group->count * request->params.k, 8,
							8))
		return gg_fail(GG_EINVAL, where, "the query or answers are not in the region of %zu bytes",
					   place->region_bytes);
	return status;
}

/* Check an index of a group. */
static inline gg_status
gg_serve_check_member(const char *where, const gg_serve_target *target, const gg_request *request,
					  bool measured)
{
	if (!target->finished)
		return gg_fail(GG_EINVAL, where, "an index is not finished");
	if (!measured && target->n > 0 && target->npivots == 0)
		return gg_fail(GG_EINVAL, where, "an index has no graph");
	if (measured && target->no_rows)
		return gg_fail(GG_EUNSUPPORTED, where, "rows are to be measured, and an index has none");
	if (request->dim != target->dim)
		return gg_fail(GG_EINVAL, where, "a query of %u dimensions, rows of %u", request->dim,
					   target->dim);
	return gg_ok();
}

/* Whether two filters, or NULL, say the same.  They have been checked. */
static inline bool
gg_serve_is_same(const gg_filter *a, const gg_filter *b)
{
	if (a == NULL || b == NULL || a == b)
		return a == b;
	if (a->nconditions != b->nconditions || a->nvalues != b->nvalues ||
		(a->tids == NULL) != (b->tids == NULL) || (a->tids != NULL && a->ntids != b->ntids))
		return false;
	return memcmp(a->conditions, b->conditions, a->nconditions * sizeof(gg_condition)) == 0 &&
		memcmp(a->values, b->values, a->nvalues * sizeof(int64_t)) == 0 &&
		(a->tids == NULL || memcmp(a->tids, b->tids, a->ntids * sizeof(uint64_t)) == 0);
}

/* How many of a batch's requests, from `first` on and before `end`, have the first one's filter. */
static inline uint32_t
gg_serve_same_filter(const gg_serve_place *place, const gg_serve_batch *batch, uint32_t first,
					 uint32_t end)
{
	uint32_t	same = first + 1;

	while (same < end && gg_serve_is_same(gg_serve_filter(place, batch->requests[first]),
										  gg_serve_filter(place, batch->requests[same])))
		same++;
	return same - first;
}

/* What filters need of a shape; a part of index_create()'s checks. */
static inline gg_status
gg_serve_check_rows(const char *where, const gg_shape *shape)
{
	if (shape->words > GG_MAX_FILTER_WORDS || (shape->rows == 0 && shape->words > 0) ||
		(shape->rows == 0 && shape->offsets) ||
		(!shape->offsets && shape->rows != 0 && shape->rows != shape->capacity))
		return gg_fail(GG_EINVAL, where, "%u heads and %u words beside %u nodes %s offsets",
					   shape->rows, shape->words, shape->capacity,
					   shape->offsets ? "with" : "without");
	return gg_ok();
}

/* What codes need of a shape; a part of index_create()'s checks. */
static inline gg_status
gg_serve_check_codes(const char *where, const gg_shape *shape)
{
	if (shape->codes > GG_CODES_INT4 || shape->row_place > GG_ROWS_NONE ||
		(shape->codes == GG_CODES_NONE && shape->row_place != GG_ROWS_DEVICE) ||
		(shape->codes != GG_CODES_NONE && shape->degree == 0))
		return gg_fail(GG_EINVAL, where, "codes %d and rows in place %d with degree %u",
					   (int) shape->codes, (int) shape->row_place, shape->degree);
	return gg_ok();
}

/* An index that rows are taken from. */
typedef struct gg_serve_source
{
	const gg_shape *shape;
	bool		finished;
	uint32_t	n;				/* rows it was finished with */
} gg_serve_source;

/* index_take() of n rows from `first` on, into an index of this shape; finished: that index is. */
static inline gg_status
gg_serve_check_take(const char *where, const gg_shape *shape, bool finished,
					const gg_serve_source *source, uint32_t first, uint32_t n)
{
	const gg_shape *from = source->shape;

	if (finished || !source->finished)
		return gg_fail(GG_EINVAL, where, finished ? "the index is finished" :
					   "the index to take rows from is not finished");
	if (n > shape->capacity || first > source->n || n > source->n - first)
		return gg_fail(GG_EINVAL, where, "%u rows from %u on, of %u, into an index for %u", n,
					   first, source->n, shape->capacity);
	if (shape->degree > 0 || from->degree > 0 || shape->offsets || from->offsets)
		return gg_fail(GG_EINVAL, where, "an index has a graph or offsets");
	if (from->dim != shape->dim || from->element != shape->element ||
		from->metric != shape->metric)
		return gg_fail(GG_EINVAL, where,
					   "%u dimensions, element %d, metric %d into %u, element %d, metric %d",
					   from->dim, (int) from->element, (int) from->metric, shape->dim,
					   (int) shape->element, (int) shape->metric);
	if (from->words != shape->words || (from->rows > 0) != (shape->rows > 0))
		return gg_fail(GG_EINVAL, where, "%u heads of %u words into %u of %u", from->rows,
					   from->words, shape->rows, shape->words);
	return gg_ok();
}

#endif							/* GG_SERVE_CHECK_H */
