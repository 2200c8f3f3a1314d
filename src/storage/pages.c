/*
 * pages.c
 *		Pages and their stamps, arrays over extents.
 */
#include "storage/pages.h"

#include "catalog/pg_am_d.h"

void
GgInitPage(Page page, uint64 instance, uint32 segment, GgKind kind, uint64 number)
{
	GgPageStamp *stamp;

	PageInit(page, BLCKSZ, sizeof(GgPageStamp));
	stamp = GgPageGetStamp(page);
	stamp->instance = instance;
	stamp->segment = segment;
	stamp->number = (uint32) number;
	stamp->number_high = (uint32) (number >> 32);
	stamp->kind = kind;
}

bool
GgPageIsSound(Page page)
{
	PageHeader	header = (PageHeader) page;

	return !PageIsNew(page) && PageGetSpecialSize(page) == MAXALIGN(sizeof(GgPageStamp)) &&
		header->pd_upper == header->pd_special &&
		header->pd_lower >= MAXALIGN(SizeOfPageHeaderData);
}

bool
GgStampMatches(Page page, uint64 instance, uint32 segment, GgKind kind, uint64 number)
{
	return GgPageIsSound(page) && GgHasStamp(page, instance, segment, kind, number);
}

Buffer
GgReadPage(Relation index, uint64 instance, const GgArray *array, uint64 number)
{
	BlockNumber blkno = GgArrayBlock(array, number);
	Buffer		buffer;

	if (blkno == InvalidBlockNumber)
		GgReportCorruption(index, GG_META_BLKNO,
						   "no extent holds page " UINT64_FORMAT " of kind %d of segment %u",
						   number, array->kind, array->segment);
	buffer = ReadBuffer(index, blkno);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (!GgStampMatches(BufferGetPage(buffer), instance, array->segment, array->kind, number))
		GgReportCorruption(index, blkno,
						   "page is not number " UINT64_FORMAT " of kind %d of segment %u", number,
						   array->kind, array->segment);
	return buffer;
}

Size
GgPayloadBytes(Page page)
{
	return ((PageHeader) page)->pd_lower - MAXALIGN(SizeOfPageHeaderData);
}

bool
GgReadDeltaPage(Relation index, const GgMetaPageData *meta, const GgArray *delta, uint64 number,
				Buffer *buffer)
{
	if (GgArrayBlock(delta, number) == InvalidBlockNumber)
		return false;
	*buffer = GgReadPage(index, meta->instance, delta, number);
	return true;
}

void
GgCopyDeltaVector(Relation index, const GgMetaPageData *meta, const GgArray *delta, uint64 number,
				  const GgDeltaRow *row, char *copy)
{
	const Size	here = GgDeltaVectorHere(meta);

	memcpy(copy, GgDeltaVector(meta, row), here);
	GgReadArray(index, meta->instance, delta, (number + 1) * GG_PAGE_PAYLOAD, copy + here,
				GgRowBytes(meta) - here);
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

void
GgFormArrayPage(Page page, uint64 instance, uint32 segment, GgKind kind, uint32 number,
				const void *data, Size len)
{
	GgInitPage(page, instance, segment, kind, number);
	memcpy(PageGetContents(page), data, len);
	((PageHeader) page)->pd_lower = (PageGetContents(page) - (char *) page) + len;
}

/* ---- arrays ------------------------------------------------------------ */

void
GgCountForTid(Relation index, Relation heap, BlockNumber blkno, const ItemPointerData *tid,
			  BlockNumber *length)
{
	/* in a table that is no heap an address means something else */
	*length = heap->rd_rel->relam == HEAP_TABLE_AM_OID ? RelationGetNumberOfBlocks(heap) :
		InvalidBlockNumber;
	if (ItemPointerGetBlockNumberNoCheck(tid) >= *length)
		GgReportCorruption(index, blkno, "the TID (%u,%u) lies behind the end of the table",
						   ItemPointerGetBlockNumberNoCheck(tid),
						   ItemPointerGetOffsetNumberNoCheck(tid));
}

/* InvalidBlockNumber when no extent holds the page. */
BlockNumber
GgArrayBlock(const GgArray *array, uint64 number)
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
	return array->extents[low].start + (BlockNumber) (number - array->extents[low].first);
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
		uint64		number = offset / GG_PAGE_PAYLOAD;
		Size		skip = offset % GG_PAGE_PAYLOAD;
		Size		piece = Min(len, GG_PAGE_PAYLOAD - skip);
		Buffer		buffer = GgReadPage(index, instance, array, number);

		memcpy(out, PageGetContents(BufferGetPage(buffer)) + skip, piece);
		UnlockReleaseBuffer(buffer);
		out += piece;
		offset += piece;
		len -= piece;
	}
}
