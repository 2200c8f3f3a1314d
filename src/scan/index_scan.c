/*
 * index_scan.c
 *		Scans: rows in distance order, from every segment and the delta.
 *
 * The index's rows come from streams: one per segment, and one or two for the delta.  Each stream
 * hands out nodes nearest first, and the scan always takes the nearest head.  Three
 * implementations bring a stream's nodes (scan.h).  They follow each other, because each knows
 * when it has no more to say:
 *
 *	device	lists that a GPU answered with (src/service), gpugraph.itopk_size long at first, and
 *			longer as the executor wants more
 *	walk	a walk of the graph on the CPU, with lists that grow in the same way.  It serves where
 *			no GPU does, where a GPU's longest list was not enough, and where a GPU failed
 *	exact	every row of the segment (or delta) measured.  It serves where the graph has nothing
 *			more to say, where a search would be slower, and for the delta unless a GPU does
 *
 * A GPU that has no room for all segments answers for those that it has.  The CPU walks the others
 * meanwhile.
 *
 * A GPU holds the delta's full pages as of some moment.  The pages behind them are a stream of
 * their own, read here.
 *
 * A list's tail is less certain than its head.  So a list is followed by a longer one as soon as
 * half of it was handed out: rows are taken from a list at least twice as long as what was
 * returned.  The AM is not told LIMIT.  expected_rows.c finds it where it can, for the length of
 * first lists.
 *
 * A longer list may turn up nodes nearer than rows already returned.  relaxed_order returns them
 * at once.  strict_order keeps them back until all others were returned.  So a strict scan that is
 * read to its very end returns every row once, in order but for those few at the end.  A scan with
 * iterative_scan off goes on where rows of its list are dead, and keeps nearer ones back, too.
 *
 * Where rows are stored rounded (storage = 'float16' of a vector column), distances here are those
 * to the rounded rows.  Each row comes with a lower bound of the operator's value, and the executor
 * puts rows in true order (bound.c).  A row that comes late may have a lower bound than rows before
 * it.  The executor goes by the operator's value, and puts the row in its place among those that it
 * still keeps back.  Under relaxed_order the order of the rounded rows is the final one.
 *
 * Where the index has codes and no vectors, distances here are estimates, and rows are put in order
 * by the table's values before they are returned (table_order.c).
 *
 * A scan may have a filter (row_filter.c).  Then streams hand out nodes of which a row matches.
 *
 * A scan for all rows within a distance (plan/range_path.c) has no order, and must not miss a row.
 * So every row is measured, whatever settings say of scans in order, and what is beyond the
 * distance is left alone.  Where a few rows may be enough, and no device measures, a walk's first
 * list comes before that.
 *
 * A TID is read from its page when the row is returned, never earlier: VACUUM clears it there.
 *
 * This file owns the callbacks, the merge of the streams, and the rows of the nodes that it takes
 * from them: all that is done per row.
 */
#include "scan/row_filter.h"
#include "scan/sort_key.h"
#include "maintain/merge.h"

#include "access/relscan.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* How often a scan starts anew with a newer directory, where no device has the older one. */
#define DIRECTORY_ATTEMPTS	3

/* ---- streams ----------------------------------------------------------- */

/* Add a segment; the largest comes first, since its walk tells the others how far to look. */
static void
AddSegment(GgScanOpaque *so, const GgSegment *segment)
{
	GgStream   *stream = &so->streams[so->nstreams++];

	for (; stream > so->streams && stream[-1].nodes < segment->nodes; stream--)
		*stream = stream[-1];
	memset(stream, 0, sizeof(GgStream));
	stream->itopk = so->params.itopk_size;
	stream->segment = segment;
	stream->nodes = segment->nodes;
	GgFindArray(so->meta, segment->id, GG_KIND_TIDS, &stream->tids);
	GgFindArray(so->meta, segment->id, GG_KIND_OFFSETS, &stream->offsets);
	GgFindArray(so->meta, segment->id, GG_KIND_FILTERS, &stream->filters);
}

/* Make the stream that of the delta's pages [first_page, end_page). */
static void
NameDelta(GgScanOpaque *so, GgStream *stream, uint32 first_page, uint32 end_page)
{
	stream->itopk = so->params.itopk_size;
	/* nodes count from the delta's first page, whatever the stream's is */
	stream->nodes = GgRowsOnPages(so->meta, end_page);
	stream->first_page = first_page;
	stream->end_page = end_page;
}

static void
AddDelta(GgScanOpaque *so, uint32 first_page, uint32 end_page)
{
	if (first_page < end_page)
		NameDelta(so, &so->streams[so->nstreams++], first_page, end_page);
}

static void
CloseStream(GgStream *stream)
{
	if (stream->state != NULL && stream->ops->done != NULL)
		stream->ops->done(stream);
}

static void
OpenStream(GgScanOpaque *so, GgStream *stream, const GgStreamOps *ops)
{
	CloseStream(stream);
	stream->ops = ops;
	stream->state = NULL;
	stream->list = ops->first_list(so, stream);
}

/* Go on with the implementation that the list's state asks for; false where there is no more. */
static bool
OpenNext(GgScanOpaque *so, GgStream *stream)
{
	switch (stream->list)
	{
		case GG_LIST_READY:
			break;
		case GG_LIST_TOO_SHORT:
			OpenStream(so, stream, &gg_walk_stream);
			break;
		case GG_LIST_SEARCHED:
			OpenStream(so, stream, &gg_exact_stream);
			break;
		case GG_LIST_COMPLETE:
			return false;
	}
	return true;
}

static void
EndStreams(GgScanOpaque *so)
{
	for (int i = 0; i < so->nstreams; i++)
		CloseStream(&so->streams[i]);
	CloseStream(&so->tail);
	memset(&so->tail, 0, sizeof(GgStream));
	so->nstreams = 0;
	so->streams = NULL;
}

/* Make stream->head the nearest node that it did not hand out yet; false at its end. */
static bool
FillHead(GgScanOpaque *so, GgStream *stream)
{
	while (!stream->has_head)
	{
		CHECK_FOR_INTERRUPTS();
		if (stream->list != GG_LIST_READY)
		{
			so->widenings += stream->handed > 0 && stream->list != GG_LIST_COMPLETE;
			if (!OpenNext(so, stream))
				return false;
		}
		else if (stream->ops->next(so, stream))
			stream->has_head = true;
		else
		{
			stream->list = stream->ops->next_list(so, stream);
			so->widenings += stream->list == GG_LIST_READY;
		}
	}
	return true;
}

/*
 * FillHead() of a scan for all rows within a distance.  Where a walk has nothing else within, every
 * row is measured.
 */
static bool
FillHeadOfRange(GgScanOpaque *so, GgStream *stream)
{
	if (!FillHead(so, stream))
		return false;
	if (stream->ops != &gg_walk_stream || stream->head.distance <= so->farthest)
		return true;
	stream->has_head = false;
	OpenStream(so, stream, &gg_exact_stream);
	return FillHead(so, stream);
}

/*
 * The stream to take the next node from.  Late rows come when every stream has nothing else.  A
 * stream whose head is too far has nothing else, either.
 */
static GgStream *
NearestStream(GgScanOpaque *so)
{
	GgStream   *best = NULL;

	for (int i = 0; i < so->nstreams; i++)
	{
		GgStream   *stream = &so->streams[i];

		if (!(so->range && !so->look ? FillHeadOfRange : FillHead) (so, stream) ||
			stream->head.distance > so->farthest)
			continue;
		if (best == NULL || stream->late < best->late ||
			(stream->late == best->late && stream->head.distance < best->head.distance))
			best = stream;
	}
	return best;
}

static int
CompareLate(const void *a, const void *b)
{
	const GgLateNode *left = a;
	const GgLateNode *right = b;

	return left->distance < right->distance ? 1 : -(left->distance > right->distance);
}

/*
 * The stream to take the next node from once the scan has ended at a distance: a node that was kept
 * back becomes its head.  Several lists may have named that node.  NULL: none is left.
 */
static GgStream *
LateStream(GgScanOpaque *so)
{
	if (!so->beyond && so->nkept > 1)
		qsort(so->kept_back, so->nkept, sizeof(GgLateNode), CompareLate);
	so->beyond = true;
	while (so->nkept > 0)
	{
		const GgLateNode *late = &so->kept_back[--so->nkept];
		GgStream   *stream = late->stream;

		/* an exact pass has handed out all nodes that had not been returned */
		if (stream->ops == &gg_exact_stream || GgWasReturned(stream, late->node))
			continue;
		GgMarkReturned(so, stream, late->node);
		stream->head = (gg_candidate) {.distance = late->distance, .node = late->node};
		stream->late = true;
		return stream;
	}
	return NULL;
}

/* ---- rows of a node ---------------------------------------------------- */

static void
EnterNode(GgScanOpaque *so, GgStream *stream)
{
	uint32		node = stream->head.node;

	stream->has_head = false;
	so->current = stream;
	so->entered++;
	so->distance = stream->head.distance;
	so->late = stream->late;
	if (!so->late)
		so->last_distance = stream->head.distance;
	so->row_next = node;
	so->row_end = node + 1;
	if (stream->segment != NULL && node == so->left_out_node.node &&
		stream->segment->id == so->left_out_node.segment)
	{
		so->row_next = so->row_end;
		return;
	}
	if (stream->segment != NULL && stream->offsets.nextents > 0)
	{
		uint64		offset = (uint64) node * sizeof(uint32);
		uint32		range[2];

		GgReadArray(so->index, so->meta->instance, &stream->offsets, offset, range, sizeof(range));
		if (range[0] > range[1] || range[1] > stream->segment->rows)
			GgReportCorruption(so->index,
							   GgArrayBlock(&stream->offsets, offset / GG_PAGE_PAYLOAD),
							   "rows %u to %u of node %u are out of range",
							   range[0], range[1], node);
		so->row_next = range[0];
		so->row_end = range[1];
	}
}

/* Read the TID of a row from its page, as it is now.  False when VACUUM has cleared it. */
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
								row / GG_TIDS_PER_PAGE);
		page = BufferGetPage(buffer);
		*tid = ((GgTidEntry *) PageGetContents(page))[row % GG_TIDS_PER_PAGE].tid;
	}
	else
	{
		/* a device may still know a row that VACUUM has given back */
		if (!GgReadDeltaPage(so->index, so->meta, &so->delta, GgDeltaPageOf(so->meta, row),
							 &buffer))
			return false;
		page = BufferGetPage(buffer);
		*tid = GgDeltaRowOf(so->meta, page, row % GgDeltaRowsPerPage(so->meta))->tid;
	}
	if (ItemPointerIsValid(tid))
		GgCheckTid(so->index, so->heap, BufferGetBlockNumber(buffer), tid, &so->heap_length);
	GgTestForOldSnapshot(so->snapshot, so->index, page);
	UnlockReleaseBuffer(buffer);
	return ItemPointerIsValid(tid);
}

/*
 * With iterative_scan off a scan returns gpugraph.itopk_size rows that its snapshot sees.  The AM
 * is not told which of its rows were dead, so it looks them up once the allowance is used up.
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
	if (visible >= so->params.itopk_size)
		return false;
	so->allowed = so->nreturned + (so->params.itopk_size - visible);
	return true;
}

static void
RememberReturned(GgScanOpaque *so, ItemPointer tid)
{
	if (so->mode != GG_ITERATIVE_OFF)
		return;
	GgNeedRoom(so->context, so->returned, so->nreturned, so->returned_cap);
	so->returned[so->nreturned++] = *tid;
}

static void
CountScan(GgScanOpaque *so)
{
	if (so->started && (!so->all_exact || so->range) && !so->quiet)
	{
		GgCountQuery(RelationGetRelid(so->index), GgAnsweredBy(so), so->nrows);
		GgNoteScan(so);
	}
	so->started = false;
}

/* ---- access method callbacks ------------------------------------------- */

IndexScanDesc
ggbeginscan(Relation index, int nkeys, int norderbys)
{
	IndexScanDesc scan = RelationGetIndexScan(index, nkeys, norderbys);
	GgScanOpaque *so = palloc0(sizeof(GgScanOpaque));

	so->index = index;
	so->left_out_node.segment = GG_NO_SEGMENT;
	so->context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph scan",
										ALLOCSET_DEFAULT_SIZES);
	scan->opaque = so;

	/* for rows that the executor puts in order, see bound.c */
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
	EndStreams(so);
	GgEndTableOrder(so);
	MemoryContextReset(so->context);
	so->prepared = false;
	so->nrows = 0;
	so->widenings = 0;
	so->distances = so->reranked = 0;
	so->current = NULL;
	so->row_next = so->row_end = 0;
	so->query = NULL;
	GgMakeFilter(so, scan->keyData, scan->numberOfKeys);
	memset(scan->xs_orderbynulls, true, scan->numberOfOrderBys * sizeof(bool));
	so->nreturned = 0;
	so->returned = NULL;
	so->returned_cap = 0;
	so->left_out = NULL;
	so->by_table = so->beyond = false;
	so->farthest = so->farthest_row = get_float4_infinity();
	so->sure_within = -get_float8_infinity();
	so->kept_back = NULL;
	so->nkept = so->kept_room = 0;
	memset(so->code_queries, 0, sizeof(so->code_queries));
	so->nearest = NULL;
	so->together = false;
}

static void
RefuseScan(IndexScanDesc scan)
{
	if (scan->numberOfOrderBys != 1 || scan->orderByData == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot scan a gpugraph index but in the order of one distance"),
				 errhint("Order by the distance operator of the index, "
						 "or leave the index out of the plan.")));
	if (!IsMVCCSnapshot(scan->xs_snapshot))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("gpugraph indexes can only be scanned with an MVCC snapshot")));
}

/*
 * Measure the rows of the delta that the device does not have.  Where another device, or none, is
 * asked in the end, these are other rows, and are measured anew.
 */
static void
MeasureTail(GgScanOpaque *so)
{
	if (so->tail.ops != NULL && so->tail.first_page == so->device.delta_pages)
		return;
	CloseStream(&so->tail);
	memset(&so->tail, 0, sizeof(GgStream));
	if (so->device.delta_pages == so->meta->delta_pages)
		return;
	NameDelta(so, &so->tail, so->device.delta_pages, so->meta->delta_pages);
	OpenStream(so, &so->tail, &gg_exact_stream);
	(void) FillHead(so, &so->tail);
}

/*
 * What need not wait for the device: walks of the segments that it lacks, up to their first nodes,
 * and the delta's last rows.
 */
static void
OpenMeanwhile(void *arg)
{
	GgScanOpaque *so = arg;

	for (int i = 0; i < so->nstreams; i++)
	{
		GgStream   *stream = &so->streams[i];

		if (stream->ops == NULL &&
			(so->device.missing >> (stream->segment - so->meta->segments) & 1) != 0)
		{
			OpenStream(so, stream, &gg_walk_stream);
			(void) FillHead(so, stream);
		}
	}
	MeasureTail(so);
}

/*
 * Copy the directory.  A thousand scans may be open at a time, so that each has the extents that
 * there are, and no room for others.
 */
static void
ReadDirectory(GgScanOpaque *so)
{
	static GgMetaPageData whole;
	Size		bytes;

	GgReadMetaAsOf(so->index, so->snapshot, &whole);
	bytes = offsetof(GgMetaPageData, extents) + whole.nextents * sizeof(GgExtent);
	so->meta = palloc(bytes);
	memcpy(so->meta, &whole, bytes);
}

static void
AddSegments(GgScanOpaque *so)
{
	const GgMetaPageData *meta = so->meta;

	so->nstreams = 0;
	so->streams = palloc0((meta->nsegments + 2) * sizeof(GgStream));
	for (int i = 0; i < meta->nsegments; i++)
		if (meta->segments[i].nodes > 0 && meta->segments[i].dead < meta->segments[i].rows)
			AddSegment(so, &meta->segments[i]);
	if (meta->delta_pages > 0)
		GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_DELTA, &so->delta);
}

/* Every row is to be measured, but where a few may be enough a walk comes first. */
static const GgStreamOps *
ExactOps(const GgScanOpaque *so, const GgStream *stream)
{
	return (so->marks & GG_KEY_FEW) != 0 && stream->segment != NULL ? &gg_walk_stream :
		&gg_exact_stream;
}

/*
 * Open the streams of all segments and of the delta, each with what the device answered, if it did.
 * Without an answer a stream walks or measures when the scan looks for its first node, but at once
 * where the scan is exact.
 *
 * A merge may have flipped the directory since the scan copied it, and the device may have the
 * later one only.  Then the scan starts with the later one, which is newer than the scan's
 * snapshot, too.
 */
static void
StartStreams(GgScanOpaque *so, int attempts)
{
	const GgMetaPageData *meta = so->meta;
	const bool	answered = GgAskDevice(so, OpenMeanwhile);

	if (so->exact && !answered)
		so->reason = GG_REASON_EXACT;
	else if (!answered)
	{
		if (so->reason == GG_REASON_NOT_RESIDENT && attempts > 0 &&
			GgHasNewGeneration(so->index, meta))
		{
			EndStreams(so);
			ReadDirectory(so);
			AddSegments(so);
			StartStreams(so, attempts - 1);
			return;
		}
		GgFallBack(so->index, so->reason);
		GgTakeForm(so, GgCpuForm(meta), false);
	}
	AddDelta(so, 0, so->device.delta_pages);
	if (so->tail.ops != NULL && so->tail.first_page == so->device.delta_pages)
		so->streams[so->nstreams++] = so->tail;
	else
	{
		CloseStream(&so->tail);
		AddDelta(so, so->device.delta_pages, so->look ? so->device.delta_pages :
				 meta->delta_pages);
	}
	memset(&so->tail, 0, sizeof(GgStream));
	for (int i = 0; i < so->nstreams; i++)
		if (so->streams[i].ops == NULL)
			OpenStream(so, &so->streams[i], so->exact && !answered ?
					   ExactOps(so, &so->streams[i]) : &gg_device_stream);
}

static const float *
TheQuery(void *arg, int number)
{
	return ((const GgScanOpaque *) arg)->query;
}

/*
 * The executor is to put rows in the order of the operator's values, which takes a bound for each.
 * There is none where all distances are NaN, as those of a zero vector are.
 */
static void
InitExactOrder(GgScanOpaque *so)
{
	const GgMetaPageData *meta = so->meta;

	if (so->query == NULL || meta->metric == GG_METRIC_L2 || meta->metric == GG_METRIC_L1)
		return;
	if (GgIsZeroVector(so->query, meta->dimensions))
		so->marks &= ~GG_KEY_EXACT;
	else if (meta->metric == GG_METRIC_IP && meta->largest_length > 0)
		(void) GgBoundInitProduct(&so->bound, meta, so->query);
}

/* Find out where conditions on the distance end the scan.  False: no row fulfils them. */
static bool
EndAtDistance(GgScanOpaque *so, const ScanKeyData *key)
{
	const GgTold *told = key->sk_func.fn_extra;
	float		farthest;

	/* operands are not evaluated where there is no row */
	if (told == NULL || told->within == NULL ||
		(so->meta->nsegments == 0 && so->meta->delta_pages == 0))
		return true;
	farthest = GgFarthest(so, key);
	if (so->by_table)
		so->farthest_row = farthest;
	else
		so->farthest = farthest;
	return farthest != -get_float4_infinity();
}

/*
 * The index has no zero vectors under cosine.  Their distance is NaN, which fulfils some
 * conditions, such as 1 - d > t.  The planner saw that there are none, but now there may be.
 */
static void
FindNaNsOfRange(IndexScanDesc scan, const ScanKeyData *key)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	const GgMetaPageData *meta = so->meta;

	if (meta->metric != GG_METRIC_COSINE || (GgNeverLeftOut(meta) & GG_FEATURE_NO_ZERO) != 0 ||
		so->query == NULL)
		return;
	/* operands are not evaluated where the index has no row */
	if ((meta->nsegments > 0 || meta->delta_pages > 0) && !GgMayHoldAtNaN(so, key))
		return;
	so->marks |= GG_KEY_NANS_FIRST;
	GgFindLeftOut(scan);
}

/* Settings, and what the key says of the scan. */
static void
SetMode(GgScanOpaque *so, const ScanKeyData *key)
{
	so->marks = GgKeyMarks(key->sk_collation);
	so->mode = so->marks != 0 ? GG_ITERATIVE_STRICT : gg_iterative_scan;
	so->params = GgSearchSettings();
	so->max_scan_tuples = gg_max_scan_tuples;
	so->allowed = so->params.itopk_size;
	so->range = (so->marks & GG_KEY_RANGE) != 0;
	if (!so->range)
		return;
	/* a walk that comes first has one list */
	so->mode = GG_ITERATIVE_RELAXED;
	so->max_scan_tuples = 0;
	so->all_exact = !so->look;
	if (so->all_exact)
		so->reason = GG_REASON_EXACT;
}

/*
 * The metapage is copied here, after the scan's snapshot was taken: every row committed before the
 * snapshot is in the segments and delta pages that the copy names.
 */
static void
PrepareScan(IndexScanDesc scan)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	const GgOpclass *opclass = GgIndexOpclass(scan->indexRelation);
	const GgTold *told;
	ScanKey		key;

	RefuseScan(scan);
	if (!so->quiet)
		pgstat_count_index_scan(scan->indexRelation);
	GgCountSearch(scan);
	told = scan->orderByData[0].sk_func.fn_extra;
	if (told != NULL && told->sets != NIL && !so->impossible)
		GgTakeSets(scan, told->sets);
	if (so->impossible)
		return;

	key = &scan->orderByData[0];
	so->heap = scan->heapRelation;
	SetMode(so, key);
	so->last_distance = -get_float4_infinity();
	so->late = false;
	so->snapshot = scan->xs_snapshot;
	ReadDirectory(so);
	if (GgLeavesOutFirst(so->meta, so->marks))
		GgFindLeftOut(scan);

	if (!(key->sk_flags & SK_ISNULL))
		so->query = GgQueryFromValue(opclass, key->sk_argument, so->meta->dimensions);
	if (so->query != NULL && !so->by_function)
		GgNoteQueries(scan->indexRelation, so->meta->dimensions, 1, TheQuery, so);
	so->by_table = so->meta->coded != GG_CODES_NONE && so->query != NULL;
	/* rows come late by their distances, of which streams know nothing then */
	so->strict_table = so->by_table && so->mode == GG_ITERATIVE_STRICT;
	if (so->strict_table)
		so->mode = GG_ITERATIVE_RELAXED;
	so->keeps_back = so->mode != GG_ITERATIVE_RELAXED && !so->by_table;
	GgReadExpected(so, key);
	GgAimAtRecall(so);
	GgBoundInit(&so->bound, opclass, so->meta, key->sk_argument, so->query);
	if ((so->marks & GG_KEY_EXACT) != 0)
		InitExactOrder(so);
	if (so->range && !so->look)
		FindNaNsOfRange(scan, key);
	if (!EndAtDistance(so, key))
	{
		so->impossible = true;
		so->by_table = false;
		return;
	}
	AddSegments(so);
	so->device.answered = false;
	so->prepared = true;
}

static void
StartScan(IndexScanDesc scan)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;

	if (!so->prepared && so->left_out == NULL)
		PrepareScan(scan);
	if (!so->prepared)
		return;
	StartStreams(so, DIRECTORY_ATTEMPTS);
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
		if (!so->by_table && !MayReturnAnother(so, scan))
			return false;
		while (so->row_next < so->row_end)
		{
			uint32		row = so->row_next++;

			if (GgMayMatch(so, so->current, row) && ReadTid(so, so->current, row, tid) &&
				GgTidMatches(so, tid))
				return true;
		}
		stream = so->beyond ? NULL : NearestStream(so);
		if (stream == NULL)
			stream = LateStream(so);
		if (stream == NULL)
			return false;
		EnterNode(so, stream);
	}
}

/* Is the executor to put rows in the order of the table's values? */
static bool
WantsTrueOrder(const GgScanOpaque *so)
{
	if (so->range)
		return false;
	if ((so->marks & GG_KEY_EXACT) != 0 && !so->by_table && !isinf(so->bound.offset))
		return true;
	return so->bound.rounded && (so->mode != GG_ITERATIVE_RELAXED || so->exact);
}

bool
gggettuple(IndexScanDesc scan, ScanDirection dir)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	MemoryContext old = MemoryContextSwitchTo(so->context);
	bool		found,
				left_out;

	Assert(ScanDirectionIsForward(dir));

	if (!so->started)
		StartScan(scan);
	left_out = GgNextLeftOut(so, &scan->xs_heaptid);
	if (left_out)
		found = true;
	else if (so->by_table)
		found = GgNextInTableOrder(scan, NextTid, &scan->xs_heaptid);
	else
		found = so->started && NextTid(so, scan, &scan->xs_heaptid);
	if (found && (so->by_table || left_out))
		so->nrows++;
	else if (found)
	{
		so->nrows++;
		RememberReturned(so, &scan->xs_heaptid);
		if (so->current->heap_blocks > 0)
			GgPinRow(scan->heapRelation, scan->xs_heapfetch, &scan->xs_heaptid);
	}
	/* keys are checked even where words are exact, since these may be damaged */
	scan->xs_recheck = found && (scan->numberOfKeys > 0 ||
								 (so->checks &&
								  (left_out || !(so->distance < so->sure_within))));
	scan->xs_recheckorderby = false;
	if (found && !left_out && WantsTrueOrder(so))
	{
		Oid			type = FLOAT8OID;
		IndexOrderByDistance least = {GgBoundOf(&so->bound, so->distance), false};

		index_store_float8_orderby_distances(scan, &type, &least, true);
		GgNoteBound(so);
	}
	MemoryContextSwitchTo(old);
	return found;
}

void
GgPrepareSearch(IndexScanDesc scan, GgNearest *nearest)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	MemoryContext old = MemoryContextSwitchTo(so->context);

	Assert(!so->prepared);
	so->together = nearest != NULL && so->filter == NULL;
	if (so->together)
		so->nearest = nearest;
	PrepareScan(scan);
	MemoryContextSwitchTo(old);
}

void
GgOpenSearch(IndexScanDesc scan)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	MemoryContext old = MemoryContextSwitchTo(so->context);

	if (so->prepared)
		StartScan(scan);
	for (int i = 0; so->started && i < so->nstreams; i++)
		while (so->streams[i].list != GG_LIST_READY && OpenNext(so, &so->streams[i]))
			;
	MemoryContextSwitchTo(old);
}

double
GgLeastDistance(IndexScanDesc scan)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	MemoryContext old = MemoryContextSwitchTo(so->context);
	float		least = get_float4_infinity();

	/* distances of codes are estimates */
	if (!so->started || so->by_table)
		least = -get_float4_infinity();
	else if (so->row_next < so->row_end)
		least = so->distance;
	if (so->nkept > 0)
		least = -get_float4_infinity();
	for (int i = 0; so->started && !so->beyond && i < so->nstreams; i++)
	{
		GgStream   *stream = &so->streams[i];

		if (stream->has_head)
			least = Min(least, stream->late ? -get_float4_infinity() : stream->head.distance);
		else if (stream->list != GG_LIST_COMPLETE)
			least = Min(least, stream->ops->least(so, stream));
	}
	MemoryContextSwitchTo(old);
	if (least > so->farthest)
		return get_float8_infinity();
	if (isinf(least))
		return least;
	return GgBoundOf(&so->bound, least);
}

void
ggendscan(IndexScanDesc scan)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;

	CountScan(so);
	GgForgetBound(so);
	EndStreams(so);
	GgEndTableOrder(so);
	MemoryContextDelete(so->context);
}
