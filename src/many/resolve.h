/*
 * resolve.h
 *		Rows that a device answered with, as the versions that the snapshot sees.
 */
#ifndef GG_RESOLVE_H
#define GG_RESOLVE_H

#include "many/batch.h"

/* The lists of an index as of one copy of its directory: its segments, and then the delta. */
typedef struct GgLists
{
	const GgTarget *target;
	GgMetaPageData *meta;
	int			nlists;
	GgPageSource *sources;		/* of segments; index is NULL: it has no live rows */
	GgArray    *tids;
	GgArray    *offsets;
	GgArray		delta;
	BlockNumber heap_blocks;
} GgLists;

/* A row: the number of its list, and its own in it. */
typedef uint64 GgPlace;

#define GgPlaceOf(list, row)	((GgPlace) (list) << 32 | (row))
#define GgPlaceList(place)		((int) ((place) >> 32))
#define GgPlaceRow(place)		((uint32) (place))

/* The visible versions of all rows of some segments. */
typedef struct GgRowMap
{
	int			nsegments;
	struct
	{
		uint32		id;			/* GgSegment.id, which is never used again */
		uint32		rows;
		ItemPointerData *ctids;
	}			segments[GG_MAX_SEGMENTS];
} GgRowMap;

/*
 * Open the lists of a copy of the directory, which stays the caller's and was made after the active
 * snapshot was taken.  Allocates in the current context.
 */
extern void GgOpenLists(GgLists *lists, const GgTarget *target, GgMetaPageData *meta);

/* The rows of a node: [*first, *end) */
extern void GgRowsOfNode(GgLists *lists, int list, uint32 node, uint32 *first, uint32 *end);

/* The node that has a row: the last one that begins at it or before, and has rows. */
extern uint32 GgNodeOfRow(GgLists *lists, int list, uint32 row);

/*
 * Look rows up: ctids[i] becomes that of the version of places[i] which the active snapshot sees,
 * or invalid.  map may be NULL.
 */
extern void GgResolve(GgLists *lists, const GgRowMap *map, const GgPlace *places, uint32 count,
					  ItemPointerData *ctids);

/*
 * All rows of the lists have numbers, too, called places below: first the segments' rows, where
 * equal rows are neighbors, then the delta's slots.  Returns how many places there are.
 */
extern uint64 GgCountRows(const GgLists *lists);

/*
 * Read the TIDs of the rows at the places from first on, `most` at most, and of one list alone.  A
 * place without a row has an invalid TID.  Returns how many were read, 0 behind the last place.
 */
extern uint32 GgReadRows(GgLists *lists, uint64 first, uint32 most, ItemPointerData *tids);

/* The node that has the row at such a place; its segment is GG_NO_SEGMENT for the delta's rows. */
extern GgNode GgNodeAt(GgLists *lists, uint64 place);

/* Make a map of all segments in the current context; NULL where it takes more than most_bytes. */
extern GgRowMap *GgMakeRowMap(GgLists *lists, Size most_bytes);

/* Rows of the delta's pages [first_page, end_page), with their vectors. */
typedef struct GgDeltaRows
{
	uint32		count;
	uint32	   *rows;			/* their numbers in the delta's list */
	char	   *vectors;		/* as stored, one after the other */
} GgDeltaRows;

extern void GgReadDelta(GgLists *lists, uint32 first_page, uint32 end_page, GgDeltaRows *rows);

#endif							/* GG_RESOLVE_H */
