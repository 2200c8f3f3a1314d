/*
 * handover.h
 *		The handle of a load in the process that brings it, and the steps that loaders and builders
 *		share.
 */
#ifndef GG_HANDOVER_H
#define GG_HANDOVER_H

#include "service/shared/table.h"

#include "postmaster/bgworker.h"

/* How long to sleep at a time while another process has to do something first. */
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
	bool		in_unit;		/* a unit is claimed, and not handed over yet */
	bool		builder;
	bool		ahead;			/* a merge's: what is there stays until this is READY */
	bool		finishing;		/* builders: all was written */
	bool		let_go;			/* builders: the worker knows that we are through with it */
	SubTransactionId subxact;	/* builders: the subtransaction that it ends with */
	GgLoad	   *next;			/* builders: pending_loads */
	GgLoad	   *other;			/* of the same contents, to another device */
	uint64		step_us;		/* builders: how long a step of it may take */
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
 * End a load early: quietly, or with the error that the entry is to show (the first one counts),
 * and its SQLSTATE, or 0.  Frees the chunk that is being filled.
 */
extern void GgLoadGiveUp(GgLoad *load, bool quiet, int sqlerrcode, const char *error);

/*
 * Describe what is to be loaded: a list per segment, and one for the delta's full pages.  mean: as
 * of GgReadMean().
 */
extern void GgLoadDescribe(GgLoadJob *job, Relation index, const GgMetaPageData *meta,
						   const float *mean);

/* Wait until chunks are accepted; false when the load was ended instead. */
extern bool GgLoadWaitUntilOpen(GgLoad *load);

/*
 * Must this process stop working for the load?  A builder must when it has waited too long for
 * one step, which began at since_us.  A loader must when another session wants its database
 * without other sessions.  The load is given up then.
 */
extern bool GgLoadMustStop(GgLoad *load, uint64 since_us);

/*
 * A chunk to fill, GG_STAGE_CHUNK bytes; NULL when the load was given up meanwhile.  There is one
 * at a time.  Either put it, which makes the upload take that many bytes of it to that offset of
 * the list's part, or free it.
 */
extern char *GgLoadGetChunk(GgLoad *load);
extern void GgLoadPutChunk(GgLoad *load, uint32 list, gg_part part, uint64 offset, uint64 bytes);
extern void GgLoadFreeChunk(GgLoad *load);

/* ---- loader.c ------------------------------------------------------------------- */

/* Entry point of dynamic workers; the argument is (device << 8 | load). */
extern PGDLLEXPORT void GgLoaderMain(Datum arg);

/* Start a loader; false: no background worker is free.  device: place in gg_service->devices. */
extern bool GgStartLoader(int device, int load, uint32 serial, bool helper,
						  BackgroundWorkerHandle **handle);

#endif							/* GG_HANDOVER_H */
