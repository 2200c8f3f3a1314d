/*
 * base.h
 *		What every PostgreSQL-facing file needs: options, settings, errors, interrupts.
 */
#ifndef GG_BASE_H
#define GG_BASE_H

#include "postgres.h"

#include <signal.h>

#include "access/amapi.h"
#include "access/genam.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "utils/guc.h"
#include "utils/rel.h"

#include "engine/threads/host.h"
#include "engine/engine.h"
#include "compat.h"

/* ---- options.c: reloptions and settings -------------------------------- */

#define GG_DEFAULT_GRAPH_DEGREE			32
#define GG_MIN_GRAPH_DEGREE				4
#define GG_MAX_GRAPH_DEGREE				256
#define GG_DEFAULT_INTERMEDIATE_DEGREE	64
#define GG_MIN_INTERMEDIATE_DEGREE		4
#define GG_MAX_INTERMEDIATE_DEGREE		512
#define GG_DEFAULT_SEAL_ROWS			(-1)	/* GgDefaultSealRows() */
#define GG_MIN_ALPHA					1.0
#define GG_MIN_RHO						0.01
#define GG_DEFAULT_ITOPK_SIZE			64
#define GG_DEFAULT_MAX_SCAN_TUPLES		20000

/*
 * The option storage without what it says of codes beside vectors.  Unset, rows are stored as the
 * column's type has them.
 */
typedef enum GgStorage
{
	GG_STORAGE_UNSET,
	GG_STORAGE_FLOAT32,
	GG_STORAGE_FLOAT16,
	GG_STORAGE_INT8,			/* codes, and no vectors */
	GG_STORAGE_INT4
} GgStorage;

/* What the option devices may be; a server has GG_MAX_DEVICES at most. */
#define GG_MAX_WISHED_DEVICES	16

/* GgOptions.codes: a build decides (GgBuildCodes()), and merges keep what is there. */
#define GG_CODES_AUTO	(-1)

typedef struct GgOptions
{
	int32		vl_len_;
	int			graph_degree;
	int			intermediate_graph_degree;
	int			seed;
	int			seal_rows;		/* 0: nothing is merged; see GgSealRows() */
	int			segment_rows;	/* 0: as many as there is memory for */
	int			devices;		/* that segments are to be spread over; 0: as many as it takes */
	int			storage;		/* GgStorage */
	int			algorithm;		/* gg_algorithm */
	int			codes;			/* beside vectors (option storage): gg_codes, or GG_CODES_AUTO */
	bool		learn_queries;

	/* parameters of algorithms, as in gg_build_params; 0: the engine's default */
	double		alpha;
	int			lambda0;
	int			initial_neighbors;
	int			pool_capacity;
	int			outer_rounds;
	int			inner_rounds;
	double		rho;
} GgOptions;

typedef enum GgEngineSetting
{
	GG_ENGINE_AUTO,
	GG_ENGINE_CUDA,
	GG_ENGINE_CPU
} GgEngineSetting;

typedef enum GgIterativeScan
{
	GG_ITERATIVE_OFF,
	GG_ITERATIVE_RELAXED,
	GG_ITERATIVE_STRICT
} GgIterativeScan;

extern int	gg_engine_setting;	/* GgEngineSetting */
extern int	gg_itopk_size;
extern double gg_target_recall; /* 0: none; else GG_LEAST_TARGET at least */
extern int	gg_iterative_scan;	/* GgIterativeScan */
extern int	gg_max_scan_tuples;
extern int	gg_disabled;		/* the bits of what is off (GgSwitch) */

#define GG_LEAST_TARGET		0.5

/* What gpugraph.disable has names for: what the server does by itself, and can do without. */
typedef enum GgSwitch
{
	GG_AUTOPREWARM = 1 << 0,
	GG_BITMAP_FILTER = 1 << 1,
	GG_DISTANCE_BOUND = 1 << 2,
	GG_PARTITION_SEARCH = 1 << 3,
	GG_RANGE_SEARCH = 1 << 4,
	GG_RANK_ORDER = 1 << 5,
	GG_READ_AHEAD = 1 << 6,
	GG_SEMI_JOINS = 1 << 7,
	GG_SORT_KEYS = 1 << 8,
	GG_TOLD_SETS = 1 << 9,
	GG_UNREAD_DISTANCE = 1 << 10
} GgSwitch;

static inline bool
GgIsEnabled(GgSwitch which)
{
	return (gg_disabled & which) == 0;
}

/* The parameters of a search as settings have them; k is the caller's. */
extern gg_search_params GgSearchSettings(void);

/* For check hooks: warn of a setting that version 1.3 will not know, where somebody has set it. */
extern void GgWarnOfOldSetting(const char *name, GucSource source, const char *hint);

/* The library is loaded: all settings are defined. */
extern void GgEndSettings(void);

extern void GgInitOptions(void);
extern bytea *ggoptions(Datum reloptions, bool validate);
extern void GgGetOptions(Relation index, GgOptions *options);

/* The option devices of an index. */
extern int	GgWishedDevices(Relation index);

/* How many of an index's rows may be in one segment, as options wish. */
extern uint32 GgMostSegmentRows(const GgOptions *options, double rows);

/* The algorithm's name in the option; NULL: none that is known. */
extern const char *GgAlgorithmName(int algorithm);

/* The codes that are stored instead of vectors. */
static inline gg_codes
GgCodedStorage(const GgOptions *options)
{
	return options->storage == GG_STORAGE_INT8 ? GG_CODES_INT8 :
		options->storage == GG_STORAGE_INT4 ? GG_CODES_INT4 : GG_CODES_NONE;
}

/* The name of codes, "none" among them; NULL: none that is known. */
extern const char *GgCodesName(int codes);

/*
 * The engine that gpugraph.engine asks for and that this host has.  ereport(ERROR) when the
 * setting is "cuda" and there is no device.
 */
extern const gg_engine *GgChooseEngine(void);

/* GgChooseEngine(), but the CPU engine where there is no device, even if the setting is "cuda". */
extern const gg_engine *GgAvailableEngine(void);

/* Whether an open index is of this access method. */
static inline bool
GgIsGpugraph(Relation index)
{
	return index->rd_indam != NULL && index->rd_indam->amoptions == ggoptions;
}

/* Whether a locked index, which need not be open, is of this access method. */
static inline bool
GgIsGpugraphIndex(Oid indexid)
{
	Relation	index = RelationIdGetRelation(indexid);
	bool		ours = RelationIsValid(index) && GgIsGpugraph(index);

	if (RelationIsValid(index))
		RelationClose(index);
	return ours;
}

/* Can only this session read it?  It is temporary, or this transaction created it or its file. */
static inline bool
GgIsLocal(Relation index)
{
	return RelationUsesLocalBuffers(index) || index->rd_createSubid != InvalidSubTransactionId ||
		GgFirstLocatorSubid(index) != InvalidSubTransactionId;
}

/* ---- error.c ----------------------------------------------------------- */

/*
 * ereport(ERROR) with the SQLSTATE and hint of a failed status.  doing completes "while ...".
 * GG_ECALLBACK: a callback has left its error on PostgreSQL's stack, and that is thrown.
 */
pg_noreturn extern void GgReportStatus(const gg_status *status, const char *doing);

static inline void
GgCheckStatus(const gg_status *status, const char *doing)
{
	if (unlikely(status->code != GG_OK))
		GgReportStatus(status, doing);
}

/*
 * Call func in a subtransaction, which gives back locks and pins after an error.  Returns the
 * error, or NULL.  A request to end the statement is thrown on: it is no error of what func does.
 */
extern ErrorData *GgTry(void (*func) (void *arg), void *arg);

/* ereport(ERROR) about a page that is not what the directory says. */
pg_noreturn extern void GgReportCorruption(Relation index, BlockNumber blkno, const char *fmt,...)
			pg_attribute_printf(3, 4);

/* ---- result.c ---------------------------------------------------------- */

/* The row type that an SQL function returns.  ereport(ERROR) where it has more than `columns`. */
extern TupleDesc GgResultRow(FunctionCallInfo fcinfo, int columns);

/* GgResultRow() for a function of several rows, which go to its tuplestore (GgAddRow()). */
extern ReturnSetInfo *GgInitRows(FunctionCallInfo fcinfo, int columns);

/* A row that is put together column by column.  All of it is zero at first. */
#define GG_ROW_COLUMNS	40

typedef struct GgRow
{
	int			count;
	Datum		values[GG_ROW_COLUMNS];
	bool		nulls[GG_ROW_COLUMNS];
} GgRow;

/* The next column: the value, or NULL where it is not known. */
static inline void
GgPut(GgRow *row, bool known, Datum value)
{
	row->nulls[row->count] = !known;
	row->values[row->count++] = value;
}

/* The next column, a text.  No text (NULL) and an empty one both make it NULL. */
extern void GgPutText(GgRow *row, const char *text);

/* Return a row that has all its columns as a function's result, or add it to several rows. */
extern Datum GgRowDatum(TupleDesc desc, GgRow *row, int columns);
extern void GgAddRow(ReturnSetInfo *result, GgRow *row, int columns);

/* ---- interrupts.c ------------------------------------------------------ */

/*
 * For a callback of an engine.  Serves requests that do not end the statement, and never throws.
 * True when the engine has to return.  Its caller then calls GgThrowInterrupts().  *caught is
 * false at first, and true when an error was caught here and lies on PostgreSQL's error stack.
 */
extern bool GgServeInterrupts(bool *caught);

/* GgServeInterrupts() as such a callback, where ctx is `caught`. */
extern bool GgIsInterrupted(void *ctx);
extern void GgThrowInterrupts(bool caught);

/*
 * Around what a callback of an engine does that may throw and takes long.  GgCheckInterrupts()
 * serves requests there, and throws an ERROR where the engine has to return, never FATAL.
 * GgLeaveCallback() takes what GgEnterCallback() returned.  Call it after a caught error, too.
 */
typedef struct GgCallbackState
{
	int			holdoff;
	uint32		holdoff_before;
} GgCallbackState;

extern GgCallbackState GgEnterCallback(void);
extern void GgLeaveCallback(GgCallbackState state);

/* CHECK_FOR_INTERRUPTS() that also ends the process when the postmaster is gone. */
extern void GgCheckInterrupts(void);

/*
 * Block all signals while a driver starts.  The driver's threads inherit the mask.  Without it the
 * kernel could give a signal to one of them, and PostgreSQL's handler would run there.
 */
extern void GgBlockSignals(sigset_t *before);
extern void GgRestoreSignals(const sigset_t *before);

/*
 * Make the context of the device that the engine builds on, under such a mask.  The engine's own
 * calls cannot run under it: they take minutes, and their callback waits for signals.  Where this
 * fails, the next call of the engine says why.
 */
extern void GgOpenDevice(const gg_engine *engine);

/*
 * Name and memory of a device, or of the one that builds (GG_DEVICE_IN_USE), and how much of the
 * memory is free.  Opens the device.
 */
extern gg_status GgLookAtDevice(const gg_engine *engine, int device, gg_device_info *info);

/* ---- memory.c ---------------------------------------------------------- */

/* Have func called when the context is reset or deleted, after an error, too. */
extern void GgAtReset(MemoryContext context, MemoryContextCallbackFunction func, void *arg);

/* Make an array so many bytes long.  NULL: make a new one. */
extern void *GgEnlarge(MemoryContext context, void *array, Size bytes);

/* Have an array of count elements, which has room for `room` of them, take one more. */
#define GgNeedRoom(context, array, count, room) \
	do \
	{ \
		if ((count) == (room)) \
		{ \
			(room) = Max(2 * (room), 64); \
			(array) = GgEnlarge(context, array, (room) * sizeof(*(array))); \
		} \
	} while (0)

/* ---- shared_memory.c --------------------------------------------------- */

/*
 * From _PG_init.  Where gpugraph is preloaded, `request` is called when memory and locks may be
 * asked for, and `start` when the memory is there, under AddinShmemInitLock.  Elsewhere neither is.
 */
extern void GgUseSharedMemory(void (*request) (void), void (*start) (void));

#endif							/* GG_BASE_H */
