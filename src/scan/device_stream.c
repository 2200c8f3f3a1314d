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
 * list going on where the one before ended.  Where a LIMIT is known
 * (expected_rows.c), the first list has what it takes.  Where the executor throws most rows away,
 * the first list is as long as what it is expected to want, or deep, if the session's last short
 * one was for nothing.
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
 * Segments that a device has no room for are left to walks from the start.  Of some a device has
 * codes alone (GgResidentRef.rowless).  Its walks of these bring somewhat more nodes than were
 * asked for, in the order of estimates.  They are measured here before the list is anybody's, under
 * a filter those that match.  All else takes rows: lists of a scan whose filter few nodes match,
 * deep ones, and those of segments too small for a walk.
 *
 * Of others it has rows in half precision (GgResidentRef.halved), and keys have distances to these.
 * What rounding can do to them has a bound (bound.c).  So rows are measured here until none that
 * was not can be nearer than the next one (Settle()): for LIMIT 10 that is some 16 of them.  A row
 * may have to wait for the next deep list.
 */
#include "scan/row_filter.h"

#include "port/pg_bitutils.h"
#include "utils/float.h"
#include "utils/memutils.h"

#include "keys.h"
#include "request.h"

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
	int			list;			/* its number in requests */
	bool		deep;			/* lists are of all rows, each behind the one before */
	bool		failed;			/* the device, when it was asked for a walk */

	/* the list */
	uint64	   *keys;			/* ascending */
	uint32		cap;			/* of keys; 0: they are the scan's */
	uint32		asked;			/* how many were asked for */
	uint32		nkeys;
	uint32		next_key;
	bool		ended;			/* there are no more than these */

	/* where rows are rounded */
	bool		rounded;
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

/* One query, for these lists. */
static GgAsk
NewAsk(const GgScanOpaque *so, uint32 lists, bool delta)
{
	return (GgAsk) {
		.request = {
			.nsegments = so->device.ref.nsegments,
			.lists = lists,
			.delta = delta,
			.count = 1,
			.dim = so->meta->dimensions
		},
		.queries = so->query
	};
}

/* Have the lists be those of walks, but for the segments in `measured`, of k <= itopk keys. */
static void
AskForWalks(const GgScanOpaque *so, GgAsk *ask, uint32 measured, uint32 itopk)
{
	gg_request *request = &ask->request;

	request->measured = measured;
	request->params = so->params;
	request->params.itopk_size = itopk;
	request->params.k = Min(itopk, GgServiceWalkRoom(gg_request_lists(request)));
}

/* How many nodes of a list of this length are measured where the device walks by codes. */
static uint32
RerankSize(const GgScanOpaque *so, const gg_search_params *params)
{
	return gg_rerank_size(params, GG_DEVICE_CODES((gg_metric) so->meta->metric),
						  so->meta->dimensions);
}

/*
 * Where rows of walked segments are rounded: as many keys as nodes are measured by these, since
 * which of them are nearest is seen here.
 */
static void
AskForHalves(const GgScanOpaque *so, GgAsk *ask)
{
	gg_request *request = &ask->request;

	if ((request->lists & ~request->measured & so->device.ref.halved) == 0)
		return;
	request->params.rerank = RerankSize(so, &request->params);
	request->params.k = Min(request->params.rerank,
							GgServiceWalkRoom(gg_request_lists(request)));
}

/* Have the lists be those of k rows of all that match, behind a key. */
static void
AskForDeep(const GgScanOpaque *so, GgAsk *ask, uint32 k, uint64 after)
{
	ask->request.measured = ask->request.lists;
	ask->request.params.k = k;
	ask->request.after = after;
	ask->filter = so->filter;
}

/*
 * A query to a device that holds the index was not answered.  The resident may have been replaced
 * by a newer one since it was looked up, or another device has one, too.  Then that one is to be
 * asked, where it holds the same rows.  False: there will be no answer, for the reason in
 * so->reason.
 */
static bool
AskAgain(GgScanOpaque *so, const gg_request *request, int attempt)
{
	GgResidentRef *ref = &so->device.ref;
	uint32		delta_pages = ref->delta_pages;
	uint32		halved = ref->halved;
	GgReason	found;

	if (!GgAskAnother(ref, so->reason) || attempt >= 2 + pg_popcount32(ref->avoid))
		return false;
	if (!GgResidentLookup(so->index, so->meta, ref, &found))
	{
		if (ref->avoid == 0)
			so->reason = found;
		return false;
	}
	if ((!request->delta || ref->delta_answered || ref->delta_pages == delta_pages) &&
		(request->lists & ~ref->answered & ref->missing) == 0 &&
		(request->measured & ref->rowless) == 0 &&
		(request->after == 0 || (request->measured & (ref->halved ^ halved)) == 0))
		return true;
	so->reason = GG_REASON_NOT_RESIDENT;
	return false;
}

/* The stream of a segment. */
static GgStream *
StreamOf(GgScanOpaque *so, uint32 list)
{
	GgStream   *stream = so->streams;

	while (stream->segment == NULL || stream->segment - so->meta->segments != list)
		stream++;
	return stream;
}

/* Keys have estimates.  Leave those of nodes that match, as many as are to be measured. */
static void
KeepMatching(GgScanOpaque *so, GgStream *stream, uint64 *keys, uint32 count)
{
	const uint64 due = GgRowsToMeasure(so->meta, GG_DEVICE_CODES((gg_metric) so->meta->metric),
									   so->limit > 0 ? so->limit :
									   GgRowsWanted(so->mode, 0, 0));
	uint32		n = 0;

	for (uint32 i = 0; i < count && n < due; i++)
		if (key_node(keys[i]) < stream->nodes && GgNodeMatches(so, stream, key_node(keys[i])))
			keys[n++] = keys[i];
	while (n < count)
		keys[n++] = GG_NO_KEY;
}

/* Lists of `from` keys become lists of `to`, the nearest ones.  Those of estimates are measured. */
static void
ShortenLists(GgScanOpaque *so, const gg_request *request, uint32 rowless, uint64 *lists,
			 uint32 from, uint64 *keys, uint32 to)
{
	for (uint32 list = 0; list <= request->nsegments; list++)
	{
		if (!gg_request_asks(request, list))
			continue;
		if (list < request->nsegments && (rowless >> list & 1) != 0)
		{
			GgStream   *stream = StreamOf(so, list);
			uint32		measured;

			GgNeedSource(so, stream);
			if (so->filter != NULL)
				KeepMatching(so, stream, lists, from);
			measured = GgSourceMeasureKeys(&stream->source, lists, from);
			so->reranked += measured;
			so->distances += measured;
		}
		memmove(keys, lists, to * sizeof(uint64));
		lists += from;
		keys += to;
	}
}

/* As GgServiceAsk(), but with distances of rows in keys, where the index has rows. */
static bool
Ask(GgScanOpaque *so, const GgAsk *ask, uint64 *keys, uint64 *matches)
{
	const uint32 walked = ask->request.lists & ~ask->request.measured;
	/* where the index has no rows, table_order.c measures */
	const uint32 measured = so->by_table ? 0 : walked;
	const uint32 k = ask->request.params.k;
	GgResidentRef *ref = &so->device.ref;
	GgAsk		longer = *ask;
	uint64	   *lists = keys;
	int			attempt = 0;
	bool		answered;

	if ((measured & ref->rowless) != 0)
	{
		longer.request.params.k = RerankSize(so, &ask->request.params);
		lists = palloc(gg_request_lists(&ask->request) *
					   (Size) longer.request.params.k * sizeof(uint64));
	}
	GgForgetAnswers(ref);
	while (!(answered = GgServiceAsk(ref, &longer, lists, matches, &so->reason)) &&
		   AskAgain(so, &longer.request, attempt++))
		;
	if (answered)
		so->reranked += (uint64) pg_popcount32(walked & ref->coded & ~ref->rowless) *
			RerankSize(so, &ask->request.params);
	/* whoever answered in the end */
	if (answered && (lists != keys || (measured & ref->rowless) != 0))
		ShortenLists(so, &ask->request, measured & ref->rowless, lists, longer.request.params.k,
					 keys, k);
	if (lists != keys)
		pfree(lists);
	return answered;
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

/*
 * How long is the walk's list in a segment of whose nodes this share matches a filter?  0: there is
 * none.  Where the device has no rows, walks are all that it has.
 */
static uint32
FilteredList(const GgScanOpaque *so, const GgStream *stream, double share)
{
	const uint32 bit = (uint32) 1 << (stream->segment - so->meta->segments);
	uint64		rows = so->limit;
	uint64		wanted;

	if ((so->device.ref.rowless & bit) == 0)
		return GgFilteredDeviceList(stream->nodes, share, GgRowBytes(so->meta), gg_itopk_size);
	if (so->by_table)
		rows = GgRowsToRead(so->meta, GgRowsWanted(so->mode, so->limit, 0));
	wanted = Max((uint64) gg_itopk_size, GG_LIMITED_WALK(rows));
	return share < GG_LEAST_WALKED_SHARE || wanted / share > GG_MAX_ITOPK ? 0 :
		(uint32) (wanted / share);
}

/* Which segments are walked first, though there is a filter, and with lists of what length. */
static uint32
ListsToWalk(GgScanOpaque *so, uint32 *itopk)
{
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
		if ((so->device.lists & ~so->device.ref.missing & bit) == 0 ||
			FilteredList(so, stream, 1) == 0)
			continue;
		GgEstimateMatching(so, stream, FEW_PLACES);
		list = FilteredList(so, stream, (double) stream->nmatching / stream->nodes);
		if (list == 0)
			continue;
		walked |= bit;
		*itopk = Min(Max(*itopk, list), GG_MAX_ITOPK);
	}
	return walked;
}

/* Rows that LIMIT takes; 0: no LIMIT.  Rows that are read from the table are more than LIMIT. */
static uint32
LimitedRows(const GgScanOpaque *so)
{
	return so->by_table && so->expected == 0 ?
		GgRowsToRead(so->meta, GgRowsWanted(so->mode, so->limit, 0)) : so->limit;
}

/*
 * Segments of which the device has no rows, and no walk that the scan could end with.  What a
 * shorter walk finds would be for nothing: the CPU walks anew, and strict order keeps what it finds
 * nearer than the rows that were handed out.  Of the nearest 3,000 of 12,000 rows in clusters of
 * 300 the CPU finds 3,000, and 2,812 to 2,980 behind half of a CUDA engine's list of 1,024.
 */
static uint32
ListsWithoutWalk(const GgScanOpaque *so)
{
	const GgDeviceAnswer *device = &so->device;

	if (so->filter != NULL)
		return device->ref.rowless & ~device->walked;
	return so->mode != GG_ITERATIVE_OFF && GG_LIMITED_WALK(LimitedRows(so)) > GG_MAX_ITOPK ?
		device->ref.rowless : 0;
}

/*
 * The device has no room for some segments of the index, or none for the rows that the scan's
 * filter or LIMIT takes.  Their streams become walks, and stay walks if the query is posted once
 * more.  Small segments are measured here where the device has no rows, or rounded ones.  Where
 * nothing is left to ask the device for, so->reason says so.
 */
static void
LeaveMissing(GgScanOpaque *so)
{
	GgDeviceAnswer *device = &so->device;
	const uint32 rowless = device->ref.rowless;

	device->missing |= device->ref.missing | ListsWithoutWalk(so);
	device->missing &= device->lists;
	device->lists &= ~(device->missing | (device->exact & (rowless | device->ref.halved)));
	device->exact &= device->lists;
	if (device->missing != 0 && gg_engine_setting == GG_ENGINE_CUDA)
		so->reason = (device->missing & ~rowless) != 0 ? GG_REASON_PARTIAL : GG_REASON_CODED;
	else if (device->lists == 0 && device->delta_pages == 0)
		so->reason = rowless != 0 ? GG_REASON_CODED : GG_REASON_MEMORY;
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
	else if (GgIsLocal(so->index))
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
		device->walked = so->filter != NULL && WalkIsDue(so) ?
			ListsToWalk(so, &device->walk_length) : 0;
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
 * one before.  Where the device has no rows there is no exact one.
 */
static bool
WalkIsWorthwhile(const GgScanOpaque *so, const GgStream *stream, uint32 itopk)
{
	if (stream->segment != NULL &&
		(so->device.ref.rowless >> (stream->segment - so->meta->segments) & 1) != 0)
		return itopk <= GG_MAX_ITOPK;
	return stream->segment == NULL || so->mode == GG_ITERATIVE_OFF ||
		itopk <= GgLongestDeviceList(stream->nodes, GgRowBytes(so->meta));
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

/* What is asked for: the first lists. */
static void
NoteFirst(GgScanOpaque *so, const GgAsk *ask, bool deep)
{
	GgDeviceAnswer *device = &so->device;
	const gg_request *request = &ask->request;
	uint32		nlists = gg_request_lists(request);

	device->asked = request->lists;
	device->deep = deep;
	device->k = request->params.k;
	device->keys = palloc((Size) nlists * device->k * sizeof(uint64));
	device->matches = palloc(nlists * sizeof(uint64));
}

static bool
AskFirst(GgScanOpaque *so, const GgAsk *ask, bool deep)
{
	NoteFirst(so, ask, deep);
	return Ask(so, ask, so->device.keys, so->device.matches);
}

/*
 * The first lists of a scan with a filter are half as long as those of walks: of those the scan
 * hands out half, and these are exact.  Over 1M x 128 a list of 10 takes 30 to 40 us less than one
 * of 64, whatever the filter is.
 */
static void
AskFiltered(const GgScanOpaque *so, GgAsk *ask)
{
	uint32		k = so->mode == GG_ITERATIVE_OFF ? gg_itopk_size : (gg_itopk_size + 1) / 2;

	if (so->limit > 0 && !so->recheck)
		k = Min(GG_LIMITED_EXACT(so->limit),
				GgServiceDeepRoom(gg_request_lists(&ask->request)));
	AskForDeep(so, ask, k, 0);
}

/*
 * The first lists of a scan without a filter.  Where the executor filters rows, they are long
 * enough for what the largest segment is expected to hand out, or deep.  A short list before a deep
 * one would be for nothing, and what is handed out of it would have to be left out of the deep one.
 * 1M x 128, one row in 100 passes: a query takes the backend 1.35 ms of processor time with the
 * short list, and 1.0 to 1.1 without.  But the planner's estimate may be far off, and where most
 * rows pass, a deep list takes three times as long.  So a short one is tried now and then.
 */
static GgAsk
FirstWithoutFilter(GgScanOpaque *so, bool *is_deep)
{
	GgDeviceAnswer *device = &so->device;
	GgAsk		ask = NewAsk(so, device->lists, device->delta_pages > 0);
	double		expected = ExpectedRows(so, so->streams);
	uint32		itopk = gg_itopk_size;
	uint32		limit = LimitedRows(so);
	uint64		limited = limit > 0 ? GG_LIMITED_WALK(limit) : 0;
	bool		deep = false;

	if (limited > itopk && so->mode != GG_ITERATIVE_OFF)
	{
		itopk = (uint32) limited;
		deep = !WalkIsWorthwhile(so, so->streams, itopk);
		expected = limit;
	}
	else if (GG_EXPECTED_WALK(expected) > itopk && WalkIsDue(so))
		BeginUncertainWalk(so);
	else if (GG_EXPECTED_WALK(expected) > itopk)
	{
		itopk = (uint32) GG_EXPECTED_WALK(expected);
		deep = !WalkIsWorthwhile(so, so->streams, itopk);
	}
	if (deep && (device->lists & device->ref.rowless) != 0)
	{
		deep = false;
		itopk = Min(itopk, GG_MAX_ITOPK);
	}
	if (deep)
		AskForDeep(so, &ask, Min(GgFirstDeepList(expected),
								 GgServiceDeepRoom(gg_request_lists(&ask.request))), 0);
	else
		AskForWalks(so, &ask, device->exact, itopk);
	if (!deep && so->params.mode == GG_SEARCH_TSDG_SMALL && so->mode != GG_ITERATIVE_OFF)
		ask.request.params.k = Min(ask.request.params.k, GG_GREEDY_LIST);
	/* rounded rows pass the executor's queue, which takes more than LIMIT */
	if (!deep && limited > 0 && !so->bound.rounded)
		ask.request.params.k = Min(ask.request.params.k, limited);
	if (!deep)
		AskForHalves(so, &ask);
	*is_deep = deep;
	return ask;
}

static bool
AskWithoutFilter(GgScanOpaque *so, GgMeanwhile meanwhile)
{
	bool		deep;
	GgAsk		ask = FirstWithoutFilter(so, &deep);

	ask.meanwhile = meanwhile;
	return AskFirst(so, &ask, deep);
}

/* Some segments may be walked; the streams of the others ask for their lists then. */
static bool
AskWithFilter(GgScanOpaque *so, GgMeanwhile meanwhile)
{
	GgDeviceAnswer *device = &so->device;
	GgAsk		ask;

	if (device->walked != 0)
	{
		BeginUncertainWalk(so);
		ask = NewAsk(so, device->walked, false);
		AskForWalks(so, &ask, 0, device->walk_length);
	}
	else
	{
		ask = NewAsk(so, device->lists, device->delta_pages > 0);
		AskFiltered(so, &ask);
	}
	ask.meanwhile = meanwhile;
	return AskFirst(so, &ask, device->walked == 0);
}

bool
GgAskDevice(GgScanOpaque *so, void (*open_meanwhile) (void *so))
{
	GgDeviceAnswer *device = &so->device;
	GgMeanwhile meanwhile = {NULL, so};

	if (device->answered)
	{
		device->answered = false;
		return true;
	}
	device->missing = device->walked = device->ref.avoid = 0;
	device->uncertain = false;
	/* once more where the resident was replaced after it was looked up */
	for (int attempt = 0; attempt < 3 && FindDevice(so); attempt++)
	{
		if (device->missing != 0 || device->delta_pages < so->meta->delta_pages)
			meanwhile.run = open_meanwhile;
		if (so->filter != NULL ? AskWithFilter(so, meanwhile) : AskWithoutFilter(so, meanwhile))
			return true;
		if (so->reason != GG_REASON_NOT_RESIDENT)
			break;
	}
	device->lists = 0;
	device->delta_pages = 0;
	device->missing = device->walked = 0;
	return false;
}

bool
GgPlanFirst(GgScanOpaque *so, GgAsk *ask, bool *deep)
{
	GgDeviceAnswer *device = &so->device;
	const uint64 limited = GG_LIMITED_WALK(so->limit);

	device->missing = device->walked = device->ref.avoid = 0;
	device->uncertain = false;
	if (so->filter != NULL || so->by_table || !FindDevice(so) || device->ref.nothers > 0 ||
		device->ref.rowless != 0)
		return false;
	*ask = FirstWithoutFilter(so, deep);
	if (!*deep)
		return true;
	if (so->limit == 0 || limited > GG_MAX_ITOPK)
		return false;
	/* of the length of a walk's, so that they go together; more come from behind the last key */
	AskForWalks(so, ask, ask->request.lists, (uint32) limited);
	return true;
}

void
GgTakeFirst(GgScanOpaque *so, const GgAsk *ask, bool deep, const uint64 *keys)
{
	MemoryContext old = MemoryContextSwitchTo(so->context);
	const gg_request *request = &ask->request;

	NoteFirst(so, ask, deep);
	memcpy(so->device.keys, keys,
		   (Size) gg_request_lists(request) * request->params.k * sizeof(uint64));
	so->reranked += (uint64) pg_popcount32(request->lists & ~request->measured &
										   so->device.ref.coded) *
		RerankSize(so, &request->params);
	so->device.answered = true;
	MemoryContextSwitchTo(old);
}

/* ---- the stream -------------------------------------------------------- */

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
	state->rounded = stream->segment != NULL && (so->device.ref.halved >> state->list & 1) != 0;
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
	if (Ask(so, ask, state->keys + waiting, matches))
	{
		KeepKeys(so, stream, waiting, k);
		return true;
	}
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
 * executor fetches, and a row for each stream, which pays for the beginning.  Of indexes that are
 * searched together most have no row to return.
 */
static bool
TakesFew(const GgScanOpaque *so)
{
	return so->limit > 0 && so->limit >= (uint32) so->nstreams && !so->by_table &&
		!so->nearest->shared;
}

/* The scan's first lists have the stream's. */
static void
KeepFirst(GgScanOpaque *so, GgStream *stream)
{
	const GgDeviceAnswer *device = &so->device;
	const gg_request request = {.lists = device->asked};
	DeviceStream *state = stream->state;
	uint32		before = gg_request_before(&request, state->list);

	state->keys = device->keys + (Size) before * device->k;
	KeepKeys(so, stream, 0, device->k);
	if (state->deep ? device->k > GG_SHORT_DEEP : TakesFew(so))
		GgBeginAhead(so, stream);
	if (!state->deep)
		return;
	if (so->filter != NULL)
		CountMatches(stream, device->matches[before]);
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
	/* with a filter some may be walked: then the list of another one is still to be asked for */
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
	if (state->deep && (ref->rowless >> state->list & 1) != 0)
	{
		GgRequireDevice(so->index, GG_REASON_CODED);
		return false;
	}
	/* "behind the last key" means other rows where these are rounded */
	if (state->after != 0 && state->rounded != ((ref->halved >> state->list & 1) != 0))
		return false;
	return (ref->missing >> state->list & 1) == 0;
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

/* The deep list behind the last one, of which keys wait; false when the device has none. */
static bool
NextKeys(GgScanOpaque *so, GgStream *stream, uint32 waiting)
{
	DeviceStream *state = stream->state;
	bool		delta = stream->segment == NULL;
	GgAsk		ask = NewAsk(so, delta ? 0 : (uint32) 1 << state->list, delta);
	uint32		all = so->filter != NULL && stream->matches > 0 ? stream->nmatching :
		stream->nodes;
	uint32		k = DeepLength(so, stream);
	uint64		matches;

	/* one more than there are, so that the list ends; every row may be a node's only one */
	AskForDeep(so, &ask, k > all ? all + 1 : k, state->after);
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
	if (!NextKeys(so, stream, state->nkeys))
		return GG_LIST_SEARCHED;
	return GG_LIST_READY;
}

/* The next list of a walk; false where there is none, and then state says why. */
static bool
NextWalk(GgScanOpaque *so, GgStream *stream, uint32 itopk)
{
	DeviceStream *state = stream->state;
	bool		delta = stream->segment == NULL;
	GgAsk		ask = NewAsk(so, delta ? 0 : (uint32) 1 << state->list, delta);

	AskForWalks(so, &ask, 0, itopk);
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

	if (!state->deep)
	{
		stream->handed++;
		state->kept_back++;
		/* not to be marked */
		state->keys[place] = GG_NO_KEY;
		return;
	}
	if (state->nlate == state->late_cap)
	{
		state->late_cap = Max(64, state->late_cap * 2);
		state->late = GgEnlarge(so->context, state->late, state->late_cap * sizeof(uint64));
	}
	state->late[state->nlate++] = state->keys[place];
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

/*
 * Where rows are rounded: measure until no row that was not can be nearer than the next one.
 * False: one behind the end of a deep list can.
 */
static bool
Settle(GgScanOpaque *so, GgStream *stream)
{
	DeviceStream *state = stream->state;

	for (;;)
	{
		uint64		behind = GG_NO_KEY;

		if (state->measured < state->nkeys)
			behind = state->keys[state->measured];
		else if (state->deep && !state->ended)
			behind = state->after;
		if (state->next_key < state->measured &&
			(behind == GG_NO_KEY || key_distance(state->keys[state->next_key]) <=
			 GgBoundOfKey(&state->halves, key_distance(behind))))
			return true;
		if (state->measured == state->nkeys)
			return false;
		GgNeedSource(so, stream);
		so->distances -= state->measured;
		state->measured = GgSourceMeasureNext(&stream->source, state->keys, state->next_key,
											  state->measured, state->nkeys);
		so->distances += state->measured;
	}
}

/* Is there another key in the list, and may it be handed out? */
static bool
HasNext(GgScanOpaque *so, GgStream *stream, bool whole)
{
	DeviceStream *state = stream->state;

	return state->next_key < state->nkeys && (whole || !IsHalfUsed(so, stream)) &&
		(!state->rounded || Settle(so, stream));
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
		if (node >= stream->nodes || GgWasReturned(stream, node) ||
			(!state->deep && !GgNodeMatches(so, stream, node)))
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
