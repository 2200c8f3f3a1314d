/*
 * settings.h
 *		Settings of the service, and the faults that one of them asks for.
 */
#ifndef GG_SETTINGS_H
#define GG_SETTINGS_H

#include "service/shared/service.h"

/* gpugraph.device_storage: storage.c tells the forms. */
typedef enum GgDeviceStorage
{
	GG_STORAGE_AUTO,
	GG_STORAGE_FULL,
	GG_STORAGE_CODES
} GgDeviceStorage;

#define GG_MOST_RESIDENTS	65536	/* that gpugraph.max_residents may be */

/*
 * What gpugraph.fault (superusers, for tests) makes the service do, or a merge or VACUUM of the
 * process itself.  Faults of a query travel with the query, faults of a load with the request for
 * it.  The worker reads NO_DRIVER, NO_DEVICE and OLD_DEVICE as it starts.
 */
typedef enum GgFault
{
	GG_FAULT_NONE,
	GG_FAULT_LAUNCH,			/* the launch fails, the device goes on */
	GG_FAULT_DEVICE,			/* the device is lost: the worker has to restart */
	GG_FAULT_EXIT,				/* the worker exits as if terminated */
	GG_FAULT_STALL,				/* the answer takes a second, and as long as the worker's setting is
								 * this */
	GG_FAULT_RING_FULL,			/* the backend finds no room */
	GG_FAULT_DEVICE_MEMORY,		/* a load finds too little device memory */
	GG_FAULT_HOST_MEMORY,		/* ... or can pin none of the host's */
	GG_FAULT_LOAD,				/* the loader fails half-way */
	GG_FAULT_LOAD_GAP,			/* the loader leaves out a unit */
	GG_FAULT_LOAD_STALL,		/* every reader of a load rests half-way, for a second and as
								 * long as the server's setting is this */
	GG_FAULT_LOAD_READERS,		/* likewise, and there are gpugraph.load_workers of them */
	GG_FAULT_NO_DRIVER,			/* the worker finds no device */
	GG_FAULT_NO_DEVICE,			/* the worker finds others, but not its own */
	GG_FAULT_OLD_DEVICE,		/* the worker's device cannot be used, unless it is number 0 */
	GG_FAULT_HANG,				/* the batch never ends */
	GG_FAULT_HANG_LAUNCH,		/* the call that launches it never returns */
	GG_FAULT_HANG_LOAD,			/* the call that takes memory for a load never returns */
	GG_FAULT_LESS_MEMORY,		/* a load finds device memory for all but one of its lists */
	GG_FAULT_HOT,				/* an index is hot, whether its queries wait or not */
	GG_FAULT_GRAPH,				/* the device is lost while it builds a merge's graph */
	GG_FAULT_GRAPH_MEMORY,		/* such a graph finds too little device memory */
	GG_FAULT_GRAPH_HOLD,		/* the device rests before it begins with it, until its worker's
								 * setting is another */
	GG_FAULT_GRAPH_HANG,		/* the call that builds it never returns */
	GG_FAULT_PARKING_HOLD,		/* who gives blocks back rests before the record that says so, until
								 * other transactions have begun */
	GG_FAULT_PARKING_NONE,		/* blocks that are given back are used again at once */
	GG_FAULT_HOLD_MERGE,		/* these rest: GgHoldPlace, in its order */
	GG_FAULT_HOLD_VACUUM_DELTA,
	GG_FAULT_HOLD_VACUUM_SEGMENT,
	GG_FAULT_HOLD_VACUUM_LAST,
	GG_FAULT_HOLD_GIVE_BACK,
	GG_FAULT_HOLD_LENGTHEN,
	GG_FAULT_HOLD_MOVE,
	GG_FAULT_HOLD_TRUNCATE,
	GG_FAULT_HOLD_POST,
	GG_FAULT_HOLD_BUILD,
	GG_FAULT_LEARN_HOLD,		/* who learns rests within an engine, until it is to end */
	GG_FAULT_WITHIN_HOLD,		/* a merge within another one rests between two slices */
	GG_FAULT_WITHIN_ERROR		/* such a merge fails while it holds the metapage, and the engine
								 * that builds for the other one is slow to return */
} GgFault;

extern int	gg_device_storage;	/* gpugraph.device_storage, GgDeviceStorage; sighup */
extern int	gg_host_memory_mb;	/* gpugraph.host_memory in MB, of each device; -1: an eighth of the
									 * host's; sighup */
extern int	gg_device_memory_mb;	/* gpugraph.device_memory in MB: what residents may take of each
									 * device, and a build beside them; 0: nine tenths of it;
									 * sighup */
extern int	gg_device_timeout_ms;	/* gpugraph.device_timeout: a batch or a call of the driver that
									 * takes longer hangs; 0: never; sighup */
extern bool gg_autoprewarm;		/* gpugraph.autoprewarm; sighup */
extern int	gg_max_residents;	/* gpugraph.max_residents: entries of a device's table;
								 * postmaster */
extern int	gg_answer_chunks;	/* gpugraph.answer_chunks: of the pool of long answers;
								 * postmaster */
extern int	gg_loaders;			/* gpugraph.load_workers: readers of one big index; sighup */
extern int	gg_fault;			/* gpugraph.fault, GgFault; superuser */

/* The engine of gpugraph.service_engine; NULL: gpugraph was built without it. */
extern const gg_engine *GgServiceOps(void);

/* From GgServiceInit(). */
extern void GgDefineServiceSettings(bool preloading);

/* The numbers of the devices that gpugraph.devices names; returns how many. */
extern int	GgDevicesOfSetting(int *numbers);

#endif							/* GG_SETTINGS_H */
