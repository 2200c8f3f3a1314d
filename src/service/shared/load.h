/*
 * load.h
 *		A load under way: what processes know of it, its word, its lock and its chunks.
 *
 * A load's word (word.h) has these states.  Who may change them:
 *
 *	FREE -> ASSIGNED		under device->lock: a builder (GgLoadBegin(), GgLoadAhead()), or
 *							the worker, which then starts a loader, or takes one that stays
 *	ASSIGNED -> SHAPED		the owner: it has filled in what is to be loaded
 *	SHAPED -> CREATE		the worker: there is room
 *	CREATE -> OPEN			the upload thread: it has the device memory, and chunks are accepted
 *	OPEN -> FINISH			the owner: every chunk has been handed over
 *	FINISH -> DONE			the upload thread: searchable
 *	CREATE, OPEN, FINISH -> BROKEN		the upload thread: an engine error, or the ABORT flag; it
 *							has given the memory back
 *	BROKEN -> SHAPED		the worker: it takes another form, has made more room (once), or
 *							leaves a segment out
 *	ASSIGNED, SHAPED, BROKEN, DONE -> ENDED		the worker: the entry has the outcome
 *	ENDED -> FREE			the owner; the worker when the ORPHAN flag says that there is no owner
 *							any more
 *
 * Every process that knows the serial may set flags, at any time.
 */
#ifndef GG_LOAD_H
#define GG_LOAD_H

#include "service/shared/resident.h"
#include "service/shared/word.h"

#include "miscadmin.h"
#include "storage/lock.h"

/* ---- staging chunks ------------------------------------------------------------- */

#define GG_STAGE_CHUNK		((Size) 4 << 20)	/* 0.1 ms of copying at 40 GB/s */
#define GG_STAGE_CHUNKS		8

/*
 * GgStageChunk.state.  A chunk that is FILLING belongs to a process, which hands it over or frees
 * it, however it ends (LoaderExit(); with a builder's transaction, EndPending()).
 */
typedef enum GgChunkState
{
	GG_CHUNK_FREE = 0,
	GG_CHUNK_FILLING,
	GG_CHUNK_FILLED,
	GG_CHUNK_COPYING
} GgChunkState;

/* One chunk of one part of one list on its way to the device. */
typedef struct GgStageChunk
{
	pg_atomic_uint32 state;		/* GgChunkState */
	uint32		load;			/* number of the GgLoadJob */
	uint32		serial;			/* serial of the GgLoadJob */
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
	uint32		graph;			/* GgGraphId(); GG_NO_SEGMENT: the delta */
	bool		kept;			/* the version to be replaced has it already */
	bool		left_out;		/* not brought: no room, or left to others */
	bool		rowless;		/* the index has codes alone, and so has any device */
	bool		by_codes;		/* codes are brought, in the place of rows */
	bool		halved;			/* rows that are brought are kept in half precision */
	uint32		n;
	gg_shape	shape;
} GgLoadList;

/*
 * A load under way.  The word holds the serial (new with every load), flags and GgLoadState.  A
 * process that finds another serial there has nothing to do with the load any more.
 */
typedef struct GgLoadJob
{
	pg_atomic_uint64 word;
	pg_atomic_uint64 claimed;	/* (serial, units that a reader took) */
	pg_atomic_uint64 filled;	/* (serial, units handed to the upload) */

	/* from the worker, or the builder */
	uint32		entry;
	uint32		use;
	bool		refresh;
	bool		ahead;			/* by a merge: the contents of a generation to come */
	bool		grow;			/* it also brings what the version to be replaced lacks */
	bool		partial;		/* the worker's: it need not bring the whole index */
	bool		forced;
	bool		replica;		/* evicts nothing */
	bool		part;			/* GgResident.part */
	int32		devices;		/* GgResident.devices; set by GgLoadDescribe() */
	int32		fault;
	int32		owner;			/* process id of builder or staying loader; 0: GgLoadWatch.handle */
	Oid			database;
	Oid			relation;
	uint64		began_us;

	/* from the loader or builder, before SHAPED */
	GgResidentKey key;
	char		name[NAMEDATALEN];
	uint64		delta_first;
	uint32		delta_pages;
	uint32		delta_kept;		/* of delta_pages, the first: the device copies them */
	uint32		delta_serial;	/* version that has delta_kept, if it is still there */
	uint32		delta_skip;		/* other pages before delta_kept in that version */
	uint64		vacuum_epoch;
	uint32		nsegments;
	uint32		nlists;
	GgLoadList	lists[GG_SERVE_MAX_LISTS];
	bool		centred;		/* codes are centred by mean[], which shapes lack */
	float		mean[GG_MAX_DIM];

	/* why it failed; from the process that sets the ABORT flag first, or from the worker */
	bool		quiet;			/* nothing to report, as where the index is gone */
	GgReason	reason;
	bool		corrupt;		/* the index is corrupt */
	char		error[GG_LOAD_ERROR];
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

/* ---- the word ---------------------------------------------------------------- */

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

#define GG_LOAD_ABORT		0x10
#define GG_LOAD_ORPHAN		0x20

/*
 * The lock of a load.  Its first reader takes it exclusively before it locks the index, and keeps
 * it to its end.  A process that waits for the load asks for it in share mode.  So the deadlock
 * detector knows who waits for whom: see src/storage/README, "Locks".  It is a user lock because
 * these may be exclusive on a standby, too.
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

/* Is this list to be brought to the device? */
static inline bool
GgIsLoaded(const GgLoadList *list)
{
	return !list->kept && !list->left_out && list->n > 0;
}

/* Have the load go without the delta. */
static inline void
GgDropDelta(GgLoadJob *job)
{
	job->delta_pages = job->delta_kept = 0;
	job->nlists = job->nsegments;
	job->lists[job->nsegments].n = 0;
}

/* ---- the delta's part of a load -------------------------------------------------- */

/* Count the full pages of a delta: they have whole rows, and no insert may append to them. */
static inline uint32
GgFullDeltaPages(const GgMetaPageData *meta)
{
	uint32		npages;

	if (meta->delta_pages == 0 || meta->dimensions == 0)
		return 0;
	npages = GgDeltaPagesPerRow(meta);
	return npages > 1 ? meta->delta_pages / npages * npages : meta->delta_pages - 1;
}

#endif							/* GG_LOAD_H */
