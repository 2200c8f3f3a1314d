/*
 * check.h
 *		What the files of gpugraph_check() share.
 */
#ifndef GG_CHECK_H
#define GG_CHECK_H

#include "storage/codes.h"
#include "storage/directory.h"
#include "storage/type.h"

#include "utils/snapshot.h"
#include "utils/tuplesort.h"

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
	int64	   *suspects;		/* ascending keys of the TIDs that GgCheckTidsAgain() looks for */
	uint32		nsuspects;
	bool		again;			/* GgCheckTidsAgain() reads the TIDs once more */
	bool		twice;			/* the suspect is one that is in the index twice */
	uint32		met;			/* twice: how often the suspect was met so far */
	bool		(*is_unused) (struct GgCheck *check, int64 key);	/* the line pointer of key */
	const char *differs;		/* what the table has instead in the suspect's row; or NULL */
	const GgOpclass *opclass;
	Size		row_bytes;
	void	   *row;			/* one vector */
	GgCoder    *coder;			/* heap_check, where the index has codes and no vectors */
	void	   *decoded;		/* one vector, from its code */
	struct GgCheckRow *nodes;	/* heap_check: vector and base of each node of a segment */
} GgCheck;

/*
 * A row as index and table must agree on it: its TID, and digests.  That of the filter words begins
 * with 0, and GgMixWord() adds one word after the other.
 *
 * With codes alone, vectors are compared as merges compare them: by what their codes are decoded
 * to.  The base of a code's head has no part in that, and rows that a merge has made one node may
 * differ in it a little.  So it is compared roughly.
 */
typedef struct GgCheckRow
{
	int64		key;			/* GgTidKey() */
	uint32		filters;		/* 28 bits: of filter words and NULL bits */
	uint32		vector;			/* 28 bits: of the vector as it is stored, or decoded */
	uint8		base;			/* of the code; 0: there is none */
	uint16		row;			/* with codes alone, of a vector of delta or table; else 0 */
} GgCheckRow;

/* ---- check_rows.c ------------------------------------------------------ */

/* Digest a vector as it is stored, or what its code says of it.  Sets all but key and filters. */
extern void GgDigestVector(GgCheck *check, const void *row, GgCheckRow *digests);

/* Digest the code of a piece.  Sets vector and base. */
extern void GgDigestCode(GgCheck *check, const uint8 *record, GgCheckRow *digests);

/* Digest filter words, whose hash so far is given, and NULL bits. */
extern uint32 GgDigestFilters(uint64 hash, uint16 nulls);

/* Do these digests say that index and table have the same vector? */
extern bool GgVectorsAgree(const GgCheckRow *in_index, const GgCheckRow *in_heap);

/* A sort of rows by TID, of which there are two at a time. */
extern Tuplesortstate *GgBeginCheckRows(void);
extern void GgPutCheckRow(Tuplesortstate *rows, const GgCheckRow *row);
extern bool GgNextCheckRow(Tuplesortstate *rows, GgCheckRow *row);

/* ---- check_pages.c ----------------------------------------------------- */

/* Reads one array front to back, checking each page before anything on it is used. */
typedef struct GgCheckReader
{
	GgCheck	   *check;
	GgArray		array;
	uint64		bytes;			/* of the whole array */
	uint64		position;
	uint32		number;			/* of the page in the copy */
	BlockNumber blkno;			/* of the page in the copy */
	Size		used;			/* payload bytes of the copy already handed out */
	PGAlignedBlock page;
} GgCheckReader;

/* What kind a page is of, in words. */
extern const char *GgKindName(uint16 kind);

/* Copy one page, its header and stamp checked. */
extern void GgReadCheckedPage(GgCheck *check, BlockNumber blkno, uint32 segment, GgKind kind,
							  uint64 number, Page copy);

/* Begin to read the array of this kind and owner, which has so many bytes. */
extern void GgCheckReaderBegin(GgCheckReader *reader, GgCheck *check, uint32 owner, GgKind kind,
							   uint64 bytes);

/* The next len bytes of the array; returns the block on which they start. */
extern BlockNumber GgCheckReaderNext(GgCheckReader *reader, void *dst, Size len);

/* End the reading of an array, when all of it was read. */
extern void GgCheckReaderEnd(GgCheckReader *reader);

/* ---- check_structure.c ------------------------------------------------- */

/* Check the index alone.  With heap_check, collects its rows in check->rows. */
extern void GgCheckStructure(GgCheck *check);

/*
 * Read all TIDs of the generation that is in use by now once more, to report one of the suspects
 * if the index still has it.  False: that is another generation than before.
 */
extern bool GgCheckTidsAgain(GgCheck *check);

/* ---- check_heap.c ------------------------------------------------------ */

/* Compare with the table.  The snapshot must be older than the copy of the directory. */
extern void GgCheckAgainstHeap(GgCheck *check, Snapshot snapshot);

/* A TID as a number that sorts in the order of the heap. */
static inline int64
GgTidKey(const ItemPointerData *tid)
{
	return ((int64) ItemPointerGetBlockNumberNoCheck(tid) << 16) |
		ItemPointerGetOffsetNumberNoCheck(tid);
}

#endif							/* GG_CHECK_H */
