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
 * Short lists of a filter are asked for likewise.  Conditions may be others for each outer row, so
 * queries come with their filters, and there is a request for the queries of each filter.  Where
 * hardly two rows have the same one, no such list is noted any more.  Nothing is noted of longer
 * lists of a filter, nor of those of all rows, nor of a filter of TIDs.
 *
 * A join by a.v <-> b.v < r begins a scan for all rows within a distance (range_path.c) anew for
 * each outer row, and each measures every row.  Most of that is to bring rows into the processor,
 * so the first one measures a segment for all queries that are known.  It takes its own distance
 * for theirs.  One that is to go farther, or has another directory, measures for itself.
 */
#include "scan/scan.h"
#include "scan/sort_key.h"
#include "storage/filter_keys.h"

#include "miscadmin.h"

#include "engine/keys.h"
#include "engine/request.h"
#include "engine/rules/serve_check.h"

/* Nodes measured for one query after the other: their rows stay in the processor's cache. */
#define SWEEP_CHUNK			64

/* Queries of a filter's group: a device takes GG_SERVE_MAX_DEEPS at a time, and is others', too. */
#define MOST_FILTERED		256

/* Groups: a filter takes 9 kB. */
#define MOST_GROUPS			64

/* Queries for which a pass measures: of more, the rows are the lesser part. */
#define MOST_OF_PASS		64

/* Queries that one request is for. */
typedef struct AheadGroup
{
	gg_filter  *filter;			/* NULL: none */
	uint32		count;			/* queries */
	uint64	   *keys;			/* as GgServiceAsk() has them; NULL: not asked for */
	uint64		matches[GG_SERVE_MAX_LISTS];	/* of each list, with a filter */
} AheadGroup;

/* A query's place in its group. */
typedef struct PlaceInGroup
{
	uint32		group;
	uint32		place;
} PlaceInGroup;

/* Nodes of a segment within the distance of a query: their keys, in no order. */
typedef struct NodesWithin
{
	uint64	   *keys;
	uint32		count;
	uint32		room;
} NodesWithin;

struct GgListsAhead
{
	MemoryContext context;		/* of queries, groups and keys */
	uint32		dim;
	bool		noted;			/* the last scan asked a device, ... */
	gg_request	request;		/* ... for this, ... */
	bool		filtered;		/* ... by some filter, ... */
	GgResidentRef ref;			/* ... of this resident */
	bool		differs;		/* hardly two outer rows have the same filter */
	uint32		count;			/* queries */
	uint32		room;			/* for so many of them */
	float	   *queries;
	PlaceInGroup *places;		/* of each */
	AheadGroup *groups;			/* MOST_GROUPS */
	uint32		ngroups;
	uint32		last_groups;	/* of the queries asked for last */
	uint32		missed;			/* scans that asked for something else */
	uint32		next;			/* the query that is likely to come */
	GgFilterColumns columns;	/* of the index, where `filtered` */
	gg_filter	filter;			/* of the query that is added */

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
	ahead->count = ahead->room = ahead->next = ahead->ngroups = ahead->missed = 0;
	ahead->queries = NULL;
	ahead->places = NULL;
	ahead->groups = NULL;
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
GgRoomAhead(const GgScanOpaque *so, bool knows_keys, Size *bytes)
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
	if (!ahead->noted || (ahead->filtered && !knows_keys))
		return 0;
	ahead->dim = request->dim;
	*bytes = request->dim * sizeof(float) + (Size) nlists * request->params.k * sizeof(uint64);
	room = GgServiceBulkRoom(&ahead->ref, request->dim, request->params.k, nlists);
	return ahead->filtered ? Min(room, MOST_FILTERED * Max(ahead->last_groups, 1)) : room;
}

/* The group of another query with this filter; MOST_GROUPS: there is no room for it. */
static uint32
GroupOf(GgListsAhead *ahead, const gg_filter *filter)
{
	uint32		i = 0;
	AheadGroup *group;

	if (ahead->groups == NULL)
		ahead->groups = MemoryContextAllocZero(ahead->context, MOST_GROUPS * sizeof(AheadGroup));
	while (i < ahead->ngroups && !(gg_serve_is_same(ahead->groups[i].filter, filter) &&
								   (filter == NULL || ahead->groups[i].count < MOST_FILTERED)))
		i++;
	if (i < ahead->ngroups || i == MOST_GROUPS)
		return i;
	group = &ahead->groups[ahead->ngroups++];
	if (filter != NULL)
	{
		group->filter = MemoryContextAlloc(ahead->context, sizeof(gg_filter));
		memcpy(group->filter, filter, sizeof(gg_filter));
	}
	return i;
}

/* The group of a query under these conditions; MOST_GROUPS: none. */
static uint32
GroupByKeys(GgListsAhead *ahead, const GgKeysAhead *keys)
{
	bool		recheck;

	if (!ahead->filtered)
		return GroupOf(ahead, NULL);
	if (!keys->change && ahead->ngroups > 0)
		return GroupOf(ahead, ahead->groups[0].filter);
	if (!GgFilterFromKeys(&ahead->columns, keys->keys, keys->nkeys, &ahead->filter, &recheck))
		return MOST_GROUPS;		/* no row meets them, and the scan does not ask */
	return GroupOf(ahead, ahead->filter.nconditions > 0 ? &ahead->filter : NULL);
}

/* A query of another dimension is left to its scan, which says so. */
void
GgAddAhead(GgListsAhead *ahead, Relation index, Datum value, const GgKeysAhead *keys)
{
	const GgOpclass *opclass = GgIndexOpclass(index);
	const uint32 dim = ahead->dim;
	const Datum detoasted = PointerGetDatum(PG_DETOAST_DATUM(value));
	float	   *query;
	uint32		group;

	if (GgValueDimensions(opclass, detoasted) != dim)
		return;
	group = GroupByKeys(ahead, keys);
	if (group == MOST_GROUPS)
		return;
	if (ahead->count == ahead->room)
	{
		ahead->room = Max(16, ahead->room * 2);
		ahead->queries = GgEnlarge(ahead->context, ahead->queries,
								   (Size) ahead->room * dim * sizeof(float));
		ahead->places = GgEnlarge(ahead->context, ahead->places,
								  ahead->room * sizeof(PlaceInGroup));
	}
	ahead->places[ahead->count] = (PlaceInGroup) {group, ahead->groups[group].count++};
	query = GgQueryFromValue(opclass, detoasted, dim);
	memcpy(ahead->queries + (Size) ahead->count++ * dim, query, dim * sizeof(float));
	pfree(query);
}

/* The queries of a group, one behind the other. */
static const float *
QueriesOf(const GgListsAhead *ahead, uint32 group)
{
	const uint32 count = ahead->groups[group].count;
	float	   *queries;

	if (count == ahead->count)
		return ahead->queries;
	queries = MemoryContextAllocHuge(ahead->context, (Size) count * ahead->dim * sizeof(float));
	for (uint32 i = 0; i < ahead->count; i++)
		if (ahead->places[i].group == group)
			memcpy(queries + (Size) ahead->places[i].place * ahead->dim,
				   ahead->queries + (Size) i * ahead->dim, ahead->dim * sizeof(float));
	return queries;
}

uint32
GgAskAhead(GgListsAhead *ahead)
{
	GgAsk		ask = {.request = ahead->request};
	const Size	query_keys = (Size) gg_request_lists(&ask.request) * ask.request.params.k;
	GgReason	reason;

	if (ahead->count < 2)
		return 0;
	/* passes are made when a scan wants one */
	if (!ahead->noted)
		return ahead->count;
	ahead->last_groups = ahead->ngroups;
	if (ahead->ngroups == MOST_GROUPS && ahead->count < 2 * MOST_GROUPS)
	{
		ahead->differs = true;
		ahead->noted = false;
		GgForgetAhead(ahead);
		return 0;
	}
	for (uint32 i = 0; i < ahead->ngroups; i++)
	{
		AheadGroup *group = &ahead->groups[i];

		ask.filter = group->filter;
		ask.queries = QueriesOf(ahead, i);
		ask.request.count = group->count;
		group->keys = MemoryContextAllocHuge(ahead->context,
											 query_keys * group->count * sizeof(uint64));
		GgForgetAnswers(&ahead->ref);
		if (!GgServiceAsk(&ahead->ref, &ask, group->keys, group->matches, &reason))
		{
			GgForgetAhead(ahead);
			return 0;
		}
	}
	return ahead->count;
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
	ahead->filtered = ahead->noted && ask->filter != NULL;
	if (ahead->filtered)
		GgGetFilterColumns(so->index, &ahead->columns);
}

/*
 * The place of a scan's query under its filter, from the likely one on; as many as there are where
 * it is new.
 */
static uint32
PlaceOf(const GgListsAhead *ahead, const float *query, const gg_filter *filter)
{
	const Size	bytes = ahead->dim * sizeof(float);
	uint32		i = ahead->next;

	while (i < ahead->count &&
		   (memcmp(ahead->queries + (Size) i * ahead->dim, query, bytes) != 0 ||
			!gg_serve_is_same(ahead->groups[ahead->places[i].group].filter, filter)))
		i++;
	return i;
}

/* Does a scan ask for what is noted? */
static bool
IsNoted(const GgListsAhead *ahead, const GgAsk *ask)
{
	return ahead->noted && ahead->filtered == (ask->filter != NULL) &&
		memcmp(&ahead->request, &ask->request, sizeof(gg_request)) == 0;
}

/* ... of the same version? */
static bool
IsOfNoted(const GgListsAhead *ahead, const GgResidentRef *ref)
{
	return ahead->ref.device == ref->device && ahead->ref.entry == ref->entry &&
		ahead->ref.serial == ref->serial && ahead->ref.delta_pages == ref->delta_pages;
}

bool
GgTakeAhead(GgScanOpaque *so, const GgAsk *ask, uint64 *keys, uint64 *matches)
{
	GgListsAhead *ahead = so->ahead;
	const uint32 k = ask->request.params.k;
	const AheadGroup *group;
	uint32		place;

	/* another filter may ask for other lists, and those of the others are good */
	if (!IsOfNoted(ahead, &so->device.ref) ||
		(!IsNoted(ahead, ask) && ++ahead->missed * 2 > ahead->count))
		Note(so, ask);
	if (!IsNoted(ahead, ask) || ahead->count < 2)
		return false;
	place = PlaceOf(ahead, so->query, ask->filter);
	if (place == ahead->count)
		return false;
	group = &ahead->groups[ahead->places[place].group];
	ahead->next = place;
	place = ahead->places[place].place;
	for (uint32 list = 0; list < gg_request_lists(&ask->request); list++)
		memcpy(keys + (Size) list * k, group->keys + ((Size) list * group->count + place) * k,
			   k * sizeof(uint64));
	memcpy(matches, group->matches, gg_request_lists(&ask->request) * sizeof(uint64));
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
	place = PlaceOf(ahead, so->query, NULL);
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
