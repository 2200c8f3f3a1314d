/*
 * merges.h
 *		An index whose rows are inserted and merged, as a model: blocks are taken and given back,
 *		merges and the pieces that stay chosen, by the code of the extension.
 *
 * Rows are inserted while a merge builds its graph and between the slices in which it writes.
 */
#ifndef MERGES_H
#define MERGES_H

#include "server.h"
#include "maintain/merge.h"

typedef struct Shape
{
	uint32		dimensions;
	uint16		filter_words;
	uint32		vectors;		/* that rows share; 0: no two rows have the same */
	uint32		slice;			/* rows that are inserted in a slice of a merge */
	uint32		most_nodes;		/* that memory has room for */
} Shape;

/* What the model counts; the caller may set it to zeros. */
typedef struct Counts
{
	uint64		inserted;		/* rows */
	uint64		written;		/* pages of merges */
	uint32		merges;
	int			most_entries;
	int			most_pieces;
	int			most_segments;
	uint64		segments;		/* that a query searches, summed over looks */
	uint64		looks;
} Counts;

extern Counts counts;

/* An empty index, and a server without old snapshots. */
extern void begin_index(const Shape *shape);
extern void end_index(void);

/* From now on every snapshot passes what is given back at once, or none ever does. */
extern void hold_snapshot(bool old);

/* Insert rows, and merge what is due. */
extern void insert_rows(uint64 rows);

/* VACUUM clears one row in so many, wherever it is. */
extern void clear_rows(uint32 one_in);

#endif							/* MERGES_H */
