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
	double		sine,			/* cosine: of the largest angle between row and rounded row */
				slack;			/* cosine: error of a distance in float32 arithmetic */
} GgBound;

/*
 * value is the query as the operator gets it.  query is what GgQueryFromValue() made of it, or
 * NULL.
 */
extern void GgBoundInit(GgBound *bound, const GgOpclass *opclass, const GgMetaPageData *meta,
						Datum value, const float *query);

/* The least value that the SQL operator can have for a row at this distance or farther. */
extern double GgBoundOf(const GgBound *bound, float distance);

/*
 * Under inner product GgBoundInit() has a bound for rounded rows alone, since what is kept of an
 * index, and asked later, must not hang on the largest length, which inserts raise.  After this
 * there is one for other rows, too, as of the directory.  Returns a length that neither a distance
 * nor its negative exceeds; 0: nothing is known.
 */
extern float GgBoundInitProduct(GgBound *bound, const GgMetaPageData *meta, const float *query);

/*
 * For rows of the index of which a device has halves (GgForms.halved), to a prepared query.
 * GgBoundOfKey() then is the least distance that this engine can measure to a row of the index
 * whose halves are at this distance or farther.
 */
extern void GgBoundInitHalves(GgBound *bound, const GgMetaPageData *meta, const float *query);
extern double GgBoundOfKey(const GgBound *bound, float distance);

#endif							/* GG_BOUND_H */
