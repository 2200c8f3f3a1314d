/*
 * segment_writer.c
 *		Pages of a segment: formed in memory, logged and written in large runs, each once.
 *
 * Pages bypass the buffer manager, as those of nbtree's builds do.  They go into a file that the
 * leader has extended before.  No WAL is flushed before a page is written: after a crash the file
 * goes with its transaction, or belongs to an index that is not ready and never read (CREATE INDEX
 * CONCURRENTLY).
 *
 * Ranges are claimed in order.  Writers of one file wait for each other in the kernel, but to give
 * each a file of its own brought nothing: 0.70-0.76 against 0.73-0.92 s for CREATE INDEX of 1M x
 * 128, and 2.99-3.24 against 3.27-3.33 s of 1M x 768 (H200 host, 16 processors).
 *
 * Writing an array that grows, while the table is scanned, brought 3.3 against 3.8-4.6 s for 1M x
 * 768, and nothing for 1M x 128 (same host).
 *
 * Tried: 8 and 16 processes that write at a time, not four: CREATE INDEX of 1M x 128 takes 0.85 to
 * 0.99 s instead of 0.62 to 0.70.  Segments of WAL made ahead by those that write change nothing.
 */
#include "storage/segment_writer.h"

#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_class.h"
#include "catalog/storage.h"
#include "storage/proc.h"
#include "storage/smgr.h"
#include "utils/wait_event.h"

/*
 * Blocks that the kernel is asked to write between two looks for interrupts, before a sync: 16 MB.
 */
#define SYNC_BLOCKS			((BlockNumber) 2048)

/* A WAL record has no room for more pages.  As many at a time are formed and written. */
#define BATCH_PAGES			XLR_MAX_BLOCK_ID

/*
 * Ranges of a growing array become ready 32 MB at a time.  Before PostgreSQL 16 the last block of
 * each extension is written one more time (see GgExtendTo()), which so costs one block in 4096.
 */
#define GROWTH_RANGES		8

/* ---- pages ------------------------------------------------------------------------ */

/*
 * Log and write npages pages from block start on, which lie one after the other in writer->pages.
 *
 * CREATE INDEX CONCURRENTLY, whose relation others can open, uses this too, and drops buffers at
 * its end.  Through shared buffers, with a bulk-write strategy and 32 pages per record as well,
 * pages of 20,000 x 784 took 0.71 to 1.50 s instead of 0.41 to 0.65 s (writing and WAL, 2 busy
 * cores): the ring flushes WAL before it gives a buffer to the next page.
 */
static void
PutPages(GgSegmentWriter *writer, BlockNumber start, int npages, double *wal_s)
{
	Page		pages[BATCH_PAGES];
	BlockNumber blocks[BATCH_PAGES];

	for (int i = 0; i < npages; i++)
	{
		pages[i] = writer->pages + (Size) i * BLCKSZ;
		blocks[i] = start + i;
	}
	if (writer->shared->use_wal)
	{
		uint64		began = GgNowMicros();

		log_newpages(&GgLocator(writer->index), MAIN_FORKNUM, npages, blocks, pages, true);
		*wal_s += GgSecondsSince(began);
	}
	for (int i = 0; i < npages; i++)
		GgSetChecksum(pages[i], blocks[i]);
	GgWriteRun(writer->index, start, pages, npages, &writer->file);
}

static void
HavePageBuffer(GgSegmentWriter *writer)
{
	if (writer->pages == NULL)
	{
		/* aligned, since 16 and later may write past the kernel's cache */
		char	   *memory = MemoryContextAlloc(writer->context, (BATCH_PAGES + 1) * BLCKSZ);

		writer->pages = (char *) TYPEALIGN(BLCKSZ, memory);
	}
}

/*
 * The bytes of npages pages of an array, from page first on.  Codes are made of the vectors here,
 * and are kept where there is room for all of them.
 */
static const char *
Payloads(GgSegmentWriter *writer, const GgWriterArray *array, const void *const *data,
		 uint32 first, int npages)
{
	const uint64 offset = (uint64) first * GG_PAGE_PAYLOAD;
	char	   *codes = (char *) data[GG_KIND_CODES];
	MemoryContext old;

	if (array->kind != GG_KIND_CODES)
		return (const char *) data[array->kind] + offset;
	old = MemoryContextSwitchTo(writer->context);
	if (writer->coder == NULL)
	{
		/* an array that grows has no piece yet */
		writer->coder = GgMakeCoder(writer->meta, writer->meta->coded != GG_CODES_NONE ?
									writer->meta->coded :
									GgFindPiece(writer->meta, array->segment)->codes,
									writer->shared->centred ? writer->shared->mean : NULL);
		writer->payloads = palloc(BATCH_PAGES * GG_PAGE_PAYLOAD);
	}
	MemoryContextSwitchTo(old);
	codes = codes != NULL ? codes + offset : writer->payloads;
	GgCodeRows(writer->coder, data[GG_KIND_VECTORS], offset,
			   Min(array->bytes - offset, npages * GG_PAGE_PAYLOAD), codes);
	return codes;
}

/* The pages first .. first + count - 1 of an array; data: by kind, where the bytes lie. */
static void
WritePages(GgSegmentWriter *writer, const GgWriterArray *array, const void *const *data,
		   uint32 first, uint32 count, double *wal_s)
{
	HavePageBuffer(writer);
	for (uint32 done = 0; done < count;)
	{
		int			npages = (int) Min(count - done, BATCH_PAGES);

		const char *payloads;

		GgCheckInterrupts();
		payloads = Payloads(writer, array, data, first + done, npages);
		for (int i = 0; i < npages; i++)
			GgFormArrayPage((Page) (writer->pages + (Size) i * BLCKSZ), writer->meta->instance,
							array->segment, array->kind, first + done + i,
							payloads + i * GG_PAGE_PAYLOAD,
							GgPageBytes(first + done + i, array->bytes));
		PutPages(writer, array->start + first + done, npages, wal_s);
		done += npages;
	}
}

/* ---- arrays ------------------------------------------------------------------------- */

void
GgInitWriterShared(GgWriterShared *shared, Relation index)
{
	memset(shared, 0, sizeof(*shared));
	shared->use_wal = RelationNeedsWAL(index);
	shared->nqueues = 1;
	ConditionVariableInit(&shared->changed);
	SpinLockInit(&shared->mutex);
}

void
GgBeginWriter(GgSegmentWriter *writer, Relation index, GgMetaPageData *meta,
			  GgWriterShared *shared, MemoryContext context)
{
	memset(writer, 0, sizeof(*writer));
	writer->index = index;
	writer->meta = meta;
	writer->shared = shared;
	writer->context = context;
	writer->nblocks = GG_META_BLKNO + 1;
	writer->start_redo = GetRedoRecPtr();
}

/* Give an array blocks at the end of the relation, and list them in the directory. */
static void
PlaceArray(GgSegmentWriter *writer, GgWriterArray *array, uint64 bytes)
{
	uint64		npages = GgArrayPages(bytes);

	GgCheckLength(writer->index, writer->nblocks + npages);
	array->start = writer->nblocks;
	array->npages = (uint32) npages;
	array->bytes = bytes;
	if (npages > 0)
		GgAddExtent(writer->meta, array->start, array->npages, array->segment, array->kind);
	writer->nblocks += array->npages;
	GgExtendTo(writer->index, writer->nblocks);
}

static uint32
ArrayRanges(const GgWriterArray *array)
{
	return array->npages / GG_RANGE_PAGES + (array->npages % GG_RANGE_PAGES > 0);
}

static uint32
SumRanges(const GgWriterQueue *queue, int narrays)
{
	uint32		sum = 0;

	for (int i = 0; i < narrays; i++)
		sum += ArrayRanges(&queue->arrays[i]);
	return sum;
}

/* Arrays and `ready` are the leader's to change.  Others may look at them under the mutex alone. */
static void
SetReady(GgSegmentWriter *writer, int queue, uint32 ready)
{
	SpinLockAcquire(&writer->shared->mutex);
	writer->shared->queues[queue].ready = ready;
	SpinLockRelease(&writer->shared->mutex);
	GgWakeWriters(writer);
}

void
GgBeginSegment(GgSegmentWriter *writer, int number, uint32 segment, GgKind kind)
{
	GgWriterShared *shared = writer->shared;
	GgWriterQueue *queue = &shared->queues[number];
	GgWriterArray array = {
		.kind = kind, .segment = segment, .start = writer->nblocks, .npages = UINT32_MAX,
		.bytes = PG_UINT64_MAX
	};

	SpinLockAcquire(&shared->mutex);
	Assert(queue->done == queue->next);
	queue->narrays = 1;
	queue->arrays[0] = array;
	queue->ready = queue->next = queue->done = 0;
	SpinLockRelease(&shared->mutex);
}

void
GgGrowArray(GgSegmentWriter *writer, int number, uint64 bytes)
{
	uint32		ready = writer->shared->queues[number].ready;
	uint32		ranges = (uint32) (bytes / GG_RANGE_BYTES);

	if (ranges < ready + GROWTH_RANGES)
		return;
	GgCheckLength(writer->index, writer->nblocks + (uint64) ranges * GG_RANGE_PAGES);
	GgExtendTo(writer->index, writer->nblocks + ranges * GG_RANGE_PAGES);
	SetReady(writer, number, ranges);
}

void
GgEndGrowth(GgSegmentWriter *writer, int number, uint64 bytes)
{
	GgWriterShared *shared = writer->shared;
	GgWriterQueue *queue = &shared->queues[number];
	GgWriterArray array = queue->arrays[0];

	Assert(queue->narrays == 1 && array.npages == UINT32_MAX);
	PlaceArray(writer, &array, bytes);
	SpinLockAcquire(&shared->mutex);
	queue->arrays[0] = array;
	SpinLockRelease(&shared->mutex);
	SetReady(writer, number, ArrayRanges(&array));
}

void
GgAddArray(GgSegmentWriter *writer, int number, uint32 segment, GgKind kind, uint64 bytes)
{
	GgWriterShared *shared = writer->shared;
	GgWriterQueue *queue = &shared->queues[number];
	GgWriterArray array = {.kind = kind, .segment = segment};

	Assert(queue->narrays < GG_WRITER_ARRAYS);
	Assert(queue->ready == SumRanges(queue, queue->narrays));
	PlaceArray(writer, &array, bytes);
	SpinLockAcquire(&shared->mutex);
	queue->arrays[queue->narrays++] = array;
	SpinLockRelease(&shared->mutex);
}

void
GgArrayReady(GgSegmentWriter *writer, int number, uint64 bytes)
{
	const GgWriterQueue *queue = &writer->shared->queues[number];
	const GgWriterArray *array = &queue->arrays[queue->narrays - 1];
	uint32		ranges = (uint32) (bytes / GG_RANGE_BYTES);

	if (bytes == array->bytes)
		ranges = ArrayRanges(array);	/* the last may be short */

	SetReady(writer, number, SumRanges(queue, queue->narrays - 1) + ranges);
}

void
GgWriteArray(GgSegmentWriter *writer, uint32 segment, GgKind kind, const void *data, uint64 bytes)
{
	GgWriterShared *shared = writer->shared;
	GgWriterArray array = {.kind = kind, .segment = segment};
	const void *by_kind[GG_LAST_KIND + 1] = {NULL};
	uint64		start = GgNowMicros();
	double		wal_s = 0.0,
				busy_s;

	PlaceArray(writer, &array, bytes);
	by_kind[kind] = data;
	WritePages(writer, &array, by_kind, 0, array.npages, &wal_s);
	busy_s = GgSecondsSince(start);
	SpinLockAcquire(&shared->mutex);
	shared->write_s += busy_s;
	shared->busy_s += busy_s;
	shared->wal_s += wal_s;
	SpinLockRelease(&shared->mutex);
}

/* ---- ranges --------------------------------------------------------------------------- */

/* The mutex is held, or nobody changes the arrays. */
static void
LookUpRange(const GgWriterShared *shared, int number, uint32 of_queue, GgPageRange *range)
{
	const GgWriterQueue *queue = &shared->queues[number];
	uint32		within = of_queue;
	int			i = 0;

	while (i < queue->narrays - 1 && within >= ArrayRanges(&queue->arrays[i]))
		within -= ArrayRanges(&queue->arrays[i++]);
	range->queue = number;
	range->number = of_queue;
	range->array = queue->arrays[i];
	range->first = within * GG_RANGE_PAGES;
	range->count = Min(GG_RANGE_PAGES, range->array.npages - range->first);
	range->offset = within * GG_RANGE_BYTES;
	range->bytes = Min(GG_RANGE_BYTES, range->array.bytes - range->offset);
	range->wal_s = 0.0;
}

void
GgFindRange(GgSegmentWriter *writer, int queue, uint32 number, GgPageRange *range)
{
	SpinLockAcquire(&writer->shared->mutex);
	LookUpRange(writer->shared, queue, number, range);
	SpinLockRelease(&writer->shared->mutex);
}

uint32
GgCountRanges(GgSegmentWriter *writer, int queue)
{
	return SumRanges(&writer->shared->queues[queue], writer->shared->queues[queue].narrays);
}

/* The queue of the oldest segment that has a range ready; -1: none has.  The mutex is held. */
static int
OldestReady(const GgWriterShared *shared)
{
	int			oldest = -1;

	for (int i = 0; i < shared->nqueues; i++)
	{
		const GgWriterQueue *queue = &shared->queues[i];

		if (queue->next < queue->ready &&
			(oldest < 0 || queue->arrays[0].segment < shared->queues[oldest].arrays[0].segment))
			oldest = i;
	}
	return oldest;
}

bool
GgClaimRange(GgSegmentWriter *writer, int most_writers, GgPageRange *range)
{
	GgWriterShared *shared = writer->shared;
	int			queue;

	range->began_us = GgNowMicros();
	SpinLockAcquire(&shared->mutex);
	queue = shared->writers < most_writers ? OldestReady(shared) : -1;
	if (queue >= 0)
	{
		LookUpRange(shared, queue, shared->queues[queue].next++, range);
		if (shared->writers++ == 0)
			shared->since_us = range->began_us;
	}
	SpinLockRelease(&shared->mutex);
	return queue >= 0;
}

void
GgWriteRange(GgSegmentWriter *writer, GgPageRange *range)
{
	WritePages(writer, &range->array, writer->data[range->queue], range->first, range->count,
			   &range->wal_s);
}

void
GgEndRange(GgSegmentWriter *writer, const GgPageRange *range)
{
	GgWriterShared *shared = writer->shared;
	GgWriterQueue *queue = &shared->queues[range->queue];
	double		busy_s = GgSecondsSince(range->began_us);
	bool		all;

	SpinLockAcquire(&shared->mutex);
	all = ++queue->done == SumRanges(queue, queue->narrays);
	shared->busy_s += busy_s;
	shared->wal_s += range->wal_s;
	if (--shared->writers == 0)
		shared->write_s += GgSecondsSince(shared->since_us);
	SpinLockRelease(&shared->mutex);
	if (all)
		GgWakeWriters(writer);
}

bool
GgIsWritten(GgSegmentWriter *writer, int number, BlockNumber *done, BlockNumber *total)
{
	GgWriterShared *shared = writer->shared;
	const GgWriterQueue *queue = &shared->queues[number];
	bool		all;

	*total = 0;
	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < queue->narrays; i++)
		*total += queue->arrays[i].npages;
	*done = Min(queue->done * GG_RANGE_PAGES, *total);
	all = queue->done == SumRanges(queue, queue->narrays);
	SpinLockRelease(&shared->mutex);
	if (all)
		*done = *total;
	return all;
}

bool
GgReadyIsWritten(GgSegmentWriter *writer, int queue)
{
	GgWriterShared *shared = writer->shared;
	bool		all;

	SpinLockAcquire(&shared->mutex);
	all = shared->queues[queue].done == shared->queues[queue].ready;
	SpinLockRelease(&shared->mutex);
	return all;
}

void
GgWaitForWriters(GgSegmentWriter *writer, long timeout_ms)
{
	(void) ConditionVariableTimedSleep(&writer->shared->changed, timeout_ms,
									   WAIT_EVENT_PARALLEL_CREATE_INDEX_SCAN);
}

void
GgEndWait(void)
{
	ConditionVariableCancelSleep();
}

void
GgWakeWriters(GgSegmentWriter *writer)
{
	ConditionVariableBroadcast(&writer->shared->changed);
}

/* ---- the end -------------------------------------------------------------------------- */

/*
 * Pages that bypass the buffer manager are unknown to checkpoints.  A checkpoint that began after
 * we logged them makes recovery begin behind their WAL, so they must be synced here.  If none has
 * begun since our first record, it is enough to ask the next one to sync.  That takes no time, if
 * its queue has room; the checkpoint is kept from beginning meanwhile.
 *
 * What skips WAL (wal_level = minimal) is synced by the commit.  Nothing saves temporary relations.
 * Unlogged ones are kept over a clean shutdown, so its checkpoint must know them.
 */
void
GgSyncWriter(GgSegmentWriter *writer, void (*report) (BlockNumber done, BlockNumber total))
{
	char		persistence = writer->index->rd_rel->relpersistence;
	SMgrRelation smgr;
	bool		asked = false;

	if (persistence == RELPERSISTENCE_TEMP ||
		(persistence == RELPERSISTENCE_PERMANENT && !writer->shared->use_wal))
		return;

	MyProc->delayChkptFlags |= DELAY_CHKPT_START;
	if (writer->start_redo == GetRedoRecPtr())
		asked = GgRegisterSync(writer->index, writer->nblocks);
	MyProc->delayChkptFlags &= ~DELAY_CHKPT_START;
	if (asked)
		return;

	/*
	 * A sync cannot be interrupted, and gigabytes take a while.  So the kernel is asked to write
	 * piece by piece first.  It lets us go on when its queue has room, and little is left to wait
	 * for.
	 */
	smgr = RelationGetSmgr(writer->index);
	(void) smgrnblocks(smgr, MAIN_FORKNUM); /* opens every file: what is not open is not written */
	for (BlockNumber first = 0; first < writer->nblocks; first += SYNC_BLOCKS)
	{
		GgCheckInterrupts();
		report(first, writer->nblocks);
		smgrwriteback(smgr, MAIN_FORKNUM, first, Min(SYNC_BLOCKS, writer->nblocks - first));
	}
	smgrimmedsync(smgr, MAIN_FORKNUM);
	report(writer->nblocks, writer->nblocks);
}

void
GgWriteMetaPage(GgSegmentWriter *writer)
{
	double		wal_s = 0.0;

	HavePageBuffer(writer);
	GgFormMetaPage((Page) writer->pages, writer->meta);
	GgExtendTo(writer->index, writer->nblocks);
	PutPages(writer, GG_META_BLKNO, 1, &wal_s);
}
