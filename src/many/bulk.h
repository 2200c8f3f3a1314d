/*
 * bulk.h
 *		Many queries answered by a device at once.
 */
#ifndef GG_BULK_H
#define GG_BULK_H

#include "many/missing.h"

/* GgFind() has to answer the query: of the rows that the device named, too few are visible, say. */
#define GG_BULK_SHORT		PG_UINT32_MAX

typedef struct GgBulk GgBulk;

/*
 * Prepare to find k rows for each of many queries; expected: how many, in all calls.  Returns NULL
 * where no device can, or where it would be no faster than one query after the other.  Allocates in
 * the current context.  copies: for segments that the device lacks.  note: counts the answers.
 */
extern GgBulk *GgOpenBulk(GgFinder *finder, uint64 k, uint32 expected, GgCopies *copies,
						  GgScanNote *note);

/* From now on rows are looked up in this map first; NULL: there is none. */
extern void GgUseRowMap(GgBulk *bulk, const GgRowMap *map);

/* The lists that are searched.  After GgFindBulk() they may be those of another directory. */
extern GgLists *GgListsOf(GgBulk *bulk);

/*
 * How many queries GgFindBulk() takes at most, and how many rows it finds for each at most: k, or
 * fewer where the settings ask for a shorter list.
 */
extern uint32 GgMostQueries(const GgBulk *bulk);
extern uint32 GgMostRows(const GgBulk *bulk);

/* Put queries [first, first + count) into vectors, prepared. */
typedef void (*GgReadQueries) (void *arg, uint32 first, uint32 count, float *vectors);

/*
 * Find rows for count queries, which read brings.  read NULL: they are Datums at arg, as the
 * operator gets them, detoasted; it must be NULL where rows are stored rounded, or as codes alone.
 * Returns how many were answered, from the first one on: fewer where the device answers no more.
 */
extern uint32 GgFindBulk(GgBulk *bulk, GgReadQueries read, void *arg, uint32 count);

/* The rows of a query of the last call.  Returns how many there are, or GG_BULK_SHORT. */
extern uint32 GgFoundRows(const GgBulk *bulk, uint32 query, GgFoundRow **rows);

#endif							/* GG_BULK_H */
