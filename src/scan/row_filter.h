/*
 * row_filter.h
 *		Which nodes and rows match the filter of a scan.
 */
#ifndef GG_ROW_FILTER_H
#define GG_ROW_FILTER_H

#include "scan/scan.h"

/* Make the filter of a scan from its keys: so->filter, so->impossible and so->recheck. */
extern void GgMakeFilter(GgScanOpaque *so, const ScanKeyData *keys, int nkeys);

/*
 * Find the nodes of a stream that match, unless that is done: stream->matching (of segments alone)
 * and nmatching, an upper bound of their number.
 */
extern void GgFindMatching(GgScanOpaque *so, GgStream *stream);

/*
 * Only estimate nmatching, where that is faster, from this many places of the segment.  Then nodes
 * and rows are evaluated one by one.
 */
#define GG_SAMPLE_PLACES	128
extern void GgEstimateMatching(GgScanOpaque *so, GgStream *stream, uint32 places);
extern bool GgEvaluateNode(GgScanOpaque *so, GgStream *stream, uint32 node);
extern bool GgEvaluateRow(GgScanOpaque *so, GgStream *stream, uint32 row);

/* Which of the first count rows of a delta page match: a bitmap. */
extern void GgMatchDeltaRows(GgScanOpaque *so, const char *rows, uint32 count, uint64 *bits);

/* Is the row with this TID among those that the scan is restricted to? */
extern bool GgTidMatches(const GgScanOpaque *so, const ItemPointerData *tid);

/*
 * Restrict a scan to these TIDs: gg_tid_key()s, ascending and distinct, in the caller's memory.  To
 * be called between index_rescan() and the first row; the next index_rescan() forgets them.
 */
extern void GgScanSetTids(IndexScanDesc scan, const uint64 *tids, uint32 ntids);

/* Does a node of a segment match?  After GgFindMatching() or GgEstimateMatching(). */
static inline bool
GgNodeMatches(GgScanOpaque *so, GgStream *stream, uint32 node)
{
	if (so->filter == NULL)
		return true;
	if (stream->matching == NULL)
		return GgEvaluateNode(so, stream, node);
	return (stream->matching[node / 64] >> (node % 64) & 1) != 0;
}

/* A node matches when one of its rows does.  Does this row?  Its TID is left to GgTidMatches(). */
static inline bool
GgMayMatch(GgScanOpaque *so, GgStream *stream, uint32 row)
{
	const uint64 *bits = stream->matching_rows;

	if (bits != NULL)
		return (bits[row / 64] >> (row % 64) & 1) != 0;
	return so->filter == NULL || so->filter->nconditions == 0 || stream->offsets.nextents == 0 ||
		GgEvaluateRow(so, stream, row);
}

#endif							/* GG_ROW_FILTER_H */
