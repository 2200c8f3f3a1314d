/*
 * handover.h
 *		The handle of a load in a process that brings it, and what loaders and builders both do with it; for handover.c
 *		and loader.c.
 */
#ifndef GG_HANDOVER_H
#define GG_HANDOVER_H

#include "service/resident.h"

/* How long to sleep at a time while somebody else has to do something first. */
#define GG_LOAD_WAIT_MS		2

struct GgLoad
{
	GgDevice   *device;
	int			device_number;
	int			number;
	uint32		serial;
	uint32		entry;
	uint32		use;
	int			filling;		/* chunk that we fill, or -1 */
	bool		over;			/* the load has ended without us */
	bool		helper;			/* not the reader that opens and finishes the load */
	bool		in_unit;		/* claimed, and not handed over yet */
	bool		builder;
	bool		let_go;			/* builders: the worker knows that we are through with it */
	SubTransactionId subxact;	/* builders: what it goes with */
	GgLoad	   *next;			/* builders: pending_loads */
};

static inline GgLoadJob *
GgLoadJobOf(const GgLoad *load)
{
	return &load->device->loads_under_way[load->number];
}

/* The state of our load; FREE when it is not ours any more. */
extern GgLoadState GgLoadStateOf(const GgLoad *load);

/* Are chunks accepted?  False also when the load was given up, or its worker is gone. */
extern bool GgLoadIsOpen(const GgLoad *load);

/*
 * End a load early: quietly, or with the error that the entry is to tell (the first one counts).  Frees the chunk that is being
 * filled.
 */
extern void GgLoadGiveUp(GgLoad *load, bool quiet, const char *error);

/* Put down what is to be loaded: a list a segment, and one for the delta's full pages. */
extern void GgLoadDescribe(GgLoadJob *job, Relation index, const GgMetaPageData *meta);

/* Wait until chunks are accepted; false when the load was ended instead. */
extern bool GgLoadWaitUntilOpen(GgLoad *load);

/*
 * Must this process stop working for the load?  A builder, once it has waited for one step since
 * then for too long.  A loader, once somebody wants its database without other sessions.  The load
 * is given up then.
 */
extern bool GgLoadMustStop(GgLoad *load, uint64 since_us);

/*
 * A chunk to fill, GG_STAGE_CHUNK bytes; NULL when the load was given up meanwhile.  One at a time: either put it, bytes of it, for
 * the upload to take to that offset of the list's part, or free it.
 */
extern char *GgLoadGetChunk(GgLoad *load);
extern void GgLoadPutChunk(GgLoad *load, uint32 list, gg_part part, uint64 offset, uint64 bytes);
extern void GgLoadFreeChunk(GgLoad *load);

#endif							/* GG_HANDOVER_H */
