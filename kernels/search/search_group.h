/*
 * search_group.h
 *		Walks of many indexes for one query.
 */
#ifndef GG_SEARCH_GROUP_H
#define GG_SEARCH_GROUP_H

#include "view.h"

/* An index, and where the k keys of its answer go. */
typedef struct search_list
{
	search_view view;
	uint64_t   *keys;
} search_list;

/* May one launch walk lists of both indexes, whose dimensions are the same? */
static inline bool
search_group_joins(const search_view *a, const search_view *b)
{
	return a->path == b->path && a->degree == b->degree && a->walk_pad == b->walk_pad &&
		a->walk_quads == b->walk_quads && a->code_bits == b->code_bits &&
		(a->rows == NULL) == (b->rows == NULL);
}

/*
 * Walk launch->nq lists that join, of which view is the first one's.  lists, and the one query in
 * launch->queries, are in device memory.
 */
extern cudaError_t search_group_launch(const search_view *view, const search_list *lists,
									   const search_launch *launch, const search_device *device,
									   uint32_t cluster, cudaStream_t stream);

/* Does a block have the shared memory for such a walk? */
extern bool search_group_takes(const search_view *view, const search_launch *launch,
							   const search_device *device);
extern cudaError_t search_group_ready(const search_view *view, const search_device *device);

#endif							/* GG_SEARCH_GROUP_H */
