/*
 * bulk.h
 *		Many queries answered by a device at once.
 */
#ifndef GG_BULK_H
#define GG_BULK_H

#include "many/missing.h"

/* A query's answer that GgFind() has to give: too few rows of what the device said are visible. */
#define GG_BULK_SHORT		PG_UINT32_MAX

/* Queries that the device has answered together, whose rows are still to be found. */
typedef struct GgBatch
{
	uint32		first;			/* among those of GgFindBulk() */
	uint32		count;			/* 0: there are none */
	GgFoundRow *rows;			/* k for each query */
	uint32	   *found;
} GgBatch;

typedef struct GgBulk
{
	GgLists		lists;
	const GgRowMap *map;		/* may be NULL; set by the caller */
	GgCopies   *copies;			/* of segments that the device lacks */
	uint32		k;
	uint32		most;			/* queries for GgFindBulk() */
	uint32		list;			/* that the settings ask for */
	uint32		memory;			/* queries of a batch that there is memory for */
	uint32		room;			/* queries of a batch */
	GgScanNote	note;			/* of all queries that the device answered */

	/* queries of GgFindBulk(), as the operator gets them, detoasted; set where they are needed */
	const Datum *values;

	/*
	 * Where rows are stored rounded, or as codes alone: the finder and the values are set by the
	 * caller then.
	 */
	GgFinder   *finder;
	uint32		due;			/* rows of the table to read for each query, at most; 0: none */
	GgBound    *bounds;			/* of the batch's queries; NULL: rows are not rounded */

	/* what the device is asked for */
	GgResidentRef ref;
	GgAsk		ask;
	uint32		nasked;
	uint32		rowless;		/* bitmap of walked segments whose keys are estimates */
	uint32		halved;			/* ... of those whose keys are of rounded rows */
	uint32		reranked;		/* nodes that are measured by stored rows after walks by codes */

	/* all lists, in the order of the answers: those that it is not asked for come last */
	uint32		nlists;
	uint8		answers_of[GG_SERVE_MAX_LISTS];
	uint32		missing;		/* bitmap of segments that it lacks */
	uint32		exact;			/* bitmap of segments whose rows are all measured */

	/* rows of the delta that the device does not have */
	GgDeltaRows tail;
	gg_distance_fn distance;

	/* the batch that the device is asked for, and its answers */
	float	   *vectors;
	Size		answers;		/* that there is room for */
	uint64	   *keys;

	/* the batch that it has answered */
	GgBatch		batch;
	struct GgBulkQuery *queries;
	uint64	   *candidates;		/* keys, as many for each query as were asked for ... */
	uint8	   *candidate_lists;	/* ... and the list of each */
	GgPlace    *places;			/* of rows that are looked up */
	struct GgLookedUp *looked_up;
	ItemPointerData *ctids;
} GgBulk;

/*
 * Prepare to find k rows for each of many queries; expected: how many, in all calls.  False: a
 * device cannot, or is no faster than one query after the other.  Allocates in the current context.
 * copies: for segments that the device lacks.
 */
extern bool GgOpenBulk(GgBulk *bulk, const GgTarget *target, uint64 k, uint32 expected,
					   GgCopies *copies);

/* Put queries [first, first + count) into vectors, prepared. */
typedef void (*GgReadQueries) (void *arg, uint32 first, uint32 count, float *vectors);

/* One of these: the queries are the bulk's values.  arg is the bulk. */
extern void GgReadValues(void *arg, uint32 first, uint32 count, float *vectors);

/*
 * Find rows for count queries, bulk->most at the most.  rows has k for each; found[i] is how many
 * there are for query i, or GG_BULK_SHORT.  Returns how many queries were answered, from the first
 * one on: fewer where the device does not answer any more.
 */
extern uint32 GgFindBulk(GgBulk *bulk, GgReadQueries read, void *arg, uint32 count,
						 GgFoundRow *rows, uint32 *found);

#endif							/* GG_BULK_H */
