/*
 * learn.c
 *		The rule of learn.h.
 *
 *	1. Answers i and j of a query, counted from 0, are offered to each other as neighbours where
 *	   j - i is 1 to HOPS.  The rank of the offer is j: the nearest answers come first.
 *	2. Each node takes the first `edges` of its offers by (rank, hash of both nodes).  An offer that
 *	   comes from several queries counts once, with its least rank.
 *	3. What a node has taken and does not have yet goes into its free places, then in place of its
 *	   last edges that it has not taken.  A learned edge has no mark; an edge that was there keeps
 *	   its mark and its place.
 *	4. Nodes that can no longer be reached from the pivots are linked again (reach.h), in place of
 *	   edges that were not taken, as far as there are any.
 *
 * What nodes take depends on the sample alone, and what is there counts as taken.  So learning
 * twice from the same sample changes nothing.  Edges are replaced in the last `edges` places only,
 * but for the links of step 4.  So learning from one sample after another replaces learned edges,
 * and the first places stay as they were built.
 *
 * The offers of a node are kept as minima, so neither the order of the queries nor that of the
 * offers matters.  One thread does it: 10,000 queries and a million nodes are a matter of a second.
 *
 * Tried (40,000 x 200, inner product, queries of clusters without rows, 2,000 and 10,000 sample
 * queries; recall@10 at itopk 64, distances; as built .8672 at 870; the rule .9740 at 1,008 and
 * .9868 at 1,027):
 *	- j - i as the rank: .9782 at 1,055 and .9862 at 1,096.
 *	- Edges that are there do not count as taken: .9792 at 1,021 and .9880 at 1,044, and more edges
 *	  are replaced.  Learning twice then is more than learning once where lists have free places.
 *	- NGFix's idea, only pairs that do not reach each other among the answers: .9726 at 1,006 and
 *	  .9894 at 1,099, with a third as many edges.  Queries of clusters that the sample lacks gain
 *	  less: .9376 at 961 and .9670 at 1,072, the rule .9520 at 1,009 and .9668 at 1,037.
 *	- RoarGraph's idea, all answers linked with the nearest one, and each with the next one:
 *	  .9734 at 1,007 and .9874 at 1,023.  With a gap of .3 (foreign.h) it is behind at 2,000.
 *	- HOPS 4: .9756 at 1,019 and .9866 at 1,033.
 */
#include "engine/rules/learn.h"
#include "engine/rules/random.h"
#include "engine/rules/reach.h"

#include <stdlib.h>
#include <string.h>

#define HOPS			8u
#define NO_OFFER		UINT64_MAX
#define POLL			1024u	/* queries or nodes between two questions whether to give up */

static bool
is_cancelled(void *ctx)
{
	const gg_control *control = *(const gg_control **) ctx;

	return control && control->cancelled && control->cancelled(control->ctx);
}

static inline uint32_t
offered_node(uint64_t offer)
{
	return (uint32_t) offer;
}

/* Offer `to` to `from`, whose offers are sorted. */
static inline void
make_offer(const gg_learn_input *input, uint64_t *offers, uint32_t from, uint32_t to,
		   uint32_t rank)
{
	const uint64_t hash = gg_random_at(input->seed, (uint64_t) from << 32 | to);
	const uint64_t offer = (uint64_t) rank << 58 | hash >> 38 << 32 | to;
	uint64_t   *own = offers + (size_t) from * input->edges;
	uint32_t	at = 0;

	if (from == to || offer >= own[input->edges - 1])
		return;
	/* in place of the same node's, or of the last one */
	while (at < input->edges - 1 && offered_node(own[at]) != to)
		at++;
	if (offer >= own[at])
		return;
	for (; at > 0 && own[at - 1] > offer; at--)
		own[at] = own[at - 1];
	own[at] = offer;
}

/* Step 1 for one query. */
static gg_status
offer_answers(const gg_learn_input *input, uint64_t *offers, const uint32_t *answers)
{
	const uint32_t most = input->length < GG_LEARN_LIST ? input->length : GG_LEARN_LIST;

	for (uint32_t j = 0; j < most && answers[j] != GG_NO_NODE; j++)
	{
		if (answers[j] >= input->n)
			return gg_fail(GG_EINVAL, "gg_learn", "answer %u is none of %u nodes", answers[j],
						   input->n);
		for (uint32_t i = j < HOPS ? 0 : j - HOPS; i < j; i++)
		{
			make_offer(input, offers, answers[i], answers[j], j);
			make_offer(input, offers, answers[j], answers[i], j);
		}
	}
	return gg_ok();
}

/* Has the node taken this neighbour? */
static inline bool
is_taken(const uint64_t *taken, uint32_t count, uint32_t neighbor)
{
	for (uint32_t i = 0; i < count; i++)
		if (offered_node(taken[i]) == neighbor)
			return true;
	return false;
}

static inline bool
list_has(const uint32_t *list, uint32_t length, uint32_t neighbor)
{
	for (uint32_t i = 0; i < length; i++)
		if ((list[i] & ~GG_EDGE_MARK) == neighbor)
			return true;
	return false;
}

/* What nodes have taken, which gg_reach spares when it links orphans. */
typedef struct taken_edges
{
	const uint64_t *offers;
	uint32_t	edges;
} taken_edges;

static bool
has_taken(const void *of, uint32_t from, uint32_t neighbor)
{
	const taken_edges *taken = of;

	return is_taken(taken->offers + (size_t) from * taken->edges, taken->edges, neighbor);
}

/* Step 3 for one node; returns how many edges are new. */
static uint32_t
replace_edges(const gg_learn_input *input, const uint64_t *taken, uint32_t *list)
{
	uint32_t	count = 0,
				length = 0,
				added = 0,
				at = input->degree;

	while (count < input->edges && taken[count] != NO_OFFER)
		count++;
	while (length < input->degree && list[length] != GG_NO_NODE)
		length++;
	for (uint32_t i = 0; i < count; i++)
	{
		const uint32_t neighbor = offered_node(taken[i]);

		if (list_has(list, length, neighbor))
			continue;
		added++;
		if (length < input->degree)
		{
			list[length++] = neighbor;
			continue;
		}
		/* an edge that is not taken is left: no more are taken than the list has places */
		do
			at--;
		while (is_taken(taken, count, list[at] & ~GG_EDGE_MARK));
		list[at] = neighbor;
	}
	return added;
}

/* Steps 1 to 3. */
static gg_status
change_lists(const gg_learn_input *input, const gg_control *control, uint32_t *adjacency,
			 uint64_t *offers, gg_learn_stats *stats)
{
	gg_status	status = gg_ok();

	for (uint32_t q = 0; q < input->count && status.code == GG_OK; q++)
	{
		if (q % POLL == 0 && is_cancelled(&control))
			return gg_fail(GG_ECANCELED, "gg_learn", "canceled");
		status = offer_answers(input, offers, input->answers + (size_t) q * input->length);
	}
	for (uint32_t node = 0; node < input->n && status.code == GG_OK; node++)
	{
		uint32_t	added = replace_edges(input, offers + (size_t) node * input->edges,
										  adjacency + (size_t) node * input->degree);

		if (node % POLL == 0 && is_cancelled(&control))
			return gg_fail(GG_ECANCELED, "gg_learn", "canceled");
		stats->edges += added;
		stats->nodes += added > 0;
	}
	return status;
}

/* Step 4. */
static gg_status
connect(const gg_learn_input *input, const gg_control *control, uint32_t *adjacency,
		const uint64_t *offers, gg_learn_stats *stats)
{
	const taken_edges taken = {offers, input->edges};
	gg_reach	reach;
	gg_status	status = gg_reach_create(&reach, "gg_learn", adjacency, input->n, input->degree,
										 is_cancelled, &control);

	if (status.code == GG_OK)
	{
		memset(reach.parent, 0xFF, sizeof(uint32_t) * input->n);
		reach.spared = has_taken;
		reach.of = &taken;
		for (uint32_t i = 0; i < input->npivots; i++)
			if (!gg_reach_has(&reach, input->pivots[i]))
				gg_reach_root(&reach, input->pivots[i]);
		gg_reach_spread(&reach);
		if (!gg_reach_link_all(&reach, gg_reach_link_by_list, NULL))
			status = gg_fail(GG_ENOMEM, "gg_learn", "out of memory to connect %u nodes", input->n);
		else
			gg_reach_root_left(&reach, 0);
		if (reach.stopped)
			status = gg_fail(GG_ECANCELED, "gg_learn", "canceled");
		stats->links = reach.links;
	}
	gg_reach_free(&reach);
	return status;
}

static gg_status
check_input(const gg_learn_input *input)
{
	if (input->n < 1 || input->n > GG_MAX_NODES || input->degree > GG_MAX_DEGREE)
		return gg_fail(GG_EINVAL, "gg_learn", "no graph of %u nodes of degree %u", input->n,
					   input->degree);
	if (input->edges < 1 || input->edges > gg_learn_most_edges(input->degree))
		return gg_fail(GG_EINVAL, "gg_learn", "%u learned edges are not between 1 and %u",
					   input->edges, gg_learn_most_edges(input->degree));
	if (input->npivots < 1)
		return gg_fail(GG_EINVAL, "gg_learn", "a graph has no pivots");
	for (uint32_t i = 0; i < input->npivots; i++)
		if (input->pivots[i] >= input->n)
			return gg_fail(GG_EINVAL, "gg_learn", "pivot %u is none of %u nodes",
						   input->pivots[i], input->n);
	return gg_ok();
}

gg_status
gg_learn(const gg_learn_input *input, const gg_control *control, uint32_t *adjacency,
		 gg_learn_stats *stats)
{
	const size_t bytes = sizeof(uint64_t) * input->n * input->edges;
	gg_status	status = check_input(input);
	uint64_t   *offers;

	memset(stats, 0, sizeof(*stats));
	if (status.code != GG_OK)
		return status;
	offers = malloc(bytes);
	if (!offers)
		return gg_fail(GG_ENOMEM, "gg_learn", "out of memory for the offers of %u nodes",
					   input->n);
	memset(offers, 0xFF, bytes);
	status = change_lists(input, control, adjacency, offers, stats);
	if (status.code == GG_OK)
		status = connect(input, control, adjacency, offers, stats);
	free(offers);
	return status;
}
