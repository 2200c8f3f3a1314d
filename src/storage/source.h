/*
 * source.h
 *		Rows and edges of a segment, read from its pages, as the source of a walk.
 */
#ifndef GG_SOURCE_H
#define GG_SOURCE_H

#include "storage/codes.h"
#include "storage/directory.h"
#include "storage/pivot_cache.h"
#include "storage/recent_buffers.h"

#include "engine/walk.h"

typedef struct GgPageSource
{
	gg_source	source;			/* for gg_walk_start; source.ctx is this struct */
	Relation	index;
	uint64		instance,
				generation;
	GgRecentBuffers recent;		/* blocks of this instance and generation */
	GgPivotCache *pivot_cache;	/* for the form that the walk measures by; NULL: none, or not yet */
	bool		pivots_sought;
	bool		crowded;		/* the index is larger than shared buffers */
	BufferAccessStrategy ring;	/* of buffers for vectors; NULL: any buffers */
	GgVectors	vectors;
	GgArray		adjacency,
				pivots;
	Size		row_bytes;
	uint32		dimensions;
	gg_distance_fn distance;
	const float *query;			/* prepared */
	uint32		left_out;		/* a node that walks do not find, or GG_NO_NODE */
	char	   *scratch;		/* rows that cross pages, put together */

	gg_codes	codes;			/* that all pieces have */
	bool		coded;			/* there are no vectors */
	const GgCodeQuery *code_query;	/* the walk measures by codes; NULL: by rows */
	uint32		looks;			/* counts looks at pages, of which each 16th is by a pin */
} GgPageSource;

/* Allocates in the current context. */
extern void GgSourceInit(GgPageSource *source, Relation index, const GgMetaPageData *meta,
						 const GgSegment *segment, const float *query);

/* Have walks measure by the codes, which all pieces have; without vectors all is measured so. */
extern void GgSourceUseCodes(GgPageSource *source, const GgCodeQuery *query);

/* Pin a page of any array of the segment.  Faster than GgReadPage() from the second time on. */
extern Buffer GgSourcePin(GgPageSource *source, const GgArray *array, uint32 number);

/* Copy len bytes at offset of an array that does not change, page by page. */
extern void GgSourceRead(GgPageSource *source, const GgArray *array, uint64 offset, void *dst,
						 Size len);

/*
 * Where a page of the segment, or of the table, was last in shared buffers, as a hint.  NULL: not
 * known.
 */
extern const char *GgSourcePeek(const GgPageSource *source, const GgArray *array, uint32 number);
extern const char *GgSourcePeekHeap(Relation heap, BlockNumber blkno);

/* Pin a page of the table; faster than ReadBuffer() where GgSourcePeekHeap() has seen it. */
extern Buffer GgSourcePinHeap(Relation heap, BlockNumber blkno);

/*
 * Distances of count nodes to the query, by rows; estimates where the index has codes alone.
 * Throws, unlike source.distances.
 */
extern void GgSourceDistances(GgPageSource *source, const uint32 *nodes, uint32 count, float *out);

/* The same for the count nodes from first on. */
extern void GgSourceSweep(GgPageSource *source, uint32 first, uint32 count, float *out);

/*
 * Measure the nodes of count keys (keys.h), and sort the keys anew.  A key of no node becomes
 * GG_NO_KEY, and comes last.  Returns how many were measured.
 */
extern uint32 GgSourceMeasureKeys(GgPageSource *source, uint64 *keys, uint32 count);

/*
 * Of count keys those before `measured` have their nodes' distances, and those of them from `first`
 * on are in order.  Measure a few more, and put them in order with these.  Returns how many have
 * their distances now.  The key of no node keeps its distance.
 */
extern uint32 GgSourceMeasureNext(GgPageSource *source, uint64 *keys, uint32 first,
								  uint32 measured, uint32 count);

#endif							/* GG_SOURCE_H */
