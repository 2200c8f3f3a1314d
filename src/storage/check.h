/*
 * check.h
 *		What the files of gpugraph_check() share.
 */
#ifndef GG_CHECK_H
#define GG_CHECK_H

#include "storage/directory.h"
#include "storage/type.h"

#include "port/pg_bswap.h"
#include "utils/snapshot.h"
#include "utils/tuplesort.h"
#include "utils/uuid.h"

typedef struct GgCheck
{
	Relation	index;
	Relation	heap;
	const GgMetaPageData *meta;
	const float *mean;			/* that codes are centred by; NULL: they are not */
	BufferAccessStrategy strategy;
	bool		heap_check;
	Tuplesortstate *rows;		/* heap_check: all rows with a valid TID, see GgPutCheckRow() */
	uint32		last_count;		/* rows on the delta's last page when it was first read; 0 before */
	int64	   *suspects;		/* ascending keys of TIDs whose line pointer was unused */
	uint32		nsuspects;
	bool		again;			/* GgCheckTidsAgain() reads the TIDs once more */
	bool		twice;			/* the suspect is one that is in the index twice */
	uint32		met;			/* how often it was met by now */
	bool		(*is_unused) (struct GgCheck *check, int64 key);	/* its line pointer, still */
	const GgOpclass *opclass;
	Size		row_bytes;
	void	   *row;			/* one vector */
} GgCheck;

/*
 * A row as index and table must agree on it: its TID, and a digest of its filter words and NULL
 * bits.  The digest begins with 0, and GgMixWord() adds one word after the other, NULL bits last.
 */
typedef struct GgCheckRow
{
	int64		key;			/* GgTidKey() */
	uint64		digest;
} GgCheckRow;

/* ---- check_structure.c ------------------------------------------------- */

/* Check the index alone.  With heap_check, collects its rows in check->rows. */
extern void GgCheckStructure(GgCheck *check);

/*
 * Read all TIDs of the generation that is in use by now once more, to report one of the suspects
 * if the index still has it.  False: that is another generation than before.
 */
extern bool GgCheckTidsAgain(GgCheck *check);

/* ---- check_heap.c ------------------------------------------------------ */

/* A sort of rows by TID, of which there are two at a time. */
extern Tuplesortstate *GgBeginCheckRows(void);

/* Compare with the table.  The snapshot must be older than the copy of the directory. */
extern void GgCheckAgainstHeap(GgCheck *check, Snapshot snapshot);

/* A TID as a number that sorts in the order of the heap. */
static inline int64
GgTidKey(const ItemPointerData *tid)
{
	return ((int64) ItemPointerGetBlockNumberNoCheck(tid) << 16) |
		ItemPointerGetOffsetNumberNoCheck(tid);
}

/*
 * A row is sorted as 16 bytes that compare as the TID does, and then the digest: as a uuid, the one
 * such type that PostgreSQL has.
 */
static inline void
GgPutCheckRow(Tuplesortstate *rows, const ItemPointerData *tid, uint64 digest)
{
	uint64		image[2] = {pg_hton64((uint64) GgTidKey(tid)), digest};

	tuplesort_putdatum(rows, UUIDPGetDatum((pg_uuid_t *) image), false);
}

#endif							/* GG_CHECK_H */
