/*
 * array_writer.c
 *		Arrays into blocks of a relation that others use.
 */
#include "storage/array_writer.h"

#include "access/xloginsert.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"
#include "utils/wait_event.h"

/* Pages that one WAL record holds. */
#define BATCH_PAGES			XLR_MAX_BLOCK_ID

void
GgBeginArray(GgNewArray *array, uint32 owner, GgKind kind, const void *data, uint64 bytes)
{
	memset(array, 0, sizeof(*array));
	array->owner = owner;
	array->kind = kind;
	array->data = data;
	array->bytes = bytes;
	array->npages = (uint32) GgArrayPages(bytes);
}

bool
GgTakeForArray(Relation index, Relation heap, GgNewArray *array)
{
	GgMetaPageData *meta;
	Buffer		metabuf;
	GgBlocksWanted wanted = {
		.owner = array->owner,
		.least = GgLeastRun(array->npages, array->npages - array->taken, array->nruns),
		.whole = array->npages,
		.rest = array->npages - array->taken,
		.next = InvalidBlockNumber
	};
	uint32		nblocks;
	BlockNumber start;
	int			last = array->nruns - 1;

	if (RelationGetNumberOfBlocks(index) < array->length)
	{
		GgLengthen(index, array->length);
		return true;
	}
	if (last >= 0)
		wanted.next = array->runs[last].start + array->runs[last].nblocks;
	meta = palloc(sizeof(GgMetaPageData));
	metabuf = GgLockDirectory(index, meta);
	nblocks = GgTakeBlocks(index, heap, meta, &wanted, &start, &array->length);
	if (nblocks > 0)
		GgStoreMeta(index, heap, metabuf, meta);
	else
		UnlockReleaseBuffer(metabuf);
	pfree(meta);
	if (nblocks == 0)
		return false;

	if (start == wanted.next)
		array->runs[last].nblocks += nblocks;
	else
	{
		Assert(array->nruns < GG_ARRAY_RUNS);
		array->runs[array->nruns].first = array->taken;
		array->runs[array->nruns].start = start;
		array->runs[array->nruns].nblocks = nblocks;
		array->nruns++;
	}
	array->taken += nblocks;
	return false;
}

static BlockNumber
BlockOf(const GgNewArray *array, uint32 number)
{
	int			i = array->nruns - 1;

	while (array->runs[i].first > number)
		i--;
	return array->runs[i].start + (number - array->runs[i].first);
}

/* Lock blocks that nobody reads, as many as one record has room for. */
static void
LockBatch(Relation index, const BlockNumber *blocks, int count, Buffer *buffers)
{
	for (int i = 0; i < count; i++)
		buffers[i] = ReadBufferExtended(index, MAIN_FORKNUM, blocks[i], RBM_ZERO_AND_LOCK, NULL);
	XLogEnsureRecordSpace(XLR_MAX_BLOCK_ID, 0);
}

/* Log the pages of locked blocks, which were formed in the same critical section. */
static void
LogBatch(Relation index, int count, const Buffer *buffers)
{
	XLogRecPtr	lsn;

	for (int i = 0; i < count; i++)
		MarkBufferDirty(buffers[i]);
	if (!RelationNeedsWAL(index))
		return;
	XLogBeginInsert();
	for (int i = 0; i < count; i++)
		XLogRegisterBuffer(i, buffers[i], REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
	lsn = XLogInsert(RM_XLOG_ID, XLOG_FPI);
	for (int i = 0; i < count; i++)
		PageSetLSN(BufferGetPage(buffers[i]), lsn);
}

static void
UnlockBatch(int count, const Buffer *buffers)
{
	for (int i = 0; i < count; i++)
		UnlockReleaseBuffer(buffers[i]);
}

/* Write pages [first, first + count), which one record has room for, and whose bytes are given. */
static void
WriteBatch(Relation index, uint64 instance, const GgNewArray *array, uint32 first, int count,
		   const char *payloads)
{
	BlockNumber blocks[BATCH_PAGES];
	Buffer		buffers[BATCH_PAGES];

	for (int i = 0; i < count; i++)
		blocks[i] = BlockOf(array, first + i);
	LockBatch(index, blocks, count, buffers);
	START_CRIT_SECTION();
	for (int i = 0; i < count; i++)
		GgFormArrayPage(BufferGetPage(buffers[i]), instance, array->owner, array->kind, first + i,
						payloads + i * GG_PAGE_PAYLOAD, GgPageBytes(first + i, array->bytes));
	LogBatch(index, count, buffers);
	END_CRIT_SECTION();
	UnlockBatch(count, buffers);
}

/* Pages of a batch: few where there are few buffers, of which a process may hold a part only. */
static int
BatchPages(void)
{
	return Max(1, Min(BATCH_PAGES, NBuffers / 16));
}

void
GgWritePages(Relation index, uint64 instance, const GgNewArray *array, uint32 first, uint32 count)
{
	char	   *codes = NULL;

	Assert(first + count <= array->taken);
	if (array->coder != NULL)
		codes = palloc(BatchPages() * GG_PAGE_PAYLOAD);
	for (uint32 done = 0; done < count;)
	{
		int			npages = (int) Min(count - done, BatchPages());

		uint64		offset = (uint64) (first + done) * GG_PAGE_PAYLOAD;

		GgCheckInterrupts();
		if (codes != NULL)
			GgCodeRows(array->coder, array->data, offset,
					   Min(array->bytes - offset, npages * GG_PAGE_PAYLOAD), codes);
		WriteBatch(index, instance, array, first + done, npages,
				   codes != NULL ? codes : (const char *) array->data + offset);
		done += npages;
	}
	if (codes != NULL)
		pfree(codes);
}

/* Copy pages to memory.  False: one is another page by now. */
static bool
ReadBatch(Relation index, uint64 instance, const GgMove *move, uint32 first, int count,
		  BufferAccessStrategy strategy, char *pages)
{
	for (int i = 0; i < count; i++)
	{
		Buffer		buffer = ReadBufferExtended(index, MAIN_FORKNUM, move->from + first + i,
												RBM_NORMAL, strategy);
		bool		ok;

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		ok = GgStampMatches(BufferGetPage(buffer), instance, move->segment, move->kind,
							move->first + first + i);
		if (ok)
			memcpy(pages + (Size) i * BLCKSZ, BufferGetPage(buffer), BLCKSZ);
		UnlockReleaseBuffer(buffer);
		if (!ok)
			return false;
	}
	return true;
}

bool
GgCopyPages(Relation index, uint64 instance, const GgMove *move, uint32 first, uint32 count)
{
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	char	   *pages = palloc((Size) BATCH_PAGES * BLCKSZ);
	bool		ok = true;

	for (uint32 done = 0; ok && done < count;)
	{
		int			npages = (int) Min(count - done, BatchPages());
		BlockNumber blocks[BATCH_PAGES];
		Buffer		buffers[BATCH_PAGES];

		GgCheckInterrupts();
		ok = ReadBatch(index, instance, move, first + done, npages, strategy, pages);
		if (!ok)
			break;
		for (int i = 0; i < npages; i++)
			blocks[i] = move->to + first + done + i;
		LockBatch(index, blocks, npages, buffers);
		START_CRIT_SECTION();
		for (int i = 0; i < npages; i++)
			memcpy(BufferGetPage(buffers[i]), pages + (Size) i * BLCKSZ, BLCKSZ);
		LogBatch(index, npages, buffers);
		END_CRIT_SECTION();
		UnlockBatch(npages, buffers);
		done += npages;
	}
	pfree(pages);
	FreeAccessStrategy(strategy);
	return ok;
}

void
GgListArray(GgMetaPageData *meta, const GgNewArray *array)
{
	for (int i = 0; i < array->nruns; i++)
		GgAddExtent(meta, array->runs[i].start, array->runs[i].nblocks, array->owner, array->kind);
}

void
GgForgetTaken(GgMetaPageData *meta, uint32 owner)
{
	for (int i = meta->nextents - 1; i >= 0; i--)
		if (meta->extents[i].kind == GG_KIND_TAKEN && meta->extents[i].segment == owner)
			GgRemoveExtent(meta, i);
}

bool
GgFreeTaken(GgMetaPageData *meta)
{
	bool		any = false;

	for (int i = 0; i < meta->nextents; i++)
	{
		GgExtent   *extent = &meta->extents[i];

		if (extent->kind != GG_KIND_TAKEN)
			continue;
		any = true;
		extent->segment = GG_NO_SEGMENT;
		extent->kind = GG_KIND_FREE;
		extent->parked_xid = 0;
	}
	if (any)
		GgMergeFree(meta);
	return any;
}
