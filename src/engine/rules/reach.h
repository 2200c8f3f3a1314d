/*
 * reach.h
 *		A graph whose nodes are being made reachable, on the host, by either engine.
 *
 * The state is a forest of paths over the adjacency: the roots are where searches enter, and each
 * other node that was reached has a parent, from which an edge leads to it, a tree edge.  Tree
 * edges are never replaced, so whatever was reached stays reachable.  A node that was not reached,
 * an orphan, is linked from a node that was, in place of an edge of that node that is no tree edge.
 *
 * Edges with GG_EDGE_MARK are no tree edges: a search that passes over them must reach every node,
 * too.
 *
 * Which node an orphan is linked from is the caller's own rule (gg_reach_rule), because callers
 * have different lists at hand: engine/cpu/build/connect.c, kernels/build/connect.cu and learn.c.
 * C and C++.
 */
#ifndef GG_REACH_H
#define GG_REACH_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gg_reach
{
	uint32_t	n;
	uint32_t	degree;
	uint32_t   *adjacency;		/* n x degree node ids; free slots are at the end of a list */
	uint32_t   *parent;			/* n: who reached it; itself: a root; GG_NO_NODE: an orphan */
	uint32_t   *queue;			/* n places: nodes reached here, in the order of being reached */
	uint32_t	queued;
	uint32_t	expanded;		/* of the queue: nodes whose edges were followed */
	uint32_t   *left;			/* nleft orphans, in ascending order, see gg_reach_link_all() */
	uint32_t	nleft;
	uint32_t	links;			/* that gg_reach_link() has made */

	/* edges that are given last of all, or NULL: there are none */
	bool		(*spared) (const void *of, uint32_t from, uint32_t neighbor);
	const void *of;

	/* asked every now and then whether to give up; once it said so, all calls return early */
	bool		(*stop) (void *ctx);
	void	   *ctx;
	uint32_t	looked;			/* nodes since stop() was asked last */
	bool		stopped;
} gg_reach;

/*
 * Link orphan from a reached node by gg_reach_link(); false where the rule finds none that has an
 * edge to give.
 */
typedef bool (*gg_reach_rule) (gg_reach *reach, uint32_t orphan, const void *arg);

/*
 * The rule where there are no lists but the adjacency: from a reached node of the orphan's own
 * list, the first ones first, or from one that was reached through those.  Of many equal rows all
 * list the same few, whose edges are soon all in use.
 */
extern bool gg_reach_link_by_list(gg_reach *reach, uint32_t orphan, const void *unused);

/*
 * Take memory for a graph of n nodes, n >= 1.  The caller fills parent: with GG_NO_NODE, or with
 * what a search found elsewhere.  Error: GG_ENOMEM.  gg_reach_free() is due in either case.
 */
extern gg_status gg_reach_create(gg_reach *reach, const char *where, uint32_t *adjacency,
								 uint32_t n, uint32_t degree, bool (*stop) (void *ctx), void *ctx);
extern void gg_reach_free(gg_reach *reach);

static inline bool
gg_reach_has(const gg_reach *reach, uint32_t node)
{
	return reach->parent[node] != GG_NO_NODE;
}

/* Make node, an orphan, a root.  Its edges are followed by the next call of gg_reach_spread(). */
extern void gg_reach_root(gg_reach *reach, uint32_t node);

/* Go on with the breadth-first search as far as it leads. */
extern void gg_reach_spread(gg_reach *reach);

/*
 * Make orphan a neighbour of from, a reached node, and search on from it.  A marked edge between
 * them loses its mark.  Else the edge goes into the first free slot, or in place of the last edge
 * that is no tree edge, nor spared; false where all are.
 */
extern bool gg_reach_link(gg_reach *reach, uint32_t from, uint32_t orphan);

/*
 * Link orphans by the rule, in ascending order.  A link may reach what makes other orphans
 * linkable, so this goes round until a round links nothing.  Afterwards left holds the orphans that
 * remain.  False: out of memory.
 */
extern bool gg_reach_link_all(gg_reach *reach, gg_reach_rule rule, const void *arg);

/*
 * Make the orphans in left roots, in order, until there are `most` new roots; after that link them
 * from the node reached last, which is a leaf of its tree and always has an edge to
 * give, for none is spared any more.  An orphan that was reached meanwhile is passed over.
 * Afterwards left holds the new roots.
 */
extern void gg_reach_root_left(gg_reach *reach, uint32_t most);

/* One more node was looked at: ask stop() when it is time.  True: give up. */
extern bool gg_reach_stopping(gg_reach *reach);

#ifdef __cplusplus
}
#endif

#endif							/* GG_REACH_H */
