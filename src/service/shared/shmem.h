/*
 * shmem.h
 *		What all processes of the service share: its settings and the layout of its shared
 *		memory.
 */
#ifndef GG_SHMEM_H
#define GG_SHMEM_H

#include "service/shared/service.h"

#include <time.h>

#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "request.h"
#include "service/shared/graph_job.h"
#include "service/shared/pool.h"

/* ---- settings ------------------------------------------------------------- */

/*
 * What gpugraph.fault (superusers, for tests) makes the service do, or a merge or VACUUM of the
 * process itself.  Faults of a query travel with the query, faults of a load with the request for
 * it.  The worker reads NO_DRIVER, NO_DEVICE and OLD_DEVICE as it starts.
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
	GG_FAULT_HOST_MEMORY,		/* ... or can pin none of the host's */
	GG_FAULT_LOAD,				/* the loader fails half-way */
	GG_FAULT_LOAD_GAP,			/* the loader leaves out a unit */
	GG_FAULT_LOAD_STALL,		/* every reader of a load rests for a second, half-way */
	GG_FAULT_LOAD_READERS,		/* likewise, and there are gpugraph.load_workers of them */
	GG_FAULT_NO_DRIVER,			/* the worker finds no device */
	GG_FAULT_NO_DEVICE,			/* the worker finds others, but not its own */
	GG_FAULT_POST_STALL,		/* the backend rests for some seconds before it posts its query */
	GG_FAULT_OLD_DEVICE,		/* the worker's device cannot be used, unless it is number 0 */
	GG_FAULT_HANG,				/* the batch never ends */
	GG_FAULT_HANG_LAUNCH,		/* the call that launches it never returns */
	GG_FAULT_HANG_LOAD,			/* the call that takes memory for a load never returns */
	GG_FAULT_LESS_MEMORY,		/* a load finds device memory for all but one of its lists */
	GG_FAULT_HOT,				/* an index is hot, whether its queries wait or not */
	GG_FAULT_GRAPH,				/* the device is lost while it builds a merge's graph */
	GG_FAULT_GRAPH_MEMORY,		/* such a graph finds too little device memory */
	GG_FAULT_GRAPH_STALL,		/* the device rests for some seconds before it begins with it */
	GG_FAULT_GRAPH_HOLD,		/* likewise, until its worker's setting is another */
	GG_FAULT_GRAPH_HANG,		/* the call that builds it never returns */
	GG_FAULT_PARKING_HOLD,		/* who gives blocks back rests before the record that says so, until
								 * other transactions have begun */
	GG_FAULT_PARKING_NONE,		/* blocks that are given back are used again at once */
	GG_FAULT_HOLD_MERGE,		/* these rest: GgHoldPlace, in its order */
	GG_FAULT_HOLD_VACUUM_DELTA,
	GG_FAULT_HOLD_VACUUM_SEGMENT,
	GG_FAULT_HOLD_VACUUM_LAST,
	GG_FAULT_HOLD_GIVE_BACK,
	GG_FAULT_HOLD_LENGTHEN,
	GG_FAULT_HOLD_MOVE,
	GG_FAULT_HOLD_TRUNCATE,
	GG_FAULT_WITHIN_HOLD,		/* a merge within another one rests between two slices */
	GG_FAULT_WITHIN_ERROR		/* such a merge fails while it holds the metapage, and the engine
								 * that builds for the other one is slow to return */
} GgFault;

extern char *gg_devices;		/* gpugraph.devices: "all", or a list of numbers; postmaster */
/* gpugraph.device_storage; sighup.  storage.c tells the forms. */
typedef enum GgDeviceStorage
{
	GG_STORAGE_AUTO,
	GG_STORAGE_FULL,
	GG_STORAGE_CODES
} GgDeviceStorage;

extern int	gg_device_storage;
extern int	gg_host_memory_mb;	/* gpugraph.host_memory in MB, of each device; -1: an eighth of the
									 * host's; sighup */
extern int	gg_device_memory_mb;	/* gpugraph.device_memory in MB: what residents may take of each
									 * device, and a build beside them; 0: nine tenths of it;
									 * sighup */
extern int	gg_device_timeout_ms;	/* gpugraph.device_timeout: a batch or a call of the driver that
									 * takes longer hangs; 0: never; sighup */
extern bool gg_autoprewarm;		/* gpugraph.autoprewarm; sighup */
#define GG_MOST_RESIDENTS	65536	/* that gpugraph.max_residents may be */

extern int	gg_max_residents;	/* gpugraph.max_residents: entries of a device's table;
								 * postmaster */
extern int	gg_answer_chunks;	/* gpugraph.answer_chunks: of the pool of long answers;
								 * postmaster */
extern int	gg_loaders;			/* gpugraph.load_workers: readers of one big index; sighup */
extern int	gg_fault;			/* gpugraph.fault, GgFault; superuser */

/* ---- slots ------------------------------------------------------------------ */

/*
 * Each device has a slot per PGPROC (backends and background workers), so a process has at most
 * one query under way with each device.  Each slot has one device that ever writes it, so what one
 * device does, or leaves undone, concerns no other device's answers.  The word holds
 * (ticket << 8 | state).  Every change is a compare-and-swap of both, so a change that is meant for
 * an earlier query never hits a later one.
 *
 *	FREE -> QUEUED		the backend, before it puts the slot's number into the ring
 *	QUEUED -> RUNNING	the worker, when it takes the query
 *	RUNNING -> FREE		the backend, when all done words asked for have reached the ticket
 *	QUEUED|RUNNING -> ABANDONED		the backend, cancelled; it goes on at once
 *	ABANDONED -> FREE	the worker, when nothing in flight writes the slot any more
 *	QUEUED|RUNNING -> FAILED		the worker, with a reason
 *	FAILED -> FREE		the backend, also when it has seen the answer
 *
 * A request may name a chunk of the pool of long answers (pool.h).  Then the chunk is the slot's as
 * long as the slot is not FREE, and with RUNNING -> FREE and FAILED -> FREE until the backend has
 * copied the answer.  With ABANDONED -> FREE it goes back before the slot does.
 *
 * A process that ends abandons its slot (before_shmem_exit).  A backend that finds its slot not
 * FREE when it has a new query uses the CPU.  Slots that a worker left behind stay as they are,
 * because its dying context may still write them.  The next worker of the device frees them when
 * it starts.  The last worker of a device that is gone for good (GG_DEVICE_GONE) has opened no
 * context: a slot that is ABANDONED to it later is freed by its own process.
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

/* Keys of an answer that a slot has room for; longer ones come into a chunk. */
#define GG_SLOT_KEYS		4096

/* Targets of a group; more of them lie in a chunk, before the keys. */
#define GG_SLOT_TARGETS		32

typedef struct GgSlot
{
	pg_atomic_uint64 word;
	pg_atomic_uint32 sleeping;	/* the backend waits on its latch */

	/* the query: written by the backend before QUEUED, read by the worker */
	int32		procno;			/* whose latch to set */
	uint32		entry;			/* GgResidentRef */
	uint32		serial;
	int32		fault;			/* GgFault */
	int32		chunk;			/* of the pool; -1: none */
	uint32		ntargets;		/* of a group; 0: the lists are those of (entry, serial) */
	GgGroupTarget targets[GG_SLOT_TARGETS];
	gg_request	request;

	/* written by the worker before FAILED */
	int32		reason;			/* GgReason */

	/* microseconds of a monotonic clock; for the percentiles */
	uint64		posted_us;

	/* what follows is read and written by the device */
	pg_attribute_aligned(64) uint32 done[GG_SERVE_MAX_LISTS];
	pg_attribute_aligned(64) uint64 keys[GG_SLOT_KEYS];
	pg_attribute_aligned(64) float query[GG_MAX_DIM];
} GgSlot;

/* Change a slot's state; false when it holds another query, or is in another state. */
static inline bool
GgSlotMove(GgSlot *slot, uint64 ticket, GgSlotState from, GgSlotState to)
{
	uint64		word = GgSlotWord(ticket, from);

	return pg_atomic_compare_exchange_u64(&slot->word, &word, GgSlotWord(ticket, to));
}

/* ---- residents ---------------------------------------------------------------- */

/*
 * What a resident is a copy of.  REINDEX, TRUNCATE and CLUSTER change the locator, builds change
 * the instance, merges and cuts of the delta change the generation.  A database that is dropped and
 * made anew from the same template, with the same number, has all of these again, so its stamp
 * (`database`) is part of the key.
 */
typedef struct GgResidentKey
{
	GgRelFileLocator locator;
	uint64		instance;
	uint64		database;		/* GgDatabaseStamp(), where the instance is known */
	uint64		generation;
} GgResidentKey;

/* src/README, "Residents", tells who makes which change. */
typedef enum GgResidentState
{
	GG_RESIDENT_FREE = 0,
	GG_RESIDENT_WANTED,			/* a loader is to be started */
	GG_RESIDENT_LOADING,
	GG_RESIDENT_READY,
	GG_RESIDENT_FAILED,			/* not tried again before retry_us */
	GG_RESIDENT_EVICTING		/* no new queries; goes when the last batch in flight has ended */
} GgResidentState;

/*
 * The version before the current one.  A merge brings its version ahead of the flip of the index's
 * directory.  Until then queries find the directory that the version before is for.
 */
typedef struct GgPrevious
{
	uint32		serial;			/* 0: there is none to be used */
	uint32		version;
	uint64		generation;
	uint32		nsegments;
	uint32		graphs[GG_MAX_SEGMENTS];
	uint32		missing;
	uint32		coded;
	uint32		rowless;
	uint32		halved;
	uint64		delta_first;
	uint32		delta_pages;
} GgPrevious;

/*
 * One entry of a device's table: an index that is on the device, or is to be.  Times with _at are
 * shown to users.  Times with _us are of GgNowMicros(), a clock that nobody sets.
 */
typedef struct GgResident
{
	GgResidentState state;
	uint32		use;			/* new with every use of this entry */
	uint32		serial;			/* new with every version that is made ready */
	uint32		version;		/* 0 or 1: the worker's GgResidentVersion that queries go to */
	GgResidentKey key;			/* instance 0: preloaded, not known before it is opened */
	Oid			database;
	Oid			relation;
	char		name[NAMEDATALEN];	/* of the index; "" until a loader opened it */
	pg_atomic_uint32 refresh;	/* READY: 0, GG_REFRESH_WANTED or _LOADING */
	bool		forced;			/* at any cost: see GG_ASKED_BY_MAINTAINER */
	bool		grow;			/* the refresh is to bring segments that are missing */
	bool		replica;		/* another device has a copy that is not marked so; replica.c */
	bool		part;			/* it is to have what no other device has, but for the delta */
	int32		devices;		/* the index's option, as last seen */
	bool		offers;			/* another device is to have this graph in its place: */
	uint32		offered;
	int32		taker;			/* that device's place in gg_service->devices, and ... */
	uint64		taker_epoch;	/* ... of its worker */
	uint64		offered_us;
	uint64		replicate_us;	/* when the next replica may be asked for */
	int32		fault;			/* GgFault, of the request */
	uint32		nsegments;
	uint32		graphs[GG_MAX_SEGMENTS];	/* GgGraphId() of list i */
	uint32		missing;		/* bitmap of those that are not on the device, for want of memory */
	uint32		coded;			/* bitmap of those that walks measure by codes */
	uint32		rowless;		/* bitmap of those whose rows the device cannot read */
	uint32		halved;			/* bitmap of those whose rows it has in half precision */
	/* delta pages [delta_first, delta_first + delta_pages) are list nsegments; only full pages */
	uint64		delta_first;
	uint32		delta_pages;
	uint64		vacuum_epoch;	/* that the delta was read in */
	GgPrevious	previous;
	pg_atomic_uint64 flipped_us;	/* when the directory became the one that a version which
									 * came ahead is for; 0 before */
	uint64		bytes;
	uint64		missing_bytes;	/* that the segments that are missing would take */
	uint64		host_bytes;		/* pinned memory of the host, with rows of coded segments */
	pg_atomic_uint64 used;		/* for LRU: a clock that ticks with every query of the device */
	pg_atomic_uint64 queries;	/* that looked for the index here */
	uint64		cooled_queries;	/* as many of them are in ... */
	double		heat;			/* ... the worker's: each counts half as much after GG_COOL_MS */
	uint64		grow_us;		/* when it may grow next */
	uint64		rested_us;		/* from when on it may be evicted: GG_REST */
	TimestampTz loaded_at;
	double		load_s;
	TimestampTz refreshed_at;	/* of the last refresh, or loaded_at */
	uint64		refreshed_us;
	uint64		began_us;		/* start of the load or refresh that made this version */
	double		refresh_s;
	double		delta_s;		/* the delta's share of the last load or refresh */
	uint32		refreshes;
	uint32		failures;		/* in a row */
	TimestampTz failed_at;		/* the last of them */
	uint64		failed_us;
	uint64		retry_us;		/* FAILED, and of a refresh that failed */
	GgReason	reason;			/* FAILED: GG_REASON_MEMORY or GG_REASON_FAILED */
	char		error[160];		/* of the last load or refresh that failed */
} GgResident;

#define GG_REFRESH_WANTED	1
#define GG_REFRESH_LOADING	2

/*
 * What entries are found by, apart from them: a search of a thousand entries reads 8 kB, and not a
 * megabyte.  Written with the entry (GgTagEntry), and means nothing where that is FREE.
 */
typedef struct GgResidentTag
{
	uint32		file;			/* GgFileTag() of the locator */
	Oid			relation;
} GgResidentTag;

/* The number of the file, which few relations of all databases share. */
static inline uint32
GgFileTag(const GgRelFileLocator *locator)
{
	Oid			oids[3];

	StaticAssertStmt(sizeof(GgRelFileLocator) == sizeof(oids), "a locator is three numbers");
	memcpy(oids, locator, sizeof(oids));
	return oids[2];
}

/* What queries name (GgResidentRef.entry): one of the two versions of an entry. */
static inline uint32
GgPlaceOf(uint32 entry, uint32 version)
{
	return 2 * entry + version;
}

static inline uint32
GgEntryOf(uint32 place)
{
	return place / 2;
}

/*
 * A version that was replaced answers queries until its last batch in flight has ended, and for
 * at least this long: a backend may have looked it up just before.
 */
#define GG_REPLACED_MS		5

/*
 * One that was replaced ahead of a flip, until the flip was noted.  A flip that did not come
 * within this time will not come: the merge has failed.
 */
#define GG_AHEAD_MS			5000

/* Half of a resident's heat, which counts queries, is gone after this time. */
#define GG_COOL_MS			10000

/* ---- staging -------------------------------------------------------------------- */

#define GG_STAGE_CHUNK		((Size) 4 << 20)	/* 0.1 ms of copying at 40 GB/s */
#define GG_STAGE_CHUNKS		8

/* One chunk of one part of one list on its way to the device. */
typedef struct GgStageChunk
{
	pg_atomic_uint32 state;		/* GgChunkState, see load.h */
	uint32		load;			/* number and ... */
	uint32		serial;			/* ... serial of the GgLoadJob */
	uint32		list;
	uint32		part;			/* gg_part */
	uint64		offset;
	uint64		bytes;
} GgStageChunk;

/* ---- loads ------------------------------------------------------------------------ */

#define GG_MAX_LOADS		4	/* at a time, per device */

typedef struct GgLoadList
{
	uint32		segment;		/* GgSegment.id; GG_NO_SEGMENT: the delta */
	uint32		graph;			/* GgGraphId(); of the delta likewise */
	bool		kept;			/* the version to be replaced has it already */
	bool		left_out;		/* there is no room for it */
	bool		rowless;		/* the index has codes alone, and so has any device */
	bool		by_codes;		/* codes are brought, in the place of rows */
	bool		halved;			/* rows that are brought are kept in half precision */
	uint32		n;
	gg_shape	shape;
} GgLoadList;

/*
 * A load under way.  The word holds the serial (new with every load), flags and GgLoadState, see
 * load.h.  A process that finds another serial there has nothing to do with the load any more.
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
	bool		ahead;			/* by a merge: the contents of a generation to come */
	bool		grow;			/* also what the version to be replaced lacks */
	bool		partial;		/* the worker's: there is no room for the whole */
	bool		forced;
	bool		replica;		/* evicts nothing */
	bool		part;			/* GgResident.part */
	int32		devices;		/* GgResident.devices */
	int32		fault;
	int32		owner;			/* process id of the builder; 0: a loader that the worker watches */
	Oid			database;
	Oid			relation;
	uint64		began_us;

	/* from the loader or builder, before SHAPED */
	GgResidentKey key;
	char		name[NAMEDATALEN];
	uint64		delta_first;
	uint32		delta_pages;
	uint32		delta_kept;		/* of these, the first ones come from ... */
	uint32		delta_serial;	/* ... this version of the resident, if it is still there, ... */
	uint32		delta_skip;		/* ... and lie there behind so many other pages */
	uint64		vacuum_epoch;
	uint32		nsegments;
	uint32		nlists;
	GgLoadList	lists[GG_SERVE_MAX_LISTS];

	/* why it failed; from the process that sets the ABORT flag first, or from the worker */
	bool		quiet;			/* nothing to report: the index is gone or has changed */
	GgReason	reason;
	char		error[160];
} GgLoadJob;

/*
 * A loader that has brought a refresh and stays for the next one, which spares the start of a
 * process: 7 ms.  The word is (what << 32 | load << 8 | GgStayState).
 */
typedef enum GgStayState
{
	GG_STAY_NONE = 0,
	GG_STAY_COMING,				/* a loader fills in the rest */
	GG_STAY_READY,				/* what: its process id, so that no two are taken for each other */
	GG_STAY_TAKEN,				/* what: the serial of the load that it was given */
	GG_STAY_SENT				/* it is to leave: a load needs its background worker */
} GgStayState;

typedef struct GgStayingLoader
{
	pg_atomic_uint64 word;
	Oid			database;
	int			procno;
} GgStayingLoader;

#define GgStayWord(what, load, state) ((uint64) (what) << 32 | (uint64) (load) << 8 | (state))
#define GgStayWordState(word)	((GgStayState) ((word) & 0xFF))
#define GgStayWordLoad(word)	((int) ((word) >> 8 & 0xFF))
#define GgStayWordWhat(word)	((uint32) ((word) >> 32))

/* ---- counters ------------------------------------------------------------------------ */

/* Powers of two of microseconds (times) or queries (batches). */
#define GG_HISTOGRAM_BUCKETS 32
/* For times: four buckets per power of two, so that percentiles are off by a quarter at most. */
#define GG_TIME_BUCKETS		(4 * GG_HISTOGRAM_BUCKETS)

/* The worker alone writes these; a reader may see a count that is a moment old. */
typedef struct GgDeviceStats
{
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
	uint64		merges;			/* whose graph was built here */
	double		merge_seconds;	/* that these took */
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

/* Bucket of a time: its leading three bits; buckets 0 to 3 are the times 0 to 3. */
static inline int
GgTimeBucket(uint64 us)
{
	int			octave = us < 4 ? 1 : 63 - __builtin_clzll(us);
	int			bucket = us < 4 ? (int) us : 4 * (octave - 1) + (int) ((us >> (octave - 2)) & 3);

	return Min(bucket, GG_TIME_BUCKETS - 1);
}

/* Upper bound of a bucket's times. */
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

/*
 * Counters of queries by index, of all databases; see stat.c.  As many as there are entries of
 * residents, but no fewer than these.
 */
#define GG_LEAST_INDEX_SLOTS	1024

typedef struct GgIndexCounters
{
	pg_atomic_uint64 key;		/* database << 32 | relation; 0: free */
	pg_atomic_uint64 queries[GG_NREASONS];
	pg_atomic_uint64 rows;
} GgIndexCounters;

typedef struct GgIndexStats
{
	pg_atomic_uint64 resets;
	GgIndexCounters others;
	GgIndexCounters slots[FLEXIBLE_ARRAY_MEMBER];	/* gg_service->index_slots */
} GgIndexStats;

/* ---- a device, and the whole ------------------------------------------------------- */

typedef enum GgDeviceState
{
	GG_DEVICE_DOWN = 0,			/* no worker, or it has not got so far */
	GG_DEVICE_UP,
	GG_DEVICE_BROKEN,			/* the worker waits out its back-off, or found no device */
	GG_DEVICE_GONE				/* the device is not there: its last worker ended for good */
} GgDeviceState;

typedef struct GgDevice
{
	int			number;			/* CUDA's, as gpugraph.devices has it */
	int			ordinal;		/* CUDA's, as the worker opened it; see OpenDevice() */
	uint32		speed;			/* beside other devices; of those that are up */
	LWLock	   *lock;			/* residents and load requests */
	pg_atomic_uint32 state;		/* GgDeviceState */
	pg_atomic_uint64 epoch;		/* counts worker starts */
	pg_atomic_uint32 sleeping;	/* the worker waits on its latch */
	Latch	   *latch;			/* the live worker's; set through GgWakeDevice() */
	int			pid;			/* the live worker's, 0 without one */

	/* breaker (device_error.c): failures in a row, and when the next worker may try */
	uint32		failures;
	uint64		not_before_us;
	uint64		up_since_us;

	GgSlot	   *slots;			/* gg_service->nslots */

	/* ring of their numbers (client.c, dispatch.c) */
	struct GgRing *ring;

	/* apart from what everybody reads all the time: every query writes it */
	pg_attribute_aligned(64) pg_atomic_uint64 clock;	/* for GgResident.used */
	pg_attribute_aligned(64) pg_atomic_uint32 work;		/* something for the worker to do: WANTED,
														 * EVICTING, a load that ended */
	uint64		limit_bytes;	/* what gpugraph.device_memory comes to; the live worker's */
	pg_atomic_uint32 reset;		/* the worker is to zero its counters */
	pg_atomic_uint32 nresidents;	/* entries from here on are free */
	uint64		displaced_us;	/* under lock; when an entry of the full table was last evicted */
	uint32		last_serial;	/* the worker's; goes on over restarts, because open cursors
								 * remember serials of any age */
	GgResident *residents;		/* gg_service->max_residents, behind the devices */
	GgResidentTag *tags;		/* of these */
	GgStageChunk chunks[GG_STAGE_CHUNKS];
	GgLoadJob	loads_under_way[GG_MAX_LOADS];
	GgStayingLoader staying;
	GgGraphJob	graph_job;
	char	   *staging;		/* GG_STAGE_CHUNKS x GG_STAGE_CHUNK, inside the region */
	GgDeviceStats stats;
} GgDevice;

/*
 * A chunk of the pool: several queries, or a group's targets, then the answer's keys; and a filter,
 * whose TIDs are the end of the body.  One list's keys may come in their place.
 */
#define GG_CHUNK_BODY		((Size) 512 << 10)

typedef struct GgChunk
{
	pg_attribute_aligned(64) gg_filter filter;
	pg_attribute_aligned(64) uint64 matches[GG_SERVE_MAX_LISTS];
	pg_attribute_aligned(64) char body[GG_CHUNK_BODY];
} GgChunk;

StaticAssertDecl(GG_CHUNK_BODY == GG_MAX_DEEP * sizeof(uint64) &&
				 GG_MAX_FILTER_TIDS <= GG_MAX_DEEP && offsetof(GgChunk, body) % 64 == 0 &&
				 sizeof(GgChunk) % 64 == 0, "a chunk holds the longest list, and the most TIDs");

struct GgService
{
	int			ndevices;
	GgDevice   *devices[GG_MAX_DEVICES];	/* none of the first ndevices is NULL */
	uint32		nslots;			/* of each device */
	uint32		max_residents;	/* of each device */
	uint32		index_slots;	/* of index_stats */
	char	   *region;			/* slots, chunks and staging, page aligned, for devices to see */
	Size		region_bytes;
	GgSlot	   *slots;			/* of all devices, one device's after the other's */
	GgPool	   *pool;			/* who has which of the ... */
	GgChunk    *chunks;
	GgIndexStats *index_stats;
	LWLock	   *stat_lock;
	pg_atomic_uint32 last_use;	/* of all entries of all devices */
	pg_atomic_uint64 told_us[GG_NREASONS];	/* last LOG line for this reason (client.c); 0: none */
};

static inline bool
GgDeviceIsUp(GgDevice *device)
{
	return pg_atomic_read_u32(&device->state) == GG_DEVICE_UP;
}

/* The name by which a slot has chunks of the pool. */
static inline uint32
GgSlotOwner(const GgSlot *slot)
{
	return (uint32) (slot - gg_service->slots);
}

/* Give back the chunk that a slot has, if it has one. */
static inline void
GgSlotGiveChunkBack(GgSlot *slot)
{
	int			chunk = slot->chunk;

	slot->chunk = -1;
	(void) GgPoolGiveBack(gg_service->pool, chunk, GgSlotOwner(slot));
}

/*
 * ABANDONED -> FREE, for the one process that may; false when the slot is not ABANDONED under this
 * ticket.
 */
static inline bool
GgSlotFreeAbandoned(GgSlot *slot, uint64 ticket)
{
	if (pg_atomic_read_u64(&slot->word) != GgSlotWord(ticket, GG_SLOT_ABANDONED))
		return false;
	pg_read_barrier();
	GgSlotGiveChunkBack(slot);
	return GgSlotMove(slot, ticket, GG_SLOT_ABANDONED, GG_SLOT_FREE);
}

/* Bytes of the body of a chunk that queries, if there are several, and keys take. */
static inline uint64
GgBodyBytes(uint64 count, uint32 dim, uint32 k, uint32 nlists)
{
	uint64		queries = count > 1 ? TYPEALIGN64(64, count * dim * sizeof(float)) : 0;

	return queries + nlists * count * k * sizeof(uint64);
}

/* Bytes there that a group's targets take. */
static inline Size
GgTargetBytes(uint32 ntargets)
{
	return TYPEALIGN64(64, ntargets * sizeof(GgGroupTarget));
}

/* How many TIDs there is room for beside one query's lists. */
static inline uint32
GgMostTids(uint32 k, uint32 nlists)
{
	Size		keys = nlists > 1 ? Min(GgBodyBytes(1, 0, k, nlists), GG_CHUNK_BODY) : 0;

	return Min((GG_CHUNK_BODY - keys) / sizeof(uint64), GG_MAX_FILTER_TIDS);
}

extern void GgWakeDevice(GgDevice *device);

/* Called by a worker that ends: have a successor started; false when there is no place for it. */
extern bool GgStartWorker(GgDevice *device);
extern void GgDeviceLayout(const GgDevice *device, gg_serve_layout *layout);

/* Does the answer to a request, whose numbers are in range, fit a slot without a chunk? */
extern bool GgFitsSlot(const gg_request *request);

/* The same of a group. */
extern bool GgGroupFitsSlot(const gg_request *request, uint32 ntargets);

/*
 * Where queries, keys and, unless they are 0, filter, TIDs and matches of such a request lie in a
 * slot, or in the chunk that it has.  False: they do not fit.
 */
extern bool GgPlaceRequest(const GgSlot *slot, uint32 ntids, gg_request *request);

/* The targets of the group that a slot has. */
extern GgGroupTarget *GgSlotTargets(GgSlot *slot);

/* Processors that this process may run on; they decide whether it spins. */
extern int	GgProcessors(void);

/* The engine that plays the device: gpugraph.service_engine. */
extern const gg_engine *GgServiceOps(void);

/*
 * Microseconds of a monotonic clock that all processes share.  All waiting goes by it, because a
 * wall clock that is put back by a day would keep a device unused for a day.
 */
static inline uint64
GgNowMicros(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

#endif							/* GG_SHMEM_H */
