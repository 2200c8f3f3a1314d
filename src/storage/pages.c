/*
 * pages.c
 *		Pages and their stamps, the metapage's directory, arrays over extents, block allocation.
 */
#include "storage/pages.h"
#include "storage/type.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

void
GgInitPage(Page page, uint64 instance, uint32 segment, GgKind kind, uint32 number)
{
	GgPageStamp *stamp;

	PageInit(page, BLCKSZ, sizeof(GgPageStamp));
	stamp = GgPageGetStamp(page);
	stamp->instance = instance;
	stamp->segment = segment;
	stamp->number = number;
	stamp->kind = kind;
}

/*
 * Page contents are untrusted, so the special area's offset is checked before it is followed.  So
 * is pd_upper, because writers of the page move pd_lower, and GenericXLog clears what lies between
 * the two.
 */
static bool
PageIsSound(Page page)
{
	PageHeader	header = (PageHeader) page;

	return !PageIsNew(page) && PageGetSpecialSize(page) == MAXALIGN(sizeof(GgPageStamp)) &&
		header->pd_upper == header->pd_special &&
		header->pd_lower >= MAXALIGN(SizeOfPageHeaderData);
}

bool
GgStampMatches(Page page, uint64 instance, uint32 segment, GgKind kind, uint32 number)
{
	GgPageStamp *stamp;

	if (!PageIsSound(page))
		return false;
	stamp = GgPageGetStamp(page);
	return stamp->instance == instance && stamp->segment == segment &&
		stamp->kind == kind && stamp->number == number;
}

Buffer
GgReadPage(Relation index, uint64 instance, const GgArray *array, uint32 number, int lockmode)
{
	return GgReadPageExtended(index, instance, array, number, lockmode, NULL);
}

Buffer
GgReadPageExtended(Relation index, uint64 instance, const GgArray *array, uint32 number,
				   int lockmode, BufferAccessStrategy strategy)
{
	BlockNumber blkno = GgArrayBlock(array, number);
	Buffer		buffer;

	if (blkno == InvalidBlockNumber)
		GgReportCorruption(index, GG_META_BLKNO, "no extent holds page %u of kind %d of segment %u",
						   number, array->kind, array->segment);
	buffer = ReadBufferExtended(index, MAIN_FORKNUM, blkno, RBM_NORMAL, strategy);
	LockBuffer(buffer, lockmode);
	if (!GgStampMatches(BufferGetPage(buffer), instance, array->segment, array->kind, number))
		GgReportCorruption(index, blkno, "page is not number %u of kind %d of segment %u",
						   number, array->kind, array->segment);
	return buffer;
}

Size
GgPayloadBytes(Page page)
{
	return ((PageHeader) page)->pd_lower - MAXALIGN(SizeOfPageHeaderData);
}

/* A count too small would hide rows, and the next insert would overwrite one of them. */
uint32
GgDeltaRowCount(Relation index, const GgMetaPageData *meta, Buffer buffer)
{
	Page		page = BufferGetPage(buffer);
	uint32		count = GgPageGetStamp(page)->count;

	if (count == 0 || count > GgDeltaRowsPerPage(meta) ||
		GgPayloadBytes(page) != Min(count * GgDeltaRowBytes(meta), GG_PAGE_PAYLOAD))
		GgReportCorruption(index, BufferGetBlockNumber(buffer),
						   "the delta page counts %u rows in %zu bytes, and has room for %u",
						   count, GgPayloadBytes(page), GgDeltaRowsPerPage(meta));
	return count;
}

/* ---- metapage ---------------------------------------------------------- */

Buffer
GgLockMeta(Relation index, int lockmode, GgMetaPageData **meta)
{
	Buffer		buffer = ReadBuffer(index, GG_META_BLKNO);
	Page		page = BufferGetPage(buffer);
	GgMetaPageData *data = GgPageGetMeta(page);

	LockBuffer(buffer, lockmode);
	if (!PageIsSound(page) || GgPageGetStamp(page)->kind != GG_KIND_META || data->magic != GG_MAGIC)
		GgReportCorruption(index, GG_META_BLKNO, "it is not a gpugraph metapage");
	if (data->version != GG_FORMAT_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index \"%s\" has format version %u, this gpugraph reads version %u",
						RelationGetRelationName(index), data->version, GG_FORMAT_VERSION),
				 errhint("REINDEX the index.")));
	if (data->nsegments > GG_MAX_SEGMENTS || data->nextents > GG_MAX_EXTENTS ||
		data->dimensions > GG_MAX_DIM ||
		data->metric < GG_METRIC_L2 || data->metric > GG_METRIC_L1 ||
		data->element < GG_ELEMENT_F32 || data->element > GG_ELEMENT_F16 ||
		data->graph_degree < 1 || data->graph_degree > GG_MAX_DEGREE ||
		(data->dimensions == 0 && (data->nsegments > 0 || data->delta_pages > 0)) ||
		!(data->largest_length >= 0) || GgPayloadBytes(page) != sizeof(GgMetaPageData))
		GgReportCorruption(index, GG_META_BLKNO, "a field of the metapage is out of range");
	*meta = data;
	return buffer;
}

/* How many pages a segment's array must have. */
static uint64
SegmentPages(const GgMetaPageData *meta, const GgSegment *segment, GgKind kind)
{
	switch (kind)
	{
		case GG_KIND_VECTORS:
			return GgArrayPages((uint64) segment->nodes * GgRowBytes(meta));
		case GG_KIND_ADJACENCY:
			return GgArrayPages((uint64) segment->nodes * meta->graph_degree * sizeof(uint32));
		case GG_KIND_TIDS:
			return GgArrayPages((uint64) segment->rows * sizeof(GgTidEntry));
		case GG_KIND_PIVOTS:
			return GgArrayPages((uint64) segment->npivots * sizeof(GgPivotEntry));
		case GG_KIND_OFFSETS:
			return segment->rows == segment->nodes ? 0 :
				GgArrayPages(((uint64) segment->nodes + 1) * sizeof(uint32));
		default:
			return 0;
	}
}

/* Check every extent, and that those of the delta have as many pages as it. */
static void
CheckExtents(Relation index, const GgMetaPageData *meta)
{
	uint64		delta_pages = 0;

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
		if (extent->kind == GG_KIND_DELTA)
			delta_pages += extent->nblocks;
	}
	if (delta_pages != meta->delta_pages ||
		(delta_pages > 0 && delta_pages % GgDeltaPagesPerRow(meta) != 0))
		GgReportCorruption(index, GG_META_BLKNO,
						   "the delta has %u pages in use, and extents for " UINT64_FORMAT,
						   meta->delta_pages, delta_pages);
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
	for (int i = 0; i < meta->nsegments; i++)
	{
		const GgSegment *segment = &meta->segments[i];
		uint64		pages[GG_LAST_KIND + 1] = {0};

		if (segment->nodes == 0 || segment->nodes > GG_MAX_NODES ||
			segment->rows < segment->nodes || segment->dead > segment->rows ||
			segment->npivots == 0 || segment->npivots > segment->nodes)
			GgReportCorruption(index, GG_META_BLKNO,
							   "segment %u counts %u nodes, %u rows, %u pivots and %u dead rows",
							   segment->id, segment->nodes, segment->rows, segment->npivots,
							   segment->dead);
		for (int j = 0; j < meta->nextents; j++)
			if (meta->extents[j].segment == segment->id)
				pages[meta->extents[j].kind] += meta->extents[j].nblocks;
		for (int kind = GG_KIND_VECTORS; kind <= GG_KIND_OFFSETS; kind++)
			if (pages[kind] != SegmentPages(meta, segment, kind))
				GgReportCorruption(index, GG_META_BLKNO,
								   "the directory has " UINT64_FORMAT " pages of kind %d for "
								   "segment %u, which needs " UINT64_FORMAT, pages[kind], kind,
								   segment->id, SegmentPages(meta, segment, kind));
	}
}

void
GgReadMeta(Relation index, GgMetaPageData *meta)
{
	GgMetaPageData *data;
	Buffer		buffer = GgLockMeta(index, BUFFER_LOCK_SHARE, &data);

	memcpy(meta, data, offsetof(GgMetaPageData, extents) + data->nextents * sizeof(GgExtent));
	UnlockReleaseBuffer(buffer);
	GgCheckDirectory(index, meta);
}

void
GgInitMeta(GgMetaPageData *meta, Relation index, const GgOptions *options)
{
	const GgOpclass *opclass = GgIndexOpclass(index);

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
	meta->algorithm = GG_ALGORITHM_CAGRA;
	meta->graph_degree = options->graph_degree;
	meta->intermediate_graph_degree = options->intermediate_graph_degree;
	meta->seed = options->seed;
	meta->next_segment = 1;
	GgAddExtent(meta, GG_META_BLKNO, 1, GG_NO_SEGMENT, GG_KIND_META);
}

void
GgFormMetaPage(Page page, const GgMetaPageData *meta)
{
	GgInitPage(page, meta->instance, GG_NO_SEGMENT, GG_KIND_META, 0);
	memcpy(GgPageGetMeta(page), meta, sizeof(GgMetaPageData));
	((PageHeader) page)->pd_lower =
		(PageGetContents(page) - (char *) page) + sizeof(GgMetaPageData);
}

/* ---- arrays ------------------------------------------------------------ */

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
		array->extents[array->nextents].first = array->npages;
		array->extents[array->nextents].start = extent->start;
		array->extents[array->nextents].nblocks = extent->nblocks;
		array->nextents++;
		array->npages += extent->nblocks;
	}

	/* numbers of delta pages start with the first that ever was, which VACUUM may have cut off */
	if (kind == GG_KIND_DELTA)
	{
		for (int i = 0; i < array->nextents; i++)
			array->extents[i].first += meta->delta_first;
		array->npages += meta->delta_first;
	}
}

/* InvalidBlockNumber when no extent holds the page. */
BlockNumber
GgArrayBlock(const GgArray *array, uint32 number)
{
	int			low = 0,
				high = array->nextents - 1;

	while (low < high)
	{
		int			mid = (low + high + 1) / 2;

		if (array->extents[mid].first <= number)
			low = mid;
		else
			high = mid - 1;
	}
	if (high < 0 || number < array->extents[low].first ||
		number - array->extents[low].first >= array->extents[low].nblocks)
		return InvalidBlockNumber;
	return array->extents[low].start + (number - array->extents[low].first);
}

uint64
GgArrayPages(uint64 bytes)
{
	return (bytes + GG_PAGE_PAYLOAD - 1) / GG_PAGE_PAYLOAD;
}

void
GgReadArray(Relation index, uint64 instance, const GgArray *array, uint64 offset, void *dst,
			Size len)
{
	char	   *out = dst;

	while (len > 0)
	{
		uint32		number = (uint32) (offset / GG_PAGE_PAYLOAD);
		Size		skip = offset % GG_PAGE_PAYLOAD;
		Size		piece = Min(len, GG_PAGE_PAYLOAD - skip);
		Buffer		buffer = GgReadPage(index, instance, array, number, BUFFER_LOCK_SHARE);

		memcpy(out, PageGetContents(BufferGetPage(buffer)) + skip, piece);
		UnlockReleaseBuffer(buffer);
		out += piece;
		offset += piece;
		len -= piece;
	}
}

/* ---- extents ----------------------------------------------------------- */

/*
 * The entries of one array must stay in order, so an extent that does not continue the array's
 * last one goes to the end of the directory.
 */
void
GgAddExtent(GgMetaPageData *meta, BlockNumber start, uint32 nblocks, uint32 segment, GgKind kind)
{
	GgExtent   *extent;

	for (int i = meta->nextents - 1; i >= 0; i--)
	{
		extent = &meta->extents[i];
		if (extent->segment != segment || extent->kind != kind)
			continue;
		if (extent->start + extent->nblocks == start)
		{
			extent->nblocks += nblocks;
			return;
		}
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
}

BlockNumber
GgHighWater(const GgMetaPageData *meta)
{
	BlockNumber high = GG_META_BLKNO + 1;

	for (int i = 0; i < meta->nextents; i++)
		high = Max(high, meta->extents[i].start + meta->extents[i].nblocks);
	return high;
}

/*
 * A block is about to be overwritten, so what the directory says of it is checked first: a wrong
 * directory must not destroy anything else.  A block outside the relation could be written by no
 * checkpoint.
 */
static void
CheckFreeBlock(Relation index, const GgMetaPageData *meta, BlockNumber blkno)
{
	int			holders = 0;

	for (int i = 0; i < meta->nextents; i++)
		holders += blkno >= meta->extents[i].start &&
			blkno - meta->extents[i].start < meta->extents[i].nblocks;
	if (blkno == GG_META_BLKNO || blkno >= RelationGetNumberOfBlocks(index) || holders != 1)
		GgReportCorruption(index, GG_META_BLKNO, "block %u, which the directory calls free, is not",
						   blkno);
}

/*
 * Blocks behind the high water mark may exist, because an extension whose metapage change never
 * reached WAL leaves them.  They belong to nobody, and are taken before the relation grows.  So a
 * crash leaks nothing.
 */
Buffer
GgAllocateBlock(Relation index, Relation heap, GgMetaPageData *meta, BlockNumber *blkno)
{
	BlockNumber nblocks;
	Buffer		buffer;

	for (int i = 0; i < meta->nextents; i++)
	{
		GgExtent   *extent = &meta->extents[i];

		if (extent->kind != GG_KIND_FREE)
			continue;
		CheckFreeBlock(index, meta, extent->start);
		if (extent->parked_xid != 0)
		{
			FullTransactionId xid = FullTransactionIdFromU64(extent->parked_xid);

			if (!GlobalVisCheckRemovableFullXid(heap, xid))
				continue;

			/*
			 * Every snapshot here has passed the id.  Standbys cancel queries that have not when
			 * they replay this record.  It covers the extent, so it is written once.
			 */
			if (RelationNeedsWAL(index) && XLogStandbyInfoActive())
				GgLogReuse(index, heap, extent->start, xid);
			extent->parked_xid = 0;
		}
		*blkno = extent->start;
		extent->start++;
		extent->nblocks--;
		if (extent->nblocks == 0)
		{
			memmove(extent, extent + 1, (meta->nextents - i - 1) * sizeof(GgExtent));
			meta->nextents--;
		}
		return ReadBufferExtended(index, MAIN_FORKNUM, *blkno, RBM_ZERO_AND_LOCK, NULL);
	}

	*blkno = GgHighWater(meta);
	nblocks = RelationGetNumberOfBlocks(index);
	if (*blkno < nblocks)
		return ReadBufferExtended(index, MAIN_FORKNUM, *blkno, RBM_ZERO_AND_LOCK, NULL);
	/* every extent was written once, so the relation has its blocks */
	if (*blkno > nblocks)
		GgReportCorruption(index, GG_META_BLKNO, "the directory goes on to block %u of %u",
						   *blkno - 1, nblocks);
	buffer = GgExtendOne(index, MAIN_FORKNUM);
	if (BufferGetBlockNumber(buffer) != *blkno)
		elog(ERROR, "relation grew to block %u while its metapage was locked at %u",
			 BufferGetBlockNumber(buffer), *blkno);
	return buffer;
}
