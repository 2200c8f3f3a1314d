/*
 * ask.c
 *		A backend asks a device.
 *
 * What fits lies in the slot: one query, and keys of a walk's length.  Many queries, long lists and
 * filters lie in a chunk of the pool of long answers (pool.h).  From taking the chunk to giving it
 * back nothing here can throw but the wait, which then gives up the slot and with it the chunk.
 *
 * A request of a group has room for GroupRoom() lists, of any residents of the device: 2,000 with
 * LIMIT 10, 1,000 where no limit is known.  A member's lists go into one group.  Each device has a
 * group that is being filled.  When one is full, all are posted, and so the devices work at the
 * same time.
 */
#include "service/backend/client.h"

#include "miscadmin.h"
#include "pgstat.h"

/*
 * How long to wait for a chunk: some dozens of answers of a device.  Then the CPU answers, which
 * takes longer.
 */
#define CHUNK_MOST_US		50000
#define CHUNK_SLEEP_US		20

/* Where several devices share many queries, each is asked for so many of them at least. */
#define LEAST_SHARE			64

/*
 * Have the slot name a chunk of its own; false when there is none to be had.  Interruptible, unless
 * another slot of the query has a chunk already.
 */
static bool
TakeChunk(GgSlot *slot, bool first)
{
	uint64		start = GgNowMicros();
	int			chunk;

	while ((chunk = GgPoolTake(gg_service->pool, GgSlotOwner(slot))) < 0)
	{
		if (GgNowMicros() - start > CHUNK_MOST_US)
			return false;
		if (first)
			CHECK_FOR_INTERRUPTS();
		pg_usleep(CHUNK_SLEEP_US);
	}
	slot->chunk = chunk;
	return true;
}

/* ---- room --------------------------------------------------------------------------- */

uint32
GgServiceWalkRoom(uint32 nlists)
{
	return GG_SLOT_KEYS / nlists;
}

uint32
GgServiceDeepRoom(uint32 nlists)
{
	return GG_MAX_DEEP / nlists;
}

uint32
GgServiceBulkRoom(const GgResidentRef *ref, uint32 dim, uint32 k, uint32 nlists)
{
	Size		bytes = dim * sizeof(float) + (Size) nlists * k * sizeof(uint64);
	/* queries are rounded up */
	uint32		room = Min((GG_CHUNK_BODY - 63) / bytes, GG_SERVE_MAX_BULK);

	return room >= LEAST_SHARE ? room * (1 + ref->nreplicas) : room;
}

/* How many targets one group takes at most, for lists of k. */
static uint32
GroupRoom(uint32 k)
{
	/* targets are rounded up */
	return Min((GG_CHUNK_BODY - 63) / (sizeof(GgGroupTarget) + k * sizeof(uint64)),
			   GG_SERVE_MAX_GROUP);
}

static uint32
CountTids(const gg_filter *filter)
{
	return filter != NULL && filter->tids != NULL ? filter->ntids : 0;
}

StaticAssertDecl(GG_SERVE_MAX_LISTS * GG_MAX_ITOPK * sizeof(uint64) < GG_CHUNK_BODY,
				 "there is room for TIDs beside all lists");

/* ---- one request -------------------------------------------------------------------- */

/*
 * Put queries, from the first one on, and filter where the request that is in the slot says.  Only
 * the parts of the filter that are in use are copied: most filters are small.
 */
static void
PutRequest(const GgSlot *slot, const GgAsk *ask, uint32 first)
{
	const gg_request *request = &slot->request;
	const gg_filter *filter = ask->filter;
	char	   *region = gg_service->region;
	gg_filter  *copy;

	memcpy(region + request->queries, ask->queries + (Size) first * request->dim,
		   (Size) request->count * request->dim * sizeof(float));
	if (filter == NULL)
		return;
	copy = (gg_filter *) (region + request->filter);
	copy->nconditions = filter->nconditions;
	copy->nvalues = filter->nvalues;
	memcpy(copy->conditions, filter->conditions, filter->nconditions * sizeof(gg_condition));
	memcpy(copy->values, filter->values, filter->nvalues * sizeof(int64));
	copy->ntids = CountTids(filter);
	if (copy->ntids > 0)
		memcpy(region + request->tids, filter->tids, copy->ntids * sizeof(uint64));
}

/* Fill in which device is asked for which lists; returns how many devices are. */
static int
ShareLists(const GgResidentRef *ref, const gg_request *request, GgShare *shares)
{
	uint32		wanted = request->lists & ~ref->answered;
	GgShare		first = {
		.part = {
			.device = ref->device, .entry = ref->entry, .serial = ref->serial, .lists = wanted
		},
		.delta = request->delta && !ref->delta_answered,
		.count = request->count
	};
	int			n = 1;

	for (uint32 i = 0; i < ref->nothers; i++)
	{
		uint32		lists = wanted & ref->others[i].lists;

		if (lists == 0)
			continue;
		shares[n] = (GgShare) {.part = ref->others[i], .count = request->count};
		shares[n++].part.lists = lists;
		first.part.lists &= ~lists;
	}
	shares[0] = first;
	if (first.part.lists != 0 || first.delta)
		return n;
	/* the first device has none of the lists */
	memmove(shares, shares + 1, (n - 1) * sizeof(*shares));
	return n - 1;
}

/* Let devices with the same contents share a request's queries, each for all lists; count them. */
static int
ShareQueries(const GgResidentRef *ref, GgShare *shares)
{
	GgShare		whole = shares[0];
	int			n = (int) Min(1 + ref->nreplicas, whole.count / LEAST_SHARE);

	if (n <= 1)
		return 1;
	for (int i = 0; i < n; i++)
	{
		shares[i] = whole;
		if (i > 0)
			shares[i].part = ref->replicas[i - 1];
		shares[i].part.lists = whole.part.lists;
		shares[i].first = (uint32) ((uint64) whole.count * i / n);
		shares[i].count = (uint32) ((uint64) whole.count * (i + 1) / n) - shares[i].first;
	}
	return n;
}

/* Fill this process's slot with a device; false: *reason says why not, and no chunk is taken. */
static bool
Prepare(const GgAsk *ask, const gg_request *request, GgShare *share, bool first, GgReason *reason)
{
	gg_request	mine = *request;

	mine.lists = share->part.lists;
	mine.measured &= share->part.lists;
	mine.delta = share->delta;
	mine.count = share->count;
	*reason = GG_REASON_TOO_LARGE;
	if (gg_check_request(__func__, &mine).code != GG_OK ||
		!GgAskBegin(share, &mine, reason))
		return false;
	if (!GgFitsSlot(&mine) && !TakeChunk(share->slot, first))
	{
		*reason = GG_REASON_BUSY;
		return false;
	}
	if (!GgPlaceRequest(share->slot, CountTids(ask->filter), &share->slot->request))
	{
		GgSlotGiveChunkBack(share->slot);
		*reason = GG_REASON_TOO_LARGE;
		return false;
	}
	PutRequest(share->slot, ask, share->first);
	return true;
}

/* Copy a device's answer to where the lists of the whole request lie, and give back its chunk. */
static void
TakeLists(GgResidentRef *ref, const GgShare *share, const gg_request *whole, uint64 *keys,
		  uint64 *matches)
{
	/* nobody writes into a slot, or its chunk, before this process posts its next request */
	gg_request	request = share->slot->request;
	Size		length = (Size) request.count * request.params.k;

	for (uint32 list = 0; list <= request.nsegments; list++)
	{
		uint32		from = gg_request_before(&request, list);
		uint32		to = gg_request_before(whole, list);

		if (!gg_request_asks(&request, list))
			continue;
		memcpy(keys + ((Size) to * whole->count + share->first) * request.params.k,
			   gg_service->region + request.keys + from * length * sizeof(uint64),
			   length * sizeof(uint64));
		if (request.filter != 0)
			matches[to] = ((uint64 *) (gg_service->region + request.matches))[from];
	}
	GgSlotGiveChunkBack(share->slot);
	/* what other devices have of the other queries may be missing */
	if (request.count < whole->count)
		return;
	ref->answered |= request.lists;
	ref->delta_answered |= request.delta;
}

static bool
AskOnce(GgResidentRef *ref, const GgAsk *ask, uint64 *keys, uint64 *matches, GgReason *reason)
{
	gg_request	request = ask->request;
	GgShare		shares[GG_MAX_DEVICES];
	bool		answered;
	int			n;
	int			failed;

	/* not 0: there is one; GgPlaceRequest() sets where it lies */
	request.filter = ask->filter != NULL;
	request.tids = ask->filter != NULL && ask->filter->tids != NULL;
	request.matches = gg_request_wants_deep(&request);
	*reason = GG_REASON_TOO_LARGE;
	ref->failed = ref->device;
	if (ask->filter != NULL && (ask->filter->nconditions > GG_MAX_CONDITIONS ||
								ask->filter->nvalues > GG_MAX_FILTER_VALUES))
		return false;
	n = ShareLists(ref, &request, shares);
	if (n == 1 && ref->nreplicas > 0)
		n = ShareQueries(ref, shares);
	/* one device suffers the fault, the process id says which: the others are to answer */
	for (int i = 0; i < n; i++)
		shares[i].fault = ref->avoid == 0 && i == MyProcPid % n ? (GgFault) gg_fault :
			GG_FAULT_NONE;
	for (int i = 0; i < n; i++)
		if (!Prepare(ask, &request, &shares[i], i == 0, reason))
		{
			ref->failed = shares[i].part.device;
			while (--i >= 0)
				GgSlotGiveChunkBack(shares[i].slot);
			return false;
		}
	answered = GgAskAndWait(shares, n, &ask->meanwhile, reason, &failed);
	if (!answered)
		ref->failed = shares[failed].part.device;
	for (int i = 0; i < n; i++)
		if (shares[i].answered)
			TakeLists(ref, &shares[i], &request, keys, matches);
	return answered;
}

/* ---- a filter of many TIDs ---------------------------------------------------------- */

/* The k smallest of two ascending lists of k keys, in `keys`; equal keys are of one node. */
static void
MergeKeys(uint64 *keys, const uint64 *others, uint32 k, uint64 *merged)
{
	uint32		i = 0;
	uint32		j = 0;

	for (uint32 n = 0; n < k; n++)
	{
		uint64		key = Min(keys[i], others[j]);

		merged[n] = key;
		i += keys[i] == key;
		j += others[j] == key;
	}
	memcpy(keys, merged, k * sizeof(uint64));
}

/*
 * For more TIDs than one request takes: ask for one part of them after the other.  What is nearest
 * among all of them is among the nearest of its part.  A device gives a node the same key each
 * time, so a node with rows in several parts is recognized by its key.
 */
static bool
AskInParts(GgResidentRef *ref, const GgAsk *ask, uint32 most, uint64 *keys, uint64 *matches,
		   GgReason *reason)
{
	const gg_filter *filter = ask->filter;
	uint32		nlists = gg_request_lists(&ask->request);
	uint32		k = ask->request.params.k;
	Size		nkeys = (Size) nlists * k;
	GgAsk		part = *ask;
	gg_filter  *some = palloc(sizeof(gg_filter));
	uint64	   *others = palloc((nkeys + k) * sizeof(uint64));
	uint64		other_matches[GG_SERVE_MAX_LISTS];
	bool		answered;

	memcpy(some, filter, sizeof(gg_filter));
	part.filter = some;
	some->ntids = most;
	GgForgetAnswers(ref);
	answered = AskOnce(ref, &part, keys, matches, reason);
	part.meanwhile.run = NULL;
	for (uint32 first = most; answered && first < filter->ntids; first += most)
	{
		some->tids = filter->tids + first;
		some->ntids = Min(most, filter->ntids - first);
		GgForgetAnswers(ref);
		answered = AskOnce(ref, &part, others, other_matches, reason);
		for (uint32 i = 0; answered && i < nlists; i++)
		{
			MergeKeys(keys + (Size) i * k, others + (Size) i * k, k, others + nkeys);
			matches[i] += other_matches[i];
		}
	}
	/* what was answered is of one part of the TIDs alone */
	GgForgetAnswers(ref);
	pfree(others);
	pfree(some);
	return answered;
}

bool
GgServiceAsk(GgResidentRef *ref, const GgAsk *ask, uint64 *keys, uint64 *matches,
			 GgReason *reason)
{
	uint32		most = GgMostTids(ask->request.params.k, gg_request_lists(&ask->request));

	if (CountTids(ask->filter) > most && most > 0)
		return AskInParts(ref, ask, most, keys, matches, reason);
	return AskOnce(ref, ask, keys, matches, reason);
}

/* ---- lists of several residents ----------------------------------------------------- */

/*
 * One query for lists of several residents of a device.  The request says what is asked of each, as
 * if it were the only list.
 */
typedef struct TargetGroup
{
	gg_request	request;
	const float *query;
	uint32		room;			/* targets */
	uint32		ntargets;		/* 0: not begun */
	GgGroupTarget *targets;
	uint64	   *keys;			/* room for the answer, list by list */
	int		   *members;		/* each has a target at least */
	uint32		nmembers;
} TargetGroup;

/* Members, and the groups of devices that are being filled. */
typedef struct Together
{
	const GgAsk *asks;
	uint64	  **keys;
	int			nmembers;
	TargetGroup groups[GG_MAX_DEVICES];
} Together;

/* Fill this process's slot with the group's device; false: no chunk is taken. */
static bool
PrepareGroup(const TargetGroup *group, int device, bool first, GgShare *share)
{
	const GgAsk ask = {.request = group->request, .queries = group->query};
	GgReason	reason;
	GgSlot	   *slot;

	share->part = (GgResidentPart) {.device = device};
	share->fault = (GgFault) gg_fault;
	if (gg_check_request(__func__, &group->request).code != GG_OK ||
		!GgAskBegin(share, &group->request, &reason))
		return false;
	slot = share->slot;
	slot->ntargets = group->ntargets;
	if (!GgGroupFitsSlot(&group->request, group->ntargets) && !TakeChunk(slot, first))
		return false;
	if (!GgPlaceRequest(slot, 0, &slot->request))
	{
		GgSlotGiveChunkBack(slot);
		return false;
	}
	memcpy(GgSlotTargets(slot), group->targets, group->ntargets * sizeof(GgGroupTarget));
	PutRequest(slot, &ask, 0);
	return true;
}

/* Give members their lists, which follow each other.  A member that lost a list gets none. */
static void
TakeGroup(const Together *together, const TargetGroup *group, const GgGroupTarget *target)
{
	uint64	   *keys = group->keys;

	for (uint32 i = 0; i < group->nmembers; i++)
	{
		const int	member = group->members[i];
		const uint32 nlists = gg_request_lists(&together->asks[member].request);
		bool		lost = false;

		for (uint32 list = 0; list < nlists; list++)
			lost |= target[list].lost;
		if (!lost)
			together->keys[member] = keys;
		keys += (Size) nlists * group->request.params.k;
		target += nlists;
	}
}

/* Post all groups that have targets, wait for the answers and give them to the members. */
static void
AskAll(Together *together)
{
	const GgMeanwhile nothing = {NULL, NULL};
	GgShare		shares[GG_MAX_DEVICES];
	const TargetGroup *of[GG_MAX_DEVICES];
	GgReason	reason;
	int			n = 0;
	int			failed;

	/* palloc() may throw, so it comes before a chunk is taken */
	for (int i = 0; i < GG_MAX_DEVICES; i++)
	{
		TargetGroup *group = &together->groups[i];

		if (group->ntargets > 0)
			group->keys = palloc((Size) group->ntargets * group->request.params.k *
								 sizeof(uint64));
	}
	for (int i = 0; i < GG_MAX_DEVICES; i++)
		if (together->groups[i].ntargets > 0 &&
			PrepareGroup(&together->groups[i], i, n == 0, &shares[n]))
			of[n++] = &together->groups[i];
	if (n > 0)
		(void) GgAskAndWait(shares, n, &nothing, &reason, &failed);
	for (int i = 0; i < n; i++)
	{
		GgSlot	   *slot = shares[i].slot;

		if (!shares[i].answered)
			continue;
		memcpy(of[i]->keys, gg_service->region + slot->request.keys,
			   (Size) of[i]->ntargets * slot->request.params.k * sizeof(uint64));
		TakeGroup(together, of[i], GgSlotTargets(slot));
		GgSlotGiveChunkBack(slot);
	}
	memset(together->groups, 0, sizeof(together->groups));
}

/* Is the group's query that of the member, for lists of the same kind? */
static bool
Fits(const TargetGroup *group, const GgAsk *ask)
{
	const gg_search_params *a = &group->request.params;
	const gg_search_params *b = &ask->request.params;

	return group->request.dim == ask->request.dim && a->k == b->k && gg_same_walk(a, b) &&
		(group->query == ask->queries ||
		 memcmp(group->query, ask->queries, ask->request.dim * sizeof(float)) == 0);
}

/* Begin a group for the query of this member, with room for nmembers members. */
static void
BeginGroup(TargetGroup *group, const GgAsk *ask, int nmembers)
{
	group->room = GroupRoom(ask->request.params.k);
	group->members = palloc(Min(nmembers, group->room) * sizeof(int));
	group->request = ask->request;
	group->request.nsegments = group->request.lists = 1;
	group->request.measured = 0;
	group->request.delta = false;
	group->query = ask->queries;
	group->targets = palloc(group->room * sizeof(GgGroupTarget));
}

/* Add a member to the group of its device. */
static void
AddMember(Together *together, int member, const GgResidentPart *part)
{
	const GgAsk *ask = &together->asks[member];
	const gg_request *request = &ask->request;
	TargetGroup *group = &together->groups[part->device];
	const uint32 nlists = gg_request_lists(request);

	if (group->ntargets > 0 && (!Fits(group, ask) || group->ntargets + nlists > group->room))
		AskAll(together);
	if (group->ntargets == 0)
		BeginGroup(group, ask, together->nmembers);
	for (uint32 list = 0; list <= request->nsegments; list++)
		if (gg_request_asks(request, list))
			group->targets[group->ntargets++] = (GgGroupTarget) {
				.entry = part->entry, .serial = part->serial, .list = list,
				.measured = gg_request_way(request, list) != GG_WAY_WALK
			};
	group->members[group->nmembers++] = member;
}

void
GgServiceAskTogether(const GgAsk *asks, const GgResidentPart *parts, uint64 **keys, int n)
{
	Together   *together = palloc0(sizeof(Together));

	together->asks = asks;
	together->keys = keys;
	together->nmembers = n;
	memset(keys, 0, n * sizeof(uint64 *));
	for (int i = 0; i < n; i++)
		AddMember(together, i, &parts[i]);
	AskAll(together);
}
