/*
 * directory.h
 *		The metapage and its directory: segments, pieces, extents; blocks taken and given back.
 */
#ifndef GG_DIRECTORY_H
#define GG_DIRECTORY_H

#include "storage/filter_column.h"
#include "storage/pages.h"

/* ---- reading ----------------------------------------------------------------------- */

/* Copy the metapage and all its directory, checked. */
extern void GgReadMeta(Relation index, GgMetaPageData *meta);

/*
 * Lock the metapage as asked.  *head points into the page: only the fields before segments are
 * there, and in format 2 only those up to nextents.
 */
extern Buffer GgLockMeta(Relation index, int lockmode, GgMetaPageData **head);

/* Copy the metapage and its directory, checked, from the metapage, which is locked. */
extern void GgCopyMeta(Relation index, Buffer metabuf, GgMetaPageData *meta);

/* The block of the delta's last page, by the metapage, which is locked. */
extern BlockNumber GgDeltaTail(Buffer metabuf);

/* ereport(ERROR) when segments, pieces, delta and extents contradict each other. */
extern void GgCheckDirectory(Relation index, const GgMetaPageData *meta);

/*
 * ereport(ERROR) when the metapage's filter columns are not those of the index.  GgReadMeta() calls
 * it; who reads the metapage otherwise, and values of filter columns, has to.
 */
extern void GgCheckColumns(Relation index, const GgMetaPageData *meta,
						   const GgFilterColumns *columns);

/* The segment of that id; NULL: there is none. */
extern const GgSegment *GgFindSegment(const GgMetaPageData *meta, uint32 id);

/* Find an array in the directory; vectors by the id of their piece.  Allocates. */
extern void GgFindArray(const GgMetaPageData *meta, uint32 segment, GgKind kind, GgArray *array);

/* The vectors of a segment: its pieces, in the order of their nodes.  Allocates. */
extern void GgFindVectors(const GgMetaPageData *meta, uint32 segment, GgVectors *vectors);

/* Is another generation in use by now? */
extern bool GgHasNewGeneration(Relation index, const GgMetaPageData *meta);

/*
 * For those whom no snapshot protects: read and lock a page of a generation that may be over.
 * False: it is, and the page is another.
 */
extern bool GgReadPageUnlessGone(Relation index, const GgMetaPageData *meta, const GgArray *array,
								 uint32 number, int lockmode, BufferAccessStrategy strategy,
								 Buffer *buffer);

/* Rows that the delta's pages have room for. */
extern uint64 GgDeltaSlots(const GgMetaPageData *meta);

/* Rows of the delta, with those that VACUUM cleared.  Reads its last page. */
extern int64 GgCountDeltaRows(Relation index, const GgMetaPageData *meta);

/* ---- changing ------------------------------------------------------------------------ */

extern void GgInitMeta(GgMetaPageData *meta, Relation index, const GgOptions *options);

/*
 * To change the directory: lock the metapage exclusively, copy it, change the copy, settle it, and
 * put it into the page in one WAL record.
 *
 * GgSettleDirectory() writes directory pages where extents do not fit the metapage.
 */
extern void GgSettleDirectory(Relation index, Relation heap, GgMetaPageData *meta);
extern void GgPutMeta(Page page, const GgMetaPageData *meta);

/* The same for a change that needs no other page: settles, logs, unlocks and releases metabuf. */
extern void GgStoreMeta(Relation index, Relation heap, Buffer metabuf, GgMetaPageData *meta);

/* Form the metapage of meta in page, which is BLCKSZ bytes.  Nothing may be spilled. */
extern void GgFormMetaPage(Page page, const GgMetaPageData *meta);

/* A segment of its own with one piece, and with no numbers yet. */
extern GgSegment *GgAddSegment(GgMetaPageData *meta);

/* Add nblocks at start to an array, to its last extent where they continue that. */
extern void GgAddExtent(GgMetaPageData *meta, BlockNumber start, uint32 nblocks, uint32 segment,
						GgKind kind);

/* The first block behind every extent.  It and all that follow belong to nobody. */
extern BlockNumber GgHighWater(const GgMetaPageData *meta);

/*
 * Take a block, from the free extents of meta (which this changes) or new at the end.  It is locked
 * exclusively, and not initialised.  The caller holds the metapage exclusively.
 */
extern Buffer GgAllocateBlock(Relation index, Relation heap, GgMetaPageData *meta,
							  BlockNumber *blkno);

/*
 * Take blocks in a row for an array, most at the most, free ones only if there are at least least.
 * They become a TAKEN extent of that owner.  Returns the number.  The caller holds the metapage
 * exclusively.
 */
extern uint32 GgTakeBlocks(Relation index, Relation heap, GgMetaPageData *meta, uint32 least,
						   uint32 most, uint32 owner, BlockNumber *start);

/* Remove entry i of the extents. */
extern void GgRemoveExtent(GgMetaPageData *meta, int i);

/* Make one entry of FREE extents that touch. */
extern void GgMergeFree(GgMetaPageData *meta);

/* Give back the delta's pages [first, first + npages), by their numbers. */
extern void GgFreeDelta(GgMetaPageData *meta, uint32 first, uint32 npages, uint64 parked_xid);

/* Give back all arrays of a segment that is no longer in the directory, vectors included. */
extern void GgFreeSegment(GgMetaPageData *meta, uint32 segment, uint64 parked_xid);

/* The same but for vectors. */
extern void GgFreeGraph(GgMetaPageData *meta, uint32 segment, uint64 parked_xid);

/* Give back the vectors of a piece, and take it out of the directory. */
extern void GgFreePiece(GgMetaPageData *meta, uint32 piece, uint64 parked_xid);

/*
 * The full transaction id that all snapshots must have passed before blocks are used again that are
 * given back now.  The metapage is locked exclusively.  own: this transaction's, or invalid.
 */
extern uint64 GgParkingXid(FullTransactionId own);

#endif							/* GG_DIRECTORY_H */
