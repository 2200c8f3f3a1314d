/*
 * device_ask.c
 *		What a scan asks a device for: which lists, of what kind and length.
 *
 * GgAskDevice() asks for the first lists of all streams with one request, when the scan starts;
 * device_stream.c asks for the later ones.  All requests go through src/service.
 *
 * Where a LIMIT is known (expected_rows.c), the first list has what it takes.  Where the executor
 * throws most rows away, the first list is short, or after a short one that was for nothing in this
 * session (walk_history.c) as long as what it is expected to want, or deep.
 *
 * A scan with a filter has deep lists alone, of what matches.  But where many rows of a segment
 * match, and measuring them would take long, one walk comes first.  Where matching rows are rare
 * near the queries such walks are for nothing, so the session remembers them, too.
 *
 * Segments that a device has no room for are left to walks from the start.  Of some it has codes
 * alone (GgForms.rowless).  Walks of these segments bring somewhat more nodes than were asked for,
 * in the order of estimates.  Such nodes, under a filter those that match, are measured here before
 * the list is used.  Where few nodes match, the device has a list of those that do, in the order of
 * bounds (device_stream.c).  All else takes rows: deep lists without a filter, or behind another
 * list, those of L1 and inner product, and those of segments too small for a walk.
 *
 * A scan that measures every row has deep lists alone, too, where a device has all rows.
 */
#include "scan/device.h"
#include "scan/row_filter.h"
#include "scan/sort_key.h"

#include "port/pg_bitutils.h"

#include "engine/keys.h"
#include "engine/request.h"

/*
 * Pages of the delta from which a device is asked about them.  Fewer are read in some
 * microseconds, less than one more batch costs the device.
 */
#define DEVICE_DELTA_PAGES	16

/* Nodes of a segment, too small for a walk, from which a device is asked to measure them. */
#define DEVICE_EXACT_NODES	256

/* Places from which it is estimated how many nodes match: some 10 us. */
#define FEW_PLACES			16

GgAsk
GgNewAsk(const GgScanOpaque *so, uint32 lists, bool delta)
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

void
GgAskForWalks(const GgScanOpaque *so, GgAsk *ask, uint32 measured, uint32 itopk)
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
 * Where a device measures nodes of a walk by rounded rows, ask for the keys of all that it
 * measures, since which of them are nearest is found out here.
 */
static void
AskForHalves(const GgScanOpaque *so, GgAsk *ask)
{
	gg_request *request = &ask->request;

	if ((request->lists & ~request->measured & so->device.ref.forms.halved) == 0)
		return;
	request->params.rerank = RerankSize(so, &request->params);
	request->params.k = Min(request->params.rerank,
							GgServiceWalkRoom(gg_request_lists(request)));
}

void
GgAskForDeep(const GgScanOpaque *so, GgAsk *ask, uint32 k, uint64 after)
{
	ask->request.measured = ask->request.lists;
	ask->request.params.k = k;
	ask->request.after = after;
	/* distances to rounded rows, and bounds, have other ends than so->farthest */
	if (so->range && !isinf(so->farthest) &&
		(ask->request.lists & (so->device.ref.forms.halved | so->device.ref.forms.rowless)) == 0)
		ask->request.last = key_of(so->farthest, PG_UINT32_MAX);
	ask->filter = so->filter;
}

bool
GgTakesBounds(const GgScanOpaque *so)
{
	return so->filter != NULL && GgHasBoundedList(so->meta, so->mode, so->limit);
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
	uint32		halved = ref->forms.halved;
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
		(request->lists & ~ref->answered & ref->forms.missing) == 0 &&
		((request->measured & ref->forms.rowless) == 0 ||
		 (request->after == 0 && GgTakesBounds(so))) &&
		((request->after == 0 && request->last == 0) ||
		 (request->measured & (ref->forms.halved ^ halved)) == 0))
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

/* Of keys with estimates keep those of nodes that match, as many as are to be measured. */
static void
KeepMatching(GgScanOpaque *so, GgStream *stream, uint64 *keys, uint32 count)
{
	const uint64 wanted = so->limit > 0 ? so->limit : GgRowsWanted(so->mode, &so->params, 0, 0);
	const uint64 due = GgRowsToMeasure(so->meta, &so->params,
									   GG_DEVICE_CODES((gg_metric) so->meta->metric), wanted);
	uint32		n = 0;

	for (uint32 i = 0; i < count && n < due; i++)
		if (key_node(keys[i]) < stream->nodes && GgNodeMatches(so, stream, key_node(keys[i])))
			keys[n++] = keys[i];
	while (n < count)
		keys[n++] = GG_NO_KEY;
}

/* Lists of `from` keys become lists of the nearest `to`.  Lists of estimates are measured first. */
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

bool
GgAskLists(GgScanOpaque *so, const GgAsk *ask, uint64 *keys, uint64 *matches)
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

	if ((measured & ref->forms.rowless) != 0)
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
		so->reranked += (uint64) pg_popcount32(walked & ref->forms.coded & ~ref->forms.rowless) *
			RerankSize(so, &ask->request.params);
	/* by the forms of the resident that answered in the end */
	if (answered && (lists != keys || (measured & ref->forms.rowless) != 0))
		ShortenLists(so, &ask->request, measured & ref->forms.rowless, lists,
					 longer.request.params.k, keys, k);
	if (lists != keys)
		pfree(lists);
	return answered;
}

/* ---- the first request ------------------------------------------------- */

double
GgExpectedOfStream(const GgScanOpaque *so, const GgStream *stream)
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

/* Where a device looks at all rows, for a filter or an exact scan: all segments, or none. */
static uint32
WholeLists(const GgScanOpaque *so)
{
	uint32		lists = 0;
	uint32		most = 0;
	double		nodes = 0;

	for (int i = 0; i < so->nstreams && so->query != NULL; i++)
	{
		lists |= (uint32) 1 << (so->streams[i].segment - so->meta->segments);
		most = Max(most, so->streams[i].nodes);
		nodes += so->streams[i].nodes;
	}
	if (so->exact)
		return GgDeviceMeasuresSooner(nodes, GgRowBytes(so->meta)) ? lists : 0;
	return most >= GG_DEVICE_FILTER_NODES ? lists : 0;
}

/* Where the index has codes alone: rows of the table that are read before the first is returned. */
static uint32
RowsToRead(const GgScanOpaque *so)
{
	return GgRowsToRead(so->meta, &so->params,
						GgRowsWanted(so->mode, &so->params, so->limit, 0));
}

/*
 * How long is the walk's list in a segment of whose nodes this share matches a filter?  0: there is
 * none.
 */
static uint32
FilteredList(const GgScanOpaque *so, const GgStream *stream, double share)
{
	const uint32 bit = (uint32) 1 << (stream->segment - so->meta->segments);

	return (so->device.ref.forms.rowless & bit) != 0 ?
		GgFilteredCodesList(so->meta, so->mode, &so->params, so->limit, share) :
		GgFilteredDeviceList(stream->nodes, share, GgRowBytes(so->meta), so->params.itopk_size);
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
		if ((so->device.lists & ~so->device.ref.forms.missing & bit) == 0 ||
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

/* Rows to read from the table, more than LIMIT and known without it; else LIMIT's, 0: not known. */
static uint32
LimitedRows(const GgScanOpaque *so)
{
	return so->by_table && so->expected == 0 ? RowsToRead(so) : so->limit;
}

/*
 * Segments of which the device has no rows, and no walk that the scan could end with.  What a
 * shorter walk finds would be for nothing: the CPU walks anew, and strict order keeps back what it
 * finds nearer than the rows that were handed out.  Of the nearest 3,000 of 12,000 rows in clusters
 * of 300 the CPU finds 3,000, and 2,812 to 2,980 behind half of a CUDA engine's list of 1,024 whose
 * walk entered at 16 pivots.
 */
static uint32
ListsWithoutWalk(const GgScanOpaque *so)
{
	const GgDeviceAnswer *device = &so->device;

	if (so->filter != NULL)
		return GgTakesBounds(so) ? 0 : device->ref.forms.rowless & ~device->walked;
	return so->mode != GG_ITERATIVE_OFF && GG_LIMITED_WALK(LimitedRows(so)) > GG_MAX_ITOPK ?
		device->ref.forms.rowless : 0;
}

/*
 * Leave to the CPU the segments that the device has no room for, or whose rows it lacks and the
 * scan's filter or LIMIT takes.  Their streams become walks, and stay walks if the query is posted
 * once more.  Small segments are measured here where the device has no rows, or rounded ones.
 * so->reason says why where nothing is left to ask for, or gpugraph.engine = cuda forbids this.
 */
static void
LeaveMissing(GgScanOpaque *so)
{
	GgDeviceAnswer *device = &so->device;
	const uint32 rowless = device->ref.forms.rowless;

	device->missing |= device->ref.forms.missing | ListsWithoutWalk(so);
	device->missing &= device->lists;
	device->lists &= ~(device->missing | (device->exact & (rowless | device->ref.forms.halved)));
	device->exact &= device->lists;
	if (device->missing != 0)
		GgTakeForm(so, GgCpuForm(so->meta), true);
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

	device->lists = so->exact || so->filter != NULL ? WholeLists(so) :
		DeviceLists(so, &device->exact);
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
		if (so->exact && (device->lists & (ref->forms.missing | ref->forms.rowless)) != 0)
			return false;
		if (ref->delta_pages >= DEVICE_DELTA_PAGES && ref->delta_pages <= so->meta->delta_pages &&
			ref->delta_pages % GgDeltaPagesPerRow(so->meta) == 0)
			device->delta_pages = ref->delta_pages;
		so->reason = GG_REASON_NONE;
		GgTakeForm(so, ((ref->forms.coded | ref->forms.rowless) & device->lists) != 0 ?
				   GG_FORM_GPU_CODES : GG_FORM_GPU_ROWS, false);
		device->walked = so->filter != NULL && !so->exact && GgWalkIsDue(so) ?
			ListsToWalk(so, &device->walk_length) : 0;
		if (device->lists == 0 && device->delta_pages == 0)
			so->reason = GG_REASON_SMALL;
		else
			LeaveMissing(so);
	}
	return so->reason == GG_REASON_NONE;
}

/*
 * With iterative_scan off the scan wants a few rows more, in the place of dead ones, and the walk's
 * next list is more like the one before.  Where the device has no rows there is no exact list.
 */
bool
GgDeviceWalkIsWorthwhile(const GgScanOpaque *so, const GgStream *stream, uint32 itopk)
{
	if (stream->segment != NULL &&
		(so->device.ref.forms.rowless >> (stream->segment - so->meta->segments) & 1) != 0)
		return itopk <= GG_MAX_ITOPK;
	return stream->segment == NULL || so->mode == GG_ITERATIVE_OFF ||
		itopk <= GgLongestDeviceList(stream->nodes, GgRowBytes(so->meta), GG_DEVICE_DEEP_US);
}

/* The first lists of a scan, in the order of lists, the delta's last. */
typedef struct FirstLists
{
	gg_request	request;		/* whose answer they are */
	uint64	   *keys;
	uint64		matches[FLEXIBLE_ARRAY_MEMBER]; /* with a filter, rows that match, of each */
} FirstLists;

/* Note what is asked for, and have room for the answer. */
static FirstLists *
NoteFirst(GgScanOpaque *so, const GgAsk *ask, bool deep)
{
	const gg_request *request = &ask->request;
	uint32		nlists = gg_request_lists(request);
	FirstLists *first = palloc(offsetof(FirstLists, matches) + nlists * sizeof(uint64));

	first->request = *request;
	first->keys = palloc((Size) nlists * request->params.k * sizeof(uint64));
	so->device.deep = deep;
	so->device.first = first;
	return first;
}

uint64 *
GgFirstList(const GgScanOpaque *so, uint32 list, uint32 *k, uint64 *matches)
{
	FirstLists *first = so->device.first;
	const gg_request *request = &first->request;
	const uint32 before = gg_request_before(request, list);

	*k = request->params.k;
	if (!gg_request_asks(request, list))
		return NULL;
	if (so->filter != NULL)
		*matches = first->matches[before];
	return first->keys + (Size) before * *k;
}

/* Count what was reranked for first lists that came from elsewhere than GgAskLists(). */
static void
CountReranked(GgScanOpaque *so, const gg_request *request)
{
	so->reranked += (uint64) pg_popcount32(request->lists & ~request->measured &
										   so->device.ref.forms.coded) *
		RerankSize(so, &request->params);
}

static bool
AskFirst(GgScanOpaque *so, const GgAsk *ask, bool deep)
{
	FirstLists *first = NoteFirst(so, ask, deep);

	if (so->ahead != NULL && GgTakeAhead(so, ask, first->keys, first->matches))
	{
		CountReranked(so, &ask->request);
		return true;
	}
	return GgAskLists(so, ask, first->keys, first->matches);
}

/*
 * The first lists of a scan with a filter are half as long as those of walks: of those the scan
 * hands out half, and these are exact.  Over 1M x 128 a list of 10 takes 30 to 40 us less than one
 * of 64, whatever the filter is.  Of bounds there is one list, so it is long.
 */
static void
AskFiltered(const GgScanOpaque *so, GgAsk *ask)
{
	const uint32 itopk = so->params.itopk_size;
	uint32		k = so->mode == GG_ITERATIVE_OFF ? itopk : (itopk + 1) / 2;

	if ((ask->request.lists & so->device.ref.forms.rowless) != 0)
		k = Min(GG_BOUNDED_LIST, GgServiceDeepRoom(gg_request_lists(&ask->request)) / 4);
	else if (so->limit > 0 && !so->recheck)
		k = Min(GG_LIMITED_EXACT(so->limit),
				GgServiceDeepRoom(gg_request_lists(&ask->request)));
	GgAskForDeep(so, ask, k, 0);
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
	GgAsk		ask = GgNewAsk(so, device->lists, device->delta_pages > 0);
	double		expected = GgExpectedOfStream(so, so->streams);
	uint32		itopk = so->params.itopk_size;
	uint32		limit = LimitedRows(so);
	uint64		limited = limit > 0 ? GG_LIMITED_WALK(limit) : 0;
	bool		deep = false;

	if (so->look)
		itopk = GG_LOOK_LIST;
	else if (so->mode != GG_ITERATIVE_OFF && limit > 0)
	{
		deep = so->streams->segment != NULL &&
			!GgWalksForLimit(limit, itopk, so->params.mode, so->streams->nodes,
							 GgRowBytes(so->meta));
		itopk = (uint32) Max(itopk, limited);
		expected = limit;
	}
	else if (GG_EXPECTED_WALK(expected) > itopk && GgWalkIsDue(so))
		GgBeginUncertainWalk(so);
	else if (GG_EXPECTED_WALK(expected) > itopk)
	{
		itopk = (uint32) GG_EXPECTED_WALK(expected);
		deep = !GgDeviceWalkIsWorthwhile(so, so->streams, itopk);
	}
	if (deep && (device->lists & device->ref.forms.rowless) != 0)
	{
		deep = false;
		itopk = Min(itopk, GG_MAX_ITOPK);
	}
	if (deep)
		GgAskForDeep(so, &ask, Min(GgFirstDeepList(expected),
								 GgServiceDeepRoom(gg_request_lists(&ask.request))), 0);
	else
		GgAskForWalks(so, &ask, device->exact, itopk);
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

/*
 * Have lists of all rows be as short as those of walks, since only such lists go together with
 * those of other queries or indexes.  More rows come from behind the last key.  False: LIMIT is not
 * known, or takes more.
 */
static bool
ShortenDeep(const GgScanOpaque *so, GgAsk *ask)
{
	const uint64 limited = GG_LIMITED_WALK(so->limit);

	if (so->limit == 0 || limited > GG_MAX_ITOPK)
		return false;
	GgAskForWalks(so, ask, ask->request.lists, (uint32) limited);
	return true;
}

static bool
AskWithoutFilter(GgScanOpaque *so, GgMeanwhile meanwhile)
{
	bool		deep;
	GgAsk		ask = FirstWithoutFilter(so, &deep);

	if (deep && so->ahead != NULL)
		(void) ShortenDeep(so, &ask);
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
		GgBeginUncertainWalk(so);
		ask = GgNewAsk(so, device->walked, false);
		GgAskForWalks(so, &ask, 0, device->walk_length);
	}
	else
	{
		ask = GgNewAsk(so, device->lists, device->delta_pages > 0);
		AskFiltered(so, &ask);
	}
	ask.meanwhile = meanwhile;
	return AskFirst(so, &ask, device->walked == 0);
}

/*
 * The first lists of a scan that measures every row have the rows that are wanted, if it is known
 * how many.  Lists of many keys take longer.
 */
static bool
AskExactly(GgScanOpaque *so, GgMeanwhile meanwhile)
{
	GgAsk		ask = GgNewAsk(so, so->device.lists, so->device.delta_pages > 0);
	uint32		k = GgFirstDeepList(so->expected);

	if (so->limit > 0)
		k = (uint32) Min(GG_LIMITED_EXACT((uint64) so->limit), GG_MAX_DEEP);
	else if ((so->marks & GG_KEY_FEW) != 0)
		k = GG_SHORT_DEEP;
	/* for a join the number is a guess, and with short lists one request serves more queries */
	else if (so->range && so->ahead != NULL)
		k = GG_LEAST_DEEP;
	GgAskForDeep(so, &ask, Min(k, GgServiceDeepRoom(gg_request_lists(&ask.request))), 0);
	ask.meanwhile = meanwhile;
	return AskFirst(so, &ask, true);
}

static bool
AskFor(GgScanOpaque *so, GgMeanwhile meanwhile)
{
	if (so->exact)
		return AskExactly(so, meanwhile);
	return so->filter != NULL ? AskWithFilter(so, meanwhile) : AskWithoutFilter(so, meanwhile);
}

bool
GgAskDevice(GgScanOpaque *so, void (*open_meanwhile) (void *so))
{
	GgDeviceAnswer *device = &so->device;
	GgMeanwhile meanwhile = {NULL, so};

	/* a device cannot measure the table's values, which are not in the index */
	if (so->exact && so->by_table)
	{
		device->lists = device->delta_pages = 0;
		return false;
	}
	if (device->answered)
	{
		device->answered = false;
		return true;
	}
	device->missing = device->walked = device->ref.avoid = 0;
	device->uncertain = false;
	/* again where the resident was replaced after it was looked up */
	for (int attempt = 0; attempt < 3 && FindDevice(so); attempt++)
	{
		if (device->missing != 0 || device->delta_pages < so->meta->delta_pages)
			meanwhile.run = open_meanwhile;
		if (AskFor(so, meanwhile))
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

	device->missing = device->walked = device->ref.avoid = 0;
	device->uncertain = false;
	if (so->exact || so->filter != NULL || so->by_table || !FindDevice(so) ||
		device->ref.nothers > 0 || device->ref.forms.rowless != 0)
		return false;
	*ask = FirstWithoutFilter(so, deep);
	return !*deep || ShortenDeep(so, ask);
}

void
GgTakeFirst(GgScanOpaque *so, const GgAsk *ask, bool deep, const uint64 *keys)
{
	MemoryContext old = MemoryContextSwitchTo(so->context);
	const gg_request *request = &ask->request;

	memcpy(NoteFirst(so, ask, deep)->keys, keys,
		   (Size) gg_request_lists(request) * request->params.k * sizeof(uint64));
	CountReranked(so, request);
	so->device.answered = true;
	MemoryContextSwitchTo(old);
}
