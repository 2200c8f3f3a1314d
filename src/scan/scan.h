/*
 * scan.h
 *		A scan, its streams, and the interface that brings their nodes.
 *
 * index_scan.c owns the access method's callbacks and merges the streams.  device_stream.c,
 * walk_stream.c and exact_stream.c each implement GgStreamOps.  They do not know each other, and
 * call nothing of index_scan.c.  last_scan.c keeps notes of what scans did.
 */
#ifndef GG_SCAN_H
#define GG_SCAN_H

#include "scan/monotone.h"
#include "scan/bound.h"
#include "engine/rules/search_plan.h"
#include "storage/calibration.h"
#include "storage/source.h"

#include <math.h>

#include "utils/memutils.h"
#include "utils/snapshot.h"

#include "engine/request.h"
#include "service/shared/service.h"

typedef struct GgScanOpaque GgScanOpaque;
typedef struct GgStream GgStream;
typedef struct GgFilterRows GgFilterRows;
typedef struct GgNearest GgNearest;
typedef struct GgQueries GgQueries;

/* The state of a stream's list.  With all but the first the implementation ends. */
typedef enum GgListState
{
	GG_LIST_READY,				/* there are nodes to take */
	GG_LIST_TOO_SHORT,			/* a longer list may have more, but not from here */
	GG_LIST_SEARCHED,			/* what is left is found only by measuring every row */
	GG_LIST_COMPLETE			/* every row of the stream was handed out */
} GgListState;

/*
 * One way to bring a stream's nodes, nearest first.  Nodes come in lists, and a later list goes on
 * where the one before it ended.  When an implementation ends, index_scan.c opens the one that its
 * state asks for.  Nodes that left the stream before are marked by then (GgWasReturned), and are
 * not handed out again.
 */
typedef struct GgStreamOps
{
	/*
	 * Open: allocate stream->state in so->context and make the first list.  Any state but
	 * GG_LIST_READY: this implementation has no node to hand out.
	 */
	GgListState (*first_list) (GgScanOpaque *so, GgStream *stream);

	/*
	 * Make the next list, after next() returned false.  An implementation that ends here has
	 * marked all nodes that it handed out, unless the stream is complete.
	 */
	GgListState (*next_list) (GgScanOpaque *so, GgStream *stream);

	/*
	 * Set stream->head to the list's next node.  False when the list is used up.  Rows that come
	 * too late for strict order are left out, or come last, with stream->late set.
	 */
	bool		(*next) (GgScanOpaque *so, GgStream *stream);

	/*
	 * A distance that no row of the stream is below, as far as the list knows, without searching
	 * further; minus infinity where nothing is known.
	 */
	float		(*least) (GgScanOpaque *so, GgStream *stream);

	/*
	 * Optional.  Release what lives longer than so->context.  Called when another implementation
	 * takes over, and when the scan starts anew or ends.  Not called after an error.
	 */
	void		(*done) (GgStream *stream);
} GgStreamOps;

extern const GgStreamOps gg_device_stream;
extern const GgStreamOps gg_walk_stream;
extern const GgStreamOps gg_exact_stream;

/* The nodes of one segment, or of some pages of the delta. */
struct GgStream
{
	const GgStreamOps *ops;		/* the implementation that was opened last; NULL: none yet */
	void	   *state;			/* known to ops alone */
	GgListState list;
	bool		has_head;
	bool		late;			/* the head is a row that strict order kept back */
	gg_candidate head;

	uint32		nodes;			/* of the delta: slots before end_page */
	uint32		itopk;
	uint64		handed;			/* nodes taken from lists of walks and devices */
	uint8	   *returned;		/* bitmap of nodes that left this stream; NULL before the first */

	const GgSegment *segment;	/* NULL for the delta */
	uint64		matches;		/* rows that match the filter; 0 before they are known */

	/* segments only */
	BlockNumber heap_blocks;	/* of the table, where GgLookAhead() and GgPinRow() serve; or 0 */
	GgPageSource source;		/* index NULL: not needed so far */
	GgArray		tids;
	GgArray		offsets;		/* no extents when every node has one row */
	GgArray		filters;		/* no extents without filter columns */
	uint64	   *matching;		/* bitmap of nodes that match; NULL before GgFindMatching() */
	uint32		nmatching;
	uint64	   *matching_rows;	/* bitmap of rows that match, where nodes may have several */

	/* delta only: its pages [first_page, end_page) */
	uint32		first_page;
	uint32		end_page;
};

/* Part of a scan: what a device answered its first request with. */
typedef struct GgDeviceAnswer
{
	GgResidentRef ref;			/* the resident that was asked */
	uint32		lists;			/* bitmap of the segments that it answered for */
	uint32		exact;			/* of these, the segments too small for a walk, which it measured */
	uint32		walked;			/* under a filter, the segments that it walked */
	uint32		walk_length;	/* under a filter, the length of these walks' lists */
	bool		uncertain;		/* the first lists are of walks that may be for nothing */
	uint32		missing;		/* bitmap of segments that the CPU walks for want of memory there */
	uint32		delta_pages;	/* how many, from the delta's start, it answered for */

	bool		answered;		/* the first lists are there, before the scan asks for them */
	bool		deep;			/* the first lists are deep, and later ones go on behind them */
	struct FirstLists *first;	/* the first lists; known to device_ask.c alone */
} GgDeviceAnswer;

/* The procedure that searches a graph for the first list. */
typedef enum GgProcedure
{
	GG_BEST_FIRST = 1,			/* CAGRA's */
	GG_TSDG_SMALL = 2,
	GG_TSDG_LARGE = 4
} GgProcedure;

/* What a scan did, or the sum of what several did. */
typedef struct GgScanNote
{
	Oid			index;			/* invalid: there was no scan */
	uint64		queries;
	uint64		by_device;		/* of these */
	uint64		by_both;		/* of these: some segments by a device, some by the CPU */
	GgReason	reason;			/* why the CPU answered the last query that it had a part in */
	uint64		lists;
	uint64		exact_lists;	/* lists for which every row that matches was measured */
	uint32		procedures;		/* GgProcedures of the lists that are not exact */
	uint64		widenings;
	bool		filtered;
	uint64		matches;		/* rows */
	uint64		rows;			/* returned */
	uint64		distances;		/* measured by this process */
	uint64		reranked;		/* measured by row after walks by codes */
	uint32		list;			/* length of the last query's first candidate list */
	float		recall;			/* expected of that list; 0: not known */
} GgScanNote;

struct GgScanOpaque
{
	Relation	index;
	Relation	heap;
	BlockNumber heap_length;	/* blocks of the table, at least; 0: not known yet */
	MemoryContext context;		/* everything of one rescan */
	bool		prepared;		/* the directory was read */
	bool		started;		/* streams were opened */
	GgIterativeScan mode;
	gg_search_params params;	/* of the settings when it began, itopk_size as of GgTakeForm() */
	uint64		max_scan_tuples;	/* the setting when the scan began; 0 for a range */
	Snapshot	snapshot;
	GgMetaPageData *meta;
	float	   *query;			/* prepared; NULL for a NULL query */
	bool		by_table;		/* rows come in the order of the table's values */
	bool		strict_table;	/* by_table in strict order, late rows last; mode is relaxed then */
	bool		keeps_back;		/* streams hand out late rows after all others */
	struct GgTableOrder *table_order;	/* known to table_order.c alone; NULL: not in use */
	GgCodeQuery *code_queries[GG_CODES_INT4 + 1];	/* by kind of codes; NULL before use */
	GgArray		delta;
	gg_filter  *filter;			/* NULL: every row matches */
	GgFilterRows *filter_rows;	/* known to row_filter.c alone */
	uint32		marks;			/* of the order, see scan/sort_key.h */
	struct GgLeftOut *left_out; /* known to left_out.c alone; NULL: there are none */
	bool		all_exact;		/* measure every row; set by who opens the scan, or by range */
	bool		range;			/* all rows within a distance, in no order */
	bool		look;			/* it is the planner's (look.c); set by who opens the scan */
	struct GgListsAhead *ahead; /* its next queries, where exec/ knows them; or NULL */
	bool		by_function;	/* a function of ours asks, no statement; set by who opens it */
	bool		quiet;			/* not counted: a look, or to measure recall; set by who opens it */
	GgNode		left_out_node;	/* not returned, nor walked by the CPU; set by who opens the scan */
	bool		exact;			/* all_exact, or gpugraph.target_recall is 1 */
	GgCalibration *calibration; /* the index's, where gpugraph.target_recall counts; or NULL */
	double		target;			/* gpugraph.target_recall, where calibration is not NULL */
	GgForm		form;			/* the form whose list was taken from calibration */
	GgQueries  *queries;		/* its query and others, or NULL; set by who opens the scan */
	bool		impossible;		/* no row fulfils the keys of the scan */
	bool		recheck;		/* rows that match the filter need not fulfil the keys */
	GgReason	reason;			/* which engine answers, and why */
	GgDeviceAnswer device;
	uint32		expected;		/* rows to hand out, where the executor filters; 0: not known */
	uint32		limit;			/* rows of LIMIT, where the executor drops none; 0: not known */
	bool		one_of_many;	/* other scans have rows for the same LIMIT */
	const struct LimitState *above; /* the LIMIT that counts the rows which come to it; or NULL */
	int64		passed_before;	/* rows that had come to that LIMIT before the scan began */
	uint64		nrows;			/* returned */
	int			nstreams;
	GgStream   *streams;
	GgNearest  *nearest;		/* distances of the nearest of all lists; NULL: none so far */
	bool		together;		/* nearest is that of several indexes, with a scan each */
	GgStream	tail;			/* the delta's last rows, until the device has answered */
	float		last_distance;	/* of the last node that was not late */
	bool		late;			/* the rows that come now are those that strict order kept back */
	GgBound		bound;

	/* conditions on the distance, see within.c; infinity: none ends the scan */
	float		farthest;		/* no node beyond this distance is taken */
	float		farthest_row;	/* in the table's order: no row beyond this distance is returned */
	bool		checks;			/* the executor checks moved conditions where the scan says so */
	double		sure_within;	/* rows nearer than this need no such check */
	bool		beyond;			/* no stream has a head within: the nodes of kept_back come */
	struct GgLateNode *kept_back;
	uint32		nkept,
				kept_room;

	/* for notes */
	uint32		widenings;		/* lists that were followed by another one */
	uint64		distances;		/* measured by this process */
	uint64		reranked;		/* measured by row after walks by codes */
	GgScanNote	ended;			/* the scans before this one, from ggbeginscan() on */

	/* the node whose rows are being returned */
	GgStream   *current;
	float		distance;
	uint64		entered;		/* nodes whose rows were looked at; counts the current one */
	uint32		row_next,
				row_end;

	/* iterative_scan = off */
	uint32		allowed;		/* rows that may be returned, the nreturned among them */
	uint32		nreturned;
	ItemPointerData *returned;
	uint32		returned_cap;
};

/*
 * Ask the device that holds the index for all first lists with one query.  While it has the query,
 * open_meanwhile is called, once or several times, where there is something that the device is not
 * asked for: the segments in so->device.missing, and the delta's pages from so->device.delta_pages
 * on.  False when the CPU has to answer, for the reason in so->reason.
 */
extern bool GgAskDevice(GgScanOpaque *so, void (*open_meanwhile) (void *so));

/*
 * The answer's k keys of a list, GG_NO_KEY at the end, which are the caller's to change; NULL where
 * that list was not asked for.  matches: with a filter, rows of it that match.
 */
extern uint64 *GgFirstList(const GgScanOpaque *so, uint32 list, uint32 *k, uint64 *matches);

/*
 * Make the request that GgAskDevice() would make.  True: it may be asked together with those of
 * other scans, and GgTakeFirst() hands the answer over before GgAskDevice() is called.  False:
 * GgAskDevice() is to ask.  deep: all rows of the lists are measured.
 */
extern bool GgPlanFirst(GgScanOpaque *so, GgAsk *ask, bool *deep);
extern void GgTakeFirst(GgScanOpaque *so, const GgAsk *ask, bool deep, const uint64 *keys);

/* ---- lists_ahead.c ------------------------------------------------------ */

typedef struct GgListsAhead GgListsAhead;

/* Make an empty one, for so->ahead of a scan whose next queries will be known. */
extern GgListsAhead *GgNewListsAhead(void);

/* The scan's keys for an outer row. */
typedef struct GgKeysAhead
{
	const ScanKeyData *keys;
	int			nkeys;
	bool		change;			/* other outer rows may have other keys */
} GgKeysAhead;

/*
 * How many of the scan's next queries may be answered together, where there is memory for them.  0:
 * each is to ask for itself.  knows_keys: queries will come with their keys.
 */
extern uint32 GgRoomAhead(const GgScanOpaque *so, bool knows_keys);

/*
 * Drop all queries; add one of the scan of this index, and return how many bytes it takes, with its
 * lists (0: it is left to the scan); ask a device for the lists of all, and return for how many it
 * answered, or how many a pass is to measure for.
 */
extern void GgForgetAhead(GgListsAhead *ahead);
extern Size GgAddAhead(GgListsAhead *ahead, Relation index, Datum value, const GgKeysAhead *keys);
extern uint32 GgAskAhead(GgListsAhead *ahead);

/* Find the answer to a scan's request.  False: it is to ask, and the request may be noted here. */
extern bool GgTakeAhead(GgScanOpaque *so, const GgAsk *ask, uint64 *keys, uint64 *matches);

/*
 * For a scan for all rows within a distance: the keys of all nodes of a segment that may be within,
 * in no order.  False: the scan is to measure by itself.
 */
extern bool GgFindWithin(GgScanOpaque *so, GgStream *stream, const uint64 **keys, uint32 *count);

/* Which engine answers, and why, for the counters. */
static inline GgReason
GgAnsweredBy(const GgScanOpaque *so)
{
	return so->reason == GG_REASON_NONE && so->device.missing != 0 ? GG_REASON_PARTIAL :
		so->reason;
}

/* ---- recall_target.c ---------------------------------------------------- */

/* Take the list that gpugraph.target_recall needs, once LIMIT is known.  Sets so->exact, too. */
extern void GgAimAtRecall(GgScanOpaque *so);

/*
 * Take the list of this form, where gpugraph.target_recall counts.  at_least: unless the list that
 * was taken before is as long.
 */
extern void GgTakeForm(GgScanOpaque *so, GgForm form, bool at_least);

/* The list of a stream under a filter, once it is known how many nodes match. */
extern uint32 GgFilteredAim(const GgScanOpaque *so, const GgStream *stream);

/* A bound of the recall of the rows that LIMIT takes; 0: not known. */
extern double GgExpectedRecall(const GgScanOpaque *so);

/* ---- nearest.c ---------------------------------------------------------- */

/*
 * The nearest of several lists: of the segments of one index, or of indexes that are searched
 * together.  There is room for `room` distances.  GgAimNearest() says how many of them are kept.
 */
extern GgNearest *GgMakeNearest(MemoryContext context, uint32 room);
extern void GgAimNearest(GgNearest *nearest, uint32 most);
extern void GgForgetNearest(GgNearest *nearest);

/* Merge in the list of a walk, or ascending ranks, which are keys shifted right by a bit. */
extern void GgAddWalk(GgNearest *nearest, const gg_walk *walk);
extern void GgAddRanks(GgNearest *nearest, const uint64 *ranks, uint32 count);

/* How far a stream is to look: the last distance of so->nearest; infinity: there is no such end. */
extern float GgReach(const GgScanOpaque *so, const GgStream *stream);

/*
 * The distance up to which a walk that was cut short may hand out nodes, before it goes on.
 * Infinity: the scan ends before that distance, so the walk need not go on.
 */
extern float GgHandedReach(const GgScanOpaque *so);

/* ---- look_ahead.c ------------------------------------------------------- */

/* For so many rows at once, at most, GgLookAhead() fetches what they need. */
#define GG_AHEAD_ROWS		32

/* Look ahead from here on, where that can be done. */
extern void GgBeginAhead(GgScanOpaque *so, GgStream *stream);

/*
 * Look ahead to the next nodes of the stream: those of the first GG_AHEAD_ROWS of these keys, or
 * fewer.  The keys were shifted right by so many bits.
 */
extern void GgLookAhead(GgScanOpaque *so, const GgStream *stream, const uint64 *keys,
						uint32 count, int shift);

/* The same for GG_AHEAD_ROWS rows or fewer of a heap table of so many blocks.  TIDs may be NULL. */
extern void GgLookAtRows(Relation heap, BlockNumber heap_blocks,
						 const ItemPointerData *const *tids, uint32 count);

/* Pin the page of the row that is fetched from a heap table next. */
extern void GgPinRow(Relation heap, IndexFetchTableData *fetch, const ItemPointerData *tid);

/* ---- exact_stream.c ----------------------------------------------------- */

/*
 * Queries that are searched for one after the other, by one scan and under one snapshot.  The first
 * search that has to measure the whole delta does so for all of them.  Made in the current context.
 */
extern GgQueries *GgMakeQueries(void);
extern void GgFreeQueries(GgQueries *queries);

/*
 * Name the queries that are searched for next.  Of the delta `most` rows at most are kept for each.
 * The values are detoasted, and stay the caller's.
 */
extern void GgNameQueries(GgQueries *queries, const Datum *values, uint32 count, uint32 most);

/* The query of this number, which is searched for next. */
extern Datum GgTakeQuery(GgQueries *queries, uint32 number);

/* ---- table_order.c ------------------------------------------------------ */

/*
 * The next row of a scan whose index has codes and no vectors, in the order of the table's values.
 * next: the next row in the order of estimates; false at the end.
 */
extern bool GgNextInTableOrder(IndexScanDesc scan,
							   bool (*next) (GgScanOpaque *so, IndexScanDesc scan,
											 ItemPointer tid),
							   ItemPointer tid);

/* End such a scan's reading of the table, before so->context is reset or deleted. */
extern void GgEndTableOrder(GgScanOpaque *so);

/* ---- left_out.c --------------------------------------------------------- */

/* Find the rows that are not in the index and come before those that are. */
extern void GgFindLeftOut(IndexScanDesc scan);

/* The next row that the index has left out; false: there is none. */
extern bool GgNextLeftOut(GgScanOpaque *so, ItemPointer tid);

/* ---- last_scan.c -------------------------------------------------------- */

/* A scan ends: it is the last one for gpugraph_last_scan(), and is added to so->ended. */
extern void GgNoteScan(GgScanOpaque *so);

/* The sum of all scans since ggbeginscan(), the one under way included. */
extern void GgNoteOf(const GgScanOpaque *so, GgScanNote *sum);

extern void GgAddNote(GgScanNote *sum, const GgScanNote *note);

/*
 * The procedure by which a device, or this process, searches under a setting of
 * gpugraph.search_mode.
 */
extern GgProcedure GgProcedureOf(gg_search_mode mode);

/* A call has ended that searched for many queries: gpugraph_last_scan() is to tell the sum. */
extern void GgNoteCall(const GgScanNote *note);

/*
 * What a note says of the engine, of the procedure (NULL: all lists were measured), and of how a
 * filter was applied (NULL: there was none).
 */
extern const char *GgNoteEngine(const GgScanNote *note);
extern const char *GgNoteProcedure(const GgScanNote *note);
extern const char *GgNoteFilter(const GgScanNote *note);

/* ---- explain.c ---------------------------------------------------------- */

/* Have EXPLAIN ANALYZE tell what scans did, where modules can print fields of a plan's nodes. */
extern void GgInitExplain(void);

/* ---- expected_rows.c ---------------------------------------------------- */

/*
 * Where sk_flags of a scan's order has how many rows it is expected to hand out, GG_MOST_EXPECTED
 * at the most; 0: not known.  With GG_EXPECTED_LIMIT the executor drops none of them.
 */
#define GG_EXPECTED_SHIFT	16
#define GG_EXPECTED_LIMIT	(GG_MOST_EXPECTED + 1)

/* With GG_EXPECTED_LIMIT: other scans have rows for the same LIMIT. */
#define GG_EXPECTED_MORE	(2 * GG_EXPECTED_LIMIT)

extern void GgInitExpectedRows(void);

/* Tell a scan that so many rows will be asked for, and none of them dropped. */
extern void GgTellLimit(ScanKey key, uint64 limit);

/* What is known of who takes a node's rows. */
typedef struct GgAsked
{
	uint32		rows;			/* so many are taken; 0: not known */
	bool		of_many;		/* they are of this node and of others together */
	const struct LimitState *limit; /* gets every row that no node between drops, as soon as it is
									 * returned and in order; or NULL */
} GgAsked;

/* Tell a plan's scan what is asked of it, and what its filter says of the end and of sets. */
extern void GgTellScan(struct IndexScanState *scan, const GgAsked *asked);

/* How many rows will the scan have returned when LIMIT has what it wants?  0: not known. */
extern double GgRowsUntilLimit(const GgScanOpaque *so);

/* Read from the key of the order what a scan is told. */
extern void GgReadExpected(GgScanOpaque *so, ScanKey key);

/* ---- wrong_order.c ------------------------------------------------------ */

extern void GgInitWrongOrder(void);

/* To be called when a scan returns a row with a bound (bound.c), and when it ends. */
extern void GgNoteBound(const GgScanOpaque *so);
extern void GgForgetBound(const GgScanOpaque *so);

/* ---- within.c ------------------------------------------------------------ */

/* Conditions that end a scan. */
typedef struct GgWithin GgWithin;

/* What fn_extra of an order's key points to, in the memory of the query. */
typedef struct GgTold
{
	const struct LimitState *limit; /* see GgAsked; or NULL */
	GgWithin   *within;			/* or NULL */
	List	   *sets;			/* see told_sets.c */
} GgTold;

/*
 * Is the clause, of a filter of a plan's index scan in that order, true up to some distance and not
 * beyond it?  0 in the direction says that this hangs on the sign of a parameter.
 */
extern bool GgEndsScan(Node *clause, const OpExpr *order, GgMonotone *monotone);

/* Find what ends a scan in its filter; NULL: nothing does.  *all: every condition of it does. */
extern GgWithin *GgMakeWithin(struct IndexScanState *scan, bool *all);

/*
 * The distance of the engine's beyond which no row fulfils the conditions of the key, after
 * GgBoundInit().  Infinity: that is not known.  Minus infinity: no row does.  Sets so->checks and
 * so->sure_within, too.
 */
extern float GgFarthest(GgScanOpaque *so, const ScanKeyData *key);

/* May conditions of the key hold where the distance is NaN, as that of a zero vector is? */
extern bool GgMayHoldAtNaN(const GgScanOpaque *so, const ScanKeyData *key);

/*
 * Find what ends a scan in that order among clauses of the planner's, where all operands and the
 * query are constants.  NULL: some are no constants, or nothing ends the scan.
 */
extern GgWithin *GgMakePlannedWithin(List *clauses, const OpExpr *order, struct EState *estate);

/* ---- look.c --------------------------------------------------------------- */

/* Length of the lists of a device's walks in a look. */
#define GG_LOOK_LIST		512

/*
 * What share of an index's rows is within the distance that clauses of the planner's say, by the
 * first list of a walk and by a sample of rows?  Below 0: nothing is known.  Nobody counts it as a
 * scan.  An active snapshot is needed.
 */
extern double GgLookWithin(Relation heap, Relation index, const OpExpr *order, List *clauses);

/* ---- told_sets.c --------------------------------------------------------- */

/* Find sets of values of filter columns in the filter of a scan, each a subplan. */
extern List *GgFindSets(struct IndexScanState *scan);

/* Make a filter of the scan's keys and of these sets, before it reads anything. */
extern void GgTakeSets(IndexScanDesc scan, const List *sets);

/* ---- what implementations have in common ------------------------------- */

/*
 * Nodes of a stream that can be handed out, at most; after GgFindMatching(), or an estimate after
 * GgEstimateMatching().
 */
static inline uint32
GgNodesToHandOut(const GgScanOpaque *so, const GgStream *stream)
{
	return so->filter == NULL ? stream->nodes : stream->nmatching;
}

static inline bool
GgWasReturned(const GgStream *stream, uint32 node)
{
	return stream->returned != NULL && (stream->returned[node / 8] >> (node % 8) & 1) != 0;
}

static inline void
GgMarkReturned(GgScanOpaque *so, GgStream *stream, uint32 node)
{
	if (stream->returned == NULL)
		stream->returned = MemoryContextAllocExtended(so->context, stream->nodes / 8 + 1,
													  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	stream->returned[node / 8] |= 1 << (node % 8);
}

/* A row that is found after a farther one was returned is kept back, except in relaxed order. */
static inline bool
GgComesLate(const GgScanOpaque *so, float distance)
{
	return so->keeps_back && distance < so->last_distance;
}

typedef struct GgLateNode
{
	float		distance;
	uint32		node;
	GgStream   *stream;
} GgLateNode;

/*
 * Remember a node that a walk or a device keeps back.  A scan that ends at a distance does not come
 * to where they would hand the node out, and returns it at that end.  False: it has no such end.
 */
static inline bool
GgKeepLate(GgScanOpaque *so, GgStream *stream, float distance, uint32 node)
{
	if (isinf(so->farthest))
		return false;
	GgNeedRoom(so->context, so->kept_back, so->nkept, so->kept_room);
	so->kept_back[so->nkept++] = (GgLateNode) {
		.distance = distance, .node = node, .stream = stream
	};
	return true;
}

/*
 * Is a list of this length used up already?  In the iterative modes it is once half of it was
 * handed out, since its tail is less certain than its head.  With iterative_scan off a scan goes
 * on only to replace rows that turned out dead, and takes the whole list before.
 */
static inline bool
GgHalfIsHandedOut(const GgScanOpaque *so, const GgStream *stream, uint32 length)
{
	return so->mode != GG_ITERATIVE_OFF && stream->handed * 2 > length;
}

/* Rows that LIMIT takes of all streams, more where the table is read for them; 0: not known. */
static inline uint32
GgRowsOfLimit(const GgScanOpaque *so)
{
	return so->by_table && so->limit > 0 ? GgRowsToRead(so->meta, &so->params, so->limit) :
		so->limit;
}

/* The longest list that a walk of a segment is worth, under a filter by nmatching; 0: none is. */
extern double GgLongestList(const GgScanOpaque *so, const GgStream *stream);

/* Is a walk with a list of this length better than measuring every row that matches? */
static inline bool
GgSearchIsWorthwhile(const GgScanOpaque *so, const GgStream *stream, uint32 itopk)
{
	return itopk <= GgLongestList(so, stream);
}

/* The length of the list after this one; 0 where no longer one is worthwhile. */
static inline uint32
GgLongerList(const GgScanOpaque *so, const GgStream *stream)
{
	uint64		itopk = GgNextList(stream->itopk);

	if (stream->handed >= so->max_scan_tuples || itopk > PG_INT32_MAX)
		return 0;
	if (stream->segment == NULL)
		return (uint32) itopk;
	if (so->filter != NULL)
		return GgLongerFilteredList(stream->itopk, GgLongestList(so, stream));
	return GgSearchIsWorthwhile(so, stream, (uint32) itopk) ? (uint32) itopk : 0;
}

/* Have walks of the segment measure by its codes, if it has any. */
static inline void
GgUseCodes(GgScanOpaque *so, GgStream *stream)
{
	const gg_codes codes = stream->source.codes;

	if (codes == GG_CODES_NONE || stream->source.code_query != NULL || so->query == NULL)
		return;
	if (so->code_queries[codes] == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(so->context);

		so->code_queries[codes] = GgMakeCodeQuery(so->meta, codes,
												  GgReadMean(so->index, so->meta), so->query);
		MemoryContextSwitchTo(old);
	}
	GgSourceUseCodes(&stream->source, so->code_queries[codes]);
}

/* Make stream->source ready to read the segment. */
static inline void
GgNeedSource(GgScanOpaque *so, GgStream *stream)
{
	if (stream->source.index != NULL)
		return;
	GgSourceInit(&stream->source, so->index, so->meta, stream->segment, so->query);
	if (stream->segment->id == so->left_out_node.segment)
		stream->source.left_out = so->left_out_node.node;
	if (stream->source.coded)
		GgUseCodes(so, stream);
}

/* ---- access method callbacks ------------------------------------------- */

extern IndexScanDesc ggbeginscan(Relation index, int nkeys, int norderbys);
extern void ggrescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys, int norderbys);
extern bool gggettuple(IndexScanDesc scan, ScanDirection dir);
extern void ggendscan(IndexScanDesc scan);

/* ---- indexes that are searched together (exec/together.h) ----------------- */

/*
 * Begin a scan that has its keys, as far as it needs no device.  nearest: that of all scans that
 * are searched together, with the same query and metric; NULL: this one is searched by itself.
 */
extern void GgPrepareSearch(IndexScanDesc scan, GgNearest *nearest);

/* Open a scan that was prepared, up to the first list of each stream. */
extern void GgOpenSearch(IndexScanDesc scan);

/*
 * The least value that the operator can have for any row that such a scan has still to return, as
 * far as its lists know.  Infinity where there is none, minus infinity where nothing is known.
 */
extern double GgLeastDistance(IndexScanDesc scan);

#endif							/* GG_SCAN_H */
