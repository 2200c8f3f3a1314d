/*
 * graph_job.h
 *		A graph that a device builds for another process: what that process and the device's
 *		worker share.
 *
 * The job's word (word.h) has these states.  Who may change them:
 *
 *	FREE -> ASKED			the process that asks, under device->lock
 *	ASKED -> GRANTED		the worker: there is memory on the device; it starts a thread next
 *	GRANTED -> DONE			the thread; the worker where no thread can be started
 *	ASKED, DONE -> ENDED	the worker: the outcome is there
 *	ENDED -> FREE			the process that asked; the worker when the ORPHAN flag is set
 *
 * Every process that knows the serial may set flags: CANCEL says that nobody wants the graph any
 * more, ORPHAN that nobody looks at the job either.  The next worker of the device gives the job
 * a new serial, so whoever waits sees that there is nothing to wait for.
 */
#ifndef GG_GRAPH_JOB_H
#define GG_GRAPH_JOB_H

#include "service/shared/word.h"

#include "engine/engine.h"

typedef enum GgGraphState
{
	GG_GRAPH_FREE = 0,
	GG_GRAPH_ASKED,
	GG_GRAPH_GRANTED,
	GG_GRAPH_DONE,
	GG_GRAPH_ENDED
} GgGraphState;

#define GG_GRAPH_CANCEL		0x10
#define GG_GRAPH_ORPHAN		0x20

/*
 * Where things lie in the memory that the process and the worker's thread map, a file without a
 * name: offsets in bytes.  The rows are at 0.
 */
typedef struct GgGraphLayout
{
	uint32		most_pivots;	/* that there is room for */
	Size		parts;
	Size		lists;
	Size		adjacency;
	Size		pivots;
	Size		pivot_adjacency;
	Size		bytes;
} GgGraphLayout;

typedef struct GgGraphJob
{
	pg_atomic_uint64 word;

	/* from the process that asks */
	int			owner;			/* its process id */
	uint32		procno;
	int			fault;			/* GgFault */
	int			fd;				/* the owner's descriptor of the file */
	uint64		file_device;	/* st_dev of the file */
	uint64		file_number;	/* st_ino of the file */
	GgGraphLayout layout;
	gg_dataset	data;			/* but for the rows' address */
	uint32		length;			/* of the lists; 0: there are none, and the graph is built anew */
	gg_build_params params;

	/* from the worker */
	gg_code		code;
	int			device_error;
	char		message[sizeof(((gg_status *) NULL)->message)];
	uint32		npivots;
} GgGraphJob;

/* Does somebody still want the graph? */
static inline bool
GgGraphIsWanted(GgGraphJob *job, uint32 serial)
{
	uint64		word = pg_atomic_read_u64(&job->word);

	return GgWordSerial(word) == serial && (word & GG_GRAPH_CANCEL) == 0;
}

#endif							/* GG_GRAPH_JOB_H */
