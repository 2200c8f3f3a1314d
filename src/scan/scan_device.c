/*
 * scan_device.c
 *		A scan's streams from a device: what a GPU is asked, and its answers.
 *
 * This file owns the choice of what a GPU is asked for: all first lists with one query when the scan starts, then longer
 * ones stream by stream.  Queries go through service/client.c.  A stream that a GPU has no longer lists for, or whose
 * GPU fails, goes on in scan_cpu.c, with what it handed out marked.
 */
#include "scan/scan.h"

#include "port/pg_bitutils.h"

/*
 * Pages of the delta from which a GPU is asked about them: fewer are read in some microseconds, less than one more batch
 * costs it.
 */
#define DEVICE_DELTA_PAGES	16

/* Length of the lists to ask for, so that the slot has room for all up to the given one. */
static uint32
ListLength(uint32 itopk, int last_list)
{
	return Min(itopk, GG_SLOT_CANDIDATES / (uint32) (last_list + 1));
}

/* A stream's list out of the slot, which is the next query's. */
static void
KeepAnswers(GgScanOpaque *so, GgStream *stream, const GgServiceAnswer *answer)
{
	const uint32 *nodes = answer->nodes + (Size) stream->list * answer->k;
	const float *distances = answer->distances + (Size) stream->list * answer->k;

	if (stream->answers == NULL || stream->asked < answer->k)
	{
		if (stream->answers != NULL)
			pfree(stream->answers);
		stream->answers = MemoryContextAlloc(so->context, answer->k * sizeof(gg_candidate));
	}
	stream->asked = answer->k;
	stream->nanswers = 0;
	stream->next_answer = 0;
	stream->handed -= stream->kept_back;
	stream->kept_back = 0;
	stream->ended = false;
	for (uint32 i = 0; i < answer->k && !stream->ended; i++)
	{
		gg_candidate *candidate = &stream->answers[stream->nanswers];

		candidate->node = nodes[i];
		candidate->distance = distances[i];
		if (nodes[i] < stream->nodes)
			stream->nanswers++;
		else if (nodes[i] == GG_NO_NODE)
			stream->ended = true;
	}
}

/*
 * One query to the device that holds the index.  The copy may have been replaced by a newer one since it was looked up: then
 * that one is asked, where it holds the same rows.  False: so->reason says why.
 */
static bool
AskOnce(GgScanOpaque *so, uint32 lists, bool delta, uint32 length, uint32 itopk, GgServiceAnswer *answer)
{
	for (int attempt = 0;; attempt++)
	{
		uint32		delta_pages = so->ref.delta_pages;

		if (GgServiceSearch(&so->ref, so->query, so->meta->dimensions, lists, delta, length, itopk, answer,
							&so->reason))
			return true;
		if (so->reason != GG_REASON_NOT_RESIDENT || attempt >= 2 ||
			!GgResidentLookup(so->index, so->meta, &so->ref, &so->reason))
			return false;
		if (delta && so->ref.delta_pages != delta_pages)
		{
			so->reason = GG_REASON_NOT_RESIDENT;
			return false;
		}
	}
}

/*
 * What the scan has had of the list goes into the bitmap.  Not sooner, for most scans end within their first lists, and
 * clearing a bit for each of a million nodes takes longer than all else that is done here.
 */
static void
MarkHanded(GgScanOpaque *so, GgStream *stream)
{
	for (uint32 i = 0; i < stream->next_answer; i++)
		if (stream->answers[i].node != GG_NO_NODE)
			GgMarkReturned(so, stream, stream->answers[i].node);
}

void
GgWidenOnDevice(GgScanOpaque *so, GgStream *stream)
{
	uint64		itopk = Max((uint64) stream->itopk * 2, (uint64) stream->itopk + 16);
	bool		delta = stream->segment == NULL;
	uint32		length;
	GgServiceAnswer answer;

	/* the delta's lists are exact, so its last one has every row */
	if (delta && stream->ended && stream->kept_back == 0)
	{
		stream->phase = GG_STREAM_DONE;
		return;
	}
	MarkHanded(so, stream);
	if (stream->ended || stream->handed >= (uint64) gg_max_scan_tuples || itopk > PG_INT32_MAX ||
		(!delta && !GgWalkIsWorthwhile(stream, (uint32) itopk)))
	{
		GgLeaveWalk(so, stream);
		return;
	}
	length = ListLength((uint32) itopk, stream->list);
	if (itopk <= GG_MAX_ITOPK && length > stream->asked && (!delta || so->ref.delta_pages == stream->end_page))
	{
		if (AskOnce(so, delta ? 0 : (uint32) 1 << stream->list, delta, length, (uint32) itopk, &answer))
		{
			stream->itopk = (uint32) itopk;
			KeepAnswers(so, stream, &answer);
			return;
		}
		GgFallBack(so->index, so->reason);
	}
	stream->itopk = (uint32) itopk;
	stream->resumed = true;
	GgStartOnCpu(so, stream);
}

/* Only this session can read it: created or given a new file in this transaction, or temporary. */
static bool
IsLocal(Relation index)
{
	return RelationUsesLocalBuffers(index) || index->rd_createSubid != InvalidSubTransactionId ||
		GgFirstLocatorSubid(index) != InvalidSubTransactionId;
}

/* Which streams a device could answer: those of worthwhile walks.  Lists are numbered as segments are. */
static uint32
DeviceLists(GgScanOpaque *so)
{
	uint32		lists = 0;

	for (int i = 0; i < so->nstreams; i++)
		if (so->streams[i].segment != NULL && GgWalkIsWorthwhile(&so->streams[i], so->streams[i].itopk))
			lists |= (uint32) 1 << (so->streams[i].segment - so->meta->segments);
	return lists;
}

bool
GgAskDevice(GgScanOpaque *so, uint32 *delta_pages)
{
	uint32		lists = so->query != NULL ? DeviceLists(so) : 0;
	GgServiceAnswer answer;
	int			last;

	*delta_pages = 0;
	if (gg_engine_setting == GG_ENGINE_CPU)
		so->reason = GG_REASON_SETTING;
	else if (gg_service == NULL)
		so->reason = GG_REASON_NO_SERVICE;
	else if (IsLocal(so->index))
		so->reason = GG_REASON_LOCAL;
	else if (so->query == NULL || (lists == 0 && so->meta->delta_pages < DEVICE_DELTA_PAGES))
		so->reason = GG_REASON_SMALL;
	else if (GgResidentLookup(so->index, so->meta, &so->ref, &so->reason))
	{
		if (so->ref.delta_pages >= DEVICE_DELTA_PAGES && so->ref.delta_pages <= so->meta->delta_pages &&
			so->ref.delta_pages % GgDeltaPagesPerRow(so->meta) == 0)
			*delta_pages = so->ref.delta_pages;
		so->reason = GG_REASON_NONE;
		if (lists == 0 && *delta_pages == 0)
			so->reason = GG_REASON_SMALL;
	}
	if (so->reason != GG_REASON_NONE)
		return false;

	last = *delta_pages > 0 ? (int) so->ref.nsegments : pg_leftmost_one_pos32(lists);
	if (!AskOnce(so, lists, *delta_pages > 0, ListLength(gg_itopk_size, last), gg_itopk_size, &answer))
	{
		*delta_pages = 0;
		return false;
	}
	for (int i = 0; i < so->nstreams; i++)
	{
		GgStream   *stream = &so->streams[i];
		int			list = stream->segment - so->meta->segments;

		if ((lists & ((uint32) 1 << list)) == 0)
			continue;
		stream->list = list;
		stream->phase = GG_STREAM_DEVICE;
		KeepAnswers(so, stream, &answer);
	}
	if (*delta_pages > 0)
	{
		GgStream   *stream = &so->streams[so->nstreams++];

		GgInitDelta(so, stream, 0, *delta_pages);
		stream->list = so->ref.nsegments;
		stream->phase = GG_STREAM_DEVICE;
		KeepAnswers(so, stream, &answer);
	}
	return true;
}
