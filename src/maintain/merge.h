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
	GG_MERGE_DEVICE,			/* the merged segment is brought to a device; then the flip */
	GG_MERGE_SHRINK,			/* no merge: a worker tries to make the file shorter */
	GG_MERGE_CALIBRATE			/* no merge: a worker measures the index's recall */
} GgMergePhase;

/*
 * A merge works in slices.  Where it runs in a background worker, each slice is a transaction with
 * locks of its own, some milliseconds long, and between two of them anybody may have the index.
 * VACUUM and gpugraph_merge() keep their locks and their transaction.
 */
typedef struct GgMergeTarget
{
	bool		sliced;			/* it is a background worker's */
	Oid			heap_oid;
	Oid			index_oid;
	GgRelFileLocator locator;	/* as the first slice found it */
	uint64		instance;		/* of the index; 0 before the first slice */
	Relation	heap;			/* within a slice */
	Relation	index;

	/*
	 * Merges call it with the rows or, writing, the pages that are done so far, and total 0;
	 * GgLearnEdges(), which needs it, with nodes or pages, and their total.  NULL: nobody looks.
	 */
	void		(*report) (GgMergePhase phase, uint64 done, uint64 total);

	/*
	 * Called between slices, and while an engine runs, outside of transactions: a merge may take
	 * long, and the delta grows meanwhile.  NULL: nothing is done.
	 */
	void		(*meanwhile) (struct GgMergeTarget *target);
	const struct GgMergeChoice *outer;	/* the inputs of the merge under way */
	bool		within;			/* another merge is done within the one under way */
	double		within_s;		/* seconds that merges within others took */
} GgMergeTarget;

/*
 * Open the index that a user names, for the SQL function `function`, which changes it.
 * ereport(ERROR) as GgOpenInspected() does, and in recovery.  GgCloseInspected() closes it.
 */
extern void GgOpenMergeTarget(GgMergeTarget *target, const char *function, Oid indexoid,
							  GgInspected *inspected);

/*
 * Begin and end a slice.  ereport(ERROR) with ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE where the
 * index was changed, dropped or is locked, its table stays locked, or a session wants the database.
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
 * Begin and end a call.  A background worker has a transaction in between, which holds no lock and
 * no snapshot, because GgDatabaseIsWanted() needs one.  GgEndCall() throws what ended the call.
 */
extern void GgBeginCall(GgEngineCall *call);
extern void GgEndCall(GgEngineCall *call);

/* For the engine's cancelled(): is the call to end?  A worker seals the delta here, where due. */
extern bool GgCallIsCancelled(GgEngineCall *call);

/* ---- input.c ----------------------------------------------------------------------------- */

/* A segment to be merged, or the delta's pages before end_page. */
typedef struct GgMergeInput
{
	bool		delta;
	GgSegment	segment;		/* unset for the delta */
	GgVectors	vectors;
	GgArray		tids_array;		/* of the delta: its pages */
	GgArray		offsets_array;
	GgArray		filters_array;
	GgArray		adjacency_array;
	uint64		first_page;		/* of the delta, by number */
	uint64		end_page;

	uint32		nodes;			/* of the delta: its slots, as many as rows */
	uint32		rows;
	uint32		first_row;		/* its number among all inputs' rows */
	uint32		dead;			/* rows cleared, as the directory said before TIDs were read */
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

/* Add a segment to the inputs, or the delta's full pages, up to about `most` rows of them. */
extern void GgAddInput(GgMergePlan *plan, const GgMetaPageData *meta, const GgSegment *segment);
extern void GgAddDelta(GgMergePlan *plan, const GgMetaPageData *meta, uint32 most);

/* The first delta page that may take rows, or the end.  VACUUM alone writes the pages before it. */
extern uint64 GgSealableEnd(const GgMetaPageData *meta);

/*
 * Read the TIDs of an input, as they are now, to tids[first_row ...].  Those of delta pages that
 * VACUUM gave back are invalid.
 */
extern void GgReadTids(GgMergeTarget *target, const GgMetaPageData *meta,
					   const GgMergeInput *input, GgTidEntry *tids);

/*
 * Read the filter words of an input: word w of its row r to words[w * stride + first_row + r].
 * Words of delta pages that VACUUM gave back are 0.
 */
extern void GgReadWords(GgMergeTarget *target, const GgMetaPageData *meta,
						const GgMergeInput *input, int64 *words, Size stride);
extern void GgReadOffsets(GgMergeTarget *target, const GgMetaPageData *meta, GgMergeInput *input);

/*
 * Read the vectors of nodes [first, first + count) of an input to out.  Of the delta: of slots,
 * zeros where VACUUM gave back the page.  Where the index has codes alone, the vectors are what its
 * codes stand for.
 */
extern void GgReadVectors(GgMergeTarget *target, const GgMetaPageData *meta,
						  const GgMergeInput *input, uint32 first, uint32 count, char *out);

/* Read the codes of nodes [first, first + count) of a segment to out. */
extern void GgReadCodes(GgMergeTarget *target, const GgMetaPageData *meta,
						const GgMergeInput *input, uint32 first, uint32 count, char *out);

/* Read the lists of nodes [first, first + count) of a segment to out, as they are, with marks. */
extern void GgReadAdjacency(GgMergeTarget *target, const GgMetaPageData *meta,
							const GgMergeInput *input, uint32 first, uint32 count, uint32 *out);

/* The nodes that are pivots of a segment.  Allocates. */
extern uint32 *GgReadPivots(GgMergeTarget *target, const GgMetaPageData *meta,
							const GgMergeInput *input);

/* ---- graphs.c ---------------------------------------------------------------------------- */

/*
 * Read the inputs' graphs as lists of the merged segment's nodes, once targets and places are
 * known: parts and lists are as in gg_merge_input, and take GgInputGraphBytes() for each node.
 */
extern void GgReadGraphs(GgMergeTarget *target, const GgMetaPageData *meta,
						 const GgMergePlan *plan, uint32 nodes, uint8 *parts, uint32 *lists);
extern Size GgInputGraphBytes(const GgMetaPageData *meta);

/* Are the engines faster when they merge the inputs' graphs than when they build anew? */
extern bool GgMergesGraphs(const gg_build_params *params, const GgMergePlan *plan, uint32 nodes);

/* ---- memory.c ---------------------------------------------------------------------------- */

/* Nodes that a merged segment may have by maintenance_work_mem, files and a device's memory. */
extern uint32 GgMostMergedNodes(const GgMetaPageData *meta, const GgOptions *options);

/* Nodes that a merged segment may have without files, where each takes `more` bytes besides. */
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
 * outlive: the file stays when the transaction ends, as the caller has many.
 */
extern char *GgTakeRows(GgMergeFiles *files, const GgMetaPageData *meta,
						const gg_build_params *params, uint32 nodes, bool outlive);

/* Remove the files at the end of a merge without an error. */
extern void GgRemoveFiles(GgMergeFiles *files);

/* ---- policy.c ---------------------------------------------------------------------------- */

/* Why a merge is looked for. */
typedef enum GgMergeUrge
{
	GG_MERGE_DUE,				/* what the thresholds ask for */
	GG_MERGE_IDLE,				/* nobody inserts: also what would be worth it only then */
	GG_MERGE_QUIET,				/* nobody has inserted for a good while: more is worth it */
	GG_MERGE_ALL				/* one segment of all that memory has room for */
} GgMergeUrge;

/* A delta of so many rows is sealed where nobody inserts any more. */
#define GG_IDLE_SEAL_ROWS		1000

/*
 * Rows at which the delta is sealed, by the option seal_rows; 0: nothing is merged.  served: a
 * device answers the index's queries.
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
	bool		anew;			/* the graph comes from neither inputs' graphs nor sample */
	bool		delta;
	uint32		delta_rows;		/* rows of the delta, at most */
	bool		pinned;			/* as in GgMergeLook */
	int			nsegments;
	uint32		segments[GG_MAX_SEGMENTS];	/* ids */
} GgMergeChoice;

/*
 * Set pinned and, if it is true, raise seal_rows.  blocks: how many were given back that snapshots
 * may still need.  seal_by_default: the option seal_rows is not set, else seal_rows stays.
 */
extern void GgNotePinned(GgMergeLook *look, uint64 blocks, bool seal_by_default);

/*
 * Nodes that merges leave out of a segment, about: those that had no row when it was made, and of
 * the others as large a part as of the rows is dead.  Where rows share nodes, nobody knows of which
 * nodes all rows are dead.
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

/* Choose what to merge next.  False: nothing is to be merged. */
extern bool GgChooseMerge(const GgMergeLook *look, GgMergeUrge urge, GgMergeChoice *choice);

/*
 * The same while the segments of outer are being merged: the delta, and other segments with it.
 * by_cpu: the CPU builds, although the delta grows as fast as a device lets it.
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

/* From so many pieces on, merges make them fewer under an old snapshot, too. */
#define GG_MANY_PIECES		72

/*
 * Choose which of n pieces stay, and put those first, the largest one first.  Returns how many.
 * others: pieces of segments that are not merged.  pinned: as in GgMergeLook.
 */
extern int	GgChoosePieces(const GgMetaPageData *meta, bool pinned, GgPieceSize *sizes, int n,
						   int others);

/*
 * Where the directory is crowded, choose the segment, or the delta, that has the most entries.
 * False: it is not crowded, or nothing that can be merged has many.
 */
extern bool GgChooseCrowded(const GgMergeLook *look, GgMergeChoice *choice);

/* Has the directory room for a merge within another?  Without it both would fail. */
extern bool GgHasRoomForInner(const GgMetaPageData *meta);

/* ---- merge.c ----------------------------------------------------------------------------- */

#define GG_MERGE_PHASES		(GG_MERGE_DEVICE + 1)

typedef struct GgMergeResult
{
	uint32		inputs;			/* segments and delta */
	uint32		nodes;
	uint32		rows;
	uint64		bytes;			/* written, in pages */
	double		seconds;		/* in all */
	double		phases[GG_MERGE_PHASES];	/* seconds of each phase, without meanwhile */
	double		meanwhile;		/* seconds of merges within this one */
	char		builder[32];	/* of the graph: "the CPU", "a GPU", "device 0" or "nobody" */
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
 * Build the graphs anew that have learned edges, without the sample.  Returns how many graphs lost
 * their learned edges by that.  The caller holds the merge lock.
 */
extern int	GgRebuildLearned(GgMergeTarget *target);

/* Threads of the CPU engine, one at least: in the background at most half of the processors. */
extern int	GgMergeThreads(const GgMergeTarget *target);

/* GgShrinkStep() with the merge lock; GG_SHRINK_WAITS where another process merges this index. */
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

/* A sample that comes of learn_queries: bytes of its queries, and edges of a node, at most. */
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

/* A graph that is to be written, with its nodes' vectors and rows. */
typedef struct GgNewGraph
{
	gg_dataset	data;
	const uint32 *offsets;		/* as in GgMergeInput */
	gg_graph   *graph;
	uint64		seed;
} GgNewGraph;

/*
 * Learn edges for a graph that a build or merge has made.  engine: of the build, or the CPU's where
 * no device is open.  *edges: places at the end of a list that learned edges may have, 0 where none
 * was learned, as from a sample that is NULL or of other dimensions.  Of control, cancelled() and
 * threads are looked at.
 */
extern gg_status GgLearnNewGraph(const GgLearnSample *sample, const GgNewGraph *graph,
								 const gg_engine *engine, const gg_control *control,
								 uint32 *edges);

/* ---- sample.c ---------------------------------------------------------------------------- */

/*
 * The index's sample, NULL without one.  Allocates.  The caller holds the merge lock, or a snapshot
 * that it took before the call.
 */
extern GgLearnSample *GgReadSample(Relation index);

extern void GgFreeSample(GgLearnSample *sample);

/*
 * Queries that are held out: no edge is learned from them.  They are those of a sample whose hash
 * says so, about a fifth, where these are GG_LEAST_HELD_OUT or more (GgHoldsOut).
 */
#define GG_LEAST_HELD_OUT	500
extern bool GgHoldsOut(const GgLearnSample *sample);
extern bool GgIsHeldOut(const float *query, uint32 dimensions);

/* The sample without the queries that are held out: itself where none is, or a copy. */
extern const GgLearnSample *GgTaughtOf(const GgLearnSample *sample);

/* Is this the index's sample? */
extern bool GgHasSample(Relation index, const GgLearnSample *sample);

/*
 * For a build: the sample that the index had before the command or, where it is new, that of
 * another index of its column and metric.  NULL: there is none, or none can be read.  Allocates.
 */
extern GgLearnSample *GgInheritSample(Relation heap, Relation index);

/* A sample as an array.  Allocates. */
extern void *GgFormSample(const GgLearnSample *sample, uint64 *bytes);

/* Take blocks for an array and write it, in slices. */
extern void GgWriteSlices(GgMergeTarget *target, uint64 instance, GgNewArray *array);

/*
 * GgWriteSample() frees what is TAKEN, and writes a sample beside the one that is there.
 * GgListSample() puts it in that one's place in a copy of the directory; array NULL: it puts none
 * there.  The caller of these two and of all that follow holds the merge lock.
 */
extern void GgWriteSample(GgMergeTarget *target, uint64 instance, const GgLearnSample *sample,
						  GgNewArray *array);
extern void GgListSample(GgMetaPageData *meta, const GgNewArray *array, uint64 parked_xid);

/* Write a sample, and put it in the place of the one that is there. */
extern void GgStoreSample(GgMergeTarget *target, uint64 instance, const GgLearnSample *sample);

/* Take the sample out of the index.  False: there was none. */
extern bool GgRemoveSample(GgMergeTarget *target);

/* Write a calibration of the target's instance, and put it in the place of the one before. */
extern void GgStoreCalibration(GgMergeTarget *target, const GgCalibration *calibration);

/* ---- calibration.c ------------------------------------------------------------------------ */

/*
 * Measures the recall of an index, some queries at a time, until enough() says so.  The target is
 * open, and there is a snapshot.  NULL: there is more to do, and what is done is kept, of a few
 * indexes at a time.  0 queries in the result: the index cannot be measured now.  The result is
 * valid until the next call.
 */
typedef const GgCalibration *(*GgCalibrator) (GgMergeTarget *target, bool (*enough) (void));

/* Set who measures; called from _PG_init. */
extern void GgSetCalibrator(GgCalibrator calibrator);

/* A scan has a target recall, and a measurement is due: have the worker make it. */
extern void GgAskForCalibration(Relation index);

/*
 * For the worker: measure for a moment where a measurement is due.  wanted: a scan has asked.
 * False: there is nothing more to do.  *at_once: the next step need not wait, as nobody searches.
 */
extern bool GgCalibrateStep(GgMergeTarget *target, bool wanted, bool *at_once);

/* Measure the recall to the end, and store it.  Not sliced.  False: another process merges. */
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

/* Have a worker look at the index and, shrink, make its file shorter.  False: none will. */
extern bool GgRequestMerge(Relation index, bool shrink);

/* Have a background worker measure the index's recall, if there is one. */
extern void GgRequestCalibration(Relation index);

/* Note that a search begins; tell when the last one of all sessions did, to some 50 ms. */
extern void GgNoteSearch(void);
extern TimestampTz GgLastSearch(void);

#endif							/* GG_MERGE_H */
