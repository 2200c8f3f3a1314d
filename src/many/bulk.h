/*
 * bulk.h
 *		Many queries answered by a device at once.
 */
#ifndef GG_BULK_H
#define GG_BULK_H

#include "many/missing.h"

/* A query's answer that GgFind() has to give: too few rows of what the device said are visible. */
#define GG_BULK_SHORT		PG_UINT32_MAX

typedef struct GgBulk GgBulk;

/*
 * Prepare to find k rows for each of many queries; expected: how many, in all calls.  NULL: a
 * device cannot, or is no faster than one query after the other.  Allocates in the current context.
 * copies: for segments that the device lacks.  note: gets what the device answers.
 */
extern GgBulk *GgOpenBulk(GgFinder *finder, uint64 k, uint32 expected, GgCopies *copies,
						  GgScanNote *note);

/* Rows are looked up in this map, too.  It may be NULL. */
extern void GgUseRowMap(GgBulk *bulk, const GgRowMap *map);

/* What is searched.  These may be other lists after a call that finds rows. */
extern GgLists *GgListsOf(GgBulk *bulk);

/*
 * Queries of one call at the most, and rows of each: k, or fewer where the settings ask for a
 * shorter list.
 */
extern uint32 GgMostQueries(const GgBulk *bulk);
extern uint32 GgMostRows(const GgBulk *bulk);

/* Put queries [first, first + count) into vectors, prepared. */
typedef void (*GgReadQueries) (void *arg, uint32 first, uint32 count, float *vectors);

/*
 * Find rows for count queries.  read NULL: they are at arg, as the operator gets them, detoasted;
 * rows that are stored rounded, or as codes alone, want them so.  Returns how many were answered,
 * from the first one on: fewer where the device does not answer any more.
 */
extern uint32 GgFindBulk(GgBulk *bulk, GgReadQueries read, void *arg, uint32 count);

/* The rows of a query of the last call.  Returns how many there are, or GG_BULK_SHORT. */
extern uint32 GgFoundRows(const GgBulk *bulk, uint32 query, GgFoundRow **rows);

#endif							/* GG_BULK_H */
