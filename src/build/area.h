/*
 * area.h
 *		The memory in which the processes of a build collect the rows of a segment.
 *
 * Processes claim chunks of rows and fill them, in any order.  Rows that equal one in the area
 * become duplicates, which are claimed in chunks, too.  A build of one process uses the same struct
 * with memory of its own that grows, and without claims.
 */
#ifndef GG_AREA_H
#define GG_AREA_H

#include "base/temp_file.h"
#include "storage/segment_writer.h"

#include "port/atomics.h"
#include "postmaster/bgworker_internals.h"

/*
 * Bytes of rows that a process claims at a time.  1 MB takes a millisecond to fill: claims are
 * rare, and what is left unfilled at the end is soon moved.
 */
#define GG_CHUNK_BYTES			(1024 * 1024)

/* The leader and as many workers as PostgreSQL allows. */
#define GG_MAX_PARTICIPANTS		(MAX_PARALLEL_WORKER_LIMIT + 1)

/* A row equal to one that is in the area already. */
typedef struct GgDuplicate
{
	GgTidEntry	tid;
	uint32		row;			/* the row that it equals; GG_NO_ROW: claimed and not filled */
} GgDuplicate;

#define GG_NO_ROW				UINT32_MAX

/* Rows [first, end) that were claimed and not filled. */
typedef struct GgHole
{
	uint32		first;
	uint32		end;
} GgHole;

/*
 * Tables of hashes by which duplicates are found (deduplicate.c).  A bucket is a cache line.  Each
 * table is twice as large as the one before it, so this many are enough for GG_MAX_NODES rows,
 * however few were expected.
 */
#define GG_HASH_TABLES			17
#define GG_HASH_LEAST_BUCKETS	8192
#define GG_BUCKET_SLOTS			8
#define GG_BUCKET_BYTES			(GG_BUCKET_SLOTS * sizeof(pg_atomic_uint64))

/* What all processes share about the area. */
typedef struct GgAreaShared
{
	/* fixed before workers start */
	Size		row_bytes;
	uint32		filter_words;	/* of each row */
	Size		code_bytes;		/* of each row */
	bool		coded;			/* codes are stored instead of rows, and lie in the area */
	uint32		graph_degree;
	uint32		capacity;		/* rows that there is address space for; whole chunks */
	uint32		chunk_rows;
	uint32		chunk_duplicates;
	uint32		hash_buckets;	/* of the first table */
	bool		spilled;		/* in a temporary file: the area or, of one process, its rows */
	pid_t		leader_pid;
	int			leader_fd;		/* the leader's descriptor of the area */

	uint32		limit;			/* rows that may be used in this round; changed between rounds */

	slock_t		mutex;			/* protects what follows */
	int			tables;			/* tables of hashes used in this round */
	uint32		unneeded;		/* ranges before this one the leader does not need any more */
	uint32		next_unneeded;	/* the first range that was not given up for the leader yet */
	int			nholes;
	GgHole		holes[GG_MAX_PARTICIPANTS];
} GgAreaShared;

/* One process's view of the area, and its place there. */
typedef struct GgArea
{
	GgAreaShared *shared;
	MemoryContext context;		/* for memory of its own */
	char	   *rows;			/* all different */
	GgTidEntry *tids;			/* of the rows; later of all heap rows, sorted by node */
	GgDuplicate *duplicates;
	int64	   *words;			/* filter words of the rows, row by row */
	int64	   *duplicate_words;	/* filter words of the duplicates, row by row */
	int64	   *filters;		/* later: words of all heap rows, sorted by node, word by word */
	char	   *codes;			/* of the rows, as writers make them; NULL: they are not kept */
	pg_atomic_uint64 *tables[GG_HASH_TABLES];	/* of one process: NULL until used */
	uint32		next;			/* where the next row goes, if that is before the end */
	uint32		end;			/* of this process's chunk, or of its memory */
	uint32		next_duplicate; /* the same two of duplicates */
	uint32		end_duplicate;
	int			ntables;		/* tables that this process may use in this round */
	uint32		most;			/* one process: rows of a segment at most, and as many duplicates */

	/* the leader's, once the round is over */
	uint32		nodes;			/* different rows */
	uint32		nrows;			/* with their duplicates */

	/* of a shared area; base is NULL otherwise */
	char	   *base;
	Size		bytes;
	int			fd;
	GgTempFile	temp;			/* the leader's: of a spilled area, or of one process's rows */
	uint32	   *adjacency;		/* the leader puts the graph there for the others to write */
	pg_atomic_uint64 *next_chunk;	/* first row not claimed; beyond the limit when it is full */
	pg_atomic_uint64 *next_duplicate_chunk; /* the same of duplicates */
	pg_atomic_uint32 *filled;	/* of each chunk: its rows once it is full; and a 0 at the end */
	pg_atomic_uint32 *users_gone;	/* of each range to be written: how many have given it up */
} GgArea;

static inline Size
GgTableBuckets(const GgAreaShared *shared, int table)
{
	return (Size) shared->hash_buckets << table;
}

/*
 * Make the area for shared->capacity rows.  False, with the reason told at DEBUG1, when its memory
 * cannot be shared.
 */
extern bool GgCreateArea(GgArea *area);

/*
 * Map the area in a worker.  False, with the reason in the log, when that fails: then the other
 * processes do the work.
 */
extern bool GgAttachArea(GgArea *area);

/*
 * Unmap the area, if any; nobody may be reading it.  failed: leave its file to PostgreSQL.
 */
extern void GgUnmapArea(GgArea *area, bool failed);

/* Take memory for a part before it is touched; ereport(ERROR) when there is none. */
extern void GgReserveArea(GgArea *area, const void *start, Size bytes);

/* Give back memory that nobody will look at again; all processes lose it. */
extern void GgReleaseArea(GgArea *area, const void *start, Size bytes);

/*
 * Give up a range.  Its memory is released when the process that wrote it and the leader have both
 * given it up; so are the rows that a range of codes was made of.  The leader gives up the last
 * segment's ranges alone, since the next segment would take the memory again.
 */
extern void GgGiveUpRange(GgArea *area, const GgPageRange *range);

/*
 * For a process that is alone: take memory for its rows, or more of it, where they are spilled.
 * They will be `most` bytes at most.
 */
extern char *GgGrowSpilled(GgArea *area, Size bytes, Size most);

/* The leader needs no range before `ranges`; all processes give them up for it, one at a time. */
extern void GgSetUnneeded(GgArea *area, uint32 ranges);
extern bool GgHasUnneeded(GgArea *area);
extern bool GgTakeUnneeded(GgArea *area, uint32 *range);

/* The leader empties the area for another round, but for the tables of hashes. */
extern void GgEmptyArea(GgArea *area, uint32 written_ranges);

/* Note what this process claimed and did not fill. */
extern void GgNoteHole(GgArea *area);

#endif							/* GG_AREA_H */
