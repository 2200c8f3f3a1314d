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
 * Begin without copies, in the current memory context.  queries: how many are expected, in all
 * calls that share the copies.
 */
extern GgCopies *GgMakeCopies(uint64 queries);

/* What is asked of a segment, or was answered by a device. */
typedef struct GgMissingList
{
	int			list;
	bool		exact;			/* asked: measure all of its rows */
	const float *vectors;		/* count queries, prepared */
	uint32		count;
	const gg_search_params *params;
	uint64	   *keys;			/* params->k for each query, as a device returns them */
} GgMissingList;

/* Search a segment for the queries, and fill missing->keys.  May throw. */
extern void GgSearchMissing(GgLists *lists, GgCopies *copies, const GgMissingList *missing);

/*
 * Measure by stored rows what was found by a device that has no rows of the segment, or (halved)
 * rounded ones.  With halved, only the `wanted` nearest keys of each query need be exact.
 */
extern void GgMeasureFound(GgLists *lists, const GgMissingList *found, bool halved, uint32 wanted);

#endif							/* GG_MISSING_H */
