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
 *
 *  launch                  the launch fails, the device goes on
 *  device                  the device is lost: the worker has to restart
 *  exit                    the worker exits as if terminated
 *  stall                   the answer takes a second, and as long as the worker's setting is this
 *  ring_full               the backend finds no room
 *  device_memory           a load finds too little device memory
 *  host_memory             a load can pin none of the host's memory
 *  load                    the loader fails half-way
 *  load_gap                the loader leaves out a unit
 *  load_stall              every reader of a load rests half-way, for a second and as long as the
 *                          server's setting is this
 *  load_readers            as load_stall, and there are gpugraph.load_workers readers
 *  no_driver               the worker finds no device
 *  no_device               the worker finds others, but not its own
 *  old_device              the worker's device cannot be used, unless it is number 0
 *  hang                    the batch never ends
 *  hang_launch             the call that launches it never returns
 *  hang_load               the call that takes memory for a load never returns
 *  less_memory             a load finds device memory for all but one of its lists
 *  hot                     an index is hot, whether its queries wait or not
 *  graph                   the device is lost while it builds a merge's graph
 *  graph_memory            a merge's graph finds too little device memory
 *  graph_hold              the device rests before it begins a merge's graph, until its worker's
 *                          setting is another
 *  graph_hang              the call that builds a merge's graph never returns
 *  parking_hold            who gives blocks back rests before the record that says so, until
 *                          other transactions have begun
 *  parking_none            blocks that are given back are used again at once
 *  hold_merge              GgHold(), as all to GG_FAULT_HOLD_BUILD: a merge before its flip
 *  hold_vacuum_delta       VACUUM before it notes what it cleared in the delta
 *  hold_vacuum_segment     the same of a segment, while others are to be gone through
 *  hold_vacuum_last        the same of the last one
 *  hold_give_back          VACUUM before it gives back what it found
 *  hold_lengthen           a merge after a step by which the relation became longer
 *  hold_move               who makes the file shorter, before what was moved counts
 *  hold_truncate           the same, before the file's end goes
 *  hold_post               a backend before it posts its query
 *  hold_build              a build before it makes a graph, with its rows on the device
 *  learn_hold              who learns rests within an engine, until it is to end
 *  within_hold             a merge within another one rests between two slices
 *  within_error            such a merge fails while it holds the metapage, and the engine that
 *                          builds for the other one is slow to return
 */
#define GG_FAULTS(X) \
	X(none, NONE) X(launch, LAUNCH) X(device, DEVICE) X(exit, EXIT) X(stall, STALL) \
	X(ring_full, RING_FULL) X(device_memory, DEVICE_MEMORY) X(host_memory, HOST_MEMORY) \
	X(load, LOAD) X(load_gap, LOAD_GAP) X(load_stall, LOAD_STALL) \
	X(load_readers, LOAD_READERS) X(no_driver, NO_DRIVER) X(no_device, NO_DEVICE) \
	X(old_device, OLD_DEVICE) X(hang, HANG) X(hang_launch, HANG_LAUNCH) \
	X(hang_load, HANG_LOAD) X(less_memory, LESS_MEMORY) X(hot, HOT) X(graph, GRAPH) \
	X(graph_memory, GRAPH_MEMORY) X(graph_hold, GRAPH_HOLD) X(graph_hang, GRAPH_HANG) \
	X(parking_hold, PARKING_HOLD) X(parking_none, PARKING_NONE) X(hold_merge, HOLD_MERGE) \
	X(hold_vacuum_delta, HOLD_VACUUM_DELTA) X(hold_vacuum_segment, HOLD_VACUUM_SEGMENT) \
	X(hold_vacuum_last, HOLD_VACUUM_LAST) X(hold_give_back, HOLD_GIVE_BACK) \
	X(hold_lengthen, HOLD_LENGTHEN) X(hold_move, HOLD_MOVE) X(hold_truncate, HOLD_TRUNCATE) \
	X(hold_post, HOLD_POST) X(hold_build, HOLD_BUILD) X(learn_hold, LEARN_HOLD) \
	X(within_hold, WITHIN_HOLD) X(within_error, WITHIN_ERROR)

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

/*
 * fault.c: where gpugraph.fault is this, the process rests as long as another one holds the
 * advisory lock (0, fault - GG_FAULT_HOLD_MERGE).
 */
extern void GgHold(GgFault fault);

/* The engine of gpugraph.service_engine; NULL: gpugraph was built without it. */
extern const gg_engine *GgServiceOps(void);

/* From GgServiceInit(). */
extern void GgDefineServiceSettings(bool preloading);

/* The numbers of the devices that gpugraph.devices names; returns how many. */
extern int	GgDevicesOfSetting(int *numbers);

#endif							/* GG_SETTINGS_H */
