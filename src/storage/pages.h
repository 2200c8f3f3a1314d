/*
 * pages.h
 *		Stamps, metapage, arrays over extents, block allocation.
 */
#ifndef GG_PAGES_H
#define GG_PAGES_H

#include "base/base.h"

#include "storage/bufmgr.h"

#include "storage/format.h"

/* One logical byte array: its extents with the number of the first page of each. */
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

/* Page number of an array, locked, its stamp checked. */
extern Buffer GgReadPage(Relation index, uint64 instance, const GgArray *array, uint32 number, int lockmode);
extern Buffer GgReadPageExtended(Relation index, uint64 instance, const GgArray *array, uint32 number,
								 int lockmode, BufferAccessStrategy strategy);

/* Bytes of payload in use; the page's header is sound. */
extern Size GgPayloadBytes(Page page);

/* Rows that start on a locked delta page, which holds some; ereport(ERROR) when its numbers contradict each other. */
extern uint32 GgDeltaRowCount(Relation index, const GgMetaPageData *meta, Buffer buffer);

/* ereport(ERROR) when segments, delta and extents contradict each other. */
extern void GgCheckDirectory(Relation index, const GgMetaPageData *meta);

/* Copy the metapage, checked: magic, version, bounds, directory. */
extern void GgReadMeta(Relation index, GgMetaPageData *meta);

/* The metapage's buffer locked as asked, its contents checked but for the directory. */
extern Buffer GgLockMeta(Relation index, int lockmode, GgMetaPageData **meta);

extern void GgInitMeta(GgMetaPageData *meta, Relation index, const GgOptions *options);

/* Resolve an array from the directory; memory in the current context. */
extern void GgFindArray(const GgMetaPageData *meta, uint32 segment, GgKind kind, GgArray *array);
extern BlockNumber GgArrayBlock(const GgArray *array, uint32 number);
extern uint64 GgArrayPages(uint64 bytes);

/* Copy len bytes at offset of an array, pages pinned but not locked (immutable arrays only). */
extern void GgReadArray(Relation index, uint64 instance, const GgArray *array, uint64 offset, void *dst, Size len);

/* Add nblocks at start to the directory, merging with the array's last extent if it continues it. */
extern void GgAddExtent(GgMetaPageData *meta, BlockNumber start, uint32 nblocks, uint32 segment, GgKind kind);

/* First block behind every extent known: what lies further on belongs to nobody. */
extern BlockNumber GgHighWater(const GgMetaPageData *meta);

/*
 * One block for the delta, exclusively locked and not yet initialised: from the free extents of
 * meta (which is changed) or new at the end.  The caller holds the metapage exclusively.
 */
extern Buffer GgAllocateBlock(Relation index, Relation heap, GgMetaPageData *meta, BlockNumber *blkno);

/* Make page, BLCKSZ bytes, the metapage of meta. */
extern void GgFormMetaPage(Page page, const GgMetaPageData *meta);

#endif							/* GG_PAGES_H */
