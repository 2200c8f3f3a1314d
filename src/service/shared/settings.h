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
#define GG_FAULTS(X) \
	X(none, NONE) \
	X(launch, LAUNCH) /* the launch fails, the device goes on */ \
	X(device, DEVICE) /* the device is lost: the worker has to restart */ \
	X(exit, EXIT) /* the worker exits as if terminated */ \
	/* the answer takes a second, and as long as the worker's setting is this */ \
	X(stall, STALL) \
	X(ring_full, RING_FULL) /* the backend finds no room */ \
	X(device_memory, DEVICE_MEMORY) /* a load finds too little device memory */ \
	X(host_memory, HOST_MEMORY) /* ... or can pin none of the host's */ \
	X(load, LOAD) /* the loader fails half-way */ \
	X(load_gap, LOAD_GAP) /* the loader leaves out a unit */ \
	/* every reader of a load rests half-way, for a second and as long as the server's \
	 * setting is this */ \
	X(load_stall, LOAD_STALL) \
	/* likewise, and there are gpugraph.load_workers of them */ \
	X(load_readers, LOAD_READERS) \
	X(no_driver, NO_DRIVER) /* the worker finds no device */ \
	X(no_device, NO_DEVICE) /* the worker finds others, but not its own */ \
	/* the worker's device cannot be used, unless it is number 0 */ \
	X(old_device, OLD_DEVICE) \
	X(hang, HANG) /* the batch never ends */ \
	X(hang_launch, HANG_LAUNCH) /* the call that launches it never returns */ \
	X(hang_load, HANG_LOAD) /* the call that takes memory for a load never returns */ \
	/* a load finds device memory for all but one of its lists */ \
	X(less_memory, LESS_MEMORY) \
	X(hot, HOT) /* an index is hot, whether its queries wait or not */ \
	X(graph, GRAPH) /* the device is lost while it builds a merge's graph */ \
	X(graph_memory, GRAPH_MEMORY) /* such a graph finds too little device memory */ \
	/* the device rests before it begins with it, until its worker's setting is another */ \
	X(graph_hold, GRAPH_HOLD) \
	X(graph_hang, GRAPH_HANG) /* the call that builds it never returns */ \
	/* who gives blocks back rests before the record that says so, until other transactions \
	 * have begun */ \
	X(parking_hold, PARKING_HOLD) \
	X(parking_none, PARKING_NONE) /* blocks that are given back are used again at once */ \
	X(hold_merge, HOLD_MERGE) /* these rest: GgHoldPlace, in its order */ \
	X(hold_vacuum_delta, HOLD_VACUUM_DELTA) \
	X(hold_vacuum_segment, HOLD_VACUUM_SEGMENT) \
	X(hold_vacuum_last, HOLD_VACUUM_LAST) \
	X(hold_give_back, HOLD_GIVE_BACK) \
	X(hold_lengthen, HOLD_LENGTHEN) \
	X(hold_move, HOLD_MOVE) \
	X(hold_truncate, HOLD_TRUNCATE) \
	X(hold_post, HOLD_POST) \
	X(hold_build, HOLD_BUILD) \
	X(learn_hold, LEARN_HOLD) /* who learns rests within an engine, until it is to end */ \
	X(within_hold, WITHIN_HOLD) /* a merge within another one rests between two slices */ \
	/* such a merge fails while it holds the metapage, and the engine that builds for the \
	 * other one is slow to return */ \
	X(within_error, WITHIN_ERROR)

typedef enum GgFault
{
#define GG_FAULT_MEMBER(name, member)	GG_FAULT_##member,
	GG_FAULTS(GG_FAULT_MEMBER)
#undef GG_FAULT_MEMBER
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
