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
 * Short lists of a filter are asked for, too.  Conditions may be others for each outer row, so
 * queries come with their filters, and there is a request for the queries of each filter.  So there
 * are as many queries as memory has room for, each filter's in one group or several.  Where hardly
 * two rows have the same filter, no such list is noted any more.  Nothing is noted of longer lists
 * of a filter, nor of those of all rows, nor of a filter of TIDs.
 *
 * A join by a.v <-> b.v < r begins a scan for all rows within a distance (range_path.c) anew for
 * each outer row, and each measures every row.  Most of that is to bring rows into the processor,
 * so the first one measures a segment for all queries that are known.  It takes its own distance
 * for theirs.  One that is to go farther, or has another directory, measures for itself.  A device
 * is asked for many such lists as for others, up to the last key of the first one.
 */
#include "scan/scan.h"
#include "scan/sort_key.h"
#include "storage/filter_keys.h"

#include "common/hashfn.h"
#include "miscadmin.h"

#include "engine/keys.h"
#include "engine/request.h"
#include "engine/rules/serve_check.h"

/* Nodes measured for one query after the other: their rows stay in the processor's cache. */
#define SWEEP_CHUNK			64

/* Queries of a filter's group: a device takes GG_SERVE_MAX_DEEPS at a time, and is others', too. */
#define MOST_FILTERED		256

/*
 * A batch is read for so many full groups at most.  Reading ahead ends after MOST_ALONE groups in
 * batches whose groups had hardly two queries.  That is more than the groups of one batch: batches
 * grow, and the first ones have hardly two rows of each of a thousand filters that take turns.
 */
#define MOST_GROUPS			1024
#define MOST_ALONE			(4 * MOST_GROUPS)

/* Queries that a pass measures for: with more, bringing rows in is the lesser part of it. */
#define MOST_OF_PASS		64

/* Queries that one request is for. */
typedef struct AheadGroup
{
	const gg_filter *filter;	/* NULL: none */
	float	   *queries;
	uint32		count;
	uint32		room;			/* for so many queries */
	uint64	   *keys;			/* as GgServiceAsk() has them; NULL: not answered */
	uint64		matches[GG_SERVE_MAX_LISTS];	/* of each list, with a filter */
} AheadGroup;

/* The last group of a filter. */
typedef struct LastGroup
{
	const gg_filter *filter;	/* the bytes in use */
	uint32		group;
	char		status;			/* known to simplehash.h alone */
} LastGroup;

static uint32
HashFilter(const gg_filter *filter)
{
	return hash_combine(hash_bytes((const unsigned char *) filter->conditions,
								   filter->nconditions * sizeof(gg_condition)),
						hash_bytes((const unsigned char *) filter->values,
								   filter->nvalues * sizeof(int64)));
}

#define SH_PREFIX			last
#define SH_ELEMENT_TYPE		LastGroup
#define SH_KEY_TYPE			const gg_filter *
#define SH_KEY				filter
#define SH_HASH_KEY(table, filter)	HashFilter(filter)
#define SH_EQUAL(table, a, b)	gg_serve_is_same(a, b)
#define SH_SCOPE			static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

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
	bool		noted;			/* the last scan asked for what many queries can share */
	gg_request	request;		/* what it asked for */
	bool		filtered;		/* it asked by some filter */
	GgResidentRef ref;			/* the resident that it asked */
	uint32		alone;			/* groups since the last batch of several queries a group */
	bool		differs;		/* hardly two outer rows have the same filter */
	uint32		count;			/* queries */
	uint32		room;			/* for so many of them */
	PlaceInGroup *places;		/* of each */
	Size		query_bytes;	/* that each takes */
	AheadGroup *groups;
	uint32		ngroups;
	uint32		group_room;		/* for so many groups */
	uint32		most;			/* queries of a filter's group */
	last_hash  *last;			/* groups by filter; NULL: none */
	uint32		last_groups;	/* groups of the queries that were asked for last */
	uint32		missed;			/* scans that asked for something else */
	uint32		next;			/* the query that is likely to come */
	GgFilterColumns columns;	/* of the index, where `filtered` */
	gg_filter	filter;			/* of the query that is added */

	/* all rows within a distance */
	NodesWithin *within;		/* `count` for each segment; NULL: none was measured */
	uint32		measured;		/* bitmap of segments */
	uint64		nkeys;			/* in all */
	bool		full;			/* a pass ended for want of room: its keys are not all */
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
	ahead->count = ahead->room = ahead->next = ahead->missed = 0;
	ahead->ngroups = ahead->group_room = 0;
	ahead->places = NULL;
	ahead->groups = NULL;
	ahead->last = NULL;
	ahead->within = NULL;
	ahead->measured = 0;
	ahead->nkeys = 0;
	ahead->full = false;
}

/* Is it a scan for all rows within a distance, of which a pass may measure for others, too? */
static bool
PassesForMany(const GgScanOpaque *so)
{
	return so->range && !so->look && (so->marks & GG_KEY_FEW) == 0 && so->filter == NULL &&
		so->device.lists == 0;
}

uint32
GgRoomAhead(const GgScanOpaque *so, bool knows_keys)
{
	GgListsAhead *ahead = so->ahead;
	const gg_request *request = &ahead->request;
	const uint32 nlists = gg_request_lists(request);
	uint32		room;

	if (so->prepared && PassesForMany(so))
	{
		ahead->dim = so->meta->dimensions;
		ahead->query_bytes = ahead->dim * sizeof(float);
		return MOST_OF_PASS;
	}
	if (!ahead->noted || (ahead->filtered && !knows_keys))
		return 0;
	ahead->dim = request->dim;
	ahead->query_bytes = request->dim * sizeof(float) +
		(Size) nlists * request->params.k * sizeof(uint64);
	room = GgServiceBulkRoom(&ahead->ref, request->dim, request->params.k, nlists);
	if (!ahead->filtered)
		return room;
	ahead->most = Min(room, MOST_FILTERED);
	return ahead->most * Min(Max(ahead->last_groups, 1), MOST_GROUPS);
}

/* Add a group of this filter, of which the bytes in use are copied, or of none. */
static void
AddGroup(GgListsAhead *ahead, const gg_filter *filter)
{
	gg_filter  *copy = NULL;

	if (filter != NULL)
		copy = memcpy(MemoryContextAlloc(ahead->context, gg_filter_bytes(filter)), filter,
					  gg_filter_bytes(filter));
	GgNeedRoom(ahead->context, ahead->groups, ahead->ngroups, ahead->group_room);
	ahead->groups[ahead->ngroups++] = (AheadGroup) {.filter = copy};
}

/* The group of another query with this filter. */
static uint32
GroupOf(GgListsAhead *ahead, const gg_filter *filter)
{
	LastGroup  *last;
	bool		found;

	if (ahead->last == NULL)
		ahead->last = last_create(ahead->context, 64, NULL);
	last = last_insert(ahead->last, filter, &found);
	if (!found || ahead->groups[last->group].count == ahead->most)
	{
		AddGroup(ahead, filter);
		last->group = ahead->ngroups - 1;
		last->filter = ahead->groups[last->group].filter;
	}
	return last->group;
}

/* The group of a query under these conditions.  False: the scan does not ask for what is noted. */
static bool
GroupByKeys(GgListsAhead *ahead, const GgKeysAhead *keys, uint32 *group)
{
	const gg_filter *filter = &ahead->filter;
	bool		recheck;

	*group = 0;
	if (!ahead->filtered)
	{
		if (ahead->ngroups == 0)
			AddGroup(ahead, NULL);
		return true;
	}
	if (!keys->change && ahead->ngroups > 0)
		filter = ahead->groups[0].filter;
	else if (!GgFilterFromKeys(&ahead->columns, keys->keys, keys->nkeys, &ahead->filter,
							   &recheck) || filter->nconditions == 0)
		return false;
	*group = GroupOf(ahead, filter);
	return true;
}

/* Add a query to its group. */
static void
AddQuery(GgListsAhead *ahead, uint32 number, const float *query)
{
	const uint32 dim = ahead->dim;
	AheadGroup *group = &ahead->groups[number];

	if (group->count == group->room)
	{
		group->room = Max(4, group->room * 2);
		group->queries = GgEnlarge(ahead->context, group->queries,
								   (Size) group->room * dim * sizeof(float));
	}
	GgNeedRoom(ahead->context, ahead->places, ahead->count, ahead->room);
	ahead->places[ahead->count++] = (PlaceInGroup) {number, group->count};
	memcpy(group->queries + (Size) group->count++ * dim, query, dim * sizeof(float));
}

/* A query of another dimension is left to its scan, which says so. */
Size
GgAddAhead(GgListsAhead *ahead, Relation index, Datum value, const GgKeysAhead *keys)
{
	const GgOpclass *opclass = GgIndexOpclass(index);
	const uint32 before = ahead->ngroups;
	const Datum detoasted = PointerGetDatum(PG_DETOAST_DATUM(value));
	float	   *query;
	uint32		group;

	if (GgValueDimensions(opclass, detoasted) != ahead->dim ||
		!GroupByKeys(ahead, keys, &group))
		return 0;
	query = GgQueryFromValue(opclass, detoasted, ahead->dim);
	AddQuery(ahead, group, query);
	pfree(query);
	return ahead->query_bytes + (ahead->ngroups == before || !ahead->filtered ? 0 :
								 sizeof(AheadGroup) + gg_filter_bytes(ahead->groups[group].filter));
}

uint32
GgAskAhead(GgListsAhead *ahead)
{
	GgAsk		ask = {.request = ahead->request};
	const Size	query_keys = (Size) gg_request_lists(&ask.request) * ask.request.params.k;
	uint32		answered = 0;
	GgReason	reason;

	if (ahead->count < 2)
		return 0;
	/* passes are made when a scan wants one */
	if (!ahead->noted)
		return ahead->count;
	ahead->last_groups = ahead->ngroups;
	ahead->alone = ahead->count < 2 * ahead->ngroups ? ahead->alone + ahead->ngroups : 0;
	if (ahead->alone > MOST_ALONE)
	{
		ahead->differs = true;
		ahead->noted = false;
		GgForgetAhead(ahead);
		return 0;
	}
	/* where a group has no answer, others would hardly have one: from there on, scans ask */
	for (uint32 i = 0; i < ahead->ngroups; i++)
	{
		AheadGroup *group = &ahead->groups[i];
		uint64	   *keys = MemoryContextAllocHuge(ahead->context,
												  query_keys * group->count * sizeof(uint64));

		CHECK_FOR_INTERRUPTS();
		ask.filter = group->filter;
		ask.queries = group->queries;
		ask.request.count = group->count;
		GgForgetAnswers(&ahead->ref);
		if (!GgServiceAsk(&ahead->ref, &ask, keys, group->matches, &reason))
			break;
		group->keys = keys;
		answered += group->count;
	}
	return answered;
}

/*
 * May many queries share the request?  Its lists are to be those of walks, or as short, or of all
 * rows within a distance, and one device is to answer with nothing left to measure here.
 */
static bool
MayBeOfMany(const GgScanOpaque *so, const GgAsk *ask)
{
	const gg_request *request = &ask->request;
	const GgResidentRef *ref = &so->device.ref;

	if (ask->filter != NULL && (ask->filter->tids != NULL || so->ahead->differs ||
								request->params.k > GG_SHORT_DEEP))
		return false;
	if (gg_request_wants_deep(request) &&
		(ask->filter != NULL || request->after != 0 || request->last == 0))
		return false;
	return ref->nothers == 0 &&
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
 * Which of the queries is the scan's, with its filter?  Sought from the likely one on;
 * ahead->count: it is not among them.
 */
static uint32
PlaceOf(const GgListsAhead *ahead, const float *query, const gg_filter *filter)
{
	uint32		i = ahead->next;

	for (; i < ahead->count; i++)
	{
		const AheadGroup *group = &ahead->groups[ahead->places[i].group];

		if (memcmp(group->queries + (Size) ahead->places[i].place * ahead->dim, query,
				   ahead->dim * sizeof(float)) == 0 && gg_serve_is_same(group->filter, filter))
			break;
	}
	return i;
}

/* Does a scan ask for what is noted?  Lists up to a later key have all that it asks for, too. */
static bool
IsNoted(const GgListsAhead *ahead, const GgAsk *ask)
{
	gg_request	request = ask->request;

	if (request.last != 0)
		request.last = Max(request.last, ahead->request.last);
	return ahead->noted && ahead->filtered == (ask->filter != NULL) &&
		gg_same_request(&ahead->request, &request);
}

/* Does it ask the resident that is noted, in the same version? */
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

	/* another filter may ask for other lists: what is noted stays until more than half miss it */
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
	if (group->keys == NULL)
		return false;
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
			source->query = ahead->groups[0].queries + (Size) q * ahead->dim;
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
	if ((ahead->measured >> segment & 1) == 0 && !ahead->full)
	{
		GgNeedSource(so, stream);
		if (!stream->source.coded)
		{
			MeasureForAll(ahead, &stream->source, stream->nodes, lists);
			ahead->full = !HasRoom(ahead);
			ahead->measured |= (uint32) !ahead->full << segment;
		}
	}
	if ((ahead->measured >> segment & 1) == 0)
		return false;
	ahead->next = place;
	*keys = lists[place].keys;
	*count = lists[place].count;
	return true;
}
