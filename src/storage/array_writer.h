/*
 * array_writer.h
 *		Arrays into blocks of a relation that others use: how a merge writes.
 *
 * Blocks are taken first, free ones or new ones at the end, and the directory calls them TAKEN from
 * then on.  Pages are written through shared buffers and logged.  Nobody reads them before the
 * directory lists them.  After an error or a crash the blocks stay TAKEN until GgFreeTaken().
 */
#ifndef GG_ARRAY_WRITER_H
#define GG_ARRAY_WRITER_H

#include "storage/codes.h"
#include "storage/directory.h"
#include "storage/moves.h"

/* Runs of blocks that one array may have: few, since each is an entry of the directory. */
#define GG_ARRAY_RUNS		64

typedef struct GgNewArray
{
	uint32		owner;			/* id of segment, piece, sample or calibration: as in stamps */
	GgKind		kind;
	const void *data;
	GgCoder    *coder;			/* data are vectors, and the array is of their codes; or NULL */
	uint64		bytes;
	uint32		npages;
	uint32		taken;			/* pages that have blocks */
	BlockNumber length;			/* that the relation needs before more can be taken */
	uint32		written;
	int			nruns;
	struct
	{
		uint32		first;		/* page within the array */
		BlockNumber start;
		uint32		nblocks;
	}			runs[GG_ARRAY_RUNS];
} GgNewArray;

/*
 * How many blocks a free run must have to be taken for an array of npages, of which `rest` have
 * none yet and the others lie in nruns?  A run that is shorter than 64 blocks, and than a sixteenth
 * of the array, is left to inserts.  Runs are entries of the directory, so an array has few: from
 * half of GG_ARRAY_RUNS on, each must be long enough that runs of its length can take the rest.
 */
static inline uint32
GgLeastRun(uint32 npages, uint32 rest, int nruns)
{
	uint32		least = Max(Min(npages / 16, 64), 1);

	if (nruns >= GG_ARRAY_RUNS / 2)
		least = Max(least, rest / (GG_ARRAY_RUNS - nruns) + 1);
	return Min(least, rest);
}

extern void GgBeginArray(GgNewArray *array, uint32 owner, GgKind kind, const void *data,
						 uint64 bytes);

/*
 * Take blocks for the next pages, or make the relation longer by a step first.  True: it is longer.
 * False: blocks were taken, or array->length says how long the relation must be first.
 */
extern bool GgTakeForArray(Relation index, Relation heap, GgNewArray *array);

/* Write pages [first, first + count), which have blocks. */
extern void GgWritePages(Relation index, uint64 instance, const GgNewArray *array, uint32 first,
						 uint32 count);

/*
 * Copy pages of a move, `count` behind the first `first` of it, to the blocks taken for them.
 * False: the block of one of them holds another page by now.
 */
extern bool GgCopyPages(Relation index, uint64 instance, const GgMove *move, uint32 first,
						uint32 count);

/*
 * Put arrays that are written into the directory: forget the owner's TAKEN extents, and then list
 * each array.
 */
extern void GgForgetTaken(GgMetaPageData *meta, uint32 owner);
extern void GgListArray(GgMetaPageData *meta, const GgNewArray *array);

/* Give back all blocks that are TAKEN: nobody writes them any more.  False: there were none. */
extern bool GgFreeTaken(GgMetaPageData *meta);

#endif							/* GG_ARRAY_WRITER_H */
