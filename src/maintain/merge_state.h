/*
 * merge_state.h
 *		One merge under way: what the files that do its steps share.
 */
#ifndef GG_MERGE_STATE_H
#define GG_MERGE_STATE_H

#include "maintain/merge.h"
#include "engine/rules/node_table.h"
#include "service/shared/service.h"

/*
 * Nodes below which the service is not asked.  A seal of rows of up to 256 dimensions has more, so
 * devices build its graph.
 */
#define GG_LEAST_DEVICE_NODES	5000

typedef struct GgMerge
{
	MemoryContext context;
	GgMergeTarget *target;
	const GgMetaPageData *meta;
	GgMergePlan *plan;
	bool		pinned;			/* as in GgMergeChoice */
	bool		anew;			/* as in GgMergeChoice */
	GgMergePhase phase;
	double		phases[GG_MERGE_PHASES];	/* seconds of those that are over */
	uint64		phase_began_us;
	double		phase_within_s; /* target->within_s when the phase began */
	int			threads;
	gg_build_params params;
	GgSharedRows *shared;		/* rows lie there; NULL: no device is asked */
	GgEngineCall call;

	GgTidEntry *tids;			/* of all inputs' rows */
	uint64		epoch;			/* the vacuum epoch before the delta's TIDs were read */
	char	   *rows;			/* the data set: nodes of pieces that stay, then new ones */
	char	   *records;		/* codes of all nodes, where the index has codes alone; or NULL */
	GgMergeFiles files;
	GgNodeTable table;
	uint32		kept_nodes;		/* of pieces that stay */
	uint32		nodes;

	gg_codes	codes;			/* that the pieces of the merged segment have */
	const float *mean;			/* that new codes are centred by; or NULL */
	int			nkept;			/* pieces that stay, the largest first */
	uint32		kept[GG_MAX_PIECES];

	/* the merged segment */
	uint32		id;
	uint32		nrows;
	uint32		empty;			/* nodes without rows */
	uint32	   *offsets;		/* nodes + 1 */
	uint32	   *sources;		/* of each row: its place in tids */
	GgTidEntry *merged_tids;
	uint32		dead;			/* of its rows */
	uint32		delta_dead;		/* rows of the delta that are left out */
	int64	   *words;			/* filter words of the merged rows, word by word */
	gg_merge_input graphs;		/* of the inputs; zeros: the graph is built anew */
	gg_graph   *graph;			/* the merged segment's: its arrays are own's, or a device job's */
	gg_graph	own;			/* made by an engine of this process, and freed with the merge */
	char		builder[32];
	uint32		learned;		/* *edges of GgLearnNewGraph() */
	GgPivotEntry *pivots;
	GgNewArray	arrays[7];
	int			narrays;
} GgMerge;

/* The phase is over; another one follows. */
static inline void
GgEndPhase(GgMerge *merge, GgMergePhase next)
{
	const double within = merge->target->within_s - merge->phase_within_s;

	merge->phases[merge->phase] += GgSecondsSince(merge->phase_began_us) - within;
	merge->phase_began_us = GgNowMicros();
	merge->phase_within_s = merge->target->within_s;
	merge->phase = next;
}

static inline void
GgTellPhase(GgMerge *merge, GgMergePhase phase, uint64 rows)
{
	if (phase != merge->phase)
		GgEndPhase(merge, phase);
	if (merge->target->report != NULL && !merge->target->within)
		merge->target->report(phase, rows, 0);
}

static inline bool
GgRowIsAlive(const GgMerge *merge, uint32 row)
{
	return ItemPointerIsValid(&merge->tids[row].tid);
}

/* Does this piece stay? */
static inline bool
GgKeepsPiece(const GgMerge *merge, uint32 piece)
{
	for (int i = 0; i < merge->nkept; i++)
		if (merge->kept[i] == piece)
			return true;
	return false;
}

/* Does every node have one row, its own? */
static inline bool
GgIsPlain(const GgMerge *merge)
{
	return merge->empty == 0 && merge->nrows == merge->nodes;
}

/* ---- nodes.c ----------------------------------------------------------------------------- */

/* Read the TIDs of all inputs. */
extern void GgReadAllTids(GgMerge *merge);

/* Choose the pieces that stay, and number the nodes and the rows of the merged segment. */
extern void GgNumberNodes(GgMerge *merge);

/* ---- builder.c --------------------------------------------------------------------------- */

/* Have a device or an engine of this process make the graph: graph, pivots and builder. */
extern void GgBuildMerged(GgMerge *merge);

/* ---- flip.c ------------------------------------------------------------------------------ */

/* Free what is TAKEN, unless within another merge; take an id for the segment and its new piece. */
extern void GgTakeMergeId(GgMerge *merge);

/* Write all arrays but the TIDs. */
extern void GgWriteMerged(GgMerge *merge);

/* Write TIDs as they are by now, bring the segment to devices, flip.  False: an input is gone. */
extern bool GgFinishMerge(GgMerge *merge);

#endif							/* GG_MERGE_STATE_H */
