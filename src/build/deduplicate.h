/*
 * deduplicate.h
 *		Equal rows become one node; gaps between the rows are closed.
 */
#ifndef GG_DEDUPLICATE_H
#define GG_DEDUPLICATE_H

#include "build/area.h"

/* Bytes that a row takes beside itself and its TID: two slots of the first table, a duplicate. */
#define GG_DEDUPLICATE_ROW_BYTES	(2 * sizeof(pg_atomic_uint64) + sizeof(GgDuplicate))

/* Decide how large the first table is, for this number of rows of a heap. */
extern void GgPlanTables(GgArea *area, Relation heap, double rows);

/*
 * Find the row of the area that equals `row`, its process's newest one.  Returns `row` itself when
 * there is none.
 */
extern uint32 GgFindEqualRow(GgArea *area, uint32 row);

/* Add a duplicate of `row`.  False when this segment has no room for one more. */
extern bool GgAddDuplicate(GgArea *area, const GgTidEntry *entry, const int64 *words, uint32 row);

/*
 * Close the gaps that the participants left.  Rows are then 0 .. area->nodes - 1, and area->nrows
 * counts them and their duplicates.
 */
extern void GgCloseGaps(GgArea *area);

/*
 * Sort TIDs and filter words by node.  Returns NULL when all rows differ, else where each node's
 * heap rows begin among the sorted ones and, behind the last node, area->nrows.
 */
extern uint32 *GgSortRows(GgArea *area);

/* The leader empties the tables for another round, or (last) gives back their memory. */
extern void GgResetTables(GgArea *area, bool last);

#endif							/* GG_DEDUPLICATE_H */
