/*
 * client.c
 *		A backend's query: posted into its slot, waited for, given up when cancelled.
 *
 * The usual query makes no system call: the backend writes the slot, puts its number into the ring and spins on
 * the done words, which the device itself writes.  It spins only where that pays: for about as long as its
 * last answers took, and only while there are processors to spare; otherwise it sleeps on its latch.
 *
 * Whatever goes wrong, the caller gets false with the reason, and the CPU answers.
 */
#include "service/service.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/s_lock.h"
#include "utils/timestamp.h"

#include "service/ring.h"

/*
 * Going to sleep and being woken costs some 10 us on an idle host, and more on a busy one.  Answers that take
 * longer than this are slept for.
 */
#define SPIN_MOST_US		150

/* An answer that was slept for looks slow because it was; every so many of these another one is spun for. */
#define SPIN_AGAIN			16

/*
 * How long to wait for the own slot where a query that was given up still has it: about a launch.  The worker gives
 * it back as soon as the device is through.
 */
#define ABANDONED_MOST_US	200

/* A sleeper is woken by the worker; this is for a worker that was killed before it could. */
#define SLEEP_MOST_MS		100

/*
 * A worker or device that hangs says nothing, and the state stays UP.  No launch takes a hundredth of this, and a query that is
 * given up too early costs a search on the CPU.
 */
#define ANSWER_MOST_US		5000000

/* gpugraph.fault = post_stall */
#define POST_STALL_US		4000000

/* The query under way: its slot is to be given up when this process ends or throws. */
static GgSlot *posted = NULL;
static GgRing *posted_ring = NULL;
static uint64 posted_ticket;

static double average_us = SPIN_MOST_US / 2;
static uint32 slept = 0;		/* in a row */

/* ---- giving up ---------------------------------------------------------- */

static bool
ChangeState(GgSlot *slot, uint64 ticket, GgSlotState from, GgSlotState to)
{
	uint64		word = GgSlotWord(ticket, from);

	return pg_atomic_compare_exchange_u64(&slot->word, &word, GgSlotWord(ticket, to));
}

/* The query is over for this process, whatever becomes of its slot. */
static void
EndPosted(void)
{
	posted = NULL;
	pg_atomic_fetch_sub_u32(&posted_ring->waiting, 1);
}

static void
Abandon(void)
{
	GgSlot	   *slot = posted;

	if (slot == NULL)
		return;
	pg_atomic_write_u32(&slot->sleeping, 0);
	if (ChangeState(slot, posted_ticket, GG_SLOT_QUEUED, GG_SLOT_ABANDONED) ||
		ChangeState(slot, posted_ticket, GG_SLOT_RUNNING, GG_SLOT_ABANDONED))
	{
		/* the worker may have seen the answer already, and not look at the slot again unless told */
		pg_atomic_fetch_add_u32(&posted_ring->abandoned, 1);
		for (int i = 0; i < gg_service->ndevices; i++)
			if (gg_service->devices[i]->ring == posted_ring)
				GgWakeDevice(gg_service->devices[i]);
	}
	else
		(void) ChangeState(slot, posted_ticket, GG_SLOT_FAILED, GG_SLOT_FREE);
	EndPosted();
}

static void
AbandonAtExit(int code, Datum arg)
{
	Abandon();
}

/* ---- waiting -------------------------------------------------------------- */

typedef struct Wanted
{
	GgSlot	   *slot;
	GgDevice   *device;
	uint64		ticket;
	uint64		epoch;			/* of the worker that the query was posted to */
	int			nlists;			/* still to come */
	uint8		lists[GG_SERVE_MAX_LISTS];
} Wanted;

static inline bool
Answered(Wanted *wanted)
{
	while (wanted->nlists > 0)
	{
		const volatile uint32 *done = &wanted->slot->done[wanted->lists[wanted->nlists - 1]];

		if (*done != (uint32) wanted->ticket)
			return false;
		wanted->nlists--;
	}
	pg_read_barrier();
	return true;
}

/* No answer will come: the worker said so, or is not the one that was asked. */
static bool
Hopeless(const Wanted *wanted)
{
	return pg_atomic_read_u64(&wanted->slot->word) == GgSlotWord(wanted->ticket, GG_SLOT_FAILED) ||
		pg_atomic_read_u32(&wanted->device->state) != GG_DEVICE_UP ||
		pg_atomic_read_u64(&wanted->device->epoch) != wanted->epoch;
}

/* For how long to spin: 0 where sleeping is better. */
static uint64
SpinBudget(void)
{
	uint32		up = 0;

	/* of few processors the worker needs one, and whoever plays the device another */
	if (GgProcessors() < 4)
		return 0;
	/* as many clients, of all devices that are there, as half the processors: the others' executors need the rest */
	for (int i = 0; i < gg_service->ndevices; i++)
		up += pg_atomic_read_u32(&gg_service->devices[i]->state) == GG_DEVICE_UP;
	if (pg_atomic_read_u32(&posted_ring->waiting) * up > (uint32) GgProcessors() / 2)
		return 0;
	if (average_us > SPIN_MOST_US && slept % SPIN_AGAIN != SPIN_AGAIN - 1)
		return 0;
	return (uint64) Min(2 * average_us, SPIN_MOST_US);
}

static bool
Spin(Wanted *wanted, uint64 start)
{
	uint64		budget = SpinBudget();

	while (budget > 0)
	{
		for (int i = 0; i < 8; i++)
		{
			if (Answered(wanted))
				return true;
			SPIN_DELAY();
		}
		if (InterruptPending || Hopeless(wanted) || GgNowMicros() - start > budget)
			break;
	}
	return Answered(wanted);
}

/* not inlined: its variables would have to survive a longjmp */
static pg_noinline bool
Sleep(Wanted *wanted, uint64 start)
{
	static uint32 wait_event = 0;
	GgSlot	   *slot = wanted->slot;
	bool		answered;

	/* the worker sees done, then looks at sleeping; we the other way round */
	pg_atomic_write_u32(&slot->sleeping, 1);
	pg_memory_barrier();
	for (;;)
	{
		answered = Answered(wanted);
		if (answered || Hopeless(wanted) || GgNowMicros() - start > ANSWER_MOST_US)
			break;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, SLEEP_MOST_MS,
						 GgWaitEvent(wait_event, "GpugraphAnswer"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	pg_atomic_write_u32(&slot->sleeping, 0);
	return answered;
}

/* Wait for the answer; false when there will be none.  The slot is given up when an interrupt throws. */
static bool
Await(Wanted *wanted, uint64 start)
{
	volatile bool answered = Spin(wanted, start);

	if (answered)
		slept = 0;
	else
	{
		slept++;
		PG_TRY();
		{
			answered = Sleep(wanted, start);
		}
		PG_CATCH();
		{
			Abandon();
			PG_RE_THROW();
		}
		PG_END_TRY();
	}
	if (answered)
		average_us += ((double) (GgNowMicros() - start) - average_us) / 8;
	return answered;
}

/* ---- the query -------------------------------------------------------------- */

/* This process's slot when it is free, and its next ticket. */
static GgSlot *
OwnSlot(uint64 *ticket)
{
	static bool registered = false;
	GgSlot	   *slot;
	uint64		word;

	if (GgMyProcNumber() >= gg_service->nslots)
		return NULL;
	slot = &gg_service->slots[GgMyProcNumber()];
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
		pg_atomic_read_u32(&gg_service->devices[slot->device]->state) == GG_DEVICE_GONE &&
		ChangeState(slot, GgSlotTicket(word), GG_SLOT_ABANDONED, GG_SLOT_FREE))
		word = pg_atomic_read_u64(&slot->word);
	if (GgSlotStateOf(word) != GG_SLOT_FREE)
		return NULL;
	if (!registered)
	{
		before_shmem_exit(AbandonAtExit, (Datum) 0);
		registered = true;
	}
	/* done words are compared with its low half, and are 0 at first */
	*ticket = GgSlotTicket(word) + 1;
	if ((uint32) *ticket == 0)
		(*ticket)++;
	return slot;
}

bool
GgServiceSearch(const GgResidentRef *ref, const float *query, uint32 dim, uint32 lists, bool delta,
				bool exact, uint32 k, uint32 itopk_size, GgServiceAnswer *answer, GgWhy *why)
{
	Wanted		wanted;
	GgSlot	   *slot;
	uint64		start;

	*why = GG_CPU_NO_SERVICE;
	if (gg_service == NULL)
		return false;
	wanted.device = gg_service->devices[ref->device];
	wanted.epoch = pg_atomic_read_u64(&wanted.device->epoch);
	if (pg_atomic_read_u32(&wanted.device->state) != GG_DEVICE_UP)
		return false;

	/* the last list first, so that the others are seldom looked at more than once */
	wanted.nlists = 0;
	for (uint32 i = 0; i < ref->nsegments; i++)
		if (lists & ((uint32) 1 << i))
			wanted.lists[wanted.nlists++] = i;
	if (delta)
		wanted.lists[wanted.nlists++] = ref->nsegments;
	Assert(wanted.nlists > 0);

	*why = GG_CPU_TOO_LARGE;
	if ((uint64) (wanted.lists[wanted.nlists - 1] + 1) * k > GG_SLOT_CANDIDATES || dim > GG_MAX_DIM ||
		k > GG_MAX_ITOPK || itopk_size > GG_MAX_ITOPK)
		return false;

	*why = GG_CPU_BUSY;
	slot = wanted.slot = gg_fault == GG_FAULT_RING_FULL ? NULL : OwnSlot(&wanted.ticket);
	if (slot == NULL)
		return false;

	if (gg_fault == GG_FAULT_POST_STALL)
		for (start = GgNowMicros(); GgNowMicros() - start < POST_STALL_US;)
			pg_usleep(1000);

	slot->device = ref->device;
	slot->procno = GgMyProcNumber();
	slot->entry = ref->entry;
	slot->serial = ref->serial;
	slot->nlists = ref->nsegments + 1;
	slot->lists = lists;
	slot->delta = delta;
	slot->exact = exact;
	slot->k = k;
	slot->itopk_size = itopk_size;
	slot->fault = gg_fault;
	memcpy(slot->query, query, dim * sizeof(float));
	slot->posted_us = start = GgNowMicros();

	posted_ring = wanted.device->ring;
	posted_ticket = wanted.ticket;
	pg_write_barrier();
	pg_atomic_write_u64(&slot->word, GgSlotWord(wanted.ticket, GG_SLOT_QUEUED));
	if (!GgRingPush(posted_ring, GgMyProcNumber(), (uint32) wanted.ticket))
	{
		pg_atomic_write_u64(&slot->word, GgSlotWord(wanted.ticket, GG_SLOT_FREE));
		return false;
	}
	posted = slot;
	pg_atomic_fetch_add_u32(&posted_ring->waiting, 1);
	GgWakeDevice(wanted.device);

	if (!Await(&wanted, start))
	{
		*why = GG_CPU_FAILED;
		if (pg_atomic_read_u64(&slot->word) == GgSlotWord(wanted.ticket, GG_SLOT_FAILED))
		{
			pg_read_barrier();
			*why = slot->why;
		}
		Abandon();
		return false;
	}
	/*
	 * FAILED after all: a worker that started meanwhile, or whose engine failed behind this query, did not know that the answer
	 * was there.  Nothing in flight names the slot then either.
	 */
	if (!ChangeState(slot, wanted.ticket, GG_SLOT_RUNNING, GG_SLOT_FREE))
		(void) ChangeState(slot, wanted.ticket, GG_SLOT_FAILED, GG_SLOT_FREE);
	EndPosted();

	/* nobody writes into a free slot, and this process posts nothing else before its next query */
	answer->nlists = ref->nsegments + 1;
	answer->k = k;
	answer->nodes = slot->nodes;
	answer->distances = slot->distances;
	*why = GG_BY_DEVICE;
	return true;
}

/* ---- when the CPU has to answer ----------------------------------------------- */

const char *
GgWhyText(GgWhy why)
{
	switch (why)
	{
		case GG_BY_DEVICE:
			return "A GPU answers.";
		case GG_CPU_SETTING:
			return "gpugraph.engine is \"cpu\".";
		case GG_CPU_NO_SERVICE:
#ifndef GG_WITH_CUDA
			if (gg_service_engine == GG_SERVICE_CUDA)
				return "This gpugraph was built without CUDA.";
#endif
			if (gg_service == NULL)
				return "There is no GPU service: it needs gpugraph in shared_preload_libraries, and gpugraph.devices.";
			return "No worker of the GPU service has a device that works.";
		case GG_CPU_NOT_RESIDENT:
			return "The index is not on a GPU.";
		case GG_CPU_LOADING:
			return "The index is being loaded to a GPU.";
		case GG_CPU_MEMORY:
			return "The index does not fit into what gpugraph.device_memory allows.";
		case GG_CPU_BUSY:
			return "The GPU service has no room for the query.";
		case GG_CPU_FAILED:
			return "The GPU, or the load of the index to it, failed; the server log has the cause.";
		case GG_CPU_TOO_LARGE:
			return "The query asks for more candidates than the GPU service takes.";
		case GG_CPU_LOCAL:
			return "Only this session can read the index.";
		case GG_CPU_SMALL:
			return "The index has so few rows that an exact scan is as fast.";
		default:
			return "The reason is not known.";
	}
}

void
GgRequireDevice(Relation index, GgWhy why)
{
	if (gg_engine_setting != GG_ENGINE_CUDA || GgIsChoice(why))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("gpugraph.engine is \"cuda\" but no GPU can search index \"%s\"",
					RelationGetRelationName(index)),
			 errdetail("%s", GgWhyText(why)),
			 errhint("Set gpugraph.engine to \"auto\" or \"cpu\" to use the CPU.")));
}

void
GgFallBack(Relation index, GgWhy why)
{
	const uint64 pause_us = 60 * UINT64CONST(1000000);
	uint64		last;
	uint64		now;

	GgRequireDevice(index, why);

	/* an index on its way to the device is usual; without a device its worker has told */
	if (GgIsChoice(why) || why == GG_CPU_NO_SERVICE || why == GG_CPU_LOADING ||
		why == GG_CPU_NOT_RESIDENT)
		return;
	now = GgNowMicros();
	last = pg_atomic_read_u64(&gg_service->told_us[why]);
	if ((last != 0 && now < last + pause_us) ||
		!pg_atomic_compare_exchange_u64(&gg_service->told_us[why], &last, now))
		return;
	ereport(LOG,
			(errmsg("gpugraph: searches of index \"%s\" use the CPU", RelationGetRelationName(index)),
			 errdetail("%s", GgWhyText(why)),
			 errhint("This is told once a minute; gpugraph_stat_index counts the searches.")));
}
