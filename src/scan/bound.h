/*
 * bound.h
 *		What a distance to a rounded row says about the distance to the row itself.
 */
#ifndef GG_BOUND_H
#define GG_BOUND_H

#include "storage/type.h"

typedef struct GgBound
{
	bool		rounded;		/* rows are not what the column has: order by the heap's values */
	gg_metric	metric;
	double		factor;			/* applied to a distance before offset is subtracted */
	double		offset;
	double		sine,			/* under cosine, of the largest angle from row to rounded row */
				slack;			/* under cosine, the error of a distance in float32 arithmetic */
} GgBound;

/*
 * Make the bound of a scan.  value is the query as the operator gets it, query is what
 * GgQueryFromValue() made of value.  query NULL: the value is NULL, and nothing is bounded.
 */
extern void GgBoundInit(GgBound *bound, const GgOpclass *opclass, const GgMetaPageData *meta,
						Datum value, const float *query);

/* The least value that the SQL operator can have for a row at this distance or farther. */
extern double GgBoundOf(const GgBound *bound, float distance);

/*
 * Under inner product GgBoundInit() makes a bound for rounded rows alone, since a bound that is
 * kept for later queries (exec/known_lists.c) must not hang on the largest length, which inserts
 * raise.  This function makes one for exact rows, too, by the largest length in meta.  Returns a
 * number that no distance exceeds, nor the negative of one; 0: nothing is known.
 */
extern float GgBoundInitProduct(GgBound *bound, const GgMetaPageData *meta, const float *query);

/*
 * Make the bound for rows that a device has as halves (GgForms.halved).  query is prepared.  With
 * this bound GgBoundOfKey() is the least distance that the CPU can measure to a row whose halves
 * are at this distance or farther.
 */
extern void GgBoundInitHalves(GgBound *bound, const GgMetaPageData *meta, const float *query);
extern double GgBoundOfKey(const GgBound *bound, float distance);

#endif							/* GG_BOUND_H */
