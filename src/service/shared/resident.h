/*
 * resident.h
 *		An entry of a device's table: an index that is on the device, or is to be.
 */
#ifndef GG_RESIDENT_H
#define GG_RESIDENT_H

#include "service/shared/service.h"

#include "port/atomics.h"
#include "utils/timestamp.h"

/* Bytes of the message of a load that failed, which may name index and block. */
#define GG_LOAD_ERROR		256

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

/* src/service/README, "Residents", tells who makes which change. */
typedef enum GgResidentState
{
	GG_RESIDENT_FREE = 0,
	GG_RESIDENT_WANTED,			/* a loader is to be started */
	GG_RESIDENT_LOADING,
	GG_RESIDENT_READY,
	GG_RESIDENT_FAILED,			/* not tried again before retry_us */
	GG_RESIDENT_EVICTING		/* no new queries; goes when no load or batch in flight names it */
} GgResidentState;

/* What a version of a resident has, as queries see it. */
typedef struct GgContents
{
	uint32		serial;			/* new with every version that is made ready; 0: none */
	uint32		version;		/* 0 or 1: the worker's GgResidentVersion */
	uint32		nsegments;
	uint32		graphs[GG_MAX_SEGMENTS];	/* GgGraphId() of list i */
	GgForms		forms;
	/* delta pages [delta_first, delta_first + delta_pages) are list nsegments; only full pages */
	uint64		delta_first;
	uint32		delta_pages;
} GgContents;

/*
 * One entry of a device's table: an index that is on the device, or is to be.  Times with _at are
 * shown to users.  Times with _us are of GgNowMicros(), a clock that nobody sets.
 */
typedef struct GgResident
{
	GgResidentState state;
	uint32		use;			/* new with every use of this entry */
	GgResidentKey key;			/* instance 0: preloaded, not known before it is opened */
	Oid			database;
	Oid			relation;
	char		name[NAMEDATALEN];	/* of the index; "": preloaded, not yet opened */
	pg_atomic_uint32 refresh;	/* READY: 0, GG_REFRESH_WANTED or _LOADING */
	bool		forced;			/* at any cost: see GG_ASKED_BY_MAINTAINER */
	bool		grow;			/* the refresh is to bring segments that are missing */
	bool		replica;		/* another device has a copy that is not marked so; replica.c */
	bool		part;			/* it is to have what no other device has, and no delta */
	int32		devices;		/* the index's option, as last seen */
	bool		offers;			/* another device is to take over a segment */
	uint32		offered;		/* GgGraphId() of that segment */
	int32		taker;			/* the other device's place in gg_service->devices */
	uint64		taker_epoch;	/* of the taker's worker */
	uint64		offered_us;
	uint64		replicate_us;	/* when the next copy may be asked for, or segment offered */
	int32		fault;			/* GgFault, of the request */
	GgContents	now;			/* of the version that queries go to */
	uint64		vacuum_epoch;	/* the index's when the delta was read */

	/*
	 * The version before.  A merge brings its version ahead of the flip of the index's directory.
	 * Until then queries find the directory that the version before is for.
	 */
	GgContents	previous;
	uint64		previous_generation;
	pg_atomic_uint64 flipped_us;	/* when the flip that the current version came ahead of
									 * was noted; 0: not yet */
	uint64		bytes;
	uint64		missing_bytes;	/* that the segments that are missing would take */
	uint64		host_bytes;		/* pinned memory of the host, with rows of coded segments */
	pg_atomic_uint64 used;		/* for LRU: a clock that ticks with every query of the device */
	pg_atomic_uint64 queries;	/* that looked for the index here */
	uint64		cooled_queries;	/* as many of the queries are in heat */
	double		heat;			/* the worker's: a query counts half after GG_COOL_MS */
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
	uint64		retry_us;		/* when what failed, a load or refresh, may be tried again */
	GgReason	reason;			/* FAILED: GG_REASON_MEMORY or GG_REASON_FAILED */
	bool		corrupt;		/* FAILED: the index is corrupt */
	char		error[GG_LOAD_ERROR];	/* of the last load or refresh that failed */
} GgResident;

#define GG_REFRESH_WANTED	1
#define GG_REFRESH_LOADING	2

/*
 * What an entry is found by.  Tags lie apart from entries: a search of a thousand reads 8 kB, and
 * not a megabyte.  A tag is written with its entry (GgTagEntry()), and means nothing where that is
 * FREE.
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
 * A version that was replaced ahead of a flip answers until the flip was noted.  A flip that did
 * not come within this time will not come: the merge has failed.
 */
#define GG_AHEAD_MS			5000

/* Half of a resident's heat, which counts queries, is gone after this time. */
#define GG_COOL_MS			10000

#endif							/* GG_RESIDENT_H */
