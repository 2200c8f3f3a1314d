/*
 * pivot_cache.h
 *		Pivots of segments that this session has walked, with their rows, in its own memory.
 */
#ifndef GG_PIVOT_CACHE_H
#define GG_PIVOT_CACHE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "storage/format.h"

/* A segment's pivots and their rows stay the same as long as all of this does. */
typedef struct GgPivotCacheKey
{
	uint64		instance;
	uint64		generation;
	uint32		segment;
	uint32		codes;			/* rows are codes, not vectors */
} GgPivotCacheKey;

typedef struct GgPivotCache
{
	GgPivotCacheKey key;
	TimestampTz used;			/* when the transaction began that last asked for the cache */
	Size		bytes;
	char	   *known;			/* bits GG_PIVOT_... for each pivot */
	GgPivotEntry *entries;
	char	   *rows;
} GgPivotCache;

#define GG_PIVOT_ENTRY	1		/* its entry is there */
#define GG_PIVOT_ROW	2		/* its row is there */

/*
 * The cache of npivots pivots with rows of row_bytes, which lives until this transaction ends.
 * NULL: with others of this transaction it takes more memory than hashes may, or than there is.
 */
extern GgPivotCache *GgFindPivotCache(const GgPivotCacheKey *key, uint32 npivots, Size row_bytes);

#endif							/* GG_PIVOT_CACHE_H */
