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
	GgMetaPageData *head;
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
	metabuf = GgLockMeta(index, BUFFER_LOCK_EXCLUSIVE, &head);
	GgCopyMeta(index, metabuf, meta);
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

/* Form, log and unlock pages [first, first + count), which one record has room for. */
static void
WriteBatch(Relation index, uint64 instance, const GgNewArray *array, uint32 first, int count)
{
	Buffer		buffers[BATCH_PAGES];
	XLogRecPtr	lsn = InvalidXLogRecPtr;

	for (int i = 0; i < count; i++)
		buffers[i] = ReadBufferExtended(index, MAIN_FORKNUM, BlockOf(array, first + i),
										RBM_ZERO_AND_LOCK, NULL);
	XLogEnsureRecordSpace(XLR_MAX_BLOCK_ID, 0);
	START_CRIT_SECTION();
	for (int i = 0; i < count; i++)
	{
		GgFormArrayPage(BufferGetPage(buffers[i]), instance, array->owner, array->kind, first + i,
						array->data, array->bytes);
		MarkBufferDirty(buffers[i]);
	}
	if (RelationNeedsWAL(index))
	{
		XLogBeginInsert();
		for (int i = 0; i < count; i++)
			XLogRegisterBuffer(i, buffers[i], REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
		lsn = XLogInsert(RM_XLOG_ID, XLOG_FPI);
		for (int i = 0; i < count; i++)
			PageSetLSN(BufferGetPage(buffers[i]), lsn);
	}
	END_CRIT_SECTION();
	for (int i = 0; i < count; i++)
		UnlockReleaseBuffer(buffers[i]);
}

void
GgWritePages(Relation index, uint64 instance, const GgNewArray *array, uint32 first, uint32 count)
{
	Assert(first + count <= array->taken);
	for (uint32 done = 0; done < count;)
	{
		/* few where there are few buffers, of which this process may hold a part only */
		int			most = Max(1, Min(BATCH_PAGES, NBuffers / 16));
		int			npages = (int) Min(count - done, most);

		GgCheckInterrupts();
		WriteBatch(index, instance, array, first + done, npages);
		done += npages;
	}
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
