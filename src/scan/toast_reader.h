/*
 * toast_reader.h
 *		Values of several rows that lie out of line, read together.
 */
#ifndef GG_TOAST_READER_H
#define GG_TOAST_READER_H

#include "postgres.h"

#include "compat.h"

typedef struct GgToastReader GgToastReader;

/* A value that was looked up. */
typedef struct GgToastValue
{
	struct varatt_external pointer;
	uint32		first;			/* of the reader's TIDs */
	uint32		count;
} GgToastValue;

/* Make a reader for a table with values out of line, in a memory context that outlives it. */
extern GgToastReader *GgOpenToast(Relation heap, MemoryContext context);
extern void GgCloseToast(GgToastReader *reader);

/*
 * Look up a value that lies out of line, and have its blocks read.  False: detoast it otherwise.
 */
extern bool GgFindToast(GgToastReader *reader, Datum value, GgToastValue *found);

/* The value, in line, though it may be compressed.  NULL: detoast it otherwise. */
extern struct varlena *GgReadToast(GgToastReader *reader, const GgToastValue *found);

/* Forget the values that were looked up, one at least, and give back pins. */
extern void GgForgetToast(GgToastReader *reader);

#endif							/* GG_TOAST_READER_H */
