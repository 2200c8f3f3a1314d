/*
 * service.h
 *		The GPU service: what its files and the scan share.
 *
 * One background worker a device owns the device's context and answers every backend's queries; see
 * src/README, "The GPU service".  Files and owners of each part of this header:
 *
 *	shmem.c		settings, shared memory, registration of the workers
 *	worker.c	the worker's life: start, loop, faults, breaker, exit
 *	dispatch.c	from the ring to batches to answers (worker)
 *	client.c	a backend's query: post, wait, cancel
 *	lookup.c	is an index on a device: the table of residents as backends see it; prewarm, evict
 *	resident.c	the same table as the worker keeps it: copies, memory, LRU, what was dropped
 *	resident_load.c	its loads and refreshes, from wanted to ready or failed (worker)
 *	preload.c	the list of residents on disk, for gpugraph.autoprewarm
 *	upload.c	from staging chunks to the device (a thread of the worker: no PostgreSQL in it)
 *	handover.c	a load in the process that brings it: handle, staging chunks, giving up; loads of CREATE INDEX
 *	loader.c	from relation pages to staging chunks (dynamic workers)
 *	stat.c		counters and the views over them
 *
 * Nothing of an answer is the truth but (list, node, distance): TIDs are read from the relation's pages
 * when a row is returned, so a stale device copy can never surface a recycled TID.
 */
#ifndef GG_SERVICE_H
#define GG_SERVICE_H

#include "storage/pages.h"

#include <time.h>

#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

/* ---- settings (shmem.c) ------------------------------------------------- */

#define GG_MAX_DEVICES		16

typedef enum GgServiceEngine
{
	GG_SERVICE_CUDA,
	GG_SERVICE_CPU				/* for tests and trials: the CPU engine plays a device */
} GgServiceEngine;

/*
 * What gpugraph.fault (superusers, for tests) makes the service do.  Faults of a query travel with the
 * query; faults of a load with the load request; NO_DRIVER and NO_DEVICE are read by the worker as
 * it starts.
 */
typedef enum GgFault
{
	GG_FAULT_NONE,
	GG_FAULT_LAUNCH,			/* the launch fails, the device goes on */
	GG_FAULT_DEVICE,			/* the device is lost: the worker has to restart */
	GG_FAULT_EXIT,				/* the worker exits as if terminated */
	GG_FAULT_STALL,				/* the answer takes a second */
	GG_FAULT_RING_FULL,			/* the backend finds no room */
	GG_FAULT_DEVICE_MEMORY,		/* a load finds too little device memory */
	GG_FAULT_LOAD,				/* the loader fails half-way */
	GG_FAULT_LOAD_STALL,		/* every reader of a load rests for a second, once half-way is reached */
	GG_FAULT_NO_DRIVER,			/* the worker finds no device */
	GG_FAULT_NO_DEVICE,			/* the worker finds others, but not its own */
	GG_FAULT_POST_STALL			/* the backend rests for some seconds before it posts its query */
} GgFault;

extern int	gg_service_engine;	/* gpugraph.service_engine, GgServiceEngine; postmaster */
extern char *gg_devices;		/* gpugraph.devices: "all", or a list of numbers; postmaster */
extern int	gg_device_memory_mb;	/* gpugraph.device_memory in MB: what residents may take of each device; 0: nine tenths of it; sighup */
extern bool gg_autoprewarm;		/* gpugraph.autoprewarm; sighup */
extern int	gg_loaders;			/* gpugraph.load_workers: readers of one big index; sighup */
extern int	gg_load_reader_pages;	/* gpugraph.load_reader_pages: pages that are worth a reader, for tests; sighup */
extern int	gg_fault;			/* gpugraph.fault, GgFault; superuser */

/* ---- shared memory ------------------------------------------------------ */

#define GG_SLOT_CANDIDATES	4096	/* room for answers: lists x k */

/* Why a query was answered where it was; for the counters and for gpugraph.engine = cuda. */
typedef enum GgWhy
{
	GG_BY_DEVICE = 0,
	GG_CPU_SETTING,				/* gpugraph.engine = cpu */
	GG_CPU_NO_SERVICE,			/* not preloaded, no device, no live worker */
	GG_CPU_NOT_RESIDENT,		/* not loaded, and not asked for just now (autoload off, or it failed lately) */
	GG_CPU_LOADING,
	GG_CPU_MEMORY,				/* does not fit under gpugraph.device_memory */
	GG_CPU_BUSY,				/* ring full, or the slot still in use by an abandoned query */
	GG_CPU_FAILED,				/* launch or device failed */
	GG_CPU_TOO_LARGE,			/* lists x k above GG_SLOT_CANDIDATES */
	GG_CPU_LOCAL,				/* temporary, or created by this transaction: nobody else can read it */
	GG_CPU_SMALL,				/* so few rows that an exact scan is as fast */
	GG_NWHY
} GgWhy;

/* Reasons that are nobody's failure. */
static inline bool
GgIsChoice(GgWhy why)
{
	return why == GG_BY_DEVICE || why == GG_CPU_SETTING || why == GG_CPU_LOCAL || why == GG_CPU_SMALL;
}

/*
 * A slot: one a PGPROC (backends and background workers), so that no two queries of one process are under way at once.  The
 * word holds (ticket << 8 | state): every change is a compare-and-swap of both, so a change meant for an
 * earlier query never hits a later one.
 *
 *	FREE -> QUEUED		the backend, before it puts the slot's number into the ring
 *	QUEUED -> RUNNING	the worker, when it takes the slot into a batch
 *	RUNNING -> FREE		the backend, when done[0 .. nlists) all have reached the ticket
 *	QUEUED|RUNNING -> ABANDONED		the backend, cancelled; it then goes its way at once.
 *	ABANDONED -> FREE	the worker, when nothing in flight writes the slot any more
 *	QUEUED|RUNNING -> FAILED		the worker, with why; FAILED -> FREE by the backend, also when it has seen the answer
 *
 * A process that ends abandons its slot (before_shmem_exit).  A backend that finds its slot not FREE when it
 * has a new query uses the CPU.  A worker that starts frees every slot that a worker of the same device left behind; until
 * then such slots stay as they are, since a dying context may still write them.  The last worker
 * of a device that is gone for good (GG_DEVICE_GONE) has opened no context: what is ABANDONED to
 * it later, the process itself sets FREE.
 */
typedef enum GgSlotState
{
	GG_SLOT_FREE = 0,
	GG_SLOT_QUEUED,
	GG_SLOT_RUNNING,
	GG_SLOT_ABANDONED,
	GG_SLOT_FAILED
} GgSlotState;

#define GgSlotWord(ticket, state)	((uint64) (ticket) << 8 | (state))
#define GgSlotTicket(word)			((word) >> 8)
#define GgSlotStateOf(word)			((GgSlotState) ((word) & 0xFF))

typedef struct GgSlot
{
	pg_atomic_uint64 word;
	pg_atomic_uint32 sleeping;	/* the backend waits on its latch */

	/* the query: written by the backend before QUEUED, read by the worker */
	int32		device;
	int32		procno;			/* whose latch to set */
	uint32		entry;			/* GgResidentRef */
	uint32		serial;
	uint32		nlists;			/* segments + 1, whether there is a delta or not */
	uint32		lists;			/* bitmap over 32 segments ... */
	bool		delta;			/* ... and whether the delta (list nlists - 1) is asked for */
	bool		exact;
	uint32		k;
	uint32		itopk_size;
	int32		fault;			/* GgFault */

	/* written by the worker before FAILED */
	int32		why;			/* GgWhy */

	/* microseconds of a monotonic clock; for the percentiles */
	uint64		posted_us;

	/* what follows is read and written by the device; offsets in gg_serve_layout */
	pg_attribute_aligned(64) uint32 done[GG_SERVE_MAX_LISTS];
	pg_attribute_aligned(64) uint32 nodes[GG_SLOT_CANDIDATES];
	pg_attribute_aligned(64) float distances[GG_SLOT_CANDIDATES];
	pg_attribute_aligned(64) float query[GG_MAX_DIM];
} GgSlot;

typedef enum GgDeviceState
{
	GG_DEVICE_DOWN = 0,			/* no worker, or it has not got so far */
	GG_DEVICE_UP,
	GG_DEVICE_BROKEN,			/* the worker waits out its back-off, or found no device */
	GG_DEVICE_GONE				/* the device is not there: its last worker ended for good */
} GgDeviceState;

/* Powers of two of microseconds (times) or queries (batches). */
#define GG_HISTOGRAM_BUCKETS 32
/* Times: four buckets a power of two, so that percentiles are a quarter off at most. */
#define GG_TIME_BUCKETS		(4 * GG_HISTOGRAM_BUCKETS)

typedef struct GgDeviceStats
{
	/* single writer: the worker; readers may see a count a moment old */
	uint64		queries;
	uint64		batches;
	uint64		batch_sizes[GG_HISTOGRAM_BUCKETS];	/* bucket i: [2^i, 2^(i+1)) */
	uint64		queue_us[GG_TIME_BUCKETS];	/* posted to submitted; see GgTimeAdd() */
	uint64		kernel_us[GG_TIME_BUCKETS]; /* submitted to answered */
	uint64		abandoned;
	uint64		failed;
	uint64		loads;
	uint64		refreshes;
	uint64		evictions;
	uint64		failed_loads;
	/* kept over restarts and resets of the rest */
	uint64		restarts;
	TimestampTz started;		/* of the live worker */
	TimestampTz last_error_at;
	char		last_error[256];
	char		name[64];
	uint64		total_bytes;
	uint64		resident_bytes;
	TimestampTz reset_at;
} GgDeviceStats;

/* ---- residents (resident.c) ---------------------------------------------- */

#define GG_MAX_RESIDENT		128	/* a device */

/*
 * What a device copy is a copy of.  REINDEX, TRUNCATE and CLUSTER change the locator, builds the instance, merges the generation.  A
 * database that is dropped and made anew of the same template, with the same number, has them all again: hence database.
 */
typedef struct GgResidentKey
{
	GgRelFileLocator locator;
	uint64		instance;
	uint64		database;		/* GgDatabaseStamp(), where the instance is known */
	uint64		generation;
} GgResidentKey;

typedef enum GgResidentState
{
	GG_RESIDENT_FREE = 0,
	GG_RESIDENT_WANTED,			/* a loader is to be started */
	GG_RESIDENT_LOADING,
	GG_RESIDENT_READY,
	GG_RESIDENT_FAILED,			/* not tried again before retry_us */
	GG_RESIDENT_EVICTING		/* no new queries; goes when the last batch in flight has ended */
} GgResidentState;

typedef struct GgResident
{
	GgResidentState state;
	uint32		use;			/* new with every use of this entry */
	uint32		serial;			/* new with every copy that is made ready */
	uint32		copy;			/* 0 or 1: which of two places in the worker that copy takes */
	GgResidentKey key;			/* instance 0: preloaded, not known before it is opened */
	Oid			database;
	Oid			relation;
	char		name[NAMEDATALEN];	/* of the index; "" until a loader opened it */
	pg_atomic_uint32 refresh;	/* READY: 0, or GG_REFRESH_* */
	bool		forced;			/* at any cost: see ASKED_BY_MAINTAINER in lookup.c */
	int32		fault;			/* GgFault, of the request */
	uint32		nsegments;
	uint32		segments[GG_MAX_SEGMENTS];	/* GgSegment.id of list i */
	/* delta pages [delta_first, delta_first + delta_pages) are list nsegments; only full pages are covered */
	uint32		delta_first;
	uint32		delta_pages;
	uint64		vacuum_epoch;	/* that the delta was read in */
	uint64		bytes;
	pg_atomic_uint64 used;		/* for LRU: a clock that ticks with every query of the device */
	TimestampTz loaded_at;		/* times that are told; what is waited for goes by a clock that nobody sets: see GgNowMicros() */
	uint64		loaded_us;
	double		load_s;
	TimestampTz refreshed_at;	/* of the last refresh, or loaded_at */
	uint64		refreshed_us;
	uint64		began_us;		/* start of the load or refresh that made the copy */
	double		refresh_s;
	double		delta_s;		/* the delta's share of the last load or refresh */
	uint32		refreshes;
	uint32		failures;		/* in a row */
	TimestampTz failed_at;		/* the last of them */
	uint64		failed_us;
	uint64		retry_us;		/* FAILED, and of a refresh that failed */
	GgWhy		why;			/* FAILED: GG_CPU_MEMORY or GG_CPU_FAILED */
	char		error[160];		/* of the last load or refresh that failed */
} GgResident;

#define GG_REFRESH_WANTED	1
#define GG_REFRESH_LOADING	2

/*
 * What a backend's query names.  (entry, serial) is one copy, which never changes: a refresh makes a new one.
 * entry is opaque, below 2 * GG_MAX_RESIDENT.  A copy that was replaced goes on being answered from
 * until its last batch in flight has ended, and at least GG_REPLACED_MS after it was replaced.
 */
typedef struct GgResidentRef
{
	int			device;
	uint32		entry;
	uint32		serial;
	uint32		nsegments;		/* lists 0 .. nsegments - 1, in the order of the metapage's directory */
	uint32		delta_pages;	/* that list nsegments covers, whole rows all; 0: no such list */
} GgResidentRef;

#define GG_REPLACED_MS		200

/* ---- staging ---------------------------------------------------------------- */

#define GG_STAGE_CHUNK		((Size) 4 << 20)	/* 0.1 ms of copying at 40 GB/s */
#define GG_STAGE_CHUNKS		8

/* One chunk of one part of one list on its way to the device. */
typedef struct GgStageChunk
{
	pg_atomic_uint32 state;		/* GgChunkState, and above it the process that fills it: resident.h */
	uint32		load;			/* number and ... */
	uint32		serial;			/* ... serial of the GgLoadJob */
	uint32		list;
	uint32		part;			/* gg_part */
	uint64		offset;
	uint64		bytes;
} GgStageChunk;

/* ---- loads -------------------------------------------------------------------- */

#define GG_MAX_LOADS		4		/* at a time, a device */

typedef struct GgLoadList
{
	uint32		segment;		/* GgSegment.id; GG_NO_SEGMENT: the delta */
	bool		kept;			/* the copy to be replaced has it already */
	uint32		n;
	gg_shape	shape;
} GgLoadList;

/*
 * A load under way.  The word holds the serial (new with every load), flags and GgLoadState, see resident.h; who finds another
 * serial there has nothing to do with the load any more.
 */
typedef struct GgLoadJob
{
	pg_atomic_uint64 word;
	pg_atomic_uint64 claimed;	/* (serial, units that a reader took) */
	pg_atomic_uint64 filled;	/* (serial, units handed to the upload) */

	/* from the worker, or GgLoadBegin() */
	uint32		entry;
	uint32		use;
	bool		refresh;
	bool		forced;
	int32		fault;
	int32		owner;			/* process id of the builder; 0: a loader that the worker looks after */
	Oid			database;
	Oid			relation;
	uint64		began_us;

	/* from the loader or builder, before SHAPED */
	GgResidentKey key;
	char		name[NAMEDATALEN];
	uint32		unit_pages;		/* read at a time; here because all readers have to agree */
	uint32		delta_first;
	uint32		delta_pages;
	uint64		vacuum_epoch;
	uint32		nsegments;
	uint32		nlists;
	GgLoadList	lists[GG_SERVE_MAX_LISTS];

	/* why it failed; whoever sets the ABORT flag first, or the worker */
	bool		quiet;			/* nothing to tell anybody: the index is gone or has changed */
	GgWhy		why;
	char		error[160];
} GgLoadJob;

typedef struct GgDevice
{
	int			number;			/* CUDA's */
	LWLock	   *lock;			/* residents and load requests */
	pg_atomic_uint32 state;		/* GgDeviceState */
	pg_atomic_uint64 epoch;		/* counts worker starts */
	pg_atomic_uint32 sleeping;	/* the worker waits on its latch */
	Latch	   *latch;			/* the live worker's; set through GgWakeDevice() */
	int			pid;			/* the live worker's, 0 without one */

	/* breaker: failures in a row, and when the next worker may try */
	uint32		failures;
	uint64		not_before_us;
	uint64		up_since_us;

	/* ring of slot numbers (client.c, dispatch.c) */
	struct GgRing *ring;

	/* apart from what everybody reads all the time: every query writes it */
	pg_attribute_aligned(64) pg_atomic_uint64 clock;	/* for GgResident.used */
	pg_attribute_aligned(64) pg_atomic_uint32 work;		/* residents need the worker: WANTED, EVICTING, a load ended */
	uint64		limit_bytes;	/* what gpugraph.device_memory comes to; the live worker's */
	pg_atomic_uint32 reset;		/* the worker is to zero its counters */
	pg_atomic_uint32 nresidents;	/* entries from here on are free */
	uint32		last_use;		/* under lock */
	uint64		displaced_us;	/* under lock; when the full table last told one to go */
	uint32		last_serial;	/* the worker's; of all workers, for open cursors remember serials of any age */
	GgResident	residents[GG_MAX_RESIDENT];
	GgStageChunk chunks[GG_STAGE_CHUNKS];
	GgLoadJob	loads_under_way[GG_MAX_LOADS];
	char	   *staging;		/* GG_STAGE_CHUNKS x GG_STAGE_CHUNK, inside the region */
	GgDeviceStats stats;
} GgDevice;

/* The start of it all; NULL unless preloaded and gpugraph.devices is not empty. */
typedef struct GgService
{
	int			ndevices;		/* workers registered; with "all" the number is found by a first worker: see shmem.c */
	GgDevice   *devices[GG_MAX_DEVICES];
	uint32		nslots;
	char	   *region;			/* slots and staging, page aligned: what workers register with the device */
	Size		region_bytes;
	GgSlot	   *slots;
	struct GgIndexStats *index_stats;	/* stat.c */
	LWLock	   *stat_lock;
	pg_atomic_uint64 told_us[GG_NWHY];	/* of the last LOG line about this reason (client.c); 0: none */
} GgService;

extern GgService *gg_service;

/* shmem.c: from _PG_init; registers hooks, settings and workers when preloaded. */
extern void GgServiceInit(void);
extern void GgWakeDevice(GgDevice *device);

/* Have one more worker started for a device, by one that ends; false when there is no place for it. */
extern bool GgStartWorker(GgDevice *device);
extern void GgDeviceLayout(gg_serve_layout *layout);

/* Processors that this process may run on: whether it pays to spin. */
extern int	GgProcessors(void);

/* The engine that plays the device: gpugraph.service_engine. */
extern const gg_engine *GgServiceOps(void);

/* ---- a backend's query (client.c) ------------------------------------------ */

typedef struct GgServiceAnswer
{
	uint32		nlists;
	uint32		k;
	const uint32 *nodes;		/* list l at l * k; GG_NO_NODE at the end */
	const float *distances;
} GgServiceAnswer;

/*
 * Ask the device that ref names.  query: dim floats, unprepared.  lists: which of the ref's lists are wanted (bitmap of segments;
 * the delta, list nsegments, when delta is set).  True: *answer points into the slot, valid until
 * the next call.  False: *why says why the CPU has to answer.
 * Interruptible; a cancelled query leaves nothing behind.
 */
extern bool GgServiceSearch(const GgResidentRef *ref, const float *query, uint32 dim, uint32 lists, bool delta,
							bool exact, uint32 k, uint32 itopk_size, GgServiceAnswer *answer, GgWhy *why);

/*
 * gpugraph.engine = cuda: what else would be answered by the CPU for this reason is an error.  Reasons that
 * are not failures (LOCAL, SMALL, SETTING) are not.
 */
extern void GgRequireDevice(Relation index, GgWhy why);

/*
 * The CPU answers a query for this reason: an error under gpugraph.engine = cuda as above; else, where the reason is
 * a failure, one LOG line a minute in the whole server.
 */
extern void GgFallBack(Relation index, GgWhy why);

/* The reason as a sentence, for errdetail(). */
extern const char *GgWhyText(GgWhy why);

/* ---- worker.c and dispatch.c among themselves --------------------------------- */

extern PGDLLEXPORT void GgWorkerMain(Datum number);

/* The device cannot be used on: tell why, count it for the breaker and exit, to be started again. */
pg_noreturn extern void GgDeviceLost(const gg_status *status);

/* Something failed that leaves the device usable: last_error, and a LOG line if it is another than before. */
extern void GgDeviceTrouble(const gg_status *status);

/*
 * Start frees what an earlier worker left behind; Stop tells whoever waits that there is no answer to come; Drain waits for what
 * is in flight.
 */
extern void GgDispatchStart(GgDevice *device);
extern void GgDispatchServe(const gg_engine *engine, gg_server *server);
extern void GgDispatchStop(void);
extern void GgDispatchDrain(void);

/* One turn: take, submit, look for answers.  True when there was, or is in flight, anything. */
extern bool GgDispatchTurn(void);

/* Is there nothing in the ring?  For the worker that is about to sleep. */
extern bool GgDispatchIdle(void);

/*
 * Microseconds of a monotonic clock that all processes share.  All waiting goes by it: a wall clock that is put back by a day
 * would keep a device unused for a day.
 */
static inline uint64
GgNowMicros(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- residency, backend side (lookup.c, handover.c) --------------------------- */

/*
 * Is this generation of the index on a device?  If not, and the service is up, a load is asked for (once), and
 * *why tells what to tell.  Under gpugraph.engine = cuda waits (interruptibly) for a load under way.
 */
extern bool GgResidentLookup(Relation index, const GgMetaPageData *meta, GgResidentRef *ref, GgWhy *why);

/*
 * Bring one generation of an index to a device: by a loader that reads pages, or by the builder from its own
 * memory.  Begin picks the device and reserves memory, evicting what was used longest ago; NULL (and *why) when
 * there is no room or no service.  End makes it READY and returns false (with the reason logged) when the device
 * would not.  Abort forgets it; also what happens to a load whose process or (sub)transaction ends early, and
 * to what was made READY when the transaction is rolled back.  The handle is freed with the transaction.
 */
typedef struct GgLoad GgLoad;

extern GgLoad *GgLoadBegin(Relation index, const GgMetaPageData *meta, GgWhy *why);
extern void GgLoadWrite(GgLoad *load, uint32 list, gg_part part, uint64 offset, const void *data, uint64 bytes);
extern bool GgLoadEnd(GgLoad *load);
extern void GgLoadAbort(GgLoad *load);

/* ---- residency, worker side (resident.c) --------------------------------------- */

/* Start with an empty table and the upload thread; stop joins the thread and closes every index. */
extern void GgResidentStart(GgDevice *device, const gg_engine *engine);
extern void GgResidentStop(void);

/* Called every turn of the worker's loop; cheap when there is nothing to do (device->work). */
extern void GgResidentWork(void);

/* Milliseconds until it wants to be called again even if nobody wakes the worker. */
extern long GgResidentTimeout(void);

/*
 * The device's indexes of an entry; NULL when the serial is another's, or it is not READY.  Each pin is undone by an unpin;
 * a pinned entry is not closed.  A list without rows is NULL.
 */
extern gg_index **GgResidentPin(uint32 entry, uint32 serial, uint32 *nlists);
extern void GgResidentUnpin(uint32 entry);

/* ---- counters (stat.c) ---------------------------------------------------------- */

extern Size GgStatShmemSize(void);
extern void GgStatShmemInit(void);

/* One query of an index, answered by device or, for that reason, by the CPU. */
extern void GgCountQuery(Relation index, GgWhy why, uint64 rows);

/* What everybody may know of one index of this database. */
typedef struct GgIndexStat
{
	bool		up;				/* a device works */
	const char *state;			/* of the index there, as gpugraph_stat_index has it; NULL: absent */
	int			device;			/* the number of that device */
	GgWhy		failure;		/* why the state is "failed" */
	bool		counted;		/* the counts are of this index alone */
	uint64		queries_gpu;
	uint64		queries_cpu;
	uint64		missed;			/* of these, those that a device should have answered */
} GgIndexStat;

extern void GgStatOfIndex(Oid relation, GgIndexStat *stat);

/* Bucket of a time: its leading three bits; buckets 0 to 3 are the times 0 to 3. */
static inline int
GgTimeBucket(uint64 us)
{
	int			octave = us < 4 ? 1 : 63 - __builtin_clzll(us);
	int			bucket = us < 4 ? (int) us : 4 * (octave - 1) + (int) ((us >> (octave - 2)) & 3);

	return Min(bucket, GG_TIME_BUCKETS - 1);
}

/* What the times of a bucket are below. */
static inline uint64
GgTimeBucketEnd(int bucket)
{
	return bucket < 4 ? (uint64) bucket + 1 : (uint64) (5 + bucket % 4) << (bucket / 4 - 1);
}

static inline void
GgTimeAdd(uint64 *histogram, uint64 us)
{
	histogram[GgTimeBucket(us)]++;
}

static inline void
GgHistogramAdd(uint64 *histogram, uint64 value)
{
	int			bucket = value == 0 ? 0 : 63 - __builtin_clzll(value);

	histogram[bucket < GG_HISTOGRAM_BUCKETS ? bucket : GG_HISTOGRAM_BUCKETS - 1]++;
}

#endif							/* GG_SERVICE_H */
