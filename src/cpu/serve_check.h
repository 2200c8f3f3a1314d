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

#include "../engine.h"

#include <string.h>

/* What a slot, and the region, has room for. */
typedef struct gg_serve_room
{
	size_t		query;			/* elements */
	size_t		answers;		/* (node, distance), of all lists */
	size_t		region;			/* bytes */
} gg_serve_room;

/* What of an index decides whether a batch may name it. */
typedef struct gg_serve_target
{
	bool		finished;
	uint32_t	n;
	uint32_t	dim;
	uint32_t	npivots;		/* 0: no graph */
	uint32_t	rows;			/* with heads; 0: none are filtered */
	uint32_t	words;			/* of each row */
} gg_serve_target;

/* Bytes from offset to what follows it in a slot; none where another part begins there too. */
static inline size_t
gg_serve_room_after(const gg_serve_layout *layout, size_t offset)
{
	const size_t ends[] = {layout->query, layout->nodes, layout->distances, layout->done};
	size_t		end = layout->slot_bytes;
	int			here = 0;

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
	{
		if (ends[i] > offset && ends[i] < end)
			end = ends[i];
		here += ends[i] == offset;
	}
	return here == 1 && end > offset ? end - offset : 0;
}

/* GG_EINVAL, or GG_OK and *room.  where: the function that asks, as in gg_status. */
static inline gg_status
gg_serve_check_layout(const char *where, const void *region, size_t region_bytes,
					  const gg_serve_layout *layout, gg_serve_room *room)
{
	const char *begin = (const char *) region;
	const size_t offsets = layout->query | layout->nodes | layout->distances | layout->done;
	const size_t nodes = gg_serve_room_after(layout, layout->nodes) / 4;
	const size_t distances = gg_serve_room_after(layout, layout->distances) / 4;

	if (region == NULL || layout->slots < begin || layout->nslots < 1 || layout->slot_bytes == 0 ||
		(size_t) (layout->slots - begin) > region_bytes ||
		layout->nslots > (region_bytes - (size_t) (layout->slots - begin)) / layout->slot_bytes)
		return gg_fail(GG_EINVAL, where, "%u slots of %zu bytes do not lie in the region of %zu",
					   layout->nslots, layout->slot_bytes, region_bytes);
	room->query = gg_serve_room_after(layout, layout->query) / 4;
	room->answers = nodes < distances ? nodes : distances;
	room->region = region_bytes;
	if (offsets % 64 != 0 || layout->slot_bytes % 4 != 0 || (uintptr_t) layout->slots % 4 != 0 ||
		room->query < 1 || room->answers < 1 ||
		gg_serve_room_after(layout, layout->done) < GG_SERVE_MAX_LISTS * 4)
		return gg_fail(GG_EINVAL, where, "the parts of a slot are out of place");
	return gg_ok();
}

/* A batch is refused as a whole, before anything of it is written. */
static inline gg_status
gg_serve_check_batch(const char *where, const gg_serve_layout *layout, const gg_serve_room *room,
					 const gg_serve_target *target, uint32_t queue, const gg_serve_batch *batch)
{
	if (queue >= GG_SERVE_QUEUES || batch->count < 1 || batch->count > GG_SERVE_MAX_BATCH ||
		batch->list >= GG_SERVE_MAX_LISTS)
		return gg_fail(GG_EINVAL, where, "%u queries for list %u on queue %u are out of range",
					   batch->count, batch->list, queue);
	if (batch->k < 1 || batch->k > GG_MAX_ITOPK || !gg_search_mode_known(batch->mode) ||
		(!batch->exact && (batch->k > batch->itopk_size || batch->itopk_size > GG_MAX_ITOPK)))
		return gg_fail(GG_EINVAL, where, "k %u with itopk_size %u and mode %d is out of range",
					   batch->k, batch->itopk_size, (int) batch->mode);
	if (!target->finished)
		return gg_fail(GG_EINVAL, where, "the index is not finished");
	if (!batch->exact && target->n > 0 && target->npivots == 0)
		return gg_fail(GG_EINVAL, where, "the index has no graph");
	if (target->dim > room->query || (size_t) (batch->list + 1) * batch->k > room->answers)
		return gg_fail(GG_EINVAL, where,
					   "%u dimensions and %u answers of list %u do not fit a slot of %zu and %zu",
					   target->dim, batch->k, batch->list, room->query, room->answers);
	for (uint32_t i = 0; i < batch->count; i++)
		if (batch->slots[i] >= layout->nslots)
			return gg_fail(GG_EINVAL, where, "slot %u of %u", batch->slots[i], layout->nslots);
	return gg_ok();
}

/* Do count elements of so many bytes lie in the region, at an offset that is aligned? */
static inline bool
gg_serve_is_inside(const gg_serve_room *room, uint64_t offset, uint64_t count, uint64_t bytes,
				   uint32_t align)
{
	return offset % align == 0 && offset <= room->region &&
		count <= (room->region - offset) / bytes;
}

/* The same for many queries of one caller.  None of the products overflows. */
static inline gg_status
gg_serve_check_bulk(const char *where, const gg_serve_layout *layout, const gg_serve_room *room,
					const gg_serve_target *target, uint32_t queue, const gg_serve_bulk *bulk)
{
	const uint64_t answers = (uint64_t) bulk->count * bulk->k;

	if (queue >= GG_SERVE_QUEUES || bulk->count < 1 || bulk->count > GG_SERVE_MAX_BULK ||
		bulk->list >= GG_SERVE_MAX_LISTS || bulk->slot >= layout->nslots)
		return gg_fail(GG_EINVAL, where,
					   "%u queries of slot %u for list %u on queue %u are out of range",
					   bulk->count, bulk->slot, bulk->list, queue);
	if (bulk->k < 1 || bulk->k > GG_MAX_ITOPK || !gg_search_mode_known(bulk->mode) ||
		(!bulk->exact && (bulk->k > bulk->itopk_size || bulk->itopk_size > GG_MAX_ITOPK)))
		return gg_fail(GG_EINVAL, where, "k %u with itopk_size %u and mode %d is out of range",
					   bulk->k, bulk->itopk_size, (int) bulk->mode);
	if (!target->finished)
		return gg_fail(GG_EINVAL, where, "the index is not finished");
	if (!bulk->exact && target->n > 0 && target->npivots == 0)
		return gg_fail(GG_EINVAL, where, "the index has no graph");
	if (bulk->dim != target->dim)
		return gg_fail(GG_EINVAL, where, "queries of %u dimensions, rows of %u", bulk->dim,
					   target->dim);
	if (!gg_serve_is_inside(room, bulk->queries, (uint64_t) bulk->count * bulk->dim, 4, 64) ||
		!gg_serve_is_inside(room, bulk->nodes, answers, 4, 64) ||
		!gg_serve_is_inside(room, bulk->distances, answers, 4, 64))
		return gg_fail(GG_EINVAL, where, "queries or answers are not in the region of %zu bytes",
					   room->region);
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

/* The same for one query that wants more, or is filtered. */
static inline gg_status
gg_serve_check_deep(const char *where, const gg_serve_layout *layout, const gg_serve_room *room,
					const gg_serve_target *target, uint32_t queue, const gg_serve_deep *deep)
{
	if (queue >= GG_SERVE_QUEUES || deep->list >= GG_SERVE_MAX_LISTS ||
		deep->slot >= layout->nslots || deep->k < 1 || deep->k > GG_MAX_DEEP)
		return gg_fail(GG_EINVAL, where,
					   "k %u of slot %u for list %u on queue %u is out of range", deep->k,
					   deep->slot, deep->list, queue);
	if (!target->finished)
		return gg_fail(GG_EINVAL, where, "the index is not finished");
	if (target->dim > room->query)
		return gg_fail(GG_EINVAL, where, "%u dimensions do not fit a slot of %zu", target->dim,
					   room->query);
	if (!gg_serve_is_inside(room, deep->keys, deep->k, 8, 64) ||
		!gg_serve_is_inside(room, deep->matches, 1, 8, 8))
		return gg_fail(GG_EINVAL, where, "the answer is not in the region of %zu bytes",
					   room->region);
	return deep->filter != NULL ? gg_serve_check_filter(where, target, deep->filter) : gg_ok();
}

/* The same for all requests of a call. */
static inline gg_status
gg_serve_check_deeps(const char *where, const gg_serve_layout *layout, const gg_serve_room *room,
					 const gg_serve_target *target, uint32_t queue, const gg_serve_deep *deeps,
					 uint32_t count)
{
	gg_status	status = gg_ok();

	if (count < 1 || count > GG_SERVE_MAX_DEEPS)
		return gg_fail(GG_EINVAL, where, "%u requests are not within 1 .. %u", count,
					   GG_SERVE_MAX_DEEPS);
	for (uint32_t i = 0; status.code == GG_OK && i < count; i++)
	{
		if (deeps[i].list != deeps[0].list)
			return gg_fail(GG_EINVAL, where, "requests of lists %u and %u", deeps[0].list,
						   deeps[i].list);
		status = gg_serve_check_deep(where, layout, room, target, queue, &deeps[i]);
	}
	return status;
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

/* How many of count requests, from the first one on, have its filter. */
static inline uint32_t
gg_serve_same_filter(const gg_serve_deep *deeps, uint32_t count)
{
	uint32_t	same = 1;

	while (same < count && gg_serve_is_same(deeps[0].filter, deeps[same].filter))
		same++;
	return same;
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
