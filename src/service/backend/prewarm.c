/*
 * prewarm.c
 *		gpugraph_prewarm() and gpugraph_evict().
 */
#include "service/backend/lookup.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/guc.h"

#include "storage/inspect.h"

/* How often gpugraph_evict() looks, and how many times. */
#define LOOK_MS				2
#define MOST_LOOKS			1000

/*
 * How long gpugraph_prewarm() waits for a worker that opens its device: the contexts of several
 * GPUs take seconds.  Where there is no driver, it does not wait.
 */
#define START_US			30000000

/* ---- gpugraph_prewarm() -------------------------------------------------------- */

/* Is a worker on its way?  It opens its device before it is up, which takes tenths of a second. */
static bool
IsStarting(void)
{
	for (int i = 0; i < gg_service->ndevices; i++)
	{
		GgDevice   *device = gg_service->devices[i];

		if (pg_atomic_read_u32(&device->state) == GG_DEVICE_DOWN &&
			(device->pid != 0 || pg_atomic_read_u64(&device->epoch) == 0))
			return true;
	}
	return false;
}

static void
ReportNoService(void)
{
	if (gg_service == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the gpugraph service is not running"),
				 errhint("Add gpugraph to shared_preload_libraries, let gpugraph.devices name a "
						 "device, and restart the server.")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("no device of the gpugraph service is up"),
			 errhint("See gpugraph_stat_device and the server log.")));
}

static void
ReportLocal(Relation index)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("index \"%s\" can only be read by this session",
					RelationGetRelationName(index)),
			 errdetail("It is temporary, or was created or locked by this transaction."),
			 errhint("Try again once the transaction has committed.")));
}

static void
ReportFailure(Relation index, const GgObstacle *obstacle)
{
	ereport(ERROR,
			(errcode(obstacle->corrupt ? ERRCODE_INDEX_CORRUPTED :
					 obstacle->cause == GG_REASON_MEMORY ? ERRCODE_OUT_OF_MEMORY :
					 ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("could not load index \"%s\" onto the device", RelationGetRelationName(index)),
			 errdetail("%s", obstacle->error),
			 obstacle->corrupt ? errhint("REINDEX the index.") : 0));
}

/*
 * No device is up, so the CPU answers: read the index's blocks into shared buffers, as many
 * as there are buffers.  Returns their bytes.
 */
static uint64
WarmBuffers(Relation index)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(index);

	if (gg_engine_setting == GG_ENGINE_CUDA)
		ReportNoService();
	nblocks = Min(nblocks, RelationUsesLocalBuffers(index) ? num_temp_buffers : NBuffers);
	for (BlockNumber blkno = 0; blkno < nblocks; blkno++)
	{
		CHECK_FOR_INTERRUPTS();
		ReleaseBuffer(ReadBufferExtended(index, MAIN_FORKNUM, blkno, RBM_NORMAL, NULL));
	}
	return (uint64) nblocks * BLCKSZ;
}

/*
 * Has the version that was found everything that there is to load and has room?  *bytes: its size.
 */
static bool
HasAll(const GgResidentRef *ref, const GgMetaPageData *meta, uint64 began_us, uint64 *bytes)
{
	GgDevice   *device = gg_service->devices[ref->device];
	const GgResident *resident = &device->residents[GgEntryOf(ref->entry)];
	bool		has_all;

	/*
	 * While rows arrive all the time, a refresh that began after this call is enough.  One that was
	 * to bring more segments, and failed, shows that there is no room.
	 */
	LWLockAcquire(device->lock, LW_SHARED);
	has_all = resident->now.serial == ref->serial &&
		((GgIsCurrent(resident, meta) &&
		  (resident->now.forms.missing == 0 || resident->failed_us >= began_us)) ||
		 (resident->key.generation == meta->generation && resident->began_us >= began_us));
	*bytes = resident->bytes;
	LWLockRelease(device->lock);
	return has_all;
}

/*
 * Bring an open index onto a device and wait until it is there; returns its size there.  The
 * metapage is read again each time, as inserts and VACUUM go on.
 */
static uint64
Prewarm(Relation index)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgAsker		asker = GG_ASKED_BY_USER;
	uint64		began_us = GgNowMicros();
	uint64		bytes;
	GgResidentRef ref = {0};
	GgObstacle	obstacle;
	GgReason	reason;

	if (GgMayMaintainAll(GetUserId()))
		asker = GG_ASKED_BY_MAINTAINER;
	for (;;)
	{
		GgReadMeta(index, meta);
		if (!GgCanBeResident(index, meta, &reason))
		{
			if (reason == GG_REASON_NO_SERVICE)
				return WarmBuffers(index);
			if (reason == GG_REASON_LOCAL)
				ReportLocal(index);
			return 0;			/* empty: there is nothing to bring */
		}
		if (GgLookupOnce(index, meta, asker, began_us, &ref, &obstacle))
		{
			if (HasAll(&ref, meta, began_us, &bytes))
				return bytes;
		}
		else if (obstacle.reason == GG_REASON_NO_SERVICE &&
				 (!IsStarting() || GgNowMicros() - began_us > START_US))
			return WarmBuffers(index);
		if (obstacle.failed)
			ReportFailure(index, &obstacle);
		if (GgKeepsLoadersOut(index))
			ReportLocal(index);
		GgWaitForLoad(index, &obstacle);
	}
}

PG_FUNCTION_INFO_V1(gpugraph_prewarm);

/* Locks are held while waiting, so that the index stays the same. */
Datum
gpugraph_prewarm(PG_FUNCTION_ARGS)
{
	GgInspected inspected;
	uint64		bytes;

	GgOpenInspected(PG_GETARG_OID(0), GG_READ_INDEX, &inspected);
	bytes = Prewarm(inspected.index);
	GgCloseInspected(&inspected);
	PG_RETURN_INT64((int64) bytes);
}

/* ---- gpugraph_evict() ------------------------------------------------------------ */

/*
 * Evict what a device holds or wants of a relation's file.  True: something was READY or LOADING.
 * *pending: some of it is still on its way out.
 */
static bool
EvictFrom(GgDevice *device, const GgRelFileLocator *locator, bool *pending)
{
	bool		found = false;

	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
	{
		GgResident *resident = &device->residents[entry];
		GgResidentState state;
		uint32		use;
		bool		same;

		LWLockAcquire(device->lock, LW_SHARED);
		state = resident->state;
		use = resident->use;
		same = GgSameLocator(&resident->key.locator, locator);
		LWLockRelease(device->lock);
		if (!same || state == GG_RESIDENT_FREE)
			continue;
		if (state == GG_RESIDENT_READY || state == GG_RESIDENT_LOADING)
			found = *pending = true;
		if (state == GG_RESIDENT_EVICTING)
			*pending = true;
		GgForgetEntry(device, entry, use);
	}
	return found;
}

/* Is anything of a relation's file on its way out of a device? */
static bool
IsGoing(GgDevice *device, const GgRelFileLocator *locator)
{
	bool		going = false;

	LWLockAcquire(device->lock, LW_SHARED);
	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
		going |= device->residents[entry].state == GG_RESIDENT_EVICTING &&
			GgSameLocator(&device->residents[entry].key.locator, locator);
	LWLockRelease(device->lock);
	return going;
}

PG_FUNCTION_INFO_V1(gpugraph_evict);

Datum
gpugraph_evict(PG_FUNCTION_ARGS)
{
	GgInspected inspected;
	GgRelFileLocator locator;
	bool		found = false;
	bool		pending = false;

	GgOpenInspected(PG_GETARG_OID(0), GG_READ_INDEX, &inspected);
	if (!GgMayMaintain(RelationGetRelid(inspected.heap), GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX, RelationGetRelationName(inspected.index));
	locator = GgLocator(inspected.index);
	GgCloseInspected(&inspected);

	if (gg_service == NULL)
		PG_RETURN_BOOL(false);
	for (int i = 0; i < gg_service->ndevices; i++)
		if (GgDeviceIsUp(gg_service->devices[i]))
			found |= EvictFrom(gg_service->devices[i], &locator, &pending);

	/*
	 * Memory is given back once the last batch in flight has ended.  Loads requested meanwhile are
	 * not waited for.
	 */
	for (int i = 0; pending && i < MOST_LOOKS; i++)
	{
		GgLoadSleep(LOOK_MS);
		pending = false;
		for (int d = 0; d < gg_service->ndevices; d++)
			if (GgDeviceIsUp(gg_service->devices[d]))
				pending |= IsGoing(gg_service->devices[d], &locator);
	}
	PG_RETURN_BOOL(found);
}
