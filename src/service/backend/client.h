/*
 * client.h
 *		The steps of a backend's request, for ask.c.
 */
#ifndef GG_CLIENT_H
#define GG_CLIENT_H

#include "service/shared/shmem.h"

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
 * Begin a request: this process's slot has all of it but where its parts are.  False: *reason says
 * why not.  A request that is not posted need not be undone, but for the chunk.
 */
extern bool GgAskBegin(GgAsked *asked, const GgResidentRef *ref, const gg_request *request,
					   GgReason *reason);

/*
 * Post the request, do what is to be done meanwhile, and wait for the answer; interruptible.  True:
 * the answer is there, and slot and chunk belong to this process, which has to give the chunk back.
 * False: *reason says why not, and neither belongs to this process any more.
 */
extern bool GgAskAndWait(GgAsked *asked, const GgMeanwhile *meanwhile, GgReason *reason);

#endif							/* GG_CLIENT_H */
