/*
 * pages.h
 *		Stamps, metapage, arrays over extents, block allocation.
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
	uint32		npages;
	int			nextents;
	struct
	{
		uint32		first;		/* number of the extent's first page within the array */
		BlockNumber start;
		uint32		nblocks;
	}		   *extents;
} GgArray;

extern void GgInitPage(Page page, uint64 instance, uint32 segment, GgKind kind, uint32 number);
extern bool GgStampMatches(Page page, uint64 instance, uint32 segment, GgKind kind, uint32 number);

/* Read the page of this number of an array, checked by its stamp, and lock it. */
extern Buffer GgReadPage(Relation index, uint64 instance, const GgArray *array, uint32 number,
						 int lockmode);
extern Buffer GgReadPageExtended(Relation index, uint64 instance, const GgArray *array,
								 uint32 number, int lockmode, BufferAccessStrategy strategy);

/* Bytes of payload in use, of a page whose header is sound. */
extern Size GgPayloadBytes(Page page);

/*
 * Rows that start on a locked delta page, one at least.  ereport(ERROR) when its numbers contradict
 * each other.
 */
extern uint32 GgDeltaRowCount(Relation index, const GgMetaPageData *meta, Buffer buffer);

/* ereport(ERROR) when segments, delta and extents contradict each other. */
extern void GgCheckDirectory(Relation index, const GgMetaPageData *meta);

/* Copy the metapage, checked: magic, version, bounds, directory. */
extern void GgReadMeta(Relation index, GgMetaPageData *meta);

/* Lock the metapage as asked.  Its contents are checked, except for the directory. */
extern Buffer GgLockMeta(Relation index, int lockmode, GgMetaPageData **meta);

extern void GgInitMeta(GgMetaPageData *meta, Relation index, const GgOptions *options);

/* Find an array in the directory.  Allocates in the current context. */
extern void GgFindArray(const GgMetaPageData *meta, uint32 segment, GgKind kind, GgArray *array);
extern BlockNumber GgArrayBlock(const GgArray *array, uint32 number);
extern uint64 GgArrayPages(uint64 bytes);

/* Copy len bytes at offset of an array, page by page. */
extern void GgReadArray(Relation index, uint64 instance, const GgArray *array, uint64 offset,
						void *dst, Size len);

/* Add nblocks at start to an array, to its last extent where they continue that. */
extern void GgAddExtent(GgMetaPageData *meta, BlockNumber start, uint32 nblocks, uint32 segment,
						GgKind kind);

/* The first block behind every extent.  It and all that follow belong to nobody. */
extern BlockNumber GgHighWater(const GgMetaPageData *meta);

/*
 * Take a block for the delta, from the free extents of meta (which this changes) or new at the end.
 * It is locked exclusively, and not initialised.  The caller holds the metapage exclusively.
 */
extern Buffer GgAllocateBlock(Relation index, Relation heap, GgMetaPageData *meta,
							  BlockNumber *blkno);

/* Form the metapage of meta in page, which is BLCKSZ bytes. */
extern void GgFormMetaPage(Page page, const GgMetaPageData *meta);

#endif							/* GG_PAGES_H */
