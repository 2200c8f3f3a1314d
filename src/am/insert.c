/*
 * insert.c
 *		Inserts: a row is appended to the delta, the run of rows that are in no segment yet.
 *
 * The usual insert locks the metapage in share mode for an instant, to learn which page is the
 * delta's last.  Then it locks that page alone, and writes one WAL record.  Only an insert that
 * needs a new page locks the metapage exclusively.  Another insert that waits for that lock then
 * finds the new page.  Lock order: metapage, then delta page.
 */
#include "am/am.h"
#include "maintain/merge.h"
#include "storage/directory_check.h"
#include "storage/filling.h"
#include "storage/type.h"

#include "access/generic_xlog.h"
#include "miscadmin.h"
#include "storage/sinval.h"
#include "utils/inval.h"
#include "utils/memutils.h"

/* Pages by which the delta grows between two requests for a merge, at most. */
#define ASK_PAGES			8

static void
CheckDimensions(uint32 expected, uint32 given)
{
	if (expected != 0 && expected != given)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("expected %u dimensions, not %u", expected, given)));
}

/* Put a row that fits a page into its slot.  page is a working copy. */
static void
PutRow(const GgMetaPageData *meta, Page page, uint32 slot, const GgDeltaRow *row)
{
	memcpy(PageGetContents(page) + slot * GgDeltaRowBytes(meta), row, GgDeltaRowBytes(meta));
	GgPageGetStamp(page)->count = slot + 1;
	((PageHeader) page)->pd_lower =
		(PageGetContents(page) - (char *) page) + (slot + 1) * GgDeltaRowBytes(meta);
}

typedef enum AppendResult
{
	APPENDED,
	TAIL_FULL,
	TAIL_MISMATCH				/* not the page that the directory, as seen, names */
} AppendResult;

/* Append a row to the delta's last page.  *length: so many blocks the relation is known to have. */
static AppendResult
AppendToTail(Relation index, const GgMetaPageData *meta, BlockNumber tail, BlockNumber *length,
			 const GgDeltaRow *row)
{
	uint64		number = GgDeltaEnd(meta) - 1;
	Buffer		buffer;
	Page		page;
	uint32		count;
	GenericXLogState *state;

	if (tail >= *length)
		*length = GgCheckHighWater(index, tail + 1);
	buffer = ReadBuffer(index, tail);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	page = BufferGetPage(buffer);
	if (!GgStampMatches(page, meta->instance, GG_NO_SEGMENT, GG_KIND_DELTA, number))
	{
		UnlockReleaseBuffer(buffer);
		return TAIL_MISMATCH;
	}
	count = GgDeltaRowCount(index, meta, buffer);
	if (count >= GgDeltaRowsPerPage(meta))
	{
		UnlockReleaseBuffer(buffer);
		return TAIL_FULL;
	}
	state = GenericXLogStart(index);
	PutRow(meta, GenericXLogRegisterBuffer(state, buffer, 0), count, row);
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
	return APPENDED;
}

/*
 * Rows of the delta are counted in 31 bits, and pages that were appended since the last build in
 * 48.  If a page's number came round again, it would be taken for another page, and rows behind the
 * last number would not be found.
 */
static void
CheckRoom(Relation index, const GgMetaPageData *meta, uint32 npages)
{
	uint64		pages = (uint64) meta->delta_pages + npages;
	uint64		slots = pages / npages * GgDeltaRowsPerPage(meta);

	if (GgDeltaFirst(meta) + pages > GG_DELTA_NUMBERS || slots > GG_MAX_NODES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("index \"%s\" has no room for another row since its last build",
						RelationGetRelationName(index)),
				 errhint("REINDEX the index.")));
}

/* Write the pages of a row longer than a page but the first, each with a WAL record of its own. */
static void
PutRowTail(Relation index, Relation heap, GgMetaPageData *meta, uint64 number,
		   const GgDeltaRow *row)
{
	Size		bytes = GgDeltaVectorOffset(meta) + GgRowBytes(meta);
	Size		done = GG_PAGE_PAYLOAD;

	while (done < bytes)
	{
		Size		piece = Min(GG_PAGE_PAYLOAD, bytes - done);
		BlockNumber blkno;
		Buffer		buffer = GgAllocateBlock(index, heap, meta, GG_KIND_DELTA, &blkno);
		GenericXLogState *state = GenericXLogStart(index);
		Page		page = GenericXLogRegisterBuffer(state, buffer, GENERIC_XLOG_FULL_IMAGE);

		GgAddExtent(meta, blkno, 1, GG_NO_SEGMENT, GG_KIND_DELTA);
		GgInitPage(page, meta->instance, GG_NO_SEGMENT, GG_KIND_DELTA, ++number);
		memcpy(PageGetContents(page), (const char *) row + done, piece);
		((PageHeader) page)->pd_lower = (PageGetContents(page) - (char *) page) + piece;
		GenericXLogFinish(state);
		UnlockReleaseBuffer(buffer);
		done += piece;
	}
}

/* Put the beginning of a row longer than a page.  page is a working copy. */
static void
PutRowHead(Page page, const GgDeltaRow *row)
{
	memcpy(PageGetContents(page), row, GG_PAGE_PAYLOAD);
	GgPageGetStamp(page)->count = 1;
	((PageHeader) page)->pd_lower = (PageGetContents(page) - (char *) page) + GG_PAGE_PAYLOAD;
}

/*
 * Append on new pages; meta is a copy of the metapage.  Of a row longer than a page, the second and
 * later pages are written first, into blocks that the directory on disk still calls free.  Then one
 * record holds the first page and the metapage.  A crash in between leaves free blocks.  True: the
 * log is to be told that the directory is filling up.
 */
static bool
AppendToNewPage(Relation index, Relation heap, Buffer metabuf, GgMetaPageData *meta,
				uint32 dimensions, const GgDeltaRow *row)
{
	GenericXLogState *state;
	Buffer		first;
	BlockNumber blkno;
	Page		page;
	uint32		npages;
	uint64		number = GgDeltaEnd(meta);
	bool		tell;

	if (meta->dimensions == 0)
		meta->dimensions = dimensions;
	npages = GgDeltaPagesPerRow(meta);
	CheckRoom(index, meta, npages);

	first = GgAllocateBlock(index, heap, meta, GG_KIND_DELTA, &blkno);
	GgAddExtent(meta, blkno, 1, GG_NO_SEGMENT, GG_KIND_DELTA);
	if (npages > 1)
		PutRowTail(index, heap, meta, number, row);
	meta->delta_pages += npages;
	GgSettleDirectory(index, heap, meta);
	tell = GgNoteFilling(meta);

	state = GenericXLogStart(index);
	GgPutMeta(GenericXLogRegisterBuffer(state, metabuf, 0), meta);
	page = GenericXLogRegisterBuffer(state, first, GENERIC_XLOG_FULL_IMAGE);
	GgInitPage(page, meta->instance, GG_NO_SEGMENT, GG_KIND_DELTA, number);
	if (npages == 1)
		PutRow(meta, page, 0, row);
	else
		PutRowHead(page, row);
	GenericXLogFinish(state);
	UnlockReleaseBuffer(first);
	return tell;
}

/* The delta has grown.  Have a worker look at it now and then, once there is something to seal. */
static void
AskForMerge(Relation index, const GgMetaPageData *meta)
{
	GgOptions	options;
	uint32		rows;

	GgGetOptions(index, &options);
	rows = Min(GgSealRows(&options, meta, false), GG_IDLE_SEAL_ROWS);
	if (rows > 0 && GgDeltaSlots(meta) >= rows &&
		meta->delta_pages % Min(ASK_PAGES, rows / GgDeltaRowsPerPage(meta) + 1) == 0)
		(void) GgRequestMerge(index, false);
}

/*
 * Append a row of dimensions elements.  Every scan that starts after the return sees it.
 * ereport(ERROR) when the index holds rows of other dimensions.
 */
static void
DeltaAppend(Relation index, Relation heap, uint32 dimensions, const GgDeltaRow *row,
			BlockNumber *length)
{
	for (;;)
	{
		GgMetaPageData *meta;
		GgMetaPageData head;
		BlockNumber tail;
		AppendResult result = TAIL_FULL;
		Buffer		buffer = GgLockMeta(index, BUFFER_LOCK_SHARE, &meta);

		/* all that AppendToTail() uses lies before the segments */
		memcpy(&head, meta, GG_META_HEAD);
		tail = GgDeltaTail(buffer);
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);

		CheckDimensions(head.dimensions, dimensions);

		if (head.delta_pages > 0 && !BlockNumberIsValid(tail))
			GgReportCorruption(index, GG_META_BLKNO, "the directory has no delta page");
		if (head.delta_pages > 0 && GgDeltaPagesPerRow(&head) == 1)
			result = AppendToTail(index, &head, tail, length, row);
		if (result == APPENDED)
		{
			ReleaseBuffer(buffer);
			return;
		}

		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		if (GgDeltaEnd(meta) == GgDeltaEnd(&head) &&
			meta->dimensions == head.dimensions)
		{
			bool		tell;

			if (result == TAIL_MISMATCH)
				GgReportCorruption(index, tail, "page is not the last of the delta");
			meta = palloc(sizeof(GgMetaPageData));
			GgCopyMeta(index, buffer, meta);
			tell = AppendToNewPage(index, heap, buffer, meta, dimensions, row);
			UnlockReleaseBuffer(buffer);
			if (tell)
				GgTellFilling(index, meta);
			AskForMerge(index, meta);
			pfree(meta);
			return;
		}

		/*
		 * Somebody else added a page meanwhile, and the page that we saw may even be in use
		 * elsewhere.  Try again.
		 */
		UnlockReleaseBuffer(buffer);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * What a statement's inserts need from the metapage.  None of it expires, not even the largest
 * length: RaiseLargestLength() says why.
 */
typedef struct InsertCache
{
	GgMetaPageData meta;		/* up to segments; dimensions are those of the value at hand */
	const GgOpclass *opclass;
	GgFilterColumns columns;
	BlockNumber length;			/* the relation had so many blocks */
	uint32		never_left_out; /* GgNeverLeftOut(), or less */
} InsertCache;

static InsertCache *
GetInsertCache(Relation index, IndexInfo *indexInfo)
{
	InsertCache *cache = indexInfo->ii_AmCache;

	if (cache == NULL)
	{
		GgMetaPageData *meta;
		Buffer		buffer;

		GgCheckNotEmpty(index);
		buffer = GgLockMeta(index, BUFFER_LOCK_SHARE, &meta);
		cache = MemoryContextAllocZero(indexInfo->ii_Context, sizeof(InsertCache));
		memcpy(&cache->meta, meta, GG_META_HEAD);
		cache->never_left_out = GgNeverLeftOut(meta);
		UnlockReleaseBuffer(buffer);
		cache->opclass = GgIndexOpclass(index);
		GgCheckOpclass(index, &cache->meta, cache->opclass);
		GgGetFilterColumns(index, &cache->columns);
		GgCheckColumns(index, &cache->meta, &cache->columns);
		indexInfo->ii_AmCache = cache;
	}
	return cache;
}

/* Were rows inserted by a version that did not note their lengths? */
static bool
LacksLengths(const GgMetaPageData *meta)
{
	return meta->largest_length == 0 && (meta->nsegments > 0 || meta->delta_pages > 0);
}

/*
 * The largest length must cover a row before any scan can see it, so it is raised before the row is
 * appended.  A crash in between leaves it larger than need be, which costs scans a few rows more.
 * It only ever grows, so a cached one that covers the row is still good.
 */
static void
RaiseLargestLength(Relation index, InsertCache *cache, const void *row)
{
	float		length = GgRowLength(cache->opclass, &cache->meta, row);
	GgMetaPageData *meta;
	Buffer		buffer;

	if (length <= cache->meta.largest_length || LacksLengths(&cache->meta))
		return;

	buffer = GgLockMeta(index, BUFFER_LOCK_EXCLUSIVE, &meta);
	if (meta->largest_length < length && !LacksLengths(meta))
	{
		GenericXLogState *state = GenericXLogStart(index);

		GgPageGetMeta(GenericXLogRegisterBuffer(state, buffer, 0))->largest_length = length;
		GenericXLogFinish(state);
	}
	cache->meta.largest_length = meta->largest_length;
	UnlockReleaseBuffer(buffer);
}

/*
 * A row is left out, and may be the first one: then the index loses the feature.  The metapage says
 * so before the row is committed: who sees the row finds it there (scan/left_out.c).
 *
 * Plans that count on the feature are slow from now on, so they are made anew.  Sessions of this
 * server are told at once, since another transaction's row may be the first to be committed.  Those
 * of standbys learn of it with the commit.
 */
static void
NoteLeftOut(Relation index, Relation heap, InsertCache *cache, uint32 feature)
{
	SharedInvalidationMessage message;
	GgMetaPageData *meta;
	Buffer		buffer;

	if ((cache->never_left_out & feature) == 0)
		return;
	cache->never_left_out &= ~feature;
	meta = palloc(sizeof(GgMetaPageData));
	buffer = GgLockDirectory(index, meta);
	if ((GgNeverLeftOut(meta) & feature) != 0)
	{
		meta->features &= ~feature;
		GgStoreMeta(index, heap, buffer, meta);
		CacheInvalidateRelcache(heap);
		memset(&message, 0, sizeof(message));
		message.rc.id = SHAREDINVALRELCACHE_ID;
		message.rc.dbId = MyDatabaseId;
		message.rc.relId = RelationGetRelid(heap);
		SendSharedInvalidMessages(&message, 1);
	}
	else
		UnlockReleaseBuffer(buffer);
	pfree(meta);
}

bool
gginsert(Relation index, Datum *values, bool *isnull, ItemPointer heap_tid, Relation heap,
		 IndexUniqueCheck checkUnique, bool indexUnchanged, IndexInfo *indexInfo)
{
	InsertCache *cache;
	MemoryContext context,
				old;
	Datum		value;
	GgDeltaRow *row;
	char	   *vector;

	cache = GetInsertCache(index, indexInfo);
	if (isnull[0])
	{
		NoteLeftOut(index, heap, cache, GG_FEATURE_NO_NULL);
		return false;
	}

	/* what was detoasted goes with this context */
	context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph insert",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);

	value = PointerGetDatum(PG_DETOAST_DATUM(values[0]));
	/* the dimensions of this value; DeltaAppend() compares them with those of the index */
	cache->meta.dimensions = GgValueDimensions(cache->opclass, value);
	row = palloc0(GgDeltaRowBytes(&cache->meta));
	vector = GgDeltaVector(&cache->meta, row);
	if (GgValueToRow(cache->opclass, cache->meta.element, value, cache->meta.dimensions, vector))
	{
		row->tid = *heap_tid;
		row->nulls = GgEncodeFilters(&cache->columns, values + 1, isnull + 1, GgDeltaWords(row));
		RaiseLargestLength(index, cache, vector);
		DeltaAppend(index, heap, cache->meta.dimensions, row, &cache->length);
	}
	else
		NoteLeftOut(index, heap, cache, GG_FEATURE_NO_ZERO);

	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return false;
}
