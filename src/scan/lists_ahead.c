/*
 * lists_ahead.c
 *		What a scan's next queries find, for many of them at once: the first lists, by one request
 *		to a device, or all rows within a distance, by one pass.
 *
 * LATERAL (... ORDER BY v <-> outer.v LIMIT k) begins the same scan anew for each outer row.  Each
 * time the scan asks a device for its first lists, and waits.  The node that reads outer rows ahead
 * (exec/read_ahead.c) knows the next queries, so it asks for the lists of all of them at once.
 *
 * What a scan asks for first depends on the index, on settings and on LIMIT, and not on the query.
 * So the scan notes it, and the same is asked for the next queries.  Each of them begins its scan
 * as ever, with the directory as it is then, and looks up the resident.  Where it would ask the
 * same device for the same lists of the same version, it finds them here.  Else it asks.
 *
 * Short lists of a filter are noted with it, so that one request is for all queries under a
 * condition that is the same for each outer row.  Where the next scan turns out to have another
 * one, no such list is noted any more.  Nothing is noted of longer lists of a filter, nor of those
 * of all rows, nor of a filter of TIDs.
 *
 * A join by a.v <-> b.v < r begins a scan for all rows within a distance (range_path.c) anew for
 * each outer row, and each measures every row.  Most of that is to bring rows into the processor,
 * so the first one measures a segment for all queries that are known.  It takes its own distance
 * for theirs.  One that is to go farther, or has another directory, measures for itself.
 */
#include "scan/scan.h"
#include "scan/sort_key.h"

#include "miscadmin.h"

#include "engine/keys.h"
#include "engine/request.h"
#include "engine/rules/serve_check.h"

/* Nodes measured for one query after the other: their rows stay in the processor's cache. */
#define SWEEP_CHUNK			64

/* Queries of a filter: a device takes GG_SERVE_MAX_DEEPS at a time, and is others', too. */
#define MOST_FILTERED		256

/* Queries for which a pass measures: of more, the rows are the lesser part. */
#define MOST_OF_PASS		64

/* Nodes of a segment within the distance of a query: their keys, in no order. */
typedef struct NodesWithin
{
	uint64	   *keys;
	uint32		count;
	uint32		room;
} NodesWithin;

struct GgListsAhead
{
	MemoryContext context;		/* of queries and keys */
	uint32		dim;
	bool		noted;			/* the last scan asked a device, ... */
	gg_request	request;		/* ... for this, ... */
	gg_filter  *filter;			/* ... by this, if not NULL, ... */
	GgResidentRef ref;			/* ... of this resident */
	bool		differs;		/* filters are others for other outer rows */
	uint32		count;			/* queries */
	uint32		room;			/* for so many of them */
	float	   *queries;
	uint64	   *keys;			/* as GgServiceAsk() has them; NULL: not asked for */
	uint64		matches[GG_SERVE_MAX_LISTS];	/* of each list, with a filter */
	uint32		next;			/* the query that is likely to come */

	/* all rows within a distance */
	NodesWithin *within;		/* `count` for each segment; NULL: none was measured */
	uint32		measured;		/* bitmap of segments */
	uint64		nkeys;			/* in all */
	float		farthest;
	uint64		generation;		/* of the directory */
};

GgListsAhead *
GgNewListsAhead(void)
{
	GgListsAhead *ahead = palloc0(sizeof(GgListsAhead));

	ahead->context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph lists ahead",
										   ALLOCSET_DEFAULT_SIZES);
	return ahead;
}

void
GgForgetAhead(GgListsAhead *ahead)
{
	MemoryContextReset(ahead->context);
	ahead->count = ahead->room = ahead->next = 0;
	ahead->queries = NULL;
	ahead->keys = NULL;
	ahead->within = NULL;
	ahead->measured = 0;
	ahead->nkeys = 0;
}

/* Is it a scan for all rows within a distance, of which a pass may measure for others, too? */
static bool
PassesForMany(const GgScanOpaque *so)
{
	return so->range && !so->look && (so->marks & GG_KEY_FEW) == 0 && so->filter == NULL;
}

uint32
GgRoomAhead(const GgScanOpaque *so, Size *bytes)
{
	GgListsAhead *ahead = so->ahead;
	const gg_request *request = &ahead->request;
	const uint32 nlists = gg_request_lists(request);
	uint32		room;

	if (so->prepared && PassesForMany(so))
	{
		ahead->dim = so->meta->dimensions;
		*bytes = ahead->dim * sizeof(float);
		return MOST_OF_PASS;
	}
	if (!ahead->noted)
		return 0;
	ahead->dim = request->dim;
	*bytes = request->dim * sizeof(float) + (Size) nlists * request->params.k * sizeof(uint64);
	room = GgServiceBulkRoom(&ahead->ref, request->dim, request->params.k, nlists);
	return ahead->filter != NULL ? Min(room, MOST_FILTERED) : room;
}

/* A query of another dimension is left to its scan, which says so. */
void
GgAddAhead(GgListsAhead *ahead, Relation index, Datum value)
{
	const GgOpclass *opclass = GgIndexOpclass(index);
	const uint32 dim = ahead->dim;
	const Datum detoasted = PointerGetDatum(PG_DETOAST_DATUM(value));
	float	   *query;

	if (GgValueDimensions(opclass, detoasted) != dim)
		return;
	if (ahead->count == ahead->room)
	{
		ahead->room = Max(16, ahead->room * 2);
		ahead->queries = GgEnlarge(ahead->context, ahead->queries,
								   (Size) ahead->room * dim * sizeof(float));
	}
	query = GgQueryFromValue(opclass, detoasted, dim);
	memcpy(ahead->queries + (Size) ahead->count++ * dim, query, dim * sizeof(float));
	pfree(query);
}

bool
GgAskAhead(GgListsAhead *ahead)
{
	GgAsk		ask = {
		.request = ahead->request, .queries = ahead->queries, .filter = ahead->filter
	};
	const Size	nkeys = (Size) gg_request_lists(&ask.request) * ask.request.params.k *
		ahead->count;
	GgReason	reason;

	if (ahead->count < 2)
		return false;
	/* passes are made when a scan wants one */
	if (!ahead->noted)
		return true;
	ask.request.count = ahead->count;
	ahead->keys = MemoryContextAllocHuge(ahead->context, nkeys * sizeof(uint64));
	GgForgetAnswers(&ahead->ref);
	if (GgServiceAsk(&ahead->ref, &ask, ahead->keys, ahead->matches, &reason))
		return true;
	GgForgetAhead(ahead);
	return false;
}

/* Are lists of the request those of walks, or as short, and is there an answer for many queries? */
static bool
MayBeOfMany(const GgScanOpaque *so, const GgAsk *ask)
{
	const gg_request *request = &ask->request;
	const GgResidentRef *ref = &so->device.ref;

	if (ask->filter != NULL && (ask->filter->tids != NULL || so->ahead->differs ||
								request->params.k > GG_SHORT_DEEP))
		return false;
	return !gg_request_wants_deep(request) && ref->nothers == 0 &&
		(so->by_table || (request->lists & ~request->measured & ref->forms.rowless) == 0);
}

/* Note what the scan asks for, for the next queries. */
static void
Note(GgScanOpaque *so, const GgAsk *ask)
{
	GgListsAhead *ahead = so->ahead;

	GgForgetAhead(ahead);
	ahead->noted = MayBeOfMany(so, ask);
	ahead->request = ask->request;
	ahead->ref = so->device.ref;
	if (!ahead->noted || ask->filter == NULL)
	{
		ahead->filter = NULL;
		return;
	}
	if (ahead->filter == NULL)
		ahead->filter = MemoryContextAlloc(GetMemoryChunkContext(ahead), sizeof(gg_filter));
	memcpy(ahead->filter, ask->filter, sizeof(gg_filter));
}

/* The place of the scan's query, from the likely one on; as many as there are where it is new. */
static uint32
PlaceOf(const GgListsAhead *ahead, const float *query)
{
	const Size	bytes = ahead->dim * sizeof(float);
	uint32		i = ahead->next;

	while (i < ahead->count &&
		   memcmp(ahead->queries + (Size) i * ahead->dim, query, bytes) != 0)
		i++;
	return i;
}

bool
GgTakeAhead(GgScanOpaque *so, const GgAsk *ask, uint64 *keys, uint64 *matches)
{
	GgListsAhead *ahead = so->ahead;
	const GgResidentRef *ref = &so->device.ref;
	const uint32 k = ask->request.params.k;
	const bool	same = gg_serve_is_same(ahead->filter, ask->filter);
	uint32		place;

	/* what was asked for was for nothing */
	ahead->differs |= !same && ahead->keys != NULL && ahead->filter != NULL && ask->filter != NULL;
	if (!ahead->noted || !same || ahead->ref.device != ref->device ||
		ahead->ref.entry != ref->entry || ahead->ref.serial != ref->serial ||
		ahead->ref.delta_pages != ref->delta_pages ||
		memcmp(&ahead->request, &ask->request, sizeof(gg_request)) != 0)
		Note(so, ask);
	if (ahead->keys == NULL)
		return false;
	place = PlaceOf(ahead, so->query);
	if (place == ahead->count)
		return false;
	for (uint32 list = 0; list < gg_request_lists(&ask->request); list++)
		memcpy(keys + (Size) list * k, ahead->keys + ((Size) list * ahead->count + place) * k,
			   k * sizeof(uint64));
	memcpy(matches, ahead->matches, gg_request_lists(&ask->request) * sizeof(uint64));
	ahead->next = place;
	return true;
}

/* ---- all rows within a distance --------------------------------------------- */

static void
AddKey(GgListsAhead *ahead, NodesWithin *list, uint64 key)
{
	if (list->count == list->room)
	{
		list->room = Max(16, list->room * 2);
		list->keys = GgEnlarge(ahead->context, list->keys, list->room * sizeof(uint64));
	}
	list->keys[list->count++] = key;
	ahead->nkeys++;
}

/* Is there room for more keys? */
static bool
HasRoom(const GgListsAhead *ahead)
{
	return ahead->nkeys * sizeof(uint64) < (uint64) work_mem * 1024;
}

/* Measure the segment's nodes for all queries.  Where room ends, so does the pass. */
static void
MeasureForAll(GgListsAhead *ahead, GgPageSource *source, uint32 nodes, NodesWithin *lists)
{
	const float *own = source->query;

	for (uint32 first = 0; first < nodes && HasRoom(ahead); first += SWEEP_CHUNK)
	{
		const uint32 count = Min(SWEEP_CHUNK, nodes - first);
		float		distances[SWEEP_CHUNK];

		CHECK_FOR_INTERRUPTS();
		for (uint32 q = 0; q < ahead->count; q++)
		{
			source->query = ahead->queries + (Size) q * ahead->dim;
			GgSourceSweep(source, first, count, distances);
			for (uint32 i = 0; i < count; i++)
				if (!(distances[i] > ahead->farthest))
					AddKey(ahead, &lists[q], key_of(distances[i], first + i));
		}
	}
	source->query = own;
}

bool
GgFindWithin(GgScanOpaque *so, GgStream *stream, const uint64 **keys, uint32 *count)
{
	GgListsAhead *ahead = so->ahead;
	NodesWithin *lists;
	uint32		segment,
				place;

	if (ahead == NULL || ahead->count < 2 || !PassesForMany(so) || stream->segment == NULL ||
		stream->returned != NULL || so->query == NULL || ahead->dim != so->meta->dimensions)
		return false;
	place = PlaceOf(ahead, so->query);
	if (place == ahead->count)
		return false;
	segment = stream->segment - so->meta->segments;
	if (ahead->within == NULL)
	{
		ahead->farthest = so->farthest;
		ahead->generation = so->meta->generation;
		ahead->within = MemoryContextAllocZero(ahead->context, so->meta->nsegments *
											   ahead->count * sizeof(NodesWithin));
	}
	if (ahead->generation != so->meta->generation || so->farthest > ahead->farthest)
		return false;
	lists = ahead->within + (Size) segment * ahead->count;
	if ((ahead->measured >> segment & 1) == 0 && HasRoom(ahead))
	{
		GgNeedSource(so, stream);
		if (!stream->source.coded)
			MeasureForAll(ahead, &stream->source, stream->nodes, lists);
		if (!stream->source.coded && HasRoom(ahead))
			ahead->measured |= (uint32) 1 << segment;
	}
	if ((ahead->measured >> segment & 1) == 0)
		return false;
	ahead->next = place;
	*keys = lists[place].keys;
	*count = lists[place].count;
	return true;
}
