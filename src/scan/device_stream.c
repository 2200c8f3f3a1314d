/*
 * device_stream.c
 *		Nodes of a segment, or of the delta, by a search on a device.
 *
 * GgAskDevice() asks for the first lists of all streams with one query, when the scan starts.
 * Longer lists are asked for stream by stream, as the executor wants more.  All queries go
 * through src/service.  A stream ends here where every row of it was handed out, or where the
 * device fails.
 *
 * Lists are of two kinds.  Those of walks begin anew each time, and are longer each time.  Where
 * the device has no longer one, or it is not worthwhile, deep lists follow: keys of all rows, each
 * list going on where the one before ended.  Where the executor throws most rows away
 * (expected_rows.c), the first list is as long as what it is expected to want, or deep, if the
 * session's last short one was for nothing.
 *
 * A scan with a filter has deep lists alone, of what matches.  But where most rows of a segment
 * match, and measuring them would take long, one walk comes first, and hands out those of its nodes
 * that match.  Where matching rows are rare near the queries such walks are for nothing, so after
 * one that was, the session's next scans do without, too.
 *
 * The first deep list goes over what lists of walks have handed out, and leaves that out.  Under
 * strict order rows that come late are kept back until the last list has ended, as exact_stream.c
 * does.
 *
 * A device has the delta's full pages as of some moment.  All its lists of the delta are exact.
 *
 * Segments that a device has no room for are left to walks from the start.
 */
#include "scan/row_filter.h"

#include "port/pg_bitutils.h"
#include "utils/float.h"
#include "utils/memutils.h"

#include "keys.h"

/*
 * Pages of the delta from which a device is asked about them.  Fewer are read in some
 * microseconds, less than one more batch costs the device.
 */
#define DEVICE_DELTA_PAGES	16

/* Nodes of a segment, too small for a walk, from which a device is asked to measure them. */
#define DEVICE_EXACT_NODES	256

/* Scans without walks after one that was for nothing, at most. */
#define MOST_REST			64

/* Places from which it is estimated how many nodes match: some 10 us. */
#define FEW_PLACES			16

/* Length of deep lists after the first: a scan that wants that much may want all. */
#define NEXT_DEEP			GG_MAX_DEEP

typedef struct DeviceStream
{
	int			list;			/* its number in queries */

	/* lists of walks, of segments that are too small for one, and of the delta */
	gg_candidate *answers;
	uint32		asked;			/* length of the list that was asked for */
	uint32		nanswers;
	uint32		next_answer;
	uint32		kept_back;		/* of stream->handed: what strict order kept back of this list */
	bool		ended;			/* the list is shorter than asked for: there is no more */

	/* deep lists */
	bool		deep;
	bool		failed;			/* the device, when it was asked for a walk */
	uint64	   *keys;
	uint32		cap;			/* of keys; 0: they are the scan's */
	uint32		nkeys;
	uint32		next_key;
	uint32		nfilled;		/* lists that were asked for */
	uint64		after;			/* the last key of all lists so far */
	uint64		bound;			/* nodes with lower keys, not returned yet, come late */
	uint64	   *late;			/* their keys */
	uint32		nlate;
	uint32		late_cap;
	uint32		next_late;
} DeviceStream;

/* A query to the resident of the scan. */
typedef struct DeviceQuery
{
	uint32		lists;			/* bitmap of segments ... */
	uint32		exact;			/* ... of which these are too small to be walked */
	bool		delta;			/* the delta's list, too */
	uint32		length;			/* of each list */
	uint32		itopk;
	GgMeanwhile meanwhile;
} DeviceQuery;

/* The same for deep lists. */
typedef struct DeepQuery
{
	uint32		lists;
	bool		delta;
	uint32		k;
	uint64		after;
	GgMeanwhile meanwhile;
} DeepQuery;

/*
 * How walks have fared in this session where most of what they find may be thrown away, by the
 * executor and by a filter, each in the index that it last walked so.
 */
typedef struct WalkHistory
{
	Oid			index;
	uint32		rest;			/* so many scans are to do without one */
	uint32		next_rest;		/* after the next one that is for nothing */
	bool		wasted;			/* the last one was for nothing */
} WalkHistory;

static WalkHistory walk_history[2];

/* Length of the lists to ask for, so that the slot has room for all up to the given one. */
static uint32
ListLength(uint32 itopk, int last_list)
{
	return Min(itopk, GG_SLOT_CANDIDATES / (uint32) (last_list + 1));
}

/*
 * A query to the device that holds the index was not answered.  The resident may have been replaced
 * by a newer one since it was looked up.  Then that one is to be asked, where it holds the same
 * rows.  False: there will be no answer, for the reason in so->reason.
 */
static bool
AskAgain(GgScanOpaque *so, uint32 lists, bool delta, int attempt)
{
	GgResidentRef *ref = &so->device.ref;
	uint32		delta_pages = ref->delta_pages;

	if (so->reason != GG_REASON_NOT_RESIDENT || attempt >= 2 ||
		!GgResidentLookup(so->index, so->meta, ref, &so->reason))
		return false;
	if ((!delta || ref->delta_pages == delta_pages) && (lists & ref->missing) == 0)
		return true;
	so->reason = GG_REASON_NOT_RESIDENT;
	return false;
}

static bool
AskOnce(GgScanOpaque *so, const DeviceQuery *query, GgServiceAnswer *answer)
{
	GgServiceQuery ask = {
		so->query, so->meta->dimensions, query->lists, query->exact, query->delta,
		query->length, query->itopk, so->search_mode, query->meanwhile
	};

	for (int attempt = 0; !GgServiceSearch(&so->device.ref, &ask, answer, &so->reason); attempt++)
		if (!AskAgain(so, query->lists, query->delta, attempt))
			return false;
	return true;
}

/* The same for deep lists.  keys: room for all of them; matches: for a number of each. */
static bool
AskDeep(GgScanOpaque *so, const DeepQuery *query, uint64 *keys, uint64 *matches)
{
	GgServiceDeepQuery ask = {
		so->query, so->meta->dimensions, query->lists, query->delta, query->k, query->after,
		so->filter, query->meanwhile
	};

	for (int attempt = 0;
		 !GgServiceDeep(&so->device.ref, &ask, keys, matches, &so->reason); attempt++)
		if (!AskAgain(so, query->lists, query->delta, attempt))
			return false;
	return true;
}

/* ---- the first query --------------------------------------------------- */

/* Rows that the stream is expected to hand out, where the executor filters them; 0: not known. */
static double
ExpectedRows(const GgScanOpaque *so, const GgStream *stream)
{
	uint64		nodes = 0;

	if (so->filter != NULL || so->mode == GG_ITERATIVE_OFF || so->expected == 0)
		return 0;
	for (int i = 0; i < so->nstreams; i++)
		nodes += so->streams[i].nodes;
	return nodes > 0 ? (double) so->expected * stream->nodes / nodes : 0;
}

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

/* The same for a scan with a filter: all rows of them are looked at. */
static uint32
FilteredLists(GgScanOpaque *so)
{
	uint32		lists = 0;
	bool		worthwhile = false;

	for (int i = 0; i < so->nstreams && so->query != NULL; i++)
	{
		const GgStream *stream = &so->streams[i];

		lists |= (uint32) 1 << (stream->segment - so->meta->segments);
		worthwhile |= stream->nodes >= GG_DEVICE_FILTER_NODES;
	}
	return worthwhile ? lists : 0;
}

/*
 * The device has no room for some segments of the index.  Their streams become walks, and stay
 * walks if the query is posted once more.  Where nothing is left to ask the device for, so->reason
 * says so.
 */
static void
LeaveMissing(GgScanOpaque *so)
{
	GgDeviceAnswer *device = &so->device;

	device->missing = device->lists & (device->ref.missing | device->missing);
	device->lists &= ~device->missing;
	device->exact &= ~device->missing;
	if (device->missing != 0 && gg_engine_setting == GG_ENGINE_CUDA)
		so->reason = GG_REASON_PARTIAL;
	else if (device->lists == 0 && device->delta_pages == 0)
		so->reason = GG_REASON_MEMORY;
}

/* Find the resident to ask.  False: there is none, or asking does not pay; so->reason says why. */
static bool
FindDevice(GgScanOpaque *so)
{
	GgDeviceAnswer *device = &so->device;
	GgResidentRef *ref = &device->ref;

	device->lists = so->filter != NULL ? FilteredLists(so) : DeviceLists(so, &device->exact);
	device->delta_pages = 0;
	if (gg_engine_setting == GG_ENGINE_CPU)
		so->reason = GG_REASON_SETTING;
	else if (gg_service == NULL)
		so->reason = GG_REASON_NO_SERVICE;
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
		else
			LeaveMissing(so);
	}
	return so->reason == GG_REASON_NONE;
}

/*
 * Does a walk's list of this length take less time than an exact one?  With iterative_scan off the
 * scan wants a few rows more, in the place of dead ones, and the walk's next list is more like the
 * one before.
 */
static bool
WalkIsWorthwhile(const GgScanOpaque *so, const GgStream *stream, uint32 itopk)
{
	return stream->segment == NULL || so->mode == GG_ITERATIVE_OFF ||
		itopk <= GgLongestDeviceList(stream->nodes, GgRowBytes(so->meta));
}

/* May this scan, most of whose rows are thrown away, begin with a walk? */
static bool
WalkIsDue(GgScanOpaque *so)
{
	WalkHistory *history = &walk_history[so->filter != NULL];
	Oid			index = RelationGetRelid(so->index);

	if (history->index != index)
	{
		memset(history, 0, sizeof(*history));
		history->index = index;
	}
	if (history->rest == 0)
		return true;
	history->rest--;
	return false;
}

static void
BeginUncertainWalk(GgScanOpaque *so)
{
	WalkHistory *history = &walk_history[so->filter != NULL];

	if (!history->wasted)
		history->next_rest = 1;
	history->wasted = false;
	so->device.uncertain = true;
}

/* The scan wants more than its walk has found. */
static void
NoteWastedWalk(const GgScanOpaque *so)
{
	WalkHistory *history = &walk_history[so->filter != NULL];

	if (history->wasted || history->index != RelationGetRelid(so->index))
		return;
	history->wasted = true;
	history->rest = history->next_rest;
	history->next_rest = Min(history->next_rest * 2, MOST_REST);
}

/* Have the first lists be deep ones of this length, into device->keys. */
static bool
AskKeys(GgScanOpaque *so, uint32 length, GgMeanwhile meanwhile)
{
	GgDeviceAnswer *device = &so->device;
	DeepQuery	query = {device->lists, device->delta_pages > 0, length, 0, meanwhile};
	uint32		nlists = pg_popcount32(query.lists) + query.delta;

	device->k = query.k;
	device->keys = palloc((Size) nlists * query.k * sizeof(uint64));
	device->matches = palloc(nlists * sizeof(uint64));
	return AskDeep(so, &query, device->keys, device->matches);
}

/*
 * The first lists of a scan with a filter are half as long as those of walks: of those the scan
 * hands out half, and these are exact.  Over 1M x 128 a list of 10 takes 30 to 40 us less than one
 * of 64, whatever the filter is.
 */
static bool
AskFiltered(GgScanOpaque *so, GgMeanwhile meanwhile)
{
	return AskKeys(so, so->mode == GG_ITERATIVE_OFF ? gg_itopk_size : (gg_itopk_size + 1) / 2,
				   meanwhile);
}

/*
 * The first lists of a scan without a filter.  Where the executor filters rows, they are long
 * enough for what the largest segment is expected to hand out, or deep.  A short list before a deep
 * one would be for nothing, and what is handed out of it would have to be left out of the deep one.
 * 1M x 128, one row in 100 passes: a query takes the backend 1.35 ms of processor time with the
 * short list, and 1.0 to 1.1 without.  But the planner's estimate may be far off, and where most
 * rows pass, a deep list takes three times as long.  So a short one is tried now and then.
 */
static bool
AskFirst(GgScanOpaque *so, GgMeanwhile meanwhile)
{
	GgDeviceAnswer *device = &so->device;
	bool		delta = device->delta_pages > 0;
	int			last = delta ? (int) device->ref.nsegments :
		pg_leftmost_one_pos32(device->lists);
	double		expected = ExpectedRows(so, so->streams);
	uint32		itopk = gg_itopk_size;
	uint32		length;
	DeviceQuery query;

	if (GG_EXPECTED_WALK(expected) > itopk && WalkIsDue(so))
		BeginUncertainWalk(so);
	else if (GG_EXPECTED_WALK(expected) > itopk)
	{
		itopk = (uint32) GG_EXPECTED_WALK(expected);
		if (!WalkIsWorthwhile(so, so->streams, itopk))
			return AskKeys(so, Min(GgFirstDeepList(expected), GgServiceDeepRoom(last + 1)),
						   meanwhile);
	}
	length = ListLength(itopk, last);
	if (so->search_mode == GG_SEARCH_TSDG_SMALL && so->mode != GG_ITERATIVE_OFF)
		length = Min(length, GG_GREEDY_LIST);
	query = (DeviceQuery) {device->lists, device->exact, delta, length, itopk, meanwhile};
	return AskOnce(so, &query, &device->lists_in_slot);
}

/* Which segments are walked first, though there is a filter, and with lists of what length. */
static uint32
ListsToWalk(GgScanOpaque *so, uint32 *itopk)
{
	double		row_bytes = GgRowBytes(so->meta);
	uint32		walked = 0;

	*itopk = 0;
	if (so->filter->tids != NULL)
		return 0;
	for (int i = 0; i < so->nstreams; i++)
	{
		GgStream   *stream = &so->streams[i];
		uint32		bit = (uint32) 1 << (stream->segment - so->meta->segments);
		uint32		list;

		/* the estimate takes time, too */
		if ((so->device.lists & bit) == 0 ||
			GgFilteredDeviceList(stream->nodes, 1, row_bytes, gg_itopk_size) == 0)
			continue;
		GgEstimateMatching(so, stream, FEW_PLACES);
		list = GgFilteredDeviceList(stream->nodes, (double) stream->nmatching / stream->nodes,
									row_bytes, gg_itopk_size);
		if (list == 0)
			continue;
		walked |= bit;
		*itopk = Min(Max(*itopk, list), GG_MAX_ITOPK);
	}
	return walked;
}

/* The first lists of those; the other streams ask for theirs. */
static bool
AskWalks(GgScanOpaque *so, uint32 itopk, GgMeanwhile meanwhile)
{
	GgDeviceAnswer *device = &so->device;
	int			last = pg_leftmost_one_pos32(device->walked);
	DeviceQuery query = {
		device->walked, 0, false, ListLength(itopk, last), itopk, meanwhile
	};

	return AskOnce(so, &query, &device->lists_in_slot);
}

static bool
AskWithFilter(GgScanOpaque *so, GgMeanwhile meanwhile)
{
	uint32		itopk;

	so->device.walked = WalkIsDue(so) ? ListsToWalk(so, &itopk) : 0;
	if (so->device.walked != 0)
		BeginUncertainWalk(so);
	return so->device.walked != 0 ? AskWalks(so, itopk, meanwhile) :
		AskFiltered(so, meanwhile);
}

bool
GgAskDevice(GgScanOpaque *so, void (*open_meanwhile) (void *so))
{
	GgDeviceAnswer *device = &so->device;
	GgMeanwhile meanwhile = {NULL, so};

	device->missing = device->walked = 0;
	device->uncertain = false;
	/* once more where the resident was replaced after it was looked up */
	for (int attempt = 0; attempt < 3 && FindDevice(so); attempt++)
	{
		if (device->missing != 0 || device->delta_pages < so->meta->delta_pages)
			meanwhile.run = open_meanwhile;
		device->keys = NULL;
		if (so->filter != NULL ? AskWithFilter(so, meanwhile) : AskFirst(so, meanwhile))
			return true;
		if (so->reason != GG_REASON_NOT_RESIDENT)
			break;
	}
	device->lists = 0;
	device->delta_pages = 0;
	device->missing = device->walked = 0;
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
	stream->itopk = Max(stream->itopk, answer->k);
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

/* state->keys has an answer to a question for k keys. */
static void
KeepKeys(DeviceStream *state, uint32 k)
{
	uint32		n = k;

	while (n > 0 && state->keys[n - 1] == GG_NO_KEY)
		n--;
	state->nkeys = n;
	state->next_key = 0;
	state->ended = n < k;
	if (n > 0)
		state->after = state->keys[n - 1];
}

/* A device has counted the rows that match. */
static void
CountMatches(GgStream *stream, uint64 matches)
{
	stream->matches = matches;
	stream->nmatching = (uint32) Min(matches, PG_UINT32_MAX);
}

/* The part of a scan's first lists that is the stream's, where they are deep ones. */
static void
KeepFirstKeys(GgScanOpaque *so, GgStream *stream)
{
	const GgDeviceAnswer *device = &so->device;
	DeviceStream *state = stream->state;
	uint32		before = stream->segment == NULL ? pg_popcount32(device->lists) :
		pg_popcount32(device->lists & (((uint32) 1 << state->list) - 1));

	state->deep = true;
	state->keys = device->keys + (Size) before * device->k;
	KeepKeys(state, device->k);
	if (so->filter != NULL)
		CountMatches(stream, device->matches[before]);
	else
		state->nfilled = 1;
	if (device->k > GG_SHORT_DEEP)
		GgBeginAhead(so, stream);
}

/* Is the first list of a scan with a filter that of a walk? */
static bool
IsWalked(const GgScanOpaque *so, const GgStream *stream)
{
	return stream->segment != NULL &&
		(so->device.walked >> (stream->segment - so->meta->segments) & 1) != 0;
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
	if (device->keys != NULL)
		KeepFirstKeys(so, stream);
	else if (so->filter == NULL || IsWalked(so, stream))
		KeepAnswers(so, stream, &device->lists_in_slot);
	else
		state->deep = true;		/* its first list is asked for when the others have been copied */
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
	for (uint32 i = 0; i < state->next_key; i++)
		if (state->keys[i] >= state->bound && key_node(state->keys[i]) < stream->nodes)
			GgMarkReturned(so, stream, key_node(state->keys[i]));
	state->next_answer = state->next_key = 0;
}

/* Can the device still answer for this stream? */
static bool
IsThere(const GgScanOpaque *so, const GgStream *stream)
{
	const DeviceStream *state = stream->state;

	if (stream->segment != NULL)
		return (so->device.ref.missing >> state->list & 1) == 0;
	return so->device.ref.delta_pages == stream->end_page;
}

/*
 * Length of the next deep list.  It is short where the scan was to have walks instead and has had
 * few rows.
 */
static uint32
DeepLength(const GgScanOpaque *so, const GgStream *stream)
{
	const DeviceStream *state = stream->state;
	uint32		asked = state->nfilled + (so->device.walked == 0);

	if (asked == 0 && stream->handed + gg_itopk_size <= GG_SHORT_DEEP)
		return (uint32) stream->handed + gg_itopk_size;
	return asked <= 1 ? GgFirstDeepList(ExpectedRows(so, stream)) : NEXT_DEEP;
}

/* The deep list behind the last one; false when the device has none. */
static bool
NextKeys(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;
	bool		delta = stream->segment == NULL;
	DeepQuery	query = {
		delta ? 0 : (uint32) 1 << state->list, delta, DeepLength(so, stream), state->after
	};
	uint32		all = so->filter != NULL && stream->matches > 0 ? stream->nmatching :
		stream->nodes;
	uint64		matches;

	/* one more than there are, so that the list ends; every row may be a node's only one */
	if (query.k > all)
		query.k = all + 1;
	if (!IsThere(so, stream))
		return false;
	if (state->cap < query.k)
	{
		state->cap = query.k;
		state->keys = MemoryContextAlloc(so->context, state->cap * sizeof(uint64));
	}
	if (!AskDeep(so, &query, state->keys, &matches))
	{
		GgFallBack(so->index, so->reason);
		return false;
	}
	state->nfilled++;
	KeepKeys(state, query.k);
	if (query.k > GG_SHORT_DEEP)
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
	if (so->mode == GG_ITERATIVE_STRICT && so->last_distance > -get_float4_infinity())
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
	if (!NextKeys(so, stream))
		return GG_LIST_SEARCHED;
	return GG_LIST_READY;
}

/* The next list of a walk; false where there is none, and then state says why. */
static bool
NextWalk(GgScanOpaque *so, GgStream *stream, uint32 itopk)
{
	DeviceStream *state = stream->state;
	bool		delta = stream->segment == NULL;
	DeviceQuery query = {
		delta ? 0 : (uint32) 1 << state->list, 0, delta, ListLength(itopk, state->list), itopk
	};
	GgServiceAnswer answer;

	if (itopk > GG_MAX_ITOPK || query.length <= state->asked || !IsThere(so, stream))
		return false;
	if (AskOnce(so, &query, &answer))
	{
		KeepAnswers(so, stream, &answer);
		return true;
	}
	GgFallBack(so->index, so->reason);
	state->failed = true;
	return false;
}

static GgListState
DeviceNextList(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;
	uint32		itopk;

	if (state->deep)
		return NextDeepList(so, stream);

	/* the delta's lists are exact, so its last one has every row */
	if (stream->segment == NULL && state->ended && state->kept_back == 0)
		return GG_LIST_COMPLETE;
	if (so->device.uncertain)
		NoteWastedWalk(so);
	MarkHanded(so, stream);
	itopk = state->ended ? 0 : GgLongerList(so, stream);
	if (itopk > 0 && so->filter == NULL && WalkIsWorthwhile(so, stream, itopk))
	{
		stream->itopk = itopk;
		if (NextWalk(so, stream, itopk))
			return GG_LIST_READY;
	}
	if (!state->failed)
	{
		BeginDeep(so, stream);
		if (NextKeys(so, stream))
			return GG_LIST_READY;
	}
	return itopk == 0 ? GG_LIST_SEARCHED : GG_LIST_TOO_SHORT;
}

static void
KeepBack(GgScanOpaque *so, DeviceStream *state, uint64 key)
{
	if (state->nlate == state->late_cap)
	{
		state->late_cap = Max(64, state->late_cap * 2);
		if (state->late == NULL)
			state->late = MemoryContextAlloc(so->context, state->late_cap * sizeof(uint64));
		else
			state->late = repalloc_huge(state->late, state->late_cap * sizeof(uint64));
	}
	state->late[state->nlate++] = key;
}

static bool
DeepNext(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;
	uint64		key = GG_NO_KEY;

	while (key == GG_NO_KEY && state->next_key < state->nkeys)
	{
		if (stream->heap_blocks > 0 && state->next_key % GG_AHEAD_ROWS == 0)
			GgLookAhead(so, stream, state->keys + state->next_key,
						state->nkeys - state->next_key, 0);
		key = state->keys[state->next_key++];
		if (key_node(key) < stream->nodes && !GgWasReturned(stream, key_node(key)))
		{
			if (key >= state->bound)
				break;
			KeepBack(so, state, key);
		}
		key = GG_NO_KEY;
	}
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

/* As GgHalfIsHandedOut(); under a filter nodes that do not match count, too. */
static bool
IsHalfUsed(const GgScanOpaque *so, const GgStream *stream)
{
	const DeviceStream *state = stream->state;

	if (so->filter == NULL)
		return GgHalfIsHandedOut(so, stream, state->asked);
	return so->mode != GG_ITERATIVE_OFF && state->next_answer * 2 > state->asked;
}

static bool
DeviceNext(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;
	bool		complete = state->ended && stream->segment == NULL;

	if (state->deep)
		return DeepNext(so, stream);
	while (state->next_answer < state->nanswers && (complete || !IsHalfUsed(so, stream)))
	{
		gg_candidate *answer = &state->answers[state->next_answer++];

		if (GgWasReturned(stream, answer->node) || !GgNodeMatches(so, stream, answer->node))
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
