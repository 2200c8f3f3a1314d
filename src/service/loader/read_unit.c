/*
 * read_unit.c
 *		A unit's pages, read into a staging chunk.
 *
 * An array's pages are its bytes in order (format.h), so a chunk is a run of pages put end to end.
 *
 * No snapshot is held.  VACUUM and merges may recycle extents meanwhile, which the stamps of their
 * pages tell.  Graph ids are checked here, once, and never again: kernels trust what the device
 * holds.
 *
 * Rows of the delta that VACUUM has cleared are loaded as NaN, which comes last in every order.
 *
 * Heads of rows are copied as they are at that time.  VACUUM may clear a TID later: the device's
 * TID is a hint, and the page decides.
 */
#include "service/loader/unit.h"

#include <math.h>

#include "access/relation.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

Relation
GgOpenLoaded(Oid relation, const GgRelFileLocator *locator)
{
	Relation	index = try_relation_open(relation, AccessShareLock);

	if (index == NULL)
		return NULL;
	if (index->rd_rel->relkind != RELKIND_INDEX || !GgIsGpugraph(index) ||
		(locator != NULL && !GgSameLocator(&GgLocator(index), locator)))
	{
		relation_close(index, AccessShareLock);
		return NULL;
	}
	return index;
}

/* Read one page and check its stamp.  False: it is another page (recycled since, or corrupt). */
static bool
ReadPage(GgReader *reader, Relation index, const GgArray *array, uint64 number, Buffer *buffer)
{
	BlockNumber blkno = GgArrayBlock(array, number);

	reader->wrong_block = blkno;
	reader->wrong_page = number;
	reader->wrong_kind = array->kind;
	/* the end of the relation may have been given back since the directory was read */
	if (blkno == InvalidBlockNumber || blkno >= reader->length)
		return false;
	*buffer = ReadBufferExtended(index, MAIN_FORKNUM, blkno, RBM_NORMAL, reader->strategy);
	LockBuffer(*buffer, BUFFER_LOCK_SHARE);
	if (GgStampMatches(BufferGetPage(*buffer), reader->meta->instance, array->segment, array->kind,
					   number))
		return true;
	UnlockReleaseBuffer(*buffer);
	return false;
}

static bool
IdIsValid(uint32 id, uint32 limit)
{
	return id == GG_NO_NODE || (id & ~GG_EDGE_MARK) < limit;
}

/* Find the first id that is out of range, with or without a mark.  count: there is none. */
static Size
FindWrongId(const uint32 *ids, Size count, uint32 limit)
{
	uint32		worst = 0;
	Size		i = 0;

	for (Size j = 0; j < count; j++)
		worst = Max(worst, ids[j] == GG_NO_NODE ? 0 : (ids[j] & ~GG_EDGE_MARK) + 1);
	if (worst <= limit)
		return count;
	while (IdIsValid(ids[i], limit))
		i++;
	return i;
}

static Size
FindWrongPivot(const uint32 *words, Size count, uint64 first, const GgLoadList *list)
{
	const uint32 entry_words = sizeof(GgPivotEntry) / sizeof(uint32);

	for (Size i = 0; i < count; i++)
	{
		if ((first + i) % entry_words == 0)
		{
			if (words[i] >= list->n)
				return i;
		}
		else if (words[i] != GG_NO_NODE && words[i] >= list->shape.npivots)
			return i;
	}
	return count;
}

/* A damaged directory may name no extents. */
static void
FreeArray(GgArray *array)
{
	if (array->extents != NULL)
		pfree(array->extents);
}

/* Read a run of an array's pages; returns its bytes, 0 when a page is not what it should be. */
static uint64
ReadSegmentUnit(GgReader *reader, Relation index, const GgUnit *unit, char *chunk, uint64 *offset)
{
	const GgLoadList *list = &reader->job->lists[unit->list];
	uint64		bytes;
	GgArray		array;
	uint32	   *words;
	Size		nwords;
	Size		wrong;

	*offset = (uint64) unit->first * GG_PAGE_PAYLOAD;
	bytes = Min((uint64) unit->npages * GG_PAGE_PAYLOAD, unit->bytes - *offset);
	*offset += unit->base;
	GgFindArray(reader->meta, unit->owner, unit->kind, &array);
	for (uint32 i = 0; i < unit->npages; i++)
	{
		uint64		done = (uint64) i * GG_PAGE_PAYLOAD;
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		if (!ReadPage(reader, index, &array, unit->first + i, &buffer))
		{
			FreeArray(&array);
			return 0;
		}
		memcpy(chunk + done, PageGetContents(BufferGetPage(buffer)),
			   Min(GG_PAGE_PAYLOAD, bytes - done));
		UnlockReleaseBuffer(buffer);
	}

	words = (uint32 *) chunk;
	nwords = wrong = bytes / sizeof(uint32);
	if (unit->kind == GG_KIND_ADJACENCY)
		wrong = FindWrongId(words, nwords, list->n);
	else if (unit->kind == GG_KIND_PIVOTS)
		wrong = FindWrongPivot(words, nwords, *offset / sizeof(uint32), list);
	if (wrong < nwords)
		GgReportCorruption(index, GgArrayBlock(&array, unit->first +
											   wrong * sizeof(uint32) / GG_PAGE_PAYLOAD),
						   "the graph of segment %u names node or pivot %u, which is not there",
						   list->segment, words[wrong]);
	FreeArray(&array);
	return bytes;
}

static void
PutNaN(const GgMetaPageData *meta, char *row)
{
	if (meta->element == GG_ELEMENT_F16)
		for (uint32 i = 0; i < meta->dimensions; i++)
			((uint16 *) row)[i] = 0x7E00;
	else
		for (uint32 i = 0; i < meta->dimensions; i++)
			((float *) row)[i] = (float) NAN;
}

/* Copy the rows that start on a delta page; returns whether the last one is alive. */
static bool
CopyDeltaRows(const GgMetaPageData *meta, Page page, char *out)
{
	uint32		per_page = GgDeltaRowsPerPage(meta);
	uint32		count = GgPageGetStamp(page)->count;
	Size		row_bytes = GgRowBytes(meta);
	bool		alive = true;

	for (uint32 slot = 0; slot < per_page; slot++)
	{
		const GgDeltaRow *row = GgDeltaRowOf(meta, page, slot);

		alive = slot < count && ItemPointerIsValid(&row->tid);
		if (!alive)
			PutNaN(meta, out);
		else
			memcpy(out, GgDeltaVector(meta, row), GgDeltaVectorHere(meta));
		out += row_bytes;
	}
	return alive;
}

/* Copy the heads of the rows that start on a delta page, or a word of each: 8 bytes a row. */
static void
CopyDeltaWords(const GgMetaPageData *meta, Page page, const GgUnit *unit, uint64 *out)
{
	uint32		count = GgPageGetStamp(page)->count;

	for (uint32 slot = 0; slot < GgDeltaRowsPerPage(meta); slot++)
	{
		const GgDeltaRow *row = GgDeltaRowOf(meta, page, slot);

		if (slot >= count)
			out[slot] = 0;
		else if (unit->part == GG_PART_TIDS)
			memcpy(&out[slot], row, sizeof(uint64));
		else
			out[slot] = (uint64) GgDeltaWords(row)[unit->word];
	}
}

StaticAssertDecl(sizeof(GgTidEntry) == sizeof(uint64), "heads and words are copied alike");

/* Read the rest of a row longer than a page; false when a page is not what it should be. */
static bool
ReadRowTail(GgReader *reader, Relation index, const GgArray *array, uint64 number, char *out)
{
	uint32		npages = GgDeltaPagesPerRow(reader->meta);
	Size		row_bytes = GgRowBytes(reader->meta);

	for (uint32 p = 1; p < npages; p++)
	{
		Size		done = (Size) p * GG_PAGE_PAYLOAD - GgDeltaVectorOffset(reader->meta);
		Buffer		buffer;

		if (!ReadPage(reader, index, array, number + p, &buffer))
			return false;
		memcpy(out + done, PageGetContents(BufferGetPage(buffer)),
			   Min(GG_PAGE_PAYLOAD, row_bytes - done));
		UnlockReleaseBuffer(buffer);
	}
	return true;
}

/* Fill in the rows of a page that VACUUM has given back. */
static void
PutNoRows(const GgMetaPageData *meta, gg_part part, char *out)
{
	uint32		per_page = GgDeltaRowsPerPage(meta);

	if (part != GG_PART_ROWS)
		memset(out, 0, per_page * sizeof(uint64));
	else
		for (uint32 slot = 0; slot < per_page; slot++)
			PutNaN(meta, out + slot * GgRowBytes(meta));
}

/*
 * Read the rows of a run of full delta pages, or their heads, or a word of each; returns their
 * bytes, 0 when a page is not what it should be.
 */
static uint64
ReadDeltaUnit(GgReader *reader, Relation index, const GgUnit *unit, char *chunk, uint64 *offset)
{
	const GgMetaPageData *meta = reader->meta;
	uint32		npages = GgDeltaPagesPerRow(meta);
	bool		vectors = unit->part == GG_PART_ROWS;
	Size		step = GgDeltaRowsPerPage(meta) * (vectors ? GgRowBytes(meta) : sizeof(uint64));
	char	   *out = chunk;
	bool		ok = true;
	GgArray		array;

	*offset = (uint64) (unit->first / npages) * step +
		(uint64) unit->word * reader->job->lists[unit->list].n * sizeof(uint64);
	GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_DELTA, &array);
	for (uint32 i = 0; i < unit->npages && ok; i += npages)
	{
		uint64		number = GgDeltaFirst(meta) + unit->first + i;
		Buffer		buffer;
		bool		alive;

		CHECK_FOR_INTERRUPTS();
		if (GgArrayBlock(&array, number) == InvalidBlockNumber)
		{
			PutNoRows(meta, unit->part, out);
			out += step;
			continue;
		}
		ok = ReadPage(reader, index, &array, number, &buffer);
		if (!ok)
			break;
		alive = vectors && CopyDeltaRows(meta, BufferGetPage(buffer), out);
		if (!vectors)
			CopyDeltaWords(meta, BufferGetPage(buffer), unit, (uint64 *) out);
		UnlockReleaseBuffer(buffer);
		if (alive)
			ok = ReadRowTail(reader, index, &array, number, out);
		out += step;
	}
	FreeArray(&array);
	return ok ? out - chunk : 0;
}

/* While a process waits for the load, the index stays locked.  Only the first reader does this. */
static void
KeepIndexLocked(GgReader *reader, Relation index)
{
	bool		keep = LockHasWaiters(&reader->lock, ExclusiveLock, false);

	if (keep && !reader->kept)
		LockRelation(index, AccessShareLock);
	else if (!keep && reader->kept)
		UnlockRelation(index, AccessShareLock);
	reader->kept = keep;
}

bool
GgBringUnit(GgReader *reader, const GgUnit *unit)
{
	GgLoad	   *load = reader->load;
	char	   *chunk = GgLoadGetChunk(load);
	Relation	index;
	uint64		offset;
	uint64		bytes = 0;

	if (chunk == NULL)
		return false;
	index = GgOpenLoaded(reader->job->relation, &reader->job->key.locator);
	if (index != NULL)
	{
		reader->length = RelationGetNumberOfBlocks(index);
		if (unit->kind == GG_KIND_DELTA)
			bytes = ReadDeltaUnit(reader, index, unit, chunk, &offset);
		else
			bytes = ReadSegmentUnit(reader, index, unit, chunk, &offset);
		if (bytes == 0)
		{
			GgMetaPageData *now = GgReadDirectory(index);

			/* has a VACUUM or merge recycled the page?  Then the directory is another one by now */
			if (now->instance == reader->meta->instance &&
				now->generation == reader->meta->generation)
				GgReportCorruption(index, BlockNumberIsValid(reader->wrong_block) ?
								   reader->wrong_block : GG_META_BLKNO,
								   "page is not number " UINT64_FORMAT " of kind %d",
								   reader->wrong_page, reader->wrong_kind);
			pfree(now);
		}
		if (!load->helper)
			KeepIndexLocked(reader, index);
		relation_close(index, AccessShareLock);
	}
	InvalidateCatalogSnapshot();
	if (bytes == 0)
	{
		GgLoadFreeChunk(load);
		GgLoadGiveUp(load, true, 0, NULL);
		return false;
	}
	GgLoadPutChunk(load, unit->list, unit->part, offset, bytes);
	GgCountFilled(reader->job, load->serial);
	return true;
}
