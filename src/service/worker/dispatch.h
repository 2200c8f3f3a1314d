/*
 * dispatch.h
 *		What dispatch.c and batch.c share: queries, their items, and batches in flight.
 */
#ifndef GG_DISPATCH_H
#define GG_DISPATCH_H

#include "service/worker/watchdog.h"

/* What the worker knows of a group. */
typedef struct Members
{
	gg_index   *indexes[GG_SERVE_MAX_GROUP];
	bool		measured[GG_SERVE_MAX_GROUP];
	uint32		pinned[GG_SERVE_MAX_GROUP];
	struct Members *next;		/* of those that are not in use */
} Members;

/* What the worker knows of a slot's query. */
typedef struct SlotQuery
{
	bool		live;
	bool		failed;
	GgReason	reason;			/* failed */
	uint32		ticket;			/* low half */
	uint32		items;			/* waiting or in flight */
	uint32		npinned;
	uint32	   *pinned;			/* &one; of a group, members->pinned */
	uint32		one;
	gg_index  **indexes;		/* by list */
	uint32		rowless;		/* bitmap of lists whose keys have bounds if deep */
	Members    *members;		/* of a group; NULL: it is none */
	uint64		posted_us;
	uint64		submitted_us;	/* the first of its items; 0: none yet */
} SlotQuery;

/* One list of a query, to be searched. */
typedef struct SlotItem
{
	uint32		slot;
	const GgSlot *at;			/* that slot */
	uint32		list;
	uint32		entry;
	bool		bounded;		/* where it is deep, keys have bounds */
	bool		hangs;			/* gpugraph.fault = hang */
	uint64		due_us;			/* 0: now */
} SlotItem;

/* Deep requests of a kind are answered together, whatever their filters and lengths are. */
typedef enum DeepKind
{
	DEEP_ALONE,					/* all others, and what is no deep request */
	DEEP_FILTERED,				/* short lists by a filter, or of bounds; not one of many TIDs */
	DEEP_ALL					/* lists of all rows */
} DeepKind;

/* A batch in flight. */
typedef struct Flight
{
	struct Flight *next;
	uint32		queue;
	uint32		entry;
	uint32		list;
	DeepKind	kind;
	uint32		count;			/* not answered yet */
	uint64		submitted_us;
	uint32		slots[GG_SERVE_MAX_BATCH];
	uint32		tickets[GG_SERVE_MAX_BATCH];
} Flight;

typedef struct GgDispatch
{
	SlotQuery  *queries;		/* one per slot */
	SlotItem   *waiting;
	uint32		nwaiting;
	Flight	   *flights;		/* in flight, in no order */
	Flight	   *spare;
	Members    *spare_members;
	uint32		queue_flights[GG_SERVE_QUEUES];
	bool		queue_hangs[GG_SERVE_QUEUES]; /* gpugraph.fault = hang */
	uint32		next_queue;
	uint32		abandoned_seen;
	uint64		checked_us;
} GgDispatch;

/* ---- batch.c ----------------------------------------------------------- */

/* An item of a slot's query has ended for this reason. */
typedef void (*GgEndItem) (GgWorker *worker, uint32 number, GgReason reason);

/* TIDs of the filter of a slot's request, if it has one. */
extern uint32 GgCountSlotTids(const GgSlot *slot);

/* Submit what waits to the queues that are free now.  refused: called for each query refused. */
extern void GgSubmit(GgWorker *worker, GgEndItem refused);

#endif							/* GG_DISPATCH_H */
