/*
 * lookup.c
 *		Is an index on a device?  The table of residents as queries see it.
 *
 * A backend looks up (locator, instance) in each device's table, under its lock in share mode.
 * Tables are so short that this takes a few comparisons.  The backend writes little there: the time
 * of use, counts, the index's oid and option, a flip that it saw and, by compare-and-swap, that a
 * refresh is wanted.  A request for a load takes the lock exclusively, makes an entry WANTED, and
 * wakes the worker, which does everything else (resident.c, resident_load.c).
 *
 * What a resident may be used for:
 *
 *	same generation			all of it: segments, and the delta's pages that it covers.  The scan
 *							measures later delta pages itself.
 *	another generation, but the same segments in the same order
 *							the segments, which are immutable.  Not the delta, whose pages are
 *							numbered from another start.
 *	other segments			nothing.
 *
 * Segments that have no room on the device are missing from a resident.  The scan searches them
 * itself.
 *
 * Several devices may have copies.  A query goes to the one that the fewest wait for, by its speed,
 * of those that have most of the index.  Copies that are not ready are passed over, and so are
 * devices that have failed the query.
 *
 * A resident is to be refreshed when it is of an older generation; when VACUUM has cleared rows of
 * the delta, which would take the place of others in the answer; and when the delta has grown by so
 * much that the scan's own part becomes noticeable.  A refresh reads the delta's new pages, and all
 * of it where rows were cleared.  Refreshes take half of the time at most.
 */
#include "service/backend/lookup.h"

#include "port/pg_bitutils.h"
#include "storage/lmgr.h"
#include "utils/guc.h"

#include "service/shared/ring.h"

/*
 * A resident is refreshed when this many delta pages are not covered.  8 pages of 128 dimensions
 * are 120 rows, which a scan measures in some 10 us.
 */
#define REFRESH_PAGES		8

/*
 * A refresh comes no earlier than REFRESH_PATIENCE times the last load time of the delta, nor than
 * REFRESH_MIN_MS, since the version before the one that it replaces stays so long.  Where the
 * resident is of no use, because the index has other segments by now, only the latter counts.
 */
#define REFRESH_PATIENCE	1
#define REFRESH_MIN_MS		GG_REPLACED_MS

/* How often a process that waits for a load looks. */
#define LOOK_MS				2

/* ---- asking for a load ------------------------------------------------------ */

/* Make a WANTED entry, or a failed one WANTED again. */
static void
Request(GgDevice *device, Relation index, const GgMetaPageData *meta, GgAsker asker)
{
	GgResident *resident = NULL;
	int			entry;
	uint64		database;

	/*
	 * The database's stamp is made anew: a tool may have touched its file, and where processes have
	 * different stamps they ask for loads in vain.
	 */
	database = GgRenewDatabaseStamp();

	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	entry = GgFindEntry(device, &GgLocator(index), meta->instance, database);
	if (entry < 0)
	{
		/*
		 * Other relations had the file's number before.  The worker finds dropped files by their
		 * absence, and this one is there again.
		 */
		GgForgetLocator(device, &GgLocator(index));
		entry = GgTakeEntry(device, asker == GG_ASKED_BY_MAINTAINER);
		if (entry >= 0)
		{
			resident = &device->residents[entry];
			GgNameEntry(device, entry, index, meta);
		}
	}
	else if (device->residents[entry].state == GG_RESIDENT_FAILED)
		resident = &device->residents[entry];
	if (resident != NULL)
	{
		resident->forced = asker == GG_ASKED_BY_MAINTAINER;
		resident->fault = gg_fault;
		resident->state = GG_RESIDENT_WANTED;
	}
	LWLockRelease(device->lock);
	GgResidentNotify(device);
}

/* ---- what a resident can be used for ------------------------------------------ */

static bool
SameSegments(const GgContents *contents, const GgMetaPageData *meta)
{
	if (contents->nsegments != meta->nsegments)
		return false;
	for (int i = 0; i < meta->nsegments; i++)
		if (contents->graphs[i] != GgGraphId(&meta->segments[i]))
			return false;
	return true;
}

/*
 * The number alone is not enough: a merge may have prepared a resident for a generation and failed,
 * and VACUUM then made another generation of that number.
 */
static bool
SameGeneration(const GgResident *resident, const GgMetaPageData *meta)
{
	return resident->key.generation == meta->generation &&
		SameSegments(&resident->now, meta);
}

static uint32
UncoveredPages(const GgResident *resident, const GgMetaPageData *meta)
{
	uint32		full = GgFullDeltaPages(meta);

	return full > resident->now.delta_pages ? full - resident->now.delta_pages : 0;
}

/* Has VACUUM cleared rows of the delta that the resident still has? */
static bool
HasClearedRows(const GgResident *resident, const GgMetaPageData *meta)
{
	return resident->now.delta_pages > 0 && resident->vacuum_epoch < meta->vacuum_epoch;
}

bool
GgIsCurrent(const GgResident *resident, const GgMetaPageData *meta)
{
	/* a generation ahead of the directory: its merge may have failed */
	if (resident->key.generation > meta->generation)
		return GgNowMicros() < resident->refreshed_us + GG_AHEAD_MS * UINT64CONST(1000);
	if (!SameGeneration(resident, meta))
		return false;
	return !HasClearedRows(resident, meta) && UncoveredPages(resident, meta) == 0;
}

/* Does a refresh pay now that a query needs the resident? */
static bool
RefreshPays(const GgResident *resident, const GgMetaPageData *meta)
{
	bool		same_generation = SameGeneration(resident, meta);
	uint64		patience_us = REFRESH_MIN_MS * UINT64CONST(1000);
	uint64		now = GgNowMicros();

	/* a new generation or cleared rows always count, a longer delta from REFRESH_PAGES on */
	if (same_generation && !HasClearedRows(resident, meta) &&
		UncoveredPages(resident, meta) < REFRESH_PAGES)
		return false;
	if (same_generation || SameSegments(&resident->now, meta))
		patience_us = Max(patience_us, (uint64) (resident->delta_s * 1e6 * REFRESH_PATIENCE));
	return now >= resident->retry_us && now >= resident->refreshed_us + patience_us;
}

/* Ask for a refresh of a READY entry, if it is due.  since_us: as in GgLookupOnce(). */
static void
AskForRefresh(GgDevice *device, GgResident *resident, const GgMetaPageData *meta, GgAsker asker,
			  uint64 since_us)
{
	bool		grow = asker != GG_ASKED_BY_QUERY && resident->now.forms.missing != 0 &&
		resident->began_us < since_us && resident->key.generation <= meta->generation;
	uint32		none = 0;

	if (pg_atomic_read_u32(&resident->refresh) != 0 || (GgIsCurrent(resident, meta) && !grow))
		return;
	if (asker == GG_ASKED_BY_QUERY && !RefreshPays(resident, meta))
		return;
	if (pg_atomic_compare_exchange_u32(&resident->refresh, &none, GG_REFRESH_WANTED))
	{
		/* nobody but the winner writes these; a load copies them once it sees WANTED */
		resident->fault = gg_fault;
		resident->forced = asker == GG_ASKED_BY_MAINTAINER;
		resident->grow = grow;
		GgResidentNotify(device);
	}
}

/* The scan is to use this version, which is of that generation. */
static void
ReferTo(int number, uint32 entry, const GgContents *contents, uint64 generation,
		const GgMetaPageData *meta, GgResidentRef *ref)
{
	ref->device = number;
	ref->entry = GgPlaceOf(entry, contents->version);
	ref->serial = contents->serial;
	ref->nsegments = contents->nsegments;
	ref->forms = contents->forms;

	/*
	 * A version made since the scan read the metapage may cover pages that the scan does not know.
	 * The scan measures the delta itself then.
	 */
	ref->delta_pages = 0;
	if (generation == meta->generation && contents->delta_first == GgDeltaFirst(meta) &&
		contents->delta_pages <= meta->delta_pages)
		ref->delta_pages = contents->delta_pages;
}

/* Use the version before the current one, while its directory is still in use. */
static bool
UsePrevious(int number, uint32 entry, const GgMetaPageData *meta, GgResidentRef *ref)
{
	const GgResident *resident = &gg_service->devices[number]->residents[entry];

	if (resident->previous.serial == 0 || !SameSegments(&resident->previous, meta) ||
		GgNowMicros() >= resident->refreshed_us + GG_AHEAD_MS * UINT64CONST(1000))
		return false;
	ReferTo(number, entry, &resident->previous, resident->previous_generation, meta, ref);
	return true;
}

/* The directory is now the one that the current version is for. */
static void
NoteFlip(GgResident *resident)
{
	if (resident->previous.serial != 0 && pg_atomic_read_u64(&resident->flipped_us) == 0)
		pg_atomic_write_u64(&resident->flipped_us, GgNowMicros());
}

/* A READY entry: true when the scan can use it. */
static bool
UseReady(int number, uint32 entry, const GgMetaPageData *meta, GgAsker asker, uint64 since_us,
		 GgResidentRef *ref, GgReason *reason)
{
	GgDevice   *device = gg_service->devices[number];
	GgResident *resident = &device->residents[entry];

	AskForRefresh(device, resident, meta, asker, since_us);
	if (!SameSegments(&resident->now, meta))
	{
		if (UsePrevious(number, entry, meta, ref))
			return true;
		/* with GG_REASON_LOADING a caller that waits would wait for ever */
		if (resident->failures > 0 && pg_atomic_read_u32(&resident->refresh) == 0)
			*reason = resident->reason;
		else if (resident->key.generation > meta->generation)
			*reason = GG_REASON_NOT_RESIDENT;
		else
			*reason = GG_REASON_LOADING;
		return false;
	}
	NoteFlip(resident);
	ReferTo(number, entry, &resident->now, resident->key.generation, meta, ref);
	return true;
}

/* ---- one look -------------------------------------------------------------------- */

/* What one device's table says of an index, the better the later. */
typedef enum Found
{
	FOUND_NOTHING,
	FOUND_FAILED,				/* a load failed, and may not be tried again yet */
	FOUND_RETRY,				/* a load failed long enough ago */
	FOUND_UNUSABLE,				/* for now; the obstacle says why */
	FOUND_USABLE
} Found;

/* A device's copy of an index, or what there is in its place. */
typedef struct Copy
{
	Found		found;
	GgResidentRef ref;			/* FOUND_USABLE */
	bool		current;		/* GgIsCurrent() */
	bool		part;			/* it has what others lack */
	uint32		waiting;		/* queries under way with the device */
	GgObstacle	obstacle;
} Copy;

static void
LookOnDevice(int number, Relation index, const GgMetaPageData *meta, GgAsker asker,
			 uint64 since_us, Copy *copy)
{
	GgDevice   *device = gg_service->devices[number];
	GgObstacle *obstacle = &copy->obstacle;
	int			entry = GgFindEntry(device, &GgLocator(index), meta->instance, GgDatabaseStamp());
	GgResident *resident;
	bool		failed_since;

	memset(copy, 0, sizeof(Copy));
	obstacle->reason = GG_REASON_FAILED;
	if (entry < 0)
		return;
	resident = &device->residents[entry];
	/* ALTER TABLE may give an index another oid and leave it its file; loaders go by the oid */
	if (resident->relation != RelationGetRelid(index))
	{
		resident->relation = RelationGetRelid(index);
		GgTagEntry(device, entry);
	}
	resident->devices = GgWishedDevices(index);
	obstacle->use = resident->use;
	obstacle->device = number;
	failed_since = since_us != 0 && resident->failed_us >= since_us;
	if (failed_since)
	{
		obstacle->failed = true;
		obstacle->cause = resident->reason;
		obstacle->corrupt = resident->corrupt;
		strlcpy(obstacle->error, resident->error, sizeof(obstacle->error));
	}
	copy->found = FOUND_UNUSABLE;
	switch (resident->state)
	{
		case GG_RESIDENT_READY:
			/* a caller that is about to report a failed refresh must not start one more */
			if (failed_since)
				asker = GG_ASKED_BY_QUERY;
			if (UseReady(number, entry, meta, asker, since_us, &copy->ref, &obstacle->reason))
				copy->found = FOUND_USABLE;
			else
				pg_atomic_fetch_add_u64(&resident->queries, 1);
			copy->current = GgIsCurrent(resident, meta);
			copy->part = resident->part;
			copy->waiting = pg_atomic_read_u32(&device->ring->waiting);
			break;
		case GG_RESIDENT_FAILED:
			pg_atomic_fetch_add_u64(&resident->queries, 1);
			obstacle->reason = resident->reason;
			copy->found = FOUND_RETRY;
			if (since_us != 0 ? failed_since : GgNowMicros() < resident->retry_us)
				copy->found = FOUND_FAILED;
			break;
		case GG_RESIDENT_EVICTING:
			obstacle->reason = GG_REASON_NOT_RESIDENT;
			break;
		default:
			obstacle->reason = GG_REASON_LOADING;
			break;
	}
}

/*
 * Is a device's copy better than the best one so far?  A usable one is better than any other.  Of
 * two usable ones gpugraph_prewarm() takes the one that is up to date.  Else these count, in turn:
 * to be no part, more segments, more of them with rows, fewer queries for the device's speed.
 */
static bool
IsBetter(const Copy *copy, const Copy *best, GgAsker asker)
{
	const GgForms *forms = &copy->ref.forms;
	const GgForms *of_best = &best->ref.forms;
	int			lacks = pg_popcount32(forms->missing) - pg_popcount32(of_best->missing);
	int			rowless = pg_popcount32(forms->rowless) - pg_popcount32(of_best->rowless);

	if (copy->found != best->found || best->found == FOUND_NOTHING)
		return copy->found > best->found;
	if (copy->found == FOUND_UNUSABLE)
		return copy->obstacle.reason == GG_REASON_LOADING &&
			best->obstacle.reason != GG_REASON_LOADING;
	if (copy->found != FOUND_USABLE)
		return true;
	if (asker != GG_ASKED_BY_QUERY && copy->current != best->current)
		return copy->current;
	if (copy->part != best->part)
		return best->part;
	if (lacks != 0 || rowless != 0)
		return lacks != 0 ? lacks < 0 : rowless < 0;
	/* each takes as long as its device's speed says */
	return (copy->waiting + 1) * (uint64) gg_service->devices[best->ref.device]->speed <
		(best->waiting + 1) * (uint64) gg_service->devices[copy->ref.device]->speed;
}

/* Have other devices asked for what the first one lacks, where they have it. */
static void
AddOthers(GgResidentRef *ref, const Copy *copies)
{
	for (int i = 0; i < gg_service->ndevices && ref->forms.missing != 0; i++)
	{
		const GgResidentRef *other = &copies[i].ref;
		uint32		lists;

		if (i == ref->device || copies[i].found != FOUND_USABLE)
			continue;
		lists = ref->forms.missing & ~other->forms.missing;
		if (lists == 0)
			continue;
		ref->others[ref->nothers++] = (GgResidentPart) {
			.device = i, .entry = other->entry, .serial = other->serial, .lists = lists
		};
		GgAddForms(&ref->forms, &other->forms, lists);
	}
}

/* Where the first device has all: others that have the same may share queries with it. */
static void
AddReplicas(GgResidentRef *ref, const Copy *copies)
{
	for (int i = 0; i < gg_service->ndevices && ref->forms.missing == 0 && ref->nothers == 0; i++)
	{
		const GgResidentRef *replica = &copies[i].ref;

		if (i != ref->device && copies[i].found == FOUND_USABLE &&
			memcmp(&replica->forms, &ref->forms, sizeof(GgForms)) == 0 &&
			replica->delta_pages == ref->delta_pages)
			ref->replicas[ref->nreplicas++] = (GgResidentPart) {
				.device = i, .entry = replica->entry, .serial = replica->serial
			};
	}
}

/* A query uses a copy.  Another index may have the entry by now, which does no harm. */
void
GgNoteUse(int number, uint32 place)
{
	GgDevice   *device = gg_service->devices[number];
	GgResident *resident = &device->residents[GgEntryOf(place)];

	pg_atomic_fetch_add_u64(&resident->queries, 1);
	pg_atomic_write_u64(&resident->used, pg_atomic_fetch_add_u64(&device->clock, 1) + 1);
}

/* No device has the index, or is loading it.  Have one load it, unless none may try again. */
static void
AskForLoad(Relation index, const GgMetaPageData *meta, GgAsker asker, const Copy *copies,
		   GgReason *reason)
{
	GgDevice   *device;
	bool		failed = false;
	int			number;

	/* the device with most room, or where it failed lately, one that may be tried again */
	device = GgChooseDevice(&number);
	if (device == NULL)
	{
		*reason = GG_REASON_NO_SERVICE;
		return;
	}
	if (copies[number].found != FOUND_NOTHING)
		device = NULL;
	for (int i = 0; i < gg_service->ndevices; i++)
	{
		failed |= copies[i].found != FOUND_NOTHING;
		if (copies[i].found == FOUND_RETRY && copies[number].found != FOUND_NOTHING)
			device = gg_service->devices[i];
	}
	if (device != NULL)
		Request(device, index, meta, asker);
	if (device != NULL || !failed)
		*reason = GG_REASON_LOADING;
}

bool
GgLookupOnce(Relation index, const GgMetaPageData *meta, GgAsker asker, uint64 since_us,
			 GgResidentRef *ref, GgObstacle *obstacle)
{
	const GgResidentRef before = *ref;
	Copy		best = {.obstacle.reason = GG_REASON_FAILED};
	Copy		copies[GG_MAX_DEVICES];

	for (int i = 0; i < gg_service->ndevices; i++)
	{
		GgDevice   *device = gg_service->devices[i];
		Copy	   *copy = &copies[i];

		copy->found = FOUND_NOTHING;
		if (!GgDeviceIsUp(device) || (before.avoid >> i & 1) != 0)
			continue;
		LWLockAcquire(device->lock, LW_SHARED);
		LookOnDevice(i, index, meta, asker, since_us, copy);
		LWLockRelease(device->lock);
		if (IsBetter(copy, &best, asker))
			best = *copy;
	}
	*obstacle = best.obstacle;
	if (best.found == FOUND_USABLE)
	{
		*ref = best.ref;
		ref->avoid = before.avoid;
		ref->answered = before.answered;
		ref->delta_answered = before.delta_answered;
		AddOthers(ref, copies);
		AddReplicas(ref, copies);
		GgNoteUse(ref->device, ref->entry);
		for (uint32 i = 0; i < ref->nothers; i++)
			GgNoteUse(ref->others[i].device, ref->others[i].entry);
		return true;
	}
	if (best.found < FOUND_UNUSABLE && before.avoid == 0)
		AskForLoad(index, meta, asker, copies, &obstacle->reason);
	return false;
}

void
GgNoteFlip(Relation index, const GgMetaPageData *meta)
{
	for (int i = 0; gg_service != NULL && i < gg_service->ndevices; i++)
	{
		GgDevice   *device = gg_service->devices[i];
		int			entry;

		LWLockAcquire(device->lock, LW_SHARED);
		entry = GgFindReady(device, index, meta);
		if (entry >= 0 && SameGeneration(&device->residents[entry], meta))
			NoteFlip(&device->residents[entry]);
		LWLockRelease(device->lock);
	}
}

bool
GgIsServed(Relation index, const GgMetaPageData *meta)
{
	bool		served = false;

	for (int i = 0; gg_service != NULL && i < gg_service->ndevices && !served; i++)
	{
		GgDevice   *device = gg_service->devices[i];

		if (!GgDeviceIsUp(device))
			continue;
		LWLockAcquire(device->lock, LW_SHARED);
		served = GgFindReady(device, index, meta) >= 0;
		LWLockRelease(device->lock);
	}
	return served;
}

/* ---- queries ---------------------------------------------------------------------- */

bool
GgMayHaveCopies(void)
{
	return gg_service->ndevices > 1;
}

bool
GgAskAnother(GgResidentRef *ref, GgReason reason)
{
	if (reason == GG_REASON_NOT_RESIDENT)
		return true;
	if ((reason != GG_REASON_FAILED && reason != GG_REASON_NO_SERVICE &&
		 reason != GG_REASON_BUSY) || gg_service->ndevices == 1)
		return false;
	ref->avoid |= (uint32) 1 << ref->failed;
	return true;
}

bool
GgCanBeResident(Relation index, const GgMetaPageData *meta, GgReason *reason)
{
	if (gg_service == NULL)
	{
		*reason = GG_REASON_NO_SERVICE;
		return false;
	}
	if (GgIsLocal(index))
	{
		*reason = GG_REASON_LOCAL;
		return false;
	}
	if (GgFullDeltaPages(meta) == 0 && GgCountNodes(meta) == 0)
	{
		*reason = GG_REASON_SMALL;
		return false;
	}
	return true;
}

/*
 * A transaction that has locked the index for itself keeps the loader out, too, so it must not wait
 * for the load.
 */
bool
GgKeepsLoadersOut(Relation index)
{
	return CheckRelationLockedByMe(index, AccessExclusiveLock, false);
}

/*
 * Waits for the lock of the load, so that the deadlock detector knows of the wait: another process
 * may wait for this one's lock on the index, and the loader behind that process.  Where nobody
 * holds the load's lock, the loader has not started yet, or the rest is up to the worker, which
 * waits for no lock.  Then a short sleep is enough.
 */
void
GgWaitForLoad(Relation index, const GgObstacle *obstacle)
{
	LOCKTAG		tag = GgLoadLock(RelationGetRelid(index), obstacle->use, obstacle->device);

	if (obstacle->use != 0)
	{
		if (LockAcquire(&tag, ShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		{
			/* lock_timeout is meant for waits of another kind */
			int			level = NewGUCNestLevel();

			(void) set_config_option("lock_timeout", "0", PGC_USERSET, PGC_S_SESSION,
									 GUC_ACTION_SAVE, true, 0, false);
			(void) LockAcquire(&tag, ShareLock, false, false);
			AtEOXact_GUC(true, level);
		}
		LockRelease(&tag, ShareLock, false);
	}
	GgLoadSleep(LOOK_MS);
}

/*
 * Will a device have the index after a wait?  Yes, too, where it has a generation ahead of the
 * directory, or one that is on its way out: if that merge has failed, the index is loaded anew.
 * No, where the caller's directory is no longer in use.
 */
static bool
IsComing(Relation index, const GgMetaPageData *meta, GgReason reason)
{
	return reason == GG_REASON_LOADING ||
		(reason == GG_REASON_NOT_RESIDENT && !GgHasNewGeneration(index, meta));
}

bool
GgResidentLookup(Relation index, const GgMetaPageData *meta, GgResidentRef *ref, GgReason *reason)
{
	GgObstacle	obstacle;

	if (!GgCanBeResident(index, meta, reason))
		return false;
	for (;;)
	{
		if (GgLookupOnce(index, meta, GG_ASKED_BY_QUERY, 0, ref, &obstacle))
			return true;
		if (gg_engine_setting != GG_ENGINE_CUDA || ref->avoid != 0 ||
			!IsComing(index, meta, obstacle.reason))
			break;
		if (GgKeepsLoadersOut(index))
		{
			obstacle.reason = GG_REASON_LOCAL;
			break;
		}
		GgWaitForLoad(index, &obstacle);
	}
	*reason = obstacle.reason;
	return false;
}
