/*
 * ask_together.c
 *		The first lists of many scans of one query, by one request to a device.
 *
 * A request of a group (GgGroup) has room for GgServiceGroupRoom() lists, of any indexes that the
 * device has: 2,000 with LIMIT 10, 1,000 where no limit is known.  A scan's lists go into one
 * group.  Each device has a group that is being filled.  When one is full, all are posted, and so
 * the devices work at the same time.
 *
 * A scan that is not answered here asks for itself.  A closed search is of an index whose lists are
 * known from an earlier query (known_lists.c).  Where it is not answered, a scan begins.
 */
#include "scan/scan.h"

#include "miscadmin.h"
#include "utils/float.h"

#include "engine/keys.h"
#include "engine/request.h"

/* A scan, or a closed search, and what it asks for. */
typedef struct Member
{
	GgScanOpaque *so;			/* NULL: a closed search */
	GgAsk		ask;
	bool		deep;
	GgClosedSearch *search;
} Member;

/* The group of a device that is being filled. */
typedef struct Filling
{
	GgGroup		group;			/* without targets: not begun */
	uint32		room;			/* targets */
	Member	   *members;		/* each has a target at least */
	uint32		nmembers;
} Filling;

/*
 * Hand the answer to the scans, whose lists follow each other.  One of which a list is lost asks
 * for itself.
 */
static void
Deliver(const Filling *filling)
{
	const GgGroup *group = &filling->group;
	const uint64 *keys = group->keys;
	const GgGroupTarget *target = group->targets;

	for (uint32 i = 0; i < filling->nmembers; i++)
	{
		const Member *member = &filling->members[i];
		const uint32 nlists = gg_request_lists(&member->ask.request);
		bool		lost = false;

		for (uint32 list = 0; list < nlists; list++)
			lost |= target[list].lost;
		if (!lost && member->so != NULL)
		{
			GgKeepAsk(member->so, &member->ask);
			GgTakeFirst(member->so, &member->ask, member->deep, keys);
		}
		else if (!lost)
		{
			const Size	bytes = (Size) nlists * group->request.params.k * sizeof(uint64);

			member->search->keys = memcpy(palloc(bytes), keys, bytes);
		}
		keys += (Size) nlists * group->request.params.k;
		target += nlists;
	}
}

/* Post what there is, and wait for it. */
static void
AskAll(Filling *fillings)
{
	GgGroup		groups[GG_MAX_DEVICES];
	int			n = 0;

	for (int i = 0; i < GG_MAX_DEVICES; i++)
		if (fillings[i].group.ntargets > 0)
		{
			GgGroup    *group = &fillings[i].group;

			group->keys = palloc((Size) group->ntargets * group->request.params.k *
								 sizeof(uint64));
			groups[n++] = *group;
		}
	if (n == 0)
		return;
	GgServiceAskGroups(groups, n);
	for (int i = 0; i < n; i++)
	{
		Filling    *filling = &fillings[groups[i].device];

		/* what the answer says of targets is in the array that both share */
		if (groups[i].answered)
			Deliver(filling);
		pfree(groups[i].keys);
		pfree(groups[i].targets);
		pfree(filling->members);
		memset(filling, 0, sizeof(Filling));
	}
}

/* Is the group's query that of the scan, for lists of the same kind? */
static bool
Fits(const GgGroup *group, const GgAsk *ask)
{
	const gg_search_params *a = &group->request.params;
	const gg_search_params *b = &ask->request.params;

	return group->request.dim == ask->request.dim && a->k == b->k && gg_same_walk(a, b) &&
		(group->query == ask->queries ||
		 memcmp(group->query, ask->queries, ask->request.dim * sizeof(float)) == 0);
}

/* A group for the query of this member and of up to nmembers. */
static void
Begin(Filling *filling, int device, const GgAsk *ask, int nmembers)
{
	const gg_search_params *params = &ask->request.params;
	GgGroup    *group = &filling->group;

	filling->room = GgServiceGroupRoom(params->k);
	filling->members = palloc(Min(nmembers, filling->room) * sizeof(Member));
	group->device = device;
	group->request = ask->request;
	group->request.nsegments = group->request.lists = 1;
	group->request.measured = 0;
	group->request.delta = false;
	group->query = ask->queries;
	group->targets = palloc(filling->room * sizeof(GgGroupTarget));
}

/* Add a member to the group of its device. */
static void
AddMember(Filling *fillings, const Member *member, int device, uint32 entry, uint32 serial,
		  int nmembers)
{
	const GgAsk *ask = &member->ask;
	const gg_request *request = &ask->request;
	Filling    *filling = &fillings[device];
	GgGroup    *group = &filling->group;
	const uint32 nlists = gg_request_lists(request);

	if (group->ntargets > 0 &&
		(!Fits(group, ask) || group->ntargets + nlists > filling->room))
		AskAll(fillings);
	if (group->ntargets == 0)
		Begin(filling, device, ask, nmembers);
	for (uint32 list = 0; list <= request->nsegments; list++)
		if (gg_request_asks(request, list))
			group->targets[group->ntargets++] = (GgGroupTarget) {
				.entry = entry, .serial = serial, .list = list,
				.measured = gg_request_way(request, list) != GG_WAY_WALK
			};
	filling->members[filling->nmembers++] = *member;
}

void
GgAskTogether(IndexScanDesc *scans, int nscans, GgClosedSearch **searches, int nsearches,
			  const float *query)
{
	const int	nmembers = nscans + nsearches;
	Filling    *fillings;

	if (gg_service == NULL || gg_engine_setting == GG_ENGINE_CPU || nmembers < 2)
		return;
	fillings = palloc0(GG_MAX_DEVICES * sizeof(Filling));
	for (int i = 0; i < nsearches; i++)
	{
		const GgKnownAsk *ask = &searches[i]->ask;
		Member		member = {
			.ask = {.request = ask->request, .queries = query},
			.search = searches[i]
		};

		AddMember(fillings, &member, ask->device, ask->entry, ask->serial, nmembers);
	}
	for (int i = 0; i < nscans; i++)
	{
		Member		member = {.so = (GgScanOpaque *) scans[i]->opaque};
		const GgResidentRef *ref = &member.so->device.ref;

		CHECK_FOR_INTERRUPTS();
		if (member.so->prepared && GgPlanFirst(member.so, &member.ask, &member.deep))
			AddMember(fillings, &member, ref->device, ref->entry, ref->serial, nmembers);
	}
	AskAll(fillings);
	pfree(fillings);
}

void
GgTakeClosed(IndexScanDesc scan, const GgClosedSearch *search)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	const GgResidentRef *ref = &so->device.ref;
	GgAsk		ask;
	bool		deep;

	if (so->prepared && GgPlanFirst(so, &ask, &deep) && ref->device == search->ask.device &&
		ref->entry == search->ask.entry && ref->serial == search->ask.serial &&
		memcmp(&ask.request, &search->ask.request, sizeof(gg_request)) == 0)
		GgTakeFirst(so, &ask, deep, search->keys);
}

double
GgLeastOfClosed(const GgClosedSearch *search)
{
	const gg_request *request = &search->ask.request;
	uint64		least = GG_NO_KEY;

	for (uint32 list = 0; list < gg_request_lists(request); list++)
		least = Min(least, search->keys[(Size) list * request->params.k]);
	/* where nothing was found, it is the scan that looks for more */
	return least == GG_NO_KEY ? -get_float8_infinity() :
		GgBoundOf(&search->ask.bound, key_distance(least));
}
