/*
 * service.h
 *		The GPU service, as the other folders use it: is an index on a device, ask the device, hand
 *		a new index over, count a query.
 *
 * One background worker per device owns the device's context and answers the queries of all
 * backends; see src/service/README.
 *
 * A device answers with (list, node, distance) and nothing else.  TIDs are read from the
 * relation's pages when a row is returned, so a stale resident never brings back a recycled TID.
 */
#ifndef GG_SERVICE_H
#define GG_SERVICE_H

#include "storage/directory.h"

#include "postmaster/bgworker.h"

/* ---- settings.c, shmem.c, start.c ---------------------------------------- */

typedef enum GgServiceEngine
{
	GG_SERVICE_CUDA,
	GG_SERVICE_CPU				/* for tests and trials: the CPU engine plays a device */
} GgServiceEngine;

extern int	gg_service_engine;	/* gpugraph.service_engine, GgServiceEngine; postmaster */

#define GG_MAX_DEVICES		16

/* NULL unless gpugraph is preloaded and gpugraph.devices is not empty. */
typedef struct GgService GgService;
extern GgService *gg_service;

/* From _PG_init: defines settings; when preloaded also registers hooks and workers. */
extern void GgServiceInit(void);

/* start.c: fill in a worker with a database and no restart, which the caller may change */
extern void GgDescribeWorker(BackgroundWorker *worker, const char *type, const char *function,
							 Datum arg);

/* start.c: for a background worker, read the settings again after a SIGHUP */
extern void GgReloadSettings(void);

/* ---- fault.c --------------------------------------------------------------- */

/*
 * For tests, called before the record by which blocks are given back, parked under xid: it may
 * rest.  Returns the id to park them under.
 */
extern uint64 GgParkingFault(uint64 xid);

/* For tests, called in an engine's callback while edges are learned: it may rest. */
extern void GgLearnFault(void);

/*
 * For tests of a merge within another one's engine call: called between its slices, under the
 * metapage's lock, and when an error has ended it.
 */
extern void GgWithinFault(void);
extern void GgWithinLockedFault(void);
extern void GgWithinEndedFault(void);

/* ---- reasons (client.c) ---------------------------------------------------- */

/* Why the CPU answered a query; for the counters and for gpugraph.engine = cuda. */
typedef enum GgReason
{
	GG_REASON_NONE = 0,			/* the device answered */
	GG_REASON_SETTING,			/* gpugraph.engine = cpu */
	GG_REASON_NO_SERVICE,		/* not preloaded, no device, no live worker */
	GG_REASON_NOT_RESIDENT,		/* evicted, or on its way out */
	GG_REASON_LOADING,			/* on its way to the device, or asked for just now */
	GG_REASON_MEMORY,			/* does not fit under gpugraph.device_memory */
	/* ring or pool full, or the slot still in use by an abandoned query */
	GG_REASON_BUSY,
	GG_REASON_FAILED,			/* launch, device or load failed */
	GG_REASON_TOO_LARGE,		/* lists x k above what there is room for */
	GG_REASON_LOCAL,			/* temporary, or created by this transaction: only we can read it */
	GG_REASON_SMALL,			/* so few rows that an exact scan is as fast */
	GG_REASON_PARTIAL,			/* the device answered, but for segments that have no room there */
	GG_REASON_CODED,			/* rows are to be measured, and the device has codes alone */
	GG_REASON_EXACT,			/* the statement's answer is exact */
	GG_NREASONS
} GgReason;

/* Is the reason a choice, and no failure? */
static inline bool
GgIsChoice(GgReason reason)
{
	return reason == GG_REASON_NONE || reason == GG_REASON_SETTING ||
		reason == GG_REASON_LOCAL || reason == GG_REASON_SMALL || reason == GG_REASON_EXACT;
}

/* The reason as a sentence, for errdetail(). */
extern const char *GgReasonText(GgReason reason);

/*
 * Throw an error under gpugraph.engine = cuda, unless the reason is a choice (GgIsChoice())
 * and no failure.
 */
extern void GgRequireDevice(Relation index, GgReason reason);

/*
 * The CPU answers a query for this reason: throw as GgRequireDevice() does.  Else write one LOG
 * line per reason and minute in the whole server, but none for a choice, nor for NO_SERVICE,
 * LOADING, NOT_RESIDENT and CODED.
 */
extern void GgFallBack(Relation index, GgReason reason);

/* Count one query (stat.c). */
extern void GgCountQuery(Oid index, GgReason reason, uint64 rows);

/* What everybody may know of one index of this database (stat.c). */
typedef struct GgIndexStat
{
	bool		up;				/* a device works */
	const char *state;			/* of the index on it, as in gpugraph_stat_index; NULL: absent */
	bool		ready;			/* devices answer its queries */
	uint32		missing;		/* bitmap of its segments that no device has */
	uint32		rowless;		/* bitmap of its segments of which devices have codes alone */
	int			device;			/* number of the device that `state` is of */
	GgReason	failure;		/* why the state is "failed" */
	bool		counted;		/* the counts are of this index alone */
	uint64		queries_gpu;
	uint64		queries_cpu;
	uint64		missed;			/* of queries_cpu, what a device should have answered */
} GgIndexStat;

extern void GgStatOfIndex(Oid relation, GgIndexStat *stat);

/* ---- queries (lookup.c, ask.c) ---------------------------------------------- */

/* The codes that walks measure by where a device has no full rows for them. */
#define GG_DEVICE_CODES(metric)	((metric) == GG_METRIC_L1 ? GG_CODES_INT8 : GG_CODES_INT4)

/* In which form devices hold an index: bitmaps of its segments. */
typedef struct GgForms
{
	uint32		missing;		/* of those that are not there, for want of memory */
	uint32		coded;			/* of those that walks measure by codes */
	uint32		rowless;		/* of codes alone: distances in keys are estimates */
	uint32		halved;			/* of float32 rounded to half precision: distances are of these */
} GgForms;

/* Add to *forms these lists of another device, which has what the first one lacks. */
static inline void
GgAddForms(GgForms *forms, const GgForms *others, uint32 lists)
{
	forms->missing &= ~lists;
	forms->coded |= others->coded & lists;
	forms->rowless |= others->rowless & lists;
	forms->halved |= others->halved & lists;
}

/*
 * What a backend's query names.  (entry, serial) is one version of a resident, which never
 * changes: a refresh makes a new one.  entry is opaque.
 */
typedef struct GgResidentPart
{
	int			device;
	uint32		entry;
	uint32		serial;
	uint32		lists;			/* bitmap of the segments that it is asked for */
} GgResidentPart;

typedef struct GgResidentRef
{
	/* the caller's; a look-up leaves them as they are */
	uint32		avoid;			/* bitmap of devices that failed the query; see GgAskAnother() */
	uint32		answered;		/* bitmap of segments whose lists are there: not asked for again */
	bool		delta_answered; /* the delta's list is there, too */

	int			device;
	uint32		entry;
	uint32		serial;
	uint32		nsegments;		/* lists 0 .. nsegments - 1, in the metapage's order */
	uint32		nothers;		/* other devices, which have segments that the first one lacks */
	GgResidentPart others[GG_MAX_DEVICES - 1];
	uint32		nreplicas;		/* other devices that have all segments, as the first has */
	GgResidentPart replicas[GG_MAX_DEVICES - 1];	/* in the same form, to share queries */
	int			failed;			/* the device that did not answer the last request */
	GgForms		forms;			/* of all devices that are asked */
	uint32		delta_pages;	/* that list nsegments covers, whole rows only; 0: no such list */
} GgResidentRef;

/* Forget which lists were answered: another request is to be asked. */
static inline void
GgForgetAnswers(GgResidentRef *ref)
{
	ref->answered = 0;
	ref->delta_answered = false;
}

/*
 * Is there a copy of the index on a device that serves this directory?  *ref tells where.  If not,
 * *reason says what stands in the way, and a load is asked for (once) where the service is up.
 * Under gpugraph.engine = cuda this waits for a load under way, interruptibly.
 */
extern bool GgResidentLookup(Relation index, const GgMetaPageData *meta, GgResidentRef *ref,
							 GgReason *reason);

/* May several devices have an index? */
extern bool GgMayHaveCopies(void);

/* Note that a query uses a device's copy that an earlier query has looked up. */
extern void GgNoteUse(int device, uint32 entry);

/*
 * A device that ref names has not answered, for this reason.  True: the index is to be looked up
 * again, as another copy may answer, or a newer one.  A device that failed is in ref->avoid then:
 * it is passed over, and no load is asked for or waited for.
 */
extern bool GgAskAnother(GgResidentRef *ref, GgReason reason);

/* Does a device answer queries of the index, whatever generation it has? */
extern bool GgIsServed(Relation index, const GgMetaPageData *meta);

/*
 * What the caller does while the device has its request.  It may throw; then the request is given
 * up.  It is not called where the device does not take the request.
 */
typedef struct GgMeanwhile
{
	void		(*run) (void *arg); /* NULL: nothing */
	void	   *arg;
} GgMeanwhile;

/* What is asked of a device. */
typedef struct GgAsk
{
	gg_request	request;
	const float *queries;		/* count x dim floats, as the column's operator sees them */
	const gg_filter *filter;	/* NULL: every row; its TIDs may be any number */
	GgMeanwhile meanwhile;
} GgAsk;

/*
 * Ask the devices that ref names, each for the lists that it has, all at the same time.  Lists that
 * ref says were answered are in keys and matches already.  True: keys (keys.h) has the k nearest of
 * each query in each list asked for, ascending, GG_NO_KEY at the end: those of query q in the l-th
 * list from (l x count + q) x k on; and with a filter matches[l] is how many rows of that list
 * match.  False: *reason says why the CPU has to answer.  Interruptible; a cancelled request leaves
 * nothing behind.
 */
extern bool GgServiceAsk(GgResidentRef *ref, const GgAsk *ask, uint64 *keys, uint64 *matches,
						 GgReason *reason);

/*
 * Ask devices for lists of many residents: those of a device by few requests, and all devices at
 * the same time.  asks[i] is for lists of parts[i], of one query without a filter.  keys[i] comes
 * to have them, list by list.  NULL: they are not answered, or one is lost.  Then they may be asked
 * for alone; no reason is given.  All that is allocated stays in the current memory context.
 * Interruptible, as GgServiceAsk().
 */
extern void GgServiceAskTogether(const GgAsk *asks, const GgResidentPart *parts, uint64 **keys,
								 int n);

/*
 * What one request for nlists lists takes at most: the length of lists of walks, the length of deep
 * lists without a filter's TIDs, and the number of queries where lists are k long.
 */
extern uint32 GgServiceWalkRoom(uint32 nlists);
extern uint32 GgServiceDeepRoom(uint32 nlists);
extern uint32 GgServiceBulkRoom(const GgResidentRef *ref, uint32 dim, uint32 k, uint32 nlists);

/*
 * For background workers, within a transaction.  Does another session have, or want, the database
 * in a way that keeps new sessions out?  DROP DATABASE and the like then wait for five seconds for
 * the sessions that are there, and fail.  Looks ten times per second at most; false in between.
 */
extern bool GgDatabaseIsWanted(void);

/* ---- devices of builds (build_memory.c) ---------------------------------------- */

/* Devices of a build, as gg_engine.use_device() takes them. */
typedef struct GgBuildDevices
{
	int			count;
	int			ordinals[GG_MAX_DEVICES];
	bool		opened[GG_MAX_DEVICES]; /* to be released */
	int			places[GG_MAX_DEVICES]; /* in gg_service->devices; -1: not of the service */
	uint64		reserved[GG_MAX_DEVICES];
} GgBuildDevices;

/*
 * Find the devices of a build: those of the service that are up, where several are and it has this
 * engine.  Else there is one: GG_DEVICE_IN_USE.
 */
extern void GgFindBuildDevices(const gg_engine *engine, GgBuildDevices *devices);

/*
 * How much of a device's memory a build by this engine may take, which needs `needed` bytes:
 * gpugraph.device_memory, and nine tenths of what is free.  PG_UINT64_MAX: any amount.  A build
 * that needs little does not ask what is free, because that would open the devices.  Devices with
 * less than half as much as another are left out.  What is needed, as far as the build may take it,
 * is reserved: no copy, merge or other build counts on it.  devices NULL: the device in use, and
 * nothing is reserved.
 */
extern uint64 GgBuildBudget(const gg_engine *engine, GgBuildDevices *devices, uint64 needed);

/* Keep so many bytes at most reserved on each of the `first` first devices, none on others. */
extern void GgKeepReserved(GgBuildDevices *devices, int first, uint64 bytes);

/* For tests: is the device in this place, the first of several, to fail? */
extern bool GgBuildFault(const GgBuildDevices *devices, int place);

/* ---- a device builds the graph of a merge (graph_request.c) -------------------- */

/* Memory that a device's worker can map: rows, what is known of them, and then their graph. */
typedef struct GgSharedRows
{
	char	   *rows;
	uint8	   *parts;			/* parts and lists: after GgShareLists(); see gg_merge_input */
	uint32	   *lists;			/* degree of each row */
	uint32		degree;
	int			fd;
	int			number;			/* of the device that works on it; -1: none does */
	uint32		serial;			/* of its job */
	struct GgSharedRows *outer; /* what a device works on for a merge around this one */
	struct GgGraphLayout *layout;
} GgSharedRows;

/*
 * Is a device of the service up?  for_graphs: is one up that this process can ask for a graph,
 * since it does not build for this process already?
 */
extern bool GgServiceIsUp(bool for_graphs);

/*
 * Make memory to share for `most` rows and one more; that of the rows is reserved.  It goes with
 * the current memory context.  NULL: none is to be had (DEBUG1 says why), or no descriptor.
 * GgShareLists() reserves that of parts and lists; false: it cannot be had.
 */
extern GgSharedRows *GgShareRows(uint32 most, Size row_bytes, uint32 degree);
extern bool GgShareLists(GgSharedRows *shared, uint32 nodes);

/*
 * Have a device build the graph of shared->rows, anew or (lists) of what is known of them, in the
 * background of its queries; wait for it.  Where one lacks the memory, the next one is asked.  The
 * graph lies in shared memory, and is nobody's to free.  Asks control->cancelled() all the while,
 * which must not throw; true makes GG_ECANCELED of it.  Any other failure leaves the graph to
 * another engine.  *number: the place of the device that was asked last.
 */
extern gg_status GgBuildOnDevice(GgSharedRows *shared, const gg_dataset *data,
								 const gg_build_params *params, bool lists,
								 const gg_control *control, gg_graph *graph, int *number);

/* ---- CREATE INDEX hands its index over (handover.c) -------------------------- */

/*
 * Bring a new index to a device from the builder's own memory.  GgLoadBegin() picks the device and
 * has memory granted, for which others may be evicted; NULL: *reason says why not.  GgLoadWrite()
 * brings one piece of a part of a list.  GgLoadEnd() has the index made READY, unless the device
 * would not have it (the service logs the cause).  A load whose process or (sub)transaction ends
 * early is forgotten, and so is what was made READY when the transaction is rolled back.  The
 * handle is freed with the transaction.
 */
typedef struct GgLoad GgLoad;

extern GgLoad *GgLoadBegin(Relation index, const GgMetaPageData *meta, GgReason *reason);

/*
 * Bring a merged segment to all devices that have the index, ahead of the flip of its directory.
 * meta is the directory as the flip will make it.  The lists of segments that devices have need not
 * be written, nor the delta, of which they keep what they have.  From GgLoadEnd() on, queries that
 * find the new directory use what was brought, and queries that find the old one use what was there
 * before.  They do so until GgNoteFlip(), or a query, says that the directory was flipped, and for
 * a short while after; at most for GG_AHEAD_MS.
 *
 * GgLoadAhead() returns the loads as one; NULL: there is none.  None goes to a device that is just
 * refreshing the index; wait: there is none at all then, but *busy.  Nor does one go to a device
 * that lacks other segments and has not noted them as missing.  What follows is for all at once.
 * GgLoadOpen() waits until memory is granted, which others may have to make room for, and needs the
 * relation no more.  False: there will be none, and the loads are gone.  A device that fails, or is
 * slow where there are several, is left to the next refresh.  GgLoadEnd() waits until each device
 * has what was brought, or will not have it, and lets go of the loads.
 */
extern GgLoad *GgLoadAhead(Relation index, const GgMetaPageData *meta, bool wait, bool *busy);
extern bool GgLoadOpen(GgLoad *loads);
extern void GgLoadWrite(GgLoad *loads, uint32 list, gg_part part, uint64 offset, const void *data,
						uint64 bytes);
extern void GgLoadEnd(GgLoad *loads);
extern void GgNoteFlip(Relation index, const GgMetaPageData *meta);

#endif							/* GG_SERVICE_H */
