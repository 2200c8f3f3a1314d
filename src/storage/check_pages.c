/*
 * check_pages.c
 *		gpugraph_check(): pages, and arrays front to back.
 */
#include "storage/check.h"
#include "storage/extents.h"

#include "miscadmin.h"

const char *
GgKindName(uint16 kind)
{
	static const char *const names[] = {
		[GG_KIND_META] = "metapage",
		[GG_KIND_VECTORS] = "vectors",
		[GG_KIND_ADJACENCY] = "adjacency",
		[GG_KIND_TIDS] = "tids",
		[GG_KIND_PIVOTS] = "pivots",
		[GG_KIND_OFFSETS] = "offsets",
		[GG_KIND_DELTA] = "delta",
		[GG_KIND_FREE] = "free",
		[GG_KIND_DIRECTORY] = "directory",
		[GG_KIND_TAKEN] = "taken",
		[GG_KIND_FILTERS] = "filters",
		[GG_KIND_CODES] = "codes",
		[GG_KIND_SAMPLE] = "sample",
		[GG_KIND_MEAN] = "mean",
		[GG_KIND_CALIBRATION] = "calibration"
	};

	return kind >= GG_KIND_META && kind <= GG_LAST_KIND ? names[kind] : "unknown";
}

/* ---- pages ------------------------------------------------------------- */

void
GgReadCheckedPage(GgCheck *check, BlockNumber blkno, uint32 segment, GgKind kind, uint64 number,
				  Page copy)
{
	Buffer		buffer;
	Page		page;
	PageHeader	header = (PageHeader) copy;
	GgPageStamp *stamp;
	uint64		stamped;

	CHECK_FOR_INTERRUPTS();
	buffer = ReadBufferExtended(check->index, MAIN_FORKNUM, blkno, RBM_NORMAL, check->strategy);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	memcpy(copy, page, BLCKSZ);
	UnlockReleaseBuffer(buffer);

	if (PageIsNew(copy))
		GgReportCorruption(check->index, blkno,
						   "the page is empty, where page " UINT64_FORMAT " of %s should be",
						   number, GgKindName(kind));
	if (PageGetPageSize(copy) != BLCKSZ || header->pd_upper > BLCKSZ ||
		header->pd_special != BLCKSZ - MAXALIGN(sizeof(GgPageStamp)) ||
		header->pd_lower < MAXALIGN(SizeOfPageHeaderData) || header->pd_lower > header->pd_special)
		GgReportCorruption(check->index, blkno,
						   "the page header is damaged (lower %u, upper %u, special %u)",
						   header->pd_lower, header->pd_upper, header->pd_special);

	stamp = GgPageGetStamp(copy);
	if (stamp->instance != check->meta->instance)
		GgReportCorruption(check->index, blkno,
						   "the page is stamped with another build of the index");
	if (stamp->kind != kind)
		GgReportCorruption(check->index, blkno, "the page is stamped %s (%u) instead of %s",
						   GgKindName(stamp->kind), stamp->kind, GgKindName(kind));
	if (stamp->segment != segment)
		GgReportCorruption(check->index, blkno,
						   "the %s page is stamped with segment %u instead of %u", GgKindName(kind),
						   stamp->segment, segment);
	stamped = (uint64) stamp->number_high << 32 | stamp->number;
	if (stamped != number)
		GgReportCorruption(check->index, blkno,
						   "the %s page is stamped with number " UINT64_FORMAT " instead of "
						   UINT64_FORMAT, GgKindName(kind), stamped, number);
	if (kind != GG_KIND_DELTA && stamp->count != 0)
		GgReportCorruption(check->index, blkno, "the %s page is stamped with a count of %u rows",
						   GgKindName(kind), stamp->count);
}

/* ---- arrays, front to back --------------------------------------------- */

void
GgCheckReaderBegin(GgCheckReader *reader, GgCheck *check, uint32 owner, GgKind kind, uint64 bytes)
{
	reader->check = check;
	GgFindArray(check->meta, owner, kind, &reader->array);
	reader->bytes = bytes;
	reader->position = 0;
	reader->number = 0;
	reader->blkno = InvalidBlockNumber;
	reader->used = GG_PAGE_PAYLOAD;
}

static void
ReaderNextPage(GgCheckReader *reader)
{
	GgCheck	   *check = reader->check;
	Page		page = (Page) reader->page.data;
	uint64		left = reader->bytes - reader->position;
	Size		expected = Min(left, (uint64) GG_PAGE_PAYLOAD);
	Size		found;

	reader->number = (uint32) (reader->position / GG_PAGE_PAYLOAD);
	reader->blkno = GgArrayBlock(&reader->array, reader->number);
	GgReadCheckedPage(check, reader->blkno, reader->array.segment, reader->array.kind,
					  reader->number, page);
	found = GgPayloadBytes(page);
	if (found != expected)
		GgReportCorruption(check->index, reader->blkno,
						   "the %s page holds %zu bytes instead of %zu",
						   GgKindName(reader->array.kind), found, expected);
	reader->used = 0;
}

BlockNumber
GgCheckReaderNext(GgCheckReader *reader, void *dst, Size len)
{
	BlockNumber first = InvalidBlockNumber;
	char	   *to = dst;

	while (len > 0)
	{
		Size		piece;

		if (reader->used == GG_PAGE_PAYLOAD)
			ReaderNextPage(reader);
		if (first == InvalidBlockNumber)
			first = reader->blkno;
		piece = Min(len, GG_PAGE_PAYLOAD - reader->used);
		memcpy(to, PageGetContents((Page) reader->page.data) + reader->used, piece);
		reader->used += piece;
		reader->position += piece;
		to += piece;
		len -= piece;
	}
	return first;
}

void
GgCheckReaderEnd(GgCheckReader *reader)
{
	Assert(reader->position == reader->bytes);
	if (reader->array.extents != NULL)
		pfree(reader->array.extents);
}
