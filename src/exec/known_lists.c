/*
 * known_lists.c
 *		What a scan of an index asks a device for, kept for the next query.
 *
 * A query of a thousand partitions asks a device for lists of all of their indexes, and returns
 * rows of a few.  To begin an index scan, read its directory and look up the resident takes some
 * 10 us.  Most of it says what it said the time before.  So a session keeps what a scan asked for,
 * while the index answers for itself that nothing has changed:
 *
 *	the relation	A message of the relation cache ends what is known.  Who wrote rows that a
 *					snapshot sees into a new file of the index did so after the message was sent,
 *					since the rewrite keeps writers out (REINDEX, ALTER INDEX SET TABLESPACE).  So
 *					it is enough to look for messages after the snapshot was taken, and the index
 *					need not be locked.  Its table is.
 *	the directory	Generation, delta and VACUUM's epoch are read from the metapage, in the buffer
 *					where it was.  Is it not there any more, nothing is known.
 *	the resident	is named with its serial.  A device that has it no more says so.
 *	settings		are compared.
 *
 * Nothing is kept of a scan that has to do more than to ask one device: of a delta that the device
 * does not have all of, of queries to be learned from.
 *
 * The first lists of many scans of one query come by one request to a device.  A request of a group
 * (GgGroup) has room for GgServiceGroupRoom() lists, of any indexes that the device has: 2,000 with
 * LIMIT 10, 1,000 where no limit is known.  A scan's lists go into one group.  Each device has a
 * group that is being filled.  When one is full, all are posted, and so the devices work at the
 * same time.
 *
 * A scan that is not answered here asks for itself.  A closed search is of an index whose lists are
 * known from an earlier query.  Where it is not answered, a scan begins.
 */
#include "exec/together.h"
#include "scan/scan.h"

#include "storage/directory.h"

#include "miscadmin.h"
#include "storage/buf_internals.h"
#include "utils/float.h"
#include "utils/hsearch.h"
#include "utils/inval.h"

#include "engine/keys.h"
#include "engine/request.h"

/* Of several devices another one may have a copy, so that it is looked up from time to time. */
#define USES_OF_SEVERAL		100

/* What a scan's first request depends on, beside the index.  Without padding. */
typedef struct Settings
{
	uint32		limit;
	int			iterative_scan;
	int			engine;
	float		target;
	gg_search_params params;
} Settings;

/* What a device is asked for, of an index. */
typedef struct KnownAsk
{
	gg_request	request;
	int			device;
	uint32		entry;
	uint32		serial;
	const GgOpclass *opclass;
	GgBound		bound;			/* of distances in keys */
} KnownAsk;

struct GgKnown
{
	Oid			index;			/* the key */
	bool		valid;
	uint32		uses;			/* left */
	Settings	settings;
	GgRelFileLocator locator;
	Buffer		buffer;			/* of the metapage */
	uint64		instance;
	uint64		generation;
	uint64		vacuum_epoch;
	uint32		delta_pages;
	KnownAsk	ask;
};

struct GgClosedSearch
{
	Oid			index;
	KnownAsk	ask;			/* a copy: a later query may keep another one meanwhile */
	uint64	   *keys;			/* the answer, list by list; NULL: there is none */
};

static HTAB *all_known = NULL;

/* ---- what is known ------------------------------------------------------- */

static Settings
SettingsNow(uint32 limit)
{
	return (Settings) {
		.limit = Min(limit, GG_MOST_EXPECTED),
		.iterative_scan = gg_iterative_scan,
		.engine = gg_engine_setting,
		.target = (float) gg_target_recall,
		.params = GgSearchSettings()
	};
}

static void
ForgetKnown(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS all;
	GgKnown    *known;

	if (OidIsValid(relid))
	{
		known = hash_search(all_known, &relid, HASH_FIND, NULL);
		if (known != NULL)
			known->valid = false;
		return;
	}
	hash_seq_init(&all, all_known);
	while ((known = hash_seq_search(&all)) != NULL)
		known->valid = false;
}

static void
MakeTable(void)
{
	HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(GgKnown)};

	all_known = hash_create("gpugraph known lists", 256, &control, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(ForgetKnown, (Datum) 0);
}

/* A scan has planned its first lists.  Nothing is kept where they are not all that it needs. */
static void
KeepAsk(const GgScanOpaque *so, const GgAsk *ask)
{
	const GgOptions *options = (const GgOptions *) so->index->rd_options;
	const GgMetaPageData *meta = so->meta;
	const GgDeviceAnswer *device = &so->device;
	const Oid	index = RelationGetRelid(so->index);
	GgKnown    *known;

	/* marked scans have modes and bounds of their own */
	if (so->filter != NULL || so->expected != 0 || so->marks != 0 || so->bound.rounded ||
		device->missing != 0 || device->ref.forms.halved != 0 ||
		device->delta_pages != meta->delta_pages ||
		(options != NULL && options->learn_queries) || GG_SNAPSHOTS_GROW_OLD)
		return;
	for (int i = 0; i < so->nstreams; i++)
		if ((device->lists >> (so->streams[i].segment - meta->segments) & 1) == 0)
			return;
	if (all_known == NULL)
		MakeTable();
	known = hash_search(all_known, &index, HASH_ENTER, NULL);
	known->uses = GgMayHaveCopies() ? USES_OF_SEVERAL : PG_UINT32_MAX;
	known->settings = SettingsNow(so->limit);
	known->locator = GgLocator(so->index);
	known->instance = meta->instance;
	known->generation = meta->generation;
	known->vacuum_epoch = meta->vacuum_epoch;
	known->delta_pages = meta->delta_pages;
	known->ask = (KnownAsk) {
		.request = ask->request,
		.device = device->ref.device,
		.entry = device->ref.entry,
		.serial = device->ref.serial,
		.opclass = GgIndexOpclass(so->index),
		.bound = so->bound
	};
	known->buffer = GgMetaBuffer(so->index);
	known->valid = true;
}

/* Is the directory still the same? */
static bool
IsUnchanged(const GgKnown *known)
{
	GgDirectoryState state;

	return GgReadStateFrom(known->buffer, known->locator, &state) &&
		state.instance == known->instance && state.generation == known->generation &&
		state.vacuum_epoch == known->vacuum_epoch && state.delta_pages == known->delta_pages;
}

GgKnown *
GgFindKnown(Oid index)
{
	GgKnown    *known = all_known == NULL ? NULL :
		hash_search(all_known, &index, HASH_FIND, NULL);

	if (known == NULL || !known->valid)
		return NULL;
	__builtin_prefetch(GetBufferDescriptor(known->buffer - 1));
	__builtin_prefetch(BufferGetBlock(known->buffer));
	return known;
}

GgClosedSearch *
GgBeginClosed(GgKnown *known, uint32 limit, const GgClosedSearch *like)
{
	const Settings settings = SettingsNow(limit);
	const KnownAsk *ask = &known->ask;
	GgClosedSearch *search;

	if (!known->valid || known->uses == 0 || GG_SNAPSHOTS_GROW_OLD ||
		memcmp(&known->settings, &settings, sizeof(Settings)) != 0 || !IsUnchanged(known))
		return NULL;
	known->uses--;
	GgNoteUse(ask->device, ask->entry);
	if (like != NULL &&
		(ask->opclass != like->ask.opclass || ask->request.dim != like->ask.request.dim))
		return NULL;
	search = palloc(sizeof(GgClosedSearch));
	search->index = known->index;
	search->ask = *ask;
	search->keys = NULL;
	return search;
}

const float *
GgQueryOfClosed(const GgClosedSearch *search, Datum value)
{
	return GgQueryFromValue(search->ask.opclass, value, search->ask.request.dim);
}

bool
GgIsAnswered(const GgClosedSearch *search)
{
	return search->keys != NULL;
}

void
GgCountClosed(const GgClosedSearch *search)
{
	GgCountQuery(search->index, GG_REASON_NONE, 0);
}

/* ---- lists of many ------------------------------------------------------- */

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
			KeepAsk(member->so, &member->ask);
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
		const KnownAsk *ask = &searches[i]->ask;
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
