/*
 * segment_writer.h
 *		Arrays in; pages, WAL and directory entries out: how a segment gets into a relation.
 *
 * One process, the leader, begins a segment and adds its arrays, each at the end of the relation.
 * It then says how many bytes of the last array are ready.  Any number of processes, the leader
 * among them, claim ranges of what is ready and write them, in any order.  The leader waits until
 * all ranges are written and goes on to the next segment, or syncs and writes the metapage.  It
 * may begin the next segment before, in another queue.
 *
 * An array may grow while its first bytes are written already; the vectors of a build do.
 *
 * Pages bypass the buffer manager.  That is right as long as nobody reads them before the writer's
 * transaction commits, or before the directory lists them.  A writer of blocks that others may hold
 * in buffers has to replace one function, PutPages(), and needs no sync.
 */
#ifndef GG_SEGMENT_WRITER_H
#define GG_SEGMENT_WRITER_H

#include "storage/codes.h"
#include "storage/directory.h"

#include "access/xlogdefs.h"
#include "storage/condition_variable.h"
#include "storage/spin.h"

/* Pages that a process claims at a time: 4 MB, some milliseconds. */
#define GG_RANGE_PAGES		512
#define GG_RANGE_BYTES		((Size) GG_RANGE_PAGES * GG_PAGE_PAYLOAD)

/* Arrays of a segment that several processes write: vectors and codes, TIDs, filters, adjacency. */
#define GG_WRITER_ARRAYS	5

/* Segments that may be in work at the same time, each with a queue of what is to be written. */
#define GG_WRITER_QUEUES	9

/* An array and its place. */
typedef struct GgWriterArray
{
	GgKind		kind;
	uint32		segment;
	BlockNumber start;
	uint32		npages;			/* UINT32_MAX while the array grows */
	uint64		bytes;
} GgWriterArray;

/* Arrays of one segment.  The numbers of ranges run through all of them. */
typedef struct GgWriterQueue
{
	int			narrays;
	GgWriterArray arrays[GG_WRITER_ARRAYS];
	uint32		ready;			/* ranges before this one may be claimed */
	uint32		next;			/* ranges before this one have been claimed */
	uint32		done;			/* ranges that have been written */
} GgWriterQueue;

/* What all processes share. */
typedef struct GgWriterShared
{
	bool		use_wal;
	int			nqueues;		/* fixed before workers start */
	bool		centred;		/* codes are centred by mean; settled before any code is made */
	float		mean[GG_MAX_DIM];
	ConditionVariable changed;	/* there is something to write, or all is written */
	slock_t		mutex;			/* protects what follows */
	GgWriterQueue queues[GG_WRITER_QUEUES];
	int			writers;		/* processes that write now */
	uint64		since_us;		/* when the first of these writers began */
	double		write_s;		/* time with at least one writer; grows when the last one ends */
	double		busy_s;			/* time of all processes, summed, WAL included */
	double		wal_s;			/* the part of busy_s that went into WAL */
} GgWriterShared;

/* One process's view. */
typedef struct GgSegmentWriter
{
	Relation	index;
	GgMetaPageData *meta;		/* its directory is the leader's to change */
	GgWriterShared *shared;
	MemoryContext context;		/* for the page buffer */
	char	   *pages;			/* page buffer, NULL until the first write */
	GgRunFile	file;			/* the file that was written to last */
	/* where the bytes of each array lie, by queue and kind; of codes, where they are to be kept */
	const void *data[GG_WRITER_QUEUES][GG_LAST_KIND + 1];
	GgCoder    *coder;			/* makes codes of the vectors; NULL until the first */
	char	   *payloads;		/* codes of the pages in the page buffer */

	/* the leader's */
	BlockNumber nblocks;		/* blocks given to arrays so far */
	XLogRecPtr	start_redo;		/* the redo pointer when the writer began */
} GgSegmentWriter;

/* Pages of one array that a process writes. */
typedef struct GgPageRange
{
	int			queue;
	uint32		number;			/* of all the queue's ranges */
	GgWriterArray array;
	uint32		first;			/* page within the array */
	uint32		count;
	uint64		offset;			/* byte within the array */
	Size		bytes;
	uint64		began_us;
	double		wal_s;
} GgPageRange;

/* ---- the leader ---------------------------------------------------------------- */

/* Set up what all share, then a view.  Pages go behind the metapage of an empty relation. */
extern void GgInitWriterShared(GgWriterShared *shared, Relation index);
extern void GgBeginWriter(GgSegmentWriter *writer, Relation index, GgMetaPageData *meta,
						  GgWriterShared *shared, MemoryContext context);

/*
 * Begin a segment, whose first array, of this kind, grows.  By then no other array may grow, and
 * all of the queue must be written.
 */
extern void GgBeginSegment(GgSegmentWriter *writer, int queue, uint32 segment, GgKind kind);

/* So many bytes of the growing array will not change any more. */
extern void GgGrowArray(GgSegmentWriter *writer, int queue, uint64 bytes);

/* The growing array has its final length, and all of it is ready. */
extern void GgEndGrowth(GgSegmentWriter *writer, int queue, uint64 bytes);

/*
 * Add an array to be written by all, none of it ready, while no array grows.  GgArrayReady(): so
 * many bytes of the array added last are ready.
 */
extern void GgAddArray(GgSegmentWriter *writer, int queue, uint32 segment, GgKind kind,
					   uint64 bytes);
extern void GgArrayReady(GgSegmentWriter *writer, int queue, uint64 bytes);

/* Add an array, while none grows, and write it, all by this process. */
extern void GgWriteArray(GgSegmentWriter *writer, uint32 segment, GgKind kind, const void *data,
						 uint64 bytes);

/* Sync what has been written, or have the next checkpoint do so; report is told of blocks. */
extern void GgSyncWriter(GgSegmentWriter *writer,
						 void (*report) (BlockNumber done, BlockNumber total));
extern void GgWriteMetaPage(GgSegmentWriter *writer);

/* ---- all processes -------------------------------------------------------------- */

/*
 * Claim the next range, of the oldest segment that has one.  False: none is ready, or most_writers
 * processes write already.
 */
extern bool GgClaimRange(GgSegmentWriter *writer, int most_writers, GgPageRange *range);
extern void GgWriteRange(GgSegmentWriter *writer, GgPageRange *range);

/* A range is written and done with.  After the last one the leader may end the segment. */
extern void GgEndRange(GgSegmentWriter *writer, const GgPageRange *range);

/* The range of that number. */
extern void GgFindRange(GgSegmentWriter *writer, int queue, uint32 number, GgPageRange *range);

/* Ranges of all arrays added so far. */
extern uint32 GgCountRanges(GgSegmentWriter *writer, int queue);

/*
 * Are all arrays added so far written?  Counts their pages.  GgReadyIsWritten(): is all written
 * that is ready?
 */
extern bool GgIsWritten(GgSegmentWriter *writer, int queue, BlockNumber *done, BlockNumber *total);
extern bool GgReadyIsWritten(GgSegmentWriter *writer, int queue);

/* Wait for a change, for a while or (timeout -1) any time; end a series of waits; wake waiters. */
extern void GgWaitForWriters(GgSegmentWriter *writer, long timeout_ms);
extern void GgEndWait(void);
extern void GgWakeWriters(GgSegmentWriter *writer);

#endif							/* GG_SEGMENT_WRITER_H */
