/*
 * learn.h
 *		Edges learned from sample queries, by one rule for both engines.
 *
 * Where queries are not like the rows, the nearest rows of one are far from each other, and few of
 * them are linked in a graph of near rows.  So the exact answers of sample queries are linked, in
 * the last places of the nodes' lists.  learn.c has the rule.  C and C++.
 */
#ifndef GG_LEARN_H
#define GG_LEARN_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GG_LEARN_LIST	32u		/* answers of a query that are looked at */

/* Places of a list that learned edges may have: its last ones. */
static inline uint32_t
gg_learn_most_edges(uint32_t degree)
{
	return degree / 2;
}

typedef struct gg_learn_input
{
	uint32_t	n;				/* nodes, >= 1 */
	uint32_t	degree;
	const uint32_t *pivots;		/* npivots nodes, from which every node is reachable */
	uint32_t	npivots;
	const uint32_t *answers;	/* count x length nodes, nearest first; GG_NO_NODE fills a list */
	uint32_t	count;			/* how many sample queries */
	uint32_t	length;
	uint32_t	edges;			/* of a node, at most: 1 .. gg_learn_most_edges(degree) */
	uint64_t	seed;
} gg_learn_input;

typedef struct gg_learn_stats
{
	uint64_t	edges;			/* learned ones that were not there before */
	uint32_t	nodes;			/* nodes whose lists have changed for learned edges */
	uint32_t	links;			/* links that were then made, so that every node is reachable */
} gg_learn_stats;

/*
 * Learn edges: adjacency (n x degree, see gg_graph) is changed in place.  After an error it is of
 * no use.  Equal input gives equal bytes, whatever the order of the queries.  Of control only
 * cancelled() is looked at.  Errors: GG_EINVAL, GG_ENOMEM, GG_ECANCELED.
 */
extern gg_status gg_learn(const gg_learn_input *input, const gg_control *control,
						  uint32_t *adjacency, gg_learn_stats *stats);

#ifdef __cplusplus
}
#endif

#endif							/* GG_LEARN_H */
