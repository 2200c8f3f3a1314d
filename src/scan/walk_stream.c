/*
 * walk_stream.c
 *		A segment's nodes by a walk of its graph on the CPU.
 *
 * gpugraph.search_mode names the procedure of the first list.  A walk is widened, by best-first
 * search, as soon as half of its list was handed out.  It ends where the graph has nothing more to
 * say, or where a longer list would cost more than measuring every row.
 *
 * Where there are several segments, or indexes that are searched together, a walk need not expand
 * its whole list, since others have nearer nodes.  So the largest segment is walked first.  Walks
 * of the others expand a part of their lists (AlwaysExpanded), and beyond it only nodes that are
 * among the nearest of all lists.  A walk that was cut short goes on when half of the nearest were
 * returned.
 *
 * A walk may also go on where another search ended.  Then it hands out only new nodes.
 *
 * Where the segment has codes, the walk measures by those, and its list is in the order of
 * estimates.  The nearest nodes of the list are measured by their rows, some more of them than the
 * scan is expected to take, and these are handed out in the order of their distances.  When a scan
 * takes more, twice as many are measured, and so on.  As in table_order.c measuring ends before
 * that where estimates leave no doubt.
 *
 * Where the scan has a filter, the walk goes through all nodes and hands out those that match.  The
 * filter is evaluated for nodes of its lists alone, since most walks are short.
 */
#include "scan/row_filter.h"

#include <math.h>

#include "engine/keys.h"
#include "engine/request.h"

#include "utils/float.h"

typedef struct WalkStream
{
	gg_walk    *walk;
	uint64		distances;		/* counted in the scan's */

	/* of a walk by codes: nodes of its list that were measured by row */
	uint32		taken;			/* nodes of the list, those that do not match included */
	uint64	   *measured;		/* keys; ascending from next_measured on */
	uint32		nmeasured;
	uint32		next_measured;
	uint32		measured_room;
	float		largest_error;	/* of their estimates */
} WalkStream;

/* ---- the nearest of all lists ----------------------------------------- */

/*
 * So much of a list is expanded whatever the reach is: half of it among the segments of an index.
 * A quarter finds the nearest of many indexes, of which few have any (test/bench/RESULTS.md,
 * Partitions that are searched together).
 */
static uint32
AlwaysExpanded(const GgScanOpaque *so, uint32 itopk)
{
	return Max(so->together ? itopk / 4 : itopk / 2, 1);
}

/*
 * Rows that a LIMIT takes of all streams; 0: not known, or what first lists have in any case.
 * Where a filter drops nodes, the walk finds out how many.
 */
static uint32
LimitedRows(const GgScanOpaque *so)
{
	if (so->mode == GG_ITERATIVE_OFF || so->filter != NULL || so->one_of_many)
		return 0;
	return GgRowsOfLimit(so);
}

/* Where other segments or indexes are searched, the walk's list says how far they need to look. */
static void
AddNearest(GgScanOpaque *so, const gg_walk *walk)
{
	if (so->filter != NULL || (so->nstreams == 1 && !so->together))
		return;
	if (so->nearest == NULL)
		so->nearest = GgMakeNearest(so->context, Max(so->params.itopk_size, (uint32)
													 GG_LIMITED_WALK(LimitedRows(so))));
	GgAddWalk(so->nearest, walk);
}

/* ---- walks are kept between scans -------------------------------------- */

#define MAX_SPARE_WALKS 4

static gg_walk *spare_walks[MAX_SPARE_WALKS];
static int	nspare_walks = 0;

static gg_walk *
GetWalk(void)
{
	gg_walk    *walk;
	gg_status	status;

	if (nspare_walks > 0)
		return spare_walks[--nspare_walks];
	status = gg_walk_create(&walk);
	GgCheckStatus(&status, "starting a search");
	return walk;
}

static void
GiveBackWalk(void *arg)
{
	gg_walk    *walk = ((WalkStream *) arg)->walk;

	if (nspare_walks < MAX_SPARE_WALKS)
		spare_walks[nspare_walks++] = walk;
	else
		gg_walk_free(walk);
}

static void
CountDistances(GgScanOpaque *so, WalkStream *state)
{
	uint64		distances = gg_walk_distances(state->walk);

	so->distances += distances - state->distances;
	state->distances = distances;
}

/* ---- by codes ---------------------------------------------------------- */

/* How many nodes of the list is the scan expected to take? */
static uint32
RowsWanted(const GgScanOpaque *so, const GgStream *stream)
{
	const uint32 half = so->mode == GG_ITERATIVE_OFF ? stream->itopk : (stream->itopk + 1) / 2;

	return (uint32) Min(GgRowsToTake(half, so->limit, stream->handed), stream->itopk);
}

/* How many nodes of the list are measured by row, at most, before the scan takes RowsWanted()? */
static uint32
RerankSize(const GgScanOpaque *so, const GgStream *stream)
{
	gg_search_params params = so->params;

	params.itopk_size = stream->itopk;
	params.k = RowsWanted(so, stream);
	return gg_rerank_size(&params, stream->source.codes, so->meta->dimensions);
}

static int
CompareKeys(const void *a, const void *b)
{
	const uint64 left = *(const uint64 *) a;
	const uint64 right = *(const uint64 *) b;

	return left < right ? -1 : left > right;
}

static void
MeasureTaken(GgScanOpaque *so, GgStream *stream, const gg_candidate *candidates, uint32 count)
{
	WalkStream *state = stream->state;
	uint32		nodes[GG_MAX_DEGREE];
	float		distances[GG_MAX_DEGREE];

	if (state->nmeasured + count > state->measured_room)
	{
		state->measured_room = Max(2 * state->measured_room, state->nmeasured + GG_MAX_DEGREE);
		state->measured = GgEnlarge(so->context, state->measured,
									state->measured_room * sizeof(uint64));
	}
	for (uint32 i = 0; i < count; i++)
		nodes[i] = candidates[i].node;
	GgSourceDistances(&stream->source, nodes, count, distances);
	for (uint32 i = 0; i < count; i++)
	{
		const float error = fabsf(distances[i] - candidates[i].distance);

		state->largest_error = Max(state->largest_error, error);
		state->measured[state->nmeasured++] = key_of(distances[i], nodes[i]);
	}
	so->reranked += count;
}

/* Are the nodes that the scan is expected to take among those that were measured? */
static bool
IsSettled(const GgScanOpaque *so, const GgStream *stream)
{
	const WalkStream *state = stream->state;
	/* among those handed out are nodes that do not match, and were not measured */
	const uint32 last = RowsWanted(so, stream) - (stream->handed - state->next_measured) - 1;
	gg_candidate next;

	return last < state->nmeasured && gg_walk_peek(state->walk, &next) &&
		GgIsTooFar(next.distance, key_distance(state->measured[last]), state->largest_error);
}

/* Take nodes from the list, until so many were taken, and measure the rows of those that match. */
static void
TakeNodes(GgScanOpaque *so, GgStream *stream, uint32 until)
{
	WalkStream *state = stream->state;
	const bool	cut = gg_walk_was_cut(state->walk);
	const uint32 before = state->nmeasured;
	gg_candidate found[GG_MAX_DEGREE];
	uint32		count = 0;

	while (state->taken < until && gg_walk_peek(state->walk, &found[count]) &&
		   !(cut && found[count].distance > GgHandedReach(so)))
	{
		(void) gg_walk_next(state->walk, &found[count]);
		if (GgWasReturned(stream, found[count].node))
			continue;
		state->taken++;
		if (!GgNodeMatches(so, stream, found[count].node))
		{
			stream->handed++;
			continue;
		}
		if (++count < GG_MAX_DEGREE)
			continue;
		MeasureTaken(so, stream, found, count);
		count = 0;
	}
	if (count > 0)
		MeasureTaken(so, stream, found, count);
	if (state->nmeasured > before)
		qsort(state->measured + state->next_measured, state->nmeasured - state->next_measured,
			  sizeof(uint64), CompareKeys);
}

/* Measure what is due before the next node is handed out. */
static void
Rerank(GgScanOpaque *so, GgStream *stream)
{
	WalkStream *state = stream->state;
	const uint32 due = RerankSize(so, stream);
	const bool	all = GgReadsAllDue(so->mode, &so->params);

	while (state->taken < due && (all || !IsSettled(so, stream)))
	{
		const uint32 before = state->taken;

		TakeNodes(so, stream, all ? due :
				  (uint32) GgMeasureUntil(before, RowsWanted(so, stream), due));
		if (state->taken == before)
			break;
	}
}

/* Make the nearest node of those measured the head.  False: the list has no more to hand out. */
static bool
NextMeasured(GgScanOpaque *so, GgStream *stream)
{
	WalkStream *state = stream->state;
	uint64		key;

	if (GgHalfIsHandedOut(so, stream, stream->itopk))
		return false;
	Rerank(so, stream);
	if (state->next_measured == state->nmeasured)
		return false;
	if (stream->heap_blocks > 0 && state->next_measured % GG_AHEAD_ROWS == 0)
		GgLookAhead(so, stream, state->measured + state->next_measured,
					state->nmeasured - state->next_measured, 0);
	key = state->measured[state->next_measured];
	stream->head = (gg_candidate) {.distance = key_distance(key), .node = key_node(key)};
	if (gg_walk_was_cut(state->walk) && stream->head.distance > GgHandedReach(so))
		return false;
	state->next_measured++;
	stream->handed++;
	return true;
}

/* ---- the stream -------------------------------------------------------- */

/* The length of the first list.  Of several streams each has its share, and a quarter to spare. */
static uint32
FirstLength(const GgScanOpaque *so, const GgStream *stream)
{
	const uint32 limit = LimitedRows(so);
	double		nodes = 0;
	double		rows;

	if (limit == 0 || GG_LIMITED_WALK(limit) <= stream->itopk)
		return stream->itopk;
	for (int i = 0; i < so->nstreams; i++)
		nodes += so->streams[i].nodes;
	rows = Min(limit, 1.25 * limit * stream->nodes / nodes);
	return (uint32) GgFirstWalkList(stream->itopk, (uint64) rows, GgLongestList(so, stream));
}

static GgListState
WalkFirstList(GgScanOpaque *so, GgStream *stream)
{
	gg_search_params params = so->params;
	WalkStream *state;
	gg_status	status;

	/* the delta has no graph */
	if (stream->segment == NULL || so->query == NULL)
		return GG_LIST_SEARCHED;
	stream->itopk = FirstLength(so, stream);
	GgEstimateMatching(so, stream, GG_SAMPLE_PLACES);
	stream->itopk = GgFilteredAim(so, stream);
	if (!GgSearchIsWorthwhile(so, stream, stream->itopk))
		GgFindMatching(so, stream);	/* the estimate may be too low */
	if (!GgSearchIsWorthwhile(so, stream, stream->itopk))
		return GG_LIST_SEARCHED;

	GgNeedSource(so, stream);
	GgUseCodes(so, stream);
	if (stream->source.code_query != NULL && !stream->source.coded)
		GgBeginAhead(so, stream);
	state = MemoryContextAllocZero(so->context, sizeof(WalkStream));
	state->walk = GetWalk();
	GgAtReset(so->context, GiveBackWalk, state);
	stream->state = state;

	params.itopk_size = stream->itopk;
	params.k = AlwaysExpanded(so, stream->itopk);
	status = gg_walk_search(state->walk, &stream->source.source, &params, GgReach(so, stream));
	GgCheckStatus(&status, "searching a gpugraph index");
	AddNearest(so, state->walk);
	CountDistances(so, state);
	return GG_LIST_READY;
}

/*
 * The length of the next list; 0: every row is to be measured.  Rows that are nearer than those
 * that were returned are lost under strict order.  So where LIMIT will take more than twice as
 * many as were returned, the list grows in one step.
 */
static uint32
NextLength(GgScanOpaque *so, GgStream *stream)
{
	const uint32 next = GgLongerList(so, stream);
	const double longest = GgLongestList(so, stream);
	const double rows = so->mode == GG_ITERATIVE_OFF ? 0 : GgRowsUntilLimit(so);
	double		list;

	if (next == 0 || rows == 0)
		return next;
	list = GgLimitedList((uint64) Min(rows * stream->handed / so->nrows, PG_INT32_MAX));
	/* a filter's last list may be as long as any */
	if (list > longest && so->filter == NULL)
		return 0;
	return Max(next, (uint32) Min(list, longest));
}

static GgListState
WalkNextList(GgScanOpaque *so, GgStream *stream)
{
	WalkStream *state = stream->state;
	bool		cut = gg_walk_was_cut(state->walk);
	uint32		itopk = cut ? stream->itopk : NextLength(so, stream);
	gg_status	status;

	if (itopk == 0 || gg_walk_exhausted(state->walk))
		return GG_LIST_SEARCHED;
	stream->itopk = itopk;
	status = gg_walk_widen(state->walk, itopk);
	GgCheckStatus(&status, "searching a gpugraph index");
	CountDistances(so, state);
	return GG_LIST_READY;
}

/* The next node of the list that matches. */
static bool
NextListed(GgScanOpaque *so, GgStream *stream)
{
	WalkStream *state = stream->state;

	while (!GgHalfIsHandedOut(so, stream, stream->itopk) &&
		   gg_walk_peek(state->walk, &stream->head))
	{
		if (gg_walk_was_cut(state->walk) && stream->head.distance > GgHandedReach(so))
			return false;
		(void) gg_walk_next(state->walk, &stream->head);
		if (GgWasReturned(stream, stream->head.node))
			continue;
		stream->handed++;
		/* where the scan ends, it does not matter whether a node matches */
		if (stream->head.distance > so->farthest ||
			GgNodeMatches(so, stream, stream->head.node))
			return true;
	}
	return false;
}

static bool
WalkNext(GgScanOpaque *so, GgStream *stream)
{
	/* without vectors table_order.c measures */
	const bool	measured = stream->source.code_query != NULL && !stream->source.coded;

	while (measured ? NextMeasured(so, stream) : NextListed(so, stream))
	{
		/* not marked, so it comes when every row is measured */
		if (GgComesLate(so, stream->head.distance))
		{
			(void) GgKeepLate(so, stream, stream->head.distance, stream->head.node);
			continue;
		}
		GgMarkReturned(so, stream, stream->head.node);
		return true;
	}
	return false;
}

/* Where the walk was cut short, what it did not expand lies beyond the reach. */
static float
WalkLeast(GgScanOpaque *so, GgStream *stream)
{
	const WalkStream *state = stream->state;
	gg_candidate head;

	if (stream->source.code_query != NULL)
	{
		if (stream->source.coded || GgHalfIsHandedOut(so, stream, stream->itopk))
			return -get_float4_infinity();
		Rerank(so, stream);
		if (state->next_measured < state->nmeasured)
			head.distance = key_distance(state->measured[state->next_measured]);
		else if (gg_walk_was_cut(state->walk))
			return GgHandedReach(so);
		else
			return -get_float4_infinity();
	}
	else if (GgHalfIsHandedOut(so, stream, stream->itopk) || !gg_walk_peek(state->walk, &head))
		return -get_float4_infinity();
	return gg_walk_was_cut(state->walk) ? Min(head.distance, GgHandedReach(so)) : head.distance;
}

const GgStreamOps gg_walk_stream = {
	.first_list = WalkFirstList,
	.next_list = WalkNextList,
	.next = WalkNext,
	.least = WalkLeast
};
