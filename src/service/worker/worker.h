/*
 * worker.h
 *		The worker of a device: its state, and what its files call of each other.  Only the worker's
 *		main thread uses these.
 */
#ifndef GG_WORKER_H
#define GG_WORKER_H

#include "service/shared/table.h"
#include "service/worker/graph_thread.h"
#include "service/worker/upload.h"

#include "postmaster/bgworker.h"

/*
 * One version of a resident: the handles of its lists on the device.  Those of entry e are
 * versions[e][0] and versions[e][1], used in turn by refreshes.
 */
typedef struct GgResidentVersion
{
	bool		live;
	bool		replaced;		/* goes once it is not pinned and no query can name it */
	bool		ahead;			/* replaced ahead of a flip */
	uint32		serial;
	uint32		nlists;
	GgForms		forms;
	gg_index   *lists[GG_SERVE_MAX_LISTS];
	uint64		list_bytes[GG_SERVE_MAX_LISTS]; /* of what is missing, too */
	uint64		host_bytes[GG_SERVE_MAX_LISTS]; /* see storage.c */
	bool		owned[GG_SERVE_MAX_LISTS];	/* false: the version that replaced this one has it */
	uint64		bytes;			/* of those owned */
	uint32		pins;
	int64		replaced_ms;
} GgResidentVersion;

/* What the worker knows of a load beside its GgLoadJob. */
typedef struct GgLoadWatch
{
	BackgroundWorkerHandle *handle;
	uint64		bytes;			/* granted, and not yet a version's */
	uint64		host_bytes;		/* the same of the host's memory */
	bool		no_codes;		/* the device has no codes */
	bool		no_host;		/* the host's memory could not be pinned */
	bool		evicted_more;	/* the device had less than the limit says: more was evicted once */
	uint64		most;			/* bytes to try at most: the device had still less; 0: any */
	bool		pinned;			/* the version at `place` is pinned: its delta is copied */
	uint32		place;
} GgLoadWatch;

/* How long queries of an entry waited, and how long answers took, since replica.c last looked. */
typedef struct GgQueueTimes
{
	uint64		waited_us;
	uint64		answered_us;
	uint32		hot_looks;		/* in a row that found it hot */
} GgQueueTimes;

/* Bytes of the name of the list on disk. */
#define GG_PRELOAD_NAME		80

/* An index of the list on disk (preload.c). */
typedef struct GgPreloadItem
{
	Oid			database;
	Oid			relation;
	GgRelFileLocator locator;
} GgPreloadItem;

/* Of so many indexes the worker remembers that their rows do not bear half precision. */
#define GG_HALVES_REFUSED 16

typedef struct GgWorker
{
	GgDevice   *device;
	int			number;			/* the device's place in gg_service->devices */
	const gg_engine *engine;
	gg_server  *server;			/* NULL before the device is open */
	struct GgDispatch *dispatch;	/* dispatch.c */

	/* how it ends; device_error.c, device_worker.c */
	bool		lost;			/* the device is lost, or cannot be used */
	bool		gone;			/* the device is not there, and never was */
	bool		quiet_end;		/* the postmaster need not hear of this end: see GgDeviceLost() */

	/* residents; NULL before GgResidentStart() */
	GgUpload   *upload;
	GgResidentVersion (*versions)[2];
	GgLoadWatch loads[GG_MAX_LOADS];
	GgGraphThread graph;		/* builds a graph for another process */
	uint64		graph_bytes;	/* granted for that graph */
	gg_status	upload_status;	/* of an upload that found the device lost; GG_OK: none did */
	uint64		total_bytes;	/* of the device */
	/* what versions take, and loads and a graph were granted; set by GgSetUsed() */
	uint64		used_bytes;
	bool		exceeded;		/* more is used than gpugraph.device_memory allows by now */
	uint64		halves_refused[GG_HALVES_REFUSED];	/* instances; see storage.c */
	int			next_refused;	/* a place in it */
	uint64		sent_away_us;	/* when a staying loader was last sent away; 0: never */
	GgQueueTimes *times;		/* of each entry */
	uint64		replicated_us;	/* when replica.c last looked at `times` */
	bool		busy;			/* something is under way: look again soon */
	GgPreloadItem *items;		/* room for the list of residents */
	char		list[GG_PRELOAD_NAME];	/* the name of the list on disk */
	uint32	   *order;			/* room to sort residents */
	bool		residents_changed;	/* since the list was saved */
	int64		next_tick_ms,
				next_sweep_ms,
				next_grow_ms,
				next_cool_ms,
				next_save_ms;
} GgWorker;

/* The version that queries of an entry go to. */
static inline GgResidentVersion *
GgCurrentVersion(GgWorker *worker, uint32 entry)
{
	return &worker->versions[entry][worker->device->residents[entry].now.version];
}

static inline GgResidentVersion *
GgVersionAt(GgWorker *worker, uint32 place)
{
	return &worker->versions[GgEntryOf(place)][place % 2];
}

extern PGDLLEXPORT void GgWorkerMain(Datum number);

/* ---- dispatch.c ----------------------------------------------------------------- */

/* Free the slots that an earlier worker left behind, or fail them. */
extern void GgDispatchStart(GgWorker *worker);

/* Make room for queries and items, once the device is open. */
extern void GgDispatchServe(GgWorker *worker);

/* One turn: take, submit, look for answers.  True when a query was taken, waits or is in flight. */
extern bool GgDispatchTurn(GgWorker *worker);

/* May the worker sleep: is nothing in the ring, and no slot abandoned since the last turn? */
extern bool GgDispatchIdle(GgWorker *worker);

/* At the end: tell the backends that wait; then wait for what is in flight.  False: in vain. */
extern void GgDispatchStop(GgWorker *worker);
extern bool GgDispatchDrain(GgWorker *worker);

/* ---- resident.c ------------------------------------------------------------------- */

/* Start with an empty table and the upload thread; stop joins the thread and closes all. */
extern void GgResidentStart(GgWorker *worker);
extern void GgResidentStop(GgWorker *worker);

/* Called on every turn of the worker's loop; cheap when there is nothing to do (device->work). */
extern void GgResidentWork(GgWorker *worker);

/* Milliseconds until it wants to be called again even if nobody wakes the worker. */
extern long GgResidentTimeout(GgWorker *worker);

/* ---- version.c -------------------------------------------------------------------- */

/*
 * Pin the version at this place (GgPlaceOf) with this serial; NULL when there is none, or the entry
 * is not READY.  Each pin is undone by an unpin.  A pinned version is not closed.  Among its lists
 * one without rows is NULL, as is one that is missing.
 */
extern GgResidentVersion *GgResidentPin(GgWorker *worker, uint32 place, uint32 serial);
extern void GgResidentUnpin(GgWorker *worker, uint32 place);

/* Have a resident's row tell what its new current version takes. */
extern void GgNoteVersion(GgResident *resident, const GgResidentVersion *version);

/* ---- resident_load.c ------------------------------------------------------------------ */

/* One turn: start what is WANTED, move on what can be moved.  Sets busy while a load goes on. */
extern void GgLoadsWork(GgWorker *worker, int64 now_ms);

/* ---- graph_work.c --------------------------------------------------------------------- */

/* Free the job at the worker's start, under device->lock; do one turn. */
extern void GgGraphStart(GgWorker *worker);
extern void GgGraphWork(GgWorker *worker);

/* ---- memory.c --------------------------------------------------------------------------- */

/* Write a number of bytes as "512 MB". */
extern const char *GgFormatBytes(char *buffer, Size size, uint64 bytes);

/* Name of an entry or load in the log. */
extern const char *GgNameOf(char *buffer, Size size, const char *name, Oid database, Oid relation);

/* gpugraph.device_memory in bytes; 0 of it is nine tenths of the device's memory. */
extern uint64 GgLimitBytes(const GgWorker *worker);
extern void GgSetUsed(GgWorker *worker, uint64 bytes);

/* used_bytes, and what builds reserve of the limit. */
extern uint64 GgTakenBytes(GgWorker *worker);

typedef enum GgRoom
{
	GG_ROOM_THERE,
	GG_ROOM_SOON,				/* something is on its way out */
	GG_ROOM_NONE
} GgRoom;

/* Memory that will be free without further evictions. */
extern uint64 GgOutgoingBytes(GgWorker *worker);

/*
 * Room for that many bytes more, by evicting what was used longest ago: for the part of an index
 * (job->partial) only what is colder.
 */
extern GgRoom GgMakeRoom(GgWorker *worker, const GgLoadJob *job, uint64 bytes);

/*
 * A refresh finds no room for the delta, which takes `bytes`: it has outgrown what was kept
 * for it.  Have the resident give up segments, which the refresh then leaves out, for this delta
 * and, if it can be, for the copy that the next refresh makes.  At least one segment stays.
 */
extern GgRoom GgTrimForDelta(GgWorker *worker, GgLoadJob *job, uint64 bytes);

/* Have a resident give up these segments (a bitmap, not all); false: it cannot now. */
extern bool GgGiveUpSegments(GgWorker *worker, uint32 entry, uint32 drop);

/* How much room could be made. */
extern uint64 GgAvailableBytes(GgWorker *worker, const GgLoadJob *job);

/* Let GG_COOL_MS pass for the heat of all entries. */
extern void GgCoolDown(GgDevice *device);

/* Follow gpugraph.device_memory. */
extern void GgCheckLimit(GgWorker *worker);

/* Has a relation's file been dropped or truncated? */
extern bool GgFileIsGone(const GgRelFileLocator *locator);

/* Evict residents whose files are gone. */
extern void GgSweepDropped(GgWorker *worker);

/* ---- storage.c ------------------------------------------------------------------------- */

/* Pinned memory of the host that a list of this shape takes. */
extern uint64 GgHostBytes(const gg_shape *shape);

/* What a load brings, in the form that its lists have. */
extern uint64 GgLoadBytes(GgWorker *worker, const GgLoadJob *job);

/*
 * Choose the form of a load's segments, and make room for all of them: *bytes, which are no more
 * than `most` unless that is 0.  With GG_ROOM_NONE they have the form that they may be cut in.
 */
extern GgRoom GgFindForm(GgWorker *worker, int load, uint64 most, uint64 *bytes);

/* The form could not be had, says the engine.  True: there is another one to try. */
extern bool GgTryOtherForm(GgWorker *worker, int load, gg_code code);

/* Loads of this index are to keep no rows in half precision. */
extern void GgRefuseHalves(GgWorker *worker, uint64 instance);

/* ---- partial.c ------------------------------------------------------------------------- */

/*
 * Mark the lists of a load that have no room in `available` bytes as left out.  False: the delta
 * has no room, or no segment is left.
 */
extern bool GgLeaveOut(GgWorker *worker, GgLoadJob *job, uint64 available);

/* The least that a load would have to bring; and may it leave out one more of its lists? */
extern uint64 GgLeastBytes(GgWorker *worker, const GgLoadJob *job);
extern bool GgMayLeaveOut(const GgLoadJob *job);

/* Have residents refreshed that lack segments for which there is room by now. */
extern void GgGrow(GgWorker *worker);

/* ---- replica.c ------------------------------------------------------------------------- */

/* Have hot indexes copied to other devices, and settle which entries are replicas. */
extern void GgReplicate(GgWorker *worker);

/*
 * Have the load of a part leave out what another device has, and the delta; and that of an index
 * that is spread, what another device has.  False: a part would have nothing.
 */
extern bool GgLeaveToOthers(GgWorker *worker, GgLoadJob *job);

/* May an entry have more of what it lacks?  If its index is spread, not what others have. */
extern bool GgMayTakeMore(GgWorker *worker, uint32 entry);

/* Is this a replica, and the other copy still there? */
extern bool GgIsReplica(const GgWorker *worker, const GgResident *resident);

/* How long after a part of an index was asked for, or a segment offered, the next may be. */
#define GG_PART_PAUSE_US	UINT64CONST(1000000)

/* Has a copy the graph?  What it offers to the taker (GG_TO_ANYBODY: to any) does not count. */
#define GG_TO_NOBODY		(-1)
#define GG_TO_ANYBODY		(-2)

extern bool GgHasGraph(const GgResident *copy, uint32 graph, int taker);

/*
 * The copy of an index on another device that is up, whose table is locked until the caller
 * releases device->lock; NULL: it has none, and nothing is locked.
 */
extern const GgResident *GgLockCopy(const GgWorker *worker, int number, const GgResidentKey *key);

/* Which of these graphs, as a bitmap, do other devices have, as GgHasGraph() says? */
extern uint32 GgHeldElsewhere(const GgWorker *worker, const GgResidentKey *key,
							  const uint32 *graphs, uint32 n, int taker);

/*
 * The device that is to have a copy of so many bytes; NULL: none, or one has it soon.  It has at
 * most most_waiting queries under way, the fewest of all; with PG_UINT32_MAX it has most room.
 */
extern GgDevice *GgChooseOtherDevice(GgWorker *worker, const GgResident *resident, uint64 bytes,
									 uint32 most_waiting);

/* Have a device load a copy, or a part. */
extern void GgAskForCopy(GgDevice *device, const GgResident *resident, bool part);

/* ---- spread.c -------------------------------------------------------------------------- */

/* Have other devices take segments of indexes that are to be spread. */
extern void GgSpread(GgWorker *worker);

/* ---- device_error.c ------------------------------------------------------------------- */

/* The device cannot be used any more: log why, count it for the breaker and exit, to be started
 * again. */
pg_noreturn extern void GgDeviceLost(GgWorker *worker, const gg_status *status);

/* Something failed that leaves the device usable: last_error, and a LOG line if it is news. */
extern void GgDeviceTrouble(GgWorker *worker, const gg_status *status);

/* ---- preload.c ---------------------------------------------------------------------------- */

/* The name of the list of a device, of GG_PRELOAD_NAME bytes at most. */
extern void GgPreloadName(const GgDevice *device, const gg_device_info *info, char *name);

/* Read a list; returns its length.  number: the device's place, by which lists were named once. */
extern int	GgPreloadRead(const char *name, int number, GgPreloadItem *items, int max);
extern void GgPreloadWrite(const char *name, const GgPreloadItem *items, int nitems);

#endif							/* GG_WORKER_H */
