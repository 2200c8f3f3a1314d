/*
 * device_stream.c
 *		Nodes of a segment, or of the delta, by a search on a device.
 *
 * GgAskDevice() asks for the first lists of all streams with one query, when the scan starts.
 * Longer lists are asked for stream by stream, as the executor wants more.  All queries go
 * through src/service.  A stream ends here where the device has no longer lists for it or fails.
 *
 * A device has the delta's full pages as of some moment.  Its lists of the delta are exact.
 */
#include "scan/scan.h"

#include "port/pg_bitutils.h"

/*
 * Pages of the delta from which a device is asked about them.  Fewer are read in some
 * microseconds, less than one more batch costs the device.
 */
#define DEVICE_DELTA_PAGES	16

/* Nodes of a segment, too small for a walk, from which a device is asked to measure them. */
#define DEVICE_EXACT_NODES	256

typedef struct DeviceStream
{
	int			list;			/* its number in queries */
	gg_candidate *answers;
	uint32		asked;			/* length of the list that was asked for */
	uint32		nanswers;
	uint32		next_answer;
	uint32		kept_back;		/* of stream->handed: what strict order kept back of this list */
	bool		ended;			/* the list is shorter than asked for: there is no more */
} DeviceStream;

/* A query to the resident of the scan. */
typedef struct DeviceQuery
{
	uint32		lists;			/* bitmap of segments ... */
	uint32		exact;			/* ... of which these are too small to be walked */
	bool		delta;			/* the delta's list, too */
	uint32		length;			/* of each list */
	uint32		itopk;
} DeviceQuery;

/* Length of the lists to ask for, so that the slot has room for all up to the given one. */
static uint32
ListLength(uint32 itopk, int last_list)
{
	return Min(itopk, GG_SLOT_CANDIDATES / (uint32) (last_list + 1));
}

/*
 * One query to the device that holds the index.  The resident may have been replaced by a newer
 * one since it was looked up.  Then that one is asked, where it holds the same rows.  False: no
 * answer, for the reason in so->reason.
 */
static bool
AskOnce(GgScanOpaque *so, const DeviceQuery *query, GgServiceAnswer *answer)
{
	GgResidentRef *ref = &so->device.ref;

	for (int attempt = 0;; attempt++)
	{
		uint32		delta_pages = ref->delta_pages;
		GgServiceQuery ask = {
			so->query, so->meta->dimensions, query->lists, query->exact, query->delta,
			query->length, query->itopk
		};

		if (GgServiceSearch(ref, &ask, answer, &so->reason))
			return true;
		if (so->reason != GG_REASON_NOT_RESIDENT || attempt >= 2 ||
			!GgResidentLookup(so->index, so->meta, ref, &so->reason))
			return false;
		if (query->delta && ref->delta_pages != delta_pages)
		{
			so->reason = GG_REASON_NOT_RESIDENT;
			return false;
		}
	}
}

/* ---- the first query --------------------------------------------------- */

/* Only this session can read it: it is temporary, or this transaction created it or its file. */
static bool
IsLocal(Relation index)
{
	return RelationUsesLocalBuffers(index) || index->rd_createSubid != InvalidSubTransactionId ||
		GgFirstLocatorSubid(index) != InvalidSubTransactionId;
}

/*
 * Which segments a device could search: those worth it.  Where there is one, the device also
 * measures the rows of those that are too small for a walk.  Lists are numbered as segments are.
 */
static uint32
DeviceLists(GgScanOpaque *so, uint32 *exact)
{
	uint32		lists = 0;

	*exact = 0;
	if (so->query == NULL)
		return 0;
	for (int i = 0; i < so->nstreams; i++)
	{
		const GgStream *stream = &so->streams[i];
		uint32		bit = (uint32) 1 << (stream->segment - so->meta->segments);

		if (GgSearchIsWorthwhile(so, stream, stream->itopk))
			lists |= bit;
		else if (stream->nodes >= DEVICE_EXACT_NODES)
			*exact |= bit;
	}
	if (lists == 0)
		*exact = 0;
	return lists | *exact;
}

/* Find the resident to ask.  False: there is none, or asking does not pay; so->reason says why. */
static bool
FindDevice(GgScanOpaque *so)
{
	GgDeviceAnswer *device = &so->device;
	GgResidentRef *ref = &device->ref;

	device->lists = so->filter != NULL ? 0 : DeviceLists(so, &device->exact);
	device->delta_pages = 0;
	if (gg_engine_setting == GG_ENGINE_CPU)
		so->reason = GG_REASON_SETTING;
	else if (gg_service == NULL)
		so->reason = GG_REASON_NO_SERVICE;
	else if (so->filter != NULL)
		so->reason = GG_REASON_TOO_LARGE;
	else if (IsLocal(so->index))
		so->reason = GG_REASON_LOCAL;
	else if (so->query == NULL ||
			 (device->lists == 0 && so->meta->delta_pages < DEVICE_DELTA_PAGES))
		so->reason = GG_REASON_SMALL;
	else if (GgResidentLookup(so->index, so->meta, ref, &so->reason))
	{
		if (ref->delta_pages >= DEVICE_DELTA_PAGES && ref->delta_pages <= so->meta->delta_pages &&
			ref->delta_pages % GgDeltaPagesPerRow(so->meta) == 0)
			device->delta_pages = ref->delta_pages;
		so->reason = GG_REASON_NONE;
		if (device->lists == 0 && device->delta_pages == 0)
			so->reason = GG_REASON_SMALL;
	}
	return so->reason == GG_REASON_NONE;
}

bool
GgAskDevice(GgScanOpaque *so)
{
	GgDeviceAnswer *device = &so->device;

	/* once more where the resident was replaced after it was looked up */
	for (int attempt = 0; attempt < 3 && FindDevice(so); attempt++)
	{
		bool		delta = device->delta_pages > 0;
		int			last = delta ? (int) device->ref.nsegments :
			pg_leftmost_one_pos32(device->lists);
		DeviceQuery query = {
			device->lists, device->exact, delta, ListLength(gg_itopk_size, last), gg_itopk_size
		};

		if (AskOnce(so, &query, &device->lists_in_slot))
			return true;
		if (so->reason != GG_REASON_NOT_RESIDENT)
			break;
	}
	device->lists = 0;
	device->delta_pages = 0;
	return false;
}

/* ---- the stream -------------------------------------------------------- */

/* Copy the stream's list out of the slot, which the next query uses again. */
static void
KeepAnswers(GgScanOpaque *so, GgStream *stream, const GgServiceAnswer *answer)
{
	DeviceStream *state = stream->state;
	const uint32 *nodes = answer->nodes + (Size) state->list * answer->k;
	const float *distances = answer->distances + (Size) state->list * answer->k;

	if (state->answers == NULL || state->asked < answer->k)
	{
		if (state->answers != NULL)
			pfree(state->answers);
		state->answers = MemoryContextAlloc(so->context, answer->k * sizeof(gg_candidate));
	}
	state->asked = answer->k;
	state->nanswers = 0;
	state->next_answer = 0;
	stream->handed -= state->kept_back;
	state->kept_back = 0;
	state->ended = false;
	for (uint32 i = 0; i < answer->k && !state->ended; i++)
	{
		gg_candidate *candidate = &state->answers[state->nanswers];

		candidate->node = nodes[i];
		candidate->distance = distances[i];
		if (nodes[i] < stream->nodes)
			state->nanswers++;
		else if (nodes[i] == GG_NO_NODE)
			state->ended = true;
	}
}

static GgListState
DeviceFirstList(GgScanOpaque *so, GgStream *stream)
{
	const GgDeviceAnswer *device = &so->device;
	DeviceStream *state;
	int			list;

	if (stream->segment == NULL)
	{
		list = device->ref.nsegments;
		if (stream->end_page > device->delta_pages)
			return GG_LIST_SEARCHED;
	}
	else
	{
		list = stream->segment - so->meta->segments;
		if ((device->lists & ((uint32) 1 << list)) == 0)
			return GG_LIST_TOO_SHORT;
	}

	state = MemoryContextAllocZero(so->context, sizeof(DeviceStream));
	state->list = list;
	stream->state = state;
	KeepAnswers(so, stream, &device->lists_in_slot);
	return GG_LIST_READY;
}

/*
 * Mark what the scan took from the list.  Not sooner: most scans end within their first lists, and
 * clearing a bit for each of a million nodes takes longer than all else that is done here.
 */
static void
MarkHanded(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;

	for (uint32 i = 0; i < state->next_answer; i++)
		if (state->answers[i].node != GG_NO_NODE)
			GgMarkReturned(so, stream, state->answers[i].node);
}

static GgListState
DeviceNextList(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;
	bool		delta = stream->segment == NULL;
	uint32		itopk = GgLongerList(so, stream);
	DeviceQuery query;
	GgServiceAnswer answer;

	/* the delta's lists are exact, so its last one has every row */
	if (delta && state->ended && state->kept_back == 0)
		return GG_LIST_COMPLETE;
	MarkHanded(so, stream);
	if (state->ended || itopk == 0)
		return GG_LIST_SEARCHED;

	stream->itopk = itopk;
	query.lists = delta ? 0 : (uint32) 1 << state->list;
	query.exact = 0;
	query.delta = delta;
	query.length = ListLength(itopk, state->list);
	query.itopk = itopk;
	if (itopk <= GG_MAX_ITOPK && query.length > state->asked &&
		(!delta || so->device.ref.delta_pages == stream->end_page))
	{
		if (AskOnce(so, &query, &answer))
		{
			KeepAnswers(so, stream, &answer);
			return GG_LIST_READY;
		}
		GgFallBack(so->index, so->reason);
	}
	return GG_LIST_TOO_SHORT;
}

static bool
DeviceNext(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;
	bool		complete = state->ended && stream->segment == NULL;

	while (state->next_answer < state->nanswers &&
		   (complete || !GgHalfIsHandedOut(so, stream, state->asked)))
	{
		gg_candidate *answer = &state->answers[state->next_answer++];

		if (GgWasReturned(stream, answer->node))
			continue;
		stream->handed++;
		if (GgComesLate(so, answer->distance))
		{
			/* not to be marked */
			state->kept_back++;
			answer->node = GG_NO_NODE;
			continue;
		}
		stream->head = *answer;
		return true;
	}
	return false;
}

const GgStreamOps gg_device_stream = {
	.first_list = DeviceFirstList,
	.next_list = DeviceNextList,
	.next = DeviceNext
};
