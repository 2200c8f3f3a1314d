/*
 * row_view.h
 *		The rows of one node's list at hand as float32, and their distances term by term.
 *
 * Rows that tiles would take as they are (gg_rows) are not copied; others are, by each thread into
 * memory of its own.
 */
#ifndef GG_ROW_VIEW_H
#define GG_ROW_VIEW_H

#include "engine/cpu/common/tile.h"

typedef struct gg_row_view
{
	gg_rows		rows;
	float	  **copies;			/* places x rows.dim elements a thread, or NULL */
	uint32_t	places;
	int			threads;
} gg_row_view;

/* Make a view of `places` rows of data at a time.  gg_row_view_free() is due after errors, too. */
extern gg_status gg_row_view_create(gg_row_view *view, const gg_dataset *data, uint32_t places,
									gg_pool *pool);
extern void gg_row_view_free(gg_row_view *view);
/* Its peak memory. */
extern uint64_t gg_row_view_bytes(const gg_dataset *data, uint32_t places, int threads);

/* A row as float32.  place: where among the thread's copies it goes, if it has to be copied. */
static inline const float *
gg_row_view_at(const gg_row_view *view, int thread, uint32_t place, uint32_t row)
{
	uint32_t	dim = view->rows.dim;
	float	   *copy;

	if (!view->copies)
		return (const float *) view->rows.data->rows + (size_t) row * dim;
	copy = view->copies[thread] + (size_t) place * dim;
	gg_rows_load(&view->rows, row, 0, dim, copy);
	return copy;
}

static inline float
gg_row_view_distance(const gg_row_view *view, const float *a, const float *b)
{
	return gg_tile_distance(view->rows.data->metric, a, b, view->rows.dim);
}

#endif							/* GG_ROW_VIEW_H */
