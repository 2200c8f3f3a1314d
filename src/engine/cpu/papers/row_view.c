/*
 * row_view.c
 *		The rows of one node's list at hand as float32, and their distances term by term.
 */
#include "row_view.h"

#include <stdlib.h>
#include <string.h>

gg_status
gg_row_view_create(gg_row_view *view, const gg_dataset *data, uint32_t places, gg_pool *pool)
{
	gg_status	status;

	memset(view, 0, sizeof(*view));
	view->places = places;
	view->threads = gg_pool_threads(pool);
	status = gg_rows_prepare(&view->rows, data, pool);
	if (status.code != GG_OK ||
		(data->element == GG_ELEMENT_F32 && !view->rows.scale))
		return status;
	view->copies = calloc((size_t) view->threads, sizeof(*view->copies));
	for (int t = 0; view->copies && t < view->threads; t++)
	{
		view->copies[t] = malloc(sizeof(float) * places * (size_t) view->rows.dim);
		if (!view->copies[t])
			break;
	}
	if (!view->copies || !view->copies[view->threads - 1])
		status = gg_fail(GG_ENOMEM, "gg_row_view_create",
						 "out of memory for %u rows of dimension %u", places, view->rows.dim);
	return status;
}

void
gg_row_view_free(gg_row_view *view)
{
	for (int t = 0; view->copies && t < view->threads; t++)
		free(view->copies[t]);
	free(view->copies);
	gg_rows_free(&view->rows);
}

uint64_t
gg_row_view_bytes(const gg_dataset *data, uint32_t places, int threads)
{
	uint64_t	norms = sizeof(float) * ((uint64_t) data->n + 1);

	return norms + (uint64_t) threads * sizeof(float) * places * (uint64_t) data->dim;
}
