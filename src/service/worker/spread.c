/*
 * spread.c
 *		An index that is to be spread over several devices (its option devices); in the worker of
 *		each device that has segments of it.
 *
 * A worker offers one of its segments to a device that takes less time for its share of the index,
 * if that takes afterwards no more than this one, but for half a segment: segments of equally many
 * rows differ by their pivots.  Time is bytes by the speed of the device's memory, so a device that
 * is twice as fast has twice the share.  The other device loads the segment, as a new part or as it
 * grows, and then this one gives it up.  So segments move only where that makes shares more even,
 * and some device has them all the time.
 */
#include "service/worker/worker.h"

/* An offer that a device does not take ends after this time. */
#define OFFER_US			UINT64CONST(60000000)

/* What other devices hold of an index. */
typedef struct Holders
{
	int			n;				/* so many have a copy */
	double		least;			/* time of the one that takes the least */
	int			fastest;		/* its place */
	int			last_part;		/* place of the last that has a part; -1: none has */
	int			wished;			/* devices that may have one, this one among them */
} Holders;

/* How long a device takes for so many bytes, beside others. */
static double
TimeOf(int number, uint64 bytes)
{
	return (double) bytes / gg_service->devices[number]->speed;
}

static Holders
CountHolders(const GgWorker *worker, const GgResident *resident)
{
	Holders		holders = {.last_part = -1, .wished = 1};

	for (int d = 0; d < gg_service->ndevices; d++)
	{
		const GgResident *copy = GgLockCopy(worker, d, &resident->key);
		double		time;

		holders.wished += d != worker->number && GgDeviceIsUp(gg_service->devices[d]);
		if (copy == NULL)
			continue;
		time = TimeOf(d, copy->bytes);
		if (copy->part)
			holders.last_part = d;
		if (holders.n == 0 || time < holders.least)
		{
			holders.fastest = d;
			holders.least = time;
		}
		holders.n++;
		LWLockRelease(gg_service->devices[d]->lock);
	}
	holders.wished = Min(holders.wished, resident->devices);
	return holders;
}

/* Segments that a copy has, as a bitmap. */
static uint32
HeldHere(const GgResident *resident)
{
	return ~resident->now.forms.missing & (uint32) (((uint64) 1 << resident->now.nsegments) - 1);
}

/*
 * The segment that is to go to a device that takes so long for what it has; -1: none.  A copy keeps
 * one at least.
 */
static int
ChooseOffer(const GgWorker *worker, const GgResident *resident, const GgResidentVersion *version,
			int taker, double time)
{
	int			best = -1;

	if (pg_popcount32(HeldHere(resident)) < 2)
		return -1;
	for (uint32 i = 0; i < resident->now.nsegments; i++)
	{
		uint64		bytes = version->list_bytes[i];

		if (version->lists[i] != NULL && bytes > 0 &&
			time + TimeOf(taker, bytes) <= TimeOf(worker->number, version->bytes - bytes / 2) &&
			(best < 0 || bytes > version->list_bytes[best]))
			best = (int) i;
	}
	return best;
}

/* Give segments up; a part goes with its last one.  False: these cannot be given up now. */
static bool
GiveUp(GgWorker *worker, uint32 entry, uint32 drop)
{
	const GgResident *resident = &worker->device->residents[entry];

	if (drop != HeldHere(resident))
		return drop == 0 || GgGiveUpSegments(worker, entry, drop);
	if (resident->part)
		GgForgetEntry(worker->device, entry, resident->use);
	return resident->part;
}

/* Has the device that a segment was offered to, or its worker, gone? */
static bool
TakerIsGone(const GgResident *resident)
{
	GgDevice   *taker = gg_service->devices[resident->taker];

	return !GgDeviceIsUp(taker) || pg_atomic_read_u64(&taker->epoch) != resident->taker_epoch;
}

/* An offer is over when another device has the segment, or when none will come for it. */
static void
SettleOffer(GgWorker *worker, uint32 entry)
{
	GgResident *resident = &worker->device->residents[entry];
	uint32		held = GgHeldElsewhere(worker, &resident->key, &resident->offered, 1,
									   GG_TO_ANYBODY);
	uint32		drop = 0;

	for (uint32 i = 0; i < resident->now.nsegments; i++)
		if (resident->now.graphs[i] == resident->offered &&
			(resident->now.forms.missing >> i & 1) == 0)
			drop = (uint32) 1 << i;
	if (drop == 0 || (held != 0 && GiveUp(worker, entry, drop)) || TakerIsGone(resident) ||
		GgNowMicros() >= resident->offered_us + OFFER_US)
		resident->offers = false;
}

/*
 * Which segments of this copy does another one have that goes before it?  The copy that is no part
 * goes before all, else that of the device with the lower place.
 */
static uint32
HeldBefore(const GgWorker *worker, const GgResident *resident)
{
	uint32		held = 0;

	for (int d = 0; d < gg_service->ndevices; d++)
	{
		const GgResident *copy = GgLockCopy(worker, d, &resident->key);
		bool		before;

		if (copy == NULL)
			continue;
		before = copy->part == resident->part ? d < worker->number : !copy->part;
		for (uint32 i = 0; before && i < resident->now.nsegments; i++)
			if (GgHasGraph(copy, resident->now.graphs[i], GG_TO_ANYBODY))
				held |= (uint32) 1 << i;
		LWLockRelease(gg_service->devices[d]->lock);
	}
	return held & ~resident->now.forms.missing;
}

/* Give up what another device has, too: it was lost for a while, or two took it at a time. */
static void
DropReplicated(GgWorker *worker, uint32 entry)
{
	const GgResident *resident = &worker->device->residents[entry];
	uint32		drop = HeldBefore(worker, resident);

	/* a copy that is no part keeps one */
	if (!resident->part && drop == HeldHere(resident))
		drop &= drop - 1;
	(void) GiveUp(worker, entry, drop);
}

/*
 * The segment that is to go to another device, and *taker, that device's place; -1: none.  *other:
 * the device if it has no part yet, else NULL.
 */
static int
ChooseMove(GgWorker *worker, uint32 entry, int *taker, GgDevice **other)
{
	const GgResident *resident = &worker->device->residents[entry];
	const GgResidentVersion *version = GgCurrentVersion(worker, entry);
	Holders		holders = CountHolders(worker, resident);
	int			segment = -1;

	*taker = holders.fastest;
	*other = NULL;
	/* more devices than are wished: the last part goes */
	if (holders.n + 1 > holders.wished)
		return resident->part && holders.last_part < worker->number && HeldHere(resident) != 0 ?
			pg_rightmost_one_pos32(HeldHere(resident)) : -1;
	if (holders.n + 1 < holders.wished)
		segment = ChooseOffer(worker, resident, version, worker->number, 0);
	if (segment >= 0)
		*other = GgChooseOtherDevice(worker, resident, version->list_bytes[segment],
									 PG_UINT32_MAX);
	if (*other == NULL)
		return holders.n > 0 ?
			ChooseOffer(worker, resident, version, holders.fastest, holders.least) : -1;
	for (int d = 0; d < gg_service->ndevices; d++)
		if (gg_service->devices[d] == *other)
			*taker = d;
	return segment;
}

/* Have another device take a segment, if the index is to be spread and that evens things out. */
static void
Offer(GgWorker *worker, uint32 entry)
{
	GgResident *resident = &worker->device->residents[entry];
	uint64		now_us = GgNowMicros();
	GgDevice   *other;
	int			segment;
	int			taker;

	if (resident->offers)
		SettleOffer(worker, entry);
	if (resident->devices <= 1 || resident->offers)
		return;
	DropReplicated(worker, entry);
	if (resident->state != GG_RESIDENT_READY || now_us < resident->replicate_us)
		return;
	segment = ChooseMove(worker, entry, &taker, &other);
	if (segment < 0)
		return;
	LWLockAcquire(worker->device->lock, LW_EXCLUSIVE);
	resident->offers = true;
	resident->offered = resident->now.graphs[segment];
	resident->taker = taker;
	resident->taker_epoch = pg_atomic_read_u64(&gg_service->devices[taker]->epoch);
	resident->offered_us = now_us;
	resident->replicate_us = now_us + GG_PART_PAUSE_US;
	LWLockRelease(worker->device->lock);
	if (other != NULL)
		GgAskForCopy(other, resident, true);
}

void
GgSpread(GgWorker *worker)
{
	for (uint32 entry = 0; entry < pg_atomic_read_u32(&worker->device->nresidents); entry++)
		if (worker->device->residents[entry].state == GG_RESIDENT_READY && gg_service->ndevices > 1)
			Offer(worker, entry);
}
