/*
 * lists_ahead.c
 *		The first lists of a scan's next queries, by one request to a device.
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
 * Nothing is noted of a scan whose lists are of a kind that a request has for one query alone:
 * those of a filter, and long ones of all rows.
 */
#include "scan/scan.h"

#include "engine/request.h"

struct GgListsAhead
{
	MemoryContext context;		/* of queries and keys */
	bool		noted;			/* the last scan asked a device, ... */
	gg_request	request;		/* ... for this, ... */
	GgResidentRef ref;			/* ... of this resident */
	uint32		count;			/* queries */
	uint32		room;			/* for so many of them */
	uint32		dim;
	float	   *queries;
	uint64	   *keys;			/* as GgServiceAsk() has them; NULL: not asked for */
	uint32		next;			/* the query that is likely to come */
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
}

uint32
GgRoomAhead(const GgListsAhead *ahead, Size *bytes)
{
	const gg_request *request = &ahead->request;
	const uint32 nlists = gg_request_lists(request);

	if (!ahead->noted)
		return 0;
	*bytes = request->dim * sizeof(float) + (Size) nlists * request->params.k * sizeof(uint64);
	return GgServiceBulkRoom(&ahead->ref, request->dim, request->params.k, nlists);
}

/* A query of another dimension is left to its scan, which says so. */
void
GgAddAhead(GgListsAhead *ahead, Relation index, Datum value)
{
	const GgOpclass *opclass = GgIndexOpclass(index);
	const uint32 dim = ahead->request.dim;
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
	GgAsk		ask = {.request = ahead->request, .queries = ahead->queries};
	const Size	nkeys = (Size) gg_request_lists(&ask.request) * ask.request.params.k *
		ahead->count;
	GgReason	reason;

	ask.request.count = ahead->count;
	ahead->keys = MemoryContextAllocHuge(ahead->context, nkeys * sizeof(uint64));
	GgForgetAnswers(&ahead->ref);
	if (GgServiceAsk(&ahead->ref, &ask, ahead->keys, NULL, &reason))
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

	return ask->filter == NULL && !gg_request_wants_deep(request) && ref->nothers == 0 &&
		(so->by_table || (request->lists & ~request->measured & ref->rowless) == 0);
}

/* The place of the scan's query, from the likely one on; as many as there are where it is new. */
static uint32
PlaceOf(const GgListsAhead *ahead, const float *query)
{
	const Size	bytes = ahead->request.dim * sizeof(float);
	uint32		i = ahead->next;

	while (i < ahead->count &&
		   memcmp(ahead->queries + (Size) i * ahead->request.dim, query, bytes) != 0)
		i++;
	return i;
}

bool
GgTakeAhead(GgScanOpaque *so, const GgAsk *ask, uint64 *keys)
{
	GgListsAhead *ahead = so->ahead;
	const GgResidentRef *ref = &so->device.ref;
	const uint32 k = ask->request.params.k;
	uint32		place;

	if (!ahead->noted || ahead->ref.device != ref->device || ahead->ref.entry != ref->entry ||
		ahead->ref.serial != ref->serial || ahead->ref.delta_pages != ref->delta_pages ||
		memcmp(&ahead->request, &ask->request, sizeof(gg_request)) != 0)
	{
		GgForgetAhead(ahead);
		ahead->noted = MayBeOfMany(so, ask);
		ahead->request = ask->request;
		ahead->ref = *ref;
	}
	if (ahead->keys == NULL)
		return false;
	place = PlaceOf(ahead, so->query);
	if (place == ahead->count)
		return false;
	for (uint32 list = 0; list < gg_request_lists(&ask->request); list++)
		memcpy(keys + (Size) list * k, ahead->keys + ((Size) list * ahead->count + place) * k,
			   k * sizeof(uint64));
	ahead->next = place;
	return true;
}
