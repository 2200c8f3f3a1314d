/*
 * known_lists.c
 *		What a scan of an index asks a device for, kept for the next query.
 *
 * A query of a thousand partitions asks a device for lists of all of their indexes, and returns
 * rows of a few.  To begin an index scan, read its directory and look up the resident takes some
 * 10 us.  Most of that is as it was the time before.  So a session keeps what a scan asked for,
 * while the index answers for itself that nothing has changed:
 *
 *	the relation	A message of the relation cache ends what is known.  Who wrote rows that a
 *					snapshot sees into a new file of the index did so after the message was sent,
 *					since the rewrite keeps writers out (REINDEX, ALTER INDEX SET TABLESPACE).  So
 *					it is enough to look for messages after the snapshot was taken, and the index
 *					need not be locked.  Its table is.
 *	the directory	Generation, delta and VACUUM's epoch are read from the metapage, in the buffer
 *					where it was.  If it is not there any more, nothing is known.
 *	the resident	is named with its serial.  A device that has it no more says so.
 *	settings		are compared.
 *
 * Nothing is kept of a scan that has to do more than to ask one device, as it has where a device
 * lacks a part of the delta, or where queries are learned from.
 *
 * The first lists of many scans of one query come by one request to a device.  A scan that is not
 * answered here asks for itself.  A closed search is of an index whose lists are known from an
 * earlier query.  Where it is not answered, a scan begins.
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

/* Uses of what is known before a new lookup: of several devices another may have a copy then. */
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
	GgResidentPart part;
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

/* The resident as requests name it. */
static GgResidentPart
PartOf(const GgResidentRef *ref)
{
	return (GgResidentPart) {.device = ref->device, .entry = ref->entry, .serial = ref->serial};
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
		.part = PartOf(&device->ref),
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
	GgNoteUse(ask->part.device, ask->part.entry);
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

/* A scan, or a closed search. */
typedef struct Member
{
	GgScanOpaque *so;			/* NULL: a closed search */
	bool		deep;
	GgClosedSearch *search;
} Member;

/* Hand the answer to the member. */
static void
Deliver(const Member *member, const GgAsk *ask, const uint64 *keys)
{
	const Size	bytes = (Size) gg_request_lists(&ask->request) * ask->request.params.k *
		sizeof(uint64);

	if (member->so != NULL)
	{
		KeepAsk(member->so, ask);
		GgTakeFirst(member->so, ask, member->deep, keys);
	}
	else
		member->search->keys = memcpy(palloc(bytes), keys, bytes);
}

void
GgAskTogether(IndexScanDesc *scans, int nscans, GgClosedSearch **searches, int nsearches,
			  const float *query)
{
	const int	most = nscans + nsearches;
	MemoryContext context;
	MemoryContext old;
	Member	   *members;
	GgAsk	   *asks;
	GgResidentPart *parts;
	uint64	  **keys;
	int			n = 0;

	if (gg_service == NULL || gg_engine_setting == GG_ENGINE_CPU || most < 2)
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph lists together",
									ALLOCSET_DEFAULT_SIZES);
	members = MemoryContextAlloc(context, most * sizeof(Member));
	asks = MemoryContextAlloc(context, most * sizeof(GgAsk));
	parts = MemoryContextAlloc(context, most * sizeof(GgResidentPart));
	keys = MemoryContextAlloc(context, most * sizeof(uint64 *));
	for (int i = 0; i < nsearches; i++)
	{
		members[n] = (Member) {.search = searches[i]};
		asks[n] = (GgAsk) {.request = searches[i]->ask.request, .queries = query};
		parts[n++] = searches[i]->ask.part;
	}
	/* a resident that is gone by the time it is asked gives no lists: its scan asks by itself */
	for (int i = 0; i < nscans; i++)
	{
		GgScanOpaque *so = (GgScanOpaque *) scans[i]->opaque;

		CHECK_FOR_INTERRUPTS();
		members[n] = (Member) {.so = so};
		if (!so->prepared || !GgPlanFirst(so, &asks[n], &members[n].deep))
			continue;
		parts[n++] = PartOf(&so->device.ref);
	}
	old = MemoryContextSwitchTo(context);
	GgServiceAskTogether(asks, parts, keys, n);
	MemoryContextSwitchTo(old);
	for (int i = 0; i < n; i++)
		if (keys[i] != NULL)
			Deliver(&members[i], &asks[i], keys[i]);
	MemoryContextDelete(context);
}

void
GgTakeClosed(IndexScanDesc scan, const GgClosedSearch *search)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	const GgResidentRef *ref = &so->device.ref;
	const GgResidentPart *part = &search->ask.part;
	GgAsk		ask;
	bool		deep;

	if (so->prepared && GgPlanFirst(so, &ask, &deep) && ref->device == part->device &&
		ref->entry == part->entry && ref->serial == part->serial &&
		gg_same_request(&ask.request, &search->ask.request))
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
