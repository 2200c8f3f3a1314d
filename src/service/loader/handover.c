/*
 * handover.c
 *		A load as seen by the process that brings it: its handle, staging chunks, giving up; and
 *		the loads of CREATE INDEX.
 *
 * Loaders (loader.c) and builders take the same steps.  They describe what is to be loaded, wait
 * until the worker has granted memory for it, fill chunks and hand them to the upload.  Those steps
 * are here, each made on a GgLoad (handover.h).  What builders alone do is here, too: they take an
 * entry themselves, bring the contents from their own memory, and tie the load to their
 * transaction.
 *
 * A load that fails at any point, or whose processes die at any point, is given up by setting the
 * ABORT flag of its word.  The upload thread then frees the device's memory, and the worker the
 * entry.
 */
#include "service/loader/handover.h"
#include "storage/codes.h"

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* How long to sleep when all chunks are full.  The upload takes longer than this for one chunk. */
#define CHUNK_WAIT_US		100

/*
 * How long a builder waits for one step of the service: for memory, for a free chunk, for the end.
 * Each takes a second at most where the device works.  Where it does not work, CREATE INDEX must
 * not wait for it: the index is complete.
 */
#define BUILDER_MOST_US		10000000

/* As BUILDER_MOST_US, of a merge for several devices: a flip does not wait for a slow one. */
#define OTHER_MOST_US		3000000

/* How often a loader looks whether another session wants its database. */
#define LOOK_AT_DATABASE_US	100000

GgLoadState
GgLoadStateOf(const GgLoad *load)
{
	uint64		word = GgReadWord(&GgLoadJobOf(load)->word);

	if (GgWordSerial(word) != load->serial)
		return GG_LOAD_FREE;
	return GgWordState(word);
}

bool
GgLoadIsOpen(const GgLoad *load)
{
	uint64		word = GgReadWord(&GgLoadJobOf(load)->word);

	return GgWordSerial(word) == load->serial && GgWordState(word) == GG_LOAD_OPEN &&
		!(word & GG_LOAD_ABORT) && GgDeviceIsUp(load->device);
}

/* ---- giving up ------------------------------------------------------------ */

/* Takes no lock and throws nothing, because this is also called while a process ends. */
void
GgLoadGiveUp(GgLoad *load, bool quiet, int sqlerrcode, const char *error)
{
	GgLoadJob  *job = GgLoadJobOf(load);
	uint64		word = GgReadWord(&job->word);

	if (load->filling >= 0)
		pg_atomic_write_u32(&load->device->chunks[load->filling].state, GG_CHUNK_FREE);
	load->filling = -1;
	if (load->over || GgWordSerial(word) != load->serial)
		return;
	load->over = true;
	if (!(word & GG_LOAD_ABORT))
	{
		if (quiet)
			job->quiet = true;
		else if (job->error[0] == '\0')
		{
			job->corrupt = sqlerrcode == ERRCODE_INDEX_CORRUPTED ||
				sqlerrcode == ERRCODE_DATA_CORRUPTED;
			strlcpy(job->error, error, sizeof(job->error));
		}
		pg_write_barrier();
	}
	GgWordFlag(&job->word, load->serial, GG_LOAD_ABORT);
	GgResidentNotify(load->device);
}

bool
GgDatabaseIsWanted(void)
{
	static uint64 looked_us = 0;
	uint64		now = GgNowMicros();
	LOCKTAG		tag;

	if (now - looked_us < LOOK_AT_DATABASE_US)
		return false;
	looked_us = now;
	/* what every session takes while it starts */
	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, MyDatabaseId, 0);
	if (LockAcquire(&tag, RowExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	LockRelease(&tag, RowExclusiveLock, false);
	return false;
}

bool
GgLoadMustStop(GgLoad *load, uint64 since_us)
{
	if (load->builder ? GgNowMicros() - since_us < load->step_us : !GgDatabaseIsWanted())
		return false;
	GgLoadGiveUp(load, true, 0, NULL);
	return true;
}

/* ---- chunks ------------------------------------------------------------------ */

char *
GgLoadGetChunk(GgLoad *load)
{
	uint64		start = GgNowMicros();

	Assert(load->filling < 0);
	while (GgLoadIsOpen(load) && !GgLoadMustStop(load, start))
	{
		for (int i = 0; i < GG_STAGE_CHUNKS; i++)
		{
			uint32		state = GG_CHUNK_FREE;

			if (pg_atomic_read_u32(&load->device->chunks[i].state) == GG_CHUNK_FREE &&
				pg_atomic_compare_exchange_u32(&load->device->chunks[i].state, &state,
											   GG_CHUNK_FILLING))
			{
				load->filling = i;
				return load->device->staging + (Size) i * GG_STAGE_CHUNK;
			}
		}
		GgCheckInterrupts();
		pg_usleep(CHUNK_WAIT_US);
	}
	return NULL;
}

void
GgLoadPutChunk(GgLoad *load, uint32 list, gg_part part, uint64 offset, uint64 bytes)
{
	GgStageChunk *chunk = &load->device->chunks[load->filling];

	chunk->load = load->number;
	chunk->serial = load->serial;
	chunk->list = list;
	chunk->part = part;
	chunk->offset = offset;
	chunk->bytes = bytes;
	pg_write_barrier();
	pg_atomic_write_u32(&chunk->state, GG_CHUNK_FILLED);
	load->filling = -1;
}

void
GgLoadFreeChunk(GgLoad *load)
{
	pg_atomic_write_u32(&load->device->chunks[load->filling].state, GG_CHUNK_FREE);
	load->filling = -1;
}

/* ---- shapes -------------------------------------------------------------------- */

void
GgLoadDescribe(GgLoadJob *job, Relation index, const GgMetaPageData *meta, const float *mean)
{
	uint32		n = meta->nsegments;

	job->centred = mean != NULL;
	if (job->centred)
		memcpy(job->mean, mean, GgMeanBytes(meta));
	job->key.locator = GgLocator(index);
	job->key.instance = meta->instance;
	job->key.database = GgDatabaseStamp();
	job->key.generation = meta->generation;
	job->devices = GgWishedDevices(index);
	strlcpy(job->name, RelationGetRelationName(index), sizeof(job->name));
	job->nsegments = meta->nsegments;
	job->vacuum_epoch = meta->vacuum_epoch;
	job->delta_first = GgDeltaFirst(meta);
	job->delta_pages = GgFullDeltaPages(meta);
	memset(job->lists, 0, sizeof(job->lists));
	for (uint32 i = 0; i < n; i++)
	{
		GgLoadList *list = &job->lists[i];

		list->segment = meta->segments[i].id;
		list->graph = GgGraphId(&meta->segments[i]);
		list->n = meta->segments[i].nodes;
		list->shape.capacity = list->n;
		list->shape.dim = meta->dimensions;
		list->shape.element = (gg_element) meta->element;
		list->shape.metric = (gg_metric) meta->metric;
		list->shape.degree = meta->graph_degree;
		list->shape.npivots = meta->segments[i].npivots;
		list->shape.rows = meta->segments[i].rows;
		list->shape.words = list->shape.rows > 0 ? meta->filter_words : 0;
		list->shape.offsets = list->shape.rows > 0 &&
			(meta->segments[i].flags & GG_SEGMENT_OFFSETS) != 0;
		if (meta->coded == GG_CODES_NONE)
			continue;
		list->rowless = list->by_codes = true;
		list->shape.codes = (gg_codes) meta->coded;
		list->shape.row_place = GG_ROWS_NONE;
		list->shape.code_seed = meta->instance;
	}
	if (job->delta_pages > 0)
	{
		GgLoadList *list = &job->lists[n];

		list->segment = list->graph = GG_NO_SEGMENT;
		list->n = GgRowsOnPages(meta, job->delta_pages);
		list->shape.capacity = list->shape.rows = list->n;
		list->shape.words = list->n > 0 ? meta->filter_words : 0;
		list->shape.dim = meta->dimensions;
		list->shape.element = (gg_element) meta->element;
		list->shape.metric = (gg_metric) meta->metric;
		n++;
	}
	job->nlists = n;
}

bool
GgLoadWaitUntilOpen(GgLoad *load)
{
	uint64		start = GgNowMicros();

	GgResidentNotify(load->device);
	for (;;)
	{
		GgLoadState state = GgLoadStateOf(load);

		if (state == GG_LOAD_OPEN)
			return true;
		if (state != GG_LOAD_SHAPED && state != GG_LOAD_CREATE && state != GG_LOAD_BROKEN)
			return false;
		if (!GgDeviceIsUp(load->device) || GgLoadMustStop(load, start))
			return false;
		GgLoadSleep(GG_LOAD_WAIT_MS);
	}
}

/* ---- a builder's load -------------------------------------------------------------------- */

static GgLoad *pending_loads = NULL;

/*
 * This process has nothing more to do with the load.  pending_loads keeps what has to go if the
 * transaction aborts.
 */
static void
DetachLoad(GgLoad *load)
{
	if (!GgWordMove(&GgLoadJobOf(load)->word, load->serial, GG_LOAD_ENDED, GG_LOAD_FREE))
		GgWordFlag(&GgLoadJobOf(load)->word, load->serial, GG_LOAD_ORPHAN);
	load->over = load->let_go = true;
}

/* Give up a load, whose handle is freed with its transaction. */
static void
Abandon(GgLoad *load)
{
	if (load->let_go)
		return;
	GgLoadGiveUp(load, true, 0, NULL);
	DetachLoad(load);
}

/*
 * A (sub)transaction ends.  On abort its unfinished loads are given up, and what finished ones made
 * READY is evicted: nobody will see a new index.  On commit handles go to the parent, or are freed.
 */
static void
EndPending(bool commit, SubTransactionId subxact, SubTransactionId parent)
{
	GgLoad	  **link = &pending_loads;

	while (*link != NULL)
	{
		GgLoad	   *load = *link;

		if (subxact != InvalidSubTransactionId && load->subxact != subxact)
		{
			link = &load->next;
			continue;
		}
		if (commit && parent != InvalidSubTransactionId)
		{
			load->subxact = parent;
			link = &load->next;
			continue;
		}
		*link = load->next;
		if (!commit)
		{
			bool		replaced = load->let_go;

			Abandon(load);
			if (!load->ahead || replaced)
				GgForgetEntry(load->device, load->entry, load->use);
		}
		pfree(load);
	}
}

static void
XactEnd(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PARALLEL_ABORT)
		EndPending(false, InvalidSubTransactionId, InvalidSubTransactionId);
	else if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PARALLEL_COMMIT ||
			 event == XACT_EVENT_PREPARE)
		EndPending(true, InvalidSubTransactionId, InvalidSubTransactionId);
}

static void
SubXactEnd(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		EndPending(false, mine, parent);
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
		EndPending(true, mine, parent);
}

/* Take an entry and a load for it; false when there is none to be had. */
static bool
AssignLoad(GgLoad *load, Relation index, const GgMetaPageData *meta)
{
	GgDevice   *device = load->device;
	int			entry;
	int			number = -1;

	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	entry = GgTakeEntry(device, false);
	if (entry >= 0)
	{
		GgResident *resident = &device->residents[entry];

		GgNameEntry(device, entry, index, meta);
		resident->fault = gg_fault;
		number = GgTakeLoad(device, entry, false, MyProcPid);
		if (number >= 0)
		{
			resident->state = GG_RESIDENT_LOADING;
			load->number = number;
			load->serial = GgWordSerial(GgReadWord(&GgLoadJobOf(load)->word));
			load->entry = entry;
			load->use = resident->use;
		}
	}
	LWLockRelease(device->lock);
	return number >= 0;
}

/* Add an assigned load to those that end with the transaction. */
static GgLoad *
KeepPending(const GgLoad *local)
{
	static bool registered = false;
	GgLoad	   *load = MemoryContextAlloc(TopMemoryContext, sizeof(GgLoad));

	if (!registered)
	{
		RegisterXactCallback(XactEnd, NULL);
		RegisterSubXactCallback(SubXactEnd, NULL);
		registered = true;
	}
	*load = *local;
	load->subxact = GetCurrentSubTransactionId();
	load->next = pending_loads;
	pending_loads = load;
	return load;
}

/* The load is described: wait until it may be filled.  NULL: it may not. */
static GgLoad *
OpenLoad(GgLoad *load, GgReason *reason)
{
	pg_write_barrier();
	GgWordMove(&GgLoadJobOf(load)->word, load->serial, GG_LOAD_ASSIGNED, GG_LOAD_SHAPED);
	if (!GgLoadWaitUntilOpen(load))
	{
		*reason = GG_REASON_NO_SERVICE;
		if (GgLoadStateOf(load) == GG_LOAD_ENDED)
			*reason = GgLoadJobOf(load)->reason;
		Abandon(load);
		return NULL;
	}
	return load;
}

GgLoad *
GgLoadBegin(Relation index, const GgMetaPageData *meta, GgReason *reason)
{
	GgLoad		local = {.filling = -1, .builder = true, .step_us = BUILDER_MOST_US};
	GgLoad	   *load;

	if (gg_service == NULL || (local.device = GgChooseDevice(&local.device_number)) == NULL)
	{
		*reason = GG_REASON_NO_SERVICE;
		return NULL;
	}
	if (RelationUsesLocalBuffers(index))
	{
		*reason = GG_REASON_LOCAL;
		return NULL;
	}
	if (!AssignLoad(&local, index, meta))
	{
		*reason = GG_REASON_BUSY;
		return NULL;
	}
	load = KeepPending(&local);
	GgLoadDescribe(GgLoadJobOf(load), index, meta, GgReadMean(index, meta));
	return OpenLoad(load, reason);
}

/*
 * Does a device have all segments but the merged one, which is the last, or know that they are
 * missing?  A merge brings the merged one alone.
 */
static bool
HasOthers(const GgResident *resident, const GgMetaPageData *meta)
{
	for (int i = 0; i < meta->nsegments - 1; i++)
	{
		uint32		j = 0;

		while (j < resident->now.nsegments &&
			   resident->now.graphs[j] != GgGraphId(&meta->segments[i]))
			j++;
		if (j == resident->now.nsegments)
			return false;
	}
	return true;
}

/* Of the delta that the flip leaves, a merge brings nothing: the device keeps what it has of it. */
static void
KeepDelta(const GgMetaPageData *meta, GgLoadJob *job)
{
	GgLoadList *list = &job->lists[job->nsegments];

	job->delta_pages = job->delta_kept;
	list->n = GgRowsOnPages(meta, job->delta_pages);
	list->shape.capacity = list->shape.rows = list->n;
	job->nlists = job->nsegments + (list->n > 0);
}

/* Take a load that refreshes the entry, if the device has the index and nobody else does so. */
static bool
AssignAhead(GgLoad *load, Relation index, const GgMetaPageData *meta, const float *mean)
{
	GgDevice   *device = load->device;
	uint32		none = 0;
	int			number = -1;
	int			entry;

	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	entry = GgFindReady(device, index, meta);
	if (entry >= 0 && HasOthers(&device->residents[entry], meta) &&
		pg_atomic_compare_exchange_u32(&device->residents[entry].refresh, &none,
									   GG_REFRESH_LOADING))
	{
		GgResident *resident = &device->residents[entry];

		number = GgTakeLoad(device, entry, true, MyProcPid);
		if (number < 0)
			pg_atomic_write_u32(&resident->refresh, 0);
		else
		{
			load->number = number;
			load->serial = GgWordSerial(GgReadWord(&GgLoadJobOf(load)->word));
			load->entry = entry;
			load->use = resident->use;
			GgLoadJobOf(load)->ahead = true;
			/* the first of several devices suffers the fault */
			GgLoadJobOf(load)->fault = load->other == NULL ? gg_fault : GG_FAULT_NONE;
			GgLoadDescribe(GgLoadJobOf(load), index, meta, mean);
			GgMarkKept(resident, meta->generation - 1, GgLoadJobOf(load));
			KeepDelta(meta, GgLoadJobOf(load));
		}
	}
	LWLockRelease(device->lock);
	return number >= 0;
}

/* Does any device's copy of the index wait for a refresh, or is one under way? */
static bool
IsRefreshing(Relation index, const GgMetaPageData *meta)
{
	bool		refreshing = false;

	for (int i = 0; i < gg_service->ndevices && !refreshing; i++)
	{
		GgDevice   *device = gg_service->devices[i];
		int			entry;

		if (!GgDeviceIsUp(device))
			continue;
		LWLockAcquire(device->lock, LW_SHARED);
		entry = GgFindReady(device, index, meta);
		refreshing = entry >= 0 && pg_atomic_read_u32(&device->residents[entry].refresh) != 0;
		LWLockRelease(device->lock);
	}
	return refreshing;
}

GgLoad *
GgLoadAhead(Relation index, const GgMetaPageData *meta, bool wait, bool *busy)
{
	GgLoad	   *loads = NULL;
	const float *mean = gg_service == NULL ? NULL : GgReadMean(index, meta);

	*busy = gg_service != NULL && wait && IsRefreshing(index, meta);
	for (int i = 0; gg_service != NULL && !*busy && i < gg_service->ndevices; i++)
	{
		GgLoad		local = {
			.filling = -1, .builder = true, .ahead = true, .other = loads,
			.step_us = BUILDER_MOST_US
		};

		local.device = gg_service->devices[i];
		local.device_number = i;
		if (GgDeviceIsUp(local.device) && AssignAhead(&local, index, meta, mean))
			loads = KeepPending(&local);
	}
	for (GgLoad *load = loads; load != NULL && loads->other != NULL; load = load->other)
		load->step_us = OTHER_MOST_US;
	return loads;
}

/* All devices make room at the same time. */
bool
GgLoadOpen(GgLoad *loads)
{
	bool		open = false;

	for (GgLoad *load = loads; load != NULL; load = load->other)
	{
		pg_write_barrier();
		GgWordMove(&GgLoadJobOf(load)->word, load->serial, GG_LOAD_ASSIGNED, GG_LOAD_SHAPED);
		GgResidentNotify(load->device);
	}
	for (GgLoad *load = loads; load != NULL; load = load->other)
	{
		if (GgLoadWaitUntilOpen(load))
			open = true;
		else
			Abandon(load);
	}
	return open;
}

/* Writes nothing where a load has failed, or the worker left the list out. */
static void
WriteTo(GgLoad *load, uint32 list, gg_part part, uint64 offset, const char *src, uint64 bytes)
{
	if (!GgLoadIsOpen(load) || GgLoadJobOf(load)->lists[list].left_out)
		return;
	while (bytes > 0)
	{
		uint64		piece = Min(bytes, GG_STAGE_CHUNK);
		char	   *chunk = GgLoadGetChunk(load);

		if (chunk == NULL)
			return;
		memcpy(chunk, src, piece);
		GgLoadPutChunk(load, list, part, offset, piece);
		src += piece;
		offset += piece;
		bytes -= piece;
	}
}

void
GgLoadWrite(GgLoad *loads, uint32 list, gg_part part, uint64 offset, const void *data,
			uint64 bytes)
{
	for (GgLoad *load = loads; load != NULL; load = load->other)
		WriteTo(load, list, part, offset, data, bytes);
}

/*
 * Wait until the load has ended, or its device is not up: a worker that has failed ends its loads
 * only when its successor starts, maybe a minute later.
 */
static void
WaitUntilEnded(GgLoad *load)
{
	uint64		start = GgNowMicros();

	for (;;)
	{
		GgLoadState state = GgLoadStateOf(load);

		if (state == GG_LOAD_ENDED || state == GG_LOAD_FREE || !GgDeviceIsUp(load->device) ||
			GgLoadMustStop(load, start))
			return;
		GgLoadSleep(GG_LOAD_WAIT_MS);
	}
}

void
GgLoadEnd(GgLoad *loads)
{
	for (GgLoad *load = loads; load != NULL; load = load->other)
		load->finishing = !load->over &&
			GgWordMove(&GgLoadJobOf(load)->word, load->serial, GG_LOAD_OPEN, GG_LOAD_FINISH);
	for (GgLoad *load = loads; load != NULL; load = load->other)
	{
		if (load->finishing)
			WaitUntilEnded(load);
		DetachLoad(load);
	}
}
