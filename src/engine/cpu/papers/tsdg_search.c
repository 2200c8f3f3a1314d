/*
 * tsdg_search.c
 *		The two searches of TSDG, over a gg_source.
 *
 * Wang, Wang, Zhao: "Graph-based Approximate NN Search: A Revisit", 2022, section 4.  Both fill a
 * walk (walk.h) with what they measure, so their answer is the nearest of all that, and widening
 * goes on from there by best-first search.
 *
 * Small batches.  t0 greedy walks, none of which knows of another.  Each has a list R of the 32
 * nearest nodes that it measured, and begins with the nearest of its seeds: the pivots are shared
 * out among the walks.  A step measures all neighbours of the present node; those that enter R are
 * its newcomers, and the nearest of them is the next node.  After a step without newcomers a walk
 * goes on once, from the nearest node of R whose neighbours it has not measured.  It ends with the
 * second such step, with nowhere to go on from, or after 64 steps.
 *
 * Large batches.  One walk.  R has the itopk_size nearest nodes that were measured.  C, the queue
 * of those to expand, has segments of 32: a node lies in segment node % segments, and where that
 * is full the farthest node of it is dropped.  A step takes the nearest node from C, and measures
 * those of its neighbours that are new, but not along marked edges (GG_EDGE_MARK).  What enters R
 * enters C, too.  The walk ends when C is empty, or its nearest node is farther than the last of a
 * full R, by more than delta times the distance between the first and the last of R.
 *
 * Departures from the paper
 *	1. Seeds are pivots, not 32 random nodes a walk.  In small batches every pivot is a seed of one
 *	   walk: one begins at the nearest of all, and the others near it, for the order is random.
 *	   With 32 pivots a walk, 40,000 x 128 in 400 clusters, t0 of 5, recall@10 is 0.9708 instead of
 *	   0.9962, for 1,583 distances instead of 2,372.  A large-batch walk enters as every walk does
 *	   (walk.c).
 *	2. R and C have no node twice.  The paper's next node is the nearest neighbour, newcomer or not,
 *	   which leads back and forth between two nodes.
 *	3. A walk remembers every node that it measured, in place of the paper's segmented table of
 *	   nodes that were expanded.  Answers are the same: a node that comes again is either in R, or
 *	   too far.
 *	4. t0 is half of itopk_size unless the caller says otherwise, and delta 0: R's length does
 *	   what delta does, with fewer distances.  100,000 x 128 of intrinsic dimension 14, recall@10:
 *	   itopk_size 16 / 24 and delta 0 0.9669 / 0.9879 with 533 / 660 distances; itopk_size 10 and
 *	   delta 0.5 / 1 0.9613 / 0.9722 with 537 / 610.
 *	5. A greedy walk goes on once, where the paper's ends.  300,000 x 128 in 200 clusters, t0 of 5
 *	   and 8, recall@10 0.9861 / 0.9924 with 5,488 / 6,838 distances instead of 0.9786 / 0.9876 with
 *	   5,059 / 6,143, and 14 steps a walk instead of 11; RESULTS.md has more rows.  Going on twice
 *	   finds as much with as many distances, in 16 steps: 0.9898 with 5,800 at t0 of 5.  Walks whose
 *	   every step takes the nearest node of R, newcomer or not, find less: 0.9677 with 5,460.
 */
#include "engine/rules/algorithms.h"
#include "engine/cpu/search/walk.h"

/* Large batches: C has room for twice as many nodes as R. */
#define SEGMENT_SIZE	32u
#define MIN_SEGMENTS	4u
#define MAX_SEGMENTS	(2 * GG_MAX_ITOPK / SEGMENT_SIZE)

/* ---- small batches -------------------------------------------------------- */

typedef struct greedy
{
	uint64_t	list[GG_GREEDY_LIST];	/* R, ascending; flag: KEY_EXPANDED */
	uint32_t	count;
	uint64_t	next;			/* the nearest newcomer of the last step; GG_NO_KEY: none */
} greedy;

/* Put a node that was measured into R, unless it is there, or too far. */
static void
greedy_keep(greedy *on, uint64_t key)
{
	uint32_t	at = on->count;

	while (at > 0 && (on->list[at - 1] & ~KEY_EXPANDED) > key)
		at--;
	if (at == GG_GREEDY_LIST || (at > 0 && (on->list[at - 1] & ~KEY_EXPANDED) == key))
		return;
	if (on->count < GG_GREEDY_LIST)
		on->count++;
	memmove(on->list + at + 1, on->list + at, (on->count - 1 - at) * sizeof(uint64_t));
	on->list[at] = key;
	if (key < on->next)
		on->next = key;
}

/*
 * Measure nodes for one greedy walk.  Those that another one has measured are measured again: the
 * walks are independent.
 */
static gg_code
greedy_measure(gg_walk *walk, const uint32_t *nodes, uint32_t count, greedy *on)
{
	uint32_t	known[GG_MAX_DEGREE];
	uint32_t	nknown = 0;
	uint32_t	nnew = 0;
	gg_code		code;

	if (!gg_walk_reserve(walk, count))
		return GG_ENOMEM;
	for (uint32_t i = 0; i < count; i++)
	{
		if (id_set_add(&walk->seen, nodes[i]))
			walk->batch[nnew++] = nodes[i];
		else
			known[nknown++] = nodes[i];
	}
	code = gg_walk_measure(walk, nnew);
	if (code != GG_OK)
		return code;
	for (uint32_t i = 0; i < nnew; i++)
		greedy_keep(on, key_of(walk->measured[i], walk->batch[i]));

	if (nknown == 0)
		return GG_OK;
	if (!walk->source.distances(walk->source.ctx, known, nknown, walk->measured))
		return GG_ECALLBACK;
	walk->distances += nknown;
	for (uint32_t i = 0; i < nknown; i++)
		greedy_keep(on, key_of(walk->measured[i], known[i]));
	return GG_OK;
}

/* Take the node to expand: the nearest newcomer, or with go_on R's nearest one not yet expanded. */
static uint64_t
greedy_take(greedy *on, bool go_on)
{
	uint64_t	next = on->next;

	for (uint32_t i = 0; i < on->count; i++)
	{
		if (next == GG_NO_KEY && go_on && (on->list[i] & KEY_EXPANDED) == 0)
			next = on->list[i];
		if (on->list[i] == next)
			on->list[i] |= KEY_EXPANDED;
	}
	on->next = GG_NO_KEY;
	return next;
}

/* One greedy walk from pivots [first, first + nseeds). */
static gg_code
greedy_walk(gg_walk *walk, uint32_t first, uint32_t nseeds)
{
	const gg_source *source = &walk->source;
	greedy		on = {.count = 0,.next = GG_NO_KEY};
	uint32_t	nodes[GG_MAX_DEGREE];
	uint32_t	count = 0;
	bool		went_on = false;
	gg_code		code = GG_OK;

	for (uint32_t i = 0; i < nseeds && code == GG_OK; i++)
	{
		const uint32_t pivot = first + i;
		uint32_t	unwanted[GG_PIVOT_DEGREE];

		if (!source->pivots(source->ctx, &pivot, 1, &nodes[count], unwanted))
			return GG_ECALLBACK;
		count += nodes[count] < source->n;
		if (count == GG_MAX_DEGREE || i + 1 == nseeds)
		{
			code = greedy_measure(walk, nodes, count, &on);
			count = 0;
		}
	}
	for (uint32_t i = 0; i < GG_GREEDY_STEPS && code == GG_OK; i++)
	{
		bool		local_minimum = on.next == GG_NO_KEY;
		uint64_t	next = greedy_take(&on, !went_on);
		uint32_t	parent = key_node(next);

		went_on |= local_minimum;
		if (next == GG_NO_KEY)
			break;
		if (!source->neighbors(source->ctx, &parent, 1, walk->neighbors))
			return GG_ECALLBACK;
		count = 0;
		for (uint32_t j = 0; j < source->degree; j++)
			count += gg_walk_follows(walk, walk->neighbors[j], parent, &nodes[count]);
		code = greedy_measure(walk, nodes, count, &on);
	}
	return code;
}

static gg_code
small_batch(gg_walk *walk, const gg_search_params *params)
{
	uint32_t	npivots = walk->source.npivots;
	uint32_t	walks,
				nseeds;
	gg_code		code = GG_OK;

	if (npivots == 0)
		return GG_OK;
	gg_greedy_plan(params, npivots, &walks, &nseeds);
	for (uint32_t i = 0; i < walks && code == GG_OK; i++)
	{
		uint32_t	first = i * nseeds;

		code = greedy_walk(walk, first, npivots - first < nseeds ? npivots - first : nseeds);
	}
	return code;
}

/* ---- large batches ---------------------------------------------------------- */

/* C */
typedef struct segmented_queue
{
	uint32_t	nsegments;
	uint32_t	counts[MAX_SEGMENTS];
	uint64_t	keys[MAX_SEGMENTS][SEGMENT_SIZE];	/* descending: the nearest is the last */
} segmented_queue;

static void
queue_init(segmented_queue *queue, uint32_t itopk_size)
{
	queue->nsegments = (2 * itopk_size + SEGMENT_SIZE - 1) / SEGMENT_SIZE;
	if (queue->nsegments < MIN_SEGMENTS)
		queue->nsegments = MIN_SEGMENTS;
	memset(queue->counts, 0, queue->nsegments * sizeof(uint32_t));
}

static void
queue_push(segmented_queue *queue, uint64_t key)
{
	uint32_t	segment = key_node(key) % queue->nsegments;
	uint64_t   *keys = queue->keys[segment];
	uint32_t	at;

	if (queue->counts[segment] == SEGMENT_SIZE)
	{
		if (key > keys[0])
			return;
		memmove(keys, keys + 1, (SEGMENT_SIZE - 1) * sizeof(uint64_t));
		queue->counts[segment]--;
	}
	for (at = queue->counts[segment]++; at > 0 && keys[at - 1] < key; at--)
		keys[at] = keys[at - 1];
	keys[at] = key;
}

/* Take the nearest node; GG_NO_KEY when there is none. */
static uint64_t
queue_pop(segmented_queue *queue)
{
	uint64_t	nearest = GG_NO_KEY;
	uint32_t	segment = 0;

	for (uint32_t i = 0; i < queue->nsegments; i++)
	{
		uint32_t	count = queue->counts[i];

		if (count > 0 && queue->keys[i][count - 1] < nearest)
		{
			nearest = queue->keys[i][count - 1];
			segment = i;
		}
	}
	if (nearest != GG_NO_KEY)
		queue->counts[segment]--;
	return nearest;
}

/* The last of R; GG_NO_KEY while there is room. */
static uint64_t
last_of(const gg_walk *walk)
{
	return walk->list.count < walk->itopk ? GG_NO_KEY : walk->list.keys[walk->list.count - 1];
}

/* Is a node too far to be expanded? */
static bool
beyond(const gg_walk *walk, uint64_t key, float delta)
{
	uint64_t	last = last_of(walk);
	float		far = key_distance(last);

	/* infinite distances have a NaN between them, and are not beyond one another */
	return last != GG_NO_KEY && key > last &&
		(delta == 0 || key_distance(key) > far + delta * (far - key_distance(walk->list.keys[0])));
}

static gg_code
large_batch(gg_walk *walk, const gg_search_params *params)
{
	const gg_source *source = &walk->source;
	segmented_queue queue;
	gg_code		code;

	walk->pass_marked = true;
	queue_init(&queue, params->itopk_size);
	code = gg_walk_enter(walk);
	for (size_t i = 0; i < walk->list.count && code == GG_OK; i++)
		queue_push(&queue, walk->list.keys[i]);
	while (code == GG_OK)
	{
		uint64_t	key = queue_pop(&queue);
		uint32_t	parent = key_node(key);
		uint32_t	count = 0;

		if (key == GG_NO_KEY || beyond(walk, key, params->delta))
			break;
		if (!gg_walk_reserve(walk, source->degree))
			return GG_ENOMEM;
		if (!source->neighbors(source->ctx, &parent, 1, walk->neighbors))
			return GG_ECALLBACK;
		for (uint32_t i = 0; i < source->degree; i++)
		{
			uint32_t   *node = &walk->batch[count];

			if (gg_walk_follows(walk, walk->neighbors[i], parent, node))
				count += id_set_add(&walk->seen, *node);
		}
		code = gg_walk_measure(walk, count);
		for (uint32_t i = 0; i < count && code == GG_OK; i++)
		{
			key = key_of(walk->measured[i], walk->batch[i]);
			if (key <= last_of(walk))
				queue_push(&queue, key);
		}
	}
	return code;
}

/* ---- either ------------------------------------------------------------------ */

gg_status
gg_walk_search(gg_walk *walk, const gg_source *source, const gg_search_params *params,
			   float reach)
{
	static const char *const where = "gg_walk_search";
	gg_status	status;

	/* longer lists than GG_MAX_ITOPK are heaps, and the searches of TSDG read a sorted one */
	if (params->itopk_size > GG_MAX_ITOPK ||
		(params->mode != GG_SEARCH_TSDG_SMALL && params->mode != GG_SEARCH_TSDG_LARGE))
		return gg_walk_start_near(walk, source, params, reach);
	status = gg_walk_prepare(walk, source, params, where);
	if (status.code != GG_OK)
		return status;
	return gg_walk_settle(walk, params->mode == GG_SEARCH_TSDG_SMALL ? small_batch(walk, params) :
						  large_batch(walk, params), where);
}
