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
 */
#include "scan/scan.h"

#include "storage/directory.h"

#include "storage/buf_internals.h"
#include "utils/hsearch.h"
#include "utils/inval.h"

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
	GgKnownAsk	ask;
};

static HTAB *all_known = NULL;

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

void
GgKeepAsk(const GgScanOpaque *so, const GgAsk *ask)
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
	known->ask = (GgKnownAsk) {
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

bool
GgUseKnown(GgKnown *known, uint32 limit, GgKnownAsk *ask)
{
	const Settings settings = SettingsNow(limit);

	if (!known->valid || known->uses == 0 || GG_SNAPSHOTS_GROW_OLD ||
		memcmp(&known->settings, &settings, sizeof(Settings)) != 0 || !IsUnchanged(known))
		return false;
	known->uses--;
	*ask = known->ask;
	GgNoteUse(ask->device, ask->entry);
	return true;
}
