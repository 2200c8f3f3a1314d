/*
 * ask_together.c
 *		The first lists of many scans of one query, by few requests to devices.
 *
 * A request of a group (GgGroup) has room for GG_MAX_TARGETS lists, of any indexes that the device
 * has.  A scan's lists go into one group.  Each device has a group that is being filled.  When one
 * is full, all are posted, and so the devices work at the same time.
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
} Member;

/* The groups that are being filled. */
typedef struct Groups
{
	GgGroup		of[GG_MAX_DEVICES];	/* by device; without targets: not begun */
	Member		members[GG_MAX_DEVICES][GG_MAX_TARGETS];
	int			nmembers[GG_MAX_DEVICES];
} Groups;

/* Hand the answer to the scans, whose lists follow each other. */
static void
Deliver(const GgGroup *group, const Member *members, int nmembers)
{
	const uint64 *keys = group->keys;

	for (int i = 0; i < nmembers; i++)
	{
		const gg_request *request = &members[i].ask.request;

		GgTakeFirst(members[i].so, &members[i].ask, keys);
		keys += (Size) gg_request_lists(request) * request->params.k;
	}
}

/* Post what there is, and wait for it. */
static void
AskAll(Groups *groups)
{
	GgGroup		begun[GG_MAX_DEVICES];
	int			n = 0;

	for (int i = 0; i < GG_MAX_DEVICES; i++)
		if (groups->of[i].ntargets > 0)
			begun[n++] = groups->of[i];
	if (n == 0)
		return;
	GgServiceAskGroups(begun, n);
	for (int i = 0; i < n; i++)
	{
		const int	device = begun[i].device;

		if (begun[i].answered)
			Deliver(&begun[i], groups->members[device], groups->nmembers[device]);
		pfree(begun[i].keys);
		groups->nmembers[device] = 0;
		groups->of[device].ntargets = 0;
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

static bool
HasRoom(const GgGroup *group, const GgAsk *ask)
{
	const uint32 nlists = group->ntargets + gg_request_lists(&ask->request);

	return nlists <= GG_MAX_TARGETS && ask->request.params.k <= GgServiceWalkRoom(nlists);
}

static void
AddLists(GgGroup *group, const GgResidentRef *ref, const gg_request *request)
{
	for (uint32 list = 0; list <= request->nsegments; list++)
	{
		const bool	measured = list == request->nsegments || (request->measured >> list & 1) != 0;

		if (!gg_request_asks(request, list))
			continue;
		group->request.lists |= (uint32) 1 << group->ntargets;
		group->request.measured |= (uint32) measured << group->ntargets;
		group->targets[group->ntargets++] = (GgGroupTarget) {
			.entry = ref->entry, .serial = ref->serial, .list = list
		};
	}
	group->request.nsegments = group->ntargets;
}

/* Add a scan to the group of its device. */
static void
AddScan(Groups *groups, GgScanOpaque *so, const GgAsk *ask)
{
	const int	device = so->device.ref.device;
	GgGroup    *group = &groups->of[device];

	if (group->ntargets > 0 && (!Fits(group, ask) || !HasRoom(group, ask)))
		AskAll(groups);
	if (!HasRoom(group, ask))
		return;
	if (group->ntargets == 0)
	{
		group->device = device;
		group->request = ask->request;
		group->request.lists = group->request.measured = 0;
		group->request.delta = false;
		group->query = ask->queries;
		group->keys = palloc(GG_MAX_TARGETS * ask->request.params.k * sizeof(uint64));
	}
	AddLists(group, &so->device.ref, &ask->request);
	groups->members[device][groups->nmembers[device]++] = (Member) {.so = so, .ask = *ask};
}

void
GgAskTogether(IndexScanDesc *scans, int nscans)
{
	Groups	   *groups;

	if (gg_service == NULL || gg_engine_setting == GG_ENGINE_CPU || nscans < 2)
		return;
	groups = palloc0(sizeof(Groups));
	for (int i = 0; i < nscans; i++)
	{
		GgScanOpaque *so = (GgScanOpaque *) scans[i]->opaque;
		GgAsk		ask;

		CHECK_FOR_INTERRUPTS();
		if (so->prepared && GgPlanFirst(so, &ask))
			AddScan(groups, so, &ask);
	}
	AskAll(groups);
	pfree(groups);
}
