/*
 * input.c
 *		What a merge reads: TIDs, rows of each node, vectors.
 *
 * No snapshot protects a merge.  But it holds the merge lock, so nobody but VACUUM gives back pages
 * of its inputs meanwhile: segments without rows, which ends the merge, and delta pages without
 * rows.
 */
#include "maintain/merge.h"
#include "service/shared/service.h"

#include "access/relation.h"
#include "access/xact.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"

/* Pages read in one slice: 4 MB. */
#define SLICE_PAGES			512

/* A worker that gets no lock in LOCK_ATTEMPTS gives up: DDL has the table. */
#define LOCK_WAIT_MS		10
#define LOCK_ATTEMPTS		1000

/* ---- slices ------------------------------------------------------------------------------ */

pg_noreturn static void
GiveUp(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the gpugraph index was changed, dropped or locked during a merge")));
}

void
GgGiveWay(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("a merge gives way to a session that wants the database")));
}

/*
 * Lock a relation without waiting in the lock queue, where others would wait behind this process:
 * ask again, LOCK_ATTEMPTS times.
 */
static void
LockTarget(Oid relation)
{
	for (int i = 0; i < LOCK_ATTEMPTS; i++)
	{
		if (ConditionalLockRelationOid(relation, RowExclusiveLock))
			return;
		CommitTransactionCommand();
		GgCheckInterrupts();
		pg_usleep(LOCK_WAIT_MS * 1000L);
		StartTransactionCommand();
	}
	GiveUp();
}

void
GgBeginSlice(GgMergeTarget *target)
{
	MemoryContext context = CurrentMemoryContext;

	if (!target->sliced)
		return;
	StartTransactionCommand();
	if (GgDatabaseIsWanted())
		GgGiveWay();
	/* the table first: nothing is locked while it is waited for, and the index is not waited for */
	LockTarget(target->heap_oid);
	if (!ConditionalLockRelationOid(target->index_oid, RowExclusiveLock))
		GiveUp();
	target->heap = try_relation_open(target->heap_oid, NoLock);
	target->index = try_relation_open(target->index_oid, NoLock);
	if (target->heap == NULL || target->index == NULL || !GgIsGpugraph(target->index) ||
		target->index->rd_index->indrelid != target->heap_oid)
		GiveUp();
	if (target->instance == 0)
	{
		GgMetaPageData *head;
		Buffer		buffer;

		GgCheckNotEmpty(target->index);
		buffer = GgLockMeta(target->index, BUFFER_LOCK_SHARE, &head);
		target->instance = head->instance;
		UnlockReleaseBuffer(buffer);
		target->locator = GgLocator(target->index);
	}
	else if (!GgSameLocator(&target->locator, &GgLocator(target->index)))
		GiveUp();
	MemoryContextSwitchTo(context);
}

void
GgEndSlice(GgMergeTarget *target)
{
	MemoryContext context = CurrentMemoryContext;

	GgCheckInterrupts();
	if (!target->sliced)
		return;
	if (target->within)
		GgWithinFault();
	relation_close(target->index, NoLock);
	relation_close(target->heap, NoLock);
	target->index = target->heap = NULL;
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	if (target->meanwhile != NULL)
		target->meanwhile(target);
}

/* ---- inputs ------------------------------------------------------------------------------ */

uint64
GgSealableEnd(const GgMetaPageData *meta)
{
	uint64		end = GgDeltaEnd(meta);

	/* the last page may take more rows, unless each row has pages of its own */
	if (meta->delta_pages > 0 && GgDeltaPagesPerRow(meta) == 1)
		end--;
	return end;
}

/* The rows of an input follow those of inputs before it.  policy.c chooses GG_MAX_ROWS at most. */
static void
AddRows(GgMergePlan *plan, GgMergeInput *input)
{
	if (input->rows > GG_MAX_ROWS - plan->rows)
		elog(ERROR, "a gpugraph segment would have more than %u rows", GG_MAX_ROWS);
	input->first_row = plan->rows;
	plan->rows += input->rows;
}

void
GgAddInput(GgMergePlan *plan, const GgMetaPageData *meta, const GgSegment *segment)
{
	GgMergeInput *input = &plan->inputs[plan->ninputs++];

	memset(input, 0, sizeof(*input));
	input->segment = *segment;
	input->dead = segment->dead;
	GgFindVectors(meta, segment->id, &input->vectors);
	GgFindArray(meta, segment->id, GG_KIND_TIDS, &input->tids_array);
	GgFindArray(meta, segment->id, GG_KIND_OFFSETS, &input->offsets_array);
	GgFindArray(meta, segment->id, GG_KIND_FILTERS, &input->filters_array);
	GgFindArray(meta, segment->id, GG_KIND_ADJACENCY, &input->adjacency_array);
	input->nodes = segment->nodes;
	input->rows = segment->rows;
	AddRows(plan, input);
}

void
GgAddDelta(GgMergePlan *plan, const GgMetaPageData *meta, uint32 most)
{
	GgMergeInput *input = &plan->inputs[plan->ninputs++];

	memset(input, 0, sizeof(*input));
	input->delta = true;
	GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_DELTA, &input->tids_array);
	input->first_page = GgDeltaFirst(meta);
	input->end_page = Min(GgSealableEnd(meta), input->first_page +
								   (most / GgDeltaRowsPerPage(meta) + UINT64CONST(1)) *
								   GgDeltaPagesPerRow(meta));
	input->nodes = input->rows =
		GgRowsOnPages(meta, (uint32) (input->end_page - input->first_page));
	AddRows(plan, input);
}

/* Read and lock a page of a segment, which is there unless VACUUM gave back the segment. */
static Buffer
ReadSegmentPage(GgMergeTarget *target, const GgMetaPageData *meta, const GgArray *array,
				uint32 number)
{
	Buffer		buffer;

	if (!GgReadPageUnlessGone(target->index, meta, array, number, BUFFER_LOCK_SHARE, NULL,
							  &buffer))
		GiveUp();
	return buffer;
}

/* Report that what was read at a byte of an array cannot be right. */
pg_noreturn static void pg_attribute_printf(4, 5)
ReportBytes(GgMergeTarget *target, const GgArray *array, uint64 offset, const char *fmt,...)
{
	char		what[128];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	/* the index is open in slices only */
	GgBeginSlice(target);
	GgReportCorruption(target->index, GgArrayBlock(array, offset / GG_PAGE_PAYLOAD), "%s", what);
}

/* Copy bytes of an array, in slices. */
static void
ReadBytes(GgMergeTarget *target, const GgMetaPageData *meta, const GgArray *array, uint64 offset,
		  char *out, uint64 bytes)
{
	while (bytes > 0)
	{
		GgBeginSlice(target);
		for (int i = 0; i < SLICE_PAGES && bytes > 0; i++)
		{
			Size		skip = offset % GG_PAGE_PAYLOAD;
			Size		piece = Min(bytes, GG_PAGE_PAYLOAD - skip);
			Buffer		buffer = ReadSegmentPage(target, meta, array,
												 (uint32) (offset / GG_PAGE_PAYLOAD));

			memcpy(out, PageGetContents(BufferGetPage(buffer)) + skip, piece);
			UnlockReleaseBuffer(buffer);
			out += piece;
			offset += piece;
			bytes -= piece;
		}
		GgEndSlice(target);
	}
}

/* Read and lock a page of the delta.  False: VACUUM gave it back. */
static bool
ReadDeltaPage(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeInput *input,
			  uint64 number, Buffer *buffer)
{
	return GgArrayBlock(&input->tids_array, number) != InvalidBlockNumber &&
		GgReadPageUnlessGone(target->index, meta, &input->tids_array, number, BUFFER_LOCK_SHARE,
							 NULL, buffer);
}

/* Call take for each row on the input's delta pages, with its number among the input's rows. */
static void
ReadDeltaRows(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeInput *input,
			  void (*take) (const GgDeltaRow *row, uint32 number, void *arg), void *arg)
{
	uint32		npages = GgDeltaPagesPerRow(meta);
	uint32		per_page = GgDeltaRowsPerPage(meta);
	uint64		number = input->first_page;

	while (number < input->end_page)
	{
		GgBeginSlice(target);
		for (int i = 0; i < SLICE_PAGES && number < input->end_page; i++, number += npages)
		{
			uint32		first = (uint32) (number - input->first_page) / npages * per_page;
			Buffer		buffer;

			if (!ReadDeltaPage(target, meta, input, number, &buffer))
				continue;
			for (uint32 slot = 0; slot < GgDeltaRowCount(target->index, meta, buffer); slot++)
				take(GgDeltaRowOf(meta, BufferGetPage(buffer), slot), first + slot, arg);
			UnlockReleaseBuffer(buffer);
		}
		GgEndSlice(target);
	}
}

static void
TakeHead(const GgDeltaRow *row, uint32 number, void *arg)
{
	memcpy((GgTidEntry *) arg + number, row, sizeof(GgTidEntry));
}

/* A tid of zeros is invalid. */
void
GgReadTids(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeInput *input,
		   GgTidEntry *tids)
{
	if (input->delta)
	{
		memset(tids + input->first_row, 0, input->rows * sizeof(GgTidEntry));
		ReadDeltaRows(target, meta, input, TakeHead, tids + input->first_row);
	}
	else
		ReadBytes(target, meta, &input->tids_array, 0, (char *) (tids + input->first_row),
				  (uint64) input->rows * sizeof(GgTidEntry));
}

typedef struct WordsAt
{
	int64	   *words;			/* word 0 of the input's first row */
	uint32		nwords;
	Size		stride;			/* from a word to the next one of the same row */
} WordsAt;

static void
TakeWords(const GgDeltaRow *row, uint32 number, void *arg)
{
	const WordsAt *at = arg;

	for (uint32 w = 0; w < at->nwords; w++)
		at->words[w * at->stride + number] = GgDeltaWords(row)[w];
}

void
GgReadWords(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeInput *input,
			int64 *words, Size stride)
{
	WordsAt		at = {words + input->first_row, meta->filter_words, stride};

	if (input->delta)
	{
		for (uint32 w = 0; w < at.nwords; w++)
			memset(at.words + w * stride, 0, input->rows * sizeof(int64));
		ReadDeltaRows(target, meta, input, TakeWords, &at);
		return;
	}
	for (uint32 w = 0; w < at.nwords; w++)
		ReadBytes(target, meta, &input->filters_array, (uint64) w * input->rows * sizeof(int64),
				  (char *) (at.words + w * stride), input->rows * sizeof(int64));
}

void
GgReadOffsets(GgMergeTarget *target, const GgMetaPageData *meta, GgMergeInput *input)
{
	uint64		bytes = ((uint64) input->nodes + 1) * sizeof(uint32);

	if (input->delta || (input->segment.flags & GG_SEGMENT_OFFSETS) == 0)
		return;
	input->offsets = MemoryContextAllocHuge(CurrentMemoryContext, bytes);
	ReadBytes(target, meta, &input->offsets_array, 0, (char *) input->offsets, bytes);
	for (uint32 i = 0; i < input->nodes; i++)
		if (input->offsets[i] > input->offsets[i + 1] || input->offsets[i + 1] > input->rows)
			ReportBytes(target, &input->offsets_array, (uint64) i * sizeof(uint32),
						"the rows of node %u of segment %u are out of range", i,
						input->segment.id);
}

/* Copy the vectors that start on a delta page, and from later pages the rest of a longer one. */
static void
CopyDeltaPage(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeInput *input,
			  uint64 number, char *out)
{
	Size		row_bytes = GgRowBytes(meta);
	Size		done = GgDeltaVectorHere(meta);
	Buffer		buffer;

	if (!ReadDeltaPage(target, meta, input, number, &buffer))
		return;
	for (uint32 slot = 0; slot < GgDeltaRowCount(target->index, meta, buffer); slot++)
		memcpy(out + slot * row_bytes,
			   GgDeltaVector(meta, GgDeltaRowOf(meta, BufferGetPage(buffer), slot)), done);
	UnlockReleaseBuffer(buffer);
	while (done < row_bytes)
	{
		Size		piece = Min(row_bytes - done, GG_PAGE_PAYLOAD);

		if (!ReadDeltaPage(target, meta, input, ++number, &buffer))
			return;
		memcpy(out + done, PageGetContents(BufferGetPage(buffer)), piece);
		UnlockReleaseBuffer(buffer);
		done += piece;
	}
}

/*
 * first and count are multiples of a page's rows.  VACUUM may have given a page back since its TIDs
 * were read.  Its rows are zeros then, since a graph is built of them, too.
 */
static void
ReadDeltaVectors(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeInput *input,
				 uint32 first, uint32 count, char *out)
{
	uint32		npages = GgDeltaPagesPerRow(meta);
	uint32		per_page = GgDeltaRowsPerPage(meta);
	uint64		number = input->first_page + first / per_page * npages;

	memset(out, 0, count * GgRowBytes(meta));
	GgBeginSlice(target);
	for (uint32 done = 0; done < count; done += per_page, number += npages)
		CopyDeltaPage(target, meta, input, number, out + done * GgRowBytes(meta));
	GgEndSlice(target);
}

/* Read nodes [first, first + count) of the pieces' vectors or codes. */
static void
ReadPieces(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeInput *input,
		   bool codes, uint32 first, uint32 count, char *out)
{
	const Size	bytes = codes ? GgCodeBytes(meta, meta->coded) : GgRowBytes(meta);

	while (count > 0)
	{
		const GgVectorPiece *piece = GgPieceOf(&input->vectors, first);
		uint32		n = Min(count, piece->first + piece->nodes - first);

		ReadBytes(target, meta, codes ? &piece->code_array : &piece->array,
				  (uint64) (first - piece->first) * bytes, out, n * bytes);
		out += n * bytes;
		first += n;
		count -= n;
	}
}

void
GgReadCodes(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeInput *input,
			uint32 first, uint32 count, char *out)
{
	ReadPieces(target, meta, input, true, first, count, out);
}

/* Rows whose codes are read and decoded at a time. */
#define DECODED_ROWS		4096

static void
ReadDecoded(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeInput *input,
			uint32 first, uint32 count, char *out)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph codes",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	char	   *codes = palloc_extended((Size) Min(count, DECODED_ROWS) *
										GgCodeBytes(meta, meta->coded), MCXT_ALLOC_HUGE);
	GgCoder    *coder;

	GgBeginSlice(target);
	coder = GgMakeCoder(meta, meta->coded, GgReadMean(target->index, meta));
	GgEndSlice(target);
	MemoryContextSwitchTo(old);
	for (uint32 done = 0; done < count; done += DECODED_ROWS)
	{
		uint32		n = Min(count - done, DECODED_ROWS);

		GgReadCodes(target, meta, input, first + done, n, codes);
		GgDecodeRows(coder, codes, n, out + (Size) done * GgRowBytes(meta));
	}
	MemoryContextDelete(context);
}

void
GgReadVectors(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeInput *input,
			  uint32 first, uint32 count, char *out)
{
	if (input->delta)
	{
		ReadDeltaVectors(target, meta, input, first, count, out);
		return;
	}
	if (meta->coded != GG_CODES_NONE)
		ReadDecoded(target, meta, input, first, count, out);
	else
		ReadPieces(target, meta, input, false, first, count, out);
}

void
GgReadAdjacency(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeInput *input,
				uint32 first, uint32 count, uint32 *out)
{
	Size		bytes = meta->graph_degree * sizeof(uint32);

	ReadBytes(target, meta, &input->adjacency_array, first * bytes, (char *) out, count * bytes);
	for (Size i = 0; i < count * (Size) meta->graph_degree; i++)
	{
		uint32		neighbor = out[i] & ~GG_EDGE_MARK;

		if (out[i] != GG_NO_NODE && neighbor >= input->nodes)
			ReportBytes(target, &input->adjacency_array, first * bytes + i * sizeof(uint32),
						"a list of segment %u names node %u of %u", input->segment.id, neighbor,
						input->nodes);
	}
}

uint32 *
GgReadPivots(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeInput *input)
{
	const uint32 npivots = input->segment.npivots;
	GgPivotEntry *entries = palloc_extended(npivots * sizeof(GgPivotEntry), MCXT_ALLOC_HUGE);
	uint32	   *nodes = palloc(npivots * sizeof(uint32));
	GgArray		array;

	GgFindArray(meta, input->segment.id, GG_KIND_PIVOTS, &array);
	ReadBytes(target, meta, &array, 0, (char *) entries, npivots * sizeof(GgPivotEntry));
	for (uint32 i = 0; i < npivots; i++)
	{
		nodes[i] = entries[i].node;
		if (nodes[i] >= input->nodes)
			ReportBytes(target, &array, (uint64) i * sizeof(GgPivotEntry),
						"a pivot of segment %u is node %u of %u", input->segment.id, nodes[i],
						input->nodes);
	}
	pfree(entries);
	return nodes;
}
