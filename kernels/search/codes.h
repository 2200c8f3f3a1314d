/*
 * codes.h
 *		Codes of rows (engine/rules/codes.h).
 */
#ifndef GG_SEARCH_CODES_H
#define GG_SEARCH_CODES_H

#include "view.h"

/* Rows to be coded: of the view's dimensions, type, metric, bits, weights. */
typedef struct code_rows
{
	const char *rows;			/* as the device sees them; elements are aligned, rows need not */
	size_t		row_stride;
	uint32_t	n;
	char	   *records;		/* view.walk_stride apart; zeros follow each record */
} code_rows;

extern cudaError_t search_codes_launch(const search_view *view, const code_rows *rows,
									   const search_device *device, cudaStream_t stream);

/*
 * Write pivots for products with queries in halves: the elements of each one's record as whole
 * numbers in halves, then zeros, and the record's head in the last 8 bytes.
 */
extern cudaError_t search_code_pivots_launch(const search_view *view, char *halves, size_t stride,
											 const search_device *device, cudaStream_t stream);
extern cudaError_t search_codes_ready(const search_device *device);

#endif							/* GG_SEARCH_CODES_H */
