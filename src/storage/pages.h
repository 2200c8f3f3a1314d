/*
 * pages.h
 *		Stamps, arrays over extents.
 */
#ifndef GG_PAGES_H
#define GG_PAGES_H

#include "base/base.h"

#include "storage/bufmgr.h"

#include "storage/format.h"

/* One array of bytes: its extents, each with the number of its first page. */
typedef struct GgArray
{
	uint32		segment;
	GgKind		kind;
	uint64		npages;
	int			nextents;
	struct
	{
		uint64		first;		/* number of the extent's first page within the array */
		BlockNumber start;
		uint32		nblocks;
	}		   *extents;
} GgArray;

/* The vectors of some consecutive nodes of a segment. */
typedef struct GgVectorPiece
{
	uint32		first;			/* node */
	uint32		nodes;
	gg_codes	codes;			/* GG_CODES_NONE: there are none, and code_array is empty */
	GgArray		array;
	GgArray		code_array;
} GgVectorPiece;

/* The vectors of a segment. */
typedef struct GgVectors
{
	uint32		npieces;
	GgVectorPiece *pieces;
} GgVectors;

/* The piece that has the node, which is one of the segment's. */
static inline const GgVectorPiece *
GgPieceOf(const GgVectors *vectors, uint32 node)
{
	uint32		low = 0,
				high = vectors->npieces - 1;

	while (low < high)
	{
		uint32		mid = (low + high + 1) / 2;

		if (vectors->pieces[mid].first <= node)
			low = mid;
		else
			high = mid - 1;
	}
	return &vectors->pieces[low];
}

/*
 * Is this the page that the directory promises?  Looks at the stamp's place alone, where every page
 * has it.  That says enough where the page was sound when it was read.
 */
static inline bool
GgHasStamp(Page page, uint64 instance, uint32 segment, GgKind kind, uint64 number)
{
	const GgPageStamp *stamp = (const GgPageStamp *)
		((const char *) page + BLCKSZ - MAXALIGN(sizeof(GgPageStamp)));

	return stamp->instance == instance && stamp->segment == segment &&
		stamp->number == (uint32) number && stamp->number_high == (uint32) (number >> 32) &&
		stamp->kind == kind;
}

extern void GgInitPage(Page page, uint64 instance, uint32 segment, GgKind kind, uint64 number);
extern bool GgStampMatches(Page page, uint64 instance, uint32 segment, GgKind kind, uint64 number);

/*
 * Is the page's header sound?  Page contents are untrusted, so the special area's offset is
 * checked before it is followed.  So is pd_upper, because writers of the page move pd_lower, and
 * GenericXLog clears what lies between the two.
 */
extern bool GgPageIsSound(Page page);

/* Read the page of this number of an array, checked by its stamp, and lock it in share mode. */
extern Buffer GgReadPage(Relation index, uint64 instance, const GgArray *array, uint64 number);

/* Bytes of payload in use, of a page whose header is sound. */
extern Size GgPayloadBytes(Page page);

/*
 * Rows that start on a locked delta page, one at least.  ereport(ERROR) when its numbers contradict
 * each other.
 */
extern uint32 GgDeltaRowCount(Relation index, const GgMetaPageData *meta, Buffer buffer);

static inline const GgDeltaRow *
GgDeltaRowOf(const GgMetaPageData *meta, Page page, uint32 slot)
{
	return (const GgDeltaRow *) (PageGetContents(page) + slot * GgDeltaRowBytes(meta));
}

/* As GgReadPage(), of the delta.  False: VACUUM has given the page back. */
extern bool GgReadDeltaPage(Relation index, const GgMetaPageData *meta, const GgArray *delta,
							uint64 number, Buffer *buffer);

/* Copy the vector of a row on a locked page; a long one goes on over the pages that follow. */
extern void GgCopyDeltaVector(Relation index, const GgMetaPageData *meta, const GgArray *delta,
							  uint64 number, const GgDeltaRow *row, char *copy);

/* Bytes of page number of an array that has so many in all. */
static inline Size
GgPageBytes(uint32 number, uint64 bytes)
{
	return Min(bytes - (uint64) number * GG_PAGE_PAYLOAD, GG_PAGE_PAYLOAD);
}

/* Form a page of an array, which has the len bytes at data. */
extern void GgFormArrayPage(Page page, uint64 instance, uint32 segment, GgKind kind, uint32 number,
							const void *data, Size len);

extern BlockNumber GgArrayBlock(const GgArray *array, uint64 number);
extern uint64 GgArrayPages(uint64 bytes);

/*
 * Count the table's blocks anew, and ereport(ERROR) unless a valid TID, read from block blkno of
 * the index, lies in them.  *length: the count; 0: none yet.  The table is locked, so it does not
 * become shorter.
 */
extern void GgCountForTid(Relation index, Relation heap, BlockNumber blkno,
						  const ItemPointerData *tid, BlockNumber *length);

static inline void
GgCheckTid(Relation index, Relation heap, BlockNumber blkno, const ItemPointerData *tid,
		   BlockNumber *length)
{
	if (unlikely(ItemPointerGetBlockNumberNoCheck(tid) >= *length))
		GgCountForTid(index, heap, blkno, tid, length);
}

/* Copy len bytes at offset of an array, page by page. */
extern void GgReadArray(Relation index, uint64 instance, const GgArray *array, uint64 offset,
						void *dst, Size len);

#endif							/* GG_PAGES_H */
