/*
 * resident.h
 *		What the files of residency share (lookup.c, resident.c, resident_load.c, preload.c, upload.c, handover.c, loader.c, stat.c).
 *
 * A load's word is (serial << 8 | flags | state).  Who may move it:
 *
 *	FREE -> ASSIGNED		whoever makes the load, under device->lock: the worker (which then starts a loader) or
 *							GgLoadBegin()
 *	ASSIGNED -> SHAPED		the owner: it has filled in what is to be loaded
 *	SHAPED -> CREATE		the worker: there is room
 *	CREATE -> OPEN			the upload thread: device memory is taken; chunks are accepted
 *	OPEN -> FINISH			the owner: every chunk has been handed over
 *	FINISH -> DONE			the upload thread: searchable
 *	CREATE, OPEN, FINISH -> BROKEN		the upload thread: an engine error, or the ABORT flag; its memory is given back
 *	SHAPED <- BROKEN		the worker, once: it made more room
 *	ASSIGNED, SHAPED, BROKEN, DONE -> ENDED		the worker: the entry tells how it came out
 *	ENDED -> FREE			the owner; the worker when the ORPHAN flag says that there is none any more
 *
 * Flags are set by anybody who knows the serial, at any time.
 */
#ifndef GG_RESIDENT_H
#define GG_RESIDENT_H

#include <pthread.h>

#include "service/service.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/lock.h"
#include "utils/timestamp.h"

/* ---- loads --------------------------------------------------------------- */

typedef enum GgLoadState
{
	GG_LOAD_FREE = 0,
	GG_LOAD_ASSIGNED,
	GG_LOAD_SHAPED,
	GG_LOAD_CREATE,
	GG_LOAD_OPEN,
	GG_LOAD_FINISH,
	GG_LOAD_DONE,
	GG_LOAD_BROKEN,
	GG_LOAD_ENDED
} GgLoadState;

#define GG_LOAD_STATE_MASK	0x0F
#define GG_LOAD_ABORT		0x10
#define GG_LOAD_ORPHAN		0x20

#define GgLoadWordState(word)	((GgLoadState) ((word) & GG_LOAD_STATE_MASK))
#define GgLoadWordSerial(word)	((uint32) ((word) >> 8))

static inline uint64
GgLoadWord(GgLoadJob *job)
{
	uint64		word = pg_atomic_read_u64(&job->word);

	pg_read_barrier();
	return word;
}

/* Move a load from one state to the next, flags kept; false when it is not that load or not there. */
static inline bool
GgLoadMove(GgLoadJob *job, uint32 serial, GgLoadState from, GgLoadState to)
{
	uint64		word = pg_atomic_read_u64(&job->word);

	while (GgLoadWordSerial(word) == serial && GgLoadWordState(word) == from)
		if (pg_atomic_compare_exchange_u64(&job->word, &word, (word & ~(uint64) GG_LOAD_STATE_MASK) | to))
			return true;
	return false;
}

/* Set flags of a load; false when it is over. */
static inline bool
GgLoadFlag(GgLoadJob *job, uint32 serial, uint32 flags)
{
	uint64		word = pg_atomic_read_u64(&job->word);

	while (GgLoadWordSerial(word) == serial && GgLoadWordState(word) != GG_LOAD_FREE)
		if (pg_atomic_compare_exchange_u64(&job->word, &word, word | flags))
			return true;
	return false;
}

/*
 * The lock of a load.  Its first reader holds it exclusively from before it locks the index until
 * it ends, and who waits for the load asks for it in share mode, so that the deadlock detector
 * knows who waits for whom: see src/README, "Locks".  It is a user lock because those may be
 * exclusive on a standby, too.
 */
static inline LOCKTAG
GgLoadLock(Oid relation, uint32 use, int device)
{
	LOCKTAG		tag;

	tag.locktag_field1 = MyDatabaseId;
	tag.locktag_field2 = relation;
	tag.locktag_field3 = use;	/* of the entry; no two of a device are the same */
	tag.locktag_field4 = (uint16) device;
	tag.locktag_type = LOCKTAG_USERLOCK;
	tag.locktag_lockmethodid = USER_LOCKMETHOD;
	return tag;
}

/* ---- staging chunks ------------------------------------------------------- */

/*
 * GgStageChunk.state.  FILLING: it belongs to a process, which hands it over or frees it, however
 * it ends (LoaderExit(); with a builder's transaction, EndPending()).
 */
typedef enum GgChunkState
{
	GG_CHUNK_FREE = 0,
	GG_CHUNK_FILLING,
	GG_CHUNK_FILLED,
	GG_CHUNK_COPYING
} GgChunkState;

/* ---- upload.c: plain C; called by the worker's main thread ----------------- */

typedef struct GgUpload GgUpload;

/* wake(): something has changed for the main thread; called from the upload thread. */
extern GgUpload *GgUploadStart(GgDevice *device, const gg_engine *engine, void (*wake) (void *arg), void *arg);
extern void GgUploadStop(GgUpload *upload);

/* A load was moved to CREATE, or aborted: look. */
extern void GgUploadKick(GgUpload *upload);

/* Close an index, before anything else is created. */
extern void GgUploadClose(GgUpload *upload, gg_index *index);

/* The lists of a load that is DONE; they are the caller's then.  The status of one that is BROKEN. */
extern void GgUploadTake(GgUpload *upload, int load, gg_index **lists);
extern const gg_status *GgUploadStatus(GgUpload *upload, int load);

/* ---- resident.c ------------------------------------------------------------- */

/* Full pages of a delta, as far as whole rows that nobody appends to go. */
static inline uint32
GgFullDeltaPages(const GgMetaPageData *meta)
{
	uint32		npages;

	if (meta->delta_pages == 0 || meta->dimensions == 0)
		return 0;
	npages = GgDeltaPagesPerRow(meta);
	return npages > 1 ? meta->delta_pages / npages * npages : meta->delta_pages - 1;
}

static inline uint32
GgDeltaRows(const GgMetaPageData *meta, uint32 delta_pages)
{
	return delta_pages == 0 ? 0 : delta_pages / GgDeltaPagesPerRow(meta) * GgDeltaRowsPerPage(meta);
}

static inline bool
GgSameLocator(const GgRelFileLocator *a, const GgRelFileLocator *b)
{
	return memcmp(a, b, sizeof(GgRelFileLocator)) == 0;
}

/*
 * An entry for a new use, state FREE but use set; -1 when all are taken, and then one may have been told to go, so that there is one
 * soon.  forced: at any cost, see GgResident.  Under device->lock, exclusive.
 */
extern int	GgTakeEntry(GgDevice *device, bool forced);

/* A READY copy may be evicted for another one: it has answered for this many times as long as its load took.  See resident.c. */
#define GG_REST				20

static inline bool
GgHasRested(const GgResident *resident, uint64 now_us)
{
	return now_us >= resident->loaded_us + (uint64) (resident->load_s * GG_REST * 1e6);
}

/*
 * A load for an entry, in state ASSIGNED; -1 when all are taken.  owner: the process that builds, 0 for a loader.  Under
 * device->lock, exclusive.
 */
extern int	GgTakeLoad(GgDevice *device, int entry, bool refresh, int owner);

/* Have an entry evicted, if it still is the one.  Takes the lock. */
extern void GgForgetEntry(GgDevice *device, uint32 entry, uint32 use);

/* Tell the worker that there is something to do. */
extern void GgResidentNotify(GgDevice *device);

/* ---- resident.c and resident_load.c among themselves (the worker's main thread) ------------ */

/* Bytes written this way: "512 MB". */
extern const char *GgFormatBytes(char *buffer, Size size, uint64 bytes);

/* An index's copy on the device.  Those of entry e are gg_copies[e][0] and [1], see GgResident.copy. */
typedef struct GgCopy
{
	bool		live;
	bool		replaced;		/* goes once it is not pinned and no query can name it */
	uint32		serial;
	uint32		nlists;
	gg_index   *lists[GG_SERVE_MAX_LISTS];
	bool		owned[GG_SERVE_MAX_LISTS];	/* false: the copy that replaced this one has it */
	uint64		bytes;			/* of those owned */
	uint32		pins;
	int64		replaced_ms;
} GgCopy;

extern GgCopy (*gg_copies)[2];
extern uint64 gg_used_bytes;	/* of copies, and granted to loads; set by GgSetUsed() */
extern bool gg_residents_changed;	/* since the list was saved */

extern void GgSetUsed(uint64 bytes);

/* What gpugraph.device_memory comes to. */
extern uint64 GgLimitBytes(void);

typedef enum GgRoom
{
	GG_ROOM_THERE,
	GG_ROOM_SOON,				/* something is on its way out */
	GG_ROOM_NONE
} GgRoom;

/* Memory that goes without anything more being evicted. */
extern uint64 GgOutgoingBytes(void);

/* Room for bytes more, by evicting what was used longest ago; with 0 bytes the limit itself is to be kept to. */
extern GgRoom GgMakeRoom(const GgLoadJob *job, uint64 bytes);

/* Name of an entry or load in the log. */
extern const char *GgNameOf(char *buffer, Size size, const char *name, Oid database, Oid relation);

/* Once the table is empty and the upload thread runs.  number: the device's place in gg_service->devices. */
extern void GgLoadsStart(GgDevice *device, int number, const gg_engine *engine, GgUpload *upload);

/* One turn: start what is WANTED, move on what can be moved.  True while any load is under way. */
extern bool GgLoadsWork(int64 now_ms);

/* ---- lookup.c ------------------------------------------------------------------ */

/* Tells the database of this process from any other that ever had its number.  0: not known. */
extern uint64 GgDatabaseStamp(void);

/* The device with most room among those that are up; NULL when none is. */
extern GgDevice *GgChooseDevice(int *number);

/* Sleep until something may have changed; interruptible. */
extern void GgLoadSleep(long timeout_ms);

/* ---- preload.c ------------------------------------------------------------------ */

typedef struct GgPreloadItem
{
	Oid			database;
	Oid			relation;
	GgRelFileLocator locator;
} GgPreloadItem;

/* number: the device's place in gg_service->devices. */
extern int	GgPreloadRead(int number, GgPreloadItem *items, int max);
extern void GgPreloadWrite(int number, const GgPreloadItem *items, int nitems);

/* ---- loader.c -------------------------------------------------------------------- */

/* Entry point of dynamic workers; the argument is (device << 8 | load), bgw_extra holds the serial. */
extern PGDLLEXPORT void GgLoaderMain(Datum arg);

typedef struct GgLoaderExtra
{
	uint32		serial;
	bool		helper;
	int			leader_pid;		/* helpers: the first reader ... */
	uint32		leader;			/* ... and its PGPROC */
} GgLoaderExtra;

/* Start one; false when there is no slot. */
extern bool GgStartLoader(int device, int load, uint32 serial, Oid database, bool helper,
						  BackgroundWorkerHandle **handle);

#endif							/* GG_RESIDENT_H */
