/*
 * partial.c
 *		Which segments of an index are on a device that has no room for all of them; in the worker.
 *
 * Every query of an index searches each of its segments, and a walk takes about as long in a large
 * segment as in a small one.  So the smallest segments are brought first, and the device does as
 * many of the walks as it can.  The delta is always brought, since the CPU would measure all of its
 * rows.
 *
 * A load is cut to what fits before memory is granted for it (GgLeaveOut).  What is missing is
 * brought later, when there is room (GgGrow).  memory.c takes segments away.
 */
#include "service/worker/worker.h"

static uint64
ListBytes(GgWorker *worker, const GgLoadJob *job, uint32 list)
{
	return GgIsLoaded(&job->lists[list]) ?
		worker->engine->shape_bytes(&job->lists[list].shape) : 0;
}

static uint64
DeltaBytes(GgWorker *worker, const GgLoadJob *job)
{
	return job->nlists > job->nsegments ? ListBytes(worker, job, job->nsegments) : 0;
}

/* The segment to bring next, of those not looked at yet; -1 when there is none. */
static int
SmallestSegment(GgWorker *worker, const GgLoadJob *job, uint32 seen)
{
	int			best = -1;

	for (uint32 i = 0; i < job->nsegments; i++)
		if (GgIsLoaded(&job->lists[i]) && (seen >> i & 1) == 0 &&
			(best < 0 || ListBytes(worker, job, i) < ListBytes(worker, job, best)))
			best = (int) i;
	return best;
}

/* Segments with rows that the device has when the load is through. */
static int
CountSegments(const GgLoadJob *job)
{
	int			n = 0;

	for (uint32 i = 0; i < job->nsegments; i++)
		n += job->lists[i].n > 0 && !job->lists[i].left_out;
	return n;
}

/* Leaves room beside the delta for the copy of it that the next refresh makes. */
bool
GgLeaveOut(GgWorker *worker, GgLoadJob *job, uint64 available)
{
	uint64		delta = DeltaBytes(worker, job);
	uint64		left = available - Min(available, 2 * delta);
	uint32		seen = 0;
	int			segment;

	while ((segment = SmallestSegment(worker, job, seen)) >= 0)
	{
		uint64		bytes = ListBytes(worker, job, segment);

		seen |= (uint32) 1 << segment;
		if (bytes <= left)
			left -= bytes;
		else
			job->lists[segment].left_out = true;
	}
	return delta <= available && CountSegments(job) > 0;
}

uint64
GgLeastBytes(GgWorker *worker, const GgLoadJob *job)
{
	uint64		least = 0;
	bool		kept = false;

	for (uint32 i = 0; i < job->nsegments; i++)
	{
		uint64		bytes = worker->engine->shape_bytes(&job->lists[i].shape);

		kept |= job->lists[i].kept;
		if (job->lists[i].n > 0 && (least == 0 || bytes < least))
			least = bytes;
	}
	return DeltaBytes(worker, job) + (kept ? 0 : least);
}

bool
GgMayLeaveOut(const GgLoadJob *job)
{
	bool		brings = false;

	for (uint32 i = 0; i < job->nsegments; i++)
		brings |= GgIsLoaded(&job->lists[i]);
	return brings && CountSegments(job) > 1;
}

/* Is there room for one more of an entry's segments? */
static bool
MayGrow(GgWorker *worker, uint32 entry)
{
	const GgResident *resident = &worker->device->residents[entry];
	const GgResidentVersion *version = GgCurrentVersion(worker, entry);
	uint64		delta = 0;
	uint64		least = PG_UINT64_MAX;
	GgLoadJob	job = {.entry = entry, .partial = true};

	if (worker->versions[entry][1 - resident->now.version].live || !GgMayTakeMore(worker, entry))
		return false;
	for (uint32 i = 0; i < version->nlists; i++)
		if (i == resident->now.nsegments)
			delta = version->list_bytes[i];
		else if (version->forms.missing >> i & 1)
			least = Min(least, version->list_bytes[i]);
	return least <= PG_INT64_MAX && least + 2 * delta <= GgAvailableBytes(worker, &job);
}

void
GgGrow(GgWorker *worker)
{
	GgDevice   *device = worker->device;
	uint64		now_us = GgNowMicros();

	for (uint32 entry = 0; entry < pg_atomic_read_u32(&device->nresidents); entry++)
	{
		GgResident *resident = &device->residents[entry];
		uint32		none = 0;

		if (resident->state != GG_RESIDENT_READY || resident->now.forms.missing == 0 ||
			now_us < resident->grow_us || pg_atomic_read_u32(&resident->refresh) != 0 ||
			!MayGrow(worker, entry) ||
			!pg_atomic_compare_exchange_u32(&resident->refresh, &none, GG_REFRESH_WANTED))
			continue;
		/* this thread alone starts loads, so none begins before these are set */
		resident->grow = true;
		resident->forced = false;
		resident->fault = GG_FAULT_NONE;
		worker->busy = true;
	}
}
