/*
 * client.h
 *		The steps of a backend's request, for ask.c.
 */
#ifndef GG_CLIENT_H
#define GG_CLIENT_H

#include "service/shared/shmem.h"

/* One device's share of a request. */
typedef struct GgShare
{
	/* what it is asked; the caller's */
	GgResidentPart part;
	bool		delta;
	uint32		first;			/* query */
	uint32		count;
	GgFault		fault;			/* that the request is to suffer */

	/* on its way to the worker, or with it */
	GgSlot	   *slot;
	GgDevice   *device;
	uint64		ticket;
	uint64		epoch;			/* of the worker that it is posted to */
	bool		answered;
	uint32		nlists;			/* still to come */
	uint8		lists[GG_SERVE_MAX_LISTS];	/* the last one is looked at first, so that the
											 * others are seldom looked at more than once */
} GgShare;

/*
 * Begin a request: fill this process's slot with the device, but for where its parts lie.
 * False: *reason says why not.  A request that is not posted need not be undone, but for the chunk.
 */
extern bool GgAskBegin(GgShare *share, const gg_request *request, GgReason *reason);

/*
 * Post n requests, each to another device, do what is to be done meanwhile, and wait for all of
 * them; interruptible.  Slots and chunks of those that are answered belong to this process, which
 * has to give the chunks back.  Those of the others do not any more.  False: *failed is the last
 * that was not answered, or the first that could not be posted, and *reason says why.
 */
extern bool GgAskAndWait(GgShare *shares, int n, const GgMeanwhile *meanwhile, GgReason *reason,
						 int *failed);

#endif							/* GG_CLIENT_H */
