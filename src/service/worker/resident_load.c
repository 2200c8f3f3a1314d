/*
 * resident_load.c
 *		How an index comes to a device: the loads under way, the worker's side.
 *
 * The worker's main thread does all of this in GgLoadsWork(), which never waits: every turn looks
 * at the words of the loads under way (load.h), moves on what can be moved, and leaves the rest
 * for the next turn.  A load is given to a loader, which reads the pages (loader.c).  It is
 * granted its memory (memory.c) and filled by the upload thread (upload.c), and its lists become
 * a version of the entry's resident, the first or a refresh's.  When it fails, its entry says why
 * and when it may be tried again.  An owner that dies is noticed here, and what it held is given
 * up.
 */
#include "service/loader/handover.h"
#include "service/worker/worker.h"

#include <ctype.h>

#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/memutils.h"

/*
 * When a load that failed is tried again: after 5 s to a minute; what is too large for the limit,
 * after a minute; what found no room just now, after a second; what failed quietly, after 0.1 s.
 */
#define RETRY_MIN_MS	5000
#define RETRY_MAX_MS	60000
#define NO_ROOM_RETRY_MS 1000
#define QUIET_RETRY_MS	100

/* A loader that was sent away is gone after this time. */
#define SENT_AWAY_US	5000000

/* Is a load the first one of a replica or of a part?  Nobody waits for it. */
static bool
IsNewReplica(const GgLoadJob *job)
{
	return (job->replica || job->part) && !job->refresh;
}

/* ---- from WANTED to a loader ----------------------------------------------------- */

/* Set why a load failed, unless another process was first, and have it given up. */
static void
FailLoad(GgLoadJob *job, uint32 serial, const char *error)
{
	if (job->error[0] == '\0' && !job->quiet)
	{
		job->reason = GG_REASON_FAILED;
		strlcpy(job->error, error, sizeof(job->error));
	}
	GgWordFlag(&job->word, serial, GG_LOAD_ABORT | GG_LOAD_ORPHAN);
}

/* Give the load to the loader that stays, if it has the right database. */
static bool
GiveToStaying(GgDevice *device, int load, uint32 serial)
{
	GgStayingLoader *staying = &device->staying;
	GgLoadJob  *job = &device->loads_under_way[load];
	uint64		word = pg_atomic_read_u64(&staying->word);
	int			procno;

	pg_read_barrier();
	if (GgStayWordState(word) != GG_STAY_READY || staying->database != job->database)
		return false;
	procno = staying->procno;
	job->owner = (int32) GgStayWordWhat(word);
	if (!pg_atomic_compare_exchange_u64(&staying->word, &word,
										GgStayWord(serial, load, GG_STAY_TAKEN)))
	{
		job->owner = 0;
		return false;
	}
	SetLatch(&GetPGProcByNumber(procno)->procLatch);
	return true;
}

/*
 * No background worker is free.  Have the loader that stays leave, which has one; true while a
 * loader that was sent away may be on its way out.
 */
static bool
SendStayingAway(GgWorker *worker)
{
	GgStayingLoader *staying = &worker->device->staying;
	uint64		word = pg_atomic_read_u64(&staying->word);
	uint64		now_us = GgNowMicros();
	int			procno;

	pg_read_barrier();
	procno = staying->procno;
	if (GgStayWordState(word) == GG_STAY_READY &&
		pg_atomic_compare_exchange_u64(&staying->word, &word, GG_STAY_SENT))
	{
		SetLatch(&GetPGProcByNumber(procno)->procLatch);
		worker->sent_away_us = now_us;
	}
	return worker->sent_away_us > 0 && now_us - worker->sent_away_us < SENT_AWAY_US;
}

static void
StartLoader(GgWorker *worker, int load)
{
	GgLoadJob  *job = &worker->device->loads_under_way[load];
	GgLoadWatch *watch = &worker->loads[load];
	uint32		serial = GgWordSerial(GgReadWord(&job->word));
	MemoryContext old;

	memset(watch, 0, sizeof(GgLoadWatch));
	if (GiveToStaying(worker->device, load, serial))
		return;
	old = MemoryContextSwitchTo(TopMemoryContext);
	if (!GgStartLoader(worker->number, load, serial, false, &watch->handle))
	{
		watch->handle = NULL;
		/* quietly while one becomes free: who asked for the load asks again */
		job->quiet = SendStayingAway(worker);
		FailLoad(job, serial,
				 "no background worker is free to load it: raise max_worker_processes");
	}
	MemoryContextSwitchTo(old);
}

/* A load or refresh for an entry that wants one; -1 when it wants none, or all are taken. */
static int
TakeWanted(GgDevice *device, uint32 entry)
{
	GgResident *resident = &device->residents[entry];
	bool		wanted = resident->state == GG_RESIDENT_WANTED;
	bool		refresh = resident->state == GG_RESIDENT_READY &&
		pg_atomic_read_u32(&resident->refresh) == GG_REFRESH_WANTED;
	int			load;

	if (!wanted && !refresh)
		return -1;
	load = GgTakeLoad(device, entry, refresh, 0);
	if (load >= 0 && refresh)
		pg_atomic_write_u32(&resident->refresh, GG_REFRESH_LOADING);
	else if (load >= 0)
		resident->state = GG_RESIDENT_LOADING;
	return load;
}

static void
StartLoads(GgWorker *worker)
{
	GgDevice   *device = worker->device;
	uint32		n = pg_atomic_read_u32(&device->nresidents);

	for (uint32 entry = 0; entry < n; entry++)
	{
		GgResident *resident = &device->residents[entry];
		int			load;

		/* looked at without the lock first: most of the time there is nothing */
		if (resident->state != GG_RESIDENT_WANTED &&
			!(resident->state == GG_RESIDENT_READY &&
			  pg_atomic_read_u32(&resident->refresh) == GG_REFRESH_WANTED))
			continue;
		LWLockAcquire(device->lock, LW_EXCLUSIVE);
		load = TakeWanted(device, entry);
		LWLockRelease(device->lock);
		if (load >= 0)
		{
			StartLoader(worker, load);
			worker->busy = true;
		}
	}
}

/* ---- the end of a load ------------------------------------------------------------- */

static void
Ungrant(GgWorker *worker, int load)
{
	GgSetUsed(worker, worker->used_bytes - worker->loads[load].bytes);
	worker->loads[load].bytes = worker->loads[load].host_bytes = 0;
}

/* The load is over and its entry says so; the owner may look, then the load is free. */
static void
EndLoad(GgWorker *worker, int load, uint32 serial)
{
	GgLoadJob  *job = &worker->device->loads_under_way[load];

	Ungrant(worker, load);
	worker->loads[load].evicted_more = false;
	worker->loads[load].no_codes = worker->loads[load].no_host = false;
	worker->loads[load].most = 0;
	pg_write_barrier();
	(void) (GgWordMove(&job->word, serial, GG_LOAD_ASSIGNED, GG_LOAD_ENDED) ||
			GgWordMove(&job->word, serial, GG_LOAD_SHAPED, GG_LOAD_ENDED) ||
			GgWordMove(&job->word, serial, GG_LOAD_BROKEN, GG_LOAD_ENDED) ||
			GgWordMove(&job->word, serial, GG_LOAD_DONE, GG_LOAD_ENDED));
}

/* Is this another error than before?  Sizes change from try to try; that is not another error. */
static bool
IsNewCause(const char *before, const char *now)
{
	while (*before != '\0' || *now != '\0')
	{
		while (isdigit((unsigned char) *before))
			before++;
		while (isdigit((unsigned char) *now))
			now++;
		if (*before != *now)
			return true;
		if (*now != '\0')
		{
			before++;
			now++;
		}
	}
	return false;
}

/*
 * A refresh found no memory beside the version that it was to replace.  Is that version of so
 * little use that it should make room for a load?  Where the segments are others now, or only the
 * delta is left and numbered anew, it answers nothing.  Where it lacks more of the delta than it
 * has, the CPU does most of the work.
 */
static bool
IsOfLittleUse(const GgResident *resident, const GgLoadJob *job)
{
	return !GgHasGraphsOf(resident, job) ||
		(job->nsegments == 0 && resident->key.generation != job->key.generation) ||
		job->delta_pages / 2 > resident->now.delta_pages;
}

/*
 * Note in the entry how a load failed, and when it may be tried again.  True: it is another error
 * than before.
 */
static bool
NoteFailure(GgResident *resident, const GgLoadJob *job, bool no_room)
{
	int64		retry_ms = RETRY_MIN_MS << Min(resident->failures, 4);
	bool		news = IsNewCause(resident->error, job->error);

	if (no_room)
		retry_ms = NO_ROOM_RETRY_MS;
	else if (job->reason == GG_REASON_MEMORY)
		retry_ms = RETRY_MAX_MS;
	strlcpy(resident->error, job->error, sizeof(resident->error));
	resident->reason = job->reason;
	resident->corrupt = job->corrupt;
	resident->failures++;
	resident->failed_at = GetCurrentTimestamp();
	resident->failed_us = GgNowMicros();
	resident->retry_us = resident->failed_us + Min(retry_ms, RETRY_MAX_MS) * 1000;
	return news;
}

/*
 * A refresh failed.  The version that is there is used as before, as a rule.  True: its resident
 * is of no use any more and is to go, as is a replica that has no room any more.
 */
static bool
RefreshFailed(GgResident *resident, const GgLoadJob *job)
{
	pg_atomic_write_u32(&resident->refresh, 0);
	/* quietly, too, where other devices have all that the part would have */
	if (job->quiet)
		return job->key.instance != resident->key.instance ||
			job->key.database != resident->key.database ||
			(job->part && !job->ahead && IsOfLittleUse(resident, job));
	return job->reason == GG_REASON_MEMORY && !job->ahead &&
		(resident->replica || IsOfLittleUse(resident, job));
}

static void
LoadFailed(GgWorker *worker, int load, uint32 serial, bool no_room)
{
	GgDevice   *device = worker->device;
	GgLoadJob  *job = &device->loads_under_way[load];
	GgResident *resident = &device->residents[job->entry];
	bool		news = false;
	bool		forget = false;
	char		name[160];

	if (job->error[0] == '\0')
		strlcpy(job->error, "its loader ended early", sizeof(job->error));
	job->quiet |= IsNewReplica(job);
	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	if (resident->use == job->use)
	{
		if (job->quiet)
			resident->retry_us = GgNowMicros() + QUIET_RETRY_MS * UINT64CONST(1000);
		else
			news = NoteFailure(resident, job, no_room);
		if (job->grow)
			resident->grow_us = GgNowMicros() + RETRY_MIN_MS * UINT64CONST(1000);
		resident->forced = resident->grow = false;
		if (job->refresh)
			forget = RefreshFailed(resident, job);
		else if (resident->state == GG_RESIDENT_LOADING)
			resident->state = job->quiet ? GG_RESIDENT_FREE : GG_RESIDENT_FAILED;
	}
	LWLockRelease(device->lock);

	if (!job->quiet)
		device->stats.failed_loads++;
	if (news)
		ereport(LOG,
				(job->corrupt ? errcode(ERRCODE_INDEX_CORRUPTED) : 0,
				 errmsg("gpugraph device %d: could not %s %s: %s", device->number,
						job->refresh ? "refresh" : "load",
						GgNameOf(name, sizeof(name), job->name, job->database, job->relation),
						job->error),
				 errdetail("The CPU answers its queries.")));
	if (forget)
		GgForgetEntry(device, job->entry, job->use);
	EndLoad(worker, load, serial);
}

/* ---- from SHAPED to DONE ------------------------------------------------------------- */

static void
FailForRoom(GgWorker *worker, int load, uint32 serial)
{
	GgLoadJob  *job = &worker->device->loads_under_way[load];
	uint64		bytes = GgLeastBytes(worker, job);
	bool		ever_fits = bytes <= GgLimitBytes(worker);
	char		need[32],
				limit[32];

	job->reason = GG_REASON_MEMORY;
	GgFormatBytes(need, sizeof(need), bytes);
	GgFormatBytes(limit, sizeof(limit), GgLimitBytes(worker));
	if (ever_fits)
		snprintf(job->error, sizeof(job->error),
				 "it needs %s of device memory, and of %s too little is free or has not been used "
				 "for long enough", need, limit);
	else
		snprintf(job->error, sizeof(job->error),
				 "it needs %s of device memory, gpugraph.device_memory allows %s", need, limit);
	LoadFailed(worker, load, serial, ever_fits);
}

/* Room for the whole, or for a part of it. */
static GgRoom
FindRoom(GgWorker *worker, int load, uint64 *bytes)
{
	GgLoadJob  *job = &worker->device->loads_under_way[load];
	uint64		most = worker->loads[load].most;
	GgRoom		room = GgFindForm(worker, load, most, bytes);

	if (room != GG_ROOM_NONE || (IsNewReplica(job) && !job->part))
		return room;
	job->partial = true;
	if (!GgLeaveOut(worker, job, Min(GgAvailableBytes(worker, job),
									 most > 0 ? most : PG_UINT64_MAX)))
		return GgTrimForDelta(worker, job, GgLoadBytes(worker, job));
	*bytes = GgLoadBytes(worker, job);
	return GgMakeRoom(worker, job, *bytes);
}

/*
 * As FindRoom(), but the delta of a merge's load is left out where others had to give way to it.
 */
static GgRoom
FindRoomFor(GgWorker *worker, int load, uint64 *bytes)
{
	GgLoadJob  *job = &worker->device->loads_under_way[load];

	/* the builder brings none of the delta, but the next refresh does */
	if (job->ahead && job->delta_kept > 0 &&
		GgTakenBytes(worker) + GgLoadBytes(worker, job) > GgLimitBytes(worker))
		GgDropDelta(job);
	return FindRoom(worker, load, bytes);
}

/* Rows of so many pages of a load's delta. */
static uint32
RowsOf(const GgLoadJob *job, uint32 pages)
{
	return (uint32) ((uint64) job->lists[job->nsegments].n * pages / job->delta_pages);
}

/* Pin the version that the first rows of the delta come from, until they were copied. */
static void
PinDelta(GgWorker *worker, int load)
{
	GgLoadJob  *job = &worker->device->loads_under_way[load];
	GgLoadWatch *watch = &worker->loads[load];
	const GgResident *resident = &worker->device->residents[job->entry];
	GgResidentVersion *version = NULL;
	gg_index   *from = NULL;

	GgUploadDelta(worker->upload, load, NULL, 0, 0);
	if (job->delta_kept == 0)
		return;
	watch->place = GgPlaceOf(job->entry, resident->now.version);
	version = GgResidentPin(worker, watch->place, job->delta_serial);
	watch->pinned = version != NULL;
	if (version != NULL && version->nlists > resident->now.nsegments)
		from = version->lists[resident->now.nsegments];
	if (from != NULL)
		GgUploadDelta(worker->upload, load, from, RowsOf(job, job->delta_skip),
					  RowsOf(job, job->delta_kept));
	else if (job->ahead)
		GgDropDelta(job);
	else
		job->delta_kept = 0;
}

static void
UnpinDelta(GgWorker *worker, int load)
{
	GgLoadWatch *watch = &worker->loads[load];

	if (watch->pinned)
		GgResidentUnpin(worker, watch->place);
	watch->pinned = false;
}

/* SHAPED: find room, and have the upload thread take the memory. */
static void
GrantLoad(GgWorker *worker, int load, uint32 serial)
{
	GgLoadJob  *job = &worker->device->loads_under_way[load];
	uint64		bytes;

	if (worker->loads[load].evicted_more && GgOutgoingBytes(worker) > 0)
	{
		worker->busy = true;
		return;
	}
	if (!GgLeaveToOthers(worker, job))
	{
		job->quiet = true;
		LoadFailed(worker, load, serial, false);
		return;
	}
	job->partial |= job->part;
	switch (FindRoomFor(worker, load, &bytes))
	{
		case GG_ROOM_THERE:
			worker->loads[load].bytes = bytes;
			GgSetUsed(worker, worker->used_bytes + bytes);
			PinDelta(worker, load);
			if (GgWordMove(&job->word, serial, GG_LOAD_SHAPED, GG_LOAD_CREATE))
				GgUploadKick(worker->upload);
			break;
		case GG_ROOM_SOON:
			worker->busy = true;
			break;
		case GG_ROOM_NONE:
			FailForRoom(worker, load, serial);
			break;
	}
}

/*
 * BROKEN: the upload thread gave up.  The device may have less memory than the limit says: evict
 * more and try again, then with one segment less each time.
 */
static void
LoadBroken(GgWorker *worker, int load, uint32 serial)
{
	GgLoadJob  *job = &worker->device->loads_under_way[load];
	GgLoadWatch *watch = &worker->loads[load];
	const gg_status *status = GgUploadStatus(worker->upload, load);
	bool		memory = status->code == GG_EDEVICE_MEMORY || status->code == GG_ENOMEM;

	if (GgUploadFoundUnfit(worker->upload, load))
	{
		/* the next load takes another form */
		GgRefuseHalves(worker, job->key.instance);
		job->quiet = true;
	}
	else if (GgTryOtherForm(worker, load, status->code))
	{
		Ungrant(worker, load);
		if (GgWordMove(&job->word, serial, GG_LOAD_BROKEN, GG_LOAD_SHAPED))
			return;
	}
	if (memory && !watch->evicted_more && job->fault != GG_FAULT_DEVICE_MEMORY)
	{
		uint64		limit = GgLimitBytes(worker);
		uint64		unused = limit - Min(limit, GgTakenBytes(worker));

		watch->evicted_more = true;
		if (GgMakeRoom(worker, job, unused + watch->bytes) != GG_ROOM_NONE)
		{
			Ungrant(worker, load);
			if (GgWordMove(&job->word, serial, GG_LOAD_BROKEN, GG_LOAD_SHAPED))
				return;
		}
	}
	if (memory && job->fault != GG_FAULT_DEVICE_MEMORY && GgMayLeaveOut(job) &&
		!(IsNewReplica(job) && !job->part))
	{
		watch->evicted_more = true;
		watch->most = GgLoadBytes(worker, job) - 1;
		Ungrant(worker, load);
		if (GgWordMove(&job->word, serial, GG_LOAD_BROKEN, GG_LOAD_SHAPED))
			return;
	}
	if (status->code == GG_EDEVICE)
		worker->upload_status = *status;
	if (job->error[0] == '\0')
	{
		job->reason = memory ? GG_REASON_MEMORY : GG_REASON_FAILED;
		strlcpy(job->error, status->message, sizeof(job->error));
	}
	LoadFailed(worker, load, serial, false);
}

/* ---- from DONE to READY -------------------------------------------------------------- */

/* The handle that a version has for a segment; NULL when it has none. */
static gg_index **
FindList(GgResidentVersion *version, const GgResident *resident, uint32 graph)
{
	for (uint32 i = 0; i < resident->now.nsegments && version->live; i++)
		if (resident->now.graphs[i] == graph && version->lists[i] != NULL)
			return &version->lists[i];
	return NULL;
}

/*
 * Does the entry still wait for this load, and has its version all that the load left out?  The
 * lock is held.
 */
static bool
IsStillWanted(GgWorker *worker, const GgLoadJob *job)
{
	const GgResident *resident = &worker->device->residents[job->entry];
	GgResidentVersion *old = GgCurrentVersion(worker, job->entry);

	if (resident->use != job->use ||
		resident->state != (job->refresh ? GG_RESIDENT_READY : GG_RESIDENT_LOADING))
		return false;
	for (uint32 i = 0; i < job->nlists; i++)
		if (job->lists[i].kept && job->lists[i].n > 0 &&
			FindList(old, resident, job->lists[i].graph) == NULL)
			return false;
	return true;
}

/* Note of a version's list what form it has. */
static void
NoteForm(GgResidentVersion *version, uint32 i, const GgLoadList *list)
{
	const gg_shape *shape = &list->shape;

	version->host_bytes[i] = GgHostBytes(shape);
	if (shape->codes != GG_CODES_NONE)
		version->forms.coded |= (uint32) 1 << i;
	if (shape->row_place == GG_ROWS_NONE)
		version->forms.rowless |= (uint32) 1 << i;
	if (list->halved)
		version->forms.halved |= (uint32) 1 << i;
}

/* Note of a version's list the form that it had in the old version. */
static void
KeepForm(GgResidentVersion *version, uint32 i, const GgResidentVersion *old, uint32 before)
{
	version->host_bytes[i] = old->host_bytes[before];
	version->forms.coded |= (old->forms.coded >> before & 1) << i;
	version->forms.rowless |= (old->forms.rowless >> before & 1) << i;
	version->forms.halved |= (old->forms.halved >> before & 1) << i;
}

/* Make the new version from the lists that were loaded and those that the old one has. */
static void
FillVersion(GgWorker *worker, const GgLoadJob *job, gg_index **lists, int64 now_ms)
{
	GgDevice   *device = worker->device;
	const GgResident *resident = &device->residents[job->entry];
	GgResidentVersion *old = &worker->versions[job->entry][resident->now.version];
	GgResidentVersion *version = &worker->versions[job->entry][1 - resident->now.version];

	version->live = true;
	version->serial = ++device->last_serial;
	version->nlists = job->nlists;
	version->forms = (GgForms) {0};
	for (uint32 i = 0; i < job->nlists; i++)
	{
		gg_index  **kept = NULL;

		if (job->lists[i].kept)
			kept = FindList(old, resident, job->lists[i].graph);
		version->owned[i] = true;
		version->lists[i] = kept != NULL ? *kept : lists[i];
		if (kept != NULL)
		{
			uint32		before = (uint32) (kept - old->lists);

			old->owned[before] = false;
			KeepForm(version, i, old, before);
		}
		else if (lists[i] != NULL)
			NoteForm(version, i, &job->lists[i]);
		version->list_bytes[i] = 0;
		if (version->lists[i] != NULL)
			version->list_bytes[i] = worker->engine->index_bytes(version->lists[i]);
		version->bytes += version->list_bytes[i];
		if (!job->lists[i].left_out)
			continue;
		version->forms.missing |= (uint32) 1 << i;
		version->list_bytes[i] = worker->engine->shape_bytes(&job->lists[i].shape);
	}
	if (!old->live)
		return;
	old->bytes = 0;
	for (uint32 i = 0; i < old->nlists; i++)
		if (old->owned[i] && old->lists[i] != NULL)
			old->bytes += worker->engine->index_bytes(old->lists[i]);
	old->replaced = true;
	old->ahead = job->ahead;
	old->replaced_ms = now_ms;
}

/* Before the switch: note the version that queries with the old directory go on to use. */
static void
NotePrevious(GgResident *resident, const GgLoadJob *job)
{
	pg_atomic_write_u64(&resident->flipped_us, 0);
	resident->previous = resident->now;
	resident->previous_generation = resident->key.generation;
	if (!job->ahead)
		resident->previous.serial = 0;
}

/* What the new version lacks, when it may grow, and when it may be evicted.  The lock is held. */
static void
NoteMissing(GgResident *resident, const GgResidentVersion *version, const GgLoadJob *job,
			bool refused, double seconds)
{
	uint64		now_us = GgNowMicros();
	bool		grown = job->grow && version->forms.missing != resident->previous.forms.missing;

	if (grown || !job->refresh)
		resident->rested_us = now_us + (uint64) (seconds * GG_REST * 1e6);
	resident->grow_us = 0;
	if (refused)
		resident->grow_us = now_us + RETRY_MAX_MS * UINT64CONST(1000);
	else if (job->grow && !grown)
		resident->grow_us = now_us + RETRY_MIN_MS * UINT64CONST(1000);
	resident->missing_bytes = 0;
	for (uint32 i = 0; i < job->nsegments; i++)
		if (version->forms.missing >> i & 1)
			resident->missing_bytes += version->list_bytes[i];
}

/* Have queries go to the new version.  The lock is held. */
static void
SwitchEntry(GgWorker *worker, const GgLoadJob *job, double seconds, double delta_share)
{
	GgDevice   *device = worker->device;
	GgResident *resident = &device->residents[job->entry];
	TimestampTz now = GetCurrentTimestamp();
	uint64		now_us = GgNowMicros();

	NotePrevious(resident, job);
	resident->now.version = 1 - resident->now.version;
	resident->now.serial = GgCurrentVersion(worker, job->entry)->serial;
	GgNoteVersion(resident, GgCurrentVersion(worker, job->entry));
	resident->key = job->key;
	GgTagEntry(device, job->entry);
	strlcpy(resident->name, job->name, sizeof(resident->name));
	resident->now.nsegments = job->nsegments;
	for (uint32 i = 0; i < job->nsegments; i++)
		resident->now.graphs[i] = job->lists[i].graph;
	resident->now.delta_first = job->delta_first;
	resident->now.delta_pages = job->delta_pages;
	resident->vacuum_epoch = job->vacuum_epoch;
	resident->error[0] = '\0';
	resident->failures = 0;
	resident->forced = resident->grow = false;
	resident->refreshed_at = now;
	resident->refreshed_us = now_us;
	resident->began_us = job->began_us;
	resident->delta_s = seconds * delta_share;
	if (job->refresh)
	{
		resident->refresh_s = seconds;
		resident->refreshes++;
	}
	else
	{
		resident->loaded_at = now;
		resident->load_s = seconds;
		/* a query asked for it a moment ago */
		pg_atomic_write_u64(&resident->used, pg_atomic_fetch_add_u64(&device->clock, 1));
	}
	pg_atomic_write_u32(&resident->refresh, 0);
	resident->state = GG_RESIDENT_READY;
}

/* Which share of the loaded bytes is the delta's.  What a merge brings of it takes no time. */
static double
DeltaShare(const gg_engine *engine, const GgLoadJob *job, gg_index **lists)
{
	uint64		loaded = 0,
				delta = 0;

	for (uint32 i = 0; i < job->nlists && !job->ahead; i++)
	{
		uint64		bytes = lists[i] != NULL ? engine->index_bytes(lists[i]) : 0;

		loaded += bytes;
		if (job->lists[i].segment == GG_NO_SEGMENT)
			delta += bytes;
	}
	return loaded > 0 ? (double) delta / loaded : 0;
}

/* Memory granted to the load belongs to a version now, which may take less: count all anew. */
static void
CountUsed(GgWorker *worker)
{
	uint64		bytes = worker->graph_bytes;

	for (uint32 entry = 0; entry < pg_atomic_read_u32(&worker->device->nresidents); entry++)
		for (int v = 0; v < 2; v++)
			bytes += worker->versions[entry][v].bytes;
	for (int i = 0; i < GG_MAX_LOADS; i++)
		bytes += worker->loads[i].bytes;
	GgSetUsed(worker, bytes);
}

static void
LogLoaded(GgWorker *worker, const GgLoadJob *job, double seconds)
{
	GgDevice   *device = worker->device;
	char		name[160],
				size[32];

	if (job->refresh)
		device->stats.refreshes++;
	else
	{
		device->stats.loads++;
		worker->residents_changed = true;
	}
	ereport(job->refresh ? DEBUG1 : LOG,
			(errmsg("gpugraph device %d: %s %s, %s in %.3f s", device->number,
					job->refresh ? "refreshed" : "loaded",
					GgNameOf(name, sizeof(name), job->name, job->database, job->relation),
					GgFormatBytes(size, sizeof(size), GgCurrentVersion(worker, job->entry)->bytes),
					seconds)));
}

/* DONE: the new version replaces the entry's old one, if any. */
static void
Publish(GgWorker *worker, int load, uint32 serial, int64 now_ms)
{
	GgDevice   *device = worker->device;
	GgLoadJob  *job = &device->loads_under_way[load];
	double		seconds = (GgNowMicros() - job->began_us) / 1e6;
	gg_index   *lists[GG_SERVE_MAX_LISTS];
	double		delta_share;
	bool		wanted;

	if (worker->versions[job->entry][1 - device->residents[job->entry].now.version].live)
	{
		worker->busy = true;	/* a query of two refreshes ago is still in flight */
		return;
	}
	GgUploadTake(worker->upload, load, lists);
	delta_share = DeltaShare(worker->engine, job, lists);

	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	wanted = IsStillWanted(worker, job);
	if (wanted)
	{
		FillVersion(worker, job, lists, now_ms);
		worker->loads[load].bytes = worker->loads[load].host_bytes = 0;
		SwitchEntry(worker, job, seconds, delta_share);
		NoteMissing(&device->residents[job->entry], GgCurrentVersion(worker, job->entry), job,
					worker->loads[load].most > 0, seconds);
	}
	LWLockRelease(device->lock);

	if (!wanted)
	{
		for (int i = 0; i < GG_SERVE_MAX_LISTS; i++)
			GgUploadClose(worker->upload, lists[i]);
		job->quiet = true;
		LoadFailed(worker, load, serial, false);
		return;
	}
	CountUsed(worker);
	LogLoaded(worker, job, seconds);
	EndLoad(worker, load, serial);
}

/* ---- all loads ---------------------------------------------------------------------- */

static bool
OwnerIsGone(const GgLoadJob *job, const GgLoadWatch *watch)
{
	pid_t		pid;

	if (job->owner != 0)
		return BackendPidGetProc(job->owner) == NULL;
	return watch->handle == NULL || GetBackgroundWorkerPid(watch->handle, &pid) == BGWH_STOPPED;
}

/* A load whose owner is gone is given up, or finished without it. */
static void
WatchOwner(GgWorker *worker, int load, uint64 word)
{
	GgLoadJob  *job = &worker->device->loads_under_way[load];
	uint32		serial = GgWordSerial(word);

	if ((word & GG_LOAD_ORPHAN) || !OwnerIsGone(job, &worker->loads[load]))
		return;

	/* the owner may have moved the load on just before its end */
	switch (GgWordState(GgReadWord(&job->word)))
	{
		case GG_LOAD_ASSIGNED:
		case GG_LOAD_SHAPED:
		case GG_LOAD_CREATE:
		case GG_LOAD_OPEN:
			FailLoad(job, serial, "its loader ended early");
			GgUploadKick(worker->upload);
			break;
		default:
			GgWordFlag(&job->word, serial, GG_LOAD_ORPHAN);
			break;
	}
}

static void
MoveLoad(GgWorker *worker, int load, int64 now_ms)
{
	GgLoadJob  *job = &worker->device->loads_under_way[load];
	GgLoadWatch *watch = &worker->loads[load];
	uint64		word = GgReadWord(&job->word);
	uint32		serial = GgWordSerial(word);

	WatchOwner(worker, load, word);
	word = GgReadWord(&job->word);
	if (GgWordState(word) != GG_LOAD_CREATE)
		UnpinDelta(worker, load);
	switch (GgWordState(word))
	{
		case GG_LOAD_ASSIGNED:
			if (word & GG_LOAD_ABORT)
				LoadFailed(worker, load, serial, false);
			break;
		case GG_LOAD_SHAPED:
			if (word & GG_LOAD_ABORT)
				LoadFailed(worker, load, serial, false);
			else
				GrantLoad(worker, load, serial);
			break;
		case GG_LOAD_BROKEN:
			LoadBroken(worker, load, serial);
			break;
		case GG_LOAD_DONE:
			Publish(worker, load, serial, now_ms);
			break;
		default:
			break;
	}
	word = GgReadWord(&job->word);
	if (GgWordState(word) == GG_LOAD_ENDED && (word & GG_LOAD_ORPHAN))
	{
		if (watch->handle != NULL)
			pfree(watch->handle);
		watch->handle = NULL;
		pg_atomic_write_u64(&job->word, GgWordOf(serial, GG_LOAD_FREE));
	}
}

void
GgLoadsWork(GgWorker *worker, int64 now_ms)
{
	for (int i = 0; i < GG_MAX_LOADS; i++)
		if (GgWordState(GgReadWord(&worker->device->loads_under_way[i].word)) != GG_LOAD_FREE)
		{
			worker->busy = true;
			MoveLoad(worker, i, now_ms);
		}
	StartLoads(worker);
	if (worker->upload_status.code != GG_OK)
		GgDeviceLost(worker, &worker->upload_status);
}
