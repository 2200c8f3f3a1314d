/*
 * client.h
 *		The steps of a backend's request, for client.c and bulk.c.
 */
#ifndef GG_CLIENT_H
#define GG_CLIENT_H

#include "service/shmem.h"

/* A request on its way to the worker, or with it. */
typedef struct GgAsked
{
	GgSlot	   *slot;
	GgDevice   *device;
	uint64		ticket;
	uint64		epoch;			/* of the worker that it is posted to */
	uint32		nlists;			/* still to come */
	uint8		lists[GG_SERVE_MAX_LISTS];	/* the last one is looked at first, so that the
											 * others are seldom looked at more than once */
} GgAsked;

/*
 * Begin a request for some lists: this process's slot, with all but the fields of the kind and the
 * query.  False: *reason says why not.  A request that is not posted need not be undone.
 */
extern bool GgAskBegin(GgAsked *asked, const GgResidentRef *ref, GgRequest request, uint32 lists,
					   bool delta, GgReason *reason);

/*
 * Post the request, do what is to be done meanwhile, and wait for the answer; interruptible.  True:
 * the answer is there, and slot and chunk belong to this process, which has to give the chunk back.
 * False: *reason says why not, and neither belongs to this process any more.
 */
extern bool GgAskAndWait(GgAsked *asked, const GgMeanwhile *meanwhile, GgReason *reason);

#endif							/* GG_CLIENT_H */
