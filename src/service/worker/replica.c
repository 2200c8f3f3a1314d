/*
 * replica.c
 *		Copies of a hot index for other devices; in the worker of the device that has it.
 *
 * An index is hot where its queries wait for the device: on average at least one of them does, and
 * that takes half as long as their answers or more.  A device that is less busy, and has room that
 * nobody uses, is asked for a copy then, one at a time.  The load of a replica evicts nothing, and
 * is given up quietly where there is no room for the whole.  backend/lookup.c says which copy
 * answers a query.
 *
 * A replica is marked, since it goes before all else when its device wants room (memory.c).  The
 * mark says that another device has an unmarked copy of all that this one has.  Each worker settles
 * the marks of its own entries, twice per second: a copy whose other one went is not marked any
 * more, and of two unmarked ones that of the device with the higher number is.
 *
 * Tables of several devices are looked at in turn, and no two of their locks are held together.
 */
#include "service/worker/worker.h"

#include "service/shared/ring.h"

/* An index is hot after so many looks in a row, twice per second. */
#define HOT_LOOKS			2

/* How long after one was asked for the next replica of an index may be. */
#define PAUSE_US			UINT64CONST(5000000)

/* The copy that a device has of an index, if it is READY; -1: it has none. */
static int
FindCopy(GgDevice *device, const GgResidentKey *key)
{
	int			entry = GgFindEntry(device, &key->locator, key->instance, key->database);

	return entry >= 0 && device->residents[entry].state == GG_RESIDENT_READY ? entry : -1;
}

/* Has a copy all segments that another one has? */
static bool
Covers(const GgResident *copy, const GgResident *other)
{
	for (uint32 i = 0; i < other->nsegments; i++)
	{
		uint32		j = 0;

		if ((other->missing >> i & 1) != 0)
			continue;
		while (j < copy->nsegments && copy->graphs[j] != other->graphs[i])
			j++;
		if (j == copy->nsegments || (copy->missing >> j & 1) != 0)
			return false;
	}
	return copy->delta_pages > 0 || other->delta_pages == 0;
}

/* Has one of the first `before` devices, but this worker's, an unmarked copy of the entry? */
static bool
IsElsewhere(const GgWorker *worker, const GgResident *resident, int before)
{
	bool		found = false;

	for (int i = 0; i < before && !found; i++)
	{
		GgDevice   *device = gg_service->devices[i];
		int			entry;

		if (i == worker->number || !GgDeviceIsUp(device))
			continue;
		LWLockAcquire(device->lock, LW_SHARED);
		entry = FindCopy(device, &resident->key);
		found = entry >= 0 && !device->residents[entry].replica &&
			Covers(&device->residents[entry], resident);
		LWLockRelease(device->lock);
	}
	return found;
}

bool
GgIsSpare(const GgWorker *worker, const GgResident *resident)
{
	return resident->replica && IsElsewhere(worker, resident, gg_service->ndevices);
}

/* Mark an entry as a replica, or take the mark away. */
static void
SettleMark(GgWorker *worker, GgResident *resident)
{
	bool		replica = IsElsewhere(worker, resident,
									  resident->replica ? gg_service->ndevices : worker->number);

	if (replica == resident->replica)
		return;
	LWLockAcquire(worker->device->lock, LW_EXCLUSIVE);
	resident->replica = replica;
	LWLockRelease(worker->device->lock);
}

/* ---- a copy for another device ------------------------------------------------------ */

/*
 * May a device have a copy of an index that takes so many bytes?  *coming: one is on its way there
 * already.
 */
static bool
MayHaveCopy(GgWorker *worker, GgDevice *device, const GgResident *resident, bool *coming)
{
	uint32		waiting = pg_atomic_read_u32(&device->ring->waiting);
	uint64		taken = device->stats.resident_bytes + resident->bytes;
	GgResidentState state = GG_RESIDENT_FREE;
	int			entry;

	LWLockAcquire(device->lock, LW_SHARED);
	entry = GgFindEntry(device, &resident->key.locator, resident->key.instance,
						resident->key.database);
	if (entry >= 0)
		state = device->residents[entry].state;
	LWLockRelease(device->lock);
	*coming |= state == GG_RESIDENT_WANTED || state == GG_RESIDENT_LOADING;
	return state == GG_RESIDENT_FREE && taken <= device->limit_bytes &&
		2 * waiting <= pg_atomic_read_u32(&worker->device->ring->waiting);
}

/* The device that is to have a copy; NULL: none, or one has it soon. */
static GgDevice *
ChooseDevice(GgWorker *worker, const GgResident *resident)
{
	GgDevice   *best = NULL;
	bool		coming = false;

	for (int i = 0; i < gg_service->ndevices; i++)
	{
		GgDevice   *device = gg_service->devices[i];

		if (i == worker->number || !GgDeviceIsUp(device) ||
			!MayHaveCopy(worker, device, resident, &coming))
			continue;
		if (best == NULL || pg_atomic_read_u32(&device->ring->waiting) <
			pg_atomic_read_u32(&best->ring->waiting))
			best = device;
	}
	return coming ? NULL : best;
}

static void
AskForCopy(GgDevice *device, const GgResident *resident)
{
	int			entry = -1;

	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	if (GgFindEntry(device, &resident->key.locator, resident->key.instance,
					resident->key.database) < 0)
		entry = GgTakeFreeEntry(device);
	if (entry >= 0)
	{
		GgResident *copy = &device->residents[entry];

		copy->key = resident->key;
		copy->database = resident->database;
		copy->relation = resident->relation;
		memcpy(copy->name, resident->name, sizeof(copy->name));
		copy->replica = true;
		copy->fault = gg_fault;
		copy->state = GG_RESIDENT_WANTED;
	}
	LWLockRelease(device->lock);
	GgResidentNotify(device);
}

/* Have queries waited for this entry's answers since the last look, so that a copy would help? */
static bool
IsHot(GgQueueTimes *times, uint64 elapsed_us)
{
	bool		waits = times->waited_us >= elapsed_us &&
		2 * times->waited_us >= times->answered_us;

	times->waited_us = times->answered_us = 0;
	times->hot_looks = waits ? times->hot_looks + 1 : 0;
	return times->hot_looks >= HOT_LOOKS || gg_fault == GG_FAULT_HOT;
}

void
GgReplicate(GgWorker *worker)
{
	GgDevice   *device = worker->device;
	uint64		now_us = GgNowMicros();
	uint64		elapsed_us = now_us - worker->replicated_us;

	worker->replicated_us = now_us;
	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
	{
		GgResident *resident = &device->residents[entry];
		GgDevice   *other;

		if (resident->state != GG_RESIDENT_READY || gg_service->ndevices == 1)
			continue;
		SettleMark(worker, resident);
		if (!IsHot(&worker->times[entry], elapsed_us) || resident->missing != 0 ||
			now_us < resident->replicate_us)
			continue;
		other = ChooseDevice(worker, resident);
		if (other == NULL)
			continue;
		resident->replicate_us = now_us + PAUSE_US;
		AskForCopy(other, resident);
	}
}
