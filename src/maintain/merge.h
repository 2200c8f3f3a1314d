/*
 * merge.h
 *		Sealing, merging and compaction, which keep an index as good as a new one.
 *
 * A merge makes one segment of some segments and, mostly, of the delta's full pages (sealing is the
 * merge of the delta alone, compaction that of one segment with many dead rows).
 */
#ifndef GG_MERGE_H
#define GG_MERGE_H

#include "storage/inspect.h"
#include "storage/array_writer.h"
#include "storage/calibration.h"
#include "base/temp_file.h"

#include "access/xlogdefs.h"

/* ---- the index between slices ------------------------------------------------------------ */

/* What a merge tells while it runs. */
typedef enum GgMergePhase
{
	GG_MERGE_READ,
	GG_MERGE_GRAPH,
	GG_MERGE_LEARN,
	GG_MERGE_WRITE,
	GG_MERGE_DEVICE,			/* the merged segment is brought there, then the flip */
	GG_MERGE_SHRINK,			/* of no merge: a worker tries to make the file shorter */
	GG_MERGE_CALIBRATE			/* likewise: it measures the index's recall */
} GgMergePhase;

/*
 * A merge works in slices.  Where it runs in a background worker, each slice is a transaction with
 * locks of its own, some milliseconds long, and between two of them anybody may have the index.
 * VACUUM and gpugraph_merge() keep their locks and their transaction.
 */
typedef struct GgMergeTarget
{
	bool		sliced;			/* the worker's */
	Oid			heap_oid;
	Oid			index_oid;
	GgRelFileLocator locator;	/* of the first slice */
	uint64		instance;		/* likewise; 0 before */
	Relation	heap;			/* within a slice */
	Relation	index;

	/*
	 * Called with the rows that are done so far, total 0; of GgLearnEdges() with nodes or pages,
	 * and with how many there are.  NULL: nobody looks, and edges are not learned.
	 */
	void		(*report) (GgMergePhase phase, uint64 done, uint64 total);

	/*
	 * Called between slices, and while an engine runs, outside of transactions: a merge may take
	 * long, and the delta grows meanwhile.  NULL: nothing is done.  outer: the inputs of the merge
	 * under way.  within: another merge is done within it.  within_s: seconds that these took.
	 */
	void		(*meanwhile) (struct GgMergeTarget *target);
	const struct GgMergeChoice *outer;
	bool		within;
	double		within_s;
} GgMergeTarget;

/*
 * Open the index that a user names for a function of that name, which changes it.  ereport(ERROR)
 * as GgOpenInspected() does, and during recovery.  To be closed by GgCloseInspected().
 */
extern void GgOpenMergeTarget(GgMergeTarget *target, const char *function, Oid indexoid,
							  GgInspected *inspected);

/*
 * Begin and end a slice.  ereport(ERROR) with ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE where the
 * index is another one by now, or a session wants the database for itself.
 */
extern void GgBeginSlice(GgMergeTarget *target);
extern void GgEndSlice(GgMergeTarget *target);
pg_noreturn extern void GgGiveWay(void);

/* ---- engine_call.c ----------------------------------------------------------------------- */

/* Calls of an engine, or of a device of the service, for one merge or for learning. */
typedef struct GgEngineCall
{
	MemoryContext context;
	GgMergeTarget *target;
	bool		caught;			/* an error beneath the engine, not thrown yet */
	bool		wanted;			/* somebody wants the database for themselves */
} GgEngineCall;

/*
 * Before and after a call.  A background worker has a transaction meanwhile, because
 * GgDatabaseIsWanted() needs one.  It holds no lock and no snapshot.
 */
extern void GgBeginCall(GgEngineCall *call);
extern void GgEndCall(GgEngineCall *call);

/* For the engine's cancelled(). */
extern bool GgCallIsCancelled(GgEngineCall *call);

/* ---- input.c ----------------------------------------------------------------------------- */

/* A segment to be merged, or the delta's pages before end_page. */
typedef struct GgMergeInput
{
	bool		delta;
	GgSegment	segment;		/* not of the delta */
	GgVectors	vectors;
	GgArray		tids_array;		/* of the delta: its pages */
	GgArray		offsets_array;
	GgArray		filters_array;
	GgArray		adjacency_array;
	uint64		first_page;		/* of the delta, by number */
	uint64		end_page;

	uint32		nodes;			/* of the delta: slots, as many as rows */
	uint32		rows;
	uint32		first_row;		/* of all inputs' rows */
	uint32		dead;			/* of the directory before the TIDs were read: rows cleared */
	uint32	   *offsets;		/* first row of each node, and rows at the end; NULL: node = row */
	uint32	   *targets;		/* of each node: its node in the merged segment, or GG_NO_NODE */
	uint32	   *places;			/* of each node: its own row of the data set; GG_NO_NODE: none */
} GgMergeInput;

/* What a merge is to do. */
typedef struct GgMergePlan
{
	int			ninputs;
	GgMergeInput inputs[GG_MAX_SEGMENTS + 1];
	uint32		rows;			/* of all inputs */
} GgMergePlan;

/* Add a segment, or the delta's full pages, about most rows of them, to the inputs. */
extern void GgAddInput(GgMergePlan *plan, const GgMetaPageData *meta, const GgSegment *segment);
extern void GgAddDelta(GgMergePlan *plan, const GgMetaPageData *meta, uint32 most);

/* The first delta page that is not full: those before it are written by VACUUM alone. */
extern uint64 GgSealableEnd(const GgMetaPageData *meta);

/*
 * Read the TIDs of an input, as they are now, to tids[first_row ...].  Those of pages that VACUUM
 * gave back are invalid.
 */
extern void GgReadTids(GgMergeTarget *target, const GgMetaPageData *meta,
					   const GgMergeInput *input, GgTidEntry *tids);

/*
 * Read the filter words of an input: word w of its row r to words[w * stride + first_row + r].
 * Those of pages that VACUUM gave back are 0.
 */
extern void GgReadWords(GgMergeTarget *target, const GgMetaPageData *meta,
						const GgMergeInput *input, int64 *words, Size stride);
extern void GgReadOffsets(GgMergeTarget *target, const GgMetaPageData *meta, GgMergeInput *input);

/*
 * Read the vectors of nodes [first, first + count) of an input to out.  Of the delta: of slots;
 * those whose TID is invalid are left as they are.  Where the index has codes alone: what those
 * stand for.
 */
extern void GgReadVectors(GgMergeTarget *target, const GgMetaPageData *meta,
						  const GgMergeInput *input, uint32 first, uint32 count, char *out);

/* Read the codes of nodes [first, first + count) of a segment to out. */
extern void GgReadCodes(GgMergeTarget *target, const GgMetaPageData *meta,
						const GgMergeInput *input, uint32 first, uint32 count, char *out);

/* Read the lists of nodes [first, first + count) of a segment to out: its nodes, with marks. */
extern void GgReadAdjacency(GgMergeTarget *target, const GgMetaPageData *meta,
							const GgMergeInput *input, uint32 first, uint32 count, uint32 *out);

/* The nodes that are pivots of a segment.  Allocates. */
extern uint32 *GgReadPivots(GgMergeTarget *target, const GgMetaPageData *meta,
							const GgMergeInput *input);

/* ---- graphs.c ---------------------------------------------------------------------------- */

/*
 * Read the inputs' graphs as lists of the merged segment's nodes, once targets and places are
 * known: parts and lists as in gg_merge_input, of GgInputGraphBytes() for each node.
 */
extern void GgReadGraphs(GgMergeTarget *target, const GgMetaPageData *meta,
						 const GgMergePlan *plan, uint32 nodes, uint8 *parts, uint32 *lists);
extern Size GgInputGraphBytes(const GgMetaPageData *meta);

/* Are the engines faster when they merge the inputs' graphs than when they build anew? */
extern bool GgMergesGraphs(const gg_build_params *params, const GgMergePlan *plan, uint32 nodes);

/* ---- memory.c ---------------------------------------------------------------------------- */

/* Nodes that a merged segment may have for maintenance_work_mem, files and a device to hold it. */
extern uint32 GgMostMergedNodes(const GgMetaPageData *meta, const GgOptions *options);

/* Nodes that it may have without files, where each takes `more` bytes beside. */
extern uint32 GgNodesInMemory(const GgMetaPageData *meta, const gg_build_params *params,
							  Size more);

/* What of a merge lies in temporary files. */
typedef struct GgMergeFiles
{
	GgTempFile	rows;			/* start NULL: the merge is done in memory */
	GgScratch	scratch;		/* the engine's */
	uint64		memory;			/* for the engine, as in gg_control */
} GgMergeFiles;

/*
 * Room for the rows of `nodes` nodes, in the current memory context or in a file that goes with it.
 * outlive: the caller has many transactions.
 */
extern char *GgTakeRows(GgMergeFiles *files, const GgMetaPageData *meta,
						const gg_build_params *params, uint32 nodes, bool outlive);

/* At the end of a merge without an error. */
extern void GgRemoveFiles(GgMergeFiles *files);

/* ---- policy.c ---------------------------------------------------------------------------- */

/* Why a merge is looked for. */
typedef enum GgMergeUrge
{
	GG_MERGE_DUE,				/* what the thresholds ask for */
	GG_MERGE_IDLE,				/* nobody inserts: also what would be worth it only then */
	GG_MERGE_QUIET,				/* likewise, and nobody has for a good while */
	GG_MERGE_ALL				/* one segment of all that memory has room for */
} GgMergeUrge;

/* Delta rows that are sealed where nobody inserts any more. */
#define GG_IDLE_SEAL_ROWS		1000

/*
 * Delta rows that are sealed, by the option seal_rows; 0: nothing is merged.  served: a device
 * answers the index's queries.
 */
extern uint32 GgSealRows(const GgOptions *options, const GgMetaPageData *meta, bool served);
/* The same where the option is not set. */
extern uint32 GgDefaultSealRows(const GgMetaPageData *meta, bool served);

/* What is read of an index to choose its next merge. */
typedef struct GgMergeLook
{
	GgMetaPageData *meta;
	uint64		delta_rows;
	bool		served;			/* a device answers the index's queries */
	uint32		seal_rows;
	uint32		most;			/* nodes that a segment may have */
	bool		pinned;			/* an old snapshot keeps what merges give back: do few */
	char		name[NAMEDATALEN];
} GgMergeLook;

typedef struct GgMergeChoice
{
	bool		anew;			/* without a look at the inputs' graphs, and at the sample */
	bool		delta;
	uint32		delta_rows;		/* rows of the delta, at most */
	bool		pinned;			/* as in GgMergeLook */
	int			nsegments;
	uint32		segments[GG_MAX_SEGMENTS];	/* ids */
} GgMergeChoice;

/*
 * Set pinned, and change seal_rows accordingly.  blocks: that were given back and that snapshots
 * may still need.  seal_by_default: the option seal_rows is not set.
 */
extern void GgNotePinned(GgMergeLook *look, uint64 blocks, bool seal_by_default);

/*
 * Nodes that merges leave out of a segment, about: those that had no row when it was made, and of
 * the others as large a part as of the rows.  Where rows share nodes, it is not known whose all
 * rows are dead.
 */
static inline uint32
GgGoneNodes(const GgSegment *segment)
{
	uint32		empty = Min(segment->empty, segment->nodes);
	uint64		dead = Min(segment->dead, segment->rows);

	if (segment->rows == 0)
		return segment->nodes;
	return empty + (uint32) ((segment->nodes - empty) * dead / segment->rows);
}

/* Choose what to merge next.  False: nothing. */
extern bool GgChooseMerge(const GgMergeLook *look, GgMergeUrge urge, GgMergeChoice *choice);

/*
 * The same while the segments of outer are being merged: the delta, and others with it.  by_cpu:
 * the CPU builds, although the delta grows as fast as a device lets it.
 */
extern bool GgChooseMeanwhile(const GgMergeLook *look, bool by_cpu, const GgMergeChoice *outer,
							  GgMergeChoice *choice);

/* ---- crowded.c --------------------------------------------------------------------------- */

typedef struct GgPieceSize
{
	uint32		id;
	uint32		nodes;
	int			extents;
} GgPieceSize;

/* From so many pieces on, merges make them fewer in any case. */
#define GG_MANY_PIECES		72

/*
 * Choose which of n pieces stay, and put those first, the largest one first.  Returns how many.
 * others: pieces of segments that are not merged.  pinned: as in GgMergeLook.
 */
extern int	GgChoosePieces(const GgMetaPageData *meta, bool pinned, GgPieceSize *sizes, int n,
						   int others);

/*
 * Where the directory is crowded: the segment, or the delta, that has the most entries.  False:
 * none has many.
 */
extern bool GgChooseCrowded(const GgMergeLook *look, GgMergeChoice *choice);

/* Has the directory room for a merge within another one, which would fail with it? */
extern bool GgHasRoomForInner(const GgMetaPageData *meta);

/* ---- merge.c ----------------------------------------------------------------------------- */

#define GG_MERGE_PHASES		(GG_MERGE_DEVICE + 1)

typedef struct GgMergeResult
{
	uint32		inputs;			/* segments and delta */
	uint32		nodes;
	uint32		rows;
	uint64		bytes;			/* written, in pages */
	double		seconds;
	double		phases[GG_MERGE_PHASES];	/* of these, without meanwhile */
	double		meanwhile;		/* and of merges within this one */
	char		builder[32];	/* who built the graph: "the CPU" */
} GgMergeResult;

/*
 * Merge what was chosen from meta.  The caller holds the merge lock.  threads: of the CPU engine.
 * ereport(ERROR) leaves the index as it was, but for TAKEN extents.  So does false: VACUUM has
 * given back one of the segments meanwhile.
 */
extern bool GgMergeSegments(GgMergeTarget *target, const GgMetaPageData *meta,
							const GgMergeChoice *choice, int threads, GgMergeResult *result);

/* ---- shrink.c ---------------------------------------------------------------------------- */

/* Would the file become shorter, once every snapshot has passed what is parked? */
extern bool GgShrinkIsDue(Relation index);

typedef enum GgShrinkResult
{
	GG_SHRINK_DONE,				/* nothing is left to do */
	GG_SHRINK_WAITS,			/* for snapshots, or for others who use the index */
	GG_SHRINK_GOES_ON			/* something was moved */
} GgShrinkResult;

/*
 * Make a step towards a shorter file: move what lies near its end, or give its end back.  The
 * target is as for GgMaintain(), and the caller holds the merge lock.
 */
extern GgShrinkResult GgShrinkStep(GgMergeTarget *target);

/* ---- maintain.c -------------------------------------------------------------------------- */

/*
 * Merge until nothing is left to do.  False: another process merges this index just now.  The
 * target has heap_oid and index_oid and, unless it is sliced, both open.
 */
extern bool GgMaintain(GgMergeTarget *target, GgMergeUrge urge);

/*
 * Build the graphs anew that have learned edges, without the sample; under inner product they learn
 * from rows.  Returns how many have none then.  The caller holds the merge lock.
 */
extern int	GgRebuildLearned(GgMergeTarget *target);

/* Threads of the CPU engine: in the background, never all processors. */
extern int	GgMergeThreads(const GgMergeTarget *target);

/* A step towards a shorter file, unless another process merges this index. */
extern GgShrinkResult GgShrink(GgMergeTarget *target);

/* For VACUUM: have the worker merge and shrink the index or, where there is none, do so here. */
extern void GgMaintainAfterVacuum(Relation index);

/*
 * Take the merge lock of an index, until GgUnlockMerges() or, unless the target is sliced, the end
 * of the transaction.  Without wait it returns false where another process has it.
 */
extern bool GgLockMerges(const GgMergeTarget *target, bool wait);
extern void GgUnlockMerges(const GgMergeTarget *target);

/* ---- learn.c ----------------------------------------------------------------------------- */

/* Queries of a sample that nobody has given, at most, and edges of a node that it makes. */
#define GG_SAMPLE_BYTES		((Size) 32 * 1024 * 1024)
#define GG_LEARNED_EDGES	8

typedef struct GgLearnSample
{
	const float *queries;		/* count x dimensions, prepared */
	uint32		dimensions;
	uint32		count;
	uint32		edges;			/* of a node, at most */
} GgLearnSample;

/*
 * Learn edges from sample queries (engine/rules/learn.h), in each segment of meta.  store: they
 * become the index's sample, too.  The caller holds the merge lock.  Returns how many edges are
 * new; where none is, no graph is written.  ereport(ERROR) leaves the index as it was, but for
 * TAKEN extents.
 */
extern uint64 GgLearnEdges(GgMergeTarget *target, const GgMetaPageData *meta,
						   const GgLearnSample *sample, bool store, int threads);

/* A graph that is to be written, and whose nodes have rows. */
typedef struct GgNewGraph
{
	gg_dataset	data;
	const uint32 *offsets;		/* as in GgMergeInput */
	gg_graph   *graph;
	uint64		seed;
} GgNewGraph;

/*
 * Learn edges for a graph that a build or merge has made.  engine: of the build, or the CPU's where
 * no device is open.  *edges: places at the end of a list that learned edges may have, 0 where the
 * sample is NULL or of other dimensions.  Of control, cancelled() and threads are looked at.
 */
extern gg_status GgLearnNewGraph(const GgLearnSample *sample, const GgNewGraph *graph,
								 const gg_engine *engine, const gg_control *control,
								 uint32 *edges);

/* ---- sample.c ---------------------------------------------------------------------------- */

/*
 * The index's sample, NULL without one.  Allocates.  The caller holds the merge lock, or a snapshot
 * from before.
 */
extern GgLearnSample *GgReadSample(Relation index);

extern void GgFreeSample(GgLearnSample *sample);

/*
 * Queries of a sample that no edge is learned from: those whose hash says so, a fifth, where these
 * are GG_LEAST_HELD_OUT or more.
 */
#define GG_LEAST_HELD_OUT	500
extern bool GgHoldsOut(const GgLearnSample *sample);
extern bool GgIsHeldOut(const float *query, uint32 dimensions);

/* The sample without them: itself, or a copy. */
extern const GgLearnSample *GgTaughtOf(const GgLearnSample *sample);

/* Is it this one? */
extern bool GgHasSample(Relation index, const GgLearnSample *sample);

/*
 * For a build: the sample that the index had before the command or, where it is new, that of
 * another index of its column and metric.  NULL: there is none.  Allocates.
 */
extern GgLearnSample *GgInheritSample(Relation heap, Relation index);

/* A sample as an array.  Allocates. */
extern void *GgFormSample(const GgLearnSample *sample, uint64 *bytes);

/* Take blocks for an array and write it, in slices. */
extern void GgWriteSlices(GgMergeTarget *target, uint64 instance, GgNewArray *array);

/*
 * Write a sample beside the one that is there, and free what is TAKEN before.  Then put it in its
 * place in a copy of the directory; array NULL: none.  The caller of all that follow holds the
 * merge lock.
 */
extern void GgWriteSample(GgMergeTarget *target, uint64 instance, const GgLearnSample *sample,
						  GgNewArray *array);
extern void GgListSample(GgMetaPageData *meta, const GgNewArray *array, uint64 parked_xid);

/* Both of these. */
extern void GgStoreSample(GgMergeTarget *target, uint64 instance, const GgLearnSample *sample);

/* False: there was none. */
extern bool GgRemoveSample(GgMergeTarget *target);

/* Likewise put a calibration, of the instance that the target has, in place of the one before. */
extern void GgStoreCalibration(GgMergeTarget *target, const GgCalibration *calibration);

/* ---- calibration.c ------------------------------------------------------------------------ */

/*
 * Measures the recall of an index, some queries at a time, until enough() says so.  The target is
 * open, and there is a snapshot.  NULL: there is more to do.  What it has done is kept until it is
 * called for another index, or the measurement ends.  The result is valid until the next call.
 */
typedef const GgCalibration *(*GgCalibrator) (GgMergeTarget *target, bool (*enough) (void));

/* From _PG_init, by who can. */
extern void GgSetCalibrator(GgCalibrator calibrator);

/* A scan has a target, and another measurement is due: have the worker make it. */
extern void GgAskForCalibration(Relation index);

/*
 * For the worker: measure for a moment where a measurement is due.  wanted: a scan has asked.
 * False: there is nothing to do.  *at_once: nothing speaks against going on.
 */
extern bool GgCalibrateStep(GgMergeTarget *target, bool wanted, bool *at_once);

/* Measure all, and store it.  The target is not sliced.  False: another process merges. */
extern bool GgCalibrate(GgMergeTarget *target);

/* ---- queries.c --------------------------------------------------------------------------- */

/* From _PG_init. */
extern void GgInitQueries(void);

/*
 * The index is asked so many queries.  With the option learn_queries some of them may be kept:
 * read() gives number 0 .. count - 1, prepared.
 */
typedef const float *(*GgReadQuery) (void *arg, int number);

extern void GgNoteQueries(Relation index, uint32 dimensions, int count, GgReadQuery read,
						  void *arg);

/* Forget the queries that are kept in shared memory. */
extern void GgDropQueries(Oid index);

/* For the worker: are there enough new queries?  Add them to the sample, and learn from it. */
extern bool GgQueriesAreDue(Oid index);
extern void GgLearnQueries(GgMergeTarget *target);

/* ---- jobs.c ------------------------------------------------------------------------------ */

/* From _PG_init: settings and, when preloaded, shared memory. */
extern void GgInitMerges(void);

/* Have a background worker look at the index, and shrink it.  False: there is none to ask. */
extern bool GgRequestMerge(Relation index, bool shrink);

/* The same for its recall to be measured. */
extern void GgRequestCalibration(Relation index);

/* A search begins; when the last one of all sessions did, to about a tenth of a second. */
extern void GgNoteSearch(void);
extern TimestampTz GgLastSearch(void);

#endif							/* GG_MERGE_H */
