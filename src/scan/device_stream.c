/*
 * device_stream.c
 *		Nodes of a segment, or of the delta, from a device.
 *
 * The first lists of all streams come with one request, when the scan starts (device_ask.c).
 * Longer lists are asked for stream by stream, as the executor wants more.  A stream ends here
 * where every row of it was handed out, or where the device fails.
 *
 * Lists are of two kinds.  Those of walks begin anew each time, and are longer each time.  Where
 * the device has no longer one, or it is not worthwhile, deep lists follow: keys of all rows, each
 * list going on where the one before ended.  A scan with a filter has deep lists alone, of what
 * matches, but for the first list of a segment where many rows match: that may be a walk's, and its
 * nodes that match are handed out.
 *
 * The first deep list goes over what lists of walks have handed out, and leaves that out.  Under
 * strict order rows that come late are kept back until the last list has ended, as exact_stream.c
 * does.
 *
 * A device has the delta's full pages as of some moment.  All its lists of the delta are exact.
 *
 * Of some segments a device has rows in half precision (GgForms.halved), and keys have
 * distances to these.  What rounding can do to them has a bound (bound.c).  So rows are measured
 * here until no other row can be nearer than the next one (Settle()): for LIMIT 10 that is some 16
 * of them.  A row may have to wait for the next deep list.
 *
 * Where a device has codes alone (GgForms.rowless), keys of a list under a filter have bounds
 * themselves (engine/rules/codes.h), and rows are measured likewise: for LIMIT 10 40 to 300 of
 * them.  There is one such list, of GG_BOUNDED_LIST keys.  A scan that comes to its end wants so
 * much that it would soon have measured all rows that match.
 */
#include "scan/device.h"
#include "scan/row_filter.h"

#include "utils/float.h"

#include "engine/keys.h"
#include "engine/request.h"

/* Length of deep lists after the first: a scan that wants that much may want all. */
#define NEXT_DEEP			GG_MAX_DEEP

typedef struct DeviceStream
{
	int			list;			/* its number in requests */
	bool		deep;			/* lists are of all rows, each behind the one before */
	bool		failed;			/* the device did not answer when it was asked for a walk */

	/* the list */
	uint64	   *keys;			/* ascending */
	uint32		cap;			/* room for keys; 0: they lie in the scan's first lists */
	uint32		asked;			/* how many were asked for */
	uint32		nkeys;
	uint32		next_key;
	bool		ended;			/* there are no more than these */

	/* where rows are rounded, or keys have bounds */
	bool		rounded;
	bool		bounded;
	GgBound		halves;
	uint32		measured;		/* keys before this place were measured here; those not returned are
								 * in order */

	/* lists of walks */
	uint32		kept_back;		/* of stream->handed: what strict order kept back of this list */

	/* deep lists */
	uint32		nfilled;		/* lists that were asked for */
	uint64		after;			/* the last key of all lists so far */
	uint64		bound;			/* nodes with lower keys, not returned yet, come late */
	uint64	   *late;			/* their keys */
	uint32		nlate;
	uint32		late_cap;
	uint32		next_late;
} DeviceStream;

/* state->keys has, behind so many that still wait, the answer to a request for k keys. */
static void
KeepKeys(const GgScanOpaque *so, GgStream *stream, uint32 waiting, uint32 k)
{
	DeviceStream *state = stream->state;
	uint32		n = waiting + k;

	while (n > waiting && state->keys[n - 1] == GG_NO_KEY)
		n--;
	state->asked = k;
	state->nkeys = n;
	state->next_key = 0;
	state->ended = n < waiting + k;
	if (state->deep && n > waiting)
		state->after = state->keys[n - 1];
	state->measured = waiting;
	state->rounded = stream->segment != NULL &&
		(so->device.ref.forms.halved >> state->list & 1) != 0;
	state->bounded = stream->segment != NULL && state->deep &&
		(so->device.ref.forms.rowless >> state->list & 1) != 0;
	if (state->rounded)
		GgBoundInitHalves(&state->halves, so->meta, so->query);
	if (!state->deep)
		stream->itopk = Max(stream->itopk, k);
	stream->handed -= state->kept_back;
	state->kept_back = 0;
}

/* Ask for the stream's next list, to come behind the first `waiting` keys of this one. */
static bool
AskNext(GgScanOpaque *so, GgStream *stream, const GgAsk *ask, uint32 waiting, uint64 *matches)
{
	DeviceStream *state = stream->state;
	uint32		k = ask->request.params.k;

	if (state->cap < waiting + k)
	{
		uint64	   *keys = MemoryContextAlloc(so->context, (waiting + k) * sizeof(uint64));

		memcpy(keys, state->keys, waiting * sizeof(uint64));
		if (state->cap > 0)
			pfree(state->keys);
		state->cap = waiting + k;
		state->keys = keys;
	}
	if (GgAskLists(so, ask, state->keys + waiting, matches))
	{
		KeepKeys(so, stream, waiting, k);
		return true;
	}
	if (!so->exact)
		GgFallBack(so->index, so->reason);
	return false;
}

/* A device has counted the rows that match. */
static void
CountMatches(GgStream *stream, uint64 matches)
{
	stream->matches = matches;
	stream->nmatching = (uint32) Min(matches, PG_UINT32_MAX);
}

/*
 * Are the rows of a walk's list looked ahead to, too?  It takes a LIMIT, which says how many the
 * executor fetches, of a row for each stream at least, which pays for the beginning.  Of indexes
 * that are searched together most have no row to return.
 */
static bool
TakesFew(const GgScanOpaque *so)
{
	return so->limit > 0 && so->limit >= (uint32) so->nstreams && !so->by_table &&
		!so->together;
}

/* Take the stream's list from the scan's first lists. */
static void
KeepFirst(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;
	uint64		matches;
	uint32		k;

	state->keys = GgFirstList(so, state->list, &k, &matches);
	KeepKeys(so, stream, 0, k);
	if (state->deep ? k > GG_SHORT_DEEP : TakesFew(so))
		GgBeginAhead(so, stream);
	if (!state->deep)
		return;
	if (so->filter != NULL)
		CountMatches(stream, matches);
	else
		state->nfilled = 1;
}

static GgListState
DeviceFirstList(GgScanOpaque *so, GgStream *stream)
{
	const GgDeviceAnswer *device = &so->device;
	DeviceStream *state;
	bool		walked;
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
	/* with a filter some segments may be walked: lists of the others are still to be asked for */
	walked = stream->segment != NULL && (device->walked >> list & 1) != 0;
	state->deep = device->deep || (so->filter != NULL && !walked);
	stream->state = state;
	if (so->filter == NULL || device->deep || walked)
		KeepFirst(so, stream);
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

	for (uint32 i = 0; i < state->next_key; i++)
		if (state->keys[i] >= state->bound && key_node(state->keys[i]) < stream->nodes)
			GgMarkReturned(so, stream, key_node(state->keys[i]));
	state->nkeys -= state->next_key;
	if (state->next_key > 0)
		memmove(state->keys, state->keys + state->next_key, state->nkeys * sizeof(uint64));
	state->next_key = 0;
}

/* Can the device still answer for this stream, with lists of walks or with deep ones? */
static bool
IsThere(GgScanOpaque *so, const GgStream *stream)
{
	const DeviceStream *state = stream->state;
	const GgResidentRef *ref = &so->device.ref;

	if (stream->segment == NULL)
		return ref->delta_pages == stream->end_page;
	if (state->deep && (ref->forms.rowless >> state->list & 1) != 0 &&
		(state->after != 0 || !GgTakesBounds(so)))
	{
		GgRequireDevice(so->index, GG_REASON_CODED);
		return false;
	}
	/* "behind the last key" means other rows where these are rounded */
	if (state->after != 0 && state->rounded != ((ref->forms.halved >> state->list & 1) != 0))
		return false;
	return (ref->forms.missing >> state->list & 1) == 0;
}

/*
 * Length of the next deep list.  It is long where keys have bounds, and short where the scan was to
 * have walks instead and has had few rows.
 */
static uint32
DeepLength(const GgScanOpaque *so, const GgStream *stream)
{
	const DeviceStream *state = stream->state;
	uint32		asked = state->nfilled + (so->device.walked == 0);

	if (stream->segment != NULL && (so->device.ref.forms.rowless >> state->list & 1) != 0)
		return GG_BOUNDED_LIST;
	if (asked == 0 && stream->handed + so->params.itopk_size <= GG_SHORT_DEEP)
		return (uint32) stream->handed + so->params.itopk_size;
	return asked <= 1 ? GgFirstDeepList(GgExpectedOfStream(so, stream)) : NEXT_DEEP;
}

/* A request for the stream's list alone. */
static GgAsk
NewAskOf(const GgScanOpaque *so, const GgStream *stream)
{
	const DeviceStream *state = stream->state;
	bool		delta = stream->segment == NULL;

	return GgNewAsk(so, delta ? 0 : (uint32) 1 << state->list, delta);
}

/* Ask for the deep list behind the last one, whose `waiting` keys stay.  False: there is none. */
static bool
NextKeys(GgScanOpaque *so, GgStream *stream, uint32 waiting)
{
	DeviceStream *state = stream->state;
	GgAsk		ask = NewAskOf(so, stream);
	uint32		all = so->filter != NULL && stream->matches > 0 ? stream->nmatching :
		stream->nodes;
	uint32		k = DeepLength(so, stream);
	uint64		matches;

	/* one more than there are, so that the list ends; every row may be a node's only one */
	GgAskForDeep(so, &ask, k > all ? all + 1 : k, state->after);
	if (!IsThere(so, stream) || !AskNext(so, stream, &ask, waiting, &matches))
		return false;
	state->nfilled++;
	if (ask.request.params.k > GG_SHORT_DEEP)
		GgBeginAhead(so, stream);
	if (so->filter != NULL)
		CountMatches(stream, matches);
	return true;
}

/* Deep lists follow those of walks. */
static void
BeginDeep(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;

	state->deep = true;
	state->ended = false;
	if (so->keeps_back && so->last_distance > -get_float4_infinity())
		state->bound = key_of(so->last_distance, 0);
}

static GgListState
NextDeepList(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;

	/* what came late is handed out with the last list */
	if (state->ended)
		return GG_LIST_COMPLETE;
	MarkHanded(so, stream);
	if (!NextKeys(so, stream, state->nkeys))
		return GG_LIST_SEARCHED;
	return GG_LIST_READY;
}

/* The next list of a walk.  False: there is none; state->failed says whether the device failed. */
static bool
NextWalk(GgScanOpaque *so, GgStream *stream, uint32 itopk)
{
	DeviceStream *state = stream->state;
	GgAsk		ask = NewAskOf(so, stream);

	GgAskForWalks(so, &ask, 0, itopk);
	if (itopk > GG_MAX_ITOPK || ask.request.params.k <= state->asked || !IsThere(so, stream))
		return false;
	state->failed = !AskNext(so, stream, &ask, 0, NULL);
	return !state->failed;
}

static GgListState
DeviceNextList(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;
	uint32		itopk;

	if (state->deep)
		return NextDeepList(so, stream);

	/* the delta's lists are exact, so its last one has every row */
	if (stream->segment == NULL && state->ended &&
		(state->kept_back == 0 || !isinf(so->farthest)))
		return GG_LIST_COMPLETE;
	if (so->device.uncertain)
		GgNoteWastedWalk(so);
	MarkHanded(so, stream);
	itopk = state->ended ? 0 : GgLongerList(so, stream);
	if (itopk > 0 && so->filter == NULL && GgDeviceWalkIsWorthwhile(so, stream, itopk))
	{
		stream->itopk = itopk;
		if (NextWalk(so, stream, itopk))
			return GG_LIST_READY;
	}
	if (!state->failed)
	{
		BeginDeep(so, stream);
		if (NextKeys(so, stream, 0))
			return GG_LIST_READY;
	}
	return itopk == 0 ? GG_LIST_SEARCHED : GG_LIST_TOO_SHORT;
}

/* Keep back the list's key at this place.  A walk's comes again with a later list. */
static void
KeepBack(GgScanOpaque *so, GgStream *stream, uint32 place)
{
	DeviceStream *state = stream->state;
	const uint64 key = state->keys[place];
	const bool	kept = GgKeepLate(so, stream, key_distance(key), key_node(key));

	if (!state->deep)
	{
		stream->handed++;
		state->kept_back++;
		/* not to be marked */
		state->keys[place] = GG_NO_KEY;
		return;
	}
	if (kept)
		return;
	GgNeedRoom(so->context, state->late, state->nlate, state->late_cap);
	state->late[state->nlate++] = key;
}

/* As GgHalfIsHandedOut(); under a filter nodes that do not match count, too. */
static bool
IsHalfUsed(const GgScanOpaque *so, const GgStream *stream)
{
	const DeviceStream *state = stream->state;

	if (so->filter == NULL)
		return GgHalfIsHandedOut(so, stream, state->asked);
	return so->mode != GG_ITERATIVE_OFF && state->next_key * 2 > state->asked;
}

/* A lower bound of the distances of rows that are not measured yet and not before this key. */
static double
BoundOf(const DeviceStream *state, uint64 key)
{
	const float distance = key_distance(key);

	return state->bounded ? distance : GgBoundOfKey(&state->halves, distance);
}

/*
 * Where rows are rounded, or keys have bounds: measure until no row that was not measured can be
 * nearer than the next one.  False: a row behind the end of a deep list can.
 */
static bool
Settle(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;

	for (;;)
	{
		const uint32 measured = state->measured;
		uint64		behind = GG_NO_KEY;

		if (state->measured < state->nkeys)
			behind = state->keys[state->measured];
		else if (state->deep && !state->ended)
			behind = state->after;
		if (state->next_key < state->measured &&
			(behind == GG_NO_KEY ||
			 key_distance(state->keys[state->next_key]) <= BoundOf(state, behind)))
			return true;
		if (state->measured == state->nkeys)
			return false;
		GgNeedSource(so, stream);
		state->measured = GgSourceMeasureNext(&stream->source, state->keys, state->next_key,
											  measured, state->nkeys);
		so->distances += state->measured - measured;
		if (state->bounded)
			so->reranked += state->measured - measured;
	}
}

/* Is there another key in the list, and may it be handed out? */
static bool
HasNext(GgScanOpaque *so, GgStream *stream, bool whole)
{
	DeviceStream *state = stream->state;

	return state->next_key < state->nkeys && (whole || !IsHalfUsed(so, stream)) &&
		(!(state->rounded || state->bounded) || Settle(so, stream));
}

/* The next key of the list that is to be handed out now; GG_NO_KEY: there is none. */
static uint64
NextKey(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;
	bool		whole = state->deep || (state->ended && stream->segment == NULL);

	while (HasNext(so, stream, whole))
	{
		uint32		place = state->next_key++;
		uint64		key = state->keys[place];
		uint32		node = key_node(key);

		if (stream->heap_blocks > 0 && place % GG_AHEAD_ROWS == 0)
			GgLookAhead(so, stream, state->keys + place, state->nkeys - place, 0);
		if (node >= stream->nodes || GgWasReturned(stream, node))
			continue;
		/* where the scan ends, it does not matter whether a node matches */
		if (!state->deep && key_distance(key) <= so->farthest &&
			!GgNodeMatches(so, stream, node))
			continue;
		if (state->deep ? key >= state->bound : !GgComesLate(so, key_distance(key)))
			return key;
		KeepBack(so, stream, place);
	}
	return GG_NO_KEY;
}

static bool
DeviceNext(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;
	uint64		key = NextKey(so, stream);

	stream->late = key == GG_NO_KEY && state->ended && state->next_late < state->nlate;
	if (stream->late)
		key = state->late[state->next_late++];
	if (key == GG_NO_KEY)
		return false;
	stream->handed++;
	stream->head.node = key_node(key);
	stream->head.distance = key_distance(key);
	return true;
}

static float
DeviceLeast(GgScanOpaque *so, GgStream *stream)
{
	const DeviceStream *state = stream->state;

	if (HasNext(so, stream, state->deep))
		return key_distance(state->keys[state->next_key]);
	return -get_float4_infinity();
}

const GgStreamOps gg_device_stream = {
	.first_list = DeviceFirstList,
	.next_list = DeviceNextList,
	.next = DeviceNext,
	.least = DeviceLeast
};
