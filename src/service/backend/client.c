/*
 * client.c
 *		A backend's request: posted into its slot, waited for, given up when cancelled; and what
 *		happens when the CPU has to answer.
 *
 * The usual query neither sleeps nor wakes anybody.  The backend writes the slot, puts its number
 * into the ring and spins on the done words, which the device itself writes.  It spins only where
 * that pays: for about as long as its last answers took, and only while no more do than there are
 * processors.  Otherwise it sleeps on its latch.
 *
 * Whatever goes wrong, the caller gets false with the reason, and the CPU answers.
 */
#include "service/backend/client.h"
#include "service/shared/settings.h"

#include <sched.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/s_lock.h"

#include "service/shared/ring.h"

/*
 * Going to sleep and being woken costs some 10 us on an idle host, and more on a busy one.  The
 * backend sleeps for answers that take longer than this.
 */
#define SPIN_MOST_US		300

/*
 * An answer looks slow when the backend slept for it.  After this many of them it spins once more,
 * to see how long answers take now.
 */
#define SPIN_AGAIN			16

/*
 * How long to wait for this process's slot where a query that was given up still has it: about a
 * launch.  The worker gives it back as soon as the device is through.
 */
#define ABANDONED_MOST_US	200

/* How long to sleep at most: a worker that was killed wakes nobody. */
#define SLEEP_MOST_MS		100

/*
 * How long to wait for an answer: where a worker or device hangs, the state stays UP.  No launch
 * takes a hundredth of this, and a query that is given up too early costs a search on the CPU.
 */
#define ANSWER_MOST_US		5000000

/* The requests under way, by device.  Their slots are given up when this process ends or throws. */
static struct
{
	GgSlot	   *slot;			/* NULL: none */
	uint64		ticket;
}			posted[GG_MAX_DEVICES];

/* Average time of an answer, by kind of request, since these differ much. */
typedef enum Kind
{
	IN_SLOT,
	MANY_QUERIES,
	LONG_OR_FILTERED,
	GROUP,
	NKINDS
} Kind;

static double average_us[NKINDS] = {
	SPIN_MOST_US / 2, 2 * SPIN_MOST_US, SPIN_MOST_US / 2, SPIN_MOST_US / 2
};
static uint32 slept[NKINDS];	/* in a row */

/* ---- giving up ---------------------------------------------------------- */

/* The request is over for this process, whatever becomes of its slot. */
static void
EndPosted(int number)
{
	posted[number].slot = NULL;
	pg_atomic_fetch_sub_u32(&gg_service->devices[number]->ring->waiting, 1);
}

static void
AbandonOne(int number)
{
	GgDevice   *device = gg_service->devices[number];
	GgSlot	   *slot = posted[number].slot;
	uint64		ticket = posted[number].ticket;

	pg_atomic_write_u32(&slot->sleeping, 0);
	if (GgSlotMove(slot, ticket, GG_SLOT_QUEUED, GG_SLOT_ABANDONED) ||
		GgSlotMove(slot, ticket, GG_SLOT_RUNNING, GG_SLOT_ABANDONED))
	{
		/* the worker may have seen the answer already: have it look at the slot again */
		pg_atomic_fetch_add_u32(&device->ring->abandoned, 1);
		GgWakeDevice(device);
	}
	else
	{
		GgSlotGiveChunkBack(slot);
		(void) GgSlotMove(slot, ticket, GG_SLOT_FAILED, GG_SLOT_FREE);
	}
	EndPosted(number);
}

/* Give up all that is under way. */
static void
Abandon(void)
{
	for (int i = 0; i < gg_service->ndevices; i++)
		if (posted[i].slot != NULL)
			AbandonOne(i);
}

static void
AbandonAtExit(int code, Datum arg)
{
	Abandon();
}

/* ---- waiting -------------------------------------------------------------- */

static inline bool
Answered(GgShare *share)
{
	while (share->nlists > 0)
	{
		const volatile uint32 *done = &share->slot->done[share->lists[share->nlists - 1]];

		if (*done != (uint32) share->ticket)
			return false;
		share->nlists--;
	}
	pg_read_barrier();
	return true;
}

/* Will no answer come?  The worker said so or has ended, or another worker has started. */
static bool
NoAnswerComes(const GgShare *share)
{
	return pg_atomic_read_u64(&share->slot->word) == GgSlotWord(share->ticket, GG_SLOT_FAILED) ||
		!GgDeviceIsUp(share->device) ||
		pg_atomic_read_u64(&share->device->epoch) != share->epoch;
}

static Kind
KindOf(const GgSlot *slot)
{
	return slot->ntargets > 0 ? GROUP : slot->chunk < 0 ? IN_SLOT :
		slot->request.count > 1 ? MANY_QUERIES : LONG_OR_FILTERED;
}

/* For how long to spin: 0 where sleeping is better. */
static uint64
SpinBudget(const GgShare *share, Kind kind)
{
	uint32		up = 0;

	/* the worker needs a processor of its own, and so does a CPU engine that plays the device */
	if (GgProcessors() < 4)
		return 0;

	/*
	 * Who spins lets others have its processor between its looks.  So as many callers may spin as
	 * there are processors: 16 callers on 16 have 1.1 to 1.4 times as many answers as where only
	 * eight of them spun, and the worker had to wake the others.
	 */
	for (int i = 0; i < gg_service->ndevices; i++)
		up += GgDeviceIsUp(gg_service->devices[i]);
	if (pg_atomic_read_u32(&share->device->ring->waiting) * up > (uint32) GgProcessors())
		return 0;
	if (average_us[kind] > SPIN_MOST_US && slept[kind] % SPIN_AGAIN != SPIN_AGAIN - 1)
		return 0;
	return (uint64) Min(2 * average_us[kind], SPIN_MOST_US);
}

static bool
Spin(GgShare *share, uint64 start)
{
	uint64		budget = SpinBudget(share, KindOf(share->slot));

	while (budget > 0)
	{
		for (int i = 0; i < 8; i++)
		{
			if (Answered(share))
				return true;
			SPIN_DELAY();
		}
		if (InterruptPending || NoAnswerComes(share) || GgNowMicros() - start > budget)
			break;
		sched_yield();
	}
	return Answered(share);
}

static bool
Sleep(GgShare *share, uint64 start)
{
	static uint32 wait_event = 0;
	GgSlot	   *slot = share->slot;
	bool		answered;

	/* the worker sees done, then looks at sleeping; we set sleeping, then look at done */
	pg_atomic_write_u32(&slot->sleeping, 1);
	pg_memory_barrier();
	for (;;)
	{
		answered = Answered(share);
		if (answered || NoAnswerComes(share))
			break;
		if (GgNowMicros() - start > ANSWER_MOST_US && share->fault != GG_FAULT_STALL)
			break;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, SLEEP_MOST_MS,
						 GgWaitEvent(wait_event, "GpugraphAnswer"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	pg_atomic_write_u32(&slot->sleeping, 0);
	return answered;
}

/*
 * Wait for the answer; false when there will be none.  learn: the time that it takes counts for
 * what is expected of the next ones.  Not inlined: its variables would have to survive a longjmp.
 */
static pg_noinline bool
Await(GgShare *share, uint64 start, bool learn)
{
	const Kind	kind = KindOf(share->slot);
	bool		answered = Spin(share, start);

	slept[kind] = answered ? 0 : slept[kind] + 1;
	answered = answered || Sleep(share, start);
	if (answered && learn)
		average_us[kind] += ((double) (GgNowMicros() - start) - average_us[kind]) / 8;
	return answered;
}

/* ---- the query -------------------------------------------------------------- */

/* This process's slot with the device, and its next ticket; NULL: none, or it is not free. */
static GgSlot *
OwnSlot(GgDevice *device, uint64 *ticket)
{
	static bool registered = false;
	GgSlot	   *slot;
	uint64		word;

	if (GgMyProcNumber() >= gg_service->nslots)
		return NULL;
	slot = &device->slots[GgMyProcNumber()];
	word = pg_atomic_read_u64(&slot->word);
	if (GgSlotStateOf(word) == GG_SLOT_ABANDONED)
		for (uint64 start = GgNowMicros(); GgNowMicros() - start < ABANDONED_MOST_US;)
		{
			SPIN_DELAY();
			word = pg_atomic_read_u64(&slot->word);
			if (GgSlotStateOf(word) == GG_SLOT_FREE)
				break;
		}
	if (GgSlotStateOf(word) == GG_SLOT_ABANDONED &&
		pg_atomic_read_u32(&device->state) == GG_DEVICE_GONE &&
		GgSlotFreeAbandoned(slot, GgSlotTicket(word)))
		word = pg_atomic_read_u64(&slot->word);
	if (GgSlotStateOf(word) != GG_SLOT_FREE)
		return NULL;
	if (!registered)
	{
		before_shmem_exit(AbandonAtExit, (Datum) 0);
		registered = true;
	}
	/* done words are compared with the ticket's low half, and are 0 at first */
	*ticket = GgSlotTicket(word) + 1;
	if ((uint32) *ticket == 0)
		(*ticket)++;
	return slot;
}

/* The lists that a request asks for. */
static void
NameLists(GgShare *share, const gg_request *request)
{
	share->nlists = 0;
	for (uint32 i = 0; i <= request->nsegments; i++)
		if (gg_request_asks(request, i))
			share->lists[share->nlists++] = i;
	Assert(share->nlists > 0);
}

/* Post the query that is in the slot; false when the ring is full. */
static bool
Post(GgShare *share)
{
	GgSlot	   *slot = share->slot;

	pg_write_barrier();
	pg_atomic_write_u64(&slot->word, GgSlotWord(share->ticket, GG_SLOT_QUEUED));
	if (!GgRingPush(share->device->ring, GgMyProcNumber(), (uint32) share->ticket))
	{
		pg_atomic_write_u64(&slot->word, GgSlotWord(share->ticket, GG_SLOT_FREE));
		return false;
	}
	posted[share->part.device].slot = slot;
	posted[share->part.device].ticket = share->ticket;
	pg_atomic_fetch_add_u32(&share->device->ring->waiting, 1);
	GgWakeDevice(share->device);
	return true;
}

/* Give up a request that no answer will come to; returns the reason. */
static GgReason
GiveUp(GgShare *share)
{
	GgReason	reason = GG_REASON_FAILED;

	if (pg_atomic_read_u64(&share->slot->word) == GgSlotWord(share->ticket, GG_SLOT_FAILED))
	{
		pg_read_barrier();
		reason = share->slot->reason;
	}
	AbandonOne(share->part.device);
	return reason;
}

/* The answer is there: the slot is ours again. */
static void
TakeAnswer(GgShare *share)
{
	/*
	 * It may be FAILED after all: a worker that started meanwhile, or whose engine failed after
	 * this query, did not know that the answer was there.  Nothing in flight names the slot in
	 * this case either.
	 */
	if (!GgSlotMove(share->slot, share->ticket, GG_SLOT_RUNNING, GG_SLOT_FREE))
		(void) GgSlotMove(share->slot, share->ticket, GG_SLOT_FAILED, GG_SLOT_FREE);
	EndPosted(share->part.device);
}

bool
GgAskBegin(GgShare *share, const gg_request *request, GgReason *reason)
{
	GgSlot	   *slot;

	*reason = GG_REASON_NO_SERVICE;
	share->device = gg_service->devices[share->part.device];
	share->epoch = pg_atomic_read_u64(&share->device->epoch);
	if (!GgDeviceIsUp(share->device))
		return false;
	NameLists(share, request);

	*reason = GG_REASON_BUSY;
	slot = share->slot = NULL;
	if (share->fault != GG_FAULT_RING_FULL)
		slot = share->slot = OwnSlot(share->device, &share->ticket);
	if (slot == NULL)
		return false;
	slot->procno = GgMyProcNumber();
	slot->entry = share->part.entry;
	slot->serial = share->part.serial;
	slot->ntargets = 0;
	slot->request = *request;
	slot->fault = share->fault;
	slot->chunk = -1;
	return true;
}

/* Post all requests.  False: *failed is the first that could not be, and all are given up. */
static bool
PostAll(GgShare *shares, int n, int *failed)
{
	uint64		now = GgNowMicros();

	for (int i = 0; i < n; i++)
	{
		shares[i].slot->posted_us = now;
		if (Post(&shares[i]))
			continue;
		for (int j = i; j < n; j++)
			GgSlotGiveChunkBack(shares[j].slot);
		Abandon();
		*failed = i;
		return false;
	}
	return true;
}

bool
GgAskAndWait(GgShare *shares, int n, const GgMeanwhile *meanwhile, GgReason *reason, int *failed)
{
	for (int i = 0; i < n; i++)
		shares[i].answered = false;
	GgHold(GG_FAULT_HOLD_POST);
	if (!PostAll(shares, n, failed))
	{
		*reason = GG_REASON_BUSY;
		return false;
	}
	*reason = GG_REASON_NONE;
	PG_TRY();
	{
		bool		learn = true;

		if (meanwhile->run != NULL)
		{
			meanwhile->run(meanwhile->arg);
			learn = !Answered(&shares[0]);
		}
		for (int i = 0; i < n; i++)
		{
			shares[i].answered = Await(&shares[i], shares[i].slot->posted_us, learn && i == 0);
			if (shares[i].answered)
				continue;
			*failed = i;
			*reason = GiveUp(&shares[i]);
		}
	}
	PG_CATCH();
	{
		/* an error gives the slots up */
		Abandon();
		PG_RE_THROW();
	}
	PG_END_TRY();
	for (int i = 0; i < n; i++)
		if (shares[i].answered)
			TakeAnswer(&shares[i]);
	return *reason == GG_REASON_NONE;
}

/* ---- when the CPU has to answer ----------------------------------------------- */

const char *
GgReasonText(GgReason reason)
{
	static const char *const texts[] = {
		[GG_REASON_NONE] = "A GPU answers.",
		[GG_REASON_SETTING] = "gpugraph.engine is \"cpu\".",
		[GG_REASON_NOT_RESIDENT] = "The index is not on a GPU.",
		[GG_REASON_LOADING] = "The index is being loaded to a GPU.",
		[GG_REASON_MEMORY] = "The index does not fit into what gpugraph.device_memory allows.",
		[GG_REASON_BUSY] = "The GPU service has no room for the query.",
		[GG_REASON_FAILED] =
			"The GPU, or the load of the index to it, failed; the server log has the cause.",
		[GG_REASON_TOO_LARGE] = "The query asks for more candidates than the GPU service takes.",
		[GG_REASON_LOCAL] = "Only this session can read the index.",
		[GG_REASON_SMALL] = "The index has so few rows that an exact scan is as fast.",
		[GG_REASON_CODED] = "The index, or the GPU's copy of it, has codes and no vectors.",
		[GG_REASON_PARTIAL] = "Only some segments of the index fit on the GPU.",
		[GG_REASON_EXACT] = "The answer is exact: the CPU finds it."
	};

	if (reason != GG_REASON_NO_SERVICE)
		return reason < lengthof(texts) ? texts[reason] : "The reason is not known.";
#ifndef GG_WITH_CUDA
	if (gg_service_engine == GG_SERVICE_CUDA)
		return "This gpugraph was built without CUDA.";
#endif
	return gg_service == NULL ?
		"There is no GPU service: it needs gpugraph in shared_preload_libraries, and "
		"gpugraph.devices." :
		"No worker of the GPU service has a device that works.";
}

void
GgRequireDevice(Relation index, GgReason reason)
{
	if (gg_engine_setting != GG_ENGINE_CUDA || GgIsChoice(reason))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("gpugraph.engine is \"cuda\" but no GPU can search index \"%s\"",
					RelationGetRelationName(index)),
			 errdetail("%s", GgReasonText(reason)),
			 errhint("Set gpugraph.engine to \"auto\" or \"cpu\" to use the CPU.")));
}

void
GgFallBack(Relation index, GgReason reason)
{
	const uint64 pause_us = 60 * UINT64CONST(1000000);
	uint64		last;
	uint64		now;

	GgRequireDevice(index, reason);

	/*
	 * it is normal that an index is not on a device, is on its way there, or has codes alone; where
	 * no device works, the workers log why
	 */
	if (GgIsChoice(reason) || reason == GG_REASON_NO_SERVICE || reason == GG_REASON_LOADING ||
		reason == GG_REASON_NOT_RESIDENT || reason == GG_REASON_CODED)
		return;
	now = GgNowMicros();
	last = pg_atomic_read_u64(&gg_service->told_us[reason]);
	if ((last != 0 && now < last + pause_us) ||
		!pg_atomic_compare_exchange_u64(&gg_service->told_us[reason], &last, now))
		return;
	ereport(LOG,
			(errmsg("gpugraph: searches of index \"%s\" use the CPU",
					RelationGetRelationName(index)),
			 errdetail("%s", GgReasonText(reason)),
			 errhint("This is told once a minute; gpugraph_stat_index counts the searches.")));
}
