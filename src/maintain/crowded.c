/*
 * crowded.c
 *		What merges do so that the directory has room: which pieces stay, and which segment is built
 *		anew because it has many entries.
 */
#include "maintain/merge.h"
#include "engine/rules/tiers.h"

/*
 * Where an index would have more pieces than MOST_PIECES, the smallest of those that a merge has
 * become one: those that make the most room for what is written (gg_cheapest_tail()).  Under an old
 * snapshot what is written anew makes the index longer, so it may have GG_MANY_PIECES then.
 */
#define MOST_PIECES			24

/*
 * Each piece is an entry, mostly with a free one behind it.  So where the directory has FILLING
 * entries, pieces in many extents are written anew.  Where it has FILLED and the index would have
 * FILLED_PIECES, all but the FILLED_LARGE largest are.  100M rows x 1,536 in one transaction under
 * an old snapshot take less than 256 entries (test/directory/test_large.c).
 */
#define FILLING				(GG_MAX_EXTENTS / 8)
#define FILLING_EXTENTS		4
#define FILLED				(GG_MAX_EXTENTS / 5)
#define FILLED_PIECES		64
#define FILLED_LARGE		2

/*
 * From half of the entries on a segment with MANY_EXTENTS, those of its pieces included, is built
 * anew, and a delta with so many is sealed.  The new segment has fewer: it keeps FILLED_LARGE
 * pieces at most, and six arrays are in some five runs each (storage/extents.c).
 */
#define CROWDED				(GG_MAX_EXTENTS / 2)
#define MANY_EXTENTS		64

static int
CompareSizes(const void *a, const void *b)
{
	const GgPieceSize *left = a;
	const GgPieceSize *right = b;

	return left->nodes > right->nodes ? -1 : left->nodes < right->nodes;
}

int
GgChoosePieces(const GgMetaPageData *meta, bool pinned, GgPieceSize *sizes, int n, int others)
{
	bool		filling = meta->nextents >= FILLING;
	uint64		nodes[GG_MAX_PIECES];
	uint32		counts[GG_MAX_PIECES];
	int			kept = 0;

	for (int i = 0; i < n; i++)
		if (!filling || sizes[i].extents <= FILLING_EXTENTS)
			sizes[kept++] = sizes[i];
	qsort(sizes, kept, sizeof(GgPieceSize), CompareSizes);
	for (int i = 0; i < kept; i++)
	{
		nodes[i] = sizes[i].nodes;
		counts[i] = 1;
	}
	if (kept + others >= (pinned ? GG_MANY_PIECES : MOST_PIECES))
		kept = gg_cheapest_tail(nodes, counts, kept);
	if (meta->nextents >= CROWDED || (meta->nextents >= FILLED && kept + others >= FILLED_PIECES))
		kept = Min(kept, FILLED_LARGE);
	return kept;
}

/* The segment that an extent belongs to, if only through a piece; GG_NO_SEGMENT: none. */
static uint32
SegmentOf(const GgMetaPageData *meta, const GgExtent *extent)
{
	if (GgIsOfSegment(extent->kind))
		return extent->segment;
	for (int p = 0; p < meta->npieces && GgIsOfPiece(extent->kind); p++)
		if (meta->pieces[p].id == extent->segment)
			return meta->pieces[p].segment;
	return GG_NO_SEGMENT;
}

/* Entries of a segment and its pieces or, GG_NO_SEGMENT, of the delta. */
static int
CountExtents(const GgMetaPageData *meta, uint32 id)
{
	int			n = 0;

	for (int i = 0; i < meta->nextents; i++)
		n += id == GG_NO_SEGMENT ? meta->extents[i].kind == GG_KIND_DELTA :
			SegmentOf(meta, &meta->extents[i]) == id;
	return n;
}

bool
GgHasRoomForInner(const GgMetaPageData *meta)
{
	return meta->nextents < GG_MAX_EXTENTS / 4 * 3;
}

bool
GgChooseCrowded(const GgMergeLook *look, GgMergeChoice *choice)
{
	const GgMetaPageData *meta = look->meta;
	int			most = MANY_EXTENTS - 1;
	bool		found = false;

	if (meta->nextents < CROWDED)
		return false;
	if (GgSealableEnd(meta) != GgDeltaFirst(meta) && meta->nsegments < GG_MAX_SEGMENTS - 1 &&
		CountExtents(meta, GG_NO_SEGMENT) > most)
	{
		most = CountExtents(meta, GG_NO_SEGMENT);
		choice->delta = found = true;
		choice->nsegments = 0;
	}
	for (int i = 0; i < meta->nsegments; i++)
	{
		const GgSegment *segment = &meta->segments[i];
		int			n = CountExtents(meta, segment->id);

		if (n <= most || segment->nodes - GgGoneNodes(segment) > look->most)
			continue;
		most = n;
		found = true;
		choice->delta = false;
		choice->nsegments = 1;
		choice->segments[0] = segment->id;
	}
	return found;
}
