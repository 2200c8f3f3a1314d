/*
 * ask_together.c
 *		The first lists of many scans of one query, by one request to a device.
 *
 * A request of a group (GgGroup) has room for GgServiceGroupRoom() lists, of any indexes that the
 * device has: 2,000 with LIMIT 10, 1,000 where no limit is known.  A scan's lists go into one
 * group.  Each device has a group that is being filled.  When one is full, all are posted, and so
 * the devices work at the same time.
 *
 * A scan that is not answered here asks for itself.
 */
#include "scan/scan.h"

#include "miscadmin.h"

#include "request.h"

/* A scan and what it asks for. */
typedef struct Member
{
	GgScanOpaque *so;
	GgAsk		ask;
	bool		deep;
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
		if (!lost)
			GgTakeFirst(member->so, &member->ask, member->deep, keys);
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

	return group->request.dim == ask->request.dim && a->k == b->k &&
		a->itopk_size == b->itopk_size && a->mode == b->mode && a->rerank == b->rerank &&
		memcmp(group->query, ask->queries, ask->request.dim * sizeof(float)) == 0;
}

/* A group for the query of this scan and of up to nscans. */
static void
Begin(Filling *filling, int device, const GgAsk *ask, int nscans)
{
	const gg_search_params *params = &ask->request.params;
	GgGroup    *group = &filling->group;

	filling->room = GgServiceGroupRoom(params->k);
	filling->members = palloc(Min(nscans, filling->room) * sizeof(Member));
	group->device = device;
	group->request = ask->request;
	group->request.nsegments = group->request.lists = 1;
	group->request.measured = 0;
	group->request.delta = false;
	group->query = ask->queries;
	group->targets = palloc(filling->room * sizeof(GgGroupTarget));
}

/* Add a scan to the group of its device. */
static void
AddScan(Filling *fillings, const Member *member, int nscans)
{
	const GgAsk *ask = &member->ask;
	const GgResidentRef *ref = &member->so->device.ref;
	const gg_request *request = &ask->request;
	Filling    *filling = &fillings[ref->device];
	GgGroup    *group = &filling->group;
	const uint32 nlists = gg_request_lists(request);

	if (group->ntargets > 0 &&
		(!Fits(group, ask) || group->ntargets + nlists > filling->room))
		AskAll(fillings);
	if (group->ntargets == 0)
		Begin(filling, ref->device, ask, nscans);
	for (uint32 list = 0; list <= request->nsegments; list++)
		if (gg_request_asks(request, list))
			group->targets[group->ntargets++] = (GgGroupTarget) {
				.entry = ref->entry, .serial = ref->serial, .list = list,
				.measured = gg_request_way(request, list) != GG_WAY_WALK
			};
	filling->members[filling->nmembers++] = *member;
}

void
GgAskTogether(IndexScanDesc *scans, int nscans)
{
	Filling    *fillings;

	if (gg_service == NULL || gg_engine_setting == GG_ENGINE_CPU || nscans < 2)
		return;
	fillings = palloc0(GG_MAX_DEVICES * sizeof(Filling));
	for (int i = 0; i < nscans; i++)
	{
		Member		member = {.so = (GgScanOpaque *) scans[i]->opaque};

		CHECK_FOR_INTERRUPTS();
		if (member.so->prepared && GgPlanFirst(member.so, &member.ask, &member.deep))
			AddScan(fillings, &member, nscans);
	}
	AskAll(fillings);
	pfree(fillings);
}
