/*
 * sort_key.h
 *		Sort keys that an index gives the order of, beside its distance in ascending order.
 *
 * ORDER BY 1 - d DESC, round(d::numeric, 3), cosine_distance(v, q), d NULLS FIRST: what rises or
 * falls with the distance d of the index (monotone.h) comes in its order, and other keys may follow
 * (PostgreSQL sorts rows by these where the first key is equal).  For that the order must be the
 * operator's to the last bit, so such a scan has the executor compare the operator's values.
 *
 * The index has no row whose vector is NULL, or zero under cosine.  Their keys are NULL and NaN.
 * Where these come last, such rows are left out, as without a key of this kind.  Where they come
 * first, the index's order is the query's only if the index has left none out.  Such a row may be
 * inserted after the plan was made.  So the scan is told which rows come first, and finds them in
 * the table where the index has left some out (scan/left_out.c).
 */
#ifndef GG_SORT_KEY_H
#define GG_SORT_KEY_H

#include "base/base.h"
#include "storage/format.h"

#include "nodes/pathnodes.h"
#include "nodes/plannodes.h"

/*
 * What a scan is told of the key.  The marks are the collation of its order, and so that of its
 * scan key.  Distances have no use for one, PostgreSQL passes it on as it is, to parallel workers,
 * too, and no collation has so low a number.  Any mark but GG_KEY_RANGE has
 * the order be strict, whatever gpugraph.iterative_scan says when the plan runs.
 */
#define GG_KEY_EXACT		0x1	/* the order is to be strict, and that of the operator's values */
#define GG_KEY_OTHER		0x2	/* the key is not the distance itself, or a node groups rows */
#define GG_KEY_NULLS_FIRST	0x4	/* rows with NULL vectors come first */
#define GG_KEY_NANS_FIRST	0x8	/* zero vectors come first, but behind NULL ones that do */
#define GG_KEY_RANGE		0x10	/* no order: all rows within a distance (range_path.c) */
#define GG_KEY_FEW			0x20	/* of that range a few rows may be all that is asked for */
#define GG_KEY_MARKS		0x3F

static inline uint32
GgKeyMarks(Oid collation)
{
	return collation <= GG_KEY_MARKS ? collation : 0;
}

/* Are there rows that come first, and that the index may have left out? */
static inline bool
GgLeavesOutFirst(const GgMetaPageData *meta, uint32 marks)
{
	const uint32 never = GgNeverLeftOut(meta);

	return ((marks & GG_KEY_NULLS_FIRST) != 0 && (never & GG_FEATURE_NO_NULL) == 0) ||
		((marks & GG_KEY_NANS_FIRST) != 0 && (never & GG_FEATURE_NO_ZERO) == 0);
}

#endif							/* GG_SORT_KEY_H */
