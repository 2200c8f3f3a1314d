/*
 * directory.h
 *		The metapage and its directory: segments, pieces, extents.
 */
#ifndef GG_DIRECTORY_H
#define GG_DIRECTORY_H

#include "storage/extents.h"
#include "storage/filter_column.h"

/* ---- reading ----------------------------------------------------------------------- */

/* Copy the metapage and all its directory, checked; GgReadDirectory() allocates. */
extern void GgReadMeta(Relation index, GgMetaPageData *meta);
extern GgMetaPageData *GgReadDirectory(Relation index);

/* The same of a file that may be of an index with other columns, so columns are not compared. */
extern void GgReadMetaOfFile(Relation index, GgMetaPageData *meta);

/*
 * GgReadMeta() for a snapshot that was taken before.  Fails where it may have expired: VACUUM may
 * have given back segments and delta pages whose rows the snapshot still sees.
 */
extern void GgReadMetaAsOf(Relation index, Snapshot snapshot, GgMetaPageData *meta);

/* A node of an index; none where the segment is GG_NO_SEGMENT. */
typedef struct GgNode
{
	uint32		segment;		/* GgSegment.id */
	uint32		node;
} GgNode;

/* ereport(ERROR) when the relation has no metapage.  To be called before it is first read. */
extern void GgCheckNotEmpty(Relation index);

/*
 * Lock the metapage as asked.  *head points into the page: only the fields before segments are
 * there, and in format 2 only those up to nextents.
 */
extern Buffer GgLockMeta(Relation index, int lockmode, GgMetaPageData **head);

/* Copy the metapage and its directory, checked, from the metapage, which is locked exclusively. */
extern void GgCopyMeta(Relation index, Buffer metabuf, GgMetaPageData *meta);

/* The block of the delta's last page, by the locked metapage; InvalidBlockNumber: there is none. */
extern BlockNumber GgDeltaTail(Buffer metabuf);

/* The segment of that id; NULL: there is none. */
extern const GgSegment *GgFindSegment(const GgMetaPageData *meta, uint32 id);

/* The piece of that id; NULL: there is none. */
extern const GgPiece *GgFindPiece(const GgMetaPageData *meta, uint32 id);

/* Find an array in the directory; vectors and codes by the id of their piece.  Allocates. */
extern void GgFindArray(const GgMetaPageData *meta, uint32 segment, GgKind kind, GgArray *array);

/* The vectors of a segment: its pieces, in the order of their nodes.  Allocates. */
extern void GgFindVectors(const GgMetaPageData *meta, uint32 segment, GgVectors *vectors);

/* Find the sample's array, and read its head.  False: there is none.  Allocates. */
extern bool GgFindSample(Relation index, const GgMetaPageData *meta, GgArray *array,
						 GgSampleHead *head);

/* What tells whether a directory that was read is still the one in use. */
typedef struct GgDirectoryState
{
	uint64		instance;
	uint64		generation;
	uint64		vacuum_epoch;
	uint32		delta_pages;
} GgDirectoryState;

/* The buffer that the metapage is in, which is not pinned. */
extern Buffer GgMetaBuffer(Relation index);

/*
 * Read the state of an index, which need not be open or locked, from the buffer that had its
 * metapage.  False: another block is in the buffer by now.
 */
extern bool GgReadStateFrom(Buffer buffer, GgRelFileLocator locator, GgDirectoryState *state);

/* Is another generation in use by now? */
extern bool GgHasNewGeneration(Relation index, const GgMetaPageData *meta);

/*
 * For callers that no snapshot protects: read and lock a page of a generation that may be over.
 * False: it is over, and the block holds another page.
 */
extern bool GgReadPageUnlessGone(Relation index, const GgMetaPageData *meta, const GgArray *array,
								 uint64 number, int lockmode, BufferAccessStrategy strategy,
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
 * GgLockDirectory() does the first two.  GgSettleDirectory() writes directory pages where extents
 * do not fit the metapage.
 */
extern Buffer GgLockDirectory(Relation index, GgMetaPageData *meta);
extern void GgSettleDirectory(Relation index, Relation heap, GgMetaPageData *meta);
extern void GgPutMeta(Page page, const GgMetaPageData *meta);

/* Store a change that needs no other page: settle it, log it, unlock and release metabuf. */
extern void GgStoreMeta(Relation index, Relation heap, Buffer metabuf, GgMetaPageData *meta);

/* Form the metapage of meta in page, of BLCKSZ bytes.  meta has no spilled extents. */
extern void GgFormMetaPage(Page page, const GgMetaPageData *meta);

/*
 * The next id, for a segment, piece, sample, calibration or new graph.  ereport(ERROR) where there
 * is none: an id that came round again would pass for another segment's.
 */
extern uint32 GgTakeId(Relation index, GgMetaPageData *meta);

/* Add a segment with one piece of its own to those of a build; the caller sets their numbers. */
extern GgSegment *GgAddSegment(GgMetaPageData *meta);

#endif							/* GG_DIRECTORY_H */
