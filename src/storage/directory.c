/*
 * directory.c
 *		The metapage and its directory: segments, pieces, extents; blocks taken and given back.
 *
 * The directory lies in the metapage, as far as it has room.  Further extents lie on directory
 * pages, which are written once: a change of one of their extents writes them anew, into other
 * blocks.  So the metapage's WAL record alone changes the directory.  What inserts change, the
 * delta's extents and free ones, stays in the metapage, and directory pages change with merges and
 * VACUUMs only.
 *
 * Directory pages are read while the metapage is locked, so their blocks are free at once when the
 * metapage no longer names them.
 *
 * An index of format 2 has 32 segments and 288 extents in its metapage and no pieces.  It is read
 * as if each segment had one piece of its own number.  The first change writes format 3.
 */
#include "storage/directory.h"
#include "storage/type.h"

#include "access/generic_xlog.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

/* ---- format 2 ---------------------------------------------------------------------------- */

#define OLD_MAX_SEGMENTS	32
#define OLD_MAX_EXTENTS		288

typedef struct OldSegment
{
	uint32		id;
	uint32		nodes;
	uint32		rows;
	uint32		npivots;
	uint32		dead;
	uint32		reserved;
} OldSegment;

/* GgExtent without first, whose place is zero but in FREE extents. */
typedef struct OldMeta
{
	char		head[offsetof(GgMetaPageData, npieces)];
	OldSegment	segments[OLD_MAX_SEGMENTS];
	GgExtent	extents[OLD_MAX_EXTENTS];
} OldMeta;

/* Number the pages of each array, and of the delta, in directory order. */
static void
NumberPages(GgMetaPageData *meta)
{
	for (int i = 0; i < meta->nextents; i++)
	{
		GgExtent   *extent = &meta->extents[i];
		int			j = i - 1;

		if (extent->kind == GG_KIND_FREE)
			continue;
		while (j >= 0 &&
			   (meta->extents[j].segment != extent->segment ||
				meta->extents[j].kind != extent->kind))
			j--;
		if (j >= 0)
			extent->first = meta->extents[j].first + meta->extents[j].nblocks;
		else
			extent->first = extent->kind == GG_KIND_DELTA ? meta->delta_first : 0;
	}
}

static void
CopyOldMeta(Page page, GgMetaPageData *meta)
{
	const OldMeta *old = (const OldMeta *) PageGetContents(page);

	memset(meta, 0, GG_META_HEAD);
	memcpy(meta, old->head, sizeof(old->head));
	for (int i = 0; i < meta->nsegments; i++)
	{
		const OldSegment *from = &old->segments[i];
		GgSegment  *segment = &meta->segments[i];
		GgPiece    *piece = &meta->pieces[i];

		memset(segment, 0, sizeof(*segment));
		segment->id = from->id;
		segment->nodes = from->nodes;
		segment->rows = from->rows;
		segment->npivots = from->npivots;
		segment->dead = from->dead;
		segment->algorithm = meta->algorithm;
		if (from->rows != from->nodes)
			segment->flags = GG_SEGMENT_OFFSETS;
		memset(piece, 0, sizeof(*piece));
		piece->id = piece->segment = from->id;
		piece->nodes = from->nodes;
	}
	meta->npieces = meta->nsegments;
	memcpy(meta->extents, old->extents, meta->nextents * sizeof(GgExtent));
	NumberPages(meta);
	meta->delta_tail = InvalidBlockNumber;
}

/* ---- reading ----------------------------------------------------------------------------- */

/* Bytes of a metapage that has all but the spilled extents. */
static Size
MetaBytes(const GgMetaPageData *meta)
{
	return GG_META_HEAD + meta->nsegments * sizeof(GgSegment) + meta->npieces * sizeof(GgPiece) +
		(meta->nextents - meta->nspilled) * sizeof(GgExtent);
}

/* Directory pages for so many extents. */
static int
DirectoryPages(int nspilled)
{
	return (nspilled + GG_DIRECTORY_EXTENTS - 1) / GG_DIRECTORY_EXTENTS;
}

/* Are the numbers of filter columns, of their words and of their types in line? */
static bool
ColumnsAreSound(const GgMetaPageData *head)
{
	if (head->version == GG_OLDEST_FORMAT)
		return head->filter_words == 0;
	if (head->ncolumns > GG_MAX_COLUMNS || head->filter_words > GG_MAX_FILTER_WORDS ||
		head->filter_words < head->ncolumns || (head->ncolumns == 0 && head->filter_words > 0))
		return false;
	for (int c = 0; c < GG_MAX_COLUMNS; c++)
		if ((head->column_types[c] != 0) != (c < head->ncolumns))
			return false;
	return true;
}

static bool
HeadIsSound(const GgMetaPageData *head, Size payload)
{
	if (head->dimensions > GG_MAX_DIM ||
		head->metric < GG_METRIC_L2 || head->metric > GG_METRIC_L1 ||
		head->element < GG_ELEMENT_F32 || head->element > GG_ELEMENT_F16 ||
		head->graph_degree < 1 || head->graph_degree > GG_MAX_DEGREE ||
		(head->dimensions == 0 && (head->nsegments > 0 || head->delta_pages > 0)) ||
		!(head->largest_length >= 0) || !ColumnsAreSound(head))
		return false;
	if (head->version == GG_OLDEST_FORMAT)
		return head->nsegments <= OLD_MAX_SEGMENTS && head->nextents <= OLD_MAX_EXTENTS &&
			payload == sizeof(OldMeta);
	return head->nsegments <= GG_MAX_SEGMENTS && head->npieces <= GG_MAX_PIECES &&
		head->nextents <= GG_MAX_EXTENTS && head->nspilled <= head->nextents &&
		head->ndirectory <= GG_MAX_DIRECTORY_PAGES &&
		head->ndirectory == DirectoryPages(head->nspilled) && payload == MetaBytes(head);
}

Buffer
GgLockMeta(Relation index, int lockmode, GgMetaPageData **head)
{
	Buffer		buffer = ReadBuffer(index, GG_META_BLKNO);
	Page		page = BufferGetPage(buffer);
	GgMetaPageData *data = GgPageGetMeta(page);

	LockBuffer(buffer, lockmode);
	if (!GgPageIsSound(page) || GgPageGetStamp(page)->kind != GG_KIND_META ||
		data->magic != GG_MAGIC)
		GgReportCorruption(index, GG_META_BLKNO, "it is not a gpugraph metapage");
	if (data->version < GG_OLDEST_FORMAT || data->version > GG_FORMAT_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index \"%s\" has format version %u, this gpugraph reads versions %u to %u",
						RelationGetRelationName(index), data->version, GG_OLDEST_FORMAT,
						GG_FORMAT_VERSION),
				 errhint("REINDEX the index.")));
	if (!HeadIsSound(data, GgPayloadBytes(page)))
		GgReportCorruption(index, GG_META_BLKNO, "a field of the metapage is out of range");
	*head = data;
	return buffer;
}

BlockNumber
GgDeltaTail(Buffer metabuf)
{
	Page		page = BufferGetPage(metabuf);
	const GgMetaPageData *head = GgPageGetMeta(page);
	const OldMeta *old = (const OldMeta *) head;

	if (head->version == GG_FORMAT_VERSION)
		return head->delta_tail;
	for (int i = head->nextents - 1; i >= 0; i--)
		if (old->extents[i].kind == GG_KIND_DELTA)
			return old->extents[i].start + old->extents[i].nblocks - 1;
	return InvalidBlockNumber;
}

/* How many extents lie on directory page i? */
static Size
SpilledOn(const GgMetaPageData *meta, int i)
{
	return Min(meta->nspilled - i * GG_DIRECTORY_EXTENTS, GG_DIRECTORY_EXTENTS);
}

/* Copy the extents of directory page i. */
static void
ReadSpilled(Relation index, const GgMetaPageData *meta, int i, GgExtent *extents)
{
	Size		bytes = SpilledOn(meta, i) * sizeof(GgExtent);
	Buffer		buffer;
	Page		page;

	/* the metapage is locked already */
	if (meta->directory[i] == GG_META_BLKNO ||
		meta->directory[i] >= RelationGetNumberOfBlocks(index))
		GgReportCorruption(index, GG_META_BLKNO, "block %u holds no page of the directory",
						   meta->directory[i]);
	buffer = ReadBuffer(index, meta->directory[i]);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	if (!GgStampMatches(page, meta->instance, GG_NO_SEGMENT, GG_KIND_DIRECTORY, i) ||
		GgPayloadBytes(page) != bytes)
		GgReportCorruption(index, meta->directory[i], "page is not number %d of the directory", i);
	memcpy(extents, PageGetContents(page), bytes);
	UnlockReleaseBuffer(buffer);
}

static void
CopyNewMeta(Relation index, Page page, GgMetaPageData *meta)
{
	const char *from = (const char *) GgPageGetMeta(page);
	Size		bytes;

	memcpy(meta, from, GG_META_HEAD);
	from += GG_META_HEAD;
	bytes = meta->nsegments * sizeof(GgSegment);
	memcpy(meta->segments, from, bytes);
	from += bytes;
	bytes = meta->npieces * sizeof(GgPiece);
	memcpy(meta->pieces, from, bytes);
	from += bytes;
	memcpy(&meta->extents[meta->nspilled], from,
		   (meta->nextents - meta->nspilled) * sizeof(GgExtent));
	for (int i = 0; i < meta->ndirectory; i++)
		ReadSpilled(index, meta, i, &meta->extents[i * GG_DIRECTORY_EXTENTS]);
}

static void
CopyMeta(Relation index, Buffer metabuf, GgMetaPageData *meta)
{
	Page		page = BufferGetPage(metabuf);

	if (GgPageGetMeta(page)->version == GG_FORMAT_VERSION)
		CopyNewMeta(index, page, meta);
	else
		CopyOldMeta(page, meta);
}

void
GgCopyMeta(Relation index, Buffer metabuf, GgMetaPageData *meta)
{
	CopyMeta(index, metabuf, meta);
	GgCheckDirectory(index, meta);
}

void
GgReadMeta(Relation index, GgMetaPageData *meta)
{
	GgMetaPageData *head;
	GgFilterColumns columns;
	Buffer		buffer = GgLockMeta(index, BUFFER_LOCK_SHARE, &head);

	CopyMeta(index, buffer, meta);
	UnlockReleaseBuffer(buffer);
	GgCheckDirectory(index, meta);
	GgGetFilterColumns(index, &columns);
	GgCheckColumns(index, meta, &columns);
}

/* ---- checks ------------------------------------------------------------------------------ */

/* Rows have words for the columns that a metapage names, so it must name those of the index. */
void
GgCheckColumns(Relation index, const GgMetaPageData *meta, const GgFilterColumns *columns)
{
	int			ncolumns = meta->version == GG_OLDEST_FORMAT ? 0 : meta->ncolumns;
	bool		fit = ncolumns == columns->ncolumns && meta->filter_words == columns->nwords;

	for (int c = 0; c < ncolumns && fit; c++)
		fit = meta->column_types[c] == columns->columns[c].type;
	if (!fit)
		GgReportCorruption(index, GG_META_BLKNO,
						   "the metapage has %d filter columns of %u words, the index %d of %d, "
						   "or their types differ",
						   ncolumns, meta->filter_words, columns->ncolumns, columns->nwords);
}

/* How many pages a segment's array must have. */
static uint64
SegmentPages(const GgMetaPageData *meta, const GgSegment *segment, GgKind kind)
{
	switch (kind)
	{
		case GG_KIND_ADJACENCY:
			return GgArrayPages((uint64) segment->nodes * meta->graph_degree * sizeof(uint32));
		case GG_KIND_TIDS:
			return GgArrayPages((uint64) segment->rows * sizeof(GgTidEntry));
		case GG_KIND_PIVOTS:
			return GgArrayPages((uint64) segment->npivots * sizeof(GgPivotEntry));
		case GG_KIND_OFFSETS:
			return (segment->flags & GG_SEGMENT_OFFSETS) == 0 ? 0 :
				GgArrayPages(((uint64) segment->nodes + 1) * sizeof(uint32));
		case GG_KIND_FILTERS:
			return GgArrayPages((uint64) segment->rows * GgFilterBytes(meta));
		default:
			return 0;
	}
}

/* Pages of an array, whose extents must continue each other. */
static uint64
CountPages(Relation index, const GgMetaPageData *meta, uint32 owner, GgKind kind)
{
	uint64		pages = 0;

	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->segment != owner || extent->kind != kind)
			continue;
		if (extent->first != pages)
			GgReportCorruption(index, GG_META_BLKNO,
							   "the extent at block %u starts with page " UINT64_FORMAT
							   " of kind %d of segment %u, not with page " UINT64_FORMAT,
							   extent->start, extent->first, kind, owner, pages);
		pages += extent->nblocks;
	}
	return pages;
}

/* The delta's extents ascend, from its first page to its last.  VACUUM may leave gaps. */
static void
CheckDelta(Relation index, const GgMetaPageData *meta)
{
	uint64		next = meta->delta_first;
	BlockNumber tail = InvalidBlockNumber;
	bool		any = false;

	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->kind != GG_KIND_DELTA)
			continue;
		if (extent->first < next || (!any && extent->first != next) ||
			(extent->first - meta->delta_first) % GgDeltaPagesPerRow(meta) !=
			(any ? (next - meta->delta_first) % GgDeltaPagesPerRow(meta) : 0))
			GgReportCorruption(index, GG_META_BLKNO,
							   "the delta's extent at block %u starts with page " UINT64_FORMAT
							   ", where " UINT64_FORMAT " is next",
							   extent->start, extent->first, next);
		any = true;
		next = extent->first + extent->nblocks;
		tail = extent->start + extent->nblocks - 1;
	}
	if (meta->version == GG_FORMAT_VERSION && meta->delta_tail != tail)
		GgReportCorruption(index, GG_META_BLKNO,
						   "the delta ends with block %u, and its extents with block %u",
						   meta->delta_tail, tail);
	if (next - meta->delta_first != meta->delta_pages ||
		(any && meta->delta_pages % GgDeltaPagesPerRow(meta) != 0))
		GgReportCorruption(index, GG_META_BLKNO,
						   "the delta has %u pages in use, and extents for " UINT64_FORMAT,
						   meta->delta_pages, next - meta->delta_first);
}

/* Nobody may take the block of a directory page for a free one. */
static void
CheckDirectoryPages(Relation index, const GgMetaPageData *meta)
{
	uint32		blocks = 0;
	uint32		found = 0;

	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->kind != GG_KIND_DIRECTORY)
			continue;
		blocks += extent->nblocks;
		for (int j = 0; j < meta->ndirectory; j++)
			found += meta->directory[j] >= extent->start &&
				meta->directory[j] - extent->start < extent->nblocks;
	}
	if (blocks != meta->ndirectory || found != meta->ndirectory)
		GgReportCorruption(index, GG_META_BLKNO,
						   "the directory has %u pages, and extents for %u blocks, with %u of them",
						   meta->ndirectory, blocks, found);
}

static void
CheckExtents(Relation index, const GgMetaPageData *meta)
{
	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->kind < GG_KIND_META || extent->kind > GG_LAST_KIND ||
			(extent->kind == GG_KIND_META) != (extent->start == GG_META_BLKNO))
			GgReportCorruption(index, GG_META_BLKNO, "the extent at block %u is of kind %u",
							   extent->start, extent->kind);
		if (extent->nblocks == 0 || extent->start >= MaxBlockNumber ||
			extent->nblocks > MaxBlockNumber - extent->start)
			GgReportCorruption(index, GG_META_BLKNO,
							   "the extent of %u blocks at block %u is not inside the relation",
							   extent->nblocks, extent->start);
	}
	CheckDelta(index, meta);
	CheckDirectoryPages(index, meta);
}

static void
CheckPieces(Relation index, const GgMetaPageData *meta, const GgSegment *segment)
{
	uint64		nodes = 0;

	for (int i = 0; i < meta->npieces; i++)
	{
		const GgPiece *piece = &meta->pieces[i];
		uint64		needed;
		uint64		pages;

		if (piece->segment != segment->id)
			continue;
		needed = GgArrayPages((uint64) piece->nodes * GgRowBytes(meta));
		pages = CountPages(index, meta, piece->id, GG_KIND_VECTORS);
		if (piece->nodes == 0 || pages != needed)
			GgReportCorruption(index, GG_META_BLKNO,
							   "the directory has " UINT64_FORMAT " pages of vectors for the %u "
							   "nodes of piece %u, which needs " UINT64_FORMAT,
							   pages, piece->nodes, piece->id, needed);
		nodes += piece->nodes;
	}
	if (nodes != segment->nodes)
		GgReportCorruption(index, GG_META_BLKNO,
						   "segment %u counts %u nodes, its pieces " UINT64_FORMAT, segment->id,
						   segment->nodes, nodes);
}

/*
 * Nobody acts upon numbers that contradict each other.  A segment with more nodes than its pages
 * have room for would make a scan ask for memory for them.  An extent that wraps around would have
 * blocks of others.
 */
void
GgCheckDirectory(Relation index, const GgMetaPageData *meta)
{
	CheckExtents(index, meta);
	if (GgAlgorithmName(meta->algorithm) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index \"%s\" is for graphs of kind %u, which this gpugraph does not build",
						RelationGetRelationName(index), meta->algorithm),
				 errhint("REINDEX the index, or install a newer gpugraph.")));
	for (int i = 0; i < meta->nsegments; i++)
	{
		const GgSegment *segment = &meta->segments[i];

		if (segment->nodes == 0 || segment->nodes > GG_MAX_NODES ||
			segment->empty >= segment->nodes ||
			segment->rows < segment->nodes - segment->empty || segment->dead > segment->rows ||
			((segment->flags & GG_SEGMENT_OFFSETS) == 0 && segment->rows != segment->nodes) ||
			segment->npivots == 0 || segment->npivots > segment->nodes)
			GgReportCorruption(index, GG_META_BLKNO,
							   "segment %u counts %u nodes, %u rows, %u pivots and %u dead rows",
							   segment->id, segment->nodes, segment->rows, segment->npivots,
							   segment->dead);
		if (GgAlgorithmName(segment->algorithm) == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("segment %u of index \"%s\" has a graph of kind %u, "
							"which this gpugraph does not search",
							segment->id, RelationGetRelationName(index), segment->algorithm),
					 errhint("REINDEX the index, or install a newer gpugraph.")));
		CheckPieces(index, meta, segment);
		for (int kind = GG_KIND_ADJACENCY; kind <= GG_LAST_KIND; kind++)
		{
			uint64		pages;

			if (!GgIsOfSegment(kind))
				continue;
			pages = CountPages(index, meta, segment->id, kind);

			if (pages != SegmentPages(meta, segment, kind))
				GgReportCorruption(index, GG_META_BLKNO,
								   "the directory has " UINT64_FORMAT " pages of kind %d for "
								   "segment %u, which needs " UINT64_FORMAT, pages, kind,
								   segment->id, SegmentPages(meta, segment, kind));
		}
	}
}

/* ---- arrays ------------------------------------------------------------------------------ */

const GgSegment *
GgFindSegment(const GgMetaPageData *meta, uint32 id)
{
	for (int i = 0; i < meta->nsegments; i++)
		if (meta->segments[i].id == id)
			return &meta->segments[i];
	return NULL;
}

void
GgFindArray(const GgMetaPageData *meta, uint32 segment, GgKind kind, GgArray *array)
{
	int			n = 0;

	array->segment = segment;
	array->kind = kind;
	array->npages = 0;
	array->nextents = 0;
	array->extents = NULL;

	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].segment == segment && meta->extents[i].kind == kind)
			n++;
	if (n == 0)
		return;
	array->extents = palloc(n * sizeof(*array->extents));
	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->segment != segment || extent->kind != kind)
			continue;
		array->extents[array->nextents].first = (uint32) extent->first;
		array->extents[array->nextents].start = extent->start;
		array->extents[array->nextents].nblocks = extent->nblocks;
		array->nextents++;
		array->npages = (uint32) extent->first + extent->nblocks;
	}
}

void
GgFindVectors(const GgMetaPageData *meta, uint32 segment, GgVectors *vectors)
{
	uint32		first = 0;

	vectors->npieces = 0;
	for (int i = 0; i < meta->npieces; i++)
		vectors->npieces += meta->pieces[i].segment == segment;
	vectors->pieces = palloc(Max(vectors->npieces, 1) * sizeof(GgVectorPiece));
	vectors->npieces = 0;
	for (int i = 0; i < meta->npieces; i++)
	{
		GgVectorPiece *piece = &vectors->pieces[vectors->npieces];

		if (meta->pieces[i].segment != segment)
			continue;
		piece->first = first;
		piece->nodes = meta->pieces[i].nodes;
		GgFindArray(meta, meta->pieces[i].id, GG_KIND_VECTORS, &piece->array);
		first += piece->nodes;
		vectors->npieces++;
	}
}

bool
GgHasNewGeneration(Relation index, const GgMetaPageData *meta)
{
	GgMetaPageData *head;
	Buffer		buffer = GgLockMeta(index, BUFFER_LOCK_SHARE, &head);
	bool		changed = head->generation != meta->generation;

	UnlockReleaseBuffer(buffer);
	return changed;
}

bool
GgReadPageUnlessGone(Relation index, const GgMetaPageData *meta, const GgArray *array,
					 uint32 number, int lockmode, BufferAccessStrategy strategy, Buffer *buffer)
{
	BlockNumber blkno = GgArrayBlock(array, number);

	if (blkno != InvalidBlockNumber)
	{
		*buffer = ReadBufferExtended(index, MAIN_FORKNUM, blkno, RBM_NORMAL, strategy);
		LockBuffer(*buffer, lockmode);
		if (GgStampMatches(BufferGetPage(*buffer), meta->instance, array->segment, array->kind,
						   number))
			return true;
		UnlockReleaseBuffer(*buffer);
		if (GgHasNewGeneration(index, meta))
			return false;
	}
	GgReportCorruption(index, blkno == InvalidBlockNumber ? GG_META_BLKNO : blkno,
					   "page is not number %u of kind %d of segment %u", number, array->kind,
					   array->segment);
}

uint64
GgDeltaSlots(const GgMetaPageData *meta)
{
	uint64		pages = 0;

	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_DELTA)
			pages += meta->extents[i].nblocks;
	return pages == 0 ? 0 : pages / GgDeltaPagesPerRow(meta) * GgDeltaRowsPerPage(meta);
}

/*
 * All delta pages but the last are full.  VACUUM or a merge may give them back, and the last page
 * once there are later ones, after the directory was read: then the page counts as full, too.
 */
int64
GgCountDeltaRows(Relation index, const GgMetaPageData *meta)
{
	int64		rows = (int64) GgDeltaSlots(meta);
	uint32		number = meta->delta_first + meta->delta_pages - 1;
	uint32		per_page;
	GgArray		array;
	BlockNumber blkno;

	if (rows == 0)
		return 0;
	per_page = GgDeltaRowsPerPage(meta);
	GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_DELTA, &array);
	blkno = GgArrayBlock(&array, number);
	if (per_page > 1 && BlockNumberIsValid(blkno))
	{
		Buffer		buffer = ReadBuffer(index, blkno);
		Page		page = BufferGetPage(buffer);

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		if (GgStampMatches(page, meta->instance, GG_NO_SEGMENT, GG_KIND_DELTA, number))
			rows -= per_page - GgDeltaRowCount(index, meta, buffer);
		UnlockReleaseBuffer(buffer);
	}
	return rows;
}

/* ---- changing ---------------------------------------------------------------------------- */

void
GgInitMeta(GgMetaPageData *meta, Relation index, const GgOptions *options)
{
	const GgOpclass *opclass = GgIndexOpclass(index);
	GgFilterColumns columns;

	memset(meta, 0, sizeof(GgMetaPageData));
	meta->magic = GG_MAGIC;
	meta->version = GG_FORMAT_VERSION;
	if (!pg_strong_random(&meta->instance, sizeof(meta->instance)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random instance id")));
	meta->generation = 1;
	meta->dimensions = GgDeclaredDimensions(index);
	meta->metric = opclass->metric;
	meta->element = GgStoredElement(opclass, options);
	meta->algorithm = options->algorithm;
	meta->graph_degree = options->graph_degree;
	meta->intermediate_graph_degree = options->intermediate_graph_degree;
	meta->seed = options->seed;
	meta->next_id = 1;
	meta->delta_tail = InvalidBlockNumber;
	GgGetFilterColumns(index, &columns);
	meta->ncolumns = columns.ncolumns;
	meta->filter_words = columns.nwords;
	for (int c = 0; c < columns.ncolumns; c++)
		meta->column_types[c] = columns.columns[c].type;
	GgAddExtent(meta, GG_META_BLKNO, 1, GG_NO_SEGMENT, GG_KIND_META);
}

GgSegment *
GgAddSegment(GgMetaPageData *meta)
{
	GgSegment  *segment = &meta->segments[meta->nsegments];
	GgPiece    *piece = &meta->pieces[meta->npieces];

	Assert(meta->nsegments < GG_MAX_SEGMENTS && meta->npieces < GG_MAX_PIECES);
	memset(segment, 0, sizeof(*segment));
	memset(piece, 0, sizeof(*piece));
	segment->id = piece->id = piece->segment = meta->next_id++;
	segment->algorithm = meta->algorithm;
	meta->nsegments++;
	meta->npieces++;
	return segment;
}

void
GgPutMeta(Page page, const GgMetaPageData *meta)
{
	GgMetaPageData *head = GgPageGetMeta(page);
	char	   *to = (char *) head;
	Size		bytes;

	Assert(MetaBytes(meta) <= GG_PAGE_PAYLOAD);
	memcpy(to, meta, GG_META_HEAD);
	head->version = GG_FORMAT_VERSION;
	head->delta_tail = InvalidBlockNumber;
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_DELTA)
			head->delta_tail = meta->extents[i].start + meta->extents[i].nblocks - 1;
	to += GG_META_HEAD;
	bytes = meta->nsegments * sizeof(GgSegment);
	memcpy(to, meta->segments, bytes);
	to += bytes;
	bytes = meta->npieces * sizeof(GgPiece);
	memcpy(to, meta->pieces, bytes);
	to += bytes;
	bytes = (meta->nextents - meta->nspilled) * sizeof(GgExtent);
	memcpy(to, &meta->extents[meta->nspilled], bytes);
	to += bytes;
	((PageHeader) page)->pd_lower = to - (char *) page;
}

void
GgFormMetaPage(Page page, const GgMetaPageData *meta)
{
	Assert(meta->nspilled == 0);
	GgInitPage(page, meta->instance, GG_NO_SEGMENT, GG_KIND_META, 0);
	GgPutMeta(page, meta);
}

void
GgStoreMeta(Relation index, Relation heap, Buffer metabuf, GgMetaPageData *meta)
{
	GenericXLogState *xlog;

	GgSettleDirectory(index, heap, meta);
	xlog = GenericXLogStart(index);
	GgPutMeta(GenericXLogRegisterBuffer(xlog, metabuf, 0), meta);
	GenericXLogFinish(xlog);
	UnlockReleaseBuffer(metabuf);
}

/* ---- directory pages --------------------------------------------------------------------- */

static int
InlineRoom(const GgMetaPageData *meta)
{
	return (GG_PAGE_PAYLOAD - GG_META_HEAD - meta->nsegments * sizeof(GgSegment) -
			meta->npieces * sizeof(GgPiece)) / sizeof(GgExtent);
}

/* Do the directory pages say what meta does? */
static bool
SpilledAreCurrent(Relation index, const GgMetaPageData *meta)
{
	GgExtent	extents[GG_DIRECTORY_EXTENTS];

	for (int i = 0; i < meta->ndirectory; i++)
	{
		ReadSpilled(index, meta, i, extents);
		if (memcmp(extents, &meta->extents[i * GG_DIRECTORY_EXTENTS],
				   SpilledOn(meta, i) * sizeof(GgExtent)) != 0)
			return false;
	}
	return true;
}

/* Put extents that only merges and VACUUMs change in front.  Returns how many they are. */
static int
PartitionExtents(GgMetaPageData *meta)
{
	GgExtent   *others = palloc(meta->nextents * sizeof(GgExtent));
	int			nothers = 0;
	int			n = 0;

	for (int i = 0; i < meta->nextents; i++)
	{
		GgKind		kind = meta->extents[i].kind;

		if (kind == GG_KIND_VECTORS || GgIsOfSegment(kind))
			meta->extents[n++] = meta->extents[i];
		else
			others[nothers++] = meta->extents[i];
	}
	memcpy(&meta->extents[n], others, nothers * sizeof(GgExtent));
	pfree(others);
	return n;
}

static void
WriteDirectoryPage(Relation index, const GgMetaPageData *meta, int i, Buffer buffer)
{
	GenericXLogState *xlog = GenericXLogStart(index);
	Page		page = GenericXLogRegisterBuffer(xlog, buffer, GENERIC_XLOG_FULL_IMAGE);
	Size		bytes = SpilledOn(meta, i) * sizeof(GgExtent);

	GgInitPage(page, meta->instance, GG_NO_SEGMENT, GG_KIND_DIRECTORY, i);
	memcpy(PageGetContents(page), &meta->extents[i * GG_DIRECTORY_EXTENTS], bytes);
	((PageHeader) page)->pd_lower = (PageGetContents(page) - (char *) page) + bytes;
	GenericXLogFinish(xlog);
	UnlockReleaseBuffer(buffer);
}

/* Extents of a kind that belong to nobody are of another one from now on. */
static void
RelabelExtents(GgMetaPageData *meta, GgKind from, GgKind to)
{
	for (int i = 0; i < meta->nextents; i++)
	{
		GgExtent   *extent = &meta->extents[i];

		if (extent->kind != from || extent->segment != GG_NO_SEGMENT)
			continue;
		extent->kind = to;
		extent->parked_xid = 0;
	}
}

/*
 * The new pages' blocks are taken before those of the old ones are free, because a crash before the
 * metapage's record leaves the old ones in use.
 */
void
GgSettleDirectory(Relation index, Relation heap, GgMetaPageData *meta)
{
	Buffer		buffers[GG_MAX_DIRECTORY_PAGES];
	int			room = InlineRoom(meta);
	int			npages = 0;
	int			cold;

	if (meta->nspilled <= meta->nextents && meta->nextents - meta->nspilled <= room &&
		SpilledAreCurrent(index, meta))
		return;

	/* leave room for what inserts add; each page may add an extent, too */
	cold = PartitionExtents(meta);
	if (meta->nextents + GG_MAX_DIRECTORY_PAGES > room)
		npages = DirectoryPages(Min(Max(cold, meta->nextents + GG_MAX_DIRECTORY_PAGES - room / 2),
									GG_MAX_EXTENTS));
	RelabelExtents(meta, GG_KIND_DIRECTORY, GG_KIND_TAKEN);
	for (int i = 0; i < npages; i++)
	{
		buffers[i] = GgAllocateBlock(index, heap, meta, &meta->directory[i]);
		GgAddExtent(meta, meta->directory[i], 1, GG_NO_SEGMENT, GG_KIND_DIRECTORY);
	}
	RelabelExtents(meta, GG_KIND_TAKEN, GG_KIND_FREE);
	GgMergeFree(meta);
	meta->ndirectory = npages;
	meta->nspilled = 0;
	if (npages > 0)
	{
		/* all pages have some */
		int			least = (npages - 1) * GG_DIRECTORY_EXTENTS + 1;

		meta->nspilled = Min(Max(Max(cold, meta->nextents - room / 2), least),
							 npages * GG_DIRECTORY_EXTENTS);
	}
	if (meta->nextents - meta->nspilled > room)
		elog(ERROR, "gpugraph directory of %u extents does not fit", meta->nextents);
	for (int i = 0; i < npages; i++)
		WriteDirectoryPage(index, meta, i, buffers[i]);
}

/* ---- extents ----------------------------------------------------------------------------- */

/*
 * The entries of one array must stay in order, so an extent that does not continue the array's
 * last one goes to the end of the directory.
 */
void
GgAddExtent(GgMetaPageData *meta, BlockNumber start, uint32 nblocks, uint32 segment, GgKind kind)
{
	uint64		first = kind == GG_KIND_DELTA ? meta->delta_first : 0;
	GgExtent   *extent;

	for (int i = meta->nextents - 1; i >= 0; i--)
	{
		extent = &meta->extents[i];
		if (extent->segment != segment || extent->kind != kind)
			continue;
		if (kind != GG_KIND_FREE && extent->start + extent->nblocks == start)
		{
			extent->nblocks += nblocks;
			return;
		}
		first = extent->first + extent->nblocks;
		break;
	}
	if (meta->nextents >= GG_MAX_EXTENTS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("gpugraph index has more than %d extents", GG_MAX_EXTENTS),
				 errhint("REINDEX the index.")));
	extent = &meta->extents[meta->nextents++];
	memset(extent, 0, sizeof(GgExtent));
	extent->start = start;
	extent->nblocks = nblocks;
	extent->segment = segment;
	extent->kind = kind;
	extent->first = first;
}

void
GgRemoveExtent(GgMetaPageData *meta, int i)
{
	memmove(&meta->extents[i], &meta->extents[i + 1], (meta->nextents - i - 1) * sizeof(GgExtent));
	meta->nextents--;
}

BlockNumber
GgHighWater(const GgMetaPageData *meta)
{
	BlockNumber high = GG_META_BLKNO + 1;

	for (int i = 0; i < meta->nextents; i++)
		high = Max(high, meta->extents[i].start + meta->extents[i].nblocks);
	return high;
}

static int
CompareStarts(const void *a, const void *b)
{
	const GgExtent *left = a;
	const GgExtent *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

/*
 * All FREE entries go to the end, and those that touch become one.  What may be used earlier stays
 * apart from what is parked longer, as long as the directory has room: an old snapshot forbids the
 * use of what VACUUM gives back under it, and each such VACUUM would add entries, until the
 * directory is full.
 */
void
GgMergeFree(GgMetaPageData *meta)
{
	GgExtent   *free = palloc(Max(meta->nextents, 1) * sizeof(GgExtent));
	bool		crowded = meta->nextents > GG_MAX_EXTENTS / 4;
	int			nfree = 0;
	int			kept = 0;

	for (int i = 0; i < meta->nextents; i++)
	{
		if (meta->extents[i].kind == GG_KIND_FREE)
			free[nfree++] = meta->extents[i];
		else
			meta->extents[kept++] = meta->extents[i];
	}
	qsort(free, nfree, sizeof(GgExtent), CompareStarts);
	meta->nextents = kept;
	for (int i = 0; i < nfree; i++)
	{
		GgExtent   *last = &meta->extents[meta->nextents - 1];

		if (meta->nextents > kept && last->start + last->nblocks == free[i].start &&
			(last->parked_xid == free[i].parked_xid ||
			 (crowded && last->parked_xid != 0 && free[i].parked_xid != 0)))
		{
			last->nblocks += free[i].nblocks;
			last->parked_xid = Max(last->parked_xid, free[i].parked_xid);
		}
		else
			meta->extents[meta->nextents++] = free[i];
	}
	pfree(free);
}

/* Make a run of an extent's pages FREE.  What is left keeps its place in the order. */
static void
FreePart(GgMetaPageData *meta, int i, uint64 first, uint32 npages, uint64 parked_xid)
{
	GgExtent	whole = meta->extents[i];
	uint32		before = (uint32) (first - whole.first);
	uint32		after = whole.nblocks - before - npages;
	int			parts = 1 + (before > 0) + (after > 0);
	GgExtent   *part = &meta->extents[i];

	if (meta->nextents + parts - 1 > GG_MAX_EXTENTS)
		elog(ERROR, "gpugraph directory has no room to free pages");
	memmove(part + parts, part + 1, (meta->nextents - i - 1) * sizeof(GgExtent));
	meta->nextents += parts - 1;
	if (before > 0)
	{
		*part = whole;
		part->nblocks = before;
		part++;
	}
	*part = whole;
	part->start += before;
	part->nblocks = npages;
	part->segment = GG_NO_SEGMENT;
	part->kind = GG_KIND_FREE;
	part->parked_xid = parked_xid;
	if (after > 0)
	{
		part++;
		*part = whole;
		part->start += before + npages;
		part->first += before + npages;
		part->nblocks = after;
	}
}

void
GgFreeDelta(GgMetaPageData *meta, uint32 first, uint32 npages, uint64 parked_xid)
{
	uint32		end = meta->delta_first + meta->delta_pages;
	bool		any = false;

	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];
		uint64		from = Max(extent->first, first);
		uint64		to = Min(extent->first + extent->nblocks, (uint64) first + npages);

		if (extent->kind == GG_KIND_DELTA && from < to)
			FreePart(meta, i, from, (uint32) (to - from), parked_xid);
	}
	for (int i = 0; i < meta->nextents && !any; i++)
	{
		any = meta->extents[i].kind == GG_KIND_DELTA;
		if (any)
			meta->delta_first = (uint32) meta->extents[i].first;
	}
	if (!any)
		meta->delta_first = end;
	meta->delta_pages = end - meta->delta_first;
}

static void
FreeExtent(GgExtent *extent, uint64 parked_xid)
{
	extent->segment = GG_NO_SEGMENT;
	extent->kind = GG_KIND_FREE;
	extent->parked_xid = parked_xid;
}

void
GgFreePiece(GgMetaPageData *meta, uint32 piece, uint64 parked_xid)
{
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].segment == piece && meta->extents[i].kind == GG_KIND_VECTORS)
			FreeExtent(&meta->extents[i], parked_xid);
	for (int i = 0; i < meta->npieces; i++)
		if (meta->pieces[i].id == piece)
		{
			memmove(&meta->pieces[i], &meta->pieces[i + 1],
					(meta->npieces - i - 1) * sizeof(GgPiece));
			meta->npieces--;
			break;
		}
}

void
GgFreeGraph(GgMetaPageData *meta, uint32 segment, uint64 parked_xid)
{
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].segment == segment && GgIsOfSegment(meta->extents[i].kind))
			FreeExtent(&meta->extents[i], parked_xid);
}

void
GgFreeSegment(GgMetaPageData *meta, uint32 segment, uint64 parked_xid)
{
	GgFreeGraph(meta, segment, parked_xid);
	for (int i = meta->npieces - 1; i >= 0; i--)
		if (meta->pieces[i].segment == segment)
			GgFreePiece(meta, meta->pieces[i].id, parked_xid);
}

/*
 * The metapage is locked exclusively, so whoever copied the old directory has taken its snapshot by
 * now.
 *
 * The next id would always do, as in nbtree, but snapshots pass it only after the next transaction.
 * They pass our own as soon as we are done.  It does only if nobody has got an id since.
 * Snapshots and horizons leave out transactions that run VACUUM.  So a snapshot that was taken
 * after a later id had ended has passed ours, though we are still running.
 */
uint64
GgParkingXid(FullTransactionId own)
{
	FullTransactionId next = ReadNextFullTransactionId();

	if (FullTransactionIdIsValid(own))
	{
		FullTransactionId after = own;

		FullTransactionIdAdvance(&after);
		if (FullTransactionIdEquals(after, next))
			return U64FromFullTransactionId(own);
	}
	return U64FromFullTransactionId(next);
}

/* ---- blocks ------------------------------------------------------------------------------ */

/*
 * Blocks are about to be overwritten, so what the directory says of them is checked first: a wrong
 * directory must not destroy anything else.  A block outside the relation could be written by no
 * checkpoint.
 */
static void
CheckFreeBlocks(Relation index, const GgMetaPageData *meta, BlockNumber start, uint32 nblocks)
{
	BlockNumber end = RelationGetNumberOfBlocks(index);
	int			holders = 0;

	for (int i = 0; i < meta->nextents; i++)
		holders += start < meta->extents[i].start + meta->extents[i].nblocks &&
			meta->extents[i].start < start + nblocks;
	if (start == GG_META_BLKNO || start >= end || nblocks > end - start || holders != 1)
		GgReportCorruption(index, GG_META_BLKNO, "block %u, which the directory calls free, is not",
						   start);
}

/* May a FREE extent be written?  Notes in meta that it may. */
static bool
IsReusable(Relation index, Relation heap, GgExtent *extent)
{
	FullTransactionId xid = FullTransactionIdFromU64(extent->parked_xid);

	if (extent->parked_xid == 0)
		return true;
	if (!GlobalVisCheckRemovableFullXid(heap, xid))
		return false;

	/*
	 * Every snapshot here has passed the id.  Standbys cancel queries that have not when they
	 * replay this record.  It covers the extent, so it is written once.
	 */
	if (RelationNeedsWAL(index) && XLogStandbyInfoActive())
		GgLogReuse(index, heap, extent->start, xid);
	extent->parked_xid = 0;
	return true;
}

/* The first nblocks of FREE extent i are in use from now on. */
static BlockNumber
UseFree(GgMetaPageData *meta, int i, uint32 nblocks)
{
	GgExtent   *extent = &meta->extents[i];
	BlockNumber start = extent->start;

	extent->start += nblocks;
	extent->nblocks -= nblocks;
	if (extent->nblocks == 0)
		GgRemoveExtent(meta, i);
	return start;
}

/*
 * Blocks behind the high water mark may exist, because an extension whose metapage change never
 * reached WAL leaves them.  They belong to nobody, and are taken before the relation grows.  So a
 * crash leaks nothing.  Returns the relation's length.
 */
static BlockNumber
CheckHighWater(Relation index, BlockNumber high)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(index);

	/* every extent was written once, so the relation has its blocks */
	if (high > nblocks)
		GgReportCorruption(index, GG_META_BLKNO, "the directory goes on to block %u of %u",
						   high - 1, nblocks);
	return nblocks;
}

Buffer
GgAllocateBlock(Relation index, Relation heap, GgMetaPageData *meta, BlockNumber *blkno)
{
	Buffer		buffer;

	/* those in the metapage first: a change of another one writes directory pages */
	for (int n = 0; n < meta->nextents; n++)
	{
		int			i = (meta->nspilled + n) % meta->nextents;
		GgExtent   *extent = &meta->extents[i];

		if (extent->kind != GG_KIND_FREE)
			continue;
		CheckFreeBlocks(index, meta, extent->start, 1);
		if (!IsReusable(index, heap, extent))
			continue;
		*blkno = UseFree(meta, i, 1);
		return ReadBufferExtended(index, MAIN_FORKNUM, *blkno, RBM_ZERO_AND_LOCK, NULL);
	}

	*blkno = GgHighWater(meta);
	if (*blkno < CheckHighWater(index, *blkno))
		return ReadBufferExtended(index, MAIN_FORKNUM, *blkno, RBM_ZERO_AND_LOCK, NULL);
	buffer = GgExtendOne(index, MAIN_FORKNUM);
	if (BufferGetBlockNumber(buffer) != *blkno)
		elog(ERROR, "relation grew to block %u while its metapage was locked at %u",
			 BufferGetBlockNumber(buffer), *blkno);
	return buffer;
}

/*
 * Make the relation longer.  The last block is logged, because replay must make it as long, even if
 * it ends before the pages are written.
 */
static void
Lengthen(Relation index, const GgMetaPageData *meta, uint32 owner, BlockNumber end)
{
	Buffer		buffer;
	GenericXLogState *xlog;

	GgAppendZeros(index, MAIN_FORKNUM, end);
	buffer = ReadBufferExtended(index, MAIN_FORKNUM, end - 1, RBM_ZERO_AND_LOCK, NULL);
	xlog = GenericXLogStart(index);
	GgInitPage(GenericXLogRegisterBuffer(xlog, buffer, GENERIC_XLOG_FULL_IMAGE), meta->instance,
			   owner, GG_KIND_TAKEN, 0);
	GenericXLogFinish(xlog);
	UnlockReleaseBuffer(buffer);
}

/* The largest free extent serves, unless it is too small or the directory is half full. */
uint32
GgTakeBlocks(Relation index, Relation heap, GgMetaPageData *meta, uint32 least, uint32 most,
			 uint32 owner, BlockNumber *start)
{
	int			best = -1;
	uint32		nblocks = most;

	for (int i = 0; i < meta->nextents; i++)
	{
		GgExtent   *extent = &meta->extents[i];

		if (extent->kind == GG_KIND_FREE && extent->nblocks >= least &&
			(best < 0 || extent->nblocks > meta->extents[best].nblocks) &&
			IsReusable(index, heap, extent))
			best = i;
	}
	if (best >= 0 && meta->nextents < GG_MAX_EXTENTS / 2)
	{
		nblocks = Min(most, meta->extents[best].nblocks);
		CheckFreeBlocks(index, meta, meta->extents[best].start, nblocks);
		*start = UseFree(meta, best, nblocks);
	}
	else
	{
		*start = GgHighWater(meta);
		(void) CheckHighWater(index, *start);
		Lengthen(index, meta, owner, *start + nblocks);
	}
	GgAddExtent(meta, *start, nblocks, owner, GG_KIND_TAKEN);
	return nblocks;
}
