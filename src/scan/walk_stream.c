/*
 * walk_stream.c
 *		A segment's nodes by a walk of its graph on the CPU.
 *
 * gpugraph.search_mode names the procedure of the first list.  A walk is widened, by best-first
 * search, as soon as half of its list was handed out.  It ends where the graph has nothing more to
 * say, or where a longer list would cost more than measuring every row.
 *
 * Where there are several segments, a walk need not expand its whole list, since other segments
 * have nearer nodes.  So the largest segment is walked first.  Walks of the others expand half of
 * their lists, and beyond it only nodes that are among the nearest of all lists.  A walk that was
 * cut short goes on when the scan has returned half of the nearest.
 *
 * A walk may also go on where another search ended.  Then it hands out only new nodes.
 *
 * Where the scan has a filter, the walk goes through all nodes and hands out those that match.  The
 * filter is evaluated for nodes of its lists alone, since most walks are short.
 */
#include "scan/row_filter.h"

#include "utils/float.h"
#include "utils/memutils.h"

typedef struct WalkStream
{
	gg_walk    *walk;
	uint64		distances;		/* counted in the scan's */
	MemoryContextCallback callback; /* gives the walk back, after an error too */
} WalkStream;

/* ---- the nearest of all lists ----------------------------------------- */

/* How far a walk is to look: the distance of the last node of one list over all segments. */
static float
Reach(const GgScanOpaque *so, const GgStream *stream)
{
	if (so->nnearest == 0 || so->nnearest < so->most_nearest || stream->handed > 0)
		return get_float4_infinity();
	return so->nearest[so->nnearest - 1];
}

/* The distance up to which a walk that was cut short may hand out nodes. */
static float
HandedReach(const GgScanOpaque *so)
{
	uint32		half = so->mode == GG_ITERATIVE_OFF ? so->nnearest : (so->nnearest + 1) / 2;

	return so->nearest[half - 1];
}

static void
AddNearest(GgScanOpaque *so, const gg_walk *walk)
{
	if (so->filter != NULL || so->nstreams == 1)
		return;
	if (so->nearest == NULL)
	{
		so->most_nearest = gg_itopk_size;
		so->nearest = MemoryContextAlloc(so->context, so->most_nearest * sizeof(float));
	}
	so->nnearest = gg_walk_merge_distances(walk, so->nearest, so->nnearest, so->most_nearest);
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
	if (status.code != GG_OK)
		GgReportStatus(&status, "starting a search");
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

/* ---- the stream -------------------------------------------------------- */

static void
ReportWalk(const gg_status *status)
{
	/* a callback left its error on the stack */
	if (status->code == GG_ECALLBACK)
		PG_RE_THROW();
	GgReportStatus(status, "searching a gpugraph index");
}

static void
CountDistances(GgScanOpaque *so, WalkStream *state)
{
	uint64		distances = gg_walk_distances(state->walk);

	so->distances += distances - state->distances;
	state->distances = distances;
}

static GgListState
WalkFirstList(GgScanOpaque *so, GgStream *stream)
{
	gg_search_params params = {.k = 1, .itopk_size = stream->itopk, .mode = so->search_mode};
	WalkStream *state;
	gg_status	status;

	/* the delta has no graph */
	if (stream->segment == NULL || so->query == NULL)
		return GG_LIST_SEARCHED;
	GgEstimateMatching(so, stream, GG_SAMPLE_PLACES);
	if (!GgSearchIsWorthwhile(so, stream, stream->itopk))
		GgFindMatching(so, stream);	/* the estimate may be too low */
	if (!GgSearchIsWorthwhile(so, stream, stream->itopk))
		return GG_LIST_SEARCHED;

	GgNeedSource(so, stream);
	state = MemoryContextAllocZero(so->context, sizeof(WalkStream));
	state->walk = GetWalk();
	state->callback.func = GiveBackWalk;
	state->callback.arg = state;
	MemoryContextRegisterResetCallback(so->context, &state->callback);
	stream->state = state;

	status = gg_walk_search(state->walk, &stream->source.source, &params, Reach(so, stream));
	if (status.code != GG_OK)
		ReportWalk(&status);
	AddNearest(so, state->walk);
	CountDistances(so, state);
	return GG_LIST_READY;
}

static GgListState
WalkNextList(GgScanOpaque *so, GgStream *stream)
{
	WalkStream *state = stream->state;
	bool		cut = gg_walk_was_cut(state->walk);
	uint32		itopk = cut ? stream->itopk : GgLongerList(so, stream);
	gg_status	status;

	if (itopk == 0 || gg_walk_exhausted(state->walk))
		return GG_LIST_SEARCHED;
	stream->itopk = itopk;
	status = gg_walk_widen(state->walk, itopk);
	if (status.code != GG_OK)
		ReportWalk(&status);
	CountDistances(so, state);
	return GG_LIST_READY;
}

static bool
WalkNext(GgScanOpaque *so, GgStream *stream)
{
	WalkStream *state = stream->state;

	while (!GgHalfIsHandedOut(so, stream, stream->itopk) &&
		   gg_walk_peek(state->walk, &stream->head))
	{
		if (gg_walk_was_cut(state->walk) && stream->head.distance > HandedReach(so))
			return false;
		(void) gg_walk_next(state->walk, &stream->head);
		if (GgWasReturned(stream, stream->head.node))
			continue;
		stream->handed++;
		if (!GgNodeMatches(so, stream, stream->head.node))
			continue;
		/* not marked, so it comes when every row is measured */
		if (GgComesLate(so, stream->head.distance))
			continue;
		GgMarkReturned(so, stream, stream->head.node);
		return true;
	}
	return false;
}

const GgStreamOps gg_walk_stream = {
	.first_list = WalkFirstList,
	.next_list = WalkNextList,
	.next = WalkNext
};
