/*
 * missing.h
 *		Lists of segments that a device lacks, or has no rows of, for many queries.
 */
#ifndef GG_MISSING_H
#define GG_MISSING_H

#include "many/resolve.h"

/* Segments in this process's own memory, by their ids, for threads that search them. */
typedef struct GgCopies GgCopies;

/*
 * In the current memory context.  queries: as many as are expected, in all calls that share the
 * copies.
 */
extern GgCopies *GgMakeCopies(uint64 queries);

/* What is asked of a segment, or was answered by a device. */
typedef struct GgMissingList
{
	int			list;
	bool		exact;			/* what is asked: all of its rows are measured */
	const float *vectors;		/* count queries, prepared */
	uint32		count;
	const gg_search_params *params;
	uint64	   *keys;			/* params->k for each query, as a device returns them */
} GgMissingList;

/* May throw. */
extern void GgSearchMissing(GgLists *lists, GgCopies *copies, const GgMissingList *missing);

/*
 * Measure by row what a device has found that has no rows of the segment, or (halved) rounded ones.
 * So many keys of each query are wanted.
 */
extern void GgMeasureFound(GgLists *lists, const GgMissingList *found, bool halved, uint32 wanted);

#endif							/* GG_MISSING_H */
