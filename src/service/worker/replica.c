/*
 * replica.c
 *		Copies of a hot index for other devices; in the worker of the device that has it.
 *
 * An index is hot where its queries wait for the device: on average at least one of them does, and
 * waiting takes half as long as answering or more.  A device that is less busy, and has room that
 * nobody uses, is asked for a copy then, one at a time.  The load of a replica evicts nothing, and
 * is given up quietly where there is no room for the whole.  backend/lookup.c says which copy
 * answers a query.
 *
 * A replica is marked, since it goes before all else when its device wants room (memory.c).  The
 * mark says that another device has an unmarked copy of all that this one has.  Each worker settles
 * the marks of its own entries, twice per second: a copy whose other one went is not marked any
 * more, and of two unmarked ones that of the device with the higher number is.
 *
 * A device that has no room for all of an index has another one asked for a part: the segments that
 * no device has.  A part has no delta.  It is marked as one (GgResident.part) as long as another
 * device has a copy that is not.
 *
 * Tables of several devices are looked at in turn, and no two of their locks are held together.
 */
#include "service/worker/worker.h"

#include "service/shared/ring.h"

/* An index is hot after so many looks in a row, twice per second. */
#define HOT_LOOKS			2

/* After a replica of an index was asked for, the next one may be asked for after this time. */
#define REPLICA_PAUSE_US	UINT64CONST(5000000)

/* Has a copy all segments that another one has? */
static bool
Covers(const GgResident *copy, const GgResident *other)
{
	for (uint32 i = 0; i < other->now.nsegments; i++)
	{
		uint32		j = 0;

		if ((other->now.forms.missing >> i & 1) != 0)
			continue;
		while (j < copy->now.nsegments && copy->now.graphs[j] != other->now.graphs[i])
			j++;
		if (j == copy->now.nsegments || (copy->now.forms.missing >> j & 1) != 0)
			return false;
	}
	return copy->now.delta_pages > 0 || other->now.delta_pages == 0;
}

const GgResident *
GgLockCopy(const GgWorker *worker, int number, const GgResidentKey *key)
{
	GgDevice   *device = gg_service->devices[number];
	int			entry;

	if (number == worker->number || !GgDeviceIsUp(device))
		return NULL;
	LWLockAcquire(device->lock, LW_SHARED);
	entry = GgFindEntry(device, &key->locator, key->instance, key->database);
	if (entry >= 0 && device->residents[entry].state == GG_RESIDENT_READY)
		return &device->residents[entry];
	LWLockRelease(device->lock);
	return NULL;
}

/* Has one of the first `before` devices, but this worker's, a copy of the entry that passes? */
static bool
HasCopyElsewhere(const GgWorker *worker, const GgResident *resident, const GgResidentKey *key,
				 int before, bool (*passes) (const GgResident *copy, const GgResident *resident))
{
	bool		found = false;

	for (int i = 0; i < before && !found; i++)
	{
		const GgResident *copy = GgLockCopy(worker, i, key);

		if (copy == NULL)
			continue;
		found = passes(copy, resident);
		LWLockRelease(gg_service->devices[i]->lock);
	}
	return found;
}

/* An unmarked copy with all that the entry has. */
static bool
IsUnmarked(const GgResident *copy, const GgResident *resident)
{
	return !copy->replica && Covers(copy, resident);
}

/* A copy that is no part. */
static bool
IsNoPart(const GgResident *copy, const GgResident *resident)
{
	return !copy->part;
}

static bool
IsAny(const GgResident *copy, const GgResident *resident)
{
	return true;
}

/* A copy with which others share an index that no device has all of. */
static bool
IsShared(const GgResident *copy, const GgResident *resident)
{
	return !copy->part && (copy->now.forms.missing != 0 || copy->devices > 1);
}

bool
GgIsReplica(const GgWorker *worker, const GgResident *resident)
{
	return resident->replica &&
		HasCopyElsewhere(worker, resident, &resident->key, gg_service->ndevices, IsUnmarked);
}

/* Mark an entry as a replica, or take the mark away. */
static void
SettleMark(GgWorker *worker, GgResident *resident)
{
	int			before = resident->replica ? gg_service->ndevices : worker->number;
	bool		replica = HasCopyElsewhere(worker, resident, &resident->key, before, IsUnmarked);

	if (replica == resident->replica)
		return;
	LWLockAcquire(worker->device->lock, LW_EXCLUSIVE);
	resident->replica = replica;
	LWLockRelease(worker->device->lock);
}

/*
 * Of the parts whose other copy went, the first is a copy like any other now, which grows and has a
 * delta.
 */
static void
SettlePart(GgWorker *worker, GgResident *resident)
{
	if (!resident->part ||
		HasCopyElsewhere(worker, resident, &resident->key, gg_service->ndevices, IsNoPart) ||
		HasCopyElsewhere(worker, resident, &resident->key, worker->number, IsAny))
		return;
	LWLockAcquire(worker->device->lock, LW_EXCLUSIVE);
	resident->part = false;
	LWLockRelease(worker->device->lock);
}

bool
GgHasGraph(const GgResident *copy, uint32 graph, int taker)
{
	if (copy->offers && copy->offered == graph && (taker == GG_TO_ANYBODY || taker == copy->taker))
		return false;
	for (uint32 i = 0; i < copy->now.nsegments; i++)
		if (copy->now.graphs[i] == graph)
			return (copy->now.forms.missing >> i & 1) == 0;
	return false;
}

uint32
GgHeldElsewhere(const GgWorker *worker, const GgResidentKey *key, const uint32 *graphs, uint32 n,
				int taker)
{
	uint32		held = 0;

	for (int d = 0; d < gg_service->ndevices; d++)
	{
		const GgResident *copy = GgLockCopy(worker, d, key);

		if (copy == NULL)
			continue;
		for (uint32 i = 0; i < n; i++)
			if (GgHasGraph(copy, graphs[i], taker))
				held |= (uint32) 1 << i;
		LWLockRelease(gg_service->devices[d]->lock);
	}
	return held;
}

/* Make a load one of a part: others share the index meanwhile, since its device was away, say. */
static void
BecomePart(GgWorker *worker, GgLoadJob *job)
{
	LWLockAcquire(worker->device->lock, LW_EXCLUSIVE);
	worker->device->residents[job->entry].part = job->part = true;
	LWLockRelease(worker->device->lock);
}

bool
GgLeaveToOthers(GgWorker *worker, GgLoadJob *job)
{
	uint32		graphs[GG_MAX_SEGMENTS];
	uint32		held;
	bool		brings = false;
	const GgResident *resident = &worker->device->residents[job->entry];

	if (!job->refresh && !job->part && !job->replica &&
		HasCopyElsewhere(worker, resident, &job->key, gg_service->ndevices, IsShared))
		BecomePart(worker, job);
	if (!job->part && (job->devices <= 1 || !job->grow || job->replica))
		return true;
	for (uint32 i = 0; i < job->nsegments; i++)
		graphs[i] = job->lists[i].graph;
	held = GgHeldElsewhere(worker, &job->key, graphs, job->nsegments, worker->number);
	for (uint32 i = 0; i < job->nsegments; i++)
	{
		if (!job->lists[i].kept && ((held >> i & 1) != 0 || job->ahead))
			job->lists[i].left_out = true;
		brings |= job->lists[i].n > 0 && !job->lists[i].left_out;
	}
	if (!job->part)
		return true;
	GgDropDelta(job);
	return brings;
}

bool
GgMayTakeMore(GgWorker *worker, uint32 entry)
{
	const GgResident *resident = &worker->device->residents[entry];

	return resident->devices <= 1 ||
		(resident->now.forms.missing &
		 ~GgHeldElsewhere(worker, &resident->key, resident->now.graphs,
						  resident->now.nsegments, worker->number)) != 0;
}

/* Bytes of the smallest segment that an entry lacks and no other device has; 0: there is none. */
static uint64
LeastLacked(GgWorker *worker, uint32 entry)
{
	const GgResident *resident = &worker->device->residents[entry];
	const GgResidentVersion *version = GgCurrentVersion(worker, entry);
	uint32		lacked = resident->now.forms.missing &
		~GgHeldElsewhere(worker, &resident->key, resident->now.graphs, resident->now.nsegments,
						 GG_TO_NOBODY);
	uint64		least = 0;

	for (uint32 i = 0; i < resident->now.nsegments; i++)
		if ((lacked >> i & 1) != 0 && (least == 0 || version->list_bytes[i] < least))
			least = version->list_bytes[i];
	return least;
}

/* ---- a copy for another device ------------------------------------------------------ */

/*
 * May a device have a copy of an index that takes so many bytes?  *coming: one is on its way there
 * already.
 */
static bool
MayHaveCopy(GgDevice *device, const GgResident *resident, uint64 bytes, bool *coming)
{
	GgResidentState state = GG_RESIDENT_FREE;
	int			entry;

	LWLockAcquire(device->lock, LW_SHARED);
	entry = GgFindEntry(device, &resident->key.locator, resident->key.instance,
						resident->key.database);
	if (entry >= 0)
		state = device->residents[entry].state;
	LWLockRelease(device->lock);
	*coming |= state == GG_RESIDENT_WANTED || state == GG_RESIDENT_LOADING;
	return state == GG_RESIDENT_FREE && (int64) bytes <= GgDeviceRoom(device);
}

/* A replica goes where the fewest queries wait, a part where most is free. */
static bool
IsBetterPlace(GgDevice *device, GgDevice *best, uint32 most_waiting)
{
	if (most_waiting == PG_UINT32_MAX)
		return GgDeviceRoom(device) > GgDeviceRoom(best);
	return pg_atomic_read_u32(&device->ring->waiting) < pg_atomic_read_u32(&best->ring->waiting);
}

GgDevice *
GgChooseOtherDevice(GgWorker *worker, const GgResident *resident, uint64 bytes, uint32 most_waiting)
{
	GgDevice   *best = NULL;
	bool		coming = false;

	for (int i = 0; i < gg_service->ndevices; i++)
	{
		GgDevice   *device = gg_service->devices[i];

		if (i == worker->number || !GgDeviceIsUp(device) ||
			!MayHaveCopy(device, resident, bytes, &coming) ||
			pg_atomic_read_u32(&device->ring->waiting) > most_waiting)
			continue;
		if (best == NULL || IsBetterPlace(device, best, most_waiting))
			best = device;
	}
	return coming ? NULL : best;
}

void
GgAskForCopy(GgDevice *device, const GgResident *resident, bool part)
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
		copy->replica = !part;
		copy->part = part;
		copy->devices = resident->devices;
		copy->fault = gg_fault;
		GgTagEntry(device, entry);
		copy->state = GG_RESIDENT_WANTED;
	}
	LWLockRelease(device->lock);
	GgResidentNotify(device);
}

/* Have queries waited for this entry at HOT_LOOKS looks in a row, so that a copy would help? */
static bool
IsHot(GgQueueTimes *times, uint64 elapsed_us)
{
	bool		waits = times->waited_us >= elapsed_us &&
		2 * times->waited_us >= times->answered_us;

	times->waited_us = times->answered_us = 0;
	times->hot_looks = waits ? times->hot_looks + 1 : 0;
	return times->hot_looks >= HOT_LOOKS || gg_fault == GG_FAULT_HOT;
}

/* Have a part of an entry, or all of it, brought to another device. */
static void
Spread(GgWorker *worker, uint32 entry, bool hot)
{
	GgResident *resident = &worker->device->residents[entry];
	uint32		waiting = pg_atomic_read_u32(&worker->device->ring->waiting);
	uint64		now_us = GgNowMicros();
	bool		part = resident->now.forms.missing != 0 && !resident->part;
	uint64		bytes = part ? LeastLacked(worker, entry) : resident->bytes;
	GgDevice   *other;

	if (now_us < resident->replicate_us || bytes == 0 ||
		!(part || (hot && !resident->part && resident->devices <= 1)))
		return;
	other = GgChooseOtherDevice(worker, resident, bytes, part ? PG_UINT32_MAX : waiting / 2);
	if (other == NULL)
		return;
	resident->replicate_us = now_us + (part ? GG_PART_PAUSE_US : REPLICA_PAUSE_US);
	GgAskForCopy(other, resident, part);
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

		if (resident->state != GG_RESIDENT_READY || gg_service->ndevices == 1)
			continue;
		SettleMark(worker, resident);
		SettlePart(worker, resident);
		Spread(worker, entry, IsHot(&worker->times[entry], elapsed_us));
	}
}
