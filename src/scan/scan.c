/*
 * scan.c
 *		Scans: rows in distance order, from every segment and the delta.
 *
 * The index's rows come from streams, one a segment and one or two for the delta.  Each stream hands out
 * nodes nearest first; the scan always takes the nearest head.  A stream is in one of three phases:
 *
 *	device	lists that a GPU answered with (src/service), of gpugraph.itopk_size at first, asked for anew and
 *			longer as the executor wants more
 *	walk	the graph walk, the same way; also where a GPU's longest list was not enough, or it failed
 *	exact	every row of the segment (or delta) measured: first to keep some of the nearest ones,
 *			and once more, if the executor wants more, to sort all others.  Where the graph has
 *			nothing more to say, where it would be slower, and for the delta always
 *
 * A GPU holds the delta's full pages as of some moment; the pages behind them are a stream of their own, read here.
 *
 * The AM is not told LIMIT, and a list's tail is less certain than its head.  So a walk is
 * widened as soon as half of its list was handed out: rows are then taken from a list at least
 * twice as long as what was returned.
 *
 * A widened list may turn up nodes nearer than rows already returned.  relaxed_order returns
 * them at once; strict_order keeps them back until all others were returned.  So a strict scan that
 * is read to its very end returns every row once, in order but for those few at the end.
 *
 * Where rows are stored rounded (storage = 'float16' of a vector column), distances here are those to the
 * rounded rows.  Each row then comes with a lower bound of the operator's value, and the executor puts rows in
 * true order (bound.c).  A row that comes late may have a lower bound than rows before it: the executor
 * compares it with its own, and puts it in its place among those that it still keeps back.
 *
 * A TID is read from its page when the row is returned, never earlier: VACUUM clears it there.
 *
 * This file owns the callbacks, the merge of the streams, and the rows of the nodes that it takes from them: all that is
 * done for each row.  What fills a stream anew is in scan_cpu.c (walks, exact passes) and scan_device.c.
 */
#include "scan/scan.h"

#include "access/relscan.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "keys.h"

/* ---- streams ----------------------------------------------------------- */

static void
InitSegment(GgScanOpaque *so, GgStream *stream, const GgSegment *segment)
{
	stream->segment = segment;
	stream->nodes = segment->nodes;
	stream->list = -1;
	stream->itopk = gg_itopk_size;
	GgFindArray(so->meta, segment->id, GG_KIND_TIDS, &stream->tids);
	GgFindArray(so->meta, segment->id, GG_KIND_OFFSETS, &stream->offsets);
	if (segment->rows != segment->nodes && stream->offsets.nextents == 0)
		GgReportCorruption(so->index, GG_META_BLKNO, "segment %u has %u rows for %u nodes and no offsets",
						   segment->id, segment->rows, segment->nodes);
}

void
GgInitDelta(GgScanOpaque *so, GgStream *stream, uint32 first_page, uint32 end_page)
{
	/* nodes count from the delta's first page, whatever the stream's is */
	stream->nodes = end_page / GgDeltaPagesPerRow(so->meta) * GgDeltaRowsPerPage(so->meta);
	stream->list = -1;
	stream->itopk = gg_itopk_size;
	stream->first_page = first_page;
	stream->end_page = end_page;
	stream->phase = GG_STREAM_EXACT;
}

/* ---- from stream to stream -------------------------------------------------- */

/*
 * Is the list to be widened already?  In the iterative modes once half of it was handed out.
 * With iterative_scan off only to replace rows that turned out dead, which is when the scan still
 * allows rows but the list is empty.
 */
static bool
WidenBeforeNext(GgScanOpaque *so, const GgStream *stream)
{
	return so->mode != GG_ITERATIVE_OFF &&
		stream->handed * 2 > (stream->phase == GG_STREAM_DEVICE ? stream->asked : stream->itopk);
}

/* Make stream->head the nearest node that it did not hand out yet; false at its end. */
static bool
FillHead(GgScanOpaque *so, GgStream *stream)
{
	while (!stream->has_head)
	{
		switch (stream->phase)
		{
			case GG_STREAM_DEVICE:
				if (stream->next_answer == stream->nanswers ||
					(WidenBeforeNext(so, stream) && !(stream->ended && stream->segment == NULL)))
				{
					GgWidenOnDevice(so, stream);
					break;
				}
				stream->head = stream->answers[stream->next_answer++];
				if (GgWasReturned(stream, stream->head.node))
					break;
				stream->handed++;
				if (so->mode == GG_ITERATIVE_STRICT && stream->head.distance < so->last_distance)
				{
					stream->kept_back++;
					stream->answers[stream->next_answer - 1].node = GG_NO_NODE;
					break;
				}
				stream->has_head = true;
				break;

			case GG_STREAM_WALK:
				if (WidenBeforeNext(so, stream) && !GgWiden(so, stream))
					break;
				if (!gg_walk_next(stream->walk, &stream->head))
				{
					(void) GgWiden(so, stream);
					break;
				}
				if (stream->resumed && GgWasReturned(stream, stream->head.node))
					break;
				stream->handed++;
				/* found too late for strict order: the last exact pass brings it */
				if (so->mode == GG_ITERATIVE_STRICT && stream->head.distance < so->last_distance)
					break;
				stream->has_head = true;
				break;

			case GG_STREAM_EXACT:
			case GG_STREAM_LATE:
				stream->has_head = GgNextExact(so, stream);
				if (!stream->has_head)
					stream->phase = GG_STREAM_DONE;
				break;

			case GG_STREAM_DONE:
				return false;
		}
	}
	return true;
}

/*
 * The stream to take the next node from.  Rows that strict order kept back come when every stream
 * has nothing else.
 */
static GgStream *
NearestStream(GgScanOpaque *so)
{
	GgStream   *best = NULL;

	for (int i = 0; i < so->nstreams; i++)
	{
		GgStream   *stream = &so->streams[i];
		bool		late;

		if (!FillHead(so, stream))
			continue;
		late = stream->phase == GG_STREAM_LATE;
		if (best == NULL || late < (best->phase == GG_STREAM_LATE) ||
			(late == (best->phase == GG_STREAM_LATE) && stream->head.distance < best->head.distance))
			best = stream;
	}
	return best;
}

/* ---- rows of a node ---------------------------------------------------- */

static void
EnterNode(GgScanOpaque *so, GgStream *stream)
{
	uint32		node = stream->head.node;

	stream->has_head = false;
	so->current = stream;
	so->distance = stream->head.distance;
	if (stream->phase != GG_STREAM_LATE)
		so->last_distance = stream->head.distance;
	so->row_next = node;
	so->row_end = node + 1;
	/* a device's lists are remembered when they end; exact passes meet no row of theirs twice */
	if (stream->phase == GG_STREAM_WALK)
		GgMarkReturned(so, stream, node);
	if (stream->segment == NULL)
		return;
	if (stream->offsets.nextents > 0)
	{
		uint64		offset = (uint64) node * sizeof(uint32);
		uint32		range[2];

		GgReadArray(so->index, so->meta->instance, &stream->offsets, offset, range, sizeof(range));
		if (range[0] > range[1] || range[1] > stream->segment->rows)
			GgReportCorruption(so->index, GgArrayBlock(&stream->offsets, offset / GG_PAGE_PAYLOAD),
							   "rows %u to %u of node %u are out of range", range[0], range[1], node);
		so->row_next = range[0];
		so->row_end = range[1];
	}
}

/* Read the TID of a row from its page, as it is now; false when VACUUM cleared it. */
static bool
ReadTid(GgScanOpaque *so, GgStream *stream, uint32 row, ItemPointer tid)
{
	Buffer		buffer;
	Page		page;

	if (stream->segment != NULL)
	{
		if (stream->source.index != NULL)
		{
			buffer = GgSourcePin(&stream->source, &stream->tids, row / GG_TIDS_PER_PAGE);
			LockBuffer(buffer, BUFFER_LOCK_SHARE);
		}
		else
			buffer = GgReadPage(so->index, so->meta->instance, &stream->tids,
								row / GG_TIDS_PER_PAGE, BUFFER_LOCK_SHARE);
		page = BufferGetPage(buffer);
		*tid = ((GgTidEntry *) PageGetContents(page))[row % GG_TIDS_PER_PAGE].tid;
	}
	else
	{
		uint32		per_page = GgDeltaRowsPerPage(so->meta);
		uint32		number = so->meta->delta_first + row / per_page * GgDeltaPagesPerRow(so->meta);

		buffer = GgReadPage(so->index, so->meta->instance, &so->delta, number, BUFFER_LOCK_SHARE);
		page = BufferGetPage(buffer);
		*tid = ((GgDeltaRow *) (PageGetContents(page) + (row % per_page) * GgDeltaRowBytes(so->meta)))->tid;
	}
	GgTestForOldSnapshot(so->snapshot, so->index, page);
	UnlockReleaseBuffer(buffer);
	return ItemPointerIsValid(tid);
}

/*
 * With iterative_scan off a scan returns gpugraph.itopk_size rows that its snapshot sees.  The AM is
 * not told which of its rows were dead, so they are looked up once the allowance is used up.
 */
static bool
MayReturnAnother(GgScanOpaque *so, IndexScanDesc scan)
{
	uint32		visible = 0;

	if (so->mode != GG_ITERATIVE_OFF || so->nreturned < so->allowed)
		return true;
	for (uint32 i = 0; i < so->nreturned; i++)
	{
		ItemPointerData tid = so->returned[i];
		bool		all_dead;

		CHECK_FOR_INTERRUPTS();
		if (table_index_fetch_tuple_check(scan->heapRelation, &tid, scan->xs_snapshot, &all_dead))
			visible++;
	}
	if (visible >= (uint32) gg_itopk_size)
		return false;
	so->allowed = so->nreturned + (gg_itopk_size - visible);
	return true;
}

static void
RememberReturned(GgScanOpaque *so, ItemPointer tid)
{
	if (so->mode != GG_ITERATIVE_OFF)
		return;
	if (so->nreturned >= so->returned_cap)
	{
		so->returned_cap = Max(64, so->returned_cap * 2);
		if (so->returned == NULL)
			so->returned = MemoryContextAllocHuge(so->context, so->returned_cap * sizeof(ItemPointerData));
		else
			so->returned = repalloc_huge(so->returned, so->returned_cap * sizeof(ItemPointerData));
	}
	so->returned[so->nreturned++] = *tid;
}

static void
CountScan(GgScanOpaque *so)
{
	if (so->started)
		GgCountQuery(so->index, so->reason, so->nrows);
	so->started = false;
}

/* ---- access method callbacks ------------------------------------------- */

IndexScanDesc
ggbeginscan(Relation index, int nkeys, int norderbys)
{
	IndexScanDesc scan = RelationGetIndexScan(index, nkeys, norderbys);
	GgScanOpaque *so = palloc0(sizeof(GgScanOpaque));
	MemoryContextCallback *callback = palloc(sizeof(MemoryContextCallback));

	so->index = index;
	so->context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph scan", ALLOCSET_DEFAULT_SIZES);
	callback->func = GgReturnWalks;
	callback->arg = so;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);
	scan->opaque = so;

	/* for rows that are stored rounded, see bound.c */
	scan->xs_orderbyvals = palloc0(norderbys * sizeof(Datum));
	scan->xs_orderbynulls = palloc(norderbys * sizeof(bool));
	memset(scan->xs_orderbynulls, true, norderbys * sizeof(bool));
	return scan;
}

void
ggrescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys, int norderbys)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;

	if (keys && scan->numberOfKeys > 0)
		memmove(scan->keyData, keys, scan->numberOfKeys * sizeof(ScanKeyData));
	if (orderbys && scan->numberOfOrderBys > 0)
		memmove(scan->orderByData, orderbys, scan->numberOfOrderBys * sizeof(ScanKeyData));

	CountScan(so);
	GgEndSorts(so);
	GgReturnWalks(so);
	MemoryContextReset(so->context);
	so->nrows = 0;
	so->nstreams = 0;
	so->streams = NULL;
	so->current = NULL;
	so->row_next = so->row_end = 0;
	so->query = NULL;
	memset(scan->xs_orderbynulls, true, scan->numberOfOrderBys * sizeof(bool));
	so->nreturned = 0;
	so->returned = NULL;
	so->returned_cap = 0;
}

/* VACUUM may have given back segments and delta pages whose rows an expired snapshot still sees. */
static void
TestDirectory(GgScanOpaque *so)
{
	GgMetaPageData *meta;
	Buffer		buffer;

	if (!GgSnapshotsExpire())
		return;
	buffer = GgLockMeta(so->index, BUFFER_LOCK_SHARE, &meta);
	GgTestForOldSnapshot(so->snapshot, so->index, BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
}

/*
 * The metapage is copied here, after the scan's snapshot was taken: every row committed before the
 * snapshot is in the segments and delta pages that the copy names.
 */
static void
StartScan(IndexScanDesc scan)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	const GgOpclass *opclass = GgIndexOpclass(scan->indexRelation);
	ScanKey		key;
	uint32		delta_done;

	if (scan->numberOfOrderBys != 1 || scan->orderByData == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot scan a gpugraph index but in the order of one distance"),
				 errhint("Order by the distance operator of the index, or leave the index out of the plan.")));
	if (!IsMVCCSnapshot(scan->xs_snapshot))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("gpugraph indexes can only be scanned with an MVCC snapshot")));

	pgstat_count_index_scan(scan->indexRelation);
	GgCountSearch(scan);

	so->heap = scan->heapRelation;
	so->heap_blocks = 0;
	so->mode = gg_iterative_scan;
	so->allowed = gg_itopk_size;
	so->last_distance = -get_float4_infinity();
	so->snapshot = scan->xs_snapshot;
	so->meta = palloc(sizeof(GgMetaPageData));
	GgReadMeta(scan->indexRelation, so->meta);
	TestDirectory(so);

	key = &scan->orderByData[0];
	if (!(key->sk_flags & SK_ISNULL))
		so->query = GgQueryFromValue(opclass, key->sk_argument, so->meta->dimensions);
	GgBoundInit(&so->bound, opclass, so->meta, key->sk_argument, so->query);

	so->streams = palloc0((so->meta->nsegments + 2) * sizeof(GgStream));
	for (int i = 0; i < so->meta->nsegments; i++)
	{
		const GgSegment *segment = &so->meta->segments[i];

		if (segment->nodes > 0 && segment->dead < segment->rows)
			InitSegment(so, &so->streams[so->nstreams++], segment);
	}
	if (so->meta->delta_pages > 0)
		GgFindArray(so->meta, GG_NO_SEGMENT, GG_KIND_DELTA, &so->delta);

	if (!GgAskDevice(so, &delta_done))
		GgFallBack(so->index, so->reason);
	for (int i = 0; i < so->nstreams; i++)
		if (so->streams[i].list < 0)
			GgStartOnCpu(so, &so->streams[i]);
	if (so->meta->delta_pages > delta_done)
		GgInitDelta(so, &so->streams[so->nstreams++], delta_done, so->meta->delta_pages);
	so->started = true;
}

/* The next row's TID; false at the end of the scan. */
static bool
NextTid(GgScanOpaque *so, IndexScanDesc scan, ItemPointer tid)
{
	for (;;)
	{
		GgStream   *stream;

		CHECK_FOR_INTERRUPTS();
		if (!MayReturnAnother(so, scan))
			return false;
		while (so->row_next < so->row_end)
			if (ReadTid(so, so->current, so->row_next++, tid))
				return true;
		stream = NearestStream(so);
		if (stream == NULL)
			return false;
		EnterNode(so, stream);
	}
}

bool
gggettuple(IndexScanDesc scan, ScanDirection dir)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	MemoryContext old = MemoryContextSwitchTo(so->context);
	bool		found;

	Assert(ScanDirectionIsForward(dir));

	if (!so->started)
		StartScan(scan);
	found = NextTid(so, scan, &scan->xs_heaptid);
	if (found)
	{
		so->nrows++;
		RememberReturned(so, &scan->xs_heaptid);
	}
	scan->xs_recheck = false;
	scan->xs_recheckorderby = false;
	if (found && so->bound.rounded)
	{
		Oid			type = FLOAT8OID;
		IndexOrderByDistance least = {GgBoundOf(&so->bound, so->distance), false};

		index_store_float8_orderby_distances(scan, &type, &least, true);
	}
	MemoryContextSwitchTo(old);
	return found;
}

void
ggendscan(IndexScanDesc scan)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;

	CountScan(so);
	GgEndSorts(so);
	/* so itself goes with the context that GgReturnWalks() is registered with */
	GgReturnWalks(so);
	MemoryContextDelete(so->context);
}
